//! A top-up: one purchase of credits through a processor, with its refunds and disputes.
//!
//! ```text
//! Open ──▶ Processing ──▶ Completed ◀──▶ Refunded
//!   ├──────────┴────────▶ Failed
//!   └───────────────────▶ Expired
//! ```
//! `Completed` is reached once, from every state but `Refunded`: money that arrived late is credited all the
//! same. Refunds and disputes share what was paid: together they never give back more.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::{Payer, SpendWindow, coded_enum};
use crate::ids::{DisputeId, ExternalUserId, RefundId, TopupId};
use crate::money::Micros;
use crate::time::Timestamp;
use crate::topup::returned;

coded_enum! {
    /// Where a top-up stands.
    TopupState {
        /// Waits for the customer.
        Open = 0 "open",
        /// The customer is done, the money is under way.
        Processing = 1 "processing",
        /// Paid and credited.
        Completed = 2 "completed",
        /// The checkout page ended unpaid.
        Expired = 3 "expired",
        /// The payment failed.
        Failed = 4 "failed",
        /// Paid, and given back as a whole.
        Refunded = 5 "refunded",
    }
}

impl TopupState {
    /// Whether the customer or the processor may still act.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Processing)
    }

    /// Whether its credits were given.
    pub const fn is_credited(self) -> bool {
        matches!(self, Self::Completed | Self::Refunded)
    }
}

coded_enum! {
    /// How a top-up came about (decisions, section 7).
    TopupSource {
        /// A person at a checkout page.
        CheckoutSession = 0 "checkout_session",
        /// A saved payment method, when the balance fell below its threshold.
        AutoReload = 1 "auto_reload",
    }
}

coded_enum! {
    /// Where a refund stands.
    RefundState {
        /// Asked for; its credits are held.
        Pending = 0 "pending",
        /// Done.
        Succeeded = 1 "succeeded",
        /// It did not reach the customer; the credits are back.
        Failed = 2 "failed",
        /// Withdrawn; the credits are back.
        Canceled = 3 "canceled",
    }
}

coded_enum! {
    /// Where a dispute stands.
    DisputeState {
        /// An inquiry; no money has moved.
        Warning = 0 "warning",
        /// Open; its credits are held.
        Open = 1 "open",
        /// The payment stands.
        Won = 2 "won",
        /// The payment is gone.
        Lost = 3 "lost",
    }
}

/// What the customer was quoted; immutable. `total = credits + fee`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// Credited when paid.
    pub credits: Micros,
    /// Kept for the processor's fee.
    pub fee: Micros,
    /// What the customer pays, whole cents.
    pub total: Micros,
    /// Given on top.
    pub bonus: Micros,
    /// The quote as it was shown, JSON text.
    pub quote: Arc<str>,
}

impl Terms {
    /// Whether something is bought, the parts make up the total, and a processor can charge that.
    pub(super) fn add_up(&self) -> bool {
        self.credits > Micros::ZERO
            && !self.fee.is_negative()
            && !self.bonus.is_negative()
            && self.credits.checked_add(self.fee) == Some(self.total)
            && self.total.get().checked_rem(10_000) == Some(0)
    }

    /// What the customer pays, in cents.
    pub const fn total_cents(&self) -> i64 {
        self.total.get().div_euclid(10_000)
    }
}

/// The processor's page of a top-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutRef {
    /// The processor's id.
    pub id: Arc<str>,
    /// Where the customer pays.
    pub url: Arc<str>,
}

/// Parts of a payment that go back, or came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// Credits.
    pub credits: Micros,
    /// Bonus credits.
    pub bonus: Micros,
    /// Fee.
    pub fee: Micros,
}

impl Parts {
    /// What the payer's account owes of it.
    pub const fn due(self) -> Option<Micros> {
        self.credits.checked_add(self.bonus)
    }

    /// What the customer paid for it.
    pub(super) const fn cents(self) -> i64 {
        match self.credits.checked_add(self.fee) {
            Some(paid) => paid.get().div_euclid(10_000),
            None => i64::MAX,
        }
    }

    pub(super) fn plus(self, more: Self) -> Option<Self> {
        Some(Self {
            credits: self.credits.checked_add(more.credits)?,
            bonus: self.bonus.checked_add(more.bonus)?,
            fee: self.fee.checked_add(more.fee)?,
        })
    }
}

/// What giving parts back did: taken from the payer, and what the payer no longer had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clawed {
    /// Taken from the payer (and the fee).
    pub taken: Parts,
    /// Booked as the tenant's debt.
    pub short: Parts,
}

impl Clawed {
    /// Whether the payer no longer had all of it.
    pub(super) fn is_short(self) -> bool {
        self.short != Parts::default()
    }

    pub(super) fn plus(self, more: Self) -> Option<Self> {
        Some(Self {
            taken: self.taken.plus(more.taken)?,
            short: self.short.plus(more.short)?,
        })
    }
}

/// A refund of a part of a top-up or of all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refund {
    /// Ours.
    pub id: RefundId,
    /// The processor's, once known.
    pub reference: Option<Arc<str>>,
    /// Paid back to the customer, in cents.
    pub cents: i64,
    /// What it takes back.
    pub parts: Parts,
    /// Held on the payer's account while pending.
    pub held: Micros,
    /// What it took when it succeeded.
    pub clawed: Option<Clawed>,
    /// Where it stands.
    pub state: RefundState,
    /// Told of before the payment was: it takes effect when the payment is credited.
    pub parked: bool,
    /// Ended here without a word of the processor about it: should it have been made after all, that counts.
    #[serde(default)]
    pub given_up: bool,
    /// Set while it is a reason to be frozen: the account's spell in which it became one.
    pub froze: Option<i64>,
    /// Why, in the words of who asked.
    pub reason: Arc<str>,
    /// Why it failed.
    pub failure: Option<Arc<str>>,
    /// When it was asked for or first told of.
    pub created_at: Timestamp,
}

/// A dispute of a top-up's payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispute {
    /// Ours.
    pub id: DisputeId,
    /// The processor's.
    pub reference: Arc<str>,
    /// Disputed, in cents.
    pub cents: i64,
    /// What is taken back when it is lost.
    pub parts: Parts,
    /// Held on the payer's account while open.
    pub held: Micros,
    /// What it took when it was lost.
    pub clawed: Option<Clawed>,
    /// Where it stands.
    pub state: DisputeState,
    /// Told of before the payment was.
    pub parked: bool,
    /// Set while it is a reason to be frozen: the account's spell in which it became one.
    pub froze: Option<i64>,
    /// Why, in the processor's word.
    pub reason: Arc<str>,
    /// When evidence is due.
    pub due_by: Option<Timestamp>,
    /// When it was first told of.
    pub created_at: Timestamp,
}

/// A purchase of credits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Topup {
    /// Its id.
    pub id: TopupId,
    /// Its public session id, `cs_…`; who knows it may pay.
    pub session: Arc<str>,
    /// Whose balance it fills; `None` = the pool.
    pub owner: Option<ExternalUserId>,
    /// Whether the pool received it instead, because its end user was retired by then.
    #[serde(default)]
    pub pooled: bool,
    /// How it came about.
    pub source: TopupSource,
    /// Where it stands.
    pub state: TopupState,
    /// What was quoted.
    pub terms: Terms,
    /// The buyer's tags, JSON text, given back unchanged.
    pub metadata: Option<Arc<str>>,
    /// Where the customer goes after paying.
    pub success_url: Option<Arc<str>>,
    /// Where the customer goes instead.
    pub cancel_url: Option<Arc<str>>,
    /// Whether the payment method is kept for later charges.
    pub saves_method: bool,
    /// Who asked for it.
    pub credential: Arc<str>,
    /// When.
    pub created_at: Timestamp,
    /// When its page stops working.
    pub expires_at: Timestamp,
    /// The processor's page.
    pub checkout: Option<CheckoutRef>,
    /// The processor's payment.
    pub payment: Option<Arc<str>>,
    /// When it was credited.
    pub completed_at: Option<Timestamp>,
    /// Code and words of a failure.
    pub failure: Option<(Arc<str>, Arc<str>)>,
    /// Why a person has to look at it: what arrived is not what was asked for.
    pub review: Option<Arc<str>>,
    /// Its refunds, oldest first.
    pub refunds: Vec<Refund>,
    /// Its disputes, oldest first.
    pub disputes: Vec<Dispute>,
}

impl Topup {
    /// Whose balance it fills.
    pub fn payer(&self) -> Payer {
        self.owner.clone().map_or(Payer::Pool, Payer::EndUser)
    }

    /// Whose balance it filled, and gives it back.
    pub fn holder(&self) -> Payer {
        if self.pooled { Payer::Pool } else { self.payer() }
    }

    /// The parts that refunds and disputes have given back or may still; `None` on overflow.
    pub(super) fn claimed(&self) -> Option<Parts> {
        let refunds = self.refunds.iter().filter(|refund| refund.counts());
        let disputes = self.disputes.iter().filter(|dispute| dispute.counts());
        refunds
            .map(|refund| refund.parts)
            .chain(disputes.map(|dispute| dispute.parts))
            .try_fold(Parts::default(), Parts::plus)
    }

    /// Cents that refunds and disputes have given back or may still.
    fn claimed_cents(&self) -> i64 {
        self.claimed().map_or(i64::MAX, Parts::cents)
    }

    /// Cents that can still be given back.
    pub fn refundable_cents(&self) -> i64 {
        self.terms
            .total_cents()
            .saturating_sub(self.claimed_cents())
            .max(0)
    }

    /// What giving back `cents` more takes: cumulative, so that the parts of every split add up to the whole.
    pub(super) fn parts_of(&self, cents: i64) -> Option<Parts> {
        let (total, after) = (self.terms.total_cents(), self.claimed_cents().checked_add(cents)?);
        let claimed = self.claimed()?;
        let paid = Micros::new(cents.checked_mul(10_000)?);
        let credits = returned(after, total, self.terms.credits)?.saturating_sub_zero(claimed.credits);
        let credits = if credits > paid { paid } else { credits };
        Some(Parts {
            credits,
            bonus: returned(after, total, self.terms.bonus)?.saturating_sub_zero(claimed.bonus),
            fee: paid.checked_sub(credits)?,
        })
    }

    /// Whether all of it was given back by refunds.
    pub(super) fn is_refunded(&self) -> bool {
        let succeeded = self
            .refunds
            .iter()
            .filter(|refund| refund.state == RefundState::Succeeded);
        let cents = succeeded.map(|refund| refund.cents).fold(0, i64::saturating_add);
        cents >= self.terms.total_cents()
    }

    /// Held on the payer's account for refunds and disputes.
    pub fn held(&self) -> Micros {
        let refunds = self.refunds.iter().map(|refund| refund.held);
        let disputes = self.disputes.iter().map(|dispute| dispute.held);
        refunds.chain(disputes).fold(Micros::ZERO, |sum, held| {
            sum.checked_add(held).unwrap_or(Micros::MAX)
        })
    }

    /// What its open disputes may take of the margin: what of theirs is not held on the payer's account.
    pub fn reserved(&self) -> Micros {
        let open = self.disputes.iter().filter(|dispute| dispute.is_open());
        open.map(|dispute| {
            let due = dispute.parts.due().unwrap_or(Micros::MAX);
            due.saturating_sub_zero(dispute.held)
        })
        .fold(Micros::ZERO, |sum, part| {
            sum.checked_add(part).unwrap_or(Micros::MAX)
        })
    }

    /// Whether the processor may still have news of it: the reconciliation sweep looks at it.
    pub fn is_unsettled(&self) -> bool {
        self.state.is_open()
            || self
                .refunds
                .iter()
                .any(|refund| refund.state == RefundState::Pending)
            || self
                .disputes
                .iter()
                .any(|dispute| matches!(dispute.state, DisputeState::Open | DisputeState::Warning))
    }
}

impl Refund {
    /// Whether it takes part of what was paid.
    pub(super) const fn counts(&self) -> bool {
        !self.parked && matches!(self.state, RefundState::Pending | RefundState::Succeeded)
    }
}

impl Dispute {
    /// Whether it holds what it may take.
    const fn is_open(&self) -> bool {
        !self.parked && matches!(self.state, DisputeState::Open)
    }

    /// Whether it takes part of what was paid.
    pub(super) const fn counts(&self) -> bool {
        !self.parked && matches!(self.state, DisputeState::Open | DisputeState::Lost)
    }
}

/// How often automatic top-ups may fail before they are switched off.
pub const MAX_AUTO_FAILURES: u32 = 3;

/// Automatic top-ups of a tenant's pool from a saved payment method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoTopup {
    /// Whether they are made.
    pub enabled: bool,
    /// Below this available balance.
    pub threshold: Micros,
    /// Credits bought each time.
    pub amount: Micros,
    /// Most credits bought in a UTC month; `None` = no ceiling.
    pub monthly_cap: Option<Micros>,
    /// Bought and under way in the running month.
    pub month: SpendWindow,
    /// Failures since the last success.
    pub failures: u32,
    /// When the last one failed, while there are failures.
    pub failed_at: Option<Timestamp>,
    /// The processor's customer.
    pub customer: Option<Arc<str>>,
    /// The saved payment method.
    pub method: Option<Arc<str>>,
    /// The one under way.
    pub running: Option<TopupId>,
    /// Why they were switched off by themselves.
    pub stopped: Option<Arc<str>>,
}
