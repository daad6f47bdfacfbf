//! Paid calls: what is written of them, how they are found, and who wins when many come at once.

use std::sync::Arc;

use futures_util::future::join_all;
use turnpike_core::ids::{CallId, RequestId, TenantId};
use turnpike_core::ledger::command::{Drift, DriftKind, StoredOutcome};
use turnpike_core::ledger::paid_call::{
    ANSWER_KEPT_MS, FailPaidCall, FinishPaidCall, LeaseSettlement, NewPaidCall, Operation, PaidBy, PaidCall,
    PaidCallRef, PaidCallState, PaidSubject, PayerCap, Payment, SettlementProgress, SettlementReport,
};
use turnpike_core::ledger::{AccountKind, Action, Command, Outcome, Rejection, TenantStatus};
use turnpike_core::time::Day;
use turnpike_core::x402::Address;
use turnpike_store::{DayCosts, DuePaidCalls, SqliteOptions, SqliteStore, Store, SubmitError};
use uuid::Uuid;

use crate::actions::{answer, audit_row, charge, command, submit_all, usd};
use crate::calls::rejection;
use crate::world::{Kind, NOW, World, check_books, close, next_id, stores};

const WALLET: Address = Address([0xab; 20]);
const MAX: i64 = 1_000;

/// A house tenant of its own.
pub(crate) async fn house(store: &dyn Store) -> TenantId {
    let asset = next_id().into_bytes();
    let mut address = [0; 20];
    address[..16].copy_from_slice(&asset);
    let tenant = TenantId::house("eip155:8453", Address(address));
    store
        .ensure_house_tenant(tenant, "Public calls on eip155:8453", NOW)
        .await
        .unwrap();
    tenant
}

pub(crate) fn new_call(key: &str) -> NewPaidCall {
    NewPaidCall {
        id: RequestId(next_id()),
        subject: PaidSubject {
            operation: Operation::Chat,
            body_hash: "b0d1".into(),
            provider: Some("openai".into()),
            model: Some("m-1".into()),
            price: "{}".into(),
            base: usd(600),
        },
        payment: Payment {
            by: PaidBy::X402,
            simulated: false,
            key: key.into(),
            payer: WALLET,
            network: "eip155:8453".into(),
            asset: "0xA5".into(),
            pay_to: "0xü'é\\".into(),
            max: usd(MAX),
            valid_before: NOW.plus_millis(300_000),
            signed: Some("{\"signature\":\"0x\\u0000'\"}".into()),
        },
        instance: Uuid::nil(),
        due_at: NOW.plus_millis(60_000),
        cap: PayerCap {
            amount: usd(100 * MAX),
            calls: 100,
        },
    }
}

pub(crate) fn named(new: &NewPaidCall) -> PaidCallRef {
    PaidCallRef {
        id: new.id,
        payer: new.payment.payer,
        key: new.payment.key.clone(),
    }
}

pub(crate) fn claims(new: &NewPaidCall) -> Action {
    Action::ClaimPaidCall(Box::new(new.clone()))
}

pub(crate) fn finishes(new: &NewPaidCall, base: i64, margin: i64) -> Action {
    Action::FinishPaidCall(Box::new(FinishPaidCall {
        call: named(new),
        charge: charge(base, margin),
        usage: None,
        drift: None,
        outcome: answer("{\"ok\":1}"),
        due_at: NOW.plus_millis(30_000),
    }))
}

pub(crate) fn told(new: &NewPaidCall, progress: SettlementProgress) -> Action {
    let call = named(new);
    Action::ReportSettlement(SettlementReport {
        call,
        tries: None,
        progress,
    })
}

pub(crate) fn settled(amount: i64) -> SettlementProgress {
    SettlementProgress::Settled {
        amount: usd(amount),
        transaction: "0xfeed".into(),
        response: "{\"success\":true}".into(),
    }
}

fn leases(new: &NewPaidCall, tries: u32) -> Action {
    Action::LeaseSettlement(LeaseSettlement {
        call: named(new),
        instance: next_id(),
        due_at: NOW.plus_millis(90_000),
        tries,
    })
}

pub(crate) fn row(answered: Result<Outcome, SubmitError>) -> (PaidCall, bool) {
    let Ok(Outcome::PaidCall { call, changed }) = answered else {
        panic!("{answered:?}")
    };
    (*call, changed)
}

async fn run(world: &World, tenant: TenantId, action: Action) -> PaidCall {
    let (call, changed) = row(world.run(tenant, action).await);
    assert!(changed);
    call
}

/// Held by the wallet, its calls, and what it paid.
async fn wallet(store: &dyn Store, tenant: TenantId) -> (i64, i64, i64) {
    let key = PaidCall::account(tenant, WALLET);
    let account = store.find_account(&key).await.unwrap().unwrap_or_default();
    (account.held.get(), account.open_calls, -account.posted.get())
}

// Fault matrix 185, I4, I5: whatever a command answers is what a later reader finds, to the last member.
pub(crate) async fn a_paid_call_comes_back_as_it_was_answered(world: &World) {
    let store = &world.store;
    let tenant = house(&**store).await;
    let new = new_call("exact:one");
    let steps = [
        claims(&new),
        finishes(&new, 400, 100),
        told(
            &new,
            SettlementProgress::Refused {
                response: "{\"success\":false}".into(),
            },
        ),
        leases(&new, 1),
        told(
            &new,
            SettlementProgress::Unknown {
                due_at: NOW.plus_millis(7),
            },
        ),
        told(&new, settled(500)),
    ];
    assert_eq!(store.find_paid_call(new.id).await.unwrap(), None);
    for step in steps {
        let answered = run(world, tenant, step).await;
        assert_eq!(
            store.find_paid_call(new.id).await.unwrap(),
            Some((tenant, answered))
        );
    }
    let claimed = store.find_claimed_payment(tenant, "exact:one").await.unwrap();
    assert_eq!(claimed, Some(new.id));
    assert_eq!(
        store.find_claimed_payment(tenant, "exact:\0").await.unwrap(),
        None
    );
    let outcome = store.find_outcome(tenant, CallId(new.id.0)).await.unwrap();
    assert_eq!(outcome, Some(answer("{\"ok\":1}")));
    assert_eq!(wallet(&**store, tenant).await, (0, 0, 500));
    assert_eq!(world.posted(tenant, AccountKind::ProviderCost).await, 400);
    assert_eq!(world.posted(tenant, AccountKind::Margin).await, 100);
    // Whoever asks again is told the same, and nothing is booked.
    for again in [claims(&new), finishes(&new, 400, 100), told(&new, settled(500))] {
        let (call, changed) = row(world.run(tenant, again).await);
        assert_eq!((call.state, changed), (PaidCallState::Settled, false));
    }
    assert_eq!(wallet(&**store, tenant).await, (0, 0, 500));
}

// Fault matrix 56: given up where nobody was asked, the request and its payment begin again; in one batch too.
pub(crate) async fn what_was_not_sent_begins_again(world: &World) {
    let tenant = house(&*world.store).await;
    let mut new = new_call("exact:one");
    new.subject.provider = None;
    run(world, tenant, claims(&new)).await;
    run(world, tenant, Action::AbandonPaidCall(named(&new))).await;
    assert_eq!(world.store.find_paid_call(new.id).await.unwrap(), None);
    let claimed = world.store.find_claimed_payment(tenant, "exact:one").await;
    assert_eq!(claimed.unwrap(), None);
    assert_eq!(wallet(&*world.store, tenant).await, (0, 0, 0));
    let mut other = new_call("exact:one");
    other.id = new.id;
    other.subject.provider = Some("cheap".into());
    let mut all = Vec::new();
    for _ in 0..20 {
        all.extend([claims(&new), Action::AbandonPaidCall(named(&new))]);
    }
    all.push(claims(&other));
    let results = join_all(all.into_iter().map(|action| world.run(tenant, action))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let found = world.store.find_paid_call(new.id).await.unwrap().unwrap().1;
    assert_eq!(found.subject, other.subject);
    assert_eq!(wallet(&*world.store, tenant).await, (MAX, 1, 0));
}

// Fault matrix 189: fifty at once for one request; one of them carries it out.
pub(crate) async fn fifty_claims_of_one_request_claim_once(world: &World) {
    let tenant = house(&*world.store).await;
    let stores = stores(world).await;
    let new = new_call("exact:one");
    let results = submit_all(&stores, tenant, (0..50).map(|_| claims(&new))).await;
    let changed = results
        .into_iter()
        .map(row)
        .filter(|(_, changed)| *changed)
        .count();
    assert_eq!(changed, 1);
    assert_eq!(wallet(&*world.store, tenant).await, (MAX, 1, 0));
    close(stores).await;
}

// Fault matrix 187, 190: one payment under fifty request ids pays for one.
pub(crate) async fn one_payment_pays_for_one_of_fifty_requests(world: &World) {
    let tenant = house(&*world.store).await;
    let stores = stores(world).await;
    let all: Vec<NewPaidCall> = (0..50).map(|_| new_call("exact:one")).collect();
    let results = submit_all(&stores, tenant, all.iter().map(claims)).await;
    let conflicts = results
        .iter()
        .filter(|result| matches!(result, Err(SubmitError::Rejected(Rejection::PaidCallConflict))));
    assert_eq!(conflicts.count(), 49);
    let won = results.iter().position(Result::is_ok).unwrap();
    let claimed = world.store.find_claimed_payment(tenant, "exact:one").await;
    assert_eq!(claimed.unwrap(), Some(all[won].id));
    assert_eq!(wallet(&*world.store, tenant).await, (MAX, 1, 0));
    close(stores).await;
}

// A verified payment locks no money: what a wallet may have open is counted here.
pub(crate) async fn a_wallet_has_no_more_open_than_it_may(world: &World) {
    let tenant = house(&*world.store).await;
    let stores = stores(world).await;
    for (amount, calls, admitted) in [(7 * MAX + 999, 100, 7), (100 * MAX, 9, 9)] {
        let all = (0..40).map(|_| {
            let mut new = new_call(&format!("exact:{}", next_id()));
            new.cap = PayerCap {
                amount: usd(amount),
                calls,
            };
            claims(&new)
        });
        let results = submit_all(&stores, tenant, all).await;
        let refused = results.iter().filter(|result| {
            matches!(
                result,
                Err(SubmitError::Rejected(Rejection::PayerCapReached { .. }))
            )
        });
        let (before, open) = (
            results.len() - refused.count(),
            wallet(&*world.store, tenant).await,
        );
        assert_eq!(open, (admitted * MAX, admitted, 0));
        assert!(before <= usize::try_from(admitted).unwrap());
    }
    close(stores).await;
}

// Fault matrix 194: of all that want to go on with a settlement, and of all that report it, one does.
pub(crate) async fn a_settlement_is_gone_on_with_by_one_and_booked_once(world: &World) {
    let tenant = house(&*world.store).await;
    let stores = stores(world).await;
    let new = new_call("upto:one");
    for step in [claims(&new), finishes(&new, 400, 100)] {
        run(world, tenant, step).await;
    }
    let leased = submit_all(&stores, tenant, (0..20).map(|_| leases(&new, 1))).await;
    assert_eq!(leased.iter().filter(|result| result.is_ok()).count(), 1);
    let reports = submit_all(&stores, tenant, (0..20).map(|_| told(&new, settled(450)))).await;
    let changed = reports
        .into_iter()
        .map(row)
        .filter(|(_, changed)| *changed)
        .count();
    assert_eq!(changed, 1);
    assert_eq!(wallet(&*world.store, tenant).await, (0, 0, 450));
    close(stores).await;
}

// Fault matrix 56: whoever sweeps finds what somebody has to go on with, and nothing else.
pub(crate) async fn what_is_due_is_found(world: &World) {
    let tenant = house(&*world.store).await;
    let (mine, left) = (next_id(), next_id());
    let mut due = Vec::new();
    for (at, instance) in [(10, mine), (20, left), (30, mine), (40, left), (5, mine)] {
        let mut new = new_call(&format!("exact:{at}"));
        (new.due_at, new.instance) = (NOW.plus_millis(at), instance);
        run(world, tenant, claims(&new)).await;
        due.push(new);
    }
    let failed = FailPaidCall {
        call: named(&due[4]),
        failure: "UPSTREAM_ERROR".into(),
        drift: None,
    };
    run(world, tenant, Action::FailPaidCall(failed)).await;
    let listed = async |by: i64, not_of_instance, limit| -> Vec<RequestId> {
        let mut found = Vec::new();
        for answered in [false, true] {
            let due = DuePaidCalls {
                due_by: NOW.plus_millis(by),
                answered,
                not_of_instance,
                of_instance: None,
                limit,
            };
            found.extend(world.store.list_due_paid_calls(due).await.unwrap());
        }
        found.sort_by_key(|(_, call)| call.due_at);
        found.truncate(usize::try_from(limit).unwrap());
        found
            .into_iter()
            .filter(|(of, _)| *of == tenant)
            .map(|(_, call)| call.id)
            .collect()
    };
    let ids: Vec<RequestId> = due.iter().map(|new| new.id).collect();
    assert_eq!(listed(9, None, 10).await, []);
    assert_eq!(listed(20, None, 10).await, ids[..2]);
    assert_eq!(listed(1_000, None, 3).await, ids[..3]);
    assert_eq!(
        listed(10, Some(mine), 10).await,
        [ids[0], ids[1], ids[3]],
        "also what another process left"
    );
}

pub(crate) async fn open_settlements_are_counted_and_failures_listed(world: &World) {
    let tenant = house(&*world.store).await;
    let [claimed, answered, void, settled_one] =
        ["exact:one", "exact:two", "exact:three", "exact:four"].map(new_call);
    for new in [&claimed, &answered, &void, &settled_one] {
        run(world, tenant, claims(new)).await;
    }
    for new in [&answered, &void, &settled_one] {
        run(world, tenant, finishes(new, 400, 100)).await;
    }
    let given_up = SettlementProgress::Void {
        reason: "payment_given_up".into(),
    };
    run(world, tenant, told(&void, given_up)).await;
    run(world, tenant, told(&settled_one, settled(500))).await;
    assert_eq!(world.store.count_open_settlements().await.unwrap(), 1);
    let failed = async |since: i64| -> Vec<RequestId> {
        let since = NOW.plus_millis(since);
        let found = world.store.list_failed_paid_calls(since, 10).await.unwrap();
        found.into_iter().map(|(_, call)| call.id).collect()
    };
    assert_eq!(failed(-1_000_000).await, [void.id]);
    assert_eq!(failed(1_000_000).await, []);
}

// Fault matrix 198: two processes make the house tenant at once; a stopped one takes no new payments.
pub(crate) async fn a_house_tenant_is_made_once(world: &World) {
    let stores = stores(world).await;
    let tenant = TenantId::house("eip155:84532", WALLET);
    let made = join_all(
        (0..10)
            .zip(stores.iter().cycle())
            .map(|(_, store)| store.ensure_house_tenant(tenant, "Public calls on eip155:84532", NOW)),
    )
    .await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let new = new_call("exact:one");
    run(world, tenant, claims(&new)).await;
    let again = world.store.ensure_house_tenant(tenant, "other", NOW).await;
    again.unwrap();
    let found = world.store.find_tenant(tenant).await.unwrap().unwrap();
    assert_eq!(found.name, "Public calls on eip155:84532");
    assert_eq!(wallet(&*world.store, tenant).await, (MAX, 1, 0));
    world
        .store
        .set_tenant_status(tenant, TenantStatus::Suspended, &audit_row(tenant))
        .await
        .unwrap();
    let refused = world.run(tenant, claims(&new_call("exact:two"))).await;
    assert_eq!(
        rejection(refused),
        Rejection::TenantNotActive(TenantStatus::Suspended)
    );
    // What was begun is ended all the same.
    assert!(!row(world.run(tenant, claims(&new)).await).1);
    run(world, tenant, finishes(&new, 10, 0)).await;
    run(world, tenant, told(&new, settled(10))).await;
    close(stores).await;
}

// Fault matrix 186: an answer is not pruned while its call is open, and a day longer.
pub(crate) async fn an_answer_outlives_its_open_call(world: &World) {
    let tenant = house(&*world.store).await;
    let new = new_call("exact:one");
    for step in [claims(&new), finishes(&new, 400, 100)] {
        run(world, tenant, step).await;
    }
    let body = async || {
        let found = world.store.find_outcome(tenant, CallId(new.id.0)).await.unwrap();
        found.and_then(|StoredOutcome { body, .. }| body).is_some()
    };
    let late = NOW.plus_millis(10 * 86_400_000);
    assert_eq!(world.store.prune_outcomes(late, 10).await.unwrap(), 0);
    let report = Command {
        at: late,
        ..command(tenant, told(&new, settled(500)))
    };
    world.store.submit(report).await.unwrap();
    let last = late.plus_millis(ANSWER_KEPT_MS);
    assert_eq!(world.store.prune_outcomes(last, 10).await.unwrap(), 0);
    assert!(body().await);
    let over = last.plus_millis(1);
    assert_eq!(world.store.prune_outcomes(over, 10).await.unwrap(), 1);
    assert!(!body().await);
}

// Fault matrix 82, 193: a provider's day has the cost of paid calls, settled, to be settled or lost.
pub(crate) async fn a_day_costs_what_its_paid_calls_cost(world: &World) {
    let (tenant, other) = (house(&*world.store).await, house(&*world.store).await);
    let answered = async |tenant, drift: Option<Drift>, days: i64| {
        let mut new = new_call(&format!("exact:{}", next_id()));
        new.subject.provider = Some("openai".into());
        let at = NOW.plus_millis(days * 86_400_000);
        let finish = FinishPaidCall {
            call: named(&new),
            charge: charge(400, 100),
            usage: None,
            drift,
            outcome: answer("{}"),
            due_at: at,
        };
        for action in [claims(&new), Action::FinishPaidCall(Box::new(finish))] {
            let command = Command {
                at,
                ..command(tenant, action)
            };
            world.store.submit(command).await.unwrap();
        }
        new
    };
    let above = Drift {
        kind: DriftKind::AboveHold,
        detail: "test".into(),
        loss: usd(30),
    };
    let paid = answered(tenant, Some(above), 0).await;
    run(world, tenant, told(&paid, settled(500))).await;
    let short = answered(tenant, None, 0).await;
    run(world, tenant, told(&short, settled(350))).await;
    let void = answered(tenant, None, 0).await;
    let never = SettlementProgress::Void {
        reason: "nonce used".into(),
    };
    run(world, tenant, told(&void, never)).await;
    answered(other, None, 0).await;
    answered(tenant, None, -1).await;
    let unknown = new_call("exact:unknown");
    for action in [claims(&unknown), Action::AbandonPaidCall(named(&unknown))] {
        run(world, other, action).await;
    }
    let costs = |tenant, metered, loss| DayCosts {
        tenant,
        metered: usd(metered),
        loss: usd(loss),
    };
    let day = Day::of(NOW);
    let mut expected = vec![costs(tenant, 750, 480), costs(other, 400, 600)];
    expected.sort_by_key(|costs| costs.tenant);
    let found = world.store.day_costs("openai", day, None).await.unwrap();
    assert_eq!(found, expected);
    for costs in expected {
        let found = world.store.day_costs("openai", day, Some(costs.tenant)).await;
        assert_eq!(found.unwrap(), [costs]);
    }
    assert_eq!(world.store.day_costs("none", day, None).await.unwrap(), []);
    let losses = async |least| world.store.list_day_losses(day, usd(least)).await.unwrap();
    let mut both = vec![(tenant, "openai".to_owned()), (other, "openai".to_owned())];
    both.sort();
    assert_eq!(losses(480).await, both);
    assert_eq!(losses(481).await, [(other, "openai".to_owned())]);
    assert_eq!(world.posted(tenant, AccountKind::OperatorLoss).await, -480);
    let drifts = world.store.list_drifts(tenant, 10).await.unwrap();
    assert_eq!(drifts.len(), 1);
    assert_eq!((drifts[0].loss, drifts[0].charged), (usd(30), usd(500)));
}

// Fault matrix 56: what was written before a restart is what is read after it, and is gone on with.
pub(crate) async fn a_restart_reads_the_same_rows(world: &World) {
    let directory = tempfile::tempdir().unwrap();
    let open = async || -> Arc<dyn Store> {
        if world.kind == Kind::Sqlite {
            let options = SqliteOptions::new(directory.path().join("turnpike.db"));
            Arc::new(SqliteStore::open(&options).unwrap())
        } else {
            world.second().await.unwrap()
        }
    };
    let first = open().await;
    let tenant = house(&*first).await;
    let new = new_call("exact:one");
    let mut before = None;
    for step in [claims(&new), finishes(&new, 400, 100)] {
        before = Some((tenant, row(first.submit(command(tenant, step)).await).0));
    }
    first.close().await;
    drop(first);
    let again = open().await;
    assert_eq!(again.find_paid_call(new.id).await.unwrap(), before);
    let due = DuePaidCalls {
        due_by: NOW,
        answered: true,
        not_of_instance: Some(next_id()),
        of_instance: None,
        limit: 10,
    };
    assert_eq!(again.list_due_paid_calls(due).await.unwrap().len(), 1);
    let (claimed, sends) = row(again.submit(command(tenant, claims(&new))).await);
    assert_eq!((claimed.state, sends), (PaidCallState::Settling, false));
    for (action, changes) in [
        (leases(&new, 1), true),
        (told(&new, settled(500)), true),
        (told(&new, settled(500)), false),
    ] {
        let (_, changed) = row(again.submit(command(tenant, action)).await);
        assert_eq!(changed, changes);
    }
    assert_eq!(wallet(&*again, tenant).await, (0, 0, 500));
    check_books(&*again).await;
    again.close().await;
}

// Fault matrix I4, I12: rows that were edited behind the ledger's back are found.
pub(crate) async fn the_audit_finds_a_paid_call_that_was_tampered_with(world: &World) {
    world.tamper();
    for (edit, finding) in [
        ("UPDATE paid_calls SET loss = 7", "in the ledger"),
        ("UPDATE paid_calls SET created_at = 7", "its columns contradict"),
        (
            "UPDATE paid_call_terms SET payment_key = 'other'",
            "its columns contradict",
        ),
        ("UPDATE paid_calls SET state = 2", "its record contradict"),
        ("UPDATE paid_calls SET base_cost = 7", "its columns contradict"),
        ("DELETE FROM claims", "its payment is not claimed for it"),
        (
            "UPDATE paid_calls SET progress = REPLACE(progress, '\"amount\":\"0.0005\"', '\"amount\":\"0.0004\"')",
            "charged is",
        ),
        ("DELETE FROM paid_call_terms", "its terms are missing"),
        (
            "UPDATE paid_calls SET state = 0, ended_at = NULL",
            "its record contradict",
        ),
    ] {
        let tenant = house(&*world.store).await;
        let new = new_call("exact:one");
        for step in [claims(&new), finishes(&new, 400, 100), told(&new, settled(500))] {
            run(world, tenant, step).await;
        }
        assert_eq!(world.findings(tenant).await, Vec::<String>::new());
        world.sql(edit).await.unwrap();
        let findings = world.findings(tenant).await;
        assert!(
            findings.iter().any(|found| found.contains(finding)),
            "{edit}: {findings:?}"
        );
        world.sql("DELETE FROM claims").await.unwrap();
    }
}
