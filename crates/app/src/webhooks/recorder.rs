//! Records how attempts ended, many in one transaction, and goes on trying while the store is away.

use std::sync::Arc;
use std::time::Duration;

use fail::fail_point;
use tokio::sync::mpsc;
use turnpike_store::DeliveryReport;

use super::WebhookParts;

/// Most reports in one transaction.
const BATCH: usize = 256;
/// Between two tries while the store does not answer.
const PAUSE: Duration = Duration::from_millis(250);
/// After so many tries the leases are over, and others have made new attempts.
const MAX_TRIES: u32 = 240;

/// Runs until every sender of reports is gone and everything is recorded or given up.
pub(super) async fn run(parts: Arc<WebhookParts>, mut reports: mpsc::Receiver<DeliveryReport>) {
    let mut batch = Vec::with_capacity(BATCH);
    while reports.recv_many(&mut batch, BATCH).await > 0 {
        record(&parts, &batch).await;
        fail_point!("after-webhook-recorded");
        batch.clear();
    }
}

async fn record(parts: &WebhookParts, batch: &[DeliveryReport]) {
    for _ in 0..MAX_TRIES {
        match parts.store.record_deliveries(batch).await {
            Ok(recorded) => {
                let sent = u64::try_from(batch.len()).unwrap_or(u64::MAX);
                if recorded < sent {
                    // Also when the answer to an earlier try was lost.
                    let lost = sent.saturating_sub(recorded);
                    tracing::warn!(
                        lost,
                        "attempts were recorded by nobody or by somebody else: their leases were over"
                    );
                }
                return;
            }
            Err(error) => {
                tracing::warn!(%error, attempts = batch.len(), "how webhook attempts ended could not be recorded yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    tracing::error!(
        attempts = batch.len(),
        "how webhook attempts ended was never recorded: they will be made again"
    );
}
