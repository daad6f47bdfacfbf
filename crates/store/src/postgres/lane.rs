//! A lane: drains its queue into batches and sees each batch through to an answer.
//!
//! A batch that certainly was not written is run again or answered `Unavailable`; one whose COMMIT was sent and
//! never answered is looked up by the lane's mark, and never run again before it is known not to have happened.
//! The server's own `pg_xact_status` is not asked: after a crash the number of a transaction that never reached
//! the disk is given out again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use turnpike_core::ledger::{Command, Outcome};
use uuid::Uuid;

use super::connect::Target;
use super::session::{Failure, Mark, Results, Session};
use crate::error::{StoreError, SubmitError};

/// Attempts at one batch that loses against other transactions or loses its connection.
const MAX_ATTEMPTS: u32 = 5;
const BACKOFF: Duration = Duration::from_millis(20);
/// How long the outcome of a commit is looked for.
const IN_DOUBT: Duration = Duration::from_secs(10);
/// After a failed connect the next ones are not even tried for so long.
const REST: Duration = Duration::from_millis(200);

pub(super) type Answer = oneshot::Sender<Result<Outcome, SubmitError>>;

pub(super) struct Waiting {
    pub(super) command: Box<Command>,
    pub(super) answer: Answer,
}

pub(super) enum Job {
    Command(Waiting),
    Stop(oneshot::Sender<()>),
}

pub(super) struct Lane {
    pub(super) target: Target,
    pub(super) id: Uuid,
    pub(super) max_batch: usize,
    pub(super) batch_by_bucket: bool,
    pub(super) queue: mpsc::Receiver<Job>,
    pub(super) session: Option<Session>,
    pub(super) batches: i64,
    pub(super) rest_until: Option<(Instant, String)>,
    pub(super) pending: VecDeque<Waiting>,
    pub(super) stop: Option<oneshot::Sender<()>>,
}

impl Lane {
    /// Runs until it is stopped or nobody can send any more.
    pub(super) async fn run(mut self) {
        loop {
            if self.pending.is_empty() && self.stop.is_none() {
                match self.queue.recv().await {
                    Some(job) => self.take(job),
                    None => return,
                }
            }
            self.drain();
            if let Some(stopped) = self.stop.take() {
                self.queue.close();
                self.refuse_waiting("the store is closed");
                self.session = None;
                if stopped.send(()).is_err() {
                    tracing::debug!("nobody waits for the end any more");
                }
                return;
            }
            let batch = self.next_batch();
            self.see_through(batch).await;
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Command(waiting) => self.pending.push_back(waiting),
            Job::Stop(stopped) => self.stop = Some(stopped),
        }
    }

    fn drain(&mut self) {
        while self.pending.len() < self.max_batch && self.stop.is_none() {
            match self.queue.try_recv() {
                Ok(job) => self.take(job),
                Err(_empty_or_closed) => return,
            }
        }
    }

    /// What runs next; of one bucket only when the database is distributed by it.
    fn next_batch(&mut self) -> Vec<Waiting> {
        if !self.batch_by_bucket {
            return self.pending.drain(..).collect();
        }
        let bucket = self.pending.front().map(|first| first.command.tenant.bucket());
        let (batch, others): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|waiting| Some(waiting.command.tenant.bucket()) == bucket);
        self.pending = others;
        batch.into()
    }

    /// Answers everything that waits: nothing of it was begun.
    fn refuse_waiting(&mut self, reason: &str) {
        while let Ok(job) = self.queue.try_recv() {
            self.take(job);
        }
        for waiting in self.pending.drain(..) {
            drop(
                waiting
                    .answer
                    .send(Err(SubmitError::Unavailable(reason.to_owned()))),
            );
        }
    }

    /// The connection, opened anew when there is none. While the server is away nothing waits for it.
    async fn session(&mut self) -> Result<&Session, String> {
        if self.session.is_none() {
            if let Some((until, reason)) = &self.rest_until
                && Instant::now() < *until
            {
                return Err(reason.clone());
            }
            self.rest_until = None;
            match Session::open(&self.target).await {
                Ok(session) => self.session = Some(session),
                Err(error) => {
                    let reason = error.to_string();
                    tracing::warn!(%reason, "a ledger lane cannot reach the database");
                    self.rest_until = Some((Instant::now() + REST, reason.clone()));
                    self.refuse_waiting(&reason);
                    return Err(reason);
                }
            }
        }
        self.session.as_ref().ok_or_else(|| "no session".to_owned())
    }

    fn next_mark(&mut self, batch: &[Waiting]) -> Mark {
        self.batches += 1;
        let first = batch.first().filter(|_| self.batch_by_bucket);
        let bucket = first.map_or(0, |waiting| waiting.command.tenant.bucket());
        Mark {
            bucket,
            lane: self.id,
            batch: self.batches,
        }
    }

    /// Runs `batch` until its fate is known, and answers.
    async fn see_through(&mut self, batch: Vec<Waiting>) {
        let mut alone = VecDeque::from([batch]);
        while let Some(batch) = alone.pop_front() {
            match self.settle(&batch).await {
                Settled::Done(results) => {
                    for (waiting, result) in batch.into_iter().zip(results) {
                        drop(waiting.answer.send(result.map_err(SubmitError::Rejected)));
                    }
                }
                Settled::Refused(reason) if batch.len() > 1 => {
                    tracing::warn!(%reason, "a batch of {} is run one by one", batch.len());
                    alone.extend(batch.into_iter().map(|waiting| vec![waiting]));
                }
                Settled::Refused(reason) | Settled::Unavailable(reason) => {
                    tracing::error!(%reason, "{} commands were not written", batch.len());
                    for waiting in batch {
                        drop(waiting.answer.send(Err(SubmitError::Unavailable(reason.clone()))));
                    }
                }
                Settled::Unknown(reason) => {
                    tracing::error!(%reason, "the outcome of {} commands is unknown", batch.len());
                    for waiting in batch {
                        drop(waiting.answer.send(Err(SubmitError::Unknown)));
                    }
                }
            }
        }
    }

    async fn settle(&mut self, batch: &[Waiting]) -> Settled {
        let commands: Vec<&Command> = batch.iter().map(|waiting| &*waiting.command).collect();
        let mut last = String::new();
        for attempt in 0..MAX_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(BACKOFF * attempt).await;
            }
            let mark = self.next_mark(batch);
            let session = match self.session().await {
                Ok(session) => session,
                Err(reason) => return Settled::Unavailable(reason),
            };
            match session.run(&commands, mark).await {
                Ok(results) => return Settled::Done(results),
                Err(Failure::Refused(reason)) => return Settled::Refused(reason),
                Err(Failure::Contention(reason)) => {
                    tracing::debug!(%reason, attempt, "a batch is run again");
                    last = reason;
                }
                Err(Failure::Gone(reason)) => {
                    tracing::warn!(%reason, "a ledger lane lost its connection");
                    self.session = None;
                    last = reason;
                }
                Err(Failure::InDoubt(results, reason)) => {
                    tracing::warn!(%reason, "the answer to a commit was lost");
                    self.session = None;
                    match self.look_up(mark).await {
                        Some(true) => return Settled::Done(results),
                        Some(false) => last = reason,
                        None => return Settled::Unknown(reason),
                    }
                }
            }
        }
        Settled::Unavailable(last)
    }

    /// Whether the transaction of `mark` was committed; `None` = the server did not tell in time.
    async fn look_up(&mut self, mark: Mark) -> Option<bool> {
        let until = Instant::now() + IN_DOUBT;
        while Instant::now() < until {
            if let Ok(session) = self.session().await {
                match session.was_committed(mark).await {
                    Ok(committed) => return Some(committed),
                    Err(reason) => {
                        tracing::debug!(%reason, "the fate of a commit is not known yet");
                        self.session = None;
                    }
                }
            }
            tokio::time::sleep(BACKOFF).await;
        }
        None
    }
}

enum Settled {
    Done(Results),
    Refused(String),
    Unavailable(String),
    Unknown(String),
}

/// Removes the marks of processes that ended long ago.
pub(super) async fn prune_marks(client: &tokio_postgres::Client) -> Result<(), StoreError> {
    let sql = "DELETE FROM lane_marks WHERE written_at < now() - interval '1 day'";
    client
        .execute(sql, &[])
        .await
        .map(drop)
        .map_err(|error| super::convert::store_error(&error))
}
