//! The commands of paid calls until their answer is stored: claimed, finished, failed, abandoned.
//!
//! What becomes of the settlement stands in [`super::apply_settlement`].

use std::sync::Arc;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::account::AccountKind;
use super::apply::{Posting, Step};
use super::apply_settlement::settle;
use super::books::DriftRecord;
use super::command::{Drift, DriftKind, Outcome};
use super::hold::Claim;
use super::paid_call::{
    FailPaidCall, FinishPaidCall, NewPaidCall, PaidCall, PaidCallRef, PaidCallState, Settlement,
};
use super::rejection::Rejection;
use super::transfer::{Cause, text};
use crate::ids::CallId;
use crate::ledger::AccountKey;
use crate::money::Micros;
use crate::pricing::Charge;
use crate::x402::SettleResponse;

/// The row that `call` names.
pub(super) fn find(step: &Step<'_>, call: &PaidCallRef) -> Result<PaidCall, Rejection> {
    let key = (step.command.tenant, call.id);
    if !step.books.paid_calls.is_loaded(&key) {
        return Err(Rejection::NotLoaded("paid call"));
    }
    let found = step.books.paid_calls.get(&key);
    let found = found.cloned().ok_or(Rejection::UnknownPaidCall)?;
    if found.payment.payer != call.payer || found.payment.key != call.key {
        return Err(Rejection::Mismatch("another payment pays for the request"));
    }
    Ok(found)
}

/// Puts a changed call back.
pub(super) fn put(step: &mut Step<'_>, call: PaidCall) -> Outcome {
    let key = (step.command.tenant, call.id);
    step.books.paid_calls.put(key, call.clone());
    Outcome::PaidCall {
        call: Box::new(call),
        changed: true,
    }
}

pub(super) fn unchanged(call: PaidCall) -> Outcome {
    Outcome::PaidCall {
        call: Box::new(call),
        changed: false,
    }
}

pub(super) fn claim(step: &mut Step<'_>, new: &NewPaidCall) -> Result<Outcome, Rejection> {
    let tenant = step.command.tenant;
    let key = (tenant, new.id);
    let claim = PaidCall::claim(tenant, &new.payment.key);
    if !step.books.paid_calls.is_loaded(&key) {
        return Err(Rejection::NotLoaded("paid call"));
    }
    if !step.books.claims.is_loaded(&claim) {
        return Err(Rejection::NotLoaded("claim"));
    }
    if let Some(found) = step.books.paid_calls.get(&key) {
        return if is_same(found, new) {
            Ok(unchanged(found.clone()))
        } else {
            Err(Rejection::PaidCallConflict)
        };
    }
    // INVARIANT: a payment pays for one request.
    if step.books.claims.get(&claim).is_some() {
        return Err(Rejection::PaidCallConflict);
    }
    step.active_tenant()?;
    if new.payment.max <= Micros::ZERO || new.subject.base.is_negative() {
        return Err(Rejection::NotPositive);
    }
    if new.subject.base > new.payment.max {
        return Err(Rejection::Mismatch("the call can cost more than is authorised"));
    }
    let account_key = PaidCall::account(tenant, new.payment.payer);
    let mut account = step.account(&account_key)?;
    let held = account
        .held
        .checked_add(new.payment.max)
        .ok_or(Rejection::Overflow)?;
    let calls = account.open_calls.checked_add(1).ok_or(Rejection::Overflow)?;
    if held > new.cap.amount || calls > new.cap.calls {
        return Err(Rejection::PayerCapReached {
            open: account.held,
            calls: account.open_calls,
        });
    }
    (account.held, account.open_calls) = (held, calls);
    step.books.accounts.put(account_key, account);
    let taken = Claim {
        fingerprint: fingerprint(new),
        subject: new.id.0,
    };
    step.books.claims.put(claim, taken);
    Ok(put(step, claimed(step, new)))
}

/// The row of a request whose payment was claimed now. Whoever claims it sends it next: where somebody is asked, it may
/// have been sent from here on.
fn claimed(step: &Step<'_>, new: &NewPaidCall) -> PaidCall {
    let dispatched_at = new.subject.provider.as_ref().map(|_provider| step.command.at);
    PaidCall {
        id: new.id,
        subject: new.subject.clone(),
        payment: new.payment.clone(),
        state: if dispatched_at.is_some() {
            PaidCallState::Dispatched
        } else {
            PaidCallState::Claimed
        },
        instance: new.instance,
        due_at: new.due_at,
        dispatched_at,
        charge: None,
        usage: None,
        tries: 0,
        refusal: None,
        refused_at: None,
        settlement: None,
        failure: None,
        loss: Micros::ZERO,
        created_at: step.command.at,
        ended_at: None,
    }
}

/// Whether `new` is the request that `found` stands for, with the payment that pays for it.
fn is_same(found: &PaidCall, new: &NewPaidCall) -> bool {
    found.subject.body_hash == new.subject.body_hash
        && found.subject.operation == new.subject.operation
        && found.payment.key == new.payment.key
        && found.payment.payer == new.payment.payer
}

/// SHA-256 of what a payment is bound to.
fn fingerprint(new: &NewPaidCall) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(new.id.0.as_bytes());
    hasher.update(new.payment.payer.0);
    for part in [
        new.subject.operation.as_str(),
        &*new.subject.body_hash,
        &*new.payment.key,
    ] {
        text(&mut hasher, part);
    }
    hasher.finalize().into()
}

pub(super) fn finish(step: &mut Step<'_>, finish: &FinishPaidCall) -> Result<Outcome, Rejection> {
    let mut call = find(step, &finish.call)?;
    if call.charge == Some(finish.charge) {
        return Ok(unchanged(call));
    }
    let answered = match call.state {
        PaidCallState::Dispatched => true,
        PaidCallState::Claimed => call.subject.provider.is_none(),
        PaidCallState::Settling | PaidCallState::Refused | PaidCallState::Settled | PaidCallState::Failed => {
            false
        }
    };
    if !answered {
        return Err(Rejection::PaidCallNotOpen(call.state));
    }
    check(&finish.charge, call.payment.max)?;
    call.charge = Some(finish.charge);
    call.usage = finish.usage;
    book_drift(step, &mut call, finish.drift.as_ref())?;
    let outcome = (step.command.tenant, CallId(call.id.0), finish.outcome.clone());
    step.books.outcomes.push(outcome);
    if finish.charge.effective.is_zero() {
        let free = nothing_due(step, &call);
        settle(step, &mut call, free)?;
    } else {
        call.state = PaidCallState::Settling;
        call.tries = 1;
        call.due_at = finish.due_at;
    }
    Ok(put(step, call))
}

/// What is settled is within what was authorised, and its parts add up.
fn check(charge: &Charge, max: Micros) -> Result<(), Rejection> {
    let parts = [charge.base, charge.margin];
    if parts.iter().any(|part| part.is_negative()) {
        return Err(Rejection::NotPositive);
    }
    if charge.base.checked_add(charge.margin) != Some(charge.effective) {
        return Err(Rejection::Mismatch("the parts of the charge do not add up"));
    }
    // INVARIANT: no more is settled than was authorised.
    if charge.effective > max {
        return Err(Rejection::Mismatch("the charge is above what was authorised"));
    }
    Ok(())
}

/// The proof of a call that costs nothing: nobody is asked to settle it.
fn nothing_due(step: &Step<'_>, call: &PaidCall) -> Settlement {
    let response = SettleResponse {
        success: true,
        transaction: String::new(),
        network: call.payment.network.to_string(),
        payer: Some(call.payment.payer.to_string()),
        amount: Some("0".to_owned()),
        error_reason: None,
        error_message: None,
    };
    Settlement {
        amount: Micros::ZERO,
        transaction: "".into(),
        response: json!(response).to_string().into(),
        at: step.command.at,
    }
}

pub(super) fn fail(step: &mut Step<'_>, fail: &FailPaidCall) -> Result<Outcome, Rejection> {
    let mut call = find(step, &fail.call)?;
    let failed = call.state == PaidCallState::Failed && call.charge.is_none();
    if failed && call.failure.as_ref() == Some(&fail.failure) {
        return Ok(unchanged(call));
    }
    if !call.state.is_unanswered() {
        return Err(Rejection::PaidCallNotOpen(call.state));
    }
    book_drift(step, &mut call, fail.drift.as_ref())?;
    end(step, &mut call, &fail.failure)?;
    Ok(put(step, call))
}

pub(super) fn abandon(step: &mut Step<'_>, call: &PaidCallRef) -> Result<Outcome, Rejection> {
    let mut call = find(step, call)?;
    match call.state {
        PaidCallState::Claimed => {
            // Certainly nothing was sent: the request and its payment may begin again.
            let claim = PaidCall::claim(step.command.tenant, &call.payment.key);
            if !step.books.claims.is_loaded(&claim) {
                return Err(Rejection::NotLoaded("claim"));
            }
            give_back(step, &call)?;
            step.books.claims.remove(claim);
            step.books.paid_calls.remove((step.command.tenant, call.id));
            Ok(Outcome::PaidCall {
                call: Box::new(call),
                changed: true,
            })
        }
        PaidCallState::Dispatched => {
            let drift = Drift {
                kind: DriftKind::OutcomeUnknown,
                detail: "no outcome after dispatch".into(),
                loss: call.subject.base,
            };
            book_drift(step, &mut call, Some(&drift))?;
            end(step, &mut call, &"UPSTREAM_TIMEOUT".into())?;
            Ok(put(step, call))
        }
        PaidCallState::Settling | PaidCallState::Refused | PaidCallState::Settled | PaidCallState::Failed => {
            Err(Rejection::PaidCallNotOpen(call.state))
        }
    }
}

/// Ends a call without a payment. Its payment stays bound to it.
pub(super) fn end(step: &mut Step<'_>, call: &mut PaidCall, failure: &Arc<str>) -> Result<(), Rejection> {
    give_back(step, call)?;
    call.state = PaidCallState::Failed;
    call.failure = Some(failure.clone());
    call.payment.signed = None;
    call.ended_at = Some(step.command.at);
    Ok(())
}

/// What an open call authorises may be authorised by others again.
pub(super) fn give_back(step: &mut Step<'_>, call: &PaidCall) -> Result<(), Rejection> {
    let key = PaidCall::account(step.command.tenant, call.payment.payer);
    let mut account = step.account(&key)?;
    account.held = account
        .held
        .checked_sub(call.payment.max)
        .ok_or(Rejection::Overflow)?;
    account.open_calls = account.open_calls.checked_sub(1).ok_or(Rejection::Overflow)?;
    if account.held.is_negative() || account.open_calls < 0 {
        return Err(Rejection::Mismatch("the wallet has less open than its calls"));
    }
    step.books.accounts.put(key, account);
    Ok(())
}

/// Moves `amount` between two accounts because of `call`.
pub(super) fn post(
    step: &mut Step<'_>,
    call: &PaidCall,
    (debit, credit): (AccountKey, AccountKey),
    amount: Micros,
    cause: Cause,
) -> Result<(), Rejection> {
    step.post(Posting {
        debit,
        credit,
        amount,
        cause,
        call: Some(call.entry_id()),
        reference: &call.entry_reference(),
        attribution: None,
    })
    .map(drop)
}

/// Books what the provider bills and nobody pays.
pub(super) fn lose(step: &mut Step<'_>, call: &mut PaidCall, loss: Micros) -> Result<(), Rejection> {
    let of = |kind| AccountKey::of(step.command.tenant, kind);
    let accounts = (of(AccountKind::OperatorLoss), of(AccountKind::ProviderCost));
    post(step, call, accounts, loss, Cause::OperatorLoss)?;
    call.loss = call.loss.checked_add(loss).ok_or(Rejection::Overflow)?;
    Ok(())
}

/// Records a difference between metering and the provider, and books what the operator lost by it.
fn book_drift(step: &mut Step<'_>, call: &mut PaidCall, drift: Option<&Drift>) -> Result<(), Rejection> {
    let Some(drift) = drift else { return Ok(()) };
    let Some(provider) = call.subject.provider.clone() else {
        return Err(Rejection::Mismatch("nobody was asked for the call"));
    };
    lose(step, call, drift.loss)?;
    step.books.drifts.push(DriftRecord {
        tenant: step.command.tenant,
        call: call.entry_id(),
        provider,
        model: call.subject.model.clone(),
        charged: call.charge.map_or(Micros::ZERO, |charge| charge.effective),
        at: step.command.at,
        drift: drift.clone(),
    });
    Ok(())
}
