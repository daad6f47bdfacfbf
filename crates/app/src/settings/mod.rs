//! A workspace's settings: one document, of which prices and catalogue are parts with routes of their own.
//!
//! The rule: a change is made to what is stored now. It is worked out on the document that was read, and is written only
//! where that is still what is stored; otherwise it is worked out again.

mod document;
mod rules;

use std::sync::Arc;

use serde_json::json;
use turnpike_core::access::Scope;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::TenantId;
use turnpike_store::{Store, TenantSettings};

use crate::auth::Actor;
use crate::changes::{Author, Change};
use crate::environment::Environment;
use crate::error::AppError;

pub use self::rules::validate;

/// How often a change is worked out before the caller is asked to come back.
const TRIES: u32 = 100;

/// The use cases of settings.
pub struct SettingsDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
}

impl SettingsDesk {
    /// A desk over `store`.
    pub const fn new(store: Arc<dyn Store>, environment: Arc<dyn Environment>) -> Self {
        Self { store, environment }
    }

    /// A workspace's settings, as they are stored now.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn get(&self, tenant: TenantId) -> Result<TenantSettings, AppError> {
        let found = self.store.find_settings(tenant).await?;
        found.map(|stored| stored.settings).ok_or_else(no_such_workspace)
    }

    /// Replaces a workspace's settings by those in a request's body. Prices and catalogue stay as they are where the
    /// body is silent about them.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`; `INSUFFICIENT_SCOPE` for who changes prices or catalogue without
    /// `catalog:write`.
    pub async fn put(&self, actor: &Actor, raw: &[u8]) -> Result<TenantSettings, AppError> {
        let document = document::read(raw)?;
        let replace = |current: &TenantSettings| {
            let settings = document.clone().onto(current);
            if settings.pricing != current.pricing || settings.catalog != current.catalog {
                actor.require(Scope::CatalogWrite)?;
            }
            Ok(settings)
        };
        self.replace(&Author::of(actor), replace).await
    }

    /// Replaces a workspace's settings as a whole.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `NOT_FOUND`.
    pub(crate) async fn replace(
        &self,
        author: &Author,
        replace: impl Fn(&TenantSettings) -> Result<TenantSettings, AppError> + Sync,
    ) -> Result<TenantSettings, AppError> {
        let edit = |current: &TenantSettings| {
            let settings = replace(current)?;
            let changes = replacements(author.tenant(), current, &settings);
            Ok((settings, changes))
        };
        self.edit(author, edit).await
    }

    /// Changes a workspace's settings: `edit` says what they become and what that changes. Nothing is written when it
    /// changes nothing.
    ///
    /// # Errors
    /// `NOT_FOUND`; what `edit` says; `SERVICE_UNAVAILABLE` when others keep changing them.
    pub(crate) async fn edit(
        &self,
        author: &Author,
        edit: impl Fn(&TenantSettings) -> Result<(TenantSettings, Vec<Change>), AppError> + Sync,
    ) -> Result<TenantSettings, AppError> {
        let tenant = author.tenant();
        for _ in 0..TRIES {
            let stored = self.store.find_settings(tenant).await?;
            let stored = stored.ok_or_else(no_such_workspace)?;
            let (settings, changes) = edit(&stored.settings)?;
            if changes.is_empty() {
                return Ok(settings);
            }
            validate(&settings)?;
            let row = |change: Change| change.row(&*self.environment, author);
            let audits: Vec<_> = changes.into_iter().map(row).collect();
            if self
                .store
                .replace_settings(tenant, &stored, &settings, &audits)
                .await?
            {
                return Ok(settings);
            }
        }
        Err(AppError::unavailable())
    }
}

/// What replacing the whole document changes; prices and catalogue are told of apart.
fn replacements(tenant: TenantId, before: &TenantSettings, after: &TenantSettings) -> Vec<Change> {
    if before == after {
        return Vec::new();
    }
    let all = Change::new("tenant.settings", &tenant);
    let mut changes = vec![all.before(&json!(before)).after(&json!(after))];
    if before.pricing != after.pricing {
        let change = Change::new("pricing.replace", &tenant);
        changes.push(change.before(&json!(before.pricing)).after(&json!(after.pricing)));
    }
    if before.catalog != after.catalog {
        let change = Change::new("catalog.replace", &tenant);
        changes.push(change.before(&json!(before.catalog)).after(&json!(after.catalog)));
    }
    changes
}

fn no_such_workspace() -> AppError {
    AppError::new(ErrorCode::NotFound, "there is no such workspace")
}
