//! A database of the first schema with calls under way is opened by this version.
//!
//! The history is made by the store itself, and then carried into tables that the first migration alone has made.

use futures_util::future::join;
use sha2::{Digest as _, Sha256};
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::command::{Capture, FinishStream, NewHold};
use turnpike_core::ledger::rejection::Blockers;
use turnpike_core::ledger::{AccountKey, AccountKind, Action, Outcome, Payer, Rejection};
use turnpike_store::{
    EndUserFilter, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store, StoreError, Upkeep as _,
};

use crate::actions::{answer, capture, charge, command, grant, new_hold, reference, release, usd, user};
use crate::calls::rejection;
use crate::money_in::{mint, new_token, new_topup, open_topup, retire};
use crate::world::{Database, add_tenant, check_books, sql};

const SQLITE: &str = include_str!("../../../../migrations/sqlite/0001_foundation.sql");
const POSTGRES: &str = include_str!("../../../../migrations/postgres/0001_foundation.sql");
/// No version before payouts set margin aside.
const NOTHING_RESERVED: &str = "UPDATE accounts SET held = 0 WHERE kind = 2";
const TABLES: [&str; 14] = [
    "tenants",
    "accounts",
    "end_users",
    "holds",
    "claims",
    "loops",
    "transfers",
    "events",
    "outcomes",
    "drifts",
    "api_keys",
    "members",
    "audit_log",
    "model_prices",
];

/// How the first version left its list of migrations.
fn recorded(text: &str) -> String {
    let checksum = hex::encode(Sha256::digest(text.as_bytes()));
    format!(
        "CREATE TABLE schema_migrations (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT \
         NULL); INSERT INTO schema_migrations VALUES (1, '0001_foundation', '{checksum}');"
    )
}

struct History {
    tenants: [TenantId; 2],
    /// Held, not dispatched, of alice.
    held: NewHold,
    /// A stream of alice that runs.
    stream: NewHold,
    /// Of zero cost, of bob, who has nothing else.
    free: NewHold,
    /// Of the pool.
    pool: NewHold,
}

fn stream_begins(hold: &NewHold) -> Action {
    Action::Capture(Box::new(Capture {
        call: reference(hold),
        charge: charge(150, 50),
        usage: None,
        drift: None,
        outcome: None,
    }))
}

async fn history(store: &dyn Store) -> History {
    let tenants = [add_tenant(store).await, add_tenant(store).await];
    let [held, stream, done, failed] = [100, 200, 300, 400].map(|amount| new_hold(&user("alice"), amount));
    let (free, pool) = (new_hold(&user("bob"), 0), new_hold(&Payer::Pool, 70));
    for tenant in tenants {
        let mut actions = vec![
            grant(&user("alice"), 10_000),
            grant(&Payer::Pool, 5_000),
            mint(&new_token("bob", None)),
        ];
        let holds = [&held, &stream, &done, &failed, &free, &pool];
        // The other tenant has the same names, and nothing open.
        if tenant == tenants[0] {
            actions.extend(holds.map(|hold| Action::Hold(Box::new(hold.clone()))));
            actions.extend([
                Action::MarkDispatched(reference(&stream)),
                stream_begins(&stream),
                capture(&done, 200, 50),
                release(&failed, None),
            ]);
        } else {
            let other = new_hold(&user("alice"), 5);
            actions.extend([Action::Hold(Box::new(other.clone())), capture(&other, 5, 0)]);
        }
        for action in actions {
            store.submit(command(tenant, action)).await.unwrap();
        }
    }
    store.close().await;
    History {
        tenants,
        held,
        stream,
        free,
        pool,
    }
}

/// What was open counts as open, and ends as if it had begun in this version.
async fn goes_on(store: &dyn Store, history: &History) {
    check_books(store).await;
    let [tenant, other] = history.tenants;
    let reserved = async || {
        let margin = AccountKey::of(tenant, AccountKind::Margin);
        store
            .find_account(&margin)
            .await
            .unwrap()
            .unwrap_or_default()
            .held
    };
    assert_eq!(reserved().await, usd(50));
    let open_calls = async |tenant, payer: &Payer| {
        let found = store.find_account(&payer.account(tenant)).await.unwrap();
        found.unwrap_or_default().open_calls
    };
    for (of, payer, count) in [
        (tenant, user("alice"), 2),
        (tenant, user("bob"), 1),
        (tenant, Payer::Pool, 1),
        (other, user("alice"), 0),
        (other, Payer::Pool, 0),
    ] {
        assert_eq!(open_calls(of, &payer).await, count, "{payer:?}");
    }
    let run = async |action| store.submit(command(tenant, action)).await;
    let refused = rejection(run(retire("bob")).await);
    let blockers = Blockers {
        calls: 1,
        ..Blockers::default()
    };
    assert_eq!(refused, Rejection::NotRetirable(Box::new(blockers)));
    for action in [
        capture(&history.held, 90, 10),
        release(&history.free, None),
        release(&history.pool, None),
        Action::FinishStream(Box::new(FinishStream {
            call: reference(&history.stream),
            charge: charge(120, 30),
            refund_kind: "stream_true_up",
            usage: None,
            drift: None,
            failure: None,
            outcome: answer("data: x\n\n"),
        })),
    ] {
        run(action).await.unwrap();
    }
    assert!(matches!(
        run(retire("bob")).await,
        Ok(Outcome::Retired { already: false, .. })
    ));
    assert_eq!(reserved().await, usd(0));
    for payer in [user("alice"), user("bob"), Payer::Pool] {
        assert_eq!(open_calls(tenant, &payer).await, 0);
    }
    let all = EndUserFilter {
        limit: 10,
        ..EndUserFilter::default()
    };
    let listed = store.list_end_users(tenant, &all).await.unwrap();
    let balances: Vec<_> = listed
        .iter()
        .map(|(user, account)| (user.retired, account.posted))
        .collect();
    assert_eq!(balances, [(false, usd(10_000 - 150 - 250 - 100)), (true, usd(0))]);
    store
        .submit(command(tenant, open_topup(&new_topup(None, 100))))
        .await
        .unwrap();
    check_books(store).await;
}

// Fault matrix 59
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_the_first_schema_is_opened_with_its_calls() {
    let directory = tempfile::tempdir().unwrap();
    let (later, path) = (
        directory.path().join("later.db"),
        directory.path().join("turnpike.db"),
    );
    let made = history(&SqliteStore::open(&SqliteOptions::new(&later)).unwrap()).await;
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(&format!("{SQLITE}; {}", recorded(SQLITE)))
        .unwrap();
    old.execute("ATTACH ?1 AS later", [later.to_str().unwrap()])
        .unwrap();
    for table in TABLES {
        let columns: String = old
            .query_row(
                "SELECT GROUP_CONCAT(name, ', ') FROM pragma_table_info(?1, 'main')",
                [table],
                |row| row.get(0),
            )
            .unwrap();
        old.execute_batch(&format!(
            "INSERT INTO main.{table} ({columns}) SELECT {columns} FROM later.{table}"
        ))
        .unwrap();
    }
    old.execute_batch(NOTHING_RESERVED).unwrap();
    drop(old);
    // Whoever only reads cannot bring it up to date, and says so.
    let mut reading = SqliteOptions::new(&path);
    reading.read_only = true;
    match SqliteStore::open(&reading) {
        Err(StoreError::Schema(reason)) => assert!(reason.contains("0002_money_in"), "{reason}"),
        other => panic!("{:?}", other.err()),
    }
    let store = SqliteStore::open(&SqliteOptions::new(&path)).unwrap();
    goes_on(&store, &made).await;
    let reader = SqliteStore::open(&reading).unwrap();
    check_books(&reader).await;
    store.close().await;
}

// Fault matrix 59: two processes of the new version start at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_first_schema_is_opened_with_its_calls() {
    let database = Database::create().await;
    let options = PostgresOptions::new(&database.url);
    let made = history(&PostgresStore::connect(options.clone()).await.unwrap()).await;
    let run = async |text: &str| sql(&database.url, text).await.unwrap();
    run(&format!(
        "ALTER SCHEMA public RENAME TO later; CREATE SCHEMA public; {POSTGRES}; {}",
        recorded(POSTGRES)
    ))
    .await;
    for table in TABLES {
        let columns = format!(
            "SELECT string_agg(column_name, ', ') FROM information_schema.columns WHERE table_schema = 'public' AND \
             table_name = '{table}'"
        );
        let columns = run(&columns).await.unwrap();
        run(&format!(
            "INSERT INTO public.{table} ({columns}) SELECT {columns} FROM later.{table}"
        ))
        .await;
    }
    run(NOTHING_RESERVED).await;
    run("DROP SCHEMA later CASCADE").await;
    let (one, two) = join(
        PostgresStore::connect(options.clone()),
        PostgresStore::connect(options),
    )
    .await;
    let (one, two) = (one.unwrap(), two.unwrap());
    goes_on(&one, &made).await;
    check_books(&two).await;
    one.close().await;
    two.close().await;
    database.remove().await;
}
