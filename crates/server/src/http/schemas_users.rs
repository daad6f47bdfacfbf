//! Shapes of the routes of end users and their tokens, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use utoipa::{IntoParams, ToSchema};

/// Names an end user in the path, percent-encoded.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct EndUserPath {
    /// The end user, percent-encoded (a slash as `%2F`); case-sensitive.
    #[param(
        rename = "externalUserId",
        pattern = "^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$",
        example = "demo-user"
    )]
    external_user_id: String,
}

/// Query of the list of end users.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EndUserListParams {
    /// Only those whose id contains this text.
    #[param(required = false, max_length = 200)]
    q: Option<String>,
    /// Page size.
    #[param(minimum = 1, maximum = 100, default = 20, required = false)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(required = false)]
    cursor: Option<String>,
}

/// Where an end user stands.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
enum EndUserStatus {
    Active,
    Frozen,
    Retired,
}

/// An end user.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct EndUserItem {
    external_user_id: String,
    #[schema(inline)]
    status: EndUserStatus,
    /// Settled balance in dollars.
    usd: String,
    /// The same in credits.
    credits: String,
    /// What a new call may use.
    available_usd: String,
    /// Set aside by running calls.
    reserved_usd: String,
    #[schema(format = DateTime)]
    created_at: String,
}

/// End users by id.
#[derive(ToSchema)]
pub(super) struct EndUserList {
    success: bool,
    data: Vec<EndUserItem>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// An end user with limits.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct EndUserEnvelope {
    success: bool,
    external_user_id: String,
    #[schema(inline)]
    status: EndUserStatus,
    usd: String,
    credits: String,
    available_usd: String,
    reserved_usd: String,
    #[schema(format = DateTime)]
    created_at: String,
    policy: PolicyDocument,
}

/// Limits of an end user; absent or null = unlimited, zero = nothing. Amounts are decimal strings.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct PolicyDocument {
    /// Spent and held in a UTC day.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    max_usd_per_day: Option<String>,
    /// Spent and held in a UTC month.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    max_usd_per_month: Option<String>,
    /// Largest hold of one call.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    max_usd_per_call: Option<String>,
    /// Calls admitted in one loop; calls must then name their loop.
    #[schema(minimum = 0)]
    max_calls_per_loop: Option<u64>,
    /// Credits spent and held in one loop; calls must then name their loop.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    max_credits_per_loop: Option<String>,
    /// `provider/endpoint`, `provider/model` or `provider/*`.
    #[schema(max_items = 200)]
    allowed_tools: Option<Vec<String>>,
    /// Calls above this need an approval.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    require_approval_above_usd: Option<String>,
}

/// The limits of an end user.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct PolicyEnvelope {
    success: bool,
    external_user_id: String,
    policy: PolicyDocument,
}

/// Credits to move.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct MoveRequest {
    /// More than zero.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$", example = "1.5")]
    usd: String,
    /// Stands on the ledger entry.
    #[schema(max_length = 200, nullable = false)]
    reference: Option<String>,
}

/// Credits that were moved.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct MoveResult {
    success: bool,
    external_user_id: String,
    amount_usd: String,
    #[schema(format = Uuid)]
    entry_id: String,
    /// The workspace's balance afterwards.
    pool: BalanceAfter,
    /// The end user's balance afterwards.
    end_user: BalanceAfter,
}

/// A balance right after a move.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct BalanceAfter {
    usd: String,
    credits: String,
    available_usd: String,
    reserved_usd: String,
    denomination: super::openapi::Denomination,
}

/// Why a balance is frozen.
#[derive(ToSchema)]
pub(super) struct FreezeRequest {
    /// For the event and the audit log.
    #[schema(max_length = 500, nullable = false)]
    reason: Option<String>,
}

/// Whether a balance is frozen.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct FreezeResult {
    success: bool,
    external_user_id: String,
    frozen: bool,
    /// Whether it was otherwise before.
    changed: bool,
}

/// What a retirement did.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the members that the specification names"
)]
pub(super) struct Retirement {
    success: bool,
    external_user_id: String,
    retired: bool,
    already_retired: bool,
    #[schema(format = Uuid)]
    account_id: String,
    #[schema(minimum = 0)]
    revoked_tokens: u64,
    #[schema(minimum = 0)]
    revoked_agent_connections: u64,
    #[schema(minimum = 0)]
    canceled_approvals: u64,
    policy_reset: bool,
}

/// What a token may do.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
enum TokenScopeName {
    Spend,
    Topup,
    Read,
}

/// A token to be minted.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct TokenRequest {
    /// Seconds.
    #[schema(minimum = 60, maximum = 3600, default = 900, nullable = false)]
    expires_in: Option<u64>,
    /// Binds the token to a session, whose value must then come with every use.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{15,127}$", nullable = false)]
    session_id: Option<String>,
    /// Absent = all.
    #[schema(inline, min_items = 1, max_items = 3, nullable = false)]
    scopes: Option<Vec<TokenScopeName>>,
    /// Most that may be spent with it.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$", nullable = false)]
    max_spend_usd: Option<String>,
    /// `provider/endpoint`, `provider/model` or `provider/*` that may be called; absent = all.
    #[schema(max_items = 200, nullable = false)]
    tools: Option<Vec<String>>,
}

/// A token that was minted.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct MintedToken {
    success: bool,
    token: String,
    /// `Bearer`.
    token_type: String,
    #[schema(format = DateTime)]
    expires_at: String,
    external_user_id: String,
    #[schema(format = Uuid)]
    jti: String,
    /// Whether `X-Svc-Session-Id` must come with it.
    session_bound: bool,
}

/// How many tokens stopped working.
#[derive(ToSchema)]
pub(super) struct Revoked {
    success: bool,
    #[schema(minimum = 0)]
    revoked: u64,
}

/// The end user whose token it is.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Me {
    success: bool,
    external_user_id: String,
    #[schema(inline)]
    status: EndUserStatus,
}

/// A JWK set.
#[derive(ToSchema)]
pub(super) struct KeySet {
    keys: Vec<std::collections::BTreeMap<String, String>>,
}
