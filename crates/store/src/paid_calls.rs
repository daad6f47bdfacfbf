//! Paid calls, read with the SQL that both databases share. They are written by batches alone.

use async_trait::async_trait;
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::paid_call::PaidCall;
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;

/// Which open paid calls a sweep looks at.
#[derive(Clone, Copy, Debug)]
pub struct DuePaidCalls {
    /// Whose `due_at` has passed by then.
    pub due_by: Timestamp,
    /// Also those that another process than this left, whatever their `due_at`.
    pub not_of_instance: Option<Uuid>,
    /// At most so many, those due first.
    pub limit: u32,
}

/// Calls that wallets pay for by themselves.
#[async_trait]
pub trait PaidCalls: Send + Sync {
    /// Makes a house tenant, unless it is there.
    async fn ensure_house_tenant(
        &self,
        tenant: TenantId,
        name: &str,
        at: Timestamp,
    ) -> Result<(), StoreError>;
    /// The paid call of a request, in whichever house tenant it is; the newest, should there be several.
    async fn find_paid_call(&self, request: RequestId) -> Result<Option<(TenantId, PaidCall)>, StoreError>;
    /// The request that a payment was claimed for.
    async fn find_claimed_payment(
        &self,
        tenant: TenantId,
        key: &str,
    ) -> Result<Option<RequestId>, StoreError>;
    /// Open paid calls of all house tenants that somebody has to go on with.
    async fn list_due_paid_calls(&self, due: DuePaidCalls) -> Result<Vec<(TenantId, PaidCall)>, StoreError>;
}
