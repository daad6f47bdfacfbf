//! The webhook sender: one attempt to deliver one signed message to an address that a user gave.
//!
//! The rule: an attempt has one time limit for everything, is decided by the status that arrives within it,
//! and always ends in an [`Attempt`], never in an error of its own. It goes to checked addresses only and
//! follows nothing. Which messages are due, when they are tried again and what an outcome does to an endpoint
//! is the app's business.

mod destination;
#[cfg(test)]
mod destination_tests;
mod response;
mod scrub;
#[cfg(test)]
mod scrub_tests;
mod secret;
mod signing;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout, timeout_at};
use turnpike_core::time::Timestamp;

pub use self::destination::{Destination, DestinationError, MAX_URL_BYTES};
pub use self::response::MAX_RETRY_AFTER;
pub use self::scrub::{MAX_BYTES as MAX_RESPONSE_BYTES, TRUNCATED, stored as scrubbed};
pub use self::secret::{WebhookSecret, WebhookSecretError};
use crate::client::{CLOSED_UNWRITTEN, Client, ClientSettings};
use crate::error::UpstreamError;
use crate::guard::{self, NameFault};
use crate::provider::BuildError;
use crate::resolve::{BoundedResolver, Resolver};

/// How long the body of a success is waited for: it changes nothing.
const SUCCESS_BODY_WAIT: Duration = Duration::from_secs(2);
/// How long a name may take to resolve at registration.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Names that are looked up at once: half of the runtime's blocking threads.
const MAX_LOOKUPS: usize = 256;
/// Shorter than the five seconds after which common servers close an unused connection.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);
const MAX_IDLE_PER_HOST: usize = 4;
/// Each pooled connection may turn out to be dead.
const MAX_TRIES: usize = MAX_IDLE_PER_HOST + 1;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("Turnpike-Webhooks/", env!("CARGO_PKG_VERSION")));

/// What a [`WebhookSender`] is built from.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// For development: loopback destinations, also over `http` and on any port.
    pub allow_loopback: bool,
    /// The whole of an attempt.
    pub timeout: Duration,
    /// Where names are looked up.
    pub resolver: Arc<dyn Resolver>,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            allow_loopback: false,
            timeout: Duration::from_secs(15),
            resolver: Arc::new(BoundedResolver::new(MAX_LOOKUPS)),
        }
    }
}

/// One message to one endpoint.
#[derive(Clone, Copy)]
pub struct WebhookRequest<'a> {
    /// The endpoint's URL as it was registered; it is checked again.
    pub url: &'a str,
    /// The message's id, the same at every attempt.
    pub id: &'a str,
    /// When this attempt is made.
    pub at: Timestamp,
    /// JSON, sent as it is.
    pub body: &'a Bytes,
    /// The endpoint's secrets, newest first.
    pub secrets: &'a [WebhookSecret],
}

/// The message's id only: bodies tell of customers, and URLs carry tokens.
impl fmt::Debug for WebhookRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookRequest({})", self.id)
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// A status of 2xx arrived in time.
    Succeeded,
    /// Anything else.
    Failed,
}

/// What an attempt came to.
#[derive(Clone, PartialEq, Eq)]
pub struct Attempt {
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// The status, if a head arrived.
    pub http_status: Option<u16>,
    /// At most [`MAX_RESPONSE_BYTES`] of what the destination said, scrubbed. Foreign text: never log it.
    pub response_body: Option<String>,
    /// Why it failed, in fixed words.
    pub error: Option<&'static str>,
    /// How long a destination that failed asks to be left alone, from the end of the attempt; at most
    /// [`MAX_RETRY_AFTER`].
    pub retry_after: Option<Duration>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Attempt {
    /// Whether the status was 2xx.
    pub fn succeeded(&self) -> bool {
        self.outcome == AttemptOutcome::Succeeded
    }

    /// Whether the destination says that it is gone for good (410).
    pub fn is_gone(&self) -> bool {
        self.http_status == Some(StatusCode::GONE.as_u16())
    }

    fn failed(error: &'static str, started: Instant) -> Self {
        Self {
            outcome: AttemptOutcome::Failed,
            http_status: None,
            response_body: None,
            error: Some(error),
            retry_after: None,
            elapsed: started.elapsed(),
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("outcome", &self.outcome)
            .field("http_status", &self.http_status)
            .field("error", &self.error)
            .field("retry_after", &self.retry_after)
            .field("elapsed", &self.elapsed)
            .finish_non_exhaustive()
    }
}

/// Sends messages. Cloning shares the connections.
#[derive(Clone, Debug)]
pub struct WebhookSender {
    client: Client,
    settings: WebhookSettings,
}

impl WebhookSender {
    /// Builds a sender.
    ///
    /// # Errors
    /// [`BuildError::TrustStore`] when the system has no root certificates.
    pub fn new(settings: WebhookSettings) -> Result<Self, BuildError> {
        let client = Client::new(ClientSettings {
            guard: destination::guard(settings.allow_loopback),
            resolver: Arc::clone(&settings.resolver),
            // Less than the whole, so that an attempt that never connected says so.
            connect_timeout: (settings.timeout / 3).saturating_mul(2),
            header_timeout: settings.timeout,
            idle_timeout: settings.timeout,
            total_timeout: settings.timeout,
            pool_idle_timeout: POOL_IDLE_TIMEOUT,
            max_idle_per_host: MAX_IDLE_PER_HOST,
            // Bodies are read by `response`, within its own bound.
            max_response_bytes: 0,
        })?;
        Ok(Self { client, settings })
    }

    /// Reads a URL that is to be registered, resolves its name, and checks every address of it.
    ///
    /// # Errors
    /// [`DestinationError`]; a name that cannot be resolved is refused.
    pub async fn register(&self, text: &str) -> Result<Destination, DestinationError> {
        let destination = Destination::parse(text, self.settings.allow_loopback)?;
        let Some(name) = destination.name() else {
            return Ok(destination);
        };
        let guard = destination::guard(self.settings.allow_loopback);
        let resolving = guard.resolve(self.settings.resolver.as_ref(), name);
        match timeout(CHECK_TIMEOUT, resolving).await {
            Ok(Ok(_allowed)) => Ok(destination),
            Ok(Err(NameFault::Refused)) => Err(DestinationError::NotPublic),
            Ok(Err(NameFault::Unresolved)) | Err(_) => Err(DestinationError::Unresolved),
        }
    }

    /// Makes one attempt. Dropping the future ends it; the destination may have seen the message then.
    pub async fn send(&self, request: &WebhookRequest<'_>) -> Attempt {
        let started = Instant::now();
        let end = started + self.settings.timeout;
        match self.exchange(request, end).await {
            Ok(response) => judge(response, request.at, started, end).await,
            Err(error) => Attempt::failed(error, started),
        }
    }

    /// Sends the message and waits for the head of the answer.
    async fn exchange(
        &self,
        request: &WebhookRequest<'_>,
        end: Instant,
    ) -> Result<Response<Incoming>, &'static str> {
        let destination = Destination::parse(request.url, self.settings.allow_loopback)
            .map_err(|_refused| guard::REFUSED)?;
        let headers = signed_headers(request)?;
        for _ in 0..MAX_TRIES {
            let sending = self.client.send_raw(
                Method::POST,
                destination.uri().clone(),
                headers.clone(),
                request.body.clone(),
            );
            match timeout_at(end, sending).await {
                Ok(Ok(response)) => return Ok(response),
                // Nothing was written, and the dead connection has left the pool.
                Ok(Err(UpstreamError::NotSent { reason })) if reason == CLOSED_UNWRITTEN => {}
                Ok(Err(error)) => return Err(words(&error)),
                Err(_elapsed) => return Err(TIMED_OUT),
            }
        }
        Err(CLOSED_UNWRITTEN)
    }
}

const TIMED_OUT: &str = "timed out";

/// All headers of a message except `host` and `content-length`, which the connection adds.
fn signed_headers(request: &WebhookRequest<'_>) -> Result<HeaderMap, &'static str> {
    if request.secrets.is_empty() {
        return Err("no signing secret");
    }
    let unix_seconds = unix_seconds(request.at);
    let signature = signing::signatures(request.secrets, request.id, unix_seconds, request.body);
    let id = HeaderValue::from_str(request.id);
    let signature = HeaderValue::from_str(&signature);
    let (Ok(id), Ok(signature)) = (id, signature) else {
        return Err("message id cannot stand in a header");
    };
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(ACCEPT_ENCODING, IDENTITY);
    headers.insert(USER_AGENT, AGENT);
    headers.insert(ID, id);
    headers.insert(TIMESTAMP, HeaderValue::from(unix_seconds));
    headers.insert(SIGNATURE, signature);
    Ok(headers)
}

fn unix_seconds(at: Timestamp) -> i64 {
    at.millis().div_euclid(1000)
}

/// The outcome that a head means, with what is kept of the body.
async fn judge(response: Response<Incoming>, at: Timestamp, started: Instant, end: Instant) -> Attempt {
    let (head, body) = response.into_parts();
    let succeeded = head.status.is_success();
    let body_end = if succeeded {
        end.min(Instant::now() + SUCCESS_BODY_WAIT)
    } else {
        end
    };
    let response_body = response::text(&head.headers, body, body_end).await;
    let elapsed = started.elapsed();
    let mut attempt = Attempt {
        outcome: AttemptOutcome::Succeeded,
        http_status: Some(head.status.as_u16()),
        response_body,
        error: None,
        retry_after: None,
        elapsed,
    };
    if !succeeded {
        let passed = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        attempt.outcome = AttemptOutcome::Failed;
        attempt.error = Some(status_words(head.status));
        attempt.retry_after = response::retry_after(&head.headers, unix_seconds(at.plus_millis(passed)));
    }
    attempt
}

fn status_words(status: StatusCode) -> &'static str {
    if status.is_redirection() {
        "redirect not followed"
    } else {
        "status is not 2xx"
    }
}

/// An error in fixed words.
fn words(error: &UpstreamError) -> &'static str {
    match error {
        UpstreamError::NotSent { reason }
        | UpstreamError::BadResponse { reason }
        | UpstreamError::Interrupted { reason } => reason,
        UpstreamError::Timeout { .. } => TIMED_OUT,
        // The client leaves statuses alone.
        UpstreamError::Status { .. } => status_words(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
