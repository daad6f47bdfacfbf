//! JSON and YAML as plain values, within bounds.

use serde_json::Value;

use super::{ImportError, MAX_DOCUMENT};

/// Deepest nesting; serde_json's own limit is the same.
const MAX_DEPTH: usize = 128;
/// Most values of a YAML document.
const MAX_NODES: usize = 4_000_000;

/// Reads a document, whichever of the two it is.
pub(super) fn parse(text: &[u8]) -> Result<Value, ImportError> {
    if text.len() > MAX_DOCUMENT {
        return Err(ImportError::TooLarge);
    }
    let text =
        std::str::from_utf8(text).map_err(|_invalid| ImportError::Malformed("it is not UTF-8".to_owned()))?;
    let text = text.trim_start_matches('\u{feff}');
    let malformed = |error: &dyn std::fmt::Display| {
        let text: String = error.to_string().chars().take(300).collect();
        ImportError::Malformed(text)
    };
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| malformed(&error));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: MAX_NODES.saturating_mul(2),
            max_nodes: MAX_NODES,
            max_depth: MAX_DEPTH,
            max_documents: 1,
            max_total_scalar_bytes: MAX_DOCUMENT.saturating_mul(2),
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
        },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| malformed(&error))
}
