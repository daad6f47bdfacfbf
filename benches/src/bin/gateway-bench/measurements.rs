//! The measurements: calls, a fixed rate, streams, memory.

use std::time::Duration;

use turnpike_bench::Result;
use turnpike_bench::client::Target;
use turnpike_bench::figures::{Table, count, median, millis, percentile};
use turnpike_bench::load::{Closed, Open, Run, closed, open};
use turnpike_bench::process::Usage;
use turnpike_bench::streams::{self, Streams};

use crate::Rig;

const OPEN_CONNECTIONS: usize = 64;
/// Callers where both idempotency settings are compared, and while memory is filled.
const BUSY: usize = 64;

/// Figures of one measurement.
struct Figures {
    rate: f64,
    p50: f64,
    p99: f64,
    cpu_us: f64,
}

impl Rig {
    async fn closed(&mut self, target: &Target, load: Closed) -> Result<Figures> {
        let before = Usage::of(&target.pids)?;
        let run = closed(target, load).await?;
        let after = Usage::of(&target.pids)?;
        self.note(target, run.calls, run.failures, run.first_failure.as_ref());
        Ok(figures(&run, &before, &after))
    }

    /// Closed measurements at every concurrency.
    pub(crate) async fn calls(&mut self) -> Result<()> {
        let head = [
            "",
            "callers",
            "requests/s",
            "p50 ms",
            "p99 ms",
            "CPU µs/request",
            "RSS MB",
            "peak MB",
            "of the floor",
        ];
        let mut table = Table::new(&head);
        let base = Closed {
            callers: 1,
            duration: Duration::from_secs_f64(self.options.seconds),
            most_calls: u64::MAX,
            idempotency: self.options.idempotency,
        };
        for callers in self.options.concurrency.clone() {
            let mut variants: Vec<_> = self.targets().into_iter().map(|target| (target, base)).collect();
            if let (BUSY, false, Some(service)) = (callers, base.idempotency, &self.service) {
                let name = format!("{}, idempotency keys", service.target.name);
                let load = Closed {
                    idempotency: true,
                    ..base
                };
                variants.push((
                    Target {
                        name,
                        ..service.target.clone()
                    },
                    load,
                ));
            }
            let mut all: Vec<Vec<Figures>> = variants.iter().map(|_| Vec::new()).collect();
            for repeat in 0..self.options.repeats {
                for ((target, load), figures) in variants.iter().zip(&mut all) {
                    let load = Closed { callers, ..*load };
                    if repeat == 0 {
                        self.closed(
                            target,
                            Closed {
                                duration: load.duration / 8,
                                ..load
                            },
                        )
                        .await?;
                    }
                    figures.push(self.closed(target, load).await?);
                }
            }
            let mid = |figures: &[Figures], pick: fn(&Figures) -> f64| median(figures.iter().map(pick));
            let floor = all
                .get(1)
                .map_or(f64::NAN, |figures| mid(figures, |one| one.rate));
            for ((target, _), figures) in variants.iter().zip(&all) {
                let rate = mid(figures, |one| one.rate);
                let mut cells = vec![
                    target.name.clone(),
                    callers.to_string(),
                    count(rate),
                    format!("{:.2}", mid(figures, |one| one.p50)),
                    format!("{:.2}", mid(figures, |one| one.p99)),
                ];
                let usage = Usage::of(&target.pids)?;
                if target.pids.is_empty() {
                    cells.extend(["", "", ""].map(str::to_owned));
                } else {
                    cells.push(format!("{:.0}", mid(figures, |one| one.cpu_us)));
                    cells.extend([usage.rss_mb(), usage.peak_mb()].map(|mb| format!("{mb:.0}")));
                }
                cells.push(format!("{:.3}", rate / floor));
                table.row(&cells);
            }
        }
        table.print(&format!(
            "Calls, {} repeats of {} s, medians",
            self.options.repeats, self.options.seconds
        ));
        Ok(())
    }

    /// An open load at a fixed rate.
    pub(crate) async fn fixed_rate(&mut self) -> Result<()> {
        let mut table = Table::new(&[
            "",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "worst ms",
            "answered",
            "CPU %",
            "late p99 ms",
        ]);
        let load = Open {
            rate: self.options.rate,
            duration: Duration::from_secs(self.options.rate_seconds),
            warm_up: Duration::from_secs(1),
            connections: OPEN_CONNECTIONS,
        };
        for target in self.targets() {
            let before = Usage::of(&target.pids)?;
            let run = open(&target, load).await?;
            let after = Usage::of(&target.pids)?;
            let warm_up = u64::from(self.options.rate) * load.warm_up.as_secs();
            self.note(
                &target,
                run.calls + warm_up,
                run.failures,
                run.first_failure.as_ref(),
            );
            let at = |p| format!("{:.2}", millis(percentile(&run.latencies, p)));
            let wall = (load.duration + load.warm_up).as_nanos() as f64;
            table.row(&[
                target.name.clone(),
                at(50.0),
                at(99.0),
                at(99.9),
                at(100.0),
                count(run.calls as f64),
                format!(
                    "{:.0}",
                    after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / wall * 100.0
                ),
                format!("{:.2}", millis(percentile(&run.lateness, 99.0))),
            ]);
        }
        table.print(&format!(
            "{} requests/s for {} s, open loop, latency from the intended send time",
            self.options.rate, self.options.rate_seconds
        ));
        Ok(())
    }

    /// Many streams: spread out, and all begun at once.
    pub(crate) async fn streams(&mut self) -> Result<()> {
        let head = [
            "",
            "begun",
            "first byte added: p50 ms",
            "p99 ms",
            "first chunk forwarded: p50 ms",
            "p99 ms",
            "later chunks: p50 ms",
            "p99 ms",
            "streams",
            "CPU µs/chunk",
        ];
        let mut table = Table::new(&head);
        let seconds = if self.options.quick { 2 } else { 8 };
        let spread = Streams {
            open: self.options.streams,
            duration: Duration::from_secs(seconds),
            spread: Duration::from_secs(1),
        };
        let burst = Streams {
            duration: Duration::ZERO,
            spread: Duration::ZERO,
            ..spread
        };
        for (how, load) in [("over 1 s", spread), ("at once", burst)] {
            for target in self.targets() {
                let before = Usage::of(&target.pids)?;
                let run = streams::run(&target, load).await?;
                let after = Usage::of(&target.pids)?;
                self.note(&target, run.streams, run.failures, run.first_failure.as_ref());
                let cpu_us = after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e3;
                let chunks = run.first_chunk.len() + run.later_chunks.len();
                let mut cells = vec![target.name.clone(), how.to_owned()];
                for samples in [&run.added_first_byte, &run.first_chunk, &run.later_chunks] {
                    cells.extend([50.0, 99.0].map(|p| format!("{:.2}", millis(percentile(samples, p)))));
                }
                cells.push(count(run.streams as f64));
                cells.push(if target.pids.is_empty() {
                    String::new()
                } else {
                    format!("{:.1}", cpu_us / chunks as f64)
                });
                table.row(&cells);
            }
        }
        table.print(&format!(
            "{} streams open at once, 50 chunks 20 ms apart",
            self.options.streams
        ));
        Ok(())
    }

    /// Memory after many calls.
    pub(crate) async fn memory(&mut self) -> Result<()> {
        let mut table = Table::new(&["", "calls", "RSS MB", "peak MB"]);
        for target in self.gateways() {
            let missing = if self.is_service(&target) {
                self.options.calls.saturating_sub(self.served)
            } else {
                self.options.calls
            };
            let load = Closed {
                callers: BUSY,
                duration: Duration::from_mins(5),
                most_calls: missing,
                idempotency: self.options.idempotency,
            };
            if missing > 0 {
                self.closed(&target, load).await?;
            }
            let made = if self.is_service(&target) {
                self.served
            } else {
                self.options.calls
            };
            let usage = Usage::of(&target.pids)?;
            let mut cells = vec![target.name.clone(), count(made as f64)];
            cells.extend([usage.rss_mb(), usage.peak_mb()].map(|mb| format!("{mb:.1}")));
            table.row(&cells);
        }
        table.print("Memory");
        Ok(())
    }
}

fn figures(run: &Run, before: &Usage, after: &Usage) -> Figures {
    Figures {
        rate: run.rate(),
        p50: millis(percentile(&run.latencies, 50.0)),
        p99: millis(percentile(&run.latencies, 99.0)),
        cpu_us: after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e3 / run.calls.max(1) as f64,
    }
}
