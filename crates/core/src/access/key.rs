//! API keys: `{brand}_{sk|pk}_{live|test}_` + 43 base62 characters of 32 random bytes + a checksum of 6.
//!
//! The checksum lets a mistyped key be refused without a look into the store. A key is kept only as
//! HMAC-SHA256 under a secret of the service.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use crate::ledger::account::coded_enum;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Base62 digits that hold 32 bytes.
const BODY_CHARS: usize = 43;
const CHECK_CHARS: usize = 6;
/// No key is longer, whatever the brand.
pub const MAX_KEY_CHARS: usize = 96;

coded_enum! {
    /// What a key is for.
    KeyKind {
        /// Server-side: spends and manages as far as its scopes go.
        Secret = 0 "secret",
        /// In browsers: `widget:read` at most.
        Publishable = 1 "publishable",
        /// Test credential: calls are simulated, no credits move.
        Sandbox = 2 "sandbox",
    }
}

impl KeyKind {
    const fn infix(self) -> &'static str {
        match self {
            Self::Secret => "sk_live",
            Self::Publishable => "pk_live",
            Self::Sandbox => "sk_test",
        }
    }
}

/// The text is no key of this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a well-formed API key")]
pub struct KeyFormatError;

/// A raw key. It can be shown once and hashed; it cannot be cloned or printed by accident.
pub struct KeySecret(String);

impl KeySecret {
    /// A key of `kind` from 32 random bytes.
    pub fn generate(brand: &str, kind: KeyKind, random: &[u8; 32]) -> Self {
        Self(sealed(&format!("{brand}_{}_", kind.infix()), random))
    }

    /// Reads a presented key.
    ///
    /// # Errors
    /// [`KeyFormatError`] when the prefix, the length, the alphabet or the checksum is wrong.
    pub fn parse(brand: &str, text: &str) -> Result<(KeyKind, Self), KeyFormatError> {
        if text.len() > MAX_KEY_CHARS || !text.is_ascii() {
            return Err(KeyFormatError);
        }
        let rest = text
            .strip_prefix(brand)
            .and_then(|rest| rest.strip_prefix('_'))
            .ok_or(KeyFormatError)?;
        let (kind, body) = KeyKind::ALL
            .iter()
            .find_map(|kind| {
                let body = rest.strip_prefix(kind.infix())?.strip_prefix('_')?;
                Some((*kind, body))
            })
            .ok_or(KeyFormatError)?;
        if is_sealed(text, body) {
            Ok((kind, Self(text.to_owned())))
        } else {
            Err(KeyFormatError)
        }
    }

    /// The raw key, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The first characters, which may be shown in lists.
    pub fn prefix(&self) -> &str {
        let visible = self
            .0
            .len()
            .saturating_sub(BODY_CHARS.saturating_add(CHECK_CHARS))
            .saturating_add(4);
        self.0.get(..visible).unwrap_or_default()
    }

    /// What the store keeps.
    pub fn hash(&self, pepper: &KeyPepper) -> KeyHash {
        pepper.hash(self.0.as_bytes())
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The service's secret under which keys are hashed.
#[derive(Clone)]
pub struct KeyPepper(Hmac<Sha256>);

impl KeyPepper {
    /// A pepper of any length.
    pub fn new(secret: &[u8]) -> Self {
        // An HMAC key longer than a block is hashed first (RFC 2104); doing so always keeps this infallible.
        let mut block = [0_u8; 64];
        for (to, from) in block.iter_mut().zip(Sha256::digest(secret)) {
            *to = from;
        }
        Self(Hmac::new(&block.into()))
    }

    /// A secret for another purpose, named by `label`, that tells nothing about this one.
    pub fn derive(&self, label: &str) -> [u8; 32] {
        let mut mac = self.0.clone();
        mac.update(b"derive\0");
        mac.update(label.as_bytes());
        mac.finalize().into_bytes().into()
    }

    /// The keyed hash of something that is no key, kept apart from others by its `purpose`.
    pub fn hash_for(&self, purpose: &str, bytes: &[u8]) -> KeyHash {
        let mut mac = self.0.clone();
        mac.update(purpose.as_bytes());
        mac.update(b"\0");
        mac.update(bytes);
        KeyHash(mac.finalize().into_bytes().into())
    }

    pub(super) fn hash(&self, bytes: &[u8]) -> KeyHash {
        let mut mac = self.0.clone();
        mac.update(bytes);
        KeyHash(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for KeyPepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// HMAC-SHA256 of a key: what is stored and looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// Compares in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        subtle::ConstantTimeEq::ct_eq(&self.0[..], &other.0[..]).into()
    }
}

/// `prefix`, then 32 random bytes, then a checksum over both.
pub(super) fn sealed(prefix: &str, random: &[u8; 32]) -> String {
    let text = format!("{prefix}{}", base62(random, BODY_CHARS));
    let check = checksum(&text);
    format!("{text}{check}")
}

/// Whether [`sealed`] can have made `text`, of which `body` stands behind the prefix.
pub(super) fn is_sealed(text: &str, body: &str) -> bool {
    let whole = body.len() == BODY_CHARS.saturating_add(CHECK_CHARS)
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric());
    whole
        && text
            .split_at_checked(text.len().saturating_sub(CHECK_CHARS))
            .is_some_and(|(signed, check)| checksum(signed) == check)
}

fn checksum(text: &str) -> String {
    base62(&Sha256::digest(text.as_bytes()), CHECK_CHARS)
}

/// The low `chars` base62 digits of a big-endian number, most significant first.
fn base62(bytes: &[u8], chars: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits = Vec::with_capacity(chars);
    for _ in 0..chars {
        let mut remainder: u16 = 0;
        for byte in &mut number {
            let value = (remainder << 8) | u16::from(*byte);
            *byte = u8::try_from(value.checked_div(62).unwrap_or(0)).unwrap_or(0);
            remainder = value.checked_rem(62).unwrap_or(0);
        }
        digits.push(ALPHABET.get(usize::from(remainder)).copied().unwrap_or(b'0'));
    }
    digits.iter().rev().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fault matrix 225
    #[test]
    fn a_key_round_trips_and_a_typo_is_refused_without_a_lookup() {
        for kind in KeyKind::ALL {
            let key = KeySecret::generate("svc", *kind, &[0xA7; 32]);
            let (parsed, again) = KeySecret::parse("svc", key.reveal()).unwrap();
            assert_eq!((parsed, again.reveal()), (*kind, key.reveal()));
            let mut typo = key.reveal().to_owned();
            let last = if typo.ends_with('0') { '1' } else { '0' };
            typo.pop();
            typo.push(last);
            assert!(KeySecret::parse("svc", &typo).is_err());
        }
        for bad in [
            "",
            "svc_sk_live_",
            "sk_live_x",
            &"x".repeat(5000),
            "svc_sk_live_é",
        ] {
            assert!(KeySecret::parse("svc", bad).is_err());
        }
    }

    #[test]
    fn hashes_depend_on_the_pepper_and_secrets_do_not_print() {
        let key = KeySecret::generate("svc", KeyKind::Secret, &[1; 32]);
        let (one, two) = (KeyPepper::new(b"one"), KeyPepper::new(b"two"));
        assert!(key.hash(&one).matches(&key.hash(&one)));
        assert!(!key.hash(&one).matches(&key.hash(&two)));
        assert_eq!(format!("{key:?} {one:?}"), "[redacted] [redacted]");
        assert_eq!(key.prefix().len(), "svc_sk_live_".len() + 4);
    }
}
