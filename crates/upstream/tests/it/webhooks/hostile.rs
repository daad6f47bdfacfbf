//! Destinations that answer too much, too slowly, or no sense.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use turnpike_upstream::webhook::{MAX_RESPONSE_BYTES, TRUNCATED};

use super::{hasty, local, parts, send};
use crate::stand_in::{StandIn, reply};

/// Generous: attempts in here are over in a second or three, on a machine that is busy, too.
const SOON: Duration = Duration::from_secs(15);

/// Sends a head, then the same bytes again and again with a pause, and counts them.
struct Endless {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
    closed: Arc<AtomicU64>,
}

impl Endless {
    async fn sending(head: &str, part: Vec<u8>, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endless = Self {
            address: listener.local_addr().unwrap(),
            sent: Arc::default(),
            closed: Arc::default(),
        };
        let (sent, closed) = (Arc::clone(&endless.sent), Arc::clone(&endless.closed));
        let head = head.as_bytes().to_vec();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                let (sent, closed) = (Arc::clone(&sent), Arc::clone(&closed));
                let (head, part) = (head.clone(), part.clone());
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    assert!(socket.read(&mut bytes).await.unwrap() > 0);
                    let mut written = socket.write_all(&head).await;
                    while written.is_ok() {
                        written = socket.write_all(&part).await;
                        sent.fetch_add(u64::try_from(part.len()).unwrap(), Ordering::Relaxed);
                        tokio::time::sleep(pause).await;
                    }
                    closed.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        endless
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the destination has seen its connection closed.
    async fn hung_up(&self) {
        let closed = async {
            while self.closed.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, closed).await.unwrap();
    }
}

const FIVE_GIGABYTES: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5368709120\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

// Fault matrix 168
#[tokio::test]
async fn of_five_gigabytes_four_kilobytes_are_kept_and_little_more_is_read() {
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(65536)).into_bytes();
    for (head, part) in [(FIVE_GIGABYTES, vec![b'x'; 65536]), (CHUNKED, chunk)] {
        let endless = Endless::sending(head, part, Duration::ZERO).await;
        let attempt = send(&local(), &endless.url()).await;
        assert_eq!((attempt.http_status, attempt.error), (Some(200), None));
        let kept = attempt.response_body.unwrap();
        assert_eq!(kept.len(), MAX_RESPONSE_BYTES);
        assert!(kept.ends_with(TRUNCATED));
        endless.hung_up().await;
        // What the sockets' buffers hold, and not a thousandth of the body.
        assert!(endless.sent.load(Ordering::Relaxed) < 50_000_000);
    }
}

// Fault matrix 168
#[tokio::test]
async fn an_encoded_body_is_neither_read_nor_a_reason_to_fail() {
    for encoding in ["gzip", "br", "zstd", "gzip, gzip"] {
        for (status, error) in [(200, None), (500, Some("status is not 2xx"))] {
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-encoding: {encoding}\r\ncontent-length: 5368709120\r\n\r\n"
            );
            let bomb = Endless::sending(&head, vec![0; 65536], Duration::ZERO).await;
            let attempt = send(&local(), &bomb.url()).await;
            assert_eq!(parts(&attempt), (Some(status), error, None));
            bomb.hung_up().await;
        }
    }
}

// Fault matrix 168
#[tokio::test]
async fn a_head_that_never_ends_ends_with_the_time() {
    let pause = Duration::from_millis(30);
    for (head, part) in [
        ("HTTP/1.1 200 OK\r\n", "x-a: b\r\n"),
        ("HTTP/1.1 200 OK\r\nx-a: ", "b"),
        ("", "H"),
        ("", "\r\n"),
        ("", "HTTP/1.1 102 Processing\r\n\r\n"),
    ] {
        let endless = Endless::sending(head, part.as_bytes().to_vec(), pause).await;
        let attempt = send(&hasty(), &endless.url()).await;
        assert_eq!(attempt.http_status, None);
        assert!(attempt.error.is_some() && attempt.elapsed < SOON);
        endless.hung_up().await;
    }
}

// Fault matrix 168
#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    for part in [
        format!("x-a: {}\r\n", "b".repeat(1000)),
        "b".repeat(1000),
        "x-a: b\r\n".repeat(100),
    ] {
        let head = "HTTP/1.1 200 OK\r\nx-first: ";
        let endless = Endless::sending(head, part.into_bytes(), Duration::ZERO).await;
        let attempt = send(&local(), &endless.url()).await;
        assert_eq!(parts(&attempt), (None, Some("response head too large"), None));
        endless.hung_up().await;
        assert!(endless.sent.load(Ordering::Relaxed) < 50_000_000);
    }
}

// Fault matrix 168
#[tokio::test]
async fn a_body_that_never_ends_changes_no_outcome() {
    let pause = Duration::from_millis(20);
    for head in [FIVE_GIGABYTES, "HTTP/1.1 200 OK\r\n\r\n"] {
        let drip = Endless::sending(head, b"ok ".to_vec(), pause).await;
        // The time of a success is bounded although the attempt has more.
        let attempt = send(&local(), &drip.url()).await;
        assert_eq!((attempt.http_status, attempt.error), (Some(200), None));
        assert!(attempt.elapsed < SOON);
        let kept = attempt.response_body.unwrap();
        assert!(kept.starts_with("ok ok ") && kept.ends_with(TRUNCATED), "{kept}");
        drip.hung_up().await;
    }
    let head = FIVE_GIGABYTES.replace("200", "500");
    let drip = Endless::sending(&head, b"no ".to_vec(), pause).await;
    let attempt = send(&hasty(), &drip.url()).await;
    assert_eq!(
        (attempt.http_status, attempt.error),
        (Some(500), Some("status is not 2xx"))
    );
    assert!(attempt.response_body.unwrap().ends_with(TRUNCATED));
    drip.hung_up().await;
}

// Fault matrix 168
#[tokio::test]
async fn a_body_that_breaks_off_changes_no_outcome() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nall is well".to_vec();
    let stand_in = StandIn::answering_then_closing(head).await;
    let attempt = send(&local(), &stand_in.url()).await;
    assert_eq!((attempt.http_status, attempt.error), (Some(200), None));
    assert_eq!(attempt.response_body.unwrap(), format!("all is{TRUNCATED}"));
    let garbage = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec();
    let stand_in = StandIn::answering(garbage).await;
    assert_eq!(
        parts(&send(&local(), &stand_in.url()).await),
        (Some(200), None, None)
    );
}

// Fault matrix 168
#[tokio::test]
async fn every_other_failure_has_its_fixed_words() {
    let mut seen = Vec::new();
    let refused = StandIn::closed_port().await;
    seen.push(send(&local(), &format!("http://{refused}")).await);
    let closing = StandIn::answering_then_closing(Vec::new()).await;
    seen.push(send(&local(), &closing.url()).await);
    let garbage = StandIn::answering(b"SSH-2.0-canary\r\n\r\n".to_vec()).await;
    seen.push(send(&local(), &garbage.url()).await);
    let silent = StandIn::answering(Vec::new()).await;
    seen.push(send(&hasty(), &silent.url()).await);
    let tls = |stand_in: &StandIn| format!("https://{}", stand_in.address());
    seen.push(send(&local(), &tls(&garbage)).await);
    seen.push(send(&hasty(), &tls(&silent)).await);
    let unsigned = StandIn::tls().await;
    seen.push(send(&local(), &tls(&unsigned)).await);
    assert_eq!(unsigned.requests(), Vec::<String>::new());
    let errors: Vec<&str> = seen.iter().filter_map(|attempt| attempt.error).collect();
    assert_eq!(
        errors,
        [
            "connection refused",
            "connection closed before the answer",
            "malformed response head",
            "timed out",
            "TLS handshake failed",
            "connecting timed out",
            "TLS certificate not accepted",
        ]
    );
    assert!(seen.iter().all(|attempt| attempt.http_status.is_none()));
}

// Fault matrix 168
#[tokio::test]
async fn a_hundred_endless_destinations_take_the_time_of_one() {
    let drip = Endless::sending("HTTP/1.1 200 OK\r\nx: ", b"y".to_vec(), Duration::from_millis(50)).await;
    let good = StandIn::answering(reply(200, "text/plain", "")).await;
    let sender = hasty();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (sender, url) = (sender.clone(), drip.url());
        tasks.spawn(async move { send(&sender, &url).await });
    }
    assert!(send(&local(), &good.url()).await.succeeded());
    let together = tokio::time::timeout(SOON, tasks.join_all()).await.unwrap();
    assert!(together.iter().all(|attempt| !attempt.succeeded()));
}
