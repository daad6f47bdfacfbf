//! The ledger as a state machine that is fed in batches.
//!
//! A store drains its queue, loads the rows that the commands [`Needs`] name into [`Books`], lets
//! [`apply`] decide them one by one, writes the difference and commits once. No rule about money is written
//! anywhere else.

pub mod account;
mod apply;
mod apply_approval;
mod apply_call;
mod apply_dispute;
mod apply_drift;
mod apply_paid_call;
mod apply_payout;
mod apply_quote;
mod apply_refund;
mod apply_settlement;
mod apply_topup;
mod apply_user;
pub mod approval;
pub mod audit;
mod audit_authority;
pub mod audit_log;
mod audit_paid_call;
pub mod books;
mod clawback;
pub mod command;
pub mod drift;
pub mod event;
pub mod hold;
mod needs;
pub mod paid_call;
pub mod payout;
pub mod policy;
pub mod quote;
pub mod rejection;
mod shares;
pub mod token;
pub mod topup;
mod topup_command;
pub mod transfer;
mod user_command;

#[cfg(test)]
mod tests;

pub use account::{Account, AccountKey, AccountKind, AccountStatus, Balance, Payer, TenantStatus};
pub use apply::apply;
pub use books::{Books, Change, Table, TenantHead};
pub use command::{Action, Command, Outcome};
pub use hold::{CallRef, CallSubject, Hold, HoldState};
pub use needs::Needs;
pub use rejection::Rejection;
pub use transfer::{Cause, Transfer};
