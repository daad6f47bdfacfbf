//! The life of a call, its idempotency key and its stored answer.

use turnpike_core::ids::CallId;
use turnpike_core::ledger::account::Balance;
use turnpike_core::ledger::command::{
    Capture, DriftKind, FinishStream, Grant, GrantSource, Move, OutcomeKind, StoredOutcome,
};
use turnpike_core::ledger::{AccountKind, Action, Cause, HoldState, Outcome, Payer, Rejection};
use turnpike_core::usage::Usage;
use turnpike_store::{OpenCalls, SubmitError};

use crate::world::{
    NOW, World, answer, capture, charge, claim, external, grant, move_to, new_hold, next_id, reference,
    release, usd, user,
};

pub(crate) fn rejection(result: Result<Outcome, SubmitError>) -> Rejection {
    match result {
        Err(SubmitError::Rejected(rejection)) => rejection,
        other => panic!("not rejected: {other:?}"),
    }
}

pub(crate) async fn a_call_is_held_dispatched_captured_and_answered(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000)).await.unwrap();
    let mut hold = new_hold(&Payer::Pool, 300);
    hold.claim = Some(claim(tenant, "k", 1));
    hold.subject.attribution = Some("{\"team\":\"a\"}".into());
    let taken = world
        .run(tenant, Action::Hold(Box::new(hold.clone())))
        .await
        .unwrap();
    assert_eq!(
        taken,
        Outcome::Held(Balance {
            posted: usd(1_000),
            held: usd(300)
        })
    );
    let call = world.store.find_call(tenant, hold.call).await.unwrap().unwrap();
    assert_eq!(
        (call.state, call.dispatched_at, call.call.clone()),
        (HoldState::Held, None, reference(&hold))
    );
    assert_eq!(
        world
            .store
            .find_claim(&hold.claim.as_ref().unwrap().key)
            .await
            .unwrap()
            .unwrap()
            .subject,
        hold.call.0
    );

    let dispatched = world
        .run(tenant, Action::MarkDispatched(reference(&hold)))
        .await
        .unwrap();
    assert_eq!(dispatched, Outcome::Dispatched);
    let again = world.run(tenant, Action::MarkDispatched(reference(&hold))).await;
    assert_eq!(rejection(again), Rejection::HoldNotOpen(HoldState::Held));

    let usage = Usage {
        input: 10,
        output: 5,
        ..Usage::default()
    };
    let captured = Action::Capture(Box::new(Capture {
        call: reference(&hold),
        charge: charge(200, 50),
        usage: Some(usage),
        drift: None,
        outcome: Some(answer("{\"x\":1}")),
    }));
    let balance = Balance {
        posted: usd(750),
        held: usd(0),
    };
    assert_eq!(
        world.run(tenant, captured).await.unwrap(),
        Outcome::Captured {
            charged: usd(250),
            balance
        }
    );

    let call = world.store.find_call(tenant, hold.call).await.unwrap().unwrap();
    assert_eq!(
        (call.state, call.charged, call.margin),
        (HoldState::Captured, usd(250), usd(50))
    );
    assert_eq!((call.balance_after, call.usage), (Some(usd(750)), Some(usage)));
    assert_eq!((call.dispatched_at, call.finished_at), (Some(NOW), Some(NOW)));
    assert_eq!(call.subject, hold.subject);
    assert_eq!(
        world
            .store
            .find_outcome(tenant, hold.call)
            .await
            .unwrap()
            .unwrap(),
        answer("{\"x\":1}")
    );
    assert_eq!(world.balance(tenant, &Payer::Pool).await, balance);
    assert_eq!(world.posted(tenant, AccountKind::ProviderCost).await, 200);
    assert_eq!(world.posted(tenant, AccountKind::Margin).await, 50);
    assert_eq!(world.posted(tenant, AccountKind::Funding).await, -1_000);
    assert!(
        world
            .store
            .find_call(tenant, CallId(next_id()))
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .store
            .find_outcome(tenant, CallId(next_id()))
            .await
            .unwrap()
            .is_none()
    );
}

pub(crate) async fn a_repeated_capture_changes_nothing(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 100)).await.unwrap();
    let hold = new_hold(&Payer::Pool, 60);
    world
        .run(tenant, Action::Hold(Box::new(hold.clone())))
        .await
        .unwrap();
    let first = world.run(tenant, capture(&hold, 30, 0)).await.unwrap();
    let events = world.store.list_events(tenant, None, 100).await.unwrap().len();
    // The row comes from the database the second time: the first batch is over.
    assert_eq!(world.run(tenant, capture(&hold, 30, 0)).await.unwrap(), first);
    assert_eq!(
        rejection(world.run(tenant, capture(&hold, 31, 0)).await),
        Rejection::HoldNotOpen(HoldState::Captured)
    );
    assert_eq!(
        world.store.list_events(tenant, None, 100).await.unwrap().len(),
        events
    );
    assert_eq!(world.balance(tenant, &Payer::Pool).await.posted, usd(70));
}

pub(crate) async fn a_release_before_dispatch_frees_the_key(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 100)).await.unwrap();
    let mut hold = new_hold(&Payer::Pool, 60);
    hold.claim = Some(claim(tenant, "k", 1));
    world
        .run(tenant, Action::Hold(Box::new(hold.clone())))
        .await
        .unwrap();
    let released = world.run(tenant, release(&hold, None)).await.unwrap();
    assert_eq!(
        released,
        Outcome::Released(Balance {
            posted: usd(100),
            held: usd(0)
        })
    );
    assert_eq!(world.run(tenant, release(&hold, None)).await.unwrap(), released);
    assert!(
        world
            .store
            .find_claim(&hold.claim.as_ref().unwrap().key)
            .await
            .unwrap()
            .is_none()
    );
    let call = world.store.find_call(tenant, hold.call).await.unwrap().unwrap();
    assert_eq!(
        (call.state, call.failure.as_deref()),
        (HoldState::Released, Some("UPSTREAM_ERROR"))
    );

    let mut again = new_hold(&Payer::Pool, 60);
    again.claim = Some(claim(tenant, "k", 2));
    assert!(matches!(
        world
            .run(tenant, Action::Hold(Box::new(again.clone())))
            .await
            .unwrap(),
        Outcome::Held(_)
    ));
    let found = world
        .store
        .find_claim(&hold.claim.unwrap().key)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((found.subject, found.fingerprint), (again.call.0, [2; 32]));
}

// Fault matrix 34
pub(crate) async fn a_stored_failure_keeps_the_key(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 100)).await.unwrap();
    let mut hold = new_hold(&Payer::Pool, 60);
    hold.claim = Some(claim(tenant, "k", 1));
    world
        .run(tenant, Action::Hold(Box::new(hold.clone())))
        .await
        .unwrap();
    world
        .run(tenant, Action::MarkDispatched(reference(&hold)))
        .await
        .unwrap();
    let failure = StoredOutcome {
        kind: OutcomeKind::Failure,
        ..answer("{\"error\":1}")
    };
    world
        .run(tenant, release(&hold, Some(failure.clone())))
        .await
        .unwrap();
    assert_eq!(
        world.store.find_outcome(tenant, hold.call).await.unwrap(),
        Some(failure)
    );
    let mut again = new_hold(&Payer::Pool, 60);
    again.claim.clone_from(&hold.claim);
    let existing = world.run(tenant, Action::Hold(Box::new(again))).await.unwrap();
    assert_eq!(existing, Outcome::Existing(hold.call.0));
}

// Fault matrix 29, 32
pub(crate) async fn a_key_stands_for_one_request(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    for of in [tenant, other] {
        world.run(of, grant(&Payer::Pool, 100)).await.unwrap();
    }
    let mut hold = new_hold(&Payer::Pool, 10);
    hold.claim = Some(claim(tenant, "k", 1));
    world
        .run(tenant, Action::Hold(Box::new(hold.clone())))
        .await
        .unwrap();
    let mut same = new_hold(&Payer::Pool, 10);
    same.claim = Some(claim(tenant, "k", 1));
    let existing = world.run(tenant, Action::Hold(Box::new(same))).await.unwrap();
    assert_eq!(existing, Outcome::Existing(hold.call.0));
    let mut conflict = new_hold(&Payer::Pool, 10);
    conflict.claim = Some(claim(tenant, "k", 2));
    assert_eq!(
        rejection(world.run(tenant, Action::Hold(Box::new(conflict))).await),
        Rejection::ClaimConflict
    );
    // Another key, another scope, another tenant.
    for (of, key, scope) in [
        (tenant, "K", "key:1 chat"),
        (tenant, "k", "key:2 chat"),
        (other, "k", "key:1 chat"),
    ] {
        let mut free = new_hold(&Payer::Pool, 10);
        let mut taken = claim(of, key, 3);
        taken.key.scope = scope.into();
        free.claim = Some(taken);
        assert!(
            matches!(
                world.run(of, Action::Hold(Box::new(free))).await.unwrap(),
                Outcome::Held(_)
            ),
            "{key}"
        );
    }
    assert_eq!(world.balance(tenant, &Payer::Pool).await.held, usd(30));
}

pub(crate) async fn a_stream_is_captured_first_and_finished_later(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&user("alice"), 1_000)).await.unwrap();
    let hold = new_hold(&user("alice"), 300);
    world
        .run(tenant, Action::Hold(Box::new(hold.clone())))
        .await
        .unwrap();
    world
        .run(tenant, Action::MarkDispatched(reference(&hold)))
        .await
        .unwrap();
    let begun = Action::Capture(Box::new(Capture {
        call: reference(&hold),
        charge: charge(200, 100),
        usage: None,
        drift: None,
        outcome: None,
    }));
    world.run(tenant, begun).await.unwrap();
    let open = OpenCalls {
        deadline_before: NOW.plus_millis(100_000),
        limit: 10,
    };
    assert_eq!(world.store.list_open_calls(open).await.unwrap().len(), 1);
    let finish = Action::FinishStream(Box::new(FinishStream {
        call: reference(&hold),
        charge: charge(120, 60),
        refund_kind: "stream",
        usage: Some(Usage {
            input: 1,
            output: 2,
            ..Usage::default()
        }),
        drift: None,
        failure: None,
        outcome: StoredOutcome {
            kind: OutcomeKind::Transcript,
            ..answer("data: x\n\n")
        },
    }));
    let balance = Balance {
        posted: usd(820),
        held: usd(0),
    };
    let finished = Outcome::Finished {
        refunded: usd(120),
        balance,
    };
    assert_eq!(world.run(tenant, finish.clone()).await.unwrap(), finished);
    assert_eq!(world.run(tenant, finish).await.unwrap(), finished);
    assert!(world.store.list_open_calls(open).await.unwrap().is_empty());
    let call = world.store.find_call(tenant, hold.call).await.unwrap().unwrap();
    assert_eq!(
        (call.charged, call.refunded, call.finished_at),
        (usd(300), usd(120), Some(NOW))
    );
    let stored = world
        .store
        .find_outcome(tenant, hold.call)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.kind, OutcomeKind::Transcript);
}

pub(crate) async fn a_hold_above_the_balance_is_refused(world: &World) {
    let tenant = world.tenant().await;
    let insufficient = |required, available| Rejection::InsufficientCredits {
        required: usd(required),
        available: usd(available),
    };
    let none = world
        .run(tenant, Action::Hold(Box::new(new_hold(&Payer::Pool, 1))))
        .await;
    assert_eq!(rejection(none), insufficient(1, 0));
    world.run(tenant, grant(&Payer::Pool, 100)).await.unwrap();
    world
        .run(tenant, Action::Hold(Box::new(new_hold(&Payer::Pool, 60))))
        .await
        .unwrap();
    let hold = new_hold(&Payer::Pool, 41);
    assert_eq!(
        rejection(world.run(tenant, Action::Hold(Box::new(hold.clone()))).await),
        insufficient(41, 40)
    );
    assert!(world.store.find_call(tenant, hold.call).await.unwrap().is_none());
    let unknown = world
        .run(tenant, Action::Hold(Box::new(new_hold(&user("nobody"), 1))))
        .await;
    assert_eq!(rejection(unknown), Rejection::UnknownEndUser);
    let foreign = turnpike_core::ids::TenantId(next_id());
    assert_eq!(
        rejection(world.run(foreign, grant(&Payer::Pool, 1)).await),
        Rejection::UnknownTenant
    );
    world
        .run(tenant, Action::Hold(Box::new(new_hold(&Payer::Pool, 40))))
        .await
        .unwrap();
}

// Fault matrix 45, 46
pub(crate) async fn an_unfinished_call_is_found_and_expired(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000)).await.unwrap();
    let mut holds = Vec::new();
    for age in [30, 10, 20] {
        let mut hold = new_hold(&Payer::Pool, 100);
        hold.deadline = NOW.plus_millis(-age);
        hold.claim = Some(claim(tenant, &age.to_string(), 1));
        world
            .run(tenant, Action::Hold(Box::new(hold.clone())))
            .await
            .unwrap();
        holds.push(hold);
    }
    world
        .run(tenant, Action::MarkDispatched(reference(&holds[0])))
        .await
        .unwrap();
    let due = |before, limit| OpenCalls {
        deadline_before: before,
        limit,
    };
    let found = world.store.list_open_calls(due(NOW, 2)).await.unwrap();
    let expected: Vec<_> = [&holds[0], &holds[2]].map(|hold| (tenant, hold.call)).to_vec();
    assert_eq!(
        found
            .iter()
            .map(|(of, hold)| (*of, hold.call.call))
            .collect::<Vec<_>>(),
        expected
    );
    assert!(
        world
            .store
            .list_open_calls(due(NOW.plus_millis(-30), 9))
            .await
            .unwrap()
            .is_empty()
    );

    for (_, hold) in world.store.list_open_calls(due(NOW, 9)).await.unwrap() {
        world.run(tenant, Action::Expire(hold.call)).await.unwrap();
    }
    assert!(world.store.list_open_calls(due(NOW, 9)).await.unwrap().is_empty());
    assert_eq!(
        world.balance(tenant, &Payer::Pool).await,
        Balance {
            posted: usd(1_000),
            held: usd(0)
        }
    );
    assert_eq!(world.posted(tenant, AccountKind::OperatorLoss).await, -100);
    let drifts = world.store.list_drifts(tenant, 10).await.unwrap();
    assert_eq!(drifts.len(), 1);
    assert_eq!(
        (drifts[0].call, drifts[0].kind, drifts[0].loss),
        (holds[0].call, DriftKind::OutcomeUnknown, usd(100))
    );
    // What was sent keeps its key; what certainly was not leaves it free.
    for (hold, kept) in [(&holds[0], true), (&holds[1], false), (&holds[2], false)] {
        let key = &hold.claim.as_ref().unwrap().key;
        assert_eq!(world.store.find_claim(key).await.unwrap().is_some(), kept);
    }
    let again = world.run(tenant, Action::Expire(reference(&holds[0]))).await;
    assert_eq!(rejection(again), Rejection::HoldNotOpen(HoldState::Expired));
}

// Fault matrix 50
pub(crate) async fn a_captured_stream_without_an_end_is_closed(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000)).await.unwrap();
    let hold = new_hold(&Payer::Pool, 300);
    world
        .run(tenant, Action::Hold(Box::new(hold.clone())))
        .await
        .unwrap();
    let begun = Capture {
        call: reference(&hold),
        charge: charge(300, 0),
        usage: None,
        drift: None,
        outcome: None,
    };
    world.run(tenant, Action::Capture(Box::new(begun))).await.unwrap();
    world.run(tenant, Action::Expire(reference(&hold))).await.unwrap();
    let call = world.store.find_call(tenant, hold.call).await.unwrap().unwrap();
    assert_eq!(
        (call.state, call.charged, call.finished_at),
        (HoldState::Captured, usd(300), Some(NOW))
    );
    assert_eq!(world.balance(tenant, &Payer::Pool).await.posted, usd(700));
    assert_eq!(world.store.list_drifts(tenant, 10).await.unwrap().len(), 1);
}

// Fault matrix 37
pub(crate) async fn expired_answers_lose_their_bodies(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000)).await.unwrap();
    let mut calls = Vec::new();
    for age in [3, 2, 1, -5] {
        let hold = new_hold(&Payer::Pool, 10);
        world
            .run(tenant, Action::Hold(Box::new(hold.clone())))
            .await
            .unwrap();
        let outcome = StoredOutcome {
            expires_at: NOW.plus_millis(-age),
            ..answer("body")
        };
        let capture = Capture {
            call: reference(&hold),
            charge: charge(1, 0),
            usage: None,
            drift: None,
            outcome: Some(outcome),
        };
        world
            .run(tenant, Action::Capture(Box::new(capture)))
            .await
            .unwrap();
        calls.push(hold.call);
    }
    let bodies = async || {
        let mut there = Vec::new();
        for call in &calls {
            there.push(
                world
                    .store
                    .find_outcome(tenant, *call)
                    .await
                    .unwrap()
                    .unwrap()
                    .body
                    .is_some(),
            );
        }
        there
    };
    assert_eq!(world.store.prune_outcomes(NOW, 2).await.unwrap(), 2);
    assert_eq!(bodies().await, [false, false, true, true]);
    assert_eq!(world.store.prune_outcomes(NOW, 2).await.unwrap(), 1);
    assert_eq!(world.store.prune_outcomes(NOW, 2).await.unwrap(), 0);
    assert_eq!(bodies().await, [false, false, false, true]);
}

pub(crate) async fn refused_commands_disturb_no_neighbour(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000)).await.unwrap();
    // Sent together, so that they share batches.
    let commands = (0..90).map(|n| {
        let action = match n % 3 {
            0 => Action::Hold(Box::new(new_hold(&Payer::Pool, 10))),
            1 => Action::Hold(Box::new(new_hold(&Payer::Pool, 100_000))),
            _ => Action::MarkDispatched(reference(&new_hold(&Payer::Pool, 1))),
        };
        world.run(tenant, action)
    });
    for (n, result) in futures_util::future::join_all(commands)
        .await
        .into_iter()
        .enumerate()
    {
        match n % 3 {
            0 => assert!(matches!(result, Ok(Outcome::Held(_))), "{result:?}"),
            1 => assert!(matches!(rejection(result), Rejection::InsufficientCredits { .. })),
            _ => assert_eq!(rejection(result), Rejection::UnknownHold),
        }
    }
    assert_eq!(world.balance(tenant, &Payer::Pool).await.held, usd(300));
}

pub(crate) async fn grants_and_moves_are_idempotent(world: &World) {
    let tenant = world.tenant().await;
    let action = Action::Grant(Grant {
        to: user("alice"),
        amount: usd(500),
        source: GrantSource::Promotion,
        reason: "welcome".into(),
        claim: Some(claim(tenant, "g", 1)),
    });
    let Outcome::Granted { transfer, balance } = world.run(tenant, action.clone()).await.unwrap() else {
        panic!()
    };
    assert_eq!(balance.posted, usd(500));
    assert!(matches!(
        world.run(tenant, action).await.unwrap(),
        Outcome::Existing(_)
    ));
    assert_eq!(world.posted(tenant, AccountKind::Bonus).await, -500);
    let back = Action::Move(Move {
        end_user: external("alice"),
        to_end_user: false,
        amount: usd(200),
        reference: "back".into(),
        claim: Some(claim(tenant, "m", 1)),
    });
    assert!(matches!(
        world.run(tenant, back.clone()).await.unwrap(),
        Outcome::Moved { .. }
    ));
    assert!(matches!(
        world.run(tenant, back).await.unwrap(),
        Outcome::Existing(_)
    ));
    assert!(matches!(
        rejection(world.run(tenant, move_to("alice", 301, false)).await),
        Rejection::InsufficientCredits { .. }
    ));
    assert_eq!(world.balance(tenant, &Payer::Pool).await.posted, usd(200));
    assert_eq!(world.balance(tenant, &user("alice")).await.posted, usd(300));
    let first = &crate::world::all_transfers(&*world.store, tenant).await[0];
    assert_eq!(
        (first.id, first.cause, &*first.reference),
        (transfer, Cause::Grant, "welcome")
    );
}

// Fault matrix 145
pub(crate) async fn tenants_do_not_see_each_other(world: &World) {
    let (one, two) = (world.tenant().await, world.tenant().await);
    for tenant in [one, two] {
        world.run(tenant, grant(&user("alice"), 100)).await.unwrap();
    }
    // The same call id and the same key in both.
    let mut hold = new_hold(&user("alice"), 40);
    hold.claim = Some(claim(one, "k", 1));
    world
        .run(one, Action::Hold(Box::new(hold.clone())))
        .await
        .unwrap();
    assert!(world.store.find_call(two, hold.call).await.unwrap().is_none());
    assert_eq!(
        rejection(world.run(two, capture(&hold, 10, 0)).await),
        Rejection::UnknownHold
    );
    let mut same = hold.clone();
    same.claim = Some(claim(two, "k", 2));
    world
        .run(two, Action::Hold(Box::new(same.clone())))
        .await
        .unwrap();
    world.run(two, capture(&same, 10, 0)).await.unwrap();
    assert_eq!(
        world.balance(one, &user("alice")).await,
        Balance {
            posted: usd(100),
            held: usd(40)
        }
    );
    assert_eq!(
        world.balance(two, &user("alice")).await,
        Balance {
            posted: usd(90),
            held: usd(0)
        }
    );
    assert!(world.store.find_outcome(one, hold.call).await.unwrap().is_none());
    assert_eq!(world.store.list_events(one, None, 100).await.unwrap().len(), 1);
}
