//! A transaction that PostgreSQL rolls back, because it and another wait for each other, is run again.

use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use turnpike_core::webhook::EventMask;

use super::coming_into_use::waiting;
use crate::webhooks::{add, deliveries, fan_out_plan, report, take, two_events};
use crate::world::{Kind, NOW, World, on};

async fn client(world: &World) -> Client {
    let (client, connection) = tokio_postgres::connect(world.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_others_stand_in_a_circle_with_is_run_again() {
    on(Kind::Postgres, async |world: &World| {
        let tenant = world.tenant().await;
        add(world, tenant, EventMask::ALL).await;
        two_events(world, tenant).await;
        while world.store.fan_out(fan_out_plan(100)).await.unwrap().more {}
        let (claim, taken) = take(&*world.store, NOW, 10).await;
        let reports: Vec<_> = taken.iter().map(|d| report(d, claim, true, NOW)).collect();
        let lock = |seq: i64| {
            format!(
                "SELECT 1 FROM webhook_deliveries WHERE tenant_id = '{tenant}' AND event_seq = {seq} FOR UPDATE"
            )
        };
        let (blocker, watcher) = (client(world).await, client(world).await);
        // Whoever looks for a circle first is rolled back.
        let begin = format!(
            "SET deadlock_timeout = '1min'; BEGIN; {}",
            lock(reports[1].event_seq)
        );
        blocker.batch_execute(&begin).await.unwrap();
        let store = world.store.clone();
        let recording = tokio::spawn(async move { store.record_deliveries(&reports).await });
        waiting(&watcher, 1).await;
        let first = taken[0].event.seq;
        blocker.batch_execute(&lock(first)).await.unwrap();
        blocker.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(recording.await.unwrap().unwrap(), 2);
        for delivery in &taken {
            let rows = deliveries(world, tenant, delivery.event.seq).await;
            assert_eq!((rows.len(), rows[0].status.as_str()), (1, "succeeded"));
        }
        let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        for _ in 0..100 {
            if watcher.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("nobody was rolled back");
    })
    .await;
}
