//! Copies the write-ahead log into the database file: on the writer thread, but in no commit that anybody waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rusqlite::Connection;

use super::writer::is_of_the_disk;

/// Pages in the log from which on it is copied: 16 MiB.
const FULL_PAGES: i32 = 4000;

/// How long the log is.
pub(super) struct Checkpoints {
    pages: Arc<AtomicI32>,
}

impl Checkpoints {
    /// Watches the commits of `connection`, which copies nothing by itself any more.
    pub(super) fn watch(connection: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicI32::new(0));
        let written = pages.clone();
        connection.wal_hook(Some(move |_: &mut _, pages: i32| {
            written.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages })
    }

    /// Copies a log that is full, as far as nobody reads an older state. The next commit then begins at its front.
    pub(super) fn run(&self, connection: &Connection, failed: &AtomicBool) {
        if self.pages.load(Ordering::Relaxed) < FULL_PAGES || failed.load(Ordering::Acquire) {
            return;
        }
        let copied = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)");
        let copied = copied.and_then(|mut copy| copy.query_row([], |row| row.get::<_, i64>(0)));
        if let Err(error) = copied {
            // The log has everything still, and is copied again; but a disk that fails is not written to any more.
            tracing::error!(%error, "the write-ahead log was not copied into the database");
            if is_of_the_disk(&error) {
                failed.store(true, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_is_copied_and_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("turnpike.db");
        let mut connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE written (data BLOB)")
            .unwrap();
        let checkpoints = Checkpoints::watch(&mut connection).unwrap();
        let failed = AtomicBool::new(false);
        let write = || {
            connection
                .execute("INSERT INTO written VALUES (zeroblob(1000000))", [])
                .unwrap();
        };
        let size = || std::fs::metadata(&path).unwrap().len();
        let mut before = size();
        while checkpoints.pages.load(Ordering::Relaxed) < FULL_PAGES {
            write();
            assert_eq!(size(), before, "no commit copies");
        }
        for _ in 0..2 {
            checkpoints.run(&connection, &failed);
            assert!(size() > before);
            before = size();
            write();
            let pages = checkpoints.pages.load(Ordering::Relaxed);
            assert!(pages < FULL_PAGES, "{pages} pages are in the log still");
            while checkpoints.pages.load(Ordering::Relaxed) < FULL_PAGES {
                write();
            }
        }
        assert!(!failed.load(Ordering::Acquire));
    }
}
