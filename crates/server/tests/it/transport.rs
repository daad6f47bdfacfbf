//! The wire: malformed requests, slow senders, caps, and the shapes of the ordinary refusals.

use std::time::{Duration, Instant};

use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::harness::{CHAT, Setup, Site, Store, chat, micros, raw_exchange, raw_open, read_reply};
use crate::on_both_stores;

on_both_stores!(
    slow_heads_are_closed_while_others_are_served,
    a_slow_body_is_a_408_and_takes_no_hold,
    heads_are_capped,
    ambiguous_requests_are_refused_and_the_connection_is_not_reused,
    unknown_paths_methods_and_types_have_the_shape_of_an_error,
    pipelined_calls_are_each_finished,
    unknown_versions_leave_the_service_alive,
);

async fn untouched(site: &Site) {
    assert_eq!(site.upstream.connections(), 0);
    assert_eq!(site.settled().await, micros("10"));
}

// Fault matrix 215
async fn slow_heads_are_closed_while_others_are_served(store: Store) {
    let site = Setup::new(store)
        .set("server.header_timeout_secs", 2)
        .start()
        .await;
    let address = site.address();
    let mut slow = JoinSet::new();
    let begun = Instant::now();
    for number in 0..300_usize {
        let address = address.clone();
        slow.spawn(async move {
            let mut stream = raw_open(&address, b"").await;
            // Some say nothing or little, some drip, some stop in the middle of a header.
            let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-a: ");
            let head = head.as_bytes();
            if number % 3 == 1 {
                let _sent = stream.write_all(head).await;
            }
            if number % 6 == 3 {
                // As much of an HTTP/2 preface as leaves the version open.
                let _sent = stream.write_all(b"PRI * HTTP/2.0\r\n").await;
            }
            let mut sent = 0;
            loop {
                let mut byte = [0; 1024];
                let read = tokio::time::timeout(Duration::from_millis(500), stream.read(&mut byte)).await;
                match read {
                    Ok(Ok(0) | Err(_)) => return begun.elapsed(),
                    Ok(Ok(_)) => {}
                    Err(_silent) if number % 3 == 2 && sent < head.len() => {
                        let _sent = stream.write_all(&head[sent..=sent]).await;
                        sent += 1;
                    }
                    Err(_silent) => assert!(
                        begun.elapsed() < Duration::from_secs(30),
                        "{number} is still open"
                    ),
                }
            }
        });
    }
    for _ in 0..10 {
        let sent = Instant::now();
        site.chat(&chat("flat", "hi")).send().await.expect(200);
        assert!(sent.elapsed() < Duration::from_secs(2), "{:?}", sent.elapsed());
    }
    for closed in slow.join_all().await {
        assert!(closed < Duration::from_secs(15), "{closed:?}");
    }
}

fn head(site: &Site) -> String {
    format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        site.key
    )
}

// Fault matrix 216
async fn a_slow_body_is_a_408_and_takes_no_hold(store: Store) {
    let site = Setup::new(store).set("server.body_timeout_secs", 1).start().await;
    let mut slow = raw_open(
        &site.address(),
        format!("{}content-length: 1000\r\n\r\n{{", head(&site)).as_bytes(),
    )
    .await;
    let (mut reading, mut writing) = slow.split();
    let dripping = async {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if writing.write_all(b" ").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut answer = vec![0; 4096];
    let length = tokio::select! {
        length = reading.read(&mut answer) => length.unwrap(),
        () = dripping => unreachable!(),
        () = tokio::time::sleep(Duration::from_secs(10)) => panic!("no answer to a slow body"),
    };
    let text = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    assert!(text.contains("REQUEST_TIMEOUT"), "{text}");
    untouched(&site).await;
}

// Fault matrix 219
async fn heads_are_capped(store: Store) {
    let site = Site::new(store).await;
    let address = site.address();
    let many = "x-many: y\r\n".repeat(200);
    let long = format!("x-long: {}\r\n", "y".repeat(80_000));
    for extra in [many, long] {
        let reply = raw_exchange(
            &address,
            format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{extra}\r\n").as_bytes(),
        )
        .await;
        assert_eq!(reply.status, 431, "{}", reply.head);
    }
    let target = "y".repeat(1_000_000);
    let reply = raw_exchange(
        &address,
        format!("GET /{target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes(),
    )
    .await;
    assert!(matches!(reply.status, 414 | 431), "{}", reply.head);
    site.client
        .request(Method::GET, "/healthz")
        .send()
        .await
        .expect(200);
    untouched(&site).await;
}

// Fault matrix 218
async fn ambiguous_requests_are_refused_and_the_connection_is_not_reused(store: Store) {
    let site = Site::new(store).await;
    let address = site.address();
    let body = chat("flat", "hi").to_string();
    let length = body.len();
    let smuggled = "GET /healthz HTTP/1.1\r\nhost: x\r\nx-smuggled: 1\r\n\r\n";
    let head = head(&site);
    for (what, request) in [
        (
            "two lengths",
            format!("{head}content-length: {length}\r\ncontent-length: 1\r\n\r\n{body}{smuggled}"),
        ),
        (
            "a list of lengths",
            format!("{head}content-length: {length}, 1\r\n\r\n{body}{smuggled}"),
        ),
        (
            "a signed length",
            format!("{head}content-length: +{length}\r\n\r\n{body}{smuggled}"),
        ),
        (
            "a hexadecimal length",
            format!("{head}content-length: 0x10\r\n\r\n{body}{smuggled}"),
        ),
        (
            "an unknown coding",
            format!("{head}transfer-encoding: gzip\r\n\r\n{body}{smuggled}"),
        ),
        (
            "a coding after chunked",
            format!("{head}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}"),
        ),
        (
            "a folded header",
            format!("{head}x-folded: a\r\n b\r\ncontent-length: {length}\r\n\r\n{body}{smuggled}"),
        ),
        (
            "a space before the colon",
            format!("{head}content-length : {length}\r\n\r\n{body}{smuggled}"),
        ),
        (
            "a bad chunk size",
            format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{body}\r\n0\r\n\r\n{smuggled}"),
        ),
    ] {
        let mut stream = raw_open(&address, request.as_bytes()).await;
        let mut answers = Vec::new();
        let _closed = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answers)).await;
        let text = String::from_utf8_lossy(&answers).into_owned();
        assert!(
            text.is_empty() || text.starts_with("HTTP/1.1 400"),
            "{what}: {text}"
        );
        assert_eq!(
            text.matches("HTTP/1.1").count(),
            usize::from(!text.is_empty()),
            "{what}: {text}"
        );
    }
    // Chunked beside a length: the length counts for nothing, and the connection ends with the answer.
    let both = format!(
        "{head}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n{smuggled}"
    );
    let mut stream = raw_open(&address, both.as_bytes()).await;
    let mut answers = Vec::new();
    let _closed = tokio::time::timeout(Duration::from_secs(2), stream.read_to_end(&mut answers)).await;
    let text = String::from_utf8_lossy(&answers).into_owned();
    assert!(
        !text.starts_with("HTTP/1.1 200") || !text.contains("{\"status\":\"ok\"}"),
        "CL and TE together: {text}"
    );
    assert!(!site.service().logged().contains("x-smuggled"));
}

// Fault matrix 221
async fn unknown_paths_methods_and_types_have_the_shape_of_an_error(store: Store) {
    let site = Site::new(store).await;
    for path in [
        "/",
        "/api",
        "/nothing",
        "/api/credits/nothing",
        "/openapi.json/",
        "/..%2f",
        "//healthz",
    ] {
        let reply = site.get(path).send().await.refused(404, "NOT_FOUND");
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
    for (method, path, allowed) in [
        (Method::GET, CHAT, "POST"),
        (Method::DELETE, "/api/credits/balance", "GET,HEAD"),
        (Method::POST, "/healthz", "GET,HEAD"),
        (Method::PATCH, "/api/credits/tenants/me/settings", "GET,HEAD,PUT"),
    ] {
        let reply = site.client.request(method, path).bearer(&site.key).send().await;
        let reply = reply.refused(405, "METHOD_NOT_ALLOWED");
        let mut allow: Vec<&str> = reply.header("allow").unwrap().split(',').map(str::trim).collect();
        allow.sort_unstable();
        assert_eq!(allow.join(","), allowed, "{path}");
    }
    for kind in ["text/plain", "application/xml", "multipart/form-data; boundary=x"] {
        let call = site
            .client
            .request(Method::POST, CHAT)
            .bearer(&site.key)
            .header("content-type", kind);
        call.body("{}")
            .send()
            .await
            .refused(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let none = site
        .client
        .request(Method::POST, CHAT)
        .bearer(&site.key)
        .body("{}")
        .send()
        .await;
    none.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    let cased = site.client.request(Method::POST, CHAT).bearer(&site.key);
    let cased = cased
        .header("content-type", "Application/JSON; charset=utf-8")
        .body(chat("flat", "hi").to_string());
    cased.send().await.expect(200);
    let ids: std::collections::BTreeSet<String> = {
        let mut ids = std::collections::BTreeSet::new();
        for _ in 0..5 {
            let reply = site
                .client
                .request(Method::GET, "/healthz")
                .send()
                .await
                .expect(200);
            ids.insert(reply.header("x-request-id").unwrap().to_owned());
        }
        ids
    };
    assert_eq!(ids.len(), 5);
}

// Fault matrix 220
async fn pipelined_calls_are_each_finished(store: Store) {
    let site = Site::new(store).await;
    let body = chat("flat", "hi").to_string();
    let one = format!("{}content-length: {}\r\n\r\n{body}", head(&site), body.len());
    let mut stream = raw_open(&site.address(), one.repeat(5).as_bytes()).await;
    let first = read_reply(&mut stream, Duration::from_secs(5)).await;
    assert_eq!(first.status, 200);
    drop(stream);
    // However many were begun before the client left, each was charged exactly when it was sent.
    crate::harness::eventually("the charges are what was sent", || async {
        let spent = micros("10") - site.settled().await;
        (spent == i64::try_from(site.upstream.count()).unwrap() * 10_000).then_some(())
    })
    .await;
}

// Fault matrix 217, 227
async fn unknown_versions_leave_the_service_alive(store: Store) {
    let site = Site::new(store).await;
    let address = site.address();
    let preface =
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x09\x00\x00\x00\x00\x00garbage that is no frame";
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET /healthz HTTP/3.0\r\n\r\n",
        b"GET\r\n\r\n",
        b"\0\0\0\0",
        preface,
        b"CONNECT example.com:80 HTTP/1.1\r\nhost: x\r\n\r\n",
    ] {
        let mut stream = raw_open(&address, bytes).await;
        stream.shutdown().await.unwrap();
        let reply = read_reply(&mut stream, Duration::from_secs(5)).await;
        assert_ne!(reply.status, 200, "{}", reply.head);
    }
    for path in [
        "/debug",
        "/debug/pprof",
        "/metrics",
        "/admin",
        "/.env",
        "/server-status",
    ] {
        site.client
            .request(Method::GET, path)
            .send()
            .await
            .refused(404, "NOT_FOUND");
    }
    site.chat(&chat("flat", "hi")).send().await.expect(200);
}
