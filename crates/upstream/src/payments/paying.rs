//! The payer's half of a payment, for tests: what an official client would send.

use serde_json::{Map, Value, json};
use turnpike_core::x402::evm::UPTO_PROXY;
use turnpike_core::x402::{
    Address, Authorization, Malformed, PaymentPayload, PaymentRequirements, Scheme, X402_VERSION, chain_id,
};

use super::eip712::{PayerKey, TokenDomain, Word, signed_digest};

/// What a payer chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Unique.
    pub nonce: Word,
    /// Unix seconds.
    pub valid_after: i64,
    /// Unix seconds.
    pub valid_before: i64,
}

fn text(extra: &Map<String, Value>, name: &str) -> Result<String, Malformed> {
    let found = extra.get(name).and_then(Value::as_str);
    found
        .map(str::to_owned)
        .ok_or_else(|| Malformed(format!("extra.{name} is missing")))
}

/// A number of 256 bits in decimal.
fn decimal(word: &Word) -> String {
    let mut digits = Vec::new();
    let mut rest = *word;
    while rest.iter().any(|byte| *byte != 0) {
        let mut carry = 0_u16;
        for byte in &mut rest {
            let value = carry * 256 + u16::from(*byte);
            *byte = u8::try_from(value / 10).unwrap_or_default();
            carry = value % 10;
        }
        digits.push(char::from_digit(u32::from(carry), 10).unwrap_or('0'));
    }
    if digits.is_empty() {
        digits.push('0');
    }
    digits.iter().rev().collect()
}

impl PayerKey {
    /// Pays `accepted` as an official client does.
    ///
    /// # Errors
    /// [`Malformed`] when `accepted` cannot be paid.
    pub fn pay(&self, accepted: &PaymentRequirements, terms: Terms) -> Result<PaymentPayload, Malformed> {
        let exact = accepted.scheme == Scheme::Exact;
        let facilitator = if exact {
            None
        } else {
            Some(Address::parse(&text(&accepted.extra, "facilitatorAddress")?)?)
        };
        let authorization = Authorization {
            scheme: accepted.scheme,
            payer: self.address(),
            nonce: terms.nonce,
            to: Address::parse(&accepted.pay_to)?,
            token: Address::parse(&accepted.asset)?,
            value: accepted
                .amount
                .parse()
                .map_err(|_invalid| Malformed("amount".to_owned()))?,
            valid_after: terms.valid_after,
            valid_before: terms.valid_before,
            spender: (!exact).then_some(UPTO_PROXY),
            facilitator,
            signature: Vec::new(),
        };
        self.sign_payment(accepted, &authorization)
    }

    /// Signs `authorization` whatever it says, and shows it as a payment of `accepted`.
    ///
    /// # Errors
    /// [`Malformed`] when `accepted` names no chain or token.
    pub fn sign_payment(
        &self,
        accepted: &PaymentRequirements,
        authorization: &Authorization,
    ) -> Result<PaymentPayload, Malformed> {
        let domain = TokenDomain {
            name: text(&accepted.extra, "name")?,
            version: text(&accepted.extra, "version")?,
            chain_id: chain_id(&accepted.network)?,
            contract: Address::parse(&accepted.asset)?,
        };
        let signature = self
            .sign(&signed_digest(authorization, &domain))
            .ok_or_else(|| Malformed("no signature".to_owned()))?;
        let payload = match authorization.scheme {
            Scheme::Exact => json!({
                "signature": format!("0x{}", hex::encode(signature)),
                "authorization": {
                    "from": authorization.payer,
                    "to": authorization.to,
                    "value": authorization.value.to_string(),
                    "validAfter": authorization.valid_after.to_string(),
                    "validBefore": authorization.valid_before.to_string(),
                    "nonce": format!("0x{}", hex::encode(authorization.nonce)),
                },
            }),
            Scheme::Upto => json!({
                "signature": format!("0x{}", hex::encode(signature)),
                "permit2Authorization": {
                    "from": authorization.payer,
                    "permitted": { "token": authorization.token, "amount": authorization.value.to_string() },
                    "spender": authorization.spender,
                    "nonce": decimal(&authorization.nonce),
                    "deadline": authorization.valid_before.to_string(),
                    "witness": {
                        "to": authorization.to,
                        "facilitator": authorization.facilitator,
                        "validAfter": authorization.valid_after.to_string(),
                    },
                },
            }),
        };
        let Value::Object(payload) = payload else {
            return Err(Malformed("no object".to_owned()));
        };
        Ok(PaymentPayload {
            x402_version: X402_VERSION,
            accepted: accepted.clone(),
            payload,
            resource: None,
            extensions: None,
        })
    }
}
