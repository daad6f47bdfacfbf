//! Usage drift, read with the SQL that both databases share: what days cost, windows, and providers' own figures.
//!
//! A day's calls are found by a range of their ids, which begin with the time they were made at, and are then told
//! apart by when their hold was taken; no call outside the range is read.

use async_trait::async_trait;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::drift::{DriftKey, DriftState, DriftWindow};
use turnpike_core::money::Micros;
use turnpike_core::time::{Day, Timestamp};
use uuid::Uuid;

use crate::error::StoreError;
use crate::records::{DayCosts, DriftImport};
use crate::rows;
use crate::sql::{Param, Row, Sql, Statement, params};
use crate::traits::Drifts;

/// How far a call's id may lie from the instant of its hold.
const ID_SLACK_MS: i64 = 3_600_000;

/// The smallest id that can be made at `at` or later.
fn first_id(at: Timestamp) -> Uuid {
    let millis = u64::try_from(at.millis()).unwrap_or_default();
    Uuid::from_u64_pair(millis << 16, 0)
}

/// `$1` to `$4`: the ids that calls of `day` can have, and its first and last instant.
fn day_params(day: Day) -> Vec<Param> {
    params![
        first_id(day.start().plus_millis(-ID_SLACK_MS)),
        first_id(day.end().plus_millis(ID_SLACK_MS)),
        day.start().millis(),
        day.end().millis(),
    ]
}

#[async_trait]
impl<S: Sql> Drifts for S {
    async fn day_costs(
        &self,
        provider: &str,
        day: Day,
        tenant: Option<TenantId>,
    ) -> Result<Vec<DayCosts>, StoreError> {
        let mut params = day_params(day);
        params.push(Param::from(provider));
        let mut narrowed = "";
        if let Some(tenant) = tenant {
            params.extend(rows::tenant_params(tenant));
            narrowed = "AND t.bucket = $6 AND t.tenant_id = $7";
        }
        let sql = format!(
            "SELECT t.tenant_id,
                    CAST(SUM(CASE WHEN h.state = 1 THEN h.charged - h.refunded - h.margin ELSE 0 END) AS BIGINT),
                    CAST(SUM(h.loss) AS BIGINT)
             FROM tenants t JOIN holds h ON h.bucket = t.bucket AND h.tenant_id = t.tenant_id
             WHERE h.call_id >= $1 AND h.call_id < $2 AND h.created_at >= $3 AND h.created_at < $4
                 AND h.provider = $5 {narrowed}
             GROUP BY t.tenant_id ORDER BY t.tenant_id"
        );
        let costs = |row: &Row| {
            Ok(DayCosts {
                tenant: TenantId(row.uuid(0)?),
                metered: rows::micros(row, 1)?,
                loss: rows::micros(row, 2)?,
            })
        };
        self.query(&sql, params).await?.iter().map(costs).collect()
    }

    async fn list_day_losses(
        &self,
        day: Day,
        at_least: Micros,
    ) -> Result<Vec<(TenantId, String)>, StoreError> {
        let sql = "SELECT t.tenant_id, d.provider
             FROM tenants t
             JOIN drifts d ON d.bucket = t.bucket AND d.tenant_id = t.tenant_id
             JOIN holds h ON h.bucket = d.bucket AND h.tenant_id = d.tenant_id AND h.call_id = d.call_id
             WHERE d.call_id >= $1 AND d.call_id < $2 AND h.created_at >= $3 AND h.created_at < $4 AND d.loss > 0
             GROUP BY t.tenant_id, d.provider HAVING CAST(SUM(d.loss) AS BIGINT) >= $5
             ORDER BY t.tenant_id, d.provider";
        let mut params = day_params(day);
        params.push(Param::from(at_least.get()));
        let lost = |row: &Row| Ok((TenantId(row.uuid(0)?), row.text(1)?.to_owned()));
        self.query(sql, params).await?.iter().map(lost).collect()
    }

    async fn list_open_drifts(&self) -> Result<Vec<(DriftKey, DriftWindow)>, StoreError> {
        let sql = "SELECT tenant_id, provider, day, document FROM drift_windows WHERE state = 0
                   ORDER BY day, tenant_id, provider";
        self.query(sql, Vec::new()).await?.iter().map(window).collect()
    }

    async fn find_drift(&self, key: &DriftKey) -> Result<Option<DriftWindow>, StoreError> {
        let sql = "SELECT document FROM drift_windows
                   WHERE bucket = $1 AND tenant_id = $2 AND provider = $3 AND day = $4";
        let mut params = rows::tenant_params(key.tenant);
        params.extend(params![&*key.provider, key.day.number()]);
        self.query(sql, params)
            .await?
            .first()
            .map(|row| rows::document(row, 0))
            .transpose()
    }

    async fn put_drift_imports(&self, imports: &[DriftImport]) -> Result<(), StoreError> {
        let puts = imports.iter().map(|import| {
            Statement::new(
                "INSERT INTO drift_imports (provider, day, amount, source, imported_at, judged_at)
                 VALUES ($1, $2, $3, $4, $5, NULL)
                 ON CONFLICT (provider, day) DO UPDATE SET amount = $3, source = $4, imported_at = $5,
                     judged_at = NULL",
                params![
                    &*import.provider,
                    import.day.number(),
                    import.amount.get(),
                    &*import.source,
                    import.imported_at.millis(),
                ],
            )
        });
        self.write(puts.collect()).await.map(drop)
    }

    async fn find_drift_import(&self, provider: &str, day: Day) -> Result<Option<DriftImport>, StoreError> {
        let sql = "SELECT provider, day, amount, source, imported_at FROM drift_imports
                   WHERE provider = $1 AND day = $2";
        self.query(sql, params![provider, day.number()])
            .await?
            .first()
            .map(import)
            .transpose()
    }

    async fn list_pending_drift_imports(&self, limit: u32) -> Result<Vec<DriftImport>, StoreError> {
        let sql = "SELECT provider, day, amount, source, imported_at FROM drift_imports
                   WHERE judged_at IS NULL ORDER BY day, provider LIMIT $1";
        self.query(sql, params![i64::from(limit)])
            .await?
            .iter()
            .map(import)
            .collect()
    }

    async fn mark_drift_import(&self, import: &DriftImport, at: Timestamp) -> Result<bool, StoreError> {
        // One that was replaced meanwhile has not been judged.
        let mark = Statement::new(
            "UPDATE drift_imports SET judged_at = $5
             WHERE provider = $1 AND day = $2 AND amount = $3 AND imported_at = $4 AND judged_at IS NULL",
            params![
                &*import.provider,
                import.day.number(),
                import.amount.get(),
                import.imported_at.millis(),
                at.millis(),
            ],
        );
        Ok(self.write(vec![mark]).await?.first().copied().unwrap_or(0) > 0)
    }
}

fn window(row: &Row) -> Result<(DriftKey, DriftWindow), StoreError> {
    let key = DriftKey {
        tenant: TenantId(row.uuid(0)?),
        provider: row.text(1)?.into(),
        day: Day::new(row.int(2)?),
    };
    let window: DriftWindow = rows::document(row, 3)?;
    if window.state != DriftState::Detected {
        return Err(StoreError::Corrupt(format!("drift {} is not open", key.id())));
    }
    Ok((key, window))
}

fn import(row: &Row) -> Result<DriftImport, StoreError> {
    Ok(DriftImport {
        provider: row.text(0)?.to_owned(),
        day: Day::new(row.int(1)?),
        amount: rows::micros(row, 2)?,
        source: row.text(3)?.to_owned(),
        imported_at: rows::instant(row, 4)?,
    })
}
