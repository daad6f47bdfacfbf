//! End users: their own balances, the markup they pay, and names that are told apart.

use http::Method;
use serde_json::json;

use crate::harness::{Site, Store, chat, chat_stream, micros, receipt};
use crate::on_both_stores;

on_both_stores!(
    an_end_user_pays_with_markup_and_the_pool_without,
    end_users_are_told_apart_by_case,
);

// Specification 2.8, decisions 8
async fn an_end_user_pays_with_markup_and_the_pool_without(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let settings = json!({ "pricing": { "global": { "markupBps": 2500, "flatMarkupUsdc": "0.001" } } });
    let put = site
        .client
        .request(Method::PUT, "/api/credits/tenants/me/settings");
    put.bearer(&site.key).json(&settings).send().await.expect(200);
    // Keys and workspaces may be taken from memory for a second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let reply = site
        .chat(&chat("flat", "hi"))
        .paid_by("alice")
        .send()
        .await
        .expect(200);
    assert_eq!(receipt(&reply), (13_500, micros("0.9865")));
    let call = site.call(reply.header("x-svc-call-id").unwrap()).await;
    assert_eq!(
        (&call["chargedUsd"], &call["marginUsd"]),
        (&json!("0.0135"), &json!("0.0035"))
    );
    assert_eq!(call["externalUserId"], "alice");
    let pool = site.chat(&chat("flat", "hi")).send().await.expect(200);
    assert_eq!(receipt(&pool), (10_000, micros("9.99")));
    let shown = site.balance_of("alice").await;
    assert_eq!(shown["usd"], "0.9865");
    let usage = site
        .get("/api/credits/usage?groupBy=endUser&externalUserId=alice")
        .send()
        .await
        .expect(200);
    assert_eq!(usage.json()["data"][0]["marginUsd"], "0.0035");
    let stream = site
        .chat(&chat_stream("flat", "hi"))
        .paid_by("alice")
        .send()
        .await
        .expect(200);
    assert_eq!(receipt(&stream), (13_500, micros("0.973")));
    site.grant("0.0135", Some("poor"));
    site.chat(&chat("flat", "hi"))
        .paid_by("poor")
        .send()
        .await
        .expect(200);
    let refused = site.chat(&chat("flat", "hi")).paid_by("poor").send().await;
    let refused = refused.refused(402, "INSUFFICIENT_CREDITS").json();
    assert_eq!(
        (&refused["requiredCredits"], &refused["availableCredits"]),
        (&json!("13.5"), &json!("0"))
    );
}

// Fault matrix 148
async fn end_users_are_told_apart_by_case(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("User"));
    site.grant("2", Some("user"));
    site.chat(&chat("flat", "hi"))
        .paid_by("User")
        .send()
        .await
        .expect(200);
    assert_eq!(site.balance_of("User").await["usd"], "0.99");
    assert_eq!(site.balance_of("user").await["usd"], "2");
    for unknown in ["USER", "user2", "nobody"] {
        let call = site.chat(&chat("flat", "hi")).paid_by(unknown).send().await;
        call.refused(404, "END_USER_NOT_FOUND");
        let read = site.get("/api/credits/balance").paid_by(unknown).send().await;
        read.refused(404, "END_USER_NOT_FOUND");
    }
    for bad in ["", " ", "a b", "-a", "a\u{e9}", &"x".repeat(201)] {
        let call = site.chat(&chat("flat", "hi")).paid_by(bad).send().await;
        call.refused(400, "VALIDATION_ERROR");
    }
    assert_eq!(site.upstream.count(), 1);
    assert_eq!(site.settled().await, micros("10"));
}
