//! The bank over HTTP: many clients do everything that moves money, while a reader looks and a process is killed.
//!
//! Each client notes what it was told: done, failed, or unknown when the answer did not arrive. What is unknown
//! is asked again under the same key. At the end the books have all that was answered, nothing of what was
//! refused, and what the stand-ins of the provider and the processor saw (fault matrix 19, 20, 51; I1 to I12).
//!
//! `TURNPIKE_BANK_OPS` is the number of operations of each client. `TURNPIKE_SEED` repeats what the clients
//! want, not how the machine interleaves them.

mod board;
mod client;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use self::board::{Board, Node};
use self::client::Teller;
use crate::harness::payments::Shop;
use crate::harness::upstream::{answer, well};
use crate::harness::{Service, Setup, Step, Store, eventually};

mod sqlite {
    #[test]
    fn whatever_the_bank_answers_is_in_its_books() {
        crate::harness::run(super::bank(crate::harness::Store::Sqlite, false));
    }
}

mod postgres {
    #[test]
    fn whatever_the_bank_answers_is_in_its_books() {
        crate::harness::run(super::bank(crate::harness::Store::Postgres, false));
    }

    #[test]
    fn whatever_two_banks_answer_is_in_their_books_though_one_is_killed() {
        crate::harness::run(super::bank(crate::harness::Store::Postgres, true));
    }
}

/// Clients at once.
const CLIENTS: u64 = 12;
/// End users at a time; who is retired is replaced by another.
const USERS: usize = 12;
/// Operations of each client.
const OPERATIONS: usize = 100;

fn operations() -> usize {
    let asked = std::env::var("TURNPIKE_BANK_OPS").ok();
    asked.map_or(OPERATIONS, |text| {
        text.parse().expect("TURNPIKE_BANK_OPS is a number")
    })
}

/// One workspace with money, end users and an owner.
async fn opened(store: Store) -> Arc<Board> {
    let swift = |setup: Setup| {
        setup
            .without_fees()
            .provider("total_timeout_secs", 2)
            .set("calls.slow_reader_secs", 1)
            .set("calls.max_stream_secs", 2)
            .set("calls.hold_slack_secs", 1)
    };
    let shop = Shop::of(store, swift).await;
    shop.upstream.script(|seen| {
        // Some answers are slow, so that a kill finds calls in flight; some are failures.
        let mut steps = vec![Step::Pause(Duration::from_millis(
            u64::try_from(seen.number % 4).unwrap() * 15,
        ))];
        if String::from_utf8_lossy(&seen.body).contains("failing") {
            let status = if seen.number.is_multiple_of(2) { 400 } else { 500 };
            steps.push(answer(status, &[], b"{}"));
        } else {
            steps.extend(well(seen));
        }
        steps
    });
    shop.grant("500", None);
    let owner = shop.owner();
    let board = Board::new(shop, owner, USERS);
    for slot in 0..USERS {
        let (user, key) = (board.name(slot), format!("opening-{slot}"));
        let ask = board.moving("allocate", &user, "1", &key);
        let mut teller = Teller::new(board.clone(), 0, 0);
        teller.settle(ask).await;
        board.note(teller.log);
    }
    board
}

async fn bank(store: Store, two: bool) {
    let seed: u64 =
        std::env::var("TURNPIKE_SEED").map_or_else(|_| rand::random(), |text| text.parse().unwrap());
    eprintln!("TURNPIKE_SEED={seed} TURNPIKE_BANK_OPS={}", operations());
    let board = opened(store).await;
    let mut second = None;
    if two {
        second = Some(board.shop.second().await);
        board.set_second(Node::of(second.as_ref().unwrap()));
    }
    let (done, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let looking = tokio::spawn(look(board.clone(), done.clone()));
    let mut tellers = JoinSet::new();
    for number in 1..=CLIENTS {
        let mut teller = Teller::new(board.clone(), seed, number);
        let begun = begun.clone();
        tellers.spawn(async move {
            for _ in 0..operations() {
                begun.fetch_add(1, Ordering::SeqCst);
                teller.operate().await;
            }
            teller
        });
    }
    if let Some(service) = &mut second {
        kill_midway(&board, service, &begun).await;
    }
    let (mut lost, mut unknown) = (0, 0);
    while let Some(teller) = tellers.join_next().await {
        let mut teller = teller.unwrap();
        lost += teller.lost;
        unknown += teller.unknown();
        teller.learn().await;
        board.note(teller.log);
    }
    close(&board).await;
    done.store(true, Ordering::SeqCst);
    let looks = looking.await.unwrap();
    assert!(looks > 1, "the reader saw nothing");
    assert_eq!(lost > 0, two, "{lost} answers were lost");
    assert!(!two || unknown > 0, "everything was known at once");
    let summary = verdict::check(&board).await;
    eprintln!(
        "{store:?}, two: {two}: {summary}, {lost} answers lost, {unknown} were unknown at first, {looks} looks"
    );
}

/// Kills the second process when a third is done, and again at two thirds, and starts it again.
async fn kill_midway(board: &Board, second: &mut Service, begun: &AtomicUsize) {
    let all = operations() * usize::try_from(CLIENTS).unwrap();
    for third in 1..=2 {
        eventually("a third is done", || async {
            (begun.load(Ordering::SeqCst) >= all * third / 3).then_some(())
        })
        .await;
        second.kill();
        // Nobody asks a process of which it is known that it is down.
        board.set_second(board.node(0));
        tokio::time::sleep(Duration::from_millis(300)).await;
        *second = board.shop.second().await;
        board.set_second(Node::of(second));
    }
}

/// Everything is told, every dispute decided, every call over.
async fn close(board: &Arc<Board>) {
    board.deliver_rest().await;
    for (number, dispute) in board.undecided().into_iter().enumerate() {
        board.shop.stripe.close_dispute(&dispute, number % 2 == 0);
    }
    board.deliver_rest().await;
    let site = board.clone();
    let open = "SELECT COUNT(*) FROM holds WHERE finished_at IS NULL";
    eventually("every call has ended", || async {
        (site.shop.database.number(open).await == 0).then_some(())
    })
    .await;
}

/// Looks at the books until `done`; says how often.
async fn look(board: Arc<Board>, done: Arc<AtomicBool>) -> u32 {
    let mut looks = 0;
    loop {
        let last = done.load(Ordering::SeqCst);
        let wrong = "SELECT COUNT(*) FROM (
                SELECT SUM(posted) AS total,
                    SUM(CASE WHEN held < 0 OR (kind <= 1 AND (posted < 0 OR posted < held)) THEN 1 ELSE 0 END) AS bad
                FROM accounts GROUP BY bucket, tenant_id) AS books
            WHERE total <> 0 OR bad <> 0";
        assert_eq!(
            board.shop.database.number(wrong).await,
            0,
            "a snapshot does not add up"
        );
        let audited = board.clone();
        tokio::task::spawn_blocking(move || audited.shop.audit())
            .await
            .unwrap();
        looks += 1;
        if last {
            return looks;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
