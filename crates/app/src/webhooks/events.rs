//! Events as people look at them: the list, one with every attempt, and telling it again.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{EventId, TenantId};
use turnpike_core::time::Timestamp;
use turnpike_store::{EventFilter, EventRow, ReplayOf};

use super::request::{event_id, event_type, replay_endpoint};
use super::view::{delivery_view, event_view};
use super::{WebhookDesk, no_such_endpoint};
use crate::auth::Actor;
use crate::error::AppError;

/// Events, and attempts, removed in one transaction.
const PRUNED_AT_ONCE: u32 = 500;
/// Between two of these: the ledger is written by the same hand.
const PRUNE_PAUSE: Duration = Duration::from_millis(20);

/// Which page of events is asked for.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Of this type only.
    pub kind: Option<String>,
    /// How many.
    pub limit: u32,
    /// The id of the last item of the page before.
    pub cursor: Option<String>,
}

/// One page of events.
#[derive(Clone, Debug, Default)]
pub struct EventPage {
    /// The events, newest first.
    pub events: Vec<Value>,
    /// Where the next page begins; `None` = this is the last.
    pub next_cursor: Option<EventId>,
}

impl WebhookDesk {
    /// When an event was made that is only just kept.
    pub(super) fn kept_since(&self) -> Timestamp {
        let parts = &self.parts;
        parts.environment.now().plus_millis(-parts.settings.retention_ms)
    }

    fn view(&self, tenant: TenantId, event: &EventRow) -> Result<Value, AppError> {
        event_view(tenant, event, self.parts.settings.retention_ms)
    }

    /// A page of events, newest first.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` for an unknown type, `CURSOR_INVALID`.
    pub async fn events(&self, actor: &Actor, query: &EventQuery) -> Result<EventPage, AppError> {
        let (store, tenant) = (&self.parts.store, actor.tenant.id);
        let since = self.kept_since();
        let kind = query
            .kind
            .as_deref()
            .map(|text| event_type("type", text))
            .transpose()?;
        let before_seq = match query.cursor.as_deref() {
            None => None,
            Some(text) => match self.position(tenant, text, since).await? {
                Some(seq) => Some(seq),
                // What the cursor named is over, and everything before it.
                None => return Ok(EventPage::default()),
            },
        };
        let filter = EventFilter {
            kind,
            before_seq,
            since,
            limit: query.limit.saturating_add(1),
        };
        let mut events = store.list_events(tenant, &filter).await?;
        let size = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let more = events.len() > size;
        events.truncate(size);
        let seqs: Vec<i64> = events.iter().map(|event| event.seq).collect();
        let latest: HashMap<i64, _> = store
            .latest_deliveries(tenant, &seqs)
            .await?
            .into_iter()
            .map(|row| (row.event_seq, row))
            .collect();
        let mut data = Vec::with_capacity(events.len());
        for event in &events {
            let delivery = latest.get(&event.seq).map(|row| delivery_view(event.id, row));
            data.push(with_member(
                self.view(tenant, event)?,
                "delivery",
                json!(delivery),
            ));
        }
        let next = events.last().filter(|_last| more).map(|event| event.id);
        Ok(EventPage {
            events: data,
            next_cursor: next,
        })
    }

    /// Where the event that a cursor names stands; `None` = it is past its retention.
    pub(super) async fn position(
        &self,
        tenant: TenantId,
        cursor: &str,
        since: Timestamp,
    ) -> Result<Option<i64>, AppError> {
        let invalid = || {
            let message = "the cursor is not the id of an event of this workspace";
            AppError::new(ErrorCode::CursorInvalid, message)
        };
        let id = event_id(cursor).ok_or_else(invalid)?;
        if let Some(event) = self.parts.store.find_event(tenant, id).await? {
            return Ok(Some(event.seq));
        }
        // The id of an event says when it was made.
        let made = id.0.get_timestamp().map(|at| at.to_unix());
        let over = made.is_some_and(|(secs, _)| {
            i64::try_from(secs).is_ok_and(|secs| secs.saturating_add(1).saturating_mul(1000) < since.millis())
        });
        if over { Ok(None) } else { Err(invalid()) }
    }

    async fn event_row(&self, actor: &Actor, id: &str) -> Result<EventRow, AppError> {
        let missing = || AppError::new(ErrorCode::EventNotFound, "there is no such event");
        let id = event_id(id).ok_or_else(missing)?;
        let found = self.parts.store.find_event(actor.tenant.id, id).await?;
        let since = self.kept_since();
        found
            .filter(|event| event.created_at >= since)
            .ok_or_else(missing)
    }

    /// One event with every attempt.
    ///
    /// # Errors
    /// `EVENT_NOT_FOUND`.
    pub async fn event(&self, actor: &Actor, id: &str) -> Result<Value, AppError> {
        let event = self.event_row(actor, id).await?;
        self.with_deliveries(actor.tenant.id, &event).await
    }

    async fn with_deliveries(&self, tenant: TenantId, event: &EventRow) -> Result<Value, AppError> {
        let rows = self.parts.store.list_deliveries(tenant, event.seq).await?;
        let deliveries: Vec<Value> = rows.iter().map(|row| delivery_view(event.id, row)).collect();
        Ok(with_member(
            self.view(tenant, event)?,
            "deliveries",
            json!(deliveries),
        ))
    }

    /// Tells an event again: to the endpoint that the body names, or to every one in use that wants it. Answers with
    /// the event and its attempts.
    ///
    /// # Errors
    /// `EVENT_NOT_FOUND`; `NOT_FOUND` without an endpoint to tell; `ENDPOINT_DISABLED`; `ALREADY_EXISTS` while an
    /// attempt is under way.
    pub async fn replay(&self, actor: &Actor, id: &str, raw: &[u8]) -> Result<Value, AppError> {
        let only = replay_endpoint(raw)?;
        let event = self.event_row(actor, id).await?;
        let tenant = actor.tenant.id;
        let mut endpoints = self.parts.store.list_webhook_endpoints(tenant).await?;
        match only {
            Some(only) => {
                endpoints.retain(|endpoint| endpoint.id == only);
                let endpoint = endpoints.first().ok_or_else(no_such_endpoint)?;
                if endpoint.disabled.is_some() {
                    return Err(disabled());
                }
            }
            None => {
                endpoints.retain(|endpoint| endpoint.disabled.is_none() && endpoint.mask.wants(event.kind));
            }
        }
        if endpoints.is_empty() {
            let message = "no endpoint in use wants this event: name one in endpointId";
            return Err(AppError::new(ErrorCode::NotFound, message));
        }
        let now = self.parts.store.clock(self.parts.environment.now()).await?;
        let mut made: u64 = 0;
        for endpoint in &endpoints {
            let audit = self.audit(actor, "webhook.replay", &format!("{}:{}", endpoint.id, event.id));
            let replayed = self
                .parts
                .store
                .replay(tenant, endpoint.id, ReplayOf::One(event.id), Some(&audit), now)
                .await?;
            made = made.saturating_add(replayed.unwrap_or(0));
        }
        if made == 0 {
            let message = "an attempt is under way: wait for its end";
            return Err(AppError::new(ErrorCode::AlreadyExists, message));
        }
        self.with_deliveries(tenant, &event).await
    }

    /// Removes events that are past their retention, with their attempts; says how many.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn prune(&self) -> Result<u64, AppError> {
        let before = self.kept_since();
        let mut total: u64 = 0;
        for tenant in self.parts.store.list_tenants().await? {
            let mut more = true;
            while more {
                let pruned = self
                    .parts
                    .store
                    .prune_events(tenant.id, before, PRUNED_AT_ONCE)
                    .await?;
                total = total.saturating_add(pruned.events);
                more = pruned.more;
                if more {
                    tokio::time::sleep(PRUNE_PAUSE).await;
                }
            }
        }
        Ok(total)
    }
}

pub(super) fn disabled() -> AppError {
    let message = "the webhook endpoint is disabled: enable it first";
    AppError::new(ErrorCode::EndpointDisabled, message)
}

fn with_member(mut object: Value, name: &str, value: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
    object
}
