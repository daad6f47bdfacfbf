//! Random kills under load of paid calls: whatever is lost on the way, one call to the provider and at most one
//! payment for each request, and an answer for each payment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::harness::stall::{FEE, FLASH, Stall};
use crate::harness::wallet::{Ask, PAID_LIST, Wallet, payment_response};
use crate::harness::{Client, Store, kills};
use crate::on_both_stores;

on_both_stores!(random_kills_under_load_settle_no_payment_twice);

const WORKERS: usize = 6;

/// Pays for calls until the process is gone; gives what was signed.
async fn work(client: Client, worker: usize, known: Arc<Mutex<Vec<Ask>>>, stop: Arc<AtomicBool>) {
    let wallet = Wallet::new();
    while !stop.load(Ordering::SeqCst) {
        let ask = if worker.is_multiple_of(3) {
            Ask::list()
        } else {
            Ask::chat(&uuid::Uuid::new_v4().to_string())
        };
        let Ok(unpaid) = ask.by(&client).try_send().await else {
            continue;
        };
        // Just started: the facilitator has not told yet what it can do.
        if unpaid.status == 503 {
            continue;
        }
        let paid = ask.paid(&crate::harness::wallet::Offer::read(unpaid), &wallet);
        known.lock().unwrap().push(paid.clone());
        if let Ok(reply) = paid.by(&client).try_send().await {
            assert!(
                matches!(reply.status, 200 | 202),
                "{} {}",
                reply.status,
                reply.text()
            );
        }
    }
}

// Fault matrix 56, 60
async fn random_kills_under_load_settle_no_payment_twice(store: Store) {
    let seed: u64 =
        std::env::var("TURNPIKE_SEED").map_or_else(|_| rand::random(), |text| text.parse().unwrap());
    eprintln!("TURNPIKE_SEED={seed} TURNPIKE_KILLS={}", kills());
    let mut random = StdRng::seed_from_u64(seed);
    let mut stall = Stall::new(store).await;
    let known = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..kills() {
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS {
            workers.spawn(work(stall.client.clone(), worker, known.clone(), stop.clone()));
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(50..700))).await;
        stop.store(true, Ordering::SeqCst);
        stall.site.service.as_mut().unwrap().kill();
        while let Some(worker) = workers.join_next().await {
            worker.unwrap();
        }
        stall.restart(&[]).await;
        stall.audit();
    }
    let known = std::mem::take(&mut *known.lock().unwrap());
    let (mut finals, mut paid) = (BTreeMap::<u16, usize>::new(), Vec::new());
    for ask in &known {
        stall.leases_end().await;
        let reply = stall.ends(ask).await;
        if reply.status == 200 {
            let price = if ask.path == PAID_LIST { FEE } else { FLASH };
            let response = payment_response(&reply);
            assert_eq!(response.amount, Some(price.to_string()));
            paid.push(response.transaction);
        } else {
            let failed = reply.refused(409, "REQUEST_FAILED").json();
            assert_eq!(failed["receipt"]["failure"], "UPSTREAM_TIMEOUT");
        }
        *finals.entry(stall.ends(ask).await.status).or_default() += 1;
    }
    eprintln!("{} payments ended: {finals:?}", known.len());
    assert!(!known.is_empty(), "nobody paid");
    let mut sent = BTreeMap::<String, usize>::new();
    for seen in stall.upstream.seen() {
        *sent.entry(seen.text()).or_default() += 1;
    }
    for (text, times) in sent {
        assert_eq!(times, 1, "{text} was sent {times} times");
    }
    let made = stall.facilitator.paid();
    let mut transactions: Vec<String> = made.iter().map(|made| made.hash.clone()).collect();
    transactions.sort();
    paid.sort();
    assert_eq!(
        transactions, paid,
        "every payment has its answer, and none was made twice"
    );
    let amounts: Vec<u64> = made.iter().filter_map(|made| made.amount).collect();
    stall.agree(stall.upstream.count(), &amounts).await;
}
