//! Who may do what: every documented route against every kind of credential.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::json;

use crate::harness::payments::{EVENTS, POOL_TOPUPS, TOPUPS};
use crate::harness::{CHAT, Client, Reply, Setup, Store, TOOL, chat};
use crate::on_both_stores;

on_both_stores!(every_route_demands_what_its_row_says);

const OWN_TOPUPS: &str = "/api/credits/me/topups";
const AUTO_TOPUP: &str = "/api/credits/tenants/me/auto-topup";

/// What a route demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Nothing.
    Public,
    /// A secret or sandbox key, whatever its scopes.
    Calling,
    /// A scope, held by a key or by a member's role.
    Scope(&'static str),
    /// An end user's token.
    EndUser,
    /// No credential but the processor's signature on the body.
    Signed,
}

/// A documented route, a path that exercises it, and what it demands.
struct Row {
    method: Method,
    route: &'static str,
    path: &'static str,
    access: Access,
}

/// A new route needs a row here.
fn rows() -> Vec<Row> {
    let row = |method: Method, route: &'static str, path: &'static str, access: Access| Row {
        method,
        route,
        path,
        access,
    };
    let read = Access::Scope("tenant:read");
    let move_credits = Access::Scope("credits:move");
    vec![
        row(Method::POST, CHAT, CHAT, Access::Calling),
        row(
            Method::GET,
            "/api/wrapped/credits/v1/models",
            "/api/wrapped/credits/v1/models",
            Access::Calling,
        ),
        row(
            Method::POST,
            "/api/wrapped/credits/{provider}/{endpoint}",
            TOOL,
            Access::Calling,
        ),
        row(Method::GET, "/api/credits/balance", "/api/credits/balance", read),
        row(Method::GET, "/api/credits/ledger", "/api/credits/ledger", read),
        row(Method::GET, "/api/credits/usage", "/api/credits/usage", read),
        row(
            Method::GET,
            "/api/credits/calls/{callId}",
            "/api/credits/calls/0190a0b0-0000-7000-8000-000000000000",
            read,
        ),
        row(
            Method::GET,
            "/api/credits/calls/{callId}/result",
            "/api/credits/calls/0190a0b0-0000-7000-8000-000000000000/result",
            read,
        ),
        row(
            Method::GET,
            "/api/credits/tenants/me/settings",
            "/api/credits/tenants/me/settings",
            read,
        ),
        row(
            Method::PUT,
            "/api/credits/tenants/me/settings",
            "/api/credits/tenants/me/settings",
            Access::Scope("tenant:write"),
        ),
        row(Method::POST, OWN_TOPUPS, OWN_TOPUPS, Access::EndUser),
        row(
            Method::GET,
            "/api/credits/me/topups/{sessionId}",
            "/api/credits/me/topups/cs_unknown",
            Access::EndUser,
        ),
        row(Method::POST, POOL_TOPUPS, POOL_TOPUPS, move_credits),
        row(Method::GET, TOPUPS, TOPUPS, read),
        row(
            Method::GET,
            "/api/credits/topups/{sessionId}",
            "/api/credits/topups/cs_unknown",
            read,
        ),
        row(
            Method::POST,
            "/api/credits/topups/{sessionId}/refunds",
            "/api/credits/topups/cs_unknown/refunds",
            move_credits,
        ),
        row(Method::GET, AUTO_TOPUP, AUTO_TOPUP, read),
        row(Method::PUT, AUTO_TOPUP, AUTO_TOPUP, move_credits),
        row(Method::POST, EVENTS, EVENTS, Access::Signed),
        row(Method::GET, "/openapi.json", "/openapi.json", Access::Public),
        row(Method::GET, "/llms.txt", "/llms.txt", Access::Public),
        row(Method::GET, "/healthz", "/healthz", Access::Public),
        row(Method::GET, "/readyz", "/readyz", Access::Public),
    ]
}

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
    let body = match row.path {
        CHAT => chat("flat", "hi"),
        OWN_TOPUPS | POOL_TOPUPS => json!({ "usd": "5" }),
        AUTO_TOPUP => json!({ "enabled": false }),
        _ => json!({}),
    };
    if row.method != Method::GET {
        call = call.json(&body).once(&uuid::Uuid::new_v4().to_string());
    }
    call.send().await
}

/// The reply to someone who is let in: it may be a 404 of what does not exist, but no refusal.
fn let_in(row: &Row, reply: &Reply, who: &str) {
    let expected: &[u16] = if row.route.contains("{callId}") || row.route.contains("{sessionId}") {
        &[404]
    } else {
        &[200]
    };
    assert!(
        expected.contains(&reply.status),
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
    let site = Setup::new(store).set("limits.topups_per_minute", 0).start().await;
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
        match row.access {
            Access::Public | Access::Signed => {}
            Access::EndUser => {
                let keys = [&bare, &sandbox, &publishable, &site.key];
                for credential in keys.into_iter().chain(members.iter().map(|(_, _, token)| token)) {
                    let refused = ask(&site.client, row, Some(credential)).await;
                    refused.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
                }
            }
            Access::Calling => {
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
