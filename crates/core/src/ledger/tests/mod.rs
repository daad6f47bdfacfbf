//! The ledger on a bench: a set of books in memory that loads what a command needs, keeps what it appended, and
//! is checked when it goes.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "the reference models count in plain numbers"
)]

mod auto_topups;
mod calls;
mod check;
mod disputes;
mod drift;
mod limits;
mod paid_calls;
mod paid_calls_random;
mod payouts;
mod quotes;
mod random;
mod records;
mod refunds;
mod reserves;
mod topups;
mod users;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::approval::Approval;
use super::audit::Auditor;
use super::command::*;
use super::drift::{DriftKey, DriftWindow};
use super::event::{Event, EventType};
use super::hold::{CallSubject, Claim, ClaimKey, LoopCount, LoopKey};
use super::paid_call::PaidCall;
use super::payout::{Payout, PayoutSettings};
use super::policy::EndUser;
use super::quote::Quote;
use super::token::{EndUserToken, TokenKind};
use super::topup::{AutoTopup, DisputeState, RefundState, Terms, Topup, TopupSource, TopupState};
use super::*;
use crate::ids::{
    ApprovalId, CallId, CommandId, ExternalUserId, PayoutId, QuoteId, RefundId, RequestId, TenantId, TokenId,
    TopupId,
};
use crate::money::{CreditsPerDollar, Micros};
use crate::pricing::Charge;
use crate::time::Timestamp;

const TENANT: TenantId = TenantId(Uuid::from_u128(0x1000));

struct Bench {
    books: Books,
    transfers: Vec<Transfer>,
    events: Vec<Event>,
    audits: Vec<AuditEntry>,
    refs: Vec<(Arc<str>, TopupId)>,
    note: Option<Arc<AuditNote>>,
    /// Granted by hand, which the clearing account gives too.
    granted: i64,
    next: u128,
    at: Timestamp,
}

/// Every row, for a comparison.
#[derive(Debug, PartialEq)]
struct Snapshot {
    tenants: HashMap<TenantId, TenantHead>,
    accounts: HashMap<AccountKey, Account>,
    end_users: HashMap<(TenantId, ExternalUserId), EndUser>,
    holds: HashMap<(TenantId, CallId), Hold>,
    claims: HashMap<ClaimKey, Claim>,
    loops: HashMap<LoopKey, LoopCount>,
    topups: HashMap<(TenantId, TopupId), Topup>,
    auto_topups: HashMap<TenantId, AutoTopup>,
    tokens: HashMap<(TenantId, TokenId), EndUserToken>,
    drift_windows: HashMap<DriftKey, DriftWindow>,
    payouts: HashMap<(TenantId, PayoutId), Payout>,
    payout_settings: HashMap<TenantId, PayoutSettings>,
    paid_calls: HashMap<(TenantId, RequestId), PaidCall>,
    quotes: HashMap<(TenantId, QuoteId), Quote>,
    approvals: HashMap<(TenantId, ApprovalId), Approval>,
    appended: [usize; 6],
}

fn rows<K: Clone + Eq + Hash, V: Clone>(table: &Table<K, V>) -> HashMap<K, V> {
    table
        .iter()
        .map(|(key, row)| (key.clone(), row.clone()))
        .collect()
}

fn load_all<K: Clone + Eq + Hash, V: Clone>(table: &mut Table<K, V>, keys: Vec<K>) {
    for key in keys {
        if !table.is_loaded(&key) {
            table.load(key, None);
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.audit(), Vec::<String>::new());
            assert_eq!(self.check(), Vec::<String>::new());
        }
    }
}

impl Bench {
    fn new() -> Self {
        let mut books = Books::default();
        books
            .tenants
            .load(TENANT, Some(TenantHead::new(CreditsPerDollar::default())));
        Self {
            books,
            transfers: Vec::new(),
            events: Vec::new(),
            audits: Vec::new(),
            refs: Vec::new(),
            note: None,
            granted: 0,
            next: 1,
            at: Timestamp::from_millis(1_790_000_000_000),
        }
    }

    fn id(&mut self) -> Uuid {
        self.next += 1;
        Uuid::from_u128(self.next)
    }

    fn run(&mut self, action: Action) -> Result<Outcome, Rejection> {
        let command = Command {
            id: CommandId(self.id()),
            tenant: TENANT,
            at: self.at,
            action,
            note: self.note.clone(),
        };
        let mut needs = Needs::default();
        command.needs(&mut needs);
        let books = &mut self.books;
        load_all(&mut books.accounts, needs.accounts);
        load_all(&mut books.end_users, needs.end_users);
        load_all(&mut books.holds, needs.holds);
        load_all(&mut books.claims, needs.claims);
        load_all(&mut books.loops, needs.loops);
        load_all(&mut books.topups, needs.topups);
        load_all(&mut books.auto_topups, needs.auto_topups);
        load_all(&mut books.tokens, needs.tokens);
        load_all(&mut books.drift_windows, needs.drift_windows);
        load_all(&mut books.payouts, needs.payouts);
        load_all(&mut books.payout_settings, needs.payout_settings);
        load_all(&mut books.paid_calls, needs.paid_calls);
        load_all(&mut books.quotes, needs.quotes);
        load_all(&mut books.approvals, needs.approvals);
        let before = self.snapshot();
        let result = apply(&mut self.books, &command);
        if result.is_err() {
            assert_eq!(before, self.snapshot(), "a refused command changed something");
        }
        self.transfers.append(&mut self.books.transfers.clone());
        self.audits.append(&mut self.books.audits.clone());
        self.events
            .extend(self.books.events.iter().map(|(_, event)| event.clone()));
        let refs = self.books.processor_refs.iter();
        self.refs
            .extend(refs.map(|(name, _, topup)| (name.clone(), *topup)));
        self.books.mark_stored();
        result
    }

    fn snapshot(&self) -> Snapshot {
        let books = &self.books;
        Snapshot {
            tenants: rows(&books.tenants),
            accounts: rows(&books.accounts),
            end_users: rows(&books.end_users),
            holds: rows(&books.holds),
            claims: rows(&books.claims),
            loops: rows(&books.loops),
            topups: rows(&books.topups),
            auto_topups: rows(&books.auto_topups),
            tokens: rows(&books.tokens),
            drift_windows: rows(&books.drift_windows),
            payouts: rows(&books.payouts),
            payout_settings: rows(&books.payout_settings),
            paid_calls: rows(&books.paid_calls),
            quotes: rows(&books.quotes),
            approvals: rows(&books.approvals),
            appended: [
                books.transfers.len(),
                books.events.len(),
                books.outcomes.len(),
                books.drifts.len(),
                books.audits.len(),
                books.processor_refs.len(),
            ],
        }
    }

    fn account_keys(&self) -> Vec<AccountKey> {
        let mut keys: Vec<AccountKey> = self.books.accounts.iter().map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    }

    fn account(&self, payer: &Payer) -> Account {
        let row = self.books.accounts.get(&payer.account(TENANT));
        row.copied().unwrap_or_default()
    }

    fn balance(&self, payer: &Payer) -> Balance {
        self.account(payer).balance()
    }

    /// Settled and held, as plain numbers.
    fn figures(&self, payer: &Payer) -> (i64, i64) {
        let account = self.account(payer);
        (account.posted.get(), account.held.get())
    }

    fn posted(&self, kind: AccountKind) -> i64 {
        let row = self.books.accounts.get(&AccountKey::of(TENANT, kind));
        row.map_or(0, |account| account.posted.get())
    }

    fn end_user(&self, name: &str) -> EndUser {
        let key = (TENANT, ExternalUserId::parse(name).unwrap());
        self.books.end_users.get(&key).unwrap().clone()
    }

    fn grant(&mut self, to: Payer, micros: i64) -> Result<Outcome, Rejection> {
        let result = self.run(Action::Grant(Grant {
            to,
            amount: Micros::new(micros),
            source: GrantSource::ManualGrant,
            reason: "test".into(),
            claim: None,
        }));
        if result.is_ok() {
            self.granted += micros;
        }
        result
    }

    fn new_hold(&mut self, payer: &Payer, micros: i64) -> NewHold {
        NewHold {
            call: CallId(self.id()),
            payer: payer.clone(),
            claim: None,
            loop_id: None,
            amount: Micros::new(micros),
            base: Micros::new(micros),
            subject: subject(),
            instance: Uuid::nil(),
            deadline: self.at.plus_millis(1000),
            token: None,
            authority: None,
        }
    }

    fn take(&mut self, hold: NewHold) -> Result<CallRef, Rejection> {
        let call = hold.reference();
        self.run(Action::Hold(Box::new(hold))).map(|_| call)
    }

    fn hold(&mut self, payer: &Payer, micros: i64) -> Result<CallRef, Rejection> {
        let hold = self.new_hold(payer, micros);
        self.take(hold)
    }

    fn capture(
        &mut self,
        call: &CallRef,
        base: i64,
        margin: i64,
        finish: bool,
    ) -> Result<Outcome, Rejection> {
        self.run(Action::Capture(Box::new(Capture {
            call: call.clone(),
            charge: charge(base, margin),
            usage: None,
            drift: None,
            outcome: finish.then(outcome),
        })))
    }

    /// Spends `micros` of a payer's balance by one call.
    fn spend(&mut self, payer: &Payer, micros: i64) {
        let call = self.hold(payer, micros).unwrap();
        self.capture(&call, micros, 0, true).unwrap();
    }

    fn count(&self, kind: EventType) -> usize {
        self.events.iter().filter(|event| event.kind == kind).count()
    }

    /// The payload of the last event of a kind.
    fn last(&self, kind: EventType) -> Value {
        let event = self.events.iter().rev().find(|event| event.kind == kind).unwrap();
        serde_json::from_str(&event.data).unwrap()
    }

    fn audit(&self) -> Vec<String> {
        let mut auditor = Auditor::new();
        self.transfers
            .iter()
            .for_each(|transfer| auditor.transfer(transfer));
        self.books
            .holds
            .iter()
            .for_each(|(_, hold)| auditor.hold(TENANT, hold));
        self.books
            .topups
            .iter()
            .for_each(|(_, topup)| auditor.topup(TENANT, topup));
        self.books
            .payouts
            .iter()
            .for_each(|(_, payout)| auditor.payout(payout, &payout.index()));
        for ((tenant, _), call) in self.books.paid_calls.iter() {
            let claim = self
                .books
                .claims
                .get(&PaidCall::claim(*tenant, &call.payment.key));
            auditor.paid_call(
                *tenant,
                call,
                &call.index(),
                claim.map(|claim| claim.subject),
                call.payment.signed.is_some(),
            );
        }
        for (_, quote) in self.books.quotes.iter() {
            auditor.quote(quote, &quote.index());
        }
        for (_, approval) in self.books.approvals.iter() {
            auditor.approval(approval, &approval.index());
        }
        for key in self.account_keys() {
            auditor.account(&key, self.books.accounts.get(&key).unwrap());
        }
        self.events.iter().for_each(|event| auditor.event(event.seq));
        self.audits
            .iter()
            .for_each(|row| auditor.audit_line(&row.line(), &row.hash));
        auditor.finish(self.books.tenants.get(&TENANT).unwrap()).findings
    }
}

fn user(name: &str) -> Payer {
    Payer::EndUser(ExternalUserId::parse(name).unwrap())
}

fn external(name: &str) -> ExternalUserId {
    ExternalUserId::parse(name).unwrap()
}

fn charge(base: i64, margin: i64) -> Charge {
    Charge {
        base: Micros::new(base),
        markup: Micros::new(margin),
        flat: Micros::ZERO,
        margin: Micros::new(margin),
        effective: Micros::new(base + margin),
    }
}

fn subject() -> CallSubject {
    CallSubject {
        provider: "sim".into(),
        endpoint: "chat".into(),
        model: Some("vendor-v4-flash".into()),
        streamed: false,
        credential: "key:1".into(),
        attribution: Some("{\"project\":\"x\"}".into()),
        price: "{}".into(),
    }
}

fn outcome() -> StoredOutcome {
    StoredOutcome {
        kind: OutcomeKind::Success,
        body: None,
        expires_at: Timestamp::from_millis(0),
    }
}

fn claim(key: &str, fingerprint: u8) -> NewClaim {
    NewClaim {
        key: ClaimKey {
            tenant: TENANT,
            scope: "s".into(),
            key: key.into(),
        },
        fingerprint: [fingerprint; 32],
    }
}
