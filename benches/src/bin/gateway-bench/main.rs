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

mod measurements;
mod options;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use clap::Parser as _;
use turnpike_bench::client::{Target, get};
use turnpike_bench::process::{Disturbance, Running};
use turnpike_bench::service::{Service, Setup};
use turnpike_bench::{Result, machine};

use self::options::{Options, peer};

const OPENAI_PATH: &str = "/v1/chat/completions";

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
    helpers: Vec<Running>,
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
        let disturbance = Disturbance::begin(rig.pids())?;
        match part.as_str() {
            "calls" => rig.calls().await?,
            "rate" => rig.fixed_rate().await?,
            "streams" => rig.streams().await?,
            "memory" => rig.memory().await?,
            other => return Err(format!("no part \"{other}\": calls, rate, streams, memory").into()),
        }
        println!("{}", disturbance.tell()?);
    }
    rig.finish().await
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
                more: String::new(),
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
            helpers: vec![direct_mock, service_mock, floor],
            options,
        };
        if let Some(core) = load_core {
            machine::pin(&[core])?;
        }
        Ok(rig)
    }

    /// Every process of this run.
    fn pids(&self) -> Vec<u32> {
        let mut pids = vec![std::process::id()];
        pids.extend(self.helpers.iter().map(Running::pid));
        pids.extend(self.targets().iter().flat_map(|target| target.pids.clone()));
        pids.sort_unstable();
        pids.dedup();
        pids
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
