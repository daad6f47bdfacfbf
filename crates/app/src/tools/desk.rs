//! Tools as callers find them.

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::ledger::Payer;
use turnpike_core::money::{Credits, Micros};
use turnpike_core::pricing::Explain;
use turnpike_store::Store;

use super::access::ToolAccess;
use super::search::{MatchQuality, SearchRequest, Searcher, search};
use crate::auth::Actor;
use crate::error::AppError;
use crate::pricing::explain_tool;
use crate::providers::Shelf;
use crate::tools::ToolEntry;

/// Who asks about tools, and whose balance would pay for a call.
#[derive(Clone, Debug)]
pub struct ToolCaller {
    /// Who.
    pub actor: Actor,
    /// Whose balance.
    pub payer: Payer,
}

/// The use cases of finding tools.
pub struct ToolDesk {
    pub(super) store: Arc<dyn Store>,
    pub(super) shelf: Arc<Shelf>,
    pub(super) searcher: Searcher,
}

impl ToolDesk {
    /// A desk for what is on `shelf`.
    pub fn new(store: Arc<dyn Store>, shelf: Arc<Shelf>) -> Self {
        Self {
            store,
            searcher: Searcher::new(shelf.clone()),
            shelf,
        }
    }

    /// Makes the index anew when the tools have changed.
    ///
    /// # Errors
    /// When the task that makes it fails.
    pub async fn refresh(&self) -> Result<(), AppError> {
        self.searcher.refresh().await
    }

    /// Searches tools as a request's body says: a page of them, best first.
    ///
    /// # Errors
    /// `INVALID_JSON`, `UNKNOWN_FIELD`, `VALIDATION_ERROR` (with `suggestions` for an unknown category or pack),
    /// `CURSOR_INVALID`, `END_USER_NOT_FOUND`, `END_USER_RETIRED`.
    pub async fn search(&self, caller: &ToolCaller, raw: &[u8]) -> Result<Value, AppError> {
        let request = SearchRequest::parse(raw)?;
        let access = ToolAccess::of(&*self.store, caller).await?;
        let index = self.searcher.index();
        let found = search(&index, &request, |entry| {
            let (_, tool) = self.shelf.tool(&entry.provider, &entry.endpoint).ok()?;
            Some(tool.price().is_ok() && access.allows(&entry.provider, &entry.endpoint))
        })?;
        let results: Vec<Value> = found
            .hits
            .iter()
            .filter_map(|(hit, enabled)| {
                let provider = hit.entry.provider.as_str();
                let (_, tool) = self.shelf.tool(provider, &hit.entry.endpoint).ok()?;
                let explain = explain_call(caller, provider, &tool);
                Some(tool_view(
                    caller,
                    provider,
                    &tool,
                    explain.as_ref(),
                    *enabled,
                    Some(hit.quality),
                ))
            })
            .collect();
        let mut answer = json!({
            "success": true, "results": results, "reason": found.reason, "next_cursor": found.next_cursor,
        });
        if let (Some(members), false) = (answer.as_object_mut(), found.suggestions.is_empty()) {
            members.insert("suggestions".to_owned(), json!(found.suggestions));
        }
        Ok(answer)
    }
}

/// What a call of a tool costs, as prices are explained; `None` where it has no price.
pub(super) fn explain_call(caller: &ToolCaller, provider: &str, tool: &ToolEntry) -> Option<Explain> {
    let actor = &caller.actor;
    let slug = (provider, tool.definition.name.as_str());
    explain_tool(&actor.tenant, actor.key(), slug, tool, &json!({})).ok()
}

/// What every call costs the one who pays; `None` when that is not known before the call.
pub(super) fn price_of(caller: &ToolCaller, explain: &Explain) -> Option<(Micros, Credits)> {
    if explain.dynamic || explain.estimated {
        return None;
    }
    match &caller.payer {
        Payer::Pool => explain.base_usd.zip(explain.base_credits),
        Payer::EndUser(_) => explain.effective_usd.zip(explain.effective_credits),
    }
}

/// A tool as it is shown.
pub(super) fn tool_view(
    caller: &ToolCaller,
    provider: &str,
    tool: &ToolEntry,
    explain: Option<&Explain>,
    enabled: bool,
    quality: Option<MatchQuality>,
) -> Value {
    let definition = &tool.definition;
    let price = explain.and_then(|explain| price_of(caller, explain));
    let name = if definition.title.is_empty() {
        &definition.name
    } else {
        &definition.title
    };
    let mut view = json!({
        "slug": format!("{provider}/{}", definition.name), "provider": provider, "endpoint": definition.name,
        "name": name, "summary": definition.summary, "category": definition.category, "packs": definition.packs,
        "method": tool.method(), "enabled": enabled,
        "dynamic": explain.is_some_and(|explain| explain.dynamic || explain.estimated),
        "priceUsd": price.map(|(usd, _)| usd), "priceCredits": price.map(|(_, credits)| credits),
    });
    if let (Some(members), Some(quality)) = (view.as_object_mut(), quality) {
        members.insert("matchQuality".to_owned(), json!(quality));
    }
    view
}
