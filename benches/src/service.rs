//! The service under test: started as an operator would, asked with the operator's commands.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode, header};
use serde_json::Value;
use tempfile::TempDir;

use crate::client::{Target, get};
use crate::process::Running;
use crate::{Failure, Result};

/// Where the service takes chat completions.
pub const CHAT_PATH: &str = "/api/wrapped/credits/v1/chat/completions";
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// How to start it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The binary.
    pub binary: PathBuf,
    /// The provider it forwards to.
    pub upstream: SocketAddr,
    /// The core it runs on.
    pub core: Option<usize>,
    /// Worker threads of its runtime.
    pub workers: usize,
    /// The store's URL; `None` = the embedded store in the data directory.
    pub store_url: Option<String>,
    /// Where the data directory is made.
    pub parent: PathBuf,
    /// Sections of the configuration besides the usual.
    pub more: String,
}

/// A running service with one workspace, one key and plenty of credits.
#[derive(Debug)]
pub struct Service {
    running: Running,
    setup: Setup,
    directory: TempDir,
    tenant: String,
    /// To put it under load.
    pub target: Target,
}

impl Service {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start; its log is in the message.
    pub async fn start(setup: &Setup) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("turnpike-bench-")
            .tempdir_in(&setup.parent)?;
        let address = free_address()?;
        std::fs::write(
            directory.path().join("turnpike.toml"),
            configuration(setup, address)?,
        )?;
        let running = launch(setup, &directory, address).await?;
        let target = Target::new("turnpike", address, CHAT_PATH, &[running.pid()])?;
        let mut service = Self {
            running,
            setup: setup.clone(),
            directory,
            tenant: String::new(),
            target,
        };
        service.stock()?;
        Ok(service)
    }

    /// Ends the process; its data stay.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub fn pause(&mut self) -> Result<()> {
        self.running.stop().map(drop)
    }

    /// Starts it again on its data, at the same address.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn resume(&mut self) -> Result<()> {
        self.running = launch(&self.setup, &self.directory, self.target.address).await?;
        self.target.pids = vec![self.running.pid()];
        Ok(())
    }

    /// Its data directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Makes the workspace, its key and its credits.
    fn stock(&mut self) -> Result<()> {
        let tenant = self.operator(&["tenant", "create", "--name", "bench"])?;
        self.tenant = text(&tenant, "id")?;
        let key = self.operator(&[
            "key",
            "create",
            "--tenant",
            &self.tenant,
            "--name",
            "bench",
            "--kind",
            "secret",
        ])?;
        let grant = [
            "credits",
            "grant",
            "--tenant",
            &self.tenant,
            "--usd",
            "1000000",
            "--reason",
            "bench",
        ];
        self.operator(&grant)?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", text(&key, "key")?))?;
        bearer.set_sensitive(true);
        self.target.headers.insert(header::AUTHORIZATION, bearer);
        Ok(())
    }

    /// Runs an operator's command beside the service and gives what it printed.
    ///
    /// # Errors
    /// When it fails or prints no JSON.
    pub fn operator(&self, arguments: &[&str]) -> Result<Value> {
        let output = base_command(&self.setup.binary, self.directory.path())
            .arg("--json")
            .args(arguments)
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "turnpike {}: {}\n{said}{complaint}",
                arguments.join(" "),
                output.status
            )
            .into());
        }
        serde_json::from_str(&said)
            .map_err(|error| Failure::from(format!("{}: {error}: {said}", arguments.join(" "))))
    }

    /// Calls that were charged, by the export of usage.
    ///
    /// # Errors
    /// When the export fails.
    pub fn charged(&self) -> Result<u64> {
        let arguments = ["export", "usage", "--tenant", &self.tenant, "--format", "jsonl"];
        let output = base_command(&self.setup.binary, self.directory.path())
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("turnpike {}: {}", arguments.join(" "), output.status).into());
        }
        let lines = output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let mut charged = 0;
        for line in lines {
            let call: Value = serde_json::from_slice(line)?;
            charged += u64::from(call.get("state").and_then(Value::as_str) == Some("captured"));
        }
        Ok(charged)
    }

    /// Bytes of the data directory.
    pub fn disk_bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.directory.path())
            .into_iter()
            .flatten()
            .flatten();
        files
            .filter_map(|file| file.metadata().ok())
            .map(|found| found.len())
            .sum()
    }

    /// Lines of its log that tell of trouble.
    pub fn complaints(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        log.lines()
            .filter(|line| line.contains("WARN") || line.contains("ERROR"))
            .map(str::to_owned)
            .collect()
    }

    /// Asks it to end, as an operator would.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.running.stop()
    }
}

/// Starts the process and waits until it is ready.
async fn launch(setup: &Setup, directory: &TempDir, address: SocketAddr) -> Result<Running> {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(directory.path().join("log"))?;
    let mut command = base_command(&setup.binary, directory.path());
    command
        .arg("serve")
        .env("TOKIO_WORKER_THREADS", setup.workers.to_string());
    command.stdout(log.try_clone()?).stderr(log);
    let mut running = Running::start(command, setup.core)?;
    let since = Instant::now();
    while !matches!(get(address, "/readyz").await, Ok((StatusCode::OK, _))) {
        if running.ended()?.is_some() || since.elapsed() > STARTS_WITHIN {
            let log = std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
            return Err(format!("the service did not start:\n{log}").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(running)
}

fn base_command(binary: &Path, directory: &Path) -> Command {
    let mut command = Command::new(binary);
    command
        .arg("--config")
        .arg(directory.join("turnpike.toml"))
        .arg("--data")
        .arg(directory);
    command
}

fn text(value: &Value, member: &str) -> Result<String> {
    let found = value.get(member).and_then(Value::as_str);
    found
        .map(str::to_owned)
        .ok_or_else(|| format!("no \"{member}\" in {value}").into())
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn configuration(setup: &Setup, address: SocketAddr) -> Result<String> {
    let store = setup.store_url.as_deref().unwrap_or("sqlite://turnpike.db");
    let mut text = String::new();
    write!(
        text,
        r#"[server]
listen = "{address}"

[store]
url = "{store}"

[limits]
calls_per_minute = 0
reads_per_minute = 0
mutations_per_minute = 0

[[providers]]
id = "mock"
kind = "openai"
base_url = "http://{upstream}/v1"
prices_from = "sim"
models = ["vendor-v4-flash"]
{more}"#,
        upstream = setup.upstream,
        more = setup.more,
    )?;
    Ok(text)
}
