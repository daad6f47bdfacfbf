//! Payouts: the margin that a workspace earned, sent to where it wants it.
//!
//! A payout's row takes the margin before anybody is asked to send it. The processor is asked under the payout's id,
//! and an unknown outcome is asked about again under the same id; to an address on a chain the operator sends, and
//! says so.

mod connection;
mod operator;
mod request;
mod send;
mod view;

use std::sync::Arc;

use fail::fail_point;
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CommandId, PayoutId, TenantId};
use turnpike_core::ledger::account::Balance;
use turnpike_core::ledger::command::AuditNote;
use turnpike_core::ledger::payout::{
    Destination, NewPayout, Payout, PayoutChange, PayoutMethod, PayoutSettings, payable,
};
use turnpike_core::ledger::{AccountKey, AccountKind, Action, Command, Outcome, Payer};
use turnpike_core::money::Micros;
use turnpike_store::{Store, SubmitError};
use turnpike_upstream::processor::Processor;

pub(crate) use operator::OperatorPayouts;
pub use request::{PayoutRequest, ReturnRequest, is_evm_address, stablecoin_address};
pub use send::PayoutSweep;

use crate::auth::Actor;
use crate::environment::Environment;
use crate::error::AppError;
use crate::schedule::Schedule;
use crate::topups::{Repeatable, Shown};

/// What the desk is told by the configuration.
#[derive(Clone, Debug)]
pub struct PayoutRules {
    /// How callers reach the service, without a slash at the end.
    pub public_url: String,
    /// The smallest payout.
    pub min: Micros,
    /// From which age on the processor is asked again about what is not settled.
    pub sweep_after_ms: i64,
}

/// The desk of payouts. Without a processor the operator makes all of them.
pub struct PayoutDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    processor: Option<Arc<dyn Processor>>,
    rules: PayoutRules,
    schedule: Schedule<PayoutId>,
}

/// A page of payouts.
#[derive(Clone, Debug)]
pub struct PayoutPage {
    /// Newest first.
    pub payouts: Vec<Value>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

fn no_such_payout() -> AppError {
    AppError::new(ErrorCode::NotFound, "there is no such payout")
}

/// Why no payout was opened; about money it says what is missing for a payout, not for a call.
fn refused(actor: &Actor, error: &SubmitError) -> AppError {
    let mut refusal = AppError::from_submit(error, actor.tenant.credits_per_dollar);
    if refusal.code == ErrorCode::InsufficientCredits {
        refusal.message = String::from("the margin that can be paid out does not cover this payout");
        let hint = "leave usd out to be paid all that is available";
        refusal.members.insert("hint".to_owned(), hint.into());
    }
    refusal
}

impl PayoutDesk {
    /// A desk over `store` that pays by `processor` where a workspace is connected to it.
    pub fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        processor: Option<Arc<dyn Processor>>,
        rules: PayoutRules,
    ) -> Self {
        Self {
            store,
            environment,
            processor,
            rules,
            schedule: Schedule::default(),
        }
    }

    fn processor_name(&self) -> Option<&'static str> {
        self.processor.as_ref().map(|processor| processor.name())
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

    /// Changes where the workspace of `actor` is paid out to.
    async fn change(
        &self,
        actor: &Actor,
        action: &'static str,
        change: PayoutChange,
    ) -> Result<PayoutSettings, AppError> {
        let tenant = &actor.tenant;
        let note = note(actor, action, tenant.id.to_string());
        let changed = self.submit(tenant.id, Action::ChangePayouts(change), Some(note));
        match changed.await {
            Ok(Outcome::PayoutSettings { settings, .. }) => Ok(*settings),
            Ok(_) => Err(AppError::internal(
                &"payout settings were answered by another outcome",
            )),
            Err(error) => Err(AppError::from_submit(&error, tenant.credits_per_dollar)),
        }
    }

    async fn settings(&self, tenant: TenantId) -> Result<PayoutSettings, AppError> {
        Ok(self.store.find_payout_settings(tenant).await?.unwrap_or_default())
    }

    /// What the workspace earned, what was paid out of it, and where to.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn account(&self, actor: &Actor) -> Result<Value, AppError> {
        let tenant = actor.tenant.id;
        let settings = self.settings(tenant).await?;
        let (margin, receivable) = (
            self.balance(tenant, AccountKind::Margin).await?,
            self.balance(tenant, AccountKind::Receivable).await?,
        );
        let sums = self.store.sum_payouts(tenant).await?;
        let name = self.processor_name();
        Ok(json!({ "account": {
            "marginUsd": margin.posted,
            "reservedUsd": margin.held,
            "availableUsd": payable(margin, receivable.posted),
            "inTransitUsd": sums.open,
            "paidUsd": sums.paid,
            "method": settings.method(name),
            "minUsd": self.rules.min,
            "processor": view::connection_view(&settings, name),
            "stablecoin": settings.stablecoin,
        }}))
    }

    async fn balance(&self, tenant: TenantId, kind: AccountKind) -> Result<Balance, AppError> {
        let account = self.store.find_account(&AccountKey::of(tenant, kind)).await?;
        Ok(account.unwrap_or_default().balance())
    }

    /// Sets the address on a chain to which the workspace is paid out.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `TENANT_SUSPENDED`.
    pub async fn set_stablecoin(&self, actor: &Actor, raw: &[u8]) -> Result<Value, AppError> {
        let address = stablecoin_address(raw)?;
        let change = PayoutChange::Stablecoin(address);
        let settings = self.change(actor, "payout.stablecoin", change).await?;
        Ok(json!({
            "stablecoin": settings.stablecoin,
            "method": settings.method(self.processor_name()),
        }))
    }

    /// Opens a payout, and has the processor send it where that is how the workspace is paid out.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `below_minimum`, `INSUFFICIENT_CREDITS`, `TENANT_SUSPENDED`, `IDEMPOTENCY_KEY_CONFLICT`.
    pub async fn open(
        &self,
        actor: &Actor,
        request: &PayoutRequest,
        repeat: &Repeatable,
    ) -> Result<Shown, AppError> {
        let tenant = actor.tenant.id;
        let id = PayoutId(self.environment.new_id());
        let action = Action::OpenPayout(Box::new(NewPayout {
            id,
            amount: request.amount,
            min: self.rules.min,
            processor: self.processor_name().map(Arc::from),
            credential: actor.label().into(),
            claim: repeat.claim(tenant, &Payer::Pool),
        }));
        let note = note(actor, "payout.create", id.to_string());
        let payout = match self.submit(tenant, action, Some(note)).await {
            Ok(Outcome::Payout { payout, .. }) => *payout,
            // It goes on by itself, or by the sweep.
            Ok(Outcome::Existing(earlier)) => {
                return Ok(Shown {
                    members: one(&self.find(tenant, PayoutId(earlier)).await?),
                    replayed: true,
                });
            }
            Ok(_) => return Err(AppError::internal(&"a payout was answered by another outcome")),
            Err(error) => return Err(refused(actor, &error)),
        };
        fail_point!("after-payout-row");
        let payout = match &payout.destination {
            Destination::Processor { account, .. } => self.send(tenant, &payout, account).await?,
            Destination::Stablecoin(_) => payout,
        };
        Ok(Shown {
            members: one(&payout),
            replayed: false,
        })
    }

    /// Withdraws a payout that nobody has begun to send.
    ///
    /// # Errors
    /// `NOT_FOUND`, `VALIDATION_ERROR` when it is too far along.
    pub async fn cancel(&self, actor: &Actor, id: &str) -> Result<Value, AppError> {
        let id: PayoutId = id.parse().map_err(|_no_id| no_such_payout())?;
        let note = note(actor, "payout.cancel", id.to_string());
        let canceled = self.submit(actor.tenant.id, Action::CancelPayout(id), Some(note));
        match canceled.await {
            Ok(Outcome::Payout { payout, .. }) => Ok(one(&payout)),
            Ok(_) => Err(AppError::internal(&"a payout was answered by another outcome")),
            Err(error) => Err(refused(actor, &error)),
        }
    }

    async fn find(&self, tenant: TenantId, id: PayoutId) -> Result<Payout, AppError> {
        let found = self.store.find_payout(tenant, id).await?;
        found.ok_or_else(no_such_payout)
    }

    /// A payout of the workspace.
    ///
    /// # Errors
    /// `NOT_FOUND`, also for another workspace's.
    pub async fn payout(&self, actor: &Actor, id: &str) -> Result<Value, AppError> {
        let id: PayoutId = id.parse().map_err(|_no_id| no_such_payout())?;
        Ok(one(&self.find(actor.tenant.id, id).await?))
    }

    /// A page of the workspace's payouts, newest first.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn list(
        &self,
        actor: &Actor,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<PayoutPage, AppError> {
        let tenant = actor.tenant.id;
        let before = match cursor {
            None => None,
            Some(text) => Some(self.known(tenant, text).await?),
        };
        let mut payouts = self
            .store
            .list_payouts(tenant, before, limit.saturating_add(1))
            .await?;
        let size = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = payouts.len() > size;
        payouts.truncate(size);
        let last = payouts.last().filter(|_| more);
        Ok(PayoutPage {
            next_cursor: last.map(|last| last.id.to_string()),
            payouts: payouts.iter().map(view::payout_view).collect(),
        })
    }

    /// The payout that a cursor names.
    async fn known(&self, tenant: TenantId, cursor: &str) -> Result<PayoutId, AppError> {
        let id = cursor.parse::<PayoutId>().ok();
        let found = match id {
            Some(id) => self.store.find_payout(tenant, id).await?,
            None => None,
        };
        found.map(|payout| payout.id).ok_or_else(|| {
            AppError::new(
                ErrorCode::CursorInvalid,
                "the cursor is none that this list gave out",
            )
        })
    }
}

fn one(payout: &Payout) -> Value {
    json!({ "payout": view::payout_view(payout) })
}

fn note(actor: &Actor, action: &'static str, target: String) -> AuditNote {
    AuditNote {
        actor: actor.label().into(),
        action,
        target: target.into(),
        before: None,
        after: None,
        origin: actor.origin.clone(),
    }
}

fn is_by_processor(payout: &Payout) -> bool {
    payout.destination.method() == PayoutMethod::Processor
}
