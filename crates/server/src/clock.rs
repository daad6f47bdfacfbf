//! The one place that reads the clock and draws randomness.

use rand::RngCore as _;
use turnpike_app::Environment;
use turnpike_core::time::Timestamp;
use uuid::Uuid;

/// The real environment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemEnvironment;

impl Environment for SystemEnvironment {
    #[expect(clippy::disallowed_methods, reason = "the clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "the source of ids")]
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn random_32(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        rand::rng().fill_bytes(&mut bytes);
        bytes
    }
}

/// A fresh request id.
#[expect(clippy::disallowed_methods, reason = "the source of request ids")]
pub(crate) fn request_id() -> Uuid {
    Uuid::new_v4()
}
