//! Step-up tokens and ended sessions.

use turnpike_core::access::KeyHash;
use turnpike_core::ids::TenantId;
use turnpike_core::time::Timestamp;
use turnpike_store::{EndedSession, StepUpToken, StoreError};

use crate::actions::audit_row;
use crate::world::{NOW, World};

const HOUR_MS: i64 = 3_600_000;

fn token(tenant: TenantId, name: u8, subject: &str) -> StepUpToken {
    StepUpToken {
        tenant,
        hash: KeyHash([name; 32]),
        issuer: "https://id.example".to_owned(),
        subject: subject.to_owned(),
        session: KeyHash([name ^ 0x80; 32]),
        created_at: NOW,
        expires_at: NOW.plus_millis(600_000),
        revoked_at: None,
    }
}

fn ended(name: u8, subject: &str, at: Timestamp) -> EndedSession {
    EndedSession {
        hash: KeyHash([name ^ 0x80; 32]),
        issuer: "https://id.example".to_owned(),
        subject: subject.to_owned(),
        ended_at: at,
        expires_at: NOW.plus_millis(HOUR_MS),
    }
}

async fn add(world: &World, token: &StepUpToken) {
    let audit = audit_row(token.tenant);
    world.store.insert_step_up(token, &audit).await.unwrap();
}

pub(crate) async fn a_step_up_token_is_found_in_its_workspace_alone(world: &World) {
    let (here, there) = (world.tenant().await, world.tenant().await);
    let one = token(here, 1, "O'Hara; -- \u{e9}");
    add(world, &one).await;
    let again = world.store.insert_step_up(&one, &audit_row(here)).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists)), "{again:?}");
    let find = async |tenant, hash| world.store.find_step_up(tenant, hash).await.unwrap();
    assert_eq!(find(here, &one.hash).await.as_ref(), Some(&one));
    assert_eq!(find(there, &one.hash).await, None);
    assert_eq!(find(here, &KeyHash([2; 32])).await, None);
}

pub(crate) async fn an_ended_session_takes_its_persons_tokens_along(world: &World) {
    let (here, there) = (world.tenant().await, world.tenant().await);
    let mut theirs = [
        token(here, 1, "alice"),
        token(there, 2, "alice"),
        token(here, 3, "alice"),
    ];
    theirs[2].expires_at = NOW;
    let (bobs, mut foreign) = (token(here, 4, "bob"), token(here, 5, "alice"));
    "https://other.example".clone_into(&mut foreign.issuer);
    for token in theirs.iter().chain([&bobs, &foreign]) {
        add(world, token).await;
    }
    let session = ended(9, "alice", NOW);
    assert!(!world.store.is_session_ended(&session.hash).await.unwrap());
    assert_eq!(world.store.end_session(&session).await.unwrap(), 2);
    assert_eq!(world.store.end_session(&session).await.unwrap(), 0);
    assert!(world.store.is_session_ended(&session.hash).await.unwrap());
    let revoked = async |token: &StepUpToken| {
        let found = world.store.find_step_up(token.tenant, &token.hash).await.unwrap();
        found.unwrap().revoked_at
    };
    for token in &theirs[..2] {
        assert_eq!(revoked(token).await, Some(NOW));
    }
    for token in [&theirs[2], &bobs, &foreign] {
        assert_eq!(revoked(token).await, None);
    }
    // One that is given while its session ends falls with it, whichever of the two is written first.
    let late = NOW.plus_millis(5);
    assert_eq!(
        world.store.end_session(&ended(6, "alice", late)).await.unwrap(),
        0
    );
    let racing = token(here, 6, "alice");
    add(world, &racing).await;
    assert_eq!(revoked(&racing).await, Some(late));
}

pub(crate) async fn what_is_over_is_pruned(world: &World) {
    let tenant = world.tenant().await;
    let mut tokens = [token(tenant, 1, "alice"), token(tenant, 2, "alice")];
    tokens[0].expires_at = NOW;
    for token in &tokens {
        add(world, token).await;
    }
    let (mut old, new) = (ended(7, "bob", NOW), ended(8, "bob", NOW));
    old.expires_at = NOW;
    for session in [&old, &new] {
        world.store.end_session(session).await.unwrap();
    }
    assert_eq!(world.store.prune_sessions(NOW).await.unwrap(), 0);
    assert_eq!(world.store.prune_sessions(NOW.plus_millis(1)).await.unwrap(), 2);
    assert!(!world.store.is_session_ended(&old.hash).await.unwrap());
    assert!(world.store.is_session_ended(&new.hash).await.unwrap());
    let left = world.store.find_step_up(tenant, &tokens[1].hash).await.unwrap();
    assert_eq!(left.as_ref(), Some(&tokens[1]));
    assert_eq!(
        world
            .store
            .prune_sessions(NOW.plus_millis(2 * HOUR_MS))
            .await
            .unwrap(),
        2
    );
}
