//! The clocks. All are the kernel's, so that they mean the same in every process of one machine.

use rustix::time::{ClockId, clock_gettime};

const NANOS_PER_SEC: u64 = 1_000_000_000;

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or_default() * NANOS_PER_SEC
        + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// Nanoseconds of `CLOCK_MONOTONIC`: comparable between processes, never stepped.
pub fn monotonic_ns() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Nanoseconds that this thread was running: without those in which other programs were.
pub fn thread_cpu_ns() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Milliseconds since 1970.
pub fn unix_millis() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}
