//! The service as its callers and operators see it: the real binary, over HTTP, on both stores.
//!
//! Each test starts a process of its own on a fresh database with a stand-in provider beside it, and the books
//! are audited when it ends. Rows of the fault matrix stand above the tests that cover them. The tests on
//! PostgreSQL need `TURNPIKE_TEST_POSTGRES_URL` (see `scripts/postgres-for-tests`) and fail without it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::as_conversions,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::large_futures,
    clippy::let_underscore_must_use,
    clippy::missing_panics_doc,
    clippy::wildcard_enum_match_arm,
    clippy::map_err_ignore,
    clippy::too_many_lines,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    reason = "a test fails by panicking, and nothing here touches money in production"
)]

mod harness;

mod agents;
mod allocations;
mod approval_pages;
mod approvals;
mod auth;
mod authorisation;
mod auto_topups;
mod bank;
mod browsers;
mod bypass;
mod checkout_pages;
#[cfg(feature = "failpoints")]
mod crash;
mod drift;
mod end_users;
mod idempotency;
mod identity;
mod identity_pages;
mod invitations;
mod isolation;
mod keys;
mod kills;
mod lifecycle;
mod listen;
mod matrix;
mod mcp;
mod me_topups;
mod money;
mod oauth;
mod paid_call_conflicts;
#[cfg(feature = "failpoints")]
mod paid_call_crashes;
mod paid_call_documents;
mod paid_call_faults;
mod paid_call_flood;
mod paid_call_kills;
mod paid_call_operator;
mod paid_call_payers;
mod paid_call_refusals;
mod paid_call_terms;
mod paid_calls;
mod payout_connections;
#[cfg(feature = "failpoints")]
mod payout_crashes;
mod payout_faults;
mod payouts;
mod policies;
mod pricing;
mod pricing_edits;
mod processor_events;
#[cfg(feature = "failpoints")]
mod quote_crashes;
mod retention;
mod retirement;
mod sandbox;
mod secrets;
mod settlement;
mod shared;
mod step_up;
mod streams;
mod tokens;
mod tool_prices;
mod tool_quotes;
mod tools_search;
#[cfg(feature = "failpoints")]
mod topup_crashes;
mod topup_disputes;
mod topup_faults;
mod topup_quotes;
mod topup_refund_outcomes;
mod topup_refunds;
mod topup_requests;
mod topup_stores;
mod transport;
mod upstream_faults;
mod upstream_headers;
mod validation;
#[cfg(feature = "failpoints")]
mod webhook_crashes;
mod webhook_delivery;
mod webhook_endpoints;
mod webhook_events;
mod webhook_failures;
mod webhook_kills;
mod webhook_mistakes;
mod webhook_replay;
mod webhook_safety;
mod webhook_types;
mod workspaces;
