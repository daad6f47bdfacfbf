//! Receipts: what a paid call was and what was paid for it, kept for good.

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{ReceiptId, RequestId};
use turnpike_core::ledger::paid_call::PaidCall;

use super::PaidCallDesk;
use crate::error::AppError;

/// The receipt's id.
pub fn receipt_id(call: &PaidCall) -> ReceiptId {
    ReceiptId::of(call.id)
}

impl PaidCallDesk {
    /// A receipt. Who knows the request's id may see it.
    ///
    /// # Errors
    /// `NOT_FOUND`, also when the two do not belong together.
    pub async fn receipt(&self, receipt: ReceiptId, request: RequestId) -> Result<Value, AppError> {
        let found = if ReceiptId::of(request) == receipt {
            self.find(request).await?
        } else {
            None
        };
        let (_tenant, call) = found
            .ok_or_else(|| AppError::new(ErrorCode::NotFound, "there is no such receipt of this request"))?;
        Ok(json!({ "success": true, "receipt": view(&call) }))
    }
}

/// A receipt as it is shown.
pub(super) fn view(call: &PaidCall) -> Value {
    let payment = &call.payment;
    let settlement = call.settlement.as_ref();
    json!({
        "receiptId": receipt_id(call),
        "requestId": call.id,
        "operation": call.subject.operation,
        "status": call.state,
        "protocol": payment.by,
        "simulated": payment.simulated,
        "scheme": payment.key.split(':').next(),
        "network": payment.network,
        "asset": payment.asset,
        "payTo": payment.pay_to,
        "payer": payment.payer,
        "model": call.subject.model,
        "maxAmount": payment.max.get().to_string(),
        "amount": settlement.map(|settlement| settlement.amount.get().to_string()),
        "amountUsd": settlement.map(|settlement| settlement.amount),
        "transaction": settlement.map(|settlement| &settlement.transaction),
        "usage": call.usage,
        "failure": call.failure,
        "createdAt": call.created_at,
        "settledAt": settlement.map(|settlement| settlement.at),
        "endedAt": call.ended_at,
    })
}

/// The request is over without an answer.
pub(super) fn failed(call: &PaidCall) -> AppError {
    let message = if call.settlement.is_some() {
        "less was paid for this request than was due: it has no answer"
    } else {
        "this request failed and nothing was taken for it: begin anew with another request id"
    };
    AppError::new(ErrorCode::RequestFailed, message).with("receipt", view(call))
}

/// The answer is not kept any more.
pub(super) fn expired(call: &PaidCall) -> AppError {
    let message = "this request was paid and answered; its answer is no longer kept";
    AppError::new(ErrorCode::ResultExpired, message).with("receipt", view(call))
}
