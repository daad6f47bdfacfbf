//! Logs to standard error, as text or JSON. No secret, prompt or answer is ever a field.

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, TelemetryConfig};

/// Starts logging; a second start is ignored.
pub(crate) fn start(config: &TelemetryConfig) {
    // Its library tells of every message; a level of the operator's own goes before this one.
    let level = format!("rmcp=warn,{}", config.level);
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_invalid| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let started = match config.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
}
