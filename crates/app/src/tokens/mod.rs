//! End-user tokens: short-lived JWTs that this service both issues and verifies, and the keys that sign them.
//!
//! All but the vault is pure; which tokens were minted is for the callers.

mod jwt;
mod keys;
mod session;
#[cfg(test)]
mod tests;
mod vault;

pub use crate::sealing::NONCE_BYTES as SEAL_NONCE_BYTES;
pub use jwt::{
    EndUserClaims, Expected, MAX_LIFETIME_SECS, MIN_LIFETIME_SECS, TOKEN_TYPE, TokenScope,
    looks_like_end_user_token, mint, verify,
};
pub use keys::{DEFAULT_PUBLISH_LEAD_MS, KeyError, KeyRing, SigningKey};
pub use session::{check_session, is_session_id, session_fingerprint};
pub use vault::{KeyVault, VaultSettings};
