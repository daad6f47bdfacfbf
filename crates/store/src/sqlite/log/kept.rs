//! What was written to a file and is kept in memory until it has to be there.
//!
//! The rule: nobody can tell the difference from a plain file, but by when the disk's faults are told. What a fault
//! lost is known from then on: reading it fails, and so does writing behind it.

use rusqlite::ffi::{SQLITE_IOERR_READ, SQLITE_IOERR_WRITE, SQLITE_OK};

/// Bytes that are kept before they are written in any case.
const MOST_KEPT: usize = 1 << 20;
/// Bytes that are written at once: SQLite's own files write less than 128 KiB in one call, and take just that for none.
const AT_ONCE: usize = 1 << 16;
const _: () = assert!(AT_ONCE < 0x2_0000);

/// The file below. Offsets are in bytes; what is returned are SQLite's codes.
pub(super) trait Below {
    /// Writes all of `bytes` at `at`.
    fn write(&mut self, bytes: &[u8], at: i64) -> i32;
}

/// Writes that follow one another, as one.
#[derive(Debug, Default)]
pub(super) struct Kept {
    at: i64,
    bytes: Vec<u8>,
    /// Where that begins which a fault lost, if there was one.
    sound_until: Option<i64>,
}

impl Kept {
    /// Takes what is written at `at`; a code other than `SQLITE_OK` when it is not taken.
    pub(super) fn write(&mut self, below: &mut impl Below, bytes: &[u8], at: i64) -> i32 {
        let end = end_of(bytes, at);
        if let Some(sound) = &mut self.sound_until {
            if at > *sound {
                return SQLITE_IOERR_WRITE;
            }
            *sound = end.max(*sound);
        }
        // What is written again is written after what was there: a commit's last frame comes last.
        let is_next = at == end_of(&self.bytes, self.at);
        if !is_next || self.bytes.len() >= MOST_KEPT {
            let code = self.flush(below);
            if code != SQLITE_OK {
                return code;
            }
            self.at = at;
        }
        self.bytes.extend_from_slice(bytes);
        SQLITE_OK
    }

    /// Writes what is kept to the file below. After a fault nothing is kept any more.
    pub(super) fn flush(&mut self, below: &mut impl Below) -> i32 {
        let mut at = self.at;
        let mut code = SQLITE_OK;
        for part in self.bytes.chunks(AT_ONCE) {
            code = below.write(part, at);
            if code != SQLITE_OK {
                self.sound_until = Some(self.sound_until.unwrap_or(at).min(at));
                break;
            }
            at = end_of(part, at);
        }
        self.bytes.clear();
        code
    }

    /// Whether `length` bytes at `at` can be read below, where nothing is kept any more.
    pub(super) fn check_read(&self, length: i32, at: i64) -> i32 {
        match self.sound_until {
            Some(sound) if at.saturating_add(i64::from(length)) > sound => SQLITE_IOERR_READ,
            Some(_) | None => SQLITE_OK,
        }
    }
}

fn end_of(bytes: &[u8], at: i64) -> i64 {
    at.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rusqlite::ffi::SQLITE_FULL;

    use super::*;

    /// A file in memory, and how often it was written to.
    #[derive(Default)]
    struct Plain {
        bytes: Vec<u8>,
        writes: usize,
        /// How many bytes it takes still.
        room: Option<usize>,
    }

    impl Below for Plain {
        fn write(&mut self, bytes: &[u8], at: i64) -> i32 {
            self.writes += 1;
            let taken = bytes.len().min(self.room.unwrap_or(usize::MAX));
            self.room = self.room.map(|room| room - taken);
            let at = usize::try_from(at).unwrap();
            self.bytes.resize(self.bytes.len().max(at + taken), 0);
            self.bytes[at..at + taken].copy_from_slice(&bytes[..taken]);
            if taken < bytes.len() {
                SQLITE_FULL
            } else {
                SQLITE_OK
            }
        }
    }

    #[test]
    fn neighbours_are_written_at_once_when_they_have_to_be_there() {
        let (mut kept, mut below) = (Kept::default(), Plain::default());
        for frame in 0..40 {
            let at = 32 + frame * 4120;
            assert_eq!(kept.write(&mut below, &[1; 24], at), SQLITE_OK);
            assert_eq!(kept.write(&mut below, &[2; 4096], at + 24), SQLITE_OK);
        }
        assert_eq!(below.writes, 0);
        assert_eq!(kept.flush(&mut below), SQLITE_OK);
        assert_eq!(below.writes, (40 * 4120_usize).div_ceil(AT_ONCE));
        assert_eq!(below.bytes.len(), 32 + 40 * 4120);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut kept, mut below) = (Kept::default(), Plain::default());
        for page in 0..1000 {
            assert_eq!(kept.write(&mut below, &[1; 4096], page * 4096), SQLITE_OK);
            assert!(kept.bytes.len() <= MOST_KEPT + 4096);
        }
        assert!(below.bytes.len() > 2 * MOST_KEPT);
    }

    // A commit that is refused because the disk is full must not be found after a restart.
    #[test]
    fn what_is_written_again_is_written_after_what_was_there() {
        let (mut kept, mut below) = (Kept::default(), Plain::default());
        assert_eq!(kept.write(&mut below, &[1; 100], 0), SQLITE_OK);
        assert_eq!(kept.write(&mut below, &[2; 50], 20), SQLITE_OK);
        assert_eq!((below.writes, &*below.bytes), (1, &[1; 100][..]));
        assert_eq!(kept.flush(&mut below), SQLITE_OK);
        assert_eq!((below.bytes[19], below.bytes[20], below.bytes[70]), (1, 2, 1));
    }

    #[test]
    fn a_fault_is_told_once_and_what_it_lost_is_not_read() {
        let (mut kept, mut below) = (Kept::default(), Plain::default());
        below.room = Some(AT_ONCE);
        assert_eq!(kept.write(&mut below, &vec![1; AT_ONCE + 10], 0), SQLITE_OK);
        assert_eq!(kept.flush(&mut below), SQLITE_FULL);
        assert_eq!(kept.flush(&mut below), SQLITE_OK);
        let sound = i64::try_from(AT_ONCE).unwrap();
        assert_eq!(kept.check_read(10, sound - 10), SQLITE_OK);
        assert_eq!(kept.check_read(10, sound - 9), SQLITE_IOERR_READ);
        // Nothing comes behind a hole; what fills it is taken.
        assert_eq!(kept.write(&mut below, &[2], sound + 1), SQLITE_IOERR_WRITE);
        below.room = None;
        assert_eq!(kept.write(&mut below, &[2; 20], sound - 5), SQLITE_OK);
        assert_eq!(kept.flush(&mut below), SQLITE_OK);
        assert_eq!(kept.check_read(10, sound), SQLITE_OK);
        assert_eq!(kept.check_read(16, sound), SQLITE_IOERR_READ);
    }

    proptest! {
        /// Whatever is written where, and wherever it fails: what can be read is what was written last.
        #[test]
        fn nobody_can_tell_the_difference(
            steps in proptest::collection::vec((0_i64..300_000, 1_usize..90_000, 0..10_u8), 1..60),
            fails_at in proptest::option::of(0_usize..600_000),
        ) {
            let (mut kept, mut below, mut plain) = (Kept::default(), Plain::default(), Plain::default());
            below.room = fails_at;
            let mut next = 0;
            for (index, (anywhere, length, kind)) in steps.into_iter().enumerate() {
                let byte = u8::try_from(index + 1).unwrap();
                // Mostly right behind the last write, as a log is written.
                let at = if kind < 7 { next } else { anywhere };
                let bytes = vec![byte; length];
                if kept.write(&mut below, &bytes, at) == SQLITE_OK {
                    plain.write(&bytes, at);
                    next = end_of(&bytes, at);
                } else {
                    // The disk is mended, and the log is begun anew.
                    below.room = None;
                    next = 0;
                }
                if kind % 3 != 0 {
                    continue;
                }
                if kept.flush(&mut below) != SQLITE_OK {
                    below.room = None;
                    next = 0;
                }
                for at in [0, anywhere / 2, anywhere] {
                    prop_assert!(same(&kept, &below, &plain, at, length));
                }
            }
            below.room = None;
            prop_assert_eq!(kept.flush(&mut below), SQLITE_OK);
            let length = plain.bytes.len();
            let readable = usize::try_from(kept.sound_until.unwrap_or(i64::MAX)).unwrap().min(length);
            prop_assert!(same(&kept, &below, &plain, 0, readable));
        }
    }

    /// Whether reading fails, or finds what was written last; into holes nothing was written on either side.
    fn same(kept: &Kept, below: &Plain, plain: &Plain, at: i64, length: usize) -> bool {
        let from = usize::try_from(at).unwrap();
        let bytes = |file: &Plain| -> Vec<u8> {
            let rest = file.bytes.iter().skip(from).copied().chain(std::iter::repeat(0));
            rest.take(length).collect()
        };
        let readable = kept.check_read(i32::try_from(length).unwrap(), at) == SQLITE_OK;
        !readable || bytes(below) == bytes(plain)
    }
}
