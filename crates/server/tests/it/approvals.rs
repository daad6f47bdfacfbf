//! Approvals: dear calls wait for a person, tools are asked for, and what is decided counts once.

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::browser::path_of;
use crate::harness::{Reply, Sender, Site, Store, TOOL, chat};
use crate::on_both_stores;

on_both_stores!(
    a_dear_call_waits_for_an_approval_and_is_made_once,
    a_denied_call_is_refused_with_the_reason,
    a_tool_is_asked_for_and_given,
    a_quoted_call_is_approved_like_any_other,
    twenty_calls_at_once_with_one_approval_are_one_call,
    retirement_cancels_what_is_open,
);

/// The path of approvals.
pub const APPROVALS: &str = "/api/credits/approvals";

impl Site {
    /// A call of alice's that costs 0.008 dollars.
    pub fn dear(&self, id: &str, key: &str) -> Sender {
        let call = self.post(TOOL, &json!({ "id": id })).paid_by("alice");
        call.once(key)
    }

    /// Alice with a dollar, who needs an approval above half a cent.
    pub async fn strict_alice(&self) {
        self.grant("1", Some("alice"));
        let policy = json!({ "requireApprovalAboveUsd": "0.005" });
        self.limit("alice", &policy).await;
    }

    /// A decision: `how` is `approve` or `deny`.
    pub fn deciding(&self, session: &str, id: &str, how: &str) -> Sender {
        self.as_member(session, Method::POST, &format!("{APPROVALS}/{id}/{how}"))
    }

    /// An approval as the workspace sees it.
    pub async fn approval(&self, id: &str) -> Value {
        let path = format!("{APPROVALS}/{id}");
        self.get(&path).send().await.expect(200).json()["approval"].clone()
    }

    async fn approvals(&self, query: &str) -> Vec<Value> {
        let page = self.get(&format!("{APPROVALS}?{query}")).send().await.expect(200);
        page.json()["data"].as_array().unwrap().clone()
    }
}

/// The approval that a call waits for.
#[track_caller]
pub fn waits_for(reply: Reply) -> String {
    let body = reply.refused(403, "APPROVAL_REQUIRED").json();
    let (id, url) = (
        body["approvalId"].as_str().unwrap(),
        body["approvalUrl"].as_str().unwrap(),
    );
    assert_eq!(path_of(url), format!("/approve/{id}"));
    assert_eq!(body["thresholdUsd"], "0.005");
    id.to_owned()
}

async fn a_dear_call_waits_for_an_approval_and_is_made_once(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.strict_alice().await;
    let id = waits_for(site.dear("a", "k").send().await);
    // The same wish, whoever's key and token, is the same approval; another is another.
    let token = site.token("alice", &json!({})).await;
    let by_token = site.client.request(Method::POST, TOOL).bearer(&token);
    let by_token = by_token.json(&json!({ "id": "a" })).once("other").send().await;
    assert_eq!(waits_for(by_token), id);
    let other = waits_for(site.dear("b", "k").send().await);
    assert_ne!(other, id);
    let shown = site.approval(&id).await;
    assert_eq!(
        (
            &shown["kind"],
            &shown["status"],
            &shown["slug"],
            &shown["externalUserId"]
        ),
        (
            &json!("spend"),
            &json!("pending"),
            &json!("tools/fetch"),
            &json!("alice")
        )
    );
    assert_eq!(
        (&shown["requestedUsd"], &shown["requestedCredits"], &shown["args"]),
        (&json!("0.008"), &json!("8"), &json!("{\"id\":\"a\"}"))
    );
    let ids = |found: Vec<Value>| found.iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    assert_eq!(
        ids(site.approvals("status=pending&externalUserId=alice").await),
        [json!(other), json!(id)]
    );
    assert!(site.approvals("externalUserId=bob").await.is_empty());
    let first = site
        .get(&format!("{APPROVALS}?limit=1"))
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(first["next_cursor"], json!(other));
    let next = format!("limit=1&cursor={other}");
    assert_eq!(ids(site.approvals(&next).await), [json!(id)]);
    for (query, code) in [
        ("status=x", "VALIDATION_ERROR"),
        ("cursor=x", "CURSOR_INVALID"),
        ("limit=0", "VALIDATION_ERROR"),
    ] {
        let bad = site.get(&format!("{APPROVALS}?{query}")).send().await;
        bad.refused(400, code);
    }
    // A key decides nothing, nor does who is no administrator.
    let by_key = site
        .post(&format!("{APPROVALS}/{id}/approve"), &json!({}))
        .send()
        .await;
    by_key.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    site.add_member("viewer", "viewer");
    let viewer = site.session("viewer", &json!({}));
    site.deciding(&viewer, &id, "approve")
        .send()
        .await
        .refused(403, "FORBIDDEN_ROLE");
    for _ in 0..2 {
        let approved = site
            .deciding(&owner, &id, "approve")
            .send()
            .await
            .expect(200)
            .json();
        assert_eq!(approved["approval"]["status"], "approved");
        assert_eq!(approved["approval"]["decidedBy"], "member:the-owner");
    }
    assert_eq!(site.noted("approval.approve").await, 1);
    let made = site.dear("a", "k").send().await.expect(200);
    let used = site.approval(&id).await;
    assert_eq!(
        (&used["status"], used["callId"].as_str()),
        (&json!("consumed"), made.header("x-svc-call-id"))
    );
    let again = site.dear("a", "k").send().await.expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    // It was for one call.
    assert_ne!(waits_for(site.dear("a", "another").send().await), id);
    let late = site.deciding(&owner, &id, "deny").send().await;
    assert_eq!(late.refused(409, "REQUEST_FAILED").json()["status"], "consumed");
    assert_eq!(site.upstream.count(), 1);
    // A chat call waits like any other.
    let body = chat("flat", "hi");
    let waiting = site.chat(&body).paid_by("alice").send().await;
    let id = waits_for(waiting);
    site.deciding(&owner, &id, "approve").send().await.expect(200);
    site.chat(&body).paid_by("alice").send().await.expect(200);
    waits_for(site.chat(&body).paid_by("alice").send().await);
    // The workspace's own calls need none.
    site.post(TOOL, &json!({ "id": "a" }))
        .once("pool")
        .send()
        .await
        .expect(200);
}

async fn a_denied_call_is_refused_with_the_reason(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.strict_alice().await;
    let id = waits_for(site.dear("a", "k").send().await);
    let too_long = json!({ "reason": "x".repeat(501) });
    let bad = site.deciding(&owner, &id, "deny").json(&too_long).send().await;
    bad.refused(400, "VALIDATION_ERROR");
    let deny = site
        .deciding(&owner, &id, "deny")
        .json(&json!({ "reason": "too dear" }));
    assert_eq!(
        deny.send().await.expect(200).json()["approval"]["status"],
        "denied"
    );
    let refused = site
        .dear("a", "k")
        .send()
        .await
        .refused(403, "POLICY_DENIED")
        .json();
    assert_eq!(
        (&refused["reason"], &refused["approvalId"]),
        (&json!("too dear"), &json!(id))
    );
    let late = site.deciding(&owner, &id, "approve").send().await;
    late.refused(409, "REQUEST_FAILED");
    // Approved and taken back.
    let id = waits_for(site.dear("b", "k").send().await);
    site.deciding(&owner, &id, "approve").send().await.expect(200);
    site.deciding(&owner, &id, "deny").send().await.expect(200);
    site.dear("b", "k").send().await.refused(403, "POLICY_DENIED");
    for unknown in ["x", "0190a0b0-0000-7000-8000-000000000000"] {
        let gone = site.deciding(&owner, unknown, "deny").send().await;
        gone.refused(404, "NOT_FOUND");
    }
    assert_eq!((site.upstream.count(), site.noted("approval.deny").await), (0, 2));
    assert_eq!(site.balance_of("alice").await["usd"], "1");
}

async fn a_tool_is_asked_for_and_given(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.grant("1", Some("alice"));
    let token = site.token("alice", &json!({})).await;
    let ask = |body: &Value| {
        site.client
            .request(Method::POST, APPROVALS)
            .bearer(&token)
            .json(body)
    };
    let wish = json!({ "slug": "tools/fetch", "reason": "<b>I need it</b>" });
    ask(&wish).send().await.refused(409, "ALREADY_EXISTS");
    site.limit("alice", &json!({ "allowedTools": ["up/*"] })).await;
    site.dear("a", "k").send().await.refused(403, "POLICY_DENIED");
    let asked = ask(&wish).send().await.expect(201).json()["approval"].clone();
    assert_eq!(
        (&asked["kind"], &asked["status"], &asked["requestedUsd"]),
        (&json!("tool_access"), &json!("pending"), &Value::Null)
    );
    let again = ask(&json!({ "slug": "tools/fetch" }))
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(again["approval"]["id"], asked["id"]);
    for (body, status, code) in [
        (json!({}), 400, "VALIDATION_ERROR"),
        (json!({ "slug": "x" }), 400, "VALIDATION_ERROR"),
        (json!({ "slug": "tools/none" }), 404, "ENDPOINT_NOT_FOUND"),
        (json!({ "slug": "tools/fetch", "x": 1 }), 400, "UNKNOWN_FIELD"),
        (
            json!({ "slug": "tools/fetch", "externalUserId": "bob" }),
            403,
            "CREDENTIAL_KIND_NOT_ALLOWED",
        ),
    ] {
        ask(&body).send().await.refused(status, code);
    }
    let by_key = site.post(APPROVALS, &wish).send().await;
    by_key.refused(400, "VALIDATION_ERROR");
    let id = asked["id"].as_str().unwrap();
    site.deciding(&owner, id, "approve").send().await.expect(200);
    let policy = site
        .about(Method::GET, "alice", "/policy")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(policy["policy"]["allowedTools"], json!(["up/*", "tools/fetch"]));
    site.dear("a", "k").send().await.expect(200);
    assert_eq!(site.approval(id).await["status"], "approved");
    // With a key for an end user, by body or header; a model is asked for like a tool.
    site.limit("alice", &json!({ "allowedTools": [] })).await;
    let body = json!({ "slug": "up/flat", "externalUserId": "alice" });
    let id = site.post(APPROVALS, &body).send().await.expect(201).json()["approval"]["id"].clone();
    site.deciding(&owner, id.as_str().unwrap(), "approve")
        .send()
        .await
        .expect(200);
    site.chat(&chat("flat", "hi"))
        .paid_by("alice")
        .send()
        .await
        .expect(200);
}

async fn a_quoted_call_is_approved_like_any_other(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.strict_alice().await;
    let body = json!({ "slug": "tools/fetch", "args": { "id": "a" }, "externalUserId": "alice" });
    let estimate = site.estimate(&body).await;
    assert_eq!(estimate["estimate"]["requiresApproval"], true);
    let token = estimate["approvalToken"].as_str().unwrap();
    let call = || site.dear("a", "k").header("x-svc-approval-token", token);
    let id = waits_for(call().send().await);
    let shown = site.approval(&id).await;
    assert_eq!(
        (&shown["kind"], &shown["quoteId"]),
        (&json!("quote"), &estimate["estimate"]["id"])
    );
    site.deciding(&owner, &id, "approve").send().await.expect(200);
    call().send().await.expect(200);
    assert_eq!(site.approval(&id).await["status"], "consumed");
    call().send().await.expect(200);
    assert_eq!(site.upstream.count(), 1);
}

async fn twenty_calls_at_once_with_one_approval_are_one_call(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.strict_alice().await;
    let id = waits_for(site.dear("a", "k").send().await);
    site.deciding(&owner, &id, "approve").send().await.expect(200);
    let mut calls = JoinSet::new();
    for number in 0..20 {
        calls.spawn(site.dear("a", &format!("k{number}")).send());
    }
    let mut good = 0;
    for reply in calls.join_all().await {
        if reply.status == 200 {
            good += 1;
        } else {
            assert_ne!(waits_for(reply), id);
        }
    }
    assert_eq!((good, site.upstream.count()), (1, 1));
    assert_eq!(site.approvals("status=pending").await.len(), 1);
}

async fn retirement_cancels_what_is_open(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.strict_alice().await;
    let body = json!({ "slug": "tools/item", "args": { "id": "a" }, "externalUserId": "alice" });
    let estimate = site.estimate(&body).await;
    let mut ids = Vec::new();
    for id in ["pending", "approved", "denied"] {
        ids.push(waits_for(site.dear(id, "k").send().await));
    }
    site.deciding(&owner, &ids[1], "approve").send().await.expect(200);
    site.deciding(&owner, &ids[2], "deny").send().await.expect(200);
    site.move_usd("deallocate", "alice", "1", "all")
        .send()
        .await
        .expect(200);
    for canceled in [2, 0] {
        let retired = site.retiring("alice", &owner).send().await.expect(200).json();
        assert_eq!(retired["canceledApprovals"], canceled);
    }
    for (id, status) in ids.iter().zip(["canceled", "canceled", "denied"]) {
        assert_eq!(site.approval(id).await["status"], status);
    }
    let late = site.deciding(&owner, &ids[0], "approve").send().await;
    assert_eq!(late.refused(409, "REQUEST_FAILED").json()["status"], "canceled");
    let quote = estimate["estimate"]["id"].as_str().unwrap();
    let path = format!("{}/{quote}", crate::tool_quotes::ESTIMATE);
    let shown = site
        .client
        .request(Method::DELETE, &path)
        .bearer(&site.key)
        .send()
        .await;
    assert_eq!(shown.expect(200).json()["estimate"]["status"], "canceled");
    let wish = json!({ "slug": "tools/fetch", "externalUserId": "alice" });
    site.post(APPROVALS, &wish)
        .send()
        .await
        .refused(403, "END_USER_RETIRED");
    site.dear("a", "k").send().await.refused(403, "END_USER_RETIRED");
}
