//! Who presents an agent connection: by its own secret, or by an access token that was granted for it.

use std::sync::Arc;

use turnpike_core::access::{AgentScope, AgentSecret, AgentSecretKind, KeyHash};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::TokenId;
use turnpike_core::ledger::Payer;
use turnpike_core::time::Timestamp;
use turnpike_store::{Agent, Tenant};

use crate::auth::{Actor, ActorCredential, Authenticator, CACHE_MS, TOUCH_MS, UNKNOWN_ORIGIN};
use crate::error::AppError;

/// An agent connection that somebody presented.
#[derive(Clone, Debug)]
pub struct AgentSession {
    /// Its id, and that of the row in the ledger.
    pub id: TokenId,
    /// Whose balance it spends from.
    pub payer: Payer,
    /// What it may do.
    pub scopes: Vec<AgentScope>,
    /// Slugs or `provider/*` it is narrowed to; `None` = all that the workspace has enabled.
    pub tools: Option<Arc<[String]>>,
}

/// What a credential was presented to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience<'a> {
    /// The routes of the API.
    Api,
    /// A resource that access tokens are granted for, by its URL.
    Resource(&'a str),
}

#[derive(Clone)]
pub(crate) struct CachedAgent {
    agent: Arc<Agent>,
    tenant: Arc<Tenant>,
    /// When the access token ends; a secret ends with its connection.
    expires_at: Timestamp,
    at: Timestamp,
}

impl Authenticator {
    /// Whether `bearer` looks like an agent connection's secret or access token.
    pub fn is_agent(&self, bearer: &str) -> bool {
        let kind = AgentSecret::kind_of(&self.brand, bearer);
        matches!(kind, Some(AgentSecretKind::Connection | AgentSecretKind::Access))
    }

    /// The actor behind an agent connection's secret, or behind an access token, which works at its resource alone.
    ///
    /// # Errors
    /// `INVALID_CREDENTIAL`, `CREDENTIAL_EXPIRED`, `CREDENTIAL_REVOKED`.
    pub async fn agent(
        &self,
        bearer: &str,
        audience: Audience<'_>,
        now: Timestamp,
    ) -> Result<Actor, AppError> {
        let invalid = || AppError::new(ErrorCode::InvalidCredential, "the agent connection is not valid");
        let kind = AgentSecret::kind_of(&self.brand, bearer).ok_or_else(invalid)?;
        let secret = AgentSecret::parse(&self.brand, kind, bearer).map_err(|_malformed| invalid())?;
        let hash = secret.hash(self.pepper());
        let fresh = |cached: &CachedAgent| (0..CACHE_MS).contains(&now.since(cached.at));
        let cached = match self.agents.get(&hash).filter(fresh) {
            Some(cached) => cached,
            None => self.load_agent(&hash, kind, now).await?.ok_or_else(invalid)?,
        };
        let connection = &cached.agent.connection;
        if cached.agent.revoked_at().is_some() {
            let message = "the agent connection was revoked";
            return Err(AppError::new(ErrorCode::CredentialRevoked, message));
        }
        if cached.expires_at <= now || !cached.agent.token.is_live(now) {
            let message = "the agent connection has expired";
            return Err(AppError::new(ErrorCode::CredentialExpired, message));
        }
        if kind == AgentSecretKind::Access {
            let granted = connection
                .grant
                .as_ref()
                .map(|(_, resource)| Audience::Resource(resource));
            if granted != Some(audience) {
                let message = "this access token was not granted for this resource";
                return Err(AppError::new(ErrorCode::InvalidCredential, message));
            }
        }
        let session = AgentSession {
            id: connection.id,
            payer: connection.payer.clone(),
            scopes: connection.scopes.clone(),
            tools: cached.agent.token.tools.clone(),
        };
        Ok(Actor {
            tenant: cached.tenant,
            credential: ActorCredential::Agent(Arc::new(session)),
            origin: UNKNOWN_ORIGIN.into(),
        })
    }

    async fn load_agent(
        &self,
        hash: &KeyHash,
        kind: AgentSecretKind,
        now: Timestamp,
    ) -> Result<Option<CachedAgent>, AppError> {
        let found = match kind {
            AgentSecretKind::Connection => {
                let found = self.store.find_agent_by_hash(hash).await?;
                found.map(|agent| (agent.connection.expires_at, agent))
            }
            AgentSecretKind::Access => match self.store.find_oauth_token(hash).await? {
                Some(token) if !token.refresh => {
                    let found = self.store.find_agent(token.tenant, token.agent).await?;
                    found.map(|agent| (token.expires_at, agent))
                }
                Some(_) | None => None,
            },
            AgentSecretKind::Refresh | AgentSecretKind::Code => None,
        };
        let Some((expires_at, agent)) = found else {
            return Ok(None);
        };
        let Some(tenant) = self.store.find_tenant(agent.connection.tenant).await? else {
            return Ok(None);
        };
        let connection = &agent.connection;
        if connection.last_used_at.is_none_or(|at| now.since(at) >= TOUCH_MS) && agent.revoked_at().is_none()
        {
            // A store that cannot write still tells who is calling.
            if let Err(error) = self
                .store
                .touch_agent(connection.tenant, connection.id, now)
                .await
            {
                tracing::debug!(%error, "the use of an agent connection was not noted");
            }
        }
        let cached = CachedAgent {
            agent: Arc::new(agent),
            tenant: Arc::new(tenant),
            expires_at,
            at: now,
        };
        self.agents.insert(*hash, cached.clone());
        Ok(Some(cached))
    }
}
