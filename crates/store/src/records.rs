//! Records outside the books: workspaces, keys, members, and what reads return.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use turnpike_core::access::{KeyHash, KeyKind, Role, Scope};
use turnpike_core::ids::{CallId, EventId, KeyId, TenantId, TopupId};
use turnpike_core::ledger::audit_log::AuditLine;
use turnpike_core::ledger::books::LowBalance;
use turnpike_core::ledger::command::DriftKind;
use turnpike_core::ledger::event::EventType;
use turnpike_core::ledger::hold::StreamSettlement;
use turnpike_core::ledger::{Payer, TenantHead, TenantStatus};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::pricing::Markup;
use turnpike_core::time::{Day, Timestamp};
use uuid::Uuid;

/// A workspace.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    /// Whether it may spend.
    pub status: TenantStatus,
    /// How credits are shown.
    pub credits_per_dollar: CreditsPerDollar,
    /// What its administrators chose.
    pub settings: TenantSettings,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A tenant's choices, kept as one JSON document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TenantSettings {
    /// How streams are settled; absent = `fixed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_settlement: Option<StreamSettlement>,
    /// Whether chat completions need an `Idempotency-Key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_idempotency_key: Option<bool>,
    /// Markup on end users' calls.
    pub pricing: TenantPricing,
    /// What may be called: by `provider/*`, `provider/endpoint` or `provider/model`; the more specific one wins, and
    /// what none of them names may be called.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub catalog: BTreeMap<String, bool>,
    /// Below these balances the workspace is told.
    pub low_balance: LowBalanceSettings,
    /// Limits on top-ups, within the service's own.
    pub topups: TopupSettings,
    /// Origins of pages from which browsers may use end users' tokens and publishable keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
}

/// Settled balances below which a `credits.balance.low` event is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LowBalanceSettings {
    /// Of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_usd: Option<Micros>,
    /// Of each end user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_user_usd: Option<Micros>,
}

impl LowBalanceSettings {
    /// As the ledger wants them.
    pub const fn thresholds(&self) -> LowBalance {
        LowBalance {
            pool: self.pool_usd,
            end_user: self.end_user_usd,
        }
    }
}

/// A workspace's limits on top-ups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TopupSettings {
    /// Smallest amount; the service's own when it is higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_usd: Option<Micros>,
    /// Largest amount; the service's own when it is lower.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usd: Option<Micros>,
    /// Hosts that `successUrl` and `cancelUrl` may name; empty = any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub url_hosts: Vec<String>,
}

/// Markup levels below the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TenantPricing {
    /// For every call.
    pub global: Markup,
    /// By provider id.
    pub providers: BTreeMap<String, Markup>,
    /// By `provider/endpoint`; for models `provider/model`.
    pub endpoints: BTreeMap<String, Markup>,
}

/// An API key's record. The key itself is kept as a hash only.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// Its id.
    pub id: KeyId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it is for.
    pub kind: KeyKind,
    /// Its name, 1..=100 characters.
    pub name: String,
    /// The part that may be shown.
    pub prefix: String,
    /// What a presented key must hash to.
    pub hash: KeyHash,
    /// What it may do beside calls.
    pub scopes: Vec<Scope>,
    /// Markup of this key.
    pub pricing: KeyPricing,
    /// Slugs or `provider/*` it is narrowed to.
    pub tools: Option<Vec<String>>,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: String,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl ApiKey {
    /// Whether it can be used at `now`.
    pub fn works(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| at > now)
    }
}

/// A key's own markup (specification 2.8).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KeyPricing {
    /// Percentage, basis points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub markup_bps: Option<u32>,
    /// Fixed part per call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flat_markup_usdc: Option<Micros>,
    /// By `provider/endpoint`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<String, Markup>,
}

/// Which keys a list shows, newest first.
#[derive(Clone, Copy, Debug)]
pub struct KeyFilter {
    /// Only ids below this one.
    pub before: Option<KeyId>,
    /// Only those with prices of their own.
    pub priced: bool,
    /// At most so many.
    pub limit: u32,
}

impl KeyFilter {
    /// Every key.
    pub const ALL: Self = Self {
        before: None,
        priced: false,
        limit: u32::MAX,
    };
}

/// A person's membership in a workspace.
#[derive(Clone, Debug)]
pub struct Member {
    /// The workspace.
    pub tenant: TenantId,
    /// The identity provider's subject.
    pub subject: String,
    /// What the person may do.
    pub role: Role,
    /// Since when.
    pub created_at: Timestamp,
}

/// One administrative change: who, what, before, after, when, from where.
#[derive(Clone, Debug)]
pub struct AuditRow {
    /// Its id.
    pub id: Uuid,
    /// The workspace.
    pub tenant: TenantId,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What.
    pub action: &'static str,
    /// On which thing.
    pub target: String,
    /// The thing before, as JSON.
    pub before: Option<String>,
    /// The thing afterwards, as JSON.
    pub after: Option<String>,
    /// From where.
    pub origin: String,
}

impl AuditRow {
    /// As it is hashed at a position of the log.
    pub(crate) fn line(&self, seq: i64) -> AuditLine<'_> {
        AuditLine {
            seq,
            id: self.id,
            tenant: self.tenant,
            at: self.at,
            actor: &self.actor,
            action: self.action,
            target: &self.target,
            before: self.before.as_deref(),
            after: self.after.as_deref(),
            origin: &self.origin,
        }
    }
}

/// What a provider's calls of one day cost a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayCosts {
    /// The workspace.
    pub tenant: TenantId,
    /// Base cost of the captured calls, less what was credited back, and of those that wallets pay for.
    pub metered: Micros,
    /// What the operator lost by them.
    pub loss: Micros,
}

/// What a provider says one of its days cost, all workspaces together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriftImport {
    /// Provider id.
    pub provider: String,
    /// Which day.
    pub day: Day,
    /// How much.
    pub amount: Micros,
    /// The file it came from.
    pub source: String,
    /// When it was read.
    pub imported_at: Timestamp,
}

/// A call whose metering and provider differ, as stored.
#[derive(Clone, Debug)]
pub struct DriftRow {
    /// The call.
    pub call: CallId,
    /// Why.
    pub kind: DriftKind,
    /// Provider id.
    pub provider: String,
    /// In words.
    pub detail: String,
    /// Charged to the customer.
    pub charged: Micros,
    /// Borne by the operator.
    pub loss: Micros,
    /// When.
    pub created_at: Timestamp,
}

/// A stored price of a model: the pricing module's document as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceRow {
    /// Provider id.
    pub provider: String,
    /// Model id.
    pub model: String,
    /// JSON of `turnpike_core::pricing::ModelPrice`.
    pub document: String,
}

/// A provider's imported tools, as documents of the app's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedTools {
    /// Provider id.
    pub provider: String,
    /// Where its requests go; `None` = where the configuration says.
    pub base_url: Option<String>,
    /// What they were imported from: a JSON object.
    pub source: String,
    /// The tools: a JSON list.
    pub tools: String,
    /// When.
    pub imported_at: Timestamp,
}

/// An event with its position, for lists and exports.
#[derive(Clone, Debug)]
pub struct EventRow {
    /// Position.
    pub seq: i64,
    /// Public id.
    pub id: EventId,
    /// Type.
    pub kind: EventType,
    /// When.
    pub created_at: Timestamp,
    /// Payload as JSON text.
    pub data: String,
}

/// Which unfinished calls the sweeper wants.
#[derive(Clone, Copy, Debug)]
pub struct OpenCalls {
    /// Deadline before this.
    pub deadline_before: Timestamp,
    /// Or taken by this process, whatever the deadline.
    pub of_instance: Option<Uuid>,
    /// At most so many.
    pub limit: u32,
}

/// Which transfers a statement shows, newest first.
#[derive(Clone, Debug)]
pub struct EntryFilter {
    /// Of this payer only; `None` = the whole tenant.
    pub payer: Option<Payer>,
    /// Only positions below this one.
    pub before_seq: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

/// What usage is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageGroup {
    /// UTC day.
    Day,
    /// Model id.
    Model,
    /// `provider/endpoint`.
    Endpoint,
    /// Provider id.
    Provider,
    /// End user, `null` = the pool.
    EndUser,
}

/// Which calls are counted.
#[derive(Clone, Debug, Default)]
pub struct UsageFilter {
    /// From this instant.
    pub from: Option<Timestamp>,
    /// Up to, not including, this one.
    pub to: Option<Timestamp>,
    /// Of this payer only.
    pub payer: Option<Payer>,
    /// Whose attribution has this member with this string value.
    pub attribution: Option<(String, String)>,
}

/// Usage of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageRow {
    /// The group; empty = none (a tool has no model, the pool is no end user).
    pub group: String,
    /// Calls that were captured.
    pub calls: i64,
    /// Calls that failed and cost nothing.
    pub failed_calls: i64,
    /// Charged less what was credited back.
    pub charged: Micros,
    /// The tenant's margin in it.
    pub margin: Micros,
    /// Prompt tokens.
    pub prompt_tokens: i64,
    /// Completion tokens.
    pub completion_tokens: i64,
}

impl Tenant {
    /// The row a new tenant's ledger starts with.
    pub const fn head(&self) -> TenantHead {
        let mut head = TenantHead::new(self.credits_per_dollar);
        head.low_balance = self.settings.low_balance.thresholds();
        head
    }
}

/// Which end users a list shows, by id.
#[derive(Clone, Debug, Default)]
pub struct EndUserFilter {
    /// Whose id contains this.
    pub contains: Option<String>,
    /// Only ids behind this one.
    pub after: Option<String>,
    /// At most so many.
    pub limit: u32,
}

/// Which top-ups a list shows, newest first.
#[derive(Clone, Debug)]
pub struct TopupFilter {
    /// Of this payer only.
    pub payer: Option<Payer>,
    /// Only ids below this one.
    pub before: Option<TopupId>,
    /// At most so many.
    pub limit: u32,
}

/// A key that signs end users' tokens, sealed under the service's secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKeyRow {
    /// Its name in tokens.
    pub kid: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// The sealed key.
    pub sealed: Vec<u8>,
}
