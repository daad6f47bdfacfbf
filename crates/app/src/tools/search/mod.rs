//! Searching the tools that are sold: an index in memory, rebuilt beside the requests when the tools change.

mod index;
mod lexicon;
mod patterns;
mod query;
mod request;
mod spelling;
mod words;

use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest as _, Sha256};

pub use self::index::{Entry, Index};
pub use self::query::{Hit, MatchQuality};
pub(crate) use self::request::{SearchRequest, search, unknown_slug};
use crate::error::AppError;
use crate::providers::Shelf;
use crate::tools::ToolEntry;

/// The index in force.
pub(crate) struct Searcher {
    shelf: Arc<Shelf>,
    current: RwLock<(u64, Arc<Index>)>,
}

impl Searcher {
    /// A searcher of what is on `shelf` now.
    pub(crate) fn new(shelf: Arc<Shelf>) -> Self {
        let current = RwLock::new((shelf.tools_revision(), Arc::new(build(&shelf))));
        Self { shelf, current }
    }

    /// The index in force.
    pub(crate) fn index(&self) -> Arc<Index> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.1.clone()
    }

    /// Makes the index anew when the tools have changed; searches go on with the old one meanwhile.
    ///
    /// # Errors
    /// When the task that makes it fails.
    pub(crate) async fn refresh(&self) -> Result<(), AppError> {
        let revision = self.shelf.tools_revision();
        if self.current.read().unwrap_or_else(PoisonError::into_inner).0 == revision {
            return Ok(());
        }
        let shelf = self.shelf.clone();
        let built = tokio::task::spawn_blocking(move || build(&shelf)).await;
        let built = built.map_err(|error| AppError::internal(&error))?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (revision, Arc::new(built));
        Ok(())
    }
}

fn build(shelf: &Shelf) -> Index {
    let tools = shelf.every_tool();
    Index::new(
        tools
            .iter()
            .map(|(provider, tool)| (provider.as_str(), &tool.definition)),
    )
}

impl Shelf {
    /// Every tool with its provider's id.
    fn every_tool(&self) -> Vec<(String, Arc<ToolEntry>)> {
        self.providers()
            .flat_map(|entry| {
                let tools = entry.tools.values();
                tools.map(|tool| (entry.provider.id().to_owned(), tool.clone()))
            })
            .collect()
    }

    /// Changes whenever a tool comes, goes or is changed.
    fn tools_revision(&self) -> u64 {
        let mut hash = Sha256::new();
        for (provider, tool) in self.every_tool() {
            for part in [&provider, &tool.definition.name, &tool.revision] {
                hash.update(part);
                hash.update([0]);
            }
        }
        let first = hash.finalize().first_chunk().copied().unwrap_or_default();
        u64::from_be_bytes(first)
    }
}
