//! Finding tools over HTTP: what is asked, who may see what as enabled, and what one is told of a tool.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Reply, Setup, Site, Store, TOOL};
use crate::on_both_stores;

on_both_stores!(
    a_task_finds_its_tool,
    groups_narrow_and_never_widen,
    a_search_with_a_mistake_is_refused,
    pages_hold_every_tool_once,
    enabled_is_what_the_caller_could_execute,
    another_workspaces_rules_change_nothing_here,
    a_price_is_that_of_who_would_pay,
    a_tool_is_described_in_full,
    an_end_user_sees_what_it_pays_and_not_the_margin,
    what_needs_an_approval_is_said,
);

pub const SEARCH: &str = "/api/credits/tools/search";
pub const DESCRIBE: &str = "/api/credits/tools/describe";

/// A provider whose tools are in groups.
const GROUPED: &str = r#"
[[providers]]
id = "post"
kind = "http"
api_key = "provider-key-canary"

[[providers.endpoints]]
name = "send-mail"
title = "Send a mail"
summary = "Delivers a message to an address."
description = "Everything about sending."
category = "Mail"
packs = ["office"]
price = { kind = "fixed", usd = "0.002" }
schema = { type = "object", properties = { to = { type = "string", description = "Recipient" } }, required = ["to"] }
output_schema = { type = "object" }
example = { sent = true }
example_args = { to = "somebody" }
http = { method = "PUT", path = "/send" }

[[providers.endpoints]]
name = "list-mails"
title = "List mails"
summary = "Finds messages in a mailbox."
category = "mail"
packs = ["office", "reading"]
price = { kind = "fixed", usd = "0.001" }
schema = { type = "object" }
http = { method = "GET", path = "/list" }

[[providers.endpoints]]
name = "forecast"
title = "Forecast"
summary = "What the weather will be."
category = "weather"
packs = ["reading"]
price = { kind = "metered", unit_usd = "0.001", units = "args.days" }
schema = { type = "object", properties = { days = { type = "integer" } } }
http = { method = "GET", path = "/forecast" }

[[providers.endpoints]]
name = "rumour"
title = "Rumour"
summary = "Has no price."
category = "weather"
schema = { type = "object" }
http = { method = "GET", path = "/rumour" }
"#;

fn grouped(store: Store) -> Setup {
    let mut setup = Setup::new(store);
    let more: toml::Table = GROUPED.parse().unwrap();
    let more = more["providers"].as_array().unwrap().clone();
    setup.config["providers"].as_array_mut().unwrap().extend(more);
    setup
}

/// The slugs of the results, in order.
fn slugs(found: &Value) -> Vec<&str> {
    let results = found["results"].as_array().unwrap();
    results.iter().map(|one| one["slug"].as_str().unwrap()).collect()
}

impl Site {
    /// Asks about tools.
    async fn ask(&self, bearer: &str, path: &str, body: &Value) -> Reply {
        let ask = self.client.request(Method::POST, path).bearer(bearer);
        ask.json(body).send().await
    }

    async fn find(&self, bearer: &str, body: &Value) -> Value {
        self.ask(bearer, SEARCH, body).await.expect(200).json()
    }

    pub async fn described(&self, bearer: &str, slug: &str) -> Value {
        let reply = self.ask(bearer, DESCRIBE, &json!({ "slug": slug })).await;
        reply.expect(200).json()["tool"].clone()
    }
}

async fn a_task_finds_its_tool(store: Store) {
    let site = grouped(store).start().await;
    let reply = site
        .ask(
            &site.key,
            SEARCH,
            &json!({ "query": "deliver a messages to an adress" }),
        )
        .await
        .expect(200);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let found = reply.json();
    assert_eq!(
        found["results"][0],
        json!({
            "slug": "post/send-mail", "provider": "post", "endpoint": "send-mail", "name": "Send a mail",
            "summary": "Delivers a message to an address.", "category": "Mail", "packs": ["office"], "method": "PUT",
            "enabled": true, "dynamic": false, "priceUsd": "0.002", "priceCredits": "2", "matchQuality": "strong",
        })
    );
    assert_eq!(
        (&found["success"], &found["reason"]),
        (&json!(true), &Value::Null)
    );
    assert!(found.get("suggestions").is_none(), "{found}");
    for (query, slug) in [
        ("will it rain", "post/forecast"),
        ("post/list-mails", "post/list-mails"),
        ("sendMail", "post/send-mail"),
        ("FETCHES", "tools/fetch"),
    ] {
        assert_eq!(
            slugs(&site.find(&site.key, &json!({ "query": query })).await)[0],
            slug,
            "{query}"
        );
    }
    // Models are not among the tools.
    for query in ["flat", "tokens", "up/flat", "thinking model"] {
        let found = site.find(&site.key, &json!({ "query": query })).await;
        assert!(
            slugs(&found).iter().all(|slug| !slug.starts_with("up/")),
            "{found}"
        );
    }
    for nothing in ["zzzzzzzz", "!?", " ", "the of and", "\u{1F980}", "天気予報"] {
        let found = site.find(&site.key, &json!({ "query": nothing })).await;
        assert!(
            slugs(&found).is_empty() && found["reason"].is_string(),
            "{nothing}: {found}"
        );
        assert_eq!(found["suggestions"], json!(["mail", "weather"]), "{nothing}");
        assert_eq!(found["next_cursor"], Value::Null);
    }
}

async fn groups_narrow_and_never_widen(store: Store) {
    let site = grouped(store).start().await;
    let find = async |body: Value| {
        let found = site.find(&site.key, &body).await;
        let slugs: Vec<String> = slugs(&found).into_iter().map(str::to_owned).collect();
        (slugs, found["reason"].is_string())
    };
    let both = ["post/list-mails".to_owned(), "post/send-mail".to_owned()];
    assert_eq!(find(json!({ "category": "mail" })).await, (both.to_vec(), false));
    assert_eq!(find(json!({ "category": "MAIL" })).await, (both.to_vec(), false));
    assert_eq!(find(json!({ "pack": "office" })).await.0, both);
    assert_eq!(
        find(json!({ "category": "mail", "pack": "reading" })).await.0,
        both[..1]
    );
    let disjoint = find(json!({ "category": "weather", "pack": "office" })).await;
    assert_eq!(disjoint, (Vec::new(), true));
    let elsewhere = find(json!({ "query": "forecast", "category": "mail" })).await;
    assert_eq!(elsewhere, (Vec::new(), true));
    let nulls = json!({ "query": null, "category": "mail", "pack": null, "enabled": null, "limit": null, "cursor": null });
    assert_eq!(find(nulls).await.0, both);
    for (body, path, near) in [
        (json!({ "category": "wether" }), "category", "weather"),
        (json!({ "pack": "offices", "query": "mail" }), "pack", "office"),
        (
            json!({ "category": "weather", "pack": "read" }),
            "pack",
            "reading",
        ),
    ] {
        let refused = site
            .ask(&site.key, SEARCH, &body)
            .await
            .refused(400, "VALIDATION_ERROR")
            .json();
        assert_eq!(
            (&refused["suggestions"][0], &refused["details"][0]["path"]),
            (&json!(near), &json!(path))
        );
    }
}

async fn a_search_with_a_mistake_is_refused(store: Store) {
    let site = grouped(store).start().await;
    for (body, code) in [
        (json!({}), "VALIDATION_ERROR"),
        (json!({ "enabled": true, "limit": 1 }), "VALIDATION_ERROR"),
        (json!({ "query": "" }), "VALIDATION_ERROR"),
        (json!({ "query": null }), "VALIDATION_ERROR"),
        (json!({ "query": 1 }), "VALIDATION_ERROR"),
        (json!({ "query": ["mail"] }), "VALIDATION_ERROR"),
        (json!({ "query": "x".repeat(1001) }), "VALIDATION_ERROR"),
        (json!({ "query": "a\u{0}b" }), "VALIDATION_ERROR"),
        (json!({ "category": "" }), "VALIDATION_ERROR"),
        (json!({ "category": "x".repeat(101) }), "VALIDATION_ERROR"),
        (json!({ "category": "' OR 1=1 --" }), "VALIDATION_ERROR"),
        (json!({ "pack": "a\nb" }), "VALIDATION_ERROR"),
        (json!({ "query": "mail", "limit": 0 }), "VALIDATION_ERROR"),
        (json!({ "query": "mail", "limit": 51 }), "VALIDATION_ERROR"),
        (json!({ "query": "mail", "limit": 1.5 }), "VALIDATION_ERROR"),
        (json!({ "query": "mail", "limit": "10" }), "VALIDATION_ERROR"),
        (json!({ "query": "mail", "enabled": "yes" }), "VALIDATION_ERROR"),
        (json!({ "query": "mail", "cursor": 1 }), "VALIDATION_ERROR"),
        (json!({ "query": "mail", "cursor": "" }), "CURSOR_INVALID"),
        (json!({ "query": "mail", "cursor": "0.0.a" }), "CURSOR_INVALID"),
        (
            json!({ "query": "mail", "cursor": "x".repeat(10_000) }),
            "CURSOR_INVALID",
        ),
        (
            json!({ "query": "mail", "category": "mail", "more": 1 }),
            "UNKNOWN_FIELD",
        ),
        (json!({ "Query": "mail" }), "UNKNOWN_FIELD"),
    ] {
        site.ask(&site.key, SEARCH, &body).await.refused(400, code);
    }
    for (body, code) in [
        (json!({}), "VALIDATION_ERROR"),
        (json!({ "slug": null }), "VALIDATION_ERROR"),
        (json!({ "slug": "" }), "VALIDATION_ERROR"),
        (json!({ "slug": "x".repeat(257) }), "VALIDATION_ERROR"),
        (json!({ "slug": "post/forecast", "args": {} }), "UNKNOWN_FIELD"),
    ] {
        site.ask(&site.key, DESCRIBE, &body).await.refused(400, code);
    }
    for path in [SEARCH, DESCRIBE] {
        for raw in ["", "[]", "{", "null", "{\"slug\":\"a/b\",\"slug\":\"a/b\"}"] {
            let ask = site
                .client
                .request(Method::POST, path)
                .bearer(&site.key)
                .raw_json(raw.to_owned());
            let code = if raw.is_empty() {
                "VALIDATION_ERROR"
            } else {
                "INVALID_JSON"
            };
            ask.send().await.refused(400, code);
        }
    }
    // As long and as strange as it may be.
    for query in [
        "é".repeat(1000),
        "a ".repeat(500),
        "\u{202e}\u{301}".repeat(500),
        "x".repeat(1000),
    ] {
        site.find(&site.key, &json!({ "query": query })).await;
    }
    let paid_by_nobody = site.post(SEARCH, &json!({ "query": "mail" })).paid_by("nobody");
    paid_by_nobody.send().await.refused(404, "END_USER_NOT_FOUND");
}

async fn pages_hold_every_tool_once(store: Store) {
    let site = grouped(store).start().await;
    for search in [
        json!({ "query": "mail message forecast weather", "limit": 50 }),
        json!({ "pack": "reading", "limit": 50 }),
        json!({ "category": "weather", "enabled": true, "limit": 50 }),
    ] {
        let whole = site.find(&site.key, &search).await;
        let whole: Vec<&str> = slugs(&whole);
        let mut paged = Vec::new();
        let mut body = search.clone();
        body["limit"] = json!(1);
        loop {
            let page = site.find(&site.key, &body).await;
            paged.extend(slugs(&page).into_iter().map(str::to_owned));
            if page["next_cursor"].is_null() {
                break;
            }
            body["cursor"] = page["next_cursor"].clone();
        }
        assert_eq!(paged, whole, "{search}");
        if whole.len() > 1 {
            body["query"] = json!("another search");
            site.ask(&site.key, SEARCH, &body)
                .await
                .refused(400, "CURSOR_INVALID");
        }
    }
}

/// What a search and a description say of a tool's enablement; they never differ.
async fn enabled(site: &Site, bearer: &str, slug: &str) -> bool {
    let found = site.find(bearer, &json!({ "query": slug })).await;
    assert_eq!(found["results"][0]["slug"], slug);
    let enabled = found["results"][0]["enabled"].as_bool().unwrap();
    let described = site.described(bearer, slug).await;
    assert_eq!(
        (&described["enabled"], &described["access"]["enabled"]),
        (&json!(enabled), &json!(enabled))
    );
    let same = json!({ "query": slug, "enabled": enabled });
    assert_eq!(site.find(bearer, &same).await["results"][0]["slug"], slug);
    let other = json!({ "query": slug, "enabled": !enabled });
    let other = site.find(bearer, &other).await;
    assert!(!slugs(&other).contains(&slug), "{other}");
    enabled
}

async fn enabled_is_what_the_caller_could_execute(store: Store) {
    let site = grouped(store).start().await;
    site.grant("1", Some("alice"));
    let owner = site.owner();
    let sandbox = site.new_key("sandbox", &[]);
    let body = json!({ "name": "n", "tools": { "enable": ["tools/fetch"] } });
    let narrowed = site.issue(&body).await["key"].as_str().unwrap().to_owned();
    let token = site.token("alice", &json!({})).await;
    let narrow_token = site.token("alice", &json!({ "tools": ["post/*"] })).await;
    let everybody = [&site.key, &owner, &sandbox, &narrowed, &token, &narrow_token];
    for bearer in everybody {
        assert_eq!(
            enabled(&site, bearer, "tools/fetch").await,
            bearer != &narrow_token,
            "all but the token that names others"
        );
        assert_eq!(enabled(&site, bearer, "post/forecast").await, bearer != &narrowed);
        assert!(
            !enabled(&site, bearer, "post/rumour").await,
            "without a price nobody calls it"
        );
    }
    site.limit("alice", &json!({ "allowedTools": ["post/*"] })).await;
    assert!(!enabled(&site, &token, "tools/fetch").await);
    assert!(enabled(&site, &token, "post/forecast").await);
    assert!(
        enabled(&site, &site.key, "tools/fetch").await,
        "the pool has no policy"
    );
    let on_behalf = site
        .post(SEARCH, &json!({ "query": "tools/fetch" }))
        .paid_by("alice");
    let on_behalf = on_behalf.send().await.expect(200).json();
    assert_eq!(on_behalf["results"][0]["enabled"], false);
    let call = site
        .client
        .request(Method::POST, TOOL)
        .bearer(&token)
        .json(&json!({}));
    call.once("k").send().await.refused(403, "POLICY_DENIED");
    site.limit("alice", &json!({})).await;
    site.switch("tools", &json!(false)).await.expect(200);
    for bearer in everybody {
        assert!(!enabled(&site, bearer, "tools/fetch").await);
    }
    let none = site
        .find(&site.key, &json!({ "query": "tools/units", "enabled": true }))
        .await;
    assert!(!slugs(&none).contains(&"tools/units"), "{none}");
    // A simulated call asks for no end user.
    let sandboxed = site
        .client
        .request(Method::POST, SEARCH)
        .bearer(&sandbox)
        .paid_by("nobody");
    sandboxed
        .json(&json!({ "query": "forecast" }))
        .send()
        .await
        .expect(200);
    let foreign = site
        .client
        .request(Method::POST, SEARCH)
        .bearer(&token)
        .paid_by("bob");
    let foreign = foreign.json(&json!({ "query": "forecast" })).send().await;
    foreign.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    assert_eq!(site.upstream.count(), 0, "nobody is asked about a tool");
}

async fn another_workspaces_rules_change_nothing_here(store: Store) {
    let mut site = grouped(store).start().await;
    let ours = site.key.clone();
    site.limit("alice", &json!({ "allowedTools": [] })).await;
    let (_, theirs) = site.workspace("Theirs");
    site.key.clone_from(&theirs);
    site.switch("post/forecast", &json!(false)).await.expect(200);
    site.price("global", &json!({ "markupBps": 5000 }))
        .await
        .expect(200);
    assert!(enabled(&site, &ours, "post/forecast").await);
    assert!(!enabled(&site, &theirs, "post/forecast").await);
    assert_eq!(
        site.described(&ours, "tools/fetch").await["pricing"]["markupBps"],
        0
    );
    assert_eq!(
        site.described(&theirs, "tools/fetch").await["pricing"]["markupBps"],
        5000
    );
    let theirs_alice = site.post(SEARCH, &json!({ "query": "mail" })).paid_by("alice");
    theirs_alice.send().await.refused(404, "END_USER_NOT_FOUND");
}

async fn a_price_is_that_of_who_would_pay(store: Store) {
    let site = grouped(store).start().await;
    site.grant("1", Some("alice"));
    site.price("global", &json!({ "markupBps": 10_000, "flatMarkupUsdc": "0.5" }))
        .await
        .expect(200);
    let token = site.token("alice", &json!({})).await;
    let price = async |sender: crate::harness::Sender| {
        let found = sender.send().await.expect(200).json();
        let first = &found["results"][0];
        (
            first["priceUsd"].clone(),
            first["priceCredits"].clone(),
            first["dynamic"].clone(),
        )
    };
    let about = |slug: &str| json!({ "query": slug });
    let mail = about("post/send-mail");
    let of = |usd: &str, credits: &str| (json!(usd), json!(credits), json!(false));
    assert_eq!(price(site.post(SEARCH, &mail)).await, of("0.002", "2"));
    assert_eq!(
        price(site.post(SEARCH, &mail).paid_by("alice")).await,
        of("0.504", "504")
    );
    let by_token = site
        .client
        .request(Method::POST, SEARCH)
        .bearer(&token)
        .json(&mail);
    assert_eq!(price(by_token).await, of("0.504", "504"));
    for slug in ["post/forecast", "tools/units", "tools/live"] {
        let shown = price(site.post(SEARCH, &about(slug))).await;
        assert_eq!(shown, (Value::Null, Value::Null, json!(true)), "{slug}");
    }
    let unpriced = price(site.post(SEARCH, &about("post/rumour"))).await;
    assert_eq!(unpriced, (Value::Null, Value::Null, json!(false)));
}

async fn a_tool_is_described_in_full(store: Store) {
    let site = grouped(store).start().await;
    let tool = site.described(&site.key, "post/send-mail").await;
    let explained = site.explained(&site.key, "post/send-mail", None).await;
    assert_eq!(tool["pricing"], explained.expect(200).json()["explain"]);
    let revision = tool["revision"].as_str().unwrap().to_owned();
    assert!(!revision.is_empty());
    let mut rest = tool.clone();
    rest.as_object_mut()
        .unwrap()
        .retain(|name, _| name != "pricing" && name != "revision");
    assert_eq!(
        rest,
        json!({
            "slug": "post/send-mail", "provider": "post", "endpoint": "send-mail", "name": "Send a mail",
            "summary": "Delivers a message to an address.", "description": "Everything about sending.",
            "category": "Mail", "packs": ["office"], "method": "PUT", "enabled": true, "dynamic": false,
            "priceUsd": "0.002", "priceCredits": "2",
            "inputSchema": {
                "type": "object", "properties": { "to": { "type": "string", "description": "Recipient" } },
                "required": ["to"],
            },
            "outputSchema": { "type": "object" },
            "example": { "args": { "to": "somebody" }, "result": { "sent": true } },
            "access": { "enabled": true, "requiresApproval": false },
        })
    );
    assert_eq!(
        site.described(&site.owner(), "post/send-mail").await["revision"],
        revision
    );
    let unpriced = site.described(&site.key, "post/rumour").await;
    assert_eq!(
        (&unpriced["pricing"], &unpriced["access"]["enabled"]),
        (&Value::Null, &json!(false))
    );
    for slug in ["post/send-mial", "post/sendmail", "sned-mail"] {
        let reply = site.ask(&site.key, DESCRIBE, &json!({ "slug": slug })).await;
        let refused = reply.refused(404, "ENDPOINT_NOT_FOUND").json();
        assert_eq!(refused["suggestions"][0], "post/send-mail", "{refused}");
        assert!(refused["suggestions"].as_array().unwrap().len() <= 5);
    }
    for slug in [
        "up/flat",
        "tools",
        "/",
        "tools/",
        "../fetch",
        "tools/fetch/x",
        "\u{1F980}",
    ] {
        let reply = site.ask(&site.key, DESCRIBE, &json!({ "slug": slug })).await;
        reply.refused(404, "ENDPOINT_NOT_FOUND");
    }
}

async fn an_end_user_sees_what_it_pays_and_not_the_margin(store: Store) {
    let site = grouped(store).start().await;
    site.grant("1", Some("alice"));
    site.price("global", &json!({ "markupBps": 10_000 }))
        .await
        .expect(200);
    let token = site.token("alice", &json!({})).await;
    let tool = site.described(&token, "tools/fetch").await;
    assert_eq!(
        tool["pricing"],
        json!({
            "provider": "tools", "endpoint": "fetch", "slug": "tools/fetch", "method": "POST", "dynamic": false,
            "estimated": false, "enabled": true, "creditsPerDollar": 1000, "effectiveUsd": "0.016",
            "effectiveCredits": "16",
        })
    );
    assert_eq!(tool["priceUsd"], "0.016");
    assert!(!tool.to_string().contains("0.008"), "{tool}");
}

async fn what_needs_an_approval_is_said(store: Store) {
    let site = grouped(store).start().await;
    site.grant("5", Some("alice"));
    let token = site.token("alice", &json!({})).await;
    let asks = async |slug: &str| site.described(&token, slug).await["access"].clone();
    let access = |enabled: bool, approval: bool| json!({ "enabled": enabled, "requiresApproval": approval });
    site.limit("alice", &json!({ "requireApprovalAboveUsd": "0.008" }))
        .await;
    for (slug, approval) in [
        ("tools/fetch", false),
        ("tools/item", false),
        // One unit is below the threshold.
        ("tools/units", false),
        // The provider may quote up to a dollar.
        ("tools/live", true),
    ] {
        assert_eq!(asks(slug).await, access(true, approval), "{slug}");
    }
    site.limit("alice", &json!({ "requireApprovalAboveUsd": "0.007999" }))
        .await;
    assert_eq!(asks("tools/fetch").await, access(true, true));
    let call = site
        .client
        .request(Method::POST, TOOL)
        .bearer(&token)
        .json(&json!({}));
    call.once("k").send().await.refused(403, "APPROVAL_REQUIRED");
    let pool = site.described(&site.key, "tools/fetch").await;
    assert_eq!(pool["access"], access(true, false), "the pool has no policy");
    site.limit("alice", &json!({ "allowedTools": ["post/*"] })).await;
    assert_eq!(
        asks("tools/fetch").await,
        access(false, true),
        "somebody may let it in"
    );
    site.switch("tools/fetch", &json!(false)).await.expect(200);
    assert_eq!(
        asks("tools/fetch").await,
        access(false, false),
        "nobody may let in what is off"
    );
}
