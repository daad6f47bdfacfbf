//! Dashboard sessions: JWTs of one identity provider, which is this service itself or another one.
//!
//! There is one way in for both: a token is verified by a key of the issuer, and what it says about a second factor
//! counts for ten minutes. A step-up token stands in for a second factor that was shown a moment ago; signing out
//! ends the session and them.

mod claims;
mod desk;
mod jws;
mod keys;
mod provider;
mod signer;
#[cfg(test)]
mod tests;
mod verifier;

pub use claims::{FactorRules, SECOND_FACTORS, Session};
pub use desk::{LocalPeople, SessionDesk};
pub use jws::{MAX_TOKEN_BYTES, SESSION_TYPE};
pub use keys::parse_algorithm;
pub use provider::ProviderKeys;
pub use signer::{NewSession, SessionSigner};
pub use verifier::{SessionRules, SessionVerifier};
