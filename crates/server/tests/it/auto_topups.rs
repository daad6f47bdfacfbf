//! Automatic top-ups: when they are made, how often, how much a month, and when they stop by themselves.

use http::Method;
use serde_json::{Value, json};

use crate::harness::payments::{Shop, TOPUPS};
use crate::harness::stripe::Fault;
use crate::harness::{Reply, Store, chat, eventually, micros};
use crate::on_both_stores;

on_both_stores!(
    a_choice_is_exact_and_shown,
    a_saved_method_is_charged_below_the_threshold,
    the_ceiling_of_the_month_is_never_passed,
    three_failures_switch_them_off,
    a_charge_with_an_unknown_outcome_is_made_once,
    a_charge_whose_method_was_replaced_meanwhile_is_credited_once,
    a_method_is_kept_only_when_the_buyer_agreed,
    a_method_is_not_lost_while_the_processor_is_away,
);

const AUTO: &str = "/api/credits/tenants/me/auto-topup";
const COMPLETED: &str = "credits.topup.completed";
const FAILED: &str = "credits.topup.failed";

async fn put(shop: &Shop, body: &Value) -> Reply {
    let put = shop.client.request(Method::PUT, AUTO).bearer(&shop.key);
    put.json(body).send().await
}

async fn auto(shop: &Shop) -> Value {
    shop.get(AUTO).send().await.expect(200).json()
}

/// Switches automatic top-ups on.
pub async fn choose(shop: &Shop, threshold: &str, amount: &str, cap: Option<&str>) {
    let body =
        json!({ "enabled": true, "thresholdUsd": threshold, "amountUsd": amount, "monthlyCapUsd": cap });
    put(shop, &body).await.expect(200);
}

/// Buys credits with a method that may be charged again.
pub async fn save_a_method(shop: &Shop, usd: &str) {
    let asked = json!({ "usd": usd, "savePaymentMethod": true });
    let opened = shop.ask(&asked).send().await.expect(200).json();
    shop.pay(opened["sessionId"].as_str().unwrap());
    shop.deliver().await;
    assert_eq!(auto(shop).await["hasPaymentMethod"], true);
}

/// Long enough for the worker to have looked again.
async fn one_look() {
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
}

/// The automatic top-ups so far, newest first.
async fn automatic(shop: &Shop) -> Vec<Value> {
    let list = shop.get(TOPUPS).send().await.expect(200).json();
    let list = list["data"].as_array().unwrap().iter();
    list.filter(|topup| topup["source"] == "auto_reload")
        .cloned()
        .collect()
}

// Decisions 7
async fn a_choice_is_exact_and_shown(store: Store) {
    let shop = Shop::new(store).await;
    let off = auto(&shop).await;
    assert_eq!(
        off,
        json!({
            "success": true, "enabled": false, "thresholdUsd": "0", "amountUsd": "0", "monthlyCapUsd": null,
            "hasPaymentMethod": false, "running": false, "failures": 0, "stoppedReason": null,
        })
    );
    for (body, code) in [
        (json!({}), "VALIDATION_ERROR"),
        (json!({ "enabled": "yes" }), "VALIDATION_ERROR"),
        (json!({ "enabled": true }), "below_minimum"),
        (
            json!({ "enabled": true, "thresholdUsd": "1", "amountUsd": "0.5" }),
            "below_minimum",
        ),
        (
            json!({ "enabled": true, "thresholdUsd": "1", "amountUsd": "10000.01" }),
            "above_maximum",
        ),
        (
            json!({ "enabled": true, "thresholdUsd": "0", "amountUsd": "5" }),
            "VALIDATION_ERROR",
        ),
        (
            json!({ "enabled": true, "thresholdUsd": "1", "amountUsd": "5", "monthlyCapUsd": "4" }),
            "VALIDATION_ERROR",
        ),
        (
            json!({ "enabled": true, "thresholdUsd": 1, "amountUsd": "5" }),
            "VALIDATION_ERROR",
        ),
        (json!({ "enabled": true, "customer": "cus_1" }), "UNKNOWN_FIELD"),
    ] {
        put(&shop, &body).await.refused(400, code);
    }
    assert_eq!(auto(&shop).await, off);
    choose(&shop, "1.5", "5", Some("20")).await;
    let on = auto(&shop).await;
    let shown = ["enabled", "thresholdUsd", "amountUsd", "monthlyCapUsd"].map(|name| on[name].clone());
    assert_eq!(shown, [json!(true), json!("1.5"), json!("5"), json!("20")]);
    // Nothing to charge is saved, so nothing is begun.
    one_look().await;
    assert_eq!(
        (automatic(&shop).await.len(), shop.stripe.requests().len()),
        (0, 0)
    );
}

// Decisions 7, I5
async fn a_saved_method_is_charged_below_the_threshold(store: Store) {
    let shop = Shop::of(store, |setup| setup).await;
    save_a_method(&shop, "5").await;
    choose(&shop, "5", "10", None).await;
    one_look().await;
    assert_eq!(automatic(&shop).await.len(), 0, "the balance is at the threshold");
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
    eventually("the pool was filled", || async {
        (shop.pool().await == (micros("14.99"), 0)).then_some(())
    })
    .await;
    // The events tell of what was answered already.
    shop.deliver().await;
    one_look().await;
    let made = automatic(&shop).await;
    assert_eq!((made.len(), &made[0]["status"]), (1, &json!("completed")));
    let event = shop.events(COMPLETED).pop().unwrap()["data"].clone();
    assert_eq!(
        ["source", "amountUsd", "feeUsd", "balanceUsd"].map(|name| event[name].clone()),
        ["auto_reload", "10", "0.61", "14.99"].map(Value::from)
    );
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED, FAILED])),
        ((micros("14.99"), 0), vec![2, 0])
    );
    assert_eq!(
        (
            shop.stripe.made("payment_intent"),
            auto(&shop).await["running"].clone()
        ),
        (2, json!(false))
    );
    let charged = shop
        .stripe
        .requests()
        .into_iter()
        .find(|request| request.path == "/v1/payment_intents")
        .unwrap();
    assert_eq!(
        (
            charged.form["amount"].as_str(),
            charged.form["off_session"].as_str()
        ),
        ("1061", "true")
    );
    put(&shop, &json!({ "enabled": false })).await.expect(200);
    shop.refund(made[0]["sessionId"].as_str().unwrap(), &json!({}), "r")
        .await
        .expect(200);
    one_look().await;
    assert_eq!(automatic(&shop).await.len(), 1, "switched off");
}

// Decisions 7
async fn the_ceiling_of_the_month_is_never_passed(store: Store) {
    let shop = Shop::new(store).await;
    save_a_method(&shop, "5").await;
    // Below a threshold that is never reached: one after the other until the ceiling.
    choose(&shop, "1000", "10", Some("25")).await;
    eventually("two were made", || async {
        (automatic(&shop).await.len() == 2).then_some(())
    })
    .await;
    one_look().await;
    one_look().await;
    assert_eq!(
        (automatic(&shop).await.len(), shop.pool().await),
        (2, (25_000_000, 0))
    );
    // Five dollars are left of the ceiling; a failure gives its part back.
    shop.stripe.set_declining(Some("card_declined"));
    choose(&shop, "1000", "5", Some("25")).await;
    eventually("one was declined", || async {
        (automatic(&shop).await.len() == 3).then_some(())
    })
    .await;
    shop.stripe.set_declining(None);
    eventually("the rest was used", || async {
        (shop.pool().await == (30_000_000, 0)).then_some(())
    })
    .await;
    one_look().await;
    assert_eq!(shop.pool().await, (30_000_000, 0));
}

// Decisions 7
async fn three_failures_switch_them_off(store: Store) {
    let shop = Shop::new(store).await;
    save_a_method(&shop, "5").await;
    shop.stripe.set_declining(Some("insufficient_funds"));
    choose(&shop, "6", "10", None).await;
    let off = eventually("they are switched off", || async {
        let auto = auto(&shop).await;
        (auto["enabled"] == false).then_some(auto)
    })
    .await;
    assert_eq!(
        (&off["failures"], &off["stoppedReason"]),
        (&json!(3), &json!("the payment method failed three times"))
    );
    shop.deliver().await;
    one_look().await;
    assert_eq!(
        (automatic(&shop).await.len(), shop.told(&[COMPLETED, FAILED])),
        (3, vec![1, 3])
    );
    let failed = shop.events(FAILED).pop().unwrap()["data"].clone();
    assert_eq!(
        (&failed["failureCode"], &failed["source"]),
        (&json!("insufficient_funds"), &json!("auto_reload"))
    );
    assert_eq!(shop.pool().await, (5_000_000, 0));
    shop.stripe.set_declining(None);
    choose(&shop, "6", "10", None).await;
    eventually("the pool was filled", || async {
        (shop.pool().await == (15_000_000, 0)).then_some(())
    })
    .await;
    assert_eq!(auto(&shop).await["failures"], 0);
}

// Fault matrix 106 of charges, I5
async fn a_charge_with_an_unknown_outcome_is_made_once(store: Store) {
    for fault in [Fault::DoneThenCut, Fault::DoneThenStatus(500), Fault::Status(500)] {
        let shop = Shop::of(store, |setup| setup.without_fees().swept()).await;
        save_a_method(&shop, "5").await;
        shop.stripe.fail_next(5, fault);
        choose(&shop, "6", "10", None).await;
        eventually("the pool was filled", || async {
            (shop.pool().await == (15_000_000, 0)).then_some(())
        })
        .await;
        shop.deliver().await;
        one_look().await;
        assert_eq!(
            (shop.pool().await, shop.stripe.made("payment_intent")),
            ((15_000_000, 0), 2),
            "{fault:?}"
        );
        assert_eq!(
            (automatic(&shop).await.len(), shop.told(&[COMPLETED, FAILED])),
            (1, vec![2, 0])
        );
    }
}

// Fault matrix 106 of charges, I5
async fn a_charge_whose_method_was_replaced_meanwhile_is_credited_once(store: Store) {
    let shop = Shop::of(store, |setup| setup.without_fees().swept()).await;
    save_a_method(&shop, "5").await;
    shop.stripe.fail_next(3, Fault::DoneThenCut);
    choose(&shop, "6", "10", None).await;
    eventually("it was charged", || async {
        (shop.stripe.made("payment_intent") == 2).then_some(())
    })
    .await;
    // The event is late, and another method is saved before the charge is repeated.
    shop.stripe.delay("payment_intent.succeeded");
    save_a_method(&shop, "7").await;
    one_look().await;
    shop.stripe.release();
    shop.deliver().await;
    eventually("the charge is credited", || async {
        (shop.pool().await == (22_000_000, 0)).then_some(())
    })
    .await;
    one_look().await;
    assert_eq!(
        (automatic(&shop).await.len(), shop.told(&[COMPLETED, FAILED])),
        (1, vec![3, 0])
    );
    assert_eq!(shop.stripe.made("payment_intent"), 3);
}

async fn a_method_is_kept_only_when_the_buyer_agreed(store: Store) {
    let shop = Shop::new(store).await;
    shop.bought("5").await;
    assert_eq!(auto(&shop).await["hasPaymentMethod"], false);
    let form = shop
        .stripe
        .requests()
        .into_iter()
        .find(|request| request.method == "POST")
        .unwrap()
        .form;
    assert!(
        !form.contains_key("payment_intent_data[setup_future_usage]"),
        "{form:?}"
    );
    save_a_method(&shop, "5").await;
    // Nothing about the method is shown but that there is one.
    let shown = format!("{}{}", auto(&shop).await, shop.get(TOPUPS).send().await.text());
    assert!(!shown.contains("pm_") && !shown.contains("cus_"), "{shown}");
}

// Fault matrix 118 of saved methods
async fn a_method_is_not_lost_while_the_processor_is_away(store: Store) {
    let shop = Shop::new(store).await;
    let asked = json!({ "usd": "5", "savePaymentMethod": true });
    let opened = shop.ask(&asked).send().await.expect(200).json();
    shop.pay(opened["sessionId"].as_str().unwrap());
    let event = shop.stripe.event("checkout.session.completed");
    shop.stripe.fail_next(3, Fault::Status(500));
    assert_eq!(shop.stripe.deliver(&shop.events_url(), &event).await, Some(503));
    assert_eq!(shop.pool().await, (0, 0));
    shop.deliver().await;
    assert_eq!(
        (shop.pool().await, auto(&shop).await["hasPaymentMethod"].clone()),
        ((5_000_000, 0), json!(true))
    );
    // For want of a reason, a failure is not held up.
    let late = shop.open("5").await;
    shop.stripe.pay_later(&shop.page(&late));
    shop.deliver().await;
    shop.stripe.async_fail(&shop.page(&late));
    shop.stripe.fail_next(3, Fault::Status(500));
    shop.deliver().await;
    assert_eq!(shop.topup(&late).await["failure"]["code"], "failed");
}
