//! Copies the write-ahead log into the database file.
//!
//! Most of it is copied by a thread and a connection of their own while batches go on. When what came in the meantime is
//! short, the writer copies it itself between two batches, and waits for the file's sync: SQLite syncs the file, and
//! begins the log anew, only when everything is copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, Row};

use super::convert::store_error;
use super::writer::is_of_the_disk;
use crate::error::StoreError;

/// Pages in the log from which on it is copied: 16 MiB.
const FULL_PAGES: i32 = 4000;
/// What came while the thread beside copied is copied by the writer when it is shorter, in pages: 4 MiB.
const SHORT_PAGES: i32 = FULL_PAGES / 4;
/// Pages in the log from which on the writer waits for the thread beside: 64 MiB. What a reader of an older state keeps
/// from being copied is above that.
const TOO_MANY_PAGES: i32 = 4 * FULL_PAGES;

/// How long the log is, and who copies it.
pub(super) struct Checkpoints {
    pages: Arc<AtomicI32>,
    failed: Arc<AtomicBool>,
    beside: Option<Beside>,
    /// How long the log was when the thread beside was asked, until it has answered.
    asked_at: Option<i32>,
}

/// The thread that copies while batches go on.
struct Beside {
    wanted: Sender<()>,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    /// Watches the commits of `connection`, which copies nothing by itself any more; `other` is a second connection to
    /// the same file. A disk that fails sets `failed`.
    pub(super) fn watch(
        connection: &mut Connection,
        other: Connection,
        failed: Arc<AtomicBool>,
    ) -> Result<Self, StoreError> {
        let pages = Arc::new(AtomicI32::new(0));
        let written = pages.clone();
        connection
            .wal_hook(Some(move |_: &mut _, pages: i32| {
                written.store(pages, Ordering::Relaxed);
                Ok(())
            }))
            .map_err(store_error)?;
        let ((wanted, asked), (tell, done)) = (channel(), channel());
        let failed_beside = failed.clone();
        let thread = std::thread::Builder::new()
            .name("ledger-copier".to_owned())
            .spawn(move || {
                while asked.recv().is_ok() {
                    copy(&other, &failed_beside);
                    if tell.send(()).is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self {
            pages,
            failed,
            beside: Some(Beside { wanted, done, thread }),
            asked_at: None,
        })
    }

    /// Has a full log copied, and copies what is left of it. Called between batches, with the writer's `connection`.
    pub(super) fn run(&mut self, connection: &Connection) {
        let Some(beside) = &self.beside else { return };
        let pages = self.pages.load(Ordering::Relaxed);
        if let Some(asked_at) = self.asked_at {
            let done = if pages < TOO_MANY_PAGES {
                beside.done.try_recv()
            } else {
                beside.done.recv().map_err(TryRecvError::from)
            };
            if done == Err(TryRecvError::Empty) {
                return;
            }
            let is_long = pages < TOO_MANY_PAGES && pages.saturating_sub(asked_at) >= SHORT_PAGES;
            self.asked_at = (is_long && beside.wanted.send(()).is_ok()).then_some(pages);
        } else if pages >= FULL_PAGES {
            if beside.wanted.send(()).is_ok() {
                self.asked_at = Some(pages);
                return;
            }
            tracing::error!("the thread that copies the write-ahead log has panicked: the writer copies it");
        } else {
            return;
        }
        if self.asked_at.is_none() && copy(connection, &self.failed) {
            self.pages.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Some(Beside { wanted, done, thread }) = self.beside.take() {
            drop((wanted, done));
            if thread.join().is_err() {
                tracing::error!("the thread that copies the write-ahead log has panicked");
            }
        }
    }
}

/// Copies the log as far as nobody reads an older state. Whether all of it is copied: the next commit begins at its front.
fn copy(connection: &Connection, failed: &AtomicBool) -> bool {
    if failed.load(Ordering::Acquire) {
        return false;
    }
    let copied = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)");
    // Whether others copy, the pages in the log, and those that are copied.
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
    match copied.and_then(|mut copy| copy.query_row([], read)) {
        Ok((pages, copied)) => pages == copied,
        Err(error) => {
            // The log has everything still, and is copied again; but a disk that fails is not written to any more.
            tracing::error!(%error, "the write-ahead log was not copied into the database");
            if is_of_the_disk(&error) {
                failed.store(true, Ordering::Release);
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_full_log_is_copied_and_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("turnpike.db");
        let mut connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE written (data BLOB)")
            .unwrap();
        let failed = Arc::new(AtomicBool::new(false));
        let other = Connection::open(&path).unwrap();
        let mut checkpoints = Checkpoints::watch(&mut connection, other, failed.clone()).unwrap();
        let written = checkpoints.pages.clone();
        let write = || {
            connection
                .execute("INSERT INTO written VALUES (zeroblob(1000000))", [])
                .unwrap();
        };
        let size = || std::fs::metadata(&path).unwrap().len();
        let pages = || written.load(Ordering::Relaxed);
        let mut before = size();
        while pages() < FULL_PAGES {
            write();
            checkpoints.run(&connection);
            if pages() < FULL_PAGES {
                assert_eq!(size(), before, "nothing is copied before the log is full");
            }
        }
        for _ in 0..2 {
            let end = Instant::now() + Duration::from_mins(1);
            while size() == before {
                assert!(Instant::now() < end, "nobody copies the log");
                std::thread::yield_now();
            }
            // This may come too late to be copied beside.
            write();
            while checkpoints.asked_at.is_some() {
                checkpoints.run(&connection);
            }
            assert_eq!(pages(), 0, "all of it is copied");
            before = size();
            write();
            assert!(pages() < FULL_PAGES, "{} pages are in the log still", pages());
            while pages() < FULL_PAGES {
                write();
                checkpoints.run(&connection);
            }
        }
        assert!(!failed.load(Ordering::Acquire));
    }
}
