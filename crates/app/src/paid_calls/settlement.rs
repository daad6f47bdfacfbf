//! Settlement: a facilitator is asked once, and whatever it says but "done" is looked up on the chain.
//!
//! The rule: a settlement that is unknown is no refusal. It stays unknown until the chain tells, and a refusal is one
//! only when the chain says that nothing moved. The authorisation's nonce keeps a repeat from being a second payment.

use turnpike_core::ids::TenantId;
use turnpike_core::ledger::paid_call::{
    LeaseSettlement, PaidCall, PaidCallState, SettlementProgress, SettlementReport,
};
use turnpike_core::ledger::{Action, Outcome, Rejection};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{PaymentPayload, SettleResponse};
use turnpike_store::SubmitError;
use turnpike_upstream::{Fate, Settled, SignedPayment};

use super::receipt::receipt_id;
use super::{PaidCallDesk, PaidReply, work};
use crate::engine::{LiveGuard, tell};
use crate::error::AppError;

/// Longest pause before an unknown settlement is looked at again, in seconds.
const LONGEST_PAUSE_SECS: i64 = 60;
/// The same past the payment's deadline.
const LONGEST_LATE_PAUSE_SECS: i64 = 3600;

impl PaidCallDesk {
    /// Settles a finished call and writes down what became of it.
    pub(super) async fn settle(
        &self,
        tenant: TenantId,
        call: PaidCall,
        payment: SignedPayment,
    ) -> Result<PaidCall, AppError> {
        fail::fail_point!("paid-before-settle");
        let said = self.parts.facilitator.settle(&payment).await;
        fail::fail_point!("paid-after-settle");
        let progress = match said {
            Settled::Done(response) if is_what_was_due(&payment, &response) => {
                done(&call, &payment, response)
            }
            Settled::Done(response) => {
                tracing::error!(receipt = %receipt_id(&call), ?response, "the facilitator settled something else");
                self.looked_up(&call, &payment, None).await
            }
            Settled::Refused(response) => self.looked_up(&call, &payment, Some(response)).await,
            Settled::Unknown(detail) => {
                tracing::warn!(receipt = %receipt_id(&call), detail, "the outcome of a settlement is unknown");
                self.looked_up(&call, &payment, None).await
            }
        };
        self.report(tenant, &call, progress).await
    }

    /// Goes on with a settlement of which nothing is known: the chain first, then the facilitator.
    pub(super) async fn resolve(&self, tenant: TenantId, call: PaidCall) -> Result<PaidCall, AppError> {
        let payment = payment_of(&call)?;
        match self.fate(&call, &payment).await {
            Some(Fate::Open) if self.now() < call.payment.valid_before => {
                self.settle(tenant, call, payment).await
            }
            fate => {
                let progress = self.progress(&call, &payment, fate, None);
                self.report(tenant, &call, progress).await
            }
        }
    }

    async fn looked_up(
        &self,
        call: &PaidCall,
        payment: &SignedPayment,
        refusal: Option<SettleResponse>,
    ) -> SettlementProgress {
        let fate = self.fate(call, payment).await;
        self.progress(call, payment, fate, refusal)
    }

    async fn fate(&self, call: &PaidCall, payment: &SignedPayment) -> Option<Fate> {
        let asked = self
            .parts
            .facilitator
            .fate(&payment.authorization, call.created_at)
            .await;
        asked
            .inspect_err(|error| {
                tracing::warn!(receipt = %receipt_id(call), %error, "the chain could not be asked");
            })
            .ok()
    }

    fn progress(
        &self,
        call: &PaidCall,
        payment: &SignedPayment,
        fate: Option<Fate>,
        refusal: Option<SettleResponse>,
    ) -> SettlementProgress {
        let void = |reason: &str| SettlementProgress::Void {
            reason: reason.into(),
        };
        match (fate, refusal) {
            (Some(Fate::Paid { transaction, amount }), _) => {
                let response = SettleResponse {
                    success: true,
                    transaction,
                    network: call.payment.network.to_string(),
                    amount: Some(amount.to_string()),
                    ..SettleResponse::default()
                };
                done(call, payment, response)
            }
            (Some(Fate::Void), _) => void("payment_withdrawn"),
            (Some(Fate::Expired), _) => void("payment_expired"),
            // After a try of which nothing is known a refusal says nothing: the first one may still happen.
            (Some(Fate::Open), Some(refusal)) if call.tries <= 1 || call.refusal.is_some() => {
                tracing::warn!(receipt = %receipt_id(call), reason = refusal.error_reason, "a settlement was refused");
                let refusal = SettleResponse {
                    success: false,
                    transaction: String::new(),
                    network: call.payment.network.to_string(),
                    payer: Some(call.payment.payer.to_string()),
                    // It may tell where the facilitator's chain is.
                    error_message: None,
                    ..refusal
                };
                SettlementProgress::Refused {
                    response: to_json(&refusal),
                }
            }
            (Some(Fate::Open) | None, _) => {
                // Past the deadline it can only be learnt what happened before.
                let longest = if self.now() < call.payment.valid_before {
                    LONGEST_PAUSE_SECS
                } else {
                    LONGEST_LATE_PAUSE_SECS
                };
                let pause = (1_i64 << call.tries.min(12)).min(longest);
                SettlementProgress::Unknown {
                    due_at: self.now().plus_millis(pause.saturating_mul(1000)),
                }
            }
        }
    }

    pub(super) async fn report(
        &self,
        tenant: TenantId,
        call: &PaidCall,
        progress: SettlementProgress,
    ) -> Result<PaidCall, AppError> {
        let report = SettlementReport {
            call: call.reference(),
            tries: Some(call.tries),
            progress,
        };
        let reported = self
            .parts
            .engine
            .submit_end(tenant, Action::ReportSettlement(report))
            .await;
        fail::fail_point!("paid-after-report");
        match reported {
            Ok(Outcome::PaidCall { call, .. }) => Ok(*call),
            Ok(_) => Err(AppError::internal(
                &"a settlement was reported with another outcome",
            )),
            Err(error) => Err(AppError::from_submit(&error, CreditsPerDollar::default())),
        }
    }

    /// Takes a settlement over; `None` when somebody else has it, or it is over.
    pub(super) async fn lease(
        &self,
        tenant: TenantId,
        call: &PaidCall,
    ) -> Result<Option<PaidCall>, AppError> {
        let engine = &self.parts.engine;
        let lease = LeaseSettlement {
            call: call.reference(),
            instance: engine.settings.instance,
            due_at: self.now().plus_millis(self.parts.settings.settlement_ms()),
            tries: call.tries,
        };
        match engine.submit(tenant, Action::LeaseSettlement(lease)).await {
            Ok(Outcome::PaidCall { call, .. }) => Ok(Some(*call)),
            Ok(_) => Err(AppError::internal(&"a lease was answered by another outcome")),
            Err(SubmitError::Rejected(Rejection::PaidCallNotOpen(_))) => Ok(None),
            Err(error) => Err(AppError::from_submit(&error, CreditsPerDollar::default())),
        }
    }

    /// The same request came again after a refused settlement: the settlement alone is tried again.
    pub(super) async fn settle_again(&self, tenant: TenantId, call: PaidCall) -> Result<PaidReply, AppError> {
        let live = LiveGuard::new(&self.parts.engine, work::call_id(call.id));
        let Some(call) = self.lease(tenant, &call).await? else {
            return Ok(PaidReply::InProgress {
                id: call.id,
                state: PaidCallState::Settling,
            });
        };
        let desk = self.clone();
        let task = |answer| async move {
            let result = match desk.resolve(tenant, call).await {
                Ok(call) => desk.reply(tenant, call, None).await,
                Err(error) => Err(error),
            };
            drop(live);
            tell(answer, result);
        };
        self.parts.engine.detach(task).await
    }
}

/// Whether a request that comes again may try a refused settlement again: at once at first, then ever more seldom.
pub(super) fn may_try_again(call: &PaidCall, now: Timestamp) -> bool {
    let pause_secs = match call.tries {
        0..=5 => 0,
        tries => (1_i64 << tries.saturating_sub(5).min(5)).min(LONGEST_PAUSE_SECS),
    };
    let rested = call
        .refused_at
        .is_none_or(|at| at.plus_millis(pause_secs.saturating_mul(1000)) <= now);
    call.state == PaidCallState::Refused && now < call.payment.valid_before && rested
}

/// Whether a settlement is of exactly what was due, and can be found again.
fn is_what_was_due(payment: &SignedPayment, response: &SettleResponse) -> bool {
    let due = &payment.requirements.amount;
    response.amount.as_ref().is_none_or(|amount| amount == due) && !response.transaction.is_empty()
}

/// `payment` for what `call` costs, when that is known.
pub(super) fn due(mut payment: SignedPayment, call: &PaidCall) -> SignedPayment {
    if let Some(charge) = &call.charge {
        payment.requirements.amount = charge.effective.get().to_string();
    }
    payment
}

/// The payment as it was stored.
fn payment_of(call: &PaidCall) -> Result<SignedPayment, AppError> {
    let stored = call.payment.signed.as_deref().unwrap_or_default();
    let payload: PaymentPayload = serde_json::from_str(stored).map_err(|error| AppError::internal(&error))?;
    let requirements = payload.accepted.clone();
    let payment = SignedPayment::read(payload, requirements).map_err(|error| AppError::internal(&error))?;
    Ok(due(payment, call))
}

/// A settlement that is done, as it is written down and as the caller gets it.
fn done(call: &PaidCall, payment: &SignedPayment, response: SettleResponse) -> SettlementProgress {
    let due = &payment.requirements.amount;
    let amount = response.amount.as_deref().unwrap_or(due);
    let amount = amount.parse().map_or_else(
        |_invalid| call.charge.map_or(Micros::ZERO, |charge| charge.effective),
        Micros::new,
    );
    let transaction = response.transaction.as_str().into();
    let response = SettleResponse {
        success: true,
        network: call.payment.network.to_string(),
        payer: Some(call.payment.payer.to_string()),
        amount: Some(amount.get().to_string()),
        error_reason: None,
        error_message: None,
        ..response
    };
    SettlementProgress::Settled {
        amount,
        transaction,
        response: to_json(&response),
    }
}

pub(super) fn to_json(response: &SettleResponse) -> std::sync::Arc<str> {
    // A message of texts is always JSON.
    serde_json::to_string(response).unwrap_or_default().into()
}
