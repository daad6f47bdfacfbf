//! Agent connections and the authorization server's rows in memory.

use async_trait::async_trait;
use turnpike_core::access::KeyHash;
use turnpike_core::ids::{TenantId, TokenId};
use turnpike_core::time::Timestamp;

use super::{MemoryStore, State};
use crate::agents::{Agent, AgentConnection, AgentFilter, Agents};
use crate::error::StoreError;
use crate::oauth::{OAuth, OAuthClient, OAuthCode, OAuthToken};

/// What there is of all of them.
#[derive(Default)]
pub(super) struct AgentRows {
    connections: Vec<AgentConnection>,
    clients: Vec<OAuthClient>,
    codes: Vec<OAuthCode>,
    tokens: Vec<OAuthToken>,
}

impl State {
    fn agent(&self, connection: &AgentConnection) -> Option<Agent> {
        let token = self.books.tokens.get(&(connection.tenant, connection.id))?;
        Some(Agent {
            connection: connection.clone(),
            token: token.clone(),
        })
    }
}

#[async_trait]
impl Agents for MemoryStore {
    async fn insert_agent(&self, agent: &AgentConnection) -> Result<(), StoreError> {
        let mut state = self.state();
        let hash = |agent: &AgentConnection| agent.secret.as_ref().map(|(hash, _)| *hash);
        let same = |known: &AgentConnection| {
            known.id == agent.id || (hash(known).is_some() && hash(known) == hash(agent))
        };
        if state.agents.connections.iter().any(same) {
            return Err(StoreError::AlreadyExists);
        }
        state.agents.connections.push(agent.clone());
        Ok(())
    }

    async fn find_agent_by_hash(&self, hash: &KeyHash) -> Result<Option<Agent>, StoreError> {
        let state = self.state();
        let mut all = state.agents.connections.iter();
        let found = all.find(|agent| {
            agent
                .secret
                .as_ref()
                .is_some_and(|(known, _)| known.matches(hash))
        });
        Ok(found.and_then(|found| state.agent(found)))
    }

    async fn find_agent(&self, tenant: TenantId, id: TokenId) -> Result<Option<Agent>, StoreError> {
        let state = self.state();
        let mut all = state.agents.connections.iter();
        let found = all.find(|agent| (agent.tenant, agent.id) == (tenant, id));
        Ok(found.and_then(|found| state.agent(found)))
    }

    async fn list_agents(&self, tenant: TenantId, filter: &AgentFilter) -> Result<Vec<Agent>, StoreError> {
        let state = self.state();
        let wanted = |agent: &&AgentConnection| {
            agent.tenant == tenant
                && filter.before.is_none_or(|before| agent.id < before)
                && filter.payer.as_ref().is_none_or(|payer| agent.payer == *payer)
        };
        let mut found: Vec<Agent> = state
            .agents
            .connections
            .iter()
            .filter(wanted)
            .filter_map(|agent| state.agent(agent))
            .collect();
        found.sort_by_key(|agent| std::cmp::Reverse(agent.connection.id));
        found.truncate(usize::try_from(filter.limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    async fn end_agent(&self, tenant: TenantId, id: TokenId, at: Timestamp) -> Result<(), StoreError> {
        for agent in &mut self.state().agents.connections {
            if (agent.tenant, agent.id) == (tenant, id) {
                agent.revoked_at = agent.revoked_at.or(Some(at));
            }
        }
        Ok(())
    }

    async fn touch_agent(&self, tenant: TenantId, id: TokenId, at: Timestamp) -> Result<(), StoreError> {
        for agent in &mut self.state().agents.connections {
            if (agent.tenant, agent.id) == (tenant, id) {
                agent.last_used_at = Some(at);
            }
        }
        Ok(())
    }

    async fn prune_agents(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut state = self.state();
        Ok(remove(&mut state.agents.connections, |agent| {
            agent.expires_at < before
        }))
    }
}

/// Removes what is `over`; says how many those were.
fn remove<T>(rows: &mut Vec<T>, over: impl Fn(&T) -> bool) -> u64 {
    let before = rows.len();
    rows.retain(|row| !over(row));
    u64::try_from(before.saturating_sub(rows.len())).unwrap_or(u64::MAX)
}

#[async_trait]
impl OAuth for MemoryStore {
    async fn insert_client(&self, client: &OAuthClient) -> Result<(), StoreError> {
        self.state().agents.clients.push(client.clone());
        Ok(())
    }

    async fn find_client(&self, id: &str, at: Timestamp) -> Result<Option<OAuthClient>, StoreError> {
        let state = self.state();
        let mut all = state.agents.clients.iter();
        Ok(all
            .find(|client| client.id == id && client.expires_at > at)
            .cloned())
    }

    async fn keep_client(&self, id: &str, until: Timestamp) -> Result<(), StoreError> {
        for client in &mut self.state().agents.clients {
            if client.id == id {
                client.expires_at = client.expires_at.max(until);
            }
        }
        Ok(())
    }

    async fn insert_code(&self, code: &OAuthCode) -> Result<(), StoreError> {
        self.state().agents.codes.push(code.clone());
        Ok(())
    }

    async fn find_code(&self, hash: &KeyHash) -> Result<Option<OAuthCode>, StoreError> {
        let state = self.state();
        let mut all = state.agents.codes.iter();
        Ok(all.find(|code| code.hash.matches(hash)).cloned())
    }

    async fn redeem_code(
        &self,
        hash: &KeyHash,
        at: Timestamp,
        agent: &AgentConnection,
        tokens: &[OAuthToken],
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let rows = &mut state.agents;
        let mut codes = rows.codes.iter_mut();
        let code =
            codes.find(|code| code.hash.matches(hash) && code.used_at.is_none() && code.expires_at > at);
        let Some(code) = code else { return Ok(false) };
        code.used_at = Some(at);
        rows.connections.push(agent.clone());
        rows.tokens.extend(tokens);
        Ok(true)
    }

    async fn find_oauth_token(&self, hash: &KeyHash) -> Result<Option<OAuthToken>, StoreError> {
        let state = self.state();
        let mut all = state.agents.tokens.iter();
        Ok(all.find(|token| token.hash.matches(hash)).copied())
    }

    async fn exchange_token(
        &self,
        hash: &KeyHash,
        at: Timestamp,
        tokens: &[OAuthToken],
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let rows = &mut state.agents;
        let mut all = rows.tokens.iter_mut();
        let live = |token: &&mut OAuthToken| {
            token.hash.matches(hash) && token.refresh && token.used_at.is_none() && token.expires_at > at
        };
        let Some(token) = all.find(live) else {
            return Ok(false);
        };
        token.used_at = Some(at);
        rows.tokens.extend(tokens);
        Ok(true)
    }

    async fn prune_oauth(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut state = self.state();
        let rows = &mut state.agents;
        Ok(remove(&mut rows.clients, |client| client.expires_at < before)
            .saturating_add(remove(&mut rows.codes, |code| code.expires_at < before))
            .saturating_add(remove(&mut rows.tokens, |token| token.expires_at < before)))
    }
}
