//! One lane's connection: runs one batch as one transaction in two round trips.
//!
//! First trip: BEGIN, the lane's mark, the lock of the tenants, the loads. Second trip: the writes and COMMIT.
//! Both are sent whole before an answer is awaited.
//!
//! INVARIANT: COMMIT of a transaction in which a statement failed is answered like any other COMMIT although
//! nothing was written; so every statement's own answer is looked at before a batch counts as written.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::try_join_all;
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Statement};
use turnpike_core::ledger::{Command, Needs, Outcome, Rejection, apply};
use uuid::Uuid;

use super::connect::{Connected, Target};
use super::convert::{Fault, describe, fault};
use super::load::{Keys, Loads};
use super::write::{self, Writes};
use crate::error::StoreError;

/// The statements carry arrays whose lengths a generic plan cannot know, and the tables may be empty when they
/// are planned and huge when they run: without these the planner now and then reads a whole table for a handful
/// of keys. With them each key is one index lookup, always. The timeouts bound what one batch can wait for.
const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off;
    SET jit = off;
    SET statement_timeout = '10s'; SET lock_timeout = '1s'; SET idle_in_transaction_session_timeout = '10s'";
/// Above the server's own limits: reached only when the way to the server is cut without a word.
const ROUND_TRIP: Duration = Duration::from_secs(12);
// Waits for the end of the transaction in question, because that one holds the row or is about to insert it.
const READ_MARK: &str = "INSERT INTO lane_marks AS m (bucket, lane, batch) VALUES ($1, $2, 0)
    ON CONFLICT (bucket, lane) DO UPDATE SET batch = m.batch RETURNING batch";
const WRITE_MARK: &str = "INSERT INTO lane_marks (bucket, lane, batch) VALUES ($1, $2, $3)
    ON CONFLICT (bucket, lane) DO UPDATE SET batch = excluded.batch, written_at = excluded.written_at";

/// Names one attempt at one batch, in the transaction that it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) bucket: i16,
    pub(super) lane: Uuid,
    pub(super) batch: i64,
}

pub(super) type Results = Vec<Result<Outcome, Rejection>>;

/// Why a batch has no results.
pub(super) enum Failure {
    /// Nothing was written, for the sake of another transaction: to be run again.
    Contention(String),
    /// Nothing was written: the server refuses a value, and would do so again.
    Refused(String),
    /// Nothing was written, and the connection is of no use any more.
    Gone(String),
    /// COMMIT was sent and its answer never came. These are the results if it happened.
    InDoubt(Results, String),
}

impl Failure {
    fn before_commit(error: &Error) -> Self {
        match fault(error) {
            Fault::Contention => Self::Contention(describe(error)),
            Fault::Duplicate | Fault::Refused => Self::Refused(describe(error)),
            Fault::Gone => Self::Gone(describe(error)),
        }
    }
}

pub(super) struct Session {
    connected: Connected,
    loads: Loads,
    writes: Writes,
    mark: Statement,
}

impl Session {
    pub(super) async fn open(target: &Target) -> Result<Self, StoreError> {
        let connected = target.connect().await?;
        let prepare = async {
            let client = &connected.client;
            client.batch_execute(SETTINGS).await?;
            let (loads, writes, mark) = tokio::try_join!(
                Loads::prepare(client),
                Writes::prepare(client),
                client.prepare(WRITE_MARK)
            )?;
            Ok::<_, Error>((loads, writes, mark))
        };
        let gone = |reason: String| StoreError::Unavailable(reason);
        let (loads, writes, mark) = tokio::time::timeout(ROUND_TRIP, prepare)
            .await
            .map_err(|_elapsed| gone("the database does not answer".to_owned()))?
            .map_err(|error| gone(describe(&error)))?;
        Ok(Self {
            connected,
            loads,
            writes,
            mark,
        })
    }

    /// Whether the transaction of `mark` was committed; an error when that cannot be told yet.
    pub(super) async fn was_committed(&self, mark: Mark) -> Result<bool, String> {
        let key: [&(dyn ToSql + Sync); 2] = [&mark.bucket, &mark.lane];
        let row = tokio::time::timeout(ROUND_TRIP, self.connected.client.query_one(READ_MARK, &key))
            .await
            .map_err(|_elapsed| "the database does not answer".to_owned())?
            .map_err(|error| describe(&error))?;
        let batch: i64 = row.try_get(0).map_err(|error| describe(&error))?;
        Ok(batch == mark.batch)
    }

    /// Runs `commands` as one transaction.
    pub(super) async fn run(&self, commands: &[&Command], mark: Mark) -> Result<Results, Failure> {
        let client = &self.connected.client;
        let mut needs = Needs::default();
        for command in commands {
            command.needs(&mut needs);
        }
        let keys = Keys::from(needs);
        let marked: [&(dyn ToSql + Sync); 3] = [&mark.bucket, &mark.lane, &mark.batch];
        let first = async {
            // A connection answers in the order in which these are first polled, which is the order here.
            tokio::join!(
                client.batch_execute("BEGIN"),
                client.execute(&self.mark, &marked),
                keys.find(client, &self.loads),
            )
        };
        let loaded = tokio::time::timeout(ROUND_TRIP, first)
            .await
            .map_err(|_elapsed| Failure::Gone("the database does not answer".to_owned()))?;
        let found = match loaded {
            (Ok(()), Ok(_), Ok(found)) => found,
            (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => {
                return Err(self.roll_back(Failure::before_commit(&error)).await);
            }
        };
        let mut books = match keys.into_books(&found) {
            Ok(books) => books,
            Err(error) => return Err(self.roll_back(Failure::Refused(error.to_string())).await),
        };
        let results: Results = commands
            .iter()
            .map(|command| apply(&mut books, command))
            .collect();
        let statements = match write::statements(client, &self.writes, &books) {
            Ok(statements) => statements,
            Err(error) => return Err(self.roll_back(Failure::Refused(error.to_string())).await),
        };
        let mut writes = try_join_all(statements).boxed();
        // This sends the writes. One that cannot be sent fails at once, and then COMMIT must not follow.
        let written = match poll_fn(|context| Poll::Ready(writes.as_mut().poll(context))).await {
            Poll::Ready(Err(error)) => return Err(self.roll_back(Failure::before_commit(&error)).await),
            Poll::Ready(Ok(_nothing_to_write)) => async { Ok(()) }.boxed(),
            Poll::Pending => async { writes.await.map(drop) }.boxed(),
        };
        let second = async { tokio::join!(client.batch_execute("COMMIT"), written) };
        match tokio::time::timeout(ROUND_TRIP, second).await {
            Ok((Ok(()), Ok(()))) => Ok(results),
            // The session lives and the statement failed: so COMMIT, if it was answered, wrote nothing.
            Ok((_, Err(error)) | (Err(error), Ok(()))) if is_answer(&error) => {
                Err(Failure::before_commit(&error))
            }
            Ok((_, Err(error)) | (Err(error), Ok(()))) => Err(Failure::InDoubt(results, describe(&error))),
            Err(_elapsed) => Err(Failure::InDoubt(results, "no answer to the commit".to_owned())),
        }
    }

    /// Ends the transaction; when that fails the connection is of no use any more.
    async fn roll_back(&self, failure: Failure) -> Failure {
        let rolled_back =
            tokio::time::timeout(ROUND_TRIP, self.connected.client.batch_execute("ROLLBACK")).await;
        match (rolled_back, failure) {
            (Ok(Ok(())), failure) => failure,
            (
                _,
                Failure::Contention(reason)
                | Failure::Refused(reason)
                | Failure::Gone(reason)
                | Failure::InDoubt(_, reason),
            ) => Failure::Gone(reason),
        }
    }
}

/// Whether the server answered a statement and went on with the session, so that the transaction is over and
/// nothing of it was written.
fn is_answer(error: &Error) -> bool {
    error
        .as_db_error()
        .is_some_and(|answer| answer.parsed_severity() == Some(Severity::Error))
}
