//! Money as integers.
//!
//! The ledger counts **µUSD** (10⁻⁶ US dollar) in `i64`; prices of single units are **pUSD** (10⁻¹² US
//! dollar) in `i128` while they are multiplied. No float touches money, every operation is checked, and the
//! one rounding of a charge (up) has one home: [`PicoUsd::ceil_micros`].
//!
//! Wire form is the decimal string of specification 2.2. Credits are a presentation of the same integer
//! ([`CreditsPerDollar`]), never a second amount.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// µUSD in one US dollar.
pub const MICROS_PER_USD: i64 = 1_000_000;
/// pUSD in one µUSD.
pub const PICOS_PER_MICRO: i128 = 1_000_000;
/// pUSD in one US dollar.
pub const PICOS_PER_USD: i128 = 1_000_000_000_000;

/// Longest amount string that is looked at: more digits than `i64` µUSD can hold, with room for zeros.
const MAX_AMOUNT_CHARS: usize = 64;

/// Why a decimal amount string was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Not `^[0-9]+(?:[.][0-9]{1,6})?$` in ASCII.
    #[error("must be a decimal string such as \"12.5\" with at most six fractional digits")]
    Format,
    /// Larger than `i64` µUSD can hold.
    #[error("is too large")]
    TooLarge,
    /// A credits amount that is no whole number of µUSD.
    #[error("is not a whole number of millionths of a dollar")]
    NotRepresentable,
}

/// An amount in µUSD. Negative only where a signed ledger balance or a difference is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(i64);

impl Micros {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest amount the ledger can hold.
    pub const MAX: Self = Self(i64::MAX);

    /// An amount of `micros` µUSD.
    pub const fn new(micros: i64) -> Self {
        Self(micros)
    }

    /// The µUSD as an integer.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Sum, or `None` on overflow.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Difference, or `None` on overflow.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// Difference, but never below zero.
    #[must_use]
    pub const fn saturating_sub_zero(self, other: Self) -> Self {
        match self.0.checked_sub(other.0) {
            Some(difference) if difference > 0 => Self(difference),
            _ => Self::ZERO,
        }
    }

    /// Whether the amount is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether the amount is below zero.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Parses a non-negative decimal amount of US dollars (specification 2.2).
    ///
    /// # Errors
    /// [`AmountError::Format`] for anything outside the pattern, [`AmountError::TooLarge`] on overflow.
    pub fn parse_usd(text: &str) -> Result<Self, AmountError> {
        let micros = parse_millionths(text)?;
        i64::try_from(micros)
            .map(Self)
            .map_err(|_overflow| AmountError::TooLarge)
    }
}

/// Parses the amount pattern into millionths, exactly.
fn parse_millionths(text: &str) -> Result<i128, AmountError> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || fraction.is_some_and(|part| !digits(part) || part.len() > 6) {
        return Err(AmountError::Format);
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() > MAX_AMOUNT_CHARS {
        return Err(AmountError::TooLarge);
    }
    let mut value: i128 = 0;
    let fraction = fraction.unwrap_or("");
    let padding = std::iter::repeat_n(b'0', 6_usize.saturating_sub(fraction.len()));
    for byte in whole.bytes().chain(fraction.bytes()).chain(padding) {
        let digit = i128::from(byte.saturating_sub(b'0'));
        value = value
            .checked_mul(10)
            .and_then(|shifted| shifted.checked_add(digit))
            .ok_or(AmountError::TooLarge)?;
    }
    Ok(value)
}

/// Writes `value` millionths as a decimal with trailing zeros trimmed.
fn write_millionths(f: &mut fmt::Formatter<'_>, value: i128) -> fmt::Result {
    let sign = if value < 0 { "-" } else { "" };
    let magnitude = value.unsigned_abs();
    let whole = magnitude.checked_div(1_000_000).unwrap_or(0);
    let fraction = magnitude.checked_rem(1_000_000).unwrap_or(0);
    if fraction == 0 {
        return write!(f, "{sign}{whole}");
    }
    let digits = format!("{fraction:06}");
    write!(f, "{sign}{whole}.{}", digits.trim_end_matches('0'))
}

/// The canonical wire form: `"8"`, `"0.002"`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_millionths(f, i128::from(self.0))
    }
}

impl FromStr for Micros {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse_usd(text)
    }
}

/// Amounts are JSON strings on the wire, never numbers.
impl Serialize for Micros {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AmountVisitor;
        impl serde::de::Visitor<'_> for AmountVisitor {
            type Value = Micros;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal amount string such as \"12.5\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Micros, E> {
                // Signed form, so that stored documents with differences can be read back.
                match text.strip_prefix('-') {
                    Some(magnitude) => Micros::parse_usd(magnitude)
                        .ok()
                        .and_then(|amount| Micros::ZERO.checked_sub(amount))
                        .ok_or_else(|| E::custom(AmountError::Format)),
                    None => Micros::parse_usd(text).map_err(E::custom),
                }
            }
        }
        deserializer.deserialize_str(AmountVisitor)
    }
}

/// How many credits one US dollar is, a tenant's setting: 1..=1000000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct CreditsPerDollar(i64);

impl Default for CreditsPerDollar {
    fn default() -> Self {
        Self(1000)
    }
}

impl TryFrom<i64> for CreditsPerDollar {
    type Error = &'static str;

    fn try_from(value: i64) -> Result<Self, Self::Error> {
        if (1..=1_000_000).contains(&value) {
            Ok(Self(value))
        } else {
            Err("creditsPerDollar must be 1..=1000000")
        }
    }
}

impl From<CreditsPerDollar> for i64 {
    fn from(value: CreditsPerDollar) -> Self {
        value.0
    }
}

impl CreditsPerDollar {
    /// The setting as an integer.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The decimal string of `amount` in credits: `usd × creditsPerDollar`, exact in millionths.
    pub fn credits(self, amount: Micros) -> Credits {
        Credits(i128::from(amount.0).saturating_mul(i128::from(self.0)))
    }

    /// Parses a credits amount into µUSD.
    ///
    /// # Errors
    /// [`AmountError::NotRepresentable`] when it is no whole number of µUSD, else as [`Micros::parse_usd`].
    pub fn parse_credits(self, text: &str) -> Result<Micros, AmountError> {
        let millionths = parse_millionths(text)?;
        let rate = i128::from(self.0);
        if millionths.checked_rem(rate) != Some(0) {
            return Err(AmountError::NotRepresentable);
        }
        millionths
            .checked_div(rate)
            .and_then(|micros| i64::try_from(micros).ok())
            .map(Micros)
            .ok_or(AmountError::TooLarge)
    }
}

/// An amount in millionths of a credit, for display only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits(i128);

impl fmt::Display for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_millionths(f, self.0)
    }
}

impl Serialize for Credits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An exact price in pUSD (10⁻¹² US dollar): the unit in which rates are kept and multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PicoUsd(i128);

impl PicoUsd {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A price of `picos` pUSD.
    pub const fn new(picos: i128) -> Self {
        Self(picos)
    }

    /// The pUSD as an integer.
    pub const fn get(self) -> i128 {
        self.0
    }

    /// The same amount as `micros`.
    pub fn from_micros(micros: Micros) -> Self {
        Self(i128::from(micros.0).saturating_mul(PICOS_PER_MICRO))
    }

    /// Sum, or `None` on overflow.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// This price times `count`, or `None` on overflow.
    pub fn checked_mul(self, count: u64) -> Option<Self> {
        self.0.checked_mul(i128::from(count)).map(Self)
    }

    /// The charge in µUSD, rounded **up**: the one rounding of a price.
    ///
    /// Returns `None` when the charge does not fit the ledger or is negative.
    pub fn ceil_micros(self) -> Option<Micros> {
        if self.0 < 0 {
            return None;
        }
        let whole = self.0.checked_div(PICOS_PER_MICRO)?;
        let up = i128::from(self.0.checked_rem(PICOS_PER_MICRO)? != 0);
        i64::try_from(whole.checked_add(up)?).ok().map(Micros)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Fault matrix 1
    #[test]
    fn valid_amounts_parse_exactly_and_print_canonically() {
        for (input, micros, output) in [
            ("0.000001", 1, "0.000001"),
            ("1", 1_000_000, "1"),
            ("007", 7_000_000, "7"),
            ("1.500000", 1_500_000, "1.5"),
            ("0", 0, "0"),
            ("9223372036854.775807", i64::MAX, "9223372036854.775807"),
        ] {
            let amount = Micros::parse_usd(input).unwrap();
            assert_eq!(
                (amount.get(), amount.to_string().as_str()),
                (micros, output),
                "{input}"
            );
        }
        let sum = Micros::parse_usd("0.1")
            .unwrap()
            .checked_add(Micros::parse_usd("0.2").unwrap())
            .unwrap();
        assert_eq!(sum.to_string(), "0.3");
    }

    // Fault matrix 2, 3, 4, 6
    #[test]
    fn everything_outside_the_pattern_is_refused() {
        for input in [
            "",
            ".",
            ".5",
            "1.",
            "+1",
            "-1",
            "1e3",
            "1,0",
            "1_0",
            " 1",
            "1 ",
            "0x1",
            "NaN",
            "Infinity",
            "1.0\n",
            "1\0",
            "١",
            "１",
            "0.0000001",
            "1.0000000",
            "1.1.1",
        ] {
            assert_eq!(Micros::parse_usd(input), Err(AmountError::Format), "{input:?}");
        }
        for input in [
            "9223372036854.775808".to_owned(),
            "9".repeat(40),
            "9".repeat(4_000_000),
        ] {
            assert_eq!(Micros::parse_usd(&input), Err(AmountError::TooLarge));
        }
    }

    // Fault matrix 5
    #[test]
    fn json_numbers_are_not_amounts() {
        for json in ["1.5", "1", "true", "null", "[\"1\"]"] {
            assert!(serde_json::from_str::<Micros>(json).is_err(), "{json}");
        }
        assert_eq!(
            serde_json::from_str::<Micros>("\"-0.5\"").unwrap(),
            Micros::new(-500_000)
        );
    }

    #[test]
    fn charges_round_up_once() {
        assert_eq!(PicoUsd::new(1).ceil_micros(), Some(Micros::new(1)));
        assert_eq!(PicoUsd::new(1_000_000).ceil_micros(), Some(Micros::new(1)));
        assert_eq!(PicoUsd::new(1_000_001).ceil_micros(), Some(Micros::new(2)));
        assert_eq!(PicoUsd::new(-1).ceil_micros(), None);
        assert_eq!(PicoUsd::new(i128::MAX).ceil_micros(), None);
    }

    proptest! {
        // Fault matrix 1, 14
        #[test]
        fn printing_and_parsing_is_the_identity(micros in 0_i64..) {
            let amount = Micros::new(micros);
            prop_assert_eq!(Micros::parse_usd(&amount.to_string()), Ok(amount));
        }

        // Fault matrix 10
        #[test]
        fn credits_round_trip_never_gains(micros in 0_i64.., rate in prop::sample::select(vec![1, 3, 7, 1000, 1_000_000_i64])) {
            let rate = CreditsPerDollar::try_from(rate).unwrap();
            let amount = Micros::new(micros);
            prop_assert_eq!(rate.parse_credits(&rate.credits(amount).to_string()), Ok(amount));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC*") {
            if let Ok(amount) = Micros::parse_usd(&text) {
                prop_assert!(!amount.is_negative());
            }
        }
    }
}
