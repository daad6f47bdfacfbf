//! Webhooks: a receiver of many endpoints, workspaces that have them, and events to tell them of.

use std::collections::HashSet;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use memchr::memmem;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use turnpike_core::ids::{CommandId, TenantId};
use turnpike_core::ledger::command::{Grant, GrantSource};
use turnpike_core::ledger::{Action, Command, Payer};
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;
use turnpike_store::Store;

use crate::Result;
use crate::client::{Connection, Target};
use crate::clock::{monotonic_ns, unix_millis};
use crate::ledger::{Ids, now};
use crate::service::Service;

/// No endpoint hangs.
const NONE: usize = usize::MAX;
/// Grants that are submitted at once.
const LANES: usize = 64;

/// What came of an attempt, as the receiver saw it.
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    /// The endpoint's number.
    pub endpoint: usize,
    /// When it came, by the monotonic clock.
    pub at_ns: u64,
    /// How long after the event, in nanoseconds; the event's time is in whole milliseconds.
    pub delay_ns: u64,
}

#[derive(Debug, Default)]
struct Seen {
    /// The first receipt of each event at each endpoint.
    receipts: Vec<Receipt>,
    known: HashSet<(usize, u64)>,
    repeats: u64,
}

#[derive(Debug)]
struct Shared {
    seen: Mutex<Seen>,
    hanging: AtomicUsize,
}

/// A receiver with a port for each endpoint.
#[derive(Debug)]
pub struct Receiver {
    /// Where each endpoint listens.
    pub addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Listens for `endpoints` endpoints.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start(endpoints: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            hanging: AtomicUsize::new(NONE),
        });
        let mut addresses = Vec::with_capacity(endpoints);
        for endpoint in 0..endpoints {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            addresses.push(listener.local_addr()?);
            tokio::spawn(listen(listener, shared.clone(), endpoint));
        }
        Ok(Self { addresses, shared })
    }

    /// This endpoint accepts from now on and never answers; `None` = all of them answer.
    pub fn hang(&self, endpoint: Option<usize>) {
        self.shared
            .hanging
            .store(endpoint.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// First receipts so far, and how many came again.
    pub fn counts(&self) -> (usize, u64) {
        let seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.receipts.len(), seen.repeats)
    }

    /// Takes the receipts so far.
    pub fn take(&self) -> Vec<Receipt> {
        let mut seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut seen.receipts)
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>, endpoint: usize) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(shared.clone(), endpoint, request));
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client may leave at any time.
            drop(served.await);
        });
    }
}

async fn answer(
    shared: Arc<Shared>,
    endpoint: usize,
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    if shared.hanging.load(Ordering::Relaxed) == endpoint {
        std::future::pending::<()>().await;
    }
    let mut hasher = DefaultHasher::new();
    request
        .headers()
        .get("webhook-id")
        .map(HeaderValue::as_bytes)
        .hash(&mut hasher);
    let id = hasher.finish();
    let mut response = Response::new(Full::new(Bytes::new()));
    let Ok(body) = request.into_body().collect().await else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    let at_ns = monotonic_ns();
    let late = created_at(&body.to_bytes()).map_or(0, |at| unix_millis().saturating_sub(at.millis()));
    let receipt = Receipt {
        endpoint,
        at_ns,
        delay_ns: u64::try_from(late).unwrap_or_default() * 1_000_000,
    };
    let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.known.insert((endpoint, id)) {
        seen.receipts.push(receipt);
    } else {
        seen.repeats += 1;
    }
    Ok(response)
}

/// When the event of a message was.
fn created_at(body: &[u8]) -> Option<Timestamp> {
    let name = b"\"created_at\":\"";
    let from = memmem::find(body, name)? + name.len();
    let text = body.get(from..)?.split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A workspace with endpoints.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Its id.
    pub id: TenantId,
    /// To make calls in it.
    pub target: Target,
}

impl Workspace {
    /// Makes one with credits and these endpoints.
    ///
    /// # Errors
    /// When the service refuses.
    pub async fn create(service: &Service, endpoints: &[SocketAddr]) -> Result<Self> {
        let member = |value: &Value, name: &str| -> Result<String> {
            let found = value.get(name).and_then(Value::as_str);
            Ok(found
                .ok_or_else(|| format!("no \"{name}\" in {value}"))?
                .to_owned())
        };
        let made = service.operator(&["tenant", "create", "--name", "bench"])?;
        let tenant = member(&made, "id")?;
        let mut command = vec!["key", "create", "--tenant", &tenant, "--name", "bench"];
        for scope in ["tenant:read", "tenant:write", "credentials:manage"] {
            command.extend(["--scope", scope]);
        }
        let key = member(&service.operator(&command)?, "key")?;
        let grant = [
            "credits", "grant", "--tenant", &tenant, "--usd", "1000", "--reason", "bench",
        ];
        service.operator(&grant)?;
        let mut target = service.target.clone();
        let mut bearer = HeaderValue::from_str(&format!("Bearer {key}"))?;
        bearer.set_sensitive(true);
        target.headers.insert(header::AUTHORIZATION, bearer);
        let mut connection = Connection::open(target.address).await?;
        for address in endpoints {
            let body = json!({ "url": format!("http://{address}/hook") }).to_string();
            let mut request = Request::new(Full::new(Bytes::from(body)));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = "/api/credits/webhooks/endpoints".parse()?;
            *request.headers_mut() = target.headers.clone();
            let (status, said) = connection.call(request).await?;
            if status != StatusCode::CREATED {
                return Err(format!(
                    "an endpoint was refused: {status} {}",
                    String::from_utf8_lossy(&said)
                )
                .into());
            }
        }
        Ok(Self {
            id: tenant
                .parse()
                .map_err(|_invalid| format!("{tenant} is no workspace"))?,
            target,
        })
    }
}

/// Makes `each` events in every workspace, while no service uses the store.
///
/// # Errors
/// When the store refuses.
pub async fn make_events(store: Arc<dyn Store>, workspaces: &[Workspace], each: usize) -> Result<()> {
    let ids = Arc::new(Ids::default());
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| {
            let (store, ids) = (store.clone(), ids.clone());
            let tenants: Vec<TenantId> = workspaces.iter().map(|workspace| workspace.id).collect();
            tokio::spawn(async move {
                for _ in (lane..each).step_by(LANES) {
                    for tenant in &tenants {
                        let at = now();
                        let grant = Grant {
                            to: Payer::Pool,
                            amount: Micros::new(1),
                            source: GrantSource::ManualGrant,
                            reason: "bench".into(),
                            claim: None,
                        };
                        let command = Command {
                            id: CommandId(ids.next(at)),
                            tenant: *tenant,
                            at,
                            action: Action::Grant(grant),
                            note: None,
                        };
                        store.submit(command).await?;
                    }
                }
                Ok::<_, crate::Failure>(())
            })
        })
        .collect();
    for lane in lanes {
        lane.await??;
    }
    Ok(())
}
