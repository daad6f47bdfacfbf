//! The one HTTP client: connection pool, timeouts, size caps and the guard of [`crate::guard`].
//!
//! The rule: a request is written at most once, to a checked address, without a proxy and without following
//! redirects, and nothing that an upstream sends is waited for or kept without a bound. Each call has an
//! HTTP/1.1 connection of its own, so that a slow or dying answer touches no other call and "not written"
//! is exact. What an answer means is left to the adapters.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};

use crate::connect::{Connector, causes, connect_reason};
use crate::error::{Phase, UpstreamError};
use crate::guard::{self, Guard, Refused};
use crate::headers;
use crate::provider::BuildError;
use crate::resolve::{Resolver, SystemResolver};
use crate::tool::CallBounds;

/// Largest response head; the connection's read buffer is bounded by it, too.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// How much of a refused call's body is kept.
pub const MAX_ERROR_BODY: usize = 64 * 1024;
/// How long a refused call's body is waited for: its status is known already.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(5);

/// Bounds of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Whose addresses these are.
    pub guard: Guard,
    /// Where names are looked up.
    pub resolver: Arc<dyn Resolver>,
    /// Name resolution, TCP and TLS together.
    pub connect_timeout: Duration,
    /// From the end of connecting to the response head.
    pub header_timeout: Duration,
    /// Between two reads of a body.
    pub idle_timeout: Duration,
    /// The whole of a call that is no stream.
    pub total_timeout: Duration,
    /// How long an unused connection is kept.
    pub pool_idle_timeout: Duration,
    /// How many unused connections are kept for one host and port.
    pub max_idle_per_host: usize,
    /// Largest body of a call that is no stream.
    pub max_response_bytes: usize,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            guard: Guard::Operator,
            resolver: Arc::new(SystemResolver),
            connect_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_mins(2),
            idle_timeout: Duration::from_mins(1),
            total_timeout: Duration::from_mins(10),
            pool_idle_timeout: Duration::from_secs(30),
            max_idle_per_host: 4096,
            max_response_bytes: 32 * 1024 * 1024,
        }
    }
}

/// A pooled, bounded HTTP client. Cloning shares the pool.
#[derive(Clone, Debug)]
pub struct Client {
    pool: legacy::Client<Connector, Full<Bytes>>,
    settings: ClientSettings,
}

impl Client {
    /// Builds a client.
    ///
    /// # Errors
    /// [`BuildError::TrustStore`] when the system has no root certificates.
    pub fn new(settings: ClientSettings) -> Result<Self, BuildError> {
        let connector = Connector::new(&settings)?;
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(settings.pool_idle_timeout)
            .pool_max_idle_per_host(settings.max_idle_per_host)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            // INVARIANT: one call is one request on the wire.
            .retry_canceled_requests(false)
            .build(connector);
        Ok(Self { pool, settings })
    }

    /// The bounds of this client.
    pub fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// The same connections within narrower bounds.
    pub(crate) fn bounded(&self, bounds: CallBounds) -> Self {
        let mut client = self.clone();
        let settings = &mut client.settings;
        if let Some(timeout) = bounds.timeout {
            settings.total_timeout = settings.total_timeout.min(timeout);
        }
        if let Some(bytes) = bounds.max_answer_bytes {
            settings.max_response_bytes = settings.max_response_bytes.min(bytes);
        }
        client
    }

    /// When a call that begins now must be over.
    pub fn total_deadline(&self) -> Instant {
        Instant::now() + self.settings.total_timeout
    }

    /// Sends a request and waits for the response head. Redirects and encoded bodies are refused here;
    /// other statuses are the caller's.
    pub async fn send(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let response = self.send_raw(method, uri, headers, body).await?;
        if response.status().is_redirection() {
            return Err(UpstreamError::bad(UpstreamError::REDIRECT));
        }
        if headers::is_encoded(response.headers()) {
            return Err(UpstreamError::bad("encoded body"));
        }
        Ok(response)
    }

    /// As [`Self::send`], for callers who want the head whatever it says: redirects (which are not followed)
    /// and encoded bodies (which are not decoded) are theirs, too.
    pub(crate) async fn send_raw(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.settings
            .guard
            .check_uri(&uri)
            .map_err(|Refused| NOT_ALLOWED)?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        // On top of connecting, so that a connect that hangs is known as one: then nothing was sent.
        let wait = self
            .settings
            .connect_timeout
            .saturating_add(self.settings.header_timeout);
        let wait = wait.min(self.settings.total_timeout);
        let response = match timeout_at(Instant::now() + wait, self.pool.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(classify(&error)),
            Err(_elapsed) => {
                return Err(UpstreamError::Timeout {
                    phase: Phase::Headers,
                });
            }
        };
        // The connection's buffer may have grown past the cap before it was checked.
        if headers::size(response.headers()) > MAX_HEAD_BYTES {
            return Err(UpstreamError::bad("response head too large"));
        }
        Ok(response)
    }

    /// Reads a whole body within the caps of this client.
    pub async fn collect(&self, body: Incoming, deadline: Instant) -> Result<Bytes, UpstreamError> {
        let cap = self.settings.max_response_bytes;
        if usize::try_from(body.size_hint().lower()).map_or(true, |promised| promised > cap) {
            return Err(UpstreamError::bad("body too large"));
        }
        let mut gathered = Gathered::default();
        let mut body = body;
        while let Some(part) = next_part(&mut body, self.settings.idle_timeout, Some(deadline)).await? {
            if gathered.len().saturating_add(part.len()) > cap {
                return Err(UpstreamError::bad("body too large"));
            }
            gathered.push(part);
        }
        Ok(gathered.finish())
    }

    /// The error of a refused call, with as much of its body as is kept.
    pub async fn status_error(&self, response: Response<Incoming>, deadline: Instant) -> UpstreamError {
        let status = response.status().as_u16();
        let retry_after = headers::retry_after(response.headers());
        let mut body = response.into_body();
        let mut gathered = Gathered::default();
        let deadline = deadline.min(Instant::now() + ERROR_BODY_WAIT);
        // What cannot be read is left out: the status is the answer.
        while let Ok(Some(mut part)) = next_part(&mut body, self.settings.idle_timeout, Some(deadline)).await
        {
            part.truncate(MAX_ERROR_BODY.saturating_sub(gathered.len()));
            gathered.push(part);
            if gathered.len() >= MAX_ERROR_BODY {
                break;
            }
        }
        UpstreamError::Status {
            status,
            retry_after,
            body: gathered.finish(),
        }
    }
}

/// The next bytes of a body, within the idle timeout and before `deadline`.
pub(crate) async fn next_part(
    body: &mut Incoming,
    idle: Duration,
    deadline: Option<Instant>,
) -> Result<Option<Bytes>, UpstreamError> {
    loop {
        let idle_end = Instant::now() + idle;
        let (end, phase) = match deadline {
            Some(total_end) if total_end < idle_end => (total_end, Phase::Total),
            Some(_) | None => (idle_end, Phase::Body),
        };
        match timeout_at(end, body.frame()).await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => {
                // Trailers are not looked at.
                if let Ok(part) = frame.into_data()
                    && !part.is_empty()
                {
                    return Ok(Some(part));
                }
            }
            Ok(Some(Err(error))) => return Err(classify_body(&error)),
            Err(_elapsed) => return Err(UpstreamError::Timeout { phase }),
        }
    }
}

/// A body that is copied only when it arrives in more than one part.
#[derive(Default)]
struct Gathered {
    only: Bytes,
    joined: BytesMut,
}

impl Gathered {
    fn len(&self) -> usize {
        self.only.len().saturating_add(self.joined.len())
    }

    fn push(&mut self, part: Bytes) {
        if self.len() == 0 {
            self.only = part;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&self.only);
            self.only = Bytes::new();
        }
        self.joined.extend_from_slice(&part);
    }

    fn finish(self) -> Bytes {
        if self.joined.is_empty() {
            self.only
        } else {
            self.joined.freeze()
        }
    }
}

const NOT_ALLOWED: UpstreamError = UpstreamError::NotSent {
    reason: guard::REFUSED,
};

/// The fixed words for a pooled connection that was found dead: the one failure that says nothing about the
/// other side.
pub(crate) const CLOSED_UNWRITTEN: &str = "connection was closed before the request was written";

/// What a failed request means: nothing written, something written, or an unusable head.
fn classify(error: &legacy::Error) -> UpstreamError {
    if error.is_connect() {
        return UpstreamError::NotSent {
            reason: connect_reason(error),
        };
    }
    let Some(hyper) = causes(error).find_map(<dyn StdError>::downcast_ref::<hyper::Error>) else {
        return UpstreamError::Interrupted {
            reason: "connection failed",
        };
    };
    if hyper.is_canceled() {
        // INVARIANT: hyper cancels only requests that it hands back unwritten, as a pooled connection that
        // was found dead leaves them. A request that was begun fails as incomplete, closed or by I/O.
        return UpstreamError::NotSent {
            reason: CLOSED_UNWRITTEN,
        };
    }
    if hyper.is_parse_too_large() {
        return UpstreamError::bad("response head too large");
    }
    if hyper.is_parse() {
        return UpstreamError::bad("malformed response head");
    }
    UpstreamError::Interrupted {
        reason: "connection closed before the answer",
    }
}

fn classify_body(error: &hyper::Error) -> UpstreamError {
    if error.is_parse() {
        UpstreamError::bad("malformed response body")
    } else {
        UpstreamError::Interrupted {
            reason: "connection closed before the end of the answer",
        }
    }
}
