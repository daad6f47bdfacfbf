//! The shared store: PostgreSQL, for several processes at once.
//!
//! Commands run in batches on a few lanes, one connection each; a tenant's bucket decides the lane. Batches of
//! several processes on one tenant take turns at the lock of the tenant's row. Reads and the directory's writes
//! use a pool of connections.

mod connect;
mod convert;
mod lane;
mod load;
mod read;
mod session;
mod write;
mod write_drift;
mod write_money_in;
mod write_paid_calls;
mod write_payouts;
mod write_quotes;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::audit::AuditReport;
use turnpike_core::ledger::{Command, Outcome};

use self::connect::{Target, migrate_schema};
use self::lane::{Job, Lane, Waiting};
use self::read::Reads;
use crate::error::{StoreError, SubmitError};
use crate::sql::{Param, Row, RowSink, Sql, Statement};
use crate::traits::{Ledger, Upkeep};
use crate::upkeep::SharedUpkeep;

/// How to open the shared store.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// `postgres://…`; `sslmode=require` asks for TLS with a checked certificate.
    pub url: String,
    /// Certificates in PEM that the server's may be signed by; `None` = those of the system.
    pub root_certificates: Option<PathBuf>,
    /// Lanes, each with one connection.
    pub lanes: usize,
    /// Most commands that wait for one lane; more are refused.
    pub queue: usize,
    /// Most commands in one transaction.
    pub max_batch: usize,
    /// Connections for reads and for the directory.
    pub read_pool: usize,
    /// Longest wait for a connection to be opened.
    pub connect_timeout: Duration,
    /// Longest wait for a connection of the pool.
    pub acquire_timeout: Duration,
    /// No transaction spans two buckets: for a database that is distributed by them.
    pub batch_by_bucket: bool,
}

impl PostgresOptions {
    /// The usual settings for `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            root_certificates: None,
            lanes: 4,
            queue: 4096,
            max_batch: 256,
            read_pool: 8,
            connect_timeout: Duration::from_secs(2),
            acquire_timeout: Duration::from_secs(2),
            batch_by_bucket: false,
        }
    }
}

/// The shared store.
pub struct PostgresStore {
    lanes: Vec<mpsc::Sender<Job>>,
    reads: Reads,
}

impl PostgresStore {
    /// Connects, migrates the schema and starts the lanes on the running tokio runtime.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server cannot be reached, [`StoreError::Schema`] when its schema is
    /// too new.
    pub async fn connect(options: PostgresOptions) -> Result<Self, StoreError> {
        let target = Target::new(&options)?;
        let reads = Reads::new(&target, &options)?;
        let mut connected = target.connect().await?;
        migrate_schema(&mut connected).await?;
        lane::prune_marks(&connected.client).await?;
        let mut lanes = Vec::with_capacity(options.lanes.max(1));
        for _ in 0..options.lanes.max(1) {
            let named = connected.client.query_one("SELECT gen_random_uuid()", &[]).await;
            let id = named
                .and_then(|row| row.try_get(0))
                .map_err(|error| convert::store_error(&error))?;
            let (jobs, queue) = mpsc::channel(options.queue.max(1));
            let lane = Lane {
                target: target.clone(),
                id,
                max_batch: options.max_batch.max(1),
                batch_by_bucket: options.batch_by_bucket,
                queue,
                session: None,
                batches: 0,
                rest_until: None,
                pending: VecDeque::new(),
                stop: None,
            };
            tokio::spawn(lane.run());
            lanes.push(jobs);
        }
        Ok(Self { lanes, reads })
    }

    fn lane(&self, tenant: TenantId) -> Option<&mpsc::Sender<Job>> {
        let bucket = usize::try_from(tenant.bucket()).unwrap_or_default();
        self.lanes.get(bucket.checked_rem(self.lanes.len())?)
    }
}

fn closed() -> SubmitError {
    SubmitError::Unavailable("the store is closed".to_owned())
}

#[async_trait]
impl Ledger for PostgresStore {
    async fn submit(&self, command: Command) -> Result<Outcome, SubmitError> {
        let (answer, answered) = oneshot::channel();
        let lane = self.lane(command.tenant).ok_or_else(closed)?;
        let waiting = Waiting {
            command: Box::new(command),
            answer,
        };
        lane.try_send(Job::Command(waiting))
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => SubmitError::Busy,
                mpsc::error::TrySendError::Closed(_) => closed(),
            })?;
        answered.await.unwrap_or(Err(SubmitError::Unknown))
    }
}

#[async_trait]
impl Sql for PostgresStore {
    async fn query(&self, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
        self.reads.query(sql, params).await
    }

    async fn write(&self, statements: Vec<Statement>) -> Result<Vec<u64>, StoreError> {
        self.reads.write(&statements).await
    }

    async fn write_beside(&self, statements: Vec<Statement>) -> Result<Option<Vec<u64>>, StoreError> {
        self.reads.write_beside(&statements).await
    }

    async fn snapshot(&self, queries: Vec<Statement>, sink: RowSink<'_>) -> Result<(), StoreError> {
        self.reads.snapshot(&queries, sink).await
    }

    fn skip_locked(&self) -> &'static str {
        "FOR UPDATE SKIP LOCKED"
    }

    fn share_w(&self) -> &'static str {
        "FOR SHARE OF w"
    }

    fn clock_sql(&self) -> Option<&'static str> {
        Some("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)")
    }

    fn json_member(&self, column: &str, param: usize) -> String {
        let member = format!("CAST({column} AS json), CAST(${param} AS text)");
        format!(
            "(CASE WHEN json_typeof(json_extract_path({member})) = 'string' THEN json_extract_path_text({member}) END)"
        )
    }
}

#[async_trait]
impl Upkeep for PostgresStore {
    async fn ping(&self) -> Result<(), StoreError> {
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
        true
    }

    async fn close(&self) {
        for lane in &self.lanes {
            let (done, ended) = oneshot::channel();
            if lane.send(Job::Stop(done)).await.is_ok() && ended.await.is_err() {
                tracing::warn!("a ledger lane ended before it was asked to");
            }
        }
        self.reads.close();
    }
}
