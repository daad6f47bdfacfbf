//! Tools that are plain JSON endpoints of a provider.
//!
//! The rule: the path is a template of the operator's; an argument fills exactly one segment, percent-encoded,
//! and can neither leave it nor be a dot segment. Replies are valid JSON or an error; a quoted price is read
//! from its raw digits, never through a float. Schemas of args are checked by the app before they come here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use http::header::HeaderValue;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use turnpike_core::money::{Micros, PicoUsd};

use crate::client::Client;
use crate::error::UpstreamError;
use crate::headers::{self, Accept};
use crate::provider::BaseUrl;

/// HTTP method of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ToolMethod {
    /// GET: args go into the query.
    Get,
    /// POST.
    #[default]
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

/// Where the args go that no path segment takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgsIn {
    /// Into a JSON body.
    #[default]
    Body,
    /// Into the query string.
    Query,
}

/// How a tool is asked for its price.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QuoteSettings {
    /// Path that is sent the args as a JSON body by POST; same template rules.
    pub path: String,
    /// JSON pointer to the price in US dollars: a decimal string or a number.
    pub price_pointer: String,
}

/// A tool's endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HttpEndpoint {
    /// Its method.
    #[serde(default)]
    pub method: ToolMethod,
    /// Its path below the provider's base URL: `/users/{id}/notes`.
    pub path: String,
    /// Where the other args go.
    #[serde(default)]
    pub args_in: ArgsIn,
    /// How it is asked for its price.
    #[serde(default)]
    pub quote: Option<QuoteSettings>,
}

/// A tool's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolReply {
    /// The upstream's status, 2xx.
    pub status: u16,
    /// Valid JSON; `null` when the upstream sent no content.
    pub body: Bytes,
}

const fn not_sent(reason: &'static str) -> UpstreamError {
    UpstreamError::NotSent { reason }
}

/// The HTTP side of a tool provider.
#[derive(Debug)]
pub(crate) struct HttpTools {
    client: Client,
    base: BaseUrl,
    auth: Option<HeaderValue>,
}

impl HttpTools {
    pub(crate) fn new(client: Client, base: BaseUrl, auth: Option<HeaderValue>) -> Self {
        Self { client, base, auth }
    }

    pub(crate) async fn execute(
        &self,
        spec: &HttpEndpoint,
        args: &Value,
    ) -> Result<ToolReply, UpstreamError> {
        let method = match spec.method {
            ToolMethod::Get => Method::GET,
            ToolMethod::Post => Method::POST,
            ToolMethod::Put => Method::PUT,
            ToolMethod::Patch => Method::PATCH,
            ToolMethod::Delete => Method::DELETE,
        };
        let in_query = spec.method == ToolMethod::Get || spec.args_in == ArgsIn::Query;
        let (path, used) = fill(&spec.path, args)?;
        let rest = without(args, &used);
        if in_query {
            self.call(method, &with_query(path, &rest), None).await
        } else {
            self.call(method, &path, Some(encode(&rest)?)).await
        }
    }

    pub(crate) async fn quote(&self, spec: &HttpEndpoint, args: &Value) -> Result<Micros, UpstreamError> {
        let quote = spec.quote.as_ref().ok_or(not_sent("this tool has no quote"))?;
        let (path, used) = fill(&quote.path, args)?;
        let reply = self
            .call(Method::POST, &path, Some(encode(&without(args, &used))?))
            .await?;
        let text = std::str::from_utf8(&reply.body).map_err(|_invalid| UpstreamError::bad("not UTF-8"))?;
        price_at(text, &quote.price_pointer).ok_or(UpstreamError::bad("quote without a usable price"))
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<ToolReply, UpstreamError> {
        let uri = self
            .base
            .join(path)
            .map_err(|_invalid| not_sent("the path is no valid URL"))?;
        let deadline = self.client.total_deadline();
        let headers = headers::request_headers(Accept::Json, body.is_some(), self.auth.as_ref());
        let response = self
            .client
            .send(method, uri, headers, body.unwrap_or_default())
            .await?;
        let status = response.status();
        if !status.is_success() {
            return Err(self.client.status_error(response, deadline).await);
        }
        let json = headers::is_json(response.headers());
        let body = self.client.collect(response.into_body(), deadline).await?;
        if body.is_empty() && matches!(status.as_u16(), 202 | 204 | 205) {
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

fn encode(args: &Value) -> Result<Bytes, UpstreamError> {
    serde_json::to_vec(args)
        .map(Bytes::from)
        .map_err(|_unencodable| not_sent("args cannot be encoded"))
}

/// Fills the segments `{name}` of a template; returns the path and the names it used.
fn fill<'a>(template: &'a str, args: &Value) -> Result<(String, Vec<&'a str>), UpstreamError> {
    let mut path = String::with_capacity(template.len());
    let mut used = Vec::new();
    for segment in template.trim_start_matches('/').split('/') {
        path.push('/');
        let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
            path.push_str(segment);
            continue;
        };
        let text =
            scalar(args.get(name).unwrap_or(&Value::Null)).ok_or(not_sent("a path argument is missing"))?;
        if matches!(text.as_ref(), "" | "." | "..") {
            return Err(not_sent("an argument cannot be a path segment"));
        }
        percent_encode(&mut path, &text);
        used.push(name);
    }
    Ok((path, used))
}

/// The args that no path segment took.
fn without<'a>(args: &'a Value, used: &[&str]) -> Cow<'a, Value> {
    match args {
        Value::Object(fields) if !used.is_empty() => Cow::Owned(Value::Object(
            fields
                .iter()
                .filter(|(name, _)| !used.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )),
        Value::Object(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_) => Cow::Borrowed(args),
    }
}

/// The text of a value that can stand in a URL.
fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Appends the args as a query: a list repeats its name, an object is JSON, `null` is left out.
fn with_query(mut path: String, args: &Value) -> String {
    let mut separator = '?';
    let mut pair = |name: &str, value: &Value| {
        let text = match value {
            Value::Null => return,
            Value::Object(_) | Value::Array(_) => Cow::Owned(value.to_string()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => scalar(value).unwrap_or_default(),
        };
        path.push(separator);
        separator = '&';
        percent_encode(&mut path, name);
        path.push('=');
        percent_encode(&mut path, &text);
    };
    for (name, value) in args.as_object().into_iter().flatten() {
        match value {
            Value::Array(items) => items.iter().for_each(|item| pair(name, item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                pair(name, value);
            }
        }
    }
    path
}

/// Encodes everything but RFC 3986's unreserved characters.
fn percent_encode(out: &mut String, text: &str) {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 0xf)]);
        }
    }
}

/// The price that a JSON pointer leads to, in µUSD, rounded up.
fn price_at(json: &str, pointer: &str) -> Option<Micros> {
    let mut raw: &RawValue = serde_json::from_str(json).ok()?;
    let mut steps = pointer.split('/');
    if steps.next() != Some("") {
        return None;
    }
    for step in steps {
        let step = step.replace("~1", "/").replace("~0", "~");
        raw = if raw.get().starts_with('{') {
            serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(raw.get())
                .ok()?
                .get(step.as_str())
                .copied()?
        } else {
            let items = serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok()?;
            items.get(step.parse::<usize>().ok()?).copied()?
        };
    }
    if raw.get().starts_with('"') {
        return price(&serde_json::from_str::<String>(raw.get()).ok()?);
    }
    price(raw.get())
}

/// Reads a decimal (with or without an exponent) of US dollars exactly and rounds up to µUSD, once.
pub fn price(text: &str) -> Option<Micros> {
    const PICO_DIGITS: i32 = 12;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || (mantissa.contains('.') && fraction.is_empty()) || text.len() > 64 {
        return None;
    }
    // Value = digits × 10^-places.
    let places = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    let mut picos: i128 = 0;
    let mut below = false;
    let mut place = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    for byte in whole.bytes().chain(fraction.bytes()) {
        let digit = i128::from(char::from(byte).to_digit(10)?);
        place = place.checked_sub(1)?;
        if place < -PICO_DIGITS {
            below |= digit != 0;
        } else {
            picos = picos.checked_mul(10)?.checked_add(digit)?;
        }
    }
    for _ in places.min(PICO_DIGITS)..PICO_DIGITS {
        if picos == 0 {
            break;
        }
        picos = picos.checked_mul(10)?;
    }
    PicoUsd::new(picos.checked_add(i128::from(below))?).ceil_micros()
}

#[cfg(test)]
#[path = "tool_tests.rs"]
mod tests;
