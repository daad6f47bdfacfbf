//! Everything that is sold, tools and models alike, by slug.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::providers::Shelf;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ItemKind {
    /// A provider's tool.
    Tool,
    /// A provider's model.
    Model,
}

/// Something that can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// `provider/endpoint`, for models `provider/model`.
    pub(crate) slug: String,
    /// Who serves it.
    pub(crate) provider: String,
    /// The tool's or model's name at this service.
    pub(crate) endpoint: String,
    /// What it is.
    pub(crate) kind: ItemKind,
    /// Its name for people.
    pub(crate) name: String,
    /// Whether the provider quotes each call.
    pub(crate) dynamic: bool,
}

impl Shelf {
    /// Everything, by slug. Where a provider has a tool and a model of one name, the tool stands for both.
    pub(crate) fn items(&self) -> BTreeMap<String, Item> {
        let mut items = BTreeMap::new();
        for entry in self.stock().providers() {
            let provider = entry.provider.id();
            let item = |endpoint: &str, kind, name: &str, dynamic| Item {
                slug: format!("{provider}/{endpoint}"),
                provider: provider.to_owned(),
                endpoint: endpoint.to_owned(),
                kind,
                name: name.to_owned(),
                dynamic,
            };
            let models = entry.models.iter();
            let models = models.map(|model| item(&model.id, ItemKind::Model, &model.id, false));
            let tools = entry.tools.iter();
            let tools =
                tools.map(|(name, tool)| item(name, ItemKind::Tool, &tool.definition.title, tool.is_live()));
            items.extend(models.chain(tools).map(|item| (item.slug.clone(), item)));
        }
        items
    }

    /// Whether a provider is configured.
    pub(crate) fn has_provider(&self, provider: &str) -> bool {
        self.stock().provider(provider).is_some()
    }

    /// Whether `endpoint`, a tool or a model, is configured at `provider`.
    pub(crate) fn has_endpoint(&self, provider: &str, endpoint: &str) -> bool {
        let stock = self.stock();
        stock.provider(provider).is_some_and(|entry| {
            entry.tools.contains_key(endpoint) || entry.models.iter().any(|model| model.id == endpoint)
        })
    }
}
