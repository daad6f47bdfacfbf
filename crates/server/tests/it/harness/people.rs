//! End users and dashboard people: tokens as the service mints them, and such as it would never mint.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};
use turnpike_app::tokens::{SEAL_NONCE_BYTES, SigningKey};
use turnpike_core::access::KeyPepper;
use turnpike_core::time::Timestamp;

use super::issuer::{SessionKey, ed25519};
use super::{CHAT, Database, Sender, Site, chat};

/// The path of an end user, or of what lies below.
pub fn user_path(user: &str, below: &str) -> String {
    let encoded = user.replace('%', "%25").replace('/', "%2F").replace('@', "%40");
    format!("/api/credits/end-users/{encoded}{below}")
}

/// Seconds since the epoch.
pub fn seconds() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_secs()).unwrap()
}

/// One part of a JWT.
pub fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// The claims of a token, unverified.
pub fn claims_of(token: &str) -> Value {
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

/// The header of a token.
pub fn header_of(token: &str) -> Value {
    let header = token.split('.').next().unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap()
}

/// A key of the service that the tests know the private half of.
pub struct Forge {
    kid: String,
    key: EncodingKey,
}

impl Forge {
    /// Puts such a key into the store of `site`, as another node of the same installation could.
    pub async fn new(site: &Site) -> Self {
        let seed = [7; 32];
        let made = Timestamp::from_millis((seconds() - 1) * 1000);
        let key = SigningKey::generate(seed, made).unwrap();
        let secret = site.setup.config["server"]["secret_key"].as_str().unwrap();
        let master = KeyPepper::new(secret.as_bytes()).derive("signing keys");
        let sealed = hex::encode(key.seal(&master, &[3; SEAL_NONCE_BYTES]).unwrap());
        let sealed = match &site.database {
            Database::Sqlite(_) => format!("x'{sealed}'"),
            Database::Postgres { .. } => format!("'\\x{sealed}'::bytea"),
        };
        let (kid, at) = (key.kid(), made.millis());
        let insert =
            format!("INSERT INTO signing_keys (kid, created_at, sealed) VALUES ('{kid}', {at}, {sealed})");
        site.database.execute(&insert).await;
        Self {
            kid: kid.to_owned(),
            key: ed25519(&seed),
        }
    }

    /// The header that the service would write.
    pub fn header(&self) -> Value {
        json!({ "alg": "EdDSA", "typ": "end-user+jwt", "kid": self.kid })
    }

    /// Signs `claims`.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_parts(&part(&self.header()), &part(claims))
    }

    /// Signs any two parts.
    pub fn sign_parts(&self, header: &str, claims: &str) -> String {
        let message = format!("{header}.{claims}");
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, Algorithm::EdDSA).unwrap();
        format!("{message}.{signature}")
    }
}

impl Site {
    /// A request about an end user, with the workspace's key.
    pub fn about(&self, method: Method, user: &str, below: &str) -> Sender {
        self.client
            .request(method, &user_path(user, below))
            .bearer(&self.key)
    }

    /// A minted token's document.
    pub async fn mint(&self, user: &str, body: &Value) -> Value {
        let minted = self.about(Method::POST, user, "/tokens").json(body).send().await;
        minted.expect(201).json()
    }

    /// A minted token.
    pub async fn token(&self, user: &str, body: &Value) -> String {
        self.mint(user, body).await["token"].as_str().unwrap().to_owned()
    }

    /// A chat call with an end user's token.
    pub fn chat_as(&self, token: &str, model: &str) -> Sender {
        let call = self.client.request(Method::POST, CHAT).bearer(token);
        call.json(&chat(model, "hi"))
    }

    /// A read of the end user's own balance.
    pub fn mine(&self, token: &str) -> Sender {
        self.client
            .request(Method::GET, "/api/credits/me/balance")
            .bearer(token)
    }

    /// Sets an end user's policy.
    pub async fn limit(&self, user: &str, policy: &Value) {
        let put = self.about(Method::PUT, user, "/policy").json(policy);
        put.send().await.expect(200);
    }

    /// Moves credits between the pool and an end user; `way` is `allocate` or `deallocate`.
    pub fn move_usd(&self, way: &str, user: &str, usd: &str, once: &str) -> Sender {
        self.about(Method::POST, user, &format!("/{way}"))
            .json(&json!({ "usd": usd }))
            .once(once)
    }

    /// Adds a member.
    pub fn add_member(&self, subject: &str, role: &str) {
        let tenant = self.tenant.as_str();
        self.operate(&[
            "member",
            "add",
            "--tenant",
            tenant,
            "--subject",
            subject,
            "--role",
            role,
        ]);
    }

    /// A dashboard session of `subject`, whose claims are `changes` more or, where null, fewer than usual.
    pub fn session(&self, subject: &str, changes: &Value) -> String {
        let now = seconds();
        let mut claims = json!({
            "iss": "http://turnpike.test/identity", "aud": "http://turnpike.test/api/credits/dashboard",
            "sub": subject, "iat": now, "exp": now + 3600, "auth_time": now, "amr": ["pwd", "otp"],
        });
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        // The key follows from the service's secret.
        let secret = self.setup.config["server"]["secret_key"].as_str().unwrap();
        let key = SessionKey::new(KeyPepper::new(secret.as_bytes()).derive("dashboard sessions"));
        key.sign(&key.header(), &claims)
    }

    /// A dashboard session of an owner with a fresh second factor.
    pub fn owner(&self) -> String {
        self.add_member("the-owner", "owner");
        self.session("the-owner", &json!({}))
    }

    /// A request to retire an end user.
    pub fn retiring(&self, user: &str, session: &str) -> Sender {
        self.client
            .request(Method::DELETE, &user_path(user, ""))
            .bearer(session)
    }

    /// How many rows of the audit log are about `action`.
    pub async fn noted(&self, action: &str) -> i64 {
        let sql = format!("SELECT COUNT(*) FROM audit_log WHERE action = '{action}'");
        self.database.number(&sql).await
    }
}
