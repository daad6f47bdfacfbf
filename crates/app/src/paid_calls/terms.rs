//! The terms of a paid call: what an unpaid request is told, and whether a payment was made on them.
//!
//! Nothing is kept of an unpaid request. The terms carry a seal, an HMAC over everything they say, the request's id and
//! its body; who pays sends them back, and they hold until they expire whatever prices do meanwhile. `extra` is what
//! every client sends back unchanged, so id, expiry and seal stand there; the id stands in an extension of our own, too.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use turnpike_core::access::KeyHash;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::RequestId;
use turnpike_core::ledger::paid_call::Operation;
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{
    Address, Authorization, Malformed, PaymentPayload, PaymentRequired, PaymentRequirements, ResourceInfo,
    Scheme, Supported, X402_VERSION,
};

use super::check::Refused;
use super::prepare::Prepared;
use super::settings::PaidCallSettings;
use crate::error::AppError;

/// The extension by which a facilitator pays for a wallet's approval of Permit2.
const GAS_SPONSORING: &str = "eip2612GasSponsoring";
/// How long terms hold.
const TERMS_MS: i64 = 5 * 60_000;

/// What the facilitator can do on the network that is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offering {
    exact: bool,
    /// The facilitator's address that settles `upto`.
    upto: Option<String>,
    gas_sponsoring: bool,
}

impl Offering {
    pub(super) fn of(supported: &Supported, network: &str) -> Self {
        let kind = |scheme: Scheme| {
            supported.kinds.iter().find(|kind| {
                kind.x402_version == X402_VERSION && kind.scheme == scheme.as_str() && kind.network == network
            })
        };
        let facilitator = |kind: &turnpike_core::x402::SupportedKind| {
            let address = kind.extra.as_ref()?.get("facilitatorAddress")?.as_str()?;
            Address::parse(address).ok().map(|_address| address.to_owned())
        };
        Self {
            exact: kind(Scheme::Exact).is_some(),
            upto: kind(Scheme::Upto).and_then(facilitator),
            gas_sponsoring: supported.extensions.iter().any(|name| name == GAS_SPONSORING),
        }
    }
}

/// What an unpaid request is told.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Under which id it is to be paid.
    pub id: RequestId,
    /// For the header `PAYMENT-REQUIRED`.
    pub required: PaymentRequired,
    /// The most that is paid, in µUSD, which are the asset's base units.
    pub max: Micros,
    /// Until when the terms hold.
    pub expires_at: Timestamp,
    /// Until when a payment by the other protocol is good.
    pub valid_before: Timestamp,
}

impl PaidCallSettings {
    /// The scheme by which an operation is paid: what it costs is known before, or only after.
    pub(super) const fn scheme(operation: Operation) -> Scheme {
        match operation {
            Operation::Chat | Operation::Fim => Scheme::Upto,
            Operation::ListModels => Scheme::Exact,
        }
    }

    fn requirements(
        &self,
        prepared: &Prepared,
        offering: &Offering,
    ) -> Result<PaymentRequirements, AppError> {
        let scheme = Self::scheme(prepared.subject.operation);
        let facilitator = match (scheme, &offering.upto) {
            (Scheme::Exact, _) if offering.exact => None,
            (Scheme::Upto, Some(facilitator)) => Some(facilitator.as_str()),
            (Scheme::Exact | Scheme::Upto, _) => {
                tracing::error!(%scheme, network = %self.network, "the facilitator does not settle this scheme");
                return Err(AppError::unavailable());
            }
        };
        let max = prepared.max.effective;
        if max <= Micros::ZERO {
            let message = "this call has no price, so it is not sold";
            return Err(AppError::new(ErrorCode::PriceUnavailable, message));
        }
        if max > self.cap.amount {
            let message = format!(
                "this call may cost {max} USD and one wallet may have {} USD open: ask for fewer tokens",
                self.cap.amount
            );
            return Err(AppError::invalid("max_tokens", message));
        }
        let seconds = self.asked_secs(prepared.work.longest_ms());
        let seconds = u64::try_from(seconds).unwrap_or_default();
        Ok(self.required(scheme, max.get().to_string(), seconds, facilitator))
    }

    /// What is required as everybody but the caller sees it: without what is ours.
    pub(super) fn required(
        &self,
        scheme: Scheme,
        amount: String,
        max_timeout_seconds: u64,
        facilitator: Option<&str>,
    ) -> PaymentRequirements {
        let mut extra = Map::new();
        extra.insert("name".to_owned(), json!(self.asset_name));
        extra.insert("version".to_owned(), json!(self.asset_version));
        if let Some(facilitator) = facilitator {
            extra.insert("assetTransferMethod".to_owned(), json!("permit2"));
            extra.insert("facilitatorAddress".to_owned(), json!(facilitator));
        }
        PaymentRequirements {
            scheme,
            network: self.network.to_string(),
            amount,
            asset: self.asset.to_string(),
            pay_to: self.pay_to.to_string(),
            max_timeout_seconds,
            extra,
        }
    }

    /// The terms of a request.
    ///
    /// # Errors
    /// `SERVICE_UNAVAILABLE` when the facilitator cannot settle the scheme.
    pub(super) fn terms(
        &self,
        prepared: &Prepared,
        offering: &Offering,
        id: RequestId,
        reason: Option<String>,
        now: Timestamp,
    ) -> Result<Terms, AppError> {
        let mut requirements = self.requirements(prepared, offering)?;
        let operation = prepared.subject.operation;
        let expires_at = now.plus_millis(TERMS_MS);
        let expires = expires_at.millis() / 1000;
        let seal = self.seal(operation, id, &prepared.subject.body_hash, expires, &requirements);
        let extra = &mut requirements.extra;
        extra.insert(self.name("RequestId"), json!(id));
        extra.insert(self.name("ExpiresAt"), json!(expires));
        extra.insert(self.name("Seal"), json!(shown(&seal)));
        let mut extensions = Map::new();
        if requirements.scheme == Scheme::Upto && offering.gas_sponsoring {
            extensions.insert(GAS_SPONSORING.to_owned(), gas_sponsoring());
        }
        // Clients need more packages as soon as there is any extension: ours is not the first (ADR 0012).
        if !extensions.is_empty() || requirements.scheme == Scheme::Exact {
            extensions.insert(self.brand.to_string(), own_extension(id));
        }
        let lasts_ms = i64::try_from(requirements.max_timeout_seconds)
            .unwrap_or_default()
            .saturating_mul(1000);
        Ok(Terms {
            id,
            max: prepared.max.effective,
            expires_at,
            valid_before: now.plus_millis(lasts_ms),
            required: PaymentRequired {
                x402_version: X402_VERSION,
                error: reason,
                resource: ResourceInfo {
                    url: self.url(operation),
                    description: Some(description(operation).to_owned()),
                    mime_type: Some("application/json".to_owned()),
                },
                accepts: vec![requirements],
                extensions,
            },
        })
    }

    /// A keyed hash of everything that is agreed.
    fn seal(
        &self,
        operation: Operation,
        id: RequestId,
        body_hash: &str,
        expires: i64,
        requirements: &PaymentRequirements,
    ) -> KeyHash {
        self.hash(&[
            operation.as_str(),
            &id.to_string(),
            body_hash,
            &expires.to_string(),
            requirements.scheme.as_str(),
            &requirements.network,
            &requirements.amount,
            &requirements.asset,
            &requirements.pay_to,
            &requirements.max_timeout_seconds.to_string(),
            text(&requirements.extra, "facilitatorAddress").unwrap_or_default(),
        ])
    }

    /// A keyed hash of texts that cannot run into each other.
    pub(super) fn hash(&self, parts: &[&str]) -> KeyHash {
        let mut bytes = Vec::with_capacity(512);
        for part in parts {
            bytes.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        self.seal.hash_for("terms of a paid call", &bytes)
    }

    /// The request ids that a payment names: in the accepted terms, and in our extension.
    ///
    /// # Errors
    /// [`Malformed`] when one is no UUID.
    pub(super) fn ids_in(&self, payment: &PaymentPayload) -> Result<[Option<RequestId>; 2], Malformed> {
        let parse = |id: &Value| {
            id.as_str()
                .and_then(|id| id.parse().ok())
                .ok_or_else(|| Malformed("the request id is no UUID".to_owned()))
        };
        let in_extra = payment.accepted.extra.get(&self.name("RequestId"));
        let extension = payment.extensions.as_ref().and_then(|all| all.get(&*self.brand));
        let in_extension = extension.and_then(|own| own.get("info")?.get("requestId"));
        Ok([
            in_extra.map(parse).transpose()?,
            in_extension.map(parse).transpose()?,
        ])
    }

    /// Whether a payment was made on terms that we gave for this request and that still hold.
    ///
    /// # Errors
    /// The protocol's reason why not.
    pub(super) fn check_terms(
        &self,
        prepared: &Prepared,
        id: RequestId,
        accepted: &PaymentRequirements,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let operation = prepared.subject.operation;
        let ours = accepted.network == *self.network
            && accepted.asset == *self.asset
            && accepted.pay_to == *self.pay_to
            && accepted.scheme == Self::scheme(operation);
        let expires = accepted
            .extra
            .get(&self.name("ExpiresAt"))
            .and_then(Value::as_i64);
        let seal = text(&accepted.extra, &self.name("Seal")).and_then(read_seal);
        let (true, Some(expires), Some(seal)) = (ours, expires, seal) else {
            return Err(Refused::new(
                "invalid_payment_requirements",
                "the terms are none of ours: send `accepted` as it was offered",
            ));
        };
        let made = self.seal(operation, id, &prepared.subject.body_hash, expires, accepted);
        if made != seal {
            return Err(Refused::new(
                "invalid_payment_requirements",
                "the terms were not given for this request: its id, path and body must be those of the 402",
            ));
        }
        if now.millis() / 1000 >= expires {
            return Err(Refused::new(
                "payment_terms_expired",
                "the terms do not hold any more: pay on these",
            ));
        }
        Ok(())
    }

    /// What a facilitator gets: what was sealed and what was read here, and nothing else that the caller wrote, so that
    /// it judges the payment that is claimed.
    pub(super) fn forwarded(&self, payment: &PaymentPayload) -> PaymentPayload {
        let accepted = &payment.accepted;
        let facilitator = text(&accepted.extra, "facilitatorAddress");
        let sponsoring = payment
            .extensions
            .as_ref()
            .and_then(|extensions| extensions.get(GAS_SPONSORING))
            .filter(|_given| accepted.scheme == Scheme::Upto);
        PaymentPayload {
            x402_version: payment.x402_version,
            accepted: self.required(
                accepted.scheme,
                accepted.amount.clone(),
                accepted.max_timeout_seconds,
                facilitator,
            ),
            payload: Authorization::signed_members(payment),
            resource: None,
            extensions: sponsoring.map(|given| Map::from_iter([(GAS_SPONSORING.to_owned(), given.clone())])),
        }
    }
}

/// A seal as it is sent: base64url.
pub(super) fn shown(seal: &KeyHash) -> String {
    URL_SAFE_NO_PAD.encode(seal.0)
}

/// The seal that was sent; comparing it takes the same time whatever differs.
pub(super) fn read_seal(text: &str) -> Option<KeyHash> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    bytes.try_into().ok().map(KeyHash)
}

fn text<'a>(extra: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    extra.get(name).and_then(Value::as_str)
}

/// What an operation is, for people.
pub(super) const fn description(operation: Operation) -> &'static str {
    match operation {
        Operation::Chat => "A chat completion, settled for what it used",
        Operation::Fim => "Code between a prefix and a suffix, settled for what it used",
        Operation::ListModels => "The models that can be called, with owner and availability",
    }
}

/// The request's id for clients that send extensions back.
fn own_extension(id: RequestId) -> Value {
    let schema = json!({
        "type": "object",
        "properties": { "requestId": { "type": "string", "format": "uuid" } },
        "required": ["requestId"],
    });
    json!({ "info": { "requestId": id }, "schema": schema })
}

/// The extension by which a wallet may let the facilitator pay for its approval of Permit2.
fn gas_sponsoring() -> Value {
    let address = json!({ "type": "string", "pattern": "^0x[a-fA-F0-9]{40}$" });
    let number = json!({ "type": "string", "pattern": "^[0-9]+$" });
    json!({
        "info": {
            "description": "The facilitator accepts EIP-2612 gasless permits to the canonical Permit2 contract.",
            "version": "1",
        },
        "schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "from": address, "asset": address, "spender": address, "amount": number, "nonce": number,
                "deadline": number,
                "signature": { "type": "string", "pattern": "^0x[a-fA-F0-9]+$" },
                "version": { "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)*$" },
            },
            "required": ["from", "asset", "spender", "amount", "nonce", "deadline", "signature", "version"],
        },
    })
}
