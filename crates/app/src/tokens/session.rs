//! Sessions that a token can be bound to: the token carries the fingerprint, the caller sends the value.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use turnpike_core::errors::ErrorCode;

use super::jwt::EndUserClaims;
use crate::error::AppError;

/// Base64url without padding of the SHA-256 of a session's value.
pub fn session_fingerprint(session: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(session.as_bytes()))
}

/// Whether `text` is a session's value: `^[A-Za-z0-9][A-Za-z0-9._:-]{15,127}$`.
pub fn is_session_id(text: &str) -> bool {
    let first_ok = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    let all_ok = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
    first_ok && all_ok && (16..=128).contains(&text.len())
}

/// Whether `text` can be what [`session_fingerprint`] gives.
pub(super) fn is_fingerprint(text: &str) -> bool {
    URL_SAFE_NO_PAD
        .decode(text)
        .is_ok_and(|digest| digest.len() == 32)
}

/// Compares the session a token is bound to with the value that the caller sent in `header`, which counts only
/// when the token is bound.
///
/// # Errors
/// `SESSION_HEADER_REQUIRED` when there is none, `SESSION_MISMATCH` for another or a malformed one.
pub fn check_session(claims: &EndUserClaims, header: Option<&str>) -> Result<(), AppError> {
    let Some(bound) = &claims.sid else {
        return Ok(());
    };
    let session = header.ok_or_else(|| {
        AppError::new(
            ErrorCode::SessionHeaderRequired,
            "the token is bound to a session: send the session's value in its header",
        )
    })?;
    let same = session_fingerprint(session).as_bytes().ct_eq(bound.as_bytes());
    if is_session_id(session) && bool::from(same) {
        Ok(())
    } else {
        Err(AppError::new(
            ErrorCode::SessionMismatch,
            "the session is not the one the token is bound to",
        ))
    }
}
