//! Quotes and approvals: each is used by one call or by none, and never for more than it says.

use proptest::prelude::*;

use super::*;
use crate::ledger::approval::{
    APPROVED_MS, ApprovalKind, ApprovalState, DecideApproval, MAX_OPEN, PENDING_MS,
};
use crate::ledger::policy::Policy;
use crate::ledger::quote::{CallAuthority, CancelQuote, QuoteKind, QuoteRefusal, QuoteState, QuoteUse};

const SLUG: &str = "sim/echo";
const MINUTE: i64 = 60_000;

impl Bench {
    fn new_quote(&mut self, payer: &Payer, micros: i64) -> Quote {
        Quote {
            id: QuoteId(self.id()),
            owner: payer.external_user_id().cloned(),
            slug: SLUG.into(),
            revision: "1".into(),
            args_hash: "aa".into(),
            kind: QuoteKind::Exact,
            charge: charge(micros, 0),
            max_charge: None,
            token_hash: "token".into(),
            idempotency_key: "k".into(),
            needs_approval: false,
            state: QuoteState::Open,
            call: None,
            credential: "key:1".into(),
            created_at: self.at,
            expires_at: self.at.plus_millis(MINUTE),
            ended_at: None,
        }
    }

    fn open_quote(&mut self, payer: &Payer, micros: i64) -> Quote {
        let quote = self.new_quote(payer, micros);
        match self.run(Action::OpenQuote(Box::new(quote))) {
            Ok(Outcome::Quote { quote, .. }) => *quote,
            other => panic!("{other:?}"),
        }
    }

    fn quote(&self, id: QuoteId) -> Quote {
        self.books.quotes.get(&(TENANT, id)).unwrap().clone()
    }

    fn quoted_hold(&mut self, payer: &Payer, micros: i64, quote: &Quote) -> NewHold {
        let mut hold = self.new_hold(payer, micros);
        (hold.subject.endpoint, hold.subject.model) = ("echo".into(), None);
        hold.authority = Some(Box::new(CallAuthority {
            args_hash: quote.args_hash.clone(),
            quote: Some(QuoteUse {
                id: quote.id,
                token_hash: quote.token_hash.clone(),
                revision: quote.revision.clone(),
            }),
            approval: None,
        }));
        hold
    }

    fn cancel_quote(&mut self, id: QuoteId, by: &Payer) -> Result<Outcome, Rejection> {
        self.run(Action::CancelQuote(CancelQuote { id, by: by.clone() }))
    }

    fn wish(&mut self, kind: ApprovalKind, args: &str, micros: i64) -> Result<(Approval, bool), Rejection> {
        let is_access = kind == ApprovalKind::ToolAccess;
        let wish = Approval {
            id: ApprovalId(self.id()),
            kind,
            owner: external("alice"),
            slug: SLUG.into(),
            args_hash: (!is_access).then(|| args.into()),
            args: None,
            amount: (!is_access).then(|| Micros::new(micros)),
            quote: None,
            reason: None,
            credential: "key:1".into(),
            state: ApprovalState::Pending,
            created_at: self.at,
            expires_at: self.at.plus_millis(PENDING_MS),
            decided_at: None,
            decided_by: None,
            decision: None,
            call: None,
        };
        let Outcome::Approval { approval, changed } = self.run(Action::RequestApproval(Box::new(wish)))?
        else {
            panic!("another outcome");
        };
        Ok((*approval, changed))
    }

    fn decide(&mut self, id: ApprovalId, approve: bool) -> Result<bool, Rejection> {
        let decision = DecideApproval {
            id,
            owner: external("alice"),
            approve,
            by: "member:ada".into(),
            reason: Some("because".into()),
        };
        let Outcome::Approval { changed, .. } = self.run(Action::DecideApproval(Box::new(decision)))? else {
            panic!("another outcome");
        };
        Ok(changed)
    }

    fn approval(&self, id: ApprovalId) -> Approval {
        self.books.approvals.get(&(TENANT, id)).unwrap().clone()
    }

    fn approved_hold(&mut self, micros: i64, args: &str, approval: Option<ApprovalId>) -> NewHold {
        let mut hold = self.new_hold(&user("alice"), micros);
        (hold.subject.endpoint, hold.subject.model) = ("echo".into(), None);
        hold.authority = Some(Box::new(CallAuthority {
            args_hash: args.into(),
            quote: None,
            approval,
        }));
        hold
    }

    /// Calls above 10 µUSD need an approval.
    fn strict_alice(&mut self) {
        self.grant(user("alice"), 10_000).unwrap();
        let policy = Policy {
            require_approval_above_usd: Some(Micros::new(10)),
            ..Policy::default()
        };
        self.set_policy("alice", policy).unwrap();
    }
}

fn refused<T>(refusal: QuoteRefusal) -> Result<T, Rejection> {
    Err(Rejection::QuoteRefused(refusal))
}

fn used(hold: &mut NewHold) -> &mut QuoteUse {
    hold.authority.as_mut().unwrap().quote.as_mut().unwrap()
}

#[test]
fn a_quote_is_used_once_for_its_call_and_no_more_than_its_price() {
    let mut bench = Bench::new();
    bench.grant(Payer::Pool, 1_000).unwrap();
    bench.grant(user("alice"), 1_000).unwrap();
    let quote = bench.open_quote(&Payer::Pool, 100);
    let mut tries: Vec<(NewHold, QuoteRefusal)> = Vec::new();
    let mut wrong = |change: &dyn Fn(&mut NewHold), refusal| {
        let mut hold = bench.quoted_hold(&Payer::Pool, 100, &quote);
        change(&mut hold);
        tries.push((hold, refusal));
    };
    wrong(
        &|hold| used(hold).token_hash = "other".into(),
        QuoteRefusal::Unknown,
    );
    wrong(
        &|hold| used(hold).id = QuoteId(Uuid::from_u128(1)),
        QuoteRefusal::Unknown,
    );
    wrong(&|hold| hold.payer = user("alice"), QuoteRefusal::OtherPayer);
    wrong(
        &|hold| hold.subject.endpoint = "other".into(),
        QuoteRefusal::OtherCall,
    );
    wrong(
        &|hold| hold.authority.as_mut().unwrap().args_hash = "bb".into(),
        QuoteRefusal::OtherCall,
    );
    wrong(
        &|hold| used(hold).revision = "2".into(),
        QuoteRefusal::ToolChanged,
    );
    let moved = QuoteRefusal::PriceMoved {
        quoted: Micros::new(100),
        now: Micros::new(101),
    };
    wrong(&|hold| hold.amount = Micros::new(101), moved);
    for (hold, refusal) in tries {
        assert_eq!(bench.take(hold), refused(refusal));
        assert_eq!(bench.quote(quote.id), quote);
    }
    // A lower price is the price.
    let hold = bench.quoted_hold(&Payer::Pool, 90, &quote);
    let call = bench.take(hold).unwrap();
    let stored = bench.quote(quote.id);
    assert_eq!(
        (stored.state, stored.call),
        (QuoteState::Consumed, Some(call.call))
    );
    let again = bench.quoted_hold(&Payer::Pool, 90, &quote);
    assert_eq!(
        bench.take(again),
        refused(QuoteRefusal::Ended(QuoteState::Consumed))
    );
    assert_eq!(
        bench.cancel_quote(quote.id, &Payer::Pool),
        refused(QuoteRefusal::Ended(QuoteState::Consumed))
    );
    bench.capture(&call, 90, 0, true).unwrap();
    assert_eq!(bench.balance(&Payer::Pool).posted.get(), 910);
}

#[test]
fn what_is_over_cannot_be_used_and_what_was_not_sent_gives_the_quote_back() {
    let mut bench = Bench::new();
    bench.grant(user("alice"), 1_000).unwrap();
    let alice = user("alice");
    let quote = bench.open_quote(&alice, 100);
    // Too poor for the call: the quote stays.
    bench.spend(&alice, 950);
    let hold = bench.quoted_hold(&alice, 100, &quote);
    assert!(matches!(
        bench.take(hold),
        Err(Rejection::InsufficientCredits { .. })
    ));
    assert_eq!(bench.quote(quote.id).state, QuoteState::Open);
    bench.grant(alice.clone(), 1_000).unwrap();
    let hold = bench.quoted_hold(&alice, 100, &quote);
    let call = bench.take(hold).unwrap();
    bench.release(&call).unwrap();
    assert_eq!(bench.quote(quote.id), quote);
    // Sent and lost: it was used.
    let hold = bench.quoted_hold(&alice, 100, &quote);
    let call = bench.take(hold).unwrap();
    bench.run(Action::MarkDispatched(call.clone())).unwrap();
    bench.run(Action::Expire(call)).unwrap();
    assert_eq!(bench.quote(quote.id).state, QuoteState::Consumed);

    let late = bench.open_quote(&alice, 100);
    let gone = bench.open_quote(&alice, 100);
    assert_eq!(
        bench.cancel_quote(gone.id, &user("bob")),
        refused(QuoteRefusal::Unknown)
    );
    for changed in [true, false] {
        match bench.cancel_quote(gone.id, &alice) {
            Ok(Outcome::Quote { changed: now, .. }) => assert_eq!(now, changed),
            other => panic!("{other:?}"),
        }
    }
    let hold = bench.quoted_hold(&alice, 100, &gone);
    assert_eq!(
        bench.take(hold),
        refused(QuoteRefusal::Ended(QuoteState::Canceled))
    );
    bench.at = late.expires_at;
    let hold = bench.quoted_hold(&alice, 100, &late);
    assert_eq!(
        bench.take(hold),
        refused(QuoteRefusal::Ended(QuoteState::Expired))
    );
    let mut dear = bench.new_quote(&alice, 100);
    dear.max_charge = Some(Micros::new(99));
    assert!(bench.run(Action::OpenQuote(Box::new(dear))).is_err());
    let nobody = bench.new_quote(&user("nobody"), 100);
    assert_eq!(
        bench.run(Action::OpenQuote(Box::new(nobody))),
        Err(Rejection::UnknownEndUser)
    );
}

#[test]
fn an_approval_is_used_once_for_its_call_and_no_more_than_its_amount() {
    let mut bench = Bench::new();
    bench.strict_alice();
    let required = Err(Rejection::ApprovalRequired {
        threshold: Micros::new(10),
    });
    let (first, fresh) = bench.wish(ApprovalKind::Spend, "aa", 100).unwrap();
    assert!(fresh);
    assert_eq!(
        bench.wish(ApprovalKind::Quote, "aa", 90).unwrap(),
        (first.clone(), false)
    );
    let tried = |bench: &mut Bench, micros, args, id| {
        let hold = bench.approved_hold(micros, args, id);
        bench.take(hold)
    };
    // Cheap calls need none and use none.
    let cheap = tried(&mut bench, 10, "aa", Some(first.id)).unwrap();
    assert_eq!(
        bench
            .books
            .holds
            .get(&(TENANT, cheap.call))
            .unwrap()
            .call
            .approval,
        None
    );
    assert_eq!(tried(&mut bench, 100, "aa", Some(first.id)), required);
    assert_eq!(bench.decide(first.id, true), Ok(true));
    assert_eq!(bench.decide(first.id, true), Ok(false));
    assert_eq!(
        bench.approval(first.id).expires_at,
        bench.at.plus_millis(APPROVED_MS)
    );
    assert_eq!(tried(&mut bench, 101, "aa", Some(first.id)), required);
    assert_eq!(tried(&mut bench, 100, "bb", Some(first.id)), required);
    assert_eq!(tried(&mut bench, 100, "aa", None), required);
    let call = tried(&mut bench, 100, "aa", Some(first.id)).unwrap();
    assert_eq!(bench.approval(first.id).state, ApprovalState::Consumed);
    assert_eq!(tried(&mut bench, 100, "aa", Some(first.id)), required);
    assert_eq!(
        bench.decide(first.id, false),
        Err(Rejection::ApprovalNotOpen(ApprovalState::Consumed))
    );
    // Nothing was sent: it can be used again, and then taken back.
    bench.release(&call).unwrap();
    assert_eq!(bench.approval(first.id).state, ApprovalState::Approved);
    assert_eq!(bench.decide(first.id, false), Ok(true));
    assert_eq!(tried(&mut bench, 100, "aa", Some(first.id)), required);
    assert_eq!(
        bench.decide(first.id, true),
        Err(Rejection::ApprovalNotOpen(ApprovalState::Denied))
    );
    // A dearer wish takes the place of one that would not cover it.
    let (small, _) = bench.wish(ApprovalKind::Spend, "aa", 50).unwrap();
    let (large, fresh) = bench.wish(ApprovalKind::Spend, "aa", 51).unwrap();
    assert!(fresh && small.id != large.id);
    assert_eq!(bench.approval(small.id).state, ApprovalState::Canceled);
    // Time ends both kinds.
    bench.decide(large.id, true).unwrap();
    bench.at = bench.at.plus_millis(APPROVED_MS);
    assert_eq!(tried(&mut bench, 51, "aa", Some(large.id)), required);
    let (waiting, _) = bench.wish(ApprovalKind::Spend, "aa", 51).unwrap();
    assert_eq!(bench.approval(large.id).state, ApprovalState::Expired);
    bench.at = bench.at.plus_millis(PENDING_MS);
    assert_eq!(
        bench.decide(waiting.id, true),
        Err(Rejection::ApprovalNotOpen(ApprovalState::Expired))
    );
}

#[test]
fn access_is_given_in_the_command_that_approves_it() {
    let mut bench = Bench::new();
    bench.grant(user("alice"), 1_000).unwrap();
    assert_eq!(
        bench.wish(ApprovalKind::ToolAccess, "", 0).map(drop),
        Err(Rejection::ToolAllowed)
    );
    let policy = Policy {
        allowed_tools: Some(vec!["up/*".to_owned()]),
        ..Policy::default()
    };
    bench.set_policy("alice", policy).unwrap();
    let (wish, _) = bench.wish(ApprovalKind::ToolAccess, "", 0).unwrap();
    bench.decide(wish.id, true).unwrap();
    let tools = bench.end_user("alice").policy.allowed_tools.clone().unwrap();
    assert_eq!(tools, ["up/*", SLUG]);
    assert_eq!(
        bench.wish(ApprovalKind::ToolAccess, "", 0).map(drop),
        Err(Rejection::ToolAllowed)
    );
    // It stays approved, and cannot be taken back here.
    bench.at = bench.at.plus_millis(PENDING_MS);
    assert_eq!(
        bench.approval(wish.id).state_at(bench.at),
        ApprovalState::Approved
    );
    assert_eq!(
        bench.decide(wish.id, false),
        Err(Rejection::ApprovalNotOpen(ApprovalState::Approved))
    );
    // A policy names a bounded number of tools.
    let many = (0..200).map(|n| format!("up/t{n}")).collect();
    let policy = Policy {
        allowed_tools: Some(many),
        ..Policy::default()
    };
    bench.set_policy("alice", policy).unwrap();
    let (wish, _) = bench.wish(ApprovalKind::ToolAccess, "", 0).unwrap();
    assert_eq!(
        bench.decide(wish.id, true),
        Err(Rejection::PolicyFull { limit: 200 })
    );
}

#[test]
fn an_end_user_has_a_bounded_number_open_and_none_after_it_left() {
    let mut bench = Bench::new();
    bench.strict_alice();
    for n in 0..MAX_OPEN {
        bench.wish(ApprovalKind::Spend, &n.to_string(), 100).unwrap();
    }
    assert_eq!(
        bench.wish(ApprovalKind::Spend, "more", 100).map(drop),
        Err(Rejection::TooManyApprovals { limit: MAX_OPEN })
    );
    // What has expired makes room.
    bench.at = bench.at.plus_millis(PENDING_MS);
    let (pending, _) = bench.wish(ApprovalKind::Spend, "a", 100).unwrap();
    let (approved, _) = bench.wish(ApprovalKind::Spend, "b", 100).unwrap();
    let (denied, _) = bench.wish(ApprovalKind::Spend, "c", 100).unwrap();
    bench.decide(approved.id, true).unwrap();
    bench.decide(denied.id, false).unwrap();
    let quote = bench.open_quote(&user("alice"), 100);
    assert!(quote.needs_approval);
    bench.spend_all("alice");
    let retired = |canceled| Outcome::Retired {
        already: canceled == 0,
        revoked_agents: 0,
        revoked_tokens: 0,
        canceled_approvals: canceled,
        policy_reset: canceled > 0,
    };
    assert_eq!(bench.retire("alice"), Ok(retired(2)));
    assert_eq!(bench.retire("alice"), Ok(retired(0)));
    for (id, state) in [
        (pending.id, ApprovalState::Canceled),
        (approved.id, ApprovalState::Canceled),
        (denied.id, ApprovalState::Denied),
    ] {
        assert_eq!(bench.approval(id).state, state);
    }
    assert_eq!(bench.quote(quote.id).state, QuoteState::Canceled);
    assert_eq!(
        bench.wish(ApprovalKind::Spend, "d", 100).map(drop),
        Err(Rejection::EndUserRetired)
    );
}

impl Bench {
    /// Moves everything that an end user has back to the pool.
    fn spend_all(&mut self, name: &str) {
        let amount = self.balance(&user(name)).posted;
        self.run(Action::Move(Move {
            end_user: external(name),
            to_end_user: false,
            amount,
            reference: "r".into(),
            claim: None,
        }))
        .unwrap();
    }
}

#[derive(Clone, Copy, Debug)]
struct Op {
    what: u8,
    which: usize,
    micros: i64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is done in whatever order: the audit finds every used quote and approval at one call, and no call was
    /// held for more than was said (the bench audits and checks that refused commands change nothing).
    #[test]
    fn quotes_and_approvals_are_used_once_whatever_happens(
        ops in proptest::collection::vec((0_u8..11, 0_usize..4, 1_i64..40), 1..60)
    ) {
        let mut bench = Bench::new();
        bench.strict_alice();
        let alice = user("alice");
        let (mut quotes, mut approvals, mut calls): (Vec<Quote>, Vec<ApprovalId>, Vec<CallRef>) =
            (Vec::new(), Vec::new(), Vec::new());
        for (what, which, micros) in ops {
            let op = Op { what, which, micros };
            let quote = quotes.iter().rev().nth(op.which).cloned();
            let approval = approvals.iter().rev().nth(op.which).copied();
            let call = calls.iter().rev().nth(op.which).cloned();
            match (op.what, quote, call) {
                (0, _, _) => quotes.push(bench.open_quote(&alice, op.micros)),
                (1..=3, Some(quote), _) => {
                    let mut hold = bench.quoted_hold(&alice, op.micros, &quote);
                    hold.authority.as_mut().unwrap().approval = approval;
                    let state = bench.quote(quote.id).state_at(bench.at);
                    let held = bench.take(hold);
                    if let Ok(call) = held {
                        prop_assert_eq!(state, QuoteState::Open);
                        prop_assert!(op.micros <= quote.charge.effective.get());
                        calls.push(call);
                    }
                }
                (4, _, _) => {
                    if let Ok((wish, _)) = bench.wish(ApprovalKind::Spend, "aa", op.micros) {
                        approvals.push(wish.id);
                    }
                }
                (5, _, _) => {
                    if let Some(id) = approval {
                        drop(bench.decide(id, op.micros % 4 > 0));
                    }
                }
                (6, Some(quote), _) => drop(bench.cancel_quote(quote.id, &alice)),
                (7, _, Some(call)) => drop(bench.release(&call)),
                (8, _, Some(call)) => drop(bench.run(Action::MarkDispatched(call))),
                (9, _, Some(call)) => drop(bench.capture(&call, op.micros, 0, true)),
                (10, _, Some(call)) => {
                    bench.at = bench.at.plus_millis(MINUTE / 3);
                    drop(bench.run(Action::Expire(call)));
                }
                _ => {}
            }
            prop_assert_eq!(bench.audit(), Vec::<String>::new());
        }
    }
}
