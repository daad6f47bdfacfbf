//! The operator's socket: commands for a running embedded service, one JSON line each way.
//!
//! It lies in the data directory with mode 0600; who can open it may do everything the command line can.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use turnpike_app::AppError;
use turnpike_app::admin::AdminRequest;
use turnpike_core::errors::ErrorCode;

use crate::http::App;
use crate::service::SetupError;

/// Largest request or answer: a whole price catalogue.
const MAX_LINE: u64 = 64 * 1024 * 1024;

/// Where the socket lies.
pub(crate) fn path(data: &Path) -> PathBuf {
    data.join("admin.sock")
}

/// Opens the socket of a service that has the store's lock.
pub(crate) fn listen(data: &Path) -> Result<UnixListener, SetupError> {
    let path = path(data);
    if path.exists() {
        // Its owner is gone: the store's lock is ours.
        std::fs::remove_file(&path).map_err(SetupError::file(&path))?;
    }
    let listener = UnixListener::bind(&path).map_err(SetupError::file(&path))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .map_err(SetupError::file(&path))?;
    Ok(listener)
}

/// Answers operators until the process ends.
pub(crate) async fn serve(app: Arc<App>, listener: UnixListener) {
    loop {
        let Ok((stream, _peer)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let app = app.clone();
        tokio::spawn(async move {
            if let Err(error) = answer(&app, stream).await {
                tracing::debug!(%error, "an operator went away");
            }
        });
    }
}

async fn answer(app: &App, stream: UnixStream) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(MAX_LINE)).read_line(&mut line).await?;
    let result = match serde_json::from_str::<AdminRequest>(&line) {
        Ok(request) => app.service.admin.run(request, "socket").await,
        Err(error) => Err(AppError::new(ErrorCode::ValidationError, error.to_string())),
    };
    let reply = match result {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": { "code": error.code, "message": error.message } }),
    };
    write.write_all(format!("{reply}\n").as_bytes()).await?;
    write.shutdown().await
}

/// Asks the running service in `data`; `None` when nothing answers there.
pub(crate) async fn ask(data: &Path, request: &AdminRequest) -> Option<Result<Value, SetupError>> {
    let stream = UnixStream::connect(path(data)).await.ok()?;
    Some(converse(stream, request).await)
}

async fn converse(stream: UnixStream, request: &AdminRequest) -> Result<Value, SetupError> {
    let broken = |error: std::io::Error| SetupError::Other(format!("the running service went away: {error}"));
    let line = serde_json::to_string(request).map_err(|error| SetupError::Other(error.to_string()))?;
    let (read, mut write) = stream.into_split();
    write
        .write_all(format!("{line}\n").as_bytes())
        .await
        .map_err(broken)?;
    let mut reply = String::new();
    BufReader::new(read.take(MAX_LINE))
        .read_line(&mut reply)
        .await
        .map_err(broken)?;
    let reply: Value = serde_json::from_str(&reply).map_err(|error| SetupError::Other(error.to_string()))?;
    if let Some(value) = reply.get("ok") {
        return Ok(value.clone());
    }
    let text = |name: &str| {
        reply
            .pointer(&format!("/error/{name}"))
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned()
    };
    let code = ErrorCode::parse(&text("code")).unwrap_or(ErrorCode::Internal);
    Err(SetupError::App(AppError::new(code, text("message"))))
}
