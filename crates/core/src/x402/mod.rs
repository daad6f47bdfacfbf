//! x402 version 2: what is said between a caller that pays call by call, this service and a facilitator.
//!
//! [`wire`] has the protocol's own types with its own names, [`evm`] what a payer signs on an EVM chain. What a
//! message means for money is decided in [`crate::ledger::paid_call`]; who is asked stands in `upstream`.
//! Source: the x402 specification, version 2, and the packages `@x402/core` and `@x402/evm` 2.27.0.

pub mod evm;
mod read;
#[cfg(test)]
mod tests;
pub mod wire;

pub use evm::{Address, Authorization, Scheme, chain_id};
pub use wire::{
    PaymentPayload, PaymentRequired, PaymentRequirements, ResourceInfo, SettleResponse, Supported,
    SupportedKind, VerifyResponse, X402_VERSION,
};

/// The message is none of the protocol's, or lacks something; the text names what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}
