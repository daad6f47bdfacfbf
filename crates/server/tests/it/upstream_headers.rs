//! Headers and addresses between the gateway and the provider: nothing passes that is not on a list.

use crate::harness::upstream::answer;
use crate::harness::{Site, Store, Upstream, chat, chat_stream, micros, receipt};
use crate::on_both_stores;
use crate::upstream_faults::untouched;

on_both_stores!(
    redirects_are_not_followed,
    hostile_response_headers_do_not_get_through,
    the_provider_sees_exactly_our_headers,
);

// Fault matrix 84, I13
async fn redirects_are_not_followed(store: Store) {
    let site = Site::new(store).await;
    let elsewhere = Upstream::start().await;
    for status in [301, 302, 303, 307, 308] {
        for target in [
            format!("http://{}/v1/chat/completions", elsewhere.address),
            "http://169.254.169.254/".to_owned(),
        ] {
            site.upstream
                .always(vec![answer(status, &[("location", &target)], b"{}")]);
            site.chat(&chat("flat", "hi"))
                .send()
                .await
                .refused(502, "UPSTREAM_ERROR");
        }
    }
    assert_eq!(elsewhere.connections(), 0);
    assert_eq!(site.upstream.count(), 10);
    untouched(&site).await;
}

// Fault matrix 85, I10
async fn hostile_response_headers_do_not_get_through(store: Store) {
    let site = Site::new(store).await;
    let hostile = [
        ("set-cookie", "a=b"),
        ("x-svc-credits-charged", "0"),
        ("x-svc-credits-balance", "999999"),
        ("x-svc-simulated", "true"),
        ("idempotent-replayed", "true"),
        ("x-request-id", "theirs"),
        ("server", "theirs"),
        ("access-control-allow-origin", "*"),
        ("x-ratelimit-remaining", "1"),
    ];
    site.upstream.always(vec![answer(
        200,
        &hostile,
        br#"{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
    )]);
    let reply = site.chat(&chat("tokens", "hi")).send().await.expect(200);
    assert_eq!(receipt(&reply), (3, micros("10") - 3));
    let mut names: Vec<&str> = reply.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "cache-control",
            "content-length",
            "content-type",
            "date",
            "x-request-id",
            "x-svc-call-id",
            "x-svc-cost-usd",
            "x-svc-credits-balance",
            "x-svc-credits-charged"
        ]
    );
    assert_ne!(reply.header("x-request-id"), Some("theirs"));
    let long = "x".repeat(100_000);
    for headers in [vec![("x-long", long.as_str())], vec![("x-many", "y"); 300]] {
        site.upstream.always(vec![answer(
            200,
            &headers,
            br#"{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
        )]);
        site.chat(&chat("tokens", "hi"))
            .send()
            .await
            .refused(502, "UPSTREAM_ERROR");
    }
    assert_eq!(site.settled().await, micros("10") - 3);
}

// Fault matrix 222, I13
async fn the_provider_sees_exactly_our_headers(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    for (call, accept) in [
        (site.chat(&chat("renamed", "hi")), "application/json"),
        (site.chat(&chat_stream("up/renamed", "hi")), "text/event-stream"),
    ] {
        let call = call
            .once(&format!("key-of-the-caller-{}", accept.len()))
            .paid_by("alice")
            .header("x-svc-attribution", r#"{"team":"a"}"#)
            .header("x-svc-loop-id", "loop-0123456789abcdef")
            .header("cookie", "session=1")
            .header("payment-signature", "sig")
            .header("x-forwarded-for", "10.0.0.1")
            .header("x-forwarded-host", "evil.example")
            .header("openai-organization", "org")
            .header("user-agent", "theirs")
            .header("connection", "x-svc-attribution")
            .header(
                "traceparent",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            );
        call.send().await.expect(200);
        let seen = site.upstream.last();
        let mut headers = seen.headers.clone();
        headers.sort();
        let agent = concat!("turnpike/", env!("CARGO_PKG_VERSION"));
        let expected = [
            ("accept", accept),
            ("accept-encoding", "identity"),
            ("authorization", "Bearer provider-key-canary"),
            ("content-length", &seen.body.len().to_string()),
            ("content-type", "application/json"),
            ("host", &site.upstream.address.to_string()),
            ("user-agent", agent),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(headers, expected);
        assert_eq!(
            (seen.method.as_str(), seen.path.as_str()),
            ("POST", "/v1/chat/completions")
        );
        assert_eq!(seen.json()["model"], "upstream-name");
        assert!(seen.json().get("user").is_none());
    }
}
