//! Stripe's events → [`ProcessorEvent`].
//!
//! The rule: only what has been verified comes here. Kinds that do not concern the ledger, and what
//! happens on connected accounts, are [`Report::Nothing`]: their sender must not repeat them. What a known kind holds is
//! read by [`super::reports`].

use serde_json::Value;

use super::payouts;
use super::reports::{self, Fields, Malformed};
use crate::processor::{EventError, PaymentState, ProcessorEvent, Report};

/// Reads a verified event.
///
/// # Errors
/// [`EventError::Malformed`]
pub(crate) fn read(raw: &[u8]) -> Result<ProcessorEvent, EventError> {
    let value: Value =
        serde_json::from_slice(raw).map_err(|_broken| EventError::Malformed("not JSON".to_owned()))?;
    Ok(event(&value)?)
}

fn event(value: &Value) -> Result<ProcessorEvent, Malformed> {
    let event = Fields::of(value)?;
    let kind = event.needed_text("type")?;
    let livemode = event
        .flag("livemode")?
        .ok_or_else(|| Malformed("livemode is missing".to_owned()))?;
    // INVARIANT: a connected account belongs to whom we pay out to. It can make a paid session that names
    // any reference, so nothing that happened on one concerns the ledger. What Stripe says of the account itself
    // does, and only of the account that the event came from.
    let report = match event.text("account")? {
        Some(of) if kind == "account.updated" => match payouts::account(object(event)?)? {
            account if account.id == of => Report::Account(account),
            _another => Report::Nothing,
        },
        Some(_) => Report::Nothing,
        None => report(kind, event)?,
    };
    Ok(ProcessorEvent {
        id: event.needed_text("id")?.to_owned(),
        kind: kind.to_owned(),
        livemode,
        report,
    })
}

fn report(kind: &str, event: Fields<'_>) -> Result<Report, Malformed> {
    match kind {
        "checkout.session.completed" => {
            let object = object(event)?;
            session(object, reports::completed_state(object)?)
        }
        "checkout.session.async_payment_succeeded" => session(object(event)?, PaymentState::Paid),
        "checkout.session.async_payment_failed" => session(object(event)?, PaymentState::Failed),
        "checkout.session.expired" => session(object(event)?, PaymentState::Expired),
        "payment_intent.succeeded" => intent(object(event)?, PaymentState::Paid),
        "payment_intent.payment_failed" => intent(object(event)?, PaymentState::Failed),
        "refund.created" | "refund.updated" | "refund.failed" | "charge.refund.updated" => {
            reports::refund(object(event)?).map(Report::Refund)
        }
        "charge.dispute.created"
        | "charge.dispute.updated"
        | "charge.dispute.closed"
        | "charge.dispute.funds_withdrawn"
        | "charge.dispute.funds_reinstated" => reports::dispute(object(event)?).map(Report::Dispute),
        "transfer.reversed" => payouts::reversal(object(event)?).map(Report::Reversal),
        // Among them `charge.refunded`, which sums up what the `refund.*` events tell one by one.
        _ => Ok(Report::Nothing),
    }
}

fn object(event: Fields<'_>) -> Result<Fields<'_>, Malformed> {
    let data = event.object("data")?;
    let object = match data {
        Some(data) => data.object("object")?,
        None => None,
    };
    object.ok_or_else(|| Malformed("data.object is missing".to_owned()))
}

fn session(object: Fields<'_>, state: PaymentState) -> Result<Report, Malformed> {
    Ok(reports::session(object, state)?.map_or(Report::Nothing, Report::Payment))
}

/// A checkout page's payment is told by the page's own events.
fn intent(object: Fields<'_>, state: PaymentState) -> Result<Report, Malformed> {
    if reports::is_off_session(object)? {
        reports::payment(object, state).map(Report::Payment)
    } else {
        Ok(Report::Nothing)
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
