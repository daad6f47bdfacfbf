//! Directives to the simulated provider, words in the last user message (or the prompt):
//!
//! | word | effect |
//! |---|---|
//! | `sim:tokens=N` | visible completion tokens per choice, still bounded by the request's maximum |
//! | `sim:reasoning=N` | reasoning tokens, part of the completion |
//! | `sim:cached=N` | prompt tokens read from the cache |
//! | `sim:usage=…` | `none`, `null`, `zero`, `negative`, `huge`, `string`, `cached` (more cached than prompt), `x10` |
//! | `sim:echo` | answers with the message |
//! | `sim:delay_ms=N` | waits before the answer, or before each chunk; at most 30 s altogether |
//! | `sim:status=N` | fails with this status; `sim:retry_after=N` adds the header |
//! | `sim:fail=…` | `timeout`, `refused`, `garbage` |
//! | `sim:die_after=N` | the connection dies after N chunks |
//!
//! Unknown words and values out of range are ordinary text.

use std::time::Duration;

use serde_json::Value;

/// Longest that a simulated call takes.
pub const MAX_DELAY: Duration = Duration::from_secs(30);

/// How usage is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageReport {
    /// As it is.
    #[default]
    Honest,
    /// Not at all.
    Absent,
    /// `null`.
    Null,
    /// All zeros.
    Zero,
    /// A negative count.
    Negative,
    /// `1e300`.
    Huge,
    /// A string.
    Text,
    /// More cached tokens than prompt tokens.
    Cached,
    /// Ten times the tokens.
    TenTimes,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// With a status.
    Status(u16),
    /// No answer in time.
    Timeout,
    /// Nothing was sent.
    Refused,
    /// An answer that cannot be used.
    Garbage,
}

/// The directives of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// `sim:tokens`
    pub tokens: Option<u64>,
    /// `sim:reasoning`
    pub reasoning: u64,
    /// `sim:cached`
    pub cached: u64,
    /// `sim:usage`
    pub usage: UsageReport,
    /// `sim:echo`
    pub echo: bool,
    /// `sim:delay_ms`
    pub delay: Duration,
    /// `sim:status` and `sim:fail`
    pub failure: Option<Failure>,
    /// `sim:retry_after`
    pub retry_after: Option<Duration>,
    /// `sim:die_after`
    pub die_after: Option<u64>,
}

impl Directives {
    /// Reads the directives of a request.
    pub fn of(body: &Value) -> Self {
        let mut directives = Self::default();
        for word in last_text(body).split_whitespace() {
            if let Some(directive) = word.strip_prefix("sim:") {
                directives.apply(directive);
            }
        }
        directives
    }

    fn apply(&mut self, directive: &str) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        let number = value.parse::<u64>().ok();
        match (name, number) {
            ("echo", _) => self.echo = true,
            ("tokens", Some(_)) => self.tokens = number,
            ("reasoning", Some(count)) => self.reasoning = count,
            ("cached", Some(count)) => self.cached = count,
            ("delay_ms", Some(millis)) => self.delay = Duration::from_millis(millis).min(MAX_DELAY),
            ("retry_after", Some(seconds)) => self.retry_after = Some(Duration::from_secs(seconds.min(60))),
            ("die_after", Some(_)) => self.die_after = number,
            ("status", Some(_)) => {
                let code = value
                    .parse::<u16>()
                    .ok()
                    .filter(|code| (400..=599).contains(code));
                self.failure = code.map(Failure::Status).or(self.failure);
            }
            ("fail", _) => {
                self.failure = match value {
                    "timeout" => Some(Failure::Timeout),
                    "refused" => Some(Failure::Refused),
                    "garbage" => Some(Failure::Garbage),
                    _ => self.failure,
                }
            }
            ("usage", _) => {
                self.usage = match value {
                    "none" => UsageReport::Absent,
                    "null" => UsageReport::Null,
                    "zero" => UsageReport::Zero,
                    "negative" => UsageReport::Negative,
                    "huge" => UsageReport::Huge,
                    "string" => UsageReport::Text,
                    "cached" => UsageReport::Cached,
                    "x10" => UsageReport::TenTimes,
                    _ => self.usage,
                }
            }
            (_, _) => {}
        }
    }
}

/// The text of the last user message, or of the prompt.
pub(crate) fn last_text(body: &Value) -> String {
    let last_user = body
        .get("messages")
        .and_then(Value::as_array)
        .and_then(|messages| {
            messages
                .iter()
                .rev()
                .find(|message| message.get("role").and_then(Value::as_str) == Some("user"))
        });
    let content = last_user
        .and_then(|message| message.get("content"))
        .or_else(|| body.get("prompt"));
    content.map(text_of).unwrap_or_default()
}

/// The text of a content: a string, or the strings and `text` fields of its parts.
pub(crate) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts
                .iter()
                .filter_map(|part| part.get("text").unwrap_or(part).as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}
