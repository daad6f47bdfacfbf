//! Deliveries: made pending by the events, taken by workers under a lease, and recorded.
//!
//! INVARIANT: an attempt is sent by whoever moved it from pending to delivering, and by nobody else. A worker that
//! does not report before its lease is over has lost the attempt: it counts as failed, and another one follows.

use std::collections::BTreeMap;

use async_trait::async_trait;
use turnpike_core::ids::{TenantId, WebhookEndpointId};
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::{DeliveryStatus, DisabledReason};
use uuid::Uuid;

use super::endpoints::{cancel_pending, disable, endpoint_params};
use super::records::{ClaimedDelivery, DeliveryReport, DueEndpoint, FanOut, NextAttempt, ReplayOf, Slots};
use crate::directory::audit_row;
use crate::error::StoreError;
use crate::records::AuditRow;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};
use crate::statements::event;
use crate::traits::WebhookDeliveries;

/// What a worker that never reported leaves behind.
const INTERRUPTED: &str = "the outcome is unknown: the worker ended before it could tell";

/// A workspace with events that nobody was told of yet.
struct Behind {
    tenant: TenantId,
    cursor: i64,
    head: i64,
    endpoints: u64,
}

/// The events `$3 < seq <= $4` of a workspace for every endpoint that wants them.
fn fan_out_rows(share: &str) -> String {
    format!(
        "INSERT INTO webhook_deliveries (bucket, tenant_id, event_seq, endpoint_id, attempt, step, manual_replay, status,
             destination_url, scheduled_at)
         SELECT e.bucket, e.tenant_id, e.seq, w.endpoint_id, 1, 0, 0, 0, w.url, e.created_at
         FROM events e JOIN webhook_endpoints w ON w.bucket = e.bucket AND w.tenant_id = e.tenant_id
         WHERE e.bucket = $1 AND e.tenant_id = $2 AND e.seq > $3 AND e.seq <= $4
             AND w.enabled = 1 AND w.after_seq < e.seq AND (w.event_mask >> e.type) & 1 = 1
         {share} ON CONFLICT DO NOTHING"
    )
}

/// Takes the oldest due attempts of one endpoint.
fn claim_statement(
    slots: &Slots,
    now: Timestamp,
    claim: Uuid,
    lease_until: Timestamp,
    skip: &str,
) -> Statement {
    let sql = format!(
        "WITH picked AS MATERIALIZED (
             SELECT event_seq, attempt FROM webhook_deliveries
             WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND status = 0 AND scheduled_at <= $4
             ORDER BY scheduled_at LIMIT $5 {skip})
         UPDATE webhook_deliveries AS d SET status = 1, claim = $6, lease_until = $7, started_at = $4
         FROM picked
         WHERE d.bucket = $1 AND d.tenant_id = $2 AND d.endpoint_id = $3 AND d.event_seq = picked.event_seq
             AND d.attempt = picked.attempt"
    );
    let mut params = endpoint_params(slots.tenant, slots.endpoint);
    params.extend(params![
        now.millis(),
        i64::from(slots.count),
        claim,
        lease_until.millis()
    ]);
    Statement::new(sql, params)
}

fn claimed(row: &Row) -> Result<ClaimedDelivery, StoreError> {
    Ok(ClaimedDelivery {
        event: event(row)?,
        tenant: TenantId(row.uuid(5)?),
        endpoint: WebhookEndpointId(row.uuid(6)?),
        attempt: i32::try_from(row.int(7)?).map_err(|_overflow| StoreError::Corrupt("attempt".to_owned()))?,
        step: row.small(8)?,
        scheduled_at: rows::instant(row, 9)?,
        url: row.text(10)?.to_owned(),
    })
}

/// The parameters that name an attempt: `$1` to `$5`.
fn attempt_params(report: &DeliveryReport) -> Vec<Param> {
    let mut params = endpoint_params(report.tenant, report.endpoint);
    params.extend(params![report.event_seq, i64::from(report.attempt)]);
    params
}

fn end_statement(report: &DeliveryReport) -> Statement {
    let status = if report.succeeded {
        DeliveryStatus::Succeeded
    } else {
        DeliveryStatus::Failed
    };
    let mut params = attempt_params(report);
    params.extend(params![
        report.claim,
        status.code(),
        report.finished_at.millis(),
        report.http_status.map(i64::from),
        report.response_body.as_deref(),
        report.error.as_deref(),
    ]);
    Statement::new(
        "UPDATE webhook_deliveries SET status = $7, finished_at = $8, http_status = $9, response_body = $10, error = $11,
             lease_until = NULL
         WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND event_seq = $4 AND attempt = $5
             AND status = 1 AND claim = $6",
        params,
    )
}

/// The attempt that follows, if the one before was ended under the same claim and its endpoint is in use.
fn next_statement(report: &DeliveryReport, next: NextAttempt, share: &str) -> Statement {
    let sql = format!(
        "INSERT INTO webhook_deliveries (bucket, tenant_id, event_seq, endpoint_id, attempt, step, manual_replay, status,
             destination_url, scheduled_at)
         SELECT d.bucket, d.tenant_id, d.event_seq, d.endpoint_id, d.attempt + 1, $7, 0, 0, w.url, $8
         FROM webhook_deliveries d JOIN webhook_endpoints w
             ON w.bucket = d.bucket AND w.tenant_id = d.tenant_id AND w.endpoint_id = d.endpoint_id
         WHERE d.bucket = $1 AND d.tenant_id = $2 AND d.endpoint_id = $3 AND d.event_seq = $4 AND d.attempt = $5
             AND d.status = 3 AND d.claim = $6 AND w.enabled = 1
         {share} ON CONFLICT DO NOTHING"
    );
    let mut params = attempt_params(report);
    params.extend(params![report.claim, next.step, next.at.millis()]);
    Statement::new(sql, params)
}

/// What the reports of one endpoint say about it as a whole.
#[derive(Default)]
struct Health {
    failed_at: Option<Timestamp>,
    succeeded: bool,
    disables: Option<(DisabledReason, Timestamp)>,
}

impl Health {
    fn add(&mut self, report: &DeliveryReport) {
        self.succeeded |= report.succeeded;
        if !report.succeeded {
            self.failed_at = self.failed_at.max(Some(report.finished_at));
        }
        if let Some(reason) = report.disables {
            self.disables = Some((reason, report.finished_at));
        }
    }

    fn statements(&self, tenant: TenantId, endpoint: WebhookEndpointId) -> Vec<Statement> {
        let mut statements = Vec::new();
        if self.succeeded {
            statements.push(Statement::new(
                "UPDATE webhook_endpoints SET failing_since = NULL
                 WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND failing_since IS NOT NULL",
                endpoint_params(tenant, endpoint),
            ));
        } else if let Some(at) = self.failed_at {
            let mut params = endpoint_params(tenant, endpoint);
            params.push(Param::from(at.millis()));
            statements.push(Statement::new(
                "UPDATE webhook_endpoints SET failing_since = $4
                 WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND failing_since IS NULL",
                params,
            ));
        }
        match self.disables {
            None => {}
            // One success among them says that it does not only fail.
            Some((DisabledReason::Failing, _)) if self.succeeded => {}
            Some((reason, at)) => {
                statements.push(disable(tenant, endpoint, reason, at));
                statements.push(cancel_pending(tenant, endpoint, at));
            }
        }
        statements
    }
}

#[async_trait]
impl<S: Sql> WebhookDeliveries for S {
    async fn fan_out(&self, most: u32) -> Result<FanOut, StoreError> {
        let sql = "SELECT c.tenant_id, c.seq, t.event_seq,
                       (SELECT COUNT(*) FROM webhook_endpoints w
                        WHERE w.bucket = c.bucket AND w.tenant_id = c.tenant_id AND w.enabled = 1)
                   FROM webhook_cursors c JOIN tenants t ON t.bucket = c.bucket AND t.tenant_id = c.tenant_id
                   WHERE t.event_seq > c.seq ORDER BY c.bucket, c.tenant_id";
        let behind = |row: &Row| {
            Ok(Behind {
                tenant: TenantId(row.uuid(0)?),
                cursor: row.int(1)?,
                head: row.int(2)?,
                endpoints: u64::try_from(row.int(3)?).unwrap_or_default(),
            })
        };
        let all = self.query(sql, Vec::new()).await?;
        let all = all.iter().map(behind).collect::<Result<Vec<_>, StoreError>>()?;
        let mut done = FanOut::default();
        let mut statements = Vec::new();
        let mut room = u64::from(most);
        let share = fan_out_rows(self.share_w());
        for Behind {
            tenant,
            cursor,
            head,
            endpoints,
        } in all
        {
            if room == 0 {
                done.more = true;
                break;
            }
            let waiting = u64::try_from(head.saturating_sub(cursor)).unwrap_or_default();
            // At least one event, however many endpoints want it.
            let events = room
                .checked_div(endpoints)
                .map_or(waiting, |fit| fit.max(1).min(waiting));
            done.more |= events < waiting;
            room = room.saturating_sub(events.saturating_mul(endpoints));
            let to = cursor.saturating_add(i64::try_from(events).unwrap_or(i64::MAX));
            let mut params = tenant_params(tenant);
            params.extend(params![cursor, to]);
            statements.push(Statement::new(
                "UPDATE webhook_cursors SET seq = $4 WHERE bucket = $1 AND tenant_id = $2 AND seq = $3",
                params.clone(),
            ));
            if endpoints > 0 {
                // Whoever else moves the cursor at this moment makes the same rows: they are made once.
                statements.push(Statement::new(share.clone(), params));
            }
        }
        if statements.is_empty() {
            return Ok(done);
        }
        let is_insert: Vec<bool> = statements.iter().map(|s| s.sql.starts_with("INSERT")).collect();
        let touched = self.write_beside(statements).await?.unwrap_or_default();
        done.attempts = touched
            .iter()
            .zip(is_insert)
            .filter_map(|(rows, is_insert)| is_insert.then_some(*rows))
            .fold(0, u64::saturating_add);
        Ok(done)
    }

    async fn list_due_endpoints(&self, now: Timestamp) -> Result<Vec<DueEndpoint>, StoreError> {
        let any = "SELECT 1 FROM webhook_deliveries WHERE status = 0 AND scheduled_at <= $1 LIMIT 1";
        if self.query(any, params![now.millis()]).await?.is_empty() {
            return Ok(Vec::new());
        }
        // One probe of the index for each endpoint in use, however much waits.
        let sql = "SELECT w.tenant_id, w.endpoint_id, w.secrets, w.failing_since FROM webhook_endpoints w
                   WHERE w.enabled = 1 AND EXISTS (SELECT 1 FROM webhook_deliveries d
                       WHERE d.bucket = w.bucket AND d.tenant_id = w.tenant_id AND d.endpoint_id = w.endpoint_id
                           AND d.status = 0 AND d.scheduled_at <= $1)
                   ORDER BY w.bucket, w.tenant_id, w.endpoint_id";
        let due = |row: &Row| {
            Ok(DueEndpoint {
                tenant: TenantId(row.uuid(0)?),
                id: WebhookEndpointId(row.uuid(1)?),
                secrets: row.text(2)?.to_owned(),
                failing_since: rows::opt_instant(row, 3)?,
            })
        };
        self.query(sql, params![now.millis()])
            .await?
            .iter()
            .map(due)
            .collect()
    }

    async fn claim_deliveries(
        &self,
        slots: &[Slots],
        now: Timestamp,
        claim: Uuid,
        lease_until: Timestamp,
    ) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let statement = |slots| claim_statement(slots, now, claim, lease_until, self.skip_locked());
        let taken = self.write_beside(slots.iter().map(statement).collect()).await?;
        if taken.unwrap_or_default().iter().all(|rows| *rows == 0) {
            return Ok(Vec::new());
        }
        let sql =
            "SELECT e.seq, e.id, e.type, e.created_at, e.data, d.tenant_id, d.endpoint_id, d.attempt, d.step,
                       d.scheduled_at, d.destination_url
                   FROM webhook_deliveries d JOIN events e
                       ON e.bucket = d.bucket AND e.tenant_id = d.tenant_id AND e.seq = d.event_seq
                   WHERE d.status = 1 AND d.lease_until = $1 AND d.claim = $2 ORDER BY d.scheduled_at";
        let found = self.query(sql, params![lease_until.millis(), claim]).await?;
        found.iter().map(claimed).collect()
    }

    async fn record_deliveries(&self, reports: &[DeliveryReport]) -> Result<u64, StoreError> {
        let mut statements: Vec<Statement> = reports.iter().map(end_statement).collect();
        let mut health: BTreeMap<(TenantId, WebhookEndpointId), Health> = BTreeMap::new();
        for report in reports {
            health
                .entry((report.tenant, report.endpoint))
                .or_default()
                .add(report);
        }
        for ((tenant, endpoint), health) in health {
            statements.extend(health.statements(tenant, endpoint));
        }
        for report in reports {
            statements.extend(
                report
                    .next
                    .map(|next| next_statement(report, next, self.share_w())),
            );
        }
        let touched = self.write_beside(statements).await?.unwrap_or_default();
        let ended = touched.iter().take(reports.len());
        Ok(ended.fold(0, |sum, rows| sum.saturating_add(*rows)))
    }

    async fn recover_deliveries(
        &self,
        lease_before: Timestamp,
        now: Timestamp,
        claim: Uuid,
    ) -> Result<u64, StoreError> {
        let any = "SELECT 1 FROM webhook_deliveries WHERE status = 1 AND lease_until < $1 LIMIT 1";
        if self.query(any, params![lease_before.millis()]).await?.is_empty() {
            return Ok(0);
        }
        // First the leases are taken over, so that a report that comes after all finds them gone.
        let take = Statement::new(
            "UPDATE webhook_deliveries SET claim = $2, lease_until = $3 WHERE status = 1 AND lease_until < $1",
            params![lease_before.millis(), claim, now.millis()],
        );
        let end = Statement::new(
            "UPDATE webhook_deliveries SET status = 3, finished_at = $1, error = $3
             WHERE status = 1 AND lease_until = $1 AND claim = $2",
            params![now.millis(), claim, INTERRUPTED],
        );
        let next = Statement::new(
            format!(
                "INSERT INTO webhook_deliveries (bucket, tenant_id, event_seq, endpoint_id, attempt, step, manual_replay,
                     status, destination_url, scheduled_at)
                 SELECT d.bucket, d.tenant_id, d.event_seq, d.endpoint_id, d.attempt + 1, d.step, d.manual_replay, 0,
                     w.url, $1
                 FROM webhook_deliveries d JOIN webhook_endpoints w
                     ON w.bucket = d.bucket AND w.tenant_id = d.tenant_id AND w.endpoint_id = d.endpoint_id
                 WHERE d.status = 1 AND d.lease_until = $1 AND d.claim = $2 AND w.enabled = 1
                 {} ON CONFLICT DO NOTHING",
                self.share_w()
            ),
            params![now.millis(), claim],
        );
        let touched = self
            .write_beside(vec![take, next, end])
            .await?
            .unwrap_or_default();
        Ok(touched.first().copied().unwrap_or_default())
    }

    async fn replay(
        &self,
        tenant: TenantId,
        endpoint: WebhookEndpointId,
        of: ReplayOf,
        audit: Option<&AuditRow>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let hold = Statement::new(
            "UPDATE webhook_endpoints SET updated_at = updated_at
             WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND enabled = 1",
            endpoint_params(tenant, endpoint),
        );
        let mut statements = vec![hold.required()];
        let mut chosen = endpoint_params(tenant, endpoint);
        chosen.push(Param::from(now.millis()));
        let (only, untaken) = match of {
            ReplayOf::One(event) => {
                let mut superseded = endpoint_params(tenant, endpoint);
                superseded.extend(params![
                    event.0,
                    DeliveryStatus::Canceled.code(),
                    now.millis(),
                    "a replay took its place"
                ]);
                statements.push(Statement::new(
                    "UPDATE webhook_deliveries SET status = $5, finished_at = $6, error = $7
                     WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND status = 0 AND event_seq =
                         (SELECT seq FROM events WHERE bucket = $1 AND tenant_id = $2 AND id = $4)",
                    superseded,
                ));
                chosen.push(Param::from(event.0));
                ("e.id = $5", "d.status IN (0, 1)")
            }
            ReplayOf::Missed { after, to, since } => {
                chosen.extend(params![after, to, since.millis()]);
                (
                    "e.seq > $5 AND e.seq <= $6 AND e.created_at >= $7 AND (w.event_mask >> e.type) & 1 = 1",
                    "d.status IN (0, 1, 2)",
                )
            }
        };
        let sql = format!(
            "INSERT INTO webhook_deliveries (bucket, tenant_id, event_seq, endpoint_id, attempt, step, manual_replay, status,
                 destination_url, scheduled_at)
             SELECT e.bucket, e.tenant_id, e.seq, w.endpoint_id,
                 1 + COALESCE((SELECT MAX(d.attempt) FROM webhook_deliveries d WHERE d.bucket = e.bucket
                     AND d.tenant_id = e.tenant_id AND d.event_seq = e.seq AND d.endpoint_id = w.endpoint_id), 0),
                 0, 1, 0, w.url, $4
             FROM events e JOIN webhook_endpoints w ON w.bucket = e.bucket AND w.tenant_id = e.tenant_id
             WHERE e.bucket = $1 AND e.tenant_id = $2 AND w.endpoint_id = $3 AND {only}
                 AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.bucket = e.bucket
                     AND d.tenant_id = e.tenant_id AND d.event_seq = e.seq AND d.endpoint_id = w.endpoint_id AND {untaken})
             ON CONFLICT DO NOTHING"
        );
        let insert = Statement::new(sql, chosen);
        let position = statements.len();
        statements.push(match of {
            ReplayOf::One(_) => insert.required(),
            ReplayOf::Missed { .. } => insert,
        });
        statements.extend(audit.map(audit_row));
        let touched = self.write_beside(statements).await?.unwrap_or_default();
        Ok(touched.get(position).copied().unwrap_or_default())
    }
}
