//! How calls end that nobody ended, what becomes of old answers, and what commands leave alone.

use turnpike_core::ledger::account::Balance;
use turnpike_core::ledger::command::{Capture, DriftKind, Grant, GrantSource, Move, StoredOutcome};
use turnpike_core::ledger::{AccountKind, Action, Cause, HoldState, Outcome, Payer, Rejection};
use turnpike_store::OpenCalls;

use crate::actions::{
    answer, capture, charge, claim, external, grant, move_to, new_hold, reference, usd, user,
};
use crate::calls::rejection;
use crate::world::{NOW, World};

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
        of_instance: None,
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
    assert_eq!(world.events(one, None, 100).await.len(), 2);
}
