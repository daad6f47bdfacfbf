//! Writes what a batch changed; nothing is committed here.

use rusqlite::{Connection, params};
use turnpike_core::ledger::{Books, Change};
use turnpike_core::time::Timestamp;

pub(super) fn millis(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::millis)
}

/// Writes the difference; nothing is committed here.
pub(super) fn write(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    write_accounts(connection, books)?;
    write_holds(connection, books)?;
    write_claims_and_loops(connection, books)?;
    super::write_money_in::write(connection, books)?;
    super::write_drift::write(connection, books)?;
    super::write_payouts::write(connection, books)?;
    super::write_paid_calls::write(connection, books)?;
    super::write_quotes::write(connection, books)?;
    write_appended(connection, books)?;
    let mut update = connection.prepare_cached(
        "UPDATE tenants SET transfer_seq = ?3, chain = ?4, event_seq = ?5, audit_seq = ?6, audit_chain = ?7
         WHERE bucket = ?1 AND tenant_id = ?2",
    )?;
    for change in books.tenants.changes() {
        // Workspaces are added and removed by the directory, never by a batch.
        if let Change::Update(id, head) | Change::Insert(id, head) = change {
            update.execute(params![
                id.bucket(),
                id.0.as_bytes(),
                head.transfer_seq,
                head.chain,
                head.event_seq,
                head.audit_seq,
                head.audit_chain,
            ])?;
        }
    }
    Ok(())
}

fn write_accounts(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached(
        "INSERT INTO accounts (bucket, tenant_id, kind, owner, posted, held, status, day, day_spent, month, month_spent,
             freezes, open_calls)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (bucket, tenant_id, kind, owner) DO UPDATE SET posted = ?5, held = ?6, status = ?7,
             day = ?8, day_spent = ?9, month = ?10, month_spent = ?11, freezes = ?12, open_calls = ?13",
    )?;
    for change in books.accounts.changes() {
        // Accounts are never removed.
        if let Change::Insert(key, account) | Change::Update(key, account) = change {
            put.execute(params![
                key.tenant.bucket(),
                key.tenant.0.as_bytes(),
                key.kind.code(),
                key.owner_str(),
                account.posted.get(),
                account.held.get(),
                account.status.code(),
                account.day.index,
                account.day.spent.get(),
                account.month.index,
                account.month.spent.get(),
                account.freezes,
                account.open_calls,
            ])?;
        }
    }
    let mut put_user = connection.prepare_cached(
        "INSERT INTO end_users (bucket, tenant_id, external_user_id, retired, policy, created_at, open_topups,
             open_refunds, open_disputes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (bucket, tenant_id, external_user_id) DO UPDATE SET retired = ?4, policy = ?5, open_topups = ?7,
             open_refunds = ?8, open_disputes = ?9",
    )?;
    for change in books.end_users.changes() {
        // Neither are end users: a retired one keeps its row.
        if let Change::Insert((tenant, id), user) | Change::Update((tenant, id), user) = change {
            put_user.execute(params![
                tenant.bucket(),
                tenant.0.as_bytes(),
                id.as_str(),
                user.retired,
                json(&*user.policy)?,
                user.created_at.millis(),
                user.open.topups,
                user.open.refunds,
                user.open.disputes,
            ])?;
        }
    }
    Ok(())
}

pub(super) fn json<T: serde::Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn write_holds(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO holds (bucket, tenant_id, call_id, owner, amount, base, state, instance, day, month, created_at,
             dispatched_at, deadline, finished_at, charged, margin, refunded, balance_after, loss, prompt_tokens,
             completion_tokens, usage, failure, claim_scope, claim_key, loop_id, provider, endpoint, model, streamed,
             credential, attribution, price, token_id, quote_id, approval_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
             ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35,
             ?36)",
    )?;
    let mut update = connection.prepare_cached(
        "UPDATE holds SET state = ?4, dispatched_at = ?5, finished_at = ?6, charged = ?7, margin = ?8, refunded = ?9,
             balance_after = ?10, loss = ?11, prompt_tokens = ?12, completion_tokens = ?13, usage = ?14, failure = ?15
         WHERE bucket = ?1 AND tenant_id = ?2 AND call_id = ?3",
    )?;
    for change in books.holds.changes() {
        match change {
            Change::Insert((tenant, id), hold) => {
                let usage = hold.usage.unwrap_or_default();
                let claim = hold.call.claim.as_ref();
                insert.execute(params![
                    tenant.bucket(),
                    tenant.0.as_bytes(),
                    id.0.as_bytes(),
                    hold.call.payer.as_owner(),
                    hold.amount.get(),
                    hold.base.get(),
                    hold.state.code(),
                    hold.instance.as_bytes(),
                    hold.windows.0,
                    hold.windows.1,
                    hold.created_at.millis(),
                    millis(hold.dispatched_at),
                    hold.deadline.millis(),
                    millis(hold.finished_at),
                    hold.charged.get(),
                    hold.margin.get(),
                    hold.refunded.get(),
                    hold.balance_after.map(turnpike_core::money::Micros::get),
                    hold.loss.get(),
                    tokens(usage.prompt_tokens()),
                    tokens(usage.completion_tokens()),
                    hold.usage.as_ref().map(json).transpose()?,
                    hold.failure,
                    claim.map(|claim| &*claim.scope),
                    claim.map(|claim| &*claim.key),
                    hold.call.loop_id,
                    hold.subject.provider,
                    hold.subject.endpoint,
                    hold.subject.model,
                    hold.subject.streamed,
                    hold.subject.credential,
                    hold.subject.attribution,
                    hold.subject.price,
                    hold.call.token.map(|token| *token.0.as_bytes()),
                    hold.call.quote.map(|quote| *quote.0.as_bytes()),
                    hold.call.approval.map(|approval| *approval.0.as_bytes()),
                ])?;
            }
            Change::Update((tenant, id), hold) => {
                let usage = hold.usage.unwrap_or_default();
                update.execute(params![
                    tenant.bucket(),
                    tenant.0.as_bytes(),
                    id.0.as_bytes(),
                    hold.state.code(),
                    millis(hold.dispatched_at),
                    millis(hold.finished_at),
                    hold.charged.get(),
                    hold.margin.get(),
                    hold.refunded.get(),
                    hold.balance_after.map(turnpike_core::money::Micros::get),
                    hold.loss.get(),
                    tokens(usage.prompt_tokens()),
                    tokens(usage.completion_tokens()),
                    hold.usage.as_ref().map(json).transpose()?,
                    hold.failure,
                ])?;
            }
            // Holds stay as the record of their calls.
            Change::Delete(_) => {}
        }
    }
    Ok(())
}

fn tokens(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn write_claims_and_loops(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO claims (bucket, tenant_id, scope, key, fingerprint, subject) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut delete = connection.prepare_cached(
        "DELETE FROM claims WHERE bucket = ?1 AND tenant_id = ?2 AND scope = ?3 AND key = ?4",
    )?;
    for change in books.claims.changes() {
        match change {
            Change::Insert(key, claim) => {
                insert.execute(params![
                    key.tenant.bucket(),
                    key.tenant.0.as_bytes(),
                    key.scope,
                    key.key,
                    claim.fingerprint,
                    claim.subject.as_bytes()
                ])?;
            }
            Change::Delete(key) => {
                delete.execute(params![
                    key.tenant.bucket(),
                    key.tenant.0.as_bytes(),
                    key.scope,
                    key.key
                ])?;
            }
            Change::Update(key, claim) => {
                // Freed and taken again within one batch.
                delete.execute(params![
                    key.tenant.bucket(),
                    key.tenant.0.as_bytes(),
                    key.scope,
                    key.key
                ])?;
                insert.execute(params![
                    key.tenant.bucket(),
                    key.tenant.0.as_bytes(),
                    key.scope,
                    key.key,
                    claim.fingerprint,
                    claim.subject.as_bytes()
                ])?;
            }
        }
    }
    let mut count = connection.prepare_cached(
        "INSERT INTO loops (bucket, tenant_id, owner, loop_id, calls, spent) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (bucket, tenant_id, owner, loop_id) DO UPDATE SET calls = ?5, spent = ?6",
    )?;
    for change in books.loops.changes() {
        if let Change::Insert(key, counted) | Change::Update(key, counted) = change {
            count.execute(params![
                key.tenant.bucket(),
                key.tenant.0.as_bytes(),
                key.owner.as_str(),
                key.loop_id,
                tokens(counted.calls),
                counted.spent.get()
            ])?;
        }
    }
    Ok(())
}

fn write_appended(connection: &Connection, books: &Books) -> rusqlite::Result<()> {
    let mut transfer = connection.prepare_cached(
        "INSERT INTO transfers (bucket, tenant_id, seq, id, debit_kind, debit_owner, credit_kind, credit_owner, amount,
             cause, call_id, reference, attribution, debit_after, credit_after, created_at, hash)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?;
    for row in &books.transfers {
        let tenant = row.debit.tenant;
        transfer.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            row.seq,
            row.id.0.as_bytes(),
            row.debit.kind.code(),
            row.debit.owner_str(),
            row.credit.kind.code(),
            row.credit.owner_str(),
            row.amount.get(),
            row.cause.code(),
            row.call.map(|call| *call.0.as_bytes()),
            row.reference,
            row.attribution,
            row.debit_after.get(),
            row.credit_after.get(),
            row.created_at.millis(),
            row.hash,
        ])?;
    }
    let mut event = connection.prepare_cached(
        "INSERT INTO events (bucket, tenant_id, seq, id, type, created_at, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for (tenant, row) in &books.events {
        event.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            row.seq,
            row.id.0.as_bytes(),
            row.kind.code(),
            row.created_at.millis(),
            row.data
        ])?;
    }
    let mut outcome = connection.prepare_cached(
        "INSERT INTO outcomes (bucket, tenant_id, call_id, kind, body, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (tenant, call, row) in &books.outcomes {
        outcome.execute(params![
            tenant.bucket(),
            tenant.0.as_bytes(),
            call.0.as_bytes(),
            row.kind.code(),
            row.body.as_deref(),
            row.expires_at.millis()
        ])?;
    }
    let mut drift = connection.prepare_cached(
        "INSERT INTO drifts (bucket, tenant_id, call_id, kind, provider, model, detail, charged, loss, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for row in &books.drifts {
        drift.execute(params![
            row.tenant.bucket(),
            row.tenant.0.as_bytes(),
            row.call.0.as_bytes(),
            row.drift.kind.code(),
            row.provider,
            row.model,
            row.drift.detail,
            row.charged.get(),
            row.drift.loss.get(),
            row.at.millis()
        ])?;
    }
    Ok(())
}
