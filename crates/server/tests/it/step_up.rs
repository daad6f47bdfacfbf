//! Step-up tokens, and signing out.

use http::Method;
use serde_json::{Value, json};

use crate::harness::people::seconds;
use crate::harness::{Reply, Sender, Service, Site, Store};
use crate::on_both_stores;

on_both_stores!(
    a_step_up_token_stands_in_for_a_second_factor,
    a_step_up_token_is_given_for_a_second_factor_only,
    signing_out_ends_the_session_and_its_step_up_tokens,
);

const STEP_UP: &str = "/api/credits/step-up";
const SIGN_OUT: &str = "/api/credits/sign-out";
const HEADER: &str = "x-svc-step-up-token";
const CHALLENGE: &str = "Bearer error=\"insufficient_user_authentication\", acr_values=\"mfa\", max_age=600";

fn post(site: &Site, path: &str, session: &str) -> Sender {
    site.client.request(Method::POST, path).bearer(session)
}

async fn stepped_up(site: &Site, session: &str) -> String {
    let given = post(site, STEP_UP, session).send().await.expect(201);
    given.json()["stepUpToken"].as_str().unwrap().to_owned()
}

/// A session without a second factor.
fn plain(site: &Site, subject: &str) -> String {
    site.session(subject, &json!({ "amr": ["pwd"] }))
}

fn required(reply: Reply) -> Value {
    let refused = reply.refused(401, "STEP_UP_REQUIRED");
    assert_eq!(refused.header("www-authenticate"), Some(CHALLENGE));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    let mut body = refused.json();
    body["requestId"] = Value::Null;
    body
}

// Fault matrix 134, 135, 137, 138, 140
async fn a_step_up_token_stands_in_for_a_second_factor(store: Store) {
    let site = Site::new(store).await;
    for user in ["alice", "bob"] {
        site.limit(user, &json!({})).await;
    }
    let owner = site.owner();
    let base = plain(&site, "the-owner");
    let given = post(&site, STEP_UP, &owner).send().await.expect(201);
    assert_eq!(given.header("cache-control"), Some("no-store"));
    let body = given.json();
    assert_eq!(
        (&body["success"], &body["tokenType"]),
        (&json!(true), &json!("StepUp"))
    );
    let token = body["stepUpToken"].as_str().unwrap().to_owned();
    assert!(token.starts_with("svc_su_") && token.len() == 56, "{token}");
    let wanted = required(site.retiring("alice", &base).send().await);
    // Whatever is wrong with a token, the answer is the same.
    site.add_member("another", "owner");
    let theirs = stepped_up(&site, &site.session("another", &json!({}))).await;
    let upper = token.to_uppercase();
    let last = if token.ends_with('x') { 'y' } else { 'x' };
    let typo = format!("{}{last}", &token[..token.len() - 1]);
    let unknown = turnpike_core::access::StepUpSecret::generate("svc", &[9; 32]);
    let long = "x".repeat(4000);
    for bad in [
        "",
        "x",
        &theirs,
        &upper,
        &typo,
        unknown.reveal(),
        &long,
        &site.key,
        &owner,
    ] {
        let refused = site.retiring("alice", &base).header(HEADER, bad).send().await;
        assert_eq!(required(refused), wanted, "{bad}");
    }
    let twice = site
        .retiring("alice", &base)
        .header(HEADER, &token)
        .header(HEADER, &token);
    assert_eq!(required(twice.send().await), wanted);
    let bytes = site.retiring("alice", &base).header(HEADER, b"\xff\xfe");
    assert_eq!(required(bytes.send().await), wanted);
    // With anything but a dashboard session it is a mistake, and alone it is nothing.
    let end_user = site.token("bob", &json!({})).await;
    for credential in [site.key.as_str(), &end_user] {
        let wrong = site
            .retiring("alice", credential)
            .header(HEADER, &token)
            .send()
            .await;
        wrong.refused(400, "VALIDATION_ERROR");
    }
    let alone = site
        .client
        .request(Method::DELETE, "/api/credits/end-users/alice");
    let alone = alone.header(HEADER, &token).send().await;
    alone.refused(401, "UNAUTHENTICATED");
    let as_bearer = site.retiring("alice", &token).send().await;
    as_bearer.refused(401, "INVALID_CREDENTIAL");
    // In another workspace of the same person it is worth nothing.
    let (second, _) = site.workspace("Second");
    let member = [
        "member",
        "add",
        "--tenant",
        &second,
        "--subject",
        "the-owner",
        "--role",
        "owner",
    ];
    site.operate(&member);
    let there = |tenant: &str| {
        let request = site.retiring("alice", &base).header(HEADER, &token);
        request.header("x-svc-tenant-id", tenant).send()
    };
    site.retiring("alice", &base)
        .send()
        .await
        .refused(400, "TENANT_HEADER_REQUIRED");
    assert_eq!(required(there(&second).await), wanted);
    there("x").await.refused(400, "VALIDATION_ERROR");
    there(&site.tenant).await.expect(200);
    // It can be used again until it ends, and the role is the one of now.
    let again = |user: &str| {
        let request = site.retiring(user, &base).header(HEADER, &token);
        request.header("x-svc-tenant-id", &site.tenant).send()
    };
    site.add_member("the-owner", "developer");
    again("bob").await.refused(403, "FORBIDDEN_ROLE");
    site.add_member("the-owner", "owner");
    site.database
        .execute(&format!(
            "UPDATE step_up_tokens SET expires_at = {}",
            seconds() * 1000
        ))
        .await;
    assert_eq!(required(again("bob").await), wanted);
    let far = format!(
        "UPDATE step_up_tokens SET expires_at = {}",
        (seconds() + 60) * 1000
    );
    site.database.execute(&far).await;
    again("bob").await.expect(200);
    assert_eq!(site.noted("step_up.issue").await, 2);
    let log = site.service().logged();
    assert!(!log.contains(&token[10..]) && !log.contains(&base[200..]));
}

// Fault matrix 134, 135, 136
async fn a_step_up_token_is_given_for_a_second_factor_only(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    let token = stepped_up(&site, &owner).await;
    let (base, stale) = (
        plain(&site, "the-owner"),
        site.session("the-owner", &json!({ "auth_time": seconds() - 700 })),
    );
    for session in [&base, &stale] {
        required(post(&site, STEP_UP, session).send().await);
        // A step-up token does not beget another.
        required(post(&site, STEP_UP, session).header(HEADER, &token).send().await);
    }
    let aged = site.session("the-owner", &json!({ "auth_time": seconds() - 590 }));
    let given = post(&site, STEP_UP, &aged).send().await.expect(201).json();
    let ends: turnpike_core::time::Timestamp = given["expiresAt"].as_str().unwrap().parse().unwrap();
    assert!(ends.millis() <= (seconds() + 11) * 1000, "{ends}");
    for (body, status, code) in [
        (json!({ "x": 1 }), 400, "UNKNOWN_FIELD"),
        (json!({ "code": 1 }), 400, "VALIDATION_ERROR"),
        (json!({ "code": "x".repeat(65) }), 400, "VALIDATION_ERROR"),
        (json!([]), 400, "INVALID_JSON"),
    ] {
        let refused = post(&site, STEP_UP, &owner).json(&body).send().await;
        refused.refused(status, code);
    }
    for role in ["admin", "developer", "billing", "viewer"] {
        site.add_member(role, role);
        stepped_up(&site, &site.session(role, &json!({}))).await;
    }
    let end_user = site.token("alice", &json!({})).await;
    for path in [STEP_UP, SIGN_OUT] {
        for credential in [site.key.as_str(), &end_user] {
            let refused = post(&site, path, credential).send().await;
            refused.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
        }
        let nobody = site.client.request(Method::POST, path).send().await;
        nobody.refused(401, "UNAUTHENTICATED");
    }
    // A suspended workspace only reads; whoever wants to leave may.
    site.operate(&["tenant", "suspend", &site.tenant]);
    let suspended = post(&site, STEP_UP, &owner).send().await;
    suspended.refused(403, "TENANT_SUSPENDED");
    post(&site, SIGN_OUT, &owner).send().await.expect(200);
    site.operate(&["tenant", "resume", &site.tenant]);
}

// Fault matrix 137
async fn signing_out_ends_the_session_and_its_step_up_tokens(store: Store) {
    let site = Site::new(store).await;
    site.limit("alice", &json!({})).await;
    let owner = site.owner();
    let second = match store {
        Store::Postgres => Some(site.second().await),
        Store::Sqlite => None,
    };
    let (base, other) = (
        plain(&site, "the-owner"),
        site.session("the-owner", &json!({ "amr": ["pwd", "x"] })),
    );
    let tokens = [stepped_up(&site, &owner).await, stepped_up(&site, &owner).await];
    site.add_member("another", "owner");
    let theirs = stepped_up(&site, &site.session("another", &json!({}))).await;
    // In no workspace in particular.
    let (elsewhere, _) = site.workspace("Second");
    let member = [
        "member",
        "add",
        "--tenant",
        &elsewhere,
        "--subject",
        "the-owner",
        "--role",
        "viewer",
    ];
    site.operate(&member);
    let unknown = post(&site, SIGN_OUT, &base)
        .json(&json!({ "all": true }))
        .send()
        .await;
    unknown.refused(400, "UNKNOWN_FIELD");
    let out = post(&site, SIGN_OUT, &base).send().await.expect(200);
    assert_eq!(out.json(), json!({ "success": true, "revokedStepUpTokens": 2 }));
    assert_eq!(out.header("cache-control"), Some("no-store"));
    let clients = std::iter::once(site.client.clone()).chain(second.as_ref().map(Service::client));
    for client in clients {
        let at = |session: &str, method: Method, path: &str| {
            let request = client.request(method, path).bearer(session);
            request.header("x-svc-tenant-id", &site.tenant)
        };
        let read = at(&base, Method::GET, "/api/credits/balance").send().await;
        read.refused(401, "CREDENTIAL_REVOKED");
        let again = at(&base, Method::POST, SIGN_OUT).send().await;
        again.refused(401, "CREDENTIAL_REVOKED");
        // The person's other sessions go on, without the tokens.
        at(&other, Method::GET, "/api/credits/balance")
            .send()
            .await
            .expect(200);
        for token in &tokens {
            let retire = at(&other, Method::DELETE, "/api/credits/end-users/alice");
            required(retire.header(HEADER, token).send().await);
        }
    }
    let retire = site
        .retiring("alice", &plain(&site, "another"))
        .header(HEADER, &theirs);
    retire.send().await.expect(200);
    let out = post(&site, SIGN_OUT, &owner).send().await.expect(200);
    assert_eq!(out.json()["revokedStepUpTokens"], 0);
}
