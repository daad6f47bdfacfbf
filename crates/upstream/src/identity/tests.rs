//! Which addresses are asked, and which keys are taken.

use serde_json::{Value, json};

use super::*;

fn b64(bytes: usize) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(vec![0x81; bytes])
}

fn taken(keys: &Value) -> Vec<Option<String>> {
    let document = json!({ "keys": keys }).to_string();
    let read = parse_key_set(document.as_bytes()).unwrap();
    read.into_iter().map(|key| key.kid).collect()
}

#[test]
fn an_issuer_is_https_or_on_this_machine() {
    for good in [
        "https://id.example",
        "https://id.example/",
        "https://id.example:8443/realms/a",
        "http://127.0.0.1:9400",
        "http://localhost:9400/x",
        "http://[::1]:9400",
    ] {
        assert!(IdentityProvider::new(good).is_ok(), "{good}");
    }
    let long = format!("https://id.example/{}", "a".repeat(600));
    for bad in [
        "",
        "id.example",
        "http://id.example",
        "http://10.0.0.1",
        "ftp://id.example",
        "https://user:word@id.example",
        "https://id.example/?a",
        "https://id.example/#a",
        "file:///etc/passwd",
        &long,
    ] {
        assert_eq!(
            IdentityProvider::new(bad).unwrap_err(),
            IdentityError::Issuer,
            "{bad}"
        );
    }
    let slash = IdentityProvider::new("https://id.example/a/").unwrap();
    assert_eq!(
        slash.discovery.as_str(),
        "https://id.example/a/.well-known/openid-configuration"
    );
}

#[test]
fn only_public_keys_for_signatures_are_taken() {
    let good = json!([
        { "kid": "rsa", "kty": "RSA", "n": b64(256), "e": "AQAB", "use": "sig", "alg": "RS256", "x5c": ["x"] },
        { "kid": "ec", "kty": "EC", "crv": "P-256", "x": b64(32), "y": b64(32) },
        { "kid": "ec-384", "kty": "EC", "crv": "P-384", "x": b64(48), "y": b64(48), "key_ops": ["verify"] },
        { "kid": "ed", "kty": "OKP", "crv": "Ed25519", "x": b64(32) },
        { "kty": "OKP", "crv": "Ed25519", "x": b64(32) },
    ]);
    let names = ["rsa", "ec", "ec-384", "ed"].map(|name| Some(name.to_owned()));
    let names: Vec<_> = names.into_iter().chain([None]).collect();
    assert_eq!(taken(&good), names);
    let bad = json!([
        { "kid": "enc", "kty": "RSA", "n": b64(256), "e": "AQAB", "use": "enc" },
        { "kid": "ops", "kty": "RSA", "n": b64(256), "e": "AQAB", "key_ops": ["encrypt"] },
        { "kid": "short", "kty": "RSA", "n": b64(128), "e": "AQAB" },
        { "kid": "huge", "kty": "RSA", "n": b64(2048), "e": "AQAB" },
        { "kid": "exponent", "kty": "RSA", "n": b64(256), "e": b64(9) },
        { "kid": "oct", "kty": "oct", "k": b64(32) },
        { "kid": "curve", "kty": "EC", "crv": "secp256k1", "x": b64(32), "y": b64(32) },
        { "kid": "width", "kty": "EC", "crv": "P-256", "x": b64(33), "y": b64(32) },
        { "kid": "half", "kty": "EC", "crv": "P-256", "x": b64(32) },
        { "kid": "448", "kty": "OKP", "crv": "Ed448", "x": b64(57) },
        { "kid": "x25519", "kty": "OKP", "crv": "X25519", "x": b64(32) },
        { "kid": "no base64", "kty": "OKP", "crv": "Ed25519", "x": "!" },
        { "kid": 5, "kty": "OKP", "crv": "Ed25519", "x": b64(32) },
        { "kid": "k".repeat(256), "kty": "OKP", "crv": "Ed25519", "x": b64(32) },
        null,
        "text",
        [],
    ]);
    assert!(taken(&bad).is_empty());
    let many: Vec<Value> = (0..200)
        .map(|n| json!({ "kid": n.to_string(), "kty": "OKP", "crv": "Ed25519", "x": b64(32) }))
        .collect();
    assert_eq!(taken(&json!(many)).len(), MAX_KEYS);
    for no_set in ["", "[]", "{}", "{\"keys\":{}}", "{\"keys\":null}"] {
        assert!(parse_key_set(no_set.as_bytes()).is_none(), "{no_set}");
    }
}
