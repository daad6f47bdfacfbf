//! Calls, balances, usage and events in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use turnpike_core::ids::{CallId, RequestId, TenantId};
use turnpike_core::ledger::command::StoredOutcome;
use turnpike_core::ledger::hold::{Claim, ClaimKey};
use turnpike_core::ledger::paid_call::ANSWER_KEPT_MS;
use turnpike_core::ledger::{Account, AccountKey, AccountKind, Hold, HoldState, Payer, Transfer};
use turnpike_core::time::Timestamp;

use super::MemoryStore;
use crate::audit_log::{AuditFilter, AuditLog, AuditRecord};
use crate::error::StoreError;
use crate::records::{
    AuditRow, DriftRow, EntryFilter, EventRow, OpenCalls, UsageFilter, UsageGroup, UsageRow,
};
use crate::traits::{Calls, Scan, Statements};

fn limit(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[async_trait]
impl Calls for MemoryStore {
    async fn find_call(&self, tenant: TenantId, call: CallId) -> Result<Option<Hold>, StoreError> {
        Ok(self.state().books.holds.get(&(tenant, call)).cloned())
    }

    async fn find_outcome(
        &self,
        tenant: TenantId,
        call: CallId,
    ) -> Result<Option<StoredOutcome>, StoreError> {
        Ok(self.state().outcomes.get(&(tenant, call)).cloned())
    }

    async fn find_claim(&self, key: &ClaimKey) -> Result<Option<Claim>, StoreError> {
        Ok(self.state().books.claims.get(key).copied())
    }

    async fn list_open_calls(&self, open: OpenCalls) -> Result<Vec<(TenantId, Hold)>, StoreError> {
        let state = self.state();
        let mut found: Vec<(TenantId, Hold)> = state
            .books
            .holds
            .iter()
            .filter(|(_, hold)| {
                !hold.is_finished()
                    && (hold.deadline < open.deadline_before || open.of_instance == Some(hold.instance))
            })
            .map(|((tenant, _), hold)| (*tenant, hold.clone()))
            .collect();
        found.sort_by_key(|(_, hold)| hold.deadline);
        found.truncate(limit(open.limit));
        Ok(found)
    }

    async fn prune_outcomes(&self, now: Timestamp, most: u32) -> Result<u64, StoreError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let calls = &state.books.paid_calls;
        let wanted = |(tenant, call): &(TenantId, CallId)| {
            calls
                .get(&(*tenant, RequestId(call.0)))
                .is_some_and(|call| call.ended_at.is_none_or(|at| now.since(at) <= ANSWER_KEPT_MS))
        };
        let mut expired: Vec<&mut StoredOutcome> = state
            .outcomes
            .iter_mut()
            .filter(|(key, outcome)| outcome.expires_at < now && outcome.body.is_some() && !wanted(key))
            .map(|(_, outcome)| outcome)
            .collect();
        expired.sort_by_key(|outcome| outcome.expires_at);
        let mut pruned = 0;
        for outcome in expired.into_iter().take(limit(most)) {
            outcome.body = None;
            pruned += 1;
        }
        Ok(pruned)
    }

    async fn list_drifts(&self, tenant: TenantId, most: u32) -> Result<Vec<DriftRow>, StoreError> {
        let mut drifts = self.state().drifts.get(&tenant).cloned().unwrap_or_default();
        drifts.sort_by_key(|drift| std::cmp::Reverse(drift.created_at));
        drifts.truncate(limit(most));
        Ok(drifts)
    }
}

#[async_trait]
impl Statements for MemoryStore {
    async fn find_account(&self, key: &AccountKey) -> Result<Option<Account>, StoreError> {
        Ok(self.state().books.accounts.get(key).copied())
    }

    async fn list_transfers(
        &self,
        tenant: TenantId,
        filter: &EntryFilter,
    ) -> Result<Vec<Transfer>, StoreError> {
        let of_payer = |key: &AccountKey| match &filter.payer {
            None => true,
            Some(Payer::Pool) => key.kind == AccountKind::Pool,
            Some(Payer::EndUser(id)) => key.kind == AccountKind::EndUser && key.owner.as_ref() == Some(id),
        };
        let before = filter.before_seq.unwrap_or(i64::MAX);
        let state = self.state();
        let found = state.transfers_of(tenant).rev().filter(|transfer| {
            transfer.seq < before && (of_payer(&transfer.debit) || of_payer(&transfer.credit))
        });
        Ok(found.take(limit(filter.limit)).cloned().collect())
    }

    async fn usage(
        &self,
        tenant: TenantId,
        group: UsageGroup,
        filter: &UsageFilter,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let state = self.state();
        let mut groups: BTreeMap<String, UsageRow> = BTreeMap::new();
        for hold in state
            .holds_of(tenant)
            .into_iter()
            .filter(|hold| counts(hold, filter))
        {
            let name = match group {
                UsageGroup::Day => hold.created_at.day().to_string(),
                UsageGroup::Model => hold.subject.model.as_deref().unwrap_or_default().to_owned(),
                UsageGroup::Endpoint => format!("{}/{}", hold.subject.provider, hold.subject.endpoint),
                UsageGroup::Provider => hold.subject.provider.to_string(),
                UsageGroup::EndUser => hold.call.payer.as_owner().to_owned(),
            };
            let row = groups.entry(name.clone()).or_insert_with(|| UsageRow {
                group: name,
                ..UsageRow::default()
            });
            add_usage(row, hold);
        }
        Ok(groups.into_values().take(1000).collect())
    }

    async fn scan(&self, tenant: TenantId, scan: &mut Scan<'_>) -> Result<(), StoreError> {
        // Copied first: the sink may take its time, and may ask the store something else.
        match scan {
            Scan::Transfers(sink) => {
                let rows: Vec<Transfer> = self.state().transfers_of(tenant).cloned().collect();
                rows.into_iter().all(sink);
            }
            Scan::Calls(sink) => {
                let rows: Vec<Hold> = self.state().holds_of(tenant).into_iter().cloned().collect();
                rows.into_iter().all(sink);
            }
            Scan::Events(sink) => {
                let rows: Vec<EventRow> = self.state().events_of(tenant).collect();
                rows.into_iter().all(sink);
            }
            Scan::Audit(sink) => {
                let rows: Vec<AuditRecord> = self.state().audit_of(tenant).cloned().collect();
                rows.into_iter().all(sink);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl AuditLog for MemoryStore {
    async fn append_audit(&self, audit: &AuditRow) -> Result<(), StoreError> {
        self.state().append(audit);
        Ok(())
    }

    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let state = self.state();
        let wanted = |row: &&AuditRecord| {
            filter.before_seq.is_none_or(|before| row.seq < before)
                && (filter.actions.is_empty()
                    || filter.actions.iter().any(|start| row.action.starts_with(start)))
        };
        let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        let mut rows: Vec<AuditRecord> = state.audit_of(tenant).filter(wanted).cloned().collect();
        rows.reverse();
        rows.truncate(limit);
        Ok(rows)
    }
}

fn counts(hold: &Hold, filter: &UsageFilter) -> bool {
    let tagged = filter.attribution.as_ref().is_none_or(|(name, value)| {
        let tags = hold
            .subject
            .attribution
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok());
        tags.is_some_and(|tags: serde_json::Value| {
            tags.get(name).and_then(serde_json::Value::as_str) == Some(value)
        })
    });
    tagged
        && filter.from.is_none_or(|from| hold.created_at >= from)
        && filter.to.is_none_or(|to| hold.created_at < to)
        && filter
            .payer
            .as_ref()
            .is_none_or(|payer| hold.call.payer == *payer)
}

fn add_usage(row: &mut UsageRow, hold: &Hold) {
    let usage = hold.usage.unwrap_or_default();
    let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    match hold.state {
        HoldState::Held => {}
        HoldState::Captured => row.calls += 1,
        HoldState::Released | HoldState::Expired => row.failed_calls += 1,
    }
    let kept = hold.charged.saturating_sub_zero(hold.refunded);
    row.charged = row.charged.checked_add(kept).unwrap_or(row.charged);
    row.margin = row.margin.checked_add(hold.margin).unwrap_or(row.margin);
    row.prompt_tokens = row.prompt_tokens.saturating_add(tokens(usage.prompt_tokens()));
    row.completion_tokens = row
        .completion_tokens
        .saturating_add(tokens(usage.completion_tokens()));
}
