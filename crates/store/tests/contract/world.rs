//! What a test stands on: a fresh store of one kind, and short ways to say what should happen in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use turnpike_core::ids::{CallId, CommandId, ExternalUserId, TenantId};
use turnpike_core::ledger::account::Balance;
use turnpike_core::ledger::command::{
    Capture, Grant, GrantSource, Move, NewClaim, NewHold, OutcomeKind, Release, StoredOutcome,
};
use turnpike_core::ledger::hold::{CallSubject, ClaimKey};
use turnpike_core::ledger::{
    AccountKey, AccountKind, Action, CallRef, Command, Outcome, Payer, TenantStatus,
};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::pricing::Charge;
use turnpike_core::time::Timestamp;
use turnpike_store::{
    AuditRow, MemoryStore, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store, StoreError,
    SubmitError, Tenant, TenantSettings,
};
use uuid::Uuid;

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
    Ok(messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
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

pub(crate) fn usd(micros: i64) -> Micros {
    Micros::new(micros)
}

pub(crate) fn user(name: &str) -> Payer {
    Payer::EndUser(external(name))
}

pub(crate) fn external(name: &str) -> ExternalUserId {
    ExternalUserId::parse(name).unwrap()
}

pub(crate) fn audit_row(tenant: TenantId) -> AuditRow {
    AuditRow {
        id: next_id(),
        tenant,
        at: NOW,
        actor: "tester".to_owned(),
        action: "test",
        target: "thing".to_owned(),
        before: None,
        after: Some("{}".to_owned()),
        origin: "127.0.0.1".to_owned(),
    }
}

pub(crate) fn subject() -> CallSubject {
    CallSubject {
        provider: "openai".into(),
        endpoint: "chat".into(),
        model: Some("m-1".into()),
        streamed: false,
        credential: "key:1".into(),
        attribution: None,
        price: "{}".into(),
    }
}

pub(crate) fn new_hold(payer: &Payer, micros: i64) -> NewHold {
    NewHold {
        call: CallId(next_id()),
        payer: payer.clone(),
        claim: None,
        loop_id: None,
        amount: usd(micros),
        base: usd(micros),
        subject: subject(),
        instance: Uuid::nil(),
        deadline: NOW.plus_millis(60_000),
    }
}

pub(crate) fn claim(tenant: TenantId, key: &str, fingerprint: u8) -> NewClaim {
    let key = ClaimKey {
        tenant,
        scope: "key:1 chat".into(),
        key: key.into(),
    };
    NewClaim {
        key,
        fingerprint: [fingerprint; 32],
    }
}

/// How the later commands name a call that was held by `hold`.
pub(crate) fn reference(hold: &NewHold) -> CallRef {
    CallRef {
        call: hold.call,
        payer: hold.payer.clone(),
        claim: hold.claim.as_ref().map(|claim| claim.key.clone()),
        loop_id: hold.loop_id.clone(),
    }
}

pub(crate) fn charge(base: i64, margin: i64) -> Charge {
    Charge {
        base: usd(base),
        markup: usd(margin),
        flat: usd(0),
        margin: usd(margin),
        effective: usd(base + margin),
    }
}

pub(crate) fn answer(body: &'static str) -> StoredOutcome {
    StoredOutcome {
        kind: OutcomeKind::Success,
        body: Some(body.into()),
        expires_at: NOW.plus_millis(86_400_000),
    }
}

pub(crate) fn capture(hold: &NewHold, base: i64, margin: i64) -> Action {
    Action::Capture(Box::new(Capture {
        call: reference(hold),
        charge: charge(base, margin),
        usage: None,
        drift: None,
        outcome: Some(answer("{\"ok\":1}")),
    }))
}

pub(crate) fn release(hold: &NewHold, outcome: Option<StoredOutcome>) -> Action {
    Action::Release(Release {
        call: reference(hold),
        failure: "UPSTREAM_ERROR".into(),
        outcome,
        drift: None,
    })
}

pub(crate) fn grant(to: &Payer, micros: i64) -> Action {
    Action::Grant(Grant {
        to: to.clone(),
        amount: usd(micros),
        source: GrantSource::ManualGrant,
        reason: "test".into(),
        claim: None,
    })
}

pub(crate) fn move_to(end_user: &str, micros: i64, to_end_user: bool) -> Action {
    Action::Move(Move {
        end_user: external(end_user),
        to_end_user,
        amount: usd(micros),
        reference: "test".into(),
        claim: None,
    })
}

pub(crate) fn command(tenant: TenantId, action: Action) -> Command {
    Command {
        id: CommandId(next_id()),
        tenant,
        at: NOW,
        action,
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

    /// A store with a queue of `queue` on data of its own, with a tenant in it.
    pub(crate) async fn narrow(&self, queue: usize) -> Arc<dyn Store> {
        match &self.place {
            Place::Postgres(_) | Place::Memory => open(&self.place, Some(queue)).await.unwrap(),
            Place::Sqlite(_) => {
                self.store.close().await;
                let place = Place::Sqlite(tempfile::tempdir().unwrap());
                let store = open(&place, Some(queue)).await.unwrap();
                // The directory stays until the process ends.
                if let Place::Sqlite(directory) = place {
                    directory.keep();
                }
                store
            }
        }
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

    pub(crate) async fn posted(&self, tenant: TenantId, kind: AccountKind) -> i64 {
        let found = self
            .store
            .find_account(&AccountKey::of(tenant, kind))
            .await
            .unwrap();
        found.unwrap_or_default().posted.get()
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
                        first = row
                            .get::<_, rusqlite::types::Value>(0)
                            .ok()
                            .map(|value| match value {
                                rusqlite::types::Value::Integer(n) => n.to_string(),
                                rusqlite::types::Value::Text(text) => text,
                                other => format!("{other:?}"),
                            });
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
            options.owner = "the contract suite".to_owned();
            options.queue = queue.unwrap_or(options.queue);
            options.max_batch = if queue.is_some() { 1 } else { options.max_batch };
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
