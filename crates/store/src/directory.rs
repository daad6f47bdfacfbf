//! Workspaces and end users, with the SQL that both databases share.
//!
//! Each change and its audit row are one transaction; a change that touches no row writes no audit row.

use async_trait::async_trait;
use turnpike_core::ids::{ExternalUserId, TenantId, TokenId};
use turnpike_core::ledger::policy::EndUser;
use turnpike_core::ledger::token::EndUserToken;
use turnpike_core::ledger::{Account, AccountKind, TenantStatus, transfer};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::time::Timestamp;

use crate::audit_log::audit_row;
use crate::error::StoreError;
use crate::records::{AuditRow, EndUserFilter, SigningKeyRow, Tenant};
use crate::rows::{self, ACCOUNT_COLUMNS, END_USER_COLUMNS, END_USER_WIDTH, TOKEN_COLUMNS, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};
use crate::traits::Directory;

const TENANT_COLUMNS: &str = "tenant_id, name, status, credits_per_dollar, settings, created_at";
/// Tokens removed in one transaction, so that no command waits long for it.
const PRUNED_AT_ONCE: u32 = 1_000;
/// How many columns [`tenant_columns`] are.
pub(crate) const TENANT_WIDTH: usize = 6;

pub(crate) fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(what.to_owned())
}

pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Defect(error.to_string()))
}

pub(crate) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| corrupt(&error.to_string()))
}

/// The columns of a workspace in the table `alias`, as [`tenant`] reads them.
pub(crate) fn tenant_columns(alias: &str) -> String {
    TENANT_COLUMNS
        .split(", ")
        .map(|column| format!("{alias}.{column}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A workspace from the first cells of a row.
pub(crate) fn tenant(row: &Row) -> Result<Tenant, StoreError> {
    Ok(Tenant {
        id: TenantId(row.uuid(0)?),
        name: row.text(1)?.to_owned(),
        status: TenantStatus::from_code(row.small(2)?).ok_or_else(|| corrupt("tenant status"))?,
        credits_per_dollar: CreditsPerDollar::try_from(row.int(3)?).map_err(corrupt)?,
        settings: from_json(row.text(4)?)?,
        created_at: rows::instant(row, 5)?,
    })
}

pub(crate) fn touched(counts: &[u64]) -> bool {
    counts.first().is_some_and(|count| *count > 0)
}

/// Adds a workspace without a past.
pub(crate) fn insert_tenant(tenant: &Tenant) -> Result<Statement, StoreError> {
    let mut params = tenant_params(tenant.id);
    params.extend(params![
        &*tenant.name,
        tenant.status.code(),
        to_json(&tenant.settings)?,
        tenant.credits_per_dollar.get(),
        0_i64,
        &transfer::GENESIS[..],
        0_i64,
        tenant.created_at.millis(),
        tenant.settings.low_balance.pool_usd.map(Micros::get),
        tenant.settings.low_balance.end_user_usd.map(Micros::get),
    ]);
    let sql = "INSERT INTO tenants (bucket, tenant_id, name, status, settings, credits_per_dollar, transfer_seq, chain,
             event_seq, created_at, low_pool, low_end_user)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    Ok(Statement::new(sql, params))
}

/// Runs `sql`, which removes at most `$2` rows from before `$1`, until there are no more; says how many there were.
pub(crate) async fn pruned<S: Sql>(
    store: &S,
    sql: &'static str,
    before: Timestamp,
) -> Result<u64, StoreError> {
    let mut total = 0_u64;
    loop {
        let params = params![before.millis(), i64::from(PRUNED_AT_ONCE)];
        let touched = store.write(vec![Statement::new(sql, params)]).await?;
        let pruned = touched.first().copied().unwrap_or_default();
        total = total.saturating_add(pruned);
        if pruned < u64::from(PRUNED_AT_ONCE) {
            return Ok(total);
        }
    }
}

#[async_trait]
impl<S: Sql> Directory for S {
    async fn insert_tenant(&self, tenant: &Tenant, audit: &AuditRow) -> Result<(), StoreError> {
        let insert = insert_tenant(tenant)?;
        self.write(vec![insert, audit_row(audit)]).await.map(drop)
    }

    async fn find_tenant(&self, id: TenantId) -> Result<Option<Tenant>, StoreError> {
        let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants WHERE bucket = $1 AND tenant_id = $2");
        self.query(&sql, tenant_params(id))
            .await?
            .first()
            .map(tenant)
            .transpose()
    }

    async fn list_tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants ORDER BY name, tenant_id");
        self.query(&sql, Vec::new()).await?.iter().map(tenant).collect()
    }

    async fn set_tenant_status(
        &self,
        tenant: TenantId,
        status: TenantStatus,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = tenant_params(tenant);
        params.push(Param::from(status.code()));
        let update = Statement::new(
            "UPDATE tenants SET status = $3 WHERE bucket = $1 AND tenant_id = $2",
            params,
        );
        Ok(touched(&self.write(vec![update, audit_row(audit)]).await?))
    }

    async fn set_tenant_profile(
        &self,
        before: &Tenant,
        after: &Tenant,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = tenant_params(after.id);
        params.extend(params![
            &*after.name,
            after.credits_per_dollar.get(),
            &*before.name,
            before.credits_per_dollar.get(),
        ]);
        // What credits mean cannot change once there are some.
        let update = Statement::new(
            "UPDATE tenants SET name = $3, credits_per_dollar = $4
             WHERE bucket = $1 AND tenant_id = $2 AND name = $5 AND credits_per_dollar = $6
                 AND (credits_per_dollar = $4 OR transfer_seq = 0)",
            params,
        );
        Ok(touched(&self.write(vec![update, audit_row(audit)]).await?))
    }

    async fn find_end_user(
        &self,
        tenant: TenantId,
        id: &ExternalUserId,
    ) -> Result<Option<EndUser>, StoreError> {
        let sql = format!(
            "SELECT {END_USER_COLUMNS} FROM end_users
             WHERE bucket = $1 AND tenant_id = $2 AND external_user_id = $3"
        );
        let mut params = tenant_params(tenant);
        params.push(Param::from(id.as_str()));
        self.query(&sql, params)
            .await?
            .first()
            .map(|row| rows::end_user(row, 0))
            .transpose()
    }

    async fn list_end_users(
        &self,
        tenant: TenantId,
        filter: &EndUserFilter,
    ) -> Result<Vec<(EndUser, Account)>, StoreError> {
        // A user who never had money has no account row: COALESCE makes it an empty account.
        let account = ACCOUNT_COLUMNS
            .split(", ")
            .map(|column| format!("COALESCE(a.{column}, 0)"))
            .collect::<Vec<_>>()
            .join(", ");
        let columns = END_USER_COLUMNS
            .split(", ")
            .map(|column| format!("u.{column}"))
            .collect::<Vec<_>>()
            .join(", ");
        // No id holds a NUL, and PostgreSQL refuses to compare one: nothing contains it, and what is behind it is
        // behind what stands before it.
        let after = filter.after.as_deref().unwrap_or_default();
        let after = after.split_once('\0').map_or(after, |(before, _)| before);
        if filter.contains.as_deref().is_some_and(|part| part.contains('\0')) {
            return Ok(Vec::new());
        }
        let mut params = tenant_params(tenant);
        params.push(Param::from(AccountKind::EndUser.code()));
        params.push(Param::from(after));
        params.push(Param::from(i64::from(filter.limit)));
        let mut narrowed = "";
        if let Some(part) = filter.contains.as_deref().filter(|part| !part.is_empty()) {
            params.push(Param::from(part));
            narrowed = "AND REPLACE(u.external_user_id, $6, '') <> u.external_user_id";
        }
        let sql = format!(
            "SELECT {columns}, {account} FROM end_users u
             LEFT JOIN accounts a ON a.bucket = u.bucket AND a.tenant_id = u.tenant_id AND a.kind = $3
                 AND a.owner = u.external_user_id
             WHERE u.bucket = $1 AND u.tenant_id = $2 AND u.external_user_id > $4 {narrowed}
             ORDER BY u.external_user_id LIMIT $5"
        );
        self.query(&sql, params)
            .await?
            .iter()
            .map(|row| Ok((rows::end_user(row, 0)?, rows::account(row, END_USER_WIDTH)?)))
            .collect()
    }

    async fn find_token(&self, tenant: TenantId, token: TokenId) -> Result<Option<EndUserToken>, StoreError> {
        let sql = format!(
            "SELECT {TOKEN_COLUMNS} FROM end_user_tokens WHERE bucket = $1 AND tenant_id = $2 AND token_id = $3"
        );
        let mut params = tenant_params(tenant);
        params.push(Param::from(token.0));
        self.query(&sql, params)
            .await?
            .first()
            .map(|row| rows::token(row, 0))
            .transpose()
    }

    async fn prune_tokens(&self, before: Timestamp) -> Result<u64, StoreError> {
        let sql = "DELETE FROM end_user_tokens WHERE (bucket, tenant_id, token_id) IN
                       (SELECT bucket, tenant_id, token_id FROM end_user_tokens
                        WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
        pruned(self, sql, before).await
    }

    async fn list_signing_keys(&self) -> Result<Vec<SigningKeyRow>, StoreError> {
        let sql = "SELECT kid, created_at, sealed FROM signing_keys ORDER BY created_at, kid";
        let key = |row: &Row| {
            Ok(SigningKeyRow {
                kid: row.text(0)?.to_owned(),
                created_at: rows::instant(row, 1)?,
                sealed: row.opt_bytes(2)?.unwrap_or_default().to_vec(),
            })
        };
        self.query(sql, Vec::new()).await?.iter().map(key).collect()
    }

    async fn insert_signing_key(&self, key: &SigningKeyRow) -> Result<(), StoreError> {
        let insert = Statement::new(
            "INSERT INTO signing_keys (kid, created_at, sealed) VALUES ($1, $2, $3)",
            params![&*key.kid, key.created_at.millis(), &key.sealed[..]],
        );
        self.write(vec![insert]).await.map(drop)
    }

    async fn delete_signing_key(&self, kid: &str) -> Result<(), StoreError> {
        let delete = Statement::new("DELETE FROM signing_keys WHERE kid = $1", params![kid]);
        self.write(vec![delete]).await.map(drop)
    }
}
