//! What the operator does with imported tools: takes over a document's, lists, removes.
//!
//! An import replaces what was imported for its provider before, and says what that changes. Prices that were set
//! stay where it sets none; a tool without a price is shown and cannot be called.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::pricing::EndpointPrice;
use turnpike_store::{ImportedTools, Store};

use super::definition::{ToolDefinition, is_slug};
use super::import::{ImportSource, MAX_TOOLS, matches};
use crate::environment::Environment;
use crate::error::AppError;

/// Longest id of a provider.
const MAX_ID: usize = 64;
/// How often an import is tried that another one has overtaken.
const TRIES: usize = 5;

/// Tools to be taken over.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolImport {
    /// The provider's id.
    pub provider: String,
    /// Whether the configuration says where the provider is.
    pub configured: bool,
    /// Where it is otherwise; absent = where it was before.
    pub base_url: Option<String>,
    /// The document.
    pub source: ImportSource,
    /// Its tools.
    pub tools: Vec<ToolDefinition>,
    /// Price of every tool that [`Self::prices`] has none for.
    pub price: Option<EndpointPrice>,
    /// Prices by name, or by a pattern with `*`; the longest that matches holds.
    pub prices: BTreeMap<String, EndpointPrice>,
    /// Only say what would change.
    pub dry_run: bool,
}

impl ToolImport {
    fn check(&self) -> Result<(), AppError> {
        checked_id(&self.provider)?;
        let mut names = BTreeSet::new();
        for tool in &self.tools {
            if !is_slug(&tool.name) || !names.insert(&tool.name) {
                return Err(AppError::invalid(
                    "tools",
                    format!("{:?} is no name, or stands twice", tool.name),
                ));
            }
        }
        if self.tools.is_empty() || self.tools.len() > MAX_TOOLS {
            return Err(AppError::invalid("tools", format!("must be 1 to {MAX_TOOLS}")));
        }
        for (name, price) in self.prices.iter().map(|(name, price)| (name.as_str(), price)) {
            let compiled = price.clone().compile();
            compiled.map_err(|error| AppError::invalid(name, error.to_string()))?;
        }
        let compiled = self.price.clone().map(EndpointPrice::compile).transpose();
        compiled.map_err(|error| AppError::invalid("price", error.to_string()))?;
        Ok(())
    }

    /// The price that this import sets for a tool.
    fn price_of(&self, name: &str) -> Option<&EndpointPrice> {
        let fitting = self.prices.iter().filter(|(pattern, _)| matches(pattern, name));
        let exact = |pattern: &str| (pattern == name, pattern.len());
        let best = fitting.max_by_key(|(pattern, _)| exact(pattern));
        best.map(|(_, price)| price).or(self.price.as_ref())
    }

    /// Patterns that no tool has.
    fn unmatched(&self) -> Vec<&str> {
        let any = |pattern: &str| self.tools.iter().any(|tool| matches(pattern, &tool.name));
        self.prices
            .keys()
            .map(String::as_str)
            .filter(|pattern| !any(pattern))
            .collect()
    }
}

/// The operator's imported tools.
pub(crate) struct OperatorImports<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) environment: &'a dyn Environment,
}

impl OperatorImports<'_> {
    /// Takes an import over, or says what it would change.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`; `ALREADY_EXISTS` while others import without end.
    pub(crate) async fn import(&self, import: &ToolImport) -> Result<Value, AppError> {
        import.check()?;
        for _ in 0..TRIES {
            let read = self.store.tools_revision().await?;
            let stored = self.store.list_imported_tools().await?;
            let before = stored.iter().find(|row| row.provider == import.provider);
            let base_url = match (&import.base_url, import.configured) {
                (Some(url), false) => Some(url.clone()),
                (None, false) => before.and_then(|row| row.base_url.clone()),
                (_, true) => None,
            };
            if base_url.is_none() && !import.configured {
                let message = "the provider is not configured: add it to [[providers]], or say where it is with --base-url";
                return Err(AppError::invalid("baseUrl", message));
            }
            let old = before.map(|row| definitions(&row.tools)).unwrap_or_default();
            let tools = priced(import, &old);
            let report = report(import, &old, &tools, base_url.as_deref());
            let internal = |error: serde_json::Error| AppError::internal(&error);
            let row = ImportedTools {
                provider: import.provider.clone(),
                base_url,
                source: serde_json::to_string(&import.source).map_err(internal)?,
                tools: serde_json::to_string(&tools).map_err(internal)?,
                imported_at: self.environment.now(),
            };
            if import.dry_run || self.store.put_imported_tools(&row, read).await? {
                return Ok(report);
            }
        }
        Err(AppError::new(
            ErrorCode::AlreadyExists,
            "another import is under way: try again",
        ))
    }

    /// Every provider with imported tools.
    pub(crate) async fn list(&self) -> Result<Value, AppError> {
        let view = |row: &ImportedTools| {
            let tools = definitions(&row.tools);
            let source: ImportSource = serde_json::from_str(&row.source).unwrap_or_default();
            json!({
                "provider": row.provider, "tools": tools.len(),
                "priced": tools.values().filter(|tool| tool.price.is_some()).count(),
                "baseUrl": row.base_url, "title": source.title, "version": source.version,
                "importedAt": row.imported_at,
            })
        };
        let rows = self.store.list_imported_tools().await?;
        Ok(json!({ "providers": rows.iter().map(view).collect::<Vec<_>>() }))
    }

    /// Forgets a provider's imported tools.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub(crate) async fn remove(&self, provider: &str) -> Result<Value, AppError> {
        checked_id(provider)?;
        if !self.store.remove_imported_tools(provider).await? {
            return Err(AppError::new(
                ErrorCode::NotFound,
                "nothing is imported for this provider",
            ));
        }
        Ok(json!({ "provider": provider, "removed": true }))
    }
}

fn checked_id(id: &str) -> Result<(), AppError> {
    if is_slug(id) && id.len() <= MAX_ID && id != "v1" {
        return Ok(());
    }
    let message = format!("must be [a-z0-9][a-z0-9-]* of at most {MAX_ID} characters and not v1");
    Err(AppError::invalid("provider", message))
}

/// Stored definitions by name; what this version cannot read counts as not there.
fn definitions(stored: &str) -> BTreeMap<String, ToolDefinition> {
    let all: Vec<Value> = serde_json::from_str(stored).unwrap_or_default();
    let read = all
        .into_iter()
        .filter_map(|one| serde_json::from_value::<ToolDefinition>(one).ok());
    read.map(|tool| (tool.name.clone(), tool)).collect()
}

/// The import's tools with the prices that it sets, or that were set before.
fn priced(import: &ToolImport, old: &BTreeMap<String, ToolDefinition>) -> Vec<ToolDefinition> {
    let price = |tool: &ToolDefinition| {
        let kept = || old.get(&tool.name).and_then(|before| before.price.clone());
        import.price_of(&tool.name).cloned().or_else(kept)
    };
    let tools = import.tools.iter();
    tools
        .map(|tool| ToolDefinition {
            price: price(tool),
            ..tool.clone()
        })
        .collect()
}

fn report(
    import: &ToolImport,
    old: &BTreeMap<String, ToolDefinition>,
    tools: &[ToolDefinition],
    base_url: Option<&str>,
) -> Value {
    let mut changes = Vec::new();
    let mut names = BTreeSet::new();
    for tool in tools {
        names.insert(tool.name.as_str());
        let change = |change: &str, what: &[String]| json!({ "tool": tool.name, "change": change, "what": what, "price": price_in_words(tool) });
        match old.get(&tool.name) {
            None => changes.push(change("added", &[])),
            Some(before) => {
                let what = differences(before, tool);
                if !what.is_empty() {
                    changes.push(change("changed", &what));
                }
            }
        }
    }
    for (name, tool) in old.iter().filter(|(name, _)| !names.contains(name.as_str())) {
        changes.push(json!({ "tool": name, "change": "removed", "what": [], "price": price_in_words(tool) }));
    }
    json!({
        "provider": import.provider, "baseUrl": base_url, "source": import.source, "changes": changes,
        "tools": tools.len(), "priced": tools.iter().filter(|tool| tool.price.is_some()).count(),
        "unmatchedPrices": import.unmatched(), "applied": !import.dry_run,
    })
}

/// The names of the members that differ.
fn differences(before: &ToolDefinition, after: &ToolDefinition) -> Vec<String> {
    let members = |tool: &ToolDefinition| match serde_json::to_value(tool) {
        Ok(Value::Object(members)) => members,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (before, after) = (members(before), members(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |name: &&String| before.get(*name) != after.get(*name);
    names.into_iter().filter(differs).cloned().collect()
}

fn price_in_words(tool: &ToolDefinition) -> Option<String> {
    let price = serde_json::to_value(tool.price.as_ref()?).ok()?;
    let text = |member: &str| price.get(member).and_then(Value::as_str).unwrap_or_default();
    Some(match text("kind") {
        "fixed" => text("usd").to_owned(),
        "metered" => format!("{} a unit", text("unit_usd")),
        other => other.to_owned(),
    })
}

#[cfg(test)]
#[path = "imports_tests.rs"]
mod tests;
