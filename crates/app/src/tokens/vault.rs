//! The signing keys of this installation: kept sealed in the store, held open in memory.
//!
//! Every node reads the same keys. A new one is published before it signs, so that no node meets a token it
//! cannot check; a superseded one is accepted until the last token it can have signed is over.

use std::sync::{Arc, PoisonError, RwLock};

use quick_cache::sync::Cache;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use turnpike_core::time::Timestamp;
use turnpike_store::{SigningKeyRow, Store};

use super::jwt::named_key;
use super::{EndUserClaims, Expected, KeyRing, SigningKey, mint, verify};
use crate::environment::Environment;
use crate::error::AppError;
use crate::sealing;

/// An unknown key's name makes the keys be read again, at most once in this time.
const LOOK_AGAIN_MS: i64 = 5000;
/// Genuine tokens that are remembered.
const CACHED_TOKENS: usize = 10_000;

/// What a vault needs to know of its installation.
#[derive(Clone, Debug)]
pub struct VaultSettings {
    /// The secret under which keys are sealed.
    pub master: [u8; 32],
    /// `iss` of the tokens.
    pub issuer: String,
    /// `aud` of the tokens.
    pub audience: String,
    /// How long a key is published before it signs.
    pub publish_lead_ms: i64,
    /// How old the newest key may grow before another is made; 0 = never.
    pub rotate_after_ms: i64,
}

/// Signs and verifies end users' tokens.
pub struct KeyVault {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    settings: VaultSettings,
    ring: RwLock<Arc<KeyRing>>,
    /// When the keys were last read because of a token.
    looked_at: Mutex<Option<Timestamp>>,
    /// Tokens by their SHA-256 that were genuine under these keys, so that a call does not check a signature again.
    verified: Cache<[u8; 32], Verified>,
}

#[derive(Clone)]
struct Verified {
    ring: Arc<KeyRing>,
    claims: Arc<EndUserClaims>,
}

impl KeyVault {
    /// An empty vault; [`KeyVault::refresh`] fills it.
    pub fn new(store: Arc<dyn Store>, environment: Arc<dyn Environment>, settings: VaultSettings) -> Self {
        Self {
            ring: RwLock::new(Arc::new(KeyRing::new(Vec::new(), settings.publish_lead_ms))),
            looked_at: Mutex::new(None),
            verified: Cache::new(CACHED_TOKENS),
            store,
            environment,
            settings,
        }
    }

    /// The keys known now.
    pub fn ring(&self) -> Arc<KeyRing> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the keys from the store; makes the first one, and the next when the newest has grown old; removes
    /// those that nobody needs any more.
    ///
    /// # Errors
    /// When the store does not answer, or a key was sealed under another secret.
    pub async fn refresh(&self) -> Result<(), AppError> {
        let mut ring = self.load().await?;
        let now = self.environment.now();
        let newest = ring.keys().last().map(|key| key.created_at());
        let old = |at: Timestamp| {
            self.settings.rotate_after_ms > 0 && now.since(at) >= self.settings.rotate_after_ms
        };
        if newest.is_none_or(old) {
            self.add_key().await?;
            ring = self.load().await?;
        }
        for key in ring.keys() {
            if !ring.is_needed(key.kid(), now) {
                self.store.delete_signing_key(key.kid()).await?;
            }
        }
        self.put(ring);
        Ok(())
    }

    fn put(&self, ring: KeyRing) {
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
    }

    /// Reads the keys again when `token` names one that is not known here: another node may have made it a moment
    /// ago. Strangers can cause this no more than once in five seconds.
    async fn look_for_key_of(&self, token: &str, now: Timestamp) -> Result<(), AppError> {
        let Some(kid) = named_key(token) else {
            return Ok(());
        };
        if self.ring().knows(&kid) {
            return Ok(());
        }
        let mut looked_at = self.looked_at.lock().await;
        let recently = looked_at.is_some_and(|at| (0..LOOK_AGAIN_MS).contains(&now.since(at)));
        // Who waited for the lock may find that the key was read meanwhile.
        if recently || self.ring().knows(&kid) {
            return Ok(());
        }
        *looked_at = Some(now);
        self.put(self.load().await?);
        Ok(())
    }

    /// Makes a new key, which signs once it has been published long enough. Live tokens stay valid.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn rotate(&self) -> Result<String, AppError> {
        let kid = self.add_key().await?;
        self.refresh().await?;
        Ok(kid)
    }

    async fn add_key(&self) -> Result<String, AppError> {
        let key = SigningKey::generate(self.environment.random_32(), self.environment.now())
            .map_err(|error| AppError::internal(&error))?;
        let nonce = sealing::nonce(&self.environment.random_32());
        let sealed = key
            .seal(&self.settings.master, &nonce)
            .map_err(|error| AppError::internal(&error))?;
        let row = SigningKeyRow {
            kid: key.kid().to_owned(),
            created_at: key.created_at(),
            sealed,
        };
        self.store.insert_signing_key(&row).await?;
        Ok(row.kid)
    }

    async fn load(&self) -> Result<KeyRing, AppError> {
        let mut keys = Vec::new();
        for row in self.store.list_signing_keys().await? {
            match SigningKey::open(&row.sealed, &self.settings.master, &row.kid, row.created_at) {
                Ok(key) => keys.push(Arc::new(key)),
                // A node with another secret made it, or the secret was changed: its tokens are not ours.
                Err(error) => tracing::error!(kid = row.kid, %error, "a signing key cannot be opened"),
            }
        }
        Ok(KeyRing::new(keys, self.settings.publish_lead_ms))
    }

    /// Signs `claims`, whose `iss` and `aud` are set here.
    ///
    /// # Errors
    /// When there is no key.
    pub fn mint(&self, claims: &EndUserClaims) -> Result<String, AppError> {
        let claims = EndUserClaims {
            iss: self.settings.issuer.clone(),
            aud: self.settings.audience.clone(),
            ..claims.clone()
        };
        mint(&self.ring(), &claims, self.environment.now())
    }

    /// The claims of `token`, if it is genuine and in time.
    ///
    /// # Errors
    /// `INVALID_CREDENTIAL`, `CREDENTIAL_EXPIRED`; `SERVICE_UNAVAILABLE` when its key is not known here and the
    /// store does not answer.
    pub async fn verify(&self, token: &str, now: Timestamp) -> Result<EndUserClaims, AppError> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let in_time = |claims: &EndUserClaims| now.millis().div_euclid(1000) < claims.exp;
        // Keys that were read anew make every token be checked anew: a removed key ends its tokens.
        if let Some(known) = self.verified.get(&digest)
            && Arc::ptr_eq(&known.ring, &self.ring())
            && in_time(&known.claims)
        {
            return Ok(EndUserClaims::clone(&known.claims));
        }
        self.look_for_key_of(token, now).await?;
        let expected = Expected {
            issuer: &self.settings.issuer,
            audience: &self.settings.audience,
        };
        let ring = self.ring();
        let claims = verify(&ring, token, &expected, now)?;
        let verified = Verified {
            ring,
            claims: Arc::new(claims.clone()),
        };
        self.verified.insert(digest, verified);
        Ok(claims)
    }

    /// The public keys as a JWK set.
    pub fn jwks(&self) -> Value {
        self.ring().jwks(self.environment.now())
    }

    /// Every key with its state, oldest first, as the store has them now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(&self) -> Result<Value, AppError> {
        let ring = self.load().await?;
        let now = self.environment.now();
        let signer = ring.signer(now).map(SigningKey::kid);
        let state = |key: &SigningKey| {
            if signer == Some(key.kid()) {
                "signing"
            } else if ring.signs_from(key) > now {
                "published"
            } else if ring.is_needed(key.kid(), now) {
                "accepted"
            } else {
                "superseded"
            }
        };
        let row = |key: &Arc<SigningKey>| {
            json!({
                "kid": key.kid(), "status": state(key), "createdAt": key.created_at(),
                "signsFrom": ring.signs_from(key),
            })
        };
        Ok(json!({ "keys": ring.keys().iter().map(row).collect::<Vec<_>>() }))
    }
}
