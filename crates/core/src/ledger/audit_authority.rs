//! The audit of quotes and approvals: each was used by one call or by none, and that call's record says so.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::approval::{Approval, ApprovalIndex, ApprovalKind, ApprovalState};
use super::audit::Auditor;
use super::hold::{Hold, HoldState};
use super::quote::{Quote, QuoteIndex, QuoteState};
use crate::ids::CallId;

/// The calls that name a quote or an approval.
#[derive(Debug, Default)]
pub(super) struct Uses(BTreeMap<Uuid, Use>);

#[derive(Debug, Default)]
struct Use {
    calls: Vec<CallId>,
    captured: Option<CallId>,
}

impl Uses {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }
}

impl Auditor {
    /// Notes which quote and approval a call was made with.
    pub(super) fn authority(&mut self, hold: &Hold) {
        let call = hold.call.call;
        let named = [
            hold.call.quote.map(|quote| quote.0),
            hold.call.approval.map(|approval| approval.0),
        ];
        for id in named.into_iter().flatten() {
            let used = self.uses.0.entry(id).or_default();
            used.calls.push(call);
            // A call of which nothing was sent has given them back; one that is charged has not.
            if hold.state != HoldState::Captured {
                continue;
            }
            if let Some(other) = used.captured.replace(call) {
                self.find(format!("{id}: used by the calls {other} and {call}"));
            }
        }
    }

    /// Checks that the one call that used `id` is `by`.
    fn used(&mut self, id: Uuid, consumed: bool, by: Option<CallId>) {
        let used = self.uses.0.remove(&id).unwrap_or_default();
        if consumed != by.is_some() {
            self.find(format!("{id}: its state and the call that used it contradict"));
        }
        if by.is_some_and(|call| !used.calls.contains(&call)) {
            self.find(format!("{id}: used by a call that does not name it"));
        }
        if used.captured.is_some() && used.captured != by {
            self.find(format!("{id}: a charged call used it and it does not say so"));
        }
    }

    /// A quote, in any order, after all holds.
    pub fn quote(&mut self, quote: &Quote, index: &QuoteIndex<'_>) {
        self.counts.quotes = self.counts.quotes.saturating_add(1);
        if *index != quote.index() {
            self.find(format!("quote {}: its columns contradict its document", quote.id));
        }
        self.used(quote.id.0, quote.state == QuoteState::Consumed, quote.call);
    }

    /// An approval, in any order, after all holds.
    pub fn approval(&mut self, approval: &Approval, index: &ApprovalIndex<'_>) {
        self.counts.approvals = self.counts.approvals.saturating_add(1);
        let id = approval.id;
        if *index != approval.index() {
            self.find(format!("approval {id}: its columns contradict its document"));
        }
        let is_access = approval.kind == ApprovalKind::ToolAccess;
        if is_access != approval.args_hash.is_none() || is_access != approval.amount.is_none() {
            self.find(format!("approval {id}: its record contradicts itself"));
        }
        self.used(id.0, approval.state == ApprovalState::Consumed, approval.call);
    }

    /// What charged calls name and nobody has.
    pub(super) fn missing_authority(&mut self) {
        let uses = std::mem::take(&mut self.uses);
        for (id, used) in uses.0 {
            if let Some(call) = used.captured {
                self.find(format!(
                    "call {call}: the quote or approval {id} that it used is gone"
                ));
            }
        }
    }
}
