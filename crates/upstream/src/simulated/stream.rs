//! The simulated provider's event stream, made chunk by chunk.
//!
//! The rule: the order is a real provider's (role, tokens, finish, usage with `choices: []`, `[DONE]`), and
//! the bytes pass through the same splitter and reader as those of a socket. Nothing is made in advance.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::error::UpstreamError;
use crate::openai::ChatApi;
use crate::simulated::directives::MAX_DELAY;
use crate::simulated::reply::Reply;
use crate::simulated::{DIED, pause};

/// A stream that is being simulated.
#[derive(Debug)]
pub(crate) struct SimulatedStream {
    reply: Reply,
    step: u64,
    delay: Duration,
    /// Delay left to spend.
    budget: Duration,
    die_after: Option<u64>,
}

impl SimulatedStream {
    pub(crate) fn new(reply: Reply, delay: Duration, die_after: Option<u64>) -> Self {
        Self {
            reply,
            step: 0,
            delay,
            budget: MAX_DELAY,
            die_after,
        }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        let delay = self.delay.min(self.budget);
        self.budget = self.budget.saturating_sub(delay);
        pause(delay).await;
        if self.die_after.is_some_and(|chunks| self.step >= chunks) {
            return Err(DIED);
        }
        let step = self.step;
        self.step = step.saturating_add(1);
        Ok(self.event(step))
    }

    /// Event number `step`: for each choice a role, then the tokens in turns, then for each choice a finish,
    /// then usage and the end.
    fn event(&self, step: u64) -> Option<Bytes> {
        let reply = &self.reply;
        let roles = reply.choices;
        let tokens = reply.choices.saturating_mul(reply.tokens());
        let Some(step) = step.checked_sub(roles) else {
            return Some(self.chunk(step, &json!({"role": "assistant", "content": ""}), "", None));
        };
        let Some(step) = step.checked_sub(tokens) else {
            let choice = step.checked_rem(reply.choices).unwrap_or(0);
            let index = step.checked_div(reply.choices).unwrap_or(0);
            let text = reply.token(choice, index);
            let name = if index < reply.reasoning {
                "reasoning_content"
            } else {
                "content"
            };
            return Some(self.chunk(choice, &json!({name: text}), &text, None));
        };
        let Some(step) = step.checked_sub(reply.choices) else {
            return Some(self.chunk(step, &json!({}), "", Some(reply.finish)));
        };
        match (step, reply.usage()) {
            (0, Some(usage)) => {
                let mut chunk = reply.envelope(self.object(), &json!([]));
                chunk["usage"] = usage;
                Some(event(&chunk))
            }
            (0, None) | (1, Some(_)) => Some(Bytes::from_static(b"data: [DONE]\n\n")),
            (_, _) => None,
        }
    }

    fn object(&self) -> &'static str {
        match self.reply.api {
            ChatApi::ChatCompletions => "chat.completion.chunk",
            ChatApi::Completions => "text_completion",
        }
    }

    fn chunk(&self, choice: u64, delta: &Value, text: &str, finish: Option<&str>) -> Bytes {
        let choice = match self.reply.api {
            ChatApi::ChatCompletions => json!({"index": choice, "delta": delta, "finish_reason": finish}),
            ChatApi::Completions => json!({"index": choice, "text": text, "finish_reason": finish}),
        };
        event(&self.reply.envelope(self.object(), &json!([choice])))
    }
}

fn event(chunk: &Value) -> Bytes {
    Bytes::from(format!("data: {chunk}\n\n"))
}
