//! Random commands of paid calls, each repeated and in any order: after each of them the books hold.

use proptest::prelude::*;

use super::paid_calls::*;
use super::*;
use crate::ledger::paid_call::*;

/// What a caller, two processes and a sweeper do, with numbers that pick to what.
#[derive(Clone, Copy, Debug)]
struct Op {
    what: u8,
    id: u8,
    key: u8,
    payer: u8,
    amount: usize,
    flag: bool,
}

fn op() -> impl Strategy<Value = Op> {
    (0_u8..12, 0_u8..3, 0_u8..3, 0_u8..2, 0_usize..5, any::<bool>()).prop_map(
        |(what, id, key, payer, amount, flag)| Op {
            what,
            id,
            key,
            payer,
            amount,
            flag,
        },
    )
}

impl Op {
    fn new_call(self) -> NewPaidCall {
        let key = format!("exact:{}:{}", self.payer, self.key);
        let mut new = new_call(self.id.into(), &key, wallet(self.payer));
        if self.id == 2 {
            // Nobody is asked for it.
            new.subject.provider = None;
            new.subject.base = Micros::ZERO;
        }
        new
    }

    fn apply(self, bench: &mut Bench) -> Answer {
        let amount = [0, 1, 400, 700, MAX][self.amount];
        let base = amount / 2;
        let key = (TENANT, RequestId(Uuid::from_u128(self.id.into())));
        let found = bench.books.paid_calls.get(&key).map(PaidCall::reference);
        // Mostly the call as it is, at times one that is not there like that.
        let call = found
            .filter(|_| self.key > 0)
            .unwrap_or_else(|| named(&self.new_call()));
        let with_drift = self.flag && self.id != 2;
        let tries = bench.books.paid_calls.get(&key).map_or(0, |call| call.tries);
        match self.what {
            0..=4 => bench.claim_paid(&self.new_call()),
            5 | 6 => bench.finish_with(
                &call,
                charge(base, amount - base),
                with_drift.then(|| above(amount)),
            ),
            7 => bench.fail_paid(&call, "UPSTREAM_ERROR", with_drift.then(|| above(amount))),
            8 => bench.abandon_paid(&call),
            9 => bench.lease_paid(&call, tries.saturating_sub(u32::from(self.flag))),
            10 => bench.settle_paid(&call, settled(amount)),
            _ => bench.settle_paid(
                &call,
                [refused(), unknown(), void(), void(), refused()][self.amount].clone(),
            ),
        }
    }
}

#[derive(Default)]
struct Seen {
    sent: BTreeMap<Arc<str>, u32>,
    settled: BTreeMap<Arc<str>, u32>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    // Fault matrix 56, 185 to 194
    #[test]
    fn no_sequence_of_commands_sends_or_settles_twice(ops in prop::collection::vec(op(), 20..80)) {
        let mut bench = Bench::new();
        let mut seen = Seen::default();
        for op in ops {
            let before = rows(&bench.books.paid_calls);
            let entries = bench.transfers.len();
            let answered = op.apply(&mut bench);
            let expected = !matches!(answered, Err(Rejection::NotLoaded(_) | Rejection::Overflow));
            prop_assert!(expected, "{op:?}: {answered:?}");
            if let Ok((call, changed)) = answered {
                let was = before.get(&(TENANT, call.id)).map(|call| call.state);
                let key = call.payment.key.clone();
                if !changed {
                    prop_assert_eq!(&before, &rows(&bench.books.paid_calls));
                    prop_assert_eq!(entries, bench.transfers.len());
                } else if call.state == PaidCallState::Dispatched && was != Some(PaidCallState::Dispatched) {
                    *seen.sent.entry(key).or_default() += 1;
                } else if call.settlement.is_some() {
                    let before = before.get(&(TENANT, call.id));
                    prop_assert!(before.is_none_or(|before| before.settlement.is_none()));
                    *seen.settled.entry(key).or_default() += 1;
                }
            }
            // A payment that was once sent or settled stays with its request.
            prop_assert!(seen.sent.values().all(|times| *times == 1), "{:?}", seen.sent);
            prop_assert!(seen.settled.values().all(|times| *times == 1), "{:?}", seen.settled);
            for payer in 0..2 {
                let (held, calls, _) = bench.wallet(wallet(payer));
                prop_assert!((0..=CAP.amount.get()).contains(&held) && (0..=CAP.calls).contains(&calls));
            }
            prop_assert_eq!(bench.check(), Vec::<String>::new(), "{:?}", op);
            prop_assert_eq!(bench.audit(), Vec::<String>::new(), "{:?}", op);
        }
    }
}
