//! Whether an authorisation says what was agreed.

use turnpike_core::time::Timestamp;
use turnpike_core::x402::evm::UPTO_PROXY;
use turnpike_core::x402::{Address, Authorization, Scheme};

use super::settings::PaidCallSettings;

/// How much longer than asked for a payment may be good: wallets' clocks differ.
const LONGER_SECS: i64 = 3600;
/// Longest text of a reason or an explanation, in characters: it goes into a header.
const MAX_REASON: usize = 200;

/// Why a payment is not accepted; the caller may sign another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// The protocol's code.
    pub(super) reason: String,
    /// For people.
    pub(super) detail: String,
}

impl Refused {
    pub(super) fn new(reason: impl Into<String>, detail: impl Into<String>) -> Self {
        let cut = |text: String| text.chars().take(MAX_REASON).collect();
        Self {
            reason: cut(reason.into()),
            detail: cut(detail.into()),
        }
    }
}

impl PaidCallSettings {
    /// Checks an authorisation against what was agreed, as far as that can be seen here: a facilitator checks the
    /// signature, the balance and the nonce.
    ///
    /// # Errors
    /// The protocol's reason why it cannot be accepted.
    pub(super) fn check_authorization(
        &self,
        authorization: &Authorization,
        amount: &str,
        facilitator: Option<&str>,
        longest_ms: i64,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let exact = authorization.scheme == Scheme::Exact;
        let pick = |of_exact, of_upto| if exact { of_exact } else { of_upto };
        if authorization.to != self.pay_to_address {
            let reason = pick(
                "invalid_exact_evm_payload_recipient_mismatch",
                "invalid_permit2_recipient_mismatch",
            );
            return Err(Refused::new(
                reason,
                "the recipient is not the one that was named",
            ));
        }
        if authorization.token != self.asset_address {
            return Err(Refused::new(
                "permit2_token_mismatch",
                "the token is not the one that was named",
            ));
        }
        if authorization.value.to_string() != amount {
            let reason = pick(
                "invalid_exact_evm_payload_authorization_value_mismatch",
                "permit2_amount_mismatch",
            );
            return Err(Refused::new(reason, "the amount is not the one that was named"));
        }
        if !exact {
            if authorization.spender != Some(UPTO_PROXY) {
                let detail = "the spender is not the proxy that settles";
                return Err(Refused::new("invalid_permit2_spender", detail));
            }
            let wanted = facilitator.and_then(|address| Address::parse(address).ok());
            if authorization.facilitator.is_none() || authorization.facilitator != wanted {
                let detail = "the facilitator is not the one that was named";
                return Err(Refused::new("upto_facilitator_mismatch", detail));
            }
        }
        let seconds = now.millis() / 1000;
        if authorization.valid_after > seconds {
            let reason = pick(
                "invalid_exact_evm_payload_authorization_valid_after",
                "permit2_not_yet_valid",
            );
            return Err(Refused::new(reason, "the payment is not good yet"));
        }
        // INVARIANT: work begins only on a payment that can still be settled when the provider takes all its time.
        let needed = seconds.saturating_add(self.needed_secs(longest_ms));
        let longest = seconds
            .saturating_add(self.asked_secs(longest_ms))
            .saturating_add(LONGER_SECS);
        let detail = match authorization.valid_before {
            end if end < needed => "the payment ends too soon: it must be good for as long as was asked",
            end if end > longest => "the payment is good for much longer than was asked",
            _ => return Ok(()),
        };
        let reason = pick(
            "invalid_exact_evm_payload_authorization_valid_before",
            "permit2_deadline_expired",
        );
        Err(Refused::new(reason, detail))
    }
}
