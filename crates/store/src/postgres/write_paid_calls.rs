//! Writes what a batch changed about paid calls.

use tokio_postgres::{Client, Error, Statement};
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::paid_call::PaidCall;
use turnpike_core::ledger::{Books, Change};

use super::load::Columns;
use super::write::millis;

const GONE: &str = "DELETE FROM paid_calls
    USING unnest($1::smallint[], $2::uuid[], $3::uuid[]) AS k(b, t, i)
    WHERE paid_calls.bucket = k.b AND paid_calls.tenant_id = k.t AND paid_calls.request_id = k.i";
const PUT: &str = "INSERT INTO paid_calls (bucket, tenant_id, request_id, state, due_at, instance, payment_key, provider,
        base_cost, loss, created_at, ended_at, document)
    SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::smallint[], $5::bigint[], $6::uuid[], $7::text[],
        $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[])
    ON CONFLICT (bucket, tenant_id, request_id) DO UPDATE SET state = excluded.state, due_at = excluded.due_at,
        instance = excluded.instance, payment_key = excluded.payment_key, provider = excluded.provider,
        base_cost = excluded.base_cost, loss = excluded.loss, created_at = excluded.created_at,
        ended_at = excluded.ended_at, document = excluded.document";

/// The write statements of one connection.
pub(super) struct PaidCallWrites {
    gone: Statement,
    put: Statement,
}

impl PaidCallWrites {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        let (gone, put) = tokio::try_join!(client.prepare(GONE), client.prepare(PUT))?;
        Ok(Self { gone, put })
    }
}

/// Adds the statements for what changed; without a change there are none.
pub(super) fn add<'a>(
    books: &'a Books,
    writes: &'a PaidCallWrites,
    add: &mut impl FnMut(usize, &'a Statement, Columns<'a>),
) -> Result<(), serde_json::Error> {
    let mut gone: Vec<&(TenantId, RequestId)> = Vec::new();
    let mut kept: Vec<(&(TenantId, RequestId), &PaidCall)> = Vec::new();
    for change in books.paid_calls.changes() {
        match change {
            // The claim was given up before anything was sent.
            Change::Delete(key) => gone.push(key),
            // All columns: the id may be given up and claimed again within one batch.
            Change::Insert(key, call) | Change::Update(key, call) => kept.push((key, call)),
        }
    }
    let mut columns = Columns::default();
    columns.add_tenants(gone.iter().map(|key| key.0));
    columns.add(gone.iter().map(|key| key.1.0));
    add(gone.len(), &writes.gone, columns);

    let documents: Vec<String> = kept
        .iter()
        .map(|(_, call)| serde_json::to_string(call))
        .collect::<Result<_, _>>()?;
    let index: Vec<_> = kept.iter().map(|(_, call)| call.index()).collect();
    let mut columns = Columns::default();
    columns.add_tenants(kept.iter().map(|(key, _)| key.0));
    columns.add(kept.iter().map(|(key, _)| key.1.0));
    columns.add(index.iter().map(|row| row.state));
    columns.add(index.iter().map(|row| row.due_at.millis()));
    columns.add(index.iter().map(|row| row.instance));
    columns.add(index.iter().map(|row| row.payment_key));
    columns.add(index.iter().map(|row| row.provider));
    columns.add(index.iter().map(|row| row.base_cost.get()));
    columns.add(index.iter().map(|row| row.loss.get()));
    columns.add(index.iter().map(|row| row.created_at.millis()));
    columns.add(index.iter().map(|row| millis(row.ended_at)));
    columns.add(documents.into_iter());
    add(kept.len(), &writes.put, columns);
    Ok(())
}
