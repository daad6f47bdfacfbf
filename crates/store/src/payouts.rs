//! Payouts and where workspaces are paid out to, read with the SQL that both databases share. They are written by
//! batches alone.

use async_trait::async_trait;
use turnpike_core::ids::{PayoutId, TenantId};
use turnpike_core::ledger::payout::{Payout, PayoutIndex, PayoutSettings};
use turnpike_core::money::Micros;
use uuid::Uuid;

use crate::error::StoreError;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};

/// Payouts of margin and where workspaces are paid out to.
#[async_trait]
pub trait Payouts: Send + Sync {
    /// A payout.
    async fn find_payout(&self, tenant: TenantId, payout: PayoutId) -> Result<Option<Payout>, StoreError>;
    /// A tenant's payouts, newest first, behind `before`.
    async fn list_payouts(
        &self,
        tenant: TenantId,
        before: Option<PayoutId>,
        limit: u32,
    ) -> Result<Vec<Payout>, StoreError>;
    /// Payouts of all tenants that are under way, by id, behind `after`.
    async fn list_open_payouts(
        &self,
        after: Option<PayoutId>,
        limit: u32,
    ) -> Result<Vec<(TenantId, Payout)>, StoreError>;
    /// What a tenant's payouts add up to.
    async fn sum_payouts(&self, tenant: TenantId) -> Result<PayoutSums, StoreError>;
    /// Where a tenant is paid out to.
    async fn find_payout_settings(&self, tenant: TenantId) -> Result<Option<PayoutSettings>, StoreError>;
    /// The tenant that is paid out to the processor's account of that name.
    async fn find_payout_account(&self, account: &str) -> Result<Option<TenantId>, StoreError>;
    /// A payout that is under way, whoever's it is.
    async fn find_open_payout(&self, payout: PayoutId) -> Result<Option<(TenantId, Payout)>, StoreError>;
    /// The payout that the processor calls so.
    async fn find_payout_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(TenantId, PayoutId)>, StoreError>;
}

/// What payouts add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayoutSums {
    /// Under way.
    pub open: Micros,
    /// Paid.
    pub paid: Micros,
}

/// A tenant's payouts by id with what they are found by, as [`rows::document`] and [`index`] read them.
pub(crate) fn payouts_in_order(tenant: TenantId) -> Statement {
    let sql = "SELECT document, state, amount, reference FROM payouts WHERE bucket = $1 AND tenant_id = $2 ORDER BY payout_id";
    Statement::new(sql, tenant_params(tenant))
}

/// What stands beside a payout of [`payouts_in_order`].
pub(crate) fn index(row: &Row) -> Result<PayoutIndex<'_>, StoreError> {
    Ok(PayoutIndex {
        state: row.small(1)?,
        amount: rows::micros(row, 2)?,
        reference: row.opt_text(3)?,
    })
}

#[async_trait]
impl<S: Sql> Payouts for S {
    async fn find_payout(&self, tenant: TenantId, payout: PayoutId) -> Result<Option<Payout>, StoreError> {
        let sql = "SELECT document FROM payouts WHERE bucket = $1 AND tenant_id = $2 AND payout_id = $3";
        let mut params = tenant_params(tenant);
        params.push(Param::from(payout.0));
        self.query(sql, params)
            .await?
            .first()
            .map(|row| rows::document(row, 0))
            .transpose()
    }

    async fn list_payouts(
        &self,
        tenant: TenantId,
        before: Option<PayoutId>,
        limit: u32,
    ) -> Result<Vec<Payout>, StoreError> {
        let sql = "SELECT document FROM payouts WHERE bucket = $1 AND tenant_id = $2 AND payout_id < $3
                   ORDER BY payout_id DESC LIMIT $4";
        let mut params = tenant_params(tenant);
        params.push(Param::from(before.map_or(Uuid::max(), |id| id.0)));
        params.push(Param::from(i64::from(limit)));
        self.query(sql, params)
            .await?
            .iter()
            .map(|row| rows::document(row, 0))
            .collect()
    }

    async fn list_open_payouts(
        &self,
        after: Option<PayoutId>,
        limit: u32,
    ) -> Result<Vec<(TenantId, Payout)>, StoreError> {
        let sql = "SELECT tenant_id, document FROM payouts WHERE state < 2 AND payout_id > $1
                   ORDER BY payout_id LIMIT $2";
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let payout = |row: &Row| Ok((TenantId(row.uuid(0)?), rows::document(row, 1)?));
        self.query(sql, params![after, i64::from(limit)])
            .await?
            .iter()
            .map(payout)
            .collect()
    }

    async fn sum_payouts(&self, tenant: TenantId) -> Result<PayoutSums, StoreError> {
        let sql = "SELECT CAST(COALESCE(SUM(CASE WHEN state < 2 THEN amount ELSE 0 END), 0) AS BIGINT),
                          CAST(COALESCE(SUM(CASE WHEN state = 2 THEN amount ELSE 0 END), 0) AS BIGINT)
                   FROM payouts WHERE bucket = $1 AND tenant_id = $2";
        let rows = self.query(sql, tenant_params(tenant)).await?;
        let Some(row) = rows.first() else {
            return Ok(PayoutSums::default());
        };
        Ok(PayoutSums {
            open: rows::micros(row, 0)?,
            paid: rows::micros(row, 1)?,
        })
    }

    async fn find_payout_settings(&self, tenant: TenantId) -> Result<Option<PayoutSettings>, StoreError> {
        let sql = "SELECT document FROM payout_settings WHERE bucket = $1 AND tenant_id = $2";
        self.query(sql, tenant_params(tenant))
            .await?
            .first()
            .map(|row| rows::document(row, 0))
            .transpose()
    }

    async fn find_payout_account(&self, account: &str) -> Result<Option<TenantId>, StoreError> {
        // PostgreSQL refuses to compare a NUL with anything.
        if account.contains('\0') {
            return Ok(None);
        }
        let sql = "SELECT tenant_id FROM payout_settings WHERE account = $1";
        let rows = self.query(sql, params![account]).await?;
        rows.first().map(|row| row.uuid(0).map(TenantId)).transpose()
    }

    async fn find_open_payout(&self, payout: PayoutId) -> Result<Option<(TenantId, Payout)>, StoreError> {
        let sql = "SELECT tenant_id, document FROM payouts WHERE state < 2 AND payout_id = $1";
        let rows = self.query(sql, params![payout.0]).await?;
        let found = |row: &Row| Ok((TenantId(row.uuid(0)?), rows::document(row, 1)?));
        rows.first().map(found).transpose()
    }

    async fn find_payout_reference(
        &self,
        reference: &str,
    ) -> Result<Option<(TenantId, PayoutId)>, StoreError> {
        if reference.contains('\0') {
            return Ok(None);
        }
        let sql = "SELECT tenant_id, payout_id FROM payouts WHERE reference = $1 ORDER BY payout_id LIMIT 1";
        let rows = self.query(sql, params![reference]).await?;
        let found = |row: &Row| Ok((TenantId(row.uuid(0)?), PayoutId(row.uuid(1)?)));
        rows.first().map(found).transpose()
    }
}
