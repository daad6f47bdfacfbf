//! Endpoints as people manage them.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{EventId, WebhookEndpointId};
use turnpike_core::ledger::event::EventType;
use turnpike_core::time::Timestamp;
use turnpike_store::{Canceling, EndpointChange, EventFilter, EventRow, ReplayOf, Span, WebhookEndpoint};
use turnpike_upstream::webhook::{Destination, WebhookRequest, WebhookSecret};

use super::canceling::{cancel_part, cancel_some};
use super::events::disabled;
use super::request::{self, ChangedEndpoint, Missed, NewEndpoint};
use super::view::{endpoint_view, message};
use super::{WebhookDesk, no_such_endpoint};
use crate::auth::Actor;
use crate::error::AppError;

/// Events that one step of a bulk replay looks at.
const REPLAY_STEP: u32 = 500;

impl WebhookDesk {
    /// Adds an endpoint. The answer has its secret, which is never shown again.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` for a URL that may not be told, `ALREADY_EXISTS` when the workspace has too many.
    pub async fn create(&self, actor: &Actor, raw: &[u8]) -> Result<Value, AppError> {
        let new = NewEndpoint::parse(raw)?;
        let parts = &self.parts;
        let destination = self.destination(&new.url).await?;
        let now = parts.environment.now();
        let id = WebhookEndpointId(parts.environment.new_id());
        let secret = WebhookSecret::new(parts.environment.random_32());
        let endpoint = WebhookEndpoint {
            tenant: actor.tenant.id,
            id,
            url: destination.as_str().to_owned(),
            description: new.description,
            mask: new.mask,
            disabled: None,
            failing_since: None,
            secrets: parts
                .secrets
                .first(id, &secret, &parts.environment.random_32(), now)?,
            created_at: now,
            updated_at: now,
        };
        let view = endpoint_view(&endpoint, now);
        let mut audit = self.audit(actor, "webhook_endpoint.create", &id);
        audit.after = Some(view.to_string());
        let most = parts.settings.max_endpoints;
        if !parts
            .store
            .insert_webhook_endpoint(&endpoint, most, &audit)
            .await?
        {
            let message = format!("a workspace has at most {most} webhook endpoints");
            return Err(AppError::new(ErrorCode::AlreadyExists, message));
        }
        Ok(with_secret(view, &secret))
    }

    /// A URL that may be told: its form and every address of its name are checked.
    async fn destination(&self, url: &str) -> Result<Destination, AppError> {
        let checked = self.parts.tester.register(url).await;
        checked.map_err(|error| AppError::invalid("url", error.to_string()))
    }

    /// A workspace's endpoints, oldest first.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn endpoints(&self, actor: &Actor) -> Result<Vec<Value>, AppError> {
        let now = self.parts.environment.now();
        let all = self.parts.store.list_webhook_endpoints(actor.tenant.id).await?;
        Ok(all.iter().map(|endpoint| endpoint_view(endpoint, now)).collect())
    }

    /// An endpoint.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn endpoint(&self, actor: &Actor, id: WebhookEndpointId) -> Result<Value, AppError> {
        let endpoint = self.find(actor, id).await?;
        Ok(endpoint_view(&endpoint, self.parts.environment.now()))
    }

    /// Changes an endpoint.
    ///
    /// # Errors
    /// `NOT_FOUND`, `VALIDATION_ERROR`.
    pub async fn change(&self, actor: &Actor, id: WebhookEndpointId, raw: &[u8]) -> Result<Value, AppError> {
        let changed = ChangedEndpoint::parse(raw)?;
        let before = self.endpoint(actor, id).await?;
        let url = match &changed.url {
            None => None,
            Some(url) => Some(self.destination(url).await?.as_str().to_owned()),
        };
        let mut audit = self.audit(actor, "webhook_endpoint.change", &id);
        audit.before = Some(before.to_string());
        let change = EndpointChange {
            url,
            description: changed.description,
            mask: changed.mask,
            enabled: changed.enabled,
        };
        let after = json!({
            "url": change.url, "description": change.description, "enabled": change.enabled,
            "eventTypes": change.mask.map(turnpike_core::webhook::EventMask::types),
        });
        audit.after = Some(after.to_string());
        let (store, tenant) = (&self.parts.store, actor.tenant.id);
        if change.enabled == Some(true) && cancel_part(&self.parts, tenant, id).await? == Canceling::More {
            return Err(still_canceling());
        }
        if !store.change_webhook_endpoint(tenant, id, &change, &audit).await? {
            self.find(actor, id).await?;
            return Err(still_canceling());
        }
        if change.enabled == Some(false) {
            cancel_some(&self.parts, tenant, id).await;
        }
        self.endpoint(actor, id).await
    }

    /// Removes an endpoint; what waits for it is canceled.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn delete(&self, actor: &Actor, id: WebhookEndpointId) -> Result<(), AppError> {
        let before = self.endpoint(actor, id).await?;
        let mut audit = self.audit(actor, "webhook_endpoint.delete", &id);
        audit.before = Some(before.to_string());
        let (store, tenant) = (&self.parts.store, actor.tenant.id);
        if !store.delete_webhook_endpoint(tenant, id, &audit).await? {
            return Err(no_such_endpoint());
        }
        cancel_some(&self.parts, tenant, id).await;
        Ok(())
    }

    /// Gives an endpoint a new secret, shown once; the old one signs beside it for the overlap.
    ///
    /// # Errors
    /// `NOT_FOUND`; `ALREADY_EXISTS` when too many secrets still overlap, or when another rotation came between.
    pub async fn rotate(&self, actor: &Actor, id: WebhookEndpointId, raw: &[u8]) -> Result<Value, AppError> {
        let overlap = request::overlap_ms(raw)?;
        let mut endpoint = self.find(actor, id).await?;
        let (parts, refused) = (&self.parts, |message: &str| {
            AppError::new(ErrorCode::AlreadyExists, message)
        });
        let now = parts.environment.now();
        let secret = WebhookSecret::new(parts.environment.random_32());
        let random = parts.environment.random_32();
        let row = parts
            .secrets
            .rotated(id, &endpoint.secrets, &secret, &random, now, overlap)?
            .ok_or_else(|| {
                refused("too many secrets still overlap: rotate with overlapSeconds 0, or later")
            })?;
        let audit = self.audit(actor, "webhook_endpoint.rotate_secret", &id);
        if !parts.store.set_webhook_secrets(&endpoint, &row, &audit).await? {
            return Err(refused("the secret was rotated at the same moment: try again"));
        }
        endpoint.secrets = row;
        endpoint.updated_at = audit.at;
        Ok(with_secret(endpoint_view(&endpoint, now), &secret))
    }

    /// Sends an example to an endpoint at once and says what came back. It is no event: it is not kept, not repeated,
    /// and nobody else gets it.
    ///
    /// # Errors
    /// `NOT_FOUND`, `VALIDATION_ERROR`.
    pub async fn test(&self, actor: &Actor, id: WebhookEndpointId, raw: &[u8]) -> Result<Value, AppError> {
        let kind = request::test_type(raw)?;
        let endpoint = self.find(actor, id).await?;
        let parts = &self.parts;
        let now = parts.environment.now();
        let event = EventRow {
            seq: 0,
            id: EventId(parts.environment.new_id()),
            kind,
            created_at: now,
            data: example(kind, now).to_string(),
        };
        let body: Bytes = message(actor.tenant.id, &event, parts.settings.retention_ms)?;
        let secrets = parts.secrets.live(id, &endpoint.secrets, now)?;
        let attempt = parts
            .tester
            .send(&WebhookRequest {
                url: &endpoint.url,
                id: &event.id.to_string(),
                at: now,
                body: &body,
                secrets: &secrets,
            })
            .await;
        Ok(json!({
            "event_id": event.id, "type": kind, "succeeded": attempt.succeeded(),
            "destination_url": endpoint.url, "http_status": attempt.http_status,
            "response_body": attempt.response_body, "error": attempt.error,
            "duration_ms": u64::try_from(attempt.elapsed.as_millis()).unwrap_or(u64::MAX),
        }))
    }

    /// Tells an endpoint again of events since a time that it wants and has not taken, from the newest down.
    ///
    /// # Errors
    /// `NOT_FOUND`, `ENDPOINT_DISABLED`, `VALIDATION_ERROR`, `CURSOR_INVALID`; `ALREADY_EXISTS` while another of these runs.
    pub async fn replay_missed(
        &self,
        actor: &Actor,
        id: WebhookEndpointId,
        raw: &[u8],
    ) -> Result<ReplayedMissed, AppError> {
        let asked = Missed::parse(raw)?;
        let endpoint = self.find(actor, id).await?;
        if endpoint.disabled.is_some() {
            return Err(disabled());
        }
        let _turn = Turn::take(&self.replaying, id).ok_or_else(|| {
            let message = "this endpoint's events are being told again: wait for the end of that";
            AppError::new(ErrorCode::AlreadyExists, message)
        })?;
        let (store, tenant) = (&self.parts.store, actor.tenant.id);
        let now = store.clock(self.parts.environment.now()).await?;
        let since = asked.since.max(self.kept_since());
        let mut before_seq = match &asked.cursor {
            None => None,
            Some(cursor) => match self.position(tenant, cursor, since).await? {
                Some(seq) => Some(seq),
                None => return Ok(ReplayedMissed::default()),
            },
        };
        let mut audit = self.audit(actor, "webhook_endpoint.replay", &id);
        audit.after = Some(json!({ "since": since, "cursor": asked.cursor }).to_string());
        let mut audit = Some(&audit);
        let mut done = ReplayedMissed::default();
        let mut left = self.parts.settings.max_replayed.max(1);
        loop {
            let step = left.min(REPLAY_STEP);
            let filter = EventFilter {
                before_seq,
                ..EventFilter::newest(step)
            };
            // Positions without gaps: a page is a span of them.
            let mut page = store.list_events(tenant, &filter).await?;
            // One that is older ends it: those behind it are older still.
            page.retain(|event| event.created_at >= since);
            let whole = u32::try_from(page.len()) == Ok(step);
            let (Some(newest), Some(oldest)) = (page.first(), page.last()) else {
                return Ok(done);
            };
            let span = Span {
                after: oldest.seq.saturating_sub(1),
                to: newest.seq,
            };
            if store.count_missed(tenant, id, span).await? > 0 {
                let made = store
                    .replay(tenant, id, ReplayOf::Missed(span), audit.take(), now)
                    .await?;
                done.replayed = done.replayed.saturating_add(made.ok_or_else(disabled)?);
            }
            if !whole {
                return Ok(done);
            }
            before_seq = Some(oldest.seq);
            left = left.saturating_sub(step);
            if left == 0 {
                done.next_cursor = Some(oldest.id);
                return Ok(done);
            }
        }
    }
}

/// What telling an endpoint of everything it missed came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayedMissed {
    /// Events that are told again.
    pub replayed: u64,
    /// `cursor` of the request that goes on; `None` = everything was looked at.
    pub next_cursor: Option<EventId>,
}

/// The right to run, given back at the end.
struct Turn<'a> {
    all: &'a Mutex<HashSet<WebhookEndpointId>>,
    mine: WebhookEndpointId,
}

impl<'a> Turn<'a> {
    fn take(all: &'a Mutex<HashSet<WebhookEndpointId>>, mine: WebhookEndpointId) -> Option<Self> {
        let taken = all.lock().unwrap_or_else(PoisonError::into_inner).insert(mine);
        taken.then_some(Self { all, mine })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.mine);
    }
}

fn still_canceling() -> AppError {
    let message = "attempts from before it was disabled are still being canceled: try again in a moment";
    AppError::new(ErrorCode::AlreadyExists, message).retry_after(5)
}

fn with_secret(mut view: Value, secret: &WebhookSecret) -> Value {
    if let Some(members) = view.as_object_mut() {
        members.insert("secret".to_owned(), json!(secret.reveal().as_str()));
    }
    view
}

/// The data of a test: what every event has, and that it is none.
fn example(kind: EventType, now: Timestamp) -> Value {
    json!({
        "externalUserId": null,
        "reference": format!("test of {kind}"),
        "occurredAt": now,
        "test": true,
    })
}
