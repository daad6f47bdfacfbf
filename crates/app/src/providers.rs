//! What is sold: configured providers with their models and tools, and the prices in force.
//!
//! Providers come from the configuration, and tools from it and from imports. Imported tools and model prices
//! come from the store and are read again when their revisions move; a call uses what it was admitted with.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use turnpike_core::errors::ErrorCode;
use turnpike_core::money::PicoUsd;
use turnpike_core::pricing::{Catalogue, Charge, EffectiveMarkup, ModelPrice, PriceError, charge};
use turnpike_core::usage::Usage;
use turnpike_store::{PriceRow, Store};
use turnpike_upstream::Provider;

use crate::chat::Bounded;
use crate::error::AppError;
use crate::stock::{ImportRules, Stock};
use crate::tools::ToolEntry;

/// A provider.
#[derive(Clone, Debug)]
pub struct ProviderEntry {
    /// Its connection.
    pub provider: Provider,
    /// Longest a call to it may take, in milliseconds.
    pub total_timeout_ms: i64,
    /// The provider name under which its models are priced.
    pub prices_from: String,
    /// The models it serves, by the id that callers use.
    pub models: Vec<ModelEntry>,
    /// The tools it serves, by name.
    pub tools: BTreeMap<String, Arc<ToolEntry>>,
}

/// A model of a provider.
#[derive(Clone, Debug)]
pub struct ModelEntry {
    /// What callers ask for.
    pub id: String,
    /// What the provider calls it.
    pub upstream: String,
}

/// A model with the price that is in force.
#[derive(Debug)]
pub struct PricedModel {
    /// The price.
    pub price: ModelPrice,
    /// Its rates as JSON, for the call's record.
    rates_json: String,
}

/// The price a call is admitted with; it does not move any more.
#[derive(Clone, Debug)]
pub struct FrozenPrice {
    model: Arc<PricedModel>,
    markup: EffectiveMarkup,
    /// Images of this call that are priced by the piece; no provider reports them.
    images: u64,
}

impl FrozenPrice {
    /// A model's price under a markup.
    pub const fn new(model: Arc<PricedModel>, markup: EffectiveMarkup) -> Self {
        Self {
            model,
            markup,
            images: 0,
        }
    }

    /// The same for a call with so many images.
    #[must_use]
    pub fn with_images(mut self, images: u64) -> Self {
        self.images = if self.model.price.rates.image.is_some() {
            images
        } else {
            0
        };
        self
    }

    /// What a call of this size can cost at the provider at most.
    ///
    /// # Errors
    /// [`PriceError`] when a dimension has no price.
    pub(crate) fn base_bound(model: &PricedModel, bounded: &Bounded) -> Result<PicoUsd, PriceError> {
        model
            .price
            .bound(bounded.prompt, bounded.completion, bounded.images)
    }

    /// The most that a call of this size can cost.
    ///
    /// # Errors
    /// [`PriceError`] when a dimension has no price.
    pub(crate) fn bound(&self, bounded: &Bounded) -> Result<Charge, PriceError> {
        charge(Self::base_bound(&self.model, bounded)?, &self.markup)
    }

    /// What the reported usage costs.
    ///
    /// # Errors
    /// [`PriceError`] when a dimension has no price.
    pub fn cost(&self, usage: &Usage) -> Result<Charge, PriceError> {
        let usage = Usage {
            images: usage.images.max(self.images),
            ..*usage
        };
        charge(self.model.price.cost(&usage)?, &self.markup)
    }

    /// The record of this price.
    pub fn to_json(&self) -> String {
        format!(
            r#"{{"rates":{},"markupBps":{},"flatUsd":"{}"}}"#,
            self.model.rates_json, self.markup.bps, self.markup.flat
        )
    }
}

/// The record of a tool's price.
pub fn tool_price_json(base: PicoUsd, markup: &EffectiveMarkup) -> String {
    let base = turnpike_core::pricing::format_usd(base);
    format!(
        r#"{{"baseUsd":"{base}","markupBps":{},"flatUsd":"{}"}}"#,
        markup.bps, markup.flat
    )
}

/// The prices of one revision.
#[derive(Debug, Default)]
struct PriceBook {
    revision: i64,
    catalogue: Catalogue,
    priced: BTreeMap<(String, String), Arc<PricedModel>>,
}

/// A model that can be called.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Who serves it.
    pub entry: Arc<ProviderEntry>,
    /// What the provider calls it.
    pub upstream_model: String,
    /// What callers call it.
    pub model: Arc<str>,
    /// Its price.
    pub priced: Arc<PricedModel>,
}

/// Everything that is sold.
pub struct Shelf {
    configured: Arc<Stock>,
    rules: ImportRules,
    stock: RwLock<Arc<Stock>>,
    prices: RwLock<Arc<PriceBook>>,
}

impl Shelf {
    /// A shelf of `providers`, in the order in which they are asked for a model; prices are loaded later.
    pub fn new(providers: Vec<ProviderEntry>) -> Self {
        let configured = Arc::new(Stock::configured(providers));
        Self {
            stock: RwLock::new(configured.clone()),
            configured,
            rules: ImportRules::default(),
            prices: RwLock::default(),
        }
    }

    /// The same, with imported providers under `rules`.
    #[must_use]
    pub fn importing(self, rules: ImportRules) -> Self {
        Self { rules, ..self }
    }

    /// What is on it now.
    pub fn stock(&self) -> Arc<Stock> {
        self.stock.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes whenever the tools of [`Self::stock`] do.
    pub fn tools_revision(&self) -> i64 {
        self.stock().revision()
    }

    fn book(&self) -> Arc<PriceBook> {
        self.prices.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads prices and imported tools again when their revisions have moved.
    ///
    /// # Errors
    /// When the store cannot be read; what was read before stays in force.
    pub async fn refresh(&self, store: &dyn Store) -> Result<(), AppError> {
        self.refresh_prices(store).await?;
        self.refresh_tools(store).await
    }

    async fn refresh_tools(&self, store: &dyn Store) -> Result<(), AppError> {
        // Read before the tools: what changes in between is read again.
        let revision = store.tools_revision().await?;
        let last = self.stock();
        if revision == last.revision() {
            return Ok(());
        }
        let rows = store.list_imported_tools().await?;
        let (configured, rules) = (self.configured.clone(), self.rules);
        // Schemas are compiled, which takes its time with thousands of them.
        let restock = move || Stock::restocked(&configured, &last, revision, &rows, rules);
        let stock = tokio::task::spawn_blocking(restock)
            .await
            .map_err(|error| AppError::internal(&error))?;
        *self.stock.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(stock);
        Ok(())
    }

    async fn refresh_prices(&self, store: &dyn Store) -> Result<(), AppError> {
        let revision = store.price_revision().await?;
        if revision == self.book().revision {
            return Ok(());
        }
        let mut catalogue = Catalogue::default();
        let mut priced = BTreeMap::new();
        for row in store.list_prices().await? {
            let price = match parse_price(&row) {
                Ok(price) => price,
                Err(error) => {
                    tracing::error!(provider = row.provider, model = row.model, %error, "a stored price is unusable");
                    continue;
                }
            };
            let rates_json =
                serde_json::to_string(&price.rates).map_err(|error| AppError::internal(&error))?;
            let model = Arc::new(PricedModel {
                price: price.clone(),
                rates_json,
            });
            priced.insert((price.provider.clone(), price.model.clone()), model);
            catalogue
                .insert(price)
                .map_err(|error| AppError::internal(&error))?;
        }
        *self.prices.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(PriceBook {
            revision,
            catalogue,
            priced,
        });
        Ok(())
    }

    /// The catalogue in force.
    pub fn catalogue(&self) -> Catalogue {
        self.book().catalogue.clone()
    }

    /// The providers, in order.
    pub fn providers(&self) -> Vec<Arc<ProviderEntry>> {
        self.stock().providers().cloned().collect()
    }

    /// Finds who serves `model`: a bare id (the first provider that has it and that `require` lets pass) or
    /// `provider/model`.
    ///
    /// # Errors
    /// `MODEL_NOT_SUPPORTED` when nobody does, what `require` says of a provider and its slug when it lets nobody pass,
    /// `PRICE_UNAVAILABLE` when it has no price.
    pub(crate) fn model(
        &self,
        model: &str,
        require: impl Fn(&str, &str) -> Result<(), AppError>,
    ) -> Result<Offer, AppError> {
        let book = self.book();
        let mut refused = None;
        let mut unpriced = false;
        let stock = self.stock();
        let of_provider = |entry: &Arc<ProviderEntry>| {
            let rest = model.strip_prefix(entry.provider.id())?;
            rest.strip_prefix('/')
        };
        // A provider that is named goes before another one's model of that whole name.
        let named = stock
            .providers()
            .filter_map(|entry| Some((entry, of_provider(entry)?)));
        let bare = stock.providers().map(|entry| (entry, model));
        for (entry, id) in named.chain(bare) {
            let Some(found) = entry.models.iter().find(|known| known.id == id) else {
                continue;
            };
            let provider = entry.provider.id();
            if let Err(refusal) = require(provider, &format!("{provider}/{id}")) {
                refused.get_or_insert(refusal);
                continue;
            }
            let key = (entry.prices_from.clone(), found.upstream.clone());
            let Some(priced) = book.priced.get(&key) else {
                unpriced = true;
                continue;
            };
            return Ok(Offer {
                entry: entry.clone(),
                upstream_model: found.upstream.clone(),
                model: found.id.as_str().into(),
                priced: priced.clone(),
            });
        }
        if let Some(refusal) = refused {
            return Err(refusal);
        }
        if unpriced {
            return Err(self::unpriced());
        }
        let shown: String = model.chars().take(100).collect();
        Err(AppError::new(
            ErrorCode::ModelNotSupported,
            format!("there is no model {shown:?} here"),
        )
        .with(
            "details",
            serde_json::json!([{ "path": "model", "message": "unknown model" }]),
        ))
    }

    /// A model of one provider.
    ///
    /// # Errors
    /// `ENDPOINT_NOT_FOUND`, `PRICE_UNAVAILABLE`.
    pub(crate) fn model_of(&self, provider: &str, id: &str) -> Result<Offer, AppError> {
        let not_found = || AppError::new(ErrorCode::EndpointNotFound, "there is no such provider or model");
        let stock = self.stock();
        let entry = stock.provider(provider).ok_or_else(not_found)?;
        let model = entry.models.iter().find(|model| model.id == id);
        let model = model.ok_or_else(not_found)?;
        let key = (entry.prices_from.clone(), model.upstream.clone());
        let priced = self.book().priced.get(&key).cloned();
        Ok(Offer {
            entry: entry.clone(),
            upstream_model: model.upstream.clone(),
            model: model.id.as_str().into(),
            priced: priced.ok_or_else(unpriced)?,
        })
    }

    /// Every model that can be called, with its price.
    pub fn offers(&self) -> Vec<Offer> {
        let book = self.book();
        let mut offers = Vec::new();
        for entry in self.providers() {
            for model in &entry.models {
                if let Some(priced) = book
                    .priced
                    .get(&(entry.prices_from.clone(), model.upstream.clone()))
                {
                    offers.push(Offer {
                        entry: entry.clone(),
                        upstream_model: model.upstream.clone(),
                        model: model.id.as_str().into(),
                        priced: priced.clone(),
                    });
                }
            }
        }
        offers
    }

    /// A tool of a provider.
    ///
    /// # Errors
    /// `ENDPOINT_NOT_FOUND`.
    pub fn tool(
        &self,
        provider: &str,
        endpoint: &str,
    ) -> Result<(Arc<ProviderEntry>, Arc<ToolEntry>), AppError> {
        let not_found = || {
            AppError::new(
                ErrorCode::EndpointNotFound,
                "there is no such provider or endpoint",
            )
        };
        let stock = self.stock();
        let entry = stock.provider(provider).ok_or_else(not_found)?;
        let tool = entry.tools.get(endpoint).ok_or_else(not_found)?;
        Ok((entry.clone(), tool.clone()))
    }
}

fn unpriced() -> AppError {
    AppError::new(
        ErrorCode::PriceUnavailable,
        "the model has no price, so it is not sold",
    )
}

fn parse_price(row: &PriceRow) -> Result<ModelPrice, AppError> {
    let price: ModelPrice =
        serde_json::from_str(&row.document).map_err(|error| AppError::internal(&error))?;
    price.validate()?;
    Ok(price)
}
