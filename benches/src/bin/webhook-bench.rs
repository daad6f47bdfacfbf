//! Webhooks under load: deliveries a second from a full outbox, and what a hanging endpoint costs the others.
//!
//! One service, one receiver with a port for each endpoint, on the same cores.

#![allow(
    clippy::float_arithmetic,
    reason = "rates and percentiles are figures, never money"
)]
#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "figures are rounded for a table anyway"
)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use turnpike_bench::client::Connection;
use turnpike_bench::clock::monotonic_ns;
use turnpike_bench::figures::{Table, count, median, millis, percentile};
use turnpike_bench::process::{Disturbance, Running, Usage};
use turnpike_bench::service::{Service, Setup};
use turnpike_bench::webhooks::{Receiver, Workspace, make_events};
use turnpike_bench::{Result, machine};
use turnpike_store::{PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store};

/// The endpoint that hangs.
const HANGING: usize = 0;
/// Nothing arrives for so long: the run has failed.
const STALLED: Duration = Duration::from_secs(30);
/// At the fixed rate: before the counted part, and after it for what is under way.
const SETTLE: Duration = Duration::from_secs(2);
/// What a call tells of: its charge and the balance.
const EVENTS_PER_CALL: usize = 2;

#[derive(Parser)]
#[command(about = "Webhook deliveries a second, and what an endpoint that hangs costs the others")]
struct Options {
    /// Endpoints, each with a port of its own.
    #[arg(long, default_value_t = 100)]
    endpoints: usize,
    /// Workspaces that share the endpoints.
    #[arg(long, default_value_t = 10)]
    workspaces: usize,
    /// Events of each workspace in the full outbox, an even number.
    #[arg(long, default_value_t = 1000)]
    events: usize,
    /// All endpoints belong to one workspace.
    #[arg(long)]
    one_workspace: bool,
    /// Parts to run.
    #[arg(long, value_delimiter = ',', default_value = "throughput,isolation")]
    parts: Vec<String>,
    /// Deliveries a second of the isolation part.
    #[arg(long, default_value_t = 400)]
    rate: usize,
    /// Seconds of each counted part.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Pairs of parts, without and with the hanging endpoint.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Worker threads of the service's runtime.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// The service's binary; default: beside this one.
    #[arg(long)]
    turnpike: Option<PathBuf>,
    /// A scratch database of PostgreSQL, with nothing in it; default: the embedded store.
    #[arg(long)]
    store_url: Option<String>,
    /// Where the data directory is made.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// A tenth of everything: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
}

struct Rig {
    options: Options,
    service: Service,
    receiver: Receiver,
    workspaces: Vec<Workspace>,
    mock: Running,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut options = Options::parse();
    if options.one_workspace {
        options.workspaces = 1;
    }
    if options.quick {
        options.events = options.events.div_ceil(10);
        options.seconds = options.seconds.div_ceil(5);
        options.repeats = 1;
    }
    println!(
        "{}; {}",
        machine::describe(),
        match &options.store_url {
            Some(_) => "PostgreSQL".to_owned(),
            None => format!("SQLite on {}", machine::filesystem(&options.dir)?),
        }
    );
    let mut rig = Rig::build(options).await?;
    for part in rig.options.parts.clone() {
        let disturbance = Disturbance::begin(vec![std::process::id(), rig.mock.pid()])?;
        match part.as_str() {
            "throughput" => rig.throughput().await?,
            "isolation" => rig.isolation().await?,
            other => return Err(format!("no part \"{other}\": throughput, isolation").into()),
        }
        println!("the service included, {}", disturbance.tell()?);
    }
    rig.finish()
}

impl Rig {
    async fn build(options: Options) -> Result<Self> {
        let here = std::env::current_exe()?
            .parent()
            .map(PathBuf::from)
            .ok_or("no directory")?;
        let (mock, upstream) = Running::listening(Command::new(here.join("mock-upstream")), None)?;
        let service = Service::start(&Setup {
            binary: options.turnpike.clone().unwrap_or_else(|| here.join("turnpike")),
            upstream,
            core: None,
            workers: options.workers,
            store_url: options.store_url.clone(),
            parent: options.dir.clone(),
            more: "[webhooks]\nallow_loopback = true\n".to_owned(),
        })
        .await?;
        let receiver = Receiver::start(options.endpoints).await?;
        let mut workspaces = Vec::new();
        for addresses in receiver
            .addresses
            .chunks(options.endpoints.div_ceil(options.workspaces))
        {
            workspaces.push(Workspace::create(&service, addresses).await?);
        }
        Ok(Self {
            options,
            service,
            receiver,
            workspaces,
            mock,
        })
    }

    async fn store(&self) -> Result<Arc<dyn Store>> {
        Ok(match &self.options.store_url {
            Some(url) => Arc::new(PostgresStore::connect(PostgresOptions::new(url)).await?),
            None => Arc::new(SqliteStore::open(&SqliteOptions::new(
                self.service.directory().join("turnpike.db"),
            ))?),
        })
    }

    /// The outbox is filled while the service is down, and emptied as fast as it can.
    async fn throughput(&mut self) -> Result<()> {
        self.service.pause()?;
        let store = self.store().await?;
        make_events(store.clone(), &self.workspaces, self.options.events).await?;
        store.close().await;
        drop(store);
        self.receiver.take();
        let due = self.options.events * self.options.endpoints;
        self.service.resume().await?;
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            let (arrived, _) = self.receiver.counts();
            if arrived >= due {
                break;
            }
            if arrived > last {
                (last, moved) = (arrived, Instant::now());
            }
            if moved.elapsed() > STALLED {
                return Err(format!("{arrived} of {due} deliveries arrived, and no more").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let usage = Usage::of(&self.service.target.pids)?;
        let receipts = self.receiver.take();
        let first = receipts
            .iter()
            .map(|receipt| receipt.at_ns)
            .min()
            .unwrap_or_default();
        let end = receipts
            .iter()
            .map(|receipt| receipt.at_ns)
            .max()
            .unwrap_or_default();
        let elapsed = end.saturating_sub(first).max(1) as f64 / 1e9;
        let mut table = Table::new(&[
            "workspaces",
            "endpoints",
            "events",
            "deliveries",
            "deliveries/s",
            "CPU µs/delivery",
            "RSS MB",
            "peak MB",
        ]);
        table.row(&[
            self.workspaces.len().to_string(),
            self.options.endpoints.to_string(),
            count((self.options.events * self.workspaces.len()) as f64),
            count(due as f64),
            count(due as f64 / elapsed),
            format!("{:.0}", usage.cpu_ns as f64 / 1e3 / due as f64),
            format!("{:.0}", usage.rss_mb()),
            format!("{:.0}", usage.peak_mb()),
        ]);
        table.print("A full outbox");
        Ok(())
    }

    /// The same rate without and with an endpoint that hangs, in turns.
    async fn isolation(&mut self) -> Result<()> {
        let mut table = Table::new(&[
            "repeat",
            "hanging",
            "deliveries/s",
            "p50 ms",
            "p99 ms",
            "worst ms",
        ]);
        let (mut ratios, mut medians) = (Vec::new(), [Vec::new(), Vec::new()]);
        for repeat in 1..=self.options.repeats {
            let mut tails = [0.0, 0.0];
            for (hanging, tail) in [None, Some(HANGING)].into_iter().zip(&mut tails) {
                self.receiver.hang(hanging);
                let delays = self.at_rate().await?;
                *tail = millis(percentile(&delays, 99.0));
                table.row(&[
                    repeat.to_string(),
                    hanging.map_or("none", |_| "one").to_owned(),
                    count(delays.len() as f64 / self.options.seconds as f64),
                    format!("{:.0}", millis(percentile(&delays, 50.0))),
                    format!("{tail:.0}"),
                    format!("{:.0}", millis(percentile(&delays, 100.0))),
                ]);
                if let Some(of) = medians.get_mut(usize::from(hanging.is_some())) {
                    of.push(*tail);
                }
            }
            let [without, with] = tails;
            ratios.push(with / without);
        }
        self.receiver.hang(None);
        table.print("Delay of the other endpoints, from the event to its arrival");
        let [without, with] = medians.map(median);
        println!(
            "p99, medians: {without:.0} ms without, {with:.0} ms with; ratio of these {:.2}, median of the ratios {:.2}",
            with / without,
            median(ratios)
        );
        let usage = Usage::of(&self.service.target.pids)?;
        println!(
            "memory of the service: {:.0} MB, peak {:.0} MB",
            usage.rss_mb(),
            usage.peak_mb()
        );
        Ok(())
    }

    /// Delays of the endpoints that answer, sorted.
    async fn at_rate(&self) -> Result<Vec<u64>> {
        let each = self.options.endpoints.div_ceil(self.workspaces.len()) * EVENTS_PER_CALL;
        let period = Duration::from_secs_f64(each as f64 / self.options.rate.max(1) as f64);
        let mut connections = Vec::new();
        for workspace in &self.workspaces {
            connections.push((Connection::open(workspace.target.address).await?, workspace));
        }
        let calls = |during: Duration| during.as_nanos().div_ceil(period.as_nanos().max(1));
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
        let mut start = 0;
        for during in [SETTLE, Duration::from_secs(self.options.seconds)] {
            start = monotonic_ns();
            for number in 0..calls(during) {
                ticks.tick().await;
                let index = usize::try_from(number).unwrap_or_default() % connections.len();
                let Some((connection, workspace)) = connections.get_mut(index) else {
                    continue;
                };
                let body = workspace.target.body(false);
                let (status, said) = connection.call(workspace.target.request(&body, None)).await?;
                if !status.is_success() {
                    return Err(format!("a call failed: {status} {}", String::from_utf8_lossy(&said)).into());
                }
            }
        }
        tokio::time::sleep(SETTLE).await;
        let receipts = self.receiver.take();
        let mut delays: Vec<u64> = receipts
            .iter()
            .filter(|receipt| receipt.endpoint != HANGING)
            // Only of the events of the counted part.
            .filter(|receipt| receipt.at_ns.saturating_sub(receipt.delay_ns) >= start)
            .map(|receipt| receipt.delay_ns)
            .collect();
        delays.sort_unstable();
        Ok(delays)
    }

    fn finish(self) -> Result<()> {
        let (_, repeats) = self.receiver.counts();
        let audit = self.service.operator(&["audit"])?;
        let clean = audit.get("clean").and_then(serde_json::Value::as_bool) == Some(true);
        println!("audit clean: {clean}; {repeats} deliveries came more than once");
        for line in self.service.complaints().iter().take(10) {
            println!("log: {line}");
        }
        println!("asked to end: {}", self.service.stop()?);
        if clean {
            Ok(())
        } else {
            Err("the books are wrong".into())
        }
    }
}
