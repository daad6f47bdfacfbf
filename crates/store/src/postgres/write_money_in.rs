//! Writes what a batch changed about top-ups and tokens, and the rows it appends beside them.

use tokio_postgres::{Client, Error, Statement};
use turnpike_core::ledger::Books;
use turnpike_core::money::Micros;

use super::load::Columns;
use super::write::{kept, millis};

/// The write statements of one connection.
pub(super) struct MoneyIn {
    topups: Statement,
    auto_topups: Statement,
    processor_refs: Statement,
    tokens: Statement,
    audits: Statement,
}

const TOPUPS: &str =
    "INSERT INTO topups (bucket, tenant_id, topup_id, owner, state, unsettled, created_at, document)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::text[], $5::smallint[], $6::smallint[],
        $7::bigint[], $8::text[])
    ON CONFLICT (bucket, tenant_id, topup_id) DO UPDATE SET state = excluded.state, unsettled = excluded.unsettled,
        document = excluded.document";
const AUTO_TOPUPS: &str = "INSERT INTO auto_topups (bucket, tenant_id, enabled, document)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::smallint[], $4::text[])
    ON CONFLICT (bucket, tenant_id) DO UPDATE SET enabled = excluded.enabled, document = excluded.document";
const PROCESSOR_REFS: &str = "INSERT INTO processor_refs (reference, tenant_id, topup_id)
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[]) ON CONFLICT (reference) DO NOTHING";
const TOKENS: &str = "INSERT INTO end_user_tokens (bucket, tenant_id, token_id, owner, created_at, expires_at,
        revoked_at, max_spend, spent, tools, kind, max_per_call)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::text[], $11::smallint[], $12::bigint[])
    ON CONFLICT (bucket, tenant_id, token_id) DO UPDATE SET revoked_at = excluded.revoked_at, spent = excluded.spent";
const AUDITS: &str =
    "INSERT INTO audit_log (bucket, tenant_id, id, at, actor, action, target, before_json, after_json, origin, seq, hash)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::text[], $11::bigint[], $12::bytea[])";

impl MoneyIn {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        let (topups, auto_topups, processor_refs, tokens, audits) = tokio::try_join!(
            client.prepare(TOPUPS),
            client.prepare(AUTO_TOPUPS),
            client.prepare(PROCESSOR_REFS),
            client.prepare(TOKENS),
            client.prepare(AUDITS),
        )?;
        Ok(Self {
            topups,
            auto_topups,
            processor_refs,
            tokens,
            audits,
        })
    }
}

/// Adds the statements for what changed; tables without a change have none.
pub(super) fn add<'a>(
    books: &'a Books,
    writes: &'a MoneyIn,
    add: &mut impl FnMut(usize, &'a Statement, Columns<'a>),
) -> Result<(), serde_json::Error> {
    let topups: Vec<_> = books.topups.changes().filter_map(kept).collect();
    if !topups.is_empty() {
        let documents: Vec<String> = topups
            .iter()
            .map(|(_, topup)| serde_json::to_string(topup))
            .collect::<Result<_, _>>()?;
        let owners: Vec<String> = topups
            .iter()
            .map(|(_, topup)| topup.payer().as_owner().to_owned())
            .collect();
        let mut columns = Columns::default();
        columns.add_tenants(topups.iter().map(|(key, _)| key.0));
        columns.add(topups.iter().map(|(key, _)| key.1.0));
        columns.add(owners.into_iter());
        columns.add(topups.iter().map(|(_, topup)| topup.state.code()));
        columns.add(topups.iter().map(|(_, topup)| i16::from(topup.is_unsettled())));
        columns.add(topups.iter().map(|(_, topup)| topup.created_at.millis()));
        columns.add(documents.into_iter());
        add(topups.len(), &writes.topups, columns);
    }

    let autos: Vec<_> = books.auto_topups.changes().filter_map(kept).collect();
    if !autos.is_empty() {
        let documents: Vec<String> = autos
            .iter()
            .map(|(_, auto)| serde_json::to_string(auto))
            .collect::<Result<_, _>>()?;
        let mut columns = Columns::default();
        columns.add_tenants(autos.iter().map(|(tenant, _)| **tenant));
        columns.add(autos.iter().map(|(_, auto)| i16::from(auto.enabled)));
        columns.add(documents.into_iter());
        add(autos.len(), &writes.auto_topups, columns);
    }

    let refs = &books.processor_refs;
    let mut columns = Columns::default();
    columns.add(refs.iter().map(|row| &*row.0));
    columns.add(refs.iter().map(|row| row.1.0));
    columns.add(refs.iter().map(|row| row.2.0));
    add(refs.len(), &writes.processor_refs, columns);

    add_tokens(books, writes, add)?;

    let audits = &books.audits;
    let mut columns = Columns::default();
    columns.add_tenants(audits.iter().map(|row| row.tenant));
    columns.add(audits.iter().map(|row| row.id));
    columns.add(audits.iter().map(|row| row.at.millis()));
    columns.add(audits.iter().map(|row| &*row.note.actor));
    columns.add(audits.iter().map(|row| row.note.action));
    columns.add(audits.iter().map(|row| &*row.note.target));
    columns.add(audits.iter().map(|row| row.note.before.as_deref()));
    columns.add(audits.iter().map(|row| row.note.after.as_deref()));
    columns.add(audits.iter().map(|row| &*row.note.origin));
    columns.add(audits.iter().map(|row| row.seq));
    columns.add(audits.iter().map(|row| &row.hash[..]));
    add(audits.len(), &writes.audits, columns);
    Ok(())
}

fn add_tokens<'a>(
    books: &'a Books,
    writes: &'a MoneyIn,
    add: &mut impl FnMut(usize, &'a Statement, Columns<'a>),
) -> Result<(), serde_json::Error> {
    let tokens: Vec<_> = books.tokens.changes().filter_map(kept).collect();
    if tokens.is_empty() {
        return Ok(());
    }
    let tools: Vec<Option<String>> = tokens
        .iter()
        .map(|(_, token)| token.tools.as_deref().map(serde_json::to_string).transpose())
        .collect::<Result<_, _>>()?;
    let mut columns = Columns::default();
    columns.add_tenants(tokens.iter().map(|(key, _)| key.0));
    columns.add(tokens.iter().map(|(key, _)| key.1.0));
    columns.add(tokens.iter().map(|(_, token)| token.owner.as_owner()));
    columns.add(tokens.iter().map(|(_, token)| token.created_at.millis()));
    columns.add(tokens.iter().map(|(_, token)| token.expires_at.millis()));
    columns.add(tokens.iter().map(|(_, token)| millis(token.revoked_at)));
    columns.add(tokens.iter().map(|(_, token)| token.max_spend.map(Micros::get)));
    columns.add(tokens.iter().map(|(_, token)| token.spent.get()));
    columns.add(tools.into_iter());
    columns.add(tokens.iter().map(|(_, token)| token.kind.code()));
    columns.add(
        tokens
            .iter()
            .map(|(_, token)| token.max_per_call.map(Micros::get)),
    );
    add(tokens.len(), &writes.tokens, columns);
    Ok(())
}
