//! What the use cases must not make themselves: time, ids, randomness, and their settings.

use std::sync::Arc;

use turnpike_core::ledger::hold::StreamSettlement;
use turnpike_core::time::Timestamp;
use uuid::Uuid;

/// Time, ids and randomness; the server's are real, the simulation's are seeded.
pub trait Environment: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
    /// A fresh UUIDv7.
    fn new_id(&self) -> Uuid;
    /// 32 random bytes from a cryptographic source.
    fn random_32(&self) -> [u8; 32];
}

/// Settings of the use cases.
#[derive(Clone, Debug)]
pub struct AppSettings {
    /// First part of every API key and of the service's header names.
    pub brand: Arc<str>,
    /// This process, as holds name it.
    pub instance: Uuid,
    /// Where people reach the service, without a slash at the end.
    pub public_url: Arc<str>,
    /// How streams are settled unless the tenant says otherwise.
    pub stream_settlement: StreamSettlement,
    /// How long answers are kept for replay.
    pub outcome_retention_ms: i64,
    /// Longest answer that is kept, in bytes.
    pub max_stored_bytes: usize,
    /// Longest a stream may run.
    pub max_stream_ms: i64,
    /// How long a reader of a stream may take for one chunk before it counts as gone.
    pub slow_reader_ms: u64,
    /// How long a hold outlives the longest its call can take.
    pub hold_slack_ms: i64,
    /// Calls a minute per credential; 0 = unlimited.
    pub calls_per_minute: u32,
    /// Reads a minute per credential; 0 = unlimited.
    pub reads_per_minute: u32,
    /// Changes a minute per credential; 0 = unlimited.
    pub mutations_per_minute: u32,
}

impl Default for AppSettings {
    fn default() -> Self {
        Self {
            brand: "svc".into(),
            instance: Uuid::nil(),
            public_url: "http://127.0.0.1:8402".into(),
            stream_settlement: StreamSettlement::Fixed,
            outcome_retention_ms: 24 * 3_600_000,
            max_stored_bytes: 4 * 1024 * 1024,
            max_stream_ms: 3_600_000,
            slow_reader_ms: 60_000,
            hold_slack_ms: 60_000,
            calls_per_minute: 600,
            reads_per_minute: 120,
            mutations_per_minute: 30,
        }
    }
}
