//! What the claims of a genuine token are worth.

use super::*;
use crate::sessions::jws::Refusal;

fn read(changes: &Value) -> Result<Session, Refusal> {
    let claims = claims(changes);
    let members = claims.as_object().unwrap();
    Session::read(members, (ISSUER, AUDIENCE), &factors(), [0; 32], at(NOW))
}

fn is_fresh(changes: &Value) -> bool {
    let session = read(changes).unwrap();
    let now = Timestamp::from_millis(NOW * 1000 + 999);
    session.require_fresh_mfa(now).is_ok()
}

// Fault matrix 135, 136
#[test]
fn a_second_factor_is_fresh_for_ten_minutes() {
    for age in [-30, 0, 599, 600] {
        assert!(
            is_fresh(&json!({ "auth_time": NOW - age, "amr": ["pwd", "otp"] })),
            "{age}"
        );
    }
    for age in [-31, 601, 700, NOW, NOW + 1] {
        assert!(
            !is_fresh(&json!({ "auth_time": NOW - age, "amr": ["mfa"] })),
            "{age}"
        );
    }
    for auth_time in [json!(NOW.to_string()), json!([NOW]), json!(true), json!(1.5)] {
        assert!(
            !is_fresh(&json!({ "auth_time": auth_time, "amr": ["mfa"] })),
            "{auth_time}"
        );
    }
    assert!(!is_fresh(&json!({ "auth_time": null, "amr": ["mfa"] })));
    let session = read(&json!({ "auth_time": NOW - 100 })).unwrap();
    assert_eq!(session.fresh_until(at(NOW)), Some(at(NOW + 500)));
}

// Fault matrix 134, 136
#[test]
fn a_second_factor_is_one_that_is_known() {
    for factor in SECOND_FACTORS {
        assert!(is_fresh(&json!({ "amr": [factor] })), "{factor}");
        assert!(is_fresh(&json!({ "amr": null, "acr": factor })), "{factor}");
    }
    assert!(is_fresh(&json!({ "amr": ["pwd"], "acr": "urn:two" })));
    assert!(is_fresh(&json!({ "amr": 1, "acr": "mfa" })));
    for other in [
        json!({ "amr": null }),
        json!({ "amr": ["pwd"] }),
        json!({ "amr": [] }),
        json!({ "amr": "mfa" }),
        json!({ "amr": [["mfa"]] }),
        json!({ "amr": { "mfa": true } }),
        json!({ "amr": ["urn:two"] }),
        json!({ "amr": null, "acr": "pwd" }),
        json!({ "amr": null, "acr": "MFA" }),
        json!({ "amr": null, "acr": ["mfa"] }),
    ] {
        assert!(!is_fresh(&other), "{other}");
    }
}

// Fault matrix 124, 128
#[test]
fn claims_are_complete_for_us_and_in_time() {
    let longest = "x".repeat(255);
    for good in [
        json!({}),
        json!({ "aud": ["a", AUDIENCE] }),
        json!({ "sub": longest }),
        json!({ "iat": NOW + 30 }),
        json!({ "nbf": NOW + 30 }),
        json!({ "exp": NOW - 30 }),
        json!({ "exp": i64::MAX }),
        json!({ "auth_time": null, "amr": null }),
    ] {
        assert!(read(&good).is_ok(), "{good}");
    }
    for expired in [NOW - 31, 0, -1, i64::MIN] {
        assert_eq!(
            read(&json!({ "exp": expired })).unwrap_err(),
            Refusal::Expired,
            "{expired}"
        );
    }
    for bad in [
        json!({ "iss": null }),
        json!({ "iss": format!("{ISSUER}/") }),
        json!({ "iss": [ISSUER] }),
        json!({ "aud": null }),
        json!({ "aud": "other" }),
        json!({ "aud": [] }),
        json!({ "aud": [[AUDIENCE]] }),
        json!({ "aud": { AUDIENCE: true } }),
        json!({ "sub": null }),
        json!({ "sub": "" }),
        json!({ "sub": 5 }),
        json!({ "sub": "x".repeat(256) }),
        json!({ "sub": "a\u{0}b" }),
        json!({ "iat": null }),
        json!({ "iat": NOW + 31 }),
        json!({ "iat": NOW.to_string() }),
        json!({ "nbf": NOW + 31 }),
        json!({ "nbf": "now" }),
        json!({ "exp": null }),
        json!({ "exp": (NOW + 3600).to_string() }),
        json!({ "exp": 1e300 }),
    ] {
        assert!(matches!(read(&bad), Err(Refusal::Invalid(_))), "{bad}");
    }
    let session = read(&json!({})).unwrap();
    assert_eq!(session.expires_at, at(NOW + 3631));
}
