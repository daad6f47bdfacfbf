//! End users' tokens: which are accepted, what they allow, and how they end.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use crate::harness::people::{Forge, claims_of, header_of, part, seconds};
use crate::harness::{CHAT, Setup, Site, Store, TOOL, chat, eventually, micros};
use crate::on_both_stores;

on_both_stores!(
    a_minted_token_spends_its_own_end_users_balance,
    a_token_that_is_not_signed_by_us_is_refused,
    a_header_that_points_elsewhere_is_refused_and_nothing_is_fetched,
    a_genuine_token_is_refused_for_its_claims,
    a_lifetime_is_bounded_when_minted_and_when_used,
    a_token_bound_to_a_session_needs_it,
    a_token_is_good_for_its_workspace_and_end_user_only,
    huge_tokens_are_refused_fast,
    scopes_and_tools_narrow_a_token,
    a_tokens_ceiling_holds_against_fifty_calls_at_once,
    revoked_tokens_stop_working_at_once,
    a_rotated_key_leaves_live_tokens_alone,
    tokens_are_minted_by_the_rules,
    minting_is_limited_by_end_user,
);

mod postgres_only {
    #[test]
    fn a_revocation_is_seen_by_another_node_within_a_second() {
        crate::harness::run(super::revoked_elsewhere());
    }

    #[test]
    fn a_token_of_a_key_that_another_node_made_is_accepted() {
        crate::harness::run(super::another_nodes_key());
    }
}

const KEYS: &str = "/.well-known/jwks.json";

async fn a_minted_token_spends_its_own_end_users_balance(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let minted = site
        .about(Method::POST, "alice", "/tokens")
        .send()
        .await
        .expect(201);
    assert_eq!(minted.header("cache-control"), Some("no-store"));
    let minted = minted.json();
    assert_eq!(
        (
            &minted["success"],
            &minted["tokenType"],
            &minted["externalUserId"],
            &minted["sessionBound"]
        ),
        (&json!(true), &json!("Bearer"), &json!("alice"), &json!(false))
    );
    let token = minted["token"].as_str().unwrap();
    let claims = claims_of(token);
    assert_eq!(claims["jti"], minted["jti"]);
    assert_eq!(
        claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(),
        900
    );
    assert_eq!(
        (&claims["sub"], &claims["tid"]),
        (&json!("alice"), &json!(site.tenant))
    );
    assert_eq!(claims["scp"], json!(["spend", "topup", "read"]));
    let published = site.client.request(Method::GET, KEYS).send().await.expect(200);
    assert_eq!(published.header("cache-control"), Some("public, max-age=60"));
    assert_eq!(published.json()["keys"][0]["kid"], header_of(token)["kid"]);
    let reply = site.chat_as(token, "flat").send().await.expect(200);
    assert_eq!(reply.header("x-svc-credits-balance"), Some("990"));
    assert_eq!(reply.header("x-svc-cost-usd"), None);
    let named = site.chat_as(token, "flat").paid_by("alice").send().await;
    named.expect(200);
    let balance = site.mine(token).send().await.expect(200).json();
    assert_eq!(
        balance,
        json!({ "success": true, "usd": "0.98", "credits": "980", "availableUsd": "0.98", "reservedUsd": "0",
            "denomination": { "creditsPerDollar": 1000 } })
    );
    let me = site.client.request(Method::GET, "/api/credits/me").bearer(token);
    assert_eq!(
        me.send().await.expect(200).json(),
        json!({ "success": true, "externalUserId": "alice", "status": "active" })
    );
    assert_eq!(site.settled().await, micros("10"));
    assert_eq!(site.noted("token.mint").await, 1);
}

async fn refused(site: &Site, token: &str) {
    let sent = site.upstream.count();
    let call = site.chat_as(token, "flat").send().await;
    let shown: String = token.chars().take(60).collect();
    assert_eq!(
        (call.status, call.code().as_str()),
        (401, "INVALID_CREDENTIAL"),
        "{shown}: {}",
        call.text()
    );
    assert_eq!(site.upstream.count(), sent);
}

// Fault matrix 122
async fn a_token_that_is_not_signed_by_us_is_refused(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let token = site.token("alice", &json!({})).await;
    let parts: Vec<&str> = token.split('.').collect();
    let header = header_of(&token);
    let with = |alg: &str| {
        let mut header = header.clone();
        header["alg"] = json!(alg);
        part(&header)
    };
    for alg in [
        "none", "None", "NONE", "nOnE", "", "EDDSA", "ES256", "HS256", "Ed25519", "x",
    ] {
        for signature in ["", parts[2]] {
            refused(&site, &format!("{}.{}.{signature}", with(alg), parts[1])).await;
        }
    }
    let published = site
        .client
        .request(Method::GET, KEYS)
        .send()
        .await
        .expect(200)
        .json();
    let public = URL_SAFE_NO_PAD
        .decode(published["keys"][0]["x"].as_str().unwrap())
        .unwrap();
    for secret in [
        public.clone(),
        published["keys"][0]["x"].as_str().unwrap().as_bytes().to_vec(),
    ] {
        let message = format!("{}.{}", with("HS256"), parts[1]);
        let key = EncodingKey::from_secret(&secret);
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
        refused(&site, &format!("{message}.{signature}")).await;
    }
    refused(&site, &format!("{}.{}.", parts[0], parts[1])).await;
    refused(&site, &format!("{}.{}", parts[0], parts[1])).await;
    refused(&site, &format!("{token}.{}.{}", parts[1], parts[2])).await;
    let first = if parts[2].starts_with('A') { "B" } else { "A" };
    refused(
        &site,
        &format!("{}.{}.{first}{}", parts[0], parts[1], &parts[2][1..]),
    )
    .await;
    let mut claims = claims_of(&token);
    claims["sub"] = json!("bob");
    refused(&site, &format!("{}.{}.{}", parts[0], part(&claims), parts[2])).await;
    assert_eq!(site.balance_of("alice").await["usd"], "1");
    site.chat_as(&token, "flat").send().await.expect(200);
}

// Fault matrix 123
async fn a_header_that_points_elsewhere_is_refused_and_nothing_is_fetched(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let forge = Forge::new(&site).await;
    let token = site.token("alice", &json!({})).await;
    let (claims, connections) = (claims_of(&token), site.upstream.connections());
    site.chat_as(&forge.sign(&claims), "free")
        .send()
        .await
        .expect(200);
    for kid in [
        "",
        "unknown",
        "../../etc/passwd",
        "' OR 1=1 --",
        "a\u{0}b",
        &"k".repeat(10_000),
    ] {
        let mut header = forge.header();
        header["kid"] = json!(kid);
        refused(&site, &forge.sign_parts(&part(&header), &part(&claims))).await;
    }
    let elsewhere = format!("http://{}/keys", site.upstream.address);
    for (name, value) in [
        ("jku", json!(elsewhere)),
        ("x5u", json!(elsewhere)),
        ("jwk", json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA" })),
        ("crit", json!(["exp"])),
        ("b64", json!(false)),
    ] {
        let mut header = forge.header();
        header[name] = value;
        refused(&site, &forge.sign_parts(&part(&header), &part(&claims))).await;
    }
    let twice = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","alg":"none","typ":"end-user+jwt","kid":"x"}"#);
    refused(&site, &forge.sign_parts(&twice, &part(&claims))).await;
    assert_eq!(
        (site.upstream.count(), site.upstream.connections()),
        (1, connections + 1)
    );
}

// Fault matrix 124, 128, 129
async fn a_genuine_token_is_refused_for_its_claims(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let forge = Forge::new(&site).await;
    let claims = claims_of(&site.token("alice", &json!({})).await);
    let changed = |name: &str, value: Value| {
        let mut changed = claims.clone();
        if value.is_null() {
            changed.as_object_mut().unwrap().remove(name);
        } else {
            changed[name] = value;
        }
        forge.sign(&changed)
    };
    site.chat_as(&forge.sign(&claims), "flat")
        .send()
        .await
        .expect(200);
    let now = seconds();
    let mut over = claims.clone();
    (over["iat"], over["exp"]) = (json!(now - 901), json!(now - 1));
    let late = site.chat_as(&forge.sign(&over), "flat").send().await;
    late.refused(401, "CREDENTIAL_EXPIRED");
    for name in ["iss", "aud", "sub", "tid", "iat", "exp", "jti", "scp"] {
        refused(&site, &changed(name, Value::Null)).await;
    }
    let mut ahead = claims.clone();
    (ahead["iat"], ahead["exp"]) = (json!(now + 120), json!(now + 900));
    refused(&site, &forge.sign(&ahead)).await;
    for (name, value) in [
        ("nbf", json!(now + 60)),
        ("exp", json!("tomorrow")),
        ("exp", json!(1e30)),
        ("iss", json!("https://elsewhere.example")),
        ("aud", json!("https://elsewhere.example")),
        ("aud", json!(["https://elsewhere.example"])),
        ("sub", json!("bob")),
        ("sub", json!("a/../b")),
        ("sub", json!("")),
        ("sub", json!("x".repeat(201))),
        ("tid", json!(uuid::Uuid::new_v4())),
        ("jti", json!(uuid::Uuid::new_v4())),
        ("jti", json!("x")),
        ("scp", json!([])),
        ("scp", json!(["admin"])),
        ("scp", json!("spend")),
        ("sid", json!("x")),
        ("admin", json!(true)),
    ] {
        refused(&site, &changed(name, value)).await;
    }
    assert_eq!(site.balance_of("alice").await["usd"], "0.99");
}

// Fault matrix 125
async fn a_lifetime_is_bounded_when_minted_and_when_used(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    for (secs, status) in [
        (59, 400),
        (60, 201),
        (3600, 201),
        (3601, 400),
        (0, 400),
        (-1, 400),
    ] {
        let mint = site.about(Method::POST, "alice", "/tokens");
        let minted = mint
            .json(&json!({ "expiresIn": secs }))
            .send()
            .await
            .expect(status);
        if status == 201 {
            let claims = claims_of(minted.json()["token"].as_str().unwrap());
            assert_eq!(
                claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(),
                secs
            );
        }
    }
    let forge = Forge::new(&site).await;
    let mut claims = claims_of(&site.token("alice", &json!({ "expiresIn": 3600 })).await);
    let issued = claims["iat"].as_i64().unwrap();
    for (lifetime, good) in [(3600, true), (3601, false), (60, true), (59, false), (0, false)] {
        claims["exp"] = json!(issued + lifetime);
        let token = forge.sign(&claims);
        if good {
            site.mine(&token).send().await.expect(200);
        } else {
            refused(&site, &token).await;
        }
    }
}

// Fault matrix 126, 127
async fn a_token_bound_to_a_session_needs_it(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let right = "session-0123456789:.x_y-Z";
    let minted = site.mint("alice", &json!({ "sessionId": right })).await;
    assert_eq!(minted["sessionBound"], true);
    let token = minted["token"].as_str().unwrap();
    assert!(
        !claims_of(token).to_string().contains(right),
        "only its fingerprint is in the token"
    );
    site.mine(token)
        .send()
        .await
        .refused(400, "SESSION_HEADER_REQUIRED");
    let call = site.chat_as(token, "flat").send().await;
    call.refused(400, "SESSION_HEADER_REQUIRED");
    for wrong in [
        "",
        "session-0123456789:.x_y-z",
        &right[1..],
        "\u{e9}",
        &"x".repeat(200),
    ] {
        let read = site.mine(token).header("x-svc-session-id", wrong).send().await;
        read.refused(401, "SESSION_MISMATCH");
    }
    let twice = site.mine(token).header("x-svc-session-id", right);
    let twice = twice.header("x-svc-session-id", right).send().await;
    twice.refused(401, "SESSION_MISMATCH");
    let read = site.mine(token).header("x-svc-session-id", right);
    read.send().await.expect(200);
    let call = site.chat_as(token, "flat").header("x-svc-session-id", right);
    call.send().await.expect(200);
    for (length, status) in [(15, 400), (16, 201), (128, 201), (129, 400)] {
        let session = "s".repeat(length);
        let mint = site.about(Method::POST, "alice", "/tokens");
        let minted = mint
            .json(&json!({ "sessionId": session }))
            .send()
            .await
            .expect(status);
        if status == 201 {
            let token = minted.json()["token"].as_str().unwrap().to_owned();
            let read = site.mine(&token).header("x-svc-session-id", &session);
            read.send().await.expect(200);
        }
    }
    for bad in [
        "-123456789012345678",
        "1234567890 123456",
        "1234567890/123456",
        "1234567890\u{e9}123456",
    ] {
        let mint = site.about(Method::POST, "alice", "/tokens");
        let refused = mint.json(&json!({ "sessionId": bad })).send().await;
        refused.refused(400, "VALIDATION_ERROR");
    }
    let free = site.token("alice", &json!({})).await;
    for header in ["", "garbage", right] {
        let read = site.mine(&free).header("x-svc-session-id", header);
        read.send().await.expect(200);
        let call = site.chat(&chat("flat", "hi")).header("x-svc-session-id", header);
        call.send().await.expect(200);
    }
}

// Fault matrix 128, 129, 130
async fn a_token_is_good_for_its_workspace_and_end_user_only(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    site.grant("1", Some("Alice"));
    let token = site.token("alice", &json!({})).await;
    for other in ["Alice", "bob"] {
        let call = site.chat_as(&token, "flat").paid_by(other).send().await;
        call.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
        let read = site.mine(&token).paid_by(other).send().await;
        read.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    }
    let upper = site.token("Alice", &json!({})).await;
    site.chat_as(&upper, "flat").send().await.expect(200);
    assert_eq!(site.balance_of("alice").await["usd"], "1");
    assert_eq!(site.balance_of("Alice").await["usd"], "0.99");
    // Another installation, whose keys are others.
    let elsewhere = Setup::new(store).start().await;
    elsewhere.grant("1", Some("alice"));
    refused(&elsewhere, &token).await;
    // A dashboard session is none, whatever it says of itself.
    let owner = site.owner();
    let call = site.mine(&owner).send().await;
    call.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    let (header, rest) = owner.split_once('.').unwrap();
    let mut dressed = header_of(&owner);
    dressed["typ"] = json!("end-user+jwt");
    refused(&site, &format!("{}.{rest}", part(&dressed))).await;
    assert_ne!(header, part(&dressed));
    let mut undressed = header_of(&token);
    undressed["typ"] = json!("at+jwt");
    let (_, rest) = token.split_once('.').unwrap();
    refused(&site, &format!("{}.{rest}", part(&undressed))).await;
}

// Fault matrix 132
async fn huge_tokens_are_refused_fast(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let forge = Forge::new(&site).await;
    let claims = claims_of(&site.token("alice", &json!({})).await);
    let started = std::time::Instant::now();
    let huge = format!("{}.{}.x", part(&forge.header()), "A".repeat(100_000));
    let reply = site.mine(&huge).try_send().await;
    assert!(reply.is_err() || reply.is_ok_and(|reply| matches!(reply.status, 401 | 431)));
    let mut many = claims.clone();
    for number in 0..300 {
        many[format!("c{number}")] = json!(number);
    }
    refused(&site, &forge.sign(&many)).await;
    for number in 300..2000 {
        many[format!("c{number}")] = json!(number);
    }
    refused(&site, &forge.sign(&many)).await;
    let text = claims.to_string();
    let twice = format!(r#"{{"sub":"bob",{}"#, &text[1..]);
    refused(
        &site,
        &forge.sign_parts(&part(&forge.header()), &URL_SAFE_NO_PAD.encode(twice)),
    )
    .await;
    assert!(started.elapsed() < Duration::from_secs(5));
}

async fn scopes_and_tools_narrow_a_token(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let read = site.token("alice", &json!({ "scopes": ["read"] })).await;
    site.mine(&read).send().await.expect(200);
    let call = site.chat_as(&read, "flat").send().await;
    let call = call.refused(403, "INSUFFICIENT_SCOPE").json();
    assert_eq!(
        (&call["requiredScopes"], &call["presentScopes"]),
        (&json!(["spend"]), &json!(["read"]))
    );
    let spend = site
        .token("alice", &json!({ "scopes": ["spend", "topup"] }))
        .await;
    site.chat_as(&spend, "flat").send().await.expect(200);
    let read = site.mine(&spend).send().await;
    let read = read.refused(403, "INSUFFICIENT_SCOPE").json();
    assert_eq!(read["presentScopes"], json!(["spend", "topup"]));
    let tool = |token: &str| {
        let call = site.client.request(Method::POST, TOOL).bearer(token);
        call.json(&json!({})).once(&uuid::Uuid::new_v4().to_string())
    };
    for (tools, chats, fetches) in [
        (json!(["tools/fetch"]), false, true),
        (json!(["up/*"]), true, false),
        (json!(["up/flat"]), true, false),
        (json!(["up/chat-completions", "tools/*"]), true, true),
        (json!(["tools/item"]), false, false),
        (json!([]), false, false),
    ] {
        let token = site.token("alice", &json!({ "tools": tools })).await;
        let sent = site.upstream.count();
        for (reply, allowed) in [
            (site.chat_as(&token, "flat").send().await, chats),
            (tool(&token).send().await, fetches),
        ] {
            if allowed {
                reply.expect(200);
            } else {
                reply.refused(403, "POLICY_DENIED");
            }
        }
        assert_eq!(
            site.upstream.count() - sent,
            usize::from(chats) + usize::from(fetches)
        );
    }
}

// I2
async fn a_tokens_ceiling_holds_against_fifty_calls_at_once(store: Store) {
    let site = Site::new(store).await;
    site.grant("5", Some("alice"));
    let token = site.token("alice", &json!({ "maxSpendUsd": "0.07" })).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        calls.spawn(site.chat_as(&token, "flat").send());
    }
    let mut good = 0;
    for reply in calls.join_all().await {
        if reply.status == 200 {
            good += 1;
            continue;
        }
        let body = reply.refused(403, "SPEND_LIMIT_EXCEEDED").json();
        assert_eq!(
            (&body["scope"], &body["limitUsd"]),
            (&json!("credential"), &json!("0.07"))
        );
    }
    assert_eq!((good, site.upstream.count()), (7, 7));
    assert_eq!(site.balance_of("alice").await["usd"], "4.93");
    let another = site.token("alice", &json!({})).await;
    site.chat_as(&another, "flat").send().await.expect(200);
    let nothing = site.token("alice", &json!({ "maxSpendUsd": "0" })).await;
    let refused = site.chat_as(&nothing, "flat").send().await;
    refused.refused(403, "SPEND_LIMIT_EXCEEDED");
}

async fn revoked_tokens_stop_working_at_once(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let mut minted = Vec::new();
    for _ in 0..3 {
        minted.push(site.mint("alice", &json!({})).await);
    }
    let other = site.token("bob", &json!({})).await;
    let token = |index: usize| minted[index]["token"].as_str().unwrap();
    for index in 0..3 {
        site.mine(token(index)).send().await.expect(200);
    }
    let revoke =
        |user: &'static str, jti: String| site.about(Method::DELETE, user, &format!("/tokens/{jti}")).send();
    let jti = minted[0]["jti"].as_str().unwrap();
    let foreign = revoke("bob", jti.to_owned()).await.expect(200);
    assert_eq!(foreign.json(), json!({ "success": true, "revoked": 0 }));
    let unknown = revoke("alice", uuid::Uuid::new_v4().to_string())
        .await
        .expect(200);
    assert_eq!(unknown.json()["revoked"], 0);
    revoke("alice", "x".to_owned())
        .await
        .refused(400, "VALIDATION_ERROR");
    revoke("nobody", jti.to_owned())
        .await
        .refused(404, "END_USER_NOT_FOUND");
    for revoked in [1, 0] {
        let reply = revoke("alice", jti.to_owned()).await.expect(200);
        assert_eq!(reply.json()["revoked"], revoked);
    }
    site.mine(token(0))
        .send()
        .await
        .refused(401, "CREDENTIAL_REVOKED");
    let call = site.chat_as(token(0), "flat").send().await;
    call.refused(401, "CREDENTIAL_REVOKED");
    site.mine(token(1)).send().await.expect(200);
    let all = site
        .about(Method::DELETE, "alice", "/tokens")
        .send()
        .await
        .expect(200);
    assert_eq!(all.json()["revoked"], 2);
    for index in 0..3 {
        site.mine(token(index))
            .send()
            .await
            .refused(401, "CREDENTIAL_REVOKED");
    }
    site.mine(&other).send().await.expect(200);
    assert_eq!(site.upstream.count(), 0);
}

async fn a_rotated_key_leaves_live_tokens_alone(store: Store) {
    let site = Setup::new(store)
        .set("tokens.publish_lead_secs", 10)
        .start()
        .await;
    site.grant("1", Some("alice"));
    let before = site.token("alice", &json!({})).await;
    let made = site.operate(&["signing-key", "rotate"]);
    let kid = made["kid"].as_str().unwrap().to_owned();
    let listed = site.operate(&["signing-key", "list"]);
    let keys = listed["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2);
    assert_eq!(
        (&keys[1]["kid"], &keys[1]["status"]),
        (&json!(kid), &json!("published"))
    );
    assert!(!listed.to_string().contains("sealed"));
    // Published before it signs.
    let after = site.token("alice", &json!({})).await;
    assert_eq!(header_of(&after)["kid"], header_of(&before)["kid"]);
    eventually("the new key is published", || async {
        let published = site
            .client
            .request(Method::GET, KEYS)
            .send()
            .await
            .expect(200)
            .json();
        let keys = published["keys"].as_array().unwrap().clone();
        keys.iter().any(|key| key["kid"] == kid.as_str()).then_some(())
    })
    .await;
    let fresh = eventually("the new key signs", || async {
        let token = site.token("alice", &json!({})).await;
        (header_of(&token)["kid"] == kid.as_str()).then_some(token)
    })
    .await;
    for token in [&before, &after, &fresh] {
        site.chat_as(token, "flat").send().await.expect(200);
    }
}

async fn tokens_are_minted_by_the_rules(store: Store) {
    let site = Site::new(store).await;
    let mint = |user: &str, body: &str| {
        let call = site.about(Method::POST, user, "/tokens");
        call.raw_json(body.to_owned()).send()
    };
    mint("new/user@x.example", "{}").await.expect(201);
    let user = site
        .about(Method::GET, "new/user@x.example", "")
        .send()
        .await
        .expect(200);
    assert_eq!(user.json()["externalUserId"], "new/user@x.example");
    for (body, code) in [
        (r#"{"ttl":60}"#, "UNKNOWN_FIELD"),
        (r#"{"externalUserId":"x"}"#, "UNKNOWN_FIELD"),
        (r#"{"scopes":[]}"#, "VALIDATION_ERROR"),
        (r#"{"scopes":["tenant:read"]}"#, "VALIDATION_ERROR"),
        (r#"{"maxSpendUsd":1}"#, "VALIDATION_ERROR"),
        (r#"{"tools":["*"]}"#, "VALIDATION_ERROR"),
        (r#"{"expiresIn":60,"expiresIn":61}"#, "INVALID_JSON"),
        ("[]", "INVALID_JSON"),
    ] {
        mint("alice", body).await.refused(400, code);
    }
    for bad in ["-x", "a b", "%252F", ".."] {
        let path = format!("/api/credits/end-users/{}/tokens", bad.replace(' ', "%20"));
        let reply = site.post(&path, &json!({})).send().await;
        reply.refused(400, "VALIDATION_ERROR");
    }
    let missing = site.about(Method::GET, "alice", "").send().await;
    missing.refused(404, "END_USER_NOT_FOUND");
    site.operate(&["tenant", "suspend", &site.tenant]);
    eventually("nothing is minted", || async {
        let reply = mint("alice", "{}").await;
        (reply.status == 403 && reply.code() == "TENANT_SUSPENDED").then_some(())
    })
    .await;
}

async fn minting_is_limited_by_end_user(store: Store) {
    let site = Setup::new(store)
        .set("limits.token_mints_per_minute", 3)
        .start()
        .await;
    let other = site.new_key("secret", &["tokens:manage"]);
    for _ in 0..3 {
        site.mint("alice", &json!({})).await;
    }
    for key in [&site.key, &other] {
        let mint = site
            .client
            .request(Method::POST, "/api/credits/end-users/alice/tokens");
        let limited = mint.bearer(key).send().await.refused(429, "RATE_LIMITED");
        assert_eq!(limited.header("ratelimit-policy"), Some("\"default\";q=3;w=60"));
    }
    site.mint("bob", &json!({})).await;
}

async fn revoked_elsewhere() {
    // Nodes of one installation have one public address, which is the issuer of its tokens.
    let site = Setup::new(Store::Postgres)
        .set("server.public_url", "http://gateway.example")
        .set("processor.kind", "none")
        .start()
        .await;
    site.grant("1", Some("alice"));
    let second = site.second().await;
    let client = second.client();
    let minted = site.mint("alice", &json!({})).await;
    let token = minted["token"].as_str().unwrap();
    let read = || {
        client
            .request(Method::GET, "/api/credits/me")
            .bearer(token)
            .send()
    };
    read().await.expect(200);
    let revoke = site.about(Method::DELETE, "alice", "/tokens").send().await;
    revoke.expect(200);
    let revoked = std::time::Instant::now();
    loop {
        let reply = read().await;
        if reply.status == 401 {
            reply.refused(401, "CREDENTIAL_REVOKED");
            break;
        }
        reply.expect(200);
        assert!(
            revoked.elapsed() < Duration::from_millis(1100),
            "it is still accepted"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // No cache stands before the balance: a hold sees the revocation at once.
    let third = site.mint("alice", &json!({})).await;
    let token = third["token"].as_str().unwrap();
    let call = || {
        client
            .request(Method::POST, CHAT)
            .bearer(token)
            .json(&chat("flat", "hi"))
            .send()
    };
    call().await.expect(200);
    site.about(Method::DELETE, "alice", "/tokens")
        .send()
        .await
        .expect(200);
    call().await.refused(401, "CREDENTIAL_REVOKED");
    assert_eq!(site.upstream.count(), 1);
}

async fn another_nodes_key() {
    let site = Site::new(Store::Postgres).await;
    site.grant("1", Some("alice"));
    let claims = claims_of(&site.token("alice", &json!({})).await);
    let forge = Forge::new(&site).await;
    // At the first look, long before the keys are read again by themselves.
    site.mine(&forge.sign(&claims)).send().await.expect(200);
}
