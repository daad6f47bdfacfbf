//! Why a command was refused. A refused command has changed nothing.

use super::account::TenantStatus;
use super::approval::ApprovalState;
use super::hold::HoldState;
use super::paid_call::PaidCallState;
use super::policy::OpenItems;
use super::quote::QuoteRefusal;
use crate::money::Micros;
use crate::time::Timestamp;

/// Which limit was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// One call.
    Call,
    /// The UTC day.
    Day,
    /// The UTC month.
    Month,
    /// One agent loop.
    Loop,
    /// An API key or token.
    Credential,
}

impl LimitScope {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Day => "day",
            Self::Month => "month",
            Self::Loop => "loop",
            Self::Credential => "credential",
        }
    }
}

/// What stands in the way of an end user's retirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blockers {
    /// Settled balance.
    pub posted: Micros,
    /// Held for calls, refunds and disputes.
    pub held: Micros,
    /// Unfinished calls.
    pub calls: i64,
    /// Unsettled top-ups, refunds, disputes.
    pub open: OpenItems,
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Available balance below the amount.
    #[error("{required} needed, {available} available")]
    InsufficientCredits {
        /// What the command needed.
        required: Micros,
        /// What there was.
        available: Micros,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key belongs to another request")]
    ClaimConflict,
    /// No such workspace.
    #[error("unknown tenant")]
    UnknownTenant,
    /// The workspace may not spend.
    #[error("the workspace is {0}")]
    TenantNotActive(TenantStatus),
    /// The payer is no known end user.
    #[error("unknown end user")]
    UnknownEndUser,
    /// The end user was retired.
    #[error("the end user is retired")]
    EndUserRetired,
    /// The account may not be spent from.
    #[error("the account is frozen")]
    AccountFrozen,
    /// A limit of the end user's policy.
    #[error("spend limit per {} exceeded", scope.as_str())]
    SpendLimitExceeded {
        /// Which limit.
        scope: LimitScope,
        /// The limit.
        limit: Micros,
        /// Spent and held before this call.
        spent: Micros,
        /// When the window ends.
        resets_at: Option<Timestamp>,
    },
    /// Too many calls in one loop.
    #[error("the loop has used its {limit} calls")]
    LoopCallsExceeded {
        /// The limit.
        limit: u64,
        /// Calls so far.
        calls: u64,
    },
    /// The policy counts loops and the call names none.
    #[error("the policy needs a loop id")]
    LoopRequired,
    /// No such hold.
    #[error("unknown hold")]
    UnknownHold,
    /// The hold is past the state in which the command makes sense.
    #[error("the hold is {0}")]
    HoldNotOpen(HoldState),
    /// No such top-up.
    #[error("unknown top-up")]
    UnknownTopup,
    /// The top-up is in a state in which this makes no sense, or nothing of it is left.
    #[error("the top-up cannot be refunded: {0}")]
    NotRefundable(&'static str),
    /// Something of the end user is not settled.
    #[error("the end user has something open")]
    NotRetirable(Box<Blockers>),
    /// The token was revoked or has expired, or never was.
    #[error("the token does not work any more")]
    TokenNotLive,
    /// The policy or the token does not allow the tool.
    #[error("not allowed: {0}")]
    ToolNotAllowed(&'static str),
    /// The call costs more than may be spent without an approval.
    #[error("an approval is needed above {threshold}")]
    ApprovalRequired {
        /// Above this.
        threshold: Micros,
    },
    /// The quote does not fit the call, or is over.
    #[error("{0}")]
    QuoteRefused(QuoteRefusal),
    /// No such approval.
    #[error("unknown approval")]
    UnknownApproval,
    /// The approval was decided otherwise, or its time is over.
    #[error("the approval is {0}")]
    ApprovalNotOpen(ApprovalState),
    /// The end user has as many approvals open as it may.
    #[error("{limit} approvals are open already")]
    TooManyApprovals {
        /// As many as it may.
        limit: usize,
    },
    /// The end user may call the tool already.
    #[error("the end user may call it already")]
    ToolAllowed,
    /// The policy names as many tools as it may.
    #[error("the policy names {limit} tools already")]
    PolicyFull {
        /// As many as it may.
        limit: usize,
    },
    /// Automatic top-ups do not apply now.
    #[error("no automatic top-up: {0}")]
    AutoTopupNotDue(&'static str),
    /// There is nowhere to pay out to.
    #[error("there is nowhere to pay out to")]
    NoPayoutDestination,
    /// A payout is smaller than the smallest.
    #[error("{amount} is below the smallest payout of {min}")]
    BelowMinimum {
        /// The smallest.
        min: Micros,
        /// What it would be.
        amount: Micros,
    },
    /// The processor pays out whole cents only.
    #[error("the amount is not a number of whole cents")]
    NotWholeCents,
    /// No such payout.
    #[error("unknown payout")]
    UnknownPayout,
    /// The payout is too far along to be withdrawn.
    #[error("the payout cannot be canceled: {0}")]
    NotCancelable(&'static str),
    /// The connection to the processor was ended meanwhile.
    #[error("the connection to the processor was changed meanwhile")]
    ConnectionChanged,
    /// The request id stands for another request, or the payment for one under another id.
    #[error("the request id or the payment stands for another request")]
    PaidCallConflict,
    /// The wallet has as much open as it may.
    #[error("{open} in {calls} calls is open already")]
    PayerCapReached {
        /// Sum of what open calls authorise.
        open: Micros,
        /// How many.
        calls: i64,
    },
    /// No such paid call.
    #[error("unknown paid call")]
    UnknownPaidCall,
    /// The paid call is past the state in which the command makes sense, or somebody else goes on with it.
    #[error("the paid call is {0}")]
    PaidCallNotOpen(PaidCallState),
    /// The command contradicts the hold it names.
    #[error("the command does not fit its hold: {0}")]
    Mismatch(&'static str),
    /// An amount does not fit `i64` µUSD.
    #[error("amount overflow")]
    Overflow,
    /// An amount that must be positive is not.
    #[error("amount must be positive")]
    NotPositive,
    /// A row the command needs was not loaded: a defect of the store.
    #[error("row not loaded: {0}")]
    NotLoaded(&'static str),
}
