//! Markup: which configuration level supplies it, and the charge it makes.
//!
//! Percentage and flat part are decided apart, most specific level first. [`charge`] holds the one rounding
//! of money in the product: exact up to there, up to a whole µUSD there.

use serde::{Deserialize, Serialize};

use super::PriceError;
use crate::money::{Micros, PICOS_PER_MICRO, PicoUsd};

/// Largest percentage markup: 1000 %.
pub const MAX_MARKUP_BPS: u32 = 100_000;

/// One in basis points.
const ONE_IN_BPS: i128 = 10_000;

/// What one configuration level says about markup; what it leaves out, a more general level decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "RawMarkup")]
pub struct Markup {
    /// Percentage of the base in basis points, 0..=100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub markup_bps: Option<u32>,
    /// Fixed part per call, not negative.
    #[serde(rename = "flatMarkupUsdc", skip_serializing_if = "Option::is_none")]
    pub flat: Option<Micros>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawMarkup {
    #[serde(default)]
    markup_bps: Option<u32>,
    #[serde(default, rename = "flatMarkupUsdc")]
    flat: Option<Micros>,
}

impl TryFrom<RawMarkup> for Markup {
    type Error = PriceError;

    fn try_from(raw: RawMarkup) -> Result<Self, Self::Error> {
        let markup = Self {
            markup_bps: raw.markup_bps,
            flat: raw.flat,
        };
        markup.validate()?;
        Ok(markup)
    }
}

impl Markup {
    /// Nothing said.
    pub const NONE: Self = Self {
        markup_bps: None,
        flat: None,
    };

    /// Refuses a percentage above [`MAX_MARKUP_BPS`] and a negative flat part.
    ///
    /// # Errors
    /// [`PriceError::Invalid`].
    pub fn validate(&self) -> Result<(), PriceError> {
        if self.markup_bps.is_some_and(|bps| bps > MAX_MARKUP_BPS) {
            return Err(PriceError::invalid(format!(
                "markupBps must be 0..={MAX_MARKUP_BPS}"
            )));
        }
        if self.flat.is_some_and(Micros::is_negative) {
            return Err(PriceError::invalid("flatMarkupUsdc must not be negative"));
        }
        Ok(())
    }
}

/// The configuration level that supplied a markup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkupSource {
    /// The API key's own pricing.
    Key,
    /// The tenant's setting for the endpoint.
    Endpoint,
    /// The tenant's setting for the provider.
    Provider,
    /// The tenant's general setting, or nobody at all.
    Global,
}

/// What each level says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkupLevels {
    /// The API key's own pricing.
    pub key: Markup,
    /// The tenant's setting for the endpoint.
    pub endpoint: Markup,
    /// The tenant's setting for the provider.
    pub provider: Markup,
    /// The tenant's general setting.
    pub global: Markup,
}

/// The markup that applies, and who said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectiveMarkup {
    /// Percentage of the base in basis points.
    pub bps: u32,
    /// Fixed part per call.
    pub flat: Micros,
    /// Who supplied the percentage.
    pub markup_source: MarkupSource,
    /// Who supplied the fixed part.
    pub flat_source: MarkupSource,
    /// Whether some level above the general one supplied either.
    pub overridden: bool,
}

impl EffectiveMarkup {
    /// No markup: what a call costs that the tenant's own pool pays.
    pub const NONE: Self = Self {
        bps: 0,
        flat: Micros::ZERO,
        markup_source: MarkupSource::Global,
        flat_source: MarkupSource::Global,
        overridden: false,
    };
}

impl MarkupLevels {
    /// Picks the most specific level, for the percentage and the fixed part apart. When no level supplies one
    /// it is 0 with the source `global`.
    pub fn resolve(&self) -> EffectiveMarkup {
        let levels = [
            (MarkupSource::Key, &self.key),
            (MarkupSource::Endpoint, &self.endpoint),
            (MarkupSource::Provider, &self.provider),
            (MarkupSource::Global, &self.global),
        ];
        let (markup_source, bps) = levels
            .into_iter()
            .find_map(|(source, level)| Some((source, level.markup_bps?)))
            .unwrap_or((MarkupSource::Global, 0));
        let (flat_source, flat) = levels
            .into_iter()
            .find_map(|(source, level)| Some((source, level.flat?)))
            .unwrap_or((MarkupSource::Global, Micros::ZERO));
        let overridden = [markup_source, flat_source]
            .into_iter()
            .any(|source| source != MarkupSource::Global);
        EffectiveMarkup {
            bps,
            flat,
            markup_source,
            flat_source,
            overridden,
        }
    }
}

/// What the customer pays and of what it is made up: `base + markup + flat = effective`,
/// `margin = markup + flat`, all in whole µUSD and none negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The provider's price, rounded up.
    pub base: Micros,
    /// The percentage markup: what is left of the margin beside the fixed part.
    pub markup: Micros,
    /// The fixed part.
    pub flat: Micros,
    /// The tenant's share.
    pub margin: Micros,
    /// What the customer pays.
    pub effective: Micros,
}

/// Turns an exact base price into a charge. `base × (1 + bps)` is rounded up once, the fixed part is added.
///
/// # Errors
/// [`PriceError::Overflow`] when it does not fit the ledger, [`PriceError::Invalid`] for negative input.
pub fn charge(base: PicoUsd, markup: &EffectiveMarkup) -> Result<Charge, PriceError> {
    if base < PicoUsd::ZERO || markup.flat.is_negative() {
        return Err(PriceError::invalid("a price must not be negative"));
    }
    let factor = ONE_IN_BPS
        .checked_add(i128::from(markup.bps))
        .ok_or(PriceError::Overflow)?;
    let scaled = base.get().checked_mul(factor).ok_or(PriceError::Overflow)?;
    let divisor = ONE_IN_BPS
        .checked_mul(PICOS_PER_MICRO)
        .ok_or(PriceError::Overflow)?;
    let marked_up = ceil_div(scaled, divisor).ok_or(PriceError::Overflow)?;
    let base = base.ceil_micros().ok_or(PriceError::Overflow)?;
    let effective = marked_up.checked_add(markup.flat).ok_or(PriceError::Overflow)?;
    // INVARIANT: both parts of the margin are differences of the rounded amounts, so that the parts add up.
    let margin = effective.checked_sub(base).ok_or(PriceError::Overflow)?;
    let percentage = margin.checked_sub(markup.flat).ok_or(PriceError::Overflow)?;
    Ok(Charge {
        base,
        markup: percentage,
        flat: markup.flat,
        margin,
        effective,
    })
}

fn ceil_div(value: i128, divisor: i128) -> Option<Micros> {
    let up = i128::from(value.checked_rem(divisor)? != 0);
    let micros = value.checked_div(divisor)?.checked_add(up)?;
    i64::try_from(micros).ok().map(Micros::new)
}
