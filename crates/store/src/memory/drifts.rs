//! Usage drift in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::drift::{DriftKey, DriftState, DriftWindow};
use turnpike_core::ledger::paid_call::PaidCall;
use turnpike_core::ledger::{Hold, HoldState};
use turnpike_core::money::Micros;
use turnpike_core::time::{Day, Timestamp};

use super::{MemoryStore, State};
use crate::error::StoreError;
use crate::records::{DayCosts, DriftImport};
use crate::traits::Drifts;

/// A provider's figures of a day, and whether they were judged.
pub(super) type Imports = BTreeMap<(Day, String), (DriftImport, bool)>;

fn overflow() -> StoreError {
    StoreError::Corrupt("a sum is too large".to_owned())
}

/// The provider's share of what a captured call costs now.
fn base(hold: &Hold) -> Option<Micros> {
    if hold.state != HoldState::Captured {
        return Some(Micros::ZERO);
    }
    hold.charged.checked_sub(hold.refunded)?.checked_sub(hold.margin)
}

impl State {
    fn calls_of(&self, day: Day) -> impl Iterator<Item = (TenantId, &Hold)> {
        self.books
            .holds
            .iter()
            .filter(move |(_, hold)| Day::of(hold.created_at) == day)
            .map(|((tenant, _), hold)| (*tenant, hold))
    }

    fn paid_calls_of(&self, day: Day) -> impl Iterator<Item = (TenantId, &PaidCall)> {
        self.books
            .paid_calls
            .iter()
            .filter(move |(_, call)| Day::of(call.created_at) == day)
            .map(|((tenant, _), call)| (*tenant, call))
    }
}

#[async_trait]
impl Drifts for MemoryStore {
    async fn day_costs(
        &self,
        provider: &str,
        day: Day,
        tenant: Option<TenantId>,
    ) -> Result<Vec<DayCosts>, StoreError> {
        let mut sums: BTreeMap<TenantId, (Micros, Micros)> = BTreeMap::new();
        for (of, hold) in self.state().calls_of(day) {
            if *hold.subject.provider != *provider || tenant.is_some_and(|tenant| tenant != of) {
                continue;
            }
            let sum = sums.entry(of).or_default();
            let base = base(hold).ok_or_else(overflow)?;
            sum.0 = sum.0.checked_add(base).ok_or_else(overflow)?;
            sum.1 = sum.1.checked_add(hold.loss).ok_or_else(overflow)?;
        }
        for (of, call) in self.state().paid_calls_of(day) {
            if call.subject.provider.as_deref() != Some(provider) || tenant.is_some_and(|tenant| tenant != of)
            {
                continue;
            }
            let sum = sums.entry(of).or_default();
            sum.0 = sum.0.checked_add(call.base_cost()).ok_or_else(overflow)?;
            sum.1 = sum.1.checked_add(call.loss).ok_or_else(overflow)?;
        }
        let costs = |(tenant, (metered, loss))| DayCosts {
            tenant,
            metered,
            loss,
        };
        Ok(sums.into_iter().map(costs).collect())
    }

    async fn list_day_losses(
        &self,
        day: Day,
        at_least: Micros,
    ) -> Result<Vec<(TenantId, String)>, StoreError> {
        let mut sums: BTreeMap<(TenantId, String), Micros> = BTreeMap::new();
        for (tenant, hold) in self
            .state()
            .calls_of(day)
            .filter(|(_, hold)| !hold.loss.is_zero())
        {
            let sum = sums
                .entry((tenant, hold.subject.provider.to_string()))
                .or_default();
            *sum = sum.checked_add(hold.loss).ok_or_else(overflow)?;
        }
        for (tenant, call) in self.state().paid_calls_of(day) {
            let Some(provider) = call.subject.provider.as_ref().filter(|_| !call.loss.is_zero()) else {
                continue;
            };
            let sum = sums.entry((tenant, provider.to_string())).or_default();
            *sum = sum.checked_add(call.loss).ok_or_else(overflow)?;
        }
        let enough = sums.into_iter().filter(|(_, loss)| *loss >= at_least);
        Ok(enough.map(|(key, _)| key).collect())
    }

    async fn list_open_drifts(&self) -> Result<Vec<(DriftKey, DriftWindow)>, StoreError> {
        let state = self.state();
        let windows = state.books.drift_windows.iter();
        let mut open: Vec<_> = windows
            .filter(|(_, window)| window.state == DriftState::Detected)
            .map(|(key, window)| (key.clone(), *window))
            .collect();
        open.sort_by(|(a, _), (b, _)| (a.day, a.tenant, &a.provider).cmp(&(b.day, b.tenant, &b.provider)));
        Ok(open)
    }

    async fn find_drift(&self, key: &DriftKey) -> Result<Option<DriftWindow>, StoreError> {
        Ok(self.state().books.drift_windows.get(key).copied())
    }

    async fn put_drift_imports(&self, imports: &[DriftImport]) -> Result<(), StoreError> {
        let mut state = self.state();
        for import in imports {
            let key = (import.day, import.provider.clone());
            state.drift_imports.insert(key, (import.clone(), false));
        }
        Ok(())
    }

    async fn find_drift_import(&self, provider: &str, day: Day) -> Result<Option<DriftImport>, StoreError> {
        let key = (day, provider.to_owned());
        Ok(self
            .state()
            .drift_imports
            .get(&key)
            .map(|(import, _)| import.clone()))
    }

    async fn list_pending_drift_imports(&self, limit: u32) -> Result<Vec<DriftImport>, StoreError> {
        let state = self.state();
        let pending = state.drift_imports.values().filter(|(_, judged)| !judged);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(pending.map(|(import, _)| import.clone()).take(limit).collect())
    }

    async fn mark_drift_import(&self, import: &DriftImport, _at: Timestamp) -> Result<bool, StoreError> {
        let mut state = self.state();
        let key = (import.day, import.provider.clone());
        Ok(match state.drift_imports.get_mut(&key) {
            Some((stored, judged)) if stored == import && !*judged => {
                *judged = true;
                true
            }
            Some(_) | None => false,
        })
    }
}
