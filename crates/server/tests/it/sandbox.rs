//! Sandbox keys: everything is checked, nothing is called, charged or written.

use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::{CHAT, Setup, Site, Store, TOOL, chat, chat_stream};
use crate::on_both_stores;

on_both_stores!(
    a_sandbox_call_opens_no_socket_and_writes_no_ledger_row,
    a_sandbox_key_reads_and_changes_nothing,
    a_sandbox_flood_is_limited,
);

// Fault matrix 153, 155, I11
async fn a_sandbox_call_opens_no_socket_and_writes_no_ledger_row(store: Store) {
    let site = Site::new(store).await;
    let sandbox = site.new_key("sandbox", &[]);
    let before = (site.ledger(), site.export("usage"), site.export("events"));
    let send = |path: &str, body: &serde_json::Value| {
        site.client
            .request(Method::POST, path)
            .bearer(&sandbox)
            .once("shared")
            .json(body)
            .send()
    };
    for (path, body) in [
        (CHAT, chat("tokens", "hi")),
        (CHAT, chat_stream("tokens", "hi")),
        (TOOL, json!({ "id": "x" })),
        ("/api/wrapped/credits/tools/live", json!({})),
    ] {
        let first = send(path, &body).await.expect(200);
        assert_eq!(first.header("x-svc-simulated"), Some("true"));
        assert_eq!(first.header("x-svc-credits-charged"), Some("0"));
        assert!(first.header("x-svc-call-id").is_some());
        if body["stream"] == true {
            assert_eq!(first.header("content-type"), Some("text/event-stream"));
            assert!(first.text().ends_with("data: [DONE]\n\n"));
        } else if path == CHAT {
            assert_eq!(first.json()["object"], "chat.completion");
        } else {
            assert_eq!(first.json()["billing"]["creditsCharged"], "0");
        }
        let again = send(path, &body).await.expect(200);
        if path == CHAT {
            assert_eq!(
                again.body, first.body,
                "a simulated answer is a function of the request"
            );
        }
    }
    send(CHAT, &json!({ "model": "tokens" }))
        .await
        .refused(400, "VALIDATION_ERROR");
    send(CHAT, &chat("nothing", "x"))
        .await
        .refused(400, "MODEL_NOT_SUPPORTED");
    send("/api/wrapped/credits/tools/nothing", &json!({}))
        .await
        .refused(404, "ENDPOINT_NOT_FOUND");
    let units = send("/api/wrapped/credits/tools/units", &json!({ "count": "x" })).await;
    units.refused(400, "VALIDATION_ERROR");
    assert_eq!(site.upstream.connections(), 0);
    assert_eq!(
        (site.ledger(), site.export("usage"), site.export("events")),
        before
    );
    for table in ["holds", "claims", "outcomes"] {
        assert_eq!(
            site.database
                .number(&format!("SELECT COUNT(*) FROM {table}"))
                .await,
            0,
            "{table}"
        );
    }
}

// Fault matrix 154
async fn a_sandbox_key_reads_and_changes_nothing(store: Store) {
    let site = Site::new(store).await;
    let sandbox = site.new_key("sandbox", &[]);
    for path in [
        "/api/credits/balance",
        "/api/credits/ledger",
        "/api/credits/usage",
        "/api/credits/tenants/me/settings",
    ] {
        let reply = site
            .client
            .request(Method::GET, path)
            .bearer(&sandbox)
            .send()
            .await;
        reply.refused(403, "INSUFFICIENT_SCOPE");
    }
    let put = site
        .client
        .request(Method::PUT, "/api/credits/tenants/me/settings")
        .bearer(&sandbox);
    put.json(&json!({}))
        .send()
        .await
        .refused(403, "INSUFFICIENT_SCOPE");
    let args = [
        "key",
        "create",
        "--tenant",
        &site.tenant,
        "--name",
        "x",
        "--kind",
        "sandbox",
        "--scope",
        "tenant:read",
    ];
    let (status, _, _) = crate::harness::operate(&site.config, &site.data, &args);
    assert!(!status.success(), "a sandbox key may have no scopes");
}

// Fault matrix 156
async fn a_sandbox_flood_is_limited(store: Store) {
    let site = Setup::new(store).set("limits.calls_per_minute", 20).start().await;
    let sandbox = site.new_key("sandbox", &[]);
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        calls.spawn(
            site.client
                .request(Method::POST, CHAT)
                .bearer(&sandbox)
                .json(&chat("flat", "hi"))
                .send(),
        );
    }
    let replies = calls.join_all().await;
    let good = replies.iter().filter(|reply| reply.status == 200).count();
    assert!((20..=22).contains(&good), "{good}");
    for reply in replies.into_iter().filter(|reply| reply.status != 200) {
        let reply = reply.refused(429, "RATE_LIMITED");
        let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait));
        assert_eq!(reply.header("ratelimit-policy"), Some("\"default\";q=20;w=60"));
        assert!(
            reply
                .header("ratelimit")
                .unwrap()
                .starts_with("\"default\";r=0;t=")
        );
        assert_ne!(reply.header("x-should-retry"), Some("false"));
    }
    assert_eq!(site.database.number("SELECT COUNT(*) FROM holds").await, 0);
    // The flood of one key does not limit another.
    site.chat(&chat("flat", "hi")).send().await.expect(200);
}
