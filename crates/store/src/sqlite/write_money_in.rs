//! Writes what a batch changed about top-ups and tokens, and the rows it appends beside them.

use rusqlite::{Connection, params};
use turnpike_core::ledger::{Books, Change};
use turnpike_core::money::Micros;

use super::write::{json, millis};

/// Writes the difference; nothing is committed here.
pub(super) fn write(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    write_topups(connection, books)?;
    write_tokens(connection, books)?;
    write_audits(connection, books)
}

fn write_topups(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    for change in books.topups.changes() {
        // Top-ups are never removed.
        let (Change::Insert((tenant, id), topup) | Change::Update((tenant, id), topup)) = change else {
            continue;
        };
        let mut put = connection.prepare_cached(
            "INSERT INTO topups (bucket, tenant_id, topup_id, owner, state, unsettled, created_at, document)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (bucket, tenant_id, topup_id) DO UPDATE SET state = ?5, unsettled = ?6, document = ?8",
        )?;
        put.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            id.0.as_bytes(),
            topup.payer().as_owner(),
            topup.state.code(),
            topup.is_unsettled(),
            topup.created_at.millis(),
            json(topup)?,
        ])?;
    }
    for change in books.auto_topups.changes() {
        let (Change::Insert(tenant, auto) | Change::Update(tenant, auto)) = change else {
            continue;
        };
        let mut put = connection.prepare_cached(
            "INSERT INTO auto_topups (bucket, tenant_id, enabled, document) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (bucket, tenant_id) DO UPDATE SET enabled = ?3, document = ?4",
        )?;
        put.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            auto.enabled,
            json(auto)?
        ])?;
    }
    for (reference, tenant, id) in &books.processor_refs {
        let mut add = connection.prepare_cached(
            "INSERT INTO processor_refs (reference, tenant_id, topup_id) VALUES (?1, ?2, ?3)
             ON CONFLICT (reference) DO NOTHING",
        )?;
        add.execute(params![reference, tenant.0.as_bytes(), id.0.as_bytes()])?;
    }
    Ok(())
}

fn write_tokens(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    for change in books.tokens.changes() {
        let (Change::Insert((tenant, id), token) | Change::Update((tenant, id), token)) = change else {
            continue;
        };
        let mut put = connection.prepare_cached(
            "INSERT INTO end_user_tokens (bucket, tenant_id, token_id, owner, created_at, expires_at, revoked_at,
                 max_spend, spent, tools, kind, max_per_call)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
             ON CONFLICT (bucket, tenant_id, token_id) DO UPDATE SET revoked_at = ?7, spent = ?9",
        )?;
        put.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            id.0.as_bytes(),
            token.owner.as_owner(),
            token.created_at.millis(),
            token.expires_at.millis(),
            millis(token.revoked_at),
            token.max_spend.map(Micros::get),
            token.spent.get(),
            token.tools.as_ref().map(json).transpose()?,
            token.kind.code(),
            token.max_per_call.map(Micros::get),
        ])?;
    }
    Ok(())
}

fn write_audits(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    for row in &books.audits {
        let mut add = connection.prepare_cached(
            "INSERT INTO audit_log (bucket, tenant_id, id, at, actor, action, target, before_json, after_json, origin,
                 seq, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?;
        add.execute(params![
            row.tenant.bucket(),
            row.tenant.0.as_bytes(),
            row.id.as_bytes(),
            row.at.millis(),
            row.note.actor,
            row.note.action,
            row.note.target,
            row.note.before,
            row.note.after,
            row.note.origin,
            row.seq,
            row.hash,
        ])?;
    }
    Ok(())
}
