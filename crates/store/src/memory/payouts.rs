//! Payouts in memory.

use async_trait::async_trait;
use turnpike_core::ids::{PayoutId, TenantId};
use turnpike_core::ledger::payout::{Payout, PayoutSettings, PayoutState};
use turnpike_core::money::Micros;

use super::MemoryStore;
use super::topups::cut;
use crate::error::StoreError;
use crate::payouts::{PayoutSums, Payouts};

#[async_trait]
impl Payouts for MemoryStore {
    async fn find_payout(&self, tenant: TenantId, payout: PayoutId) -> Result<Option<Payout>, StoreError> {
        Ok(self.state().books.payouts.get(&(tenant, payout)).cloned())
    }

    async fn list_payouts(
        &self,
        tenant: TenantId,
        before: Option<PayoutId>,
        limit: u32,
    ) -> Result<Vec<Payout>, StoreError> {
        let state = self.state();
        let payouts = state.books.payouts.iter();
        let mut found: Vec<Payout> = payouts
            .filter(|((of, id), _)| *of == tenant && before.is_none_or(|before| *id < before))
            .map(|(_, payout)| payout.clone())
            .collect();
        found.sort_by_key(|payout| std::cmp::Reverse(payout.id));
        Ok(cut(found, limit))
    }

    async fn list_open_payouts(
        &self,
        after: Option<PayoutId>,
        limit: u32,
    ) -> Result<Vec<(TenantId, Payout)>, StoreError> {
        let state = self.state();
        let payouts = state.books.payouts.iter();
        let mut found: Vec<(TenantId, Payout)> = payouts
            .filter(|((_, id), payout)| payout.state.is_open() && after.is_none_or(|after| *id > after))
            .map(|((tenant, _), payout)| (*tenant, payout.clone()))
            .collect();
        found.sort_by_key(|(_, payout)| payout.id);
        Ok(cut(found, limit))
    }

    async fn sum_payouts(&self, tenant: TenantId) -> Result<PayoutSums, StoreError> {
        let state = self.state();
        let sum = |counts: fn(PayoutState) -> bool| {
            let payouts = state.books.payouts.iter();
            payouts
                .filter(|((of, _), payout)| *of == tenant && counts(payout.state))
                .fold(Micros::ZERO, |sum, (_, payout)| {
                    sum.checked_add(payout.amount).unwrap_or(Micros::MAX)
                })
        };
        Ok(PayoutSums {
            open: sum(PayoutState::is_open),
            paid: sum(|state| state == PayoutState::Paid),
        })
    }

    async fn find_payout_settings(&self, tenant: TenantId) -> Result<Option<PayoutSettings>, StoreError> {
        Ok(self.state().books.payout_settings.get(&tenant).cloned())
    }

    async fn find_payout_account(&self, account: &str) -> Result<Option<TenantId>, StoreError> {
        let state = self.state();
        let is_it = |settings: &PayoutSettings| {
            let connection = settings.connection.as_ref();
            connection.is_some_and(|connection| &*connection.account == account)
        };
        let mut all = state.books.payout_settings.iter();
        Ok(all
            .find(|(_, settings)| is_it(settings))
            .map(|(tenant, _)| *tenant))
    }

    async fn find_open_payout(&self, payout: PayoutId) -> Result<Option<(TenantId, Payout)>, StoreError> {
        let state = self.state();
        let mut payouts = state.books.payouts.iter();
        let found = payouts.find(|((_, id), row)| *id == payout && row.state.is_open());
        Ok(found.map(|((tenant, _), row)| (*tenant, row.clone())))
    }

    async fn find_payout_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(TenantId, PayoutId)>, StoreError> {
        let state = self.state();
        let payouts = state.books.payouts.iter();
        let named = payouts.filter(|(_, payout)| payout.reference.as_deref() == Some(reference));
        Ok(named.map(|(key, _)| *key).min_by_key(|(_, id)| *id))
    }
}
