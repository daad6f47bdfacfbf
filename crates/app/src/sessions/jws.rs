//! A signed token as it comes (RFC 7515), before anything in it is believed.
//!
//! The rule: the header chooses among what the service knows already, an algorithm and a key's name, and brings
//! nothing of its own. A refusal does not say why; the debug log does, without the token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use super::keys::parse_algorithm;
use crate::json::parse_object;

/// The header member `typ` of sessions that this service signs (RFC 9068).
pub const SESSION_TYPE: &str = "at+jwt";
/// Longer texts are no tokens and are not looked into.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The types that a session may have; none at all will do, too.
const TYPES: [&str; 3] = [SESSION_TYPE, "application/at+jwt", "JWT"];
/// Members that bring a key, or demand that more is understood than is.
const FOREIGN: [&str; 5] = ["jku", "jwk", "x5u", "x5c", "crit"];
const MAX_KID_BYTES: usize = 255;

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is genuine, but its time is over.
    Expired,
    /// Anything else, for the log only.
    Invalid(&'static str),
}

/// A token in its three parts, with what its header chooses.
#[derive(Debug)]
pub(super) struct SignedToken<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
    /// What the signature is over.
    pub(super) message: &'a str,
    pub(super) signature: &'a str,
    claims: &'a str,
}

impl<'a> SignedToken<'a> {
    /// Reads `token`, which may be signed by one of `algorithms`.
    pub(super) fn parse(token: &'a str, algorithms: &[Algorithm]) -> Result<Self, Refusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Refusal::Invalid("too long"));
        }
        let (message, signature) = token.rsplit_once('.').ok_or(Refusal::Invalid("no parts"))?;
        let (header, claims) = message.split_once('.').ok_or(Refusal::Invalid("two parts"))?;
        if claims.contains('.') {
            return Err(Refusal::Invalid("more than three parts"));
        }
        let header = object(header).ok_or(Refusal::Invalid("header"))?;
        if FOREIGN.iter().any(|name| header.contains_key(*name)) {
            return Err(Refusal::Invalid("a header member that is not taken"));
        }
        let known = |typ: &Value| {
            typ.as_str()
                .is_some_and(|typ| TYPES.iter().any(|known| known.eq_ignore_ascii_case(typ)))
        };
        if !header.get("typ").is_none_or(known) {
            return Err(Refusal::Invalid("typ"));
        }
        // INVARIANT: the list has no symmetric algorithm, and a key is used with its own algorithms only.
        let algorithm = header
            .get("alg")
            .and_then(Value::as_str)
            .and_then(parse_algorithm)
            .filter(|algorithm| algorithms.contains(algorithm))
            .ok_or(Refusal::Invalid("alg"))?;
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) if kid.len() <= MAX_KID_BYTES => Some(kid.clone()),
            Some(_) => return Err(Refusal::Invalid("kid")),
        };
        Ok(Self {
            algorithm,
            kid,
            message,
            signature,
            claims,
        })
    }

    /// The claims, which are worth what the signature is.
    pub(super) fn claims(&self) -> Result<Map<String, Value>, Refusal> {
        object(self.claims).ok_or(Refusal::Invalid("claims are no JSON object"))
    }
}

fn object(part: &str) -> Option<Map<String, Value>> {
    parse_object(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}
