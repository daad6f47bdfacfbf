//! What is shown of approvals.

use serde_json::{Value, json};
use turnpike_core::ids::ApprovalId;
use turnpike_core::ledger::approval::Approval;
use turnpike_core::money::CreditsPerDollar;
use turnpike_core::time::Timestamp;

/// The page where somebody decides about it.
pub(crate) fn url(public_url: &str, id: ApprovalId) -> String {
    format!("{public_url}/approve/{id}")
}

/// An approval as the workspace sees it.
pub(super) fn view(approval: &Approval, rate: CreditsPerDollar, public_url: &str, now: Timestamp) -> Value {
    json!({
        "id": approval.id,
        "kind": approval.kind,
        "status": approval.state_at(now),
        "slug": approval.slug,
        "externalUserId": approval.owner,
        "requestedUsd": approval.amount,
        "requestedCredits": approval.amount.map(|amount| rate.credits(amount)),
        "args": approval.args,
        "quoteId": approval.quote,
        "reason": approval.reason,
        "requestedBy": approval.credential,
        "createdAt": approval.created_at,
        "expiresAt": approval.expires_at,
        "decidedAt": approval.decided_at,
        "decidedBy": approval.decided_by,
        "decisionReason": approval.decision,
        "callId": approval.call,
        "url": url(public_url, approval.id),
    })
}
