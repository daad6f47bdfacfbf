//! The disk is full, or fails.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use futures_util::future::join_all;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::{Action, Payer};
use turnpike_store::{
    Directory as _, Ledger as _, PaidCalls as _, SqliteOptions, SqliteStore, Statements as _, StoreError,
    SubmitError, Upkeep as _,
};
use uuid::Uuid;

use crate::actions::{command, grant, new_hold, usd};
use crate::world::{NOW, add_tenant, check_books};

/// Where the bodies of these tests are run again.
const SMALL: &str = "TURNPIKE_TEST_SMALL_DISK";
const FAILING: &str = "TURNPIKE_TEST_FAILING_DISK";
const FAILING_CHECKPOINT: &str = "TURNPIKE_TEST_FAILING_CHECKPOINT";
const FILE: &str = "turnpike.db";

/// Runs a test of this file again, after a shell's words, with the name of the variable set to a directory.
fn runs_again(command: &[&str], name: &str, variable: &str, directory: &Path) {
    let output = Process::new(command[0])
        .args(&command[1..])
        .arg(directory)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(variable, directory)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}

/// The same where no file can be longer than `blocks` of 512 bytes: an input or output error for SQLite.
fn runs_with_short_files(blocks: u32, name: &str, variable: &str, directory: &Path) {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    runs_again(&["sh", "-c", &script], name, variable, directory);
}

/// Runs a test's `body` where it was started again for it; whether it was.
fn was_started_again(variable: &str, body: impl Future<Output = ()>) -> bool {
    let again = std::env::var_os(variable).is_some();
    if again {
        tokio::runtime::Runtime::new().unwrap().block_on(body);
    }
    again
}

// Fault matrix 199
#[test]
fn a_full_disk_refuses_and_recovers() {
    if was_started_again(SMALL, on_a_small_disk()) {
        return;
    }
    // The body runs again in a mount namespace of its own, on a tmpfs of two megabytes.
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=2m tmpfs \"$0\" && exec \"$@\"";
    let command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
    ];
    let name = "faults::disk::a_full_disk_refuses_and_recovers";
    runs_again(&command, name, SMALL, directory.path());
}

// Fault matrix 61: of a commit that failed on the disk nobody knows, and nothing is written after it.
#[test]
fn a_failing_disk_stops_all_writes() {
    if was_started_again(FAILING, on_a_failing_disk()) {
        return;
    }
    // Two megabytes.
    let directory = tempfile::tempdir().unwrap();
    let name = "faults::disk::a_failing_disk_stops_all_writes";
    runs_with_short_files(4096, name, FAILING, directory.path());

    let told: i64 = std::fs::read_to_string(directory.path().join("told"))
        .unwrap()
        .parse()
        .unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&SqliteOptions::new(directory.path().join(FILE))).unwrap();
        let tenant = store.list_tenants().await.unwrap()[0].id;
        let pool = store.find_account(&Payer::Pool.account(tenant)).await.unwrap();
        let found = pool.map_or(0, |account| account.posted.get());
        assert!(
            (told..=told + 64).contains(&found),
            "{told} were told, {found} are there"
        );
        check_books(&store).await;
        store.close().await;
    });
}

// Fault matrix 61: the write-ahead log is shorter than a file may be, the database is not: what was told is in the log.
#[test]
fn a_disk_that_fails_in_a_checkpoint_stops_all_writes() {
    if was_started_again(FAILING_CHECKPOINT, on_a_disk_that_takes_no_checkpoint()) {
        return;
    }
    // Eighty megabytes: more than the log becomes before the writer waits for it to be copied.
    let directory = tempfile::tempdir().unwrap();
    let name = "faults::disk::a_disk_that_fails_in_a_checkpoint_stops_all_writes";
    runs_with_short_files(163_840, name, FAILING_CHECKPOINT, directory.path());

    let told = std::fs::read_to_string(directory.path().join("told")).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&SqliteOptions::new(directory.path().join(FILE))).unwrap();
        let tenant = store.list_tenants().await.unwrap()[0].id;
        let pool = store.find_account(&Payer::Pool.account(tenant)).await.unwrap();
        assert_eq!(pool.unwrap().held.get().to_string(), told);
        check_books(&store).await;
        store.close().await;
    });
}

/// Calls with large rows until one is refused: none is in doubt, because it was no commit that failed.
async fn on_a_disk_that_takes_no_checkpoint() {
    let directory = PathBuf::from(std::env::var_os(FAILING_CHECKPOINT).unwrap());
    let path = directory.join(FILE);
    let store = SqliteStore::open(&SqliteOptions::new(&path)).unwrap();
    let tenant = add_tenant(&store).await;
    let granted = store.submit(command(tenant, grant(&Payer::Pool, 1_000_000)));
    granted.await.unwrap();
    let holds = || {
        join_all((0..64).map(|_| {
            let mut hold = new_hold(&Payer::Pool, 1);
            hold.subject.price = "x".repeat(64 * 1024).into();
            store.submit(command(tenant, Action::Hold(Box::new(hold))))
        }))
    };
    let mut told = 0;
    loop {
        let (taken, failed): (Vec<_>, Vec<_>) = holds().await.into_iter().partition(Result::is_ok);
        told += taken.len();
        let refused = |result: &Result<_, SubmitError>| match result {
            Err(SubmitError::Unavailable(why)) => why.contains("disk error"),
            _ => false,
        };
        assert!(failed.iter().all(refused), "{failed:?}");
        if taken.is_empty() {
            break;
        }
        assert!(told < 10_000, "the disk never failed");
    }
    let length = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert!(length(&path) > 70 << 20, "the database is not what failed");
    assert!(
        length(&path.with_extension("db-wal")) < 80 << 20,
        "the log is not shorter"
    );
    assert!(store.ping().await.is_err());
    std::fs::write(directory.join("told"), told.to_string()).unwrap();
    store.close().await;
}

/// Many at once until one is not told, then everything is refused.
async fn on_a_failing_disk() {
    let directory = PathBuf::from(std::env::var_os(FAILING).unwrap());
    let store = SqliteStore::open(&SqliteOptions::new(directory.join(FILE))).unwrap();
    let tenant = add_tenant(&store).await;
    let grants = || join_all((0..64).map(|_| store.submit(command(tenant, grant(&Payer::Pool, 1)))));
    let mut told = 0;
    let failed = loop {
        let (granted, failed): (Vec<_>, Vec<_>) = grants().await.into_iter().partition(Result::is_ok);
        told += granted.len();
        if !failed.is_empty() {
            break failed;
        }
        assert!(told < 100_000, "the disk never failed");
    };
    let unknown = |result: &Result<_, SubmitError>| matches!(result, Err(SubmitError::Unknown));
    let refused = |result: &Result<_, SubmitError>| matches!(result, Err(SubmitError::Unavailable(_)));
    assert!(failed.iter().any(unknown), "{failed:?}");
    assert!(
        failed.iter().all(|result| unknown(result) || refused(result)),
        "{failed:?}"
    );
    assert!(grants().await.iter().all(refused));
    let written = store
        .ensure_house_tenant(TenantId(Uuid::from_u128(7)), "house", NOW)
        .await;
    assert!(
        matches!(&written, Err(StoreError::Unavailable(why)) if why.contains("disk error")),
        "{written:?}"
    );
    assert!(store.ping().await.is_err());
    std::fs::write(directory.join("told"), told.to_string()).unwrap();
    store.close().await;
}

async fn on_a_small_disk() {
    let disk = PathBuf::from(std::env::var_os(SMALL).unwrap());
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
