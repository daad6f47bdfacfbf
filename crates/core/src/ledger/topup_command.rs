//! The commands about money that comes in: top-ups, their refunds and disputes, automatic top-ups.

use std::sync::Arc;

use super::account::Payer;
use super::command::NewClaim;
use super::hold::ClaimKey;
use super::topup::{DisputeState, RefundState, Terms, Topup, TopupSource, TopupState};
use crate::ids::{ExternalUserId, RefundId, TenantId, TopupId};
use crate::money::Micros;
use crate::time::Timestamp;

/// Names a top-up's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopupRef {
    /// The top-up.
    pub topup: TopupId,
    /// Whose balance it fills.
    pub payer: Payer,
}

impl From<&Topup> for TopupRef {
    fn from(topup: &Topup) -> Self {
        Self {
            topup: topup.id,
            payer: topup.payer(),
        }
    }
}

/// The claim that marks a processor's event as handled.
pub fn event_claim(tenant: TenantId, event: &Arc<str>) -> ClaimKey {
    ClaimKey {
        tenant,
        scope: "processor".into(),
        key: event.clone(),
    }
}

/// A purchase of credits; an unknown end user is created.
#[derive(Clone, Debug)]
pub struct NewTopup {
    /// Its id.
    pub id: TopupId,
    /// Its public session id.
    pub session: Arc<str>,
    /// Whose balance it fills; `None` = the pool.
    pub owner: Option<ExternalUserId>,
    /// How it came about.
    pub source: TopupSource,
    /// What was quoted.
    pub terms: Terms,
    /// The buyer's tags, JSON text.
    pub metadata: Option<Arc<str>>,
    /// Where the customer goes after paying.
    pub success_url: Option<Arc<str>>,
    /// Where the customer goes instead.
    pub cancel_url: Option<Arc<str>>,
    /// Whether the payment method is kept for later charges.
    pub saves_method: bool,
    /// Who asks for it.
    pub credential: Arc<str>,
    /// When its page stops working.
    pub expires_at: Timestamp,
    /// Makes a repeat harmless.
    pub claim: Option<NewClaim>,
}

impl NewTopup {
    /// The names of its rows.
    pub fn topup(&self) -> TopupRef {
        TopupRef {
            topup: self.id,
            payer: self.owner.clone().map_or(Payer::Pool, Payer::EndUser),
        }
    }

    /// The row it begins as.
    pub(super) fn opened(&self, at: Timestamp) -> Topup {
        Topup {
            id: self.id,
            session: self.session.clone(),
            owner: self.owner.clone(),
            pooled: false,
            source: self.source,
            state: TopupState::Open,
            terms: self.terms.clone(),
            metadata: self.metadata.clone(),
            success_url: self.success_url.clone(),
            cancel_url: self.cancel_url.clone(),
            saves_method: self.saves_method,
            credential: self.credential.clone(),
            created_at: at,
            expires_at: self.expires_at,
            checkout: None,
            payment: None,
            completed_at: None,
            failure: None,
            review: None,
            refunds: Vec::new(),
            disputes: Vec::new(),
        }
    }
}

/// The processor made the page of a top-up.
#[derive(Clone, Debug)]
pub struct AttachCheckout {
    /// Which top-up.
    pub topup: TopupRef,
    /// The processor's id of the page.
    pub id: Arc<str>,
    /// Where the customer pays.
    pub url: Arc<str>,
}

/// How far a payment is, as the processor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentState {
    /// The money is under way.
    Processing,
    /// Paid.
    Paid,
    /// It failed for good.
    Failed,
    /// The page ended unpaid.
    Expired,
}

/// The processor told of a top-up's payment.
#[derive(Clone, Debug)]
pub struct TopupReport {
    /// Which top-up.
    pub topup: TopupRef,
    /// The processor's event, handled once; `None` when the processor was asked.
    pub event: Option<Arc<str>>,
    /// How far it is.
    pub state: PaymentState,
    /// The processor's id of the payment.
    pub payment: Option<Arc<str>>,
    /// What was paid, in cents.
    pub cents: i64,
    /// Set when currency or mode are not what was asked for.
    pub mismatch: Option<Arc<str>>,
    /// The processor's customer.
    pub customer: Option<Arc<str>>,
    /// The payment method, when it may be charged again.
    pub method: Option<Arc<str>>,
    /// Code and words of a failure.
    pub failure: Option<(Arc<str>, Arc<str>)>,
}

/// A refund is asked for.
#[derive(Clone, Debug)]
pub struct NewRefund {
    /// Its id.
    pub id: RefundId,
    /// Of which top-up.
    pub topup: TopupRef,
    /// How much goes back to the customer, in cents; `None` = all that is left.
    pub cents: Option<i64>,
    /// Why.
    pub reason: Arc<str>,
    /// Makes a repeat harmless.
    pub claim: Option<NewClaim>,
}

/// The processor told of a refund.
#[derive(Clone, Debug)]
pub struct RefundReport {
    /// Of which top-up.
    pub topup: TopupRef,
    /// The processor's event.
    pub event: Option<Arc<str>>,
    /// Our id, when it was asked for here.
    pub refund: Option<RefundId>,
    /// The processor's id; `None` when it refused to make one.
    pub reference: Option<Arc<str>>,
    /// In cents.
    pub cents: i64,
    /// How far it is.
    pub state: RefundState,
    /// Why it failed.
    pub failure: Option<Arc<str>>,
}

/// The processor told of a dispute.
#[derive(Clone, Debug)]
pub struct DisputeReport {
    /// Of which top-up's payment.
    pub topup: TopupRef,
    /// The processor's event.
    pub event: Option<Arc<str>>,
    /// The processor's id.
    pub reference: Arc<str>,
    /// In cents.
    pub cents: i64,
    /// How far it is.
    pub state: DisputeState,
    /// Why, in the processor's word.
    pub reason: Arc<str>,
    /// When evidence is due.
    pub due_by: Option<Timestamp>,
}

/// What a workspace chooses about automatic top-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoTopupChoice {
    /// Whether they are made.
    pub enabled: bool,
    /// Below this available balance of the pool.
    pub threshold: Micros,
    /// Credits bought each time.
    pub amount: Micros,
    /// Most credits bought in a UTC month; `None` = no ceiling.
    pub monthly_cap: Option<Micros>,
}
