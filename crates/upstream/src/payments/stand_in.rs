//! A server on a raw socket that answers as a function says, for the tests of facilitators and chains.

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is done with one request: its head and its JSON, null without one.
pub(crate) enum Done {
    /// These bytes are sent.
    Sent(Vec<u8>),
    /// The connection is cut.
    Cut,
    /// Nothing ever happens.
    Silence,
}

type Answering = Arc<dyn Fn(&str, &Value) -> Done + Send + Sync>;

pub(crate) fn reply(status: u16, body: &str) -> Done {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}");
    Done::Sent(format!("{head}\r\nextension-responses: e30=\r\n\r\n{body}").into_bytes())
}

/// Starts a server and gives its address.
pub(crate) async fn serve(answering: impl Fn(&str, &Value) -> Done + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answering: Answering = Arc::new(answering);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(connection(socket, Arc::clone(&answering)));
        }
    });
    url
}

async fn connection(mut socket: TcpStream, answering: Answering) {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length = length.map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                let json = serde_json::from_str(body).unwrap_or(Value::Null);
                bytes.clear();
                match answering(head, &json) {
                    Done::Sent(answer) => socket.write_all(&answer).await.unwrap_or_default(),
                    Done::Cut => return,
                    Done::Silence => std::future::pending().await,
                }
                continue;
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap_or_default() == 0 {
            return;
        }
    }
}
