//! The end-user token on the wire (RFC 7519, RFC 8037): how it is minted and what is accepted as one.
//!
//! Issuer and verifier are the same service, so everything that it does not write itself is refused: other
//! header members, other claims, members that stand twice. A refusal does not say why; the debug log does,
//! without the token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, Header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{ExternalUserId, TenantId};
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use super::keys::KeyRing;
use super::session::is_fingerprint;
use crate::error::AppError;
use crate::json::parse_object;

/// The header member `typ` of an end-user token.
pub const TOKEN_TYPE: &str = "end-user+jwt";
/// Shortest life of a token.
pub const MIN_LIFETIME_SECS: i64 = 60;
/// Longest life of a token.
pub const MAX_LIFETIME_SECS: i64 = 3600;

const ALGORITHM: &str = "EdDSA";
/// Longer texts are no tokens of ours and are not looked into.
const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// How far the clock of the node that minted may be ahead.
const MAX_AHEAD_MS: i64 = 30_000;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// Paid calls from the end user's balance.
    Spend,
    /// Buying credits for the end user.
    Topup,
    /// Reading the end user's own balance and calls.
    Read,
}

impl TokenScope {
    /// The scope on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::Topup => "topup",
            Self::Read => "read",
        }
    }
}

/// The claims of an end-user token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndUserClaims {
    /// The service that issued it.
    pub iss: String,
    /// The service it is for.
    pub aud: String,
    /// The end user.
    pub sub: ExternalUserId,
    /// The workspace whose end user it is.
    pub tid: TenantId,
    /// When it was issued, in seconds since the epoch.
    pub iat: i64,
    /// When it ends, in seconds since the epoch; at that second it is no longer valid.
    pub exp: i64,
    /// Its own id.
    pub jti: Uuid,
    /// Fingerprint of the session it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// What it allows: at least one scope, none twice.
    pub scp: Vec<TokenScope>,
}

/// What a verifier demands of a token beside its signature and times.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The issuer's name.
    pub issuer: &'a str,
    /// This service's name.
    pub audience: &'a str,
}

/// The three members that the header of our tokens has, and the only ones it may have: `jku`, `jwk`, `x5u`,
/// `x5c` and `crit` are unknown members.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoseHeader {
    alg: String,
    typ: String,
    kid: String,
}

/// Why a token is refused.
enum Refusal {
    /// It is genuine, but its time is over.
    Expired,
    /// Anything else, for the log only.
    Invalid(&'static str),
}

/// Signs `claims` with the ring's key of `now`.
///
/// # Errors
/// `VALIDATION_ERROR` for a life outside 60..=3600 s and for scopes that are none or stand twice;
/// `SERVICE_UNAVAILABLE` without a key; `INTERNAL` for claims that the caller made wrongly.
pub fn mint(ring: &KeyRing, claims: &EndUserClaims, now: Timestamp) -> Result<String, AppError> {
    if !has_allowed_lifetime(claims) {
        let message = format!("must be {MIN_LIFETIME_SECS} to {MAX_LIFETIME_SECS} seconds");
        return Err(AppError::invalid("expiresIn", message));
    }
    if !are_distinct(&claims.scp) {
        return Err(AppError::invalid("scopes", "must be at least one, none twice"));
    }
    // A later token could outlive the key that signed it.
    if claims.iat > now.millis().div_euclid(1000) {
        return Err(AppError::internal(&"an end-user token issued in the future"));
    }
    if !claims.sid.as_deref().is_none_or(is_fingerprint) {
        return Err(AppError::internal(&"an end-user token bound to no fingerprint"));
    }
    let Some(key) = ring.signer(now) else {
        tracing::error!("there is no key to sign end-user tokens with");
        return Err(AppError::unavailable());
    };
    let mut header = Header::new(Algorithm::EdDSA);
    header.typ = Some(TOKEN_TYPE.to_owned());
    header.kid = Some(key.kid().to_owned());
    let token =
        jsonwebtoken::encode(&header, claims, key.encoding()).map_err(|error| AppError::internal(&error))?;
    if token.len() > MAX_TOKEN_BYTES {
        return Err(AppError::internal(
            &"an end-user token that is too long to be accepted",
        ));
    }
    Ok(token)
}

/// The claims of `token`, when it is one of ours, for us, and valid at `now`.
///
/// Whether its session, its workspace and its end user still fit is for the caller to ask.
///
/// # Errors
/// `CREDENTIAL_EXPIRED` for a genuine token whose time is over, else `INVALID_CREDENTIAL`.
pub fn verify(
    ring: &KeyRing,
    token: &str,
    expected: &Expected<'_>,
    now: Timestamp,
) -> Result<EndUserClaims, AppError> {
    genuine(ring, token, now)
        .and_then(|claims| read_claims(&claims, expected, now))
        .map_err(|refusal| match refusal {
            Refusal::Expired => AppError::new(ErrorCode::CredentialExpired, "the end-user token has expired"),
            Refusal::Invalid(reason) => {
                tracing::debug!(reason, "an end-user token was refused");
                AppError::new(ErrorCode::InvalidCredential, "the end-user token is not valid")
            }
        })
}

/// Whether `token` says of itself that it is an end-user token. Proves nothing.
pub fn looks_like_end_user_token(token: &str) -> bool {
    let Some((header, _rest)) = token.split_once('.') else {
        return false;
    };
    if header.len() > MAX_TOKEN_BYTES {
        return false;
    }
    URL_SAFE_NO_PAD
        .decode(header)
        .ok()
        .and_then(|bytes| parse_object(&bytes).ok())
        .is_some_and(|members| members.get("typ").and_then(Value::as_str) == Some(TOKEN_TYPE))
}

/// The name of the key that `token` says it is signed with. Proves nothing.
pub(super) fn named_key(token: &str) -> Option<String> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let (header, _rest) = token.split_once('.')?;
    let members = parse_object(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    members.get("kid")?.as_str().map(str::to_owned)
}

/// The bytes of the claims, once the signature over them is known to be ours.
fn genuine(ring: &KeyRing, token: &str, now: Timestamp) -> Result<Vec<u8>, Refusal> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(Refusal::Invalid("too long"));
    }
    let (message, signature) = token.rsplit_once('.').ok_or(Refusal::Invalid("no parts"))?;
    let (header, claims) = message.split_once('.').ok_or(Refusal::Invalid("two parts"))?;
    if claims.contains('.') {
        return Err(Refusal::Invalid("more than three parts"));
    }
    let header: JoseHeader = parse_object(&decode_part(header)?)
        .ok()
        .and_then(|members| serde_json::from_value(Value::Object(members)).ok())
        .ok_or(Refusal::Invalid("header"))?;
    if header.alg != ALGORITHM {
        return Err(Refusal::Invalid("alg"));
    }
    if header.typ != TOKEN_TYPE {
        return Err(Refusal::Invalid("typ"));
    }
    let key = ring.accepted(&header.kid, now).ok_or(Refusal::Invalid("kid"))?;
    let verified =
        jsonwebtoken::crypto::verify(signature, message.as_bytes(), key.decoding(), Algorithm::EdDSA)
            .unwrap_or(false);
    if !verified {
        return Err(Refusal::Invalid("signature"));
    }
    decode_part(claims)
}

/// The claims in `bytes`, when they are complete, for us, and valid at `now`.
fn read_claims(bytes: &[u8], expected: &Expected<'_>, now: Timestamp) -> Result<EndUserClaims, Refusal> {
    let mut members = parse_object(bytes).map_err(|_why| Refusal::Invalid("claims are no JSON object"))?;
    // A `sid` of null must not pass for none.
    if members.values().any(Value::is_null) {
        return Err(Refusal::Invalid("a claim is null"));
    }
    if let Some(not_before) = members.remove("nbf") {
        let seconds = not_before.as_i64().ok_or(Refusal::Invalid("nbf"))?;
        if Timestamp::from_millis(seconds.saturating_mul(1000)) > now {
            return Err(Refusal::Invalid("nbf is to come"));
        }
    }
    let claims: EndUserClaims = serde_json::from_value(Value::Object(members))
        .map_err(|_why| Refusal::Invalid("claims are missing, unknown or malformed"))?;
    if claims.iss != expected.issuer {
        return Err(Refusal::Invalid("iss"));
    }
    if claims.aud != expected.audience {
        return Err(Refusal::Invalid("aud"));
    }
    if !claims.sid.as_deref().is_none_or(is_fingerprint) {
        return Err(Refusal::Invalid("sid"));
    }
    if !are_distinct(&claims.scp) {
        return Err(Refusal::Invalid("scp"));
    }
    if !has_allowed_lifetime(&claims) {
        return Err(Refusal::Invalid("lifetime"));
    }
    if claims.iat.saturating_mul(1000) > now.plus_millis(MAX_AHEAD_MS).millis() {
        return Err(Refusal::Invalid("iat is to come"));
    }
    if claims.exp.saturating_mul(1000) <= now.millis() {
        return Err(Refusal::Expired);
    }
    Ok(claims)
}

fn decode_part(part: &str) -> Result<Vec<u8>, Refusal> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_where| Refusal::Invalid("base64"))
}

fn has_allowed_lifetime(claims: &EndUserClaims) -> bool {
    claims
        .exp
        .checked_sub(claims.iat)
        .is_some_and(|seconds| (MIN_LIFETIME_SECS..=MAX_LIFETIME_SECS).contains(&seconds))
}

fn are_distinct(scopes: &[TokenScope]) -> bool {
    let mut sorted = scopes.to_vec();
    sorted.sort_unstable();
    !sorted.is_empty() && sorted.is_sorted_by(|a, b| a < b)
}
