//! What changes of people leave in the logs of their workspaces.
//!
//! A transaction appends to one log. So the change is written with the row of one workspace; those of the others
//! follow, and when one cannot be written, the change stands: what it shows once, such as recovery codes, is shown.

use std::sync::Arc;
use std::time::Duration;

use turnpike_store::{AuditRow, Member, Store, StoreError, Tenant};

use super::PeopleDesk;
use crate::changes::Author;
use crate::error::AppError;

/// When a row that could not be written is tried again.
const AGAIN_AFTER: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_mins(1),
    Duration::from_mins(10),
];

/// The rows of one change.
pub(super) struct Notes {
    /// The one that is written with the change; none for somebody without a workspace.
    pub(super) first: Option<AuditRow>,
    /// Those that follow.
    pub(super) others: Vec<AuditRow>,
}

impl PeopleDesk {
    /// A row in each workspace of `subject`.
    pub(super) async fn notes(
        &self,
        subject: &str,
        action: &'static str,
        actor: &str,
        origin: &str,
    ) -> Result<Notes, AppError> {
        let row = |(member, _): &(Member, Tenant)| {
            let author = Author::named(member.tenant, actor, origin);
            author.row(&*self.environment, action, subject.to_owned())
        };
        let memberships = self.store.list_memberships(subject).await?;
        let mut rows = memberships.iter().map(row);
        Ok(Notes {
            first: rows.next(),
            others: rows.collect(),
        })
    }

    /// Writes the rows that follow a change. What fails is logged, and tried a few times more in the background.
    pub(super) async fn note(&self, rows: Vec<AuditRow>) {
        for row in rows {
            if !is_noted(&*self.store, &row).await {
                tokio::spawn(note_later(self.store.clone(), row));
            }
        }
    }
}

async fn note_later(store: Arc<dyn Store>, row: AuditRow) {
    for pause in AGAIN_AFTER {
        tokio::time::sleep(pause).await;
        if is_noted(&*store, &row).await {
            return;
        }
    }
}

/// Writes a row; `false` = it has to be tried again. One that is there was written by a try whose answer was lost.
async fn is_noted(store: &dyn Store, row: &AuditRow) -> bool {
    match store.append_audit(row).await {
        Ok(()) | Err(StoreError::AlreadyExists) => true,
        Err(error) => {
            let (tenant, action, target) = (row.tenant, row.action, &row.target);
            tracing::error!(%tenant, action, target, %error, "a row of the audit log could not be written");
            false
        }
    }
}
