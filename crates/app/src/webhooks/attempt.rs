//! One attempt: sent under its lease, and told to the recorder.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fail::fail_point;
use tokio::sync::mpsc;
use tokio::time::Instant;
use turnpike_core::ids::{TenantId, WebhookEndpointId};
use turnpike_core::time::Timestamp;
use turnpike_store::{ClaimedDelivery, DeliveryReport, NextAttempt, Verdict};
use turnpike_upstream::webhook::{Attempt, WebhookRequest, WebhookSecret};
use uuid::Uuid;

use super::dispatcher::Dispatcher;
use super::lanes::End;
use super::view::message;

/// What an attempt needs beside its event.
pub(super) struct Target {
    pub(super) secrets: Arc<[WebhookSecret]>,
    pub(super) failing_since: Option<Timestamp>,
}

/// Under which claim an attempt is made, and until when it may begin.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    pub(super) claim: Uuid,
    /// How far the clock that all workers share is ahead of this one's.
    pub(super) ahead_ms: i64,
    pub(super) begin_by: Instant,
}

impl Dispatcher {
    async fn send(&self, taken: &ClaimedDelivery, target: &Target) -> Ended {
        let parts = &self.parts;
        let body = match message(taken.tenant, &taken.event, parts.settings.retention_ms) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(event = %taken.event.id, %error, "an event cannot be told");
                return Ended::Impossible;
            }
        };
        let attempt = parts
            .sender
            .send(&WebhookRequest {
                url: &taken.url,
                id: &taken.event.id.to_string(),
                at: parts.environment.now(),
                body: &body,
                secrets: &target.secrets,
            })
            .await;
        Ended::Sent(attempt)
    }

    fn report(&self, taken: &ClaimedDelivery, target: &Target, ended: Ended, lease: Lease) -> DeliveryReport {
        let now = self.parts.environment.now().plus_millis(lease.ahead_ms);
        let mut report = DeliveryReport {
            tenant: taken.tenant,
            event_seq: taken.event.seq,
            endpoint: taken.endpoint,
            url: taken.url.clone(),
            attempt: taken.attempt,
            claim: lease.claim,
            succeeded: false,
            finished_at: now,
            http_status: None,
            response_body: None,
            error: None,
            next: None,
            verdict: None,
        };
        let mut asked = None;
        match ended {
            Ended::Impossible => report.error = Some("the event cannot be told".to_owned()),
            Ended::TooLate => {
                // No step of the schedule is used up by what was not tried.
                report.error = Some("the worker was too late".to_owned());
                report.next = Some(NextAttempt {
                    step: taken.step,
                    at: now,
                });
                return report;
            }
            Ended::Sent(attempt) => {
                report.succeeded = attempt.succeeded();
                report.verdict = Some(self.verdict(&attempt, target, now));
                report.http_status = attempt.http_status.and_then(|status| i16::try_from(status).ok());
                report.response_body = attempt.response_body;
                report.error = attempt.error.map(str::to_owned);
                asked = attempt
                    .retry_after
                    .map(|asked| i64::try_from(asked.as_millis()).unwrap_or(i64::MAX));
            }
        }
        if !report.succeeded && report.verdict != Some(Verdict::Gone) {
            let random = self.parts.environment.random_32();
            let roll = random
                .first_chunk::<8>()
                .map_or(0, |bytes| u64::from_be_bytes(*bytes));
            let at = self.parts.settings.schedule.next(taken.step, now, roll, asked);
            report.next = at.map(|at| NextAttempt {
                step: taken.step.saturating_add(1),
                at,
            });
        }
        report
    }

    /// What an attempt says of its endpoint.
    fn verdict(&self, attempt: &Attempt, target: &Target, now: Timestamp) -> Verdict {
        if attempt.succeeded() {
            return Verdict::Works;
        }
        if attempt.is_gone() {
            return Verdict::Gone;
        }
        let limit = now.plus_millis(self.parts.settings.patience_ms.saturating_neg());
        if target.failing_since.is_some_and(|since| since <= limit) {
            Verdict::Hopeless(limit)
        } else {
            Verdict::Fails
        }
    }
}

/// What became of an attempt.
enum Ended {
    /// It was made, or could not reach anybody.
    Sent(Attempt),
    /// What is stored of the event is no message.
    Impossible,
    /// The lease may be over before an answer could be recorded.
    TooLate,
}

/// The place of one attempt, given back however it ends.
pub(super) struct Place {
    worker: Arc<Dispatcher>,
    taken_by: (TenantId, WebhookEndpointId),
    slow: bool,
    end: End,
}

impl Place {
    pub(super) fn take(worker: Arc<Dispatcher>, taken: &ClaimedDelivery) -> Self {
        Self {
            slow: worker.lanes.enter(taken.tenant, taken.endpoint),
            taken_by: (taken.tenant, taken.endpoint),
            worker,
            end: End {
                succeeded: false,
                answered: true,
                took: Duration::ZERO,
            },
        }
    }

    /// Makes an attempt and hands its outcome to the recorder.
    pub(super) async fn attempt(
        mut self,
        taken: ClaimedDelivery,
        target: &Target,
        lease: Lease,
        reports: mpsc::Sender<DeliveryReport>,
    ) {
        let ended = if Instant::now() > lease.begin_by {
            // This process stood still: the lease may be over before an answer could be recorded.
            tracing::warn!("a webhook attempt would have begun too late");
            Ended::TooLate
        } else {
            self.worker.send(&taken, target).await
        };
        if let Ended::Sent(attempt) = &ended {
            fail_point!("after-webhook-sent");
            self.end = End {
                succeeded: attempt.succeeded(),
                answered: attempt.http_status.is_some(),
                took: attempt.elapsed,
            };
        }
        let report = self.worker.report(&taken, target, ended, lease);
        let counts = &self.worker.counts;
        let count = if report.succeeded {
            &counts.succeeded
        } else {
            &counts.failed
        };
        count.fetch_add(1, Ordering::Relaxed);
        // INVARIANT: the place is given back after the report is on its way, so that what waits to be recorded is
        // bounded by the places.
        if reports.send(report).await.is_err() {
            tracing::error!("nobody records webhook attempts any more");
        }
        drop(self);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (tenant, endpoint) = self.taken_by;
        self.worker.lanes.leave(tenant, endpoint, self.slow, &self.end);
    }
}
