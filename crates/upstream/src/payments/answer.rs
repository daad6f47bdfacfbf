//! What a facilitator's answer says: a verdict, or nothing.
//!
//! The rule: a verdict is a boolean `isValid` or `success` in a JSON object, whatever the status. A yes counts only
//! with a status of success and when all of it fits what was asked. A settlement's no counts only when it is about
//! what was there before anything was sent: a transaction that failed or is pending may still happen, and a nonce
//! that is used may be ours. Texts are cut, and the reasons that nothing was said are our own words.

use http::StatusCode;
use serde_json::{Map, Value};
use turnpike_core::x402::{PaymentRequirements, Scheme, SettleResponse, Supported};

use super::{Settled, Verdict};

/// Longest code that is passed on, in bytes.
const MAX_CODE_BYTES: usize = 200;
/// Longest text for people that is passed on, in bytes.
const MAX_TEXT_BYTES: usize = 1000;
/// What a refusal without a code is called.
const UNSPECIFIED: &str = "unspecified";
/// Something failed at the facilitator: no word about the payment.
const FAILED: &str = "unexpected_verify_error";
/// In the code of a refused settlement: it may have been sent, or done before.
const UNDECIDED: [&str; 9] = [
    "transaction_failed",
    "unexpected",
    "pending",
    "receipt",
    "timeout",
    "timed out",
    "nonce",
    "already",
    "is used",
];

struct Answer {
    members: Map<String, Value>,
    ok: bool,
}

impl Answer {
    fn read(status: StatusCode, body: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => Ok(Self {
                members,
                ok: status.is_success(),
            }),
            Ok(_) | Err(_) => Err(format!("the facilitator answered {status} and no JSON object")),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        let flag = self.members.get(name).and_then(Value::as_bool);
        flag.ok_or_else(|| format!("the facilitator's answer has no {name}"))
    }

    /// A text, cut; null is absent.
    fn text(&self, name: &str, most: usize) -> Result<Option<String>, String> {
        match self.members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text[..text.floor_char_boundary(most)].to_owned())),
            Some(_other) => Err(format!("the facilitator's {name} is no text")),
        }
    }

    /// Why it is a no.
    fn refusal(&self, code: &str, message: &str) -> Result<(String, Option<String>), String> {
        let reason = self.text(code, MAX_CODE_BYTES)?;
        let reason = reason.filter(|reason| !reason.is_empty());
        let reason = reason.unwrap_or_else(|| UNSPECIFIED.to_owned());
        Ok((reason, self.text(message, MAX_TEXT_BYTES)?))
    }

    fn confirmed(&self) -> Result<(), String> {
        if self.ok {
            Ok(())
        } else {
            Err("the facilitator said yes with an error status".to_owned())
        }
    }
}

pub(super) fn read_verdict(status: StatusCode, body: &[u8]) -> Verdict {
    verdict(status, body).unwrap_or_else(Verdict::Unknown)
}

fn verdict(status: StatusCode, body: &[u8]) -> Result<Verdict, String> {
    let answer = Answer::read(status, body)?;
    if answer.flag("isValid")? {
        answer.confirmed()?;
        return Ok(Verdict::Valid);
    }
    let (reason, message) = answer.refusal("invalidReason", "invalidMessage")?;
    if reason == FAILED {
        return Err("something failed at the facilitator".to_owned());
    }
    Ok(Verdict::Invalid { reason, message })
}

pub(super) fn read_settlement(status: StatusCode, body: &[u8], asked: &PaymentRequirements) -> Settled {
    settlement(status, body, asked).unwrap_or_else(Settled::Unknown)
}

fn settlement(status: StatusCode, body: &[u8], asked: &PaymentRequirements) -> Result<Settled, String> {
    let answer = Answer::read(status, body)?;
    let success = answer.flag("success")?;
    let transaction = answer.text("transaction", MAX_CODE_BYTES)?;
    let network = answer.text("network", MAX_CODE_BYTES)?;
    let payer = answer.text("payer", MAX_CODE_BYTES)?;
    if !success {
        let (reason, message) = answer.refusal("errorReason", "errorMessage")?;
        let transaction = transaction.unwrap_or_default();
        let lower = reason.to_ascii_lowercase();
        if !transaction.is_empty() || UNDECIDED.iter().any(|part| lower.contains(part)) {
            return Err("the facilitator's refusal does not say that nothing was sent".to_owned());
        }
        return Ok(Settled::Refused(SettleResponse {
            success,
            transaction,
            network: network.unwrap_or_else(|| asked.network.clone()),
            payer,
            amount: None,
            error_reason: Some(reason),
            error_message: message,
        }));
    }
    answer.confirmed()?;
    let amount = answer.text("amount", MAX_CODE_BYTES)?;
    check_amount(amount.as_deref(), asked)?;
    let transaction = transaction.unwrap_or_default();
    if !(is_hash(&transaction) || (transaction.is_empty() && asked.amount == "0")) {
        return Err("the facilitator settled without a transaction".to_owned());
    }
    let network = network.unwrap_or_default();
    if network != asked.network {
        return Err("the facilitator settled on another network".to_owned());
    }
    Ok(Settled::Done(SettleResponse {
        success,
        transaction,
        network,
        payer,
        amount,
        error_reason: None,
        error_message: None,
    }))
}

/// `upto` may be settled for less than was asked, `exact` for that amount alone.
fn check_amount(amount: Option<&str>, asked: &PaymentRequirements) -> Result<(), String> {
    let Some(amount) = amount else {
        return match asked.scheme {
            Scheme::Exact => Ok(()),
            Scheme::Upto => Err("the facilitator did not say how much it settled".to_owned()),
        };
    };
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let fits = match (number(amount), number(&asked.amount)) {
        (Some(amount), Some(most)) => match asked.scheme {
            Scheme::Exact => amount == most,
            Scheme::Upto => amount <= most,
        },
        (_, _) => false,
    };
    if fits {
        Ok(())
    } else {
        Err("the facilitator settled another amount".to_owned())
    }
}

fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Kinds that are none are left out: facilitators list more than this protocol's.
pub(super) fn read_supported(status: StatusCode, body: &[u8]) -> Result<Supported, String> {
    let answer = Answer::read(status, body)?;
    if !answer.ok {
        return Err(format!("the facilitator answered {status}"));
    }
    let list = |name: &str| answer.members.get(name).and_then(Value::as_array);
    let kinds = list("kinds").ok_or("the facilitator's answer has no kinds")?;
    let kinds = kinds
        .iter()
        .filter_map(|kind| serde_json::from_value(kind.clone()).ok());
    let names = list("extensions").into_iter().flatten();
    Ok(Supported {
        kinds: kinds.collect(),
        extensions: names.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}
