//! Agent connections, and what the authorization server may do once.

use futures_util::future::join_all;
use turnpike_core::access::{AgentScope, KeyHash};
use turnpike_core::ids::{TenantId, TokenId};
use turnpike_core::ledger::command::{NewToken, RevokeTokens};
use turnpike_core::ledger::rejection::LimitScope;
use turnpike_core::ledger::token::{EndUserToken, TokenKind};
use turnpike_core::ledger::{Action, Outcome, Payer, Rejection};
use turnpike_core::time::Timestamp;
use turnpike_store::{
    AgentConnection, AgentFilter, OAuthClient, OAuthCode, OAuthToken, StoreError, SubmitError,
};

use crate::actions::{external, grant, new_hold, usd, user};
use crate::calls::rejection;
use crate::money_in::{mint, new_token, retire};
use crate::world::{NOW, World, next_id};

const HOUR_MS: i64 = 3_600_000;

/// A hash that nothing else has.
fn hash() -> KeyHash {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(next_id().as_bytes());
    KeyHash(bytes)
}

fn connection(tenant: TenantId, payer: &Payer) -> AgentConnection {
    AgentConnection {
        tenant,
        id: TokenId(next_id()),
        payer: payer.clone(),
        name: "it's \"an\" agent".to_owned(),
        secret: Some((hash(), "svc_ac_abcd".to_owned())),
        grant: None,
        scopes: vec![AgentScope::Read, AgentScope::Execute],
        created_at: NOW,
        created_by: "member:ada".to_owned(),
        expires_at: NOW.plus_millis(HOUR_MS),
        last_used_at: None,
        revoked_at: None,
    }
}

fn granted(tenant: TenantId) -> AgentConnection {
    AgentConnection {
        secret: None,
        grant: Some(("client".to_owned(), "https://svc.example/mcp".to_owned())),
        ..connection(tenant, &Payer::Pool)
    }
}

fn row(agent: &AgentConnection, max_spend: Option<i64>, max_per_call: Option<i64>) -> NewToken {
    NewToken {
        id: agent.id,
        token: EndUserToken {
            kind: TokenKind::Agent,
            owner: agent.payer.clone(),
            created_at: agent.created_at,
            expires_at: agent.expires_at,
            revoked_at: None,
            max_spend: max_spend.map(usd),
            max_per_call: max_per_call.map(usd),
            spent: usd(0),
            tools: Some(vec!["a/*".to_owned()].into()),
        },
    }
}

fn token(agent: &AgentConnection, refresh: bool) -> OAuthToken {
    OAuthToken {
        hash: hash(),
        tenant: agent.tenant,
        agent: agent.id,
        refresh,
        created_at: NOW,
        expires_at: NOW.plus_millis(HOUR_MS),
        used_at: None,
    }
}

fn code() -> OAuthCode {
    OAuthCode {
        hash: hash(),
        expires_at: NOW.plus_millis(60_000),
        used_at: None,
        document: "{\"it's\":1}".to_owned(),
    }
}

fn ending(agent: &AgentConnection) -> Action {
    Action::RevokeTokens(RevokeTokens {
        kind: TokenKind::Agent,
        owner: agent.payer.clone(),
        only: Some(agent.id),
    })
}

pub(crate) async fn a_connection_comes_back_as_it_was_made(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let store = &world.store;
    let alice = user("alice");
    let mut made = Vec::new();
    for agent in [
        connection(tenant, &alice),
        connection(tenant, &Payer::Pool),
        granted(tenant),
    ] {
        let new = row(&agent, Some(100), Some(10));
        store.insert_agent(&agent).await.unwrap();
        // Only both rows together are a connection.
        assert_eq!(store.find_agent(tenant, agent.id).await.unwrap(), None);
        world.run(tenant, mint(&new)).await.unwrap();
        let found = store.find_agent(tenant, agent.id).await.unwrap().unwrap();
        assert_eq!((&found.connection, &found.token), (&agent, &new.token));
        assert_eq!(store.find_agent(other, agent.id).await.unwrap(), None);
        if let Some((hash, _)) = &agent.secret {
            let found = store.find_agent_by_hash(hash).await.unwrap().unwrap();
            assert_eq!(found.connection, agent);
        }
        made.push(agent);
    }
    assert_eq!(store.find_agent_by_hash(&hash()).await.unwrap(), None);
    let again = AgentConnection {
        id: TokenId(next_id()),
        ..made[0].clone()
    };
    assert!(matches!(
        store.insert_agent(&again).await,
        Err(StoreError::AlreadyExists)
    ));
    let list = async |payer: Option<&Payer>, before: Option<TokenId>, limit| {
        let filter = AgentFilter {
            payer: payer.cloned(),
            before,
            limit,
        };
        let found = store.list_agents(tenant, &filter).await.unwrap();
        found.iter().map(|agent| agent.connection.id).collect::<Vec<_>>()
    };
    let ids: Vec<_> = made.iter().rev().map(|agent| agent.id).collect();
    assert_eq!(list(None, None, 10).await, ids);
    assert_eq!(list(None, None, 2).await, ids[..2]);
    assert_eq!(list(None, Some(ids[1]), 10).await, ids[2..]);
    assert_eq!(list(Some(&alice), None, 10).await, ids[2..]);
    assert_eq!(list(Some(&Payer::Pool), Some(ids[0]), 10).await, ids[1..2]);

    store.touch_agent(tenant, ids[0], NOW).await.unwrap();
    store.end_agent(tenant, ids[0], NOW).await.unwrap();
    store.end_agent(tenant, ids[0], NOW.plus_millis(5)).await.unwrap();
    let ended = store.find_agent(tenant, ids[0]).await.unwrap().unwrap();
    assert_eq!(
        (ended.revoked_at(), ended.connection.last_used_at),
        (Some(NOW), Some(NOW))
    );
    // Other tests of this database have connections, too.
    assert!(store.prune_agents(NOW.plus_millis(HOUR_MS)).await.is_ok());
    assert!(store.find_agent(tenant, ids[1]).await.unwrap().is_some());
}

pub(crate) async fn fifty_holds_race_for_a_connections_ceiling(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 10_000)).await.unwrap();
    let agent = connection(tenant, &Payer::Pool);
    world
        .run(tenant, mint(&row(&agent, Some(1_050), Some(100))))
        .await
        .unwrap();
    let with = |payer: &Payer, micros| {
        let mut hold = new_hold(payer, micros);
        hold.token = Some(agent.id);
        hold.subject.provider = "a".into();
        Action::Hold(Box::new(hold))
    };
    let results = join_all((0..50).map(|_| world.run(tenant, with(&Payer::Pool, 100)))).await;
    let held = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(held, 10);
    let refused = world.run(tenant, with(&Payer::Pool, 101)).await;
    assert!(matches!(
        rejection(refused),
        Rejection::SpendLimitExceeded {
            scope: LimitScope::Call,
            ..
        }
    ));
    // It spends from nobody else's balance, and after its end from nobody's.
    world.run(tenant, grant(&user("alice"), 100)).await.unwrap();
    let refused = world.run(tenant, with(&user("alice"), 1)).await;
    assert_eq!(rejection(refused), Rejection::TokenNotLive);
    assert!(matches!(
        world.run(tenant, ending(&agent)).await,
        Ok(Outcome::Revoked(1))
    ));
    assert!(matches!(
        world.run(tenant, ending(&agent)).await,
        Ok(Outcome::Revoked(0))
    ));
    let refused = world.run(tenant, with(&Payer::Pool, 1)).await;
    assert_eq!(rejection(refused), Rejection::TokenNotLive);
}

pub(crate) async fn retirement_counts_connections_and_tokens_apart(world: &World) {
    let tenant = world.tenant().await;
    let (alice, bob) = (user("alice"), user("bob"));
    world.run(tenant, mint(&new_token("alice", None))).await.unwrap();
    let agents: Vec<_> = (0..3).map(|_| connection(tenant, &alice)).collect();
    let others = [connection(tenant, &bob), connection(tenant, &Payer::Pool)];
    for agent in agents.iter().chain(&others) {
        world.run(tenant, mint(&row(agent, None, None))).await.unwrap();
    }
    world.run(tenant, ending(&agents[0])).await.unwrap();
    // Ending a user's tokens leaves the connections alone.
    let tokens = Action::RevokeTokens(RevokeTokens {
        kind: TokenKind::EndUser,
        owner: alice.clone(),
        only: None,
    });
    assert!(matches!(world.run(tenant, tokens).await, Ok(Outcome::Revoked(1))));
    let retired = world.run(tenant, retire("alice")).await.unwrap();
    assert!(
        matches!(
            retired,
            Outcome::Retired {
                revoked_tokens: 0,
                revoked_agents: 2,
                ..
            }
        ),
        "{retired:?}"
    );
    let late = world
        .run(tenant, mint(&row(&connection(tenant, &alice), None, None)))
        .await;
    assert!(matches!(
        late,
        Err(SubmitError::Rejected(Rejection::EndUserRetired))
    ));
    for agent in &others {
        let found = world.store.find_token(tenant, agent.id).await.unwrap().unwrap();
        assert_eq!(found.revoked_at, None);
    }
    assert_eq!(external("alice").as_str(), "alice");
}

pub(crate) async fn of_twenty_redemptions_of_a_code_one_happens(world: &World) {
    let tenant = world.tenant().await;
    let store = &world.store;
    let code = code();
    store.insert_code(&code).await.unwrap();
    assert_eq!(store.find_code(&code.hash).await.unwrap(), Some(code.clone()));
    assert_eq!(store.find_code(&hash()).await.unwrap(), None);
    let tries: Vec<_> = (0..20)
        .map(|_| {
            let agent = granted(tenant);
            let tokens = [token(&agent, false), token(&agent, true)];
            (agent, tokens)
        })
        .collect();
    let at = NOW.plus_millis(59_999);
    let redeemed = join_all(
        tries
            .iter()
            .map(|(agent, tokens)| store.redeem_code(&code.hash, at, agent, tokens)),
    )
    .await;
    let won: Vec<usize> = (0..20).filter(|n| *redeemed[*n].as_ref().unwrap()).collect();
    assert_eq!(won.len(), 1);
    for (n, (agent, tokens)) in tries.iter().enumerate() {
        let minted = world.run(tenant, mint(&row(agent, None, None))).await;
        assert!(minted.is_ok());
        let is_there = store.find_agent(tenant, agent.id).await.unwrap().is_some();
        assert_eq!(is_there, won == [n]);
        for token in tokens {
            let found = store.find_oauth_token(&token.hash).await.unwrap();
            assert_eq!(found, (won == [n]).then_some(*token));
        }
    }
    assert_eq!(
        store.find_code(&code.hash).await.unwrap().unwrap().used_at,
        Some(at)
    );
    // One that is over is redeemed by nobody.
    let late = OAuthCode { hash: hash(), ..code };
    store.insert_code(&late).await.unwrap();
    let agent = granted(tenant);
    assert!(
        !store
            .redeem_code(&late.hash, late.expires_at, &agent, &[])
            .await
            .unwrap()
    );
}

pub(crate) async fn of_twenty_refreshes_one_happens(world: &World) {
    let tenant = world.tenant().await;
    let store = &world.store;
    let (code, agent) = (code(), granted(tenant));
    let (access, refresh) = (token(&agent, false), token(&agent, true));
    store.insert_code(&code).await.unwrap();
    assert!(
        store
            .redeem_code(&code.hash, NOW, &agent, &[access, refresh])
            .await
            .unwrap()
    );
    let next: Vec<_> = (0..20)
        .map(|_| [token(&agent, false), token(&agent, true)])
        .collect();
    let done = join_all(
        next.iter()
            .map(|tokens| store.exchange_token(&refresh.hash, NOW, tokens)),
    )
    .await;
    let won: Vec<usize> = (0..20).filter(|n| *done[*n].as_ref().unwrap()).collect();
    assert_eq!(won.len(), 1);
    for (n, tokens) in next.iter().enumerate() {
        let found = store.find_oauth_token(&tokens[1].hash).await.unwrap();
        assert_eq!(found, (won == [n]).then_some(tokens[1]));
    }
    // Neither an access token nor one that is over is exchanged.
    assert!(!store.exchange_token(&access.hash, NOW, &[]).await.unwrap());
    let last = next[won[0]][1];
    assert!(
        !store
            .exchange_token(&last.hash, last.expires_at, &[])
            .await
            .unwrap()
    );
    assert!(store.exchange_token(&last.hash, NOW, &[]).await.unwrap());
}

pub(crate) async fn clients_and_codes_are_forgotten(world: &World) {
    let store = &world.store;
    let client = |at: Timestamp| OAuthClient {
        id: next_id().to_string(),
        name: "it's a client".to_owned(),
        redirect_uris: vec!["http://127.0.0.1/".to_owned()],
        created_at: NOW,
        expires_at: at,
    };
    let (soon, later) = (client(NOW.plus_millis(10)), client(NOW.plus_millis(10)));
    for client in [&soon, &later] {
        store.insert_client(client).await.unwrap();
        let found = store.find_client(&client.id, NOW).await.unwrap();
        assert_eq!(found.as_ref(), Some(client));
        assert_eq!(
            store.find_client(&client.id, client.expires_at).await.unwrap(),
            None
        );
    }
    assert_eq!(store.find_client("nobody", NOW).await.unwrap(), None);
    let until = NOW.plus_millis(HOUR_MS);
    store.keep_client(&later.id, until).await.unwrap();
    store.keep_client(&later.id, NOW).await.unwrap();
    assert_eq!(
        store
            .find_client(&later.id, NOW)
            .await
            .unwrap()
            .unwrap()
            .expires_at,
        until
    );
    assert!(store.prune_oauth(NOW.plus_millis(11)).await.unwrap() >= 1);
    assert_eq!(store.find_client(&soon.id, NOW).await.unwrap(), None);
    assert!(store.find_client(&later.id, NOW).await.unwrap().is_some());
}
