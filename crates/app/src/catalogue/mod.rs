//! The catalogue of a workspace: what it can call, and switching parts of it on and off.

mod enablement;
mod items;

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_store::TenantSettings;

use self::enablement::provider_enablement;
pub(crate) use self::enablement::{Callable, all_of, enablement};
use self::items::Item;
use crate::auth::Actor;
use crate::changes::{Author, Change};
use crate::error::AppError;
use crate::fields::Fields;
use crate::paging::{Page, cursor_invalid};
use crate::providers::Shelf;
use crate::settings::SettingsDesk;

/// Longest cursor of the catalogue's list.
const MAX_CURSOR: usize = 512;

/// The use cases of the catalogue.
pub struct CatalogueDesk {
    settings: Arc<SettingsDesk>,
    shelf: Arc<Shelf>,
}

/// What is switched.
#[derive(Clone, Copy, Debug)]
pub enum Switched<'a> {
    /// Everything that a provider has and no rule of its own names.
    Provider(&'a str),
    /// An endpoint or a model of a provider.
    Endpoint(&'a str, &'a str),
}

impl Switched<'_> {
    fn pattern(self) -> String {
        match self {
            Self::Provider(provider) => all_of(provider),
            Self::Endpoint(provider, endpoint) => format!("{provider}/{endpoint}"),
        }
    }
}

impl CatalogueDesk {
    /// A desk over the settings of workspaces, for what is on `shelf`.
    pub const fn new(settings: Arc<SettingsDesk>, shelf: Arc<Shelf>) -> Self {
        Self { settings, shelf }
    }

    /// A page of everything that is configured, by slug.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn list(&self, actor: &Actor, cursor: Option<&str>, limit: u32) -> Result<Page, AppError> {
        if cursor.is_some_and(|cursor| cursor.len() > MAX_CURSOR) {
            return Err(cursor_invalid());
        }
        let settings = self.settings.get(actor.tenant.id).await?;
        let most = usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(1);
        let items: Vec<Item> = self
            .shelf
            .items()
            .into_values()
            .filter(|item| cursor.is_none_or(|cursor| *item.slug > *cursor))
            .take(most)
            .collect();
        Ok(Page::cut(
            &items,
            limit,
            |item| item.slug.clone(),
            |item| item_view(&settings, item),
        ))
    }

    /// Switches something on or off, as the request's body says.
    ///
    /// # Errors
    /// `ENDPOINT_NOT_FOUND`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
    pub async fn switch(&self, actor: &Actor, what: Switched<'_>, raw: &[u8]) -> Result<Value, AppError> {
        let mut fields = Fields::parse(raw, &["enabled"])?;
        let enabled = fields.required("enabled", Fields::boolean)?;
        if !self.knows(what) {
            return Err(not_found());
        }
        self.set(actor, what, Some(enabled)).await
    }

    /// Takes the rule away, so that the more general one decides.
    ///
    /// # Errors
    /// `ENDPOINT_NOT_FOUND` for what is neither configured nor has a rule.
    pub async fn reset(&self, actor: &Actor, what: Switched<'_>) -> Result<Value, AppError> {
        if !self.knows(what) {
            let settings = self.settings.get(actor.tenant.id).await?;
            if !settings.catalog.contains_key(&what.pattern()) {
                return Err(not_found());
            }
        }
        self.set(actor, what, None).await
    }

    fn knows(&self, what: Switched<'_>) -> bool {
        match what {
            Switched::Provider(provider) => self.shelf.has_provider(provider),
            Switched::Endpoint(provider, endpoint) => self.shelf.has_endpoint(provider, endpoint),
        }
    }

    async fn set(&self, actor: &Actor, what: Switched<'_>, rule: Option<bool>) -> Result<Value, AppError> {
        let pattern = what.pattern();
        let edit = |current: &TenantSettings| {
            let before = current.catalog.get(&pattern).copied();
            let mut settings = current.clone();
            match rule {
                Some(enabled) => settings.catalog.insert(pattern.clone(), enabled),
                None => settings.catalog.remove(&pattern),
            };
            let action = if rule.is_some() {
                "catalog.set"
            } else {
                "catalog.reset"
            };
            let change = Change::new(action, &pattern);
            let change = change.before(&json!(before)).after(&json!(rule));
            let changes = if before == rule { Vec::new() } else { vec![change] };
            Ok((settings, changes))
        };
        let author = Author::of(actor);
        let settings = self.settings.edit(&author, edit).await?;
        Ok(self.view(&settings, what))
    }

    fn view(&self, settings: &TenantSettings, what: Switched<'_>) -> Value {
        match what {
            Switched::Provider(provider) => {
                let (enabled, by) = provider_enablement(&settings.catalog, provider);
                json!({ "slug": all_of(provider), "provider": provider, "enabled": enabled, "enabledBy": by })
            }
            Switched::Endpoint(provider, _) => {
                let slug = what.pattern();
                self.shelf.items().get(&slug).map_or_else(
                    || {
                        let (enabled, by) = enablement(&settings.catalog, provider, &slug);
                        json!({ "slug": slug, "provider": provider, "enabled": enabled, "enabledBy": by })
                    },
                    |item| item_view(settings, item),
                )
            }
        }
    }
}

fn item_view(settings: &TenantSettings, item: &Item) -> Value {
    let (enabled, by) = enablement(&settings.catalog, &item.provider, &item.slug);
    json!({
        "slug": item.slug, "provider": item.provider, "endpoint": item.endpoint, "kind": item.kind,
        "name": item.name, "enabled": enabled, "enabledBy": by, "dynamic": item.dynamic,
    })
}

pub(crate) fn not_found() -> AppError {
    let message = "there is no such provider or endpoint";
    AppError::new(ErrorCode::EndpointNotFound, message)
}
