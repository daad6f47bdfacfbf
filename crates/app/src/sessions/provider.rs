//! The keys of an OpenID Connect provider, kept in memory.
//!
//! The rule: a request waits for the provider only when it names a key that is not known, and all such requests
//! together make it be asked at most once a minute. Keys that were read go on working while the provider is down, for
//! a day at most. Without any key nobody is let in, and nobody is told that their token is wrong.

use std::sync::{Arc, PoisonError, RwLock};

use jsonwebtoken::Algorithm;
use tokio::sync::Mutex;
use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;
use turnpike_upstream::KeyProvider;

use super::keys::KeySet;
use crate::environment::Environment;
use crate::error::AppError;

/// A name that is not known makes the keys be read again, at most once in this time.
const ASK_AGAIN_MS: i64 = 60_000;
/// The same while there are no keys at all.
const ASK_FOR_ANY_MS: i64 = 5_000;
/// How long keys are used that could not be read again.
const KEPT_MS: i64 = 24 * 3_600_000;
/// When to try again while there are no keys, in seconds.
const RETRY_SECS: u64 = 5;

/// A provider's keys. Cloning shares them.
#[derive(Clone)]
pub struct ProviderKeys(Arc<Shared>);

struct Shared {
    provider: Arc<dyn KeyProvider>,
    environment: Arc<dyn Environment>,
    max_age_ms: i64,
    keys: RwLock<Option<Arc<KeySet>>>,
    /// When a request last made the provider be asked. Who asks holds the lock.
    asked: Mutex<Option<Timestamp>>,
}

fn is_within(now: Timestamp, since: Timestamp, millis: i64) -> bool {
    (0..millis).contains(&now.since(since))
}

impl ProviderKeys {
    /// No keys yet; they are to be read again when they are `max_age_ms` old.
    pub fn new(provider: Arc<dyn KeyProvider>, environment: Arc<dyn Environment>, max_age_ms: i64) -> Self {
        Self(Arc::new(Shared {
            provider,
            environment,
            max_age_ms,
            keys: RwLock::new(None),
            asked: Mutex::new(None),
        }))
    }

    /// Reads the keys when there are none or they have grown old.
    ///
    /// # Errors
    /// `SERVICE_UNAVAILABLE` when they cannot be read and there are none.
    pub async fn refresh(&self) -> Result<(), AppError> {
        let shared = &self.0;
        let _asking = shared.asked.lock().await;
        let now = shared.environment.now();
        let fresh = |keys: &Arc<KeySet>| is_within(now, keys.read_at, shared.max_age_ms);
        if !shared.usable(now).as_ref().is_some_and(fresh) {
            shared.load().await;
        }
        shared.usable(now).map(drop).ok_or_else(unavailable)
    }

    /// The keys, among them the one named `kid` if the provider has it.
    pub(super) async fn with(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<KeySet>, AppError> {
        let shared = &self.0;
        let now = shared.environment.now();
        let known = shared.usable(now);
        if let Some(keys) = known.as_ref().filter(|keys| keys.find(kid, algorithm).is_some()) {
            return Ok(keys.clone());
        }
        // In a task of its own: a caller who goes away does not keep the keys from the others.
        let asking = self.clone();
        let seen = known.map(|keys| keys.read_at);
        if let Err(error) = tokio::spawn(async move { asking.0.ask(now, seen).await }).await {
            return Err(AppError::internal(&error));
        }
        shared.usable(now).ok_or_else(unavailable)
    }
}

fn unavailable() -> AppError {
    let message = "the identity provider's keys cannot be read right now: ask again";
    AppError::new(ErrorCode::ServiceUnavailable, message).retry_after(RETRY_SECS)
}

impl Shared {
    /// The keys, unless they have not been read for too long.
    fn usable(&self, now: Timestamp) -> Option<Arc<KeySet>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        keys.filter(|keys| now.since(keys.read_at) < KEPT_MS)
    }

    /// Reads the keys for a request that saw those of `seen`, unless another has done so meanwhile or a moment ago.
    async fn ask(&self, now: Timestamp, seen: Option<Timestamp>) {
        let mut asked = self.asked.lock().await;
        let current = self.usable(now).map(|keys| keys.read_at);
        let pace = if current.is_some() {
            ASK_AGAIN_MS
        } else {
            ASK_FOR_ANY_MS
        };
        if current != seen || asked.is_some_and(|at| is_within(now, at, pace)) {
            return;
        }
        *asked = Some(now);
        self.load().await;
    }

    async fn load(&self) {
        let read = match self.provider.fetch().await {
            Ok(keys) => KeySet::published(&keys, self.environment.now()),
            Err(error) => {
                tracing::warn!(%error, "the identity provider's keys could not be read");
                return;
            }
        };
        if read.is_empty() {
            tracing::warn!("the identity provider has no key of a known algorithm");
            return;
        }
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(read));
    }
}
