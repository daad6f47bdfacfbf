//! The commands: every change of money is one of these.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::account::{AccountKey, AccountKind, Balance, Payer, coded_enum};
use super::hold::{CallRef, CallSubject, ClaimKey, LoopKey};
use super::topup::{AutoTopup, Topup};
pub use super::topup_command::{
    AttachCheckout, AutoTopupChoice, DisputeReport, NewRefund, NewTopup, PaymentState, RefundReport,
    TopupRef, TopupReport, event_claim,
};
pub use super::user_command::{MoveReceipt, NewPolicy, NewToken, Retire, RevokeTokens, SetFrozen};
use crate::ids::{CallId, CommandId, ExternalUserId, TenantId, TokenId, TopupId, TransferId};
use crate::money::Micros;
use crate::pricing::Charge;
use crate::time::Timestamp;
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
        /// Whether limits were taken away by it.
        policy_reset: bool,
    },
}

/// The rows a batch has to load before its commands are applied.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Accounts.
    pub accounts: Vec<AccountKey>,
    /// End users.
    pub end_users: Vec<(TenantId, ExternalUserId)>,
    /// Holds.
    pub holds: Vec<(TenantId, CallId)>,
    /// Idempotency claims.
    pub claims: Vec<ClaimKey>,
    /// Loop counters.
    pub loops: Vec<LoopKey>,
    /// Tenants.
    pub tenants: Vec<TenantId>,
    /// Top-ups.
    pub topups: Vec<(TenantId, TopupId)>,
    /// Choices about automatic top-ups.
    pub auto_topups: Vec<TenantId>,
    /// Tokens by id.
    pub tokens: Vec<(TenantId, TokenId)>,
    /// End users all of whose live tokens are needed.
    pub token_owners: Vec<(TenantId, ExternalUserId)>,
}

impl Command {
    /// Adds the rows this command touches to `needs`; the same row may be added twice.
    pub fn needs(&self, needs: &mut Needs) {
        needs.tenants.push(self.tenant);
        let of = |kind| AccountKey::of(self.tenant, kind);
        match &self.action {
            Action::Grant(grant) => {
                needs.payer(self.tenant, &grant.to);
                needs.accounts.push(of(AccountKind::Funding));
                needs.accounts.push(of(AccountKind::Bonus));
                needs
                    .claims
                    .extend(grant.claim.as_ref().map(|claim| claim.key.clone()));
            }
            Action::Move(moved) => {
                needs.payer(self.tenant, &Payer::EndUser(moved.end_user.clone()));
                needs.accounts.push(of(AccountKind::Pool));
                needs
                    .claims
                    .extend(moved.claim.as_ref().map(|claim| claim.key.clone()));
            }
            Action::Hold(hold) => {
                needs.payer(self.tenant, &hold.payer);
                needs
                    .claims
                    .extend(hold.claim.as_ref().map(|claim| claim.key.clone()));
                needs.loops.extend(hold.loop_key(self.tenant));
                needs.tokens.extend(hold.token.map(|token| (self.tenant, token)));
            }
            Action::MarkDispatched(call) => needs.holds.push((self.tenant, call.call)),
            Action::Capture(capture) => needs.call(self.tenant, &capture.call, false),
            Action::FinishStream(finish) => needs.call(self.tenant, &finish.call, false),
            Action::Release(release) => needs.call(self.tenant, &release.call, true),
            Action::Expire(call) => needs.call(self.tenant, call, true),
            Action::OpenTopup(new) | Action::BeginAutoTopup(new) => {
                needs.topup(self.tenant, &new.topup());
                needs
                    .claims
                    .extend(new.claim.as_ref().map(|claim| claim.key.clone()));
            }
            Action::AttachCheckout(attach) => needs.topup(self.tenant, &attach.topup),
            Action::TopupReport(report) => {
                needs.report(self.tenant, &report.topup, report.event.as_ref());
            }
            Action::OpenRefund(new) => {
                needs.topup(self.tenant, &new.topup);
                needs
                    .claims
                    .extend(new.claim.as_ref().map(|claim| claim.key.clone()));
            }
            Action::RefundReport(report) => {
                needs.report(self.tenant, &report.topup, report.event.as_ref());
            }
            Action::DisputeReport(report) => {
                needs.report(self.tenant, &report.topup, report.event.as_ref());
            }
            Action::SetAutoTopup(_) => needs.auto_topups.push(self.tenant),
            Action::MintToken(new) => {
                needs.payer(self.tenant, &Payer::EndUser(new.token.owner.clone()));
                needs.tokens.push((self.tenant, new.id));
            }
            Action::RevokeTokens(revoke) => {
                needs.payer(self.tenant, &Payer::EndUser(revoke.owner.clone()));
                needs.token_owners.push((self.tenant, revoke.owner.clone()));
            }
            Action::SetPolicy(new) => {
                needs.payer(self.tenant, &Payer::EndUser(new.end_user.clone()));
            }
            Action::SetFrozen(frozen) => needs.payer(self.tenant, &frozen.payer),
            Action::Retire(retire) => {
                needs.payer(self.tenant, &Payer::EndUser(retire.end_user.clone()));
                needs.token_owners.push((self.tenant, retire.end_user.clone()));
            }
        }
    }
}

impl NewHold {
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

impl Needs {
    fn payer(&mut self, tenant: TenantId, payer: &Payer) {
        self.accounts.push(payer.account(tenant));
        if let Payer::EndUser(id) = payer {
            self.end_users.push((tenant, id.clone()));
        }
    }

    fn call(&mut self, tenant: TenantId, call: &CallRef, frees_claim: bool) {
        self.payer(tenant, &call.payer);
        for kind in [
            AccountKind::ProviderCost,
            AccountKind::Margin,
            AccountKind::OperatorLoss,
        ] {
            self.accounts.push(AccountKey::of(tenant, kind));
        }
        self.holds.push((tenant, call.call));
        self.loops.extend(call.loop_key(tenant));
        self.tokens.extend(call.token.map(|token| (tenant, token)));
        if frees_claim {
            self.claims.extend(call.claim.clone());
        }
    }

    fn topup(&mut self, tenant: TenantId, topup: &TopupRef) {
        self.payer(tenant, &topup.payer);
        for kind in [
            AccountKind::Pool,
            AccountKind::Funding,
            AccountKind::Bonus,
            AccountKind::Fees,
            AccountKind::Receivable,
        ] {
            self.accounts.push(AccountKey::of(tenant, kind));
        }
        self.topups.push((tenant, topup.topup));
        self.auto_topups.push(tenant);
    }

    fn report(&mut self, tenant: TenantId, topup: &TopupRef, event: Option<&Arc<str>>) {
        self.topup(tenant, topup);
        self.claims.extend(event.map(|event| event_claim(tenant, event)));
    }
}
