//! PostgreSQL crashes and comes back.

use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use turnpike_core::ids::TenantId;
use turnpike_core::ledger::{Action, HoldState, Payer};
use turnpike_store::{Calls as _, Ledger as _, PostgresOptions, PostgresStore, SubmitError, Upkeep as _};

use crate::actions::{capture, command, grant, new_hold, usd};
use crate::world::{Database, add_tenant, all_transfers, check_books, sql};

fn postgres_for_tests(arguments: &[&str]) -> String {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres-for-tests");
    let output = Process::new(script).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A cluster that this test may crash.
pub(super) struct Cluster {
    pub(super) url: String,
    pub(super) directory: String,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        let url = postgres_for_tests(&[]);
        let data = sql(&url, "SHOW data_directory").await.unwrap().unwrap();
        Self {
            url,
            directory: data.strip_suffix("/data").unwrap().to_owned(),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        postgres_for_tests(&["stop", &self.directory]);
    }
}

/// Holds and captures until it is told to stop; what was acknowledged, what was refused, what is unknown.
async fn load(store: Arc<PostgresStore>, tenant: TenantId, stop: Arc<AtomicBool>) -> Load {
    let mut load = Load::default();
    while !stop.load(Ordering::SeqCst) {
        let hold = new_hold(&Payer::Pool, 10);
        let began = Instant::now();
        let held = store
            .submit(command(tenant, Action::Hold(Box::new(hold.clone()))))
            .await;
        load.slowest = load.slowest.max(began.elapsed());
        match held {
            Ok(_) => {}
            Err(SubmitError::Unavailable(_)) => {
                load.refused += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            Err(SubmitError::Unknown) => {
                load.unknown += 1;
                continue;
            }
            Err(error @ (SubmitError::Busy | SubmitError::Rejected(_))) => panic!("{error}"),
        }
        // A hold is ended sooner or later, as the service does.
        loop {
            match store.submit(command(tenant, capture(&hold, 6, 1))).await {
                Ok(_) => break,
                Err(SubmitError::Rejected(rejection)) => panic!("{rejection}"),
                Err(SubmitError::Unavailable(_) | SubmitError::Unknown | SubmitError::Busy) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        load.captured.push(hold.call);
    }
    load
}

#[derive(Default)]
struct Load {
    captured: Vec<turnpike_core::ids::CallId>,
    refused: usize,
    unknown: usize,
    slowest: Duration,
}

// Fault matrix 201
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_server_loses_nothing_and_the_store_resumes_by_itself() {
    let cluster = Cluster::start().await;
    let database = Database::create_on(&cluster.url).await;
    let store = Arc::new(
        PostgresStore::connect(PostgresOptions::new(&database.url))
            .await
            .unwrap(),
    );
    let mut tenants = Vec::new();
    for _ in 0..4 {
        let tenant = add_tenant(&*store).await;
        store
            .submit(command(tenant, grant(&Payer::Pool, 10_000_000)))
            .await
            .unwrap();
        tenants.push(tenant);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = (0..16)
        .map(|n| {
            (
                tenants[n % 4],
                tokio::spawn(load(store.clone(), tenants[n % 4], stop.clone())),
            )
        })
        .collect();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        postgres_for_tests(&["kill", &cluster.directory]);
        let asked = Instant::now();
        let refused = store.submit(command(tenants[0], grant(&Payer::Pool, 1))).await;
        assert!(
            matches!(refused, Err(SubmitError::Unavailable(_))),
            "the server is not down: {refused:?}"
        );
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
        assert!(store.ping().await.is_err());
        tokio::time::sleep(Duration::from_millis(700)).await;
        postgres_for_tests(&["resume", &cluster.directory]);
        let back = Instant::now();
        while store
            .submit(command(tenants[0], grant(&Payer::Pool, 1)))
            .await
            .is_err()
        {
            assert!(
                back.elapsed() < Duration::from_secs(5),
                "the store did not resume"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    stop.store(true, Ordering::SeqCst);
    let (mut acknowledged, mut refused) = (0, 0);
    for (tenant, task) in loads {
        let load = task.await.unwrap();
        refused += load.refused;
        assert!(load.slowest < Duration::from_secs(12), "{:?}", load.slowest);
        for call in &load.captured {
            let found = store.find_call(tenant, *call).await.unwrap();
            let found = found.expect("an acknowledged charge is gone");
            assert_eq!((found.state, found.charged), (HoldState::Captured, usd(7)));
        }
        acknowledged += load.captured.len();
    }
    assert!(
        acknowledged > 100 && refused > 0,
        "{acknowledged} acknowledged, {refused} refused"
    );
    let charges: usize = {
        let mut sum = 0;
        for tenant in &tenants {
            let charged = |transfer: &&turnpike_core::ledger::Transfer| {
                transfer.cause == turnpike_core::ledger::Cause::Charge
            };
            sum += all_transfers(&*store, *tenant)
                .await
                .iter()
                .filter(charged)
                .count();
        }
        sum
    };
    assert_eq!(charges, acknowledged, "each charge once");
    check_books(&*store).await;
    store.close().await;
}
