//! Changes of a workspace's prices and catalogue, out of the audit log.

use async_trait::async_trait;
use turnpike_core::ids::TenantId;
use turnpike_core::time::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql};

/// The first parts of the actions that change prices or the catalogue.
pub(crate) const PRICE_ACTIONS: [&str; 3] = ["pricing.", "catalog.", "key.pricing"];

/// One change of prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceChangeRow {
    /// Its id in the audit log.
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
}

/// Changes of prices, as they were.
#[async_trait]
pub trait PriceHistory: Send + Sync {
    /// A workspace's changes of prices, catalogue and keys' prices, newest first, behind `before`.
    async fn list_price_changes(
        &self,
        tenant: TenantId,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<PriceChangeRow>, StoreError>;
}

#[async_trait]
impl<S: Sql> PriceHistory for S {
    async fn list_price_changes(
        &self,
        tenant: TenantId,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<PriceChangeRow>, StoreError> {
        let [prices, catalogue, keys] = PRICE_ACTIONS;
        let mut params = tenant_params(tenant);
        params.push(Param::from(i64::from(limit)));
        let mut sql = format!(
            "SELECT id, at, actor, action, target, before_json, after_json FROM audit_log
             WHERE bucket = $1 AND tenant_id = $2
                 AND (action LIKE '{prices}%' OR action LIKE '{catalogue}%' OR action = '{keys}')"
        );
        if let Some(before) = before {
            params.push(Param::from(before));
            sql.push_str(" AND id < $4");
        }
        // Ids begin with the time at which they were made.
        sql.push_str(" ORDER BY id DESC LIMIT $3");
        let change = |row: &Row| {
            Ok(PriceChangeRow {
                id: row.uuid(0)?,
                at: rows::instant(row, 1)?,
                actor: row.text(2)?.to_owned(),
                action: row.text(3)?.to_owned(),
                target: row.text(4)?.to_owned(),
                before: row.opt_text(5)?.map(str::to_owned),
                after: row.opt_text(6)?.map(str::to_owned),
            })
        };
        self.query(&sql, params).await?.iter().map(change).collect()
    }
}
