//! Loads the rows that a batch needs and that are not known yet.

use rusqlite::{Connection, OptionalExtension, params};
use turnpike_core::ids::{ApprovalId, ExternalUserId, QuoteId, TenantId, TokenId};
use turnpike_core::ledger::{Books, Needs};

use super::convert::row;
use crate::error::StoreError;
use crate::paid_calls::{PAID_CALL_COLUMNS, PAID_CALL_TABLES, paid_call};
use crate::rows::{
    self, ACCOUNT_COLUMNS, END_USER_COLUMNS, HOLD_COLUMNS, TENANT_HEAD_COLUMNS, TOKEN_COLUMNS, TOKEN_WIDTH,
};
use crate::sql::Row;

fn read<T>(
    found: Option<Row>,
    decode: impl FnOnce(&Row) -> Result<T, StoreError>,
) -> rusqlite::Result<Option<T>> {
    found
        .map(|row| decode(&row))
        .transpose()
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// Asks for each of `$keys` that `$table` does not know; the statement is prepared for the first of them.
macro_rules! load_missing {
    ($connection:ident, $table:expr, $keys:expr, $sql:literal, |$key:ident| $params:expr, $decode:expr) => {{
        let mut prepared = None;
        for $key in $keys {
            if $table.is_loaded($key) {
                continue;
            }
            let statement = match &mut prepared {
                Some(statement) => statement,
                none => none.insert($connection.prepare_cached(&format!($sql))?),
            };
            let found = statement.query_row($params, row).optional()?;
            $table.load($key.clone(), read(found, $decode)?);
        }
    }};
}

/// Loads every row of `needs` that `books` does not know.
pub(super) fn load(connection: &Connection, books: &mut Books, needs: &Needs) -> rusqlite::Result<()> {
    load_missing!(
        connection,
        books.tenants,
        &needs.tenants,
        "SELECT {TENANT_HEAD_COLUMNS} FROM tenants WHERE bucket = ?1 AND tenant_id = ?2",
        |tenant| params![tenant.bucket(), tenant.0.as_bytes()],
        |row| rows::tenant_head(row, 0)
    );
    load_missing!(
        connection,
        books.accounts,
        &needs.accounts,
        "SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE bucket = ?1 AND tenant_id = ?2 AND kind = ?3 AND owner = ?4",
        |key| params![
            key.tenant.bucket(),
            key.tenant.0.as_bytes(),
            key.kind.code(),
            key.owner_str()
        ],
        |row| rows::account(row, 0)
    );
    load_missing!(
        connection,
        books.end_users,
        &needs.end_users,
        "SELECT {END_USER_COLUMNS} FROM end_users WHERE bucket = ?1 AND tenant_id = ?2 AND external_user_id = ?3",
        |key| params![key.0.bucket(), key.0.0.as_bytes(), key.1.as_str()],
        |row| rows::end_user(row, 0)
    );
    load_missing!(
        connection,
        books.holds,
        &needs.holds,
        "SELECT {HOLD_COLUMNS} FROM holds WHERE bucket = ?1 AND tenant_id = ?2 AND call_id = ?3",
        |key| params![key.0.bucket(), key.0.0.as_bytes(), key.1.0.as_bytes()],
        |row| Ok(rows::hold(row)?.1)
    );
    load_missing!(
        connection,
        books.claims,
        &needs.claims,
        "SELECT fingerprint, subject FROM claims WHERE bucket = ?1 AND tenant_id = ?2 AND scope = ?3 AND key = ?4",
        |key| params![key.tenant.bucket(), key.tenant.0.as_bytes(), key.scope, key.key],
        |row| rows::claim(row, 0)
    );
    load_missing!(
        connection,
        books.loops,
        &needs.loops,
        "SELECT calls, spent FROM loops WHERE bucket = ?1 AND tenant_id = ?2 AND owner = ?3 AND loop_id = ?4",
        |key| params![
            key.tenant.bucket(),
            key.tenant.0.as_bytes(),
            key.owner.as_str(),
            key.loop_id
        ],
        |row| rows::loop_count(row, 0)
    );
    load_missing!(
        connection,
        books.topups,
        &needs.topups,
        "SELECT document FROM topups WHERE bucket = ?1 AND tenant_id = ?2 AND topup_id = ?3",
        |key| params![key.0.bucket(), key.0.0.as_bytes(), key.1.0.as_bytes()],
        |row| rows::document(row, 0)
    );
    load_missing!(
        connection,
        books.auto_topups,
        &needs.auto_topups,
        "SELECT document FROM auto_topups WHERE bucket = ?1 AND tenant_id = ?2",
        |tenant| params![tenant.bucket(), tenant.0.as_bytes()],
        |row| rows::document(row, 0)
    );
    load_missing!(
        connection,
        books.tokens,
        &needs.tokens,
        "SELECT {TOKEN_COLUMNS} FROM end_user_tokens WHERE bucket = ?1 AND tenant_id = ?2 AND token_id = ?3",
        |key| params![key.0.bucket(), key.0.0.as_bytes(), key.1.0.as_bytes()],
        |row| rows::token(row, 0)
    );
    load_missing!(
        connection,
        books.drift_windows,
        &needs.drift_windows,
        "SELECT document FROM drift_windows WHERE bucket = ?1 AND tenant_id = ?2 AND provider = ?3 AND day = ?4",
        |key| params![
            key.tenant.bucket(),
            key.tenant.0.as_bytes(),
            key.provider,
            key.day.number()
        ],
        |row| rows::document(row, 0)
    );
    load_missing!(
        connection,
        books.payouts,
        &needs.payouts,
        "SELECT document FROM payouts WHERE bucket = ?1 AND tenant_id = ?2 AND payout_id = ?3",
        |key| params![key.0.bucket(), key.0.0.as_bytes(), key.1.0.as_bytes()],
        |row| rows::document(row, 0)
    );
    load_missing!(
        connection,
        books.payout_settings,
        &needs.payout_settings,
        "SELECT document FROM payout_settings WHERE bucket = ?1 AND tenant_id = ?2",
        |tenant| params![tenant.bucket(), tenant.0.as_bytes()],
        |row| rows::document(row, 0)
    );
    load_missing!(
        connection,
        books.paid_calls,
        &needs.paid_calls,
        "SELECT {PAID_CALL_COLUMNS} FROM {PAID_CALL_TABLES}
         WHERE p.bucket = ?1 AND p.tenant_id = ?2 AND p.request_id = ?3",
        |key| params![key.0.bucket(), key.0.0.as_bytes(), key.1.0.as_bytes()],
        |row| paid_call(row, 0)
    );
    load_missing!(
        connection,
        books.quotes,
        &needs.quotes,
        "SELECT document FROM quotes WHERE bucket = ?1 AND tenant_id = ?2 AND quote_id = ?3",
        |key| params![key.0.bucket(), key.0.0.as_bytes(), key.1.0.as_bytes()],
        |row| rows::document(row, 0)
    );
    load_missing!(
        connection,
        books.approvals,
        &needs.approvals,
        "SELECT document FROM approvals WHERE bucket = ?1 AND tenant_id = ?2 AND approval_id = ?3",
        |key| params![key.0.bucket(), key.0.0.as_bytes(), key.1.0.as_bytes()],
        |row| rows::document(row, 0)
    );
    load_tokens_of(connection, books, needs)?;
    load_open_of(connection, books, needs)
}

/// Loads the open quotes and approvals of end users.
fn load_open_of(connection: &Connection, books: &mut Books, needs: &Needs) -> rusqlite::Result<()> {
    let found = |sql: &str, tenant: &TenantId, owner: &ExternalUserId| {
        let mut statement = connection.prepare_cached(sql)?;
        let params = params![tenant.bucket(), tenant.0.as_bytes(), owner.as_str()];
        statement.query_map(params, row)?.collect::<Result<Vec<Row>, _>>()
    };
    for (tenant, owner) in &needs.quote_owners {
        let sql = "SELECT document, quote_id FROM quotes
                   WHERE bucket = ?1 AND tenant_id = ?2 AND owner = ?3 AND state = 0";
        for row in found(sql, tenant, owner)? {
            let decoded = read(Some(row), |row| {
                Ok((QuoteId(row.uuid(1)?), rows::document(row, 0)?))
            })?;
            if let Some((id, quote)) = decoded
                && !books.quotes.is_loaded(&(*tenant, id))
            {
                books.quotes.load((*tenant, id), Some(quote));
            }
        }
    }
    for (tenant, owner) in &needs.approval_owners {
        let sql = "SELECT document, approval_id FROM approvals
                   WHERE bucket = ?1 AND tenant_id = ?2 AND owner = ?3 AND is_open = 1";
        for row in found(sql, tenant, owner)? {
            let decoded = read(Some(row), |row| {
                Ok((ApprovalId(row.uuid(1)?), rows::document(row, 0)?))
            })?;
            if let Some((id, approval)) = decoded
                && !books.approvals.is_loaded(&(*tenant, id))
            {
                books.approvals.load((*tenant, id), Some(approval));
            }
        }
    }
    Ok(())
}

/// Loads the tokens of end users that are not revoked yet.
fn load_tokens_of(connection: &Connection, books: &mut Books, needs: &Needs) -> rusqlite::Result<()> {
    for (tenant, owner) in &needs.token_owners {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {TOKEN_COLUMNS}, token_id FROM end_user_tokens
             WHERE bucket = ?1 AND tenant_id = ?2 AND owner = ?3 AND revoked_at IS NULL"
        ))?;
        let params = params![tenant.bucket(), tenant.0.as_bytes(), owner.as_str()];
        let found: Vec<Row> = statement.query_map(params, row)?.collect::<Result<_, _>>()?;
        for row in found {
            let decoded = read(Some(row), |row| {
                Ok((TokenId(row.uuid(TOKEN_WIDTH)?), rows::token(row, 0)?))
            })?;
            if let Some((id, token)) = decoded
                && !books.tokens.is_loaded(&(*tenant, id))
            {
                books.tokens.load((*tenant, id), Some(token));
            }
        }
    }
    Ok(())
}
