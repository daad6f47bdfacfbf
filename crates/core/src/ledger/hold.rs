//! A hold: credits set aside for one call, and with it the call's record.
//!
//! ```text
//! Held ──▶ Captured      charged; a stream is captured before its first byte and finished later
//!   ├────▶ Released      nothing charged: it failed, and the caller was told
//!   └────▶ Expired       nothing charged: the sweeper found it unfinished
//! ```
//! It ends once. `0 ≤ charged ≤ amount`, `0 ≤ refunded ≤ charged`.

use std::sync::Arc;

use super::account::{Payer, coded_enum};
use crate::ids::{ApprovalId, CallId, QuoteId, TenantId, TokenId};
use crate::money::Micros;
use crate::time::Timestamp;
use crate::usage::Usage;

coded_enum! {
    /// Where a hold stands.
    HoldState {
        /// Credits are set aside.
        Held = 0 "held",
        /// The charge was taken.
        Captured = 1 "captured",
        /// Given back: the call failed.
        Released = 2 "released",
        /// Given back by the sweeper.
        Expired = 3 "expired",
    }
}

coded_enum! {
    /// How a stream is settled (decisions, section 5).
    StreamSettlement {
        /// The authorised amount is the price.
        Fixed = 0 "fixed",
        /// The unused part is credited back when the provider reports its usage.
        Usage = 1 "usage",
    }
}

/// What a call is, as far as its record and its events tell. Immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSubject {
    /// Provider id.
    pub provider: Arc<str>,
    /// Endpoint name within the provider.
    pub endpoint: Arc<str>,
    /// Model id, for model calls.
    pub model: Option<Arc<str>>,
    /// Whether the answer is a stream.
    pub streamed: bool,
    /// Who called: the credential's kind and id, never its secret.
    pub credential: Arc<str>,
    /// The caller's tags, as the JSON text that was sent.
    pub attribution: Option<Arc<str>>,
    /// The price as frozen for this call: JSON of the pricing module's making.
    pub price: Arc<str>,
}

/// Names an idempotency claim within a tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimKey {
    /// The workspace.
    pub tenant: TenantId,
    /// Credential's owner or end user, and route.
    pub scope: Arc<str>,
    /// The caller's `Idempotency-Key`.
    pub key: Arc<str>,
}

/// A claim as stored: which request took the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// SHA-256 of what must be the same on a repeat.
    pub fingerprint: [u8; 32],
    /// What the key stands for: a call's or a command's id.
    pub subject: uuid::Uuid,
}

/// Names the counter of one agent loop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopKey {
    /// The workspace.
    pub tenant: TenantId,
    /// The end user.
    pub owner: crate::ids::ExternalUserId,
    /// The caller's `X-Svc-Loop-Id`.
    pub loop_id: Arc<str>,
}

/// What one agent loop has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopCount {
    /// Calls admitted.
    pub calls: u64,
    /// Spent and held.
    pub spent: Micros,
}

/// Names a call's rows; every command after the hold carries it, so that a batch knows what to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRef {
    /// The call.
    pub call: CallId,
    /// Whose balance pays.
    pub payer: Payer,
    /// Its idempotency claim.
    pub claim: Option<ClaimKey>,
    /// Its loop, when one is counted.
    pub loop_id: Option<Arc<str>>,
    /// The end user's token it was asked with.
    pub token: Option<TokenId>,
    /// The quote it was made with.
    pub quote: Option<QuoteId>,
    /// The approval it was made with.
    pub approval: Option<ApprovalId>,
}

impl CallSubject {
    /// How policies name it: `provider/endpoint`, or `provider/model` for a model call.
    pub fn slug(&self) -> String {
        let name = self.model.as_ref().unwrap_or(&self.endpoint);
        format!("{}/{name}", self.provider)
    }
}

impl CallRef {
    /// The counter of the call's loop.
    pub fn loop_key(&self, tenant: TenantId) -> Option<LoopKey> {
        let owner = self.payer.external_user_id()?.clone();
        self.loop_id.clone().map(|loop_id| LoopKey {
            tenant,
            owner,
            loop_id,
        })
    }
}

/// A hold and the record of its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Call, payer, claim and loop.
    pub call: CallRef,
    /// What the call is.
    pub subject: CallSubject,
    /// Set aside.
    pub amount: Micros,
    /// The provider's share of `amount`, lost to the operator when the outcome stays unknown.
    pub base: Micros,
    /// Where it stands.
    pub state: HoldState,
    /// Which process took it; on an embedded store no other can still be working on it.
    pub instance: uuid::Uuid,
    /// Day and month window in which `amount` was counted.
    pub windows: (i64, i64),
    /// When it was taken.
    pub created_at: Timestamp,
    /// When the request was about to be sent to the provider; `None` = certainly not sent.
    pub dispatched_at: Option<Timestamp>,
    /// When the sweeper may end it.
    pub deadline: Timestamp,
    /// When nothing more will happen to it; `None` while it is held or its stream runs.
    pub finished_at: Option<Timestamp>,
    /// Taken from the payer.
    pub charged: Micros,
    /// The tenant's margin in `charged − refunded`.
    pub margin: Micros,
    /// Credited back after the capture.
    pub refunded: Micros,
    /// The payer's settled balance right after the capture or release.
    pub balance_after: Option<Micros>,
    /// Booked to the operator's loss.
    pub loss: Micros,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// Why it failed: a public error code.
    pub failure: Option<Arc<str>>,
}

impl Hold {
    /// Whether nothing more will happen to it.
    pub const fn is_finished(&self) -> bool {
        self.finished_at.is_some()
    }
}
