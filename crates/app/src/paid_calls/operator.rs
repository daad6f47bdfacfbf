//! What the operator does about settlements of which nobody knows what became: shows them, and says what did.

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CommandId, ReceiptId, TenantId};
use turnpike_core::ledger::command::AuditNote;
use turnpike_core::ledger::paid_call::{PaidCall, PaidCallState, SettlementProgress, SettlementReport};
use turnpike_core::ledger::{Action, Command, Outcome};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::SettleResponse;
use turnpike_store::{DuePaidCalls, Store};

use super::receipt::{receipt_id, view};
use super::recovery::A_YEAR_MS;
use super::settlement::to_json;
use crate::admin::checked_name;
use crate::environment::Environment;
use crate::error::AppError;

/// Most calls that one list shows.
const MOST: usize = 1000;
/// Among so many a call is looked for.
const MOST_SEARCHED: u32 = 100_000;
/// How long a call that was given up can be said to have been paid after all.
const GIVEN_UP_MS: i64 = 90 * 86_400_000;
/// Why a call failed that the operator gave up.
const GIVEN_UP: &str = "payment_given_up";

/// The operator's desk of settlements.
pub(crate) struct OperatorSettlements<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) environment: &'a dyn Environment,
}

impl OperatorSettlements<'_> {
    /// The calls that are answered and neither paid nor given up, of all networks, those asked about next first; `more`
    /// when it was cut.
    pub(crate) async fn list(&self) -> Result<Value, AppError> {
        let open = self
            .open(u32::try_from(MOST).unwrap_or(u32::MAX).saturating_add(1))
            .await?;
        let shown: Vec<Value> = open.iter().take(MOST).map(|(_, call)| shown(call)).collect();
        Ok(json!({ "settlements": shown, "more": open.len() > MOST }))
    }

    /// Says that a call was paid by `transaction`: `amount`, or what was due. Also of one that was given up.
    pub(crate) async fn settle(
        &self,
        receipt: ReceiptId,
        transaction: &str,
        amount: Option<Micros>,
        origin: &str,
    ) -> Result<Value, AppError> {
        let transaction = &*transaction_hash(transaction)?;
        let (tenant, call) = self.find(receipt).await?;
        let due = call.charge.map_or(Micros::ZERO, |charge| charge.effective);
        let amount = amount.unwrap_or(due);
        if amount < due || amount > call.payment.max {
            let message = format!(
                "between {due} USD, which was due, and {} USD, which the payment authorised, must have moved",
                call.payment.max
            );
            return Err(AppError::new(ErrorCode::ValidationError, message));
        }
        let response = SettleResponse {
            success: true,
            transaction: transaction.to_owned(),
            network: call.payment.network.to_string(),
            payer: Some(call.payment.payer.to_string()),
            amount: Some(amount.get().to_string()),
            ..SettleResponse::default()
        };
        let progress = SettlementProgress::Settled {
            amount,
            transaction: transaction.into(),
            response: to_json(&response),
        };
        let after = json!({ "transaction": transaction, "amountUsd": amount });
        let call = self
            .tell(tenant, &call, "settlement.settle", progress, after, origin)
            .await?;
        let as_told = |settlement: &turnpike_core::ledger::paid_call::Settlement| {
            &*settlement.transaction == transaction && settlement.amount == amount
        };
        if call.settlement.as_ref().is_some_and(as_told) {
            return Ok(shown(&call));
        }
        Err(ended_otherwise(&call))
    }

    /// Says that a call's payment never moved. Only when it cannot move any more.
    pub(crate) async fn void(
        &self,
        receipt: ReceiptId,
        reason: &str,
        origin: &str,
    ) -> Result<Value, AppError> {
        checked_name("reason", reason, 255)?;
        let (tenant, call) = self.find(receipt).await?;
        if !is_past_settling(&call, self.environment.now()) {
            let message = format!(
                "the payment can be settled until {}: it is given up afterwards",
                call.payment.valid_before
            );
            return Err(AppError::new(ErrorCode::ValidationError, message));
        }
        let progress = SettlementProgress::Void {
            reason: GIVEN_UP.into(),
        };
        let after = json!({ "reason": reason });
        let call = self
            .tell(tenant, &call, "settlement.void", progress, after, origin)
            .await?;
        if call.state == PaidCallState::Failed && call.settlement.is_none() {
            return Ok(shown(&call));
        }
        Err(ended_otherwise(&call))
    }

    async fn open(&self, limit: u32) -> Result<Vec<(TenantId, PaidCall)>, AppError> {
        let open = DuePaidCalls {
            due_by: self.environment.now().plus_millis(A_YEAR_MS),
            answered: true,
            not_of_instance: None,
            of_instance: None,
            limit,
        };
        Ok(self.store.list_due_paid_calls(open).await?)
    }

    /// An open call, or one that was given up.
    async fn find(&self, receipt: ReceiptId) -> Result<(TenantId, PaidCall), AppError> {
        let named = |calls: Vec<(TenantId, PaidCall)>| {
            calls
                .into_iter()
                .find(|(_, call)| receipt_id(call) == receipt && call.charge.is_some())
        };
        if let Some(open) = named(self.open(MOST_SEARCHED).await?) {
            return Ok(open);
        }
        let since = self.environment.now().plus_millis(-GIVEN_UP_MS);
        let failed = self.store.list_failed_paid_calls(since, MOST_SEARCHED).await?;
        named(failed).ok_or_else(|| {
            let message = "no call that waits for its settlement, or was given up lately, has this receipt";
            AppError::new(ErrorCode::NotFound, message)
        })
    }

    async fn tell(
        &self,
        tenant: TenantId,
        call: &PaidCall,
        action: &'static str,
        progress: SettlementProgress,
        after: Value,
        origin: &str,
    ) -> Result<PaidCall, AppError> {
        let note = AuditNote {
            actor: "operator".into(),
            action,
            target: receipt_id(call).to_string().into(),
            before: None,
            after: Some(after.to_string().into()),
            origin: origin.into(),
        };
        // Whichever try it was: what the operator says is of the payment.
        let report = SettlementReport {
            call: call.reference(),
            tries: None,
            progress,
        };
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant,
            at: self.environment.now(),
            action: Action::ReportSettlement(report),
            note: Some(Arc::new(note)),
        };
        match self.store.submit(command).await {
            Ok(Outcome::PaidCall { call, .. }) => Ok(*call),
            Ok(_) => Err(AppError::internal(
                &"a settlement was reported with another outcome",
            )),
            Err(error) => Err(AppError::from_submit(&error, CreditsPerDollar::default())),
        }
    }
}

/// A transaction's hash as chains write it.
fn transaction_hash(text: &str) -> Result<String, AppError> {
    let digits = text.strip_prefix("0x").unwrap_or_default();
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(AppError::invalid(
            "transaction",
            "must be 0x and 64 hexadecimal digits",
        ));
    }
    Ok(text.to_ascii_lowercase())
}

/// Whether a chain whose clock is right cannot settle it any more.
fn is_past_settling(call: &PaidCall, now: Timestamp) -> bool {
    const CLOCKS_DIFFER_MS: i64 = 60_000;
    call.payment.valid_before.plus_millis(CLOCKS_DIFFER_MS) <= now
}

fn ended_otherwise(call: &PaidCall) -> AppError {
    let message = format!(
        "the call is {} otherwise already; nothing was changed",
        call.state
    );
    AppError::new(ErrorCode::ValidationError, message)
}

/// Without the request's id, with which one could fetch the answer.
fn shown(call: &PaidCall) -> Value {
    let mut shown = view(call);
    if let Some(members) = shown.as_object_mut() {
        members.remove("requestId");
        let due = call.charge.map(|charge| charge.effective);
        members.insert("dueUsd".to_owned(), json!(due));
        members.insert("tries".to_owned(), json!(call.tries));
        members.insert("nextLookAt".to_owned(), json!(call.due_at));
        members.insert("validBefore".to_owned(), json!(call.payment.valid_before));
    }
    shown
}
