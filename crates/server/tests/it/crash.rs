//! A process that is killed at a chosen point of a call, and what its restart makes of it.
//!
//! A case counts only when the point was really reached: the process says so before it aborts.

use serde_json::{Value, json};

use crate::harness::upstream::answer;
use crate::harness::{Setup, Site, Store, TOOL, chat, chat_stream, eventually, micros};
use crate::on_both_stores;

on_both_stores!(
    a_crash_before_the_dispatch_gives_the_hold_back_and_frees_the_key,
    a_crash_between_dispatch_and_capture_charges_nobody_and_never_sends_again,
    a_crash_after_the_capture_keeps_the_charge_and_the_answer,
    a_crash_in_a_stream_keeps_the_charge_and_never_sends_again,
    a_crash_after_the_end_of_a_stream_keeps_its_transcript,
    a_crash_after_a_failure_was_stored_keeps_the_failure,
);

/// A gateway whose holds end soon after a crash.
pub async fn short_lived(store: Store) -> Site {
    Setup::new(store)
        .provider("total_timeout_secs", 1)
        .set("calls.slow_reader_secs", 1)
        .set("calls.max_stream_secs", 1)
        .set("calls.hold_slack_secs", 1)
        .start()
        .await
}

/// Kills the process at `point` of a call with `key`, starts it again and waits until every call has ended.
async fn crash_at(site: &mut Site, point: &str, path: &str, body: &Value, key: &str) {
    let fail = vec![("TURNPIKE_FAILPOINT".to_owned(), point.to_owned())];
    site.restart(&fail).await;
    let cut = site.post(path, body).once(key).try_send().await;
    assert!(cut.is_err(), "{point}: the call was answered: {cut:?}");
    let service = site.service.as_mut().unwrap();
    let status = service.wait(std::time::Duration::from_secs(10)).await;
    assert!(!status.success(), "{point}: {status}");
    assert!(
        service.logged().contains(&format!("failpoint reached: {point}")),
        "{}",
        service.logged()
    );
    site.restart(&[]).await;
    site.idle().await;
}

/// What came of a call: the pool's balance, and the record of the newest call.
async fn state(site: &Site) -> (i64, i64) {
    let losses = site
        .database
        .number("SELECT COALESCE(SUM(loss), 0) FROM drifts")
        .await;
    (site.settled().await, losses)
}

fn forms() -> [(&'static str, Value); 3] {
    [
        (crate::harness::CHAT, chat("flat", "hi")),
        (crate::harness::CHAT, chat_stream("flat", "hi")),
        (TOOL, json!({ "id": "x" })),
    ]
}

// Fault matrix 35, 43, 44, 45, I3
async fn a_crash_before_the_dispatch_gives_the_hold_back_and_frees_the_key(store: Store) {
    let mut site = short_lived(store).await;
    for point in ["after-hold", "before-dispatch-marker"] {
        for (index, (path, body)) in forms().into_iter().enumerate() {
            let key = format!("{point}-{index}");
            let before = (state(&site).await, site.upstream.count());
            crash_at(&mut site, point, path, &body, &key).await;
            assert_eq!((state(&site).await, site.upstream.count()), before, "{point}");
            let retry = site.post(path, &body).once(&key).send().await.expect(200);
            assert_eq!(retry.header("idempotent-replayed"), None);
            assert_eq!(site.upstream.count(), before.1 + 1, "{point}");
            site.idle().await;
        }
    }
}

// Fault matrix 46, 47, 50, I3, I12
async fn a_crash_between_dispatch_and_capture_charges_nobody_and_never_sends_again(store: Store) {
    let mut site = short_lived(store).await;
    for (point, sent) in [
        ("after-dispatch-marker", 0),
        ("after-upstream", 1),
        ("before-capture", 1),
    ] {
        for (index, (path, body)) in forms().into_iter().enumerate() {
            let key = format!("{point}-{index}");
            let base = if path == TOOL { 8000 } else { 10_000 };
            let ((balance, losses), dispatched) = (state(&site).await, site.upstream.count());
            crash_at(&mut site, point, path, &body, &key).await;
            // The customer pays nothing; what the provider may bill is the operator's loss.
            assert_eq!(state(&site).await, (balance, losses + base), "{point}");
            assert_eq!(site.upstream.count(), dispatched + sent, "{point}");
            for _ in 0..2 {
                let retry = site
                    .post(path, &body)
                    .once(&key)
                    .send()
                    .await
                    .refused(504, "UPSTREAM_TIMEOUT");
                assert_eq!(retry.header("idempotent-replayed"), Some("true"));
                assert_eq!(retry.header("x-svc-credits-charged"), Some("0"));
            }
            assert_eq!(site.upstream.count(), dispatched + sent, "{point}: sent again");
        }
    }
}

// Fault matrix 48, I4, I10
async fn a_crash_after_the_capture_keeps_the_charge_and_the_answer(store: Store) {
    let mut site = short_lived(store).await;
    for (path, body, price) in [
        (crate::harness::CHAT, chat("flat", "hi"), 10_000),
        (TOOL, json!({ "id": "x" }), 8000),
    ] {
        let ((balance, losses), dispatched) = (state(&site).await, site.upstream.count());
        crash_at(&mut site, "after-capture", path, &body, path).await;
        assert_eq!(state(&site).await, (balance - price, losses));
        let retry = site.post(path, &body).once(path).send().await.expect(200);
        assert_eq!(retry.header("idempotent-replayed"), Some("true"));
        let (charged, shown) = crate::harness::receipt(&retry);
        assert_eq!((charged, shown), (price, balance - price));
        assert_eq!(site.upstream.count(), dispatched + 1);
    }
}

// Fault matrix 48, 49, 50, I3
async fn a_crash_in_a_stream_keeps_the_charge_and_never_sends_again(store: Store) {
    let mut site = short_lived(store).await;
    for point in ["after-capture", "mid-stream", "mid-stream:1", "stream-end"] {
        let body = chat_stream("flat", "hi");
        let ((balance, _), dispatched) = (state(&site).await, site.upstream.count());
        let name = point.split(':').next().unwrap();
        let fail = vec![("TURNPIKE_FAILPOINT".to_owned(), point.to_owned())];
        // Chunks that come one by one, so that the point is passed more than once.
        site.upstream.script(|seen| {
            let all = crate::harness::upstream::well(seen);
            let pause = crate::harness::Step::Pause(std::time::Duration::from_millis(20));
            all.into_iter().flat_map(|step| [step, pause.clone()]).collect()
        });
        site.restart(&fail).await;
        assert!(site.chat(&body).once(point).try_send().await.is_err(), "{point}");
        let service = site.service.as_mut().unwrap();
        service.wait(std::time::Duration::from_secs(10)).await;
        assert!(
            service.logged().contains(&format!("failpoint reached: {name}")),
            "{}",
            service.logged()
        );
        site.restart(&[]).await;
        // Captured already, so nothing is held; the sweep closes the record.
        eventually("the call is over", || async {
            let reply = site.chat(&body).once(point).send().await;
            (reply.code() != "IDEMPOTENCY_IN_PROGRESS").then_some(())
        })
        .await;
        assert_eq!(site.settled().await, balance - 10_000, "{point}: captured once");
        for _ in 0..2 {
            let gone = site
                .chat(&body)
                .once(point)
                .send()
                .await
                .refused(410, "RESULT_EXPIRED")
                .json();
            let call = site.call(gone["callId"].as_str().unwrap()).await;
            assert_eq!(
                (&call["chargedUsd"], &call["refundedUsd"]),
                (&json!("0.01"), &json!("0"))
            );
            assert_eq!(call["usage"], Value::Null);
        }
        assert_eq!(site.upstream.count(), dispatched + 1, "{point}: sent again");
        assert_eq!(site.settled().await, balance - 10_000);
    }
}

// Fault matrix 38, 50
async fn a_crash_after_the_end_of_a_stream_keeps_its_transcript(store: Store) {
    let mut site = short_lived(store).await;
    let body = chat_stream("flat", "hi");
    crash_at(&mut site, "after-finish", crate::harness::CHAT, &body, "k").await;
    let retry = site.chat(&body).once("k").send().await.expect(200);
    assert!(retry.text().contains("Hello") && retry.text().ends_with("data: [DONE]\n\n"));
    assert_eq!((site.settled().await, site.upstream.count()), (micros("9.99"), 1));
}

// Fault matrix 34
async fn a_crash_after_a_failure_was_stored_keeps_the_failure(store: Store) {
    let mut site = short_lived(store).await;
    site.upstream.always(vec![answer(500, &[], b"{}")]);
    for (index, (path, body)) in forms().into_iter().enumerate() {
        let key = format!("k{index}");
        crash_at(&mut site, "after-release", path, &body, &key).await;
        let retry = eventually("the failure is known", || async {
            let reply = site.post(path, &body).once(&key).send().await;
            (reply.status != 409).then_some(reply)
        })
        .await;
        let retry = retry.refused(502, "UPSTREAM_ERROR");
        assert_eq!(retry.header("idempotent-replayed"), Some("true"));
        assert_eq!(site.upstream.count(), index + 1);
    }
    assert_eq!(state(&site).await, (micros("10"), 0));
}
