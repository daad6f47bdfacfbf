//! Paid calls that an earlier version wrote as one document each are read by this one, and gone on with.

use std::fmt::Write as _;

use serde_json::{Value, json};
use turnpike_core::ids::{RequestId, TenantId};
use turnpike_core::ledger::Action;
use turnpike_core::ledger::paid_call::{NewPaidCall, PaidCall, PaidCallState};
use turnpike_store::{PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store};

use crate::actions::command;
use crate::paid_calls::{claims, finishes, house, named, new_call, row, settled, told};
use crate::world::{Database, check_books, sql};

/// One call of each kind: its answer is stored, it is paid, it is claimed and was not sent, as earlier versions wrote it
/// first.
struct History {
    tenant: TenantId,
    open: NewPaidCall,
    fresh: NewPaidCall,
    calls: Vec<PaidCall>,
}

async fn history(store: &dyn Store) -> History {
    let tenant = house(store).await;
    let [open, paid, fresh] = ["exact:one", "exact:two", "exact:three"].map(new_call);
    let mut calls = Vec::new();
    for (new, steps) in [(&open, 1), (&paid, 2), (&fresh, 0)] {
        let steps = [finishes(new, 400, 100), told(new, settled(500))]
            .into_iter()
            .take(steps);
        for step in std::iter::once(claims(new)).chain(steps) {
            store.submit(command(tenant, step)).await.unwrap();
        }
        calls.push(found(store, new.id).await);
    }
    store.close().await;
    (calls[2].state, calls[2].dispatched_at) = (PaidCallState::Claimed, None);
    History {
        tenant,
        open,
        fresh,
        calls,
    }
}

async fn found(store: &dyn Store, id: RequestId) -> PaidCall {
    store.find_paid_call(id).await.unwrap().unwrap().1
}

/// The statements that carry the rows into the tables as they were.
fn undone(calls: &[PaidCall], literal: impl Fn(RequestId) -> String) -> String {
    let mut text = "ALTER TABLE paid_calls RENAME COLUMN progress TO document;
        ALTER TABLE paid_calls ADD COLUMN payment_key TEXT NOT NULL DEFAULT '';"
        .to_owned();
    for call in calls {
        let mut document = json!({
            "state": call.state, "instance": call.instance, "dueAt": call.due_at, "loss": call.loss,
            "endedAt": call.ended_at,
        });
        let members = document.as_object_mut().unwrap();
        let parts = [
            serde_json::to_value(call.terms()).unwrap(),
            serde_json::to_value(call.progress()).unwrap(),
        ];
        for part in parts {
            members.extend(part.as_object().unwrap().clone());
        }
        document["payment"]["signed"] = call.payment.signed.as_deref().map_or(Value::Null, Value::from);
        writeln!(
            text,
            "UPDATE paid_calls SET state = {}, document = '{}', payment_key = '{}' WHERE request_id = {};",
            call.state.code(),
            document.to_string().replace('\'', "''"),
            call.payment.key,
            literal(call.id)
        )
        .unwrap();
    }
    text.push_str("DROP TABLE paid_call_terms; DELETE FROM schema_migrations WHERE version = 14;");
    text
}

async fn goes_on(store: &dyn Store, history: &History) {
    for call in &history.calls {
        assert_eq!(found(store, call.id).await, *call);
    }
    assert!(history.calls[0].payment.signed.is_some());
    check_books(store).await;
    let report = told(&history.open, settled(500));
    let (settled, changed) = row(store.submit(command(history.tenant, report)).await);
    assert!(changed);
    assert_eq!(settled.state, PaidCallState::Settled);
    assert_eq!(found(store, history.open.id).await, settled);
    // It was not sent, and its payment may be used again.
    for again in [
        Action::AbandonPaidCall(named(&history.fresh)),
        claims(&history.fresh),
    ] {
        assert!(row(store.submit(command(history.tenant, again)).await).1);
    }
    check_books(store).await;
    store.close().await;
}

// Fault matrix 59
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_paid_calls_of_one_document_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new(directory.path().join("turnpike.db"));
    let made = history(&SqliteStore::open(&options).unwrap()).await;
    let old = rusqlite::Connection::open(&options.path).unwrap();
    let literal = |id: RequestId| format!("X'{}'", id.0.simple());
    old.execute_batch(&undone(&made.calls, literal)).unwrap();
    drop(old);
    goes_on(&SqliteStore::open(&options).unwrap(), &made).await;
}

// Fault matrix 59
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_paid_calls_of_one_document_is_opened() {
    let database = Database::create().await;
    let options = PostgresOptions::new(&database.url);
    let made = history(&PostgresStore::connect(options.clone()).await.unwrap()).await;
    let literal = |id: RequestId| format!("'{}'", id.0);
    sql(&database.url, &undone(&made.calls, literal)).await.unwrap();
    goes_on(&PostgresStore::connect(options).await.unwrap(), &made).await;
    database.remove().await;
}
