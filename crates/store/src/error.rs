//! What can go wrong below the rules.

use turnpike_core::ledger::Rejection;

/// A failure of the store itself.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached or refuses to work; nothing was written.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The same key exists already.
    #[error("already exists")]
    AlreadyExists,
    /// A stored row is not what this version writes.
    #[error("corrupt row: {0}")]
    Corrupt(String),
    /// The schema is newer than this binary, or a migration changed.
    #[error("schema: {0}")]
    Schema(String),
    /// Another process owns the store.
    #[error("{0}")]
    Locked(String),
    /// A defect: a statement the database does not understand.
    #[error("store defect: {0}")]
    Defect(String),
}

/// Why a command has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The rules refused it; nothing changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The queue is full; nothing changed.
    #[error("the ledger's queue is full")]
    Busy,
    /// The store cannot work; nothing changed.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The answer to the commit was lost: it may or may not have happened. Never a failure.
    #[error("the outcome of the commit is unknown")]
    Unknown,
}

impl From<StoreError> for SubmitError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}
