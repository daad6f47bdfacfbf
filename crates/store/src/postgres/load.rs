//! Loads the rows a batch needs: one statement for each table, by lists of keys.
//!
//! Each statement joins `unnest` of its key columns to the table and answers with the key's position in the
//! lists, so that no key has to be read back.

use std::collections::HashSet;
use std::hash::Hash;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};
use turnpike_core::ids::{
    ApprovalId, CallId, ExternalUserId, PayoutId, QuoteId, RequestId, TenantId, TokenId, TopupId,
};
use turnpike_core::ledger::drift::DriftKey;
use turnpike_core::ledger::hold::{ClaimKey, LoopKey};
use turnpike_core::ledger::{AccountKey, Books, Needs, Table};

use super::convert;
use crate::error::StoreError;
use crate::paid_calls::{PAID_CALL_COLUMNS, PAID_CALL_TABLES, paid_call};
use crate::rows::{
    self, ACCOUNT_COLUMNS, END_USER_COLUMNS, HOLD_COLUMNS, TENANT_HEAD_COLUMNS, TOKEN_COLUMNS, TOKEN_WIDTH,
};
use crate::sql::Row;

/// The values of one statement: each parameter is a whole column.
#[derive(Default)]
pub(super) struct Columns<'a>(Vec<Box<dyn ToSql + Sync + Send + 'a>>);

impl<'a> Columns<'a> {
    pub(super) fn add<T: ToSql + Sync + Send + 'a>(&mut self, values: impl Iterator<Item = T>) {
        self.0.push(Box::new(values.collect::<Vec<T>>()));
    }

    /// The two columns that every key starts with.
    pub(super) fn add_tenants(&mut self, tenants: impl Iterator<Item = TenantId> + Clone) {
        self.add(tenants.clone().map(TenantId::bucket));
        self.add(tenants.map(|tenant| tenant.0));
    }

    pub(super) fn into_params(self) -> Vec<Box<dyn ToSql + Sync + Send + 'a>> {
        self.0
    }
}

/// The load statements of one connection.
pub(super) struct Loads {
    tenants: Statement,
    accounts: Statement,
    end_users: Statement,
    holds: Statement,
    claims: Statement,
    loops: Statement,
    topups: Statement,
    auto_topups: Statement,
    tokens: Statement,
    tokens_of: Statement,
    drift_windows: Statement,
    payouts: Statement,
    payout_settings: Statement,
    paid_calls: Statement,
    quotes: Statement,
    quotes_of: Statement,
    approvals: Statement,
    approvals_of: Statement,
}

impl Loads {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        // INVARIANT: the tenant's row is locked before any of its other rows is read, by every batch of every
        // node, in the same order; so the batches of a tenant take turns, no other row of its books needs a
        // lock, and no two batches wait for each other.
        let tenants = format!(
            "SELECT k.n, {TENANT_HEAD_COLUMNS}
             FROM unnest($1::smallint[], $2::uuid[]) WITH ORDINALITY AS k(b, t, n)
             JOIN tenants ON tenants.bucket = k.b AND tenants.tenant_id = k.t
             ORDER BY tenants.bucket, tenants.tenant_id FOR NO KEY UPDATE OF tenants"
        );
        let accounts = format!(
            "SELECT k.n, {ACCOUNT_COLUMNS}
             FROM unnest($1::smallint[], $2::uuid[], $3::smallint[], $4::text[]) WITH ORDINALITY AS k(b, t, k, o, n)
             JOIN accounts a ON a.bucket = k.b AND a.tenant_id = k.t AND a.kind = k.k AND a.owner = k.o"
        );
        let end_users = format!(
            "SELECT k.n, {END_USER_COLUMNS}
             FROM unnest($1::smallint[], $2::uuid[], $3::text[]) WITH ORDINALITY AS k(b, t, o, n)
             JOIN end_users u ON u.bucket = k.b AND u.tenant_id = k.t AND u.external_user_id = k.o"
        );
        let holds = format!(
            "SELECT {HOLD_COLUMNS}, k.n
             FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS k(b, t, c, n)
             JOIN holds h ON h.bucket = k.b AND h.tenant_id = k.t AND h.call_id = k.c"
        );
        let claims = "SELECT k.n, c.fingerprint, c.subject
             FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY AS k(b, t, s, k, n)
             JOIN claims c ON c.bucket = k.b AND c.tenant_id = k.t AND c.scope = k.s AND c.key = k.k";
        let loops = "SELECT k.n, l.calls, l.spent
             FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY AS k(b, t, o, l, n)
             JOIN loops l ON l.bucket = k.b AND l.tenant_id = k.t AND l.owner = k.o AND l.loop_id = k.l";
        let topups = "SELECT k.n, d.document
             FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS k(b, t, i, n)
             JOIN topups d ON d.bucket = k.b AND d.tenant_id = k.t AND d.topup_id = k.i";
        let auto_topups = "SELECT k.n, d.document
             FROM unnest($1::smallint[], $2::uuid[]) WITH ORDINALITY AS k(b, t, n)
             JOIN auto_topups d ON d.bucket = k.b AND d.tenant_id = k.t";
        let tokens = format!(
            "SELECT k.n, {TOKEN_COLUMNS}
             FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS k(b, t, i, n)
             JOIN end_user_tokens u ON u.bucket = k.b AND u.tenant_id = k.t AND u.token_id = k.i"
        );
        let tokens_of = format!(
            "SELECT k.t, {TOKEN_COLUMNS}, u.token_id
             FROM unnest($1::smallint[], $2::uuid[], $3::text[]) AS k(b, t, o)
             JOIN end_user_tokens u ON u.bucket = k.b AND u.tenant_id = k.t AND u.owner = k.o
             WHERE u.revoked_at IS NULL"
        );
        let drift_windows = "SELECT k.n, d.document
             FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::bigint[]) WITH ORDINALITY AS k(b, t, p, d, n)
             JOIN drift_windows d ON d.bucket = k.b AND d.tenant_id = k.t AND d.provider = k.p AND d.day = k.d";
        let payouts = "SELECT k.n, d.document
             FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS k(b, t, i, n)
             JOIN payouts d ON d.bucket = k.b AND d.tenant_id = k.t AND d.payout_id = k.i";
        let payout_settings = "SELECT k.n, d.document
             FROM unnest($1::smallint[], $2::uuid[]) WITH ORDINALITY AS k(b, t, n)
             JOIN payout_settings d ON d.bucket = k.b AND d.tenant_id = k.t";
        let paid_calls = format!(
            "SELECT k.n, {PAID_CALL_COLUMNS}
             FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS k(b, t, i, n)
             JOIN ({PAID_CALL_TABLES}) ON p.bucket = k.b AND p.tenant_id = k.t AND p.request_id = k.i"
        );
        let quotes = "SELECT k.n, d.document
             FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS k(b, t, i, n)
             JOIN quotes d ON d.bucket = k.b AND d.tenant_id = k.t AND d.quote_id = k.i";
        let quotes_of = "SELECT k.t, d.document, d.quote_id
             FROM unnest($1::smallint[], $2::uuid[], $3::text[]) AS k(b, t, o)
             JOIN quotes d ON d.bucket = k.b AND d.tenant_id = k.t AND d.owner = k.o WHERE d.state = 0";
        let approvals = "SELECT k.n, d.document
             FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS k(b, t, i, n)
             JOIN approvals d ON d.bucket = k.b AND d.tenant_id = k.t AND d.approval_id = k.i";
        let approvals_of = "SELECT k.t, d.document, d.approval_id
             FROM unnest($1::smallint[], $2::uuid[], $3::text[]) AS k(b, t, o)
             JOIN approvals d ON d.bucket = k.b AND d.tenant_id = k.t AND d.owner = k.o WHERE d.is_open = 1";
        let (quotes, quotes_of, approvals, approvals_of) = tokio::try_join!(
            client.prepare(quotes),
            client.prepare(quotes_of),
            client.prepare(approvals),
            client.prepare(approvals_of),
        )?;
        let (payouts, payout_settings, paid_calls) = tokio::try_join!(
            client.prepare(payouts),
            client.prepare(payout_settings),
            client.prepare(&paid_calls),
        )?;
        let (topups, auto_topups, tokens, tokens_of, drift_windows) = tokio::try_join!(
            client.prepare(topups),
            client.prepare(auto_topups),
            client.prepare(&tokens),
            client.prepare(&tokens_of),
            client.prepare(drift_windows),
        )?;
        let (tenants, accounts, end_users, holds, claims, loops) = tokio::try_join!(
            client.prepare(&tenants),
            client.prepare(&accounts),
            client.prepare(&end_users),
            client.prepare(&holds),
            client.prepare(claims),
            client.prepare(loops),
        )?;
        Ok(Self {
            tenants,
            accounts,
            end_users,
            holds,
            claims,
            loops,
            topups,
            auto_topups,
            tokens,
            tokens_of,
            drift_windows,
            payouts,
            payout_settings,
            paid_calls,
            quotes,
            quotes_of,
            approvals,
            approvals_of,
        })
    }
}

/// The keys a batch needs, each once.
pub(super) struct Keys {
    tenants: Vec<TenantId>,
    accounts: Vec<AccountKey>,
    end_users: Vec<(TenantId, ExternalUserId)>,
    holds: Vec<(TenantId, CallId)>,
    claims: Vec<ClaimKey>,
    loops: Vec<LoopKey>,
    topups: Vec<(TenantId, TopupId)>,
    auto_topups: Vec<TenantId>,
    tokens: Vec<(TenantId, TokenId)>,
    token_owners: Vec<(TenantId, ExternalUserId)>,
    drift_windows: Vec<DriftKey>,
    payouts: Vec<(TenantId, PayoutId)>,
    payout_settings: Vec<TenantId>,
    paid_calls: Vec<(TenantId, RequestId)>,
    quotes: Vec<(TenantId, QuoteId)>,
    quote_owners: Vec<(TenantId, ExternalUserId)>,
    approvals: Vec<(TenantId, ApprovalId)>,
    approval_owners: Vec<(TenantId, ExternalUserId)>,
}

fn once<K: Clone + Eq + Hash>(keys: Vec<K>) -> Vec<K> {
    let mut seen = HashSet::with_capacity(keys.len());
    keys.into_iter().filter(|key| seen.insert(key.clone())).collect()
}

impl From<Needs> for Keys {
    fn from(needs: Needs) -> Self {
        Self {
            tenants: once(needs.tenants),
            accounts: once(needs.accounts),
            end_users: once(needs.end_users),
            holds: once(needs.holds),
            claims: once(needs.claims),
            loops: once(needs.loops),
            topups: once(needs.topups),
            auto_topups: once(needs.auto_topups),
            tokens: once(needs.tokens),
            token_owners: once(needs.token_owners),
            drift_windows: once(needs.drift_windows),
            payouts: once(needs.payouts),
            payout_settings: once(needs.payout_settings),
            paid_calls: once(needs.paid_calls),
            quotes: once(needs.quotes),
            quote_owners: once(needs.quote_owners),
            approvals: once(needs.approvals),
            approval_owners: once(needs.approval_owners),
        }
    }
}

/// What was found, by table; a key that is not among it has no row.
pub(super) struct Found {
    tenants: Vec<Row>,
    accounts: Vec<Row>,
    end_users: Vec<Row>,
    holds: Vec<Row>,
    claims: Vec<Row>,
    loops: Vec<Row>,
    topups: Vec<Row>,
    auto_topups: Vec<Row>,
    tokens: Vec<Row>,
    tokens_of: Vec<Row>,
    drift_windows: Vec<Row>,
    payouts: Vec<Row>,
    payout_settings: Vec<Row>,
    paid_calls: Vec<Row>,
    quotes: Vec<Row>,
    quotes_of: Vec<Row>,
    approvals: Vec<Row>,
    approvals_of: Vec<Row>,
}

async fn find(
    client: &Client,
    statement: &Statement,
    keys: usize,
    columns: Columns<'_>,
) -> Result<Vec<Row>, Error> {
    if keys == 0 {
        return Ok(Vec::new());
    }
    let stream = client.query_raw(statement, columns.into_params()).await?;
    let rows: Vec<tokio_postgres::Row> = futures_util::TryStreamExt::try_collect(stream).await?;
    rows.iter().map(convert::row).collect()
}

impl Keys {
    /// Sends all loads at once, the locking one first.
    pub(super) async fn find(&self, client: &Client, loads: &Loads) -> Result<Found, Error> {
        let mut tenants = Columns::default();
        tenants.add_tenants(self.tenants.iter().copied());
        let mut accounts = Columns::default();
        accounts.add_tenants(self.accounts.iter().map(|key| key.tenant));
        accounts.add(self.accounts.iter().map(|key| key.kind.code()));
        accounts.add(self.accounts.iter().map(AccountKey::owner_str));
        let mut end_users = Columns::default();
        end_users.add_tenants(self.end_users.iter().map(|key| key.0));
        end_users.add(self.end_users.iter().map(|key| key.1.as_str()));
        let mut holds = Columns::default();
        holds.add_tenants(self.holds.iter().map(|key| key.0));
        holds.add(self.holds.iter().map(|key| key.1.0));
        let mut claims = Columns::default();
        claims.add_tenants(self.claims.iter().map(|key| key.tenant));
        claims.add(self.claims.iter().map(|key| &*key.scope));
        claims.add(self.claims.iter().map(|key| &*key.key));
        let mut loops = Columns::default();
        loops.add_tenants(self.loops.iter().map(|key| key.tenant));
        loops.add(self.loops.iter().map(|key| key.owner.as_str()));
        loops.add(self.loops.iter().map(|key| &*key.loop_id));
        let mut topups = Columns::default();
        topups.add_tenants(self.topups.iter().map(|key| key.0));
        topups.add(self.topups.iter().map(|key| key.1.0));
        let mut auto_topups = Columns::default();
        auto_topups.add_tenants(self.auto_topups.iter().copied());
        let mut tokens = Columns::default();
        tokens.add_tenants(self.tokens.iter().map(|key| key.0));
        tokens.add(self.tokens.iter().map(|key| key.1.0));
        let mut tokens_of = Columns::default();
        tokens_of.add_tenants(self.token_owners.iter().map(|key| key.0));
        tokens_of.add(self.token_owners.iter().map(|key| key.1.as_str()));
        let mut drift_windows = Columns::default();
        drift_windows.add_tenants(self.drift_windows.iter().map(|key| key.tenant));
        drift_windows.add(self.drift_windows.iter().map(|key| &*key.provider));
        drift_windows.add(self.drift_windows.iter().map(|key| key.day.number()));
        let mut payouts = Columns::default();
        payouts.add_tenants(self.payouts.iter().map(|key| key.0));
        payouts.add(self.payouts.iter().map(|key| key.1.0));
        let mut payout_settings = Columns::default();
        payout_settings.add_tenants(self.payout_settings.iter().copied());
        let mut paid_calls = Columns::default();
        paid_calls.add_tenants(self.paid_calls.iter().map(|key| key.0));
        paid_calls.add(self.paid_calls.iter().map(|key| key.1.0));
        let mut quotes = Columns::default();
        quotes.add_tenants(self.quotes.iter().map(|key| key.0));
        quotes.add(self.quotes.iter().map(|key| key.1.0));
        let mut quotes_of = Columns::default();
        quotes_of.add_tenants(self.quote_owners.iter().map(|key| key.0));
        quotes_of.add(self.quote_owners.iter().map(|key| key.1.as_str()));
        let mut approvals = Columns::default();
        approvals.add_tenants(self.approvals.iter().map(|key| key.0));
        approvals.add(self.approvals.iter().map(|key| key.1.0));
        let mut approvals_of = Columns::default();
        approvals_of.add_tenants(self.approval_owners.iter().map(|key| key.0));
        approvals_of.add(self.approval_owners.iter().map(|key| key.1.as_str()));
        // A connection answers in the order in which these are first polled, which is the order here.
        let (
            tenants,
            accounts,
            end_users,
            holds,
            claims,
            loops,
            topups,
            auto_topups,
            tokens,
            tokens_of,
            drift_windows,
            payouts,
            payout_settings,
            paid_calls,
            quotes,
            quotes_of,
            approvals,
            approvals_of,
        ) = tokio::join!(
            find(client, &loads.tenants, self.tenants.len(), tenants),
            find(client, &loads.accounts, self.accounts.len(), accounts),
            find(client, &loads.end_users, self.end_users.len(), end_users),
            find(client, &loads.holds, self.holds.len(), holds),
            find(client, &loads.claims, self.claims.len(), claims),
            find(client, &loads.loops, self.loops.len(), loops),
            find(client, &loads.topups, self.topups.len(), topups),
            find(client, &loads.auto_topups, self.auto_topups.len(), auto_topups),
            find(client, &loads.tokens, self.tokens.len(), tokens),
            find(client, &loads.tokens_of, self.token_owners.len(), tokens_of),
            find(
                client,
                &loads.drift_windows,
                self.drift_windows.len(),
                drift_windows
            ),
            find(client, &loads.payouts, self.payouts.len(), payouts),
            find(
                client,
                &loads.payout_settings,
                self.payout_settings.len(),
                payout_settings
            ),
            find(client, &loads.paid_calls, self.paid_calls.len(), paid_calls),
            find(client, &loads.quotes, self.quotes.len(), quotes),
            find(client, &loads.quotes_of, self.quote_owners.len(), quotes_of),
            find(client, &loads.approvals, self.approvals.len(), approvals),
            find(
                client,
                &loads.approvals_of,
                self.approval_owners.len(),
                approvals_of
            ),
        );
        Ok(Found {
            tenants: tenants?,
            accounts: accounts?,
            end_users: end_users?,
            holds: holds?,
            claims: claims?,
            loops: loops?,
            topups: topups?,
            auto_topups: auto_topups?,
            tokens: tokens?,
            tokens_of: tokens_of?,
            drift_windows: drift_windows?,
            payouts: payouts?,
            payout_settings: payout_settings?,
            paid_calls: paid_calls?,
            quotes: quotes?,
            quotes_of: quotes_of?,
            approvals: approvals?,
            approvals_of: approvals_of?,
        })
    }

    /// Puts what was found into fresh books; every other key is known to be absent.
    pub(super) fn into_books(self, found: &Found) -> Result<Books, StoreError> {
        let mut books = Books::default();
        fill(&mut books.tenants, self.tenants, &found.tenants, 0, |row| {
            rows::tenant_head(row, 1)
        })?;
        fill(&mut books.accounts, self.accounts, &found.accounts, 0, |row| {
            rows::account(row, 1)
        })?;
        fill(&mut books.end_users, self.end_users, &found.end_users, 0, |row| {
            rows::end_user(row, 1)
        })?;
        let after_hold = HOLD_COLUMNS.split(',').count();
        fill(&mut books.holds, self.holds, &found.holds, after_hold, |row| {
            Ok(rows::hold(row)?.1)
        })?;
        fill(&mut books.claims, self.claims, &found.claims, 0, |row| {
            rows::claim(row, 1)
        })?;
        fill(&mut books.loops, self.loops, &found.loops, 0, |row| {
            rows::loop_count(row, 1)
        })?;
        fill(&mut books.topups, self.topups, &found.topups, 0, |row| {
            rows::document(row, 1)
        })?;
        let autos = &found.auto_topups;
        fill(&mut books.auto_topups, self.auto_topups, autos, 0, |row| {
            rows::document(row, 1)
        })?;
        fill(&mut books.tokens, self.tokens, &found.tokens, 0, |row| {
            rows::token(row, 1)
        })?;
        let windows = &found.drift_windows;
        fill(&mut books.drift_windows, self.drift_windows, windows, 0, |row| {
            rows::document(row, 1)
        })?;
        fill(&mut books.payouts, self.payouts, &found.payouts, 0, |row| {
            rows::document(row, 1)
        })?;
        let settings = &found.payout_settings;
        fill(
            &mut books.payout_settings,
            self.payout_settings,
            settings,
            0,
            |row| rows::document(row, 1),
        )?;
        fill(
            &mut books.paid_calls,
            self.paid_calls,
            &found.paid_calls,
            0,
            |row| paid_call(row, 1),
        )?;
        fill(&mut books.quotes, self.quotes, &found.quotes, 0, |row| {
            rows::document(row, 1)
        })?;
        fill(&mut books.approvals, self.approvals, &found.approvals, 0, |row| {
            rows::document(row, 1)
        })?;
        for row in &found.quotes_of {
            let key = (TenantId(row.uuid(0)?), QuoteId(row.uuid(2)?));
            books.quotes.load(key, Some(rows::document(row, 1)?));
        }
        for row in &found.approvals_of {
            let key = (TenantId(row.uuid(0)?), ApprovalId(row.uuid(2)?));
            books.approvals.load(key, Some(rows::document(row, 1)?));
        }
        for row in &found.tokens_of {
            let key = (TenantId(row.uuid(0)?), TokenId(row.uuid(TOKEN_WIDTH + 1)?));
            books.tokens.load(key, Some(rows::token(row, 1)?));
        }
        Ok(books)
    }
}

fn fill<K: Clone + Eq + Hash, V: Clone>(
    table: &mut Table<K, V>,
    keys: Vec<K>,
    found: &[Row],
    position: usize,
    decode: impl Fn(&Row) -> Result<V, StoreError>,
) -> Result<(), StoreError> {
    let mut values: Vec<Option<V>> = vec![None; keys.len()];
    for row in found {
        let at = usize::try_from(row.int(position)?)
            .ok()
            .and_then(|n| n.checked_sub(1));
        let slot = at.and_then(|at| values.get_mut(at));
        *slot.ok_or_else(|| StoreError::Corrupt("a row without its key".to_owned()))? = Some(decode(row)?);
    }
    for (key, value) in keys.into_iter().zip(values) {
        table.load(key, value);
    }
    Ok(())
}
