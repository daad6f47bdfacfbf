//! The commands about approvals, and how the hold of a call uses one.

use std::sync::Arc;

use serde_json::json;

use super::apply::Step;
use super::approval::{
    APPROVED_MS, Approval, ApprovalKind, ApprovalState, DecideApproval, MAX_OPEN, MAX_TOOLS,
};
use super::command::{NewHold, Outcome};
use super::hold::CallRef;
use super::quote::CallAuthority;
use super::rejection::Rejection;
use crate::ids::{ApprovalId, ExternalUserId};
use crate::money::Micros;

fn find(step: &Step<'_>, id: ApprovalId) -> Result<Option<Approval>, Rejection> {
    let key = (step.command.tenant, id);
    if !step.books.approvals.is_loaded(&key) {
        return Err(Rejection::NotLoaded("approval"));
    }
    Ok(step.books.approvals.get(&key).cloned())
}

fn put(step: &mut Step<'_>, approval: Approval) {
    let key = (step.command.tenant, approval.id);
    step.books.approvals.put(key, approval);
}

/// The open approvals of `owner`, oldest first; those whose time is over are ended.
fn open_of(step: &mut Step<'_>, owner: &ExternalUserId) -> Vec<Approval> {
    let (tenant, at) = (step.command.tenant, step.command.at);
    let mut open: Vec<Approval> = step
        .books
        .approvals
        .iter()
        .filter(|((of, _), approval)| *of == tenant && approval.owner == *owner && approval.is_open())
        .map(|(_, approval)| approval.clone())
        .collect();
    open.sort_by_key(|approval| approval.id);
    open.retain_mut(|approval| {
        let over = approval.state_at(at) == ApprovalState::Expired;
        if over {
            approval.state = ApprovalState::Expired;
            put(step, approval.clone());
        }
        !over
    });
    open
}

/// Asks for an approval; the same wish again gives the one that is open.
pub(super) fn request(step: &mut Step<'_>, new: &Approval) -> Result<Outcome, Rejection> {
    step.active_tenant()?;
    if find(step, new.id)?.is_some() {
        return Err(Rejection::Mismatch("the approval exists already"));
    }
    let user = step.end_user(&new.owner)?.ok_or(Rejection::UnknownEndUser)?;
    if user.retired {
        return Err(Rejection::EndUserRetired);
    }
    if new.kind == ApprovalKind::ToolAccess && user.policy.allows_slug(&new.slug) {
        return Err(Rejection::ToolAllowed);
    }
    let mut open = open_of(step, &new.owner);
    let subject = new.subject();
    if let Some(at) = open.iter().position(|approval| approval.subject() == subject) {
        let mut same = open.swap_remove(at);
        if same.amount >= new.amount {
            return Ok(Outcome::Approval {
                approval: Box::new(same),
                changed: false,
            });
        }
        // It would not cover the call any more.
        same.state = ApprovalState::Canceled;
        put(step, same);
    }
    if open.len() >= MAX_OPEN {
        return Err(Rejection::TooManyApprovals { limit: MAX_OPEN });
    }
    put(step, new.clone());
    Ok(Outcome::Approval {
        approval: Box::new(new.clone()),
        changed: true,
    })
}

/// Approves or denies; what was decided so before stays as it is.
pub(super) fn decide(step: &mut Step<'_>, decision: &DecideApproval) -> Result<Outcome, Rejection> {
    step.tenant()?;
    let found = find(step, decision.id)?.filter(|approval| approval.owner == decision.owner);
    let mut approval = found.ok_or(Rejection::UnknownApproval)?;
    let state = approval.state_at(step.command.at);
    let wanted = if decision.approve {
        ApprovalState::Approved
    } else {
        ApprovalState::Denied
    };
    if state == wanted {
        return Ok(Outcome::Approval {
            approval: Box::new(approval),
            changed: false,
        });
    }
    let undecided = state == ApprovalState::Pending;
    let taken_back = !decision.approve && state == ApprovalState::Approved && approval.is_open();
    if !undecided && !taken_back {
        return Err(Rejection::ApprovalNotOpen(state));
    }
    step.before = Some(json!({ "status": state }).to_string().into());
    if decision.approve {
        step.active_tenant()?;
        if approval.kind == ApprovalKind::ToolAccess {
            give_access(step, &approval)?;
        }
        approval.expires_at = step.command.at.plus_millis(APPROVED_MS);
    }
    approval.state = wanted;
    approval.decided_at = Some(step.command.at);
    approval.decided_by = Some(decision.by.clone());
    approval.decision.clone_from(&decision.reason);
    put(step, approval.clone());
    Ok(Outcome::Approval {
        approval: Box::new(approval),
        changed: true,
    })
}

/// Adds the tool to what the end user may call.
fn give_access(step: &mut Step<'_>, approval: &Approval) -> Result<(), Rejection> {
    let owner = &approval.owner;
    let mut user = step.end_user(owner)?.ok_or(Rejection::UnknownEndUser)?;
    if user.retired {
        return Err(Rejection::EndUserRetired);
    }
    if user.policy.allows_slug(&approval.slug) {
        return Ok(());
    }
    let policy = Arc::make_mut(&mut user.policy);
    let tools = policy.allowed_tools.get_or_insert_default();
    if tools.len() >= MAX_TOOLS {
        return Err(Rejection::PolicyFull { limit: MAX_TOOLS });
    }
    tools.push(approval.slug.to_string());
    step.books
        .end_users
        .put((step.command.tenant, owner.clone()), user);
    Ok(())
}

/// Uses the approval that a hold is asked with, where `threshold` is what may be spent without one.
pub(super) fn consume(
    step: &mut Step<'_>,
    new: &NewHold,
    authority: Option<&CallAuthority>,
    threshold: Option<Micros>,
) -> Result<Option<ApprovalId>, Rejection> {
    let Some(threshold) = threshold.filter(|threshold| new.amount > *threshold) else {
        return Ok(None);
    };
    let required = Rejection::ApprovalRequired { threshold };
    let Some(authority) = authority else {
        return Err(required);
    };
    let Some(id) = authority.approval else {
        return Err(required);
    };
    let slug = new.subject.slug();
    let mut approval = find(step, id)?.ok_or(required.clone())?;
    // INVARIANT: an approval is used once, because it is checked and ended in the command that takes the hold.
    if !approval.covers(new.quoted(authority, &slug), new.amount, step.command.at) {
        return Err(required);
    }
    approval.state = ApprovalState::Consumed;
    approval.call = Some(new.call);
    put(step, approval);
    Ok(Some(id))
}

/// Nothing was sent of the call that used an approval: it can be used again.
pub(super) fn give_back(step: &mut Step<'_>, call: &CallRef) -> Result<(), Rejection> {
    let Some(id) = call.approval else { return Ok(()) };
    if let Some(mut approval) = find(step, id)?
        && approval.state == ApprovalState::Consumed
        && approval.call == Some(call.call)
    {
        approval.state = ApprovalState::Approved;
        approval.call = None;
        put(step, approval);
    }
    Ok(())
}

/// Cancels what an end user who leaves has open, and says how many there were.
pub(super) fn cancel_all(step: &mut Step<'_>, owner: &ExternalUserId) -> u64 {
    let open = open_of(step, owner);
    let count = u64::try_from(open.len()).unwrap_or(u64::MAX);
    for mut approval in open {
        approval.state = ApprovalState::Canceled;
        put(step, approval);
    }
    count
}
