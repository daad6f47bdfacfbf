//! Who may do what: every documented route against every kind of credential.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};

use crate::harness::hooks::{ENDPOINTS, HOOK_EVENTS};
use crate::harness::payments::{EVENTS, POOL_TOPUPS, TOPUPS};
use crate::harness::{CHAT, Client, Reply, Setup, Store, TOOL, chat};
use crate::keys::KEYS;
use crate::on_both_stores;

on_both_stores!(every_route_demands_what_its_row_says);

/// What a route demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Nothing.
    Public,
    /// A secret or sandbox key, whatever its scopes.
    Calling,
    /// A scope, held by a key or by a member's role.
    Scope(&'static str),
    /// An end user's token with a scope.
    EndUser(&'static str),
    /// A dashboard session of an owner or admin with a fresh second factor.
    OwnerStepUp,
    /// No credential but the processor's signature on the body.
    Signed,
}

/// A documented route, a path that exercises it, and what it demands.
struct Row {
    method: Method,
    route: &'static str,
    path: &'static str,
    access: Access,
    /// What is sent.
    body: Value,
    /// The answer to who is let in: it may be a 404 of a thing that does not exist, but no refusal.
    status: u16,
}

/// A new route needs a row here.
fn rows() -> Vec<Row> {
    let mut rows = rows_of_calls();
    rows.extend(rows_of_end_users());
    rows.extend(rows_of_topups());
    rows.extend(rows_of_webhooks());
    rows.extend(rows_of_keys());
    rows.extend(rows_of_prices());
    rows
}

fn row(method: Method, route: &'static str, path: &'static str, access: Access) -> Row {
    Row {
        method,
        route,
        path,
        access,
        body: json!({}),
        status: 200,
    }
}

impl Row {
    /// Sends something else.
    fn sends(self, body: Value) -> Self {
        Self { body, ..self }
    }

    /// Is answered otherwise.
    fn gives(self, status: u16) -> Self {
        Self { status, ..self }
    }
}

const READ: Access = Access::Scope("tenant:read");

fn rows_of_calls() -> Vec<Row> {
    let same = |method, route, access| row(method, route, route, access);
    vec![
        same(Method::POST, CHAT, Access::Calling).sends(chat("flat", "hi")),
        same(Method::GET, "/api/wrapped/credits/v1/models", Access::Calling),
        row(
            Method::POST,
            "/api/wrapped/credits/{provider}/{endpoint}",
            TOOL,
            Access::Calling,
        ),
        same(Method::GET, "/api/credits/balance", READ),
        same(Method::GET, "/api/credits/ledger", READ),
        same(Method::GET, "/api/credits/usage", READ),
        row(
            Method::GET,
            "/api/credits/calls/{callId}",
            "/api/credits/calls/0190a0b0-0000-7000-8000-000000000000",
            READ,
        )
        .gives(404),
        row(
            Method::GET,
            "/api/credits/calls/{callId}/result",
            "/api/credits/calls/0190a0b0-0000-7000-8000-000000000000/result",
            READ,
        )
        .gives(404),
        same(Method::GET, "/api/credits/tenants/me/settings", READ),
        same(
            Method::PUT,
            "/api/credits/tenants/me/settings",
            Access::Scope("tenant:write"),
        ),
        same(Method::GET, "/openapi.json", Access::Public),
        same(Method::GET, "/llms.txt", Access::Public),
        same(Method::GET, "/.well-known/jwks.json", Access::Public),
        same(Method::GET, "/healthz", Access::Public),
        same(Method::GET, "/readyz", Access::Public),
    ]
}

fn rows_of_end_users() -> Vec<Row> {
    let (moves, mints) = (Access::Scope("credits:move"), Access::Scope("tokens:manage"));
    let cent = json!({ "usd": "0.01" });
    let of_user = |method, below: &str, access| {
        let leak = |text: String| -> &'static str { text.leak() };
        let route = leak(format!("/api/credits/end-users/{{externalUserId}}{below}"));
        let path = leak(format!("/api/credits/end-users/{USER}{below}"));
        row(method, route, path, access)
    };
    vec![
        row(
            Method::GET,
            "/api/credits/end-users",
            "/api/credits/end-users",
            READ,
        ),
        of_user(Method::GET, "", READ),
        of_user(Method::POST, "/allocate", moves).sends(cent.clone()),
        of_user(Method::POST, "/deallocate", moves).sends(cent),
        of_user(Method::GET, "/policy", READ),
        of_user(Method::PUT, "/policy", moves),
        of_user(Method::POST, "/freeze", moves),
        of_user(Method::POST, "/unfreeze", moves),
        of_user(Method::POST, "/tokens", mints).gives(201),
        row(
            Method::DELETE,
            "/api/credits/end-users/{externalUserId}/tokens",
            "/api/credits/end-users/revoked/tokens",
            mints,
        ),
        row(
            Method::DELETE,
            "/api/credits/end-users/{externalUserId}/tokens/{jti}",
            "/api/credits/end-users/revoked/tokens/0190a0b0-0000-7000-8000-000000000000",
            mints,
        ),
        row(
            Method::DELETE,
            "/api/credits/end-users/{externalUserId}",
            "/api/credits/end-users/nobody",
            Access::OwnerStepUp,
        )
        .gives(404),
        row(
            Method::GET,
            "/api/credits/me",
            "/api/credits/me",
            Access::EndUser("read"),
        ),
        row(
            Method::GET,
            "/api/credits/me/balance",
            "/api/credits/me/balance",
            Access::EndUser("read"),
        ),
    ]
}

fn rows_of_topups() -> Vec<Row> {
    let (own, auto) = ("/api/credits/me/topups", "/api/credits/tenants/me/auto-topup");
    let (moves, tops_up) = (Access::Scope("credits:move"), Access::EndUser("topup"));
    let five = json!({ "usd": "5" });
    vec![
        row(Method::POST, own, own, tops_up).sends(five.clone()),
        row(
            Method::GET,
            "/api/credits/me/topups/{sessionId}",
            "/api/credits/me/topups/cs_unknown",
            tops_up,
        )
        .gives(404),
        row(Method::POST, POOL_TOPUPS, POOL_TOPUPS, moves).sends(five),
        row(Method::GET, TOPUPS, TOPUPS, READ),
        row(
            Method::GET,
            "/api/credits/topups/{sessionId}",
            "/api/credits/topups/cs_unknown",
            READ,
        )
        .gives(404),
        row(
            Method::POST,
            "/api/credits/topups/{sessionId}/refunds",
            "/api/credits/topups/cs_unknown/refunds",
            moves,
        )
        .gives(404),
        row(Method::GET, auto, auto, READ),
        row(Method::PUT, auto, auto, moves).sends(json!({ "enabled": false })),
        row(Method::POST, EVENTS, EVENTS, Access::Signed),
    ]
}

fn rows_of_webhooks() -> Vec<Row> {
    const NOBODY: &str = "0190a0b0-0000-7000-8000-000000000000";
    let manage = Access::Scope("credentials:manage");
    let of = |method, route: &'static str, access| {
        let path = route.replace("{eventId}", NOBODY).replace("{endpointId}", NOBODY);
        row(method, route, path.leak(), access)
    };
    let (events, event) = (HOOK_EVENTS, "/api/credits/webhooks/events/{eventId}");
    let (endpoints, endpoint) = (ENDPOINTS, "/api/credits/webhooks/endpoints/{endpointId}");
    let below = |what: &str| -> &'static str { format!("{endpoint}/{what}").leak() };
    vec![
        of(Method::GET, events, READ),
        of(Method::GET, event, READ).gives(404),
        of(
            Method::POST,
            "/api/credits/webhooks/events/{eventId}/replay",
            manage,
        )
        .gives(404),
        of(Method::GET, endpoints, manage),
        of(Method::POST, endpoints, manage)
            .sends(json!({ "url": "https://192.0.9.9/" }))
            .gives(201),
        of(Method::GET, endpoint, manage).gives(404),
        of(Method::PATCH, endpoint, manage).gives(404),
        of(Method::DELETE, endpoint, manage).gives(404),
        of(Method::POST, below("rotate-secret"), manage).gives(404),
        of(Method::POST, below("test"), manage).gives(404),
        of(Method::POST, below("replay"), manage)
            .sends(json!({ "since": "2026-11-01T00:00:00Z" }))
            .gives(404),
    ]
}

fn rows_of_keys() -> Vec<Row> {
    const KEY: &str = "/api/credits/tenants/me/keys/{keyId}";
    let manage = Access::Scope("credentials:manage");
    let of = |method, below: &str, access| {
        let route: &'static str = format!("{KEY}{below}").leak();
        let path = route.replace("{keyId}", "0190a0b0-0000-7000-8000-000000000000");
        row(method, route, path.leak(), access).gives(404)
    };
    vec![
        row(Method::GET, KEYS, KEYS, manage),
        row(Method::POST, KEYS, KEYS, Access::OwnerStepUp)
            .sends(json!({ "name": "matrix" }))
            .gives(201),
        of(Method::GET, "", manage),
        of(Method::DELETE, "", manage),
        of(Method::POST, "/rotate", Access::OwnerStepUp),
        of(Method::PUT, "/pricing", Access::Scope("catalog:write")),
    ]
}

fn rows_of_prices() -> Vec<Row> {
    let write = Access::Scope("catalog:write");
    let of = |method, route: &'static str, access| {
        let path = route
            .replace("{provider}", "tools")
            .replace("{endpoint}", "fetch");
        row(method, route, path.leak(), access)
    };
    let mut rows = vec![
        of(Method::GET, "/api/credits/catalog", READ),
        of(Method::GET, "/api/credits/pricing", READ),
        of(Method::GET, "/api/credits/pricing/history", READ),
        row(
            Method::GET,
            "/api/credits/pricing/explain",
            "/api/credits/pricing/explain?provider=tools&endpoint=fetch",
            READ,
        ),
    ];
    for route in [
        "/api/credits/catalog/{provider}",
        "/api/credits/catalog/{provider}/{endpoint}",
    ] {
        rows.push(of(Method::PUT, route, write).sends(json!({ "enabled": true })));
        rows.push(of(Method::DELETE, route, write));
    }
    for route in [
        "/api/credits/pricing/global",
        "/api/credits/pricing/providers/{provider}",
        "/api/credits/pricing/endpoints/{provider}/{endpoint}",
    ] {
        rows.push(of(Method::PUT, route, write).sends(json!({ "markupBps": 1 })));
        rows.push(of(Method::DELETE, route, write));
    }
    rows
}

/// The end user whose tokens are tried.
const USER: &str = "matrix-user";
const TOKEN_SCOPES: [&str; 3] = ["read", "spend", "topup"];

const SCOPES: [&str; 9] = [
    "tenant:read",
    "tenant:write",
    "catalog:write",
    "credits:move",
    "credentials:manage",
    "tokens:manage",
    "payouts:manage",
    "members:manage",
    "widget:read",
];

/// The scopes of the roles (decisions 3).
fn role_scopes() -> [(&'static str, Vec<&'static str>); 5] {
    [
        ("owner", SCOPES.to_vec()),
        ("admin", SCOPES.to_vec()),
        (
            "developer",
            vec!["tenant:read", "catalog:write", "tokens:manage", "widget:read"],
        ),
        ("billing", vec!["tenant:read", "payouts:manage"]),
        ("viewer", vec!["tenant:read"]),
    ]
}

async fn ask(client: &Client, row: &Row, bearer: Option<&str>) -> Reply {
    let mut call = client.request(row.method.clone(), row.path);
    if let Some(bearer) = bearer {
        call = call.bearer(bearer);
    }
    if row.method != Method::GET {
        call = call.json(&row.body).once(&uuid::Uuid::new_v4().to_string());
    }
    call.send().await
}

fn let_in(row: &Row, reply: &Reply, who: &str) {
    assert_eq!(
        reply.status,
        row.status,
        "{who} at {} {}: {}",
        row.method,
        row.route,
        reply.text()
    );
}

fn refused_for_scope(row: &Row, reply: Reply, who: &str, needed: &str, present: &[&str]) {
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (403, "INSUFFICIENT_SCOPE"),
        "{who} at {} {}",
        row.method,
        row.route
    );
    let mut present: Vec<&str> = present.to_vec();
    present.sort_unstable();
    let body = reply.refused(403, "INSUFFICIENT_SCOPE").json();
    assert_eq!(
        (&body["requiredScopes"], &body["presentScopes"]),
        (&json!([needed]), &json!(present)),
        "{who}"
    );
}

// Fault matrix 146
async fn every_route_demands_what_its_row_says(store: Store) {
    let setup = Setup::new(store).set("limits.topups_per_minute", 0);
    let site = setup.start().await;
    let rows = rows();
    let document = site
        .client
        .request(Method::GET, "/openapi.json")
        .send()
        .await
        .expect(200)
        .json();
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            if ["get", "post", "put", "patch", "delete", "head", "options"].contains(&method.as_str()) {
                documented.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    let in_table: BTreeSet<String> = rows
        .iter()
        .map(|row| format!("{} {}", row.method, row.route))
        .collect();
    assert_eq!(
        in_table, documented,
        "every documented route needs exactly one row"
    );
    let publishable = site.new_key("publishable", &["widget:read"]);
    let sandbox = site.new_key("sandbox", &[]);
    let bare = site.new_key("secret", &[]);
    let single: BTreeMap<&str, String> = SCOPES
        .iter()
        .map(|scope| (*scope, site.new_key("secret", &[scope])))
        .collect();
    let members: Vec<(&str, Vec<&str>, String)> = role_scopes()
        .into_iter()
        .map(|(role, scopes)| {
            site.operate(&[
                "member",
                "add",
                "--tenant",
                &site.tenant,
                "--subject",
                role,
                "--role",
                role,
            ]);
            let token = site.operate(&["dev-token", "--subject", role])["token"]
                .as_str()
                .unwrap()
                .to_owned();
            (role, scopes, token)
        })
        .collect();
    site.grant("1", Some(USER));
    site.limit("revoked", &json!({})).await;
    let mut tokens = BTreeMap::new();
    for scope in TOKEN_SCOPES {
        tokens.insert(scope, site.token(USER, &json!({ "scopes": [scope] })).await);
    }
    let unproved = site.operate(&["dev-token", "--subject", "owner", "--no-mfa"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let stranger = site.operate(&["dev-token", "--subject", "stranger"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    for row in &rows {
        let nobody = ask(&site.client, row, None).await;
        if row.access == Access::Public {
            nobody.expect(200);
            ask(&site.client, row, Some("garbage")).await.expect(200);
            continue;
        }
        if row.access == Access::Signed {
            nobody.refused(400, "VALIDATION_ERROR");
            // A credential is no signature.
            let keyed = ask(&site.client, row, Some(&site.key)).await;
            keyed.refused(400, "VALIDATION_ERROR");
            continue;
        }
        let nobody = nobody.refused(401, "UNAUTHENTICATED");
        assert_eq!(nobody.header("www-authenticate"), Some("Bearer"));
        let garbage = ask(&site.client, row, Some("garbage"))
            .await
            .refused(401, "INVALID_CREDENTIAL");
        assert_eq!(
            garbage.header("www-authenticate"),
            Some("Bearer error=\"invalid_token\"")
        );
        ask(&site.client, row, Some(&stranger))
            .await
            .refused(403, "TENANT_NOT_MEMBER");
        let keys_and_members = single
            .values()
            .chain([&bare, &sandbox, &publishable])
            .chain(members.iter().map(|(_, _, token)| token));
        match row.access {
            Access::Public | Access::Signed => {}
            Access::EndUser(needed) => {
                for (scope, token) in &tokens {
                    let reply = ask(&site.client, row, Some(token)).await;
                    if *scope == needed {
                        let_in(row, &reply, scope);
                    } else {
                        refused_for_scope(row, reply, scope, needed, &[scope]);
                    }
                }
                for credential in keys_and_members {
                    let refused = ask(&site.client, row, Some(credential)).await;
                    refused.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
                }
            }
            Access::OwnerStepUp => {
                for credential in single
                    .values()
                    .chain([&bare, &sandbox, &publishable])
                    .chain(tokens.values())
                {
                    let refused = ask(&site.client, row, Some(credential)).await;
                    refused.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
                }
                for (role, _, token) in &members {
                    let reply = ask(&site.client, row, Some(token)).await;
                    if matches!(*role, "owner" | "admin") {
                        let_in(row, &reply, role);
                    } else {
                        reply.refused(403, "FORBIDDEN_ROLE");
                    }
                }
                let refused = ask(&site.client, row, Some(&unproved)).await;
                refused.refused(401, "STEP_UP_REQUIRED");
            }
            Access::Calling => {
                for (scope, token) in &tokens {
                    let reply = ask(&site.client, row, Some(token)).await;
                    if *scope == "spend" {
                        let_in(row, &reply, scope);
                    } else {
                        refused_for_scope(row, reply, scope, "spend", &[scope]);
                    }
                }
                for (who, key) in [("bare", &bare), ("sandbox", &sandbox), ("all", &site.key)] {
                    let_in(row, &ask(&site.client, row, Some(key)).await, who);
                }
                let refused = ask(&site.client, row, Some(&publishable)).await;
                refused.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
                for (_, _, token) in &members {
                    let refused = ask(&site.client, row, Some(token)).await;
                    refused.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
                }
            }
            Access::Scope(needed) => {
                for token in tokens.values() {
                    let refused = ask(&site.client, row, Some(token)).await;
                    refused.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
                }
                for (who, key, present) in [
                    ("bare", &bare, vec![]),
                    ("sandbox", &sandbox, vec![]),
                    ("publishable", &publishable, vec!["widget:read"]),
                ] {
                    refused_for_scope(
                        row,
                        ask(&site.client, row, Some(key)).await,
                        who,
                        needed,
                        &present,
                    );
                }
                let keys = single.iter().map(|(scope, key)| (*scope, vec![*scope], key));
                let members = members
                    .iter()
                    .map(|(role, scopes, token)| (*role, scopes.clone(), token));
                for (who, present, credential) in keys.chain(members) {
                    let reply = ask(&site.client, row, Some(credential)).await;
                    if present.contains(&needed) {
                        let_in(row, &reply, who);
                    } else {
                        refused_for_scope(row, reply, who, needed, &present);
                    }
                }
            }
        }
    }
}
