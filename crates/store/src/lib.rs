//! The store: the only SQL.
//!
//! SQLite and PostgreSQL stand behind the same traits, one per group of rows that belong together, and an
//! in-memory ledger serves tests. A store keeps rows; every rule about money is `turnpike_core::ledger::apply`.

mod agents;
mod approvals;
mod audit_log;
mod calls;
mod catalogue;
mod directory;
mod drifts;
mod error;
mod invitations;
mod keys;
mod members;
mod memory;
mod migrate;
mod oauth;
mod paid_calls;
mod payouts;
mod people;
mod postgres;
mod quotes;
mod records;
mod rows;
mod sessions;
mod settings;
mod sql;
mod sqlite;
mod statements;
mod topups;
mod traits;
mod upkeep;
mod webhooks;

pub use agents::{Agent, AgentConnection, AgentFilter, Agents};
pub use approvals::{ApprovalFilter, Approvals};
pub use audit_log::{AuditFilter, AuditLog, AuditRecord};
pub use error::{StoreError, SubmitError};
pub use invitations::{Acceptance, Accepted, Invitation, Invitations};
pub use keys::Keys;
pub use members::{MemberChange, Members};
pub use memory::MemoryStore;
pub use oauth::{OAuth, OAuthClient, OAuthCode, OAuthToken};
pub use paid_calls::{DuePaidCalls, PaidCalls};
pub use payouts::{PayoutSums, Payouts};
pub use people::{Attempt, BackOff, Credentials, Enrolled, People, Person};
pub use postgres::{PostgresOptions, PostgresStore};
pub use quotes::Quotes;
pub use records::{
    ApiKey, AuditRow, DayCosts, DriftImport, DriftRow, EndUserFilter, EntryFilter, EventRow, ImportedTools,
    KeyFilter, KeyPricing, LowBalanceSettings, Member, OpenCalls, PriceRow, SigningKeyRow, Tenant,
    TenantPricing, TenantSettings, TopupFilter, TopupSettings, UsageFilter, UsageGroup, UsageRow,
};
pub use sessions::{EndedSession, Sessions, StepUpToken};
pub use settings::{Settings, StoredSettings};
pub use sqlite::{SqliteOptions, SqliteStore};
pub use traits::{
    Calls, Catalogue, Directory, Drifts, Ledger, Scan, Statements, Store, Topups, Upkeep, WebhookDeliveries,
    WebhookEndpoints, WebhookEvents,
};
pub use webhooks::{
    Canceling, ClaimedDelivery, DeliveryReport, DeliveryRow, DueEndpoint, EndpointChange, EventFilter,
    FanOut, FanOutPlan, NextAttempt, Pruned, ReplayOf, Slots, Span, Verdict, WebhookEndpoint,
};
