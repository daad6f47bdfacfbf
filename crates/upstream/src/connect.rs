//! Connecting: name resolution, TCP and TLS within one timeout, to checked addresses.
//!
//! The rule: certificates are always verified, against the system's roots; whatever fails here failed before
//! a byte of a request was written, and is described by fixed words only.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tower::Service;

use crate::client::ClientSettings;
use crate::guard::{self, GuardedResolver, NameFault};
use crate::provider::BuildError;

type BoxError = Box<dyn StdError + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Connecting took too long.
#[derive(Debug, thiserror::Error)]
#[error("connecting timed out")]
struct ConnectTimedOut;

/// TCP and TLS to a checked address, all within one timeout.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    https: HttpsConnector<HttpConnector<GuardedResolver>>,
    limit: Duration,
}

impl Connector {
    pub(crate) fn new(settings: &ClientSettings) -> Result<Self, BuildError> {
        let resolver = GuardedResolver::new(settings.guard, Arc::clone(&settings.resolver));
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(Self {
            https,
            limit: settings.connect_timeout,
        })
    }
}

/// The system's root certificates, read once.
fn tls_config() -> Result<rustls::ClientConfig, BuildError> {
    static CONFIG: OnceLock<Option<rustls::ClientConfig>> = OnceLock::new();
    let build = || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .ok()?;
        Some(builder.with_native_roots().ok()?.with_no_client_auth())
    };
    CONFIG.get_or_init(build).clone().ok_or(BuildError::TrustStore)
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let end = Instant::now() + self.limit;
        let connecting = self.https.call(uri);
        Box::pin(async move {
            match timeout_at(end, connecting).await {
                Ok(result) => result,
                Err(_elapsed) => Err(BoxError::from(ConnectTimedOut)),
            }
        })
    }
}

/// The error itself and everything below it, looking into `io::Error`s, which hide what they wrap.
pub(crate) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| {
            let inner: &(dyn StdError + 'static) = inner;
            inner
        }),
        None => error.source(),
    })
}

/// Why connecting failed.
pub(crate) fn connect_reason(error: &legacy::Error) -> &'static str {
    for cause in causes(error) {
        if cause.is::<ConnectTimedOut>() {
            return "connecting timed out";
        }
        if let Some(fault) = cause.downcast_ref::<NameFault>() {
            return match fault {
                NameFault::Refused => guard::REFUSED,
                NameFault::Unresolved => "name resolution failed",
            };
        }
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return tls_reason(tls);
        }
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::ConnectionRefused
        {
            return "connection refused";
        }
    }
    "connecting failed"
}

fn tls_reason(error: &rustls::Error) -> &'static str {
    if matches!(error, rustls::Error::InvalidCertificate(_)) {
        "TLS certificate not accepted"
    } else {
        "TLS handshake failed"
    }
}
