//! Shapes of the routes that are paid for by the call, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::{ContentBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Type};
use utoipa::{IntoParams, IntoResponses, ToSchema};

/// The request id of the challenge, or one of the caller's own.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct RequestIdHeader {
    /// Of the 402, echoed with the payment and afterwards; or a UUID of your own on the first request, which makes
    /// the whole call repeatable: it is charged once.
    #[param(rename = "x-svc-request-id", required = false)]
    request_id: Option<uuid::Uuid>,
}

/// The request id, which lets its receipt be seen.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct RequiredRequestId {
    /// Of the request.
    #[param(rename = "x-svc-request-id")]
    request_id: uuid::Uuid,
}

/// The payment.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct PaymentHeader {
    /// x402 version 2: base64 of the payment payload.
    #[param(rename = "PAYMENT-SIGNATURE", required = false)]
    payment_signature: Option<String>,
}

/// A chat request; unknown members pass through to the provider.
#[derive(ToSchema)]
pub(super) struct VendorChatRequest {
    /// `vendor-v4-flash` or `vendor-v4-pro`.
    model: VendorModel,
    /// The messages.
    #[schema(min_items = 1)]
    messages: Vec<VendorMessage>,
    /// Output budget; bounds what is authorised.
    #[schema(minimum = 1, maximum = 384_000)]
    max_tokens: u64,
    /// Default 1.
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    /// Streaming is not supported here: omit it or send false.
    stream: Option<bool>,
    /// Nucleus sampling; default 1.
    top_p: Option<f64>,
    /// Stop sequences: a text or several.
    stop: Option<Value>,
}

/// Models that are sold by the call.
#[derive(ToSchema)]
enum VendorModel {
    #[schema(rename = "vendor-v4-flash")]
    Flash,
    #[schema(rename = "vendor-v4-pro")]
    Pro,
}

/// The model that completes code.
#[derive(ToSchema)]
enum VendorFimModel {
    #[schema(rename = "vendor-v4-pro")]
    Pro,
}

/// A message; further members pass through.
#[derive(ToSchema)]
struct VendorMessage {
    /// `system`, `user` or `assistant`.
    role: String,
    /// Text, parts, or null.
    content: Option<Value>,
    name: Option<String>,
    tool_call_id: Option<String>,
    tool_calls: Option<Vec<BTreeMap<String, Value>>>,
}

/// A request for code between a prefix and a suffix; unknown members pass through to the provider.
#[derive(ToSchema)]
pub(super) struct VendorFimRequest {
    model: VendorFimModel,
    /// What stands before.
    prompt: String,
    /// What stands behind.
    suffix: Option<String>,
    /// Output budget; bounds what is authorised.
    #[schema(minimum = 1, maximum = 384_000)]
    max_tokens: u64,
    /// Default 1.
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
}

/// No members are defined.
#[derive(ToSchema)]
pub(super) struct VendorListRequest {}

/// A text completion as the provider wrote it.
#[derive(ToSchema)]
pub(super) struct TextCompletion {
    id: Option<String>,
    object: Option<String>,
    model: Option<String>,
    choices: Option<Vec<Value>>,
    usage: Option<Value>,
}

/// The models that are sold by the call.
#[derive(ToSchema)]
pub(super) struct VendorModels {
    /// `list`.
    object: String,
    data: Vec<VendorModelEntry>,
}

/// A model.
#[derive(ToSchema)]
struct VendorModelEntry {
    id: String,
    /// `model`.
    object: String,
    created: i64,
    owned_by: String,
    available: bool,
}

/// A receipt.
#[derive(ToSchema)]
pub(super) struct ReceiptEnvelope {
    success: bool,
    receipt: Receipt,
}

/// What a paid call was, and what was paid for it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
struct Receipt {
    receipt_id: uuid::Uuid,
    request_id: uuid::Uuid,
    /// `chat`, `fim` or `list-models`.
    operation: String,
    /// `claimed`, `dispatched`, `settling`, `refused`, `settled` or `failed`.
    status: String,
    /// `x402` or `mpp`.
    protocol: String,
    /// Whether no money moved.
    simulated: bool,
    /// `exact` or `upto`.
    scheme: String,
    /// CAIP-2.
    network: String,
    asset: String,
    pay_to: String,
    payer: String,
    model: Option<String>,
    /// What was authorised, in base units.
    max_amount: String,
    /// What was settled, in base units.
    amount: Option<String>,
    /// The same in US dollars.
    amount_usd: Option<String>,
    /// The transaction's hash; empty when nothing was due.
    transaction: Option<String>,
    usage: Option<Value>,
    /// Why it failed.
    failure: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    settled_at: Option<String>,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
}

/// A request that is not paid, or not in a way that can be accepted (RFC 9457).
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct PaymentProblem {
    /// Below `https://paymentauth.org/problems/`.
    #[schema(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    detail: String,
    request_id: uuid::Uuid,
    /// The most that is paid, in the asset's base units.
    max_amount: String,
    #[schema(format = DateTime)]
    expires_at: String,
    /// The protocol's reason, when a payment was refused.
    reason: Option<String>,
}

/// A request that is being worked on.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct PaidCallInProgress {
    request_id: uuid::Uuid,
    status: String,
    retry_after_ms: u64,
}

/// The answers that have to do with payments.
#[derive(utoipa::ToSchema)]
pub(super) struct PaidResponses;

impl IntoResponses for PaidResponses {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let text = || ObjectBuilder::new().schema_type(Type::String).build();
        let header = |description: &str| {
            HeaderBuilder::new()
                .description(Some(description))
                .schema(Some(text()))
                .build()
        };
        let content = |schema: &str| {
            ContentBuilder::new()
                .schema(Some(Ref::from_schema_name(schema)))
                .build()
        };
        let problem = |description: &str| {
            ResponseBuilder::new()
                .description(description)
                .header("PAYMENT-REQUIRED", header("x402 version 2: base64 of the terms"))
                .header("x-svc-request-id", header("Send it with the payment"))
                .content("application/problem+json", content("PaymentProblem"))
                .build()
        };
        let working = ResponseBuilder::new()
            .description("The request is being worked on: ask again with the same id and body")
            .content("application/json", content("PaidCallInProgress"))
            .build();
        BTreeMap::from([
            ("202".to_owned(), RefOr::T(working)),
            (
                "402".to_owned(),
                RefOr::T(problem("Pay on these terms, or: the settlement was refused")),
            ),
            (
                "412".to_owned(),
                RefOr::T(problem("The wallet has to approve Permit2 first")),
            ),
        ])
    }
}
