//! Top-ups: quotes, checkout sessions, what a session shows.
//!
//! The attempt's row is written before the processor is asked, under a key that every repeat uses again: whatever
//! is lost on the way, there is one session, and the sweep ends what nobody else does.

mod auto;
mod events;
mod refunds;
mod request;
pub(crate) mod sweep;
pub(crate) mod urls;
mod view;

use std::sync::Arc;

use fail::fail_point;
use serde_json::Value;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CommandId, TenantId, TopupId};
use turnpike_core::ledger::command::{
    AttachCheckout, AuditNote, NewClaim, NewTopup, PaymentState, TopupReport,
};
use turnpike_core::ledger::topup::{Topup, TopupSource, TopupState};
use turnpike_core::ledger::{Action, Command, Outcome, Payer};
use turnpike_core::money::CreditsPerDollar;
use turnpike_core::topup::{QuoteError, QuoteRules, quote};
use turnpike_store::{Store, SubmitError, Tenant, TopupFilter};
use turnpike_upstream::processor::{Checkout, NewCheckout, Processor, ProcessorError};

pub use events::Handled;
pub use request::{RefundRequest, TopupRequest, auto_topup_choice};
pub use sweep::TopupSweep;
pub use view::{refund_view, topup_view};

use crate::auth::Actor;
use crate::context;
use crate::environment::Environment;
use crate::error::AppError;
use crate::payouts::PayoutDesk;
use crate::schedule::Schedule;
use crate::tokens::TokenScope;

/// What the desk is told by the configuration.
#[derive(Clone, Debug)]
pub struct TopupSettings {
    /// How callers reach the service, without a slash at the end.
    pub public_url: String,
    /// How amounts are quoted.
    pub rules: QuoteRules,
    /// How long a checkout page works.
    pub session_ms: i64,
    /// From which age on the processor is asked about what is not settled.
    pub sweep_after_ms: i64,
    /// How long an automatic top-up rests after a failure.
    pub auto_pause_ms: i64,
}

/// The desk of top-ups. Without a processor it opens none.
pub struct TopupDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    processor: Option<Arc<dyn Processor>>,
    settings: TopupSettings,
    schedule: Schedule<TopupId>,
    payouts: Arc<PayoutDesk>,
}

/// What comes with a request beside its body.
#[derive(Clone, Debug)]
pub struct Repeatable {
    /// Method and path.
    pub route: String,
    /// The raw body.
    pub raw: bytes::Bytes,
    /// The caller's `Idempotency-Key`.
    pub key: Option<Arc<str>>,
}

impl Repeatable {
    pub(crate) fn claim(&self, tenant: TenantId, payer: &Payer) -> Option<NewClaim> {
        let key = self.key.clone()?;
        Some(context::claim(tenant, payer, &self.route, &self.raw, key))
    }
}

/// What a request is answered that may be a repeat.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The members of the answer.
    pub members: Value,
    /// Whether the request had been answered before, and did nothing.
    pub replayed: bool,
}

/// A page of top-ups.
#[derive(Clone, Debug)]
pub struct TopupPage {
    /// Newest first.
    pub topups: Vec<Value>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

fn no_such_session() -> AppError {
    AppError::new(ErrorCode::NotFound, "there is no such checkout session")
}

impl TopupDesk {
    /// A desk over `store`, whose pages `processor` makes; what that tells of payouts is for `payouts`.
    pub fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        processor: Option<Arc<dyn Processor>>,
        settings: TopupSettings,
        payouts: Arc<PayoutDesk>,
    ) -> Self {
        Self {
            store,
            environment,
            processor,
            settings,
            schedule: Schedule::default(),
            payouts,
        }
    }

    fn processor(&self) -> Result<&Arc<dyn Processor>, AppError> {
        self.processor.as_ref().ok_or_else(|| {
            AppError::new(
                ErrorCode::ServiceUnavailable,
                "this service has no payment processor configured",
            )
        })
    }

    /// A public session id: whoever knows it may pay, so it is 128 random bits.
    fn new_session(&self) -> Arc<str> {
        let random = self.environment.random_32();
        let (half, _) = random.split_at(16);
        format!("cs_{}", hex::encode(half)).into()
    }

    async fn submit(
        &self,
        tenant: TenantId,
        action: Action,
        note: Option<AuditNote>,
    ) -> Result<Outcome, SubmitError> {
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant,
            at: self.environment.now(),
            action,
            note: note.map(Arc::new),
        };
        self.store.submit(command).await
    }

    /// Submits what answers with a top-up; a repeat answers with the one there is.
    async fn submit_topup(
        &self,
        tenant: TenantId,
        action: Action,
        rate: CreditsPerDollar,
    ) -> Result<Topup, AppError> {
        match self.submit(tenant, action, None).await {
            Ok(Outcome::Topup(topup)) => Ok(*topup),
            Ok(Outcome::Existing(id)) => self.topup(tenant, TopupId(id)).await,
            Ok(_) => Err(AppError::internal(&"a top-up was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, rate)),
        }
    }

    async fn topup(&self, tenant: TenantId, id: TopupId) -> Result<Topup, AppError> {
        let found = self.store.find_topup(tenant, id).await?;
        found.ok_or_else(no_such_session)
    }

    /// Opens a checkout session for the end user of a token.
    ///
    /// # Errors
    /// The codes of decisions sections 2 and 7.
    pub async fn open_own(
        &self,
        actor: &Actor,
        request: &TopupRequest,
        repeat: &Repeatable,
    ) -> Result<Shown, AppError> {
        let session = actor.require_end_user(TokenScope::Topup)?;
        let payer = Payer::EndUser(session.id.clone());
        self.open(actor, payer, request, repeat).await
    }

    /// Opens a checkout session for the workspace's pool; a volume bonus may come with it.
    ///
    /// # Errors
    /// The codes of decisions sections 2 and 7.
    pub async fn open_pool(
        &self,
        actor: &Actor,
        request: &TopupRequest,
        repeat: &Repeatable,
    ) -> Result<Shown, AppError> {
        self.open(actor, Payer::Pool, request, repeat).await
    }

    async fn open(
        &self,
        actor: &Actor,
        payer: Payer,
        request: &TopupRequest,
        repeat: &Repeatable,
    ) -> Result<Shown, AppError> {
        let tenant = &actor.tenant;
        let processor = self.processor()?;
        let session: Arc<str> = self.new_session();
        let amount = request.amount(tenant)?;
        let is_pool = payer == Payer::Pool;
        let rules = self.rules_of(tenant);
        let quoted = quote(amount, &rules, is_pool).map_err(quote_error)?;
        let hosts = &tenant.settings.topups.url_hosts;
        let now = self.environment.now();
        let id = TopupId(self.environment.new_id());
        let new = NewTopup {
            id,
            owner: payer.external_user_id().cloned(),
            source: TopupSource::CheckoutSession,
            terms: view::terms(&quoted, tenant.credits_per_dollar),
            metadata: request.metadata.clone(),
            success_url: urls::checked("successUrl", request.success_url.as_deref(), &session, hosts)?,
            cancel_url: urls::checked("cancelUrl", request.cancel_url.as_deref(), &session, hosts)?,
            saves_method: is_pool && request.save_payment_method,
            credential: actor.label().into(),
            expires_at: now.plus_millis(self.settings.session_ms),
            claim: repeat.claim(tenant.id, &payer),
            session,
        };
        let action = Action::OpenTopup(Box::new(new));
        let topup = self
            .submit_topup(tenant.id, action, tenant.credits_per_dollar)
            .await?;
        fail_point!("after-topup-row");
        if topup.checkout.is_none() && topup.state == TopupState::Failed {
            return Err(processor_refused());
        }
        if topup.checkout.is_some() || topup.state != TopupState::Open {
            return Ok(Shown {
                members: topup_view(&topup, tenant),
                replayed: topup.id != id,
            });
        }
        let made = processor.create_checkout(&self.checkout_of(&topup, tenant)).await;
        fail_point!("after-session");
        let topup = self
            .settle_creation(tenant.id, tenant.credits_per_dollar, topup, made)
            .await?;
        Ok(Shown {
            members: topup_view(&topup, tenant),
            replayed: false,
        })
    }

    /// Records what came of asking for a page.
    async fn settle_creation(
        &self,
        tenant: TenantId,
        rate: CreditsPerDollar,
        topup: Topup,
        made: Result<Checkout, ProcessorError>,
    ) -> Result<Topup, AppError> {
        match made {
            Ok(checkout) => {
                let attach = AttachCheckout {
                    topup: (&topup).into(),
                    id: checkout.id.into(),
                    url: checkout.url.into(),
                };
                self.submit_topup(tenant, Action::AttachCheckout(attach), rate)
                    .await
            }
            Err(ProcessorError::Refused { code, message }) => {
                tracing::error!(
                    session = &*topup.session,
                    code,
                    message,
                    "the processor refused a session"
                );
                let report = TopupReport {
                    topup: (&topup).into(),
                    event: None,
                    state: PaymentState::Failed,
                    payment: None,
                    cents: 0,
                    mismatch: None,
                    customer: None,
                    method: None,
                    failure: Some((code.into(), message.into())),
                };
                self.submit_topup(tenant, Action::TopupReport(Box::new(report)), rate)
                    .await?;
                Err(processor_refused())
            }
            Err(error @ (ProcessorError::Unavailable(_) | ProcessorError::Unknown(_))) => {
                // The row stays open: the same idempotency key goes on with it, or the sweep does.
                tracing::warn!(session = &*topup.session, %error, "no checkout session yet");
                Err(AppError::new(
                    ErrorCode::ServiceUnavailable,
                    "the payment processor does not answer; try again with the same Idempotency-Key",
                )
                .retry_after(5))
            }
        }
    }

    /// The page of `topup`. It follows from the row alone, so that a repeat asks for the same.
    fn checkout_of(&self, topup: &Topup, tenant: &Tenant) -> NewCheckout {
        let result_page = format!("{}/checkout/{}/result", self.settings.public_url, topup.session);
        let to = |url: &Option<Arc<str>>| url.as_deref().unwrap_or(&result_page).to_owned();
        let credits = tenant.credits_per_dollar.credits(topup.terms.credits);
        NewCheckout {
            attempt: topup.id.to_string(),
            reference: topup.session.to_string(),
            amount_cents: topup.terms.total_cents(),
            description: format!("{credits} credits at {}", tenant.name),
            success_url: to(&topup.success_url),
            cancel_url: to(&topup.cancel_url),
            expires_at: topup.expires_at.millis().div_euclid(1000),
            customer: None,
            save_method: topup.saves_method,
        }
    }

    /// The service's rules, narrowed by the workspace's.
    fn rules_of(&self, tenant: &Tenant) -> QuoteRules {
        let mut rules = self.settings.rules.clone();
        let own = &tenant.settings.topups;
        rules.min = own.min_usd.map_or(rules.min, |min| min.max(rules.min));
        rules.max = own.max_usd.map_or(rules.max, |max| max.min(rules.max));
        rules
    }

    /// The top-up behind a public session id.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn find_session(&self, session: &str) -> Result<(Tenant, Topup), AppError> {
        if !session.starts_with("cs_") || session.len() > 128 {
            return Err(no_such_session());
        }
        let found = self.store.find_processor_ref(session).await?;
        let (tenant, id) = found.ok_or_else(no_such_session)?;
        let topup = self.topup(tenant, id).await?;
        // The processor's own names of a session are no names of ours.
        if *topup.session != *session {
            return Err(no_such_session());
        }
        let tenant = self
            .store
            .find_tenant(tenant)
            .await?
            .ok_or_else(no_such_session)?;
        Ok((tenant, topup))
    }

    /// What a session's own end user sees of it.
    ///
    /// # Errors
    /// `NOT_FOUND`, also for somebody else's.
    pub async fn own_session(&self, actor: &Actor, session: &str) -> Result<Value, AppError> {
        let user = actor.require_end_user(TokenScope::Topup)?;
        let (tenant, topup) = self.find_session(session).await?;
        if tenant.id != actor.tenant.id || topup.owner.as_ref() != Some(&user.id) {
            return Err(no_such_session());
        }
        Ok(topup_view(&topup, &tenant))
    }

    /// What the workspace sees of a session.
    ///
    /// # Errors
    /// `NOT_FOUND`, also for another workspace's.
    pub async fn session(&self, actor: &Actor, session: &str) -> Result<Value, AppError> {
        let (tenant, topup) = self.find_session(session).await?;
        if tenant.id != actor.tenant.id {
            return Err(no_such_session());
        }
        Ok(view::full_view(&topup, &tenant))
    }

    /// A page of the workspace's top-ups, newest first; of one payer when it is named.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn list(
        &self,
        actor: &Actor,
        payer: Option<Payer>,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<TopupPage, AppError> {
        let tenant = &actor.tenant;
        let before = match cursor {
            None => None,
            Some(session) => {
                let found = self.find_session(session).await;
                let (of, topup) = found.map_err(|_unknown| cursor_invalid())?;
                if of.id != tenant.id {
                    return Err(cursor_invalid());
                }
                Some(topup.id)
            }
        };
        let filter = TopupFilter {
            payer,
            before,
            limit: limit.saturating_add(1),
        };
        let mut topups = self.store.list_topups(tenant.id, &filter).await?;
        let size = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = topups.len() > size;
        topups.truncate(size);
        let next_cursor = topups
            .last()
            .filter(|_| more)
            .map(|last| last.session.to_string());
        let topups = topups
            .iter()
            .map(|topup| view::full_view(topup, tenant))
            .collect();
        Ok(TopupPage { topups, next_cursor })
    }
}

fn processor_refused() -> AppError {
    AppError::new(
        ErrorCode::UpstreamError,
        "the payment processor refused to open a checkout; nothing was charged",
    )
}

fn cursor_invalid() -> AppError {
    AppError::new(
        ErrorCode::CursorInvalid,
        "the cursor is none that this list gave out",
    )
}

fn quote_error(error: QuoteError) -> AppError {
    match error {
        QuoteError::BelowMinimum { min } => AppError::new(
            ErrorCode::BelowMinimum,
            format!("the smallest top-up is {min} USD"),
        )
        .with("minUsd", min.to_string()),
        QuoteError::AboveMaximum { max } => AppError::new(
            ErrorCode::AboveMaximum,
            format!("the largest top-up is {max} USD"),
        )
        .with("maxUsd", max.to_string()),
        QuoteError::Overflow => AppError::new(ErrorCode::ValidationError, "the amount is too large"),
    }
}
