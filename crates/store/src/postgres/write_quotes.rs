//! Writes what a batch changed about quotes and approvals.

use tokio_postgres::{Client, Error, Statement};
use turnpike_core::ledger::Books;

use super::load::Columns;
use super::write::kept;

const QUOTES: &str = "INSERT INTO quotes (bucket, tenant_id, quote_id, state, owner, expires_at, document)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::smallint[], $5::text[], $6::bigint[], $7::text[])
    ON CONFLICT (bucket, tenant_id, quote_id) DO UPDATE SET state = excluded.state, expires_at = excluded.expires_at,
        document = excluded.document";
const APPROVALS: &str = "INSERT INTO approvals
        (bucket, tenant_id, approval_id, state, is_open, owner, subject, expires_at, document)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::smallint[], $5::smallint[], $6::text[], $7::text[],
        $8::bigint[], $9::text[])
    ON CONFLICT (bucket, tenant_id, approval_id) DO UPDATE SET state = excluded.state, is_open = excluded.is_open,
        expires_at = excluded.expires_at, document = excluded.document";

/// The write statements of one connection.
pub(super) struct QuoteWrites {
    quotes: Statement,
    approvals: Statement,
}

impl QuoteWrites {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        let (quotes, approvals) = tokio::try_join!(client.prepare(QUOTES), client.prepare(APPROVALS))?;
        Ok(Self { quotes, approvals })
    }
}

/// Adds the statements for what changed; without a change there are none. No batch removes any.
pub(super) fn add<'a>(
    books: &'a Books,
    writes: &'a QuoteWrites,
    add: &mut impl FnMut(usize, &'a Statement, Columns<'a>),
) -> Result<(), serde_json::Error> {
    let quotes: Vec<_> = books.quotes.changes().filter_map(kept).collect();
    let documents: Vec<String> = quotes
        .iter()
        .map(|(_, quote)| serde_json::to_string(quote))
        .collect::<Result<_, _>>()?;
    let index: Vec<_> = quotes.iter().map(|(_, quote)| quote.index()).collect();
    let mut columns = Columns::default();
    columns.add_tenants(quotes.iter().map(|(key, _)| key.0));
    columns.add(quotes.iter().map(|(key, _)| key.1.0));
    columns.add(index.iter().map(|row| row.state));
    columns.add(index.iter().map(|row| row.owner));
    columns.add(index.iter().map(|row| row.expires_at.millis()));
    columns.add(documents.into_iter());
    add(quotes.len(), &writes.quotes, columns);

    let approvals: Vec<_> = books.approvals.changes().filter_map(kept).collect();
    let documents: Vec<String> = approvals
        .iter()
        .map(|(_, approval)| serde_json::to_string(approval))
        .collect::<Result<_, _>>()?;
    let index: Vec<_> = approvals.iter().map(|(_, approval)| approval.index()).collect();
    let mut columns = Columns::default();
    columns.add_tenants(approvals.iter().map(|(key, _)| key.0));
    columns.add(approvals.iter().map(|(key, _)| key.1.0));
    columns.add(index.iter().map(|row| row.state));
    columns.add(index.iter().map(|row| i16::from(row.open)));
    columns.add(index.iter().map(|row| row.owner));
    // Owned: a subject is worked out, not stored in the document.
    let subjects: Vec<String> = index.iter().map(|row| row.subject.clone()).collect();
    columns.add(subjects.into_iter());
    columns.add(index.iter().map(|row| row.expires_at.millis()));
    columns.add(documents.into_iter());
    add(approvals.len(), &writes.approvals, columns);
    Ok(())
}
