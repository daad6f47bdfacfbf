//! The inbound side: routes decode and encode, the app decides.

mod access;
mod access_doc;
mod access_table;
mod agents;
mod answer;
mod approval_page;
mod approvals;
mod body;
mod caller;
mod catalogue;
mod checkout;
mod connect;
mod cors;
mod end_users;
mod header_params;
mod identity;
mod invitations;
mod keys;
mod mcp;
mod names;
mod oauth;
mod openapi;
mod page_session;
mod payouts;
mod pricing;
mod problem;
mod quotes;
mod routes;
mod schemas_agents;
mod schemas_invitations;
mod schemas_keys;
mod schemas_payouts;
mod schemas_pricing;
mod schemas_quotes;
mod schemas_sessions;
mod schemas_tools;
mod schemas_topups;
mod schemas_users;
mod schemas_vendor;
mod schemas_webhooks;
mod schemas_workspace;
mod serve;
mod sessions;
mod tokens;
mod tools;
mod topups;
mod vendor;
mod vendor_doc;
mod webhooks;
mod workspace;
mod wrap;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) use access_doc::{access_markdown, access_rows};
pub(crate) use cors::Origins;
pub(crate) use names::HeaderNames;
pub(crate) use openapi::printed;
pub(crate) use routes::router;
pub(crate) use serve::serve;

use http::HeaderValue;

use crate::metrics::Metrics;
use crate::service::Service;

/// What every route can reach.
pub(crate) struct App {
    pub(crate) service: Service,
    pub(crate) names: HeaderNames,
    /// What `WWW-Authenticate` says when a second factor is wanted.
    pub(crate) step_up_challenge: HeaderValue,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) draining: AtomicBool,
    pub(crate) origins: Origins,
}
