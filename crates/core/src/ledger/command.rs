//! The commands: every change of money is one of these.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::account::{Balance, Payer, coded_enum};
use super::approval::{Approval, DecideApproval};
use super::audit_log::AuditLine;
use super::drift::{DriftEvidence, DriftFigures, DriftThreshold};
use super::hold::{CallRef, CallSubject, ClaimKey, LoopKey};
use super::paid_call::{
    FailPaidCall, FinishPaidCall, LeaseSettlement, NewPaidCall, PaidCall, PaidCallRef, SettlementReport,
};
use super::payout::{NewPayout, Payout, PayoutChange, PayoutReport, PayoutSettings};
use super::quote::{CallAuthority, CancelQuote, Quote};
use super::topup::{AutoTopup, Topup};
pub use super::topup_command::{
    AttachCheckout, AutoTopupChoice, DisputeReport, NewRefund, NewTopup, PaymentState, RefundReport,
    TopupRef, TopupReport, event_claim,
};
pub use super::user_command::{MoveReceipt, NewPolicy, NewToken, Retire, RevokeTokens, SetFrozen};
use crate::ids::{CallId, CommandId, ExternalUserId, PayoutId, TenantId, TokenId, TransferId};
use crate::money::Micros;
use crate::pricing::Charge;
use crate::time::{Day, Timestamp};
use crate::usage::Usage;

/// A change of one tenant's books, wanted at an instant.
#[derive(Clone, Debug)]
pub struct Command {
    /// Unique; the ids of the command's transfers and events follow from it.
    pub id: CommandId,
    /// Whose books.
    pub tenant: TenantId,
    /// When, by the clock of the service.
    pub at: Timestamp,
    /// What.
    pub action: Action,
    /// Written into the audit log when the command is accepted and was not done before.
    pub note: Option<Arc<AuditNote>>,
}

/// Who wants a change and from where, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditNote {
    /// Who.
    pub actor: Arc<str>,
    /// What, in the log's word.
    pub action: &'static str,
    /// On which thing.
    pub target: Arc<str>,
    /// The thing before, as JSON.
    pub before: Option<Arc<str>>,
    /// The thing afterwards, as JSON.
    pub after: Option<Arc<str>>,
    /// From where.
    pub origin: Arc<str>,
}

/// A row of the audit log to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its id.
    pub id: Uuid,
    /// The workspace.
    pub tenant: TenantId,
    /// When.
    pub at: Timestamp,
    /// Who and what.
    pub note: AuditNote,
    /// Position in the workspace's chain.
    pub seq: i64,
    /// Chain hash up to and including this row.
    pub hash: [u8; 32],
}

impl AuditEntry {
    /// As it is hashed.
    pub fn line(&self) -> AuditLine<'_> {
        AuditLine {
            seq: self.seq,
            id: self.id,
            tenant: self.tenant,
            at: self.at,
            actor: &self.note.actor,
            action: self.note.action,
            target: &self.note.target,
            before: self.note.before.as_deref(),
            after: self.note.after.as_deref(),
            origin: &self.note.origin,
        }
    }
}

/// What a command does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Credits given without payment.
    Grant(Grant),
    /// Credits moved between the pool and an end user.
    Move(Move),
    /// Credits set aside for a call, with its idempotency claim and policy counters.
    Hold(Box<NewHold>),
    /// The request is about to be sent to the provider.
    MarkDispatched(CallRef),
    /// The charge of a call, with its outcome.
    Capture(Box<Capture>),
    /// A captured stream has ended.
    FinishStream(Box<FinishStream>),
    /// The call failed: nothing is charged.
    Release(Release),
    /// The sweeper found the call unfinished.
    Expire(CallRef),
    /// A purchase of credits begins.
    OpenTopup(Box<NewTopup>),
    /// The processor made the page of a top-up.
    AttachCheckout(AttachCheckout),
    /// The processor told of a top-up's payment.
    TopupReport(Box<TopupReport>),
    /// A refund of a top-up is asked for.
    OpenRefund(Box<NewRefund>),
    /// The processor told of a refund.
    RefundReport(Box<RefundReport>),
    /// The processor told of a dispute.
    DisputeReport(Box<DisputeReport>),
    /// Automatic top-ups are set.
    SetAutoTopup(AutoTopupChoice),
    /// An automatic top-up begins, if one is due.
    BeginAutoTopup(Box<NewTopup>),
    /// A token of an end user; an unknown end user is created.
    MintToken(Box<NewToken>),
    /// Tokens of an end user stop working.
    RevokeTokens(RevokeTokens),
    /// An end user's limits; an unknown end user is created.
    SetPolicy(Box<NewPolicy>),
    /// A balance is frozen by hand, or free again.
    SetFrozen(SetFrozen),
    /// An end user leaves for good.
    Retire(Retire),
    /// A provider's day was measured.
    DriftReport(Box<DriftReport>),
    /// Margin is to be paid out.
    OpenPayout(Box<NewPayout>),
    /// Somebody told what became of a payout.
    ReportPayout(PayoutReport),
    /// A payout is withdrawn before it is sent.
    CancelPayout(PayoutId),
    /// Where the workspace is paid out to.
    ChangePayouts(PayoutChange),
    /// A verified payment is bound to a request.
    ClaimPaidCall(Box<NewPaidCall>),
    /// A paid call was carried out: its answer is stored, and the settlement begins.
    FinishPaidCall(Box<FinishPaidCall>),
    /// A paid call failed: nothing is settled.
    FailPaidCall(FailPaidCall),
    /// The sweeper found a paid call without an answer: gone when nothing was sent, failed otherwise.
    AbandonPaidCall(PaidCallRef),
    /// Somebody goes on with a settlement.
    LeaseSettlement(LeaseSettlement),
    /// Somebody told what became of a settlement.
    ReportSettlement(SettlementReport),
    /// A price is said for one call, and kept.
    OpenQuote(Box<Quote>),
    /// A quote is withdrawn.
    CancelQuote(CancelQuote),
    /// Somebody wishes what the workspace has to approve.
    RequestApproval(Box<Approval>),
    /// An owner or admin decides about it.
    DecideApproval(Box<DecideApproval>),
}

coded_enum! {
    /// Where granted credits come from (decisions, section 7).
    GrantSource {
        /// By hand.
        ManualGrant = 0 "manual_grant",
        /// A promotion.
        Promotion = 1 "promotion",
    }
}

/// Takes an idempotency key for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewClaim {
    /// Which key.
    pub key: ClaimKey,
    /// SHA-256 of what must be the same on a repeat.
    pub fingerprint: [u8; 32],
}

/// Credits given without payment; an unknown end user is created.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Who receives.
    pub to: Payer,
    /// More than zero.
    pub amount: Micros,
    /// Where it comes from.
    pub source: GrantSource,
    /// Why, in the operator's words.
    pub reason: Arc<str>,
    /// Makes a repeat harmless.
    pub claim: Option<NewClaim>,
}

/// How long the receipt of a move is kept for repeats: a day.
pub const MOVE_KEPT_MS: i64 = 24 * 3_600_000;

/// Credits moved between the pool and an end user; an unknown end user is created by an allocation.
#[derive(Clone, Debug)]
pub struct Move {
    /// The end user.
    pub end_user: ExternalUserId,
    /// `true`: pool → end user; `false`: back.
    pub to_end_user: bool,
    /// More than zero.
    pub amount: Micros,
    /// Free reference.
    pub reference: Arc<str>,
    /// Makes a repeat harmless; the receipt is then kept under the command's id for [`MOVE_KEPT_MS`].
    pub claim: Option<NewClaim>,
}

/// Credits set aside for a call.
#[derive(Clone, Debug)]
pub struct NewHold {
    /// The call's id.
    pub call: CallId,
    /// Whose balance pays.
    pub payer: Payer,
    /// Idempotency claim, taken with the hold.
    pub claim: Option<NewClaim>,
    /// The caller's loop.
    pub loop_id: Option<Arc<str>>,
    /// The largest charge the call can end with.
    pub amount: Micros,
    /// The provider's share of `amount`.
    pub base: Micros,
    /// What the call is.
    pub subject: CallSubject,
    /// Which process takes it.
    pub instance: Uuid,
    /// When the sweeper may end it.
    pub deadline: Timestamp,
    /// The end user's token it was asked with.
    pub token: Option<TokenId>,
    /// The quote and the approval it rests on, where there are such.
    pub authority: Option<Box<CallAuthority>>,
}

coded_enum! {
    /// What kind of answer was stored.
    OutcomeKind {
        /// The provider's JSON.
        Success = 0 "success",
        /// An error of the service, as its own document.
        Failure = 1 "failure",
        /// The bytes of an SSE stream.
        Transcript = 2 "transcript",
    }
}

/// The answer to a call, kept for replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOutcome {
    /// What `body` is.
    pub kind: OutcomeKind,
    /// The bytes; `None` when they were too many to keep.
    pub body: Option<Bytes>,
    /// When the bytes may go.
    pub expires_at: Timestamp,
}

coded_enum! {
    /// Why a call's metered cost is not what the provider reported.
    DriftKind {
        /// The provider reported no usage: the hold was charged.
        UsageMissing = 0 "usage_missing",
        /// The report was impossible: the hold was charged.
        UsageImpossible = 1 "usage_impossible",
        /// The report costs more than the hold: the operator bears the difference.
        AboveHold = 2 "above_hold",
        /// Sent to the provider, and its outcome is unknown.
        OutcomeUnknown = 3 "outcome_unknown",
    }
}

/// A call whose metered cost is not what the provider reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Why.
    pub kind: DriftKind,
    /// What the report says, or what was impossible about it.
    pub detail: Arc<str>,
    /// Cost borne by the operator.
    pub loss: Micros,
}

/// The charge of a call.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Which call.
    pub call: CallRef,
    /// The charge; `effective ≤` the hold.
    pub charge: Charge,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// Difference between metering and the report.
    pub drift: Option<Drift>,
    /// The answer; `None` for a stream that begins now.
    pub outcome: Option<StoredOutcome>,
}

/// A captured stream has ended.
#[derive(Clone, Debug)]
pub struct FinishStream {
    /// Which call.
    pub call: CallRef,
    /// What the call costs in the end; `≤` what was captured, the rest is credited back.
    pub charge: Charge,
    /// Why something is credited back, as the event's `kind`.
    pub refund_kind: &'static str,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// Difference between metering and the report.
    pub drift: Option<Drift>,
    /// Set when the stream broke: a public error code.
    pub failure: Option<Arc<str>>,
    /// The transcript.
    pub outcome: StoredOutcome,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub struct Release {
    /// Which call.
    pub call: CallRef,
    /// A public error code.
    pub failure: Arc<str>,
    /// The stored failure; `None` when nothing was sent: the idempotency key is free again.
    pub outcome: Option<StoredOutcome>,
    /// Work of the provider that nobody pays for.
    pub drift: Option<Drift>,
}

/// What a provider's day cost by the ledger and by the provider.
#[derive(Clone, Debug)]
pub struct DriftReport {
    /// Provider id, as calls carry it.
    pub provider: Arc<str>,
    /// The window it is about.
    pub day: Day,
    /// What was measured: the window itself, or a later day that may show that a drift is over.
    pub measured_day: Day,
    /// The tenant's figures of that day.
    pub figures: DriftFigures,
    /// The figures that the threshold is for: the tenant's own, or with an invoice those of all tenants.
    pub judged: DriftFigures,
    /// What the provider's figure rests on.
    pub evidence: DriftEvidence,
    /// From which difference on it counts.
    pub threshold: DriftThreshold,
}

/// What a report about a provider's day did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftChange {
    /// The tenant was told nothing.
    Unchanged,
    /// The tenant was told of a drift.
    Detected,
    /// The tenant was told that it is over.
    Resolved,
}

/// What an accepted command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The hold was taken.
    Held(Balance),
    /// The idempotency key stands for this already; nothing was done.
    Existing(Uuid),
    /// Marked as sent.
    Dispatched,
    /// The charge was taken; also the answer to a repeat of the same capture.
    Captured {
        /// Taken from the payer.
        charged: Micros,
        /// The payer's balance afterwards.
        balance: Balance,
    },
    /// A stream was finished.
    Finished {
        /// Credited back.
        refunded: Micros,
        /// The payer's balance afterwards.
        balance: Balance,
    },
    /// The hold was given back.
    Released(Balance),
    /// Credits arrived.
    Granted {
        /// The transfer.
        transfer: TransferId,
        /// The receiver's balance afterwards.
        balance: Balance,
    },
    /// Credits were moved.
    Moved(MoveReceipt),
    /// The top-up as it is now.
    Topup(Box<Topup>),
    /// Automatic top-ups as they are now.
    AutoTopup(Box<AutoTopup>),
    /// The token may be given out.
    Minted,
    /// So many tokens stopped working.
    Revoked(u64),
    /// The limits are set.
    PolicySet,
    /// The balance is as was asked; whether that changed anything.
    Frozen(bool),
    /// The end user is retired.
    Retired {
        /// Since before.
        already: bool,
        /// Tokens that stopped working by it.
        revoked_tokens: u64,
        /// Approvals that were open and are not any more.
        canceled_approvals: u64,
        /// Agent connections that stopped working by it.
        revoked_agents: u64,
        /// Whether limits were taken away by it.
        policy_reset: bool,
    },
    /// A provider's day was measured.
    Drift(DriftChange),
    /// The payout as it is now.
    Payout {
        /// The payout.
        payout: Box<Payout>,
        /// Whether this changed anything.
        changed: bool,
    },
    /// Where the workspace is paid out to now.
    PayoutSettings {
        /// Where to.
        settings: Box<PayoutSettings>,
        /// Whether this changed anything.
        changed: bool,
    },
    /// The paid call as it is now.
    PaidCall {
        /// The call.
        call: Box<PaidCall>,
        /// Whether this changed anything; not when the request was claimed by the same payment before.
        changed: bool,
    },
    /// The quote as it is now.
    Quote {
        /// The quote.
        quote: Box<Quote>,
        /// Whether this changed anything.
        changed: bool,
    },
    /// The approval as it is now.
    Approval {
        /// The approval.
        approval: Box<Approval>,
        /// Whether this changed anything; not when the same wish is open already.
        changed: bool,
    },
}

impl NewHold {
    /// How the later commands name the call.
    pub fn reference(&self) -> CallRef {
        let authority = self.authority.as_deref();
        CallRef {
            call: self.call,
            payer: self.payer.clone(),
            claim: self.claim.as_ref().map(|claim| claim.key.clone()),
            loop_id: self.loop_id.clone(),
            token: self.token,
            quote: authority.and_then(|authority| authority.quote.as_ref().map(|quote| quote.id)),
            approval: authority.and_then(|authority| authority.approval),
        }
    }

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
