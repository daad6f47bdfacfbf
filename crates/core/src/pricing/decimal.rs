//! Exact decimals: how prices are read and written without floats.
//!
//! Two written forms. **Per million**: US dollars per million tokens, at most six fractional digits, so that
//! `"0.14"` is 140000 pUSD per token. **Per unit**: US dollars for one unit, at most twelve fractional
//! digits. Both are strings in TOML and JSON and non-negative; a number is refused, because a parser would
//! already have made a float of it.

use std::fmt;

use serde::{Deserializer, Serializer, de};

use super::PriceError;
use crate::money::PicoUsd;

/// Longest number that is looked at. `f64` residue needs 17 digits.
const MAX_CHARS: usize = 64;
/// pUSD in a US dollar, as a power of ten.
pub(super) const PER_UNIT_DIGITS: u32 = 12;
/// pUSD per token for one US dollar per million tokens, as a power of ten.
pub(super) const PER_MILLION_DIGITS: u32 = 6;

/// A number exactly as it was written: `coefficient × 10^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    coefficient: i128,
    exponent: i64,
}

impl Decimal {
    /// Reads a JSON number (`-1.5e-7`). `None` when `text` is something else or has too many digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_CHARS {
            return None;
        }
        let (negative, magnitude) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (number, exponent) = magnitude
            .split_once(['e', 'E'])
            .map_or((magnitude, None), |(n, e)| (n, Some(e)));
        let (whole, fraction) = number
            .split_once('.')
            .map_or((number, None), |(w, f)| (w, Some(f)));
        if !is_digits(whole) || fraction.is_some_and(|digits| !is_digits(digits)) {
            return None;
        }
        let fraction = fraction.unwrap_or("");
        let mut coefficient: i128 = 0;
        for byte in whole.bytes().chain(fraction.bytes()) {
            let digit = i128::from(byte.saturating_sub(b'0'));
            coefficient = coefficient.checked_mul(10)?.checked_add(digit)?;
        }
        if negative {
            coefficient = coefficient.checked_neg()?;
        }
        let shift = i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.map_or(Some(0), parse_exponent)?.checked_sub(shift)?;
        Some(Self {
            coefficient,
            exponent,
        })
    }

    /// Whether the number is below zero.
    pub(crate) const fn is_negative(self) -> bool {
        self.coefficient < 0
    }

    /// The number times `10^digits` as an integer, rounded half up, and whether that was exact. For
    /// non-negative numbers; `None` when it does not fit.
    pub(crate) fn scaled(self, digits: u32) -> Option<(i128, bool)> {
        if self.coefficient == 0 {
            return Some((0, true));
        }
        let exponent = self.exponent.checked_add(i64::from(digits))?;
        let power = u32::try_from(exponent.unsigned_abs())
            .ok()
            .and_then(|e| 10_i128.checked_pow(e));
        if exponent >= 0 {
            return self.coefficient.checked_mul(power?).map(|value| (value, true));
        }
        let Some(divisor) = power else {
            // Smaller than any coefficient can make up for.
            return Some((0, false));
        };
        let quotient = self.coefficient.checked_div(divisor)?;
        let remainder = self.coefficient.checked_rem(divisor)?;
        let up = i128::from(remainder >= divisor.checked_sub(remainder)?);
        Some((quotient.checked_add(up)?, remainder == 0))
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn parse_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !is_digits(digits) || digits.len() > 6 {
        return None;
    }
    let value: i64 = digits.parse().ok()?;
    if text.starts_with('-') {
        value.checked_neg()
    } else {
        Some(value)
    }
}

/// Parses a non-negative decimal price with at most `digits` fractional digits into pUSD.
fn parse_price(text: &str, digits: u32) -> Result<PicoUsd, PriceError> {
    let malformed = || {
        let text: String = text.chars().take(MAX_CHARS).collect();
        PriceError::invalid(format!(
            "{text:?} is no price: write US dollars as a string such as \"0.14\" with at most {digits} fractional digits"
        ))
    };
    if text.bytes().any(|byte| !byte.is_ascii_digit() && byte != b'.') {
        return Err(malformed());
    }
    match Decimal::parse(text).and_then(|number| number.scaled(digits)) {
        Some((picos, true)) => Ok(PicoUsd::new(picos)),
        Some((_, false)) | None => Err(malformed()),
    }
}

/// `picos / 10^digits` as a decimal with trailing zeros trimmed.
fn format_price(price: PicoUsd, digits: u32) -> String {
    let sign = if price.get() < 0 { "-" } else { "" };
    let width = usize::try_from(digits).unwrap_or_default();
    let text = format!(
        "{:0>width$}",
        price.get().unsigned_abs(),
        width = width.saturating_add(1)
    );
    let (whole, fraction) = text.split_at(text.len().saturating_sub(width));
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

/// A price in US dollars, exact: `"0.00000014"`.
pub fn format_usd(price: PicoUsd) -> String {
    format_price(price, PER_UNIT_DIGITS)
}

/// A price per token in US dollars per million tokens, exact: `"0.14"`.
pub(super) fn format_per_million(price: PicoUsd) -> String {
    format_price(price, PER_MILLION_DIGITS)
}

struct PriceVisitor {
    digits: u32,
}

impl de::Visitor<'_> for PriceVisitor {
    type Value = PicoUsd;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a price as a decimal string such as \"0.14\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PicoUsd, E> {
        parse_price(text, self.digits).map_err(E::custom)
    }
}

/// Serde form of an optional price per token: US dollars per million.
pub(super) mod per_million {
    use super::{Deserializer, PER_MILLION_DIGITS, PicoUsd, PriceVisitor, Serializer, format_per_million};

    #[expect(clippy::ref_option, reason = "the signature serde calls")]
    pub(in crate::pricing) fn serialize<S: Serializer>(
        price: &Option<PicoUsd>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        match price {
            Some(price) => s.serialize_str(&format_per_million(*price)),
            None => s.serialize_none(),
        }
    }

    pub(in crate::pricing) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<PicoUsd>, D::Error> {
        d.deserialize_str(PriceVisitor {
            digits: PER_MILLION_DIGITS,
        })
        .map(Some)
    }
}

/// Serde form of an optional price of one unit: US dollars.
pub(super) mod per_unit_option {
    use super::{Deserializer, PER_UNIT_DIGITS, PicoUsd, PriceVisitor, Serializer, format_usd};

    #[expect(clippy::ref_option, reason = "the signature serde calls")]
    pub(in crate::pricing) fn serialize<S: Serializer>(
        price: &Option<PicoUsd>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        match price {
            Some(price) => s.serialize_str(&format_usd(*price)),
            None => s.serialize_none(),
        }
    }

    pub(in crate::pricing) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<PicoUsd>, D::Error> {
        d.deserialize_str(PriceVisitor {
            digits: PER_UNIT_DIGITS,
        })
        .map(Some)
    }
}

/// Serde form of a price of one unit: US dollars.
pub(super) mod per_unit {
    use super::{Deserializer, PER_UNIT_DIGITS, PicoUsd, PriceVisitor, Serializer, format_usd};

    pub(in crate::pricing) fn serialize<S: Serializer>(price: &PicoUsd, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format_usd(*price))
    }

    pub(in crate::pricing) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<PicoUsd, D::Error> {
        d.deserialize_str(PriceVisitor {
            digits: PER_UNIT_DIGITS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_exactly_as_they_are_written() {
        for (text, digits, expected) in [
            ("0", 12, Some((0, true))),
            ("0.0", 12, Some((0, true))),
            ("0e999999", 12, Some((0, true))),
            ("1.4e-07", 12, Some((140_000, true))),
            ("1.4E-7", 12, Some((140_000, true))),
            ("0.00000014", 12, Some((140_000, true))),
            // What an IEEE double prints for 2e-7 + noise: the price meant is 200000 pUSD.
            ("2.0000000000000002e-07", 12, Some((200_000, false))),
            ("8.900000000000001e-07", 12, Some((890_000, false))),
            ("1.5e-12", 12, Some((2, false))),
            ("1.4e-12", 12, Some((1, false))),
            ("1e-60", 12, Some((0, false))),
            ("1e3", 0, Some((1000, true))),
            ("256000.0", 0, Some((256_000, true))),
            ("1e40", 12, None),
        ] {
            assert_eq!(
                Decimal::parse(text).and_then(|number| number.scaled(digits)),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn anything_but_a_json_number_is_refused() {
        let long = "1".repeat(65);
        for text in [
            "",
            "-",
            ".5",
            "1.",
            "+1",
            "1e",
            "1e+",
            "1e9999999",
            "0x1",
            "NaN",
            "1_0",
            " 1",
            "\"1\"",
            "null",
            &long,
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
        assert!(Decimal::parse("-0.1").unwrap().is_negative());
        assert!(!Decimal::parse("-0").unwrap().is_negative());
    }

    #[test]
    fn prices_are_plain_decimals_and_print_as_they_were_written() {
        for (text, digits, picos) in [
            ("0.14", 6, 140_000),
            ("0", 6, 0),
            ("15", 6, 15_000_000),
            ("0.000001", 6, 1),
        ] {
            let price = parse_price(text, digits).unwrap();
            assert_eq!((price.get(), format_price(price, digits).as_str()), (picos, text));
        }
        for text in ["-1", "1e3", "0.0000001", "", ".1", "1.", "+1", "1,0", "١"] {
            assert!(parse_price(text, 6).is_err(), "{text}");
        }
        assert_eq!(format_usd(PicoUsd::new(140_000)), "0.00000014");
        assert_eq!(format_usd(PicoUsd::new(-1)), "-0.000000000001");
    }
}
