//! Writes the write-ahead log of the writer's connection in few and large writes.
//!
//! SQLite writes each page of a commit in two calls, the frame's head and the page: a batch has more than a hundred of
//! them. This layer stands between SQLite and the log's file (a VFS, <https://www.sqlite.org/vfs.html>), keeps writes that
//! follow one another and writes them before SQLite syncs, reads or measures the file. All other files are SQLite's own.
//! Why by hand, and why unsafe: `docs/adr/0017`.
//!
//! INVARIANT: SQLite syncs a commit's frames before it tells other connections of them (`synchronous = FULL`, and no
//! `psow=0`), so that nobody looks for what is kept only here; and after a rollback nothing is kept that could be written
//! when others write ([`keep_until_commit`]).
#![allow(
    unsafe_code,
    reason = "a VFS is a table of C functions; everything else of this workspace is safe"
)]

mod kept;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::LazyLock;

use rusqlite::ffi::{
    self, SQLITE_ERROR, SQLITE_OK, SQLITE_OPEN_WAL, sqlite3_file, sqlite3_filename, sqlite3_io_methods,
    sqlite3_vfs,
};
use rusqlite::{Connection, OpenFlags};

use self::kept::{Below, Kept};

/// The name of this layer.
const NAME: &CStr = c"turnpike-log";

/// Opens the file for the one connection that writes to the log.
///
/// # Errors
/// As SQLite says.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    static REGISTERED: LazyLock<c_int> = LazyLock::new(register);
    match *REGISTERED {
        SQLITE_OK => Connection::open_with_flags_and_vfs(path, OpenFlags::default(), NAME),
        code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
    }
}

/// From here on a transaction is written when it is committed, and not before, whatever its size.
///
/// # Errors
/// As SQLite says.
pub(super) fn keep_until_commit(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("PRAGMA cache_spill = OFF")
}

/// Puts the layer above SQLite's default; the code.
fn register() -> c_int {
    // SAFETY: SQLite is initialised before it is asked for its default, whose table stays for good. The copy of the table
    // differs in what is set here, and is never freed.
    unsafe {
        let code = ffi::sqlite3_initialize();
        if code != SQLITE_OK {
            return code;
        }
        let below = ffi::sqlite3_vfs_find(ptr::null());
        let Some(table) = below.as_ref() else {
            return SQLITE_ERROR;
        };
        let Some(size) = c_int::try_from(size_of::<LogFile>())
            .ok()
            .and_then(|own| table.szOsFile.checked_add(own))
        else {
            return SQLITE_ERROR;
        };
        let layer = sqlite3_vfs {
            szOsFile: size,
            pNext: ptr::null_mut(),
            zName: NAME.as_ptr(),
            pAppData: below.cast(),
            xOpen: Some(open_file),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(get_last_error),
            xCurrentTimeInt64: table.xCurrentTimeInt64.and(Some(current_time_int64)),
            // What loads extensions is the default's and does not look at the table.
            iVersion: table.iVersion.min(2),
            ..*table
        };
        ffi::sqlite3_vfs_register(Box::leak(Box::new(layer)), 0)
    }
}

/// What SQLite has allocated for a file: this, and behind it the file below.
#[repr(C)]
struct LogFile {
    /// First, as in every file of SQLite.
    methods: *const sqlite3_io_methods,
    /// Made by [`open_file`], freed by [`close`].
    kept: *mut Kept,
}

/// The file below.
struct File(*mut sqlite3_file);

impl File {
    /// # Safety
    /// `file` is one whose size was that of the layer.
    const unsafe fn below(file: *mut sqlite3_file) -> Self {
        // SAFETY: it has room for both.
        Self(unsafe { file.cast::<LogFile>().add(1).cast() })
    }

    fn methods(&self) -> Option<&sqlite3_io_methods> {
        // SAFETY: SQLite's default has set it when it opened the file, to a table that stays for good, or to null.
        unsafe { (*self.0).pMethods.as_ref() }
    }
}

impl Below for File {
    fn write(&mut self, bytes: &[u8], at: i64) -> i32 {
        let method = self.methods().and_then(|methods| methods.xWrite);
        match (method, c_int::try_from(bytes.len())) {
            // SAFETY: the file is open, and there are as many bytes.
            (Some(method), Ok(length)) => unsafe { method(self.0, bytes.as_ptr().cast(), length, at) },
            _ => SQLITE_ERROR,
        }
    }
}

/// # Safety
/// `file` was opened by [`open_file`] as a log and is not closed; nobody else uses it at the same time, as SQLite promises
/// of a connection's files.
unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a mut Kept, File) {
    // SAFETY: that is what `open_file` has made of it.
    unsafe { (&mut *(*file.cast::<LogFile>()).kept, File::below(file)) }
}

/// Opens a log with what is kept of it, and every other file as the default does.
unsafe extern "C" fn open_file(
    vfs: *mut sqlite3_vfs,
    name: sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: `file` has room for a `LogFile` and the file below, and the rest is handed on as it came.
    unsafe {
        let default = (*vfs).pAppData.cast::<sqlite3_vfs>();
        let Some(open) = (*default).xOpen else {
            return SQLITE_ERROR;
        };
        if flags & SQLITE_OPEN_WAL == 0 {
            return open(default, name, file, flags, out);
        }
        let log = file.cast::<LogFile>();
        // Without methods it is not closed.
        (*log).methods = ptr::null();
        let below = File::below(file);
        let code = open(default, name, below.0, flags, out);
        if code == SQLITE_OK {
            (*log).kept = Box::into_raw(Box::default());
            (*log).methods = &raw const METHODS;
        } else if let Some(close) = below.methods().and_then(|methods| methods.xClose) {
            close(below.0);
        }
        code
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and one that was opened.
    unsafe {
        // What is kept still was never committed: it is not written, now that others may write.
        drop(Box::from_raw((*file.cast::<LogFile>()).kept));
        let below = File::below(file);
        let method = below.methods().and_then(|methods| methods.xClose);
        method.map_or(SQLITE_ERROR, |close| close(below.0))
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, bytes: *const c_void, length: c_int, at: i64) -> c_int {
    let Ok(length) = usize::try_from(length) else {
        return SQLITE_ERROR;
    };
    // SAFETY: SQLite calls it for an open file, with as many bytes.
    unsafe {
        let (kept, mut below) = parts(file);
        kept.write(&mut below, std::slice::from_raw_parts(bytes.cast(), length), at)
    }
}

unsafe extern "C" fn read(file: *mut sqlite3_file, bytes: *mut c_void, length: c_int, at: i64) -> c_int {
    // SAFETY: SQLite calls it for an open file, with room for as many bytes.
    unsafe {
        let (kept, mut below) = parts(file);
        for code in [kept.flush(&mut below), kept.check_read(length, at)] {
            if code != SQLITE_OK {
                return code;
            }
        }
        let method = below.methods().and_then(|methods| methods.xRead);
        method.map_or(SQLITE_ERROR, |read| read(below.0, bytes, length, at))
    }
}

/// A method of a log that the file below carries out, `flushed`: when everything is there.
macro_rules! of_the_file_below {
    ($($name:ident = $method:ident($($argument:ident: $type:ty),*), flushed: $flushed:literal;)*) => {$(
        unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $argument: $type)*) -> c_int {
            // SAFETY: SQLite calls it for an open file, and what it calls it with is handed on as it came.
            unsafe {
                let (kept, mut below) = parts(file);
                let code = if $flushed { kept.flush(&mut below) } else { SQLITE_OK };
                match below.methods().and_then(|methods| methods.$method) {
                    Some(method) if code == SQLITE_OK => method(below.0 $(, $argument)*),
                    Some(_) => code,
                    None => SQLITE_ERROR,
                }
            }
        }
    )*};
}

of_the_file_below! {
    truncate = xTruncate(size: i64), flushed: true;
    sync = xSync(flags: c_int), flushed: true;
    file_size = xFileSize(size: *mut i64), flushed: true;
    lock = xLock(level: c_int), flushed: false;
    unlock = xUnlock(level: c_int), flushed: false;
    check_reserved_lock = xCheckReservedLock(reserved: *mut c_int), flushed: false;
    file_control = xFileControl(operation: c_int, argument: *mut c_void), flushed: false;
    sector_size = xSectorSize(), flushed: false;
    device_characteristics = xDeviceCharacteristics(), flushed: false;
}

/// Of a log: it is neither shared memory nor mapped.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// What the default does, called with itself.
macro_rules! of_the_default {
    ($($name:ident = $method:ident($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(vfs: *mut sqlite3_vfs $(, $argument: $type)*) -> c_int {
            // SAFETY: `register` has set it to the default, and what SQLite calls it with is handed on as it came.
            unsafe {
                let default = (*vfs).pAppData.cast::<sqlite3_vfs>();
                (*default).$method.map_or(SQLITE_ERROR, |method| method(default $(, $argument)*))
            }
        }
    )*};
}

of_the_default! {
    delete = xDelete(name: *const c_char, sync: c_int);
    access = xAccess(name: *const c_char, flags: c_int, out: *mut c_int);
    full_pathname = xFullPathname(name: *const c_char, length: c_int, out: *mut c_char);
    randomness = xRandomness(length: c_int, out: *mut c_char);
    sleep = xSleep(microseconds: c_int);
    current_time = xCurrentTime(out: *mut f64);
    current_time_int64 = xCurrentTimeInt64(out: *mut i64);
    get_last_error = xGetLastError(length: c_int, out: *mut c_char);
}
