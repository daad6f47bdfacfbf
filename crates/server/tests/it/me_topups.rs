//! An end user's own top-ups at `/api/credits/me/topups`, with a token of the workspace's minting.

use http::Method;
use serde_json::{Value, json};

use crate::harness::payments::{POOL_TOPUPS, Shop};
use crate::harness::{Sender, Store, chat};
use crate::on_both_stores;

on_both_stores!(
    an_end_user_fills_the_own_balance,
    an_end_user_is_named_by_the_token_alone,
    a_session_of_another_end_user_does_not_exist,
    a_token_needs_the_scope_to_top_up,
    an_end_user_gets_no_volume_bonus,
    a_flood_by_one_end_user_is_stopped_and_others_go_on,
);

const OWN: &str = "/api/credits/me/topups";

fn ask(shop: &Shop, token: &str, body: &Value) -> Sender {
    shop.client.request(Method::POST, OWN).bearer(token).json(body)
}

fn see(shop: &Shop, token: &str, session: &str) -> Sender {
    shop.client
        .request(Method::GET, &format!("{OWN}/{session}"))
        .bearer(token)
}

// Specification 2.7, 4.6, 6
async fn an_end_user_fills_the_own_balance(store: Store) {
    let shop = Shop::of(store, |setup| setup).await;
    let token = shop.token("alice", &json!({})).await;
    let asked = json!({ "usd": "10", "metadata": { "plan": "pro" } });
    let opened = ask(&shop, &token, &asked)
        .once("k")
        .send()
        .await
        .expect(200)
        .json();
    let session = opened["sessionId"].as_str().unwrap();
    assert_eq!(opened["externalUserId"], "alice");
    let again = ask(&shop, &token, &asked)
        .once("k")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(again["sessionId"], session);
    ask(&shop, &token, &json!({ "usd": "11" }))
        .once("k")
        .send()
        .await
        .refused(409, "IDEMPOTENCY_KEY_CONFLICT");
    assert_eq!(
        see(&shop, &token, session).send().await.expect(200).json()["status"],
        "open"
    );
    shop.pay(session);
    shop.deliver().await;
    let shown = see(&shop, &token, session).send().await.expect(200).json();
    assert_eq!(
        (&shown["status"], &shown["metadata"]),
        (&json!("completed"), &json!({ "plan": "pro" }))
    );
    // What the workspace has to look at is no business of the end user's.
    for hidden in ["review", "refunds", "disputes"] {
        assert!(shown.get(hidden).is_none(), "{hidden}");
    }
    assert_eq!(
        (shop.balance_of("alice").await["usd"].clone(), shop.pool().await),
        (json!("10"), (0, 0))
    );
    let event = shop.events("credits.topup.completed").pop().unwrap()["data"].clone();
    let members = [
        "externalUserId",
        "amountUsd",
        "balanceUsd",
        "reference",
        "source",
        "bonusUsd",
    ];
    assert_eq!(
        members.map(|name| event[name].clone()),
        ["alice", "10", "10", session, "checkout_session", "0"].map(Value::from)
    );
    shop.chat(&chat("flat", "hi"))
        .paid_by("alice")
        .send()
        .await
        .expect(200);
    let list = shop
        .get("/api/credits/topups?externalUserId=alice")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(list["data"][0]["sessionId"], session);
    shop.refund(session, &json!({ "usd": "1" }), "r")
        .await
        .expect(200);
    assert_eq!(
        shop.events("credits.refund.issued").pop().unwrap()["data"]["externalUserId"],
        "alice"
    );
}

// Specification 4.6, fault matrix 102, 130
async fn an_end_user_is_named_by_the_token_alone(store: Store) {
    let shop = Shop::new(store).await;
    let token = shop.token("alice", &json!({})).await;
    for (body, code) in [
        (
            json!({ "usd": "5", "externalUserId": "alice" }),
            "EXTERNAL_USER_ID_NOT_ALLOWED",
        ),
        (json!({ "usd": "5", "savePaymentMethod": true }), "UNKNOWN_FIELD"),
        (json!({ "usd": "0.5" }), "below_minimum"),
        (
            json!({ "usd": "5", "successUrl": "javascript:1" }),
            "VALIDATION_ERROR",
        ),
    ] {
        ask(&shop, &token, &body).send().await.refused(400, code);
    }
    let keyed = ask(&shop, &shop.key, &json!({ "usd": "5" })).send().await;
    assert_eq!(keyed.status, 403, "{}", keyed.text());
    let pool = shop.client.request(Method::POST, POOL_TOPUPS).bearer(&token);
    let pool = pool.json(&json!({ "usd": "5" })).send().await;
    assert_eq!(pool.status, 403, "{}", pool.text());
    assert!(shop.stripe.requests().is_empty());
}

// Fault matrix 145
async fn a_session_of_another_end_user_does_not_exist(store: Store) {
    let shop = Shop::new(store).await;
    let (alice, bob) = (
        shop.token("alice", &json!({})).await,
        shop.token("bob", &json!({})).await,
    );
    let own = ask(&shop, &alice, &json!({ "usd": "5" }))
        .send()
        .await
        .expect(200)
        .json();
    let own = own["sessionId"].as_str().unwrap();
    let pool = shop.open("5").await;
    let unknown = format!("cs_{}", "0".repeat(64));
    for session in [own, &pool, &unknown] {
        see(&shop, &bob, session).send().await.refused(404, "NOT_FOUND");
    }
    see(&shop, &alice, &pool).send().await.refused(404, "NOT_FOUND");
    // The same key is another end user's own.
    let body = json!({ "usd": "6" });
    let first = ask(&shop, &alice, &body)
        .once("k")
        .send()
        .await
        .expect(200)
        .json();
    let second = ask(&shop, &bob, &body).once("k").send().await.expect(200).json();
    assert_ne!(first["sessionId"], second["sessionId"]);
}

// Decisions 3
async fn a_token_needs_the_scope_to_top_up(store: Store) {
    let shop = Shop::new(store).await;
    for scopes in [json!(["spend"]), json!(["read"]), json!(["spend", "read"])] {
        let token = shop.token("alice", &json!({ "scopes": scopes })).await;
        let refused = ask(&shop, &token, &json!({ "usd": "5" })).send().await;
        refused.refused(403, "INSUFFICIENT_SCOPE");
    }
    let token = shop.token("alice", &json!({ "scopes": ["topup"] })).await;
    ask(&shop, &token, &json!({ "usd": "5" }))
        .send()
        .await
        .expect(200);
    let bound = shop
        .token("alice", &json!({ "sessionId": "a-session-of-the-app" }))
        .await;
    let bare = ask(&shop, &bound, &json!({ "usd": "5" })).send().await;
    bare.refused(400, "SESSION_HEADER_REQUIRED");
    let with = ask(&shop, &bound, &json!({ "usd": "5" })).header("x-svc-session-id", "a-session-of-the-app");
    with.send().await.expect(200);
}

// Decisions 7
async fn an_end_user_gets_no_volume_bonus(store: Store) {
    let tiers: toml::Table = "t = [{ min_usd = '2', bonus_bps = 1000 }]".parse().unwrap();
    let shop = Shop::of(store, |setup| {
        setup
            .without_fees()
            .set("processor.bonus_tiers", tiers["t"].clone())
    })
    .await;
    let token = shop.token("alice", &json!({})).await;
    let opened = ask(&shop, &token, &json!({ "usd": "5" }))
        .send()
        .await
        .expect(200)
        .json();
    let quote = &opened["quote"];
    assert!(
        opened.get("bonus").is_none() && quote.get("bonus").is_none() && quote.get("nextBonusTier").is_none()
    );
    shop.pay(opened["sessionId"].as_str().unwrap());
    shop.deliver().await;
    assert_eq!(shop.balance_of("alice").await["usd"], "5");
}

// Fault matrix 121
async fn a_flood_by_one_end_user_is_stopped_and_others_go_on(store: Store) {
    let shop = Shop::of(store, |setup| setup.set("limits.topups_per_minute", 3)).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        // A new token each time: it is the end user who is counted.
        let token = shop.token("alice", &json!({})).await;
        statuses.push(ask(&shop, &token, &json!({ "usd": "5" })).send().await.status);
    }
    assert!(
        statuses.starts_with(&[200, 200, 200]) && statuses.contains(&429),
        "{statuses:?}"
    );
    let token = shop.token("bob", &json!({})).await;
    ask(&shop, &token, &json!({ "usd": "5" }))
        .send()
        .await
        .expect(200);
}
