//! A worker that is killed at a chosen point of a delivery, and what its restart makes of it.

use std::time::Duration;

use serde_json::Value;

use crate::harness::upstream::answer;
use crate::harness::{Seen, Site, Store, Upstream, chat, eventually_within};
use crate::on_both_stores;
use crate::webhook_kills::{LEASES_OVER, id_of, impatient, register};

on_both_stores!(
    a_crash_between_sending_and_recording_tells_again_under_the_same_id,
    a_crash_before_sending_tells_once,
    a_crash_after_recording_does_not_tell_again,
    a_crash_right_after_the_charge_loses_no_event,
);

/// What an attempt of a dead worker says.
const UNKNOWN: &str = "the outcome is unknown: the worker ended before it could tell";

struct Rig {
    site: Site,
    receiver: Upstream,
}

impl Rig {
    async fn new(store: Store) -> Self {
        let site = impatient(store).start().await;
        let receiver = Upstream::start().await;
        receiver.always(vec![answer(200, &[], b"{}")]);
        register(&site, &receiver, "/hook").await;
        Self { site, receiver }
    }

    /// Makes a call, has the process killed at `point`, and starts it again.
    async fn crash_at(&mut self, point: &str) {
        let site = &mut self.site;
        let fail = vec![("TURNPIKE_FAILPOINT".to_owned(), point.to_owned())];
        site.restart(&fail).await;
        // The answer may or may not be quicker than the worker.
        let _cut = site.chat(&chat("flat", "hi")).once("k").try_send().await;
        let service = site.service.as_mut().unwrap();
        let status = service.wait(Duration::from_secs(10)).await;
        assert!(!status.success(), "{point}: {status}");
        let log = service.logged();
        assert!(log.contains(&format!("failpoint reached: {point}")), "{log}");
        site.restart(&[]).await;
    }

    /// The call's events with their attempts, once both have been taken.
    async fn told(&self) -> Vec<Value> {
        eventually_within(LEASES_OVER, "both events are taken", || async {
            let list = self
                .site
                .get("/api/credits/webhooks/events")
                .send()
                .await
                .expect(200)
                .json();
            let mut events = Vec::new();
            for event in list["data"].as_array().unwrap() {
                let path = format!("/api/credits/webhooks/events/{}", event["id"].as_str().unwrap());
                let event = self.site.get(&path).send().await.expect(200).json()["event"].take();
                let attempts = event["deliveries"].as_array().unwrap();
                match attempts.last() {
                    // Older than the endpoint.
                    None => {}
                    Some(last) if last["status"] == "succeeded" => events.push(event),
                    Some(_) => return None,
                }
            }
            (events.len() == 2).then_some(events)
        })
        .await
    }

    fn receipts(&self, event: &Value) -> Vec<Seen> {
        let id = event["id"].as_str().unwrap();
        self.receiver
            .seen()
            .into_iter()
            .filter(|seen| id_of(seen) == id)
            .collect()
    }
}

/// Status, error and number of every attempt of an event.
fn attempts(event: &Value) -> Vec<(i64, &str, Option<&str>)> {
    let attempts = event["deliveries"].as_array().unwrap();
    let shown = |attempt: &'_ Value| attempt["attempt"].as_i64().unwrap();
    attempts
        .iter()
        .map(|attempt| {
            (
                shown(attempt),
                attempt["status"].as_str().unwrap(),
                attempt["error"].as_str(),
            )
        })
        .collect()
}

// Fault matrix 52, I8
async fn a_crash_between_sending_and_recording_tells_again_under_the_same_id(store: Store) {
    let mut rig = Rig::new(store).await;
    rig.crash_at("after-webhook-sent").await;
    let mut again = 0;
    for event in rig.told().await {
        let receipts = rig.receipts(&event);
        let lost = attempts(&event).len() - 1;
        assert!(lost <= 1 && (1..=lost + 1).contains(&receipts.len()), "{event:#}");
        if lost == 1 {
            assert_eq!(
                attempts(&event),
                [(1, "failed", Some(UNKNOWN)), (2, "succeeded", None)]
            );
        }
        if receipts.len() == 2 {
            again += 1;
            assert_eq!(receipts[0].body, receipts[1].body, "the same bytes");
        }
    }
    assert!(again > 0, "nothing was sent before the crash");
}

async fn a_crash_before_sending_tells_once(store: Store) {
    let mut rig = Rig::new(store).await;
    rig.crash_at("after-webhook-claimed").await;
    let mut lost = 0;
    for event in rig.told().await {
        assert_eq!(rig.receipts(&event).len(), 1, "{event:#}");
        if attempts(&event).len() == 2 {
            lost += 1;
            assert_eq!(attempts(&event)[0], (1, "failed", Some(UNKNOWN)));
        }
    }
    assert!(lost > 0, "nothing was claimed before the crash");
}

async fn a_crash_after_recording_does_not_tell_again(store: Store) {
    let mut rig = Rig::new(store).await;
    rig.crash_at("after-webhook-recorded").await;
    let told = rig.told().await;
    let once = told
        .iter()
        .filter(|event| attempts(event) == [(1, "succeeded", None)])
        .count();
    assert!(once > 0, "{told:#?}");
    for event in told.iter().filter(|event| attempts(event).len() == 1) {
        assert_eq!(rig.receipts(event).len(), 1, "{event:#}");
    }
}

// Fault matrix 51, I8
async fn a_crash_right_after_the_charge_loses_no_event(store: Store) {
    let mut rig = Rig::new(store).await;
    rig.crash_at("after-capture").await;
    let told = rig.told().await;
    let types: std::collections::BTreeSet<&str> =
        told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types.into_iter().collect::<Vec<_>>(),
        ["credits.balance.changed", "credits.burn.completed"]
    );
    for event in &told {
        assert!(!rig.receipts(event).is_empty(), "{event:#}");
    }
}
