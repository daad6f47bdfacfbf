//! Sessions: which tokens are taken, when keys are read, and what raises a session.

mod claims;
mod desk;
mod provider;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use turnpike_core::access::KeyPepper;
use turnpike_core::time::Timestamp;
use turnpike_upstream::identity::parse_key_set;
use turnpike_upstream::{IdentityError, KeyProvider, PublicKey};
use uuid::Uuid;

use super::*;
use crate::environment::Environment;
use crate::tokens::SigningKey;

/// When all of this happens, in seconds.
const NOW: i64 = 1_800_000_000;
const ISSUER: &str = "https://id.example";
const AUDIENCE: &str = "https://svc.example/api";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn factors() -> FactorRules {
    FactorRules {
        acr_values: vec!["mfa".to_owned(), "urn:two".to_owned()],
        max_age_secs: 600,
    }
}

/// A clock that the test sets, ids in a row, and random bytes that differ.
struct Clock {
    seconds: AtomicI64,
    ids: AtomicU64,
}

impl Clock {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            seconds: NOW.into(),
            ids: 1.into(),
        })
    }

    fn advance(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Environment for Clock {
    fn now(&self) -> Timestamp {
        at(self.seconds.load(Ordering::SeqCst))
    }

    fn new_id(&self) -> Uuid {
        Uuid::from_u64_pair(0x7000, self.ids.fetch_add(1, Ordering::SeqCst))
    }

    fn random_32(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(self.new_id().as_bytes());
        bytes
    }
}

/// A provider that publishes what the test says, or is down.
#[derive(Default)]
struct Provider {
    keys: std::sync::Mutex<Option<Value>>,
    fetched: AtomicUsize,
    slow: bool,
}

impl Provider {
    fn publishing(keys: &Value) -> Arc<Self> {
        let provider = Self::default();
        provider.publish(keys);
        Arc::new(provider)
    }

    fn publish(&self, keys: &Value) {
        *self.keys.lock().unwrap() = Some(json!({ "keys": keys }));
    }

    fn go_down(&self) {
        *self.keys.lock().unwrap() = None;
    }

    fn fetched(&self) -> usize {
        self.fetched.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl KeyProvider for Provider {
    async fn fetch(&self) -> Result<Vec<PublicKey>, IdentityError> {
        self.fetched.fetch_add(1, Ordering::SeqCst);
        if self.slow {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let keys = self.keys.lock().unwrap().clone();
        let keys = keys.ok_or(IdentityError::OtherIssuer)?;
        parse_key_set(keys.to_string().as_bytes()).ok_or(IdentityError::NoKeys)
    }
}

/// A key of the provider that the test signs with.
struct Signer {
    kid: String,
    key: SigningKey,
}

impl Signer {
    fn new(seed: u8) -> Self {
        Self {
            kid: format!("key-{seed}"),
            key: SigningKey::generate([seed; 32], at(0)).unwrap(),
        }
    }

    /// As the provider publishes it.
    fn jwk(&self) -> Value {
        let mut jwk = self.key.jwk();
        jwk["kid"] = json!(self.kid);
        jwk
    }

    fn header(&self) -> Value {
        json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": self.kid })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&format!("{}.{}", part(header), part(claims)))
    }

    fn sign_text(&self, message: &str) -> String {
        let encoding = self.key.encoding();
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), encoding, Algorithm::EdDSA).unwrap();
        format!("{message}.{signature}")
    }

    fn token(&self) -> String {
        self.sign(&self.header(), &claims(&json!({})))
    }
}

/// Good claims, with changes; null takes one away.
fn claims(changes: &Value) -> Value {
    let mut all = json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW, "exp": NOW + 3600, "auth_time": NOW,
        "amr": ["pwd", "otp"],
    });
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            all.as_object_mut().unwrap().remove(name);
        } else {
            all[name] = value.clone();
        }
    }
    all
}

fn rules() -> SessionRules {
    let algorithms = ["RS256", "PS256", "ES256", "ES384", "EdDSA"];
    SessionRules {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        algorithms: algorithms.into_iter().filter_map(parse_algorithm).collect(),
        factors: factors(),
    }
}

fn verifier(provider: Arc<Provider>, clock: &Arc<Clock>) -> SessionVerifier {
    SessionVerifier::oidc(rules(), ProviderKeys::new(provider, clock.clone(), 300_000))
}

fn own_signer(clock: &Arc<Clock>) -> SessionSigner {
    let pepper = KeyPepper::new(b"secret");
    SessionSigner::derived(&pepper, ISSUER.to_owned(), AUDIENCE.to_owned(), clock.clone()).unwrap()
}
