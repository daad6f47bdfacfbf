//! The table of routes: what each demands of its caller and does to the workspace.

use turnpike_app::tokens::TokenScope;
use turnpike_core::access::{AgentScope, Scope};

/// What a route demands of who calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Nothing.
    Public,
    /// No credential but the processor's signature on the body.
    Signed,
    /// A dashboard session, in no workspace yet.
    Person,
    /// A secret or sandbox key whatever its scopes, an end user's token that may spend, or an agent connection: to read
    /// one that may read, otherwise one that may execute.
    Caller,
    /// The same, or a member of the workspace with the scope `tenant:read`.
    CallerOrMember,
    /// An end user's token with this scope.
    EndUser(TokenScope),
    /// A member of the workspace, or one of its keys.
    Workspace(Needs),
    /// The same, or who is let in to what is their own.
    Shared(Needs, Own),
}

/// Who is let in to what is their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// An end user's token with this scope.
    EndUser(TokenScope),
    /// An agent connection with this scope.
    Agent(AgentScope),
}

/// What a route demands of members and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Held by the key, or by the member's role.
    pub(crate) scope: Scope,
    /// Whether a key will do.
    pub(crate) keys: bool,
    /// Whether the member must be an owner or admin.
    pub(crate) administrator: bool,
    /// Whether a member must have shown a second factor in the last ten minutes.
    pub(crate) step_up: bool,
}

/// What a route does to the workspace, which decides whether it works while that is suspended or frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Changes nothing.
    Read,
    /// Changes settings, people, prices.
    Manage,
    /// Spends or moves credits.
    Spend,
    /// Begins a payment into the workspace.
    TopUp,
    /// Sends money out.
    PayOut,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) demand: Demand,
    pub(crate) effect: Effect,
    /// Whether the use case counts requests by itself.
    pub(crate) own_limit: bool,
}

const fn get(path: &'static str, demand: Demand) -> Rule {
    row("GET", path, demand, Effect::Read)
}

const fn post(path: &'static str, demand: Demand, effect: Effect) -> Rule {
    row("POST", path, demand, effect)
}

const fn put(path: &'static str, demand: Demand, effect: Effect) -> Rule {
    row("PUT", path, demand, effect)
}

const fn patch(path: &'static str, demand: Demand, effect: Effect) -> Rule {
    row("PATCH", path, demand, effect)
}

const fn delete(path: &'static str, demand: Demand, effect: Effect) -> Rule {
    row("DELETE", path, demand, effect)
}

const fn row(method: &'static str, path: &'static str, demand: Demand, effect: Effect) -> Rule {
    Rule {
        method,
        path,
        demand,
        effect,
        own_limit: false,
    }
}

impl Rule {
    /// The same, whose use case counts requests by itself.
    const fn with_own_limit(self) -> Self {
        Self {
            own_limit: true,
            ..self
        }
    }
}

/// A key or a member with the scope.
const fn scope(scope: Scope) -> Demand {
    Demand::Workspace(Needs {
        scope,
        keys: true,
        administrator: false,
        step_up: false,
    })
}

/// The same, or who is let in to what is their own.
const fn shared(scope: Scope, own: Own) -> Demand {
    let needs = Needs {
        scope,
        keys: true,
        administrator: false,
        step_up: false,
    };
    Demand::Shared(needs, own)
}

/// A key with the scope, or a member with it and a fresh second factor.
const fn guarded(scope: Scope) -> Demand {
    Demand::Workspace(Needs {
        scope,
        keys: true,
        administrator: false,
        step_up: true,
    })
}

/// A member with the scope and a fresh second factor; no key.
const fn member(scope: Scope) -> Demand {
    Demand::Workspace(Needs {
        scope,
        keys: false,
        administrator: false,
        step_up: true,
    })
}

/// An owner or admin with the scope and a fresh second factor; no key.
const fn administrator(scope: Scope) -> Demand {
    Demand::Workspace(Needs {
        scope,
        keys: false,
        administrator: true,
        step_up: true,
    })
}

/// A member with the scope, whatever they have shown; no key.
const fn session(scope: Scope) -> Demand {
    Demand::Workspace(Needs {
        scope,
        keys: false,
        administrator: false,
        step_up: false,
    })
}

const READ: Demand = scope(Scope::TenantRead);
const SETTINGS: Demand = guarded(Scope::TenantWrite);
const MOVES: Demand = guarded(Scope::CreditsMove);
/// Stops somebody from spending, which must not wait for a second factor.
const STOPS: Demand = scope(Scope::CreditsMove);
const CREDENTIALS: Demand = scope(Scope::CredentialsManage);
const SECRETS: Demand = guarded(Scope::CredentialsManage);
const CATALOGUE: Demand = scope(Scope::CatalogWrite);
const TOKENS: Demand = scope(Scope::TokensManage);
/// Statements that an agent connection reads of its own calls and balance.
const AGENTS_READ: Demand = shared(Scope::TenantRead, Own::Agent(AgentScope::Read));
const MEMBERS: Demand = scope(Scope::MembersManage);
const PAYOUTS: Demand = scope(Scope::PayoutsManage);

/// Every documented route.
#[rustfmt::skip]
pub(crate) const TABLE: &[Rule] = &[
    post("/api/wrapped/credits/v1/chat/completions", Demand::Caller, Effect::Spend),
    get("/api/wrapped/credits/v1/models", Demand::Caller),
    post("/api/wrapped/credits/{provider}/{endpoint}", Demand::Caller, Effect::Spend),
    // Tools
    post("/api/credits/mcp", Demand::Caller, Effect::Read),
    get("/api/credits/mcp/docs", Demand::Public),
    post("/api/credits/tools/search", Demand::CallerOrMember, Effect::Read),
    post("/api/credits/tools/describe", Demand::CallerOrMember, Effect::Read),
    // Statements
    get("/api/credits/balance", AGENTS_READ),
    get("/api/credits/ledger", READ),
    get("/api/credits/usage", READ),
    get("/api/credits/calls/{callId}", AGENTS_READ),
    get("/api/credits/calls/{callId}/result", AGENTS_READ),
    get("/api/credits/audit", READ),
    // Workspace
    get("/api/credits/tenants", Demand::Person),
    get("/api/credits/tenants/me", READ),
    patch("/api/credits/tenants/me", SETTINGS, Effect::Manage),
    get("/api/credits/tenants/me/settings", READ),
    put("/api/credits/tenants/me/settings", SETTINGS, Effect::Manage),
    get("/api/credits/tenants/me/members", MEMBERS),
    put("/api/credits/tenants/me/members/{subject}", guarded(Scope::MembersManage), Effect::Manage),
    delete("/api/credits/tenants/me/members/{subject}", guarded(Scope::MembersManage), Effect::Manage),
    get("/api/credits/tenants/me/invitations", MEMBERS),
    post("/api/credits/tenants/me/invitations", guarded(Scope::MembersManage), Effect::Manage),
    delete("/api/credits/tenants/me/invitations/{invitationId}", MEMBERS, Effect::Manage),
    post("/api/credits/invitations/accept", Demand::Person, Effect::Manage),
    // Keys
    get("/api/credits/tenants/me/keys", CREDENTIALS),
    post("/api/credits/tenants/me/keys", administrator(Scope::CredentialsManage), Effect::Manage),
    get("/api/credits/tenants/me/keys/{keyId}", CREDENTIALS),
    delete("/api/credits/tenants/me/keys/{keyId}", CREDENTIALS, Effect::Manage),
    post("/api/credits/tenants/me/keys/{keyId}/rotate", administrator(Scope::CredentialsManage), Effect::Manage),
    put("/api/credits/tenants/me/keys/{keyId}/pricing", CATALOGUE, Effect::Manage),
    // Catalogue
    get("/api/credits/catalog", READ),
    put("/api/credits/catalog/{provider}", CATALOGUE, Effect::Manage),
    delete("/api/credits/catalog/{provider}", CATALOGUE, Effect::Manage),
    put("/api/credits/catalog/{provider}/{endpoint}", CATALOGUE, Effect::Manage),
    delete("/api/credits/catalog/{provider}/{endpoint}", CATALOGUE, Effect::Manage),
    // Pricing
    get("/api/credits/pricing", READ),
    get("/api/credits/pricing/explain", READ),
    get("/api/credits/pricing/history", READ),
    put("/api/credits/pricing/global", CATALOGUE, Effect::Manage),
    delete("/api/credits/pricing/global", CATALOGUE, Effect::Manage),
    put("/api/credits/pricing/providers/{provider}", CATALOGUE, Effect::Manage),
    delete("/api/credits/pricing/providers/{provider}", CATALOGUE, Effect::Manage),
    put("/api/credits/pricing/endpoints/{provider}/{endpoint}", CATALOGUE, Effect::Manage),
    delete("/api/credits/pricing/endpoints/{provider}/{endpoint}", CATALOGUE, Effect::Manage),
    // Tools
    post("/api/credits/tools/estimate", Demand::Caller, Effect::Read),
    delete("/api/credits/tools/estimate/{quoteId}", Demand::Caller, Effect::Manage),
    // Approvals
    get("/api/credits/approvals", READ),
    post("/api/credits/approvals", Demand::Caller, Effect::Manage),
    get("/api/credits/approvals/{approvalId}", READ),
    post("/api/credits/approvals/{approvalId}/approve", administrator(Scope::CreditsMove), Effect::Manage),
    post("/api/credits/approvals/{approvalId}/deny", administrator(Scope::CreditsMove), Effect::Manage),
    // Sessions
    post("/api/credits/step-up", session(Scope::TenantRead), Effect::Manage),
    post("/api/credits/sign-out", Demand::Person, Effect::Manage),
    // End users
    get("/api/credits/end-users", READ),
    get("/api/credits/end-users/{externalUserId}", READ),
    delete("/api/credits/end-users/{externalUserId}", administrator(Scope::CreditsMove), Effect::Manage),
    post("/api/credits/end-users/{externalUserId}/allocate", MOVES, Effect::Spend),
    post("/api/credits/end-users/{externalUserId}/deallocate", MOVES, Effect::Spend),
    get("/api/credits/end-users/{externalUserId}/policy", READ),
    put("/api/credits/end-users/{externalUserId}/policy", MOVES, Effect::Manage),
    post("/api/credits/end-users/{externalUserId}/freeze", STOPS, Effect::Manage),
    post("/api/credits/end-users/{externalUserId}/unfreeze", MOVES, Effect::Manage),
    post("/api/credits/end-users/{externalUserId}/tokens", TOKENS, Effect::Spend).with_own_limit(),
    delete("/api/credits/end-users/{externalUserId}/tokens", TOKENS, Effect::Manage),
    delete("/api/credits/end-users/{externalUserId}/tokens/{jti}", TOKENS, Effect::Manage),
    // Agent connections
    get("/api/credits/agent-connections", shared(Scope::TokensManage, Own::EndUser(TokenScope::Read))),
    post("/api/credits/agent-connections", guarded(Scope::TokensManage), Effect::Manage),
    get("/api/credits/agent-connections/{agentId}", shared(Scope::TokensManage, Own::EndUser(TokenScope::Read))),
    delete("/api/credits/agent-connections/{agentId}", shared(Scope::TokensManage, Own::EndUser(TokenScope::Spend)), Effect::Manage),
    // My account
    get("/api/credits/me", Demand::EndUser(TokenScope::Read)),
    get("/api/credits/me/balance", Demand::EndUser(TokenScope::Read)),
    post("/api/credits/me/topups", Demand::EndUser(TokenScope::Topup), Effect::TopUp),
    get("/api/credits/me/topups/{sessionId}", Demand::EndUser(TokenScope::Topup)),
    // Top-ups
    post("/api/credits/tenants/me/topups", MOVES, Effect::TopUp),
    get("/api/credits/topups", READ),
    get("/api/credits/topups/{sessionId}", READ),
    post("/api/credits/topups/{sessionId}/refunds", MOVES, Effect::Spend),
    get("/api/credits/tenants/me/auto-topup", READ),
    put("/api/credits/tenants/me/auto-topup", MOVES, Effect::Manage),
    post("/api/credits/processor/events", Demand::Signed, Effect::Manage),
    // Payouts
    get("/api/credits/payouts/account", PAYOUTS),
    put("/api/credits/payouts/stablecoin", member(Scope::PayoutsManage), Effect::PayOut),
    get("/api/credits/payouts", PAYOUTS),
    post("/api/credits/payouts", guarded(Scope::PayoutsManage), Effect::PayOut),
    get("/api/credits/payouts/{payoutId}", PAYOUTS),
    post("/api/credits/payouts/{payoutId}/cancel", PAYOUTS, Effect::Manage),
    post("/api/credits/connect/processor/start", member(Scope::PayoutsManage), Effect::PayOut),
    get("/api/credits/connect/processor/status", PAYOUTS),
    post("/api/credits/connect/processor/disconnect", administrator(Scope::PayoutsManage), Effect::Manage),
    // Webhooks
    get("/api/credits/webhooks/events", READ),
    get("/api/credits/webhooks/events/{eventId}", READ),
    post("/api/credits/webhooks/events/{eventId}/replay", CREDENTIALS, Effect::Manage),
    get("/api/credits/webhooks/endpoints", CREDENTIALS),
    post("/api/credits/webhooks/endpoints", SECRETS, Effect::Manage),
    get("/api/credits/webhooks/endpoints/{endpointId}", CREDENTIALS),
    patch("/api/credits/webhooks/endpoints/{endpointId}", SECRETS, Effect::Manage),
    delete("/api/credits/webhooks/endpoints/{endpointId}", CREDENTIALS, Effect::Manage),
    post("/api/credits/webhooks/endpoints/{endpointId}/rotate-secret", SECRETS, Effect::Manage),
    post("/api/credits/webhooks/endpoints/{endpointId}/test", CREDENTIALS, Effect::Manage),
    post("/api/credits/webhooks/endpoints/{endpointId}/replay", CREDENTIALS, Effect::Manage),
    // Pay per call: the payment is the credential
    post("/vendor/chat", Demand::Public, Effect::Spend),
    post("/vendor/fim", Demand::Public, Effect::Spend),
    post("/vendor/list-models", Demand::Public, Effect::Spend),
    get("/vendor/receipts/{receiptId}", Demand::Public),
    get("/vendor/openapi.json", Demand::Public),
    // Service
    get("/.well-known/oauth-authorization-server", Demand::Public),
    get("/.well-known/oauth-protected-resource", Demand::Public),
    get("/.well-known/oauth-protected-resource/api/credits/mcp", Demand::Public),
    get("/.well-known/jwks.json", Demand::Public),
    get("/identity/jwks.json", Demand::Public),
    get("/openapi.json", Demand::Public),
    get("/llms.txt", Demand::Public),
    get("/healthz", Demand::Public),
    get("/readyz", Demand::Public),
];

/// Every page; none of them is documented, and none looks at a credential of the API.
pub(crate) const PAGES: &[Rule] = &[
    get("/checkout/{session}", Demand::Public),
    post("/checkout/{session}/pay", Demand::Public, Effect::Manage),
    post("/checkout/{session}/decline", Demand::Public, Effect::Manage),
    get("/checkout/{session}/result", Demand::Public),
    get("/connect/done", Demand::Public),
    get("/connect/again", Demand::Public),
    get("/connect/{account}", Demand::Public),
    post("/connect/{account}", Demand::Public, Effect::Manage),
    get("/approve/{approval}", Demand::Public),
    post("/approve/{approval}", Demand::Public, Effect::Manage),
    get("/identity", Demand::Public),
    get("/identity/join", Demand::Public),
    post("/identity/join", Demand::Public, Effect::Manage),
    post("/identity/accept", Demand::Public, Effect::Manage),
    get("/identity/reset", Demand::Public),
    post("/identity/reset", Demand::Public, Effect::Manage),
    post("/identity/enrolment", Demand::Public, Effect::Manage),
    get("/identity/sign-in", Demand::Public),
    post("/identity/sign-in", Demand::Public, Effect::Manage),
    post("/identity/sign-in/code", Demand::Public, Effect::Manage),
    get("/identity/step-up", Demand::Public),
    post("/identity/step-up", Demand::Public, Effect::Manage),
    get("/identity/recovery-codes", Demand::Public),
    post("/identity/recovery-codes", Demand::Public, Effect::Manage),
    post("/identity/sign-out", Demand::Public, Effect::Manage),
    get("/identity/authorize", Demand::Public),
    post("/identity/authorize", Demand::Public, Effect::Manage),
    get("/oauth/authorize", Demand::Public),
    post("/oauth/register", Demand::Public, Effect::Manage),
    post("/oauth/token", Demand::Public, Effect::Manage),
    post("/oauth/revoke", Demand::Public, Effect::Manage),
    get(crate::pages::STYLESHEET_PATH, Demand::Public),
    get(crate::pages::ICON_PATH, Demand::Public),
];
