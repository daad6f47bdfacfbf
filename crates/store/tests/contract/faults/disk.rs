//! The disk is full.

use std::path::PathBuf;
use std::process::Command as Process;

use turnpike_core::ledger::{Action, Payer};
use turnpike_store::{Ledger as _, SqliteOptions, SqliteStore, Statements as _, SubmitError, Upkeep as _};

use crate::actions::{command, grant, new_hold, usd};
use crate::world::{add_tenant, check_books};

// Fault matrix 199
#[test]
fn a_full_disk_refuses_and_recovers() {
    const NAME: &str = "faults::disk::a_full_disk_refuses_and_recovers";
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
