//! What a token and a policy let through.

use super::*;
use crate::ledger::policy::Policy;
use crate::ledger::rejection::LimitScope;

impl Bench {
    fn spent_by(&self, token: TokenId) -> i64 {
        self.books.tokens.get(&(TENANT, token)).unwrap().spent.get()
    }
}

#[test]
fn a_token_spends_up_to_its_ceiling_and_gets_back_what_was_not_spent() {
    let mut bench = Bench::new();
    let alice = user("alice");
    bench.grant(alice.clone(), 1000).unwrap();
    let token = bench.mint("alice", Some(100), None).unwrap();
    let first = bench.hold_by(&alice, token, 100).unwrap();
    assert!(matches!(
        bench.hold_by(&alice, token, 1),
        Err(Rejection::SpendLimitExceeded {
            scope: LimitScope::Credential,
            ..
        })
    ));
    bench.release(&first).unwrap();
    bench.release(&first).unwrap();
    assert_eq!(bench.spent_by(token), 0);
    let second = bench.hold_by(&alice, token, 90).unwrap();
    bench.capture(&second, 40, 0, false).unwrap();
    assert_eq!(bench.spent_by(token), 40);
    bench
        .run(Action::FinishStream(Box::new(FinishStream {
            call: second,
            charge: charge(15, 0),
            refund_kind: "stream_true_up",
            usage: None,
            drift: None,
            failure: None,
            outcome: outcome(),
        })))
        .unwrap();
    assert_eq!(bench.spent_by(token), 15);
    let third = bench.hold_by(&alice, token, 85).unwrap();
    bench.run(Action::Expire(third)).unwrap();
    assert_eq!(bench.spent_by(token), 15);
    let free = bench.mint("alice", None, None).unwrap();
    bench.hold_by(&alice, free, 900).unwrap();
}

#[test]
fn a_token_works_for_its_owner_its_tools_and_its_time_only() {
    let mut bench = Bench::new();
    for payer in [user("alice"), user("bob"), Payer::Pool] {
        bench.grant(payer, 1000).unwrap();
    }
    let over = Err(Rejection::TokenNotLive);
    let unknown = TokenId(Uuid::from_u128(7));
    assert_eq!(bench.hold_by(&user("alice"), unknown, 1), over);
    for (tools, allowed) in [
        ("sim/*", true),
        ("sim/chat", true),
        ("sim/vendor-v4-flash", true),
        ("sim/cha", false),
        ("simulated/*", false),
        ("sim", false),
        ("*", false),
    ] {
        let token = bench.mint("alice", None, Some(tools)).unwrap();
        let held = bench.hold_by(&user("alice"), token, 1);
        assert_eq!(held.is_ok(), allowed, "{tools}: {held:?}");
        assert_eq!(bench.hold_by(&user("bob"), token, 1), over);
        assert_eq!(bench.hold_by(&Payer::Pool, token, 1), over);
    }
    let (one, two) = (
        bench.mint("alice", None, None).unwrap(),
        bench.mint("alice", None, None).unwrap(),
    );
    assert_eq!(bench.revoke("bob", Some(one)), Ok(Outcome::Revoked(0)));
    assert_eq!(bench.revoke("alice", Some(one)), Ok(Outcome::Revoked(1)));
    assert_eq!(bench.revoke("alice", Some(one)), Ok(Outcome::Revoked(0)));
    assert_eq!(bench.hold_by(&user("alice"), one, 1), over);
    bench.hold_by(&user("alice"), two, 1).unwrap();
    assert_eq!(bench.revoke("alice", None), Ok(Outcome::Revoked(8)));
    assert_eq!(bench.revoke("carol", None), Err(Rejection::UnknownEndUser));
    let late = bench.mint("alice", None, None).unwrap();
    bench.at = bench.at.plus_millis(59_999);
    bench.hold_by(&user("alice"), late, 1).unwrap();
    bench.at = bench.at.plus_millis(1);
    assert_eq!(bench.hold_by(&user("alice"), late, 1), over);
}

#[test]
fn limits_are_met_exactly_and_never_passed() {
    let limit = |change: fn(&mut Policy)| {
        let mut policy = Policy::default();
        change(&mut policy);
        policy
    };
    let cases: [(Policy, i64, i64); 5] = [
        (
            limit(|policy| policy.max_usd_per_call = Some(Micros::new(10))),
            10,
            11,
        ),
        (
            limit(|policy| policy.max_usd_per_day = Some(Micros::new(10))),
            10,
            11,
        ),
        (
            limit(|policy| policy.max_usd_per_month = Some(Micros::new(10))),
            10,
            11,
        ),
        (
            limit(|policy| policy.require_approval_above_usd = Some(Micros::new(10))),
            10,
            11,
        ),
        (limit(|policy| policy.max_usd_per_call = Some(Micros::ZERO)), 0, 1),
    ];
    for (policy, fits, exceeds) in cases {
        let mut bench = Bench::new();
        bench.grant(user("alice"), 1000).unwrap();
        bench.set_policy("alice", policy.clone()).unwrap();
        let refused = bench.hold(&user("alice"), exceeds);
        let approval = policy.require_approval_above_usd.is_some();
        match refused {
            Err(Rejection::ApprovalRequired { .. }) => assert!(approval),
            Err(Rejection::SpendLimitExceeded { .. }) => assert!(!approval),
            other => panic!("{policy:?}: {other:?}"),
        }
        bench.hold(&user("alice"), fits).unwrap();
    }
}

#[test]
fn windows_of_a_policy_end_with_the_day_and_the_month() {
    let mut bench = Bench::new();
    bench.grant(user("alice"), 1000).unwrap();
    let policy = Policy {
        max_usd_per_day: Some(Micros::new(10)),
        max_usd_per_month: Some(Micros::new(15)),
        ..Policy::default()
    };
    bench.set_policy("alice", policy).unwrap();
    bench.spend(&user("alice"), 10);
    let scope = |refused: Result<CallRef, Rejection>| match refused {
        Err(Rejection::SpendLimitExceeded { scope, resets_at, .. }) => (scope, resets_at),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        scope(bench.hold(&user("alice"), 1)),
        (LimitScope::Day, Some(bench.at.next_day()))
    );
    bench.at = bench.at.next_day();
    assert_eq!(
        scope(bench.hold(&user("alice"), 6)),
        (LimitScope::Month, Some(bench.at.next_month()))
    );
    bench.spend(&user("alice"), 5);
    bench.at = bench.at.next_month();
    bench.spend(&user("alice"), 10);
}

#[test]
fn a_policy_names_the_tools_that_may_be_called() {
    let mut bench = Bench::new();
    bench.grant(user("alice"), 1000).unwrap();
    for (tools, allowed) in [
        (vec![], false),
        (vec!["other/*"], false),
        (vec!["x/*", "sim/chat"], true),
    ] {
        let policy = Policy {
            allowed_tools: Some(tools.iter().map(|tool| (*tool).to_owned()).collect()),
            ..Policy::default()
        };
        bench.set_policy("alice", policy).unwrap();
        assert_eq!(bench.hold(&user("alice"), 1).is_ok(), allowed, "{tools:?}");
    }
}

#[test]
fn an_agent_connection_spends_from_its_own_balance_within_its_ceilings() {
    let mut bench = Bench::new();
    let alice = user("alice");
    bench.grant(alice.clone(), 1000).unwrap();
    bench.grant(Payer::Pool, 1000).unwrap();
    let over = Err(Rejection::TokenNotLive);
    for (payer, other) in [(Payer::Pool, alice.clone()), (alice.clone(), Payer::Pool)] {
        let agent = bench.join_agent(&payer, Some(100), Some(60)).unwrap();
        assert_eq!(bench.hold_by(&other, agent, 1), over);
        assert!(matches!(
            bench.hold_by(&payer, agent, 61),
            Err(Rejection::SpendLimitExceeded {
                scope: LimitScope::Call,
                ..
            })
        ));
        let first = bench.hold_by(&payer, agent, 60).unwrap();
        assert!(matches!(
            bench.hold_by(&payer, agent, 60),
            Err(Rejection::SpendLimitExceeded {
                scope: LimitScope::Credential,
                ..
            })
        ));
        bench.release(&first).unwrap();
        bench.hold_by(&payer, agent, 60).unwrap();
        assert_eq!(bench.spent_by(agent), 60);
        assert_eq!(bench.end_agent(&other, agent), Ok(Outcome::Revoked(0)));
        assert_eq!(bench.end_agent(&payer, agent), Ok(Outcome::Revoked(1)));
        assert_eq!(bench.hold_by(&payer, agent, 1), over);
    }
    // Neither kind is ended as the other, and a token without an end user is none.
    let (token, agent) = (
        bench.mint("alice", None, None).unwrap(),
        bench.join_agent(&alice, None, None).unwrap(),
    );
    assert_eq!(bench.end_agent(&alice, token), Ok(Outcome::Revoked(0)));
    assert_eq!(bench.revoke("alice", Some(agent)), Ok(Outcome::Revoked(0)));
    assert_eq!(bench.revoke("alice", None), Ok(Outcome::Revoked(1)));
    bench.hold_by(&alice, agent, 1).unwrap();
    let nobodys = bench.mint_row(TokenKind::EndUser, &Payer::Pool, None, None);
    assert!(matches!(nobodys, Err(Rejection::Mismatch(_))));
}
