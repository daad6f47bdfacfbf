//! Calls on credits: what every call shares, and chat completions.

use std::sync::Arc;

use bytes::Bytes;
use turnpike_core::access::KeyKind;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::CallId;
use turnpike_core::ledger::command::{NewClaim, NewHold};
use turnpike_core::ledger::hold::CallSubject;
use turnpike_core::ledger::quote::CallAuthority;
use turnpike_core::pricing::Charge;
use turnpike_store::ApiKey;
use turnpike_upstream::ChatApi;

use crate::approvals::Dear;
use crate::chat::{Bounded, ChatRequest};
use crate::context::CallContext;
use crate::engine::{Admission, Admitted, Answer, AnswerSender, Engine, tell};
use crate::error::AppError;
use crate::providers::{FrozenPrice, Offer, ProviderEntry, Shelf};
use crate::sandbox;
use crate::settle::settle;
use crate::stream::StreamPlan;

/// The endpoint name of chat completions in records.
pub const CHAT_ENDPOINT: &str = "chat-completions";

/// How often a call is tried with an approval that another call may take first.
const APPROVAL_TRIES: u32 = 4;

/// The use cases of calls. Cheap to clone.
#[derive(Clone)]
pub struct CallDesk {
    pub(crate) engine: Arc<Engine>,
    pub(crate) shelf: Arc<Shelf>,
}

/// A call that is checked and priced, and not yet held.
pub(crate) struct Prepared<P> {
    pub(crate) provider: Arc<ProviderEntry>,
    pub(crate) subject: CallSubject,
    pub(crate) hold: Charge,
    pub(crate) longest_ms: i64,
    /// The quote that it is made with.
    pub(crate) authority: Option<CallAuthority>,
    pub(crate) plan: P,
}

pub(crate) struct ChatPlan {
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
    pub async fn chat(&self, context: CallContext, raw: Bytes) -> Result<Answer, AppError> {
        let desk = self.clone();
        let work = |answer| async move { desk.run_chat(&context, &raw, answer).await };
        self.engine.detach(work).await
    }

    async fn run_chat(&self, context: &CallContext, raw: &[u8], answer: AnswerSender) {
        let (admitted, provider, plan) = match self.start_chat(context, raw).await {
            Ok(Start::Call(admitted, provider, plan)) => (admitted, provider, plan),
            Ok(Start::Answered(answered)) => return tell(answer, Ok(answered)),
            Err(error) => return tell(answer, Err(error)),
        };
        if !plan.stream {
            let result = self
                .engine
                .complete(&admitted, &provider, plan.price, plan.bounded)
                .await;
            return tell(answer, result);
        }
        let chosen = context.actor.tenant.settings.stream_settlement;
        let plan = StreamPlan {
            price: plan.price,
            settlement: chosen.unwrap_or(self.engine.settings.stream_settlement),
            prompt_bound: plan.bounded.prompt,
            completion_bound: plan.bounded.completion,
            body: plan.bounded.body,
            keep_usage_chunk: plan.wants_usage_chunk,
        };
        self.engine.run_stream(&admitted, &provider, plan, answer).await;
    }

    async fn start_chat(&self, context: &CallContext, raw: &[u8]) -> Result<Start<ChatPlan>, AppError> {
        let key = context.actor.require_caller()?.map(AsRef::as_ref);
        if key.is_some_and(|key| key.kind == KeyKind::Sandbox) {
            return sandbox::chat(&self.engine, &self.shelf, context, raw)
                .await
                .map(Start::Answered);
        }
        let required = context
            .actor
            .tenant
            .settings
            .require_idempotency_key
            .unwrap_or(false);
        if required && context.idempotency_key.is_none() {
            return Err(key_required());
        }
        if context.approval_token.is_some() {
            return Err(AppError::new(
                ErrorCode::ValidationError,
                "an approval token is for the tool that was estimated",
            ));
        }
        let claim = context.claim(raw);
        match self.prepare_chat(context, key, raw) {
            Ok(prepared) => self.admit(context, claim, prepared, raw).await,
            Err(error) => self
                .replay_or(context, claim.as_ref(), error)
                .await
                .map(Start::Answered),
        }
    }

    pub(crate) fn prepare_chat(
        &self,
        context: &CallContext,
        key: Option<&ApiKey>,
        raw: &[u8],
    ) -> Result<Prepared<ChatPlan>, AppError> {
        let request = ChatRequest::parse(raw)?;
        let callable = context.callable(key);
        let offer: Offer = self
            .shelf
            .model(&request.model, |provider, slug| callable.require(provider, slug))?;
        let provider_id = offer.entry.provider.id();
        let slug = format!("{provider_id}/{}", offer.model);
        let (stream, wants_usage_chunk) = (request.stream, request.wants_usage_chunk);
        let bounded = request.bound(&offer)?;
        let price = FrozenPrice::new(offer.priced.clone(), context.markup(key, provider_id, &slug));
        let price = price.with_images(bounded.images);
        let hold = price.bound(&bounded)?;
        let subject = CallSubject {
            provider: provider_id.into(),
            endpoint: CHAT_ENDPOINT.into(),
            model: Some(offer.model),
            streamed: stream,
            credential: context.actor.label().into(),
            attribution: context.attribution.clone(),
            price: price.to_json().into(),
        };
        let longest_ms = if stream {
            // The first event may take as long as a whole call, and a slow reader delays the last one.
            let slow = i64::try_from(self.engine.settings.slow_reader_ms).unwrap_or(i64::MAX);
            let longest = self.engine.settings.max_stream_ms.saturating_add(slow);
            longest.saturating_add(offer.entry.total_timeout_ms)
        } else {
            offer.entry.total_timeout_ms
        };
        let plan = ChatPlan {
            price,
            bounded,
            stream,
            wants_usage_chunk,
        };
        Ok(Prepared {
            provider: offer.entry,
            subject,
            hold,
            longest_ms,
            authority: None,
            plan,
        })
    }

    /// Takes the hold of a prepared call, or answers it from an earlier attempt.
    pub(crate) async fn admit<P>(
        &self,
        context: &CallContext,
        claim: Option<NewClaim>,
        prepared: Prepared<P>,
        raw: &[u8],
    ) -> Result<Start<P>, AppError> {
        let mut authority = prepared.authority.clone();
        for _ in 0..APPROVAL_TRIES {
            let hold = self.new_hold(context, claim.clone(), &prepared, authority.clone());
            let tenant = &context.actor.tenant;
            let admitted = self
                .engine
                .admit(tenant.id, tenant.credits_per_dollar, hold, prepared.hold)
                .await;
            match (admitted, context.payer.external_user_id()) {
                (Ok(Admission::Held(admitted)), _) => {
                    return Ok(Start::Call(*admitted, prepared.provider, prepared.plan));
                }
                (Ok(Admission::Existing(call)), _) => {
                    return self.replay(context, call).await.map(Start::Answered);
                }
                (Err(required), Some(owner)) if required.code == ErrorCode::ApprovalRequired => {
                    let call = Dear {
                        owner,
                        slug: prepared.subject.slug(),
                        amount: prepared.hold.effective,
                        raw,
                    };
                    let quoted = prepared.authority.clone();
                    authority = Some(self.approved(context, &call, quoted, required).await?);
                }
                (Err(error), _) => return Err(error),
            }
        }
        // Others used every approval that was there.
        Err(AppError::unavailable())
    }

    fn new_hold<P>(
        &self,
        context: &CallContext,
        claim: Option<NewClaim>,
        prepared: &Prepared<P>,
        authority: Option<CallAuthority>,
    ) -> NewHold {
        let engine = &self.engine;
        let lifetime = prepared.longest_ms.saturating_add(engine.settings.hold_slack_ms);
        NewHold {
            call: CallId(engine.environment.new_id()),
            payer: context.payer.clone(),
            claim,
            loop_id: context.loop_id.clone(),
            amount: prepared.hold.effective,
            base: prepared.hold.base,
            subject: prepared.subject.clone(),
            instance: engine.settings.instance,
            deadline: engine.environment.now().plus_millis(lifetime),
            token: context.actor.token(),
            authority: authority.map(Box::new),
        }
    }
}

/// What the checks and the hold of a call led to.
pub(crate) enum Start<P> {
    /// A call to make.
    Call(Admitted, Arc<ProviderEntry>, P),
    /// An answer that needs no call: simulated, or stored.
    Answered(Answer),
}

pub(crate) fn key_required() -> AppError {
    AppError::new(
        ErrorCode::IdempotencyKeyRequired,
        "send an Idempotency-Key header with this paid call",
    )
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
        let ask = || {
            entry
                .provider
                .complete(ChatApi::ChatCompletions, bounded.body.clone())
        };
        let completion = match ask().await {
            Err(error) if !error.sent() => ask().await,
            result => result,
        };
        fail::fail_point!("after-upstream");
        match completion {
            Ok(completion) => {
                let done = settle(admitted.hold, &price, completion);
                self.capture(admitted, done).await
            }
            Err(error) => Err(self.fail(admitted, &error).await),
        }
    }
}
