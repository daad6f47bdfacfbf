//! The bank: many clients do everything that moves money, while a reader looks and connections break.
//!
//! Each client notes what it was told. At the end the books must have all that was answered, nothing of what was
//! refused, and of what stayed unknown either all or nothing (fault matrix 19, 26, 202; I1 to I8).
//!
//! `TURNPIKE_BANK_OPS` is the number of operations of each client. The seed of a failing run is in its message;
//! it repeats what the clients want, not how the machine interleaves them.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most actions and outcomes need no check of their own"
)]

mod board;
mod client;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::{Action, Payer};
use turnpike_store::{OpenCalls, PostgresOptions, PostgresStore, Store};

use self::board::Board;
use self::client::Client;
use crate::actions::{grant, move_to};
use crate::faults::proxy::{Cut, Proxy};
use crate::payouts::to_stablecoin;
use crate::world::{Dice, Kind, NOW, World, on};

const CLIENTS: u64 = 16;
const USERS: usize = 20;
const OPERATIONS: u64 = 100;

fn operations() -> u64 {
    let asked = std::env::var("TURNPIKE_BANK_OPS").ok();
    asked.map_or(OPERATIONS, |text| {
        text.parse().expect("TURNPIKE_BANK_OPS is a number")
    })
}

/// Runs the bank over `stores`; the world's own store looks at it.
async fn bank(world: &World, stores: &[Arc<dyn Store>], seed: u64) {
    let tenants = [world.tenant().await, world.tenant().await];
    let board = Arc::new(Board::new(tenants, USERS));
    let mut opening = Client::new(world.store.clone(), board.clone(), Dice::new(seed));
    for tenant in tenants {
        opening.run(tenant, grant(&Payer::Pool, 500_000_000)).await;
        opening.run(tenant, to_stablecoin()).await;
        for slot in 0..USERS {
            opening
                .run(tenant, move_to(&board.name(tenant, slot), 1_000_000, true))
                .await;
        }
    }
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let store = stores[usize::try_from(n).unwrap() % stores.len()].clone();
            let mut client = Client::new(store, board.clone(), Dice::new(seed ^ (n + 1) << 20));
            tokio::spawn(async move {
                for _ in 0..operations() {
                    client.operate().await;
                }
                client
            })
        })
        .collect();
    let looking = look(world, tenants, &done);
    let working = async {
        let mut entries = opening.entries;
        let mut failed = None;
        for client in join_all(clients).await {
            match client {
                Ok(client) => entries.extend(client.entries),
                Err(error) => failed = Some(error),
            }
        }
        done.store(true, Ordering::SeqCst);
        assert!(failed.is_none(), "seed {seed}: {failed:?}");
        entries
    };
    let (mut entries, looks) = tokio::join!(working, looking);
    // What a client no longer waited for may still be under way; a command behind it is behind it.
    let mut closing = Client::new(world.store.clone(), board.clone(), Dice::new(seed));
    for store in stores {
        closing.store = store.clone();
        for tenant in tenants {
            while closing.run(tenant, grant(&Payer::Pool, 1)).await.is_none() {}
        }
    }
    let open = OpenCalls {
        deadline_before: NOW.plus_millis(i64::from(u32::MAX)),
        of_instance: None,
        limit: u32::MAX,
    };
    closing.store = world.store.clone();
    let unfinished = world.store.list_open_calls(open).await.unwrap();
    println!("{} calls were left open", unfinished.len());
    for (tenant, hold) in unfinished {
        closing.run(tenant, Action::Expire(hold.call.clone())).await;
    }
    entries.append(&mut closing.entries);
    look_once(world, tenants).await;
    let summary = verdict::check(world, &board, &entries, seed).await;
    println!(
        "seed {seed}, {:?}, {} stores: {summary}, {looks} looks",
        world.kind,
        stores.len()
    );
}

/// Looks at the books until `done`; says how often.
async fn look(world: &World, tenants: [TenantId; 2], done: &AtomicBool) -> u32 {
    let mut looks = 0;
    while !done.load(Ordering::SeqCst) {
        look_once(world, tenants).await;
        looks += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(looks > 1, "the reader saw nothing");
    looks
}

/// One snapshot of both tenants by SQL, and the audit of each.
async fn look_once(world: &World, tenants: [TenantId; 2]) {
    let wrong = "SELECT CAST(COUNT(*) AS TEXT) FROM (
            SELECT SUM(posted) AS total,
                SUM(CASE WHEN held < 0 OR (kind <= 1 AND (posted < 0 OR posted < held)) THEN 1 ELSE 0 END) AS overdrawn
            FROM accounts GROUP BY bucket, tenant_id) AS books
        WHERE total <> 0 OR overdrawn <> 0";
    assert_eq!(
        world.sql(wrong).await.unwrap().as_deref(),
        Some("0"),
        "a snapshot does not add up"
    );
    for tenant in tenants {
        assert_eq!(world.findings(tenant).await, [""; 0]);
    }
}

// Fault matrix 19, 22, 26
pub(crate) async fn whatever_the_bank_says_is_in_its_books(world: &World) {
    bank(world, std::slice::from_ref(&world.store), 1).await;
}

/// Two services whose connections break at COMMIT again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_two_banks_on_broken_wires_say_is_in_their_books() {
    on(Kind::Postgres, async |world: &World| {
        let server = world.url().split_once('@').unwrap().1.split_once('/').unwrap().0;
        let (mut stores, mut proxies) = (Vec::<Arc<dyn Store>>::new(), Vec::new());
        for _ in 0..2 {
            let proxy = Proxy::start(server.to_owned()).await;
            let url = world.url().replace(server, &format!("127.0.0.1:{}", proxy.port));
            stores.push(Arc::new(
                PostgresStore::connect(PostgresOptions::new(url)).await.unwrap(),
            ));
            proxies.push(proxy);
        }
        let breaking = async {
            let mut dice = Dice::new(3);
            loop {
                let pause = 20 + dice.roll(80);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let cut = match dice.roll(20) {
                    0 => Cut::Late,
                    1..8 => Cut::Request,
                    _ => Cut::Answer,
                };
                proxies[usize::try_from(dice.roll(2)).unwrap()].arm(cut);
            }
        };
        tokio::select! {
            () = bank(world, &stores, 2) => {}
            () = breaking => {}
        }
        let cuts: u32 = proxies.iter().map(Proxy::cuts).sum();
        println!("{cuts} commits were cut");
        assert!(cuts > 5, "the wires hardly broke: {cuts}");
        for proxy in &proxies {
            proxy.arm(Cut::Never);
        }
        for store in stores {
            store.close().await;
        }
    })
    .await;
}

/// A command of `tenant`, and what a client was told of it.
#[derive(Debug)]
struct Entry {
    command: turnpike_core::ledger::Command,
    said: Said,
}

#[derive(Debug)]
enum Said {
    Done(turnpike_core::ledger::Outcome),
    /// Refused by the rules, or not begun.
    Nothing,
    Unknown,
}
