//! Who verifies and settles payments of paid calls: a facilitator over HTTP with the chain behind it, or a simulated
//! one inside the process.
//!
//! The rule: whatever is no clear verdict is unknown, never a refusal. A settlement that was refused, or of which
//! nothing is known, is looked up on the chain before anybody is told that nothing was paid.

mod answer;
#[cfg(test)]
mod answer_tests;
mod chain;
mod eip712;
#[cfg(test)]
mod eip712_tests;
mod http;
#[cfg(test)]
mod http_tests;
#[cfg(any(test, feature = "testing"))]
mod paying;
#[cfg(test)]
mod rig_tests;
mod simulated;
#[cfg(test)]
mod stand_in;

use std::fmt;

use async_trait::async_trait;
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{
    Authorization, Malformed, PaymentPayload, PaymentRequirements, SettleResponse, Supported,
};

pub use chain::{ChainReader, ChainSettings};
pub use eip712::{PayerKey, SignatureFault, TokenDomain, mpp_nonce, recover, signed_digest};
pub use http::{FacilitatorSettings, HttpFacilitator};
#[cfg(any(test, feature = "testing"))]
pub use paying::Terms;
pub use simulated::{Clock, SimulatedFacilitator, SimulatedSettings};

/// A payment as a facilitator gets it: without what is ours in `extra` and `extensions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedPayment {
    /// What the payer signed.
    pub payload: PaymentPayload,
    /// The same as it was read.
    pub authorization: Authorization,
    /// What is required; at the settlement of `upto` its `amount` is what is settled.
    pub requirements: PaymentRequirements,
}

impl SignedPayment {
    /// Reads what was signed.
    ///
    /// # Errors
    /// [`Malformed`] names the member that is missing or has another form.
    pub fn read(payload: PaymentPayload, requirements: PaymentRequirements) -> Result<Self, Malformed> {
        Ok(Self {
            authorization: Authorization::read(&payload)?,
            payload,
            requirements,
        })
    }
}

/// What a facilitator says of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can be settled as things are.
    Valid,
    /// It cannot.
    Invalid {
        /// The facilitator's code.
        reason: String,
        /// The same for people.
        message: Option<String>,
    },
    /// There was no verdict; why, for the log.
    Unknown(String),
}

/// What a facilitator says of a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is done.
    Done(SettleResponse),
    /// It says that it is not, for a reason that was there before anything was sent. Only the chain knows.
    Refused(SettleResponse),
    /// There was no verdict; why, for the log.
    Unknown(String),
}

/// What the chain says of an authorisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was not used, and can be while the chain's clock is before its end.
    Open,
    /// It was not used, and the chain's clock is past its end.
    Expired,
    /// It was used to pay us.
    Paid {
        /// The transaction's hash.
        transaction: String,
        /// In base units.
        amount: u64,
    },
    /// It was used up without paying us, and cannot pay us any more.
    Void,
}

/// A facilitator or its chain could not be asked; why, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FacilitatorError(pub String);

/// Verifies and settles payments. One call is at most one request on the wire; [`Self::fate`] alone, which changes
/// nothing, asks as often as it has to.
#[async_trait]
pub trait Facilitator: Send + Sync + fmt::Debug {
    /// What it can do.
    async fn supported(&self) -> Result<Supported, FacilitatorError>;
    /// Whether `payment` can be settled as things are. Locks nothing.
    async fn verify(&self, payment: &SignedPayment) -> Verdict;
    /// Settles `payment` for its requirements' amount, more than zero. There is no idempotency in it: see [`Self::fate`].
    async fn settle(&self, payment: &SignedPayment) -> Settled;
    /// What became of an authorisation that was first seen at `since`.
    async fn fate(&self, authorization: &Authorization, since: Timestamp) -> Result<Fate, FacilitatorError>;
    /// Whether no money moves.
    fn is_simulated(&self) -> bool;
    /// Whether a verdict costs less than looking a payment up, because nobody else is asked for it.
    fn verifies_here(&self) -> bool {
        false
    }
}
