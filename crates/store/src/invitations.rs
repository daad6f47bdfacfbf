//! Invitations into a workspace, with the SQL that both databases share.
//!
//! A membership is made in the transaction that marks the invitation as accepted, so that an invitation is taken once.

use async_trait::async_trait;
use turnpike_core::access::Role;
use turnpike_core::ids::TenantId;
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use crate::audit_log::audit_row;
use crate::error::StoreError;
use crate::records::AuditRow;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};

const COLUMNS: &str = "tenant_id, invitation_id, role, note, hash, created_by, created_at, expires_at, \
     accepted_at, accepted_by, revoked_at";
/// Holds while nobody has taken the invitation or taken it back: `$4` is the instant.
const OPEN: &str = "accepted_at IS NULL AND revoked_at IS NULL AND expires_at > $4";

/// An invitation into a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// The workspace.
    pub tenant: TenantId,
    /// Its id.
    pub id: Uuid,
    /// What who accepts may do.
    pub role: Role,
    /// Whom it is for, in the words of who made it.
    pub note: Option<String>,
    /// SHA-256 of the token in its link.
    pub hash: [u8; 32],
    /// Who made it.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
    /// Until when it can be accepted.
    pub expires_at: Timestamp,
    /// When it was accepted.
    pub accepted_at: Option<Timestamp>,
    /// The subject that accepted it.
    pub accepted_by: Option<String>,
    /// When it was taken back.
    pub revoked_at: Option<Timestamp>,
}

impl Invitation {
    /// Whether it can be accepted at `now`.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.accepted_at.is_none() && self.revoked_at.is_none() && self.expires_at > now
    }
}

/// Somebody accepts an invitation.
#[derive(Clone, Debug)]
pub struct Acceptance {
    /// The invitation.
    pub invitation: Invitation,
    /// Who.
    pub subject: String,
    /// When.
    pub at: Timestamp,
    /// The audit row.
    pub audit: AuditRow,
}

/// What became of an acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The person is a member now.
    Joined,
    /// The person was one before; nothing changed.
    AlreadyMember,
    /// The invitation was taken, taken back or has expired; nothing changed.
    NotOpen,
}

/// Invitations. Every change writes its audit row in the same transaction.
#[async_trait]
pub trait Invitations: Send + Sync {
    /// Adds an invitation; `false` = the workspace has `most` open ones already, or there is no such workspace.
    async fn insert_invitation(
        &self,
        invitation: &Invitation,
        most: u32,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// Adds an invitation while nobody signs in here yet, and takes back those that `invitation.created_by` made in the
    /// workspace before; `false` = somebody does, or there is no such workspace.
    async fn replace_first_invitation(
        &self,
        invitation: &Invitation,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// An invitation.
    async fn find_invitation(&self, tenant: TenantId, id: Uuid) -> Result<Option<Invitation>, StoreError>;
    /// The invitation whose token hashes to `hash`.
    async fn find_invitation_by_hash(&self, hash: &[u8; 32]) -> Result<Option<Invitation>, StoreError>;
    /// A workspace's invitations, newest first, those that are older than `before`.
    async fn list_invitations(
        &self,
        tenant: TenantId,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Invitation>, StoreError>;
    /// Takes an invitation back; `false` = there is none that is open.
    async fn revoke_invitation(
        &self,
        tenant: TenantId,
        id: Uuid,
        at: Timestamp,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// Makes a membership of an invitation.
    async fn accept_invitation(&self, acceptance: &Acceptance) -> Result<Accepted, StoreError>;
}

fn invitation(row: &Row) -> Result<Invitation, StoreError> {
    Ok(Invitation {
        tenant: TenantId(row.uuid(0)?),
        id: row.uuid(1)?,
        role: Role::from_code(row.small(2)?).ok_or_else(|| StoreError::Corrupt("role".to_owned()))?,
        note: row.opt_text(3)?.map(str::to_owned),
        hash: row.hash(4)?,
        created_by: row.text(5)?.to_owned(),
        created_at: rows::instant(row, 6)?,
        expires_at: rows::instant(row, 7)?,
        accepted_at: rows::opt_instant(row, 8)?,
        accepted_by: row.opt_text(9)?.map(str::to_owned),
        revoked_at: rows::opt_instant(row, 10)?,
    })
}

fn id_params(tenant: TenantId, id: Uuid) -> Vec<Param> {
    let mut params = tenant_params(tenant);
    params.push(Param::from(id));
    params
}

/// Adds the rows of `invitation` while `condition` holds of the workspace `t`.
fn insert(invitation: &Invitation, condition: &str) -> [Statement; 2] {
    let mut params = id_params(invitation.tenant, invitation.id);
    params.extend(params![
        invitation.created_at.millis(),
        invitation.role.code(),
        invitation.note.as_deref(),
        &invitation.hash[..],
        &*invitation.created_by,
        invitation.expires_at.millis(),
    ]);
    let row = Statement::new(
        format!(
            "INSERT INTO invitations (bucket, tenant_id, invitation_id, created_at, role, note, hash, created_by,
                 expires_at)
             SELECT t.bucket, t.tenant_id, $3, $4, $5, $6, $7, $8, $9 FROM tenants t
             WHERE t.bucket = $1 AND t.tenant_id = $2 AND {condition}"
        ),
        params,
    );
    let lookup = Statement::new(
        "INSERT INTO invitation_hashes (hash, tenant_id, invitation_id) VALUES ($1, $2, $3)",
        params![&invitation.hash[..], invitation.tenant.0, invitation.id],
    );
    [row.required(), lookup]
}

/// Takes back what `made_by` has open in a workspace.
pub(crate) fn take_back(tenant: TenantId, made_by: &str, at: Timestamp) -> Statement {
    let mut params = tenant_params(tenant);
    params.extend(params![made_by, at.millis()]);
    Statement::new(
        format!(
            "UPDATE invitations SET revoked_at = $4
             WHERE bucket = $1 AND tenant_id = $2 AND created_by = $3 AND {OPEN}"
        ),
        params,
    )
}

/// Makes a membership of an invitation: all of it or nothing.
pub(crate) fn accept(acceptance: &Acceptance) -> [Statement; 3] {
    let invitation = &acceptance.invitation;
    let mut params = id_params(invitation.tenant, invitation.id);
    params.extend(params![acceptance.at.millis(), &*acceptance.subject]);
    let mark = Statement::new(
        format!(
            "UPDATE invitations SET accepted_at = $4, accepted_by = $5
             WHERE bucket = $1 AND tenant_id = $2 AND invitation_id = $3 AND {OPEN}"
        ),
        params,
    );
    let mut params = tenant_params(invitation.tenant);
    params.extend(params![
        &*acceptance.subject,
        invitation.role.code(),
        acceptance.at.millis()
    ]);
    let join = Statement::new(
        "INSERT INTO members (bucket, tenant_id, subject, role, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (bucket, tenant_id, subject) DO NOTHING",
        params,
    );
    [mark.required(), join.required(), audit_row(&acceptance.audit)]
}

#[async_trait]
impl<S: Sql> Invitations for S {
    async fn insert_invitation(
        &self,
        invitation: &Invitation,
        most: u32,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        // The audit row beside them makes two of these count one after the other.
        let has_room = format!(
            "(SELECT COUNT(*) FROM invitations WHERE bucket = $1 AND tenant_id = $2 AND {OPEN}) < {most}"
        );
        let mut statements = insert(invitation, &has_room).to_vec();
        statements.push(audit_row(audit));
        Ok(self.write_beside(statements).await?.is_some())
    }

    async fn replace_first_invitation(
        &self,
        invitation: &Invitation,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let made_by = &*invitation.created_by;
        let mut statements = vec![take_back(invitation.tenant, made_by, invitation.created_at)];
        statements.extend(insert(invitation, "NOT EXISTS (SELECT 1 FROM people)"));
        statements.push(audit_row(audit));
        Ok(self.write_beside(statements).await?.is_some())
    }

    async fn find_invitation(&self, tenant: TenantId, id: Uuid) -> Result<Option<Invitation>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM invitations WHERE bucket = $1 AND tenant_id = $2 AND invitation_id = $3"
        );
        let found = self.query(&sql, id_params(tenant, id)).await?;
        found.first().map(invitation).transpose()
    }

    async fn find_invitation_by_hash(&self, hash: &[u8; 32]) -> Result<Option<Invitation>, StoreError> {
        let lookup = "SELECT tenant_id, invitation_id FROM invitation_hashes WHERE hash = $1";
        let found = self.query(lookup, params![&hash[..]]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        self.find_invitation(TenantId(row.uuid(0)?), row.uuid(1)?).await
    }

    async fn list_invitations(
        &self,
        tenant: TenantId,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Invitation>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM invitations WHERE bucket = $1 AND tenant_id = $2 AND invitation_id < $3
             ORDER BY invitation_id DESC LIMIT $4"
        );
        let mut params = id_params(tenant, before.unwrap_or(Uuid::max()));
        params.push(Param::from(i64::from(limit)));
        self.query(&sql, params).await?.iter().map(invitation).collect()
    }

    async fn revoke_invitation(
        &self,
        tenant: TenantId,
        id: Uuid,
        at: Timestamp,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = id_params(tenant, id);
        params.push(Param::from(at.millis()));
        let revoke = Statement::new(
            format!(
                "UPDATE invitations SET revoked_at = $4
                 WHERE bucket = $1 AND tenant_id = $2 AND invitation_id = $3 AND {OPEN}"
            ),
            params,
        );
        let statements = vec![revoke.required(), audit_row(audit)];
        Ok(self.write_beside(statements).await?.is_some())
    }

    async fn accept_invitation(&self, acceptance: &Acceptance) -> Result<Accepted, StoreError> {
        if self.write_beside(accept(acceptance).to_vec()).await?.is_some() {
            return Ok(Accepted::Joined);
        }
        let invitation = &acceptance.invitation;
        let sql = "SELECT 1 FROM members WHERE bucket = $1 AND tenant_id = $2 AND subject = $3";
        let mut params = tenant_params(invitation.tenant);
        params.push(Param::from(&*acceptance.subject));
        let is_member = !self.query(sql, params).await?.is_empty();
        let found = self.find_invitation(invitation.tenant, invitation.id).await?;
        let open = found.is_some_and(|found| found.is_open(acceptance.at));
        Ok(if is_member && open {
            Accepted::AlreadyMember
        } else {
            Accepted::NotOpen
        })
    }
}
