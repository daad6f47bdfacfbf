//! Calls of tools on credits: arguments checked by their schema, priced, held, executed.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use turnpike_core::access::KeyKind;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::hold::CallSubject;
use turnpike_core::ledger::quote::QuoteKind;
use turnpike_core::money::PicoUsd;
use turnpike_core::pricing::{Charge, EndpointCost, charge};
use turnpike_core::usage::Usage;
use turnpike_store::ApiKey;

use crate::calls::{CallDesk, Prepared, Start, key_required};
use crate::context::CallContext;
use crate::engine::{Admitted, Answer, Done, Engine, tell};
use crate::error::AppError;
use crate::providers::{ProviderEntry, tool_price_json};
use crate::quotes::{presented, refused};
use crate::sandbox;
use crate::tools::ToolEntry;

/// A tool call that is checked and priced.
pub(crate) struct ToolPlan {
    endpoint: String,
    tool: Arc<ToolEntry>,
    args: Value,
    usage: Option<Usage>,
    charge: Charge,
}

impl CallDesk {
    /// Runs a tool of a provider.
    ///
    /// # Errors
    /// Every code of decisions section 2 that concerns calls.
    pub async fn execute(
        &self,
        context: CallContext,
        provider: String,
        endpoint: String,
        raw: Bytes,
    ) -> Result<Answer, AppError> {
        let desk = self.clone();
        let work = |answer| async move {
            let result = match desk.start_tool(&context, &provider, &endpoint, &raw).await {
                Ok(Start::Call(admitted, entry, plan)) => desk.engine.execute(&admitted, &entry, plan).await,
                Ok(Start::Answered(answered)) => Ok(answered),
                Err(error) => Err(error),
            };
            tell(answer, result);
        };
        self.engine.detach(work).await
    }

    async fn start_tool(
        &self,
        context: &CallContext,
        provider: &str,
        endpoint: &str,
        raw: &[u8],
    ) -> Result<Start<ToolPlan>, AppError> {
        let key = context.actor.require_caller()?.map(AsRef::as_ref);
        let is_sandbox = key.is_some_and(|key| key.kind == KeyKind::Sandbox);
        let (entry, tool) = match self.shelf.tool(provider, endpoint) {
            Ok(found) => found,
            // It may have been there when the call was made and charged.
            Err(gone) if context.idempotency_key.is_some() && !is_sandbox => {
                let claim = context.claim(raw);
                let replayed = self.replay_or(context, claim.as_ref(), gone).await;
                return replayed.map(Start::Answered);
            }
            Err(gone) => return Err(gone),
        };
        if is_sandbox {
            return sandbox::tool(&self.engine, context, &entry, endpoint, &tool, raw).map(Start::Answered);
        }
        if context.idempotency_key.is_none() {
            return Err(key_required());
        }
        let claim = context.claim(raw);
        match self.prepare_tool(context, key, entry, endpoint, tool, raw).await {
            Ok(prepared) => self.admit(context, claim, prepared, raw).await,
            Err(error) => self
                .replay_or(context, claim.as_ref(), error)
                .await
                .map(Start::Answered),
        }
    }

    pub(crate) async fn prepare_tool(
        &self,
        context: &CallContext,
        key: Option<&ApiKey>,
        entry: Arc<ProviderEntry>,
        endpoint: &str,
        tool: Arc<ToolEntry>,
        raw: &[u8],
    ) -> Result<Prepared<ToolPlan>, AppError> {
        let provider_id = entry.provider.id();
        let slug = format!("{provider_id}/{endpoint}");
        context.callable(key).require(provider_id, &slug)?;
        let args = tool.read_args(raw)?;
        let (store, environment) = (&*self.engine.store, &*self.engine.environment);
        let quoted = presented(store, environment, context, &slug, &tool, &args).await?;
        let markup = context.markup(key, provider_id, &slug);
        let bound_by_quote = quoted
            .as_ref()
            .is_some_and(|(quote, _)| quote.kind == QuoteKind::Ceiling);
        let (base, usage) = match price_tool(&entry, endpoint, &tool, &args).await? {
            ToolPrice::Exact { base, usage } => (base, usage),
            // Nobody is charged a ceiling who has not agreed to it.
            ToolPrice::Ceiling(base) if bound_by_quote => (base, None),
            ToolPrice::Ceiling(_) => return Err(no_price()),
        };
        let subject = CallSubject {
            provider: provider_id.into(),
            endpoint: endpoint.into(),
            model: None,
            streamed: false,
            credential: context.actor.label().into(),
            attribution: context.attribution.clone(),
            price: tool_price_json(base, &markup).into(),
        };
        let charge = charge(base, &markup)?;
        if let Some((quote, _)) = &quoted {
            quote.admit(charge.effective).map_err(|moved| refused(&moved))?;
        }
        let own = tool
            .bounds()
            .timeout
            .and_then(|own| i64::try_from(own.as_millis()).ok());
        let longest_ms = own.map_or(entry.total_timeout_ms, |own| own.min(entry.total_timeout_ms));
        let plan = ToolPlan {
            endpoint: endpoint.to_owned(),
            tool,
            args,
            usage,
            charge,
        };
        Ok(Prepared {
            provider: entry,
            subject,
            hold: charge,
            longest_ms,
            authority: quoted.map(|(_, authority)| authority),
            plan,
        })
    }
}

/// What a call of a tool costs at the provider.
pub(crate) enum ToolPrice {
    /// So much.
    Exact {
        base: PicoUsd,
        /// What was counted, where the price depends on it.
        usage: Option<Usage>,
    },
    /// At most so much: the provider says no price before the call.
    Ceiling(PicoUsd),
}

/// Works out what a call costs, and asks the provider where its price is live.
///
/// # Errors
/// `PRICE_UNAVAILABLE`, `VALIDATION_ERROR` for arguments that have no price.
pub(crate) async fn price_tool(
    entry: &ProviderEntry,
    endpoint: &str,
    tool: &ToolEntry,
    args: &Value,
) -> Result<ToolPrice, AppError> {
    let price = tool.price()?;
    if let EndpointCost::Exact { cost, usage_units } = price.price(args)? {
        let usage = Usage {
            units: usage_units,
            ..Usage::default()
        };
        return Ok(ToolPrice::Exact {
            base: cost,
            usage: Some(usage),
        });
    }
    let quoted = entry
        .provider
        .quote(endpoint, tool.definition.http.as_ref(), args, tool.bounds())
        .await;
    let base = match (quoted, price.ceiling()) {
        (Ok(quoted), _) => PicoUsd::from_micros(quoted),
        (Err(error), ceiling) => {
            tracing::warn!(provider = entry.provider.id(), endpoint, %error, "no quote");
            return ceiling.map(ToolPrice::Ceiling).ok_or_else(no_price);
        }
    };
    if price.ceiling().is_some_and(|ceiling| base > ceiling) {
        return Err(AppError::new(
            ErrorCode::PriceUnavailable,
            "the provider's price is above what this service sells it for",
        ));
    }
    Ok(ToolPrice::Exact { base, usage: None })
}

fn no_price() -> AppError {
    AppError::new(
        ErrorCode::PriceUnavailable,
        "the provider gave no price for this call",
    )
    .retry_after(5)
}

impl Engine {
    /// Asks the provider for the tool's result, trying once more when nothing was sent.
    async fn execute(
        &self,
        admitted: &Admitted,
        entry: &ProviderEntry,
        plan: ToolPlan,
    ) -> Result<Answer, AppError> {
        self.mark_dispatched(admitted).await?;
        let ask = || {
            let http = plan.tool.definition.http.as_ref();
            entry
                .provider
                .execute(&plan.endpoint, http, &plan.args, plan.tool.bounds())
        };
        let reply = match ask().await {
            Err(error) if !error.sent() => ask().await,
            result => result,
        };
        fail::fail_point!("after-upstream");
        match reply {
            Ok(reply) => {
                let done = Done {
                    body: reply.body,
                    charge: plan.charge,
                    usage: plan.usage,
                    drift: None,
                };
                self.capture(admitted, done).await
            }
            Err(error) => Err(self.fail(admitted, &error).await),
        }
    }
}
