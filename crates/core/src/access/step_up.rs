//! Step-up tokens: `{brand}_su_` and what keys have behind their prefix.
//!
//! One says that its owner showed a second factor a moment ago. It is kept only as a keyed hash.

use std::fmt;

use super::key::{KeyFormatError, KeyHash, KeyPepper, MAX_KEY_CHARS, is_sealed, sealed};

const INFIX: &str = "_su_";

/// A raw step-up token. It can be shown once and hashed; it cannot be cloned or printed by accident.
pub struct StepUpSecret(String);

impl StepUpSecret {
    /// A token from 32 random bytes.
    pub fn generate(brand: &str, random: &[u8; 32]) -> Self {
        Self(sealed(&format!("{brand}{INFIX}"), random))
    }

    /// Reads a presented token.
    ///
    /// # Errors
    /// [`KeyFormatError`] when the prefix, the length, the alphabet or the checksum is wrong.
    pub fn parse(brand: &str, text: &str) -> Result<Self, KeyFormatError> {
        let body = text
            .strip_prefix(brand)
            .and_then(|rest| rest.strip_prefix(INFIX))
            .filter(|_body| text.len() <= MAX_KEY_CHARS)
            .ok_or(KeyFormatError)?;
        if is_sealed(text, body) {
            Ok(Self(text.to_owned()))
        } else {
            Err(KeyFormatError)
        }
    }

    /// The raw token, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What the store keeps.
    pub fn hash(&self, pepper: &KeyPepper) -> KeyHash {
        pepper.hash(self.0.as_bytes())
    }
}

impl fmt::Debug for StepUpSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{KeyKind, KeySecret};

    // Fault matrix 137
    #[test]
    fn a_token_round_trips_and_nothing_else_is_one() {
        let token = StepUpSecret::generate("svc", &[0xA7; 32]);
        let pepper = KeyPepper::new(b"one");
        let again = StepUpSecret::parse("svc", token.reveal()).unwrap();
        assert_eq!(again.hash(&pepper), token.hash(&pepper));
        assert_ne!(again.hash(&KeyPepper::new(b"two")), token.hash(&pepper));
        assert_eq!(format!("{token:?}"), "[redacted]");
        let key = KeySecret::generate("svc", KeyKind::Secret, &[0xA7; 32]);
        let typo = token.reveal().replacen("_su_", "_su_0", 1);
        let other = StepUpSecret::generate("acme", &[0xA7; 32]);
        let long = format!("svc_su_{}", "a".repeat(100_000));
        let texts = [
            key.reveal(),
            &typo,
            other.reveal(),
            &long,
            "",
            "svc_su_",
            "svc_su_\u{e9}",
        ];
        for text in texts {
            assert!(StepUpSecret::parse("svc", text).is_err(), "{text:.40}");
        }
        assert!(KeySecret::parse("svc", token.reveal()).is_err());
    }
}
