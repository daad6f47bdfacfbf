//! Prices as a workspace sees and sets them: the markup of each level, its history, and what a call will cost.

mod edits;
mod explain;
mod history;
mod levels;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use turnpike_store::Store;

pub use self::edits::Level;
pub use self::explain::ExplainQuery;
pub(crate) use self::explain::explain_tool;
pub(crate) use self::levels::{KeyPricingIn, MARKUP, end_user_markup, read_key_pricing, read_markup};
use crate::providers::Shelf;
use crate::settings::SettingsDesk;

/// The use cases of prices.
pub struct PricingDesk {
    store: Arc<dyn Store>,
    settings: Arc<SettingsDesk>,
    shelf: Arc<Shelf>,
}

impl PricingDesk {
    /// A desk over the settings of workspaces, for what is on `shelf`.
    pub const fn new(store: Arc<dyn Store>, settings: Arc<SettingsDesk>, shelf: Arc<Shelf>) -> Self {
        Self {
            store,
            settings,
            shelf,
        }
    }
}
