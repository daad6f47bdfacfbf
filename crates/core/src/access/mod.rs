//! Who may do what: key formats, scopes, roles.

mod key;
mod scope;

pub use key::{KeyFormatError, KeyHash, KeyKind, KeyPepper, KeySecret, MAX_KEY_CHARS};
pub use scope::{Role, Scope};
