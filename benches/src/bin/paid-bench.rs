//! Pay per call under load, beside the floor of the same minutes: answers to unpaid requests, and paid calls.
//!
//! The gateway has one core, the provider and the load generator the other. Payments are signed before they are counted:
//! what a wallet needs for that is not the service's.

#![allow(
    clippy::float_arithmetic,
    reason = "rates and percentiles are figures, never money"
)]
#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "figures are rounded for a table anyway"
)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::{HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use turnpike_bench::client::{Connection, Target, get};
use turnpike_bench::clock::monotonic_ns;
use turnpike_bench::figures::{Table, count, median, millis, percentile};
use turnpike_bench::load::{Closed, Run, closed};
use turnpike_bench::process::{Disturbance, Running, Usage};
use turnpike_bench::service::{Service, Setup};
use turnpike_bench::{Result, machine};
use turnpike_core::x402::{PaymentRequired, wire};
use turnpike_upstream::payments::{PayerKey, Terms};

const REQUIRED: HeaderName = HeaderName::from_static("payment-required");
const SIGNATURE: HeaderName = HeaderName::from_static("payment-signature");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-svc-request-id");
/// Wallets that share the payments, so that none reaches what one may have open.
const WALLETS: u8 = 16;

#[derive(Parser)]
#[command(about = "Answers to unpaid requests and paid calls a second against the floor")]
struct Options {
    /// Seconds of each closed measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Paid calls of each measurement.
    #[arg(long, default_value_t = 10_000)]
    calls: usize,
    /// Repeats; medians are shown.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Callers.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    concurrency: Vec<usize>,
    /// Core of the gateway and of the floor.
    #[arg(long, default_value_t = 0)]
    gateway_core: usize,
    /// Core of the provider and of the load.
    #[arg(long, default_value_t = 1)]
    load_core: usize,
    /// Leaves every process on every core.
    #[arg(long)]
    unpinned: bool,
    /// The gateway's store; default: the embedded one.
    #[arg(long)]
    store_url: Option<String>,
    /// Where its data directory is made.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
}

/// Everything that runs.
struct Rig {
    floor: Target,
    service: Service,
    vendor: Target,
    mock: SocketAddr,
    paid: u64,
    _helpers: Vec<Running>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    println!(
        "{}; store on {}",
        machine::describe(),
        machine::filesystem(&options.dir)?
    );
    let mut rig = build(&options).await?;
    let mut pids = vec![std::process::id()];
    pids.extend(rig.floor.pids.iter().chain(&rig.service.target.pids));
    let disturbance = Disturbance::begin(pids)?;
    let mut table = Table::new(&[
        "",
        "callers",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "CPU µs/request",
        "RSS MB",
        "of the floor",
    ]);
    for callers in &options.concurrency {
        measure(&mut rig, &options, *callers, &mut table).await?;
    }
    table.print(&format!(
        "Pay per call, {} repeats, medians; payments simulated and signed beforehand",
        options.repeats
    ));
    println!("{}", disturbance.tell()?);
    let (_, seen) = get(rig.mock, "/count").await?;
    let seen: u64 = std::str::from_utf8(&seen)?.parse()?;
    // Fails when the books are not in order.
    let audit = rig.service.operator(&["audit"])?;
    println!("paid {}, seen by the provider {seen}; audit: {audit}", rig.paid);
    for line in rig.service.complaints().iter().take(10) {
        println!("log: {line}");
    }
    let paid = rig.paid;
    println!("asked to end: {}", rig.service.stop()?);
    if paid != seen {
        return Err("calls that were paid for and calls that the provider saw differ".into());
    }
    Ok(())
}

async fn build(options: &Options) -> Result<Rig> {
    let core = |core: usize| (!options.unpinned).then_some(core);
    let here = std::env::current_exe()?;
    let here = here.parent().ok_or("no directory")?;
    let mock = || {
        let mut command = Command::new(here.join("mock-upstream"));
        command.arg("--listen").arg("127.0.0.1:0");
        Running::listening(command, core(options.load_core))
    };
    let (floor_mock, direct) = mock()?;
    let (service_mock, upstream) = mock()?;
    let mut command = Command::new(here.join("floor-proxy"));
    command.arg("--upstream").arg(direct.to_string());
    let (floor, address) = Running::listening(command, core(options.gateway_core))?;
    let setup = Setup {
        binary: here.join("turnpike"),
        upstream,
        core: core(options.gateway_core),
        workers: 1,
        store_url: options.store_url.clone(),
        parent: options.dir.clone(),
        more: "\n[payments]\nmode = \"simulated\"\nsimulated_balance_usd = \"1000000\"\n".to_owned(),
    };
    let service = Service::start(&setup).await?;
    let pids = service.target.pids.clone();
    let vendor = Target::new("vendor", service.target.address, "/vendor/chat", &pids)?;
    if let Some(core) = core(options.load_core) {
        machine::pin(&[core])?;
    }
    Ok(Rig {
        floor: Target::new("floor", address, "/v1/chat/completions", &[floor.pid()])?,
        service,
        vendor,
        mock: upstream,
        paid: 0,
        _helpers: vec![floor_mock, service_mock, floor],
    })
}

/// Figures of one measurement.
struct Figures {
    rate: f64,
    p50: f64,
    p99: f64,
    cpu_us: f64,
}

fn figures(run: &Run, pids: &[u32], before: &Usage) -> Result<Figures> {
    let after = Usage::of(pids)?;
    if run.failures > 0 {
        return Err(format!("{} failed, first: {:?}", run.failures, run.first_failure).into());
    }
    Ok(Figures {
        rate: run.rate(),
        p50: millis(percentile(&run.latencies, 50.0)),
        p99: millis(percentile(&run.latencies, 99.0)),
        cpu_us: after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e3 / run.calls.max(1) as f64,
    })
}

/// Floor, unpaid requests and paid calls, in turns.
async fn measure(rig: &mut Rig, options: &Options, callers: usize, table: &mut Table) -> Result<()> {
    let mut all: [Vec<Figures>; 3] = Default::default();
    for _ in 0..options.repeats {
        let load = Closed {
            callers,
            duration: Duration::from_secs_f64(options.seconds),
            most_calls: u64::MAX,
            idempotency: false,
        };
        let before = Usage::of(&rig.floor.pids)?;
        let run = closed(&rig.floor, load).await?;
        all[0].push(figures(&run, &rig.floor.pids, &before)?);

        let before = Usage::of(&rig.vendor.pids)?;
        let run = unpaid(&rig.vendor, callers, load.duration).await?;
        all[1].push(figures(&run, &rig.vendor.pids, &before)?);

        let payments = signed(&rig.vendor, options.calls / if callers == 1 { 4 } else { 1 }).await?;
        let before = Usage::of(&rig.vendor.pids)?;
        let run = paid(&rig.vendor, callers, payments).await?;
        rig.paid += run.calls;
        all[2].push(figures(&run, &rig.vendor.pids, &before)?);
    }
    let mid = |figures: &[Figures], pick: fn(&Figures) -> f64| median(figures.iter().map(pick));
    let floor = mid(&all[0], |one| one.rate);
    for (name, figures) in ["floor", "402 to an unpaid request", "paid call"]
        .iter()
        .zip(&all)
    {
        let pids = if *name == "floor" {
            &rig.floor.pids
        } else {
            &rig.vendor.pids
        };
        let rate = mid(figures, |one| one.rate);
        table.row(&[
            (*name).to_owned(),
            callers.to_string(),
            count(rate),
            format!("{:.2}", mid(figures, |one| one.p50)),
            format!("{:.2}", mid(figures, |one| one.p99)),
            format!("{:.0}", mid(figures, |one| one.cpu_us)),
            format!("{:.0}", Usage::of(pids)?.rss_mb()),
            format!("{:.3}", rate / floor),
        ]);
    }
    Ok(())
}

/// Requests that are to be sent, each once.
type Waiting = Arc<Mutex<VecDeque<Request<Full<Bytes>>>>>;

/// Sends what `next` gives on `callers` connections until it gives nothing more; each must be answered `wanted`.
async fn send_all<F>(target: &Target, callers: usize, wanted: StatusCode, next: F) -> Result<Run>
where
    F: Fn() -> Option<Request<Full<Bytes>>> + Clone + Send + 'static,
{
    let mut connections = Vec::new();
    for _ in 0..callers {
        connections.push(Connection::open(target.address).await?);
    }
    let start = monotonic_ns();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let next = next.clone();
            tokio::spawn(async move {
                let mut run = Run::default();
                while let Some(request) = next() {
                    let sent = monotonic_ns();
                    match connection.call(request).await {
                        Ok((status, _)) if status == wanted => {
                            run.calls += 1;
                            run.latencies.push(monotonic_ns().saturating_sub(sent));
                        }
                        Ok((status, body)) => {
                            run.failures += 1;
                            let text = String::from_utf8_lossy(&body);
                            run.first_failure.get_or_insert(format!("{status}: {text}"));
                        }
                        Err(error) => {
                            run.failures += 1;
                            run.first_failure.get_or_insert(error.to_string());
                        }
                    }
                }
                run
            })
        })
        .collect();
    let mut whole = Run::default();
    for task in tasks {
        let run = task.await?;
        whole.calls += run.calls;
        whole.failures += run.failures;
        whole.first_failure = whole.first_failure.take().or(run.first_failure);
        whole.latencies.extend(run.latencies);
    }
    whole.elapsed_ns = monotonic_ns().saturating_sub(start);
    whole.latencies.sort_unstable();
    Ok(whole)
}

async fn unpaid(target: &Target, callers: usize, duration: Duration) -> Result<Run> {
    let end = monotonic_ns() + u64::try_from(duration.as_nanos())?;
    let (request, body) = (target.clone(), target.body(false));
    let next = move || (monotonic_ns() < end).then(|| request.request(&body, None));
    send_all(target, callers, StatusCode::PAYMENT_REQUIRED, next).await
}

async fn paid(target: &Target, callers: usize, payments: VecDeque<Request<Full<Bytes>>>) -> Result<Run> {
    let waiting: Waiting = Arc::new(Mutex::new(payments));
    let next = move || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    send_all(target, callers, StatusCode::OK, next).await
}

/// Asks for the terms of `number` calls and signs them.
async fn signed(target: &Target, number: usize) -> Result<VecDeque<Request<Full<Bytes>>>> {
    let wallets: Vec<PayerKey> = (1..=WALLETS)
        .filter_map(|wallet| PayerKey::random(&[wallet; 32]))
        .collect();
    let body = target.body(false);
    let mut connection = Connection::open(target.address).await?;
    let mut requests = VecDeque::with_capacity(number);
    for wallet in wallets.iter().cycle().take(number) {
        let response = connection.send(target.request(&body, None)).await?;
        let header = |name: &HeaderName| -> Result<HeaderValue> {
            Ok(response.headers().get(name).ok_or("a header is missing")?.clone())
        };
        let (required, id) = (header(&REQUIRED)?, header(&REQUEST_ID)?);
        response.into_body().collect().await?;
        let required: PaymentRequired = wire::from_header(required.to_str()?)?;
        let accepted = required.accepts.first().ok_or("no terms")?;
        // Random from its first byte on, as clients choose it: it decides where an index writes.
        let nonce: [u8; 32] = rand::random();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
        let terms = Terms {
            nonce,
            valid_after: 0,
            valid_before: i64::try_from(now + accepted.max_timeout_seconds)?,
        };
        let payment = wallet.pay(accepted, terms)?;
        let mut request = target.request(&body, None);
        let headers = request.headers_mut();
        headers.insert(SIGNATURE, HeaderValue::try_from(wire::to_header(&payment)?)?);
        headers.insert(REQUEST_ID, id);
        requests.push_back(request);
    }
    Ok(requests)
}
