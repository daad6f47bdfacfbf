//! The machine payments protocol on the operation with a fixed fee: one more way to say the same terms and to bring
//! the same payment.
//!
//! Source: draft-httpauth-payment and its charge intent for the method `evm`. A credential of type `authorization` is
//! an EIP-3009 authorisation whose nonce is the Keccak hash of the challenge's id and realm, so that it becomes an x402
//! payment by the scheme `exact`, and is settled as one. The challenge's id is the request id.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use turnpike_core::ids::RequestId;
use turnpike_core::ledger::paid_call::Operation;
use turnpike_core::time::Timestamp;
use turnpike_core::x402::wire::MAX_HEADER_BYTES;
use turnpike_core::x402::{Malformed, PaymentPayload, Scheme, X402_VERSION};

use super::check::Refused;
use super::prepare::LIST_MODELS_FEE;
use super::settings::PaidCallSettings;
use super::terms::{Terms, description, read_seal, shown};

const METHOD: &str = "evm";
const INTENT: &str = "charge";

/// The parameters of `WWW-Authenticate: Payment`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// The request id.
    pub id: String,
    /// The service's host name.
    pub realm: String,
    /// How: on an EVM chain.
    pub method: String,
    /// What: one charge.
    pub intent: String,
    /// The request for payment: base64url of canonical JSON.
    pub request: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// RFC 9530, of the request's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// RFC 3339: until when, and until when the authorisation is to be good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// The seal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<String>,
}

impl Challenge {
    /// The value of `WWW-Authenticate`. No part of it has a character that would end a quoted string.
    pub fn to_header(&self) -> String {
        let mut text = format!(
            "Payment id=\"{}\", realm=\"{}\", method=\"{}\", intent=\"{}\", request=\"{}\"",
            self.id, self.realm, self.method, self.intent, self.request
        );
        for (name, value) in [
            ("description", &self.description),
            ("digest", &self.digest),
            ("expires", &self.expires),
            ("opaque", &self.opaque),
        ] {
            if let Some(value) = value {
                text.extend([", ", name, "=\"", value, "\""]);
            }
        }
        text
    }

    fn parts(&self) -> [&str; 7] {
        [
            "mpp",
            &self.id,
            &self.realm,
            &self.request,
            self.digest.as_deref().unwrap_or_default(),
            self.expires.as_deref().unwrap_or_default(),
            self.description.as_deref().unwrap_or_default(),
        ]
    }
}

/// What `Authorization: Payment` carries.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Credential {
    /// The challenge that is answered, as it was sent.
    pub challenge: Challenge,
    /// Who pays, as a DID.
    #[serde(default)]
    pub source: Option<String>,
    /// What was signed.
    pub payload: Map<String, Value>,
}

impl Credential {
    /// Reads the part of `Authorization` behind the scheme's name.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(value: &str) -> Result<Self, Malformed> {
        if value.len() > MAX_HEADER_BYTES {
            return Err(Malformed(format!("longer than {MAX_HEADER_BYTES} bytes")));
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(value.trim().trim_end_matches('='))
            .map_err(|_invalid| Malformed("no base64url".to_owned()))?;
        serde_json::from_slice(&bytes).map_err(|error| Malformed(format!("no such credential: {error}")))
    }

    /// The request that is paid for.
    ///
    /// # Errors
    /// [`Malformed`] when the challenge's id is none of ours.
    pub fn id(&self) -> Result<RequestId, Malformed> {
        self.challenge
            .id
            .parse()
            .map_err(|_invalid| Malformed("the challenge's id is no UUID".to_owned()))
    }
}

/// RFC 9530, of a body.
pub(super) fn digest(raw: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(raw)))
}

impl PaidCallSettings {
    /// The request for payment, in canonical JSON: members sorted, no blanks (RFC 8785).
    fn charge_request(&self) -> String {
        let request = json!({
            "amount": LIST_MODELS_FEE.get().to_string(),
            "currency": self.asset,
            "methodDetails": { "chainId": self.chain_id, "credentialTypes": ["authorization"], "decimals": 6 },
            "recipient": self.pay_to,
        });
        URL_SAFE_NO_PAD.encode(request.to_string())
    }

    /// The same terms for this protocol.
    pub(super) fn challenge(&self, terms: &Terms, raw: &[u8]) -> Challenge {
        let mut challenge = Challenge {
            id: terms.id.to_string(),
            realm: self.realm.to_string(),
            method: METHOD.to_owned(),
            intent: INTENT.to_owned(),
            request: self.charge_request(),
            description: Some(description(Operation::ListModels).to_owned()),
            digest: Some(digest(raw)),
            // Whole seconds: it becomes the end of the authorisation.
            expires: Some(whole_seconds(terms.valid_before).to_string()),
            opaque: None,
        };
        challenge.opaque = Some(shown(&self.hash(&challenge.parts())));
        challenge
    }

    /// The payment in a credential as an x402 payment, when it answers a challenge that we gave for this request.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub(super) fn accept_credential(
        &self,
        credential: &Credential,
        raw: &[u8],
        now: Timestamp,
    ) -> Result<PaymentPayload, Refused> {
        let challenge = &credential.challenge;
        let seal = challenge.opaque.as_deref().and_then(read_seal);
        if challenge.method != METHOD
            || challenge.intent != INTENT
            || seal.is_none_or(|seal| seal != self.hash(&challenge.parts()))
        {
            return Err(Refused::new(
                "invalid-challenge",
                "the challenge is none that was given",
            ));
        }
        if challenge.request != self.charge_request() || challenge.realm != *self.realm {
            return Err(Refused::new(
                "invalid-challenge",
                "the challenge does not hold any more",
            ));
        }
        if challenge.digest.as_deref() != Some(&*digest(raw)) {
            let detail = "the challenge was given for another body";
            return Err(Refused::new("invalid-challenge", detail));
        }
        let expires = challenge
            .expires
            .as_deref()
            .and_then(|at| at.parse::<Timestamp>().ok());
        if expires.is_none_or(|expires| expires <= now) {
            let detail = "the challenge does not hold any more: pay on this one";
            return Err(Refused::new("payment_terms_expired", detail));
        }
        let payload = &credential.payload;
        if payload.get("type").and_then(Value::as_str) != Some("authorization") {
            let detail = "the credential must be of the type authorization";
            return Err(Refused::new("invalid-payload", detail));
        }
        let nonce = turnpike_upstream::payments::mpp_nonce(&challenge.id, &challenge.realm);
        let sent = payload.get("nonce").and_then(Value::as_str).unwrap_or_default();
        if !sent.eq_ignore_ascii_case(&format!("0x{}", hex::encode(nonce))) {
            let detail = "the nonce does not follow from the challenge";
            return Err(Refused::new("verification-failed", detail));
        }
        if !self.is_source(credential.source.as_deref(), payload) {
            let detail = "the source is not who signed";
            return Err(Refused::new("verification-failed", detail));
        }
        Ok(self.as_x402(payload))
    }

    fn is_source(&self, source: Option<&str>, payload: &Map<String, Value>) -> bool {
        let from = payload.get("from").and_then(Value::as_str).unwrap_or_default();
        let did = format!("did:pkh:{}:{from}", self.network);
        source.is_none_or(|source| source.eq_ignore_ascii_case(&did))
    }

    pub(super) fn as_x402(&self, payload: &Map<String, Value>) -> PaymentPayload {
        let mut signed = Map::new();
        let signature = payload.get("signature").cloned().unwrap_or_default();
        signed.insert("signature".to_owned(), signature);
        signed.insert("authorization".to_owned(), Value::Object(payload.clone()));
        let payment = PaymentPayload {
            x402_version: X402_VERSION,
            accepted: self.required(Scheme::Exact, LIST_MODELS_FEE.get().to_string(), 60, None),
            payload: signed,
            resource: None,
            extensions: None,
        };
        self.forwarded(&payment)
    }
}

/// The instant without its milliseconds.
fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.millis().div_euclid(1000).saturating_mul(1000))
}

/// The value of `Payment-Receipt`.
pub fn receipt(transaction: &str, at: Timestamp) -> String {
    let receipt = json!({
        "method": METHOD, "reference": transaction, "status": "success", "timestamp": at.to_string(),
    });
    URL_SAFE_NO_PAD.encode(receipt.to_string())
}
