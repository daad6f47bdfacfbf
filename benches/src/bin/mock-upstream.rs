//! A provider that answers at once: one fixed completion, or a stream of chunks at a fixed pace.
//!
//! Every chunk carries when the request arrived and when the chunk left, so that a client can tell the
//! provider's time from the gateway's. `GET /count` says how many calls were seen.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use futures_util::Stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::net::TcpListener;
use turnpike_bench::Result;
use turnpike_bench::clock::monotonic_ns;
use turnpike_bench::sse::Mark;

const WORDS: &str = "A toll road is paid for by those who use it, so it has no more lanes than are used and no more \
    cars than fit, and that is why everybody on it arrives on time while those who did not want to pay stand in a \
    queue that costs them more than the toll would have done, which nobody notices because time has no invoice.";

#[derive(Parser)]
#[command(about = "An OpenAI-compatible provider for benchmarks")]
struct Options {
    /// Where to listen; port 0 picks one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Waits so long before every answer.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// Chunks of a stream.
    #[arg(long, default_value_t = 50)]
    chunks: u32,
    /// Time between two chunks.
    #[arg(long, default_value_t = 20)]
    interval_ms: u64,
}

struct Mock {
    options: Options,
    completion: Bytes,
    calls: AtomicU64,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    let listener = TcpListener::bind(options.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    let mock = Arc::new(Mock {
        options,
        completion: completion(),
        calls: AtomicU64::new(0),
    });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mock = mock.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(mock.clone(), request));
            // A client may leave at any time.
            drop(
                http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

/// About 700 bytes.
fn completion() -> Bytes {
    Bytes::from(format!(
        "{{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":\"vendor-v4-flash\",\
         \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{WORDS} So it goes.\",\
         \"refusal\":null}},\"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":20,\
         \"completion_tokens\":50,\"total_tokens\":70,\"prompt_tokens_details\":{{\"cached_tokens\":0}}}},\
         \"system_fingerprint\":\"fp_bench\"}}"
    ))
}

async fn answer(mock: Arc<Mock>, request: Request<Incoming>) -> Result<Response<Body>> {
    let arrived_ns = monotonic_ns();
    if request.method() == Method::GET {
        let count = mock.calls.load(Ordering::Relaxed).to_string();
        return Ok(Response::new(Full::from(count).boxed_unsync()));
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    if !parts.uri.path().ends_with("/chat/completions") {
        let mut missing = Response::new(Full::new(Bytes::new()).boxed_unsync());
        *missing.status_mut() = StatusCode::NOT_FOUND;
        return Ok(missing);
    }
    mock.calls.fetch_add(1, Ordering::Relaxed);
    if mock.options.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(mock.options.delay_ms)).await;
    }
    let streamed = ["\"stream\":true", "\"stream\": true"];
    let (body, content_type) = if streamed
        .iter()
        .any(|text| memmem::find(&body, text.as_bytes()).is_some())
    {
        let usage = memmem::find(&body, b"\"include_usage\"").is_some();
        (
            StreamBody::new(chunks(&mock.options, arrived_ns, usage)).boxed_unsync(),
            "text/event-stream",
        )
    } else {
        (
            Full::new(mock.completion.clone()).boxed_unsync(),
            "application/json",
        )
    };
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

/// The chunks, the usage when it was asked for, and the end.
fn chunks(
    options: &Options,
    arrived_ns: u64,
    usage: bool,
) -> impl Stream<Item = std::result::Result<Frame<Bytes>, Infallible>> + use<> {
    let interval = Duration::from_millis(options.interval_ms.max(1));
    let last = options.chunks.max(1);
    let pace = tokio::time::interval(interval);
    futures_util::stream::unfold((pace, 0), move |(mut pace, index)| async move {
        if index >= last {
            return None;
        }
        pace.tick().await;
        let word = WORDS
            .split(' ')
            .nth(usize::try_from(index).unwrap_or_default() % 50)
            .unwrap_or_default();
        let finished = if index + 1 == last { "\"stop\"" } else { "null" };
        let mark = Mark {
            arrived_ns,
            sent_ns: monotonic_ns(),
        }
        .text();
        let head = "\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\
                    \"model\":\"vendor-v4-flash\"";
        let mut text = format!(
            "data: {{{head},\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{mark}{word}\"}},\
             \"finish_reason\":{finished}}}]}}\n\n"
        );
        if index + 1 == last {
            if usage {
                text.push_str("data: {");
                text.push_str(head);
                text.push_str(",\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":50,\"total_tokens\":70}}\n\n");
            }
            text.push_str("data: [DONE]\n\n");
        }
        Some((Ok(Frame::data(Bytes::from(text))), (pace, index + 1)))
    })
}
