//! Refunds of top-ups: asked for here and made at the processor, in any order, in parts, and failing later.

use super::topups::{CENTS, CREDITS, says};
use super::*;
use RefundState::{Canceled, Failed, Pending, Succeeded};

impl Bench {
    pub(super) fn refund(&mut self, topup: &TopupRef, cents: Option<i64>) -> Result<RefundId, Rejection> {
        let id = RefundId(self.id());
        self.run(Action::OpenRefund(Box::new(NewRefund {
            id,
            topup: topup.clone(),
            cents,
            reason: "asked".into(),
            claim: None,
        })))
        .map(|_| id)
    }

    pub(super) fn refund_report(&mut self, report: RefundReport) -> Result<Outcome, Rejection> {
        self.run(Action::RefundReport(Box::new(report)))
    }

    /// The processor tells of a refund that was made there.
    pub(super) fn refund_told(&mut self, topup: &TopupRef, name: &str, cents: i64, state: RefundState) {
        self.refund_report(RefundReport {
            topup: topup.clone(),
            event: None,
            refund: None,
            reference: Some(name.into()),
            cents,
            state,
            failure: (state == Failed).then(|| "closed_account".into()),
        })
        .unwrap();
    }

    /// The processor tells of a refund that was asked for here.
    pub(super) fn refund_done(
        &mut self,
        topup: &TopupRef,
        id: RefundId,
        name: Option<&str>,
        state: RefundState,
    ) {
        self.refund_report(RefundReport {
            topup: topup.clone(),
            event: None,
            refund: Some(id),
            reference: name.map(Into::into),
            cents: 1,
            state,
            failure: None,
        })
        .unwrap();
    }
}

// Fault matrix 114
#[test]
fn a_refund_holds_its_credits_and_takes_them_with_the_bonus() {
    let mut bench = Bench::new();
    let topup = bench.paid(&Payer::Pool);
    let id = bench.refund(&topup, None).unwrap();
    assert_eq!(bench.figures(&Payer::Pool), (11_000_000, 11_000_000));
    assert_eq!(
        bench.refund(&topup, None),
        Err(Rejection::NotRefundable("nothing of it is left"))
    );
    bench.refund_done(&topup, id, Some("re_1"), Pending);
    bench.refund_done(&topup, id, Some("re_1"), Succeeded);
    bench.refund_done(&topup, id, Some("re_1"), Succeeded);
    bench.refund_told(&topup, "re_1", CENTS, Succeeded);
    assert_eq!(bench.figures(&Payer::Pool), (0, 0));
    assert_eq!(bench.topup(&topup).state, TopupState::Refunded);
    assert_eq!(bench.topup(&topup).refunds.len(), 1);
    assert_eq!(bench.count(EventType::RefundIssued), 1);
    let told = bench.last(EventType::RefundIssued);
    for (member, value) in [
        ("refundId", id.to_string()),
        ("kind", "topup_refund".to_owned()),
        ("amountUsd", "10.61".to_owned()),
        ("balanceUsd", "0".to_owned()),
        ("originalReference", bench.topup(&topup).session.to_string()),
        ("reason", "asked".to_owned()),
        ("status", "succeeded".to_owned()),
    ] {
        assert_eq!(told[member], value, "{member}");
    }
}

// Fault matrix 114
#[test]
fn partial_refunds_take_their_share_and_add_up_to_the_whole() {
    for parts in [vec![1, 1060], vec![333, 333, 395], vec![500, 561], vec![1; 61]] {
        let mut bench = Bench::new();
        let topup = bench.paid(&Payer::Pool);
        for (at, cents) in parts.iter().enumerate() {
            bench.refund_told(&topup, &format!("re_{at}"), *cents, Succeeded);
            assert_eq!(bench.check(), Vec::<String>::new());
        }
        if parts.iter().sum::<i64>() == CENTS {
            assert_eq!(bench.figures(&Payer::Pool), (0, 0));
            assert_eq!(bench.posted(AccountKind::Funding), 0);
        }
    }
}

// Fault matrix 114
#[test]
fn a_refund_that_fails_gives_credits_and_bonus_back() {
    for end in [Failed, Canceled] {
        let mut bench = Bench::new();
        let topup = bench.paid(&Payer::Pool);
        let held = bench.refund(&topup, Some(500)).unwrap();
        bench.refund_done(&topup, held, None, end);
        assert_eq!(bench.figures(&Payer::Pool), (11_000_000, 0));
        bench.refund_told(&topup, "re_2", CENTS, Succeeded);
        assert_eq!(bench.topup(&topup).state, TopupState::Refunded);
        bench.refund_told(&topup, "re_2", CENTS, end);
        bench.refund_told(&topup, "re_2", CENTS, end);
        assert_eq!(bench.figures(&Payer::Pool), (11_000_000, 0));
        assert_eq!(bench.topup(&topup).state, TopupState::Completed);
        assert_eq!(bench.count(EventType::RefundIssued), 3);
        assert_eq!(bench.last(EventType::RefundIssued)["status"], end.as_str());
        assert_eq!(bench.last(EventType::BalanceChanged)["deltaUsd"], "11");
    }
}

/// The processor's states in the order in which they happened, told in every order.
#[test]
fn the_order_in_which_a_refund_is_told_of_does_not_matter() {
    for (last, kept) in [(Succeeded, 0), (Failed, CREDITS), (Canceled, CREDITS)] {
        let mut states = vec![Pending, Succeeded];
        if last != Succeeded {
            states.push(last);
        }
        for paid_at in 0..=states.len() {
            for order in orders(&states) {
                let mut bench = Bench::new();
                let topup = bench.open_topup(&user("alice"));
                for (at, state) in order.iter().enumerate() {
                    if at == paid_at {
                        bench.told(says(&topup, PaymentState::Paid)).unwrap();
                    }
                    bench.refund_told(&topup, "re_1", CENTS, *state);
                }
                bench.told(says(&topup, PaymentState::Paid)).unwrap();
                assert_eq!(
                    bench.figures(&user("alice")),
                    (kept, 0),
                    "{order:?}, paid at {paid_at}"
                );
                assert_eq!(
                    bench.end_user("alice").open,
                    crate::ledger::policy::OpenItems::default()
                );
            }
        }
    }
}

fn orders(states: &[RefundState]) -> Vec<Vec<RefundState>> {
    if states.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for at in 0..states.len() {
        let mut rest = states.to_vec();
        let first = rest.remove(at);
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.insert(0, first);
            order
        }));
    }
    all
}

#[test]
fn a_refund_that_was_given_up_here_and_made_all_the_same_is_booked() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    let id = bench.refund(&topup, Some(CENTS)).unwrap();
    bench.refund_done(&topup, id, None, Failed);
    assert_eq!(bench.figures(&user("alice")), (CREDITS, 0));
    bench.refund_done(&topup, id, Some("re_1"), Succeeded);
    assert_eq!(bench.figures(&user("alice")), (0, 0));
    // From here on the processor's failure is the last word.
    bench.refund_done(&topup, id, Some("re_1"), Failed);
    bench.refund_done(&topup, id, Some("re_1"), Succeeded);
    assert_eq!(bench.figures(&user("alice")), (CREDITS, 0));
}

#[test]
fn a_refund_that_was_given_up_here_and_is_under_way_after_all_holds_again() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    let id = bench.refund(&topup, Some(CENTS)).unwrap();
    bench.refund_done(&topup, id, None, Failed);
    bench.refund_done(&topup, id, Some("re_1"), Pending);
    assert_eq!(bench.figures(&user("alice")), (CREDITS, CREDITS));
    bench.refund_done(&topup, id, Some("re_1"), Succeeded);
    assert_eq!(bench.figures(&user("alice")), (0, 0));
}

#[test]
fn a_second_refund_under_our_id_is_a_refund_of_its_own() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    let id = bench.refund(&topup, Some(1)).unwrap();
    bench.refund_done(&topup, id, Some("re_1"), Succeeded);
    let once = bench.figures(&user("alice"));
    bench.refund_done(&topup, id, Some("re_1"), Succeeded);
    assert_eq!(bench.figures(&user("alice")), once);
    bench.refund_done(&topup, id, Some("re_2"), Succeeded);
    assert!(bench.figures(&user("alice")).0 < once.0);
}

// Fault matrix 110
#[test]
fn refunds_told_before_the_payment_take_effect_with_it() {
    let mut bench = Bench::new();
    let topup = bench.open_topup(&user("alice"));
    bench.refund_told(&topup, "re_1", 500, Succeeded);
    bench.refund_told(&topup, "re_2", 100, Pending);
    assert_eq!(bench.count(EventType::RefundIssued), 0);
    assert_eq!(bench.end_user("alice").open.refunds, 1);
    bench.told(says(&topup, PaymentState::Paid)).unwrap();
    let taken = 500 * CREDITS / CENTS;
    assert_eq!(bench.figures(&user("alice")), (CREDITS - taken, 0));
    assert_eq!(bench.topup(&topup).refundable_cents(), CENTS - 600);
    let kinds: Vec<EventType> = bench.events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [
            EventType::TopupCompleted,
            EventType::BalanceChanged,
            EventType::BalanceChanged,
            EventType::RefundIssued
        ]
    );
}

// Fault matrix 115
#[test]
fn a_refund_of_spent_credits_is_a_debt_and_freezes_until_it_fails() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    bench.spend(&user("alice"), 9_000_000);
    bench.refund_told(&topup, "re_1", CENTS, Succeeded);
    assert_eq!(bench.figures(&user("alice")), (0, 0));
    assert_eq!(bench.posted(AccountKind::Receivable), -9_000_000);
    assert_eq!(bench.account(&user("alice")).status, AccountStatus::Frozen);
    assert_eq!(bench.hold(&user("alice"), 0), Err(Rejection::AccountFrozen));
    let frozen = bench.last(EventType::AccountFrozen);
    assert_eq!(frozen["reason"], "refund_of_spent_credits");
    assert_eq!(frozen["balanceUsd"], "0");
    assert_eq!(frozen["externalUserId"], "alice");
    assert_eq!(bench.last(EventType::RefundIssued)["creditsUsd"], "1");
    bench.refund_told(&topup, "re_1", CENTS, Failed);
    assert_eq!(bench.posted(AccountKind::Receivable), 0);
    assert_eq!(bench.figures(&user("alice")), (1_000_000, 0));
    assert_eq!(bench.account(&user("alice")).status, AccountStatus::Active);
    assert_eq!(bench.account(&user("alice")).freezes, 0);
}

#[test]
fn a_refund_asked_for_here_never_takes_what_is_not_there() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    bench.spend(&user("alice"), 1);
    assert!(matches!(
        bench.refund(&topup, None),
        Err(Rejection::InsufficientCredits { .. })
    ));
    for cents in [0, -1, CENTS + 1, i64::MAX, i64::MIN] {
        assert!(
            matches!(
                bench.refund(&topup, Some(cents)),
                Err(Rejection::NotRefundable(_))
            ),
            "{cents}"
        );
    }
    let open = bench.open_topup(&user("alice"));
    assert!(bench.refund(&open, None).is_err());
}

#[test]
fn what_the_processor_tells_of_is_booked_however_often_and_however_much() {
    let mut bench = Bench::new();
    let topup = bench.paid(&user("alice"));
    for at in 0..150 {
        bench.refund_told(&topup, &format!("re_{at}"), 10, Succeeded);
    }
    bench.refund_told(&topup, "re_much", i64::MAX, Succeeded);
    bench.refund_told(&topup, "re_less", -5, Succeeded);
    assert_eq!(bench.figures(&user("alice")), (0, 0));
    assert_eq!(bench.posted(AccountKind::Funding), 0);
    assert_eq!(bench.topup(&topup).refundable_cents(), 0);
}
