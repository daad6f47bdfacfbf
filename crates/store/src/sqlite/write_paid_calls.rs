//! Writes what a batch changed about paid calls.

use rusqlite::{Connection, params};
use turnpike_core::ledger::{Books, Change};

use super::write::{json, millis};

/// Writes the difference; nothing is committed here.
pub(super) fn write(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    for change in books.paid_calls.changes() {
        match change {
            // The claim was given up before anything was sent.
            Change::Delete((tenant, id)) => {
                let mut delete = connection.prepare_cached(
                    "DELETE FROM paid_calls WHERE bucket = ?1 AND tenant_id = ?2 AND request_id = ?3",
                )?;
                delete.execute(params![tenant.bucket(), tenant.0.as_bytes(), id.0.as_bytes()])?;
            }
            // All columns: the id may be given up and claimed again within one batch.
            Change::Insert((tenant, id), call) | Change::Update((tenant, id), call) => {
                let mut put = connection.prepare_cached(
                    "INSERT INTO paid_calls (bucket, tenant_id, request_id, state, due_at, instance, payment_key,
                         provider, base_cost, loss, created_at, ended_at, document)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
                     ON CONFLICT (bucket, tenant_id, request_id) DO UPDATE SET state = ?4, due_at = ?5, instance = ?6,
                         payment_key = ?7, provider = ?8, base_cost = ?9, loss = ?10, created_at = ?11,
                         ended_at = ?12, document = ?13",
                )?;
                let index = call.index();
                put.execute(params![
                    tenant.bucket(),
                    tenant.0.as_bytes(),
                    id.0.as_bytes(),
                    index.state,
                    index.due_at.millis(),
                    index.instance.as_bytes(),
                    index.payment_key,
                    index.provider,
                    index.base_cost.get(),
                    index.loss.get(),
                    index.created_at.millis(),
                    millis(index.ended_at),
                    json(call)?,
                ])?;
            }
        }
    }
    Ok(())
}
