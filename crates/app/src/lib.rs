//! The use cases: what a request or a job does, in which command of the ledger.
//!
//! Nothing here knows of HTTP frameworks, SQL or status codes. Time, ids and randomness come in through
//! [`Environment`], money moves only by commands to the store.

#![forbid(unsafe_code)]

pub mod admin;
pub mod agents;
pub mod approvals;
pub mod audit;
pub mod auth;
pub mod calls;
pub mod catalogue;
mod changes;
mod chat;
mod context;
pub mod drift;
pub mod end_users;
pub mod engine;
pub mod environment;
pub mod error;
mod fields;
pub mod invitations;
pub mod json;
pub mod keys;
pub mod limits;
pub mod oauth;
pub mod paging;
pub mod paid_calls;
pub mod payouts;
pub mod people;
pub mod pricing;
pub mod providers;
pub mod quotes;
pub mod reads;
mod replay;
mod sandbox;
mod schedule;
mod sealing;
pub mod sessions;
pub mod settings;
mod settle;
pub mod stock;
mod stream;
pub mod sweeper;
#[cfg(test)]
mod testing;
pub mod tokens;
pub mod tools;
pub mod topups;
pub mod webhooks;
pub mod workspaces;

pub use agents::{AgentDesk, AgentSession};
pub use approvals::ApprovalDesk;
pub use auth::{Actor, ActorCredential, Authenticator};
pub use calls::CallDesk;
pub use catalogue::CatalogueDesk;
pub use context::CallContext;
pub use drift::DriftDesk;
pub use end_users::EndUserDesk;
pub use engine::{Answer, Engine, Receipt};
pub use environment::{AppSettings, Environment};
pub use error::AppError;
pub use invitations::InvitationDesk;
pub use keys::{KeyDesk, KeyIssuer};
pub use oauth::OAuthDesk;
pub use paid_calls::PaidCallDesk;
pub use payouts::PayoutDesk;
pub use people::PeopleDesk;
pub use pricing::PricingDesk;
pub use quotes::QuoteDesk;
pub use settings::SettingsDesk;
pub use tools::ToolDesk;
pub use workspaces::WorkspaceDesk;
