//! A server on a raw socket that does as it is told and remembers what it was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// What happens after an answer.
#[derive(Clone, Copy)]
enum After {
    KeepOpen,
    Close,
    /// The next request is read and the connection cut.
    CutNext,
}

#[derive(Clone)]
struct Script {
    head: Vec<u8>,
    /// Sent byte by byte with this pause, or at once.
    drip: Option<(Vec<u8>, Duration)>,
    after: After,
}

#[derive(Default)]
struct Log {
    requests: Vec<String>,
    connections: usize,
}

/// A running stand-in.
pub(crate) struct StandIn {
    address: SocketAddr,
    text: String,
    log: Arc<Mutex<Log>>,
}

/// An answer with a length.
pub(crate) fn reply(status: u16, content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// A JSON answer.
pub(crate) fn json_answer(body: &str) -> Vec<u8> {
    reply(200, "application/json", body)
}

impl StandIn {
    pub(crate) async fn answering(head: Vec<u8>) -> Self {
        Self::run(Script {
            head,
            drip: None,
            after: After::KeepOpen,
        })
        .await
    }

    pub(crate) async fn answering_then_closing(head: Vec<u8>) -> Self {
        Self::run(Script {
            head,
            drip: None,
            after: After::Close,
        })
        .await
    }

    pub(crate) async fn answering_once_then_cutting(head: Vec<u8>) -> Self {
        Self::run(Script {
            head,
            drip: None,
            after: After::CutNext,
        })
        .await
    }

    pub(crate) async fn dripping(head: Vec<u8>, bytes: Vec<u8>, pause: Duration) -> Self {
        Self::run(Script {
            head,
            drip: Some((bytes, pause)),
            after: After::KeepOpen,
        })
        .await
    }

    async fn run(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (stand_in, log) = Self::at(listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                log.lock().unwrap().connections += 1;
                tokio::spawn(serve(socket, script.clone(), Arc::clone(&log)));
            }
        });
        stand_in
    }

    /// TLS with a certificate that nobody signed.
    pub(crate) async fn tls() -> Self {
        let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = signed.signing_key.serialize_der().try_into().unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (stand_in, log) = Self::at(listener.local_addr().unwrap());
        let script = Script {
            head: json_answer("{}"),
            drip: None,
            after: After::KeepOpen,
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                if let Ok(socket) = acceptor.accept(socket).await {
                    serve(socket, script.clone(), Arc::clone(&log)).await;
                }
            }
        });
        stand_in
    }

    /// An address where nobody listens.
    pub(crate) async fn closed_port() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
    }

    fn at(address: SocketAddr) -> (Self, Arc<Mutex<Log>>) {
        let log = Arc::new(Mutex::new(Log::default()));
        (
            Self {
                address,
                text: address.to_string(),
                log: Arc::clone(&log),
            },
            log,
        )
    }

    pub(crate) fn address(&self) -> &str {
        &self.text
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.log.lock().unwrap().requests.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.log.lock().unwrap().connections
    }
}

/// One whole request; `None` at the end of the connection.
async fn request<S: AsyncRead + Unpin>(socket: &mut S) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |value| value.parse::<usize>().unwrap());
            if body.len() >= length {
                return Some(text);
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        // A TLS hello never becomes a request: answer it as it is.
        if bytes.first() == Some(&0x16) {
            return Some(String::new());
        }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S, script: Script, log: Arc<Mutex<Log>>) {
    while let Some(request) = request(&mut socket).await {
        let first = {
            let mut log = log.lock().unwrap();
            log.requests.push(request);
            log.requests.len() == 1
        };
        if matches!(script.after, After::CutNext) && !first {
            return;
        }
        if socket.write_all(&script.head).await.is_err() {
            return;
        }
        for byte in script.drip.iter().flat_map(|(bytes, _)| bytes) {
            let pause = script.drip.as_ref().map_or(Duration::ZERO, |(_, pause)| *pause);
            tokio::time::sleep(pause).await;
            if socket.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
        if matches!(script.after, After::Close) {
            return;
        }
    }
}
