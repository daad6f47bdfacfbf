//! How events, attempts and endpoints are shown (specification 2.12), and what endpoints are sent.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use turnpike_core::ids::{DeliveryId, EventId, TenantId};
use turnpike_core::ledger::event::{API_VERSION, EventType};
use turnpike_core::time::Timestamp;
use turnpike_store::{DeliveryRow, EventRow, WebhookEndpoint};

use super::secrets;
use crate::error::AppError;

/// An event without its attempts: what is sent, and what lists begin with.
#[derive(Serialize)]
struct EventBody<'a> {
    id: EventId,
    #[serde(rename = "type")]
    kind: EventType,
    api_version: &'static str,
    created_at: Timestamp,
    sequence: String,
    tenant_id: TenantId,
    data: &'a RawValue,
    retained_until: Timestamp,
}

impl<'a> EventBody<'a> {
    fn new(tenant: TenantId, event: &'a EventRow, retention_ms: i64) -> Result<Self, AppError> {
        Ok(Self {
            id: event.id,
            kind: event.kind,
            api_version: API_VERSION,
            created_at: event.created_at,
            sequence: event.seq.to_string(),
            tenant_id: tenant,
            data: serde_json::from_str(&event.data).map_err(|error| AppError::internal(&error))?,
            retained_until: event.created_at.plus_millis(retention_ms),
        })
    }
}

/// The body of a request that tells of `event`: the same bytes at every attempt.
///
/// # Errors
/// `INTERNAL`, when what is stored is no JSON.
pub fn message(tenant: TenantId, event: &EventRow, retention_ms: i64) -> Result<Bytes, AppError> {
    let body = EventBody::new(tenant, event, retention_ms)?;
    let bytes = serde_json::to_vec(&body).map_err(|error| AppError::internal(&error))?;
    Ok(Bytes::from(bytes))
}

/// An event as lists and single views show it, without attempts.
pub(super) fn event_view(tenant: TenantId, event: &EventRow, retention_ms: i64) -> Result<Value, AppError> {
    let body = EventBody::new(tenant, event, retention_ms)?;
    serde_json::to_value(&body).map_err(|error| AppError::internal(&error))
}

/// An attempt.
pub(super) fn delivery_view(event: EventId, row: &DeliveryRow) -> Value {
    json!({
        "id": DeliveryId::derive(event, row.endpoint, row.attempt),
        "endpoint_id": row.endpoint,
        "attempt": row.attempt,
        "destination_url": row.destination_url,
        "status": row.status,
        "manual_replay": row.manual_replay,
        "scheduled_at": row.scheduled_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "http_status": row.http_status,
        "response_body": row.response_body,
        "error": row.error,
    })
}

/// An endpoint, without its secrets.
pub(super) fn endpoint_view(endpoint: &WebhookEndpoint, now: Timestamp) -> Value {
    json!({
        "id": endpoint.id,
        "url": endpoint.url,
        "description": endpoint.description,
        "eventTypes": endpoint.mask.types(),
        "enabled": endpoint.disabled.is_none(),
        "disabledReason": endpoint.disabled.map(|(reason, _)| reason),
        "disabledAt": endpoint.disabled.map(|(_, at)| at),
        "failingSince": endpoint.failing_since,
        "secretOverlapEndsAt": secrets::overlap_ends(&endpoint.secrets, now),
        "createdAt": endpoint.created_at,
        "updatedAt": endpoint.updated_at,
    })
}
