//! Streams: bytes unchanged, and every way to go wrong.

use std::time::Duration;

use turnpike_upstream::{Phase, StreamFault, StreamSummary, UpstreamError};

use crate::stand_in::{StandIn, json_answer, reply};
use crate::{CHAT, bad, body, openai};

const FIRST: &str = "data: {\"model\":\"m-3\",\"choices\":[{\"delta\":{\"content\":\"h\u{e9}\"}}]}\r\n\r\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n";

fn sse(events: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}").into_bytes()
}

async fn read_all(stand_in: &StandIn, keep: bool) -> (Vec<u8>, Option<StreamFault>, StreamSummary) {
    let mut stream = openai(stand_in).stream(CHAT, body(), keep).await.unwrap();
    let (mut bytes, mut fault) = (Vec::new(), None);
    while let Some(part) = stream.next().await {
        match part {
            Ok(part) => bytes.extend_from_slice(&part),
            Err(end) => assert_eq!(fault.replace(end), None),
        }
    }
    (bytes, fault, stream.summary())
}

// Fault matrix 62, 69, 71, 74
#[tokio::test]
async fn a_stream_is_forwarded_verbatim_up_to_its_end_marker() {
    let late = "data: late\n\n";
    let text = format!(
        "\u{feff}: hello\n\n{FIRST}event: x\rdata: {{}}\r\r{USAGE}data: [DONE]\n\n{}",
        late.repeat(500)
    );
    for keep in [true, false] {
        for bytewise in [true, false] {
            let stand_in = if bytewise {
                StandIn::dripping(sse(""), text.clone().into_bytes(), Duration::ZERO).await
            } else {
                StandIn::answering(sse(&text)).await
            };
            let (bytes, fault, summary) = read_all(&stand_in, keep).await;
            let mut expected = text.replace(late, "");
            if !keep {
                expected = expected.replace(USAGE, "");
            }
            assert_eq!(String::from_utf8(bytes).unwrap(), expected);
            assert_eq!((fault, summary.done), (None, true));
            assert_eq!((summary.events, summary.delivered_bytes), (3, 3));
            assert_eq!(
                summary.usage.map(|usage| (usage.input, usage.output)),
                Some((3, 2))
            );
            assert_eq!(summary.model.as_deref(), Some("m-3"));
        }
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
        assert_eq!(String::from_utf8(bytes).unwrap(), kept);
        assert_eq!((end, summary.done, summary.usage), (Some(fault), false, None));
        assert_eq!(summary.provider_error, kept.contains("error"));
    }
}

#[tokio::test]
async fn an_end_marker_without_its_blank_line_is_an_end() {
    let stand_in = StandIn::answering_then_closing(sse(&format!("{FIRST}data: [DONE]"))).await;
    let (bytes, fault, summary) = read_all(&stand_in, false).await;
    assert!(bytes.ends_with(b"data: [DONE]") && fault.is_none() && summary.done);
}

#[tokio::test]
async fn a_finished_stream_leaves_its_connection_for_the_next_call() {
    let text = format!("{FIRST}data: [DONE]\n\n");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = format!("{head}{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
    let stand_in = StandIn::answering(answer.into_bytes()).await;
    let provider = openai(&stand_in);
    for _ in 0..3 {
        let mut stream = provider.stream(CHAT, body(), false).await.unwrap();
        while stream.next().await.is_some() {}
        drop(stream);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((stand_in.requests().len(), stand_in.connections()), (3, 1));
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
