//! Import of LiteLLM's `model_prices_and_context_window.json`.
//!
//! That file is one JSON object, model name → attributes, with prices in US dollars per token written as JSON
//! numbers that have been through floats (`2.0000000000000002e-07`). The rules kept here: a number is read from
//! its characters, never as a float; what had to be rounded is reported; a kind of price that is not
//! understood is reported and never dropped silently; a model with a price that cannot be right is refused.

mod names;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use self::names::{Member, classify};
use super::decimal::{Decimal, PER_UNIT_DIGITS, format_usd};
use super::{Catalogue, Dimension, ModelPrice, PriceError, Rates, Tier};
use crate::json::Members;
use crate::money::PicoUsd;

/// The entry that documents the format.
const SAMPLE: &str = "sample_spec";

/// What an import found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// The prices that can be used.
    pub catalogue: Catalogue,
    /// What an operator should look at, in the order of the file. A model with a warning that starts with
    /// `refused` is not in the catalogue.
    pub warnings: Vec<ImportWarning>,
    /// How many models were left out because they are no chat or completion models, by mode.
    pub skipped: BTreeMap<String, usize>,
    /// How many models have a kind of price that was not imported, by kind.
    pub ignored_kinds: BTreeMap<String, usize>,
    /// How many models were refused.
    pub refused: usize,
}

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ImportWarning {
    /// The model's name in the file.
    pub model: String,
    /// What is the matter.
    pub message: String,
}

/// Reads the price file.
///
/// # Errors
/// [`PriceError::Invalid`] when `text` is no JSON object of objects. What is wrong with one model is a warning.
pub fn import_litellm(text: &str) -> Result<Import, PriceError> {
    let models: Members<'_> =
        serde_json::from_str(text).map_err(|error| PriceError::invalid(format!("price file: {error}")))?;
    let mut import = Import::default();
    for (name, attributes) in &models.0 {
        if name == SAMPLE {
            continue;
        }
        match read_model(name, attributes) {
            Ok(Outcome::OtherMode(mode)) => {
                let count = import.skipped.entry(mode).or_default();
                *count = count.saturating_add(1);
            }
            Ok(Outcome::Priced(model)) => import.add(name, *model),
            Err(reason) => import.refuse(name, &reason),
        }
    }
    Ok(import)
}

impl Import {
    fn warn(&mut self, model: &str, message: String) {
        self.warnings.push(ImportWarning {
            model: model.to_owned(),
            message,
        });
    }

    fn refuse(&mut self, model: &str, reason: &str) {
        self.refused = self.refused.saturating_add(1);
        self.warn(model, format!("refused: {reason}"));
    }

    fn add(&mut self, name: &str, read: ReadModel) {
        for kind in &read.ignored {
            let count = self.ignored_kinds.entry(kind.clone()).or_default();
            *count = count.saturating_add(1);
        }
        for message in &read.price.warnings {
            self.warn(name, message.clone());
        }
        // The file has some models twice, with and without the provider in front.
        if let Some(other) = self.catalogue.get(&read.price.provider, &read.price.model) {
            let same = other.rates == read.price.rates && other.tiers == read.price.tiers;
            let prefixed = name.len() > read.price.model.len();
            if !same {
                let kept = if prefixed {
                    "this entry"
                } else {
                    "the entry with the provider's name in front"
                };
                self.warn(
                    name,
                    format!("stands twice with different prices; {kept} is used"),
                );
            }
            if !prefixed {
                return;
            }
        }
        if let Err(error) = self.catalogue.insert(read.price) {
            self.refuse(name, &error.to_string());
        }
    }
}

struct ReadModel {
    price: ModelPrice,
    ignored: Vec<String>,
}

enum Outcome {
    OtherMode(String),
    Priced(Box<ReadModel>),
}

fn read_model(name: &str, attributes: &RawValue) -> Result<Outcome, String> {
    let members: Members<'_> =
        serde_json::from_str(attributes.get()).map_err(|_not_an_object| "it is no object".to_owned())?;
    let mut reader = Reader {
        members: &members,
        warnings: Vec::new(),
    };
    let mode = reader.text("mode").unwrap_or_else(|| "none".to_owned());
    if mode != "chat" && mode != "completion" {
        return Ok(Outcome::OtherMode(mode));
    }
    if let Some(twice) = members.duplicate() {
        return Err(format!("{twice} stands there twice"));
    }
    let provider = reader
        .text("litellm_provider")
        .ok_or("litellm_provider is missing")?;
    let (rates, tiers, ignored) = reader.prices()?;
    let short = name
        .strip_prefix(provider.as_str())
        .and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or(name);
    let mut price = ModelPrice::new(provider, short, rates);
    price.tiers = tiers;
    price.context_length = reader.count("max_input_tokens");
    price.max_output_tokens = reader.count("max_output_tokens");
    price.reasoning = reader.flag("supports_reasoning");
    price.source = reader.text("source").unwrap_or_else(|| "litellm".to_owned());
    if reader.flag("supports_vision") && !price.accepts_images() {
        reader.warn(
            "takes images, but the file has no bound for their tokens: set max_image_tokens to allow them",
        );
    }
    price.warnings = reader.warnings;
    price.warnings.extend(doubts(&price));
    price.validate().map_err(|error| error.to_string())?;
    Ok(Outcome::Priced(Box::new(ReadModel { price, ignored })))
}

/// What is formally right and yet often a mistake in the file.
fn doubts(price: &ModelPrice) -> Vec<String> {
    let mut doubts = Vec::new();
    let free = |rate: Option<PicoUsd>| rate == Some(PicoUsd::ZERO);
    for dimension in [Dimension::Input, Dimension::Output] {
        if free(price.rates.get(dimension)) {
            doubts.push(format!("the price of {dimension} is 0: it is free"));
        }
    }
    if !free(price.rates.input) {
        for dimension in [Dimension::CachedInput, Dimension::CacheWrite] {
            if free(price.rates.get(dimension)) {
                doubts.push(format!(
                    "the price of {dimension} is 0 although input is not free"
                ));
            }
        }
    }
    let related = [
        (Dimension::Input, Dimension::CachedInput),
        (Dimension::Input, Dimension::CacheWrite),
        (Dimension::Output, Dimension::Reasoning),
    ];
    for tier in &price.tiers {
        for (main, special) in related {
            let kept = price.rates.get(special).is_some() && tier.rates.get(special).is_none();
            if kept && tier.rates.get(main).is_some() {
                let above = tier.above_prompt_tokens;
                doubts.push(format!(
                    "above {above} prompt tokens {main} changes but {special} keeps its base price"
                ));
            }
        }
    }
    doubts
}

/// Reads members of one model and collects what is worth a warning.
struct Reader<'m, 'a> {
    members: &'m Members<'a>,
    warnings: Vec<String>,
}

impl Reader<'_, '_> {
    fn warn(&mut self, message: impl Into<String>) {
        self.warnings.push(message.into());
    }

    fn text(&self, name: &str) -> Option<String> {
        self.members
            .get(name)
            .and_then(|raw| serde_json::from_str(raw).ok())
    }

    fn flag(&self, name: &str) -> bool {
        self.members.get(name) == Some("true")
    }

    /// A whole number of tokens; some are written `256000.0`.
    fn count(&mut self, name: &str) -> Option<u64> {
        let raw = self.members.get(name).filter(|raw| *raw != "null")?;
        let count = match Decimal::parse(raw).and_then(|number| number.scaled(0)) {
            Some((count, true)) => u64::try_from(count).ok().filter(|count| *count > 0),
            Some((_, false)) | None => None,
        };
        if count.is_none() {
            self.warn(format!("{name} is no whole number of tokens and is left out"));
        }
        count
    }

    /// All prices of the model: base, tiers, and the kinds that were not understood.
    fn prices(&mut self) -> Result<(Rates, Vec<Tier>, Vec<String>), String> {
        let mut base = Rates::default();
        let mut tiers: BTreeMap<u64, Rates> = BTreeMap::new();
        let mut ignored = Vec::new();
        for (name, raw) in &self.members.0 {
            match classify(name) {
                Member::Price { dimension, above } => {
                    let Some(price) = self.price(name, raw.get())? else {
                        continue;
                    };
                    let rates = above.map_or(&mut base, |threshold| tiers.entry(threshold).or_default());
                    set(rates, dimension, price, name)?;
                }
                Member::UnknownPrice => ignored.push(name.to_string()),
                Member::Other => {}
            }
        }
        if !ignored.is_empty() {
            self.warn(format!(
                "kinds of price that are not imported: {}",
                ignored.join(", ")
            ));
        }
        for dimension in [Dimension::Input, Dimension::Output] {
            if base.get(dimension).is_none() {
                let kinds = if ignored.is_empty() {
                    String::new()
                } else {
                    format!(" (has {})", ignored.join(", "))
                };
                return Err(format!("there is no price for {dimension}{kinds}"));
            }
        }
        let tiers = tiers.into_iter().map(|(above_prompt_tokens, rates)| Tier {
            above_prompt_tokens,
            rates,
        });
        Ok((base, tiers.collect(), ignored))
    }

    /// One price in US dollars. `null` is a missing price.
    fn price(&mut self, name: &str, raw: &str) -> Result<Option<PicoUsd>, String> {
        if raw == "null" {
            return Ok(None);
        }
        let shown: String = raw.chars().take(40).collect();
        let number = Decimal::parse(raw).ok_or_else(|| format!("{name} is no number: {shown}"))?;
        if number.is_negative() {
            return Err(format!("{name} is negative: {shown}"));
        }
        let (picos, exact) = number
            .scaled(PER_UNIT_DIGITS)
            .ok_or_else(|| format!("{name} is too large: {shown}"))?;
        if exact {
            return Ok(Some(PicoUsd::new(picos)));
        }
        // A price that is there must not become free by rounding.
        let price = PicoUsd::new(picos.max(1));
        self.warn(format!("{name} {shown} is rounded to {}", format_usd(price)));
        Ok(Some(price))
    }
}

/// Two names can mean one dimension; they have to agree.
fn set(rates: &mut Rates, dimension: Dimension, price: PicoUsd, name: &str) -> Result<(), String> {
    let slot = match dimension {
        Dimension::Input => &mut rates.input,
        Dimension::CachedInput => &mut rates.cached_input,
        Dimension::CacheWrite => &mut rates.cache_write,
        Dimension::Output => &mut rates.output,
        Dimension::Reasoning => &mut rates.reasoning,
        Dimension::AudioInput => &mut rates.audio_input,
        Dimension::AudioOutput => &mut rates.audio_output,
        Dimension::Image => &mut rates.image,
        Dimension::PerCall => &mut rates.per_call,
        Dimension::Units => return Err(format!("{name} is no price of a model")),
    };
    match slot.replace(price) {
        Some(other) if other != price => Err(format!("{name} contradicts another price of {dimension}")),
        Some(_) | None => Ok(()),
    }
}
