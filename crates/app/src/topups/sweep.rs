//! Reconciliation: asks the processor about everything that is not settled, so that a lost event loses nothing.

use std::sync::Arc;

use turnpike_core::ids::{TenantId, TopupId};
use turnpike_core::ledger::Action;
use turnpike_core::ledger::command::{PaymentState, TopupReport};
use turnpike_core::ledger::topup::{DisputeState, RefundState, Topup, TopupSource, TopupState};
use turnpike_store::SubmitError;
use turnpike_upstream::processor::{Processor, ProcessorError};

use super::TopupDesk;
use crate::error::AppError;

/// Top-ups read at once.
const PAGE: u32 = 100;
/// A processor forgets idempotency keys after a day: an attempt is not repeated after this.
pub(crate) const REPEATABLE_MS: i64 = 23 * 3_600_000;
/// How long after its end an unpaid page is waited for before it counts as expired.
const EXPIRY_GRACE_MS: i64 = 60_000;

/// After so many unanswered questions a sweep gives up.
pub(crate) const MAX_FAILURES_IN_A_ROW: u64 = 3;
/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopupSweep {
    /// Top-ups that were asked about.
    pub asked: u64,
    /// Of which so many could not be.
    pub failed: u64,
}

impl TopupDesk {
    /// Looks at everything unsettled that is old enough and was not looked at lately.
    ///
    /// # Errors
    /// When the store does not answer; what the processor does not answer waits for a later sweep.
    pub async fn sweep(&self) -> Result<TopupSweep, AppError> {
        let Some(processor) = &self.processor else {
            return Ok(TopupSweep::default());
        };
        let mut done = TopupSweep::default();
        let mut in_a_row: u64 = 0;
        let mut after: Option<TopupId> = None;
        loop {
            let page = self.store.list_unsettled_topups(after, PAGE).await?;
            let Some((_, last)) = page.last() else { break };
            after = Some(last.id);
            for (tenant, topup) in &page {
                let now = self.environment.now();
                let age = now.since(topup.created_at);
                if age < self.settings.sweep_after_ms || !self.schedule.is_due(topup.id, now, age) {
                    continue;
                }
                done.asked = done.asked.saturating_add(1);
                let Err(error) = self.reconcile(processor, *tenant, topup).await else {
                    in_a_row = 0;
                    continue;
                };
                tracing::warn!(session = &*topup.session, %error, "a top-up could not be reconciled");
                done.failed = done.failed.saturating_add(1);
                in_a_row = in_a_row.saturating_add(1);
                if in_a_row >= MAX_FAILURES_IN_A_ROW {
                    // The processor is away. Those that failed are not due for a while: the next sweep begins
                    // behind them.
                    return Ok(done);
                }
            }
        }
        self.schedule.tidy(self.environment.now());
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
            self.pursue_refund(tenant, topup, refund).await?;
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
            if let Some(payment) = &topup.payment {
                return match answered(processor.find_payment(payment).await)? {
                    Some(report) => self.apply_payment(tenant, topup, &report, None, None).await,
                    None => Ok(()),
                };
            }
            if age < REPEATABLE_MS {
                let auto = self.auto_of(tenant).await?;
                return self.charge(processor, tenant, topup, &auto).await;
            }
            // It may have been charged: neither a failure nor charged again.
            tracing::error!(
                session = &*topup.session,
                "a charge's outcome is unknown: a person has to look"
            );
            return Ok(());
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

    pub(super) async fn end_unpaid(
        &self,
        tenant: TenantId,
        topup: &Topup,
        state: PaymentState,
    ) -> Result<(), AppError> {
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
}

/// What the processor answered; a refusal to answer about its own object is logged.
pub(super) fn answered<T>(result: Result<Option<T>, ProcessorError>) -> Result<Option<T>, AppError> {
    result.map_err(|error| {
        tracing::warn!(%error, "the processor did not answer about an object");
        AppError::unavailable()
    })
}
