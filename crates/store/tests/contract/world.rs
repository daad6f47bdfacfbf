//! What a test stands on: a fresh store of one kind, and short ways to say what should happen in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::account::Balance;
use turnpike_core::ledger::{AccountKey, AccountKind, Action, Outcome, Payer, TenantStatus};
use turnpike_core::money::CreditsPerDollar;
use turnpike_core::time::Timestamp;
use turnpike_store::{
    EventFilter, EventRow, MemoryStore, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store,
    StoreError, SubmitError, Tenant, TenantSettings,
};
use uuid::Uuid;

use crate::actions::{audit_row, command};

/// 2026-09-21T14:13:20Z.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    Memory,
}

enum Place {
    Sqlite(tempfile::TempDir),
    Postgres(Database),
    Memory,
}

pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) store: Arc<dyn Store>,
    place: Place,
    tampered: std::sync::atomic::AtomicBool,
}

/// A database of its own on the scratch cluster.
pub(crate) struct Database {
    admin: String,
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn create() -> Self {
        let admin = std::env::var("TURNPIKE_TEST_POSTGRES_URL")
            .expect("set TURNPIKE_TEST_POSTGRES_URL or run scripts/test");
        Self::create_on(&admin).await
    }

    pub(crate) async fn create_on(admin: &str) -> Self {
        let name = format!("turnpike_{}_{}", std::process::id(), next_id().as_u64_pair().1);
        sql(admin, &format!("DROP DATABASE IF EXISTS {name}"))
            .await
            .unwrap();
        sql(admin, &format!("CREATE DATABASE {name}")).await.unwrap();
        let url = with_database(admin, &name);
        Self {
            admin: admin.to_owned(),
            name,
            url,
        }
    }

    pub(crate) async fn remove(&self) {
        drop(
            sql(
                &self.admin,
                &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name),
            )
            .await,
        );
    }
}

fn with_database(url: &str, name: &str) -> String {
    let (base, query) = url
        .split_once('?')
        .map_or((url, None), |(base, query)| (base, Some(query)));
    let server = base.rsplit_once('/').unwrap().0;
    query.map_or_else(
        || format!("{server}/{name}"),
        |query| format!("{server}/{name}?{query}"),
    )
}

/// Runs raw SQL; the answer is the first column of the first row, if there is one.
pub(crate) async fn sql(url: &str, text: &str) -> Result<Option<String>, String> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .map_err(|e| e.to_string())?;
    let driver = tokio::spawn(connection);
    let answer = client.simple_query(text).await;
    drop(client);
    drop(driver.await);
    let messages = answer.map_err(|error| {
        error
            .as_db_error()
            .map_or(error.to_string(), |e| e.message().to_owned())
    })?;
    Ok(messages.iter().find_map(|message| {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
            row.get(0).map(str::to_owned)
        } else {
            None
        }
    }))
}

/// Runs `test` on a fresh store, then audits every tenant.
pub(crate) async fn on(kind: Kind, test: impl AsyncFnOnce(&World)) {
    let world = World::new(kind).await;
    let result = std::panic::AssertUnwindSafe(async {
        test(&world).await;
        world.check_books().await;
    })
    .catch_unwind()
    .await;
    world.store.close().await;
    if let Place::Postgres(database) = &world.place {
        database.remove().await;
    }
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn next_id() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u64_pair(
        0x0190_0000_0000_7000 | u64::from(std::process::id()) << 32,
        NEXT.fetch_add(1, Ordering::Relaxed),
    )
}

/// A small generator, so that a failing run can be repeated.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

impl World {
    async fn new(kind: Kind) -> Self {
        let place = match kind {
            Kind::Sqlite => Place::Sqlite(tempfile::tempdir().unwrap()),
            Kind::Postgres => Place::Postgres(Database::create().await),
            Kind::Memory => Place::Memory,
        };
        let store = open(&place, None).await.unwrap();
        Self {
            kind,
            store,
            place,
            tampered: false.into(),
        }
    }

    /// A second service on the same data; in memory there is only the one.
    pub(crate) async fn second(&self) -> Result<Arc<dyn Store>, StoreError> {
        if self.kind == Kind::Memory {
            Ok(self.store.clone())
        } else {
            open(&self.place, None).await
        }
    }

    /// A store with a queue of `queue` and batches of one; on SQLite in a file of its own.
    pub(crate) async fn narrow(&self, queue: usize) -> (Arc<dyn Store>, Option<tempfile::TempDir>) {
        if self.kind != Kind::Sqlite {
            return (open(&self.place, Some(queue)).await.unwrap(), None);
        }
        let directory = tempfile::tempdir().unwrap();
        let mut options = SqliteOptions::new(directory.path().join("turnpike.db"));
        (options.queue, options.max_batch) = (queue, 1);
        (Arc::new(SqliteStore::open(&options).unwrap()), Some(directory))
    }

    pub(crate) async fn tenant(&self) -> TenantId {
        add_tenant(&*self.store).await
    }

    pub(crate) async fn run(&self, tenant: TenantId, action: Action) -> Result<Outcome, SubmitError> {
        self.store.submit(command(tenant, action)).await
    }

    pub(crate) async fn balance(&self, tenant: TenantId, payer: &Payer) -> Balance {
        let found = self.store.find_account(&payer.account(tenant)).await.unwrap();
        found.unwrap_or_default().balance()
    }

    /// A tenant's events, newest first.
    pub(crate) async fn events(
        &self,
        tenant: TenantId,
        before_seq: Option<i64>,
        limit: u32,
    ) -> Vec<EventRow> {
        let filter = EventFilter {
            before_seq,
            ..EventFilter::newest(limit)
        };
        self.store.list_events(tenant, &filter).await.unwrap()
    }

    pub(crate) async fn posted(&self, tenant: TenantId, kind: AccountKind) -> i64 {
        let found = self
            .store
            .find_account(&AccountKey::of(tenant, kind))
            .await
            .unwrap();
        found.unwrap_or_default().posted.get()
    }

    /// Where the database is.
    pub(crate) fn url(&self) -> &str {
        match &self.place {
            Place::Postgres(database) => &database.url,
            Place::Sqlite(_) | Place::Memory => panic!("only PostgreSQL has a URL"),
        }
    }

    /// Runs raw SQL beside the store.
    pub(crate) async fn sql(&self, text: &str) -> Result<Option<String>, String> {
        match &self.place {
            Place::Memory => panic!("there is no SQL in memory"),
            Place::Postgres(database) => sql(&database.url, text).await,
            Place::Sqlite(directory) => {
                let connection = rusqlite::Connection::open(directory.path().join("turnpike.db")).unwrap();
                connection
                    .busy_timeout(std::time::Duration::from_secs(10))
                    .unwrap();
                let mut first = None;
                for statement in text.split(';').filter(|part| !part.trim().is_empty()) {
                    let mut prepared = connection.prepare(statement).map_err(|e| e.to_string())?;
                    let mut rows = prepared.query([]).map_err(|e| e.to_string())?;
                    while let Some(row) = rows.next().map_err(|e| e.to_string())? {
                        first = row.get::<_, String>(0).ok();
                    }
                }
                Ok(first)
            }
        }
    }

    /// The test breaks the books on purpose.
    pub(crate) fn tamper(&self) {
        self.tampered.store(true, Ordering::Relaxed);
    }

    pub(crate) async fn findings(&self, tenant: TenantId) -> Vec<String> {
        self.store.audit(tenant, &|_read| {}).await.unwrap().findings
    }

    async fn check_books(&self) {
        if !self.tampered.load(Ordering::Relaxed) {
            check_books(&*self.store).await;
        }
    }
}

pub(crate) async fn check_books(store: &dyn Store) {
    for tenant in store.list_tenants().await.unwrap() {
        let report = store.audit(tenant.id, &|_read| {}).await.unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        let mut sum = 0_i128;
        for transfer in all_transfers(store, tenant.id).await {
            assert_eq!(
                (transfer.debit.tenant, transfer.credit.tenant),
                (tenant.id, tenant.id)
            );
            sum += i128::from(transfer.amount.get());
        }
        assert!(sum >= 0);
    }
}

pub(crate) async fn all_transfers(
    store: &dyn Store,
    tenant: TenantId,
) -> Vec<turnpike_core::ledger::Transfer> {
    let mut all = Vec::new();
    let mut sink = |transfer| {
        all.push(transfer);
        true
    };
    store
        .scan(tenant, &mut turnpike_store::Scan::Transfers(&mut sink))
        .await
        .unwrap();
    all
}

pub(crate) async fn add_tenant(store: &dyn Store) -> TenantId {
    let id = TenantId(next_id());
    let tenant = Tenant {
        id,
        name: format!("tenant {id}"),
        status: TenantStatus::Active,
        credits_per_dollar: CreditsPerDollar::default(),
        settings: TenantSettings::default(),
        created_at: NOW,
    };
    store.insert_tenant(&tenant, &audit_row(id)).await.unwrap();
    id
}

async fn open(place: &Place, queue: Option<usize>) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match place {
        Place::Sqlite(directory) => {
            let mut options = SqliteOptions::new(directory.path().join("turnpike.db"));
            "the contract suite".clone_into(&mut options.owner);
            Arc::new(SqliteStore::open(&options)?)
        }
        Place::Postgres(database) => {
            let mut options = PostgresOptions::new(&database.url);
            options.queue = queue.unwrap_or(options.queue);
            options.max_batch = if queue.is_some() { 1 } else { options.max_batch };
            options.read_pool = 4;
            Arc::new(PostgresStore::connect(options).await?)
        }
        Place::Memory => Arc::new(MemoryStore::new()),
    })
}

/// The store, and with PostgreSQL a second one on the same data.
pub(crate) async fn stores(world: &World) -> Vec<Arc<dyn Store>> {
    let mut stores = vec![world.store.clone()];
    if world.kind == Kind::Postgres {
        stores.push(world.second().await.unwrap());
    }
    stores
}

/// Ends all but the world's own.
pub(crate) async fn close(stores: Vec<Arc<dyn Store>>) {
    for store in stores.into_iter().skip(1) {
        store.close().await;
    }
}
