//! From an acceptable payment to somebody who works on it: verified, then bound to the request in one transaction.

use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::RequestId;
use turnpike_core::ledger::paid_call::{NewPaidCall, Payment};
use turnpike_core::ledger::{Action, Outcome};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::Authorization;
use turnpike_upstream::{SignedPayment, Verdict};

use super::check::Refused;
use super::offered::Acceptable;
use super::prepare::Prepared;
use super::{PaidCallDesk, PaidReply, PaidRequest, work};
use crate::engine::{LiveGuard, tell};
use crate::error::AppError;

impl PaidCallDesk {
    pub(super) async fn verify_and_claim(
        &self,
        id: RequestId,
        prepared: Prepared,
        request: PaidRequest,
        payment: Acceptable,
    ) -> Result<PaidReply, AppError> {
        let parts = &self.parts;
        let key = payment.signed.authorization.key();
        let verdict = parts.facilitator.verify(&payment.signed).await;
        fail::fail_point!("paid-after-verify");
        match verdict {
            Verdict::Valid => {}
            Verdict::Invalid { reason, message } => {
                let detail = message.unwrap_or_else(|| "the payment was refused".to_owned());
                let refused = Refused::new(reason, detail);
                return self.refused(&prepared, &request, Some(id), refused).await;
            }
            Verdict::Unknown(detail) => {
                tracing::warn!(detail, "the facilitator gave no verdict on a payment");
                if let Some(call) = self.find(id).await? {
                    return self.known(call, &request).await;
                }
                let message =
                    "the facilitator gave no verdict; nothing was taken: send the same request again";
                return Err(AppError::new(ErrorCode::UpstreamError, message).retry_after(1));
            }
        }
        let agreed = ledger_amount(&payment.signed.authorization)?;
        let prepared = prepared.at_most(agreed);
        let new = self.new_call(id, &prepared, &payment, key)?;
        let payment = payment.signed;
        let desk = self.clone();
        // Whoever leaves now leaves a claim with somebody who works on it.
        let task = |answer| async move {
            let result = desk.claim(new, prepared, payment, &request).await;
            tell(answer, result);
        };
        parts.engine.detach(task).await
    }

    pub(super) async fn claim(
        &self,
        new: NewPaidCall,
        prepared: Prepared,
        payment: SignedPayment,
        request: &PaidRequest,
    ) -> Result<PaidReply, AppError> {
        let parts = &self.parts;
        // Registered before the row exists, so that no sweep can find it unregistered.
        let _live = LiveGuard::new(&parts.engine, work::call_id(new.id));
        let claim = Action::ClaimPaidCall(Box::new(new));
        let claimed = parts.engine.submit(parts.house, claim).await;
        fail::fail_point!("paid-after-claim");
        match claimed {
            Ok(Outcome::PaidCall { call, changed: true }) => {
                Box::pin(self.carry_out(*call, prepared, payment)).await
            }
            Ok(Outcome::PaidCall { call, changed: false }) => self.known((parts.house, *call), request).await,
            Ok(_) => Err(AppError::internal(&"a claim was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, CreditsPerDollar::default())),
        }
    }

    pub(super) fn new_call(
        &self,
        id: RequestId,
        prepared: &Prepared,
        payment: &Acceptable,
        key: String,
    ) -> Result<NewPaidCall, AppError> {
        let parts = &self.parts;
        let settings = &parts.settings;
        let signed =
            serde_json::to_string(&payment.signed.payload).map_err(|error| AppError::internal(&error))?;
        let authorization = &payment.signed.authorization;
        let lifetime = prepared
            .work
            .longest_ms()
            .saturating_add(parts.engine.settings.hold_slack_ms);
        Ok(NewPaidCall {
            id,
            subject: prepared.subject.clone(),
            payment: Payment {
                by: payment.by,
                key: key.into(),
                payer: authorization.payer,
                network: settings.network.clone(),
                asset: settings.asset.clone(),
                pay_to: settings.pay_to.clone(),
                max: ledger_amount(authorization)?,
                simulated: settings.simulated,
                valid_before: Timestamp::from_millis(authorization.valid_before.saturating_mul(1000)),
                signed: Some(signed.into()),
            },
            instance: parts.engine.settings.instance,
            due_at: self.now().plus_millis(lifetime),
            cap: settings.cap,
        })
    }
}

/// What is authorised, as the ledger counts it.
fn ledger_amount(authorization: &Authorization) -> Result<Micros, AppError> {
    i64::try_from(authorization.value)
        .map(Micros::new)
        .map_err(|_overflow| AppError::internal(&"an amount beyond the ledger was accepted"))
}
