//! API keys: found, revoked, replaced, priced.

use turnpike_core::access::{KeyHash, KeyKind};
use turnpike_core::ids::{KeyId, TenantId};
use turnpike_store::{ApiKey, KeyFilter, KeyPricing, StoreError};

use crate::actions::audit_row;
use crate::world::{NOW, World, next_id};

pub(crate) fn key(tenant: TenantId, hash: u8) -> ApiKey {
    ApiKey {
        id: KeyId(next_id()),
        tenant,
        kind: KeyKind::Secret,
        name: "server".to_owned(),
        prefix: "tp_sk_live_abcd".to_owned(),
        hash: KeyHash([hash; 32]),
        scopes: Vec::new(),
        pricing: KeyPricing {
            markup_bps: Some(500),
            ..KeyPricing::default()
        },
        tools: Some(vec!["openai/*".to_owned()]),
        created_at: NOW.plus_millis(i64::from(hash)),
        created_by: "bob".to_owned(),
        expires_at: Some(NOW.plus_millis(1_000)),
        last_used_at: None,
        revoked_at: None,
    }
}

pub(crate) async fn keys_are_found_by_hash_and_revoked_once(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let (first, second) = (key(tenant, 1), key(tenant, 2));
    for key in [&first, &second] {
        world.store.insert_key(key, &[audit_row(tenant)]).await.unwrap();
    }
    let same_hash = world.store.insert_key(&key(other, 1), &[audit_row(other)]).await;
    assert!(
        matches!(same_hash, Err(StoreError::AlreadyExists)),
        "{same_hash:?}"
    );
    assert!(
        world
            .store
            .list_keys(other, &KeyFilter::ALL)
            .await
            .unwrap()
            .is_empty()
    );
    let found = world.store.find_key(&first.hash).await.unwrap().unwrap();
    assert_eq!(
        (found.id, found.tenant, found.pricing, found.tools),
        (first.id, tenant, first.pricing.clone(), first.tools.clone())
    );
    assert_eq!(
        (found.expires_at, found.last_used_at, found.revoked_at),
        (first.expires_at, None, None)
    );
    assert!(world.store.find_key(&KeyHash([9; 32])).await.unwrap().is_none());

    world
        .store
        .touch_keys(&[(tenant, first.id, NOW), (tenant, KeyId(next_id()), NOW)])
        .await
        .unwrap();
    assert!(
        !world
            .store
            .revoke_key(other, first.id, NOW, &audit_row(other))
            .await
            .unwrap()
    );
    assert!(
        world
            .store
            .revoke_key(tenant, first.id, NOW, &audit_row(tenant))
            .await
            .unwrap()
    );
    assert!(
        !world
            .store
            .revoke_key(tenant, first.id, NOW.plus_millis(9), &audit_row(tenant))
            .await
            .unwrap()
    );
    let found = world.store.find_key(&first.hash).await.unwrap().unwrap();
    assert_eq!((found.last_used_at, found.revoked_at), (Some(NOW), Some(NOW)));
    let listed = world.store.list_keys(tenant, &KeyFilter::ALL).await.unwrap();
    assert_eq!(
        listed.iter().map(|key| key.id).collect::<Vec<_>>(),
        [second.id, first.id]
    );
}

pub(crate) async fn a_key_is_replaced_once_and_never_lives_longer(world: &World) {
    let tenant = world.tenant().await;
    let replace = async |old: &ApiKey, new: &ApiKey, ms| {
        let audits = [audit_row(tenant), audit_row(tenant)];
        let until = NOW.plus_millis(ms);
        world
            .store
            .replace_key(old.id, until, new, &audits)
            .await
            .unwrap()
    };
    let works_until = async |key: &ApiKey| {
        let found = world.store.find_key_by_id(tenant, key.id).await.unwrap();
        found.unwrap().expires_at.map(|at| at.since(NOW))
    };
    let (mut endless, short, over) = (key(tenant, 1), key(tenant, 2), key(tenant, 3));
    endless.expires_at = None;
    for key in [&endless, &short, &over] {
        world.store.insert_key(key, &[audit_row(tenant)]).await.unwrap();
    }
    let (first, second, third) = (key(tenant, 11), key(tenant, 12), key(tenant, 13));
    assert!(replace(&endless, &first, 500).await);
    assert_eq!(works_until(&endless).await, Some(500));
    assert!(world.store.find_key(&first.hash).await.unwrap().is_some());
    // Twice at the same moment, and one of them would live a day.
    assert!(!replace(&endless, &second, 900).await);
    assert_eq!(works_until(&endless).await, Some(500));
    assert!(world.store.find_key(&second.hash).await.unwrap().is_none());
    assert!(
        world
            .store
            .find_key_by_id(tenant, second.id)
            .await
            .unwrap()
            .is_none()
    );
    assert!(replace(&short, &second, 5_000).await);
    assert_eq!(works_until(&short).await, Some(1_000));
    assert!(
        world
            .store
            .revoke_key(tenant, over.id, NOW, &audit_row(tenant))
            .await
            .unwrap()
    );
    assert!(!replace(&over, &third, 10).await);
    let mut late = key(tenant, 14);
    late.created_at = NOW.plus_millis(1_000);
    assert!(!replace(&first, &late, 2_000).await, "it has expired by then");
    let nobody = world.tenant().await;
    assert!(!replace(&third, &key(nobody, 15), 10).await);
}

pub(crate) async fn keys_are_paged_and_priced(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let mut keys = Vec::new();
    for number in 1..=5 {
        let mut key = key(tenant, number);
        if number % 2 == 0 {
            key.pricing = KeyPricing::default();
        }
        world.store.insert_key(&key, &[audit_row(tenant)]).await.unwrap();
        keys.insert(0, key.id);
    }
    let page = async |before, priced, limit| -> Vec<KeyId> {
        let filter = KeyFilter {
            before,
            priced,
            limit,
        };
        let found = world.store.list_keys(tenant, &filter).await.unwrap();
        found.iter().map(|key| key.id).collect()
    };
    assert_eq!(page(None, false, 2).await, keys[..2]);
    assert_eq!(page(Some(keys[1]), false, 9).await, keys[2..]);
    assert_eq!(page(None, true, 9).await, [keys[0], keys[2], keys[4]]);
    assert!(page(Some(keys[4]), false, 9).await.is_empty());
    let found = world
        .store
        .find_key_by_id(tenant, keys[0])
        .await
        .unwrap()
        .unwrap();
    let pricing = KeyPricing::default();
    let set = async |key: &ApiKey| {
        let audit = audit_row(key.tenant);
        world.store.set_key_pricing(key, &pricing, &audit).await.unwrap()
    };
    assert!(set(&found).await);
    assert!(!set(&found).await, "its prices are others now");
    let now = world
        .store
        .find_key_by_id(tenant, keys[0])
        .await
        .unwrap()
        .unwrap();
    assert_eq!(now.pricing, pricing);
    assert!(
        world
            .store
            .find_key_by_id(other, keys[0])
            .await
            .unwrap()
            .is_none()
    );
}
