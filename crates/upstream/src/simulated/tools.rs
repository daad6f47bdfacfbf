//! The simulated provider's tools: `echo`, `units`, `live`, `slow`, `fail`.
//!
//! The rule: a reply is a pure function of the args and its size is bounded. Prices that `live` quotes are
//! deterministic; with `drift` in the args each quote given before adds that many µUSD.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use turnpike_core::money::Micros;

use crate::error::UpstreamError;
use crate::simulated::directives::MAX_DELAY;
use crate::simulated::status;
use crate::tool::ToolReply;

/// Most items of a `units` reply.
const MAX_UNITS: u64 = 1000;

fn number(args: &Value, name: &str) -> Option<u64> {
    args.get(name).and_then(Value::as_u64)
}

/// A tool's reply. Delays are the caller's: [`delay`].
///
/// # Errors
/// [`UpstreamError::Status`] from `fail`, and 404 for an unknown tool.
pub fn simulate_tool(endpoint: &str, args: &Value) -> Result<ToolReply, UpstreamError> {
    let body = match endpoint {
        "echo" => args.clone(),
        "units" => units(args),
        "live" => {
            let query = args.get("query").and_then(Value::as_str).unwrap_or_default();
            json!({"query": query, "answer": format!("simulated answer to {} characters", query.chars().count())})
        }
        "slow" => json!({"ok": true}),
        "fail" => {
            let code = number(args, "status").and_then(|code| u16::try_from(code).ok());
            return Err(status(
                code.filter(|code| (400..=599).contains(code)).unwrap_or(500),
                None,
            ));
        }
        _ => return Err(status(404, None)),
    };
    Ok(ToolReply {
        status: 200,
        body: Bytes::from(body.to_string()),
    })
}

fn units(args: &Value) -> Value {
    let count = number(args, "count")
        .or_else(|| number(args, "n"))
        .unwrap_or(1)
        .min(MAX_UNITS);
    let items: Vec<Value> = (0..count).map(|index| json!({"index": index})).collect();
    json!({"count": count, "items": items})
}

/// How long a tool takes.
pub(crate) fn delay(endpoint: &str, args: &Value) -> Duration {
    let default = if endpoint == "slow" { 2000 } else { 0 };
    let millis = number(args, "delay_ms")
        .filter(|_| endpoint == "slow")
        .unwrap_or(default);
    Duration::from_millis(millis).min(MAX_DELAY)
}

/// What a tool would cost: `live` asks 0.001 USD and 0.0001 USD per character of `query`.
pub(crate) fn quote(endpoint: &str, args: &Value, earlier: u64) -> Result<Micros, UpstreamError> {
    if endpoint != "live" {
        return Err(UpstreamError::NotSent {
            reason: "this tool has no quote",
        });
    }
    let query = args.get("query").and_then(Value::as_str).unwrap_or_default();
    let length = u64::try_from(query.chars().count()).unwrap_or(u64::MAX);
    let drift = number(args, "drift").unwrap_or(0).saturating_mul(earlier);
    let micros = length
        .saturating_mul(100)
        .saturating_add(1000)
        .saturating_add(drift);
    Ok(Micros::new(i64::try_from(micros).unwrap_or(i64::MAX)))
}
