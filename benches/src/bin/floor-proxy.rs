//! The least that a reverse proxy of this kind can do: no authentication, no metering, no store.
//!
//! One thread, keep-alive on both sides, bodies forwarded as they come. What a gateway costs is measured
//! against this, on the same machine in the same minutes.

use std::net::SocketAddr;

use clap::Parser;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use turnpike_bench::Result;

#[derive(Parser)]
#[command(about = "A reverse proxy that does nothing else")]
struct Options {
    /// Where to listen; port 0 picks one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where to forward to.
    #[arg(long)]
    upstream: Authority,
}

type Upstream = Client<HttpConnector, Incoming>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Upstream = Client::builder(TokioExecutor::new()).build(connector);
    let listener = TcpListener::bind(options.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, upstream) = (client.clone(), options.upstream.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| forward(client.clone(), upstream.clone(), request));
            // A client may leave at any time.
            drop(
                http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

async fn forward(
    client: Upstream,
    upstream: Authority,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>> {
    let path = request
        .uri()
        .path_and_query()
        .cloned()
        .unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(upstream)
        .path_and_query(path)
        .build()?;
    request.headers_mut().remove(header::HOST);
    Ok(client.request(request).await?)
}
