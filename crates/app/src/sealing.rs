//! Secrets at rest: sealed under a key that is derived from the service's secret for one purpose alone.

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

/// Bytes of the nonce of a sealed secret; long enough to be drawn at random.
pub const NONCE_BYTES: usize = 24;
/// First byte of a sealed secret.
const VERSION: u8 = 1;

/// Why a secret could not be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// The bytes do not have the form of a sealed secret.
    #[error("the sealed secret is malformed")]
    Malformed,
    /// Sealed under another secret or for another thing, or changed since.
    #[error("the sealed secret does not belong to this service and thing")]
    Refused,
    /// A library refused what it should not.
    #[error("the secret could not be sealed")]
    Encoding,
}

/// Seals and opens secrets of one purpose.
pub(crate) struct Sealer {
    key: Zeroizing<[u8; 32]>,
}

impl Sealer {
    /// A sealer for `purpose`, a fixed text, under `master`, which has at least 32 random bytes.
    ///
    /// # Errors
    /// [`SealError::Encoding`], which a key of 32 bytes does not cause.
    pub(crate) fn new(master: &[u8], purpose: &[u8]) -> Result<Self, SealError> {
        let mut key = Zeroizing::new([0_u8; 32]);
        Hkdf::<Sha256>::new(None, master)
            .expand(purpose, key.as_mut())
            .map_err(|_length| SealError::Encoding)?;
        Ok(Self { key })
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&(*self.key).into())
    }

    /// Seals `secret` so that it opens for the same `thing` only; `nonce` is drawn anew for every call.
    ///
    /// # Errors
    /// [`SealError::Encoding`], when `secret` is of absurd length.
    pub(crate) fn seal(
        &self,
        thing: &[u8],
        secret: &[u8],
        nonce: &[u8; NONCE_BYTES],
    ) -> Result<Vec<u8>, SealError> {
        let thing = associated(thing);
        let payload = Payload {
            msg: secret,
            aad: &thing,
        };
        let ciphertext = self
            .cipher()
            .encrypt(&XNonce::from(*nonce), payload)
            .map_err(|_opaque| SealError::Encoding)?;
        let mut sealed = vec![VERSION];
        sealed.extend_from_slice(nonce);
        sealed.extend_from_slice(&ciphertext);
        Ok(sealed)
    }

    /// The secret that [`Self::seal`] sealed for the same `thing`.
    ///
    /// # Errors
    /// [`SealError::Malformed`] and [`SealError::Refused`].
    pub(crate) fn open(&self, thing: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let Some((&VERSION, rest)) = sealed.split_first() else {
            return Err(SealError::Malformed);
        };
        let (nonce, ciphertext) = rest
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or(SealError::Malformed)?;
        let thing = associated(thing);
        let payload = Payload {
            msg: ciphertext,
            aad: &thing,
        };
        self.cipher()
            .decrypt(&XNonce::from(*nonce), payload)
            .map(Zeroizing::new)
            .map_err(|_opaque| SealError::Refused)
    }
}

/// What a sealed secret is bound to.
fn associated(thing: &[u8]) -> Vec<u8> {
    let mut data = vec![VERSION];
    data.extend_from_slice(thing);
    data
}

/// A nonce out of 32 random bytes.
pub(crate) fn nonce(random: &[u8; 32]) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    for (to, from) in nonce.iter_mut().zip(random) {
        *to = *from;
    }
    nonce
}
