//! Writes what a batch changed about windows of usage drift.

use rusqlite::{Connection, params};
use turnpike_core::ledger::{Books, Change};

use super::write::json;

/// Writes the difference; nothing is committed here.
pub(super) fn write(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    for change in books.drift_windows.changes() {
        // Windows are never removed.
        let (Change::Insert(key, window) | Change::Update(key, window)) = change else {
            continue;
        };
        let mut put = connection.prepare_cached(
            "INSERT INTO drift_windows (bucket, tenant_id, provider, day, state, document)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (bucket, tenant_id, provider, day) DO UPDATE SET state = ?5, document = ?6",
        )?;
        put.execute(params![
            key.tenant.bucket(),
            key.tenant.0.as_bytes(),
            key.provider,
            key.day.number(),
            window.state.code(),
            json(window)?,
        ])?;
    }
    Ok(())
}
