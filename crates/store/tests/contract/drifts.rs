//! Usage drift: what a day cost, windows that are told of once, and what providers say of their days.

use std::sync::Arc;

use futures_util::future::join_all;
use turnpike_core::ids::{CallId, TenantId};
use turnpike_core::ledger::command::{Capture, Drift, DriftChange, DriftKind, DriftReport, FinishStream};
use turnpike_core::ledger::drift::{
    DriftEvidence, DriftFigures, DriftKey, DriftResolution, DriftState, DriftThreshold,
};
use turnpike_core::ledger::event::EventType;
use turnpike_core::ledger::{Action, Command, Outcome, Payer};
use turnpike_core::money::Micros;
use turnpike_core::time::{Day, Timestamp};
use turnpike_store::{DayCosts, DriftImport, EventFilter, Store};
use uuid::Uuid;

use crate::actions::{answer, charge, command, grant, new_hold, reference, release, usd};
use crate::world::{Kind, NOW, World, next_id};

fn at(at: Timestamp, tenant: TenantId, action: Action) -> Command {
    Command {
        at,
        ..command(tenant, action)
    }
}

/// A call id as it is made at `at`.
fn call_id(at: Timestamp) -> CallId {
    let millis = u64::try_from(at.millis()).unwrap();
    let (_, low) = next_id().as_u64_pair();
    CallId(Uuid::from_u64_pair(millis << 16 | 0x7000, 1 << 63 | low))
}

fn loss(micros: i64) -> Option<Drift> {
    (micros > 0).then(|| Drift {
        kind: DriftKind::AboveHold,
        detail: "test".into(),
        loss: usd(micros),
    })
}

/// A call of `provider` whose id is made at `made` and whose hold is taken at `begun`.
async fn call(
    world: &World,
    tenant: TenantId,
    provider: &str,
    (made, begun): (Timestamp, Timestamp),
    lost: i64,
) -> turnpike_core::ledger::command::NewHold {
    let mut hold = new_hold(&Payer::Pool, 1_000);
    hold.call = call_id(made);
    hold.subject.provider = provider.into();
    let taken = at(begun, tenant, Action::Hold(Box::new(hold.clone())));
    world.store.submit(taken).await.unwrap();
    let capture = Capture {
        call: reference(&hold),
        charge: charge(700, 300),
        usage: None,
        drift: loss(lost),
        outcome: Some(answer("{}")),
    };
    let captured = at(begun.plus_millis(5), tenant, Action::Capture(Box::new(capture)));
    world.store.submit(captured).await.unwrap();
    hold
}

// Fault matrix 82, I12
pub(crate) async fn a_day_costs_what_its_calls_cost(world: &World) {
    let day = Day::of(NOW);
    let (start, last) = (day.start(), day.end().plus_millis(-1));
    let [first, other, idle] = [world.tenant().await, world.tenant().await, world.tenant().await];
    for tenant in [first, other, idle] {
        world.run(tenant, grant(&Payer::Pool, 1_000_000)).await.unwrap();
    }
    // The day's first and last millisecond, an id that was made before midnight, and what lies outside.
    for times in [
        (start, start),
        (last, last),
        (start.plus_millis(-40_000), start.plus_millis(2)),
        (start.plus_millis(-9), start.plus_millis(-1)),
        (last, day.end()),
        (day.end().plus_millis(1), day.end().plus_millis(1)),
    ] {
        call(world, first, "openai", times, 11).await;
    }
    call(world, first, "cheap", (NOW, NOW), 0).await;
    call(world, other, "openai", (NOW, NOW), 0).await;
    // A stream that was credited back, a call whose outcome is unknown, one that failed, one that runs.
    let mut stream = new_hold(&Payer::Pool, 1_000);
    let mut unknown = new_hold(&Payer::Pool, 500);
    let mut failed = new_hold(&Payer::Pool, 500);
    let mut open = new_hold(&Payer::Pool, 500);
    for hold in [&mut stream, &mut unknown, &mut failed, &mut open] {
        hold.call = call_id(NOW);
        world
            .run(other, Action::Hold(Box::new(hold.clone())))
            .await
            .unwrap();
    }
    let begins = Capture {
        call: reference(&stream),
        charge: charge(800, 200),
        usage: None,
        drift: None,
        outcome: None,
    };
    let ends = FinishStream {
        call: reference(&stream),
        charge: charge(400, 100),
        refund_kind: "stream_true_up",
        usage: None,
        drift: None,
        failure: None,
        outcome: answer("data: x\n\n"),
    };
    for action in [
        Action::Capture(Box::new(begins)),
        Action::FinishStream(Box::new(ends)),
        Action::MarkDispatched(reference(&unknown)),
        Action::Expire(reference(&unknown)),
        release(&failed, None),
    ] {
        world.run(other, action).await.unwrap();
    }
    let costs = |tenant, metered, loss| DayCosts {
        tenant,
        metered: usd(metered),
        loss: usd(loss),
    };
    let mut expected = vec![costs(first, 2_100, 33), costs(other, 1_100, 500)];
    expected.sort_by_key(|costs| costs.tenant);
    assert_eq!(
        world.store.day_costs("openai", day, None).await.unwrap(),
        expected
    );
    for costs in expected {
        let found = world.store.day_costs("openai", day, Some(costs.tenant)).await;
        assert_eq!(found.unwrap(), [costs]);
    }
    let nothing = world.store.day_costs("openai", day, Some(idle)).await.unwrap();
    assert_eq!(nothing, []);
    assert_eq!(
        world
            .store
            .day_costs("openai", day.previous(), None)
            .await
            .unwrap(),
        [costs(first, 700, 11)]
    );
    assert_eq!(
        world.store.day_costs("openai", day.next(), None).await.unwrap(),
        [costs(first, 1_400, 22)]
    );
    let losses = async |least| world.store.list_day_losses(day, usd(least)).await.unwrap();
    let mut both = vec![(first, "openai".to_owned()), (other, "openai".to_owned())];
    both.sort();
    assert_eq!(losses(33).await, both);
    assert_eq!(losses(34).await, [(other, "openai".to_owned())]);
    assert_eq!(losses(501).await, []);
}

fn report(day: Day, metered: i64, provider: i64) -> DriftReport {
    let figures = DriftFigures {
        metered_usd: usd(metered),
        provider_usd: usd(provider),
    };
    DriftReport {
        provider: "openai".into(),
        day,
        measured_day: day,
        figures,
        judged: figures,
        evidence: DriftEvidence::Reported,
        threshold: DriftThreshold {
            bps: 100,
            usd: Micros::new(1_000_000),
        },
    }
}

async fn tell(world: &World, tenant: TenantId, report: &DriftReport) -> DriftChange {
    let told = world
        .run(tenant, Action::DriftReport(Box::new(report.clone())))
        .await;
    let Outcome::Drift(change) = told.unwrap() else {
        panic!("a report was answered by another outcome")
    };
    change
}

/// How often a tenant was told of a drift, and of its end.
async fn told(store: &dyn Store, tenant: TenantId) -> (usize, usize) {
    let events = store
        .list_events(tenant, &EventFilter::newest(1000))
        .await
        .unwrap();
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    (
        count(EventType::UsageDriftDetected),
        count(EventType::UsageDriftResolved),
    )
}

pub(crate) async fn a_drift_comes_back_as_it_was_told(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let day = Day::of(NOW).previous();
    let key = |tenant, provider: &str| DriftKey {
        tenant,
        provider: provider.into(),
        day,
    };
    assert_eq!(
        world.store.find_drift(&key(tenant, "openai")).await.unwrap(),
        None
    );
    assert_eq!(
        tell(world, tenant, &report(day, 5, 2_000_000)).await,
        DriftChange::Detected
    );
    let mut quoted = report(day, 0, 3_000_000);
    quoted.provider = "it's \"x\"; --".into();
    assert_eq!(tell(world, other, &quoted).await, DriftChange::Detected);
    let open = world.store.list_open_drifts().await.unwrap();
    assert_eq!(open.len(), 2);
    let (found, window) = open.iter().find(|(key, _)| key.tenant == tenant).unwrap();
    assert_eq!(*found, key(tenant, "openai"));
    assert_eq!(
        (
            window.state,
            window.figures,
            window.detected_at,
            window.resolved_at
        ),
        (DriftState::Detected, report(day, 5, 2_000_000).figures, NOW, None)
    );
    assert_eq!(
        world.store.find_drift(found).await.unwrap().as_ref(),
        Some(window)
    );
    assert_eq!(
        world
            .store
            .find_drift(&key(tenant, &quoted.provider))
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        tell(world, tenant, &report(day, 5, 5)).await,
        DriftChange::Resolved
    );
    let over = world
        .store
        .find_drift(&key(tenant, "openai"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (over.state, over.resolution, over.resolved_at),
        (DriftState::Resolved, Some(DriftResolution::Corrected), Some(NOW))
    );
    assert_eq!(world.store.list_open_drifts().await.unwrap().len(), 1);
    assert_eq!(
        tell(world, tenant, &report(day, 5, 9_000_000)).await,
        DriftChange::Unchanged
    );
    assert_eq!(told(&*world.store, tenant).await, (1, 1));
    assert_eq!(told(&*world.store, other).await, (1, 0));
}

// Fault matrix 82, I8
pub(crate) async fn sixteen_reports_at_once_tell_once(world: &World) {
    let tenant = world.tenant().await;
    let day = Day::of(NOW).previous();
    // A second node where there can be one.
    let second = world.second().await.unwrap_or_else(|_locked| world.store.clone());
    let stores = [world.store.clone(), second];
    // A drift, its end, and a drift of a window that is over.
    let (drifts, agrees) = (
        report(day, 1_000_000, 10_000_000),
        report(day, 1_000_000, 1_000_000),
    );
    for (reported, change, times, counts) in [
        (&drifts, DriftChange::Detected, 1, (1, 0)),
        (&agrees, DriftChange::Resolved, 1, (1, 1)),
        (&drifts, DriftChange::Detected, 0, (1, 1)),
    ] {
        let all = (0..16).map(|number| {
            let store: Arc<dyn Store> = stores[number % 2].clone();
            let action = Action::DriftReport(Box::new(reported.clone()));
            tokio::spawn(async move { store.submit(command(tenant, action)).await.unwrap() })
        });
        let outcomes: Vec<Outcome> = join_all(all).await.into_iter().map(Result::unwrap).collect();
        let changed = outcomes
            .iter()
            .filter(|outcome| **outcome == Outcome::Drift(change));
        assert_eq!(changed.count(), times);
        assert_eq!(told(&*world.store, tenant).await, counts);
    }
    if world.kind == Kind::Postgres {
        stores[1].close().await;
    }
}

pub(crate) async fn what_a_provider_says_is_replaced_and_judged_once(world: &World) {
    let day = Day::of(NOW);
    let import = |day, amount, later| DriftImport {
        provider: "openai".to_owned(),
        day,
        amount: usd(amount),
        source: "costs.csv".to_owned(),
        imported_at: NOW.plus_millis(later),
    };
    let (first, second) = (import(day.previous(), 5, 0), import(day, 7, 0));
    let store = &world.store;
    store
        .put_drift_imports(&[second.clone(), first.clone()])
        .await
        .unwrap();
    let pending = async || store.list_pending_drift_imports(10).await.unwrap();
    assert_eq!(pending().await, [first.clone(), second.clone()]);
    assert_eq!(
        store.list_pending_drift_imports(1).await.unwrap(),
        std::slice::from_ref(&first)
    );
    let found = async |day| store.find_drift_import("openai", day).await.unwrap();
    assert_eq!(found(day).await, Some(second.clone()));
    assert_eq!(found(day.next()).await, None);
    // Replaced while it was being judged: to be judged again.
    let corrected = import(day.previous(), 6, 10);
    store
        .put_drift_imports(std::slice::from_ref(&corrected))
        .await
        .unwrap();
    assert!(!store.mark_drift_import(&first, NOW).await.unwrap());
    assert_eq!(pending().await, [corrected.clone(), second.clone()]);
    assert!(store.mark_drift_import(&corrected, NOW).await.unwrap());
    assert!(!store.mark_drift_import(&corrected, NOW).await.unwrap());
    assert_eq!(pending().await, std::slice::from_ref(&second));
    assert_eq!(found(day.previous()).await, Some(corrected.clone()));
    store
        .put_drift_imports(std::slice::from_ref(&corrected))
        .await
        .unwrap();
    assert_eq!(pending().await, [corrected, second]);
}
