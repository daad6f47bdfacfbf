//! Asking for top-ups of the pool: what is refused, what is quoted, what a repeat answers, who sees it.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::harness::Store;
use crate::harness::payments::{POOL_TOPUPS, Shop, TOPUPS};
use crate::on_both_stores;

on_both_stores!(
    a_body_that_is_not_exact_opens_nothing,
    amounts_outside_the_limits_are_refused_with_the_limit,
    a_workspace_narrows_the_limits_and_never_widens_them,
    addresses_that_lead_astray_are_refused,
    an_idempotency_key_opens_one_session,
    sessions_of_another_workspace_do_not_exist,
    the_list_is_newest_first_and_complete_across_pages,
    a_flood_of_sessions_is_stopped_for_the_whole_workspace,
    only_an_active_workspace_opens_top_ups,
);

/// What the processor and the ledger have seen of top-ups.
async fn nothing_happened(shop: &Shop) {
    assert!(shop.stripe.requests().is_empty());
    let list = shop.get(TOPUPS).send().await.expect(200).json();
    assert_eq!(list, json!({ "success": true, "data": [], "next_cursor": null }));
    assert_eq!((shop.ledger(), shop.pool().await), (String::new(), (0, 0)));
}

// Fault matrix 2-5, 102

async fn a_body_that_is_not_exact_opens_nothing(store: Store) {
    let shop = Shop::new(store).await;
    for (body, code) in [
        (json!({}), "VALIDATION_ERROR"),
        (json!({ "usd": "5", "credits": "5000" }), "VALIDATION_ERROR"),
        (json!({ "usd": null }), "VALIDATION_ERROR"),
        (json!({ "usd": 5 }), "VALIDATION_ERROR"),
        (json!({ "credits": 5000 }), "VALIDATION_ERROR"),
        (
            json!({ "usd": "5", "externalUserId": "alice" }),
            "EXTERNAL_USER_ID_NOT_ALLOWED",
        ),
        (json!({ "usd": "5", "currency": "eur" }), "UNKNOWN_FIELD"),
        (json!({ "usd": "5", "USD": "5" }), "UNKNOWN_FIELD"),
        (json!({ "usd": "5", "metadata": "text" }), "VALIDATION_ERROR"),
        (json!({ "usd": "5", "metadata": [] }), "VALIDATION_ERROR"),
        (json!({ "usd": "5", "successUrl": 1 }), "VALIDATION_ERROR"),
        (
            json!({ "usd": "5", "savePaymentMethod": "yes" }),
            "VALIDATION_ERROR",
        ),
        (json!([]), "INVALID_JSON"),
    ] {
        let refused = shop.ask(&body).once("k").send().await;
        refused.refused(400, code);
    }
    for amount in [
        "",
        ".",
        ".5",
        "5.",
        "+5",
        "-5",
        "5e0",
        "5,0",
        "5_0",
        " 5",
        "5 ",
        "5\n",
        "0x5",
        "NaN",
        "٥",
        "５",
        "5.0000000",
        "9223372036854.775808",
        &"9".repeat(400),
    ] {
        for name in ["usd", "credits"] {
            let refused = shop.ask(&json!({ name: amount })).send().await;
            refused.refused(400, "VALIDATION_ERROR");
        }
    }
    // Twice the same member, and a body that is cut off.
    for raw in [r#"{"usd":"5","usd":"6"}"#, r#"{"usd":"5""#] {
        let asked = shop.client.request(Method::POST, POOL_TOPUPS).bearer(&shop.key);
        asked.raw_json(raw).send().await.refused(400, "INVALID_JSON");
    }
    nothing_happened(&shop).await;
    // What was refused has not used its key.
    shop.ask(&json!({ "usd": "5" }))
        .once("k")
        .send()
        .await
        .expect(200);
}

// Fault matrix 7, 103

async fn amounts_outside_the_limits_are_refused_with_the_limit(store: Store) {
    let shop = Shop::new(store).await;
    for amount in ["0", "0.000000", "0.5", "0.999999"] {
        let refused = shop.ask(&json!({ "usd": amount })).send().await;
        assert_eq!(refused.refused(400, "below_minimum").json()["minUsd"], "1");
    }
    for amount in ["10000.000001", "999999.99", "9223372036854.775807"] {
        let refused = shop.ask(&json!({ "usd": amount })).send().await;
        assert_eq!(refused.refused(400, "above_maximum").json()["maxUsd"], "10000");
    }
    let few = shop.ask(&json!({ "credits": "999.999" })).send().await;
    few.refused(400, "below_minimum");
    nothing_happened(&shop).await;
    for amount in ["1", "1.000000", "10000"] {
        shop.ask(&json!({ "usd": amount })).send().await.expect(200);
    }
}

// Decisions 7: tenant-narrowable

async fn a_workspace_narrows_the_limits_and_never_widens_them(store: Store) {
    let shop = Shop::new(store).await;
    let narrow = json!({ "topups": { "minUsd": "5", "maxUsd": "50" } });
    shop.settings(&narrow).await.expect(200);
    let below = shop.ask(&json!({ "usd": "4.99" })).send().await;
    assert_eq!(below.refused(400, "below_minimum").json()["minUsd"], "5");
    let above = shop.ask(&json!({ "usd": "50.01" })).send().await;
    assert_eq!(above.refused(400, "above_maximum").json()["maxUsd"], "50");
    shop.ask(&json!({ "usd": "5" })).send().await.expect(200);
    let wide = json!({ "topups": { "minUsd": "0.01", "maxUsd": "1000000" } });
    shop.settings(&wide).await.expect(200);
    let below = shop.ask(&json!({ "usd": "0.99" })).send().await;
    below.refused(400, "below_minimum");
    let above = shop.ask(&json!({ "usd": "10000.01" })).send().await;
    above.refused(400, "above_maximum");
    shop.ask(&json!({ "usd": "10000" })).send().await.expect(200);
}

// Fault matrix 104

async fn addresses_that_lead_astray_are_refused(store: Store) {
    let shop = Shop::new(store).await;
    let long = format!("https://ok.example/{}", "x".repeat(2030));
    for bad in [
        "javascript:alert(1)",
        "data:text/html,x",
        "//evil.example",
        "/relative",
        "https://ok.example@evil.example/",
        "https://ok.example/\r\nx",
        "https://b\u{fc}cher.example/",
        "http://ok.example/",
        // Would add a directive to the checkout page's policy.
        "https://ok.example;sandbox/",
        "",
        &long,
    ] {
        for name in ["successUrl", "cancelUrl"] {
            let refused = shop.ask(&json!({ "usd": "5", name: bad })).send().await;
            let refused = refused.refused(400, "VALIDATION_ERROR").json();
            assert_eq!(refused["details"][0]["path"], name, "{bad:?}");
        }
    }
    nothing_happened(&shop).await;
    let longest = format!("https://ok.example/{}", "x".repeat(2029));
    assert_eq!(longest.len(), 2048);
    let hosts = json!({ "topups": { "urlHosts": ["shop.example"] } });
    shop.ask(&json!({ "usd": "5", "successUrl": longest }))
        .send()
        .await
        .expect(200);
    shop.settings(&hosts).await.expect(200);
    let elsewhere = shop.ask(&json!({ "usd": "5", "successUrl": "https://ok.example/" }));
    elsewhere.send().await.refused(400, "VALIDATION_ERROR");
    let good = json!({
        "usd": "5",
        "successUrl": "https://shop.example/done?s={CHECKOUT_SESSION_ID}",
        "cancelUrl": "https://SHOP.example/back",
    });
    let opened = shop.ask(&good).send().await.expect(200).json();
    let session = opened["sessionId"].as_str().unwrap();
    let asked = shop.stripe.requests().pop().unwrap().form;
    assert_eq!(
        asked["success_url"],
        format!("https://shop.example/done?s={session}")
    );
    assert_eq!(asked["cancel_url"], "https://shop.example/back");
}

// Fault matrix 105

// Fault matrix 28, 29, 31, 32

async fn an_idempotency_key_opens_one_session(store: Store) {
    let shop = Shop::new(store).await;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..20 {
        asked.spawn(shop.ask(&json!({ "usd": "5" })).once("k").send());
    }
    let mut sessions = BTreeSet::new();
    for reply in asked.join_all().await {
        sessions.insert(reply.expect(200).json()["sessionId"].as_str().unwrap().to_owned());
    }
    assert_eq!((sessions.len(), shop.stripe.made("checkout.session")), (1, 1));
    let session = sessions.pop_first().unwrap();
    for body in [
        json!({ "usd": "6" }),
        json!({ "usd": "5.0" }),
        json!({ "credits": "5000" }),
    ] {
        shop.ask(&body)
            .once("k")
            .send()
            .await
            .refused(409, "IDEMPOTENCY_KEY_CONFLICT");
    }
    shop.pay(&session);
    shop.deliver().await;
    // A repeat shows the session as it is now, and opens nothing.
    let again = shop
        .ask(&json!({ "usd": "5" }))
        .once("k")
        .send()
        .await
        .expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let again = again.json();
    assert_eq!(
        (&again["sessionId"], &again["status"]),
        (&json!(session), &json!("completed"))
    );
    assert_eq!(again["url"], Value::Null);
    let (_, stranger) = shop.workspace("Others");
    let theirs = shop
        .client
        .request(Method::POST, POOL_TOPUPS)
        .bearer(&stranger)
        .once("k");
    let theirs = theirs
        .json(&json!({ "usd": "5" }))
        .send()
        .await
        .expect(200)
        .json();
    assert_ne!(theirs["sessionId"], again["sessionId"]);
    for bad in ["", "a b", &"k".repeat(256), "\u{e9}"] {
        let refused = shop.ask(&json!({ "usd": "5" })).once(bad).send().await;
        refused.refused(400, "IDEMPOTENCY_KEY_INVALID");
    }
    assert_eq!(shop.stripe.made("checkout.session"), 2);
}

// Fault matrix 145, 150

async fn sessions_of_another_workspace_do_not_exist(store: Store) {
    let shop = Shop::new(store).await;
    let (session, _) = shop.bought("5").await;
    let (_, stranger) = shop.workspace("Others");
    let unknown = format!("cs_{}", "0".repeat(64));
    for path in ["", "/refunds"] {
        let mut answers = Vec::new();
        for id in [&session, &unknown, &shop.page(&session)] {
            let method = if path.is_empty() {
                Method::GET
            } else {
                Method::POST
            };
            let asked = shop.client.request(method, &format!("{TOPUPS}/{id}{path}"));
            let asked = asked.bearer(&stranger).once("k").json(&json!({}));
            let mut body = asked.send().await.refused(404, "NOT_FOUND").json();
            body["requestId"] = Value::Null;
            answers.push(body);
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    let list = shop.client.request(Method::GET, TOPUPS).bearer(&stranger);
    assert_eq!(list.send().await.expect(200).json()["data"], json!([]));
    let cursor = format!("{TOPUPS}?cursor={session}");
    let foreign = shop.client.request(Method::GET, &cursor).bearer(&stranger);
    foreign.send().await.refused(400, "CURSOR_INVALID");
    assert_eq!(shop.pool().await, (5_000_000, 0));
}

// Fault matrix 177

async fn the_list_is_newest_first_and_complete_across_pages(store: Store) {
    let shop = Shop::new(store).await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.insert(0, shop.open("5").await);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = shop
            .get(&format!("{TOPUPS}?limit=2{cursor}"))
            .send()
            .await
            .expect(200)
            .json();
        let topups = page["data"].as_array().unwrap();
        seen.extend(
            topups
                .iter()
                .map(|topup| topup["sessionId"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next_cursor"].as_str() else {
            break;
        };
        assert_eq!(seen.last().map(String::as_str), Some(next));
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, sessions);
    let whole = shop
        .get(&format!("{TOPUPS}?limit=5"))
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(whole["next_cursor"], Value::Null);
    for bad in ["limit=0", "limit=101", "limit=x", "externalUserId=a%20b"] {
        let refused = shop.get(&format!("{TOPUPS}?{bad}")).send().await;
        refused.refused(400, "VALIDATION_ERROR");
    }
    for bad in ["cs_unknown", "x", ""] {
        let refused = shop.get(&format!("{TOPUPS}?cursor={bad}")).send().await;
        refused.refused(400, "CURSOR_INVALID");
    }
    let nobody = shop.get(&format!("{TOPUPS}?externalUserId=nobody")).send().await;
    assert_eq!(nobody.expect(200).json()["data"], json!([]));
}

// Fault matrix 121

async fn a_flood_of_sessions_is_stopped_for_the_whole_workspace(store: Store) {
    let shop = Shop::of(store, |setup| setup.set("limits.topups_per_minute", 5)).await;
    let mut statuses = Vec::new();
    for index in 0..12 {
        // A new key each time: it is the workspace that is counted.
        let key = shop.new_key("secret", &["credits:move"]);
        let asked = shop.client.request(Method::POST, POOL_TOPUPS).bearer(&key);
        let reply = asked
            .json(&json!({ "usd": "5" }))
            .once(&index.to_string())
            .send()
            .await;
        if reply.status == 429 {
            assert!(reply.header("retry-after").is_some());
        }
        statuses.push(reply.status);
    }
    let taken = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    // Issuing the keys takes time, in which the limit fills up again a little.
    assert!((5..=7).contains(&taken) && taken + refused == 12, "{statuses:?}");
    assert_eq!(shop.stripe.made("checkout.session"), taken);
    let (_, stranger) = shop.workspace("Others");
    let other = shop.client.request(Method::POST, POOL_TOPUPS).bearer(&stranger);
    other.json(&json!({ "usd": "5" })).send().await.expect(200);
}

// Fault matrix 151

async fn only_an_active_workspace_opens_top_ups(store: Store) {
    let shop = Shop::new(store).await;
    let (session, _) = shop.bought("5").await;
    let waiting = shop.open("7").await;
    shop.operate(&["tenant", "suspend", &shop.tenant]);
    // The ledger knows it at once; what is taken from memory is at most a second old.
    let refund = shop.refund(&session, &json!({}), "r").await;
    refund.refused(403, "TENANT_SUSPENDED");
    shop.ask(&json!({ "usd": "5" }))
        .send()
        .await
        .refused(403, "TENANT_SUSPENDED");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let auto = json!({ "enabled": false });
    let put = shop
        .client
        .request(Method::PUT, "/api/credits/tenants/me/auto-topup");
    let put = put.bearer(&shop.key).json(&auto).send().await;
    put.refused(403, "TENANT_SUSPENDED");
    // What a customer has paid is credited all the same.
    shop.pay(&waiting);
    shop.deliver().await;
    assert_eq!(shop.topup(&waiting).await["status"], "completed");
    assert_eq!(shop.pool().await, (12_000_000, 0));
}
