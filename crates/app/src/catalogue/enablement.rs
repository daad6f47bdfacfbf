//! Which endpoints and models may be called.
//!
//! The workspace decides first, the more specific rule before the general one; a key can only narrow what is left.

use std::collections::BTreeMap;

use serde::Serialize;
use turnpike_core::errors::ErrorCode;
use turnpike_store::{ApiKey, TenantSettings};

use crate::agents::AgentSession;
use crate::auth::Actor;
use crate::error::AppError;

/// Which rule decides whether something may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EnabledBy {
    /// The one for the endpoint or model.
    Endpoint,
    /// The one for the provider.
    Provider,
    /// None: what no rule names may be called.
    Default,
}

/// The pattern of everything that a provider has.
pub(crate) fn all_of(provider: &str) -> String {
    format!("{provider}/*")
}

/// What a workspace's rules say of a provider as a whole.
pub(crate) fn provider_enablement(catalog: &BTreeMap<String, bool>, provider: &str) -> (bool, EnabledBy) {
    catalog
        .get(&all_of(provider))
        .map_or((true, EnabledBy::Default), |enabled| {
            (*enabled, EnabledBy::Provider)
        })
}

/// What a workspace's rules say of `slug`, which is of `provider`.
pub(crate) fn enablement(catalog: &BTreeMap<String, bool>, provider: &str, slug: &str) -> (bool, EnabledBy) {
    match catalog.get(slug) {
        Some(enabled) => (*enabled, EnabledBy::Endpoint),
        None => provider_enablement(catalog, provider),
    }
}

/// What may be called: by a workspace, with a key or an agent connection if it is called with one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callable<'a> {
    settings: &'a TenantSettings,
    key: Option<&'a ApiKey>,
    agent: Option<&'a AgentSession>,
}

impl<'a> Callable<'a> {
    pub(crate) const fn new(settings: &'a TenantSettings, key: Option<&'a ApiKey>) -> Self {
        Self {
            settings,
            key,
            agent: None,
        }
    }

    /// What may be called by whoever presents a credential.
    pub(crate) fn of(actor: &'a Actor) -> Self {
        Self::new(&actor.tenant.settings, actor.key()).narrowed_to(actor.agent())
    }

    /// The same for who presents an agent connection, if somebody does.
    pub(crate) const fn narrowed_to(self, agent: Option<&'a AgentSession>) -> Self {
        Self { agent, ..self }
    }

    /// Refuses what may not be called.
    ///
    /// # Errors
    /// `ENDPOINT_DISABLED`.
    pub(crate) fn require(&self, provider: &str, slug: &str) -> Result<(), AppError> {
        let refused = |whose: &str| {
            let message = format!("{slug} is not enabled for this {whose}");
            Err(AppError::new(ErrorCode::EndpointDisabled, message))
        };
        if !enablement(&self.settings.catalog, provider, slug).0 {
            return refused("workspace");
        }
        let named = |tools: &[String]| tools.iter().any(|tool| tool == slug || *tool == all_of(provider));
        if !self.key.and_then(|key| key.tools.as_deref()).is_none_or(named) {
            return refused("key");
        }
        if !self
            .agent
            .and_then(|agent| agent.tools.as_deref())
            .is_none_or(named)
        {
            return refused("agent connection");
        }
        Ok(())
    }

    pub(crate) fn allows(&self, provider: &str, slug: &str) -> bool {
        self.require(provider, slug).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_specific_rule_decides() {
        let catalog: BTreeMap<String, bool> =
            [("up/*", false), ("up/org/m:free", true), ("tools/fetch", false)]
                .map(|(pattern, enabled)| (pattern.to_owned(), enabled))
                .into();
        for (provider, slug, expected) in [
            ("up", "up/other", (false, EnabledBy::Provider)),
            ("up", "up/org/m:free", (true, EnabledBy::Endpoint)),
            ("tools", "tools/fetch", (false, EnabledBy::Endpoint)),
            ("tools", "tools/item", (true, EnabledBy::Default)),
        ] {
            assert_eq!(enablement(&catalog, provider, slug), expected, "{slug}");
            let settings = TenantSettings {
                catalog: catalog.clone(),
                ..TenantSettings::default()
            };
            let callable = Callable::new(&settings, None);
            assert_eq!(callable.allows(provider, slug), expected.0, "{slug}");
        }
    }
}
