//! The audit: recomputes a tenant's books from its transfers and holds, and names every difference.
//!
//! It is fed rows in key order by a store that reads one snapshot, and keeps only one number per account, so
//! that books of any length can be checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::account::{Account, AccountKey, AccountKind};
use super::audit_authority::Uses;
use super::audit_log::AuditLine;
use super::books::TenantHead;
use super::hold::{Hold, HoldState};
use super::payout::{Payout, PayoutIndex};
use super::topup::Topup;
use super::transfer::{Cause, GENESIS, Transfer};
use crate::ids::{CallId, TenantId};
use crate::money::Micros;

/// Most findings that are kept; a broken chain would otherwise list everything behind it.
const MAX_FINDINGS: usize = 100;

/// Checks one tenant.
#[derive(Debug)]
pub struct Auditor {
    posted: BTreeMap<AccountKey, i128>,
    pub(super) held: BTreeMap<AccountKey, i128>,
    pub(super) open_calls: BTreeMap<AccountKey, i64>,
    calls: BTreeMap<CallId, CallSum>,
    payouts: BTreeMap<Arc<str>, PayoutSum>,
    pub(super) paid: BTreeMap<AccountKey, i128>,
    pub(super) uses: Uses,
    chain: [u8; 32],
    next_transfer: i64,
    next_event: i64,
    audit_chain: [u8; 32],
    next_audit: i64,
    pub(super) counts: AuditCounts,
    findings: Vec<String>,
}

#[derive(Debug, Default)]
struct CallSum {
    charged: i128,
    refunded: i128,
    loss: i128,
    regained: i128,
}

#[derive(Debug, Default)]
struct PayoutSum {
    out: i128,
    back: i128,
}

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AuditCounts {
    /// Accounts.
    pub accounts: u64,
    /// Transfers.
    pub transfers: u64,
    /// Holds.
    pub holds: u64,
    /// Calls that are not finished: held, or a stream that still runs.
    pub open_holds: u64,
    /// Events.
    pub events: u64,
    /// Top-ups.
    pub topups: u64,
    /// Payouts.
    pub payouts: u64,
    /// Calls that wallets pay for by themselves.
    pub paid_calls: u64,
    /// Those that are not over.
    pub open_paid_calls: u64,
    /// Quotes.
    pub quotes: u64,
    /// Approvals.
    pub approvals: u64,
    /// Rows of the audit log.
    pub audit_rows: u64,
}

/// What the audit of a tenant found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AuditReport {
    /// How much was checked.
    pub counts: AuditCounts,
    /// Every difference, in words; empty = the books are right.
    pub findings: Vec<String>,
}

impl Default for Auditor {
    fn default() -> Self {
        Self::new()
    }
}

impl Auditor {
    /// An audit that has seen nothing yet.
    pub const fn new() -> Self {
        Self {
            posted: BTreeMap::new(),
            held: BTreeMap::new(),
            open_calls: BTreeMap::new(),
            calls: BTreeMap::new(),
            payouts: BTreeMap::new(),
            paid: BTreeMap::new(),
            uses: Uses::new(),
            chain: GENESIS,
            next_transfer: 1,
            next_event: 1,
            audit_chain: GENESIS,
            next_audit: 1,
            counts: AuditCounts {
                accounts: 0,
                transfers: 0,
                holds: 0,
                open_holds: 0,
                events: 0,
                topups: 0,
                payouts: 0,
                paid_calls: 0,
                open_paid_calls: 0,
                quotes: 0,
                approvals: 0,
                audit_rows: 0,
            },
            findings: Vec::new(),
        }
    }

    pub(super) fn find(&mut self, finding: String) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        }
    }

    /// The next transfer, in order of its position.
    pub fn transfer(&mut self, transfer: &Transfer) {
        self.counts.transfers = self.counts.transfers.saturating_add(1);
        if transfer.seq != self.next_transfer {
            self.find(format!(
                "transfer {}: expected position {}",
                transfer.seq, self.next_transfer
            ));
        }
        self.next_transfer = transfer.seq.saturating_add(1);
        let hash = transfer.chained(&self.chain);
        if hash != transfer.hash {
            self.find(format!("transfer {}: chain hash differs", transfer.seq));
        }
        self.chain = transfer.hash;
        if transfer.amount <= Micros::ZERO {
            self.find(format!("transfer {}: amount is not positive", transfer.seq));
        }
        if transfer.debit.tenant != transfer.credit.tenant {
            self.find(format!("transfer {}: two tenants", transfer.seq));
        }
        let amount = i128::from(transfer.amount.get());
        for (account, sign, after) in [
            (&transfer.debit, -1_i128, transfer.debit_after),
            (&transfer.credit, 1, transfer.credit_after),
        ] {
            let sum = self.posted.entry(account.clone()).or_default();
            *sum = sum.saturating_add(amount.saturating_mul(sign));
            let (sum, negative) = (*sum, *sum < 0 && account.is_spendable());
            if sum != i128::from(after.get()) {
                self.find(format!(
                    "transfer {}: balance of {account} afterwards should be {sum}",
                    transfer.seq
                ));
            }
            if negative {
                self.find(format!("transfer {}: {account} is overdrawn", transfer.seq));
            }
        }
        if matches!(transfer.cause, Cause::Payout | Cause::PayoutReturned) {
            self.payout_entry(transfer);
            let sums = self.payouts.entry(transfer.reference.clone()).or_default();
            let sum = if transfer.cause == Cause::Payout {
                &mut sums.out
            } else {
                &mut sums.back
            };
            *sum = sum.saturating_add(amount);
        }
        if matches!(transfer.cause, Cause::PublicCharge | Cause::PublicMargin) {
            self.public_entry(transfer);
        }
        if let Some(call) = transfer.call {
            let sums = self.calls.entry(call).or_default();
            let sum = match transfer.cause {
                Cause::Charge | Cause::Margin | Cause::PublicCharge | Cause::PublicMargin => {
                    &mut sums.charged
                }
                Cause::StreamRefund | Cause::MarginRefund => &mut sums.refunded,
                Cause::OperatorLoss => &mut sums.loss,
                Cause::LossReversal => &mut sums.regained,
                Cause::Grant
                | Cause::Allocate
                | Cause::Deallocate
                | Cause::Topup
                | Cause::TopupFee
                | Cause::VolumeBonus
                | Cause::TopupRefund
                | Cause::Dispute
                | Cause::BonusClawback
                | Cause::FeeRefund
                | Cause::Shortfall
                | Cause::Reversal
                | Cause::Payout
                | Cause::PayoutReturned => return,
            };
            *sum = sum.saturating_add(amount);
        }
    }

    /// A payout takes margin that is there, and gives back to where it took from.
    fn payout_entry(&mut self, transfer: &Transfer) {
        let out = transfer.cause == Cause::Payout;
        let (from, to) = if out {
            (AccountKind::Margin, AccountKind::Payouts)
        } else {
            (AccountKind::Payouts, AccountKind::Margin)
        };
        if (transfer.debit.kind, transfer.credit.kind) != (from, to) {
            self.find(format!(
                "transfer {}: a {} from {} to {}",
                transfer.seq, transfer.cause, transfer.debit, transfer.credit
            ));
        }
        if out && transfer.debit_after.is_negative() {
            self.find(format!(
                "transfer {}: a payout of margin that was not earned",
                transfer.seq
            ));
        }
    }

    /// A hold, in any order, after all transfers.
    pub fn hold(&mut self, tenant: TenantId, hold: &Hold) {
        self.counts.holds = self.counts.holds.saturating_add(1);
        let id = hold.call.call;
        self.authority(hold);
        self.entries_fit(id, hold.charged, hold.refunded, hold.loss);
        if hold.charged > hold.amount || hold.refunded > hold.charged || hold.charged.is_negative() {
            self.find(format!("call {id}: 0 ≤ refunded ≤ charged ≤ hold does not hold"));
        }
        if hold.state != HoldState::Captured && !hold.charged.is_zero() {
            self.find(format!("call {id}: {} and charged", hold.state));
        }
        if !hold.is_finished() {
            self.counts.open_holds = self.counts.open_holds.saturating_add(1);
            let count = self
                .open_calls
                .entry(hold.call.payer.account(tenant))
                .or_default();
            *count = count.saturating_add(1);
        }
        if hold.state == HoldState::Held {
            let sum = self.held.entry(hold.call.payer.account(tenant)).or_default();
            *sum = sum.saturating_add(i128::from(hold.amount.get()));
        }
        if hold.state == HoldState::Captured && !hold.is_finished() {
            self.reserve(tenant, hold.margin);
        }
        // A captured stream may still run; the other states decide whether it is finished.
        if hold.state != HoldState::Captured && hold.is_finished() == (hold.state == HoldState::Held) {
            self.find(format!("call {id}: finished and {} contradict", hold.state));
        }
    }

    /// A call's entries sum to what its record says.
    pub(super) fn entries_fit(&mut self, id: CallId, charged: Micros, refunded: Micros, loss: Micros) {
        let sums = self.calls.remove(&id).unwrap_or_default();
        for (what, ledger, record) in [
            ("charged", sums.charged, charged),
            ("refunded", sums.refunded, refunded),
            ("loss", sums.loss.saturating_sub(sums.regained), loss),
        ] {
            if ledger != i128::from(record.get()) {
                self.find(format!(
                    "call {id}: {what} is {record} in its record and {ledger} µUSD in the ledger"
                ));
            }
        }
    }

    /// A top-up, in any order, after all transfers: what its refunds and disputes hold.
    pub fn topup(&mut self, tenant: TenantId, topup: &Topup) {
        self.counts.topups = self.counts.topups.saturating_add(1);
        let sum = self.held.entry(topup.holder().account(tenant)).or_default();
        *sum = sum.saturating_add(i128::from(topup.held().get()));
        self.reserve(tenant, topup.reserved());
        if topup.state.is_credited() != topup.completed_at.is_some() {
            self.find(format!("top-up {}: its record contradicts itself", topup.id));
        }
        let (claimed, terms) = (topup.claimed(), &topup.terms);
        let within = claimed.is_some_and(|claimed| {
            claimed.credits <= terms.credits && claimed.bonus <= terms.bonus && claimed.fee <= terms.fee
        });
        if !within {
            self.find(format!("top-up {}: more is given back than was paid", topup.id));
        }
    }

    /// Margin that may be taken back is set aside.
    fn reserve(&mut self, tenant: TenantId, amount: Micros) {
        let margin = AccountKey::of(tenant, AccountKind::Margin);
        let sum = self.held.entry(margin).or_default();
        *sum = sum.saturating_add(i128::from(amount.get()));
    }

    /// A payout, in any order, after all transfers: it took its amount once, and gave it back once or never. What is
    /// stored beside it for finding it says the same.
    pub fn payout(&mut self, payout: &Payout, index: &PayoutIndex<'_>) {
        if *index != payout.index() {
            self.find(format!(
                "payout {}: its columns {index:?} contradict its document {:?}",
                payout.id,
                payout.index()
            ));
        }
        self.counts.payouts = self.counts.payouts.saturating_add(1);
        let sums = self.payouts.remove(payout.id.to_string().as_str());
        let sums = sums.unwrap_or_default();
        let amount = i128::from(payout.amount.get());
        let back = if payout.state.is_returned() { amount } else { 0 };
        if (sums.out, sums.back) != (amount, back) {
            self.find(format!(
                "payout {} of {} is {}: its entries took {} and gave back {} µUSD",
                payout.id, payout.amount, payout.state, sums.out, sums.back
            ));
        }
    }

    /// An account row, after all transfers, holds and top-ups.
    pub fn account(&mut self, key: &AccountKey, account: &Account) {
        self.counts.accounts = self.counts.accounts.saturating_add(1);
        let posted = self.posted.remove(key).unwrap_or_default();
        if posted != i128::from(account.posted.get()) {
            self.find(format!(
                "account {key}: balance is {} and its entries sum to {posted} µUSD",
                account.posted
            ));
        }
        let paid = self.paid.remove(key).unwrap_or_default();
        if key.kind == AccountKind::Payer && posted.saturating_add(paid) != 0 {
            self.find(format!(
                "account {key}: its calls were paid with {paid} and its entries sum to {posted} µUSD"
            ));
        }
        let held = self.held.remove(key).unwrap_or_default();
        if held != i128::from(account.held.get()) {
            self.find(format!(
                "account {key}: {} held and its open holds sum to {held} µUSD",
                account.held
            ));
        }
        let open_calls = self.open_calls.remove(key).unwrap_or_default();
        if open_calls != account.open_calls {
            self.find(format!(
                "account {key}: {} unfinished calls counted and {open_calls} found",
                account.open_calls
            ));
        }
        if account.held.is_negative() || (key.is_spendable() && account.posted < account.held) {
            self.find(format!(
                "account {key}: overdrawn: {} posted, {} held",
                account.posted, account.held
            ));
        }
    }

    /// The next event's position, in order.
    pub fn event(&mut self, seq: i64) {
        self.counts.events = self.counts.events.saturating_add(1);
        // Old events go after their retention; what is there must be without gaps.
        if self.counts.events > 1 && seq != self.next_event {
            self.find(format!("event {seq}: expected {}", self.next_event));
        }
        self.next_event = seq.saturating_add(1);
    }

    /// The next row of the audit log with its hash, in order of its position.
    pub fn audit_line(&mut self, line: &AuditLine<'_>, hash: &[u8]) {
        self.counts.audit_rows = self.counts.audit_rows.saturating_add(1);
        if line.seq < 1 {
            // From before the log was chained.
            return;
        }
        if line.seq != self.next_audit {
            self.find(format!(
                "audit row {}: expected position {}",
                line.seq, self.next_audit
            ));
        }
        self.next_audit = line.seq.saturating_add(1);
        let expected = line.chained(&self.audit_chain);
        if expected != hash {
            self.find(format!("audit row {}: chain hash differs", line.seq));
        }
        // Behind an edited row the others still fit to what was written.
        self.audit_chain = hash.try_into().unwrap_or(expected);
    }

    /// Ends the audit with the tenant's row.
    pub fn finish(mut self, head: &TenantHead) -> AuditReport {
        if head.transfer_seq.saturating_add(1) != self.next_transfer {
            self.find(format!("the last transfer should be {}", head.transfer_seq));
        }
        if head.chain != self.chain {
            self.find("the chain does not end in the tenant's head".to_owned());
        }
        if head.audit_seq.saturating_add(1) != self.next_audit {
            self.find(format!("the last audit row should be {}", head.audit_seq));
        }
        if head.audit_chain != self.audit_chain {
            self.find("the audit log's chain does not end in the tenant's head".to_owned());
        }
        if self.counts.events > 0 && head.event_seq.saturating_add(1) != self.next_event {
            self.find(format!("the last event should be {}", head.event_seq));
        }
        for (key, sum) in std::mem::take(&mut self.posted) {
            self.find(format!("account {key} has entries of {sum} µUSD and no row"));
        }
        for (key, sum) in std::mem::take(&mut self.held)
            .into_iter()
            .filter(|(_, sum)| *sum != 0)
        {
            self.find(format!("account {key} has holds of {sum} µUSD and no row"));
        }
        for (key, count) in std::mem::take(&mut self.open_calls) {
            self.find(format!("account {key} has {count} unfinished calls and no row"));
        }
        for (key, sum) in std::mem::take(&mut self.paid) {
            self.find(format!("account {key} paid {sum} µUSD and has no row"));
        }
        for payout in std::mem::take(&mut self.payouts).into_keys() {
            self.find(format!("payout {payout} has entries and no record"));
        }
        self.missing_authority();
        for call in std::mem::take(&mut self.calls).into_keys() {
            self.find(format!("call {call} has entries and no record"));
        }
        AuditReport {
            counts: self.counts,
            findings: self.findings,
        }
    }
}
