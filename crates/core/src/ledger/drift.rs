//! Usage drift: what a provider says a day cost against what the ledger metered.
//!
//! A window is one UTC day of one provider in one workspace. It is told of at most twice for good: once when the
//! two differ by more than the threshold, and once when that is over.
//!
//! ```text
//! (none) ──▶ Detected ──▶ Resolved
//! ```
//! What the provider says comes from one of two sources ([`DriftEvidence`]): the usage it reported with each call,
//! which is known at once, or its own invoice, which is imported. An invoice is the stronger one: what it has shown
//! is not taken back by the weaker.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::coded_enum;
use crate::ids::{DriftId, TenantId};
use crate::money::Micros;
use crate::time::{Day, Timestamp};

/// A difference without anything metered counts as all of it.
const WHOLE_BPS: u32 = 10_000;

coded_enum! {
    /// Where a window stands.
    DriftState {
        /// The tenant was told of a difference.
        Detected = 0 "detected",
        /// And that it is over.
        Resolved = 1 "resolved",
    }
}

coded_enum! {
    /// What says what a provider's day cost; the later is the stronger.
    DriftEvidence {
        /// The usage that came with the answers: the metered cost and what was booked as loss above it.
        Reported = 0 "reported",
        /// The provider's invoice or usage export.
        Imported = 1 "imported",
    }
}

coded_enum! {
    /// Why a drift is over.
    DriftResolution {
        /// The day was measured again, and agrees.
        Corrected = 0 "corrected",
        /// A later day agrees.
        AgreesAgain = 1 "agrees_again",
    }
}

/// Names a window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriftKey {
    /// The workspace.
    pub tenant: TenantId,
    /// Provider id, as calls carry it.
    pub provider: Arc<str>,
    /// Which day.
    pub day: Day,
}

impl DriftKey {
    /// The window's public id.
    pub fn id(&self) -> DriftId {
        DriftId::derive(self.tenant, &self.provider, self.day)
    }
}

/// The two numbers that should be the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftFigures {
    /// Base cost in the ledger.
    pub metered_usd: Micros,
    /// What the provider says.
    pub provider_usd: Micros,
}

impl DriftFigures {
    /// Provider less metered; `None` when that does not fit.
    pub const fn drift(&self) -> Option<Micros> {
        self.provider_usd.checked_sub(self.metered_usd)
    }

    /// The size of the difference in hundredths of a percent of what was metered, rounded down; 10000 when nothing
    /// was metered and something is billed.
    pub fn bps(&self) -> u32 {
        let (metered, provider) = (
            i128::from(self.metered_usd.get()),
            i128::from(self.provider_usd.get()),
        );
        let size = provider.saturating_sub(metered).saturating_abs();
        if size == 0 {
            return 0;
        }
        size.saturating_mul(i128::from(WHOLE_BPS))
            .checked_div(metered)
            .map_or(WHOLE_BPS, |bps| u32::try_from(bps).unwrap_or(u32::MAX))
    }
}

/// From which difference on a window drifts: both have to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriftThreshold {
    /// Hundredths of a percent of what was metered.
    pub bps: u32,
    /// The smallest difference.
    pub usd: Micros,
}

impl DriftThreshold {
    /// Whether `figures` differ by as much.
    pub fn is_reached(&self, figures: &DriftFigures) -> bool {
        let size = figures
            .drift()
            .map_or(u64::MAX, |drift| drift.get().unsigned_abs());
        size >= self.usd.get().unsigned_abs() && size > 0 && figures.bps() >= self.bps
    }
}

/// A window that was told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftWindow {
    /// Where it stands.
    pub state: DriftState,
    /// What showed the difference.
    pub evidence: DriftEvidence,
    /// As last measured.
    pub figures: DriftFigures,
    /// The difference that was compared with the threshold: the workspace's own, or that of all workspaces.
    pub bps: u32,
    /// What it was compared with.
    pub threshold_bps: u32,
    /// When the tenant was told.
    pub detected_at: Timestamp,
    /// When it was over.
    pub resolved_at: Option<Timestamp>,
    /// Why.
    pub resolution: Option<DriftResolution>,
}

/// Divides `total` by `weights`: each part is within one µUSD of its share, and the parts sum to `total`. The last
/// µUSD go to the largest remainders, among equal ones to the first. `None` when there is nothing to divide by, or
/// a number is negative.
pub fn apportion(total: Micros, weights: &[Micros]) -> Option<Vec<Micros>> {
    let whole: i128 = weights.iter().map(|weight| i128::from(weight.get())).sum();
    if whole <= 0 || total.is_negative() || weights.iter().any(|weight| weight.is_negative()) {
        return None;
    }
    let mut parts = Vec::with_capacity(weights.len());
    let mut rests: Vec<(i128, usize)> = Vec::with_capacity(weights.len());
    let mut left = i128::from(total.get());
    for (index, weight) in weights.iter().enumerate() {
        let share = i128::from(total.get()).checked_mul(i128::from(weight.get()))?;
        let part = share.checked_div(whole)?;
        rests.push((share.checked_rem(whole)?, index));
        left = left.checked_sub(part)?;
        parts.push(part);
    }
    rests.sort_by_key(|(rest, index)| (std::cmp::Reverse(*rest), *index));
    for (_, index) in rests.into_iter().take(usize::try_from(left).ok()?) {
        let part = parts.get_mut(index)?;
        *part = part.checked_add(1)?;
    }
    parts
        .into_iter()
        .map(|part| i64::try_from(part).ok().map(Micros::new))
        .collect()
}
