//! Faults of the databases. Each test shows that its fault was really reached.

use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::{Action, HoldState, Outcome, Payer};
use turnpike_store::{
    Calls as _, Directory as _, Ledger as _, PostgresOptions, PostgresStore, Scan, SqliteOptions,
    SqliteStore, Statements as _, Store, StoreError, SubmitError, Upkeep as _,
};

use crate::proxy::{Cut, LATE, Proxy};
use crate::world::{
    Database, add_tenant, all_transfers, capture, check_books, command, grant, new_hold, sql, usd,
};

/// A store that reaches its database through a proxy.
async fn behind_proxy(database: &Database) -> (Proxy, PostgresStore) {
    let server = database.url.split_once('@').unwrap().1.split_once('/').unwrap().0;
    let proxy = Proxy::start(server.to_owned()).await;
    let url = database.url.replace(server, &format!("127.0.0.1:{}", proxy.port));
    let mut options = PostgresOptions::new(url);
    options.lanes = 1;
    (proxy, PostgresStore::connect(options).await.unwrap())
}

/// Thirty calls are captured at once, and the first COMMIT suffers `cut`.
async fn cut_at_commit(cut: Cut) -> Duration {
    let database = Database::create().await;
    let (proxy, store) = behind_proxy(&database).await;
    let tenant = add_tenant(&store).await;
    store
        .submit(command(tenant, grant(&Payer::Pool, 100_000)))
        .await
        .unwrap();
    let holds: Vec<_> = (0..30).map(|_| new_hold(&Payer::Pool, 100)).collect();
    for hold in &holds {
        store
            .submit(command(tenant, Action::Hold(Box::new(hold.clone()))))
            .await
            .unwrap();
    }
    assert_eq!(proxy.cuts(), 0);
    proxy.arm(cut);
    let began = Instant::now();
    let results = join_all(
        holds
            .iter()
            .map(|hold| store.submit(command(tenant, capture(hold, 60, 10)))),
    )
    .await;
    let took = began.elapsed();
    assert_eq!(proxy.cuts(), 1, "the fault was not reached");
    for result in results {
        assert!(
            matches!(result, Ok(Outcome::Captured { charged, .. }) if charged == usd(70)),
            "{result:?}"
        );
    }
    // Two transfers for each charge, once, and one for the grant.
    assert_eq!(all_transfers(&store, tenant).await.len(), 61);
    assert_eq!(
        store
            .find_account(&Payer::Pool.account(tenant))
            .await
            .unwrap()
            .unwrap()
            .posted,
        usd(100_000 - 2_100)
    );
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
    store
        .submit(command(tenant, grant(&Payer::Pool, 1)))
        .await
        .unwrap();
    let (reading, begun) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let started = begun.clone();
    let reader = tokio::spawn(async move {
        let mut slow = |_| {
            started.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_secs(2));
            true
        };
        reading.scan(tenant, &mut Scan::Transfers(&mut slow)).await
    });
    while !begun.load(Ordering::SeqCst) {
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
    reader.await.unwrap().unwrap();
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
struct Cluster {
    url: String,
    directory: String,
}

impl Cluster {
    async fn start() -> Self {
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

// Fault matrix 199
#[test]
fn a_full_disk_refuses_and_recovers() {
    const NAME: &str = "faults::a_full_disk_refuses_and_recovers";
    if std::env::var_os("TURNPIKE_TEST_SMALL_DISK").is_some() {
        return tokio::runtime::Runtime::new()
            .unwrap()
            .block_on(on_a_small_disk());
    }
    // The body runs again in a mount namespace of its own, on a tmpfs of two megabytes.
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=2m tmpfs \"$0\" && exec \"$@\"";
    let output = Process::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env("TURNPIKE_TEST_SMALL_DISK", directory.path())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}

async fn on_a_small_disk() {
    let disk = PathBuf::from(std::env::var_os("TURNPIKE_TEST_SMALL_DISK").unwrap());
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![0_u8; 800 * 1024]).unwrap();
    let store = SqliteStore::open(&SqliteOptions::new(disk.join("turnpike.db"))).unwrap();
    let tenant = add_tenant(&store).await;
    store
        .submit(command(tenant, grant(&Payer::Pool, 1_000_000)))
        .await
        .unwrap();
    let bulky = || {
        let mut hold = new_hold(&Payer::Pool, 10);
        hold.subject.price = "x".repeat(8 * 1024).into();
        hold
    };
    let mut taken = Vec::new();
    let reason = loop {
        let hold = bulky();
        match store
            .submit(command(tenant, Action::Hold(Box::new(hold.clone()))))
            .await
        {
            Ok(_) => taken.push(hold),
            Err(SubmitError::Unavailable(reason)) => break reason,
            Err(other) => panic!("{other}"),
        }
        assert!(taken.len() < 1_000, "the disk was never full");
    };
    assert!(reason.contains("full"), "{reason}");
    let held = async || {
        store
            .find_account(&Payer::Pool.account(tenant))
            .await
            .unwrap()
            .unwrap()
            .held
    };
    let expected = |holds: usize| usd(10 * i64::try_from(holds).unwrap());
    assert_eq!(held().await, expected(taken.len()));
    assert!(
        store
            .submit(command(tenant, Action::Hold(Box::new(bulky()))))
            .await
            .is_err()
    );

    std::fs::remove_file(ballast).unwrap();
    let hold = bulky();
    store
        .submit(command(tenant, Action::Hold(Box::new(hold.clone()))))
        .await
        .unwrap();
    taken.push(hold);
    assert_eq!(held().await, expected(taken.len()));
    check_books(&store).await;
    store.close().await;
}

const _: fn(&PostgresStore) -> &dyn Store = |store| store;
