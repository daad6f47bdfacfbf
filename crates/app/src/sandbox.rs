//! Calls with a sandbox key: checked like real ones, answered by the simulation, never charged.
//!
//! No ledger row is written and no socket opened. The answer is a function of the request, so a repeat gives
//! the same answer without anything being stored.

use tokio::sync::mpsc;
use turnpike_core::ids::CallId;
use turnpike_upstream::{ChatApi, simulated};

use crate::chat::ChatRequest;
use crate::context::CallContext;
use crate::engine::{Answer, Engine, simulated_receipt, upstream_failure};
use crate::error::AppError;
use crate::providers::{ProviderEntry, Shelf};
use crate::tools::ToolEntry;

pub(crate) async fn chat(
    engine: &Engine,
    shelf: &Shelf,
    context: &CallContext,
    raw: &[u8],
) -> Result<Answer, AppError> {
    let request = ChatRequest::parse(raw)?;
    let callable = context.callable(context.actor.key());
    let offer = shelf.model(&request.model, |provider, slug| callable.require(provider, slug))?;
    let (stream, wants_usage_chunk) = (request.stream, request.wants_usage_chunk);
    let body = request.bound(&offer)?.body;
    let body: serde_json::Value =
        serde_json::from_slice(&body).map_err(|error| AppError::internal(&error))?;
    let receipt = simulated_receipt(
        CallId(engine.environment.new_id()),
        context.actor.tenant.credits_per_dollar,
    );
    if !stream {
        let completion = simulated::simulate_chat(ChatApi::ChatCompletions, &body);
        return Ok(Answer::Json {
            body: completion.body,
            receipt,
        });
    }
    let mut events = simulated::simulate_stream(ChatApi::ChatCompletions, &body, wants_usage_chunk)
        .await
        .map_err(|error| upstream_failure(&error))?;
    let (sender, chunks) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Some(Ok(chunk)) = events.next().await {
            if sender.send(chunk).await.is_err() {
                break;
            }
        }
    });
    Ok(Answer::Stream { chunks, receipt })
}

pub(crate) fn tool(
    engine: &Engine,
    context: &CallContext,
    entry: &ProviderEntry,
    endpoint: &str,
    tool: &ToolEntry,
    raw: &[u8],
) -> Result<Answer, AppError> {
    let provider = entry.provider.id();
    let callable = context.callable(context.actor.key());
    callable.require(provider, &format!("{provider}/{endpoint}"))?;
    let args = tool.read_args(raw)?;
    tool.price()?.price(&args)?;
    let receipt = simulated_receipt(
        CallId(engine.environment.new_id()),
        context.actor.tenant.credits_per_dollar,
    );
    let body = match (&tool.definition.example, entry.provider.kind()) {
        (Some(example), _) => example.to_string().into(),
        (None, turnpike_upstream::ProviderKind::Simulated) => {
            simulated::simulate_tool(endpoint, &args)
                .map_err(|error| upstream_failure(&error))?
                .body
        }
        (None, turnpike_upstream::ProviderKind::Http | turnpike_upstream::ProviderKind::OpenAi) => {
            serde_json::json!({ "simulated": true, "args": args })
                .to_string()
                .into()
        }
    };
    Ok(Answer::Json { body, receipt })
}
