//! What a processor tells: each event becomes one command on the top-up it belongs to.
//!
//! INVARIANT: an event finds a row, and the row says whose it is and what was asked for. Nothing in an event is
//! believed beyond what the processor vouches for: its payment, amount, currency and mode.

use std::sync::Arc;

use fail::fail_point;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{RefundId, TenantId, TopupId};
use turnpike_core::ledger::command::{DisputeReport, PaymentState, RefundReport, TopupRef, TopupReport};
use turnpike_core::ledger::topup::{DisputeState, RefundState, Topup};
use turnpike_core::ledger::{Action, Outcome, Rejection};
use turnpike_core::time::Timestamp;
use turnpike_store::SubmitError;
use turnpike_upstream::processor::{self as reports, EventError, ProcessorError, ProcessorEvent, Report};

use super::TopupDesk;
use crate::error::AppError;

/// The currency everything is sold in.
const CURRENCY: &str = "usd";

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It was applied, or had been before.
    Applied,
    /// It concerns nothing here.
    Ignored,
}

impl TopupDesk {
    /// Takes an event of the processor: verified on the raw bytes, then applied in one transaction.
    ///
    /// # Errors
    /// `VALIDATION_ERROR` when it is not the processor's; 503 when it could not be applied and must be sent again.
    pub async fn take_event(&self, raw: &[u8], signature: &str) -> Result<Handled, AppError> {
        let now = self.environment.now().millis().div_euclid(1000);
        let event = self
            .processor()?
            .read_event(raw, signature, now)
            .map_err(|error| match error {
                EventError::Signature(_) => {
                    tracing::warn!(%error, "an event was not signed by the processor");
                    AppError::new(ErrorCode::ValidationError, "the signature does not fit")
                }
                EventError::Malformed(_) => {
                    tracing::error!(%error, "the processor sent an event that cannot be read");
                    AppError::new(ErrorCode::ValidationError, "the event cannot be read")
                }
            })?;
        fail_point!("after-event-verified");
        self.apply_event(&event).await
    }

    async fn apply_event(&self, event: &ProcessorEvent) -> Result<Handled, AppError> {
        let found = match &event.report {
            Report::Account(_) | Report::Reversal(_) if self.wrong_mode(event.livemode).is_some() => None,
            Report::Account(report) => return self.payouts.take_account(report).await,
            Report::Reversal(report) => return self.payouts.take_reversal(report).await,
            Report::Nothing => None,
            Report::Payment(report) => self.find_paid(report).await?,
            Report::Refund(report) => self.find_by_payment(&report.payment, &report.refund).await?,
            Report::Dispute(report) => self.find_by_payment(&report.payment, &report.dispute).await?,
        };
        let Some((tenant, topup)) = found else {
            if event.report != Report::Nothing {
                tracing::warn!(
                    event = event.id,
                    kind = event.kind,
                    "an event of nothing known here"
                );
            }
            return Ok(Handled::Ignored);
        };
        let id: Arc<str> = event.id.as_str().into();
        match &event.report {
            Report::Nothing | Report::Account(_) | Report::Reversal(_) => {}
            Report::Payment(report) => {
                let wrong_mode = self.wrong_mode(event.livemode);
                self.apply_payment(tenant, &topup, report, Some(id), wrong_mode)
                    .await?;
            }
            Report::Refund(report) => self.apply_refund(tenant, &topup, report, Some(id)).await?,
            Report::Dispute(report) => self.apply_dispute(tenant, &topup, report, Some(id)).await?,
        }
        fail_point!("after-event-applied");
        Ok(Handled::Applied)
    }

    fn wrong_mode(&self, livemode: bool) -> Option<Arc<str>> {
        let expected = self.processor.as_ref().and_then(|processor| processor.livemode());
        match expected {
            Some(expected) if expected != livemode => {
                Some("the payment is of the other mode, test or live".into())
            }
            Some(_) | None => None,
        }
    }

    async fn find_named(&self, name: &str) -> Result<Option<(TenantId, TopupId)>, AppError> {
        if name.is_empty() || name.len() > 255 || name.contains('\0') {
            return Ok(None);
        }
        Ok(self.store.find_processor_ref(name).await?)
    }

    async fn find_paid(
        &self,
        report: &reports::PaymentReport,
    ) -> Result<Option<(TenantId, Topup)>, AppError> {
        // The processor's own name of the page comes first: a buyer cannot choose it.
        for name in [&report.session, &report.reference, &report.payment]
            .into_iter()
            .flatten()
        {
            if let Some((tenant, id)) = self.find_named(name).await? {
                return self.load(tenant, id).await;
            }
        }
        Ok(None)
    }

    async fn load(&self, tenant: TenantId, id: TopupId) -> Result<Option<(TenantId, Topup)>, AppError> {
        Ok(self
            .store
            .find_topup(tenant, id)
            .await?
            .map(|topup| (tenant, topup)))
    }

    /// The top-up of a payment; one that was not seen yet is asked about, since a refund may be told of first.
    async fn find_by_payment(&self, payment: &str, own: &str) -> Result<Option<(TenantId, Topup)>, AppError> {
        for name in [own, payment] {
            if let Some((tenant, id)) = self.find_named(name).await? {
                return self.load(tenant, id).await;
            }
        }
        if payment.is_empty() {
            return Ok(None);
        }
        match self.processor()?.find_payment(payment).await {
            Ok(Some(report)) => {
                let found = self.find_paid(&report).await?;
                // The top-up was bought by another payment, and that one stands.
                Ok(found.filter(|(_, topup)| {
                    let bought_by_it = topup.payment.as_deref().is_none_or(|by| by == payment);
                    if !bought_by_it {
                        tracing::error!(
                            session = &*topup.session,
                            payment,
                            "a second payment was given back or disputed: a person has to look"
                        );
                    }
                    bought_by_it
                }))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                tracing::warn!(%error, "a payment could not be asked about");
                Err(AppError::unavailable())
            }
        }
    }

    /// Submits a report; a rejection that the next attempt would meet again is logged and done with.
    async fn submit_report(&self, tenant: TenantId, action: Action) -> Result<(), AppError> {
        match self.submit(tenant, action, None).await {
            Ok(Outcome::Topup(topup)) => {
                if let Some(reason) = &topup.review {
                    tracing::error!(
                        session = &*topup.session,
                        reason = &**reason,
                        "a top-up needs a person's review"
                    );
                }
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(SubmitError::Rejected(Rejection::NotLoaded(what))) => Err(AppError::internal(&what)),
            Err(SubmitError::Rejected(rejection)) => {
                tracing::error!(%rejection, "what the processor told could not be booked: a person has to look");
                Ok(())
            }
            // Sent again by the processor, or found by the sweep.
            Err(SubmitError::Busy | SubmitError::Unavailable(_) | SubmitError::Unknown) => {
                Err(AppError::unavailable())
            }
        }
    }

    pub(super) async fn apply_payment(
        &self,
        tenant: TenantId,
        topup: &Topup,
        report: &reports::PaymentReport,
        event: Option<Arc<str>>,
        wrong_mode: Option<Arc<str>>,
    ) -> Result<(), AppError> {
        let state = match report.state {
            reports::PaymentState::Open => return Ok(()),
            reports::PaymentState::Processing => PaymentState::Processing,
            reports::PaymentState::Paid => PaymentState::Paid,
            reports::PaymentState::Failed => PaymentState::Failed,
            reports::PaymentState::Expired => PaymentState::Expired,
        };
        let wrong_currency = (report.currency != CURRENCY)
            .then(|| Arc::from(format!("paid in {} instead of {CURRENCY}", report.currency)));
        // Found by our own name, which anybody can put on a payment: it must have been paid at our page.
        let other_page = match (&topup.checkout, &report.session) {
            (Some(ours), Some(theirs)) if *ours.id != **theirs => Some(Arc::from("paid at another page")),
            (Some(_), None) => Some(Arc::from("paid without its page")),
            (Some(_) | None, _) => None,
        };
        let mut method = report.method.clone();
        let mut customer = report.customer.clone();
        let mut failure = report.failure.clone();
        // An event names the payment; the saved method, or why it failed, has to be asked for.
        let asks = match state {
            PaymentState::Paid => topup.saves_method && method.is_none(),
            PaymentState::Failed => failure.is_none(),
            PaymentState::Processing | PaymentState::Expired => false,
        };
        if asks && let Some(session) = &report.session {
            match self.processor()?.find_checkout(session).await {
                Ok(Some(found)) => {
                    method = found.method;
                    customer = customer.or(found.customer);
                    failure = found.failure;
                }
                Ok(None) => {}
                // Told again by the processor or found by the sweep; booked now, the method would be lost.
                Err(ProcessorError::Unavailable(_) | ProcessorError::Unknown(_))
                    if state == PaymentState::Paid =>
                {
                    return Err(AppError::unavailable());
                }
                Err(error) => tracing::warn!(session, %error, "a session could not be asked about"),
            }
        }
        let report = TopupReport {
            topup: topup.into(),
            event,
            state,
            payment: report.payment.as_deref().map(Arc::from),
            cents: report.amount_cents,
            mismatch: wrong_mode.or(wrong_currency).or(other_page),
            customer: customer.map(Arc::from),
            method: method.map(Arc::from),
            failure: failure.map(|(code, message)| (code.into(), message.into())),
        };
        self.submit_report(tenant, Action::TopupReport(Box::new(report)))
            .await
    }

    pub(super) async fn apply_refund(
        &self,
        tenant: TenantId,
        topup: &Topup,
        report: &reports::RefundReport,
        event: Option<Arc<str>>,
    ) -> Result<(), AppError> {
        if report.currency != CURRENCY {
            tracing::error!(
                refund = report.refund,
                currency = report.currency,
                "a refund in another currency"
            );
            return Ok(());
        }
        let report = RefundReport {
            topup: topup.into(),
            event,
            refund: report
                .reference
                .as_ref()
                .and_then(|id| id.parse::<RefundId>().ok()),
            reference: Some(report.refund.as_str().into()),
            cents: report.amount_cents,
            state: match report.state {
                reports::RefundState::Pending => RefundState::Pending,
                reports::RefundState::Succeeded => RefundState::Succeeded,
                reports::RefundState::Failed => RefundState::Failed,
                reports::RefundState::Canceled => RefundState::Canceled,
            },
            failure: report.failure.as_deref().map(Arc::from),
        };
        self.submit_report(tenant, Action::RefundReport(Box::new(report)))
            .await
    }

    pub(super) async fn apply_dispute(
        &self,
        tenant: TenantId,
        topup: &Topup,
        report: &reports::DisputeReport,
        event: Option<Arc<str>>,
    ) -> Result<(), AppError> {
        if report.currency != CURRENCY {
            tracing::error!(
                dispute = report.dispute,
                currency = report.currency,
                "a dispute in another currency"
            );
            return Ok(());
        }
        let report = DisputeReport {
            topup: TopupRef::from(topup),
            event,
            reference: report.dispute.as_str().into(),
            cents: report.amount_cents,
            state: match report.state {
                reports::DisputeState::Warning => DisputeState::Warning,
                reports::DisputeState::Open => DisputeState::Open,
                reports::DisputeState::Won => DisputeState::Won,
                reports::DisputeState::Lost => DisputeState::Lost,
            },
            reason: report.reason.as_str().into(),
            due_by: report
                .due_by
                .map(|secs| Timestamp::from_millis(secs.saturating_mul(1000))),
        };
        self.submit_report(tenant, Action::DisputeReport(Box::new(report)))
            .await
    }
}
