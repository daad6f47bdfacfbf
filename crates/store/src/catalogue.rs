//! Prices of models and imported tools, as documents.

use async_trait::async_trait;
use turnpike_core::time::Timestamp;

use crate::error::StoreError;
use crate::records::{ImportedTools, PriceRow};
use crate::sql::{Row, Sql, Statement, params};
use crate::traits::Catalogue;

#[async_trait]
impl<S: Sql> Catalogue for S {
    async fn price_revision(&self) -> Result<i64, StoreError> {
        let found = self
            .query(
                "SELECT revision FROM revisions WHERE name = 'model_prices'",
                Vec::new(),
            )
            .await?;
        found.first().map_or(Ok(0), |row| row.int(0))
    }

    async fn list_prices(&self) -> Result<Vec<PriceRow>, StoreError> {
        let sql = "SELECT provider, model, document FROM model_prices ORDER BY provider, model";
        let price = |row: &Row| {
            Ok(PriceRow {
                provider: row.text(0)?.to_owned(),
                model: row.text(1)?.to_owned(),
                document: row.text(2)?.to_owned(),
            })
        };
        self.query(sql, Vec::new()).await?.iter().map(price).collect()
    }

    async fn put_prices(&self, prices: &[PriceRow], at: Timestamp) -> Result<(), StoreError> {
        let bump = Statement::new(
            "UPDATE revisions SET revision = revision + 1 WHERE name = 'model_prices'",
            Vec::new(),
        );
        let puts = prices.iter().map(|price| {
            Statement::new(
                "INSERT INTO model_prices (provider, model, document, updated_at) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (provider, model) DO UPDATE SET document = $3, updated_at = $4",
                params![&*price.provider, &*price.model, &*price.document, at.millis()],
            )
        });
        self.write(std::iter::once(bump).chain(puts).collect())
            .await
            .map(drop)
    }

    async fn tools_revision(&self) -> Result<i64, StoreError> {
        let sql = "SELECT revision FROM revisions WHERE name = 'imported_tools'";
        let found = self.query(sql, Vec::new()).await?;
        found.first().map_or(Ok(0), |row| row.int(0))
    }

    async fn list_imported_tools(&self) -> Result<Vec<ImportedTools>, StoreError> {
        let sql =
            "SELECT provider, base_url, source, tools, imported_at FROM imported_tools ORDER BY provider";
        let tools = |row: &Row| {
            Ok(ImportedTools {
                provider: row.text(0)?.to_owned(),
                base_url: row.opt_text(1)?.map(str::to_owned),
                source: row.text(2)?.to_owned(),
                tools: row.text(3)?.to_owned(),
                imported_at: Timestamp::from_millis(row.int(4)?),
            })
        };
        self.query(sql, Vec::new()).await?.iter().map(tools).collect()
    }

    async fn put_imported_tools(&self, tools: &ImportedTools, read: i64) -> Result<bool, StoreError> {
        let bump = Statement::new(
            "UPDATE revisions SET revision = revision + 1 WHERE name = 'imported_tools' AND revision = $1",
            params![read],
        );
        let put = Statement::new(
            "INSERT INTO imported_tools (provider, base_url, source, tools, imported_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (provider) DO UPDATE SET base_url = $2, source = $3, tools = $4, imported_at = $5",
            params![
                &*tools.provider,
                tools.base_url.as_deref(),
                &*tools.source,
                &*tools.tools,
                tools.imported_at.millis(),
            ],
        );
        Ok(self.write_beside(vec![bump.required(), put]).await?.is_some())
    }

    async fn remove_imported_tools(&self, provider: &str) -> Result<bool, StoreError> {
        let remove = Statement::new(
            "DELETE FROM imported_tools WHERE provider = $1",
            params![provider],
        );
        let bump = Statement::new(
            "UPDATE revisions SET revision = revision + 1 WHERE name = 'imported_tools'",
            Vec::new(),
        );
        Ok(self.write_beside(vec![remove.required(), bump]).await?.is_some())
    }
}
