//! The request of a tool, built from its arguments.
//!
//! The rule: the path is a template of the operator's; an argument fills its place in one segment,
//! percent-encoded, and can neither leave the segment nor make it a dot segment. Names of headers and cookies
//! are the operator's. Nothing is sent from here.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::endpoint::{ArgPlace, ArgStyle, ArgsIn, BodyEncoding, HttpEndpoint, ToolMethod};

/// Longest path with its query.
const MAX_TARGET: usize = 16 * 1024;
/// Longest value of a header or cookie.
const MAX_HEADER: usize = 8 * 1024;

/// An argument that its place cannot take; the words are for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{arg}: {reason}")]
pub struct ArgFault {
    /// Which.
    pub arg: String,
    /// A fixed description.
    pub reason: &'static str,
}

fn fault(arg: &str, reason: &'static str) -> ArgFault {
    ArgFault {
        arg: arg.to_owned(),
        reason,
    }
}

/// A request that can be sent below a base URL.
#[derive(Clone, Debug)]
pub struct ToolRequest {
    /// Its method.
    pub method: Method,
    /// Its path, percent-encoded, beginning with a slash.
    pub path: String,
    /// The pairs of its query, encoded, without the question mark.
    pub query: String,
    /// What arguments say in headers, and the media type of the body.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Option<Bytes>,
}

impl HttpEndpoint {
    /// What calling it with `args` sends.
    ///
    /// # Errors
    /// [`ArgFault`] for an argument that its place cannot take.
    pub fn request(&self, args: &Value) -> Result<ToolRequest, ArgFault> {
        let method = match self.method {
            ToolMethod::Get => Method::GET,
            ToolMethod::Post => Method::POST,
            ToolMethod::Put => Method::PUT,
            ToolMethod::Patch => Method::PATCH,
            ToolMethod::Delete => Method::DELETE,
        };
        let in_query = self.method == ToolMethod::Get || self.args_in == ArgsIn::Query;
        let has_body = !in_query
            || self
                .args
                .values()
                .any(|arg| matches!(arg.place, ArgPlace::Body | ArgPlace::WholeBody));
        let (path, used) = self.fill(&self.path, args)?;
        let mut parts = Parts::default();
        for (arg, value) in args.as_object().into_iter().flatten() {
            if used.contains(&arg.as_str()) || (value.is_null() && !self.keeps_null(arg)) {
                continue;
            }
            let settings = self.args.get(arg);
            let name = settings
                .and_then(|settings| settings.name.as_deref())
                .unwrap_or(arg);
            match settings {
                None if in_query => parts.query.add_loosely(name, value),
                None => drop(parts.members.insert(name.to_owned(), value.clone())),
                Some(settings) => match settings.place {
                    ArgPlace::Path => return Err(fault(arg, "the path has no place for it")),
                    ArgPlace::Query => parts.query.add(name, value, settings.style),
                    ArgPlace::Header => parts.header(arg, name, value)?,
                    ArgPlace::Cookie => parts.cookie(arg, name, value)?,
                    ArgPlace::Body => drop(parts.members.insert(name.to_owned(), value.clone())),
                    ArgPlace::WholeBody => parts.whole = Some((arg.clone(), value.clone())),
                },
            }
        }
        if path.len().saturating_add(parts.query.text.len()) > MAX_TARGET {
            return Err(fault("", "the arguments are too long for a URL"));
        }
        let body = if has_body {
            self.body(args, &mut parts)?
        } else {
            None
        };
        parts.finish_cookies()?;
        Ok(ToolRequest {
            method,
            path,
            query: parts.query.text,
            headers: parts.headers,
            body,
        })
    }

    /// In JSON `null` is a value; elsewhere it is an argument that was left out.
    fn keeps_null(&self, arg: &str) -> bool {
        let in_body = match self.args.get(arg) {
            Some(settings) => matches!(settings.place, ArgPlace::Body | ArgPlace::WholeBody),
            None => self.method != ToolMethod::Get && self.args_in == ArgsIn::Body,
        };
        in_body && self.encoding == BodyEncoding::Json
    }

    fn body(&self, args: &Value, parts: &mut Parts) -> Result<Option<Bytes>, ArgFault> {
        let members = std::mem::take(&mut parts.members);
        let whole_only = self.args.values().any(|arg| arg.place == ArgPlace::WholeBody);
        let value = match parts.whole.take() {
            Some((_arg, value)) => value,
            None if whole_only && members.is_empty() => return Ok(None),
            // Args that are no object are a body as they are.
            None if !args.is_object() => args.clone(),
            None => Value::Object(members),
        };
        let (kind, body) = match self.encoding {
            BodyEncoding::Json => {
                let body = serde_json::to_vec(&value)
                    .map_err(|_unencodable| fault("", "the arguments cannot be encoded"))?;
                let kind = self.content_type.as_deref().unwrap_or("application/json");
                (kind, Bytes::from(body))
            }
            BodyEncoding::Form => {
                let fields = value
                    .as_object()
                    .ok_or_else(|| fault("", "a form needs an object"))?;
                let mut form = Pairs::default();
                for (name, value) in fields {
                    let style = self.form_style(name);
                    form.add(name, value, style);
                }
                ("application/x-www-form-urlencoded", Bytes::from(form.text))
            }
        };
        let kind = HeaderValue::from_str(kind).map_err(|_invalid| fault("", "the media type is unusable"))?;
        parts.headers.insert(CONTENT_TYPE, kind);
        Ok(Some(body))
    }

    /// How a member of a form is written; `name` is the provider's.
    fn form_style(&self, name: &str) -> ArgStyle {
        let settings = self.args.iter().find(|(arg, settings)| {
            settings.place == ArgPlace::Body && settings.name.as_deref().unwrap_or(arg) == name
        });
        settings.map_or(ArgStyle::Deep, |(_, settings)| settings.style)
    }

    /// Fills every `{name}` of a template; returns the path and the args it used.
    pub(super) fn fill<'a>(
        &'a self,
        template: &'a str,
        args: &Value,
    ) -> Result<(String, Vec<&'a str>), ArgFault> {
        let mut path = String::with_capacity(template.len());
        let mut used = Vec::new();
        for segment in template.trim_start_matches('/').split('/') {
            path.push('/');
            let begin = path.len();
            let mut rest = segment;
            let mut last = None;
            while let Some((before, after)) = rest.split_once('{') {
                let Some((name, after)) = after.split_once('}') else {
                    break;
                };
                path.push_str(before);
                let arg = self.path_arg(name);
                let texts = args.get(arg).and_then(texts);
                let texts = texts.ok_or_else(|| fault(arg, "a path argument is missing"))?;
                for (index, text) in texts.iter().enumerate() {
                    check_path_text(arg, text)?;
                    if index > 0 {
                        path.push(',');
                    }
                    percent_encode(&mut path, text);
                }
                used.push(arg);
                last = Some(arg);
                rest = after;
            }
            path.push_str(rest);
            if let Some(arg) = last
                && matches!(path.get(begin..), Some("" | "." | ".."))
            {
                return Err(fault(arg, "an argument cannot be a path segment"));
            }
        }
        Ok((path, used))
    }

    /// The argument that fills `{name}`.
    fn path_arg<'a>(&'a self, name: &'a str) -> &'a str {
        let renamed = self.args.iter().find(|(arg, settings)| {
            settings.place == ArgPlace::Path && settings.name.as_deref().unwrap_or(arg) == name
        });
        renamed.map_or(name, |(arg, _)| arg)
    }
}

/// What a path or a header takes of a value: a scalar, or the scalars of a list.
fn texts(value: &Value) -> Option<Vec<Cow<'_, str>>> {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().map(scalar).collect(),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => scalar(value).map(|text| vec![text]),
    }
}

/// Upstreams that decode a path before they route it must not be led elsewhere.
fn check_path_text(arg: &str, text: &str) -> Result<(), ArgFault> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(fault(arg, "must not be empty or have control characters"));
    }
    if text.split(['/', '\\']).any(|part| matches!(part, "." | "..")) {
        return Err(fault(arg, "an argument cannot be a path segment"));
    }
    Ok(())
}

/// The parts of a request while it is built.
#[derive(Default)]
struct Parts {
    query: Pairs,
    headers: HeaderMap,
    cookies: Vec<String>,
    members: Map<String, Value>,
    whole: Option<(String, Value)>,
}

impl Parts {
    fn header(&mut self, arg: &str, name: &str, value: &Value) -> Result<(), ArgFault> {
        let unusable = || fault(arg, "cannot stand in a header");
        let text = texts(value).ok_or_else(unusable)?.join(",");
        if text.len() > MAX_HEADER || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(unusable());
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_invalid| unusable())?;
        let value = HeaderValue::from_str(&text).map_err(|_invalid| unusable())?;
        self.headers.insert(name, value);
        Ok(())
    }

    fn cookie(&mut self, arg: &str, name: &str, value: &Value) -> Result<(), ArgFault> {
        let unusable = || fault(arg, "cannot stand in a cookie");
        let text = texts(value).ok_or_else(unusable)?.join(",");
        if text.len() > MAX_HEADER {
            return Err(unusable());
        }
        let mut pair = format!("{name}=");
        percent_encode(&mut pair, &text);
        self.cookies.push(pair);
        Ok(())
    }

    fn finish_cookies(&mut self) -> Result<(), ArgFault> {
        if self.cookies.is_empty() {
            return Ok(());
        }
        let value = HeaderValue::from_str(&self.cookies.join("; "))
            .map_err(|_invalid| fault("", "the cookies are unusable"))?;
        self.headers.insert(COOKIE, value);
        Ok(())
    }
}

/// `name=value` pairs of a query or a form.
#[derive(Default)]
pub(super) struct Pairs {
    text: String,
}

impl Pairs {
    /// For args without a place of their own: a list repeats its name, an object is JSON.
    pub(super) fn add_loosely(&mut self, name: &str, value: &Value) {
        let style = if value.is_object() {
            ArgStyle::Json
        } else {
            ArgStyle::Repeat
        };
        self.add(name, value, style);
    }

    pub(super) fn add(&mut self, name: &str, value: &Value, style: ArgStyle) {
        match (style, value) {
            (_, Value::Null) => {}
            (ArgStyle::Json, _) | (_, Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                self.pair(name, &plain(value));
            }
            (ArgStyle::Repeat, Value::Array(items)) => {
                for item in items.iter().filter(|item| !item.is_null()) {
                    self.pair(name, &plain(item));
                }
            }
            (ArgStyle::Repeat, Value::Object(members)) => {
                for (name, member) in members.iter().filter(|(_, member)| !member.is_null()) {
                    self.pair(name, &plain(member));
                }
            }
            (ArgStyle::Deep, Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.add(&format!("{name}[{index}]"), item, style);
                }
            }
            (ArgStyle::Deep, Value::Object(members)) => {
                for (member, value) in members {
                    self.add(&format!("{name}[{member}]"), value, style);
                }
            }
            (ArgStyle::Comma, _) => self.joined(name, value, ","),
            (ArgStyle::Space, _) => self.joined(name, value, "%20"),
            (ArgStyle::Pipe, _) => self.joined(name, value, "%7C"),
        }
    }

    /// A list, or an object's names and values in turn, in one pair.
    fn joined(&mut self, name: &str, value: &Value, separator: &str) {
        let mut texts: Vec<Cow<'_, str>> = Vec::new();
        match value {
            Value::Array(items) => texts.extend(items.iter().map(plain)),
            Value::Object(members) => {
                for (member, value) in members {
                    texts.extend([Cow::Borrowed(member.as_str()), plain(value)]);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => texts.push(plain(value)),
        }
        if texts.is_empty() {
            return;
        }
        self.begin(name);
        for (index, text) in texts.iter().enumerate() {
            if index > 0 {
                self.text.push_str(separator);
            }
            percent_encode(&mut self.text, text);
        }
    }

    fn begin(&mut self, name: &str) {
        if !self.text.is_empty() {
            self.text.push('&');
        }
        percent_encode(&mut self.text, name);
        self.text.push('=');
    }

    fn pair(&mut self, name: &str, text: &str) {
        self.begin(name);
        percent_encode(&mut self.text, text);
    }
}

/// A scalar's text, JSON of everything else.
fn plain(value: &Value) -> Cow<'_, str> {
    scalar(value).unwrap_or_else(|| Cow::Owned(value.to_string()))
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

/// Encodes everything but RFC 3986's unreserved characters.
pub fn percent_encode(out: &mut String, text: &str) {
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
