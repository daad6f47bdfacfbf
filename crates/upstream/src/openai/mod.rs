//! Providers that speak OpenAI's wire format, over the guarded client.
//!
//! The rule: bodies pass verbatim in both directions; of an answer only `usage` and `model` are read. The
//! request body (with `stream` and `stream_options` as they must be) is made by the app, prices are `core`'s.

pub mod chunk;
pub mod stream;
pub mod usage;

use std::borrow::Cow;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Method, StatusCode, Uri};
use serde::Deserialize;
use serde_json::value::RawValue;
use turnpike_core::usage::Usage;

use crate::client::Client;
use crate::error::{Phase, UpstreamError};
use crate::headers::{self, Accept};
use crate::provider::{BaseUrl, BuildError};
use stream::{EventStream, Source};

/// Which of the two chat-like calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChatApi {
    /// `POST /chat/completions`.
    ChatCompletions,
    /// `POST /completions`: text completion and fill-in-the-middle.
    Completions,
}

/// A provider's answer to a call that is no stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The provider's JSON, verbatim.
    pub body: Bytes,
    /// What it says was used; `None` when it says nothing or something impossible.
    pub usage: Option<Usage>,
    /// Why the reported usage was not believed.
    pub usage_fault: Option<String>,
    /// The model that answered, as the provider names it.
    pub model: Option<String>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
}

/// Longest model name that is kept.
const MAX_MODEL_BYTES: usize = 256;

/// A model name that is worth keeping.
pub(crate) fn model_name(raw: &RawValue) -> Option<String> {
    let name: Cow<'_, str> = serde_json::from_str(raw.get()).ok()?;
    (name.len() <= MAX_MODEL_BYTES).then(|| name.into_owned())
}

/// Validates a whole answer and reads what is read of it.
///
/// # Errors
/// [`UpstreamError::BadResponse`] for anything but one JSON object.
pub fn parse_completion(body: Bytes) -> Result<Completion, UpstreamError> {
    let text = json_object(&body)?;
    let answer: Answer<'_> =
        serde_json::from_str(text).map_err(|_malformed| UpstreamError::bad("malformed JSON"))?;
    let (usage, usage_fault) = match answer.usage.map(usage::normalise) {
        None => (None, None),
        Some(Ok(usage)) => (usage, None),
        Some(Err(fault)) => (None, Some(fault)),
    };
    let model = answer.model.and_then(model_name);
    Ok(Completion {
        body,
        usage,
        usage_fault,
        model,
    })
}

/// The text of `body` if it may be a JSON object.
fn json_object(body: &[u8]) -> Result<&str, UpstreamError> {
    if body.is_empty() {
        return Err(UpstreamError::bad("empty body"));
    }
    let text = std::str::from_utf8(body).map_err(|_invalid| UpstreamError::bad("body is not UTF-8"))?;
    if text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
        Ok(text)
    } else {
        Err(UpstreamError::bad("body is not a JSON object"))
    }
}

/// One provider.
#[derive(Debug)]
pub(crate) struct OpenAi {
    client: Client,
    chat: Uri,
    completions: Uri,
    auth: Option<HeaderValue>,
}

impl OpenAi {
    pub(crate) fn new(client: Client, base: &BaseUrl, auth: Option<HeaderValue>) -> Result<Self, BuildError> {
        Ok(Self {
            client,
            chat: base.join("/chat/completions")?,
            completions: base.join("/completions")?,
            auth,
        })
    }

    async fn post(
        &self,
        api: ChatApi,
        body: Bytes,
        accept: Accept,
    ) -> Result<http::Response<hyper::body::Incoming>, UpstreamError> {
        let uri = match api {
            ChatApi::ChatCompletions => self.chat.clone(),
            ChatApi::Completions => self.completions.clone(),
        };
        let headers = headers::request_headers(accept, true, self.auth.as_ref());
        let deadline = self.client.total_deadline();
        let response = self.client.send(Method::POST, uri, headers, body).await?;
        if response.status() == StatusCode::OK {
            Ok(response)
        } else if response.status().as_u16() < 400 {
            Err(UpstreamError::bad("unexpected status"))
        } else {
            Err(self.client.status_error(response, deadline).await)
        }
    }

    pub(crate) async fn complete(&self, api: ChatApi, body: Bytes) -> Result<Completion, UpstreamError> {
        let deadline = self.client.total_deadline();
        let response = self.post(api, body, Accept::Json).await?;
        if !headers::is_json(response.headers()) {
            return Err(UpstreamError::bad("content type is not JSON"));
        }
        parse_completion(self.client.collect(response.into_body(), deadline).await?)
    }

    pub(crate) async fn stream(
        &self,
        api: ChatApi,
        body: Bytes,
        keep_usage_chunk: bool,
    ) -> Result<EventStream, UpstreamError> {
        let deadline = self.client.total_deadline();
        let response = self.post(api, body, Accept::EventStream).await?;
        if !headers::is_event_stream(response.headers()) {
            return Err(UpstreamError::bad("content type is not an event stream"));
        }
        let source = Source::Http {
            body: response.into_body(),
            idle: self.client.settings().idle_timeout,
        };
        let opening = EventStream::open(source, keep_usage_chunk);
        match tokio::time::timeout_at(deadline, opening).await {
            Ok(opened) => opened,
            Err(_elapsed) => Err(UpstreamError::Timeout { phase: Phase::Total }),
        }
    }
}
