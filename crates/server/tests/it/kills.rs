//! The process is killed at random moments under load, again and again, and the books and answers are checked.
//!
//! What must hold: the audit is clean after each restart; a call whose answer arrived whole is answered with
//! the same bytes by its key; a key is charged and sent to the provider at most once. `TURNPIKE_KILLS` sets how
//! often, `TURNPIKE_SEED` repeats a run as far as timing allows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{CHAT, Client, Setup, Site, Store, TOOL, chat, chat_stream, eventually, kills, micros};
use crate::on_both_stores;

on_both_stores!(random_kills_under_load_lose_no_answer_and_charge_no_key_twice);

/// Calls at once.
const WORKERS: usize = 8;
/// Acknowledged calls that are asked for again after each kill.
const CHECKED: usize = 40;

/// The request of a key: its kind and its text follow from its number.
fn request(number: usize) -> (&'static str, Value) {
    let text = format!("call-{number}");
    match number % 3 {
        0 => (CHAT, chat("flat", &text)),
        1 => (CHAT, chat_stream("flat", &text)),
        _ => (TOOL, json!({ "id": text })),
    }
}

fn send(client: &Client, key: &str, number: usize) -> crate::harness::Sender {
    let (path, body) = request(number);
    client
        .request(Method::POST, path)
        .bearer(key)
        .once(&format!("k{number}"))
        .header(
            "x-svc-attribution",
            json!({ "k": number.to_string() }).to_string(),
        )
        .json(&body)
}

#[derive(Default)]
struct Known {
    next: usize,
    /// Answers that arrived whole.
    acknowledged: BTreeMap<usize, Bytes>,
    /// Calls whose answer was cut off.
    unknown: Vec<usize>,
}

/// Sends calls until the process is gone.
async fn work(client: Client, key: String, known: Arc<Mutex<Known>>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::SeqCst) {
        let number = {
            let mut known = known.lock().unwrap();
            known.next += 1;
            known.next
        };
        let outcome = send(&client, &key, number).try_send().await;
        let mut known = known.lock().unwrap();
        match outcome {
            Ok(reply) if reply.status == 200 => {
                known.acknowledged.insert(number, reply.body);
            }
            Ok(reply) => panic!("call {number}: {} {}", reply.status, reply.text()),
            Err(_cut) => known.unknown.push(number),
        }
    }
}

// Fault matrix 51, 60, I1-I12
async fn random_kills_under_load_lose_no_answer_and_charge_no_key_twice(store: Store) {
    let seed: u64 =
        std::env::var("TURNPIKE_SEED").map_or_else(|_| rand::random(), |text| text.parse().unwrap());
    eprintln!("TURNPIKE_SEED={seed} TURNPIKE_KILLS={}", kills());
    let mut random = StdRng::seed_from_u64(seed);
    let setup = Setup::new(store).grant(Some("9000"));
    let setup = setup
        .provider("total_timeout_secs", 2)
        .set("calls.slow_reader_secs", 1)
        .set("calls.max_stream_secs", 2)
        .set("calls.hold_slack_secs", 1);
    let mut site = setup.start().await;
    let known = Arc::new(Mutex::new(Known::default()));
    for kill in 0..kills() {
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = JoinSet::new();
        for _ in 0..WORKERS {
            workers.spawn(work(
                site.client.clone(),
                site.key.clone(),
                known.clone(),
                stop.clone(),
            ));
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(20..700))).await;
        stop.store(true, Ordering::SeqCst);
        site.service.as_mut().unwrap().kill();
        while let Some(worker) = workers.join_next().await {
            worker.unwrap();
        }
        site.restart(&[]).await;
        site.audit();
        let acknowledged = known.lock().unwrap().acknowledged.clone();
        for _ in 0..CHECKED.min(acknowledged.len()) {
            let (number, body) = acknowledged
                .iter()
                .nth(random.random_range(0..acknowledged.len()))
                .unwrap();
            let again = send(&site.client, &site.key, *number).send().await;
            assert_eq!(again.status, 200, "kill {kill}, call {number}: {}", again.text());
            assert_eq!(again.body, body, "kill {kill}, call {number}");
            assert_eq!(again.header("idempotent-replayed"), Some("true"));
        }
    }
    site.idle().await;
    // Every call that was cut off can be asked for again, and gets a final answer.
    let unknown = std::mem::take(&mut known.lock().unwrap().unknown);
    let (mut finals, acknowledged) = (
        BTreeMap::<u16, usize>::new(),
        known.lock().unwrap().acknowledged.len(),
    );
    for number in unknown {
        let reply = eventually("the call is over", || async {
            let reply = send(&site.client, &site.key, number).send().await;
            (reply.status != 409).then_some(reply)
        })
        .await;
        assert!(
            matches!(reply.status, 200 | 410 | 504),
            "call {number}: {} {}",
            reply.status,
            reply.text()
        );
        *finals.entry(reply.status).or_default() += 1;
    }
    eprintln!("{acknowledged} answers arrived; of the calls that were cut off: {finals:?}");
    assert!(acknowledged > 0, "nothing was ever answered");
    site.idle().await;
    once_each(&site).await;
}

/// No key was charged twice or sent twice, and the balance is the sum of the charges.
async fn once_each(site: &Site) {
    let mut charged = BTreeMap::<String, i64>::new();
    let mut spent = 0;
    for line in site.export("usage").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let price =
            micros(row["chargedUsd"].as_str().unwrap()) - micros(row["refundedUsd"].as_str().unwrap());
        spent += price;
        if price > 0 {
            *charged.entry(row["attribution"].to_string()).or_default() += 1;
        }
    }
    for (key, times) in charged {
        assert_eq!(times, 1, "{key} was charged {times} times");
    }
    let mut sent = BTreeMap::<String, usize>::new();
    for seen in site.upstream.seen() {
        let name = if seen.path.ends_with("/fetch") {
            seen.json()["id"].to_string()
        } else {
            seen.text()
        };
        *sent.entry(name).or_default() += 1;
    }
    for (call, times) in sent {
        assert_eq!(times, 1, "{call} was sent {times} times");
    }
    let left = eventually("the balance is the sum of the charges", || async {
        Some(site.settled().await)
    })
    .await;
    assert_eq!(left, micros("9000") - spent);
}
