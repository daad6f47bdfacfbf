//! Streams: paid before their first byte, never buffered, drained when the client goes, refunded when they break.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::harness::upstream::{
    answer, find, sse_content, sse_done, sse_event, sse_head, sse_usage, stream, tokens, well,
};
use crate::harness::{
    CHAT, Gate, Setup, Site, Step, Store, chat, chat_stream, eventually, micros, raw_open, read_reply,
};
use crate::on_both_stores;

on_both_stores!(
    a_stream_is_captured_before_its_first_byte_and_not_buffered,
    a_client_that_leaves_before_the_first_byte_is_billed_and_can_come_back,
    a_client_that_leaves_mid_stream_is_billed_and_can_come_back,
    a_client_that_half_closes_still_gets_the_stream,
    a_failure_before_the_first_byte_is_an_ordinary_error,
    the_usage_chunk_is_asked_for_and_shown_only_on_request,
    a_stream_request_that_is_answered_otherwise_is_refused_free_of_charge,
    a_running_stream_is_in_progress_for_its_key,
    a_stalled_stream_is_ended_with_an_error_event,
);

/// What a stream of "hi" to `tokens` is authorised for: learnt from the call's record.
async fn reserved(site: &Site, call: &str) -> i64 {
    micros(site.call(call).await["reservedUsd"].as_str().unwrap())
}

// Fault matrix 62, I10
async fn a_stream_is_captured_before_its_first_byte_and_not_buffered(store: Store) {
    let site = Site::new(store).await;
    let gates = [Gate::new(), Gate::new()];
    let held = gates.clone();
    site.upstream.script(move |_| {
        let mut steps = vec![
            sse_head(),
            sse_content("one"),
            Step::Wait(held[0].clone()),
            sse_content("two"),
        ];
        steps.push(Step::Wait(held[1].clone()));
        steps.push(sse_usage(&tokens(10, 5)));
        steps.extend(sse_done());
        steps
    });
    let mut reply = site.chat(&chat_stream("tokens", "hi")).open().await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let call = reply.header("x-svc-call-id").unwrap().to_owned();
    let charged = crate::harness::micros_of_credits(reply.header("x-svc-credits-charged").unwrap());
    let balance = crate::harness::micros_of_credits(reply.header("x-svc-credits-balance").unwrap());
    assert_eq!(reserved(&site, &call).await, charged);
    assert_eq!(balance, micros("10") - charged);
    // Captured: the balance is lower already, nothing is held any more.
    assert_eq!(site.settled().await, balance);
    assert_eq!(site.call(&call).await["status"], "streaming");
    let first = reply.chunk().await.unwrap();
    assert!(find(&first, b"one").is_some() && find(&first, b"two").is_none());
    let sent = Instant::now();
    gates[0].open();
    let second = reply.chunk().await.unwrap();
    assert!(find(&second, b"two").is_some());
    assert!(
        sent.elapsed() < Duration::from_millis(500),
        "{:?}",
        sent.elapsed()
    );
    gates[1].open();
    let rest = reply.finish().await;
    assert!(rest.text().ends_with("data: [DONE]\n\n"), "{}", rest.text());
    let call = site.finished_call(&call).await;
    assert_eq!(
        (&call["status"], &call["refundedUsd"]),
        (&json!("completed"), &json!("0"))
    );
    assert_eq!(site.settled().await, balance);
}

/// A stream that stops at two gates: before its head, and after its first event.
fn gated(site: &Site) -> [Gate; 2] {
    let gates = [Gate::new(), Gate::new()];
    let held = gates.clone();
    site.upstream.script(move |seen| {
        let all = well(seen);
        let mut steps = vec![Step::Wait(held[0].clone())];
        steps.extend(all[..2].iter().cloned());
        steps.push(Step::Wait(held[1].clone()));
        steps.extend(all[2..].iter().cloned());
        steps
    });
    gates
}

fn request(site: &Site, key: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         idempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
        site.key,
        body.len()
    )
    .into_bytes()
}

async fn came_back(site: &Site, key: &str, body: &Value) {
    let again = eventually("the call is over", || async {
        let reply = site.chat(body).once(key).send().await;
        (reply.code() != "IDEMPOTENCY_IN_PROGRESS").then_some(reply)
    })
    .await
    .expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert!(
        again.text().contains("Hello") && again.text().contains("world"),
        "{}",
        again.text()
    );
    if body["stream"] == true {
        assert!(again.text().ends_with("data: [DONE]\n\n"));
    }
    assert_eq!(site.upstream.count(), 1);
    assert_eq!(site.settled().await, micros("9.99"));
    assert_eq!(site.events("credits.burn.completed").len(), 1);
}

// Fault matrix 63
async fn a_client_that_leaves_before_the_first_byte_is_billed_and_can_come_back(store: Store) {
    for body in [chat_stream("flat", "hi"), chat("flat", "hi")] {
        let site = Site::new(store).await;
        let gate = Gate::new();
        let held = gate.clone();
        site.upstream.script(move |seen| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(well(seen));
            steps
        });
        let leaving = raw_open(&site.address(), &request(&site, "left", &body)).await;
        eventually("the call was sent", || async {
            (site.upstream.count() == 1).then_some(())
        })
        .await;
        drop(leaving);
        tokio::time::sleep(Duration::from_millis(50)).await;
        gate.open();
        came_back(&site, "left", &body).await;
    }
}

// Fault matrix 63
async fn a_client_that_leaves_mid_stream_is_billed_and_can_come_back(store: Store) {
    let site = Site::new(store).await;
    let [first, second] = gated(&site);
    first.open();
    let body = chat_stream("flat", "hi");
    let mut leaving = raw_open(&site.address(), &request(&site, "left", &body)).await;
    let head = read_reply(&mut leaving, Duration::from_millis(400)).await;
    assert_eq!(head.status, 200);
    assert!(find(&head.body, b"Hello").is_some());
    drop(leaving);
    tokio::time::sleep(Duration::from_millis(50)).await;
    second.open();
    came_back(&site, "left", &body).await;
}

// Fault matrix 64
async fn a_client_that_half_closes_still_gets_the_stream(store: Store) {
    let site = Site::new(store).await;
    let [first, second] = gated(&site);
    let body = chat_stream("flat", "hi");
    let mut half = raw_open(&site.address(), &request(&site, "half", &body)).await;
    half.shutdown().await.unwrap();
    eventually("the call was sent", || async {
        (site.upstream.count() == 1).then_some(())
    })
    .await;
    first.open();
    tokio::time::sleep(Duration::from_millis(50)).await;
    second.open();
    let reply = read_reply(&mut half, Duration::from_secs(5)).await;
    assert_eq!(reply.status, 200);
    for part in ["Hello", " world", "[DONE]"] {
        assert!(find(&reply.body, part.as_bytes()).is_some(), "{part}");
    }
    assert_eq!(site.settled().await, micros("9.99"));
}

// Fault matrix 67
async fn a_failure_before_the_first_byte_is_an_ordinary_error(store: Store) {
    let site = Site::new(store).await;
    let error_event = vec![
        sse_head(),
        sse_event(r#"{"error":{"message":"no"}}"#),
        crate::harness::upstream::sse_end(),
    ];
    for steps in [
        vec![answer(500, &[], b"{}")],
        vec![answer(503, &[], b"")],
        vec![sse_head(), Step::Close],
        vec![Step::Close],
        error_event,
        vec![sse_head(), crate::harness::upstream::sse_end()],
    ] {
        site.upstream.always(steps);
        let reply = site
            .chat(&chat_stream("flat", "hi"))
            .send()
            .await
            .refused(502, "UPSTREAM_ERROR");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("x-svc-credits-charged"), Some("0"));
    }
    assert_eq!(site.settled().await, micros("10"));
}

// Fault matrix 69
async fn the_usage_chunk_is_asked_for_and_shown_only_on_request(store: Store) {
    let site = Site::new(store).await;
    for (options, shown) in [
        (Value::Null, false),
        (json!({ "include_usage": false }), false),
        (json!({}), false),
        (json!({ "include_usage": true }), true),
    ] {
        let mut body = chat_stream("tokens", "hi");
        if !options.is_null() {
            body["stream_options"] = options.clone();
        }
        let reply = site.chat(&body).send().await.expect(200);
        assert_eq!(
            site.upstream.last().json()["stream_options"]["include_usage"],
            true
        );
        assert_eq!(reply.text().contains("prompt_tokens"), shown, "{options}");
        assert!(reply.text().ends_with("data: [DONE]\n\n"));
        let call = site.finished_call(reply.header("x-svc-call-id").unwrap()).await;
        assert_eq!(call["usage"]["output"], 5, "{call:#}");
    }
}

// Fault matrix 75
async fn a_stream_request_that_is_answered_otherwise_is_refused_free_of_charge(store: Store) {
    let site = Site::new(store).await;
    for steps in [
        vec![answer(200, &[], br#"{"id":"x","choices":[]}"#)],
        vec![answer(200, &[("content-type", "text/html")], b"<html>")],
    ] {
        site.upstream.always(steps);
        site.chat(&chat_stream("flat", "hi"))
            .send()
            .await
            .refused(502, "UPSTREAM_ERROR");
    }
    // And an event stream where JSON was asked for.
    site.upstream.always(stream(&tokens(1, 1)));
    site.chat(&chat("flat", "hi"))
        .send()
        .await
        .refused(502, "UPSTREAM_ERROR");
    assert_eq!(site.settled().await, micros("10"));
}

// Fault matrix 39
async fn a_running_stream_is_in_progress_for_its_key(store: Store) {
    let site = Site::new(store).await;
    let [first, second] = gated(&site);
    first.open();
    let body = chat_stream("flat", "hi");
    let mut running = site.chat(&body).once("k").open().await;
    running.chunk().await.unwrap();
    let call = running.header("x-svc-call-id").unwrap().to_owned();
    let refused = site
        .chat(&body)
        .once("k")
        .send()
        .await
        .refused(409, "IDEMPOTENCY_IN_PROGRESS");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let result = site
        .get(&format!("/api/credits/calls/{call}/result"))
        .send()
        .await;
    result.refused(409, "IDEMPOTENCY_IN_PROGRESS");
    second.open();
    running.finish().await;
    came_back(&site, "k", &body).await;
}

// Fault matrix 73
async fn a_stalled_stream_is_ended_with_an_error_event(store: Store) {
    let site = Setup::new(store).provider("idle_timeout_secs", 1).start().await;
    site.upstream.always(vec![
        sse_head(),
        sse_content("x"),
        Step::Pause(Duration::from_secs(10)),
    ]);
    let reply = site.chat(&chat_stream("tokens", "hi")).send().await.expect(200);
    assert!(reply.text().contains("UPSTREAM_TIMEOUT"), "{}", reply.text());
    let call = site.finished_call(reply.header("x-svc-call-id").unwrap()).await;
    assert_eq!(
        (&call["status"], &call["failure"]),
        (&json!("interrupted"), &json!("UPSTREAM_TIMEOUT"))
    );
    assert_eq!(
        site.settled().await,
        micros("10") - micros(call["costUsd"].as_str().unwrap())
    );
}
