//! The process under test and its commands.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Client;

static STARTS: AtomicUsize = AtomicUsize::new(0);

/// A command of the binary in a clean environment.
pub fn turnpike(config: &Path, data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnpike"));
    command
        .arg("--config")
        .arg(config)
        .arg("--data")
        .arg(data)
        .env_remove("TURNPIKE_FAILPOINT")
        .stdin(Stdio::null());
    command
}

/// Runs an operator's command with `--json` and gives its exit status and value.
pub fn operate(config: &Path, data: &Path, args: &[&str]) -> (ExitStatus, Value, String) {
    let output = turnpike(config, data).args(args).arg("--json").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let value = serde_json::from_str(&text).unwrap_or(Value::Null);
    (output.status, value, complaint)
}

/// A running `turnpike serve`.
#[derive(Debug)]
pub struct Service {
    child: Child,
    /// Where it logs to.
    pub log: PathBuf,
    /// Where it listens.
    pub address: String,
}

impl Service {
    /// Starts one and waits until it listens.
    pub async fn start(config: &Path, data: &Path, env: &[(String, String)]) -> Self {
        Self::start_as(config, data, env, "all").await
    }

    /// Starts one that has this role only.
    pub async fn start_as(config: &Path, data: &Path, env: &[(String, String)], role: &str) -> Self {
        match Self::try_start_as(config, data, env, role).await {
            Ok(service) => service,
            Err((status, log)) => panic!("the service did not start: {status}\n{log}"),
        }
    }

    /// Starts one; when it ends before it listens, gives its status and what it said.
    pub async fn try_start(
        config: &Path,
        data: &Path,
        env: &[(String, String)],
    ) -> Result<Self, (ExitStatus, String)> {
        Self::try_start_as(config, data, env, "all").await
    }

    async fn try_start_as(
        config: &Path,
        data: &Path,
        env: &[(String, String)],
        role: &str,
    ) -> Result<Self, (ExitStatus, String)> {
        let number = STARTS.fetch_add(1, Ordering::SeqCst);
        let log = data.join(format!("log-{number}"));
        let mut child = turnpike(config, data)
            .args(["serve", "--role", role])
            .envs(env.iter().cloned())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if let Some(address) = listening(&text) {
                return Ok(Self { child, log, address });
            }
            if let Some(status) = child.try_wait().unwrap() {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                return Err((status, text));
            }
            assert!(
                std::time::Instant::now() < deadline,
                "the service does not listen:\n{text}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A client of its own.
    pub fn client(&self) -> Client {
        Client::new(&self.address)
    }

    /// Everything it has logged.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Its status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub async fn wait(&mut self, longest: Duration) -> ExitStatus {
        let deadline = std::time::Instant::now() + longest;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(
                std::time::Instant::now() < deadline,
                "the service does not end:\n{}",
                self.logged()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The address in the line that says the service runs.
fn listening(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains("turnpike is running"))?;
    let (_, rest) = line.split_once("listen=")?;
    let address = rest.trim_start_matches('"');
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    Some(address[..end].to_owned())
}
