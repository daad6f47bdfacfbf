//! What a payment must say, in the order and with the codes of the official facilitator.

use serde_json::Value;
use turnpike_core::x402::evm::UPTO_PROXY;
use turnpike_core::x402::{Address, Authorization, PaymentRequirements, Scheme, X402_VERSION};

use super::SimulatedFacilitator;
use crate::payments::SignedPayment;
use crate::payments::eip712::{recover, signed_digest};

/// An authorisation that ends sooner is refused: it might be too late for the chain.
const END_MARGIN_SECONDS: i64 = 6;
/// Why a payment is refused: the official facilitator's code, and words.
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

pub(super) fn refuse<T>(reason: &'static str, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        reason,
        message: message.into(),
    })
}

/// The code of one scheme or the other.
pub(super) fn either(scheme: Scheme, exact: &'static str, upto: &'static str) -> &'static str {
    match scheme {
        Scheme::Exact => exact,
        Scheme::Upto => upto,
    }
}

impl SimulatedFacilitator {
    /// Everything that can be said of a payment without knowing uses and balances.
    pub(super) fn check(&self, payment: &SignedPayment, expected: Option<u64>) -> Result<(), Refusal> {
        let authorization = &payment.authorization;
        let accepted = &payment.payload.accepted;
        let required = &payment.requirements;
        let scheme = required.scheme;
        if payment.payload.x402_version != X402_VERSION {
            return refuse("invalid_x402_version", "only version 2 is known");
        }
        if accepted.scheme != scheme {
            return refuse("unsupported_scheme", "another scheme was paid than is required");
        }
        if accepted.network != required.network || required.network != self.settings.network {
            let reason = either(
                scheme,
                "invalid_exact_evm_network_mismatch",
                "invalid_upto_evm_network_mismatch",
            );
            return refuse(reason, "this facilitator knows another network");
        }
        let address = |text: &str| Address::parse(text).ok();
        if address(&required.asset) != Some(self.settings.asset) {
            return refuse(
                "asset_not_deployed_contract",
                "this facilitator knows another asset",
            );
        }
        if address(&required.pay_to) != Some(self.settings.pay_to) {
            return refuse("invalid_payment_requirements", "somebody else would be paid");
        }
        match scheme {
            Scheme::Exact => self.check_exact(required, authorization, expected),
            Scheme::Upto => self.check_upto(authorization, expected),
        }
    }

    fn check_exact(
        &self,
        required: &PaymentRequirements,
        authorization: &Authorization,
        expected: Option<u64>,
    ) -> Result<(), Refusal> {
        let extra = |name: &str| required.extra.get(name).and_then(Value::as_str);
        let (Some(name), Some(version)) = (extra("name"), extra("version")) else {
            return refuse(
                "invalid_exact_evm_missing_eip712_domain",
                "extra has no name or version",
            );
        };
        if name != self.settings.name {
            return refuse(
                "invalid_exact_evm_token_name_mismatch",
                "the token has another name",
            );
        }
        if version != self.settings.version {
            return refuse(
                "invalid_exact_evm_token_version_mismatch",
                "the token has another version",
            );
        }
        if authorization.token != self.settings.asset {
            return refuse("invalid_payment_requirements", "another asset was accepted");
        }
        self.check_signature(authorization, "invalid_exact_evm_payload_signature")?;
        if authorization.to != self.settings.pay_to {
            return refuse(
                "invalid_exact_evm_payload_recipient_mismatch",
                "it pays somebody else",
            );
        }
        let now = self.now();
        if authorization.valid_before < now.saturating_add(END_MARGIN_SECONDS) {
            return refuse(
                "invalid_exact_evm_payload_authorization_valid_before",
                "it has ended, or is about to",
            );
        }
        if authorization.valid_after > now {
            return refuse(
                "invalid_exact_evm_payload_authorization_valid_after",
                "it is not good yet",
            );
        }
        if Some(authorization.value) != expected {
            return refuse(
                "invalid_exact_evm_payload_authorization_value_mismatch",
                "it is of another amount",
            );
        }
        Ok(())
    }

    /// `expected` is the most, at a verification only.
    fn check_upto(&self, authorization: &Authorization, expected: Option<u64>) -> Result<(), Refusal> {
        if authorization.spender != Some(UPTO_PROXY) {
            return refuse("invalid_permit2_spender", "it names another contract as spender");
        }
        if authorization.to != self.settings.pay_to {
            return refuse("invalid_permit2_recipient_mismatch", "it pays somebody else");
        }
        if authorization.facilitator != Some(self.settings.facilitator) {
            return refuse("upto_facilitator_mismatch", "it names another facilitator");
        }
        let now = self.now();
        if authorization.valid_before < now.saturating_add(END_MARGIN_SECONDS) {
            return refuse(
                "permit2_deadline_expired",
                "its deadline has passed, or is about to",
            );
        }
        if authorization.valid_after > now {
            return refuse("permit2_not_yet_valid", "it is not good yet");
        }
        if expected.is_some_and(|expected| expected != authorization.value) {
            return refuse("permit2_amount_mismatch", "it is of another amount");
        }
        if authorization.token != self.settings.asset {
            return refuse("permit2_token_mismatch", "it is of another token");
        }
        self.check_signature(authorization, "invalid_permit2_signature")
    }

    fn check_signature(&self, authorization: &Authorization, reason: &'static str) -> Result<(), Refusal> {
        if self.with(|book| book.is_signed(authorization)) {
            return Ok(());
        }
        let digest = signed_digest(authorization, &self.token);
        match recover(&digest, &authorization.signature) {
            Ok(signer) if signer == authorization.payer => {
                self.with(|book| book.remember_signed(authorization));
                Ok(())
            }
            Ok(_other) => refuse(reason, "the signature is not the payer's"),
            Err(fault) => refuse(reason, fault.to_string()),
        }
    }
}

pub(super) fn amount_of(required: &PaymentRequirements) -> Result<u64, Refusal> {
    match required.amount.parse() {
        Ok(amount) if !required.amount.starts_with('+') => Ok(amount),
        Ok(_) | Err(_) => refuse("invalid_payment_requirements", "the amount is no number"),
    }
}
