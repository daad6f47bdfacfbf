//! Approvals: what an end user's agent wishes and an owner or admin of the workspace decides about.
//!
//! Each change is one command of the ledger; a decision writes its audit row with it.

mod required;
mod view;

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{ApprovalId, CommandId, ExternalUserId, TenantId};
use turnpike_core::ledger::approval::{Approval, ApprovalKind, ApprovalState, DecideApproval, PENDING_MS};
use turnpike_core::ledger::command::AuditNote;
use turnpike_core::ledger::{Action, Command, Outcome, TenantStatus};
use turnpike_store::{ApprovalFilter, Store};

pub(crate) use self::required::Dear;
use self::view::view;
use crate::auth::Actor;
use crate::catalogue::Callable;
use crate::environment::Environment;
use crate::error::AppError;
use crate::fields::Fields;
use crate::paging::{Page, id_cursor};
use crate::providers::Shelf;
use crate::quotes::request::{named_user, payer, slug_parts};
use crate::tools::ToolCaller;

/// How long an approval that came to nothing is remembered: thirty days.
const KEPT_MS: i64 = 30 * 86_400_000;
/// Longest reason, of who asks and of who decides.
const MAX_REASON: usize = 500;
/// Longest slug.
const MAX_SLUG: usize = 256;

/// The use cases of approvals.
pub struct ApprovalDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    shelf: Arc<Shelf>,
    public_url: Arc<str>,
}

/// Which approvals a list shows, as the caller says it.
#[derive(Clone, Debug, Default)]
pub struct ApprovalQuery {
    /// By status.
    pub status: Option<String>,
    /// By end user.
    pub owner: Option<ExternalUserId>,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
    /// Page size.
    pub limit: u32,
}

impl ApprovalDesk {
    /// A desk whose approvals are decided at `public_url`.
    pub const fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        shelf: Arc<Shelf>,
        public_url: Arc<str>,
    ) -> Self {
        Self {
            store,
            environment,
            shelf,
            public_url,
        }
    }

    fn view(&self, actor: &Actor, approval: &Approval) -> Value {
        let rate = actor.tenant.credits_per_dollar;
        view(approval, rate, &self.public_url, self.environment.now())
    }

    async fn submit(
        &self,
        actor: &Actor,
        action: Action,
        note: Option<AuditNote>,
    ) -> Result<(Approval, bool), AppError> {
        let tenant = &actor.tenant;
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant: tenant.id,
            at: self.environment.now(),
            action,
            note: note.map(Arc::new),
        };
        match self.store.submit(command).await {
            Ok(Outcome::Approval { approval, changed }) => Ok((*approval, changed)),
            Ok(_) => Err(AppError::internal(&"an approval was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, tenant.credits_per_dollar)),
        }
    }

    /// A page of the workspace's approvals, newest first.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `CURSOR_INVALID`.
    pub async fn list(&self, actor: &Actor, query: &ApprovalQuery) -> Result<Page, AppError> {
        let state = query.status.as_deref().map(|text| {
            ApprovalState::parse(text).ok_or_else(|| {
                let known: Vec<&str> = ApprovalState::ALL.iter().map(|state| state.as_str()).collect();
                AppError::invalid("status", format!("must be one of {}", known.join(", ")))
            })
        });
        let filter = ApprovalFilter {
            state: state.transpose()?,
            owner: query.owner.clone(),
            before: id_cursor(query.cursor.as_deref())?,
            now: self.environment.now(),
            limit: query.limit.saturating_add(1),
        };
        let found = self.store.list_approvals(actor.tenant.id, &filter).await?;
        Ok(Page::cut(
            &found,
            query.limit,
            |approval| approval.id.to_string(),
            |approval| self.view(actor, approval),
        ))
    }

    /// An approval of the workspace.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn get(&self, actor: &Actor, id: &str) -> Result<Value, AppError> {
        Ok(self.view(actor, &self.find(actor.tenant.id, id).await?))
    }

    /// An approval of `tenant`.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn find(&self, tenant: TenantId, id: &str) -> Result<Approval, AppError> {
        let id: ApprovalId = id.parse().map_err(|_no_id| not_found())?;
        let found = self.store.find_approval(tenant, id).await?;
        found.ok_or_else(not_found)
    }

    /// The workspace whose approval it is.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn tenant_of(&self, id: &str) -> Result<TenantId, AppError> {
        let id: ApprovalId = id.parse().map_err(|_no_id| not_found())?;
        let found = self.store.find_approval_tenant(id).await?;
        found.ok_or_else(not_found)
    }

    /// Asks that an end user may call a tool from now on; whether the wish is a new one.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `ENDPOINT_NOT_FOUND`, `ENDPOINT_DISABLED`, `ALREADY_EXISTS` when it may
    /// already, `END_USER_NOT_FOUND`, `END_USER_RETIRED`, `RATE_LIMITED`, and what refuses a credential.
    pub async fn request_access(&self, caller: &ToolCaller, raw: &[u8]) -> Result<(Value, bool), AppError> {
        let actor = &caller.actor;
        actor.require_caller()?;
        let mut fields = Fields::parse(raw, &["slug", "reason", "externalUserId"])?;
        let slug = fields.required("slug", |fields, name| fields.words(name, 1..=MAX_SLUG))?;
        let reason = fields.words("reason", 1..=MAX_REASON)?;
        let named = named_user(&mut fields)?;
        let payer = payer(caller, named.as_ref())?;
        let owner = payer.external_user_id().ok_or_else(|| {
            AppError::invalid("externalUserId", "is required: the workspace needs no approval")
        })?;
        let (provider, endpoint) = slug_parts(&slug)?;
        self.shelf
            .tool(&provider, &endpoint)
            .map(drop)
            .or_else(|refusal| match self.shelf.model_of(&provider, &endpoint) {
                Ok(_) => Ok(()),
                Err(_no_model) => Err(refusal),
            })?;
        Callable::of(actor).require(&provider, &slug)?;
        let now = self.environment.now();
        let approval = Approval {
            id: ApprovalId(self.environment.new_id()),
            kind: ApprovalKind::ToolAccess,
            owner: owner.clone(),
            slug: slug.into(),
            args_hash: None,
            args: None,
            amount: None,
            quote: None,
            reason: reason.map(Into::into),
            credential: actor.label().into(),
            state: ApprovalState::Pending,
            created_at: now,
            expires_at: now.plus_millis(PENDING_MS),
            decided_at: None,
            decided_by: None,
            decision: None,
            call: None,
        };
        let action = Action::RequestApproval(Box::new(approval));
        let (approval, fresh) = self.submit(actor, action, None).await?;
        Ok((self.view(actor, &approval), fresh))
    }

    /// Approves or denies.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `NOT_FOUND`, `REQUEST_FAILED` when it was decided otherwise or is over,
    /// `FORBIDDEN_ROLE`, `TENANT_SUSPENDED`.
    pub async fn decide(
        &self,
        actor: &Actor,
        id: &str,
        approve: bool,
        raw: &[u8],
    ) -> Result<Value, AppError> {
        actor.require_administrator()?;
        let mut fields = Fields::parse(raw, &["reason"])?;
        let reason = fields.words("reason", 0..=MAX_REASON)?;
        let reason = reason.filter(|reason| !reason.is_empty());
        let approval = self.find(actor.tenant.id, id).await?;
        let by: Arc<str> = actor.label().into();
        let decision = DecideApproval {
            id: approval.id,
            owner: approval.owner.clone(),
            approve,
            by: by.clone(),
            reason: reason.as_deref().map(Into::into),
        };
        let after = json!({
            "kind": approval.kind, "slug": approval.slug, "externalUserId": approval.owner,
            "requestedUsd": approval.amount, "reason": reason,
            "status": if approve { ApprovalState::Approved } else { ApprovalState::Denied },
        });
        let note = AuditNote {
            actor: by,
            action: if approve {
                "approval.approve"
            } else {
                "approval.deny"
            },
            target: approval.id.to_string().into(),
            before: None,
            after: Some(after.to_string().into()),
            origin: actor.origin.clone(),
        };
        let action = Action::DecideApproval(Box::new(decision));
        let (approval, _) = self.submit(actor, action, Some(note)).await?;
        Ok(self.view(actor, &approval))
    }

    /// Demands a workspace in which something can be decided.
    ///
    /// # Errors
    /// `TENANT_SUSPENDED`.
    pub fn require_active(&self, actor: &Actor) -> Result<(), AppError> {
        let status = actor.tenant.status;
        if status == TenantStatus::Active {
            return Ok(());
        }
        let message = format!("the workspace is {status}");
        Err(AppError::new(ErrorCode::TenantSuspended, message))
    }

    /// Forgets approvals that came to nothing; says how many.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn prune(&self) -> Result<u64, AppError> {
        let before = self.environment.now().plus_millis(0_i64.saturating_sub(KEPT_MS));
        Ok(self.store.prune_approvals(before).await?)
    }
}

fn not_found() -> AppError {
    AppError::new(ErrorCode::NotFound, "there is no such approval")
}
