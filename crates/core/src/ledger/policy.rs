//! Spending limits of an end user, checked in the command that takes the hold.

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::hold::LoopCount;
use super::rejection::{LimitScope, Rejection};
use crate::ids::ExternalUserId;
use crate::money::Micros;
use crate::time::Timestamp;

/// Limits on what an end user may spend. Absent means unlimited, zero means nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    /// Largest hold of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usd_per_call: Option<Micros>,
    /// Spent and held in a UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usd_per_day: Option<Micros>,
    /// Spent and held in a UTC month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usd_per_month: Option<Micros>,
    /// Calls admitted in one loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls_per_loop: Option<u64>,
    /// Spent and held in one loop (kept in dollars; the interface speaks credits).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usd_per_loop: Option<Micros>,
    /// Slugs or `provider/*` that may be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Calls above this need an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_approval_above_usd: Option<Micros>,
}

impl Policy {
    /// Whether calls must name their loop.
    pub const fn needs_loop(&self) -> bool {
        self.max_calls_per_loop.is_some() || self.max_usd_per_loop.is_some()
    }

    /// Whether the provider's endpoint, or the model behind it, may be called.
    pub fn allows(&self, provider: &str, endpoint: &str, model: Option<&str>) -> bool {
        self.allowed_tools
            .as_deref()
            .is_none_or(|patterns| allows(patterns, provider, endpoint, model))
    }

    /// Whether what `slug` names may be called.
    pub fn allows_slug(&self, slug: &str) -> bool {
        slug.split_once('/')
            .is_some_and(|(provider, name)| self.allows(provider, name, None))
    }

    /// Whether a call that holds `amount` keeps within every limit.
    pub(super) fn admit(
        &self,
        account: &Account,
        counted: Option<LoopCount>,
        amount: Micros,
        at: Timestamp,
    ) -> Result<(), Rejection> {
        let none = Micros::ZERO;
        let windows = [
            (LimitScope::Call, self.max_usd_per_call, none, None),
            (
                LimitScope::Day,
                self.max_usd_per_day,
                account.day.spent_in(at.day()),
                Some(at.next_day()),
            ),
            (
                LimitScope::Month,
                self.max_usd_per_month,
                account.month.spent_in(at.month()),
                Some(at.next_month()),
            ),
            (
                LimitScope::Loop,
                self.max_usd_per_loop,
                counted.map_or(none, |count| count.spent),
                None,
            ),
        ];
        for (scope, limit, spent, resets_at) in windows {
            let Some(limit) = limit else { continue };
            let after = spent.checked_add(amount).ok_or(Rejection::Overflow)?;
            if after > limit {
                return Err(Rejection::SpendLimitExceeded {
                    scope,
                    limit,
                    spent,
                    resets_at,
                });
            }
        }
        if self.needs_loop() && counted.is_none() {
            return Err(Rejection::LoopRequired);
        }
        match (self.max_calls_per_loop, counted) {
            (Some(limit), Some(count)) if count.calls >= limit => Err(Rejection::LoopCallsExceeded {
                limit,
                calls: count.calls,
            }),
            _ => Ok(()),
        }
    }
}

/// Whether one of `patterns` (`provider/*`, `provider/endpoint`, `provider/model`) names the call.
pub fn allows(patterns: &[String], provider: &str, endpoint: &str, model: Option<&str>) -> bool {
    patterns.iter().any(|pattern| {
        pattern
            .strip_prefix(provider)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|name| name == "*" || name == endpoint || model == Some(name))
    })
}

/// An end user as the ledger knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndUser {
    /// The tenant's name for it.
    pub id: ExternalUserId,
    /// Retired for good.
    pub retired: bool,
    /// Its limits.
    pub policy: std::sync::Arc<Policy>,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// What is not settled yet and stands in the way of retirement.
    pub open: OpenItems,
}

/// Counts of an end user's unsettled top-ups, refunds and disputes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenItems {
    /// Top-ups that may still be paid.
    pub topups: i64,
    /// Refunds that are pending.
    pub refunds: i64,
    /// Disputes that are open, inquiries included.
    pub disputes: i64,
}

impl EndUser {
    /// An end user without a past.
    pub fn new(id: ExternalUserId, created_at: Timestamp) -> Self {
        Self {
            id,
            retired: false,
            policy: std::sync::Arc::default(),
            created_at,
            open: OpenItems::default(),
        }
    }
}
