//! Keys and settings in memory.

use async_trait::async_trait;
use turnpike_core::access::KeyHash;
use turnpike_core::ids::{KeyId, TenantId};
use turnpike_core::time::Timestamp;

use super::MemoryStore;
use crate::directory::to_json;
use crate::error::StoreError;
use crate::keys::Keys;
use crate::records::{ApiKey, AuditRow, KeyFilter, KeyPricing, TenantSettings};
use crate::settings::{Settings, StoredSettings};

fn size(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[async_trait]
impl Keys for MemoryStore {
    async fn insert_key(&self, key: &ApiKey, audits: &[AuditRow]) -> Result<(), StoreError> {
        let mut state = self.state();
        if state
            .keys
            .values()
            .any(|known| known.hash == key.hash || (known.tenant, known.id) == (key.tenant, key.id))
        {
            return Err(StoreError::AlreadyExists);
        }
        state.keys.insert((key.tenant, key.id), key.clone());
        for audit in audits {
            state.append(audit);
        }
        Ok(())
    }

    async fn find_key(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError> {
        Ok(self
            .state()
            .keys
            .values()
            .find(|key| key.hash.matches(hash))
            .cloned())
    }

    async fn find_key_by_id(&self, tenant: TenantId, key: KeyId) -> Result<Option<ApiKey>, StoreError> {
        Ok(self.state().keys.get(&(tenant, key)).cloned())
    }

    async fn list_keys(&self, tenant: TenantId, filter: &KeyFilter) -> Result<Vec<ApiKey>, StoreError> {
        let state = self.state();
        let wanted = state.keys.values().rev().filter(|key| {
            key.tenant == tenant
                && filter.before.is_none_or(|before| key.id < before)
                && !(filter.priced && key.pricing == KeyPricing::default())
        });
        Ok(wanted.take(size(filter.limit)).cloned().collect())
    }

    async fn revoke_key(
        &self,
        tenant: TenantId,
        key: KeyId,
        at: Timestamp,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        match state.keys.get_mut(&(tenant, key)) {
            Some(key) if key.revoked_at.is_none() => key.revoked_at = Some(at),
            Some(_) | None => return Ok(false),
        }
        state.take_back(tenant, &format!("key:{key}"), at);
        state.append(audit);
        Ok(true)
    }

    async fn replace_key(
        &self,
        old: KeyId,
        until: Timestamp,
        new: &ApiKey,
        audits: &[AuditRow],
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        let replaced = state.replaced_keys.contains(&old);
        match state.keys.get_mut(&(new.tenant, old)) {
            Some(key) if key.works(new.created_at) && !replaced => {
                key.expires_at = Some(key.expires_at.map_or(until, |at| at.min(until)));
            }
            Some(_) | None => return Ok(false),
        }
        state.replaced_keys.insert(old);
        state.keys.insert((new.tenant, new.id), new.clone());
        for audit in audits {
            state.append(audit);
        }
        Ok(true)
    }

    async fn set_key_pricing(
        &self,
        key: &ApiKey,
        pricing: &KeyPricing,
        audit: &AuditRow,
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        match state.keys.get_mut(&(key.tenant, key.id)) {
            Some(found) if found.pricing == key.pricing => found.pricing = pricing.clone(),
            Some(_) | None => return Ok(false),
        }
        state.append(audit);
        Ok(true)
    }

    async fn touch_keys(&self, used: &[(TenantId, KeyId, Timestamp)]) -> Result<(), StoreError> {
        let mut state = self.state();
        for (tenant, key, at) in used {
            if let Some(key) = state.keys.get_mut(&(*tenant, *key)) {
                key.last_used_at = Some(*at);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Settings for MemoryStore {
    async fn find_settings(&self, tenant: TenantId) -> Result<Option<StoredSettings>, StoreError> {
        let found = self.state().tenants.get(&tenant).cloned();
        let Some(tenant) = found else { return Ok(None) };
        let written = to_json(&tenant.settings)?;
        let settings = tenant.settings;
        Ok(Some(StoredSettings { settings, written }))
    }

    async fn replace_settings(
        &self,
        id: TenantId,
        read: &StoredSettings,
        settings: &TenantSettings,
        audits: &[AuditRow],
    ) -> Result<bool, StoreError> {
        let mut state = self.state();
        match state.tenants.get_mut(&id) {
            Some(tenant) if to_json(&tenant.settings)? == read.written => {
                tenant.settings = settings.clone();
            }
            Some(_) | None => return Ok(false),
        }
        if let Some(mut head) = state.books.tenants.get(&id).copied() {
            head.low_balance = settings.low_balance.thresholds();
            state.books.tenants.load(id, Some(head));
        }
        for audit in audits {
            state.append(audit);
        }
        Ok(true)
    }
}
