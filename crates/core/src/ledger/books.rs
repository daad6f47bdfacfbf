//! The rows a batch works on, in memory.
//!
//! A store loads the rows that the batch's commands name, [`super::apply`] changes them, and the store writes
//! the difference. Each command is staged: rejected, it leaves every row as it was.
//!
//! INVARIANT: rows change only through `Table::put` and `Table::remove`, which remember what was there.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::account::{Account, AccountKey, AccountKind, TenantStatus};
use super::approval::Approval;
use super::command::{AuditEntry, Drift, StoredOutcome};
use super::drift::{DriftKey, DriftWindow};
use super::event::Event;
use super::hold::{Claim, ClaimKey, Hold, LoopCount, LoopKey};
use super::paid_call::PaidCall;
use super::payout::{Payout, PayoutSettings};
use super::policy::EndUser;
use super::quote::Quote;
use super::token::EndUserToken;
use super::topup::{AutoTopup, Topup};
use super::transfer::{GENESIS, Transfer};
use crate::ids::{
    ApprovalId, CallId, ExternalUserId, PayoutId, QuoteId, RequestId, TenantId, TokenId, TopupId,
};
use crate::money::{CreditsPerDollar, Micros};
use crate::time::Timestamp;

/// A workspace as the ledger knows it: its state, and the heads of its chain and of its event sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantHead {
    /// Only an active workspace spends.
    pub status: TenantStatus,
    /// How credits are shown.
    pub credits_per_dollar: CreditsPerDollar,
    /// The last transfer's position.
    pub transfer_seq: i64,
    /// The last transfer's chain hash.
    pub chain: [u8; 32],
    /// The last event's position.
    pub event_seq: i64,
    /// The last position in the audit log.
    pub audit_seq: i64,
    /// The chain hash of the last row of the audit log.
    pub audit_chain: [u8; 32],
    /// Below these settled balances the tenant is told.
    pub low_balance: LowBalance,
}

/// Settled balances below which a `credits.balance.low` event is written, once per crossing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowBalance {
    /// Of the pool.
    pub pool: Option<Micros>,
    /// Of each end user.
    pub end_user: Option<Micros>,
}

impl LowBalance {
    /// The threshold of an account; `None` = nobody wants to know.
    pub const fn of(&self, kind: AccountKind) -> Option<Micros> {
        match kind {
            AccountKind::Pool => self.pool,
            AccountKind::EndUser => self.end_user,
            AccountKind::Margin
            | AccountKind::ProviderCost
            | AccountKind::Funding
            | AccountKind::Bonus
            | AccountKind::Fees
            | AccountKind::Receivable
            | AccountKind::OperatorLoss
            | AccountKind::Payouts
            | AccountKind::Payer => None,
        }
    }
}

impl TenantHead {
    /// A workspace without a past.
    pub const fn new(credits_per_dollar: CreditsPerDollar) -> Self {
        Self {
            status: TenantStatus::Active,
            credits_per_dollar,
            transfer_seq: 0,
            chain: GENESIS,
            event_seq: 0,
            audit_seq: 0,
            audit_chain: GENESIS,
            low_balance: LowBalance {
                pool: None,
                end_user: None,
            },
        }
    }
}

#[derive(Clone, Debug)]
struct Row<V> {
    value: Option<V>,
    stored: bool,
}

/// How a changed row has to be written.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<'a, K, V> {
    /// The database does not have it.
    Insert(&'a K, &'a V),
    /// The database has an older one.
    Update(&'a K, &'a V),
    /// The database has it and must not.
    Delete(&'a K),
}

/// The loaded rows of one kind. A row can be known to be absent.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    rows: HashMap<K, Row<V>>,
    changed: HashSet<K>,
    undo: Vec<(K, Option<Row<V>>)>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            rows: HashMap::new(),
            changed: HashSet::new(),
            undo: Vec::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Table<K, V> {
    /// Takes over what the database says about `key`; `None` = it has no such row.
    pub fn load(&mut self, key: K, value: Option<V>) {
        let stored = value.is_some();
        self.rows.insert(key, Row { value, stored });
    }

    /// Whether the database was asked about `key`.
    pub fn is_loaded(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    /// The row, if there is one.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key).and_then(|row| row.value.as_ref())
    }

    /// Sets the row.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.set(key, Some(value));
    }

    /// Removes the row.
    pub(super) fn remove(&mut self, key: K) {
        self.set(key, None);
    }

    fn set(&mut self, key: K, value: Option<V>) {
        let before = self.rows.get(&key).cloned();
        let stored = before.as_ref().is_some_and(|row| row.stored);
        self.rows.insert(key.clone(), Row { value, stored });
        self.undo.push((key, before));
    }

    fn accept(&mut self) {
        self.changed.extend(self.undo.drain(..).map(|(key, _)| key));
    }

    fn roll_back(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(row) => self.rows.insert(key, row),
                None => self.rows.remove(&key),
            };
        }
    }

    /// What has to be written.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_, K, V>> {
        self.changed.iter().filter_map(|key| {
            let row = self.rows.get(key)?;
            match (&row.value, row.stored) {
                (Some(value), true) => Some(Change::Update(key, value)),
                (Some(value), false) => Some(Change::Insert(key, value)),
                (None, true) => Some(Change::Delete(key)),
                (None, false) => None,
            }
        })
    }

    /// The changes were committed: the rows are now what the database has.
    fn mark_stored(&mut self) {
        for key in self.changed.drain() {
            if let Some(row) = self.rows.get_mut(&key) {
                row.stored = row.value.is_some();
            }
        }
    }

    /// Forgets the rows of `keys`; the next batch that needs one loads it again.
    pub fn forget<'a>(&mut self, keys: impl IntoIterator<Item = &'a K>)
    where
        K: 'a,
    {
        for key in keys {
            self.rows.remove(key);
        }
    }

    /// Forgets every row.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.changed.clear();
    }

    /// How many rows are known.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row is known.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Every row that is there.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows
            .iter()
            .filter_map(|(key, row)| Some((key, row.value.as_ref()?)))
    }
}

/// A call whose metered cost is not what the provider reported, to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriftRecord {
    /// Whose call.
    pub tenant: TenantId,
    /// The call, as its transfers name it.
    pub call: CallId,
    /// Who was asked.
    pub provider: Arc<str>,
    /// The provider's name of the model.
    pub model: Option<Arc<str>>,
    /// What the call was charged.
    pub charged: Micros,
    /// When it was recorded.
    pub at: Timestamp,
    /// The difference.
    pub drift: Drift,
}

/// All rows of a batch.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Workspaces.
    pub tenants: Table<TenantId, TenantHead>,
    /// Accounts; absent = zero.
    pub accounts: Table<AccountKey, Account>,
    /// End users.
    pub end_users: Table<(TenantId, ExternalUserId), EndUser>,
    /// Holds.
    pub holds: Table<(TenantId, CallId), Hold>,
    /// Idempotency claims.
    pub claims: Table<ClaimKey, Claim>,
    /// Loop counters; absent = zero.
    pub loops: Table<LoopKey, LoopCount>,
    /// Top-ups.
    pub topups: Table<(TenantId, TopupId), Topup>,
    /// Choices about automatic top-ups.
    pub auto_topups: Table<TenantId, AutoTopup>,
    /// End users' tokens.
    pub tokens: Table<(TenantId, TokenId), EndUserToken>,
    /// Windows of usage drift.
    pub drift_windows: Table<DriftKey, DriftWindow>,
    /// Payouts.
    pub payouts: Table<(TenantId, PayoutId), Payout>,
    /// Where workspaces are paid out to.
    pub payout_settings: Table<TenantId, PayoutSettings>,
    /// Calls that wallets pay for by themselves.
    pub paid_calls: Table<(TenantId, RequestId), PaidCall>,
    /// Quotes.
    pub quotes: Table<(TenantId, QuoteId), Quote>,
    /// Approvals.
    pub approvals: Table<(TenantId, ApprovalId), Approval>,
    /// Transfers to append.
    pub transfers: Vec<Transfer>,
    /// Events to append, with their tenant.
    pub events: Vec<(TenantId, Event)>,
    /// Stored answers to append.
    pub outcomes: Vec<(TenantId, CallId, StoredOutcome)>,
    /// Drift records to append.
    pub drifts: Vec<DriftRecord>,
    /// Audit rows to append.
    pub audits: Vec<AuditEntry>,
    /// Names by which a processor's events find a top-up, to add where they are not known.
    pub processor_refs: Vec<(Arc<str>, TenantId, TopupId)>,
}

/// Does the same to every table.
macro_rules! each_table {
    ($books:expr, $does:ident) => {
        $books.tenants.$does();
        $books.accounts.$does();
        $books.end_users.$does();
        $books.holds.$does();
        $books.claims.$does();
        $books.loops.$does();
        $books.topups.$does();
        $books.auto_topups.$does();
        $books.tokens.$does();
        $books.drift_windows.$does();
        $books.payouts.$does();
        $books.payout_settings.$does();
        $books.paid_calls.$does();
        $books.quotes.$does();
        $books.approvals.$does();
    };
}

/// How many rows each list had.
#[derive(Clone, Copy)]
struct Marks {
    transfers: usize,
    events: usize,
    outcomes: usize,
    drifts: usize,
    audits: usize,
    processor_refs: usize,
}

impl Books {
    /// Runs one command so that it happens wholly or not at all.
    pub(super) fn staged<T, E>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let marks = Marks {
            transfers: self.transfers.len(),
            events: self.events.len(),
            outcomes: self.outcomes.len(),
            drifts: self.drifts.len(),
            audits: self.audits.len(),
            processor_refs: self.processor_refs.len(),
        };
        let result = run(self);
        if result.is_ok() {
            each_table!(self, accept);
        } else {
            each_table!(self, roll_back);
            self.transfers.truncate(marks.transfers);
            self.events.truncate(marks.events);
            self.outcomes.truncate(marks.outcomes);
            self.drifts.truncate(marks.drifts);
            self.audits.truncate(marks.audits);
            self.processor_refs.truncate(marks.processor_refs);
        }
        result
    }

    /// The changes were committed: rows stay as what the database has, appended rows are gone.
    pub fn mark_stored(&mut self) {
        each_table!(self, mark_stored);
        self.transfers.clear();
        self.events.clear();
        self.outcomes.clear();
        self.drifts.clear();
        self.audits.clear();
        self.processor_refs.clear();
    }
}
