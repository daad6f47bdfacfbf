//! Codes and refresh tokens become access tokens (RFC 6749, sections 4.1.3 and 6; RFC 7009).
//!
//! A code and a refresh token work once, which one conditional statement decides. Whoever presents one a second time
//! has it from somebody else, or somebody else has it: the connection ends with everything that was given for it
//! (RFC 9700, section 4.14).

use serde_json::{Value, json};
use turnpike_core::access::{AgentSecretKind, Role, Scope};
use turnpike_core::ids::{TenantId, TokenId};
use turnpike_core::oauth::{OAuthErrorCode, Scopes, proves};
use turnpike_core::time::Timestamp;
use turnpike_store::{Agent, AgentConnection, OAuthToken};

use super::grant::Grant;
use super::{OAuthDesk, OAuthError, Parameters};
use crate::agents::{AgentLimits, Author, payer};

/// How long an access token works.
pub(super) const ACCESS_SECS: i64 = 3600;
/// Longest name of a connection.
const MAX_NAME: usize = 100;

/// The one value of a parameter; an empty one counts as none.
fn one<'a>(parameters: &'a Parameters, name: &str) -> Result<Option<&'a str>, OAuthError> {
    let mut values = parameters.iter().filter(|(known, _)| known == name);
    let first = values.next().map(|(_, value)| value.as_str());
    if values.next().is_some() {
        return Err(OAuthError::request(format!("{name} stands twice")));
    }
    Ok(first.filter(|value| !value.is_empty()))
}

fn needed<'a>(parameters: &'a Parameters, name: &str) -> Result<&'a str, OAuthError> {
    one(parameters, name)?.ok_or_else(|| OAuthError::request(format!("{name} is missing")))
}

/// Tokens of a connection, with what is kept of them.
struct Issued {
    answer: Value,
    rows: Vec<OAuthToken>,
}

impl OAuthDesk {
    /// Gives tokens for a code or a refresh token.
    ///
    /// # Errors
    /// As RFC 6749, section 5.2.
    pub async fn exchange(&self, parameters: &Parameters) -> Result<Value, OAuthError> {
        if let Some(resource) = one(parameters, "resource")?
            && !self.is_resource(resource)
        {
            let text = format!("the one resource here is {}", self.resource());
            return Err(OAuthError::new(OAuthErrorCode::InvalidTarget, text));
        }
        match needed(parameters, "grant_type")? {
            "authorization_code" => self.redeem(parameters).await,
            "refresh_token" => self.refresh(parameters).await,
            _ => Err(OAuthError::new(
                OAuthErrorCode::UnsupportedGrantType,
                "grant_type must be authorization_code or refresh_token",
            )),
        }
    }

    async fn redeem(&self, parameters: &Parameters) -> Result<Value, OAuthError> {
        let client = needed(parameters, "client_id")?;
        let code = needed(parameters, "code")?;
        let redirect_uri = needed(parameters, "redirect_uri")?;
        let verifier = needed(parameters, "code_verifier")?;
        if self.client(client).await?.is_none() {
            return Err(OAuthError::client());
        }
        let hash = self
            .hash_of(AgentSecretKind::Code, code)
            .ok_or_else(OAuthError::grant)?;
        let found = self.store.find_code(&hash).await?.ok_or_else(OAuthError::grant)?;
        let grant: Grant =
            serde_json::from_str(&found.document).map_err(|_other_version| OAuthError::grant())?;
        if grant.client != client {
            return Err(OAuthError::grant());
        }
        let id = TokenId(grant.agent);
        if found.used_at.is_some() {
            self.end_all(grant.tenant, id, "a code was used twice").await?;
            return Err(OAuthError::grant());
        }
        let now = self.now();
        if found.expires_at <= now || grant.redirect_uri != redirect_uri {
            return Err(OAuthError::grant());
        }
        if !proves(verifier, &grant.challenge) {
            return Err(OAuthError::new(
                OAuthErrorCode::InvalidGrant,
                "code_verifier is not what code_challenge was made of",
            ));
        }
        self.require_member(&grant).await?;
        let scopes = Scopes::parse(&grant.scope).ok_or_else(OAuthError::grant)?;
        let connection = connection(&grant, &scopes, now)?;
        let issued = self.issue(&connection, &scopes, now);
        if !self
            .store
            .redeem_code(&hash, now, &connection, &issued.rows)
            .await?
        {
            // Somebody else was faster.
            self.end_all(grant.tenant, id, "a code was used twice").await?;
            return Err(OAuthError::grant());
        }
        self.keep(client, connection.expires_at).await?;
        let tenant = self.agents.tenant(grant.tenant).await?;
        let author = Author {
            name: format!("member:{}", grant.subject).into(),
            origin: grant.origin.as_str().into(),
        };
        let limits = AgentLimits {
            max_spend: grant.max_spend,
            max_per_call: grant.max_per_call,
            tools: None,
        };
        self.agents.mint(&tenant, connection, limits, &author).await?;
        // Who came second may have ended it before it was there.
        let made = self.store.find_agent(tenant.id, id).await?;
        if made.is_some_and(|agent| agent.revoked_at().is_some()) {
            self.end_all(tenant.id, id, "a code was used twice").await?;
            return Err(OAuthError::grant());
        }
        Ok(issued.answer)
    }

    /// Who agreed must still be able to.
    async fn require_member(&self, grant: &Grant) -> Result<(), OAuthError> {
        let memberships = self.store.list_memberships(&grant.subject).await?;
        let role = memberships
            .iter()
            .find(|(member, _)| member.tenant == grant.tenant)
            .map(|(member, _)| member.role);
        let needed: &[Scope] = if grant.owner.is_empty() {
            &[Scope::TokensManage, Scope::CredentialsManage]
        } else {
            &[Scope::TokensManage]
        };
        let has = |role: Role| needed.iter().all(|scope| role.scopes().contains(scope));
        if role.is_some_and(has) {
            Ok(())
        } else {
            Err(OAuthError::grant())
        }
    }

    async fn refresh(&self, parameters: &Parameters) -> Result<Value, OAuthError> {
        let client = needed(parameters, "client_id")?;
        let token = needed(parameters, "refresh_token")?;
        let wanted = match one(parameters, "scope")? {
            None => None,
            Some(text) => Some(Scopes::parse(text).ok_or_else(scope_refused)?),
        };
        let hash = self
            .hash_of(AgentSecretKind::Refresh, token)
            .ok_or_else(OAuthError::grant)?;
        let now = self.now();
        let Some(row) = self.store.find_oauth_token(&hash).await? else {
            return Err(OAuthError::grant());
        };
        let agent = self.store.find_agent(row.tenant, row.agent).await?;
        let agent = agent
            .filter(|agent| granted_to(agent, client))
            .ok_or_else(OAuthError::grant)?;
        if row.used_at.is_some() {
            self.end_all(row.tenant, row.agent, "a refresh token was used twice")
                .await?;
            return Err(OAuthError::grant());
        }
        if agent.revoked_at().is_some() || !agent.token.is_live(now) {
            return Err(OAuthError::grant());
        }
        let scopes = Scopes {
            agent: agent.connection.scopes.clone(),
            offline: true,
        };
        if wanted.is_some_and(|wanted| !wanted.is_within(&scopes)) {
            return Err(scope_refused());
        }
        let issued = self.issue(&agent.connection, &scopes, now);
        if !self.store.exchange_token(&hash, now, &issued.rows).await? {
            self.end_all(row.tenant, row.agent, "a refresh token was used twice")
                .await?;
            return Err(OAuthError::grant());
        }
        Ok(issued.answer)
    }

    /// Makes an access token, and a refresh token when the client may refresh. Neither outlives the connection.
    fn issue(&self, connection: &AgentConnection, scopes: &Scopes, now: Timestamp) -> Issued {
        let until = now
            .plus_millis(ACCESS_SECS.saturating_mul(1000))
            .min(connection.expires_at);
        let row = |hash, refresh, expires_at| OAuthToken {
            hash,
            tenant: connection.tenant,
            agent: connection.id,
            refresh,
            created_at: now,
            expires_at,
            used_at: None,
        };
        let (access, hash) = self.secret(AgentSecretKind::Access);
        let mut rows = vec![row(hash, false, until)];
        let mut answer = json!({
            "access_token": access.reveal(),
            "token_type": "Bearer",
            "expires_in": until.since(now).div_euclid(1000),
            "scope": scopes.to_string(),
        });
        if scopes.offline {
            let (refresh, hash) = self.secret(AgentSecretKind::Refresh);
            rows.push(row(hash, true, connection.expires_at));
            if let Some(members) = answer.as_object_mut() {
                members.insert("refresh_token".to_owned(), json!(refresh.reveal()));
            }
        }
        Issued { answer, rows }
    }

    /// Ends the connection that a token was given for; says whether there was one. A token that there is not is as good
    /// as revoked.
    ///
    /// # Errors
    /// `invalid_request`; `invalid_client` for another client's token.
    pub async fn revoke(&self, parameters: &Parameters) -> Result<bool, OAuthError> {
        let token = needed(parameters, "token")?;
        let client = one(parameters, "client_id")?;
        let hash = [AgentSecretKind::Refresh, AgentSecretKind::Access]
            .into_iter()
            .find_map(|kind| self.hash_of(kind, token));
        let Some(hash) = hash else { return Ok(false) };
        let Some(row) = self.store.find_oauth_token(&hash).await? else {
            return Ok(false);
        };
        let Some(agent) = self.store.find_agent(row.tenant, row.agent).await? else {
            return Ok(false);
        };
        if client.is_some_and(|client| !granted_to(&agent, client)) {
            return Err(OAuthError::client());
        }
        self.end_all(row.tenant, row.agent, "its client revoked it")
            .await?;
        Ok(true)
    }

    /// Ends a connection with all its tokens, for a reason that the log is told.
    async fn end_all(&self, tenant: TenantId, id: TokenId, reason: &str) -> Result<(), OAuthError> {
        tracing::info!(agent = %id, reason, "an agent connection was ended");
        let tenant = self.agents.tenant(tenant).await?;
        let author = Author {
            name: "oauth".into(),
            origin: reason.into(),
        };
        Ok(self.agents.end(&tenant, id, &author).await?)
    }
}

fn scope_refused() -> OAuthError {
    OAuthError::new(OAuthErrorCode::InvalidScope, "more than was granted")
}

fn granted_to(agent: &Agent, client: &str) -> bool {
    let granted = agent.connection.grant.as_ref();
    granted.is_some_and(|(known, _)| known == client)
}

/// The connection that comes of a grant.
fn connection(grant: &Grant, scopes: &Scopes, now: Timestamp) -> Result<AgentConnection, OAuthError> {
    let owner = Some(grant.owner.as_str()).filter(|owner| !owner.is_empty());
    Ok(AgentConnection {
        tenant: grant.tenant,
        id: TokenId(grant.agent),
        payer: payer(owner)?,
        name: grant.client_name.chars().take(MAX_NAME).collect(),
        secret: None,
        grant: Some((grant.client.clone(), grant.resource.clone())),
        scopes: scopes.agent.clone(),
        created_at: now,
        created_by: format!("member:{}", grant.subject),
        expires_at: now.plus_millis(grant.lifetime_secs.saturating_mul(1000)),
        last_used_at: None,
        revoked_at: None,
    })
}
