//! The commands of payouts: open, told of, canceled; and where a workspace is paid out to.

use serde_json::{Value, json};

use super::account::{AccountKey, AccountKind, Balance};
use super::apply::{Posting, Step};
use super::command::Outcome;
use super::payout::{
    Connection, NewPayout, Payout, PayoutChange, PayoutMethod, PayoutProgress, PayoutReport, PayoutSettings,
    PayoutState, payable,
};
use super::rejection::Rejection;
use super::transfer::Cause;
use crate::ids::PayoutId;
use crate::money::Micros;

/// µUSD in a cent: a processor pays out whole cents.
const CENT: i64 = 10_000;

fn find(step: &Step<'_>, id: PayoutId) -> Result<Payout, Rejection> {
    let key = (step.command.tenant, id);
    if !step.books.payouts.is_loaded(&key) {
        return Err(Rejection::NotLoaded("payout"));
    }
    let found = step.books.payouts.get(&key);
    found.cloned().ok_or(Rejection::UnknownPayout)
}

fn settings(step: &Step<'_>) -> Result<PayoutSettings, Rejection> {
    if !step.books.payout_settings.is_loaded(&step.command.tenant) {
        return Err(Rejection::NotLoaded("payout settings"));
    }
    let found = step.books.payout_settings.get(&step.command.tenant);
    Ok(found.cloned().unwrap_or_default())
}

fn available(step: &Step<'_>) -> Result<Micros, Rejection> {
    let balance = |kind| -> Result<Balance, Rejection> {
        Ok(step
            .account(&AccountKey::of(step.command.tenant, kind))?
            .balance())
    };
    Ok(payable(
        balance(AccountKind::Margin)?,
        balance(AccountKind::Receivable)?.posted,
    ))
}

/// Keeps `amount` of the margin from being paid out: it may be taken back.
pub(super) fn reserve_margin(step: &mut Step<'_>, amount: Micros) -> Result<(), Rejection> {
    if amount.is_zero() {
        return Ok(());
    }
    let key = AccountKey::of(step.command.tenant, AccountKind::Margin);
    let mut margin = step.account(&key)?;
    margin.held = margin.held.checked_add(amount).ok_or(Rejection::Overflow)?;
    step.books.accounts.put(key, margin);
    Ok(())
}

/// Ends the keeping of `amount`.
pub(super) fn free_margin(step: &mut Step<'_>, amount: Micros) -> Result<(), Rejection> {
    if amount.is_zero() {
        return Ok(());
    }
    let key = AccountKey::of(step.command.tenant, AccountKind::Margin);
    let mut margin = step.account(&key)?;
    // A process of an older version kept nothing: its streams end all the same.
    margin.held = margin.held.saturating_sub_zero(amount);
    step.books.accounts.put(key, margin);
    Ok(())
}

/// Moves a payout's amount out of the margin, or back.
fn post(step: &mut Step<'_>, payout: &Payout, cause: Cause) -> Result<(), Rejection> {
    let of = |kind| AccountKey::of(step.command.tenant, kind);
    let (margin, payouts) = (of(AccountKind::Margin), of(AccountKind::Payouts));
    let (debit, credit) = if cause == Cause::Payout {
        (margin, payouts)
    } else {
        (payouts, margin)
    };
    step.post(Posting {
        debit,
        credit,
        amount: payout.amount,
        cause,
        call: None,
        reference: &payout.id.to_string().into(),
        attribution: None,
    })
    .map(drop)
}

/// Puts a changed payout back.
fn put(step: &mut Step<'_>, mut payout: Payout) -> Outcome {
    payout.updated_at = step.command.at;
    step.after = Some(shown(&payout).to_string().into());
    let key = (step.command.tenant, payout.id);
    step.books.payouts.put(key, payout.clone());
    Outcome::Payout {
        payout: Box::new(payout),
        changed: true,
    }
}

fn unchanged(payout: Payout) -> Outcome {
    Outcome::Payout {
        payout: Box::new(payout),
        changed: false,
    }
}

/// A payout in the audit log.
fn shown(payout: &Payout) -> Value {
    json!({
        "status": payout.state, "amountUsd": payout.amount, "destination": payout.destination,
        "reference": payout.reference, "failure": payout.failure,
    })
}

pub(super) fn open(step: &mut Step<'_>, new: &NewPayout) -> Result<Outcome, Rejection> {
    if let Some(claim) = &new.claim
        && let Some(subject) = step.claim(claim, new.id.0)?
    {
        return Ok(Outcome::Existing(subject));
    }
    step.active_tenant()?;
    if step.books.payouts.get(&(step.command.tenant, new.id)).is_some() {
        return Err(Rejection::Mismatch("the payout exists already"));
    }
    let processor = new.processor.as_deref();
    let destination = settings(step)?
        .destination(processor)
        .ok_or(Rejection::NoPayoutDestination)?;
    let available = available(step)?;
    let whole_cents = destination.method() == PayoutMethod::Processor;
    let rest = |amount: Micros| Micros::new(amount.get().rem_euclid(CENT));
    let amount = match new.amount {
        Some(amount) if amount <= Micros::ZERO => return Err(Rejection::NotPositive),
        Some(amount) if whole_cents && !rest(amount).is_zero() => return Err(Rejection::NotWholeCents),
        Some(amount) => amount,
        None if whole_cents => available.saturating_sub_zero(rest(available)),
        None => available,
    };
    if amount < new.min || amount <= Micros::ZERO {
        return Err(Rejection::BelowMinimum { min: new.min, amount });
    }
    // INVARIANT: no more is paid out than was earned.
    if amount > available {
        return Err(Rejection::InsufficientCredits {
            required: amount,
            available,
        });
    }
    let payout = Payout {
        id: new.id,
        amount,
        destination,
        state: PayoutState::Pending,
        reference: None,
        failure: None,
        credential: new.credential.clone(),
        created_at: step.command.at,
        updated_at: step.command.at,
    };
    post(step, &payout, Cause::Payout)?;
    Ok(put(step, payout))
}

pub(super) fn report(step: &mut Step<'_>, report: &PayoutReport) -> Result<Outcome, Rejection> {
    let mut payout = find(step, report.payout)?;
    step.before = Some(shown(&payout).to_string().into());
    match (&report.progress, payout.state) {
        (PayoutProgress::Begun, PayoutState::Pending) => payout.state = PayoutState::InTransit,
        (PayoutProgress::Paid(reference), state) if state.is_open() => {
            payout.state = PayoutState::Paid;
            payout.reference = Some(reference.clone());
        }
        (PayoutProgress::Failed(why), state) if state.is_open() => {
            post(step, &payout, Cause::PayoutReturned)?;
            payout.state = PayoutState::Failed;
            payout.failure = Some(why.clone());
        }
        // Also told of before it is known that it was sent.
        (PayoutProgress::Reversed(why), state) if !state.is_returned() => {
            post(step, &payout, Cause::PayoutReturned)?;
            payout.state = PayoutState::Failed;
            payout.failure = Some(why.clone());
        }
        // INVARIANT: what has ended stays so, and its amount goes back at most once.
        (
            PayoutProgress::Begun
            | PayoutProgress::Paid(_)
            | PayoutProgress::Failed(_)
            | PayoutProgress::Reversed(_),
            _,
        ) => return Ok(unchanged(payout)),
    }
    Ok(put(step, payout))
}

pub(super) fn cancel(step: &mut Step<'_>, id: PayoutId) -> Result<Outcome, Rejection> {
    let mut payout = find(step, id)?;
    step.before = Some(shown(&payout).to_string().into());
    match (payout.state, payout.destination.method()) {
        (PayoutState::Canceled, _) => return Ok(unchanged(payout)),
        // The processor may have sent it already, whatever is known here.
        (_, PayoutMethod::Processor) => return Err(Rejection::NotCancelable("the processor pays it out")),
        (PayoutState::InTransit, _) => return Err(Rejection::NotCancelable("it is being sent")),
        (PayoutState::Paid | PayoutState::Failed, _) => return Err(Rejection::NotCancelable("it is over")),
        (PayoutState::Pending, PayoutMethod::Stablecoin) => {}
    }
    post(step, &payout, Cause::PayoutReturned)?;
    payout.state = PayoutState::Canceled;
    Ok(put(step, payout))
}

pub(super) fn change(step: &mut Step<'_>, change: &PayoutChange) -> Result<Outcome, Rejection> {
    step.tenant()?;
    let before = settings(step)?;
    let mut after = before.clone();
    match change {
        PayoutChange::Stablecoin(address) => {
            step.active_tenant()?;
            after.stablecoin = Some(address.clone());
        }
        PayoutChange::Connect {
            processor,
            account,
            ended,
        } => {
            step.active_tenant()?;
            if *ended != before.ended {
                return Err(Rejection::ConnectionChanged);
            }
            if before.connection_to(Some(processor)).is_none() {
                after.connection = Some(Connection {
                    processor: processor.clone(),
                    account: account.clone(),
                    details_submitted: false,
                    payable: false,
                    disabled_reason: None,
                    connected_at: step.command.at,
                });
            }
        }
        PayoutChange::Account(report) => {
            after.learn(report);
        }
        PayoutChange::Disconnect => {
            if after.connection.take().is_some() {
                after.ended = after.ended.saturating_add(1);
            }
        }
    }
    let changed = before != after;
    if changed {
        step.before = Some(json!(before).to_string().into());
        step.after = Some(json!(after).to_string().into());
        step.books.payout_settings.put(step.command.tenant, after.clone());
    }
    Ok(Outcome::PayoutSettings {
        settings: Box::new(after),
        changed,
    })
}
