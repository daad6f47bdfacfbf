//! What a payer signed, read out of a payload member by member.
//!
//! The rule: every member is checked for its form and a fault names the member, never what stands in it. Members that
//! are not known are passed over. Whether it pays what is asked is not decided here.

use serde_json::{Map, Value};

use super::evm::MAX_SIGNATURE_BYTES;
use super::{Address, Authorization, Malformed, PaymentPayload, Scheme};

/// Digits of the largest number of 256 bits.
const MAX_DIGITS: usize = 78;

/// An object of the payload and where it stands.
#[derive(Clone, Copy)]
struct Members<'a> {
    map: &'a Map<String, Value>,
    path: &'static str,
}

impl<'a> Members<'a> {
    fn fault(self, name: &str, what: &str) -> Malformed {
        Malformed::new(format!("{}.{name} {what}", self.path))
    }

    fn object(self, name: &str, path: &'static str) -> Result<Self, Malformed> {
        match self.map.get(name) {
            Some(Value::Object(map)) => Ok(Self { map, path }),
            Some(_other) => Err(self.fault(name, "is no object")),
            None => Err(self.fault(name, "is missing")),
        }
    }

    fn text(self, name: &str) -> Result<&'a str, Malformed> {
        match self.map.get(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_other) => Err(self.fault(name, "is no string")),
            None => Err(self.fault(name, "is missing")),
        }
    }

    fn address(self, name: &str) -> Result<Address, Malformed> {
        Address::parse(self.text(name)?)
            .map_err(|Malformed(what)| self.fault(name, &format!("is none: {what}")))
    }

    /// A decimal number of at most 256 bits.
    fn number(self, name: &str) -> Result<[u8; 32], Malformed> {
        uint256(self.text(name)?).ok_or_else(|| self.fault(name, "is no decimal number of at most 256 bits"))
    }

    fn digits(self, name: &str) -> Result<&'a str, Malformed> {
        self.text(name)?
            .strip_prefix("0x")
            .ok_or_else(|| self.fault(name, "does not begin with 0x"))
    }

    fn word(self, name: &str) -> Result<[u8; 32], Malformed> {
        let mut word = [0; 32];
        hex::decode_to_slice(self.digits(name)?, &mut word)
            .map_err(|_invalid| self.fault(name, "has not 64 hexadecimal digits"))?;
        Ok(word)
    }

    fn signature(self) -> Result<Vec<u8>, Malformed> {
        let name = "signature";
        let digits = self.digits(name)?;
        if digits.is_empty() || digits.len() > MAX_SIGNATURE_BYTES.saturating_mul(2) {
            return Err(self.fault(name, "is empty or too long"));
        }
        let mut bytes = vec![0; digits.len().div_ceil(2)];
        hex::decode_to_slice(digits, &mut bytes)
            .map_err(|_invalid| self.fault(name, "is not hexadecimal"))?;
        Ok(bytes)
    }
}

/// The members of a payload that are signed, and the signature: what a facilitator gets, so that it reads what was read
/// here.
pub(super) fn signed_members(payment: &PaymentPayload) -> Map<String, Value> {
    let (name, inner): (_, &[(&str, &[&str])]) = match payment.accepted.scheme {
        Scheme::Exact => ("authorization", &[]),
        Scheme::Upto => (
            "permit2Authorization",
            &[
                ("permitted", &["token", "amount"]),
                ("witness", &["to", "facilitator", "validAfter"]),
            ],
        ),
    };
    let plain: &[&str] = match payment.accepted.scheme {
        Scheme::Exact => &["from", "to", "value", "validAfter", "validBefore", "nonce"],
        Scheme::Upto => &["from", "spender", "nonce", "deadline"],
    };
    let pick = |map: Option<&Value>, names: &[&str]| -> Map<String, Value> {
        let member = |name: &&str| Some(((*name).to_owned(), map?.get(*name)?.clone()));
        names.iter().filter_map(member).collect()
    };
    let signed = payment.payload.get(name);
    let mut members = pick(signed, plain);
    for (name, names) in inner {
        let nested = signed.and_then(|signed| signed.get(*name));
        members.insert((*name).to_owned(), Value::Object(pick(nested, names)));
    }
    let mut payload = Map::new();
    let signature = payment.payload.get("signature").cloned().unwrap_or_default();
    payload.insert("signature".to_owned(), signature);
    payload.insert(name.to_owned(), Value::Object(members));
    payload
}

pub(super) fn authorization(payment: &PaymentPayload) -> Result<Authorization, Malformed> {
    let payload = Members {
        map: &payment.payload,
        path: "payload",
    };
    match payment.accepted.scheme {
        Scheme::Exact => exact(payload, &payment.accepted.asset),
        Scheme::Upto => upto(payload),
    }
}

fn exact(payload: Members<'_>, asset: &str) -> Result<Authorization, Malformed> {
    let signed = payload.object("authorization", "payload.authorization")?;
    let token = Address::parse(asset)
        .map_err(|Malformed(what)| Malformed::new(format!("accepted.asset is none: {what}")))?;
    Ok(Authorization {
        scheme: Scheme::Exact,
        payer: signed.address("from")?,
        nonce: signed.word("nonce")?,
        to: signed.address("to")?,
        token,
        value: amount(&signed.number("value")?),
        valid_after: seconds(&signed.number("validAfter")?),
        valid_before: seconds(&signed.number("validBefore")?),
        spender: None,
        facilitator: None,
        signature: payload.signature()?,
    })
}

fn upto(payload: Members<'_>) -> Result<Authorization, Malformed> {
    let signed = payload.object("permit2Authorization", "payload.permit2Authorization")?;
    let permitted = signed.object("permitted", "payload.permit2Authorization.permitted")?;
    let witness = signed.object("witness", "payload.permit2Authorization.witness")?;
    Ok(Authorization {
        scheme: Scheme::Upto,
        payer: signed.address("from")?,
        nonce: signed.number("nonce")?,
        to: witness.address("to")?,
        token: permitted.address("token")?,
        value: amount(&permitted.number("amount")?),
        valid_after: seconds(&witness.number("validAfter")?),
        valid_before: seconds(&signed.number("deadline")?),
        spender: Some(signed.address("spender")?),
        facilitator: Some(witness.address("facilitator")?),
        signature: payload.signature()?,
    })
}

/// Decimal digits whose number, and the power of ten above it, fit 64 bits.
const LIMB_DIGITS: usize = 19;

/// A decimal number, big-endian. Digits only; zeros may lead.
fn uint256(text: &str) -> Option<[u8; 32]> {
    if text.is_empty() || text.len() > MAX_DIGITS {
        return None;
    }
    // Limbs, the lowest first.
    let mut limbs = [0_u64; 4];
    for chunk in text.as_bytes().chunks(LIMB_DIGITS) {
        let (mut carry, mut scale) = (0_u64, 1_u64);
        for digit in chunk {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
            carry = carry.checked_mul(10)?.checked_add(u64::from(digit))?;
            scale = scale.checked_mul(10)?;
        }
        for limb in &mut limbs {
            (*limb, carry) = limb.carrying_mul(scale, carry);
        }
        if carry != 0 {
            return None;
        }
    }
    let mut word = [0; 32];
    for (bytes, limb) in word.rchunks_exact_mut(8).zip(limbs) {
        bytes.copy_from_slice(&limb.to_be_bytes());
    }
    Some(word)
}

fn amount(word: &[u8; 32]) -> u64 {
    match word.split_last_chunk::<8>() {
        Some((high, low)) if high.iter().all(|byte| *byte == 0) => u64::from_be_bytes(*low),
        Some(_) | None => u64::MAX,
    }
}

fn seconds(word: &[u8; 32]) -> i64 {
    i64::try_from(amount(word)).unwrap_or(i64::MAX)
}
