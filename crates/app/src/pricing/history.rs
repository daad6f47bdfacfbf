//! What changed in prices and catalogue, when, and by whom: rows of the audit log.

use serde_json::{Value, json};
use turnpike_store::PriceChangeRow;
use uuid::Uuid;

use super::PricingDesk;
use crate::auth::Actor;
use crate::error::AppError;
use crate::paging::{Page, id_cursor};

impl PricingDesk {
    /// A page of changes, newest first.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn history(&self, actor: &Actor, cursor: Option<&str>, limit: u32) -> Result<Page, AppError> {
        let before: Option<Uuid> = id_cursor(cursor)?;
        let rows = self
            .store
            .list_price_changes(actor.tenant.id, before, limit.saturating_add(1))
            .await?;
        Ok(Page::cut(&rows, limit, |row| row.id.to_string(), change_view))
    }
}

fn change_view(row: &PriceChangeRow) -> Value {
    let document = |text: &Option<String>| {
        text.as_deref()
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
    };
    json!({
        "id": row.id, "at": row.at, "actor": row.actor, "action": row.action, "target": row.target,
        "before": document(&row.before), "after": document(&row.after),
    })
}
