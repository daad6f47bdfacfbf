//! Starts the service and runs it until it is told to stop.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::HeaderValue;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use turnpike_app::paid_calls::warn_of_strangers;

use crate::config::Config;
use crate::http::{App, HeaderNames, Origins, router, serve};
use crate::metrics::{self, Metrics};
use crate::service::{Service, SetupError, is_embedded};
use crate::{admin_socket, jobs};

/// How long the start waits for the facilitator.
const FACILITATOR_PATIENCE: Duration = Duration::from_secs(3);

/// Which parts of the service a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Roles {
    /// Serves requests.
    pub(crate) api: bool,
    /// Runs the worker loops.
    pub(crate) worker: bool,
}

/// A service that is ready to run.
pub(crate) struct Started {
    pub(crate) app: Arc<App>,
    listener: TcpListener,
    roles: Roles,
}

/// Connections that may wait to be accepted; the system may allow fewer. Of more at once some would be told that they are
/// connected and never be accepted.
const BACKLOG: u32 = 4096;

/// Listens on the first address of `listen` that is free.
async fn bind(listen: &str) -> std::io::Result<TcpListener> {
    let mut last = None;
    for address in tokio::net::lookup_host(listen).await? {
        match bind_to(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::Error::other("the name has no address")))
}

fn bind_to(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A service that starts again needs not wait for the last one's connections.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Opens everything; the address of the listener goes into the public URL when none is configured.
pub(crate) async fn start(mut config: Config, data: &Path, roles: Roles) -> Result<Started, SetupError> {
    std::fs::create_dir_all(data).map_err(SetupError::file(data))?;
    let listen = config.server.listen.clone();
    let listener = bind(&listen).await.map_err(|error| {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            SetupError::Other(format!(
                "{listen} is taken by another program: choose another address with --listen ADDR"
            ))
        } else {
            SetupError::Other(format!("cannot listen on {listen}: {error}"))
        }
    })?;
    let address = listener
        .local_addr()
        .map_err(|error| SetupError::Other(error.to_string()))?;
    config.server.listen = address.to_string();
    if config.server.public_url.is_empty() {
        config.server.public_url = format!("http://{address}");
    }
    let service = Service::build(config, data).await?;
    // A facilitator that is down or slow does not keep the service from starting.
    if let Some(desk) = &service.paid_calls {
        let asked = tokio::time::timeout(FACILITATOR_PATIENCE, desk.refresh()).await;
        if !matches!(asked, Ok(Ok(()))) {
            tracing::warn!("paid calls are refused until the facilitator answers");
        }
    }
    let house = service.paid_calls.as_ref().map(|desk| desk.settings().house());
    warn_of_strangers(&*service.store, house, service.environment.now()).await?;
    let names = HeaderNames::new(&service.config.server.brand)
        .map_err(|error| SetupError::Other(error.to_string()))?;
    let app = Arc::new(App {
        names,
        step_up_challenge: HeaderValue::try_from(service.config.identity.challenge())
            .map_err(|error| SetupError::Other(error.to_string()))?,
        metrics: Arc::new(Metrics::new()),
        draining: AtomicBool::new(false),
        origins: Origins::default(),
        service,
    });
    Ok(Started { app, listener, roles })
}

/// The link with which the first owner joins, while nobody has joined yet and the configuration wants one.
pub(crate) async fn first_start(app: &App) -> Result<Option<String>, SetupError> {
    if !app.service.config.identity.invite_first_owner {
        return Ok(None);
    }
    Ok(app.service.people.first_start().await?)
}

/// Runs until SIGTERM or SIGINT, then drains.
pub(crate) async fn run(started: Started, data: &Path) -> Result<(), SetupError> {
    let Started { app, listener, roles } = started;
    let stop = CancellationToken::new();
    listen_for_signals(&stop)?;
    let config = &app.service.config;
    if !config.telemetry.metrics_listen.is_empty() {
        let address = &config.telemetry.metrics_listen;
        let metrics_listener = TcpListener::bind(address)
            .await
            .map_err(|error| SetupError::Other(format!("cannot listen on {address}: {error}")))?;
        tokio::spawn(metrics::serve(app.metrics.clone(), metrics_listener));
    }
    if is_embedded(&config.store) {
        tokio::spawn(admin_socket::serve(app.clone(), admin_socket::listen(data)?));
    }
    let dispatcher = jobs::start(&app, &stop, roles);
    let stopped = {
        let stop = stop.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            Instant::now()
        })
    };
    tracing::info!(listen = config.server.listen, "turnpike is running");
    if roles.api {
        let router = router(&app)?;
        serve(&app, router, listener, stop).await;
    } else {
        stop.cancelled().await;
    }
    if let Some(dispatcher) = dispatcher {
        // What is not recorded by then is made again by whoever comes next.
        let drain = Duration::from_secs(app.service.config.server.drain_secs);
        match tokio::time::timeout_at(
            stopped.await.unwrap_or_else(|_ended| Instant::now()) + drain,
            dispatcher,
        )
        .await
        {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the webhook worker ended badly"),
            Err(_elapsed) => tracing::warn!("webhook attempts were left behind"),
        }
    }
    app.service.store.close().await;
    if is_embedded(&app.service.config.store)
        && let Err(error) = std::fs::remove_file(admin_socket::path(data))
    {
        tracing::debug!(%error, "the operator's socket was gone");
    }
    tracing::info!("turnpike has ended");
    Ok(())
}

/// SIGTERM and SIGINT stop the service; further ones and SIGHUP change nothing.
fn listen_for_signals(stop: &CancellationToken) -> Result<(), SetupError> {
    let failed = |error: std::io::Error| SetupError::Other(format!("signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let stop = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _signal = terminate.recv() => {}
                _signal = interrupt.recv() => {}
                _signal = hangup.recv() => continue,
            }
            tracing::info!("stopping: running calls may finish");
            stop.cancel();
        }
    });
    Ok(())
}
