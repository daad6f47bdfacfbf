//! The client side: keep-alive connections, one request after another on each.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::Result;

/// Name of the idempotency header.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What is put under load.
#[derive(Clone, Debug)]
pub struct Target {
    /// As the tables call it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// The path of chat completions.
    pub path: Uri,
    /// Sent with every request: host, credential, content type.
    pub headers: HeaderMap,
    /// The model that is asked for.
    pub model: String,
    /// Its processes; none = not measured.
    pub pids: Vec<u32>,
}

impl Target {
    /// A target without a credential.
    ///
    /// # Errors
    /// When `path` is no path.
    pub fn new(name: &str, address: SocketAddr, path: &str, pids: &[u32]) -> Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(&address.to_string())?);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self {
            name: name.to_owned(),
            address,
            path: path.parse()?,
            headers,
            model: "vendor-v4-flash".to_owned(),
            pids: pids.to_vec(),
        })
    }

    /// A request body of about 220 bytes.
    pub fn body(&self, stream: bool) -> Bytes {
        let stream = if stream { ",\"stream\":true" } else { "" };
        let text = "Tell me in one short sentence why a toll road is cheaper than a free one when everybody who \
                    uses it is in a hurry and nobody likes to stand in a queue.";
        Bytes::from(format!(
            "{{\"model\":\"{}\",\"max_tokens\":64{stream},\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}",
            self.model
        ))
    }

    /// A call with `body`.
    pub fn request(&self, body: &Bytes, idempotency_key: Option<HeaderValue>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = self.headers.clone();
        if let Some(key) = idempotency_key {
            request.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        request
    }
}

/// A connection that is opened again when the other side closed it.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nothing listens.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            address,
            sender: Self::dial(address).await?,
        })
    }

    async fn dial(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // A connection that breaks shows at the next request.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    /// Sends `request`; the body of the answer is still to come.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        if self.sender.ready().await.is_err() {
            self.sender = Self::dial(self.address).await?;
            self.sender.ready().await?;
        }
        Ok(self.sender.send_request(request).await?)
    }

    /// Sends `request` and reads the whole answer. The body is kept only when the status is not 200.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn call(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
        let response = self.send(request).await?;
        let status = response.status();
        let mut body = response.into_body();
        if status != StatusCode::OK {
            return Ok((status, body.collect().await?.to_bytes()));
        }
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok((status, Bytes::new()))
    }
}

/// One GET on a connection of its own.
///
/// # Errors
/// When nothing answers.
pub async fn get(address: SocketAddr, path: &str) -> Result<(StatusCode, Bytes)> {
    let mut connection = Connection::open(address).await?;
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = path.parse()?;
    request
        .headers_mut()
        .insert(header::HOST, HeaderValue::from_str(&address.to_string())?);
    let response = connection.send(request).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}
