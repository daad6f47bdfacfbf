//! The shapes that the routes of tools speak, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::schemas_pricing::MarkupSource;

/// What is searched for; at least one of `query`, `category` and `pack`. A member that is null counts as absent.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "query": "give a message back", "limit": 3 }))]
pub(super) struct ToolSearch {
    /// What is to be done, in plain words; or a slug.
    #[schema(min_length = 1, max_length = 1000)]
    query: Option<String>,
    /// Only tools of this category.
    #[schema(min_length = 1, max_length = 100)]
    category: Option<String>,
    /// Only tools of this pack.
    #[schema(min_length = 1, max_length = 100)]
    pack: Option<String>,
    /// Only what this caller could execute, or only the rest.
    enabled: Option<bool>,
    /// Page size.
    #[schema(minimum = 1, maximum = 50, default = 10)]
    limit: Option<i64>,
    /// `next_cursor` of the page before, with the same search.
    #[schema(max_length = 512)]
    cursor: Option<String>,
}

/// How much of the task a tool is about.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "lowercase")]
enum MatchQuality {
    Strong,
    Partial,
    Weak,
}

/// A tool that was found.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct FoundTool {
    /// `provider/endpoint`, which is also the path to execute it.
    #[schema(example = "sim/echo")]
    slug: String,
    provider: String,
    endpoint: String,
    /// For people.
    name: String,
    summary: String,
    #[schema(required)]
    category: Option<String>,
    packs: Vec<String>,
    /// The upstream HTTP method.
    method: String,
    /// Whether this caller could execute it.
    enabled: bool,
    /// Whether the price differs from call to call.
    dynamic: bool,
    /// What a call costs who would pay for it; null when it differs from call to call.
    #[schema(required)]
    price_usd: Option<String>,
    #[schema(required)]
    price_credits: Option<String>,
    #[schema(inline)]
    match_quality: MatchQuality,
}

/// A page of tools, best first.
#[derive(ToSchema)]
pub(super) struct FoundTools {
    success: bool,
    #[schema(max_items = 50)]
    results: Vec<FoundTool>,
    /// Why there is nothing, or nothing better.
    #[schema(required)]
    reason: Option<String>,
    /// Categories to look into, or the slugs that match and are not shown; only when nothing is shown.
    #[schema(max_items = 5)]
    suggestions: Option<Vec<String>>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Which tool.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolName {
    /// `provider/endpoint`.
    #[schema(min_length = 1, max_length = 256, example = "sim/echo")]
    slug: String,
}

/// Whether the caller may execute a tool.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct ToolAccess {
    enabled: bool,
    /// Whether a human of the workspace must approve a call first. Where the price depends on the arguments, the estimate
    /// says it exactly.
    requires_approval: bool,
    /// Where a human approves.
    approval_url: Option<String>,
}

/// What a call costs and why; the same members as of the explanation. Amounts are null when the price is not known before
/// the call, and an end user is not shown the members that are not required.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct ToolPricing {
    provider: String,
    endpoint: String,
    slug: String,
    method: String,
    dynamic: bool,
    estimated: bool,
    enabled: bool,
    credits_per_dollar: i64,
    markup_bps: Option<i64>,
    #[schema(inline)]
    markup_source: Option<MarkupSource>,
    #[schema(inline)]
    flat_source: Option<MarkupSource>,
    overridden: Option<bool>,
    base_usd: Option<String>,
    base_credits: Option<String>,
    markup_usd: Option<String>,
    flat_markup_usd: Option<String>,
    margin_usd: Option<String>,
    margin_credits: Option<String>,
    /// What the end user pays.
    #[schema(required)]
    effective_usd: Option<String>,
    #[schema(required)]
    effective_credits: Option<String>,
    human_summary: Option<String>,
}

/// Arguments and an answer to look at; null where the tool has none.
#[derive(Serialize, ToSchema)]
struct ToolExample {
    args: Value,
    result: Value,
}

/// A tool in full.
#[derive(Serialize, ToSchema)]
#[schema(rename_all = "camelCase")]
struct DescribedTool {
    #[schema(example = "sim/echo")]
    slug: String,
    provider: String,
    endpoint: String,
    name: String,
    summary: String,
    description: String,
    #[schema(required)]
    category: Option<String>,
    packs: Vec<String>,
    method: String,
    enabled: bool,
    dynamic: bool,
    #[schema(required)]
    price_usd: Option<String>,
    #[schema(required)]
    price_credits: Option<String>,
    /// JSON Schema 2020-12 of the arguments.
    input_schema: BTreeMap<String, Value>,
    /// JSON Schema 2020-12 of the answer.
    output_schema: Option<BTreeMap<String, Value>>,
    example: ToolExample,
    access: ToolAccess,
    /// Null for a tool without a price, which cannot be executed.
    #[schema(required)]
    pricing: Option<ToolPricing>,
    /// Changes whenever the tool does.
    revision: String,
}

/// A tool.
#[derive(ToSchema)]
pub(super) struct DescribedToolEnvelope {
    success: bool,
    tool: DescribedTool,
}
