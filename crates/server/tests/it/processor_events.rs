//! The processor's events: whose are believed, in which order they come, how often, and what they move.

use http::Method;
use serde_json::{Value, json};

use crate::harness::payments::{EVENTS, Shop, WEBHOOK_SECRET};
use crate::harness::stripe::{raw, sign};
use crate::harness::{Store, eventually, micros, raw_exchange};
use crate::on_both_stores;

on_both_stores!(
    an_event_that_is_not_signed_right_moves_nothing,
    both_secrets_are_believed_while_one_is_replaced,
    fifty_copies_of_an_event_credit_once,
    money_that_comes_later_is_credited_when_it_comes,
    a_payment_before_its_session_was_stored_finds_its_top_up,
    a_payment_of_something_else_is_not_credited_and_is_reviewed,
    what_was_not_sold_here_is_ignored,
    a_paid_page_that_expired_is_credited_once,
    a_full_ledger_credits_nothing_and_is_reviewed,
);

const COMPLETED: &str = "credits.topup.completed";

const FAILED: &str = "credits.topup.failed";

/// A top-up that is paid and not told of, with the event that tells of it.
async fn paid(shop: &Shop) -> (String, Value) {
    let session = shop.open("5").await;
    shop.pay(&session);
    (session, shop.stripe.event("checkout.session.completed"))
}

// Fault matrix 107

async fn an_event_that_is_not_signed_right_moves_nothing(store: Store) {
    let shop = Shop::new(store).await;
    let (session, event) = paid(&shop).await;
    let url = shop.events_url();
    let body = raw(&event);
    let (_, good) = shop.stripe.signed(&event);
    let now: i64 = good[2..good.find(',').unwrap()].parse().unwrap();
    let v0 = good.replace("v1=", "v0=");
    let other_time = good.replacen(&now.to_string(), &(now + 1).to_string(), 1);
    for signature in [
        None,
        Some(""),
        Some("v1=00"),
        Some("t=,v1="),
        Some(&v0),
        Some(&other_time),
        Some(&good[..good.len() - 1]),
        Some(&sign("", &body, now)),
        Some(&sign("whsec_other", &body, now)),
    ] {
        let status = shop.stripe.deliver_raw(&url, &body, signature).await;
        assert_eq!(status, Some(400), "{signature:?}");
    }
    for off in [-301 - 5, 301 + 5] {
        assert_eq!(
            shop.stripe.deliver_at(&url, &event, now + off).await,
            Some(400),
            "{off}"
        );
    }
    assert_eq!(shop.stripe.forge(&url, &event).await, Some(400));
    // The same event, parsed and written again.
    let rewritten = serde_json::to_vec(&event).unwrap();
    assert_eq!(
        shop.stripe.deliver_raw(&url, &rewritten, Some(&good)).await,
        Some(400)
    );
    let mut changed = event.clone();
    changed["data"]["object"]["amount_total"] = json!(1);
    assert_eq!(
        shop.stripe.deliver_raw(&url, &raw(&changed), Some(&good)).await,
        Some(400)
    );
    // More than half a MiB is not read, whoever signed it.
    let head = format!(
        "POST {EVENTS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nstripe-signature: {good}\r\n\
         content-length: 1048576\r\n\r\n"
    );
    let large = raw_exchange(&shop.address(), head.as_bytes()).await;
    assert_eq!(
        (large.status, large.code().as_str()),
        (413, "REQUEST_BODY_TOO_LARGE")
    );
    assert_eq!(shop.topup(&session).await["status"], "open");
    assert_eq!((shop.pool().await, shop.events(COMPLETED).len()), ((0, 0), 0));
    assert_eq!(shop.stripe.deliver_raw(&url, &body, Some(&good)).await, Some(200));
    assert_eq!(shop.pool().await, (5_000_000, 0));
}

// Fault matrix 107: rotation

async fn both_secrets_are_believed_while_one_is_replaced(store: Store) {
    let shop = Shop::of(store, |setup| {
        let setup = setup.without_fees().set("processor.webhook_secret", "whsec_new");
        setup.set("processor.webhook_secret_old", WEBHOOK_SECRET)
    })
    .await;
    let url = shop.events_url();
    for secret in [WEBHOOK_SECRET, "whsec_new"] {
        let (session, event) = paid(&shop).await;
        let body = raw(&event);
        let good = shop.stripe.signed(&event).1;
        let now: i64 = good[2..good.find(',').unwrap()].parse().unwrap();
        // Stripe sends a signature of each secret, whichever comes first.
        let one = sign(secret, &body, now);
        let v1 = sign("whsec_gone", &body, now)
            .split_once(',')
            .unwrap()
            .1
            .to_owned();
        let both = one.replace(",v1=", &format!(",{v1},v1="));
        assert_eq!(
            shop.stripe.deliver_raw(&url, &body, Some(&both)).await,
            Some(200),
            "{secret}"
        );
        assert_eq!(shop.topup(&session).await["status"], "completed");
        shop.stripe.drop_events("checkout.session.completed");
    }
    assert_eq!(shop.pool().await, (10_000_000, 0));
}

// Fault matrix 108, I5, I8

async fn fifty_copies_of_an_event_credit_once(store: Store) {
    let shop = Shop::new(store).await;
    let (session, event) = paid(&shop).await;
    let mut deliveries = tokio::task::JoinSet::new();
    for index in 0..50 {
        let event = if index % 2 == 0 {
            event.clone()
        } else {
            shop.stripe.same_again(&event)
        };
        let (stripe, url) = (shop.stripe.clone(), shop.events_url());
        deliveries.spawn(async move { stripe.deliver(&url, &event).await });
    }
    for status in deliveries.join_all().await {
        assert_eq!(status, Some(200));
    }
    shop.deliver().await;
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED, FAILED])),
        ((5_000_000, 0), vec![1, 0])
    );
    assert_eq!(shop.topup(&session).await["review"], Value::Null);
    let entries = shop
        .ledger()
        .lines()
        .filter(|line| line.contains(&session))
        .count();
    assert!((1..=2).contains(&entries), "{}", shop.ledger());
}

// Fault matrix 109

async fn money_that_comes_later_is_credited_when_it_comes(store: Store) {
    let shop = Shop::new(store).await;
    let (arrives, fails, both) = (shop.open("5").await, shop.open("7").await, shop.open("9").await);
    for session in [&arrives, &fails, &both] {
        shop.stripe.pay_later(&shop.page(session));
    }
    shop.deliver().await;
    for session in [&arrives, &fails, &both] {
        assert_eq!(shop.topup(session).await["status"], "processing");
    }
    assert_eq!(shop.pool().await, (0, 0));
    shop.stripe.async_succeed(&shop.page(&arrives));
    shop.stripe.async_fail(&shop.page(&fails));
    // Told of in the wrong order: the failure of an attempt after the success.
    shop.stripe.async_fail(&shop.page(&both));
    shop.stripe.async_succeed(&shop.page(&both));
    shop.stripe.reorder(|events| events.reverse());
    shop.deliver().await;
    assert_eq!(shop.topup(&arrives).await["status"], "completed");
    assert_eq!(shop.topup(&both).await["status"], "completed");
    let failed = shop.topup(&fails).await;
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["failure"]["code"], "payment_intent_payment_attempt_failed");
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED, FAILED])),
        ((14_000_000, 0), vec![2, 1])
    );
}

// Fault matrix 111

async fn a_payment_before_its_session_was_stored_finds_its_top_up(store: Store) {
    let shop = Shop::new(store).await;
    // The page is made and every answer about it is lost: our row knows no page.
    shop.stripe
        .fail_next(3, crate::harness::stripe::Fault::DoneThenStatus(500));
    let asked = shop.ask(&json!({ "usd": "5" })).once("k").send().await;
    asked.refused(503, "SERVICE_UNAVAILABLE");
    let list = shop
        .get(crate::harness::payments::TOPUPS)
        .send()
        .await
        .expect(200)
        .json();
    let session = list["data"][0]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(
        (&list["data"][0]["status"], &list["data"][0]["url"]),
        (&json!("open"), &Value::Null)
    );
    shop.pay(&session);
    shop.deliver().await;
    assert_eq!(shop.topup(&session).await["status"], "completed");
    let again = shop
        .ask(&json!({ "usd": "5" }))
        .once("k")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&again["sessionId"], &again["status"]),
        (&json!(session), &json!("completed"))
    );
    assert_eq!(
        (shop.pool().await, shop.stripe.made("checkout.session")),
        ((5_000_000, 0), 1)
    );
}

// Fault matrix 112

async fn a_payment_of_something_else_is_not_credited_and_is_reviewed(store: Store) {
    let shop = Shop::new(store).await;
    for (field, value) in [
        ("amount_total", json!(499)),
        ("amount_total", json!(501)),
        ("currency", json!("eur")),
        ("livemode", json!(true)),
    ] {
        let session = shop.open("5").await;
        let page = shop.page(&session);
        shop.stripe.set_livemode(field == "livemode");
        if field != "livemode" {
            shop.stripe.tamper(&page, field, value);
        }
        shop.stripe.pay(&page);
        shop.deliver().await;
        shop.stripe.set_livemode(false);
        let topup = shop.topup(&session).await;
        assert_eq!(topup["status"], "open", "{field}");
        assert!(topup["review"].is_string(), "{field}: {topup}");
        assert!(shop.service().logged().contains("needs a person's review"));
    }
    assert_eq!((shop.pool().await, shop.ledger()), ((0, 0), String::new()));
    assert_eq!(shop.told(&[COMPLETED, FAILED]), [0, 0]);
}

// Fault matrix 113, I9

async fn what_was_not_sold_here_is_ignored(store: Store) {
    let shop = Shop::new(store).await;
    let (_, event) = paid(&shop).await;
    shop.stripe.drop_events("checkout.session.completed");
    shop.stripe.drop_events("payment_intent.succeeded");
    let url = shop.events_url();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut event = shop.stripe.same_again(&event);
        change(&mut event);
        event
    };
    for stranger in [
        // A page of another program on the same account, with or without a name of its own.
        changed(&|event| {
            event["data"]["object"]["id"] = json!("cs_test_other");
            event["data"]["object"]["client_reference_id"] = json!("order-7");
        }),
        changed(&|event| {
            event["data"]["object"]["id"] = json!("cs_test_other");
            event["data"]["object"]["client_reference_id"] = Value::Null;
            event["data"]["object"]["metadata"] = json!({});
        }),
        changed(&|event| {
            event["data"]["object"]["id"] = json!("cs_test_other");
            event["data"]["object"]["client_reference_id"] = json!("\u{0}".repeat(3));
        }),
        // What happened on an account that is connected to ours.
        changed(&|event| event["account"] = json!("acct_1")),
        changed(&|event| event["data"]["object"]["mode"] = json!("subscription")),
        changed(&|event| event["type"] = json!("customer.created")),
    ] {
        assert_eq!(
            shop.stripe.deliver(&url, &stranger).await,
            Some(200),
            "{stranger}"
        );
    }
    // A page of another program that names a session of ours: anybody who can make a page there can do that.
    let named = shop.open("5").await;
    let borrowed = changed(&|event| {
        event["data"]["object"]["id"] = json!("cs_test_other");
        event["data"]["object"]["client_reference_id"] = json!(named);
    });
    assert_eq!(shop.stripe.deliver(&url, &borrowed).await, Some(200));
    let topup = shop.topup(&named).await;
    assert_eq!(
        (&topup["status"], &topup["review"]),
        (&json!("open"), &json!("paid at another page"))
    );
    // A payment that names the session of another workspace fills that workspace's balance, if any.
    let (other, key) = shop.workspace("Others");
    let theirs = shop
        .client
        .request(Method::POST, crate::harness::payments::POOL_TOPUPS)
        .bearer(&key);
    let theirs = theirs
        .json(&json!({ "usd": "5" }))
        .send()
        .await
        .expect(200)
        .json();
    let theirs = theirs["sessionId"].as_str().unwrap().to_owned();
    let forged = changed(&|event| {
        event["data"]["object"]["client_reference_id"] = json!(theirs);
        event["data"]["object"]["metadata"] = json!({ "tenant": other });
    });
    // The processor's own name of the page is ours, so ours it is, whatever the buyer wrote.
    assert_eq!(shop.stripe.deliver(&url, &forged).await, Some(200));
    assert_eq!(shop.pool().await, (5_000_000, 0));
    let balance = shop
        .client
        .request(Method::GET, "/api/credits/balance")
        .bearer(&key);
    assert_eq!(balance.send().await.expect(200).json()["usd"], "0");
}

// Fault matrix 117

async fn a_paid_page_that_expired_is_credited_once(store: Store) {
    let shop = Shop::new(store).await;
    let session = shop.open("5").await;
    shop.stripe.expire(&shop.page(&session));
    shop.deliver().await;
    assert_eq!(shop.topup(&session).await["status"], "expired");
    assert_eq!(shop.events(FAILED)[0]["data"]["failureCode"], "expired");
    shop.pay(&session);
    shop.stripe.duplicate("checkout.session.completed");
    shop.deliver().await;
    let topup = shop.topup(&session).await;
    assert_eq!(
        (&topup["status"], topup.get("failure")),
        (&json!("completed"), None)
    );
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED, FAILED])),
        ((5_000_000, 0), vec![1, 1])
    );
    // The other way round: an expiry after the payment changes nothing.
    let session = shop.open("5").await;
    shop.stripe.expire(&shop.page(&session));
    shop.pay(&session);
    shop.stripe.reorder(|events| events.reverse());
    shop.deliver().await;
    assert_eq!(shop.topup(&session).await["status"], "completed");
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED, FAILED])),
        ((10_000_000, 0), vec![2, 1])
    );
}

// Fault matrix 119

// Fault matrix 8

async fn a_full_ledger_credits_nothing_and_is_reviewed(store: Store) {
    let shop = Shop::new(store).await;
    shop.grant("9223372036850", None);
    let session = shop.open("5").await;
    shop.pay(&session);
    shop.deliver().await;
    let topup = shop.topup(&session).await;
    assert_eq!(topup["status"], "open");
    assert!(topup["review"].is_string(), "{topup}");
    assert_eq!(shop.pool().await, (micros("9223372036850"), 0));
    // The grant was told of, and nothing else.
    let told = shop.events(COMPLETED);
    assert_eq!(
        (told.len(), &told[0]["data"]["source"]),
        (1, &json!("manual_grant"))
    );
    eventually("the operator was told", || async {
        shop.service()
            .logged()
            .contains("needs a person's review")
            .then_some(())
    })
    .await;
}
