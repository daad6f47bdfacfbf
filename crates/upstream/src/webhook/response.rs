//! What is kept of a destination's answer: a few kilobytes of scrubbed text, and when to come back.
//!
//! The rule: the head has decided already, so that whatever happens here changes no outcome; reading stops at
//! a bound in bytes and at one in time, and nothing is ever decoded.

use std::time::{Duration, UNIX_EPOCH};

use http::header::{HeaderMap, RETRY_AFTER};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::scrub;
use crate::client::next_part;
use crate::headers;

/// How much of a body is read: more than is kept, so that nothing is cut before it was scrubbed.
const READ_BYTES: usize = 2 * scrub::MAX_BYTES;
/// Longest `retry-after` that is told, so that nobody overflows with it.
pub const MAX_RETRY_AFTER: Duration = Duration::from_hours(30 * 24);

/// The text of a body, read until `end`. Dropping the rest closes the connection.
pub(super) async fn text(headers: &HeaderMap, mut body: Incoming, end: Instant) -> Option<String> {
    // INVARIANT: an encoded body is not read, so that no bomb goes off.
    if headers::is_encoded(headers) {
        return None;
    }
    let mut raw = Vec::new();
    // Waiting for one part is bounded by `end`, too.
    let idle = end.saturating_duration_since(Instant::now());
    let whole = loop {
        match next_part(&mut body, idle, Some(end)).await {
            Ok(Some(part)) => {
                let room = READ_BYTES.saturating_sub(raw.len());
                raw.extend(part.iter().take(room));
                if part.len() > room {
                    break false;
                }
            }
            Ok(None) => break true,
            Err(_broken_or_late) => break false,
        }
    };
    if raw.is_empty() {
        return None;
    }
    Some(scrub::stored(&raw, whole))
}

/// `retry-after` from now, in either form of RFC 9110 (10.2.3); what is neither is ignored. A past date is now.
pub(super) fn retry_after(headers: &HeaderMap, now_unix_seconds: i64) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = if let Some(seconds) = headers::delay_seconds(value) {
        seconds
    } else {
        let date = httpdate::parse_http_date(value).ok()?;
        let date = date.duration_since(UNIX_EPOCH).ok()?.as_secs();
        date.saturating_sub(u64::try_from(now_unix_seconds).unwrap_or(0))
    };
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn both_forms_of_retry_after_are_read_and_nonsense_is_ignored() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = 784_111_777;
        let month = MAX_RETRY_AFTER.as_secs();
        for (value, expected) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 120 ", Some(120)),
            ("99999999999999999999999", Some(month)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1983 08:49:37 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(month)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("Sun, 99 Nov 1994 08:50:37 GMT", None),
            ("1994-11-06T08:50:37Z", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            assert_eq!(
                retry_after(&headers, now),
                expected.map(Duration::from_secs),
                "{value}"
            );
        }
        let raw = HeaderValue::from_bytes(b"\xff").unwrap();
        assert_eq!(
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, raw)]), now),
            None
        );
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
