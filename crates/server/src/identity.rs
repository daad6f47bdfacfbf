//! Dashboard sessions of the built-in development signer.
//!
//! A stand-in with the shape of the real thing: a JWT with `sub`, `auth_time` and `amr`. The key is a file of
//! the data directory, so only who can read that directory can sign.

use std::path::Path;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::{Deserialize, Serialize};
use turnpike_app::AppError;
use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;

use crate::service::{SetupError, secret_file};

const ISSUER: &str = "turnpike-dev";
const AUDIENCE: &str = "turnpike-dashboard";
const TOKEN_TYPE: &str = "dashboard+jwt";
const KEY_FILE: &str = "dev-identity.key";
/// How long a development session lasts.
const LIFETIME_SECS: i64 = 12 * 3600;
/// Clocks may differ by this much.
const LEEWAY_SECS: i64 = 30;

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    iat: i64,
    exp: i64,
    auth_time: i64,
    amr: Vec<String>,
}

/// A verified session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The person.
    pub(crate) subject: String,
}

/// Verifies dashboard sessions.
pub(crate) struct SessionVerifier {
    key: DecodingKey,
}

/// What a new session says.
pub(crate) struct NewSession<'a> {
    pub(crate) subject: &'a str,
    /// How long ago the second factor was shown; `None` = never.
    pub(crate) mfa_age_secs: Option<i64>,
}

/// Signs a development session.
pub(crate) fn sign(data: &Path, now: Timestamp, session: &NewSession<'_>) -> Result<String, SetupError> {
    let key = secret_file(data, KEY_FILE)?;
    let seconds = now.millis().div_euclid(1000);
    let claims = Claims {
        iss: ISSUER.to_owned(),
        aud: AUDIENCE.to_owned(),
        sub: session.subject.to_owned(),
        iat: seconds,
        exp: seconds.saturating_add(LIFETIME_SECS),
        auth_time: seconds.saturating_sub(session.mfa_age_secs.unwrap_or(0)),
        amr: if session.mfa_age_secs.is_some() {
            vec!["pwd".into(), "otp".into()]
        } else {
            vec!["pwd".into()]
        },
    };
    let mut header = Header::new(Algorithm::HS256);
    header.typ = Some(TOKEN_TYPE.to_owned());
    encode(&header, &claims, &EncodingKey::from_secret(&key))
        .map_err(|error| SetupError::Other(error.to_string()))
}

impl SessionVerifier {
    /// Verifies sessions of the signer in `data`.
    pub(crate) fn new(data: &Path) -> Result<Self, SetupError> {
        Ok(Self {
            key: DecodingKey::from_secret(&secret_file(data, KEY_FILE)?),
        })
    }

    /// The session in `token`.
    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Result<Session, AppError> {
        let invalid = || AppError::new(ErrorCode::InvalidCredential, "the credential is not valid");
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        // The clock of the service decides below, not the library's.
        validation.validate_exp = false;
        let token = decode::<Claims>(token, &self.key, &validation).map_err(|error| {
            tracing::debug!(%error, "a session was refused");
            invalid()
        })?;
        if token.header.typ.as_deref() != Some(TOKEN_TYPE) {
            return Err(invalid());
        }
        let seconds = now.millis().div_euclid(1000);
        if token.claims.exp.saturating_add(LEEWAY_SECS) < seconds {
            return Err(AppError::new(
                ErrorCode::CredentialExpired,
                "the session has expired",
            ));
        }
        if token.claims.iat > seconds.saturating_add(LEEWAY_SECS) {
            return Err(invalid());
        }
        Ok(Session {
            subject: token.claims.sub,
        })
    }
}
