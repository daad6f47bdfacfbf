//! What tests of use cases stand on: a clock that they set, and a workspace with its people and keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use turnpike_core::access::{KeyHash, KeyKind, Role};
use turnpike_core::ids::{KeyId, TenantId};
use turnpike_core::ledger::TenantStatus;
use turnpike_core::money::CreditsPerDollar;
use turnpike_core::time::Timestamp;
use turnpike_store::{
    ApiKey, AuditRow, Directory as _, KeyPricing, MemberChange, Members as _, MemoryStore, Tenant,
    TenantSettings,
};
use uuid::Uuid;

use crate::auth::{Actor, ActorCredential};
use crate::environment::Environment;

/// A clock that the test sets, ids in a row, and never the same random bytes twice.
pub(crate) struct Clock {
    now: AtomicI64,
    ids: AtomicU64,
}

impl Clock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            now: AtomicI64::new(1_800_000_000_000),
            ids: AtomicU64::new(1),
        })
    }

    /// Time goes by.
    pub(crate) fn pass(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Environment for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::Relaxed))
    }

    fn new_id(&self) -> Uuid {
        Uuid::from_u64_pair(0x7000, self.ids.fetch_add(1, Ordering::Relaxed))
    }

    fn random_32(&self) -> [u8; 32] {
        let mut bytes = [7; 32];
        let id = self.ids.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        bytes[..8].copy_from_slice(&id);
        bytes
    }
}

/// A workspace that the store knows.
pub(crate) async fn tenant(store: &MemoryStore, clock: &Clock) -> Tenant {
    let tenant = Tenant {
        id: TenantId(clock.new_id()),
        name: "Tests".to_owned(),
        status: TenantStatus::Active,
        credits_per_dollar: CreditsPerDollar::default(),
        settings: TenantSettings::default(),
        created_at: clock.now(),
    };
    store
        .insert_tenant(&tenant, &audit(&tenant, clock))
        .await
        .unwrap();
    tenant
}

fn audit(tenant: &Tenant, clock: &Clock) -> AuditRow {
    AuditRow {
        id: clock.new_id(),
        tenant: tenant.id,
        at: clock.now(),
        actor: "test".to_owned(),
        action: "test",
        target: "test".to_owned(),
        before: None,
        after: None,
        origin: "test".to_owned(),
    }
}

/// Makes [`member`] a member that the store knows.
pub(crate) async fn join(store: &MemoryStore, tenant: &Tenant, role: Role, clock: &Clock) {
    let change = MemberChange {
        tenant: tenant.id,
        subject: role.as_str().to_owned(),
        from: None,
        to: Some(role),
        at: clock.now(),
    };
    let joined = store.change_member(&change, &audit(tenant, clock)).await;
    assert!(joined.unwrap());
}

/// A member of a workspace.
pub(crate) fn member(tenant: &Tenant, role: Role) -> Actor {
    Actor {
        tenant: Arc::new(tenant.clone()),
        credential: ActorCredential::Member {
            subject: role.as_str().into(),
            role,
        },
        origin: "test".into(),
    }
}

/// A secret key of a workspace, which no store knows.
pub(crate) fn secret_key(tenant: &Tenant, clock: &Clock, pricing: KeyPricing) -> ApiKey {
    ApiKey {
        id: KeyId(clock.new_id()),
        tenant: tenant.id,
        kind: KeyKind::Secret,
        name: "server".to_owned(),
        prefix: "svc_sk_live_abcd".to_owned(),
        hash: KeyHash([1; 32]),
        scopes: Vec::new(),
        pricing,
        tools: None,
        created_at: clock.now(),
        created_by: "test".to_owned(),
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
    }
}
