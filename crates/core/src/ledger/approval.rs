//! Approvals: a wish of an end user's agent that an owner or admin of the workspace decides about.
//!
//! ```text
//! Pending ──▶ Approved ──▶ Consumed   by the hold of the one call; approved again when nothing was sent
//!    │ │         ├───────▶ Denied     taken back before it was used
//!    │ └─────────┼───────▶ Denied
//!    └───────────┴───────▶ Canceled   its end user was retired, or a dearer one took its place
//! ```
//! Pending ones expire after [`PENDING_MS`], approved ones after [`APPROVED_MS`], by their time alone. Access to a tool
//! is given in the command that approves it, and stays approved.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::account::{Payer, coded_enum};
use super::quote::QuotedCall;
use crate::ids::{ApprovalId, CallId, ExternalUserId, QuoteId};
use crate::money::Micros;
use crate::time::Timestamp;

/// How long somebody may take to decide: a day.
pub const PENDING_MS: i64 = 24 * 3_600_000;
/// How long an approval can be used: an hour.
pub const APPROVED_MS: i64 = 3_600_000;
/// Most approvals that an end user may have open.
pub const MAX_OPEN: usize = 100;
/// Most tools that a policy may name.
pub const MAX_TOOLS: usize = 200;

coded_enum! {
    /// What is to be approved.
    ApprovalKind {
        /// That the end user may call a tool from now on.
        ToolAccess = 0 "tool_access",
        /// One call above the policy's threshold.
        Spend = 1 "spend",
        /// The same, asked for with a quote.
        Quote = 2 "quote",
    }
}

coded_enum! {
    /// Where an approval stands.
    ApprovalState {
        /// Nobody has decided.
        Pending = 0 "pending",
        /// It may be used.
        Approved = 1 "approved",
        /// It may not.
        Denied = 2 "denied",
        /// Nobody needs it any more.
        Canceled = 3 "canceled",
        /// Its time is over.
        Expired = 4 "expired",
        /// It was used.
        Consumed = 5 "consumed",
    }
}

/// A wish and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// What it is about.
    pub kind: ApprovalKind,
    /// The end user whose wish it is.
    pub owner: ExternalUserId,
    /// The tool or model, `provider/name`.
    pub slug: Arc<str>,
    /// SHA-256 of the call's arguments in canonical form, hexadecimal; none for access to a tool.
    pub args_hash: Option<Arc<str>>,
    /// The arguments for people, cut off where they are long.
    pub args: Option<Arc<str>>,
    /// The most that the call may cost.
    pub amount: Option<Micros>,
    /// The quote that it was asked for with.
    pub quote: Option<QuoteId>,
    /// Why, in the words of who asks.
    pub reason: Option<Arc<str>>,
    /// Who asked: the credential's kind and id.
    pub credential: Arc<str>,
    /// Where it stands, but for its time.
    pub state: ApprovalState,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// From then on it cannot be decided or used.
    pub expires_at: Timestamp,
    /// When it was decided.
    pub decided_at: Option<Timestamp>,
    /// Who decided.
    pub decided_by: Option<Arc<str>>,
    /// Why so, in their words.
    pub decision: Option<Arc<str>>,
    /// The call that used it.
    pub call: Option<CallId>,
}

/// What an approval is found by: stored beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalIndex<'a> {
    /// [`ApprovalState::code`].
    pub state: i16,
    /// [`Approval::is_open`].
    pub open: bool,
    /// The end user.
    pub owner: &'a str,
    /// [`Approval::subject`].
    pub subject: String,
    /// From then on it cannot be decided or used.
    pub expires_at: Timestamp,
}

/// What a wish is about, so that the same wish is one approval: SHA-256, hexadecimal.
pub fn approval_subject(owner: &ExternalUserId, slug: &str, args_hash: Option<&str>) -> String {
    let mut hasher = Sha256::new();
    for part in [owner.as_str(), slug, args_hash.unwrap_or("access")] {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part);
    }
    hex::encode(hasher.finalize())
}

impl Approval {
    /// What it is about.
    pub fn subject(&self) -> String {
        approval_subject(&self.owner, &self.slug, self.args_hash.as_deref())
    }

    /// What it is found by.
    pub fn index(&self) -> ApprovalIndex<'_> {
        ApprovalIndex {
            state: self.state.code(),
            open: self.is_open(),
            owner: self.owner.as_str(),
            subject: self.subject(),
            expires_at: self.expires_at,
        }
    }

    /// Whether something can still become of it, its time aside.
    pub const fn is_open(&self) -> bool {
        match self.state {
            ApprovalState::Pending => true,
            ApprovalState::Approved => !matches!(self.kind, ApprovalKind::ToolAccess),
            ApprovalState::Denied
            | ApprovalState::Canceled
            | ApprovalState::Expired
            | ApprovalState::Consumed => false,
        }
    }

    /// Where it stands at `at`.
    pub fn state_at(&self, at: Timestamp) -> ApprovalState {
        if self.is_open() && at >= self.expires_at {
            ApprovalState::Expired
        } else {
            self.state
        }
    }

    /// Whether `call`, which holds `amount`, may be made with it at `at`.
    pub fn covers(&self, call: QuotedCall<'_>, amount: Micros, at: Timestamp) -> bool {
        self.state_at(at) == ApprovalState::Approved
            && Payer::EndUser(self.owner.clone()) == *call.payer
            && *self.slug == *call.slug
            && self.args_hash.as_deref() == Some(call.args_hash)
            && self.amount.is_some_and(|approved| amount <= approved)
    }
}

/// A decision about an approval.
#[derive(Clone, Debug)]
pub struct DecideApproval {
    /// Which.
    pub id: ApprovalId,
    /// Whose it is.
    pub owner: ExternalUserId,
    /// Whether it is approved.
    pub approve: bool,
    /// Who decides.
    pub by: Arc<str>,
    /// Why so.
    pub reason: Option<Arc<str>>,
}
