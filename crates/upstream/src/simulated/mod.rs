//! The simulated provider: answers in-process, without a socket, the same for the same request.
//!
//! The rule: the shapes are those of a real provider (details in `usage`, a usage chunk, `[DONE]`), the
//! content is a function of the request, and every output is bounded. It serves three ends: sandbox keys
//! ([`simulate_chat`], [`simulate_stream`], [`simulate_tool`]), trying the gateway without an account, and
//! tests, which ask for faults by directives ([`directives`]). It prices nothing.

pub mod directives;
pub mod reply;
pub mod stream;
pub mod tools;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use turnpike_core::money::Micros;

use crate::error::{Phase, UpstreamError};
use crate::openai::stream::{EventStream, Source};
use crate::openai::{ChatApi, Completion};
use crate::tool::ToolReply;
use directives::{Directives, Failure};
use reply::Reply;
use stream::SimulatedStream;

pub use tools::simulate_tool;

/// A simulated answer to a chat or text completion. Pure: directives that delay or fail are ignored.
pub fn simulate_chat(api: ChatApi, body: &Value) -> Completion {
    Reply::new(api, body).completion()
}

/// A simulated stream. Directives that delay or fail are ignored.
///
/// # Errors
/// None in practice: a simulated stream always has a first event.
pub async fn simulate_stream(
    api: ChatApi,
    body: &Value,
    keep_usage_chunk: bool,
) -> Result<EventStream, UpstreamError> {
    let stream = SimulatedStream::new(Reply::new(api, body), Duration::ZERO, None);
    EventStream::open(Source::Simulated(stream), keep_usage_chunk).await
}

/// The simulated provider.
#[derive(Debug, Default)]
pub(crate) struct Simulated {
    /// How many quotes were given, for prices that move.
    quotes: AtomicU64,
}

impl Simulated {
    pub(crate) async fn complete(&self, api: ChatApi, body: &[u8]) -> Result<Completion, UpstreamError> {
        let body = parse(body)?;
        let directives = Directives::of(&body);
        pause(directives.delay).await;
        fail(&directives)?;
        if directives.die_after.is_some() {
            return Err(DIED);
        }
        Ok(simulate_chat(api, &body))
    }

    pub(crate) async fn stream(
        &self,
        api: ChatApi,
        body: &[u8],
        keep_usage_chunk: bool,
    ) -> Result<EventStream, UpstreamError> {
        let body = parse(body)?;
        let directives = Directives::of(&body);
        if let Err(error) = fail(&directives) {
            pause(directives.delay).await;
            return Err(error);
        }
        let stream = SimulatedStream::new(Reply::new(api, &body), directives.delay, directives.die_after);
        EventStream::open(Source::Simulated(stream), keep_usage_chunk).await
    }

    pub(crate) async fn execute(&self, endpoint: &str, args: &Value) -> Result<ToolReply, UpstreamError> {
        pause(tools::delay(endpoint, args)).await;
        simulate_tool(endpoint, args)
    }

    pub(crate) fn quote(&self, endpoint: &str, args: &Value) -> Result<Micros, UpstreamError> {
        let earlier = self.quotes.fetch_add(1, Ordering::Relaxed);
        tools::quote(endpoint, args, earlier)
    }
}

pub(crate) const DIED: UpstreamError = UpstreamError::Interrupted {
    reason: "simulated death",
};

/// Waits; no timer is touched for nothing.
pub(crate) async fn pause(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

fn parse(body: &[u8]) -> Result<Value, UpstreamError> {
    serde_json::from_slice(body).map_err(|_malformed| status(400, None))
}

/// A refusal as a provider words it.
pub(crate) fn status(status: u16, retry_after: Option<Duration>) -> UpstreamError {
    let body = json!({"error": {"message": "simulated failure", "type": "simulated_error", "code": status}});
    UpstreamError::Status {
        status,
        retry_after,
        body: Bytes::from(body.to_string()),
    }
}

fn fail(directives: &Directives) -> Result<(), UpstreamError> {
    match directives.failure {
        None => Ok(()),
        Some(Failure::Status(code)) => Err(status(code, directives.retry_after)),
        Some(Failure::Timeout) => Err(UpstreamError::Timeout {
            phase: Phase::Headers,
        }),
        Some(Failure::Refused) => Err(UpstreamError::NotSent {
            reason: "simulated refusal",
        }),
        Some(Failure::Garbage) => Err(UpstreamError::bad("simulated garbage")),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
