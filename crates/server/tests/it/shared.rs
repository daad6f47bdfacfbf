//! What only one of the stores can show: two services on one database, and the lock of a file.

use std::process::Command;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;

use crate::harness::{CHAT, Service, Setup, Site, Store, chat, eventually, micros};
use crate::keys::id_of;
use crate::money::flood;

mod sqlite {
    #[test]
    fn a_second_service_on_one_file_is_refused_and_told_of_the_first() {
        crate::harness::run(super::second_on_one_file());
    }
}

mod postgres {
    #[test]
    fn two_services_admit_exactly_seven_calls_together() {
        crate::harness::run(super::two_share_a_balance());
    }

    #[test]
    fn two_services_dispatch_one_key_once() {
        crate::harness::run(super::two_share_a_key());
    }

    #[test]
    fn what_is_changed_on_one_node_is_seen_on_the_other_within_a_second() {
        crate::harness::run(super::changes_are_seen_elsewhere());
    }

    #[test]
    fn calls_of_a_crashed_node_are_ended_by_another() {
        crate::harness::run(super::one_outlives_the_other());
    }

    #[test]
    fn the_service_survives_the_loss_of_all_its_connections() {
        crate::harness::run(super::connections_are_lost());
    }

    #[test]
    fn the_service_survives_a_restart_of_the_cluster() {
        crate::harness::run(super::the_cluster_restarts());
    }

    #[test]
    fn a_locked_ledger_is_a_503_and_sends_nothing() {
        crate::harness::run(super::the_ledger_is_locked());
    }
}

// Fault matrix 21
async fn second_on_one_file() {
    let site = Site::new(Store::Sqlite).await;
    let refused = Service::try_start(&site.config, &site.data, &[]).await;
    let (status, said) = refused.expect_err("a second service started");
    assert_eq!(status.code(), Some(1));
    assert!(said.contains(&site.address()), "it names the first: {said}");
    site.chat(&chat("flat", "hi")).send().await.expect(200);
}

// Fault matrix 20, I2
async fn two_share_a_balance() {
    let site = Setup::new(Store::Postgres).grant(Some("0.07")).start().await;
    let second = site.second().await;
    let clients = [site.client.clone(), second.client()];
    let outcomes = flood(&clients, &site.key, 200, |_| chat("flat", "hi")).await;
    let admitted = outcomes.iter().filter(|(_, status, _)| *status == 200).count();
    let refused = outcomes
        .iter()
        .filter(|(_, _, code)| code == "INSUFFICIENT_CREDITS")
        .count();
    assert_eq!((admitted, refused), (7, 193));
    assert_eq!(site.upstream.count(), 7);
    assert_eq!(site.settled().await, 0);
}

// Fault matrix 31 on two nodes, I4
async fn two_share_a_key() {
    let site = Site::new(Store::Postgres).await;
    let second = site.second().await;
    let clients = [site.client.clone(), second.client()];
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..40 {
        let call = clients[index % 2]
            .request(Method::POST, CHAT)
            .bearer(&site.key)
            .once("same");
        calls.spawn(call.json(&chat("flat", "hi")).send());
    }
    let replies = calls.join_all().await;
    assert!(replies.iter().any(|reply| reply.status == 200));
    for reply in &replies {
        assert!(matches!(reply.status, 200 | 409), "{}", reply.text());
    }
    assert_eq!((site.upstream.count(), site.settled().await), (1, micros("9.99")));
    let elsewhere = clients[1]
        .request(Method::POST, CHAT)
        .bearer(&site.key)
        .once("same");
    let elsewhere = elsewhere.json(&chat("flat", "hi")).send().await.expect(200);
    assert_eq!(elsewhere.header("idempotent-replayed"), Some("true"));
}

// Fault matrix 147: the longest that a node may believe what it read
async fn changes_are_seen_elsewhere() {
    const BELIEVED: Duration = Duration::from_secs(1);
    let site = Site::new(Store::Postgres).await;
    let second = site.second().await;
    let elsewhere = second.client();
    for _ in 0..3 {
        let issued = site
            .issue(&json!({ "name": "n", "scopes": ["tenant:read"] }))
            .await;
        let (key, id) = (issued["key"].as_str().unwrap().to_owned(), id_of(&issued));
        let read = || {
            let read = elsewhere.request(Method::GET, "/api/credits/balance");
            read.bearer(&key).send()
        };
        read().await.expect(200);
        site.about_key(Method::DELETE, &id, "", &site.key, &json!({}))
            .await
            .expect(200);
        let revoked = Instant::now();
        let mut taken_last = Duration::ZERO;
        loop {
            let asked = revoked.elapsed();
            let reply = read().await;
            if reply.status == 401 {
                reply.refused(401, "CREDENTIAL_REVOKED");
                break;
            }
            reply.expect(200);
            taken_last = asked;
            assert!(asked < BELIEVED, "the key was taken after {asked:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        eprintln!(
            "taken for the last time after {taken_last:?}, refused after {:?}",
            revoked.elapsed()
        );
    }
    let call = || {
        let call = elsewhere.request(Method::POST, CHAT).bearer(&site.key);
        call.json(&chat("flat", "hi")).send()
    };
    call().await.expect(200);
    site.switch("up/flat", &json!(false)).await.expect(200);
    let switched = Instant::now();
    loop {
        let asked = switched.elapsed();
        let reply = call().await;
        if reply.status == 403 {
            break;
        }
        assert!(asked < BELIEVED, "the model was sold after {asked:?}");
    }
}

// Fault matrix 46, 208
async fn one_outlives_the_other() {
    let setup = Setup::new(Store::Postgres).provider("total_timeout_secs", 1);
    let site = setup.set("calls.hold_slack_secs", 1).start().await;
    let mut second = site.second().await;
    let gate = crate::harness::Gate::new();
    let held = gate.clone();
    site.upstream.always(vec![crate::harness::Step::Wait(held)]);
    let call = second
        .client()
        .request(Method::POST, CHAT)
        .bearer(&site.key)
        .once("k")
        .json(&chat("flat", "hi"));
    let running = tokio::spawn(call.try_send());
    eventually("the call was sent", || async {
        (site.upstream.count() == 1).then_some(())
    })
    .await;
    second.kill();
    assert!(running.await.unwrap().is_err());
    let waiting = site.chat(&chat("flat", "hi")).once("k").send().await;
    waiting.refused(409, "IDEMPOTENCY_IN_PROGRESS");
    assert_eq!(site.settled().await, micros("10"));
    let reply = site.chat(&chat("flat", "hi")).once("k").send().await;
    reply.refused(504, "UPSTREAM_TIMEOUT");
    assert_eq!(site.upstream.count(), 1);
}

// Fault matrix 201, 202
async fn connections_are_lost() {
    let site = Site::new(Store::Postgres).await;
    let mut good = 0_i64;
    for round in 0..5 {
        let calls = flood_quietly(&site, round);
        let cut = site.database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        let ((), statuses) = tokio::join!(cut, calls);
        for status in statuses {
            assert!(matches!(status, 200 | 503), "{status}");
        }
        good = eventually("calls are taken again", || async {
            let reply = site.chat(&chat("flat", "hi")).send().await;
            (reply.status == 200).then_some(good + 1)
        })
        .await;
    }
    assert_eq!(good, 5);
    site.idle().await;
    let spent = micros("10") - site.settled().await;
    assert_eq!(
        spent,
        i64::try_from(site.upstream.count()).unwrap() * 10_000,
        "each call that was sent was charged once"
    );
}

async fn flood_quietly(site: &Site, round: usize) -> Vec<u16> {
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..40 {
        calls.spawn(
            site.chat(&chat("flat", "hi"))
                .once(&format!("r{round}-{index}"))
                .send(),
        );
    }
    calls
        .join_all()
        .await
        .into_iter()
        .map(|reply| reply.status)
        .collect()
}

/// Runs `scripts/postgres-for-tests`.
fn cluster(args: &[&str]) -> (String, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres-for-tests");
    let output = Command::new(script).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (String::from_utf8_lossy(&output.stdout).trim().to_owned(), said)
}

/// A cluster of this test alone, removed at its end.
struct OwnCluster(String);

impl Drop for OwnCluster {
    fn drop(&mut self) {
        cluster(&["stop", &self.0]);
    }
}

// Fault matrix 201, I1-I4
async fn the_cluster_restarts() {
    let notes = std::env::temp_dir().join(format!("cluster-{}", uuid::Uuid::new_v4()));
    // The server keeps its standard error open, so it goes to a file.
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres-for-tests");
    let output = std::fs::File::create(&notes).unwrap();
    let status = Command::new(script)
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .status()
        .unwrap();
    let said = std::fs::read_to_string(&notes).unwrap();
    std::fs::remove_file(&notes).unwrap();
    assert!(status.success(), "{said}");
    let url = said
        .lines()
        .find(|line| line.starts_with("postgres://"))
        .unwrap()
        .to_owned();
    let dir = said
        .lines()
        .find_map(|line| line.strip_prefix("postgres-for-tests: "))
        .unwrap()
        .to_owned();
    let own = OwnCluster(dir);
    let site = Setup::new(Store::Postgres).cluster(&url).start().await;
    site.chat(&chat("flat", "hi"))
        .once("before")
        .send()
        .await
        .expect(200);
    cluster(&["kill", &own.0]);
    let sent = site.upstream.count();
    for number in 0..5 {
        let reply = site
            .chat(&chat("flat", "hi"))
            .once(&format!("down-{number}"))
            .send()
            .await;
        reply.refused(503, "SERVICE_UNAVAILABLE");
    }
    let ready = site.client.request(Method::GET, "/readyz").send().await;
    assert_eq!(ready.status, 503);
    assert_eq!(
        site.upstream.count(),
        sent,
        "nothing is sent without a durable hold"
    );
    resume(&own.0);
    eventually("it is ready again", || async {
        let ready = site.client.request(Method::GET, "/readyz").send().await;
        (ready.status == 200).then_some(())
    })
    .await;
    eventually("calls are taken again", || async {
        let reply = site.chat(&chat("flat", "hi")).once("after").send().await;
        (reply.status == 200).then_some(())
    })
    .await;
    let again = site
        .chat(&chat("flat", "hi"))
        .once("before")
        .send()
        .await
        .expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(site.settled().await, micros("9.98"));
    drop(site);
}

fn resume(dir: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres-for-tests");
    let status = Command::new(script)
        .args(["resume", dir])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

// Fault matrix 203
async fn the_ledger_is_locked() {
    let site = Site::new(Store::Postgres).await;
    site.chat(&chat("flat", "hi")).send().await.expect(200);
    let locked = site
        .database
        .execute("BEGIN; LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(3); COMMIT");
    let calls = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let before = site.upstream.count();
        let reply = site.chat(&chat("flat", "hi")).once("k").send().await;
        (before, reply)
    };
    let ((), (before, reply)) = tokio::join!(locked, calls);
    // It may have waited the lock out; what it must not do is to send without a hold.
    assert!(matches!(reply.status, 200 | 503), "{}", reply.text());
    assert_eq!(site.upstream.count() - before, usize::from(reply.status == 200));
    let retry = eventually("the call is answered", || async {
        let reply = site.chat(&chat("flat", "hi")).once("k").send().await;
        (reply.status == 200).then_some(reply)
    })
    .await;
    assert_eq!(site.upstream.count(), 2);
    assert_eq!(retry.status, 200);
    assert_eq!(site.settled().await, micros("9.98"));
}
