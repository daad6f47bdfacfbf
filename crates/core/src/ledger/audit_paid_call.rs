//! The audit of paid calls: each was paid once or never, and what its provider bills is paid for or booked as lost.

use uuid::Uuid;

use super::account::AccountKind;
use super::audit::Auditor;
use super::paid_call::{PaidCall, PaidCallIndex, PaidCallState, Settlement};
use super::transfer::{Cause, Transfer};
use crate::ids::{ReceiptId, RequestId, TenantId};
use crate::money::Micros;

impl Auditor {
    /// A wallet pays the provider's cost and the margin, and nothing else is booked as a wallet's payment.
    pub(super) fn public_entry(&mut self, transfer: &Transfer) {
        let to = if transfer.cause == Cause::PublicCharge {
            AccountKind::ProviderCost
        } else {
            AccountKind::Margin
        };
        if (transfer.debit.kind, transfer.credit.kind) != (AccountKind::Payer, to) || transfer.call.is_none()
        {
            self.find(format!(
                "transfer {}: a {} from {} to {}",
                transfer.seq, transfer.cause, transfer.debit, transfer.credit
            ));
        }
    }

    /// A paid call of which is stored how far it is, and not what it is.
    pub fn paid_call_without_terms(&mut self, id: RequestId) {
        self.counts.paid_calls = self.counts.paid_calls.saturating_add(1);
        self.find(format!("paid call {}: its terms are missing", ReceiptId::of(id)));
    }

    /// A paid call, in any order, after all transfers, with what is stored beside it and the request that its payment
    /// was claimed for, and whether what was signed is stored: it was paid once or never, by the wallet that authorised it.
    pub fn paid_call(
        &mut self,
        tenant: TenantId,
        call: &PaidCall,
        index: &PaidCallIndex<'_>,
        claimed_for: Option<Uuid>,
        is_signed: bool,
    ) {
        self.counts.paid_calls = self.counts.paid_calls.saturating_add(1);
        let id = call.entry_id();
        if *index != call.index() {
            self.find(format!("paid call {id}: its columns contradict its document"));
        }
        // INVARIANT: a payment is claimed for one request, so it is settled for one.
        if claimed_for != Some(call.id.0) {
            self.find(format!("paid call {id}: its payment is not claimed for it"));
        }
        let paid = call
            .settlement
            .as_ref()
            .map_or(Micros::ZERO, |settlement| settlement.amount);
        self.entries_fit(id, paid, Micros::ZERO, call.loss);
        let is_settled = call.state == PaidCallState::Settled;
        let untraced =
            |settlement: &Settlement| !settlement.amount.is_zero() && settlement.transaction.is_empty();
        let contradicts = (is_settled && call.settlement.is_none())
            || (call.state.is_open() && call.settlement.is_some())
            || call.settlement.as_ref().is_some_and(untraced)
            || call.state.is_open() == call.ended_at.is_some()
            || (call.state == PaidCallState::Failed) != call.failure.is_some()
            || ((is_settled || call.state.is_answered()) && call.charge.is_none())
            || (call.state.is_unanswered() && call.charge.is_some())
            || (call.state == PaidCallState::Claimed && call.dispatched_at.is_some())
            || (call.leaves_what_was_signed() && is_signed)
            || call
                .charge
                .is_some_and(|charge| charge.effective > call.payment.max);
        let base = call.charge.map_or(Micros::ZERO, |charge| charge.base);
        let lost = base.saturating_sub_zero(call.base_cost());
        if !call.state.is_open() && call.loss < lost {
            self.find(format!(
                "paid call {id}: {lost} of its cost is neither paid nor booked as lost"
            ));
        }
        if contradicts {
            self.find(format!(
                "paid call {id}: {} and its record contradict",
                call.state
            ));
        }
        let payer = PaidCall::account(tenant, call.payment.payer);
        if call.state.is_open() {
            self.counts.open_paid_calls = self.counts.open_paid_calls.saturating_add(1);
            let count = self.open_calls.entry(payer.clone()).or_default();
            *count = count.saturating_add(1);
            let held = self.held.entry(payer.clone()).or_default();
            *held = held.saturating_add(i128::from(call.payment.max.get()));
        }
        if !paid.is_zero() {
            let sum = self.paid.entry(payer).or_default();
            *sum = sum.saturating_add(i128::from(paid.get()));
        }
    }
}
