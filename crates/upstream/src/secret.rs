//! A provider's API key.
//!
//! It has no `Display`, its `Debug` prints a placeholder, and it is read in one place only: where the
//! `authorization` header is built. Where keys come from is the configuration's business.

use std::fmt;
use std::sync::Arc;

/// A secret string that never prints itself. Cloning shares the one allocation.
#[derive(Clone)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps `secret`.
    pub fn new(secret: impl Into<Arc<str>>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the one header that carries it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self::new(secret)
    }
}

impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}
