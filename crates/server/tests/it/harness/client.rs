//! A small HTTP client that keeps the bytes and the headers as they came.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// A pooled client of one service.
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    pool: legacy::Client<HttpConnector, Full<Bytes>>,
}

/// A request in the making.
#[derive(Clone, Debug)]
pub struct Sender {
    client: Client,
    method: Method,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Bytes,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its bytes.
    pub body: Bytes,
}

/// An answer whose body is still coming.
#[derive(Debug)]
pub struct OpenReply {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    body: Incoming,
}

impl Client {
    /// A client of the service at `address`.
    pub fn new(address: &str) -> Self {
        let pool = legacy::Client::builder(TokioExecutor::new())
            .retry_canceled_requests(false)
            .build(HttpConnector::new());
        Self {
            base: format!("http://{address}"),
            pool,
        }
    }

    /// A request.
    pub fn request(&self, method: Method, path: &str) -> Sender {
        Sender {
            client: self.clone(),
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }
}

impl Sender {
    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Presents a credential.
    #[must_use]
    pub fn bearer(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}"))
    }

    /// Sends an idempotency key.
    #[must_use]
    pub fn once(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// Names the end user who pays.
    #[must_use]
    pub fn paid_by(self, user: &str) -> Self {
        self.header("x-svc-external-user-id", user)
    }

    /// Sends a JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.raw_json(body.to_string())
    }

    /// Sends these bytes as JSON.
    #[must_use]
    pub fn raw_json(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("content-type", "application/json")
    }

    /// Sends these bytes.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and gives the answer once its head is there.
    pub async fn try_open(self) -> Result<OpenReply, String> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(format!("{}{}", self.client.base, self.path));
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(self.body))
            .map_err(|error| error.to_string())?;
        let response = self
            .client
            .pool
            .request(request)
            .await
            .map_err(|error| format!("{error:?}"))?;
        let (parts, body) = response.into_parts();
        Ok(OpenReply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }

    /// Sends it and gives the answer once its head is there.
    pub async fn open(self) -> OpenReply {
        self.try_open().await.unwrap()
    }

    /// Sends it and reads the whole answer.
    pub async fn try_send(self) -> Result<Reply, String> {
        self.try_open().await?.try_finish().await
    }

    /// Sends it and reads the whole answer.
    pub async fn send(self) -> Reply {
        self.try_send().await.unwrap()
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

impl OpenReply {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        text(&self.headers, name)
    }

    /// The next bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Option<Bytes> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(data);
                    }
                }
                Err(error) => panic!("the answer broke off: {error:?}"),
            }
        }
    }

    /// Reads the rest.
    pub async fn try_finish(self) -> Result<Reply, String> {
        let body = self.body.collect().await.map_err(|error| format!("{error:?}"))?;
        Ok(Reply {
            status: self.status,
            headers: self.headers,
            body: body.to_bytes(),
        })
    }

    /// Reads the rest.
    pub async fn finish(self) -> Reply {
        self.try_finish().await.unwrap()
    }
}

impl Reply {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        text(&self.headers, name)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The error code; empty when there is none.
    pub fn code(&self) -> String {
        serde_json::from_slice::<Value>(&self.body).unwrap_or_default()["code"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    }

    /// Demands a status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Demands an error: its status and code, and the shape that every error has.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Self {
        assert_eq!(
            (self.status, self.code().as_str()),
            (status, code),
            "{}",
            self.text()
        );
        let body = self.json();
        assert_eq!(body["success"], false);
        let label = StatusCode::from_u16(status)
            .unwrap()
            .canonical_reason()
            .unwrap_or("");
        let shown = body["error"].as_str().unwrap();
        assert!(
            shown.eq_ignore_ascii_case(label) || status == 413 || status == 422,
            "{shown:?} for {label:?}"
        );
        assert!(!body["message"].as_str().unwrap().is_empty());
        assert_eq!(body["requestId"].as_str(), self.header("x-request-id"));
        self
    }
}
