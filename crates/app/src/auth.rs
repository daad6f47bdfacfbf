//! Who is calling: presented keys and dashboard subjects become an [`Actor`].
//!
//! Keys and tenants are cached for at most one second, so that a revocation is seen within that second on
//! every node. Roles are read from the store on each request.

use std::sync::Arc;

use quick_cache::sync::Cache;
use turnpike_core::access::{KeyHash, KeyKind, KeyPepper, KeySecret, Role, Scope};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{KeyId, TenantId};
use turnpike_core::ledger::TenantStatus;
use turnpike_core::time::Timestamp;
use turnpike_store::{ApiKey, Store, Tenant};

use crate::error::AppError;

/// How long a key or tenant may be taken from memory.
const CACHE_MS: i64 = 1000;
/// Keys that are remembered.
const CACHED_KEYS: usize = 10_000;
/// `lastUsedAt` is noted at most once in this time per key.
const TOUCH_MS: i64 = 60_000;

/// The authenticated caller.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The workspace it acts in.
    pub tenant: Arc<Tenant>,
    /// What it presented.
    pub credential: ActorCredential,
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
}

/// What rate limits count by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LimitKey {
    /// A key.
    Key(KeyId),
    /// A person.
    Subject(Arc<str>),
}

impl Actor {
    /// The scopes it has.
    pub fn scopes(&self) -> &[Scope] {
        match &self.credential {
            ActorCredential::Key(key) => &key.scopes,
            ActorCredential::Member { role, .. } => role.scopes(),
        }
    }

    /// Demands a scope.
    ///
    /// # Errors
    /// `INSUFFICIENT_SCOPE` with both lists, sorted.
    pub fn require(&self, scope: Scope) -> Result<(), AppError> {
        if self.scopes().contains(&scope) {
            return Ok(());
        }
        let mut present: Vec<&str> = self.scopes().iter().map(|scope| scope.as_str()).collect();
        present.sort_unstable();
        let message = format!("this needs the scope {scope}");
        Err(AppError::new(ErrorCode::InsufficientScope, message)
            .with("requiredScopes", vec![scope.as_str()])
            .with("presentScopes", present))
    }

    /// Demands a secret or sandbox key, as calls do.
    ///
    /// # Errors
    /// `CREDENTIAL_KIND_NOT_ALLOWED`.
    pub fn require_calling_key(&self) -> Result<&Arc<ApiKey>, AppError> {
        match &self.credential {
            ActorCredential::Key(key) if key.kind != KeyKind::Publishable => Ok(key),
            ActorCredential::Key(_) | ActorCredential::Member { .. } => Err(AppError::new(
                ErrorCode::CredentialKindNotAllowed,
                "calls need a secret or sandbox key",
            )),
        }
    }

    /// How it is named in records: its kind and id, never a secret.
    pub fn label(&self) -> String {
        match &self.credential {
            ActorCredential::Key(key) => format!("key:{}", key.id),
            ActorCredential::Member { subject, .. } => format!("member:{subject}"),
        }
    }

    /// What its rate limits are counted by.
    pub fn limit_key(&self) -> LimitKey {
        match &self.credential {
            ActorCredential::Key(key) => LimitKey::Key(key.id),
            ActorCredential::Member { subject, .. } => LimitKey::Subject(subject.clone()),
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
    store: Arc<dyn Store>,
    pepper: KeyPepper,
    brand: Arc<str>,
    cache: Cache<KeyHash, Cached>,
}

impl Authenticator {
    /// An authenticator of keys that begin with `brand` and are hashed under `pepper`.
    pub fn new(store: Arc<dyn Store>, pepper: KeyPepper, brand: Arc<str>) -> Self {
        Self {
            store,
            pepper,
            brand,
            cache: Cache::new(CACHED_KEYS),
        }
    }

    /// The secret under which keys are hashed.
    pub const fn pepper(&self) -> &KeyPepper {
        &self.pepper
    }

    /// Forgets what was read, so that a change made here is seen here at once.
    pub fn forget(&self) {
        self.cache.clear();
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
        let membership = match (chosen, memberships.as_slice()) {
            (Some(tenant), all) => all
                .iter()
                .find(|member| member.tenant == tenant)
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
        let tenant = self
            .store
            .find_tenant(membership.tenant)
            .await?
            .ok_or_else(not_member)?;
        let credential = ActorCredential::Member {
            subject: subject.into(),
            role: membership.role,
        };
        Ok(Actor {
            tenant: Arc::new(tenant),
            credential,
        })
    }
}

/// Demands a workspace that may spend.
///
/// # Errors
/// `TENANT_SUSPENDED`.
pub fn require_active(tenant: &Tenant) -> Result<(), AppError> {
    if tenant.status == TenantStatus::Active {
        Ok(())
    } else {
        Err(AppError::new(
            ErrorCode::TenantSuspended,
            format!("the workspace is {}", tenant.status),
        ))
    }
}
