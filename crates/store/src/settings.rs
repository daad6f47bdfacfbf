//! A workspace's settings: one document, which is only replaced by whoever has read what it says now.

use async_trait::async_trait;
use turnpike_core::ids::TenantId;
use turnpike_core::money::Micros;

use crate::audit_log::audit_row;
use crate::directory::{from_json, to_json, touched};
use crate::error::StoreError;
use crate::records::{AuditRow, TenantSettings};
use crate::rows::tenant_params;
use crate::sql::{Sql, Statement, params};

/// Settings as they were read.
#[derive(Clone, Debug)]
pub struct StoredSettings {
    /// What they say.
    pub settings: TenantSettings,
    /// How they are written, which need not be how this version writes them.
    pub(crate) written: String,
}

/// Settings of workspaces. A change writes its audit rows in the same transaction.
#[async_trait]
pub trait Settings: Send + Sync {
    /// A workspace's settings.
    async fn find_settings(&self, tenant: TenantId) -> Result<Option<StoredSettings>, StoreError>;
    /// Replaces a workspace's settings; `false` = they are not what `read` says any more.
    async fn replace_settings(
        &self,
        tenant: TenantId,
        read: &StoredSettings,
        settings: &TenantSettings,
        audits: &[AuditRow],
    ) -> Result<bool, StoreError>;
}

#[async_trait]
impl<S: Sql> Settings for S {
    async fn find_settings(&self, tenant: TenantId) -> Result<Option<StoredSettings>, StoreError> {
        let sql = "SELECT settings FROM tenants WHERE bucket = $1 AND tenant_id = $2";
        let found = self.query(sql, tenant_params(tenant)).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let written = row.text(0)?.to_owned();
        let settings = from_json(&written)?;
        Ok(Some(StoredSettings { settings, written }))
    }

    async fn replace_settings(
        &self,
        tenant: TenantId,
        read: &StoredSettings,
        settings: &TenantSettings,
        audits: &[AuditRow],
    ) -> Result<bool, StoreError> {
        let low = settings.low_balance.thresholds();
        let mut params = tenant_params(tenant);
        params.extend(params![
            to_json(settings)?,
            low.pool.map(Micros::get),
            low.end_user.map(Micros::get),
            &*read.written,
        ]);
        let update = Statement::new(
            "UPDATE tenants SET settings = $3, low_pool = $4, low_end_user = $5
             WHERE bucket = $1 AND tenant_id = $2 AND settings = $6",
            params,
        );
        let statements = std::iter::once(update).chain(audits.iter().map(audit_row));
        // Batches keep rows of this table.
        Ok(touched(&self.write(statements.collect()).await?))
    }
}
