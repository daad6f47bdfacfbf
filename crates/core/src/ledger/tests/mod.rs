//! Properties of the ledger against a small reference model: a balance per payer and a set of open holds.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "the reference model counts in plain numbers"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::audit::Auditor;
use super::command::{
    Capture, FinishStream, Grant, GrantSource, Move, NewClaim, NewHold, OutcomeKind, Release, StoredOutcome,
};
use super::hold::{CallSubject, ClaimKey};
use super::policy::Policy;
use super::rejection::LimitScope;
use super::*;
use crate::ids::{CallId, CommandId, ExternalUserId, TenantId};
use crate::money::{CreditsPerDollar, Micros};
use crate::pricing::Charge;
use crate::time::Timestamp;

const TENANT: TenantId = TenantId(Uuid::from_u128(0x1000));

struct Bench {
    books: Books,
    transfers: Vec<Transfer>,
    events: Vec<i64>,
    next: u128,
    at: Timestamp,
}

impl Bench {
    fn new() -> Self {
        let mut books = Books::default();
        books
            .tenants
            .load(TENANT, Some(TenantHead::new(CreditsPerDollar::default())));
        Self {
            books,
            transfers: Vec::new(),
            events: Vec::new(),
            next: 1,
            at: Timestamp::from_millis(1_790_000_000_000),
        }
    }

    fn run(&mut self, action: Action) -> Result<Outcome, Rejection> {
        self.next += 1;
        let command = Command {
            id: CommandId(Uuid::from_u128(self.next)),
            tenant: TENANT,
            at: self.at,
            action,
            note: None,
        };
        let mut needs = Needs::default();
        command.needs(&mut needs);
        for key in needs.accounts {
            if !self.books.accounts.is_loaded(&key) {
                self.books.accounts.load(key, None);
            }
        }
        for key in needs.end_users {
            if !self.books.end_users.is_loaded(&key) {
                self.books.end_users.load(key, None);
            }
        }
        for key in needs.holds {
            if !self.books.holds.is_loaded(&key) {
                self.books.holds.load(key, None);
            }
        }
        for key in needs.claims {
            if !self.books.claims.is_loaded(&key) {
                self.books.claims.load(key, None);
            }
        }
        for key in needs.loops {
            if !self.books.loops.is_loaded(&key) {
                self.books.loops.load(key, None);
            }
        }
        for key in needs.topups {
            if !self.books.topups.is_loaded(&key) {
                self.books.topups.load(key, None);
            }
        }
        for key in needs.auto_topups {
            if !self.books.auto_topups.is_loaded(&key) {
                self.books.auto_topups.load(key, None);
            }
        }
        for key in needs.tokens {
            if !self.books.tokens.is_loaded(&key) {
                self.books.tokens.load(key, None);
            }
        }
        let before = format!("{:?}", self.rows());
        let result = apply(&mut self.books, &command);
        if result.is_err() {
            assert_eq!(
                before,
                format!("{:?}", self.rows()),
                "a refused command changed something"
            );
        }
        self.transfers.append(&mut self.books.transfers.clone());
        self.events
            .extend(self.books.events.iter().map(|(_, event)| event.seq));
        self.books.mark_stored();
        result
    }

    fn rows(&self) -> (BTreeMap<AccountKey, Account>, Option<TenantHead>, usize) {
        let mut accounts = BTreeMap::new();
        for key in self.account_keys() {
            accounts.insert(key.clone(), *self.books.accounts.get(&key).unwrap());
        }
        (
            accounts,
            self.books.tenants.get(&TENANT).copied(),
            self.books.transfers.len(),
        )
    }

    fn account_keys(&self) -> Vec<AccountKey> {
        let mut keys: Vec<AccountKey> = AccountKind::ALL
            .iter()
            .filter(|kind| **kind != AccountKind::EndUser)
            .map(|kind| AccountKey::of(TENANT, *kind))
            .collect();
        keys.extend(["alice", "bob"].map(|name| user(name).account(TENANT)));
        keys.retain(|key| self.books.accounts.get(key).is_some());
        keys
    }

    fn balance(&self, payer: &Payer) -> Balance {
        self.books
            .accounts
            .get(&payer.account(TENANT))
            .copied()
            .unwrap_or_default()
            .balance()
    }

    fn grant(&mut self, to: Payer, micros: i64) -> Result<Outcome, Rejection> {
        self.run(Action::Grant(Grant {
            to,
            amount: Micros::new(micros),
            source: GrantSource::ManualGrant,
            reason: "test".into(),
            claim: None,
        }))
    }

    fn new_hold(&mut self, payer: &Payer, micros: i64) -> NewHold {
        self.next += 1;
        NewHold {
            call: CallId(Uuid::from_u128(self.next)),
            payer: payer.clone(),
            claim: None,
            loop_id: None,
            amount: Micros::new(micros),
            base: Micros::new(micros),
            subject: subject(),
            instance: Uuid::nil(),
            deadline: self.at.plus_millis(1000),
            token: None,
        }
    }

    fn hold(&mut self, payer: &Payer, micros: i64) -> Result<CallRef, Rejection> {
        let hold = self.new_hold(payer, micros);
        let call = CallRef {
            call: hold.call,
            payer: payer.clone(),
            claim: None,
            loop_id: None,
            token: None,
        };
        self.run(Action::Hold(Box::new(hold))).map(|_| call)
    }

    fn capture(
        &mut self,
        call: &CallRef,
        base: i64,
        margin: i64,
        finish: bool,
    ) -> Result<Outcome, Rejection> {
        self.run(Action::Capture(Box::new(Capture {
            call: call.clone(),
            charge: charge(base, margin),
            usage: None,
            drift: None,
            outcome: finish.then(outcome),
        })))
    }

    fn audit(&self) -> Vec<String> {
        let mut auditor = Auditor::new();
        self.transfers
            .iter()
            .for_each(|transfer| auditor.transfer(transfer));
        self.books
            .holds
            .iter()
            .for_each(|(_, hold)| auditor.hold(TENANT, hold));
        for key in self.account_keys() {
            auditor.account(&key, self.books.accounts.get(&key).unwrap());
        }
        self.events.iter().for_each(|seq| auditor.event(*seq));
        auditor.finish(self.books.tenants.get(&TENANT).unwrap()).findings
    }
}

fn user(name: &str) -> Payer {
    Payer::EndUser(ExternalUserId::parse(name).unwrap())
}

fn charge(base: i64, margin: i64) -> Charge {
    Charge {
        base: Micros::new(base),
        markup: Micros::new(margin),
        flat: Micros::ZERO,
        margin: Micros::new(margin),
        effective: Micros::new(base + margin),
    }
}

fn subject() -> CallSubject {
    CallSubject {
        provider: "sim".into(),
        endpoint: "chat".into(),
        model: Some("vendor-v4-flash".into()),
        streamed: false,
        credential: "key:1".into(),
        attribution: Some("{\"project\":\"x\"}".into()),
        price: "{}".into(),
    }
}

fn outcome() -> StoredOutcome {
    StoredOutcome {
        kind: OutcomeKind::Success,
        body: None,
        expires_at: Timestamp::from_millis(0),
    }
}

fn claim(key: &str, fingerprint: u8) -> NewClaim {
    NewClaim {
        key: ClaimKey {
            tenant: TENANT,
            scope: "s".into(),
            key: key.into(),
        },
        fingerprint: [fingerprint; 32],
    }
}

#[test]
fn a_call_is_held_captured_and_charged_once() {
    let mut bench = Bench::new();
    bench.grant(Payer::Pool, 100).unwrap();
    let call = bench.hold(&Payer::Pool, 60).unwrap();
    assert_eq!(
        bench.balance(&Payer::Pool),
        Balance {
            posted: Micros::new(100),
            held: Micros::new(60)
        }
    );
    bench.run(Action::MarkDispatched(call.clone())).unwrap();
    assert!(matches!(
        bench.run(Action::MarkDispatched(call.clone())),
        Err(Rejection::HoldNotOpen(_))
    ));
    assert_eq!(
        bench.capture(&call, 61, 0, true),
        Err(Rejection::Mismatch("charge above the hold"))
    );
    let first = bench.capture(&call, 40, 5, true).unwrap();
    assert_eq!(bench.capture(&call, 40, 5, true).unwrap(), first);
    assert_eq!(
        bench.capture(&call, 39, 5, true),
        Err(Rejection::HoldNotOpen(HoldState::Captured))
    );
    assert_eq!(
        bench.balance(&Payer::Pool),
        Balance {
            posted: Micros::new(55),
            held: Micros::ZERO
        }
    );
    assert_eq!(bench.audit(), Vec::<String>::new());
}

#[test]
fn a_call_has_one_hold() {
    let mut bench = Bench::new();
    bench.grant(Payer::Pool, 100).unwrap();
    let hold = bench.new_hold(&Payer::Pool, 10);
    bench.run(Action::Hold(Box::new(hold.clone()))).unwrap();
    assert!(matches!(
        bench.run(Action::Hold(Box::new(hold))),
        Err(Rejection::Mismatch(_))
    ));
    assert_eq!(bench.balance(&Payer::Pool).held, Micros::new(10));
}

#[test]
fn capture_of_a_released_hold_is_refused() {
    let mut bench = Bench::new();
    bench.grant(Payer::Pool, 100).unwrap();
    let call = bench.hold(&Payer::Pool, 60).unwrap();
    bench.run(Action::Expire(call.clone())).unwrap();
    assert_eq!(
        bench.capture(&call, 1, 0, true),
        Err(Rejection::HoldNotOpen(HoldState::Expired))
    );
    assert_eq!(bench.balance(&Payer::Pool).available(), Micros::new(100));
}

#[test]
fn an_unknown_outcome_costs_the_operator_and_not_the_customer() {
    let mut bench = Bench::new();
    bench.grant(Payer::Pool, 100).unwrap();
    let call = bench.hold(&Payer::Pool, 60).unwrap();
    bench.run(Action::MarkDispatched(call.clone())).unwrap();
    bench.run(Action::Expire(call)).unwrap();
    assert_eq!(bench.balance(&Payer::Pool).available(), Micros::new(100));
    let loss = bench
        .books
        .accounts
        .get(&AccountKey::of(TENANT, AccountKind::OperatorLoss))
        .unwrap();
    assert_eq!(loss.posted, Micros::new(-60));
    assert_eq!(bench.audit(), Vec::<String>::new());
}

#[test]
fn a_stream_is_captured_first_and_refunded_later_but_never_debited_further() {
    let mut bench = Bench::new();
    bench.grant(user("alice"), 100).unwrap();
    let call = bench.hold(&user("alice"), 60).unwrap();
    bench.capture(&call, 50, 10, false).unwrap();
    let finish = |charge| FinishStream {
        call: call.clone(),
        charge,
        refund_kind: "stream_true_up",
        usage: None,
        drift: None,
        failure: None,
        outcome: outcome(),
    };
    assert!(
        bench
            .run(Action::FinishStream(Box::new(finish(charge(60, 10)))))
            .is_err()
    );
    bench
        .run(Action::FinishStream(Box::new(finish(charge(20, 4)))))
        .unwrap();
    assert!(
        bench
            .run(Action::FinishStream(Box::new(finish(charge(0, 0)))))
            .is_err()
    );
    let again = bench
        .run(Action::FinishStream(Box::new(finish(charge(20, 4)))))
        .unwrap();
    assert!(matches!(again, Outcome::Finished { refunded, .. } if refunded == Micros::new(36)));
    assert_eq!(bench.balance(&user("alice")).posted, Micros::new(76));
    assert_eq!(bench.audit(), Vec::<String>::new());
}

// Fault matrix 28, 29, 33
#[test]
fn an_idempotency_key_is_taken_with_the_hold_and_freed_when_nothing_was_sent() {
    let mut bench = Bench::new();
    bench.grant(Payer::Pool, 100).unwrap();
    let mut first = bench.new_hold(&Payer::Pool, 10);
    first.claim = Some(claim("k", 1));
    let id = first.call;
    bench.run(Action::Hold(Box::new(first.clone()))).unwrap();
    let mut again = bench.new_hold(&Payer::Pool, 10);
    again.claim = Some(claim("k", 1));
    assert_eq!(
        bench.run(Action::Hold(Box::new(again.clone()))),
        Ok(Outcome::Existing(id.0))
    );
    again.claim = Some(claim("k", 2));
    assert_eq!(
        bench.run(Action::Hold(Box::new(again))),
        Err(Rejection::ClaimConflict)
    );
    let call = CallRef {
        call: id,
        payer: Payer::Pool,
        claim: Some(claim("k", 1).key),
        loop_id: None,
        token: None,
    };
    let release = Release {
        call,
        failure: "UPSTREAM_ERROR".into(),
        outcome: None,
        drift: None,
    };
    bench.run(Action::Release(release)).unwrap();
    let mut third = bench.new_hold(&Payer::Pool, 10);
    third.claim = Some(claim("k", 2));
    assert!(matches!(
        bench.run(Action::Hold(Box::new(third))),
        Ok(Outcome::Held(_))
    ));
}

#[test]
fn policy_limits_count_holds_and_give_back_what_was_not_spent() {
    let mut bench = Bench::new();
    bench.grant(user("alice"), 1000).unwrap();
    let key = (TENANT, ExternalUserId::parse("alice").unwrap());
    let mut alice = bench.books.end_users.get(&key).unwrap().clone();
    alice.policy = Arc::new(Policy {
        max_usd_per_day: Some(Micros::new(100)),
        max_calls_per_loop: Some(2),
        ..Policy::default()
    });
    bench.books.end_users.load(key, Some(alice));
    assert_eq!(bench.hold(&user("alice"), 10), Err(Rejection::LoopRequired));
    let looped = |bench: &mut Bench, micros| {
        let mut hold = bench.new_hold(&user("alice"), micros);
        hold.loop_id = Some("loop-0123456789abcdef".into());
        let call = CallRef {
            call: hold.call,
            payer: hold.payer.clone(),
            claim: None,
            loop_id: hold.loop_id.clone(),
            token: None,
        };
        bench.run(Action::Hold(Box::new(hold))).map(|_| call)
    };
    let first = looped(&mut bench, 90).unwrap();
    assert!(matches!(
        looped(&mut bench, 11),
        Err(Rejection::SpendLimitExceeded {
            scope: LimitScope::Day,
            ..
        })
    ));
    bench.capture(&first, 20, 0, true).unwrap();
    looped(&mut bench, 80).unwrap();
    assert_eq!(
        looped(&mut bench, 0),
        Err(Rejection::LoopCallsExceeded { limit: 2, calls: 2 })
    );
    bench.at = bench.at.plus_millis(86_400_000);
    let mut fresh = bench.new_hold(&user("alice"), 100);
    fresh.loop_id = Some("loop-another-0123456".into());
    bench.run(Action::Hold(Box::new(fresh))).unwrap();
}

#[test]
fn a_clock_that_steps_back_opens_no_fresh_window() {
    let mut window = super::account::SpendWindow::default();
    assert_eq!(window.add(10, Micros::new(5)), Some(10));
    assert_eq!(window.add(9, Micros::new(5)), Some(10));
    assert_eq!(window.spent_in(9), Micros::new(10));
    assert_eq!(window.spent_in(11), Micros::ZERO);
}

#[test]
fn overflow_is_refused_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.grant(Payer::Pool, i64::MAX).unwrap();
    assert_eq!(bench.grant(Payer::Pool, 1), Err(Rejection::Overflow));
    assert_eq!(bench.audit(), Vec::<String>::new());
}

#[derive(Clone, Debug)]
enum Op {
    Grant(bool, i64),
    Allocate(bool, i64),
    Hold(bool, i64),
    Mark(usize),
    Capture(usize, i64, i64, bool),
    Finish(usize, i64),
    Release(usize),
    Expire(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let amount = 0_i64..200;
    prop_oneof![
        (any::<bool>(), amount.clone()).prop_map(|(who, n)| Op::Grant(who, n)),
        (any::<bool>(), amount.clone()).prop_map(|(who, n)| Op::Allocate(who, n)),
        (any::<bool>(), amount.clone()).prop_map(|(who, n)| Op::Hold(who, n)),
        (0_usize..8).prop_map(Op::Mark),
        (0_usize..8, amount.clone(), 0_i64..20, any::<bool>())
            .prop_map(|(i, b, m, f)| Op::Capture(i, b, m, f)),
        (0_usize..8, amount).prop_map(|(i, n)| Op::Finish(i, n)),
        (0_usize..8).prop_map(Op::Release),
        (0_usize..8).prop_map(Op::Expire),
    ]
}

/// What a call is in the reference model.
#[derive(Clone, Copy, PartialEq)]
enum Model {
    Held(i64),
    Streaming(i64, i64),
    Over,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_sequence_of_commands_keeps_the_books(ops in prop::collection::vec(op(), 1..60)) {
        let mut bench = Bench::new();
        let who = |pool: bool| if pool { Payer::Pool } else { user("alice") };
        let mut settled: BTreeMap<Payer, i64> = BTreeMap::new();
        let mut calls: Vec<(CallRef, Model)> = Vec::new();
        bench.grant(user("alice"), 50).unwrap();
        *settled.entry(user("alice")).or_default() += 50;
        for op in ops {
            let held_by = |calls: &[(CallRef, Model)], payer: &Payer| -> i64 {
                calls.iter().filter(|(call, _)| call.payer == *payer)
                    .map(|(_, state)| if let Model::Held(n) = state { *n } else { 0 }).sum()
            };
            match op {
                Op::Grant(pool, n) => {
                    let ok = bench.grant(who(pool), n).is_ok();
                    prop_assert_eq!(ok, n > 0);
                    *settled.entry(who(pool)).or_default() += n;
                }
                Op::Allocate(to_end_user, n) => {
                    let from = who(to_end_user);
                    let fits = settled.get(&from).copied().unwrap_or(0) - held_by(&calls, &from) >= n && n > 0;
                    let result = bench.run(Action::Move(Move {
                        end_user: ExternalUserId::parse("alice").unwrap(), to_end_user,
                        amount: Micros::new(n), reference: "r".into(), claim: None }));
                    prop_assert_eq!(result.is_ok(), fits, "{:?}", result);
                    if fits {
                        *settled.entry(from).or_default() -= n;
                        *settled.entry(who(!to_end_user)).or_default() += n;
                    }
                }
                Op::Hold(pool, n) => {
                    let payer = who(pool);
                    let fits = settled.get(&payer).copied().unwrap_or(0) - held_by(&calls, &payer) >= n;
                    let result = bench.hold(&payer, n);
                    prop_assert_eq!(result.is_ok(), fits);
                    calls.extend(result.ok().map(|call| (call, Model::Held(n))));
                }
                Op::Mark(i) => if let Some((call, state)) = calls.get(i).cloned() {
                    let result = bench.run(Action::MarkDispatched(call));
                    prop_assert!(result.is_err() || matches!(state, Model::Held(_)));
                },
                Op::Capture(i, base, margin, finish) => if let Some((call, state)) = calls.get(i).cloned() {
                    let result = bench.capture(&call, base, margin, finish);
                    if let Model::Held(n) = state {
                        prop_assert_eq!(result.is_ok(), base + margin <= n);
                        if result.is_ok() {
                            *settled.entry(call.payer.clone()).or_default() -= base + margin;
                            calls[i].1 = if finish { Model::Over } else { Model::Streaming(base, margin) };
                        }
                    }
                },
                Op::Finish(i, kept) => if let Some((call, state)) = calls.get(i).cloned() {
                    let result = bench.run(Action::FinishStream(Box::new(FinishStream {
                        call: call.clone(), charge: charge(kept, 0), refund_kind: "stream_true_up", usage: None,
                        drift: None, failure: None, outcome: outcome() })));
                    if let Model::Streaming(base, margin) = state {
                        prop_assert_eq!(result.is_ok(), kept <= base);
                        if result.is_ok() {
                            *settled.entry(call.payer.clone()).or_default() += base + margin - kept;
                            calls[i].1 = Model::Over;
                        }
                    }
                },
                Op::Release(i) => if let Some((call, state)) = calls.get(i).cloned() {
                    let result = bench.run(Action::Release(Release {
                        call, failure: "UPSTREAM_ERROR".into(), outcome: None, drift: None }));
                    if let Model::Held(_) = state {
                        prop_assert!(result.is_ok());
                        calls[i].1 = Model::Over;
                    }
                },
                Op::Expire(i) => if let Some((call, state)) = calls.get(i).cloned() {
                    let result = bench.run(Action::Expire(call));
                    prop_assert_eq!(result.is_ok(), state != Model::Over);
                    calls[i].1 = Model::Over;
                },
            }
            for payer in [Payer::Pool, user("alice")] {
                let balance = bench.balance(&payer);
                prop_assert_eq!(balance.posted.get(), settled.get(&payer).copied().unwrap_or(0));
                prop_assert_eq!(balance.held.get(), held_by(&calls, &payer));
                prop_assert!(balance.posted >= balance.held);
            }
            let sum: i64 = bench.account_keys().iter().map(|key| bench.books.accounts.get(key).unwrap().posted.get()).sum();
            prop_assert_eq!(sum, 0);
        }
        prop_assert_eq!(bench.audit(), Vec::<String>::new());
    }
}
