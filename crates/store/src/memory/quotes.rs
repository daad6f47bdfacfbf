//! Quotes and approvals in memory.

use std::cmp::Reverse;

use async_trait::async_trait;
use turnpike_core::ids::{ApprovalId, QuoteId, TenantId};
use turnpike_core::ledger::approval::{Approval, ApprovalState};
use turnpike_core::ledger::quote::{Quote, QuoteState};
use turnpike_core::time::Timestamp;

use super::MemoryStore;
use super::topups::cut;
use crate::approvals::{ApprovalFilter, Approvals};
use crate::error::StoreError;
use crate::quotes::Quotes;

fn counted(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[async_trait]
impl Quotes for MemoryStore {
    async fn find_quote(&self, tenant: TenantId, quote: QuoteId) -> Result<Option<Quote>, StoreError> {
        Ok(self.state().books.quotes.get(&(tenant, quote)).cloned())
    }

    async fn prune_quotes(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut state = self.state();
        let over: Vec<_> = state
            .books
            .quotes
            .iter()
            .filter(|(_, quote)| quote.state != QuoteState::Consumed && quote.expires_at < before)
            .map(|(key, _)| *key)
            .collect();
        state.books.quotes.forget(&over);
        Ok(counted(over.len()))
    }
}

#[async_trait]
impl Approvals for MemoryStore {
    async fn find_approval(
        &self,
        tenant: TenantId,
        approval: ApprovalId,
    ) -> Result<Option<Approval>, StoreError> {
        Ok(self.state().books.approvals.get(&(tenant, approval)).cloned())
    }

    async fn find_latest_approval(
        &self,
        tenant: TenantId,
        subject: &str,
    ) -> Result<Option<Approval>, StoreError> {
        let state = self.state();
        let approvals = state.books.approvals.iter();
        let about = approvals.filter(|((of, _), approval)| *of == tenant && approval.subject() == subject);
        Ok(about
            .max_by_key(|(_, approval)| approval.id)
            .map(|(_, approval)| approval.clone()))
    }

    async fn find_approval_tenant(&self, approval: ApprovalId) -> Result<Option<TenantId>, StoreError> {
        let state = self.state();
        let mut approvals = state.books.approvals.iter();
        Ok(approvals
            .find(|((_, id), _)| *id == approval)
            .map(|((tenant, _), _)| *tenant))
    }

    async fn list_approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
    ) -> Result<Vec<Approval>, StoreError> {
        let state = self.state();
        let shown = |approval: &Approval| {
            filter.owner.as_ref().is_none_or(|owner| approval.owner == *owner)
                && filter.before.is_none_or(|before| approval.id < before)
                && filter
                    .state
                    .is_none_or(|wanted| approval.state_at(filter.now) == wanted)
        };
        let approvals = state.books.approvals.iter();
        let mut found: Vec<Approval> = approvals
            .filter(|((of, _), approval)| *of == tenant && shown(approval))
            .map(|(_, approval)| approval.clone())
            .collect();
        found.sort_by_key(|approval| Reverse(approval.id));
        Ok(cut(found, filter.limit))
    }

    async fn prune_approvals(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut state = self.state();
        let is_over = |approval: &Approval| {
            let used = [ApprovalState::Approved, ApprovalState::Consumed].contains(&approval.state);
            !used && approval.expires_at < before
        };
        let over: Vec<_> = state
            .books
            .approvals
            .iter()
            .filter(|(_, approval)| is_over(approval))
            .map(|(key, _)| *key)
            .collect();
        state.books.approvals.forget(&over);
        Ok(counted(over.len()))
    }
}
