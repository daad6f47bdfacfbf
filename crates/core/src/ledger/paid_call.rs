//! A call that a wallet pays for by itself: claimed, carried out, settled once.
//!
//! ```text
//! dispatched or claimed → settling → settled
//!     ↓            ↓        ↕     ↓
//!   failed      (gone)   refused → failed
//! ```
//! A row appears when a verified payment is claimed for a request id; where a provider is asked, whoever claims sends the
//! request next, and the row says from the start that it may have been sent. The answer is stored before anything is
//! settled, and from then on the provider is never asked again: what is left is to settle, or to learn that it was
//! settled. Nothing is written for a request that was not paid.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::account::{AccountKey, AccountKind, coded_enum};
use super::command::{Drift, StoredOutcome};
use super::hold::ClaimKey;
use crate::ids::{CallId, ReceiptId, RequestId, TenantId};
use crate::money::Micros;
use crate::pricing::Charge;
use crate::time::Timestamp;
use crate::usage::Usage;
use crate::x402::Address;

/// The scope of the claims that keep one payment from paying for two requests.
pub const PAYMENT_SCOPE: &str = "x402";

/// How long an answer is kept for repeats after its call has ended, whatever its outcome says: a day.
pub const ANSWER_KEPT_MS: i64 = 24 * 3_600_000;

/// Longest name of a transaction that transfers carry.
const MAX_REFERENCE_CHARS: usize = 128;

coded_enum! {
    /// What can be called and paid for by the call (specification 4.1 to 4.3).
    Operation {
        /// `POST /vendor/chat`.
        Chat = 0 "chat",
        /// `POST /vendor/fim`.
        Fim = 1 "fim",
        /// `POST /vendor/list-models`.
        ListModels = 2 "list-models",
    }
}

coded_enum! {
    /// In which protocol the payment came; both are settled the same way.
    PaidBy {
        /// x402 version 2.
        X402 = 0 "x402",
        /// The machine payments protocol.
        Mpp = 1 "mpp",
    }
}

coded_enum! {
    /// How far a paid call is.
    PaidCallState {
        /// The payment is bound to a request for which no provider is asked, or, by an earlier version, to one that was
        /// not sent yet.
        Claimed = 0 "claimed",
        /// The payment is bound to the request, which is about to be sent to the provider, or was.
        Dispatched = 1 "dispatched",
        /// The answer is stored; the settlement was asked for, or is about to be, and its outcome is not known.
        Settling = 2 "settling",
        /// The settlement was refused, and nothing moved: it can be tried again until the payment's deadline.
        Refused = 3 "refused",
        /// Paid.
        Settled = 4 "settled",
        /// Over without a payment.
        Failed = 5 "failed",
    }
}

impl PaidCallState {
    /// Whether it was begun, and no answer is stored.
    pub const fn is_unanswered(self) -> bool {
        matches!(self, Self::Claimed | Self::Dispatched)
    }

    /// Whether the answer is stored and its payment is not over.
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Settling | Self::Refused)
    }

    /// Whether something can still happen to it.
    pub const fn is_open(self) -> bool {
        self.is_unanswered() || self.is_answered()
    }
}

/// What pays for a call, as it is bound to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payment {
    /// In which protocol it came.
    pub by: PaidBy,
    /// Whether no money moves.
    #[serde(default)]
    pub simulated: bool,
    /// [`crate::x402::Authorization::key`].
    pub key: Arc<str>,
    /// Who pays.
    pub payer: Address,
    /// CAIP-2.
    pub network: Arc<str>,
    /// The token's contract, as configured.
    pub asset: Arc<str>,
    /// Who receives it, as configured.
    pub pay_to: Arc<str>,
    /// What was authorised: the amount of `exact`, the most of `upto`.
    pub max: Micros,
    /// From then on it cannot be settled.
    pub valid_before: Timestamp,
    /// What a facilitator needs to settle it, as JSON; gone when the call is over. Stored beside the rest.
    #[serde(skip)]
    pub signed: Option<Arc<str>>,
}

/// What a paid call is, and what it can cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaidSubject {
    /// What was called.
    pub operation: Operation,
    /// SHA-256 of the body's raw bytes, hexadecimal.
    pub body_hash: Arc<str>,
    /// Provider id; none where nobody is asked.
    pub provider: Option<Arc<str>>,
    /// The provider's name of the model.
    pub model: Option<Arc<str>>,
    /// The price it is metered by, as JSON.
    pub price: Arc<str>,
    /// What it can cost at the provider at most.
    pub base: Micros,
}

/// Proof that a call was paid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settlement {
    /// What was paid.
    pub amount: Micros,
    /// The transaction's hash, empty when nothing was due.
    pub transaction: Arc<str>,
    /// The facilitator's answer as the caller gets it, JSON.
    pub response: Arc<str>,
    /// When it was learnt.
    pub at: Timestamp,
}

/// A call that a wallet pays for by itself. Stored as [`PaidTerms`], [`PaidProgress`] and [`PaidCallIndex`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaidCall {
    /// The caller's or our id of the request; also the id under which its answer is stored.
    pub id: RequestId,
    /// What it is.
    pub subject: PaidSubject,
    /// What pays for it.
    pub payment: Payment,
    /// How far it is.
    pub state: PaidCallState,
    /// The process that works on it.
    pub instance: Uuid,
    /// From then on any process may go on with it, or end it.
    pub due_at: Timestamp,
    /// Since when the request may have been sent.
    pub dispatched_at: Option<Timestamp>,
    /// What is to be settled; `effective ≤ payment.max`. Known with the answer.
    pub charge: Option<Charge>,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// How often a settlement was tried.
    pub tries: u32,
    /// The last refusal, as the caller gets it, JSON.
    pub refusal: Option<Arc<str>>,
    /// When that was.
    pub refused_at: Option<Timestamp>,
    /// The proof; also of a call that failed because less was paid than was due.
    pub settlement: Option<Settlement>,
    /// Why it failed: a public code, or the facilitator's reason.
    pub failure: Option<Arc<str>>,
    /// What the provider bills that nobody paid for.
    pub loss: Micros,
    /// When it was claimed.
    pub created_at: Timestamp,
    /// When it was settled or failed.
    pub ended_at: Option<Timestamp>,
}

impl PaidCall {
    /// Names this call.
    pub fn reference(&self) -> PaidCallRef {
        PaidCallRef {
            id: self.id,
            payer: self.payment.payer,
            key: self.payment.key.clone(),
        }
    }

    /// The wallet's account in the house tenant: `held` is what its open calls authorise, `posted` minus what it paid.
    pub fn account(tenant: TenantId, payer: Address) -> AccountKey {
        AccountKey {
            tenant,
            kind: AccountKind::Payer,
            owner: Some(payer.into()),
        }
    }

    /// Names this call in transfers and drift records, which are shown and exported: its receipt's id, because whoever
    /// knows the request's may fetch the answer.
    pub fn entry_id(&self) -> CallId {
        CallId(ReceiptId::of(self.id).0)
    }

    /// What its transfers refer to: the transaction, or the operation where there is none.
    pub(super) fn entry_reference(&self) -> Arc<str> {
        let transaction = self.settlement.as_ref().map(|settlement| &settlement.transaction);
        let is_hash = |text: &&Arc<str>| {
            (1..=MAX_REFERENCE_CHARS).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        match transaction.filter(is_hash) {
            Some(transaction) => transaction.clone(),
            None => self.subject.operation.as_str().into(),
        }
    }

    /// What it costs at the provider, as far as a payment covers it or is to cover it.
    pub fn base_cost(&self) -> Micros {
        let base = self.charge.map_or(Micros::ZERO, |charge| charge.base);
        match &self.settlement {
            Some(settlement) => base.min(settlement.amount),
            None if self.state.is_answered() => base,
            None => Micros::ZERO,
        }
    }

    /// What it is found and summed up by.
    pub fn index(&self) -> PaidCallIndex<'_> {
        PaidCallIndex {
            state: self.state,
            due_at: self.due_at,
            instance: self.instance,
            payment_key: &self.payment.key,
            provider: self.subject.provider.as_deref(),
            base_cost: self.base_cost(),
            loss: self.loss,
            created_at: self.created_at,
            ended_at: self.ended_at,
        }
    }

    /// What is written of it once.
    pub fn terms(&self) -> PaidTerms {
        PaidTerms {
            id: self.id,
            subject: self.subject.clone(),
            payment: self.payment.clone(),
            created_at: self.created_at,
        }
    }

    /// What is written of it with each step.
    pub fn progress(&self) -> PaidProgress {
        PaidProgress {
            dispatched_at: self.dispatched_at,
            charge: self.charge,
            usage: self.usage,
            tries: self.tries,
            refusal: self.refusal.clone(),
            refused_at: self.refused_at,
            settlement: self.settlement.clone(),
            failure: self.failure.clone(),
        }
    }

    /// The call whose parts these are; `signed` is what was signed, when it is stored still.
    pub fn from_parts(
        terms: PaidTerms,
        progress: PaidProgress,
        index: &PaidCallIndex<'_>,
        signed: Option<Arc<str>>,
    ) -> Self {
        let signed = signed.filter(|_| index.state.is_open());
        Self {
            id: terms.id,
            subject: terms.subject,
            payment: Payment {
                signed,
                ..terms.payment
            },
            state: index.state,
            instance: index.instance,
            due_at: index.due_at,
            dispatched_at: progress.dispatched_at,
            charge: progress.charge,
            usage: progress.usage,
            tries: progress.tries,
            refusal: progress.refusal,
            refused_at: progress.refused_at,
            settlement: progress.settlement,
            failure: progress.failure,
            loss: index.loss,
            created_at: terms.created_at,
            ended_at: index.ended_at,
        }
    }

    /// Whether it is over and what was signed could be used still: then it is deleted. A payment that was used up is
    /// public and worth nothing.
    pub fn leaves_what_was_signed(&self) -> bool {
        let transaction = self.settlement.as_ref().map(|settlement| &settlement.transaction);
        !self.state.is_open() && transaction.is_none_or(|transaction| transaction.is_empty())
    }

    /// The claim that keeps a payment from paying for two requests.
    pub fn claim(tenant: TenantId, payment_key: &Arc<str>) -> ClaimKey {
        ClaimKey {
            tenant,
            scope: PAYMENT_SCOPE.into(),
            key: payment_key.clone(),
        }
    }
}

/// What stays as it is from a call's claim on: written once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaidTerms {
    /// [`PaidCall::id`].
    pub id: RequestId,
    /// [`PaidCall::subject`].
    pub subject: PaidSubject,
    /// [`PaidCall::payment`], without what was signed.
    pub payment: Payment,
    /// [`PaidCall::created_at`].
    pub created_at: Timestamp,
}

/// What becomes of a call: small, because it is written with each step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaidProgress {
    /// [`PaidCall::dispatched_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched_at: Option<Timestamp>,
    /// [`PaidCall::charge`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<Charge>,
    /// [`PaidCall::usage`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// [`PaidCall::tries`].
    #[serde(default)]
    pub tries: u32,
    /// [`PaidCall::refusal`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Arc<str>>,
    /// [`PaidCall::refused_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<Timestamp>,
    /// [`PaidCall::settlement`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settlement: Option<Settlement>,
    /// [`PaidCall::failure`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Arc<str>>,
}

/// What a paid call is found and summed up by: the columns of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaidCallIndex<'a> {
    /// [`PaidCall::state`].
    pub state: PaidCallState,
    /// [`PaidCall::due_at`].
    pub due_at: Timestamp,
    /// [`PaidCall::instance`].
    pub instance: Uuid,
    /// [`Payment::key`].
    pub payment_key: &'a str,
    /// [`PaidSubject::provider`].
    pub provider: Option<&'a str>,
    /// [`PaidCall::base_cost`].
    pub base_cost: Micros,
    /// [`PaidCall::loss`].
    pub loss: Micros,
    /// [`PaidCall::created_at`].
    pub created_at: Timestamp,
    /// [`PaidCall::ended_at`].
    pub ended_at: Option<Timestamp>,
}

/// Names a paid call and the rows that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaidCallRef {
    /// The request.
    pub id: RequestId,
    /// Who pays.
    pub payer: Address,
    /// [`Payment::key`].
    pub key: Arc<str>,
}

/// How much of one wallet may be open at once: verification locks no money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayerCap {
    /// Sum of what open calls authorise.
    pub amount: Micros,
    /// How many.
    pub calls: i64,
}

/// A verified payment is bound to a request.
#[derive(Clone, Debug)]
pub struct NewPaidCall {
    /// The request.
    pub id: RequestId,
    /// What it is.
    pub subject: PaidSubject,
    /// What pays for it.
    pub payment: Payment,
    /// The process that works on it.
    pub instance: Uuid,
    /// When another one may end it.
    pub due_at: Timestamp,
    /// What the wallet may have open, this one included.
    pub cap: PayerCap,
}

/// A paid call was carried out.
#[derive(Clone, Debug)]
pub struct FinishPaidCall {
    /// Which.
    pub call: PaidCallRef,
    /// What is to be settled.
    pub charge: Charge,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// Difference between metering and the report.
    pub drift: Option<Drift>,
    /// The answer.
    pub outcome: StoredOutcome,
    /// When another process may go on with the settlement.
    pub due_at: Timestamp,
}

/// A paid call ends without an answer: nothing is settled.
#[derive(Clone, Debug)]
pub struct FailPaidCall {
    /// Which.
    pub call: PaidCallRef,
    /// A public error code.
    pub failure: Arc<str>,
    /// Work of the provider that nobody pays for.
    pub drift: Option<Drift>,
}

/// Somebody goes on with a settlement: after a refusal, or because nobody did until [`PaidCall::due_at`].
#[derive(Clone, Debug)]
pub struct LeaseSettlement {
    /// Which.
    pub call: PaidCallRef,
    /// The process that goes on.
    pub instance: Uuid,
    /// When another one may.
    pub due_at: Timestamp,
    /// [`PaidCall::tries`] as it was read: of two that go on one wins.
    pub tries: u32,
}

/// What became of a settlement.
#[derive(Clone, Debug)]
pub struct SettlementReport {
    /// Which call.
    pub call: PaidCallRef,
    /// [`PaidCall::tries`] of who reports; what somebody says who was overtaken counts only when it is a payment.
    pub tries: Option<u32>,
    /// What.
    pub progress: SettlementProgress,
}

/// How a settlement went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettlementProgress {
    /// It was settled; also when that was learnt from the chain.
    Settled {
        /// What moved.
        amount: Micros,
        /// The transaction's hash.
        transaction: Arc<str>,
        /// As the caller gets it, JSON.
        response: Arc<str>,
    },
    /// It was refused, and the chain says that nothing moved.
    Refused {
        /// As the caller gets it, JSON.
        response: Arc<str>,
    },
    /// Nobody knows; asked again from then on.
    Unknown {
        /// When.
        due_at: Timestamp,
    },
    /// It will never be settled: withdrawn by the payer, or past its deadline.
    Void {
        /// Why.
        reason: Arc<str>,
    },
}
