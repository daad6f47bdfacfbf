//! The connection breaks at COMMIT.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use turnpike_core::ledger::{Action, Outcome, Payer};
use turnpike_store::{Ledger as _, PostgresOptions, PostgresStore, Statements as _, Upkeep as _};

use super::proxy::{Cut, LATE, Proxy};
use crate::actions::{capture, command, grant, new_hold, usd};
use crate::paid_calls::{self, claims, finishes, new_call, settled};
use crate::world::{Database, add_tenant, all_transfers, check_books};

/// A store that reaches its database through a proxy.
async fn behind_proxy(database: &Database) -> (Proxy, PostgresStore) {
    let server = database.url.split_once('@').unwrap().1.split_once('/').unwrap().0;
    let proxy = Proxy::start(server.to_owned()).await;
    let url = database.url.replace(server, &format!("127.0.0.1:{}", proxy.port));
    let mut options = PostgresOptions::new(url);
    options.lanes = 1;
    (proxy, PostgresStore::connect(options).await.unwrap())
}

/// Twenty calls are captured, ten grants made, ten settlements told of and ten payments claimed at once, and the first
/// COMMIT suffers `cut`. A capture that is run twice changes nothing the second time; the others show it.
async fn cut_at_commit(cut: Cut) -> Duration {
    let database = Database::create().await;
    let (proxy, store) = behind_proxy(&database).await;
    let tenant = add_tenant(&store).await;
    store
        .submit(command(tenant, grant(&Payer::Pool, 100_000)))
        .await
        .unwrap();
    let holds: Vec<_> = (0..20).map(|_| new_hold(&Payer::Pool, 100)).collect();
    let taken = holds
        .iter()
        .map(|hold| store.submit(command(tenant, Action::Hold(Box::new(hold.clone())))));
    assert!(join_all(taken).await.iter().all(Result::is_ok));
    let public = paid_calls::house(&store).await;
    let paid: Vec<_> = (0..10).map(|n| new_call(&format!("exact:{n}"))).collect();
    for call in &paid {
        for action in [claims(call), finishes(call, 60, 10)] {
            store.submit(command(public, action)).await.unwrap();
        }
    }
    assert_eq!(proxy.cuts(), 0);
    proxy.arm(cut);
    let began = Instant::now();
    let captures = holds.iter().map(|hold| capture(hold, 60, 10));
    let grants = (0..10).map(|_| grant(&Payer::Pool, 5));
    let reports = paid
        .iter()
        .map(|call| (public, paid_calls::told(call, settled(70))));
    let fresh: Vec<_> = (10..20).map(|n| new_call(&format!("exact:{n}"))).collect();
    let claimed = fresh.iter().map(|call| (public, claims(call)));
    let commands = grants
        .chain(captures)
        .map(|action| (tenant, action))
        .chain(reports)
        .chain(claimed)
        .map(|(tenant, action)| store.submit(command(tenant, action)));
    let results = join_all(commands).await;
    let took = began.elapsed();
    assert_eq!(proxy.cuts(), 1, "the fault was not reached");
    for result in results {
        assert!(
            matches!(
                result,
                Ok(Outcome::Captured { .. }
                    | Outcome::Granted { .. }
                    | Outcome::PaidCall { changed: true, .. })
            ),
            "{result:?}"
        );
    }
    // Two transfers for each charge and one for each grant, once.
    assert_eq!(all_transfers(&store, tenant).await.len(), 1 + 40 + 10);
    assert_eq!(all_transfers(&store, public).await.len(), 20);
    let pool = store
        .find_account(&Payer::Pool.account(tenant))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(pool.posted, usd(100_000 + 50 - 1_400));
    check_books(&store).await;
    store.close().await;
    database.remove().await;
    took
}

// Fault matrix 202
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_commit_is_read_back() {
    cut_at_commit(Cut::Answer).await;
}

// Fault matrix 202
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_run_again() {
    cut_at_commit(Cut::Request).await;
}

// Fault matrix 202: the connection is gone and the transaction is not; running the batch again would charge twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_late_is_waited_for() {
    assert!(cut_at_commit(Cut::Late).await >= LATE);
}
