//! Cancels what waits for endpoints that went out of use: a little at a time, however much it is.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use turnpike_core::ids::{TenantId, WebhookEndpointId};
use turnpike_store::{Canceling, StoreError};

use super::WebhookParts;

/// Attempts canceled in one transaction.
const AT_ONCE: u32 = 500;
/// Transactions for one endpoint, before others have their turn.
const TURNS: u32 = 20;
/// Between two transactions: the ledger is written by the same hand.
const PAUSE: Duration = Duration::from_millis(10);

/// Cancels a part of what waits for an endpoint; says whether that was all of it.
pub(super) async fn cancel_part(
    parts: &WebhookParts,
    tenant: TenantId,
    endpoint: WebhookEndpointId,
) -> Result<Canceling, StoreError> {
    for _ in 0..TURNS {
        let now = parts.environment.now();
        let canceling = parts
            .store
            .cancel_deliveries(tenant, endpoint, now, AT_ONCE)
            .await?;
        if canceling == Canceling::Done {
            return Ok(Canceling::Done);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Canceling::More)
}

/// The same, where the next look does what is left.
pub(super) async fn cancel_some(parts: &WebhookParts, tenant: TenantId, endpoint: WebhookEndpointId) {
    if let Err(error) = cancel_part(parts, tenant, endpoint).await {
        tracing::warn!(%error, %endpoint, "webhook attempts are canceled later");
    }
}

/// Looks at every endpoint that went out of use, until `stop`.
pub(super) async fn sweep(parts: &WebhookParts, stop: &CancellationToken) {
    match parts.store.list_canceling_endpoints().await {
        Ok(endpoints) => {
            for (tenant, endpoint) in endpoints {
                if stop.is_cancelled() {
                    return;
                }
                cancel_some(parts, tenant, endpoint).await;
            }
        }
        Err(error) => tracing::warn!(%error, "webhook attempts are canceled later"),
    }
}
