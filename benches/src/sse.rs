//! The marks in the mock provider's chunks: when the request arrived there and when the chunk left.
//!
//! A chunk's text begins with `@ARRIVED/SENT `, both in nanoseconds of the machine's monotonic clock.

use memchr::memmem;

const START: &[u8] = b"\"@";

/// The two instants of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When the request reached the provider.
    pub arrived_ns: u64,
    /// When this chunk left it.
    pub sent_ns: u64,
}

impl Mark {
    /// As it stands in a chunk's text.
    pub fn text(&self) -> String {
        format!("@{}/{} ", self.arrived_ns, self.sent_ns)
    }

    /// The mark of one line of a stream, if it has one.
    pub fn find(line: &[u8]) -> Option<Self> {
        let start = memmem::find(line, START)? + START.len();
        let text = line.get(start..)?;
        let end = memchr::memchr(b' ', text)?;
        let (arrived, sent) = std::str::from_utf8(text.get(..end)?).ok()?.split_once('/')?;
        Some(Self {
            arrived_ns: arrived.parse().ok()?,
            sent_ns: sent.parse().ok()?,
        })
    }
}

/// Cuts what arrives into lines; a line may come in pieces.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Adds `bytes` and gives every line that is complete.
    pub fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        self.rest.extend_from_slice(bytes);
        let mut done = 0;
        while let Some(length) = self.rest.get(done..).and_then(|open| memchr::memchr(b'\n', open)) {
            line(self.rest.get(done..done + length).unwrap_or_default());
            done += length + 1;
        }
        self.rest.drain(..done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_in_a_line_that_came_in_pieces() {
        let mark = Mark {
            arrived_ns: 17,
            sent_ns: 23,
        };
        let chunk = format!("data: {{\"content\":\"{}word\"}}\n\n", mark.text());
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for byte in chunk.as_bytes() {
            lines.feed(&[*byte], |line| found.extend(Mark::find(line)));
        }
        assert_eq!(found, [mark]);
        assert_eq!(Mark::find(b"data: [DONE]"), None);
    }
}
