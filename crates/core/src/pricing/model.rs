//! The price of a model, with its context tiers and the limits a hold is computed from.
//!
//! The rules kept here: a context tier applies to the **whole** request as soon as the prompt is longer than
//! its threshold (exactly at the threshold the cheaper rates still hold), and [`ModelPrice::bound`] is never
//! below [`ModelPrice::cost`] of a call within the same limits.

use serde::{Deserialize, Serialize};

use super::rates::{Dimension, Rates};
use super::{PriceError, add, times};
use crate::money::PicoUsd;
use crate::usage::Usage;

/// Tokens a provider's chat template may add beyond the bytes of a request, unless a price says otherwise.
pub const DEFAULT_INPUT_OVERHEAD_TOKENS: u64 = 64;

/// Longest provider or model name.
const MAX_NAME_CHARS: usize = 200;

/// Rates that replace the base rates, dimension by dimension, for long prompts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// The tier applies to requests with **more** prompt tokens than this.
    pub above_prompt_tokens: u64,
    /// The rates that change; the others stay as they are in the base or in the tier below.
    pub rates: Rates,
}

/// What a model costs and what it accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// The upstream that serves the model, as configured.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
    /// Longest prompt and completion together, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_length: Option<u64>,
    /// Longest completion, in tokens, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Whether the model spends completion tokens on hidden reasoning.
    #[serde(default)]
    pub reasoning: bool,
    /// Fewer completion tokens than this are likely to be eaten up by reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommended_min_output_tokens: Option<u64>,
    /// The most input tokens one image can cost. Missing, and no `image` rate: images are not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_image_tokens: Option<u64>,
    /// Tokens the provider's template may add beyond the bytes of the request.
    #[serde(default = "default_input_overhead")]
    pub input_overhead_tokens: u64,
    /// Whether the model completes in the middle of a text.
    #[serde(default)]
    pub fim: bool,
    /// Where the price comes from.
    #[serde(default)]
    pub source: String,
    /// What an operator should know about the price.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The base rates.
    pub rates: Rates,
    /// Context tiers, thresholds ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
}

const fn default_input_overhead() -> u64 {
    DEFAULT_INPUT_OVERHEAD_TOKENS
}

impl ModelPrice {
    /// A price without limits, tiers or extras.
    pub fn new(provider: impl Into<String>, model: impl Into<String>, rates: Rates) -> Self {
        Self {
            provider: provider.into(),
            model: model.into(),
            context_length: None,
            max_output_tokens: None,
            reasoning: false,
            recommended_min_output_tokens: None,
            max_image_tokens: None,
            input_overhead_tokens: DEFAULT_INPUT_OVERHEAD_TOKENS,
            fim: false,
            source: String::new(),
            warnings: Vec::new(),
            rates,
            tiers: Vec::new(),
        }
    }

    /// `provider/model`, unique in a catalogue.
    pub fn id(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    /// Whether images may be sent: there is a price that bounds them.
    pub const fn accepts_images(&self) -> bool {
        self.max_image_tokens.is_some() || self.rates.image.is_some()
    }

    /// The rates of a request with `prompt_tokens` tokens in its prompt.
    pub fn rates_for(&self, prompt_tokens: u64) -> Rates {
        self.tiers
            .iter()
            .filter(|tier| prompt_tokens > tier.above_prompt_tokens)
            .fold(self.rates, |rates, tier| rates.overridden_by(&tier.rates))
    }

    /// The exact price of `usage`, not rounded.
    ///
    /// # Errors
    /// [`PriceError::Unpriced`] when something was counted that has no price, [`PriceError::Overflow`].
    pub fn cost(&self, usage: &Usage) -> Result<PicoUsd, PriceError> {
        self.rates_for(usage.prompt_tokens()).cost(usage)
    }

    /// An upper bound of the prompt tokens of a request with `text_bytes` bytes of UTF-8 and `images` images.
    /// Bytes bound tokens from above, because every token is at least one byte of the request or of the template.
    ///
    /// # Errors
    /// [`PriceError::Unpriced`] for images that the model has no price for, [`PriceError::Overflow`].
    pub fn input_bound(&self, text_bytes: u64, images: u64) -> Result<u64, PriceError> {
        if images > 0 && !self.accepts_images() {
            return Err(PriceError::Unpriced {
                dimension: Dimension::Image,
            });
        }
        let image_tokens = self
            .max_image_tokens
            .unwrap_or(0)
            .checked_mul(images)
            .ok_or(PriceError::Overflow)?;
        text_bytes
            .checked_add(self.input_overhead_tokens)
            .and_then(|tokens| tokens.checked_add(image_tokens))
            .ok_or(PriceError::Overflow)
    }

    /// The most a call can cost that has at most so many prompt tokens (image tokens included, see
    /// [`ModelPrice::input_bound`]), completion tokens and images, and no audio.
    ///
    /// # Errors
    /// [`PriceError::Unpriced`] without an input or output rate, or for images that the model has no price for;
    /// [`PriceError::Overflow`].
    pub fn bound(
        &self,
        max_prompt_tokens: u64,
        max_completion_tokens: u64,
        images: u64,
    ) -> Result<PicoUsd, PriceError> {
        if images > 0 && !self.accepts_images() {
            return Err(PriceError::Unpriced {
                dimension: Dimension::Image,
            });
        }
        // INVARIANT: the rates only change just above a threshold, so the longest prompts below each threshold
        // and the longest prompt of all stand for every prompt that is possible.
        let thresholds = self.tiers.iter().map(|tier| tier.above_prompt_tokens);
        let prompts = thresholds
            .filter(|threshold| *threshold < max_prompt_tokens)
            .chain([max_prompt_tokens]);
        let mut bound = PicoUsd::ZERO;
        for prompt_tokens in prompts {
            let rates = self.rates_for(prompt_tokens);
            let prompt = times(rates.dearest_prompt_token()?, prompt_tokens)?;
            let completion = times(rates.dearest_completion_token()?, max_completion_tokens)?;
            // Without a rate per image, images are tokens and already in the prompt.
            let pictures = times(rates.image.unwrap_or(PicoUsd::ZERO), images)?;
            let call = rates.rate(Dimension::PerCall)?;
            bound = bound.max(add(add(prompt, completion)?, add(pictures, call)?)?);
        }
        Ok(bound)
    }

    /// Refuses a price that cannot be used: no name, no input or output rate, negative rates, tiers out of
    /// order, limits that contradict each other.
    ///
    /// # Errors
    /// [`PriceError::Invalid`] that names the model.
    pub fn validate(&self) -> Result<(), PriceError> {
        self.fault().map_or(Ok(()), |fault| {
            let id: String = self.id().chars().take(MAX_NAME_CHARS).collect();
            Err(PriceError::invalid(format!("{id}: {fault}")))
        })
    }

    fn fault(&self) -> Option<String> {
        for name in [&self.provider, &self.model] {
            if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control)
            {
                return Some(format!(
                    "provider and model must be 1 to {MAX_NAME_CHARS} printable characters"
                ));
            }
        }
        if self.provider.contains('/') {
            return Some("provider must not contain a slash".to_owned());
        }
        for dimension in [Dimension::Input, Dimension::Output] {
            if self.rates.get(dimension).is_none() {
                return Some(format!(
                    "rates.{dimension} is missing; write \"0\" if it is free on purpose"
                ));
            }
        }
        let all_rates = [&self.rates]
            .into_iter()
            .chain(self.tiers.iter().map(|tier| &tier.rates));
        if let Some(Err(error)) = all_rates.map(Rates::validate).find(Result::is_err) {
            return Some(error.to_string());
        }
        if self
            .tiers
            .iter()
            .zip(self.tiers.iter().skip(1))
            .any(|(a, b)| a.above_prompt_tokens >= b.above_prompt_tokens)
        {
            return Some("tiers must stand in ascending order of above_prompt_tokens".to_owned());
        }
        if self.tiers.iter().any(|tier| tier.above_prompt_tokens == 0) {
            return Some("above_prompt_tokens of a tier must be at least 1".to_owned());
        }
        if self.context_length == Some(0) || self.max_output_tokens == Some(0) {
            return Some("context_length and max_output_tokens must be at least 1".to_owned());
        }
        match (self.recommended_min_output_tokens, self.max_output_tokens) {
            (Some(minimum), Some(maximum)) if minimum > maximum => {
                Some("recommended_min_output_tokens is above max_output_tokens".to_owned())
            }
            _ => None,
        }
    }
}
