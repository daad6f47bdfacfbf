//! The writer thread: drains its queue, runs one batch, commits once, answers.
//!
//! It is the only writer of the file, so the rows it has loaded stay true between batches: accounts, tenants
//! and open holds are read once and then kept. After a failure everything is forgotten and read again.

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};
use turnpike_core::ledger::{Books, Command, Needs, Outcome, Rejection, apply};

use super::checkpoint::Checkpoints;
use super::convert::{bind, store_error};
use super::load::load;
use super::read::all_rows;
use super::write::write;
use crate::audit_log;
use crate::error::{StoreError, SubmitError};
use crate::sql::Statement;

/// Accounts and end users kept in memory; above it all are forgotten.
const MAX_KEPT_ROWS: usize = 20_000;
/// What is said when a commit, or a copy of the write-ahead log, has failed on the disk.
pub(super) const DISK_FAILED: &str = "a disk error stopped all writes: restart after repair";

type Answer = oneshot::Sender<Result<Outcome, SubmitError>>;

pub(super) enum Job {
    Command(Box<Command>, Answer),
    Write(Vec<Statement>, oneshot::Sender<Result<Vec<u64>, StoreError>>),
    WriteBeside(
        Vec<Statement>,
        oneshot::Sender<Result<Option<Vec<u64>>, StoreError>>,
    ),
    Stop(oneshot::Sender<()>),
}

impl Job {
    /// Answers that nothing of it was begun.
    fn refuse(self, why: &str) {
        let why = why.to_owned();
        // Whoever went away is not told.
        match self {
            Self::Command(_, answer) => drop(answer.send(Err(SubmitError::Unavailable(why)))),
            Self::Write(_, answer) => drop(answer.send(Err(StoreError::Unavailable(why)))),
            Self::WriteBeside(_, answer) => drop(answer.send(Err(StoreError::Unavailable(why)))),
            Self::Stop(done) => drop(done),
        }
    }
}

pub(super) fn run(
    mut connection: Connection,
    mut queue: mpsc::Receiver<Job>,
    max_batch: usize,
    mut checkpoints: Checkpoints,
    failed: &AtomicBool,
) {
    let mut books = Books::default();
    let mut commands: Vec<(Box<Command>, Answer)> = Vec::with_capacity(max_batch);
    let mut next = queue.blocking_recv();
    while let Some(job) = next.take() {
        if failed.load(Ordering::Acquire) && !matches!(job, Job::Stop(_)) {
            job.refuse(DISK_FAILED);
            next = queue.blocking_recv();
            continue;
        }
        let mut other = None;
        let mut seen = 0;
        let mut job = Some(job);
        while let Some(taken) = job.take() {
            match taken {
                Job::Command(command, answer) => commands.push((command, answer)),
                not_a_command @ (Job::Write(..) | Job::WriteBeside(..) | Job::Stop(_)) => {
                    other = Some(not_a_command);
                    break;
                }
            }
            if commands.len() < max_batch {
                job = queue.try_recv().ok();
                if job.is_none() && commands.len() > seen {
                    // A commit costs the same for few and for many: whoever is about to send is let go first.
                    seen = commands.len();
                    std::thread::yield_now();
                    job = queue.try_recv().ok();
                }
            }
        }
        if !commands.is_empty() {
            run_batch(&mut connection, &mut books, &mut commands, failed);
        }
        match other {
            // The batch before it was not written.
            Some(job) if failed.load(Ordering::Acquire) && !matches!(job, Job::Stop(_)) => {
                job.refuse(DISK_FAILED);
            }
            Some(Job::Write(statements, answer)) => {
                // These statements may change rows that are kept: a tenant's status, a policy.
                books = Books::default();
                if answer
                    .send(write_directory(&mut connection, &statements, failed))
                    .is_err()
                {
                    tracing::debug!("nobody waits for a write any more");
                }
            }
            Some(Job::WriteBeside(statements, answer)) => {
                if statements.iter().any(|statement| statement.audit.is_some()) {
                    // The head of the audit log stands in the workspace's row, which is kept.
                    books = Books::default();
                }
                if answer
                    .send(write_beside(&mut connection, &statements, failed))
                    .is_err()
                {
                    tracing::debug!("nobody waits for a write any more");
                }
            }
            Some(Job::Stop(done)) => {
                drop(checkpoints);
                close(connection, failed);
                refuse_waiting(&mut queue);
                if done.send(()).is_err() {
                    tracing::debug!("nobody waits for the end any more");
                }
                return;
            }
            Some(Job::Command(..)) | None => {}
        }
        // Whoever waited was answered.
        checkpoints.run(&connection);
        next = queue.blocking_recv();
    }
}

/// After a disk error the log stays as it is: what was copied of it may be lost, and is copied again at the next start.
fn close(connection: Connection, failed: &AtomicBool) {
    if failed.load(Ordering::Acquire)
        && let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
    {
        tracing::error!(%error, "the write-ahead log is copied although the disk failed");
    }
    drop(connection);
}

/// Answers what came after the stop: nothing of it was begun.
fn refuse_waiting(queue: &mut mpsc::Receiver<Job>) {
    queue.close();
    while let Ok(job) = queue.try_recv() {
        job.refuse("the store is closed");
    }
}

fn run_batch(
    connection: &mut Connection,
    books: &mut Books,
    commands: &mut Vec<(Box<Command>, Answer)>,
    failed: &AtomicBool,
) {
    let mut needs = Needs::default();
    for (command, _) in commands.iter() {
        command.needs(&mut needs);
    }
    let results = attempt(connection, books, commands, &needs);
    match results {
        Ok(results) => {
            forget(books, &needs);
            for ((_, answer), result) in commands.drain(..).zip(results) {
                // A caller that went away finds the outcome by its call.
                drop(answer.send(result.map_err(SubmitError::Rejected)));
            }
        }
        Err(failure) if commands.len() > 1 && failure.is_refusal() => {
            // One of them has a value that the database refuses; the others do not suffer for it.
            tracing::warn!(error = %failure.error, "a batch of {} is run one by one", commands.len());
            *books = Books::default();
            for (command, answer) in commands.drain(..) {
                if failed.load(Ordering::Acquire) {
                    Job::Command(command, answer).refuse(DISK_FAILED);
                } else {
                    run_batch(connection, books, &mut vec![(command, answer)], failed);
                }
            }
        }
        Err(failure) => {
            tracing::error!(error = %failure.error, "a batch of {} commands was not written", commands.len());
            *books = Books::default();
            if failure.fatal {
                failed.store(true, Ordering::Release);
            }
            for (_, answer) in commands.drain(..) {
                let error = if failure.unknown {
                    SubmitError::Unknown
                } else {
                    SubmitError::Unavailable(failure.error.to_string())
                };
                drop(answer.send(Err(error)));
            }
        }
    }
}

struct Failure {
    error: rusqlite::Error,
    /// The commit itself failed on the disk: it may be found committed after a restart.
    unknown: bool,
    /// The disk lied once; nothing is written any more before a restart.
    fatal: bool,
}

impl Failure {
    /// The database would refuse the same values again, or a row cannot be read, or cannot be written.
    fn is_refusal(&self) -> bool {
        if matches!(self.error, rusqlite::Error::ToSqlConversionFailure(_)) {
            return true;
        }
        let code = self.error.sqlite_error_code();
        matches!(
            code,
            Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)
        )
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self {
            error,
            unknown: false,
            fatal: false,
        }
    }
}

fn attempt(
    connection: &mut Connection,
    books: &mut Books,
    commands: &[(Box<Command>, Answer)],
    needs: &Needs,
) -> Result<Vec<Result<Outcome, Rejection>>, Failure> {
    // Whatever went wrong before: no batch begins inside another's transaction.
    roll_back(connection);
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let work = (|| {
        load(connection, books, needs)?;
        let results: Vec<_> = commands
            .iter()
            .map(|(command, _)| apply(books, command))
            .collect();
        write(connection, books)?;
        Ok::<_, rusqlite::Error>(results)
    })();
    let results = match work {
        Ok(results) => results,
        Err(error) => {
            roll_back(connection);
            return Err(error.into());
        }
    };
    let committed = connection.prepare_cached("COMMIT")?.execute([]);
    if let Err(error) = committed {
        roll_back(connection);
        let fatal = is_of_the_disk(&error);
        return Err(Failure {
            error,
            unknown: fatal,
            fatal,
        });
    }
    books.mark_stored();
    Ok(results)
}

/// What could not be written may be lost although a later sync succeeds.
pub(super) fn is_of_the_disk(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

fn roll_back(connection: &Connection) {
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::error!(%error, "rollback failed");
    }
}

/// Keeps what the next batches want, drops the rest.
fn forget(books: &mut Books, needs: &Needs) {
    books.claims.clear();
    books.loops.clear();
    books.topups.clear();
    books.auto_topups.clear();
    books.tokens.clear();
    books.drift_windows.clear();
    books.payouts.clear();
    books.payout_settings.clear();
    books.quotes.clear();
    books.approvals.clear();
    let over: Vec<_> = needs
        .paid_calls
        .iter()
        .filter(|key| books.paid_calls.get(key).is_none_or(|call| !call.state.is_open()))
        .copied()
        .collect();
    books.paid_calls.forget(&over);
    let finished: Vec<_> = needs
        .holds
        .iter()
        .filter(|key| {
            books
                .holds
                .get(key)
                .is_none_or(turnpike_core::ledger::Hold::is_finished)
        })
        .copied()
        .collect();
    books.holds.forget(&finished);
    if books.accounts.len() > MAX_KEPT_ROWS
        || books.end_users.len() > MAX_KEPT_ROWS
        || books.holds.len() > MAX_KEPT_ROWS
        || books.paid_calls.len() > MAX_KEPT_ROWS
    {
        *books = Books::default();
    }
}

fn write_directory(
    connection: &mut Connection,
    statements: &[Statement],
    failed: &AtomicBool,
) -> Result<Vec<u64>, StoreError> {
    let mut touched = Vec::with_capacity(statements.len());
    run_statements(connection, statements, failed, &mut touched, |index, rows| {
        index == 0 && rows == 0
    })?;
    Ok(touched)
}

fn write_beside(
    connection: &mut Connection,
    statements: &[Statement],
    failed: &AtomicBool,
) -> Result<Option<Vec<u64>>, StoreError> {
    let mut touched = Vec::with_capacity(statements.len());
    let required = |index: usize| statements.get(index).is_some_and(|statement| statement.required);
    let committed = run_statements(connection, statements, failed, &mut touched, |index, rows| {
        rows == 0 && required(index)
    })?;
    Ok(committed.then_some(touched))
}

/// One transaction, undone when `stops` says so of a statement and the rows it touched. Whether it was committed.
fn run_statements(
    connection: &mut Connection,
    statements: &[Statement],
    failed: &AtomicBool,
    touched: &mut Vec<u64>,
    stops: impl Fn(usize, u64) -> bool,
) -> Result<bool, StoreError> {
    roll_back(connection);
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(store_error)?;
    let chained;
    let (wanted, statements) = match audit_log::audited(statements)? {
        None => (statements.len(), statements),
        Some(tenant) => {
            let head = audit_log::head_of(tenant, "");
            let head = all_rows(&transaction, &head.sql, &head.params)?;
            chained = audit_log::chained(statements, tenant, head.first())?;
            (statements.len(), &chained[..])
        }
    };
    for (index, statement) in statements.iter().enumerate() {
        let mut prepared = transaction.prepare_cached(&statement.sql).map_err(store_error)?;
        bind(&mut prepared, &statement.params).map_err(store_error)?;
        let rows = u64::try_from(prepared.raw_execute().map_err(store_error)?).unwrap_or(u64::MAX);
        drop(prepared);
        touched.push(rows);
        if stops(index, rows) {
            return Ok(false);
        }
    }
    if let Err(error) = transaction.commit() {
        if is_of_the_disk(&error) {
            failed.store(true, Ordering::Release);
        }
        return Err(store_error(error));
    }
    touched.truncate(wanted);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    // Fault matrix 61
    #[test]
    fn after_a_disk_error_everything_that_waits_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Connection::open(directory.path().join("turnpike.db")).unwrap();
        let (mut connection, other) = (open(), open());
        connection
            .execute_batch("CREATE TABLE written (n INTEGER)")
            .unwrap();
        let statement = || vec![Statement::new("INSERT INTO written VALUES (1)", Vec::new())];
        let (jobs, queue) = mpsc::channel(3);
        let (write, written) = oneshot::channel();
        let (beside, written_beside) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        for job in [
            Job::Write(statement(), write),
            Job::WriteBeside(statement(), beside),
            Job::Stop(stop),
        ] {
            assert!(jobs.try_send(job).is_ok());
        }
        let failed = Arc::new(AtomicBool::new(true));
        let checkpoints = Checkpoints::watch(&mut connection, other, failed.clone()).unwrap();
        run(connection, queue, 8, checkpoints, &failed);
        let refused =
            |error: StoreError| matches!(error, StoreError::Unavailable(reason) if reason == DISK_FAILED);
        assert!(written.blocking_recv().unwrap().is_err_and(refused));
        assert!(written_beside.blocking_recv().unwrap().is_err_and(refused));
        stopped.blocking_recv().unwrap();
    }
}
