//! What requests about endpoints say.

use turnpike_core::ids::{EventId, WebhookEndpointId};
use turnpike_core::ledger::event::EventType;
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::EventMask;

use crate::error::AppError;
use crate::fields::{Fields, Nullable};

/// Longest description.
const MAX_DESCRIPTION: usize = 500;
/// Longest URL in characters; what is longer in bytes is refused where URLs are read.
const MAX_URL: usize = 2048;
/// Longest overlap of a superseded secret.
const MAX_OVERLAP_SECS: i64 = 86_400;

/// `{url, eventTypes|null, description}`.
#[derive(Debug)]
pub(super) struct NewEndpoint {
    pub(super) url: String,
    pub(super) mask: EventMask,
    pub(super) description: String,
}

impl NewEndpoint {
    pub(super) fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let mut fields = Fields::parse(raw, &["url", "eventTypes", "description"])?;
        Ok(Self {
            url: fields.required("url", |fields, name| fields.words(name, 1..=MAX_URL))?,
            mask: match fields.nullable("eventTypes", event_types)? {
                Nullable::Value(mask) => mask,
                Nullable::Absent | Nullable::Null => EventMask::ALL,
            },
            description: description(&mut fields)?.unwrap_or_default(),
        })
    }
}

/// The same, each member only if it is to change, and `enabled`.
#[derive(Debug)]
pub(super) struct ChangedEndpoint {
    pub(super) url: Option<String>,
    pub(super) mask: Option<EventMask>,
    pub(super) description: Option<String>,
    pub(super) enabled: Option<bool>,
}

impl ChangedEndpoint {
    pub(super) fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let mut fields = Fields::parse(raw, &["url", "eventTypes", "description", "enabled"])?;
        Ok(Self {
            url: fields.words("url", 1..=MAX_URL)?,
            mask: match fields.nullable("eventTypes", event_types)? {
                Nullable::Absent => None,
                Nullable::Null => Some(EventMask::ALL),
                Nullable::Value(mask) => Some(mask),
            },
            description: description(&mut fields)?,
            enabled: fields.boolean("enabled")?,
        })
    }
}

fn description(fields: &mut Fields) -> Result<Option<String>, AppError> {
    match fields.nullable("description", |fields, name| {
        fields.words(name, 0..=MAX_DESCRIPTION)
    })? {
        Nullable::Absent => Ok(None),
        Nullable::Null => Ok(Some(String::new())),
        Nullable::Value(text) => Ok(Some(text)),
    }
}

fn event_types(fields: &mut Fields, name: &str) -> Result<Option<EventMask>, AppError> {
    let Some(texts) = fields.texts(name, EventType::ALL.len())? else {
        return Ok(None);
    };
    if texts.is_empty() {
        return Err(AppError::invalid(
            name,
            "must name an event type, or be null for all",
        ));
    }
    let mut types = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        types.push(event_type(&format!("{name}/{at}"), text)?);
    }
    Ok(Some(EventMask::of(&types)))
}

/// The event type that `text` names.
pub(super) fn event_type(path: &str, text: &str) -> Result<EventType, AppError> {
    EventType::parse(text).ok_or_else(|| {
        let known: Vec<&str> = EventType::ALL.iter().map(|kind| kind.as_str()).collect();
        AppError::invalid(path, format!("must be one of {}", known.join(", ")))
    })
}

/// `{overlapSeconds?}`: how long the superseded secrets go on, in milliseconds.
pub(super) fn overlap_ms(raw: &[u8]) -> Result<i64, AppError> {
    let mut fields = Fields::parse(raw, &["overlapSeconds"])?;
    let secs = fields.integer("overlapSeconds", 0..=MAX_OVERLAP_SECS)?;
    Ok(secs.unwrap_or(MAX_OVERLAP_SECS).saturating_mul(1000))
}

/// `{type?}`: what a test looks like.
pub(super) fn test_type(raw: &[u8]) -> Result<EventType, AppError> {
    let mut fields = Fields::parse(raw, &["type"])?;
    match fields.text("type")? {
        None => Ok(EventType::BalanceChanged),
        Some(text) => event_type("type", &text),
    }
}

/// `{endpointId?}`: who is told again.
pub(super) fn replay_endpoint(raw: &[u8]) -> Result<Option<WebhookEndpointId>, AppError> {
    let mut fields = Fields::parse(raw, &["endpointId"])?;
    fields
        .text("endpointId")?
        .map(|text| text.parse())
        .transpose()
        .map_err(|_no_uuid| AppError::invalid("endpointId", "must be a UUID"))
}

/// `{since, cursor?}`: from when on what failed is told again, and behind which event.
#[derive(Debug)]
pub(super) struct Missed {
    pub(super) since: Timestamp,
    pub(super) cursor: Option<String>,
}

impl Missed {
    pub(super) fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let mut fields = Fields::parse(raw, &["since", "cursor"])?;
        let since = fields.required("since", Fields::text)?;
        Ok(Self {
            since: since.parse().map_err(|_invalid| {
                AppError::invalid(
                    "since",
                    "must be an ISO 8601 date-time such as 2026-11-01T00:00:00Z",
                )
            })?,
            cursor: match fields.nullable("cursor", Fields::text)? {
                Nullable::Value(cursor) => Some(cursor),
                Nullable::Absent | Nullable::Null => None,
            },
        })
    }
}

/// The event that a path or a cursor names.
pub(super) fn event_id(text: &str) -> Option<EventId> {
    text.parse().ok()
}
