//! Deliveries that fail: what is tried again and when, and what is not tried any more.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::hooks::{BURNED, Hook, Receiver, millis, statuses};
use crate::harness::upstream::answer;
use crate::harness::{Gate, Setup, Site, Step, Store, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    a_failed_attempt_is_repeated_with_the_same_bytes,
    attempts_end_with_the_schedule,
    a_receiver_may_ask_to_be_left_alone_for_a_while,
    a_receiver_that_is_gone_is_told_nothing_more,
    what_waits_for_an_endpoint_out_of_use_is_canceled,
    an_endpoint_in_use_again_is_told_of_what_happens_from_then_on,
    a_late_success_does_not_count,
    every_way_to_fail_is_said,
);

/// A gateway, and a receiver with an endpoint that is told of calls.
async fn told(setup: Setup, receiver: &Receiver) -> (Site, Hook) {
    let site = setup.hooked().start().await;
    let hook = site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    (site, hook)
}

/// Long enough for a worker to have looked many times.
async fn a_while() {
    tokio::time::sleep(Duration::from_millis(600)).await;
}

// Fault matrix 169, 170
async fn a_failed_attempt_is_repeated_with_the_same_bytes(store: Store) {
    let receiver = Receiver::answering(503, &[], b"overloaded").await;
    let (site, hook) = told(Setup::new(store), &receiver).await;
    let id = site.burn().await;
    let attempts = site.ended(&id, 1).await;
    assert_eq!(statuses(&attempts), ["1 failed", "2 pending"]);
    let (failed, next) = (&attempts[0], &attempts[1]);
    assert_eq!(
        ["http_status", "response_body", "manual_replay"].map(|name| failed[name].clone()),
        [json!(503), json!("overloaded"), json!(false)]
    );
    assert!(failed["error"].as_str().is_some_and(|words| !words.is_empty()));
    assert_eq!(
        [
            "started_at",
            "finished_at",
            "http_status",
            "response_body",
            "error"
        ]
        .map(|name| next[name].clone()),
        [const { Value::Null }; 5]
    );
    let wait = millis(&next["scheduled_at"]) - millis(&failed["finished_at"]);
    assert!((4_000..=6_000).contains(&wait), "{wait}");
    eventually("the endpoint is said to fail", || async {
        let shown = site.shown_hook(&hook).await;
        shown["failingSince"].is_string().then_some(())
    })
    .await;
    let page = site.event_page(&format!("type={BURNED}")).await;
    assert_eq!(&page["data"][0]["delivery"], next, "the list shows the latest");
    receiver.answers(200, &[], b"");
    let attempts = site.ended(&id, 2).await;
    assert_eq!(statuses(&attempts), ["1 failed", "2 succeeded"]);
    assert!(millis(&attempts[1]["started_at"]) >= millis(&attempts[1]["scheduled_at"]));
    let messages = receiver.arrived(2).await;
    assert_eq!(messages[0].id(), messages[1].id());
    assert_eq!(messages[0].0.body, messages[1].0.body);
    assert!(messages[1].is_signed_by(&hook.secret));
    let at = |index: usize| {
        messages[index]
            .header("webhook-timestamp")
            .parse::<i64>()
            .unwrap()
    };
    assert!(at(1) - at(0) >= 3, "each attempt is signed at its own time");
    assert_eq!(site.shown_hook(&hook).await["failingSince"], Value::Null);
}

// Fault matrix 170
async fn attempts_end_with_the_schedule(store: Store) {
    let receiver = Receiver::answering(500, &[], b"").await;
    let (site, hook) = told(Setup::new(store).schedule(&[0, 1, 1]), &receiver).await;
    let id = site.burn().await;
    let attempts = site.ended(&id, 3).await;
    assert_eq!(statuses(&attempts), ["1 failed", "2 failed", "3 failed"]);
    let ids: std::collections::BTreeSet<&str> = attempts
        .iter()
        .map(|attempt| attempt["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 3);
    for pair in attempts.windows(2) {
        let wait = millis(&pair[1]["scheduled_at"]) - millis(&pair[0]["finished_at"]);
        assert!((800..=1_200).contains(&wait), "{wait}");
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    receiver.arrived(3).await;
    assert_eq!(site.attempts(&id).await.len(), 3);
    assert_eq!(site.shown_hook(&hook).await["enabled"], true);
    // The next event has a schedule of its own.
    receiver.answers(200, &[], b"");
    let next = site.burn().await;
    assert_eq!(statuses(&site.ended(&next, 1).await), ["1 succeeded"]);
}

async fn a_receiver_may_ask_to_be_left_alone_for_a_while(store: Store) {
    let receiver = Receiver::start().await;
    let (site, _) = told(Setup::new(store).schedule(&[0, 1]), &receiver).await;
    let in_an_hour = http_date(crate::harness::people::seconds() + 3_600);
    for (value, least, most) in [
        ("1000", 1_000_000, 1_001_000),
        (in_an_hour.as_str(), 3_590_000, 3_601_000),
        ("999999999", 86_400_000, 86_400_000),
        ("0", 800, 1_200),
        ("soon", 800, 1_200),
        ("-5", 800, 1_200),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 800, 1_200),
    ] {
        receiver.answers(429, &[("retry-after", value)], b"");
        let id = site.burn().await;
        let attempts = eventually("the first attempt has failed", || async {
            let attempts = site.attempts(&id).await;
            (attempts.len() == 2).then_some(attempts)
        })
        .await;
        let wait = millis(&attempts[1]["scheduled_at"]) - millis(&attempts[0]["finished_at"]);
        assert!((least..=most).contains(&wait), "{value}: {wait}");
    }
}

/// An HTTP date.
fn http_date(seconds: i64) -> String {
    let at = std::time::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap());
    httpdate::fmt_http_date(at)
}

// Decisions 11
async fn a_receiver_that_is_gone_is_told_nothing_more(store: Store) {
    let receiver = Receiver::answering(500, &[], b"").await;
    let (site, hook) = told(Setup::new(store), &receiver).await;
    let first = site.burn().await;
    assert_eq!(statuses(&site.ended(&first, 1).await), ["1 failed", "2 pending"]);
    receiver.answers(410, &[], b"left");
    let second = site.burn().await;
    let attempts = site.ended(&second, 1).await;
    assert_eq!(
        (statuses(&attempts), &attempts[0]["http_status"]),
        (vec!["1 failed".to_owned()], &json!(410))
    );
    let shown = eventually("the endpoint is out of use", || async {
        let shown = site.shown_hook(&hook).await;
        (shown["enabled"] == false).then_some(shown)
    })
    .await;
    assert_eq!(shown["disabledReason"], "gone");
    assert!(shown["disabledAt"].is_string());
    let attempts = eventually("what waits is canceled", || async {
        let attempts = site.attempts(&first).await;
        (statuses(&attempts) == ["1 failed", "2 canceled"]).then_some(attempts)
    })
    .await;
    assert!(attempts[1]["started_at"].is_null() && attempts[1]["finished_at"].is_string());
    let third = site.burn().await;
    a_while().await;
    receiver.arrived(2).await;
    assert!(site.attempts(&third).await.is_empty());
    // Somebody may switch it on again.
    receiver.answers(200, &[], b"");
    let on = site
        .change_hook(&hook, &json!({ "enabled": true }))
        .await
        .expect(200);
    assert_eq!(on.json()["endpoint"]["disabledReason"], Value::Null);
    let fourth = site.burn().await;
    assert_eq!(statuses(&site.ended(&fourth, 1).await), ["1 succeeded"]);
}

// Fault matrix 175
async fn what_waits_for_an_endpoint_out_of_use_is_canceled(store: Store) {
    let receiver = Receiver::answering(500, &[], b"").await;
    let site = Setup::new(store).hooked().schedule(&[0, 1, 1, 1]).start().await;
    for way in ["disabled", "removed"] {
        let hook = site.hook(&receiver.url("/"), Some(&[BURNED])).await;
        let id = site.burn().await;
        site.ended(&id, 1).await;
        let connections = if way == "disabled" {
            site.change_hook(&hook, &json!({ "enabled": false }))
                .await
                .expect(200);
            receiver.server.connections()
        } else {
            site.unhook(&hook).await.expect(204);
            receiver.server.connections()
        };
        let told = receiver.messages().len();
        tokio::time::sleep(Duration::from_millis(1600)).await;
        let attempts = site.attempts(&id).await;
        let last = attempts.last().unwrap();
        assert_eq!(last["status"], "canceled", "{attempts:#?}");
        assert!(last["started_at"].is_null() && last["error"].is_string());
        assert_eq!(
            (receiver.messages().len(), receiver.server.connections()),
            (told, connections),
            "{way}: no socket was opened"
        );
        // Nothing of what happens meanwhile goes there either.
        site.burn().await;
        a_while().await;
        assert_eq!(receiver.messages().len(), told);
    }
}

async fn an_endpoint_in_use_again_is_told_of_what_happens_from_then_on(store: Store) {
    let receiver = Receiver::start().await;
    let (site, hook) = told(Setup::new(store), &receiver).await;
    site.change_hook(&hook, &json!({ "enabled": false }))
        .await
        .expect(200);
    let missed = site.burn().await;
    site.change_hook(&hook, &json!({ "enabled": true }))
        .await
        .expect(200);
    let id = site.burn().await;
    assert_eq!(receiver.arrived(1).await[0].id(), id);
    a_while().await;
    receiver.arrived(1).await;
    assert!(site.attempts(&missed).await.is_empty());
}

// Fault matrix 169
async fn a_late_success_does_not_count(store: Store) {
    let receiver = Receiver::start().await;
    let setup = Setup::new(store).set("webhooks.timeout", 1).schedule(&[0, 1]);
    let (site, _) = told(setup, &receiver).await;
    let late = vec![
        Step::Pause(Duration::from_millis(1500)),
        answer(200, &[], b"done"),
    ];
    receiver.does(late);
    let id = site.burn().await;
    let attempts = site.ended(&id, 1).await;
    let first = &attempts[0];
    assert_eq!(
        ["status", "http_status", "response_body", "error"].map(|name| first[name].clone()),
        [json!("failed"), Value::Null, Value::Null, json!("timed out")]
    );
    let took = millis(&first["finished_at"]) - millis(&first["started_at"]);
    assert!((950..1_500).contains(&took), "{took}");
    receiver.answers(200, &[], b"");
    assert_eq!(statuses(&site.ended(&id, 2).await), ["1 failed", "2 succeeded"]);
    let messages = receiver.arrived(2).await;
    assert_eq!((messages[0].id(), messages[1].id()), (id.as_str(), id.as_str()));
    assert_eq!(messages[0].0.body, messages[1].0.body);
}

async fn every_way_to_fail_is_said(store: Store) {
    let receiver = Receiver::start().await;
    let setup = Setup::new(store).set("webhooks.timeout", 1).schedule(&[0, 600]);
    let (site, hook) = told(setup, &receiver).await;
    let bytes = |text: &str| Step::Bytes(text.as_bytes().to_vec());
    let ways: Vec<(&str, Vec<Step>, Value)> = vec![
        ("closes", vec![Step::Close], Value::Null),
        ("babbles", vec![bytes("hello\r\n\r\n"), Step::Close], Value::Null),
        (
            "half a head",
            vec![bytes("HTTP/1.1 200 OK\r\nconte"), Step::Close],
            Value::Null,
        ),
        ("hangs", vec![Step::Wait(Gate::new())], Value::Null),
        (
            "drips",
            (0..30)
                .flat_map(|_| {
                    [
                        bytes("HTTP/1.1 200 OK\r\nx: y\r\n"),
                        Step::Pause(Duration::from_millis(100)),
                    ]
                })
                .collect(),
            Value::Null,
        ),
        ("refuses", vec![answer(400, &[], b"")], json!(400)),
        ("wants a credential", vec![answer(401, &[], b"")], json!(401)),
        ("says nothing new", vec![answer(304, &[], b"")], json!(304)),
    ];
    for (way, steps, status) in ways {
        receiver.does(steps);
        let id = site.burn().await;
        let attempts = site.ended(&id, 1).await;
        assert_eq!(statuses(&attempts), ["1 failed", "2 pending"], "{way}");
        assert_eq!(attempts[0]["http_status"], status, "{way}");
        let words = attempts[0]["error"].as_str().unwrap();
        assert!(!words.is_empty() && words.len() < 100, "{way}: {words}");
    }
    // Nobody listens there.
    let nobody = Receiver::start().await.url("/");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = format!("http://{}/", free.local_addr().unwrap());
    drop((free, nobody));
    site.change_hook(&hook, &json!({ "url": closed }))
        .await
        .expect(200);
    let id = site.burn().await;
    let attempts = site.ended(&id, 1).await;
    assert_eq!(attempts[0]["error"], "connection refused");
    // A body that breaks off or never ends changes nothing about a success.
    site.change_hook(&hook, &json!({ "url": receiver.url("/") }))
        .await
        .expect(200);
    for (steps, body) in [
        (
            vec![
                bytes("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nsome words "),
                Step::Close,
            ],
            "some words",
        ),
        (
            vec![
                bytes("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nsome words "),
                Step::Wait(Gate::new()),
            ],
            "some words",
        ),
    ] {
        receiver.does(steps);
        let id = site.burn().await;
        let attempts = site.ended(&id, 1).await;
        assert_eq!(statuses(&attempts), ["1 succeeded"]);
        let said = attempts[0]["response_body"].as_str().unwrap();
        assert!(
            said.starts_with("some") && said.ends_with("[truncated]"),
            "{said} for {body}"
        );
    }
    site.chat(&chat("flat", "hi")).send().await.expect(200);
}
