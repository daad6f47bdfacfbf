//! What the simulated provider answers to a request: a pure function of it.
//!
//! The rule: a streamed and a plain answer to the same request have the same text, the same usage and the
//! same id; prompt tokens never exceed the request's bytes and completion tokens never exceed its maximum.

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::openai::{ChatApi, Completion, usage};
use crate::simulated::directives::{Directives, UsageReport, last_text, text_of};

/// Most tokens of one answer, all choices together.
const MAX_TOKENS: u64 = 65_536;
/// Tokens of an answer when nothing else is asked for.
const DEFAULT_TOKENS: u64 = 16;
/// Seconds since 1970 of every simulated answer.
const CREATED: u64 = 1_700_000_000;

const WORDS: [&str; 32] = [
    "amber", "bridge", "cedar", "delta", "ember", "field", "glass", "harbor", "island", "jasper", "kernel",
    "lantern", "meadow", "north", "orchard", "prairie", "quartz", "river", "signal", "timber", "umbra",
    "valley", "willow", "xenon", "yonder", "zephyr", "anchor", "breeze", "copper", "drift", "echo", "forge",
];

/// A simulated answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) api: ChatApi,
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) choices: u64,
    /// Reasoning tokens per choice.
    pub(crate) reasoning: u64,
    /// Visible tokens per choice.
    pub(crate) visible: u64,
    pub(crate) finish: &'static str,
    seed: u64,
    echo: Option<Vec<String>>,
    prompt: u64,
    cached: u64,
    report: UsageReport,
}

impl Reply {
    pub(crate) fn new(api: ChatApi, body: &Value) -> Self {
        let directives = Directives::of(body);
        let digest = fingerprint(body);
        let choices = number(body, "n").unwrap_or(1).clamp(1, 128);
        let ceiling = MAX_TOKENS.checked_div(choices).unwrap_or(1);
        let maximum = number(body, "max_completion_tokens").or_else(|| number(body, "max_tokens"));
        let limit = maximum.unwrap_or(ceiling).clamp(1, ceiling);
        let echo = directives.echo.then(|| echo_words(&last_text(body)));
        let default = echo.as_ref().map_or(DEFAULT_TOKENS, |words| count(words.len()));
        let wanted = directives.tokens.unwrap_or(default);
        let reasoning = directives.reasoning.min(limit);
        let visible = wanted.min(limit.saturating_sub(reasoning));
        let cut = visible < wanted || reasoning < directives.reasoning;
        let prompt = prompt_tokens(body);
        let prefix = match api {
            ChatApi::ChatCompletions => "chatcmpl-sim",
            ChatApi::Completions => "cmpl-sim",
        };
        let (head, _) = digest.split_at(8);
        Self {
            api,
            id: head
                .iter()
                .fold(prefix.to_owned(), |id, byte| format!("{id}{byte:02x}")),
            model: body
                .get("model")
                .and_then(Value::as_str)
                .unwrap_or("simulated")
                .to_owned(),
            choices,
            reasoning,
            visible,
            finish: if cut { "length" } else { "stop" },
            seed: head.iter().fold(0, |seed, byte| (seed << 8) | u64::from(*byte)),
            echo,
            prompt,
            cached: directives.cached.min(prompt),
            report: directives.usage,
        }
    }

    /// Token `index` of a choice; the reasoning tokens come first.
    pub(crate) fn token(&self, choice: u64, index: u64) -> String {
        let first = index == 0 || index == self.reasoning;
        let space = if first { "" } else { " " };
        let visible = index.checked_sub(self.reasoning);
        let echoed = visible.zip(self.echo.as_ref()).and_then(|(index, words)| {
            usize::try_from(index)
                .ok()
                .and_then(|index| words.get(index))
                .map(String::as_str)
        });
        let word = echoed.unwrap_or_else(|| {
            let mixed = mix(self.seed.wrapping_add(choice << 32).wrapping_add(index));
            WORDS[usize::from(u8::try_from(mixed >> 59).unwrap_or(0))]
        });
        format!("{space}{word}")
    }

    fn text(&self, choice: u64, tokens: std::ops::Range<u64>) -> String {
        tokens.map(|index| self.token(choice, index)).collect()
    }

    /// Tokens per choice.
    pub(crate) fn tokens(&self) -> u64 {
        self.reasoning.saturating_add(self.visible)
    }

    /// The fields that every object of the answer has.
    pub(crate) fn envelope(&self, object: &str, choices: &Value) -> Value {
        json!({"id": self.id, "object": object, "created": CREATED, "model": self.model, "choices": choices})
    }

    /// The `usage` value; `None` when it is left out.
    pub(crate) fn usage(&self) -> Option<Value> {
        let completion = self.tokens().saturating_mul(self.choices);
        let honest = |prompt: u64, completion: u64| {
            json!({
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt.saturating_add(completion),
                "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
                "completion_tokens_details": {
                    "reasoning_tokens": self.reasoning.saturating_mul(self.choices), "audio_tokens": 0,
                },
            })
        };
        match self.report {
            UsageReport::Honest => Some(honest(self.prompt, completion)),
            UsageReport::Absent => None,
            UsageReport::Null => Some(Value::Null),
            UsageReport::Zero => Some(json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})),
            UsageReport::Negative => Some(json!({"prompt_tokens": -5, "completion_tokens": completion})),
            UsageReport::Huge => Some(json!({"prompt_tokens": self.prompt, "completion_tokens": 1e300})),
            UsageReport::Text => Some(json!({"prompt_tokens": "many", "completion_tokens": completion})),
            UsageReport::Cached => Some(json!({
                "prompt_tokens": self.prompt,
                "completion_tokens": completion,
                "prompt_tokens_details": {"cached_tokens": self.prompt.saturating_add(1)},
            })),
            UsageReport::TenTimes => Some(honest(
                self.prompt.saturating_mul(10),
                completion.saturating_mul(10),
            )),
        }
    }

    /// The whole answer at once.
    pub(crate) fn completion(&self) -> Completion {
        let choices: Vec<Value> = (0..self.choices).map(|choice| self.choice(choice)).collect();
        let object = match self.api {
            ChatApi::ChatCompletions => "chat.completion",
            ChatApi::Completions => "text_completion",
        };
        let mut answer = self.envelope(object, &Value::Array(choices));
        let report = self.usage();
        if let Some(report) = report.clone() {
            answer["usage"] = report;
        }
        let raw = report.and_then(|report| RawValue::from_string(report.to_string()).ok());
        let (usage, usage_fault) = match raw.as_deref().map(usage::normalise) {
            None => (None, None),
            Some(Ok(usage)) => (usage, None),
            Some(Err(fault)) => (None, Some(fault)),
        };
        Completion {
            body: Bytes::from(answer.to_string()),
            usage,
            usage_fault,
            model: Some(self.model.clone()),
        }
    }

    fn choice(&self, choice: u64) -> Value {
        let text = self.text(choice, self.reasoning..self.tokens());
        match self.api {
            ChatApi::Completions => {
                json!({"index": choice, "text": text, "logprobs": null, "finish_reason": self.finish})
            }
            ChatApi::ChatCompletions => {
                let mut message = json!({"role": "assistant", "content": text});
                if self.reasoning > 0 {
                    message["reasoning_content"] = self.text(choice, 0..self.reasoning).into();
                }
                json!({"index": choice, "message": message, "logprobs": null, "finish_reason": self.finish})
            }
        }
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn number(body: &Value, name: &str) -> Option<u64> {
    body.get(name).and_then(Value::as_u64)
}

/// The words to send back, without directives.
fn echo_words(text: &str) -> Vec<String> {
    text.split_whitespace()
        .filter(|word| !word.starts_with("sim:"))
        .map(str::to_owned)
        .collect()
}

/// Words of all messages, one more per message, never more than the bytes of the contents (but one at least).
fn prompt_tokens(body: &Value) -> u64 {
    let mut texts: Vec<String> = Vec::new();
    if let Some(messages) = body.get("messages").and_then(Value::as_array) {
        texts.extend(
            messages
                .iter()
                .filter_map(|message| message.get("content"))
                .map(text_of),
        );
    }
    texts.extend(
        ["prompt", "suffix"]
            .iter()
            .filter_map(|name| body.get(*name))
            .map(text_of),
    );
    let tokens = texts
        .iter()
        .map(|text| count(text.split_whitespace().count().saturating_add(1)));
    let bytes = texts
        .iter()
        .map(|text| count(text.len()))
        .fold(0, u64::saturating_add);
    tokens.fold(0, u64::saturating_add).min(bytes).max(1)
}

/// A digest of what the request asks for: how it is delivered makes no difference.
fn fingerprint(body: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    match body {
        Value::Object(fields) => {
            for (name, value) in fields {
                if !matches!(name.as_str(), "stream" | "stream_options") {
                    hash.update(name.as_bytes());
                    hash.update([0]);
                    hash.update(value.to_string().as_bytes());
                    hash.update([0]);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            hash.update(body.to_string().as_bytes());
        }
    }
    hash.finalize().into()
}

/// splitmix64's finaliser.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
