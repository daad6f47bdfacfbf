//! Who may do what: key formats, scopes, roles.

mod key;
mod scope;
mod step_up;

pub use key::{KeyFormatError, KeyHash, KeyKind, KeyPepper, KeySecret, MAX_KEY_CHARS};
pub use scope::{Role, Scope};
pub use step_up::StepUpSecret;
