//! The life of a call, its idempotency key and its stored answer.

use turnpike_core::ids::CallId;
use turnpike_core::ledger::account::Balance;
use turnpike_core::ledger::command::{Capture, FinishStream, OutcomeKind, StoredOutcome};
use turnpike_core::ledger::{AccountKind, Action, HoldState, Outcome, Payer, Rejection};
use turnpike_core::usage::Usage;
use turnpike_store::{OpenCalls, SubmitError};

use crate::actions::{answer, capture, charge, claim, grant, new_hold, reference, release, usd, user};
use crate::world::{NOW, World, next_id};

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
    let events = world.events(tenant, None, 100).await.len();
    // The row comes from the database the second time: the first batch is over.
    assert_eq!(world.run(tenant, capture(&hold, 30, 0)).await.unwrap(), first);
    assert_eq!(
        rejection(world.run(tenant, capture(&hold, 31, 0)).await),
        Rejection::HoldNotOpen(HoldState::Captured)
    );
    assert_eq!(world.events(tenant, None, 100).await.len(), events);
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
        of_instance: None,
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
