//! The stand-in's two sides on the wire: the API that is asked, and the events that are delivered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hmac::{Hmac, Mac};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use sha2::Sha256;
use tokio::net::{TcpListener, TcpStream};

use super::{Fault, Recorded, State, StripeStandIn, api};

pub(super) async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((socket, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(|request| handle(request, Arc::clone(&state)));
            let server = hyper::server::conn::http1::Builder::new();
            // An error is a connection that was cut, by either side.
            let _ended = server.serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

/// An error cuts the connection.
async fn handle(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let recorded = record(request).await?;
    let (fault, done) = {
        let mut state = state.lock().unwrap();
        state.requests.push(recorded.clone());
        let fault = state.faults.pop_front();
        let is_done = !matches!(
            fault,
            Some(Fault::Status(_) | Fault::InUse | Fault::Hang | Fault::Cut)
        );
        (fault, is_done.then(|| state.answer(&recorded)))
    };
    let failed = |status| api::error(status, "", "The stand-in was told to fail.");
    let (status, body) = match fault {
        None => done.unwrap(),
        Some(Fault::Status(status) | Fault::DoneThenStatus(status)) => failed(status),
        Some(Fault::InUse) => api::error(409, "idempotency_key_in_use", "Another request uses this key."),
        Some(Fault::Hang | Fault::DoneThenHang) => std::future::pending().await,
        Some(Fault::Cut | Fault::DoneThenCut) => return Err("cut"),
        Some(Fault::DoneThenGarbage) => {
            let garbage = Full::new(Bytes::from_static(b"{\"id\": \"cs_"));
            return Ok(Response::new(garbage));
        }
    };
    let answer = Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())));
    Ok(answer.unwrap())
}

async fn record(request: Request<Incoming>) -> Result<Recorded, &'static str> {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map_err(|_gone| "the client left")?
        .to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    Ok(Recorded {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: decode(head.uri.query().unwrap_or_default()),
        headers: headers.collect(),
        form: form(&body),
        body,
    })
}

fn form(body: &str) -> BTreeMap<String, String> {
    let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
            }
            plain => bytes.push(plain),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Stripe's signature header.
pub(crate) fn sign(secret: &str, raw: &[u8], timestamp: i64) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{timestamp}.").as_bytes());
    mac.update(raw);
    let v1 = hex::encode(mac.finalize().into_bytes());
    format!("t={timestamp},v1={v1}")
}

async fn post(url: &str, raw: &[u8], signature: Option<&str>) -> Option<u16> {
    let uri: Uri = url.parse().unwrap();
    let authority = uri.authority().unwrap().as_str();
    let socket = TcpStream::connect(authority).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
        .await
        .ok()?;
    let connection = tokio::spawn(connection);
    let mut request = Request::post(uri.path_and_query().unwrap().as_str())
        .header("host", authority)
        .header("content-type", "application/json; charset=utf-8");
    if let Some(signature) = signature {
        request = request.header("stripe-signature", signature);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(raw))).unwrap();
    let status = sender.send_request(request).await.ok()?.status().as_u16();
    connection.abort();
    Some(status)
}

/// An event's body as Stripe sends it: indented, so that a body that was parsed and written again differs.
pub(crate) fn raw(event: &Value) -> Vec<u8> {
    serde_json::to_vec_pretty(event).unwrap()
}

impl StripeStandIn {
    /// The events that wait, oldest first.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.state().events.iter().cloned().collect()
    }

    /// The oldest waiting event of a kind, which goes on waiting.
    pub(crate) fn event(&self, kind: &str) -> Value {
        let found = self.events().into_iter().find(|event| event["type"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} waits"))
    }

    /// The body and the signature header of an event, now.
    pub(crate) fn signed(&self, event: &Value) -> (Vec<u8>, String) {
        let raw = raw(event);
        let signature = sign(&self.webhook_secret, &raw, self.state().now());
        (raw, signature)
    }

    /// Delivers an event, whether it waits or not; the status, or `None` without an answer.
    pub(crate) async fn deliver(&self, url: &str, event: &Value) -> Option<u16> {
        let (raw, signature) = self.signed(event);
        post(url, &raw, Some(&signature)).await
    }

    /// Delivers an event with a signature of another time.
    pub(crate) async fn deliver_at(&self, url: &str, event: &Value, timestamp: i64) -> Option<u16> {
        let raw = raw(event);
        let signature = sign(&self.webhook_secret, &raw, timestamp);
        post(url, &raw, Some(&signature)).await
    }

    /// Delivers an event that someone else has signed.
    pub(crate) async fn forge(&self, url: &str, event: &Value) -> Option<u16> {
        let raw = raw(event);
        let signature = sign("whsec_of_someone_else", &raw, self.state().now());
        post(url, &raw, Some(&signature)).await
    }

    /// Delivers any bytes under any signature, or none.
    pub(crate) async fn deliver_raw(&self, url: &str, raw: &[u8], signature: Option<&str>) -> Option<u16> {
        post(url, raw, signature).await
    }

    /// Delivers what waits, in order; what is not answered with success goes on waiting. Kinds and statuses.
    pub(crate) async fn deliver_all(&self, url: &str) -> Vec<(String, Option<u16>)> {
        let waiting: Vec<Value> = self.state().events.drain(..).collect();
        let mut statuses = Vec::new();
        let mut failed = Vec::new();
        for event in waiting {
            let status = self.deliver(url, &event).await;
            statuses.push((event["type"].as_str().unwrap().to_owned(), status));
            if !status.is_some_and(|status| (200..300).contains(&status)) {
                failed.push(event);
            }
        }
        let mut state = self.state();
        failed.extend(state.events.drain(..));
        state.events = failed.into();
        statuses
    }

    /// Every waiting event of a kind waits twice.
    pub(crate) fn duplicate(&self, kind: &str) {
        self.reorder(|events| {
            let copies: Vec<Value> = events
                .iter()
                .filter(|event| event["type"] == kind)
                .cloned()
                .collect();
            events.extend(copies);
        });
    }

    /// The same happening as another event, as Stripe sometimes tells things twice.
    pub(crate) fn same_again(&self, event: &Value) -> Value {
        let mut again = event.clone();
        again["id"] = self.state().id("evt").into();
        again
    }

    /// Changes what waits as `change` says.
    pub(crate) fn reorder(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let mut state = self.state();
        let mut events: Vec<Value> = state.events.drain(..).collect();
        change(&mut events);
        state.events = events.into();
    }

    /// The waiting events of a kind are lost.
    pub(crate) fn drop_events(&self, kind: &str) {
        self.reorder(|events| events.retain(|event| event["type"] != kind));
    }

    /// The waiting events of a kind wait until [`Self::release`].
    pub(crate) fn delay(&self, kind: &str) {
        let mut delayed = Vec::new();
        self.reorder(|events| {
            let all = std::mem::take(events);
            let (held, rest) = all.into_iter().partition(|event| event["type"] == kind);
            delayed = held;
            *events = rest;
        });
        self.state().delayed.extend(delayed);
    }

    /// Delayed events wait again, behind the others.
    pub(crate) fn release(&self) {
        let mut state = self.state();
        let delayed = std::mem::take(&mut state.delayed);
        state.events.extend(delayed);
    }
}
