//! What every test stands on: a running gateway, its store, its provider, a client, and the audit at the end.

pub mod browser;
pub mod chain;
mod client;
mod config;
mod database;
pub mod facilitator;
pub mod hooks;
pub mod issuer;
pub mod payments;
pub mod payouts;
pub mod people;
mod raw;
mod service;
mod site;
pub mod stall;
#[path = "../../../../upstream/tests/stripe_stand_in/mod.rs"]
pub mod stripe;
pub mod upstream;
pub mod wallet;

use std::time::Duration;

pub use client::{Client, Reply, Sender};
pub use config::Setup;
pub use database::Database;
pub use raw::{raw_exchange, raw_open, read_reply};
pub use service::{Service, operate, turnpike};
pub use site::{CHAT, Site, TOOL, chat, chat_stream, micros_of_credits, receipt};
pub use upstream::{Gate, Seen, Step, Upstream};

/// The stores that every test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A file in the data directory.
    Sqlite,
    /// A database of its own in the cluster of `TURNPIKE_TEST_POSTGRES_URL`.
    Postgres,
}

/// Makes `sqlite::name` and `postgres::name` of every test function `name(store)`.
#[macro_export]
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                $crate::harness::run(super::$name($crate::harness::Store::Sqlite));
            })+
        }
        mod postgres {
            $(#[test]
            fn $name() {
                $crate::harness::run(super::$name($crate::harness::Store::Postgres));
            })+
        }
    };
}

/// How often the process is killed in the random loop.
pub fn kills() -> u64 {
    std::env::var("TURNPIKE_KILLS").map_or(5, |text| text.parse().expect("TURNPIKE_KILLS is a number"))
}

/// No test may take longer than this.
fn patience() -> Duration {
    Duration::from_secs(100 + 5 * kills())
}

/// Runs a test to its end.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(patience(), Box::pin(test))
            .await
            .expect("the test took too long");
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
}

/// Waits until `check` gives something, and fails loudly when it never does.
pub async fn eventually<T, F>(what: &str, check: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    eventually_within(Duration::from_secs(20), what, check).await
}

/// The same with more patience.
pub async fn eventually_within<T, F>(longest: Duration, what: &str, mut check: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = tokio::time::Instant::now() + longest;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "this never happened: {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Dollars as µUSD.
pub fn micros(usd: &str) -> i64 {
    let (whole, fraction) = usd.split_once('.').unwrap_or((usd, ""));
    assert!(fraction.len() <= 6, "more than six fractional digits: {usd}");
    let digits = format!("{whole}{fraction:0<6}");
    digits
        .parse()
        .unwrap_or_else(|_| panic!("not an amount: {usd:?}"))
}

/// µUSD as credits at the default rate of 1000 a dollar.
pub fn credits(micros: i64) -> String {
    let text = format!("{}.{:03}", micros / 1000, micros % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
