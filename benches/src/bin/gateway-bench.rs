//! The gateway under load, beside the floor of the same minutes.
//!
//! The gateway has one core, the provider and the load generator the other. Direct calls, the floor and the
//! gateway take turns within each repeat, so that a machine that slows down slows all of them.

#![allow(
    clippy::float_arithmetic,
    reason = "rates and percentiles are figures, never money"
)]
#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "figures are rounded for a table anyway"
)]

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Parser;
use http::{HeaderName, HeaderValue, Uri};
use turnpike_bench::client::{Target, get};
use turnpike_bench::figures::{Table, count, median, millis, percentile};
use turnpike_bench::load::{Closed, Open, Run, closed, open};
use turnpike_bench::process::{Running, Usage};
use turnpike_bench::service::{Service, Setup};
use turnpike_bench::streams::{self, Streams};
use turnpike_bench::{Result, machine};

const OPENAI_PATH: &str = "/v1/chat/completions";
const OPEN_CONNECTIONS: usize = 64;
/// Where both idempotency settings are compared.
const BUSY: usize = 64;

#[derive(Parser, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[command(about = "Requests, latency, memory and streams of the gateway against the floor")]
struct Options {
    /// One short repeat of everything: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
    /// Seconds of each closed measurement.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Repeats; medians are shown.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Callers of the closed measurements.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    concurrency: Vec<usize>,
    /// Parts to run.
    #[arg(long, value_delimiter = ',', default_value = "calls,rate,streams,memory")]
    parts: Vec<String>,
    /// A fresh Idempotency-Key with every call of the closed measurements.
    #[arg(long)]
    idempotency: bool,
    /// Requests a second of the open measurement.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Seconds of the open measurement.
    #[arg(long, default_value_t = 20)]
    rate_seconds: u64,
    /// Streams open at once.
    #[arg(long, default_value_t = 200)]
    streams: usize,
    /// Calls before memory is read.
    #[arg(long, default_value_t = 200_000)]
    calls: u64,
    /// Core of the gateway and of the floor.
    #[arg(long, default_value_t = 0)]
    gateway_core: usize,
    /// Core of the provider and of the load.
    #[arg(long, default_value_t = 1)]
    load_core: usize,
    /// Leaves every process on every core.
    #[arg(long)]
    unpinned: bool,
    /// Worker threads of the gateway's runtime.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// The gateway's binary; default: beside this one.
    #[arg(long)]
    turnpike: Option<PathBuf>,
    /// The gateway's store; default: the embedded one.
    #[arg(long)]
    store_url: Option<String>,
    /// Where its data directory is made.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Measures the floor, and the peer if one is named, only.
    #[arg(long)]
    without_turnpike: bool,
    /// Where the provider of the peer listens, so that the peer can be configured beforehand.
    #[arg(long, default_value = "127.0.0.1:0")]
    mock_listen: SocketAddr,
    /// Another gateway that runs already: the URL of its chat completions.
    #[arg(long)]
    peer_url: Option<Uri>,
    /// Its processes.
    #[arg(long)]
    peer_pid: Vec<u32>,
    /// A header it wants, as `Name: value`.
    #[arg(long)]
    peer_header: Vec<String>,
    /// The model it is asked for.
    #[arg(long, default_value = "vendor-v4-flash")]
    peer_model: String,
}

/// Everything that runs.
struct Rig {
    options: Options,
    direct: Target,
    floor: Target,
    peer: Option<Target>,
    service: Option<Service>,
    service_mock: SocketAddr,
    /// Good calls and streams of the service so far.
    served: u64,
    failures: u64,
    _helpers: Vec<Running>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut options = Options::parse();
    if options.quick {
        options.seconds = 2.0;
        options.repeats = 1;
        options.rate_seconds = 4;
        options.calls = options.calls.min(20_000);
    }
    println!(
        "{}; store on {}",
        machine::describe(),
        machine::filesystem(&options.dir)?
    );
    let mut rig = Rig::build(options).await?;
    let parts = rig.options.parts.clone();
    for part in &parts {
        match part.as_str() {
            "calls" => rig.calls().await?,
            "rate" => rig.fixed_rate().await?,
            "streams" => rig.streams().await?,
            "memory" => rig.memory().await?,
            other => return Err(format!("no part \"{other}\": calls, rate, streams, memory").into()),
        }
    }
    rig.finish().await
}

/// Figures of one measurement.
struct Figures {
    rate: f64,
    p50: f64,
    p99: f64,
    cpu_us: f64,
}

impl Rig {
    async fn build(options: Options) -> Result<Self> {
        let (gateway_core, load_core) = if options.unpinned {
            (None, None)
        } else {
            let cores = machine::cores()?;
            for core in [options.gateway_core, options.load_core] {
                if !cores.contains(&core) {
                    return Err(
                        format!("core {core} is not among {cores:?}: name others, or --unpinned").into(),
                    );
                }
            }
            (Some(options.gateway_core), Some(options.load_core))
        };
        let here = std::env::current_exe()?
            .parent()
            .map(PathBuf::from)
            .ok_or("no directory")?;
        let mock = |listen: SocketAddr| {
            let mut command = Command::new(here.join("mock-upstream"));
            command.arg("--listen").arg(listen.to_string());
            Running::listening(command, load_core)
        };
        let (direct_mock, direct) = mock(options.mock_listen)?;
        let (service_mock, service_upstream) = mock(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let mut command = Command::new(here.join("floor-proxy"));
        command.arg("--upstream").arg(direct.to_string());
        let (floor, floor_address) = Running::listening(command, gateway_core)?;
        let service = if options.without_turnpike {
            None
        } else {
            let setup = Setup {
                binary: options.turnpike.clone().unwrap_or_else(|| here.join("turnpike")),
                upstream: service_upstream,
                core: gateway_core,
                workers: options.workers,
                store_url: options.store_url.clone(),
                parent: options.dir.clone(),
            };
            Some(Service::start(&setup).await?)
        };
        let rig = Self {
            direct: Target::new("direct", direct, OPENAI_PATH, &[])?,
            floor: Target::new("floor", floor_address, OPENAI_PATH, &[floor.pid()])?,
            peer: peer(&options)?,
            service,
            service_mock: service_upstream,
            served: 0,
            failures: 0,
            _helpers: vec![direct_mock, service_mock, floor],
            options,
        };
        if let Some(core) = load_core {
            machine::pin(&[core])?;
        }
        Ok(rig)
    }

    fn targets(&self) -> Vec<Target> {
        let service = self.service.as_ref().map(|service| service.target.clone());
        [
            Some(self.direct.clone()),
            Some(self.floor.clone()),
            self.peer.clone(),
            service,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The ones that stand between a client and the provider.
    fn gateways(&self) -> Vec<Target> {
        self.targets().split_off(1)
    }

    fn is_service(&self, target: &Target) -> bool {
        self.service
            .as_ref()
            .is_some_and(|service| service.target.address == target.address)
    }

    fn note(&mut self, target: &Target, good: u64, failures: u64, first: Option<&String>) {
        if self.is_service(target) {
            self.served += good;
            self.failures += failures;
        }
        if failures > 0 {
            println!(
                "{}: {failures} of {} failed, first: {}",
                target.name,
                good + failures,
                first.map_or("", |text| text)
            );
        }
    }

    async fn closed(&mut self, target: &Target, load: Closed) -> Result<Figures> {
        let before = Usage::of(&target.pids)?;
        let run = closed(target, load).await?;
        let after = Usage::of(&target.pids)?;
        self.note(target, run.calls, run.failures, run.first_failure.as_ref());
        Ok(figures(&run, &before, &after))
    }

    /// Closed measurements at every concurrency.
    async fn calls(&mut self) -> Result<()> {
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
    async fn fixed_rate(&mut self) -> Result<()> {
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
    async fn streams(&mut self) -> Result<()> {
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
    async fn memory(&mut self) -> Result<()> {
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

    /// The books after the load: every answered call is charged once, and nothing else is.
    async fn finish(mut self) -> Result<()> {
        let Some(service) = self.service.take() else {
            return Ok(());
        };
        let (_, seen) = get(self.service_mock, "/count").await?;
        let seen: u64 = std::str::from_utf8(&seen)?.parse()?;
        let audit = service.operator(&["audit"])?;
        println!("\n### The books\n\naudit: {audit}");
        let charged = service.charged()?;
        println!(
            "answered {}, failed {}, seen by the provider {seen}, charged {charged}; {:.0} bytes of disk a call",
            self.served,
            self.failures,
            service.disk_bytes() as f64 / self.served.max(1) as f64
        );
        for line in service.complaints().iter().take(10) {
            println!("log: {line}");
        }
        let status = service.stop()?;
        println!("asked to end: {status}");
        if charged != seen || self.failures == 0 && charged != self.served {
            return Err("calls and charges differ".into());
        }
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

/// The other gateway, when one is named.
fn peer(options: &Options) -> Result<Option<Target>> {
    let Some(url) = &options.peer_url else {
        return Ok(None);
    };
    let authority = url.authority().ok_or("the peer's URL has no host")?;
    let host = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let address = host
        .to_socket_addrs()?
        .next()
        .ok_or("the peer's host is unknown")?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut target = Target::new("peer", address, path, &options.peer_pid)?;
    target.model.clone_from(&options.peer_model);
    for header in &options.peer_header {
        let (name, value) = header.split_once(':').ok_or("a header is `Name: value`")?;
        target.headers.insert(
            name.trim().parse::<HeaderName>()?,
            HeaderValue::from_str(value.trim())?,
        );
    }
    Ok(Some(target))
}
