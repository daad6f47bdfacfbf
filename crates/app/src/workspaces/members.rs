//! Members: who has which role.
//!
//! The rule: nobody gives what they do not have, and nobody takes from who has more. Only an owner makes an owner, and
//! the last owner stays; that is decided by the statement that writes.

use serde_json::{Value, json};
use turnpike_core::access::Role;
use turnpike_core::errors::ErrorCode;
use turnpike_store::{Member, MemberChange};

use super::{TRIES, WorkspaceDesk, no_such_member};
use crate::auth::{Actor, ActorCredential};
use crate::changes::{Author, Change};
use crate::error::AppError;
use crate::fields::Fields;

/// Longest subject of an identity provider (OpenID Connect Core, section 2).
pub(crate) const MAX_SUBJECT: usize = 255;

/// A member as it is shown.
pub fn member_view(member: &Member) -> Value {
    json!({ "subject": member.subject, "role": member.role, "createdAt": member.created_at })
}

/// Demands that `actor` has every scope of `role`. A key gives and takes only what keys can do themselves: an owner or
/// admin, who steps up, and who handles the workspace's money can do more than any key.
///
/// # Errors
/// `SCOPE_ESCALATION` with both lists, sorted; `FORBIDDEN_ROLE`.
pub fn require_power_over(actor: &Actor, role: Role) -> Result<(), AppError> {
    if role.scopes().iter().any(|scope| !actor.scopes().contains(scope)) {
        let message = format!("the role {role} has scopes that you do not have");
        return Err(AppError::new(ErrorCode::ScopeEscalation, message).scopes(role.scopes(), actor.scopes()));
    }
    match &actor.credential {
        ActorCredential::Key(_) if !matches!(role, Role::Developer | Role::Viewer) => Err(AppError::new(
            ErrorCode::ForbiddenRole,
            format!("the role {role} can do what no key can: only a member gives or takes it"),
        )),
        ActorCredential::Key(_)
        | ActorCredential::Member { .. }
        | ActorCredential::EndUser(_)
        | ActorCredential::Agent(_) => Ok(()),
    }
}

/// Demands that `actor` may make somebody a `role`.
///
/// # Errors
/// `SCOPE_ESCALATION`, `FORBIDDEN_ROLE`.
pub fn require_may_give(actor: &Actor, role: Role) -> Result<(), AppError> {
    require_power_over(actor, role)?;
    let is_owner = matches!(
        actor.credential,
        ActorCredential::Member {
            role: Role::Owner,
            ..
        }
    );
    if role == Role::Owner && !is_owner {
        return Err(AppError::new(
            ErrorCode::ForbiddenRole,
            "only an owner makes another one",
        ));
    }
    Ok(())
}

fn last_owner() -> AppError {
    AppError::new(
        ErrorCode::ForbiddenRole,
        "the last owner stays: make somebody else an owner first",
    )
}

impl WorkspaceDesk {
    /// The members of the actor's workspace, by subject.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn members(&self, actor: &Actor) -> Result<Vec<Value>, AppError> {
        let members = self.store.list_members(actor.tenant.id).await?;
        Ok(members.iter().map(member_view).collect())
    }

    /// Adds a member or changes the role: `{role}`.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `SCOPE_ESCALATION`, `FORBIDDEN_ROLE`.
    pub async fn put_member(&self, actor: &Actor, subject: &str, raw: &[u8]) -> Result<Value, AppError> {
        let mut fields = Fields::parse(raw, &["role"])?;
        let role = fields.required("role", Fields::text)?;
        let role = Role::parse(&role).ok_or_else(|| {
            let known: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
            AppError::invalid("role", format!("must be one of {}", known.join(", ")))
        })?;
        checked_subject(subject)?;
        require_may_give(actor, role)?;
        self.change_role(actor, subject, Some(role)).await
    }

    /// Ends a membership.
    ///
    /// # Errors
    /// `NOT_FOUND`, `SCOPE_ESCALATION`, `FORBIDDEN_ROLE` for the last owner.
    pub async fn remove_member(&self, actor: &Actor, subject: &str) -> Result<Value, AppError> {
        self.change_role(actor, subject, None).await
    }

    async fn change_role(&self, actor: &Actor, subject: &str, to: Option<Role>) -> Result<Value, AppError> {
        for _ in 0..TRIES {
            let members = self.store.list_members(actor.tenant.id).await?;
            let member = members.iter().find(|member| member.subject == subject);
            let from = member.map(|member| member.role);
            match from {
                Some(role) => require_power_over(actor, role)?,
                None if to.is_none() => return Err(no_such_member()),
                None => {}
            }
            let now = self.environment.now();
            let view = json!({ "subject": subject, "role": to,
                "createdAt": member.map_or(now, |member| member.created_at) });
            if from == to {
                return Ok(view);
            }
            let change = MemberChange {
                tenant: actor.tenant.id,
                subject: subject.to_owned(),
                from,
                to,
                at: now,
            };
            let audit = Change::new(action(from, to), &subject)
                .before(&json!({ "role": from }))
                .after(&json!({ "role": to }))
                .row(&*self.environment, &Author::of(actor));
            if self.store.change_member(&change, &audit).await? {
                return Ok(view);
            }
            let owners = members.iter().filter(|member| member.role == Role::Owner);
            if from == Some(Role::Owner) && owners.count() == 1 {
                return Err(last_owner());
            }
        }
        Err(AppError::unavailable())
    }
}

/// What the audit log calls a change of a membership.
pub(crate) const fn action(from: Option<Role>, to: Option<Role>) -> &'static str {
    match (from, to) {
        (None, _) => "member.add",
        (Some(_), Some(_)) => "member.role",
        (Some(_), None) => "member.remove",
    }
}

/// Demands a subject that an identity provider could give.
///
/// # Errors
/// `VALIDATION_ERROR`.
pub(crate) fn checked_subject(subject: &str) -> Result<(), AppError> {
    if (1..=MAX_SUBJECT).contains(&subject.chars().count()) && !subject.chars().any(char::is_control) {
        Ok(())
    } else {
        let message = format!("must be 1 to {MAX_SUBJECT} characters without control characters");
        Err(AppError::invalid("subject", message))
    }
}
