//! What a token says of itself before its signature counts: parts, algorithm, type, key, size.

use super::*;

// Fault matrix 122
#[test]
fn other_algorithms_are_refused() {
    for alg in [
        "none", "None", "NONE", "nOnE", "", "HS256", "HS512", "RS256", "ES256", "PS256", "Ed25519", "Ed448",
        "eddsa", "EDDSA", "EdDSA ", "A256GCM", "dir",
    ] {
        let token = forged(&with(header(), "alg", json!(alg)), &json!(claims()));
        refused(&token);
        let (message, _signature) = token.rsplit_once('.').unwrap();
        refused(&format!("{message}."));
        refused(message);
    }
    for alg in [json!(null), json!(1), json!(["EdDSA"]), json!({ "EdDSA": 1 })] {
        refused(&forged(&with(header(), "alg", alg), &json!(claims())));
    }
    refused(&forged(
        &json!({ "typ": TOKEN_TYPE, "kid": kid(OURS) }),
        &json!(claims()),
    ));
}

// Fault matrix 122
#[test]
fn the_public_key_is_no_hmac_secret() {
    let jwk = ring().jwks(NOW)["keys"][0].clone();
    let x = jwk["x"].as_str().unwrap();
    let raw = URL_SAFE_NO_PAD.decode(x).unwrap();
    for secret in [raw.as_slice(), x.as_bytes(), jwk.to_string().as_bytes()] {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let mut header = Header::new(algorithm);
            header.typ = Some(TOKEN_TYPE.to_owned());
            header.kid = Some(kid(OURS));
            let secret = EncodingKey::from_secret(secret);
            let token = jsonwebtoken::encode(&header, &claims(), &secret).unwrap();
            refused(&token);
            // The same signature under a header that says EdDSA.
            let (_, rest) = token.split_once('.').unwrap();
            refused(&format!("{}.{rest}", part(self::header().to_string())));
        }
    }
}

// Fault matrix 122
#[test]
fn only_three_whole_parts_are_a_token() {
    let token = mint(&ring(), &claims(), NOW).unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    let (head, body, signature) = (parts[0], parts[1], parts[2]);
    let zeros = part([0_u8; 64]);
    for bad in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "....".to_owned(),
        head.to_owned(),
        format!("{head}.{body}"),
        format!("{head}.{body}."),
        format!("{head}..{signature}"),
        format!(".{body}.{signature}"),
        format!("{token}."),
        format!(".{token}"),
        format!("{token}.{signature}"),
        format!("{token}.{signature}.{signature}"),
        format!("{head}.{body}.{zeros}"),
        format!("{head}.{body}.{}", part([0_u8; 63])),
        format!("{head}.{body}.{}", part([0_u8; 65])),
        format!("{token}="),
        format!(" {token}"),
        format!("{token}\n"),
        format!("{head}=.{body}.{signature}"),
        format!("ü{token}"),
    ] {
        refused(&bad);
    }
}

// Fault matrix 122: a signature stays one signature
#[test]
fn a_signature_has_no_second_form() {
    let token = mint(&ring(), &claims(), NOW).unwrap();
    let (message, signature) = token.rsplit_once('.').unwrap();
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    // s + L, with L the order of the group (RFC 8032, section 5.1)
    let order = "edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010";
    let mut carry = 0_u16;
    for (digit, more) in bytes[32..].iter_mut().zip(hex::decode(order).unwrap()) {
        let sum = u16::from(*digit) + u16::from(more) + carry;
        *digit = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    refused(&format!("{message}.{}", part(bytes)));
}

// Fault matrix 123
#[test]
fn a_kid_only_names_a_key_of_the_ring() {
    let long = "k".repeat(10_000);
    for name in [
        "../../etc/passwd",
        "/dev/null",
        "' OR 1=1 --",
        "http://169.254.169.254/",
        "",
        "\u{0}",
        &long,
        &kid(STRANGER),
        &kid(OURS).to_lowercase(),
        &kid(OURS)[1..],
        &format!("{} ", kid(OURS)),
    ] {
        refused(&forged(&with(header(), "kid", json!(name)), &json!(claims())));
    }
    for name in [json!(null), json!(0), json!([kid(OURS)])] {
        refused(&forged(&with(header(), "kid", name), &json!(claims())));
    }
    refused(&forged(
        &json!({ "alg": "EdDSA", "typ": TOKEN_TYPE }),
        &json!(claims()),
    ));
}

// Fault matrix 123
#[test]
fn a_header_that_brings_or_names_keys_is_refused() {
    let stranger = ring_of(&[&key(STRANGER, NOW)]).jwks(NOW)["keys"][0].clone();
    for (member, value) in [
        ("jku", json!("https://attacker.example/jwks.json")),
        ("jwk", stranger),
        ("x5u", json!("https://attacker.example/cert.pem")),
        ("x5c", json!(["MIIB"])),
        ("x5t", json!("AAAA")),
        ("crit", json!([])),
        ("crit", json!(["b64"])),
        ("b64", json!(false)),
        ("cty", json!("JWT")),
        ("zip", json!("DEF")),
        ("jku", json!(null)),
    ] {
        let header = with(header(), member, value);
        refused(&forged(&header, &json!(claims())));
        refused(&signed(
            STRANGER,
            &header.to_string(),
            &json!(claims()).to_string(),
        ));
    }
}

#[test]
fn a_token_signed_with_another_key_of_the_ring_than_it_names_is_refused() {
    let ring = ring_of(&[&key(OURS, NOW), &key(2, NOW)]);
    let text = json!(claims()).to_string();
    let ours = signed(2, &header().to_string(), &text);
    let error = verify(&ring, &ours, &EXPECTED, NOW).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidCredential);
    let right = signed(2, &with(header(), "kid", json!(kid(2))).to_string(), &text);
    assert!(verify(&ring, &right, &EXPECTED, NOW).is_ok());
    refused(&signed(STRANGER, &header().to_string(), &text));
}

// Fault matrix 128
#[test]
fn tokens_of_others_and_for_others_are_refused() {
    for typ in [
        "JWT",
        "dashboard+jwt",
        "step-up+jwt",
        "at+jwt",
        "End-User+JWT",
        "application/end-user+jwt",
        "",
    ] {
        let token = forged(&with(header(), "typ", json!(typ)), &json!(claims()));
        refused(&token);
        assert!(!looks_like_end_user_token(&token));
    }
    refused(&forged(
        &json!({ "alg": "EdDSA", "kid": kid(OURS) }),
        &json!(claims()),
    ));
    for (name, value) in [
        ("iss", json!("https://pay.example/")),
        ("iss", json!("turnpike-dev")),
        ("aud", json!("turnpike-dashboard")),
        ("aud", json!("Turnpike")),
        ("aud", json!(["turnpike"])),
        ("aud", json!(["turnpike", "other"])),
    ] {
        refused(&claims_with(name, value));
    }
    let mut dashboard = Header::new(Algorithm::HS256);
    dashboard.typ = Some("dashboard+jwt".to_owned());
    let session = json!({
        "iss": "turnpike-dev", "aud": "turnpike-dashboard", "sub": "owner@example.com",
        "iat": NOW_SECS, "exp": NOW_SECS + 900, "auth_time": NOW_SECS, "amr": ["pwd", "otp"],
    });
    let token = jsonwebtoken::encode(&dashboard, &session, &EncodingKey::from_secret(&MASTER)).unwrap();
    refused(&token);
    assert!(!looks_like_end_user_token(&token));
    let elsewhere = mint(&ring_of(&[&key(STRANGER, NOW)]), &claims(), NOW).unwrap();
    refused(&elsewhere);
}

// Fault matrix 132
#[test]
fn members_that_stand_twice_are_refused() {
    let head = header().to_string();
    let body = json!(claims()).to_string();
    for more in [
        r#""alg":"none""#,
        r#""alg":"EdDSA""#,
        r#""\u0061lg":"EdDSA""#,
        r#""typ":"JWT""#,
        r#""kid":"x""#,
    ] {
        refused(&signed(
            OURS,
            &head.replacen('{', &format!("{{{more},"), 1),
            &body,
        ));
        refused(&signed(
            OURS,
            &head.replacen('}', &format!(",{more}}}"), 1),
            &body,
        ));
    }
    for more in [
        r#""exp":9999999999"#,
        r#""sub":"victim""#,
        r#""s\u0075b":"victim""#,
        r#""scp":["topup"]"#,
    ] {
        refused(&signed(
            OURS,
            &head,
            &body.replacen('{', &format!("{{{more},"), 1),
        ));
        refused(&signed(
            OURS,
            &head,
            &body.replacen('}', &format!(",{more}}}"), 1),
        ));
    }
}

// Fault matrix 132
#[test]
fn huge_tokens_are_refused() {
    refused(&claims_with("pad", json!("x".repeat(100_000))));
    let many: serde_json::Map<String, Value> = (0..10_000).map(|n| (format!("c{n}"), json!(n))).collect();
    refused(&forged(&header(), &Value::Object(many)));
    refused(&forged(
        &with(header(), "pad", json!("x".repeat(100_000))),
        &json!(claims()),
    ));
    refused(&"a.".repeat(50_000));
    let deep = "[".repeat(6000);
    refused(&signed(OURS, &deep, "{}"));
    assert!(!looks_like_end_user_token(&signed(OURS, &deep, "{}")));
    assert!(!looks_like_end_user_token(&"A".repeat(1_000_000)));
    let padded = with(header(), "pad", json!("x".repeat(100_000)));
    assert!(!looks_like_end_user_token(&forged(&padded, &json!({}))));
}

// Fault matrix 132
#[test]
fn a_genuine_token_is_refused_for_its_length_alone() {
    let (head, body) = (header().to_string(), json!(claims()).to_string());
    let padded = |spaces| signed(OURS, &head, &format!("{body}{}", " ".repeat(spaces)));
    assert_eq!(outcome(&padded(3)), Ok(claims()));
    let longest = (5000..8192)
        .rfind(|spaces| padded(*spaces).len() <= 8192)
        .unwrap();
    assert_eq!(outcome(&padded(longest)), Ok(claims()));
    refused(&padded(longest + 1));
}
