//! The bodies of top-up requests, read strictly.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::command::AutoTopupChoice;
use turnpike_core::money::Micros;
use turnpike_store::Tenant;

use crate::error::AppError;
use crate::fields::Fields;

/// Longest `metadata`, in characters of compact JSON.
const MAX_METADATA_CHARS: usize = 500;
/// Longest reason of a refund.
const MAX_REASON: usize = 500;
const MEMBERS: [&str; 5] = ["usd", "credits", "successUrl", "cancelUrl", "metadata"];
const POOL_MEMBERS: [&str; 6] = [
    "usd",
    "credits",
    "successUrl",
    "cancelUrl",
    "metadata",
    "savePaymentMethod",
];
const AUTO_MEMBERS: [&str; 4] = ["enabled", "thresholdUsd", "amountUsd", "monthlyCapUsd"];

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

fn metadata(raw: &[u8], members: Map<String, Value>) -> Result<Arc<str>, AppError> {
    let sent = serde_json::from_slice::<Sent<'_>>(raw).map_err(|error| AppError::internal(&error))?;
    if !numbers_survive(sent.metadata.get()) {
        return Err(AppError::invalid(
            "metadata",
            "has a number that would not come back unchanged: send it as a string",
        ));
    }
    let compact = Value::Object(members).to_string();
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
        let fields = Fields::read(raw)?;
        if fields.has("externalUserId") {
            return Err(AppError::new(
                ErrorCode::ExternalUserIdNotAllowed,
                "the end user follows from the credential and must not be sent",
            ));
        }
        let known: &[&str] = if for_pool { &POOL_MEMBERS } else { &MEMBERS };
        let mut fields = fields.only(known)?;
        Ok(Self {
            usd: fields.text("usd")?,
            credits: fields.text("credits")?,
            success_url: fields.text("successUrl")?,
            cancel_url: fields.text("cancelUrl")?,
            metadata: fields
                .object("metadata")?
                .map(|members| metadata(raw, members))
                .transpose()?,
            save_payment_method: fields.boolean("savePaymentMethod")?.unwrap_or_default(),
        })
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
        let mut fields = Fields::parse(raw, &["usd", "reason"])?;
        let reason = fields.prose("reason", 1..=MAX_REASON)?;
        Ok(Self {
            cents: fields.usd("usd")?.map(whole_cents).transpose()?,
            reason: reason.map_or_else(|| "requested".into(), Into::into),
        })
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
    let mut fields = Fields::parse(raw, &AUTO_MEMBERS)?;
    Ok(AutoTopupChoice {
        enabled: fields.required("enabled", Fields::boolean)?,
        threshold: fields.usd("thresholdUsd")?.unwrap_or(Micros::ZERO),
        amount: fields.usd("amountUsd")?.unwrap_or(Micros::ZERO),
        // The choice is replaced as a whole: an absent cap is none, like null.
        monthly_cap: fields.nullable("monthlyCapUsd", Fields::usd)?.or(None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parse<'a> = &'a dyn Fn(&[u8]) -> Result<(), AppError>;

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
    // Decisions, section 7
    #[test]
    fn bodies_of_top_ups_are_refused_by_code_and_member() {
        let topup = |raw: &[u8]| TopupRequest::parse(raw, false).map(|_request| ());
        let pool = |raw: &[u8]| TopupRequest::parse(raw, true).map(|_request| ());
        let refund = |raw: &[u8]| RefundRequest::parse(raw).map(|_request| ());
        let auto = |raw: &[u8]| auto_topup_choice(raw).map(|_choice| ());
        let cases: [(Parse<'_>, &str, ErrorCode, &str); 16] = [
            (&topup, r#"{"usd":null}"#, ErrorCode::ValidationError, "usd"),
            (&topup, r#"{"credits":5}"#, ErrorCode::ValidationError, "credits"),
            (
                &topup,
                r#"{"successUrl":null}"#,
                ErrorCode::ValidationError,
                "successUrl",
            ),
            (
                &topup,
                r#"{"cancelUrl":[]}"#,
                ErrorCode::ValidationError,
                "cancelUrl",
            ),
            (
                &topup,
                r#"{"metadata":null}"#,
                ErrorCode::ValidationError,
                "metadata",
            ),
            (
                &topup,
                r#"{"savePaymentMethod":true}"#,
                ErrorCode::UnknownField,
                "savePaymentMethod",
            ),
            (
                &pool,
                r#"{"savePaymentMethod":null}"#,
                ErrorCode::ValidationError,
                "savePaymentMethod",
            ),
            (&pool, r#"{"USD":"5"}"#, ErrorCode::UnknownField, "USD"),
            (&refund, r#"{"usd":null}"#, ErrorCode::ValidationError, "usd"),
            (&refund, r#"{"usd":"0.001"}"#, ErrorCode::ValidationError, "usd"),
            (
                &refund,
                r#"{"reason":"a\u0000"}"#,
                ErrorCode::ValidationError,
                "reason",
            ),
            (
                &refund,
                r#"{"reason":null}"#,
                ErrorCode::ValidationError,
                "reason",
            ),
            (&auto, "{}", ErrorCode::ValidationError, "enabled"),
            (
                &auto,
                r#"{"enabled":null}"#,
                ErrorCode::ValidationError,
                "enabled",
            ),
            (
                &auto,
                r#"{"enabled":true,"thresholdUsd":null}"#,
                ErrorCode::ValidationError,
                "thresholdUsd",
            ),
            (
                &auto,
                r#"{"enabled":true,"amountUsd":1}"#,
                ErrorCode::ValidationError,
                "amountUsd",
            ),
        ];
        for (parse, body, code, path) in cases {
            let error = parse(body.as_bytes()).expect_err(body);
            assert_eq!(
                (error.code, &error.members["details"][0]["path"]),
                (code, &path.into()),
                "{body}"
            );
        }
        let both: [Parse<'_>; 2] = [&topup, &pool];
        for parse in both {
            let error = parse(br#"{"externalUserId":null}"#).unwrap_err();
            assert_eq!(error.code, ErrorCode::ExternalUserIdNotAllowed);
        }
        let lines = RefundRequest::parse(br#"{"reason":"two\nlines"}"#).unwrap();
        assert_eq!(&*lines.reason, "two\nlines");
        let uncapped = auto_topup_choice(br#"{"enabled":true,"monthlyCapUsd":null}"#).unwrap();
        assert_eq!(uncapped.monthly_cap, None);
    }
}
