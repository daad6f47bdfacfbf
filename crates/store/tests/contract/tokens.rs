//! Tokens of end users, and the keys that sign them.

use futures_util::future::join_all;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::command::{NewHold, NewToken};
use turnpike_core::ledger::rejection::LimitScope;
use turnpike_core::ledger::{Action, Outcome, Rejection};
use turnpike_store::{SigningKeyRow, StoreError, SubmitError};

use crate::actions::{capture, external, grant, new_hold, release, usd, user};
use crate::calls::rejection;
use crate::money_in::{mint, new_token, retire, revoke};
use crate::world::{NOW, World};

fn with_token(owner: &str, micros: i64, token: &NewToken) -> NewHold {
    let mut hold = new_hold(&user(owner), micros);
    hold.token = Some(token.id);
    hold
}

fn hold(hold: &NewHold) -> Action {
    Action::Hold(Box::new(hold.clone()))
}

async fn spent(world: &World, tenant: TenantId, token: &NewToken) -> i64 {
    world
        .store
        .find_token(tenant, token.id)
        .await
        .unwrap()
        .unwrap()
        .spent
        .get()
}

pub(crate) async fn a_token_comes_back_as_it_was_minted(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let mut narrow = new_token("alice", Some(0));
    narrow.token.tools = Some(vec!["open'ai/*".to_owned(), "x/\"y\"".to_owned()].into());
    let mut none = new_token("alice", None);
    none.token.tools = Some(Vec::new().into());
    let plain = new_token("Alice", None);
    for new in [&narrow, &none, &plain] {
        assert_eq!(world.run(tenant, mint(new)).await.unwrap(), Outcome::Minted);
        assert_eq!(
            world.store.find_token(tenant, new.id).await.unwrap().as_ref(),
            Some(&new.token)
        );
        assert!(world.store.find_token(other, new.id).await.unwrap().is_none());
        assert!(matches!(
            rejection(world.run(tenant, mint(new)).await),
            Rejection::Mismatch(_)
        ));
    }
    // Minting makes the end user known.
    assert!(
        world
            .store
            .find_end_user(tenant, &external("Alice"))
            .await
            .unwrap()
            .is_some()
    );
    world.run(tenant, grant(&user("alice"), 100)).await.unwrap();
    let refused = world.run(tenant, hold(&with_token("alice", 0, &none))).await;
    assert!(matches!(rejection(refused), Rejection::ToolNotAllowed(_)));
    // Another's token, and one that never was.
    for token in [&plain, &new_token("alice", None)] {
        let refused = world.run(tenant, hold(&with_token("alice", 1, token))).await;
        assert_eq!(rejection(refused), Rejection::TokenNotLive);
    }
}

pub(crate) async fn a_hundred_holds_race_for_a_tokens_ceiling(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&user("alice"), 1_000_000)).await.unwrap();
    let token = new_token("alice", Some(1_050));
    world.run(tenant, mint(&token)).await.unwrap();
    let holds: Vec<_> = (0..100).map(|_| with_token("alice", 100, &token)).collect();
    let results = join_all(holds.iter().map(|new| world.run(tenant, hold(new)))).await;
    let mut taken = Vec::new();
    for (hold, result) in holds.iter().zip(results) {
        match result {
            Ok(Outcome::Held(_)) => taken.push(hold),
            Err(SubmitError::Rejected(Rejection::SpendLimitExceeded { scope, limit, .. })) => {
                assert_eq!((scope, limit), (LimitScope::Credential, usd(1_050)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((taken.len(), spent(world, tenant, &token).await), (10, 1_000));
    // What a call does not use is free again; the row remembers across batches which token it was.
    let endings = taken.iter().enumerate().map(|(n, hold)| match n % 2 {
        0 => world.run(tenant, capture(hold, 50, 10)),
        _ => world.run(tenant, release(hold, None)),
    });
    assert!(join_all(endings).await.iter().all(Result::is_ok));
    assert_eq!(spent(world, tenant, &token).await, 300);
    let call = world
        .store
        .find_call(tenant, taken[0].call)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(call.call.token, Some(token.id));
    for (amount, fits) in [(751, false), (750, true), (0, true), (1, false)] {
        let result = world
            .run(tenant, hold(&with_token("alice", amount, &token)))
            .await;
        assert_eq!(result.is_ok(), fits, "{amount}: {result:?}");
    }
}

pub(crate) async fn revoking_one_or_all_counts_what_was_live(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&user("bob"), 100)).await.unwrap();
    let mut tokens: Vec<_> = (0..5).map(|_| new_token("alice", None)).collect();
    tokens[4].token.expires_at = NOW;
    let bobs = new_token("bob", None);
    for new in tokens.iter().chain([&bobs]) {
        world.run(tenant, mint(new)).await.unwrap();
    }
    let run = async |owner, only| world.run(tenant, revoke(owner, only)).await;
    for (owner, only, count) in [
        ("alice", Some(tokens[0].id), 1),
        ("alice", Some(tokens[0].id), 0),
        ("alice", Some(bobs.id), 0),
        ("alice", Some(tokens[4].id), 0),
        ("bob", Some(tokens[1].id), 0),
        ("alice", None, 3),
        ("alice", None, 0),
    ] {
        assert_eq!(
            run(owner, only).await.unwrap(),
            Outcome::Revoked(count),
            "{owner} {only:?}"
        );
    }
    assert_eq!(rejection(run("nobody", None).await), Rejection::UnknownEndUser);
    for new in &tokens[..4] {
        let found = world.store.find_token(tenant, new.id).await.unwrap().unwrap();
        assert_eq!(found.revoked_at, Some(NOW));
        let refused = world.run(tenant, hold(&with_token("alice", 0, new))).await;
        assert_eq!(rejection(refused), Rejection::TokenNotLive);
    }
    assert_eq!(
        world
            .store
            .find_token(tenant, tokens[4].id)
            .await
            .unwrap()
            .unwrap()
            .revoked_at,
        None
    );
    world
        .run(tenant, hold(&with_token("bob", 1, &bobs)))
        .await
        .unwrap();
}

// A mint and what ends it in one batch: the row that no database has yet counts like the others.
pub(crate) async fn tokens_minted_beside_a_revocation_are_counted_once(world: &World) {
    let tenant = world.tenant().await;
    for round in 0..20 {
        let name = format!("user-{round}");
        let tokens: Vec<_> = (0..12).map(|_| new_token(&name, None)).collect();
        world.run(tenant, mint(&tokens[0])).await.unwrap();
        let mut actions: Vec<Action> = tokens[1..].iter().map(mint).collect();
        actions.insert(4, revoke(&name, None));
        actions.insert(8, revoke(&name, Some(tokens[6].id)));
        actions.insert(10, retire(&name));
        let (mut minted, mut ended) = (1, 0);
        for result in join_all(actions.into_iter().map(|action| world.run(tenant, action))).await {
            match result {
                Ok(Outcome::Minted) => minted += 1,
                Ok(
                    Outcome::Revoked(count)
                    | Outcome::Retired {
                        revoked_tokens: count,
                        already: false,
                        ..
                    },
                ) => {
                    ended += count;
                }
                Err(SubmitError::Rejected(Rejection::EndUserRetired)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(minted, ended, "{name}");
        for new in &tokens {
            let found = world.store.find_token(tenant, new.id).await.unwrap();
            assert!(found.is_none_or(|token| token.revoked_at == Some(NOW)));
        }
    }
}

pub(crate) async fn a_call_outlives_its_pruned_token(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&user("alice"), 1_000)).await.unwrap();
    let (old, young) = (new_token("alice", Some(500)), new_token("alice", Some(500)));
    let mut old = old;
    old.token.expires_at = NOW.plus_millis(10);
    let holds: Vec<_> = [&old, &old, &young]
        .map(|token| with_token("alice", 100, token))
        .into();
    for action in [mint(&old), mint(&young)]
        .into_iter()
        .chain(holds.iter().map(hold))
    {
        world.run(tenant, action).await.unwrap();
    }
    for (before, pruned) in [(10, 0), (11, 1), (11, 0)] {
        assert_eq!(
            world.store.prune_tokens(NOW.plus_millis(before)).await.unwrap(),
            pruned
        );
    }
    assert!(world.store.find_token(tenant, old.id).await.unwrap().is_none());
    world.run(tenant, capture(&holds[0], 30, 10)).await.unwrap();
    world.run(tenant, release(&holds[1], None)).await.unwrap();
    world.run(tenant, capture(&holds[2], 30, 10)).await.unwrap();
    // A pruned token does not come back by what is given back to it.
    assert!(world.store.find_token(tenant, old.id).await.unwrap().is_none());
    assert_eq!(spent(world, tenant, &young).await, 40);
    let refused = world.run(tenant, hold(&with_token("alice", 1, &old))).await;
    assert_eq!(rejection(refused), Rejection::TokenNotLive);
}

pub(crate) async fn however_many_tokens_have_expired_all_are_pruned(world: &World) {
    let tenant = world.tenant().await;
    let tokens: Vec<_> = (0..1_203)
        .map(|n| {
            let mut new = new_token("alice", None);
            new.token.expires_at = NOW.plus_millis(if n < 1_200 { n } else { 5_000 });
            new
        })
        .collect();
    let minted = join_all(tokens.iter().map(|new| world.run(tenant, mint(new)))).await;
    assert!(minted.iter().all(Result::is_ok));
    let prune = async |millis| world.store.prune_tokens(NOW.plus_millis(millis)).await.unwrap();
    assert_eq!(
        (prune(0).await, prune(5_000).await, prune(5_000).await),
        (0, 1_200, 0)
    );
    assert_eq!(
        world.run(tenant, revoke("alice", None)).await.unwrap(),
        Outcome::Revoked(3)
    );
}

pub(crate) async fn signing_keys_are_listed_oldest_first(world: &World) {
    let key = |kid: &str, after: i64| SigningKeyRow {
        kid: kid.to_owned(),
        created_at: NOW.plus_millis(after),
        sealed: vec![0, 255, 39, 10],
    };
    let (newest, oldest, twin) = (key("b", 7), key("z", -1), key("B", 7));
    for row in [&newest, &oldest, &twin] {
        world.store.insert_signing_key(row).await.unwrap();
    }
    let again = world.store.insert_signing_key(&key("z", 9)).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists)), "{again:?}");
    let listed = world.store.list_signing_keys().await.unwrap();
    assert_eq!(listed, [oldest, twin.clone(), newest.clone()]);
    world.store.delete_signing_key("z").await.unwrap();
    world.store.delete_signing_key("z").await.unwrap();
    assert_eq!(world.store.list_signing_keys().await.unwrap(), [twin, newest]);
}
