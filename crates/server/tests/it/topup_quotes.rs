//! What a top-up costs and brings: quotes, bonuses, rates, and the events that tell of it.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::harness::payments::{POOL_TOPUPS, Shop};
use crate::harness::{Setup, Store, credits, micros};
use crate::on_both_stores;

on_both_stores!(
    metadata_of_500_characters_comes_back_and_one_more_is_refused,
    the_parts_of_every_quote_add_up_and_are_what_is_booked,
    a_bonus_is_shown_where_a_tier_is_reached_and_minted_once_paid,
    credits_are_exact_at_every_rate,
    the_events_have_exactly_the_specified_members,
);

fn amount(quote: &Value, name: &str) -> i64 {
    micros(quote[name].as_str().unwrap())
}

// Fault matrix 12, I5
async fn the_parts_of_every_quote_add_up_and_are_what_is_booked(store: Store) {
    let shop = Shop::of(store, |setup| setup).await;
    let mut pool = 0;
    let amounts = (0..40_i64).map(|index| 1_000_000 + index * index * 5_555_557 % 9_998_999_999);
    for asked in amounts.chain([10_000_001, 1_000_000, 10_000_000_000]) {
        let usd = format!("{}.{:06}", asked / 1_000_000, asked % 1_000_000);
        let opened = shop.ask(&json!({ "usd": usd })).send().await.expect(200).json();
        let quote = &opened["quote"];
        let (fee, total) = (amount(quote, "feeUsd"), amount(quote, "totalUsd"));
        assert_eq!((quote["feeMode"].as_str(), fee > 0), (Some("pass_through"), true));
        assert_eq!(amount(quote, "creditsUsd"), asked);
        assert_eq!(quote["credits"], credits(asked));
        assert_eq!((asked + fee, total % 10_000), (total, 0), "{quote}");
        // The processor keeps 2.9 % and 30 cents of the total; what is left pays for the credits.
        assert!(total - (total * 29 / 1000 + 300_000) >= asked - 10_000, "{quote}");
        let cents =
            shop.stripe.requests().pop().unwrap().form["line_items[0][price_data][unit_amount]"].clone();
        assert_eq!(cents, (total / 10_000).to_string());
        if asked % 3 == 0 {
            continue;
        }
        shop.pay(opened["sessionId"].as_str().unwrap());
        shop.deliver().await;
        pool += asked;
        assert_eq!(shop.pool().await, (pool, 0));
    }
}

fn with_tiers(setup: Setup) -> Setup {
    let tiers = r#"tiers = [{ min_usd = "100", bonus_bps = 333 }, { min_usd = "500", bonus_bps = 1000 }]"#;
    let tiers: toml::Table = tiers.parse().unwrap();
    setup.set("processor.bonus_tiers", tiers["tiers"].clone())
}

// Specification 2.7, decisions 7; fault matrix 11
async fn a_bonus_is_shown_where_a_tier_is_reached_and_minted_once_paid(store: Store) {
    let shop = Shop::of(store, |setup| with_tiers(setup.without_fees())).await;
    let mut pool = 0;
    for (usd, bonus, next) in [
        ("99.999999", None, Some(("100", 333))),
        ("100", Some(("3.33", "3330", 333)), Some(("500", 1000))),
        // Floors: 3.33 % of 100.000033 is 3.3300010989.
        (
            "100.000033",
            Some(("3.330001", "3330.001", 333)),
            Some(("500", 1000)),
        ),
        ("500", Some(("50", "50000", 1000)), None),
    ] {
        let opened = shop.ask(&json!({ "usd": usd })).send().await.expect(200).json();
        let shown = bonus
            .map(|(usd, credits, bps)| json!({ "bonusUsd": usd, "bonusCredits": credits, "bonusBps": bps }));
        assert_eq!(opened.get("bonus"), shown.as_ref(), "{usd}");
        assert_eq!(opened["quote"].get("bonus"), shown.as_ref(), "{usd}");
        let tier = next.map(|(usd, bps)| json!({ "minUsd": usd, "bonusBps": bps }));
        assert_eq!(opened["quote"].get("nextBonusTier"), tier.as_ref(), "{usd}");
        let session = opened["sessionId"].as_str().unwrap();
        shop.pay(session);
        shop.deliver().await;
        let minted = bonus.map_or("0", |(usd, ..)| usd);
        pool += micros(usd) + micros(minted);
        assert_eq!(shop.pool().await, (pool, 0));
        let event = shop.events("credits.topup.completed").pop().unwrap()["data"].clone();
        assert_eq!(
            (&event["bonusUsd"], &event["reference"]),
            (&json!(minted), &json!(session))
        );
        assert_eq!(micros(event["balanceUsd"].as_str().unwrap()), pool);
    }
    let grants = shop
        .ledger()
        .lines()
        .filter(|line| line.contains("volume_bonus"))
        .count();
    assert_eq!(grants, 3, "a bonus is a grant of its own");
}

// Fault matrix 10, decisions 1
async fn credits_are_exact_at_every_rate(store: Store) {
    let shop = Shop::new(store).await;
    for (rate, good, usd, bad) in [
        ("1", "1.000001", "1.000001", "1.0000001"),
        ("3", "30", "10", "10"),
        ("7", "7.000007", "1.000001", "8"),
        ("1000", "5000.5", "5.0005", "5000.0005"),
        ("1000000", "1000001", "1.000001", "1000000.5"),
    ] {
        let (_, key) = shop.workspace(&format!("at {rate}"));
        let sql = format!("UPDATE tenants SET credits_per_dollar = {rate} WHERE name = 'at {rate}'");
        shop.database.execute(&sql).await;
        let ask = |credits: &str| {
            let asked = shop.client.request(Method::POST, POOL_TOPUPS).bearer(&key);
            asked.json(&json!({ "credits": credits }))
        };
        ask(bad).send().await.refused(400, "VALIDATION_ERROR");
        let opened = ask(good).send().await.expect(200).json();
        assert_eq!(
            (&opened["quote"]["creditsUsd"], &opened["quote"]["credits"]),
            (&json!(usd), &json!(good)),
            "at {rate}"
        );
        shop.pay(opened["sessionId"].as_str().unwrap());
        shop.deliver().await;
        let balance = shop
            .client
            .request(Method::GET, "/api/credits/balance")
            .bearer(&key);
        let balance = balance.send().await.expect(200).json();
        assert_eq!(
            (&balance["usd"], &balance["credits"]),
            (&json!(usd), &json!(good)),
            "at {rate}"
        );
    }
}

fn members(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

// Specification 6, decisions 11, I8
async fn the_events_have_exactly_the_specified_members(store: Store) {
    let shop = Shop::of(store, |setup| setup).await;
    let asked = json!({ "usd": "10", "metadata": { "order": "7" } });
    let opened = shop.ask(&asked).send().await.expect(200).json();
    let session = opened["sessionId"].as_str().unwrap();
    assert!(session.starts_with("cs_"), "{session}");
    assert_eq!(
        (&opened["success"], &opened["externalUserId"]),
        (&json!(true), &Value::Null)
    );
    assert!(
        opened["url"]
            .as_str()
            .unwrap()
            .starts_with("https://checkout.stripe.com/")
    );
    shop.pay(session);
    shop.deliver().await;
    let mut completed = shop.events("credits.topup.completed").pop().unwrap()["data"].clone();
    let occurred = completed.as_object_mut().unwrap().remove("occurredAt").unwrap();
    assert!(occurred.as_str().unwrap().ends_with('Z'), "{occurred}");
    assert_eq!(
        completed,
        json!({
            "externalUserId": null, "reference": session, "sessionId": session, "source": "checkout_session",
            "amountUsd": "10", "amountCredits": "10000", "balanceUsd": "10", "balanceCredits": "10000",
            "feeUsd": "0.61", "bonusUsd": "0", "metadata": { "order": "7" },
        })
    );
    let late = shop.open("20").await;
    shop.stripe.pay_later(&shop.page(&late));
    shop.stripe.async_fail(&shop.page(&late));
    shop.deliver().await;
    let mut failed = shop.events("credits.topup.failed").pop().unwrap()["data"].clone();
    failed.as_object_mut().unwrap().remove("occurredAt").unwrap();
    assert_eq!(failed["failureCode"], "payment_intent_payment_attempt_failed");
    assert_eq!(
        (&failed["amountUsd"], &failed["sessionId"]),
        (&json!("20"), &json!(late))
    );
    let expected = [
        "externalUserId",
        "reference",
        "amountUsd",
        "source",
        "sessionId",
        "failureCode",
        "failureMessage",
        "metadata",
    ];
    assert_eq!(members(&failed), BTreeSet::from(expected));
    assert_eq!(failed["metadata"], json!({}));
}

async fn metadata_of_500_characters_comes_back_and_one_more_is_refused(store: Store) {
    let shop = Shop::new(store).await;
    // `{"m":"…"}` is eight characters more than its text; an emoji is one character of four bytes.
    let of = |characters: usize| json!({ "m": "\u{1f600}".repeat(characters - 8) });
    let refused = shop.ask(&json!({ "usd": "5", "metadata": of(501) })).send().await;
    let refused = refused.refused(400, "VALIDATION_ERROR").json();
    assert_eq!(refused["details"][0]["path"], "metadata");
    let ours =
        json!({ "turnpike_session": "cs_other", "topup_id": "x", "nested": { "b": [1.5, null], "a": 1 } });
    for metadata in [of(500), ours, json!({})] {
        let opened = shop
            .ask(&json!({ "usd": "5", "metadata": metadata }))
            .send()
            .await;
        let session = opened.expect(200).json()["sessionId"]
            .as_str()
            .unwrap()
            .to_owned();
        // The processor sees our name of the session only.
        let form = shop.stripe.requests().pop().unwrap().form;
        assert_eq!(form["metadata[turnpike_session]"], session);
        assert_eq!(
            form.keys().filter(|name| name.starts_with("metadata[")).count(),
            1
        );
        shop.pay(&session);
        shop.deliver().await;
        assert_eq!(shop.topup(&session).await["metadata"], metadata);
        let event = shop.events("credits.topup.completed").pop().unwrap();
        assert_eq!(event["data"]["metadata"].to_string(), metadata.to_string());
    }
}
