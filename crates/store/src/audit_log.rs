//! The audit log: appended by whatever changes something, in the same transaction, and read in pages.
//!
//! A transaction that appends holds the workspace's row from its beginning, as batches do: the log's head stands
//! there, and so all administrative changes of one workspace happen one after the other.

use async_trait::async_trait;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::audit_log::AuditLine;
use turnpike_core::ledger::transfer::GENESIS;
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::records::AuditRow;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};

const COLUMNS: &str = "seq, id, at, actor, action, target, before_json, after_json, origin, hash";

/// A row of the log as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Position in the workspace's chain, from 1; 0 and below are from before the log was chained.
    pub seq: i64,
    /// Its id.
    pub id: Uuid,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// On which thing.
    pub target: String,
    /// The thing before, as JSON.
    pub before: Option<String>,
    /// The thing afterwards, as JSON.
    pub after: Option<String>,
    /// From where.
    pub origin: String,
    /// Chain hash up to and including this row; empty before the chain.
    pub hash: Vec<u8>,
}

impl AuditRecord {
    /// As it is hashed.
    pub fn line(&self, tenant: TenantId) -> AuditLine<'_> {
        AuditLine {
            seq: self.seq,
            id: self.id,
            tenant,
            at: self.at,
            actor: &self.actor,
            action: &self.action,
            target: &self.target,
            before: self.before.as_deref(),
            after: self.after.as_deref(),
            origin: &self.origin,
        }
    }
}

/// Which rows of the log are wanted.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only rows before this position.
    pub before_seq: Option<i64>,
    /// Only actions that begin with one of these; empty = all.
    pub actions: Vec<String>,
    /// At most so many.
    pub limit: u32,
}

/// What was changed by whom.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Rows of the log, newest first.
    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
    ) -> Result<Vec<AuditRecord>, StoreError>;
    /// Appends a row that stands for no change of its own workspace, such as that of somebody who is a member there.
    async fn append_audit(&self, audit: &AuditRow) -> Result<(), StoreError>;
}

pub(crate) fn record(row: &Row) -> Result<AuditRecord, StoreError> {
    Ok(AuditRecord {
        seq: row.int(0)?,
        id: row.uuid(1)?,
        at: rows::instant(row, 2)?,
        actor: row.text(3)?.to_owned(),
        action: row.text(4)?.to_owned(),
        target: row.text(5)?.to_owned(),
        before: row.opt_text(6)?.map(str::to_owned),
        after: row.opt_text(7)?.map(str::to_owned),
        origin: row.text(8)?.to_owned(),
        hash: row.opt_bytes(9)?.unwrap_or_default().to_vec(),
    })
}

/// A workspace's log, oldest first, as [`record`] reads it.
pub(crate) fn audit_in_order(tenant: TenantId) -> Statement {
    let sql = format!("SELECT {COLUMNS} FROM audit_log WHERE bucket = $1 AND tenant_id = $2 ORDER BY seq");
    Statement::new(sql, tenant_params(tenant))
}

#[async_trait]
impl<S: Sql> AuditLog for S {
    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let mut params = tenant_params(tenant);
        params.extend(params![
            filter.before_seq.unwrap_or(i64::MAX),
            i64::from(filter.limit)
        ]);
        let mut narrowed = Vec::new();
        for action in &filter.actions {
            params.push(Param::from(action.as_str()));
            let at = params.len();
            narrowed.push(format!("SUBSTR(action, 1, LENGTH(${at})) = ${at}"));
        }
        let narrowed = if narrowed.is_empty() {
            String::new()
        } else {
            format!("AND ({})", narrowed.join(" OR "))
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM audit_log WHERE bucket = $1 AND tenant_id = $2 AND seq < $3 {narrowed}
             ORDER BY seq DESC LIMIT $4"
        );
        self.query(&sql, params).await?.iter().map(record).collect()
    }

    async fn append_audit(&self, audit: &AuditRow) -> Result<(), StoreError> {
        self.write_beside(vec![audit_row(audit)]).await.map(drop)
    }
}

/// The statement that appends `audit`.
pub(crate) fn audit_row(audit: &AuditRow) -> Statement {
    Statement {
        audit: Some(Box::new(audit.clone())),
        ..Statement::new("", Vec::new())
    }
}

/// Whose log `statements` append to.
pub(crate) fn audited(statements: &[Statement]) -> Result<Option<TenantId>, StoreError> {
    let mut tenants = statements
        .iter()
        .filter_map(|statement| Some(statement.audit.as_ref()?.tenant));
    let first = tenants.next();
    if tenants.any(|other| Some(other) != first) {
        return Err(StoreError::Defect("a change is of two workspaces".to_owned()));
    }
    Ok(first)
}

/// Reads the head of a workspace's log; `lock` keeps its row.
pub(crate) fn head_of(tenant: TenantId, lock: &str) -> Statement {
    let sql =
        format!("SELECT audit_seq, audit_chain FROM tenants WHERE bucket = $1 AND tenant_id = $2 {lock}");
    Statement::new(sql, tenant_params(tenant))
}

/// The same statements with the rows of the log behind `head`, and the head moved at the end. A workspace that these
/// statements make has no head yet.
pub(crate) fn chained(
    statements: &[Statement],
    tenant: TenantId,
    head: Option<&Row>,
) -> Result<Vec<Statement>, StoreError> {
    let (mut seq, mut hash) = match head {
        Some(row) => (row.int(0)?, row.hash(1)?),
        None => (0, GENESIS),
    };
    let mut chained = Vec::with_capacity(statements.len().saturating_add(1));
    for statement in statements {
        let Some(audit) = &statement.audit else {
            chained.push(statement.clone());
            continue;
        };
        seq = seq.saturating_add(1);
        hash = audit.line(seq).chained(&hash);
        let mut params = tenant_params(tenant);
        params.extend(params![
            audit.id,
            audit.at.millis(),
            &*audit.actor,
            audit.action,
            &*audit.target,
            audit.before.as_deref(),
            audit.after.as_deref(),
            &*audit.origin,
            seq,
            &hash[..],
        ]);
        chained.push(Statement::new(
            "INSERT INTO audit_log (bucket, tenant_id, id, at, actor, action, target, before_json, after_json, origin,
                 seq, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            params,
        ));
    }
    let mut params = tenant_params(tenant);
    params.extend(params![seq, &hash[..]]);
    chained.push(Statement::new(
        "UPDATE tenants SET audit_seq = $3, audit_chain = $4 WHERE bucket = $1 AND tenant_id = $2",
        params,
    ));
    Ok(chained)
}
