//! A chat-completions request: checked, bounded and written anew for the provider.
//!
//! The price and the bytes that go upstream come from the same parsed value. Fields that would change the
//! price and cannot be priced are refused; unknown fields pass through.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use turnpike_core::errors::ErrorCode;

use crate::error::AppError;
use crate::json::parse_object;
use crate::providers::Offer;

/// Most completions of one request.
pub(crate) const MAX_N: u64 = 128;

/// Fields with which a request would cost something else than what was held, or would reach other services.
const REFUSED: &[&str] = &[
    "audio",
    "best_of",
    "enable_search",
    "max_new_tokens",
    "max_output_tokens",
    "models",
    "n_predict",
    "plugins",
    "prediction",
    "provider",
    "route",
    "search_options",
    "search_parameters",
    "transforms",
    "web_search_options",
];

/// A checked request.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    /// The model that was asked for.
    pub(crate) model: String,
    /// Whether the answer is to be a stream.
    pub(crate) stream: bool,
    /// Whether the caller wants the usage chunk of the stream.
    pub(crate) wants_usage_chunk: bool,
    /// The explicit output budget and the field it stood in.
    budget: Option<(u64, &'static str)>,
    n: u64,
    images: u64,
    pub(crate) body: Map<String, Value>,
}

/// What a request can cost at most, and the body that goes upstream.
#[derive(Debug)]
pub(crate) struct Bounded {
    /// Prompt tokens, from above.
    pub(crate) prompt: u64,
    /// Completion tokens, from above.
    pub(crate) completion: u64,
    /// Images.
    pub(crate) images: u64,
    /// The body as the provider gets it.
    pub(crate) body: Bytes,
}

impl ChatRequest {
    /// Reads and checks a body.
    ///
    /// # Errors
    /// 400 codes that name the member.
    pub(crate) fn parse(raw: &[u8]) -> Result<Self, AppError> {
        let body = parse_object(raw)?;
        let model = match body.get("model") {
            Some(Value::String(model)) if !model.is_empty() && model.len() <= 256 => model.clone(),
            Some(_) => {
                return Err(AppError::invalid(
                    "model",
                    "must be a string of 1 to 256 characters",
                ));
            }
            None => return Err(AppError::invalid("model", "is required")),
        };
        let images = check_messages(body.get("messages"))?;
        check_tools(&body)?;
        check_priced(&body)?;
        let budget = output_budget(&body)?;
        let n = integer(&body, "n", 1, MAX_N)?.unwrap_or(1);
        let stream = boolean(body.get("stream"), "stream")?.unwrap_or(false);
        let wants_usage_chunk = match body.get("stream_options") {
            None | Some(Value::Null) => false,
            Some(Value::Object(options)) => {
                boolean(options.get("include_usage"), "stream_options.include_usage")?.unwrap_or(false)
            }
            Some(_) => return Err(AppError::invalid("stream_options", "must be an object")),
        };
        Ok(Self {
            model,
            stream,
            wants_usage_chunk,
            budget,
            n,
            images,
            body,
        })
    }

    /// Bounds the request by what `offer` allows and writes the body that goes upstream.
    ///
    /// # Errors
    /// `OUTPUT_BUDGET_TOO_SMALL`, `VALIDATION_ERROR`, `PRICE_UNAVAILABLE`.
    pub(crate) fn bound(self, offer: &Offer) -> Result<Bounded, AppError> {
        let price = &offer.priced.price;
        if let (true, Some(minimum), Some((budget, field))) =
            (price.reasoning, price.recommended_min_output_tokens, self.budget)
            && budget < minimum
        {
            let message = format!("{field} must be at least {minimum} for this reasoning model");
            return Err(AppError::new(ErrorCode::OutputBudgetTooSmall, message)
                .with("field", field)
                .with("recommendedMinOutputTokens", minimum));
        }
        self.bound_any(offer)
    }

    /// The same where no output budget is too small.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `PRICE_UNAVAILABLE`.
    pub(crate) fn bound_any(mut self, offer: &Offer) -> Result<Bounded, AppError> {
        let price = &offer.priced.price;
        let completion = output_bound(self.budget, price.max_output_tokens)?.saturating_mul(self.n);
        if self.images > 0 && !price.accepts_images() {
            return Err(AppError::new(
                ErrorCode::ModelNotSupported,
                "this model does not take images here",
            )
            .with(
                "details",
                json!([{ "path": "messages", "message": "has images" }]),
            ));
        }
        self.body
            .insert("model".to_owned(), Value::String(offer.upstream_model.clone()));
        if self.stream {
            // The provider is always asked for its usage; whether the caller sees it is decided on the way back.
            let options = self.body.entry("stream_options").or_insert_with(|| json!({}));
            if options.is_null() {
                *options = json!({});
            }
            if let Value::Object(options) = options {
                options.insert("include_usage".to_owned(), Value::Bool(true));
            }
        }
        let body = serde_json::to_vec(&self.body).map_err(|error| AppError::internal(&error))?;
        let prompt = price.input_bound(u64::try_from(body.len()).unwrap_or(u64::MAX), self.images)?;
        Ok(Bounded {
            prompt,
            completion,
            images: self.images,
            body: body.into(),
        })
    }
}

/// Refuses what would make a request cost something else than what is priced.
pub(crate) fn check_priced(body: &Map<String, Value>) -> Result<(), AppError> {
    for field in REFUSED {
        if body.get(*field).is_some_and(|value| !value.is_null()) {
            return Err(AppError::invalid(
                field,
                "changes the price in a way that cannot be priced here",
            ));
        }
    }
    refuse_unless(body, "service_tier", &["default"])?;
    if body
        .get("store")
        .is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
    {
        return Err(AppError::invalid("store", "must be false"));
    }
    if let Some(modalities) = body.get("modalities")
        && *modalities != json!(["text"])
        && !modalities.is_null()
    {
        return Err(AppError::invalid("modalities", "only [\"text\"] is sold here"));
    }
    Ok(())
}

/// The most tokens of one answer: what was asked for, at most what the model can.
pub(crate) fn output_bound(
    budget: Option<(u64, &'static str)>,
    maximum: Option<u64>,
) -> Result<u64, AppError> {
    match (budget, maximum) {
        (Some((budget, field)), Some(maximum)) if budget > maximum => Err(AppError::invalid(
            field,
            format!("must be at most {maximum} for this model"),
        )),
        (Some((budget, _)), _) => Ok(budget),
        (None, Some(maximum)) => Ok(maximum),
        (None, None) => Err(AppError::invalid(
            "max_tokens",
            "is required: this model has no known maximum output",
        )),
    }
}

/// Checks the messages and counts their images.
fn check_messages(messages: Option<&Value>) -> Result<u64, AppError> {
    let Some(messages) = messages else {
        return Err(AppError::invalid("messages", "is required"));
    };
    let Some(messages) = messages.as_array().filter(|messages| !messages.is_empty()) else {
        return Err(AppError::invalid(
            "messages",
            "must be an array of at least one message",
        ));
    };
    let mut images: u64 = 0;
    for (index, message) in messages.iter().enumerate() {
        let path = || format!("messages[{index}]");
        let Some(message) = message.as_object() else {
            return Err(AppError::invalid(&path(), "must be an object"));
        };
        if !message.get("role").is_some_and(Value::is_string) {
            return Err(AppError::invalid(&format!("{}.role", path()), "must be a string"));
        }
        match message.get("content") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(Value::Array(parts)) => {
                for (at, part) in parts.iter().enumerate() {
                    images += u64::from(check_part(part, &format!("{}.content[{at}]", path()))?);
                }
            }
            Some(_) => {
                return Err(AppError::invalid(
                    &format!("{}.content", path()),
                    "must be a string, an array or null",
                ));
            }
        }
        if message.get("audio").is_some_and(|audio| !audio.is_null()) {
            return Err(AppError::invalid(
                &format!("{}.audio", path()),
                "audio is not sold here",
            ));
        }
    }
    Ok(images)
}

/// Checks one content part; says whether it is an image.
fn check_part(part: &Value, path: &str) -> Result<bool, AppError> {
    let kind = part.get("type").and_then(Value::as_str);
    match kind {
        Some("text") => {
            if part.get("text").is_some_and(Value::is_string) {
                Ok(false)
            } else {
                Err(AppError::invalid(&format!("{path}.text"), "must be a string"))
            }
        }
        Some("refusal") => Ok(false),
        Some("image_url") => {
            let url = part
                .get("image_url")
                .and_then(|image| image.get("url"))
                .and_then(Value::as_str);
            // The address is the provider's to fetch; nothing here opens it.
            if url.is_some_and(|url| url.starts_with("https://") || url.starts_with("data:image/")) {
                Ok(true)
            } else {
                Err(AppError::invalid(
                    &format!("{path}.image_url.url"),
                    "must be an https: or data:image/ URL",
                ))
            }
        }
        Some(_) => Err(AppError::invalid(
            &format!("{path}.type"),
            "only text and image_url parts are sold here",
        )),
        None => Err(AppError::invalid(&format!("{path}.type"), "must be a string")),
    }
}

fn check_tools(body: &Map<String, Value>) -> Result<(), AppError> {
    let Some(tools) = body.get("tools").filter(|tools| !tools.is_null()) else {
        return Ok(());
    };
    let Some(tools) = tools.as_array() else {
        return Err(AppError::invalid("tools", "must be an array"));
    };
    for (index, tool) in tools.iter().enumerate() {
        // Tools that a provider runs itself (search, code) have prices of their own.
        if tool.get("type").and_then(Value::as_str) != Some("function") {
            return Err(AppError::invalid(
                &format!("tools[{index}].type"),
                "only function tools are sold here",
            ));
        }
    }
    Ok(())
}

fn refuse_unless(body: &Map<String, Value>, field: &str, allowed: &[&str]) -> Result<(), AppError> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(value)) if allowed.contains(&value.as_str()) => Ok(()),
        Some(_) => Err(AppError::invalid(
            field,
            format!("must be one of {}", allowed.join(", ")),
        )),
    }
}

pub(crate) fn boolean(value: Option<&Value>, path: &str) -> Result<Option<bool>, AppError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(_) => Err(AppError::invalid(path, "must be true or false")),
    }
}

pub(crate) fn integer(
    body: &Map<String, Value>,
    field: &str,
    min: u64,
    max: u64,
) -> Result<Option<u64>, AppError> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(value) if (min..=max).contains(&value) => Ok(Some(value)),
            _ => Err(AppError::invalid(
                field,
                format!("must be an integer from {min} to {max}"),
            )),
        },
    }
}

pub(crate) fn output_budget(body: &Map<String, Value>) -> Result<Option<(u64, &'static str)>, AppError> {
    const MAX: u64 = 1_000_000_000;
    let old = integer(body, "max_tokens", 1, MAX)?;
    let new = integer(body, "max_completion_tokens", 1, MAX)?;
    match (old, new) {
        (Some(old), Some(new)) if old != new => Err(AppError::invalid(
            "max_completion_tokens",
            "must equal max_tokens when both are sent",
        )),
        (_, Some(budget)) => Ok(Some((budget, "max_completion_tokens"))),
        (Some(budget), None) => Ok(Some((budget, "max_tokens"))),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &Value) -> Option<ErrorCode> {
        ChatRequest::parse(body.to_string().as_bytes())
            .err()
            .map(|error| error.code)
    }

    // Fault matrix 94, 95, 98
    #[test]
    fn fields_that_change_the_price_are_refused() {
        let with = |field: &str, value: Value| {
            let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
            body[field] = value;
            code(&body)
        };
        let bad = Some(ErrorCode::ValidationError);
        for (field, value) in [
            ("best_of", json!(2)),
            ("service_tier", json!("priority")),
            ("web_search_options", json!({})),
            ("models", json!(["a"])),
            ("provider", json!({})),
            ("modalities", json!(["text", "audio"])),
            ("prediction", json!({})),
            ("store", json!(true)),
            ("n", json!(0)),
            ("n", json!(1.5)),
            ("n", json!(129)),
            ("max_tokens", json!(0)),
            ("max_tokens", json!(-1)),
            ("max_tokens", json!(1.5)),
            ("max_tokens", json!(9_223_372_036_854_775_808_u64)),
            ("max_tokens", json!("5")),
            ("stream", json!("yes")),
            ("messages", json!([])),
            ("messages", json!("hi")),
            ("messages", json!([1])),
            ("model", json!(3)),
            ("tools", json!([{ "type": "web_search" }])),
        ] {
            assert_eq!(with(field, value.clone()), bad, "{field} {value}");
        }
        for (field, value) in [
            ("n", json!(2)),
            ("service_tier", json!("default")),
            ("store", json!(false)),
            ("user", json!("x")),
            ("modalities", json!(["text"])),
            ("max_tokens", json!(1)),
            ("anything_new", json!({ "a": 1 })),
            (
                "tools",
                json!([{ "type": "function", "function": { "name": "f" } }]),
            ),
        ] {
            assert_eq!(with(field, value.clone()), None, "{field} {value}");
        }
        for url in [
            "http://169.254.169.254/",
            "file:///etc/passwd",
            "gopher://x",
            "http://[::ffff:127.0.0.1]/",
            "data:text/html,x",
        ] {
            let part = json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": url } }] }]);
            assert_eq!(with("messages", part), bad, "{url}");
        }
    }

    #[test]
    fn the_two_output_budgets_must_agree() {
        let body = |a: u64, b: u64| json!({ "model": "m", "messages": [{ "role": "user" }], "max_tokens": a, "max_completion_tokens": b });
        assert_eq!(code(&body(5, 6)), Some(ErrorCode::ValidationError));
        assert_eq!(code(&body(5, 5)), None);
    }
}
