//! Which headers go out and which answers are looked at: two allow-lists.
//!
//! The rule: a request carries exactly the headers set here, nothing of the client's; of a response only
//! `content-type`, `content-encoding`, `content-length` and `retry-after` are read and none is passed on.
//! What our own responses carry is the server's business.

use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue,
    RETRY_AFTER, USER_AGENT,
};

use crate::provider::BuildError;
use crate::secret::Secret;

/// Longest `retry-after` that is believed.
pub const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("turnpike/", env!("CARGO_PKG_VERSION")));

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    Json,
    EventStream,
}

/// The `authorization` value of a provider, marked sensitive.
pub(crate) fn bearer(secret: &Secret) -> Result<HeaderValue, BuildError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", secret.expose()))
        .map_err(|_invalid| BuildError::ApiKey)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A secret as the value of a header of its own, marked sensitive.
pub(crate) fn plain(secret: &Secret) -> Result<HeaderValue, BuildError> {
    let mut value = HeaderValue::from_str(secret.expose()).map_err(|_invalid| BuildError::ApiKey)?;
    value.set_sensitive(true);
    Ok(value)
}

/// All headers of a request except `host` and `content-length`, which the connection adds.
pub(crate) fn request_headers(accept: Accept, with_body: bool, auth: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    if with_body {
        headers.insert(CONTENT_TYPE, JSON);
    }
    let accepted = match accept {
        Accept::Json => JSON,
        Accept::EventStream => EVENT_STREAM,
    };
    headers.insert(ACCEPT, accepted);
    headers.insert(ACCEPT_ENCODING, IDENTITY);
    headers.insert(USER_AGENT, AGENT);
    if let Some(auth) = auth {
        headers.insert(AUTHORIZATION, auth.clone());
    }
    headers
}

/// Bytes of a head's fields as they were on the wire.
pub(crate) fn size(headers: &HeaderMap) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum()
}

/// The media type, without parameters.
fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim())
}

/// Whether the answer says it is JSON (`application/json` or a `+json` type).
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|kind| {
        kind.eq_ignore_ascii_case("application/json")
            || (kind.len() > 5
                && kind
                    .get(kind.len() - 5..)
                    .is_some_and(|end| end.eq_ignore_ascii_case("+json")))
    })
}

/// Whether the answer says it is an event stream.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|kind| kind.eq_ignore_ascii_case("text/event-stream"))
}

/// Whether the body is encoded in spite of `accept-encoding: identity`.
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
}

/// `retry-after` in seconds, bounded. The date form needs a clock and is ignored.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = delay_seconds(headers.get(RETRY_AFTER)?.to_str().ok()?)?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// The `delay-seconds` form of `retry-after` (RFC 9110, 10.2.3), unbounded.
pub(crate) fn delay_seconds(value: &str) -> Option<u64> {
    let text = value.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // More digits than u64 holds is absurd, not absent.
    Some(text.parse::<u64>().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: http::header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    // Fault matrix 76
    #[test]
    fn an_absurd_retry_after_is_bounded() {
        for (value, expected) in [
            ("7", Some(7)),
            ("0", Some(0)),
            ("999999", Some(60)),
            ("99999999999999999999999999", Some(60)),
            ("-1", None),
            ("1e9", None),
            ("", None),
            ("Wed, 21 Oct 2065 07:28:00 GMT", None),
        ] {
            assert_eq!(
                retry_after(&with(RETRY_AFTER, value)),
                expected.map(Duration::from_secs),
                "{value}"
            );
        }
    }

    #[test]
    fn media_types_are_compared_without_parameters_and_case() {
        for (value, json, events) in [
            ("application/json", true, false),
            ("Application/JSON; charset=utf-8", true, false),
            ("application/problem+json", true, false),
            ("text/event-stream;charset=UTF-8", false, true),
            ("text/html", false, false),
            ("application/jsonx", false, false),
            ("+json", false, false),
        ] {
            let headers = with(CONTENT_TYPE, value);
            assert_eq!(
                (is_json(&headers), is_event_stream(&headers)),
                (json, events),
                "{value}"
            );
        }
    }

    // Fault matrix 86
    #[test]
    fn any_encoding_but_identity_counts_as_encoded() {
        assert!(!is_encoded(&HeaderMap::new()));
        assert!(!is_encoded(&with(CONTENT_ENCODING, "Identity")));
        for value in ["gzip", "br", "identity, gzip", ""] {
            assert!(is_encoded(&with(CONTENT_ENCODING, value)), "{value}");
        }
    }
}
