//! The app's one error: a public code, a message for the caller, and the members the code comes with.

use serde_json::{Map, Value, json};
use turnpike_core::access::Scope;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::Rejection;
use turnpike_core::ledger::rejection::Blockers;
use turnpike_core::money::CreditsPerDollar;
use turnpike_core::pricing::PriceError;
use turnpike_store::{StoreError, SubmitError};

/// A failed use case. What is in it may be shown to the caller; context for the log is logged where it arises.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct AppError {
    /// The public code.
    pub code: ErrorCode,
    /// One sentence for the caller.
    pub message: String,
    /// The members that the code comes with.
    pub members: Map<String, Value>,
    /// When a retry makes sense, in seconds.
    pub retry_after_secs: Option<u64>,
    /// Whether this is the stored outcome of an earlier attempt.
    pub replayed: bool,
}

impl AppError {
    /// An error of `code`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            members: Map::new(),
            retry_after_secs: None,
            replayed: false,
        }
    }

    /// Adds a member to the body.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Says which scopes are needed and which are there, both sorted.
    #[must_use]
    pub fn scopes(self, required: &[Scope], present: &[Scope]) -> Self {
        let sorted = |scopes: &[Scope]| {
            let mut names: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
            names.sort_unstable();
            names
        };
        self.with("requiredScopes", sorted(required))
            .with("presentScopes", sorted(present))
    }

    /// Says when to try again.
    #[must_use]
    pub const fn retry_after(mut self, secs: u64) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// A request whose member at `path` is wrong.
    pub fn invalid(path: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let details = json!([{ "path": path, "message": message }]);
        Self::new(ErrorCode::ValidationError, format!("{path}: {message}")).with("details", details)
    }

    /// The service cannot work right now.
    pub fn unavailable() -> Self {
        Self::new(
            ErrorCode::ServiceUnavailable,
            "the service cannot take calls right now; nothing was charged",
        )
        .retry_after(1)
    }

    /// A defect; `context` goes to the log only.
    pub fn internal(context: &dyn std::fmt::Display) -> Self {
        tracing::error!(%context, "internal error");
        Self::new(ErrorCode::Internal, "something went wrong on our side")
    }

    /// What a refused ledger command means to the caller.
    pub fn from_rejection(rejection: &Rejection, rate: CreditsPerDollar) -> Self {
        match rejection {
            Rejection::InsufficientCredits { required, available } => Self::new(
                ErrorCode::InsufficientCredits,
                "the available balance does not cover this call",
            )
            .with("requiredCredits", rate.credits(*required).to_string())
            .with("availableCredits", rate.credits(*available).to_string())
            .with(
                "hint",
                "add credits, lower max_tokens, or wait for running calls to settle",
            ),
            Rejection::ClaimConflict => Self::new(
                ErrorCode::IdempotencyKeyConflict,
                "this idempotency key was used for a different request",
            ),
            Rejection::TenantNotActive(status) => {
                Self::new(ErrorCode::TenantSuspended, format!("the workspace is {status}"))
            }
            Rejection::UnknownEndUser => Self::new(ErrorCode::EndUserNotFound, "there is no such end user"),
            Rejection::EndUserRetired => Self::new(ErrorCode::EndUserRetired, "the end user was retired"),
            Rejection::AccountFrozen => Self::new(ErrorCode::AccountFrozen, "the balance is frozen"),
            Rejection::SpendLimitExceeded {
                scope,
                limit,
                spent,
                resets_at,
            } => Self::new(
                ErrorCode::SpendLimitExceeded,
                format!("the spend limit per {} is reached", scope.as_str()),
            )
            .with("scope", scope.as_str())
            .with("limitUsd", limit.to_string())
            .with("spentUsd", spent.to_string())
            .with("resetsAt", resets_at.map(|at| at.to_string())),
            Rejection::LoopCallsExceeded { limit, calls } => {
                Self::new(ErrorCode::SpendLimitExceeded, "the loop has used all its calls")
                    .with("scope", "loop")
                    .with("limitCalls", *limit)
                    .with("calls", *calls)
            }
            Rejection::LoopRequired => Self::new(
                ErrorCode::LoopHeaderRequired,
                "the end user's policy counts loops: send the loop id header",
            ),
            Rejection::Overflow => Self::new(ErrorCode::ValidationError, "the amount is too large"),
            Rejection::NotPositive => {
                Self::new(ErrorCode::ValidationError, "the amount must be more than zero")
            }
            Rejection::UnknownTenant => Self::new(ErrorCode::NotFound, "there is no such workspace"),
            Rejection::UnknownTopup => Self::new(ErrorCode::NotFound, "there is no such top-up"),
            Rejection::NotRefundable(reason) => Self::new(
                ErrorCode::ValidationError,
                format!("the top-up cannot be refunded: {reason}"),
            ),
            Rejection::NotRetirable(blockers) => not_retirable(blockers),
            Rejection::TokenNotLive => {
                Self::new(ErrorCode::CredentialRevoked, "the token does not work any more")
            }
            Rejection::ToolNotAllowed(reason) => Self::new(ErrorCode::PolicyDenied, *reason),
            Rejection::ApprovalRequired { threshold } => Self::new(
                ErrorCode::ApprovalRequired,
                format!("calls above {threshold} USD need an approval of the workspace"),
            )
            .with("thresholdUsd", threshold.to_string()),
            Rejection::QuoteRefused(refusal) => crate::quotes::refused(refusal),
            Rejection::UnknownApproval => Self::new(ErrorCode::NotFound, "there is no such approval"),
            Rejection::ApprovalNotOpen(state) => {
                Self::new(ErrorCode::RequestFailed, format!("the approval is {state}"))
                    .with("status", state.as_str())
            }
            Rejection::TooManyApprovals { limit } => Self::new(
                ErrorCode::RateLimited,
                format!("{limit} approvals of this end user are open: somebody has to decide about them"),
            )
            .retry_after(3600),
            Rejection::ToolAllowed => Self::new(ErrorCode::AlreadyExists, "the end user may call it already"),
            Rejection::PolicyFull { limit } => Self::new(
                ErrorCode::ValidationError,
                format!("the end user's policy names {limit} tools already"),
            ),
            Rejection::AutoTopupNotDue(reason) => Self::new(
                ErrorCode::ValidationError,
                format!("no automatic top-up: {reason}"),
            ),
            Rejection::NoPayoutDestination => Self::new(
                ErrorCode::ValidationError,
                "there is nowhere to pay out to: set a stablecoin address, or connect the payment processor",
            ),
            Rejection::BelowMinimum { min, amount } => Self::new(
                ErrorCode::BelowMinimum,
                format!("{amount} USD is below the smallest payout of {min} USD"),
            )
            .with("minUsd", min.to_string()),
            Rejection::NotWholeCents => {
                Self::invalid("usd", "must be whole cents: the payment processor pays no others")
            }
            Rejection::UnknownPayout => Self::new(ErrorCode::NotFound, "there is no such payout"),
            Rejection::NotCancelable(reason) => Self::new(
                ErrorCode::ValidationError,
                format!("the payout cannot be canceled: {reason}"),
            ),
            Rejection::ConnectionChanged => {
                let message = "the connection to the processor was changed meanwhile; try again";
                Self::new(ErrorCode::ServiceUnavailable, message).retry_after(1)
            }
            Rejection::PaidCallConflict => Self::new(
                ErrorCode::RequestIdConflict,
                "this request id or this payment stands for another request",
            ),
            Rejection::PayerCapReached { .. } => {
                let message = "this wallet has as much open as it may: wait for its running calls to end";
                Self::new(ErrorCode::RateLimited, message).retry_after(1)
            }
            Rejection::UnknownPaidCall
            | Rejection::PaidCallNotOpen(_)
            | Rejection::UnknownHold
            | Rejection::HoldNotOpen(_)
            | Rejection::Mismatch(_)
            | Rejection::NotLoaded(_) => Self::internal(rejection),
        }
    }

    /// What a command without an outcome means to the caller.
    pub fn from_submit(error: &SubmitError, rate: CreditsPerDollar) -> Self {
        match error {
            SubmitError::Rejected(rejection) => Self::from_rejection(rejection, rate),
            SubmitError::Busy => Self::unavailable(),
            SubmitError::Unavailable(context) => {
                tracing::error!(%context, "the ledger is unavailable");
                Self::unavailable()
            }
            SubmitError::Unknown => {
                tracing::error!("the outcome of a ledger command is unknown");
                let message =
                    "the outcome of this call is not known yet: ask again with the same idempotency key";
                Self::new(ErrorCode::ServiceUnavailable, message).retry_after(5)
            }
        }
    }
}

/// What is still open, one entry per kind (decisions, section 9).
fn not_retirable(blockers: &Blockers) -> AppError {
    let mut open = Vec::new();
    if !blockers.posted.is_zero() {
        open.push(json!({ "type": "balance", "count": 1, "amountUsd": blockers.posted }));
    }
    let reservations = blockers.calls.saturating_add(blockers.open.disputes);
    if reservations > 0 || !blockers.held.is_zero() {
        open.push(json!({ "type": "reservation", "count": reservations, "amountUsd": blockers.held }));
    }
    for (kind, count) in [("topup", blockers.open.topups), ("refund", blockers.open.refunds)] {
        if count > 0 {
            open.push(json!({ "type": kind, "count": count }));
        }
    }
    AppError::new(
        ErrorCode::EndUserNotRetirable,
        "something of this end user is still open; nothing was changed",
    )
    .with("blockers", open)
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::AlreadyExists => Self::new(ErrorCode::AlreadyExists, "it exists already"),
            StoreError::Unavailable(context) | StoreError::Locked(context) => {
                tracing::error!(%context, "the store is unavailable");
                Self::unavailable()
            }
            StoreError::Corrupt(_) | StoreError::Schema(_) | StoreError::Defect(_) => Self::internal(&error),
        }
    }
}

impl From<PriceError> for AppError {
    fn from(error: PriceError) -> Self {
        match error {
            PriceError::BadArguments { message } => Self::new(ErrorCode::ValidationError, message),
            PriceError::Overflow => {
                Self::new(ErrorCode::ValidationError, "the price of this call is too large")
            }
            PriceError::Unpriced { .. } | PriceError::Invalid { .. } => {
                tracing::warn!(%error, "a call could not be priced");
                Self::new(
                    ErrorCode::PriceUnavailable,
                    "there is no price for this call, so it is not sold",
                )
            }
        }
    }
}
