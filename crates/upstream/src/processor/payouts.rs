//! Accounts that are paid out to, and what is sent to them.

/// An account that the processor pays out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayoutAccount {
    /// The processor's id of it.
    pub id: String,
    /// Whether its owner has told the processor everything.
    pub details_submitted: bool,
    /// Whether the processor pays it out to its bank.
    pub payouts_enabled: bool,
    /// Whether transfers to it are possible.
    pub transfers_enabled: bool,
    /// Why the processor has stopped it, in the processor's word.
    pub disabled_reason: Option<String>,
}

impl PayoutAccount {
    /// Whether money that is sent to it arrives.
    pub const fn is_payable(&self) -> bool {
        self.payouts_enabled && self.transfers_enabled
    }
}

/// A page of the processor's on which an account's owner introduces themselves; good for one visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountLink {
    /// Where it is.
    pub url: String,
    /// When it stops working, Unix seconds; `None` = it does not.
    pub expires_at: Option<i64>,
}

/// Money that was sent to an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayoutReport {
    /// The processor's id of the transfer.
    pub transfer: String,
    /// The account.
    pub account: String,
    /// In cents.
    pub amount_cents: i64,
    /// ISO 4217, lower case.
    pub currency: String,
}

/// Money that was sent to an account came back, in part or whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reversal {
    /// The processor's id of the transfer.
    pub transfer: String,
    /// The attempt it was sent under, as far as its metadata say.
    pub payout: Option<String>,
    /// What was sent, in cents.
    pub amount_cents: i64,
    /// What came back of it, in cents.
    pub reversed_cents: i64,
}

impl Reversal {
    /// Whether all of it came back.
    pub const fn is_whole(&self) -> bool {
        self.reversed_cents >= self.amount_cents
    }
}
