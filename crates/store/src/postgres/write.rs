//! Writes what a batch changed: one statement for each table, by columns.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_postgres::{Client, Error, Statement};
use turnpike_core::ids::{CallId, ExternalUserId, TenantId};
use turnpike_core::ledger::hold::{Claim, ClaimKey};
use turnpike_core::ledger::policy::EndUser;
use turnpike_core::ledger::{Books, Change, Hold, Transfer};
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;

use super::load::Columns;
use super::write_drift;
use super::write_money_in::{self, MoneyIn};
use super::write_paid_calls::{self, PaidCallWrites};
use super::write_payouts::{self, PayoutWrites};
use super::write_quotes::{self, QuoteWrites};

/// The write statements of one connection.
pub(super) struct Writes {
    tenants: Statement,
    accounts: Statement,
    end_users: Statement,
    holds_new: Statement,
    holds_changed: Statement,
    claims_gone: Statement,
    claims_new: Statement,
    loops: Statement,
    transfers: Statement,
    events: Statement,
    outcomes: Statement,
    drifts: Statement,
    money_in: MoneyIn,
    drift_windows: Statement,
    payouts: PayoutWrites,
    paid_calls: PaidCallWrites,
    quotes: QuoteWrites,
}

const TENANTS: &str =
    "UPDATE tenants SET transfer_seq = k.transfer_seq, chain = k.chain, event_seq = k.event_seq,
        audit_seq = k.audit_seq, audit_chain = k.audit_chain
    FROM unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bytea[])
        AS k(b, t, transfer_seq, chain, event_seq, audit_seq, audit_chain)
    WHERE tenants.bucket = k.b AND tenants.tenant_id = k.t";
const ACCOUNTS: &str = "INSERT INTO accounts
        (bucket, tenant_id, kind, owner, posted, held, status, day, day_spent, month, month_spent, freezes, open_calls)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::smallint[], $4::text[], $5::bigint[], $6::bigint[],
        $7::smallint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
    ON CONFLICT (bucket, tenant_id, kind, owner) DO UPDATE SET posted = excluded.posted, held = excluded.held,
        status = excluded.status, day = excluded.day, day_spent = excluded.day_spent, month = excluded.month,
        month_spent = excluded.month_spent, freezes = excluded.freezes, open_calls = excluded.open_calls";
const END_USERS: &str =
    "INSERT INTO end_users (bucket, tenant_id, external_user_id, retired, policy, created_at, open_topups,
        open_refunds, open_disputes)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::smallint[], $5::text[], $6::bigint[],
        $7::bigint[], $8::bigint[], $9::bigint[])
    ON CONFLICT (bucket, tenant_id, external_user_id) DO UPDATE SET retired = excluded.retired,
        policy = excluded.policy, open_topups = excluded.open_topups, open_refunds = excluded.open_refunds,
        open_disputes = excluded.open_disputes";
const HOLDS_NEW: &str = "INSERT INTO holds (bucket, tenant_id, call_id, owner, amount, base, state, instance, day,
        month, created_at, dispatched_at, deadline, finished_at, charged, margin, refunded, balance_after, loss,
        prompt_tokens, completion_tokens, usage, failure, claim_scope, claim_key, loop_id, provider, endpoint, model,
        streamed, credential, attribution, price, token_id, quote_id, approval_id)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[],
        $7::smallint[], $8::uuid[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
        $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[],
        $21::bigint[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[],
        $29::text[], $30::smallint[], $31::text[], $32::text[], $33::text[], $34::uuid[],
        $35::uuid[], $36::uuid[])";
const HOLDS_CHANGED: &str = "UPDATE holds SET state = k.state, dispatched_at = k.dispatched_at,
        finished_at = k.finished_at, charged = k.charged, margin = k.margin, refunded = k.refunded,
        balance_after = k.balance_after, loss = k.loss, prompt_tokens = k.prompt_tokens,
        completion_tokens = k.completion_tokens, usage = k.usage, failure = k.failure
    FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[],
        $15::text[])
        AS k(b, t, c, state, dispatched_at, finished_at, charged, margin, refunded, balance_after, loss,
            prompt_tokens, completion_tokens, usage, failure)
    WHERE holds.bucket = k.b AND holds.tenant_id = k.t AND holds.call_id = k.c";
const CLAIMS_GONE: &str = "DELETE FROM claims
    USING unnest($1::smallint[], $2::uuid[], $3::text[], $4::text[]) AS k(b, t, s, k)
    WHERE claims.bucket = k.b AND claims.tenant_id = k.t AND claims.scope = k.s AND claims.key = k.k";
const CLAIMS_NEW: &str = "INSERT INTO claims (bucket, tenant_id, scope, key, fingerprint, subject)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::uuid[])";
const LOOPS: &str = "INSERT INTO loops (bucket, tenant_id, owner, loop_id, calls, spent)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::bigint[])
    ON CONFLICT (bucket, tenant_id, owner, loop_id) DO UPDATE SET calls = excluded.calls, spent = excluded.spent";
const TRANSFERS: &str = "INSERT INTO transfers (bucket, tenant_id, seq, id, debit_kind, debit_owner, credit_kind,
        credit_owner, amount, cause, call_id, reference, attribution, debit_after, credit_after, created_at, hash)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::uuid[], $5::smallint[], $6::text[],
        $7::smallint[], $8::text[], $9::bigint[], $10::smallint[], $11::uuid[], $12::text[], $13::text[],
        $14::bigint[], $15::bigint[], $16::bigint[], $17::bytea[])";
const EVENTS: &str = "INSERT INTO events (bucket, tenant_id, seq, id, type, created_at, data)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::uuid[], $5::smallint[], $6::bigint[],
        $7::text[])";
const OUTCOMES: &str = "INSERT INTO outcomes (bucket, tenant_id, call_id, kind, body, expires_at)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::smallint[], $5::bytea[], $6::bigint[])";
const DRIFTS: &str = "INSERT INTO drifts
        (bucket, tenant_id, call_id, kind, provider, model, detail, charged, loss, created_at)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::smallint[], $5::text[], $6::text[], $7::text[],
        $8::bigint[], $9::bigint[], $10::bigint[])";

impl Writes {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        let (tenants, accounts, end_users, holds_new, holds_changed, claims_gone) = tokio::try_join!(
            client.prepare(TENANTS),
            client.prepare(ACCOUNTS),
            client.prepare(END_USERS),
            client.prepare(HOLDS_NEW),
            client.prepare(HOLDS_CHANGED),
            client.prepare(CLAIMS_GONE),
        )?;
        let (claims_new, loops, transfers, events, outcomes, drifts) = tokio::try_join!(
            client.prepare(CLAIMS_NEW),
            client.prepare(LOOPS),
            client.prepare(TRANSFERS),
            client.prepare(EVENTS),
            client.prepare(OUTCOMES),
            client.prepare(DRIFTS),
        )?;
        Ok(Self {
            tenants,
            accounts,
            end_users,
            holds_new,
            holds_changed,
            claims_gone,
            claims_new,
            loops,
            transfers,
            events,
            outcomes,
            drifts,
            money_in: MoneyIn::prepare(client).await?,
            drift_windows: client.prepare(write_drift::DRIFT_WINDOWS).await?,
            payouts: PayoutWrites::prepare(client).await?,
            paid_calls: PaidCallWrites::prepare(client).await?,
            quotes: QuoteWrites::prepare(client).await?,
        })
    }
}

/// The statements that write what changed in `books`, in the order in which they must run; tables without a
/// change have none. Nothing is sent before the futures are polled.
pub(super) fn statements<'a>(
    client: &'a Client,
    writes: &'a Writes,
    books: &'a Books,
) -> Result<Vec<BoxFuture<'a, Result<u64, Error>>>, serde_json::Error> {
    let mut run = Vec::new();
    let mut add = |rows: usize, statement: &'a Statement, columns: Columns<'a>| {
        if rows > 0 {
            run.push(client.execute_raw(statement, columns.into_params()).boxed());
        }
    };
    // Workspaces, accounts, end users and loops are never removed by a batch.
    let heads: Vec<_> = books.tenants.changes().filter_map(kept).collect();
    let mut columns = Columns::default();
    columns.add_tenants(heads.iter().map(|(id, _)| **id));
    columns.add(heads.iter().map(|(_, head)| head.transfer_seq));
    columns.add(heads.iter().map(|(_, head)| &head.chain[..]));
    columns.add(heads.iter().map(|(_, head)| head.event_seq));
    columns.add(heads.iter().map(|(_, head)| head.audit_seq));
    columns.add(heads.iter().map(|(_, head)| &head.audit_chain[..]));
    add(heads.len(), &writes.tenants, columns);

    let accounts: Vec<_> = books.accounts.changes().filter_map(kept).collect();
    let mut columns = Columns::default();
    columns.add_tenants(accounts.iter().map(|(key, _)| key.tenant));
    columns.add(accounts.iter().map(|(key, _)| key.kind.code()));
    columns.add(accounts.iter().map(|(key, _)| key.owner_str()));
    columns.add(accounts.iter().map(|(_, account)| account.posted.get()));
    columns.add(accounts.iter().map(|(_, account)| account.held.get()));
    columns.add(accounts.iter().map(|(_, account)| account.status.code()));
    columns.add(accounts.iter().map(|(_, account)| account.day.index));
    columns.add(accounts.iter().map(|(_, account)| account.day.spent.get()));
    columns.add(accounts.iter().map(|(_, account)| account.month.index));
    columns.add(accounts.iter().map(|(_, account)| account.month.spent.get()));
    columns.add(accounts.iter().map(|(_, account)| account.freezes));
    columns.add(accounts.iter().map(|(_, account)| account.open_calls));
    add(accounts.len(), &writes.accounts, columns);

    let users: Vec<_> = books.end_users.changes().filter_map(kept).collect();
    add(users.len(), &writes.end_users, end_users(&users)?);

    let (mut fresh, mut changed) = (Vec::new(), Vec::new());
    for change in books.holds.changes() {
        match change {
            Change::Insert((tenant, _), hold) => fresh.push((*tenant, hold)),
            Change::Update((tenant, _), hold) => changed.push((*tenant, hold)),
            // Holds stay as the record of their calls.
            Change::Delete(_) => {}
        }
    }
    add(fresh.len(), &writes.holds_new, holds_new(&fresh)?);
    add(changed.len(), &writes.holds_changed, holds_changed(&changed)?);

    let (mut gone, mut taken): (Vec<&ClaimKey>, Vec<(&ClaimKey, &Claim)>) = (Vec::new(), Vec::new());
    for change in books.claims.changes() {
        match change {
            Change::Insert(key, claim) => taken.push((key, claim)),
            Change::Delete(key) => gone.push(key),
            Change::Update(key, claim) => {
                // Freed and taken again within one batch.
                gone.push(key);
                taken.push((key, claim));
            }
        }
    }
    let mut columns = Columns::default();
    columns.add_tenants(gone.iter().map(|key| key.tenant));
    columns.add(gone.iter().map(|key| &*key.scope));
    columns.add(gone.iter().map(|key| &*key.key));
    add(gone.len(), &writes.claims_gone, columns);
    let mut columns = Columns::default();
    columns.add_tenants(taken.iter().map(|(key, _)| key.tenant));
    columns.add(taken.iter().map(|(key, _)| &*key.scope));
    columns.add(taken.iter().map(|(key, _)| &*key.key));
    columns.add(taken.iter().map(|(_, claim)| &claim.fingerprint[..]));
    columns.add(taken.iter().map(|(_, claim)| claim.subject));
    add(taken.len(), &writes.claims_new, columns);

    write_money_in::add(books, &writes.money_in, &mut add)?;
    write_drift::add(books, &writes.drift_windows, &mut add)?;
    write_payouts::add(books, &writes.payouts, &mut add)?;
    write_paid_calls::add(books, &writes.paid_calls, &mut add)?;
    write_quotes::add(books, &writes.quotes, &mut add)?;

    let loops: Vec<_> = books.loops.changes().filter_map(kept).collect();
    let mut columns = Columns::default();
    columns.add_tenants(loops.iter().map(|(key, _)| key.tenant));
    columns.add(loops.iter().map(|(key, _)| key.owner.as_str()));
    columns.add(loops.iter().map(|(key, _)| &*key.loop_id));
    columns.add(loops.iter().map(|(_, count)| clamp(count.calls)));
    columns.add(loops.iter().map(|(_, count)| count.spent.get()));
    add(loops.len(), &writes.loops, columns);

    add(
        books.transfers.len(),
        &writes.transfers,
        transfers(&books.transfers),
    );
    let mut columns = Columns::default();
    columns.add_tenants(books.events.iter().map(|(tenant, _)| *tenant));
    columns.add(books.events.iter().map(|(_, event)| event.seq));
    columns.add(books.events.iter().map(|(_, event)| event.id.0));
    columns.add(books.events.iter().map(|(_, event)| event.kind.code()));
    columns.add(books.events.iter().map(|(_, event)| event.created_at.millis()));
    columns.add(books.events.iter().map(|(_, event)| &*event.data));
    add(books.events.len(), &writes.events, columns);

    let mut columns = Columns::default();
    columns.add_tenants(books.outcomes.iter().map(|row| row.0));
    columns.add(books.outcomes.iter().map(|row| row.1.0));
    columns.add(books.outcomes.iter().map(|row| row.2.kind.code()));
    columns.add(books.outcomes.iter().map(|row| row.2.body.as_deref()));
    columns.add(books.outcomes.iter().map(|row| row.2.expires_at.millis()));
    add(books.outcomes.len(), &writes.outcomes, columns);

    let mut columns = Columns::default();
    columns.add_tenants(books.drifts.iter().map(|row| row.tenant));
    columns.add(books.drifts.iter().map(|row| row.call.0));
    columns.add(books.drifts.iter().map(|row| row.drift.kind.code()));
    columns.add(books.drifts.iter().map(|row| &*row.provider));
    columns.add(books.drifts.iter().map(|row| row.model.as_deref()));
    columns.add(books.drifts.iter().map(|row| &*row.drift.detail));
    columns.add(books.drifts.iter().map(|row| row.charged.get()));
    columns.add(books.drifts.iter().map(|row| row.drift.loss.get()));
    columns.add(books.drifts.iter().map(|row| row.at.millis()));
    add(books.drifts.len(), &writes.drifts, columns);
    Ok(run)
}

#[expect(clippy::needless_pass_by_value, reason = "fits `filter_map`")]
pub(super) fn kept<K, V>(change: Change<'_, K, V>) -> Option<(&K, &V)> {
    match change {
        Change::Insert(key, value) | Change::Update(key, value) => Some((key, value)),
        Change::Delete(_) => None,
    }
}

fn clamp(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn millis(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::millis)
}

type User<'a> = (&'a (TenantId, ExternalUserId), &'a EndUser);

fn end_users<'a>(users: &[User<'a>]) -> Result<Columns<'a>, serde_json::Error> {
    let policies: Vec<_> = users
        .iter()
        .map(|(_, user)| serde_json::to_string(&*user.policy))
        .collect::<Result<_, _>>()?;
    let mut columns = Columns::default();
    columns.add_tenants(users.iter().map(|(key, _)| key.0));
    columns.add(users.iter().map(|(key, _)| key.1.as_str()));
    columns.add(users.iter().map(|(_, user)| i16::from(user.retired)));
    columns.add(policies.into_iter());
    columns.add(users.iter().map(|(_, user)| user.created_at.millis()));
    columns.add(users.iter().map(|(_, user)| user.open.topups));
    columns.add(users.iter().map(|(_, user)| user.open.refunds));
    columns.add(users.iter().map(|(_, user)| user.open.disputes));
    Ok(columns)
}

/// The columns that a call's life changes, from its state on.
fn add_progress<'a>(
    columns: &mut Columns<'a>,
    holds: &[(TenantId, &'a Hold)],
) -> Result<(), serde_json::Error> {
    let usage: Vec<Option<String>> = holds
        .iter()
        .map(|(_, hold)| hold.usage.as_ref().map(serde_json::to_string).transpose())
        .collect::<Result<_, _>>()?;
    columns.add(holds.iter().map(|(_, hold)| hold.charged.get()));
    columns.add(holds.iter().map(|(_, hold)| hold.margin.get()));
    columns.add(holds.iter().map(|(_, hold)| hold.refunded.get()));
    columns.add(holds.iter().map(|(_, hold)| hold.balance_after.map(Micros::get)));
    columns.add(holds.iter().map(|(_, hold)| hold.loss.get()));
    columns.add(
        holds
            .iter()
            .map(|(_, hold)| clamp(hold.usage.unwrap_or_default().prompt_tokens())),
    );
    columns.add(
        holds
            .iter()
            .map(|(_, hold)| clamp(hold.usage.unwrap_or_default().completion_tokens())),
    );
    columns.add(usage.into_iter());
    columns.add(holds.iter().map(|(_, hold)| hold.failure.as_deref()));
    Ok(())
}

fn holds_new<'a>(holds: &[(TenantId, &'a Hold)]) -> Result<Columns<'a>, serde_json::Error> {
    let mut columns = Columns::default();
    columns.add_tenants(holds.iter().map(|(tenant, _)| *tenant));
    columns.add(holds.iter().map(|(_, hold)| hold.call.call.0));
    columns.add(holds.iter().map(|(_, hold)| hold.call.payer.as_owner()));
    columns.add(holds.iter().map(|(_, hold)| hold.amount.get()));
    columns.add(holds.iter().map(|(_, hold)| hold.base.get()));
    columns.add(holds.iter().map(|(_, hold)| hold.state.code()));
    columns.add(holds.iter().map(|(_, hold)| hold.instance));
    columns.add(holds.iter().map(|(_, hold)| hold.windows.0));
    columns.add(holds.iter().map(|(_, hold)| hold.windows.1));
    columns.add(holds.iter().map(|(_, hold)| hold.created_at.millis()));
    columns.add(holds.iter().map(|(_, hold)| millis(hold.dispatched_at)));
    columns.add(holds.iter().map(|(_, hold)| hold.deadline.millis()));
    columns.add(holds.iter().map(|(_, hold)| millis(hold.finished_at)));
    add_progress(&mut columns, holds)?;
    columns.add(
        holds
            .iter()
            .map(|(_, hold)| hold.call.claim.as_ref().map(|claim| &*claim.scope)),
    );
    columns.add(
        holds
            .iter()
            .map(|(_, hold)| hold.call.claim.as_ref().map(|claim| &*claim.key)),
    );
    columns.add(holds.iter().map(|(_, hold)| hold.call.loop_id.as_deref()));
    columns.add(holds.iter().map(|(_, hold)| &*hold.subject.provider));
    columns.add(holds.iter().map(|(_, hold)| &*hold.subject.endpoint));
    columns.add(holds.iter().map(|(_, hold)| hold.subject.model.as_deref()));
    columns.add(holds.iter().map(|(_, hold)| i16::from(hold.subject.streamed)));
    columns.add(holds.iter().map(|(_, hold)| &*hold.subject.credential));
    columns.add(holds.iter().map(|(_, hold)| hold.subject.attribution.as_deref()));
    columns.add(holds.iter().map(|(_, hold)| &*hold.subject.price));
    columns.add(holds.iter().map(|(_, hold)| hold.call.token.map(|token| token.0)));
    columns.add(holds.iter().map(|(_, hold)| hold.call.quote.map(|quote| quote.0)));
    columns.add(
        holds
            .iter()
            .map(|(_, hold)| hold.call.approval.map(|approval| approval.0)),
    );
    Ok(columns)
}

fn holds_changed<'a>(holds: &[(TenantId, &'a Hold)]) -> Result<Columns<'a>, serde_json::Error> {
    let ids: Vec<CallId> = holds.iter().map(|(_, hold)| hold.call.call).collect();
    let mut columns = Columns::default();
    columns.add_tenants(holds.iter().map(|(tenant, _)| *tenant));
    columns.add(ids.into_iter().map(|id| id.0));
    columns.add(holds.iter().map(|(_, hold)| hold.state.code()));
    columns.add(holds.iter().map(|(_, hold)| millis(hold.dispatched_at)));
    columns.add(holds.iter().map(|(_, hold)| millis(hold.finished_at)));
    add_progress(&mut columns, holds)?;
    Ok(columns)
}

fn transfers(rows: &[Transfer]) -> Columns<'_> {
    let mut columns = Columns::default();
    columns.add_tenants(rows.iter().map(|row| row.debit.tenant));
    columns.add(rows.iter().map(|row| row.seq));
    columns.add(rows.iter().map(|row| row.id.0));
    columns.add(rows.iter().map(|row| row.debit.kind.code()));
    columns.add(rows.iter().map(|row| row.debit.owner_str()));
    columns.add(rows.iter().map(|row| row.credit.kind.code()));
    columns.add(rows.iter().map(|row| row.credit.owner_str()));
    columns.add(rows.iter().map(|row| row.amount.get()));
    columns.add(rows.iter().map(|row| row.cause.code()));
    columns.add(rows.iter().map(|row| row.call.map(|call| call.0)));
    columns.add(rows.iter().map(|row| &*row.reference));
    columns.add(rows.iter().map(|row| row.attribution.as_deref()));
    columns.add(rows.iter().map(|row| row.debit_after.get()));
    columns.add(rows.iter().map(|row| row.credit_after.get()));
    columns.add(rows.iter().map(|row| row.created_at.millis()));
    columns.add(rows.iter().map(|row| &row.hash[..]));
    columns
}
