//! What a genuine token may claim, for how long, and the session it may be bound to.

use super::*;

// Fault matrix 124
#[test]
fn a_token_is_valid_until_the_instant_it_ends_and_no_longer() {
    let token = mint(&ring(), &claims(), NOW).unwrap();
    let at = |millis| code(verify(&ring(), &token, &EXPECTED, NOW.plus_millis(millis)));
    assert!(at(899_999).is_ok());
    for late in [900_000, 901_000, 100_000_000_000] {
        assert_eq!(at(late), Err(ErrorCode::CredentialExpired));
    }
    assert!(at(-30_000).is_ok());
    assert_eq!(at(-30_001), Err(ErrorCode::InvalidCredential));
    assert_eq!(at(-100_000_000), Err(ErrorCode::InvalidCredential));
}

// Fault matrix 124
#[test]
fn nbf_counts_when_it_is_there() {
    assert_eq!(outcome(&claims_with("nbf", json!(NOW_SECS))), Ok(claims()));
    for bad in [
        json!(NOW_SECS + 1),
        json!(i64::MAX),
        json!("0"),
        json!(0.5),
        json!(null),
    ] {
        refused(&claims_with("nbf", bad));
    }
}

// Fault matrix 124
#[test]
fn every_claim_is_required_once_and_in_its_form() {
    for name in ["iss", "aud", "sub", "tid", "iat", "exp", "jti", "scp"] {
        let mut members = claims_object();
        assert!(members.remove(name).is_some(), "{name}");
        refused(&forged(&header(), &Value::Object(members)));
        for value in [
            json!(null),
            json!({}),
            json!([]),
            json!(true),
            json!(""),
            json!(1e300),
        ] {
            refused(&claims_with(name, value));
        }
    }
    for (name, value) in [
        ("sub", json!("-not/an/id")),
        ("sub", json!("a/../b")),
        ("tid", json!("11")),
        ("exp", json!("1790000900")),
        ("exp", json!(1_790_000_900.5)),
        ("scp", json!("spend")),
        ("scp", json!(["admin"])),
        ("scp", json!(["Spend"])),
        ("scp", json!(["spend", "spend"])),
        ("sid", json!(null)),
        ("sid", json!("")),
        ("sid", json!(SESSION)),
        ("sid", json!(format!("{}=", session_fingerprint(SESSION)))),
        ("admin", json!(true)),
    ] {
        refused(&claims_with(name, value));
    }
    for text in ["", "null", "[]", "\"x\"", "{", "{} {}", "\u{feff}{}"] {
        refused(&signed(OURS, &header().to_string(), text));
        refused(&signed(OURS, text, &json!(claims()).to_string()));
    }
}

fn claims_object() -> serde_json::Map<String, Value> {
    json!(claims()).as_object().unwrap().clone()
}

// Fault matrix 125
#[test]
fn a_life_is_one_minute_to_one_hour() {
    for (secs, good) in [
        (59, false),
        (60, true),
        (3600, true),
        (3601, false),
        (0, false),
        (-60, false),
    ] {
        let exp = NOW_SECS + secs;
        let minted = code(mint(&ring(), &EndUserClaims { exp, ..claims() }, NOW));
        let verified = outcome(&claims_with("exp", json!(exp)));
        if good {
            assert_eq!(outcome(&minted.unwrap()), verified);
            assert!(verified.is_ok());
        } else {
            assert_eq!(minted, Err(ErrorCode::ValidationError), "{secs}");
            assert_eq!(verified, Err(ErrorCode::InvalidCredential), "{secs}");
        }
    }
    for (iat, exp) in [
        (i64::MIN, i64::MAX),
        (i64::MAX - 60, i64::MAX),
        (i64::MIN, i64::MIN + 60),
    ] {
        let claims = EndUserClaims { iat, exp, ..claims() };
        let result = outcome(&forged(&header(), &json!(claims)));
        assert!(result.is_err(), "{iat} {exp}");
    }
}

#[test]
fn what_would_not_verify_is_not_minted() {
    let fail = |claims: EndUserClaims| code(mint(&ring(), &claims, NOW)).unwrap_err();
    let (spend, sid) = (TokenScope::Spend, Some(SESSION.to_owned()));
    assert_eq!(
        fail(EndUserClaims {
            scp: vec![],
            ..claims()
        }),
        ErrorCode::ValidationError
    );
    assert_eq!(
        fail(EndUserClaims {
            scp: vec![spend, spend],
            ..claims()
        }),
        ErrorCode::ValidationError
    );
    assert_eq!(fail(EndUserClaims { sid, ..claims() }), ErrorCode::Internal);
    assert_eq!(
        fail(EndUserClaims {
            iat: NOW_SECS + 1,
            ..claims()
        }),
        ErrorCode::Internal
    );
    assert_eq!(
        fail(EndUserClaims {
            iss: "i".repeat(8192),
            ..claims()
        }),
        ErrorCode::Internal
    );
    let empty = mint(&ring_of(&[]), &claims(), NOW);
    assert_eq!(code(empty), Err(ErrorCode::ServiceUnavailable));
}

/// What a caller is told who sends `header` with a token that is bound to `session`.
fn check(session: &str, header: Option<&str>) -> Result<(), ErrorCode> {
    let bound = EndUserClaims {
        sid: Some(session_fingerprint(session)),
        ..claims()
    };
    code(check_session(&bound, header))
}

// Fault matrix 126
#[test]
fn a_bound_token_needs_the_value_of_its_session() {
    let long = "x".repeat(127);
    for good in [SESSION, "0123456789abcdef", &format!("{long}-")] {
        assert_eq!(check(good, Some(good)), Ok(()));
        assert_eq!(check(good, None), Err(ErrorCode::SessionHeaderRequired));
        for wrong in [
            "",
            "another-session-value",
            &good[1..],
            &session_fingerprint(good),
        ] {
            assert_eq!(check(good, Some(wrong)), Err(ErrorCode::SessionMismatch));
        }
    }
    // Malformed values are refused even where the fingerprint is theirs.
    for bad in [
        "",
        "0123456789abcde",
        &format!("{long}yz"),
        "-123456789abcdef",
        "0123456789 abcdef",
        "0123456789abcdéf",
    ] {
        assert!(!is_session_id(bad), "{bad}");
        assert_eq!(check(bad, Some(bad)), Err(ErrorCode::SessionMismatch));
    }
    assert_eq!(
        session_fingerprint("abc"),
        "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"
    );
}

// Fault matrix 127
#[test]
fn an_unbound_token_ignores_the_session_header() {
    for header in [None, Some(""), Some(SESSION), Some("garbage \u{7f}")] {
        assert_eq!(code(check_session(&claims(), header)), Ok(()));
    }
}
