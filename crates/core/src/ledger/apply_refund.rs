//! The commands of a refund of a top-up: asked for here, or told of by the processor.
//!
//! Asked for here, the credits are held first and nothing is refunded that is not there. Made at the processor,
//! the money is gone already: what the payer no longer has becomes the tenant's debt.

use std::sync::Arc;

use serde_json::json;

use super::apply::{Step, object};
use super::apply_topup::{find, handled, name, put};
use super::clawback::{claw, hold_back, let_go, restore, thaw};
use super::command::{NewRefund, Outcome, RefundReport};
use super::event::EventType;
use super::rejection::Rejection;
use super::shares::{fill_up, freeze_by_refund, share};
use super::topup::{Parts, Refund, RefundState, Topup, TopupState};
use super::transfer::Cause;
use crate::ids::RefundId;
use crate::money::Micros;

/// Most refunds of one top-up that may be asked for here; what the processor tells of is a fact.
const MAX_REFUNDS: usize = 100;

pub(super) fn open(step: &mut Step<'_>, new: &NewRefund) -> Result<Outcome, Rejection> {
    if let Some(claim) = &new.claim
        && let Some(subject) = step.claim(claim, new.id.0)?
    {
        return Ok(Outcome::Existing(subject));
    }
    step.active_tenant()?;
    let mut topup = find(step, &new.topup)?;
    if topup.state != TopupState::Completed {
        return Err(Rejection::NotRefundable("it is not completed"));
    }
    let left = topup.refundable_cents();
    let cents = new.cents.unwrap_or(left);
    if cents <= 0 {
        return Err(Rejection::NotRefundable("nothing of it is left"));
    }
    if cents > left {
        return Err(Rejection::NotRefundable("it is more than what is left"));
    }
    if topup.refunds.len() >= MAX_REFUNDS {
        return Err(Rejection::NotRefundable("it has too many refunds"));
    }
    let parts = topup.parts_of(cents).ok_or(Rejection::Overflow)?;
    let due = parts.due().ok_or(Rejection::Overflow)?;
    let payer = topup.holder();
    let available = step.account(&payer.account(step.command.tenant))?.available();
    if available < due {
        return Err(Rejection::InsufficientCredits {
            required: due,
            available,
        });
    }
    let held = hold_back(step, &payer, due)?;
    topup.refunds.push(Refund {
        id: new.id,
        reference: None,
        cents,
        parts,
        held,
        clawed: None,
        state: RefundState::Pending,
        parked: false,
        given_up: false,
        froze: None,
        reason: new.reason.clone(),
        failure: None,
        created_at: step.command.at,
    });
    put(step, topup)
}

pub(super) fn report(step: &mut Step<'_>, report: &RefundReport) -> Result<Outcome, Rejection> {
    let mut topup = find(step, &report.topup)?;
    if handled(step, report.event.as_ref(), &report.topup)? {
        return Ok(Outcome::Existing(topup.id.0));
    }
    if let Some(reference) = &report.reference {
        name(step, &topup, reference);
    }
    // Under our id, but of another name than the processor gave ours: it made a second one.
    let is_ours = |refund: &Refund| {
        let other =
            refund.reference.is_some() && report.reference.is_some() && refund.reference != report.reference;
        report.refund == Some(refund.id) && !other
    };
    let at = topup.refunds.iter().position(|refund| {
        is_ours(refund) || (report.reference.is_some() && refund.reference == report.reference)
    });
    let mut refund = match at {
        Some(at) => topup.refunds.remove(at),
        None => told(step, &topup, report)?,
    };
    let news = follows(&refund, report.state);
    if refund.reference.is_none() {
        refund.reference.clone_from(&report.reference);
    }
    if news && refund.parked {
        refund.state = report.state;
        refund.failure.clone_from(&report.failure);
    } else if news {
        advance(step, &topup, &mut refund, report)?;
    }
    let at = at.unwrap_or(topup.refunds.len()).min(topup.refunds.len());
    topup.refunds.insert(at, refund);
    fill_up(step, &mut topup)?;
    restate(&mut topup);
    put(step, topup)
}

/// A refund that was made at the processor: nothing is held for it, and it may come before the payment.
fn told(step: &Step<'_>, topup: &Topup, report: &RefundReport) -> Result<Refund, Rejection> {
    let Some(reference) = &report.reference else {
        return Err(Rejection::UnknownTopup);
    };
    let parked = !topup.state.is_credited();
    let parts = if parked {
        Parts::default()
    } else {
        share(topup, report.cents)?
    };
    Ok(Refund {
        id: RefundId::derive(step.command.tenant, reference),
        reference: Some(reference.clone()),
        cents: report.cents,
        parts,
        held: Micros::ZERO,
        clawed: None,
        state: RefundState::Pending,
        parked,
        given_up: false,
        froze: None,
        reason: "refunded at the processor".into(),
        failure: None,
        created_at: step.command.at,
    })
}

/// A top-up is `Refunded` exactly while all of it is.
fn restate(topup: &mut Topup) {
    if topup.state.is_credited() {
        topup.state = if topup.is_refunded() {
            TopupState::Refunded
        } else {
            TopupState::Completed
        };
    }
}

/// Whether `state` is news of `refund`. The processor's own failure is its last word, and what it told before
/// may arrive after it; only a refund that was given up here can still be made.
fn follows(refund: &Refund, state: RefundState) -> bool {
    match refund.state {
        RefundState::Pending => state != RefundState::Pending,
        RefundState::Succeeded => matches!(state, RefundState::Failed | RefundState::Canceled),
        RefundState::Failed | RefundState::Canceled => {
            refund.given_up && matches!(state, RefundState::Pending | RefundState::Succeeded)
        }
    }
}

/// Brings `refund`, which is not among the top-up's at the moment, to the reported state.
fn advance(
    step: &mut Step<'_>,
    topup: &Topup,
    refund: &mut Refund,
    report: &RefundReport,
) -> Result<(), Rejection> {
    match (refund.state, report.state) {
        (RefundState::Pending, RefundState::Succeeded) => succeed(step, topup, refund),
        (RefundState::Failed | RefundState::Canceled, RefundState::Succeeded) => {
            // Its share was free for others meanwhile.
            refund.parts = share(topup, refund.cents)?;
            refund.failure = None;
            refund.given_up = false;
            succeed(step, topup, refund)
        }
        (RefundState::Failed | RefundState::Canceled, RefundState::Pending) => {
            // It is under way after all: what is there is held again.
            refund.parts = share(topup, refund.cents)?;
            let due = refund.parts.due().ok_or(Rejection::Overflow)?;
            refund.held = hold_back(step, &topup.holder(), due)?;
            refund.state = RefundState::Pending;
            refund.failure = None;
            refund.given_up = false;
            Ok(())
        }
        (RefundState::Pending, RefundState::Failed | RefundState::Canceled) => {
            let_go(step, &topup.holder(), std::mem::take(&mut refund.held))?;
            refund.state = report.state;
            refund.given_up = report.reference.is_none() && refund.reference.is_none();
            refund.failure.clone_from(&report.failure);
            emit(step, topup, refund, Micros::ZERO)
        }
        (RefundState::Succeeded, RefundState::Failed | RefundState::Canceled) => {
            let clawed = refund.clawed.take().unwrap_or_default();
            restore(step, topup, clawed)?;
            thaw(step, &topup.holder(), refund.froze.take())?;
            refund.state = report.state;
            refund.failure.clone_from(&report.failure);
            emit(step, topup, refund, Micros::ZERO)
        }
        // Nothing new.
        (RefundState::Pending | RefundState::Succeeded | RefundState::Failed | RefundState::Canceled, _) => {
            Ok(())
        }
    }
}

fn succeed(step: &mut Step<'_>, topup: &Topup, refund: &mut Refund) -> Result<(), Rejection> {
    let_go(step, &topup.holder(), std::mem::take(&mut refund.held))?;
    let taken = claw(step, topup, refund.parts, Cause::TopupRefund)?;
    refund.clawed = Some(taken.clawed);
    refund.state = RefundState::Succeeded;
    emit(step, topup, refund, taken.debited)?;
    freeze_by_refund(step, topup, refund)
}

fn emit(step: &mut Step<'_>, topup: &Topup, refund: &Refund, debited: Micros) -> Result<(), Rejection> {
    let balance = step.account(&topup.holder().account(step.command.tenant))?.posted;
    let reason = refund.failure.as_ref().unwrap_or(&refund.reason);
    let data = object([
        ("refundId", json!(refund.id)),
        ("kind", json!("topup_refund")),
        (
            "amountUsd",
            json!(Micros::new(refund.cents.saturating_mul(10_000))),
        ),
        ("creditsUsd", json!(debited)),
        ("balanceUsd", json!(balance)),
        ("originalReference", json!(topup.session)),
        ("reason", json!(reason)),
        ("status", json!(refund.state)),
    ]);
    let reference: Arc<str> = refund.id.to_string().into();
    step.emit(EventType::RefundIssued, topup.owner.as_ref(), &reference, data)
}

/// Refunds that were told of before the payment take effect.
pub(super) fn unpark(step: &mut Step<'_>, topup: &mut Topup) -> Result<(), Rejection> {
    for at in 0..topup.refunds.len() {
        let parked = topup.refunds.get(at).is_some_and(|refund| refund.parked);
        if !parked {
            continue;
        }
        let mut refund = topup.refunds.remove(at);
        refund.parked = false;
        refund.parts = share(topup, refund.cents)?;
        if refund.state == RefundState::Succeeded {
            refund.state = RefundState::Pending;
            succeed(step, topup, &mut refund)?;
        }
        topup.refunds.insert(at, refund);
    }
    restate(topup);
    Ok(())
}
