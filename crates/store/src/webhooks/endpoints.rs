//! Endpoints: who is told.

use async_trait::async_trait;
use turnpike_core::ids::{TenantId, WebhookEndpointId};
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::{DeliveryStatus, DisabledReason, EventMask};

use super::records::{EndpointChange, WebhookEndpoint};
use crate::directory::audit_row;
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

/// Cancels what waits for an endpoint that is not in use (any more).
pub(super) fn cancel_pending(tenant: TenantId, endpoint: WebhookEndpointId, at: Timestamp) -> Statement {
    let mut params = endpoint_params(tenant, endpoint);
    params.extend(params![
        at.millis(),
        DeliveryStatus::Canceled.code(),
        "the endpoint is not in use"
    ]);
    Statement::new(
        "UPDATE webhook_deliveries SET status = $5, finished_at = $4, error = $6
         WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND status = 0
             AND NOT EXISTS (SELECT 1 FROM webhook_endpoints w WHERE w.bucket = $1 AND w.tenant_id = $2
                 AND w.endpoint_id = $3 AND w.enabled = 1)",
        params,
    )
}

#[async_trait]
impl<S: Sql> WebhookEndpoints for S {
    async fn insert_webhook_endpoint(
        &self,
        endpoint: &WebhookEndpoint,
        most: u32,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        // Holds the cursor's row, so that two of these count one after the other.
        let cursor = Statement::new(
            "INSERT INTO webhook_cursors (bucket, tenant_id, seq)
                 SELECT bucket, tenant_id, event_seq FROM tenants WHERE bucket = $1 AND tenant_id = $2
             ON CONFLICT (bucket, tenant_id) DO UPDATE SET seq = webhook_cursors.seq",
            tenant_params(endpoint.tenant),
        );
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
                 AND (SELECT COUNT(*) FROM webhook_endpoints WHERE bucket = $1 AND tenant_id = $2) < $9",
            params,
        );
        let statements = vec![cursor.required(), insert.required(), audit_row(audit)];
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
            "SELECT {COLUMNS} FROM webhook_endpoints WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3"
        );
        let found = self.query(&sql, endpoint_params(tenant, id)).await?;
        found.first().map(endpoint).transpose()
    }

    async fn list_webhook_endpoints(&self, tenant: TenantId) -> Result<Vec<WebhookEndpoint>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM webhook_endpoints WHERE bucket = $1 AND tenant_id = $2 ORDER BY endpoint_id"
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
        let set = Statement::new(
            "UPDATE webhook_endpoints SET url = COALESCE($4, url), description = COALESCE($5, description),
                 event_mask = COALESCE($6, event_mask), updated_at = $7
             WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3",
            params,
        );
        let mut statements = vec![set.required()];
        if let Some(url) = &change.url {
            // What waits goes where the endpoint is now, and says so.
            let mut params = endpoint_params(tenant, id);
            params.push(Param::from(&**url));
            statements.push(Statement::new(
                "UPDATE webhook_deliveries SET destination_url = $4
                 WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND status = 0",
                params,
            ));
        }
        match change.enabled {
            None => {}
            Some(true) => statements.push(Statement::new(
                "UPDATE webhook_endpoints SET enabled = 1, disabled_reason = NULL, disabled_at = NULL,
                     failing_since = NULL, after_seq = (SELECT t.event_seq FROM tenants t
                         WHERE t.bucket = $1 AND t.tenant_id = $2)
                 WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND enabled = 0",
                endpoint_params(tenant, id),
            )),
            Some(false) => {
                statements.push(disable(tenant, id, DisabledReason::Manual, audit.at));
                statements.push(cancel_pending(tenant, id, audit.at));
            }
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
             WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND secrets = $5",
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
        let delete = Statement::new(
            "DELETE FROM webhook_endpoints WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3",
            endpoint_params(tenant, id),
        );
        let statements = vec![
            delete.required(),
            cancel_pending(tenant, id, audit.at),
            audit_row(audit),
        ];
        self.write_beside(statements)
            .await
            .map(|written| written.is_some())
    }
}

/// Takes an endpoint out of use.
pub(super) fn disable(
    tenant: TenantId,
    endpoint: WebhookEndpointId,
    reason: DisabledReason,
    at: Timestamp,
) -> Statement {
    let mut params = endpoint_params(tenant, endpoint);
    params.extend(params![reason.code(), at.millis()]);
    // A success, or somebody who enabled it, may have come between the failures and this.
    let still = match reason {
        DisabledReason::Failing => "AND failing_since < $5",
        DisabledReason::Manual | DisabledReason::Gone => "",
    };
    let sql = format!(
        "UPDATE webhook_endpoints SET enabled = 0, disabled_reason = $4, disabled_at = $5
         WHERE bucket = $1 AND tenant_id = $2 AND endpoint_id = $3 AND enabled = 1 {still}"
    );
    Statement::new(sql, params)
}
