//! Top-ups: credits bought with money from outside.
//!
//! Rules only: what a purchase costs and brings, and what part of it a refund takes back. Sessions and
//! processor events (`app`), their rows (`store`) and the processor itself (`upstream`) are left to others.

pub mod quote;

#[cfg(test)]
mod properties;

pub use quote::{
    Bonus, BonusTier, FeeMode, FeeSchedule, MAX_BONUS_BPS, MAX_FEE_RATE_BPS, Quote, QuoteError, QuoteRules,
    RulesError, quote, returned,
};
