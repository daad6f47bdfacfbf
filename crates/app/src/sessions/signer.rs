//! Sessions that this service signs itself: the same kind of token as any provider's.
//!
//! The key follows from the service's secret, so that every node that has it signs and verifies alike.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, Header};
use serde_json::{Value, json};
use turnpike_core::access::KeyPepper;
use turnpike_core::time::Timestamp;

use super::claims::seconds;
use super::jws::SESSION_TYPE;
use super::keys::{KeySet, TrustedKey};
use crate::environment::Environment;
use crate::error::AppError;
use crate::tokens::SigningKey;

/// What the key is derived for.
const PURPOSE: &str = "dashboard sessions";

/// What a new session says.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    /// The person.
    pub subject: &'a str,
    /// When the person showed what `amr` names.
    pub auth_time: Timestamp,
    /// The methods (RFC 8176): `pwd`, `otp`, …
    pub amr: &'a [&'a str],
    /// Now.
    pub issued_at: Timestamp,
    /// How long it lasts.
    pub lifetime_secs: i64,
}

/// Signs sessions of the built-in identity.
pub struct SessionSigner {
    key: SigningKey,
    issuer: String,
    audience: String,
    environment: Arc<dyn Environment>,
}

impl SessionSigner {
    /// The signer of an installation whose secret is `pepper`.
    ///
    /// # Errors
    /// `INTERNAL`, which no secret causes.
    pub fn derived(
        pepper: &KeyPepper,
        issuer: String,
        audience: String,
        environment: Arc<dyn Environment>,
    ) -> Result<Self, AppError> {
        let epoch = Timestamp::from_millis(0);
        let key = SigningKey::generate(pepper.derive(PURPOSE), epoch)
            .map_err(|error| AppError::internal(&error))?;
        Ok(Self {
            key,
            issuer,
            audience,
            environment,
        })
    }

    /// `iss` of its sessions.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// `aud` of its sessions.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// Signs a session; each is another one, even when two say the same.
    ///
    /// # Errors
    /// `INTERNAL`, which no session causes.
    pub fn sign(&self, new: &NewSession<'_>) -> Result<String, AppError> {
        let issued = seconds(new.issued_at);
        let claims = json!({
            "iss": self.issuer,
            "aud": self.audience,
            "sub": new.subject,
            "iat": issued,
            "exp": issued.saturating_add(new.lifetime_secs),
            "auth_time": seconds(new.auth_time),
            "amr": new.amr,
            "jti": self.environment.new_id(),
        });
        let mut header = Header::new(Algorithm::EdDSA);
        header.typ = Some(SESSION_TYPE.to_owned());
        header.kid = Some(self.key.kid().to_owned());
        jsonwebtoken::encode(&header, &claims, self.key.encoding())
            .map_err(|error| AppError::internal(&error))
    }

    /// The public key as a JWK set.
    pub fn jwks(&self) -> Value {
        json!({ "keys": [self.key.jwk()] })
    }

    pub(super) fn key_set(&self) -> KeySet {
        let own = TrustedKey::own(self.key.kid(), self.key.decoding().clone());
        KeySet::new(vec![own], self.key.created_at())
    }
}
