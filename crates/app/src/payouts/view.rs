//! What is shown of payouts and of the connection to the processor.

use serde_json::{Value, json};
use turnpike_core::ledger::payout::{Connection, Destination, Payout, PayoutSettings};

/// A payout as the workspace sees it.
pub(super) fn payout_view(payout: &Payout) -> Value {
    let destination = match &payout.destination {
        Destination::Stablecoin(address) => json!(address),
        Destination::Processor { processor, account } => {
            json!({ "processor": processor, "account": account })
        }
    };
    json!({
        "payoutId": payout.id,
        "amountUsd": payout.amount,
        "method": payout.destination.method(),
        "destination": destination,
        "status": payout.state,
        "reference": payout.reference,
        "failure": payout.failure,
        "createdAt": payout.created_at,
        "updatedAt": payout.updated_at,
    })
}

/// The connection to the service's processor as the workspace sees it.
pub(super) fn connection_view(settings: &PayoutSettings, processor: Option<&str>) -> Value {
    let connection: Option<&Connection> = settings.connection_to(processor);
    json!({
        "connected": connection.is_some(),
        "processor": processor,
        "account": connection.map(|connection| &connection.account),
        "detailsSubmitted": connection.is_some_and(|connection| connection.details_submitted),
        "payable": connection.is_some_and(|connection| connection.payable),
        "disabledReason": connection.and_then(|connection| connection.disabled_reason.as_ref()),
        "connectedAt": connection.map(|connection| connection.connected_at),
    })
}
