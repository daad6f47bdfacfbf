//! The answer to a call as a response: the provider's bytes and the headers about money.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use turnpike_app::{Answer, Receipt};

use super::names::HeaderNames;
use super::problem::REPLAYED;

const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The chunks of a stream as a body; ends with its channel.
struct ChunkBody(mpsc::Receiver<Bytes>);

impl hyper::body::Body for ChunkBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(context)
            .map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

fn receipt_headers(headers: &mut HeaderMap, names: &HeaderNames, receipt: &Receipt, sees_cost: bool) {
    let mut put = |name: &HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name.clone(), value);
        }
    };
    put(
        &names.credits_charged,
        receipt.rate.credits(receipt.charged).to_string(),
    );
    put(
        &names.credits_balance,
        receipt.rate.credits(receipt.balance).to_string(),
    );
    put(&names.call_id, receipt.call.to_string());
    if sees_cost {
        put(&names.cost_usd, receipt.charged.to_string());
    }
    if receipt.simulated {
        headers.insert(names.simulated.clone(), HeaderValue::from_static("true"));
    }
    if receipt.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

fn response(body: Body, content_type: &'static str) -> Response {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A chat completion: the provider's own JSON or SSE.
pub(crate) fn chat_response(names: &HeaderNames, answer: Answer, sees_cost: bool) -> Response {
    let (mut response, receipt) = match answer {
        Answer::Json { body, receipt } => (response(Body::from(body), "application/json"), receipt),
        Answer::Transcript { body, receipt } => (response(Body::from(body), "text/event-stream"), receipt),
        Answer::Stream { chunks, receipt } => {
            let body = Body::new(UnsyncBoxBody::new(ChunkBody(chunks)));
            let mut streamed = response(body, "text/event-stream");
            // Tells proxies in front of the service not to collect the stream.
            streamed
                .headers_mut()
                .insert(NO_BUFFERING, HeaderValue::from_static("no"));
            (streamed, receipt)
        }
    };
    receipt_headers(response.headers_mut(), names, &receipt, sees_cost);
    response
}

/// A tool's answer; tools do not stream.
fn whole(answer: Answer) -> (Bytes, Receipt) {
    match answer {
        Answer::Json { body, receipt } | Answer::Transcript { body, receipt } => (body, receipt),
        Answer::Stream { receipt, .. } => (Bytes::from_static(b"null"), receipt),
    }
}

fn billing(receipt: &Receipt, sees_cost: bool) -> Value {
    let mut billing = json!({
        "creditsCharged": receipt.rate.credits(receipt.charged),
        "creditsBalance": receipt.rate.credits(receipt.balance_then),
        "callId": receipt.call,
    });
    if sees_cost && let Some(members) = billing.as_object_mut() {
        members.insert("costUsd".to_owned(), json!(receipt.charged));
    }
    billing
}

/// The same envelope for an agent, whose result may have so many bytes: of a longer one it is told where the rest is.
pub(crate) fn tool_view(answer: Answer, sees_cost: bool, most: usize) -> Value {
    let (data, receipt) = whole(answer);
    let mut view = json!({
        "success": true, "billing": billing(&receipt, sees_cost), "replayed": receipt.replayed,
        "simulated": receipt.simulated,
    });
    let Some(members) = view.as_object_mut() else {
        return view;
    };
    // What is nested too deeply is JSON, too.
    let parsed = (data.len() <= most).then(|| serde_json::from_slice::<Value>(&data).ok());
    let Some(Some(parsed)) = parsed else {
        members.insert("data".to_owned(), Value::Null);
        members.insert("totalBytes".to_owned(), json!(data.len()));
        let hint = "The result is long: read it with get_result, with this callId, a part at a time.";
        members.insert("hint".to_owned(), json!(hint));
        return view;
    };
    members.insert("data".to_owned(), parsed);
    view
}

/// A tool's result in the envelope of decisions section 6; the provider's JSON stays as it came.
pub(crate) fn tool_response(names: &HeaderNames, answer: Answer, sees_cost: bool) -> Response {
    let (data, receipt) = whole(answer);
    let billing = billing(&receipt, sees_cost);
    let mut body = Vec::with_capacity(data.len().saturating_add(256));
    body.extend_from_slice(b"{\"success\":true,\"data\":");
    body.extend_from_slice(&data);
    body.extend_from_slice(b",\"billing\":");
    body.extend_from_slice(billing.to_string().as_bytes());
    body.push(b'}');
    let mut response = response(Body::from(body), "application/json");
    receipt_headers(response.headers_mut(), names, &receipt, sees_cost);
    response
}
