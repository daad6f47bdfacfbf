//! The price list: one price for each model of each provider.
//!
//! A value, not a store. Two lists can be merged and compared, so that an operator sees in plain lines what an
//! import would change before it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ModelPrice, PriceError};

/// Prices by provider and model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    models: BTreeMap<(String, String), ModelPrice>,
}

/// The written form: `[[models]]` tables.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct CatalogueFile {
    #[serde(default)]
    models: Vec<ModelPrice>,
}

impl Catalogue {
    /// Parses a price file and checks every price in it.
    ///
    /// # Errors
    /// [`PriceError::Invalid`] for malformed TOML, unknown keys, an unusable price or a model that stands twice.
    pub fn from_toml(text: &str) -> Result<Self, PriceError> {
        let file: CatalogueFile =
            toml::from_str(text).map_err(|error| PriceError::invalid(format!("price file: {error}")))?;
        let mut catalogue = Self::default();
        for price in file.models {
            let id = price.id();
            if catalogue.insert(price)?.is_some() {
                return Err(PriceError::invalid(format!(
                    "price file: {id} stands there twice"
                )));
            }
        }
        Ok(catalogue)
    }

    /// Writes the price file that [`Catalogue::from_toml`] reads.
    ///
    /// # Errors
    /// [`PriceError::Invalid`] for a limit above 2^63, which TOML cannot hold.
    pub fn to_toml(&self) -> Result<String, PriceError> {
        let file = CatalogueFile {
            models: self.models.values().cloned().collect(),
        };
        toml::to_string(&file).map_err(|error| PriceError::invalid(format!("price file: {error}")))
    }

    /// Puts in a price after checking it and returns the one it replaces.
    ///
    /// # Errors
    /// As [`ModelPrice::validate`].
    pub fn insert(&mut self, price: ModelPrice) -> Result<Option<ModelPrice>, PriceError> {
        price.validate()?;
        Ok(self
            .models
            .insert((price.provider.clone(), price.model.clone()), price))
    }

    /// Takes a price out.
    pub fn remove(&mut self, provider: &str, model: &str) -> Option<ModelPrice> {
        self.models.remove(&(provider.to_owned(), model.to_owned()))
    }

    /// The price of `model` at `provider`.
    pub fn get(&self, provider: &str, model: &str) -> Option<&ModelPrice> {
        self.models.get(&(provider.to_owned(), model.to_owned()))
    }

    /// The price that `name` means: `provider/model`, or a bare model name that only one provider has. A bare
    /// name that several providers have means none of them; see [`Catalogue::offers`].
    pub fn find(&self, name: &str) -> Option<&ModelPrice> {
        if let Some(price) = name
            .split_once('/')
            .and_then(|(provider, model)| self.get(provider, model))
        {
            return Some(price);
        }
        let mut offers = self.offers(name);
        let first = offers.next();
        if offers.next().is_some() { None } else { first }
    }

    /// All providers' prices of the model `model`, by provider name.
    pub fn offers<'a>(&'a self, model: &str) -> impl Iterator<Item = &'a ModelPrice> {
        self.models.values().filter(move |price| price.model == model)
    }

    /// All prices, by provider and model.
    pub fn iter(&self) -> impl Iterator<Item = &ModelPrice> {
        self.models.values()
    }

    /// How many prices there are.
    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Whether there is no price.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Puts in all prices of `other`; where both have one, `other`'s stays.
    pub fn merge(&mut self, other: Self) {
        self.models.extend(other.models);
    }

    /// What changes from this list to `newer`, one entry for each model that came or went and for each value
    /// that is different.
    pub fn diff(&self, newer: &Self) -> Vec<PriceChange> {
        let keys: BTreeSet<_> = self.models.keys().chain(newer.models.keys()).collect();
        let mut changes = Vec::new();
        for key in keys {
            match (self.models.get(key), newer.models.get(key)) {
                (Some(old), Some(new)) => changes.extend(value_changes(old, new)),
                (None, Some(new)) => changes.push(PriceChange::Added { id: new.id() }),
                (Some(old), None) => changes.push(PriceChange::Removed { id: old.id() }),
                (None, None) => {}
            }
        }
        changes
    }
}

/// One line of the difference between two price lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum PriceChange {
    /// The model has a price now.
    Added {
        /// `provider/model`.
        id: String,
    },
    /// The model has no price any more.
    Removed {
        /// `provider/model`.
        id: String,
    },
    /// A rate or a limit is different.
    Changed {
        /// `provider/model`.
        id: String,
        /// The rate or limit; a tier's with its threshold.
        field: String,
        /// Before; `None` where it was missing.
        old: Option<String>,
        /// After; `None` where it is missing.
        new: Option<String>,
    },
}

/// One line: `+ sim/a`, `- sim/a`, `~ sim/a input: 1 USD per million tokens -> missing`.
impl fmt::Display for PriceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { id } => write!(f, "+ {id}"),
            Self::Removed { id } => write!(f, "- {id}"),
            Self::Changed { id, field, old, new } => {
                let [old, new] = [old, new].map(|value| value.as_deref().unwrap_or("missing"));
                write!(f, "~ {id} {field}: {old} -> {new}")
            }
        }
    }
}

fn value_changes(old: &ModelPrice, new: &ModelPrice) -> Vec<PriceChange> {
    let (before, after) = (values(old), values(new));
    let fields: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    fields
        .into_iter()
        .filter(|field| before.get(*field) != after.get(*field))
        .map(|field| PriceChange::Changed {
            id: new.id(),
            field: field.clone(),
            old: before.get(field).cloned(),
            new: after.get(field).cloned(),
        })
        .collect()
}

/// Everything in a price that changes what a call costs or what is held for it, as written.
fn values(price: &ModelPrice) -> BTreeMap<String, String> {
    let limits = [
        ("context_length", price.context_length),
        ("max_output_tokens", price.max_output_tokens),
        (
            "recommended_min_output_tokens",
            price.recommended_min_output_tokens,
        ),
        ("max_image_tokens", price.max_image_tokens),
        ("input_overhead_tokens", Some(price.input_overhead_tokens)),
    ];
    let flags = [("reasoning model", price.reasoning), ("fim", price.fim)];
    let base = price
        .rates
        .entries()
        .map(|(dimension, _, text)| (dimension.to_string(), text));
    let tiers = price.tiers.iter().flat_map(|tier| {
        tier.rates.entries().map(|(dimension, _, text)| {
            (
                format!("{dimension} above {} prompt tokens", tier.above_prompt_tokens),
                text,
            )
        })
    });
    limits
        .into_iter()
        .filter_map(|(name, limit)| Some((name.to_owned(), limit?.to_string())))
        .chain(
            flags
                .into_iter()
                .map(|(name, flag)| (name.to_owned(), flag.to_string())),
        )
        .chain(base)
        .chain(tiers)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [[models]]
        provider = "a"
        model = "m"
        rates = { input = "1", output = "2" }

        [[models]]
        provider = "a"
        model = "vendor/n"
        rates = { input = "1", output = "2", image = "0.001", per_call = "0.000000000001" }
        tiers = [{ above_prompt_tokens = 200000, rates = { input = "2" } }]

        [[models]]
        provider = "b"
        model = "vendor/n"
        max_image_tokens = 1000
        rates = { input = "0", output = "0" }
    "#;

    #[test]
    fn names_are_found_with_and_without_provider() {
        let catalogue = Catalogue::from_toml(FILE).unwrap();
        assert_eq!(catalogue.find("m").unwrap().id(), "a/m");
        assert_eq!(catalogue.find("a/m").unwrap().id(), "a/m");
        assert_eq!(catalogue.find("b/vendor/n").unwrap().id(), "b/vendor/n");
        // Two providers have it: guessing would charge one provider's price for the other's call.
        assert_eq!(catalogue.find("vendor/n"), None);
        assert_eq!(catalogue.offers("vendor/n").count(), 2);
        assert_eq!(catalogue.find("b/m"), None);
    }

    #[test]
    fn a_price_file_survives_being_written_and_read_again() {
        let catalogue = Catalogue::from_toml(FILE).unwrap();
        assert_eq!(
            Catalogue::from_toml(&catalogue.to_toml().unwrap()).unwrap(),
            catalogue
        );
        let json = serde_json::to_string(catalogue.get("a", "vendor/n").unwrap()).unwrap();
        assert_eq!(
            &serde_json::from_str::<ModelPrice>(&json).unwrap(),
            catalogue.get("a", "vendor/n").unwrap()
        );
    }

    #[test]
    fn an_unusable_price_file_is_refused() {
        let model = |rest: &str| format!("[[models]]\nprovider = \"a\"\nmodel = \"m\"\n{rest}");
        let good = model("rates = { input = \"1\", output = \"2\" }\n");
        assert!(Catalogue::from_toml(&good).is_ok());
        for (text, says) in [
            (format!("{good}{good}"), "twice"),
            (model("rates = { input = 1, output = \"2\" }"), "decimal string"),
            (model("rates = { input = \"-1\", output = \"2\" }"), "no price"),
            (model("rates = { input = \"1\" }"), "rates.output is missing"),
            (model("rates = { inptu = \"1\" }"), "unknown field"),
            (
                model("colour = \"red\"\nrates = { input = \"1\", output = \"2\" }"),
                "unknown field",
            ),
            (
                format!("{good}tiers = [{{ above_prompt_tokens = 0, rates = {{}} }}]"),
                "at least 1",
            ),
            (
                format!(
                    "{good}tiers = [{{ above_prompt_tokens = 2, rates = {{}} }}, {{ above_prompt_tokens = 2, rates = {{}} }}]"
                ),
                "ascending",
            ),
            (
                format!("{good}max_output_tokens = 1\nrecommended_min_output_tokens = 2"),
                "recommended",
            ),
            (
                "[[models]]\nprovider = \"a/b\"\nmodel = \"m\"\nrates = { input = \"1\", output = \"2\" }"
                    .to_owned(),
                "slash",
            ),
            ("models = 1".to_owned(), "price file"),
        ] {
            let error = Catalogue::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}\n{error}");
        }
    }

    #[test]
    fn a_difference_names_every_value_that_changed() {
        let old = Catalogue::from_toml(FILE).unwrap();
        let mut new = old.clone();
        new.remove("a", "m");
        let mut changed = old.get("a", "vendor/n").unwrap().clone();
        changed.rates.output = changed.rates.output.and_then(|rate| rate.checked_mul(2));
        changed.rates.image = None;
        changed.tiers.first_mut().unwrap().rates.cached_input = changed.rates.input;
        changed.source = "elsewhere".to_owned();
        new.insert(changed).unwrap();
        let mut added = old.get("a", "m").unwrap().clone();
        added.provider = "z".to_owned();
        new.insert(added).unwrap();
        let lines: Vec<String> = old.diff(&new).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "- a/m",
                "~ a/vendor/n cached_input above 200000 prompt tokens: missing -> 1 USD per million tokens",
                "~ a/vendor/n image: 0.001 USD each -> missing",
                "~ a/vendor/n output: 2 USD per million tokens -> 4 USD per million tokens",
                "+ z/m",
            ]
        );
        assert_eq!(old.diff(&old), []);
        let mut merged = old.clone();
        merged.merge(new.clone());
        assert_eq!(merged.len(), 4);
        assert_eq!(merged.get("a", "vendor/n"), new.get("a", "vendor/n"));
    }
}
