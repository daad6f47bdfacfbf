//! Prices that a provider quotes: read from their raw digits, never through a float.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use turnpike_core::money::{Micros, PicoUsd};

/// The price that a JSON pointer leads to, in µUSD, rounded up.
pub(super) fn price_at(json: &str, pointer: &str) -> Option<Micros> {
    let mut raw: &RawValue = serde_json::from_str(json).ok()?;
    let mut steps = pointer.split('/');
    if steps.next() != Some("") {
        return None;
    }
    for step in steps {
        let step = step.replace("~1", "/").replace("~0", "~");
        raw = if raw.get().starts_with('{') {
            serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(raw.get())
                .ok()?
                .get(step.as_str())
                .copied()?
        } else {
            let items = serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok()?;
            items.get(step.parse::<usize>().ok()?).copied()?
        };
    }
    if raw.get().starts_with('"') {
        return price(&serde_json::from_str::<String>(raw.get()).ok()?);
    }
    price(raw.get())
}

/// Reads a decimal (with or without an exponent) of US dollars exactly and rounds up to µUSD, once.
pub fn price(text: &str) -> Option<Micros> {
    const PICO_DIGITS: i32 = 12;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || (mantissa.contains('.') && fraction.is_empty()) || text.len() > 64 {
        return None;
    }
    // Value = digits × 10^-places.
    let places = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    let mut picos: i128 = 0;
    let mut below = false;
    let mut place = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    for byte in whole.bytes().chain(fraction.bytes()) {
        let digit = i128::from(char::from(byte).to_digit(10)?);
        place = place.checked_sub(1)?;
        if place < -PICO_DIGITS {
            below |= digit != 0;
        } else {
            picos = picos.checked_mul(10)?.checked_add(digit)?;
        }
    }
    for _ in places.min(PICO_DIGITS)..PICO_DIGITS {
        if picos == 0 {
            break;
        }
        picos = picos.checked_mul(10)?;
    }
    PicoUsd::new(picos.checked_add(i128::from(below))?).ceil_micros()
}
