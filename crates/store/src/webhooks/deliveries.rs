//! Deliveries: made pending by the events, taken by workers under a lease, and recorded.
//!
//! INVARIANT: an attempt is sent by whoever moved it from pending to delivering, and by nobody else. A worker that
//! does not report before its lease is over has lost the attempt: it counts as failed, and another one follows.

use async_trait::async_trait;
use turnpike_core::ids::{TenantId, WebhookEndpointId};
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::DeliveryStatus;
use uuid::Uuid;

use super::endpoints::endpoint_params;
use super::events::MISSED;
use super::records::{
    ClaimedDelivery, DeliveryReport, DueEndpoint, FanOut, FanOutPlan, NextAttempt, ReplayOf, Slots, Span,
};
use super::verdicts::verdict_statements;
use crate::audit_log::audit_row;
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

/// The events `$3 < seq <= $4` of a workspace for every endpoint that wants them, due at `$5`.
fn fan_out_rows(share: &str) -> String {
    format!(
        "INSERT INTO webhook_deliveries (bucket, tenant_id, event_seq, endpoint_id, attempt, step, manual_replay, status,
             destination_url, scheduled_at)
         SELECT e.bucket, e.tenant_id, e.seq, w.endpoint_id, 1, 0, 0, 0, w.url, CAST($5 AS BIGINT)
         FROM events e JOIN webhook_endpoints w ON w.bucket = e.bucket AND w.tenant_id = e.tenant_id
         WHERE e.bucket = $1 AND e.tenant_id = $2 AND e.seq > $3 AND e.seq <= $4
             AND w.enabled = 1 AND w.after_seq < e.seq AND (w.event_mask >> e.type) & 1 = 1
         ORDER BY w.endpoint_id {share} ON CONFLICT DO NOTHING"
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
                 AND EXISTS (SELECT 1 FROM webhook_endpoints w WHERE w.bucket = $1 AND w.tenant_id = $2
                     AND w.endpoint_id = $3 AND w.enabled = 1)
             ORDER BY scheduled_at LIMIT $5 {skip})
         UPDATE webhook_deliveries AS d SET status = 1, claim = $6, lease_until = $7, started_at = $4,
             destination_url = $8
         FROM picked
         WHERE d.bucket = $1 AND d.tenant_id = $2 AND d.endpoint_id = $3 AND d.event_seq = picked.event_seq
             AND d.attempt = picked.attempt"
    );
    let mut params = endpoint_params(slots.tenant, slots.endpoint);
    params.extend(params![
        now.millis(),
        i64::from(slots.count),
        claim,
        lease_until.millis(),
        &*slots.url,
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

#[async_trait]
impl<S: Sql> WebhookDeliveries for S {
    async fn clock(&self, local: Timestamp) -> Result<Timestamp, StoreError> {
        let Some(sql) = self.clock_sql() else {
            return Ok(local);
        };
        let read = self.query(sql, Vec::new()).await?;
        read.first().map_or(Ok(local), |row| rows::instant(row, 0))
    }

    async fn fan_out(&self, plan: FanOutPlan) -> Result<FanOut, StoreError> {
        let sql = "SELECT c.tenant_id, c.seq, t.event_seq,
                       (SELECT COUNT(*) FROM webhook_endpoints w
                        WHERE w.bucket = c.bucket AND w.tenant_id = c.tenant_id AND w.enabled = 1)
                   FROM webhook_cursors c JOIN tenants t ON t.bucket = c.bucket AND t.tenant_id = c.tenant_id
                   WHERE t.event_seq > c.seq";
        let behind = |row: &Row| {
            Ok(Behind {
                tenant: TenantId(row.uuid(0)?),
                cursor: row.int(1)?,
                head: row.int(2)?,
                endpoints: u64::try_from(row.int(3)?).unwrap_or_default(),
            })
        };
        let all = self.query(sql, Vec::new()).await?;
        let mut all = all.iter().map(behind).collect::<Result<Vec<_>, StoreError>>()?;
        if all.is_empty() {
            return Ok(FanOut::default());
        }
        let first = usize::try_from(plan.turn % u64::try_from(all.len()).unwrap_or(1)).unwrap_or_default();
        all.rotate_left(first);
        let mut done = FanOut::default();
        let (mut room, mut left) = (u64::from(plan.most), u64::try_from(all.len()).unwrap_or(1));
        let mut spans = Vec::new();
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
            // Its share of the room, but at least one event, however many endpoints there are.
            let share = room.div_ceil(left.max(1));
            let events = share
                .checked_div(endpoints)
                .map_or(waiting, |fit| fit.max(1).min(waiting));
            done.more |= events < waiting;
            room = room.saturating_sub(events.saturating_mul(endpoints));
            left = left.saturating_sub(1);
            let to = cursor.saturating_add(i64::try_from(events).unwrap_or(i64::MAX));
            spans.push((tenant, Span { after: cursor, to }));
        }
        // In one order everywhere, so that workers do not wait for one another in a circle.
        spans.sort_by_key(|(tenant, _)| (tenant.bucket(), *tenant));
        let rows = fan_out_rows(self.share_w());
        let mut statements = Vec::with_capacity(spans.len().saturating_mul(2));
        for (tenant, span) in &spans {
            let mut params = tenant_params(*tenant);
            params.extend(params![span.after, span.to]);
            statements.push(Statement::new(
                "UPDATE webhook_cursors SET seq = $4 WHERE bucket = $1 AND tenant_id = $2 AND seq = $3",
                params.clone(),
            ));
            // Also when there was no endpoint a moment ago: one may have come while the cursor was waited for. And
            // whoever else moves the cursor at this moment makes the same rows: they are made once.
            params.push(Param::from(plan.due.millis()));
            statements.push(Statement::new(rows.clone(), params));
        }
        let touched = self.write_beside(statements).await?.unwrap_or_default();
        done.attempts = touched
            .iter()
            .skip(1)
            .step_by(2)
            .fold(0, |sum, made| sum.saturating_add(*made));
        Ok(done)
    }

    async fn list_due_endpoints(&self, now: Timestamp) -> Result<Vec<DueEndpoint>, StoreError> {
        // In the order of an index: no scan of the table, whatever the planner believes of how much waits.
        let any = "SELECT 1 FROM webhook_deliveries WHERE status = 0 AND scheduled_at <= $1
                   ORDER BY scheduled_at LIMIT 1";
        if self.query(any, params![now.millis()]).await?.is_empty() {
            return Ok(Vec::new());
        }
        // One probe of the index for each endpoint in use, however much waits.
        let sql = "SELECT w.tenant_id, w.endpoint_id, w.url, w.secrets, w.failing_since FROM webhook_endpoints w
                   WHERE w.enabled = 1 AND EXISTS (SELECT 1 FROM webhook_deliveries d
                       WHERE d.bucket = w.bucket AND d.tenant_id = w.tenant_id AND d.endpoint_id = w.endpoint_id
                           AND d.status = 0 AND d.scheduled_at <= $1)
                   ORDER BY w.bucket, w.tenant_id, w.endpoint_id";
        let due = |row: &Row| {
            Ok(DueEndpoint {
                tenant: TenantId(row.uuid(0)?),
                id: WebhookEndpointId(row.uuid(1)?),
                url: row.text(2)?.to_owned(),
                secrets: row.text(3)?.to_owned(),
                failing_since: rows::opt_instant(row, 4)?,
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
        // Rows of one endpoint after the other, in one order everywhere, so that workers do not wait for one another
        // in a circle.
        let mut ordered: Vec<&DeliveryReport> = reports.iter().collect();
        ordered.sort_by_key(|report| (report.tenant.bucket(), report.tenant, report.endpoint));
        for report in &ordered {
            statements.extend(
                report
                    .next
                    .map(|next| next_statement(report, next, self.share_w())),
            );
        }
        let touched = self.write_beside(statements).await?.unwrap_or_default();
        // In a transaction of their own: whoever shares an endpoint's row never waits to change it.
        let verdicts: Vec<Statement> = ordered
            .chunk_by(|a, b| (a.tenant, a.endpoint) == (b.tenant, b.endpoint))
            .flat_map(verdict_statements)
            .collect();
        if !verdicts.is_empty() {
            self.write_beside(verdicts).await?;
        }
        let ended = touched.iter().take(reports.len());
        Ok(ended.fold(0, |sum, rows| sum.saturating_add(*rows)))
    }

    async fn recover_deliveries(
        &self,
        lease_before: Timestamp,
        now: Timestamp,
        claim: Uuid,
        steps: i16,
    ) -> Result<u64, StoreError> {
        let any = "SELECT 1 FROM webhook_deliveries WHERE status = 1 AND lease_until < $1
                   ORDER BY lease_until LIMIT 1";
        if self.query(any, params![lease_before.millis()]).await?.is_empty() {
            return Ok(0);
        }
        // First the leases are taken over, so that a report that comes after all finds them gone.
        let take = Statement::new(
            "UPDATE webhook_deliveries SET claim = $2, lease_until = $3 WHERE status = 1 AND lease_until < $1",
            params![lease_before.millis(), claim, now.millis()],
        );
        let end = Statement::new(
            "UPDATE webhook_deliveries SET status = 3, finished_at = $1, error = $3, lease_until = NULL
             WHERE status = 1 AND lease_until = $1 AND claim = $2",
            params![now.millis(), claim, INTERRUPTED],
        );
        // The first interruption costs no step of the schedule; what is interrupted again and again comes to an end.
        let step = "d.step + CASE WHEN EXISTS (SELECT 1 FROM webhook_deliveries p WHERE p.bucket = d.bucket
                AND p.tenant_id = d.tenant_id AND p.event_seq = d.event_seq AND p.endpoint_id = d.endpoint_id
                AND p.attempt = d.attempt - 1 AND p.error = $3) THEN 1 ELSE 0 END";
        let next = Statement::new(
            format!(
                "INSERT INTO webhook_deliveries (bucket, tenant_id, event_seq, endpoint_id, attempt, step, manual_replay,
                     status, destination_url, scheduled_at)
                 SELECT d.bucket, d.tenant_id, d.event_seq, d.endpoint_id, d.attempt + 1, {step}, 0, 0, w.url,
                     CAST($1 AS BIGINT)
                 FROM webhook_deliveries d JOIN webhook_endpoints w
                     ON w.bucket = d.bucket AND w.tenant_id = d.tenant_id AND w.endpoint_id = d.endpoint_id
                 WHERE d.status = 1 AND d.lease_until = $1 AND d.claim = $2 AND w.enabled = 1 AND {step} < $4
                 {} ON CONFLICT DO NOTHING",
                self.share_w()
            ),
            params![now.millis(), claim, INTERRUPTED, steps],
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
    ) -> Result<Option<u64>, StoreError> {
        let hold = Statement::new(
            "UPDATE webhook_endpoints SET updated_at = updated_at
             WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND enabled = 1",
            endpoint_params(tenant, endpoint),
        );
        let mut statements = vec![hold.required()];
        let mut chosen = endpoint_params(tenant, endpoint);
        let (due, source) = match of {
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
                chosen.extend(params![event.0, now.millis()]);
                ("$5", ONE)
            }
            ReplayOf::Missed(span) => {
                chosen.extend(params![span.after, span.to, now.millis()]);
                ("$6", MISSED)
            }
        };
        let sql = format!(
            "INSERT INTO webhook_deliveries (bucket, tenant_id, event_seq, endpoint_id, attempt, step, manual_replay, status,
                 destination_url, scheduled_at)
             SELECT e.bucket, e.tenant_id, e.seq, w.endpoint_id,
                 1 + COALESCE((SELECT MAX(d.attempt) FROM webhook_deliveries d WHERE d.bucket = e.bucket
                     AND d.tenant_id = e.tenant_id AND d.event_seq = e.seq AND d.endpoint_id = w.endpoint_id), 0),
                 0, 1, 0, w.url, CAST({due} AS BIGINT)
             FROM {source}
             ON CONFLICT DO NOTHING"
        );
        let insert = Statement::new(sql, chosen);
        let position = statements.len();
        statements.push(match of {
            ReplayOf::One(_) => insert.required(),
            ReplayOf::Missed(_) => insert,
        });
        statements.extend(audit.map(audit_row));
        let touched = self.write_beside(statements).await?;
        Ok(touched.map(|touched| touched.get(position).copied().unwrap_or_default()))
    }
}

/// The event `$4` for endpoint `$3`, unless an attempt is under way.
const ONE: &str = "events e JOIN webhook_endpoints w ON w.bucket = e.bucket AND w.tenant_id = e.tenant_id
    WHERE e.bucket = $1 AND e.tenant_id = $2 AND w.endpoint_id = $3 AND e.id = $4
        AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.bucket = e.bucket AND d.tenant_id = e.tenant_id
            AND d.event_seq = e.seq AND d.endpoint_id = w.endpoint_id AND d.status IN (0, 1))";
