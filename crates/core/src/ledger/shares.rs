//! Which part of a payment each refund and each dispute gives back.
//!
//! Both are facts at the processor, and together they may stand for more than was paid: a payment is refunded
//! while it is disputed, and the bank lets one of the two go. Here they never take more than was paid: each has
//! the share that was left when it came, and what another lets go fills it up.

use super::apply::Step;
use super::clawback::{claw, freeze, hold_back};
use super::rejection::Rejection;
use super::topup::{Clawed, Dispute, DisputeState, Parts, Refund, RefundState, Topup};
use super::transfer::Cause;

/// What `cents` more would take of `topup`, as far as something is left.
pub(super) fn share(topup: &Topup, cents: i64) -> Result<Parts, Rejection> {
    let cents = cents.min(topup.refundable_cents()).max(0);
    topup.parts_of(cents).ok_or(Rejection::Overflow)
}

/// What `cents`, of which `parts` are there, can still take of `topup`.
fn missing(topup: &Topup, cents: i64, parts: Parts) -> Result<Option<Parts>, Rejection> {
    let more = share(topup, cents.saturating_sub(parts.cents()))?;
    Ok((more.cents() > 0).then_some(more))
}

/// Gives what was let go to those that found less than they stand for, oldest first.
pub(super) fn fill_up(step: &mut Step<'_>, topup: &mut Topup) -> Result<(), Rejection> {
    for at in 0..topup.refunds.len() {
        let Some(mut refund) = topup.refunds.get(at).filter(|refund| refund.counts()).cloned() else {
            continue;
        };
        if let Some(more) = missing(topup, refund.cents, refund.parts)? {
            refund.parts = refund.parts.plus(more).ok_or(Rejection::Overflow)?;
            if refund.state == RefundState::Succeeded {
                let taken = claw(step, topup, more, Cause::TopupRefund)?.clawed;
                refund.clawed = Some(with(refund.clawed, taken)?);
                freeze_by_refund(step, topup, &mut refund)?;
            }
            if let Some(row) = topup.refunds.get_mut(at) {
                *row = refund;
            }
        }
    }
    for at in 0..topup.disputes.len() {
        let Some(mut dispute) = topup.disputes.get(at).filter(|it| it.counts()).cloned() else {
            continue;
        };
        if let Some(more) = missing(topup, dispute.cents, dispute.parts)? {
            dispute.parts = dispute.parts.plus(more).ok_or(Rejection::Overflow)?;
            if dispute.state == DisputeState::Lost {
                let taken = claw(step, topup, more, Cause::Dispute)?.clawed;
                dispute.clawed = Some(with(dispute.clawed, taken)?);
            } else {
                let due = more.due().ok_or(Rejection::Overflow)?;
                let held = hold_back(step, &topup.holder(), due)?;
                dispute.held = dispute.held.checked_add(held).ok_or(Rejection::Overflow)?;
            }
            freeze_by_dispute(step, topup, &mut dispute)?;
            if let Some(row) = topup.disputes.get_mut(at) {
                *row = dispute;
            }
        }
    }
    Ok(())
}

fn with(before: Option<Clawed>, more: Clawed) -> Result<Clawed, Rejection> {
    before.unwrap_or_default().plus(more).ok_or(Rejection::Overflow)
}

/// A refund whose credits are spent freezes the account, once.
pub(super) fn freeze_by_refund(
    step: &mut Step<'_>,
    topup: &Topup,
    refund: &mut Refund,
) -> Result<(), Rejection> {
    let short = refund.clawed.is_some_and(Clawed::is_short);
    if short && refund.froze.is_none() {
        let reference = refund.id.to_string();
        let spell = freeze(step, &topup.holder(), "refund_of_spent_credits", &reference)?;
        refund.froze = Some(spell);
    }
    Ok(())
}

/// A dispute whose credits are spent freezes the account, once.
pub(super) fn freeze_by_dispute(
    step: &mut Step<'_>,
    topup: &Topup,
    dispute: &mut Dispute,
) -> Result<(), Rejection> {
    let due = dispute.parts.due().ok_or(Rejection::Overflow)?;
    let short = match dispute.clawed {
        Some(clawed) => clawed.is_short(),
        None => dispute.held < due,
    };
    if short && dispute.froze.is_none() {
        let reference = dispute.id.to_string();
        let spell = freeze(step, &topup.holder(), "dispute_of_spent_credits", &reference)?;
        dispute.froze = Some(spell);
    }
    Ok(())
}
