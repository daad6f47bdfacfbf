//! End users: freezing and retirement.

use super::topups::{CENTS, CREDITS, says};
use super::*;
use crate::ledger::policy::{OpenItems, Policy};
use crate::ledger::rejection::Blockers;

impl Bench {
    pub(super) fn retire(&mut self, name: &str) -> Result<Outcome, Rejection> {
        self.run(Action::Retire(Retire {
            end_user: external(name),
        }))
    }

    pub(super) fn freeze(&mut self, payer: &Payer, frozen: bool) -> Result<Outcome, Rejection> {
        self.run(Action::SetFrozen(SetFrozen {
            payer: payer.clone(),
            frozen,
            reason: "by hand".into(),
        }))
    }

    pub(super) fn set_policy(&mut self, name: &str, policy: Policy) -> Result<Outcome, Rejection> {
        self.run(Action::SetPolicy(Box::new(NewPolicy {
            end_user: external(name),
            policy: Arc::new(policy),
        })))
    }

    pub(super) fn mint(
        &mut self,
        owner: &str,
        max_spend: Option<i64>,
        tools: Option<&str>,
    ) -> Result<TokenId, Rejection> {
        let id = TokenId(self.id());
        let mut token = self.row(TokenKind::EndUser, &user(owner), max_spend, None);
        token.tools = tools.map(|tool| [tool.to_owned()].as_slice().into());
        self.run(Action::MintToken(Box::new(NewToken { id, token })))
            .map(|_| id)
    }

    fn row(
        &self,
        kind: TokenKind,
        owner: &Payer,
        max_spend: Option<i64>,
        max_per_call: Option<i64>,
    ) -> EndUserToken {
        EndUserToken {
            kind,
            owner: owner.clone(),
            created_at: self.at,
            expires_at: self.at.plus_millis(60_000),
            revoked_at: None,
            max_spend: max_spend.map(Micros::new),
            max_per_call: max_per_call.map(Micros::new),
            spent: Micros::ZERO,
            tools: None,
        }
    }

    pub(super) fn mint_row(
        &mut self,
        kind: TokenKind,
        owner: &Payer,
        max_spend: Option<i64>,
        max_per_call: Option<i64>,
    ) -> Result<TokenId, Rejection> {
        let id = TokenId(self.id());
        let token = self.row(kind, owner, max_spend, max_per_call);
        self.run(Action::MintToken(Box::new(NewToken { id, token })))
            .map(|_| id)
    }

    pub(super) fn join_agent(
        &mut self,
        owner: &Payer,
        max_spend: Option<i64>,
        max_per_call: Option<i64>,
    ) -> Result<TokenId, Rejection> {
        self.mint_row(TokenKind::Agent, owner, max_spend, max_per_call)
    }

    pub(super) fn end_agent(&mut self, owner: &Payer, agent: TokenId) -> Result<Outcome, Rejection> {
        self.run(Action::RevokeTokens(RevokeTokens {
            kind: TokenKind::Agent,
            owner: owner.clone(),
            only: Some(agent),
        }))
    }

    pub(super) fn revoke(&mut self, owner: &str, only: Option<TokenId>) -> Result<Outcome, Rejection> {
        self.run(Action::RevokeTokens(RevokeTokens {
            kind: TokenKind::EndUser,
            owner: user(owner),
            only,
        }))
    }

    pub(super) fn hold_by(
        &mut self,
        payer: &Payer,
        token: TokenId,
        micros: i64,
    ) -> Result<CallRef, Rejection> {
        let mut hold = self.new_hold(payer, micros);
        hold.token = Some(token);
        self.take(hold)
    }

    pub(super) fn release(&mut self, call: &CallRef) -> Result<Outcome, Rejection> {
        self.run(Action::Release(Release {
            call: call.clone(),
            failure: "UPSTREAM_ERROR".into(),
            outcome: None,
            drift: None,
        }))
    }
}

// Fault matrix 23, 24
// Fault matrix 157, 159
#[test]
fn each_thing_that_is_open_stands_in_the_way_of_retirement() {
    let refused = |bench: &mut Bench| match bench.retire("alice") {
        Err(Rejection::NotRetirable(blockers)) => *blockers,
        other => panic!("{other:?}"),
    };
    let mut bench = Bench::new();
    assert_eq!(bench.retire("alice"), Err(Rejection::UnknownEndUser));
    let topup = bench.open_topup(&user("alice"));
    let open = |topups, refunds, disputes| OpenItems {
        topups,
        refunds,
        disputes,
    };
    let with = |open| Blockers {
        open,
        ..Blockers::default()
    };
    assert_eq!(refused(&mut bench), with(open(1, 0, 0)));
    bench.told(says(&topup, PaymentState::Paid)).unwrap();
    let call = bench.hold(&user("alice"), 400).unwrap();
    bench.refund(&topup, Some(1)).unwrap();
    let blockers = refused(&mut bench);
    assert_eq!((blockers.posted.get(), blockers.calls), (CREDITS, 1));
    assert_eq!(blockers.held.get(), 400 + CREDITS / CENTS);
    assert_eq!(blockers.open, open(0, 1, 0));
    bench.capture(&call, 400, 0, false).unwrap();
    let id = bench.topup(&topup).refunds[0].id;
    bench.refund_done(&topup, id, None, RefundState::Failed);
    bench.spend(&user("alice"), CREDITS - 400);
    // A stream that still runs may credit something back.
    assert_eq!(refused(&mut bench).calls, 1);
    bench.run(Action::Expire(call)).unwrap();
    bench.dispute(&topup, "dp_1", CENTS, DisputeState::Warning);
    assert_eq!(refused(&mut bench), with(open(0, 0, 1)));
    bench.dispute(&topup, "dp_1", CENTS, DisputeState::Won);
    bench.grant(user("alice"), 1).unwrap();
    let posted = Micros::new(1);
    assert_eq!(
        refused(&mut bench),
        Blockers {
            posted,
            ..Blockers::default()
        }
    );
    bench.spend(&user("alice"), 1);
    bench.retire("alice").unwrap();
}

// Fault matrix 158, 160, 161
#[test]
fn retirement_ends_everything_at_once_and_only_once() {
    let mut bench = Bench::new();
    let alice = user("alice");
    bench
        .set_policy(
            "alice",
            Policy {
                max_usd_per_day: Some(Micros::new(1)),
                ..Policy::default()
            },
        )
        .unwrap();
    bench.mint("bob", None, None).unwrap();
    let gone = bench.mint("alice", None, None).unwrap();
    bench.revoke("alice", Some(gone)).unwrap();
    bench.mint("alice", None, None).unwrap();
    bench.mint("alice", None, None).unwrap();
    let retired = |already, revoked_tokens, policy_reset| {
        Ok(Outcome::Retired {
            already,
            revoked_tokens,
            revoked_agents: 0,
            policy_reset,
        })
    };
    assert_eq!(bench.retire("alice"), retired(false, 2, true));
    assert_eq!(bench.retire("alice"), retired(true, 0, false));
    assert_eq!(bench.revoke("alice", None), Ok(Outcome::Revoked(0)));
    assert_eq!(bench.revoke("bob", None), Ok(Outcome::Revoked(1)));
    let over = Rejection::EndUserRetired;
    assert_eq!(bench.hold(&alice, 0), Err(over.clone()));
    assert_eq!(bench.grant(alice.clone(), 1), Err(over.clone()));
    assert_eq!(bench.mint("alice", None, None), Err(over.clone()));
    assert_eq!(bench.set_policy("alice", Policy::default()), Err(over.clone()));
    assert_eq!(bench.freeze(&alice, true), Err(over.clone()));
    let new = bench.new_topup(&alice);
    assert_eq!(bench.run(Action::OpenTopup(Box::new(new))), Err(over.clone()));
    bench.grant(Payer::Pool, 10).unwrap();
    let moved = |to_end_user| {
        Action::Move(Move {
            end_user: external("alice"),
            to_end_user,
            amount: Micros::new(1),
            reference: "r".into(),
            claim: None,
        })
    };
    assert_eq!(bench.run(moved(true)), Err(over));
    assert_eq!(bench.run(moved(false)), Err(Rejection::EndUserRetired));
}

#[test]
fn a_balance_frozen_by_hand_is_free_only_by_hand() {
    let mut bench = Bench::new();
    let alice = user("alice");
    let topup = bench.paid(&alice);
    bench.spend(&alice, 1);
    bench.dispute(&topup, "dp_1", CENTS, DisputeState::Open);
    assert_eq!(bench.freeze(&alice, true), Ok(Outcome::Frozen(false)));
    bench.dispute(&topup, "dp_1", CENTS, DisputeState::Won);
    assert_eq!(bench.hold(&alice, 1), Err(Rejection::AccountFrozen));
    assert_eq!(bench.freeze(&alice, false), Ok(Outcome::Frozen(true)));
    assert_eq!(bench.freeze(&alice, false), Ok(Outcome::Frozen(false)));
    bench.hold(&alice, 1).unwrap();
    assert_eq!(bench.freeze(&alice, true), Ok(Outcome::Frozen(true)));
    let told = bench.last(EventType::AccountFrozen);
    assert_eq!(
        (&told["reason"], &told["balanceUsd"]),
        (&"by hand".into(), &"9.999999".into())
    );
    assert_eq!(bench.freeze(&user("carol"), true), Err(Rejection::UnknownEndUser));
}

#[test]
fn a_forgiven_reason_ends_no_later_freeze() {
    let mut bench = Bench::new();
    let alice = user("alice");
    let (first, second) = (bench.paid(&alice), bench.paid(&alice));
    bench.spend(&alice, 2 * CREDITS);
    bench.dispute(&first, "dp_1", CENTS, DisputeState::Open);
    bench.freeze(&alice, false).unwrap();
    bench.dispute(&second, "dp_2", CENTS, DisputeState::Open);
    bench.dispute(&first, "dp_1", CENTS, DisputeState::Won);
    assert_eq!(bench.hold(&alice, 0), Err(Rejection::AccountFrozen));
    bench.dispute(&second, "dp_2", CENTS, DisputeState::Won);
    bench.hold(&alice, 0).unwrap();
}
