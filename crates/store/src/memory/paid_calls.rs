//! Paid calls in memory.

use async_trait::async_trait;
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::paid_call::{PaidCall, PaidCallState};
use turnpike_core::time::Timestamp;

use super::MemoryStore;
use super::topups::cut;
use crate::error::StoreError;
use crate::paid_calls::{DuePaidCalls, PaidCalls, house_tenant};

#[async_trait]
impl PaidCalls for MemoryStore {
    async fn ensure_house_tenant(
        &self,
        tenant: TenantId,
        name: &str,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut state = self.state();
        if !state.tenants.contains_key(&tenant) {
            let house = house_tenant(tenant, name, at);
            state.books.tenants.load(tenant, Some(house.head()));
            state.tenants.insert(tenant, house);
        }
        Ok(())
    }

    async fn find_paid_call(&self, request: RequestId) -> Result<Option<(TenantId, PaidCall)>, StoreError> {
        let state = self.state();
        let calls = state.books.paid_calls.iter();
        let found = calls.filter(|((_, id), _)| *id == request);
        let newest = found.max_by_key(|((tenant, _), call)| (call.created_at, *tenant));
        Ok(newest.map(|((tenant, _), call)| (*tenant, call.clone())))
    }

    async fn find_claimed_payment(
        &self,
        tenant: TenantId,
        key: &str,
    ) -> Result<Option<RequestId>, StoreError> {
        let state = self.state();
        let claim = state.books.claims.get(&PaidCall::claim(tenant, &key.into()));
        Ok(claim.map(|claim| RequestId(claim.subject)))
    }

    async fn find_paid_call_and_claim(
        &self,
        request: RequestId,
        tenant: TenantId,
        key: &str,
    ) -> Result<(Option<(TenantId, PaidCall)>, Option<RequestId>), StoreError> {
        let call = self.find_paid_call(request).await?;
        Ok((call, self.find_claimed_payment(tenant, key).await?))
    }

    async fn list_due_paid_calls(&self, due: DuePaidCalls) -> Result<Vec<(TenantId, PaidCall)>, StoreError> {
        let state = self.state();
        let is_due = |call: &PaidCall| {
            let left = due
                .not_of_instance
                .is_some_and(|instance| call.instance != instance);
            let own = due.of_instance.is_some_and(|instance| call.instance == instance);
            let answered = call.state.is_answered();
            call.state.is_open() && answered == due.answered && (call.due_at <= due.due_by || left || own)
        };
        let calls = state.books.paid_calls.iter();
        let mut found: Vec<(TenantId, PaidCall)> = calls
            .filter(|(_, call)| is_due(call))
            .map(|((tenant, _), call)| (*tenant, call.clone()))
            .collect();
        found.sort_by_key(|(tenant, call)| (call.due_at, *tenant, call.id));
        Ok(cut(found, due.limit))
    }

    async fn count_open_settlements(&self) -> Result<u64, StoreError> {
        let state = self.state();
        let open = state
            .books
            .paid_calls
            .iter()
            .filter(|(_, call)| call.state.is_answered());
        Ok(u64::try_from(open.count()).unwrap_or(u64::MAX))
    }

    async fn list_failed_paid_calls(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, PaidCall)>, StoreError> {
        let state = self.state();
        let failed = |call: &PaidCall| {
            call.state == PaidCallState::Failed && call.settlement.is_none() && call.created_at >= since
        };
        let calls = state.books.paid_calls.iter();
        let mut found: Vec<(TenantId, PaidCall)> = calls
            .filter(|(_, call)| failed(call))
            .map(|((tenant, _), call)| (*tenant, call.clone()))
            .collect();
        found.sort_by_key(|(_, call)| (std::cmp::Reverse(call.created_at), call.id));
        Ok(cut(found, limit))
    }
}
