//! Calls that are answered at once: what is sent, and what becomes of every kind of answer.

use std::time::Duration;

use bytes::Bytes;
use turnpike_upstream::{Client, ClientSettings, Guard, Phase, Provider, ProviderKind, UpstreamError};

use crate::stand_in::{StandIn, json_answer, reply};
use crate::{CHAT, bad, body, complete, openai, settings};

// Fault matrix 222
#[tokio::test]
async fn a_request_carries_exactly_the_allowed_headers() {
    let stand_in = StandIn::answering(json_answer("{\"model\":\"m-2\",\"usage\":null}")).await;
    let answer = openai(&stand_in).complete(CHAT, body()).await.unwrap();
    assert_eq!(answer.body.as_ref(), b"{\"model\":\"m-2\",\"usage\":null}");
    assert_eq!((answer.usage, answer.model.as_deref()), (None, Some("m-2")));
    let seen = stand_in.requests();
    let (head, sent) = seen[0].split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<String> = head.split("\r\n").map(str::to_owned).collect();
    assert_eq!(lines.remove(0), "POST /v1/chat/completions HTTP/1.1");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "accept-encoding: identity".to_owned(),
            "accept: application/json".to_owned(),
            "authorization: Bearer sk-canary-1".to_owned(),
            "content-length: 13".to_owned(),
            "content-type: application/json".to_owned(),
            format!("host: {}", stand_in.address()),
            concat!("user-agent: turnpike/", env!("CARGO_PKG_VERSION")).to_owned(),
        ]
    );
    assert_eq!(sent, "{\"model\":\"m\"}");
}

// Fault matrix 83
#[tokio::test]
async fn a_keep_alive_connection_that_dies_is_never_retried_on_the_wire() {
    // The first request is answered; the second one, on the same connection, is read and then cut off.
    let stand_in = StandIn::answering_once_then_cutting(json_answer("{}")).await;
    let provider = openai(&stand_in);
    provider.complete(CHAT, body()).await.unwrap();
    let error = provider.complete(CHAT, body()).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Interrupted { .. }), "{error}");
    assert!(error.sent() && error.outcome_unknown());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((stand_in.requests().len(), stand_in.connections()), (2, 1));
}

// Fault matrix 83
#[tokio::test]
async fn a_connection_found_closed_costs_no_call_twice() {
    let stand_in = StandIn::answering_then_closing(json_answer("{}")).await;
    let provider = openai(&stand_in);
    let (mut answered, mut unsent) = (0, 0);
    for _ in 0..20 {
        match provider.complete(CHAT, body()).await {
            Ok(_) => answered += 1,
            Err(error) if !error.sent() => unsent += 1,
            Err(error) => assert!(matches!(error, UpstreamError::Interrupted { .. }), "{error}"),
        }
    }
    let seen = stand_in.requests().len();
    assert!(
        answered >= 10 && seen >= answered && seen <= 20 - unsent,
        "{answered} {unsent} {seen}"
    );
}

#[tokio::test]
async fn connections_are_kept_and_used_again() {
    let stand_in = StandIn::answering(json_answer("{}")).await;
    let provider = openai(&stand_in);
    for _ in 0..5 {
        provider.complete(CHAT, body()).await.unwrap();
    }
    assert_eq!((stand_in.requests().len(), stand_in.connections()), (5, 1));
}

// Fault matrix 80, 84, 85, 86
#[tokio::test]
async fn unusable_answers_are_refused() {
    let redirect = "HTTP/1.1 307 T\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
    let wide = format!("HTTP/1.1 200 OK\r\nset-cookie: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}content-length: 2\r\n\r\n{{}}",
        "x-a: b\r\n".repeat(1000)
    );
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(100_001));
    for (answer, reason) in [
        (json_answer(""), "empty body"),
        (json_answer("{\"usage\":"), "malformed JSON"),
        (json_answer("{} {}"), "malformed JSON"),
        (json_answer("[1]"), "body is not a JSON object"),
        (json_answer("null"), "body is not a JSON object"),
        (
            reply(200, "text/html", "<html></html>"),
            "content type is not JSON",
        ),
        (reply(201, "application/json", "{}"), "unexpected status"),
        (redirect.as_bytes().to_vec(), "redirect"),
        (
            reply(200, "application/json\r\ncontent-encoding: gzip", "\u{1f}8"),
            "encoded body",
        ),
        (wide.into_bytes(), "response head too large"),
        (many.into_bytes(), "response head too large"),
        (b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(), "malformed response head"),
        (json_answer(&large), "body too large"),
    ] {
        assert_eq!(complete(answer).await, bad(reason), "{reason}");
    }
    let mut invalid = json_answer("{\"a\":\"..\"}");
    let inside = invalid.len() - 3;
    invalid[inside] = 0xff;
    assert_eq!(complete(invalid).await, bad("body is not UTF-8"));
}

// Fault matrix 86
#[tokio::test]
async fn a_body_without_an_announced_length_is_cut_at_the_cap() {
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\":\"".to_vec();
    answer.resize(500_000, b'x');
    assert_eq!(complete(answer).await, bad("body too large"));
}

// Fault matrix 80
#[tokio::test]
async fn framing_that_lies_is_an_interruption() {
    for framing in [
        "content-length: 50\r\n\r\n{}",
        "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\nzz\r\n",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{framing}");
        let stand_in = StandIn::answering_then_closing(answer.into_bytes()).await;
        let error = openai(&stand_in).complete(CHAT, body()).await.unwrap_err();
        assert!(matches!(error, UpstreamError::Interrupted { .. }), "{error}");
    }
}

// Fault matrix 76, 77, 88
#[tokio::test]
async fn a_refusal_keeps_status_and_a_bounded_body() {
    let kind = "application/json\r\nretry-after: 99999";
    let expected = UpstreamError::Status {
        status: 429,
        retry_after: Some(Duration::from_mins(1)),
        body: Bytes::from_static(b"{\"e\":1}"),
    };
    assert_eq!(complete(reply(429, kind, "{\"e\":1}")).await, expected);
    let long = reply(500, "text/plain", &"x".repeat(90_000));
    let UpstreamError::Status { status, body, .. } = complete(long).await else {
        panic!("not a status")
    };
    assert_eq!((status, body.len()), (500, 64 * 1024));
}

// Fault matrix 78
#[tokio::test]
async fn what_cannot_be_reached_was_not_sent() {
    let closed = StandIn::closed_port().await;
    for (base, reason) in [
        (format!("http://{closed}"), "connection refused"),
        ("http://no-such-host.invalid".to_owned(), "name resolution failed"),
    ] {
        let mut settings = settings(ProviderKind::OpenAi, base);
        settings.connect_timeout = Duration::from_secs(20);
        settings.header_timeout = Duration::from_secs(20);
        settings.total_timeout = Duration::from_secs(20);
        let error = Provider::new(&settings)
            .unwrap()
            .complete(CHAT, body())
            .await
            .unwrap_err();
        assert_eq!(error, UpstreamError::NotSent { reason });
        assert!(!error.sent());
    }
}

// Fault matrix 78
#[tokio::test]
async fn certificates_are_checked() {
    let self_signed = StandIn::tls().await;
    let plain = StandIn::answering(b"not TLS at all, not even a bit of it".to_vec()).await;
    for (address, reason) in [
        (self_signed.address(), "TLS certificate not accepted"),
        (plain.address(), "TLS handshake failed"),
    ] {
        let provider = Provider::new(&settings(ProviderKind::OpenAi, format!("https://{address}"))).unwrap();
        let error = provider.complete(CHAT, body()).await.unwrap_err();
        assert_eq!(error, UpstreamError::NotSent { reason });
    }
    assert!(self_signed.requests().is_empty());
}

// Fault matrix 79
#[tokio::test]
async fn every_phase_has_a_timeout() {
    let silent = StandIn::answering(Vec::new()).await;
    let error = openai(&silent).complete(CHAT, body()).await.unwrap_err();
    assert_eq!(
        error,
        UpstreamError::Timeout {
            phase: Phase::Headers
        }
    );
    assert!(error.sent() && error.is_timeout());
    let half = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{".to_vec();
    assert_eq!(
        complete(half).await,
        UpstreamError::Timeout { phase: Phase::Body }
    );
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n".to_vec();
    let drip = StandIn::dripping(head, b" ".repeat(50), Duration::from_millis(100)).await;
    let error = openai(&drip).complete(CHAT, body()).await.unwrap_err();
    assert_eq!(error, UpstreamError::Timeout { phase: Phase::Total });
    // A TLS handshake that never goes on is a connect timeout: nothing was sent.
    let base = format!("https://{}", silent.address());
    let provider = Provider::new(&settings(ProviderKind::OpenAi, base)).unwrap();
    let error = provider.complete(CHAT, body()).await.unwrap_err();
    assert_eq!(
        error,
        UpstreamError::NotSent {
            reason: "connecting timed out"
        }
    );
}

// Fault matrix 165, 166
#[tokio::test]
async fn a_public_guard_refuses_names_that_lead_inside() {
    let stand_in = StandIn::answering(json_answer("{}")).await;
    let client = Client::new(ClientSettings {
        guard: Guard::Public,
        ..ClientSettings::default()
    })
    .unwrap();
    for host in [
        "localhost",
        "localhost.",
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
    ] {
        let uri = format!("http://{host}:{}/", stand_in.port()).parse().unwrap();
        let sent = client
            .send(http::Method::GET, uri, http::HeaderMap::new(), Bytes::new())
            .await;
        assert!(matches!(sent, Err(UpstreamError::NotSent { .. })), "{host}");
    }
    assert_eq!(stand_in.connections(), 0);
}
