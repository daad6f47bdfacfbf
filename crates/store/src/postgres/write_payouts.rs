//! Writes what a batch changed about payouts and where they go.

use tokio_postgres::{Client, Error, Statement};
use turnpike_core::ledger::Books;

use super::load::Columns;
use super::write::kept;

const PAYOUTS: &str =
    "INSERT INTO payouts (bucket, tenant_id, payout_id, state, amount, reference, created_at, document)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::smallint[], $5::bigint[], $6::text[],
        $7::bigint[], $8::text[])
    ON CONFLICT (bucket, tenant_id, payout_id) DO UPDATE SET state = excluded.state, reference = excluded.reference,
        document = excluded.document";
const SETTINGS: &str = "INSERT INTO payout_settings (bucket, tenant_id, account, document)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::text[])
    ON CONFLICT (bucket, tenant_id) DO UPDATE SET account = excluded.account, document = excluded.document";

/// The write statements of one connection.
pub(super) struct PayoutWrites {
    payouts: Statement,
    settings: Statement,
}

impl PayoutWrites {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        let (payouts, settings) = tokio::try_join!(client.prepare(PAYOUTS), client.prepare(SETTINGS))?;
        Ok(Self { payouts, settings })
    }
}

/// Adds the statements for what changed; tables without a change have none.
pub(super) fn add<'a>(
    books: &'a Books,
    writes: &'a PayoutWrites,
    add: &mut impl FnMut(usize, &'a Statement, Columns<'a>),
) -> Result<(), serde_json::Error> {
    // Neither is ever removed.
    let payouts: Vec<_> = books.payouts.changes().filter_map(kept).collect();
    if !payouts.is_empty() {
        let documents: Vec<String> = payouts
            .iter()
            .map(|(_, payout)| serde_json::to_string(payout))
            .collect::<Result<_, _>>()?;
        let mut columns = Columns::default();
        columns.add_tenants(payouts.iter().map(|(key, _)| key.0));
        columns.add(payouts.iter().map(|(key, _)| key.1.0));
        columns.add(payouts.iter().map(|(_, payout)| payout.state.code()));
        columns.add(payouts.iter().map(|(_, payout)| payout.amount.get()));
        columns.add(payouts.iter().map(|(_, payout)| payout.reference.as_deref()));
        columns.add(payouts.iter().map(|(_, payout)| payout.created_at.millis()));
        columns.add(documents.into_iter());
        add(payouts.len(), &writes.payouts, columns);
    }

    let settings: Vec<_> = books.payout_settings.changes().filter_map(kept).collect();
    if !settings.is_empty() {
        let documents: Vec<String> = settings
            .iter()
            .map(|(_, settings)| serde_json::to_string(settings))
            .collect::<Result<_, _>>()?;
        let accounts = settings.iter().map(|(_, settings)| {
            let connection = settings.connection.as_ref();
            connection.map(|connection| &*connection.account)
        });
        let mut columns = Columns::default();
        columns.add_tenants(settings.iter().map(|(tenant, _)| **tenant));
        columns.add(accounts);
        columns.add(documents.into_iter());
        add(settings.len(), &writes.settings, columns);
    }
    Ok(())
}
