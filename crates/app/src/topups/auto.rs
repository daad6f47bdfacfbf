//! Automatic top-ups: what a workspace chooses, and the charges of its saved payment method.

use std::sync::Arc;

use serde_json::Value;
use turnpike_core::ids::{TenantId, TopupId};
use turnpike_core::ledger::command::{AuditNote, AutoTopupChoice, NewTopup, PaymentState};
use turnpike_core::ledger::topup::{AutoTopup, Topup, TopupSource};
use turnpike_core::ledger::{Action, Outcome, Payer, Rejection, TenantStatus};
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;
use turnpike_core::topup::quote;
use turnpike_store::SubmitError;
use turnpike_upstream::processor::{NewCharge, Processor, ProcessorError};

use super::{TopupDesk, quote_error, view};
use crate::auth::Actor;
use crate::error::AppError;

impl TopupDesk {
    /// The workspace's choice about automatic top-ups.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn auto(&self, actor: &Actor) -> Result<Value, AppError> {
        let found = self.store.find_auto_topup(actor.tenant.id).await?;
        Ok(view::auto_view(&found.unwrap_or_default()))
    }

    /// Sets the workspace's choice about automatic top-ups.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `below_minimum`, `above_maximum`.
    pub async fn set_auto(&self, actor: &Actor, choice: AutoTopupChoice) -> Result<Value, AppError> {
        let tenant = &actor.tenant;
        if choice.enabled {
            quote(choice.amount, &self.rules_of(tenant), true).map_err(quote_error)?;
            if choice.monthly_cap.is_some_and(|cap| cap < choice.amount) {
                return Err(AppError::invalid("monthlyCapUsd", "must not be below amountUsd"));
            }
            if choice.threshold <= Micros::ZERO {
                return Err(AppError::invalid("thresholdUsd", "must be more than zero"));
            }
        }
        let note = AuditNote {
            actor: actor.label().into(),
            action: "auto_topup.set",
            target: tenant.id.to_string().into(),
            before: None,
            after: Some(view::choice_view(&choice).to_string().into()),
            origin: actor.origin.clone(),
        };
        let set = self
            .submit(tenant.id, Action::SetAutoTopup(choice), Some(note))
            .await;
        match set {
            Ok(Outcome::AutoTopup(auto)) => Ok(view::auto_view(&auto)),
            Ok(_) => Err(AppError::internal(&"a choice was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, tenant.credits_per_dollar)),
        }
    }

    pub(super) async fn auto_of(&self, tenant: TenantId) -> Result<AutoTopup, AppError> {
        Ok(self.store.find_auto_topup(tenant).await?.unwrap_or_default())
    }

    /// Begins the automatic top-ups that are due.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn begin_due(&self) -> Result<u64, AppError> {
        let Some(processor) = &self.processor else {
            return Ok(0);
        };
        let mut begun: u64 = 0;
        for (id, auto) in self.store.list_auto_topups().await? {
            let now = self.environment.now();
            let resting = |at: Timestamp| now.since(at) < self.settings.auto_pause_ms;
            if auto.running.is_some() || auto.method.is_none() || auto.failed_at.is_some_and(resting) {
                continue;
            }
            let pool = self.store.find_account(&Payer::Pool.account(id)).await?;
            if pool.unwrap_or_default().available() >= auto.threshold {
                continue;
            }
            if self.begin_auto(processor, id, &auto).await? {
                begun = begun.saturating_add(1);
            }
        }
        Ok(begun)
    }

    async fn begin_auto(
        &self,
        processor: &Arc<dyn Processor>,
        tenant: TenantId,
        auto: &AutoTopup,
    ) -> Result<bool, AppError> {
        let owner = self.store.find_tenant(tenant).await?;
        let Some(owner) = owner.filter(|owner| owner.status == TenantStatus::Active) else {
            return Ok(false);
        };
        let Ok(quoted) = quote(auto.amount, &self.rules_of(&owner), true) else {
            tracing::warn!(%tenant, "an automatic top-up is outside the limits");
            return Ok(false);
        };
        let now = self.environment.now();
        let new = NewTopup {
            id: TopupId(self.environment.new_id()),
            session: self.new_session(),
            owner: None,
            source: TopupSource::AutoReload,
            terms: view::terms(&quoted, owner.credits_per_dollar),
            metadata: None,
            success_url: None,
            cancel_url: None,
            saves_method: false,
            credential: "auto_topup".into(),
            expires_at: now.plus_millis(self.settings.session_ms),
            claim: None,
        };
        // The threshold, the ceiling and "one at a time" are decided in the command.
        match self
            .submit(tenant, Action::BeginAutoTopup(Box::new(new)), None)
            .await
        {
            Ok(Outcome::Topup(topup)) => {
                self.charge(processor, tenant, &topup, auto).await?;
                Ok(true)
            }
            Ok(_) | Err(SubmitError::Rejected(Rejection::AutoTopupNotDue(_))) => Ok(false),
            Err(error) => Err(AppError::from_submit(&error, owner.credits_per_dollar)),
        }
    }

    pub(super) async fn charge(
        &self,
        processor: &Arc<dyn Processor>,
        tenant: TenantId,
        topup: &Topup,
        auto: &AutoTopup,
    ) -> Result<(), AppError> {
        let (Some(customer), Some(method)) = (&auto.customer, &auto.method) else {
            return self.end_unpaid(tenant, topup, PaymentState::Failed).await;
        };
        let charge = NewCharge {
            attempt: topup.id.to_string(),
            reference: topup.session.to_string(),
            amount_cents: topup.terms.total_cents(),
            description: "Automatic top-up".to_owned(),
            customer: customer.to_string(),
            method: method.to_string(),
        };
        match processor.charge(&charge).await {
            Ok(report) => self.apply_payment(tenant, topup, &report, None, None).await,
            // Begun with another method than is saved now: it may have been charged, and its event tells.
            Err(ProcessorError::Refused { code, .. }) if code == "idempotency_error" => {
                tracing::error!(%tenant, session = &*topup.session, "the saved method changed under a charge");
                Ok(())
            }
            Err(ProcessorError::Refused { code, message }) => {
                tracing::warn!(%tenant, code, message, "an automatic top-up was refused");
                self.end_unpaid(tenant, topup, PaymentState::Failed).await
            }
            Err(error @ (ProcessorError::Unavailable(_) | ProcessorError::Unknown(_))) => {
                tracing::warn!(%tenant, %error, "an automatic top-up is under way");
                Ok(())
            }
        }
    }
}
