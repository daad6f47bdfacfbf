//! Money that goes back by refunds: asked for here, made at the processor, failed afterwards.

use http::Method;
use serde_json::{Value, json};

use crate::harness::payments::Shop;
use crate::harness::{Client, Store, chat, micros};
use crate::on_both_stores;

on_both_stores!(
    a_refund_takes_the_credits_and_the_fee_back,
    refunds_in_parts_take_the_bonus_pro_rata_and_give_it_back_when_they_fail,
    a_refund_of_spent_credits_is_refused,
    a_refund_at_the_processor_of_spent_credits_freezes_the_account,
    a_refund_before_its_payment_takes_effect_when_the_payment_does,
    a_refund_of_a_second_payment_takes_nothing,
    top_ups_calls_and_refunds_at_once_lose_nothing,
);

const ISSUED: &str = "credits.refund.issued";

const FROZEN: &str = "credits.account.frozen";

/// Of the newest refund event: status, what the customer got, what the credits were.
fn issued(shop: &Shop) -> (Value, Value, Value) {
    let data = shop.events(ISSUED).pop().unwrap()["data"].clone();
    (
        data["status"].clone(),
        data["amountUsd"].clone(),
        data["balanceUsd"].clone(),
    )
}

// Fault matrix 114; decisions 11

async fn a_refund_takes_the_credits_and_the_fee_back(store: Store) {
    let shop = Shop::of(store, |setup| setup).await;
    let (session, payment) = shop.bought("10").await;
    assert_eq!(shop.topup(&session).await["refundableUsd"], "10.61");
    let refund = shop
        .refund(&session, &json!({ "reason": "unhappy" }), "r")
        .await
        .expect(200)
        .json();
    let shown = [
        "status",
        "amountUsd",
        "creditsUsd",
        "feeUsd",
        "bonusUsd",
        "reason",
    ]
    .map(|name| refund[name].clone());
    let expected = ["succeeded", "10.61", "10", "0.61", "0", "unhappy"];
    assert_eq!(shown, expected.map(Value::from), "{refund}");
    let topup = shop.topup(&session).await;
    assert_eq!(
        (&topup["status"], &topup["refundableUsd"]),
        (&json!("refunded"), &json!("0"))
    );
    assert_eq!(topup["refunds"][0]["refundId"], refund["refundId"]);
    // The processor tells of it as well, twice.
    shop.stripe.duplicate("refund.created");
    shop.deliver().await;
    assert_eq!(
        (shop.pool().await, shop.stripe.refunds_of(&payment).len()),
        ((0, 0), 1)
    );
    let event = shop.events(ISSUED);
    assert_eq!(event.len(), 1);
    let mut data = event[0]["data"].clone();
    data.as_object_mut().unwrap().remove("occurredAt").unwrap();
    // What the credits were worth comes on top of the specified members.
    data.as_object_mut().unwrap().remove("creditsUsd").unwrap();
    assert_eq!(
        data,
        json!({
            "externalUserId": null, "reference": refund["refundId"], "refundId": refund["refundId"],
            "kind": "topup_refund", "amountUsd": "10.61", "balanceUsd": "0", "originalReference": session,
            "reason": "unhappy", "status": "succeeded",
        })
    );
}

// Fault matrix 11, 114, I5

async fn refunds_in_parts_take_the_bonus_pro_rata_and_give_it_back_when_they_fail(store: Store) {
    let shop = Shop::of(store, |setup| {
        let tiers: toml::Table = "t = [{ min_usd = '100', bonus_bps = 333 }]".parse().unwrap();
        setup
            .without_fees()
            .set("processor.bonus_tiers", tiers["t"].clone())
    })
    .await;
    let (session, payment) = shop.bought("100").await;
    assert_eq!(shop.pool().await, (micros("103.33"), 0));
    let first = shop
        .refund(&session, &json!({ "usd": "33.34" }), "1")
        .await
        .expect(200)
        .json();
    // 33.34 % of the bonus is 1.110222.
    assert_eq!(first["bonusUsd"], "1.110222");
    let left = micros("103.33") - micros("33.34") - micros("1.110222");
    assert_eq!(shop.pool().await, (left, 0));
    let more = shop.refund(&session, &json!({ "usd": "66.67" }), "2").await;
    more.refused(400, "VALIDATION_ERROR");
    shop.refund(&session, &json!({ "usd": "0.01" }), "3")
        .await
        .expect(200);
    shop.refund(&session, &json!({}), "4").await.expect(200);
    assert_eq!(shop.pool().await, (0, 0), "the parts are the whole");
    assert_eq!(shop.topup(&session).await["status"], "refunded");
    shop.deliver().await;
    // The first did not reach the customer after all.
    let name = shop
        .stripe
        .refunds_of(&payment)
        .into_iter()
        .find(|id| shop.stripe.object(id)["amount"] == 3334);
    shop.stripe.fail_refund(&name.unwrap());
    shop.deliver().await;
    assert_eq!(shop.pool().await, (micros("33.34") + micros("1.110222"), 0));
    assert_eq!(issued(&shop).0, "failed");
    let topup = shop.topup(&session).await;
    assert_eq!(
        (&topup["status"], &topup["refundableUsd"]),
        (&json!("completed"), &json!("33.34"))
    );
    shop.refund(&session, &json!({}), "5").await.expect(200);
    assert_eq!(shop.pool().await, (0, 0));
    assert_eq!(
        (
            shop.topup(&session).await["status"].clone(),
            shop.events(ISSUED).len()
        ),
        (json!("refunded"), 5)
    );
}

// Decisions 7

async fn a_refund_of_spent_credits_is_refused(store: Store) {
    let shop = Shop::new(store).await;
    let (session, payment) = shop.bought("5").await;
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
    let refused = shop
        .refund(&session, &json!({}), "r")
        .await
        .refused(402, "INSUFFICIENT_CREDITS")
        .json();
    assert_eq!(
        (&refused["requiredCredits"], &refused["availableCredits"]),
        (&json!("5000"), &json!("4990"))
    );
    assert_eq!(
        (shop.stripe.refunds_of(&payment).len(), shop.events(ISSUED).len()),
        (0, 0)
    );
    // The refusal has not used the key.
    shop.refund(&session, &json!({ "usd": "4.99" }), "r")
        .await
        .expect(200);
    assert_eq!(shop.pool().await, (0, 0));
    let topup = shop.topup(&session).await;
    assert_eq!(
        (&topup["status"], &topup["refundableUsd"]),
        (&json!("completed"), &json!("0.01"))
    );
}

// Fault matrix 115, I2

async fn a_refund_at_the_processor_of_spent_credits_freezes_the_account(store: Store) {
    let shop = Shop::new(store).await;
    let (session, payment) = shop.bought("5").await;
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
    let refund = shop.stripe.refund(&payment, 500);
    shop.deliver().await;
    assert_eq!(shop.pool().await, (0, 0));
    assert_eq!(shop.topup(&session).await["status"], "refunded");
    assert_eq!(shop.told(&[ISSUED, FROZEN]), [1, 1]);
    let frozen = shop.events(FROZEN).pop().unwrap()["data"].clone();
    assert_eq!(
        (&frozen["reason"], &frozen["balanceUsd"]),
        (&json!("refund_of_spent_credits"), &json!("0"))
    );
    // Not even with new money, while the debt stands.
    shop.grant("1", None);
    let sent = shop.upstream.count();
    shop.chat(&chat("flat", "hi"))
        .send()
        .await
        .refused(403, "ACCOUNT_FROZEN");
    assert_eq!(shop.upstream.count(), sent);
    shop.stripe.fail_refund(&refund);
    shop.deliver().await;
    assert_eq!(shop.pool().await, (micros("5.99"), 0));
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
    assert_eq!(shop.told(&[ISSUED, FROZEN]), [2, 1]);
}

// Fault matrix 110

async fn a_refund_before_its_payment_takes_effect_when_the_payment_does(store: Store) {
    let shop = Shop::new(store).await;
    for (cents, fails) in [(500, false), (200, false), (500, true)] {
        let before = shop.pool().await.0;
        let session = shop.open("5").await;
        let payment = shop.pay(&session);
        shop.stripe.delay("checkout.session.completed");
        shop.stripe.delay("payment_intent.succeeded");
        let refund = shop.stripe.refund(&payment, cents);
        if fails {
            shop.stripe.fail_refund(&refund);
        }
        shop.deliver().await;
        assert_eq!(
            (shop.topup(&session).await["status"].clone(), shop.pool().await.0),
            (json!("open"), before)
        );
        shop.stripe.release();
        shop.deliver().await;
        let taken = if fails { 0 } else { cents * 10_000 };
        assert_eq!(shop.pool().await, (before + 5_000_000 - taken, 0));
        let status = if taken == 5_000_000 {
            "refunded"
        } else {
            "completed"
        };
        assert_eq!(shop.topup(&session).await["status"], status);
        assert_eq!(
            shop.events("credits.topup.completed").last().unwrap()["data"]["reference"],
            session
        );
    }
    // Refunded before the page's own payment was ever heard of: asked for at the processor, found by its name.
    let asked = shop.stripe.requests();
    assert!(
        asked
            .iter()
            .any(|request| request.path.starts_with("/v1/payment_intents/"))
    );
}

// Fault matrix 106 of refunds

// Decisions 7

// Fault matrix 27-29, 31

// Fault matrix 113, 116, I5

async fn a_refund_of_a_second_payment_takes_nothing(store: Store) {
    let shop = Shop::new(store).await;
    let (session, _) = shop.bought("5").await;
    // The same session is paid again, which was never asked for.
    let processor = Client::new(shop.stripe.url().trim_start_matches("http://"));
    let form = format!(
        "amount=500&currency=usd&payment_method=pm_card_visa&metadata%5Bturnpike_session%5D={session}\
         &metadata%5Bturnpike_offsession%5D=1"
    );
    let paid = processor
        .request(Method::POST, "/v1/payment_intents")
        .bearer("sk_test_canary");
    let paid = paid.body(form).send().await.expect(200).json();
    shop.deliver().await;
    let topup = shop.topup(&session).await;
    assert_eq!(
        (&topup["status"], &topup["review"]),
        (&json!("completed"), &json!("paid by a second payment"))
    );
    // Given back by hand, as it should be: the credits of the first stay.
    let second = paid["id"].as_str().unwrap();
    shop.stripe.refund(second, 500);
    shop.deliver().await;
    assert_eq!(
        (shop.topup(&session).await["status"].clone(), shop.pool().await),
        (json!("completed"), (5_000_000, 0))
    );
    let dispute = shop.stripe.open_dispute(second, 500);
    shop.deliver().await;
    assert_eq!(shop.pool().await, (5_000_000, 0));
    shop.stripe.close_dispute(&dispute, false);
    shop.deliver().await;
    assert_eq!(
        (shop.pool().await, shop.events(ISSUED).len()),
        ((5_000_000, 0), 0)
    );
}

// Fault matrix 19, I1, I6

async fn top_ups_calls_and_refunds_at_once_lose_nothing(store: Store) {
    let shop = Shop::new(store).await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(shop.bought("5").await.0);
    }
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let session = shop.open("5").await;
        shop.pay(&session);
        waiting.push(session);
    }
    let events = shop.stripe.events();
    let (mut told, mut asked, mut calls) = (
        tokio::task::JoinSet::new(),
        tokio::task::JoinSet::new(),
        tokio::task::JoinSet::new(),
    );
    for index in 0..40 {
        calls.spawn(shop.chat(&chat("flat", "hi")).once(&format!("c{index}")).send());
    }
    for event in events {
        let (stripe, url) = (shop.stripe.clone(), shop.events_url());
        told.spawn(async move { stripe.deliver(&url, &event).await });
    }
    for session in &sessions {
        let path = format!("/api/credits/topups/{session}/refunds");
        asked.spawn(shop.post(&path, &json!({ "usd": "2" })).once(session).send());
    }
    let (told, asked, calls) = tokio::join!(told.join_all(), asked.join_all(), calls.join_all());
    assert!(told.iter().all(|status| *status == Some(200)));
    assert!(asked.iter().chain(&calls).all(|reply| reply.status == 200));
    shop.deliver().await;
    assert_eq!(shop.settled().await, micros("80") - 8 * micros("2") - 40 * 10_000);
    assert_eq!(shop.told(&["credits.topup.completed", ISSUED]), [16, 8]);
}
