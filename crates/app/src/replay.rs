//! Repeats: the stored outcome of a call, found by its idempotency key or its id. Nothing is dispatched.

use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::CallId;
use turnpike_core::ledger::command::{NewClaim, OutcomeKind};
use turnpike_core::ledger::{Hold, HoldState};

use crate::calls::CallDesk;
use crate::context::CallContext;
use crate::engine::{Answer, Receipt, stored_failure};
use crate::error::AppError;

impl CallDesk {
    /// A request that failed its checks may still be a repeat of one that passed them then.
    pub(crate) async fn replay_or(
        &self,
        context: &CallContext,
        claim: Option<&NewClaim>,
        error: AppError,
    ) -> Result<Answer, AppError> {
        let Some(claim) = claim else { return Err(error) };
        match self.engine.store.find_claim(&claim.key).await? {
            Some(taken) if taken.fingerprint == claim.fingerprint => {
                self.replay(context, CallId(taken.subject)).await
            }
            Some(_) => Err(AppError::new(
                ErrorCode::IdempotencyKeyConflict,
                "this idempotency key was used for a different request",
            )),
            None => Err(error),
        }
    }

    /// The stored outcome of `call`.
    ///
    /// # Errors
    /// `IDEMPOTENCY_IN_PROGRESS`, `RESULT_EXPIRED`, or the stored failure.
    pub async fn replay(&self, context: &CallContext, call: CallId) -> Result<Answer, AppError> {
        let tenant = &context.actor.tenant;
        let store = &self.engine.store;
        let Some(hold) = store.find_call(tenant.id, call).await? else {
            return Err(in_progress());
        };
        if !hold.is_finished() {
            return Err(in_progress());
        }
        let account = store
            .find_account(&hold.call.payer.account(tenant.id))
            .await?
            .unwrap_or_default();
        let receipt = Receipt {
            call,
            charged: hold.charged,
            balance: account.posted,
            balance_then: hold.balance_after.unwrap_or(account.posted),
            rate: tenant.credits_per_dollar,
            replayed: true,
            simulated: false,
        };
        self.stored_answer(&hold, context, receipt).await
    }

    async fn stored_answer(
        &self,
        hold: &Hold,
        context: &CallContext,
        receipt: Receipt,
    ) -> Result<Answer, AppError> {
        let outcome = self
            .engine
            .store
            .find_outcome(context.actor.tenant.id, receipt.call)
            .await?;
        if hold.state != HoldState::Captured {
            let document = outcome.and_then(|outcome| outcome.body);
            let mut failure = document.map_or_else(
                || {
                    let code = hold.failure.as_deref().and_then(ErrorCode::parse);
                    AppError::new(
                        code.unwrap_or(ErrorCode::UpstreamError),
                        "the call failed; nothing was charged",
                    )
                },
                |document| stored_failure(&document),
            );
            failure.replayed = true;
            return Err(failure.with("callId", receipt.call.to_string()));
        }
        let now = self.engine.environment.now();
        let Some((kind, body)) = outcome
            .filter(|outcome| outcome.expires_at > now)
            .and_then(|outcome| outcome.body.map(|body| (outcome.kind, body)))
        else {
            return Err(AppError::new(
                ErrorCode::ResultExpired,
                "the call was made and charged; its answer is no longer kept",
            )
            .with("callId", receipt.call.to_string()));
        };
        match kind {
            OutcomeKind::Success => Ok(Answer::Json { body, receipt }),
            OutcomeKind::Transcript => Ok(Answer::Transcript { body, receipt }),
            OutcomeKind::Failure => Err(stored_failure(&body)),
        }
    }
}

fn in_progress() -> AppError {
    AppError::new(
        ErrorCode::IdempotencyInProgress,
        "the call of this idempotency key is still running",
    )
    .retry_after(1)
}
