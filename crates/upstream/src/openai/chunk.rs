//! What is read of one streamed chunk: content lengths, usage, model, error, `[DONE]`.
//!
//! The rule: reading never changes and never refuses a chunk; one that cannot be read counts as delivered
//! with its whole length. What the numbers mean for the charge is left to the app.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// What one event's data says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen<'a> {
    /// The end marker.
    Done,
    /// Not a JSON object of the expected shape.
    Unread,
    /// A chunk.
    Chunk(Facts<'a>),
}

/// What is read of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Facts<'a> {
    /// Bytes of generated content.
    pub(crate) content: u64,
    pub(crate) usage: Option<&'a RawValue>,
    pub(crate) model: Option<&'a RawValue>,
    pub(crate) error: bool,
    /// A chunk that carries usage and no choice.
    pub(crate) usage_only: bool,
}

impl PartialEq for Facts<'_> {
    fn eq(&self, other: &Self) -> bool {
        let usage = |facts: &Self| facts.usage.map(RawValue::get);
        (self.content, self.error, self.usage_only) == (other.content, other.error, other.usage_only)
            && usage(self) == usage(other)
    }
}

impl Eq for Facts<'_> {}

/// Reads the data of one event.
pub(crate) fn read(data: &[u8]) -> Seen<'_> {
    if data.trim_ascii() == b"[DONE]" {
        return Seen::Done;
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return Seen::Unread;
    };
    if !text.trim_start().starts_with('{') {
        return Seen::Unread;
    }
    match serde_json::from_str::<Chunk<'_>>(text) {
        Ok(chunk) => Seen::Chunk(chunk.facts()),
        // An unexpected shape of the choices must not hide the usage beside them.
        Err(_unexpected) => match serde_json::from_str::<Outline<'_>>(text) {
            Ok(outline) => Seen::Chunk(Facts {
                content: u64::try_from(data.len()).unwrap_or(u64::MAX),
                usage: outline.usage,
                model: outline.model,
                error: outline.error.is_some(),
                usage_only: false,
            }),
            Err(_malformed) => Seen::Unread,
        },
    }
}

#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    error: Option<IgnoredAny>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    /// Groq's own place for usage.
    #[serde(borrow)]
    x_groq: Option<Beside<'a>>,
}

#[derive(Deserialize)]
struct Beside<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    delta: Option<Delta>,
    #[serde(default)]
    text: Length,
    /// Moonshot's place for usage.
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    content: Length,
    #[serde(default)]
    reasoning_content: Length,
    #[serde(default)]
    reasoning: Length,
    #[serde(default)]
    refusal: Length,
    tool_calls: Option<Vec<ToolCall>>,
    function_call: Option<Function>,
}

#[derive(Deserialize)]
struct ToolCall {
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    arguments: Length,
}

impl<'a> Chunk<'a> {
    fn facts(&self) -> Facts<'a> {
        let choices = self.choices.as_deref().unwrap_or_default();
        let inner = choices.iter().find_map(|choice| choice.usage);
        let usage = self
            .usage
            .or_else(|| self.x_groq.as_ref().and_then(|beside| beside.usage))
            .or(inner);
        Facts {
            content: choices.iter().map(Choice::content).fold(0, u64::saturating_add),
            usage,
            model: self.model,
            error: self.error.is_some(),
            usage_only: self.usage.is_some() && choices.is_empty() && self.error.is_none(),
        }
    }
}

impl Choice<'_> {
    fn content(&self) -> u64 {
        let delta = self.delta.as_ref().map_or(0, |delta| {
            let calls = delta.tool_calls.as_deref().unwrap_or_default();
            let functions = calls.iter().filter_map(|call| call.function.as_ref());
            // `reasoning` and `reasoning_content` are two names; some providers send both with one text.
            delta
                .content
                .0
                .saturating_add(delta.reasoning_content.0.max(delta.reasoning.0))
                .saturating_add(delta.refusal.0)
                .saturating_add(
                    functions
                        .chain(delta.function_call.as_ref())
                        .map(|function| function.arguments.0)
                        .fold(0, u64::saturating_add),
                )
        });
        delta.saturating_add(self.text.0)
    }
}

/// The bytes of all strings in a value: content is a string with most providers and a list of parts with
/// some (Mistral's thinking parts).
#[derive(Clone, Copy, Debug, Default)]
struct Length(u64);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LengthVisitor).map(Self)
    }
}

struct LengthVisitor;

impl<'de> Visitor<'de> for LengthVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<u64, E> {
        Ok(u64::try_from(text.len()).unwrap_or(u64::MAX))
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_bool<E>(self, _value: bool) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_i64<E>(self, _value: i64) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_u64<E>(self, _value: u64) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_f64<E>(self, _value: f64) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<u64, A::Error> {
        let mut sum: u64 = 0;
        while let Some(Length(length)) = items.next_element()? {
            sum = sum.saturating_add(length);
        }
        Ok(sum)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<u64, A::Error> {
        let mut sum: u64 = 0;
        while let Some((IgnoredAny, Length(length))) = entries.next_entry()? {
            sum = sum.saturating_add(length);
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> (u64, bool, bool, bool) {
        match read(text.as_bytes()) {
            Seen::Chunk(facts) => (
                facts.content,
                facts.usage.is_some(),
                facts.usage_only,
                facts.error,
            ),
            other @ (Seen::Done | Seen::Unread) => panic!("{other:?}"),
        }
    }

    #[test]
    fn content_is_counted_wherever_providers_put_it() {
        for (text, content) in [
            (r#"{"choices":[{"delta":{"content":"abc"}}]}"#, 3),
            (r#"{"choices":[{"delta":{"content":"\u00e9\n"}}]}"#, 3),
            (
                r#"{"choices":[{"delta":{"role":"assistant","content":null}}]}"#,
                0,
            ),
            // DeepSeek, llama.cpp; OpenRouter sends the same text under two names.
            (r#"{"choices":[{"delta":{"reasoning_content":"abcd"}}]}"#, 4),
            (
                r#"{"choices":[{"delta":{"reasoning_content":"abcd","reasoning":"abcd"}}]}"#,
                4,
            ),
            (
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"x","function":{"name":"f","arguments":"{}"}}]}}]}"#,
                2,
            ),
            (r#"{"choices":[{"text":"fim"},{"text":"fim"}]}"#, 6),
            // Mistral's thinking parts.
            (
                r#"{"choices":[{"delta":{"content":[{"type":"text","text":"ab"}]}}]}"#,
                6,
            ),
        ] {
            assert_eq!(facts(text).0, content, "{text}");
        }
    }

    #[test]
    fn usage_is_found_in_every_place_and_only_a_bare_one_is_usage_only() {
        for (text, expected) in [
            (
                r#"{"choices":[],"usage":{"prompt_tokens":1}}"#,
                (0, true, true, false),
            ),
            (r#"{"usage":{"prompt_tokens":1}}"#, (0, true, true, false)),
            (r#"{"choices":[],"usage":null}"#, (0, false, false, false)),
            // Azure's first chunk.
            (
                r#"{"choices":[],"prompt_filter_results":[]}"#,
                (0, false, false, false),
            ),
            // Mistral, Agnes: usage beside a last, empty delta.
            (
                r#"{"choices":[{"delta":{}}],"usage":{}}"#,
                (0, true, false, false),
            ),
            // Moonshot.
            (
                r#"{"choices":[{"delta":{},"usage":{"prompt_tokens":1}}]}"#,
                (0, true, false, false),
            ),
            // Groq.
            (
                r#"{"choices":[{"delta":{}}],"x_groq":{"id":"r","usage":{}}}"#,
                (0, true, false, false),
            ),
            (r#"{"error":{"message":"overloaded"}}"#, (0, false, false, true)),
            (r#"{"choices":[],"error":null}"#, (0, false, false, false)),
        ] {
            assert_eq!(facts(text), expected, "{text}");
        }
    }

    #[test]
    fn an_odd_shape_does_not_hide_the_usage() {
        let (content, usage, usage_only, _) = facts(r#"{"choices":{"a":1},"usage":{"prompt_tokens":1}}"#);
        assert_eq!((content > 0, usage, usage_only), (true, true, false));
        for text in ["[1]", "{", "hello", "\u{0}"] {
            assert_eq!(read(text.as_bytes()), Seen::Unread, "{text}");
        }
        assert_eq!(read(b" [DONE] "), Seen::Done);
    }
}
