//! What the benchmarks share: a load generator, process figures, and the service under test.
//!
//! Nothing here is part of the product. Figures are floats, and money is never one of them.

#![allow(
    clippy::float_arithmetic,
    reason = "rates and percentiles are figures, never money"
)]
#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are rounded for a table anyway"
)]

pub mod client;
pub mod clock;
pub mod disk;
pub mod figures;
pub mod ledger;
pub mod load;
pub mod machine;
pub mod process;
pub mod service;
pub mod sse;
pub mod streams;
pub mod webhooks;

/// Any failure: a benchmark reports it and ends.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// What can fail.
pub type Result<T> = std::result::Result<T, Failure>;
