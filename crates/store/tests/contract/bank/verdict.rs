//! What the books have at the end of a bank's day, held against what its clients were told.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use turnpike_core::ids::{CallId, CommandId, TenantId, TopupId, TransferId};
use turnpike_core::ledger::command::{MoveReceipt, NewClaim, PaymentState, event_claim};
use turnpike_core::ledger::policy::OpenItems;
use turnpike_core::ledger::topup::{DisputeState, RefundState, Topup};
use turnpike_core::ledger::{AccountStatus, Action, Cause, Command, Hold, HoldState, Outcome, Transfer};
use turnpike_store::{EndUserFilter, Scan, TopupFilter};

use super::board::Board;
use super::{Entry, Said};
use crate::world::{World, all_transfers};

/// More transfers than any one command makes.
const MOST_TRANSFERS: u32 = 48;

#[derive(Default)]
struct Books {
    transfers: Vec<Transfer>,
    calls: HashMap<CallId, Hold>,
    topups: HashMap<TopupId, Topup>,
    /// How many transfers each command made.
    made: HashMap<CommandId, usize>,
}

impl Books {
    async fn read(world: &World, board: &Board) -> Self {
        let mut books = Self::default();
        for tenant in board.tenants {
            books.transfers.extend(all_transfers(&*world.store, tenant).await);
            let mut sink = |hold: Hold| books.calls.insert(hold.call.call, hold).is_none();
            world
                .store
                .scan(tenant, &mut Scan::Calls(&mut sink))
                .await
                .unwrap();
            let all = TopupFilter {
                payer: None,
                before: None,
                limit: u32::MAX,
            };
            for topup in world.store.list_topups(tenant, &all).await.unwrap() {
                books.topups.insert(topup.id, topup);
            }
        }
        books
    }

    /// Finds the command of each transfer; there is none without one, and none twice.
    fn attribute(&mut self, entries: &[Entry]) {
        let asked: HashMap<TransferId, &Entry> = entries
            .iter()
            .flat_map(|entry| {
                let id = |ordinal| TransferId::derive(entry.command.at, entry.command.id, ordinal);
                (0..MOST_TRANSFERS).map(move |ordinal| (id(ordinal), entry))
            })
            .collect();
        let mut seen = BTreeSet::new();
        for transfer in &self.transfers {
            assert!(seen.insert(transfer.id), "{transfer:?} is there twice");
            let entry = asked.get(&transfer.id);
            let entry = entry.unwrap_or_else(|| panic!("nobody asked for {transfer:?}"));
            assert_eq!(entry.command.tenant, transfer.debit.tenant);
            *self.made.entry(entry.command.id).or_default() += 1;
        }
    }

    fn made(&self, command: &Command) -> usize {
        self.made.get(&command.id).copied().unwrap_or_default()
    }

    /// Whether something is there that only `command` can have made.
    async fn happened(&self, world: &World, command: &Command) -> bool {
        let tenant = command.tenant;
        let made_row = match &command.action {
            Action::Hold(hold) => self.calls.contains_key(&hold.call),
            Action::OpenTopup(new) => self.topups.contains_key(&new.id),
            Action::OpenPayout(new) => world.store.find_payout(tenant, new.id).await.unwrap().is_some(),
            Action::MintToken(new) => world.store.find_token(tenant, new.id).await.unwrap().is_some(),
            _ => false,
        };
        made_row || self.made(command) > 0
    }

    /// What was answered is what is there.
    async fn check_done(&self, world: &World, command: &Command, outcome: &Outcome) {
        let made = self.made(command);
        match (outcome, &command.action) {
            (Outcome::Granted { transfer, .. } | Outcome::Moved(MoveReceipt { transfer, .. }), _) => {
                assert_eq!(
                    (made, *transfer),
                    (1, TransferId::derive(command.at, command.id, 0)),
                    "{command:?}"
                );
            }
            (Outcome::Existing(subject), action) => {
                assert!(!self.happened(world, command).await, "{command:?}");
                if let Some(claim) = claim(action) {
                    let taken = world.store.find_claim(&claim.key).await.unwrap();
                    // A released call has given its key back.
                    let freed = matches!(action, Action::Hold(_));
                    assert!(
                        freed || taken.is_some_and(|taken| taken.subject == *subject),
                        "{command:?}"
                    );
                }
            }
            (Outcome::Captured { charged, .. }, Action::Capture(capture)) => {
                let call = &self.calls[&capture.call.call];
                assert_eq!(
                    (call.state, call.charged),
                    (HoldState::Captured, *charged),
                    "{command:?}"
                );
            }
            (Outcome::Finished { refunded, .. }, Action::FinishStream(finish)) => {
                let call = &self.calls[&finish.call.call];
                assert!(call.is_finished() && call.refunded == *refunded, "{command:?}");
            }
            (Outcome::Released(_), Action::Release(release)) => {
                assert_eq!(
                    self.calls[&release.call.call].state,
                    HoldState::Released,
                    "{command:?}"
                );
            }
            (Outcome::Topup(topup), action) => {
                let found = &self.topups[&topup.id];
                assert_eq!((&found.terms, &found.owner), (&topup.terms, &topup.owner));
                if let Action::TopupReport(report) = action {
                    let paid = report.state == PaymentState::Paid;
                    assert!(!paid || found.state.is_credited(), "{command:?}: {found:?}");
                    if let Some(event) = &report.event {
                        let handled = world
                            .store
                            .find_claim(&event_claim(command.tenant, event))
                            .await
                            .unwrap();
                        assert_eq!(handled.map(|claim| claim.subject), Some(topup.id.0));
                    }
                }
            }
            (Outcome::Held(_) | Outcome::Minted, _)
            | (Outcome::Payout { changed: true, .. }, Action::OpenPayout(_)) => {
                assert!(self.happened(world, command).await, "{command:?}");
            }
            _ => {}
        }
    }
}

fn claim(action: &Action) -> Option<&NewClaim> {
    match action {
        Action::Grant(grant) => grant.claim.as_ref(),
        Action::Hold(hold) => hold.claim.as_ref(),
        Action::OpenTopup(new) => new.claim.as_ref(),
        _ => None,
    }
}

fn is_noted(outcome: &Outcome) -> bool {
    !matches!(
        outcome,
        Outcome::Existing(_)
            | Outcome::Revoked(0)
            | Outcome::Frozen(false)
            | Outcome::Retired { already: true, .. }
            | Outcome::Payout { changed: false, .. }
            | Outcome::PayoutSettings { changed: false, .. }
    )
}

/// Checks everything; says how much there was.
pub(super) async fn check(world: &World, board: &Board, entries: &[Entry], seed: u64) -> String {
    let mut books = Books::read(world, board).await;
    books.attribute(entries);
    let (mut done, mut nothing, mut unknown, mut happened) = (0, 0, 0, 0);
    let mut notes = (0, 0);
    for entry in entries {
        let command = &entry.command;
        match &entry.said {
            Said::Done(outcome) => {
                done += 1;
                notes.0 += usize::from(command.note.is_some() && is_noted(outcome));
                books.check_done(world, command, outcome).await;
            }
            Said::Nothing => {
                nothing += 1;
                assert!(
                    !books.happened(world, command).await,
                    "seed {seed}: refused and there: {command:?}"
                );
            }
            Said::Unknown => {
                unknown += 1;
                notes.1 += usize::from(command.note.is_some());
                happened += usize::from(books.happened(world, command).await);
            }
        }
    }
    let counted = world
        .sql("SELECT CAST(COUNT(*) AS TEXT) FROM audit_log WHERE action = 'bank'")
        .await;
    let counted: usize = counted.unwrap().unwrap().parse().unwrap();
    assert!(
        (notes.0..=notes.0 + notes.1).contains(&counted),
        "{counted} notes of {notes:?}"
    );
    check_rows_have_a_cause(&books, entries);
    check_topups(world, &books, entries).await;
    let retired = check_users(world, board, &books, entries).await;
    let credited = books
        .topups
        .values()
        .filter(|topup| topup.state.is_credited())
        .count();
    let idle = [done, nothing, unknown, happened, credited, retired].contains(&0);
    assert!(!idle, "seed {seed}: a dull day shows little");
    let refunds = books.topups.values().flat_map(|topup| &topup.refunds);
    let disputes = books.topups.values().flat_map(|topup| &topup.disputes);
    format!(
        "{} commands: {done} done, {nothing} refused, {unknown} unknown (of which {happened} certainly happened); {} \
         transfers, {} calls, {} top-ups of which {credited} credited, {} refunded in part or whole, {} disputes lost; \
         {retired} retired; {counted} notes",
        entries.len(),
        books.transfers.len(),
        books.calls.len(),
        books.topups.len(),
        refunds
            .filter(|refund| refund.state == RefundState::Succeeded)
            .count(),
        disputes
            .filter(|dispute| dispute.state == DisputeState::Lost)
            .count(),
    )
}

/// Every call and every top-up was begun by a command that succeeded, or whose answer was lost.
fn check_rows_have_a_cause(books: &Books, entries: &[Entry]) {
    let (mut calls, mut topups, mut granted) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    for entry in entries
        .iter()
        .filter(|entry| !matches!(entry.said, Said::Nothing))
    {
        match &entry.command.action {
            Action::Hold(hold) => drop(calls.insert(hold.call)),
            Action::OpenTopup(new) => drop(topups.insert(new.id)),
            Action::Grant(grant) if books.made(&entry.command) > 0 => {
                if let Some(claim) = &grant.claim {
                    *granted.entry(&claim.key).or_insert(0) += 1;
                }
            }
            _ => {}
        }
    }
    assert!(books.calls.keys().all(|call| calls.contains(call)));
    assert!(books.topups.keys().all(|topup| topups.contains(topup)));
    assert!(
        granted.values().all(|count| *count == 1),
        "a key stands for two grants"
    );
}

/// A top-up is credited once or not at all, and only when it was told to be paid.
async fn check_topups(world: &World, books: &Books, entries: &[Entry]) {
    let mut told = BTreeSet::new();
    for entry in entries
        .iter()
        .filter(|entry| !matches!(entry.said, Said::Nothing))
    {
        if let Action::TopupReport(report) = &entry.command.action
            && report.state == PaymentState::Paid
        {
            told.insert(report.topup.topup);
        }
    }
    let mut credits: HashMap<&str, usize> = HashMap::new();
    for transfer in books
        .transfers
        .iter()
        .filter(|transfer| transfer.cause == Cause::Topup)
    {
        *credits.entry(&transfer.reference).or_default() += 1;
    }
    for topup in books.topups.values() {
        let count = credits.remove(&*topup.session).unwrap_or_default();
        assert_eq!(count, usize::from(topup.state.is_credited()), "{topup:?}");
        assert!(
            !topup.state.is_credited() || told.contains(&topup.id),
            "{topup:?}"
        );
        assert_eq!(topup.review, None, "{topup:?}");
    }
    assert!(credits.is_empty(), "credited without a top-up: {credits:?}");
    let unsettled = world.store.list_unsettled_topups(None, u32::MAX).await.unwrap();
    let unsettled: BTreeSet<_> = unsettled.into_iter().map(|(_, topup)| topup.id).collect();
    let expected = books.topups.values().filter(|topup| topup.is_unsettled());
    assert_eq!(unsettled, expected.map(|topup| topup.id).collect());
}

/// What each end user has open, counted anew from its top-ups.
fn open_items(
    books: &Books,
    owner: &turnpike_core::ids::ExternalUserId,
    tenant: TenantId,
    entries: &BTreeMap<TopupId, TenantId>,
) -> OpenItems {
    let mut open = OpenItems::default();
    for topup in books.topups.values() {
        if topup.owner.as_ref() != Some(owner) || entries.get(&topup.id) != Some(&tenant) {
            continue;
        }
        let count = |matching: usize| i64::try_from(matching).unwrap();
        open.topups += i64::from(topup.state.is_open());
        open.refunds += count(
            topup
                .refunds
                .iter()
                .filter(|refund| refund.state == RefundState::Pending)
                .count(),
        );
        let running = |state| matches!(state, DisputeState::Open | DisputeState::Warning);
        open.disputes += count(
            topup
                .disputes
                .iter()
                .filter(|dispute| running(dispute.state))
                .count(),
        );
    }
    open
}

/// Who was retired was told so once, and has nothing; says how many.
async fn check_users(world: &World, board: &Board, books: &Books, entries: &[Entry]) -> usize {
    let (mut said, mut asked, mut tenants) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    for entry in entries {
        let tenant = entry.command.tenant;
        match (&entry.command.action, &entry.said) {
            (Action::Retire(retire), Said::Done(Outcome::Retired { already: false, .. })) => {
                *said.entry((tenant, retire.end_user.clone())).or_insert(0) += 1;
            }
            (Action::Retire(retire), Said::Unknown) => drop(asked.insert((tenant, retire.end_user.clone()))),
            (Action::OpenTopup(new), _) => drop(tenants.insert(new.id, tenant)),
            _ => {}
        }
    }
    assert!(said.values().all(|count| *count == 1), "retired twice: {said:?}");
    let mut retired = 0;
    for tenant in board.tenants {
        let all = EndUserFilter {
            limit: u32::MAX,
            ..EndUserFilter::default()
        };
        for (user, account) in world.store.list_end_users(tenant, &all).await.unwrap() {
            assert_eq!(
                user.open,
                open_items(books, &user.id, tenant, &tenants),
                "{user:?}"
            );
            let key = (tenant, user.id.clone());
            let told = said.contains_key(&key);
            assert!(user.retired || !told, "{user:?}");
            assert!(!user.retired || told || asked.contains(&key), "{user:?}");
            if user.retired {
                retired += 1;
                assert_eq!(account.status, AccountStatus::Retired, "{user:?}");
                assert!(
                    account.posted.is_zero() && account.held.is_zero(),
                    "{user:?} has {account:?}"
                );
                assert_eq!((account.open_calls, user.open.topups), (0, 0), "{user:?}");
            }
        }
    }
    retired
}
