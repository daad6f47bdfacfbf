//! An OpenID Connect provider that rotates its keys, fails and lies; the people stay who they are.

use futures_util::future::join_all;
use http::Method;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::json;

use crate::harness::issuer::{Issuer, Mood, SessionKey};
use crate::harness::people::{part, seconds};
use crate::harness::{Reply, Site, Store, eventually, operate};
use crate::on_both_stores;

on_both_stores!(
    a_provider_rotates_its_keys_and_goes_down,
    a_provider_that_is_down_at_first_is_found_later,
    a_provider_that_lies_is_not_believed,
    strangers_cannot_make_the_provider_work,
);

async fn balance(site: &Site, session: &str) -> Reply {
    let read = site.client.request(Method::GET, "/api/credits/balance");
    read.bearer(session).send().await
}

/// A gateway whose provider answers, with an owner.
async fn started(store: Store, issuer: &Issuer) -> Site {
    let site = issuer.setup(store).start().await;
    site.add_member("alice", "owner");
    site
}

// Fault matrix 133, 144
async fn a_provider_rotates_its_keys_and_goes_down(store: Store) {
    let (old, new, never) = (
        SessionKey::new([1; 32]),
        SessionKey::new([2; 32]),
        SessionKey::new([3; 32]),
    );
    let issuer = Issuer::start(std::slice::from_ref(&old)).await;
    let site = started(store, &issuer).await;
    eventually("the keys are read at the start", || async {
        (issuer.asked() == 1).then_some(())
    })
    .await;
    let session = issuer.session(&old, "alice", &json!({}));
    balance(&site, &session).await.expect(200);
    let someone = issuer.session(&old, "bob", &json!({}));
    balance(&site, &someone).await.refused(403, "TENANT_NOT_MEMBER");
    // The new key is found by the first token that it signs.
    issuer.publish(&[old.clone(), new.clone()]);
    let renewed = issuer.session(&new, "alice", &json!({}));
    balance(&site, &renewed).await.expect(200);
    assert_eq!(issuer.asked(), 2);
    issuer.feel(Mood::Down);
    let unknown = issuer.session(&never, "alice", &json!({}));
    for _ in 0..3 {
        balance(&site, &session).await.expect(200);
        balance(&site, &renewed).await.expect(200);
        balance(&site, &unknown).await.refused(401, "INVALID_CREDENTIAL");
    }
    assert_eq!(issuer.asked(), 2);
    // The built-in identity is not another way in.
    let own = site.session("alice", &json!({}));
    balance(&site, &own).await.refused(401, "INVALID_CREDENTIAL");
    let keys = site.client.request(Method::GET, "/identity/jwks.json");
    keys.send().await.refused(404, "NOT_FOUND");
    let (status, _, complaint) = operate(&site.config, &site.data, &["dev-token"]);
    assert!(
        !status.success() && complaint.contains(&issuer.url()),
        "{complaint}"
    );
}

// Fault matrix 133, 144
async fn a_provider_that_is_down_at_first_is_found_later(store: Store) {
    let key = SessionKey::new([1; 32]);
    let issuer = Issuer::start(std::slice::from_ref(&key)).await;
    issuer.feel(Mood::Down);
    let site = started(store, &issuer).await;
    let session = issuer.session(&key, "alice", &json!({}));
    for _ in 0..20 {
        let refused = balance(&site, &session).await.refused(503, "SERVICE_UNAVAILABLE");
        assert_eq!(refused.header("retry-after"), Some("5"));
    }
    // Asked at the start, and for the first session.
    assert!(issuer.asked() <= 2, "{}", issuer.asked());
    // Keys do not depend on it, and what is no token is refused as such.
    site.balance().await;
    balance(&site, "garbage").await.refused(401, "INVALID_CREDENTIAL");
    let unhealthy = doctor(&site);
    assert!(unhealthy.contains("could not be read"), "{unhealthy}");
    issuer.feel(Mood::Well);
    eventually("the keys are found", || async {
        (balance(&site, &session).await.status == 200).then_some(())
    })
    .await;
    assert!(doctor(&site).contains("publishes 1 usable keys"));
}

/// What the doctor says of the identity provider.
fn doctor(site: &Site) -> String {
    let (_, report, _) = operate(&site.config, &site.data, &["doctor"]);
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == "identity");
    check.unwrap()["message"].as_str().unwrap().to_owned()
}

// Fault matrix 133
async fn a_provider_that_lies_is_not_believed(store: Store) {
    let key = SessionKey::new([1; 32]);
    let issuer = Issuer::start(std::slice::from_ref(&key)).await;
    issuer.feel(Mood::Huge);
    let site = started(store, &issuer).await;
    let session = issuer.session(&key, "alice", &json!({}));
    balance(&site, &session).await.refused(503, "SERVICE_UNAVAILABLE");
    for (mood, complaint) in [
        (Mood::Huge, "too large"),
        (Mood::Redirecting, "redirect"),
        (Mood::Calling("https://evil.example".to_owned()), "another issuer"),
        (Mood::Calling(format!("{}/", issuer.url())), "another issuer"),
        (
            Mood::Placing("http://keys.example/jwks".to_owned()),
            "names no place",
        ),
        (Mood::Placing("file:///etc/passwd".to_owned()), "names no place"),
        (Mood::Publishing("{\"keys\":[]}".to_owned()), "no usable"),
        (
            Mood::Publishing("{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}".to_owned()),
            "no usable",
        ),
        (Mood::Publishing("<html>".to_owned()), "not a key set"),
    ] {
        issuer.feel(mood.clone());
        let said = doctor(&site);
        assert!(said.contains(complaint), "{mood:?}: {said}");
        let refused = balance(&site, &session).await;
        assert_eq!(refused.status, 503, "{mood:?}: {}", refused.text());
    }
    assert!(!issuer.paths().contains(&"/other".to_owned()));
    issuer.feel(Mood::Well);
    eventually("the keys are found", || async {
        (balance(&site, &session).await.status == 200).then_some(())
    })
    .await;
}

// Fault matrix 122, 123, 124, 128
async fn strangers_cannot_make_the_provider_work(store: Store) {
    let (key, other) = (SessionKey::new([1; 32]), SessionKey::new([2; 32]));
    let issuer = Issuer::start(std::slice::from_ref(&key)).await;
    let site = started(store, &issuer).await;
    eventually("the keys are read at the start", || async {
        (issuer.asked() == 1).then_some(())
    })
    .await;
    let good = issuer.claims("alice", &json!({}));
    balance(&site, &key.sign(&key.header(), &good)).await.expect(200);
    let with = |name: &str, value: serde_json::Value| {
        let mut header = key.header();
        header[name] = value;
        key.sign(&header, &good)
    };
    let mut bad = vec![
        with("jku", json!(format!("{}/evil", issuer.url()))),
        with("x5u", json!(format!("{}/evil", issuer.url()))),
        with("jwk", json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA" })),
        with("crit", json!(["exp"])),
        with("typ", json!("end-user+jwt-2")),
        with("kid", json!("../../etc/passwd")),
        with("kid", json!("' OR 1=1 --")),
        with("kid", json!("k".repeat(10_000))),
        other.sign(&key.header(), &good),
        key.sign(
            &key.header(),
            &issuer.claims("alice", &json!({ "iss": "https://evil.example" })),
        ),
        key.sign(&key.header(), &issuer.claims("alice", &json!({ "aud": "dash" }))),
        key.sign(
            &key.header(),
            &issuer.claims("alice", &json!({ "iat": seconds() + 90 })),
        ),
        key.sign(
            &key.header(),
            &issuer.claims("alice", &json!({ "nbf": seconds() + 90 })),
        ),
        key.sign(&key.header(), &issuer.claims("alice", &json!({ "exp": null }))),
        key.sign(
            &key.header(),
            &issuer.claims("alice", &json!({ "sub": "a\u{0}" })),
        ),
        key.sign(
            &key.header(),
            &issuer.claims("alice", &json!({ "more": "x".repeat(20_000) })),
        ),
    ];
    for alg in ["none", "None", "NONE", "HS256", "ES999"] {
        let header = part(&json!({ "alg": alg, "typ": "at+jwt", "kid": key.kid }));
        let message = format!("{header}.{}", part(&good));
        let secret = EncodingKey::from_secret(key.kid.as_bytes());
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &secret, Algorithm::HS256).unwrap();
        bad.extend([format!("{message}."), format!("{message}.{signature}")]);
    }
    for token in &bad {
        let refused = balance(&site, token).await;
        assert_eq!(refused.code(), "INVALID_CREDENTIAL", "{token:.200}");
        refused.refused(401, "INVALID_CREDENTIAL");
    }
    let expired = issuer.session(&key, "alice", &json!({ "exp": seconds() - 40 }));
    balance(&site, &expired).await.refused(401, "CREDENTIAL_EXPIRED");
    // A storm of names that nobody knows is one question, after that of the start.
    let storm = (0..200).map(|number| {
        let mut header = other.header();
        header["kid"] = json!(number.to_string());
        let token = other.sign(&header, &good);
        let site = &site;
        async move { balance(site, &token).await.refused(401, "INVALID_CREDENTIAL") }
    });
    join_all(storm).await;
    assert_eq!(issuer.asked(), 2);
    assert!(!issuer.paths().contains(&"/evil".to_owned()));
}
