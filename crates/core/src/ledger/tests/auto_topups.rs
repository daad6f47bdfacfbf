//! Automatic top-ups: when one begins, what the month allows, and what failures do.

use super::topups::{CREDITS, says};
use super::*;
use crate::ledger::topup::MAX_AUTO_FAILURES;

impl Bench {
    fn auto(&self) -> AutoTopup {
        self.books.auto_topups.get(&TENANT).unwrap().clone()
    }

    fn choose(&mut self, threshold: i64, monthly_cap: Option<i64>) {
        self.run(Action::SetAutoTopup(AutoTopupChoice {
            enabled: true,
            threshold: Micros::new(threshold),
            amount: Micros::new(CREDITS),
            monthly_cap: monthly_cap.map(Micros::new),
        }))
        .unwrap();
    }

    /// A pool with a saved payment method.
    fn with_method() -> Self {
        let mut bench = Self::new();
        let mut new = bench.new_topup(&Payer::Pool);
        new.saves_method = true;
        let topup = new.topup();
        bench.run(Action::OpenTopup(Box::new(new))).unwrap();
        let mut report = says(&topup, PaymentState::Paid);
        report.customer = Some("cus_1".into());
        report.method = Some("pm_1".into());
        bench.told(report).unwrap();
        bench
    }

    fn begin_auto(&mut self) -> Result<TopupRef, Rejection> {
        let mut new = self.new_topup(&Payer::Pool);
        new.source = TopupSource::AutoReload;
        let named = new.topup();
        self.run(Action::BeginAutoTopup(Box::new(new))).map(|_| named)
    }
}

#[test]
fn an_automatic_top_up_begins_below_the_threshold_and_one_at_a_time() {
    let due = |why| Err(Rejection::AutoTopupNotDue(why));
    let mut bench = Bench::new();
    assert_eq!(bench.begin_auto(), due("switched off"));
    bench.choose(11_000_001, None);
    assert_eq!(bench.begin_auto(), due("no saved payment method"));
    let mut bench = Bench::with_method();
    bench.choose(11_000_000, None);
    assert_eq!(bench.begin_auto(), due("the balance is above the threshold"));
    bench.choose(11_000_001, None);
    bench.freeze(&Payer::Pool, true).unwrap();
    assert_eq!(bench.begin_auto(), due("the balance is frozen"));
    bench.freeze(&Payer::Pool, false).unwrap();
    let first = bench.begin_auto().unwrap();
    assert_eq!(bench.begin_auto(), due("one is under way"));
    bench.told(says(&first, PaymentState::Paid)).unwrap();
    assert_eq!(bench.auto().running, None);
    assert_eq!(bench.auto().month.spent, Micros::new(CREDITS));
    assert_eq!(bench.begin_auto(), due("the balance is above the threshold"));
}

#[test]
fn a_repeated_automatic_top_up_begins_nothing() {
    let mut bench = Bench::with_method();
    bench.choose(i64::MAX, None);
    let mut new = bench.new_topup(&Payer::Pool);
    new.source = TopupSource::AutoReload;
    new.claim = Some(claim("auto", 1));
    let begin = |new: &NewTopup| Action::BeginAutoTopup(Box::new(new.clone()));
    bench.run(begin(&new)).unwrap();
    assert_eq!(bench.run(begin(&new)), Ok(Outcome::Existing(new.id.0)));
    bench.told(says(&new.topup(), PaymentState::Paid)).unwrap();
    assert_eq!(bench.run(begin(&new)), Ok(Outcome::Existing(new.id.0)));
    assert_eq!(bench.auto().running, None);
    assert_eq!(bench.auto().month.spent, Micros::new(CREDITS));
}

#[test]
fn the_ceiling_of_the_month_counts_what_is_paid_and_not_what_failed() {
    let mut bench = Bench::with_method();
    bench.choose(i64::MAX, Some(2 * CREDITS));
    let late = bench.begin_auto().unwrap();
    bench.told(says(&late, PaymentState::Failed)).unwrap();
    assert_eq!(bench.auto().month.spent, Micros::ZERO);
    let paid = bench.begin_auto().unwrap();
    bench.told(says(&paid, PaymentState::Paid)).unwrap();
    // Told to have failed and paid after all, it counts again.
    bench.told(says(&late, PaymentState::Paid)).unwrap();
    let reached = Err(Rejection::AutoTopupNotDue("the ceiling of the month is reached"));
    assert_eq!(bench.begin_auto(), reached);
    bench.at = bench.at.next_month();
    bench.begin_auto().unwrap();
}

#[test]
fn three_failures_switch_automatic_top_ups_off_and_a_success_counts_anew() {
    let mut bench = Bench::with_method();
    bench.choose(i64::MAX, None);
    let fail = |bench: &mut Bench| {
        let topup = bench.begin_auto().unwrap();
        bench.told(says(&topup, PaymentState::Failed)).unwrap();
        bench.told(says(&topup, PaymentState::Failed)).unwrap();
    };
    fail(&mut bench);
    fail(&mut bench);
    let good = bench.begin_auto().unwrap();
    bench.told(says(&good, PaymentState::Paid)).unwrap();
    assert_eq!(bench.auto().failures, 0);
    for _ in 0..MAX_AUTO_FAILURES {
        assert!(bench.auto().enabled);
        fail(&mut bench);
    }
    assert!(!bench.auto().enabled && bench.auto().stopped.is_some());
    assert_eq!(
        bench.begin_auto(),
        Err(Rejection::AutoTopupNotDue("switched off"))
    );
    bench.choose(i64::MAX, None);
    assert_eq!((bench.auto().failures, bench.auto().stopped.clone()), (0, None));
    bench.begin_auto().unwrap();
}
