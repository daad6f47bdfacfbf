//! Events that are lost, that come while the ledger is away, and that two processes on one store take.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::harness::payments::{EVENTS, POOL_TOPUPS, Shop, events_url};
use crate::harness::{Database, Setup, Store, eventually, micros};
use crate::on_both_stores;

on_both_stores!(
    a_lost_event_is_found_by_asking,
    a_ledger_that_waits_is_answered_for_only_when_it_is_booked,
    money_for_one_balance_from_many_sides_adds_up,
);

mod on_postgres {
    #[test]
    fn two_services_take_the_same_events_and_credit_once() {
        crate::harness::run(super::two_services_take_the_events());
    }

    #[test]
    fn two_services_asked_with_one_key_open_one_session() {
        crate::harness::run(super::two_services_open_one_session());
    }

    #[test]
    fn a_store_without_connections_is_a_503_and_the_event_is_credited_later() {
        crate::harness::run(super::the_store_is_away());
    }

    #[test]
    fn automatic_top_ups_of_two_workers_are_made_once() {
        crate::harness::run(super::two_workers_fill_the_pool());
    }
}

const COMPLETED: &str = "credits.topup.completed";
const FAILED: &str = "credits.topup.failed";

// Fault matrix 118
async fn a_ledger_that_waits_is_answered_for_only_when_it_is_booked(store: Store) {
    let shop = Shop::new(store).await;
    let session = shop.open("5").await;
    shop.pay(&session);
    let event = shop.stripe.event("checkout.session.completed");
    let url = shop.events_url();
    // Somebody else writes for three seconds.
    let lock = async {
        match &shop.database {
            Database::Postgres { .. } => {
                let lock = "LOCK TABLE accounts, topups IN ACCESS EXCLUSIVE MODE";
                let lock = format!("BEGIN; {lock}; SELECT pg_sleep(3); COMMIT");
                shop.database.execute(&lock).await;
            }
            Database::Sqlite(path) => {
                let file = rusqlite::Connection::open(path).unwrap();
                file.execute_batch("BEGIN IMMEDIATE").unwrap();
                tokio::time::sleep(Duration::from_secs(3)).await;
                file.execute_batch("COMMIT").unwrap();
            }
        }
    };
    let waiting = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let status = shop.stripe.deliver(&url, &event).await;
        // Told apart here: 200 only when it is booked by now.
        (status, shop.events(COMPLETED).len())
    };
    let ((), (status, booked)) = tokio::join!(lock, waiting);
    match status {
        Some(200) => assert_eq!(booked, 1),
        Some(503) => {}
        other => panic!("{other:?}"),
    }
    shop.deliver().await;
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED])),
        ((5_000_000, 0), vec![1])
    );
    assert_eq!(shop.topup(&session).await["status"], "completed");
}

// Fault matrix 118
async fn the_store_is_away() {
    let shop = Shop::new(Store::Postgres).await;
    let session = shop.open("5").await;
    shop.pay(&session);
    let event = shop.stripe.event("checkout.session.completed");
    let (raw, signature) = shop.stripe.signed(&event);
    // The database takes no connections, and those that there were are cut.
    let (name, cluster) = match &shop.database {
        Database::Postgres { name, cluster, .. } => (name.clone(), cluster.clone()),
        Database::Sqlite(_) => unreachable!(),
    };
    let (admin, connection) = tokio_postgres::connect(&cluster, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let allow = |allowed: bool| format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}");
    let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    admin.batch_execute(&allow(false)).await.unwrap();
    admin.batch_execute(&cut).await.unwrap();
    for _ in 0..3 {
        let sent = shop
            .client
            .request(Method::POST, EVENTS)
            .header("stripe-signature", &signature);
        let refused = sent.raw_json(raw.clone()).send().await;
        refused.refused(503, "SERVICE_UNAVAILABLE");
    }
    admin.batch_execute(&allow(true)).await.unwrap();
    eventually("the event is taken", || async {
        (shop.stripe.deliver(&shop.events_url(), &event).await == Some(200)).then_some(())
    })
    .await;
    shop.deliver().await;
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED])),
        ((5_000_000, 0), vec![1])
    );
    assert_eq!(shop.topup(&session).await["status"], "completed");
}

// Fault matrix 20, 108 on two processes
async fn two_services_take_the_events() {
    let shop = Shop::of(Store::Postgres, |setup| setup.without_fees().swept()).await;
    let second = shop.second().await;
    let urls = [shop.events_url(), events_url(&second)];
    let mut sessions = Vec::new();
    for _ in 0..5 {
        let session = shop.open("5").await;
        shop.pay(&session);
        sessions.push(session);
    }
    let mut told = tokio::task::JoinSet::new();
    for (index, event) in shop.stripe.events().into_iter().cycle().take(80).enumerate() {
        let event = if index % 3 == 0 {
            shop.stripe.same_again(&event)
        } else {
            event
        };
        let (stripe, url) = (shop.stripe.clone(), urls[index % 2].clone());
        told.spawn(async move { stripe.deliver(&url, &event).await });
    }
    for status in told.join_all().await {
        assert_eq!(status, Some(200));
    }
    for session in &sessions {
        shop.reaches(session, "completed").await;
    }
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED])),
        ((25_000_000, 0), vec![5])
    );
    // Refunds, asked for at both at once.
    let clients = [shop.client.clone(), second.client()];
    let mut asked = tokio::task::JoinSet::new();
    for index in 0..20 {
        let path = format!("/api/credits/topups/{}/refunds", sessions[0]);
        let call = clients[index % 2].request(Method::POST, &path).bearer(&shop.key);
        asked.spawn(
            call.once(&format!("k{}", index / 2))
                .json(&json!({ "usd": "1" }))
                .send(),
        );
    }
    let replies = asked.join_all().await;
    let made: std::collections::BTreeSet<String> = replies
        .iter()
        .filter(|reply| reply.status == 200)
        .map(|reply| reply.json()["refundId"].to_string())
        .collect();
    assert_eq!(made.len(), 5, "five dollars, one by one");
    shop.reaches(&sessions[0], "refunded").await;
    shop.deliver().await;
    assert_eq!(
        (shop.settled().await, shop.told(&["credits.refund.issued"])),
        (20_000_000, vec![5])
    );
}

// Fault matrix 31 on two processes
async fn two_services_open_one_session() {
    let shop = Shop::of(Store::Postgres, Setup::without_fees).await;
    let second = shop.second().await;
    let clients = [shop.client.clone(), second.client()];
    let mut asked = tokio::task::JoinSet::new();
    for index in 0..30 {
        let call = clients[index % 2]
            .request(Method::POST, POOL_TOPUPS)
            .bearer(&shop.key);
        asked.spawn(call.once("k").json(&json!({ "usd": "5" })).send());
    }
    let mut sessions = std::collections::BTreeSet::new();
    for reply in asked.join_all().await {
        sessions.insert(reply.expect(200).json()["sessionId"].to_string());
    }
    assert_eq!((sessions.len(), shop.stripe.made("checkout.session")), (1, 1));
}

// Decisions 7 on two processes
async fn two_workers_fill_the_pool() {
    let shop = Shop::of(Store::Postgres, |setup| setup.without_fees().swept()).await;
    let _second = shop.second().await;
    crate::auto_topups::save_a_method(&shop, "5").await;
    crate::auto_topups::choose(&shop, "6", "10", Some("10")).await;
    eventually("the pool was filled", || async {
        (shop.pool().await == (15_000_000, 0)).then_some(())
    })
    .await;
    shop.deliver().await;
    assert_eq!(
        (shop.pool().await, shop.stripe.made("payment_intent")),
        ((15_000_000, 0), 2)
    );
}

// Fault matrix 19, 26, I6
async fn money_for_one_balance_from_many_sides_adds_up(store: Store) {
    let shop = Shop::new(store).await;
    let mut payments = Vec::new();
    for _ in 0..6 {
        payments.push(shop.bought("5").await.1);
    }
    // A third is refunded, a third disputed and won, a third disputed and lost; told of all at once.
    for (index, payment) in payments.iter().enumerate() {
        if index % 3 == 0 {
            shop.stripe.refund(payment, 500);
            continue;
        }
        let dispute = shop.stripe.open_dispute(payment, 500);
        shop.stripe.close_dispute(&dispute, index % 3 == 1);
    }
    let mut told = tokio::task::JoinSet::new();
    for event in shop.stripe.events() {
        let (stripe, url) = (shop.stripe.clone(), shop.events_url());
        told.spawn(async move { stripe.deliver(&url, &event).await });
    }
    let total = async {
        // Nobody ever sees more than was bought, or less than what was not disputed.
        for _ in 0..20 {
            let (usd, held) = shop.pool().await;
            assert!(
                (10_000_000..=30_000_000).contains(&usd) && held <= usd,
                "{usd} {held}"
            );
        }
    };
    let (told, ()) = tokio::join!(told.join_all(), total);
    assert!(told.iter().all(|status| *status == Some(200)), "{told:?}");
    shop.deliver().await;
    assert_eq!(shop.settled().await, micros("10"));
}

async fn a_lost_event_is_found_by_asking(store: Store) {
    let shop = Shop::of(store, |setup| setup.without_fees().swept()).await;
    let (paid, expired, open) = (shop.open("5").await, shop.open("7").await, shop.open("9").await);
    let late = shop.open("11").await;
    shop.pay(&paid);
    shop.stripe.expire(&shop.page(&expired));
    shop.stripe.pay_later(&shop.page(&late));
    shop.reaches(&paid, "completed").await;
    shop.reaches(&expired, "expired").await;
    shop.reaches(&late, "processing").await;
    shop.stripe.async_fail(&shop.page(&late));
    shop.reaches(&late, "failed").await;
    assert_eq!(shop.topup(&open).await["status"], "open");
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED, FAILED])),
        ((5_000_000, 0), vec![1, 2])
    );
    // The events come after all.
    shop.deliver().await;
    assert_eq!(
        (shop.pool().await, shop.told(&[COMPLETED, FAILED])),
        ((5_000_000, 0), vec![1, 2])
    );
}
