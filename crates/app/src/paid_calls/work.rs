//! The work behind a claimed payment: provider, stored answer.

use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CallId, RequestId};
use turnpike_core::ledger::command::{Drift, DriftKind, OutcomeKind, StoredOutcome};
use turnpike_core::ledger::paid_call::{FailPaidCall, FinishPaidCall, PaidCall, PaidCallState};
use turnpike_core::ledger::{Action, Outcome};
use turnpike_core::money::CreditsPerDollar;
use turnpike_store::SubmitError;
use turnpike_upstream::{SignedPayment, UpstreamError};

use super::prepare::{Prepared, Work};
use super::settlement::due;
use super::{PaidCallDesk, PaidReply, receipt};
use crate::engine::{Done, upstream_failure};
use crate::error::AppError;
use crate::settle::settle;

/// The id under which a paid call's answer is stored.
pub(super) const fn call_id(id: RequestId) -> CallId {
    CallId(id.0)
}

impl PaidCallDesk {
    /// Carries a claimed call out and settles it.
    pub(super) async fn carry_out(
        &self,
        call: PaidCall,
        prepared: Prepared,
        payment: SignedPayment,
    ) -> Result<PaidReply, AppError> {
        let done = match prepared.work {
            Work::Local(body) => Done {
                body,
                charge: prepared.max,
                usage: None,
                drift: None,
            },
            Work::Ask {
                provider,
                api,
                price,
                bounded,
            } => {
                if self.now() >= call.due_at {
                    return Err(self.unsent(&call).await);
                }
                let ask = || provider.provider.complete(api, bounded.body.clone());
                let asked = match ask().await {
                    Err(error) if !error.sent() => ask().await,
                    asked => asked,
                };
                fail::fail_point!("paid-after-upstream");
                match asked {
                    Ok(completion) => settle(prepared.max, &price, completion),
                    Err(error) => return Err(self.failed(&call, &error).await),
                }
            }
        };
        let body = done.body.clone();
        let house = self.parts.house;
        let (call, stored_now) = self.finish(&call, done).await?;
        fail::fail_point!("paid-after-finish");
        // Stored by an earlier try, or too late: somebody else may be settling it.
        let ours = stored_now && self.now() < call.due_at;
        let call = if call.state == PaidCallState::Settling && ours {
            let payment = due(payment, &call);
            self.settle(house, call, payment).await?
        } else {
            call
        };
        self.reply(house, call, Some(body)).await
    }

    /// Ends a call whose claim took so long that others may have given it up: it is not sent.
    async fn unsent(&self, call: &PaidCall) -> AppError {
        tracing::warn!(receipt = %receipt::receipt_id(call), "a paid call was claimed too late to be sent");
        let fail = Action::FailPaidCall(FailPaidCall {
            call: call.reference(),
            failure: ErrorCode::ServiceUnavailable.as_str().into(),
            drift: None,
        });
        match self.parts.engine.submit_end(self.parts.house, fail).await {
            // Given up already.
            Ok(_) | Err(SubmitError::Rejected(_)) => {}
            Err(error) => {
                tracing::error!(receipt = %receipt::receipt_id(call), %error, "a paid call was not ended");
            }
        }
        AppError::unavailable().retry_after(1)
    }

    /// Stores the answer. From here on the provider is never asked again.
    /// Also says whether this was what stored it.
    async fn finish(&self, call: &PaidCall, done: Done) -> Result<(PaidCall, bool), AppError> {
        let engine = &self.parts.engine;
        let now = self.now();
        let finish = FinishPaidCall {
            call: call.reference(),
            charge: done.charge,
            usage: done.usage,
            drift: done.drift,
            outcome: StoredOutcome {
                kind: OutcomeKind::Success,
                body: Some(done.body),
                expires_at: now.plus_millis(engine.settings.outcome_retention_ms),
            },
            due_at: now.plus_millis(self.parts.settings.settlement_ms()),
        };
        let finish = Action::FinishPaidCall(Box::new(finish));
        match engine.submit_end(self.parts.house, finish).await {
            Ok(Outcome::PaidCall { call, changed }) => Ok((*call, changed)),
            Ok(_) => Err(AppError::internal(
                &"a paid call was finished with another outcome",
            )),
            // Given up by a sweep, because it took too long.
            Err(SubmitError::Rejected(rejection)) => {
                tracing::error!(receipt = %receipt::receipt_id(call), %rejection, "an answer came too late");
                let found = self.find(call.id).await?;
                let (_, call) = found.ok_or_else(AppError::unavailable)?;
                Ok((call, false))
            }
            Err(error) => Err(AppError::from_submit(&error, CreditsPerDollar::default())),
        }
    }

    /// Ends a call that the provider failed: nothing is settled.
    async fn failed(&self, call: &PaidCall, error: &UpstreamError) -> AppError {
        let failure = upstream_failure(error);
        tracing::warn!(receipt = %receipt::receipt_id(call), %error, "a provider failed");
        let drift = error.outcome_unknown().then(|| Drift {
            kind: DriftKind::OutcomeUnknown,
            detail: error.to_string().into(),
            loss: call.subject.base,
        });
        let fail = FailPaidCall {
            call: call.reference(),
            failure: failure.code.as_str().into(),
            drift,
        };
        let ended = self
            .parts
            .engine
            .submit_end(self.parts.house, Action::FailPaidCall(fail))
            .await;
        match ended {
            Ok(Outcome::PaidCall { call, .. }) => failure.with("receipt", receipt::view(&call)),
            Ok(_) => AppError::internal(&"a paid call failed with another outcome"),
            Err(error) => {
                tracing::error!(receipt = %receipt::receipt_id(call), %error, "a paid call was not ended");
                failure
            }
        }
    }
}
