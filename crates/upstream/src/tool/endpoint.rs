//! How a tool is called: its method, its path, and where each of its arguments goes.

use std::collections::BTreeMap;

use http::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

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

impl ToolMethod {
    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Where the args go that no path segment takes and that have no place of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgsIn {
    /// Into the body.
    #[default]
    Body,
    /// Into the query string.
    Query,
}

/// The part of a request that takes an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgPlace {
    /// A `{name}` of the path.
    Path,
    /// The query string.
    Query,
    /// A header; its name is the operator's.
    Header,
    /// A cookie.
    Cookie,
    /// A member of the body.
    Body,
    /// The body as a whole.
    WholeBody,
}

/// How lists and objects are written in a query or a form (OpenAPI's `style` and `explode`). In paths and headers
/// lists are joined by commas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgStyle {
    /// A list repeats its name, an object's members stand beside the others (`form`, exploded).
    #[default]
    Repeat,
    /// `name=a,b` (`form`).
    Comma,
    /// `name=a%20b` (`spaceDelimited`).
    Space,
    /// `name=a%7Cb` (`pipeDelimited`).
    Pipe,
    /// `name[member]=a` (`deepObject`), to any depth.
    Deep,
    /// JSON text.
    Json,
}

/// Where an argument goes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ArgSettings {
    /// The part of the request that takes it.
    #[serde(rename = "in")]
    pub place: ArgPlace,
    /// What the provider calls it; its own name where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How it is written.
    #[serde(default, skip_serializing_if = "is_default")]
    pub style: ArgStyle,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyEncoding {
    /// JSON.
    #[default]
    Json,
    /// `application/x-www-form-urlencoded`; nested values in brackets.
    Form,
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
    /// Where single args go, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, ArgSettings>,
    /// How the body is written.
    #[serde(default, skip_serializing_if = "is_default")]
    pub encoding: BodyEncoding,
    /// Media type of a JSON body that is not just `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Whether any success without a body is an answer (`null`), and not only 202, 204 and 205.
    #[serde(default, skip_serializing_if = "is_default")]
    pub may_be_empty: bool,
    /// How it is asked for its price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<QuoteSettings>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl HttpEndpoint {
    /// Checks what does not depend on arguments: the path, the names of headers and cookies, the media type.
    ///
    /// # Errors
    /// What is wrong, for the operator.
    pub fn check(&self) -> Result<(), String> {
        let outside = |letter: char| letter.is_control() || matches!(letter, '\\' | '#');
        let path = self.path.split('?').next().unwrap_or_default();
        // A provider may decode before it routes.
        let plain = path
            .to_ascii_lowercase()
            .replace("%2e", ".")
            .replace("%2f", "/")
            .replace("%5c", "/");
        if self.path.contains(outside) || plain.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(format!("the path {:?} cannot be called", self.path));
        }
        let json = |kind: &str| {
            let (main, _parameters) = kind.split_once(';').unwrap_or((kind, ""));
            HeaderValue::from_str(kind).is_ok() && main.trim().to_ascii_lowercase().ends_with("json")
        };
        if let Some(kind) = self.content_type.as_deref().filter(|kind| !json(kind)) {
            return Err(format!("content_type {kind:?} is no media type of JSON"));
        }
        for (arg, settings) in &self.args {
            let name = settings.name.as_deref().unwrap_or(arg);
            let usable = match settings.place {
                ArgPlace::Header => is_argument_header(name),
                ArgPlace::Cookie => is_token(name),
                ArgPlace::Path | ArgPlace::Query | ArgPlace::Body | ArgPlace::WholeBody => !name.is_empty(),
            };
            if !usable {
                return Err(format!("{name:?} cannot take an argument"));
            }
        }
        Ok(())
    }
}

fn is_token(name: &str) -> bool {
    HeaderName::from_bytes(name.as_bytes()).is_ok()
}

/// Whether a caller's argument may fill the header `name`: none that frames the message, routes it, says who
/// calls, or is ours.
pub fn is_argument_header(name: &str) -> bool {
    const OURS: [&str; 26] = [
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "date",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "max-forwards",
        "origin",
        "referer",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
    ];
    let lower = name.to_ascii_lowercase();
    is_token(name)
        && !OURS.contains(&lower.as_str())
        && ![
            "proxy-",
            "sec-",
            "x-forwarded-",
            "x-real-",
            "x-original-",
            "x-rewrite-",
        ]
        .iter()
        .any(|prefix| lower.starts_with(prefix))
        && !is_credential_header(&lower)
}

/// Whether a name is one that a caller's credentials go by in queries and cookies.
pub fn is_credential_name(name: &str) -> bool {
    let plain = letters_of(name);
    CREDENTIALS.contains(&plain.as_str()) || matches!(plain.as_str(), "auth" | "token" | "secret")
}

/// Names of credentials, without case and punctuation.
const CREDENTIALS: [&str; 10] = [
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "authkey",
    "authorization",
    "authtoken",
    "clientsecret",
    "privatetoken",
    "secretkey",
];

/// Headers are less often anything else: whatever has such a name in it.
fn is_credential_header(name: &str) -> bool {
    let plain = letters_of(name);
    CREDENTIALS.iter().any(|credential| plain.contains(credential))
        || plain.ends_with("token")
        || matches!(plain.as_str(), "auth" | "xauth" | "secret" | "xsecret")
}

fn letters_of(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}
