//! Metered calls: holds, captures, streams, idempotency keys, limits; and their properties against a small
//! reference model, a balance per payer and a set of open holds.

use proptest::prelude::*;

use super::*;
use crate::ledger::policy::Policy;
use crate::ledger::rejection::LimitScope;

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
        quote: None,
        approval: None,
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
        let call = hold.reference();
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
    let mut window = crate::ledger::account::SpendWindow::default();
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
