//! The embedded store: one writer thread that owns the connection, readers and a copier of the log beside it.
//!
//! WAL with `synchronous=FULL`: a command is answered after an fsync that it shares with its batch. A lock
//! file keeps a second service away from the file.

mod checkpoint;
mod convert;
mod load;
mod log;
mod read;
mod write;
mod write_drift;
mod write_money_in;
mod write_paid_calls;
mod write_payouts;
mod write_quotes;
mod writer;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::{mpsc, oneshot};
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::audit::AuditReport;
use turnpike_core::ledger::{Command, Outcome};

use self::checkpoint::Checkpoints;
use self::read::Readers;
use self::writer::Job;
use crate::error::{StoreError, SubmitError};
use crate::migrate;
use crate::sql::{Param, Row, RowSink, Sql, Statement};
use crate::traits::{Ledger, Upkeep};
use crate::upkeep::SharedUpkeep;

/// How to open the embedded store.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The database file.
    pub path: PathBuf,
    /// Most commands that wait for the writer; more are refused.
    pub queue: usize,
    /// Most commands in one transaction.
    pub max_batch: usize,
    /// Opens beside a running service: no lock, no writes.
    pub read_only: bool,
    /// What a second service is told about this one.
    pub owner: String,
}

impl SqliteOptions {
    /// The usual settings for `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            queue: 8192,
            max_batch: 512,
            read_only: false,
            owner: String::new(),
        }
    }
}

/// The embedded store.
pub struct SqliteStore {
    jobs: Option<mpsc::Sender<Job>>,
    readers: Readers,
    failed: Arc<AtomicBool>,
    // Held for as long as the store is open.
    _lock: Option<File>,
}

impl SqliteStore {
    /// Opens the file, creating and migrating it unless `read_only`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another service has it, [`StoreError::Schema`] when it is too new, or too old for
    /// somebody who only reads.
    pub fn open(options: &SqliteOptions) -> Result<Self, StoreError> {
        let failed = Arc::new(AtomicBool::new(false));
        if options.read_only {
            check_schema(&options.path)?;
            return Ok(Self {
                jobs: None,
                readers: Readers::open(&options.path)?,
                failed,
                _lock: None,
            });
        }
        let lock = take_lock(options)?;
        let mut connection = log::open(&options.path).map_err(convert::store_error)?;
        configure(&connection)?;
        migrate_schema(&mut connection)?;
        // Not earlier: a migration may move more than fits into memory.
        log::keep_until_commit(&connection).map_err(convert::store_error)?;
        let other = Connection::open(&options.path).map_err(convert::store_error)?;
        configure(&other)?;
        let checkpoints = Checkpoints::watch(&mut connection, other, failed.clone())?;
        let (jobs, queue) = mpsc::channel(options.queue);
        let (failed_in_writer, max_batch) = (failed.clone(), options.max_batch);
        std::thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn(move || writer::run(connection, queue, max_batch, checkpoints, &failed_in_writer))
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self {
            jobs: Some(jobs),
            readers: Readers::open(&options.path)?,
            failed,
            _lock: Some(lock),
        })
    }

    fn jobs(&self) -> Result<&mpsc::Sender<Job>, StoreError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable(writer::DISK_FAILED.to_owned()));
        }
        self.jobs
            .as_ref()
            .ok_or_else(|| StoreError::Unavailable("opened for reading".to_owned()))
    }
}

fn take_lock(options: &SqliteOptions) -> Result<File, StoreError> {
    let path = options.path.with_extension("lock");
    let io = |error: std::io::Error| StoreError::Unavailable(format!("{}: {error}", path.display()));
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(io)?;
    }
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(io)?;
    if file.try_lock().is_err() {
        let mut owner = String::new();
        file.read_to_string(&mut owner).map_err(io)?;
        return Err(StoreError::Locked(format!(
            "{} is in use by another turnpike ({}); one service per file",
            options.path.display(),
            owner.trim()
        )));
    }
    file.set_len(0).map_err(io)?;
    file.rewind().map_err(io)?;
    write!(file, "pid {} {}", std::process::id(), options.owner).map_err(io)?;
    Ok(file)
}

fn configure(connection: &Connection) -> Result<(), StoreError> {
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             PRAGMA busy_timeout = 10000;
             PRAGMA cache_size = -4096;
             PRAGMA temp_store = MEMORY;
             PRAGMA foreign_keys = ON;",
        )
        .map_err(convert::store_error)?;
    connection.set_prepared_statement_cache_capacity(64);
    // A statement keeps its plan whatever is bound to it; otherwise the partial indexes have some prepared anew.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(convert::store_error)?;
    Ok(())
}

fn applied(connection: &Connection) -> Result<Vec<(i64, String)>, StoreError> {
    let mut list = connection.prepare(migrate::LIST).map_err(convert::store_error)?;
    let rows = list
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(convert::store_error)?;
    rows.collect::<Result<_, _>>().map_err(convert::store_error)
}

/// Whoever only reads cannot bring the schema up to date.
fn check_schema(path: &Path) -> Result<(), StoreError> {
    let applied = applied(&open_reader(path)?)?;
    match migrate::pending(migrate::SQLITE, &applied)?.first() {
        None => Ok(()),
        Some(missing) => Err(StoreError::Schema(format!(
            "the file is without migration {}: start the service on it once",
            missing.name
        ))),
    }
}

fn migrate_schema(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(convert::store_error)?;
    transaction
        .execute_batch(migrate::CREATE_TABLE)
        .map_err(convert::store_error)?;
    for migration in migrate::pending(migrate::SQLITE, &applied(&transaction)?)? {
        transaction
            .execute_batch(migration.sql)
            .map_err(convert::store_error)?;
        transaction
            .execute(
                migrate::RECORD,
                rusqlite::params![migration.version, migration.name, migration.checksum()],
            )
            .map_err(convert::store_error)?;
    }
    transaction.commit().map_err(convert::store_error)
}

pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(convert::store_error)?;
    connection
        .execute_batch("PRAGMA busy_timeout = 10000; PRAGMA cache_size = -2048; PRAGMA query_only = ON;")
        .map_err(convert::store_error)?;
    Ok(connection)
}

#[async_trait]
impl Ledger for SqliteStore {
    async fn submit(&self, command: Command) -> Result<Outcome, SubmitError> {
        let (answer, answered) = oneshot::channel();
        self.jobs()?
            .try_send(Job::Command(Box::new(command), answer))
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => SubmitError::Busy,
                mpsc::error::TrySendError::Closed(_) => {
                    SubmitError::Unavailable("the ledger writer has ended".to_owned())
                }
            })?;
        answered.await.unwrap_or(Err(SubmitError::Unknown))
    }
}

#[async_trait]
impl Sql for SqliteStore {
    async fn query(&self, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
        self.readers.query(sql.to_owned(), params).await
    }

    async fn write(&self, statements: Vec<Statement>) -> Result<Vec<u64>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Unavailable("the ledger writer has ended".to_owned());
        self.jobs()?
            .send(Job::Write(statements, answer))
            .await
            .map_err(|_closed| gone())?;
        answered.await.unwrap_or_else(|_gone| Err(gone()))
    }

    async fn write_beside(&self, statements: Vec<Statement>) -> Result<Option<Vec<u64>>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let gone = || StoreError::Unavailable("the ledger writer has ended".to_owned());
        self.jobs()?
            .send(Job::WriteBeside(statements, answer))
            .await
            .map_err(|_closed| gone())?;
        answered.await.unwrap_or_else(|_gone| Err(gone()))
    }

    async fn snapshot(&self, queries: Vec<Statement>, sink: RowSink<'_>) -> Result<(), StoreError> {
        self.readers.snapshot(queries, sink).await
    }

    // One thread writes: nothing is locked by another.
    fn skip_locked(&self) -> &'static str {
        ""
    }

    fn share_w(&self) -> &'static str {
        ""
    }

    fn clock_sql(&self) -> Option<&'static str> {
        None
    }

    fn json_member(&self, column: &str, param: usize) -> String {
        format!(
            "(SELECT value FROM json_each({column}) WHERE json_each.key = ${param} AND json_each.type = 'text')"
        )
    }
}

#[async_trait]
impl Upkeep for SqliteStore {
    async fn ping(&self) -> Result<(), StoreError> {
        self.jobs()?;
        self.select_one().await
    }

    async fn audit(
        &self,
        tenant: TenantId,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<AuditReport, StoreError> {
        self.audit_tenant(tenant, progress).await
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn close(&self) {
        let Some(jobs) = &self.jobs else { return };
        let (done, ended) = oneshot::channel();
        if jobs.send(Job::Stop(done)).await.is_ok() && ended.await.is_err() {
            tracing::warn!("the ledger writer ended before it was asked to");
        }
    }
}
