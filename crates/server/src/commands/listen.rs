//! `turnpike listen`: forwards a workspace's events to a URL of the developer's own machine.
//!
//! It reads beside a running service and leaves nothing behind: no endpoint, no attempts. Each event is sent once.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use turnpike_app::Environment as _;
use turnpike_app::webhooks::message;
use turnpike_core::access::KeyPepper;
use turnpike_core::ids::TenantId;
use turnpike_core::webhook::EventMask;
use turnpike_store::{EventFilter, EventRow, Store, Tenant};
use turnpike_upstream::webhook::{WebhookRequest, WebhookSecret, WebhookSender, WebhookSettings};

use super::{load, print, tell};
use crate::cli::{Global, ListenArgs};
use crate::clock::SystemEnvironment;
use crate::service::{Access, SetupError, open_store, pepper};

/// How often new events are looked for.
const POLL: Duration = Duration::from_millis(200);
/// Events read at once.
const PAGE: u32 = 100;

pub(super) async fn listen(global: &Global, args: &ListenArgs) -> Result<ExitCode, SetupError> {
    let config = load(global, false)?;
    let store = open_store(&config.store, &global.data, Access::Read, "turnpike listen").await?;
    let tenant = choose(&*store, args.tenant).await?;
    let sender = WebhookSender::new(WebhookSettings {
        allow_loopback: true,
        ..WebhookSettings::default()
    })
    .map_err(|error| SetupError::Other(error.to_string()))?;
    let destination = sender
        .register(&args.forward_to)
        .await
        .map_err(|error| SetupError::Other(format!("--forward-to {error}")))?;
    let secret = secret_of(&pepper(&config, &global.data)?, tenant.id);
    let forward = Forward {
        store,
        sender,
        url: destination.as_str().to_owned(),
        secrets: [secret],
        tenant: tenant.id,
        mask: if args.types.is_empty() {
            EventMask::ALL
        } else {
            EventMask::of(&args.types)
        },
        retention_ms: config.webhooks.settings().retention_ms,
        json: global.json,
    };
    forward.run(&tenant.name).await
}

/// The workspace that was named, or the only one.
async fn choose(store: &dyn Store, named: Option<TenantId>) -> Result<Tenant, SetupError> {
    let mut tenants = store.list_tenants().await?;
    tenants.retain(|tenant| named.is_none_or(|named| tenant.id == named));
    match (tenants.pop(), tenants.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => {
            let message = "there are several workspaces: say which with --tenant ID";
            Err(SetupError::Other(message.to_owned()))
        }
        (None, _) => Err(SetupError::Other("there is no such workspace".to_owned())),
    }
}

/// The same every time for this installation and workspace, so that it can stay in the receiver's configuration.
fn secret_of(pepper: &KeyPepper, tenant: TenantId) -> WebhookSecret {
    WebhookSecret::new(pepper.derive(&format!("webhook secret of turnpike listen {tenant}")))
}

struct Forward {
    store: Arc<dyn Store>,
    sender: WebhookSender,
    url: String,
    secrets: [WebhookSecret; 1],
    tenant: TenantId,
    mask: EventMask,
    retention_ms: i64,
    json: bool,
}

impl Forward {
    fn greet(&self, workspace: &str) -> Result<(), SetupError> {
        let [secret] = &self.secrets;
        if self.json {
            let line =
                json!({ "tenantId": self.tenant, "forwardTo": self.url, "secret": secret.reveal().as_str() });
            return print(&line.to_string());
        }
        print(&format!(
            "Events of {workspace} go to {}\nSigning secret (the same every time): {}\nCtrl-C ends it.",
            self.url,
            secret.reveal().as_str()
        ))
    }

    /// Forwards what happens from now on, until a signal.
    async fn run(&self, workspace: &str) -> Result<ExitCode, SetupError> {
        let failed = |error: std::io::Error| SetupError::Other(format!("signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut seen = self.page(None, 1).await?.first().map_or(0, |newest| newest.seq);
        // Whoever has read this may count on what happens from then on.
        self.greet(workspace)?;
        let forwarding = async {
            loop {
                tokio::time::sleep(POLL).await;
                match self.since(seen).await {
                    Ok(new) => {
                        for event in new {
                            if self.mask.wants(event.kind) {
                                self.forward(&event).await?;
                            }
                            seen = event.seq;
                        }
                    }
                    Err(error) => tell(&format!("turnpike: {error}")),
                }
            }
        };
        tokio::select! {
            failure = forwarding => failure,
            _signal = terminate.recv() => Ok(ExitCode::SUCCESS),
            _signal = interrupt.recv() => Ok(ExitCode::SUCCESS),
        }
    }

    async fn page(&self, before_seq: Option<i64>, limit: u32) -> Result<Vec<EventRow>, SetupError> {
        let filter = EventFilter {
            before_seq,
            ..EventFilter::newest(limit)
        };
        Ok(self.store.list_events(self.tenant, &filter).await?)
    }

    /// The next events behind position `seen`, oldest first. Positions have no gaps, but the oldest events may be gone.
    async fn since(&self, mut seen: i64) -> Result<Vec<EventRow>, SetupError> {
        let newest = self.page(None, 1).await?.first().map_or(0, |newest| newest.seq);
        loop {
            let end = newest.min(seen.saturating_add(i64::from(PAGE)));
            let mut new = self.page(Some(end.saturating_add(1)), PAGE).await?;
            new.retain(|event| event.seq > seen);
            if !new.is_empty() || end >= newest {
                new.reverse();
                return Ok(new);
            }
            seen = end;
        }
    }

    async fn forward(&self, event: &EventRow) -> Result<(), SetupError> {
        let body = message(self.tenant, event, self.retention_ms)?;
        let request = WebhookRequest {
            url: &self.url,
            id: &event.id.to_string(),
            at: SystemEnvironment.now(),
            body: &body,
            secrets: &self.secrets,
        };
        let attempt = self.sender.send(&request).await;
        let took = attempt.elapsed.as_millis();
        if self.json {
            let line = json!({
                "eventId": event.id, "type": event.kind, "sequence": event.seq.to_string(),
                "httpStatus": attempt.http_status, "error": attempt.error,
                "durationMs": u64::try_from(took).unwrap_or(u64::MAX),
            });
            return print(&line.to_string());
        }
        let came_back = match (attempt.http_status, attempt.error) {
            (Some(status), _) => status.to_string(),
            (None, error) => error.unwrap_or("no answer").to_owned(),
        };
        print(&format!(
            "{} {} {}  -> {came_back} ({took} ms)",
            event.created_at, event.kind, event.id
        ))
    }
}
