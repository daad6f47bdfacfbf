//! How streams are settled: by their authorised amount or by their usage, and never for what was not delivered.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::harness::upstream::{completion, sse_content, sse_done, sse_event, sse_head, stream, tokens};
use crate::harness::{Setup, Site, Step, Store, chat, chat_stream, micros, receipt};
use crate::on_both_stores;

on_both_stores!(
    a_stream_that_dies_ends_with_an_error_event_and_a_refund,
    a_stream_that_carries_an_error_event_ends_and_is_refunded,
    a_stream_without_usage_costs_its_authorised_amount,
    a_stream_costs_what_the_same_tokens_cost_unstreamed,
    with_usage_settlement_a_stream_costs_what_the_same_call_costs,
);

// Fault matrix 65, I10
async fn a_stream_that_dies_ends_with_an_error_event_and_a_refund(store: Store) {
    let site = Site::new(store).await;
    for (key, settlement) in [("dies-fixed", "fixed"), ("dies-usage", "usage")] {
        settle_by(&site, settlement).await;
        site.upstream
            .script(|_| vec![sse_head(), sse_content("12345"), sse_content("67"), Step::Close]);
        let before = site.settled().await;
        let body = chat_stream("tokens", "hi");
        let reply = site.chat(&body).once(key).send().await.expect(200);
        let (charged, balance) = receipt(&reply);
        assert_eq!(balance, before - charged);
        let last = reply.text().trim_end().rsplit("\n\n").next().unwrap().to_owned();
        let event: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event["error"]["code"], "UPSTREAM_ERROR");
        assert!(!reply.text().contains("[DONE]"));
        let call = site.call(reply.header("x-svc-call-id").unwrap()).await;
        assert_eq!(
            (&call["status"], &call["failure"]),
            (&json!("interrupted"), &json!("UPSTREAM_ERROR"))
        );
        // Kept: the bound of the prompt, and at most a token for each of the seven bytes that came.
        let refunded = micros(call["refundedUsd"].as_str().unwrap());
        assert_eq!(refunded, (1000 - 7) * 2, "{call:#}");
        assert_eq!(site.settled().await, before - charged + refunded);
        let refunds = site.events("credits.refund.issued");
        let refund = refunds.last().unwrap();
        assert_eq!(refund["data"]["kind"], "stream_undelivered");
        assert_eq!(micros(refund["data"]["amountUsd"].as_str().unwrap()), refunded);
        let again = site.chat(&body).once(key).send().await.expect(200);
        assert_eq!(again.body, reply.body);
        site.audit();
    }
    assert_eq!(site.upstream.count(), 2);
}

// Fault matrix 66
async fn a_stream_that_carries_an_error_event_ends_and_is_refunded(store: Store) {
    let site = Site::new(store).await;
    site.upstream.script(|_| {
        let mut steps = vec![
            sse_head(),
            sse_content("part"),
            sse_event(r#"{"error":{"message":"overloaded"}}"#),
        ];
        steps.extend(sse_done());
        steps
    });
    let reply = site.chat(&chat_stream("tokens", "hi")).send().await.expect(200);
    assert!(reply.text().contains("overloaded"));
    let call = site.finished_call(reply.header("x-svc-call-id").unwrap()).await;
    assert_eq!(call["status"], "interrupted");
    assert_eq!(micros(call["refundedUsd"].as_str().unwrap()), (1000 - 4) * 2);
    assert_eq!(
        site.settled().await,
        micros("10") - micros(call["costUsd"].as_str().unwrap())
    );
}

// Fault matrix 68, I12
async fn a_stream_without_usage_costs_its_authorised_amount(store: Store) {
    let site = Site::new(store).await;
    for settlement in ["fixed", "usage"] {
        settle_by(&site, settlement).await;
        site.upstream.always(stream(&Value::Null));
        let before = site.settled().await;
        let reply = site.chat(&chat_stream("tokens", "hi")).send().await.expect(200);
        let call = site.finished_call(reply.header("x-svc-call-id").unwrap()).await;
        assert_eq!(
            (&call["usage"], &call["refundedUsd"]),
            (&Value::Null, &json!("0"))
        );
        assert_eq!(site.settled().await, before - receipt(&reply).0);
    }
}

// Decisions 5
async fn with_usage_settlement_a_stream_costs_what_the_same_call_costs(store: Store) {
    let site = Site::new(store).await;
    settle_by(&site, "usage").await;
    let unstreamed = site.chat(&chat("tokens", "hi")).send().await.expect(200);
    let cost = receipt(&unstreamed).0;
    let before = site.settled().await;
    let reply = site.chat(&chat_stream("tokens", "hi")).send().await.expect(200);
    let captured = receipt(&reply).0;
    let call = site.finished_call(reply.header("x-svc-call-id").unwrap()).await;
    assert!(captured > cost);
    assert_eq!(micros(call["costUsd"].as_str().unwrap()), cost);
    assert_eq!(site.settled().await, before - cost);
    let refund = site.events("credits.refund.issued").pop().unwrap();
    assert_eq!(refund["data"]["kind"], "stream_true_up");
    assert_eq!(
        micros(refund["data"]["amountUsd"].as_str().unwrap()),
        captured - cost
    );
}

async fn settle_by(site: &Site, settlement: &str) {
    let put = site
        .client
        .request(Method::PUT, "/api/credits/tenants/me/settings")
        .bearer(&site.key);
    put.json(&json!({ "streamSettlement": settlement }))
        .send()
        .await
        .expect(200);
    // Workspaces may be taken from memory for a second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

// Decisions 5: the same tokens, the same price
async fn a_stream_costs_what_the_same_tokens_cost_unstreamed(store: Store) {
    let setup = Setup::new(store).set("calls.stream_settlement", "usage");
    let site = setup.start().await;
    for (prompt, completed) in [(10, 5), (1, 1), (80, 1000)] {
        site.upstream.script(move |seen| {
            if seen.json()["stream"] == true {
                crate::harness::upstream::stream(&tokens(prompt, completed))
            } else {
                vec![completion(seen.number, &tokens(prompt, completed))]
            }
        });
        let unstreamed = site.chat(&chat("tokens", "hi")).send().await.expect(200);
        let reply = site.chat(&chat_stream("tokens", "hi")).send().await.expect(200);
        let call = site.finished_call(reply.header("x-svc-call-id").unwrap()).await;
        assert_eq!(micros(call["costUsd"].as_str().unwrap()), receipt(&unstreamed).0);
    }
}
