//! The shapes that the routes of prices and the catalogue speak, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::schemas_keys::KeyPrices;

/// Names a provider in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ProviderPath {
    /// The provider's id.
    provider: String,
}

/// Names a tool or a model in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct EndpointPath {
    /// The provider's id.
    provider: String,
    /// The tool's name or the model's id, percent-encoded: `org%2Fmodel%3Afree`.
    endpoint: String,
}

/// What is to be explained.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExplainParams {
    /// The provider's id.
    #[param(example = "sim")]
    provider: String,
    /// The tool's name or the model's id.
    #[param(example = "echo")]
    endpoint: String,
    /// The call's arguments as JSON, at most 32 KiB; for a model the body of a chat completion. What cannot be used is
    /// ignored.
    #[param(required = false)]
    args: Option<String>,
    /// The key through which it is called; dashboard sessions only. A key is explained with its own prices.
    #[param(rename = "keyId", required = false)]
    key_id: Option<Uuid>,
}

/// What one level says about markup.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct MarkupBody {
    /// Percentage of the base in basis points.
    #[schema(minimum = 0, maximum = 100_000)]
    markup_bps: Option<i64>,
    /// Fixed part per call.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    flat_markup_usdc: Option<String>,
}

/// On or off.
#[derive(ToSchema)]
pub(super) struct Switch {
    enabled: bool,
}

/// Which rule decides.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "lowercase")]
enum EnabledBy {
    Endpoint,
    Provider,
    Default,
}

/// What an entry is.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "lowercase")]
enum EntryKind {
    Tool,
    Model,
}

/// A tool or model. One that is not configured any more and still has a rule shows the rule alone.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct CatalogEntry {
    slug: String,
    provider: String,
    endpoint: Option<String>,
    #[schema(inline)]
    kind: Option<EntryKind>,
    /// For people.
    name: Option<String>,
    enabled: bool,
    #[schema(inline)]
    enabled_by: EnabledBy,
    /// Whether the provider quotes each call.
    dynamic: Option<bool>,
}

/// A provider as a whole.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct CatalogProvider {
    /// `provider/*`.
    slug: String,
    provider: String,
    enabled: bool,
    #[schema(inline)]
    enabled_by: EnabledBy,
}

/// A page of the catalogue.
#[derive(ToSchema)]
#[schema(as = CatalogList)]
pub(super) struct EntryList {
    success: bool,
    data: Vec<CatalogEntry>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A tool or model after a change.
#[derive(ToSchema)]
pub(super) struct SwitchedEntry {
    success: bool,
    entry: CatalogEntry,
}

/// A provider after a change.
#[derive(ToSchema)]
pub(super) struct SwitchedProvider {
    success: bool,
    entry: CatalogProvider,
}

/// Prices of one key.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct PricedKey {
    key_id: Uuid,
    name: String,
    pricing: KeyPrices,
}

/// What every level says; the more specific one wins: key, endpoint, provider, global.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct Levels {
    global: MarkupBody,
    providers: BTreeMap<String, MarkupBody>,
    endpoints: BTreeMap<String, MarkupBody>,
    /// Keys with prices of their own, newest first.
    #[schema(max_items = 100)]
    keys: Vec<PricedKey>,
    /// Whether there are more of them.
    more_keys: bool,
}

/// Every level.
#[derive(ToSchema)]
pub(super) struct LevelsEnvelope {
    success: bool,
    pricing: Levels,
}

/// Where a markup is set.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "lowercase")]
enum LevelName {
    Global,
    Provider,
    Endpoint,
}

/// One level; null where a more general one decides.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct PriceLevel {
    #[schema(inline)]
    level: LevelName,
    /// The provider, or `provider/endpoint`.
    #[schema(required)]
    target: Option<String>,
    #[schema(required)]
    markup_bps: Option<i64>,
    #[schema(required)]
    flat_markup_usdc: Option<String>,
}

/// One level after a change.
#[derive(ToSchema)]
pub(super) struct LevelEnvelope {
    success: bool,
    pricing: PriceLevel,
}

/// The configuration level that supplied a part of the markup.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "lowercase")]
pub(super) enum MarkupSource {
    Key,
    Endpoint,
    Provider,
    Global,
}

/// What a call of an end user costs and why. Amounts are null when the price is not known before the
/// call.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the members that the specification names"
)]
struct Explain {
    provider: String,
    endpoint: String,
    slug: String,
    /// The upstream HTTP method.
    method: String,
    /// Priced live per call.
    dynamic: bool,
    /// The price depends on the arguments.
    estimated: bool,
    /// Enabled for the workspace, and for the key.
    enabled: bool,
    credits_per_dollar: i64,
    markup_bps: i64,
    #[schema(inline)]
    markup_source: MarkupSource,
    #[schema(inline)]
    flat_source: MarkupSource,
    /// Some level above `global` supplied a part.
    overridden: bool,
    #[schema(required)]
    base_usd: Option<String>,
    #[schema(required)]
    base_credits: Option<String>,
    #[schema(required)]
    markup_usd: Option<String>,
    #[schema(required)]
    flat_markup_usd: Option<String>,
    #[schema(required)]
    margin_usd: Option<String>,
    #[schema(required)]
    margin_credits: Option<String>,
    /// What the end user pays.
    #[schema(required)]
    effective_usd: Option<String>,
    #[schema(required)]
    effective_credits: Option<String>,
    human_summary: String,
}

/// An explanation.
#[derive(ToSchema)]
pub(super) struct ExplainEnvelope {
    success: bool,
    explain: Explain,
}
