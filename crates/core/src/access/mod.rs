//! Who may do what: key formats, scopes, roles.

mod agent;
mod key;
mod scope;
mod step_up;

pub use agent::{AgentScope, AgentSecret, AgentSecretKind};
pub use key::{KeyFormatError, KeyHash, KeyKind, KeyPepper, KeySecret, MAX_KEY_CHARS};
pub use scope::{Role, Scope};
pub use step_up::StepUpSecret;
