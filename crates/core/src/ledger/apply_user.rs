//! The commands about an end user: tokens, limits, freezing, retirement.

use std::sync::Arc;

use serde_json::json;

use super::account::{AccountStatus, Payer};
use super::apply::{Step, object};
use super::command::{NewPolicy, NewToken, Outcome, Retire, RevokeTokens, SetFrozen};
use super::event::EventType;
use super::rejection::{Blockers, Rejection};
use super::token::TokenKind;
use super::{apply_approval, apply_quote};

pub(super) fn mint_token(step: &mut Step<'_>, new: &NewToken) -> Result<Outcome, Rejection> {
    step.active_tenant()?;
    if step.token(new.id)?.is_some() {
        return Err(Rejection::Mismatch("the token exists already"));
    }
    if new.token.kind == TokenKind::EndUser && new.token.owner == Payer::Pool {
        return Err(Rejection::Mismatch("a token without its end user"));
    }
    step.ensure_end_user(&new.token.owner)?;
    let key = (step.command.tenant, new.id);
    step.books.tokens.put(key, new.token.clone());
    Ok(Outcome::Minted)
}

/// Ends the live tokens of `kind` that spend from `owner` and says how many there were.
fn revoke_live(step: &mut Step<'_>, owner: &Payer, kind: TokenKind) -> u64 {
    let (tenant, at) = (step.command.tenant, step.command.at);
    let live: Vec<_> = step
        .books
        .tokens
        .iter()
        .filter(|((of, _), token)| {
            *of == tenant && token.owner == *owner && token.kind == kind && token.is_live(at)
        })
        .map(|(key, token)| (*key, token.clone()))
        .collect();
    let count = u64::try_from(live.len()).unwrap_or(u64::MAX);
    for (key, mut token) in live {
        token.revoked_at = Some(at);
        step.books.tokens.put(key, token);
    }
    count
}

pub(super) fn revoke_tokens(step: &mut Step<'_>, revoke: &RevokeTokens) -> Result<Outcome, Rejection> {
    if let Payer::EndUser(id) = &revoke.owner
        && step.end_user(id)?.is_none()
    {
        return Err(Rejection::UnknownEndUser);
    }
    let Some(only) = revoke.only else {
        return Ok(Outcome::Revoked(revoke_live(step, &revoke.owner, revoke.kind)));
    };
    let key = (step.command.tenant, only);
    let Some(mut token) = step.books.tokens.get(&key).cloned() else {
        return Ok(Outcome::Revoked(0));
    };
    if token.owner != revoke.owner || token.kind != revoke.kind || !token.is_live(step.command.at) {
        return Ok(Outcome::Revoked(0));
    }
    token.revoked_at = Some(step.command.at);
    step.books.tokens.put(key, token);
    Ok(Outcome::Revoked(1))
}

pub(super) fn set_policy(step: &mut Step<'_>, new: &NewPolicy) -> Result<Outcome, Rejection> {
    step.tenant()?;
    step.ensure_end_user(&Payer::EndUser(new.end_user.clone()))?;
    let mut user = step.end_user(&new.end_user)?.ok_or(Rejection::UnknownEndUser)?;
    step.before = Some(json!(*user.policy).to_string().into());
    user.policy = new.policy.clone();
    step.books
        .end_users
        .put((step.command.tenant, new.end_user.clone()), user);
    Ok(Outcome::PolicySet)
}

/// Tells that a balance was frozen.
pub(super) fn emit_frozen(
    step: &mut Step<'_>,
    payer: &Payer,
    reason: &str,
    reference: &str,
) -> Result<(), Rejection> {
    let balance = step.account(&payer.account(step.command.tenant))?.posted;
    let data = object([("reason", json!(reason)), ("balanceUsd", json!(balance))]);
    step.emit(
        EventType::AccountFrozen,
        payer.external_user_id(),
        reference,
        data,
    )
}

pub(super) fn set_frozen(step: &mut Step<'_>, wanted: &SetFrozen) -> Result<Outcome, Rejection> {
    step.tenant()?;
    if let Payer::EndUser(id) = &wanted.payer {
        match step.end_user(id)? {
            None => return Err(Rejection::UnknownEndUser),
            Some(user) if user.retired => return Err(Rejection::EndUserRetired),
            Some(_) => {}
        }
    }
    let key = wanted.payer.account(step.command.tenant);
    let mut account = step.account(&key)?;
    let is_frozen = account.status == AccountStatus::Frozen;
    step.before = Some(json!({ "frozen": is_frozen }).to_string().into());
    if !is_frozen && !wanted.frozen {
        return Ok(Outcome::Frozen(false));
    }
    // Frozen by a dispute and then by hand, it must not be free when the dispute is won.
    let changed = if wanted.frozen {
        account.freeze()
    } else {
        account.forgive();
        true
    };
    step.books.accounts.put(key, account);
    if !changed {
        return Ok(Outcome::Frozen(false));
    }
    if wanted.frozen {
        let reference = step.command.id.to_string();
        emit_frozen(step, &wanted.payer, &wanted.reason, &reference)?;
    }
    Ok(Outcome::Frozen(true))
}

/// Retires an end user: only when nothing of it is open, and then at once for everything.
pub(super) fn retire(step: &mut Step<'_>, retire: &Retire) -> Result<Outcome, Rejection> {
    let mut user = step
        .end_user(&retire.end_user)?
        .ok_or(Rejection::UnknownEndUser)?;
    if user.retired {
        return Ok(Outcome::Retired {
            already: true,
            revoked_tokens: 0,
            canceled_approvals: 0,
            revoked_agents: 0,
            policy_reset: false,
        });
    }
    let key = Payer::EndUser(retire.end_user.clone()).account(step.command.tenant);
    let mut account = step.account(&key)?;
    let blockers = Blockers {
        posted: account.posted,
        held: account.held,
        calls: account.open_calls,
        open: user.open,
    };
    // INVARIANT: who is retired has nothing: no later command can charge or credit the account.
    if blockers != Blockers::default() {
        return Err(Rejection::NotRetirable(Box::new(blockers)));
    }
    let owner = Payer::EndUser(retire.end_user.clone());
    let revoked_tokens = revoke_live(step, &owner, TokenKind::EndUser);
    let revoked_agents = revoke_live(step, &owner, TokenKind::Agent);
    let canceled_approvals = apply_approval::cancel_all(step, &retire.end_user);
    apply_quote::cancel_all(step, &retire.end_user);
    let policy_reset = *user.policy != super::policy::Policy::default();
    user.retired = true;
    user.policy = Arc::default();
    account.status = AccountStatus::Retired;
    step.books.accounts.put(key, account);
    step.books
        .end_users
        .put((step.command.tenant, retire.end_user.clone()), user);
    Ok(Outcome::Retired {
        already: false,
        revoked_tokens,
        canceled_approvals,
        revoked_agents,
        policy_reset,
    })
}
