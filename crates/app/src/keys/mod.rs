//! API keys: issued, listed, replaced and revoked.
//!
//! The raw key is in the answer that issues it and nowhere else. Members and the operator issue keys in one way, and only
//! members are bound to the scopes that they have themselves.

mod issuer;
mod request;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::access::Scope;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::KeyId;
use turnpike_store::{ApiKey, KeyFilter, KeyPricing, Store, Tenant};

pub use self::issuer::KeyIssuer;
pub(crate) use self::request::NewKey;
pub(crate) use self::view::key_view;
use crate::auth::Actor;
use crate::catalogue::Callable;
use crate::changes::{Author, Change};
use crate::environment::Environment;
use crate::error::AppError;
use crate::paging::{Page, id_cursor};
use crate::pricing::{KeyPricingIn, read_key_pricing};
use crate::providers::Shelf;

/// How often a change of a key's prices is worked out before the caller is asked to come back.
const TRIES: u32 = 20;

/// The use cases of keys.
pub struct KeyDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    issuer: KeyIssuer,
    shelf: Arc<Shelf>,
}

impl KeyDesk {
    /// A desk whose keys come from `issuer` and are for what is on `shelf`.
    pub const fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        issuer: KeyIssuer,
        shelf: Arc<Shelf>,
    ) -> Self {
        Self {
            store,
            environment,
            issuer,
            shelf,
        }
    }

    /// Issues a key. The answer has the raw key, which is never shown again.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`; `SCOPE_ESCALATION` for a scope that the caller does not have.
    pub async fn create(&self, actor: &Actor, raw: &[u8]) -> Result<Value, AppError> {
        let new = NewKey::parse(raw)?;
        new.check()?;
        require_held(actor, &new.scopes)?;
        self.check_pricing(actor, &new.pricing, &KeyPricing::default(), "pricing.endpoints")?;
        if let Some(tools) = &new.tools {
            require_enabled(&self.shelf, &actor.tenant, tools)?;
        }
        self.issuer.issue(&Author::of(actor), new).await
    }

    /// A page of the workspace's keys, newest first.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn list(&self, actor: &Actor, cursor: Option<&str>, limit: u32) -> Result<Page, AppError> {
        let filter = KeyFilter {
            before: id_cursor(cursor)?,
            limit: limit.saturating_add(1),
            ..KeyFilter::ALL
        };
        let keys = self.store.list_keys(actor.tenant.id, &filter).await?;
        let now = self.environment.now();
        Ok(Page::cut(
            &keys,
            limit,
            |key| key.id.to_string(),
            |key| key_view(key, now),
        ))
    }

    /// A key's metadata.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn get(&self, actor: &Actor, id: KeyId) -> Result<Value, AppError> {
        let key = self.find(actor, id).await?;
        Ok(key_view(&key, self.environment.now()))
    }

    /// Revokes a key; one that was revoked before stays as it is.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn revoke(&self, actor: &Actor, id: KeyId) -> Result<Value, AppError> {
        let key = self.find(actor, id).await?;
        if key.revoked_at.is_none() {
            self.issuer.revoke(&Author::of(actor), id).await?;
        }
        self.get(actor, id).await
    }

    /// Issues a key in the place of one that works, which ends when the overlap does.
    ///
    /// # Errors
    /// `NOT_FOUND`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`; `ALREADY_EXISTS` for a key that was replaced already;
    /// `SCOPE_ESCALATION` for a key with a scope that the caller does not have.
    pub async fn rotate(&self, actor: &Actor, id: KeyId, raw: &[u8]) -> Result<Value, AppError> {
        let overlap_secs = request::overlap_secs(raw)?;
        let old = self.find(actor, id).await?;
        require_held(actor, &old.scopes)?;
        let working = |key: &ApiKey| {
            let works = key.works(self.environment.now());
            works.then_some(()).ok_or_else(|| {
                AppError::new(
                    ErrorCode::ValidationError,
                    "only a key that works can be replaced",
                )
            })
        };
        working(&old)?;
        let replaced = self
            .issuer
            .replace(&Author::of(actor), &old, overlap_secs)
            .await?;
        if let Some(answer) = replaced {
            return Ok(answer);
        }
        working(&self.find(actor, id).await?)?;
        let message = "the key was replaced already: replace the one that took its place";
        Err(AppError::new(ErrorCode::AlreadyExists, message))
    }

    /// Replaces a key's prices by those in a request's body.
    ///
    /// # Errors
    /// `NOT_FOUND`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
    pub async fn set_pricing(&self, actor: &Actor, id: KeyId, raw: &[u8]) -> Result<Value, AppError> {
        let pricing = read_key_pricing(KeyPricingIn::Body(raw))?;
        let author = Author::of(actor);
        for _ in 0..TRIES {
            let mut key = self.find(actor, id).await?;
            self.check_pricing(actor, &pricing, &key.pricing, "endpoints")?;
            if key.pricing != pricing {
                let change = Change::new("key.pricing", &id)
                    .before(&json!(key.pricing))
                    .after(&json!(pricing));
                let audit = change.row(&*self.environment, &author);
                if !self.store.set_key_pricing(&key, &pricing, &audit).await? {
                    continue;
                }
                key.pricing.clone_from(&pricing);
            }
            return Ok(key_view(&key, self.environment.now()));
        }
        Err(AppError::unavailable())
    }

    async fn find(&self, actor: &Actor, id: KeyId) -> Result<ApiKey, AppError> {
        let found = self.store.find_key_by_id(actor.tenant.id, id).await?;
        found.ok_or_else(|| AppError::new(ErrorCode::NotFound, "there is no such key"))
    }

    /// A key gets prices for what its workspace can call, and for nothing else; those of `before` may stay.
    fn check_pricing(
        &self,
        actor: &Actor,
        pricing: &KeyPricing,
        before: &KeyPricing,
        path: &str,
    ) -> Result<(), AppError> {
        let callable = Callable::new(&actor.tenant.settings, None);
        let sold = |slug: &str| {
            slug.split_once('/').is_some_and(|(provider, endpoint)| {
                self.shelf.has_endpoint(provider, endpoint) && callable.allows(provider, slug)
            })
        };
        let mut new = pricing
            .endpoints
            .keys()
            .filter(|slug| !before.endpoints.contains_key(*slug));
        match new.find(|slug| !sold(slug)) {
            None => Ok(()),
            Some(slug) => Err(AppError::invalid(
                &format!("{path}.{slug}"),
                "is not enabled for this workspace",
            )),
        }
    }
}

/// Keys and agent connections are narrowed to what their workspace can call.
///
/// # Errors
/// `VALIDATION_ERROR`.
pub(crate) fn require_enabled(shelf: &Shelf, tenant: &Tenant, tools: &[String]) -> Result<(), AppError> {
    let callable = Callable::new(&tenant.settings, None);
    let items = shelf.items();
    let enabled: BTreeSet<(&str, &str)> = items
        .values()
        .filter(|item| callable.allows(&item.provider, &item.slug))
        .map(|item| (&*item.provider, &*item.endpoint))
        .collect();
    let sold = |tool: &str| match tool.split_once('/') {
        Some((provider, "*")) => enabled.iter().any(|(of, _)| *of == provider),
        Some(named) => enabled.contains(&named),
        None => false,
    };
    match tools.iter().position(|tool| !sold(tool)) {
        None => Ok(()),
        Some(at) => Err(AppError::invalid(
            &format!("tools.enable/{at}"),
            "is not enabled for this workspace",
        )),
    }
}

/// Nobody gives a key what they do not have (specification 4.7).
fn require_held(actor: &Actor, scopes: &[Scope]) -> Result<(), AppError> {
    let Some(missing) = scopes.iter().find(|scope| !actor.scopes().contains(scope)) else {
        return Ok(());
    };
    let message = format!("you cannot give a key the scope {missing}, which you do not have");
    Err(AppError::new(ErrorCode::ScopeEscalation, message).scopes(scopes, actor.scopes()))
}
