//! Writes what a batch changed about payouts and where they go.

use rusqlite::{Connection, params};
use turnpike_core::ledger::{Books, Change};

use super::write::json;

/// Writes the difference; nothing is committed here.
pub(super) fn write(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    for change in books.payouts.changes() {
        // Payouts are never removed.
        let (Change::Insert((tenant, id), payout) | Change::Update((tenant, id), payout)) = change else {
            continue;
        };
        let mut put = connection.prepare_cached(
            "INSERT INTO payouts (bucket, tenant_id, payout_id, state, amount, reference, created_at, document)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (bucket, tenant_id, payout_id) DO UPDATE SET state = ?4, reference = ?6, document = ?8",
        )?;
        put.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            id.0.as_bytes(),
            payout.state.code(),
            payout.amount.get(),
            payout.reference,
            payout.created_at.millis(),
            json(payout)?,
        ])?;
    }
    for change in books.payout_settings.changes() {
        let (Change::Insert(tenant, settings) | Change::Update(tenant, settings)) = change else {
            continue;
        };
        let mut put = connection.prepare_cached(
            "INSERT INTO payout_settings (bucket, tenant_id, account, document) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (bucket, tenant_id) DO UPDATE SET account = ?3, document = ?4",
        )?;
        put.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            settings
                .connection
                .as_ref()
                .map(|connection| &*connection.account),
            json(settings)?,
        ])?;
    }
    Ok(())
}
