//! Invitations over HTTP: who may make which, and that each is accepted once.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Sender, Setup, Site, Store};
use crate::on_both_stores;

on_both_stores!(
    an_invitation_is_made_listed_accepted_and_gone,
    nobody_gives_what_they_do_not_have,
    an_invitation_is_accepted_once_however_many_try,
    what_is_wrong_with_an_invitation_is_said,
    another_workspaces_invitations_do_not_exist,
);

const PATH: &str = "/api/credits/tenants/me/invitations";
const ACCEPT: &str = "/api/credits/invitations/accept";

fn invite(site: &Site, bearer: &str, body: &Value) -> Sender {
    site.client.request(Method::POST, PATH).bearer(bearer).json(body)
}

fn accept(site: &Site, subject: &str, token: &str) -> Sender {
    let session = site.session(subject, &json!({}));
    let ask = site.client.request(Method::POST, ACCEPT).bearer(&session);
    ask.json(&json!({ "token": token }))
}

fn roles(site: &Site) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let listed = site.operate(&["member", "list", "--tenant", &site.tenant]);
    let members = listed["members"].as_array().unwrap();
    members
        .iter()
        .map(|member| (text(&member["subject"]), text(&member["role"])))
        .collect()
}

async fn an_invitation_is_made_listed_accepted_and_gone(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let owner = site.owner();
    let body = json!({ "role": "developer", "note": "ada@example.com" });
    let made = invite(&site, &owner, &body).send().await.expect(201);
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let made = made.json();
    let token = made["token"].as_str().unwrap();
    assert_eq!(token.len(), 43);
    let url = made["url"].as_str().unwrap();
    assert!(url.ends_with(&format!("/identity/join?token={token}")), "{url}");
    let invitation = &made["invitation"];
    assert_eq!(
        (&invitation["status"], &invitation["role"]),
        (&json!("open"), &json!("developer"))
    );
    assert_eq!(invitation["createdBy"], "member:the-owner");
    let list = |limit: u32, cursor: &str| {
        let path = format!("{PATH}?limit={limit}{cursor}");
        site.client.request(Method::GET, &path).bearer(&owner)
    };
    let listed = list(20, "").send().await.expect(200);
    assert!(!listed.text().contains(token), "a list shows no token");
    assert_eq!(listed.json()["data"], json!([invitation]));

    let accepted = accept(&site, "ada", token).send().await.expect(200).json();
    assert_eq!(
        accepted["membership"],
        json!({ "tenantId": site.tenant, "tenantName": "Tests", "tenantStatus": "active", "role": "developer" })
    );
    accept(&site, "bob", token).send().await.refused(404, "NOT_FOUND");
    assert_eq!(roles(&site)[0], ("ada".to_owned(), "developer".to_owned()));
    let shown = list(20, "").send().await.expect(200).json()["data"][0].clone();
    assert_eq!(
        (&shown["status"], &shown["acceptedBy"]),
        (&json!("accepted"), &json!("ada"))
    );

    // One that is taken back is over; one that was accepted cannot be.
    let second = invite(&site, &owner, &json!({ "role": "viewer" }))
        .send()
        .await
        .expect(201)
        .json();
    let id = second["invitation"]["id"].as_str().unwrap();
    let remove = |id: &str| {
        site.client
            .request(Method::DELETE, &format!("{PATH}/{id}"))
            .bearer(&owner)
    };
    let gone = remove(id).send().await.expect(200).json();
    assert_eq!(gone["invitation"]["status"], "revoked");
    for id in [
        id,
        invitation["id"].as_str().unwrap(),
        "no-uuid",
        "0190a0b0-0000-7000-8000-000000000000",
    ] {
        remove(id).send().await.refused(404, "NOT_FOUND");
    }
    let token = second["token"].as_str().unwrap();
    accept(&site, "bob", token).send().await.refused(404, "NOT_FOUND");
    let page = list(1, "").send().await.expect(200).json();
    assert_eq!(page["data"][0]["id"], id);
    let next = page["next_cursor"].as_str().unwrap();
    let page = list(1, &format!("&cursor={next}"))
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&page["data"][0]["id"], &page["next_cursor"]),
        (&invitation["id"], &Value::Null)
    );
    list(1, "&cursor=x").send().await.refused(400, "CURSOR_INVALID");
    for (action, times) in [
        ("invitation.create", 2),
        ("invitation.accept", 1),
        ("invitation.revoke", 1),
    ] {
        assert_eq!(site.noted(action).await, times, "{action}");
    }
}

async fn nobody_gives_what_they_do_not_have(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    for role in ["admin", "developer"] {
        site.add_member(role, role);
    }
    let admin = site.session("admin", &json!({}));
    invite(&site, &admin, &json!({ "role": "owner" }))
        .send()
        .await
        .refused(403, "FORBIDDEN_ROLE");
    invite(&site, &admin, &json!({ "role": "admin" }))
        .send()
        .await
        .expect(201);
    let developer = site.session("developer", &json!({}));
    invite(&site, &developer, &json!({ "role": "viewer" }))
        .send()
        .await
        .refused(403, "INSUFFICIENT_SCOPE");
    let unproved = site.session("admin", &json!({ "amr": ["pwd"] }));
    invite(&site, &unproved, &json!({ "role": "viewer" }))
        .send()
        .await
        .refused(401, "STEP_UP_REQUIRED");
    // A key gives what it has.
    let narrow = site.new_key("secret", &["members:manage", "tenant:read"]);
    invite(&site, &narrow, &json!({ "role": "viewer" }))
        .send()
        .await
        .expect(201);
    let refused = invite(&site, &narrow, &json!({ "role": "billing" })).send().await;
    let body = refused.refused(403, "SCOPE_ESCALATION").json();
    assert_eq!(body["requiredScopes"], json!(["payouts:manage", "tenant:read"]));
    assert_eq!(body["presentScopes"], json!(["members:manage", "tenant:read"]));
    // Nor what no key can do, however many scopes it has.
    for role in ["owner", "admin", "billing"] {
        let asked = invite(&site, &site.key, &json!({ "role": role }));
        asked.send().await.refused(403, "FORBIDDEN_ROLE");
    }
    // A key is nobody who could become a member.
    let ask = site.client.request(Method::POST, ACCEPT).bearer(&site.key);
    let refused = ask.json(&json!({ "token": "x" })).send().await;
    refused.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
}

async fn an_invitation_is_accepted_once_however_many_try(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let owner = site.owner();
    let made = invite(&site, &owner, &json!({ "role": "viewer" }))
        .send()
        .await
        .expect(201)
        .json();
    let token = made["token"].as_str().unwrap();
    // Who is a member already takes nothing and keeps the role.
    let refused = accept(&site, "the-owner", token).send().await;
    refused.refused(409, "ALREADY_EXISTS");
    assert_eq!(roles(&site), [("the-owner".to_owned(), "owner".to_owned())]);
    let mut tries = tokio::task::JoinSet::new();
    for number in 0..20 {
        tries.spawn(accept(&site, &format!("person-{number}"), token).send());
    }
    let replies = tries.join_all().await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 1);
    assert!(replies.iter().all(|reply| matches!(reply.status, 200 | 404)));
    assert_eq!(roles(&site).len(), 2);
    assert_eq!(site.noted("invitation.accept").await, 1);
}

async fn what_is_wrong_with_an_invitation_is_said(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let owner = site.owner();
    let long = "x".repeat(255);
    for body in [
        json!({}),
        json!({ "role": "emperor" }),
        json!({ "role": null }),
        json!({ "role": ["viewer"] }),
        json!({ "role": "viewer", "note": long }),
        json!({ "role": "viewer", "note": "" }),
        json!({ "role": "viewer", "note": "a\u{0}b" }),
        json!({ "role": "viewer", "expiresIn": 3599 }),
        json!({ "role": "viewer", "expiresIn": 2_592_001 }),
        json!({ "role": "viewer", "expiresIn": "7200" }),
    ] {
        invite(&site, &owner, &body)
            .send()
            .await
            .refused(400, "VALIDATION_ERROR");
    }
    let unknown = json!({ "role": "viewer", "email": "a@b" });
    invite(&site, &owner, &unknown)
        .send()
        .await
        .refused(400, "UNKNOWN_FIELD");
    for secs in [3600, 2_592_000] {
        let body = json!({ "role": "viewer", "note": null, "expiresIn": secs });
        invite(&site, &owner, &body).send().await.expect(201);
    }
    let session = site.session("ada", &json!({}));
    for (body, code) in [
        (json!({}), "VALIDATION_ERROR"),
        (json!({ "token": 1 }), "VALIDATION_ERROR"),
        (json!({ "token": "x".repeat(129) }), "VALIDATION_ERROR"),
        (json!({ "token": "x", "role": "owner" }), "UNKNOWN_FIELD"),
    ] {
        let ask = site
            .client
            .request(Method::POST, ACCEPT)
            .bearer(&session)
            .json(&body);
        ask.send().await.refused(400, code);
    }
    accept(&site, "ada", "unknown")
        .send()
        .await
        .refused(404, "NOT_FOUND");
    // There are not more open ones than somebody can look through.
    for _ in 2..100 {
        invite(&site, &owner, &json!({ "role": "viewer" }))
            .send()
            .await
            .expect(201);
    }
    let one_more = invite(&site, &owner, &json!({ "role": "viewer" })).send().await;
    one_more.refused(409, "ALREADY_EXISTS");
}

async fn another_workspaces_invitations_do_not_exist(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let owner = site.owner();
    let made = invite(&site, &owner, &json!({ "role": "viewer" }))
        .send()
        .await
        .expect(201)
        .json();
    let id = made["invitation"]["id"].as_str().unwrap();
    let (_, other) = site.workspace("Other");
    let listed = site
        .client
        .request(Method::GET, PATH)
        .bearer(&other)
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(listed["data"], json!([]));
    let remove = site
        .client
        .request(Method::DELETE, &format!("{PATH}/{id}"))
        .bearer(&other);
    remove.send().await.refused(404, "NOT_FOUND");
    // A workspace that was stopped lets nobody in.
    site.operate(&["tenant", "suspend", &site.tenant]);
    let token = made["token"].as_str().unwrap();
    accept(&site, "ada", token)
        .send()
        .await
        .refused(403, "TENANT_SUSPENDED");
    invite(&site, &owner, &json!({ "role": "viewer" }))
        .send()
        .await
        .refused(403, "TENANT_SUSPENDED");
}
