//! The commands of a metered call: hold, dispatch marker, capture, end of a stream, release, expiry.

use std::sync::Arc;

use serde_json::json;

use super::account::{AccountKey, AccountKind, AccountStatus, Payer};
use super::apply::{Posting, Step, object};
use super::apply_payout::{free_margin, reserve_margin};
use super::books::DriftRecord;
use super::command::{Capture, Drift, DriftKind, FinishStream, NewHold, Outcome, Release, StoredOutcome};
use super::event::EventType;
use super::hold::{CallRef, Hold, HoldState, LoopCount};
use super::policy::{Policy, allows};
use super::rejection::{LimitScope, Rejection};
use super::transfer::Cause;
use super::{apply_approval, apply_quote};
use crate::money::Micros;

pub(super) fn hold(step: &mut Step<'_>, new: &NewHold) -> Result<Outcome, Rejection> {
    if let Some(claim) = &new.claim
        && let Some(subject) = step.claim(claim, new.call.0)?
    {
        return Ok(Outcome::Existing(subject));
    }
    if step.books.holds.get(&(step.command.tenant, new.call)).is_some() {
        return Err(Rejection::Mismatch("the call has a hold already"));
    }
    if new.amount.is_negative() || new.base.is_negative() || new.base > new.amount {
        return Err(Rejection::NotPositive);
    }
    step.active_tenant()?;
    let at = step.command.at;
    let policy = payer_policy(step, &new.payer)?;
    let subject = &new.subject;
    if !policy.allows(&subject.provider, &subject.endpoint, subject.model.as_deref()) {
        return Err(Rejection::ToolNotAllowed(
            "the end user's policy does not name it",
        ));
    }
    let authority = new.authority.as_deref();
    let quote = match authority {
        Some(authority) => apply_quote::consume(step, new, authority)?,
        None => None,
    };
    let approval = apply_approval::consume(step, new, authority, policy.require_approval_above_usd)?;
    let key = new.payer.account(step.command.tenant);
    let mut account = step.account(&key)?;
    if account.status != AccountStatus::Active {
        return Err(Rejection::AccountFrozen);
    }
    let counted = match new.loop_key(step.command.tenant).filter(|_| policy.needs_loop()) {
        Some(loop_key) if !step.books.loops.is_loaded(&loop_key) => return Err(Rejection::NotLoaded("loop")),
        Some(loop_key) => {
            let count = step.books.loops.get(&loop_key).copied().unwrap_or_default();
            Some((loop_key, count))
        }
        None => None,
    };
    policy.admit(
        &account,
        counted.as_ref().map(|(_, count)| *count),
        new.amount,
        at,
    )?;

    // INVARIANT: overspend is impossible, because what is available is checked and taken here, in one step.
    if account.available() < new.amount {
        return Err(Rejection::InsufficientCredits {
            required: new.amount,
            available: account.available(),
        });
    }
    account.held = account.held.checked_add(new.amount).ok_or(Rejection::Overflow)?;
    let day = account.day.add(at.day(), new.amount).ok_or(Rejection::Overflow)?;
    let month = account
        .month
        .add(at.month(), new.amount)
        .ok_or(Rejection::Overflow)?;
    account.open_calls = account.open_calls.saturating_add(1);
    step.books.accounts.put(key, account);
    spend_by_token(step, new)?;
    let loop_id = counted.as_ref().map(|(loop_key, _)| loop_key.loop_id.clone());
    if let Some((loop_key, count)) = counted {
        let spent = count.spent.checked_add(new.amount).ok_or(Rejection::Overflow)?;
        step.books.loops.put(
            loop_key,
            LoopCount {
                calls: count.calls.saturating_add(1),
                spent,
            },
        );
    }
    let call = CallRef {
        loop_id,
        quote,
        approval,
        ..new.reference()
    };
    let hold = Hold {
        call,
        subject: new.subject.clone(),
        amount: new.amount,
        base: new.base,
        state: HoldState::Held,
        instance: new.instance,
        windows: (day, month),
        created_at: at,
        dispatched_at: None,
        deadline: new.deadline,
        finished_at: None,
        charged: Micros::ZERO,
        margin: Micros::ZERO,
        refunded: Micros::ZERO,
        balance_after: None,
        loss: Micros::ZERO,
        usage: None,
        failure: None,
    };
    step.books.holds.put((step.command.tenant, new.call), hold);
    Ok(Outcome::Held(account.balance()))
}

/// Counts the hold on the token it was asked with, which must still work.
fn spend_by_token(step: &mut Step<'_>, new: &NewHold) -> Result<(), Rejection> {
    let Some(id) = new.token else { return Ok(()) };
    let mut token = step.token(id)?.ok_or(Rejection::TokenNotLive)?;
    if !token.is_live(step.command.at) || new.payer != token.owner {
        return Err(Rejection::TokenNotLive);
    }
    let subject = &new.subject;
    let named = token.tools.as_deref().is_none_or(|tools| {
        allows(
            tools,
            &subject.provider,
            &subject.endpoint,
            subject.model.as_deref(),
        )
    });
    if !named {
        return Err(Rejection::ToolNotAllowed("the token does not name it"));
    }
    if let Some(limit) = token.max_per_call.filter(|limit| new.amount > *limit) {
        return Err(Rejection::SpendLimitExceeded {
            scope: LimitScope::Call,
            limit,
            spent: Micros::ZERO,
            resets_at: None,
        });
    }
    let Some(limit) = token.max_spend else {
        return Ok(());
    };
    let after = token.spent.checked_add(new.amount).ok_or(Rejection::Overflow)?;
    if after > limit {
        return Err(Rejection::SpendLimitExceeded {
            scope: LimitScope::Credential,
            limit,
            spent: token.spent,
            resets_at: None,
        });
    }
    token.spent = after;
    step.books.tokens.put((step.command.tenant, id), token);
    Ok(())
}

fn payer_policy(step: &Step<'_>, payer: &Payer) -> Result<Arc<Policy>, Rejection> {
    match payer {
        Payer::Pool => Ok(Arc::default()),
        Payer::EndUser(id) => match step.end_user(id)? {
            None => Err(Rejection::UnknownEndUser),
            Some(user) if user.retired => Err(Rejection::EndUserRetired),
            Some(user) => Ok(user.policy),
        },
    }
}

/// The hold that `call` names, when the two agree.
fn find(step: &Step<'_>, call: &CallRef) -> Result<Hold, Rejection> {
    let key = (step.command.tenant, call.call);
    if !step.books.holds.is_loaded(&key) {
        return Err(Rejection::NotLoaded("hold"));
    }
    let hold = step.books.holds.get(&key).ok_or(Rejection::UnknownHold)?;
    if hold.call.payer != call.payer || hold.call.claim != call.claim {
        return Err(Rejection::Mismatch("payer or claim"));
    }
    Ok(hold.clone())
}

pub(super) fn mark_dispatched(step: &mut Step<'_>, call: &CallRef) -> Result<Outcome, Rejection> {
    let mut hold = find(step, call)?;
    // INVARIANT: one dispatch per hold. A second marker is refused, so a retry cannot send again.
    if hold.state != HoldState::Held || hold.dispatched_at.is_some() {
        return Err(Rejection::HoldNotOpen(hold.state));
    }
    hold.dispatched_at = Some(step.command.at);
    step.books.holds.put((step.command.tenant, call.call), hold);
    Ok(Outcome::Dispatched)
}

/// Ends the setting aside of `hold.amount`, of which `kept` stays counted as spent.
fn unhold(step: &mut Step<'_>, hold: &Hold, kept: Micros) -> Result<(), Rejection> {
    let key = hold.call.payer.account(step.command.tenant);
    let mut account = step.account(&key)?;
    account.held = account.held.checked_sub(hold.amount).ok_or(Rejection::Overflow)?;
    step.books.accounts.put(key, account);
    uncount(step, hold, hold.amount.saturating_sub_zero(kept))
}

/// Takes `amount` back from the policy counters that the hold was counted in.
fn uncount(step: &mut Step<'_>, hold: &Hold, amount: Micros) -> Result<(), Rejection> {
    if amount.is_zero() {
        return Ok(());
    }
    let key = hold.call.payer.account(step.command.tenant);
    let mut account = step.account(&key)?;
    account.day.give_back(hold.windows.0, amount);
    account.month.give_back(hold.windows.1, amount);
    step.books.accounts.put(key, account);
    if let Some(id) = hold.call.token
        && let Some(mut token) = step.token(id)?
        && token.max_spend.is_some()
    {
        token.spent = token.spent.saturating_sub_zero(amount);
        step.books.tokens.put((step.command.tenant, id), token);
    }
    if let Some(loop_key) = hold.call.loop_key(step.command.tenant) {
        if !step.books.loops.is_loaded(&loop_key) {
            return Err(Rejection::NotLoaded("loop"));
        }
        if let Some(count) = step.books.loops.get(&loop_key).copied() {
            let spent = count.spent.saturating_sub_zero(amount);
            step.books.loops.put(loop_key, LoopCount { spent, ..count });
        }
    }
    Ok(())
}

pub(super) fn capture(step: &mut Step<'_>, capture: &Capture) -> Result<Outcome, Rejection> {
    let mut hold = find(step, &capture.call)?;
    let charge = &capture.charge;
    if hold.state == HoldState::Captured && hold.charged == charge.effective {
        // The answer to the first capture was lost on its way; this one changes nothing.
        let balance = step
            .account(&hold.call.payer.account(step.command.tenant))?
            .balance();
        return Ok(Outcome::Captured {
            charged: hold.charged,
            balance,
        });
    }
    if hold.state != HoldState::Held {
        return Err(Rejection::HoldNotOpen(hold.state));
    }
    if charge.effective > hold.amount || charge.base.checked_add(charge.margin) != Some(charge.effective) {
        return Err(Rejection::Mismatch("charge above the hold"));
    }
    unhold(step, &hold, charge.effective)?;
    let payer_key = hold.call.payer.account(step.command.tenant);
    let before = step.account(&payer_key)?.posted;
    let mut entry = None;
    for (kind, amount, cause) in [
        (AccountKind::ProviderCost, charge.base, Cause::Charge),
        (AccountKind::Margin, charge.margin, Cause::Margin),
    ] {
        let posted = step.post(Posting {
            debit: payer_key.clone(),
            credit: AccountKey::of(step.command.tenant, kind),
            amount,
            cause,
            call: Some(hold.call.call),
            reference: &hold.subject.endpoint,
            attribution: hold.subject.attribution.as_ref(),
        })?;
        entry = entry.or(posted);
    }
    let account = step.account(&payer_key)?;
    hold.state = HoldState::Captured;
    hold.charged = charge.effective;
    hold.margin = charge.margin;
    hold.balance_after = Some(account.posted);
    hold.usage = capture.usage;
    if capture.outcome.is_some() {
        hold.finished_at = Some(step.command.at);
    } else {
        // The end of the stream may take it back.
        reserve_margin(step, charge.margin)?;
    }
    book_drift(step, &mut hold, capture.drift.as_ref())?;
    emit_burn(step, &hold, charge.base)?;
    if let Some(entry) = entry {
        step.emit_balance_changed(&hold.call.payer, before, account.posted, Cause::Charge, entry)?;
    }
    close(step, hold, capture.outcome.clone())?;
    Ok(Outcome::Captured {
        charged: charge.effective,
        balance: account.balance(),
    })
}

pub(super) fn finish_stream(step: &mut Step<'_>, finish: &FinishStream) -> Result<Outcome, Rejection> {
    let mut hold = find(step, &finish.call)?;
    let payer_key = hold.call.payer.account(step.command.tenant);
    if hold.state != HoldState::Captured {
        return Err(Rejection::HoldNotOpen(hold.state));
    }
    let kept = finish.charge;
    let refund = hold.charged.saturating_sub_zero(kept.effective);
    if hold.is_finished() {
        // The answer to the first of these was lost on its way; anything else came too late.
        if hold.refunded != refund || hold.usage != finish.usage {
            return Err(Rejection::HoldNotOpen(hold.state));
        }
        let balance = step.account(&payer_key)?.balance();
        return Ok(Outcome::Finished {
            refunded: hold.refunded,
            balance,
        });
    }
    if kept.effective > hold.charged || kept.margin > hold.margin {
        return Err(Rejection::Mismatch("a stream never costs more than was captured"));
    }
    let margin_refund = hold.margin.saturating_sub_zero(kept.margin);
    let base_refund = refund
        .checked_sub(margin_refund)
        .filter(|base| !base.is_negative());
    let base_refund = base_refund.ok_or(Rejection::Mismatch("base of a stream grew"))?;
    free_margin(step, hold.margin)?;
    let before = step.account(&payer_key)?.posted;
    let mut entry = None;
    for (kind, amount, cause) in [
        (AccountKind::ProviderCost, base_refund, Cause::StreamRefund),
        (AccountKind::Margin, margin_refund, Cause::MarginRefund),
    ] {
        let posted = step.post(Posting {
            debit: AccountKey::of(step.command.tenant, kind),
            credit: payer_key.clone(),
            amount,
            cause,
            call: Some(hold.call.call),
            reference: &hold.subject.endpoint,
            attribution: hold.subject.attribution.as_ref(),
        })?;
        entry = entry.or(posted);
    }
    uncount(step, &hold, refund)?;
    hold.refunded = refund;
    hold.margin = kept.margin;
    hold.usage = finish.usage;
    hold.failure.clone_from(&finish.failure);
    hold.finished_at = Some(step.command.at);
    book_drift(step, &mut hold, finish.drift.as_ref())?;
    let balance = step.account(&payer_key)?.balance();
    if let Some(entry) = entry {
        let data = object([
            ("refundId", json!(entry)),
            ("kind", json!(finish.refund_kind)),
            ("amountUsd", json!(refund)),
            ("balanceUsd", json!(balance.posted)),
            ("originalReference", json!(hold.call.call)),
            (
                "reason",
                json!(finish.failure.as_deref().unwrap_or("unused part of a stream")),
            ),
            ("status", json!("succeeded")),
        ]);
        let reference = hold.call.call.to_string();
        step.emit(
            EventType::RefundIssued,
            hold.call.payer.external_user_id(),
            &reference,
            data,
        )?;
        step.emit_balance_changed(
            &hold.call.payer,
            before,
            balance.posted,
            Cause::StreamRefund,
            entry,
        )?;
    }
    close(step, hold, Some(finish.outcome.clone()))?;
    Ok(Outcome::Finished {
        refunded: refund,
        balance,
    })
}

pub(super) fn release(step: &mut Step<'_>, release: &Release) -> Result<Outcome, Rejection> {
    let hold = find(step, &release.call)?;
    let key = hold.call.payer.account(step.command.tenant);
    if hold.state == HoldState::Released && hold.failure.as_deref() == Some(&*release.failure) {
        return Ok(Outcome::Released(step.account(&key)?.balance()));
    }
    if hold.state != HoldState::Held {
        return Err(Rejection::HoldNotOpen(hold.state));
    }
    let end = End {
        state: HoldState::Released,
        failure: &release.failure,
        frees_claim: release.outcome.is_none(),
    };
    end_uncharged(step, hold, &end, release.drift.as_ref(), release.outcome.clone())
}

/// Ends a call that a crash left behind: given back to the customer; when it may have reached the provider,
/// the provider's share is booked to the operator's loss and the key answers with the failure for good.
pub(super) fn expire(step: &mut Step<'_>, call: &CallRef) -> Result<Outcome, Rejection> {
    let mut hold = find(step, call)?;
    let balance = step
        .account(&hold.call.payer.account(step.command.tenant))?
        .balance();
    if hold.is_finished() {
        return Err(Rejection::HoldNotOpen(hold.state));
    }
    if hold.state == HoldState::Captured {
        // A stream whose end nobody saw: the charge stands, its usage stays unknown, nothing can be replayed.
        let drift = Drift {
            kind: DriftKind::OutcomeUnknown,
            detail: "stream end not seen".into(),
            loss: Micros::ZERO,
        };
        free_margin(step, hold.margin)?;
        hold.finished_at = Some(step.command.at);
        book_drift(step, &mut hold, Some(&drift))?;
        close(step, hold, None)?;
        return Ok(Outcome::Finished {
            refunded: Micros::ZERO,
            balance,
        });
    }
    let sent = hold.dispatched_at.is_some();
    let drift = sent.then(|| Drift {
        kind: DriftKind::OutcomeUnknown,
        detail: "no outcome after dispatch".into(),
        loss: hold.base,
    });
    let failure: Arc<str> = if sent {
        "UPSTREAM_TIMEOUT".into()
    } else {
        "SERVICE_UNAVAILABLE".into()
    };
    let end = End {
        state: HoldState::Expired,
        failure: &failure,
        frees_claim: !sent,
    };
    end_uncharged(step, hold, &end, drift.as_ref(), None)
}

/// How a call ends that is not charged.
struct End<'a> {
    state: HoldState,
    failure: &'a Arc<str>,
    /// Certainly nothing was sent, so the same key may run again.
    frees_claim: bool,
}

fn end_uncharged(
    step: &mut Step<'_>,
    mut hold: Hold,
    end: &End<'_>,
    drift: Option<&Drift>,
    outcome: Option<StoredOutcome>,
) -> Result<Outcome, Rejection> {
    unhold(step, &hold, Micros::ZERO)?;
    hold.state = end.state;
    hold.failure = Some(end.failure.clone());
    hold.finished_at = Some(step.command.at);
    book_drift(step, &mut hold, drift)?;
    if end.frees_claim
        && let Some(claim) = &hold.call.claim
    {
        if !step.books.claims.is_loaded(claim) {
            return Err(Rejection::NotLoaded("claim"));
        }
        step.books.claims.remove(claim.clone());
    }
    if end.frees_claim {
        apply_quote::give_back(step, &hold.call)?;
        apply_approval::give_back(step, &hold.call)?;
    }
    let balance = step
        .account(&hold.call.payer.account(step.command.tenant))?
        .balance();
    hold.balance_after = Some(balance.posted);
    let data = object([
        ("callId", json!(hold.call.call)),
        ("provider", json!(hold.subject.provider)),
        ("endpoint", json!(hold.subject.endpoint)),
        ("reservedUsd", json!(hold.amount)),
        ("releasedUsd", json!(hold.amount)),
        ("reason", json!(end.failure)),
    ]);
    let reference = hold.call.call.to_string();
    step.emit(
        EventType::BurnFailed,
        hold.call.payer.external_user_id(),
        &reference,
        data,
    )?;
    close(step, hold, outcome)?;
    Ok(Outcome::Released(balance))
}

/// Records a difference between metering and the provider, and books what the operator lost by it.
fn book_drift(step: &mut Step<'_>, hold: &mut Hold, drift: Option<&Drift>) -> Result<(), Rejection> {
    let Some(drift) = drift else { return Ok(()) };
    step.post(Posting {
        debit: AccountKey::of(step.command.tenant, AccountKind::OperatorLoss),
        credit: AccountKey::of(step.command.tenant, AccountKind::ProviderCost),
        amount: drift.loss,
        cause: Cause::OperatorLoss,
        call: Some(hold.call.call),
        reference: &hold.subject.endpoint,
        attribution: hold.subject.attribution.as_ref(),
    })?;
    hold.loss = hold.loss.checked_add(drift.loss).ok_or(Rejection::Overflow)?;
    step.books.drifts.push(DriftRecord {
        tenant: step.command.tenant,
        call: hold.call.call,
        provider: hold.subject.provider.clone(),
        model: hold.subject.model.clone(),
        charged: hold.charged,
        at: hold.finished_at.unwrap_or(hold.created_at),
        drift: drift.clone(),
    });
    Ok(())
}

fn emit_burn(step: &mut Step<'_>, hold: &Hold, base: Micros) -> Result<(), Rejection> {
    let rate = step.tenant()?.credits_per_dollar;
    let attribution = hold.subject.attribution.as_deref();
    let mut data = object([
        ("callId", json!(hold.call.call)),
        ("provider", json!(hold.subject.provider)),
        ("endpoint", json!(hold.subject.endpoint)),
        ("chargedUsd", json!(hold.charged)),
        ("chargedCredits", json!(rate.credits(hold.charged))),
        ("balanceUsd", json!(hold.balance_after)),
        ("baseUsd", json!(base)),
        ("marginUsd", json!(hold.margin)),
        (
            "attribution",
            attribution
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
        ),
        ("usage", json!(hold.usage)),
    ]);
    if let Some(model) = &hold.subject.model {
        data.insert("model".to_owned(), json!(model));
    }
    let reference = hold.call.call.to_string();
    step.emit(
        EventType::BurnCompleted,
        hold.call.payer.external_user_id(),
        &reference,
        data,
    )
}

/// Puts the hold back; when nothing more will happen to it, its account has one unfinished call less.
fn close(step: &mut Step<'_>, hold: Hold, outcome: Option<StoredOutcome>) -> Result<(), Rejection> {
    let call = hold.call.call;
    if hold.is_finished() {
        let key = hold.call.payer.account(step.command.tenant);
        let mut account = step.account(&key)?;
        account.open_calls = account.open_calls.saturating_sub(1).max(0);
        step.books.accounts.put(key, account);
    }
    step.books.holds.put((step.command.tenant, call), hold);
    if let Some(outcome) = outcome {
        step.books.outcomes.push((step.command.tenant, call, outcome));
    }
    Ok(())
}
