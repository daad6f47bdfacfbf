//! A process that is killed at a chosen point of a paid call, and what the same request is answered afterwards.
//!
//! A case counts only when the point was really reached: the process says so before it aborts. The facilitator and the
//! chain live on.

use crate::harness::facilitator::Fault;
use crate::harness::stall::{FEE, FLASH, Stall, died_at, ends_at};
use crate::harness::wallet::{Ask, PAID_LIST, Wallet, payment_response};
use crate::harness::{Gate, Service, Store, eventually};
use crate::on_both_stores;
use crate::paid_call_faults::{asked, gated};

on_both_stores!(
    a_crash_before_anything_may_be_sent_leaves_the_payment_good,
    a_crash_between_claim_and_answer_is_never_paid_for,
    a_crash_after_the_answer_is_settled_once,
    a_crash_of_the_settlement_of_a_recovery_is_settled_once,
);

mod postgres_pair {
    #[test]
    fn a_call_of_a_crashed_node_is_settled_by_the_other() {
        crate::harness::run(super::one_outlives_the_other());
    }

    #[test]
    fn a_node_that_sleeps_through_its_lease_settles_nothing_twice() {
        crate::harness::run(super::one_sleeps_at_the_settlement());
    }

    #[test]
    fn a_claim_that_comes_after_the_lease_is_not_sent() {
        crate::harness::run(super::one_waits_for_its_claim());
    }

    #[test]
    fn an_answer_that_comes_after_the_lease_is_not_paid_for() {
        crate::harness::run(super::one_sleeps_at_the_provider());
    }

    #[test]
    fn two_nodes_carry_one_payment_out_once() {
        crate::harness::run(super::two_share_a_payment());
    }
}

// Fault matrix 56, I4
async fn a_crash_before_anything_may_be_sent_leaves_the_payment_good(store: Store) {
    let mut stall = Stall::new(store).await;
    let mut prices = Vec::new();
    for (point, ask, price) in [
        ("paid-after-verify", Ask::chat("hi"), FLASH),
        ("paid-after-verify", Ask::list(), FEE),
        ("paid-after-claim", Ask::list(), FEE),
    ] {
        let (_, paid) = stall.paid(&ask, &Wallet::new()).await;
        stall.crash_at(point, &paid).await;
        assert_eq!(stall.facilitator.paid().len(), prices.len(), "{point}");
        stall.leases_end().await;
        let reply = stall.ends(&paid).await.expect(200);
        assert!(payment_response(&reply).success);
        assert_eq!(stall.ends(&paid).await.body, reply.body);
        prices.push(price);
    }
    assert_eq!(stall.lost().await, 0);
    stall.agree(1, &prices).await;
}

// Fault matrix 56, I3, I12
async fn a_crash_between_claim_and_answer_is_never_paid_for(store: Store) {
    let mut stall = Stall::new(store).await;
    let mut lost = 0;
    for (point, sent) in [("paid-after-claim", 0), ("paid-after-upstream", 1)] {
        let (offer, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
        let before = stall.upstream.count();
        stall.crash_at(point, &paid).await;
        stall.leases_end().await;
        for ask in [&paid, &paid, &Ask::chat("hi").id(&offer.id)] {
            let reply = stall.ends(ask).await.refused(409, "REQUEST_FAILED").json();
            assert_eq!(reply["receipt"]["failure"], "UPSTREAM_TIMEOUT", "{point}");
            assert_eq!(reply["receipt"]["amount"], serde_json::Value::Null);
        }
        assert_eq!(stall.upstream.count(), before + sent, "{point}: never sent again");
        // What the provider may bill is the operator's loss.
        lost += i64::try_from(offer.amount()).unwrap();
        assert_eq!(stall.lost().await, lost, "{point}");
    }
    assert_eq!(stall.facilitator.count("/settle"), 0);
    stall.agree(1, &[]).await;
}

const AFTER_THE_ANSWER: [&str; 4] = [
    "paid-after-finish",
    "paid-before-settle",
    "paid-after-settle",
    "paid-after-report",
];

// Fault matrix 56, I4
async fn a_crash_after_the_answer_is_settled_once(store: Store) {
    let mut stall = Stall::new(store).await;
    let (mut prices, mut sent) = (Vec::new(), 0);
    for point in AFTER_THE_ANSWER {
        for (ask, price) in [(Ask::chat("hi"), FLASH), (Ask::list(), FEE)] {
            let (offer, paid) = stall.paid(&ask, &Wallet::new()).await;
            stall.crash_at(point, &paid).await;
            stall.leases_end().await;
            let reply = stall.ends(&paid).await.expect(200);
            let response = payment_response(&reply);
            prices.push(price);
            sent += usize::from(ask.path != PAID_LIST);
            assert_eq!(stall.upstream.count(), sent, "{point}: never sent again");
            let made = stall.facilitator.paid();
            assert_eq!(made.len(), prices.len(), "{point}");
            assert_eq!(
                (response.success, response.transaction),
                (true, made.last().unwrap().hash.clone())
            );
            let again = ask.id(&offer.id).send(&stall.client).await.expect(200);
            assert_eq!(again.body, reply.body);
            assert_eq!(stall.receipt(&again).await["status"], "settled");
        }
    }
    assert_eq!(stall.lost().await, 0);
    stall.agree(sent, &prices).await;
}

async fn a_crash_of_the_settlement_of_a_recovery_is_settled_once(store: Store) {
    let mut stall = Stall::new(store).await;
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    stall.dies_at("paid-after-finish", &paid).await;
    for point in ["paid-before-settle", "paid-after-settle", "paid-after-report"] {
        // The recovery itself dies.
        stall.leases_end().await;
        stall
            .restart(&[("TURNPIKE_FAILPOINT".to_owned(), point.to_owned())])
            .await;
        died_at(stall.site.service.as_mut().unwrap(), point).await;
    }
    stall.leases_end().await;
    stall.restart(&[]).await;
    let reply = stall.ends(&paid).await.expect(200);
    assert!(payment_response(&reply).success);
    assert_eq!(stall.facilitator.count("/settle"), 1, "found on the chain");
    stall.agree(1, &[FLASH]).await;
}

/// Another service on the same store that dies at a point.
async fn doomed(stall: &Stall, point: &str) -> Service {
    let data = stall.data.with_file_name(format!("data-{point}"));
    std::fs::create_dir_all(&data).unwrap();
    let env = [("TURNPIKE_FAILPOINT".to_owned(), point.to_owned())];
    Service::start(&stall.config, &data, &env).await
}

// Issue: kill -9 of one of two processes
async fn one_outlives_the_other() {
    let stall = Stall::new(Store::Postgres).await;
    let (mut prices, mut sent) = (Vec::new(), 0);
    for point in AFTER_THE_ANSWER {
        let mut other = doomed(&stall, point).await;
        let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
        let cut = paid.by(&other.client()).try_send().await;
        assert!(cut.is_err(), "{point}: the call was answered: {cut:?}");
        died_at(&mut other, point).await;
        // The lease holds, and nobody begins anew.
        let reply = paid.send(&stall.client).await;
        assert!(matches!(reply.status, 200 | 202), "{point}: {}", reply.text());
        stall.leases_end().await;
        let reply = ends_at(&stall.client, &paid).await.expect(200);
        assert!(payment_response(&reply).success);
        prices.push(FLASH);
        sent += 1;
        assert_eq!(stall.upstream.count(), sent, "{point}");
    }
    // Nobody knows whether it was sent: it is ended by the other, and nothing is sent.
    let mut other = doomed(&stall, "paid-after-claim").await;
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    assert!(paid.by(&other.client()).try_send().await.is_err());
    died_at(&mut other, "paid-after-claim").await;
    assert_eq!(paid.send(&stall.client).await.status, 202);
    stall.leases_end().await;
    stall.ends(&paid).await.refused(409, "REQUEST_FAILED");
    stall.agree(sent, &prices).await;
}

async fn two_share_a_payment() {
    let stall = Stall::new(Store::Postgres).await;
    let second = stall.second().await;
    let clients = [stall.client.clone(), second.client()];
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..40 {
        calls.spawn(paid.by(&clients[index % 2]).send());
    }
    for reply in calls.join_all().await {
        assert!(matches!(reply.status, 200 | 202), "{}", reply.text());
    }
    let bodies = [
        ends_at(&clients[0], &paid).await,
        ends_at(&clients[1], &paid).await,
    ];
    assert_eq!(bodies[0].body, bodies[1].body);
    assert_eq!(stall.facilitator.count("/settle"), 1);
    stall.agree(1, &[FLASH]).await;
}

async fn one_sleeps_at_the_settlement() {
    let stall = Stall::new(Store::Postgres).await;
    let second = stall.second().await;
    let mut prices = Vec::new();
    for done in [true, false] {
        let gate = Gate::new();
        let held = if done {
            Fault::Held(gate.clone())
        } else {
            Fault::Hang(gate.clone())
        };
        stall.facilitator.break_times("/settle", held, 1);
        let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
        let sleeping = tokio::spawn(paid.by(&stall.client).send());
        let reached = prices.len() + 1;
        eventually("the settlement is asked for", || async {
            (stall.facilitator.reached("/settle") == reached).then_some(())
        })
        .await;
        stall.leases_end().await;
        let elsewhere = ends_at(&second.client(), &paid).await.expect(200);
        prices.push(FLASH);
        stall.agree(prices.len(), &prices).await;
        gate.open();
        let late = sleeping.await.unwrap().expect(200);
        assert_eq!(late.body, elsewhere.body);
        assert_eq!(
            late.header("payment-response"),
            elsewhere.header("payment-response")
        );
    }
    stall.agree(2, &prices).await;
}

async fn one_waits_for_its_claim() {
    // A lease of two seconds, and a database that takes longer for each change of a paid call.
    let stall = Stall::of(Store::Postgres, |setup| setup.provider("total_timeout_secs", 1)).await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
            AS 'BEGIN PERFORM pg_sleep(2.5); RETURN NEW; END';
        CREATE TRIGGER slow BEFORE INSERT ON paid_calls FOR EACH ROW EXECUTE FUNCTION slow()";
    stall.database.execute(slow).await;
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    let late = paid.send(&stall.client).await;
    late.refused(503, "SERVICE_UNAVAILABLE");
    let reply = stall.ends(&paid).await.refused(409, "REQUEST_FAILED").json();
    assert_eq!(reply["receipt"]["failure"], "SERVICE_UNAVAILABLE");
    assert_eq!(stall.lost().await, 0, "it is known that nothing was sent");
    stall.agree(0, &[]).await;
}

async fn one_sleeps_at_the_provider() {
    let stall = Stall::new(Store::Postgres).await;
    let second = stall.second().await;
    let gate = gated(&stall);
    let (offer, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    let sleeping = tokio::spawn(paid.by(&stall.client).send());
    asked(&stall, 1).await;
    stall.leases_end().await;
    ends_at(&second.client(), &paid)
        .await
        .refused(409, "REQUEST_FAILED");
    gate.open();
    // Too late: whoever asked was told that nothing is taken, and nothing is.
    let late = sleeping.await.unwrap();
    late.refused(409, "REQUEST_FAILED");
    assert_eq!(stall.lost().await, i64::try_from(offer.amount()).unwrap());
    assert_eq!(stall.facilitator.count("/settle"), 0);
    stall.agree(1, &[]).await;
}
