//! What a provider can do wrong, and what it costs the customer: nothing, or at most what was authorised.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::upstream::{answer, completion, sse_bytes, tokens};
use crate::harness::{Setup, Site, Step, Store, TOOL, chat, chat_stream, micros, receipt};
use crate::on_both_stores;

on_both_stores!(
    a_refusal_of_the_provider_costs_nothing,
    the_providers_complaint_about_a_request_reaches_the_caller,
    a_provider_that_cannot_be_reached_leaves_the_key_free,
    a_timeout_is_a_loss_of_the_operator_only,
    an_unusable_answer_costs_the_customer_nothing,
    usage_that_cannot_be_costs_the_hold_and_is_recorded,
    a_dead_pooled_connection_never_sends_a_call_twice,
    an_endless_answer_is_cut,
);

/// Nothing was charged, nothing is held, and nothing but the grant stands in the ledger.
pub async fn untouched(site: &Site) {
    assert_eq!(site.settled().await, micros("10"));
    assert_eq!(site.ledger().lines().count(), 1);
}

/// The customer paid nothing and nothing is held; what the provider may bill is the operator's loss.
async fn costs_the_operator(site: &Site, calls: i64) {
    assert_eq!(site.settled().await, micros("10"));
    assert_eq!(
        site.database
            .number("SELECT COUNT(*) FROM drifts WHERE loss > 0")
            .await,
        calls
    );
    assert_eq!(site.ledger().lines().count(), 1 + usize::try_from(calls).unwrap());
}

// Fault matrix 76, 77, 88
async fn a_refusal_of_the_provider_costs_nothing(store: Store) {
    let site = Site::new(store).await;
    for (number, (status, retry_after, expected)) in [
        (429, None, None),
        (429, Some("7"), Some("7")),
        (429, Some("99999999999999999999"), Some("60")),
        (429, Some("-5"), None),
        (500, None, None),
        (502, None, None),
        (503, Some("3"), Some("3")),
        (529, None, None),
        (401, None, None),
        (403, None, None),
        (404, None, None),
        (302, None, None),
        (201, None, None),
    ]
    .into_iter()
    .enumerate()
    {
        let headers: Vec<(&str, &str)> = retry_after.iter().map(|value| ("retry-after", *value)).collect();
        site.upstream.always(vec![answer(
            status,
            &headers,
            br#"{"error":{"message":"secret-detail"}}"#,
        )]);
        let reply = site
            .chat(&chat("flat", "hi"))
            .send()
            .await
            .refused(502, "UPSTREAM_ERROR");
        assert_eq!(reply.header("retry-after"), expected, "{status} {retry_after:?}");
        assert_eq!(reply.header("x-svc-credits-charged"), Some("0"));
        if status >= 400 {
            assert_eq!(reply.json()["upstreamStatus"], status);
        }
        assert!(!reply.text().contains("secret-detail"));
        assert_eq!(site.upstream.count(), 2 * number + 1, "one call is one request");
        // A tool may answer 201.
        let tool = site
            .post(TOOL, &json!({}))
            .once(&format!("t{number}"))
            .send()
            .await;
        if status == 201 {
            tool.expect(200);
        } else {
            tool.refused(502, "UPSTREAM_ERROR");
        }
    }
    assert_eq!(site.settled().await, micros("9.992"));
}

// Decisions 5
async fn the_providers_complaint_about_a_request_reaches_the_caller(store: Store) {
    let site = Site::new(store).await;
    for status in [400, 422] {
        site.upstream.always(vec![answer(
            status,
            &[],
            br#"{"error":{"message":"temperature is too high"}}"#,
        )]);
        for body in [chat("flat", "hi"), chat_stream("flat", "hi")] {
            let reply = site
                .chat(&body)
                .send()
                .await
                .refused(400, "VALIDATION_ERROR")
                .json();
            assert_eq!(reply["upstreamStatus"], status);
            assert_eq!(reply["message"], "temperature is too high");
        }
    }
    untouched(&site).await;
}

// Fault matrix 78, 33
async fn a_provider_that_cannot_be_reached_leaves_the_key_free(store: Store) {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let site = Setup::new(store)
        .provider("base_url", format!("http://{address}/v1"))
        .start()
        .await;
    for _ in 0..2 {
        let reply = site
            .chat(&chat("flat", "hi"))
            .once("k")
            .send()
            .await
            .refused(502, "UPSTREAM_ERROR");
        assert_eq!(reply.header("idempotent-replayed"), None);
    }
    site.chat(&chat_stream("flat", "hi"))
        .send()
        .await
        .refused(502, "UPSTREAM_ERROR");
    // The same address over TLS, where nobody speaks TLS.
    untouched(&site).await;
    assert_eq!(site.database.number("SELECT COUNT(*) FROM drifts").await, 0);
}

// Fault matrix 79, I12
async fn a_timeout_is_a_loss_of_the_operator_only(store: Store) {
    let site = Setup::new(store)
        .provider("header_timeout_secs", 1)
        .provider("idle_timeout_secs", 1)
        .start()
        .await;
    let long = Step::Pause(Duration::from_secs(10));
    let half = Step::Bytes(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{".to_vec(),
    );
    for (number, (steps, status, code)) in [
        (vec![long.clone()], 504, "UPSTREAM_TIMEOUT"),
        (vec![half.clone(), long], 504, "UPSTREAM_TIMEOUT"),
        (vec![half, Step::Close], 502, "UPSTREAM_ERROR"),
        (vec![Step::Close], 502, "UPSTREAM_ERROR"),
    ]
    .into_iter()
    .enumerate()
    {
        site.upstream.always(steps);
        let key = format!("k{number}");
        let reply = site
            .chat(&chat("flat", "hi"))
            .once(&key)
            .send()
            .await
            .refused(status, code);
        assert_eq!(reply.header("x-svc-credits-charged"), Some("0"));
        let again = site
            .chat(&chat("flat", "hi"))
            .once(&key)
            .send()
            .await
            .refused(status, code);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(site.upstream.count(), number + 1, "one call is one request");
        let lost = site
            .database
            .number("SELECT COALESCE(SUM(loss), 0) FROM drifts")
            .await;
        assert_eq!(lost, 10_000 * (i64::try_from(number).unwrap() + 1));
    }
    assert_eq!(site.settled().await, micros("10"));
}

// Fault matrix 80, 86
async fn an_unusable_answer_costs_the_customer_nothing(store: Store) {
    let site = Site::new(store).await;
    let html = [("content-type", "text/html")];
    let gzip = [("content-encoding", "gzip")];
    for steps in [
        vec![answer(200, &[], b"{\"a\":")],
        vec![answer(200, &[], b"")],
        vec![answer(200, &[], b"[]")],
        vec![answer(200, &[], b"null")],
        vec![answer(200, &[], b"{\"a\":\"\xff\"}")],
        vec![answer(200, &html, b"{}")],
        vec![answer(200, &gzip, b"\x1f\x8b\x08")],
        vec![answer(204, &[], b"")],
        // A status that is no success says that nothing was done.
        vec![Step::Bytes(b"HTTP/1.1 999 \r\n\r\n".to_vec()), Step::Close],
        vec![Step::Bytes(b"garbage garbage\r\n\r\n".to_vec()), Step::Close],
        vec![
            Step::Bytes(
                b"HTTP/1.1 200 OK\r\ncontent-length: 5000000000\r\ncontent-type: application/json\r\n\r\n{"
                    .to_vec(),
            ),
            Step::Close,
        ],
    ] {
        site.upstream.always(steps.clone());
        let reply = site.chat(&chat("flat", "hi")).send().await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (502, "UPSTREAM_ERROR"),
            "{steps:?}"
        );
    }
    costs_the_operator(&site, 10).await;
}

// Fault matrix 81, I12
async fn usage_that_cannot_be_costs_the_hold_and_is_recorded(store: Store) {
    let site = Site::new(store).await;
    let over = tokens(10, 2000);
    let cached = json!({ "prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": { "cached_tokens": 9 } });
    for (usage, recorded) in [
        (Value::Null, 1),
        (json!({}), 1),
        (json!({ "prompt_tokens": -3, "completion_tokens": 1 }), 1),
        (json!({ "prompt_tokens": 1e300, "completion_tokens": 1 }), 1),
        (json!({ "prompt_tokens": "10", "completion_tokens": 1 }), 1),
        (json!("many"), 1),
        (cached, 1),
        (over, 1),
    ] {
        let before = site.settled().await;
        let recorded_before = site.database.number("SELECT COUNT(*) FROM drifts").await;
        let reported = usage.clone();
        site.upstream
            .script(move |seen| vec![completion(seen.number, &reported)]);
        let reply = site.chat(&chat("tokens", "hi")).send().await.expect(200);
        let call = site.call(reply.header("x-svc-call-id").unwrap()).await;
        assert_eq!(call["chargedUsd"], call["reservedUsd"], "{usage}");
        assert_eq!(receipt(&reply).0, before - site.settled().await);
        let drifts = site.database.number("SELECT COUNT(*) FROM drifts").await;
        assert_eq!(drifts - recorded_before, recorded, "{usage}");
    }
    // What was reported above the hold is the operator's loss.
    let lost = site
        .database
        .number("SELECT COALESCE(SUM(loss), 0) FROM drifts")
        .await;
    assert!(lost > 1500, "{lost}");
    // An explicit zero is believed.
    site.upstream
        .script(|seen| vec![completion(seen.number, &tokens(0, 0))]);
    let reply = site.chat(&chat("tokens", "hi")).send().await.expect(200);
    assert_eq!(receipt(&reply).0, 0);
}

// Fault matrix 83, I4
async fn a_dead_pooled_connection_never_sends_a_call_twice(store: Store) {
    let site = Site::new(store).await;
    site.upstream
        .script(|seen| vec![completion(seen.number, &tokens(1, 1)), Step::Close]);
    let mut good = 0;
    for _ in 0..30 {
        let reply = site.chat(&chat("flat", "hi")).send().await;
        match reply.status {
            200 => good += 1,
            // The connection broke after something was written: not sent again, not charged.
            502 => {}
            other => panic!("{other}: {}", reply.text()),
        }
    }
    assert!(good >= 20, "{good}");
    assert!(site.upstream.count() <= 30);
    assert_eq!(site.settled().await, micros("10") - good * 10_000);
}

// Fault matrix 86
async fn an_endless_answer_is_cut(store: Store) {
    let site = Site::new(store).await;
    let head = Step::Bytes(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
    );
    let mut steps = vec![head];
    let part = sse_bytes(&vec![b' '; 1024 * 1024]);
    steps.extend(std::iter::repeat_n(part, 40));
    site.upstream.always(steps);
    site.chat(&chat("flat", "hi"))
        .send()
        .await
        .refused(502, "UPSTREAM_ERROR");
    costs_the_operator(&site, 1).await;
}
