//! The shapes that the routes of webhooks speak, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// What happened.
#[derive(Serialize, ToSchema)]
enum EventType {
    #[schema(rename = "credits.topup.completed")]
    TopupCompleted,
    #[schema(rename = "credits.topup.failed")]
    TopupFailed,
    #[schema(rename = "credits.burn.completed")]
    BurnCompleted,
    #[schema(rename = "credits.burn.failed")]
    BurnFailed,
    #[schema(rename = "credits.refund.issued")]
    RefundIssued,
    #[schema(rename = "credits.dispute.opened")]
    DisputeOpened,
    #[schema(rename = "credits.dispute.closed")]
    DisputeClosed,
    #[schema(rename = "credits.balance.changed")]
    BalanceChanged,
    #[schema(rename = "credits.balance.low")]
    BalanceLow,
    #[schema(rename = "credits.account.frozen")]
    AccountFrozen,
    #[schema(rename = "credits.usage_drift.detected")]
    UsageDriftDetected,
    #[schema(rename = "credits.usage_drift.resolved")]
    UsageDriftResolved,
}

/// Which events a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventParams {
    /// Of this type only.
    #[param(rename = "type", required = false, inline)]
    kind: Option<EventType>,
    /// 1 to 100; 20 when absent.
    #[param(minimum = 1, maximum = 100, required = false)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(required = false)]
    cursor: Option<Uuid>,
}

/// Names an event in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct EventPath {
    /// The event.
    #[param(rename = "eventId")]
    event_id: Uuid,
}

/// Names a webhook endpoint in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct EndpointPath {
    /// The endpoint.
    #[param(rename = "endpointId")]
    endpoint_id: Uuid,
}

/// Where an attempt stands.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "lowercase")]
enum DeliveryStatus {
    Pending,
    Delivering,
    Succeeded,
    Failed,
    Canceled,
}

/// One attempt to tell an endpoint.
#[derive(Serialize, ToSchema)]
struct Delivery {
    id: Uuid,
    endpoint_id: Uuid,
    /// From 1, for this event and endpoint.
    #[schema(minimum = 1)]
    attempt: i32,
    destination_url: String,
    #[schema(inline)]
    status: DeliveryStatus,
    /// Whether somebody asked for it.
    manual_replay: bool,
    #[schema(format = DateTime)]
    scheduled_at: String,
    #[schema(required, format = DateTime)]
    started_at: Option<String>,
    #[schema(required, format = DateTime)]
    finished_at: Option<String>,
    /// What the destination answered.
    #[schema(required)]
    http_status: Option<i32>,
    /// At most 4 KiB of what it said, without what looks like a secret.
    #[schema(required)]
    response_body: Option<String>,
    #[schema(required)]
    error: Option<String>,
}

/// What happened, as endpoints are told of it.
#[derive(Serialize, ToSchema)]
struct EventBody {
    id: Uuid,
    #[schema(rename = "type", inline)]
    kind: EventType,
    #[schema(example = "2026-11-01")]
    api_version: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// Grows by one with every event of the workspace.
    #[schema(pattern = "^[0-9]+$")]
    sequence: String,
    tenant_id: Uuid,
    data: BTreeMap<String, Value>,
    #[schema(format = DateTime)]
    retained_until: String,
}

/// An event with its latest attempt: the one that is due last.
#[derive(Serialize, ToSchema)]
struct EventItem {
    #[serde(flatten)]
    event: EventBody,
    #[schema(required)]
    delivery: Option<Delivery>,
}

/// A page of events.
#[derive(ToSchema)]
pub(super) struct EventList {
    success: bool,
    data: Vec<EventItem>,
    #[schema(required)]
    next_cursor: Option<Uuid>,
}

/// An event with every attempt.
#[derive(Serialize, ToSchema)]
struct Event {
    #[serde(flatten)]
    event: EventBody,
    deliveries: Vec<Delivery>,
}

/// An event with every attempt.
#[derive(ToSchema)]
pub(super) struct EventEnvelope {
    success: bool,
    event: Event,
}

/// Who is told again.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct ReplayBody {
    /// One endpoint, also when its filter leaves the event out; absent = every enabled one that wants it.
    endpoint_id: Option<Uuid>,
}

/// From when on, and behind which event.
#[derive(ToSchema)]
pub(super) struct ReplayMissedBody {
    #[schema(format = DateTime, example = "2026-11-01T00:00:00Z")]
    since: String,
    /// `next_cursor` of the request before.
    cursor: Option<Uuid>,
}

/// How many events are told again.
#[derive(ToSchema)]
pub(super) struct ReplayMissed {
    success: bool,
    #[schema(minimum = 0)]
    replayed: i64,
    /// `cursor` of the request that goes on; null when everything was looked at.
    #[schema(required)]
    next_cursor: Option<Uuid>,
}

/// Why an endpoint gets nothing: somebody switched it off, it answered 410, or it only failed for days.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "lowercase")]
enum DisabledReason {
    Manual,
    Gone,
    Failing,
}

/// A webhook endpoint.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct WebhookEndpoint {
    id: Uuid,
    url: String,
    description: String,
    /// The types it wants; null = all.
    #[schema(required, inline)]
    event_types: Option<Vec<EventType>>,
    enabled: bool,
    #[schema(required, inline)]
    disabled_reason: Option<DisabledReason>,
    #[schema(required, format = DateTime)]
    disabled_at: Option<String>,
    /// When the first of its latest, unbroken failures was.
    #[schema(required, format = DateTime)]
    failing_since: Option<String>,
    /// Until when superseded secrets sign, too.
    #[schema(required, format = DateTime)]
    secret_overlap_ends_at: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

/// The workspace's endpoints.
#[derive(ToSchema)]
pub(super) struct EndpointList {
    success: bool,
    data: Vec<WebhookEndpoint>,
}

/// An endpoint.
#[derive(ToSchema)]
pub(super) struct EndpointEnvelope {
    success: bool,
    endpoint: WebhookEndpoint,
}

/// An endpoint with a secret that is shown once.
#[derive(Serialize, ToSchema)]
struct EndpointWithSecret {
    #[serde(flatten)]
    endpoint: WebhookEndpoint,
    /// Signs the requests (Standard Webhooks).
    #[schema(pattern = "^whsec_[A-Za-z0-9+/=]+$")]
    secret: String,
}

/// An endpoint with a secret that is shown once.
#[derive(ToSchema)]
pub(super) struct SecretEnvelope {
    success: bool,
    endpoint: EndpointWithSecret,
}

/// A new webhook endpoint.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct NewEndpoint {
    /// An https URL of a public address.
    #[schema(max_length = 2048, example = "https://example.com/hooks")]
    url: String,
    /// The types it wants; null or absent = all.
    #[schema(inline, min_items = 1)]
    event_types: Option<Vec<EventType>>,
    #[schema(max_length = 500)]
    description: Option<String>,
}

/// What changes of a webhook endpoint.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct ChangedEndpoint {
    #[schema(max_length = 2048)]
    url: Option<String>,
    #[schema(inline, min_items = 1)]
    event_types: Option<Vec<EventType>>,
    #[schema(max_length = 500)]
    description: Option<String>,
    enabled: Option<bool>,
}

/// How long superseded secrets sign beside the new one.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct RotateBody {
    /// 0 when the old secret has leaked; 24 hours when absent.
    #[schema(minimum = 0, maximum = 86400, default = 86400)]
    overlap_seconds: Option<i64>,
}

/// What a test looks like.
#[derive(ToSchema)]
pub(super) struct TestBody {
    /// `credits.balance.changed` when absent.
    #[schema(rename = "type", inline)]
    kind: Option<EventType>,
}

/// What came back of a test.
#[derive(ToSchema)]
struct TestResult {
    event_id: Uuid,
    #[schema(rename = "type", inline)]
    kind: EventType,
    succeeded: bool,
    destination_url: String,
    #[schema(required)]
    http_status: Option<i32>,
    #[schema(required)]
    response_body: Option<String>,
    #[schema(required)]
    error: Option<String>,
    #[schema(minimum = 0)]
    duration_ms: i64,
}

/// What came back of a test.
#[derive(ToSchema)]
pub(super) struct TestEnvelope {
    success: bool,
    result: TestResult,
}
