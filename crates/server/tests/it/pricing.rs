//! Explanations over HTTP: they are what is charged, and whatever is asked is answered.

use http::Method;
use serde_json::{Value, json};

use crate::harness::upstream::completion;
use crate::harness::{CHAT, Reply, Site, Store, TOOL, chat, raw_exchange};
use crate::keys::id_of;
use crate::on_both_stores;

on_both_stores!(
    an_explanation_is_what_is_charged,
    whatever_the_arguments_are_there_is_an_answer,
    a_live_price_has_no_amounts,
    who_asks_decides_whose_prices_count,
    a_model_is_explained_by_its_bound_or_its_rates,
);

/// Percent-encodes everything but letters and digits.
pub fn percent(text: &str) -> String {
    let encode = |byte: u8| {
        if byte.is_ascii_alphanumeric() {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encode).collect()
}

impl Site {
    /// Asks for an explanation.
    pub async fn explained(&self, bearer: &str, slug: &str, args: Option<&str>) -> Reply {
        let (provider, endpoint) = slug.split_once('/').unwrap();
        let mut path = format!(
            "/api/credits/pricing/explain?provider={provider}&endpoint={}",
            percent(endpoint)
        );
        if let Some(args) = args {
            path.extend(["&args=", &percent(args)]);
        }
        self.client
            .request(Method::GET, &path)
            .bearer(bearer)
            .send()
            .await
    }

    async fn explain(&self, bearer: &str, slug: &str, args: &Value) -> Value {
        let reply = self.explained(bearer, slug, Some(&args.to_string())).await;
        reply.expect(200).json()["explain"].clone()
    }

    /// Sets a level's markup.
    pub async fn price(&self, level: &str, markup: &Value) -> Reply {
        let path = format!("/api/credits/pricing/{level}");
        let put = self.client.request(Method::PUT, &path).bearer(&self.key);
        put.json(markup).send().await
    }
}

// Fault matrix 183, I10
async fn an_explanation_is_what_is_charged(store: Store) {
    let site = Site::new(store).await;
    site.grant("100", Some("alice"));
    // Without a report of usage a call costs what was held for it.
    site.upstream.script(|seen| {
        if seen.path.ends_with("/chat/completions") {
            vec![completion(seen.number, &Value::Null)]
        } else {
            crate::harness::upstream::well(seen)
        }
    });
    let calls = [
        ("tools/fetch", json!({ "id": "x" })),
        ("tools/units", json!({ "count": 7 })),
        ("tools/units", json!({ "count": 0 })),
        ("up/flat", chat("flat", "hi")),
        ("up/tokens", chat("up/tokens", "häh?")),
        (
            "up/renamed",
            json!({ "model": "renamed", "messages": [{ "role": "user", "content": "x" }], "max_tokens": 17 }),
        ),
    ];
    let body = json!({
        "name": "n", "scopes": ["tenant:read"],
        "pricing": { "flatMarkupUsdc": "0.000007", "endpoints": { "up/flat": { "markupBps": 3333 } } },
    });
    let own = site.issue(&body).await["key"].as_str().unwrap().to_owned();
    let levels = [
        ("global", json!({ "markupBps": 1 })),
        (
            "providers/up",
            json!({ "markupBps": 777, "flatMarkupUsdc": "0.01" }),
        ),
        ("endpoints/tools/units", json!({ "markupBps": 12_345 })),
        ("endpoints/up/tokens", json!({ "flatMarkupUsdc": "0.25" })),
    ];
    for round in 0..=levels.len() {
        for (at, (slug, args)) in calls.iter().enumerate() {
            for key in [&site.key, &own] {
                let explain = site.explain(key, slug, args).await;
                let (provider, endpoint) = slug.split_once('/').unwrap();
                let path = if provider == "up" {
                    CHAT.to_owned()
                } else {
                    format!("/api/wrapped/credits/{provider}/{endpoint}")
                };
                let call = site.client.request(Method::POST, &path).bearer(key).json(args);
                let once = format!("{round}-{at}-{}", key == &own);
                let paid = call.paid_by("alice").once(&once).send().await.expect(200);
                assert_eq!(
                    (
                        paid.header("x-svc-credits-charged"),
                        paid.header("x-svc-cost-usd")
                    ),
                    (
                        explain["effectiveCredits"].as_str(),
                        explain["effectiveUsd"].as_str()
                    ),
                    "{slug} {explain}"
                );
            }
        }
        if let Some((level, markup)) = levels.get(round) {
            site.price(level, markup).await.expect(200);
        }
    }
}

// Fault matrix 181
async fn whatever_the_arguments_are_there_is_an_answer(store: Store) {
    let site = Site::new(store).await;
    let ask = async |slug: &str, args: &str| site.explained(&site.key, slug, Some(args)).await;
    let one = ask("tools/units", "{\"count\":1}").await.expect(200).json();
    for args in [
        "null",
        "[]",
        "\"x\"",
        "1e999",
        "{\"count\":1e999}",
        "{\"count\":-1}",
        "{\"count\":\"many\"}",
        "{\"count\":1,\"count\":2}",
        "true",
        "{}",
        &format!("{}{}", "[".repeat(100), "]".repeat(100)),
    ] {
        let reply = ask("tools/units", args).await.expect(200);
        assert_eq!(reply.json()["explain"], one["explain"], "{args}: one unit");
        for slug in ["tools/fetch", "tools/live", "up/flat"] {
            ask(slug, args).await.expect(200);
        }
    }
    for args in ["", "{", "{'count':1}", "NaN", "1 2", "undefined", "\u{0}"] {
        ask("tools/units", args).await.refused(400, "INVALID_JSON");
    }
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    ask("tools/units", &deep).await.refused(400, "VALIDATION_ERROR");
    let wide = format!("\"{}\"", "x".repeat(40_000));
    ask("tools/units", &wide).await.refused(400, "VALIDATION_ERROR");
    let query = format!("provider=tools&endpoint=units&args=\"{}\"", "x".repeat(1_000_000));
    let head = format!(
        "GET /api/credits/pricing/explain?{query} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        site.key
    );
    // The address is longer than any is read: nobody looks at what it asks for.
    let huge = raw_exchange(&site.address(), head.as_bytes()).await;
    assert!(matches!(huge.status, 0 | 400 | 414 | 431), "{}", huge.head);
    let path = "/api/credits/pricing/explain";
    for query in [
        "",
        "?provider=tools",
        "?endpoint=fetch",
        "?provider=&endpoint=fetch",
        "?provider=tools&endpoint=",
    ] {
        site.get(&format!("{path}{query}"))
            .send()
            .await
            .refused(400, "VALIDATION_ERROR");
    }
    for (provider, endpoint) in [
        ("none", "fetch"),
        ("tools", "none"),
        ("tools", "flat"),
        ("up", "upstream-name"),
        ("up", "*"),
        ("tools", "%00"),
        ("tools", "..%2Ffetch"),
    ] {
        let query = format!("{path}?provider={provider}&endpoint={endpoint}");
        site.get(&query).send().await.refused(404, "ENDPOINT_NOT_FOUND");
    }
    site.get(&format!("{path}?provider=up&endpoint=unpriced"))
        .send()
        .await
        .refused(503, "PRICE_UNAVAILABLE");
    let bad = site
        .get(&format!("{path}?provider=tools&endpoint=fetch&args=%FF"))
        .send()
        .await;
    assert!(bad.status < 500, "{}", bad.text());
}

// Fault matrix 182
async fn a_live_price_has_no_amounts(store: Store) {
    let site = Site::new(store).await;
    site.price("global", &json!({ "markupBps": 250, "flatMarkupUsdc": "0.5" }))
        .await
        .expect(200);
    let explain = site.explain(&site.key, "tools/live", &json!({ "a": 1 })).await;
    assert_eq!(
        (&explain["dynamic"], &explain["estimated"]),
        (&json!(true), &json!(false))
    );
    for (name, value) in explain.as_object().unwrap() {
        let money = name != "creditsPerDollar" && (name.ends_with("Usd") || name.ends_with("Credits"));
        assert_eq!(value.is_null(), money, "{name}");
    }
    assert_eq!(
        (&explain["markupBps"], &explain["markupSource"]),
        (&json!(250), &json!("global"))
    );
    assert_eq!(explain["overridden"], false);
    assert_eq!(site.upstream.count(), 0, "nobody is asked for a price");
}

async fn who_asks_decides_whose_prices_count(store: Store) {
    let site = Site::new(store).await;
    let body = json!({
        "name": "n", "scopes": ["tenant:read"], "pricing": { "markupBps": 10_000 },
        "tools": { "enable": ["tools/fetch"] },
    });
    let issued = site.issue(&body).await;
    let (own, id) = (issued["key"].as_str().unwrap(), id_of(&issued));
    site.price(
        "endpoints/tools/fetch",
        &json!({ "markupBps": 100, "flatMarkupUsdc": "1" }),
    )
    .await
    .expect(200);
    let source = |explain: &Value| {
        let text = |name: &str| explain[name].as_str().unwrap().to_owned();
        (text("markupSource"), text("flatSource"), text("effectiveUsd"))
    };
    let expect = |a: &str, b: &str, usd: &str| (a.to_owned(), b.to_owned(), usd.to_owned());
    let by_key = site.explain(own, "tools/fetch", &json!({})).await;
    assert_eq!(source(&by_key), expect("key", "endpoint", "1.016"));
    assert_eq!(by_key["enabled"], true);
    let narrowed = site.explain(own, "tools/item", &json!({})).await;
    assert_eq!(narrowed["enabled"], false);
    let owner = site.owner();
    let by_member = site.explain(&owner, "tools/fetch", &json!({})).await;
    assert_eq!(source(&by_member), expect("endpoint", "endpoint", "1.00808"));
    let path = format!("/api/credits/pricing/explain?provider=tools&endpoint=fetch&keyId={id}");
    let ask = async |bearer: &str| {
        site.client
            .request(Method::GET, &path)
            .bearer(bearer)
            .send()
            .await
    };
    assert_eq!(ask(&owner).await.expect(200).json()["explain"], by_key);
    assert_eq!(ask(own).await.expect(200).json()["explain"], by_key);
    ask(&site.key).await.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    site.switch("tools/fetch", &json!(false)).await.expect(200);
    let disabled = site.explain(&owner, "tools/fetch", &json!({})).await;
    assert_eq!(disabled["enabled"], false);
    assert!(disabled["humanSummary"].as_str().unwrap().contains("(disabled)"));
    let call = site.post(TOOL, &json!({})).once("k").send().await;
    call.refused(403, "ENDPOINT_DISABLED");
}

async fn a_model_is_explained_by_its_bound_or_its_rates(store: Store) {
    let site = Site::new(store).await;
    let rates = site
        .explained(&site.key, "up/tokens", None)
        .await
        .expect(200)
        .json();
    let rates = &rates["explain"];
    assert_eq!(
        (&rates["dynamic"], &rates["estimated"]),
        (&json!(false), &json!(true))
    );
    assert!(rates["effectiveUsd"].is_null() && rates["baseUsd"].is_null());
    let says = rates["humanSummary"].as_str().unwrap();
    assert!(says.contains("input 1 USD per million tokens"), "{says}");
    for unusable in [
        json!({}),
        json!({ "messages": [] }),
        json!({ "messages": "hi" }),
        json!([1]),
    ] {
        assert_eq!(site.explain(&site.key, "up/tokens", &unusable).await, *rates);
    }
    let small = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 10 });
    let bound = site.explain(&site.key, "up/tokens", &small).await;
    assert!(
        bound["humanSummary"].as_str().unwrap().contains("costs at most"),
        "{bound}"
    );
    // Another model's name in the body changes nothing: the address says which is meant.
    let mut other = small.clone();
    other["model"] = json!("dear");
    assert_eq!(site.explain(&site.key, "up/tokens", &other).await, bound);
    let flat = site
        .explained(&site.key, "up/flat", None)
        .await
        .expect(200)
        .json();
    assert!(
        flat["explain"]["humanSummary"]
            .as_str()
            .unwrap()
            .contains("per_call 0.01 USD each"),
        "{flat}"
    );
}
