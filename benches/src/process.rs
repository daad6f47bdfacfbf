//! Processes that a benchmark starts: pinned, measured from `/proc`, and ended by their own id.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Failure, Result, machine};

/// How long a process may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Processor time and memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time so far, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident now, in KiB.
    pub rss_kib: u64,
    /// Most that was ever resident, in KiB.
    pub peak_kib: u64,
}

impl Usage {
    /// Figures of several processes together.
    ///
    /// # Errors
    /// When one of them is gone.
    pub fn of(pids: &[u32]) -> Result<Self> {
        let mut sum = Self::default();
        for pid in pids {
            let one = Self::of_one(*pid)?;
            sum.cpu_ns += one.cpu_ns;
            sum.rss_kib += one.rss_kib;
            sum.peak_kib += one.peak_kib;
        }
        Ok(sum)
    }

    fn of_one(pid: u32) -> Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name is in parentheses and may hold anything; utime and stime are fields 14 and 15.
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks = |index: usize| {
            fields
                .get(index)
                .and_then(|field| field.parse::<u64>().ok())
                .unwrap_or_default()
        };
        let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let kib = |name: &str| {
            let line = status
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default();
            line.split_whitespace()
                .nth(1)
                .and_then(|value| value.parse().ok())
                .unwrap_or_default()
        };
        Ok(Self {
            cpu_ns: (ticks(11) + ticks(12)) * ns_per_tick,
            rss_kib: kib("VmRSS:"),
            peak_kib: kib("VmHWM:"),
        })
    }

    /// Resident now, in MB.
    pub fn rss_mb(&self) -> f64 {
        self.rss_kib as f64 * 1024.0 / 1e6
    }

    /// Most that was ever resident, in MB.
    pub fn peak_mb(&self) -> f64 {
        self.peak_kib as f64 * 1024.0 / 1e6
    }
}

/// How much the rest of the machine did meanwhile: figures of a machine that is not idle mean little.
#[derive(Debug)]
pub struct Disturbance {
    ours: Vec<u32>,
    since: Instant,
    others_ns: u64,
}

impl Disturbance {
    /// Counts everything but `ours` from now on.
    ///
    /// # Errors
    /// When one of them is gone.
    pub fn begin(ours: Vec<u32>) -> Result<Self> {
        let others_ns = Self::others(&ours)?;
        Ok(Self {
            ours,
            since: Instant::now(),
            others_ns,
        })
    }

    fn others(ours: &[u32]) -> Result<u64> {
        Ok(machine::busy_ns()?.saturating_sub(Usage::of(ours)?.cpu_ns))
    }

    /// What it was, in a sentence.
    ///
    /// # Errors
    /// When one of ours is gone.
    pub fn tell(&self) -> Result<String> {
        let others = Self::others(&self.ours)?.saturating_sub(self.others_ns);
        let share = others as f64 / self.since.elapsed().as_nanos() as f64 * 100.0;
        Ok(format!(
            "everything else on the machine took {share:.0} % of one core"
        ))
    }
}

/// A process that ends with its handle.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: String,
}

impl Running {
    /// Starts `command`, on `core` when one is given.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command, core: Option<usize>) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let before = machine::cores()?;
        // A child inherits the affinity of the thread that starts it.
        if let Some(core) = core {
            machine::pin(&[core])?;
        }
        let child = command.stdin(Stdio::null()).spawn();
        machine::pin(&before)?;
        let child = child.map_err(|error| Failure::from(format!("{name}: {error}")))?;
        Ok(Self { child, name })
    }

    /// Starts a helper of this crate that says `listening on ADDRESS` first.
    ///
    /// # Errors
    /// When it cannot be started or says something else.
    pub fn listening(mut command: Command, core: Option<usize>) -> Result<(Self, std::net::SocketAddr)> {
        command.stdout(Stdio::piped());
        let mut running = Self::start(command, core)?;
        let output = running.child.stdout.take().ok_or("no output to read")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .and_then(|address| address.parse().ok());
        let address = address.ok_or_else(|| format!("{} does not listen: {line:?}", running.name))?;
        Ok((running, address))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Asks it to end and waits; kills it when it does not.
    ///
    /// # Errors
    /// When the kernel does not say how it ended.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(PAUSE);
        }
        eprintln!("{} does not end and is killed", self.name);
        self.child.kill()?;
        Ok(self.child.wait()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{}: {error}", self.name);
        }
    }
}
