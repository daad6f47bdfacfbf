//! Workspaces, members, end users, prices.

use turnpike_core::access::Role;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::policy::Policy;
use turnpike_core::ledger::{Action, Payer, Rejection, TenantStatus};
use turnpike_core::money::CreditsPerDollar;
use turnpike_store::{MemberChange, StoreError, Tenant, TenantSettings};

use crate::actions::{audit_row, external, grant, joins, limits, new_hold, usd, user};
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
    let nobody = MemberChange {
        from: Some(Role::Viewer),
        to: None,
        ..joins(id, "nobody", Role::Viewer)
    };
    assert!(!world.store.change_member(&nobody, &audit_row(id)).await.unwrap());
    assert_eq!(count().await, "2");
}

pub(crate) async fn members_come_change_and_go(world: &World) {
    let (one, two) = (world.tenant().await, world.tenant().await);
    let change = async |tenant, subject: &str, from, to| {
        let change = MemberChange {
            from,
            to,
            ..joins(tenant, subject, Role::Viewer)
        };
        world
            .store
            .change_member(&change, &audit_row(tenant))
            .await
            .unwrap()
    };
    assert!(change(one, "bob", None, Some(Role::Developer)).await);
    assert!(change(one, "Bob", None, Some(Role::Admin)).await);
    assert!(change(two, "bob", None, Some(Role::Owner)).await);
    assert!(change(one, "bob", Some(Role::Developer), Some(Role::Admin)).await);
    // What is not as it is said to be stays.
    assert!(!change(one, "bob", None, Some(Role::Owner)).await);
    assert!(!change(one, "bob", Some(Role::Developer), Some(Role::Owner)).await);
    assert!(!change(one, "bob", Some(Role::Developer), None).await);
    assert!(!change(one, "nobody", None, None).await);
    let of = async |tenant| {
        let members = world.store.list_members(tenant).await.unwrap();
        let of = members.into_iter().map(|member| (member.subject, member.role));
        of.collect::<Vec<_>>()
    };
    let both = [("Bob".to_owned(), Role::Admin), ("bob".to_owned(), Role::Admin)];
    assert_eq!(of(one).await, both);
    let memberships = world.store.list_memberships("bob").await.unwrap();
    let mut tenants: Vec<_> = memberships.iter().map(|(member, _)| member.tenant).collect();
    assert!(
        memberships
            .iter()
            .all(|(member, tenant)| member.tenant == tenant.id)
    );
    tenants.sort_unstable();
    assert_eq!(tenants, [one, two]);
    // The last owner stays one.
    assert!(!change(two, "bob", Some(Role::Owner), None).await);
    assert!(!change(two, "bob", Some(Role::Owner), Some(Role::Admin)).await);
    assert!(change(two, "eve", None, Some(Role::Owner)).await);
    assert!(change(two, "bob", Some(Role::Owner), Some(Role::Admin)).await);
    assert!(!change(two, "eve", Some(Role::Owner), None).await);
    assert!(change(one, "bob", Some(Role::Admin), None).await);
    assert!(!change(one, "bob", Some(Role::Admin), None).await);
    assert_eq!((of(one).await.len(), of(two).await.len()), (1, 2));
}

/// Two owners remove each other, again and again: one of them always stays.
pub(crate) async fn two_owners_cannot_remove_each_other(world: &World) {
    let other = world
        .second()
        .await
        .unwrap_or_else(|_one_only| world.store.clone());
    for _ in 0..30 {
        let tenant = world.tenant().await;
        for subject in ["a", "b"] {
            let change = joins(tenant, subject, Role::Owner);
            assert!(
                world
                    .store
                    .change_member(&change, &audit_row(tenant))
                    .await
                    .unwrap()
            );
        }
        let leave = |subject| MemberChange {
            from: Some(Role::Owner),
            to: None,
            ..joins(tenant, subject, Role::Owner)
        };
        let (one, two) = (leave("a"), leave("b"));
        let (row, other_row) = (audit_row(tenant), audit_row(tenant));
        let (one, two) = tokio::join!(
            world.store.change_member(&one, &row),
            other.change_member(&two, &other_row)
        );
        assert!(one.unwrap() != two.unwrap());
        assert_eq!(world.store.list_members(tenant).await.unwrap().len(), 1);
    }
    if !std::sync::Arc::ptr_eq(&world.store, &other) {
        other.close().await;
    }
}

pub(crate) async fn what_credits_mean_is_fixed_by_the_first_entry(world: &World) {
    let id = world.tenant().await;
    let rate = |value| CreditsPerDollar::try_from(value).unwrap();
    let set = async |name: &str, value| {
        let before = world.store.find_tenant(id).await.unwrap().unwrap();
        let after = Tenant {
            name: name.to_owned(),
            credits_per_dollar: rate(value),
            ..before.clone()
        };
        let set = world
            .store
            .set_tenant_profile(&before, &after, &audit_row(id))
            .await
            .unwrap();
        // Whoever read the same before is overtaken.
        let again = world
            .store
            .set_tenant_profile(&before, &after, &audit_row(id))
            .await
            .unwrap();
        assert!(!again);
        set
    };
    assert!(set("one", 100).await);
    world.run(id, grant(&Payer::Pool, 100)).await.unwrap();
    assert!(!set("two", 200).await);
    assert!(set("two", 100).await);
    let found = world.store.find_tenant(id).await.unwrap().unwrap();
    assert_eq!((&*found.name, found.credits_per_dollar), ("two", rate(100)));
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
