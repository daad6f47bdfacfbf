//! Which member of a model is which price.

use crate::pricing::Dimension;

/// What a member's name says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// A price that is imported, in a context tier when `above` is there.
    Price {
        /// What it is the price of.
        dimension: Dimension,
        /// The tier's threshold in prompt tokens.
        above: Option<u64>,
    },
    /// Looks like a price, but of a kind that is not imported.
    UnknownPrice,
    /// No price.
    Other,
}

/// The prices that are understood.
const KNOWN: [(&str, Dimension); 10] = [
    ("input_cost_per_token", Dimension::Input),
    ("output_cost_per_token", Dimension::Output),
    ("cache_read_input_token_cost", Dimension::CachedInput),
    ("input_cost_per_token_cache_hit", Dimension::CachedInput),
    ("cache_creation_input_token_cost", Dimension::CacheWrite),
    ("output_cost_per_reasoning_token", Dimension::Reasoning),
    ("input_cost_per_audio_token", Dimension::AudioInput),
    ("output_cost_per_audio_token", Dimension::AudioOutput),
    ("input_cost_per_image", Dimension::Image),
    ("input_cost_per_request", Dimension::PerCall),
];

/// Parts of names that mean money.
const PRICE_WORDS: [&str; 4] = ["cost", "price", "pricing", "uplift"];

/// Sorts a member by its name. `_above_200k_tokens` is a tier; every other suffix (`_priority`, `_flex`,
/// `_batches`, `_above_1hr`, …) makes another kind of price.
pub(super) fn classify(name: &str) -> Member {
    let (kind, above) = split_tier(name);
    if let Some((_, dimension)) = KNOWN.iter().find(|(known, _)| *known == kind) {
        return Member::Price {
            dimension: *dimension,
            above,
        };
    }
    if PRICE_WORDS.iter().any(|word| name.contains(word)) {
        Member::UnknownPrice
    } else {
        Member::Other
    }
}

fn split_tier(name: &str) -> (&str, Option<u64>) {
    name.strip_suffix("k_tokens")
        .and_then(|rest| rest.rsplit_once("_above_"))
        .and_then(|(kind, thousands)| Some((kind, thousands.parse::<u64>().ok()?.checked_mul(1000)?)))
        .map_or((name, None), |(kind, above)| (kind, Some(above)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_into_prices_tiers_and_unknown_kinds() {
        let price = |dimension, above| Member::Price { dimension, above };
        for (name, expected) in [
            ("input_cost_per_token", price(Dimension::Input, None)),
            (
                "input_cost_per_token_above_128k_tokens",
                price(Dimension::Input, Some(128_000)),
            ),
            (
                "cache_creation_input_token_cost_above_272k_tokens",
                price(Dimension::CacheWrite, Some(272_000)),
            ),
            (
                "input_cost_per_token_above_272k_tokens_priority",
                Member::UnknownPrice,
            ),
            ("cache_creation_input_token_cost_above_1hr", Member::UnknownPrice),
            (
                "cache_creation_input_token_cost_above_1hr_above_200k_tokens",
                Member::UnknownPrice,
            ),
            ("input_cost_per_token_batches", Member::UnknownPrice),
            ("search_context_cost_per_query", Member::UnknownPrice),
            ("tiered_pricing", Member::UnknownPrice),
            ("off_peak_pricing", Member::UnknownPrice),
            ("regional_endpoint_uplift_multiplier", Member::UnknownPrice),
            ("max_input_tokens", Member::Other),
            ("supports_vision", Member::Other),
        ] {
            assert_eq!(classify(name), expected, "{name}");
        }
    }
}
