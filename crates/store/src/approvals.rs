//! Approvals, read with the SQL that both databases share. They are written by batches alone, and removed a while after
//! they came to nothing.

use async_trait::async_trait;
use turnpike_core::ids::{ApprovalId, ExternalUserId, TenantId};
use turnpike_core::ledger::approval::{Approval, ApprovalIndex, ApprovalState};
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use crate::directory::pruned;
use crate::error::StoreError;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};

/// Which approvals a list shows.
#[derive(Clone, Debug)]
pub struct ApprovalFilter {
    /// Those that stand so at `now`.
    pub state: Option<ApprovalState>,
    /// Those of one end user.
    pub owner: Option<ExternalUserId>,
    /// Those behind this one.
    pub before: Option<ApprovalId>,
    /// The instant that decides what has expired.
    pub now: Timestamp,
    /// At most so many.
    pub limit: u32,
}

/// Wishes that owners and admins decide about.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// An approval.
    async fn find_approval(
        &self,
        tenant: TenantId,
        approval: ApprovalId,
    ) -> Result<Option<Approval>, StoreError>;
    /// The newest approval about a subject.
    async fn find_latest_approval(
        &self,
        tenant: TenantId,
        subject: &str,
    ) -> Result<Option<Approval>, StoreError>;
    /// The tenant whose approval it is.
    async fn find_approval_tenant(&self, approval: ApprovalId) -> Result<Option<TenantId>, StoreError>;
    /// A tenant's approvals, newest first.
    async fn list_approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
    ) -> Result<Vec<Approval>, StoreError>;
    /// Removes approvals that expired before `before` and came to nothing; says how many.
    async fn prune_approvals(&self, before: Timestamp) -> Result<u64, StoreError>;
}

/// A tenant's approvals by id with what they are found by, as [`rows::document`] and [`index`] read them.
pub(crate) fn approvals_in_order(tenant: TenantId) -> Statement {
    let sql = "SELECT document, state, is_open, owner, subject, expires_at FROM approvals
               WHERE bucket = $1 AND tenant_id = $2 ORDER BY approval_id";
    Statement::new(sql, tenant_params(tenant))
}

/// What stands beside an approval of [`approvals_in_order`].
pub(crate) fn index(row: &Row) -> Result<ApprovalIndex<'_>, StoreError> {
    Ok(ApprovalIndex {
        state: row.small(1)?,
        open: row.small(2)? != 0,
        owner: row.text(3)?,
        subject: row.text(4)?.to_owned(),
        expires_at: rows::instant(row, 5)?,
    })
}

/// What a row must be to stand so at `now`, which is added to `params` where it matters.
fn standing(state: ApprovalState, now: Timestamp, params: &mut Vec<Param>) -> String {
    let code = state.code();
    let mut at = || {
        params.push(Param::from(now.millis()));
        params.len()
    };
    match state {
        ApprovalState::Pending | ApprovalState::Approved => {
            format!("state = {code} AND (is_open = 0 OR expires_at > ${})", at())
        }
        ApprovalState::Expired => format!("(state = {code} OR (is_open = 1 AND expires_at <= ${}))", at()),
        ApprovalState::Denied | ApprovalState::Canceled | ApprovalState::Consumed => {
            format!("state = {code}")
        }
    }
}

#[async_trait]
impl<S: Sql> Approvals for S {
    async fn find_approval(
        &self,
        tenant: TenantId,
        approval: ApprovalId,
    ) -> Result<Option<Approval>, StoreError> {
        let sql = "SELECT document FROM approvals WHERE bucket = $1 AND tenant_id = $2 AND approval_id = $3";
        let mut params = tenant_params(tenant);
        params.push(Param::from(approval.0));
        self.query(sql, params)
            .await?
            .first()
            .map(|row| rows::document(row, 0))
            .transpose()
    }

    async fn find_latest_approval(
        &self,
        tenant: TenantId,
        subject: &str,
    ) -> Result<Option<Approval>, StoreError> {
        let sql = "SELECT document FROM approvals WHERE bucket = $1 AND tenant_id = $2 AND subject = $3
                   ORDER BY approval_id DESC LIMIT 1";
        let mut params = tenant_params(tenant);
        params.push(Param::from(subject));
        self.query(sql, params)
            .await?
            .first()
            .map(|row| rows::document(row, 0))
            .transpose()
    }

    async fn find_approval_tenant(&self, approval: ApprovalId) -> Result<Option<TenantId>, StoreError> {
        let sql = "SELECT tenant_id FROM approvals WHERE approval_id = $1";
        let rows = self.query(sql, params![approval.0]).await?;
        rows.first().map(|row| row.uuid(0).map(TenantId)).transpose()
    }

    async fn list_approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
    ) -> Result<Vec<Approval>, StoreError> {
        let mut sql =
            "SELECT document FROM approvals WHERE bucket = $1 AND tenant_id = $2 AND approval_id < $3"
                .to_owned();
        let mut params = tenant_params(tenant);
        params.push(Param::from(filter.before.map_or(Uuid::max(), |id| id.0)));
        params.push(Param::from(i64::from(filter.limit)));
        if let Some(owner) = &filter.owner {
            params.push(Param::from(owner.as_str()));
            sql.extend([" AND owner = $", &params.len().to_string()]);
        }
        if let Some(state) = filter.state {
            sql.extend([" AND ", &standing(state, filter.now, &mut params)]);
        }
        sql.push_str(" ORDER BY approval_id DESC LIMIT $4");
        self.query(&sql, params)
            .await?
            .iter()
            .map(|row| rows::document(row, 0))
            .collect()
    }

    async fn prune_approvals(&self, before: Timestamp) -> Result<u64, StoreError> {
        let sql = "DELETE FROM approvals WHERE (bucket, tenant_id, approval_id) IN
                       (SELECT bucket, tenant_id, approval_id FROM approvals
                        WHERE state IN (0, 2, 3, 4) AND expires_at < $1 ORDER BY expires_at LIMIT $2)";
        pruned(self, sql, before).await
    }
}
