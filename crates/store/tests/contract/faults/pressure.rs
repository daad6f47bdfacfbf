//! PostgreSQL is there and does not do what it should: rows are locked, connections are taken, values refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use turnpike_core::ledger::{Action, Outcome, Payer};
use turnpike_store::{
    Directory as _, Ledger as _, Members as _, PostgresOptions, PostgresStore, StoreError, SubmitError,
    Upkeep as _,
};

use crate::actions::{command, grant, new_hold};
use crate::world::{Database, add_tenant, check_books, sql};

// Fault matrix 22, 203: a row that somebody keeps locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_tenant_is_unavailable_in_bounded_time() {
    let database = Database::create().await;
    let store = PostgresStore::connect(PostgresOptions::new(&database.url))
        .await
        .unwrap();
    let tenant = add_tenant(&store).await;
    let (mut client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let lock = client.transaction().await.unwrap();
    assert_eq!(
        lock.query("SELECT 1 FROM tenants FOR UPDATE", &[])
            .await
            .unwrap()
            .len(),
        1
    );
    let began = Instant::now();
    let result = store.submit(command(tenant, grant(&Payer::Pool, 1))).await;
    assert!(
        matches!(&result, Err(SubmitError::Unavailable(reason)) if reason.contains("lock timeout")),
        "{result:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    lock.rollback().await.unwrap();
    store
        .submit(command(tenant, grant(&Payer::Pool, 1)))
        .await
        .unwrap();
    check_books(&store).await;
    store.close().await;
    database.remove().await;
}

// Fault matrix 203
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_pool_is_unavailable_within_the_acquire_timeout() {
    let database = Database::create().await;
    let mut options = PostgresOptions::new(&database.url);
    (options.read_pool, options.acquire_timeout) = (1, Duration::from_millis(300));
    let store = Arc::new(PostgresStore::connect(options).await.unwrap());
    let tenant = add_tenant(&*store).await;
    let (mut client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let lock = client.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE members").await.unwrap();
    let waiting = store.clone();
    let reader = tokio::spawn(async move { waiting.list_members(tenant).await });
    let blocked = "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while sql(&database.url, blocked).await.unwrap().as_deref() != Some("1") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let asked = Instant::now();
    let refused = store.find_tenant(tenant).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    // The ledger has its own connections.
    store
        .submit(command(tenant, grant(&Payer::Pool, 1)))
        .await
        .unwrap();
    lock.rollback().await.unwrap();
    assert!(reader.await.unwrap().unwrap().is_empty());
    store.find_tenant(tenant).await.unwrap().unwrap();
    store.close().await;
    database.remove().await;
}

// Fault matrix 152: PostgreSQL keeps no NUL in a text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_the_database_refuses_disturbs_no_neighbour() {
    let database = Database::create().await;
    let store = PostgresStore::connect(PostgresOptions::new(&database.url))
        .await
        .unwrap();
    let tenant = add_tenant(&store).await;
    store
        .submit(command(tenant, grant(&Payer::Pool, 1_000)))
        .await
        .unwrap();
    let holds = (0..20).map(|n| {
        let mut hold = new_hold(&Payer::Pool, 10);
        hold.subject.endpoint = if n == 7 { "a\0b".into() } else { "chat".into() };
        store.submit(command(tenant, Action::Hold(Box::new(hold))))
    });
    for (n, result) in join_all(holds).await.into_iter().enumerate() {
        if n == 7 {
            assert!(
                matches!(&result, Err(SubmitError::Unavailable(reason)) if reason.contains("22021")),
                "{result:?}"
            );
        } else {
            assert!(matches!(result, Ok(Outcome::Held(_))), "{result:?}");
        }
    }
    check_books(&store).await;
    store.close().await;
    database.remove().await;
}
