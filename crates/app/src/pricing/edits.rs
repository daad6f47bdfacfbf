//! The markup of each level below the key.

use serde_json::{Value, json};
use turnpike_core::pricing::Markup;
use turnpike_store::{KeyFilter, TenantPricing, TenantSettings};

use super::{MARKUP, PricingDesk, read_markup};
use crate::auth::Actor;
use crate::catalogue::not_found;
use crate::changes::{Author, Change};
use crate::error::AppError;
use crate::fields::Fields;

/// Most keys whose prices are shown beside the workspace's.
const MAX_KEYS: u32 = 100;

/// A level of configuration.
#[derive(Clone, Copy, Debug)]
pub enum Level<'a> {
    /// For every call.
    Global,
    /// For a provider.
    Provider(&'a str),
    /// For an endpoint or a model of a provider.
    Endpoint(&'a str, &'a str),
}

impl Level<'_> {
    const fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Provider(_) => "provider",
            Self::Endpoint(..) => "endpoint",
        }
    }

    fn target(self) -> String {
        match self {
            Self::Global => "global".to_owned(),
            Self::Provider(provider) => provider.to_owned(),
            Self::Endpoint(provider, endpoint) => format!("{provider}/{endpoint}"),
        }
    }

    /// What it says; a level that is not there says nothing.
    fn get(self, pricing: &TenantPricing) -> Markup {
        let found = match self {
            Self::Global => Some(pricing.global),
            Self::Provider(_) => pricing.providers.get(&self.target()).copied(),
            Self::Endpoint(..) => pricing.endpoints.get(&self.target()).copied(),
        };
        found.unwrap_or(Markup::NONE)
    }

    /// A level that says nothing is not kept.
    fn set(self, pricing: &mut TenantPricing, markup: Markup) {
        let level = match self {
            Self::Global => {
                pricing.global = markup;
                return;
            }
            Self::Provider(_) => &mut pricing.providers,
            Self::Endpoint(..) => &mut pricing.endpoints,
        };
        if markup == Markup::NONE {
            level.remove(&self.target());
        } else {
            level.insert(self.target(), markup);
        }
    }

    fn view(self, markup: Markup) -> Value {
        let target = match self {
            Self::Global => None,
            Self::Provider(_) | Self::Endpoint(..) => Some(self.target()),
        };
        json!({
            "level": self.name(), "target": target,
            "markupBps": markup.markup_bps, "flatMarkupUsdc": markup.flat,
        })
    }
}

fn said(markup: Markup) -> Value {
    if markup == Markup::NONE {
        Value::Null
    } else {
        json!(markup)
    }
}

impl PricingDesk {
    /// What every level says, keys included.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn levels(&self, actor: &Actor) -> Result<Value, AppError> {
        let tenant = actor.tenant.id;
        let pricing = self.settings.get(tenant).await?.pricing;
        let filter = KeyFilter {
            priced: true,
            limit: MAX_KEYS.saturating_add(1),
            ..KeyFilter::ALL
        };
        let keys = self.store.list_keys(tenant, &filter).await?;
        let most = usize::try_from(MAX_KEYS).unwrap_or(usize::MAX);
        let shown: Vec<Value> = keys
            .iter()
            .take(most)
            .map(|key| json!({ "keyId": key.id, "name": key.name, "pricing": key.pricing }))
            .collect();
        Ok(json!({
            "global": pricing.global, "providers": pricing.providers, "endpoints": pricing.endpoints,
            "keys": shown, "moreKeys": keys.len() > most,
        }))
    }

    /// Replaces what a level says by the markup in a request's body.
    ///
    /// # Errors
    /// `ENDPOINT_NOT_FOUND`, `UNKNOWN_FIELD`, `VALIDATION_ERROR`.
    pub async fn set(&self, actor: &Actor, level: Level<'_>, raw: &[u8]) -> Result<Value, AppError> {
        let markup = read_markup(&mut Fields::parse(raw, &MARKUP)?)?;
        if !self.knows(level) {
            return Err(not_found());
        }
        self.change(actor, level, markup, "pricing.set").await
    }

    /// Lets a more general level decide.
    ///
    /// # Errors
    /// `ENDPOINT_NOT_FOUND` for what is neither configured nor has a markup.
    pub async fn reset(&self, actor: &Actor, level: Level<'_>) -> Result<Value, AppError> {
        if !self.knows(level) {
            let pricing = self.settings.get(actor.tenant.id).await?.pricing;
            if level.get(&pricing) == Markup::NONE {
                return Err(not_found());
            }
        }
        self.change(actor, level, Markup::NONE, "pricing.reset").await
    }

    fn knows(&self, level: Level<'_>) -> bool {
        match level {
            Level::Global => true,
            Level::Provider(provider) => self.shelf.has_provider(provider),
            Level::Endpoint(provider, endpoint) => self.shelf.has_endpoint(provider, endpoint),
        }
    }

    async fn change(
        &self,
        actor: &Actor,
        level: Level<'_>,
        markup: Markup,
        action: &'static str,
    ) -> Result<Value, AppError> {
        let edit = |current: &TenantSettings| {
            let before = level.get(&current.pricing);
            let mut settings = current.clone();
            level.set(&mut settings.pricing, markup);
            let change = Change::new(action, &level.target());
            let change = change.before(&said(before)).after(&said(markup));
            let changes = if before == markup {
                Vec::new()
            } else {
                vec![change]
            };
            Ok((settings, changes))
        };
        let author = Author::of(actor);
        self.settings.edit(&author, edit).await?;
        Ok(level.view(markup))
    }
}
