//! EIP-712: what a wallet signs when it authorises a payment, and whose signature it is.
//!
//! The rule: a digest is made of the authorisation as it was read and of the token that is configured, and a
//! signature counts only in the one form that a contract would take: 65 bytes, `s` in the lower half, `v` 27 or 28
//! (or 0 or 1). Signatures of contracts need a chain and are not for this module. Why by hand: `docs/adr/0011`.

use std::fmt;
use std::sync::LazyLock;

use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use secp256k1::{All, Message, PublicKey, Secp256k1, SecretKey};
use sha3::{Digest as _, Keccak256};
use turnpike_core::x402::evm::PERMIT2;
use turnpike_core::x402::{Address, Authorization, Scheme};

const DOMAIN: &str = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
const DOMAIN_WITHOUT_VERSION: &str = "EIP712Domain(string name,uint256 chainId,address verifyingContract)";
const TRANSFER: &str = "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,\
uint256 validBefore,bytes32 nonce)";
const PERMIT: &str = "PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,\
uint256 deadline,Witness witness)TokenPermissions(address token,uint256 amount)\
Witness(address to,address facilitator,uint256 validAfter)";
const TOKEN_PERMISSIONS: &str = "TokenPermissions(address token,uint256 amount)";
const WITNESS: &str = "Witness(address to,address facilitator,uint256 validAfter)";

/// A 32-byte word of the chain's machine.
pub(crate) type Word = [u8; 32];

/// A token's own name for itself, as its signatures contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDomain {
    /// The token's name.
    pub name: String,
    /// The version of its signatures.
    pub version: String,
    /// The chain.
    pub chain_id: u64,
    /// The token's contract.
    pub contract: Address,
}

/// A signature is none that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// Not 65 bytes.
    #[error("the signature is not 65 bytes long")]
    Length,
    /// `v` is none of 27, 28, 0 and 1.
    #[error("the signature's v is out of range")]
    RecoveryId,
    /// `r` or `s` is no number of the curve's order.
    #[error("the signature's r or s is out of range")]
    Range,
    /// Another signature of the same message could be made of it.
    #[error("the signature's s is in the upper half")]
    HighS,
    /// No key gives it.
    #[error("the signature is of no key")]
    NoKey,
}

/// The curve.
static CURVE: LazyLock<Secp256k1<All>> = LazyLock::new(Secp256k1::new);

/// Keccak-256 of `parts`, one after the other.
pub(crate) fn keccak(parts: &[&[u8]]) -> Word {
    let mut hash = Keccak256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

/// The nonce that the machine payments protocol wants of the authorisation that pays challenge `id`.
pub fn mpp_nonce(id: &str, realm: &str) -> Word {
    keccak(&[id.as_bytes(), realm.as_bytes()])
}

/// An address as a word.
pub(crate) fn address_word(address: Address) -> Word {
    let mut word = [0; 32];
    let (_, low) = word.split_at_mut(12);
    low.copy_from_slice(&address.0);
    word
}

/// A number as a word.
pub(crate) fn number_word(number: u64) -> Word {
    let mut word = [0; 32];
    let (_, low) = word.split_at_mut(24);
    low.copy_from_slice(&number.to_be_bytes());
    word
}

fn seconds_word(seconds: i64) -> Word {
    number_word(u64::try_from(seconds).unwrap_or_default())
}

/// The hash of a struct's type, made once.
type TypeHash = LazyLock<Word>;

static DOMAIN_TYPE: TypeHash = LazyLock::new(|| keccak(&[DOMAIN.as_bytes()]));
static DOMAIN_WITHOUT_VERSION_TYPE: TypeHash = LazyLock::new(|| keccak(&[DOMAIN_WITHOUT_VERSION.as_bytes()]));
static TRANSFER_TYPE: TypeHash = LazyLock::new(|| keccak(&[TRANSFER.as_bytes()]));
static PERMIT_TYPE: TypeHash = LazyLock::new(|| keccak(&[PERMIT.as_bytes()]));
static TOKEN_PERMISSIONS_TYPE: TypeHash = LazyLock::new(|| keccak(&[TOKEN_PERMISSIONS.as_bytes()]));
static WITNESS_TYPE: TypeHash = LazyLock::new(|| keccak(&[WITNESS.as_bytes()]));
/// The hash of Permit2's name.
static PERMIT2_NAME: LazyLock<Word> = LazyLock::new(|| keccak(&[b"Permit2"]));

/// `keccak256(typeHash ‖ members)`: the hash of a struct, and of a domain.
fn hash_struct(kind: &TypeHash, members: &[Word]) -> Word {
    let mut hash = Keccak256::new();
    hash.update(**kind);
    for member in members {
        hash.update(member);
    }
    hash.finalize().into()
}

fn digest(domain: &Word, message: &Word) -> Word {
    keccak(&[b"\x19\x01", domain, message])
}

/// What is signed for `exact`: EIP-3009's transfer.
fn transfer_digest(authorization: &Authorization, token: &TokenDomain) -> Word {
    let domain = hash_struct(
        &DOMAIN_TYPE,
        &[
            keccak(&[token.name.as_bytes()]),
            keccak(&[token.version.as_bytes()]),
            number_word(token.chain_id),
            address_word(token.contract),
        ],
    );
    let message = hash_struct(
        &TRANSFER_TYPE,
        &[
            address_word(authorization.payer),
            address_word(authorization.to),
            number_word(authorization.value),
            seconds_word(authorization.valid_after),
            seconds_word(authorization.valid_before),
            authorization.nonce,
        ],
    );
    digest(&domain, &message)
}

/// What is signed for `upto`: Permit2's transfer with the proxy's witness.
fn permit_digest(authorization: &Authorization, chain_id: u64) -> Word {
    let zero = Address([0; 20]);
    let domain = hash_struct(
        &DOMAIN_WITHOUT_VERSION_TYPE,
        &[*PERMIT2_NAME, number_word(chain_id), address_word(PERMIT2)],
    );
    let permitted = hash_struct(
        &TOKEN_PERMISSIONS_TYPE,
        &[
            address_word(authorization.token),
            number_word(authorization.value),
        ],
    );
    let witness = hash_struct(
        &WITNESS_TYPE,
        &[
            address_word(authorization.to),
            address_word(authorization.facilitator.unwrap_or(zero)),
            seconds_word(authorization.valid_after),
        ],
    );
    let message = hash_struct(
        &PERMIT_TYPE,
        &[
            permitted,
            address_word(authorization.spender.unwrap_or(zero)),
            authorization.nonce,
            seconds_word(authorization.valid_before),
            witness,
        ],
    );
    digest(&domain, &message)
}

/// What the payer of `authorization` signed. Numbers above those of [`Authorization`] give another digest, so that
/// such a signature is not found to be the payer's.
pub fn signed_digest(authorization: &Authorization, token: &TokenDomain) -> Word {
    match authorization.scheme {
        Scheme::Exact => transfer_digest(authorization, token),
        Scheme::Upto => permit_digest(authorization, token.chain_id),
    }
}

/// Whose signature of `digest` it is.
///
/// # Errors
/// [`SignatureFault`].
pub fn recover(digest: &Word, signature: &[u8]) -> Result<Address, SignatureFault> {
    let (v, numbers) = signature
        .split_last()
        .filter(|(_, numbers)| numbers.len() == 64)
        .ok_or(SignatureFault::Length)?;
    let id = match v {
        0 | 27 => RecoveryId::Zero,
        1 | 28 => RecoveryId::One,
        _ => return Err(SignatureFault::RecoveryId),
    };
    // Zero is no number of a signature, whatever a library makes of it.
    if numbers
        .chunks(32)
        .any(|number| number.iter().all(|byte| *byte == 0))
    {
        return Err(SignatureFault::Range);
    }
    let signature =
        RecoverableSignature::from_compact(numbers, id).map_err(|_invalid| SignatureFault::Range)?;
    let plain = signature.to_standard();
    let mut low = plain;
    low.normalize_s();
    if low != plain {
        return Err(SignatureFault::HighS);
    }
    let key = CURVE.recover_ecdsa(Message::from_digest(*digest), &signature);
    key.map(|key| address_of(&key))
        .map_err(|_invalid| SignatureFault::NoKey)
}

fn address_of(key: &PublicKey) -> Address {
    let point = key.serialize_uncompressed();
    // Without the byte that says it is not compressed.
    let coordinates = point.split_first().map_or(&[][..], |(_, rest)| rest);
    let hash = keccak(&[coordinates]);
    let mut address = Address([0; 20]);
    let (_, low) = hash.split_at(12);
    address.0.copy_from_slice(low);
    address
}

/// A wallet that pays: for trying the service out, and for tests.
#[derive(Clone)]
pub struct PayerKey(SecretKey);

impl PayerKey {
    /// The key that 32 random bytes are; `None` for the few that are none.
    pub fn random(bytes: &[u8; 32]) -> Option<Self> {
        SecretKey::from_byte_array(*bytes).ok().map(Self)
    }

    /// Reads `0x` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.strip_prefix("0x")?, &mut bytes).ok()?;
        Self::random(&bytes)
    }

    /// The key as wallets take it, for the one file it is written to.
    pub fn reveal(&self) -> String {
        format!("0x{}", hex::encode(self.0.secret_bytes()))
    }

    /// Its account.
    pub fn address(&self) -> Address {
        address_of(&self.0.public_key(&CURVE))
    }
}

impl fmt::Debug for PayerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PayerKey({})", self.address())
    }
}

#[cfg(any(test, feature = "testing"))]
impl PayerKey {
    /// Signs `digest`; none only when the curve fails.
    pub fn sign(&self, digest: &Word) -> Option<[u8; 65]> {
        let signature = CURVE.sign_ecdsa_recoverable(Message::from_digest(*digest), &self.0);
        let (id, signed) = signature.serialize_compact();
        let mut bytes = [0; 65];
        let (numbers, v) = bytes.split_at_mut(64);
        numbers.copy_from_slice(&signed);
        v.copy_from_slice(&[u8::try_from(i32::from(id)).ok()?.saturating_add(27)]);
        Some(bytes)
    }
}
