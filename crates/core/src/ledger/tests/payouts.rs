//! Payouts: what may be paid out, that it goes out once and comes back once, and where it goes.

use proptest::prelude::*;

use super::*;
use crate::ledger::payout::{
    AccountReport, Destination, NewPayout, PayoutChange, PayoutMethod, PayoutProgress, PayoutReport,
    PayoutState, StablecoinAddress,
};

const MIN: i64 = 1_000_000;

fn address() -> StablecoinAddress {
    StablecoinAddress {
        address: "0x1".into(),
        network: "eip155:8453".into(),
    }
}

fn account(payable: bool) -> PayoutChange {
    PayoutChange::Account(AccountReport {
        account: "acct_1".into(),
        details_submitted: true,
        payable,
        disabled_reason: None,
    })
}

impl Bench {
    /// A workspace that earned this much.
    fn earned(margin: i64) -> Self {
        let mut bench = Self::new();
        bench.earn(margin);
        bench
    }

    fn earn(&mut self, margin: i64) {
        self.grant(user("alice"), margin).unwrap();
        let call = self.hold(&user("alice"), margin).unwrap();
        self.capture(&call, 0, margin, true).unwrap();
    }

    fn change(&mut self, change: PayoutChange) -> Result<bool, Rejection> {
        let done = self.run(Action::ChangePayouts(change))?;
        let Outcome::PayoutSettings { changed, .. } = done else {
            panic!("{done:?}")
        };
        Ok(changed)
    }

    fn connect(&mut self, name: &str, ended: u32) -> Result<bool, Rejection> {
        self.change(PayoutChange::Connect {
            processor: "stripe".into(),
            account: name.into(),
            ended,
        })
    }

    fn new_payout(&mut self, amount: Option<i64>) -> NewPayout {
        NewPayout {
            id: PayoutId(self.id()),
            amount: amount.map(Micros::new),
            min: Micros::new(MIN),
            processor: Some("stripe".into()),
            credential: "key:1".into(),
            claim: None,
        }
    }

    fn pay_out(&mut self, amount: Option<i64>) -> Result<Payout, Rejection> {
        let new = self.new_payout(amount);
        self.open(new)
    }

    fn open(&mut self, new: NewPayout) -> Result<Payout, Rejection> {
        let done = self.run(Action::OpenPayout(Box::new(new)))?;
        let Outcome::Payout {
            payout,
            changed: true,
        } = done
        else {
            panic!("{done:?}")
        };
        Ok(*payout)
    }

    /// Where it stands then, and whether that is news.
    fn tell(&mut self, payout: PayoutId, progress: PayoutProgress) -> (PayoutState, bool) {
        let report = PayoutReport { payout, progress };
        standing(self.run(Action::ReportPayout(report)).unwrap())
    }

    fn money(&self) -> (i64, i64) {
        (
            self.posted(AccountKind::Margin),
            self.posted(AccountKind::Payouts),
        )
    }
}

/// Where a payout stands then, and whether that is news.
fn standing(done: Outcome) -> (PayoutState, bool) {
    let Outcome::Payout { payout, changed } = done else {
        panic!("{done:?}")
    };
    (payout.state, changed)
}

fn failed() -> PayoutProgress {
    PayoutProgress::Failed("no".into())
}

fn paid() -> PayoutProgress {
    PayoutProgress::Paid("tr_1".into())
}

#[test]
fn margin_goes_out_once_and_comes_back_once() {
    let mut bench = Bench::earned(5_000_000);
    bench.change(PayoutChange::Stablecoin(address())).unwrap();
    let first = bench.pay_out(Some(2_000_001)).unwrap();
    assert_eq!(bench.money(), (2_999_999, 2_000_001));
    assert_eq!(bench.tell(first.id, failed()), (PayoutState::Failed, true));
    assert_eq!(bench.money(), (5_000_000, 0));
    for late in [
        failed(),
        paid(),
        PayoutProgress::Begun,
        PayoutProgress::Reversed("x".into()),
    ] {
        assert_eq!(bench.tell(first.id, late), (PayoutState::Failed, false));
    }
    let second = bench.pay_out(None).unwrap();
    assert_eq!(
        bench.tell(second.id, PayoutProgress::Begun),
        (PayoutState::InTransit, true)
    );
    assert_eq!(bench.tell(second.id, paid()), (PayoutState::Paid, true));
    assert_eq!(bench.tell(second.id, failed()), (PayoutState::Paid, false));
    assert_eq!(bench.money(), (0, 5_000_000));
    let reversed = PayoutProgress::Reversed("came back".into());
    assert_eq!(bench.tell(second.id, reversed), (PayoutState::Failed, true));
    assert_eq!(bench.money(), (5_000_000, 0));
}

#[test]
fn only_what_was_earned_is_paid_out() {
    let mut bench = Bench::earned(1_500_000);
    assert_eq!(bench.pay_out(None), Err(Rejection::NoPayoutDestination));
    bench.change(PayoutChange::Stablecoin(address())).unwrap();
    let missing = bench.pay_out(Some(1_500_001));
    assert!(
        matches!(missing, Err(Rejection::InsufficientCredits { .. })),
        "{missing:?}"
    );
    for small in [1, MIN - 1] {
        let refused = bench.pay_out(Some(small));
        assert!(
            matches!(refused, Err(Rejection::BelowMinimum { .. })),
            "{refused:?}"
        );
    }
    for none in [0, -1] {
        assert_eq!(bench.pay_out(Some(none)), Err(Rejection::NotPositive));
    }
    bench.pay_out(None).unwrap();
    let nothing = bench.pay_out(None);
    assert!(
        matches!(nothing, Err(Rejection::BelowMinimum { .. })),
        "{nothing:?}"
    );
}

#[test]
fn what_the_workspace_owes_is_not_paid_out() {
    let mut bench = Bench::earned(20_000_000);
    bench.change(PayoutChange::Stablecoin(address())).unwrap();
    let topup = bench.paid(&Payer::Pool);
    let left = bench.account(&Payer::Pool).available().get();
    bench.spend(&Payer::Pool, left);
    bench
        .run(Action::DisputeReport(Box::new(DisputeReport {
            topup,
            event: None,
            reference: "dp_1".into(),
            cents: 1000,
            state: DisputeState::Lost,
            reason: "fraudulent".into(),
            due_by: None,
        })))
        .unwrap();
    let owed = -bench.posted(AccountKind::Receivable);
    assert!(owed > 0);
    let payout = bench.pay_out(None).unwrap();
    assert_eq!(payout.amount.get(), 20_000_000 - owed);
}

#[test]
fn a_workspace_that_is_not_active_is_not_paid_out() {
    for status in [
        TenantStatus::Suspended,
        TenantStatus::Frozen,
        TenantStatus::Closed,
    ] {
        let mut bench = Bench::earned(5_000_000);
        bench.change(PayoutChange::Stablecoin(address())).unwrap();
        let under_way = bench.pay_out(Some(MIN)).unwrap();
        let mut head = *bench.books.tenants.get(&TENANT).unwrap();
        head.status = status;
        bench.books.tenants.load(TENANT, Some(head));
        let refused = Rejection::TenantNotActive(status);
        assert_eq!(bench.pay_out(None), Err(refused.clone()));
        let change = PayoutChange::Stablecoin(address());
        assert_eq!(bench.change(change), Err(refused.clone()));
        assert_eq!(bench.connect("acct_1", 0), Err(refused));
        // What happened outside is told of all the same.
        assert_eq!(bench.tell(under_way.id, paid()), (PayoutState::Paid, true));
    }
}

#[test]
fn a_processor_is_paid_whole_cents() {
    let mut bench = Bench::earned(1_239_999);
    assert_eq!(bench.connect("acct_1", 0), Ok(true));
    bench.change(account(true)).unwrap();
    assert_eq!(bench.pay_out(Some(1_000_001)), Err(Rejection::NotWholeCents));
    let payout = bench.pay_out(None).unwrap();
    assert_eq!(payout.amount.get(), 1_230_000);
    assert_eq!(payout.destination.method(), PayoutMethod::Processor);
    let refused = bench.run(Action::CancelPayout(payout.id));
    assert!(matches!(refused, Err(Rejection::NotCancelable(_))), "{refused:?}");
}

#[test]
fn a_payout_keeps_its_destination_and_the_next_one_has_another() {
    let mut bench = Bench::earned(9_000_000);
    bench.connect("acct_1", 0).unwrap();
    // Not introduced yet: there is nowhere to go.
    assert_eq!(bench.pay_out(None), Err(Rejection::NoPayoutDestination));
    assert_eq!(bench.change(account(true)), Ok(true));
    assert_eq!(bench.change(account(true)), Ok(false));
    bench.change(PayoutChange::Stablecoin(address())).unwrap();
    let first = bench.pay_out(Some(MIN)).unwrap();
    assert_eq!(bench.change(PayoutChange::Disconnect), Ok(true));
    assert_eq!(bench.change(PayoutChange::Disconnect), Ok(false));
    assert_eq!(bench.tell(first.id, paid()), (PayoutState::Paid, true));
    let second = bench.pay_out(Some(MIN)).unwrap();
    assert_eq!(second.destination, Destination::Stablecoin(address()));
    // What is told of an account that was let go is nobody's.
    assert_eq!(bench.change(account(true)), Ok(false));
    assert_eq!(bench.connect("acct_1", 0), Err(Rejection::ConnectionChanged));
    assert_eq!(bench.connect("acct_2", 1), Ok(true));
    assert_eq!(bench.connect("acct_3", 1), Ok(false));
    // A service with another processor does not pay to this one's accounts.
    let mut other = bench.new_payout(None);
    other.processor = Some("builtin".into());
    assert_eq!(
        bench.open(other).unwrap().destination.method(),
        PayoutMethod::Stablecoin
    );
}

#[test]
fn a_payout_is_withdrawn_before_it_is_sent() {
    let mut bench = Bench::earned(5_000_000);
    bench.change(PayoutChange::Stablecoin(address())).unwrap();
    let first = bench.pay_out(None).unwrap();
    for changes in [true, false] {
        let done = bench.run(Action::CancelPayout(first.id)).unwrap();
        assert_eq!(standing(done), (PayoutState::Canceled, changes));
        assert_eq!(bench.money(), (5_000_000, 0));
    }
    let second = bench.pay_out(None).unwrap();
    bench.tell(second.id, PayoutProgress::Begun);
    assert!(bench.run(Action::CancelPayout(second.id)).is_err());
    assert_eq!(bench.money(), (0, 5_000_000));
    let nobody = PayoutId(Uuid::nil());
    assert_eq!(
        bench.run(Action::CancelPayout(nobody)),
        Err(Rejection::UnknownPayout)
    );
}

#[test]
fn a_repeat_of_a_key_opens_nothing() {
    let mut bench = Bench::earned(5_000_000);
    bench.change(PayoutChange::Stablecoin(address())).unwrap();
    let mut new = bench.new_payout(Some(MIN));
    new.claim = Some(claim("k", 1));
    let first = bench.open(new.clone()).unwrap();
    new.id = PayoutId(bench.id());
    let again = bench.run(Action::OpenPayout(Box::new(new.clone())));
    assert_eq!(again, Ok(Outcome::Existing(first.id.0)));
    new.claim = Some(claim("k", 2));
    assert_eq!(bench.open(new), Err(Rejection::ClaimConflict));
    assert_eq!(bench.money(), (4_000_000, 1_000_000));
}

#[test]
fn only_what_changes_something_is_in_the_audit_log() {
    let mut bench = Bench::earned(5_000_000);
    bench.note = Some(Arc::new(AuditNote {
        actor: "member:x".into(),
        action: "payout",
        target: "t".into(),
        before: None,
        after: None,
        origin: "test".into(),
    }));
    bench.change(PayoutChange::Stablecoin(address())).unwrap();
    bench.change(PayoutChange::Stablecoin(address())).unwrap();
    bench.change(PayoutChange::Disconnect).unwrap();
    let payout = bench.pay_out(None).unwrap();
    bench.tell(payout.id, paid());
    bench.tell(payout.id, failed());
    assert_eq!(bench.audits.len(), 3);
    let after = bench.audits.last().unwrap().note.after.as_deref().unwrap();
    assert!(after.contains("\"paid\"") && after.contains("tr_1"), "{after}");
}

#[test]
fn the_audit_finds_a_payout_that_contradicts_its_entries() {
    let mut bench = Bench::earned(5_000_000);
    bench.change(PayoutChange::Stablecoin(address())).unwrap();
    let payout = bench.pay_out(None).unwrap();
    let findings = |change: &dyn Fn(&mut Payout)| {
        let mut auditor = Auditor::new();
        bench
            .transfers
            .iter()
            .for_each(|transfer| auditor.transfer(transfer));
        let mut row = payout.clone();
        change(&mut row);
        auditor.payout(&row, &row.index());
        let found = auditor.finish(bench.books.tenants.get(&TENANT).unwrap()).findings;
        found
            .into_iter()
            .filter(|found| found.contains("payout "))
            .count()
    };
    assert_eq!(findings(&|_| {}), 0);
    assert_eq!(findings(&|row| row.state = PayoutState::Failed), 1);
    assert_eq!(findings(&|row| row.amount = Micros::new(1)), 1);
    // Its entries then belong to no row.
    assert_eq!(findings(&|row| row.id = PayoutId(Uuid::nil())), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn reports_in_any_order_and_number_keep_the_books(
        steps in prop::collection::vec((0_usize..9, 0_usize..4, 1_i64..3_000_000), 20..60),
    ) {
        let mut bench = Bench::earned(10_000_000);
        bench.change(PayoutChange::Stablecoin(address())).unwrap();
        let mut opened: Vec<PayoutId> = Vec::new();
        let (mut in_all, mut ended) = (10_000_000, 0);
        for (what, which, amount) in steps {
            let known = opened.iter().rev().nth(which).copied();
            match (what, known) {
                (0 | 1, _) => {
                    let amount = (what == 0).then_some(amount);
                    opened.extend(bench.pay_out(amount).ok().map(|payout| payout.id));
                }
                (2, _) => {
                    bench.earn(amount);
                    in_all += amount;
                }
                (3, _) => {
                    let connected = bench.connect("acct_1", ended).unwrap();
                    prop_assert!(bench.change(account(true)).unwrap() || !connected);
                }
                (4, _) => ended += u32::from(bench.change(PayoutChange::Disconnect).unwrap()),
                (5, Some(id)) => { bench.tell(id, paid()); }
                (6, Some(id)) => { bench.tell(id, [failed(), PayoutProgress::Begun][which % 2].clone()); }
                (7, Some(id)) => { bench.tell(id, PayoutProgress::Reversed("x".into())); }
                (_, Some(id)) => { drop(bench.run(Action::CancelPayout(id))); }
                (_, None) => {}
            }
            let (margin, out) = bench.money();
            prop_assert!(margin >= 0 && out >= 0);
            prop_assert_eq!(margin + out, in_all);
            prop_assert_eq!(bench.check(), Vec::<String>::new());
        }
        prop_assert_eq!(bench.audit(), Vec::<String>::new());
    }
}
