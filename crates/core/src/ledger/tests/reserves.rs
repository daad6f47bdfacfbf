//! Margin that may be taken back is not paid out: of streams that run, and of credits that are disputed and spent.

use proptest::prelude::*;

use super::topups::CENTS;
use super::*;
use crate::ledger::payout::{NewPayout, PayoutChange, StablecoinAddress};

const MARGIN: i64 = 20_000_000;
/// What a payment gave: credits and bonus.
const DUE: i64 = 11_000_000;

impl Bench {
    /// A workspace that earned [`MARGIN`] and is paid out to an address.
    fn payable() -> Self {
        let mut bench = Self::new();
        let address = StablecoinAddress {
            address: "0x1".into(),
            network: "eip155:8453".into(),
        };
        bench
            .run(Action::ChangePayouts(PayoutChange::Stablecoin(address)))
            .unwrap();
        let call = bench.stream(MARGIN, MARGIN);
        bench.ends(&call, MARGIN, MARGIN).unwrap();
        bench
    }

    /// A stream that begins: charged `amount`, of which so much is margin.
    fn stream(&mut self, amount: i64, margin: i64) -> CallRef {
        self.grant(user("payer"), amount).unwrap();
        let call = self.hold(&user("payer"), amount).unwrap();
        self.capture(&call, amount - margin, margin, false).unwrap();
        call
    }

    fn ends(&mut self, call: &CallRef, amount: i64, margin: i64) -> Result<Outcome, Rejection> {
        self.run(Action::FinishStream(Box::new(FinishStream {
            call: call.clone(),
            charge: charge(amount - margin, margin),
            refund_kind: "stream_true_up",
            usage: None,
            drift: None,
            failure: None,
            outcome: outcome(),
        })))
    }

    /// Asks for a payout, of all there is without an amount; how much was paid out.
    fn pay(&mut self, amount: Option<i64>) -> Result<i64, Rejection> {
        let new = NewPayout {
            id: PayoutId(self.id()),
            amount: amount.map(Micros::new),
            min: Micros::new(1),
            processor: None,
            credential: "key:1".into(),
            claim: None,
        };
        let done = self.run(Action::OpenPayout(Box::new(new)))?;
        let Outcome::Payout { payout, .. } = done else {
            panic!("{done:?}")
        };
        Ok(payout.amount.get())
    }

    fn margin(&self) -> Account {
        let row = self
            .books
            .accounts
            .get(&AccountKey::of(TENANT, AccountKind::Margin));
        row.copied().unwrap_or_default()
    }

    /// Credits of a payment that are spent.
    fn spent_topup(&mut self) -> TopupRef {
        let topup = self.paid(&Payer::Pool);
        let left = self.account(&Payer::Pool).available().get();
        self.spend(&Payer::Pool, left);
        topup
    }
}

#[test]
fn the_margin_of_a_stream_that_runs_is_not_paid_out() {
    let mut bench = Bench::payable();
    let (first, second) = (bench.stream(3_000_000, 3_000_000), bench.stream(900, 500));
    assert_eq!(bench.margin().held.get(), 3_000_500);
    let refused = bench.pay(Some(MARGIN + 1));
    assert_eq!(
        refused,
        Err(Rejection::InsufficientCredits {
            required: Micros::new(MARGIN + 1),
            available: Micros::new(MARGIN),
        })
    );
    assert_eq!(bench.pay(None), Ok(MARGIN));
    assert_eq!(bench.audit(), Vec::<String>::new());
    // Nothing of it was used: all goes back, and the margin is not below zero for it.
    for _ in 0..2 {
        bench.ends(&first, 0, 0).unwrap();
        assert_eq!(
            (bench.margin().posted.get(), bench.margin().held.get()),
            (500, 500)
        );
    }
    // What is over is earned.
    bench.run(Action::Expire(second)).unwrap();
    assert_eq!(bench.margin().held, Micros::ZERO);
    assert_eq!(bench.pay(None), Ok(500));
    assert_eq!(bench.audit(), Vec::<String>::new());
}

#[test]
fn what_an_open_dispute_may_take_and_does_not_hold_is_not_paid_out() {
    for (end, left) in [(DisputeState::Won, MARGIN), (DisputeState::Lost, MARGIN - DUE)] {
        let mut bench = Bench::payable();
        let topup = bench.spent_topup();
        bench.dispute(&topup, "dp_1", CENTS, DisputeState::Warning);
        assert_eq!(bench.margin().held, Micros::ZERO);
        bench.dispute(&topup, "dp_1", CENTS, DisputeState::Open);
        assert_eq!(bench.margin().held.get(), DUE);
        let refused = bench.pay(Some(MARGIN - DUE + 1));
        assert!(
            matches!(refused, Err(Rejection::InsufficientCredits { .. })),
            "{refused:?}"
        );
        assert_eq!(bench.audit(), Vec::<String>::new());
        bench.dispute(&topup, "dp_1", CENTS, end);
        assert_eq!(bench.margin().held, Micros::ZERO);
        assert_eq!(bench.pay(None), Ok(left), "{end}");
        assert_eq!(bench.audit(), Vec::<String>::new());
    }
}

#[test]
fn a_dispute_that_holds_its_credits_sets_no_margin_aside() {
    let mut bench = Bench::payable();
    let topup = bench.paid(&Payer::Pool);
    bench.dispute(&topup, "dp_1", CENTS, DisputeState::Open);
    assert_eq!(bench.margin().held, Micros::ZERO);
    assert_eq!(bench.pay(None), Ok(MARGIN));
}

#[test]
fn the_audit_finds_margin_that_is_not_set_aside() {
    let mut bench = Bench::payable();
    bench.stream(900, 500);
    let (margin, row) = (AccountKey::of(TENANT, AccountKind::Margin), bench.margin());
    let lost = Account {
        held: Micros::ZERO,
        ..row
    };
    bench.books.accounts.put(margin.clone(), lost);
    let found = bench.audit();
    bench.books.accounts.put(margin, row);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("account margin: 0 held"), "{found:?}");
}

#[test]
fn the_audit_finds_a_payout_from_elsewhere_or_of_nothing() {
    let mut bench = Bench::payable();
    bench.pay(None).unwrap();
    let entry = bench.transfers.last().unwrap().clone();
    let findings = |change: &dyn Fn(&mut Transfer)| {
        let mut wrong = entry.clone();
        change(&mut wrong);
        let mut auditor = Auditor::new();
        auditor.transfer(&wrong);
        let found = auditor.finish(bench.books.tenants.get(&TENANT).unwrap()).findings;
        let about = |text: &&String| text.contains(": a payout");
        found.iter().filter(about).count()
    };
    let of = |kind| AccountKey::of(TENANT, kind);
    assert_eq!(findings(&|_| {}), 0);
    assert_eq!(findings(&|wrong| wrong.credit = of(AccountKind::Fees)), 1);
    assert_eq!(findings(&|wrong| wrong.debit = of(AccountKind::Bonus)), 1);
    assert_eq!(findings(&|wrong| wrong.cause = Cause::PayoutReturned), 1);
    assert_eq!(findings(&|wrong| wrong.debit_after = Micros::new(-1)), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_sequence_of_streams_disputes_and_payouts_makes_the_margin_negative(
        steps in prop::collection::vec((0_usize..10, 0_usize..4, 0_i64..4_000_000), 20..60),
    ) {
        use DisputeState::{Lost, Open, Won};
        let mut bench = Bench::payable();
        let topups = [bench.spent_topup(), bench.paid(&Payer::Pool), bench.spent_topup()];
        let mut streams: Vec<(CallRef, i64)> = Vec::new();
        for (what, which, amount) in steps {
            let known = streams.iter().rev().nth(which).cloned();
            match (what, known) {
                (0..=2, _) => streams.push((bench.stream(amount + 1, amount), amount)),
                (3, _) => { drop(bench.pay(Some(amount))); }
                (4 | 5, _) => {
                    let owed = -bench.posted(AccountKind::Receivable);
                    if let Ok(paid) = bench.pay(None) {
                        prop_assert!(paid > 0);
                        prop_assert_eq!(bench.margin().posted.get(), bench.margin().held.get() + owed);
                    }
                }
                (6 | 7, Some((call, margin))) => {
                    let kept = amount.min(margin);
                    drop(bench.ends(&call, kept, kept));
                }
                (8, Some((call, _))) => { drop(bench.run(Action::Expire(call))); }
                (_, _) => {
                    let topup = topups[which % 3].clone();
                    let state = [Open, Lost, Won, Open][which];
                    bench.dispute(&topup, &format!("dp_{which}"), 1 + amount / 10_000, state);
                }
            }
            prop_assert!(!bench.margin().posted.is_negative());
            prop_assert_eq!(bench.check(), Vec::<String>::new());
            prop_assert_eq!(bench.audit(), Vec::<String>::new());
        }
    }
}
