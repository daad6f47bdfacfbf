//! What a session says: who, until when, and whether a second factor was shown lately.
//!
//! Claims about the second factor are kept as they came: of another type than they should have, they show none, and
//! the session is still one.

use serde_json::{Map, Value};
use turnpike_core::errors::ErrorCode;
use turnpike_core::time::Timestamp;

use super::jws::Refusal;
use crate::auth::LimitKey;
use crate::error::AppError;

/// The methods and contexts that count as a second factor (RFC 8176).
pub const SECOND_FACTORS: [&str; 6] = ["mfa", "otp", "hwk", "swk", "webauthn", "passkey"];

/// Clocks may differ by this much.
pub(super) const LEEWAY_SECS: i64 = 30;
const MAX_SUBJECT_CHARS: usize = 255;

/// What shows a second factor, and how long it counts as fresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactorRules {
    /// Values of `acr` that show one, beside [`SECOND_FACTORS`].
    pub acr_values: Vec<String>,
    /// How old it may be.
    pub max_age_secs: i64,
}

/// A verified session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Who vouches for the subject.
    pub issuer: String,
    /// The person.
    pub subject: String,
    /// When it was signed, in seconds since the epoch.
    pub issued_at: i64,
    /// When the person authenticated, in seconds since the epoch.
    pub auth_time: Option<i64>,
    /// Whether a second factor was among the methods.
    pub second_factor: bool,
    /// From when on nobody takes it any more.
    pub expires_at: Timestamp,
    /// SHA-256 of what was signed, which tells it from every other session.
    pub digest: [u8; 32],
    /// How old a second factor may be.
    pub max_age_secs: i64,
}

impl Session {
    /// What its rate limits are counted by.
    pub fn limit_key(&self) -> LimitKey {
        LimitKey::Subject(self.subject.as_str().into())
    }

    /// Until when the second factor that it shows is fresh; `None` when it shows none, or an old one.
    pub fn fresh_until(&self, now: Timestamp) -> Option<Timestamp> {
        let at = self.auth_time.filter(|_| self.second_factor)?;
        let age = seconds(now).saturating_sub(at);
        (-LEEWAY_SECS..=self.max_age_secs)
            .contains(&age)
            .then(|| from_seconds(at.saturating_add(self.max_age_secs)))
    }

    /// Demands a second factor within the last ten minutes.
    ///
    /// # Errors
    /// `STEP_UP_REQUIRED`.
    pub fn require_fresh_mfa(&self, now: Timestamp) -> Result<(), AppError> {
        self.fresh_until(now).map(drop).ok_or_else(step_up_required)
    }

    /// Reads the claims of a token by `issuer` for `audience`, whose signature was verified.
    pub(super) fn read(
        claims: &Map<String, Value>,
        (issuer, audience): (&str, &str),
        factors: &FactorRules,
        digest: [u8; 32],
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        if claims.get("iss").and_then(Value::as_str) != Some(issuer) {
            return Err(Refusal::Invalid("iss"));
        }
        let ours = match claims.get("aud") {
            Some(Value::String(only)) => only == audience,
            Some(Value::Array(all)) => all.iter().any(|one| one == audience),
            _ => false,
        };
        if !ours {
            return Err(Refusal::Invalid("aud"));
        }
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        if !(1..=MAX_SUBJECT_CHARS).contains(&subject.chars().count())
            || subject.chars().any(char::is_control)
        {
            return Err(Refusal::Invalid("sub"));
        }
        let latest = seconds(now).saturating_add(LEEWAY_SECS);
        let whole = |name: &'static str| {
            let claim = claims.get(name).map(Value::as_i64);
            claim.map(|value| value.ok_or(Refusal::Invalid(name))).transpose()
        };
        let issued_at = whole("iat")?.ok_or(Refusal::Invalid("iat"))?;
        if issued_at > latest {
            return Err(Refusal::Invalid("iat is to come"));
        }
        if whole("nbf")?.is_some_and(|from| from > latest) {
            return Err(Refusal::Invalid("nbf is to come"));
        }
        let end = whole("exp")?
            .ok_or(Refusal::Invalid("exp"))?
            .saturating_add(LEEWAY_SECS);
        if end < seconds(now) {
            return Err(Refusal::Expired);
        }
        Ok(Self {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            issued_at,
            auth_time: claims
                .get("auth_time")
                .and_then(Value::as_i64)
                .filter(|seconds| *seconds >= 0),
            second_factor: shows_second_factor(claims, &factors.acr_values),
            expires_at: from_seconds(end.saturating_add(1)),
            digest,
            max_age_secs: factors.max_age_secs,
        })
    }
}

/// The answer to who shows no fresh second factor, whatever else was tried.
pub(super) fn step_up_required() -> AppError {
    AppError::new(
        ErrorCode::StepUpRequired,
        "show a second factor again: it must be at most ten minutes old",
    )
}

fn shows_second_factor(claims: &Map<String, Value>, acr_values: &[String]) -> bool {
    let is_factor = |method: &Value| {
        method
            .as_str()
            .is_some_and(|method| SECOND_FACTORS.contains(&method))
    };
    let by_methods = claims
        .get("amr")
        .and_then(Value::as_array)
        .is_some_and(|methods| methods.iter().any(is_factor));
    let by_context = claims
        .get("acr")
        .is_some_and(|acr| is_factor(acr) || acr_values.iter().any(|value| acr == value.as_str()));
    by_methods || by_context
}

pub(super) fn seconds(at: Timestamp) -> i64 {
    at.millis().div_euclid(1000)
}

fn from_seconds(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1000))
}
