//! Events as people look at them: lists, pages while events come in, and the end of their time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use serde_json::{Value, json};

use crate::harness::hooks::{BURNED, HOOK_EVENTS, Receiver};
use crate::harness::{Client, Database, Service, Site, Store, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    a_list_is_asked_for_by_the_rules,
    a_list_is_paged_and_filtered,
    an_event_of_another_workspace_is_not_there,
    a_list_shows_the_latest_attempt,
    pages_neither_repeat_nor_leave_out_while_events_come_in,
    an_event_past_its_time_is_gone,
);

const CHANGED: &str = "credits.balance.changed";
const NOBODY: &str = "0190a0b0-0000-7000-8000-000000000000";

/// Makes `count` calls, which bring two events each.
async fn calls(site: &Site, count: usize) {
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..count {
        calls.spawn(site.chat(&chat("flat", "hi")).send());
    }
    for reply in calls.join_all().await {
        reply.expect(200);
    }
}

fn ids(page: &Value) -> Vec<String> {
    let ids = page["data"].as_array().unwrap().iter();
    ids.map(|event| event["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Every event of a list, page by page, newest first.
async fn all(site: &Site, query: &str) -> Vec<Value> {
    let mut events = Vec::new();
    let mut page = site.event_page(query).await;
    loop {
        events.extend(page["data"].as_array().unwrap().iter().cloned());
        let Some(cursor) = page["next_cursor"].as_str() else {
            return events;
        };
        assert_eq!(events.last().unwrap()["id"], cursor);
        page = site.event_page(&format!("{query}&cursor={cursor}")).await;
    }
}

// Fault matrix 150, 177
async fn a_list_is_asked_for_by_the_rules(store: Store) {
    let site = Site::new(store).await;
    calls(&site, 60).await;
    let (_, stranger) = site.workspace("Strangers");
    let ask = |key: &str, query: &str| {
        let path = format!("{HOOK_EVENTS}?{query}");
        site.client.request(Method::GET, &path).bearer(key).send()
    };
    for (query, size) in [("", 20), ("limit=1", 1), ("limit=100", 100), ("limit=7", 7)] {
        let page = ask(&site.key, query).await.expect(200);
        assert_eq!(page.header("cache-control"), Some("no-store"));
        let page = page.json();
        assert_eq!((&page["success"], ids(&page).len()), (&json!(true), size));
        assert!(page["next_cursor"].is_string());
    }
    for limit in ["0", "101", "-1", "x", "", "1.5", "1e2", "4294967297", "+5x"] {
        let refused = ask(&site.key, &format!("limit={limit}")).await;
        refused.refused(400, "VALIDATION_ERROR");
    }
    for kind in ["credits.burned", "", "CREDITS.BURN.COMPLETED", "burn.completed"] {
        let refused = ask(&site.key, &format!("type={kind}")).await;
        let refused = refused.refused(400, "VALIDATION_ERROR").json();
        assert_eq!(refused["details"][0]["path"], "type");
    }
    let mine = site.newest(BURNED).await;
    let call = site.chat(&chat("flat", "hi")).send().await.expect(200);
    let call = call.header("x-svc-call-id").unwrap().to_owned();
    let last = if mine.ends_with('0') { "1" } else { "0" };
    let unknown = format!("{}{last}", &mine[..mine.len() - 1]);
    for cursor in ["x", "", "5", &unknown, &call, &format!("{mine}x"), "%00", "null"] {
        let refused = ask(&site.key, &format!("cursor={cursor}")).await;
        assert_eq!(refused.status, 400, "{cursor}: {}", refused.text());
        refused.refused(400, "CURSOR_INVALID");
    }
    let foreign = ask(&stranger, &format!("cursor={mine}")).await;
    foreign.refused(400, "CURSOR_INVALID");
    // An id from before anything that is kept is the end of the list, as it is for an event that was swept.
    let old = ask(&site.key, &format!("cursor={NOBODY}")).await.expect(200);
    assert_eq!(
        old.json(),
        json!({ "success": true, "data": [], "next_cursor": null })
    );
    let twice = ask(&site.key, "limit=1&limit=2").await;
    twice.refused(400, "VALIDATION_ERROR");
}

// Fault matrix 179, specification 4.12
async fn a_list_is_paged_and_filtered(store: Store) {
    let site = Site::new(store).await;
    calls(&site, 8).await;
    site.grant("1", Some("alice"));
    let whole = all(&site, "limit=100").await;
    let sequences: Vec<u64> = whole
        .iter()
        .map(|event| event["sequence"].as_str().unwrap().parse().unwrap())
        .collect();
    let newest = sequences[0];
    let expected: Vec<u64> = (1..=newest).rev().collect();
    assert_eq!(sequences, expected, "newest first, without gaps");
    for limit in [1, 3, 5, 7] {
        assert_eq!(all(&site, &format!("limit={limit}")).await, whole, "{limit}");
    }
    // As many as fit exactly: still the last page.
    let exactly = site.event_page(&format!("limit={}", whole.len())).await;
    assert_eq!(
        (ids(&exactly).len(), &exactly["next_cursor"]),
        (whole.len(), &Value::Null)
    );
    for kind in [BURNED, CHANGED, "credits.topup.completed", "credits.burn.failed"] {
        let of_kind: Vec<&Value> = whole.iter().filter(|event| event["type"] == kind).collect();
        let listed = all(&site, &format!("limit=3&type={kind}")).await;
        assert_eq!(listed.iter().collect::<Vec<_>>(), of_kind, "{kind}");
    }
    // A cursor of another type than the filter's is a position all the same.
    let changed = site.newest(CHANGED).await;
    let page = site
        .event_page(&format!("type={BURNED}&cursor={changed}&limit=100"))
        .await;
    assert_eq!(ids(&page).len(), 8);
    // The last page stays the last.
    let oldest = whole.last().unwrap()["id"].as_str().unwrap().to_owned();
    let before_last = whole[whole.len() - 2]["id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let end = site.event_page(&format!("cursor={oldest}")).await;
        assert_eq!(end, json!({ "success": true, "data": [], "next_cursor": null }));
        let last = site.event_page(&format!("cursor={before_last}")).await;
        assert_eq!(
            (ids(&last), &last["next_cursor"]),
            (vec![oldest.clone()], &Value::Null)
        );
        calls(&site, 1).await;
    }
    for event in &whole {
        let mut shown = site.event(event["id"].as_str().unwrap()).await;
        let members = shown.as_object_mut().unwrap();
        assert_eq!(members.remove("deliveries"), Some(json!([])));
        members.insert("delivery".to_owned(), Value::Null);
        assert_eq!(&shown, event);
    }
}

// Fault matrix 150
async fn an_event_of_another_workspace_is_not_there(store: Store) {
    let site = Site::new(store).await;
    let id = site.burn().await;
    let (_, stranger) = site.workspace("Strangers");
    let ask = |key: &str, id: &str| {
        let path = format!("{HOOK_EVENTS}/{id}");
        site.client.request(Method::GET, &path).bearer(key).send()
    };
    ask(&site.key, &id).await.expect(200);
    let foreign = ask(&stranger, &id).await.refused(404, "EVENT_NOT_FOUND");
    let missing = ask(&stranger, NOBODY).await.refused(404, "EVENT_NOT_FOUND");
    assert_eq!(foreign.json()["message"], missing.json()["message"]);
    for nonsense in ["x", "1", "%00", "null", &format!("{id}0"), "%2e%2e"] {
        ask(&site.key, nonsense).await.refused(404, "EVENT_NOT_FOUND");
    }
}

async fn a_list_shows_the_latest_attempt(store: Store) {
    let site = Site::hooked(store).await;
    let before = site.burn().await;
    let receiver = Receiver::answering(500, &[], b"no").await;
    site.hook(&receiver.url("/"), Some(&[BURNED])).await;
    let id = site.burn().await;
    site.ended(&id, 1).await;
    let page = site.event_page("limit=100").await;
    let shown: BTreeMap<&str, &Value> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["id"].as_str().unwrap(), &event["delivery"]))
        .collect();
    assert_eq!(shown[before.as_str()], &Value::Null);
    assert_eq!(
        (&shown[id.as_str()]["attempt"], &shown[id.as_str()]["status"]),
        (&json!(2), &json!("pending"))
    );
    let attempts = site.attempts(&id).await;
    assert_eq!(shown[id.as_str()], attempts.last().unwrap());
    let others = shown.values().filter(|delivery| !delivery.is_null()).count();
    assert_eq!(others, 1, "only what is wanted is told");
}

/// Reads every page through `client` and gives the ids.
async fn read(client: &Client, key: &str, limit: usize) -> Vec<String> {
    let mut seen = Vec::new();
    let mut query = format!("limit={limit}");
    loop {
        let request = client.request(Method::GET, &format!("{HOOK_EVENTS}?{query}"));
        let page = request.bearer(key).send().await.expect(200).json();
        seen.extend(ids(&page));
        match page["next_cursor"].as_str() {
            Some(cursor) => query = format!("limit={limit}&cursor={cursor}"),
            None => return seen,
        }
    }
}

// Fault matrix 178
async fn pages_neither_repeat_nor_leave_out_while_events_come_in(store: Store) {
    let site = Site::new(store).await;
    calls(&site, 300).await;
    let start: BTreeSet<String> = all(&site, "limit=100")
        .await
        .iter()
        .map(|event| event["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(start.len() >= 600);
    // With PostgreSQL, through two services.
    let second: Option<Service> = match store {
        Store::Sqlite => None,
        Store::Postgres => Some(site.second().await),
    };
    let clients: Vec<Client> = std::iter::once(site.client.clone())
        .chain(second.as_ref().map(Service::client))
        .collect();
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (client, key, done) = (
            clients[number % clients.len()].clone(),
            site.key.clone(),
            done.clone(),
        );
        writers.spawn(async move {
            let mut written = 0;
            while !done.load(Ordering::SeqCst) {
                let call = client.request(Method::POST, crate::harness::CHAT);
                call.bearer(&key)
                    .json(&chat("free", "hi"))
                    .send()
                    .await
                    .expect(200);
                written += 1;
            }
            written
        });
    }
    let mut reads = Vec::new();
    for limit in [7, 100, 10] {
        for client in &clients {
            reads.push(read(client, &site.key, limit).await);
        }
    }
    done.store(true, Ordering::SeqCst);
    let written: usize = writers.join_all().await.into_iter().sum();
    assert!(written > 8, "{written}");
    for seen in reads {
        let distinct: BTreeSet<String> = seen.iter().cloned().collect();
        assert_eq!(distinct.len(), seen.len(), "one is there twice");
        assert!(start.is_subset(&distinct), "one was left out");
    }
}

/// Makes the oldest `count` events 31 days older, ids included, as if they had been made then.
async fn age(site: &Site, events: &[Value]) {
    let (before, after) = match &site.database {
        Database::Sqlite(_) => (
            "DROP TRIGGER events_no_update;",
            "CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN \
             SELECT RAISE(ABORT, 'events are append-only'); END;",
        ),
        Database::Postgres { .. } => ("SET session_replication_role = replica;", ""),
    };
    let mut sql = before.to_owned();
    for event in events {
        let id = event["id"].as_str().unwrap();
        let older = older(id);
        let literal = |id: &str| match &site.database {
            Database::Sqlite(_) => format!("x'{}'", id.replace('-', "")),
            Database::Postgres { .. } => format!("'{id}'"),
        };
        let (older, id) = (literal(&older), literal(id));
        sql.extend([
            format!("UPDATE events SET created_at = created_at - {OLDER_MS}, id = {older} "),
            format!("WHERE id = {id};"),
        ]);
    }
    sql.push_str(after);
    site.database.execute(&sql).await;
}

const OLDER_MS: i64 = 31 * 86_400_000;

/// The id that an event would have had 31 days earlier.
fn older(id: &str) -> String {
    let id = uuid::Uuid::parse_str(id).unwrap();
    let old = id.as_u128() - (u128::try_from(OLDER_MS).unwrap() << 80);
    uuid::Uuid::from_u128(old).to_string()
}

// Fault matrix 180
async fn an_event_past_its_time_is_gone(store: Store) {
    let mut site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    site.hook(&receiver.url("/"), None).await;
    calls(&site, 5).await;
    receiver.arrived(10).await;
    eventually("all are recorded", || async {
        let open = "SELECT COUNT(*) FROM webhook_deliveries WHERE status <> 2";
        (site.database.number(open).await == 0).then_some(())
    })
    .await;
    let whole = all(&site, "limit=100").await;
    let count = whole.len();
    // The six newest stay.
    age(&site, &whole[6..]).await;
    let left = all(&site, "limit=4").await;
    assert_eq!(left, whole[..6]);
    let cursor = older(whole[6]["id"].as_str().unwrap());
    let empty = json!({ "success": true, "data": [], "next_cursor": null });
    let gone = async |site: &Site| {
        assert_eq!(site.event_page(&format!("cursor={cursor}")).await, empty);
        assert_eq!(
            site.event_page(&format!("cursor={cursor}&type={BURNED}")).await,
            empty
        );
        let path = format!("{HOOK_EVENTS}/{cursor}");
        site.get(&path).send().await.refused(404, "EVENT_NOT_FOUND");
        site.replay(&cursor, &json!({}))
            .await
            .refused(404, "EVENT_NOT_FOUND");
        let at_the_edge = whole[5]["id"].as_str().unwrap();
        assert_eq!(site.event_page(&format!("cursor={at_the_edge}")).await, empty);
    };
    gone(&site).await;
    // Whoever has missed everything is told of what is kept.
    let late = Receiver::start().await;
    let hook = site.hook(&late.url("/"), None).await;
    let since = json!({ "since": "2020-01-01T00:00:00Z" });
    let replayed = site.post(&hook.below("replay"), &since).send().await.expect(202);
    assert_eq!(replayed.json()["replayed"], 6);
    late.arrived(6).await;
    site.unhook(&hook).await.expect(204);
    let kept = "SELECT COUNT(*) FROM events";
    assert_eq!(site.database.number(kept).await, i64::try_from(count).unwrap());
    // The job looks when a service starts.
    site.restart(&[]).await;
    eventually("they are swept", || async {
        (site.database.number(kept).await == 6).then_some(())
    })
    .await;
    let attempts = "SELECT COUNT(*) FROM webhook_deliveries";
    assert_eq!(site.database.number(attempts).await, 12);
    gone(&site).await;
    let ids = |events: &[Value]| -> Vec<Value> { events.iter().map(|event| event["id"].clone()).collect() };
    assert_eq!(ids(&all(&site, "limit=4").await), ids(&whole[..6]));
    site.audit();
    calls(&site, 1).await;
    receiver.arrived(12).await;
    let newest: u64 = site.event_page("limit=1").await["data"][0]["sequence"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(
        newest,
        u64::try_from(count).unwrap() + 2,
        "positions are not used again"
    );
}
