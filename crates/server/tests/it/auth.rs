//! Credentials: which are valid, whose things they show, and how often they may be used.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{CHAT, Setup, Site, Store, TOOL, chat, eventually, operate};
use crate::on_both_stores;

on_both_stores!(
    credentials_that_are_not_valid_are_told_apart,
    what_belongs_to_another_workspace_does_not_exist,
    a_suspended_workspace_reads_and_does_not_spend,
    rate_limits_count_by_credential_and_class,
);

// Fault matrix 225
async fn credentials_that_are_not_valid_are_told_apart(store: Store) {
    let site = Site::new(store).await;
    let good = site.key.clone();
    let mut typo = good.clone().into_bytes();
    let at = typo.len() / 2;
    typo[at] = if typo[at] == b'a' { b'b' } else { b'a' };
    let typo = String::from_utf8(typo).unwrap();
    let swapped = good.replace("_sk_", "_pk_");
    let long = format!("svc_sk_live_{}", "a".repeat(20_000));
    for bad in [
        typo.as_str(),
        swapped.as_str(),
        "svc_sk_live_",
        "svc_sk_live_x",
        &good[..good.len() - 1],
        "a.b.c",
        "..",
        "x",
        &long,
    ] {
        let reply = site
            .client
            .request(Method::POST, CHAT)
            .bearer(bad)
            .json(&chat("flat", "hi"))
            .send()
            .await;
        let reply = reply.refused(401, "INVALID_CREDENTIAL");
        assert!(!reply.text().contains(bad));
    }
    for header in [
        format!("Basic {good}"),
        good.clone(),
        String::new(),
        "Bearer".to_owned(),
        format!("Bearer {good} x"),
    ] {
        let call = site
            .client
            .request(Method::GET, "/api/credits/balance")
            .header("authorization", &header);
        let reply = call.send().await;
        assert_eq!(reply.status, 401, "{header:?}");
    }
    let twice = site.get("/api/credits/balance").bearer(&good).send().await;
    twice.refused(401, "INVALID_CREDENTIAL");
    let lower = site
        .client
        .request(Method::GET, "/api/credits/balance")
        .header("authorization", format!("bearer {good}"));
    lower.send().await.expect(200);
    let step_up = site
        .get("/api/credits/balance")
        .header("x-svc-step-up-token", "x")
        .send()
        .await;
    step_up.refused(400, "VALIDATION_ERROR");
    // A key of the right form that nobody has.
    let other = Setup::new(store).start().await;
    let reply = site
        .client
        .request(Method::GET, "/api/credits/balance")
        .bearer(&other.key)
        .send()
        .await;
    reply.refused(401, "INVALID_CREDENTIAL");
    for args in [
        [
            "key",
            "create",
            "--tenant",
            &site.tenant,
            "--name",
            "x",
            "--kind",
            "publishable",
            "--scope",
            "tenant:read",
        ],
        [
            "key",
            "create",
            "--tenant",
            &site.tenant,
            "--name",
            "x",
            "--kind",
            "secret",
            "--expires-in",
            "59",
        ],
        [
            "key",
            "create",
            "--tenant",
            &site.tenant,
            "--name",
            "x",
            "--kind",
            "secret",
            "--expires-in",
            "31536001",
        ],
    ] {
        assert!(!operate(&site.config, &site.data, &args).0.success(), "{args:?}");
    }
    let listed = site.operate(&["key", "list", "--tenant", &site.tenant]);
    assert!(!listed.to_string().contains(&good), "a list shows no key");
}

// Fault matrix 145, I9
async fn what_belongs_to_another_workspace_does_not_exist(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let (_, other) = site.workspace("Other");
    let reply = site
        .chat(&chat("flat", "hi"))
        .paid_by("alice")
        .send()
        .await
        .expect(200);
    let id = reply.header("x-svc-call-id").unwrap();
    let get = |path: String| site.client.request(Method::GET, &path).bearer(&other);
    let foreign = get(format!("/api/credits/calls/{id}"))
        .send()
        .await
        .refused(404, "NOT_FOUND")
        .json();
    let unknown = "/api/credits/calls/0190a0b0-0000-7000-8000-000000000000".to_owned();
    let nowhere = get(unknown).send().await.refused(404, "NOT_FOUND").json();
    assert_eq!(foreign["message"], nowhere["message"]);
    get(format!("/api/credits/calls/{id}/result"))
        .send()
        .await
        .refused(404, "NOT_FOUND");
    get("/api/credits/balance".to_owned())
        .paid_by("alice")
        .send()
        .await
        .refused(404, "END_USER_NOT_FOUND");
    assert_eq!(
        get("/api/credits/balance".to_owned())
            .send()
            .await
            .expect(200)
            .json()["usd"],
        "0"
    );
    let ledger = get("/api/credits/ledger".to_owned())
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(ledger["data"], json!([]));
    let usage = get("/api/credits/usage?externalUserId=alice".to_owned())
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(usage["data"], json!([]));
    for (path, code) in [
        ("/api/credits/ledger?cursor=x", "CURSOR_INVALID"),
        ("/api/credits/ledger?limit=0", "VALIDATION_ERROR"),
        ("/api/credits/ledger?limit=101", "VALIDATION_ERROR"),
        ("/api/credits/ledger?limit=x", "VALIDATION_ERROR"),
        ("/api/credits/usage?groupBy=secret", "VALIDATION_ERROR"),
        ("/api/credits/usage?from=yesterday", "VALIDATION_ERROR"),
    ] {
        get(path.to_owned()).send().await.refused(400, code);
    }
    for id in ["x", "%00", "..%2f", "' OR 1=1 --"] {
        let path = format!("/api/credits/calls/{}", id.replace(' ', "%20"));
        get(path).send().await.refused(404, "NOT_FOUND");
    }
}

// Fault matrix 151
async fn a_suspended_workspace_reads_and_does_not_spend(store: Store) {
    let site = Site::new(store).await;
    site.chat(&chat("flat", "hi"))
        .once("before")
        .send()
        .await
        .expect(200);
    site.operate(&["tenant", "suspend", &site.tenant]);
    eventually("calls are refused", || async {
        let reply = site.chat(&chat("flat", "hi")).send().await;
        (reply.code() == "TENANT_SUSPENDED" && reply.status == 403).then_some(())
    })
    .await;
    let tool = site.post(TOOL, &json!({})).once("k").send().await;
    tool.refused(403, "TENANT_SUSPENDED");
    site.balance().await;
    let sent = site.upstream.count();
    site.operate(&["tenant", "resume", &site.tenant]);
    eventually("calls are taken", || async {
        (site.chat(&chat("flat", "hi")).send().await.status == 200).then_some(())
    })
    .await;
    assert_eq!(site.upstream.count(), sent + 1);
}

// Fault matrix 230
async fn rate_limits_count_by_credential_and_class(store: Store) {
    let setup = Setup::new(store).set("limits.calls_per_minute", 5);
    let site = setup
        .set("limits.reads_per_minute", 4)
        .set("limits.mutations_per_minute", 3)
        .start()
        .await;
    let other = site.new_key("secret", &["tenant:read", "tenant:write"]);
    let settings = "/api/credits/tenants/me/settings";
    let send = |key: &str, class: &str| {
        let call = match class {
            "call" => site.client.request(Method::POST, CHAT).json(&chat("flat", "hi")),
            "read" => site.client.request(Method::GET, "/api/credits/balance"),
            _ => site.client.request(Method::PUT, settings).json(&json!({})),
        };
        // Pretending to be someone else does not help.
        call.bearer(key)
            .header("x-forwarded-for", uuid::Uuid::new_v4().to_string())
            .send()
    };
    for (class, limit) in [("call", 5), ("read", 4), ("change", 3)] {
        for _ in 0..limit {
            send(&site.key, class).await.expect(200);
        }
        let limited = send(&site.key, class).await.refused(429, "RATE_LIMITED");
        let policy = format!("\"default\";q={limit};w=60");
        assert_eq!(limited.header("ratelimit-policy"), Some(policy.as_str()));
        assert!(
            limited
                .header("ratelimit")
                .unwrap()
                .starts_with("\"default\";r=0;t=")
        );
        let wait: u64 = limited.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        send(&other, class).await.expect(200);
    }
    assert_eq!(site.upstream.count(), 6);
    let value: Value = site.operate(&["audit"]);
    assert_eq!(value["clean"], true);
}
