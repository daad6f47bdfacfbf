//! API keys, with the SQL that both databases share.
//!
//! Each change and its audit rows are one transaction; a change that touches no row writes no audit row.

use async_trait::async_trait;
use turnpike_core::access::{KeyHash, KeyKind};
use turnpike_core::ids::{KeyId, TenantId};
use turnpike_core::time::Timestamp;

use crate::audit_log::audit_row;
use crate::directory::{corrupt, from_json, to_json};
use crate::error::StoreError;
use crate::invitations::take_back;
use crate::records::{ApiKey, AuditRow, KeyFilter, KeyPricing};
use crate::rows::{self, tenant_params};
use crate::sql::{Param, Row, Sql, Statement, params};

const KEY_COLUMNS: &str = "tenant_id, key_id, kind, name, prefix, hash, scopes, pricing, tools, created_at, created_by, \
     expires_at, last_used_at, revoked_at";

/// API keys. Every change writes its audit rows in the same transaction.
#[async_trait]
pub trait Keys: Send + Sync {
    /// Adds a key.
    async fn insert_key(&self, key: &ApiKey, audits: &[AuditRow]) -> Result<(), StoreError>;
    /// The key that hashes to `hash`.
    async fn find_key(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError>;
    /// A workspace's key.
    async fn find_key_by_id(&self, tenant: TenantId, key: KeyId) -> Result<Option<ApiKey>, StoreError>;
    /// A workspace's keys, newest first.
    async fn list_keys(&self, tenant: TenantId, filter: &KeyFilter) -> Result<Vec<ApiKey>, StoreError>;
    /// Revokes a key, and the open invitations that it made; `false` = there is no such key that is not revoked.
    async fn revoke_key(
        &self,
        tenant: TenantId,
        key: KeyId,
        at: Timestamp,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// Adds `new` in the place of `old`, which ends at `until` if it would not end before; `false` = `old` does not work
    /// any more, or was replaced already.
    async fn replace_key(
        &self,
        old: KeyId,
        until: Timestamp,
        new: &ApiKey,
        audits: &[AuditRow],
    ) -> Result<bool, StoreError>;
    /// Replaces a key's prices; `false` = they are not what `key` says any more.
    async fn set_key_pricing(
        &self,
        key: &ApiKey,
        pricing: &KeyPricing,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// Notes when keys were last used.
    async fn touch_keys(&self, used: &[(TenantId, KeyId, Timestamp)]) -> Result<(), StoreError>;
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

fn key_params(tenant: TenantId, key: KeyId) -> Vec<Param> {
    let mut params = tenant_params(tenant);
    params.push(Param::from(key.0));
    params
}

/// The row of a key, and the one that finds it by its hash.
fn inserts(key: &ApiKey) -> Result<[Statement; 2], StoreError> {
    let mut params = key_params(key.tenant, key.id);
    params.extend(params![
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
    Ok([insert, lookup])
}

#[async_trait]
impl<S: Sql> Keys for S {
    async fn insert_key(&self, key: &ApiKey, audits: &[AuditRow]) -> Result<(), StoreError> {
        let statements = inserts(key)?.into_iter().chain(audits.iter().map(audit_row));
        self.write_beside(statements.collect()).await.map(drop)
    }

    async fn find_key(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError> {
        let lookup = "SELECT tenant_id, key_id FROM key_hashes WHERE hash = $1";
        let found = self.query(lookup, params![&hash.0[..]]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let (tenant, id) = (TenantId(row.uuid(0)?), KeyId(row.uuid(1)?));
        let found = self.find_key_by_id(tenant, id).await?;
        Ok(found.filter(|key| key.hash.matches(hash)))
    }

    async fn find_key_by_id(&self, tenant: TenantId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let sql = format!(
            "SELECT {KEY_COLUMNS} FROM api_keys WHERE bucket = $1 AND tenant_id = $2 AND key_id = $3"
        );
        let found = self.query(&sql, key_params(tenant, id)).await?;
        found.first().map(key).transpose()
    }

    async fn list_keys(&self, tenant: TenantId, filter: &KeyFilter) -> Result<Vec<ApiKey>, StoreError> {
        let mut params = tenant_params(tenant);
        params.push(Param::from(i64::from(filter.limit)));
        let mut sql = format!("SELECT {KEY_COLUMNS} FROM api_keys WHERE bucket = $1 AND tenant_id = $2");
        if let Some(before) = filter.before {
            params.push(Param::from(before.0));
            sql.push_str(" AND key_id < $4");
        }
        if filter.priced {
            sql.push_str(" AND pricing <> '{}'");
        }
        // Ids begin with the time at which they were made.
        sql.push_str(" ORDER BY key_id DESC LIMIT $3");
        self.query(&sql, params).await?.iter().map(key).collect()
    }

    async fn revoke_key(
        &self,
        tenant: TenantId,
        key: KeyId,
        at: Timestamp,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = key_params(tenant, key);
        params.push(Param::from(at.millis()));
        let update = Statement::new(
            "UPDATE api_keys SET revoked_at = $4
             WHERE bucket = $1 AND tenant_id = $2 AND key_id = $3 AND revoked_at IS NULL",
            params,
        );
        let invitations = take_back(tenant, &format!("key:{key}"), at);
        let statements = vec![update.required(), invitations, audit_row(audit)];
        Ok(self.write_beside(statements).await?.is_some())
    }

    async fn replace_key(
        &self,
        old: KeyId,
        until: Timestamp,
        new: &ApiKey,
        audits: &[AuditRow],
    ) -> Result<bool, StoreError> {
        let mut params = key_params(new.tenant, old);
        params.extend(params![until.millis(), new.created_at.millis(), new.id.0]);
        let update = Statement::new(
            "UPDATE api_keys SET replaced_by = $6,
                 expires_at = CASE WHEN expires_at <= $4 THEN expires_at ELSE $4 END
             WHERE bucket = $1 AND tenant_id = $2 AND key_id = $3 AND revoked_at IS NULL AND replaced_by IS NULL
                 AND (expires_at IS NULL OR expires_at > $5)",
            params,
        );
        let statements = [update.required()].into_iter().chain(inserts(new)?);
        let statements = statements.chain(audits.iter().map(audit_row));
        Ok(self.write_beside(statements.collect()).await?.is_some())
    }

    async fn set_key_pricing(
        &self,
        key: &ApiKey,
        pricing: &KeyPricing,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut params = key_params(key.tenant, key.id);
        params.extend(params![to_json(pricing)?, to_json(&key.pricing)?]);
        let update = Statement::new(
            "UPDATE api_keys SET pricing = $4
             WHERE bucket = $1 AND tenant_id = $2 AND key_id = $3 AND pricing = $5",
            params,
        );
        let written = self
            .write_beside(vec![update.required(), audit_row(audit)])
            .await?;
        Ok(written.is_some())
    }

    async fn touch_keys(&self, used: &[(TenantId, KeyId, Timestamp)]) -> Result<(), StoreError> {
        for (tenant, key, at) in used {
            let mut params = key_params(*tenant, *key);
            params.push(Param::from(at.millis()));
            let update = Statement::new(
                "UPDATE api_keys SET last_used_at = $4 WHERE bucket = $1 AND tenant_id = $2 AND key_id = $3",
                params,
            );
            self.write_beside(vec![update]).await?;
        }
        Ok(())
    }
}
