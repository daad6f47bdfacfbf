//! Idempotency keys: one dispatch and one charge for a key, and the same answer for everyone who repeats it.

use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::upstream::{answer, well};
use crate::harness::{
    CHAT, Gate, Reply, Setup, Site, Step, Store, TOOL, chat, chat_stream, eventually, micros, receipt,
};
use crate::on_both_stores;

on_both_stores!(
    fifty_identical_calls_are_dispatched_and_charged_once,
    a_replay_is_byte_identical_and_free,
    a_changed_request_conflicts,
    keys_of_different_payers_and_workspaces_are_independent,
    a_key_stays_free_when_nothing_was_dispatched,
    a_failure_of_the_provider_is_stored_and_replayed,
    malformed_keys_are_refused,
    a_key_is_required_when_the_workspace_says_so,
);

/// What must be the same in a replay.
pub fn same(first: &Reply, again: &Reply) {
    assert_eq!(first.status, again.status);
    assert_eq!(first.body, again.body);
    for name in [
        "content-type",
        "x-svc-credits-charged",
        "x-svc-cost-usd",
        "x-svc-call-id",
    ] {
        assert_eq!(first.header(name), again.header(name), "{name}");
    }
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
}

// Fault matrix 31, 39, I4
async fn fifty_identical_calls_are_dispatched_and_charged_once(store: Store) {
    let site = Site::new(store).await;
    for body in [chat("flat", "hi"), chat_stream("flat", "hi")] {
        let key = format!("same-{}", body["stream"]);
        let gate = Gate::new();
        let held = gate.clone();
        site.upstream.script(move |seen| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(well(seen));
            steps
        });
        let (before, dispatched) = (site.settled().await, site.upstream.count());
        let mut calls = JoinSet::new();
        for _ in 0..50 {
            calls.spawn(site.chat(&body).once(&key).send());
        }
        for _ in 0..49 {
            let reply = calls.join_next().await.unwrap().unwrap();
            let reply = reply.refused(409, "IDEMPOTENCY_IN_PROGRESS");
            assert_eq!(reply.header("retry-after"), Some("1"));
            assert_ne!(reply.header("x-should-retry"), Some("false"));
        }
        gate.open();
        let first = calls.join_next().await.unwrap().unwrap().expect(200);
        assert_eq!(site.upstream.count(), dispatched + 1);
        assert_eq!(site.settled().await, before - 10_000);
        site.finished_call(first.header("x-svc-call-id").unwrap()).await;
        let again = site.chat(&body).once(&key).send().await;
        same(&first, &again);
        assert_eq!(site.upstream.count(), dispatched + 1);
    }
}

// Fault matrix 28, 38
async fn a_replay_is_byte_identical_and_free(store: Store) {
    let site = Site::new(store).await;
    let requests = [
        (CHAT, chat("tokens", "hi")),
        (CHAT, chat_stream("tokens", "hi")),
        (TOOL, json!({ "id": "x" })),
    ];
    for (index, (path, body)) in requests.iter().enumerate() {
        let key = format!("replay-{index}");
        let first = site.post(path, body).once(&key).send().await.expect(200);
        site.finished_call(first.header("x-svc-call-id").unwrap()).await;
        // The replay's balance header is the balance now.
        site.chat(&chat("flat", "between")).send().await.expect(200);
        let now = site.settled().await;
        let count = site.upstream.count();
        for _ in 0..3 {
            let again = site.post(path, body).once(&key).send().await;
            same(&first, &again);
            assert_eq!(receipt(&again).1, now);
        }
        let id = first.header("x-svc-call-id").unwrap();
        let result = site
            .get(&format!("/api/credits/calls/{id}/result"))
            .send()
            .await
            .expect(200)
            .json();
        if *path == CHAT {
            assert_eq!(result["content"].as_str().unwrap(), first.text());
        }
        assert_eq!((site.settled().await, site.upstream.count()), (now, count));
    }
}

// Fault matrix 29, 30, 42
async fn a_changed_request_conflicts(store: Store) {
    let site = Site::new(store).await;
    let body = r#"{"model":"flat","messages":[{"role":"user","content":"hi"}],"temperature":1}"#;
    let first = site
        .client
        .request(Method::POST, CHAT)
        .bearer(&site.key)
        .once("k")
        .raw_json(body);
    let first = first.send().await.expect(200);
    for changed in [
        r#"{"model":"dear","messages":[{"role":"user","content":"hi"}],"temperature":1}"#,
        r#"{"model":"flat","messages":[{"role":"user","content":"ho"}],"temperature":1}"#,
        r#"{"model":"flat","messages":[{"role":"user","content":"hi"}],"temperature":1.0}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"model":"flat","temperature":1}"#,
        r#"{"model": "flat","messages":[{"role":"user","content":"hi"}],"temperature":1}"#,
        r#"{"model":"flat","messages":[{"role":"user","content":"hi"}],"temperature":1,"stream":true}"#,
        r#"{"model":"unknown","messages":[{"role":"user","content":"hi"}]}"#,
        "not json",
    ] {
        let call = site
            .client
            .request(Method::POST, CHAT)
            .bearer(&site.key)
            .once("k")
            .raw_json(changed);
        let refused = call.send().await.refused(409, "IDEMPOTENCY_KEY_CONFLICT");
        assert_eq!(refused.header("x-should-retry"), Some("false"));
    }
    assert_eq!(site.upstream.count(), 1);
    assert_eq!(site.settled().await, micros("10") - 10_000);
    let again = site
        .client
        .request(Method::POST, CHAT)
        .bearer(&site.key)
        .once("k")
        .raw_json(body);
    same(&first, &again.send().await);
}

// Fault matrix 29, 32, 155, I9
async fn keys_of_different_payers_and_workspaces_are_independent(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    site.grant("1", Some("bob"));
    let (other, other_key) = site.workspace("Other");
    site.operate(&[
        "credits", "grant", "--tenant", &other, "--usd", "1", "--reason", "test",
    ]);
    let sandbox = site.new_key("sandbox", &[]);
    let body = chat("flat", "hi");
    let send = |key: &str, user: Option<&str>| {
        let call = site
            .client
            .request(Method::POST, CHAT)
            .bearer(key)
            .once("shared")
            .json(&body);
        match user {
            Some(user) => call.paid_by(user),
            None => call,
        }
        .send()
    };
    let mut bodies = Vec::new();
    for (key, user) in [
        (&site.key, None),
        (&site.key, Some("alice")),
        (&site.key, Some("bob")),
        (&other_key, None),
        (&sandbox, None),
    ] {
        let reply = send(key, user).await.expect(200);
        assert_eq!(reply.header("idempotent-replayed"), None, "{user:?}");
        bodies.push(reply.body);
    }
    assert_eq!(site.upstream.count(), 4);
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 5, "a stored body was shown to someone else");
    // Another key of the same workspace shares the namespace, another route does not.
    let second = site.new_key("secret", &[]);
    assert_eq!(
        send(&second, None)
            .await
            .expect(200)
            .header("idempotent-replayed"),
        Some("true")
    );
    let tool = site
        .post(TOOL, &json!({}))
        .once("shared")
        .send()
        .await
        .expect(200);
    assert_eq!(tool.header("idempotent-replayed"), None);
    assert_eq!(site.upstream.count(), 5);
}

// Fault matrix 33
async fn a_key_stays_free_when_nothing_was_dispatched(store: Store) {
    let site = Setup::new(store)
        .grant(Some("0.01"))
        .set("limits.calls_per_minute", 7)
        .start()
        .await;
    let body = chat("flat", "hi");
    let send = |key: &str, body: &serde_json::Value| {
        site.client
            .request(Method::POST, CHAT)
            .bearer(key)
            .once("k")
            .json(body)
            .send()
    };
    send(&site.key, &json!({ "model": "flat" }))
        .await
        .refused(400, "VALIDATION_ERROR");
    send(&site.key, &chat("nothing", "hi"))
        .await
        .refused(400, "MODEL_NOT_SUPPORTED");
    send(&site.key, &chat("unpriced", "hi"))
        .await
        .refused(503, "PRICE_UNAVAILABLE");
    send("svc_sk_live_wrong", &body)
        .await
        .refused(401, "INVALID_CREDENTIAL");
    send(&site.key, &chat("dear", "hi"))
        .await
        .refused(402, "INSUFFICIENT_CREDITS");
    let limited = site.new_key("secret", &[]);
    for _ in 0..7 {
        let other = site.client.request(Method::POST, CHAT).bearer(&limited);
        other
            .json(&json!({}))
            .send()
            .await
            .refused(400, "VALIDATION_ERROR");
    }
    send(&limited, &body).await.refused(429, "RATE_LIMITED");
    assert_eq!(site.upstream.count(), 0);
    let reply = send(&site.key, &body).await.expect(200);
    assert_eq!(reply.header("idempotent-replayed"), None);
    assert_eq!((site.upstream.count(), site.settled().await), (1, 0));
    // A connection that was refused sent nothing either.
    assert_eq!(
        send(&site.key, &body)
            .await
            .expect(200)
            .header("idempotent-replayed"),
        Some("true")
    );
}

// Fault matrix 34
async fn a_failure_of_the_provider_is_stored_and_replayed(store: Store) {
    let site = Site::new(store).await;
    for (index, (status, expected, code)) in [
        (500, 502, "UPSTREAM_ERROR"),
        (400, 400, "VALIDATION_ERROR"),
        (429, 502, "UPSTREAM_ERROR"),
    ]
    .into_iter()
    .enumerate()
    {
        site.upstream
            .always(vec![answer(status, &[], br#"{"error":{"message":"so it is"}}"#)]);
        let key = format!("fails-{index}");
        for body in [chat("flat", "hi"), chat_stream("flat", "hi")] {
            let key = format!("{key}-{}", body["stream"]);
            site.upstream
                .always(vec![answer(status, &[], br#"{"error":{"message":"so it is"}}"#)]);
            let first = site.chat(&body).once(&key).send().await.refused(expected, code);
            assert_eq!(first.header("x-svc-credits-charged"), Some("0"));
            let count = site.upstream.count();
            site.upstream.heal();
            let again = site.chat(&body).once(&key).send().await.refused(expected, code);
            assert_eq!(again.header("idempotent-replayed"), Some("true"));
            assert_eq!(again.json()["upstreamStatus"], status);
            assert_eq!(again.json()["message"], first.json()["message"]);
            assert_eq!(again.header("x-should-retry"), Some("false"));
            assert_eq!(site.upstream.count(), count);
        }
    }
    assert_eq!(site.settled().await, micros("10"));
    assert_eq!(site.ledger().lines().count(), 1);
}

// Fault matrix 36
async fn malformed_keys_are_refused(store: Store) {
    let site = Site::new(store).await;
    let long = "k".repeat(256);
    for bad in [&b""[..], b" ", b"a b", b"\xc3\xa9", b"a\tb", long.as_bytes()] {
        let call = site.chat(&chat("flat", "hi")).header("idempotency-key", bad);
        call.send().await.refused(400, "IDEMPOTENCY_KEY_INVALID");
    }
    let twice = site.chat(&chat("flat", "hi")).once("a").once("a");
    twice.send().await.refused(400, "IDEMPOTENCY_KEY_INVALID");
    assert_eq!(site.upstream.count(), 0);
    for good in ["a", "!~", &"k".repeat(255)] {
        site.chat(&chat("flat", "hi")).once(good).send().await.expect(200);
    }
}

// Decisions 4
async fn a_key_is_required_when_the_workspace_says_so(store: Store) {
    let site = Site::new(store).await;
    site.chat(&chat("flat", "hi")).send().await.expect(200);
    let put = site
        .client
        .request(Method::PUT, "/api/credits/tenants/me/settings")
        .bearer(&site.key);
    put.json(&json!({ "requireIdempotencyKey": true }))
        .send()
        .await
        .expect(200);
    eventually("the setting is in force", || async {
        let reply = site.chat(&chat("flat", "hi")).send().await;
        (reply.code() == "IDEMPOTENCY_KEY_REQUIRED" && reply.status == 400).then_some(())
    })
    .await;
    site.chat(&chat("flat", "hi")).once("k").send().await.expect(200);
}
