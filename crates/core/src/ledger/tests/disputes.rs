//! Disputes of a payment: opened, won, lost, reversed, told out of order, and beside a refund.

use super::topups::{CENTS, CREDITS, says};
use super::*;
use DisputeState::{Lost, Open, Warning, Won};

impl Bench {
    pub(super) fn dispute(&mut self, topup: &TopupRef, name: &str, cents: i64, state: DisputeState) {
        self.run(Action::DisputeReport(Box::new(DisputeReport {
            topup: topup.clone(),
            event: None,
            reference: name.into(),
            cents,
            state,
            reason: "fraudulent".into(),
            due_by: Some(self.at),
        })))
        .unwrap();
    }

    fn status(&self, payer: &Payer) -> AccountStatus {
        self.account(payer).status
    }
}

// Fault matrix 116
#[test]
fn a_dispute_goes_where_each_report_leads_and_never_back() {
    // What was told, and then: state, posted, held, events opened and closed.
    let all = CREDITS;
    for (told, state, figures, events) in [
        (vec![Warning], Warning, (all, 0), (0, 0)),
        (vec![Warning, Won], Won, (all, 0), (0, 0)),
        (vec![Open], Open, (all, all), (1, 0)),
        (vec![Open, Open, Warning], Open, (all, all), (1, 0)),
        (vec![Warning, Open, Won], Won, (all, 0), (1, 1)),
        (vec![Open, Won, Open, Warning, Won], Won, (all, 0), (1, 1)),
        (vec![Open, Lost], Lost, (0, 0), (1, 1)),
        (vec![Lost, Open, Warning, Lost], Lost, (0, 0), (1, 1)),
        (vec![Open, Lost, Won], Won, (all, 0), (1, 2)),
        (vec![Open, Won, Lost], Lost, (0, 0), (1, 2)),
        (vec![Lost, Won, Lost, Won], Won, (all, 0), (1, 4)),
    ] {
        for early in [false, true] {
            let mut bench = Bench::new();
            let topup = bench.open_topup(&user("alice"));
            if !early {
                bench.told(says(&topup, PaymentState::Paid)).unwrap();
            }
            for state in &told {
                bench.dispute(&topup, "dp_1", CENTS, *state);
            }
            bench.told(says(&topup, PaymentState::Paid)).unwrap();
            assert_eq!(bench.topup(&topup).disputes[0].state, state, "{told:?}");
            assert_eq!(bench.figures(&user("alice")), figures, "{told:?}");
            assert_eq!(bench.status(&user("alice")), AccountStatus::Active);
            if !early {
                let (opened, closed) = events;
                assert_eq!(bench.count(EventType::DisputeOpened), opened, "{told:?}");
                assert_eq!(bench.count(EventType::DisputeClosed), closed, "{told:?}");
            }
        }
    }
}

#[test]
fn the_events_of_a_dispute_say_what_it_took() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    bench.spend(&user("alice"), 4_000_000);
    bench.dispute(&topup, "dp_1", CENTS, Lost);
    let opened = bench.last(EventType::DisputeOpened);
    let closed = bench.last(EventType::DisputeClosed);
    for told in [&opened, &closed] {
        assert_eq!(told["disputeId"], bench.topup(&topup).disputes[0].id.to_string());
        assert_eq!(told["amountUsd"], "10.61");
        assert_eq!(told["reason"], "fraudulent");
        assert_eq!(told["dueBy"], bench.at.to_string());
        assert_eq!(told["externalUserId"], "alice");
    }
    assert_eq!(closed["outcome"], "lost");
    assert_eq!(closed["debitedUsd"], "6");
}

// Fault matrix 116
#[test]
fn a_dispute_of_spent_credits_freezes_until_it_is_won() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    bench.spend(&user("alice"), 4_000_000);
    bench.dispute(&topup, "dp_1", CENTS, Open);
    assert_eq!(bench.figures(&user("alice")), (6_000_000, 6_000_000));
    assert_eq!(bench.status(&user("alice")), AccountStatus::Frozen);
    assert_eq!(
        bench.last(EventType::AccountFrozen)["reason"],
        "dispute_of_spent_credits"
    );
    bench.dispute(&topup, "dp_1", CENTS, Lost);
    assert_eq!(bench.figures(&user("alice")), (0, 0));
    assert_eq!(bench.posted(AccountKind::Receivable), -4_000_000);
    assert_eq!(bench.status(&user("alice")), AccountStatus::Frozen);
    assert_eq!(bench.count(EventType::AccountFrozen), 1);
    bench.dispute(&topup, "dp_1", CENTS, Won);
    assert_eq!(bench.figures(&user("alice")), (6_000_000, 0));
    assert_eq!(bench.posted(AccountKind::Receivable), 0);
    assert_eq!(bench.status(&user("alice")), AccountStatus::Active);
}

#[test]
fn a_lost_dispute_whose_credits_came_back_in_time_is_no_debt() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    bench.spend(&user("alice"), 4_000_000);
    bench.dispute(&topup, "dp_1", CENTS, Open);
    bench.grant(user("alice"), 5_000_000).unwrap();
    bench.dispute(&topup, "dp_1", CENTS, Lost);
    assert_eq!(bench.figures(&user("alice")), (1_000_000, 0));
    assert_eq!(bench.status(&user("alice")), AccountStatus::Active);
    assert_eq!(bench.posted(AccountKind::Receivable), 0);
}

// Fault matrix 116
#[test]
fn a_dispute_and_a_refund_of_one_payment_never_take_twice() {
    use RefundState::{Failed, Succeeded};
    // In every order, and then: what the customer is left with.
    for (refund, dispute, left) in [
        (Succeeded, Won, 0),
        (Succeeded, Lost, 0),
        (Failed, Won, CREDITS),
        (Failed, Lost, 0),
    ] {
        for order in 0..6 {
            let mut bench = Bench::new();
            let topup = bench.paid(&user("alice"));
            let steps: [&dyn Fn(&mut Bench); 4] = [
                &|bench| bench.refund_told(&topup, "re_1", CENTS, Succeeded),
                &|bench| bench.refund_told(&topup, "re_1", CENTS, refund),
                &|bench| bench.dispute(&topup, "dp_1", CENTS, Open),
                &|bench| bench.dispute(&topup, "dp_1", CENTS, dispute),
            ];
            let orders = [
                [0, 1, 2, 3],
                [0, 2, 1, 3],
                [0, 2, 3, 1],
                [2, 0, 1, 3],
                [2, 0, 3, 1],
                [2, 3, 0, 1],
            ];
            for step in orders[order] {
                steps[step](&mut bench);
                assert_eq!(
                    bench.check(),
                    Vec::<String>::new(),
                    "{refund}, {dispute}, order {order}"
                );
            }
            assert_eq!(
                bench.figures(&user("alice")),
                (left, 0),
                "{refund}, {dispute}, order {order}"
            );
            assert_eq!(bench.posted(AccountKind::Receivable), 0);
            assert_eq!(bench.status(&user("alice")), AccountStatus::Active);
        }
    }
}

#[test]
fn what_a_won_dispute_lets_go_and_is_spent_freezes_for_the_refund() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    bench.spend(&user("alice"), 4_000_000);
    bench.dispute(&topup, "dp_1", CENTS, Open);
    bench.refund_told(&topup, "re_1", CENTS, RefundState::Succeeded);
    bench.dispute(&topup, "dp_1", CENTS, Won);
    assert_eq!(bench.figures(&user("alice")), (0, 0));
    assert_eq!(bench.posted(AccountKind::Receivable), -4_000_000);
    assert_eq!(bench.status(&user("alice")), AccountStatus::Frozen);
    // And the other way round: the refund fails, and a second dispute finds what it let go spent.
    bench.dispute(&topup, "dp_2", CENTS, Open);
    bench.refund_told(&topup, "re_1", CENTS, RefundState::Failed);
    assert_eq!(bench.figures(&user("alice")), (6_000_000, 6_000_000));
    assert_eq!(bench.posted(AccountKind::Receivable), 0);
    assert_eq!(bench.status(&user("alice")), AccountStatus::Frozen);
}

#[test]
fn disputes_of_more_than_was_paid_still_move() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    bench.dispute(&topup, "dp_1", 600, Lost);
    bench.refund_told(&topup, "re_1", CENTS, RefundState::Succeeded);
    bench.dispute(&topup, "dp_2", CENTS, Open);
    bench.dispute(&topup, "dp_2", CENTS, Lost);
    bench.dispute(&topup, "dp_1", 600, Won);
    bench.dispute(&topup, "dp_3", i64::MAX, Lost);
    assert_eq!(bench.figures(&user("alice")), (0, 0));
    assert_eq!(bench.posted(AccountKind::Funding), 0);
}

// Fault matrix 162
#[test]
fn a_late_dispute_of_a_retired_end_user_is_a_debt_and_nothing_else() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    bench.spend(&user("alice"), CREDITS);
    bench.retire("alice").unwrap();
    bench.dispute(&topup, "dp_1", CENTS, Open);
    bench.dispute(&topup, "dp_1", CENTS, Lost);
    assert_eq!(bench.figures(&user("alice")), (0, 0));
    assert_eq!(bench.status(&user("alice")), AccountStatus::Retired);
    assert_eq!(bench.posted(AccountKind::Receivable), -CREDITS);
    bench.dispute(&topup, "dp_1", CENTS, Won);
    assert_eq!(bench.status(&user("alice")), AccountStatus::Retired);
    assert_eq!(bench.posted(AccountKind::Receivable), 0);
}

// Fault matrix 159, 162
#[test]
fn money_for_a_retired_end_user_goes_to_the_pool_and_comes_from_there() {
    let mut bench = Bench::new();
    let topup = bench.open_topup(&user("alice"));
    bench.told(says(&topup, PaymentState::Expired)).unwrap();
    bench.retire("alice").unwrap();
    bench.told(says(&topup, PaymentState::Paid)).unwrap();
    assert_eq!(bench.figures(&Payer::Pool), (CREDITS, 0));
    bench.dispute(&topup, "dp_1", CENTS, Open);
    assert_eq!(bench.figures(&Payer::Pool), (CREDITS, CREDITS));
    bench.dispute(&topup, "dp_1", CENTS, Won);
    bench.spend(&Payer::Pool, 1_000_000);
    bench.refund_told(&topup, "re_1", CENTS, RefundState::Succeeded);
    assert_eq!(bench.figures(&Payer::Pool), (0, 0));
    assert_eq!(bench.posted(AccountKind::Receivable), -1_000_000);
    assert_eq!(bench.status(&Payer::Pool), AccountStatus::Frozen);
    assert_eq!(bench.figures(&user("alice")), (0, 0));
}
