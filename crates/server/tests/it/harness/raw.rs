//! Requests as raw bytes, for what a proper client would never send.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::upstream::find;

/// What came back.
#[derive(Clone, Debug)]
pub struct RawReply {
    /// 0 when the connection was closed without an answer.
    pub status: u16,
    /// The head as text, in lower case.
    pub head: String,
    /// What followed.
    pub body: Vec<u8>,
}

impl RawReply {
    /// The error code; empty when there is none.
    pub fn code(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["code"].as_str().unwrap_or("").to_owned()
    }
}

/// Opens a connection and sends these bytes.
pub async fn raw_open(address: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The service may close while it is still being written to.
    let _sent = stream.write_all(bytes).await;
    stream
}

/// Reads an answer with a length, or until the connection closes or falls silent.
pub async fn read_reply(stream: &mut TcpStream, longest: Duration) -> RawReply {
    let mut buffer = Vec::new();
    let reading = async {
        loop {
            if complete(&buffer) {
                return;
            }
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    let _silent = tokio::time::timeout(longest, reading).await;
    let head_end = find(&buffer, b"\r\n\r\n").unwrap_or(buffer.len());
    let head = String::from_utf8_lossy(&buffer[..head_end]).to_ascii_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let body = buffer.get(head_end + 4..).unwrap_or_default().to_vec();
    RawReply { status, head, body }
}

fn complete(buffer: &[u8]) -> bool {
    let Some(end) = find(buffer, b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|value| value.trim().parse::<usize>().ok());
    length.is_some_and(|length| buffer.len() >= end + 4 + length)
}

/// Sends these bytes on a connection of their own and reads the answer.
pub async fn raw_exchange(address: &str, bytes: &[u8]) -> RawReply {
    let mut stream = raw_open(address, bytes).await;
    read_reply(&mut stream, Duration::from_secs(10)).await
}
