//! The commands about quotes, and how the hold of a call uses one.

use super::account::Payer;
use super::apply::Step;
use super::command::{NewHold, Outcome};
use super::hold::CallRef;
use super::quote::{CallAuthority, CancelQuote, Quote, QuoteRefusal, QuoteState};
use super::rejection::Rejection;
use crate::ids::{ExternalUserId, QuoteId};

fn find(step: &Step<'_>, id: QuoteId) -> Result<Option<Quote>, Rejection> {
    let key = (step.command.tenant, id);
    if !step.books.quotes.is_loaded(&key) {
        return Err(Rejection::NotLoaded("quote"));
    }
    Ok(step.books.quotes.get(&key).cloned())
}

fn put(step: &mut Step<'_>, quote: Quote) {
    let key = (step.command.tenant, quote.id);
    step.books.quotes.put(key, quote);
}

/// Keeps a quote for who may call the tool.
pub(super) fn open(step: &mut Step<'_>, new: &Quote) -> Result<Outcome, Rejection> {
    step.active_tenant()?;
    if find(step, new.id)?.is_some() {
        return Err(Rejection::Mismatch("the quote exists already"));
    }
    if new.charge.effective.is_negative() || new.most() < new.charge.effective {
        return Err(Rejection::Mismatch("a quote above what the caller wants to pay"));
    }
    let mut quote = new.clone();
    if let Some(owner) = &new.owner {
        let user = step.end_user(owner)?.ok_or(Rejection::UnknownEndUser)?;
        if user.retired {
            return Err(Rejection::EndUserRetired);
        }
        if !user.policy.allows_slug(&new.slug) {
            return Err(Rejection::ToolNotAllowed(
                "the end user's policy does not name it",
            ));
        }
        let threshold = user.policy.require_approval_above_usd;
        quote.needs_approval = threshold.is_some_and(|threshold| new.charge.effective > threshold);
    }
    put(step, quote.clone());
    Ok(Outcome::Quote {
        quote: Box::new(quote),
        changed: true,
    })
}

/// Withdraws a quote; one that is over already stays as it is.
pub(super) fn cancel(step: &mut Step<'_>, cancel: &CancelQuote) -> Result<Outcome, Rejection> {
    let unknown = Rejection::QuoteRefused(QuoteRefusal::Unknown);
    let mut quote = find(step, cancel.id)?.ok_or(unknown.clone())?;
    if let Payer::EndUser(by) = &cancel.by
        && quote.owner.as_ref() != Some(by)
    {
        return Err(unknown);
    }
    let changed = match quote.state_at(step.command.at) {
        QuoteState::Consumed => {
            return Err(Rejection::QuoteRefused(QuoteRefusal::Ended(QuoteState::Consumed)));
        }
        QuoteState::Canceled | QuoteState::Expired => false,
        QuoteState::Open => {
            end(step, &mut quote, QuoteState::Canceled);
            true
        }
    };
    Ok(Outcome::Quote {
        quote: Box::new(quote),
        changed,
    })
}

fn end(step: &mut Step<'_>, quote: &mut Quote, state: QuoteState) {
    quote.state = state;
    quote.ended_at = Some(step.command.at);
    put(step, quote.clone());
}

/// Uses the quote that a hold is asked with, if it is asked with one.
pub(super) fn consume(
    step: &mut Step<'_>,
    new: &NewHold,
    authority: &CallAuthority,
) -> Result<Option<QuoteId>, Rejection> {
    let Some(used) = &authority.quote else {
        return Ok(None);
    };
    let mut quote = find(step, used.id)?.ok_or(Rejection::QuoteRefused(QuoteRefusal::Unknown))?;
    let slug = new.subject.slug();
    let refused = Rejection::QuoteRefused;
    // INVARIANT: a quote is used once, because it is checked and ended in the command that takes the hold.
    quote
        .check(used, new.quoted(authority, &slug), step.command.at)
        .map_err(refused)?;
    quote.admit(new.amount).map_err(refused)?;
    quote.call = Some(new.call);
    end(step, &mut quote, QuoteState::Consumed);
    Ok(Some(quote.id))
}

/// Nothing was sent of the call that used a quote: it can be used again.
pub(super) fn give_back(step: &mut Step<'_>, call: &CallRef) -> Result<(), Rejection> {
    let Some(id) = call.quote else { return Ok(()) };
    if let Some(mut quote) = find(step, id)?
        && quote.state == QuoteState::Consumed
        && quote.call == Some(call.call)
    {
        quote.state = QuoteState::Open;
        quote.call = None;
        quote.ended_at = None;
        put(step, quote);
    }
    Ok(())
}

/// Withdraws what an end user who leaves has open.
pub(super) fn cancel_all(step: &mut Step<'_>, owner: &ExternalUserId) {
    let tenant = step.command.tenant;
    let open: Vec<Quote> = step
        .books
        .quotes
        .iter()
        .filter(|((of, _), quote)| {
            *of == tenant && quote.owner.as_ref() == Some(owner) && quote.state == QuoteState::Open
        })
        .map(|(_, quote)| quote.clone())
        .collect();
    for mut quote in open {
        end(step, &mut quote, QuoteState::Canceled);
    }
}
