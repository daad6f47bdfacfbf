//! Quotes, read with the SQL that both databases share. They are written by batches alone, and removed when nobody
//! used them.

use async_trait::async_trait;
use turnpike_core::ids::{QuoteId, TenantId};
use turnpike_core::ledger::quote::{Quote, QuoteIndex};
use turnpike_core::time::Timestamp;

use crate::directory::pruned;
use crate::error::StoreError;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement};

/// Prices that were said before the call.
#[async_trait]
pub trait Quotes: Send + Sync {
    /// A quote.
    async fn find_quote(&self, tenant: TenantId, quote: QuoteId) -> Result<Option<Quote>, StoreError>;
    /// Removes quotes that expired before `before` and that no call used; says how many.
    async fn prune_quotes(&self, before: Timestamp) -> Result<u64, StoreError>;
}

/// A tenant's quotes by id with what they are found by, as [`rows::document`] and [`index`] read them.
pub(crate) fn quotes_in_order(tenant: TenantId) -> Statement {
    let sql = "SELECT document, state, owner, expires_at FROM quotes WHERE bucket = $1 AND tenant_id = $2 ORDER BY quote_id";
    Statement::new(sql, tenant_params(tenant))
}

/// What stands beside a quote of [`quotes_in_order`].
pub(crate) fn index(row: &Row) -> Result<QuoteIndex<'_>, StoreError> {
    Ok(QuoteIndex {
        state: row.small(1)?,
        owner: row.text(2)?,
        expires_at: rows::instant(row, 3)?,
    })
}

#[async_trait]
impl<S: Sql> Quotes for S {
    async fn find_quote(&self, tenant: TenantId, quote: QuoteId) -> Result<Option<Quote>, StoreError> {
        let sql = "SELECT document FROM quotes WHERE bucket = $1 AND tenant_id = $2 AND quote_id = $3";
        let mut params = tenant_params(tenant);
        params.push(Param::from(quote.0));
        self.query(sql, params)
            .await?
            .first()
            .map(|row| rows::document(row, 0))
            .transpose()
    }

    async fn prune_quotes(&self, before: Timestamp) -> Result<u64, StoreError> {
        let sql = "DELETE FROM quotes WHERE (bucket, tenant_id, quote_id) IN
                       (SELECT bucket, tenant_id, quote_id FROM quotes
                        WHERE state <> 1 AND expires_at < $1 ORDER BY expires_at LIMIT $2)";
        pruned(self, sql, before).await
    }
}
