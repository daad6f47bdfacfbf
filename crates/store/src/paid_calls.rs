//! Paid calls, read with the SQL that both databases share. They are written by batches alone.

use std::sync::Arc;

use async_trait::async_trait;
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::TenantStatus;
use turnpike_core::ledger::paid_call::{PAYMENT_SCOPE, PaidCall, PaidCallIndex, PaidCallState};
use turnpike_core::money::CreditsPerDollar;
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use crate::directory::insert_tenant;
use crate::error::StoreError;
use crate::records::{Tenant, TenantSettings};
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};

/// Which open paid calls a sweep looks at.
#[derive(Clone, Copy, Debug)]
pub struct DuePaidCalls {
    /// Whose `due_at` has passed by then.
    pub due_by: Timestamp,
    /// Those whose answer is stored, or those that have none yet.
    pub answered: bool,
    /// Also those that another process than this left, whatever their `due_at`.
    pub not_of_instance: Option<Uuid>,
    /// Also those of this process, whatever their `due_at`.
    pub of_instance: Option<Uuid>,
    /// At most so many, those due first.
    pub limit: u32,
}

/// Calls that wallets pay for by themselves.
#[async_trait]
pub trait PaidCalls: Send + Sync {
    /// Makes a house tenant, unless it is there.
    async fn ensure_house_tenant(
        &self,
        tenant: TenantId,
        name: &str,
        at: Timestamp,
    ) -> Result<(), StoreError>;
    /// The paid call of a request, in whichever house tenant it is; the newest, should there be several.
    async fn find_paid_call(&self, request: RequestId) -> Result<Option<(TenantId, PaidCall)>, StoreError>;
    /// The request that a payment was claimed for.
    async fn find_claimed_payment(
        &self,
        tenant: TenantId,
        key: &str,
    ) -> Result<Option<RequestId>, StoreError>;
    /// Both at once: the paid call of a request, and the request that a payment was claimed for.
    async fn find_paid_call_and_claim(
        &self,
        request: RequestId,
        tenant: TenantId,
        key: &str,
    ) -> Result<(Option<(TenantId, PaidCall)>, Option<RequestId>), StoreError>;
    /// Open paid calls of all house tenants that somebody has to go on with.
    async fn list_due_paid_calls(&self, due: DuePaidCalls) -> Result<Vec<(TenantId, PaidCall)>, StoreError>;
    /// How many paid calls of all house tenants are answered and neither paid nor given up.
    async fn count_open_settlements(&self) -> Result<u64, StoreError>;
    /// Paid calls of all house tenants, begun since `since`, that failed without a settlement, the newest first.
    async fn list_failed_paid_calls(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, PaidCall)>, StoreError>;
}

/// A house tenant as it begins.
pub(crate) fn house_tenant(id: TenantId, name: &str, at: Timestamp) -> Tenant {
    Tenant {
        id,
        name: name.to_owned(),
        status: TenantStatus::Active,
        credits_per_dollar: CreditsPerDollar::default(),
        settings: TenantSettings::default(),
        created_at: at,
    }
}

/// What [`paid_call`] reads, of [`PAID_CALL_TABLES`].
pub(crate) const PAID_CALL_COLUMNS: &str = "p.state, p.due_at, p.instance, t.payment_key, p.provider, p.base_cost, \
     p.loss, p.created_at, p.ended_at, p.progress, t.document, t.signed";
/// How many they are.
pub(crate) const PAID_CALL_WIDTH: usize = 12;
/// Which of them is what the claim wrote.
pub(crate) const TERMS_COLUMN: usize = 10;
/// And which what was signed.
pub(crate) const SIGNED_COLUMN: usize = 11;
/// Which calls are answered and not over.
const ANSWERED: &str = "p.state < 4 AND p.state >= 2";
/// What changes of paid calls and what does not.
pub(crate) const PAID_CALL_TABLES: &str = "paid_calls p JOIN paid_call_terms t \
     ON t.request_id = p.request_id AND t.tenant_id = p.tenant_id AND t.bucket = p.bucket";

/// Reads [`PAID_CALL_COLUMNS`] from column `at` on.
pub(crate) fn paid_call(row: &Row, at: usize) -> Result<PaidCall, StoreError> {
    let signed = row.opt_text(at + SIGNED_COLUMN)?.map(Arc::from);
    Ok(PaidCall::from_parts(
        rows::document(row, at + TERMS_COLUMN)?,
        rows::document(row, at + 9)?,
        &index(row, at)?,
        signed,
    ))
}

/// The columns of a paid call as they are stored, of [`PAID_CALL_COLUMNS`] from column `at` on.
pub(crate) fn index(row: &Row, at: usize) -> Result<PaidCallIndex<'_>, StoreError> {
    let state = PaidCallState::from_code(row.small(at)?);
    Ok(PaidCallIndex {
        state: state.ok_or_else(|| StoreError::Corrupt("state of a paid call".to_owned()))?,
        due_at: rows::instant(row, at + 1)?,
        instance: row.uuid(at + 2)?,
        payment_key: row.text(at + 3)?,
        provider: row.opt_text(at + 4)?,
        base_cost: rows::micros(row, at + 5)?,
        loss: rows::micros(row, at + 6)?,
        created_at: rows::instant(row, at + 7)?,
        ended_at: rows::opt_instant(row, at + 8)?,
    })
}

/// A tenant's paid calls by id, as [`paid_call`] and [`index`] read them unless the terms are missing, and in the columns
/// after them the request that the payment was claimed for and the call's own.
pub(crate) fn paid_calls_in_order(tenant: TenantId) -> Statement {
    let sql = format!(
        "SELECT {PAID_CALL_COLUMNS}, c.subject, p.request_id
         FROM paid_calls p LEFT JOIN paid_call_terms t
             ON t.request_id = p.request_id AND t.tenant_id = p.tenant_id AND t.bucket = p.bucket
         LEFT JOIN claims c ON c.bucket = p.bucket AND c.tenant_id = p.tenant_id
             AND c.scope = '{PAYMENT_SCOPE}' AND c.key = t.payment_key
         WHERE p.bucket = $1 AND p.tenant_id = $2 ORDER BY p.request_id"
    );
    Statement::new(sql, tenant_params(tenant))
}

fn found(row: &Row) -> Result<(TenantId, PaidCall), StoreError> {
    Ok((TenantId(row.uuid(0)?), paid_call(row, 1)?))
}

#[async_trait]
impl<S: Sql> PaidCalls for S {
    async fn ensure_house_tenant(
        &self,
        tenant: TenantId,
        name: &str,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut insert = insert_tenant(&house_tenant(tenant, name, at))?;
        insert
            .sql
            .to_mut()
            .push_str(" ON CONFLICT (bucket, tenant_id) DO NOTHING");
        self.write(vec![insert]).await.map(drop)
    }

    async fn find_paid_call(&self, request: RequestId) -> Result<Option<(TenantId, PaidCall)>, StoreError> {
        let sql = format!(
            "SELECT p.tenant_id, {PAID_CALL_COLUMNS} FROM {PAID_CALL_TABLES} WHERE p.request_id = $1
             ORDER BY p.created_at DESC, p.tenant_id DESC LIMIT 1"
        );
        let rows = self.query(&sql, params![request.0]).await?;
        rows.first().map(found).transpose()
    }

    async fn find_claimed_payment(
        &self,
        tenant: TenantId,
        key: &str,
    ) -> Result<Option<RequestId>, StoreError> {
        // PostgreSQL refuses to compare a NUL with anything.
        if key.contains('\0') {
            return Ok(None);
        }
        let sql =
            "SELECT subject FROM claims WHERE bucket = $1 AND tenant_id = $2 AND scope = $3 AND key = $4";
        let mut params = tenant_params(tenant);
        params.extend(params![PAYMENT_SCOPE, key]);
        let rows = self.query(sql, params).await?;
        rows.first().map(|row| row.uuid(0).map(RequestId)).transpose()
    }

    async fn find_paid_call_and_claim(
        &self,
        request: RequestId,
        tenant: TenantId,
        key: &str,
    ) -> Result<(Option<(TenantId, PaidCall)>, Option<RequestId>), StoreError> {
        if key.contains('\0') {
            return Ok((self.find_paid_call(request).await?, None));
        }
        let sql = format!(
            "SELECT p.tenant_id, {PAID_CALL_COLUMNS}, c.subject
             FROM (SELECT 1 AS one) AS always LEFT JOIN ({PAID_CALL_TABLES}) ON p.request_id = $1
                 LEFT JOIN claims c ON c.bucket = $2 AND c.tenant_id = $3 AND c.scope = $4 AND c.key = $5
             ORDER BY p.created_at DESC, p.tenant_id DESC LIMIT 1"
        );
        let params = params![request.0, tenant.bucket(), tenant.0, PAYMENT_SCOPE, key];
        let rows = self.query(&sql, params).await?;
        let Some(row) = rows.first() else {
            return Ok((None, None));
        };
        let call = row.opt_uuid(0)?.map(|_| found(row)).transpose()?;
        Ok((call, row.opt_uuid(PAID_CALL_WIDTH + 1)?.map(RequestId)))
    }

    async fn list_due_paid_calls(&self, due: DuePaidCalls) -> Result<Vec<(TenantId, PaidCall)>, StoreError> {
        let mut params = params![due.due_by.millis(), i64::from(due.limit)];
        let mut or = String::new();
        for (instance, sign) in [(due.not_of_instance, "<>"), (due.of_instance, "=")] {
            if let Some(instance) = instance {
                params.push(Param::from(instance));
                let number = params.len().to_string();
                or.extend([" OR p.instance ", sign, " $", &number]);
            }
        }
        let states = if due.answered {
            ANSWERED
        } else {
            // Said as the index says it, which is of open calls.
            "p.state < 4 AND p.state < 2"
        };
        let sql = format!(
            "SELECT p.tenant_id, {PAID_CALL_COLUMNS} FROM {PAID_CALL_TABLES}
             WHERE {states} AND (p.due_at <= $1{or}) ORDER BY p.due_at, p.tenant_id, p.request_id LIMIT $2"
        );
        // A row that cannot be read must not keep the others from being found; the audit tells of it.
        let rows = self.query(&sql, params).await?;
        Ok(rows.iter().filter_map(|row| found(row).ok()).collect())
    }

    async fn count_open_settlements(&self) -> Result<u64, StoreError> {
        let sql = format!("SELECT COUNT(*) FROM paid_calls p WHERE {ANSWERED}");
        let rows = self.query(&sql, Vec::new()).await?;
        let count = rows.first().map(|row| row.int(0)).transpose()?;
        Ok(count
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or_default())
    }

    async fn list_failed_paid_calls(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, PaidCall)>, StoreError> {
        let sql = format!(
            "SELECT p.tenant_id, {PAID_CALL_COLUMNS} FROM {PAID_CALL_TABLES}
             WHERE p.created_at >= $1 AND p.state = $2 ORDER BY p.created_at DESC, p.request_id LIMIT $3"
        );
        let failed = PaidCallState::Failed.code();
        let params = params![since.millis(), failed, i64::from(limit)];
        let rows = self.query(&sql, params).await?;
        let mut calls: Vec<_> = rows.iter().filter_map(|row| found(row).ok()).collect();
        calls.retain(|(_, call)| call.settlement.is_none());
        Ok(calls)
    }
}
