//! The OpenAPI document: generated from the routes, with the shapes that they speak.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use std::collections::BTreeMap;

use serde_json::Value;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::paid_call::Operation as PaidOperation;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr,
    Response, ResponseBuilder, ServerBuilder,
};
use utoipa::{IntoParams, IntoResponses, PartialSchema as _, ToSchema};

use super::access::{Demand, Own, rule_of};
use super::access_doc::access_in_words;
use super::{App, schemas_vendor};

/// The asset of the built-in configuration.
const DEFAULT_ASSET: &str = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";

/// The document without its routes.
pub(super) fn base() -> OpenApi {
    let bearer = |description: &str| {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.description = Some(description.to_owned());
        SecurityScheme::Http(scheme)
    };
    let components = ComponentsBuilder::new()
        .schema("Error", ErrorBody::schema())
        .schema("PaymentProblem", schemas_vendor::PaymentProblem::schema())
        .schema("PaidCallInProgress", schemas_vendor::PaidCallInProgress::schema())
        .security_scheme(
            "secretKey",
            bearer("A secret or sandbox API key; server-side only"),
        )
        .security_scheme("dashboard", bearer("A dashboard session of a member"))
        .security_scheme(
            "endUserToken",
            bearer("A token of an end user; with X-Svc-Session-Id when it is bound to a session"),
        )
        .security_scheme(
            "agentConnection",
            bearer("The secret of an agent connection, of an end user or of the workspace"),
        )
        .build();
    let info = InfoBuilder::new()
        .title("Turnpike")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Metered, prepaid calls to AI providers and tools. Money is always a decimal string.",
        ))
        .license(Some(
            LicenseBuilder::new()
                .name("Apache-2.0")
                .identifier(Some("Apache-2.0"))
                .build(),
        ))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .servers(Some([ServerBuilder::new().url("/").build()]))
        .components(Some(components))
        .build()
}

/// The whole document as it is printed and checked in, with the asset of the configuration that is built in.
pub(crate) fn printed() -> OpenApi {
    let mut document = document();
    super::vendor_doc::add_offers(&mut document, DEFAULT_ASSET);
    document
}

/// The whole document; what each operation demands is taken from the table of routes.
pub(crate) fn document() -> OpenApi {
    let mut document = super::routes::documented().split_for_parts().1;
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations_mut(item) {
            if let Some(rule) = rule_of(method, path) {
                operation.security = credentials(rule.demand);
                let words = operation.description.take().filter(|text| !text.is_empty());
                let words = words.into_iter().chain(access_in_words(rule));
                let words: Vec<String> = words.collect();
                operation.description = (!words.is_empty()).then(|| words.join("\n\n"));
            }
        }
    }
    document
}

/// The operations of a path, by method.
pub(super) fn operations(item: &PathItem) -> impl Iterator<Item = (&'static str, &Operation)> {
    let all = [
        ("GET", &item.get),
        ("PUT", &item.put),
        ("POST", &item.post),
        ("DELETE", &item.delete),
        ("PATCH", &item.patch),
    ];
    all.into_iter()
        .filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let all = [
        ("GET", &mut item.get),
        ("PUT", &mut item.put),
        ("POST", &mut item.post),
        ("DELETE", &mut item.delete),
        ("PATCH", &mut item.patch),
    ];
    all.into_iter()
        .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// The security schemes that satisfy a demand: any one of them.
fn credentials(demand: Demand) -> Option<Vec<SecurityRequirement>> {
    let schemes: &[&str] = match demand {
        Demand::Public | Demand::Signed => return None,
        Demand::Caller => &["secretKey", "endUserToken", "agentConnection"],
        Demand::CallerOrMember => &["secretKey", "endUserToken", "dashboard", "agentConnection"],
        Demand::Shared(_, Own::EndUser(_)) => &["secretKey", "dashboard", "endUserToken"],
        Demand::Shared(_, Own::Agent(_)) => &["secretKey", "dashboard", "agentConnection"],
        Demand::EndUser(_) => &["endUserToken"],
        Demand::Workspace(needs) if needs.keys => &["secretKey", "dashboard"],
        Demand::Person | Demand::Workspace(_) => &["dashboard"],
    };
    let one = |name: &&str| SecurityRequirement::new(*name, Vec::<String>::new());
    Some(schemes.iter().map(one).collect())
}

/// The error responses that a call route can give.
pub(super) struct Errors;

impl IntoResponses for Errors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut by_status: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for code in ErrorCode::ALL {
            by_status
                .entry(code.status().to_string())
                .or_default()
                .push(code.as_str());
        }
        let response = |(status, codes): (String, Vec<&str>)| {
            let content = ContentBuilder::new()
                .schema(Some(Ref::from_schema_name("Error")))
                .build();
            let response = ResponseBuilder::new()
                .description(codes.join(", "))
                .content("application/json", content)
                .build();
            (status, RefOr::T(response))
        };
        by_status.into_iter().map(response).collect()
    }
}

/// An error; further members go with the code.
#[derive(ToSchema)]
pub(super) struct ErrorBody {
    /// Always false.
    success: bool,
    /// Label of the status.
    error: String,
    /// Machine code.
    code: String,
    /// For people.
    message: String,
    /// Finds the request in the logs.
    #[schema(rename = "requestId")]
    request_id: String,
}

/// Query of the ledger.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LedgerParams {
    /// Page size.
    #[param(minimum = 1, maximum = 100, default = 20, required = false)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(required = false)]
    cursor: Option<String>,
    /// Of this end user only.
    #[param(
        rename = "externalUserId",
        required = false,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$"
    )]
    external_user_id: Option<String>,
}

/// Query of the usage.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct UsageParams {
    /// `day` (default), `model`, `endpoint`, `provider` or `endUser`.
    #[param(rename = "groupBy", required = false, inline)]
    group_by: Option<UsageGroupName>,
    /// From this instant, ISO 8601.
    #[param(required = false, format = DateTime)]
    from: Option<String>,
    /// Up to, not including, this instant.
    #[param(required = false, format = DateTime)]
    to: Option<String>,
    /// Of this end user only.
    #[param(
        rename = "externalUserId",
        required = false,
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$"
    )]
    external_user_id: Option<String>,
    /// `name:value` that the calls are tagged with.
    #[param(required = false, pattern = "^[^:]+:")]
    attribution: Option<String>,
}

/// What usage is grouped by.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
enum UsageGroupName {
    Day,
    Model,
    Endpoint,
    Provider,
    EndUser,
}

/// Query of a result.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ResultParams {
    /// First byte.
    #[param(minimum = 0, required = false)]
    offset: Option<u64>,
    /// Most bytes.
    #[param(minimum = 1, maximum = 1_048_576, required = false)]
    limit: Option<u64>,
}

/// A chat-completions request; unknown members pass through to the provider.
#[derive(ToSchema)]
pub(super) struct ChatCompletionRequest {
    /// Model id, or `provider/model`.
    #[schema(min_length = 1, max_length = 256, example = "vendor-v4-flash")]
    model: String,
    /// The messages.
    #[schema(min_items = 1)]
    messages: Vec<ChatMessage>,
    /// `true` = server-sent events.
    stream: Option<bool>,
    /// Passed through; `include_usage` shows the usage chunk.
    stream_options: Option<BTreeMap<String, Value>>,
    /// Output budget.
    #[schema(minimum = 1)]
    max_tokens: Option<u64>,
    /// Output budget, newer name; equal to `max_tokens` when both are sent.
    #[schema(minimum = 1)]
    max_completion_tokens: Option<u64>,
    /// Number of answers, each of which is priced.
    #[schema(minimum = 1, maximum = 128)]
    n: Option<u64>,
    /// Function tools.
    tools: Option<Vec<BTreeMap<String, Value>>>,
    /// Tool selection.
    tool_choice: Option<Value>,
}

/// A chat message; further members pass through.
#[derive(ToSchema)]
pub(super) struct ChatMessage {
    /// `system`, `user`, `assistant`, …
    role: String,
    /// Text, or parts.
    content: Option<Value>,
}

/// A chat completion as the provider wrote it.
#[derive(ToSchema)]
pub(super) struct ChatCompletion {
    id: Option<String>,
    object: Option<String>,
    model: Option<String>,
    choices: Option<Vec<Value>>,
    usage: Option<Value>,
}

/// Models.
#[derive(ToSchema)]
pub(super) struct ModelList {
    /// `list`.
    object: String,
    data: Vec<Model>,
}

/// A model with its price: dollars per million tokens.
#[derive(ToSchema)]
pub(super) struct Model {
    id: String,
    object: String,
    created: i64,
    owned_by: String,
    pricing: BTreeMap<String, Value>,
    context_length: Option<u64>,
    max_output_tokens: Option<u64>,
    #[schema(rename = "recommendedMinOutputTokens")]
    recommended_min_output_tokens: Option<u64>,
}

/// A tool's result.
#[derive(ToSchema)]
pub(super) struct ToolResult {
    success: bool,
    /// The provider's JSON.
    data: Value,
    billing: Billing,
}

/// What a call took.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Billing {
    credits_charged: String,
    credits_balance: String,
    cost_usd: Option<String>,
    call_id: String,
}

/// A balance.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Balance {
    success: bool,
    usd: String,
    credits: String,
    available_usd: String,
    reserved_usd: String,
    denomination: Denomination,
}

/// How credits are shown.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Denomination {
    credits_per_dollar: i64,
}

/// Ledger entries.
#[derive(ToSchema)]
pub(super) struct EntryList {
    success: bool,
    data: Vec<BTreeMap<String, Value>>,
    next_cursor: Option<String>,
}

/// Usage by group.
#[derive(ToSchema)]
pub(super) struct UsageList {
    success: bool,
    data: Vec<BTreeMap<String, Value>>,
}

/// A call.
#[derive(ToSchema)]
pub(super) struct CallEnvelope {
    success: bool,
    call: BTreeMap<String, Value>,
}

/// A part of a stored answer.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct ResultPage {
    success: bool,
    call_id: String,
    content_type: String,
    content: String,
    /// `utf-8`, or `base64` where the cut splits a character.
    encoding: String,
    offset: u64,
    total_bytes: u64,
    next_offset: Option<u64>,
}

/// How streams are settled.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
enum StreamSettlementName {
    Fixed,
    Usage,
}

/// A workspace's settings.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Settings {
    /// `fixed` = a stream costs its authorised amount; `usage` = the unused part is credited back.
    #[schema(inline)]
    stream_settlement: Option<StreamSettlementName>,
    /// Whether chat completions need an `Idempotency-Key`.
    require_idempotency_key: Option<bool>,
    /// Markup on end users' calls: `global`, `providers`, `endpoints`.
    pricing: Option<BTreeMap<String, Value>>,
    /// What may be called: `provider/*`, `provider/endpoint` or `provider/model`, true or false.
    catalog: Option<BTreeMap<String, bool>>,
    /// Balances below which `credits.balance.low` is sent.
    low_balance: Option<LowBalance>,
    /// Limits on top-ups, within the service's own.
    topups: Option<TopupLimits>,
    /// Origins of pages that may use end users' tokens and publishable keys.
    #[schema(max_items = 50)]
    allowed_origins: Option<Vec<String>>,
}

/// Balances below which the workspace is told.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct LowBalance {
    /// Of the pool.
    pool_usd: Option<String>,
    /// Of each end user.
    end_user_usd: Option<String>,
}

/// Limits on top-ups.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct TopupLimits {
    /// Smallest amount.
    min_usd: Option<String>,
    /// Largest amount.
    max_usd: Option<String>,
    /// Hosts that `successUrl` and `cancelUrl` may name; empty = any.
    #[schema(max_items = 50)]
    url_hosts: Option<Vec<String>>,
}

/// A workspace's settings.
#[derive(ToSchema)]
pub(super) struct SettingsEnvelope {
    success: bool,
    settings: Settings,
}

/// A state in one word.
#[derive(ToSchema)]
pub(super) struct Status {
    status: String,
}

/// The service in words, for language models.
pub(super) fn llms_txt(app: &App) -> String {
    let base = &app.service.config.server.public_url;
    let models: Vec<String> = app
        .service
        .shelf
        .offers()
        .iter()
        .map(|offer| format!("- `{}`", offer.model))
        .collect();
    format!(
        "# Turnpike\n\n> Metered, prepaid calls to AI models and tools. OpenAI-compatible.\n\n\
         Base URL for OpenAI SDKs: {base}/api/wrapped/credits/v1\n\
         Credential: `Authorization: Bearer <API_KEY>`.\n\
         Retry with the same `Idempotency-Key`: a call is charged once.\n\
         Money is a decimal string. Headers of each answer say what it cost and what is left.\n\n\
         ## Models\n\n{}\n{}{}\n## Reference\n\n- [OpenAPI]({base}/openapi.json)\n- [Agents]({base}/api/credits/mcp/docs)\n",
        models.join("\n"),
        tools(base),
        pay_per_call(app)
    )
}

/// How tools are found and called.
fn tools(base: &str) -> String {
    format!(
        "\n## Tools\n\n\
         1. POST {base}/api/credits/tools/search `{{\"query\": \"the task in words\"}}`: finds a slug.\n\
         2. POST {base}/api/credits/tools/describe `{{\"slug\"}}`: its arguments, its price, whether you may call it.\n\
         3. POST {base}/api/credits/tools/estimate `{{\"slug\", \"args\"}}`: a quote that holds for these arguments.\n\
         4. POST {base}/api/wrapped/credits/{{provider}}/{{endpoint}}: the call; the same `Idempotency-Key` for a repeat.\n\n\
         The same by the Model Context Protocol (streamable HTTP, OAuth 2.1): {base}/api/credits/mcp\n"
    )
}

/// The operations that need no account, when they are sold.
fn pay_per_call(app: &App) -> String {
    let Some(desk) = &app.service.paid_calls else {
        return String::new();
    };
    let lines: Vec<String> = PaidOperation::ALL
        .iter()
        .map(|operation| format!("- POST {}\n", desk.settings().url(*operation)))
        .collect();
    format!(
        "\n## Without an account\n\n{}\nPaid for by the call with x402 version 2: the 402 names the terms in \
         `PAYMENT-REQUIRED`. Choose an `x-svc-request-id` (a UUID) yourself: the whole call can then be repeated and is \
         charged once.\n",
        lines.concat()
    )
}
