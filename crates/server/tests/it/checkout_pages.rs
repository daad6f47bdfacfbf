//! The development checkout at `/checkout/{sessionId}`, and that nothing but a processor's word credits.

use http::Method;
use serde_json::json;

use crate::harness::payments::{POOL_TOPUPS, Shop, TOPUPS};
use crate::harness::{Reply, Setup, Site, Store, eventually, micros};
use crate::on_both_stores;

on_both_stores!(
    a_customer_who_pays_is_credited_once_and_sent_back,
    a_customer_whose_card_is_refused_is_not_credited,
    a_page_that_is_over_takes_no_payment,
    a_redirect_credits_nobody,
    the_pages_of_another_processor_are_not_ours,
    a_saved_test_card_fills_the_pool_by_itself,
);

async fn site(store: Store) -> Site {
    let setup = Setup::new(store).grant(None);
    setup.set("limits.topups_per_minute", 0).start().await
}

/// Opens a top-up of ten dollars; gives its session and the path of its page.
async fn open(site: &Site, more: &[(&str, &str)]) -> (String, String) {
    let mut body = json!({ "usd": "10" });
    for (name, value) in more {
        body[*name] = json!(value);
    }
    let opened = site.post(POOL_TOPUPS, &body).send().await.expect(200).json();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let path = format!("/checkout/{session}");
    assert!(opened["url"].as_str().unwrap().ends_with(&path));
    (session, path)
}

async fn ask(site: &Site, method: Method, path: &str) -> Reply {
    site.client.request(method, path).send().await
}

async fn status(site: &Site, session: &str) -> String {
    let topup = site.get(&format!("{TOPUPS}/{session}")).send().await.expect(200);
    topup.json()["status"].as_str().unwrap().to_owned()
}

fn leads_to(reply: Reply) -> String {
    let reply = reply.expect(303);
    reply.header("location").unwrap().to_owned()
}

/// Nothing may be loaded or framed, and forms lead to ourselves and `elsewhere` only.
fn is_a_safe_page(reply: &Reply, elsewhere: &str) {
    let policy = reply.header("content-security-policy").unwrap();
    for directive in ["default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"] {
        assert!(policy.contains(directive), "{policy}");
    }
    let forms = policy.split("form-action ").nth(1).unwrap().trim();
    assert_eq!(forms, format!("'self' {elsewhere}").trim());
    assert!(
        !policy.contains("script-src") && !policy.contains("unsafe"),
        "{policy}"
    );
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name}");
    }
    assert!(!reply.text().contains("<script"));
}

// Specification 2.7, fault matrix 108
async fn a_customer_who_pays_is_credited_once_and_sent_back(store: Store) {
    let site = site(store).await;
    let back = [
        ("successUrl", "https://shop.example/done?s={CHECKOUT_SESSION_ID}"),
        ("cancelUrl", "http://127.0.0.1:8/back"),
    ];
    let (session, path) = open(&site, &back).await;
    let shown = ask(&site, Method::GET, &path).await.expect(200);
    is_a_safe_page(&shown, "https://shop.example http://127.0.0.1:8");
    assert!(shown.text().contains("$10.61"));
    let pay = format!("{path}/pay");
    let mut presses = tokio::task::JoinSet::new();
    for _ in 0..10 {
        presses.spawn(site.client.request(Method::POST, &pay).send());
    }
    let done = format!("https://shop.example/done?s={session}");
    let result = format!("{path}/result");
    for reply in presses.join_all().await {
        let to = leads_to(reply);
        assert!(to == done || to == result, "{to}");
    }
    assert_eq!(site.settled().await, micros("10"));
    assert_eq!(site.events("credits.topup.completed").len(), 1);
    assert_eq!(leads_to(ask(&site, Method::GET, &path).await), result);
    // Refusing now changes nothing.
    assert_eq!(
        leads_to(ask(&site, Method::POST, &format!("{path}/decline")).await),
        result
    );
    assert_eq!(status(&site, &session).await, "completed");
    let shown = ask(&site, Method::GET, &result).await.expect(200);
    is_a_safe_page(&shown, "");
    assert!(
        shown.text().contains(&done.replace('&', "&amp;")),
        "{}",
        shown.text()
    );
    // Without an address of the workspace's the customer sees ours.
    let (_, path) = open(&site, &[]).await;
    let to = leads_to(ask(&site, Method::POST, &format!("{path}/pay")).await);
    assert_eq!(to, format!("{path}/result"));
    assert_eq!(site.settled().await, micros("20"));
}

async fn a_customer_whose_card_is_refused_is_not_credited(store: Store) {
    let site = site(store).await;
    let (session, path) = open(&site, &[("successUrl", "https://shop.example/")]).await;
    let result = format!("{path}/result");
    for choice in ["decline", "decline", "pay"] {
        let to = leads_to(ask(&site, Method::POST, &format!("{path}/{choice}")).await);
        assert_eq!(to, result, "{choice}");
    }
    assert_eq!(
        (status(&site, &session).await.as_str(), site.settled().await),
        ("failed", 0)
    );
    let failed = site.events("credits.topup.failed");
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["data"]["failureCode"], "card_declined");
    let shown = ask(&site, Method::GET, &result).await.expect(200);
    is_a_safe_page(&shown, "");
}

// Fault matrix 117
async fn a_page_that_is_over_takes_no_payment(store: Store) {
    let site = site(store).await;
    let (session, path) = open(&site, &[]).await;
    let sql = match store {
        Store::Sqlite => {
            "UPDATE topups SET document = json_set(document, '$.expiresAt', '2020-01-01T00:00:00Z')"
        }
        Store::Postgres => {
            "UPDATE topups SET document = regexp_replace(document, '\"expiresAt\":\"[^\"]*\"', '\"expiresAt\":\"2020-01-01T00:00:00Z\"')"
        }
    };
    site.database.execute(sql).await;
    let result = format!("{path}/result");
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::POST, format!("{path}/pay")),
        (Method::POST, format!("{path}/decline")),
    ] {
        assert_eq!(leads_to(ask(&site, method, &path).await), result);
    }
    assert_eq!(
        (status(&site, &session).await.as_str(), site.settled().await),
        ("open", 0)
    );
    let shown = ask(&site, Method::GET, &result).await.expect(200);
    assert!(
        shown.text().to_lowercase().contains("expired"),
        "{}",
        shown.text()
    );
    for unknown in [
        "cs_unknown",
        &format!("cs_{}", "0".repeat(64)),
        "x",
        "%00",
        "cs_builtin_x",
    ] {
        for (method, tail) in [
            (Method::GET, ""),
            (Method::GET, "/result"),
            (Method::POST, "/pay"),
            (Method::POST, "/decline"),
        ] {
            let reply = ask(&site, method, &format!("/checkout/{unknown}{tail}")).await;
            assert_eq!(reply.status, 404, "{unknown}{tail}: {}", reply.text());
        }
    }
    // The processor's own name of the session is no name of a page.
    let theirs = ask(&site, Method::GET, &format!("/checkout/cs_builtin_{session}")).await;
    assert_eq!(theirs.status, 404);
}

// Fault matrix 120
async fn a_redirect_credits_nobody(store: Store) {
    let site = site(store).await;
    let (session, path) = open(&site, &[("successUrl", "https://shop.example/?success=1")]).await;
    for query in [
        "?success=1",
        "/result?success=1",
        "/result?status=completed&paid=true",
    ] {
        ask(&site, Method::GET, &format!("{path}{query}"))
            .await
            .expect(200);
    }
    // Nor does what was not signed by the processor.
    for signature in [None, Some("t=1,v1=00"), Some("")] {
        let event = json!({ "id": "evt_1", "type": "checkout.session.completed", "livemode": false });
        let mut call = site
            .client
            .request(Method::POST, crate::harness::payments::EVENTS);
        if let Some(signature) = signature {
            call = call.header("stripe-signature", signature);
        }
        call.json(&event).send().await.refused(400, "VALIDATION_ERROR");
    }
    assert_eq!(
        (status(&site, &session).await.as_str(), site.settled().await),
        ("open", 0)
    );
}

async fn the_pages_of_another_processor_are_not_ours(store: Store) {
    let shop = Shop::new(store).await;
    let session = shop.open("10").await;
    let path = format!("/checkout/{session}");
    ask(&shop, Method::GET, &path).await.expect(404);
    for choice in ["pay", "decline"] {
        ask(&shop, Method::POST, &format!("{path}/{choice}"))
            .await
            .expect(404);
    }
    assert_eq!(shop.topup(&session).await["status"], "open");
    // What became of it is shown here, when the workspace names no address of its own.
    let form = shop.stripe.requests().pop().unwrap().form;
    assert!(
        form["success_url"].ends_with(&format!("{path}/result")),
        "{form:?}"
    );
    let shown = ask(&shop, Method::GET, &format!("{path}/result"))
        .await
        .expect(200);
    is_a_safe_page(&shown, "");
    assert_eq!(shop.pool().await, (0, 0));
}

// Decisions 7, without a processor
async fn a_saved_test_card_fills_the_pool_by_itself(store: Store) {
    let site = site(store).await;
    let asked = json!({ "usd": "10", "savePaymentMethod": true });
    let opened = site.post(POOL_TOPUPS, &asked).send().await.expect(200).json();
    let session = opened["sessionId"].as_str().unwrap();
    leads_to(ask(&site, Method::POST, &format!("/checkout/{session}/pay")).await);
    let choice = json!({ "enabled": true, "thresholdUsd": "11", "amountUsd": "20" });
    let put = site
        .client
        .request(Method::PUT, "/api/credits/tenants/me/auto-topup");
    put.bearer(&site.key).json(&choice).send().await.expect(200);
    eventually("the pool is filled", || async {
        (site.settled().await == micros("30")).then_some(())
    })
    .await;
    let sources: Vec<_> = site
        .events("credits.topup.completed")
        .iter()
        .map(|event| event["data"]["source"].clone())
        .collect();
    assert_eq!(sources, ["checkout_session", "auto_reload"]);
    // And back again: the whole payment, held and then gone.
    let refund = site.post(&format!("{TOPUPS}/{session}/refunds"), &json!({}));
    let refund = refund.once("r").send().await.expect(200).json();
    assert_eq!(
        (&refund["status"], &refund["amountUsd"]),
        (&json!("succeeded"), &json!("10.61"))
    );
    assert_eq!(status(&site, session).await, "refunded");
}
