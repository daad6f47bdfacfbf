//! Settings change only as they were read.

use futures_util::future::join_all;
use turnpike_core::ids::TenantId;
use turnpike_core::money::Micros;
use turnpike_store::{AuditFilter, TenantSettings};

use crate::actions::audit_row;
use crate::world::World;

/// Reads, changes and writes until nobody came between.
async fn change(world: &World, tenant: TenantId, change: impl Fn(&mut TenantSettings)) {
    loop {
        let read = world.store.find_settings(tenant).await.unwrap().unwrap();
        let mut settings = read.settings.clone();
        change(&mut settings);
        let audits = [audit_row(tenant), audit_row(tenant)];
        let replaced = world.store.replace_settings(tenant, &read, &settings, &audits);
        if replaced.await.unwrap() {
            return;
        }
    }
}

pub(crate) async fn twenty_edits_at_once_lose_nothing(world: &World) {
    let tenant = world.tenant().await;
    let edits = (0..20).map(|number: u32| {
        change(world, tenant, move |settings| {
            settings.catalog.insert(format!("up/{number}"), false);
            settings.pricing.global.markup_bps = Some(settings.pricing.global.markup_bps.unwrap_or(0) + 1);
        })
    });
    join_all(edits).await;
    let found = world.store.find_settings(tenant).await.unwrap().unwrap().settings;
    assert_eq!(found.catalog.len(), 20);
    assert_eq!(found.pricing.global.markup_bps, Some(20));
    let filter = AuditFilter {
        actions: vec!["test".to_owned()],
        limit: 100,
        ..AuditFilter::default()
    };
    let noted = world.store.list_audit(tenant, &filter).await.unwrap();
    assert_eq!(noted.len(), 41, "two for each edit, and the workspace's own");
}

pub(crate) async fn what_was_not_read_is_not_replaced(world: &World) {
    let tenant = world.tenant().await;
    let read = world.store.find_settings(tenant).await.unwrap().unwrap();
    change(world, tenant, |settings| {
        settings.low_balance.pool_usd = Some(Micros::new(5));
    })
    .await;
    let other = TenantSettings::default();
    let audits = [audit_row(tenant)];
    let replaced = world.store.replace_settings(tenant, &read, &other, &audits);
    assert!(!replaced.await.unwrap());
    let found = world.store.find_settings(tenant).await.unwrap().unwrap().settings;
    assert_eq!(found.low_balance.pool_usd, Some(Micros::new(5)));
}
