//! Browsers: whose pages may use end users' tokens and publishable keys.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::harness::{Reply, Site, Store, eventually};
use crate::on_both_stores;

on_both_stores!(a_page_uses_tokens_only_where_its_origin_is_allowed);

const APP: &str = "https://app.example";
const BALANCE: &str = "/api/credits/me/balance";

fn allowed_for(reply: &Reply) -> Option<&str> {
    reply.header("access-control-allow-origin")
}

// Fault matrix 143, decisions 3
async fn a_page_uses_tokens_only_where_its_origin_is_allowed(store: Store) {
    let site = Site::new(store).await;
    let token = site.token("alice", &json!({})).await;
    let settings = |body| {
        let put = site
            .client
            .request(Method::PUT, "/api/credits/tenants/me/settings");
        put.bearer(&site.key).json(&body).send()
    };
    for bad in ["*", "null", "https://app.example/", "app.example"] {
        let reply = settings(json!({ "allowedOrigins": [bad] })).await;
        reply.refused(400, "VALIDATION_ERROR");
    }
    settings(json!({ "allowedOrigins": [APP] })).await.expect(200);
    let preflight = |origin: &str| {
        let asked = site.client.request(Method::OPTIONS, BALANCE);
        asked
            .header("origin", origin)
            .header("access-control-request-method", "GET")
            .header("access-control-request-headers", "authorization")
            .send()
    };
    eventually("the origin is known", || async {
        (allowed_for(&preflight(APP).await) == Some(APP)).then_some(())
    })
    .await;
    let answer = preflight(APP).await.expect(204);
    assert!(
        answer
            .header("access-control-allow-headers")
            .unwrap()
            .contains("authorization")
    );
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    assert_eq!(allowed_for(&preflight("https://evil.example").await), None);
    // Workspaces may be taken from memory for a second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let ask = |bearer: &str, origin: &str| {
        let asked = site.client.request(Method::GET, BALANCE);
        asked.bearer(bearer).header("origin", origin).send()
    };
    let own = ask(&token, APP).await.expect(200);
    assert_eq!(
        (allowed_for(&own), own.header("vary")),
        (Some(APP), Some("origin"))
    );
    let foreign = ask(&token, "https://evil.example").await;
    assert_eq!(allowed_for(&foreign), None);
    foreign.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    // Another workspace's page is no page of this one, though browsers may ask from it.
    let (_, other_key) = site.workspace("Other");
    let put = site
        .client
        .request(Method::PUT, "/api/credits/tenants/me/settings");
    let other = json!({ "allowedOrigins": ["https://other.example"] });
    put.bearer(&other_key).json(&other).send().await.expect(200);
    ask(&token, "https://other.example")
        .await
        .refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    // A secret key is no browser's: it works from anywhere, and no page reads its answers.
    let server = site
        .get("/api/credits/balance")
        .header("origin", APP)
        .send()
        .await
        .expect(200);
    assert_eq!(allowed_for(&server), None);
}
