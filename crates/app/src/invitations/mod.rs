//! Invitations into a workspace: made by who manages members, accepted once by whoever has the link.
//!
//! The token is shown when the invitation is made and never again; the store keeps its SHA-256. Whoever presents one
//! that is not open learns nothing about it.

mod request;

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use turnpike_core::access::Role;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::TenantStatus;
use turnpike_core::time::Timestamp;
use turnpike_store::{Acceptance, Accepted, AuditRow, Invitation, Store, Tenant};
use uuid::Uuid;

pub use self::request::DEFAULT_LIFETIME_SECS;
use self::request::{NewInvitation, token_of};
use crate::auth::Actor;
use crate::changes::{Author, Change};
use crate::environment::Environment;
use crate::error::AppError;
use crate::workspaces::require_may_give;

/// Most open invitations of a workspace.
const MAX_OPEN: u32 = 100;
/// Longest token that is looked at.
const MAX_TOKEN: usize = 128;

/// The use cases of invitations.
pub struct InvitationDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    /// The page where people join, where there is one.
    join_url: Option<String>,
}

/// An invitation with its token, which is shown once.
#[derive(Clone)]
pub struct Invited {
    /// What is kept of it.
    pub invitation: Invitation,
    token: String,
    /// Its link, where people join on pages of this service.
    pub url: Option<String>,
}

impl fmt::Debug for Invited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// What somebody wants an invitation to be.
struct Wish {
    role: Role,
    note: Option<String>,
    lifetime_secs: i64,
    made_by: String,
}

impl InvitationDesk {
    /// A desk over `store`; links begin with `join_url`.
    pub const fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        join_url: Option<String>,
    ) -> Self {
        Self {
            store,
            environment,
            join_url,
        }
    }

    /// Makes an invitation: `{role, note?, expiresIn?}`.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `SCOPE_ESCALATION`, `FORBIDDEN_ROLE`, `ALREADY_EXISTS` when too many are open.
    pub async fn create(&self, actor: &Actor, raw: &[u8]) -> Result<Value, AppError> {
        let new = NewInvitation::parse(raw)?;
        require_may_give(actor, new.role)?;
        let invited = self.draw(
            actor.tenant.id,
            Wish {
                role: new.role,
                note: new.note,
                lifetime_secs: new.lifetime_secs,
                made_by: actor.label(),
            },
        );
        let audit = self.audit(
            &invited.invitation,
            "invitation.create",
            &actor.label(),
            &actor.origin,
        );
        let store = &self.store;
        if !store
            .insert_invitation(&invited.invitation, MAX_OPEN, &audit)
            .await?
        {
            let message = format!("a workspace has at most {MAX_OPEN} open invitations: revoke some");
            return Err(AppError::new(ErrorCode::AlreadyExists, message));
        }
        Ok(self.shown(&invited))
    }

    /// Makes an invitation for the operator.
    ///
    /// # Errors
    /// `NOT_FOUND`, `ALREADY_EXISTS` when too many are open.
    pub async fn invite(&self, tenant: TenantId, role: Role, origin: &str) -> Result<Value, AppError> {
        let found = self.store.find_tenant(tenant).await?;
        found.ok_or_else(|| AppError::new(ErrorCode::NotFound, "there is no such workspace"))?;
        let wish = Wish {
            role,
            note: None,
            lifetime_secs: DEFAULT_LIFETIME_SECS,
            made_by: "operator".to_owned(),
        };
        let invited = self.draw(tenant, wish);
        let audit = self.audit(&invited.invitation, "invitation.create", "operator", origin);
        let store = &self.store;
        if store
            .insert_invitation(&invited.invitation, MAX_OPEN, &audit)
            .await?
        {
            Ok(self.shown(&invited))
        } else {
            let message = format!("a workspace has at most {MAX_OPEN} open invitations: revoke some");
            Err(AppError::new(ErrorCode::AlreadyExists, message))
        }
    }

    /// Makes an owner's invitation in the place of those that `made_by` made before; `None` = somebody has joined.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn invite_first_owner(
        &self,
        tenant: TenantId,
        made_by: &str,
        lifetime_secs: i64,
    ) -> Result<Option<Invited>, AppError> {
        let wish = Wish {
            role: Role::Owner,
            note: None,
            lifetime_secs,
            made_by: made_by.to_owned(),
        };
        let invited = self.draw(tenant, wish);
        let audit = self.audit(&invited.invitation, "invitation.create", made_by, "start");
        let made = self
            .store
            .replace_first_invitation(&invited.invitation, &audit)
            .await?;
        Ok(made.then_some(invited))
    }

    /// A workspace's invitations, newest first, and where the next page begins.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn list(
        &self,
        actor: &Actor,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<Value>, Option<Uuid>), AppError> {
        let before = cursor.map(str::parse::<Uuid>).transpose().map_err(|_no_uuid| {
            AppError::new(ErrorCode::CursorInvalid, "the cursor is not one of this list")
        })?;
        let page = self
            .store
            .list_invitations(actor.tenant.id, before, limit.saturating_add(1))
            .await?;
        let size = usize::try_from(limit).unwrap_or(usize::MAX);
        let now = self.environment.now();
        let shown: Vec<&Invitation> = page.iter().take(size).collect();
        let next = (page.len() > size)
            .then(|| shown.last().map(|last| last.id))
            .flatten();
        Ok((shown.into_iter().map(|one| view(one, now)).collect(), next))
    }

    /// Takes an invitation back.
    ///
    /// # Errors
    /// `NOT_FOUND` when there is none that is open.
    pub async fn revoke(&self, actor: &Actor, id: &str) -> Result<Value, AppError> {
        let missing = || AppError::new(ErrorCode::NotFound, "there is no such invitation that is open");
        let id: Uuid = id.parse().map_err(|_no_uuid| missing())?;
        let (tenant, now) = (actor.tenant.id, self.environment.now());
        let found = self.store.find_invitation(tenant, id).await?;
        let mut invitation = found.ok_or_else(missing)?;
        let mut audit = self.audit(&invitation, "invitation.revoke", &actor.label(), &actor.origin);
        audit.before = audit.after.take();
        if !self.store.revoke_invitation(tenant, id, now, &audit).await? {
            return Err(missing());
        }
        invitation.revoked_at = Some(now);
        Ok(view(&invitation, now))
    }

    /// `subject` accepts the invitation whose token is in the body: `{token}`.
    ///
    /// # Errors
    /// `NOT_FOUND` when it is not open, `ALREADY_EXISTS` when the person is a member, `TENANT_SUSPENDED`.
    pub async fn accept_body(&self, subject: &str, raw: &[u8], origin: &str) -> Result<Value, AppError> {
        self.accept(subject, &token_of(raw)?, origin).await
    }

    /// `subject` accepts the invitation of `token`.
    ///
    /// # Errors
    /// `NOT_FOUND` when it is not open, `ALREADY_EXISTS` when the person is a member, `TENANT_SUSPENDED`.
    pub async fn accept(&self, subject: &str, token: &str, origin: &str) -> Result<Value, AppError> {
        let (invitation, tenant) = self.open(token).await?;
        let acceptance = self.acceptance(invitation, subject, origin);
        match self.store.accept_invitation(&acceptance).await? {
            Accepted::Joined => Ok(json!({
                "tenantId": tenant.id, "tenantName": tenant.name, "tenantStatus": tenant.status,
                "role": acceptance.invitation.role,
            })),
            Accepted::AlreadyMember => Err(AppError::new(
                ErrorCode::AlreadyExists,
                "you are a member of this workspace already; your role was not changed",
            )),
            Accepted::NotOpen => Err(not_open()),
        }
    }

    /// The open invitation of `token`, and its workspace.
    ///
    /// # Errors
    /// `NOT_FOUND`, the same for one that never was and one that is over; `TENANT_SUSPENDED`.
    pub async fn open(&self, token: &str) -> Result<(Invitation, Tenant), AppError> {
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(not_open());
        }
        let found = self.store.find_invitation_by_hash(&token_hash(token)).await?;
        let now = self.environment.now();
        let invitation = found.filter(|found| found.is_open(now)).ok_or_else(not_open)?;
        let tenant = self.store.find_tenant(invitation.tenant).await?;
        let tenant = tenant.ok_or_else(not_open)?;
        match tenant.status {
            TenantStatus::Active | TenantStatus::Frozen => Ok((invitation, tenant)),
            status @ (TenantStatus::Suspended | TenantStatus::Closed) => Err(AppError::new(
                ErrorCode::TenantSuspended,
                format!("the workspace is {status}"),
            )),
        }
    }

    /// What the store is told when `subject` accepts.
    pub(crate) fn acceptance(&self, invitation: Invitation, subject: &str, origin: &str) -> Acceptance {
        let mut audit = self.audit(
            &invitation,
            "invitation.accept",
            &format!("member:{subject}"),
            origin,
        );
        audit.after = Some(json!({ "subject": subject, "role": invitation.role }).to_string());
        Acceptance {
            subject: subject.to_owned(),
            at: audit.at,
            invitation,
            audit,
        }
    }

    fn draw(&self, tenant: TenantId, wish: Wish) -> Invited {
        let token = URL_SAFE_NO_PAD.encode(self.environment.random_32());
        let now = self.environment.now();
        let invitation = Invitation {
            tenant,
            id: self.environment.new_id(),
            role: wish.role,
            note: wish.note,
            hash: token_hash(&token),
            created_by: wish.made_by,
            created_at: now,
            expires_at: now.plus_millis(wish.lifetime_secs.saturating_mul(1000)),
            accepted_at: None,
            accepted_by: None,
            revoked_at: None,
        };
        let url = self.join_url.as_ref().map(|url| format!("{url}?token={token}"));
        Invited {
            invitation,
            token,
            url,
        }
    }

    fn shown(&self, invited: &Invited) -> Value {
        json!({
            "invitation": view(&invited.invitation, self.environment.now()),
            "token": invited.token, "url": invited.url,
        })
    }

    fn audit(&self, invitation: &Invitation, action: &'static str, actor: &str, origin: &str) -> AuditRow {
        let what = json!({
            "role": invitation.role, "note": invitation.note, "expiresAt": invitation.expires_at,
        });
        let author = Author::named(invitation.tenant, actor, origin);
        Change::new(action, &invitation.id)
            .after(&what)
            .row(&*self.environment, &author)
    }
}

/// What is kept of a token that is shown once.
pub(crate) fn token_hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn not_open() -> AppError {
    AppError::new(
        ErrorCode::NotFound,
        "there is no such invitation, or it is not open any more",
    )
}

fn view(invitation: &Invitation, now: Timestamp) -> Value {
    let status = if invitation.accepted_at.is_some() {
        "accepted"
    } else if invitation.revoked_at.is_some() {
        "revoked"
    } else if invitation.is_open(now) {
        "open"
    } else {
        "expired"
    };
    json!({
        "id": invitation.id, "role": invitation.role, "note": invitation.note, "status": status,
        "createdBy": invitation.created_by, "createdAt": invitation.created_at,
        "expiresAt": invitation.expires_at, "acceptedAt": invitation.accepted_at,
        "acceptedBy": invitation.accepted_by, "revokedAt": invitation.revoked_at,
    })
}
