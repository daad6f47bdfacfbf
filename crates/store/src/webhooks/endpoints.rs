//! Endpoints: who is told.

use async_trait::async_trait;
use turnpike_core::ids::{TenantId, WebhookEndpointId};
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::{DeliveryStatus, DisabledReason, EventMask};

use super::records::{Canceling, EndpointChange, WebhookEndpoint};
use crate::audit_log::audit_row;
use crate::error::StoreError;
use crate::records::AuditRow;
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};
use crate::traits::WebhookEndpoints;

const COLUMNS: &str =
    "tenant_id, endpoint_id, url, description, event_mask, enabled, disabled_reason, disabled_at,
    failing_since, secrets, created_at, updated_at";

fn endpoint(row: &Row) -> Result<WebhookEndpoint, StoreError> {
    let disabled = if row.int(5)? == 1 {
        None
    } else {
        let reason = DisabledReason::from_code(row.small(6)?)
            .ok_or_else(|| StoreError::Corrupt("reason of a disabled endpoint".to_owned()))?;
        Some((reason, rows::instant(row, 7)?))
    };
    Ok(WebhookEndpoint {
        tenant: TenantId(row.uuid(0)?),
        id: WebhookEndpointId(row.uuid(1)?),
        url: row.text(2)?.to_owned(),
        description: row.text(3)?.to_owned(),
        mask: EventMask::from_bits(row.int(4)?),
        disabled,
        failing_since: rows::opt_instant(row, 8)?,
        secrets: row.text(9)?.to_owned(),
        created_at: rows::instant(row, 10)?,
        updated_at: rows::instant(row, 11)?,
    })
}

/// The parameters that name an endpoint: `$1` to `$3`.
pub(super) fn endpoint_params(tenant: TenantId, endpoint: WebhookEndpointId) -> Vec<Param> {
    let mut params = tenant_params(tenant);
    params.push(Param::from(endpoint.0));
    params
}

/// Holds the row of a workspace's cursor, which is made if there is none: no event is fanned out meanwhile, and what
/// reads the workspace's position afterwards reads one that no fan-out has passed.
fn hold_cursor(tenant: TenantId) -> Statement {
    Statement::new(
        "INSERT INTO webhook_cursors (bucket, tenant_id, seq)
             SELECT bucket, tenant_id, event_seq FROM tenants WHERE bucket = $1 AND tenant_id = $2
         ON CONFLICT (bucket, tenant_id) DO UPDATE SET seq = webhook_cursors.seq",
        tenant_params(tenant),
    )
    .required()
}

#[async_trait]
impl<S: Sql> WebhookEndpoints for S {
    async fn insert_webhook_endpoint(
        &self,
        endpoint: &WebhookEndpoint,
        most: u32,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = endpoint_params(endpoint.tenant, endpoint.id);
        params.extend(params![
            &*endpoint.url,
            &*endpoint.description,
            endpoint.mask.bits(),
            &*endpoint.secrets,
            endpoint.created_at.millis(),
            i64::from(most),
        ]);
        // Told of nothing that happened before.
        let insert = Statement::new(
            "INSERT INTO webhook_endpoints (bucket, tenant_id, endpoint_id, url, description, event_mask, enabled,
                 after_seq, secrets, created_at, updated_at)
             SELECT $1, $2, $3, $4, $5, $6, 1, t.event_seq, $7, $8, $8 FROM tenants t
             WHERE t.bucket = $1 AND t.tenant_id = $2
                 AND (SELECT COUNT(*) FROM webhook_endpoints
                      WHERE bucket = $1 AND tenant_id = $2 AND deleted = 0) < $9",
            params,
        );
        // The cursor also makes two of these count one after the other.
        let statements = vec![hold_cursor(endpoint.tenant), insert.required(), audit_row(audit)];
        self.write_beside(statements)
            .await
            .map(|written| written.is_some())
    }

    async fn find_webhook_endpoint(
        &self,
        tenant: TenantId,
        id: WebhookEndpointId,
    ) -> Result<Option<WebhookEndpoint>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM webhook_endpoints WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3
                 AND deleted = 0"
        );
        let found = self.query(&sql, endpoint_params(tenant, id)).await?;
        found.first().map(endpoint).transpose()
    }

    async fn list_webhook_endpoints(&self, tenant: TenantId) -> Result<Vec<WebhookEndpoint>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM webhook_endpoints WHERE bucket = $1 AND tenant_id = $2 AND deleted = 0
             ORDER BY endpoint_id"
        );
        let found = self.query(&sql, tenant_params(tenant)).await?;
        found.iter().map(endpoint).collect()
    }

    async fn change_webhook_endpoint(
        &self,
        tenant: TenantId,
        id: WebhookEndpointId,
        change: &EndpointChange,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = endpoint_params(tenant, id);
        params.extend(params![
            change.url.as_deref(),
            change.description.as_deref(),
            change.mask.map(EventMask::bits),
            audit.at.millis(),
        ]);
        // One is enabled wholly or not at all.
        let ready = if change.enabled == Some(true) {
            "AND (enabled = 1 OR canceling = 0)"
        } else {
            ""
        };
        let set = Statement::new(
            format!(
                "UPDATE webhook_endpoints SET url = COALESCE($4, url), description = COALESCE($5, description),
                     event_mask = COALESCE($6, event_mask), updated_at = $7
                 WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND deleted = 0 {ready}"
            ),
            params,
        );
        let mut statements = Vec::new();
        if change.enabled == Some(true) {
            statements.push(hold_cursor(tenant));
        }
        statements.push(set.required());
        match change.enabled {
            None => {}
            Some(true) => statements.push(Statement::new(
                "UPDATE webhook_endpoints SET enabled = 1, disabled_reason = NULL, disabled_at = NULL,
                     failing_since = NULL, after_seq = (SELECT t.event_seq FROM tenants t
                         WHERE t.bucket = $1 AND t.tenant_id = $2)
                 WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND enabled = 0 AND canceling = 0",
                endpoint_params(tenant, id),
            )),
            Some(false) => statements.push(disable(tenant, id, DisabledReason::Manual, audit.at, "")),
        }
        statements.push(audit_row(audit));
        self.write_beside(statements)
            .await
            .map(|written| written.is_some())
    }

    async fn set_webhook_secrets(
        &self,
        endpoint: &WebhookEndpoint,
        secrets: &str,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = endpoint_params(endpoint.tenant, endpoint.id);
        params.extend(params![secrets, &*endpoint.secrets, audit.at.millis()]);
        let set = Statement::new(
            "UPDATE webhook_endpoints SET secrets = $4, updated_at = $6
             WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND deleted = 0 AND secrets = $5",
            params,
        );
        let written = self.write_beside(vec![set.required(), audit_row(audit)]).await?;
        Ok(written.is_some())
    }

    async fn delete_webhook_endpoint(
        &self,
        tenant: TenantId,
        id: WebhookEndpointId,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = endpoint_params(tenant, id);
        params.push(Param::from(audit.at.millis()));
        // The row goes when nothing waits for it any more.
        let delete = Statement::new(
            "UPDATE webhook_endpoints SET deleted = 1, canceling = 1, enabled = 0, disabled_reason = 0, disabled_at = $4,
                 secrets = '[]'
             WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND deleted = 0",
            params,
        );
        let statements = vec![delete.required(), audit_row(audit)];
        self.write_beside(statements)
            .await
            .map(|written| written.is_some())
    }

    async fn list_canceling_endpoints(&self) -> Result<Vec<(TenantId, WebhookEndpointId)>, StoreError> {
        let sql = "SELECT tenant_id, endpoint_id FROM webhook_endpoints WHERE canceling = 1";
        let canceling = |row: &Row| Ok((TenantId(row.uuid(0)?), WebhookEndpointId(row.uuid(1)?)));
        self.query(sql, Vec::new()).await?.iter().map(canceling).collect()
    }

    async fn cancel_deliveries(
        &self,
        tenant: TenantId,
        id: WebhookEndpointId,
        at: Timestamp,
        most: u32,
    ) -> Result<Canceling, StoreError> {
        let hold = Statement::new(
            "UPDATE webhook_endpoints SET canceling = 1
             WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND canceling = 1",
            endpoint_params(tenant, id),
        );
        let mut params = endpoint_params(tenant, id);
        params.extend(params![
            at.millis(),
            DeliveryStatus::Canceled.code(),
            "the endpoint is not in use",
            i64::from(most),
        ]);
        // One that is being taken at this moment is left alone.
        let skip = self.skip_locked();
        let cancel = Statement::new(
            format!(
                "WITH picked AS MATERIALIZED (
                     SELECT event_seq, attempt FROM webhook_deliveries
                     WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND status = 0 AND scheduled_at >= 0
                     ORDER BY scheduled_at LIMIT $7 {skip})
                 UPDATE webhook_deliveries AS d SET status = $5, finished_at = $4, error = $6
                 FROM picked
                 WHERE d.bucket = $1 AND d.tenant_id = $2 AND d.endpoint_id = $3 AND d.event_seq = picked.event_seq
                     AND d.attempt = picked.attempt AND d.status = 0"
            ),
            params,
        );
        let Some(touched) = self.write_beside(vec![hold.required(), cancel]).await? else {
            return Ok(Canceling::Done);
        };
        if touched.last().is_some_and(|rows| *rows >= u64::from(most)) {
            return Ok(Canceling::More);
        }
        let none_waits = "bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND canceling = 1
             AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.bucket = $1 AND d.tenant_id = $2
                 AND d.endpoint_id = $3 AND d.status = 0 AND d.scheduled_at >= 0)";
        let finish = |does: &str, deleted: i64| {
            let sql = format!("{does} WHERE {none_waits} AND deleted = {deleted}");
            Statement::new(sql, endpoint_params(tenant, id))
        };
        self.write_beside(vec![
            finish("DELETE FROM webhook_endpoints", 1),
            finish("UPDATE webhook_endpoints SET canceling = 0", 0),
        ])
        .await?;
        Ok(Canceling::Done)
    }
}

/// Takes an endpoint out of use, if it is as `still` says; what waits for it is to be canceled.
pub(super) fn disable(
    tenant: TenantId,
    endpoint: WebhookEndpointId,
    reason: DisabledReason,
    at: Timestamp,
    still: &str,
) -> Statement {
    let mut params = endpoint_params(tenant, endpoint);
    params.extend(params![reason.code(), at.millis()]);
    let sql = format!(
        "UPDATE webhook_endpoints SET enabled = 0, disabled_reason = $4, disabled_at = $5, canceling = 1
         WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND enabled = 1 {still}"
    );
    Statement::new(sql, params)
}
