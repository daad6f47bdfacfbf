//! Prices of models, as documents.

use async_trait::async_trait;
use turnpike_core::time::Timestamp;

use crate::error::StoreError;
use crate::records::PriceRow;
use crate::sql::{Sql, Statement, params};
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
        let price = |row: &crate::sql::Row| {
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
}
