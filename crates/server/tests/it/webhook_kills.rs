//! Workers are killed at random moments of deliveries, again and again, while calls go on.
//!
//! What must hold: every event arrives at every endpoint, also those of calls that were cut off; a duplicate has the
//! same id and body; the attempts of an event at an endpoint are numbered without gaps, and exactly one succeeded;
//! nothing is sent that is no attempt; nothing is stuck. On the embedded store one process does everything and dies as
//! a whole; on PostgreSQL two workers die in turns beside a process that takes the calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::upstream::answer;
use crate::harness::{
    CHAT, Client, Seen, Service, Setup, Site, Step, Store, Upstream, chat, eventually_within, kills,
};
use crate::on_both_stores;

on_both_stores!(random_kills_of_workers_lose_no_event);

/// Callers at once.
const CALLERS: usize = 2;
/// Paths of the receiver, each an endpoint.
const ENDPOINTS: [&str; 3] = ["/a", "/b", "/c"];
/// Kills for each of the usual random loop, which is slower.
const KILLS_EACH: u64 = 3;

/// Longer than a lease (the longest attempt and 15 s) and the pause between two looks at leases.
pub const LEASES_OVER: Duration = Duration::from_secs(40);

/// A gateway whose attempts end after a second, and soon follow one another.
pub fn impatient(store: Store) -> Setup {
    Setup::new(store)
        .provider("total_timeout_secs", 1)
        .set("calls.hold_slack_secs", 1)
        .set("webhooks.allow_loopback", true)
        .set("webhooks.timeout", 1)
        .set("webhooks.poll_ms", 10)
        .set(
            "webhooks.schedule",
            [vec![0; 4], vec![1; 16]]
                .concat()
                .into_iter()
                .map(toml::Value::Integer)
                .collect::<Vec<_>>(),
        )
}

/// Has `receiver` told of everything from now on.
pub async fn register(site: &Site, receiver: &Upstream, path: &str) -> String {
    let url = format!("http://{}{path}", receiver.address);
    let made = site.post("/api/credits/webhooks/endpoints", &json!({ "url": url }));
    let made = made.send().await.expect(201).json();
    made["endpoint"]["id"].as_str().unwrap().to_owned()
}

/// The `webhook-id` of a request.
pub fn id_of(seen: &Seen) -> &str {
    let (_, id) = seen
        .headers
        .iter()
        .find(|(name, _)| name == "webhook-id")
        .unwrap();
    id
}

/// Mostly takes it, sometimes says no, sometimes says yes too late.
fn moody(seen: &Seen) -> Vec<Step> {
    match rand::random_range(0..20) {
        0..4 => vec![answer(500, &[], b"no")],
        4 => vec![
            Step::Pause(Duration::from_millis(1500)),
            answer(200, &[], b"late"),
        ],
        5 => vec![Step::Close],
        6..12 => vec![
            Step::Pause(Duration::from_millis(20)),
            answer(200, &[], seen.path.as_bytes()),
        ],
        _ => vec![answer(200, &[], b"{}")],
    }
}

/// Makes calls until told to stop, or until the process is gone.
async fn work(client: Client, key: String, number: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::SeqCst) {
        let number = number.fetch_add(1, Ordering::SeqCst);
        let call = client.request(Method::POST, CHAT).bearer(&key);
        let call = call
            .json(&chat("flat", &format!("call-{number}")))
            .try_send()
            .await;
        match call {
            Ok(reply) => assert_eq!(reply.status, 200, "{}", reply.text()),
            Err(_cut) => return,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The processes that deliver, beside the one that takes the calls if they are not that one.
struct Workers {
    beside: Vec<(Service, PathBuf)>,
}

impl Workers {
    async fn start(site: &mut Site) -> Self {
        let mut beside = Vec::new();
        if site.setup.store == Store::Postgres {
            site.service = None;
            let service = Service::start_as(&site.config, &site.data, &[], "api").await;
            site.client = service.client();
            site.service = Some(service);
            for number in 0..2 {
                let data = site.data.with_file_name(format!("worker-{number}"));
                std::fs::create_dir_all(&data).unwrap();
                let worker = Service::start_as(&site.config, &data, &[], "worker").await;
                beside.push((worker, data));
            }
        }
        Self { beside }
    }

    /// Kills one of them and starts it again.
    async fn kill_one(&mut self, site: &mut Site, random: &mut StdRng) {
        if self.beside.is_empty() {
            site.service.as_mut().unwrap().kill();
            site.restart(&[]).await;
            return;
        }
        let chosen = random.random_range(0..self.beside.len());
        let (worker, data) = &mut self.beside[chosen];
        worker.kill();
        *worker = Service::start_as(&site.config, data, &[], "worker").await;
    }
}

// Fault matrix 51, 52, 169, I8
async fn random_kills_of_workers_lose_no_event(store: Store) {
    let seed: u64 =
        std::env::var("TURNPIKE_SEED").map_or_else(|_| rand::random(), |text| text.parse().unwrap());
    let rounds = kills() * KILLS_EACH;
    eprintln!("TURNPIKE_SEED={seed}, {rounds} kills");
    let mut random = StdRng::seed_from_u64(seed);
    let mut site = impatient(store).grant(Some("9000")).start().await;
    let receiver = Upstream::start().await;
    receiver.script(moody);
    for path in ENDPOINTS {
        register(&site, &receiver, path).await;
    }
    let mut workers = Workers::start(&mut site).await;
    let number = Arc::new(AtomicUsize::new(0));
    for _ in 0..rounds {
        let stop = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            callers.spawn(work(
                site.client.clone(),
                site.key.clone(),
                number.clone(),
                stop.clone(),
            ));
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(20..500))).await;
        workers.kill_one(&mut site, &mut random).await;
        stop.store(true, Ordering::SeqCst);
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
    }
    receiver.script(|_| vec![answer(200, &[], b"{}")]);
    site.idle().await;
    eventually_within(
        LEASES_OVER * 2,
        "nothing waits and nothing is under way",
        || async {
            let waiting = "SELECT COUNT(*) FROM webhook_deliveries WHERE status IN (0, 1)";
            let behind = "SELECT COUNT(*) FROM webhook_cursors c JOIN tenants t ON t.tenant_id = c.tenant_id
                      WHERE c.seq < t.event_seq";
            let left = site.database.number(waiting).await + site.database.number(behind).await;
            (left == 0).then_some(())
        },
    )
    .await;
    every_event_is_told(&site, &receiver).await;
    every_charge_has_its_event(&site);
}

async fn every_event_is_told(site: &Site, receiver: &Upstream) {
    let none = |what: &'static str, sql: &'static str| async move {
        assert_eq!(site.database.number(sql).await, 0, "{what}");
    };
    none(
        "attempts are numbered from 1 without gaps, and exactly one succeeded",
        "SELECT COUNT(*) FROM (SELECT 1 AS one FROM webhook_deliveries GROUP BY event_seq, endpoint_id
         HAVING MIN(attempt) <> 1 OR MAX(attempt) <> COUNT(*)
             OR SUM(CASE WHEN status = 2 THEN 1 ELSE 0 END) <> 1) AS wrong",
    )
    .await;
    none(
        "every event since the endpoint was made has attempts",
        "SELECT COUNT(*) FROM events e JOIN webhook_endpoints w ON w.tenant_id = e.tenant_id
         WHERE e.seq > w.after_seq AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d
             WHERE d.tenant_id = e.tenant_id AND d.event_seq = e.seq AND d.endpoint_id = w.endpoint_id)",
    )
    .await;
    let told = site.database.number(
        "SELECT COUNT(*) FROM (SELECT DISTINCT event_seq, endpoint_id FROM webhook_deliveries) AS told",
    );
    let told = told.await;
    let attempts = site
        .database
        .number("SELECT COUNT(*) FROM webhook_deliveries")
        .await;
    let lost = "SELECT COUNT(*) FROM webhook_deliveries WHERE error LIKE 'the outcome is unknown%'";
    let lost = site.database.number(lost).await;
    let mut receipts: BTreeMap<(String, String), Vec<Seen>> = BTreeMap::new();
    for seen in receiver.seen() {
        let event = (id_of(&seen).to_owned(), seen.path.clone());
        receipts.entry(event).or_default().push(seen);
    }
    let events: BTreeSet<String> = site
        .export("events")
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        i64::try_from(receipts.len()).unwrap(),
        told,
        "every event came to every endpoint"
    );
    for ((event, path), seen) in &receipts {
        assert!(events.contains(event), "{event} is no event");
        let first = &seen[0].body;
        assert!(
            seen.iter().all(|seen| seen.body == *first),
            "{event} came to {path} in several forms"
        );
    }
    let sent: usize = receipts.values().map(Vec::len).sum();
    let sent = i64::try_from(sent).unwrap();
    assert!(sent <= attempts, "{sent} requests, {attempts} attempts");
    eprintln!(
        "{} events, {told} to tell, {attempts} attempts, {lost} of them lost with a worker, {sent} requests came",
        events.len()
    );
    assert!(
        told > 0 && lost > 0,
        "nothing was ever lost: the kills missed the deliveries"
    );
}

/// What was charged was told, once, and no position is missing.
fn every_charge_has_its_event(site: &Site) {
    let rows = |what: &str| -> Vec<Value> {
        let lines = site.export(what);
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let events = rows("events");
    for (position, event) in (1_usize..).zip(&events) {
        assert_eq!(event["sequence"], position.to_string(), "{event}");
    }
    let mut burned: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "credits.burn.completed")
        .map(|event| &event["data"]["callId"])
        .collect();
    let usage = rows("usage");
    let mut charged: Vec<&Value> = usage
        .iter()
        .filter(|call| call["state"] == "captured")
        .map(|call| &call["callId"])
        .collect();
    burned.sort_by_key(ToString::to_string);
    charged.sort_by_key(ToString::to_string);
    assert_eq!(burned, charged);
    assert!(!charged.is_empty());
}
