//! The tools for agents by the Model Context Protocol, as JSON-RPC over HTTP.

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Reply, Sender, Setup, Site, Store, TOOL};
use crate::on_both_stores;

on_both_stores!(
    an_agent_finds_learns_asks_the_price_and_pays_once,
    who_may_not_is_told_as_a_result,
    a_repeat_is_charged_once_whichever_way_it_comes,
    what_is_asked_badly_is_said,
    nobody_without_a_credential_or_from_a_foreign_page_is_served,
    a_long_result_is_read_in_parts,
    results_and_balances_are_shown_to_whom_they_belong,
    the_documentation_names_what_is_there,
);

pub const MCP: &str = "/api/credits/mcp";
pub const MCP_DOCS: &str = "/api/credits/mcp/docs";

impl Site {
    /// A JSON-RPC request with `secret`.
    fn rpc(&self, secret: &str, method: &str, params: &Value) -> Sender {
        self.client
            .request(Method::POST, MCP)
            .bearer(secret)
            .header("accept", "application/json, text/event-stream")
            .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
    }

    async fn mcp(&self, secret: &str, method: &str, params: Value) -> Value {
        self.rpc(secret, method, &params).send().await.expect(200).json()
    }

    /// What a tool answers: whether it failed, and what.
    async fn tool(&self, secret: &str, name: &str, arguments: Value) -> (bool, Value) {
        let answer = self
            .mcp(
                secret,
                "tools/call",
                json!({ "name": name, "arguments": arguments }),
            )
            .await;
        let result = &answer["result"];
        assert!(result.is_object(), "{answer}");
        let shown: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(
            shown, result["structuredContent"],
            "text and structure say the same"
        );
        (result["isError"] == true, shown)
    }
}

fn fetch(key: &str) -> Value {
    json!({ "slug": "tools/fetch", "args": { "id": "a" }, "idempotencyKey": key })
}

async fn an_agent_finds_learns_asks_the_price_and_pays_once(store: Store) {
    let site = Site::new(store).await;
    let (_, secret) = site.agent(json!({})).await;
    let begun = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" }
    });
    let begun = site.mcp(&secret, "initialize", begun).await;
    assert_eq!(begun["result"]["serverInfo"]["name"], "turnpike");
    assert_eq!(begun["result"]["protocolVersion"], "2025-06-18");
    let listed = site.mcp(&secret, "tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "search",
            "describe",
            "estimate",
            "execute",
            "get_result",
            "get_balance"
        ]
    );
    for tool in tools {
        let spends = tool["name"] == "execute";
        assert_eq!(tool["annotations"]["readOnlyHint"], !spends, "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object");
    }

    let (_, found) = site
        .tool(&secret, "search", json!({ "query": "fetch something" }))
        .await;
    let slugs: Vec<&Value> = found["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["slug"])
        .collect();
    assert!(slugs.contains(&&json!("tools/fetch")), "{found}");
    let (_, described) = site
        .tool(&secret, "describe", json!({ "slug": "tools/fetch" }))
        .await;
    let price = described["tool"]["priceUsd"].clone();
    let (_, estimate) = site
        .tool(
            &secret,
            "estimate",
            json!({ "slug": "tools/fetch", "args": { "id": "a" } }),
        )
        .await;
    assert_eq!(estimate["estimate"]["priceUsd"], price);

    let mut call = fetch("the-first-intent");
    call["approvalToken"] = estimate["approvalToken"].clone();
    let (failed, done) = site.tool(&secret, "execute", call.clone()).await;
    assert!(!failed, "{done}");
    assert!(done["data"].is_object(), "{done}");
    let calls = site.upstream.seen().len();
    let (failed, again) = site.tool(&secret, "execute", call).await;
    assert!(!failed, "{again}");
    assert_eq!(
        (&again["replayed"], &again["data"]),
        (&json!(true), &done["data"])
    );
    assert_eq!(again["billing"]["callId"], done["billing"]["callId"]);
    assert_eq!(
        site.upstream.seen().len(),
        calls,
        "the provider was not asked again"
    );

    let call = &done["billing"]["callId"];
    let (failed, result) = site.tool(&secret, "get_result", json!({ "callId": call })).await;
    assert!(!failed, "{result}");
    let kept: Value = serde_json::from_str(result["content"].as_str().unwrap()).unwrap();
    assert_eq!(kept, done["data"]);
    site.audit();
}

async fn who_may_not_is_told_as_a_result(store: Store) {
    let site = Site::new(store).await;
    let (_, reader) = site.agent(json!({ "scopes": ["mcp:read"] })).await;
    let (failed, found) = site.tool(&reader, "search", json!({ "query": "fetch" })).await;
    assert!(!failed, "{found}");
    let (failed, refused) = site.tool(&reader, "execute", fetch("reader")).await;
    assert!(failed);
    assert_eq!(refused["code"], "INSUFFICIENT_SCOPE", "{refused}");
    let (_, narrow) = site.agent(json!({ "tools": { "enable": ["tools/item"] } })).await;
    let (failed, refused) = site.tool(&narrow, "execute", fetch("narrow")).await;
    assert!(failed);
    assert_eq!(refused["code"], "ENDPOINT_DISABLED", "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("search"), "{refused}");
    let (_, capped) = site.agent(json!({ "maxUsd": "0.000001" })).await;
    let (failed, refused) = site.tool(&capped, "execute", fetch("capped")).await;
    assert!(failed);
    assert_eq!(refused["code"], "SPEND_LIMIT_EXCEEDED", "{refused}");
    site.audit();
}

async fn a_repeat_is_charged_once_whichever_way_it_comes(store: Store) {
    let site = Site::new(store).await;
    let before = site.upstream.seen().len();
    let mut at_once = JoinSet::new();
    for _ in 0..20 {
        let call = json!({ "name": "execute", "arguments": fetch("one-intent") });
        at_once.spawn(site.rpc(&site.key, "tools/call", &call).send());
    }
    for reply in at_once.join_all().await {
        let answer = reply.expect(200).json();
        let result = &answer["result"]["structuredContent"];
        let code = &result["code"];
        assert!(
            result["success"] == true || code == "IDEMPOTENCY_IN_PROGRESS",
            "{answer}"
        );
    }
    let by_rest = site
        .post(TOOL, &json!({ "id": "a" }))
        .once("one-intent")
        .send()
        .await
        .expect(200);
    assert_eq!(by_rest.header("idempotent-replayed"), Some("true"));
    assert_eq!(site.upstream.seen().len(), before + 1);
    let (failed, refused) = site
        .tool(
            &site.key,
            "execute",
            json!({ "slug": "tools/fetch", "args": { "id": "b" }, "idempotencyKey": "one-intent" }),
        )
        .await;
    assert!(failed);
    assert_eq!(refused["code"], "IDEMPOTENCY_KEY_CONFLICT");
    site.audit();
}

async fn what_is_asked_badly_is_said(store: Store) {
    let site = Site::new(store).await;
    let unknown = site
        .mcp(
            &site.key,
            "tools/call",
            json!({ "name": "destroy", "arguments": {} }),
        )
        .await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    for (name, arguments, code) in [
        (
            "execute",
            json!({ "slug": "tools/fetch", "args": {} }),
            "VALIDATION_ERROR",
        ),
        (
            "execute",
            json!({ "slug": "tools/fetch", "args": [], "idempotencyKey": "k" }),
            "VALIDATION_ERROR",
        ),
        (
            "execute",
            json!({ "slug": "tools/fetch", "args": {}, "idempotencyKey": "" }),
            "IDEMPOTENCY_KEY_INVALID",
        ),
        (
            "execute",
            json!({ "slug": "tools", "args": {}, "idempotencyKey": "k" }),
            "ENDPOINT_NOT_FOUND",
        ),
        (
            "execute",
            json!({ "slug": "../fetch", "args": {}, "idempotencyKey": "k" }),
            "ENDPOINT_NOT_FOUND",
        ),
        (
            "describe",
            json!({ "slug": "tools/nothing" }),
            "ENDPOINT_NOT_FOUND",
        ),
        (
            "describe",
            json!({ "slug": "tools/fetch", "more": 1 }),
            "UNKNOWN_FIELD",
        ),
        ("search", json!({}), "VALIDATION_ERROR"),
        ("get_result", json!({ "callId": "x" }), "NOT_FOUND"),
        (
            "get_result",
            json!({ "callId": uuid::Uuid::now_v7(), "limit": 0 }),
            "VALIDATION_ERROR",
        ),
    ] {
        let (failed, refused) = site.tool(&site.key, name, arguments.clone()).await;
        assert!(failed, "{name} {arguments}: {refused}");
        assert_eq!(refused["code"], code, "{name} {arguments}: {refused}");
    }
    for raw in ["", "{", "[]", "null", "{\"jsonrpc\":\"2.0\"}"] {
        let post = site.client.request(Method::POST, MCP).bearer(&site.key);
        let reply: Reply = post.raw_json(raw).send().await;
        assert!((400..500).contains(&reply.status), "{raw}: {}", reply.status);
    }
    site.audit();
}

async fn nobody_without_a_credential_or_from_a_foreign_page_is_served(store: Store) {
    let site = Site::new(store).await;
    let nobody = site
        .client
        .request(Method::POST, MCP)
        .json(&json!({}))
        .send()
        .await
        .expect(401);
    let challenge = nobody.header("www-authenticate").unwrap();
    assert!(
        challenge.contains("resource_metadata=\"")
            && challenge.contains("/.well-known/oauth-protected-resource"),
        "{challenge}"
    );
    let wrong = site.rpc(
        "svc_ac_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "tools/list",
        &json!({}),
    );
    let challenge = wrong.send().await.expect(401);
    assert!(
        challenge
            .header("www-authenticate")
            .unwrap()
            .contains("invalid_token")
    );
    let foreign = site
        .rpc(&site.key, "tools/list", &json!({}))
        .header("origin", "https://evil.example");
    foreign.send().await.expect(403);
    site.client
        .request(Method::GET, MCP)
        .bearer(&site.key)
        .send()
        .await
        .expect(405);
    let published = site
        .client
        .request(Method::POST, MCP)
        .json(&json!({}))
        .bearer("svc_pk_nothing")
        .send()
        .await;
    assert_eq!(published.status, 401);
}

async fn a_long_result_is_read_in_parts(store: Store) {
    let site = Setup::new(store).start().await;
    let long = json!({ "text": "ä".repeat(60_000) });
    let body = long.to_string();
    site.upstream
        .script(move |_seen| vec![crate::harness::upstream::answer(200, &[], body.as_bytes())]);
    let (failed, done) = site.tool(&site.key, "execute", fetch("long")).await;
    assert!(!failed, "{done}");
    assert_eq!(done["data"], Value::Null, "too long to be shown at once");
    let (mut offset, mut bytes) = (json!(0), Vec::new());
    while !offset.is_null() {
        let ask = json!({ "callId": done["billing"]["callId"], "offset": offset, "limit": 50_001 });
        let (failed, part) = site.tool(&site.key, "get_result", ask).await;
        assert!(!failed, "{part}");
        let content = part["content"].as_str().unwrap();
        match part["encoding"].as_str() {
            Some("base64") => {
                use base64::Engine as _;
                bytes.extend(base64::engine::general_purpose::STANDARD.decode(content).unwrap());
            }
            _ => bytes.extend_from_slice(content.as_bytes()),
        }
        offset = part["nextOffset"].clone();
    }
    let whole: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(whole, long);
    site.audit();
}

async fn results_and_balances_are_shown_to_whom_they_belong(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    site.grant("1", Some("bob"));
    let alice = site.token("alice", &json!({ "scopes": ["read", "spend"] })).await;
    let bob = site.token("bob", &json!({ "scopes": ["read", "spend"] })).await;
    let (failed, done) = site.tool(&alice, "execute", fetch("of-alice")).await;
    assert!(!failed, "{done}");
    let call = json!({ "callId": done["billing"]["callId"] });
    let (failed, own) = site.tool(&alice, "get_result", call.clone()).await;
    assert!(!failed, "{own}");
    let (_, agent) = site.agent(json!({ "externalUserId": "alice" })).await;
    for other in [&bob, &agent] {
        let (failed, refused) = site.tool(other, "get_result", call.clone()).await;
        assert!(failed);
        assert_eq!(refused["code"], "NOT_FOUND", "{refused}");
    }
    let spender = site.token("alice", &json!({ "scopes": ["spend"] })).await;
    let unread = site.new_key("secret", &["tokens:manage"]);
    for (secret, name) in [
        (&spender, "get_result"),
        (&unread, "get_result"),
        (&spender, "get_balance"),
        (&unread, "get_balance"),
    ] {
        let arguments = if name == "get_result" {
            call.clone()
        } else {
            json!({})
        };
        let (failed, refused) = site.tool(secret, name, arguments).await;
        assert!(failed, "{name}: {refused}");
        assert_eq!(refused["code"], "INSUFFICIENT_SCOPE", "{name}: {refused}");
    }
    let (failed, balance) = site.tool(&agent, "get_balance", json!({})).await;
    assert!(!failed, "{balance}");
    // What the workspace earns by it is not shown to an agent of its end user.
    let (failed, paid) = site.tool(&agent, "execute", fetch("of-the-agent")).await;
    assert!(!failed, "{paid}");
    let path = format!(
        "/api/credits/calls/{}",
        paid["billing"]["callId"].as_str().unwrap()
    );
    let shown = site
        .client
        .request(Method::GET, &path)
        .bearer(&agent)
        .send()
        .await
        .expect(200)
        .json();
    assert!(
        shown["call"]["marginUsd"].is_null() && shown["call"]["price"].is_null(),
        "{shown}"
    );
    site.audit();
}

async fn the_documentation_names_what_is_there(store: Store) {
    let site = Setup::new(store)
        .set("server.public_url", "http://127.0.0.1:8402")
        .start()
        .await;
    let docs = site
        .client
        .request(Method::GET, MCP_DOCS)
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(docs["mcp"]["url"], "http://127.0.0.1:8402/api/credits/mcp");
    assert_eq!(docs["mcp"]["transport"], "streamable_http");
    assert!(
        docs["mcp"]["protocolVersions"]
            .as_array()
            .unwrap()
            .contains(&json!("2025-06-18"))
    );
    assert_eq!(docs["oauth"]["pkce"], "S256");
    for name in ["claude_code", "codex", "cursor", "vscode", "generic"] {
        assert!(!docs["clients"][name].is_null(), "{name}");
    }
    assert_eq!(docs["tools"].as_array().unwrap().len(), 6);
    let words = site
        .client
        .request(Method::GET, "/llms.txt")
        .send()
        .await
        .expect(200)
        .text();
    for part in ["/api/credits/mcp", "/api/credits/tools/search", "Idempotency-Key"] {
        assert!(words.contains(part), "{part}");
    }
}
