//! Durable pairs of hold and capture a second, beside what the disk under them can do.

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
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use turnpike_bench::figures::{Table, count, millis, percentile};
use turnpike_bench::ledger::{Books, Pairs};
use turnpike_bench::process::Disturbance;
use turnpike_bench::{Result, disk, machine};
use turnpike_store::{PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store};

/// Accounts that share the load when it is spread.
const ACCOUNTS: usize = 10_000;
/// Workspaces they are in when the load is spread over buckets too.
const WORKSPACES: usize = 16;
/// Callers where only one number of them is measured.
const BUSY: usize = 64;

#[derive(Parser)]
#[command(about = "Durable hold and capture pairs a second on each store")]
struct Options {
    /// Where the databases are made; the disk under it is what is measured.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Callers.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    callers: Vec<usize>,
    /// A scratch database of PostgreSQL; tables are left behind in it.
    #[arg(long, env = "TURNPIKE_TEST_POSTGRES_URL")]
    postgres: Option<String>,
    /// One short round: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
}

struct Round {
    duration: Duration,
    callers: Vec<usize>,
    probe: disk::Syncs,
    table: Table,
}

/// One line of the comparison: which books, and how they are used.
struct Case {
    name: String,
    store: Arc<dyn Store>,
    workspaces: usize,
    /// Zero: the workspaces' pools pay.
    end_users: usize,
    /// Whether the call is marked as dispatched in between.
    mark: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let directory = tempfile::Builder::new()
        .prefix("turnpike-ledger-bench-")
        .tempdir_in(&options.dir)?;
    println!(
        "{}; {}",
        machine::describe(),
        machine::filesystem(directory.path())?
    );
    let duration = Duration::from_secs_f64(if options.quick { 0.5 } else { options.seconds });
    let probe = disk::measure(directory.path(), duration)?;
    println!(
        "4 KiB fdatasync: {}/s appending, {}/s overwriting (one writer)",
        count(probe.append),
        count(probe.overwrite)
    );
    let head = [
        "store",
        "accounts",
        "callers",
        "pairs/s",
        "p50 ms",
        "p99 ms",
        "of the disk's appends",
    ];
    let callers = if options.quick {
        vec![1, 64]
    } else {
        options.callers.clone()
    };
    let mut round = Round {
        duration,
        callers,
        probe,
        table: Table::new(&head),
    };

    let batch = SqliteOptions::new("").max_batch;
    let mut files = 0;
    let mut sqlite = |max_batch: usize| -> Result<Arc<dyn Store>> {
        files += 1;
        let path = directory.path().join(format!("ledger-{files}.db"));
        Ok(Arc::new(SqliteStore::open(&SqliteOptions {
            max_batch,
            ..SqliteOptions::new(path)
        })?))
    };
    round.compare("SQLite", || sqlite(batch)).await?;
    let single = Case::new("SQLite, a transaction each", sqlite(1)?, 1, 0, false);
    round.measure(single, Some(BUSY)).await?;

    if let Some(url) = &options.postgres {
        let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(PostgresOptions::new(url)).await?);
        round.compare("PostgreSQL", || Ok(store.clone())).await?;
        store.close().await;
    } else {
        println!("PostgreSQL is left out: give --postgres URL or TURNPIKE_TEST_POSTGRES_URL");
    }

    round.table.print("Durable hold + capture pairs");
    Ok(())
}

impl Case {
    fn new(name: &str, store: Arc<dyn Store>, workspaces: usize, end_users: usize, mark: bool) -> Self {
        Self {
            name: name.to_owned(),
            store,
            workspaces,
            end_users,
            mark,
        }
    }

    fn accounts(&self) -> String {
        match (self.end_users, self.workspaces) {
            (0, 1) => "one".to_owned(),
            (0, pools) => format!("{pools} pools"),
            (users, 1) => count(users as f64),
            (users, workspaces) => format!("{} in {workspaces} workspaces", count(users as f64)),
        }
    }
}

impl Round {
    /// The same cases on any store.
    async fn compare(&mut self, name: &str, mut store: impl FnMut() -> Result<Arc<dyn Store>>) -> Result<()> {
        self.measure(Case::new(name, store()?, 1, 0, false), None).await?;
        self.measure(Case::new(name, store()?, 1, ACCOUNTS, false), None)
            .await?;
        self.measure(Case::new(name, store()?, WORKSPACES, ACCOUNTS, false), Some(BUSY))
            .await?;
        let marked = format!("{name}, with the dispatch marker");
        self.measure(Case::new(&marked, store()?, 1, 0, true), Some(BUSY))
            .await
    }

    /// One case with `only` so many callers, or with all numbers of them.
    async fn measure(&mut self, case: Case, only: Option<usize>) -> Result<()> {
        let disturbance = Disturbance::begin(vec![std::process::id()])?;
        let books = Books::open(case.store.clone(), case.workspaces, case.end_users).await?;
        let load = |callers, duration| Pairs {
            callers,
            duration,
            accounts: books.payers(),
            mark: case.mark,
        };
        let mut pairs = books.run(load(BUSY, self.duration / 4)).await?.pairs;
        for callers in only.map_or_else(|| self.callers.clone(), |callers| vec![callers]) {
            let run = books.run(load(callers, self.duration)).await?;
            pairs += run.pairs;
            self.table.row(&[
                case.name.clone(),
                case.accounts(),
                callers.to_string(),
                count(run.rate()),
                format!("{:.2}", millis(percentile(&run.latencies, 50.0))),
                format!("{:.2}", millis(percentile(&run.latencies, 99.0))),
                format!("{:.1} ×", run.rate() / self.probe.append),
            ]);
        }
        let (transfers, mut findings) = books.audit().await?;
        let expected = pairs + books.payers() as u64;
        if transfers != expected {
            findings.push(format!(
                "{transfers} transfers, {expected} expected: a grant per account and a charge per pair"
            ));
        }
        let (accounts, disturbance) = (case.accounts(), disturbance.tell()?);
        println!(
            "{}, {accounts}: {pairs} pairs, {} findings; {disturbance}",
            case.name,
            findings.len()
        );
        if !case.store.is_shared() {
            case.store.close().await;
        }
        if findings.is_empty() {
            Ok(())
        } else {
            Err(findings.join("\n").into())
        }
    }
}
