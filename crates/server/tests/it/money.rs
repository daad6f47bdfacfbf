//! What calls cost: exact charges, no overspend under any race, and headers that say what the ledger says.

use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::upstream::{completion, tokens};
use crate::harness::{
    CHAT, Client, Setup, Site, Step, Store, TOOL, chat, credits, micros, micros_of_credits, receipt,
};
use crate::on_both_stores;

on_both_stores!(
    headers_say_what_the_ledger_says,
    a_balance_for_seven_calls_admits_exactly_seven,
    mixed_prices_never_overspend_and_use_the_balance_up,
    a_tool_costs_its_price_and_its_body_says_so,
    a_free_call_charges_nothing_and_keeps_its_key,
    cached_tokens_cost_their_own_rate_and_charges_round_up_once,
    a_hold_shows_while_the_call_runs,
    a_price_change_reaches_new_calls_only,
);

/// Sends `number` calls at once; `body` may differ by number. Gives the statuses.
pub async fn flood(
    clients: &[Client],
    key: &str,
    number: usize,
    body: impl Fn(usize) -> serde_json::Value,
) -> Vec<(usize, u16, String)> {
    let mut calls = JoinSet::new();
    for index in 0..number {
        let call = clients[index % clients.len()]
            .request(Method::POST, CHAT)
            .bearer(key)
            .once(&format!("flood-{index}"))
            .json(&body(index));
        calls.spawn(async move {
            let reply = call.send().await;
            (index, reply.status, reply.code())
        });
    }
    calls.join_all().await
}

// Fault matrix 1, 9, I10
async fn headers_say_what_the_ledger_says(store: Store) {
    let site = Site::new(store).await;
    let mut balance = micros("10");
    for (prompt, completed) in [(10, 5), (1, 0), (0, 1), (333, 777), (12, 1000)] {
        site.upstream
            .script(move |seen| vec![completion(seen.number, &tokens(prompt, completed))]);
        let body = chat("tokens", &"x".repeat(400));
        let reply = site.chat(&body).send().await.expect(200);
        let price = i64::try_from(prompt + 2 * completed).unwrap();
        balance -= price;
        assert_eq!(receipt(&reply), (price, balance));
        let dollars = format!("0.{price:06}");
        let dollars = dollars.trim_end_matches('0').trim_end_matches('.');
        assert_eq!(reply.header("x-svc-cost-usd"), Some(dollars));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let shown = site.balance().await;
        assert_eq!(micros(shown["usd"].as_str().unwrap()), balance);
        assert_eq!(shown["credits"], credits(balance));
        assert_eq!(shown["availableUsd"], shown["usd"]);
        assert_eq!(shown["reservedUsd"], "0");
        assert_eq!(shown["denomination"]["creditsPerDollar"], 1000);
        let call = site.call(reply.header("x-svc-call-id").unwrap()).await;
        assert_eq!(call["status"], "completed");
        assert_eq!(micros(call["chargedUsd"].as_str().unwrap()), price);
        let entries = site
            .get("/api/credits/ledger?limit=1")
            .send()
            .await
            .expect(200)
            .json();
        let entry = &entries["data"][0];
        assert_eq!(
            micros(entry["amountUsd"].as_str().unwrap().trim_start_matches('-')),
            price
        );
        assert_eq!(micros(entry["balanceUsd"].as_str().unwrap()), balance);
        assert_eq!(entry["callId"], call["callId"]);
    }
    let usage = site
        .get("/api/credits/usage?groupBy=model")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(usage["data"][0]["calls"], 5);
    assert_eq!(
        micros(usage["data"][0]["chargedUsd"].as_str().unwrap()),
        micros("10") - balance
    );
}

// Fault matrix 16, I2
async fn a_balance_for_seven_calls_admits_exactly_seven(store: Store) {
    let site = Setup::new(store).grant(Some("0.07")).start().await;
    let outcomes = flood(std::slice::from_ref(&site.client), &site.key, 200, |_| {
        chat("flat", "hi")
    })
    .await;
    let admitted = outcomes.iter().filter(|(_, status, _)| *status == 200).count();
    let refused = outcomes
        .iter()
        .filter(|(_, status, code)| *status == 402 && code == "INSUFFICIENT_CREDITS")
        .count();
    assert_eq!((admitted, refused), (7, 193));
    assert_eq!(site.upstream.count(), 7);
    assert_eq!(site.settled().await, 0);
    let reply = site
        .chat(&chat("flat", "hi"))
        .send()
        .await
        .refused(402, "INSUFFICIENT_CREDITS");
    let body = reply.json();
    assert_eq!(
        (&body["requiredCredits"], &body["availableCredits"]),
        (&json!("10"), &json!("0"))
    );
    assert!(body["hint"].is_string());
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert_eq!(reply.header("x-svc-credits-charged"), Some("0"));
}

// Fault matrix 17
async fn mixed_prices_never_overspend_and_use_the_balance_up(store: Store) {
    let site = Setup::new(store).grant(Some("0.2")).start().await;
    let body = |index: usize| chat(if index.is_multiple_of(3) { "dear" } else { "flat" }, "hi");
    let outcomes = flood(std::slice::from_ref(&site.client), &site.key, 90, body).await;
    let mut spent = 0;
    for (index, status, code) in &outcomes {
        match status {
            200 => spent += if index % 3 == 0 { 30_000 } else { 10_000 },
            402 => assert_eq!(code, "INSUFFICIENT_CREDITS"),
            other => panic!("{other} {code}"),
        }
    }
    // Every refused call of the cheaper kind found less than its price, and nothing was given back.
    assert_eq!(spent, micros("0.2"));
    assert_eq!(site.settled().await, 0);
    assert_eq!(
        site.upstream.count(),
        outcomes.iter().filter(|(_, status, _)| *status == 200).count()
    );
}

// Fault matrix I10
async fn a_tool_costs_its_price_and_its_body_says_so(store: Store) {
    let site = Site::new(store).await;
    site.upstream.script(|seen| {
        let body = if seen.path.ends_with("/quote") {
            json!({ "usd": "0.1234567" })
        } else {
            json!({ "did": seen.path, "args": seen.json() })
        };
        vec![crate::harness::upstream::answer(
            200,
            &[],
            body.to_string().as_bytes(),
        )]
    });
    let mut balance = micros("10");
    for (path, args, price, dollars) in [
        (TOOL, json!({ "id": "a" }), 8000, "0.008"),
        (
            "/api/wrapped/credits/tools/units",
            json!({ "count": 7 }),
            14_000,
            "0.014",
        ),
        ("/api/wrapped/credits/tools/units", json!({ "count": 0 }), 0, "0"),
        // The quote is a fraction of a µUSD more than this; charges round up.
        ("/api/wrapped/credits/tools/live", json!({}), 123_457, "0.123457"),
        (
            "/api/wrapped/credits/tools/item",
            json!({ "id": "x y/z" }),
            1000,
            "0.001",
        ),
    ] {
        let reply = site
            .post(path, &args)
            .once(&format!("{path}{args}").replace(' ', ""))
            .send()
            .await
            .expect(200);
        balance -= price;
        assert_eq!(receipt(&reply), (price, balance), "{path}");
        let body = reply.json();
        let call = reply.header("x-svc-call-id").unwrap();
        assert_eq!(
            body["billing"],
            json!({ "creditsCharged": credits(price), "creditsBalance": credits(balance), "callId": call, "costUsd": dollars })
        );
        assert_eq!(body["success"], true);
        assert!(body["data"]["did"].is_string());
    }
    assert_eq!(site.upstream.last().path, "/v1/items/x%20y%2Fz");
    let before = site.upstream.count();
    site.post(TOOL, &json!({}))
        .send()
        .await
        .refused(400, "IDEMPOTENCY_KEY_REQUIRED");
    let wrong = site
        .post("/api/wrapped/credits/tools/units", &json!({ "count": -1 }))
        .once("w");
    let details = wrong.send().await.refused(400, "VALIDATION_ERROR").json();
    assert_eq!(details["details"][0]["path"], "/count");
    site.upstream.script(|_| {
        vec![crate::harness::upstream::answer(
            200,
            &[],
            br#"{"usd":"1.000001"}"#,
        )]
    });
    let live = site
        .post("/api/wrapped/credits/tools/live", &json!({}))
        .once("too-dear");
    live.send().await.refused(503, "PRICE_UNAVAILABLE");
    assert_eq!(site.upstream.count(), before + 1);
    assert_eq!(site.settled().await, balance);
}

// Fault matrix 7
async fn a_free_call_charges_nothing_and_keeps_its_key(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let first = site
        .chat(&chat("free", "hi"))
        .once("free")
        .send()
        .await
        .expect(200);
    assert_eq!(receipt(&first), (0, 0));
    let again = site
        .chat(&chat("free", "hi"))
        .once("free")
        .send()
        .await
        .expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.body, first.body);
    assert_eq!(site.upstream.count(), 1);
    assert_eq!(site.ledger(), "");
}

// Fault matrix 9
async fn cached_tokens_cost_their_own_rate_and_charges_round_up_once(store: Store) {
    let site = Site::new(store).await;
    for (cached, price) in [(0, 20), (1, 20), (2, 19), (3, 19), (10, 15)] {
        site.upstream.script(move |seen| {
            let mut usage = tokens(10, 5);
            usage["prompt_tokens_details"] = json!({ "cached_tokens": cached });
            vec![completion(seen.number, &usage)]
        });
        let reply = site.chat(&chat("tokens", "hi")).send().await.expect(200);
        assert_eq!(receipt(&reply).0, price, "{cached} cached");
    }
}

// Decisions 1: shown apart, and only what is available admits a call
async fn a_hold_shows_while_the_call_runs(store: Store) {
    let site = Setup::new(store).grant(Some("0.03")).start().await;
    let gate = crate::harness::Gate::new();
    let held = gate.clone();
    site.upstream
        .script(move |seen| vec![Step::Wait(held.clone()), completion(seen.number, &tokens(1, 1))]);
    let first = tokio::spawn(site.chat(&chat("tokens", "hi")).send());
    let running = crate::harness::eventually("credits are held", || async {
        let balance = site.balance().await;
        (balance["reservedUsd"] != "0").then_some(balance)
    })
    .await;
    let held = micros(running["reservedUsd"].as_str().unwrap());
    // The bound: every byte of the body a token and 64 for the template, and the model's longest answer.
    assert!((2000..2400).contains(&held), "{held}");
    assert_eq!(running["usd"], "0.03");
    assert_eq!(
        micros(running["availableUsd"].as_str().unwrap()),
        micros("0.03") - held
    );
    let refused = site
        .chat(&chat("dear", "hi"))
        .send()
        .await
        .refused(402, "INSUFFICIENT_CREDITS");
    let available = refused.json()["availableCredits"].as_str().unwrap().to_owned();
    assert_eq!(micros_of_credits(&available), micros("0.03") - held);
    gate.open();
    let reply = first.await.unwrap().expect(200);
    assert_eq!(receipt(&reply), (3, micros("0.03") - 3));
    assert_eq!(site.settled().await, micros("0.03") - 3);
}

// Fault matrix 15, 25
async fn a_price_change_reaches_new_calls_only(store: Store) {
    let site = Site::new(store).await;
    let gate = crate::harness::Gate::new();
    let held = gate.clone();
    site.upstream
        .script(move |seen| vec![Step::Wait(held.clone()), completion(seen.number, &tokens(1, 1))]);
    let running = tokio::spawn(site.chat(&chat("flat", "hi")).send());
    crate::harness::eventually("the call was sent", || async {
        (site.upstream.count() == 1).then_some(())
    })
    .await;
    let file = site.data.join("dearer.toml");
    let text = "[[models]]\nprovider = \"up\"\nmodel = \"flat\"\nmax_output_tokens = 1000\n\
                rates = { input = \"0\", output = \"0\", per_call = \"0.05\" }\n";
    std::fs::write(&file, text).unwrap();
    site.operate(&["prices", "import", file.to_str().unwrap()]);
    gate.open();
    assert_eq!(receipt(&running.await.unwrap().expect(200)).0, 10_000);
    crate::harness::eventually("the new price is in force", || async {
        let reply = site.chat(&chat("flat", "hi")).send().await.expect(200);
        let charged = receipt(&reply).0;
        assert!(matches!(charged, 10_000 | 50_000), "{charged}");
        (charged == 50_000).then_some(())
    })
    .await;
}
