//! Taking back what a payment bought, and giving it again: the postings that refunds and disputes share.
//!
//! A balance never goes below zero. What the payer no longer has is booked as the tenant's debt
//! (`receivable`), and the account is frozen.

use std::sync::Arc;

use super::account::{AccountKey, AccountKind, Payer};
use super::apply::{Posting, Step};
use super::rejection::Rejection;
use super::topup::{Clawed, Parts, Topup};
use super::transfer::Cause;
use crate::ids::TransferId;
use crate::money::Micros;

fn less(from: Micros, part: Micros) -> Micros {
    from.saturating_sub_zero(part)
}

fn smaller(a: Micros, b: Micros) -> Micros {
    if a < b { a } else { b }
}

/// One movement that belongs to a top-up.
struct Leg {
    debit: AccountKey,
    credit: AccountKey,
    amount: Micros,
    cause: Cause,
}

fn post_all(
    step: &mut Step<'_>,
    reference: &Arc<str>,
    legs: [Leg; 5],
) -> Result<Option<TransferId>, Rejection> {
    let mut first = None;
    for leg in legs {
        let posted = step.post(Posting {
            debit: leg.debit,
            credit: leg.credit,
            amount: leg.amount,
            cause: leg.cause,
            call: None,
            reference,
            attribution: None,
        })?;
        first = first.or(posted);
    }
    Ok(first)
}

/// What was taken, and the entry by which the payer's balance changed.
pub(super) struct Taken {
    pub(super) clawed: Clawed,
    pub(super) debited: Micros,
}

/// Takes `parts` of `topup` back. The payer gives what is available, the tenant owes the rest.
pub(super) fn claw(
    step: &mut Step<'_>,
    topup: &Topup,
    parts: Parts,
    cause: Cause,
) -> Result<Taken, Rejection> {
    let (tenant, payer) = (step.command.tenant, topup.holder());
    let key = payer.account(tenant);
    let of = |kind| AccountKey::of(tenant, kind);
    let before = step.account(&key)?;
    let credits = smaller(parts.credits, before.available());
    let bonus = smaller(parts.bonus, less(before.available(), credits));
    let clawed = Clawed {
        taken: Parts {
            credits,
            bonus,
            fee: parts.fee,
        },
        short: Parts {
            credits: less(parts.credits, credits),
            bonus: less(parts.bonus, bonus),
            fee: Micros::ZERO,
        },
    };
    let leg = |debit, credit, amount, cause| Leg {
        debit,
        credit,
        amount,
        cause,
    };
    let funding = || of(AccountKind::Funding);
    let owed = || of(AccountKind::Receivable);
    let legs = [
        leg(key.clone(), funding(), credits, cause),
        leg(key.clone(), of(AccountKind::Bonus), bonus, Cause::BonusClawback),
        leg(owed(), funding(), clawed.short.credits, Cause::Shortfall),
        leg(
            owed(),
            of(AccountKind::Bonus),
            clawed.short.bonus,
            Cause::Shortfall,
        ),
        leg(of(AccountKind::Fees), funding(), parts.fee, Cause::FeeRefund),
    ];
    let entry = post_all(step, &topup.session, legs)?;
    let debited = credits.checked_add(bonus).ok_or(Rejection::Overflow)?;
    if let Some(entry) = entry.filter(|_| !debited.is_zero()) {
        let after = step.account(&key)?.posted;
        step.emit_balance_changed(&payer, before.posted, after, cause, entry)?;
    }
    Ok(Taken { clawed, debited })
}

/// Gives again what was taken; the pool receives what a retired end user cannot.
pub(super) fn restore(step: &mut Step<'_>, topup: &Topup, clawed: Clawed) -> Result<Micros, Rejection> {
    let tenant = step.command.tenant;
    let payer = receiver(step, topup)?;
    let key = payer.account(tenant);
    let of = |kind| AccountKey::of(tenant, kind);
    let before = step.account(&key)?.posted;
    let leg = |debit, credit, amount| Leg {
        debit,
        credit,
        amount,
        cause: Cause::Reversal,
    };
    let funding = || of(AccountKind::Funding);
    let owed = || of(AccountKind::Receivable);
    let legs = [
        leg(funding(), key.clone(), clawed.taken.credits),
        leg(of(AccountKind::Bonus), key.clone(), clawed.taken.bonus),
        leg(funding(), owed(), clawed.short.credits),
        leg(of(AccountKind::Bonus), owed(), clawed.short.bonus),
        leg(funding(), of(AccountKind::Fees), clawed.taken.fee),
    ];
    let entry = post_all(step, &topup.session, legs)?;
    let after = step.account(&key)?.posted;
    let credited = less(after, before);
    if let Some(entry) = entry.filter(|_| !credited.is_zero()) {
        step.emit_balance_changed(&payer, before, after, Cause::Reversal, entry)?;
    }
    Ok(credited)
}

/// Who receives money of `topup`: its holder, or the pool when that end user is retired.
pub(super) fn receiver(step: &Step<'_>, topup: &Topup) -> Result<Payer, Rejection> {
    let payer = topup.holder();
    match &payer {
        Payer::EndUser(id) if step.end_user(id)?.is_some_and(|user| user.retired) => Ok(Payer::Pool),
        Payer::EndUser(_) | Payer::Pool => Ok(payer),
    }
}

/// Sets `amount` of the payer's available balance aside, or what there is of it; says how much.
pub(super) fn hold_back(step: &mut Step<'_>, payer: &Payer, amount: Micros) -> Result<Micros, Rejection> {
    let key = payer.account(step.command.tenant);
    let mut account = step.account(&key)?;
    let held = smaller(amount, account.available());
    account.held = account.held.checked_add(held).ok_or(Rejection::Overflow)?;
    step.books.accounts.put(key, account);
    Ok(held)
}

/// Frees what was set aside.
pub(super) fn let_go(step: &mut Step<'_>, payer: &Payer, held: Micros) -> Result<(), Rejection> {
    let key = payer.account(step.command.tenant);
    let mut account = step.account(&key)?;
    account.held = account.held.checked_sub(held).ok_or(Rejection::Overflow)?;
    step.books.accounts.put(key, account);
    Ok(())
}

/// Adds a reason for the payer's balance to be frozen, and tells of it when it was not frozen before. Returns
/// the spell that [`thaw`] wants back.
pub(super) fn freeze(
    step: &mut Step<'_>,
    payer: &Payer,
    reason: &str,
    reference: &str,
) -> Result<i64, Rejection> {
    let key = payer.account(step.command.tenant);
    let mut account = step.account(&key)?;
    let news = account.freeze();
    step.books.accounts.put(key, account);
    if news {
        super::apply_user::emit_frozen(step, payer, reason, reference)?;
    }
    Ok(account.spell())
}

/// Takes the reason away that arose in `spell`, if one did.
pub(super) fn thaw(step: &mut Step<'_>, payer: &Payer, spell: Option<i64>) -> Result<(), Rejection> {
    let Some(spell) = spell else { return Ok(()) };
    let key = payer.account(step.command.tenant);
    let mut account = step.account(&key)?;
    account.thaw(spell);
    step.books.accounts.put(key, account);
    Ok(())
}
