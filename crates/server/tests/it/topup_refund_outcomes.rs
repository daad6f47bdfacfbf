//! How a refund that is asked for here ends: once per key, whatever becomes of the processor's answers.

use serde_json::{Value, json};

use crate::harness::payments::Shop;
use crate::harness::stripe::Fault;
use crate::harness::{Store, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    a_refund_with_an_unknown_outcome_is_made_once,
    a_pending_refund_holds_the_credits_until_it_ends,
    a_refund_is_asked_for_exactly_and_once_per_key,
);

const ISSUED: &str = "credits.refund.issued";

/// The status in the newest refund event.
fn issued(shop: &Shop) -> Value {
    shop.events(ISSUED).pop().unwrap()["data"]["status"].clone()
}

async fn a_refund_with_an_unknown_outcome_is_made_once(store: Store) {
    let shop = Shop::new(store).await;
    for (key, fault) in [
        ("cut", Fault::DoneThenCut),
        ("500", Fault::DoneThenStatus(500)),
        ("half", Fault::DoneThenGarbage),
    ] {
        let (session, payment) = shop.bought("5").await;
        shop.stripe.fail_next(3, fault);
        let first = shop.refund(&session, &json!({}), key).await.expect(200).json();
        assert_eq!(
            (&first["status"], shop.pool().await),
            (&json!("pending"), (5_000_000, 5_000_000))
        );
        // Nothing of it can be refunded or spent twice meanwhile.
        shop.refund(&session, &json!({}), &format!("{key}-2"))
            .await
            .refused(400, "VALIDATION_ERROR");
        shop.chat(&chat("flat", "hi"))
            .send()
            .await
            .refused(402, "INSUFFICIENT_CREDITS");
        let again = shop.refund(&session, &json!({}), key).await.expect(200).json();
        assert_eq!(
            (&again["status"], &again["refundId"]),
            (&json!("succeeded"), &first["refundId"])
        );
        assert_eq!(
            (shop.pool().await, shop.stripe.refunds_of(&payment).len()),
            ((0, 0), 1)
        );
        shop.deliver().await;
        assert_eq!((shop.pool().await, issued(&shop)), ((0, 0), json!("succeeded")));
    }
    assert_eq!(shop.events(ISSUED).len(), 3);
    // Certainly not made: refused, and the credits are back at once.
    let (session, payment) = shop.bought("5").await;
    shop.stripe.open_dispute(&payment, 100);
    let refused = shop
        .refund(&session, &json!({}), "refused")
        .await
        .expect(200)
        .json();
    assert_eq!(refused["status"], "failed");
    assert!(
        refused["failure"]
            .as_str()
            .unwrap()
            .starts_with("charge_disputed"),
        "{refused}"
    );
    assert_eq!(shop.pool().await, (5_000_000, 0));
    shop.deliver().await;
    assert_eq!(shop.pool().await, (5_000_000, 1_000_000));
    // The sweep ends what the caller does not.
    let shop = Shop::of(store, |setup| setup.without_fees().swept()).await;
    let (session, payment) = shop.bought("5").await;
    shop.stripe.fail_next(3, Fault::DoneThenCut);
    shop.refund(&session, &json!({}), "k").await.expect(200);
    shop.reaches(&session, "refunded").await;
    assert_eq!(
        (shop.pool().await, shop.stripe.refunds_of(&payment).len()),
        ((0, 0), 1)
    );
    assert_eq!(shop.events(ISSUED).len(), 1);
}

async fn a_pending_refund_holds_the_credits_until_it_ends(store: Store) {
    let shop = Shop::of(store, |setup| setup.without_fees().swept()).await;
    shop.stripe.set_pending_refunds(true);
    for (fails, by_event) in [(false, true), (true, true), (false, false), (true, false)] {
        let (session, payment) = shop.bought("5").await;
        let (before, _) = shop.pool().await;
        let key = format!("{fails}-{by_event}");
        let asked = shop.refund(&session, &json!({}), &key).await.expect(200).json();
        assert_eq!(
            (&asked["status"], shop.pool().await),
            (&json!("pending"), (before, 5_000_000))
        );
        assert_eq!(shop.topup(&session).await["status"], "completed");
        let refund = shop.stripe.refunds_of(&payment).pop().unwrap();
        if fails {
            shop.stripe.fail_refund(&refund);
        } else {
            shop.stripe.settle_refund(&refund);
        }
        if by_event {
            shop.deliver().await;
        }
        let ended = if fails { "failed" } else { "succeeded" };
        eventually("the refund has ended", || async {
            let topup = shop.topup(&session).await;
            (topup["refunds"][0]["status"] == ended).then_some(())
        })
        .await;
        shop.deliver().await;
        let taken = if fails { 0 } else { 5_000_000 };
        assert_eq!(
            (shop.pool().await, issued(&shop)),
            ((before - taken, 0), json!(ended))
        );
        if fails {
            let topup = shop.topup(&session).await;
            assert_eq!(topup["refunds"][0]["failure"], "expired_or_canceled_card");
            assert_eq!(topup["refundableUsd"], "5");
        }
    }
    assert_eq!(shop.events(ISSUED).len(), 4);
}

async fn a_refund_is_asked_for_exactly_and_once_per_key(store: Store) {
    let shop = Shop::new(store).await;
    let open = shop.open("5").await;
    shop.refund(&open, &json!({}), "o")
        .await
        .refused(400, "VALIDATION_ERROR");
    shop.stripe.drop_events("checkout.session.completed");
    let (session, payment) = shop.bought("5").await;
    for (body, code) in [
        (json!({ "usd": "0" }), "VALIDATION_ERROR"),
        (json!({ "usd": "0.001" }), "VALIDATION_ERROR"),
        (json!({ "usd": "-1" }), "VALIDATION_ERROR"),
        (json!({ "usd": "5.01" }), "VALIDATION_ERROR"),
        (json!({ "usd": 5 }), "VALIDATION_ERROR"),
        (json!({ "usd": "9223372036854.775807" }), "VALIDATION_ERROR"),
        (json!({ "reason": "" }), "VALIDATION_ERROR"),
        (json!({ "reason": "x".repeat(501) }), "VALIDATION_ERROR"),
        (json!({ "credits": "5" }), "UNKNOWN_FIELD"),
        (json!([]), "INVALID_JSON"),
    ] {
        shop.refund(&session, &body, "r").await.refused(400, code);
    }
    let path = format!("/api/credits/topups/{session}/refunds");
    let keyless = shop.post(&path, &json!({})).send().await;
    keyless.refused(400, "IDEMPOTENCY_KEY_REQUIRED");
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..10 {
        asked.spawn(shop.post(&path, &json!({ "usd": "2" })).once("r").send());
    }
    let mut refunds: Vec<Value> = Vec::new();
    for reply in asked.join_all().await {
        refunds.push(reply.expect(200).json()["refundId"].clone());
    }
    assert!(refunds.iter().all(|id| *id == refunds[0]), "{refunds:?}");
    shop.refund(&session, &json!({ "usd": "3" }), "r")
        .await
        .refused(409, "IDEMPOTENCY_KEY_CONFLICT");
    assert_eq!(
        (shop.pool().await, shop.stripe.refunds_of(&payment).len()),
        ((3_000_000, 0), 1)
    );
    let again = shop
        .refund(&session, &json!({ "usd": "2" }), "r")
        .await
        .expect(200);
    assert_eq!(
        (&again.json()["refundId"], again.header("idempotent-replayed")),
        (&refunds[0], Some("true"))
    );
    // Ten keys at once for the three dollars that are left.
    let mut asked = tokio::task::JoinSet::new();
    for index in 0..10 {
        asked.spawn(
            shop.post(&path, &json!({ "usd": "1" }))
                .once(&index.to_string())
                .send(),
        );
    }
    let replies = asked.join_all().await;
    let made = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(
        (made, shop.stripe.refunds_of(&payment).len(), shop.pool().await),
        (3, 4, (0, 0))
    );
    shop.deliver().await;
    assert_eq!((shop.pool().await, shop.events(ISSUED).len()), ((0, 0), 4));
}
