//! Many callers at once.

use futures_util::future::join_all;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::policy::Policy;
use turnpike_core::ledger::rejection::LimitScope;
use turnpike_core::ledger::{AccountKind, Action, Outcome, Payer, Rejection};
use turnpike_store::{Store, StoreError, SubmitError};

use crate::actions::{
    capture, claim, command, grant, limits, move_to, new_hold, reference, release, submit_all, usd, user,
};
use crate::world::{Dice, Kind, World, add_tenant, all_transfers, check_books};

fn held(results: &[Result<Outcome, SubmitError>]) -> usize {
    results
        .iter()
        .filter(|result| matches!(result, Ok(Outcome::Held(_))))
        .count()
}

fn insufficient(results: &[Result<Outcome, SubmitError>]) -> usize {
    let refused = |result: &&Result<Outcome, SubmitError>| {
        matches!(
            result,
            Err(SubmitError::Rejected(Rejection::InsufficientCredits { .. }))
        )
    };
    results.iter().filter(refused).count()
}

// Fault matrix 16
pub(crate) async fn two_hundred_holds_on_a_balance_for_seven(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 7_999)).await.unwrap();
    let holds = (0..200).map(|_| Action::Hold(Box::new(new_hold(&Payer::Pool, 1_000))));
    let results = submit_all(std::slice::from_ref(&world.store), tenant, holds).await;
    assert_eq!((held(&results), insufficient(&results)), (7, 193));
    assert_eq!(world.balance(tenant, &Payer::Pool).await.held, usd(7_000));
}

// Fault matrix 20, 21
pub(crate) async fn two_services_share_one_balance_or_the_second_is_refused(world: &World) {
    let second = match (world.kind, world.second().await) {
        (Kind::Sqlite, Err(StoreError::Locked(message))) => {
            assert!(
                message.contains("in use by another turnpike") && message.contains("contract suite"),
                "{message}"
            );
            return;
        }
        (Kind::Sqlite, other) => panic!("a second service opened the file: {:?}", other.err()),
        (Kind::Postgres | Kind::Memory, second) => second.unwrap(),
    };
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 7_999)).await.unwrap();
    let holds: Vec<_> = (0..200).map(|_| new_hold(&Payer::Pool, 1_000)).collect();
    let stores = [world.store.clone(), second.clone()];
    let actions = holds.iter().map(|hold| Action::Hold(Box::new(hold.clone())));
    let results = submit_all(&stores, tenant, actions).await;
    assert_eq!((held(&results), insufficient(&results)), (7, 193));
    // What one has taken the other can end.
    for (hold, result) in holds.iter().zip(&results) {
        if result.is_ok() {
            second
                .submit(command(tenant, capture(hold, 500, 0)))
                .await
                .unwrap();
        }
    }
    assert_eq!(
        world.balance(tenant, &Payer::Pool).await.posted,
        usd(7_999 - 3_500)
    );
    assert_eq!(world.store.is_shared(), world.kind == Kind::Postgres);
    if world.kind == Kind::Postgres {
        second.close().await;
        let closed = second.submit(command(tenant, grant(&Payer::Pool, 1))).await;
        assert!(matches!(closed, Err(SubmitError::Unavailable(_))), "{closed:?}");
    }
}

// Fault matrix 31
pub(crate) async fn fifty_requests_with_one_key_take_one_hold(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000_000)).await.unwrap();
    let holds = (0..50).map(|_| {
        let mut hold = new_hold(&Payer::Pool, 100);
        hold.claim = Some(claim(tenant, "one", 1));
        Action::Hold(Box::new(hold))
    });
    let results = submit_all(std::slice::from_ref(&world.store), tenant, holds).await;
    let existing: Vec<_> = results
        .iter()
        .filter_map(|result| match result {
            Ok(Outcome::Existing(subject)) => Some(*subject),
            _ => None,
        })
        .collect();
    assert_eq!((held(&results), existing.len()), (1, 49));
    let taken = world
        .store
        .find_claim(&claim(tenant, "one", 1).key)
        .await
        .unwrap()
        .unwrap()
        .subject;
    assert!(existing.iter().all(|subject| *subject == taken));
    assert_eq!(world.balance(tenant, &Payer::Pool).await.held, usd(100));
}

// Fault matrix 19, 22, 26
pub(crate) async fn the_bank_neither_makes_nor_loses_money(world: &World) {
    let tenants = [world.tenant().await, world.tenant().await];
    let second = if world.kind == Kind::Postgres {
        world.second().await.unwrap()
    } else {
        world.store.clone()
    };
    for tenant in tenants {
        world.run(tenant, grant(&Payer::Pool, 50_000)).await.unwrap();
        for name in ["a", "b", "c"] {
            world.run(tenant, move_to(name, 1_000, true)).await.unwrap();
        }
    }
    let tasks = (0..16_u64).map(|seed| {
        let store = if seed % 2 == 0 {
            world.store.clone()
        } else {
            second.clone()
        };
        tokio::spawn(async move {
            let mut dice = Dice::new(seed);
            for _ in 0..40 {
                let tenant = tenants[usize::try_from(dice.roll(2)).unwrap()];
                play(&*store, tenant, &mut dice).await;
            }
        })
    });
    let reader = {
        let store = world.store.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                check_books(&*store).await;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
    };
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    reader.await.unwrap();
    for tenant in tenants {
        let mut total = 0;
        for kind in AccountKind::ALL {
            total += world.posted(tenant, *kind).await;
        }
        for name in ["a", "b", "c"] {
            let balance = world.balance(tenant, &user(name)).await;
            assert!(
                balance.posted >= balance.held && balance.held == usd(0),
                "{balance:?}"
            );
            total += balance.posted.get();
        }
        assert_eq!(total, 0, "double entry");
        assert!(!all_transfers(&*world.store, tenant).await.is_empty());
    }
    if world.kind == Kind::Postgres {
        second.close().await;
    }
}

async fn play(store: &dyn Store, tenant: TenantId, dice: &mut Dice) {
    let name = ["a", "b", "c"][usize::try_from(dice.roll(3)).unwrap()];
    let amount = i64::try_from(dice.roll(900) + 1).unwrap();
    let run = async |action| {
        let result = store.submit(command(tenant, action)).await;
        assert!(
            matches!(
                result,
                Ok(_) | Err(SubmitError::Rejected(Rejection::InsufficientCredits { .. }))
            ),
            "{result:?}"
        );
        result.is_ok()
    };
    match dice.roll(5) {
        0 => drop(run(grant(&user(name), amount)).await),
        1 => drop(run(move_to(name, amount, true)).await),
        2 => drop(run(move_to(name, amount, false)).await),
        _ => {
            let payer = if dice.roll(2) == 0 {
                Payer::Pool
            } else {
                user(name)
            };
            let hold = new_hold(&payer, amount);
            if run(Action::Hold(Box::new(hold.clone()))).await {
                if dice.roll(2) == 0 {
                    run(Action::MarkDispatched(reference(&hold))).await;
                    assert!(run(capture(&hold, amount / 2, amount / 4)).await);
                } else {
                    assert!(run(release(&hold, None)).await);
                }
            }
        }
    }
}

async fn limited(world: &World, policy: Policy) -> TenantId {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&user("alice"), 1_000_000)).await.unwrap();
    world.run(tenant, limits("alice", &policy)).await.unwrap();
    tenant
}

// Fault matrix 24
pub(crate) async fn a_day_limit_is_never_exceeded(world: &World) {
    let tenant = limited(
        world,
        Policy {
            max_usd_per_day: Some(usd(1_050)),
            ..Policy::default()
        },
    )
    .await;
    let holds = (0..100).map(|_| Action::Hold(Box::new(new_hold(&user("alice"), 100))));
    let results = submit_all(std::slice::from_ref(&world.store), tenant, holds).await;
    let over = |result: &&Result<Outcome, SubmitError>| {
        matches!(
            result,
            Err(SubmitError::Rejected(Rejection::SpendLimitExceeded {
                scope: LimitScope::Day,
                ..
            }))
        )
    };
    assert_eq!((held(&results), results.iter().filter(over).count()), (10, 90));
    let account = world
        .store
        .find_account(&user("alice").account(tenant))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((account.day.spent, account.month.spent), (usd(1_000), usd(1_000)));
}

// Fault matrix 23
pub(crate) async fn a_loop_limit_admits_exactly_its_calls(world: &World) {
    let policy = Policy {
        max_calls_per_loop: Some(9),
        ..Policy::default()
    };
    let tenant = limited(world, policy).await;
    for name in ["first", "second"] {
        let holds = (0..50).map(|_| {
            let mut hold = new_hold(&user("alice"), 10);
            hold.loop_id = Some(name.into());
            Action::Hold(Box::new(hold))
        });
        let results = submit_all(std::slice::from_ref(&world.store), tenant, holds).await;
        let over = |result: &&Result<Outcome, SubmitError>| {
            matches!(
                result,
                Err(SubmitError::Rejected(Rejection::LoopCallsExceeded {
                    limit: 9,
                    calls: 9
                }))
            )
        };
        assert_eq!((held(&results), results.iter().filter(over).count()), (9, 41));
    }
    let nameless = world
        .run(tenant, Action::Hold(Box::new(new_hold(&user("alice"), 10))))
        .await;
    assert!(matches!(
        nameless,
        Err(SubmitError::Rejected(Rejection::LoopRequired))
    ));
}

// Fault matrix 204
pub(crate) async fn a_full_queue_says_busy(world: &World) {
    let (store, _directory) = world.narrow(1).await;
    let tenant = add_tenant(&*store).await;
    store
        .submit(command(tenant, grant(&Payer::Pool, 1_000_000)))
        .await
        .unwrap();
    let holds =
        (0..300).map(|_| store.submit(command(tenant, Action::Hold(Box::new(new_hold(&Payer::Pool, 1))))));
    let results = join_all(holds).await;
    let busy = results
        .iter()
        .filter(|result| matches!(result, Err(SubmitError::Busy)))
        .count();
    assert!(busy > 0, "the queue was never full");
    assert_eq!(held(&results) + busy, 300, "{results:?}");
    let account = store
        .find_account(&Payer::Pool.account(tenant))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(account.held.get(), i64::try_from(held(&results)).unwrap());
    check_books(&*store).await;
    store.close().await;
}

// Fault matrix 209: what a stopping service answers is true.
pub(crate) async fn a_closing_store_does_or_refuses_and_nothing_between(world: &World) {
    let (store, _directory) = world.narrow(1_000).await;
    let tenant = add_tenant(&*store).await;
    let grants: Vec<_> = (0..200)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.submit(command(tenant, grant(&Payer::Pool, 1))).await })
        })
        .collect();
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    store.close().await;
    let late = store.submit(command(tenant, grant(&Payer::Pool, 1))).await;
    assert!(matches!(late, Err(SubmitError::Unavailable(_))), "{late:?}");
    let mut granted = 0;
    for result in join_all(grants).await.into_iter().map(Result::unwrap) {
        match result {
            Ok(_) => granted += 1,
            Err(SubmitError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    if world.kind == Kind::Postgres {
        assert_eq!(world.balance(tenant, &Payer::Pool).await.posted, usd(granted));
    } else {
        let account = store.find_account(&Payer::Pool.account(tenant)).await.unwrap();
        assert_eq!(account.unwrap_or_default().posted, usd(granted));
    }
}
