//! Requests to Stripe over the guarded client, and what their failures mean.
//!
//! The rule: a request is tried at most three times, each time with the same idempotency key and the same
//! bytes, and once one of the tries may have been carried out, no later failure says that nothing was done.
//! Stripe's words go on shortened, and not at all when they are about the key.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use serde_json::Value;

use super::form::Form;
use super::reports::words;
use crate::client::Client;
use crate::error::UpstreamError;
use crate::headers::{self, Accept};
use crate::processor::ProcessorError;
use crate::provider::{BaseUrl, BuildError};
use crate::secret::Secret;

/// The version of Stripe's API that is spoken: the first whose `refund.*` events tell of every refund.
pub const STRIPE_VERSION: &str = "2024-10-28.acacia";
/// Pauses before the second and the third try.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];

const VERSION_HEADER: HeaderName = HeaderName::from_static("stripe-version");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// Why Stripe did not answer with an object.
#[derive(Debug)]
pub(super) enum Fault {
    /// It said no.
    Refused(Box<Refusal>),
    /// Certainly not done.
    Unavailable(String),
    /// Perhaps done.
    Unknown(String),
}

/// Stripe's error.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) message: String,
    /// The payment that failed, when it was made.
    pub(super) intent: Option<Value>,
}

impl From<Fault> for ProcessorError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(refusal) => Self::Refused {
                code: refusal.code,
                message: refusal.message,
            },
            Fault::Unavailable(why) => Self::Unavailable(why),
            Fault::Unknown(why) => Self::Unknown(why),
        }
    }
}

/// Stripe's API.
#[derive(Debug)]
pub(super) struct Api {
    client: Client,
    base: BaseUrl,
    auth: HeaderValue,
}

impl Api {
    pub(super) fn new(client: Client, base: &str, key: &Secret) -> Result<Self, BuildError> {
        Ok(Self {
            client,
            base: BaseUrl::parse(base)?,
            auth: headers::bearer(key)?,
        })
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, Fault> {
        self.repeat(Method::GET, path, Bytes::new(), None).await
    }

    /// `attempt` is the idempotency key; without one a repeat must be harmless by itself.
    pub(super) async fn post(&self, path: &str, form: Form, attempt: Option<&str>) -> Result<Value, Fault> {
        let attempt = attempt.map(idempotency_key).transpose()?;
        let body = Bytes::from(form.finish());
        self.repeat(Method::POST, path, body, attempt).await
    }

    async fn repeat(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        attempt: Option<HeaderValue>,
    ) -> Result<Value, Fault> {
        let mut pauses = PAUSES.iter();
        let mut perhaps_done = false;
        loop {
            let fault = match self.once(&method, path, &body, attempt.as_ref()).await {
                Ok(object) => return Ok(object),
                Err(fault) => fault,
            };
            perhaps_done |= matches!(fault, Fault::Unknown(_));
            // INVARIANT: a try that perhaps was carried out is not forgotten over a later one that was not.
            let fault = match fault {
                Fault::Unavailable(why) if perhaps_done => Fault::Unknown(why),
                // A decision about a charge is the outcome itself; any other no may be about this try alone.
                Fault::Refused(refusal) if perhaps_done && refusal.intent.is_none() => {
                    Fault::Unknown(refusal.code)
                }
                Fault::Refused(_) | Fault::Unavailable(_) | Fault::Unknown(_) => fault,
            };
            match pauses.next() {
                Some(pause) if !matches!(fault, Fault::Refused(_)) => tokio::time::sleep(*pause).await,
                Some(_) | None => return Err(fault),
            }
        }
    }

    async fn once(
        &self,
        method: &Method,
        path: &str,
        body: &Bytes,
        attempt: Option<&HeaderValue>,
    ) -> Result<Value, Fault> {
        let uri = self
            .base
            .join(path)
            .map_err(|_invalid| Fault::Unavailable("the path is no valid URL".to_owned()))?;
        let deadline = self.client.total_deadline();
        let headers = self.headers(method, attempt);
        let response = self
            .client
            .send(method.clone(), uri, headers, body.clone())
            .await
            .map_err(|error| fault(&error))?;
        if !response.status().is_success() {
            return Err(fault(&self.client.status_error(response, deadline).await));
        }
        let answer = self
            .client
            .collect(response.into_body(), deadline)
            .await
            .map_err(|error| fault(&error))?;
        serde_json::from_slice::<Value>(&answer)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| Fault::Unknown("its answer is not a JSON object".to_owned()))
    }

    fn headers(&self, method: &Method, attempt: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = headers::request_headers(Accept::Json, false, Some(&self.auth));
        headers.insert(VERSION_HEADER, HeaderValue::from_static(STRIPE_VERSION));
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, FORM);
        }
        if let Some(attempt) = attempt {
            headers.insert(IDEMPOTENCY_KEY, attempt.clone());
        }
        headers
    }
}

fn idempotency_key(attempt: &str) -> Result<HeaderValue, Fault> {
    // 255 characters is Stripe's limit.
    if attempt.is_empty() || attempt.len() > 255 {
        return Err(invalid_attempt());
    }
    HeaderValue::from_str(attempt).map_err(|_invalid| invalid_attempt())
}

fn invalid_attempt() -> Fault {
    Fault::Refused(Box::new(Refusal {
        code: "invalid_attempt".to_owned(),
        message: "the attempt cannot be an idempotency key".to_owned(),
        ..Refusal::default()
    }))
}

fn fault(error: &UpstreamError) -> Fault {
    match error {
        UpstreamError::NotSent { .. } => Fault::Unavailable(error.to_string()),
        UpstreamError::Timeout { .. }
        | UpstreamError::BadResponse { .. }
        | UpstreamError::Interrupted { .. } => Fault::Unknown(error.to_string()),
        UpstreamError::Status { status, body, .. } => status_fault(*status, body),
    }
}

fn status_fault(status: u16, body: &[u8]) -> Fault {
    let answered = format!("it answered {status}");
    let (kind, refusal) = refusal(status, body);
    match status {
        // About our key or its rights, not about the request: it is done once the key is right again.
        401 | 403 | 429 => Fault::Unavailable(answered),
        // INVARIANT: only Stripe's own word about the request is a refusal. A proxy's is none, and one about the
        // attempt's key says that an earlier try may have been carried out.
        400..=499 => match kind.as_deref() {
            None | Some("idempotency_error") => Fault::Unknown(answered),
            Some(_) => Fault::Refused(Box::new(refusal)),
        },
        _ => Fault::Unknown(answered),
    }
}

/// The type of Stripe's error, if it is one, and what it says.
fn refusal(status: u16, body: &[u8]) -> (Option<String>, Refusal) {
    let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let error = body.get("error").unwrap_or(&Value::Null);
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    let kind = text("type").filter(|kind| !kind.is_empty()).map(str::to_owned);
    let code = text("code").or_else(|| text("type")).map(words);
    let message = match status {
        // Stripe's own words hold parts of the key.
        401 | 403 => "the processor does not accept the configured key".to_owned(),
        _ => words(text("message").unwrap_or_default()),
    };
    let refusal = Refusal {
        status,
        code: code.unwrap_or_else(|| format!("http_{status}")),
        message,
        intent: error.get("payment_intent").filter(|it| it.is_object()).cloned(),
    };
    (kind, refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(status: u16, body: &str) -> ProcessorError {
        status_fault(status, body.as_bytes()).into()
    }

    // Fault matrix 106
    #[test]
    fn a_status_says_whether_it_was_done() {
        let in_use = r#"{"error":{"type":"idempotency_error","code":"idempotency_key_in_use"}}"#;
        for (status, body, expected) in [
            (
                429,
                "{}",
                ProcessorError::Unavailable("it answered 429".to_owned()),
            ),
            (409, in_use, ProcessorError::Unknown("it answered 409".to_owned())),
            (
                400,
                r#"{"error":{"type":"idempotency_error","message":"other parameters"}}"#,
                ProcessorError::Unknown("it answered 400".to_owned()),
            ),
            (
                404,
                "<html>",
                ProcessorError::Unknown("it answered 404".to_owned()),
            ),
            (
                413,
                r#"{"error":"too large"}"#,
                ProcessorError::Unknown("it answered 413".to_owned()),
            ),
            (
                400,
                r#"{"error":{"code":"x","type":null}}"#,
                ProcessorError::Unknown("it answered 400".to_owned()),
            ),
            (500, "{}", ProcessorError::Unknown("it answered 500".to_owned())),
            (
                503,
                "<html>",
                ProcessorError::Unknown("it answered 503".to_owned()),
            ),
        ] {
            assert_eq!(shown(status, body), expected, "{status}");
        }
    }

    #[test]
    fn a_refusal_has_stripes_code_and_at_most_300_characters_of_its_words() {
        let body = serde_json::json!({"error": {"type": "card_error", "message": "ä".repeat(400)}});
        let expected = ProcessorError::Refused {
            code: "card_error".to_owned(),
            message: "ä".repeat(300),
        };
        assert_eq!(shown(402, &body.to_string()), expected);
    }

    #[test]
    fn nothing_is_repeated_of_words_about_the_key() {
        let body = r#"{"error":{"code":"api_key_expired","message":"Expired API Key: sk_live_canary"}}"#;
        for status in [401, 403] {
            let error = shown(status, body);
            assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        }
    }
}
