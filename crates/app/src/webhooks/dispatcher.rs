//! The worker that delivers: fans events out, takes due attempts, makes them, has them recorded.
//!
//! Any number of workers may run, in one process or many. What a worker took and did not report before its lease
//! was over is lost to it.

use std::collections::HashMap;
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
use turnpike_store::{DeliveryReport, DueEndpoint, FanOutPlan, Slots, StoreError};

use super::attempt::{Lease, Place, Target};
use super::lanes::{Lanes, Promised};
use super::{LEASE_SLACK_MS, WebhookParts, canceling, recorder};

/// First attempts that one pass makes pending: no transaction holds the ledger's writer for long.
const FAN_OUT: u32 = 1000;
/// Attempts that one pass takes.
const CLAIM: usize = 512;
/// How often leases and endpoints out of use are looked at.
const UPKEEP: Duration = Duration::from_secs(5);
/// After a failure of the store.
const REST: Duration = Duration::from_millis(500);
/// After how many of these idle lanes are forgotten.
const TIDY_EVERY: u32 = 12;
/// After how many of those an endpoint that was slow is given another chance: an hour.
const SLOW_KEPT: u32 = 60;
/// How long after its lease an attempt counts as lost where one worker is alone.
const ALONE_MS: i64 = 600_000;

/// What a worker has done since it was last asked.
#[derive(Debug, Default)]
pub struct DispatchCounts {
    pub(super) succeeded: AtomicU64,
    pub(super) failed: AtomicU64,
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
    pub(super) parts: Arc<WebhookParts>,
    pub(super) lanes: Lanes,
    pub(super) counts: Arc<DispatchCounts>,
    passes: AtomicU64,
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
            passes: AtomicU64::new(0),
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
            // Nobody else can be at work on this store, and nobody who was is any more.
            let now = self.parts.environment.now();
            self.recover(Timestamp::from_millis(i64::MAX), now).await;
        }
        let room = self.parts.settings.concurrency.max(1);
        let (reports, received) = mpsc::channel(room);
        let recording = tokio::spawn(recorder::run(self.parts.clone(), received));
        let upkeep = tokio::spawn(self.clone().keep_up(stop.clone()));
        let running = TaskTracker::new();
        // Without a recorder nothing is sent: nobody would know of it.
        while !stop.is_cancelled() && !reports.is_closed() {
            let pause = match self.pass(&running, &reports).await {
                Ok(true) => Duration::ZERO,
                Ok(false) => Duration::from_millis(self.parts.settings.poll_ms.max(1)),
                Err(error) => {
                    tracing::warn!(%error, "webhooks wait for the store");
                    REST
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.lanes.freed() => {}
                () = stop.cancelled() => {}
            }
        }
        running.close();
        drop(reports);
        running.wait().await;
        for (what, task) in [("recorder", recording), ("upkeep", upkeep)] {
            if let Err(error) = task.await {
                tracing::error!(%error, what, "a part of the webhook worker ended badly");
            }
        }
    }

    /// Looks after what others left, beside the passes.
    async fn keep_up(self: Arc<Self>, stop: CancellationToken) {
        let mut rounds = 0_u32;
        loop {
            tokio::select! {
                () = tokio::time::sleep(UPKEEP) => {}
                () = stop.cancelled() => return,
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(TIDY_EVERY) {
                self.lanes.tidy(SLOW_KEPT);
            }
            match self.parts.store.clock(self.parts.environment.now()).await {
                // A worker that is alone with its store is the only one whose leases there are: it does not take its
                // own attempts for lost because its clock was set.
                Ok(now) if self.parts.store.is_shared() => self.recover(now, now).await,
                Ok(now) => self.recover(now.plus_millis(-ALONE_MS), now).await,
                Err(error) => tracing::warn!(%error, "lost webhook attempts wait for the store"),
            }
            canceling::sweep(&self.parts, &stop).await;
        }
    }

    /// Makes lost attempts anew.
    async fn recover(&self, lease_before: Timestamp, now: Timestamp) {
        let claim = self.parts.environment.new_id();
        let steps = self.parts.settings.schedule.steps();
        match self
            .parts
            .store
            .recover_deliveries(lease_before, now, claim, steps)
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
    ) -> Result<bool, StoreError> {
        let parts = &self.parts;
        let settings = &parts.settings;
        let turn = self.passes.fetch_add(1, Ordering::Relaxed);
        // Leases and times are those of one clock, however many workers there are.
        let looked_at = Instant::now();
        let local = parts.environment.now();
        let now = parts.store.clock(local).await?;
        let plan = FanOutPlan {
            most: FAN_OUT,
            due: now.plus_millis(settings.schedule.first_delay_ms()),
            turn,
        };
        let fanned = parts.store.fan_out(plan).await?;
        let due = parts.store.list_due_endpoints(now).await?;
        let Plan {
            slots,
            planned,
            left_out,
        } = self.plan(&due, turn);
        if slots.is_empty() {
            return Ok(fanned.more);
        }
        let lease = Lease {
            claim: parts.environment.new_id(),
            ahead_ms: now.since(local),
            begin_by: Instant::now() + Duration::from_millis(LEASE_SLACK_MS.unsigned_abs() / 2),
        };
        let passed = i64::try_from(looked_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = now.plus_millis(passed);
        let until = now.plus_millis(settings.lease_ms());
        let claimed = parts
            .store
            .claim_deliveries(&slots, now, lease.claim, until)
            .await?;
        if !claimed.is_empty() {
            fail_point!("after-webhook-claimed");
        }
        // More waits for those that were served, or for those whose turn did not come.
        let more = claimed.len() == planned || (left_out && !claimed.is_empty());
        let due: HashMap<WebhookEndpointId, DueEndpoint> =
            due.into_iter().map(|endpoint| (endpoint.id, endpoint)).collect();
        let mut targets: HashMap<WebhookEndpointId, Arc<Target>> = HashMap::new();
        for taken in claimed {
            let target = targets
                .entry(taken.endpoint)
                .or_insert_with(|| Arc::new(self.target(due.get(&taken.endpoint))))
                .clone();
            let place = Place::take(self.clone(), &taken);
            let reports = reports.clone();
            running.spawn(async move { place.attempt(taken, &target, lease, reports).await });
        }
        Ok(fanned.more || more)
    }

    /// Without a secret the attempt fails and says so.
    fn target(&self, endpoint: Option<&DueEndpoint>) -> Target {
        let now = self.parts.environment.now();
        let live = |endpoint: &DueEndpoint| self.parts.secrets.live(endpoint.id, &endpoint.secrets, now).ok();
        Target {
            secrets: endpoint.and_then(live).unwrap_or_default().into(),
            failing_since: endpoint.and_then(|endpoint| endpoint.failing_since),
        }
    }

    /// How many attempts of each endpoint are taken: an even share first, then what is left, beginning with another
    /// endpoint every time.
    fn plan(&self, due: &[DueEndpoint], turn: u64) -> Plan {
        let count = u64::try_from(due.len()).unwrap_or(u64::MAX);
        let start = usize::try_from(turn.checked_rem(count).unwrap_or(0)).unwrap_or(0);
        let mut promised = Promised::default();
        let mut granted: HashMap<WebhookEndpointId, usize> = HashMap::new();
        let share = CLAIM.checked_div(due.len()).unwrap_or(CLAIM).max(1);
        for most in [share, CLAIM] {
            for endpoint in due.iter().cycle().skip(start).take(due.len()) {
                let room = CLAIM.saturating_sub(promised.all());
                let more = self
                    .lanes
                    .promise(&mut promised, endpoint.tenant, endpoint.id, room.min(most));
                if more > 0 {
                    let granted = granted.entry(endpoint.id).or_insert(0);
                    *granted = granted.saturating_add(more);
                }
            }
        }
        let slot = |endpoint: &DueEndpoint| {
            let count = granted.get(&endpoint.id)?;
            Some(Slots {
                tenant: endpoint.tenant,
                endpoint: endpoint.id,
                url: endpoint.url.clone(),
                count: u32::try_from(*count).unwrap_or(u32::MAX),
            })
        };
        let mut slots: Vec<Slots> = due.iter().filter_map(slot).collect();
        // In one order everywhere, so that workers do not wait for one another in a circle.
        slots.sort_by_key(|slots| (slots.tenant.bucket(), slots.tenant, slots.endpoint));
        Plan {
            left_out: promised.all() >= CLAIM && slots.len() < due.len(),
            planned: promised.all(),
            slots,
        }
    }
}
