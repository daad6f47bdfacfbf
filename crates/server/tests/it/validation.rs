//! Requests that must not be sold: wrong, hostile, or priced otherwise than they would be billed.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::harness::{CHAT, Site, Store, chat, micros, raw_exchange, raw_open, read_reply};
use crate::on_both_stores;

on_both_stores!(
    the_body_limit_is_inclusive_and_kept_while_reading,
    compressed_bodies_are_refused,
    hostile_json_is_refused,
    attribution_is_checked_and_kept_as_data,
    path_tricks_form_no_upstream_address,
    unknown_fields_pass_through,
);

/// Nothing was charged, held or sent.
pub async fn untouched(site: &Site) {
    assert_eq!(site.upstream.connections(), 0);
    assert_eq!(site.settled().await, micros("10"));
    assert_eq!(site.ledger().lines().count(), 1);
}

fn padded(length: usize) -> String {
    let empty = chat("flat", "").to_string();
    chat("flat", &"x".repeat(length - empty.len())).to_string()
}

// Fault matrix 90
async fn the_body_limit_is_inclusive_and_kept_while_reading(store: Store) {
    let site = Site::new(store).await;
    let address = site.address();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        site.key
    );
    let limit = 4_194_304;
    let over = padded(limit + 1);
    // Declared too long: refused before the body.
    let declared = raw_exchange(
        &address,
        format!("{head}content-length: {}\r\n\r\n", over.len()).as_bytes(),
    )
    .await;
    assert_eq!(
        (declared.status, declared.code().as_str()),
        (413, "REQUEST_BODY_TOO_LARGE")
    );
    let body: Value = serde_json::from_slice(&declared.body).unwrap();
    assert_eq!(body["limitBytes"], limit);
    // Not declared: refused while reading.
    let mut chunked = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for part in over.as_bytes().chunks(65_536) {
        chunked.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        chunked.extend_from_slice(part);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let undeclared = raw_exchange(&address, &chunked).await;
    assert_eq!(
        (undeclared.status, undeclared.code().as_str()),
        (413, "REQUEST_BODY_TOO_LARGE")
    );
    // Declared, and never sent.
    let mut short = raw_open(
        &address,
        format!("{head}content-length: 100\r\n\r\n{{").as_bytes(),
    )
    .await;
    short.shutdown().await.unwrap();
    let reply = read_reply(&mut short, Duration::from_secs(5)).await;
    assert!(matches!(reply.status, 0 | 400), "{}", reply.status);
    untouched(&site).await;
    let exact = padded(limit);
    assert_eq!(exact.len(), limit);
    let call = site
        .client
        .request(Method::POST, CHAT)
        .bearer(&site.key)
        .raw_json(exact);
    call.send().await.expect(200);
    assert_eq!(site.settled().await, micros("9.99"));
}

// Fault matrix 91
async fn compressed_bodies_are_refused(store: Store) {
    let site = Site::new(store).await;
    for encoding in ["gzip", "br", "zstd", "deflate", "identity, gzip", "GZIP", ""] {
        let call = site
            .chat(&chat("flat", "hi"))
            .header("content-encoding", encoding);
        call.send().await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let twice = site
        .chat(&chat("flat", "hi"))
        .header("content-encoding", "identity")
        .header("content-encoding", "gzip");
    twice.send().await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "",
    ] {
        let call = site
            .client
            .request(Method::POST, CHAT)
            .bearer(&site.key)
            .header("content-type", kind);
        call.body(chat("flat", "hi").to_string())
            .send()
            .await
            .refused(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    untouched(&site).await;
}

// Fault matrix 92, 93
async fn hostile_json_is_refused(store: Store) {
    let site = Site::new(store).await;
    let deep = "[".repeat(4_000_000);
    let deeper = format!("{{\"model\":\"flat\",\"messages\":{}", "{\"a\":".repeat(500_000));
    for bad in [
        deep.as_bytes(),
        deeper.as_bytes(),
        b"",
        b"{",
        b"[]",
        b"null",
        b"\"x\"",
        br#"{"model":"flat","model":"dear","messages":[{"role":"user","content":"x"}]}"#,
        br#"{"model":"flat","messages":[{"role":"user","content":"x"}],"max_tokens":1,"max_tokens":1000}"#,
        br#"{"model":"flat","messages":[{"role":"user","content":"x"}]} trailing"#,
        br#"{"model":"flat","messages":[{"role":"user","content":"\ud800"}]}"#,
        b"{\"model\":\"flat\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
        br#"{"model":"flat","messages":[{"role":"user","content":"x"}],"x":NaN}"#,
        br#"{"model":"flat","messages":[{"role":"user","content":"x"}],"x":1e999}"#,
        b"\xef\xbb\xbf{}",
    ] {
        let sent = Instant::now();
        let call = site
            .client
            .request(Method::POST, CHAT)
            .bearer(&site.key)
            .raw_json(bad.to_vec());
        let reply = call.send().await.refused(400, "INVALID_JSON");
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        assert!(sent.elapsed() < Duration::from_secs(2), "{:?}", sent.elapsed());
    }
    for bad in [
        json!({}),
        json!({ "model": "flat" }),
        json!({ "model": "flat", "messages": [] }),
    ] {
        site.chat(&bad).send().await.refused(400, "VALIDATION_ERROR");
    }
    untouched(&site).await;
    // A million members are data like any other.
    let many: Vec<String> = (0..250_000).map(|n| format!("\"k{n}\":1")).collect();
    let body = format!(
        r#"{{"model":"flat","messages":[{{"role":"user","content":"x"}}],"x":{{{}}}}}"#,
        many.join(",")
    );
    let call = site
        .client
        .request(Method::POST, CHAT)
        .bearer(&site.key)
        .raw_json(body);
    call.send().await.expect(200);
}

// Fault matrix 100
async fn attribution_is_checked_and_kept_as_data(store: Store) {
    let site = Site::new(store).await;
    let many: Vec<String> = (0..21).map(|n| format!("\"k{n}\":\"v\"")).collect();
    let many = format!("{{{}}}", many.join(","));
    let wide = json!({ "k".repeat(41): "v" }).to_string();
    let long = json!({ "k": "v".repeat(201) }).to_string();
    let huge = "x".repeat(3000);
    for bad in [
        "",
        "x",
        "[]",
        "null",
        r#"{"a":1}"#,
        r#"{"a":{"b":"c"}}"#,
        r#"{"a":"1","a":"2"}"#,
        r#"{"":"v"}"#,
        &many,
        &wide,
        &long,
        &huge,
    ] {
        let call = site.chat(&chat("flat", "hi")).header("x-svc-attribution", bad);
        call.send().await.refused(400, "ATTRIBUTION_INVALID");
    }
    let twice = site
        .chat(&chat("flat", "hi"))
        .header("x-svc-attribution", "{}")
        .header("x-svc-attribution", "{}");
    twice.send().await.refused(400, "ATTRIBUTION_INVALID");
    untouched(&site).await;
    let tags = json!({ "team": "=1+1", "note": "'; DROP TABLE calls; --", "\u{fc}ber": "\u{2028}" });
    let reply = site
        .chat(&chat("flat", "hi"))
        .header("x-svc-attribution", tags.to_string())
        .send()
        .await
        .expect(200);
    assert_eq!(
        site.call(reply.header("x-svc-call-id").unwrap()).await["attribution"],
        tags
    );
    let entries = site
        .get("/api/credits/ledger?limit=1")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(entries["data"][0]["attribution"], tags);
    for (filter, calls) in [("team:%3D1%2B1", 1), ("team:other", 0), ("note:'; DROP", 0)] {
        let path = format!("/api/credits/usage?attribution={}", filter.replace(' ', "%20"));
        let usage = site.get(&path).send().await.expect(200).json();
        let counted: i64 = usage["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["calls"].as_i64().unwrap())
            .sum();
        assert_eq!(counted, calls, "{filter}");
    }
}

// Fault matrix 101
async fn path_tricks_form_no_upstream_address(store: Store) {
    let site = Site::new(store).await;
    let long = "a".repeat(4000);
    for path in [
        "tools/..%2ffetch",
        "..%2f..%2fadmin/fetch",
        "tools/%00",
        "tools/fetch%00",
        "tools/fetch%2f..",
        "tools/FETCH",
        "tools/caf%C3%A9",
        "tools/%ff",
        "nothing/fetch",
        "tools/nothing",
        "tools/%7Bid%7D",
        "up/chat",
        "v1/fetch",
        &long,
        &format!("tools/{long}"),
    ] {
        let reply = site
            .post(&format!("/api/wrapped/credits/{path}"), &json!({}))
            .once("k")
            .send()
            .await;
        assert!(matches!(reply.status, 400 | 404), "{path}: {}", reply.text());
        let code = reply.code();
        reply.refused(if code == "VALIDATION_ERROR" { 400 } else { 404 }, &code);
    }
    // An argument never leaves its path segment.
    let item = "/api/wrapped/credits/tools/item";
    // Some providers decode before they route.
    for id in ["..", ".", "", "../../admin", "a/../b", "..\\admin"] {
        let reply = site
            .post(item, &json!({ "id": id }))
            .once(&format!("dots-{}", id.len()))
            .send()
            .await;
        assert!(reply.status >= 400, "{id:?}");
    }
    untouched(&site).await;
    site.post(item, &json!({ "id": "a/b?x=1#y" }))
        .once("encoded")
        .send()
        .await
        .expect(200);
    assert_eq!(site.upstream.last().path, "/v1/items/a%2Fb%3Fx%3D1%23y");
}

// Decisions 5
async fn unknown_fields_pass_through(store: Store) {
    let site = Site::new(store).await;
    let mut body = chat("flat", "hi");
    body["temperature"] = json!(0.7);
    body["seed"] = json!(18_446_744_073_709_551_615_u64);
    body["response_format"] = json!({ "type": "json_object" });
    body["something_new"] = json!({ "deep": [1, 2.50, null, true] });
    site.chat(&body).send().await.expect(200);
    assert_eq!(site.upstream.last().json(), body);
}
