//! What is on the shelf at one moment: the configured providers, with the tools that were imported for them.
//!
//! A stock does not change; another one takes its place, and calls keep the one they began with. What is stored
//! and cannot be used is said in the log and left out: one provider's mistake takes no other's tools away.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use turnpike_store::ImportedTools;
use turnpike_upstream::{Guard, Provider, ProviderKind, ProviderSettings};

use crate::providers::ProviderEntry;
use crate::tools::{ToolDefinition, ToolEntry, is_slug};

/// What holds for providers that are imported and not configured.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportRules {
    /// Whether they may be on this machine, also over plain http: for development.
    pub allow_loopback: bool,
}

impl ImportRules {
    /// What the connection to an imported provider is made of.
    pub fn settings(self, id: &str, base_url: &str) -> ProviderSettings {
        ProviderSettings {
            id: id.to_owned(),
            kind: ProviderKind::Http,
            base_url: base_url.to_owned(),
            guard: if self.allow_loopback {
                Guard::PublicOrLoopback
            } else {
                Guard::Public
            },
            ..ProviderSettings::default()
        }
    }
}

/// The providers and their tools at one moment.
#[derive(Debug, Default)]
pub struct Stock {
    revision: i64,
    providers: BTreeMap<String, Arc<ProviderEntry>>,
    order: Vec<String>,
    /// What was imported, and what became of it.
    imported: BTreeMap<String, ([u8; 32], Arc<ProviderEntry>)>,
}

impl Stock {
    /// The configured providers, in the order in which they are asked for a model.
    pub(crate) fn configured(providers: Vec<ProviderEntry>) -> Self {
        let order = providers.iter().map(|entry| entry.provider.id().to_owned());
        Self {
            order: order.collect(),
            providers: providers
                .into_iter()
                .map(|entry| (entry.provider.id().to_owned(), Arc::new(entry)))
                .collect(),
            ..Self::default()
        }
    }

    /// The configured providers with what is imported; what `last` has made of the same rows is used again.
    pub(crate) fn restocked(
        configured: &Self,
        last: &Self,
        revision: i64,
        rows: &[ImportedTools],
        rules: ImportRules,
    ) -> Self {
        let mut stock = Self {
            revision,
            providers: configured.providers.clone(),
            order: configured.order.clone(),
            imported: BTreeMap::new(),
        };
        for row in rows {
            let print = fingerprint(row);
            let entry = match last.imported.get(&row.provider) {
                Some((same, entry)) if *same == print => entry.clone(),
                Some(_) | None => match entry(configured.providers.get(&row.provider), row, rules) {
                    Ok(entry) => Arc::new(entry),
                    Err(error) => {
                        tracing::error!(provider = row.provider, error, "imported tools are unusable");
                        continue;
                    }
                },
            };
            if !stock.providers.contains_key(&row.provider) {
                stock.order.push(row.provider.clone());
            }
            stock.providers.insert(row.provider.clone(), entry.clone());
            stock.imported.insert(row.provider.clone(), (print, entry));
        }
        stock
    }

    /// Changes whenever the tools do.
    pub const fn revision(&self) -> i64 {
        self.revision
    }

    /// The providers, in order: configured ones first.
    pub fn providers(&self) -> impl Iterator<Item = &Arc<ProviderEntry>> {
        self.order.iter().filter_map(|id| self.providers.get(id))
    }

    /// A provider by its id.
    pub fn provider(&self, id: &str) -> Option<&Arc<ProviderEntry>> {
        self.providers.get(id)
    }

    /// Every tool: its provider's id, its name, and itself.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &str, &Arc<ToolEntry>)> {
        self.providers().flat_map(|entry| {
            let tools = entry.tools.iter();
            tools.map(|(name, tool)| (entry.provider.id(), name.as_str(), tool))
        })
    }
}

fn fingerprint(row: &ImportedTools) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in [row.base_url.as_deref().unwrap_or_default(), &row.tools] {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

/// A provider with its imported tools; a configured tool goes before an imported one of its name.
fn entry(
    configured: Option<&Arc<ProviderEntry>>,
    row: &ImportedTools,
    rules: ImportRules,
) -> Result<ProviderEntry, String> {
    let mut entry = match (configured, &row.base_url) {
        (Some(entry), _) if entry.provider.kind() != ProviderKind::Http => {
            return Err("the configuration has this provider with another kind than http".to_owned());
        }
        (Some(entry), _) => ProviderEntry::clone(entry),
        (None, None) => return Err("no [[providers]] and no base URL say where it is".to_owned()),
        (None, Some(base_url)) => {
            let settings = rules.settings(&row.provider, base_url);
            ProviderEntry {
                provider: Provider::new(&settings).map_err(|error| error.to_string())?,
                total_timeout_ms: i64::try_from(settings.total_timeout.as_millis()).unwrap_or(i64::MAX),
                prices_from: row.provider.clone(),
                models: Vec::new(),
                tools: BTreeMap::new(),
            }
        }
    };
    // One by one: what a later version wrote into one definition does not take the others away.
    let definitions: Vec<serde_json::Value> =
        serde_json::from_str(&row.tools).map_err(|error| error.to_string())?;
    for definition in definitions {
        let name = definition.get("name").and_then(serde_json::Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        match tool(definition) {
            Ok(tool) => drop(entry.tools.entry(name).or_insert_with(|| Arc::new(tool))),
            Err(error) => {
                tracing::error!(
                    provider = row.provider,
                    tool = name,
                    error,
                    "an imported tool is unusable"
                );
            }
        }
    }
    Ok(entry)
}

fn tool(definition: serde_json::Value) -> Result<ToolEntry, String> {
    let definition: ToolDefinition = serde_json::from_value(definition).map_err(|error| error.to_string())?;
    if !is_slug(&definition.name) {
        return Err("its name is unusable".to_owned());
    }
    ToolEntry::new(definition)
}
