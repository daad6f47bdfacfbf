//! The commands of a top-up: begin, page attached, payment reported; and automatic top-ups.

use std::sync::Arc;

use serde_json::{Value, json};

use super::account::{AccountKey, AccountKind, AccountStatus, Payer};
use super::apply::{Posting, Step, object};
use super::apply_payout::{free_margin, reserve_margin};
use super::clawback;
use super::command::{
    AttachCheckout, AutoTopupChoice, NewTopup, Outcome, PaymentState, TopupRef, TopupReport, event_claim,
};
use super::event::EventType;
use super::hold::Claim;
use super::policy::OpenItems;
use super::rejection::Rejection;
use super::topup::{
    AutoTopup, CheckoutRef, DisputeState, MAX_AUTO_FAILURES, RefundState, Topup, TopupSource, TopupState,
};
use super::transfer::Cause;
use super::{apply_dispute, apply_refund, shares};
use crate::money::Micros;

/// The top-up that `named` names.
pub(super) fn find(step: &Step<'_>, named: &TopupRef) -> Result<Topup, Rejection> {
    let key = (step.command.tenant, named.topup);
    if !step.books.topups.is_loaded(&key) {
        return Err(Rejection::NotLoaded("top-up"));
    }
    let topup = step.books.topups.get(&key).ok_or(Rejection::UnknownTopup)?;
    if topup.payer() == named.payer {
        Ok(topup.clone())
    } else {
        Err(Rejection::Mismatch("payer of the top-up"))
    }
}

fn open_items(topup: Option<&Topup>) -> OpenItems {
    let Some(topup) = topup else {
        return OpenItems::default();
    };
    let refunds = topup
        .refunds
        .iter()
        .filter(|refund| refund.state == RefundState::Pending);
    let disputes = topup
        .disputes
        .iter()
        .filter(|dispute| matches!(dispute.state, DisputeState::Open | DisputeState::Warning));
    OpenItems {
        topups: i64::from(topup.state.is_open()),
        refunds: i64::try_from(refunds.count()).unwrap_or(i64::MAX),
        disputes: i64::try_from(disputes.count()).unwrap_or(i64::MAX),
    }
}

/// Puts a changed top-up back, and keeps its end user's counts of what is open.
pub(super) fn put(step: &mut Step<'_>, topup: Topup) -> Result<Outcome, Rejection> {
    let key = (step.command.tenant, topup.id);
    let kept = step.books.topups.get(&key).map_or(Micros::ZERO, Topup::reserved);
    // INVARIANT: margin is set aside for what open disputes may take and the payer no longer has.
    if kept != topup.reserved() {
        free_margin(step, kept)?;
        reserve_margin(step, topup.reserved())?;
    }
    if let Some(owner) = &topup.owner {
        let (before, after) = (open_items(step.books.topups.get(&key)), open_items(Some(&topup)));
        if before != after {
            let mut user = step.end_user(owner)?.ok_or(Rejection::UnknownEndUser)?;
            let moved = |count: i64, was: i64, is: i64| count.saturating_add(is.saturating_sub(was));
            user.open = OpenItems {
                topups: moved(user.open.topups, before.topups, after.topups),
                refunds: moved(user.open.refunds, before.refunds, after.refunds),
                disputes: moved(user.open.disputes, before.disputes, after.disputes),
            };
            step.books
                .end_users
                .put((step.command.tenant, owner.clone()), user);
        }
    }
    step.books.topups.put(key, topup.clone());
    Ok(Outcome::Topup(Box::new(topup)))
}

/// Remembers a name by which the processor's events find the top-up.
pub(super) fn name(step: &mut Step<'_>, topup: &Topup, name: &Arc<str>) {
    step.books
        .processor_refs
        .push((name.clone(), step.command.tenant, topup.id));
}

/// Marks the processor's event as handled; `true` = it was before.
pub(super) fn handled(
    step: &mut Step<'_>,
    event: Option<&Arc<str>>,
    topup: &TopupRef,
) -> Result<bool, Rejection> {
    let Some(event) = event else { return Ok(false) };
    let key = event_claim(step.command.tenant, event);
    if !step.books.claims.is_loaded(&key) {
        return Err(Rejection::NotLoaded("event"));
    }
    if step.books.claims.get(&key).is_some() {
        return Ok(true);
    }
    let claim = Claim {
        fingerprint: [0; 32],
        subject: topup.topup.0,
    };
    step.books.claims.put(key, claim);
    Ok(false)
}

pub(super) fn open(step: &mut Step<'_>, new: &NewTopup) -> Result<Outcome, Rejection> {
    if let Some(claim) = &new.claim
        && let Some(subject) = step.claim(claim, new.id.0)?
    {
        return Ok(Outcome::Existing(subject));
    }
    begin(step, new)
}

fn begin(step: &mut Step<'_>, new: &NewTopup) -> Result<Outcome, Rejection> {
    step.active_tenant()?;
    if !new.terms.add_up() {
        return Err(Rejection::NotPositive);
    }
    let named = new.topup();
    step.ensure_end_user(&named.payer)?;
    if step.books.topups.get(&(step.command.tenant, new.id)).is_some() {
        return Err(Rejection::Mismatch("the top-up exists already"));
    }
    let topup = new.opened(step.command.at);
    name(step, &topup, &topup.session);
    put(step, topup)
}

pub(super) fn attach(step: &mut Step<'_>, attach: &AttachCheckout) -> Result<Outcome, Rejection> {
    let mut topup = find(step, &attach.topup)?;
    if let Some(known) = &topup.checkout {
        return if known.id == attach.id {
            Ok(Outcome::Topup(Box::new(topup)))
        } else {
            Err(Rejection::Mismatch("the top-up has another page"))
        };
    }
    topup.checkout = Some(CheckoutRef {
        id: attach.id.clone(),
        url: attach.url.clone(),
    });
    name(step, &topup, &attach.id);
    put(step, topup)
}

pub(super) fn report(step: &mut Step<'_>, report: &TopupReport) -> Result<Outcome, Rejection> {
    let mut topup = find(step, &report.topup)?;
    if handled(step, report.event.as_ref(), &report.topup)? {
        return Ok(Outcome::Existing(topup.id.0));
    }
    match (report.state, topup.state) {
        (PaymentState::Paid, state) if state.is_credited() => return paid_again(step, topup, report),
        (PaymentState::Paid, _) => {
            let mut reason = mismatch(&topup, report);
            if reason.is_none() && !fits(step, &topup)? {
                reason = Some("the balance cannot hold it".into());
            }
            let Some(reason) = reason else {
                return credit(step, topup, report);
            };
            topup.review = Some(reason.clone());
            // Until its page ends the right payment may come, and it may come after that. But nothing waits
            // for it for good: neither its end user's retirement nor the next automatic top-up.
            if topup.state.is_open() && step.command.at >= topup.expires_at {
                fail(step, &mut topup, TopupState::Failed, ("review".into(), reason))?;
            }
        }
        (PaymentState::Processing, state) => {
            // What is told of the payment before it is paid has to find its top-up.
            if let Some(payment) = &report.payment
                && !state.is_credited()
                && mismatch(&topup, report).is_none()
            {
                name(step, &topup, payment);
            }
            if state == TopupState::Open {
                topup.state = TopupState::Processing;
            }
        }
        (PaymentState::Failed, state) if state.is_open() => {
            let failure = report.failure.clone();
            let failure = failure.unwrap_or(("failed".into(), "the payment failed".into()));
            fail(step, &mut topup, TopupState::Failed, failure)?;
        }
        (PaymentState::Expired, TopupState::Open) => {
            let failure = ("expired".into(), "the checkout page was not used in time".into());
            fail(step, &mut topup, TopupState::Expired, failure)?;
        }
        // What is further along stays so: a later state was told of first.
        (PaymentState::Failed | PaymentState::Expired, _) => return Ok(Outcome::Topup(Box::new(topup))),
    }
    put(step, topup)
}

fn fail(
    step: &mut Step<'_>,
    topup: &mut Topup,
    state: TopupState,
    failure: (Arc<str>, Arc<str>),
) -> Result<(), Rejection> {
    topup.state = state;
    topup.failure = Some(failure);
    emit_failed(step, topup)?;
    auto_failed(step, topup)
}

/// Told again that a credited top-up is paid: the same payment, perhaps named only now, or a second one.
fn paid_again(step: &mut Step<'_>, mut topup: Topup, report: &TopupReport) -> Result<Outcome, Rejection> {
    match (&report.payment, &topup.payment) {
        (Some(payment), None) if mismatch(&topup, report).is_none() => {
            name(step, &topup, payment);
            topup.payment = Some(payment.clone());
        }
        (Some(payment), known) if known.as_ref() != Some(payment) => {
            topup.review = Some("paid by a second payment".into());
        }
        (Some(_) | None, _) => return Ok(Outcome::Topup(Box::new(topup))),
    }
    put(step, topup)
}

/// Whether every account can hold what the top-up credits; money that arrived is never refused for it.
fn fits(step: &Step<'_>, topup: &Topup) -> Result<bool, Rejection> {
    let tenant = step.command.tenant;
    let posted =
        |kind| -> Result<Micros, Rejection> { Ok(step.account(&AccountKey::of(tenant, kind))?.posted) };
    let terms = &topup.terms;
    let payer = step.account(&clawback::receiver(step, topup)?.account(tenant))?;
    let bought = terms.credits.checked_add(terms.bonus);
    let sums = [
        bought.and_then(|bought| payer.posted.checked_add(bought)),
        posted(AccountKind::Fees)?.checked_add(terms.fee),
        posted(AccountKind::Funding)?.checked_sub(terms.total),
        posted(AccountKind::Bonus)?.checked_sub(terms.bonus),
    ];
    Ok(sums.iter().all(Option::is_some))
}

/// Why what was paid is not what was asked for.
fn mismatch(topup: &Topup, report: &TopupReport) -> Option<Arc<str>> {
    if let Some(reason) = &report.mismatch {
        return Some(reason.clone());
    }
    let asked = topup.terms.total_cents();
    (report.cents != asked).then(|| format!("{} cents were paid and {asked} asked for", report.cents).into())
}

fn credit(step: &mut Step<'_>, mut topup: Topup, report: &TopupReport) -> Result<Outcome, Rejection> {
    let tenant = step.command.tenant;
    let payer = clawback::receiver(step, &topup)?;
    topup.pooled = payer != topup.payer();
    let key = payer.account(tenant);
    let of = |kind| AccountKey::of(tenant, kind);
    let terms = topup.terms.clone();
    let before = step.account(&key)?.posted;
    let mut entries = Vec::with_capacity(2);
    for (debit, credit, amount, cause) in [
        (AccountKind::Funding, key.clone(), terms.credits, Cause::Topup),
        (
            AccountKind::Funding,
            of(AccountKind::Fees),
            terms.fee,
            Cause::TopupFee,
        ),
        (AccountKind::Bonus, key.clone(), terms.bonus, Cause::VolumeBonus),
    ] {
        let posted = step.post(Posting {
            debit: of(debit),
            credit,
            amount,
            cause,
            call: None,
            reference: &topup.session,
            attribution: None,
        })?;
        if let Some(entry) = posted.filter(|_| cause != Cause::TopupFee) {
            entries.push((entry, amount, cause));
        }
    }
    auto_paid(step, &topup)?;
    topup.state = TopupState::Completed;
    topup.completed_at = Some(step.command.at);
    topup.payment.clone_from(&report.payment);
    topup.failure = None;
    topup.review = None;
    if let Some(payment) = &report.payment {
        name(step, &topup, payment);
    }
    emit_completed(step, &topup, &payer)?;
    let mut balance = before;
    for (entry, amount, cause) in entries {
        let after = balance.checked_add(amount).ok_or(Rejection::Overflow)?;
        step.emit_balance_changed(&payer, balance, after, cause, entry)?;
        balance = after;
    }
    keep_method(step, &topup, report)?;
    // What was told of before the payment takes effect now.
    apply_refund::unpark(step, &mut topup)?;
    apply_dispute::unpark(step, &mut topup)?;
    shares::fill_up(step, &mut topup)?;
    put(step, topup)
}

fn metadata(topup: &Topup) -> Value {
    let text = topup.metadata.as_deref();
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_else(|| json!({}))
}

fn emit_completed(step: &mut Step<'_>, topup: &Topup, payer: &Payer) -> Result<(), Rejection> {
    let rate = step.tenant()?.credits_per_dollar;
    let balance = step.account(&payer.account(step.command.tenant))?.posted;
    let data = object([
        ("amountUsd", json!(topup.terms.credits)),
        ("balanceUsd", json!(balance)),
        ("source", json!(topup.source)),
        ("metadata", metadata(topup)),
        ("bonusUsd", json!(topup.terms.bonus)),
        ("sessionId", json!(topup.session)),
        ("feeUsd", json!(topup.terms.fee)),
        ("amountCredits", json!(rate.credits(topup.terms.credits))),
        ("balanceCredits", json!(rate.credits(balance))),
    ]);
    step.emit(
        EventType::TopupCompleted,
        topup.owner.as_ref(),
        &topup.session,
        data,
    )
}

fn emit_failed(step: &mut Step<'_>, topup: &Topup) -> Result<(), Rejection> {
    let (code, message) = topup
        .failure
        .clone()
        .unwrap_or(("failed".into(), "the payment failed".into()));
    let data = object([
        ("amountUsd", json!(topup.terms.credits)),
        ("source", json!(topup.source)),
        ("sessionId", json!(topup.session)),
        ("failureCode", json!(code)),
        ("failureMessage", json!(message)),
        ("metadata", metadata(topup)),
    ]);
    step.emit(EventType::TopupFailed, topup.owner.as_ref(), &topup.session, data)
}

fn auto(step: &Step<'_>) -> Result<AutoTopup, Rejection> {
    if !step.books.auto_topups.is_loaded(&step.command.tenant) {
        return Err(Rejection::NotLoaded("automatic top-ups"));
    }
    let found = step.books.auto_topups.get(&step.command.tenant);
    Ok(found.cloned().unwrap_or_default())
}

pub(super) fn set_auto(step: &mut Step<'_>, choice: &AutoTopupChoice) -> Result<Outcome, Rejection> {
    step.tenant()?;
    let mut auto = auto(step)?;
    let shown = json!({
        "enabled": auto.enabled, "thresholdUsd": auto.threshold, "amountUsd": auto.amount,
        "monthlyCapUsd": auto.monthly_cap,
    });
    step.before = Some(shown.to_string().into());
    auto.enabled = choice.enabled;
    auto.threshold = choice.threshold;
    auto.amount = choice.amount;
    auto.monthly_cap = choice.monthly_cap;
    auto.failures = 0;
    auto.failed_at = None;
    auto.stopped = None;
    step.books.auto_topups.put(step.command.tenant, auto.clone());
    Ok(Outcome::AutoTopup(Box::new(auto)))
}

pub(super) fn begin_auto(step: &mut Step<'_>, new: &NewTopup) -> Result<Outcome, Rejection> {
    if let Some(claim) = &new.claim
        && let Some(subject) = step.claim(claim, new.id.0)?
    {
        return Ok(Outcome::Existing(subject));
    }
    let mut auto = auto(step)?;
    let pool = step.account(&Payer::Pool.account(step.command.tenant))?;
    if !auto.enabled {
        return Err(Rejection::AutoTopupNotDue("switched off"));
    }
    if auto.running.is_some() {
        return Err(Rejection::AutoTopupNotDue("one is under way"));
    }
    if auto.method.is_none() {
        return Err(Rejection::AutoTopupNotDue("no saved payment method"));
    }
    // Nobody charges a card anew while its last payment is disputed.
    if pool.status != AccountStatus::Active {
        return Err(Rejection::AutoTopupNotDue("the balance is frozen"));
    }
    if pool.available() >= auto.threshold {
        return Err(Rejection::AutoTopupNotDue("the balance is above the threshold"));
    }
    if new.owner.is_some() || new.source != TopupSource::AutoReload || new.terms.credits != auto.amount {
        return Err(Rejection::Mismatch("the choice about automatic top-ups"));
    }
    let month = step.command.at.month();
    let spent = auto
        .month
        .spent_in(month)
        .checked_add(auto.amount)
        .ok_or(Rejection::Overflow)?;
    if auto.monthly_cap.is_some_and(|cap| spent > cap) {
        return Err(Rejection::AutoTopupNotDue("the ceiling of the month is reached"));
    }
    auto.month.add(month, auto.amount).ok_or(Rejection::Overflow)?;
    auto.running = Some(new.id);
    step.books.auto_topups.put(step.command.tenant, auto);
    begin(step, new)
}

/// An automatic top-up has failed: its part of the ceiling is free again, and too many switch them off.
fn auto_failed(step: &mut Step<'_>, topup: &Topup) -> Result<(), Rejection> {
    if topup.source != TopupSource::AutoReload {
        return Ok(());
    }
    let mut auto = auto(step)?;
    if auto.running == Some(topup.id) {
        auto.running = None;
    }
    auto.month
        .give_back(topup.created_at.month(), topup.terms.credits);
    auto.failures = auto.failures.saturating_add(1);
    if auto.failures >= MAX_AUTO_FAILURES {
        auto.enabled = false;
        auto.stopped = Some("the payment method failed three times".into());
    }
    step.books.auto_topups.put(step.command.tenant, auto);
    Ok(())
}

/// An automatic top-up is about to be credited. Paid after it failed, it counts again in the month it is from.
fn auto_paid(step: &mut Step<'_>, topup: &Topup) -> Result<(), Rejection> {
    if topup.source != TopupSource::AutoReload {
        return Ok(());
    }
    let mut auto = auto(step)?;
    if auto.running == Some(topup.id) {
        auto.running = None;
    }
    let month = topup.created_at.month();
    if !topup.state.is_open() && month >= auto.month.index {
        let added = auto.month.add(month, topup.terms.credits);
        added.ok_or(Rejection::Overflow)?;
    }
    auto.failures = 0;
    step.books.auto_topups.put(step.command.tenant, auto);
    Ok(())
}

/// Keeps the payment method of a pool's top-up whose buyer agreed to it.
fn keep_method(step: &mut Step<'_>, topup: &Topup, report: &TopupReport) -> Result<(), Rejection> {
    if !topup.saves_method || topup.owner.is_some() {
        return Ok(());
    }
    if let (Some(customer), Some(method)) = (&report.customer, &report.method) {
        let mut auto = auto(step)?;
        auto.customer = Some(customer.clone());
        auto.method = Some(method.clone());
        step.books.auto_topups.put(step.command.tenant, auto);
    }
    Ok(())
}
