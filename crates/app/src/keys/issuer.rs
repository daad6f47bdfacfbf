//! Making keys: the one way for members and for the operator.

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::access::{KeyPepper, KeySecret};
use turnpike_core::ids::KeyId;
use turnpike_core::time::Timestamp;
use turnpike_store::{ApiKey, AuditRow, KeyPricing, Store};

use super::{NewKey, key_view};
use crate::changes::{Author, Change};
use crate::environment::Environment;
use crate::error::AppError;

/// Makes keys and ends them.
#[derive(Clone)]
pub struct KeyIssuer {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    pepper: KeyPepper,
    brand: Arc<str>,
}

impl KeyIssuer {
    /// An issuer of keys that begin with `brand` and are hashed under `pepper`.
    pub const fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        pepper: KeyPepper,
        brand: Arc<str>,
    ) -> Self {
        Self {
            store,
            environment,
            pepper,
            brand,
        }
    }

    /// Issues a key, and shows it this once.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`.
    pub(crate) async fn issue(&self, author: &Author, new: NewKey) -> Result<Value, AppError> {
        new.check()?;
        let now = self.environment.now();
        let expires_at = new
            .expires_in
            .map(|secs| now.plus_millis(secs.saturating_mul(1000)));
        let (key, secret) = self.make(author, new, expires_at, now);
        let metadata = key_view(&key, now);
        let change = Change::new("key.create", &key.id).after(&metadata);
        let audits = self.with_pricing(vec![change], &key, author);
        self.store.insert_key(&key, &audits).await?;
        Ok(answer(&key, &secret, &metadata))
    }

    /// Issues a key in the place of `old`, which ends after `overlap_secs`; `None` = `old` does not work any more, or was
    /// replaced already.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn replace(
        &self,
        author: &Author,
        old: &ApiKey,
        overlap_secs: i64,
    ) -> Result<Option<Value>, AppError> {
        let now = self.environment.now();
        let same = NewKey {
            name: old.name.clone(),
            kind: old.kind,
            scopes: old.scopes.clone(),
            pricing: old.pricing.clone(),
            tools: old.tools.clone(),
            expires_in: None,
        };
        let (key, secret) = self.make(author, same, old.expires_at, now);
        let until = now.plus_millis(overlap_secs.saturating_mul(1000));
        let ends = old.expires_at.map_or(until, |at| at.min(until));
        let metadata = key_view(&key, now);
        let created = Change::new("key.create", &key.id).after(&metadata);
        let rotated = Change::new("key.rotate", &old.id)
            .before(&json!({ "expiresAt": old.expires_at }))
            .after(&json!({ "expiresAt": ends, "replacedBy": key.id }));
        let audits = self.with_pricing(vec![rotated, created], &key, author);
        let replaced = self.store.replace_key(old.id, until, &key, &audits).await?;
        Ok(replaced.then(|| answer(&key, &secret, &metadata)))
    }

    /// Revokes a key; `false` = there is no such key that is not revoked.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn revoke(&self, author: &Author, key: KeyId) -> Result<bool, AppError> {
        let now = self.environment.now();
        let change = Change::new("key.revoke", &key)
            .before(&json!({ "revokedAt": null }))
            .after(&json!({ "revokedAt": now }));
        let audit = change.row(&*self.environment, author);
        Ok(self.store.revoke_key(author.tenant(), key, now, &audit).await?)
    }

    fn make(
        &self,
        author: &Author,
        new: NewKey,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> (ApiKey, KeySecret) {
        let mut scopes = new.scopes;
        scopes.sort_unstable();
        scopes.dedup();
        let secret = KeySecret::generate(&self.brand, new.kind, &self.environment.random_32());
        let key = ApiKey {
            id: KeyId(self.environment.new_id()),
            tenant: author.tenant(),
            kind: new.kind,
            name: new.name,
            prefix: secret.prefix().to_owned(),
            hash: secret.hash(&self.pepper),
            scopes,
            pricing: new.pricing,
            tools: new.tools,
            created_at: now,
            created_by: author.name().to_owned(),
            expires_at,
            last_used_at: None,
            revoked_at: None,
        };
        (key, secret)
    }

    /// The rows of the audit log; a key that comes with prices changes prices.
    fn with_pricing(&self, mut changes: Vec<Change>, key: &ApiKey, author: &Author) -> Vec<AuditRow> {
        if key.pricing != KeyPricing::default() {
            changes.push(Change::new("key.pricing", &key.id).after(&json!(key.pricing)));
        }
        let row = |change: Change| change.row(&*self.environment, author);
        changes.into_iter().map(row).collect()
    }
}

/// The one answer that has the raw key.
fn answer(key: &ApiKey, secret: &KeySecret, metadata: &Value) -> Value {
    json!({ "kind": key.kind, "key": secret.reveal(), "keyMetadata": metadata })
}
