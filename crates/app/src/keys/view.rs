//! What may be shown of a key.

use serde_json::{Value, json};
use turnpike_core::time::Timestamp;
use turnpike_store::ApiKey;

/// `keyMetadata` of decisions, section 3, as it is at `now`.
pub(crate) fn key_view(key: &ApiKey, now: Timestamp) -> Value {
    let status = match (key.revoked_at, key.works(now)) {
        (Some(_), _) => "revoked",
        (None, true) => "active",
        (None, false) => "expired",
    };
    json!({
        "id": key.id, "name": key.name, "kind": key.kind, "keyPrefix": key.prefix, "scopes": key.scopes,
        "pricing": key.pricing, "tools": key.tools.as_ref().map(|enable| json!({ "enable": enable })),
        "status": status, "createdAt": key.created_at, "createdBy": key.created_by,
        "expiresAt": key.expires_at, "lastUsedAt": key.last_used_at, "revokedAt": key.revoked_at,
    })
}
