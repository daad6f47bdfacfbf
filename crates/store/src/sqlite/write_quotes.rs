//! Writes what a batch changed about quotes and approvals.

use rusqlite::{Connection, params};
use turnpike_core::ledger::{Books, Change};

use super::write::json;

/// Writes the difference; nothing is committed here. No batch removes any.
pub(super) fn write(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    for change in books.quotes.changes() {
        let (Change::Insert((tenant, id), quote) | Change::Update((tenant, id), quote)) = change else {
            continue;
        };
        let mut put = connection.prepare_cached(
            "INSERT INTO quotes (bucket, tenant_id, quote_id, state, owner, expires_at, document)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (bucket, tenant_id, quote_id) DO UPDATE SET state = ?4, expires_at = ?6, document = ?7",
        )?;
        let index = quote.index();
        put.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            id.0.as_bytes(),
            index.state,
            index.owner,
            index.expires_at.millis(),
            json(quote)?,
        ])?;
    }
    for change in books.approvals.changes() {
        let (Change::Insert((tenant, id), approval) | Change::Update((tenant, id), approval)) = change else {
            continue;
        };
        let mut put = connection.prepare_cached(
            "INSERT INTO approvals (bucket, tenant_id, approval_id, state, is_open, owner, subject, expires_at, document)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (bucket, tenant_id, approval_id) DO UPDATE SET state = ?4, is_open = ?5, expires_at = ?8,
                 document = ?9",
        )?;
        let index = approval.index();
        put.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            id.0.as_bytes(),
            index.state,
            index.open,
            index.owner,
            index.subject,
            index.expires_at.millis(),
            json(approval)?,
        ])?;
    }
    Ok(())
}
