//! Prices: what a call costs, what may be held for it, and what the customer pays.
//!
//! Everything here is a plain function over values. Rates are exact ([`PicoUsd`]), a price is a sum of
//! products, and the one rounding (up, to µUSD) happens in [`charge`]. A price that is missing is an error,
//! never zero; a price that is zero on purpose is zero.
//!
//! Where usage comes from (`upstream`), which price applies to a route and when it was frozen (`app`) and
//! where prices are kept (`store`) is left to others.

mod catalogue;
mod decimal;
mod endpoint;
mod explain;
mod expression;
mod litellm;
mod markup;
mod model;
mod rates;
mod seed;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod properties;

pub use catalogue::{Catalogue, PriceChange};
pub(crate) use decimal::Decimal;
pub use decimal::format_usd;
pub use endpoint::{CompiledEndpointPrice, EndpointCost, EndpointPrice};
pub use explain::{Explain, ExplainBase, ExplainInput};
pub use litellm::{Import, ImportWarning, import_litellm};
pub use markup::{Charge, EffectiveMarkup, MAX_MARKUP_BPS, Markup, MarkupLevels, MarkupSource, charge};
pub use model::{DEFAULT_INPUT_OVERHEAD_TOKENS, ModelPrice, Tier};
pub use rates::{Dimension, Rates};
pub use seed::seed;

use crate::money::PicoUsd;

/// Why something could not be priced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// A counted dimension has no price. The call is refused, it is not free.
    #[error("there is no price for {dimension}")]
    Unpriced {
        /// What was counted.
        dimension: Dimension,
    },
    /// The price does not fit the ledger.
    #[error("the price is too large")]
    Overflow,
    /// The caller's arguments give no usable number of units (a 400).
    #[error("{message}")]
    BadArguments {
        /// What is wrong, without the arguments themselves.
        message: String,
    },
    /// The price itself is wrong: a fault of the configuration, not of the caller.
    #[error("{message}")]
    Invalid {
        /// What is wrong, for the operator.
        message: String,
    },
}

impl PriceError {
    fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
        }
    }

    fn bad_arguments(message: impl Into<String>) -> Self {
        Self::BadArguments {
            message: message.into(),
        }
    }
}

/// `a + b`, or [`PriceError::Overflow`].
fn add(a: PicoUsd, b: PicoUsd) -> Result<PicoUsd, PriceError> {
    a.checked_add(b).ok_or(PriceError::Overflow)
}

/// `rate × count`, or [`PriceError::Overflow`].
fn times(rate: PicoUsd, count: u64) -> Result<PicoUsd, PriceError> {
    rate.checked_mul(count).ok_or(PriceError::Overflow)
}
