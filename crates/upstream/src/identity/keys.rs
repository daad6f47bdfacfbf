//! A JWK set (RFC 7517): which of its members are public keys that can verify signatures.
//!
//! The rule: a member that is anything else is passed over, never an error, so that a provider may publish what it
//! likes beside the keys that are of use here.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

/// Most keys that are taken from one set.
pub const MAX_KEYS: usize = 50;
/// Longest name of a key.
const MAX_KID_BYTES: usize = 255;
/// Bytes of an RSA modulus: 2048 to 4096 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=512;
/// Bytes of an RSA exponent.
const MAX_EXPONENT_BYTES: usize = 4;

/// A public key for signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// Its name.
    pub kid: Option<String>,
    /// The one algorithm that it is for, when it says so.
    pub algorithm: Option<String>,
    /// The key.
    pub material: KeyMaterial,
}

/// The numbers of a public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyMaterial {
    /// RSA.
    Rsa {
        /// The modulus, big-endian.
        n: Vec<u8>,
        /// The exponent, big-endian.
        e: Vec<u8>,
    },
    /// An elliptic curve's point.
    Ec {
        /// Which curve.
        curve: Curve,
        /// Its coordinate x.
        x: Vec<u8>,
        /// Its coordinate y.
        y: Vec<u8>,
    },
    /// Ed25519.
    Ed25519 {
        /// The public key.
        x: [u8; 32],
    },
}

/// The curves that can be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// P-256.
    P256,
    /// P-384.
    P384,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// What is looked at in a key.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// The usable keys in `document`, in its order; `None` when it is no key set.
pub fn parse_key_set(document: &[u8]) -> Option<Vec<PublicKey>> {
    let set: KeySet = serde_json::from_slice(document).ok()?;
    Some(set.keys.into_iter().filter_map(key).take(MAX_KEYS).collect())
}

fn key(value: Value) -> Option<PublicKey> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let verifies = jwk.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
        && jwk
            .key_ops
            .as_ref()
            .is_none_or(|operations| operations.iter().any(|operation| operation == "verify"));
    let named = jwk.kid.as_ref().is_none_or(|kid| kid.len() <= MAX_KID_BYTES);
    if !verifies || !named {
        return None;
    }
    let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => rsa(&jwk)?,
        ("EC", Some("P-256")) => point(&jwk, Curve::P256, 32)?,
        ("EC", Some("P-384")) => point(&jwk, Curve::P384, 48)?,
        ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519 {
            x: bytes(jwk.x.as_ref())?.try_into().ok()?,
        },
        (_, _) => return None,
    };
    Some(PublicKey {
        kid: jwk.kid,
        algorithm: jwk.alg,
        material,
    })
}

fn bytes(text: Option<&String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok()
}

fn rsa(jwk: &Jwk) -> Option<KeyMaterial> {
    let (mut n, e) = (bytes(jwk.n.as_ref())?, bytes(jwk.e.as_ref())?);
    // Some write the sign of the number, too.
    if n.first() == Some(&0) {
        n.remove(0);
    }
    let usable = MODULUS_BYTES.contains(&n.len())
        && n.first().is_some_and(|first| *first != 0)
        && (1..=MAX_EXPONENT_BYTES).contains(&e.len());
    usable.then_some(KeyMaterial::Rsa { n, e })
}

fn point(jwk: &Jwk, curve: Curve, width: usize) -> Option<KeyMaterial> {
    let (x, y) = (bytes(jwk.x.as_ref())?, bytes(jwk.y.as_ref())?);
    (x.len() == width && y.len() == width).then_some(KeyMaterial::Ec { curve, x, y })
}
