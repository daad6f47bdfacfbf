//! Refunds that the workspace asks for: the credits are held, then the processor is asked under the refund's id.

use std::sync::Arc;

use fail::fail_point;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CommandId, RefundId, TenantId};
use turnpike_core::ledger::command::{AuditNote, NewRefund, RefundReport};
use turnpike_core::ledger::topup::{Refund, RefundState, Topup};
use turnpike_core::ledger::{Action, Command, Outcome};
use turnpike_core::money::CreditsPerDollar;
use turnpike_store::SubmitError;
use turnpike_upstream::processor::{self as reports, ProcessorError};

use super::sweep::{REPEATABLE_MS, answered};
use super::{RefundRequest, Repeatable, Shown, TopupDesk, no_such_session, refund_view};
use crate::auth::Actor;
use crate::error::AppError;

impl TopupDesk {
    /// Refunds a part of a top-up of the actor's workspace, or all that is left of it.
    ///
    /// # Errors
    /// `NOT_FOUND`, `INSUFFICIENT_CREDITS` when the credits are spent, `VALIDATION_ERROR`.
    pub async fn refund(
        &self,
        actor: &Actor,
        session: &str,
        request: &RefundRequest,
        repeat: &Repeatable,
    ) -> Result<Shown, AppError> {
        let (tenant, topup) = self.find_session(session).await?;
        if tenant.id != actor.tenant.id {
            return Err(no_such_session());
        }
        let rate = tenant.credits_per_dollar;
        let id = RefundId(self.environment.new_id());
        let action = Action::OpenRefund(Box::new(NewRefund {
            id,
            topup: (&topup).into(),
            cents: request.cents,
            reason: request.reason.clone(),
            claim: repeat.claim(tenant.id, &topup.payer()),
        }));
        let note = AuditNote {
            actor: actor.label().into(),
            action: "topup.refund",
            target: topup.session.clone(),
            before: None,
            after: None,
            origin: actor.origin.clone(),
        };
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant: tenant.id,
            at: self.environment.now(),
            action,
            note: Some(Arc::new(note)),
        };
        let (id, topup) = match self.store.submit(command).await {
            Ok(Outcome::Topup(topup)) => (id, *topup),
            Ok(Outcome::Existing(earlier)) => (RefundId(earlier), self.topup(tenant.id, topup.id).await?),
            Ok(_) => return Err(AppError::internal(&"a refund was answered by another outcome")),
            Err(error) => return Err(refused(&error, rate)),
        };
        fail_point!("after-refund-row");
        let refund = find(&topup, id)?;
        if refund.state != RefundState::Pending {
            return Ok(Shown {
                members: refund_view(&refund),
                replayed: true,
            });
        }
        let topup = self.pursue_refund(tenant.id, &topup, &refund).await?;
        Ok(Shown {
            members: refund_view(&find(&topup, id)?),
            replayed: false,
        })
    }

    /// Brings a pending refund on: asks about one that the processor knows, and for one that it may not know. It is
    /// never asked for again once the processor has forgotten the key: then it might be made a second time.
    pub(super) async fn pursue_refund(
        &self,
        tenant: TenantId,
        topup: &Topup,
        refund: &Refund,
    ) -> Result<Topup, AppError> {
        let Some(reference) = &refund.reference else {
            if self.environment.now().since(refund.created_at) < REPEATABLE_MS {
                return self.push_refund(tenant, topup, refund).await;
            }
            tracing::error!(refund = %refund.id, "a refund's outcome is unknown: a person has to look");
            return Ok(topup.clone());
        };
        if let Some(report) = answered(self.processor()?.find_refund(reference).await)? {
            self.apply_refund(tenant, topup, &report, None).await?;
        }
        self.topup(tenant, topup.id).await
    }

    /// Asks the processor to make a pending refund, and books what it answers.
    async fn push_refund(&self, tenant: TenantId, topup: &Topup, refund: &Refund) -> Result<Topup, AppError> {
        let Some(payment) = &topup.payment else {
            return Err(AppError::internal(&"a completed top-up has no payment"));
        };
        let wanted = reports::NewRefund {
            attempt: refund.id.to_string(),
            payment: payment.to_string(),
            amount_cents: refund.cents,
        };
        let made = self.processor()?.refund(&wanted).await;
        fail_point!("after-refund-made");
        match made {
            Ok(report) => self.apply_refund(tenant, topup, &report, None).await?,
            Err(ProcessorError::Refused { code, message }) => {
                tracing::warn!(
                    session = &*topup.session,
                    code,
                    message,
                    "the processor refused a refund"
                );
                let report = RefundReport {
                    topup: topup.into(),
                    event: None,
                    refund: Some(refund.id),
                    reference: None,
                    cents: refund.cents,
                    state: RefundState::Failed,
                    failure: Some(format!("{code}: {message}").into()),
                };
                let booked = self.submit(tenant, Action::RefundReport(Box::new(report)), None);
                if let Err(error) = booked.await {
                    tracing::error!(%error, "a refused refund stays pending until the sweep");
                }
            }
            // It stays pending: the sweep asks again under the same key.
            Err(error @ (ProcessorError::Unavailable(_) | ProcessorError::Unknown(_))) => {
                tracing::warn!(session = &*topup.session, %error, "a refund is pending");
            }
        }
        self.topup(tenant, topup.id).await
    }
}

/// Why a refund was refused; about money it says what is missing for a refund, not for a call.
fn refused(error: &SubmitError, rate: CreditsPerDollar) -> AppError {
    let mut refusal = AppError::from_submit(error, rate);
    if refusal.code == ErrorCode::InsufficientCredits {
        refusal.message = String::from("the credits of this top-up are spent or held");
        let hint = "refund a part, or wait for running calls to settle";
        refusal.members.insert("hint".to_owned(), hint.into());
    }
    refusal
}

fn find(topup: &Topup, id: RefundId) -> Result<Refund, AppError> {
    let found = topup.refunds.iter().find(|refund| refund.id == id);
    found
        .cloned()
        .ok_or_else(|| AppError::new(ErrorCode::NotFound, "there is no such refund"))
}
