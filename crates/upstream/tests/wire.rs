//! The client against raw sockets that misbehave.

mod stand_in;

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use stand_in::{StandIn, json_answer, reply};
use turnpike_upstream::{
    ArgsIn, ChatApi, Client, ClientSettings, Guard, HttpEndpoint, Phase, Provider, ProviderKind,
    ProviderSettings, QuoteSettings, Secret, StreamFault, ToolMethod, UpstreamError,
};

const CHAT: ChatApi = ChatApi::ChatCompletions;

fn settings(kind: ProviderKind, base_url: String) -> ProviderSettings {
    ProviderSettings {
        id: "p".to_owned(),
        kind,
        base_url,
        api_key: Some(Secret::new("sk-canary-1")),
        connect_timeout: Duration::from_millis(500),
        header_timeout: Duration::from_millis(400),
        idle_timeout: Duration::from_millis(300),
        total_timeout: Duration::from_millis(900),
        max_response_bytes: 100_000,
        ..ProviderSettings::default()
    }
}

fn openai(stand_in: &StandIn) -> Provider {
    Provider::new(&settings(ProviderKind::OpenAi, format!("{}/v1", stand_in.url()))).unwrap()
}

fn body() -> Bytes {
    Bytes::from_static(b"{\"model\":\"m\"}")
}

async fn complete(answer: Vec<u8>) -> UpstreamError {
    let stand_in = StandIn::answering(answer).await;
    openai(&stand_in).complete(CHAT, body()).await.unwrap_err()
}

fn bad(reason: &'static str) -> UpstreamError {
    UpstreamError::BadResponse { reason }
}

// Fault matrix 222
#[tokio::test]
async fn a_request_carries_exactly_the_allowed_headers() {
    let stand_in = StandIn::answering(json_answer("{\"model\":\"m-2\",\"usage\":null}")).await;
    let answer = openai(&stand_in).complete(CHAT, body()).await.unwrap();
    assert_eq!(
        (answer.body.as_ref(), answer.usage, answer.model.as_deref()),
        (
            b"{\"model\":\"m-2\",\"usage\":null}".as_slice(),
            None,
            Some("m-2")
        )
    );
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
async fn an_idle_connection_that_was_closed_costs_no_call_twice() {
    let mut answer = json_answer("{}");
    answer.extend_from_slice(b"");
    let stand_in = StandIn::answering_then_closing(answer).await;
    let provider = openai(&stand_in);
    let mut answered = 0;
    for _ in 0..20 {
        match provider.complete(CHAT, body()).await {
            Ok(_) => answered += 1,
            // Found dead before or after writing: either way it is said, and nothing is repeated.
            Err(error) => assert!(matches!(
                error,
                UpstreamError::NotSent { .. } | UpstreamError::Interrupted { .. }
            )),
        }
    }
    assert!(answered >= 10);
    assert!(stand_in.requests().len() <= 20 && stand_in.requests().len() >= answered);
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
    let lines = "x-a: b\r\n".repeat(1000);
    let many = format!("HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\n{{}}");
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
        (
            json_answer(&format!("{{\"a\":\"{}\"}}", "x".repeat(100_001))),
            "body too large",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
                .to_vec(),
            "malformed response body",
        ),
    ] {
        assert_eq!(complete(answer).await, bad(reason), "{reason}");
    }
    let mut invalid = json_answer("{\"a\":\"..\"}");
    let last = invalid.len() - 3;
    invalid[last] = 0xff;
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
async fn a_length_that_lies_is_an_interruption() {
    let answer =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{}".to_vec();
    let stand_in = StandIn::answering_then_closing(answer).await;
    let error = openai(&stand_in).complete(CHAT, body()).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Interrupted { .. }), "{error}");
}

// Fault matrix 76, 77, 88
#[tokio::test]
async fn a_refusal_keeps_status_and_a_bounded_body() {
    let head = "application/json\r\nretry-after: 99999";
    let UpstreamError::Status {
        status,
        retry_after,
        body,
    } = complete(reply(429, head, "{\"e\":1}")).await
    else {
        panic!("not a status")
    };
    assert_eq!(
        (status, retry_after, body.as_ref()),
        (429, Some(Duration::from_secs(60)), b"{\"e\":1}".as_slice())
    );
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
        let provider = Provider::new(&settings(ProviderKind::OpenAi, base)).unwrap();
        let error = provider.complete(CHAT, body()).await.unwrap_err();
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
        (self_signed.address().to_owned(), "TLS certificate not accepted"),
        (plain.address().to_owned(), "TLS handshake failed"),
    ] {
        let provider = Provider::new(&settings(ProviderKind::OpenAi, format!("https://{address}"))).unwrap();
        assert_eq!(
            provider.complete(CHAT, body()).await.unwrap_err(),
            UpstreamError::NotSent { reason }
        );
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
    let provider = Provider::new(&settings(
        ProviderKind::OpenAi,
        format!("https://{}", silent.address()),
    ))
    .unwrap();
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

fn sse(events: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}").into_bytes()
}

async fn read_all(
    stand_in: &StandIn,
    keep: bool,
) -> (Vec<u8>, Option<StreamFault>, turnpike_upstream::StreamSummary) {
    let mut stream = openai(stand_in).stream(CHAT, body(), keep).await.unwrap();
    let (mut bytes, mut fault) = (Vec::new(), None);
    while let Some(part) = stream.next().await {
        match part {
            Ok(part) => bytes.extend_from_slice(&part),
            Err(end) => fault = Some(end),
        }
    }
    (bytes, fault, stream.summary())
}

const FIRST: &str = "data: {\"model\":\"m-3\",\"choices\":[{\"delta\":{\"content\":\"h\u{e9}\"}}]}\r\n\r\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n";

// Fault matrix 62, 69, 71, 74
#[tokio::test]
async fn a_stream_is_forwarded_verbatim_up_to_its_end_marker() {
    let text =
        format!("\u{feff}: hello\n\n{FIRST}event: x\rdata: {{}}\r\r{USAGE}data: [DONE]\n\ndata: late\n\n");
    for keep in [true, false] {
        let stand_in = StandIn::dripping(sse(""), text.clone().into_bytes(), Duration::ZERO).await;
        let (bytes, fault, summary) = read_all(&stand_in, keep).await;
        let mut expected = text.replace("data: late\n\n", "");
        if !keep {
            expected = expected.replace(USAGE, "");
        }
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        assert_eq!(
            (fault, summary.done, summary.events, summary.delivered_bytes),
            (None, true, 3, 3)
        );
        assert_eq!(
            summary.usage.map(|usage| (usage.input, usage.output)),
            Some((3, 2))
        );
        assert_eq!(summary.model.as_deref(), Some("m-3"));
    }
}

// Fault matrix 65, 66, 68, 70, 73
#[tokio::test]
async fn a_stream_that_goes_wrong_says_how_once() {
    let huge = format!("{FIRST}data: {}\n\n", "x".repeat(1024 * 1024));
    let endless = format!("{FIRST}{}", "x".repeat(2 * 1024 * 1024));
    let partial = format!("{FIRST}data: {{\"choi");
    let error = format!("{FIRST}data: {{\"error\":{{\"message\":\"overloaded\"}}}}\n\n");
    for (text, close, fault, kept) in [
        (huge, true, StreamFault::TooLarge, FIRST.to_owned()),
        (endless, false, StreamFault::TooLarge, FIRST.to_owned()),
        (partial, true, StreamFault::Died, FIRST.to_owned()),
        (error.clone(), true, StreamFault::Died, error),
        (FIRST.to_owned(), false, StreamFault::Stalled, FIRST.to_owned()),
    ] {
        let stand_in = if close {
            StandIn::answering_then_closing(sse(&text)).await
        } else {
            StandIn::answering(sse(&text)).await
        };
        let (bytes, end, summary) = read_all(&stand_in, false).await;
        assert_eq!(
            (String::from_utf8(bytes).unwrap(), end, summary.done),
            (kept.clone(), Some(fault), false)
        );
        assert_eq!(
            (summary.provider_error, summary.usage),
            (kept.contains("error"), None)
        );
    }
}

#[tokio::test]
async fn an_end_marker_without_its_blank_line_is_an_end() {
    let stand_in = StandIn::answering_then_closing(sse(&format!("{FIRST}data: [DONE]"))).await;
    let (bytes, fault, summary) = read_all(&stand_in, false).await;
    assert!(bytes.ends_with(b"data: [DONE]") && fault.is_none() && summary.done);
}

// Fault matrix 67, 75
#[tokio::test]
async fn what_fails_before_the_first_event_is_an_ordinary_error() {
    for (answer, expected) in [
        (json_answer("{}"), bad("content type is not an event stream")),
        (
            reply(200, "text/html", "<html>"),
            bad("content type is not an event stream"),
        ),
        (sse(""), bad("stream without an event")),
        (sse(": ping\n\n"), bad("stream without an event")),
        (sse("data: [DONE]\n\n"), bad("stream without an event")),
        (
            sse("data: {\"error\":{\"message\":\"no\"}}\n\n"),
            bad("error event before any content"),
        ),
        (sse(&"x".repeat(1_100_000)), bad("event too large")),
    ] {
        let stand_in = StandIn::answering_then_closing(answer).await;
        assert_eq!(
            openai(&stand_in).stream(CHAT, body(), false).await.unwrap_err(),
            expected
        );
    }
    let refused = StandIn::answering(reply(503, "application/json", "{}")).await;
    let error = openai(&refused).stream(CHAT, body(), false).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Status { status: 503, .. }));
    let stalled = StandIn::answering(sse("")).await;
    let error = openai(&stalled).stream(CHAT, body(), false).await.unwrap_err();
    assert_eq!(error, UpstreamError::Timeout { phase: Phase::Body });
}

#[tokio::test]
async fn tools_are_called_over_http_and_quoted() {
    let stand_in = StandIn::answering(json_answer("{\"price\":{\"usd\":\"0.0125\"}}")).await;
    let provider = Provider::new(&settings(ProviderKind::Http, format!("{}/api", stand_in.url()))).unwrap();
    let mut spec = HttpEndpoint {
        method: ToolMethod::Post,
        path: "/users/{id}/notes".to_owned(),
        args_in: ArgsIn::Body,
        quote: Some(QuoteSettings {
            path: "/quote".to_owned(),
            price_pointer: "/price/usd".to_owned(),
        }),
    };
    let args = json!({"id": "a/b", "q": "x y"});
    let reply = provider.execute("notes", Some(&spec), &args).await.unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&reply.body).unwrap()["price"]["usd"],
        "0.0125"
    );
    spec.method = ToolMethod::Get;
    provider.execute("notes", Some(&spec), &args).await.unwrap();
    assert_eq!(
        provider.quote("notes", Some(&spec), &args).await.unwrap().get(),
        12_500
    );
    let seen = stand_in.requests();
    let (first, second, third) = (&seen[0], &seen[1], &seen[2]);
    assert!(
        first.starts_with("POST /api/users/a%2Fb/notes HTTP/1.1\r\n") && first.ends_with("{\"q\":\"x y\"}")
    );
    assert!(second.starts_with("GET /api/users/a%2Fb/notes?q=x%20y HTTP/1.1\r\n"));
    assert!(!second.contains("content-type") && !second.contains("content-length"));
    assert!(third.starts_with("POST /api/quote ") && third.ends_with("{\"id\":\"a/b\",\"q\":\"x y\"}"));
    assert_eq!(provider.calls(), 2);
}

// Fault matrix 80
#[tokio::test]
async fn a_tool_reply_is_valid_json_or_an_error() {
    let spec = HttpEndpoint {
        path: "/x".to_owned(),
        ..HttpEndpoint::default()
    };
    for (answer, ok) in [
        (json_answer("[1]"), true),
        (reply(204, "text/plain", ""), true),
        (json_answer("{"), false),
        (json_answer(""), false),
        (reply(200, "text/html", "<p>"), false),
        (reply(404, "application/json", "{}"), false),
    ] {
        let stand_in = StandIn::answering(answer).await;
        let provider = Provider::new(&settings(ProviderKind::Http, stand_in.url())).unwrap();
        let reply = provider.execute("x", Some(&spec), &json!({})).await;
        assert_eq!(reply.is_ok(), ok, "{reply:?}");
    }
}
