//! Workspaces, keys and end users, with the SQL that both databases share.
//!
//! Each change and its audit row are one transaction; a change that touches no row writes no audit row.

use async_trait::async_trait;
use turnpike_core::access::{KeyHash, KeyKind};
use turnpike_core::ids::{ExternalUserId, KeyId, TenantId, TokenId};
use turnpike_core::ledger::policy::EndUser;
use turnpike_core::ledger::token::EndUserToken;
use turnpike_core::ledger::{Account, AccountKind, TenantStatus, transfer};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::time::Timestamp;

use crate::audit_log::audit_row;
use crate::error::StoreError;
use crate::records::{ApiKey, AuditRow, EndUserFilter, SigningKeyRow, Tenant, TenantSettings};
use crate::rows::{self, ACCOUNT_COLUMNS, END_USER_COLUMNS, END_USER_WIDTH, TOKEN_COLUMNS, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};
use crate::traits::Directory;

const TENANT_COLUMNS: &str = "tenant_id, name, status, credits_per_dollar, settings, created_at";
const KEY_COLUMNS: &str = "k.tenant_id, k.key_id, k.kind, k.name, k.prefix, k.hash, k.scopes, k.pricing, k.tools, \
     k.created_at, k.created_by, k.expires_at, k.last_used_at, k.revoked_at";
/// Tokens removed in one transaction, so that no command waits long for it.
const PRUNED_AT_ONCE: u32 = 1_000;
/// How many columns [`tenant_columns`] are.
pub(crate) const TENANT_WIDTH: usize = 6;

fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(what.to_owned())
}

fn to_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Defect(error.to_string()))
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
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

fn key(row: &Row) -> Result<ApiKey, StoreError> {
    Ok(ApiKey {
        tenant: TenantId(row.uuid(0)?),
        id: KeyId(row.uuid(1)?),
        kind: KeyKind::from_code(row.small(2)?).ok_or_else(|| corrupt("key kind"))?,
        name: row.text(3)?.to_owned(),
        prefix: row.text(4)?.to_owned(),
        hash: KeyHash(row.hash(5)?),
        scopes: from_json(row.text(6)?)?,
        pricing: from_json(row.text(7)?)?,
        tools: row.opt_text(8)?.map(from_json).transpose()?,
        created_at: rows::instant(row, 9)?,
        created_by: row.text(10)?.to_owned(),
        expires_at: rows::opt_instant(row, 11)?,
        last_used_at: rows::opt_instant(row, 12)?,
        revoked_at: rows::opt_instant(row, 13)?,
    })
}

fn touched(counts: &[u64]) -> bool {
    counts.first().is_some_and(|count| *count > 0)
}

#[async_trait]
impl<S: Sql> Directory for S {
    async fn insert_tenant(&self, tenant: &Tenant, audit: &AuditRow) -> Result<(), StoreError> {
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
        let insert = Statement::new(
            "INSERT INTO tenants (bucket, tenant_id, name, status, settings, credits_per_dollar, transfer_seq, chain,
                 event_seq, created_at, low_pool, low_end_user)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            params,
        );
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

    async fn set_tenant_settings(
        &self,
        tenant: TenantId,
        settings: &TenantSettings,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = tenant_params(tenant);
        params.push(Param::from(to_json(settings)?));
        let low = settings.low_balance.thresholds();
        params.push(Param::from(low.pool.map(Micros::get)));
        params.push(Param::from(low.end_user.map(Micros::get)));
        let update = Statement::new(
            "UPDATE tenants SET settings = $3, low_pool = $4, low_end_user = $5
             WHERE bucket = $1 AND tenant_id = $2",
            params,
        );
        Ok(touched(&self.write(vec![update, audit_row(audit)]).await?))
    }

    async fn set_tenant_profile(
        &self,
        tenant: TenantId,
        name: &str,
        rate: CreditsPerDollar,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = tenant_params(tenant);
        params.extend(params![name, rate.get()]);
        // What credits mean cannot change once there are some.
        let update = Statement::new(
            "UPDATE tenants SET name = $3, credits_per_dollar = $4
             WHERE bucket = $1 AND tenant_id = $2 AND (credits_per_dollar = $4 OR transfer_seq = 0)",
            params,
        );
        Ok(touched(&self.write(vec![update, audit_row(audit)]).await?))
    }

    async fn insert_key(&self, key: &ApiKey, audit: &AuditRow) -> Result<(), StoreError> {
        let mut params = tenant_params(key.tenant);
        params.extend(params![
            key.id.0,
            key.kind.code(),
            &*key.name,
            &*key.prefix,
            &key.hash.0[..],
            to_json(&key.scopes)?,
            to_json(&key.pricing)?,
            key.tools.as_ref().map(to_json).transpose()?,
            key.created_at.millis(),
            &*key.created_by,
            key.expires_at.map(Timestamp::millis),
        ]);
        let insert = Statement::new(
            "INSERT INTO api_keys (bucket, tenant_id, key_id, kind, name, prefix, hash, scopes, pricing, tools,
                 created_at, created_by, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
            params,
        );
        let lookup = Statement::new(
            "INSERT INTO key_hashes (hash, tenant_id, key_id) VALUES ($1, $2, $3)",
            params![&key.hash.0[..], key.tenant.0, key.id.0],
        );
        self.write(vec![insert, lookup, audit_row(audit)]).await.map(drop)
    }

    async fn find_key(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError> {
        let lookup = "SELECT tenant_id, key_id FROM key_hashes WHERE hash = $1";
        let found = self.query(lookup, params![&hash.0[..]]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let (tenant, id) = (TenantId(row.uuid(0)?), row.uuid(1)?);
        let sql = format!(
            "SELECT {KEY_COLUMNS} FROM api_keys k WHERE k.bucket = $1 AND k.tenant_id = $2 AND k.key_id = $3"
        );
        let mut params = tenant_params(tenant);
        params.push(Param::from(id));
        let found = self.query(&sql, params).await?.first().map(key).transpose()?;
        Ok(found.filter(|key| key.hash.matches(hash)))
    }

    async fn list_keys(&self, tenant: TenantId) -> Result<Vec<ApiKey>, StoreError> {
        let sql = format!(
            "SELECT {KEY_COLUMNS} FROM api_keys k WHERE k.bucket = $1 AND k.tenant_id = $2
             ORDER BY k.created_at DESC, k.key_id DESC"
        );
        self.query(&sql, tenant_params(tenant))
            .await?
            .iter()
            .map(key)
            .collect()
    }

    async fn revoke_key(
        &self,
        tenant: TenantId,
        key: KeyId,
        at: Timestamp,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = tenant_params(tenant);
        params.extend(params![key.0, at.millis()]);
        let update = Statement::new(
            "UPDATE api_keys SET revoked_at = $4
             WHERE bucket = $1 AND tenant_id = $2 AND key_id = $3 AND revoked_at IS NULL",
            params,
        );
        Ok(touched(&self.write(vec![update, audit_row(audit)]).await?))
    }

    async fn touch_keys(&self, used: &[(TenantId, KeyId, Timestamp)]) -> Result<(), StoreError> {
        for (tenant, key, at) in used {
            let mut params = tenant_params(*tenant);
            params.extend(params![key.0, at.millis()]);
            let update = Statement::new(
                "UPDATE api_keys SET last_used_at = $4 WHERE bucket = $1 AND tenant_id = $2 AND key_id = $3",
                params,
            );
            self.write(vec![update]).await?;
        }
        Ok(())
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
        let mut total = 0_u64;
        loop {
            let params = params![before.millis(), i64::from(PRUNED_AT_ONCE)];
            let touched = self.write(vec![Statement::new(sql, params)]).await?;
            let pruned = touched.first().copied().unwrap_or_default();
            total = total.saturating_add(pruned);
            if pruned < u64::from(PRUNED_AT_ONCE) {
                return Ok(total);
            }
        }
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
