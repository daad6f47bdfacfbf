//! Attacks on end-user tokens, built by hand where a library refuses to make them, and the keys' life.

mod claims;
mod header;
mod keys;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::Signer as _;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use proptest::prelude::*;
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{ExternalUserId, TenantId};
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use super::*;
use crate::error::AppError;

const NOW_SECS: i64 = 1_790_000_000;
const NOW: Timestamp = Timestamp::from_millis(NOW_SECS * 1000);
const EXPECTED: Expected<'static> = Expected {
    issuer: "https://pay.example",
    audience: "turnpike",
};
const OURS: u8 = 1;
const STRANGER: u8 = 9;
const MASTER: [u8; 32] = [7; 32];
const SESSION: &str = "session-0123456789";

fn key(seed: u8, created_at: Timestamp) -> Arc<SigningKey> {
    Arc::new(SigningKey::generate([seed; 32], created_at).unwrap())
}

fn ring_of(keys: &[&Arc<SigningKey>]) -> KeyRing {
    KeyRing::new(keys.iter().copied().cloned().collect(), DEFAULT_PUBLISH_LEAD_MS)
}

fn ring() -> KeyRing {
    ring_of(&[&key(OURS, NOW.plus_millis(-120_000))])
}

fn kid(seed: u8) -> String {
    key(seed, NOW).kid().to_owned()
}

fn claims() -> EndUserClaims {
    EndUserClaims {
        iss: EXPECTED.issuer.to_owned(),
        aud: EXPECTED.audience.to_owned(),
        sub: ExternalUserId::parse("org/user@example.com").unwrap(),
        tid: TenantId(Uuid::from_u128(11)),
        iat: NOW_SECS,
        exp: NOW_SECS + 900,
        jti: Uuid::from_u128(12),
        sid: None,
        scp: vec![TokenScope::Spend, TokenScope::Read],
    }
}

fn part(text: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// A token whose signature by `seed`'s key is right, whatever its texts say.
fn signed(seed: u8, header: &str, claims: &str) -> String {
    let message = format!("{}.{}", part(header), part(claims));
    let signature = ed25519_dalek::SigningKey::from_bytes(&[seed; 32]).sign(message.as_bytes());
    format!("{message}.{}", part(signature.to_bytes()))
}

fn header() -> Value {
    json!({ "alg": "EdDSA", "typ": TOKEN_TYPE, "kid": kid(OURS) })
}

fn with(mut object: Value, name: &str, value: Value) -> Value {
    object[name] = value;
    object
}

/// A token like ours with other header or claims.
fn forged(header: &Value, claims: &Value) -> String {
    signed(OURS, &header.to_string(), &claims.to_string())
}

fn claims_with(name: &str, value: Value) -> String {
    forged(&header(), &with(json!(claims()), name, value))
}

fn outcome(token: &str) -> Result<EndUserClaims, ErrorCode> {
    verify(&ring(), token, &EXPECTED, NOW).map_err(|error| error.code)
}

#[track_caller]
fn refused(token: &str) {
    let error = verify(&ring(), token, &EXPECTED, NOW).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidCredential, "{token:.200}");
    assert_eq!(error.message, "the end-user token is not valid");
    assert!(error.members.is_empty());
}

fn code<T>(result: Result<T, AppError>) -> Result<T, ErrorCode> {
    result.map_err(|error| error.code)
}

#[test]
fn what_is_minted_is_verified() {
    for sid in [None, Some(session_fingerprint(SESSION))] {
        let claims = EndUserClaims { sid, ..claims() };
        let token = mint(&ring(), &claims, NOW).unwrap();
        assert_eq!(outcome(&token), Ok(claims));
        assert!(looks_like_end_user_token(&token));
    }
    // The handmade tokens below are refused for what they change only.
    assert_eq!(outcome(&forged(&header(), &json!(claims()))), Ok(claims()));
}

#[test]
fn scopes_are_lower_case_on_the_wire() {
    for (scope, name) in [
        (TokenScope::Spend, "spend"),
        (TokenScope::Topup, "topup"),
        (TokenScope::Read, "read"),
    ] {
        assert_eq!(json!(scope), json!(name));
        assert_eq!(scope.as_str(), name);
    }
}

#[test]
fn any_other_character_anywhere_spoils_a_token() {
    let token = mint(&ring(), &claims(), NOW).unwrap();
    for at in 0..token.len() {
        for other in ["A", "B", "g", "_", "-", ".", "=", "+", " "] {
            let mut mutated = token.clone();
            mutated.replace_range(at..=at, other);
            if mutated != token {
                refused(&mutated);
            }
        }
    }
}

proptest! {
    #[test]
    fn random_texts_never_verify(text in ".{0,300}", parts in "[A-Za-z0-9_-]{0,80}\\.[A-Za-z0-9_-]{0,80}\\.[A-Za-z0-9_-]{86}") {
        for text in [text, parts] {
            prop_assert_eq!(outcome(&text), Err(ErrorCode::InvalidCredential));
            prop_assert!(!looks_like_end_user_token(&text));
        }
    }

    #[test]
    fn mutated_tokens_never_verify(at in any::<prop::sample::Index>(), cut in 0_usize..4, insert in "[A-Za-z0-9_.=-]{0,4}|\\PC{1,2}") {
        let token = mint(&ring(), &claims(), NOW).unwrap();
        let start = at.index(token.len());
        let end = (start + cut).min(token.len());
        let mut mutated = token.clone();
        mutated.replace_range(start..end, &insert);
        prop_assume!(mutated != token);
        prop_assert_eq!(outcome(&mutated), Err(ErrorCode::InvalidCredential));
        // Says nothing about validity, but must not panic.
        let _looks = looks_like_end_user_token(&mutated);
    }

    #[test]
    fn signed_nonsense_never_verifies(head in "\\PC{0,60}", body in "\\PC{0,60}") {
        refused(&signed(OURS, &head, &json!(claims()).to_string()));
        refused(&signed(OURS, &header().to_string(), &body));
    }

    #[test]
    fn the_key_that_signs_is_published_until_its_tokens_have_ended(
        ages in prop::collection::vec(-10_000_000_i64..10_000_000, 1..6),
        later in 0_i64..=3_600_000,
    ) {
        let keys = (0_u8..).zip(ages).map(|(seed, age)| key(seed, NOW.plus_millis(age))).collect();
        let ring = KeyRing::new(keys, DEFAULT_PUBLISH_LEAD_MS);
        let signer = ring.signer(NOW).unwrap().kid();
        prop_assert!(ring.accepted(signer, NOW).is_some());
        prop_assert!(ring.accepted(signer, NOW.plus_millis(later)).is_some());
    }
}
