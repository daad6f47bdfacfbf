//! The interfaces of the store: one per group of rows that belong together.

use async_trait::async_trait;
use turnpike_core::ids::{CallId, EventId, ExternalUserId, TenantId, TokenId, TopupId, WebhookEndpointId};
use turnpike_core::ledger::audit::AuditReport;
use turnpike_core::ledger::command::StoredOutcome;
use turnpike_core::ledger::drift::{DriftKey, DriftWindow};
use turnpike_core::ledger::hold::{Claim, ClaimKey};
use turnpike_core::ledger::policy::EndUser;
use turnpike_core::ledger::token::EndUserToken;
use turnpike_core::ledger::topup::{AutoTopup, Topup};
use turnpike_core::ledger::{Account, AccountKey, Command, Hold, Outcome, TenantStatus, Transfer};
use turnpike_core::money::Micros;
use turnpike_core::time::{Day, Timestamp};
use uuid::Uuid;

use crate::agents::Agents;
use crate::approvals::Approvals;
use crate::audit_log::{AuditLog, AuditRecord};
use crate::error::{StoreError, SubmitError};
use crate::invitations::Invitations;
use crate::keys::Keys;
use crate::members::Members;
use crate::oauth::OAuth;
use crate::paid_calls::PaidCalls;
use crate::payouts::Payouts;
use crate::people::People;
use crate::quotes::Quotes;
use crate::records::{
    AuditRow, DayCosts, DriftImport, DriftRow, EndUserFilter, EntryFilter, EventRow, ImportedTools,
    OpenCalls, PriceRow, SigningKeyRow, Tenant, TopupFilter, UsageFilter, UsageGroup, UsageRow,
};
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::webhooks::{
    Canceling, ClaimedDelivery, DeliveryReport, DeliveryRow, DueEndpoint, EndpointChange, EventFilter,
    FanOut, FanOutPlan, Pruned, ReplayOf, Slots, Span, WebhookEndpoint,
};

/// Changes of money.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Runs `command` in the next batch and answers after its commit.
    async fn submit(&self, command: Command) -> Result<Outcome, SubmitError>;
}

/// Calls, their stored answers and their idempotency claims.
#[async_trait]
pub trait Calls: Send + Sync {
    /// A call's record.
    async fn find_call(&self, tenant: TenantId, call: CallId) -> Result<Option<Hold>, StoreError>;
    /// A call's stored answer.
    async fn find_outcome(&self, tenant: TenantId, call: CallId)
    -> Result<Option<StoredOutcome>, StoreError>;
    /// Which request took an idempotency key.
    async fn find_claim(&self, key: &ClaimKey) -> Result<Option<Claim>, StoreError>;
    /// Unfinished calls, oldest deadline first.
    async fn list_open_calls(&self, open: OpenCalls) -> Result<Vec<(TenantId, Hold)>, StoreError>;
    /// Removes the bodies of stored answers that have expired; says how many.
    async fn prune_outcomes(&self, now: Timestamp, limit: u32) -> Result<u64, StoreError>;
    /// A tenant's drift records, newest first.
    async fn list_drifts(&self, tenant: TenantId, limit: u32) -> Result<Vec<DriftRow>, StoreError>;
}

/// Balances, entries, usage, and everything for exports.
#[async_trait]
pub trait Statements: Send + Sync {
    /// One account; `None` = it never had an entry.
    async fn find_account(&self, key: &AccountKey) -> Result<Option<Account>, StoreError>;
    /// Transfers, newest first.
    async fn list_transfers(
        &self,
        tenant: TenantId,
        filter: &EntryFilter,
    ) -> Result<Vec<Transfer>, StoreError>;
    /// Calls summed by group.
    async fn usage(
        &self,
        tenant: TenantId,
        group: UsageGroup,
        filter: &UsageFilter,
    ) -> Result<Vec<UsageRow>, StoreError>;
    /// Streams every transfer, call, event or audit row of a tenant out of one snapshot, oldest first, into `sink`;
    /// ends early when `sink` says no.
    async fn scan(&self, tenant: TenantId, scan: &mut Scan<'_>) -> Result<(), StoreError>;
}

/// What [`Statements::scan`] feeds.
pub enum Scan<'a> {
    /// Transfers.
    Transfers(&'a mut (dyn FnMut(Transfer) -> bool + Send)),
    /// Calls.
    Calls(&'a mut (dyn FnMut(Hold) -> bool + Send)),
    /// Events.
    Events(&'a mut (dyn FnMut(EventRow) -> bool + Send)),
    /// The audit log.
    Audit(&'a mut (dyn FnMut(AuditRecord) -> bool + Send)),
}

/// Workspaces, keys, end users. Every change writes its audit row in the same transaction.
#[async_trait]
pub trait Directory: Send + Sync {
    /// Adds a workspace.
    async fn insert_tenant(&self, tenant: &Tenant, audit: &AuditRow) -> Result<(), StoreError>;
    /// A workspace.
    async fn find_tenant(&self, tenant: TenantId) -> Result<Option<Tenant>, StoreError>;
    /// All workspaces, by name.
    async fn list_tenants(&self) -> Result<Vec<Tenant>, StoreError>;
    /// Sets a workspace's status; `false` = there is none.
    async fn set_tenant_status(
        &self,
        tenant: TenantId,
        status: TenantStatus,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// Sets a workspace's name and denomination; `false` = they are not those of `before` any more, or credits have a
    /// meaning already.
    async fn set_tenant_profile(
        &self,
        before: &Tenant,
        after: &Tenant,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// An end user.
    async fn find_end_user(
        &self,
        tenant: TenantId,
        id: &ExternalUserId,
    ) -> Result<Option<EndUser>, StoreError>;
    /// End users by id, with their accounts.
    async fn list_end_users(
        &self,
        tenant: TenantId,
        filter: &EndUserFilter,
    ) -> Result<Vec<(EndUser, Account)>, StoreError>;
    /// A token of an end user.
    async fn find_token(&self, tenant: TenantId, token: TokenId) -> Result<Option<EndUserToken>, StoreError>;
    /// Removes tokens that expired before `before`; says how many.
    async fn prune_tokens(&self, before: Timestamp) -> Result<u64, StoreError>;
    /// The keys that sign end users' tokens, oldest first.
    async fn list_signing_keys(&self) -> Result<Vec<SigningKeyRow>, StoreError>;
    /// Adds a signing key.
    async fn insert_signing_key(&self, key: &SigningKeyRow) -> Result<(), StoreError>;
    /// Removes a signing key.
    async fn delete_signing_key(&self, kid: &str) -> Result<(), StoreError>;
}

/// Top-ups and what finds them.
#[async_trait]
pub trait Topups: Send + Sync {
    /// A top-up.
    async fn find_topup(&self, tenant: TenantId, topup: TopupId) -> Result<Option<Topup>, StoreError>;
    /// The top-up that a session, payment, refund or dispute of that name belongs to.
    async fn find_processor_ref(&self, reference: &str) -> Result<Option<(TenantId, TopupId)>, StoreError>;
    /// A tenant's top-ups, newest first.
    async fn list_topups(&self, tenant: TenantId, filter: &TopupFilter) -> Result<Vec<Topup>, StoreError>;
    /// Top-ups of all tenants that the processor may still have news of, by id, behind `after`.
    async fn list_unsettled_topups(
        &self,
        after: Option<TopupId>,
        limit: u32,
    ) -> Result<Vec<(TenantId, Topup)>, StoreError>;
    /// A tenant's choice about automatic top-ups.
    async fn find_auto_topup(&self, tenant: TenantId) -> Result<Option<AutoTopup>, StoreError>;
    /// The tenants whose automatic top-ups are switched on.
    async fn list_auto_topups(&self) -> Result<Vec<(TenantId, AutoTopup)>, StoreError>;
}

/// Who is told of events. Every change writes its audit row in the same transaction.
#[async_trait]
pub trait WebhookEndpoints: Send + Sync {
    /// Adds an endpoint; `false` = the workspace has `most` already.
    async fn insert_webhook_endpoint(
        &self,
        endpoint: &WebhookEndpoint,
        most: u32,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// An endpoint.
    async fn find_webhook_endpoint(
        &self,
        tenant: TenantId,
        id: WebhookEndpointId,
    ) -> Result<Option<WebhookEndpoint>, StoreError>;
    /// A workspace's endpoints, oldest first.
    async fn list_webhook_endpoints(&self, tenant: TenantId) -> Result<Vec<WebhookEndpoint>, StoreError>;
    /// Changes an endpoint; what waits for one that goes out of use is to be canceled. `false` = there is none, or it
    /// cannot be enabled before that is done.
    async fn change_webhook_endpoint(
        &self,
        tenant: TenantId,
        id: WebhookEndpointId,
        change: &EndpointChange,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// Replaces the secrets of `endpoint`; `false` = they are not what it says any more.
    async fn set_webhook_secrets(
        &self,
        endpoint: &WebhookEndpoint,
        secrets: &str,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// Removes an endpoint; what waits for it is to be canceled. `false` = there is none.
    async fn delete_webhook_endpoint(
        &self,
        tenant: TenantId,
        id: WebhookEndpointId,
        audit: &AuditRow,
    ) -> Result<bool, StoreError>;
    /// Endpoints out of use of which attempts may wait to be canceled.
    async fn list_canceling_endpoints(&self) -> Result<Vec<(TenantId, WebhookEndpointId)>, StoreError>;
    /// Cancels what waits for an endpoint that went out of use, at most so many.
    async fn cancel_deliveries(
        &self,
        tenant: TenantId,
        id: WebhookEndpointId,
        at: Timestamp,
        most: u32,
    ) -> Result<Canceling, StoreError>;
}

/// Events as they are shown.
#[async_trait]
pub trait WebhookEvents: Send + Sync {
    /// Events, newest first.
    async fn list_events(&self, tenant: TenantId, filter: &EventFilter) -> Result<Vec<EventRow>, StoreError>;
    /// An event.
    async fn find_event(&self, tenant: TenantId, id: EventId) -> Result<Option<EventRow>, StoreError>;
    /// Every attempt to tell of the event at `seq`, by endpoint and number.
    async fn list_deliveries(&self, tenant: TenantId, seq: i64) -> Result<Vec<DeliveryRow>, StoreError>;
    /// Of each of these events the latest attempt: the one that is due last, canceled ones behind the others.
    async fn latest_deliveries(&self, tenant: TenantId, seqs: &[i64])
    -> Result<Vec<DeliveryRow>, StoreError>;
    /// How many of these events an endpoint in use wants, has not taken and is not about to be told of.
    async fn count_missed(
        &self,
        tenant: TenantId,
        endpoint: WebhookEndpointId,
        span: Span,
    ) -> Result<u64, StoreError>;
    /// Removes a workspace's events from before `before` with their attempts, at most so many of each.
    async fn prune_events(
        &self,
        tenant: TenantId,
        before: Timestamp,
        most: u32,
    ) -> Result<Pruned, StoreError>;
}

/// Attempts to tell endpoints of events.
#[async_trait]
pub trait WebhookDeliveries: Send + Sync {
    /// Now, by the clock that all workers share; `local` where there is one worker alone.
    async fn clock(&self, local: Timestamp) -> Result<Timestamp, StoreError>;
    /// Makes the first attempts of new events pending.
    async fn fan_out(&self, plan: FanOutPlan) -> Result<FanOut, StoreError>;
    /// Endpoints in use for which an attempt is due.
    async fn list_due_endpoints(&self, now: Timestamp) -> Result<Vec<DueEndpoint>, StoreError>;
    /// Takes due attempts, the longest due first, under a fresh `claim` that ends at `lease_until`.
    async fn claim_deliveries(
        &self,
        slots: &[Slots],
        now: Timestamp,
        claim: Uuid,
        lease_until: Timestamp,
    ) -> Result<Vec<ClaimedDelivery>, StoreError>;
    /// Records how attempts ended and makes the next ones pending; says of how many the claim still stood.
    async fn record_deliveries(&self, reports: &[DeliveryReport]) -> Result<u64, StoreError>;
    /// Fails attempts whose lease ended before `lease_before` and makes others pending at once, under a fresh `claim`.
    /// One that is interrupted twice in a row costs a step of the schedule, which has `steps`.
    async fn recover_deliveries(
        &self,
        lease_before: Timestamp,
        now: Timestamp,
        claim: Uuid,
        steps: i16,
    ) -> Result<u64, StoreError>;
    /// Makes attempts that a person asks for pending at once; says how many. `None` when the endpoint is not in use, or
    /// when an attempt at the one event is under way.
    async fn replay(
        &self,
        tenant: TenantId,
        endpoint: WebhookEndpointId,
        of: ReplayOf,
        audit: Option<&AuditRow>,
        now: Timestamp,
    ) -> Result<Option<u64>, StoreError>;
}

/// What providers' days cost by the ledger and by the providers themselves, and where the two differ.
#[async_trait]
pub trait Drifts: Send + Sync {
    /// What calls of `provider` that began on `day` cost, by workspace, or of one workspace alone.
    async fn day_costs(
        &self,
        provider: &str,
        day: Day,
        tenant: Option<TenantId>,
    ) -> Result<Vec<DayCosts>, StoreError>;
    /// The workspaces and providers whose calls of `day` lost at least that much to the operator.
    async fn list_day_losses(
        &self,
        day: Day,
        at_least: Micros,
    ) -> Result<Vec<(TenantId, String)>, StoreError>;
    /// The windows that were told of and are not over, oldest first.
    async fn list_open_drifts(&self) -> Result<Vec<(DriftKey, DriftWindow)>, StoreError>;
    /// A window that was told of.
    async fn find_drift(&self, key: &DriftKey) -> Result<Option<DriftWindow>, StoreError>;
    /// Adds or replaces what providers say their days cost, all or none; they are to be judged again.
    async fn put_drift_imports(&self, imports: &[DriftImport]) -> Result<(), StoreError>;
    /// What a provider says of its day.
    async fn find_drift_import(&self, provider: &str, day: Day) -> Result<Option<DriftImport>, StoreError>;
    /// What was imported and not judged yet, oldest day first.
    async fn list_pending_drift_imports(&self, limit: u32) -> Result<Vec<DriftImport>, StoreError>;
    /// Notes that `import` was judged; `false` = it was replaced meanwhile, or judged already.
    async fn mark_drift_import(&self, import: &DriftImport, at: Timestamp) -> Result<bool, StoreError>;
}

/// Prices of models and imported tools, shared by all workspaces.
#[async_trait]
pub trait Catalogue: Send + Sync {
    /// A number that grows with every change.
    async fn price_revision(&self) -> Result<i64, StoreError>;
    /// Every stored price.
    async fn list_prices(&self) -> Result<Vec<PriceRow>, StoreError>;
    /// Adds or replaces prices, all or none.
    async fn put_prices(&self, prices: &[PriceRow], at: Timestamp) -> Result<(), StoreError>;
    /// A number that grows whenever imported tools change.
    async fn tools_revision(&self) -> Result<i64, StoreError>;
    /// Every provider's imported tools, by provider.
    async fn list_imported_tools(&self) -> Result<Vec<ImportedTools>, StoreError>;
    /// Adds or replaces a provider's imported tools; `false` = something has changed since revision `read`.
    async fn put_imported_tools(&self, tools: &ImportedTools, read: i64) -> Result<bool, StoreError>;
    /// Forgets a provider's imported tools; `false` = it has none.
    async fn remove_imported_tools(&self, provider: &str) -> Result<bool, StoreError>;
}

/// The store as a machine.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Whether it answers.
    async fn ping(&self) -> Result<(), StoreError>;
    /// Checks one tenant's books in one snapshot; `progress` is told how many rows were read.
    async fn audit(
        &self,
        tenant: TenantId,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<AuditReport, StoreError>;
    /// Whether several processes may use it at once.
    fn is_shared(&self) -> bool;
    /// Ends it after the batch that is under way.
    async fn close(&self);
}

/// Everything, for `Arc<dyn Store>`.
pub trait Store:
    Ledger
    + Agents
    + AuditLog
    + Calls
    + Statements
    + Directory
    + Invitations
    + People
    + Keys
    + Settings
    + Members
    + OAuth
    + Sessions
    + Topups
    + Payouts
    + PaidCalls
    + Quotes
    + Approvals
    + Drifts
    + WebhookEndpoints
    + WebhookEvents
    + WebhookDeliveries
    + Catalogue
    + Upkeep
{
}
impl<T> Store for T where
    T: Ledger
        + Agents
        + AuditLog
        + Calls
        + Statements
        + Directory
        + Invitations
        + People
        + Keys
        + Settings
        + Members
        + OAuth
        + Sessions
        + Topups
        + Payouts
        + PaidCalls
        + Quotes
        + Approvals
        + Drifts
        + WebhookEndpoints
        + WebhookEvents
        + WebhookDeliveries
        + Catalogue
        + Upkeep
{
}
