//! The two kinds of calls on credits: chat completions and tools.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use turnpike_core::access::KeyKind;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::CallId;
use turnpike_core::ledger::command::{Drift, DriftKind, NewClaim, NewHold};
use turnpike_core::ledger::hold::{CallSubject, ClaimKey};
use turnpike_core::ledger::Payer;
use turnpike_core::money::{Micros, PicoUsd};
use turnpike_core::pricing::{Charge, EffectiveMarkup, EndpointCost, charge};
use turnpike_core::usage::Usage;
use turnpike_store::ApiKey;
use turnpike_upstream::{ChatApi, Completion};

use crate::auth::{Actor, require_active};
use crate::chat::{Bounded, ChatRequest};
use crate::engine::{Admitted, Answer, Done, Engine};
use crate::error::AppError;
use crate::json;
use crate::providers::{FrozenPrice, Offer, ProviderEntry, Shelf, ToolEntry, end_user_markup, require_enabled, tool_price_json};
use crate::sandbox;
use crate::stream::StreamPlan;

/// The endpoint name of chat completions in records.
pub const CHAT_ENDPOINT: &str = "chat-completions";

/// What a caller sends beside the body.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// Who calls.
    pub actor: Actor,
    /// Whose balance pays.
    pub payer: Payer,
    /// Method and path, part of the fingerprint and of the key's scope.
    pub route: String,
    /// The caller's `Idempotency-Key`.
    pub idempotency_key: Option<Arc<str>>,
    /// The caller's tags, checked.
    pub attribution: Option<Arc<str>>,
    /// The caller's loop id, checked.
    pub loop_id: Option<Arc<str>>,
}

/// The use cases of calls.
pub struct CallDesk {
    pub(crate) engine: Arc<Engine>,
    pub(crate) shelf: Arc<Shelf>,
}

impl CallContext {
    /// The claim of the caller's idempotency key for this request.
    fn claim(&self, raw: &[u8]) -> Option<NewClaim> {
        let key = self.idempotency_key.clone()?;
        let owner = self.payer.as_owner();
        let mut fingerprint = Sha256::new();
        for part in [self.route.as_bytes(), raw, owner.as_bytes()] {
            fingerprint.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            fingerprint.update(part);
        }
        // The scope: the tenant's own keys share one namespace, each end user has another.
        let scope = if owner.is_empty() { format!("tenant {}", self.route) } else { format!("user {owner} {}", self.route) };
        Some(NewClaim {
            key: ClaimKey { tenant: self.actor.tenant.id, scope: scope.into(), key },
            fingerprint: fingerprint.finalize().into(),
        })
    }

    fn markup(&self, key: &ApiKey, provider: &str, slug: &str) -> EffectiveMarkup {
        match self.payer {
            Payer::Pool => EffectiveMarkup::NONE,
            Payer::EndUser(_) => end_user_markup(&self.actor.tenant, key, provider, slug),
        }
    }
}

/// A call that is checked and priced, and not yet held.
struct Prepared<P> {
    provider: Arc<ProviderEntry>,
    subject: CallSubject,
    hold: Charge,
    longest_ms: i64,
    plan: P,
}

struct ChatPlan {
    price: FrozenPrice,
    bounded: Bounded,
    stream: bool,
    wants_usage_chunk: bool,
}

impl CallDesk {
    /// A desk over `engine`, selling what is on `shelf`.
    pub const fn new(engine: Arc<Engine>, shelf: Arc<Shelf>) -> Self {
        Self { engine, shelf }
    }

    /// A chat completion.
    ///
    /// # Errors
    /// Every code of decisions section 2 that concerns calls.
    pub async fn chat(&self, context: &CallContext, raw: &[u8]) -> Result<Answer, AppError> {
        let key = context.actor.require_calling_key()?;
        if key.kind == KeyKind::Sandbox {
            return sandbox::chat(&self.engine, &self.shelf, context, raw).await;
        }
        require_active(&context.actor.tenant)?;
        let required = context.actor.tenant.settings.require_idempotency_key.unwrap_or(false);
        if required && context.idempotency_key.is_none() {
            return Err(key_required());
        }
        let claim = context.claim(raw);
        let prepared = match self.prepare_chat(context, key, raw) {
            Ok(prepared) => prepared,
            Err(error) => return self.replay_or(context, claim.as_ref(), error).await,
        };
        let admitted = match self.admit(context, claim, &prepared).await? {
            Ok(admitted) => admitted,
            Err(call) => return self.replay(context, call).await,
        };
        let settlement =
            context.actor.tenant.settings.stream_settlement.unwrap_or(self.engine.settings.stream_settlement);
        let Prepared { provider, plan, .. } = prepared;
        let call = admitted.call.call;
        let run = self.engine.run(call, move |engine, answer| async move {
            if plan.stream {
                let plan = StreamPlan {
                    price: plan.price,
                    settlement,
                    prompt_bound: plan.bounded.prompt,
                    completion_bound: plan.bounded.completion,
                    body: plan.bounded.body,
                    keep_usage_chunk: plan.wants_usage_chunk,
                };
                engine.run_stream(&admitted, &provider, plan, answer).await;
            } else {
                let result = engine.complete(&admitted, &provider, plan.price, plan.bounded).await;
                tell(answer, result);
            }
        });
        run.await
    }

    fn prepare_chat(&self, context: &CallContext, key: &ApiKey, raw: &[u8]) -> Result<Prepared<ChatPlan>, AppError> {
        let request = ChatRequest::parse(raw)?;
        let offer: Offer = self.shelf.model(&request.model)?;
        let provider_id = offer.entry.provider.id();
        let slug = format!("{provider_id}/{}", offer.model);
        require_enabled(key, provider_id, &slug)?;
        let (stream, wants_usage_chunk) = (request.stream, request.wants_usage_chunk);
        let bounded = request.bound(&offer)?;
        let price = FrozenPrice::new(offer.priced.clone(), context.markup(key, provider_id, &slug));
        let hold = price.bound(bounded.prompt, bounded.completion, bounded.images)?;
        let subject = CallSubject {
            provider: provider_id.into(),
            endpoint: CHAT_ENDPOINT.into(),
            model: Some(offer.model),
            streamed: stream,
            credential: context.actor.label().into(),
            attribution: context.attribution.clone(),
            price: price.to_json().into(),
        };
        let longest_ms =
            if stream { self.engine.settings.max_stream_ms } else { offer.entry.total_timeout_ms };
        let plan = ChatPlan { price, bounded, stream, wants_usage_chunk };
        Ok(Prepared { provider: offer.entry, subject, hold, longest_ms, plan })
    }

    /// A tool of a provider.
    ///
    /// # Errors
    /// Every code of decisions section 2 that concerns calls.
    pub async fn execute(
        &self,
        context: &CallContext,
        provider: &str,
        endpoint: &str,
        raw: &[u8],
    ) -> Result<Answer, AppError> {
        let key = context.actor.require_calling_key()?;
        let (entry, tool) = self.shelf.tool(provider, endpoint)?;
        if key.kind == KeyKind::Sandbox {
            return sandbox::tool(&self.engine, context, &entry, endpoint, tool, raw);
        }
        require_active(&context.actor.tenant)?;
        if context.idempotency_key.is_none() {
            return Err(key_required());
        }
        let claim = context.claim(raw);
        let prepared = match self.prepare_tool(context, key, entry, endpoint, tool, raw).await {
            Ok(prepared) => prepared,
            Err(error) => return self.replay_or(context, claim.as_ref(), error).await,
        };
        let admitted = match self.admit(context, claim, &prepared).await? {
            Ok(admitted) => admitted,
            Err(call) => return self.replay(context, call).await,
        };
        let shelf = self.shelf.clone();
        let (endpoint, hold) = (endpoint.to_owned(), prepared.hold);
        let (args, usage) = prepared.plan;
        let call = admitted.call.call;
        let run = self.engine.run(call, move |engine, answer| async move {
            let result = engine.execute(&admitted, &shelf, &prepared.provider, &endpoint, &args, hold, usage).await;
            tell(answer, result);
        });
        run.await
    }

    async fn prepare_tool(
        &self,
        context: &CallContext,
        key: &ApiKey,
        entry: Arc<ProviderEntry>,
        endpoint: &str,
        tool: &ToolEntry,
        raw: &[u8],
    ) -> Result<Prepared<(Value, Option<Usage>)>, AppError> {
        let provider_id = entry.provider.id();
        let slug = format!("{provider_id}/{endpoint}");
        require_enabled(key, provider_id, &slug)?;
        let args = parse_args(tool, raw)?;
        let markup = context.markup(key, provider_id, &slug);
        let (base, usage) = match tool.price.price(&args)? {
            EndpointCost::Exact { cost, usage_units } => {
                (cost, Some(Usage { units: usage_units, ..Usage::default() }))
            }
            EndpointCost::Live => (self.live_price(&entry, endpoint, tool, &args).await?, None),
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
        let hold = charge(base, &markup)?;
        let longest_ms = entry.total_timeout_ms;
        Ok(Prepared { provider: entry, subject, hold, longest_ms, plan: (args, usage) })
    }

    async fn live_price(
        &self,
        entry: &ProviderEntry,
        endpoint: &str,
        tool: &ToolEntry,
        args: &Value,
    ) -> Result<PicoUsd, AppError> {
        let quoted = entry.provider.quote(endpoint, tool.http.as_ref(), args).await.map_err(|error| {
            tracing::warn!(provider = entry.provider.id(), endpoint, %error, "no quote");
            AppError::new(ErrorCode::PriceUnavailable, "the provider gave no price for this call").retry_after(5)
        })?;
        let base = PicoUsd::from_micros(quoted);
        if tool.price.ceiling().is_some_and(|ceiling| base > ceiling) {
            return Err(AppError::new(
                ErrorCode::PriceUnavailable,
                "the provider's price is above what this service sells it for",
            ));
        }
        Ok(base)
    }

    async fn admit<P>(
        &self,
        context: &CallContext,
        claim: Option<NewClaim>,
        prepared: &Prepared<P>,
    ) -> Result<Result<Admitted, CallId>, AppError> {
        let engine = &self.engine;
        let lifetime = prepared.longest_ms.saturating_add(engine.settings.hold_slack_ms);
        let hold = NewHold {
            call: CallId(engine.environment.new_id()),
            payer: context.payer.clone(),
            claim,
            loop_id: context.loop_id.clone(),
            amount: prepared.hold.effective,
            base: prepared.hold.base,
            subject: prepared.subject.clone(),
            instance: engine.settings.instance,
            deadline: engine.environment.now().plus_millis(lifetime),
        };
        let tenant = &context.actor.tenant;
        engine.admit(tenant.id, tenant.credits_per_dollar, hold, prepared.hold).await
    }
}

/// Hands an answer to the handler; a client that went away finds it by its key or call id.
pub(crate) fn tell(answer: oneshot::Sender<Result<Answer, AppError>>, result: Result<Answer, AppError>) {
    drop(answer.send(result));
}

fn key_required() -> AppError {
    AppError::new(ErrorCode::IdempotencyKeyRequired, "send an Idempotency-Key header with this paid call")
}

/// Reads a tool's arguments and checks them against its schema; no body means no arguments.
pub(crate) fn parse_args(tool: &ToolEntry, raw: &[u8]) -> Result<Value, AppError> {
    let args = if raw.is_empty() { Value::Object(serde_json::Map::new()) } else { Value::Object(json::parse_object(raw)?) };
    let mut details = Vec::new();
    for error in tool.validator.iter_errors(&args).take(10) {
        let path = error.instance_path().to_string();
        details.push(serde_json::json!({ "path": path, "message": error.to_string() }));
    }
    if details.is_empty() {
        return Ok(args);
    }
    Err(AppError::new(ErrorCode::ValidationError, "the arguments do not fit the tool's schema")
        .with("details", details))
}

impl Engine {
    /// Asks the provider for a completion, trying once more when nothing was sent.
    async fn complete(
        &self,
        admitted: &Admitted,
        entry: &ProviderEntry,
        price: FrozenPrice,
        bounded: Bounded,
    ) -> Result<Answer, AppError> {
        self.mark_dispatched(admitted).await?;
        let ask = || entry.provider.complete(ChatApi::ChatCompletions, bounded.body.clone());
        let completion = match ask().await {
            Err(error) if !error.sent() => ask().await,
            result => result,
        };
        fail::fail_point!("after-upstream");
        match completion {
            Ok(completion) => {
                let done = settle(admitted, &price, completion);
                self.capture(admitted, done).await
            }
            Err(error) => Err(self.fail(admitted, &error).await),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call's parts, used once")]
    async fn execute(
        &self,
        admitted: &Admitted,
        shelf: &Shelf,
        entry: &ProviderEntry,
        endpoint: &str,
        args: &Value,
        hold: Charge,
        usage: Option<Usage>,
    ) -> Result<Answer, AppError> {
        let (_, tool) = shelf.tool(entry.provider.id(), endpoint)?;
        self.mark_dispatched(admitted).await?;
        let ask = || entry.provider.execute(endpoint, tool.http.as_ref(), args);
        let reply = match ask().await {
            Err(error) if !error.sent() => ask().await,
            result => result,
        };
        fail::fail_point!("after-upstream");
        match reply {
            Ok(reply) => self.capture(admitted, Done { body: reply.body, charge: hold, usage, drift: None }).await,
            Err(error) => Err(self.fail(admitted, &error).await),
        }
    }
}

/// What a finished completion costs: its usage at the frozen price, never more than the hold.
fn settle(admitted: &Admitted, price: &FrozenPrice, completion: Completion) -> Done {
    let (charge, drift) = settle_usage(admitted, price, completion.usage.as_ref(), completion.usage_fault.as_deref());
    Done { body: completion.body, charge, usage: completion.usage, drift }
}

/// Turns a usage report into a charge and, where the two differ, a drift record.
pub(crate) fn settle_usage(
    admitted: &Admitted,
    price: &FrozenPrice,
    usage: Option<&Usage>,
    fault: Option<&str>,
) -> (Charge, Option<Drift>) {
    let hold = admitted.hold;
    let drift = |kind, detail: &str, loss| Some(Drift { kind, detail: detail.into(), loss });
    match (usage, fault) {
        (_, Some(fault)) => (hold, drift(DriftKind::UsageImpossible, fault, Micros::ZERO)),
        (None, None) => (hold, drift(DriftKind::UsageMissing, "the provider reported no usage", Micros::ZERO)),
        (Some(usage), None) => match price.cost(usage) {
            Ok(cost) if cost.effective <= hold.effective => (cost, None),
            Ok(cost) => {
                let loss = cost.base.saturating_sub_zero(hold.base);
                (hold, drift(DriftKind::AboveHold, "the reported usage costs more than the hold", loss))
            }
            Err(error) => (hold, drift(DriftKind::UsageImpossible, &error.to_string(), Micros::ZERO)),
        },
    }
}
