//! An endpoint comes into use while events are written and fanned out: it is told of every one from then on.
//!
//! The moment between what the store reads of the workspace's position and its commit is held open: the audit row that
//! it writes last is there already, in a transaction that has not ended. On SQLite there is no such moment: one thread
//! writes.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use turnpike_core::ids::{TenantId, WebhookEndpointId};
use turnpike_core::webhook::EventMask;
use turnpike_store::{AuditRow, EndpointChange, Store};

use crate::actions::audit_row;
use crate::webhooks::{add, deliveries, endpoint, fan_out_plan, set_enabled, two_events};
use crate::world::{Kind, NOW, World, on};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_enabled_is_not_passed() {
    on(Kind::Postgres, async |world: &World| {
        let tenant = world.tenant().await;
        let id = add(world, tenant, EventMask::ALL).await;
        assert!(set_enabled(&*world.store, tenant, id, false).await);
        cancel(world, tenant, id).await;
        let (store, audit) = (world.store.clone(), audit_row(tenant));
        let held = audit.clone();
        let enabling = async move {
            let change = EndpointChange {
                enabled: Some(true),
                ..EndpointChange::default()
            };
            let changed = store.change_webhook_endpoint(tenant, id, &change, &audit).await;
            assert!(changed.unwrap());
        };
        let seqs = told_beside(world, &held, id, enabling).await;
        assert_eq!(seqs, [1, 2]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_one_that_is_added_is_not_passed() {
    on(Kind::Postgres, async |world: &World| {
        let tenant = world.tenant().await;
        // There was one before: the workspace has a cursor, and nobody who is told.
        let former = add(world, tenant, EventMask::ALL).await;
        let audit = audit_row(tenant);
        assert!(
            world
                .store
                .delete_webhook_endpoint(tenant, former, &audit)
                .await
                .unwrap()
        );
        cancel(world, tenant, former).await;
        let (store, new) = (world.store.clone(), endpoint(tenant, EventMask::ALL));
        let (id, audit) = (new.id, audit_row(tenant));
        let held = audit.clone();
        let adding = async move {
            assert!(store.insert_webhook_endpoint(&new, 100, &audit).await.unwrap());
        };
        let seqs = told_beside(world, &held, id, adding).await;
        assert_eq!(seqs, [1, 2]);
    })
    .await;
}

async fn cancel(world: &World, tenant: TenantId, id: WebhookEndpointId) {
    world.store.cancel_deliveries(tenant, id, NOW, 100).await.unwrap();
}

/// Begins `change`, which writes `audit`, holds it there, writes two events and fans them out; the events that endpoint
/// `id` is told of in the end.
async fn told_beside(
    world: &World,
    audit: &AuditRow,
    id: WebhookEndpointId,
    change: impl Future<Output = ()> + Send + 'static,
) -> Vec<i64> {
    let (blocker, connection) = tokio_postgres::connect(world.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let (watcher, connection) = tokio_postgres::connect(world.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let tenant = audit.tenant;
    let same_key = format!(
        "BEGIN; INSERT INTO audit_log (bucket, tenant_id, id, at, actor, action, target, origin, seq, hash)
         VALUES ({}, '{tenant}', '{}', 0, '', '', '', '', -1, '')",
        tenant.bucket(),
        audit.id
    );
    blocker.batch_execute(&same_key).await.unwrap();
    let changing = tokio::spawn(change);
    waiting(&watcher, 1).await;
    let store: Arc<dyn Store> = world.store.clone();
    let fanning = tokio::spawn(async move { store.fan_out(fan_out_plan(100)).await.unwrap() });
    // Events wait for whoever comes into use: had they gone past, they would be lost to the endpoint.
    let both = async {
        tokio::join!(two_events(world, tenant), async {
            waiting(&watcher, 2).await;
            blocker.batch_execute("ROLLBACK").await.unwrap();
        })
    };
    both.await;
    changing.await.unwrap();
    fanning.await.unwrap();
    while world.store.fan_out(fan_out_plan(100)).await.unwrap().more {}
    let mut seqs = Vec::new();
    for seq in 1..=2 {
        let rows = deliveries(world, tenant, seq).await;
        seqs.extend(
            rows.iter()
                .filter(|row| row.endpoint == id)
                .map(|row| row.event_seq),
        );
    }
    seqs
}

/// Waits until so many transactions of the store wait for a lock: then the moment is reached.
pub(super) async fn waiting(watcher: &Client, count: i64) {
    let sql = "SELECT COUNT(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for _ in 0..300 {
        let found: i64 = watcher.query_one(sql, &[]).await.unwrap().get(0);
        if found >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{count} transactions should wait for a lock");
}
