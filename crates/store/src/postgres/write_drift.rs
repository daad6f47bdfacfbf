//! Writes what a batch changed about windows of usage drift.

use tokio_postgres::Statement;
use turnpike_core::ledger::Books;

use super::load::Columns;
use super::write::kept;

pub(super) const DRIFT_WINDOWS: &str =
    "INSERT INTO drift_windows (bucket, tenant_id, provider, day, state, document)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::bigint[], $5::smallint[], $6::text[])
    ON CONFLICT (bucket, tenant_id, provider, day) DO UPDATE SET state = excluded.state, document = excluded.document";

/// Adds the statement for what changed, if anything did.
pub(super) fn add<'a>(
    books: &'a Books,
    statement: &'a Statement,
    add: &mut impl FnMut(usize, &'a Statement, Columns<'a>),
) -> Result<(), serde_json::Error> {
    // Windows are never removed.
    let windows: Vec<_> = books.drift_windows.changes().filter_map(kept).collect();
    let documents: Vec<String> = windows
        .iter()
        .map(|(_, window)| serde_json::to_string(window))
        .collect::<Result<_, _>>()?;
    let mut columns = Columns::default();
    columns.add_tenants(windows.iter().map(|(key, _)| key.tenant));
    columns.add(windows.iter().map(|(key, _)| &*key.provider));
    columns.add(windows.iter().map(|(key, _)| key.day.number()));
    columns.add(windows.iter().map(|(_, window)| window.state.code()));
    columns.add(documents.into_iter());
    add(windows.len(), statement, columns);
    Ok(())
}
