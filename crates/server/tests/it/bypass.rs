//! Ways to pay less than a call costs: fields, budgets, models and images that would be billed otherwise.

use serde_json::json;

use crate::harness::{Site, Store, chat, chat_stream, micros};
use crate::on_both_stores;
use crate::validation::untouched;

on_both_stores!(
    fields_that_change_the_price_are_refused_or_priced,
    output_budgets_are_checked_and_bound_the_hold,
    unknown_and_unpriced_models_are_not_sold,
    images_are_bounded_and_never_fetched,
);

// Fault matrix 94
async fn fields_that_change_the_price_are_refused_or_priced(store: Store) {
    let site = Site::new(store).await;
    for (field, value) in [
        ("n", json!(129)),
        ("n", json!(0)),
        ("n", json!(-1)),
        ("n", json!("2")),
        ("best_of", json!(2)),
        ("service_tier", json!("priority")),
        ("web_search_options", json!({})),
        ("models", json!(["dear"])),
        ("provider", json!({ "order": ["x"] })),
        ("plugins", json!([{ "id": "web" }])),
        ("modalities", json!(["text", "audio"])),
        ("audio", json!({ "voice": "x" })),
        ("prediction", json!({ "type": "content" })),
        ("store", json!(true)),
        ("tools", json!([{ "type": "web_search" }])),
    ] {
        for mut body in [chat("tokens", "hi"), chat_stream("tokens", "hi")] {
            body[field] = value.clone();
            let reply = site
                .chat(&body)
                .send()
                .await
                .refused(400, "VALIDATION_ERROR")
                .json();
            assert!(
                reply["details"][0]["path"].as_str().unwrap().starts_with(field),
                "{reply}"
            );
        }
    }
    untouched(&site).await;
    let mut body = chat("tokens", "hi");
    body["max_tokens"] = json!(100);
    let one = site.chat(&body).send().await.expect(200);
    body["n"] = json!(3);
    let three = site.chat(&body).send().await.expect(200);
    let held = |reply: &crate::harness::Reply| {
        let id = reply.header("x-svc-call-id").unwrap().to_owned();
        let site = &site;
        async move { micros(site.call(&id).await["reservedUsd"].as_str().unwrap()) }
    };
    // Two more answers of a hundred tokens, and the six bytes of `,"n":3`.
    assert_eq!(held(&three).await - held(&one).await, 2 * 100 * 2 + 6);
}

// Fault matrix 95, 96
async fn output_budgets_are_checked_and_bound_the_hold(store: Store) {
    let site = Site::new(store).await;
    for budget in [
        json!(0),
        json!(-1),
        json!(1.5),
        json!(9_223_372_036_854_775_808_u64),
        json!("5"),
        json!(1001),
    ] {
        for field in ["max_tokens", "max_completion_tokens"] {
            let mut body = chat("tokens", "hi");
            body[field] = budget.clone();
            site.chat(&body).send().await.refused(400, "VALIDATION_ERROR");
        }
    }
    let mut both = chat("tokens", "hi");
    both["max_tokens"] = json!(5);
    both["max_completion_tokens"] = json!(6);
    site.chat(&both).send().await.refused(400, "VALIDATION_ERROR");
    for field in ["max_tokens", "max_completion_tokens"] {
        let mut small = chat("thinking", "hi");
        small[field] = json!(3999);
        let reply = site
            .chat(&small)
            .send()
            .await
            .refused(400, "OUTPUT_BUDGET_TOO_SMALL")
            .json();
        assert_eq!(
            (&reply["field"], &reply["recommendedMinOutputTokens"]),
            (&json!(field), &json!(4000))
        );
    }
    untouched(&site).await;
    both["max_completion_tokens"] = json!(5);
    let reply = site.chat(&both).send().await.expect(200);
    let call = site.call(reply.header("x-svc-call-id").unwrap()).await;
    let sent = i64::try_from(site.upstream.last().body.len()).unwrap();
    assert_eq!(micros(call["reservedUsd"].as_str().unwrap()), sent + 64 + 5 * 2);
    let mut enough = chat("thinking", "hi");
    enough["max_tokens"] = json!(4000);
    site.chat(&enough).send().await.expect(200);
    site.chat(&chat("thinking", "hi")).send().await.expect(200);
}

// Fault matrix 97
async fn unknown_and_unpriced_models_are_not_sold(store: Store) {
    let site = Site::new(store).await;
    for model in [
        "nothing",
        "Flat",
        "up/",
        "down/flat",
        "tools/flat",
        "upflat",
        "../flat",
        "flat\u{0}",
        "upstream-name",
    ] {
        site.chat(&chat(model, "hi"))
            .send()
            .await
            .refused(400, "MODEL_NOT_SUPPORTED");
    }
    for model in [
        json!(""),
        json!(3),
        json!(null),
        json!(["flat"]),
        json!("x".repeat(300)),
    ] {
        let mut body = chat("flat", "hi");
        body["model"] = model;
        site.chat(&body).send().await.refused(400, "VALIDATION_ERROR");
    }
    site.chat(&chat("unpriced", "hi"))
        .send()
        .await
        .refused(503, "PRICE_UNAVAILABLE");
    untouched(&site).await;
    let models = site
        .get("/api/wrapped/credits/v1/models")
        .send()
        .await
        .expect(200)
        .json();
    let mut ids: Vec<&str> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(
        ids,
        ["blind", "dear", "flat", "free", "renamed", "thinking", "tokens"]
    );
    site.chat(&chat("up/flat", "hi")).send().await.expect(200);
}

// Fault matrix 98
async fn images_are_bounded_and_never_fetched(store: Store) {
    let site = Site::new(store).await;
    let trap = crate::harness::Upstream::start().await;
    let with = |model: &str, url: &str| {
        json!({ "model": model, "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "look" }, { "type": "image_url", "image_url": { "url": url } }] }] })
    };
    let local = format!("http://{}/a.png", trap.address);
    for url in [
        &local,
        "http://169.254.169.254/latest",
        "file:///etc/passwd",
        "gopher://x/",
        "http://[::ffff:127.0.0.1]/",
        "data:text/html,x",
        "HTTPS://example.com/a.png",
        "",
    ] {
        let reply = site.chat(&with("tokens", url)).send().await;
        if url.starts_with("HTTPS") {
            assert!(matches!(reply.status, 200 | 400));
        } else {
            reply.refused(400, "VALIDATION_ERROR");
        }
    }
    for kind in ["input_audio", "file", "video_url", ""] {
        let body =
            json!({ "model": "tokens", "messages": [{ "role": "user", "content": [{ "type": kind }] }] });
        site.chat(&body).send().await.refused(400, "VALIDATION_ERROR");
    }
    site.chat(&with("blind", "https://example.com/a.png"))
        .send()
        .await
        .refused(400, "MODEL_NOT_SUPPORTED");
    assert_eq!(site.upstream.connections(), 0);
    let local_https = format!("https://{}/a.png", trap.address);
    for url in [local_https.as_str(), "data:image/png;base64,AAAA"] {
        let reply = site.chat(&with("tokens", url)).send().await.expect(200);
        let call = site.call(reply.header("x-svc-call-id").unwrap()).await;
        let sent = i64::try_from(site.upstream.last().body.len()).unwrap();
        assert_eq!(
            micros(call["reservedUsd"].as_str().unwrap()),
            sent + 64 + 100 + 2000
        );
    }
    assert_eq!(trap.connections(), 0);
}
