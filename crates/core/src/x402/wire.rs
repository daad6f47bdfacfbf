//! The messages of x402 version 2 with their own names, and their form in headers.
//!
//! Headers carry standard base64 with padding of UTF-8 JSON; what comes in may lack the padding or use the URL's
//! alphabet. Members that are optional are left out, never null; a null that comes in is taken for absent.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Malformed, Scheme};

/// The version all messages name.
pub const X402_VERSION: u64 = 2;

/// Longest header value that is decoded, in bytes.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Answer to a request that was not paid, in the header `PAYMENT-REQUIRED`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaymentRequired {
    /// [`X402_VERSION`].
    pub x402_version: u64,
    /// Why an earlier try was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What is paid for.
    pub resource: ResourceInfo,
    /// Ways to pay, at least one.
    pub accepts: Vec<PaymentRequirements>,
    /// `{info, schema}` by name; callers send `info` back.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "Map::is_empty"
    )]
    pub extensions: Map<String, Value>,
}

/// What is paid for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInfo {
    /// The address that was called.
    pub url: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// One way to pay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaymentRequirements {
    /// How.
    pub scheme: Scheme,
    /// CAIP-2, as in `eip155:8453`.
    pub network: String,
    /// In base units of the asset, decimal. `exact`: what is paid; `upto`: the most that may be settled.
    pub amount: String,
    /// The token's contract.
    pub asset: String,
    /// Who receives it.
    pub pay_to: String,
    /// How long an authorisation has to be good for, in seconds.
    pub max_timeout_seconds: u64,
    /// What the scheme needs, and what is ours.
    #[serde(default, deserialize_with = "null_is_absent")]
    pub extra: Map<String, Value>,
}

/// A signed payment, in the header `PAYMENT-SIGNATURE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaymentPayload {
    /// [`X402_VERSION`].
    pub x402_version: u64,
    /// The way that was chosen, as it was offered.
    pub accepted: PaymentRequirements,
    /// What was signed, by scheme.
    pub payload: Map<String, Value>,
    /// What is paid for, as it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Value>,
    /// What the offer's extensions said, with what the caller added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Map<String, Value>>,
}

/// What a facilitator says of a payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyResponse {
    /// Whether it can be settled as things are.
    pub is_valid: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid_reason: Option<String>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid_message: Option<String>,
    /// Who signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer: Option<String>,
}

/// What became of a settlement: a facilitator's answer, and the header `PAYMENT-RESPONSE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SettleResponse {
    /// Whether it was settled.
    pub success: bool,
    /// The transaction's hash, empty without one.
    pub transaction: String,
    /// CAIP-2.
    pub network: String,
    /// Who paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer: Option<String>,
    /// What was settled, in base units; `upto` alone says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<String>,
    /// Why it was not settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_reason: Option<String>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// What a facilitator can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supported {
    /// Schemes and networks.
    pub kinds: Vec<SupportedKind>,
    /// Names of extensions.
    #[serde(default, deserialize_with = "null_is_absent")]
    pub extensions: Vec<String>,
}

/// A scheme on a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SupportedKind {
    /// Protocol version.
    pub x402_version: u64,
    /// The scheme's name; facilitators know more than are used here.
    pub scheme: String,
    /// CAIP-2.
    pub network: String,
    /// What the scheme needs from the facilitator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Map<String, Value>>,
}

fn null_is_absent<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A message as the value of a header.
///
/// # Errors
/// When the message is no JSON, which no message here can be.
pub fn to_header<T: Serialize>(message: &T) -> Result<String, serde_json::Error> {
    serde_json::to_vec(message).map(|json| base64::engine::general_purpose::STANDARD.encode(json))
}

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);

/// The message in a header's value.
///
/// # Errors
/// [`Malformed`] when it is too long, no base64, or no JSON of that form.
pub fn from_header<T: serde::de::DeserializeOwned>(value: &str) -> Result<T, Malformed> {
    if value.len() > MAX_HEADER_BYTES {
        return Err(Malformed::new(format!("longer than {MAX_HEADER_BYTES} bytes")));
    }
    let mut standard = value.trim().as_bytes().to_vec();
    for byte in &mut standard {
        *byte = match *byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        };
    }
    let json = ANY_PADDING
        .decode(standard)
        .map_err(|_invalid| Malformed::new("no base64"))?;
    serde_json::from_slice(&json).map_err(|error| Malformed::new(format!("no such message: {error}")))
}

/// A message that is JSON already, as the value of a header.
pub fn encode(json: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(json)
}
