//! The accept loop: bounded connections, a deadline for request heads, graceful drain.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

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

/// Serves `router` until `stop`, then lets running requests finish within the drain time.
pub(crate) async fn serve(app: &Arc<App>, router: Router, listener: TcpListener, stop: CancellationToken) {
    let server = &app.service.config.server;
    let builder = connection_builder(Duration::from_secs(server.header_timeout_secs));
    let places = Arc::new(Semaphore::new(server.max_connections));
    let graceful = GracefulShutdown::new();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            break;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _peer)) => stream,
            Err(error) => {
                // Out of file descriptors, or the peer is gone already: neither ends the service.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was refused");
        }
        let connection = builder
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()))
            .into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
    app.draining.store(true, Ordering::Release);
    drop(listener);
    let limit = Duration::from_secs(server.drain_secs);
    let engine = &app.service.engine;
    let drained = async { tokio::join!(graceful.shutdown(), engine.drain()) };
    if tokio::time::timeout(limit, drained).await.is_err() {
        tracing::warn!(
            live_calls = engine.live_calls(),
            "the drain time is over: streams are ended now"
        );
        engine.stop_streams();
        if tokio::time::timeout(Duration::from_secs(5), engine.drain())
            .await
            .is_err()
        {
            tracing::warn!(
                live_calls = engine.live_calls(),
                "calls are left to the sweeper of the next start"
            );
        }
    }
}
