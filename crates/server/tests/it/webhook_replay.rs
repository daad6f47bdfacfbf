//! Events that are told again because somebody asked for it.

use serde_json::{Value, json};

use crate::harness::hooks::{BURNED, HOOK_EVENTS, Hook, Receiver, statuses};
use crate::harness::{Gate, Setup, Site, Step, Store, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    a_long_replay_goes_on_where_it_stopped,
    an_event_is_told_again_to_one_or_to_all,
    nothing_is_told_twice_at_once,
    a_replay_takes_the_place_of_what_waits,
    a_replay_that_fails_begins_the_schedule_anew,
    a_replay_needs_somebody_to_tell,
    replays_at_once_end_well,
    a_hundred_replays_are_limited,
    what_was_missed_is_told_again,
);

// Fault matrix 172
async fn an_event_is_told_again_to_one_or_to_all(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let one = site.hook(&receiver.url("/one"), Some(&[BURNED])).await;
    let two = site.hook(&receiver.url("/two"), None).await;
    let never = site
        .hook(&receiver.url("/never"), Some(&["credits.burn.failed"]))
        .await;
    let id = site.burn().await;
    site.ended(&id, 2).await;
    let told = |path: &str| receiver.at(path).iter().filter(|m| m.id() == id).count();
    let again = site
        .replay(&id, &json!({ "endpointId": one.id }))
        .await
        .expect(202)
        .json();
    assert_eq!(
        (&again["success"], &again["event"]["id"]),
        (&json!(true), &json!(id))
    );
    let of_one: Vec<&Value> = again["event"]["deliveries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|attempt| attempt["endpoint_id"] == one.id)
        .collect();
    assert_eq!(
        (of_one.len(), &of_one[1]["attempt"], &of_one[1]["manual_replay"]),
        (2, &json!(2), &json!(true))
    );
    site.ended(&id, 3).await;
    assert_eq!((told("/one"), told("/two")), (2, 1));
    // Without a body it goes to all that want it.
    let path = format!("{HOOK_EVENTS}/{id}/replay");
    let bare = site.client.request(http::Method::POST, &path).bearer(&site.key);
    bare.send().await.expect(202);
    let attempts = site.ended(&id, 5).await;
    assert_eq!((told("/one"), told("/two"), told("/never")), (3, 2, 0));
    // One that is named gets it also when its filter leaves it out.
    site.replay(&id, &json!({ "endpointId": never.id }))
        .await
        .expect(202);
    site.ended(&id, 6).await;
    assert_eq!(told("/never"), 1);
    let of = |hook: &Hook| -> Vec<String> {
        let mine: Vec<Value> = attempts
            .iter()
            .filter(|a| a["endpoint_id"] == hook.id)
            .cloned()
            .collect();
        statuses(&mine)
    };
    assert_eq!(of(&one), ["1 succeeded", "2 succeeded", "3 succeeded"]);
    assert_eq!(of(&two), ["1 succeeded", "2 succeeded"]);
    let bodies: std::collections::BTreeSet<Vec<u8>> = receiver
        .messages()
        .into_iter()
        .filter(|m| m.id() == id)
        .map(|m| m.0.body)
        .collect();
    assert_eq!(bodies.len(), 1, "the same bytes every time");
}

// Fault matrix 172
async fn nothing_is_told_twice_at_once(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let gate = Gate::new();
    receiver.does(vec![
        Step::Wait(gate.clone()),
        crate::harness::upstream::answer(200, &[], b""),
    ]);
    let hook = site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let id = site.burn().await;
    eventually("it is under way", || async {
        (receiver.messages().len() == 1).then_some(())
    })
    .await;
    for body in [json!({}), json!({ "endpointId": hook.id })] {
        site.replay(&id, &body).await.refused(409, "ALREADY_EXISTS");
    }
    let since = json!({ "since": "2020-01-01T00:00:00Z" });
    let missed = site
        .post(&hook.below("replay"), &since)
        .send()
        .await
        .expect(202)
        .json();
    assert_eq!(
        missed,
        json!({ "success": true, "replayed": 0, "next_cursor": null })
    );
    gate.open();
    assert_eq!(statuses(&site.ended(&id, 1).await), ["1 succeeded"]);
    site.replay(&id, &json!({})).await.expect(202);
    assert_eq!(
        statuses(&site.ended(&id, 2).await),
        ["1 succeeded", "2 succeeded"]
    );
    receiver.arrived(2).await;
    assert_eq!(
        site.noted("webhook.replay").await,
        1,
        "what did not happen is not noted"
    );
}

// Fault matrix 172
async fn a_replay_takes_the_place_of_what_waits(store: Store) {
    let site = Setup::new(store).hooked().schedule(&[0, 2, 2]).start().await;
    let receiver = Receiver::answering(500, &[], b"").await;
    site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let id = site.burn().await;
    assert_eq!(statuses(&site.ended(&id, 1).await), ["1 failed", "2 pending"]);
    receiver.answers(200, &[], b"");
    site.replay(&id, &json!({})).await.expect(202);
    let attempts = site.ended(&id, 3).await;
    assert_eq!(statuses(&attempts), ["1 failed", "2 canceled", "3 succeeded"]);
    assert_eq!(attempts[1]["error"], "a replay took its place");
    assert_eq!(
        [&attempts[0], &attempts[1], &attempts[2]].map(|attempt| attempt["manual_replay"].clone()),
        [json!(false), json!(false), json!(true)]
    );
    // What was canceled is not made when its time comes.
    tokio::time::sleep(std::time::Duration::from_millis(2600)).await;
    receiver.arrived(2).await;
    let page = site.event_page(&format!("type={BURNED}")).await;
    assert_eq!(page["data"][0]["delivery"]["attempt"], 3);
}

async fn a_replay_that_fails_begins_the_schedule_anew(store: Store) {
    let site = Setup::new(store).hooked().schedule(&[0, 1]).start().await;
    let receiver = Receiver::answering(500, &[], b"").await;
    site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let id = site.burn().await;
    site.ended(&id, 2).await;
    site.replay(&id, &json!({})).await.expect(202);
    let attempts = site.ended(&id, 4).await;
    assert_eq!(
        statuses(&attempts),
        ["1 failed", "2 failed", "3 failed", "4 failed"]
    );
    let manual: Vec<bool> = attempts.iter().map(|a| a["manual_replay"] == true).collect();
    assert_eq!(manual, [false, false, true, false]);
}

// Fault matrix 172, 147
async fn a_replay_needs_somebody_to_tell(store: Store) {
    let site = Site::hooked(store).await;
    let id = site.burn().await;
    site.replay(&id, &json!({})).await.refused(404, "NOT_FOUND");
    let receiver = Receiver::start().await;
    let hook = site
        .hook(&receiver.url("/"), Some(&["credits.burn.failed"]))
        .await;
    site.replay(&id, &json!({})).await.refused(404, "NOT_FOUND");
    for (event, body, status, code) in [
        (id.as_str(), json!({ "endpointId": "x" }), 400, "VALIDATION_ERROR"),
        (&id, json!({ "endpointId": 5 }), 400, "VALIDATION_ERROR"),
        (&id, json!({ "endpoint": hook.id }), 400, "UNKNOWN_FIELD"),
        (
            &id,
            json!({ "endpointId": "0190a0b0-0000-7000-8000-000000000000" }),
            404,
            "NOT_FOUND",
        ),
        ("x", json!({}), 404, "EVENT_NOT_FOUND"),
        (
            "0190a0b0-0000-7000-8000-000000000000",
            json!({}),
            404,
            "EVENT_NOT_FOUND",
        ),
    ] {
        site.replay(event, &body).await.refused(status, code);
    }
    let (_, stranger) = site.workspace("Strangers");
    let foreign = site
        .client
        .request(http::Method::POST, &format!("{HOOK_EVENTS}/{id}/replay"))
        .bearer(&stranger)
        .json(&json!({ "endpointId": hook.id }));
    foreign.send().await.refused(404, "EVENT_NOT_FOUND");
    site.change_hook(&hook, &json!({ "enabled": false, "eventTypes": null }))
        .await
        .expect(200);
    site.replay(&id, &json!({ "endpointId": hook.id }))
        .await
        .refused(403, "ENDPOINT_DISABLED");
    let since = json!({ "since": "2020-01-01T00:00:00Z" });
    let missed = site.post(&hook.below("replay"), &since).send().await;
    missed.refused(403, "ENDPOINT_DISABLED");
    site.replay(&id, &json!({})).await.refused(404, "NOT_FOUND");
    site.unhook(&hook).await.expect(204);
    site.replay(&id, &json!({ "endpointId": hook.id }))
        .await
        .refused(404, "NOT_FOUND");
    assert_eq!(receiver.server.connections(), 0);
    assert_eq!(site.noted("webhook.replay").await, 0);
}

// Fault matrix 172
async fn replays_at_once_end_well(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let id = site.burn().await;
    site.ended(&id, 1).await;
    let path = format!("{HOOK_EVENTS}/{id}/replay");
    let mut replays = tokio::task::JoinSet::new();
    for _ in 0..30 {
        replays.spawn(site.post(&path, &json!({})).send());
    }
    let mut taken = 0;
    for reply in replays.join_all().await {
        assert!(matches!(reply.status, 202 | 409), "{}", reply.text());
        taken += usize::from(reply.status == 202);
    }
    let attempts = site.ended(&id, taken + 1).await;
    assert_eq!(attempts.len(), taken + 1);
    let numbers: Vec<&Value> = attempts.iter().map(|attempt| &attempt["attempt"]).collect();
    let expected: Vec<Value> = (1..=attempts.len()).map(Value::from).collect();
    assert_eq!(numbers, expected.iter().collect::<Vec<_>>());
    let made = attempts
        .iter()
        .filter(|attempt| attempt["status"] == "succeeded")
        .count();
    assert_eq!(receiver.messages().len(), made);
    assert_eq!(attempts.last().unwrap()["status"], "succeeded");
}

// Fault matrix 172
async fn a_hundred_replays_are_limited(store: Store) {
    let setup = Setup::new(store).hooked().set("limits.mutations_per_minute", 40);
    let site = setup.start().await;
    let receiver = Receiver::start().await;
    site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let id = site.burn().await;
    site.ended(&id, 1).await;
    let mut limited = 0;
    for _ in 0..100 {
        let reply = site.replay(&id, &json!({})).await;
        if reply.status == 429 {
            limited += 1;
            assert!(reply.header("retry-after").is_some());
            reply.refused(429, "RATE_LIMITED");
        }
    }
    assert!((55..=75).contains(&limited), "{limited}");
    assert!(receiver.messages().len() <= 1 + 45);
}

// Decisions 11
async fn what_was_missed_is_told_again(store: Store) {
    let site = Setup::new(store).hooked().schedule(&[0]).start().await;
    let receiver = Receiver::start().await;
    site.burn().await;
    let hook = site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let other = site.hook(&receiver.url("/other"), Some(&[BURNED])).await;
    let good = site.burn().await;
    site.ended(&good, 2).await;
    receiver.answers(500, &[], b"");
    let failed = site.burn().await;
    site.ended(&failed, 2).await;
    let boundary = site.event(&failed).await["created_at"].clone();
    site.change_hook(&hook, &json!({ "enabled": false }))
        .await
        .expect(200);
    site.unhook(&other).await.expect(204);
    let mut meanwhile = Vec::new();
    for _ in 0..3 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        meanwhile.push(site.burn().await);
    }
    receiver.answers(200, &[], b"");
    site.change_hook(&hook, &json!({ "enabled": true }))
        .await
        .expect(200);
    let before = receiver.messages().len();
    let replay = async |since: &Value| -> Value {
        let body = json!({ "since": since });
        let reply = site.post(&hook.below("replay"), &body).send().await.expect(202);
        reply.json()["replayed"].clone()
    };
    let third = site.event(&meanwhile[2]).await["created_at"].clone();
    assert_eq!(replay(&json!("2999-01-01T00:00:00Z")).await, 0);
    assert_eq!(replay(&third).await, 1);
    assert_eq!(
        replay(&boundary).await,
        3,
        "the failed one and two from while it was disabled"
    );
    eventually("all arrive", || async {
        (receiver.messages().len() == before + 4).then_some(())
    })
    .await;
    let mut arrived: Vec<String> = receiver.messages()[before..]
        .iter()
        .map(|m| m.id().to_owned())
        .collect();
    arrived.sort_unstable();
    let mut expected = meanwhile.clone();
    expected.push(failed.clone());
    expected.sort_unstable();
    assert_eq!(arrived, expected);
    for id in &meanwhile {
        let attempts = site.ended(id, 1).await;
        assert_eq!(
            (statuses(&attempts), &attempts[0]["manual_replay"]),
            (vec!["1 succeeded".to_owned()], &json!(true))
        );
    }
    assert_eq!(
        replay(&json!("2020-01-01T00:00:00Z")).await,
        json!(1),
        "what was before the endpoint"
    );
    site.chat(&chat("flat", "hi")).send().await.expect(200);
}

async fn a_long_replay_goes_on_where_it_stopped(store: Store) {
    let site = Setup::new(store)
        .hooked()
        .schedule(&[0])
        .set("webhooks.max_replayed", 3)
        .start()
        .await;
    let receiver = Receiver::start().await;
    let hook = site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    site.change_hook(&hook, &json!({ "enabled": false }))
        .await
        .expect(200);
    let mut missed = Vec::new();
    for _ in 0..7 {
        missed.push(site.burn().await);
    }
    site.change_hook(&hook, &json!({ "enabled": true }))
        .await
        .expect(200);
    let (mut cursor, mut told, mut rounds) = (json!(null), 0, 0);
    loop {
        let body = json!({ "since": "2020-01-01T00:00:00Z", "cursor": cursor });
        let reply = site
            .post(&hook.below("replay"), &body)
            .send()
            .await
            .expect(202)
            .json();
        told += reply["replayed"].as_u64().unwrap();
        rounds += 1;
        cursor = reply["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
        assert!(rounds < 20, "it comes to an end");
    }
    assert!(rounds > 4, "{rounds} rounds for more than fourteen events");
    assert_eq!(told, 7);
    let arrived = receiver.arrived(7).await;
    let arrived: std::collections::BTreeSet<_> = arrived.iter().map(|m| m.id().to_owned()).collect();
    assert_eq!(arrived, missed.into_iter().collect());
    let body = json!({ "since": "2020-01-01T00:00:00Z", "cursor": "nonsense" });
    let refused = site.post(&hook.below("replay"), &body).send().await;
    refused.refused(400, "CURSOR_INVALID");
}
