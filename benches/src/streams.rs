//! Many streams at once: how much later than the provider's own the first byte and every chunk arrive.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;

use crate::Result;
use crate::client::{Connection, Target};
use crate::clock::monotonic_ns;
use crate::sse::{Lines, Mark};

/// A load of streams.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Open at once; a stream that ends is followed by the next.
    pub open: usize,
    /// New streams are begun for this long.
    pub duration: Duration,
    /// The first ones begin spread over this long; zero = all in one instant.
    pub spread: Duration,
}

/// What was seen; samples are sorted nanoseconds.
#[derive(Debug, Default)]
pub struct StreamRun {
    /// Streams that came to their `[DONE]`.
    pub streams: u64,
    /// Streams that did not.
    pub failures: u64,
    /// The first of them.
    pub first_failure: Option<String>,
    /// Request sent → first chunk here, less what the provider itself took from request to first chunk.
    pub added_first_byte: Vec<u64>,
    /// First chunk sent by the provider → here. Holds back what happens before the first byte is passed on.
    pub first_chunk: Vec<u64>,
    /// Any later chunk sent by the provider → here.
    pub later_chunks: Vec<u64>,
    /// From the first request to the last byte, in nanoseconds.
    pub elapsed_ns: u64,
}

impl StreamRun {
    fn absorb(&mut self, other: Self) {
        self.streams += other.streams;
        self.failures += other.failures;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.added_first_byte.extend(other.added_first_byte);
        self.first_chunk.extend(other.first_chunk);
        self.later_chunks.extend(other.later_chunks);
    }

    /// Reads one stream to its end.
    async fn one(&mut self, connection: &mut Connection, target: &Target) -> Result<()> {
        let sent = monotonic_ns();
        let response = connection.send(target.request(&target.body(true), None)).await?;
        let status = response.status();
        let mut body = response.into_body();
        if status != StatusCode::OK {
            let text = body.collect().await?.to_bytes();
            return Err(format!("{status}: {}", String::from_utf8_lossy(&text)).into());
        }
        let mut lines = Lines::default();
        let (mut chunks, mut done) = (0_u64, false);
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame?.into_data() else { continue };
            let now = monotonic_ns();
            lines.feed(&bytes, |line| {
                done |= line.starts_with(b"data: [DONE]");
                let Some(mark) = Mark::find(line) else { return };
                let forwarded = now.saturating_sub(mark.sent_ns);
                if chunks == 0 {
                    let provider = mark.sent_ns.saturating_sub(mark.arrived_ns);
                    self.added_first_byte
                        .push(now.saturating_sub(sent).saturating_sub(provider));
                    self.first_chunk.push(forwarded);
                } else {
                    self.later_chunks.push(forwarded);
                }
                chunks += 1;
            });
        }
        if done {
            Ok(())
        } else {
            Err(format!("a stream ended after {chunks} chunks").into())
        }
    }
}

/// Keeps `load.open` streams open.
///
/// # Errors
/// When nothing listens.
pub async fn run(target: &Target, load: Streams) -> Result<StreamRun> {
    let target = Arc::new(target.clone());
    let mut connections = Vec::new();
    for _ in 0..load.open {
        connections.push(Connection::open(target.address).await?);
    }
    let start = monotonic_ns();
    let end = start + load.duration.as_nanos() as u64;
    let step = load.spread / u32::try_from(load.open.max(1))?;
    let mut readers = Vec::new();
    for (index, mut connection) in (0_u32..).zip(connections) {
        let target = target.clone();
        readers.push(tokio::spawn(async move {
            tokio::time::sleep(step * index).await;
            let mut run = StreamRun::default();
            loop {
                match run.one(&mut connection, &target).await {
                    Ok(()) => run.streams += 1,
                    Err(error) => {
                        run.failures += 1;
                        run.first_failure.get_or_insert(error.to_string());
                    }
                }
                if monotonic_ns() >= end || run.failures > 10 {
                    return run;
                }
            }
        }));
    }
    let mut run = StreamRun::default();
    for reader in readers {
        run.absorb(reader.await?);
    }
    run.elapsed_ns = monotonic_ns().saturating_sub(start);
    run.added_first_byte.sort_unstable();
    run.first_chunk.sort_unstable();
    run.later_chunks.sort_unstable();
    Ok(run)
}
