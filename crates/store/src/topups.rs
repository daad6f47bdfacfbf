//! Top-ups, read with the SQL that both databases share. They are written by batches alone.

use async_trait::async_trait;
use turnpike_core::ids::{TenantId, TopupId};
use turnpike_core::ledger::topup::{AutoTopup, Topup};
use uuid::Uuid;

use crate::error::StoreError;
use crate::records::TopupFilter;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};
use crate::traits::Topups;

#[async_trait]
impl<S: Sql> Topups for S {
    async fn find_topup(&self, tenant: TenantId, topup: TopupId) -> Result<Option<Topup>, StoreError> {
        let sql = "SELECT document FROM topups WHERE bucket = $1 AND tenant_id = $2 AND topup_id = $3";
        let mut params = tenant_params(tenant);
        params.push(Param::from(topup.0));
        self.query(sql, params)
            .await?
            .first()
            .map(|row| rows::document(row, 0))
            .transpose()
    }

    async fn find_processor_ref(&self, reference: &str) -> Result<Option<(TenantId, TopupId)>, StoreError> {
        // A name out of a URL may hold a NUL, which PostgreSQL refuses to compare with anything.
        if reference.contains('\0') {
            return Ok(None);
        }
        let sql = "SELECT tenant_id, topup_id FROM processor_refs WHERE reference = $1";
        self.query(sql, params![reference])
            .await?
            .first()
            .map(|row| Ok((TenantId(row.uuid(0)?), TopupId(row.uuid(1)?))))
            .transpose()
    }

    async fn list_topups(&self, tenant: TenantId, filter: &TopupFilter) -> Result<Vec<Topup>, StoreError> {
        let mut params = tenant_params(tenant);
        params.push(Param::from(filter.before.map_or(Uuid::max(), |id| id.0)));
        params.push(Param::from(i64::from(filter.limit)));
        let mut narrowed = "";
        if let Some(payer) = &filter.payer {
            params.push(Param::from(payer.as_owner()));
            narrowed = "AND owner = $5";
        }
        let sql = format!(
            "SELECT document FROM topups WHERE bucket = $1 AND tenant_id = $2 AND topup_id < $3 {narrowed}
             ORDER BY topup_id DESC LIMIT $4"
        );
        self.query(&sql, params)
            .await?
            .iter()
            .map(|row| rows::document(row, 0))
            .collect()
    }

    async fn list_unsettled_topups(
        &self,
        after: Option<TopupId>,
        limit: u32,
    ) -> Result<Vec<(TenantId, Topup)>, StoreError> {
        let sql = "SELECT tenant_id, document FROM topups WHERE unsettled = 1 AND topup_id > $1
                   ORDER BY topup_id LIMIT $2";
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let topup = |row: &Row| Ok((TenantId(row.uuid(0)?), rows::document(row, 1)?));
        self.query(sql, params![after, i64::from(limit)])
            .await?
            .iter()
            .map(topup)
            .collect()
    }

    async fn find_auto_topup(&self, tenant: TenantId) -> Result<Option<AutoTopup>, StoreError> {
        let sql = "SELECT document FROM auto_topups WHERE bucket = $1 AND tenant_id = $2";
        self.query(sql, tenant_params(tenant))
            .await?
            .first()
            .map(|row| rows::document(row, 0))
            .transpose()
    }

    async fn list_auto_topups(&self) -> Result<Vec<(TenantId, AutoTopup)>, StoreError> {
        let sql = "SELECT tenant_id, document FROM auto_topups WHERE enabled = 1 ORDER BY bucket, tenant_id";
        let auto = |row: &Row| Ok((TenantId(row.uuid(0)?), rows::document(row, 1)?));
        self.query(sql, Vec::new()).await?.iter().map(auto).collect()
    }
}

/// A tenant's top-ups, as [`rows::document`] reads them.
pub(crate) fn topups_in_order(tenant: TenantId) -> Statement {
    let sql = "SELECT document FROM topups WHERE bucket = $1 AND tenant_id = $2 ORDER BY topup_id";
    Statement::new(sql, tenant_params(tenant))
}
