//! What the command line says.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::Parser;
use http::{HeaderName, HeaderValue, Uri};
use turnpike_bench::Result;
use turnpike_bench::client::Target;

#[derive(Parser, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[command(about = "Requests, latency, memory and streams of the gateway against the floor")]
pub(crate) struct Options {
    /// One short repeat of everything: shows that it works, not how fast.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seconds of each closed measurement.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Repeats; medians are shown.
    #[arg(long, default_value_t = 3)]
    pub(crate) repeats: usize,
    /// Callers of the closed measurements.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    pub(crate) concurrency: Vec<usize>,
    /// Parts to run.
    #[arg(long, value_delimiter = ',', default_value = "calls,rate,streams,memory")]
    pub(crate) parts: Vec<String>,
    /// A fresh Idempotency-Key with every call of the closed measurements.
    #[arg(long)]
    pub(crate) idempotency: bool,
    /// Requests a second of the open measurement.
    #[arg(long, default_value_t = 1000)]
    pub(crate) rate: u32,
    /// Seconds of the open measurement.
    #[arg(long, default_value_t = 20)]
    pub(crate) rate_seconds: u64,
    /// Streams open at once.
    #[arg(long, default_value_t = 200)]
    pub(crate) streams: usize,
    /// Calls before memory is read.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) calls: u64,
    /// Core of the gateway and of the floor.
    #[arg(long, default_value_t = 0)]
    pub(crate) gateway_core: usize,
    /// Core of the provider and of the load.
    #[arg(long, default_value_t = 1)]
    pub(crate) load_core: usize,
    /// Leaves every process on every core.
    #[arg(long)]
    pub(crate) unpinned: bool,
    /// Worker threads of the gateway's runtime.
    #[arg(long, default_value_t = 1)]
    pub(crate) workers: usize,
    /// The gateway's binary; default: beside this one.
    #[arg(long)]
    pub(crate) turnpike: Option<PathBuf>,
    /// The gateway's store; default: the embedded one.
    #[arg(long)]
    pub(crate) store_url: Option<String>,
    /// Where its data directory is made.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,
    /// Measures the floor, and the peer if one is named, only.
    #[arg(long)]
    pub(crate) without_turnpike: bool,
    /// Where the provider of the peer listens, so that the peer can be configured beforehand.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) mock_listen: SocketAddr,
    /// Another gateway that runs already: the URL of its chat completions.
    #[arg(long)]
    pub(crate) peer_url: Option<Uri>,
    /// Its processes.
    #[arg(long)]
    pub(crate) peer_pid: Vec<u32>,
    /// A header it wants, as `Name: value`.
    #[arg(long)]
    pub(crate) peer_header: Vec<String>,
    /// The model it is asked for.
    #[arg(long, default_value = "vendor-v4-flash")]
    pub(crate) peer_model: String,
}

/// The other gateway, when one is named.
pub(crate) fn peer(options: &Options) -> Result<Option<Target>> {
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
