//! Byte-exact splitting of a server-sent event stream.
//!
//! The rule: the pieces that come out, put together, are the bytes that went in; line ends (`\n`, `\r\n`,
//! `\r`), comments, a byte order mark and split UTF-8 included. An event ends with its blank line, and what
//! is unfinished is bounded by [`MAX_LINE_BYTES`] and [`MAX_EVENT_BYTES`]. What an event says is left to the
//! adapter.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// Longest line, without its end.
pub const MAX_LINE_BYTES: usize = 1024 * 1024;
/// Largest event: one line of the largest size, its end, and small `event:` and `id:` lines.
pub const MAX_EVENT_BYTES: usize = MAX_LINE_BYTES + 4096;

/// A line or event above its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event too large")]
pub struct TooLarge;

/// Whole events, in order, as they arrived.
#[derive(Debug, Default)]
pub struct Batch {
    /// The bytes of the events.
    pub bytes: Bytes,
    /// Where each event lies in `bytes`; together they cover it.
    pub events: Vec<Range<usize>>,
    /// Whether what follows the events broke a cap: no more will come.
    pub fault: Option<TooLarge>,
}

/// Splits a stream into events. Each byte is looked at once, however the chunks are cut.
#[derive(Debug, Default)]
pub struct Splitter {
    /// The beginning of an event that is not finished.
    tail: BytesMut,
    scan: Scan,
}

/// Where the scan stands, relative to the first byte of the unfinished event.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    position: usize,
    line_start: usize,
    /// The byte before `position` was a `\r`: a `\n` now belongs to the same line end.
    after_cr: bool,
}

impl Splitter {
    /// Takes the next bytes; returns the events that are complete now.
    pub fn push(&mut self, chunk: &Bytes) -> Batch {
        if self.tail.is_empty() {
            // The usual case: whole events in one read, forwarded without a copy.
            let (events, rest, fault) = self.scan.run(chunk);
            self.tail.extend_from_slice(&chunk[rest..]);
            return Batch {
                bytes: chunk.slice(..rest),
                events,
                fault,
            };
        }
        self.tail.extend_from_slice(chunk);
        let (events, rest, fault) = self.scan.run(&self.tail);
        Batch {
            bytes: self.tail.split_to(rest).freeze(),
            events,
            fault,
        }
    }

    /// The unfinished event at the end of the stream.
    pub fn into_rest(self) -> Bytes {
        self.tail.freeze()
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.tail.len()
    }
}

impl Scan {
    /// Scans `bytes`, which begin at the unfinished event; returns the events, where the rest begins, and
    /// whether a cap was broken. The state is then relative to that rest.
    fn run(&mut self, bytes: &[u8]) -> (Vec<Range<usize>>, usize, Option<TooLarge>) {
        let mut events = Vec::new();
        let mut event_start = 0;
        let mut fault = None;
        loop {
            if self.after_cr && self.position < bytes.len() {
                self.after_cr = false;
                if bytes[self.position] == b'\n' {
                    // The second half of a line end that was counted with its `\r`. After a blank line it
                    // is the first byte of what follows, where it says nothing.
                    self.position += 1;
                    self.line_start = self.position;
                }
            }
            let unread = bytes.get(self.position..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'\n', b'\r', unread) else {
                self.position = bytes.len();
                break;
            };
            let end = self.position + found;
            let blank = end == self.line_start;
            fault = self.check(end, event_start);
            if fault.is_some() {
                break;
            }
            let carriage_return = bytes[end] == b'\r';
            // A `\n` that is here already belongs to this event.
            let whole = carriage_return && bytes.get(end + 1) == Some(&b'\n');
            self.after_cr = carriage_return && !whole;
            self.position = end + 1 + usize::from(whole);
            self.line_start = self.position;
            if blank {
                events.push(event_start..self.position);
                event_start = self.position;
            }
        }
        fault = fault.or_else(|| self.check(self.position, event_start));
        self.position -= event_start.min(self.position);
        self.line_start -= event_start.min(self.line_start);
        (events, event_start, fault)
    }

    /// Checks the caps for a line that reaches to `end`.
    fn check(&self, end: usize, event_start: usize) -> Option<TooLarge> {
        let line = end.saturating_sub(self.line_start);
        let event = end.saturating_sub(event_start);
        (line > MAX_LINE_BYTES || event > MAX_EVENT_BYTES).then_some(TooLarge)
    }
}

/// The payload of an event's `data` fields, joined by `\n`; `None` without such a field.
pub fn data_of(event: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut data: Option<Cow<'_, [u8]>> = None;
    for line in Lines(event.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(event)) {
        let Some(value) = field(line, b"data") else {
            continue;
        };
        data = Some(match data {
            None => Cow::Borrowed(value),
            Some(before) => {
                let mut joined = before.into_owned();
                joined.push(b'\n');
                joined.extend_from_slice(value);
                Cow::Owned(joined)
            }
        });
    }
    data
}

/// The value of `line` if it is the field `name`.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    match rest.first() {
        None => Some(rest),
        Some(b':') => Some(rest.strip_prefix(b": ").unwrap_or(&rest[1..])),
        Some(_) => None,
    }
}

/// The lines of an event, without their ends.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let end = memchr::memchr2(b'\n', b'\r', self.0).unwrap_or(self.0.len());
        let (line, rest) = self.0.split_at(end);
        let skip = if rest.starts_with(b"\r\n") {
            2
        } else {
            usize::from(!rest.is_empty())
        };
        self.0 = &rest[skip..];
        Some(line)
    }
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
