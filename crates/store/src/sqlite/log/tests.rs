//! The layer below SQLite: what other connections, and the next process, find.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tempfile::TempDir;

const SCHEMA: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
    PRAGMA cache_size = 10;
    CREATE TABLE written (n INTEGER PRIMARY KEY, batch INTEGER NOT NULL, data BLOB NOT NULL);
    CREATE INDEX written_data ON written (data);";

/// A new database, and the connection that writes to it through the layer.
fn written() -> (TempDir, PathBuf, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("turnpike.db");
    let writer = super::open(&path).unwrap();
    writer.execute_batch(SCHEMA).unwrap();
    (directory, path, writer)
}

/// Bytes in the log of the database at `path`.
fn log_length(path: &Path) -> u64 {
    std::fs::metadata(path.with_extension("db-wal")).unwrap().len()
}

fn write(connection: &Connection, batch: i64, rows: i64) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO written (batch, data) VALUES (?1, randomblob(400)) ON CONFLICT DO NOTHING",
    )?;
    for _ in 0..rows {
        insert.execute([batch])?;
    }
    let mut update =
        connection.prepare_cached("UPDATE written SET data = randomblob(300) WHERE n % 7 = ?1 % 7")?;
    update.execute([batch])?;
    Ok(())
}

/// Everything that is stored, in order.
fn stored(connection: &Connection) -> Vec<(i64, i64, Vec<u8>)> {
    let check: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let mut select = connection
        .prepare("SELECT n, batch, data FROM written ORDER BY n")
        .unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// What a process finds that starts after this one was killed now.
fn after_a_crash(path: &Path) -> Vec<(i64, i64, Vec<u8>)> {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.db");
    for suffix in ["", "-wal"] {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        std::fs::copy(name(path), name(&copy)).unwrap();
    }
    stored(&Connection::open(&copy).unwrap())
}

/// The pages in the log, all of them copied by `connection`.
fn copied(connection: &Connection) -> i64 {
    let copy = "PRAGMA wal_checkpoint(PASSIVE)";
    let (busy, log, copied): (i64, i64, i64) = connection
        .query_row(copy, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap();
    assert_eq!((busy, log), (0, copied));
    log
}

/// Commits, savepoints and rollbacks, and what others find after each; the log is copied by another connection, as it is
/// beside the writer.
fn commits(prepare: impl FnOnce(&Connection)) {
    let (_directory, path, writer) = written();
    prepare(&writer);
    let reader = Connection::open(&path).unwrap();
    let mut committed = stored(&reader);
    let mut logs = Vec::new();
    for batch in 0..40 {
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        write(&writer, batch, 60).unwrap();
        if batch % 4 == 1 {
            writer.execute_batch("SAVEPOINT step").unwrap();
            write(&writer, -1, 90).unwrap();
            writer.execute_batch("ROLLBACK TO step; RELEASE step").unwrap();
            write(&writer, batch, 5).unwrap();
        }
        assert_eq!(stored(&reader), committed, "nothing is seen before the commit");
        if batch % 4 == 2 {
            writer.execute_batch("ROLLBACK").unwrap();
        } else {
            writer.execute_batch("COMMIT").unwrap();
            // Before anything else is read or written through the layer.
            let after_a_crash = after_a_crash(&path);
            assert!(after_a_crash.iter().all(|(_, batch, _)| *batch >= 0));
            assert!(after_a_crash.len() > committed.len());
            committed = after_a_crash;
        }
        assert_eq!(stored(&reader), committed);
        assert_eq!(stored(&writer), committed);
        if batch % 5 == 4 {
            logs.push(copied(&reader));
        }
    }
    // Each time the log began anew.
    assert!(
        logs.iter().max().unwrap() < &(logs.iter().sum::<i64>() / 3),
        "{logs:?}"
    );
    drop((reader, writer));
    assert_eq!(stored(&Connection::open(&path).unwrap()), committed);
}

#[test]
fn a_commit_is_there_for_everybody_and_after_a_crash() {
    commits(|writer| super::keep_until_commit(writer).unwrap());
}

// As migrations do it: the cache is so small that transactions are written before they are committed.
#[test]
fn what_is_written_before_it_is_committed_is_undone() {
    commits(|_| {});
}

// What was rolled back is not written over what another connection commits next.
#[test]
fn a_rollback_leaves_nothing_to_write() {
    let (_directory, path, writer) = written();
    super::keep_until_commit(&writer).unwrap();
    // More than the cache holds, and read by nobody.
    writer
        .execute_batch("CREATE TABLE appended (data BLOB); BEGIN IMMEDIATE")
        .unwrap();
    let before = log_length(&path);
    for _ in 0..100 {
        let insert = "INSERT INTO appended VALUES (randomblob(4000))";
        writer.execute(insert, []).unwrap();
    }
    writer.execute_batch("ROLLBACK").unwrap();
    assert_eq!(log_length(&path), before);
    let other = Connection::open(&path).unwrap();
    write(&other, 2, 100).unwrap();
    let committed = stored(&other);
    assert_eq!(stored(&writer), committed);
    drop(writer);
    assert_eq!(after_a_crash(&path), committed);
}

#[test]
fn only_the_log_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("turnpike.db");
    let writer = super::open(&path).unwrap();
    // Neither a log nor a sync: what is not written now is written never.
    let create = "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;
        CREATE TABLE written (n INTEGER); INSERT INTO written VALUES (1);";
    writer.execute_batch(create).unwrap();
    let copy = directory.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    let found: i64 = Connection::open(&copy)
        .unwrap()
        .query_row("SELECT n FROM written", [], |row| row.get(0))
        .unwrap();
    assert_eq!(found, 1);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = super::open(&directory.path().join("none/turnpike.db")).unwrap_err();
    assert!(error.to_string().contains("unable to open"), "{error}");
}

/// How often this thread has written to files.
fn writes() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let count = io.lines().find_map(|line| line.strip_prefix("syscw: "));
    count.unwrap().parse().unwrap()
}

#[test]
fn the_pages_of_a_commit_are_written_together() {
    let (_directory, path, writer) = written();
    writer.execute_batch("PRAGMA cache_size = 2000; BEGIN").unwrap();
    write(&writer, 0, 500).unwrap();
    let before = writes();
    writer.execute_batch("COMMIT").unwrap();
    let taken = writes() - before;
    let length = log_length(&path);
    assert!(length > 100 * 4096);
    assert!(taken < length / 4096 / 4, "{taken} writes for {length} bytes");
}
