//! The bodies of top-up requests, read strictly.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::command::AutoTopupChoice;
use turnpike_core::money::Micros;
use turnpike_store::Tenant;

use crate::error::AppError;
use crate::json::parse_object;

/// Longest `metadata`, in characters of compact JSON.
const MAX_METADATA_CHARS: usize = 500;

/// A top-up request (specification 2.7).
#[derive(Clone, Debug)]
pub struct TopupRequest {
    usd: Option<String>,
    credits: Option<String>,
    pub(super) success_url: Option<String>,
    pub(super) cancel_url: Option<String>,
    pub(super) metadata: Option<Arc<str>>,
    pub(super) save_payment_method: bool,
}

fn unknown_field(name: &str) -> AppError {
    let message = format!("{name} is no field of this operation");
    let details = serde_json::json!([{ "path": name, "message": "is unknown" }]);
    AppError::new(ErrorCode::UnknownField, message).with("details", details)
}

fn text(name: &str, value: Value) -> Result<Option<String>, AppError> {
    match value {
        Value::String(text) => Ok(Some(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(AppError::invalid(name, "must be a string"))
        }
    }
}

fn boolean(name: &str, value: &Value) -> Result<bool, AppError> {
    value
        .as_bool()
        .ok_or_else(|| AppError::invalid(name, "must be true or false"))
}

fn dollars(name: &str, value: Value) -> Result<Micros, AppError> {
    let text = text(name, value)?.unwrap_or_default();
    Micros::parse_usd(&text).map_err(|error| AppError::invalid(name, error.to_string()))
}

/// The bytes of `metadata` as they were sent.
#[derive(serde::Deserialize)]
struct Sent<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// Whether every number in `json` is written as it will be written again. `1e2`, `1.10` and numbers beyond 64 bits are
/// not, and metadata comes back unchanged or not at all.
fn numbers_survive(json: &str) -> bool {
    let mut in_string = false;
    let mut escaped = false;
    let outside: String = json
        .chars()
        .map(|character| {
            let is_text = in_string;
            match character {
                _ if escaped => escaped = false,
                '\\' if in_string => escaped = true,
                '"' => in_string = !in_string,
                _ => {}
            }
            if is_text { ' ' } else { character }
        })
        .collect();
    outside
        .split(|character: char| !(character.is_ascii_alphanumeric() || "+-.".contains(character)))
        .filter(|token| token.starts_with(|first: char| first == '-' || first.is_ascii_digit()))
        .all(|token| {
            let written = serde_json::from_str::<Value>(token).map(|number| number.to_string());
            written.is_ok_and(|written| written == token)
        })
}

fn metadata(raw: &[u8], value: &Value) -> Result<Arc<str>, AppError> {
    if !value.is_object() {
        return Err(AppError::invalid("metadata", "must be an object"));
    }
    let sent = serde_json::from_slice::<Sent<'_>>(raw).map_err(|error| AppError::internal(&error))?;
    if !numbers_survive(sent.metadata.get()) {
        return Err(AppError::invalid(
            "metadata",
            "has a number that would not come back unchanged: send it as a string",
        ));
    }
    let compact = value.to_string();
    if compact.chars().count() > MAX_METADATA_CHARS {
        return Err(AppError::invalid(
            "metadata",
            "must be at most 500 characters of compact JSON",
        ));
    }
    if compact.contains("\\u0000") {
        return Err(AppError::invalid("metadata", "must not have NUL characters"));
    }
    Ok(compact.into())
}

impl TopupRequest {
    /// Reads a body. The pool's request knows one field more.
    ///
    /// # Errors
    /// `INVALID_JSON`, `UNKNOWN_FIELD`, `EXTERNAL_USER_ID_NOT_ALLOWED`, `VALIDATION_ERROR`.
    pub fn parse(raw: &[u8], for_pool: bool) -> Result<Self, AppError> {
        let mut request = Self {
            usd: None,
            credits: None,
            success_url: None,
            cancel_url: None,
            metadata: None,
            save_payment_method: false,
        };
        for (name, value) in parse_object(raw)? {
            match name.as_str() {
                "usd" => request.usd = text("usd", value)?,
                "credits" => request.credits = text("credits", value)?,
                "successUrl" => request.success_url = text("successUrl", value)?,
                "cancelUrl" => request.cancel_url = text("cancelUrl", value)?,
                "metadata" => request.metadata = Some(metadata(raw, &value)?),
                "savePaymentMethod" if for_pool => {
                    request.save_payment_method = boolean("savePaymentMethod", &value)?;
                }
                "externalUserId" => {
                    return Err(AppError::new(
                        ErrorCode::ExternalUserIdNotAllowed,
                        "the end user follows from the credential and must not be sent",
                    ));
                }
                other => return Err(unknown_field(other)),
            }
        }
        Ok(request)
    }

    /// The amount of credits that is asked for.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`.
    pub(super) fn amount(&self, tenant: &Tenant) -> Result<Micros, AppError> {
        match (&self.usd, &self.credits) {
            (Some(usd), None) => {
                Micros::parse_usd(usd).map_err(|error| AppError::invalid("usd", error.to_string()))
            }
            (None, Some(credits)) => tenant
                .credits_per_dollar
                .parse_credits(credits)
                .map_err(|error| AppError::invalid("credits", error.to_string())),
            (Some(_), Some(_)) | (None, None) => {
                Err(AppError::invalid("usd", "send exactly one of usd and credits"))
            }
        }
    }
}

/// A refund request.
#[derive(Clone, Debug)]
pub struct RefundRequest {
    /// How much of what was paid goes back, in whole cents; `None` = all that is left.
    pub(super) cents: Option<i64>,
    /// Why.
    pub(super) reason: Arc<str>,
}

impl RefundRequest {
    /// Reads a body: `{usd?, reason?}`.
    ///
    /// # Errors
    /// `INVALID_JSON`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
    pub fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let mut request = Self {
            cents: None,
            reason: "requested".into(),
        };
        for (name, value) in parse_object(raw)? {
            match name.as_str() {
                "usd" => request.cents = Some(whole_cents(dollars("usd", value)?)?),
                "reason" => {
                    let reason = text("reason", value)?.unwrap_or_default();
                    if !(1..=500).contains(&reason.chars().count()) || reason.contains('\0') {
                        return Err(AppError::invalid("reason", "must be 1 to 500 characters"));
                    }
                    request.reason = reason.into();
                }
                other => return Err(unknown_field(other)),
            }
        }
        Ok(request)
    }
}

fn whole_cents(amount: Micros) -> Result<i64, AppError> {
    let micros = amount.get();
    if micros <= 0 || micros.rem_euclid(10_000) != 0 {
        return Err(AppError::invalid(
            "usd",
            "must be a positive amount of whole cents: what was paid is refunded in cents",
        ));
    }
    Ok(micros.div_euclid(10_000))
}

/// Reads `{enabled, thresholdUsd, amountUsd, monthlyCapUsd}`.
///
/// # Errors
/// `INVALID_JSON`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
pub fn auto_topup_choice(raw: &[u8]) -> Result<AutoTopupChoice, AppError> {
    let body: Map<String, Value> = parse_object(raw)?;
    let mut choice = AutoTopupChoice {
        enabled: false,
        threshold: Micros::ZERO,
        amount: Micros::ZERO,
        monthly_cap: None,
    };
    let mut enabled = None;
    for (name, value) in body {
        match name.as_str() {
            "enabled" => enabled = Some(boolean("enabled", &value)?),
            "thresholdUsd" => choice.threshold = dollars("thresholdUsd", value)?,
            "amountUsd" => choice.amount = dollars("amountUsd", value)?,
            "monthlyCapUsd" if value.is_null() => choice.monthly_cap = None,
            "monthlyCapUsd" => choice.monthly_cap = Some(dollars("monthlyCapUsd", value)?),
            other => return Err(unknown_field(other)),
        }
    }
    choice.enabled = enabled.ok_or_else(|| AppError::invalid("enabled", "is required"))?;
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Decisions, section 7
    #[test]
    fn metadata_comes_back_unchanged_or_is_refused() {
        let parse = |metadata: &str| {
            let body = format!(r#"{{"usd":"5","metadata":{metadata}}}"#);
            TopupRequest::parse(body.as_bytes(), false).map(|request| request.metadata)
        };
        for same in [
            r#"{"a":1,"b":-2.5,"c":"1e2","d":"\\\"1.10","e":[0,18446744073709551615],"f":null,"g":true}"#,
            "{}",
        ] {
            assert_eq!(parse(same).unwrap().as_deref(), Some(same));
        }
        for other in [
            r#"{"a":1e2}"#,
            r#"{"a":1.10}"#,
            r#"{"a":12345678901234567890123}"#,
            r#"{"a":-0}"#,
            "[]",
            "1",
        ] {
            let refused = parse(other).unwrap_err();
            assert_eq!(refused.code, ErrorCode::ValidationError, "{other}");
        }
    }
}
