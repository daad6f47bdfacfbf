//! Reconciliation: asks the processor about everything that is not settled, so that a lost event loses nothing;
//! and begins automatic top-ups.

use std::sync::Arc;

use turnpike_core::ids::{TenantId, TopupId};
use turnpike_core::ledger::command::{NewTopup, PaymentState, TopupReport};
use turnpike_core::ledger::topup::{AutoTopup, DisputeState, RefundState, Topup, TopupSource, TopupState};
use turnpike_core::ledger::{Action, Outcome, Payer, Rejection, TenantStatus};
use turnpike_core::topup::quote;
use turnpike_store::SubmitError;
use turnpike_upstream::processor::{NewCharge, Processor, ProcessorError};

use super::{TopupDesk, view};
use crate::error::AppError;

/// Top-ups read at once.
const PAGE: u32 = 100;
/// A processor forgets idempotency keys after a day: an attempt is not repeated after this.
const REPEATABLE_MS: i64 = 23 * 3_600_000;
/// How long after its end an unpaid page is waited for before it counts as expired.
const EXPIRY_GRACE_MS: i64 = 60_000;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopupSweep {
    /// Top-ups that were asked about.
    pub asked: u64,
    /// Of which so many could not be.
    pub failed: u64,
}

impl TopupDesk {
    /// Looks at everything unsettled that is old enough.
    ///
    /// # Errors
    /// When the store does not answer; what the processor does not answer waits for the next sweep.
    pub async fn sweep(&self) -> Result<TopupSweep, AppError> {
        let Some(processor) = &self.processor else {
            return Ok(TopupSweep::default());
        };
        let mut done = TopupSweep::default();
        let mut after: Option<TopupId> = None;
        loop {
            let page = self.store.list_unsettled_topups(after, PAGE).await?;
            let Some((_, last)) = page.last() else { break };
            after = Some(last.id);
            for (tenant, topup) in &page {
                let age = self.environment.now().since(topup.created_at);
                if age < self.settings.sweep_after_ms {
                    continue;
                }
                done.asked = done.asked.saturating_add(1);
                if let Err(error) = self.reconcile(processor, *tenant, topup).await {
                    tracing::warn!(session = &*topup.session, %error, "a top-up could not be reconciled");
                    done.failed = done.failed.saturating_add(1);
                }
            }
        }
        Ok(done)
    }

    async fn reconcile(
        &self,
        processor: &Arc<dyn Processor>,
        tenant: TenantId,
        topup: &Topup,
    ) -> Result<(), AppError> {
        if topup.state.is_open() {
            return self.reconcile_payment(processor, tenant, topup).await;
        }
        for refund in &topup.refunds {
            if refund.state != RefundState::Pending || refund.parked {
                continue;
            }
            match &refund.reference {
                None => self.push_refund(tenant, topup, refund).await.map(drop)?,
                Some(reference) => {
                    if let Some(report) = answered(processor.find_refund(reference).await)? {
                        self.apply_refund(tenant, topup, &report, None).await?;
                    }
                }
            }
        }
        for dispute in &topup.disputes {
            if matches!(dispute.state, DisputeState::Open | DisputeState::Warning)
                && let Some(report) = answered(processor.find_dispute(&dispute.reference).await)?
            {
                self.apply_dispute(tenant, topup, &report, None).await?;
            }
        }
        Ok(())
    }

    async fn reconcile_payment(
        &self,
        processor: &Arc<dyn Processor>,
        tenant: TenantId,
        topup: &Topup,
    ) -> Result<(), AppError> {
        let now = self.environment.now();
        let age = now.since(topup.created_at);
        if topup.source == TopupSource::AutoReload {
            if age < REPEATABLE_MS {
                let auto = self.auto_of(tenant).await?;
                return self.charge(processor, tenant, topup, &auto).await;
            }
            return self.end_unpaid(tenant, topup, PaymentState::Failed).await;
        }
        let over = now.since(topup.expires_at) > EXPIRY_GRACE_MS;
        let Some(checkout) = &topup.checkout else {
            if over || age >= REPEATABLE_MS {
                // Nobody was given the page's address.
                return self.end_unpaid(tenant, topup, PaymentState::Expired).await;
            }
            let Some(owner) = self.store.find_tenant(tenant).await? else {
                return Ok(());
            };
            let made = processor.create_checkout(&self.checkout_of(topup, &owner)).await;
            return self
                .settle_creation(tenant, owner.credits_per_dollar, topup.clone(), made)
                .await
                .map(drop);
        };
        match answered(processor.find_checkout(&checkout.id).await)? {
            Some(report) => self.apply_payment(tenant, topup, &report, None, None).await,
            None if over && topup.state == TopupState::Open => {
                self.end_unpaid(tenant, topup, PaymentState::Expired).await
            }
            None => Ok(()),
        }
    }

    async fn end_unpaid(&self, tenant: TenantId, topup: &Topup, state: PaymentState) -> Result<(), AppError> {
        let report = TopupReport {
            topup: topup.into(),
            event: None,
            state,
            payment: None,
            cents: 0,
            mismatch: None,
            customer: None,
            method: None,
            failure: None,
        };
        match self
            .submit(tenant, Action::TopupReport(Box::new(report)), None)
            .await
        {
            Ok(_) | Err(SubmitError::Rejected(_)) => Ok(()),
            Err(SubmitError::Busy | SubmitError::Unavailable(_) | SubmitError::Unknown) => {
                Err(AppError::unavailable())
            }
        }
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
            if auto.running.is_some() || auto.method.is_none() {
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
            session: format!("cs_{}", hex::encode(self.environment.random_32())).into(),
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

    async fn charge(
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

/// What the processor answered; a refusal to answer about its own object is logged.
fn answered<T>(result: Result<Option<T>, ProcessorError>) -> Result<Option<T>, AppError> {
    result.map_err(|error| {
        tracing::warn!(%error, "the processor did not answer about an object");
        AppError::unavailable()
    })
}
