//! Calls, stored answers and claims, read with the SQL that both databases share.

use async_trait::async_trait;
use turnpike_core::ids::{CallId, TenantId};
use turnpike_core::ledger::Hold;
use turnpike_core::ledger::command::{DriftKind, OutcomeKind, StoredOutcome};
use turnpike_core::ledger::hold::{Claim, ClaimKey};
use turnpike_core::ledger::paid_call::ANSWER_KEPT_MS;
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;

use crate::error::StoreError;
use crate::records::{DriftRow, OpenCalls};
use crate::rows::{self, HOLD_COLUMNS, tenant_params};
use crate::sql::{Param, Sql, Statement, params};
use crate::traits::Calls;

#[async_trait]
impl<S: Sql> Calls for S {
    async fn find_call(&self, tenant: TenantId, call: CallId) -> Result<Option<Hold>, StoreError> {
        let sql =
            format!("SELECT {HOLD_COLUMNS} FROM holds WHERE bucket = $1 AND tenant_id = $2 AND call_id = $3");
        let found = self
            .query(&sql, params![tenant.bucket(), tenant.0, call.0])
            .await?;
        found
            .first()
            .map(rows::hold)
            .transpose()
            .map(|found| found.map(|(_, hold)| hold))
    }

    async fn find_outcome(
        &self,
        tenant: TenantId,
        call: CallId,
    ) -> Result<Option<StoredOutcome>, StoreError> {
        let sql = "SELECT kind, body, expires_at FROM outcomes WHERE bucket = $1 AND tenant_id = $2 AND call_id = $3";
        let found = self
            .query(sql, params![tenant.bucket(), tenant.0, call.0])
            .await?;
        let Some(row) = found.first() else { return Ok(None) };
        Ok(Some(StoredOutcome {
            kind: OutcomeKind::from_code(row.small(0)?)
                .ok_or_else(|| StoreError::Corrupt("outcome kind".to_owned()))?,
            body: row.opt_bytes(1)?.map(bytes::Bytes::copy_from_slice),
            expires_at: rows::instant(row, 2)?,
        }))
    }

    async fn find_claim(&self, key: &ClaimKey) -> Result<Option<Claim>, StoreError> {
        let sql = "SELECT fingerprint, subject FROM claims
                   WHERE bucket = $1 AND tenant_id = $2 AND scope = $3 AND key = $4";
        let params = params![key.tenant.bucket(), key.tenant.0, &*key.scope, &*key.key];
        self.query(sql, params)
            .await?
            .first()
            .map(|row| rows::claim(row, 0))
            .transpose()
    }

    async fn list_open_calls(&self, open: OpenCalls) -> Result<Vec<(TenantId, Hold)>, StoreError> {
        let sql = format!(
            "SELECT {HOLD_COLUMNS} FROM holds WHERE finished_at IS NULL
                 AND (deadline < $1 OR instance = $3)
                 ORDER BY deadline LIMIT $2"
        );
        let params = params![
            open.deadline_before.millis(),
            i64::from(open.limit),
            open.of_instance,
        ];
        self.query(&sql, params).await?.iter().map(rows::hold).collect()
    }

    async fn prune_outcomes(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
        // The row stays, so that a late repeat is told that its answer has expired. What a wallet pays for, or has paid
        // for just now, is still fetched.
        let statement = Statement::new(
            "UPDATE outcomes SET body = NULL WHERE (bucket, tenant_id, call_id) IN
                 (SELECT o.bucket, o.tenant_id, o.call_id FROM outcomes o
                  WHERE o.expires_at < $1 AND o.body IS NOT NULL AND NOT EXISTS
                      (SELECT 1 FROM paid_calls p WHERE p.bucket = o.bucket AND p.tenant_id = o.tenant_id
                           AND p.request_id = o.call_id AND (p.ended_at IS NULL OR p.ended_at >= $3))
                  ORDER BY o.expires_at LIMIT $2)",
            params![
                now.millis(),
                i64::from(limit),
                now.plus_millis(-ANSWER_KEPT_MS).millis()
            ],
        );
        Ok(self.write(vec![statement]).await?.first().copied().unwrap_or(0))
    }

    async fn list_drifts(&self, tenant: TenantId, limit: u32) -> Result<Vec<DriftRow>, StoreError> {
        let sql = "SELECT call_id, kind, provider, detail, charged, loss, created_at FROM drifts
                   WHERE bucket = $1 AND tenant_id = $2 ORDER BY created_at DESC LIMIT $3";
        let mut params = tenant_params(tenant);
        params.push(Param::from(i64::from(limit)));
        let drift = |row: &crate::sql::Row| {
            Ok(DriftRow {
                call: CallId(row.uuid(0)?),
                kind: DriftKind::from_code(row.small(1)?)
                    .ok_or_else(|| StoreError::Corrupt("drift kind".to_owned()))?,
                provider: row.text(2)?.to_owned(),
                detail: row.text(3)?.to_owned(),
                charged: Micros::new(row.int(4)?),
                loss: Micros::new(row.int(5)?),
                created_at: rows::instant(row, 6)?,
            })
        };
        self.query(sql, params).await?.iter().map(drift).collect()
    }
}
