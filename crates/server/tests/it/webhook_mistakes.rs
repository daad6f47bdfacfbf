//! Requests about webhook endpoints that are refused, and change nothing.

use http::Method;
use serde_json::json;

use crate::harness::hooks::{ALL_TYPES, ENDPOINTS};
use crate::harness::{Site, Store};
use crate::on_both_stores;
use crate::webhook_endpoints::list;

on_both_stores!(a_mistake_changes_nothing,);

async fn a_mistake_changes_nothing(store: Store) {
    let site = Site::hooked(store).await;
    let url = "http://127.0.0.1:9/";
    let hook = site.hook(url, None).await;
    let before = site.shown_hook(&hook).await;
    let long_url = format!("{url}{}", "x".repeat(2049 - url.len()));
    let many: Vec<&str> = ALL_TYPES.iter().copied().chain(["credits.burn.failed"]).collect();
    let mistakes = [
        (
            json!({ "url": url, "secret": "whsec_mine" }),
            "UNKNOWN_FIELD",
            "secret",
        ),
        (
            json!({ "url": url, "event_types": null }),
            "UNKNOWN_FIELD",
            "event_types",
        ),
        (json!({ "url": 5 }), "VALIDATION_ERROR", "url"),
        (json!({ "url": null }), "VALIDATION_ERROR", "url"),
        (json!({ "url": "" }), "VALIDATION_ERROR", "url"),
        (json!({ "url": "/hook" }), "VALIDATION_ERROR", "url"),
        (json!({ "url": long_url }), "VALIDATION_ERROR", "url"),
        (
            json!({ "url": url, "eventTypes": [] }),
            "VALIDATION_ERROR",
            "eventTypes",
        ),
        (
            json!({ "url": url, "eventTypes": "all" }),
            "VALIDATION_ERROR",
            "eventTypes",
        ),
        (
            json!({ "url": url, "eventTypes": many }),
            "VALIDATION_ERROR",
            "eventTypes",
        ),
        (
            json!({ "url": url, "eventTypes": ["credits.burn.failed", "credits.burned"] }),
            "VALIDATION_ERROR",
            "eventTypes/1",
        ),
        (
            json!({ "url": url, "eventTypes": ["CREDITS.BURN.FAILED"] }),
            "VALIDATION_ERROR",
            "eventTypes/0",
        ),
        (
            json!({ "url": url, "description": 5 }),
            "VALIDATION_ERROR",
            "description",
        ),
        (
            json!({ "url": url, "description": "x".repeat(501) }),
            "VALIDATION_ERROR",
            "description",
        ),
    ];
    for (body, code, path) in mistakes {
        for reply in [
            site.post(ENDPOINTS, &body).send().await,
            site.change_hook(&hook, &body).await,
        ] {
            let reply = reply.refused(400, code).json();
            assert_eq!(reply["details"][0]["path"], path, "{body}");
        }
    }
    for body in ["", "null", "[]", "{", "{}", "{\"eventTypes\":null}"] {
        let reply = site
            .client
            .request(Method::POST, ENDPOINTS)
            .bearer(&site.key)
            .raw_json(body)
            .send()
            .await;
        assert_eq!(reply.status, 400, "{body}: {}", reply.text());
    }
    let wrong = site.change_hook(&hook, &json!({ "enabled": "no" })).await;
    wrong.refused(400, "VALIDATION_ERROR");
    for (what, body) in [
        ("rotate-secret", json!({ "overlapSeconds": -1 })),
        ("rotate-secret", json!({ "overlapSeconds": 86_401 })),
        ("rotate-secret", json!({ "overlapSeconds": "0" })),
        ("test", json!({ "type": "credits.burned" })),
        ("replay", json!({})),
        ("replay", json!({ "since": "yesterday" })),
        ("replay", json!({ "since": 0 })),
    ] {
        let reply = site.post(&hook.below(what), &body).send().await;
        reply.refused(400, "VALIDATION_ERROR");
    }
    assert_eq!(site.shown_hook(&hook).await, before);
    assert_eq!(list(&site).await.len(), 1);
}
