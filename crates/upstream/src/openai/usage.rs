//! The dialects of `usage`, turned into disjoint dimensions.
//!
//! The rule: a reading is taken only when the numbers of the report itself confirm it, above all its
//! `total_tokens`; what is impossible or can be read in two ways is an error, never a guess. An explicit
//! zero is zero and nothing at all is `None`. What follows from an error is left to the app.
//!
//! | dialect | what is different |
//! |---|---|
//! | OpenAI, Mistral, vLLM | details are parts of `prompt_tokens` and `completion_tokens` |
//! | OpenAI (newer), OpenRouter | `prompt_tokens_details.cache_write_tokens`, part of the prompt |
//! | DeepSeek | `prompt_cache_hit_tokens` + `prompt_cache_miss_tokens` = `prompt_tokens` |
//! | Moonshot | `cached_tokens` beside `prompt_tokens` |
//! | Anthropic's fields in OpenAI's object | `cache_read_input_tokens`, `cache_creation_input_tokens`: part of the prompt with some proxies, beside it with others; `total_tokens` tells |
//! | xAI | `reasoning_tokens` beside `completion_tokens`; `total_tokens` contains both |
//! | Gemini's OpenAI endpoint | thinking tokens in `total_tokens` only |

use serde::Deserialize;
use serde_json::value::RawValue;
use turnpike_core::usage::Usage;

/// More tokens than any call has.
const MAX_TOKENS: u64 = 1_000_000_000_000;

type Raw<'a> = Option<&'a RawValue>;

/// A usage object as it was sent: every count unread, so that a wrong type is a fault of the report and not
/// of the answer that carries it.
#[derive(Debug, Default, Deserialize)]
struct RawUsage<'a> {
    #[serde(borrow)]
    prompt_tokens: Raw<'a>,
    #[serde(borrow)]
    completion_tokens: Raw<'a>,
    #[serde(borrow)]
    total_tokens: Raw<'a>,
    #[serde(borrow)]
    prompt_tokens_details: Raw<'a>,
    #[serde(borrow)]
    completion_tokens_details: Raw<'a>,
    #[serde(borrow)]
    prompt_cache_hit_tokens: Raw<'a>,
    #[serde(borrow)]
    prompt_cache_miss_tokens: Raw<'a>,
    #[serde(borrow)]
    cache_read_input_tokens: Raw<'a>,
    #[serde(borrow)]
    cache_creation_input_tokens: Raw<'a>,
    #[serde(borrow)]
    cached_tokens: Raw<'a>,
    #[serde(borrow)]
    reasoning_tokens: Raw<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct RawDetails<'a> {
    #[serde(borrow, rename = "cached_tokens")]
    cached: Raw<'a>,
    #[serde(borrow, rename = "cache_write_tokens")]
    cache_write: Raw<'a>,
    #[serde(borrow, rename = "cache_creation_tokens")]
    cache_creation: Raw<'a>,
    #[serde(borrow, rename = "reasoning_tokens")]
    reasoning: Raw<'a>,
    #[serde(borrow, rename = "audio_tokens")]
    audio: Raw<'a>,
}

/// The counts of a report, read but not yet interpreted.
#[derive(Clone, Copy, Debug)]
struct Counts {
    prompt: u64,
    completion: u64,
    total: Option<u64>,
    cache_read: u64,
    cache_write: u64,
    /// Anthropic's field names are there, and OpenAI's do not confirm that they are parts of the prompt.
    cache_may_be_beside: bool,
    reasoning: Option<u64>,
    audio_input: u64,
    audio_output: u64,
}

/// Reads a `usage` value.
///
/// # Errors
/// Why the report is impossible or ambiguous, in words without foreign text.
pub fn normalise(raw: &RawValue) -> Result<Option<Usage>, String> {
    let text = raw.get();
    if text == "null" {
        return Ok(None);
    }
    let Some(counts) = read(text)? else {
        return Ok(None);
    };
    interpret(&counts).map(Some)
}

fn read(text: &str) -> Result<Option<Counts>, String> {
    let usage: RawUsage<'_> = object(text, "usage")?;
    let prompt = count(usage.prompt_tokens, "prompt_tokens")?;
    let completion = count(usage.completion_tokens, "completion_tokens")?;
    let total = count(usage.total_tokens, "total_tokens")?;
    let (prompt, completion) = match (prompt, completion) {
        (Some(prompt), Some(completion)) => (prompt, completion),
        // Servers that leave out a completion of zero.
        (Some(prompt), None) if total == Some(prompt) => (prompt, 0),
        (None, None) if total.is_none() => return Ok(None),
        (_, _) => return Err("prompt_tokens or completion_tokens is missing".to_owned()),
    };
    let inside = details(usage.prompt_tokens_details, "prompt_tokens_details")?;
    let outside = details(usage.completion_tokens_details, "completion_tokens_details")?;
    let inside_read = count(inside.cached, "cached_tokens")?;
    let inside_write = agree_option(
        &[
            count(inside.cache_write, "cache_write_tokens")?,
            count(inside.cache_creation, "cache_creation_tokens")?,
        ],
        "cache write counts contradict each other",
    )?;
    let hit = count(usage.prompt_cache_hit_tokens, "prompt_cache_hit_tokens")?;
    if let (Some(hit), Some(miss)) = (
        hit,
        count(usage.prompt_cache_miss_tokens, "prompt_cache_miss_tokens")?,
    ) && hit.checked_add(miss) != Some(prompt)
    {
        return Err("cache hits and misses do not add up to prompt_tokens".to_owned());
    }
    let named_read = count(usage.cache_read_input_tokens, "cache_read_input_tokens")?;
    let named_write = count(usage.cache_creation_input_tokens, "cache_creation_input_tokens")?;
    let beside_read = count(usage.cached_tokens, "cached_tokens")?;
    let cache_read = agree(
        &[inside_read, hit, named_read, beside_read],
        "cached token counts contradict each other",
    )?;
    let cache_write = agree(
        &[inside_write, named_write],
        "cache write counts contradict each other",
    )?;
    let named = named_read.unwrap_or(0) > 0 || named_write.unwrap_or(0) > 0;
    let confirmed = (named_read.unwrap_or(0) == 0 || inside_read == named_read) && inside_read.is_some();
    let reasoning = agree_option(
        &[
            count(outside.reasoning, "reasoning_tokens")?,
            count(usage.reasoning_tokens, "reasoning_tokens")?,
        ],
        "reasoning token counts contradict each other",
    )?;
    Ok(Some(Counts {
        prompt,
        completion,
        total,
        cache_read,
        cache_write,
        cache_may_be_beside: named && (total.is_some() || !confirmed),
        reasoning,
        audio_input: count(inside.audio, "audio_tokens")?.unwrap_or(0),
        audio_output: count(outside.audio, "audio_tokens")?.unwrap_or(0),
    }))
}

/// One way to read a report.
#[derive(Clone, Copy, Debug)]
struct Reading {
    prompt: u64,
    completion: u64,
    reasoning: u64,
}

fn interpret(counts: &Counts) -> Result<Usage, String> {
    let cache = counts.cache_read.saturating_add(counts.cache_write);
    let reasoning = counts.reasoning.unwrap_or(0);
    let mut found: Option<Usage> = None;
    for cache_beside in [false, true] {
        if cache_beside && (!counts.cache_may_be_beside || cache == 0) {
            continue;
        }
        for reasoning_beside in [false, true] {
            // Without a total, only the OpenAI reading of reasoning is taken.
            if reasoning_beside && (reasoning == 0 || counts.total.is_none()) {
                continue;
            }
            let reading = Reading {
                prompt: counts.prompt.saturating_add(if cache_beside { cache } else { 0 }),
                completion: counts
                    .completion
                    .saturating_add(if reasoning_beside { reasoning } else { 0 }),
                reasoning,
            };
            let Some(usage) = apply(counts, reading, cache) else {
                continue;
            };
            match found {
                Some(before) if before != usage => {
                    return Err("the counts can be read in more than one way".to_owned());
                }
                Some(_) | None => found = Some(usage),
            }
        }
    }
    found
        .or_else(|| hidden_reasoning(counts, cache))
        .ok_or_else(|| contradiction(counts, cache, reasoning))
}

/// Gemini: the total is larger than its parts and no reasoning is named.
fn hidden_reasoning(counts: &Counts, cache: u64) -> Option<Usage> {
    if counts.reasoning.is_some() || counts.cache_may_be_beside {
        return None;
    }
    let reasoning = counts
        .total?
        .checked_sub(counts.prompt)?
        .checked_sub(counts.completion)?;
    let completion = counts.completion.saturating_add(reasoning);
    apply(
        counts,
        Reading {
            prompt: counts.prompt,
            completion,
            reasoning,
        },
        cache,
    )
}

/// The usage of a reading, if the report confirms it.
fn apply(counts: &Counts, reading: Reading, cache: u64) -> Option<Usage> {
    let total = reading.prompt.saturating_add(reading.completion);
    if counts.total.is_some_and(|reported| reported != total)
        || counts.audio_input > reading.prompt
        || counts.audio_output > reading.completion
    {
        return None;
    }
    let fresh = reading.prompt.checked_sub(cache)?;
    let visible = reading.completion.checked_sub(reading.reasoning)?;
    // Audio that was read from the cache is counted as cached.
    let audio_input = counts.audio_input.min(fresh);
    let audio_output = counts.audio_output.min(visible);
    Some(Usage {
        input: fresh.saturating_sub(audio_input),
        cached_input: counts.cache_read,
        cache_write: counts.cache_write,
        output: visible.saturating_sub(audio_output),
        reasoning: reading.reasoning,
        audio_input,
        audio_output,
        images: 0,
        units: 0,
    })
}

fn contradiction(counts: &Counts, cache: u64, reasoning: u64) -> String {
    if cache > counts.prompt {
        format!("{cache} cached tokens in a prompt of {}", counts.prompt)
    } else if reasoning > counts.completion {
        format!(
            "{reasoning} reasoning tokens in a completion of {}",
            counts.completion
        )
    } else if let Some(total) = counts.total {
        format!(
            "total_tokens is {total} for {} + {}",
            counts.prompt, counts.completion
        )
    } else {
        "more audio tokens than tokens".to_owned()
    }
}

fn object<'a, T: Deserialize<'a>>(text: &'a str, name: &str) -> Result<T, String> {
    // A derived struct would also accept an array.
    if !text.starts_with('{') {
        return Err(format!("{name} is not an object"));
    }
    serde_json::from_str(text).map_err(|_malformed| format!("{name} is malformed"))
}

fn details<'a>(raw: Raw<'a>, name: &str) -> Result<RawDetails<'a>, String> {
    raw.map_or_else(|| Ok(RawDetails::default()), |value| object(value.get(), name))
}

/// A count; `null` and nothing are `None`.
fn count(raw: Raw<'_>, name: &str) -> Result<Option<u64>, String> {
    let Some(raw) = raw else { return Ok(None) };
    let text = raw.get();
    // Some servers write counts as 12.0.
    let digits = text.split_once('.').map_or(text, |(whole, fraction)| {
        if fraction.bytes().all(|byte| byte == b'0') {
            whole
        } else {
            ""
        }
    });
    if text.starts_with('-') {
        return Err(format!("{name} is negative"));
    }
    match digits.parse::<u64>() {
        Ok(value) if value <= MAX_TOKENS => Ok(Some(value)),
        Ok(_) => Err(format!("{name} is absurd")),
        Err(_malformed) => Err(format!("{name} is not a count")),
    }
}

/// The one value that several names of the same count carry; a zero yields to another.
fn agree_option(values: &[Option<u64>], complaint: &str) -> Result<Option<u64>, String> {
    let mut agreed: Option<u64> = None;
    for value in values.iter().copied().flatten() {
        match agreed {
            None | Some(0) => agreed = Some(value),
            Some(before) if value != 0 && value != before => return Err(complaint.to_owned()),
            Some(_) => {}
        }
    }
    Ok(agreed)
}

fn agree(values: &[Option<u64>], complaint: &str) -> Result<u64, String> {
    agree_option(values, complaint).map(|value| value.unwrap_or(0))
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
