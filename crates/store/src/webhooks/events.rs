//! Events as they are shown: with their attempts, until their time is over.

use async_trait::async_trait;
use turnpike_core::ids::{EventId, TenantId, WebhookEndpointId};
use turnpike_core::ledger::event::EventType;
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::DeliveryStatus;

use super::endpoints::endpoint_params;
use super::records::{DeliveryRow, EventFilter, Pruned, Span};
use crate::error::StoreError;
use crate::records::EventRow;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};
use crate::statements::{EVENT_COLUMNS, event};
use crate::traits::WebhookEvents;

const COLUMNS: &str =
    "event_seq, endpoint_id, attempt, destination_url, status, manual_replay, scheduled_at, started_at,
    finished_at, http_status, response_body, error";

fn delivery(row: &Row) -> Result<DeliveryRow, StoreError> {
    let corrupt = |what: &str| StoreError::Corrupt(what.to_owned());
    Ok(DeliveryRow {
        event_seq: row.int(0)?,
        endpoint: WebhookEndpointId(row.uuid(1)?),
        attempt: i32::try_from(row.int(2)?).map_err(|_overflow| corrupt("attempt"))?,
        destination_url: row.text(3)?.to_owned(),
        status: DeliveryStatus::from_code(row.small(4)?).ok_or_else(|| corrupt("delivery status"))?,
        manual_replay: row.int(5)? == 1,
        scheduled_at: rows::instant(row, 6)?,
        started_at: rows::opt_instant(row, 7)?,
        finished_at: rows::opt_instant(row, 8)?,
        http_status: row
            .opt_int(9)?
            .map(i16::try_from)
            .transpose()
            .map_err(|_overflow| corrupt("HTTP status"))?,
        response_body: row.opt_text(10)?.map(str::to_owned),
        error: row.opt_text(11)?.map(str::to_owned),
    })
}

#[async_trait]
impl<S: Sql> WebhookEvents for S {
    async fn list_events(&self, tenant: TenantId, filter: &EventFilter) -> Result<Vec<EventRow>, StoreError> {
        let mut params = tenant_params(tenant);
        params.extend(params![
            filter.before_seq.unwrap_or(i64::MAX),
            filter.since.millis(),
            i64::from(filter.limit),
        ]);
        let mut narrowed = "";
        if let Some(kind) = filter.kind {
            params.push(Param::from(kind.code()));
            narrowed = match kind {
                EventType::BurnCompleted | EventType::BalanceChanged => "AND type = $6",
                // Positions first: only then does SQLite take the index of the rarer types, whose words these are.
                EventType::TopupCompleted
                | EventType::TopupFailed
                | EventType::BurnFailed
                | EventType::RefundIssued
                | EventType::DisputeOpened
                | EventType::DisputeClosed
                | EventType::BalanceLow
                | EventType::AccountFrozen
                | EventType::UsageDriftDetected
                | EventType::UsageDriftResolved => {
                    "AND seq IN (SELECT seq FROM events WHERE bucket = $1 AND tenant_id = $2 AND seq < $3 AND type = $6
                         AND type NOT IN (2, 7) ORDER BY seq DESC LIMIT $5)"
                }
            };
        }
        let sql = format!(
            "SELECT {EVENT_COLUMNS} FROM events
             WHERE bucket = $1 AND tenant_id = $2 AND seq < $3 AND created_at >= $4 {narrowed}
             ORDER BY seq DESC LIMIT $5"
        );
        self.query(&sql, params).await?.iter().map(event).collect()
    }

    async fn find_event(&self, tenant: TenantId, id: EventId) -> Result<Option<EventRow>, StoreError> {
        let sql =
            format!("SELECT {EVENT_COLUMNS} FROM events WHERE bucket = $1 AND tenant_id = $2 AND id = $3");
        let mut params = tenant_params(tenant);
        params.push(Param::from(id.0));
        self.query(&sql, params).await?.first().map(event).transpose()
    }

    async fn list_deliveries(&self, tenant: TenantId, seq: i64) -> Result<Vec<DeliveryRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM webhook_deliveries WHERE bucket = $1 AND tenant_id = $2 AND event_seq = $3
             ORDER BY endpoint_id, attempt"
        );
        let mut params = tenant_params(tenant);
        params.push(Param::from(seq));
        self.query(&sql, params).await?.iter().map(delivery).collect()
    }

    async fn latest_deliveries(
        &self,
        tenant: TenantId,
        seqs: &[i64],
    ) -> Result<Vec<DeliveryRow>, StoreError> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        let mut params = tenant_params(tenant);
        let names: Vec<String> = (3..).zip(seqs).map(|(name, _)| format!("${name}")).collect();
        params.extend(seqs.iter().map(|seq| Param::from(*seq)));
        // Ranked by what they are, then read: what destinations said is not carried through the sort.
        let columns: Vec<String> = COLUMNS
            .split(',')
            .map(|column| format!("d.{}", column.trim()))
            .collect();
        let sql = format!(
            "SELECT {} FROM (SELECT event_seq, endpoint_id, attempt, ROW_NUMBER() OVER (PARTITION BY event_seq
                     ORDER BY CASE WHEN status = 4 THEN 1 ELSE 0 END, scheduled_at DESC, attempt DESC, endpoint_id)
                     AS place
                 FROM webhook_deliveries
                 WHERE bucket = $1 AND tenant_id = $2 AND event_seq IN ({})) AS placed
             JOIN webhook_deliveries d ON d.bucket = $1 AND d.tenant_id = $2 AND d.event_seq = placed.event_seq
                 AND d.endpoint_id = placed.endpoint_id AND d.attempt = placed.attempt
             WHERE placed.place = 1",
            columns.join(", "),
            names.join(", ")
        );
        self.query(&sql, params).await?.iter().map(delivery).collect()
    }

    async fn count_missed(
        &self,
        tenant: TenantId,
        endpoint: WebhookEndpointId,
        span: Span,
    ) -> Result<u64, StoreError> {
        let mut params = endpoint_params(tenant, endpoint);
        params.extend(params![span.after, span.to]);
        let sql = format!("SELECT COUNT(*) FROM {MISSED}");
        let counted = self.query(&sql, params).await?;
        let count = counted.first().map(|row| row.int(0)).transpose()?;
        Ok(u64::try_from(count.unwrap_or(0)).unwrap_or_default())
    }

    async fn prune_events(
        &self,
        tenant: TenantId,
        before: Timestamp,
        most: u32,
    ) -> Result<Pruned, StoreError> {
        let oldest =
            "SELECT seq, created_at FROM events WHERE bucket = $1 AND tenant_id = $2 ORDER BY seq LIMIT $3";
        let mut params = tenant_params(tenant);
        params.push(Param::from(i64::from(most)));
        let mut last = None;
        for row in self.query(oldest, params.clone()).await? {
            if rows::instant(&row, 1)? >= before {
                break;
            }
            last = Some(row.int(0)?);
        }
        let Some(last) = last else {
            return Ok(Pruned::default());
        };
        // No more attempts than events at once: one event may have thousands of them.
        params.push(Param::from(last));
        let attempts = Statement::new(
            "DELETE FROM webhook_deliveries WHERE (bucket, tenant_id, event_seq, endpoint_id, attempt) IN
                 (SELECT bucket, tenant_id, event_seq, endpoint_id, attempt FROM webhook_deliveries
                  WHERE bucket = $1 AND tenant_id = $2 AND event_seq <= $4 ORDER BY event_seq LIMIT $3)",
            params,
        );
        let mut params = tenant_params(tenant);
        params.push(Param::from(last));
        let events = Statement::new(
            "DELETE FROM events WHERE bucket = $1 AND tenant_id = $2 AND seq <= $3
                 AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d
                     WHERE d.bucket = $1 AND d.tenant_id = $2 AND d.event_seq <= $3)",
            params,
        );
        let touched = self
            .write_beside(vec![attempts, events])
            .await?
            .unwrap_or_default();
        let touched = |index: usize| touched.get(index).copied().unwrap_or_default();
        Ok(Pruned {
            events: touched(1),
            more: touched(0) >= u64::from(most) || touched(1) >= u64::from(most),
        })
    }
}

/// The events of positions `$4` to `$5` that endpoint `$3` in use wants, has not taken, and that no attempt waits for.
pub(super) const MISSED: &str = "events e JOIN webhook_endpoints w ON w.bucket = e.bucket AND w.tenant_id = e.tenant_id
    WHERE e.bucket = $1 AND e.tenant_id = $2 AND w.endpoint_id = $3 AND w.enabled = 1 AND e.seq > $4 AND e.seq <= $5
        AND (w.event_mask >> e.type) & 1 = 1
        AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.bucket = e.bucket AND d.tenant_id = e.tenant_id
            AND d.event_seq = e.seq AND d.endpoint_id = w.endpoint_id AND d.status IN (0, 1, 2))";
