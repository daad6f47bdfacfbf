//! Workspaces, members, end users, prices.

use turnpike_core::access::Role;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::policy::Policy;
use turnpike_core::ledger::{Action, Payer, Rejection, TenantStatus};
use turnpike_core::money::CreditsPerDollar;
use turnpike_store::{Member, StoreError, Tenant, TenantSettings};

use crate::actions::{audit_row, external, grant, limits, new_hold, usd, user};
use crate::calls::rejection;
use crate::world::{NOW, World, next_id};

pub(crate) fn tenant(name: &str) -> Tenant {
    Tenant {
        id: TenantId(next_id()),
        name: name.to_owned(),
        status: TenantStatus::Active,
        credits_per_dollar: CreditsPerDollar::default(),
        settings: TenantSettings::default(),
        created_at: NOW,
    }
}

pub(crate) async fn workspaces_are_added_listed_and_changed(world: &World) {
    let mut made = Vec::new();
    for name in ["beta", "Alpha", "alpha", "Zeta"] {
        let tenant = tenant(name);
        world
            .store
            .insert_tenant(&tenant, &audit_row(tenant.id))
            .await
            .unwrap();
        made.push(tenant);
    }
    let again = world.store.insert_tenant(&made[0], &audit_row(made[0].id)).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists)), "{again:?}");
    let listed = world.store.list_tenants().await.unwrap();
    assert_eq!(
        listed.iter().map(|tenant| &*tenant.name).collect::<Vec<_>>(),
        ["Alpha", "Zeta", "alpha", "beta"]
    );

    let id = made[0].id;
    world.run(id, grant(&Payer::Pool, 100)).await.unwrap();
    assert!(
        world
            .store
            .set_tenant_status(id, TenantStatus::Suspended, &audit_row(id))
            .await
            .unwrap()
    );
    // Seen by the very next command, also by a store that keeps rows.
    let refused = world
        .run(id, Action::Hold(Box::new(new_hold(&Payer::Pool, 1))))
        .await;
    assert_eq!(
        rejection(refused),
        Rejection::TenantNotActive(TenantStatus::Suspended)
    );
    let settings = TenantSettings {
        require_idempotency_key: Some(true),
        ..TenantSettings::default()
    };
    let read = world.store.find_settings(id).await.unwrap().unwrap();
    assert!(
        world
            .store
            .replace_settings(id, &read, &settings, &[audit_row(id)])
            .await
            .unwrap()
    );
    let found = world.store.find_tenant(id).await.unwrap().unwrap();
    assert_eq!(
        (found.status, found.settings, &*found.name),
        (TenantStatus::Suspended, settings, "beta")
    );
    assert!(
        world
            .store
            .set_tenant_status(id, TenantStatus::Active, &audit_row(id))
            .await
            .unwrap()
    );
    world
        .run(id, Action::Hold(Box::new(new_hold(&Payer::Pool, 1))))
        .await
        .unwrap();

    let nobody = TenantId(next_id());
    assert!(world.store.find_tenant(nobody).await.unwrap().is_none());
    assert!(
        !world
            .store
            .set_tenant_status(nobody, TenantStatus::Active, &audit_row(nobody))
            .await
            .unwrap()
    );
    assert!(
        !world
            .store
            .replace_settings(nobody, &read, &TenantSettings::default(), &[audit_row(nobody)])
            .await
            .unwrap()
    );
    world.store.ping().await.unwrap();
}

pub(crate) async fn a_change_and_its_audit_row_are_one(world: &World) {
    let id = world.tenant().await;
    let row = audit_row(id);
    assert!(
        world
            .store
            .set_tenant_status(id, TenantStatus::Frozen, &row)
            .await
            .unwrap()
    );
    let count = async || {
        world
            .sql("SELECT CAST(COUNT(*) AS TEXT) FROM audit_log")
            .await
            .unwrap()
            .unwrap()
    };
    assert_eq!(count().await, "2");
    // The audit row cannot be written, so neither is the change.
    let failed = world
        .store
        .set_tenant_status(id, TenantStatus::Active, &row)
        .await;
    assert!(matches!(failed, Err(StoreError::AlreadyExists)), "{failed:?}");
    assert_eq!(
        world.store.find_tenant(id).await.unwrap().unwrap().status,
        TenantStatus::Frozen
    );
    // Nothing is changed, so no audit row is written.
    assert!(
        !world
            .store
            .remove_member(id, "nobody", &audit_row(id))
            .await
            .unwrap()
    );
    assert_eq!(count().await, "2");
}

pub(crate) async fn members_come_change_and_go(world: &World) {
    let (one, two) = (world.tenant().await, world.tenant().await);
    let put = async |tenant, subject: &str, role| {
        let member = Member {
            tenant,
            subject: subject.to_owned(),
            role,
            created_at: NOW,
        };
        world.store.put_member(&member, &audit_row(tenant)).await.unwrap();
    };
    put(one, "bob", Role::Developer).await;
    put(one, "Bob", Role::Admin).await;
    put(two, "bob", Role::Owner).await;
    put(one, "bob", Role::Admin).await;
    let of = async |tenant| {
        let members = world.store.list_members(tenant).await.unwrap();
        members
            .into_iter()
            .map(|member| (member.subject, member.role))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(one).await,
        [("Bob".to_owned(), Role::Admin), ("bob".to_owned(), Role::Admin)]
    );
    let mut memberships = world.store.list_memberships("bob").await.unwrap();
    memberships.sort_by_key(|member| member.tenant);
    assert_eq!(
        memberships.iter().map(|member| member.tenant).collect::<Vec<_>>(),
        [one, two]
    );
    assert!(
        world
            .store
            .remove_member(one, "bob", &audit_row(one))
            .await
            .unwrap()
    );
    assert!(
        !world
            .store
            .remove_member(one, "bob", &audit_row(one))
            .await
            .unwrap()
    );
    assert_eq!((of(one).await.len(), of(two).await.len()), (1, 1));
}

pub(crate) async fn limits_are_set_and_hold_for_the_next_call(world: &World) {
    let tenant = world.tenant().await;
    let alice = external("alice");
    let policy = Policy {
        max_usd_per_call: Some(usd(10)),
        ..Policy::default()
    };
    world.run(tenant, grant(&user("alice"), 1_000)).await.unwrap();
    let hold = async |micros| {
        world
            .run(tenant, Action::Hold(Box::new(new_hold(&user("alice"), micros))))
            .await
    };
    hold(11).await.unwrap();
    world.run(tenant, limits("alice", &policy)).await.unwrap();
    assert!(matches!(
        rejection(hold(11).await),
        Rejection::SpendLimitExceeded { .. }
    ));
    hold(10).await.unwrap();
    // Money that arrives leaves the limits alone.
    world.run(tenant, grant(&user("alice"), 1_000)).await.unwrap();
    let found = world.store.find_end_user(tenant, &alice).await.unwrap().unwrap();
    assert_eq!(
        (&*found.policy, found.retired, found.created_at),
        (&policy, false, NOW)
    );
    assert!(
        world
            .store
            .find_end_user(tenant, &external("bob"))
            .await
            .unwrap()
            .is_none()
    );
}
