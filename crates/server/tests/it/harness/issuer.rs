//! A stand-in OpenID Connect provider: publishes what the test says, badly when asked to, and signs anything.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};
use turnpike_app::tokens::SigningKey;
use turnpike_core::time::Timestamp;

use super::people::{part, seconds};
use super::upstream::{Seen, Step, Upstream, answer};
use super::{Setup, Store};

/// What the sessions are for.
pub const AUDIENCE: &str = "https://svc.test/api";
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// How the provider answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mood {
    /// As it should.
    Well,
    /// It hangs up.
    Down,
    /// Its keys are ten megabytes.
    Huge,
    /// Its keys are elsewhere.
    Redirecting,
    /// Its configuration names this issuer.
    Calling(String),
    /// Its configuration places the keys there.
    Placing(String),
    /// Its keys are this document.
    Publishing(String),
}

/// An Ed25519 key pair.
#[derive(Clone)]
pub struct SessionKey {
    /// Its name.
    pub kid: String,
    jwk: Value,
    key: EncodingKey,
}

/// The private key of a seed: PKCS #8 (RFC 8410, section 7).
pub fn ed25519(seed: &[u8; 32]) -> EncodingKey {
    let mut der = hex::decode("302e020100300506032b657004220420").unwrap();
    der.extend_from_slice(seed);
    EncodingKey::from_ed_der(&der)
}

impl SessionKey {
    /// The key pair of a seed.
    pub fn new(seed: [u8; 32]) -> Self {
        let kid = SigningKey::generate(seed, Timestamp::from_millis(0))
            .unwrap()
            .kid()
            .to_owned();
        let key = ed25519(&seed);
        Self {
            jwk: json!({
                "kty": "OKP", "crv": "Ed25519", "x": public_half(&seed), "kid": kid, "alg": "EdDSA", "use": "sig",
            }),
            kid,
            key,
        }
    }

    /// The header of its tokens.
    pub fn header(&self) -> Value {
        json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": self.kid })
    }

    /// Signs a token.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", part(header), part(claims));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, Algorithm::EdDSA).unwrap();
        format!("{message}.{signature}")
    }
}

fn public_half(seed: &[u8; 32]) -> String {
    let pair = ed25519_dalek::SigningKey::from_bytes(seed);
    URL_SAFE_NO_PAD.encode(pair.verifying_key().as_bytes())
}

struct State {
    mood: Mood,
    keys: Vec<SessionKey>,
}

/// A running provider.
pub struct Issuer {
    server: Upstream,
    state: Arc<Mutex<State>>,
}

impl Issuer {
    /// Starts one that publishes `keys`.
    pub async fn start(keys: &[SessionKey]) -> Self {
        let server = Upstream::start().await;
        let state = Arc::new(Mutex::new(State {
            mood: Mood::Well,
            keys: keys.to_vec(),
        }));
        let (answering, url) = (state.clone(), format!("http://{}", server.address));
        server.script(move |seen| reply(&answering.lock().unwrap(), &url, seen));
        Self { server, state }
    }

    /// Its name.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// Answers so from now on.
    pub fn feel(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    /// Publishes these from now on.
    pub fn publish(&self, keys: &[SessionKey]) {
        self.state.lock().unwrap().keys = keys.to_vec();
    }

    /// How often it was asked for its keys, or for where they are.
    pub fn asked(&self) -> usize {
        let seen = self.server.seen();
        seen.iter().filter(|request| request.path == DISCOVERY).count()
    }

    /// The paths that it was asked for.
    pub fn paths(&self) -> Vec<String> {
        self.server
            .seen()
            .into_iter()
            .map(|request| request.path)
            .collect()
    }

    /// The claims of a session of `subject` with a fresh second factor, with changes.
    pub fn claims(&self, subject: &str, changes: &Value) -> Value {
        let now = seconds();
        let mut claims = json!({
            "iss": self.url(), "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + 3600, "auth_time": now,
            "amr": ["pwd", "otp"],
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    /// A session of `subject`, signed by `key`.
    pub fn session(&self, key: &SessionKey, subject: &str, changes: &Value) -> String {
        key.sign(&key.header(), &self.claims(subject, changes))
    }

    /// A gateway that trusts it.
    pub fn setup(&self, store: Store) -> Setup {
        Setup::new(store)
            .set("identity.mode", "oidc")
            .set("identity.issuer", self.url())
            .set("identity.audience", AUDIENCE)
    }
}

fn reply(state: &State, url: &str, seen: &Seen) -> Vec<Step> {
    if state.mood == Mood::Down {
        return vec![Step::Close];
    }
    let json = |document: &Value| vec![answer(200, &[], document.to_string().as_bytes())];
    if seen.path == DISCOVERY {
        let (mut issuer, mut place) = (url.to_owned(), format!("{url}/jwks"));
        match &state.mood {
            Mood::Calling(other) => issuer.clone_from(other),
            Mood::Placing(other) => place.clone_from(other),
            _ => {}
        }
        return json(&json!({ "issuer": issuer, "jwks_uri": place }));
    }
    let keys: Vec<Value> = state.keys.iter().map(|key| key.jwk.clone()).collect();
    match &state.mood {
        Mood::Redirecting if seen.path == "/jwks" => {
            let place = format!("{url}/other");
            vec![answer(302, &[("location", &place)], b"")]
        }
        Mood::Huge => json(&json!({ "keys": keys, "padding": "x".repeat(10_000_000) })),
        Mood::Publishing(document) => vec![answer(200, &[], document.as_bytes())],
        _ => json(&json!({ "keys": keys })),
    }
}
