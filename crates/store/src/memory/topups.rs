//! Top-ups in memory.

use async_trait::async_trait;
use turnpike_core::ids::{TenantId, TopupId};
use turnpike_core::ledger::topup::{AutoTopup, Topup};

use super::MemoryStore;
use crate::error::StoreError;
use crate::records::TopupFilter;
use crate::traits::Topups;

pub(super) fn cut<T>(mut rows: Vec<T>, limit: u32) -> Vec<T> {
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    rows
}

#[async_trait]
impl Topups for MemoryStore {
    async fn find_topup(&self, tenant: TenantId, topup: TopupId) -> Result<Option<Topup>, StoreError> {
        Ok(self.state().books.topups.get(&(tenant, topup)).cloned())
    }

    async fn find_processor_ref(&self, reference: &str) -> Result<Option<(TenantId, TopupId)>, StoreError> {
        Ok(self.state().processor_refs.get(reference).copied())
    }

    async fn list_topups(&self, tenant: TenantId, filter: &TopupFilter) -> Result<Vec<Topup>, StoreError> {
        let state = self.state();
        let mut found: Vec<Topup> = state
            .books
            .topups
            .iter()
            .filter(|((of, id), topup)| {
                *of == tenant
                    && filter.before.is_none_or(|before| *id < before)
                    && filter.payer.as_ref().is_none_or(|payer| topup.payer() == *payer)
            })
            .map(|(_, topup)| topup.clone())
            .collect();
        found.sort_by_key(|topup| std::cmp::Reverse(topup.id));
        Ok(cut(found, filter.limit))
    }

    async fn list_unsettled_topups(
        &self,
        after: Option<TopupId>,
        limit: u32,
    ) -> Result<Vec<(TenantId, Topup)>, StoreError> {
        let state = self.state();
        let mut found: Vec<(TenantId, Topup)> = state
            .books
            .topups
            .iter()
            .filter(|((_, id), topup)| topup.is_unsettled() && after.is_none_or(|after| *id > after))
            .map(|((tenant, _), topup)| (*tenant, topup.clone()))
            .collect();
        found.sort_by_key(|(_, topup)| topup.id);
        Ok(cut(found, limit))
    }

    async fn find_auto_topup(&self, tenant: TenantId) -> Result<Option<AutoTopup>, StoreError> {
        Ok(self.state().books.auto_topups.get(&tenant).cloned())
    }

    async fn list_auto_topups(&self) -> Result<Vec<(TenantId, AutoTopup)>, StoreError> {
        let state = self.state();
        let enabled = state.books.auto_topups.iter().filter(|(_, auto)| auto.enabled);
        let mut found: Vec<_> = enabled.map(|(tenant, auto)| (*tenant, auto.clone())).collect();
        found.sort_by_key(|(tenant, _)| (tenant.bucket(), *tenant));
        Ok(found)
    }
}
