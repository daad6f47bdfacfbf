//! Tools that are plain endpoints of a provider.
//!
//! [`endpoint`] says how a tool is called, [`request`] makes the request of its arguments, which the app has
//! checked by their schema; here it is sent, with the provider's credentials, which no argument can replace.
//! Replies are valid JSON or an error.

mod endpoint;
mod price;
mod request;

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use serde::de::IgnoredAny;
use serde_json::Value;
use turnpike_core::money::Micros;

pub use self::endpoint::{
    ArgPlace, ArgSettings, ArgStyle, ArgsIn, BodyEncoding, HttpEndpoint, QuoteSettings, ToolMethod,
    is_argument_header, is_credential_name,
};
pub use self::price::price;
use self::price::price_at;
pub use self::request::{ArgFault, ToolRequest, percent_encode};
use crate::client::Client;
use crate::error::UpstreamError;
use crate::headers::{self, Accept};
use crate::provider::BaseUrl;
use crate::secret::Secret;

/// A tool's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolReply {
    /// The upstream's status, 2xx.
    pub status: u16,
    /// Valid JSON; `null` when the upstream sent no content.
    pub body: Bytes,
}

/// What one tool may take of its provider's time and size of answers; never more than the provider's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallBounds {
    /// Longest the call may take.
    pub timeout: Option<Duration>,
    /// Longest answer that is taken, in bytes.
    pub max_answer_bytes: Option<usize>,
}

const fn not_sent(reason: &'static str) -> UpstreamError {
    UpstreamError::NotSent { reason }
}

fn unusable(fault: &ArgFault) -> UpstreamError {
    not_sent(fault.reason)
}

/// How a provider is told who calls.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    /// By a header.
    Header(HeaderName, HeaderValue),
    /// By a pair of the query, encoded: its name with `=`, and its value.
    Query(String, Secret),
}

/// The HTTP side of a tool provider.
#[derive(Debug)]
pub(crate) struct HttpTools {
    client: Client,
    base: BaseUrl,
    credential: Option<Credential>,
}

impl HttpTools {
    pub(crate) fn new(client: Client, base: BaseUrl, credential: Option<Credential>) -> Self {
        Self {
            client,
            base,
            credential,
        }
    }

    pub(crate) async fn execute(
        &self,
        spec: &HttpEndpoint,
        args: &Value,
        bounds: CallBounds,
    ) -> Result<ToolReply, UpstreamError> {
        let request = spec.request(args).map_err(|fault| unusable(&fault))?;
        self.call(&self.client.bounded(bounds), request, spec.may_be_empty)
            .await
    }

    pub(crate) async fn quote(
        &self,
        spec: &HttpEndpoint,
        args: &Value,
        bounds: CallBounds,
    ) -> Result<Micros, UpstreamError> {
        let quote = spec.quote.as_ref().ok_or(not_sent("this tool has no quote"))?;
        let asks = HttpEndpoint {
            path: quote.path.clone(),
            ..HttpEndpoint::default()
        };
        let request = asks.request(args).map_err(|fault| unusable(&fault))?;
        let reply = self.call(&self.client.bounded(bounds), request, false).await?;
        let text = std::str::from_utf8(&reply.body).map_err(|_invalid| UpstreamError::bad("not UTF-8"))?;
        price_at(text, &quote.price_pointer).ok_or(UpstreamError::bad("quote without a usable price"))
    }

    async fn call(
        &self,
        client: &Client,
        request: ToolRequest,
        may_be_empty: bool,
    ) -> Result<ToolReply, UpstreamError> {
        let mut headers = headers::request_headers(Accept::Json, false, None);
        headers.extend(request.headers);
        let mut target = request.path;
        let mut query = request.query;
        match &self.credential {
            None => {}
            Some(Credential::Header(name, value)) => drop(headers.insert(name.clone(), value.clone())),
            Some(Credential::Query(name, value)) => {
                // INVARIANT: who calls is said once, by the operator.
                let constant = target.split_once('?').map_or("", |(_, constant)| constant);
                let mut pairs = query.split('&').chain(constant.split('&'));
                if pairs.any(|pair| pair.starts_with(name.as_str())) {
                    return Err(not_sent("an argument has the name of the provider's key"));
                }
                if !query.is_empty() {
                    query.push('&');
                }
                query.push_str(name);
                query.push_str(value.expose());
            }
        }
        if !query.is_empty() {
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(&query);
        }
        let uri = self
            .base
            .join(&target)
            .map_err(|_invalid| not_sent("the path is no valid URL"))?;
        let deadline = client.total_deadline();
        let response = client
            .send(request.method, uri, headers, request.body.unwrap_or_default())
            .await?;
        let status = response.status();
        if !status.is_success() {
            return Err(client.status_error(response, deadline).await);
        }
        let json = headers::is_json(response.headers());
        let body = client.collect(response.into_body(), deadline).await?;
        if body.is_empty() && (may_be_empty || matches!(status.as_u16(), 202 | 204 | 205)) {
            return Ok(ToolReply {
                status: status.as_u16(),
                body: Bytes::from_static(b"null"),
            });
        }
        if !json {
            return Err(UpstreamError::bad("content type is not JSON"));
        }
        let text = std::str::from_utf8(&body).map_err(|_invalid| UpstreamError::bad("body is not UTF-8"))?;
        serde_json::from_str::<IgnoredAny>(text)
            .map_err(|_malformed| UpstreamError::bad("malformed JSON"))?;
        Ok(ToolReply {
            status: status.as_u16(),
            body,
        })
    }
}

#[cfg(test)]
mod tests;
