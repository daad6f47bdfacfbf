//! Retirement races everything that could give its end user something: never do both succeed.
//!
//! Fault matrix 57, 158, 159, 161, 162. Each interleaving has an end user of its own and two clients, which begin
//! after a few yields each; whoever comes second must find what the first has done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::command::{NewTopup, PaymentState};
use turnpike_core::ledger::{AccountStatus, Action, Outcome, Payer, Rejection};
use turnpike_store::{Store, SubmitError, TopupFilter};

use crate::actions::{capture, command, external, grant, move_to, new_hold, release, user};
use crate::money_in::{mint, new_token, new_topup, open_topup, retire, told};
use crate::world::{Dice, Kind, World, all_transfers, on};

/// What races retirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rival {
    /// A call of zero cost, then its end.
    Free,
    /// The capture of the last credits, which are held: only then may retirement succeed.
    Capture,
    /// A top-up is opened and paid.
    Topup,
    /// A top-up that had expired is paid after all.
    Late,
    Grant,
    Move,
    Mint,
}

const RIVALS: [Rival; 7] = [
    Rival::Free,
    Rival::Capture,
    Rival::Topup,
    Rival::Late,
    Rival::Grant,
    Rival::Move,
    Rival::Mint,
];
const INTERLEAVINGS: usize = 1_000;
/// Of them so many at once.
const TOGETHER: usize = 25;

/// One end user and who races for it.
struct Race {
    rival: Rival,
    tenant: TenantId,
    name: String,
    stores: [Arc<dyn Store>; 2],
    /// Yields before either of the two, and between the rival's steps.
    pauses: [u64; 3],
    live_tokens: u64,
    /// Set when retirement was answered: what begins afterwards must not succeed.
    retired: AtomicBool,
    late: NewTopup,
}

async fn pause(yields: u64) {
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
}

type Answer = Result<Outcome, SubmitError>;

impl Race {
    async fn run(&self, store: usize, action: Action) -> Answer {
        let was_retired = self.retired.load(Ordering::SeqCst);
        let answer = self.stores[store].submit(command(self.tenant, action)).await;
        if was_retired && self.rival != Rival::Late {
            let refused = matches!(answer, Err(SubmitError::Rejected(Rejection::EndUserRetired)));
            assert!(
                refused,
                "{}: {:?} after retirement: {answer:?}",
                self.name, self.rival
            );
        }
        answer
    }

    /// Brings the end user to where the race begins.
    async fn prepare(&self) -> Option<turnpike_core::ledger::command::NewHold> {
        let mut actions: Vec<Action> = (0..self.live_tokens)
            .map(|_| mint(&new_token(&self.name, None)))
            .collect();
        let mut expired = new_token(&self.name, None);
        expired.token.expires_at = crate::world::NOW;
        actions.push(mint(&expired));
        let mut hold = None;
        match self.rival {
            Rival::Capture => {
                let all = new_hold(&user(&self.name), 100);
                actions.extend([grant(&user(&self.name), 100), Action::Hold(Box::new(all.clone()))]);
                hold = Some(all);
            }
            Rival::Late => {
                actions.extend([
                    open_topup(&self.late),
                    told(&self.late, PaymentState::Expired, None),
                ]);
            }
            Rival::Free | Rival::Topup | Rival::Grant | Rival::Move | Rival::Mint => {}
        }
        for action in actions {
            self.run(0, action).await.unwrap();
        }
        hold
    }

    async fn retire(&self) -> Answer {
        pause(self.pauses[0]).await;
        let answer = self.stores[0]
            .submit(command(self.tenant, retire(&self.name)))
            .await;
        if answer.is_ok() {
            self.retired.store(true, Ordering::SeqCst);
        }
        answer
    }

    /// The rival's steps until one is refused; the answer to the first of them.
    async fn compete(&self, held: Option<turnpike_core::ledger::command::NewHold>) -> Answer {
        pause(self.pauses[1]).await;
        let name = self.name.as_str();
        let topup = new_topup(Some(name), 100);
        let free = new_hold(&user(name), 0);
        let (first, second) = match self.rival {
            Rival::Free => {
                let end = if self.pauses[2].is_multiple_of(2) {
                    capture(&free, 0, 0)
                } else {
                    release(&free, None)
                };
                (Action::Hold(Box::new(free)), Some(end))
            }
            Rival::Capture => (capture(&held.unwrap(), 100, 0), None),
            Rival::Topup => (open_topup(&topup), Some(told(&topup, PaymentState::Paid, None))),
            Rival::Late => (told(&self.late, PaymentState::Paid, None), None),
            Rival::Grant => (grant(&user(name), 5), None),
            Rival::Move => (move_to(name, 5, true), None),
            Rival::Mint => (mint(&new_token(name, None)), None),
        };
        let answer = self.run(1, first).await;
        if let (Ok(_), Some(second)) = (&answer, second) {
            pause(self.pauses[2]).await;
            // Begun before retirement, its end is never refused: retirement waits for it.
            let ended = self.stores[1].submit(command(self.tenant, second)).await;
            assert!(ended.is_ok(), "{name}: {ended:?}");
        }
        answer
    }

    /// Whether retirement succeeded; checks that what the two were told is true.
    async fn judge(&self, retired: Answer, rival: Answer) -> bool {
        let (store, what) = (
            &self.stores[0],
            format!("{} {:?}: {retired:?}, {rival:?}", self.name, self.rival),
        );
        let found = store
            .find_end_user(self.tenant, &external(&self.name))
            .await
            .unwrap()
            .unwrap();
        let account = store
            .find_account(&user(&self.name).account(self.tenant))
            .await
            .unwrap()
            .unwrap_or_default();
        let filter = TopupFilter {
            payer: Some(user(&self.name)),
            before: None,
            limit: 10,
        };
        let topups = store.list_topups(self.tenant, &filter).await.unwrap();
        match (retired, &rival) {
            (
                Ok(Outcome::Retired {
                    already: false,
                    revoked_tokens,
                    ..
                }),
                _,
            ) => {
                let minted = u64::from(rival.is_ok() && self.rival == Rival::Mint);
                assert_eq!(revoked_tokens, self.live_tokens + minted, "{what}");
                assert!(
                    found.retired && account.status == AccountStatus::Retired,
                    "{what}"
                );
                assert!(
                    account.posted.is_zero() && account.held.is_zero() && account.open_calls == 0,
                    "{what}"
                );
                assert_eq!(
                    found.open,
                    turnpike_core::ledger::policy::OpenItems::default(),
                    "{what}"
                );
                assert!(
                    topups
                        .iter()
                        .all(|topup| !topup.is_unsettled() && (!topup.state.is_credited() || topup.pooled)),
                    "{what}"
                );
                // Which of these can have come first, and left nothing?
                match self.rival {
                    Rival::Topup | Rival::Grant | Rival::Move => {
                        assert!(
                            matches!(rival, Err(SubmitError::Rejected(Rejection::EndUserRetired))),
                            "{what}"
                        );
                    }
                    Rival::Late => assert!(rival.is_ok() && topups[0].pooled, "{what}"),
                    Rival::Capture => assert!(rival.is_ok(), "{what}"),
                    Rival::Free | Rival::Mint => {}
                }
                true
            }
            (Err(SubmitError::Rejected(Rejection::NotRetirable(_))), Ok(_)) => {
                assert!(!found.retired && self.rival != Rival::Mint, "{what}");
                assert!(
                    topups
                        .iter()
                        .all(|topup| topup.state.is_credited() && !topup.pooled),
                    "{what}"
                );
                false
            }
            _ => panic!("{what}"),
        }
    }

    async fn go(self: Arc<Self>) -> (Rival, bool, bool) {
        let held = self.prepare().await;
        let (retiring, competing) = (self.clone(), self.clone());
        let retired = tokio::spawn(async move { retiring.retire().await });
        let rival = tokio::spawn(async move { competing.compete(held).await });
        let (retired, rival) = (retired.await.unwrap(), rival.await.unwrap());
        let accepted = rival.is_ok();
        (self.rival, self.judge(retired, rival).await, accepted)
    }
}

/// Retirement and rival of [`INTERLEAVINGS`] end users, the two on `stores`; prints how they ended.
async fn race(world: &World, stores: [Arc<dyn Store>; 2], seed: u64) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000_000)).await.unwrap();
    let mut dice = Dice::new(seed);
    let mut ended = Vec::new();
    let races: Vec<Arc<Race>> = (0..INTERLEAVINGS)
        .map(|n| {
            let name = format!("user-{n}");
            Arc::new(Race {
                rival: RIVALS[n % RIVALS.len()],
                tenant,
                late: new_topup(Some(&name), 100),
                name,
                stores: if dice.roll(2) == 0 {
                    stores.clone()
                } else {
                    [stores[1].clone(), stores[0].clone()]
                },
                pauses: [dice.roll(6), dice.roll(6), dice.roll(4)],
                live_tokens: dice.roll(4),
                retired: AtomicBool::new(false),
            })
        })
        .collect();
    for together in races.chunks(TOGETHER) {
        let running = together.iter().map(|race| tokio::spawn(race.clone().go()));
        for result in join_all(running).await {
            ended.push(result.unwrap_or_else(|error| panic!("seed {seed}: {error}")));
        }
    }
    for rival in RIVALS {
        let count = |retired, accepted| {
            ended
                .iter()
                .filter(|end| **end == (rival, retired, accepted))
                .count()
        };
        let counts = [
            count(true, true),
            count(true, false),
            count(false, true),
            count(false, false),
        ];
        println!(
            "{:?} {rival:?}: both {}, retired alone {}, rival alone {}, neither {}",
            world.kind, counts[0], counts[1], counts[2], counts[3]
        );
        // Both ways round were seen.
        let (one, other) = match rival {
            // The mint before is revoked, the mint afterwards is refused.
            Rival::Mint => (counts[0], counts[1]),
            // The charge before leaves nothing, and so does the payment that the pool receives.
            Rival::Capture | Rival::Late => (counts[0], counts[2]),
            Rival::Free | Rival::Topup | Rival::Grant | Rival::Move => (counts[1], counts[2]),
        };
        assert!(
            one > 0 && other > 0,
            "seed {seed}: {rival:?} only ever ended one way: {counts:?}"
        );
    }
    // Nothing of a retired end user's was touched again, and its tokens are all dead.
    let transfers = all_transfers(&*world.store, tenant).await;
    for race in &races {
        let owner = Some(external(&race.name));
        let moves = transfers
            .iter()
            .filter(|transfer| transfer.debit.owner == owner || transfer.credit.owner == owner);
        assert!(
            !race.retired.load(Ordering::SeqCst) || moves.count() <= 2,
            "{}",
            race.name
        );
    }
}

pub(crate) async fn who_is_retired_receives_nothing(world: &World) {
    race(world, [world.store.clone(), world.store.clone()], 11).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_retired_by_one_service_receives_nothing_by_another() {
    on(Kind::Postgres, async |world: &World| {
        let second = world.second().await.unwrap();
        race(world, [world.store.clone(), second.clone()], 12).await;
        second.close().await;
    })
    .await;
}
