//! What can go wrong with a call to an upstream.
//!
//! The rule: a variant says whether the request may have reached the upstream, and no text in here comes
//! from the upstream or from a secret, so that errors can be logged as they are. The one foreign part, the
//! body of a refused call, is carried aside and stays out of `Display` and `Debug`. Which status the client
//! sees is decided by the server.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// Which timeout ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the response head.
    Headers,
    /// Waiting for the next bytes of the body, or for the first event of a stream.
    Body,
    /// The whole call.
    Total,
}

/// Why a call to an upstream failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// No byte of the request was written: trying again is safe.
    #[error("the request was not sent: {reason}")]
    NotSent {
        /// A fixed description.
        reason: &'static str,
    },
    /// The request was sent and the answer did not come in time: the outcome is unknown.
    #[error("the upstream did not answer in time ({phase:?})")]
    Timeout {
        /// Which timeout ran out.
        phase: Phase,
    },
    /// The upstream answered with a status that is no success.
    #[error("the upstream answered {status}")]
    Status {
        /// The HTTP status, 400 or above.
        status: u16,
        /// The upstream's `retry-after`, at most [`crate::headers::MAX_RETRY_AFTER`].
        retry_after: Option<Duration>,
        /// The answer's body, cut at [`crate::client::MAX_ERROR_BODY`]. Foreign text: never log it.
        body: Bytes,
    },
    /// The upstream answered with something that cannot be used.
    #[error("the upstream's answer is unusable: {reason}")]
    BadResponse {
        /// A fixed description.
        reason: &'static str,
    },
    /// The connection died after the request was sent: the outcome is unknown.
    #[error("the connection to the upstream broke: {reason}")]
    Interrupted {
        /// A fixed description.
        reason: &'static str,
    },
}

impl UpstreamError {
    /// Whether the upstream may have seen the request. `false` means that a retry cannot be a second
    /// dispatch.
    pub fn sent(&self) -> bool {
        match self {
            Self::NotSent { .. } => false,
            Self::Timeout { .. }
            | Self::Status { .. }
            | Self::BadResponse { .. }
            | Self::Interrupted { .. } => true,
        }
    }

    /// Whether a timeout ran out after the request was sent.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    pub(crate) const REDIRECT: &str = "redirect";

    /// Whether the upstream may have carried out (and bill) the request: its answer did not come, or cannot be
    /// used. An error status and a redirect say that it did not.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Interrupted { .. } => true,
            Self::BadResponse { reason } => *reason != Self::REDIRECT,
            Self::NotSent { .. } | Self::Status { .. } => false,
        }
    }

    pub(crate) const fn bad(reason: &'static str) -> Self {
        Self::BadResponse { reason }
    }
}

impl fmt::Debug for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamError({self})")
    }
}

/// Why a stream that had begun ended before its `[DONE]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// A line or an event above the cap of [`crate::sse::MAX_LINE_BYTES`].
    #[error("the upstream sent an event that is too large")]
    TooLarge,
    /// Nothing arrived for the idle timeout.
    #[error("the upstream stopped sending")]
    Stalled,
    /// The upstream closed without `[DONE]`, or the connection broke.
    #[error("the upstream closed the stream early")]
    Died,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fault matrix 224
    #[test]
    fn the_body_of_a_refused_call_is_in_no_text() {
        let error = UpstreamError::Status {
            status: 500,
            retry_after: None,
            body: Bytes::from_static(b"canary-7f3a"),
        };
        assert!(!format!("{error} {error:?} {error:#?}").contains("canary"));
    }
}
