//! Events as they are shown: with their attempts, until their time is over.

use async_trait::async_trait;
use turnpike_core::ids::{EventId, TenantId, WebhookEndpointId};
use turnpike_core::ledger::event::EventType;
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::DeliveryStatus;

use super::records::{DeliveryRow, EventFilter};
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
                // As the index of the rarer types says it.
                EventType::TopupCompleted
                | EventType::TopupFailed
                | EventType::BurnFailed
                | EventType::RefundIssued
                | EventType::DisputeOpened
                | EventType::DisputeClosed
                | EventType::BalanceLow
                | EventType::AccountFrozen
                | EventType::UsageDriftDetected
                | EventType::UsageDriftResolved => "AND type = $6 AND type NOT IN (2, 7)",
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
        let sql = format!(
            "SELECT {COLUMNS} FROM (SELECT {COLUMNS}, ROW_NUMBER() OVER
                 (PARTITION BY event_seq ORDER BY attempt DESC, scheduled_at DESC, endpoint_id) AS place
                 FROM webhook_deliveries
                 WHERE bucket = $1 AND tenant_id = $2 AND event_seq IN ({})) AS placed
             WHERE place = 1",
            names.join(", ")
        );
        self.query(&sql, params).await?.iter().map(delivery).collect()
    }

    async fn prune_events(&self, tenant: TenantId, before: Timestamp, most: u32) -> Result<u64, StoreError> {
        let oldest =
            "SELECT seq, created_at FROM events WHERE bucket = $1 AND tenant_id = $2 ORDER BY seq LIMIT $3";
        let mut params = tenant_params(tenant);
        params.push(Param::from(i64::from(most)));
        let mut last = None;
        for row in self.query(oldest, params).await? {
            if rows::instant(&row, 1)? >= before {
                break;
            }
            last = Some(row.int(0)?);
        }
        let Some(last) = last else { return Ok(0) };
        let mut params = tenant_params(tenant);
        params.push(Param::from(last));
        let deliveries = Statement::new(
            "DELETE FROM webhook_deliveries WHERE bucket = $1 AND tenant_id = $2 AND event_seq <= $3",
            params.clone(),
        );
        let events = Statement::new(
            "DELETE FROM events WHERE bucket = $1 AND tenant_id = $2 AND seq <= $3",
            params,
        );
        let touched = self
            .write_beside(vec![deliveries, events])
            .await?
            .unwrap_or_default();
        Ok(touched.last().copied().unwrap_or_default())
    }
}
