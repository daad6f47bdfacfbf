//! A credential that spends, as the ledger counts it: whose balance it spends from, until when, and what was spent
//! with it. Tokens of end users are such, and so are agent connections.
//!
//! The secret or signature is the app's business. A hold loads the row, so that a revoked credential spends nothing from
//! the moment of its revocation on.

use std::sync::Arc;

use super::account::{Payer, coded_enum};
use crate::money::Micros;
use crate::time::Timestamp;

coded_enum! {
    /// What the row belongs to.
    TokenKind {
        /// A token of an end user.
        EndUser = 0 "end_user",
        /// An agent connection.
        Agent = 1 "agent",
    }
}

/// A token of an end user, or an agent connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndUserToken {
    /// What it belongs to.
    pub kind: TokenKind,
    /// Whose balance it spends from. A token of an end user names that end user.
    pub owner: Payer,
    /// When it was minted.
    pub created_at: Timestamp,
    /// When it stops working.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Most that may be spent with it; `None` = the balance alone limits.
    pub max_spend: Option<Micros>,
    /// Most that one call may cost; `None` = the other limits alone.
    pub max_per_call: Option<Micros>,
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
