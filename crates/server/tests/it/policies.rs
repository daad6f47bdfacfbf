//! Policies: the limits of an end user, on the wire and against calls that race.

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Reply, Site, Store, TOOL, chat};
use crate::on_both_stores;

on_both_stores!(
    a_policy_is_replaced_as_a_whole,
    a_policy_with_a_mistake_changes_nothing,
    limits_of_day_month_and_call_hold_against_calls_at_once,
    limits_of_a_loop_hold_against_calls_at_once,
    a_loop_must_be_named_when_it_is_counted,
    only_allowed_tools_are_called,
    a_call_above_the_threshold_needs_an_approval,
);

async fn a_policy_is_replaced_as_a_whole(store: Store) {
    let site = Site::new(store).await;
    let nothing = json!({
        "maxUsdPerDay": null, "maxUsdPerMonth": null, "maxUsdPerCall": null, "maxCallsPerLoop": null,
        "maxCreditsPerLoop": null, "allowedTools": null, "requireApprovalAboveUsd": null,
    });
    let all = json!({
        "maxUsdPerDay": "1", "maxUsdPerMonth": "20.5", "maxUsdPerCall": "0.000001", "maxCallsPerLoop": 0,
        "maxCreditsPerLoop": "1500.5", "allowedTools": ["up/*", "tools/fetch"], "requireApprovalAboveUsd": "0",
    });
    let put = |policy: &Value| site.about(Method::PUT, "alice", "/policy").json(policy).send();
    let get = || site.about(Method::GET, "alice", "/policy").send();
    get().await.refused(404, "END_USER_NOT_FOUND");
    for policy in [&all, &nothing, &all, &json!({})] {
        let shown = put(policy).await.expect(200).json();
        let expected = if policy == &json!({}) { &nothing } else { policy };
        assert_eq!(
            shown,
            json!({ "success": true, "externalUserId": "alice", "policy": expected })
        );
        assert_eq!(get().await.expect(200).json(), shown);
        let user = site
            .about(Method::GET, "alice", "")
            .send()
            .await
            .expect(200)
            .json();
        assert_eq!((&user["policy"], &user["status"]), (expected, &json!("active")));
    }
    assert_eq!(site.noted("end_user.policy").await, 4);
    let audited = "SELECT COUNT(*) FROM audit_log WHERE action = 'end_user.policy' \
                   AND target = 'alice' AND before_json LIKE '%maxUsdPerDay%' AND after_json NOT LIKE '%maxUsdPerDay%'";
    assert_eq!(site.database.number(audited).await, 2);
}

async fn a_policy_with_a_mistake_changes_nothing(store: Store) {
    let site = Site::new(store).await;
    site.limit("alice", &json!({ "maxUsdPerDay": "1" })).await;
    let many: Vec<String> = (0..201).map(|number| format!("up/m{number}")).collect();
    for (body, code) in [
        (json!({ "maxUsdPerLoop": "1" }), "UNKNOWN_FIELD"),
        (json!({ "maxUsdPerDay": "1", "more": null }), "UNKNOWN_FIELD"),
        (json!({ "maxUsdPerDay": 1 }), "VALIDATION_ERROR"),
        (json!({ "maxUsdPerDay": "-1" }), "VALIDATION_ERROR"),
        (json!({ "maxUsdPerCall": "0.0000001" }), "VALIDATION_ERROR"),
        (
            json!({ "maxUsdPerMonth": "99999999999999999999" }),
            "VALIDATION_ERROR",
        ),
        (json!({ "maxCallsPerLoop": -1 }), "VALIDATION_ERROR"),
        (json!({ "maxCallsPerLoop": 1.5 }), "VALIDATION_ERROR"),
        (json!({ "maxCallsPerLoop": "1" }), "VALIDATION_ERROR"),
        (json!({ "maxCreditsPerLoop": "0.0001" }), "VALIDATION_ERROR"),
        (json!({ "allowedTools": "up/*" }), "VALIDATION_ERROR"),
        (json!({ "allowedTools": ["up"] }), "VALIDATION_ERROR"),
        (json!({ "allowedTools": ["*/*"] }), "VALIDATION_ERROR"),
        (json!({ "allowedTools": many }), "VALIDATION_ERROR"),
        (json!({ "requireApprovalAboveUsd": [] }), "VALIDATION_ERROR"),
    ] {
        let put = site.about(Method::PUT, "alice", "/policy").json(&body);
        put.send().await.refused(400, code);
    }
    let shown = site
        .about(Method::GET, "alice", "/policy")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(shown["policy"]["maxUsdPerDay"], "1");
    assert_eq!(site.noted("end_user.policy").await, 1);
}

/// Many calls of one cent at once; gives how many were good and a refusal.
async fn race(site: &Site, user: &str, loop_id: Option<&str>) -> (usize, Reply) {
    let mut calls = JoinSet::new();
    for _ in 0..40 {
        let mut call = site.chat(&chat("flat", "hi")).paid_by(user);
        if let Some(id) = loop_id {
            call = call.header("x-svc-loop-id", id);
        }
        calls.spawn(call.send());
    }
    let (good, mut refused): (Vec<_>, Vec<_>) = calls
        .join_all()
        .await
        .into_iter()
        .partition(|reply| reply.status == 200);
    (good.len(), refused.pop().expect("some are refused"))
}

async fn limits_of_day_month_and_call_hold_against_calls_at_once(store: Store) {
    let site = Site::new(store).await;
    for (user, member, scope) in [
        ("day", "maxUsdPerDay", "day"),
        ("month", "maxUsdPerMonth", "month"),
    ] {
        site.grant("5", Some(user));
        site.limit(user, &json!({ member: "0.07" })).await;
        let (good, refused) = race(&site, user, None).await;
        assert_eq!(good, 7);
        let body = refused.refused(403, "SPEND_LIMIT_EXCEEDED").json();
        assert_eq!(
            (&body["scope"], &body["limitUsd"]),
            (&json!(scope), &json!("0.07"))
        );
        assert!(body["resetsAt"].as_str().unwrap().ends_with("T00:00:00.000Z"));
        assert_eq!(site.balance_of(user).await["usd"], "4.93");
        // A wider limit counts at once; a narrower one does not take anything back.
        site.limit(user, &json!({ member: "0.08" })).await;
        site.chat(&chat("flat", "hi"))
            .paid_by(user)
            .send()
            .await
            .expect(200);
        site.limit(user, &json!({ member: "0.01" })).await;
        let refused = site.chat(&chat("flat", "hi")).paid_by(user).send().await;
        refused.refused(403, "SPEND_LIMIT_EXCEEDED");
    }
    site.grant("5", Some("call"));
    site.limit("call", &json!({ "maxUsdPerCall": "0.01" })).await;
    site.chat(&chat("flat", "hi"))
        .paid_by("call")
        .send()
        .await
        .expect(200);
    let dear = site.chat(&chat("dear", "hi")).paid_by("call").send().await;
    let body = dear.refused(403, "SPEND_LIMIT_EXCEEDED").json();
    assert_eq!(
        (&body["scope"], &body["resetsAt"]),
        (&json!("call"), &Value::Null)
    );
    assert_eq!(site.upstream.count(), 17);
}

async fn limits_of_a_loop_hold_against_calls_at_once(store: Store) {
    let site = Site::new(store).await;
    site.grant("5", Some("alice"));
    let first = "loop-0123456789abcdef";
    site.limit("alice", &json!({ "maxCallsPerLoop": 5 })).await;
    let (good, refused) = race(&site, "alice", Some(first)).await;
    assert_eq!(good, 5);
    let body = refused.refused(403, "SPEND_LIMIT_EXCEEDED").json();
    assert_eq!(
        (&body["scope"], &body["limitCalls"], &body["calls"]),
        (&json!("loop"), &json!(5), &json!(5))
    );
    site.limit("alice", &json!({ "maxCreditsPerLoop": "70" })).await;
    let second = "loop-fedcba9876543210";
    let (good, refused) = race(&site, "alice", Some(second)).await;
    assert_eq!(good, 7);
    let body = refused.refused(403, "SPEND_LIMIT_EXCEEDED").json();
    assert_eq!(
        (&body["scope"], &body["limitUsd"]),
        (&json!("loop"), &json!("0.07"))
    );
    assert_eq!(site.balance_of("alice").await["usd"], "4.88");
}

async fn a_loop_must_be_named_when_it_is_counted(store: Store) {
    let site = Site::new(store).await;
    site.grant("5", Some("alice"));
    for policy in [
        json!({ "maxCallsPerLoop": 9 }),
        json!({ "maxCreditsPerLoop": "900" }),
    ] {
        site.limit("alice", &policy).await;
        let token = site.token("alice", &json!({})).await;
        let by_key = site.chat(&chat("flat", "hi")).paid_by("alice").send().await;
        by_key.refused(400, "LOOP_HEADER_REQUIRED");
        let by_token = site.chat_as(&token, "flat").send().await;
        by_token.refused(400, "LOOP_HEADER_REQUIRED");
        for bad in ["", "short", "-123456789012345678", &"l".repeat(129)] {
            let call = site
                .chat_as(&token, "flat")
                .header("x-svc-loop-id", bad)
                .send()
                .await;
            call.refused(400, "VALIDATION_ERROR");
        }
        let call = site
            .chat_as(&token, "flat")
            .header("x-svc-loop-id", "l".repeat(16));
        call.send().await.expect(200);
    }
    assert_eq!(site.upstream.count(), 2);
    // The pool has no policy, and other end users have their own.
    site.chat(&chat("flat", "hi")).send().await.expect(200);
    site.grant("1", Some("bob"));
    site.chat(&chat("flat", "hi"))
        .paid_by("bob")
        .send()
        .await
        .expect(200);
}

async fn only_allowed_tools_are_called(store: Store) {
    let site = Site::new(store).await;
    site.grant("5", Some("alice"));
    for (allowed, chats, fetches) in [
        (json!(["tools/fetch"]), false, true),
        (json!(["up/*"]), true, false),
        (json!(["up/flat", "tools/item"]), true, false),
        (json!([]), false, false),
        (Value::Null, true, true),
    ] {
        site.limit("alice", &json!({ "allowedTools": allowed })).await;
        let token = site.token("alice", &json!({})).await;
        let fetch = site.client.request(Method::POST, TOOL).bearer(&token);
        let fetch = fetch.json(&json!({})).once(&uuid::Uuid::new_v4().to_string());
        let by_key = site.chat(&chat("flat", "hi")).paid_by("alice");
        for (call, good) in [
            (site.chat_as(&token, "flat"), chats),
            (by_key, chats),
            (fetch, fetches),
        ] {
            let reply = call.send().await;
            if good {
                reply.expect(200);
            } else {
                reply.refused(403, "POLICY_DENIED");
            }
        }
    }
    assert_eq!(site.upstream.count(), 8);
}

async fn a_call_above_the_threshold_needs_an_approval(store: Store) {
    let site = Site::new(store).await;
    site.grant("5", Some("alice"));
    site.limit("alice", &json!({ "requireApprovalAboveUsd": "0.01" }))
        .await;
    let token = site.token("alice", &json!({})).await;
    site.chat_as(&token, "flat").send().await.expect(200);
    for call in [
        site.chat_as(&token, "dear"),
        site.chat(&chat("dear", "hi")).paid_by("alice"),
    ] {
        let refused = call.send().await.refused(403, "APPROVAL_REQUIRED").json();
        assert_eq!(refused["thresholdUsd"], "0.01");
    }
    assert_eq!(site.upstream.count(), 1);
    assert_eq!(site.balance_of("alice").await["usd"], "4.99");
}
