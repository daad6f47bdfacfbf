//! Paid calls: claimed once, sent once, settled at most once, whatever is repeated and in whatever order.

use super::*;
use crate::ledger::paid_call::*;
use crate::ledger::transfer::Cause;
use crate::x402::{Address, SettleResponse};

pub(super) const MAX: i64 = 1_000;
const BASE: i64 = 600;
pub(super) const CAP: PayerCap = PayerCap {
    amount: Micros::new(3 * MAX),
    calls: 3,
};

pub(super) fn wallet(number: u8) -> Address {
    Address([number; 20])
}

pub(super) fn new_call(id: u128, key: &str, payer: Address) -> NewPaidCall {
    NewPaidCall {
        id: RequestId(Uuid::from_u128(id)),
        subject: PaidSubject {
            operation: Operation::Chat,
            body_hash: "b0d1".into(),
            provider: Some("sim".into()),
            model: Some("vendor-v4-flash".into()),
            price: "{}".into(),
            base: Micros::new(BASE),
        },
        payment: Payment {
            by: PaidBy::X402,
            simulated: false,
            key: key.into(),
            payer,
            network: "eip155:8453".into(),
            asset: "0xa5".into(),
            pay_to: "0x70".into(),
            max: Micros::new(MAX),
            valid_before: Timestamp::from_millis(1_790_000_300_000),
            signed: Some("{}".into()),
        },
        instance: Uuid::nil(),
        due_at: Timestamp::from_millis(1_790_000_060_000),
        cap: CAP,
    }
}

pub(super) fn named(new: &NewPaidCall) -> PaidCallRef {
    PaidCallRef {
        id: new.id,
        payer: new.payment.payer,
        key: new.payment.key.clone(),
    }
}

pub(super) fn above(loss: i64) -> Drift {
    Drift {
        kind: DriftKind::AboveHold,
        detail: "d".into(),
        loss: Micros::new(loss),
    }
}

pub(super) fn settled(amount: i64) -> SettlementProgress {
    SettlementProgress::Settled {
        amount: Micros::new(amount),
        transaction: "0xfeed".into(),
        response: "{\"success\":true}".into(),
    }
}

pub(super) fn refused() -> SettlementProgress {
    SettlementProgress::Refused {
        response: "{\"success\":false}".into(),
    }
}

pub(super) fn unknown() -> SettlementProgress {
    SettlementProgress::Unknown {
        due_at: Timestamp::from_millis(7),
    }
}

pub(super) fn void() -> SettlementProgress {
    SettlementProgress::Void {
        reason: "nonce used".into(),
    }
}

fn read(answered: Result<Outcome, Rejection>) -> Result<(PaidCall, bool), Rejection> {
    answered.map(|outcome| {
        let Outcome::PaidCall { call, changed } = outcome else {
            panic!("{outcome:?}")
        };
        (*call, changed)
    })
}

pub(super) type Answer = Result<(PaidCall, bool), Rejection>;

impl Bench {
    pub(super) fn claim_paid(&mut self, new: &NewPaidCall) -> Answer {
        read(self.run(Action::ClaimPaidCall(Box::new(new.clone()))))
    }

    pub(super) fn finish_with(&mut self, call: &PaidCallRef, charge: Charge, drift: Option<Drift>) -> Answer {
        read(self.run(Action::FinishPaidCall(Box::new(FinishPaidCall {
            call: call.clone(),
            charge,
            usage: None,
            drift,
            outcome: outcome(),
            due_at: self.at.plus_millis(30_000),
        }))))
    }

    fn finish_paid(&mut self, call: &PaidCallRef, base: i64, margin: i64) -> Answer {
        self.finish_with(call, charge(base, margin), None)
    }

    pub(super) fn fail_paid(&mut self, call: &PaidCallRef, failure: &str, drift: Option<Drift>) -> Answer {
        read(self.run(Action::FailPaidCall(FailPaidCall {
            call: call.clone(),
            failure: failure.into(),
            drift,
        })))
    }

    pub(super) fn abandon_paid(&mut self, call: &PaidCallRef) -> Answer {
        read(self.run(Action::AbandonPaidCall(call.clone())))
    }

    pub(super) fn lease_paid(&mut self, call: &PaidCallRef, tries: u32) -> Answer {
        read(self.run(Action::LeaseSettlement(LeaseSettlement {
            call: call.clone(),
            instance: Uuid::from_u128(9),
            due_at: self.at.plus_millis(90_000),
            tries,
        })))
    }

    pub(super) fn settle_paid(&mut self, call: &PaidCallRef, progress: SettlementProgress) -> Answer {
        read(self.run(Action::ReportSettlement(SettlementReport {
            tries: None,
            call: call.clone(),
            progress,
        })))
    }

    /// Held by a wallet, its calls, and what it paid.
    pub(super) fn wallet(&self, payer: Address) -> (i64, i64, i64) {
        let row = self.books.accounts.get(&PaidCall::account(TENANT, payer));
        let account = row.copied().unwrap_or_default();
        (account.held.get(), account.open_calls, -account.posted.get())
    }

    /// A call that is `settling` with a charge of 400 and 100.
    fn settling(&mut self) -> PaidCallRef {
        let new = new_call(1, "exact:one", wallet(1));
        self.claim_paid(&new).unwrap();
        self.finish_paid(&named(&new), 400, 100).unwrap();
        named(&new)
    }

    /// Provider cost, margin, and the operator's loss.
    fn public(&self) -> (i64, i64, i64) {
        (
            self.posted(AccountKind::ProviderCost),
            self.posted(AccountKind::Margin),
            -self.posted(AccountKind::OperatorLoss),
        )
    }
}

fn not_open(state: PaidCallState) -> Answer {
    Err(Rejection::PaidCallNotOpen(state))
}

#[test]
fn a_paid_call_is_claimed_sent_finished_and_settled() {
    let mut bench = Bench::new();
    let call = bench.settling();
    assert_eq!(bench.wallet(wallet(1)), (MAX, 1, 0));
    assert_eq!(bench.public(), (0, 0, 0));
    let (paid, changed) = bench.settle_paid(&call, settled(500)).unwrap();
    assert!(changed);
    assert_eq!(
        (paid.state, paid.loss, paid.payment.signed, paid.ended_at),
        (PaidCallState::Settled, Micros::ZERO, None, Some(bench.at))
    );
    assert_eq!(bench.wallet(wallet(1)), (0, 0, 500));
    assert_eq!(bench.public(), (400, 100, 0));
    let causes: Vec<Cause> = bench.transfers.iter().map(|transfer| transfer.cause).collect();
    assert_eq!(causes, [Cause::PublicCharge, Cause::PublicMargin]);
    for transfer in &bench.transfers {
        // The request's id fetches the answer, so no transfer shows it.
        assert_ne!(transfer.call, Some(CallId(call.id.0)));
        assert_eq!(&*transfer.reference, "0xfeed");
    }
}

// Fault matrix 186 to 188, 198
#[test]
fn a_request_and_a_payment_belong_to_each_other() {
    let mut bench = Bench::new();
    let new = new_call(1, "exact:one", wallet(1));
    assert!(bench.claim_paid(&new).unwrap().1);
    assert!(!bench.claim_paid(&new).unwrap().1);
    let mut body = new.clone();
    body.subject.body_hash = "other".into();
    let mut operation = new.clone();
    operation.subject.operation = Operation::Fim;
    let mut key = new.clone();
    key.payment.key = "exact:two".into();
    let mut payer = new.clone();
    payer.payment.payer = wallet(2);
    let mut id = new.clone();
    id.id = RequestId(Uuid::from_u128(2));
    for other in [body, operation, key, payer, id] {
        assert_eq!(bench.claim_paid(&other), Err(Rejection::PaidCallConflict));
    }
    // A later command that names another payment does nothing.
    let mut wrong = named(&new);
    wrong.payer = wallet(2);
    assert!(matches!(
        bench.finish_paid(&wrong, 1, 0),
        Err(Rejection::Mismatch(_))
    ));
    wrong = named(&new);
    wrong.id = RequestId(Uuid::from_u128(2));
    assert_eq!(bench.finish_paid(&wrong, 1, 0), Err(Rejection::UnknownPaidCall));
    assert_eq!(bench.wallet(wallet(1)), (MAX, 1, 0));
}

#[test]
fn a_claim_is_refused_for_what_makes_no_sense() {
    let mut bench = Bench::new();
    let mut nothing = new_call(1, "exact:one", wallet(1));
    nothing.payment.max = Micros::ZERO;
    assert_eq!(bench.claim_paid(&nothing), Err(Rejection::NotPositive));
    let mut short = new_call(1, "exact:one", wallet(1));
    short.subject.base = Micros::new(MAX + 1);
    assert!(matches!(bench.claim_paid(&short), Err(Rejection::Mismatch(_))));
    let mut head = *bench.books.tenants.get(&TENANT).unwrap();
    head.status = TenantStatus::Suspended;
    bench.books.tenants.load(TENANT, Some(head));
    let refused = bench.claim_paid(&new_call(1, "exact:one", wallet(1)));
    assert_eq!(refused, Err(Rejection::TenantNotActive(TenantStatus::Suspended)));
}

#[test]
fn a_wallet_has_no_more_open_than_its_cap() {
    let mut bench = Bench::new();
    let calls: Vec<NewPaidCall> = (1_u8..=4)
        .map(|number| new_call(number.into(), &format!("exact:{number}"), wallet(1)))
        .collect();
    for call in &calls[..3] {
        bench.claim_paid(call).unwrap();
    }
    let reached = Err(Rejection::PayerCapReached {
        open: Micros::new(3 * MAX),
        calls: 3,
    });
    assert_eq!(bench.claim_paid(&calls[3]), reached);
    let mut wider = calls[3].clone();
    wider.cap.calls = 4;
    assert_eq!(bench.claim_paid(&wider), reached, "the sum");
    wider.cap.amount = Micros::MAX;
    wider.cap.calls = 3;
    assert_eq!(bench.claim_paid(&wider), reached, "the number");
    // Another wallet has its own, and a repeat of an open call takes nothing.
    bench.claim_paid(&new_call(9, "exact:nine", wallet(2))).unwrap();
    assert!(!bench.claim_paid(&calls[0]).unwrap().1);
    bench.abandon_paid(&named(&calls[0])).unwrap();
    assert!(bench.claim_paid(&calls[3]).unwrap().1);
}

// Fault matrix 189
#[test]
fn a_request_is_sent_once() {
    let mut bench = Bench::new();
    let new = new_call(1, "exact:one", wallet(1));
    let (claimed, sends) = bench.claim_paid(&new).unwrap();
    assert_eq!((claimed.state, sends), (PaidCallState::Dispatched, true));
    assert_eq!(claimed.dispatched_at, Some(bench.at));
    assert_eq!(
        bench.claim_paid(&new),
        Ok((claimed, false)),
        "whoever comes second"
    );
    let call = named(&new);
    for progress in [settled(1), refused(), unknown(), void()] {
        assert_eq!(
            bench.settle_paid(&call, progress),
            not_open(PaidCallState::Dispatched)
        );
    }
    assert_eq!(bench.lease_paid(&call, 0), not_open(PaidCallState::Dispatched));
}

#[test]
fn what_is_settled_is_within_what_was_authorised() {
    let mut bench = Bench::new();
    let new = new_call(1, "exact:one", wallet(1));
    bench.claim_paid(&new).unwrap();
    let call = named(&new);
    assert!(matches!(
        bench.finish_paid(&call, MAX, 1),
        Err(Rejection::Mismatch(_))
    ));
    assert_eq!(bench.finish_paid(&call, -1, 2), Err(Rejection::NotPositive));
    let mut crooked = charge(1, 1);
    crooked.effective = Micros::new(3);
    assert!(matches!(
        bench.finish_with(&call, crooked, None),
        Err(Rejection::Mismatch(_))
    ));
    let (finished, changed) = bench.finish_with(&call, charge(MAX, 0), Some(above(30))).unwrap();
    assert_eq!(
        (finished.state, finished.tries, finished.loss, changed),
        (PaidCallState::Settling, 1, Micros::new(30), true)
    );
    assert!(!bench.finish_with(&call, charge(MAX, 0), None).unwrap().1);
    assert_eq!(bench.finish_paid(&call, 1, 0), not_open(PaidCallState::Settling));
    assert_eq!(bench.public(), (30, 0, 30));
}

#[test]
fn a_call_that_costs_nothing_is_settled_at_once() {
    let mut bench = Bench::new();
    let mut new = new_call(1, "exact:one", wallet(1));
    new.subject.provider = None;
    bench.claim_paid(&new).unwrap();
    // Nobody is asked, so nothing has to be marked as sent.
    let (call, changed) = bench.finish_paid(&named(&new), 0, 0).unwrap();
    assert!(changed);
    assert_eq!((call.state, call.tries), (PaidCallState::Settled, 0));
    let settlement = call.settlement.unwrap();
    let response: SettleResponse = serde_json::from_str(&settlement.response).unwrap();
    assert_eq!(
        (response.success, &*response.transaction, &*response.network),
        (true, "", "eip155:8453")
    );
    assert_eq!(response.amount.as_deref(), Some("0"));
    assert_eq!(response.payer.as_deref(), Some(&*wallet(1).to_string()));
    assert_eq!(bench.wallet(wallet(1)), (0, 0, 0));
    assert!(bench.transfers.is_empty());
}

#[test]
fn a_failed_call_is_over_and_its_payment_pays_for_no_other() {
    let mut bench = Bench::new();
    let new = new_call(1, "exact:one", wallet(1));
    bench.claim_paid(&new).unwrap();
    let call = named(&new);
    let failed = bench.fail_paid(&call, "UPSTREAM_ERROR", Some(above(50))).unwrap();
    assert_eq!(failed.0.state, PaidCallState::Failed);
    assert!(
        !bench
            .fail_paid(&call, "UPSTREAM_ERROR", Some(above(50)))
            .unwrap()
            .1
    );
    assert_eq!(
        bench.fail_paid(&call, "TOO_LATE", None),
        not_open(PaidCallState::Failed)
    );
    assert_eq!(bench.finish_paid(&call, 1, 0), not_open(PaidCallState::Failed));
    assert_eq!(bench.abandon_paid(&call), not_open(PaidCallState::Failed));
    assert_eq!(bench.lease_paid(&call, 0), not_open(PaidCallState::Failed));
    // Nobody was asked to settle it, so nothing that is told of it counts.
    for progress in [settled(500), refused(), unknown(), void()] {
        assert!(!bench.settle_paid(&call, progress).unwrap().1);
    }
    assert!(!bench.claim_paid(&new).unwrap().1);
    let other = new_call(2, "exact:one", wallet(1));
    assert_eq!(bench.claim_paid(&other), Err(Rejection::PaidCallConflict));
    assert_eq!(bench.wallet(wallet(1)), (0, 0, 0));
    assert_eq!(bench.public(), (50, 0, 50));
}

/// As an earlier version wrote it before it marked the call as sent.
#[test]
fn what_was_claimed_and_not_marked_has_no_answer() {
    let mut bench = Bench::new();
    let new = new_call(1, "exact:one", wallet(1));
    let (mut call, _) = bench.claim_paid(&new).unwrap();
    (call.state, call.dispatched_at) = (PaidCallState::Claimed, None);
    bench.books.paid_calls.load((TENANT, new.id), Some(call));
    let refused = bench.finish_paid(&named(&new), 1, 1);
    assert_eq!(refused, not_open(PaidCallState::Claimed));
    assert!(bench.abandon_paid(&named(&new)).unwrap().1);
    assert_eq!((bench.wallet(wallet(1)), bench.public()), ((0, 0, 0), (0, 0, 0)));
}

// Fault matrix 56
#[test]
fn an_abandoned_call_is_gone_or_failed() {
    let mut bench = Bench::new();
    let mut new = new_call(1, "exact:one", wallet(1));
    new.subject.provider = None;
    bench.claim_paid(&new).unwrap();
    assert!(bench.abandon_paid(&named(&new)).unwrap().1);
    assert_eq!(bench.abandon_paid(&named(&new)), Err(Rejection::UnknownPaidCall));
    assert_eq!(bench.wallet(wallet(1)), (0, 0, 0));
    // The same payment may pay for another request now.
    let other = new_call(2, "exact:one", wallet(1));
    bench.claim_paid(&other).unwrap();
    let (failed, _) = bench.abandon_paid(&named(&other)).unwrap();
    assert_eq!(failed.failure.as_deref(), Some("UPSTREAM_TIMEOUT"));
    assert_eq!(failed.loss, Micros::new(BASE));
    assert_eq!(bench.public(), (BASE, 0, BASE));
    let call = bench.settling_of(3);
    assert_eq!(bench.abandon_paid(&call), not_open(PaidCallState::Settling));
}

impl Bench {
    fn settling_of(&mut self, id: u128) -> PaidCallRef {
        let new = new_call(id, &format!("upto:{id}"), wallet(3));
        self.claim_paid(&new).unwrap();
        self.finish_paid(&named(&new), 400, 100).unwrap();
        named(&new)
    }
}

// Fault matrix 193, 194
#[test]
fn a_settlement_is_refused_gone_on_with_and_settled() {
    let mut bench = Bench::new();
    let call = bench.settling();
    let (waiting, _) = bench.settle_paid(&call, unknown()).unwrap();
    assert_eq!(
        (waiting.state, waiting.due_at),
        (PaidCallState::Settling, Timestamp::from_millis(7))
    );
    let (held_back, _) = bench.settle_paid(&call, refused()).unwrap();
    assert_eq!(
        (held_back.state, held_back.due_at),
        (PaidCallState::Refused, bench.at.plus_millis(60_000))
    );
    assert!(!bench.settle_paid(&call, refused()).unwrap().1);
    assert_eq!(bench.lease_paid(&call, 0), not_open(PaidCallState::Refused));
    let (leased, _) = bench.lease_paid(&call, 1).unwrap();
    assert_eq!((leased.state, leased.tries), (PaidCallState::Settling, 2));
    assert_eq!(bench.lease_paid(&call, 1), not_open(PaidCallState::Settling));
    bench.settle_paid(&call, refused()).unwrap();
    // The chain knows better.
    bench.settle_paid(&call, settled(500)).unwrap();
    for progress in [settled(500), settled(1), refused(), unknown(), void()] {
        assert!(!bench.settle_paid(&call, progress).unwrap().1);
    }
    assert_eq!(bench.lease_paid(&call, 2), not_open(PaidCallState::Settled));
    assert_eq!(bench.wallet(wallet(1)), (0, 0, 500));
    assert_eq!(bench.public(), (400, 100, 0));
}

#[test]
fn what_moved_is_booked_even_if_it_is_not_what_was_asked_for() {
    for (moved, public, loss) in [
        (500, (400, 100, 0), 0),
        (700, (400, 300, 0), 0),
        (450, (400, 50, 0), 0),
        (300, (400, 0, 100), 100),
        (0, (400, 0, 400), 400),
        (2 * MAX, (400, 2 * MAX - 400, 0), 0),
    ] {
        for given_up in [false, true] {
            let mut bench = Bench::new();
            let call = bench.settling();
            if given_up {
                let (failed, _) = bench.settle_paid(&call, void()).unwrap();
                assert_eq!(failed.state, PaidCallState::Failed);
                assert_eq!(failed.failure.as_deref(), Some("nonce used"));
                assert_eq!(bench.wallet(wallet(1)), (0, 0, 0));
                assert_eq!(bench.public(), (400, 0, 400));
                assert!(!bench.settle_paid(&call, void()).unwrap().1);
            }
            let (paid, changed) = bench.settle_paid(&call, settled(moved)).unwrap();
            assert!(changed);
            // No answer for less than was due.
            let short = (moved < 500).then_some("payment_short");
            assert_eq!((paid.loss, paid.failure.as_deref()), (Micros::new(loss), short));
            assert_eq!(paid.state == PaidCallState::Failed, short.is_some());
            assert_eq!(bench.wallet(wallet(1)), (0, 0, moved));
            assert_eq!(bench.public(), public, "{moved} after {given_up}");
            assert!(!bench.settle_paid(&call, settled(moved)).unwrap().1);
        }
    }
    let mut bench = Bench::new();
    let call = bench.settling();
    assert_eq!(bench.settle_paid(&call, settled(-1)), Err(Rejection::NotPositive));
}
