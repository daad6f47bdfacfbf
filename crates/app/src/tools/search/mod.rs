//! Searching the tools that are sold: an index in memory, rebuilt beside the requests when the tools change.

mod index;
mod lexicon;
mod patterns;
mod query;
mod request;
mod spelling;
mod words;

use std::sync::{Arc, PoisonError, RwLock};

pub use self::index::{Entry, Index};
pub use self::query::{Hit, MatchQuality};
pub(crate) use self::request::{SearchRequest, search, unknown_slug};
use crate::error::AppError;
use crate::providers::Shelf;
use crate::stock::Stock;

/// The index in force.
pub(crate) struct Searcher {
    shelf: Arc<Shelf>,
    current: RwLock<(i64, Arc<Index>)>,
}

impl Searcher {
    /// A searcher of what is on `shelf` now.
    pub(crate) fn new(shelf: Arc<Shelf>) -> Self {
        let stock = shelf.stock();
        let current = RwLock::new((stock.revision(), Arc::new(build(&stock))));
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
        let stock = self.shelf.stock();
        let revision = stock.revision();
        if self.current.read().unwrap_or_else(PoisonError::into_inner).0 == revision {
            return Ok(());
        }
        let built = tokio::task::spawn_blocking(move || build(&stock)).await;
        let built = built.map_err(|error| AppError::internal(&error))?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (revision, Arc::new(built));
        Ok(())
    }
}

fn build(stock: &Stock) -> Index {
    let tools = stock.tools();
    Index::new(tools.map(|(provider, _name, tool)| (provider, &tool.definition)))
}
