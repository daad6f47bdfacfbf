//! Deliveries that go well: what arrives, at whom, and signed by whom.

use serde_json::{Value, json};

use crate::harness::hooks::{BURNED, HOOK_EVENTS, Hook, Message, Receiver, millis, statuses};
use crate::harness::upstream::answer;
use crate::harness::{Gate, Site, Step, Store, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    what_arrives_is_the_event_as_it_is_shown,
    an_endpoint_is_told_of_what_it_wants_from_then_on,
    another_workspace_is_told_nothing,
    both_secrets_sign_until_the_overlap_is_over,
    an_endpoint_that_hangs_keeps_nobody_waiting,
    a_changed_address_is_told_from_then_on,
    many_events_arrive_once_each,
    a_name_of_this_machine_is_reached,
    an_attempt_that_runs_is_finished_before_the_service_stops,
);

mod postgres_only {
    #[test]
    fn two_services_tell_of_each_event_once() {
        crate::harness::run(super::two_services());
    }
}

// Specification 2.12, 4.13
async fn what_arrives_is_the_event_as_it_is_shown(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::answering(204, &[], b"").await;
    let hook = site.hook(&receiver.url("/hook?for=me"), Some(&[BURNED])).await;
    let id = site.burn().await;
    let message = receiver.arrived(1).await.remove(0);
    assert_eq!(
        (message.0.method.as_str(), message.0.path.as_str()),
        ("POST", "/hook?for=me")
    );
    assert_eq!(message.header("content-type"), "application/json");
    assert_eq!(message.header("host"), receiver.server.address.to_string());
    assert!(message.header("user-agent").starts_with("Turnpike-Webhooks/"));
    assert_eq!((message.id(), message.signatures()), (id.as_str(), 1));
    assert!(message.is_signed_by(&hook.secret));
    let mut forged = message.clone();
    forged.0.body[20] ^= 1;
    assert!(!forged.is_signed_by(&hook.secret));
    site.ended(&id, 1).await;
    let mut shown = site.event(&id).await;
    let attempts = shown.as_object_mut().unwrap().remove("deliveries").unwrap();
    assert_eq!(message.json(), shown);
    let members: Vec<&str> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    let named = [
        "id",
        "type",
        "api_version",
        "created_at",
        "sequence",
        "tenant_id",
        "data",
        "retained_until",
    ];
    assert_eq!(members, named);
    assert_eq!(
        (&shown["type"], &shown["api_version"], &shown["tenant_id"]),
        (&json!(BURNED), &json!("2026-11-01"), &json!(site.tenant))
    );
    assert!(shown["sequence"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(
        millis(&shown["retained_until"]) - millis(&shown["created_at"]),
        30 * 86_400_000
    );
    assert_eq!(shown["data"]["chargedUsd"], "0.01");
    let attempt = &attempts[0];
    assert_eq!(
        (attempts.as_array().unwrap().len(), &attempt["endpoint_id"]),
        (1, &json!(hook.id))
    );
    assert_eq!(
        [
            "attempt",
            "status",
            "manual_replay",
            "http_status",
            "response_body",
            "error",
            "destination_url"
        ]
        .map(|name| attempt[name].clone()),
        [
            json!(1),
            json!("succeeded"),
            json!(false),
            json!(204),
            Value::Null,
            Value::Null,
            json!(receiver.url("/hook?for=me"))
        ]
    );
    let times = ["scheduled_at", "started_at", "finished_at"].map(|name| millis(&attempt[name]));
    assert!(times.is_sorted() && times[2] - times[0] < 5_000, "{times:?}");
    assert!(uuid::Uuid::parse_str(attempt["id"].as_str().unwrap()).is_ok());
    let page = site.event_page(&format!("limit=1&type={BURNED}")).await;
    assert_eq!(&page["data"][0]["delivery"], attempt, "the list shows the same");
}

async fn an_endpoint_is_told_of_what_it_wants_from_then_on(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    site.burn().await;
    site.hook(&receiver.url("/all"), None).await;
    site.hook(&receiver.url("/burns"), Some(&[BURNED])).await;
    site.hook(
        &receiver.url("/failures"),
        Some(&["credits.burn.failed", "credits.topup.failed"]),
    )
    .await;
    let id = site.burn().await;
    receiver.arrived(3).await;
    // Nothing else comes after what was told last.
    let last = site.burn().await;
    receiver.arrived(6).await;
    let kinds = |path: &str| -> Vec<Value> {
        let mut kinds: Vec<Value> = receiver
            .at(path)
            .iter()
            .map(|message| message.json()["type"].clone())
            .collect();
        kinds.sort_by_key(Value::to_string);
        kinds
    };
    let changed = json!("credits.balance.changed");
    assert_eq!(
        kinds("/all"),
        [&changed, &changed, &json!(BURNED), &json!(BURNED)].map(Clone::clone)
    );
    assert_eq!(kinds("/failures"), Vec::<Value>::new());
    let mut burns: Vec<String> = receiver.at("/burns").iter().map(|m| m.id().to_owned()).collect();
    burns.sort_unstable();
    assert_eq!(burns, [id.clone(), last]);
    // One event, two endpoints: one id, one body.
    let both: Vec<Message> = receiver.messages().into_iter().filter(|m| m.id() == id).collect();
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].0.body, both[1].0.body);
    assert_eq!(site.attempts(&id).await.len(), 2);
}

// Fault matrix 147 of webhooks
async fn another_workspace_is_told_nothing(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let (_, stranger) = site.workspace("Strangers");
    let theirs = site
        .client
        .request(http::Method::POST, crate::harness::hooks::ENDPOINTS)
        .bearer(&stranger)
        .json(&json!({ "url": receiver.url("/theirs") }));
    theirs.send().await.expect(201);
    site.hook(&receiver.url("/mine"), None).await;
    let id = site.burn().await;
    receiver.arrived(2).await;
    assert_eq!(receiver.at("/theirs").len(), 0);
    for below in ["", "/replay"] {
        let method = if below.is_empty() {
            http::Method::GET
        } else {
            http::Method::POST
        };
        let request = site.client.request(method, &format!("{HOOK_EVENTS}/{id}{below}"));
        let foreign = request.bearer(&stranger).json(&json!({})).send().await;
        foreign.refused(404, "EVENT_NOT_FOUND");
    }
    let list = site
        .client
        .request(http::Method::GET, HOOK_EVENTS)
        .bearer(&stranger);
    assert_eq!(list.send().await.expect(200).json()["data"], json!([]));
}

// Fault matrix 173
async fn both_secrets_sign_until_the_overlap_is_over(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let hook = site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let rotate = async |body: Value| -> String {
        let rotated = site
            .post(&hook.below("rotate-secret"), &body)
            .send()
            .await
            .expect(200);
        rotated.json()["endpoint"]["secret"].as_str().unwrap().to_owned()
    };
    let second = rotate(json!({})).await;
    site.burn().await;
    let message = receiver.arrived(1).await.remove(0);
    assert_eq!(message.signatures(), 2);
    assert!(message.is_signed_by(&hook.secret) && message.is_signed_by(&second));
    let third = rotate(json!({ "overlapSeconds": 0 })).await;
    assert_eq!(site.shown_hook(&hook).await["secretOverlapEndsAt"], Value::Null);
    site.burn().await;
    let message = receiver.arrived(2).await.remove(1);
    assert_eq!(message.signatures(), 1);
    assert!(message.is_signed_by(&third));
    assert!(!message.is_signed_by(&hook.secret) && !message.is_signed_by(&second));
    let fourth = rotate(json!({ "overlapSeconds": 1 })).await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    site.burn().await;
    let message = receiver.arrived(3).await.remove(2);
    assert_eq!(message.signatures(), 1);
    assert!(message.is_signed_by(&fourth) && !message.is_signed_by(&third));
    // No more secrets sign at once than a header has room for.
    for _ in 0..4 {
        rotate(json!({})).await;
    }
    let one_more = site.post(&hook.below("rotate-secret"), &json!({})).send().await;
    one_more.refused(409, "ALREADY_EXISTS");
    rotate(json!({ "overlapSeconds": 0 })).await;
}

// Fault matrix 171
async fn an_endpoint_that_hangs_keeps_nobody_waiting(store: Store) {
    let site = Site::hooked(store).await;
    let (slow, quick) = (Receiver::start().await, Receiver::start().await);
    let gate = Gate::new();
    slow.does(vec![Step::Wait(gate.clone())]);
    let hanging = site.hook(&slow.url("/"), Some(&[BURNED])).await;
    site.hook(&quick.url("/"), Some(&[BURNED])).await;
    for _ in 0..12 {
        site.chat(&chat("flat", "hi")).send().await.expect(200);
    }
    let told = quick.arrived(12).await;
    assert!(
        (1..12).contains(&slow.messages().len()),
        "one endpoint holds a few places"
    );
    let first = slow.messages().remove(0);
    let attempts = site.attempts(first.id()).await;
    let of_it = attempts
        .iter()
        .find(|attempt| attempt["endpoint_id"] == hanging.id);
    assert_eq!(of_it.unwrap()["status"], "delivering");
    let mut ids: Vec<&str> = told.iter().map(Message::id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 12);
    gate.open();
}

async fn a_changed_address_is_told_from_then_on(store: Store) {
    let site = Site::hooked(store).await;
    let (old, new) = (Receiver::start().await, Receiver::start().await);
    let hook = site.hook(&old.url("/"), Some(&[BURNED])).await;
    site.burn().await;
    old.arrived(1).await;
    let change = json!({ "url": new.url("/new"), "eventTypes": [BURNED, "credits.balance.changed"] });
    site.change_hook(&hook, &change).await.expect(200);
    let id = site.burn().await;
    let told = new.arrived(2).await;
    assert!(
        told.iter().all(|message| message.is_signed_by(&hook.secret)),
        "its secret stays"
    );
    let attempts = site.ended(&id, 1).await;
    assert_eq!(attempts[0]["destination_url"], new.url("/new"));
    old.arrived(1).await;
    // What waits goes there, too.
    new.answers(500, &[], b"");
    let id = site.burn().await;
    site.ended(&id, 1).await;
    let change = json!({ "url": old.url("/back"), "eventTypes": [BURNED] });
    site.change_hook(&hook, &change).await.expect(200);
    let attempts = site.ended(&id, 2).await;
    assert_eq!(statuses(&attempts), ["1 failed", "2 succeeded"]);
    assert_eq!(
        [&attempts[0], &attempts[1]].map(|attempt| attempt["destination_url"].clone()),
        [json!(new.url("/new")), json!(old.url("/back"))]
    );
    let told = old.at("/back");
    assert_eq!(told.iter().filter(|message| message.id() == id).count(), 1);
}

/// Waits until `count` events were told of, and checks that each was told of once, to whom it should be.
async fn all_told(receiver: &Receiver, hook: &Hook, count: usize) {
    eventually("all are told of", || async {
        (receiver.messages().len() >= count).then_some(())
    })
    .await;
    let messages = receiver.messages();
    let mut sequences: Vec<u64> = messages
        .iter()
        .map(|message| message.json()["sequence"].as_str().unwrap().parse().unwrap())
        .collect();
    sequences.sort_unstable();
    let first = sequences[0];
    let expected: Vec<u64> = (first..first + u64::try_from(count).unwrap()).collect();
    assert_eq!(sequences, expected, "each once, none left out");
    assert!(messages.iter().all(|message| message.is_signed_by(&hook.secret)));
}

// Fault matrix 174
async fn many_events_arrive_once_each(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let hook = site.hook(&receiver.url("/"), None).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..150 {
        calls.spawn(site.chat(&chat("flat", "hi")).send());
    }
    for reply in calls.join_all().await {
        reply.expect(200);
    }
    all_told(&receiver, &hook, 300).await;
    let last = site.newest(BURNED).await;
    assert_eq!(statuses(&site.ended(&last, 1).await), ["1 succeeded"]);
}

async fn a_name_of_this_machine_is_reached(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let url = receiver.url("/").replace("127.0.0.1", "localhost");
    site.hook(&url, Some(&[BURNED])).await;
    let id = site.burn().await;
    assert_eq!(statuses(&site.ended(&id, 1).await), ["1 succeeded"]);
    receiver.arrived(1).await;
}

// Fault matrix 209 of webhooks
async fn an_attempt_that_runs_is_finished_before_the_service_stops(store: Store) {
    let mut site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let gate = Gate::new();
    receiver.does(vec![Step::Wait(gate.clone()), answer(200, &[], b"")]);
    site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let id = site.burn().await;
    eventually("it is under way", || async {
        (receiver.messages().len() == 1).then_some(())
    })
    .await;
    site.service().signal(rustix::process::Signal::TERM);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    gate.open();
    let ended = site
        .service
        .as_mut()
        .unwrap()
        .wait(std::time::Duration::from_secs(10))
        .await;
    assert!(ended.success());
    site.restart(&[]).await;
    assert_eq!(statuses(&site.attempts(&id).await), ["1 succeeded"]);
    receiver.arrived(1).await;
}

// Fault matrix 174 on two nodes
async fn two_services() {
    let site = Site::hooked(Store::Postgres).await;
    let second = site.second().await;
    let receiver = Receiver::start().await;
    let hook = site.hook(&receiver.url("/"), None).await;
    let clients = [site.client.clone(), second.client()];
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..150 {
        let call = clients[index % 2].request(http::Method::POST, crate::harness::CHAT);
        calls.spawn(call.bearer(&site.key).json(&chat("flat", "hi")).send());
    }
    for reply in calls.join_all().await {
        reply.expect(200);
    }
    all_told(&receiver, &hook, 300).await;
    eventually("all are recorded", || async {
        let open = "SELECT COUNT(*) FROM webhook_deliveries WHERE status <> 2";
        (site.database.number(open).await == 0).then_some(())
    })
    .await;
    let attempts = "SELECT COUNT(*) FROM webhook_deliveries";
    assert_eq!(
        (site.database.number(attempts).await, receiver.messages().len()),
        (300, 300)
    );
}
