//! Records how attempts ended, many in one transaction, and goes on trying while the store is away.

use std::collections::BTreeSet;
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

async fn record(parts: &Arc<WebhookParts>, batch: &[DeliveryReport]) {
    let recorded = match settle(parts, batch).await {
        Ok(recorded) => recorded,
        Err(error) => {
            // One of them has a value that the database refuses; the others do not suffer for it.
            tracing::error!(%error, "a batch of webhook attempts is recorded one by one");
            one_by_one(parts, batch).await
        }
    };
    let lost = u64::try_from(batch.len())
        .unwrap_or(u64::MAX)
        .saturating_sub(recorded);
    if lost > 0 {
        // Also when the answer to an earlier try was lost.
        tracing::warn!(lost, "webhook attempts were recorded before, or are made again");
    }
    let ends =
        |report: &&DeliveryReport| matches!(report.verdict, Some(Verdict::Gone | Verdict::Hopeless(_)));
    let out_of_use: BTreeSet<_> = batch
        .iter()
        .filter(ends)
        .map(|report| (report.tenant, report.endpoint))
        .collect();
    for (tenant, endpoint) in out_of_use {
        // Beside the recording, which others wait for; what is left of it is swept up.
        let parts = parts.clone();
        tokio::spawn(async move { cancel_some(&parts, tenant, endpoint).await });
    }
}

/// Records a batch however long the store is away; says of how many the claim still stood.
///
/// # Errors
/// What the database refuses for good.
async fn settle(parts: &WebhookParts, batch: &[DeliveryReport]) -> Result<u64, StoreError> {
    let give_up_at = give_up_at(parts);
    loop {
        let error = match parts.store.record_deliveries(batch).await {
            Ok(recorded) => return Ok(recorded),
            Err(error @ (StoreError::Unavailable(_) | StoreError::Locked(_))) => error,
            Err(refused) => return Err(refused),
        };
        tracing::warn!(%error, attempts = batch.len(), "how webhook attempts ended could not be recorded yet");
        if give_up_at.is_some_and(|at| Instant::now() >= at) {
            tracing::error!(
                attempts = batch.len(),
                "how webhook attempts ended was not recorded in time"
            );
            return Ok(0);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn one_by_one(parts: &WebhookParts, batch: &[DeliveryReport]) -> u64 {
    let mut recorded: u64 = 0;
    for report in batch {
        let mut report = report.clone();
        let mut settled = settle(parts, std::slice::from_ref(&report)).await;
        if settled.is_err() {
            // What the destination said is the one thing in it that a stranger wrote.
            report.response_body = None;
            settled = settle(parts, std::slice::from_ref(&report)).await;
        }
        match settled {
            Ok(one) => recorded = recorded.saturating_add(one),
            Err(error) => tracing::error!(%error, "how a webhook attempt ended cannot be recorded"),
        }
    }
    recorded
}
