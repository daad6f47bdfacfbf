//! Who is calling: presented keys and dashboard subjects become an [`Actor`].
//!
//! Keys and tenants are cached for at most one second, so that a revocation is seen within that second on
//! every node. Roles are read from the store on each request.

use std::net::IpAddr;
use std::sync::Arc;

use quick_cache::sync::Cache;
use turnpike_core::access::{AgentScope, KeyHash, KeyKind, KeyPepper, KeySecret, Role, Scope};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{ExternalUserId, KeyId, TenantId, TokenId};
use turnpike_core::ledger::token::{EndUserToken, TokenKind};
use turnpike_core::time::Timestamp;
use turnpike_store::{ApiKey, Store, Tenant};

use crate::agents::{AgentSession, CachedAgent};
use crate::error::AppError;
use crate::tokens::{self, EndUserClaims, KeyVault, TokenScope};

/// How long a key or tenant may be taken from memory: with the time that a request takes, less than a second.
pub(crate) const CACHE_MS: i64 = 800;
/// Keys that are remembered.
const CACHED_KEYS: usize = 10_000;
/// `lastUsedAt` is noted at most once in this time per key.
pub(crate) const TOUCH_MS: i64 = 60_000;

/// The origin of who did not come by HTTP.
pub(crate) const UNKNOWN_ORIGIN: &str = "internal";

/// The authenticated caller.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The workspace it acts in.
    pub tenant: Arc<Tenant>,
    /// What it presented.
    pub credential: ActorCredential,
    /// From where it came, for the audit log.
    pub origin: Arc<str>,
}

/// What a caller presented.
#[derive(Clone, Debug)]
pub enum ActorCredential {
    /// An API key.
    Key(Arc<ApiKey>),
    /// A dashboard session of a member.
    Member {
        /// The identity provider's subject.
        subject: Arc<str>,
        /// The member's role, as stored now.
        role: Role,
    },
    /// A token of an end user.
    EndUser(Arc<EndUserSession>),
    /// An agent connection, of an end user or of the workspace.
    Agent(Arc<AgentSession>),
}

/// An end user who presented a token.
#[derive(Clone, Debug)]
pub struct EndUserSession {
    /// Who.
    pub id: ExternalUserId,
    /// The token's `jti`.
    pub token: TokenId,
    /// What it allows.
    pub scopes: Vec<TokenScope>,
}

/// What rate limits count by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LimitKey {
    /// A key.
    Key(KeyId),
    /// A person.
    Subject(Arc<str>),
    /// An end user, whatever the token.
    EndUser(TenantId, ExternalUserId),
    /// An agent connection.
    Agent(TokenId),
    /// A workspace, whoever asks.
    Workspace(TenantId),
    /// Whoever comes from a network.
    Network(IpAddr),
}

impl Actor {
    /// The scopes it has.
    pub fn scopes(&self) -> &[Scope] {
        match &self.credential {
            ActorCredential::Key(key) => &key.scopes,
            ActorCredential::Member { role, .. } => role.scopes(),
            ActorCredential::EndUser(_) | ActorCredential::Agent(_) => &[],
        }
    }

    /// Demands a scope.
    ///
    /// # Errors
    /// `INSUFFICIENT_SCOPE` with both lists, sorted.
    /// `CREDENTIAL_KIND_NOT_ALLOWED` for an end user's token or an agent connection, which have none of these.
    pub fn require(&self, scope: Scope) -> Result<(), AppError> {
        let refused = match &self.credential {
            ActorCredential::EndUser(_) => Some("an end user's token cannot be used here"),
            ActorCredential::Agent(_) => Some("an agent connection cannot be used here"),
            ActorCredential::Key(_) | ActorCredential::Member { .. } => None,
        };
        if let Some(message) = refused {
            return Err(AppError::new(ErrorCode::CredentialKindNotAllowed, message));
        }
        if self.scopes().contains(&scope) {
            return Ok(());
        }
        let message = format!("this needs the scope {scope}");
        Err(AppError::new(ErrorCode::InsufficientScope, message).scopes(&[scope], self.scopes()))
    }

    /// Demands what calls need: a secret or sandbox key, which is returned, or an end user's token or agent connection
    /// that may spend.
    ///
    /// # Errors
    /// `CREDENTIAL_KIND_NOT_ALLOWED`, `INSUFFICIENT_SCOPE`.
    pub fn require_caller(&self) -> Result<Option<&Arc<ApiKey>>, AppError> {
        match &self.credential {
            ActorCredential::Key(key) if key.kind != KeyKind::Publishable => Ok(Some(key)),
            ActorCredential::EndUser(_) => self.require_end_user(TokenScope::Spend).map(|_session| None),
            ActorCredential::Agent(_) => self.require_agent(AgentScope::Execute).map(|_session| None),
            ActorCredential::Key(_) | ActorCredential::Member { .. } => Err(AppError::new(
                ErrorCode::CredentialKindNotAllowed,
                "calls need a secret or sandbox key, an end user's token or an agent connection",
            )),
        }
    }

    /// Demands an agent connection with `scope`.
    ///
    /// # Errors
    /// `CREDENTIAL_KIND_NOT_ALLOWED`, `INSUFFICIENT_SCOPE`.
    pub fn require_agent(&self, scope: AgentScope) -> Result<&AgentSession, AppError> {
        let ActorCredential::Agent(session) = &self.credential else {
            return Err(AppError::new(
                ErrorCode::CredentialKindNotAllowed,
                "only an agent connection can be used here",
            ));
        };
        if session.scopes.contains(&scope) {
            return Ok(session);
        }
        let mut present: Vec<&str> = session.scopes.iter().map(|scope| scope.as_str()).collect();
        present.sort_unstable();
        let message = format!("this needs an agent connection with the scope {scope}");
        Err(AppError::new(ErrorCode::InsufficientScope, message)
            .with("requiredScopes", vec![scope.as_str()])
            .with("presentScopes", present))
    }

    /// The agent connection it presented, if that is what it presented.
    pub fn agent(&self) -> Option<&AgentSession> {
        match &self.credential {
            ActorCredential::Agent(session) => Some(session),
            ActorCredential::Key(_) | ActorCredential::Member { .. } | ActorCredential::EndUser(_) => None,
        }
    }

    /// Demands an end user's token with `scope`.
    ///
    /// # Errors
    /// `CREDENTIAL_KIND_NOT_ALLOWED`, `INSUFFICIENT_SCOPE`.
    pub fn require_end_user(&self, scope: TokenScope) -> Result<&EndUserSession, AppError> {
        let ActorCredential::EndUser(session) = &self.credential else {
            return Err(AppError::new(
                ErrorCode::CredentialKindNotAllowed,
                "only an end user's token can be used here",
            ));
        };
        if session.scopes.contains(&scope) {
            return Ok(session);
        }
        let mut present: Vec<&str> = session.scopes.iter().map(|scope| scope.as_str()).collect();
        present.sort_unstable();
        let message = format!("this needs a token with the scope {}", scope.as_str());
        Err(AppError::new(ErrorCode::InsufficientScope, message)
            .with("requiredScopes", vec![scope.as_str()])
            .with("presentScopes", present))
    }

    /// Demands a dashboard session.
    ///
    /// # Errors
    /// `CREDENTIAL_KIND_NOT_ALLOWED`.
    pub fn require_member(&self) -> Result<(), AppError> {
        match &self.credential {
            ActorCredential::Member { .. } => Ok(()),
            ActorCredential::Key(_) | ActorCredential::EndUser(_) | ActorCredential::Agent(_) => {
                Err(AppError::new(
                    ErrorCode::CredentialKindNotAllowed,
                    "this needs a dashboard session",
                ))
            }
        }
    }

    /// Demands a dashboard session of an owner or admin.
    ///
    /// # Errors
    /// `CREDENTIAL_KIND_NOT_ALLOWED`, `FORBIDDEN_ROLE`.
    pub fn require_administrator(&self) -> Result<(), AppError> {
        self.require_member()?;
        match &self.credential {
            ActorCredential::Member {
                role: role @ (Role::Developer | Role::Billing | Role::Viewer),
                ..
            } => Err(AppError::new(
                ErrorCode::ForbiddenRole,
                format!("this needs an owner or admin; your role is {role}"),
            )),
            ActorCredential::Member { .. }
            | ActorCredential::Key(_)
            | ActorCredential::EndUser(_)
            | ActorCredential::Agent(_) => Ok(()),
        }
    }

    /// The key it presented, if that is what it presented.
    pub fn key(&self) -> Option<&ApiKey> {
        match &self.credential {
            ActorCredential::Key(key) => Some(key),
            ActorCredential::Member { .. } | ActorCredential::EndUser(_) | ActorCredential::Agent(_) => None,
        }
    }

    /// The end user's token or agent connection it presented, if that is what it presented.
    pub fn token(&self) -> Option<TokenId> {
        match &self.credential {
            ActorCredential::EndUser(session) => Some(session.token),
            ActorCredential::Agent(session) => Some(session.id),
            ActorCredential::Key(_) | ActorCredential::Member { .. } => None,
        }
    }

    /// How it is named in records: its kind and id, never a secret.
    pub fn label(&self) -> String {
        match &self.credential {
            ActorCredential::Key(key) => format!("key:{}", key.id),
            ActorCredential::Member { subject, .. } => format!("member:{subject}"),
            ActorCredential::EndUser(session) => format!("token:{}", session.token),
            ActorCredential::Agent(session) => format!("agent:{}", session.id),
        }
    }

    /// What its rate limits are counted by.
    pub fn limit_key(&self) -> LimitKey {
        match &self.credential {
            ActorCredential::Key(key) => LimitKey::Key(key.id),
            ActorCredential::Member { subject, .. } => LimitKey::Subject(subject.clone()),
            ActorCredential::EndUser(session) => LimitKey::EndUser(self.tenant.id, session.id.clone()),
            ActorCredential::Agent(session) => LimitKey::Agent(session.id),
        }
    }
}

#[derive(Clone)]
struct Cached {
    key: Arc<ApiKey>,
    tenant: Arc<Tenant>,
    at: Timestamp,
}

/// Turns credentials into actors.
pub struct Authenticator {
    pub(crate) store: Arc<dyn Store>,
    pepper: KeyPepper,
    pub(crate) brand: Arc<str>,
    vault: Arc<KeyVault>,
    cache: Cache<KeyHash, Cached>,
    tokens: Cache<TokenId, CachedToken>,
    pub(crate) agents: Cache<KeyHash, CachedAgent>,
}

/// Whether a row is that of a token of the end user.
fn is_of(token: &EndUserToken, user: &ExternalUserId) -> bool {
    token.kind == TokenKind::EndUser && token.owner.external_user_id() == Some(user)
}

#[derive(Clone)]
struct CachedToken {
    token: Arc<EndUserToken>,
    tenant: Arc<Tenant>,
    at: Timestamp,
}

impl Authenticator {
    /// An authenticator of keys that begin with `brand` and are hashed under `pepper`, and of tokens signed by
    /// the keys in `vault`.
    pub fn new(store: Arc<dyn Store>, pepper: KeyPepper, brand: Arc<str>, vault: Arc<KeyVault>) -> Self {
        Self {
            store,
            pepper,
            brand,
            vault,
            cache: Cache::new(CACHED_KEYS),
            tokens: Cache::new(CACHED_KEYS),
            agents: Cache::new(CACHED_KEYS),
        }
    }

    /// The secret under which keys are hashed.
    pub const fn pepper(&self) -> &KeyPepper {
        &self.pepper
    }

    /// Forgets what was read, so that a change made here is seen here at once.
    pub fn forget(&self) {
        self.cache.clear();
        self.tokens.clear();
        self.agents.clear();
    }

    /// Whether `bearer` looks like one of this service's keys.
    pub fn is_key(&self, bearer: &str) -> bool {
        bearer
            .strip_prefix(&*self.brand)
            .is_some_and(|rest| rest.starts_with("_sk_") || rest.starts_with("_pk_"))
    }

    /// The actor behind a presented key.
    ///
    /// # Errors
    /// `INVALID_CREDENTIAL`, `CREDENTIAL_EXPIRED`, `CREDENTIAL_REVOKED`.
    pub async fn key(&self, bearer: &str, now: Timestamp) -> Result<Actor, AppError> {
        let invalid = || AppError::new(ErrorCode::InvalidCredential, "the API key is not valid");
        let (_, secret) = KeySecret::parse(&self.brand, bearer).map_err(|_malformed| invalid())?;
        let hash = secret.hash(&self.pepper);
        let fresh = |cached: &Cached| (0..CACHE_MS).contains(&now.since(cached.at));
        let cached = match self.cache.get(&hash).filter(fresh) {
            Some(cached) => cached,
            None => self.load(&hash, now).await?.ok_or_else(invalid)?,
        };
        if cached.key.revoked_at.is_some() {
            return Err(AppError::new(
                ErrorCode::CredentialRevoked,
                "the API key was revoked",
            ));
        }
        if cached.key.expires_at.is_some_and(|at| at <= now) {
            return Err(AppError::new(
                ErrorCode::CredentialExpired,
                "the API key has expired",
            ));
        }
        Ok(Actor {
            tenant: cached.tenant,
            credential: ActorCredential::Key(cached.key),
            origin: UNKNOWN_ORIGIN.into(),
        })
    }

    async fn load(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<Cached>, AppError> {
        let Some(key) = self.store.find_key(hash).await? else {
            return Ok(None);
        };
        let Some(tenant) = self.store.find_tenant(key.tenant).await? else {
            return Ok(None);
        };
        if key.last_used_at.is_none_or(|at| now.since(at) >= TOUCH_MS) && key.revoked_at.is_none() {
            // A store that cannot write still tells who is calling.
            if let Err(error) = self.store.touch_keys(&[(key.tenant, key.id, now)]).await {
                tracing::debug!(%error, "the use of a key was not noted");
            }
        }
        let cached = Cached {
            key: Arc::new(key),
            tenant: Arc::new(tenant),
            at: now,
        };
        self.cache.insert(*hash, cached.clone());
        Ok(Some(cached))
    }

    /// The actor behind an end user's token, presented with `session` in the session header.
    ///
    /// # Errors
    /// `INVALID_CREDENTIAL`, `CREDENTIAL_EXPIRED`, `CREDENTIAL_REVOKED`, `SESSION_HEADER_REQUIRED`,
    /// `SESSION_MISMATCH`.
    pub async fn end_user(
        &self,
        bearer: &str,
        session: Option<&str>,
        now: Timestamp,
    ) -> Result<Actor, AppError> {
        let claims = self.vault.verify(bearer, now).await?;
        tokens::check_session(&claims, session)?;
        let id = TokenId(claims.jti);
        let fresh = |cached: &CachedToken| {
            (0..CACHE_MS).contains(&now.since(cached.at))
                && is_of(&cached.token, &claims.sub)
                && cached.tenant.id == claims.tid
        };
        let cached = match self.tokens.get(&id).filter(fresh) {
            Some(cached) => cached,
            None => self.load_token(&claims, id, now).await?,
        };
        if cached.token.revoked_at.is_some() {
            return Err(AppError::new(
                ErrorCode::CredentialRevoked,
                "the token was revoked",
            ));
        }
        let session = EndUserSession {
            id: claims.sub,
            token: id,
            scopes: claims.scp,
        };
        Ok(Actor {
            tenant: cached.tenant,
            credential: ActorCredential::EndUser(Arc::new(session)),
            origin: UNKNOWN_ORIGIN.into(),
        })
    }

    async fn load_token(
        &self,
        claims: &EndUserClaims,
        id: TokenId,
        now: Timestamp,
    ) -> Result<CachedToken, AppError> {
        let invalid = || AppError::new(ErrorCode::InvalidCredential, "the token is not valid");
        let token = self.store.find_token(claims.tid, id).await?;
        let token = token
            .filter(|token| is_of(token, &claims.sub))
            .ok_or_else(invalid)?;
        let tenant = self.store.find_tenant(claims.tid).await?.ok_or_else(invalid)?;
        let cached = CachedToken {
            token: Arc::new(token),
            tenant: Arc::new(tenant),
            at: now,
        };
        self.tokens.insert(id, cached.clone());
        Ok(cached)
    }

    /// The actor behind a dashboard session of `subject`, in the workspace it chose.
    ///
    /// # Errors
    /// `TENANT_HEADER_REQUIRED`, `TENANT_NOT_MEMBER`.
    pub async fn member(&self, subject: &str, chosen: Option<TenantId>) -> Result<Actor, AppError> {
        let not_member = || {
            AppError::new(
                ErrorCode::TenantNotMember,
                "you are not a member of that workspace",
            )
        };
        let memberships = self.store.list_memberships(subject).await?;
        let (membership, tenant) = match (chosen, memberships.as_slice()) {
            (Some(tenant), all) => all
                .iter()
                .find(|(member, _)| member.tenant == tenant)
                .ok_or_else(not_member)?,
            (None, [only]) => only,
            (None, []) => return Err(not_member()),
            (None, _) => {
                return Err(AppError::new(
                    ErrorCode::TenantHeaderRequired,
                    "you belong to several workspaces: say which one in the tenant header",
                ));
            }
        };
        let credential = ActorCredential::Member {
            subject: subject.into(),
            role: membership.role,
        };
        Ok(Actor {
            tenant: Arc::new(tenant.clone()),
            credential,
            origin: UNKNOWN_ORIGIN.into(),
        })
    }
}
