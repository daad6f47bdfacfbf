//! Readers beside the writer: a few threads with a read-only connection each.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::convert::{bind, row, store_error};
use super::open_reader;
use crate::error::StoreError;
use crate::sql::{Param, Row, RowSink, Statement};

const READERS: usize = 4;
/// Most queries that share a snapshot: the last of them waits for all.
const MAX_SHARE: usize = 8;
/// Reads that wait for a thread or are with one; who comes then waits to be let in.
const MAX_WAITING: usize = 1024;
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

/// Work of a reading thread, with its place among what waits.
struct Job {
    ask: Ask,
    place: OwnedSemaphorePermit,
}

/// What a reading thread is asked for.
enum Ask {
    /// Every row of a query.
    Query {
        sql: String,
        params: Vec<Param>,
        answer: oneshot::Sender<Result<Vec<Row>, StoreError>>,
    },
    /// Something that opens a transaction of its own.
    Work(Box<dyn FnOnce(&mut Connection) + Send>),
}

/// What waits for a reading thread.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

type Waiting = Arc<(Mutex<Queue>, Condvar)>;

/// The reading threads. They end when this goes away.
pub(super) struct Readers {
    waiting: Waiting,
    places: Arc<Semaphore>,
}

impl Drop for Readers {
    fn drop(&mut self) {
        let (queue, changed) = &*self.waiting;
        queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        changed.notify_all();
    }
}

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let waiting = Waiting::default();
        for _ in 0..READERS {
            let connection = open_reader(path)?;
            let waiting = waiting.clone();
            std::thread::Builder::new()
                .name("ledger-reader".to_owned())
                .spawn(move || read(connection, &waiting))
                .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        Ok(Self {
            waiting,
            places: Arc::new(Semaphore::new(MAX_WAITING)),
        })
    }

    fn push(&self, job: Job) {
        let (queue, changed) = &*self.waiting;
        queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .jobs
            .push_back(job);
        changed.notify_one();
    }

    async fn ask<T>(
        &self,
        ask: Ask,
        answered: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let gone = |error: &dyn std::fmt::Display| StoreError::Unavailable(error.to_string());
        let place = self.places.clone().acquire_owned().await;
        // Held until the job is done, also when nobody waits for it any more.
        let place = place.map_err(|error| gone(&error))?;
        self.push(Job { ask, place });
        answered.await.map_err(|error| gone(&error))?
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let work = move |connection: &mut Connection| drop(answer.send(work(connection)));
        self.ask(Ask::Work(Box::new(work)), answered).await
    }

    pub(super) async fn query(&self, sql: String, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Query { sql, params, answer }, answered).await
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

/// Takes what waits until the store goes away. A share of it at once: queries that wait together share a snapshot, and
/// with it the pages that the last commit made everybody read anew.
fn read(mut connection: Connection, waiting: &Waiting) {
    let (queue, changed) = &**waiting;
    let mut taken = VecDeque::new();
    loop {
        {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            while queue.jobs.is_empty() && !queue.closed {
                queue = changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.jobs.is_empty() {
                return;
            }
            take(&mut queue.jobs, &mut taken);
        }
        let together = taken.len() > 1 && begin(&connection);
        while let Some(Job { ask, place }) = taken.pop_front() {
            match ask {
                // Whoever asked may be gone.
                Ask::Query { sql, params, answer } => drop(answer.send(all_rows(&connection, &sql, &params))),
                Ask::Work(work) => {
                    // Whoever waits for it is told by the channel that it took along.
                    if catch_unwind(AssertUnwindSafe(|| work(&mut connection))).is_err() {
                        tracing::error!("a read panicked");
                    }
                }
            }
            drop(place);
        }
        if together {
            end(&connection);
        }
    }
}

/// Takes a share of the queries that wait first; what has a transaction of its own, which may last, is taken alone.
fn take(jobs: &mut VecDeque<Job>, taken: &mut VecDeque<Job>) {
    let share = jobs.len().div_ceil(READERS).min(MAX_SHARE);
    while taken.len() < share {
        let lasts = |job: &Job| matches!(job.ask, Ask::Work(_));
        if !taken.is_empty() && jobs.front().is_some_and(lasts) {
            return;
        }
        let Some(job) = jobs.pop_front() else { return };
        let alone = lasts(&job);
        taken.push_back(job);
        if alone {
            return;
        }
    }
}

fn begin(connection: &Connection) -> bool {
    let begun = connection
        .prepare_cached("BEGIN")
        .and_then(|mut begin| begin.execute([]));
    // Each query then has a snapshot of its own.
    begun
        .inspect_err(|error| tracing::warn!(%error, "no common snapshot"))
        .is_ok()
}

fn end(connection: &Connection) {
    if connection.is_autocommit() {
        return;
    }
    let ended = connection
        .prepare_cached("COMMIT")
        .and_then(|mut end| end.execute([]));
    if let Err(error) = ended {
        tracing::warn!(%error, "a common snapshot did not end");
    }
}
