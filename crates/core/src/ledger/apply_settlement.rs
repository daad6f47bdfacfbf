//! The commands of a paid call's settlement: somebody goes on with it, somebody learnt what became of it.

use super::account::{AccountKey, AccountKind};
use super::apply::Step;
use super::apply_paid_call::{end, find, give_back, lose, post, put, unchanged};
use super::command::Outcome;
use super::paid_call::{
    LeaseSettlement, PaidCall, PaidCallState, Settlement, SettlementProgress, SettlementReport,
};
use super::rejection::Rejection;
use super::transfer::Cause;
use crate::money::Micros;

/// How long after a first refusal somebody tries again.
const FIRST_PAUSE_MS: i64 = 30_000;
/// Why a call failed whose payer used the authorisation's nonce for a smaller payment.
const SHORT: &str = "payment_short";

pub(super) fn lease(step: &mut Step<'_>, lease: &LeaseSettlement) -> Result<Outcome, Rejection> {
    let mut call = find(step, &lease.call)?;
    // INVARIANT: of two that read the same row one goes on.
    if !call.state.is_answered() || call.tries != lease.tries {
        return Err(Rejection::PaidCallNotOpen(call.state));
    }
    if call.state == PaidCallState::Settling {
        // Of the try before this one nothing is known: what was refused before it says nothing any more.
        call.refusal = None;
    }
    call.state = PaidCallState::Settling;
    call.tries = call.tries.checked_add(1).ok_or(Rejection::Overflow)?;
    call.instance = lease.instance;
    call.due_at = lease.due_at;
    Ok(put(step, call))
}

pub(super) fn report(step: &mut Step<'_>, report: &SettlementReport) -> Result<Outcome, Rejection> {
    let mut call = find(step, &report.call)?;
    if call.state.is_unanswered() {
        return Err(Rejection::PaidCallNotOpen(call.state));
    }
    let overtaken = report.tries.is_some_and(|tries| tries != call.tries);
    if overtaken && !matches!(report.progress, SettlementProgress::Settled { .. }) {
        return Ok(unchanged(call));
    }
    let open = call.state.is_answered();
    // Given up as void and settled all the same: the chain is right in the end.
    let void = call.state == PaidCallState::Failed && call.charge.is_some() && call.settlement.is_none();
    match &report.progress {
        SettlementProgress::Settled {
            amount,
            transaction,
            response,
        } if open || void => {
            let settlement = Settlement {
                amount: *amount,
                transaction: transaction.clone(),
                response: response.clone(),
                at: step.command.at,
            };
            settle(step, &mut call, settlement)?;
        }
        SettlementProgress::Refused { response } if call.state == PaidCallState::Settling => {
            call.state = PaidCallState::Refused;
            call.refusal = Some(response.clone());
            call.refused_at = Some(step.command.at);
            // The caller may try again at once; somebody does it in any case, and at the deadline finds out.
            let pause = FIRST_PAUSE_MS.saturating_mul(1_i64 << call.tries.min(6));
            let (now, end) = (step.command.at, call.payment.valid_before);
            call.due_at = now.plus_millis(pause);
            if now < end {
                call.due_at = call.due_at.min(end);
            }
        }
        SettlementProgress::Unknown { due_at } if open => {
            call.due_at = *due_at;
            // What was refused before may have happened by now.
            call.refusal = None;
        }
        SettlementProgress::Void { reason } if open => {
            let base = call.charge.map_or(Micros::ZERO, |charge| charge.base);
            lose(step, &mut call, base)?;
            end(step, &mut call, reason)?;
        }
        // INVARIANT: what has ended stays so, and is paid at most once.
        SettlementProgress::Settled { .. }
        | SettlementProgress::Refused { .. }
        | SettlementProgress::Unknown { .. }
        | SettlementProgress::Void { .. } => return Ok(unchanged(call)),
    }
    Ok(put(step, call))
}

/// Books what moved: first to the provider's cost, the rest is margin.
pub(super) fn settle(
    step: &mut Step<'_>,
    call: &mut PaidCall,
    settlement: Settlement,
) -> Result<(), Rejection> {
    let amount = settlement.amount;
    if amount.is_negative() {
        return Err(Rejection::NotPositive);
    }
    let tenant = step.command.tenant;
    let of = |kind| AccountKey::of(tenant, kind);
    let payer = PaidCall::account(tenant, call.payment.payer);
    let base = call.charge.map_or(Micros::ZERO, |charge| charge.base);
    let covered = base.min(amount);
    let was_open = call.state != PaidCallState::Failed;
    // INVARIANT: an answer is given for what was due, and for nothing less.
    let short = call.charge.is_some_and(|charge| amount < charge.effective);
    call.state = if short {
        PaidCallState::Failed
    } else {
        PaidCallState::Settled
    };
    call.settlement = Some(settlement);
    call.failure = short.then(|| SHORT.into());
    call.payment.signed = None;
    call.ended_at = Some(step.command.at);
    let cost = (payer.clone(), of(AccountKind::ProviderCost));
    post(step, call, cost, covered, Cause::PublicCharge)?;
    let margin = (payer, of(AccountKind::Margin));
    let rest = amount.saturating_sub_zero(covered);
    post(step, call, margin, rest, Cause::PublicMargin)?;
    if was_open {
        lose(step, call, base.saturating_sub_zero(covered))?;
        give_back(step, call)
    } else {
        // The whole base was lost when it was given up.
        let back = (of(AccountKind::ProviderCost), of(AccountKind::OperatorLoss));
        post(step, call, back, covered, Cause::LossReversal)?;
        call.loss = call.loss.checked_sub(covered).ok_or(Rejection::Overflow)?;
        Ok(())
    }
}
