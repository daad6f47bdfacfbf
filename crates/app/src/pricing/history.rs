//! What changed in prices and catalogue, when, and by whom: rows of the audit log.

use super::PricingDesk;
use crate::audit::{AuditPage, AuditQuery, AuditReader};
use crate::auth::Actor;
use crate::error::AppError;

/// What begins the actions that change prices, or what may be called.
const ACTIONS: [&str; 3] = ["pricing.", "catalog.", "key.pricing"];

impl PricingDesk {
    /// A page of changes, newest first.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn history(
        &self,
        actor: &Actor,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<AuditPage, AppError> {
        let query = AuditQuery {
            cursor: cursor.map(str::to_owned),
            limit,
            ..AuditQuery::default()
        };
        let actions = ACTIONS.map(str::to_owned).to_vec();
        AuditReader::new(self.store.clone())
            .page_of(actor, actions, &query)
            .await
    }
}
