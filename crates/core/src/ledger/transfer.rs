//! Transfers: immutable movements between two accounts of one tenant, chained by hash.
//!
//! A transfer is never changed; a correction is another transfer. `hash = SHA-256(previous hash ‖ canonical
//! encoding)`, so that a row that was edited, removed or inserted later shows in the audit.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::account::{AccountKey, coded_enum};
use crate::ids::{CallId, TransferId};
use crate::money::Micros;
use crate::time::Timestamp;

/// The hash before a tenant's first transfer.
pub const GENESIS: [u8; 32] = [0; 32];

coded_enum! {
    /// Why money moved.
    Cause {
        /// Credits given without payment.
        Grant = 0 "grant",
        /// From the pool to an end user.
        Allocate = 1 "allocate",
        /// From an end user back to the pool.
        Deallocate = 2 "deallocate",
        /// The provider's share of a charge.
        Charge = 3 "charge",
        /// The tenant's margin in a charge.
        Margin = 4 "margin",
        /// Credited back after a stream.
        StreamRefund = 5 "stream_refund",
        /// Margin taken back with a stream's refund.
        MarginRefund = 6 "margin_refund",
        /// Provider cost that nobody is charged for.
        OperatorLoss = 7 "operator_loss",
        /// Credits that were paid for.
        Topup = 8 "topup",
        /// The fee paid with a top-up.
        TopupFee = 9 "topup_fee",
        /// Given on top of a top-up.
        VolumeBonus = 10 "volume_bonus",
        /// Taken back with a refund of a top-up.
        TopupRefund = 11 "topup_refund",
        /// Taken back with a lost dispute.
        Dispute = 12 "dispute",
        /// A bonus taken back.
        BonusClawback = 13 "bonus_clawback",
        /// A fee given back with a refund or a dispute.
        FeeRefund = 14 "fee_refund",
        /// What the payer no longer had: the tenant owes it.
        Shortfall = 15 "shortfall",
        /// Given again, because a refund or a lost dispute was reversed.
        Reversal = 16 "reversal",
        /// Margin that is paid out.
        Payout = 17 "payout",
        /// Margin of a payout that failed or was canceled.
        PayoutReturned = 18 "payout_returned",
        /// The provider's share of what a wallet paid for a call.
        PublicCharge = 19 "public_charge",
        /// The margin in what a wallet paid for a call.
        PublicMargin = 20 "public_margin",
        /// Provider cost that was booked as lost and was paid for after all.
        LossReversal = 21 "loss_reversal",
    }
}

/// One immutable movement: `amount` leaves `debit` and arrives at `credit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Position in the tenant's chain, from 1, without gaps.
    pub seq: i64,
    /// Public id.
    pub id: TransferId,
    /// The account that pays.
    pub debit: AccountKey,
    /// The account that receives.
    pub credit: AccountKey,
    /// More than zero.
    pub amount: Micros,
    /// Why.
    pub cause: Cause,
    /// The call it belongs to.
    pub call: Option<CallId>,
    /// Free reference: reason of a grant, id of what caused it.
    pub reference: Arc<str>,
    /// The call's tags.
    pub attribution: Option<Arc<str>>,
    /// Settled balance of `debit` afterwards.
    pub debit_after: Micros,
    /// Settled balance of `credit` afterwards.
    pub credit_after: Micros,
    /// When.
    pub created_at: Timestamp,
    /// Chain hash up to and including this transfer.
    pub hash: [u8; 32],
}

impl Transfer {
    /// The chain hash of this transfer behind `previous`.
    pub fn chained(&self, previous: &[u8; 32]) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(previous);
        hasher.update(self.seq.to_be_bytes());
        hasher.update(self.id.0.as_bytes());
        hasher.update(self.debit.tenant.0.as_bytes());
        for account in [&self.debit, &self.credit] {
            hasher.update(account.kind.code().to_be_bytes());
            text(&mut hasher, account.owner_str());
        }
        hasher.update(self.amount.get().to_be_bytes());
        hasher.update(self.debit_after.get().to_be_bytes());
        hasher.update(self.credit_after.get().to_be_bytes());
        hasher.update(self.cause.code().to_be_bytes());
        hasher.update(self.call.map_or([0; 16], |call| *call.0.as_bytes()));
        text(&mut hasher, &self.reference);
        text(&mut hasher, self.attribution.as_deref().unwrap_or(""));
        hasher.update(self.created_at.millis().to_be_bytes());
        hasher.finalize().into()
    }
}

/// Length first, so that two texts cannot run into each other.
pub(super) fn text(hasher: &mut Sha256, value: &str) {
    hasher.update(u64::try_from(value.len()).unwrap_or(u64::MAX).to_be_bytes());
    hasher.update(value.as_bytes());
}
