//! Disputes: what is held, what is taken, when the account is frozen and when it opens again.

use serde_json::{Value, json};

use crate::harness::payments::Shop;
use crate::harness::{Store, chat, eventually, micros};
use crate::on_both_stores;

on_both_stores!(
    a_dispute_holds_the_credits_and_ends_once,
    a_dispute_of_spent_credits_freezes_the_account_until_it_is_won,
    a_lost_dispute_of_spent_credits_leaves_a_debt_and_a_frozen_account,
    an_inquiry_moves_nothing,
    a_refund_and_a_dispute_of_one_payment_never_take_twice,
    a_dispute_before_its_payment_takes_effect_when_the_payment_does,
    a_dispute_without_news_is_asked_about,
    a_refund_that_found_everything_disputed_takes_its_share_when_the_dispute_is_won,
    a_dispute_that_found_everything_refunded_takes_its_share_when_the_refund_fails,
);

const OPENED: &str = "credits.dispute.opened";
const CLOSED: &str = "credits.dispute.closed";
const FROZEN: &str = "credits.account.frozen";

async fn dispute(shop: &Shop, session: &str) -> Value {
    shop.topup(session).await["disputes"][0].clone()
}

// Fault matrix 116, decisions 11
async fn a_dispute_holds_the_credits_and_ends_once(store: Store) {
    let shop = Shop::new(store).await;
    for won in [true, false] {
        let before = shop.pool().await.0;
        let (session, payment) = shop.bought("5").await;
        let named = shop.stripe.open_dispute(&payment, 500);
        // `created` and `funds_withdrawn` tell of the same.
        shop.deliver().await;
        assert_eq!(shop.pool().await, (before + 5_000_000, 5_000_000));
        let shown = dispute(&shop, &session).await;
        assert_eq!(
            ["status", "amountUsd", "heldUsd", "reason"].map(|name| shown[name].clone()),
            ["open", "5", "5", "fraudulent"].map(Value::from)
        );
        let mut opened = shop.events(OPENED).pop().unwrap()["data"].clone();
        for name in ["occurredAt", "dueBy"] {
            assert!(
                opened.as_object_mut().unwrap().remove(name).unwrap().is_string(),
                "{name}"
            );
        }
        assert_eq!(
            opened,
            json!({
                "externalUserId": null, "reference": session, "disputeId": shown["disputeId"],
                "amountUsd": "5", "reason": "fraudulent",
            })
        );
        shop.stripe.close_dispute(&named, won);
        shop.stripe.duplicate("charge.dispute.closed");
        shop.deliver().await;
        let taken = if won { 0 } else { 5_000_000 };
        assert_eq!(shop.pool().await, (before + 5_000_000 - taken, 0));
        let closed = shop.events(CLOSED).pop().unwrap()["data"].clone();
        let expected = if won { ("won", "0") } else { ("lost", "5") };
        assert_eq!(
            (&closed["outcome"], &closed["debitedUsd"]),
            (&json!(expected.0), &json!(expected.1))
        );
        assert_eq!(dispute(&shop, &session).await["status"], expected.0);
    }
    assert_eq!(shop.told(&[OPENED, CLOSED, FROZEN]), [2, 2, 0]);
}

// Fault matrix 116
async fn a_dispute_of_spent_credits_freezes_the_account_until_it_is_won(store: Store) {
    let shop = Shop::new(store).await;
    let (_, payment) = shop.bought("5").await;
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
    let named = shop.stripe.open_dispute(&payment, 500);
    shop.deliver().await;
    assert_eq!(shop.pool().await, (micros("4.99"), micros("4.99")));
    let frozen = shop.events(FROZEN).pop().unwrap()["data"].clone();
    assert_eq!(frozen["reason"], "dispute_of_spent_credits");
    shop.grant("1", None);
    let sent = shop.upstream.count();
    shop.chat(&chat("flat", "hi"))
        .send()
        .await
        .refused(403, "ACCOUNT_FROZEN");
    assert_eq!(shop.upstream.count(), sent);
    // Who is frozen can still buy credits, and be shown them.
    let (more, _) = shop.bought("7").await;
    shop.chat(&chat("flat", "hi"))
        .send()
        .await
        .refused(403, "ACCOUNT_FROZEN");
    shop.stripe.close_dispute(&named, true);
    shop.deliver().await;
    assert_eq!(shop.pool().await, (micros("12.99"), 0));
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
    assert_eq!(shop.topup(&more).await["status"], "completed");
    assert_eq!(shop.told(&[OPENED, CLOSED, FROZEN]), [1, 1, 1]);
}

// Fault matrix 115, 116, I2
async fn a_lost_dispute_of_spent_credits_leaves_a_debt_and_a_frozen_account(store: Store) {
    let shop = Shop::new(store).await;
    let (_, payment) = shop.bought("5").await;
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
    let named = shop.stripe.open_dispute(&payment, 500);
    shop.stripe.close_dispute(&named, false);
    shop.deliver().await;
    assert_eq!(shop.pool().await, (0, 0));
    assert_eq!(shop.events(CLOSED)[0]["data"]["debitedUsd"], "4.99");
    shop.grant("1", None);
    shop.chat(&chat("flat", "hi"))
        .send()
        .await
        .refused(403, "ACCOUNT_FROZEN");
    // Decided again, the other way.
    shop.stripe.tamper(&named, "status", "won");
    let mut closed =
        json!({ "id": "evt_reversed", "type": "charge.dispute.funds_reinstated", "livemode": false });
    closed["data"]["object"] = shop.stripe.object(&named);
    assert_eq!(shop.stripe.deliver(&shop.events_url(), &closed).await, Some(200));
    assert_eq!(shop.pool().await, (micros("5.99"), 0));
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
}

// Fault matrix 116: warning
async fn an_inquiry_moves_nothing(store: Store) {
    let shop = Shop::new(store).await;
    let (session, payment) = shop.bought("5").await;
    let inquiry = shop.stripe.warn(&payment, 500);
    shop.deliver().await;
    assert_eq!(
        (
            dispute(&shop, &session).await["status"].clone(),
            shop.pool().await
        ),
        (json!("warning"), (5_000_000, 0))
    );
    shop.stripe.close_dispute(&inquiry, false);
    shop.deliver().await;
    assert_eq!(
        (
            dispute(&shop, &session).await["status"].clone(),
            shop.pool().await
        ),
        (json!("won"), (5_000_000, 0))
    );
    assert_eq!(shop.told(&[OPENED, CLOSED, FROZEN]), [0, 0, 0]);
    let (session, payment) = shop.bought("5").await;
    let inquiry = shop.stripe.warn(&payment, 500);
    shop.stripe.escalate(&inquiry);
    shop.deliver().await;
    assert_eq!(
        (
            dispute(&shop, &session).await["status"].clone(),
            shop.pool().await
        ),
        (json!("open"), (10_000_000, 5_000_000))
    );
    // An old event of the inquiry does not open it again.
    shop.stripe.close_dispute(&inquiry, true);
    shop.stripe.reorder(|events| events.reverse());
    shop.deliver().await;
    assert_eq!(
        (
            dispute(&shop, &session).await["status"].clone(),
            shop.pool().await
        ),
        (json!("won"), (10_000_000, 0))
    );
}

// Fault matrix 116, I5
async fn a_refund_and_a_dispute_of_one_payment_never_take_twice(store: Store) {
    let shop = Shop::new(store).await;
    let (session, payment) = shop.bought("5").await;
    shop.refund(&session, &json!({ "usd": "3" }), "r")
        .await
        .expect(200);
    let named = shop.stripe.open_dispute(&payment, 500);
    shop.deliver().await;
    // Two dollars of the five are left to be disputed.
    assert_eq!(shop.pool().await, (2_000_000, 2_000_000));
    shop.refund(&session, &json!({}), "r2")
        .await
        .refused(400, "VALIDATION_ERROR");
    shop.stripe.close_dispute(&named, false);
    shop.deliver().await;
    assert_eq!((shop.pool().await, shop.told(&[FROZEN])), ((0, 0), vec![0]));
    // A whole refund first, then a dispute of nothing that is left.
    let (session, payment) = shop.bought("5").await;
    shop.grant("1", None);
    shop.refund(&session, &json!({}), "r3").await.expect(200);
    for won in [true, false] {
        let named = shop.stripe.open_dispute(&payment, 500);
        shop.deliver().await;
        assert_eq!(shop.pool().await, (1_000_000, 0));
        shop.stripe.close_dispute(&named, won);
        shop.deliver().await;
        assert_eq!(shop.pool().await, (1_000_000, 0));
    }
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
    assert_eq!(shop.told(&[FROZEN]), [0]);
}

// Fault matrix 110
async fn a_dispute_before_its_payment_takes_effect_when_the_payment_does(store: Store) {
    let shop = Shop::new(store).await;
    for (closed, held, taken) in [
        (None, 5_000_000, 0),
        (Some(true), 0, 0),
        (Some(false), 0, 5_000_000),
    ] {
        let before = shop.pool().await;
        let session = shop.open("5").await;
        let payment = shop.pay(&session);
        shop.stripe.delay("checkout.session.completed");
        let named = shop.stripe.open_dispute(&payment, 500);
        if let Some(won) = closed {
            shop.stripe.close_dispute(&named, won);
        }
        shop.deliver().await;
        assert_eq!(shop.pool().await, before);
        shop.stripe.release();
        shop.deliver().await;
        assert_eq!(shop.pool().await, (before.0 + 5_000_000 - taken, before.1 + held));
        if closed.is_none() {
            shop.stripe.close_dispute(&named, true);
            shop.deliver().await;
            assert_eq!(shop.pool().await, (before.0 + 5_000_000, before.1));
        }
    }
}

// Fault matrix 119
async fn a_dispute_without_news_is_asked_about(store: Store) {
    let shop = Shop::of(store, |setup| setup.without_fees().swept()).await;
    let (session, payment) = shop.bought("5").await;
    let named = shop.stripe.open_dispute(&payment, 500);
    shop.deliver().await;
    shop.stripe.close_dispute(&named, false);
    shop.stripe.drop_events("charge.dispute.closed");
    eventually("the dispute is lost", || async {
        (dispute(&shop, &session).await["status"] == "lost").then_some(())
    })
    .await;
    assert_eq!(
        (shop.pool().await, shop.told(&[OPENED, CLOSED])),
        ((0, 0), vec![1, 1])
    );
}

// Fault matrix 110, 116, I5
async fn a_refund_that_found_everything_disputed_takes_its_share_when_the_dispute_is_won(store: Store) {
    let shop = Shop::new(store).await;
    for (refunded, disputed) in [(500, 500), (500, 300), (200, 500)] {
        let (_, payment) = shop.bought("5").await;
        // Refunded first, told of last.
        shop.stripe.refund(&payment, refunded);
        shop.stripe.delay("refund.created");
        let named = shop.stripe.open_dispute(&payment, disputed);
        shop.deliver().await;
        shop.stripe.release();
        shop.deliver().await;
        shop.stripe.close_dispute(&named, true);
        shop.deliver().await;
        let kept = 5_000_000 - refunded * 10_000;
        assert_eq!(
            shop.pool().await,
            (kept, 0),
            "{refunded} refunded, {disputed} disputed"
        );
        if kept > 0 {
            break;
        }
    }
    assert_eq!(shop.told(&[FROZEN]), [0]);
}

// Fault matrix 114, 116, I5
async fn a_dispute_that_found_everything_refunded_takes_its_share_when_the_refund_fails(store: Store) {
    let shop = Shop::new(store).await;
    shop.stripe.set_pending_refunds(true);
    for won in [false, true] {
        let before = shop.pool().await.0;
        let (session, payment) = shop.bought("5").await;
        shop.refund(&session, &json!({}), &session).await.expect(200);
        let refund = shop.stripe.refunds_of(&payment).pop().unwrap();
        let named = shop.stripe.open_dispute(&payment, 500);
        shop.deliver().await;
        assert_eq!(shop.pool().await, (before + 5_000_000, 5_000_000), "held once");
        // A disputed charge is not refunded.
        shop.stripe.fail_refund(&refund);
        shop.deliver().await;
        shop.stripe.close_dispute(&named, won);
        shop.deliver().await;
        let taken = if won { 0 } else { 5_000_000 };
        assert_eq!(shop.pool().await, (before + 5_000_000 - taken, 0));
    }
}
