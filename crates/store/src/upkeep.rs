//! The audit and the small questions one asks of a database.

use async_trait::async_trait;
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::TenantHead;
use turnpike_core::ledger::audit::{AuditReport, Auditor};

use crate::approvals::{self, approvals_in_order};
use crate::audit_log::{self, audit_in_order};
use crate::error::StoreError;
use crate::paid_calls::{self, PAID_CALL_WIDTH, SIGNED_COLUMN, TERMS_COLUMN, paid_calls_in_order};
use crate::payouts::{self, payouts_in_order};
use crate::quotes::{self, quotes_in_order};
use crate::rows::{self, ACCOUNT_COLUMNS, TENANT_HEAD_COLUMNS, tenant_params};
use crate::sql::{Row, Sql, Statement};
use crate::statements::{calls_in_order, transfers_in_order};
use crate::topups::topups_in_order;

/// What both databases share of [`crate::Upkeep`].
#[async_trait]
pub(crate) trait SharedUpkeep: Sql {
    /// See [`crate::Upkeep::ping`].
    async fn select_one(&self) -> Result<(), StoreError> {
        self.query("SELECT 1 FROM revisions LIMIT 1", Vec::new())
            .await
            .map(drop)
    }

    /// See [`crate::Upkeep::audit`].
    async fn audit_tenant(
        &self,
        tenant: TenantId,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<AuditReport, StoreError> {
        let of_tenant = |columns: &str, table: &str, order: &str| {
            let sql = format!(
                "SELECT {columns} FROM {table} WHERE bucket = $1 AND tenant_id = $2 ORDER BY {order}"
            );
            Statement::new(sql, tenant_params(tenant))
        };
        let queries = vec![
            transfers_in_order(tenant),
            calls_in_order(tenant),
            topups_in_order(tenant),
            payouts_in_order(tenant),
            paid_calls_in_order(tenant),
            of_tenant(
                &format!("kind, owner, {ACCOUNT_COLUMNS}"),
                "accounts",
                "kind, owner",
            ),
            of_tenant("seq", "events", "seq"),
            audit_in_order(tenant),
            quotes_in_order(tenant),
            approvals_in_order(tenant),
            of_tenant(TENANT_HEAD_COLUMNS, "tenants", "tenant_id"),
        ];
        let mut auditor = Auditor::new();
        let mut head: Option<TenantHead> = None;
        let mut read: u64 = 0;
        let mut sink = |query: usize, row: Row| {
            match query {
                0 => auditor.transfer(&rows::transfer(&row)?),
                1 => auditor.hold(tenant, &rows::hold(&row)?.1),
                2 => auditor.topup(tenant, &rows::document(&row, 0)?),
                3 => auditor.payout(&rows::document(&row, 0)?, &payouts::index(&row)?),
                4 if row.opt_text(TERMS_COLUMN)?.is_none() => {
                    auditor.paid_call_without_terms(RequestId(row.uuid(PAID_CALL_WIDTH + 1)?));
                }
                4 => {
                    let call = paid_calls::paid_call(&row, 0)?;
                    let claimed_for = row.opt_uuid(PAID_CALL_WIDTH)?;
                    let is_signed = row.opt_text(SIGNED_COLUMN)?.is_some();
                    let index = paid_calls::index(&row, 0)?;
                    auditor.paid_call(tenant, &call, &index, claimed_for, is_signed);
                }
                5 => {
                    let key = rows::account_key(tenant, row.small(0)?, row.text(1)?)?;
                    auditor.account(&key, &rows::account(&row, 2)?);
                }
                6 => auditor.event(row.int(0)?),
                7 => {
                    let record = audit_log::record(&row)?;
                    auditor.audit_line(&record.line(tenant), &record.hash);
                }
                8 => auditor.quote(&rows::document(&row, 0)?, &quotes::index(&row)?),
                9 => auditor.approval(&rows::document(&row, 0)?, &approvals::index(&row)?),
                _ => head = Some(rows::tenant_head(&row, 0)?),
            }
            read += 1;
            if read.is_multiple_of(1000) {
                progress(read);
            }
            Ok(true)
        };
        self.snapshot(queries, &mut sink).await?;
        progress(read);
        let head = head.ok_or_else(|| StoreError::Corrupt("the tenant has no row".to_owned()))?;
        Ok(auditor.finish(&head))
    }
}

impl<S: Sql> SharedUpkeep for S {}
