//! What is told and written down: the low balance, the audit log, and what the audit of the books finds.

use super::topups::{CREDITS, says};
use super::*;
use crate::ledger::books::LowBalance;
use crate::ledger::policy::Policy;

/// A change that no command makes, and what is found of it.
type Spoilt<T> = (fn(&mut T), &'static str);

#[test]
fn a_low_balance_is_told_once_per_crossing() {
    let mut bench = Bench::new();
    let mut head = *bench.books.tenants.get(&TENANT).unwrap();
    head.low_balance = LowBalance {
        pool: None,
        end_user: Some(Micros::new(50)),
    };
    bench.books.tenants.load(TENANT, Some(head));
    bench.grant(Payer::Pool, 60).unwrap();
    bench.spend(&Payer::Pool, 60);
    bench.grant(user("alice"), 49).unwrap();
    assert_eq!(bench.count(EventType::BalanceLow), 0);
    bench.grant(user("alice"), 11).unwrap();
    for (spent, told) in [(10, 0), (1, 1), (10, 1)] {
        bench.spend(&user("alice"), spent);
        assert_eq!(bench.count(EventType::BalanceLow), told);
    }
    let low = bench.last(EventType::BalanceLow);
    assert_eq!(
        (&low["balanceUsd"], &low["thresholdUsd"]),
        (&"0.000049".into(), &"0.00005".into())
    );
    bench.grant(user("alice"), 100).unwrap();
    bench.spend(&user("alice"), 139);
    assert_eq!(bench.count(EventType::BalanceLow), 2);
}

#[test]
fn a_note_is_written_once_and_not_for_a_repeat() {
    let mut bench = Bench::new();
    bench.note = Some(Arc::new(AuditNote {
        actor: "user:1".into(),
        action: "test",
        target: "alice".into(),
        before: None,
        after: None,
        origin: "127.0.0.1".into(),
    }));
    let mut seen = 0;
    let mut noted = |bench: &Bench| {
        let new = bench.audits.len() - seen;
        seen = bench.audits.len();
        new
    };
    bench.set_policy("alice", Policy::default()).unwrap();
    assert_eq!(bench.audits[0].note.before.as_deref(), Some("{}"));
    assert_eq!(noted(&bench), 1);
    bench.freeze(&user("alice"), true).unwrap();
    assert_eq!(bench.audits[1].note.before.as_deref(), Some("{\"frozen\":false}"));
    assert_eq!(noted(&bench), 1);
    bench.freeze(&user("alice"), true).unwrap();
    assert_eq!(noted(&bench), 0);
    bench.hold(&user("alice"), 1).unwrap_err();
    bench.revoke("alice", None).unwrap();
    assert_eq!(noted(&bench), 0);
    bench.freeze(&user("alice"), false).unwrap();
    let mut topup = bench.new_topup(&user("alice"));
    topup.claim = Some(claim("k", 1));
    bench.run(Action::OpenTopup(Box::new(topup.clone()))).unwrap();
    bench.run(Action::OpenTopup(Box::new(topup.clone()))).unwrap();
    assert_eq!(noted(&bench), 2);
    bench.told(says(&topup.topup(), PaymentState::Expired)).unwrap();
    bench.retire("alice").unwrap();
    bench.retire("alice").unwrap();
    assert_eq!(noted(&bench), 2);
}

#[test]
fn the_audit_finds_what_does_not_agree() {
    let mut bench = Bench::new();
    let alice = user("alice");
    let topup = bench.paid(&alice);
    bench.refund(&topup, Some(100)).unwrap();
    bench.hold(&alice, 5).unwrap();
    assert_eq!(bench.audit(), Vec::<String>::new());
    let key = alice.account(TENANT);
    let right = bench.account(&alice);
    let row = bench.topup(&topup);
    let spoil_account: [Spoilt<Account>; 3] = [
        (|account| account.open_calls = 0, "unfinished calls"),
        (|account| account.held = Micros::new(5), "held"),
        (|account| account.posted = Micros::ZERO, "balance is 0"),
    ];
    for (spoil, finding) in spoil_account {
        let mut wrong = right;
        spoil(&mut wrong);
        bench.books.accounts.load(key.clone(), Some(wrong));
        assert!(
            bench.audit().iter().any(|found| found.contains(finding)),
            "{finding}"
        );
    }
    bench.books.accounts.load(key, Some(right));
    let spoil_topup: [Spoilt<Topup>; 3] = [
        (|topup| topup.refunds[0].held = Micros::ZERO, "held"),
        (
            |topup| topup.refunds[0].parts.credits = Micros::new(CREDITS + 1),
            "more is given back",
        ),
        (|topup| topup.completed_at = None, "contradicts itself"),
    ];
    for (spoil, finding) in spoil_topup {
        let mut wrong = row.clone();
        spoil(&mut wrong);
        bench.books.topups.load((TENANT, topup.topup), Some(wrong));
        assert!(
            bench.audit().iter().any(|found| found.contains(finding)),
            "{finding}"
        );
    }
    bench.books.topups.load((TENANT, topup.topup), Some(row));
}
