//! Agent connections: what they may do, what they may spend, and how they end.

use http::Method;
use serde_json::{Value, json};

use crate::harness::people::user_path;
use crate::harness::{CHAT, Reply, Sender, Setup, Site, Store, TOOL, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    a_connection_of_an_end_user_spends_that_balance_and_does_nothing_else,
    a_connection_of_the_workspace_spends_from_the_pool_and_sees_its_own_calls,
    scopes_and_tools_narrow_a_connection,
    a_connections_ceilings_hold_against_fifty_calls_at_once,
    a_revoked_or_expired_connection_stops_working,
    an_end_user_sees_and_ends_their_own_connections_alone,
    who_may_make_a_connection_for_whom,
    retiring_an_end_user_ends_their_connections,
    no_answer_to_somebody_else_is_given_to_a_connection,
);

mod postgres_only {
    #[test]
    fn a_revocation_is_seen_by_another_node_within_a_second() {
        crate::harness::run(super::revoked_elsewhere());
    }
}

pub const AGENTS: &str = "/api/credits/agent-connections";

/// A connection to make: both scopes, an hour, and `more`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "so that callers write json! and nothing else"
)]
pub fn wanted(more: Value) -> Value {
    let mut body = json!({ "name": "an agent", "scopes": ["mcp:read", "mcp:execute"], "expiresIn": 3600 });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

impl Site {
    /// A connection's document and secret.
    pub async fn agent(&self, more: Value) -> (Value, String) {
        let made = self.post(AGENTS, &wanted(more)).send().await.expect(201).json();
        let secret = made["secret"].as_str().unwrap().to_owned();
        (made["agentConnection"].clone(), secret)
    }

    fn with(&self, secret: &str, method: Method, path: &str) -> Sender {
        self.client.request(method, path).bearer(secret)
    }

    fn tool_as(&self, secret: &str, once: &str) -> Sender {
        self.with(secret, Method::POST, TOOL)
            .json(&json!({ "id": "1" }))
            .once(once)
    }
}

async fn a_connection_of_an_end_user_spends_that_balance_and_does_nothing_else(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let made = site
        .post(
            AGENTS,
            &wanted(json!({ "externalUserId": "alice", "maxUsd": "0.5" })),
        )
        .send()
        .await
        .expect(201);
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let made = made.json();
    let (agent, secret) = (&made["agentConnection"], made["secret"].as_str().unwrap());
    assert!(secret.starts_with("svc_ac_"), "{secret}");
    assert!(secret.starts_with(agent["secretPrefix"].as_str().unwrap()));
    assert_eq!(
        (
            &agent["externalUserId"],
            &agent["kind"],
            &agent["status"],
            &agent["spentUsd"]
        ),
        (&json!("alice"), &json!("secret"), &json!("active"), &json!("0"))
    );
    let called = site.tool_as(secret, "k-1").send().await.expect(200);
    // What the workspace pays is not shown to an agent.
    assert_eq!(called.header("x-svc-cost-usd"), None);
    site.chat_as(secret, "flat").send().await.expect(200);
    site.with(secret, Method::GET, "/api/wrapped/credits/v1/models")
        .send()
        .await
        .expect(200);
    let balance = site.with(secret, Method::GET, "/api/credits/balance");
    let balance = balance.send().await.expect(200).json();
    assert_eq!(balance, site.balance_of("alice").await);
    assert_eq!(balance["usd"], "0.982");
    let path = format!("{AGENTS}/{}", agent["id"].as_str().unwrap());
    let seen = site.get(&path).send().await.expect(200).json();
    assert_eq!(seen["agentConnection"]["spentUsd"], "0.018");
    assert!(!seen["agentConnection"]["lastUsedAt"].is_null());
    assert!(!seen.to_string().contains(secret));
    // A header names the same end user or is refused.
    let call = |user: &str| site.chat_as(secret, "free").paid_by(user);
    call("alice").send().await.expect(200);
    call("bob")
        .send()
        .await
        .refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    for (method, path) in [
        (Method::GET, "/api/credits/ledger"),
        (Method::GET, "/api/credits/me"),
        (Method::GET, "/api/credits/me/balance"),
        (Method::GET, "/api/credits/tenants"),
        (Method::GET, "/api/credits/usage"),
        (Method::GET, AGENTS),
        (Method::DELETE, path.as_str()),
        (Method::POST, AGENTS),
        (Method::POST, "/api/credits/me/topups"),
        (Method::POST, &user_path("alice", "/tokens")),
    ] {
        let ask = site.with(secret, method, path).json(&json!({})).once("x");
        ask.send().await.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    }
    assert_eq!(site.noted("agent.create").await, 1);
}

async fn a_connection_of_the_workspace_spends_from_the_pool_and_sees_its_own_calls(store: Store) {
    let site = Setup::new(store).grant(Some("1")).start().await;
    let (_, secret) = site.agent(json!({})).await;
    let (_, other) = site.agent(json!({})).await;
    let called = site.tool_as(&secret, "k-1").send().await.expect(200);
    let call = called.header("x-svc-call-id").unwrap().to_owned();
    assert_eq!(site.balance().await["usd"], "0.992");
    for below in ["", "/result"] {
        let path = format!("/api/credits/calls/{call}{below}");
        let read = |secret: &str| site.with(secret, Method::GET, &path);
        read(&secret).send().await.expect(200);
        read(&other).send().await.refused(404, "NOT_FOUND");
        read(&site.key).send().await.expect(200);
    }
    let named = site
        .with(&secret, Method::GET, "/api/credits/balance")
        .paid_by("alice");
    named.send().await.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
}

async fn scopes_and_tools_narrow_a_connection(store: Store) {
    let site = Setup::new(store).grant(Some("1")).start().await;
    let (_, reader) = site.agent(json!({ "scopes": ["mcp:read"] })).await;
    let refused = site
        .tool_as(&reader, "a")
        .send()
        .await
        .refused(403, "INSUFFICIENT_SCOPE");
    assert_eq!(
        (
            &refused.json()["requiredScopes"],
            &refused.json()["presentScopes"]
        ),
        (&json!(["mcp:execute"]), &json!(["mcp:read"]))
    );
    site.with(&reader, Method::GET, "/api/credits/balance")
        .send()
        .await
        .expect(200);
    let (_, worker) = site.agent(json!({ "scopes": ["mcp:execute"] })).await;
    let read = site
        .with(&worker, Method::GET, "/api/credits/balance")
        .send()
        .await;
    read.refused(403, "INSUFFICIENT_SCOPE");
    site.tool_as(&worker, "a").send().await.expect(200);

    let (_, narrow) = site.agent(json!({ "tools": { "enable": ["tools/item"] } })).await;
    site.tool_as(&narrow, "a")
        .send()
        .await
        .refused(403, "ENDPOINT_DISABLED");
    site.chat_as(&narrow, "flat")
        .send()
        .await
        .refused(403, "ENDPOINT_DISABLED");
    let models = site.with(&narrow, Method::GET, "/api/wrapped/credits/v1/models");
    assert_eq!(models.send().await.expect(200).json()["data"], json!([]));
    for (tools, code) in [
        (json!(["tools/unknown"]), "VALIDATION_ERROR"),
        (json!(["x"]), "VALIDATION_ERROR"),
    ] {
        let body = wanted(json!({ "tools": { "enable": tools } }));
        site.post(AGENTS, &body).send().await.refused(400, code);
    }
}

async fn a_connections_ceilings_hold_against_fifty_calls_at_once(store: Store) {
    let site = Setup::new(store).grant(Some("10")).start().await;
    let (agent, secret) = site
        .agent(json!({ "maxUsd": "0.095", "maxUsdPerCall": "0.01" }))
        .await;
    let site = &site;
    let calls = (0..50).map(|_| site.chat_as(&secret, "flat").send());
    let replies: Vec<Reply> = futures_util::future::join_all(calls).await;
    let taken = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(taken, 9);
    for reply in replies.into_iter().filter(|reply| reply.status != 200) {
        let refused = reply.refused(403, "SPEND_LIMIT_EXCEEDED").json();
        assert_eq!(
            (&refused["scope"], &refused["limitUsd"]),
            (&json!("credential"), &json!("0.095"))
        );
    }
    let dear = site.chat_as(&secret, "dear").send().await;
    let dear = dear.refused(403, "SPEND_LIMIT_EXCEEDED").json();
    assert_eq!(
        (&dear["scope"], &dear["limitUsd"]),
        (&json!("call"), &json!("0.01"))
    );
    let path = format!("{AGENTS}/{}", agent["id"].as_str().unwrap());
    let seen = site.get(&path).send().await.expect(200).json();
    assert_eq!(seen["agentConnection"]["spentUsd"], "0.09");
}

async fn a_revoked_or_expired_connection_stops_working(store: Store) {
    let site = Setup::new(store).grant(Some("1")).start().await;
    let (agent, secret) = site.agent(json!({})).await;
    site.chat_as(&secret, "flat").send().await.expect(200);
    let path = format!("{AGENTS}/{}", agent["id"].as_str().unwrap());
    let end = || site.with(&site.key, Method::DELETE, &path);
    let ended = end().send().await.expect(200).json();
    assert_eq!(ended["agentConnection"]["status"], "revoked");
    let refused = site.chat_as(&secret, "flat").send().await;
    refused.refused(401, "CREDENTIAL_REVOKED");
    assert_eq!(end().send().await.expect(200).json(), ended);
    assert_eq!(site.noted("agent.revoke").await, 1);

    let (agent, secret) = site.agent(json!({})).await;
    site.chat_as(&secret, "flat").send().await.expect(200);
    let id = agent["id"].as_str().unwrap().replace('-', "");
    let id = match site.database {
        crate::harness::Database::Sqlite(_) => format!("x'{id}'"),
        crate::harness::Database::Postgres { .. } => format!("'{id}'::uuid"),
    };
    for (table, column) in [("end_user_tokens", "token_id"), ("agent_connections", "agent_id")] {
        let sql = format!("UPDATE {table} SET expires_at = created_at WHERE {column} = {id}");
        site.database.execute(&sql).await;
    }
    eventually("the connection has expired", || async {
        let reply = site.chat_as(&secret, "flat").send().await;
        (reply.code() == "CREDENTIAL_EXPIRED").then_some(())
    })
    .await;
    for bad in [
        "svc_ac_",
        "svc_ac_x",
        &format!("{secret}x"),
        "svc_rt_x",
        "svc_at_x",
    ] {
        site.chat_as(bad, "flat")
            .send()
            .await
            .refused(401, "INVALID_CREDENTIAL");
    }
}

async fn an_end_user_sees_and_ends_their_own_connections_alone(store: Store) {
    let site = Site::new(store).await;
    let (own, _) = site.agent(json!({ "externalUserId": "alice" })).await;
    let (bobs, _) = site.agent(json!({ "externalUserId": "bob" })).await;
    let (pools, _) = site.agent(json!({})).await;
    let token = site.token("alice", &json!({})).await;
    let list = |bearer: &str| site.with(bearer, Method::GET, AGENTS);
    let listed = list(&token).send().await.expect(200).json();
    assert_eq!(listed["data"], json!([own]));
    let all = list(&site.key).send().await.expect(200).json();
    assert_eq!(all["data"], json!([pools, bobs, own]));
    let first = site
        .get(&format!("{AGENTS}?limit=2"))
        .send()
        .await
        .expect(200)
        .json();
    let cursor = first["next_cursor"].as_str().unwrap();
    let next = site.get(&format!("{AGENTS}?limit=2&cursor={cursor}"));
    assert_eq!(next.send().await.expect(200).json()["data"], json!([own]));
    let at = |agent: &Value| format!("{AGENTS}/{}", agent["id"].as_str().unwrap());
    for agent in [&bobs, &pools] {
        for method in [Method::GET, Method::DELETE] {
            let ask = site.with(&token, method, &at(agent)).send().await;
            ask.refused(404, "NOT_FOUND");
        }
    }
    let reading = site.token("alice", &json!({ "scopes": ["read"] })).await;
    site.with(&reading, Method::GET, &at(&own))
        .send()
        .await
        .expect(200);
    let refused = site.with(&reading, Method::DELETE, &at(&own)).send().await;
    refused.refused(403, "INSUFFICIENT_SCOPE");
    site.with(&token, Method::DELETE, &at(&own))
        .send()
        .await
        .expect(200);
    // Neither is a token: revoking all tokens leaves connections alone, and the other way about.
    site.about(Method::DELETE, "bob", "/tokens")
        .send()
        .await
        .expect(200);
    let id = bobs["id"].as_str().unwrap();
    let one = site.about(Method::DELETE, "bob", &format!("/tokens/{id}"));
    assert_eq!(one.send().await.expect(200).json()["revoked"], 0);
    let left = site.get(&at(&bobs)).send().await.expect(200).json();
    assert_eq!(left["agentConnection"]["status"], "active");
}

async fn who_may_make_a_connection_for_whom(store: Store) {
    let site = Site::new(store).await;
    let tokens = site.new_key("secret", &["tokens:manage"]);
    let make = |bearer: &str, more: Value| site.with(bearer, Method::POST, AGENTS).json(&wanted(more));
    make(&tokens, json!({ "externalUserId": "alice" }))
        .send()
        .await
        .expect(201);
    let refused = make(&tokens, json!({}))
        .send()
        .await
        .refused(403, "INSUFFICIENT_SCOPE");
    assert_eq!(refused.json()["requiredScopes"], json!(["credentials:manage"]));
    site.add_member("dev", "developer");
    let developer = site.session("dev", &json!({}));
    make(&developer, json!({ "externalUserId": "alice" }))
        .send()
        .await
        .expect(201);
    make(&developer, json!({}))
        .send()
        .await
        .refused(403, "INSUFFICIENT_SCOPE");
    let stale = site.session("the-owner", &json!({ "amr": ["pwd"] }));
    let owner = site.owner();
    make(&owner, json!({})).send().await.expect(201);
    make(&stale, json!({}))
        .send()
        .await
        .refused(401, "STEP_UP_REQUIRED");
    make(&owner, json!({ "externalUserId": "" }))
        .send()
        .await
        .refused(400, "VALIDATION_ERROR");
}

async fn retiring_an_end_user_ends_their_connections(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    let (_, first) = site.agent(json!({ "externalUserId": "alice" })).await;
    let (revoked, _) = site.agent(json!({ "externalUserId": "alice" })).await;
    let (_, bobs) = site.agent(json!({ "externalUserId": "bob" })).await;
    site.agent(json!({ "externalUserId": "alice" })).await;
    site.token("alice", &json!({})).await;
    let path = format!("{AGENTS}/{}", revoked["id"].as_str().unwrap());
    site.with(&site.key, Method::DELETE, &path)
        .send()
        .await
        .expect(200);
    site.chat_as(&first, "free").send().await.expect(200);
    let retired = site.retiring("alice", &owner).send().await.expect(200).json();
    assert_eq!(
        (&retired["revokedTokens"], &retired["revokedAgentConnections"]),
        (&json!(1), &json!(2))
    );
    site.chat_as(&first, "free")
        .send()
        .await
        .refused(401, "CREDENTIAL_REVOKED");
    site.chat_as(&bobs, "free").send().await.expect(200);
    let again = site.retiring("alice", &owner).send().await.expect(200).json();
    assert_eq!(again["revokedAgentConnections"], 0);
    let more = site.post(AGENTS, &wanted(json!({ "externalUserId": "alice" })));
    more.send().await.refused(403, "END_USER_RETIRED");
}

async fn no_answer_to_somebody_else_is_given_to_a_connection(store: Store) {
    let site = Setup::new(store).grant(Some("1")).start().await;
    let (_, secret) = site.agent(json!({})).await;
    let mine = site
        .post(TOOL, &json!({ "id": "1" }))
        .once("same")
        .send()
        .await
        .expect(200);
    let theirs = site.tool_as(&secret, "same").send().await.expect(200);
    assert_ne!(mine.header("x-svc-call-id"), theirs.header("x-svc-call-id"));
    // The same connection gets its own answer again, and pays once.
    let again = site.tool_as(&secret, "same").send().await.expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(theirs.header("x-svc-call-id"), again.header("x-svc-call-id"));
    assert_eq!(site.balance().await["usd"], "0.984");
    site.chat(&chat("free", "hi")).send().await.expect(200);
    assert_ne!(CHAT, TOOL);
}

async fn revoked_elsewhere() {
    let site = Setup::new(Store::Postgres).grant(Some("1")).start().await;
    let second = site.second().await;
    let (agent, secret) = site.agent(json!({})).await;
    let elsewhere = || {
        let call = second.client().request(Method::POST, CHAT).bearer(&secret);
        call.json(&chat("free", "hi")).send()
    };
    elsewhere().await.expect(200);
    let path = format!("{AGENTS}/{}", agent["id"].as_str().unwrap());
    site.with(&site.key, Method::DELETE, &path)
        .send()
        .await
        .expect(200);
    let began = std::time::Instant::now();
    loop {
        let reply = elsewhere().await;
        if reply.status == 401 {
            reply.refused(401, "CREDENTIAL_REVOKED");
            break;
        }
        assert!(began.elapsed().as_millis() < 1_000);
    }
}
