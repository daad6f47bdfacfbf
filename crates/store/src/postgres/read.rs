//! Reads and the directory's small transactions, on a pool of connections.

use std::borrow::Cow;

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Transaction,
};
use futures_util::future::try_join_all;
use tokio_postgres::{Error, IsolationLevel, NoTls};

use super::PostgresOptions;
use super::connect::Target;
use super::convert::{self, store_error};
use crate::audit_log;
use crate::error::StoreError;
use crate::sql::{Param, Row, RowSink, Statement};

/// Rows fetched at a time while a snapshot is streamed.
const FETCH: i32 = 512;
/// Statements sent without waiting for one another's answers; up to 30 futures are polled in their order.
const FLIGHT: usize = 30;
/// How often a transaction is begun that others stand in a circle with.
const MAX_ATTEMPTS: u32 = 4;

#[derive(Clone)]
pub(super) struct Reads {
    pool: Pool,
}

impl Reads {
    pub(super) fn new(target: &Target, options: &PostgresOptions) -> Result<Self, StoreError> {
        let mut config = target.config.clone();
        // A writer of the directory that finds a row locked, or was forgotten, gives up.
        let settings = "-c lock_timeout=5s -c idle_in_transaction_session_timeout=60s";
        let asked = config
            .get_options()
            .map_or_else(|| settings.to_owned(), |own| format!("{settings} {own}"));
        config.options(asked);
        let manager_config = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = match target.tls.clone() {
            Some(tls) => Manager::from_config(config, tls, manager_config),
            None => Manager::from_config(config, NoTls, manager_config),
        };
        let pool = Pool::builder(manager)
            .runtime(Runtime::Tokio1)
            .max_size(options.read_pool.max(1))
            .wait_timeout(Some(options.acquire_timeout))
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.connect_timeout))
            .build()
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { pool })
    }

    async fn connection(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => StoreError::Unavailable(convert::describe(&error)),
            PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => StoreError::Unavailable(format!("no connection: {error}")),
        })
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }

    pub(super) async fn query(&self, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
        let connection = self.connection().await?;
        let read = async {
            let statement = connection.prepare_cached(sql).await?;
            let bound: Vec<_> = params.iter().map(to_sql).collect();
            let rows = connection.query(&statement, &bound).await?;
            rows.iter().map(convert::row).collect::<Result<Vec<_>, Error>>()
        };
        read.await.map_err(|error| store_error(&error))
    }

    /// See [`crate::sql::Sql::write`].
    pub(super) async fn write(&self, statements: &[Statement]) -> Result<Vec<u64>, StoreError> {
        tried(|| self.try_write(statements)).await
    }

    async fn try_write(&self, statements: &[Statement]) -> Result<Vec<u64>, WriteError> {
        let mut connection = self.connection().await?;
        let transaction = connection.transaction().await?;
        let chained = behind_head(&transaction, statements).await?;
        let mut touched = Vec::with_capacity(chained.len());
        for statement in &*chained {
            let prepared = transaction.prepare_cached(&statement.sql).await?;
            let bound: Vec<_> = statement.params.iter().map(to_sql).collect();
            touched.push(transaction.execute(&prepared, &bound).await?);
            if touched == [0] {
                transaction.rollback().await?;
                return Ok(touched);
            }
        }
        transaction.commit().await?;
        touched.truncate(statements.len());
        Ok(touched)
    }

    /// See [`crate::sql::Sql::write_beside`]. Statements between required ones go to the server in one flight.
    pub(super) async fn write_beside(
        &self,
        statements: &[Statement],
    ) -> Result<Option<Vec<u64>>, StoreError> {
        tried(|| self.try_write_beside(statements)).await
    }

    async fn try_write_beside(&self, statements: &[Statement]) -> Result<Option<Vec<u64>>, WriteError> {
        let mut connection = self.connection().await?;
        let transaction = connection.transaction().await?;
        let chained = behind_head(&transaction, statements).await?;
        let mut touched = Vec::with_capacity(chained.len());
        for flight in chained.split_inclusive(|statement| statement.required) {
            let mut prepared = Vec::with_capacity(flight.len());
            for statement in flight {
                prepared.push(transaction.prepare_cached(&statement.sql).await?);
            }
            let bound: Vec<Vec<_>> = flight
                .iter()
                .map(|statement| statement.params.iter().map(to_sql).collect())
                .collect();
            for (prepared, bound) in prepared.chunks(FLIGHT).zip(bound.chunks(FLIGHT)) {
                let running = prepared
                    .iter()
                    .zip(bound)
                    .map(|(statement, bound)| transaction.execute(statement, bound));
                touched.extend(try_join_all(running).await?);
            }
            if flight.last().is_some_and(|last| last.required) && touched.last() == Some(&0) {
                transaction.rollback().await?;
                return Ok(None);
            }
        }
        transaction.commit().await?;
        touched.truncate(statements.len());
        Ok(Some(touched))
    }

    /// See [`crate::sql::Sql::snapshot`].
    pub(super) async fn snapshot(&self, queries: &[Statement], sink: RowSink<'_>) -> Result<(), StoreError> {
        let mut connection = self.connection().await?;
        let transaction = connection
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .read_only(true)
            .start()
            .await
            .map_err(|error| store_error(&error))?;
        for (index, query) in queries.iter().enumerate() {
            let bound: Vec<_> = query.params.iter().map(to_sql).collect();
            let portal = transaction
                .bind(&*query.sql, &bound)
                .await
                .map_err(|error| store_error(&error))?;
            loop {
                let rows = transaction
                    .query_portal(&portal, FETCH)
                    .await
                    .map_err(|error| store_error(&error))?;
                for row in &rows {
                    let row = convert::row(row).map_err(|error| store_error(&error))?;
                    if !sink(index, row)? {
                        return transaction.rollback().await.map_err(|error| store_error(&error));
                    }
                }
                if i32::try_from(rows.len()).is_ok_and(|read| read < FETCH) {
                    break;
                }
            }
        }
        transaction.commit().await.map_err(|error| store_error(&error))
    }
}

/// A transaction that the server rolled back so that another could go on is run again.
async fn tried<T, F>(transaction: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, WriteError>>,
{
    for _ in 1..MAX_ATTEMPTS {
        match transaction().await {
            Err(WriteError::Database(error)) if convert::is_victim(&error) => {
                tracing::debug!(reason = convert::describe(&error), "a transaction is run again");
            }
            result => return result.map_err(WriteError::into_store),
        }
    }
    transaction().await.map_err(WriteError::into_store)
}

/// Why a transaction of the directory was not written.
enum WriteError {
    Database(Error),
    Store(StoreError),
}

impl WriteError {
    fn into_store(self) -> StoreError {
        match self {
            Self::Database(error) => store_error(&error),
            Self::Store(error) => error,
        }
    }
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The statements of a transaction with the rows of the audit log that they append; the workspace's row is held from
/// here on, before any other, as batches do it.
async fn behind_head<'a>(
    transaction: &Transaction<'_>,
    statements: &'a [Statement],
) -> Result<Cow<'a, [Statement]>, WriteError> {
    let Some(tenant) = audit_log::audited(statements)? else {
        return Ok(Cow::Borrowed(statements));
    };
    let lock = audit_log::head_of(tenant, "FOR NO KEY UPDATE");
    let prepared = transaction.prepare_cached(&lock.sql).await?;
    let bound: Vec<_> = lock.params.iter().map(to_sql).collect();
    let head = transaction.query_opt(&prepared, &bound).await?;
    let head = head.as_ref().map(convert::row).transpose()?;
    let chained = audit_log::chained(statements, tenant, head.as_ref())?;
    Ok(Cow::Owned(chained))
}

fn to_sql(param: &Param) -> &(dyn tokio_postgres::types::ToSql + Sync) {
    param
}
