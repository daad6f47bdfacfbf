//! A dispute of a top-up's payment, as the processor tells of it.
//!
//! Opened, it holds the disputed credits; what is spent already freezes the account. Lost, it takes them; won, it
//! lets them go. Both may be reversed later.

use serde_json::json;

use super::apply::{Step, object};
use super::apply_topup::{find, handled, name, put};
use super::clawback::{claw, hold_back, let_go, restore, thaw};
use super::command::{DisputeReport, Outcome};
use super::event::EventType;
use super::rejection::Rejection;
use super::shares::{fill_up, freeze_by_dispute, share};
use super::topup::{Clawed, Dispute, DisputeState, Parts, Topup};
use super::transfer::Cause;
use crate::ids::DisputeId;
use crate::money::Micros;

pub(super) fn report(step: &mut Step<'_>, report: &DisputeReport) -> Result<Outcome, Rejection> {
    let mut topup = find(step, &report.topup)?;
    if handled(step, report.event.as_ref(), &report.topup)? {
        return Ok(Outcome::Existing(topup.id.0));
    }
    name(step, &topup, &report.reference);
    let at = topup
        .disputes
        .iter()
        .position(|dispute| dispute.reference == report.reference);
    let mut dispute = match at {
        Some(at) => topup.disputes.remove(at),
        None => Dispute {
            id: DisputeId::derive(step.command.tenant, &report.reference),
            reference: report.reference.clone(),
            cents: report.cents,
            parts: Parts::default(),
            held: Micros::ZERO,
            clawed: None,
            state: DisputeState::Warning,
            parked: !topup.state.is_credited(),
            froze: None,
            reason: report.reason.clone(),
            due_by: report.due_by,
            created_at: step.command.at,
        },
    };
    if dispute.parked {
        if follows(dispute.state, report.state) {
            dispute.state = report.state;
        }
    } else {
        advance(step, &topup, &mut dispute, report.state)?;
    }
    let at = at.unwrap_or(topup.disputes.len()).min(topup.disputes.len());
    topup.disputes.insert(at, dispute);
    fill_up(step, &mut topup)?;
    put(step, topup)
}

/// Whether `to` is news of a dispute that is `from`, and not a state that it passed before.
fn follows(from: DisputeState, to: DisputeState) -> bool {
    match (from, to) {
        (DisputeState::Warning, _) => to != DisputeState::Warning,
        (DisputeState::Open | DisputeState::Won, DisputeState::Lost)
        | (DisputeState::Open | DisputeState::Lost, DisputeState::Won) => true,
        (DisputeState::Open | DisputeState::Won | DisputeState::Lost, _) => false,
    }
}

/// Brings `dispute`, which is not among the top-up's at the moment, to `state`.
fn advance(
    step: &mut Step<'_>,
    topup: &Topup,
    dispute: &mut Dispute,
    state: DisputeState,
) -> Result<(), Rejection> {
    match (dispute.state, state) {
        (DisputeState::Warning, DisputeState::Open) => open(step, topup, dispute),
        (DisputeState::Warning, DisputeState::Won) => {
            dispute.state = DisputeState::Won;
            Ok(())
        }
        (DisputeState::Warning, DisputeState::Lost) => {
            open(step, topup, dispute)?;
            lose(step, topup, dispute)
        }
        (DisputeState::Open, DisputeState::Won) => win(step, topup, dispute),
        (DisputeState::Open, DisputeState::Lost) => lose(step, topup, dispute),
        (DisputeState::Lost, DisputeState::Won) => {
            let clawed = dispute.clawed.take().unwrap_or_default();
            restore(step, topup, clawed)?;
            win(step, topup, dispute)
        }
        (DisputeState::Won, DisputeState::Lost) => {
            dispute.parts = share(topup, dispute.cents)?;
            lose(step, topup, dispute)
        }
        // Nothing new, or a state that was passed before.
        (DisputeState::Warning | DisputeState::Open | DisputeState::Won | DisputeState::Lost, _) => Ok(()),
    }
}

fn open(step: &mut Step<'_>, topup: &Topup, dispute: &mut Dispute) -> Result<(), Rejection> {
    dispute.parts = share(topup, dispute.cents)?;
    let due = dispute.parts.due().ok_or(Rejection::Overflow)?;
    dispute.held = hold_back(step, &topup.holder(), due)?;
    dispute.state = DisputeState::Open;
    let data = object([
        ("disputeId", json!(dispute.id)),
        ("amountUsd", json!(amount(dispute))),
        ("reason", json!(dispute.reason)),
        ("dueBy", json!(dispute.due_by)),
    ]);
    step.emit(
        EventType::DisputeOpened,
        topup.owner.as_ref(),
        &topup.session,
        data,
    )?;
    freeze_by_dispute(step, topup, dispute)
}

fn lose(step: &mut Step<'_>, topup: &Topup, dispute: &mut Dispute) -> Result<(), Rejection> {
    let payer = topup.holder();
    let_go(step, &payer, std::mem::take(&mut dispute.held))?;
    let taken = claw(step, topup, dispute.parts, Cause::Dispute)?;
    dispute.clawed = Some(taken.clawed);
    dispute.state = DisputeState::Lost;
    emit_closed(step, topup, dispute, taken.debited)?;
    if !dispute.clawed.is_some_and(Clawed::is_short) {
        thaw(step, &payer, dispute.froze.take())?;
    }
    freeze_by_dispute(step, topup, dispute)
}

fn win(step: &mut Step<'_>, topup: &Topup, dispute: &mut Dispute) -> Result<(), Rejection> {
    let payer = topup.holder();
    let_go(step, &payer, std::mem::take(&mut dispute.held))?;
    thaw(step, &payer, dispute.froze.take())?;
    dispute.state = DisputeState::Won;
    emit_closed(step, topup, dispute, Micros::ZERO)
}

fn amount(dispute: &Dispute) -> Micros {
    Micros::new(dispute.cents.saturating_mul(10_000))
}

fn emit_closed(
    step: &mut Step<'_>,
    topup: &Topup,
    dispute: &Dispute,
    debited: Micros,
) -> Result<(), Rejection> {
    let data = object([
        ("disputeId", json!(dispute.id)),
        ("amountUsd", json!(amount(dispute))),
        ("reason", json!(dispute.reason)),
        ("dueBy", json!(dispute.due_by)),
        ("outcome", json!(dispute.state)),
        ("debitedUsd", json!(debited)),
    ]);
    step.emit(
        EventType::DisputeClosed,
        topup.owner.as_ref(),
        &topup.session,
        data,
    )
}

/// Disputes that were told of before the payment take effect.
pub(super) fn unpark(step: &mut Step<'_>, topup: &mut Topup) -> Result<(), Rejection> {
    for at in 0..topup.disputes.len() {
        let parked = topup.disputes.get(at).is_some_and(|dispute| dispute.parked);
        if !parked {
            continue;
        }
        let mut dispute = topup.disputes.remove(at);
        let state = std::mem::replace(&mut dispute.state, DisputeState::Warning);
        dispute.parked = false;
        advance(step, topup, &mut dispute, state)?;
        topup.disputes.insert(at, dispute);
    }
    Ok(())
}
