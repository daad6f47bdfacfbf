//! What a call used, in disjoint dimensions.
//!
//! Providers count overlapping things (`prompt_tokens` contains `cached_tokens`, `completion_tokens` mostly
//! contains `reasoning_tokens`). A [`Usage`] does not overlap: each token stands in exactly one dimension, so
//! that a price is a plain sum. Turning a provider's dialect into it is the adapter's task (`upstream`).

use serde::{Deserialize, Serialize};

/// Units used by one call; each unit stands in one dimension only. Zero means zero: a provider that reported
/// nothing at all is an absent `Usage`, not an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Prompt tokens that were neither read from nor written to a cache, text.
    pub input: u64,
    /// Prompt tokens read from the provider's cache.
    pub cached_input: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write: u64,
    /// Visible completion tokens, text.
    pub output: u64,
    /// Hidden reasoning tokens.
    pub reasoning: u64,
    /// Audio tokens in the prompt.
    pub audio_input: u64,
    /// Audio tokens in the completion.
    pub audio_output: u64,
    /// Images in the prompt that are priced by the piece.
    pub images: u64,
    /// Units of a metered tool.
    pub units: u64,
}

impl Usage {
    /// All prompt tokens together: what context tiers are chosen by.
    pub const fn prompt_tokens(&self) -> u64 {
        self.input
            .saturating_add(self.cached_input)
            .saturating_add(self.cache_write)
            .saturating_add(self.audio_input)
    }

    /// All completion tokens together.
    pub const fn completion_tokens(&self) -> u64 {
        self.output
            .saturating_add(self.reasoning)
            .saturating_add(self.audio_output)
    }
}
