//! Request bodies: bounded in size and time, uncompressed, JSON.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use turnpike_app::AppError;
use turnpike_core::errors::ErrorCode;

use super::problem::ApiError;

/// Limits of a request body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub(crate) bytes: usize,
    pub(crate) timeout: Duration,
}

fn too_large(limit: usize) -> ApiError {
    ApiError(
        AppError::new(
            ErrorCode::RequestBodyTooLarge,
            format!("the body is larger than {limit} bytes"),
        )
        .with("limitBytes", limit),
    )
}

/// Reads a JSON body; the limit is inclusive and kept while reading.
///
/// An absent body is allowed when `may_be_empty`, whatever its content type.
pub(crate) async fn read_json_body(
    headers: &HeaderMap,
    body: Body,
    limits: BodyLimits,
    may_be_empty: bool,
) -> Result<Bytes, ApiError> {
    let unsupported = |message: &str| ApiError::new(ErrorCode::UnsupportedMediaType, message);
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    if encodings.any(|encoding| encoding != "identity") {
        return Err(unsupported("compressed bodies are not accepted"));
    }
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limits.bytes) {
        return Err(too_large(limits.bytes));
    }
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let text = value.to_str().unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    });
    if !is_json && !may_be_empty {
        return Err(unsupported("send the body as application/json"));
    }
    let bytes = collect(body, limits).await?;
    if !is_json && !bytes.is_empty() {
        return Err(unsupported("send the body as application/json"));
    }
    Ok(bytes)
}

/// Reads a form, `application/x-www-form-urlencoded`.
pub(super) async fn read_form(
    headers: &HeaderMap,
    body: Body,
    limits: BodyLimits,
) -> Result<Vec<(String, String)>, ApiError> {
    let is_form = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let text = value.to_str().unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    });
    if !is_form {
        let message = "send the form as application/x-www-form-urlencoded";
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, message));
    }
    let bytes = collect(body, limits).await?;
    Ok(form_urlencoded::parse(&bytes).into_owned().collect())
}

/// Reads a body within its limits.
async fn collect(body: Body, limits: BodyLimits) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(limits.timeout, Limited::new(body, limits.bytes).collect());
    match collected.await {
        Err(_elapsed) => Err(ApiError::new(
            ErrorCode::RequestTimeout,
            "the body did not arrive in time",
        )),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limits.bytes)),
        Ok(Err(_broken)) => Err(ApiError::new(
            ErrorCode::ValidationError,
            "the body could not be read",
        )),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
    }
}
