//! A store without a database, for tests and simulation: the same rules on plain maps.
//!
//! Every command is a batch of its own. Nothing survives the process.

mod agents;
mod directory;
mod drifts;
mod invitations;
mod keys;
mod paid_calls;
mod payouts;
mod people;
mod quotes;
mod reads;
mod sessions;
mod topups;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use turnpike_core::ids::{CallId, KeyId, TenantId, TopupId};
use turnpike_core::ledger::audit::{AuditReport, Auditor};
use turnpike_core::ledger::audit_log::AuditLine;
use turnpike_core::ledger::command::StoredOutcome;
use turnpike_core::ledger::event::Event;
use turnpike_core::ledger::paid_call::PaidCall;
use turnpike_core::ledger::{Books, Command, Hold, Needs, Outcome, Transfer, apply};
use turnpike_core::time::Timestamp;

use crate::audit_log::AuditRecord;
use crate::error::{StoreError, SubmitError};
use crate::invitations::Invitation;
use crate::records::{
    ApiKey, AuditRow, DriftRow, EventRow, ImportedTools, Member, PriceRow, SigningKeyRow, Tenant,
};
use crate::traits::{Catalogue, Ledger, Upkeep};

/// Everything in memory.
#[derive(Default)]
pub struct MemoryStore(Mutex<State>);

#[derive(Default)]
struct State {
    /// Its tables hold every row there is; nothing is ever forgotten.
    books: Books,
    tenants: BTreeMap<TenantId, Tenant>,
    transfers: BTreeMap<TenantId, Vec<Transfer>>,
    events: BTreeMap<TenantId, Vec<Event>>,
    outcomes: BTreeMap<(TenantId, CallId), StoredOutcome>,
    drifts: BTreeMap<TenantId, Vec<DriftRow>>,
    members: BTreeMap<(TenantId, String), Member>,
    keys: BTreeMap<(TenantId, KeyId), ApiKey>,
    replaced_keys: BTreeSet<KeyId>,
    prices: BTreeMap<(String, String), PriceRow>,
    price_changes: i64,
    imported_tools: BTreeMap<String, ImportedTools>,
    tools_changes: i64,
    audit_log: Vec<(TenantId, AuditRecord)>,
    processor_refs: BTreeMap<String, (TenantId, TopupId)>,
    signing_keys: Vec<SigningKeyRow>,
    drift_imports: drifts::Imports,
    invitations: Vec<Invitation>,
    people: people::Table,
    sessions: sessions::SessionRows,
    agents: agents::AgentRows,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

macro_rules! load_absent {
    ($books:expr, $needs:expr, $($table:ident),+) => {
        $(for key in $needs.$table {
            if !$books.$table.is_loaded(&key) {
                $books.$table.load(key, None);
            }
        })+
    };
}

#[async_trait]
impl Ledger for MemoryStore {
    async fn submit(&self, command: Command) -> Result<Outcome, SubmitError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let mut needs = Needs::default();
        command.needs(&mut needs);
        load_absent!(
            state.books,
            needs,
            tenants,
            accounts,
            end_users,
            holds,
            claims,
            loops,
            topups,
            auto_topups,
            tokens,
            drift_windows,
            payouts,
            payout_settings,
            paid_calls,
            quotes,
            approvals
        );
        let outcome = apply(&mut state.books, &command)?;
        for transfer in &state.books.transfers {
            state
                .transfers
                .entry(transfer.debit.tenant)
                .or_default()
                .push(transfer.clone());
        }
        for (tenant, event) in &state.books.events {
            state.events.entry(*tenant).or_default().push(event.clone());
        }
        for (tenant, call, outcome) in &state.books.outcomes {
            state.outcomes.insert((*tenant, *call), outcome.clone());
        }
        for record in &state.books.drifts {
            state.drifts.entry(record.tenant).or_default().push(DriftRow {
                call: record.call,
                kind: record.drift.kind,
                provider: record.provider.to_string(),
                detail: record.drift.detail.to_string(),
                charged: record.charged,
                loss: record.drift.loss,
                created_at: record.at,
            });
        }
        for entry in &state.books.audits {
            let record = recorded(&entry.line(), entry.hash);
            state.audit_log.push((entry.tenant, record));
        }
        for (reference, tenant, topup) in &state.books.processor_refs {
            state
                .processor_refs
                .entry(reference.to_string())
                .or_insert((*tenant, *topup));
        }
        state.books.mark_stored();
        Ok(outcome)
    }
}

/// A row of the audit log that was appended with `hash`.
fn recorded(line: &AuditLine<'_>, hash: [u8; 32]) -> AuditRecord {
    AuditRecord {
        seq: line.seq,
        id: line.id,
        at: line.at,
        actor: line.actor.to_owned(),
        action: line.action.to_owned(),
        target: line.target.to_owned(),
        before: line.before.map(str::to_owned),
        after: line.after.map(str::to_owned),
        origin: line.origin.to_owned(),
        hash: hash.to_vec(),
    }
}

impl State {
    /// A workspace's audit log, oldest first.
    fn audit_of(&self, tenant: TenantId) -> impl Iterator<Item = &AuditRecord> {
        self.audit_log
            .iter()
            .filter(move |(of, _)| *of == tenant)
            .map(|(_, record)| record)
    }

    /// Appends to the audit log of a workspace and moves its head.
    fn append(&mut self, audit: &AuditRow) {
        let Some(mut head) = self.books.tenants.get(&audit.tenant).copied() else {
            return;
        };
        head.audit_seq += 1;
        let line = audit.line(head.audit_seq);
        head.audit_chain = line.chained(&head.audit_chain);
        self.audit_log
            .push((audit.tenant, recorded(&line, head.audit_chain)));
        self.books.tenants.load(audit.tenant, Some(head));
    }

    fn holds_of(&self, tenant: TenantId) -> Vec<&Hold> {
        let mut holds: Vec<&Hold> = self
            .books
            .holds
            .iter()
            .filter(|((of, _), _)| *of == tenant)
            .map(|(_, hold)| hold)
            .collect();
        holds.sort_by_key(|hold| hold.call.call);
        holds
    }

    fn events_of(&self, tenant: TenantId) -> impl DoubleEndedIterator<Item = EventRow> {
        self.events
            .get(&tenant)
            .into_iter()
            .flatten()
            .map(|event| EventRow {
                seq: event.seq,
                id: event.id,
                kind: event.kind,
                created_at: event.created_at,
                data: event.data.to_string(),
            })
    }

    fn transfers_of(&self, tenant: TenantId) -> impl DoubleEndedIterator<Item = &Transfer> {
        self.transfers.get(&tenant).into_iter().flatten()
    }
}

#[async_trait]
impl Catalogue for MemoryStore {
    async fn price_revision(&self) -> Result<i64, StoreError> {
        Ok(self.state().price_changes.saturating_add(1))
    }

    async fn list_prices(&self) -> Result<Vec<PriceRow>, StoreError> {
        Ok(self.state().prices.values().cloned().collect())
    }

    async fn put_prices(&self, prices: &[PriceRow], _at: Timestamp) -> Result<(), StoreError> {
        let mut state = self.state();
        state.price_changes = state.price_changes.saturating_add(1);
        for price in prices {
            state
                .prices
                .insert((price.provider.clone(), price.model.clone()), price.clone());
        }
        Ok(())
    }

    async fn tools_revision(&self) -> Result<i64, StoreError> {
        Ok(self.state().tools_changes.saturating_add(1))
    }

    async fn list_imported_tools(&self) -> Result<Vec<ImportedTools>, StoreError> {
        Ok(self.state().imported_tools.values().cloned().collect())
    }

    async fn put_imported_tools(&self, tools: &ImportedTools, read: i64) -> Result<bool, StoreError> {
        let mut state = self.state();
        if state.tools_changes.saturating_add(1) != read {
            return Ok(false);
        }
        state.tools_changes = read;
        state.imported_tools.insert(tools.provider.clone(), tools.clone());
        Ok(true)
    }

    async fn remove_imported_tools(&self, provider: &str) -> Result<bool, StoreError> {
        let mut state = self.state();
        let removed = state.imported_tools.remove(provider).is_some();
        if removed {
            state.tools_changes = state.tools_changes.saturating_add(1);
        }
        Ok(removed)
    }
}

#[async_trait]
impl Upkeep for MemoryStore {
    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn audit(
        &self,
        tenant: TenantId,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<AuditReport, StoreError> {
        let state = self.state();
        let head = state.books.tenants.get(&tenant).copied();
        let head = head.ok_or_else(|| StoreError::Corrupt("the tenant has no row".to_owned()))?;
        let mut auditor = Auditor::new();
        state
            .transfers_of(tenant)
            .for_each(|transfer| auditor.transfer(transfer));
        state
            .holds_of(tenant)
            .into_iter()
            .for_each(|hold| auditor.hold(tenant, hold));
        let topups = state.books.topups.iter();
        topups
            .filter(|((of, _), _)| *of == tenant)
            .for_each(|(_, topup)| auditor.topup(tenant, topup));
        let payouts = state.books.payouts.iter();
        payouts
            .filter(|((of, _), _)| *of == tenant)
            .for_each(|(_, payout)| auditor.payout(payout, &payout.index()));
        for ((_, _), call) in state.books.paid_calls.iter().filter(|((of, _), _)| *of == tenant) {
            let claim = state
                .books
                .claims
                .get(&PaidCall::claim(tenant, &call.payment.key));
            auditor.paid_call(
                tenant,
                call,
                &call.index(),
                claim.map(|claim| claim.subject),
                call.payment.signed.is_some(),
            );
        }
        let quotes = state.books.quotes.iter();
        quotes
            .filter(|((of, _), _)| *of == tenant)
            .for_each(|(_, quote)| auditor.quote(quote, &quote.index()));
        let approvals = state.books.approvals.iter();
        approvals
            .filter(|((of, _), _)| *of == tenant)
            .for_each(|(_, approval)| auditor.approval(approval, &approval.index()));
        let mut accounts: Vec<_> = state
            .books
            .accounts
            .iter()
            .filter(|(key, _)| key.tenant == tenant)
            .collect();
        accounts.sort_by_key(|(key, _)| *key);
        for (key, account) in accounts {
            auditor.account(key, account);
        }
        state.events_of(tenant).for_each(|event| auditor.event(event.seq));
        for record in state.audit_of(tenant) {
            auditor.audit_line(&record.line(tenant), &record.hash);
        }
        progress(u64::try_from(state.transfers_of(tenant).count()).unwrap_or(u64::MAX));
        Ok(auditor.finish(&head))
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn close(&self) {}
}
