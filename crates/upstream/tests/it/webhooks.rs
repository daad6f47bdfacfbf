//! Webhook attempts against destinations that behave, misbehave, and move.

mod hostile;
mod places;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use standardwebhooks::Webhook;
use turnpike_core::time::Timestamp;
use turnpike_upstream::webhook::{TRUNCATED, WebhookRequest};
use turnpike_upstream::{Attempt, Resolver, SystemResolver, WebhookSecret, WebhookSender, WebhookSettings};

use crate::stand_in::{StandIn, reply};

const ID: &str = "0192f0c8-0000-7000-8000-000000000001";
const BODY: &[u8] = br#"{"type":"credits.topup.completed", "n": 1.0}"#;

fn sender(allow_loopback: bool, timeout: Duration, resolver: Arc<dyn Resolver>) -> WebhookSender {
    WebhookSender::new(WebhookSettings {
        allow_loopback,
        timeout,
        resolver,
    })
    .unwrap()
}

/// A sender for stand-ins, patient enough for a busy machine.
fn local() -> WebhookSender {
    sender(true, Duration::from_secs(20), Arc::new(SystemResolver))
}

/// A sender that does not wait long.
fn hasty() -> WebhookSender {
    sender(true, Duration::from_millis(900), Arc::new(SystemResolver))
}

#[expect(clippy::disallowed_methods, reason = "a receiver reads the real clock")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp::from_millis(i64::try_from(since.unwrap().as_millis()).unwrap())
}

async fn send(sender: &WebhookSender, url: &str) -> Attempt {
    let body = Bytes::from_static(BODY);
    let secrets = [WebhookSecret::new([1; 32])];
    let request = WebhookRequest {
        url,
        id: ID,
        at: now(),
        body: &body,
        secrets: &secrets,
    };
    sender.send(&request).await
}

/// `(status, error, body)` of an attempt.
fn parts(attempt: &Attempt) -> (Option<u16>, Option<&str>, Option<&str>) {
    assert_eq!(attempt.succeeded(), attempt.error.is_none());
    (
        attempt.http_status,
        attempt.error,
        attempt.response_body.as_deref(),
    )
}

async fn answered(answer: Vec<u8>) -> Attempt {
    let stand_in = StandIn::answering(answer).await;
    send(&local(), &stand_in.url()).await
}

// Fault matrix 173
#[tokio::test]
async fn what_arrives_is_signed_by_every_secret_and_carries_nothing_else() {
    let answer = b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 2\r\n\r\nok".to_vec();
    let stand_in = StandIn::answering(answer).await;
    let sender = local();
    let body = Bytes::from_static(BODY);
    let secrets = [WebhookSecret::new([2; 32]), WebhookSecret::new([1; 32])];
    let url = format!("{}/hook?a=b", stand_in.url());
    for _ in 0..2 {
        let request = WebhookRequest {
            url: &url,
            id: ID,
            at: now(),
            body: &body,
            secrets: &secrets,
        };
        let attempt = sender.send(&request).await;
        assert_eq!(parts(&attempt), (Some(200), None, Some("ok")));
    }
    // Kept alive between the two.
    assert_eq!(stand_in.connections(), 1);
    for request in stand_in.requests() {
        let (head, received) = request.split_once("\r\n\r\n").unwrap();
        assert_eq!(received.as_bytes(), BODY);
        let mut lines = head.lines();
        assert_eq!(lines.next(), Some("POST /hook?a=b HTTP/1.1"));
        let fields: Vec<(&str, &str)> = lines.map(|line| line.split_once(": ").unwrap()).collect();
        let mut names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "accept-encoding",
                "content-length",
                "content-type",
                "host",
                "user-agent",
                "webhook-id",
                "webhook-signature",
                "webhook-timestamp",
            ]
        );
        for expected in [
            ("content-type", "application/json"),
            ("accept-encoding", "identity"),
            ("webhook-id", ID),
            ("host", stand_in.address()),
            (
                "user-agent",
                concat!("Turnpike-Webhooks/", env!("CARGO_PKG_VERSION")),
            ),
        ] {
            assert!(fields.contains(&expected), "{expected:?}");
        }
        let headers: HeaderMap = fields
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        for secret in &secrets {
            let receiver = Webhook::new(&secret.reveal()).unwrap();
            assert!(receiver.verify(received.as_bytes(), &headers).is_ok());
            assert!(receiver.verify(b"{}", &headers).is_err());
        }
        let stranger = Webhook::from_bytes(vec![3; 32]).unwrap();
        assert!(stranger.verify(received.as_bytes(), &headers).is_err());
    }
}

#[tokio::test]
async fn the_status_decides() {
    for status in [200, 201, 202, 204, 299] {
        let attempt = answered(reply(status, "text/plain", "")).await;
        assert_eq!(parts(&attempt), (Some(status), None, None));
    }
    let switched = b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n".to_vec();
    let attempt = answered(switched).await;
    assert_eq!(parts(&attempt), (Some(101), Some("status is not 2xx"), None));
    for status in [400, 404, 410, 429, 500, 503, 599] {
        let attempt = answered(reply(status, "text/plain", "sorry")).await;
        assert_eq!(
            parts(&attempt),
            (Some(status), Some("status is not 2xx"), Some("sorry"))
        );
        assert_eq!(attempt.is_gone(), status == 410);
        assert!(!format!("{attempt:?}").contains("sorry"));
    }
}

#[tokio::test]
async fn retry_after_is_told_of_failures_in_both_forms() {
    let head = |status: u16, value: &str| {
        format!("HTTP/1.1 {status} X\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n").into_bytes()
    };
    let attempt = answered(head(503, "7200")).await;
    assert_eq!(attempt.retry_after, Some(Duration::from_hours(2)));
    let attempt = answered(head(429, "Wed, 21 Oct 2015 07:28:00 GMT")).await;
    assert_eq!(attempt.retry_after, Some(Duration::ZERO));
    let attempt = answered(head(429, "Fri, 31 Dec 9999 23:59:59 GMT")).await;
    assert_eq!(attempt.retry_after, Some(Duration::from_hours(30 * 24)));
    for (status, value) in [(503, "later"), (200, "7200")] {
        assert_eq!(answered(head(status, value)).await.retry_after, None);
    }
}

// Fault matrix 176, 223
#[tokio::test]
async fn what_is_kept_of_an_answer_is_scrubbed() {
    let attempt = answered(reply(
        500,
        "text/plain",
        "key svc_sk_live_canary7f3acanary\0 refused",
    ))
    .await;
    assert_eq!(
        attempt.response_body.as_deref(),
        Some("key [redacted]\u{fffd} refused")
    );
    // The secret straddles what is kept.
    let long = format!("{} whsec_CANARYCANARYCANARYCANARY", "x".repeat(4060));
    let kept = answered(reply(500, "text/plain", &long))
        .await
        .response_body
        .unwrap();
    assert!(
        kept.ends_with(TRUNCATED) || kept.ends_with("[redacted]"),
        "{kept}"
    );
    assert!(!kept.contains("CANARY") && kept.len() <= 4096);
}

#[tokio::test]
async fn a_message_that_cannot_be_signed_is_not_sent() {
    let stand_in = StandIn::answering(reply(200, "text/plain", "")).await;
    let body = Bytes::from_static(BODY);
    let secrets = [WebhookSecret::new([1; 32])];
    for (id, secrets, error) in [
        (ID, &secrets[..0], "no signing secret"),
        ("a\r\nb", &secrets[..], "message id cannot stand in a header"),
    ] {
        let request = WebhookRequest {
            url: &stand_in.url(),
            id,
            at: now(),
            body: &body,
            secrets,
        };
        assert_eq!(parts(&local().send(&request).await), (None, Some(error), None));
        assert!(!format!("{request:?}").contains("credits"));
    }
    assert_eq!(stand_in.connections(), 0);
}

#[tokio::test]
async fn a_connection_that_died_in_the_pool_is_no_failure() {
    let stand_in = StandIn::answering_then_closing(reply(200, "text/plain", "ok")).await;
    let sender = local();
    for round in 0..30 {
        let attempt = send(&sender, &stand_in.url()).await;
        assert_eq!(parts(&attempt), (Some(200), None, Some("ok")), "{round}");
    }
    assert_eq!(stand_in.requests().len(), 30);
}

#[tokio::test]
async fn an_attempt_that_is_dropped_disturbs_no_other() {
    let silent = StandIn::answering(Vec::new()).await;
    let sender = local();
    for _ in 0..5 {
        let url = silent.url();
        let dropped = tokio::time::timeout(Duration::from_millis(50), send(&sender, &url)).await;
        assert!(dropped.is_err());
    }
    let good = StandIn::answering(reply(200, "text/plain", "")).await;
    assert!(send(&sender, &good.url()).await.succeeded());
}
