//! The shapes that the routes of estimates and approvals speak, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// What to estimate.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EstimateRequest {
    /// The tool.
    #[schema(
        pattern = "^[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9-]*$",
        max_length = 256,
        example = "sim/echo"
    )]
    slug: String,
    /// The tool's arguments, as they will be sent; none when absent.
    #[schema(required = false, nullable = false, example = json!({ "message": "hello" }))]
    args: Option<BTreeMap<String, Value>>,
    /// How long the price is kept; 120 when absent.
    #[schema(minimum = 30, maximum = 600, required = false, nullable = false)]
    expires_in_seconds: Option<i64>,
    /// The most that the call may cost. Above it there is no quote.
    #[schema(
        pattern = "^[0-9]+(?:[.][0-9]{1,6})?$",
        required = false,
        nullable = false,
        example = "100"
    )]
    max_charge_credits: Option<String>,
    /// The end user who would pay, with a key; with a token only its own.
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$",
        required = false,
        nullable = false
    )]
    external_user_id: Option<String>,
}

/// What an estimate says.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum EstimateKind {
    /// What the call costs.
    Exact,
    /// What it costs at most.
    Ceiling,
    /// There is no price.
    Unavailable,
}

/// What a call would cost.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Estimate {
    /// Null without a quote.
    id: Option<Uuid>,
    slug: String,
    #[schema(inline)]
    kind: EstimateKind,
    price_usd: Option<String>,
    price_credits: Option<String>,
    /// Whether the end user's policy asks for an approval at this price.
    requires_approval: bool,
    /// Why there is no quote.
    #[schema(required = false, nullable = false)]
    reason: Option<String>,
}

/// An estimate and, where there is a quote, what it is used with.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EstimateEnvelope {
    success: bool,
    estimate: Estimate,
    /// For the header `X-Svc-Approval-Token` of the call; shown once.
    #[schema(required = false, nullable = false)]
    approval_token: Option<String>,
    /// An idempotency key for the call, if you have none of your own.
    #[schema(required = false, nullable = false)]
    idempotency_key: Option<String>,
    /// From then on the price is not kept.
    #[schema(format = DateTime, required = false, nullable = false)]
    expires_at: Option<String>,
}

/// Where a quote stands that cannot be used.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum EndedQuote {
    Canceled,
    Expired,
}

/// A quote that was withdrawn.
#[derive(Serialize, ToSchema)]
pub(super) struct CanceledQuote {
    id: Uuid,
    slug: String,
    #[schema(inline)]
    status: EndedQuote,
}

/// A quote that was withdrawn.
#[derive(Serialize, ToSchema)]
pub(super) struct CanceledEstimate {
    success: bool,
    estimate: CanceledQuote,
}

/// Where an approval stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ApprovalStatus {
    Pending,
    Approved,
    Denied,
    Canceled,
    Expired,
    Consumed,
}

/// What an approval is about.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ApprovalKind {
    ToolAccess,
    Spend,
    Quote,
}

/// Which approvals a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub(super) struct ApprovalListParams {
    /// Only those that stand so.
    #[param(required = false, inline)]
    status: Option<ApprovalStatus>,
    /// Only those of one end user.
    #[param(required = false, pattern = "^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$")]
    external_user_id: Option<String>,
    /// 1 to 100; 20 when absent.
    #[param(minimum = 1, maximum = 100, required = false)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(required = false)]
    cursor: Option<Uuid>,
}

/// Names an approval in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ApprovalPath {
    /// The approval.
    #[param(rename = "approvalId")]
    approval_id: Uuid,
}

/// A wish for a tool.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AccessRequest {
    /// The tool or model.
    #[schema(
        pattern = "^[a-z0-9][a-z0-9-]*/[A-Za-z0-9][A-Za-z0-9._:@/-]*$",
        max_length = 256,
        example = "sim/echo"
    )]
    slug: String,
    /// Why, for who decides.
    #[schema(min_length = 1, max_length = 500, required = false, nullable = false)]
    reason: Option<String>,
    /// Who wishes to call it, with a key; with a token only its own end user.
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$",
        required = false,
        nullable = false,
        example = "demo-user"
    )]
    external_user_id: Option<String>,
}

/// A decision.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    /// Why so, for who asked.
    #[schema(max_length = 500, required = false, nullable = false)]
    reason: Option<String>,
}

/// A wish that an owner or admin decides about.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Approval {
    id: Uuid,
    #[schema(inline)]
    kind: ApprovalKind,
    #[schema(inline)]
    status: ApprovalStatus,
    slug: String,
    external_user_id: String,
    /// The most that the call may cost; null for access to a tool.
    requested_usd: Option<String>,
    requested_credits: Option<String>,
    /// The call's arguments as JSON text, cut off where they are long.
    args: Option<String>,
    /// The quote that it was asked for with.
    quote_id: Option<Uuid>,
    /// Why, in the words of who asks.
    reason: Option<String>,
    /// The credential that asked, by kind and id.
    requested_by: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// From then on it cannot be decided, or used.
    #[schema(format = DateTime)]
    expires_at: String,
    #[schema(format = DateTime)]
    decided_at: Option<String>,
    decided_by: Option<String>,
    decision_reason: Option<String>,
    /// The call that used it.
    call_id: Option<Uuid>,
    /// The page where it is decided.
    url: String,
}

/// An approval.
#[derive(Serialize, ToSchema)]
pub(super) struct ApprovalEnvelope {
    success: bool,
    approval: Approval,
}

/// A page of approvals.
#[derive(Serialize, ToSchema)]
pub(super) struct ApprovalList {
    success: bool,
    data: Vec<Approval>,
    next_cursor: Option<Uuid>,
}
