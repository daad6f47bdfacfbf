//! Events: what a tenant is told, written in the transaction of the money they tell of.
//!
//! Payloads are those of decisions section 11; the sequence is per tenant, from 1, without gaps.

use std::sync::Arc;

use super::account::coded_enum;
use crate::ids::EventId;
use crate::time::Timestamp;

/// The version label every event carries (specification 2.12).
pub const API_VERSION: &str = "2026-11-01";

coded_enum! {
    /// The twelve event types of specification section 6.
    EventType {
        /// A top-up was paid.
        TopupCompleted = 0 "credits.topup.completed",
        /// A top-up failed.
        TopupFailed = 1 "credits.topup.failed",
        /// A call was charged.
        BurnCompleted = 2 "credits.burn.completed",
        /// A call failed and nothing was charged.
        BurnFailed = 3 "credits.burn.failed",
        /// Credits were given back.
        RefundIssued = 4 "credits.refund.issued",
        /// A payment is disputed.
        DisputeOpened = 5 "credits.dispute.opened",
        /// A dispute ended.
        DisputeClosed = 6 "credits.dispute.closed",
        /// A settled balance changed.
        BalanceChanged = 7 "credits.balance.changed",
        /// A balance crossed its threshold.
        BalanceLow = 8 "credits.balance.low",
        /// An account was frozen.
        AccountFrozen = 9 "credits.account.frozen",
        /// Metered and billed cost differ.
        UsageDriftDetected = 10 "credits.usage_drift.detected",
        /// They agree again.
        UsageDriftResolved = 11 "credits.usage_drift.resolved",
    }
}

/// One event as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Position in the tenant's sequence.
    pub seq: i64,
    /// Public id.
    pub id: EventId,
    /// What happened.
    pub kind: EventType,
    /// When.
    pub created_at: Timestamp,
    /// The payload, as JSON text.
    pub data: Arc<str>,
}
