//! Top-ups: what each report does in each state.

use super::*;
use TopupState::{Completed, Expired, Failed, Open, Processing, Refunded};

/// 10.61 USD for 10 USD, and 1 USD on top for a pool.
pub(super) const CENTS: i64 = 1061;
pub(super) const CREDITS: i64 = 10_000_000;

pub(super) fn terms(bonus: i64) -> Terms {
    Terms {
        credits: Micros::new(CREDITS),
        fee: Micros::new(610_000),
        total: Micros::new(CENTS * 10_000),
        bonus: Micros::new(bonus),
        quote: "{}".into(),
    }
}

pub(super) fn says(topup: &TopupRef, state: PaymentState) -> TopupReport {
    TopupReport {
        topup: topup.clone(),
        event: None,
        state,
        payment: (state == PaymentState::Paid).then(|| "pi_1".into()),
        cents: CENTS,
        mismatch: None,
        customer: None,
        method: None,
        failure: None,
    }
}

impl Bench {
    pub(super) fn new_topup(&mut self, payer: &Payer) -> NewTopup {
        let id = self.id();
        let pool = *payer == Payer::Pool;
        NewTopup {
            id: TopupId(id),
            session: format!("cs_{}", id.simple()).into(),
            owner: payer.external_user_id().cloned(),
            source: TopupSource::CheckoutSession,
            terms: terms(if pool { 1_000_000 } else { 0 }),
            metadata: Some("{\"order\":\"7\"}".into()),
            success_url: None,
            cancel_url: None,
            saves_method: false,
            credential: "key:1".into(),
            expires_at: self.at.plus_millis(1_800_000),
            claim: None,
        }
    }

    pub(super) fn open_topup(&mut self, payer: &Payer) -> TopupRef {
        let new = self.new_topup(payer);
        let named = new.topup();
        self.run(Action::OpenTopup(Box::new(new))).unwrap();
        named
    }

    pub(super) fn told(&mut self, report: TopupReport) -> Result<Outcome, Rejection> {
        self.run(Action::TopupReport(Box::new(report)))
    }

    /// A top-up that was paid and credited.
    pub(super) fn paid(&mut self, payer: &Payer) -> TopupRef {
        let topup = self.open_topup(payer);
        self.told(says(&topup, PaymentState::Paid)).unwrap();
        topup
    }

    pub(super) fn topup(&self, named: &TopupRef) -> Topup {
        self.books.topups.get(&(TENANT, named.topup)).unwrap().clone()
    }
}

/// A top-up of alice in `state`.
fn in_state(bench: &mut Bench, state: TopupState) -> TopupRef {
    let topup = bench.open_topup(&user("alice"));
    let reports: &[PaymentState] = match state {
        Open => &[],
        Processing => &[PaymentState::Processing],
        Completed | Refunded => &[PaymentState::Paid],
        Expired => &[PaymentState::Expired],
        Failed => &[PaymentState::Failed],
    };
    for report in reports {
        bench.told(says(&topup, *report)).unwrap();
    }
    if state == Refunded {
        bench.refund_told(&topup, "re_1", CENTS, RefundState::Succeeded);
    }
    assert_eq!(bench.topup(&topup).state, state);
    topup
}

// Fault matrix 108, 109, 117
#[test]
fn every_report_in_every_state_leads_where_the_diagram_says() {
    let reports = [
        PaymentState::Processing,
        PaymentState::Paid,
        PaymentState::Failed,
        PaymentState::Expired,
    ];
    for (state, after) in [
        (Open, [Processing, Completed, Failed, Expired]),
        (Processing, [Processing, Completed, Failed, Processing]),
        (Completed, [Completed; 4]),
        (Refunded, [Refunded; 4]),
        (Expired, [Expired, Completed, Expired, Expired]),
        (Failed, [Failed, Completed, Failed, Failed]),
    ] {
        for (report, after) in reports.into_iter().zip(after) {
            let mut bench = Bench::new();
            let topup = in_state(&mut bench, state);
            bench.events.clear();
            let head = bench.books.tenants.get(&TENANT).unwrap().event_seq;
            bench.told(says(&topup, report)).unwrap();
            assert_eq!(bench.topup(&topup).state, after, "{state} and {report:?}");
            let news = state != after;
            let credited = usize::from(news && after == Completed);
            let failed = usize::from(news && matches!(after, Failed | Expired));
            assert_eq!(
                bench.count(EventType::TopupCompleted),
                credited,
                "{state} and {report:?}"
            );
            assert_eq!(
                bench.count(EventType::TopupFailed),
                failed,
                "{state} and {report:?}"
            );
            let balance = if after == Completed { CREDITS } else { 0 };
            assert_eq!(
                bench.figures(&user("alice")),
                (balance, 0),
                "{state} and {report:?}"
            );
            assert!(bench.events.iter().all(|event| event.seq > head));
        }
    }
}

// Fault matrix 108
#[test]
fn a_payment_told_of_many_times_is_credited_once() {
    let mut bench = Bench::new();
    let topup = bench.open_topup(&Payer::Pool);
    for event in ["evt_1", "evt_1", "evt_2", "evt_3", "evt_1"] {
        let mut report = says(&topup, PaymentState::Paid);
        report.event = Some(event.into());
        bench.told(report).unwrap();
    }
    bench.told(says(&topup, PaymentState::Paid)).unwrap();
    assert_eq!(bench.figures(&Payer::Pool), (11_000_000, 0));
    assert_eq!(bench.count(EventType::TopupCompleted), 1);
    assert_eq!(bench.count(EventType::BalanceChanged), 2);
    assert_eq!(bench.topup(&topup).review, None);
    let told = bench.last(EventType::TopupCompleted);
    for (member, value) in [
        ("externalUserId", Value::Null),
        ("amountUsd", "10".into()),
        ("bonusUsd", "1".into()),
        ("feeUsd", "0.61".into()),
        ("balanceUsd", "11".into()),
        ("amountCredits", "10000".into()),
        ("balanceCredits", "11000".into()),
        ("source", "checkout_session".into()),
        ("sessionId", (*bench.topup(&topup).session).into()),
        ("reference", (*bench.topup(&topup).session).into()),
        ("metadata", serde_json::json!({"order": "7"})),
        ("occurredAt", bench.at.to_string().into()),
    ] {
        assert_eq!(told[member], value, "{member}");
    }
}

// Fault matrix 112
#[test]
fn another_amount_credits_nothing_and_the_right_one_later_does() {
    for (cents, reason) in [(CENTS - 1, None), (CENTS + 1, None), (CENTS, Some("eur"))] {
        let mut bench = Bench::new();
        let topup = bench.open_topup(&user("alice"));
        let mut wrong = says(&topup, PaymentState::Paid);
        wrong.cents = cents;
        wrong.mismatch = reason.map(Into::into);
        bench.told(wrong.clone()).unwrap();
        assert_eq!(bench.figures(&user("alice")), (0, 0));
        assert!(bench.topup(&topup).review.is_some());
        assert_eq!(bench.topup(&topup).state, Open);
        // Nothing waits for good: the sweep asks again when the page has ended.
        bench.at = bench.at.plus_millis(1_800_000);
        bench.told(wrong).unwrap();
        assert_eq!(bench.topup(&topup).state, Failed);
        assert_eq!(bench.end_user("alice").open.topups, 0);
        assert_eq!(bench.last(EventType::TopupFailed)["failureCode"], "review");
        bench.told(says(&topup, PaymentState::Paid)).unwrap();
        assert_eq!(bench.topup(&topup).state, Completed);
        assert_eq!(bench.topup(&topup).review, None);
        assert_eq!(bench.figures(&user("alice")), (CREDITS, 0));
    }
}

// Fault matrix 8
#[test]
fn a_payment_that_the_balance_cannot_hold_is_reviewed() {
    let mut bench = Bench::new();
    let topup = bench.open_topup(&user("alice"));
    bench.grant(Payer::Pool, i64::MAX - 5).unwrap();
    bench.told(says(&topup, PaymentState::Paid)).unwrap();
    assert_eq!(bench.figures(&user("alice")), (0, 0));
    assert_eq!(
        bench.topup(&topup).review.as_deref(),
        Some("the balance cannot hold it")
    );
}

#[test]
fn a_second_payment_is_reviewed_and_a_payment_named_late_is_not() {
    let mut bench = Bench::new();
    let topup = bench.open_topup(&user("alice"));
    let mut unnamed = says(&topup, PaymentState::Paid);
    unnamed.payment = None;
    bench.told(unnamed).unwrap();
    bench.told(says(&topup, PaymentState::Paid)).unwrap();
    assert_eq!(bench.topup(&topup).payment.as_deref(), Some("pi_1"));
    assert_eq!(bench.topup(&topup).review, None);
    assert!(bench.refs.contains(&("pi_1".into(), topup.topup)));
    let mut second = says(&topup, PaymentState::Paid);
    second.payment = Some("pi_2".into());
    bench.told(second).unwrap();
    assert!(bench.topup(&topup).review.is_some());
    assert_eq!(bench.topup(&topup).payment.as_deref(), Some("pi_1"));
    assert_eq!(bench.figures(&user("alice")), (CREDITS, 0));
}

// Fault matrix 110
#[test]
fn a_payment_under_way_can_be_found_before_it_is_paid() {
    let mut bench = Bench::new();
    let topup = bench.open_topup(&user("alice"));
    let mut report = says(&topup, PaymentState::Processing);
    report.payment = Some("pi_other".into());
    report.cents = 1;
    bench.told(report.clone()).unwrap();
    assert!(!bench.refs.iter().any(|(name, _)| &**name == "pi_other"));
    report.payment = Some("pi_1".into());
    report.cents = CENTS;
    bench.told(report).unwrap();
    assert!(bench.refs.contains(&("pi_1".into(), topup.topup)));
}

#[test]
fn terms_that_do_not_add_up_are_refused() {
    for (credits, fee, total, bonus) in [
        (0, 10_000, 10_000, 0),
        (-10_000, 20_000, 10_000, 0),
        (20_000, -10_000, 10_000, 0),
        (10_000, 0, 20_000, 0),
        (10_001, 0, 10_001, 0),
        (10_000, 0, 10_000, -1),
        (i64::MAX, 1, i64::MIN, 0),
    ] {
        let mut bench = Bench::new();
        let mut new = bench.new_topup(&Payer::Pool);
        new.terms.credits = Micros::new(credits);
        new.terms.fee = Micros::new(fee);
        new.terms.total = Micros::new(total);
        new.terms.bonus = Micros::new(bonus);
        let refused = bench.run(Action::OpenTopup(Box::new(new)));
        assert_eq!(
            refused,
            Err(Rejection::NotPositive),
            "{credits} + {fee} = {total}"
        );
    }
}

#[test]
fn a_repeated_purchase_is_the_same_and_a_page_is_attached_once() {
    let mut bench = Bench::new();
    let mut new = bench.new_topup(&user("alice"));
    new.claim = Some(claim("k", 1));
    bench.run(Action::OpenTopup(Box::new(new.clone()))).unwrap();
    let mut again = bench.new_topup(&user("alice"));
    again.claim = Some(claim("k", 1));
    let same = bench.run(Action::OpenTopup(Box::new(again.clone())));
    assert_eq!(same, Ok(Outcome::Existing(new.id.0)));
    again.claim = Some(claim("k", 2));
    let other = bench.run(Action::OpenTopup(Box::new(again)));
    assert_eq!(other, Err(Rejection::ClaimConflict));
    let mut attach = AttachCheckout {
        topup: new.topup(),
        id: "cs_test_1".into(),
        url: "https://pay.example".into(),
    };
    bench.run(Action::AttachCheckout(attach.clone())).unwrap();
    bench.run(Action::AttachCheckout(attach.clone())).unwrap();
    attach.id = "cs_test_2".into();
    assert!(bench.run(Action::AttachCheckout(attach)).is_err());
    assert_eq!(bench.end_user("alice").open.topups, 1);
}
