//! What changed in prices and catalogue, when, and by whom: rows of the audit log.

use serde_json::{Value, json};
use turnpike_store::{AuditFilter, AuditRecord};

use super::PricingDesk;
use crate::auth::Actor;
use crate::error::AppError;
use crate::paging::{Page, id_cursor};

/// What begins the actions that change prices, or what may be called.
const ACTIONS: [&str; 3] = ["pricing.", "catalog.", "key.pricing"];

impl PricingDesk {
    /// A page of changes, newest first.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn history(&self, actor: &Actor, cursor: Option<&str>, limit: u32) -> Result<Page, AppError> {
        let filter = AuditFilter {
            before_seq: id_cursor(cursor)?,
            actions: ACTIONS.map(str::to_owned).to_vec(),
            limit: limit.saturating_add(1),
        };
        let rows = self.store.list_audit(actor.tenant.id, &filter).await?;
        Ok(Page::cut(&rows, limit, |row| row.seq.to_string(), change_view))
    }
}

fn change_view(row: &AuditRecord) -> Value {
    let document = |text: &Option<String>| {
        text.as_deref()
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
    };
    json!({
        "id": row.id, "at": row.at, "actor": row.actor, "action": row.action, "target": row.target,
        "before": document(&row.before), "after": document(&row.after),
    })
}
