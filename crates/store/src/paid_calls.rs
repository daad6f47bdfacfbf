//! Paid calls, read with the SQL that both databases share. They are written by batches alone.

use async_trait::async_trait;
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::TenantStatus;
use turnpike_core::ledger::paid_call::{PAYMENT_SCOPE, PaidCall, PaidCallIndex};
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

/// A tenant's paid calls by id, as [`rows::document`] and [`index`] read them, with the request that the payment was
/// claimed for.
pub(crate) fn paid_calls_in_order(tenant: TenantId) -> Statement {
    let sql = format!(
        "SELECT p.document, p.state, p.due_at, p.instance, p.payment_key, p.provider, p.base_cost, p.loss,
             p.created_at, p.ended_at, c.subject
         FROM paid_calls p LEFT JOIN claims c ON c.bucket = p.bucket AND c.tenant_id = p.tenant_id
             AND c.scope = '{PAYMENT_SCOPE}' AND c.key = p.payment_key
         WHERE p.bucket = $1 AND p.tenant_id = $2 ORDER BY p.request_id"
    );
    Statement::new(sql, tenant_params(tenant))
}

/// What stands beside a paid call of [`paid_calls_in_order`].
pub(crate) fn index(row: &Row) -> Result<PaidCallIndex<'_>, StoreError> {
    Ok(PaidCallIndex {
        state: row.small(1)?,
        due_at: rows::instant(row, 2)?,
        instance: row.uuid(3)?,
        payment_key: row.text(4)?,
        provider: row.opt_text(5)?,
        base_cost: rows::micros(row, 6)?,
        loss: rows::micros(row, 7)?,
        created_at: rows::instant(row, 8)?,
        ended_at: rows::opt_instant(row, 9)?,
    })
}

fn found(row: &Row) -> Result<(TenantId, PaidCall), StoreError> {
    Ok((TenantId(row.uuid(0)?), rows::document(row, 1)?))
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
        let sql = "SELECT tenant_id, document FROM paid_calls WHERE request_id = $1
                   ORDER BY created_at DESC, tenant_id DESC LIMIT 1";
        let rows = self.query(sql, params![request.0]).await?;
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
        let sql = "SELECT tenant_id, document, subject FROM (
                       SELECT tenant_id, document, NULL AS subject, created_at AS at FROM paid_calls WHERE request_id = $1
                       UNION ALL
                       SELECT NULL, NULL, subject, 0 FROM claims
                       WHERE bucket = $2 AND tenant_id = $3 AND scope = $4 AND key = $5) AS both_of_them
                   ORDER BY at DESC, tenant_id DESC";
        let params = params![request.0, tenant.bucket(), tenant.0, PAYMENT_SCOPE, key];
        let rows = self.query(sql, params).await?;
        let call = rows.iter().find(|row| matches!(row.opt_text(1), Ok(Some(_))));
        let mut claimed = None;
        for row in &rows {
            claimed = claimed.or(row.opt_uuid(2)?);
        }
        Ok((call.map(found).transpose()?, claimed.map(RequestId)))
    }

    async fn list_due_paid_calls(&self, due: DuePaidCalls) -> Result<Vec<(TenantId, PaidCall)>, StoreError> {
        let mut params = params![due.due_by.millis(), i64::from(due.limit)];
        let mut or = String::new();
        for (instance, sign) in [(due.not_of_instance, "<>"), (due.of_instance, "=")] {
            if let Some(instance) = instance {
                params.push(Param::from(instance));
                let number = params.len().to_string();
                or.extend([" OR instance ", sign, " $", &number]);
            }
        }
        let states = if due.answered {
            "state < 4 AND state >= 2"
        } else {
            "state < 2"
        };
        let sql = format!(
            "SELECT tenant_id, document FROM paid_calls WHERE {states} AND (due_at <= $1{or})
             ORDER BY due_at, tenant_id, request_id LIMIT $2"
        );
        // A row that cannot be read must not keep the others from being found; the audit tells of it.
        let rows = self.query(&sql, params).await?;
        Ok(rows.iter().filter_map(|row| found(row).ok()).collect())
    }
}
