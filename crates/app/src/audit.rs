//! What was changed by whom: the log as it is shown.

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_store::{AuditFilter, AuditRecord, Store};

use crate::auth::Actor;
use crate::error::AppError;

/// Which rows of the log are asked for.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Actions that begin with this.
    pub action: Option<String>,
    /// The `next_cursor` of the page before.
    pub cursor: Option<String>,
    /// Page size.
    pub limit: u32,
}

/// A page of the log.
#[derive(Clone, Debug)]
pub struct AuditPage {
    /// Rows, newest first.
    pub rows: Vec<Value>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// Reads the log.
pub struct AuditReader {
    store: Arc<dyn Store>,
}

impl AuditReader {
    /// A reader of `store`.
    pub const fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// A page of the log of the actor's workspace.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn page(&self, actor: &Actor, query: &AuditQuery) -> Result<AuditPage, AppError> {
        let actions = query.action.clone().into_iter().collect();
        self.page_of(actor, actions, query).await
    }

    /// The same of actions that begin with one of `actions`.
    pub(crate) async fn page_of(
        &self,
        actor: &Actor,
        actions: Vec<String>,
        query: &AuditQuery,
    ) -> Result<AuditPage, AppError> {
        let invalid = || AppError::new(ErrorCode::CursorInvalid, "the cursor is not one of this list");
        let before_seq = query.cursor.as_deref().map(str::parse::<i64>).transpose();
        let before_seq = before_seq.map_err(|_no_number| invalid())?;
        if actions.iter().any(|action| action.contains('\0')) {
            // No action has one, and PostgreSQL does not take it.
            return Ok(AuditPage {
                rows: Vec::new(),
                next_cursor: None,
            });
        }
        let filter = AuditFilter {
            before_seq,
            actions,
            limit: query.limit.saturating_add(1),
        };
        let mut found = self.store.list_audit(actor.tenant.id, &filter).await?;
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let more = found.len() > limit;
        found.truncate(limit);
        let next_cursor = found.last().filter(|_| more).map(|last| last.seq.to_string());
        let rows = found.iter().map(audit_view).collect();
        Ok(AuditPage { rows, next_cursor })
    }
}

/// A row as it is shown.
pub fn audit_view(row: &AuditRecord) -> Value {
    let document = |text: &Option<String>| {
        let text = text.as_deref()?;
        Some(serde_json::from_str(text).unwrap_or_else(|_no_json| json!(text)))
    };
    let hash = hex::encode(&row.hash);
    json!({
        "id": row.id, "sequence": row.seq.to_string(), "at": row.at, "actor": row.actor, "action": row.action,
        "target": row.target, "before": document(&row.before), "after": document(&row.after),
        "origin": row.origin, "hash": (!hash.is_empty()).then_some(hash),
    })
}
