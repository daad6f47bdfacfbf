//! Balances, entries, usage and events, read with the SQL that both databases share.

use std::fmt::Write as _;

use async_trait::async_trait;
use turnpike_core::ids::{EventId, TenantId};
use turnpike_core::ledger::event::EventType;
use turnpike_core::ledger::{Account, AccountKey, AccountKind, Payer, Transfer};
use turnpike_core::money::Micros;

use crate::audit_log::{self, audit_in_order};
use crate::error::StoreError;
use crate::records::{EntryFilter, EventRow, UsageFilter, UsageGroup, UsageRow};
use crate::rows::{self, ACCOUNT_COLUMNS, HOLD_COLUMNS, TRANSFER_COLUMNS, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};
use crate::traits::{Scan, Statements};

pub(crate) const EVENT_COLUMNS: &str = "seq, id, type, created_at, data";

/// An event from the first five cells, [`EVENT_COLUMNS`].
pub(crate) fn event(row: &Row) -> Result<EventRow, StoreError> {
    Ok(EventRow {
        seq: row.int(0)?,
        id: EventId(row.uuid(1)?),
        kind: EventType::from_code(row.small(2)?)
            .ok_or_else(|| StoreError::Corrupt("event type".to_owned()))?,
        created_at: rows::instant(row, 3)?,
        data: row.text(4)?.to_owned(),
    })
}

#[async_trait]
impl<S: Sql> Statements for S {
    async fn find_account(&self, key: &AccountKey) -> Result<Option<Account>, StoreError> {
        let sql = format!(
            "SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE bucket = $1 AND tenant_id = $2 AND kind = $3 AND owner = $4"
        );
        let params = params![
            key.tenant.bucket(),
            key.tenant.0,
            key.kind.code(),
            key.owner_str()
        ];
        self.query(&sql, params)
            .await?
            .first()
            .map(|row| rows::account(row, 0))
            .transpose()
    }

    async fn list_transfers(
        &self,
        tenant: TenantId,
        filter: &EntryFilter,
    ) -> Result<Vec<Transfer>, StoreError> {
        let mut sql =
            format!("SELECT {TRANSFER_COLUMNS} FROM transfers WHERE bucket = $1 AND tenant_id = $2 AND ");
        let mut params = tenant_params(tenant);
        params.push(Param::from(filter.before_seq.unwrap_or(i64::MAX)));
        params.push(Param::from(i64::from(filter.limit)));
        match &filter.payer {
            None => sql.push_str("seq < $3"),
            Some(Payer::EndUser(id)) => {
                params.push(Param::from(id.as_str()));
                sql.push_str(&entries_of_user());
            }
            Some(Payer::Pool) => {
                params.push(Param::from(AccountKind::Pool.code()));
                sql.push_str("seq < $3 AND (debit_kind = $5 OR credit_kind = $5)");
            }
        }
        sql.push_str(" ORDER BY seq DESC LIMIT $4");
        self.query(&sql, params)
            .await?
            .iter()
            .map(rows::transfer)
            .collect()
    }

    async fn usage(
        &self,
        tenant: TenantId,
        group: UsageGroup,
        filter: &UsageFilter,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let column = match group {
            UsageGroup::Day => "CAST(created_at / 86400000 AS TEXT)",
            UsageGroup::Model => "COALESCE(model, '')",
            UsageGroup::Endpoint => "provider || '/' || endpoint",
            UsageGroup::Provider => "provider",
            UsageGroup::EndUser => "owner",
        };
        let mut sql = format!(
            "SELECT {column} AS usage_group,
                    CAST(SUM(CASE WHEN state = 1 THEN 1 ELSE 0 END) AS BIGINT),
                    CAST(SUM(CASE WHEN state > 1 THEN 1 ELSE 0 END) AS BIGINT),
                    CAST(SUM(charged - refunded) AS BIGINT), CAST(SUM(margin) AS BIGINT),
                    CAST(SUM(prompt_tokens) AS BIGINT), CAST(SUM(completion_tokens) AS BIGINT)
             FROM holds WHERE bucket = $1 AND tenant_id = $2 AND created_at >= $3 AND created_at < $4"
        );
        let mut params = tenant_params(tenant);
        params.push(Param::from(
            filter.from.map_or(0, turnpike_core::time::Timestamp::millis),
        ));
        params.push(Param::from(
            filter.to.map_or(i64::MAX, turnpike_core::time::Timestamp::millis),
        ));
        if let Some(payer) = &filter.payer {
            params.push(Param::from(payer.as_owner()));
            write!(sql, " AND owner = ${}", params.len())
                .map_err(|error| StoreError::Defect(error.to_string()))?;
        }
        if let Some((name, value)) = &filter.attribution {
            params.push(Param::from(name.as_str()));
            let member = self.json_member("attribution", params.len());
            params.push(Param::from(value.as_str()));
            write!(
                sql,
                " AND attribution IS NOT NULL AND {member} = ${}",
                params.len()
            )
            .map_err(|error| StoreError::Defect(error.to_string()))?;
        }
        sql.push_str(" GROUP BY 1 ORDER BY 1 LIMIT 1000");
        let usage = |row: &Row| {
            Ok(UsageRow {
                group: row.text(0)?.to_owned(),
                calls: row.int(1)?,
                failed_calls: row.int(2)?,
                charged: Micros::new(row.int(3)?),
                margin: Micros::new(row.int(4)?),
                prompt_tokens: row.int(5)?,
                completion_tokens: row.int(6)?,
            })
        };
        self.query(&sql, params).await?.iter().map(usage).collect()
    }

    async fn scan(&self, tenant: TenantId, scan: &mut Scan<'_>) -> Result<(), StoreError> {
        let query = match scan {
            Scan::Transfers(_) => transfers_in_order(tenant),
            Scan::Calls(_) => calls_in_order(tenant),
            Scan::Events(_) => events_in_order(tenant),
            Scan::Audit(_) => audit_in_order(tenant),
        };
        let mut sink = |_query: usize, row: Row| match scan {
            Scan::Transfers(sink) => rows::transfer(&row).map(sink),
            Scan::Calls(sink) => rows::hold(&row).map(|(_, hold)| sink(hold)),
            Scan::Events(sink) => event(&row).map(sink),
            Scan::Audit(sink) => audit_log::record(&row).map(sink),
        };
        self.snapshot(vec![query], &mut sink).await
    }
}

/// Which transfers are a page of one end user's entries: a page of each side from an index, merged, however much else the
/// workspace and the user have. The kind stands as a number: a partial index is used for what a query says literally.
fn entries_of_user() -> String {
    let kind = AccountKind::EndUser.code();
    let of = |side: &str| {
        format!(
            "SELECT seq FROM (SELECT seq FROM transfers WHERE bucket = $1 AND tenant_id = $2 AND seq < $3
                 AND {side}_kind = {kind} AND {side}_owner = $5 ORDER BY seq DESC LIMIT $4) AS {side}"
        )
    };
    format!(
        "seq IN ({} UNION {} ORDER BY seq DESC LIMIT $4)",
        of("debit"),
        of("credit")
    )
}

/// A tenant's transfers, oldest first, as [`rows::transfer`] reads them.
pub(crate) fn transfers_in_order(tenant: TenantId) -> Statement {
    let sql =
        format!("SELECT {TRANSFER_COLUMNS} FROM transfers WHERE bucket = $1 AND tenant_id = $2 ORDER BY seq");
    Statement::new(sql, tenant_params(tenant))
}

/// A tenant's calls, oldest first, as [`rows::hold`] reads them.
pub(crate) fn calls_in_order(tenant: TenantId) -> Statement {
    let sql =
        format!("SELECT {HOLD_COLUMNS} FROM holds WHERE bucket = $1 AND tenant_id = $2 ORDER BY call_id");
    Statement::new(sql, tenant_params(tenant))
}

fn events_in_order(tenant: TenantId) -> Statement {
    let sql = format!("SELECT {EVENT_COLUMNS} FROM events WHERE bucket = $1 AND tenant_id = $2 ORDER BY seq");
    Statement::new(sql, tenant_params(tenant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate;

    #[test]
    fn entries_of_one_user_are_found_by_an_index() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        for migration in migrate::SQLITE {
            connection.execute_batch(migration.sql).unwrap();
        }
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT seq FROM transfers WHERE bucket = $1 AND tenant_id = $2 AND {}",
            entries_of_user()
        );
        let mut plan = connection.prepare(&sql).unwrap();
        let steps: Vec<String> = plan
            // In the order in which they first appear: the owner before the limit.
            .query_map((1, [0_u8; 16], i64::MAX, "user", 10), |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for index in ["transfers_debited_user", "transfers_credited_user"] {
            assert!(steps.iter().any(|step| step.contains(index)), "{steps:?}");
        }
    }
}
