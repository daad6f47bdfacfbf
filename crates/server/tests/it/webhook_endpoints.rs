//! Webhook endpoints: how people add, look at, change and remove them, and that a secret is shown once.

use http::Method;
use serde_json::{Value, json};

use crate::harness::hooks::{ALL_TYPES, ENDPOINTS, Hook, Receiver, millis};
use crate::harness::{Client, Reply, Setup, Site, Store};
use crate::on_both_stores;

on_both_stores!(
    an_endpoint_is_added_listed_and_shown,
    a_secret_is_shown_once,
    each_member_is_changed_alone,
    an_endpoint_that_is_removed_is_gone,
    an_endpoint_of_another_workspace_is_not_there,
    a_workspace_has_so_many_endpoints,
    every_change_is_noted,
    an_example_is_sent_at_once_and_is_no_event,
);

/// The endpoints of the workspace.
pub async fn list(site: &Site) -> Vec<Value> {
    let list = site.get(ENDPOINTS).send().await.expect(200).json();
    assert_eq!(list["success"], true);
    list["data"].as_array().unwrap().clone()
}

// Decisions 11
async fn an_endpoint_is_added_listed_and_shown(store: Store) {
    let site = Site::hooked(store).await;
    assert!(list(&site).await.is_empty());
    let body = json!({ "url": "http://127.0.0.1:9/a?b=c", "eventTypes": null, "description": "the first" });
    let made = site.post(ENDPOINTS, &body).send().await.expect(201);
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let mut first = made.json()["endpoint"].clone();
    let secret = first.as_object_mut().unwrap().remove("secret").unwrap();
    assert!(secret.as_str().unwrap().starts_with("whsec_"));
    assert!(millis(&first["createdAt"]) > 0 && first["createdAt"] == first["updatedAt"]);
    let (id, at) = (first["id"].clone(), first["createdAt"].clone());
    assert_eq!(
        first,
        json!({
            "id": id, "url": "http://127.0.0.1:9/a?b=c", "description": "the first", "eventTypes": null,
            "enabled": true, "disabledReason": null, "disabledAt": null, "failingSince": null,
            "secretOverlapEndsAt": null, "createdAt": at, "updatedAt": at,
        })
    );
    let types = json!([
        "credits.topup.completed",
        "credits.burn.failed",
        "credits.burn.failed"
    ]);
    let body = json!({ "url": "https://LocalHost:8443", "eventTypes": types });
    let second = site.post(ENDPOINTS, &body).send().await.expect(201).json()["endpoint"].clone();
    assert_eq!(
        (&second["url"], &second["description"], &second["eventTypes"]),
        (
            &json!("https://localhost:8443/"),
            &json!(""),
            &json!(["credits.topup.completed", "credits.burn.failed"])
        )
    );
    let all = site
        .post(
            ENDPOINTS,
            &json!({ "url": "http://[::1]:9/", "eventTypes": ALL_TYPES }),
        )
        .send()
        .await
        .expect(201)
        .json()["endpoint"]
        .clone();
    assert_eq!(all["eventTypes"], json!(ALL_TYPES));
    let listed = list(&site).await;
    let ids: Vec<&Value> = listed.iter().map(|endpoint| &endpoint["id"]).collect();
    assert_eq!(ids, [&first["id"], &second["id"], &all["id"]], "oldest first");
    assert_eq!(listed[0], first);
    let path = format!("{ENDPOINTS}/{}", id.as_str().unwrap());
    let shown = site.get(&path).send().await.expect(200);
    assert_eq!(shown.header("cache-control"), Some("no-store"));
    assert_eq!(shown.json(), json!({ "success": true, "endpoint": first }));
}

// Fault matrix 223
async fn a_secret_is_shown_once(store: Store) {
    let site = Site::hooked(store).await;
    let hook = site.hook("http://127.0.0.1:9/", None).await;
    // Without a body everything is as usual.
    let rotate = site
        .client
        .request(Method::POST, &hook.below("rotate-secret"))
        .bearer(&site.key);
    let rotated = rotate.send().await.expect(200);
    assert_eq!(rotated.header("cache-control"), Some("no-store"));
    let rotated = rotated.json()["endpoint"].clone();
    let second = rotated["secret"].as_str().unwrap();
    assert!(second.starts_with("whsec_") && second != hook.secret);
    let overlap = millis(&rotated["secretOverlapEndsAt"]) - millis(&rotated["updatedAt"]);
    assert!((86_399_000..=86_400_000).contains(&overlap), "{overlap}");
    let event = site.burn().await;
    site.ended(&event, 1).await;
    let replies = [
        site.get(ENDPOINTS).send().await,
        site.get(&hook.path()).send().await,
        site.change_hook(&hook, &json!({ "description": "x" })).await,
        site.post(&hook.below("test"), &json!({})).send().await,
        site.get(&format!("/api/credits/webhooks/events/{event}"))
            .send()
            .await,
        site.unhook(&hook).await,
    ];
    let audited =
        "SELECT COUNT(*) FROM audit_log WHERE before_json LIKE '%whsec%' OR after_json LIKE '%whsec%'";
    assert_eq!(site.database.number(audited).await, 0);
    let log = site.service().logged();
    for secret in [hook.secret.as_str(), second] {
        let bare = secret.trim_start_matches("whsec_");
        for reply in &replies {
            assert!(!reply.text().contains(bare), "{}", reply.text());
        }
        assert!(!log.contains(bare));
        let stored = format!("SELECT COUNT(*) FROM webhook_endpoints WHERE secrets LIKE '%{bare}%'");
        assert_eq!(site.database.number(&stored).await, 0);
    }
}

async fn each_member_is_changed_alone(store: Store) {
    let site = Site::hooked(store).await;
    let hook = site
        .hook("http://127.0.0.1:9/", Some(&["credits.burn.failed"]))
        .await;
    let mut expected = site.shown_hook(&hook).await;
    for (change, member, value) in [
        (json!({}), "enabled", json!(true)),
        (
            json!({ "url": "http://127.0.0.1:10/x" }),
            "url",
            json!("http://127.0.0.1:10/x"),
        ),
        (json!({ "description": "words" }), "description", json!("words")),
        (json!({ "description": null }), "description", json!("")),
        (
            json!({ "eventTypes": ["credits.balance.low"] }),
            "eventTypes",
            json!(["credits.balance.low"]),
        ),
        (json!({ "eventTypes": null }), "eventTypes", Value::Null),
        (json!({ "enabled": false }), "enabled", json!(false)),
        (json!({ "enabled": false }), "enabled", json!(false)),
        (json!({ "enabled": true }), "enabled", json!(true)),
    ] {
        let mut changed = site.change_hook(&hook, &change).await.expect(200).json()["endpoint"].clone();
        assert_eq!(changed, site.shown_hook(&hook).await);
        expected[member] = value;
        let disabled = changed["enabled"] == false;
        assert_eq!(changed["disabledAt"].is_string(), disabled);
        expected["disabledReason"] = if disabled { json!("manual") } else { Value::Null };
        changed["disabledAt"] = Value::Null;
        assert!(millis(&changed["updatedAt"]) >= millis(&expected["updatedAt"]));
        expected["updatedAt"] = changed["updatedAt"].clone();
        assert_eq!(changed, expected, "{change}");
    }
}

async fn an_endpoint_that_is_removed_is_gone(store: Store) {
    let site = Site::hooked(store).await;
    let (hook, other) = (
        site.hook("http://127.0.0.1:9/", None).await,
        site.hook("http://127.0.0.1:9/", None).await,
    );
    let gone = site.unhook(&hook).await.expect(204);
    assert!(gone.body.is_empty());
    for reply in ways(&site.client, &site.key, &hook).await {
        reply.refused(404, "NOT_FOUND");
    }
    let left = list(&site).await;
    assert_eq!((left.len(), &left[0]["id"]), (1, &json!(other.id)));
}

/// Everything that can be done to an endpoint, done with this key.
async fn ways(client: &Client, key: &str, hook: &Hook) -> Vec<Reply> {
    let mut replies = Vec::new();
    for (method, path, body) in [
        (Method::GET, hook.path(), None),
        (Method::PATCH, hook.path(), Some(json!({ "description": "mine" }))),
        (Method::POST, hook.below("rotate-secret"), Some(json!({}))),
        (Method::POST, hook.below("test"), Some(json!({}))),
        (
            Method::POST,
            hook.below("replay"),
            Some(json!({ "since": "2026-11-01T00:00:00Z" })),
        ),
        (Method::DELETE, hook.path(), None),
    ] {
        let mut request = client.request(method, &path).bearer(key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        replies.push(request.send().await);
    }
    replies
}

// Fault matrix 147 of webhooks
async fn an_endpoint_of_another_workspace_is_not_there(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let hook = site.hook(&receiver.url("/"), None).await;
    let shown = site.shown_hook(&hook).await;
    let (_, stranger) = site.workspace("Strangers");
    let words = |reply: &Reply| reply.json()["message"].clone();
    let unknown = Hook {
        id: "0190a0b0-0000-7000-8000-000000000000".to_owned(),
        ..hook.clone()
    };
    let foreign = ways(&site.client, &stranger, &hook).await;
    let missing = ways(&site.client, &stranger, &unknown).await;
    for (foreign, missing) in foreign.into_iter().zip(missing) {
        assert_eq!(words(&foreign), words(&missing), "nothing tells them apart");
        foreign.refused(404, "NOT_FOUND");
    }
    let nonsense = Hook {
        id: "x".to_owned(),
        ..hook.clone()
    };
    for reply in ways(&site.client, &site.key, &nonsense).await {
        reply.refused(404, "NOT_FOUND");
    }
    let theirs = site.client.request(Method::GET, ENDPOINTS).bearer(&stranger);
    assert_eq!(theirs.send().await.expect(200).json()["data"], json!([]));
    assert_eq!(site.shown_hook(&hook).await, shown);
    assert_eq!(receiver.server.connections(), 0);
}

async fn a_workspace_has_so_many_endpoints(store: Store) {
    let setup = Setup::new(store).hooked().set("webhooks.max_endpoints", 3);
    let site = setup.start().await;
    let mut adding = tokio::task::JoinSet::new();
    for _ in 0..10 {
        adding.spawn(
            site.post(ENDPOINTS, &json!({ "url": "http://127.0.0.1:9/" }))
                .send(),
        );
    }
    let mut replies = adding.join_all().await;
    replies.retain(|reply| reply.status != 201);
    assert_eq!((replies.len(), list(&site).await.len()), (7, 3));
    for reply in replies {
        reply.refused(409, "ALREADY_EXISTS");
    }
    let first = Hook {
        id: list(&site).await[0]["id"].as_str().unwrap().to_owned(),
        secret: String::new(),
    };
    site.unhook(&first).await.expect(204);
    site.hook("http://127.0.0.1:9/", None).await;
}

async fn every_change_is_noted(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::start().await;
    let hook = site.hook(&receiver.url("/"), None).await;
    site.change_hook(&hook, &json!({ "description": "new words" }))
        .await
        .expect(200);
    let rotate = hook.below("rotate-secret");
    site.post(&rotate, &json!({})).send().await.expect(200);
    let event = site.burn().await;
    site.ended(&event, 1).await;
    site.replay(&event, &json!({})).await.expect(202);
    let since = json!({ "since": "2020-01-01T00:00:00Z" });
    let missed = site.post(&hook.below("replay"), &since).send().await;
    missed.expect(202);
    site.unhook(&hook).await.expect(204);
    for action in [
        "webhook_endpoint.create",
        "webhook_endpoint.change",
        "webhook_endpoint.rotate_secret",
        "webhook.replay",
        "webhook_endpoint.replay",
        "webhook_endpoint.delete",
    ] {
        assert_eq!(site.noted(action).await, 1, "{action}");
    }
    let words = "SELECT COUNT(*) FROM audit_log WHERE action = 'webhook_endpoint.change' \
                 AND after_json LIKE '%new words%' AND before_json NOT LIKE '%new words%' AND origin LIKE 'PATCH /api/credits/webhooks/endpoints/% from 127.0.0.1'";
    assert_eq!(site.database.number(words).await, 1);
    let of_it = format!(
        "SELECT COUNT(*) FROM audit_log WHERE target = '{}' AND actor <> ''",
        hook.id
    );
    assert_eq!(site.database.number(&of_it).await, 5);
}

async fn an_example_is_sent_at_once_and_is_no_event(store: Store) {
    let site = Site::hooked(store).await;
    let receiver = Receiver::answering(202, &[], b"thanks").await;
    let hook = site
        .hook(&receiver.url("/x"), Some(&["credits.burn.failed"]))
        .await;
    let before = site.event_page("limit=1").await;
    let test = |body: Value| site.post(&hook.below("test"), &body).send();
    let reply = test(json!({ "type": "credits.balance.low" })).await.expect(200);
    let result = reply.json()["result"].clone();
    let messages = receiver.arrived(1).await;
    assert!(messages[0].is_signed_by(&hook.secret));
    let body = messages[0].json();
    assert_eq!(
        (
            &body["type"],
            &body["sequence"],
            &body["data"]["test"],
            &body["id"]
        ),
        (
            &json!("credits.balance.low"),
            &json!("0"),
            &json!(true),
            &result["event_id"]
        )
    );
    assert_eq!(
        ["succeeded", "http_status", "response_body", "error"].map(|name| result[name].clone()),
        [json!(true), json!(202), json!("thanks"), Value::Null]
    );
    receiver.answers(500, &[], b"no");
    let result = test(json!({})).await.expect(200).json()["result"].clone();
    assert_eq!(
        (&result["succeeded"], &result["http_status"]),
        (&json!(false), &json!(500))
    );
    assert!(result["error"].is_string());
    assert_eq!(site.event_page("limit=1").await, before);
    receiver.arrived(2).await;
    assert_eq!(site.shown_hook(&hook).await["failingSince"], Value::Null);
}
