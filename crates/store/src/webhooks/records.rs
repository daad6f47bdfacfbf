//! What the webhook tables hold.

use turnpike_core::ids::{EventId, TenantId, WebhookEndpointId};
use turnpike_core::ledger::event::EventType;
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::{DeliveryStatus, DisabledReason, EventMask};
use uuid::Uuid;

use crate::records::EventRow;

/// An address that is told of a workspace's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookEndpoint {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its id.
    pub id: WebhookEndpointId,
    /// Where requests go, normalised.
    pub url: String,
    /// What people call it.
    pub description: String,
    /// Which events it wants.
    pub mask: EventMask,
    /// `None` = in use; else since when and why not.
    pub disabled: Option<(DisabledReason, Timestamp)>,
    /// When the first of its latest, unbroken failures was.
    pub failing_since: Option<Timestamp>,
    /// Its secrets, sealed, as JSON.
    pub secrets: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When somebody last changed it.
    pub updated_at: Timestamp,
}

/// What a change of an endpoint sets; `None` = stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointChange {
    /// Where requests go.
    pub url: Option<String>,
    /// What people call it.
    pub description: Option<String>,
    /// Which events it wants.
    pub mask: Option<EventMask>,
    /// Whether it is in use.
    pub enabled: Option<bool>,
}

/// Which events a list shows, newest first.
#[derive(Clone, Copy, Debug)]
pub struct EventFilter {
    /// Of this type only.
    pub kind: Option<EventType>,
    /// Only positions below this one.
    pub before_seq: Option<i64>,
    /// Only those from then on.
    pub since: Timestamp,
    /// At most so many.
    pub limit: u32,
}

impl EventFilter {
    /// The newest ones, whatever their type and age.
    pub const fn newest(limit: u32) -> Self {
        Self {
            kind: None,
            before_seq: None,
            since: Timestamp::from_millis(0),
            limit,
        }
    }
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The event's position.
    pub event_seq: i64,
    /// Who is told.
    pub endpoint: WebhookEndpointId,
    /// Its number, from 1, for this event and endpoint.
    pub attempt: i32,
    /// Where it went or will go.
    pub destination_url: String,
    /// Where it stands.
    pub status: DeliveryStatus,
    /// Whether a person asked for it.
    pub manual_replay: bool,
    /// When it was or is due.
    pub scheduled_at: Timestamp,
    /// When a worker took it.
    pub started_at: Option<Timestamp>,
    /// When nothing more happens to it.
    pub finished_at: Option<Timestamp>,
    /// What the destination answered.
    pub http_status: Option<i16>,
    /// What it said, cut and scrubbed.
    pub response_body: Option<String>,
    /// Why it failed or is canceled.
    pub error: Option<String>,
}

/// How new events are fanned out.
#[derive(Clone, Copy, Debug)]
pub struct FanOutPlan {
    /// About so many attempts are made, however many workspaces share them.
    pub most: u32,
    /// When the first attempts are due.
    pub due: Timestamp,
    /// Another number every time: which workspace comes first.
    pub turn: u64,
}

/// What one pass of fanning out did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FanOut {
    /// Attempts that were made pending.
    pub attempts: u64,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// An endpoint with attempts that are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueEndpoint {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its id.
    pub id: WebhookEndpointId,
    /// Where requests go.
    pub url: String,
    /// Its secrets, sealed, as JSON.
    pub secrets: String,
    /// When the first of its latest, unbroken failures was.
    pub failing_since: Option<Timestamp>,
}

/// How many attempts of one endpoint may be taken.
#[derive(Clone, Debug)]
pub struct Slots {
    /// Whose it is.
    pub tenant: TenantId,
    /// The endpoint.
    pub endpoint: WebhookEndpointId,
    /// Where its requests go.
    pub url: String,
    /// At most so many.
    pub count: u32,
}

/// An attempt that a worker took, with its event.
#[derive(Clone, Debug)]
pub struct ClaimedDelivery {
    /// Whose it is.
    pub tenant: TenantId,
    /// Who is told.
    pub endpoint: WebhookEndpointId,
    /// Its number, from 1.
    pub attempt: i32,
    /// Where it stands in the schedule, from 0.
    pub step: i16,
    /// When it was due.
    pub scheduled_at: Timestamp,
    /// Where it goes.
    pub url: String,
    /// What is told.
    pub event: EventRow,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub struct DeliveryReport {
    /// Whose it is.
    pub tenant: TenantId,
    /// The event's position.
    pub event_seq: i64,
    /// Who was told.
    pub endpoint: WebhookEndpointId,
    /// Where.
    pub url: String,
    /// Its number.
    pub attempt: i32,
    /// Under which claim it was made; another's is not touched.
    pub claim: Uuid,
    /// Whether the destination took it.
    pub succeeded: bool,
    /// When it ended.
    pub finished_at: Timestamp,
    /// What the destination answered.
    pub http_status: Option<i16>,
    /// What it said, cut and scrubbed.
    pub response_body: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// The attempt that follows.
    pub next: Option<NextAttempt>,
    /// What it says of the endpoint as a whole.
    pub verdict: Option<Verdict>,
}

/// What an attempt says of its endpoint as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Works,
    /// It fails.
    Fails,
    /// It goes out of use if it still fails, since this instant or longer.
    Hopeless(Timestamp),
    /// It goes out of use: it wants no more events, ever.
    Gone,
}

/// The attempt that follows a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextAttempt {
    /// Where it stands in the schedule.
    pub step: i16,
    /// When it is due.
    pub at: Timestamp,
}

/// What became of attempts that were to be canceled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canceling {
    /// More of them wait.
    More,
    /// None waits any more.
    Done,
}

/// Positions of a workspace's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Behind this position.
    pub after: i64,
    /// Up to this one.
    pub to: i64,
}

/// What a step of pruning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Events that went.
    pub events: u64,
    /// Whether there is more to do.
    pub more: bool,
}

/// Which events are told again.
#[derive(Clone, Copy, Debug)]
pub enum ReplayOf {
    /// This one, also when it was delivered.
    One(EventId),
    /// Those of these positions that the endpoint wants, has not taken, and that no attempt waits for.
    Missed(Span),
}
