//! Keys over an in-memory store: who may give what, and what becomes of a key that is replaced.

use serde_json::json;
use turnpike_core::access::{KeyKind, KeyPepper, Role};
use turnpike_store::{Keys as _, MemoryStore, Tenant};

use super::*;
use crate::testing::{self, Clock};

struct Bench {
    clock: Arc<Clock>,
    store: Arc<MemoryStore>,
    tenant: Tenant,
    desk: KeyDesk,
}

impl Bench {
    async fn new() -> Self {
        let (clock, store) = (Clock::new(), Arc::new(MemoryStore::new()));
        let tenant = testing::tenant(&store, &clock).await;
        let pepper = KeyPepper::new(b"pepper");
        let issuer = KeyIssuer::new(store.clone(), clock.clone(), pepper, "svc".into());
        let shelf = Arc::new(Shelf::new(Vec::new()));
        Self {
            desk: KeyDesk::new(store.clone(), clock.clone(), issuer, shelf),
            clock,
            store,
            tenant,
        }
    }

    async fn create(&self, role: Role, body: &Value) -> Result<Value, AppError> {
        let actor = testing::member(&self.tenant, role);
        self.desk.create(&actor, body.to_string().as_bytes()).await
    }

    async fn rotate(&self, id: KeyId, overlap: i64) -> Result<Value, AppError> {
        let owner = testing::member(&self.tenant, Role::Owner);
        let body = json!({ "overlapSeconds": overlap }).to_string();
        self.desk.rotate(&owner, id, body.as_bytes()).await
    }
}

fn id_of(answer: &Value) -> KeyId {
    answer["keyMetadata"]["id"].as_str().unwrap().parse().unwrap()
}

// Fault matrix 141
#[tokio::test]
async fn nobody_gives_a_scope_that_they_do_not_have() {
    let bench = Bench::new().await;
    let body = json!({ "name": "n", "scopes": ["tenant:write", "catalog:write"] });
    let refused = bench.create(Role::Developer, &body).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::ScopeEscalation);
    assert_eq!(
        (
            &refused.members["requiredScopes"],
            &refused.members["presentScopes"]
        ),
        (
            &json!(["catalog:write", "tenant:write"]),
            &json!(["catalog:write", "tenant:read", "tokens:manage", "widget:read"])
        )
    );
    let held = json!({ "name": "n", "scopes": ["tokens:manage", "catalog:write", "catalog:write"] });
    let made = bench.create(Role::Developer, &held).await.unwrap();
    assert_eq!(
        made["keyMetadata"]["scopes"],
        json!(["catalog:write", "tokens:manage"])
    );
    // A key with more cannot be replaced either: the new one would be the developer's.
    let made = bench.create(Role::Owner, &body).await.unwrap();
    let developer = testing::member(&bench.tenant, Role::Developer);
    let refused = bench
        .desk
        .rotate(&developer, id_of(&made), b"")
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::ScopeEscalation);
}

// Fault matrix 141
#[tokio::test]
async fn a_key_that_nobody_may_have_is_not_made() {
    let bench = Bench::new().await;
    let (unknown, wrong) = (ErrorCode::UnknownField, ErrorCode::ValidationError);
    let long = "x".repeat(101);
    for (body, code) in [
        (json!({}), wrong),
        (json!({ "name": "" }), wrong),
        (json!({ "name": long }), wrong),
        (json!({ "name": "a\nb" }), wrong),
        (json!({ "name": 1 }), wrong),
        (json!({ "name": "n", "kind": "root" }), wrong),
        (json!({ "name": "n", "kind": null }), wrong),
        (json!({ "name": "n", "scopes": ["tenant:all"] }), wrong),
        (json!({ "name": "n", "scopes": "tenant:read" }), wrong),
        (
            json!({ "name": "n", "kind": "sandbox", "scopes": ["widget:read"] }),
            wrong,
        ),
        (
            json!({ "name": "n", "kind": "publishable", "scopes": ["tenant:read"] }),
            wrong,
        ),
        (json!({ "name": "n", "expiresIn": 59 }), wrong),
        (json!({ "name": "n", "expiresIn": 31_536_001 }), wrong),
        (json!({ "name": "n", "expiresIn": "60" }), wrong),
        (json!({ "name": "n", "pricing": { "markupBps": 100_001 } }), wrong),
        (json!({ "name": "n", "pricing": { "flatMarkupUsdc": 1 } }), wrong),
        (
            json!({ "name": "n", "pricing": { "endpoints": { "p/t": { "markupBps": 1 } } } }),
            wrong,
        ),
        (json!({ "name": "n", "tools": { "enable": ["p/t"] } }), wrong),
        (json!({ "name": "n", "tools": { "enable": ["p/*"] } }), wrong),
        (json!({ "name": "n", "tools": ["p/t"] }), wrong),
        (json!({ "name": "n", "owner": true }), unknown),
        (json!({ "name": "n", "pricing": { "bps": 1 } }), unknown),
        (
            json!({ "name": "n", "pricing": { "endpoints": { "p/t": { "x": 1 } } } }),
            unknown,
        ),
        (json!({ "name": "n", "tools": { "disable": [] } }), unknown),
    ] {
        let refused = bench.create(Role::Owner, &body).await.unwrap_err();
        assert_eq!(refused.code, code, "{body}");
    }
    let all = bench
        .store
        .list_keys(bench.tenant.id, &KeyFilter::ALL)
        .await
        .unwrap();
    assert!(all.is_empty());
    for body in [
        json!({ "name": "x".repeat(100), "expiresIn": 60 }),
        json!({ "name": "é", "expiresIn": 31_536_000, "kind": "publishable", "scopes": ["widget:read"] }),
        json!({ "name": "n", "kind": "sandbox", "scopes": [], "tools": { "enable": [] }, "pricing": {} }),
    ] {
        bench.create(Role::Admin, &body).await.unwrap();
    }
}

#[tokio::test]
async fn a_replaced_key_ends_with_the_overlap_and_leaves_its_lifetime() {
    let bench = Bench::new().await;
    let body = json!({ "name": "n", "scopes": ["tenant:read"], "expiresIn": 100_000, "pricing": { "markupBps": 7 } });
    let old = bench.create(Role::Owner, &body).await.unwrap();
    bench.clock.pass(1_000);
    let new = bench.rotate(id_of(&old), 60).await.unwrap();
    assert_ne!(old["key"], new["key"]);
    let stored = async |answer: &Value| {
        let found = bench.store.find_key_by_id(bench.tenant.id, id_of(answer)).await;
        found.unwrap().unwrap()
    };
    let (was, is) = (stored(&old).await, stored(&new).await);
    assert_eq!(
        (&was.name, was.kind, &was.scopes, &was.pricing, &was.tools),
        (&is.name, is.kind, &is.scopes, &is.pricing, &is.tools)
    );
    assert_eq!(is.kind, KeyKind::Secret);
    assert_eq!(was.expires_at, Some(bench.clock.now().plus_millis(60_000)));
    assert_eq!(is.expires_at, Some(was.created_at.plus_millis(100_000_000)));
    // Once only: the second would have a day to live.
    let again = bench.rotate(id_of(&old), 60).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::AlreadyExists);
    bench.clock.pass(60_000);
    let ended = bench.rotate(id_of(&old), 60).await.unwrap_err();
    assert_eq!(ended.code, ErrorCode::ValidationError);
    // An overlap never makes a key live longer.
    let short = bench
        .create(Role::Owner, &json!({ "name": "n", "expiresIn": 60 }))
        .await
        .unwrap();
    bench.rotate(id_of(&short), 86_400).await.unwrap();
    let short = stored(&short).await;
    assert_eq!(short.expires_at, Some(short.created_at.plus_millis(60_000)));
    for overlap in [-1, 86_401] {
        let refused = bench.rotate(id_of(&new), overlap).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationError);
    }
}
