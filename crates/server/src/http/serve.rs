//! The accept loop: bounded connections, a deadline for request heads, graceful drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower_http::add_extension::AddExtension;

use super::App;

/// Largest request head in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Most headers of a request.
const MAX_HEADERS: usize = 100;

fn connection_builder(header_timeout: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(200)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(Some(20))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// How long streams may take to end after the drain time.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How an HTTP/2 connection begins (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How soon the rest of a preface is looked for.
const PREFACE_PAUSE: Duration = Duration::from_millis(20);

/// Waits until the first bytes say which version of HTTP is spoken; the connection's own deadlines begin there.
/// `false` = the peer left first.
async fn has_spoken(stream: &TcpStream) -> bool {
    let mut first = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut first).await {
            Ok(0) | Err(_) => return false,
            Ok(length) => {
                let spoken = first.get(..length).unwrap_or_default();
                if length == PREFACE.len() || !PREFACE.starts_with(spoken) {
                    return true;
                }
            }
        }
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

/// Who is connected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Accepts connections within the limits.
struct Acceptor {
    listener: TcpListener,
    router: Router,
    builder: Builder<TokioExecutor>,
    patience: Duration,
    places: Arc<Semaphore>,
}

impl Acceptor {
    /// Accepts until `stop`; what runs then is ended by `graceful`.
    async fn accept(&self, graceful: &GracefulShutdown, stop: &CancellationToken) {
        loop {
            let place = tokio::select! {
                place = self.places.clone().acquire_owned() => place,
                () = stop.cancelled() => return,
            };
            let Ok(place) = place else { return };
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, peer)) => self.spawn(stream, Peer(peer), place, graceful.watcher(), stop.clone()),
                Err(error) => {
                    // Out of file descriptors, or the peer is gone already: neither ends the service.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    fn spawn(
        &self,
        stream: TcpStream,
        peer: Peer,
        place: OwnedSemaphorePermit,
        watcher: Watcher,
        stop: CancellationToken,
    ) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was refused");
        }
        let (builder, patience) = (self.builder.clone(), self.patience);
        let service = TowerToHyperService::new(AddExtension::new(self.router.clone(), peer));
        tokio::spawn(async move {
            let spoken = tokio::select! {
                spoken = tokio::time::timeout(patience, has_spoken(&stream)) => spoken.unwrap_or(false),
                () = stop.cancelled() => false,
            };
            if !spoken {
                return;
            }
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            if let Err(error) = watcher.watch(connection.into_owned()).await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
}

/// Serves `router` until `stop`, then lets running requests finish within the drain time. Who connects meanwhile is
/// told that the service is draining.
pub(crate) async fn serve(app: &Arc<App>, router: Router, listener: TcpListener, stop: CancellationToken) {
    let server = &app.service.config.server;
    let patience = Duration::from_secs(server.header_timeout_secs);
    let acceptor = Acceptor {
        listener,
        router,
        builder: connection_builder(patience),
        patience,
        places: Arc::new(Semaphore::new(server.max_connections)),
    };
    let graceful = GracefulShutdown::new();
    acceptor.accept(&graceful, &stop).await;
    app.draining.store(true, Ordering::Release);
    let over = CancellationToken::new();
    let late = GracefulShutdown::new();
    tokio::join!(acceptor.accept(&late, &over), async {
        drain(app, graceful).await;
        over.cancel();
    });
}

/// Waits for what runs, at most for the drain time; then streams are ended with an error event.
async fn drain(app: &App, graceful: GracefulShutdown) {
    let limit = Duration::from_secs(app.service.config.server.drain_secs);
    let engine = &app.service.engine;
    let closed = CancellationToken::new();
    let all_closed = closed.clone();
    tokio::spawn(async move {
        graceful.shutdown().await;
        all_closed.cancel();
    });
    let drained = || async { tokio::join!(closed.cancelled(), engine.drain()) };
    if tokio::time::timeout(limit, drained()).await.is_ok() {
        return;
    }
    tracing::warn!(
        live_calls = engine.live_calls(),
        "the drain time is over: streams are ended now"
    );
    engine.stop_streams();
    // Their last words are written, too: a stream that was cut off looks like a lost connection.
    if tokio::time::timeout(LAST_WORDS, drained()).await.is_err() {
        tracing::warn!(
            live_calls = engine.live_calls(),
            "calls are left to the sweeper of the next start"
        );
    }
}
