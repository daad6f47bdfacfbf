//! Records how attempts ended, many in one transaction, and goes on trying while the store is away.

use std::sync::Arc;
use std::time::Duration;

use fail::fail_point;
use tokio::sync::mpsc;
use tokio::time::Instant;
use turnpike_store::{DeliveryReport, StoreError, Verdict};

use super::WebhookParts;
use super::canceling::cancel_some;

/// Most reports in one transaction.
const BATCH: usize = 256;
/// Between two tries while the store does not answer.
const PAUSE: Duration = Duration::from_millis(250);

/// Runs until every sender of reports is gone and everything is recorded or given up.
pub(super) async fn run(parts: Arc<WebhookParts>, mut reports: mpsc::Receiver<DeliveryReport>) {
    let mut batch = Vec::with_capacity(BATCH);
    while reports.recv_many(&mut batch, BATCH).await > 0 {
        record(&parts, &batch).await;
        fail_point!("after-webhook-recorded");
        batch.clear();
    }
}

/// How long it makes sense to try: afterwards others have made new attempts. A worker that is alone goes on.
fn give_up_at(parts: &WebhookParts) -> Option<Instant> {
    let lease = Duration::from_millis(u64::try_from(parts.settings.lease_ms()).unwrap_or_default());
    parts.store.is_shared().then(|| Instant::now() + lease)
}

async fn record(parts: &WebhookParts, batch: &[DeliveryReport]) {
    let give_up_at = give_up_at(parts);
    loop {
        match parts.store.record_deliveries(batch).await {
            Ok(recorded) => return recorded_of(parts, batch, recorded).await,
            Err(error @ (StoreError::Unavailable(_) | StoreError::Locked(_))) => {
                tracing::warn!(%error, attempts = batch.len(), "how webhook attempts ended could not be recorded yet");
            }
            Err(error) => {
                // One of them has a value that the database refuses; the others do not suffer for it.
                tracing::error!(%error, "a batch of webhook attempts is recorded one by one");
                return one_by_one(parts, batch).await;
            }
        }
        if give_up_at.is_some_and(|at| Instant::now() >= at) {
            tracing::error!(
                attempts = batch.len(),
                "how webhook attempts ended was not recorded in time: they will be made again"
            );
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn recorded_of(parts: &WebhookParts, batch: &[DeliveryReport], recorded: u64) {
    let lost = u64::try_from(batch.len())
        .unwrap_or(u64::MAX)
        .saturating_sub(recorded);
    if lost > 0 {
        // Also when the answer to an earlier try was lost.
        tracing::warn!(
            lost,
            "webhook attempts were recorded before, or their leases were over"
        );
    }
    for report in batch {
        if matches!(report.verdict, Some(Verdict::Gone | Verdict::Hopeless(_))) {
            cancel_some(parts, report.tenant, report.endpoint).await;
        }
    }
}

async fn one_by_one(parts: &WebhookParts, batch: &[DeliveryReport]) {
    for report in batch {
        let mut report = report.clone();
        if parts
            .store
            .record_deliveries(std::slice::from_ref(&report))
            .await
            .is_ok()
        {
            continue;
        }
        // What the destination said is the one thing in it that a stranger wrote.
        report.response_body = None;
        if let Err(error) = parts.store.record_deliveries(std::slice::from_ref(&report)).await {
            tracing::error!(%error, "how a webhook attempt ended cannot be recorded: it will be made again");
        }
    }
}
