//! Dashboard sessions of the built-in development signer.
//!
//! A stand-in with the shape of the real thing: a JWT with `sub`, `auth_time` and `amr`. The key is a file of
//! the data directory, so only who can read that directory can sign.

use std::path::Path;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use turnpike_app::AppError;
use turnpike_app::auth::LimitKey;
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

/// The methods that count as a second factor.
const SECOND_FACTORS: [&str; 6] = ["mfa", "otp", "hwk", "swk", "webauthn", "passkey"];
/// How long a second factor counts as fresh.
const MFA_FRESH_SECS: i64 = 600;

#[derive(Debug, Serialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    iat: i64,
    exp: i64,
    auth_time: i64,
    amr: Vec<String>,
}

/// The claims that are read. Those about the second factor are kept as they came: of another type than they should
/// have, they show no second factor, and the session is still one.
#[derive(Debug, Deserialize)]
struct ReadClaims {
    sub: String,
    iat: i64,
    exp: i64,
    #[serde(default)]
    auth_time: Value,
    #[serde(default)]
    amr: Value,
    #[serde(default)]
    acr: Value,
}

/// A verified session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The person.
    pub(crate) subject: String,
    /// When it was made, in seconds since the epoch.
    pub(crate) issued_at: i64,
    /// When the person authenticated, in seconds since the epoch.
    pub(crate) auth_time: Option<i64>,
    /// Whether a second factor was among the methods.
    second_factor: bool,
}

impl Session {
    fn new(claims: ReadClaims) -> Self {
        let is_factor = |method: &Value| {
            method
                .as_str()
                .is_some_and(|method| SECOND_FACTORS.contains(&method))
        };
        let by_methods = claims
            .amr
            .as_array()
            .is_some_and(|methods| methods.iter().any(is_factor));
        Self {
            auth_time: claims.auth_time.as_i64().filter(|seconds| *seconds >= 0),
            second_factor: by_methods || claims.acr == "mfa",
            issued_at: claims.iat,
            subject: claims.sub,
        }
    }

    /// What its rate limits are counted by.
    pub(crate) fn limit_key(&self) -> LimitKey {
        LimitKey::Subject(self.subject.as_str().into())
    }

    /// Demands a second factor within the last ten minutes.
    ///
    /// # Errors
    /// `STEP_UP_REQUIRED`.
    pub(crate) fn require_fresh_mfa(&self, now: Timestamp) -> Result<(), AppError> {
        let seconds = now.millis().div_euclid(1000);
        let fresh = self.auth_time.is_some_and(|at| {
            let age = seconds.saturating_sub(at);
            (-LEEWAY_SECS..=MFA_FRESH_SECS).contains(&age)
        });
        if fresh && self.second_factor {
            Ok(())
        } else {
            Err(AppError::new(
                ErrorCode::StepUpRequired,
                "show a second factor again: it must be at most ten minutes old",
            ))
        }
    }
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
        let token = decode::<ReadClaims>(token, &self.key, &validation).map_err(|error| {
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
        Ok(Session::new(token.claims))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn is_fresh(claims: &Value) -> bool {
        let mut all = json!({ "sub": "a", "iat": NOW, "exp": NOW });
        let members = all.as_object_mut().unwrap();
        members.extend(claims.as_object().unwrap().clone());
        let session = Session::new(serde_json::from_value(all).unwrap());
        let now = Timestamp::from_millis(NOW * 1000 + 999);
        session.require_fresh_mfa(now).is_ok()
    }

    // Fault matrix 135, 136
    #[test]
    fn a_second_factor_is_fresh_for_ten_minutes() {
        for age in [-30, 0, 599, 600] {
            assert!(
                is_fresh(&json!({ "auth_time": NOW - age, "amr": ["pwd", "otp"] })),
                "{age}"
            );
        }
        for age in [-31, 601, 700, NOW, NOW + 1] {
            assert!(
                !is_fresh(&json!({ "auth_time": NOW - age, "amr": ["mfa"] })),
                "{age}"
            );
        }
        for auth_time in [json!(null), json!(NOW.to_string()), json!([NOW]), json!(true)] {
            assert!(
                !is_fresh(&json!({ "auth_time": auth_time, "amr": ["mfa"] })),
                "{auth_time}"
            );
        }
        assert!(!is_fresh(&json!({ "amr": ["mfa"] })));
    }

    // Fault matrix 134, 136
    #[test]
    fn a_second_factor_is_one_that_is_known() {
        for factor in SECOND_FACTORS {
            assert!(
                is_fresh(&json!({ "auth_time": NOW, "amr": [factor] })),
                "{factor}"
            );
        }
        assert!(is_fresh(&json!({ "auth_time": NOW, "acr": "mfa" })));
        assert!(is_fresh(&json!({ "auth_time": NOW, "amr": 1, "acr": "mfa" })));
        for other in [
            json!({}),
            json!({ "amr": ["pwd"] }),
            json!({ "amr": [] }),
            json!({ "amr": "mfa" }),
            json!({ "amr": [["mfa"]] }),
            json!({ "amr": { "mfa": true } }),
            json!({ "acr": "pwd" }),
            json!({ "acr": ["mfa"] }),
        ] {
            let mut claims = other.clone();
            claims["auth_time"] = json!(NOW);
            assert!(!is_fresh(&claims), "{other}");
        }
    }
}
