//! A row for every documented route: what it demands, and a request that exercises it.

use http::Method;
use serde_json::{Value, json};

use crate::agents::{AGENTS, wanted};
use crate::approvals::APPROVALS;
use crate::harness::hooks::{ENDPOINTS, HOOK_EVENTS};
use crate::harness::payments::{EVENTS, POOL_TOPUPS, TOPUPS};
use crate::harness::payouts::PAYOUTS;
use crate::harness::wallet::{PAID_CHAT, PAID_FIM, PAID_LIST};
use crate::harness::{CHAT, TOOL, chat};
use crate::keys::KEYS;
use crate::mcp::{MCP, MCP_DOCS};
use crate::tool_quotes::ESTIMATE;
use crate::tools_search::{DESCRIBE, SEARCH};

/// What a route demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Public,
    /// A secret or sandbox key, whatever its scopes.
    Calling,
    /// The same, or a member with `tenant:read`.
    CallingOrMember,
    /// A dashboard session, in whatever workspace.
    Person,
    /// A scope, held by a key or by a member's role.
    Scope(&'static str),
    /// The same, and of a member a fresh second factor.
    Guarded(&'static str),
    /// A member with the scope who shows a second factor then and there; no key and no step-up token.
    OwnFactor(&'static str),
    /// A member with the scope and a fresh second factor; no key.
    MemberStepUp(&'static str),
    /// An owner or admin with the scope and a fresh second factor; no key.
    Administrator(&'static str),
    /// A scope, held by a key or by a member's role, or an end user's token with the other scope.
    ScopeOrToken(&'static str, &'static str),
    /// An end user's token with a scope.
    EndUser(&'static str),
    /// No credential but the processor's signature on the body.
    Signed,
}

/// A documented route, a path that exercises it, and what it demands.
pub struct Row {
    pub method: Method,
    pub route: &'static str,
    pub path: &'static str,
    pub access: Access,
    /// What is sent.
    pub body: Value,
    /// The answer to who is let in: it may be a 404 of a thing that does not exist, but no refusal.
    pub status: u16,
}

/// A new route needs a row here.
pub fn rows() -> Vec<Row> {
    let mut rows = rows_of_calls();
    rows.extend(rows_of_end_users());
    rows.extend(rows_of_topups());
    rows.extend(rows_of_webhooks());
    rows.extend(rows_of_workspaces());
    rows.extend(rows_of_payouts());
    rows.extend(rows_of_keys());
    rows.extend(rows_of_agents());
    rows.extend(rows_of_prices());
    rows.extend(rows_of_approvals());
    rows.extend(rows_of_paid_calls());
    // At the end: whoever signs out is not let in any more.
    rows.extend(rows_of_sessions());
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
        same(Method::POST, SEARCH, Access::CallingOrMember).sends(json!({ "query": "fetch" })),
        same(Method::POST, DESCRIBE, Access::CallingOrMember).sends(json!({ "slug": "tools/fetch" })),
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
            Access::Guarded("tenant:write"),
        ),
        same(
            Method::GET,
            "/api/credits/tenants/me/invitations",
            Access::Scope("members:manage"),
        ),
        same(
            Method::POST,
            "/api/credits/tenants/me/invitations",
            Access::Guarded("members:manage"),
        )
        .gives(400),
        row(
            Method::DELETE,
            "/api/credits/tenants/me/invitations/{invitationId}",
            "/api/credits/tenants/me/invitations/0190a0b0-0000-7000-8000-000000000000",
            Access::Scope("members:manage"),
        )
        .gives(404),
        same(Method::POST, "/api/credits/invitations/accept", Access::Person)
            .sends(json!({ "token": "unknown" }))
            .gives(404),
        same(Method::GET, "/openapi.json", Access::Public),
        same(Method::GET, "/llms.txt", Access::Public),
        same(Method::GET, "/.well-known/jwks.json", Access::Public),
        same(Method::GET, "/healthz", Access::Public),
        same(Method::GET, "/readyz", Access::Public),
    ]
}

fn rows_of_approvals() -> Vec<Row> {
    let decides = Access::Administrator("credits:move");
    let nothing = "0190a0b0-0000-7000-8000-000000000000";
    let about = |method, root: &str, name: &str, below: &str, access| {
        let leak = |text: String| -> &'static str { text.leak() };
        let route = leak(format!("{root}/{{{name}}}{below}"));
        let path = leak(format!("{root}/{nothing}{below}"));
        row(method, route, path, access).gives(404)
    };
    let approval = |method, below, access| about(method, APPROVALS, "approvalId", below, access);
    vec![
        row(Method::POST, ESTIMATE, ESTIMATE, Access::Calling).sends(json!({ "slug": "tools/fetch" })),
        about(Method::DELETE, ESTIMATE, "quoteId", "", Access::Calling),
        row(Method::GET, APPROVALS, APPROVALS, READ),
        row(Method::POST, APPROVALS, APPROVALS, Access::Calling).gives(400),
        approval(Method::GET, "", READ),
        approval(Method::POST, "/approve", decides),
        approval(Method::POST, "/deny", decides),
    ]
}

fn rows_of_end_users() -> Vec<Row> {
    let (moves, mints) = (Access::Guarded("credits:move"), Access::Scope("tokens:manage"));
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
        of_user(Method::POST, "/freeze", Access::Scope("credits:move")),
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
            Access::Administrator("credits:move"),
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
    let (moves, tops_up) = (Access::Guarded("credits:move"), Access::EndUser("topup"));
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

fn rows_of_payouts() -> Vec<Row> {
    const NOBODY: &str = "/api/credits/payouts/0190a0b0-0000-7000-8000-000000000000";
    let manage = Access::Scope("payouts:manage");
    let member = Access::MemberStepUp("payouts:manage");
    let same = |method, route, access| row(method, route, route, access);
    vec![
        same(Method::GET, "/api/credits/payouts/account", manage),
        same(Method::PUT, "/api/credits/payouts/stablecoin", member).sends(json!({
            "address": "0x52908400098527886E0F7030069857D2E4169EE7", "network": "eip155:8453",
        })),
        same(Method::GET, PAYOUTS, manage),
        // Nothing was earned.
        same(Method::POST, PAYOUTS, Access::Guarded("payouts:manage")).gives(400),
        row(Method::GET, "/api/credits/payouts/{payoutId}", NOBODY, manage).gives(404),
        row(
            Method::POST,
            "/api/credits/payouts/{payoutId}/cancel",
            "/api/credits/payouts/0190a0b0-0000-7000-8000-000000000000/cancel",
            manage,
        )
        .gives(404),
        same(Method::POST, "/api/credits/connect/processor/start", member),
        same(Method::GET, "/api/credits/connect/processor/status", manage),
        same(
            Method::POST,
            "/api/credits/connect/processor/disconnect",
            Access::Administrator("payouts:manage"),
        ),
    ]
}

fn rows_of_webhooks() -> Vec<Row> {
    const NOBODY: &str = "0190a0b0-0000-7000-8000-000000000000";
    let (manage, secrets) = (
        Access::Scope("credentials:manage"),
        Access::Guarded("credentials:manage"),
    );
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
        of(Method::POST, endpoints, secrets)
            .sends(json!({ "url": "https://192.0.9.9/" }))
            .gives(201),
        of(Method::GET, endpoint, manage).gives(404),
        of(Method::PATCH, endpoint, secrets).gives(404),
        of(Method::DELETE, endpoint, manage).gives(404),
        of(Method::POST, below("rotate-secret"), secrets).gives(404),
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
        row(
            Method::POST,
            KEYS,
            KEYS,
            Access::Administrator("credentials:manage"),
        )
        .sends(json!({ "name": "matrix" }))
        .gives(201),
        of(Method::GET, "", manage),
        of(Method::DELETE, "", manage),
        of(
            Method::POST,
            "/rotate",
            Access::Administrator("credentials:manage"),
        ),
        of(Method::PUT, "/pricing", Access::Scope("catalog:write")),
    ]
}

fn rows_of_agents() -> Vec<Row> {
    const ONE: &str = "/api/credits/agent-connections/{agentId}";
    const NOBODY: &str = "/api/credits/agent-connections/0190a0b0-0000-7000-8000-000000000000";
    let reads = Access::ScopeOrToken("tokens:manage", "read");
    let ends = Access::ScopeOrToken("tokens:manage", "spend");
    let metadata = |route| row(Method::GET, route, route, Access::Public);
    vec![
        row(Method::GET, AGENTS, AGENTS, reads),
        row(Method::POST, AGENTS, AGENTS, Access::Guarded("tokens:manage"))
            .sends(wanted(json!({ "externalUserId": USER })))
            .gives(201),
        row(Method::GET, ONE, NOBODY, reads).gives(404),
        row(Method::DELETE, ONE, NOBODY, ends).gives(404),
        metadata("/.well-known/oauth-authorization-server"),
        metadata("/.well-known/oauth-protected-resource"),
        metadata("/.well-known/oauth-protected-resource/api/credits/mcp"),
        metadata(MCP_DOCS),
        row(Method::POST, MCP, MCP, Access::Calling)
            .sends(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })),
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

/// What lets somebody in is a payment; without one the terms are told.
fn rows_of_paid_calls() -> Vec<Row> {
    let sold = |path, body| {
        row(Method::POST, path, path, Access::Public)
            .sends(body)
            .gives(402)
    };
    vec![
        sold(
            PAID_CHAT,
            json!({ "model": "vendor-v4-flash", "max_tokens": 1, "messages": [{ "role": "user", "content": "hi" }] }),
        ),
        sold(
            PAID_FIM,
            json!({ "model": "vendor-v4-pro", "max_tokens": 1, "prompt": "hi" }),
        ),
        sold(PAID_LIST, json!({})),
        // Without the request's id.
        row(
            Method::GET,
            "/vendor/receipts/{receiptId}",
            "/vendor/receipts/0190a0b0-0000-8000-8000-000000000000",
            Access::Public,
        )
        .gives(400),
        row(
            Method::GET,
            "/vendor/openapi.json",
            "/vendor/openapi.json",
            Access::Public,
        ),
    ]
}

fn rows_of_workspaces() -> Vec<Row> {
    let same = |method, route, access| row(method, route, route, access);
    let guarded = Access::Guarded("members:manage");
    let member = "/api/credits/tenants/me/members/{subject}";
    let nobody = "/api/credits/tenants/me/members/nobody";
    vec![
        same(Method::GET, "/api/credits/tenants", Access::Person),
        same(Method::GET, "/api/credits/tenants/me", READ),
        same(
            Method::PATCH,
            "/api/credits/tenants/me",
            Access::Guarded("tenant:write"),
        ),
        same(
            Method::GET,
            "/api/credits/tenants/me/members",
            Access::Scope("members:manage"),
        ),
        row(Method::PUT, member, nobody, guarded).gives(400),
        row(Method::DELETE, member, nobody, guarded).gives(404),
        same(Method::GET, "/api/credits/audit", READ),
    ]
}

fn rows_of_sessions() -> Vec<Row> {
    let same = |method, route, access| row(method, route, route, access);
    vec![
        same(Method::GET, "/identity/jwks.json", Access::Public),
        same(
            Method::POST,
            "/api/credits/step-up",
            Access::OwnFactor("tenant:read"),
        )
        .gives(201),
        same(Method::POST, "/api/credits/sign-out", Access::Person),
    ]
}

/// The end user whose tokens are tried.
pub const USER: &str = "matrix-user";
