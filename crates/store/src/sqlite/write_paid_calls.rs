//! Writes what a batch changed about paid calls.

use rusqlite::{Connection, params};
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::paid_call::PaidCall;
use turnpike_core::ledger::{Books, Change};

use super::write::{json, millis};

/// Writes the difference; nothing is committed here.
pub(super) fn write(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    for change in books.paid_calls.changes() {
        match change {
            Change::Insert((tenant, id), call) => insert(connection, *tenant, *id, call)?,
            // Nothing leads back to these: it was given up and claimed again within one batch.
            Change::Update((tenant, id), call) if call.state.is_unanswered() => {
                delete(connection, *tenant, *id)?;
                insert(connection, *tenant, *id, call)?;
            }
            Change::Update((tenant, id), call) => update(connection, *tenant, *id, call)?,
            // The claim was given up before anything was sent.
            Change::Delete((tenant, id)) => delete(connection, *tenant, *id)?,
        }
    }
    Ok(())
}

fn insert(connection: &Connection, tenant: TenantId, id: RequestId, call: &PaidCall) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO paid_calls (bucket, tenant_id, request_id, state, due_at, instance, provider, base_cost, loss,
             created_at, ended_at, progress)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    let index = call.index();
    insert.execute(params![
        tenant.bucket(),
        tenant.0.as_bytes(),
        id.0.as_bytes(),
        index.state.code(),
        index.due_at.millis(),
        index.instance.as_bytes(),
        index.provider,
        index.base_cost.get(),
        index.loss.get(),
        index.created_at.millis(),
        millis(index.ended_at),
        json(&call.progress())?,
    ])?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO paid_call_terms (bucket, tenant_id, request_id, payment_key, document, signed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    insert.execute(params![
        tenant.bucket(),
        tenant.0.as_bytes(),
        id.0.as_bytes(),
        index.payment_key,
        json(&call.terms())?,
        call.payment.signed,
    ])?;
    Ok(())
}

/// Names no column that stays as it is, so that no index of it is written.
fn update(connection: &Connection, tenant: TenantId, id: RequestId, call: &PaidCall) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached(
        "UPDATE paid_calls SET state = ?4, due_at = ?5, instance = ?6, base_cost = ?7, loss = ?8, ended_at = ?9,
             progress = ?10
         WHERE bucket = ?1 AND tenant_id = ?2 AND request_id = ?3",
    )?;
    let index = call.index();
    update.execute(params![
        tenant.bucket(),
        tenant.0.as_bytes(),
        id.0.as_bytes(),
        index.state.code(),
        index.due_at.millis(),
        index.instance.as_bytes(),
        index.base_cost.get(),
        index.loss.get(),
        millis(index.ended_at),
        json(&call.progress())?,
    ])?;
    if call.leaves_what_was_signed() {
        let mut forget = connection.prepare_cached(
            "UPDATE paid_call_terms SET signed = NULL WHERE bucket = ?1 AND tenant_id = ?2 AND request_id = ?3",
        )?;
        forget.execute(params![tenant.bucket(), tenant.0.as_bytes(), id.0.as_bytes()])?;
    }
    Ok(())
}

fn delete(connection: &Connection, tenant: TenantId, id: RequestId) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM paid_calls WHERE bucket = ?1 AND tenant_id = ?2 AND request_id = ?3",
        "DELETE FROM paid_call_terms WHERE bucket = ?1 AND tenant_id = ?2 AND request_id = ?3",
    ] {
        let mut delete = connection.prepare_cached(sql)?;
        delete.execute(params![tenant.bucket(), tenant.0.as_bytes(), id.0.as_bytes()])?;
    }
    Ok(())
}
