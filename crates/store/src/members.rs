//! Who belongs to which workspace, with the SQL that both databases share.

use async_trait::async_trait;
use turnpike_core::access::Role;
use turnpike_core::ids::TenantId;
use turnpike_core::time::Timestamp;

use crate::audit_log::audit_row;
use crate::directory::{TENANT_WIDTH, tenant, tenant_columns};
use crate::error::StoreError;
use crate::invitations::take_back;
use crate::records::{AuditRow, Member, Tenant};
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};

const COLUMNS: &str = "m.tenant_id, m.subject, m.role, m.created_at";

/// What becomes of a person's membership.
#[derive(Clone, Debug)]
pub struct MemberChange {
    /// The workspace.
    pub tenant: TenantId,
    /// The identity provider's subject.
    pub subject: String,
    /// The role that the person has; `None` = none yet.
    pub from: Option<Role>,
    /// The role that the person gets; `None` = the membership ends.
    pub to: Option<Role>,
    /// When.
    pub at: Timestamp,
}

impl MemberChange {
    /// How records name the person whose open invitations end with the change: who is no owner any more, or somebody
    /// else than before, lets nobody in on the strength of what they were.
    pub(crate) fn invites_no_more(&self) -> Option<String> {
        let loses = self.from.is_some() && self.from != self.to && self.to != Some(Role::Owner);
        loses.then(|| format!("member:{}", self.subject))
    }
}

/// Memberships. Every change writes its audit row in the same transaction.
#[async_trait]
pub trait Members: Send + Sync {
    /// Changes a membership; `false` = it is not as the change says, or a workspace would lose its last owner. With
    /// the membership, or with a role that becomes another than owner, the person's open invitations end.
    async fn change_member(&self, change: &MemberChange, audit: &AuditRow) -> Result<bool, StoreError>;
    /// A workspace's members, by subject.
    async fn list_members(&self, tenant: TenantId) -> Result<Vec<Member>, StoreError>;
    /// A person's memberships with their workspaces, by the workspace's name.
    async fn list_memberships(&self, subject: &str) -> Result<Vec<(Member, Tenant)>, StoreError>;
}

fn member(row: &Row, at: usize) -> Result<Member, StoreError> {
    Ok(Member {
        tenant: TenantId(row.uuid(at)?),
        subject: row.text(at + 1)?.to_owned(),
        role: Role::from_code(row.small(at + 2)?).ok_or_else(|| StoreError::Corrupt("role".to_owned()))?,
        created_at: rows::instant(row, at + 3)?,
    })
}

/// The statement of a change. An owner's role is taken only while there is another owner; the transaction holds the
/// workspace's row, so that two owners cannot remove each other at once.
fn statement(change: &MemberChange) -> Statement {
    const OF_PERSON: &str = "bucket = $1 AND tenant_id = $2 AND subject = $3";
    let owner = Role::Owner.code();
    let keeps_owner = format!(
        "EXISTS (SELECT 1 FROM members o WHERE o.bucket = $1 AND o.tenant_id = $2 AND o.role = {owner} AND o.subject <> $3)"
    );
    let mut params = tenant_params(change.tenant);
    params.push(Param::from(&*change.subject));
    let sql = match (change.from, change.to) {
        (None, Some(to)) => {
            params.extend(params![to.code(), change.at.millis()]);
            "INSERT INTO members (bucket, tenant_id, subject, role, created_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (bucket, tenant_id, subject) DO NOTHING"
                .to_owned()
        }
        (Some(from), Some(to)) => {
            params.extend(params![to.code(), from.code()]);
            let kept = if from == Role::Owner && to != Role::Owner {
                format!(" AND {keeps_owner}")
            } else {
                String::new()
            };
            format!("UPDATE members SET role = $4 WHERE {OF_PERSON} AND role = $5{kept}")
        }
        (from, None) => {
            params.push(Param::from(from.map(Role::code)));
            let kept = if from == Some(Role::Owner) {
                format!(" AND {keeps_owner}")
            } else {
                String::new()
            };
            format!("DELETE FROM members WHERE {OF_PERSON} AND role = $4{kept}")
        }
    };
    Statement::new(sql, params)
}

#[async_trait]
impl<S: Sql> Members for S {
    async fn change_member(&self, change: &MemberChange, audit: &AuditRow) -> Result<bool, StoreError> {
        let mut statements = vec![statement(change).required()];
        if let Some(made_by) = change.invites_no_more() {
            statements.push(take_back(change.tenant, &made_by, change.at));
        }
        statements.push(audit_row(audit));
        Ok(self.write_beside(statements).await?.is_some())
    }

    async fn list_members(&self, tenant: TenantId) -> Result<Vec<Member>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM members m WHERE m.bucket = $1 AND m.tenant_id = $2 ORDER BY m.subject"
        );
        let rows = self.query(&sql, tenant_params(tenant)).await?;
        rows.iter().map(|row| member(row, 0)).collect()
    }

    async fn list_memberships(&self, subject: &str) -> Result<Vec<(Member, Tenant)>, StoreError> {
        let sql = format!(
            "SELECT {}, {COLUMNS} FROM members m
             JOIN tenants t ON t.bucket = m.bucket AND t.tenant_id = m.tenant_id
             WHERE m.subject = $1 ORDER BY t.name, t.tenant_id",
            tenant_columns("t")
        );
        let rows = self.query(&sql, params![subject]).await?;
        let both = |row: &Row| Ok((member(row, TENANT_WIDTH)?, tenant(row)?));
        rows.iter().map(both).collect()
    }
}
