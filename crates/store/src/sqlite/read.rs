//! Readers beside the writer: a few read-only connections, used on blocking threads.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc};

use super::convert::{bind, row, store_error};
use super::open_reader;
use crate::error::StoreError;
use crate::sql::{Param, Row, RowSink, Statement};

const READERS: usize = 4;
/// Rows between the reading thread and whoever consumes a snapshot.
const SNAPSHOT_BUFFER: usize = 256;

/// Every row of a query.
pub(super) fn all_rows(connection: &Connection, sql: &str, params: &[Param]) -> Result<Vec<Row>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(store_error)?;
    bind(&mut statement, params).map_err(store_error)?;
    let mut rows = statement.raw_query();
    let mut all = Vec::new();
    while let Some(next) = rows.next().map_err(store_error)? {
        all.push(row(next).map_err(store_error)?);
    }
    Ok(all)
}

#[derive(Clone)]
pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    places: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let idle = (0..READERS)
            .map(|_| open_reader(path))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            idle: Arc::new(Mutex::new(idle)),
            places: Arc::new(Semaphore::new(READERS)),
        })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let gone = |error: &dyn std::fmt::Display| StoreError::Unavailable(error.to_string());
        let place = self
            .places
            .clone()
            .acquire_owned()
            .await
            .map_err(|error| gone(&error))?;
        let idle = self.idle.clone();
        tokio::task::spawn_blocking(move || {
            let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = taken.ok_or_else(|| StoreError::Unavailable("no reader left".to_owned()))?;
            let result = work(&mut connection);
            idle.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(connection);
            drop(place);
            result
        })
        .await
        .map_err(|error| gone(&error))?
    }

    pub(super) async fn query(&self, sql: String, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
        self.run(move |connection| all_rows(connection, &sql, &params))
            .await
    }

    pub(super) async fn snapshot(
        &self,
        queries: Vec<Statement>,
        sink: RowSink<'_>,
    ) -> Result<(), StoreError> {
        let (rows, mut received) = mpsc::channel(SNAPSHOT_BUFFER);
        let reading = self.run(move |connection| {
            let transaction = connection.transaction().map_err(store_error)?;
            for (index, query) in queries.iter().enumerate() {
                let mut statement = transaction.prepare(&query.sql).map_err(store_error)?;
                bind(&mut statement, &query.params).map_err(store_error)?;
                let mut found = statement.raw_query();
                while let Some(next) = found.next().map_err(store_error)? {
                    if rows
                        .blocking_send((index, row(next).map_err(store_error)?))
                        .is_err()
                    {
                        return Ok(());
                    }
                }
            }
            Ok(())
        });
        let consuming = async {
            while let Some((index, row)) = received.recv().await {
                if !sink(index, row)? {
                    break;
                }
            }
            // Tells the reader to stop when the sink has had enough.
            drop(received);
            Ok(())
        };
        let (read, consumed) = futures_util::future::join(reading, consuming).await;
        consumed.and(read)
    }
}
