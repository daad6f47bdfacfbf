//! Load: as fast as a number of callers can (closed), or at a rate whatever the answers do (open).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};
use tokio::sync::Notify;

use crate::Result;
use crate::client::{Connection, Target};
use crate::clock::monotonic_ns;

/// A caller that only fails gives up after so many.
const MOST_FAILURES_IN_A_ROW: u64 = 50;
/// Makes idempotency keys distinct between runs of one process; the start time does it between processes.
static KEYS: AtomicU64 = AtomicU64::new(0);

/// A closed load.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// Callers, each with a connection of its own.
    pub callers: usize,
    /// Ends after this long.
    pub duration: Duration,
    /// Ends after so many calls.
    pub most_calls: u64,
    /// A fresh `Idempotency-Key` with every call.
    pub idempotency: bool,
}

/// What a load did.
#[derive(Debug, Default)]
pub struct Run {
    /// Answered with 200.
    pub calls: u64,
    /// Anything else.
    pub failures: u64,
    /// The first of them.
    pub first_failure: Option<String>,
    /// From the first request to the last answer, in nanoseconds.
    pub elapsed_ns: u64,
    /// Of each good call, sorted, in nanoseconds.
    pub latencies: Vec<u64>,
    /// How late each request of an open load left, sorted: the generator's own part in the latency.
    pub lateness: Vec<u64>,
}

impl Run {
    /// Good calls a second.
    pub fn rate(&self) -> f64 {
        self.calls as f64 / (self.elapsed_ns.max(1) as f64 / 1e9)
    }

    fn fail(&mut self, what: String) {
        self.failures += 1;
        self.first_failure.get_or_insert(what);
    }

    fn absorb(&mut self, other: Self) {
        self.calls += other.calls;
        self.failures += other.failures;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.latencies.extend(other.latencies);
        self.lateness.extend(other.lateness);
    }

    fn finish(&mut self, start_ns: u64) {
        self.elapsed_ns = monotonic_ns().saturating_sub(start_ns);
        self.latencies.sort_unstable();
        self.lateness.sort_unstable();
    }
}

/// A key that no call has had yet.
fn fresh_key() -> Option<HeaderValue> {
    let number = KEYS.fetch_add(1, Ordering::Relaxed);
    HeaderValue::from_str(&format!("bench-{}-{number}", std::process::id())).ok()
}

/// Calls as fast as `load.callers` can.
///
/// # Errors
/// When nothing listens.
pub async fn closed(target: &Target, load: Closed) -> Result<Run> {
    let target = Arc::new(target.clone());
    let begun = Arc::new(AtomicU64::new(0));
    let mut connections = Vec::new();
    for _ in 0..load.callers {
        connections.push(Connection::open(target.address).await?);
    }
    let start = monotonic_ns();
    let end = start + load.duration.as_nanos() as u64;
    let callers: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (target, begun) = (target.clone(), begun.clone());
            tokio::spawn(async move {
                let body = target.body(false);
                let mut run = Run::default();
                let mut failures_in_a_row = 0;
                while failures_in_a_row < MOST_FAILURES_IN_A_ROW {
                    let sent = monotonic_ns();
                    if sent >= end || begun.fetch_add(1, Ordering::Relaxed) >= load.most_calls {
                        break;
                    }
                    let key = if load.idempotency { fresh_key() } else { None };
                    match one(&mut connection, &target, &body, key).await {
                        Ok(()) => {
                            run.calls += 1;
                            failures_in_a_row = 0;
                            run.latencies.push(monotonic_ns().saturating_sub(sent));
                        }
                        Err(what) => {
                            failures_in_a_row += 1;
                            run.fail(what);
                        }
                    }
                }
                run
            })
        })
        .collect();
    let mut run = Run::default();
    for caller in callers {
        run.absorb(caller.await?);
    }
    run.finish(start);
    Ok(run)
}

async fn one(
    connection: &mut Connection,
    target: &Target,
    body: &bytes::Bytes,
    key: Option<HeaderValue>,
) -> std::result::Result<(), String> {
    match connection.call(target.request(body, key)).await {
        Ok((StatusCode::OK, _)) => Ok(()),
        Ok((status, body)) => Err(format!("{status}: {}", String::from_utf8_lossy(&body))),
        Err(error) => Err(error.to_string()),
    }
}

/// An open load.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Requests a second.
    pub rate: u32,
    /// Counted part.
    pub duration: Duration,
    /// Before it, not counted.
    pub warm_up: Duration,
    /// Connections that share the requests; a request that finds none free waits, and its wait counts.
    pub connections: usize,
}

/// Requests that are due, by the time each was meant to leave.
#[derive(Default)]
struct Due {
    times: Mutex<VecDeque<u64>>,
    more: Notify,
    over: AtomicBool,
}

impl Due {
    fn push(&self, at: u64) {
        self.times
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(at);
        self.more.notify_one();
    }

    async fn next(&self) -> Option<u64> {
        loop {
            if let Some(at) = self
                .times
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front()
            {
                return Some(at);
            }
            if self.over.load(Ordering::Acquire) {
                // The next sleeper has to see it too.
                self.more.notify_one();
                return None;
            }
            self.more.notified().await;
        }
    }
}

/// Calls at a fixed rate. Latency counts from the instant a request was meant to leave, so that a stall is
/// charged to every request that it delayed (no coordinated omission).
///
/// # Errors
/// When nothing listens.
pub async fn open(target: &Target, load: Open) -> Result<Run> {
    let target = Arc::new(target.clone());
    let due = Arc::new(Due::default());
    let counted_from = Arc::new(AtomicU64::new(u64::MAX));
    let mut callers = Vec::new();
    for _ in 0..load.connections {
        let mut connection = Connection::open(target.address).await?;
        let (target, due, counted_from) = (target.clone(), due.clone(), counted_from.clone());
        callers.push(tokio::spawn(async move {
            let body = target.body(false);
            let mut run = Run::default();
            while let Some(at) = due.next().await {
                let counted = at >= counted_from.load(Ordering::Relaxed);
                let late = monotonic_ns().saturating_sub(at);
                let result = one(&mut connection, &target, &body, None).await;
                match result {
                    Ok(()) if counted => {
                        run.calls += 1;
                        run.lateness.push(late);
                        run.latencies.push(monotonic_ns().saturating_sub(at));
                    }
                    Ok(()) => {}
                    Err(what) => run.fail(what),
                }
            }
            run
        }));
    }
    let period = 1_000_000_000 / u64::from(load.rate.max(1));
    let first = monotonic_ns() + 10_000_000;
    let start = first + load.warm_up.as_nanos() as u64;
    counted_from.store(start, Ordering::Relaxed);
    let total = (load.warm_up + load.duration).as_nanos() as u64 / period;
    let pacer = std::thread::spawn({
        let due = due.clone();
        move || pace(&due, first, period, total)
    });
    let mut run = Run::default();
    for caller in callers {
        run.absorb(caller.await?);
    }
    pacer.join().map_err(|_panic| "the pacing thread ended")??;
    run.finish(start);
    Ok(run)
}

/// Makes the requests due, on a thread of its own: the runtime's timers have a grain of one millisecond,
/// which is the whole period here.
fn pace(due: &Due, first_ns: u64, period_ns: u64, total: u64) -> Result<()> {
    for number in 0..total {
        let at = first_ns + number * period_ns;
        let (seconds, nanos) = (at / 1_000_000_000, at % 1_000_000_000);
        let until = Timespec {
            tv_sec: i64::try_from(seconds)?,
            tv_nsec: i64::try_from(nanos)?,
        };
        clock_nanosleep_absolute(ClockId::Monotonic, &until)?;
        due.push(at);
    }
    due.over.store(true, Ordering::Release);
    due.more.notify_one();
    Ok(())
}
