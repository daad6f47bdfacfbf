//! Webhooks: what is delivered to whom, by one worker and by many.

use turnpike_core::ids::{TenantId, WebhookEndpointId};
use turnpike_core::ledger::Payer;
use turnpike_core::ledger::event::EventType;
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::{DeliveryStatus, DisabledReason, EventMask};
use turnpike_store::{
    Canceling, ClaimedDelivery, DeliveryReport, DeliveryRow, EndpointChange, FanOutPlan, NextAttempt, Pruned,
    ReplayOf, Slots, Span, Store, Verdict, WebhookEndpoint,
};
use uuid::Uuid;

use crate::actions::{audit_row, grant};
use crate::world::{NOW, World, next_id};

const PATIENCE_MS: i64 = 5 * 86_400_000;
/// Of the schedule.
pub(crate) const STEPS: i16 = 8;
const FOREVER: Timestamp = Timestamp::from_millis(i64::MAX);

pub(crate) fn endpoint(tenant: TenantId, mask: EventMask) -> WebhookEndpoint {
    WebhookEndpoint {
        tenant,
        id: WebhookEndpointId(next_id()),
        url: "https://receiver.example/hook".to_owned(),
        description: String::new(),
        mask,
        disabled: None,
        failing_since: None,
        secrets: "[]".to_owned(),
        created_at: NOW,
        updated_at: NOW,
    }
}

pub(crate) async fn add(world: &World, tenant: TenantId, mask: EventMask) -> WebhookEndpointId {
    let endpoint = endpoint(tenant, mask);
    let audit = audit_row(tenant);
    assert!(
        world
            .store
            .insert_webhook_endpoint(&endpoint, 100, &audit)
            .await
            .unwrap()
    );
    endpoint.id
}

/// Two events: `topup.completed` and `balance.changed`.
pub(crate) async fn two_events(world: &World, tenant: TenantId) {
    world.run(tenant, grant(&Payer::Pool, 1)).await.unwrap();
}

async fn fan_out(world: &World) -> u64 {
    let mut attempts = 0;
    loop {
        let done = world.store.fan_out(fan_out_plan(1000)).await.unwrap();
        attempts += done.attempts;
        if !done.more {
            return attempts;
        }
    }
}

/// Attempts are due at once.
pub(crate) const fn fan_out_plan(most: u32) -> FanOutPlan {
    FanOutPlan {
        most,
        due: NOW,
        turn: 3,
    }
}

/// Takes what is due now, up to `count` for each endpoint.
pub(crate) async fn take(store: &dyn Store, now: Timestamp, count: u32) -> (Uuid, Vec<ClaimedDelivery>) {
    let due = store.list_due_endpoints(now).await.unwrap();
    let slots: Vec<Slots> = due
        .into_iter()
        .map(|due| Slots {
            tenant: due.tenant,
            endpoint: due.id,
            url: due.url,
            count,
        })
        .collect();
    let claim = next_id();
    let lease = now.plus_millis(30_000);
    let taken = store.claim_deliveries(&slots, now, claim, lease).await.unwrap();
    (claim, taken)
}

async fn claim(world: &World, now: Timestamp, count: u32) -> (Uuid, Vec<ClaimedDelivery>) {
    take(&*world.store, now, count).await
}

/// Whether the store did it.
pub(crate) async fn set_enabled(
    store: &dyn Store,
    tenant: TenantId,
    id: WebhookEndpointId,
    enabled: bool,
) -> bool {
    let change = EndpointChange {
        enabled: Some(enabled),
        ..EndpointChange::default()
    };
    let audit = audit_row(tenant);
    store
        .change_webhook_endpoint(tenant, id, &change, &audit)
        .await
        .unwrap()
}

pub(crate) fn report(taken: &ClaimedDelivery, claim: Uuid, succeeded: bool, at: Timestamp) -> DeliveryReport {
    DeliveryReport {
        tenant: taken.tenant,
        event_seq: taken.event.seq,
        endpoint: taken.endpoint,
        url: taken.url.clone(),
        attempt: taken.attempt,
        claim,
        succeeded,
        finished_at: at,
        http_status: Some(if succeeded { 200 } else { 500 }),
        response_body: Some("said".to_owned()),
        error: (!succeeded).then(|| "HTTP 500".to_owned()),
        next: (!succeeded).then(|| NextAttempt {
            step: taken.step + 1,
            at: at.plus_millis(5000),
        }),
        verdict: Some(if succeeded { Verdict::Works } else { Verdict::Fails }),
    }
}

pub(crate) async fn record(world: &World, reports: &[DeliveryReport]) -> u64 {
    world.store.record_deliveries(reports).await.unwrap()
}

pub(crate) async fn deliveries(world: &World, tenant: TenantId, seq: i64) -> Vec<DeliveryRow> {
    world.store.list_deliveries(tenant, seq).await.unwrap()
}

fn statuses(rows: &[DeliveryRow]) -> Vec<(i32, &'static str)> {
    rows.iter()
        .map(|row| (row.attempt, row.status.as_str()))
        .collect()
}

pub(crate) async fn an_event_reaches_the_endpoints_that_want_it(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    two_events(world, tenant).await;
    let all = add(world, tenant, EventMask::ALL).await;
    let topups = add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    let nothing = add(world, tenant, EventMask::of(&[])).await;
    add(world, other, EventMask::ALL).await;
    assert_eq!(fan_out(world).await, 0, "nothing of what was before");
    two_events(world, tenant).await;
    assert_eq!(fan_out(world).await, 3);
    assert_eq!(fan_out(world).await, 0);
    let (under, taken) = claim(world, NOW, 10).await;
    let mut told: Vec<_> = taken
        .iter()
        .map(|d| (d.endpoint, d.event.seq, d.event.kind))
        .collect();
    told.sort_unstable();
    let mut wanted = vec![
        (all, 3, EventType::TopupCompleted),
        (all, 4, EventType::BalanceChanged),
        (topups, 3, EventType::TopupCompleted),
    ];
    wanted.sort_unstable();
    assert_eq!(told, wanted);
    assert!(claim(world, NOW, 10).await.1.is_empty(), "taken once");
    let reports: Vec<_> = taken.iter().map(|d| report(d, under, true, NOW)).collect();
    assert_eq!(record(world, &reports).await, 3);
    assert_eq!(record(world, &reports).await, 0, "told once");
    let rows = deliveries(world, tenant, 3).await;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.status == DeliveryStatus::Succeeded
        && row.http_status == Some(200)
        && row.started_at == Some(NOW)
        && row.finished_at == Some(NOW)
        && row.endpoint != nothing));
    let latest = world.store.latest_deliveries(tenant, &[1, 3, 4]).await.unwrap();
    assert_eq!(
        latest.iter().map(|row| row.event_seq).collect::<Vec<_>>().len(),
        2
    );
    assert!(world.store.list_deliveries(other, 3).await.unwrap().is_empty());
    let found = world
        .store
        .find_event(tenant, taken[0].event.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.seq, taken[0].event.seq);
    assert!(
        world
            .store
            .find_event(other, taken[0].event.id)
            .await
            .unwrap()
            .is_none()
    );
}

pub(crate) async fn a_failed_attempt_is_followed_by_another(world: &World) {
    let tenant = world.tenant().await;
    add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    two_events(world, tenant).await;
    fan_out(world).await;
    let mut now = NOW;
    for attempt in 1..=3 {
        let (under, taken) = claim(world, now, 10).await;
        let [taken] = taken.as_slice() else {
            panic!("{taken:?}")
        };
        assert_eq!((taken.attempt, i32::from(taken.step)), (attempt, attempt - 1));
        record(world, &[report(taken, under, false, now)]).await;
        assert!(claim(world, now.plus_millis(4999), 10).await.1.is_empty());
        now = now.plus_millis(5000);
    }
    let rows = deliveries(world, tenant, 1).await;
    assert_eq!(
        statuses(&rows),
        [(1, "failed"), (2, "failed"), (3, "failed"), (4, "pending")]
    );
    assert_eq!(rows[0].error.as_deref(), Some("HTTP 500"));
    let latest = world.store.latest_deliveries(tenant, &[1]).await.unwrap();
    assert_eq!(statuses(&latest), [(4, "pending")]);
}

// Fault matrix 52
pub(crate) async fn a_lost_worker_loses_its_attempts(world: &World) {
    let tenant = world.tenant().await;
    add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    two_events(world, tenant).await;
    fan_out(world).await;
    let (under, taken) = claim(world, NOW, 10).await;
    let later = NOW.plus_millis(30_001);
    let recover = async |before, now| {
        world
            .store
            .recover_deliveries(before, now, next_id(), STEPS)
            .await
            .unwrap()
    };
    assert_eq!(recover(NOW, NOW).await, 0, "its lease still runs");
    assert_eq!(recover(later, later).await, 1);
    assert_eq!(recover(later.plus_millis(9), later.plus_millis(9)).await, 0);
    assert_eq!(
        record(world, &[report(&taken[0], under, true, later)]).await,
        0,
        "too late"
    );
    assert_eq!(
        statuses(&deliveries(world, tenant, 1).await),
        [(1, "failed"), (2, "pending")]
    );
    let (under, again) = claim(world, later, 10).await;
    assert_eq!(
        (again[0].attempt, again[0].step),
        (2, 0),
        "no step of the schedule was used up"
    );
    assert_eq!(record(world, &[report(&again[0], under, true, later)]).await, 1);
    // A service that starts on a file of its own knows that nobody else works.
    two_events(world, tenant).await;
    fan_out(world).await;
    claim(world, later, 10).await;
    assert_eq!(recover(FOREVER, later).await, 1);
}

// Fault matrix 175
pub(crate) async fn an_endpoint_out_of_use_gets_nothing(world: &World) {
    let tenant = world.tenant().await;
    let (one, two) = (
        add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await,
        add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await,
    );
    two_events(world, tenant).await;
    fan_out(world).await;
    assert!(set_enabled(&*world.store, tenant, one, false).await);
    assert!(
        world
            .store
            .delete_webhook_endpoint(tenant, two, &audit_row(tenant))
            .await
            .unwrap()
    );
    assert!(
        !world
            .store
            .delete_webhook_endpoint(tenant, two, &audit_row(tenant))
            .await
            .unwrap()
    );
    assert!(claim(world, NOW, 10).await.1.is_empty());
    let canceling = world.store.list_canceling_endpoints().await.unwrap();
    assert_eq!(canceling.iter().filter(|(of, _)| *of == tenant).count(), 2);
    // Not before what waits from earlier is canceled.
    assert!(!set_enabled(&*world.store, tenant, one, true).await);
    assert!(
        world
            .store
            .find_webhook_endpoint(tenant, one)
            .await
            .unwrap()
            .unwrap()
            .disabled
            .is_some()
    );
    for id in [one, two] {
        let cancel = async || world.store.cancel_deliveries(tenant, id, NOW, 1).await.unwrap();
        assert_eq!(cancel().await, Canceling::More);
        assert_eq!(cancel().await, Canceling::Done);
    }
    assert!(world.store.list_canceling_endpoints().await.unwrap().is_empty());
    let rows = deliveries(world, tenant, 1).await;
    assert_eq!(statuses(&rows), [(1, "canceled"), (1, "canceled")]);
    two_events(world, tenant).await;
    assert_eq!(fan_out(world).await, 0);
    assert!(set_enabled(&*world.store, tenant, one, true).await);
    let found = world
        .store
        .find_webhook_endpoint(tenant, one)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.disabled, None);
    two_events(world, tenant).await;
    assert_eq!(fan_out(world).await, 1, "what happened meanwhile is not told");
    // Disabled while an attempt runs: it ends, and none follows.
    let (under, taken) = claim(world, NOW, 10).await;
    assert_eq!(taken[0].event.seq, 5);
    assert!(set_enabled(&*world.store, tenant, one, false).await);
    assert_eq!(record(world, &[report(&taken[0], under, false, NOW)]).await, 1);
    assert_eq!(statuses(&deliveries(world, tenant, 5).await), [(1, "failed")]);
}

// Fault matrix 172
pub(crate) async fn a_replay_is_a_new_attempt(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let id = add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    two_events(world, tenant).await;
    fan_out(world).await;
    let event = world.events(tenant, Some(2), 1).await[0].id;
    let replay = async |tenant| {
        let audit = audit_row(tenant);
        world
            .store
            .replay(tenant, id, ReplayOf::One(event), Some(&audit), NOW)
            .await
            .unwrap()
    };
    let (under, taken) = claim(world, NOW, 10).await;
    assert_eq!(replay(tenant).await, None, "one is under way");
    record(world, &[report(&taken[0], under, true, NOW)]).await;
    assert_eq!(replay(other).await, None);
    assert_eq!(replay(tenant).await, Some(1));
    assert_eq!(replay(tenant).await, Some(1), "instead of the one that waits");
    let rows = deliveries(world, tenant, 1).await;
    assert_eq!(
        statuses(&rows),
        [(1, "succeeded"), (2, "canceled"), (3, "pending")]
    );
    assert_eq!(
        rows.iter().map(|row| row.manual_replay).collect::<Vec<_>>(),
        [false, true, true]
    );
    let (under, taken) = claim(world, NOW, 10).await;
    record(world, &[report(&taken[0], under, false, NOW)]).await;
    let rows = deliveries(world, tenant, 1).await;
    assert_eq!(statuses(&rows)[2..], [(3, "failed"), (4, "pending")]);
    assert!(!rows[3].manual_replay);
}

pub(crate) async fn what_was_missed_is_replayed(world: &World) {
    let tenant = world.tenant().await;
    let id = add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    for _ in 0..4 {
        two_events(world, tenant).await;
    }
    fan_out(world).await;
    let (under, mut taken) = claim(world, NOW, 3).await;
    taken.sort_by_key(|taken| taken.event.seq);
    let mut reports = vec![
        report(&taken[0], under, true, NOW),
        report(&taken[1], under, false, NOW),
        report(&taken[2], under, false, NOW),
    ];
    // The second is at the end of its schedule, the third is to be repeated, the fourth still waits.
    reports[1].next = None;
    record(world, &reports).await;
    let all = Span { after: 0, to: 100 };
    let seq = taken[1].event.seq;
    let missed = async |span| world.store.count_missed(tenant, id, span).await.unwrap();
    let replay = async || {
        let of = ReplayOf::Missed(all);
        world.store.replay(tenant, id, of, None, NOW).await.unwrap()
    };
    assert_eq!(missed(Span { after: seq, to: 100 }).await, 0);
    assert_eq!(missed(all).await, 1);
    assert_eq!(replay().await, Some(1));
    assert_eq!((missed(all).await, replay().await), (0, Some(0)));
    assert_eq!(
        statuses(&deliveries(world, tenant, seq).await),
        [(1, "failed"), (2, "pending")]
    );
}

pub(crate) async fn days_of_failures_disable(world: &World) {
    let tenant = world.tenant().await;
    let id = add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    let find = async || {
        world
            .store
            .find_webhook_endpoint(tenant, id)
            .await
            .unwrap()
            .unwrap()
    };
    let mut now = NOW;
    for (later, succeeds, disabled) in [
        (0, false, false),
        (PATIENCE_MS - 1, false, false),
        (1, true, false),
        (10, false, false),
        (PATIENCE_MS, false, true),
    ] {
        now = now.plus_millis(later);
        two_events(world, tenant).await;
        two_events(world, tenant).await;
        fan_out(world).await;
        let (under, taken) = claim(world, now, 1).await;
        let mut reports: Vec<_> = taken.iter().map(|d| report(d, under, succeeds, now)).collect();
        for report in &mut reports {
            report.next = None;
            if disabled {
                report.verdict = Some(Verdict::Hopeless(now.plus_millis(-PATIENCE_MS)));
            }
        }
        assert_eq!(record(world, &reports).await, 1);
        assert_eq!(find().await.disabled.is_some(), disabled, "{later}");
        assert_eq!(find().await.failing_since.is_some(), !succeeds);
    }
    assert_eq!(find().await.disabled, Some((DisabledReason::Failing, now)));
    assert!(world.store.list_due_endpoints(FOREVER).await.unwrap().is_empty());
    // 410 ends it at once.
    let gone = add(world, tenant, EventMask::of(&[EventType::TopupCompleted])).await;
    two_events(world, tenant).await;
    two_events(world, tenant).await;
    fan_out(world).await;
    let (under, taken) = claim(world, now, 1).await;
    let mut report = report(&taken[0], under, false, now);
    (report.verdict, report.next) = (Some(Verdict::Gone), None);
    let elsewhere = DeliveryReport {
        url: "https://elsewhere.example/".to_owned(),
        ..report.clone()
    };
    record(world, &[elsewhere]).await;
    let found = world
        .store
        .find_webhook_endpoint(tenant, gone)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.disabled, None, "another address said so");
    record(world, &[report]).await;
    let found = world
        .store
        .find_webhook_endpoint(tenant, gone)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.disabled, Some((DisabledReason::Gone, now)));
    assert!(claim(world, FOREVER, 9).await.1.is_empty());
}

// Fault matrix 180
pub(crate) async fn old_events_go_with_their_attempts(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    add(world, tenant, EventMask::ALL).await;
    for _ in 0..3 {
        two_events(world, tenant).await;
        two_events(world, other).await;
    }
    fan_out(world).await;
    let prune = async |before, most| world.store.prune_events(tenant, before, most).await.unwrap();
    let all_of = async |before, most| {
        let mut events = 0;
        loop {
            let pruned = prune(before, most).await;
            events += pruned.events;
            if !pruned.more {
                return events;
            }
        }
    };
    assert_eq!(prune(NOW, 100).await, Pruned::default());
    // As many attempts at once as events, and no event before its attempts.
    let after = NOW.plus_millis(1);
    assert_eq!(
        prune(after, 4).await,
        Pruned {
            events: 4,
            more: true
        }
    );
    assert_eq!(world.events(tenant, None, 100).await.len(), 2);
    assert!(deliveries(world, tenant, 4).await.is_empty());
    assert_eq!(deliveries(world, tenant, 5).await.len(), 1);
    assert_eq!(all_of(after, 1).await, 2);
    assert_eq!(world.events(other, None, 100).await.len(), 6);
    two_events(world, tenant).await;
    assert_eq!(world.events(tenant, None, 100).await[0].seq, 8);
}

pub(crate) async fn endpoints_are_counted(world: &World) {
    let tenant = world.tenant().await;
    let adding = (0..8).map(|_| async {
        let endpoint = endpoint(tenant, EventMask::ALL);
        world
            .store
            .insert_webhook_endpoint(&endpoint, 5, &audit_row(tenant))
            .await
            .unwrap()
    });
    let added = futures_util::future::join_all(adding).await;
    assert_eq!(added.into_iter().filter(|added| *added).count(), 5);
    let mut all = world.store.list_webhook_endpoints(tenant).await.unwrap();
    assert_eq!(all.len(), 5);
    let mut first = all.remove(0);
    let change = EndpointChange {
        url: Some("https://other.example/".to_owned()),
        mask: Some(EventMask::of(&[EventType::BurnFailed])),
        ..EndpointChange::default()
    };
    let audit = audit_row(tenant);
    assert!(
        world
            .store
            .change_webhook_endpoint(tenant, first.id, &change, &audit)
            .await
            .unwrap()
    );
    let changed = world
        .store
        .find_webhook_endpoint(tenant, first.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (changed.url.as_str(), changed.description.as_str()),
        ("https://other.example/", "")
    );
    assert_eq!(changed.mask.types(), Some(vec![EventType::BurnFailed]));
    assert!(
        world
            .store
            .set_webhook_secrets(&first, "[1]", &audit_row(tenant))
            .await
            .unwrap()
    );
    assert!(
        !world
            .store
            .set_webhook_secrets(&first, "[2]", &audit_row(tenant))
            .await
            .unwrap()
    );
    first.tenant = world.tenant().await;
    assert!(
        !world
            .store
            .set_webhook_secrets(&first, "[3]", &audit_row(tenant))
            .await
            .unwrap()
    );
}
