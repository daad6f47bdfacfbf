//! Webhooks: who is told of a workspace's events, what was told, and telling it.
//!
//! [`WebhookDesk`] is what people ask for; [`Dispatcher`] is the worker that delivers.

mod attempt;
mod canceling;
mod dispatcher;
mod endpoints;
mod events;
mod lanes;
mod recorder;
mod request;
mod secrets;
mod view;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::WebhookEndpointId;
use turnpike_core::webhook::RetrySchedule;
use turnpike_store::{AuditRow, Store, WebhookEndpoint};
use turnpike_upstream::webhook::WebhookSender;

pub use self::dispatcher::{DispatchCounts, Dispatcher};
pub use self::endpoints::ReplayedMissed;
pub use self::events::{EventPage, EventQuery};
pub use self::secrets::SecretBox;
pub use self::view::message;
use crate::auth::Actor;
use crate::changes::Author;
use crate::environment::Environment;
use crate::error::AppError;

/// How long a claim outlives the longest attempt.
const LEASE_SLACK_MS: i64 = 15_000;

/// Settings of webhooks.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// When attempts follow one another.
    pub schedule: RetrySchedule,
    /// The whole of an attempt.
    pub timeout_ms: i64,
    /// How long events and their attempts are kept.
    pub retention_ms: i64,
    /// How long an endpoint may fail without a success before it goes out of use.
    pub patience_ms: i64,
    /// Most endpoints of a workspace.
    pub max_endpoints: u32,
    /// Most events that one request to tell an endpoint of everything it missed looks at.
    pub max_replayed: u32,
    /// How often an idle worker looks for something to do.
    pub poll_ms: u64,
    /// Attempts that a worker makes at once.
    pub concurrency: usize,
    /// Of which so many at one endpoint.
    pub concurrency_per_endpoint: usize,
}

impl WebhookSettings {
    /// How long a claim lasts: the longest attempt, its start and its record.
    pub const fn lease_ms(&self) -> i64 {
        self.timeout_ms.saturating_add(LEASE_SLACK_MS)
    }
}

/// What both sides of webhooks stand on.
pub struct WebhookParts {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// Time, ids, randomness.
    pub environment: Arc<dyn Environment>,
    /// What makes requests.
    pub sender: WebhookSender,
    /// What checks new addresses and makes tests: what these wait for, deliveries do not.
    pub tester: WebhookSender,
    /// What opens secrets.
    pub secrets: SecretBox,
    /// Settings.
    pub settings: WebhookSettings,
}

/// The use cases of webhooks.
pub struct WebhookDesk {
    parts: Arc<WebhookParts>,
    /// Endpoints of which everything missed is being told again.
    replaying: Mutex<HashSet<WebhookEndpointId>>,
}

impl WebhookDesk {
    /// A desk on `parts`.
    pub fn new(parts: Arc<WebhookParts>) -> Self {
        Self {
            parts,
            replaying: Mutex::default(),
        }
    }

    fn audit(&self, actor: &Actor, action: &'static str, target: &impl ToString) -> AuditRow {
        Author::of(actor).row(&*self.parts.environment, action, target.to_string())
    }

    async fn find(&self, actor: &Actor, id: WebhookEndpointId) -> Result<WebhookEndpoint, AppError> {
        let found = self
            .parts
            .store
            .find_webhook_endpoint(actor.tenant.id, id)
            .await?;
        found.ok_or_else(no_such_endpoint)
    }
}

fn no_such_endpoint() -> AppError {
    AppError::new(ErrorCode::NotFound, "there is no such webhook endpoint")
}
