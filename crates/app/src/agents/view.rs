//! What may be shown of an agent connection.

use serde_json::{Value, json};
use turnpike_core::time::Timestamp;
use turnpike_store::Agent;

/// A connection as it is at `now`.
pub(crate) fn agent_view(agent: &Agent, now: Timestamp) -> Value {
    let (connection, token) = (&agent.connection, &agent.token);
    let status = match (agent.revoked_at(), token.is_live(now)) {
        (Some(_), _) => "revoked",
        (None, true) => "active",
        (None, false) => "expired",
    };
    let names: Vec<&str> = connection.scopes.iter().map(|scope| scope.as_str()).collect();
    json!({
        "id": connection.id,
        "name": connection.name,
        "kind": if connection.grant.is_some() { "oauth" } else { "secret" },
        "externalUserId": connection.payer.external_user_id(),
        "secretPrefix": connection.secret.as_ref().map(|(_, prefix)| prefix),
        "clientId": connection.grant.as_ref().map(|(client, _)| client),
        "scopes": names,
        "tools": token.tools.as_ref().map(|enable| json!({ "enable": enable })),
        "maxUsd": token.max_spend,
        "maxUsdPerCall": token.max_per_call,
        "spentUsd": token.max_spend.map(|_counted| token.spent),
        "status": status,
        "createdAt": connection.created_at,
        "createdBy": connection.created_by,
        "expiresAt": connection.expires_at,
        "lastUsedAt": connection.last_used_at,
        "revokedAt": agent.revoked_at(),
    })
}
