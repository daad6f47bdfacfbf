//! A TCP proxy in front of PostgreSQL that breaks the connection exactly at COMMIT.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What happens to the next COMMIT that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing.
    Never = 0,
    /// The server gets it, the client never gets the answer.
    Answer = 1,
    /// The server never gets it.
    Request = 2,
    /// The client loses its connection at once, the server gets the COMMIT a while later.
    Late = 3,
}

pub(crate) const LATE: Duration = Duration::from_millis(700);

pub(crate) struct Proxy {
    pub(crate) port: u16,
    armed: Arc<AtomicU8>,
    cuts: Arc<AtomicU32>,
}

impl Proxy {
    pub(crate) async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (armed, cuts) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicU32::new(0)));
        let (arming, counting) = (armed.clone(), cuts.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(upstream) = TcpStream::connect(&server).await else {
                    continue;
                };
                tokio::spawn(pass(client, upstream, arming.clone(), counting.clone()));
            }
        });
        Self { port, armed, cuts }
    }

    /// The next COMMIT suffers `cut`, the ones after it pass.
    pub(crate) fn arm(&self, cut: Cut) {
        let code = match cut {
            Cut::Never => 0,
            Cut::Answer => 1,
            Cut::Request => 2,
            Cut::Late => 3,
        };
        self.armed.store(code, Ordering::SeqCst);
    }

    /// How often a COMMIT was cut.
    pub(crate) fn cuts(&self) -> u32 {
        self.cuts.load(Ordering::SeqCst)
    }
}

async fn pass(client: TcpStream, server: TcpStream, armed: Arc<AtomicU8>, cuts: Arc<AtomicU32>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let answers = tokio::spawn(copy(from_server, to_client));
    let cut = requests(from_client, to_server, &armed, &cuts).await;
    let Some((mut to_server, commit, cut)) = cut else {
        return;
    };
    // From here on the client hears nothing more; its socket is closed with the copying task.
    answers.abort();
    drop(answers.await);
    match cut {
        Cut::Answer => to_server.write_all(&commit).await.unwrap(),
        Cut::Late => {
            tokio::time::sleep(LATE).await;
            to_server.write_all(&commit).await.unwrap();
        }
        Cut::Request | Cut::Never => return,
    }
    // The server keeps its side until it has done what it was told.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Forwards message by message; stops before a COMMIT that is to be cut.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    armed: &AtomicU8,
    cuts: &AtomicU32,
) -> Option<(OwnedWriteHalf, Vec<u8>, Cut)> {
    // The startup message has no type byte.
    let length = from.read_u32().await.ok()?;
    let mut body = vec![0; usize::try_from(length).ok()?.checked_sub(4)?];
    from.read_exact(&mut body).await.ok()?;
    to.write_all(&[&length.to_be_bytes()[..], &body].concat())
        .await
        .ok()?;
    loop {
        let kind = from.read_u8().await.ok()?;
        let length = from.read_u32().await.ok()?;
        let mut message = vec![kind];
        message.extend_from_slice(&length.to_be_bytes());
        let mut body = vec![0; usize::try_from(length).ok()?.checked_sub(4)?];
        from.read_exact(&mut body).await.ok()?;
        message.extend_from_slice(&body);
        if kind == b'Q' && body == b"COMMIT\0" {
            let cut = match armed.swap(0, Ordering::SeqCst) {
                1 => Cut::Answer,
                2 => Cut::Request,
                3 => Cut::Late,
                _ => Cut::Never,
            };
            if cut != Cut::Never {
                cuts.fetch_add(1, Ordering::SeqCst);
                return Some((to, message, cut));
            }
        }
        to.write_all(&message).await.ok()?;
    }
}
