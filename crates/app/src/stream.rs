//! Streams: captured before the first byte, forwarded chunk by chunk, finished when they end.
//!
//! The channel to the client is short, so a slow reader slows the provider. A client that goes away does not
//! end the stream: it is read to its end, billed, and its transcript kept for the same key.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fail::fail_point;
use tokio::sync::mpsc;
use tokio::time::Instant;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::command::{Capture, FinishStream, OutcomeKind};
use turnpike_core::ledger::hold::StreamSettlement;
use turnpike_core::ledger::{Action, Outcome, Rejection};
use turnpike_store::SubmitError;
use turnpike_upstream::{ChatApi, EventStream, StreamFault, StreamSummary};

use crate::engine::{Admitted, Answer, AnswerSender, Engine, receipt, tell};
use crate::error::AppError;
use crate::providers::{FrozenPrice, ProviderEntry};
use crate::settle::stream_charge;

/// Chunks between the provider and a client that reads slowly.
const CHANNEL_CHUNKS: usize = 16;

/// What a stream needs beside its hold.
pub(crate) struct StreamPlan {
    pub(crate) price: FrozenPrice,
    pub(crate) settlement: StreamSettlement,
    pub(crate) prompt_bound: u64,
    pub(crate) completion_bound: u64,
    pub(crate) body: Bytes,
    pub(crate) keep_usage_chunk: bool,
}

/// What was forwarded, kept for replay as long as it is not too much.
struct Transcript {
    bytes: BytesMut,
    limit: usize,
    overflown: bool,
}

impl Transcript {
    fn push(&mut self, chunk: &[u8]) {
        if self.overflown || self.bytes.len().saturating_add(chunk.len()) > self.limit {
            self.overflown = true;
            self.bytes = BytesMut::new();
        } else {
            self.bytes.extend_from_slice(chunk);
        }
    }
}

impl Engine {
    /// Runs a stream to its end; the handler is answered when its first byte may go out.
    pub(crate) async fn run_stream(
        &self,
        admitted: &Admitted,
        entry: &ProviderEntry,
        plan: StreamPlan,
        answer: AnswerSender,
    ) {
        let (stream, chunks) = match self.open_stream(admitted, entry, &plan).await {
            Ok((stream, answered)) => {
                let (sender, receiver) = mpsc::channel(CHANNEL_CHUNKS);
                tell(
                    answer,
                    Ok(Answer::Stream {
                        chunks: receiver,
                        receipt: answered,
                    }),
                );
                (stream, sender)
            }
            Err(error) => {
                tell(answer, Err(error));
                return;
            }
        };
        self.forward(admitted, plan, stream, chunks).await;
    }

    async fn open_stream(
        &self,
        admitted: &Admitted,
        entry: &ProviderEntry,
        plan: &StreamPlan,
    ) -> Result<(EventStream, crate::engine::Receipt), AppError> {
        self.mark_dispatched(admitted).await?;
        let ask = || {
            entry
                .provider
                .stream(ChatApi::ChatCompletions, plan.body.clone(), plan.keep_usage_chunk)
        };
        let opened = match ask().await {
            Err(error) if !error.sent() => ask().await,
            result => result,
        };
        fail_point!("after-upstream");
        let stream = match opened {
            Ok(stream) => stream,
            Err(error) => return Err(self.fail(admitted, &error).await),
        };
        fail_point!("before-capture");
        // INVARIANT: the authorised amount is captured before the first byte is delivered.
        let capture = Capture {
            call: admitted.call.clone(),
            charge: admitted.hold,
            usage: None,
            drift: None,
            outcome: None,
        };
        let captured = self
            .submit_end(admitted.tenant, Action::Capture(Box::new(capture)))
            .await;
        fail_point!("after-capture");
        match captured {
            Ok(Outcome::Captured { charged, balance }) => {
                Ok((stream, receipt(admitted, charged, balance.posted)))
            }
            Ok(_) => Err(AppError::internal(&"a capture was answered by another outcome")),
            Err(SubmitError::Rejected(Rejection::HoldNotOpen(_))) => Err(AppError::new(
                ErrorCode::UpstreamTimeout,
                "the call took longer than its hold; nothing was charged",
            )),
            Err(error) => Err(AppError::from_submit(&error, admitted.rate)),
        }
    }

    async fn forward(
        &self,
        admitted: &Admitted,
        plan: StreamPlan,
        mut stream: EventStream,
        chunks: mpsc::Sender<Bytes>,
    ) {
        let longest = Duration::from_millis(u64::try_from(self.settings.max_stream_ms).unwrap_or(u64::MAX));
        let ends_at = Instant::now() + longest;
        let mut client = Some(chunks);
        let mut transcript = Transcript {
            bytes: BytesMut::new(),
            limit: self.settings.max_stored_bytes,
            overflown: false,
        };
        let fault = loop {
            let next = tokio::select! {
                next = tokio::time::timeout_at(ends_at, stream.next()) => next.unwrap_or(Some(Err(StreamFault::Stalled))),
                () = self.stopping.cancelled() => Some(Err(StreamFault::Stalled)),
            };
            match next {
                Some(Ok(chunk)) => {
                    transcript.push(&chunk);
                    self.send(&mut client, chunk).await;
                    fail_point!("mid-stream");
                }
                Some(Err(fault)) => break Some(fault),
                None => break None,
            }
        };
        let summary = stream.summary();
        drop(stream);
        fail_point!("stream-end");
        let failure = fault.map(|fault| {
            tracing::warn!(call = %admitted.call.call, %fault, "a stream broke");
            let code = if fault == StreamFault::Stalled {
                ErrorCode::UpstreamTimeout
            } else {
                ErrorCode::UpstreamError
            };
            (code, error_event(code))
        });
        if let Some((_, event)) = &failure {
            transcript.push(event);
        }
        let broken = failure.as_ref().map(|(code, _)| *code);
        let broken = broken.or_else(|| summary.provider_error.then_some(ErrorCode::UpstreamError));
        self.finish(admitted, &plan, &summary, broken, transcript).await;
        // The end is told after the books are right, so that who sees it sees the refund.
        if let Some((_, event)) = failure {
            self.send(&mut client, event).await;
        }
        drop(client);
    }

    /// Sends a chunk to the client; one that is gone, or reads too slowly, is forgotten and the rest drained.
    async fn send(&self, client: &mut Option<mpsc::Sender<Bytes>>, chunk: Bytes) {
        let Some(sender) = client.as_ref() else { return };
        let patience = Duration::from_millis(self.settings.slow_reader_ms);
        if !matches!(
            tokio::time::timeout(patience, sender.send(chunk)).await,
            Ok(Ok(()))
        ) {
            *client = None;
        }
    }

    async fn finish(
        &self,
        admitted: &Admitted,
        plan: &StreamPlan,
        summary: &StreamSummary,
        broken: Option<ErrorCode>,
        transcript: Transcript,
    ) {
        let (charge, drift, refund_kind) = stream_charge(admitted, plan, summary, broken.is_some());
        let mut outcome = self.stored(OutcomeKind::Transcript, transcript.bytes.freeze());
        if transcript.overflown {
            outcome.body = None;
        }
        let finish = FinishStream {
            call: admitted.call.clone(),
            charge,
            refund_kind,
            usage: summary.usage,
            drift,
            failure: broken.map(|code| code.as_str().into()),
            outcome,
        };
        if let Err(error) = self
            .submit_end(admitted.tenant, Action::FinishStream(Box::new(finish)))
            .await
        {
            // The charge stands as captured; the sweeper closes the record.
            tracing::error!(call = %admitted.call.call, %error, "the end of a stream was not written");
        }
        fail_point!("after-finish");
    }
}

/// The event with which a broken stream ends.
fn error_event(code: ErrorCode) -> Bytes {
    let error = serde_json::json!({ "error": {
        "message": "the provider's stream broke; what was not delivered is credited back",
        "type": "upstream_error",
        "code": code.as_str(),
    } });
    Bytes::from(format!("data: {error}\n\n"))
}
