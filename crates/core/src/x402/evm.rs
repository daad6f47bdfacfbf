//! What a payer signs on an EVM chain: EIP-3009 for `exact`, Permit2 with the x402 proxy's witness for `upto`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Malformed, PaymentPayload, read};
use crate::ledger::account::coded_enum;

/// Where Permit2 is on every chain.
pub const PERMIT2: Address = Address([
    0x00, 0x00, 0x00, 0x00, 0x00, 0x22, 0xd4, 0x73, 0x03, 0x0f, 0x11, 0x6d, 0xde, 0xe9, 0xf6, 0xb4, 0x3a,
    0xc7, 0x8b, 0xa3,
]);

/// Where the proxy that settles `upto` is on every chain.
pub const UPTO_PROXY: Address = Address([
    0x40, 0x20, 0xa4, 0xf3, 0xb7, 0xb9, 0x0c, 0xca, 0x42, 0x3b, 0x9f, 0xab, 0xcc, 0x0c, 0xe5, 0x7c, 0x6c,
    0x24, 0x00, 0x02,
]);

/// Longest signature that is read, in bytes: a contract's may carry how the contract is made.
pub const MAX_SIGNATURE_BYTES: usize = 4096;

/// The chain's number in a network's name, as 8453 in `eip155:8453`.
///
/// # Errors
/// [`Malformed`] when it is no EVM chain.
pub fn chain_id(network: &str) -> Result<u64, Malformed> {
    network
        .strip_prefix("eip155:")
        .filter(|digits| !digits.starts_with(['0', '+']))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| Malformed::new("a network is eip155: and a chain's number"))
}

coded_enum! {
    /// How a payment is authorised.
    Scheme {
        /// This amount, by EIP-3009.
        Exact = 0 "exact",
        /// At most this amount, by Permit2.
        Upto = 1 "upto",
    }
}

/// An account or a contract. Shown in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 20]);

impl Address {
    /// Reads `0x` and 40 hexadecimal digits, whatever their case.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let digits = text
            .strip_prefix("0x")
            .ok_or_else(|| Malformed::new("an address begins with 0x"))?;
        let mut bytes = [0; 20];
        hex::decode_to_slice(digits, &mut bytes)
            .map_err(|_invalid| Malformed::new("an address has 40 hexadecimal digits"))?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 40];
        hex::encode_to_slice(self.0, &mut digits).map_err(|_length| fmt::Error)?;
        write!(
            f,
            "0x{}",
            std::str::from_utf8(&digits).map_err(|_text| fmt::Error)?
        )
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// What a payer authorised, read from a payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorization {
    /// How.
    pub scheme: Scheme,
    /// Who pays.
    pub payer: Address,
    /// Unique for the payer and the scheme's contract: 32 bytes, big-endian where the scheme has a number.
    pub nonce: [u8; 32],
    /// Who receives.
    pub to: Address,
    /// The token. `exact` does not name it in the payload; it is that of the accepted requirements.
    pub token: Address,
    /// In base units, [`u64::MAX`] for anything larger. `upto`: the most.
    pub value: u64,
    /// Good after this instant, in Unix seconds.
    pub valid_after: i64,
    /// Good before this instant, in Unix seconds; `upto` calls it the deadline.
    pub valid_before: i64,
    /// `upto`: which contract may take it.
    pub spender: Option<Address>,
    /// `upto`: which facilitator may settle it.
    pub facilitator: Option<Address>,
    /// 65 bytes of an account of its own; a contract's may be of another length.
    pub signature: Vec<u8>,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorization")
            .field("scheme", &self.scheme)
            .field("payer", &self.payer)
            .field("value", &self.value)
            .finish_non_exhaustive()
    }
}

impl Authorization {
    /// Reads what was signed.
    ///
    /// # Errors
    /// [`Malformed`] names the member that is missing or has another form.
    pub fn read(payment: &PaymentPayload) -> Result<Self, Malformed> {
        read::authorization(payment)
    }

    /// The payload without anything that was not read here.
    pub fn signed_members(payment: &PaymentPayload) -> serde_json::Map<String, serde_json::Value> {
        read::signed_members(payment)
    }

    /// What no two paid calls of one network and asset share: scheme, payer and nonce.
    pub fn key(&self) -> String {
        format!("{}:{}:0x{}", self.scheme, self.payer, hex::encode(self.nonce))
    }
}
