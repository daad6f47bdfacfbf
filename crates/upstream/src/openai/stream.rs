//! A provider's event stream: forwarded verbatim, read in passing.
//!
//! The rule: the bytes handed on are the provider's own, except a usage-only chunk that the client did not
//! ask for; nothing after `[DONE]` is read and nothing unfinished is handed on. Memory per stream is one
//! read plus one unfinished event. Billing the summary and telling the client about a fault is left to the
//! app and the server.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use turnpike_core::usage::Usage;

use crate::client::next_part;
use crate::error::{StreamFault, UpstreamError};
use crate::openai::chunk::{self, Seen};
use crate::openai::{model_name, usage};
use crate::simulated::stream::SimulatedStream;
use crate::sse::{self, Splitter};

/// Where the bytes come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A response body.
    Http { body: Incoming, idle: Duration },
    /// The simulated provider.
    Simulated(SimulatedStream),
}

impl Source {
    async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        match self {
            Self::Http { body, idle } => next_part(body, *idle, None).await,
            Self::Simulated(stream) => stream.next().await,
        }
    }
}

/// What a stream has said so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSummary {
    /// The last usage reported; `None` when there was none or the last one was impossible.
    pub usage: Option<Usage>,
    /// Why the last usage was not believed.
    pub usage_fault: Option<String>,
    /// Whether `[DONE]` arrived.
    pub done: bool,
    /// Whether an event carried an `error`.
    pub provider_error: bool,
    /// Bytes of generated content (text, reasoning, tool arguments) in the events so far.
    pub delivered_bytes: u64,
    /// Events with data so far, `[DONE]` not counted.
    pub events: u64,
    /// The model that answers, as the provider names it.
    pub model: Option<String>,
}

/// An open event stream. Dropping it closes the upstream connection.
#[derive(Debug)]
pub struct EventStream {
    source: Option<Source>,
    splitter: Splitter,
    keep_usage_chunk: bool,
    summary: StreamSummary,
    ready: Bytes,
    fault: Option<StreamFault>,
}

/// What becomes of an event.
enum Verdict {
    Forward,
    Drop,
    End,
}

impl EventStream {
    /// Waits for the first event with data. A stream that fails, ends or reports an error before it is an
    /// ordinary error.
    pub(crate) async fn open(source: Source, keep_usage_chunk: bool) -> Result<Self, UpstreamError> {
        let mut stream = Self {
            source: Some(source),
            splitter: Splitter::default(),
            keep_usage_chunk,
            summary: StreamSummary::default(),
            ready: Bytes::new(),
            fault: None,
        };
        let mut before = BytesMut::new();
        while let Some(source) = stream.source.as_mut() {
            let Some(chunk) = source.next().await? else { break };
            let bytes = stream.take(&chunk);
            if stream.summary.provider_error && stream.summary.delivered_bytes == 0 {
                return Err(UpstreamError::bad("error event before any content"));
            }
            if stream.summary.events > 0 {
                stream.ready = if before.is_empty() {
                    bytes
                } else {
                    before.extend_from_slice(&bytes);
                    before.freeze()
                };
                return Ok(stream);
            }
            before.extend_from_slice(&bytes);
            if stream.fault.is_some() || before.len() > sse::MAX_EVENT_BYTES {
                return Err(UpstreamError::bad("event too large"));
            }
        }
        Err(UpstreamError::bad("stream without an event"))
    }

    /// The next bytes to hand on: all events that are complete. `None` after the last one; after a fault,
    /// too, and the fault comes once.
    pub async fn next(&mut self) -> Option<Result<Bytes, StreamFault>> {
        loop {
            if !self.ready.is_empty() {
                return Some(Ok(std::mem::take(&mut self.ready)));
            }
            if let Some(fault) = self.fault.take() {
                self.source = None;
                return Some(Err(fault));
            }
            let read = self.source.as_mut()?.next().await;
            match read {
                Ok(Some(chunk)) => self.ready = self.take(&chunk),
                Ok(None) => self.finish(),
                Err(UpstreamError::Timeout { .. }) => self.fault = Some(StreamFault::Stalled),
                Err(
                    UpstreamError::NotSent { .. }
                    | UpstreamError::Status { .. }
                    | UpstreamError::BadResponse { .. }
                    | UpstreamError::Interrupted { .. },
                ) => self.fault = Some(StreamFault::Died),
            }
        }
    }

    /// What the stream has said so far.
    pub fn summary(&self) -> StreamSummary {
        self.summary.clone()
    }

    /// Whether `[DONE]` arrived.
    pub fn is_done(&self) -> bool {
        self.summary.done
    }

    /// Splits off and reads what is complete; returns what of it is handed on.
    fn take(&mut self, chunk: &Bytes) -> Bytes {
        let batch = self.splitter.push(chunk);
        self.fault = batch.fault.map(|sse::TooLarge| StreamFault::TooLarge);
        let mut kept: Option<BytesMut> = None;
        for range in batch.events {
            let (start, end) = (range.start, range.end);
            let event = &batch.bytes[range];
            match self.read(event) {
                Verdict::Forward => {
                    if let Some(kept) = kept.as_mut() {
                        kept.extend_from_slice(event);
                    }
                }
                Verdict::Drop => {
                    kept.get_or_insert_with(|| BytesMut::from(&batch.bytes[..start]));
                }
                Verdict::End => {
                    self.source = None;
                    self.fault = None;
                    return kept.map_or_else(
                        || batch.bytes.slice(..end),
                        |mut kept| {
                            kept.extend_from_slice(event);
                            kept.freeze()
                        },
                    );
                }
            }
        }
        kept.map_or(batch.bytes, BytesMut::freeze)
    }

    /// Reads one event in passing.
    fn read(&mut self, event: &[u8]) -> Verdict {
        let Some(data) = sse::data_of(event) else {
            return Verdict::Forward;
        };
        let facts = match chunk::read(&data) {
            Seen::Done => {
                self.summary.done = true;
                return Verdict::End;
            }
            Seen::Unread => {
                self.summary.events += 1;
                self.deliver(u64::try_from(data.len()).unwrap_or(u64::MAX));
                return Verdict::Forward;
            }
            Seen::Chunk(facts) => facts,
        };
        self.summary.events += 1;
        self.deliver(facts.content);
        self.summary.provider_error |= facts.error;
        if self.summary.model.is_none() {
            self.summary.model = facts.model.and_then(model_name);
        }
        match facts.usage.map(usage::normalise) {
            Some(Ok(Some(usage))) => {
                self.summary.usage = Some(usage);
                self.summary.usage_fault = None;
            }
            Some(Err(fault)) => {
                self.summary.usage = None;
                self.summary.usage_fault = Some(fault);
            }
            Some(Ok(None)) | None => {}
        }
        if facts.usage_only && !self.keep_usage_chunk {
            Verdict::Drop
        } else {
            Verdict::Forward
        }
    }

    fn deliver(&mut self, bytes: u64) {
        self.summary.delivered_bytes = self.summary.delivered_bytes.saturating_add(bytes);
    }

    /// The upstream closed. An end marker without its blank line still ends the stream well; any other
    /// unfinished event is no event.
    fn finish(&mut self) {
        self.source = None;
        let rest = std::mem::take(&mut self.splitter).into_rest();
        let done = sse::data_of(&rest).is_some_and(|data| chunk::read(&data) == Seen::Done);
        if done {
            self.summary.done = true;
            self.ready = rest;
        } else {
            self.fault = Some(StreamFault::Died);
        }
    }
}
