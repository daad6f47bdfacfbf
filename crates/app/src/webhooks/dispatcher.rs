//! The worker that delivers: fans events out, takes due attempts, makes them, has them recorded.
//!
//! Any number of workers may run, in one process or many. What a worker took and did not report before its lease
//! was over is lost to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fail::fail_point;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use turnpike_core::ids::WebhookEndpointId;
use turnpike_core::time::Timestamp;
use turnpike_core::webhook::DisabledReason;
use turnpike_store::{ClaimedDelivery, DeliveryReport, DueEndpoint, NextAttempt, Slots};
use turnpike_upstream::webhook::{Attempt, WebhookRequest, WebhookSecret};
use uuid::Uuid;

use super::lanes::Lanes;
use super::view::message;
use super::{WebhookParts, recorder};
use crate::error::AppError;

/// First attempts that one pass makes pending: no transaction holds the ledger's writer for long.
const FAN_OUT: u32 = 1000;
/// Attempts that one pass takes.
const CLAIM: usize = 512;
/// How long a lease outlives the longest attempt: for the start of the attempt and for its record.
const LEASE_SLACK_MS: i64 = 15_000;
/// How often leases are looked at, and idle lanes forgotten.
const UPKEEP: Duration = Duration::from_secs(5);
/// After a failure of the store.
const REST: Duration = Duration::from_millis(500);
/// Lanes are forgotten this often.
const TIDY_EVERY: u32 = 12;

/// What a worker has done since it was last asked.
#[derive(Debug, Default)]
pub struct DispatchCounts {
    succeeded: AtomicU64,
    failed: AtomicU64,
    recovered: AtomicU64,
}

impl DispatchCounts {
    /// Attempts that succeeded, that failed, and that others had lost, since the last call.
    pub fn take(&self) -> (u64, u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.succeeded), take(&self.failed), take(&self.recovered))
    }
}

/// A worker.
pub struct Dispatcher {
    parts: Arc<WebhookParts>,
    lanes: Lanes,
    counts: Arc<DispatchCounts>,
}

/// What an attempt needs beside its event.
struct Target {
    secrets: Arc<[WebhookSecret]>,
    failing_since: Option<Timestamp>,
}

/// What a pass takes.
struct Plan {
    slots: Vec<Slots>,
    /// Attempts in all slots: as many as may begin, whether or not so many wait.
    planned: usize,
    /// Whether there was no room for some endpoint.
    left_out: bool,
}

impl Dispatcher {
    /// A worker on `parts`.
    pub fn new(parts: Arc<WebhookParts>) -> Self {
        let settings = &parts.settings;
        Self {
            lanes: Lanes::new(settings.concurrency, settings.concurrency_per_endpoint),
            counts: Arc::default(),
            parts,
        }
    }

    /// What it has done.
    pub fn counts(&self) -> Arc<DispatchCounts> {
        self.counts.clone()
    }

    /// Works until `stop`, then waits for the attempts that run, at most as long as one may take, and records them.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        if !self.parts.store.is_shared() {
            // Nobody else can be at work on this store.
            self.recover(Timestamp::from_millis(i64::MAX)).await;
        }
        let room = self.parts.settings.concurrency.max(1);
        let (reports, received) = mpsc::channel(room);
        let recording = tokio::spawn(recorder::run(self.parts.clone(), received));
        let running = TaskTracker::new();
        let (mut upkeep_at, mut rounds) = (Instant::now() + UPKEEP, 0_u32);
        while !stop.is_cancelled() {
            let pause = match self.pass(&running, &reports).await {
                Ok(true) => Duration::ZERO,
                Ok(false) => Duration::from_millis(self.parts.settings.poll_ms.max(1)),
                Err(error) => {
                    tracing::warn!(%error, "webhooks wait for the store");
                    REST
                }
            };
            if Instant::now() >= upkeep_at {
                upkeep_at = Instant::now() + UPKEEP;
                rounds = rounds.wrapping_add(1);
                if rounds.is_multiple_of(TIDY_EVERY) {
                    self.lanes.tidy();
                }
                let now = self.parts.environment.now();
                self.recover(now).await;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.lanes.freed() => {}
                () = stop.cancelled() => {}
            }
        }
        running.close();
        drop(reports);
        running.wait().await;
        if let Err(error) = recording.await {
            tracing::error!(%error, "the recorder of webhook attempts ended badly");
        }
    }

    /// Makes others' lost attempts anew.
    async fn recover(&self, lease_before: Timestamp) {
        let environment = &self.parts.environment;
        let (now, claim) = (environment.now(), environment.new_id());
        match self
            .parts
            .store
            .recover_deliveries(lease_before, now, claim)
            .await
        {
            Ok(0) => {}
            Ok(recovered) => {
                tracing::warn!(recovered, "webhook attempts of a lost worker are made anew");
                self.counts.recovered.fetch_add(recovered, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(%error, "lost webhook attempts wait for the store"),
        }
    }

    /// One look at what is to do; whether there may be more at once.
    async fn pass(
        self: &Arc<Self>,
        running: &TaskTracker,
        reports: &mpsc::Sender<DeliveryReport>,
    ) -> Result<bool, AppError> {
        let parts = &self.parts;
        let fanned = parts.store.fan_out(FAN_OUT).await?;
        let now = parts.environment.now();
        let due = parts.store.list_due_endpoints(now).await?;
        let Plan {
            slots,
            planned,
            left_out,
        } = self.plan(&due, now);
        if slots.is_empty() {
            return Ok(fanned.more);
        }
        let claim = parts.environment.new_id();
        let lease_until = now.plus_millis(parts.settings.timeout_ms.saturating_add(LEASE_SLACK_MS));
        let started_by =
            Instant::now() + Duration::from_millis(u64::try_from(LEASE_SLACK_MS / 2).unwrap_or(0));
        let claimed = parts
            .store
            .claim_deliveries(&slots, now, claim, lease_until)
            .await?;
        if !claimed.is_empty() {
            fail_point!("after-webhook-claimed");
        }
        // More waits for those that were served, or for those whose turn did not come.
        let more = claimed.len() == planned || (left_out && !claimed.is_empty());
        let mut targets = std::collections::HashMap::new();
        for endpoint in due {
            let secrets = parts.secrets.live(endpoint.id, &endpoint.secrets, now);
            // Without a secret the attempt fails and says so.
            let secrets = secrets.unwrap_or_default();
            let target = Target {
                secrets: secrets.into(),
                failing_since: endpoint.failing_since,
            };
            targets.insert(endpoint.id, Arc::new(target));
        }
        for taken in claimed {
            let Some(target) = targets.get(&taken.endpoint).cloned() else {
                continue;
            };
            self.lanes.enter(taken.endpoint);
            let (worker, reports) = (self.clone(), reports.clone());
            running.spawn(async move { worker.attempt(taken, &target, claim, started_by, reports).await });
        }
        Ok(fanned.more || more)
    }

    /// How many attempts of each endpoint are taken, beginning with another endpoint every time.
    fn plan(&self, due: &[DueEndpoint], now: Timestamp) -> Plan {
        let start = usize::try_from(now.millis())
            .unwrap_or_default()
            .checked_rem(due.len())
            .unwrap_or_default();
        let mut planned: usize = 0;
        let mut left_out = false;
        let mut slots = Vec::new();
        for endpoint in due.iter().cycle().skip(start).take(due.len()) {
            let room = CLAIM.saturating_sub(planned);
            if room == 0 {
                left_out = true;
                break;
            }
            let free = self.lanes.free(endpoint.id, planned).min(room);
            if free == 0 {
                continue;
            }
            planned = planned.saturating_add(free);
            slots.push(Slots {
                tenant: endpoint.tenant,
                endpoint: endpoint.id,
                count: u32::try_from(free).unwrap_or(u32::MAX),
            });
        }
        // In one order everywhere, so that workers do not wait for one another in a circle.
        slots.sort_by_key(|slots| (slots.tenant.bucket(), slots.tenant, slots.endpoint));
        Plan {
            slots,
            planned,
            left_out,
        }
    }

    async fn attempt(
        &self,
        taken: ClaimedDelivery,
        target: &Target,
        claim: Uuid,
        started_by: Instant,
        reports: mpsc::Sender<DeliveryReport>,
    ) {
        let place = Place {
            lanes: &self.lanes,
            endpoint: taken.endpoint,
            outcome: None,
        };
        if Instant::now() > started_by {
            // This process stood still: the lease may be over before an answer could be recorded.
            tracing::warn!("a webhook attempt began too late and is left to its lease");
            return;
        }
        let Some((attempt, now)) = self.send(&taken, target).await else {
            return;
        };
        fail_point!("after-webhook-sent");
        let place = place.over(&attempt);
        let report = self.report(&taken, target, &attempt, claim, now);
        let count = if report.succeeded {
            &self.counts.succeeded
        } else {
            &self.counts.failed
        };
        count.fetch_add(1, Ordering::Relaxed);
        // INVARIANT: the place is given back after the report is on its way, so that what waits to be recorded is
        // bounded by the places.
        if reports.send(report).await.is_err() {
            tracing::error!("nobody records webhook attempts any more");
        }
        drop(place);
    }

    async fn send(&self, taken: &ClaimedDelivery, target: &Target) -> Option<(Attempt, Timestamp)> {
        let parts = &self.parts;
        let body = match message(taken.tenant, &taken.event, parts.settings.retention_ms) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(event = %taken.event.id, %error, "an event cannot be told");
                return None;
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
        Some((attempt, parts.environment.now()))
    }

    fn report(
        &self,
        taken: &ClaimedDelivery,
        target: &Target,
        attempt: &Attempt,
        claim: Uuid,
        now: Timestamp,
    ) -> DeliveryReport {
        let succeeded = attempt.succeeded();
        let patience = self.parts.settings.patience_ms;
        let disables = if succeeded {
            None
        } else if attempt.is_gone() {
            Some(DisabledReason::Gone)
        } else {
            let hopeless = target
                .failing_since
                .is_some_and(|since| now.since(since) >= patience);
            hopeless.then_some(DisabledReason::Failing)
        };
        let asked = attempt
            .retry_after
            .map(|asked| i64::try_from(asked.as_millis()).unwrap_or(i64::MAX));
        let random = self.parts.environment.random_32();
        let roll = random
            .first_chunk::<8>()
            .map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let next = if succeeded || disables == Some(DisabledReason::Gone) {
            None
        } else {
            let at = self.parts.settings.schedule.next(taken.step, now, roll, asked);
            at.map(|at| NextAttempt {
                step: taken.step.saturating_add(1),
                at,
            })
        };
        DeliveryReport {
            tenant: taken.tenant,
            event_seq: taken.event.seq,
            endpoint: taken.endpoint,
            attempt: taken.attempt,
            claim,
            succeeded,
            finished_at: now,
            http_status: attempt.http_status.and_then(|status| i16::try_from(status).ok()),
            response_body: attempt.response_body.clone(),
            error: attempt.error.map(str::to_owned),
            next,
            disables,
        }
    }
}

/// The place of one attempt, given back however it ends.
struct Place<'a> {
    lanes: &'a Lanes,
    endpoint: WebhookEndpointId,
    outcome: Option<(bool, bool, Duration)>,
}

impl Place<'_> {
    fn over(mut self, attempt: &Attempt) -> Self {
        self.outcome = Some((
            attempt.succeeded(),
            attempt.http_status.is_some(),
            attempt.elapsed,
        ));
        self
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let (succeeded, answered, took) = self.outcome.unwrap_or((false, true, Duration::ZERO));
        self.lanes.leave(self.endpoint, succeeded, answered, took);
    }
}
