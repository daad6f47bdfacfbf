//! The shapes that the routes of payouts speak, for the OpenAPI document.

#![expect(
    dead_code,
    reason = "these types only describe documents; the routes write the JSON"
)]

use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Which payouts a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PayoutParams {
    /// Page size.
    #[param(minimum = 1, maximum = 100, default = 20, required = false)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[param(required = false)]
    cursor: Option<String>,
}

/// The margin account.
#[derive(ToSchema)]
pub(super) struct PayoutAccountEnvelope {
    success: bool,
    account: MarginAccount,
}

/// What the workspace earned, what was paid out of it, and where to.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct MarginAccount {
    /// Earned and not paid out.
    margin_usd: String,
    /// The part of it that may be taken back: of streams that run, and of credits that are disputed and spent.
    reserved_usd: String,
    /// What can be paid out now: what may be taken back, and what the workspace owes after refunds, stays here.
    available_usd: String,
    /// Under way.
    in_transit_usd: String,
    /// Paid out so far.
    paid_usd: String,
    method: PayoutMethod,
    /// The smallest payout.
    min_usd: String,
    processor: Connection,
    /// The address on a chain, once it is set.
    stablecoin: Option<StablecoinBody>,
}

/// How payouts are made.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum PayoutMethod {
    Stablecoin,
    Processor,
}

/// The connection to the payment processor.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Connection {
    connected: bool,
    /// The service's processor; null when it has none.
    processor: Option<String>,
    /// The processor's id of the account.
    account: Option<String>,
    /// Whether its owner has told the processor everything.
    details_submitted: bool,
    /// Whether payouts go there.
    payable: bool,
    /// Why the processor has stopped it, in its word.
    disabled_reason: Option<String>,
    #[schema(format = DateTime)]
    connected_at: Option<String>,
}

/// How far the connection is.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the document has them")]
pub(super) struct ConnectionStatus {
    success: bool,
    connected: bool,
    /// The service's processor; null when it has none.
    processor: Option<String>,
    /// The processor's id of the account.
    account: Option<String>,
    /// Whether its owner has told the processor everything.
    details_submitted: bool,
    /// Whether payouts go there.
    payable: bool,
    /// Why the processor has stopped it, in its word.
    disabled_reason: Option<String>,
    #[schema(format = DateTime)]
    connected_at: Option<String>,
    method: PayoutMethod,
}

/// An address on a chain.
#[derive(ToSchema)]
pub(super) struct StablecoinBody {
    /// The address, as its network writes it.
    #[schema(
        min_length = 1,
        max_length = 128,
        example = "0x52908400098527886E0F7030069857D2E4169EE7"
    )]
    address: String,
    /// The network, as CAIP-2 names it: `eip155:…` or `solana:…`.
    #[schema(
        max_length = 41,
        pattern = "^(eip155:[1-9][0-9]{0,18}|solana:[1-9A-HJ-NP-Za-km-z]{32})$",
        example = "eip155:8453"
    )]
    network: String,
}

/// The address on a chain.
#[derive(ToSchema)]
pub(super) struct StablecoinSet {
    success: bool,
    stablecoin: StablecoinBody,
    method: PayoutMethod,
}

/// A payout.
#[derive(ToSchema)]
pub(super) struct PayoutBody {
    /// How much; absent = all that can be paid out, in whole cents where the processor pays.
    #[schema(pattern = "^[0-9]+(?:[.][0-9]{1,6})?$")]
    usd: Option<String>,
}

/// A payout.
#[derive(ToSchema)]
pub(super) struct PayoutEnvelope {
    success: bool,
    payout: Payout,
}

/// A payout.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Payout {
    #[schema(format = Uuid)]
    payout_id: String,
    amount_usd: String,
    method: PayoutMethod,
    /// `{address, network}`, or `{processor, account}`; that of the moment in which the payout was opened.
    destination: std::collections::BTreeMap<String, Value>,
    status: PayoutStatus,
    /// What it is called there: the processor's transfer, the chain's transaction.
    reference: Option<String>,
    /// Why it failed; the margin is back.
    failure: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

/// Where a payout stands.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum PayoutStatus {
    Pending,
    InTransit,
    Paid,
    Failed,
    Canceled,
}

/// Payouts, newest first.
#[derive(ToSchema)]
pub(super) struct PayoutList {
    success: bool,
    data: Vec<Payout>,
    next_cursor: Option<String>,
}

/// Where the account's owner goes from the processor's page.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct ConnectBody {
    /// When they are done.
    #[schema(max_length = 2048)]
    return_url: Option<String>,
    /// When the page is of no use any more.
    #[schema(max_length = 2048)]
    refresh_url: Option<String>,
}

/// The processor's page.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct ConnectStarted {
    success: bool,
    /// Good for one visit.
    url: String,
    /// When it stops working.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// Nothing is connected.
#[derive(ToSchema)]
pub(super) struct Disconnected {
    success: bool,
}
