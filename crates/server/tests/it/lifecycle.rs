//! Signals, drains and restarts: running calls end well, new ones are not lost half-way.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::upstream::{sse_content, sse_done, sse_head, well};
use crate::harness::{CHAT, Gate, Setup, Site, Step, Store, chat, chat_stream, eventually, micros};
use crate::on_both_stores;

on_both_stores!(
    sigterm_lets_running_streams_finish_and_takes_no_new_calls,
    streams_that_outlast_the_drain_end_with_an_error_event_and_a_refund,
    further_signals_change_nothing,
    a_restart_keeps_balances_answers_and_keys,
    an_unknown_configuration_key_is_refused_with_the_nearest_name,
);

/// Streams that stop after their first event until the gate is open.
fn gated(site: &Site) -> Gate {
    let gate = Gate::new();
    let held = gate.clone();
    site.upstream.script(move |_| {
        let mut steps = vec![
            sse_head(),
            sse_content("begin"),
            Step::Wait(held.clone()),
            sse_content("end"),
        ];
        steps.extend(sse_done());
        steps
    });
    gate
}

// Fault matrix 209, I3
async fn sigterm_lets_running_streams_finish_and_takes_no_new_calls(store: Store) {
    let mut site = Site::new(store).await;
    let gate = gated(&site);
    let mut streams = Vec::new();
    for _ in 0..50 {
        let mut stream = site.chat(&chat_stream("flat", "hi")).open().await;
        assert_eq!(stream.status, 200);
        stream.chunk().await.unwrap();
        streams.push(stream);
    }
    site.client
        .request(http::Method::GET, "/readyz")
        .send()
        .await
        .expect(200);
    site.service().signal(Signal::TERM);
    let address = site.address();
    eventually("it is not ready any more", || async {
        let fresh = crate::harness::Client::new(&address);
        match fresh.request(http::Method::GET, "/readyz").try_send().await {
            Ok(reply) if reply.status == 200 => None,
            Ok(reply) => {
                assert_eq!(reply.status, 503, "{}", reply.text());
                Some(())
            }
            Err(_refused) => None,
        }
    })
    .await;
    let late = site.chat(&chat("flat", "hi")).try_send().await;
    assert!(!late.as_ref().is_ok_and(|reply| reply.status == 200), "{late:?}");
    assert!(site.service.as_mut().unwrap().ended().is_none());
    gate.open();
    for stream in streams {
        let rest = stream.finish().await;
        assert!(rest.text().contains("end") && rest.text().ends_with("data: [DONE]\n\n"));
    }
    let status = site.service.as_mut().unwrap().wait(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(site.upstream.count(), 50);
    let report = site.audit();
    assert_eq!(report["tenants"][0]["report"]["counts"]["open_holds"], 0);
    site.restart(&[]).await;
    assert_eq!(site.settled().await, micros("9.5"));
}

// Fault matrix 209
async fn streams_that_outlast_the_drain_end_with_an_error_event_and_a_refund(store: Store) {
    let mut site = Setup::new(store).set("server.drain_secs", 1).start().await;
    let _never_opened = gated(&site);
    let mut streams = JoinSet::new();
    for number in 0..20 {
        let mut stream = site
            .chat(&chat_stream("tokens", "hi"))
            .once(&format!("k{number}"))
            .open()
            .await;
        stream.chunk().await.unwrap();
        streams.spawn(stream.try_finish());
    }
    site.service().signal(Signal::TERM);
    for ended in streams.join_all().await {
        let ended = ended.expect("the stream ends properly");
        assert!(ended.text().contains("\"error\""), "{}", ended.text());
    }
    let status = site.service.as_mut().unwrap().wait(Duration::from_secs(10)).await;
    assert_eq!(status.code(), Some(0));
    site.restart(&[]).await;
    let again = site
        .chat(&chat_stream("tokens", "hi"))
        .once("k0")
        .send()
        .await
        .expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let call = site.call(again.header("x-svc-call-id").unwrap()).await;
    assert_eq!(call["status"], "interrupted");
    let cost = micros(call["costUsd"].as_str().unwrap());
    assert!(cost < micros(call["chargedUsd"].as_str().unwrap()));
    assert_eq!(site.settled().await, micros("10") - 20 * cost);
}

// Fault matrix 210
async fn further_signals_change_nothing(store: Store) {
    let mut site = Site::new(store).await;
    site.service().signal(Signal::HUP);
    site.service().signal(Signal::PIPE);
    tokio::time::sleep(Duration::from_millis(50)).await;
    site.chat(&chat("flat", "hi")).send().await.expect(200);
    let gate = gated(&site);
    let mut stream = site.chat(&chat_stream("flat", "hi")).open().await;
    stream.chunk().await.unwrap();
    for signal in [Signal::TERM, Signal::TERM, Signal::HUP, Signal::INT] {
        site.service().signal(signal);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert!(site.service.as_mut().unwrap().ended().is_none());
    gate.open();
    assert!(stream.finish().await.text().ends_with("data: [DONE]\n\n"));
    let status = site.service.as_mut().unwrap().wait(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(0));
    let log = site.service().logged();
    assert_eq!(log.matches("turnpike is running").count(), 1);
}

async fn a_restart_keeps_balances_answers_and_keys(store: Store) {
    let mut site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let first = site
        .chat(&chat("flat", "hi"))
        .once("k")
        .paid_by("alice")
        .send()
        .await
        .expect(200);
    site.service().signal(Signal::INT);
    let status = site.service.as_mut().unwrap().wait(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(0));
    // Operators work on a store that nobody serves.
    site.grant("0.5", Some("alice"));
    site.restart(&[]).await;
    assert_eq!(site.balance_of("alice").await["usd"], "1.49");
    let again = site
        .chat(&chat("flat", "hi"))
        .once("k")
        .paid_by("alice")
        .send()
        .await
        .expect(200);
    assert_eq!(again.body, first.body);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(site.upstream.count(), 1);
    // Killed without a word, it starts as well.
    site.service.as_mut().unwrap().kill();
    site.restart(&[]).await;
    site.upstream.script(well);
    site.post(CHAT, &chat("flat", "ho")).send().await.expect(200);
}

async fn an_unknown_configuration_key_is_refused_with_the_nearest_name(store: Store) {
    let site = Site::new(store).await;
    let config = site.data.with_file_name("wrong.toml");
    let text = std::fs::read_to_string(&site.config).unwrap();
    std::fs::write(&config, text.replace("drain_secs", "drain_sec")).unwrap();
    let (status, value, complaint) = crate::harness::operate(&config, &site.data, &["tenant", "list"]);
    assert_eq!(status.code(), Some(1));
    assert!(
        complaint.contains("drain_sec") && complaint.contains("did you mean \"drain_secs\""),
        "{complaint}"
    );
    assert!(value["error"].is_string());
    let usage = crate::harness::turnpike(&config, &site.data)
        .arg("nothing")
        .output()
        .unwrap();
    assert_eq!(usage.status.code(), Some(2));
    assert_eq!(json!(String::from_utf8_lossy(&usage.stdout)), json!(""));
}
