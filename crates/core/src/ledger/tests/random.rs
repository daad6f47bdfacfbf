//! Random commands of every kind, told in any order and any number of times: after each of them the books hold.

use proptest::prelude::*;

use super::topups::{CENTS, says};
use super::*;
use crate::ledger::policy::Policy;

/// What to do, with numbers that pick whom and how much.
#[derive(Clone, Copy, Debug)]
struct Op {
    what: u8,
    who: usize,
    which: usize,
    part: usize,
    how: usize,
    flag: bool,
}

fn op() -> impl Strategy<Value = Op> {
    // Reports are the larger half.
    let what = prop_oneof![4 => 0_u8..16, 1 => Just(16_u8), 2 => Just(17_u8), 4 => 18_u8..20];
    (
        what,
        0_usize..3,
        0_usize..6,
        0_usize..4,
        0_usize..4,
        any::<bool>(),
    )
        .prop_map(|(what, who, which, part, how, flag)| Op {
            what,
            who,
            which,
            part,
            how,
            flag,
        })
}

#[derive(Default)]
struct Known {
    calls: Vec<CallRef>,
    topups: Vec<TopupRef>,
    refunds: Vec<(TopupRef, RefundId)>,
    tokens: Vec<TokenId>,
}

const NAMES: [&str; 2] = ["alice", "bob"];
/// Of a payment, in cents; the last is more than was paid.
const PARTS: [i64; 4] = [1, 400, CENTS, 2 * CENTS];

impl Op {
    fn payer(self) -> Payer {
        NAMES.get(self.who).map_or(Payer::Pool, |name| user(name))
    }

    fn name(self) -> &'static str {
        NAMES[self.who % 2]
    }

    fn micros(self) -> i64 {
        [7, 900_000, 10_000_000, 11_000_000][self.part]
    }

    fn margin(self) -> i64 {
        [0, 3, 7, 5][self.how]
    }

    fn cents(self) -> i64 {
        PARTS[self.part]
    }

    fn event(self) -> Option<Arc<str>> {
        self.flag
            .then(|| format!("evt_{}_{}_{}_{}", self.what, self.which, self.part, self.how).into())
    }

    /// Money that comes, goes and is moved; calls.
    fn act(self, bench: &mut Bench, known: &mut Known) -> Option<Result<Outcome, Rejection>> {
        let call = known.calls.iter().rev().nth(self.which).cloned();
        Some(match self.what {
            0 => bench.grant(self.payer(), self.micros()),
            1 => bench.run(Action::Move(Move {
                end_user: external(self.name()),
                to_end_user: self.flag,
                amount: Micros::new(self.micros()),
                reference: "r".into(),
                claim: None,
            })),
            2 | 3 => {
                let mut hold = bench.new_hold(&self.payer(), self.micros());
                hold.token = known.tokens.get(self.which).copied().filter(|_| self.flag);
                let held = bench.take(hold);
                known.calls.extend(held.as_ref().ok().cloned());
                held.map(|_| Outcome::Dispatched)
            }
            4 => bench.run(Action::MarkDispatched(call?)),
            5 | 6 => bench.capture(&call?, self.micros() - self.margin(), self.margin(), self.flag),
            7 => bench.run(Action::FinishStream(Box::new(FinishStream {
                call: call?,
                charge: charge(self.micros() - self.margin(), self.margin()),
                refund_kind: "stream_true_up",
                usage: None,
                drift: None,
                failure: None,
                outcome: outcome(),
            }))),
            8 => bench.release(&call?),
            9 => bench.run(Action::Expire(call?)),
            _ => return self.administer(bench, known),
        })
    }

    fn administer(self, bench: &mut Bench, known: &mut Known) -> Option<Result<Outcome, Rejection>> {
        Some(match self.what {
            10 => {
                let ceiling = self.flag.then(|| self.micros());
                let minted = bench.mint(self.name(), ceiling, None);
                known.tokens.extend(minted.as_ref().ok().copied());
                minted.map(|_| Outcome::Minted)
            }
            11 => bench.revoke(
                self.name(),
                known.tokens.get(self.which).copied().filter(|_| self.flag),
            ),
            12 => bench.set_policy(
                self.name(),
                Policy {
                    max_usd_per_day: self.flag.then(|| Micros::new(self.micros())),
                    ..Policy::default()
                },
            ),
            13 => bench.freeze(&self.payer(), self.flag && self.how == 0),
            14 => {
                let left = bench.account(&user(self.name())).available();
                if self.how > 1 {
                    return None;
                }
                if !left.is_zero() {
                    return Some(bench.run(Action::Move(Move {
                        end_user: external(self.name()),
                        to_end_user: false,
                        amount: left,
                        reference: "all of it".into(),
                        claim: None,
                    })));
                }
                bench.retire(self.name())
            }
            15 => {
                bench.at = bench.at.plus_millis([1, 60_000, 1_800_000, 86_400_000][self.how]);
                return None;
            }
            _ => return self.pay(bench, known),
        })
    }

    fn pay(self, bench: &mut Bench, known: &mut Known) -> Option<Result<Outcome, Rejection>> {
        if self.what == 16 && self.how < 2 {
            let auto = self.who == 2 && self.flag;
            let mut new = bench.new_topup(&self.payer());
            new.saves_method = true;
            if auto {
                new.source = TopupSource::AutoReload;
            }
            let named = new.topup();
            let action = if auto {
                Action::BeginAutoTopup
            } else {
                Action::OpenTopup
            };
            let opened = bench.run(action(Box::new(new)));
            known.topups.extend(opened.is_ok().then_some(named));
            return Some(opened);
        }
        let topup = known.topups.iter().rev().nth(self.which)?.clone();
        Some(match self.what {
            16 => {
                let cents = (self.part < 3).then(|| self.cents());
                let opened = bench.refund(&topup, cents);
                known.refunds.extend(opened.as_ref().ok().map(|id| (topup, *id)));
                opened.map(|_| Outcome::Dispatched)
            }
            17 => {
                use PaymentState::{Expired, Failed, Paid, Processing};
                let mut report = says(
                    &topup,
                    [Paid, Paid, Failed, [Processing, Expired][self.who % 2]][self.how],
                );
                report.event = self.event();
                report.cents -= i64::from(self.part == 0);
                report.customer = Some("cus_1".into());
                report.method = Some("pm_1".into());
                bench.told(report)
            }
            18 => {
                use RefundState::{Canceled, Failed, Pending, Succeeded};
                let ours = known
                    .refunds
                    .iter()
                    .rev()
                    .nth(self.who)
                    .filter(|_| self.flag)
                    .cloned();
                let (topup, refund, reference) = match ours {
                    Some((topup, id)) => (topup, Some(id), format!("re_{id}")),
                    None => (topup, None, format!("re_{}", self.who)),
                };
                bench.refund_report(RefundReport {
                    topup,
                    event: self.event().filter(|_| refund.is_none()),
                    refund,
                    reference: (refund.is_none() || self.part > 0).then(|| reference.into()),
                    cents: self.cents(),
                    state: [Succeeded, Pending, Failed, [Succeeded, Canceled][self.who % 2]][self.how],
                    failure: None,
                })
            }
            _ => {
                use DisputeState::{Lost, Open, Warning, Won};
                bench.run(Action::DisputeReport(Box::new(DisputeReport {
                    topup,
                    event: self.event(),
                    reference: format!("dp_{}", self.who).into(),
                    cents: self.cents(),
                    state: [Open, Lost, Won, Warning][self.how],
                    reason: "fraudulent".into(),
                    due_by: None,
                })))
            }
        })
    }
}

/// A refusal that a random command may meet; anything else is a defect.
fn expected(refused: &Rejection) -> bool {
    !matches!(refused, Rejection::NotLoaded(_) | Rejection::Overflow)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn every_sequence_of_all_commands_keeps_the_books(ops in prop::collection::vec(op(), 40..100)) {
        let mut bench = Bench::new();
        let mut known = Known::default();
        for name in NAMES {
            bench.set_policy(name, Policy::default()).unwrap();
        }
        bench.run(Action::SetAutoTopup(AutoTopupChoice {
            enabled: true,
            threshold: Micros::MAX,
            amount: Micros::new(10_000_000),
            monthly_cap: Some(Micros::new(30_000_000)),
        })).unwrap();
        known.topups.push(bench.paid(&user("alice")));
        known.topups.push(bench.paid(&Payer::Pool));
        // Paid late, and perhaps when bob is gone.
        let late = bench.open_topup(&user("bob"));
        bench.told(says(&late, PaymentState::Expired)).unwrap();
        known.topups.push(late);
        for op in ops {
            let Some(result) = op.act(&mut bench, &mut known) else { continue };
            if let Err(refused) = &result {
                prop_assert!(expected(refused), "{op:?}: {refused:?}");
                // What the processor tells of a top-up that we know is never refused.
                let report = op.what >= 17;
                prop_assert!(!report, "{op:?}: {refused:?}");
            }
            prop_assert_eq!(bench.check(), Vec::<String>::new(), "{:?}", op);
        }
        prop_assert_eq!(bench.audit(), Vec::<String>::new());
    }
}
