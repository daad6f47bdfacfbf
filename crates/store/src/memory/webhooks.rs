//! Events in memory. Nobody is told of them: what delivers is about a database.

use async_trait::async_trait;
use turnpike_core::ids::{EventId, TenantId, WebhookEndpointId};
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use super::MemoryStore;
use crate::error::StoreError;
use crate::records::{AuditRow, EventRow};
use crate::traits::{WebhookDeliveries, WebhookEndpoints, WebhookEvents};
use crate::webhooks::{
    Canceling, ClaimedDelivery, DeliveryReport, DeliveryRow, DueEndpoint, EndpointChange, EventFilter,
    FanOut, FanOutPlan, Pruned, ReplayOf, Slots, Span, WebhookEndpoint,
};

fn needs_a_database() -> StoreError {
    StoreError::Unavailable("the store in memory tells nobody of events".to_owned())
}

#[async_trait]
impl WebhookEvents for MemoryStore {
    async fn list_events(&self, tenant: TenantId, filter: &EventFilter) -> Result<Vec<EventRow>, StoreError> {
        let state = self.state();
        let wanted = |event: &EventRow| {
            event.seq < filter.before_seq.unwrap_or(i64::MAX)
                && event.created_at >= filter.since
                && filter.kind.is_none_or(|kind| event.kind == kind)
        };
        let most = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        Ok(state.events_of(tenant).rev().filter(wanted).take(most).collect())
    }

    async fn find_event(&self, tenant: TenantId, id: EventId) -> Result<Option<EventRow>, StoreError> {
        Ok(self.state().events_of(tenant).find(|event| event.id == id))
    }

    async fn list_deliveries(&self, _tenant: TenantId, _seq: i64) -> Result<Vec<DeliveryRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn latest_deliveries(
        &self,
        _tenant: TenantId,
        _seqs: &[i64],
    ) -> Result<Vec<DeliveryRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn count_missed(
        &self,
        _tenant: TenantId,
        _endpoint: WebhookEndpointId,
        _span: Span,
    ) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn prune_events(
        &self,
        _tenant: TenantId,
        _before: Timestamp,
        _most: u32,
    ) -> Result<Pruned, StoreError> {
        Ok(Pruned::default())
    }
}

#[async_trait]
impl WebhookEndpoints for MemoryStore {
    async fn insert_webhook_endpoint(
        &self,
        _endpoint: &WebhookEndpoint,
        _most: u32,
        _audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        Err(needs_a_database())
    }

    async fn find_webhook_endpoint(
        &self,
        _tenant: TenantId,
        _id: WebhookEndpointId,
    ) -> Result<Option<WebhookEndpoint>, StoreError> {
        Ok(None)
    }

    async fn list_webhook_endpoints(&self, _tenant: TenantId) -> Result<Vec<WebhookEndpoint>, StoreError> {
        Ok(Vec::new())
    }

    async fn change_webhook_endpoint(
        &self,
        _tenant: TenantId,
        _id: WebhookEndpointId,
        _change: &EndpointChange,
        _audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn set_webhook_secrets(
        &self,
        _endpoint: &WebhookEndpoint,
        _secrets: &str,
        _audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn delete_webhook_endpoint(
        &self,
        _tenant: TenantId,
        _id: WebhookEndpointId,
        _audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn list_canceling_endpoints(&self) -> Result<Vec<(TenantId, WebhookEndpointId)>, StoreError> {
        Ok(Vec::new())
    }

    async fn cancel_deliveries(
        &self,
        _tenant: TenantId,
        _id: WebhookEndpointId,
        _at: Timestamp,
        _most: u32,
    ) -> Result<Canceling, StoreError> {
        Ok(Canceling::Done)
    }
}

#[async_trait]
impl WebhookDeliveries for MemoryStore {
    async fn clock(&self, local: Timestamp) -> Result<Timestamp, StoreError> {
        Ok(local)
    }

    async fn fan_out(&self, _plan: FanOutPlan) -> Result<FanOut, StoreError> {
        Ok(FanOut::default())
    }

    async fn list_due_endpoints(&self, _now: Timestamp) -> Result<Vec<DueEndpoint>, StoreError> {
        Ok(Vec::new())
    }

    async fn claim_deliveries(
        &self,
        _slots: &[Slots],
        _now: Timestamp,
        _claim: Uuid,
        _lease_until: Timestamp,
    ) -> Result<Vec<ClaimedDelivery>, StoreError> {
        Ok(Vec::new())
    }

    async fn record_deliveries(&self, _reports: &[DeliveryReport]) -> Result<u64, StoreError> {
        Err(needs_a_database())
    }

    async fn recover_deliveries(
        &self,
        _lease_before: Timestamp,
        _now: Timestamp,
        _claim: Uuid,
        _steps: i16,
    ) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn replay(
        &self,
        _tenant: TenantId,
        _endpoint: WebhookEndpointId,
        _of: ReplayOf,
        _audit: Option<&AuditRow>,
        _now: Timestamp,
    ) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }
}
