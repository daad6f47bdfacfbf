//! What a request is answered whose id is known.

use bytes::Bytes;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::paid_call::{ANSWER_KEPT_MS, PaidCall, PaidCallState};

use super::offered::malformed;
use super::prepare::body_hash;
use super::{PaidCallDesk, PaidReply, PaidRequest, receipt, settlement, work};
use crate::error::AppError;

impl PaidCallDesk {
    /// A request whose id is known: never a fresh 402, never a second settlement, never a second call.
    pub(super) async fn known(
        &self,
        (tenant, call): (TenantId, PaidCall),
        request: &PaidRequest,
    ) -> Result<PaidReply, AppError> {
        let subject = &call.subject;
        let key = request
            .payment
            .as_ref()
            .map(|offered| self.key_of(offered))
            .transpose();
        let key = key.map_err(|error| malformed(&error))?;
        let same = subject.operation == request.operation
            && subject.body_hash == body_hash(request.operation, &request.raw)
            && key.is_none_or(|key| *key == *call.payment.key);
        if !same {
            return Err(AppError::new(
                ErrorCode::RequestIdConflict,
                "this request id stands for another request",
            ));
        }
        if tenant == self.parts.house && settlement::may_try_again(&call, self.now()) {
            return self.settle_again(tenant, call).await;
        }
        self.reply(tenant, call, None).await
    }

    /// The answer to a paid call as it is now. `body` spares reading the stored one.
    pub(super) async fn reply(
        &self,
        tenant: TenantId,
        call: PaidCall,
        body: Option<Bytes>,
    ) -> Result<PaidReply, AppError> {
        match call.state {
            PaidCallState::Claimed | PaidCallState::Dispatched | PaidCallState::Settling => {
                Ok(PaidReply::InProgress {
                    id: call.id,
                    state: call.state,
                })
            }
            PaidCallState::Refused if self.now() < call.payment.valid_before => {
                Ok(PaidReply::Withheld(Box::new(call)))
            }
            // Past its deadline the chain says how it ended, and until then nobody does.
            PaidCallState::Refused => Ok(PaidReply::InProgress {
                id: call.id,
                state: call.state,
            }),
            PaidCallState::Failed => Err(receipt::failed(&call)),
            PaidCallState::Settled => {
                let body = match body {
                    Some(body) => Some(body),
                    None => self.stored_body(tenant, &call).await?,
                };
                match body {
                    Some(body) => Ok(PaidReply::Answered {
                        call: Box::new(call),
                        body,
                    }),
                    None => Err(receipt::expired(&call)),
                }
            }
        }
    }

    /// The stored answer, for as long as it is kept from the call's end on.
    pub(super) async fn stored_body(
        &self,
        tenant: TenantId,
        call: &PaidCall,
    ) -> Result<Option<Bytes>, AppError> {
        let engine = &self.parts.engine;
        let kept_ms = engine.settings.outcome_retention_ms.max(ANSWER_KEPT_MS);
        if call
            .ended_at
            .is_some_and(|end| end.plus_millis(kept_ms) <= self.now())
        {
            return Ok(None);
        }
        let outcome = engine.store.find_outcome(tenant, work::call_id(call.id)).await?;
        Ok(outcome.and_then(|outcome| outcome.body))
    }
}
