//! A call above what its end user may spend alone: it goes on with an approval, or asks for one.

use std::sync::Arc;

use serde_json::Value;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{ApprovalId, ExternalUserId};
use turnpike_core::ledger::approval::{Approval, ApprovalKind, ApprovalState, PENDING_MS, approval_subject};
use turnpike_core::ledger::quote::CallAuthority;
use turnpike_core::ledger::{Action, Outcome};
use turnpike_core::money::Micros;

use super::view::url;
use crate::calls::CallDesk;
use crate::context::CallContext;
use crate::error::AppError;
use crate::json::parse_object;
use crate::quotes::canonical::{args_hash, canonical};

/// Most characters of the arguments that are shown to who decides.
const MAX_ARGS: usize = 8_000;

/// A call that needs an approval.
pub(crate) struct Dear<'a> {
    pub(crate) owner: &'a ExternalUserId,
    /// How policies name what is called.
    pub(crate) slug: String,
    /// What the call would hold.
    pub(crate) amount: Micros,
    /// The body that was sent.
    pub(crate) raw: &'a [u8],
}

impl CallDesk {
    /// What the call rests on when somebody has approved it.
    ///
    /// # Errors
    /// `required` with the address of the approval, which is asked for now or was before; `POLICY_DENIED` when it was
    /// denied.
    pub(crate) async fn approved(
        &self,
        context: &CallContext,
        call: &Dear<'_>,
        authority: Option<CallAuthority>,
        required: AppError,
    ) -> Result<CallAuthority, AppError> {
        let args = if call.raw.is_empty() {
            Value::Object(serde_json::Map::new())
        } else {
            Value::Object(parse_object(call.raw)?)
        };
        let authority = authority.unwrap_or_else(|| CallAuthority {
            args_hash: args_hash(&args),
            quote: None,
            approval: None,
        });
        let tenant = &context.actor.tenant;
        let subject = approval_subject(call.owner, &call.slug, Some(&authority.args_hash));
        let now = self.engine.environment.now();
        let latest = self
            .engine
            .store
            .find_latest_approval(tenant.id, &subject)
            .await?;
        if let Some(approval) = &latest {
            let covers = approval.amount.is_some_and(|amount| call.amount <= amount);
            match approval.state_at(now) {
                ApprovalState::Approved if covers => {
                    return Ok(CallAuthority {
                        approval: Some(approval.id),
                        ..authority
                    });
                }
                ApprovalState::Denied if now < approval.expires_at => return Err(denied(approval)),
                ApprovalState::Approved
                | ApprovalState::Denied
                | ApprovalState::Pending
                | ApprovalState::Canceled
                | ApprovalState::Expired
                | ApprovalState::Consumed => {}
            }
        }
        let quote = authority.quote.as_ref().map(|quote| quote.id);
        let wish = Approval {
            id: ApprovalId(self.engine.environment.new_id()),
            kind: if quote.is_some() {
                ApprovalKind::Quote
            } else {
                ApprovalKind::Spend
            },
            owner: call.owner.clone(),
            slug: call.slug.as_str().into(),
            args_hash: Some(authority.args_hash.clone()),
            args: Some(for_people(&args)),
            amount: Some(call.amount),
            quote,
            reason: None,
            credential: context.actor.label().into(),
            state: ApprovalState::Pending,
            created_at: now,
            expires_at: now.plus_millis(PENDING_MS),
            decided_at: None,
            decided_by: None,
            decision: None,
            call: None,
        };
        let asked = self
            .engine
            .submit(tenant.id, Action::RequestApproval(Box::new(wish)))
            .await;
        match asked {
            Ok(Outcome::Approval { approval, .. }) if approval.state == ApprovalState::Approved => {
                // Somebody approved it a moment ago.
                Ok(CallAuthority {
                    approval: Some(approval.id),
                    ..authority
                })
            }
            Ok(Outcome::Approval { approval, .. }) => {
                let at = url(&self.engine.settings.public_url, approval.id);
                Err(required
                    .with("approvalId", approval.id.to_string())
                    .with("approvalUrl", at)
                    .with(
                        "hint",
                        "somebody has to approve this call at approvalUrl; then send the same request again",
                    ))
            }
            Ok(_) => Err(AppError::internal(&"an approval was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, tenant.credits_per_dollar)),
        }
    }
}

/// What the caller of a call is told that somebody denied.
fn denied(approval: &Approval) -> AppError {
    let message = match &approval.decision {
        Some(reason) => format!("an owner or admin denied this call: {reason}"),
        None => "an owner or admin denied this call".to_owned(),
    };
    AppError::new(ErrorCode::PolicyDenied, message)
        .with("approvalId", approval.id.to_string())
        .with("reason", approval.decision.as_deref())
}

/// The arguments as people see them; no NUL, which PostgreSQL cannot store.
fn for_people(args: &Value) -> Arc<str> {
    let text = canonical(args);
    let shown: String = text.chars().take(MAX_ARGS).collect();
    let shown = if shown.len() < text.len() {
        // Whoever decides must know that there is more.
        let rest = text.chars().count().saturating_sub(MAX_ARGS);
        format!("{shown}… and {rest} characters more that are not shown")
    } else {
        shown
    };
    shown.into()
}
