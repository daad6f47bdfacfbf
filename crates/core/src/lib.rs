//! The rules of Turnpike: money, ledger, pricing, access and lifecycles.
//!
//! Nothing here does I/O, is async, reads a clock or draws randomness: times and ids are arguments. What
//! this crate decides, the store persists, the app sequences and the server speaks.

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::arithmetic_side_effects, clippy::indexing_slicing)]

pub mod access;
pub mod costs;
pub mod errors;
pub mod ids;
mod json;
pub mod ledger;
pub mod money;
pub mod oauth;
pub mod pricing;
pub mod time;
pub mod topup;
pub mod usage;
pub mod webhook;
pub mod x402;
