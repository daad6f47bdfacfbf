//! Requests that nobody pays for leave nothing behind (fault matrix 197).

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use crate::harness::stall::Stall;
use crate::harness::wallet::Ask;
use crate::harness::{Database, Store};
use crate::on_both_stores;

on_both_stores!(ten_thousand_unpaid_requests_leave_nothing);

const REQUESTS: usize = 10_000;
const AT_ONCE: usize = 16;
/// How often it may grow by more.
const ROUNDS: usize = 3;
/// What a process may grow by while it answers, in KiB: less than half a KiB for each request.
const GROWTH_KIB: u64 = 4096;

/// What the process has in memory, in KiB.
fn resident(stall: &Stall) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", stall.service().pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The rows of every table.
async fn rows(database: &Database) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    for table in database.tables().await {
        let count = database.number(&format!("SELECT COUNT(*) FROM {table}")).await;
        rows.insert(table, count);
    }
    rows
}

async fn flood(stall: &Stall, requests: usize, own_ids: bool) {
    let asks = [Ask::chat("hi"), Ask::fim(), Ask::list()];
    let mut workers = JoinSet::new();
    for worker in 0..AT_ONCE {
        let (client, asks) = (stall.client.clone(), asks.clone());
        workers.spawn(async move {
            for number in (worker..requests).step_by(AT_ONCE) {
                let mut ask = asks[number % asks.len()].clone();
                if own_ids {
                    ask = ask.id(&uuid::Uuid::new_v4().to_string());
                }
                let reply = ask.send(&client).await;
                assert_eq!(reply.status, 402, "{}", reply.text());
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.unwrap();
    }
}

async fn ten_thousand_unpaid_requests_leave_nothing(store: Store) {
    let stall = Stall::new(store).await;
    // Connections, buffers and what is read once.
    flood(&stall, 1000, false).await;
    flood(&stall, 1000, true).await;
    let before = rows(&stall.database).await;
    assert!(before.len() > 10, "{before:?}");
    for own_ids in [false, true] {
        let mut grown = Vec::new();
        // Connections and their buffers are made as they are needed; what is kept of requests grows every time.
        while grown.last().is_none_or(|grown| *grown >= GROWTH_KIB) {
            assert!(grown.len() < ROUNDS, "own ids {own_ids}: {grown:?} KiB more");
            let memory = resident(&stall);
            flood(&stall, REQUESTS, own_ids).await;
            assert_eq!(rows(&stall.database).await, before, "own ids: {own_ids}");
            grown.push(resident(&stall).saturating_sub(memory));
        }
    }
    assert_eq!(stall.facilitator.count("/verify"), 0);
    stall.agree(0, &[]).await;
}
