//! The stand-in provider: a TCP server whose every answer is a script of bytes, pauses and hang-ups.
//!
//! It records each request as it came off the wire, and counts connections, so that a test can say that
//! nothing was sent at all.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A request as the provider saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which request this is, from 1.
    pub number: usize,
    /// The method and the target.
    pub method: String,
    /// See `method`.
    pub path: String,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Seen {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The last message's text.
    pub fn text(&self) -> String {
        let body = self.json();
        let last = body["messages"].as_array().and_then(|all| all.last().cloned());
        last.unwrap_or_default()["content"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    }
}

/// Holds a script at a place until the test opens it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets everything through from now on.
    pub fn open(&self) {
        self.0.add_permits(100_000);
    }
}

/// One step of an answer.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Waits.
    Pause(Duration),
    /// Waits for the gate.
    Wait(Gate),
    /// Hangs up without a word.
    Close,
}

/// What to answer.
pub type Script = Arc<dyn Fn(&Seen) -> Vec<Step> + Send + Sync>;

struct Shared {
    seen: Mutex<Vec<Seen>>,
    script: Mutex<Script>,
    connections: AtomicUsize,
}

/// The stand-in provider.
#[derive(Clone)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Upstream {
    /// Starts one that answers every request well.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            script: Mutex::new(Arc::new(well)),
            connections: AtomicUsize::new(0),
        });
        let accepting = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                let shared = accepting.clone();
                tokio::spawn(async move {
                    serve(&shared, stream).await;
                });
            }
        });
        Self { address, shared }
    }

    /// Answers by `script` from now on.
    pub fn script(&self, script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// Answers everything with the same steps.
    pub fn always(&self, steps: Vec<Step>) {
        self.script(move |_| steps.clone());
    }

    /// Answers well again.
    pub fn heal(&self) {
        self.script(well);
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How many requests there were.
    pub fn count(&self) -> usize {
        self.shared.seen.lock().unwrap().len()
    }

    /// The newest request.
    pub fn last(&self) -> Seen {
        self.seen().pop().expect("the provider saw no request")
    }

    /// How many connections were opened.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

async fn serve(shared: &Arc<Shared>, mut stream: TcpStream) {
    let mut buffer = Vec::new();
    while let Some((mut seen, rest)) = read_request(&mut stream, std::mem::take(&mut buffer)).await {
        buffer = rest;
        let script = shared.script.lock().unwrap().clone();
        {
            let mut all = shared.seen.lock().unwrap();
            seen.number = all.len() + 1;
            all.push(seen.clone());
        }
        for step in script(&seen) {
            match step {
                Step::Bytes(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Step::Pause(wait) => tokio::time::sleep(wait).await,
                Step::Wait(gate) => gate.0.acquire().await.unwrap().forget(),
                Step::Close => return,
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, mut buffer: Vec<u8>) -> Option<(Seen, Vec<u8>)> {
    let head_end = loop {
        if let Some(at) = find(&buffer, b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, value)| value.parse::<usize>().unwrap());
    let mut body = buffer.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    let rest = body.split_off(length);
    let seen = Seen {
        number: 0,
        method,
        path,
        headers,
        body,
    };
    Some((seen, rest))
}

/// Where `needle` begins.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// An answer with a length.
pub fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Step {
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        head.push_str("content-type: application/json\r\n");
    }
    for (name, value) in headers.iter().copied() {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    Step::Bytes(bytes)
}

/// A completion with this usage document.
pub fn completion(number: usize, usage: &Value) -> Step {
    let mut body = json!({
        "id": format!("chatcmpl-{number}"), "object": "chat.completion", "model": "upstream-model",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Hello world" }, "finish_reason": "stop" }],
    });
    if !usage.is_null() {
        body["usage"] = usage.clone();
    }
    answer(200, &[], body.to_string().as_bytes())
}

/// Usage of so many tokens.
pub fn tokens(prompt: u64, completion: u64) -> Value {
    json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion })
}

/// The head of an event stream.
pub fn sse_head() -> Step {
    Step::Bytes(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
    )
}

/// One chunk of an event stream.
pub fn sse_bytes(bytes: &[u8]) -> Step {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    Step::Bytes(chunk)
}

/// One event.
pub fn sse_event(data: &str) -> Step {
    sse_bytes(format!("data: {data}\n\n").as_bytes())
}

/// An event with content.
pub fn sse_content(text: &str) -> Step {
    let event = json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "content": text } }] });
    sse_event(&event.to_string())
}

/// The usage-only event.
pub fn sse_usage(usage: &Value) -> Step {
    let event = json!({ "id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage });
    sse_event(&event.to_string())
}

/// The end of an event stream.
pub fn sse_done() -> Vec<Step> {
    vec![sse_event("[DONE]"), sse_end()]
}

/// The end of the body.
pub fn sse_end() -> Step {
    Step::Bytes(b"0\r\n\r\n".to_vec())
}

/// A whole good stream.
pub fn stream(usage: &Value) -> Vec<Step> {
    let mut steps = vec![sse_head(), sse_content("Hello"), sse_content(" world")];
    if !usage.is_null() {
        steps.push(sse_usage(usage));
    }
    steps.extend(sse_done());
    steps
}

/// What a good provider answers.
pub fn well(seen: &Seen) -> Vec<Step> {
    if !seen.path.ends_with("/chat/completions") {
        let body = json!({ "number": seen.number, "path": seen.path });
        return vec![answer(200, &[], body.to_string().as_bytes())];
    }
    if seen.json()["stream"] == true {
        return stream(&tokens(10, 5));
    }
    vec![completion(seen.number, &tokens(10, 5))]
}
