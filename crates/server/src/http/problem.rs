//! Errors as responses: the body of specification 2.1 and decisions section 2.
//!
//! A handler's error travels to the outermost layer in the response's extensions, where the request id is
//! known and the body is written.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};
use turnpike_app::AppError;
use turnpike_core::errors::ErrorCode;

/// Whether clients may repeat by themselves.
pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Says that an answer was stored by an earlier attempt.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A failed request on its way to the outermost layer.
#[derive(Clone, Debug)]
pub(crate) struct ApiError(pub(crate) AppError);

impl From<AppError> for ApiError {
    fn from(error: AppError) -> Self {
        Self(error)
    }
}

impl ApiError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(AppError::new(code, message))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// What an error's body says, but for the request's id.
pub(crate) fn members(error: &AppError) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("success".to_owned(), json!(false));
    body.insert("error".to_owned(), json!(error.code.label()));
    body.insert("code".to_owned(), json!(error.code));
    body.insert("message".to_owned(), json!(error.message));
    for (name, value) in &error.members {
        body.insert(name.clone(), value.clone());
    }
    body
}

/// Writes the body and headers of `error` into `response`, keeping the headers it has.
///
/// `step_up` is the challenge to who shows no fresh second factor.
pub(crate) fn render(response: &mut Response, error: &AppError, request_id: &str, step_up: &HeaderValue) {
    let mut body = members(error);
    body.insert("requestId".to_owned(), json!(request_id));
    *response.body_mut() = Value::Object(body).to_string().into();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(secs) = error.retry_after_secs {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    if error.replayed || !error.code.is_retryable() {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if error.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if error.code.status() == 401 {
        let challenge = if error.code == ErrorCode::Unauthenticated {
            HeaderValue::from_static("Bearer")
        } else if error.code == ErrorCode::StepUpRequired {
            step_up.clone()
        } else {
            HeaderValue::from_static("Bearer error=\"invalid_token\"")
        };
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    if error.code == ErrorCode::RateLimited
        && let Some(limit) = error.members.get("limitPerMinute").and_then(Value::as_u64)
    {
        let reset = error.retry_after_secs.unwrap_or(1);
        let state = format!("\"default\";r=0;t={reset}");
        let policy = format!("\"default\";q={limit};w=60");
        for (name, value) in [(RATE_LIMIT, state), (RATE_LIMIT_POLICY, policy)] {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
    }
}
