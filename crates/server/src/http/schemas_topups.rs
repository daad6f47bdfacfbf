//! The shapes that the routes of top-ups speak, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Which top-ups a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TopupParams {
    /// 1 to 100; 20 when absent.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// Of this end user only.
    #[param(rename = "externalUserId", pattern = "^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$")]
    external_user_id: Option<String>,
}

/// A top-up: exactly one of `usd` and `credits`.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct TopupBody {
    /// Credits wanted, in dollars.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    usd: Option<String>,
    /// Credits wanted.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    credits: Option<String>,
    /// Where the customer goes after paying; `{CHECKOUT_SESSION_ID}` is replaced.
    #[schema(max_length = 2048)]
    success_url: Option<String>,
    /// Where the customer goes instead.
    #[schema(max_length = 2048)]
    cancel_url: Option<String>,
    /// Comes back unchanged in the event; at most 500 characters of compact JSON.
    metadata: Option<BTreeMap<String, Value>>,
}

/// A top-up of the pool.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct PoolTopupBody {
    /// Credits wanted, in dollars.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    usd: Option<String>,
    /// Credits wanted.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    credits: Option<String>,
    /// Where the customer goes after paying; `{CHECKOUT_SESSION_ID}` is replaced.
    #[schema(max_length = 2048)]
    success_url: Option<String>,
    /// Where the customer goes instead.
    #[schema(max_length = 2048)]
    cancel_url: Option<String>,
    /// Comes back unchanged in the event; at most 500 characters of compact JSON.
    metadata: Option<BTreeMap<String, Value>>,
    /// Whether automatic top-ups may charge the payment method later.
    save_payment_method: Option<bool>,
}

/// What a top-up costs. `totalUsd = creditsUsd + feeUsd`.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Quote {
    /// `pass_through` or `absorbed`.
    fee_mode: String,
    /// Credited, in dollars.
    credits_usd: String,
    /// Credited.
    credits: String,
    /// Kept for the processor's fee.
    fee_usd: String,
    /// What the customer pays, whole cents.
    total_usd: String,
    /// Given on top, when a tier is reached.
    bonus: Option<Bonus>,
    /// The next tier, when there is one.
    next_bonus_tier: Option<BonusTier>,
}

/// Given on top.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Bonus {
    bonus_usd: String,
    bonus_credits: String,
    bonus_bps: i64,
}

/// A tier of the volume bonus.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct BonusTier {
    min_usd: String,
    bonus_bps: i64,
}

/// A checkout session.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct CheckoutSession {
    success: bool,
    session_id: String,
    /// `open`, `processing`, `completed`, `expired`, `failed` or `refunded`.
    status: String,
    external_user_id: Option<String>,
    /// `checkout_session` or `auto_reload`.
    source: String,
    /// Where the customer pays, while it is open.
    url: Option<String>,
    quote: Quote,
    bonus: Option<Bonus>,
    metadata: Option<BTreeMap<String, Value>>,
    failure: Option<BTreeMap<String, String>>,
    created_at: String,
    expires_at: String,
    completed_at: Option<String>,
    denomination: BTreeMap<String, i64>,
}

/// A top-up as the workspace sees it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct TopupRecord {
    success: bool,
    session_id: String,
    status: String,
    external_user_id: Option<String>,
    quote: Quote,
    /// Of what was paid, how much can still be refunded.
    refundable_usd: String,
    refunds: Vec<BTreeMap<String, Value>>,
    disputes: Vec<BTreeMap<String, Value>>,
    /// Why a person has to look at it.
    review: Option<String>,
}

/// Top-ups, newest first.
#[derive(ToSchema)]
pub(super) struct TopupList {
    success: bool,
    data: Vec<BTreeMap<String, Value>>,
    next_cursor: Option<String>,
}

/// A refund.
#[derive(ToSchema)]
pub(super) struct RefundBody {
    /// How much of what was paid goes back, whole cents; absent = all that is left.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    usd: Option<String>,
    /// Why.
    #[schema(min_length = 1, max_length = 500)]
    reason: Option<String>,
}

/// A refund.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct RefundRecord {
    success: bool,
    refund_id: String,
    /// `pending`, `succeeded`, `failed` or `canceled`.
    status: String,
    /// Paid back to the customer.
    amount_usd: String,
    /// Credits taken back for it.
    credits_usd: String,
    /// Bonus taken back with it.
    bonus_usd: String,
    /// Fee given back with it.
    fee_usd: String,
    reason: String,
    failure: Option<String>,
    created_at: String,
}

/// Automatic top-ups.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct AutoTopupBody {
    enabled: bool,
    /// Below this available balance of the pool.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    threshold_usd: Option<String>,
    /// Credits bought each time.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    amount_usd: Option<String>,
    /// Most credits bought in a UTC month.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    monthly_cap_usd: Option<String>,
}

/// Automatic top-ups.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the document has them")]
pub(super) struct AutoTopup {
    success: bool,
    enabled: bool,
    threshold_usd: String,
    amount_usd: String,
    monthly_cap_usd: Option<String>,
    /// Whether a payment method was saved by a top-up of the pool.
    has_payment_method: bool,
    running: bool,
    failures: i64,
    /// Why they were switched off by themselves.
    stopped_reason: Option<String>,
}

/// The event was taken.
#[derive(ToSchema)]
pub(super) struct Received {
    received: bool,
}
