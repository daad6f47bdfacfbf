//! Prices of single units, one per dimension of [`Usage`](crate::usage::Usage).
//!
//! The rule kept here: `None` is "nobody said", `Some(0)` is "free on purpose", and only three dimensions
//! fall back to another one. Audio and images never do.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::decimal::{format_per_million, format_usd, per_million, per_unit_option};
use super::{PriceError, add, times};
use crate::money::PicoUsd;
use crate::usage::Usage;

/// What is counted and priced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Prompt tokens outside any cache.
    Input,
    /// Prompt tokens read from the provider's cache.
    CachedInput,
    /// Prompt tokens written to the provider's cache.
    CacheWrite,
    /// Visible completion tokens.
    Output,
    /// Hidden reasoning tokens.
    Reasoning,
    /// Audio tokens in the prompt.
    AudioInput,
    /// Audio tokens in the completion.
    AudioOutput,
    /// Images in the prompt, by the piece.
    Image,
    /// The call itself.
    PerCall,
    /// Units of a metered tool.
    Units,
}

impl Dimension {
    /// The name used in price files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::CachedInput => "cached_input",
            Self::CacheWrite => "cache_write",
            Self::Output => "output",
            Self::Reasoning => "reasoning",
            Self::AudioInput => "audio_input",
            Self::AudioOutput => "audio_output",
            Self::Image => "image",
            Self::PerCall => "per_call",
            Self::Units => "units",
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Prices per unit. Written as decimal strings: token rates in US dollars per **million** tokens (at most six
/// fractional digits), `image` and `per_call` in US dollars each (at most twelve).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rates {
    /// Prompt tokens outside any cache.
    #[serde(with = "per_million", skip_serializing_if = "Option::is_none")]
    pub input: Option<PicoUsd>,
    /// Prompt tokens read from a cache. Missing: as `input`.
    #[serde(with = "per_million", skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<PicoUsd>,
    /// Prompt tokens written to a cache. Missing: as `input`.
    #[serde(with = "per_million", skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<PicoUsd>,
    /// Visible completion tokens.
    #[serde(with = "per_million", skip_serializing_if = "Option::is_none")]
    pub output: Option<PicoUsd>,
    /// Hidden reasoning tokens. Missing: as `output`.
    #[serde(with = "per_million", skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<PicoUsd>,
    /// Audio tokens in the prompt. No fallback.
    #[serde(with = "per_million", skip_serializing_if = "Option::is_none")]
    pub audio_input: Option<PicoUsd>,
    /// Audio tokens in the completion. No fallback.
    #[serde(with = "per_million", skip_serializing_if = "Option::is_none")]
    pub audio_output: Option<PicoUsd>,
    /// One image in the prompt. No fallback.
    #[serde(with = "per_unit_option", skip_serializing_if = "Option::is_none")]
    pub image: Option<PicoUsd>,
    /// One call. Missing: calls have no price of their own.
    #[serde(with = "per_unit_option", skip_serializing_if = "Option::is_none")]
    pub per_call: Option<PicoUsd>,
}

impl Rates {
    /// The rate that stands in the table for `dimension`, without fallbacks.
    pub const fn get(&self, dimension: Dimension) -> Option<PicoUsd> {
        match dimension {
            Dimension::Input => self.input,
            Dimension::CachedInput => self.cached_input,
            Dimension::CacheWrite => self.cache_write,
            Dimension::Output => self.output,
            Dimension::Reasoning => self.reasoning,
            Dimension::AudioInput => self.audio_input,
            Dimension::AudioOutput => self.audio_output,
            Dimension::Image => self.image,
            Dimension::PerCall => self.per_call,
            Dimension::Units => None,
        }
    }

    /// The rate that `dimension` is charged at, fallbacks included.
    ///
    /// # Errors
    /// [`PriceError::Unpriced`] when there is none.
    pub fn rate(&self, dimension: Dimension) -> Result<PicoUsd, PriceError> {
        let rate = match dimension {
            Dimension::CachedInput => self.cached_input.or(self.input),
            Dimension::CacheWrite => self.cache_write.or(self.input),
            Dimension::Reasoning => self.reasoning.or(self.output),
            Dimension::PerCall => Some(self.per_call.unwrap_or(PicoUsd::ZERO)),
            Dimension::Input
            | Dimension::Output
            | Dimension::AudioInput
            | Dimension::AudioOutput
            | Dimension::Image
            | Dimension::Units => self.get(dimension),
        };
        rate.ok_or(PriceError::Unpriced { dimension })
    }

    /// These rates, with every rate that `over` has put in place of the own one.
    #[must_use]
    pub fn overridden_by(&self, over: &Self) -> Self {
        Self {
            input: over.input.or(self.input),
            cached_input: over.cached_input.or(self.cached_input),
            cache_write: over.cache_write.or(self.cache_write),
            output: over.output.or(self.output),
            reasoning: over.reasoning.or(self.reasoning),
            audio_input: over.audio_input.or(self.audio_input),
            audio_output: over.audio_output.or(self.audio_output),
            image: over.image.or(self.image),
            per_call: over.per_call.or(self.per_call),
        }
    }

    /// The exact price of `usage` at these rates.
    pub(super) fn cost(&self, usage: &Usage) -> Result<PicoUsd, PriceError> {
        // INVARIANT: every count of `Usage` stands here once, so that a unit is neither charged twice nor free
        // by accident.
        let counts = [
            (Dimension::Input, usage.input),
            (Dimension::CachedInput, usage.cached_input),
            (Dimension::CacheWrite, usage.cache_write),
            (Dimension::Output, usage.output),
            (Dimension::Reasoning, usage.reasoning),
            (Dimension::AudioInput, usage.audio_input),
            (Dimension::AudioOutput, usage.audio_output),
            (Dimension::Image, usage.images),
            (Dimension::Units, usage.units),
        ];
        let mut total = self.rate(Dimension::PerCall)?;
        for (dimension, count) in counts {
            if count > 0 {
                total = add(total, times(self.rate(dimension)?, count)?)?;
            }
        }
        Ok(total)
    }

    /// The dearest a prompt token without audio can be.
    pub(super) fn dearest_prompt_token(&self) -> Result<PicoUsd, PriceError> {
        let cached = self.rate(Dimension::CachedInput)?;
        let written = self.rate(Dimension::CacheWrite)?;
        Ok(self.rate(Dimension::Input)?.max(cached).max(written))
    }

    /// The dearest a completion token without audio can be.
    pub(super) fn dearest_completion_token(&self) -> Result<PicoUsd, PriceError> {
        Ok(self
            .rate(Dimension::Output)?
            .max(self.rate(Dimension::Reasoning)?))
    }

    /// The rates that are there, with their dimension and written form.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Dimension, PicoUsd, String)> + '_ {
        [
            Dimension::Input,
            Dimension::CachedInput,
            Dimension::CacheWrite,
            Dimension::Output,
            Dimension::Reasoning,
            Dimension::AudioInput,
            Dimension::AudioOutput,
            Dimension::Image,
            Dimension::PerCall,
        ]
        .into_iter()
        .filter_map(|dimension| {
            let rate = self.get(dimension)?;
            let text = if matches!(dimension, Dimension::Image | Dimension::PerCall) {
                format!("{} USD each", format_usd(rate))
            } else {
                format!("{} USD per million tokens", format_per_million(rate))
            };
            Some((dimension, rate, text))
        })
    }

    /// Refuses negative rates, which only code can make.
    pub(super) fn validate(&self) -> Result<(), PriceError> {
        match self.entries().find(|(_, rate, _)| *rate < PicoUsd::ZERO) {
            Some((dimension, _, text)) => Err(PriceError::invalid(format!(
                "the price of {dimension} is negative: {text}"
            ))),
            None => Ok(()),
        }
    }
}
