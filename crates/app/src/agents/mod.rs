//! Agent connections: scoped credentials for one end user or for the workspace.
//!
//! What a connection is stands in a row of its own; what it may spend and whether it works is the ledger's, which loads
//! it with every hold. The secret is in the answer that issues it and nowhere else.

mod authenticating;
mod request;
mod view;

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::access::{AgentSecret, AgentSecretKind, KeyPepper, Scope};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CommandId, TenantId, TokenId};
use turnpike_core::ledger::command::{AuditNote, NewToken, RevokeTokens};
use turnpike_core::ledger::token::{EndUserToken, TokenKind};
use turnpike_core::ledger::{Action, Command, Outcome, Payer};
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;
use turnpike_store::{Agent, AgentConnection, AgentFilter, Store, Tenant};

pub(crate) use self::authenticating::CachedAgent;
pub use self::authenticating::{AgentSession, Audience};
use self::request::Wanted;
pub(crate) use self::request::payer;
pub(crate) use self::view::agent_view;
use crate::auth::{Actor, ActorCredential};
use crate::end_users::narrowed;
use crate::environment::Environment;
use crate::error::AppError;
use crate::keys::require_enabled;
use crate::paging::{Page, id_cursor};
use crate::providers::Shelf;

/// How long a connection may live, in seconds (decisions, section 6).
pub(crate) const LIFETIME_SECS: std::ops::RangeInclusive<i64> = 300..=31_536_000;
/// How long the rows of a connection outlive it: as those of end users' tokens.
const KEPT_MS: i64 = 2 * 86_400_000;

/// What a connection may spend.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentLimits {
    /// In its whole life.
    pub(crate) max_spend: Option<Micros>,
    /// In one call.
    pub(crate) max_per_call: Option<Micros>,
    /// Slugs or `provider/*`.
    pub(crate) tools: Option<Vec<String>>,
}

/// Who makes or ends a connection, as records name them.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) name: Arc<str>,
    pub(crate) origin: Arc<str>,
}

impl Author {
    fn of(actor: &Actor) -> Self {
        Self {
            name: actor.label().into(),
            origin: actor.origin.clone(),
        }
    }
}

/// The use cases of agent connections.
pub struct AgentDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    pepper: KeyPepper,
    brand: Arc<str>,
    shelf: Arc<Shelf>,
}

impl AgentDesk {
    /// A desk whose secrets begin with `brand` and are hashed under `pepper`.
    pub const fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        pepper: KeyPepper,
        brand: Arc<str>,
        shelf: Arc<Shelf>,
    ) -> Self {
        Self {
            store,
            environment,
            pepper,
            brand,
            shelf,
        }
    }

    /// Makes a connection. The answer has its secret, which is never shown again.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `INSUFFICIENT_SCOPE`, `TENANT_SUSPENDED`, `END_USER_RETIRED`.
    pub async fn create(&self, actor: &Actor, raw: &[u8]) -> Result<Value, AppError> {
        let Wanted {
            name,
            payer,
            scopes,
            mut limits,
            lifetime_secs,
        } = Wanted::parse(raw)?;
        require_right(actor, &payer)?;
        if let Some(tools) = &limits.tools {
            require_enabled(&self.shelf, &actor.tenant, tools)?;
        }
        limits.tools = narrowed(actor, limits.tools)?;
        let now = self.environment.now();
        let secret = AgentSecret::generate(
            &self.brand,
            AgentSecretKind::Connection,
            &self.environment.random_32(),
        );
        let connection = AgentConnection {
            tenant: actor.tenant.id,
            id: TokenId(self.environment.new_id()),
            payer,
            name,
            secret: Some((secret.hash(&self.pepper), secret.prefix().to_owned())),
            grant: None,
            scopes,
            created_at: now,
            created_by: actor.label(),
            expires_at: now.plus_millis(lifetime_secs.saturating_mul(1000)),
            last_used_at: None,
            revoked_at: None,
        };
        // Only a connection with a row in the ledger works, so what is not committed there was never given out.
        self.store.insert_agent(&connection).await?;
        let agent = self
            .mint(&actor.tenant, connection, limits, &Author::of(actor))
            .await?;
        Ok(json!({ "success": true, "secret": secret.reveal(), "agentConnection": agent_view(&agent, now) }))
    }

    /// Gives a connection its row in the ledger, from when on it works.
    ///
    /// # Errors
    /// `TENANT_SUSPENDED`, `END_USER_RETIRED`.
    pub(crate) async fn mint(
        &self,
        tenant: &Tenant,
        connection: AgentConnection,
        limits: AgentLimits,
        author: &Author,
    ) -> Result<Agent, AppError> {
        let token = EndUserToken {
            kind: TokenKind::Agent,
            owner: connection.payer.clone(),
            created_at: connection.created_at,
            expires_at: connection.expires_at,
            revoked_at: None,
            max_spend: limits.max_spend,
            max_per_call: limits.max_per_call,
            spent: Micros::ZERO,
            tools: limits.tools.map(Arc::from),
        };
        let agent = Agent { connection, token };
        let new = NewToken {
            id: agent.connection.id,
            token: agent.token.clone(),
        };
        let after = agent_view(&agent, agent.connection.created_at);
        let action = Action::MintToken(Box::new(new));
        let done = self
            .submit(
                tenant,
                action,
                "agent.create",
                agent.connection.id,
                Some(&after),
                author,
            )
            .await?;
        let Outcome::Minted = done else {
            return Err(unexpected(&done));
        };
        Ok(agent)
    }

    async fn submit(
        &self,
        tenant: &Tenant,
        action: Action,
        name: &'static str,
        id: TokenId,
        after: Option<&Value>,
        author: &Author,
    ) -> Result<Outcome, AppError> {
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant: tenant.id,
            at: self.environment.now(),
            action,
            note: Some(Arc::new(AuditNote {
                actor: author.name.clone(),
                action: name,
                target: id.to_string().into(),
                before: None,
                after: after.map(|after| after.to_string().into()),
                origin: author.origin.clone(),
            })),
        };
        self.store
            .submit(command)
            .await
            .map_err(|error| AppError::from_submit(&error, tenant.credits_per_dollar))
    }

    /// A page of the workspace's connections, newest first; of an end user's own to that end user.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn list(&self, actor: &Actor, cursor: Option<&str>, limit: u32) -> Result<Page, AppError> {
        let filter = AgentFilter {
            payer: own(actor),
            before: id_cursor(cursor)?.map(TokenId),
            limit: limit.saturating_add(1),
        };
        let agents = self.store.list_agents(actor.tenant.id, &filter).await?;
        let now = self.environment.now();
        Ok(Page::cut(
            &agents,
            limit,
            |agent| agent.connection.id.to_string(),
            |agent| agent_view(agent, now),
        ))
    }

    /// A connection.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn get(&self, actor: &Actor, id: TokenId) -> Result<Value, AppError> {
        let agent = self.find(actor, id).await?;
        Ok(agent_view(&agent, self.environment.now()))
    }

    /// Revokes a connection, and every token that was given for it; one that was revoked stays as it is.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn revoke(&self, actor: &Actor, id: TokenId) -> Result<Value, AppError> {
        let agent = self.find(actor, id).await?;
        // The ledger's row is the last that falls.
        if agent.token.revoked_at.is_none() {
            self.end(&actor.tenant, id, &Author::of(actor)).await?;
        }
        self.get(actor, id).await
    }

    async fn find(&self, actor: &Actor, id: TokenId) -> Result<Agent, AppError> {
        let found = self.store.find_agent(actor.tenant.id, id).await?;
        let theirs = own(actor);
        found
            .filter(|agent| {
                theirs
                    .as_ref()
                    .is_none_or(|payer| agent.connection.payer == *payer)
            })
            .ok_or_else(|| AppError::new(ErrorCode::NotFound, "there is no such agent connection"))
    }

    /// Ends a connection, whoever asks for it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn end(&self, tenant: &Tenant, id: TokenId, author: &Author) -> Result<(), AppError> {
        let now = self.environment.now();
        // First here, so that a connection that is being minted right now does not outlive its end.
        self.store.end_agent(tenant.id, id, now).await?;
        let Some(agent) = self.store.find_agent(tenant.id, id).await? else {
            return Ok(());
        };
        let revoke = RevokeTokens {
            kind: TokenKind::Agent,
            owner: agent.connection.payer.clone(),
            only: Some(id),
        };
        let after = json!({ "revokedAt": now });
        let action = Action::RevokeTokens(revoke);
        self.submit(tenant, action, "agent.revoke", id, Some(&after), author)
            .await
            .map(drop)
    }

    /// Forgets connections that are over.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn prune(&self) -> Result<u64, AppError> {
        Ok(self.store.prune_agents(self.kept_since()).await?)
    }

    /// What ended before this is not kept any more.
    pub(crate) fn kept_since(&self) -> Timestamp {
        self.environment.now().plus_millis(-KEPT_MS)
    }

    pub(crate) async fn tenant(&self, id: TenantId) -> Result<Tenant, AppError> {
        let found = self.store.find_tenant(id).await?;
        found.ok_or_else(|| AppError::new(ErrorCode::NotFound, "there is no such workspace"))
    }
}

/// Whose connections an end user's token is about: its own.
fn own(actor: &Actor) -> Option<Payer> {
    match &actor.credential {
        ActorCredential::EndUser(session) => Some(Payer::EndUser(session.id.clone())),
        ActorCredential::Key(_) | ActorCredential::Member { .. } | ActorCredential::Agent(_) => None,
    }
}

/// Who makes a connection that spends from `payer`: `tokens:manage` for an end user's, `credentials:manage` beside it
/// for one of the workspace.
///
/// # Errors
/// `CREDENTIAL_KIND_NOT_ALLOWED`, `INSUFFICIENT_SCOPE`.
pub(crate) fn require_right(actor: &Actor, payer: &Payer) -> Result<(), AppError> {
    actor.require(Scope::TokensManage)?;
    match payer {
        Payer::Pool => actor.require(Scope::CredentialsManage),
        Payer::EndUser(_) => Ok(()),
    }
}

fn unexpected(outcome: &Outcome) -> AppError {
    AppError::internal(&format!("a command was answered by another outcome: {outcome:?}"))
}
