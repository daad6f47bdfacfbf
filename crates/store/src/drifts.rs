//! Usage drift, read with the SQL that both databases share: what days cost, windows, and providers' own figures.
//!
//! A day's calls are found by a range of their ids, which begin with the time they were made at, and are then told
//! apart by when their hold was taken; no call outside the range is read.

use std::collections::{BTreeMap, BTreeSet};

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

// SQLite joins in the order of a CROSS JOIN: a range of each workspace's ids, instead of every row there is.

fn day_costs_sql(of_tenant: bool) -> String {
    let narrowed = if of_tenant {
        "AND t.bucket = $6 AND t.tenant_id = $7"
    } else {
        ""
    };
    format!(
        "SELECT t.tenant_id,
                CAST(SUM(CASE WHEN h.state = 1 THEN h.charged - h.refunded - h.margin ELSE 0 END) AS BIGINT),
                CAST(SUM(h.loss) AS BIGINT)
         FROM tenants t CROSS JOIN holds h
         WHERE h.bucket = t.bucket AND h.tenant_id = t.tenant_id AND h.call_id >= $1 AND h.call_id < $2
             AND h.created_at >= $3 AND h.created_at < $4 AND h.provider = $5 {narrowed}
         GROUP BY t.tenant_id ORDER BY t.tenant_id"
    )
}

const DAY_LOSSES: &str = "SELECT t.tenant_id, d.provider
    FROM tenants t CROSS JOIN drifts d CROSS JOIN holds h
    WHERE d.bucket = t.bucket AND d.tenant_id = t.tenant_id AND d.call_id >= $1 AND d.call_id < $2 AND d.loss > 0
        AND h.bucket = d.bucket AND h.tenant_id = d.tenant_id AND h.call_id = d.call_id
        AND h.created_at >= $3 AND h.created_at < $4
    GROUP BY t.tenant_id, d.provider HAVING CAST(SUM(d.loss) AS BIGINT) >= $5
    ORDER BY t.tenant_id, d.provider";

/// What paid calls cost that were made on the day `$1` to `$2`; their ids are random, so the day finds them.
fn paid_day_costs_sql(of_tenant: bool) -> String {
    let narrowed = if of_tenant {
        "AND bucket = $4 AND tenant_id = $5"
    } else {
        ""
    };
    format!(
        "SELECT tenant_id, CAST(SUM(base_cost) AS BIGINT), CAST(SUM(loss) AS BIGINT) FROM paid_calls
         WHERE created_at >= $1 AND created_at < $2 AND provider = $3 {narrowed}
         GROUP BY tenant_id ORDER BY tenant_id"
    )
}

const PAID_DAY_LOSSES: &str = "SELECT tenant_id, provider FROM paid_calls
    WHERE created_at >= $1 AND created_at < $2 AND provider IS NOT NULL AND loss > 0
    GROUP BY tenant_id, provider HAVING CAST(SUM(loss) AS BIGINT) >= $3
    ORDER BY tenant_id, provider";

/// Adds what a row of either kind of call says to its workspace's sums.
fn add_costs(sums: &mut BTreeMap<TenantId, (Micros, Micros)>, row: &Row) -> Result<(), StoreError> {
    let overflow = || StoreError::Corrupt("a sum is too large".to_owned());
    let sum = sums.entry(TenantId(row.uuid(0)?)).or_default();
    sum.0 = sum.0.checked_add(rows::micros(row, 1)?).ok_or_else(overflow)?;
    sum.1 = sum.1.checked_add(rows::micros(row, 2)?).ok_or_else(overflow)?;
    Ok(())
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
        if let Some(tenant) = tenant {
            params.extend(rows::tenant_params(tenant));
        }
        let sql = day_costs_sql(tenant.is_some());
        let mut sums: BTreeMap<TenantId, (Micros, Micros)> = BTreeMap::new();
        for row in self.query(&sql, params).await? {
            add_costs(&mut sums, &row)?;
        }
        let mut params = params![day.start().millis(), day.end().millis(), provider];
        if let Some(tenant) = tenant {
            params.extend(rows::tenant_params(tenant));
        }
        for row in self.query(&paid_day_costs_sql(tenant.is_some()), params).await? {
            add_costs(&mut sums, &row)?;
        }
        Ok(sums
            .into_iter()
            .map(|(tenant, (metered, loss))| DayCosts {
                tenant,
                metered,
                loss,
            })
            .collect())
    }

    async fn list_day_losses(
        &self,
        day: Day,
        at_least: Micros,
    ) -> Result<Vec<(TenantId, String)>, StoreError> {
        let mut params = day_params(day);
        params.push(Param::from(at_least.get()));
        let lost = |row: &Row| Ok((TenantId(row.uuid(0)?), row.text(1)?.to_owned()));
        let mut rows = self.query(DAY_LOSSES, params).await?;
        let params = params![day.start().millis(), day.end().millis(), at_least.get()];
        rows.extend(self.query(PAID_DAY_LOSSES, params).await?);
        // A house tenant has paid calls alone, and no other has any.
        let lost: BTreeSet<_> = rows.iter().map(lost).collect::<Result<_, StoreError>>()?;
        Ok(lost.into_iter().collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_days_paid_calls_are_found_by_the_day() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        for migration in crate::migrate::SQLITE {
            connection.execute_batch(migration.sql).unwrap();
        }
        for sql in [
            paid_day_costs_sql(false),
            paid_day_costs_sql(true),
            PAID_DAY_LOSSES.to_owned(),
        ] {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let count = explain.parameter_count();
            let plan: Vec<String> = explain
                .query_map(rusqlite::params_from_iter(vec![0; count]), |row| row.get(3))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            let by_day = |line: &String| line.contains("paid_calls_created (created_at>? AND created_at<?)");
            let by_tenant = |line: &String| line.contains("(bucket=? AND tenant_id=?)");
            assert!(
                plan.iter().any(|line| by_day(line) || by_tenant(line)),
                "{plan:?}"
            );
        }
    }

    #[test]
    fn a_days_calls_are_found_by_a_range_of_ids() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        for migration in crate::migrate::SQLITE {
            connection.execute_batch(migration.sql).unwrap();
        }
        for (sql, table) in [
            (day_costs_sql(false), "h"),
            (day_costs_sql(true), "h"),
            (DAY_LOSSES.to_owned(), "d"),
        ] {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let count = explain.parameter_count();
            let plan: Vec<String> = explain
                .query_map(rusqlite::params_from_iter(vec![0; count]), |row| row.get(3))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            let by_range = format!("SEARCH {table} USING PRIMARY KEY");
            let by_range =
                |line: &String| line.starts_with(&by_range) && line.contains("call_id>? AND call_id<?");
            assert!(plan.iter().any(by_range), "{plan:?}");
            let scans = plan
                .iter()
                .filter(|line| line.starts_with("SCAN ") && *line != "SCAN t");
            assert_eq!(scans.count(), 0, "{plan:?}");
        }
    }

    #[test]
    fn the_smallest_id_of_an_instant_is_below_every_id_of_it() {
        let at = Timestamp::from_millis(1_790_000_000_000);
        let made =
            |millis, random| uuid::Builder::from_unix_timestamp_millis(millis, &[random; 10]).into_uuid();
        assert!(first_id(at) < made(1_790_000_000_000, 0));
        assert!(first_id(at) > made(1_789_999_999_999, 255));
    }
}
