//! Payouts by the processor: sent under the payout's id, and asked about again until there is an answer.
//!
//! INVARIANT: a payout is one attempt at the processor, whoever repeats it, and it is never repeated once the
//! processor has forgotten the attempt: then it might be sent a second time.

use std::sync::Arc;

use fail::fail_point;
use turnpike_core::ids::{PayoutId, TenantId};
use turnpike_core::ledger::payout::{Destination, Payout, PayoutProgress, PayoutReport, PayoutState};
use turnpike_core::ledger::{Action, Outcome, TenantStatus};
use turnpike_store::SubmitError;
use turnpike_upstream::processor::{ProcessorError, Reversal};

use super::{PayoutDesk, is_by_processor};
use crate::error::AppError;
use crate::topups::Handled;
use crate::topups::sweep::{MAX_FAILURES_IN_A_ROW, REPEATABLE_MS};

/// Payouts read at once.
const PAGE: u32 = 100;
/// µUSD in a cent.
const CENT: i64 = 10_000;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayoutSweep {
    /// Payouts that were asked about.
    pub asked: u64,
    /// Of which so many are still open.
    pub open: u64,
}

impl PayoutDesk {
    /// Has the processor send an open payout to `account`, and books what it answers.
    pub(super) async fn send(
        &self,
        tenant: TenantId,
        payout: &Payout,
        account: &str,
    ) -> Result<Payout, AppError> {
        let Some(processor) = &self.processor else {
            return Ok(payout.clone());
        };
        let cents = payout.amount.get().div_euclid(CENT);
        let sent = processor.transfer(&payout.id.to_string(), account, cents).await;
        fail_point!("after-payout-sent");
        let progress = match sent {
            Ok(report) => {
                if (report.amount_cents, report.currency.as_str()) != (cents, "usd") {
                    tracing::error!(payout = %payout.id, "the processor sent another amount: a person has to look");
                }
                PayoutProgress::Paid(report.transfer.into())
            }
            Err(ProcessorError::Refused { code, message }) => {
                tracing::warn!(%tenant, payout = %payout.id, code, message, "the processor refused a payout");
                PayoutProgress::Failed(format!("{code}: {message}").into())
            }
            // It stays open: the sweep asks again under the same id.
            Err(error @ (ProcessorError::Unavailable(_) | ProcessorError::Unknown(_))) => {
                tracing::warn!(%tenant, payout = %payout.id, %error, "a payout is under way");
                return Ok(payout.clone());
            }
        };
        let told = self.tell(tenant, payout.id, progress.clone()).await;
        let now = match told {
            Ok(now) => now,
            Err(error) => {
                // What came of it is not lost: a repeat gives the same answer.
                tracing::error!(payout = %payout.id, %error, "a payout's outcome was not booked and is asked for again");
                return Ok(payout.clone());
            }
        };
        if matches!(progress, PayoutProgress::Paid(_)) && now.reference.is_none() {
            tracing::error!(
                payout = %payout.id,
                status = %now.state,
                "a payout was sent that had ended otherwise: a person has to look"
            );
        }
        Ok(now)
    }

    async fn tell(
        &self,
        tenant: TenantId,
        payout: PayoutId,
        progress: PayoutProgress,
    ) -> Result<Payout, AppError> {
        let report = PayoutReport { payout, progress };
        match self.submit(tenant, Action::ReportPayout(report), None).await {
            Ok(Outcome::Payout { payout, .. }) => Ok(*payout),
            Ok(_) => Err(AppError::internal(&"a payout was answered by another outcome")),
            Err(SubmitError::Rejected(rejection)) => Err(AppError::internal(&rejection)),
            Err(SubmitError::Busy | SubmitError::Unavailable(_) | SubmitError::Unknown) => {
                Err(AppError::unavailable())
            }
        }
    }

    /// Asks again about every payout by the processor that is old enough and was not asked about lately.
    ///
    /// # Errors
    /// When the store does not answer; what the processor does not answer waits for a later sweep.
    pub async fn sweep(&self) -> Result<PayoutSweep, AppError> {
        let mut done = PayoutSweep::default();
        let Some(name) = self.processor_name() else {
            return Ok(done);
        };
        let mut in_a_row: u64 = 0;
        let mut after: Option<PayoutId> = None;
        loop {
            let page = self.store.list_open_payouts(after, PAGE).await?;
            let Some((_, last)) = page.last() else { break };
            after = Some(last.id);
            for (tenant, payout) in &page {
                let account = match &payout.destination {
                    Destination::Processor { processor, account } if **processor == *name => account,
                    Destination::Processor { .. } | Destination::Stablecoin(_) => continue,
                };
                if !self.is_due(*tenant, payout).await? {
                    continue;
                }
                done.asked = done.asked.saturating_add(1);
                if !self.send(*tenant, payout, account).await?.state.is_open() {
                    in_a_row = 0;
                    continue;
                }
                done.open = done.open.saturating_add(1);
                in_a_row = in_a_row.saturating_add(1);
                if in_a_row >= MAX_FAILURES_IN_A_ROW {
                    // The processor is away.
                    return Ok(done);
                }
            }
        }
        self.schedule.tidy(self.environment.now());
        Ok(done)
    }

    async fn is_due(&self, tenant: TenantId, payout: &Payout) -> Result<bool, AppError> {
        let now = self.environment.now();
        let age = now.since(payout.created_at);
        if age < self.rules.sweep_after_ms || !self.schedule.is_due(payout.id, now, age) {
            return Ok(false);
        }
        if age >= REPEATABLE_MS {
            tracing::error!(%tenant, payout = %payout.id, "a payout's outcome is unknown: a person has to look");
            return Ok(false);
        }
        let owner = self.store.find_tenant(tenant).await?;
        let active = owner.is_some_and(|owner| owner.status == TenantStatus::Active);
        if !active {
            tracing::warn!(%tenant, payout = %payout.id, "a payout waits: its workspace is not active");
        }
        Ok(active)
    }

    /// Takes what the processor tells of a transfer that came back.
    pub(crate) async fn take_reversal(&self, reversal: &Reversal) -> Result<Handled, AppError> {
        let found = match self.store.find_payout_reference(&reversal.transfer).await? {
            Some((tenant, id)) => self.store.find_payout(tenant, id).await?.map(|it| (tenant, it)),
            // Told of before it was booked under that name: it is still open, and known by our own.
            None => match reversal.payout.as_deref().and_then(|id| id.parse().ok()) {
                Some(id) => self.store.find_open_payout(id).await?,
                None => None,
            },
        };
        let Some((tenant, payout)) = found.filter(|(_, payout)| is_by_processor(payout)) else {
            tracing::warn!(
                transfer = reversal.transfer,
                "a transfer of nothing known here came back"
            );
            return Ok(Handled::Ignored);
        };
        if !reversal.is_whole() {
            tracing::error!(
                %tenant,
                payout = %payout.id,
                reversal.reversed_cents,
                "a part of a payout came back: a person has to look"
            );
            return Ok(Handled::Ignored);
        }
        let why: Arc<str> = "the processor took it back".into();
        let now = self
            .tell(tenant, payout.id, PayoutProgress::Reversed(why))
            .await?;
        if now.state == PayoutState::Failed {
            tracing::warn!(%tenant, payout = %payout.id, "a payout came back");
        }
        Ok(Handled::Applied)
    }
}
