//! A token of an end user, as the ledger counts it: whose it is, until when, and what was spent with it.
//!
//! The signature is the app's business. A hold loads the row, so that a revoked token spends nothing from the
//! moment of its revocation on.

use std::sync::Arc;

use crate::ids::ExternalUserId;
use crate::money::Micros;
use crate::time::Timestamp;

/// A token of an end user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndUserToken {
    /// Whose.
    pub owner: ExternalUserId,
    /// When it was minted.
    pub created_at: Timestamp,
    /// When it stops working.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Most that may be spent with it; `None` = the balance alone limits.
    pub max_spend: Option<Micros>,
    /// Spent and held with it; counted only when there is a ceiling.
    pub spent: Micros,
    /// Slugs or `provider/*` that may be called; `None` = all.
    pub tools: Option<Arc<[String]>>,
}

impl EndUserToken {
    /// Whether it works at `at`.
    pub fn is_live(&self, at: Timestamp) -> bool {
        self.revoked_at.is_none() && at < self.expires_at
    }
}
