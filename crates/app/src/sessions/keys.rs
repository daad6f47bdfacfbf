//! The keys that an issuer signs sessions with, each with the algorithms that it may be used with.

use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use turnpike_core::time::Timestamp;
use turnpike_upstream::PublicKey;
use turnpike_upstream::identity::{Curve, KeyMaterial};

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// A signature algorithm by its name (RFC 7518, RFC 8037), if it is asymmetric.
pub fn parse_algorithm(name: &str) -> Option<Algorithm> {
    let algorithm: Algorithm = name.parse().ok()?;
    (algorithm.family() != AlgorithmFamily::Hmac).then_some(algorithm)
}

/// A public key that is believed.
pub(super) struct TrustedKey {
    kid: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl TrustedKey {
    /// An Ed25519 key of this service.
    pub(super) fn own(kid: &str, key: DecodingKey) -> Self {
        Self {
            kid: Some(kid.to_owned()),
            algorithms: vec![Algorithm::EdDSA],
            key,
        }
    }

    /// A provider's key; `None` when it is for an algorithm that is not known here.
    fn of(public: &PublicKey) -> Option<Self> {
        let (mut algorithms, key) = match &public.material {
            KeyMaterial::Rsa { n, e } => (RSA.to_vec(), DecodingKey::from_rsa_raw_components(n, e)),
            KeyMaterial::Ec { curve, x, y } => {
                let algorithm = match curve {
                    Curve::P256 => Algorithm::ES256,
                    Curve::P384 => Algorithm::ES384,
                };
                // The uncompressed form of a point (SEC 1, section 2.3.3).
                let point = [&[4], x.as_slice(), y].concat();
                (vec![algorithm], DecodingKey::from_ec_der(&point))
            }
            KeyMaterial::Ed25519 { x } => (vec![Algorithm::EdDSA], DecodingKey::from_ed_der(x)),
        };
        if let Some(only) = &public.algorithm {
            let only = parse_algorithm(only)?;
            algorithms.retain(|algorithm| *algorithm == only);
        }
        (!algorithms.is_empty()).then(|| Self {
            kid: public.kid.clone(),
            algorithms,
            key,
        })
    }

    /// Whether it signed `message` by `algorithm`.
    pub(super) fn has_signed(&self, message: &str, signature: &str, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
            && jsonwebtoken::crypto::verify(signature, message.as_bytes(), &self.key, algorithm)
                .unwrap_or(false)
    }
}

/// The keys of one issuer, as they were at one time.
pub(super) struct KeySet {
    keys: Vec<TrustedKey>,
    pub(super) read_at: Timestamp,
}

impl KeySet {
    pub(super) fn new(keys: Vec<TrustedKey>, read_at: Timestamp) -> Self {
        Self { keys, read_at }
    }

    /// Of what a provider publishes that which can be used.
    pub(super) fn published(keys: &[PublicKey], read_at: Timestamp) -> Self {
        Self::new(keys.iter().filter_map(TrustedKey::of).collect(), read_at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key that a token names. A token that names none means the only one that fits.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&TrustedKey> {
        let mut fitting = self.keys.iter().filter(|key| {
            key.algorithms.contains(&algorithm) && (kid.is_none() || key.kid.as_deref() == kid)
        });
        let first = fitting.next();
        first.filter(|_| kid.is_some() || fitting.next().is_none())
    }
}
