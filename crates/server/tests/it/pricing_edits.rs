//! Levels of markup and the catalogue over HTTP: set, reset, told of, and in force.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{CHAT, Reply, Setup, Site, Store, TOOL, chat, eventually, operate};
use crate::on_both_stores;
use crate::pricing::percent;

on_both_stores!(
    levels_are_set_reset_and_told_of,
    twenty_edits_at_once_lose_nothing,
    what_is_switched_off_is_sold_to_nobody,
    the_catalogue_is_paged_and_says_why,
    a_models_id_is_one_segment,
    settings_leave_prices_to_who_may_change_them,
);

impl Site {
    async fn change(&self, method: Method, path: &str, body: &Value) -> Reply {
        let call = self.client.request(method, path).bearer(&self.key);
        call.json(body).send().await
    }

    async fn unset(&self, path: &str) -> Reply {
        self.client
            .request(Method::DELETE, path)
            .bearer(&self.key)
            .send()
            .await
    }
}

async fn levels_are_set_reset_and_told_of(store: Store) {
    let site = Site::new(store).await;
    let set = site
        .price("global", &json!({ "markupBps": 100, "flatMarkupUsdc": "0.50" }))
        .await
        .expect(200);
    assert_eq!(
        set.json()["pricing"],
        json!({ "level": "global", "target": null, "markupBps": 100, "flatMarkupUsdc": "0.5" })
    );
    site.price("providers/up", &json!({ "markupBps": 0 }))
        .await
        .expect(200);
    let set = site
        .price("endpoints/tools/fetch", &json!({ "flatMarkupUsdc": "2" }))
        .await
        .expect(200);
    assert_eq!(
        set.json()["pricing"],
        json!({ "level": "endpoint", "target": "tools/fetch", "markupBps": null, "flatMarkupUsdc": "2" })
    );
    site.issue(&json!({ "name": "priced", "pricing": { "markupBps": 9 } }))
        .await;
    let levels = site.get("/api/credits/pricing").send().await.expect(200).json()["pricing"].clone();
    assert_eq!(
        levels["global"],
        json!({ "markupBps": 100, "flatMarkupUsdc": "0.5" })
    );
    assert_eq!(levels["providers"], json!({ "up": { "markupBps": 0 } }));
    assert_eq!(
        levels["endpoints"],
        json!({ "tools/fetch": { "flatMarkupUsdc": "2" } })
    );
    assert_eq!(
        (&levels["keys"][0]["name"], &levels["moreKeys"]),
        (&json!("priced"), &json!(false))
    );
    // The same again is no change; less than before takes away.
    site.price("endpoints/tools/fetch", &json!({ "flatMarkupUsdc": "2.0" }))
        .await
        .expect(200);
    site.price("global", &json!({ "markupBps": 100 }))
        .await
        .expect(200);
    site.unset("/api/credits/pricing/endpoints/tools/fetch")
        .await
        .expect(200);
    site.unset("/api/credits/pricing/endpoints/tools/fetch")
        .await
        .expect(200);
    site.switch("tools", &json!(false)).await.expect(200);
    site.unset("/api/credits/catalog/tools").await.expect(200);
    for (level, body, status, code) in [
        ("providers/none", json!({}), 404, "ENDPOINT_NOT_FOUND"),
        ("endpoints/tools/none", json!({}), 404, "ENDPOINT_NOT_FOUND"),
        ("endpoints/none/fetch", json!({}), 404, "ENDPOINT_NOT_FOUND"),
        ("global", json!({ "markupBps": -1 }), 400, "VALIDATION_ERROR"),
        ("global", json!({ "markupBps": 100_001 }), 400, "VALIDATION_ERROR"),
        ("global", json!({ "markupBps": "1" }), 400, "VALIDATION_ERROR"),
        (
            "global",
            json!({ "flatMarkupUsdc": "-1" }),
            400,
            "VALIDATION_ERROR",
        ),
        ("global", json!({ "flatMarkupUsdc": 1 }), 400, "VALIDATION_ERROR"),
        ("global", json!({ "bps": 1 }), 400, "UNKNOWN_FIELD"),
        ("global", json!([]), 400, "INVALID_JSON"),
    ] {
        site.price(level, &body).await.refused(status, code);
    }
    site.unset("/api/credits/pricing/providers/none")
        .await
        .refused(404, "ENDPOINT_NOT_FOUND");
    let mut told: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = site
            .get(&format!("/api/credits/pricing/history?limit=3{cursor}"))
            .send()
            .await;
        let page = page.expect(200).json();
        told.extend(page["data"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let rows: Vec<Value> = told
        .iter()
        .rev()
        .map(|row| json!([row["action"], row["before"], row["after"]]))
        .collect();
    assert_eq!(
        rows,
        [
            json!(["pricing.set", null, { "markupBps": 100, "flatMarkupUsdc": "0.5" }]),
            json!(["pricing.set", null, { "markupBps": 0 }]),
            json!(["pricing.set", null, { "flatMarkupUsdc": "2" }]),
            json!(["key.pricing", null, { "markupBps": 9 }]),
            json!(["pricing.set", { "markupBps": 100, "flatMarkupUsdc": "0.5" }, { "markupBps": 100 }]),
            json!(["pricing.reset", { "flatMarkupUsdc": "2" }, null]),
            json!(["catalog.set", null, false]),
            json!(["catalog.reset", false, null]),
        ]
    );
    let first = told.last().unwrap();
    assert_eq!(first["target"], "global");
    assert!(first["actor"].as_str().unwrap().starts_with("key:") && first["at"].is_string());
}

async fn twenty_edits_at_once_lose_nothing(store: Store) {
    let site = Site::new(store).await;
    let levels = ["flat", "dear", "tokens", "blind", "free", "thinking"];
    let tools = ["fetch", "item", "units", "live"];
    let mut edits = tokio::task::JoinSet::new();
    let mut put = |path: String, body: Value| {
        let call = site.client.request(Method::PUT, &path).bearer(&site.key);
        edits.spawn(call.json(&body).send());
    };
    for (number, model) in levels.iter().enumerate() {
        put(
            format!("/api/credits/pricing/endpoints/up/{model}"),
            json!({ "markupBps": number + 1 }),
        );
        put(
            format!("/api/credits/catalog/up/{model}"),
            json!({ "enabled": false }),
        );
    }
    for (number, tool) in tools.iter().enumerate() {
        put(
            format!("/api/credits/pricing/endpoints/tools/{tool}"),
            json!({ "markupBps": number + 100 }),
        );
    }
    for provider in ["up", "tools"] {
        put(
            format!("/api/credits/pricing/providers/{provider}"),
            json!({ "markupBps": 7 }),
        );
    }
    put(
        "/api/credits/pricing/global".to_owned(),
        json!({ "markupBps": 8 }),
    );
    put(
        "/api/credits/tenants/me/settings".to_owned(),
        json!({ "streamSettlement": "usage" }),
    );
    for reply in edits.join_all().await {
        reply.expect(200);
    }
    let settings = site
        .get("/api/credits/tenants/me/settings")
        .send()
        .await
        .expect(200)
        .json();
    let settings = &settings["settings"];
    let pricing = &settings["pricing"];
    for (number, model) in levels.iter().enumerate() {
        assert_eq!(
            pricing["endpoints"][format!("up/{model}")]["markupBps"],
            number + 1,
            "{settings}"
        );
        assert_eq!(settings["catalog"][format!("up/{model}")], false, "{settings}");
    }
    for (number, tool) in tools.iter().enumerate() {
        assert_eq!(
            pricing["endpoints"][format!("tools/{tool}")]["markupBps"],
            number + 100,
            "{settings}"
        );
    }
    assert_eq!(
        pricing["providers"],
        json!({ "up": { "markupBps": 7 }, "tools": { "markupBps": 7 } })
    );
    assert_eq!(
        (&pricing["global"]["markupBps"], &settings["streamSettlement"]),
        (&json!(8), &json!("usage"))
    );
    assert_eq!(
        site.noted("pricing.set").await + site.noted("catalog.set").await,
        19
    );
}

async fn what_is_switched_off_is_sold_to_nobody(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let token = site.token("alice", &json!({ "scopes": ["spend"] })).await;
    let sandbox = site.new_key("sandbox", &[]);
    let chat_with = async |bearer: &str, model: &str| {
        let call = site.client.request(Method::POST, CHAT).bearer(bearer);
        call.json(&chat(model, "hi")).send().await
    };
    let tool_with = async |bearer: &str| {
        let call = site
            .client
            .request(Method::POST, TOOL)
            .bearer(bearer)
            .once(&uuid::Uuid::new_v4().to_string());
        call.json(&json!({})).send().await
    };
    let shown = async |bearer: &str| {
        let list = site
            .client
            .request(Method::GET, "/api/wrapped/credits/v1/models")
            .bearer(bearer);
        let list = list.send().await.expect(200).json();
        let ids = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    site.switch("up/flat", &json!(false)).await.expect(200);
    site.switch("tools/fetch", &json!(false)).await.expect(200);
    for bearer in [&site.key, &token, &sandbox] {
        chat_with(bearer, "flat").await.refused(403, "ENDPOINT_DISABLED");
        chat_with(bearer, "up/flat")
            .await
            .refused(403, "ENDPOINT_DISABLED");
        tool_with(bearer).await.refused(403, "ENDPOINT_DISABLED");
        chat_with(bearer, "dear").await.expect(200);
        let ids = shown(bearer).await;
        assert!(
            !ids.contains(&"flat".to_owned()) && ids.contains(&"dear".to_owned()),
            "{ids:?}"
        );
    }
    let paid = site
        .client
        .request(Method::POST, CHAT)
        .bearer(&site.key)
        .paid_by("alice");
    paid.json(&chat("flat", "hi"))
        .send()
        .await
        .refused(403, "ENDPOINT_DISABLED");
    assert_eq!(
        site.upstream.count(),
        2,
        "only the other model was called, not for the sandbox"
    );
    // What was answered before stays answered.
    site.switch("up", &json!(false)).await.expect(200);
    chat_with(&site.key, "dear")
        .await
        .refused(403, "ENDPOINT_DISABLED");
    assert!(shown(&site.key).await.is_empty());
    site.switch("up/dear", &json!(true)).await.expect(200);
    chat_with(&site.key, "dear").await.expect(200);
    assert_eq!(shown(&token).await, ["dear"]);
    // Another workspace is not concerned.
    let (_, other) = site.workspace("Others");
    assert!(shown(&other).await.contains(&"flat".to_owned()));
    site.unset("/api/credits/catalog/up").await.expect(200);
    chat_with(&site.key, "flat")
        .await
        .refused(403, "ENDPOINT_DISABLED");
    site.unset("/api/credits/catalog/up/flat").await.expect(200);
    chat_with(&site.key, "flat").await.expect(200);
    for (what, body, status, code) in [
        ("up/none", json!({ "enabled": true }), 404, "ENDPOINT_NOT_FOUND"),
        ("none", json!({ "enabled": true }), 404, "ENDPOINT_NOT_FOUND"),
        ("up", json!({}), 400, "VALIDATION_ERROR"),
        ("up", json!({ "enabled": "no" }), 400, "VALIDATION_ERROR"),
        ("up", json!({ "enabled": null }), 400, "VALIDATION_ERROR"),
        (
            "up",
            json!({ "enabled": true, "for": "all" }),
            400,
            "UNKNOWN_FIELD",
        ),
    ] {
        let path = format!("/api/credits/catalog/{what}");
        site.change(Method::PUT, &path, &body).await.refused(status, code);
    }
    site.unset("/api/credits/catalog/up/none")
        .await
        .refused(404, "ENDPOINT_NOT_FOUND");
}

async fn the_catalogue_is_paged_and_says_why(store: Store) {
    let site = Site::new(store).await;
    site.switch("tools", &json!(false)).await.expect(200);
    let switched = site.switch("tools/live", &json!(true)).await.expect(200).json();
    assert_eq!(
        switched["entry"],
        json!({
            "slug": "tools/live", "provider": "tools", "endpoint": "live", "kind": "tool", "name": "Live",
            "enabled": true, "enabledBy": "endpoint", "dynamic": true,
        })
    );
    let (mut all, mut cursor): (Vec<Value>, String) = (Vec::new(), String::new());
    loop {
        let page = site
            .get(&format!("/api/credits/catalog?limit=5{cursor}"))
            .send()
            .await;
        let page = page.expect(200).json();
        all.extend(page["data"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", percent(next)),
            None => break,
        }
    }
    let slugs: Vec<&str> = all.iter().map(|entry| entry["slug"].as_str().unwrap()).collect();
    assert_eq!(
        slugs,
        [
            "tools/fetch",
            "tools/item",
            "tools/live",
            "tools/units",
            "up/blind",
            "up/dear",
            "up/flat",
            "up/free",
            "up/renamed",
            "up/thinking",
            "up/tokens",
            "up/unpriced",
        ]
    );
    let of = |slug: &str| {
        let entry = all.iter().find(|entry| entry["slug"] == slug).unwrap();
        (
            entry["kind"].clone(),
            entry["enabled"].clone(),
            entry["enabledBy"].clone(),
        )
    };
    assert_eq!(
        of("tools/fetch"),
        (json!("tool"), json!(false), json!("provider"))
    );
    assert_eq!(of("up/flat"), (json!("model"), json!(true), json!("default")));
    for bad in ["limit=0", "limit=101", "limit=x"] {
        site.get(&format!("/api/credits/catalog?{bad}"))
            .send()
            .await
            .refused(400, "VALIDATION_ERROR");
    }
    let long = "x".repeat(600);
    let page = site
        .get(&format!("/api/credits/catalog?cursor={long}"))
        .send()
        .await;
    page.refused(400, "CURSOR_INVALID");
}

async fn a_models_id_is_one_segment(store: Store) {
    const MODEL: &str = "org/model:free";
    let mut setup = Setup::new(store);
    let models = setup.config["providers"].as_array_mut().unwrap()[0]["models"]
        .as_array_mut()
        .unwrap();
    models.push(MODEL.into());
    let site = setup.start().await;
    let prices = site.data.with_file_name("more.toml");
    let price = format!(
        "[[models]]\nprovider = \"up\"\nmodel = \"{MODEL}\"\nmax_output_tokens = 10\nrates = {{ input = \"0\", output = \"0\", per_call = \"0.02\" }}\n"
    );
    std::fs::write(&prices, price).unwrap();
    let (status, _, complaint) = operate(
        &site.config,
        &site.data,
        &["prices", "import", prices.to_str().unwrap()],
    );
    assert!(status.success(), "{complaint}");
    eventually("the model is priced", || async {
        (site.chat(&chat(MODEL, "hi")).send().await.status == 200).then_some(())
    })
    .await;
    let encoded = percent(MODEL);
    assert_eq!(encoded, "org%2Fmodel%3Afree");
    let level = format!("endpoints/up/{encoded}");
    let set = site
        .price(&level, &json!({ "markupBps": 5000 }))
        .await
        .expect(200)
        .json();
    assert_eq!(set["pricing"]["target"], "up/org/model:free");
    let explain = site
        .explained(
            &site.key,
            "up/org/model:free",
            Some(&chat(MODEL, "hi").to_string()),
        )
        .await;
    assert_eq!(explain.expect(200).json()["explain"]["effectiveUsd"], "0.03");
    let switched = site
        .switch(&format!("up/{encoded}"), &json!(false))
        .await
        .expect(200)
        .json();
    assert_eq!(switched["entry"]["slug"], "up/org/model:free");
    site.chat(&chat(MODEL, "hi"))
        .send()
        .await
        .refused(403, "ENDPOINT_DISABLED");
    // A bare slash is another path, and dots are no way up.
    site.switch("up/org/model:free", &json!(true))
        .await
        .refused(404, "NOT_FOUND");
    site.switch("up/..%2Fmodel", &json!(true))
        .await
        .refused(404, "ENDPOINT_NOT_FOUND");
    site.unset(&format!("/api/credits/catalog/up/{encoded}"))
        .await
        .expect(200);
    site.unset(&format!("/api/credits/pricing/{level}"))
        .await
        .expect(200);
    site.chat(&chat(MODEL, "hi")).send().await.expect(200);
}

async fn settings_leave_prices_to_who_may_change_them(store: Store) {
    let site = Site::new(store).await;
    let path = "/api/credits/tenants/me/settings";
    site.price("global", &json!({ "markupBps": 5 })).await.expect(200);
    site.switch("up/dear", &json!(false)).await.expect(200);
    let writer = site.new_key("secret", &["tenant:write"]);
    let put = async |bearer: &str, body: Value| {
        let call = site.client.request(Method::PUT, path).bearer(bearer);
        call.json(&body).send().await
    };
    for body in [
        json!({ "pricing": {} }),
        json!({ "pricing": { "global": { "markupBps": 6 } } }),
        json!({ "catalog": {} }),
        json!({ "catalog": { "up/dear": true } }),
    ] {
        let refused = put(&writer, body).await.refused(403, "INSUFFICIENT_SCOPE").json();
        assert_eq!(
            (&refused["requiredScopes"], &refused["presentScopes"]),
            (&json!(["catalog:write"]), &json!(["tenant:write"]))
        );
    }
    // The document as it was read changes nothing of it; silence leaves it.
    let read = site.get(path).send().await.expect(200).json()["settings"].clone();
    let mut same = read.clone();
    same["requireIdempotencyKey"] = json!(true);
    let kept = put(&writer, same.clone()).await.expect(200).json();
    assert_eq!(kept["settings"], same);
    let kept = put(&writer, json!({})).await.expect(200).json();
    assert_eq!(kept["settings"], read);
    let changed = put(&site.key, json!({ "pricing": { "global": { "markupBps": 6 } } }))
        .await
        .expect(200)
        .json();
    assert_eq!(
        changed["settings"]["pricing"]["global"],
        json!({ "markupBps": 6 })
    );
    assert_eq!(changed["settings"]["catalog"], json!({ "up/dear": false }));
    put(&site.key, json!({ "catalogue": {} }))
        .await
        .refused(400, "UNKNOWN_FIELD");
    put(&site.key, json!({ "catalog": { "up": true } }))
        .await
        .refused(400, "VALIDATION_ERROR");
    put(&site.key, json!({ "topups": { "urlHosts": ["a b"] } }))
        .await
        .refused(400, "VALIDATION_ERROR");
    let history = site
        .get("/api/credits/pricing/history")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(history["data"][0]["action"], "pricing.replace");
}
