//! Webhooks with many at work: workers that take, record and recover, and readers beside writers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use turnpike_core::ids::{EventId, TenantId, WebhookEndpointId};
use turnpike_core::ledger::Payer;
use turnpike_core::ledger::event::EventType;
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::{DeliveryStatus, EventMask};
use turnpike_store::{Canceling, ClaimedDelivery, DeliveryReport, EventFilter, ReplayOf, Store, Verdict};

use crate::actions::{audit_row, command, grant};
use crate::webhooks::{STEPS, add, deliveries, fan_out_plan, record, report, set_enabled, take};
use crate::world::{NOW, World, close, next_id, stores};

/// Writes `count` grants, two events each.
async fn grants(stores: &[Arc<dyn Store>], tenant: TenantId, count: usize) {
    let written = (0..count).zip(stores.iter().cycle()).map(|(_, store)| {
        let store = store.clone();
        tokio::spawn(async move { store.submit(command(tenant, grant(&Payer::Pool, 1))).await })
    });
    for result in join_all(written).await {
        result.unwrap().unwrap();
    }
}

/// Every event of a tenant, newest first, in pages of 100.
async fn read(store: &dyn Store, tenant: TenantId) -> Vec<(i64, EventId)> {
    let mut seen: Vec<(i64, EventId)> = Vec::new();
    loop {
        let filter = EventFilter {
            before_seq: seen.last().map(|(seq, _)| *seq),
            ..EventFilter::newest(100)
        };
        let page = store.list_events(tenant, &filter).await.unwrap();
        if page.is_empty() {
            return seen;
        }
        seen.extend(page.iter().map(|event| (event.seq, event.id)));
    }
}

// Fault matrix 178
pub(crate) async fn ten_thousand_events_are_paged_beside_eight_writers(world: &World) {
    let stores = stores(world).await;
    let tenant = world.tenant().await;
    for _ in 0..5 {
        grants(&stores, tenant, 1000).await;
    }
    let start: BTreeSet<_> = read(&*world.store, tenant).await.into_iter().collect();
    assert_eq!(start.len(), 10_000);
    let done = Arc::new(AtomicBool::new(false));
    let writers = (0..8).zip(stores.iter().cycle()).map(|(_, store)| {
        let (store, done) = (store.clone(), done.clone());
        tokio::spawn(async move {
            let mut written = 0;
            while !done.load(Ordering::SeqCst) {
                store
                    .submit(command(tenant, grant(&Payer::Pool, 1)))
                    .await
                    .unwrap();
                written += 1;
            }
            written
        })
    });
    let writers: Vec<_> = writers.collect();
    let readers = stores.iter().map(|store| read(&**store, tenant));
    let reads = join_all(readers).await;
    done.store(true, Ordering::SeqCst);
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    assert!(written >= 8, "{written}");
    for seen in reads {
        assert!(seen.windows(2).all(|pair| pair[0].0 > pair[1].0), "newest first");
        let distinct: BTreeSet<_> = seen.iter().copied().collect();
        assert_eq!(distinct.len(), seen.len(), "none is there twice");
        assert!(start.is_subset(&distinct), "none is left out");
    }
    close(stores).await;
}

pub(crate) async fn callers_at_once_make_each_attempt_once(world: &World) {
    let stores = stores(world).await;
    let tenant = world.tenant().await;
    for _ in 0..3 {
        add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    }
    let writing = grants(&stores, tenant, 400);
    let done = AtomicBool::new(false);
    let fanning = join_all((0..4).zip(stores.iter().cycle()).map(|(_, store)| {
        let done = &done;
        async move {
            let mut made = 0;
            loop {
                let last = done.load(Ordering::SeqCst);
                let fanned = store.fan_out(fan_out_plan(100)).await.unwrap();
                made += fanned.attempts;
                if last && !fanned.more {
                    return made;
                }
            }
        }
    }));
    let writing = async {
        writing.await;
        done.store(true, Ordering::SeqCst);
    };
    let ((), made) = tokio::join!(writing, fanning);
    assert_eq!(made.into_iter().sum::<u64>(), 1200);
    let mut attempts = 0;
    for (seq, _) in read(&*world.store, tenant).await {
        let rows = deliveries(world, tenant, seq).await;
        assert!(
            rows.iter()
                .all(|row| row.attempt == 1 && row.status == DeliveryStatus::Pending)
        );
        assert!(matches!(rows.len(), 0 | 3));
        attempts += rows.len();
    }
    assert_eq!(
        attempts, 1200,
        "each event that is wanted, once for each endpoint"
    );
    close(stores).await;
}

pub(crate) async fn two_thousand_attempts_are_taken_once_each(world: &World) {
    let stores = stores(world).await;
    let tenants = [world.tenant().await, world.tenant().await];
    for tenant in tenants {
        add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
        add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
        grants(&stores, tenant, 500).await;
    }
    while world.store.fan_out(fan_out_plan(1000)).await.unwrap().more {}
    let claimers = (0..8).zip(stores.iter().cycle()).map(|(_, store)| {
        let store = store.clone();
        tokio::spawn(async move {
            let (mut all, mut idle) = (Vec::new(), 0);
            // Others may hold what is left for a moment.
            while idle < 3 {
                let (claim, taken) = take(&*store, NOW, 16).await;
                idle = if taken.is_empty() { idle + 1 } else { 0 };
                let reports: Vec<_> = taken.iter().map(|d| report(d, claim, true, NOW)).collect();
                assert_eq!(
                    store.record_deliveries(&reports).await.unwrap(),
                    u64::try_from(reports.len()).unwrap()
                );
                all.extend(taken);
            }
            all
        })
    });
    let mut seen = BTreeMap::new();
    for taken in join_all(claimers).await {
        for taken in taken.unwrap() {
            let place = (taken.tenant, taken.endpoint, taken.event.seq, taken.attempt);
            *seen.entry(place).or_insert(0) += 1;
        }
    }
    assert_eq!(seen.len(), 2000);
    assert!(seen.values().all(|times| *times == 1));
    assert!(world.store.list_due_endpoints(NOW).await.unwrap().is_empty());
    close(stores).await;
}

/// What is true of the attempts of an event at any time: one at most is open, and their numbers have no gap.
async fn check(world: &World, tenant: TenantId, seq: i64) {
    let rows = deliveries(world, tenant, seq).await;
    let open = |row: &&turnpike_store::DeliveryRow| {
        matches!(row.status, DeliveryStatus::Pending | DeliveryStatus::Delivering)
    };
    assert!(rows.iter().filter(open).count() <= 1, "{rows:?}");
    for (row, number) in rows.iter().zip(1..) {
        assert_eq!(row.attempt, number, "{rows:?}");
    }
    let succeeded = rows
        .iter()
        .filter(|row| row.status == DeliveryStatus::Succeeded)
        .count();
    let manual = rows.iter().filter(|row| row.manual_replay).count();
    assert!(succeeded <= 1 + manual, "{rows:?}");
}

// Fault matrix 52
pub(crate) async fn reports_recoveries_and_replays_race_and_one_attempt_is_open(world: &World) {
    let stores = stores(world).await;
    let tenant = world.tenant().await;
    let endpoint = add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    grants(&stores, tenant, 20).await;
    while world.store.fan_out(fan_out_plan(1000)).await.unwrap().more {}
    let events: Vec<_> = read(&*world.store, tenant).await;
    let mut now = NOW;
    for round in 0_u32..12 {
        let (claim, taken) = take(&*world.store, now, 100).await;
        let late = now.plus_millis(30_001);
        let succeeds = round % 3 == 2;
        let reports: Vec<_> = taken.iter().map(|d| report(d, claim, succeeds, late)).collect();
        let other = stores.last().unwrap();
        let replays = async {
            for (_, event) in events.iter().take(8) {
                let of = ReplayOf::One(*event);
                other
                    .replay(tenant, endpoint, of, Some(&audit_row(tenant)), late)
                    .await
                    .unwrap();
            }
        };
        let (recorded, recovered, ()) = tokio::join!(
            record(world, &reports),
            async {
                // Two services notice the lease at the same moment; one may have to stand back.
                let both = tokio::join!(
                    world.store.recover_deliveries(late, late, next_id(), STEPS),
                    other.recover_deliveries(late, late, next_id(), STEPS)
                );
                both.0.unwrap_or(0) + both.1.unwrap_or(0)
            },
            replays
        );
        assert_eq!(
            recorded + recovered,
            u64::try_from(taken.len()).unwrap(),
            "each attempt ended once, round {round}"
        );
        for (seq, _) in &events {
            check(world, tenant, *seq).await;
        }
        now = late.plus_millis(10_000);
    }
    let (claim, taken) = take(&*world.store, now, 100).await;
    let recovered = world
        .store
        .recover_deliveries(Timestamp::from_millis(i64::MAX), now, next_id(), STEPS)
        .await;
    assert_eq!(recovered.unwrap(), u64::try_from(taken.len()).unwrap());
    let before = deliveries(world, tenant, taken[0].event.seq).await;
    let too_late: Vec<_> = taken.iter().map(|d| report(d, claim, false, now)).collect();
    assert_eq!(record(world, &too_late).await, 0);
    assert_eq!(deliveries(world, tenant, taken[0].event.seq).await, before);
    close(stores).await;
}

pub(crate) async fn a_late_failure_does_not_disable_who_was_enabled_again(world: &World) {
    let tenant = world.tenant().await;
    let endpoint = add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    grants(std::slice::from_ref(&world.store), tenant, 3).await;
    while world.store.fan_out(fan_out_plan(1000)).await.unwrap().more {}
    let is_disabled = async || {
        let found = world.store.find_webhook_endpoint(tenant, endpoint).await;
        found.unwrap().unwrap().disabled.is_some()
    };
    let failed = |taken: &ClaimedDelivery, claim, at, verdict| DeliveryReport {
        verdict,
        ..report(taken, claim, false, at)
    };
    let (claim, taken) = take(&*world.store, NOW, 3).await;
    record(world, &[failed(&taken[0], claim, NOW, Some(Verdict::Fails))]).await;
    let later = NOW.plus_millis(1000);
    let hopeless = Some(Verdict::Hopeless(NOW.plus_millis(500)));
    record(world, &[failed(&taken[1], claim, later, hopeless)]).await;
    assert!(is_disabled().await);
    let canceling = world.store.cancel_deliveries(tenant, endpoint, later, 100).await;
    assert_eq!(canceling.unwrap(), Canceling::Done);
    assert!(set_enabled(&*world.store, tenant, endpoint, true).await);
    // It was taken while the endpoint had only failed for days.
    let after = later.plus_millis(1000);
    assert_eq!(
        record(world, &[failed(&taken[2], claim, after, hopeless)]).await,
        1
    );
    assert!(!is_disabled().await);
}

/// An endpoint that comes into use is told of every event from some point on, whatever is written and fanned out at the
/// same moment.
pub(crate) async fn who_comes_into_use_misses_nothing_afterwards(world: &World) {
    const ENDPOINTS: usize = 12;
    let stores = stores(world).await;
    // One workspace has endpoints all the time, another gets its first one while it is busy.
    for seasoned in [true, false] {
        let tenant = world.tenant().await;
        if seasoned {
            add(world, tenant, EventMask::ALL).await;
        }
        let mut sleeping = Vec::new();
        for _ in 0..ENDPOINTS / 2 {
            let id = add(world, tenant, EventMask::ALL).await;
            assert!(set_enabled(&*world.store, tenant, id, false).await);
            world.store.cancel_deliveries(tenant, id, NOW, 100).await.unwrap();
            sleeping.push(id);
        }
        let done = AtomicBool::new(false);
        let fanning = join_all(stores.iter().map(|store| async {
            while !done.load(Ordering::SeqCst) {
                store.fan_out(fan_out_plan(50)).await.unwrap();
            }
        }));
        let waking = async {
            let mut woken = Vec::new();
            for id in sleeping {
                assert!(set_enabled(&*world.store, tenant, id, true).await);
                woken.push(id);
                woken.push(add(world, tenant, EventMask::ALL).await);
            }
            woken
        };
        let working = async {
            let ((), woken) = tokio::join!(grants(&stores, tenant, 300), waking);
            done.store(true, Ordering::SeqCst);
            woken
        };
        let (_, woken) = tokio::join!(fanning, working);
        while world.store.fan_out(fan_out_plan(1000)).await.unwrap().more {}
        let events = read(&*world.store, tenant).await;
        let mut told: HashMap<WebhookEndpointId, Vec<i64>> = HashMap::new();
        for (seq, _) in &events {
            for row in deliveries(world, tenant, *seq).await {
                told.entry(row.endpoint).or_default().push(*seq);
            }
        }
        let newest = events.iter().map(|(seq, _)| *seq).max().unwrap();
        for id in woken {
            let mut seqs = told.remove(&id).unwrap_or_default();
            seqs.sort_unstable();
            let first = seqs.first().copied().unwrap_or(newest + 1);
            assert_eq!(seqs, (first..=newest).collect::<Vec<_>>(), "a gap");
        }
    }
    close(stores).await;
}
