//! Payment processors: who shows the checkout page and takes the card.
//!
//! The rule: a call here is one request on the wire under an idempotency key that the caller chose and stored
//! before, so that a repeat after an unknown outcome is harmless. What a processor says becomes one of the
//! reports below; what it means for the ledger is the app's business. Amounts are whole cents here and nowhere
//! else.

use async_trait::async_trait;

mod builtin;
mod payouts;
mod signature;
pub mod stripe;

pub use builtin::{BuiltinOutcome, BuiltinPage, BuiltinProcessor};
pub use payouts::{AccountLink, PayoutAccount, PayoutReport, Reversal};
pub use signature::{SignatureError, sign_event, verify_event};
pub use stripe::{STRIPE_VERSION, StripeProcessor, StripeSettings};

/// A checkout page to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCheckout {
    /// Idempotency key of this attempt, stored before the call; the same for every repeat.
    pub attempt: String,
    /// Our session id, by which the processor's events find their top-up.
    pub reference: String,
    /// What the customer pays, in cents of a US dollar.
    pub amount_cents: i64,
    /// What it is, as the customer reads it.
    pub description: String,
    /// Where the customer goes after paying.
    pub success_url: String,
    /// Where the customer goes instead.
    pub cancel_url: String,
    /// When the page stops working, Unix seconds; chosen once per attempt.
    pub expires_at: i64,
    /// The processor's customer, when one is known.
    pub customer: Option<String>,
    /// Whether the payment method may be charged again without the customer.
    pub save_method: bool,
}

/// A checkout page that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    /// The processor's id of it.
    pub id: String,
    /// Where the customer pays.
    pub url: String,
}

/// A charge of a saved payment method, without the customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCharge {
    /// Idempotency key of this attempt.
    pub attempt: String,
    /// Our session id.
    pub reference: String,
    /// In cents of a US dollar.
    pub amount_cents: i64,
    /// What it is, as the customer reads it.
    pub description: String,
    /// The processor's customer.
    pub customer: String,
    /// The processor's payment method.
    pub method: String,
}

/// A refund to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRefund {
    /// Idempotency key, which is our refund's id.
    pub attempt: String,
    /// The processor's payment.
    pub payment: String,
    /// In cents of a US dollar.
    pub amount_cents: i64,
}

/// How far a payment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentState {
    /// The page waits for the customer.
    Open,
    /// The customer is done, the money is under way.
    Processing,
    /// Paid.
    Paid,
    /// It failed for good.
    Failed,
    /// The page stopped working unpaid.
    Expired,
}

/// What a processor says about a payment: of a checkout page or of a saved method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentReport {
    /// The processor's id of the page; `None` for a charge without one.
    pub session: Option<String>,
    /// Our session id as the processor gives it back. Anyone who can pay can choose it: it finds a row, and
    /// only what the row says counts.
    pub reference: Option<String>,
    /// How far it is.
    pub state: PaymentState,
    /// The processor's id of the payment, once there is one.
    pub payment: Option<String>,
    /// What was or will be paid, in cents.
    pub amount_cents: i64,
    /// ISO 4217, lower case.
    pub currency: String,
    /// The customer, when the processor keeps one.
    pub customer: Option<String>,
    /// The saved payment method, when it may be charged again.
    pub method: Option<String>,
    /// Code and words of a failure.
    pub failure: Option<(String, String)>,
}

/// How far a refund is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefundState {
    /// Under way.
    Pending,
    /// The customer has it, or will without fail.
    Succeeded,
    /// It did not reach the customer; the money is back here. Also possible after `Succeeded`.
    Failed,
    /// It was withdrawn.
    Canceled,
}

/// What a processor says about a refund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefundReport {
    /// The processor's id of it.
    pub refund: String,
    /// Our refund's id, when it was made through us.
    pub reference: Option<String>,
    /// The processor's payment.
    pub payment: String,
    /// In cents.
    pub amount_cents: i64,
    /// ISO 4217, lower case.
    pub currency: String,
    /// How far it is.
    pub state: RefundState,
    /// Why it failed.
    pub failure: Option<String>,
}

/// How far a dispute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisputeState {
    /// An inquiry: no money has moved.
    Warning,
    /// The money was taken back, and the case is open.
    Open,
    /// Decided for us, or an inquiry that ended: the money is here.
    Won,
    /// Decided against us: the money is gone.
    Lost,
}

/// What a processor says about a dispute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisputeReport {
    /// The processor's id of it.
    pub dispute: String,
    /// The processor's payment.
    pub payment: String,
    /// In cents.
    pub amount_cents: i64,
    /// ISO 4217, lower case.
    pub currency: String,
    /// How far it is.
    pub state: DisputeState,
    /// Why, in the processor's word.
    pub reason: String,
    /// When evidence is due, Unix seconds.
    pub due_by: Option<i64>,
}

/// One event of a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorEvent {
    /// The processor's id of the event.
    pub id: String,
    /// The processor's name of the type.
    pub kind: String,
    /// Whether real money moved.
    pub livemode: bool,
    /// What it says.
    pub report: Report,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// About a payment.
    Payment(PaymentReport),
    /// About a refund.
    Refund(RefundReport),
    /// About a dispute.
    Dispute(DisputeReport),
    /// About an account that is paid out to.
    Account(PayoutAccount),
    /// Money that was sent to an account came back.
    Reversal(Reversal),
    /// Nothing that concerns the ledger.
    Nothing,
}

/// Why a processor did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessorError {
    /// It said no, for good.
    #[error("the processor refused: {code}: {message}")]
    Refused {
        /// Its machine code.
        code: String,
        /// Its words.
        message: String,
    },
    /// Certainly not done; a repeat under the same key makes sense.
    #[error("the processor is not available: {0}")]
    Unavailable(String),
    /// Perhaps done; only a repeat under the same key is safe.
    #[error("the outcome at the processor is unknown: {0}")]
    Unknown(String),
}

/// Why an incoming event is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Not signed by the processor, or too old, or too new.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Signed, and not of the expected shape.
    #[error("the event is malformed: {0}")]
    Malformed(String),
}

/// A processor. All calls are idempotent under the `attempt` they carry.
#[async_trait]
pub trait Processor: Send + Sync {
    /// `builtin` or `stripe`.
    fn name(&self) -> &'static str;
    /// Whether events must tell of real money; `None` = the processor has no such notion.
    fn livemode(&self) -> Option<bool>;
    /// Makes a checkout page.
    async fn create_checkout(&self, new: &NewCheckout) -> Result<Checkout, ProcessorError>;
    /// What became of a checkout page; `None` = the processor cannot tell, our own row is the truth.
    async fn find_checkout(&self, session: &str) -> Result<Option<PaymentReport>, ProcessorError>;
    /// Ends an open checkout page.
    async fn expire_checkout(&self, session: &str) -> Result<(), ProcessorError>;
    /// Charges a saved payment method.
    async fn charge(&self, new: &NewCharge) -> Result<PaymentReport, ProcessorError>;
    /// What became of a charge, by the processor's payment id.
    async fn find_payment(&self, payment: &str) -> Result<Option<PaymentReport>, ProcessorError>;
    /// Gives a payment back, in part or whole.
    async fn refund(&self, new: &NewRefund) -> Result<RefundReport, ProcessorError>;
    /// What became of a refund.
    async fn find_refund(&self, refund: &str) -> Result<Option<RefundReport>, ProcessorError>;
    /// What became of a dispute.
    async fn find_dispute(&self, dispute: &str) -> Result<Option<DisputeReport>, ProcessorError>;
    /// Makes an account to pay out to.
    async fn create_account(&self, attempt: &str) -> Result<PayoutAccount, ProcessorError>;
    /// Makes a page on which an account's owner introduces themselves, and from which they go to `return_url`, or to
    /// `refresh_url` when the page is of no use any more. A repeat makes another page, which does no harm.
    async fn create_account_link(
        &self,
        account: &str,
        refresh_url: &str,
        return_url: &str,
    ) -> Result<AccountLink, ProcessorError>;
    /// How far an account is; `None` = the processor cannot tell, our own row is the truth.
    async fn find_account(&self, account: &str) -> Result<Option<PayoutAccount>, ProcessorError>;
    /// Sends money to an account, in cents of a US dollar.
    async fn transfer(
        &self,
        attempt: &str,
        account: &str,
        amount_cents: i64,
    ) -> Result<PayoutReport, ProcessorError>;
    /// Verifies the signature over the raw bytes and reads the event. `now` in Unix seconds.
    fn read_event(&self, raw: &[u8], signature: &str, now: i64) -> Result<ProcessorEvent, EventError>;
}
