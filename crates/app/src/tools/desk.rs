//! Who asks about tools.

use turnpike_core::ledger::Payer;

use crate::auth::Actor;

/// Who asks about tools, and whose balance a call would be paid from.
#[derive(Clone, Debug)]
pub struct ToolCaller {
    /// Who asks.
    pub actor: Actor,
    /// Whose balance would pay.
    pub payer: Payer,
}
