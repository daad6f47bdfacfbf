//! Keys that sign end-user tokens: made from a seed, sealed at rest, and rotated by their age alone.
//!
//! Which key signs and which is still accepted follows from the keys' times and the present instant, so that
//! every node decides alike without asking another. A key is published before it signs, and outlives the last
//! token that it can have signed.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::pkcs8::EncodePrivateKey as _;
use jsonwebtoken::{DecodingKey, EncodingKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use turnpike_core::time::Timestamp;
use zeroize::Zeroizing;

use super::jwt::MAX_LIFETIME_SECS;
use crate::sealing::{NONCE_BYTES, SealError, Sealer};

/// How long a key is published before it signs, unless the configuration says otherwise.
pub const DEFAULT_PUBLISH_LEAD_MS: i64 = 60_000;

/// How long a superseded key is accepted: the longest life of a token, and a minute for nodes that differ.
const RETENTION_MS: i64 = MAX_LIFETIME_SECS * 1000 + 60_000;
/// Bytes of the public key's hash that name a key.
const KID_BYTES: usize = 16;
const SEED_BYTES: usize = 32;
/// Keeps the sealing key apart from everything else that is derived from the service's secret.
const SEAL_PURPOSE: &[u8] = b"turnpike end-user token signing key v1";

/// Why a key could not be made, sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The bytes do not have the form of a sealed key.
    #[error("the sealed signing key is malformed")]
    Malformed,
    /// Another secret, another key's name or time, or bytes that were changed.
    #[error("the sealed signing key does not belong to this secret, name and time")]
    Refused,
    /// A library refused what it should not.
    #[error("the signing key could not be encoded")]
    Encoding,
}

/// An Ed25519 key pair. No `Clone`, and `Debug` shows only its name and time.
pub struct SigningKey {
    kid: String,
    created_at: Timestamp,
    pair: ed25519_dalek::SigningKey,
    encoding: EncodingKey,
    decoding: DecodingKey,
}

impl SigningKey {
    /// The key pair of `seed`, which must come from a cryptographic source.
    ///
    /// # Errors
    /// [`KeyError::Encoding`], which a valid seed does not cause.
    pub fn generate(seed: [u8; SEED_BYTES], created_at: Timestamp) -> Result<Self, KeyError> {
        let seed = Zeroizing::new(seed);
        let pair = ed25519_dalek::SigningKey::from_bytes(&seed);
        let public = pair.verifying_key().to_bytes();
        let hash = Sha256::digest(public);
        let (name, _rest) = hash.split_at_checked(KID_BYTES).ok_or(KeyError::Encoding)?;
        let der = pair.to_pkcs8_der().map_err(|_opaque| KeyError::Encoding)?;
        Ok(Self {
            kid: URL_SAFE_NO_PAD.encode(name),
            created_at,
            encoding: EncodingKey::from_ed_der(der.as_bytes()),
            decoding: DecodingKey::from_ed_der(&public),
            pair,
        })
    }

    /// Its name: base64url of the first 16 bytes of the SHA-256 of the public key.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// When it was made.
    pub const fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// The private key for a store: readable only with `master`, and only as this key of this time.
    ///
    /// `master` has at least 32 random bytes; `nonce` is drawn anew for every call.
    ///
    /// # Errors
    /// [`KeyError::Encoding`], which a key of 32 bytes does not cause.
    pub fn seal(&self, master: &[u8], nonce: &[u8; NONCE_BYTES]) -> Result<Vec<u8>, KeyError> {
        let thing = named_and_dated(&self.kid, self.created_at);
        Ok(Sealer::new(master, SEAL_PURPOSE)?.seal(&thing, self.pair.as_bytes(), nonce)?)
    }

    /// The key that [`SigningKey::seal`] sealed under the same secret.
    ///
    /// # Errors
    /// [`KeyError::Malformed`] and [`KeyError::Refused`].
    pub fn open(sealed: &[u8], master: &[u8], kid: &str, created_at: Timestamp) -> Result<Self, KeyError> {
        let thing = named_and_dated(kid, created_at);
        let seed = Sealer::new(master, SEAL_PURPOSE)?.open(&thing, sealed)?;
        let seed = <[u8; SEED_BYTES]>::try_from(seed.as_slice()).map_err(|_length| KeyError::Malformed)?;
        let key = Self::generate(seed, created_at)?;
        if key.kid == kid {
            Ok(key)
        } else {
            Err(KeyError::Refused)
        }
    }

    /// What jsonwebtoken signs with.
    pub(crate) const fn encoding(&self) -> &EncodingKey {
        &self.encoding
    }

    /// What jsonwebtoken verifies with.
    pub(crate) const fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }

    /// The public half as a member of a JWK set (RFC 8037, section 2).
    pub(crate) fn jwk(&self) -> Value {
        json!({
            "kty": "OKP",
            "crv": "Ed25519",
            "x": URL_SAFE_NO_PAD.encode(self.pair.verifying_key().as_bytes()),
            "kid": self.kid,
            "alg": "EdDSA",
            "use": "sig",
        })
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("kid", &self.kid)
            .field("created_at", &self.created_at)
            .finish_non_exhaustive()
    }
}

/// What a sealed key is bound to: its time, of fixed length, then its name.
fn named_and_dated(kid: &str, created_at: Timestamp) -> Vec<u8> {
    let mut data = created_at.millis().to_be_bytes().to_vec();
    data.extend_from_slice(kid.as_bytes());
    data
}

impl From<SealError> for KeyError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Malformed => Self::Malformed,
            SealError::Refused => Self::Refused,
            SealError::Encoding => Self::Encoding,
        }
    }
}

/// The keys of the service, as one node knows them. A changed set is a new ring.
#[derive(Clone, Debug)]
pub struct KeyRing {
    /// Oldest first.
    keys: Vec<Arc<SigningKey>>,
    publish_lead_ms: i64,
}

impl KeyRing {
    /// A ring of `keys`, each of which signs only `publish_lead_ms` after it was made.
    pub fn new(mut keys: Vec<Arc<SigningKey>>, publish_lead_ms: i64) -> Self {
        keys.sort_by(|a, b| (a.created_at, &a.kid).cmp(&(b.created_at, &b.kid)));
        keys.dedup_by(|a, b| a.kid == b.kid);
        Self {
            keys,
            publish_lead_ms,
        }
    }

    /// Every key, oldest first.
    pub fn keys(&self) -> &[Arc<SigningKey>] {
        &self.keys
    }

    /// Whether there is a key named `kid`.
    pub fn knows(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.kid == kid)
    }

    /// The key that signs at `now`: the newest that has been published long enough, else the oldest; `None` in
    /// an empty ring.
    pub fn signer(&self, now: Timestamp) -> Option<&SigningKey> {
        self.keys
            .iter()
            .rfind(|key| self.signs_from(key) <= now)
            .or_else(|| self.keys.first())
            .map(AsRef::as_ref)
    }

    /// Whether a token signed with the key named `kid` may still be valid at `now`, or may yet be signed.
    ///
    /// A key is done an hour and a minute after the next newer one began to sign.
    pub fn is_needed(&self, kid: &str, now: Timestamp) -> bool {
        let mut from_it = self.keys.iter().skip_while(|key| key.kid != kid);
        if from_it.next().is_none() {
            return false;
        }
        from_it
            .next()
            .is_none_or(|successor| now < self.signs_from(successor).plus_millis(RETENTION_MS))
    }

    /// The key named `kid`, when tokens of it are accepted at `now`.
    pub fn accepted(&self, kid: &str, now: Timestamp) -> Option<&SigningKey> {
        self.keys
            .iter()
            .find(|key| key.kid == kid)
            .filter(|key| self.is_needed(&key.kid, now))
            .map(AsRef::as_ref)
    }

    /// The public keys as a JWK set (RFC 7517, section 5): those that sign, will sign, or are still accepted.
    pub fn jwks(&self, now: Timestamp) -> Value {
        let keys: Vec<Value> = self
            .keys
            .iter()
            .filter(|key| self.is_needed(&key.kid, now))
            .map(|key| key.jwk())
            .collect();
        json!({ "keys": keys })
    }

    /// When a key begins to sign.
    pub const fn signs_from(&self, key: &SigningKey) -> Timestamp {
        key.created_at.plus_millis(self.publish_lead_ms)
    }
}
