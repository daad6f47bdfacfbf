//! Tokens as strangers make them.

use jsonwebtoken::EncodingKey;
use turnpike_core::errors::ErrorCode;

use super::*;

async fn code(verifier: &SessionVerifier, token: &str) -> Option<ErrorCode> {
    verifier
        .verify(token, at(NOW))
        .await
        .err()
        .map(|error| error.code)
}

const INVALID: Option<ErrorCode> = Some(ErrorCode::InvalidCredential);

#[tokio::test]
async fn every_algorithm_of_the_list_is_verified_and_no_other() {
    let vectors: Value = serde_json::from_str(include_str!("vectors.json")).unwrap();
    let clock = Clock::new();
    let provider = Provider::publishing(&vectors["keys"]);
    let all = verifier(provider.clone(), &clock);
    for (name, token) in vectors["tokens"].as_object().unwrap() {
        let token = token.as_str().unwrap();
        let session = all.verify(token, at(NOW)).await.unwrap();
        assert_eq!(
            (session.subject.as_str(), session.second_factor),
            ("alice", true),
            "{name}"
        );
        let mut less = rules();
        less.algorithms
            .retain(|algorithm| *algorithm != parse_algorithm(name).unwrap());
        let less = SessionVerifier::oidc(less, ProviderKeys::new(provider.clone(), clock.clone(), 300_000));
        assert_eq!(code(&less, token).await, INVALID, "{name}");
        // A changed byte of the claims, and the signature of another.
        let mut changed = token.to_owned().into_bytes();
        let middle = changed.len() / 3;
        changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
        assert_eq!(
            code(&all, &String::from_utf8(changed).unwrap()).await,
            INVALID,
            "{name}"
        );
    }
    for symmetric in ["HS256", "HS384", "HS512", "none", "", "Ed25519", "rs256"] {
        assert!(parse_algorithm(symmetric).is_none(), "{symmetric}");
    }
}

// Fault matrix 122
#[tokio::test]
async fn the_algorithm_cannot_be_talked_into() {
    let vectors: Value = serde_json::from_str(include_str!("vectors.json")).unwrap();
    let signer = Signer::new(1);
    let rsa = vectors["keys"][0].clone();
    let clock = Clock::new();
    let provider = Provider::publishing(&json!([signer.jwk(), rsa]));
    let verifier = verifier(provider, &clock);
    assert_eq!(code(&verifier, &signer.token()).await, None);
    let claims = part(&claims(&json!({})));
    for alg in [
        json!("none"),
        json!("None"),
        json!("nOnE"),
        json!(""),
        json!("HS256"),
        json!("RS256"),
        json!("ES512"),
        json!("EDDSA"),
        json!(null),
        json!(["EdDSA"]),
    ] {
        let header = part(&json!({ "alg": alg, "typ": "at+jwt", "kid": signer.kid }));
        let message = format!("{header}.{claims}");
        assert_eq!(code(&verifier, &format!("{message}.")).await, INVALID, "{alg}");
        assert_eq!(
            code(&verifier, &signer.sign_text(&message)).await,
            INVALID,
            "{alg}"
        );
    }
    // The public key as the secret of a symmetric algorithm, in every form that one could think of.
    let modulus = URL_SAFE_NO_PAD.decode(rsa["n"].as_str().unwrap()).unwrap();
    let secrets = [
        modulus.as_slice(),
        rsa["n"].as_str().unwrap().as_bytes(),
        rsa.to_string().as_bytes(),
    ]
    .map(<[u8]>::to_vec);
    for secret in secrets {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let header =
                part(&json!({ "alg": format!("{algorithm:?}"), "typ": "at+jwt", "kid": rsa["kid"] }));
            let message = format!("{header}.{claims}");
            let key = EncodingKey::from_secret(&secret);
            let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, algorithm).unwrap();
            assert_eq!(code(&verifier, &format!("{message}.{signature}")).await, INVALID);
        }
    }
}

// Fault matrix 122, 123, 128, 132
#[tokio::test]
async fn the_header_brings_nothing_of_its_own() {
    let signer = Signer::new(1);
    let clock = Clock::new();
    let provider = Provider::publishing(&json!([signer.jwk()]));
    let verifier = verifier(provider.clone(), &clock);
    verifier.refresh().await.unwrap();
    let good = claims(&json!({}));
    let with = |name: &str, value: &Value| {
        let mut header = signer.header();
        header[name] = value.clone();
        signer.sign(&header, &good)
    };
    for typ in ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", "jwt"] {
        assert_eq!(code(&verifier, &with("typ", &json!(typ))).await, None, "{typ}");
    }
    let untyped = json!({ "alg": "EdDSA", "kid": signer.kid });
    assert_eq!(code(&verifier, &signer.sign(&untyped, &good)).await, None);
    // The only key that fits needs no name.
    let unnamed = json!({ "alg": "EdDSA" });
    assert_eq!(code(&verifier, &signer.sign(&unnamed, &good)).await, None);
    assert_eq!(code(&verifier, &with("x5t", &json!("abc"))).await, None);
    for (name, value) in [
        ("typ", json!("end-user+jwt")),
        ("typ", json!("dashboard+jwt")),
        ("typ", json!("logout+jwt")),
        ("typ", json!("dpop+jwt")),
        ("typ", json!(5)),
        ("typ", json!(null)),
        ("kid", json!("unknown")),
        ("kid", json!("../../etc/passwd")),
        ("kid", json!("' OR 1=1 --")),
        ("kid", json!("k".repeat(10_000))),
        ("kid", json!(5)),
        ("kid", json!(null)),
        ("jku", json!("https://evil.example/jwks.json")),
        ("jwk", signer.jwk()),
        ("x5u", json!("https://evil.example/x5u")),
        ("x5c", json!(["MIIB"])),
        ("crit", json!(["b64"])),
    ] {
        assert_eq!(
            code(&verifier, &with(name, &value)).await,
            INVALID,
            "{name} {value:.60}"
        );
    }
    // One fetch at the start, and one for the first unknown name.
    assert_eq!(provider.fetched(), 2);
    let header = signer.header().to_string();
    let twice = header.replacen('{', "{\"alg\":\"EdDSA\",", 1);
    let twice = format!("{}.{}", URL_SAFE_NO_PAD.encode(twice), part(&good));
    let (whole, claims) = (signer.token(), part(&good));
    let long = claims_of(20_000);
    for token in [
        signer.sign_text(&twice),
        signer.sign(&signer.header(), &long),
        format!("{whole}."),
        format!("{whole}.x.y"),
        whole.replace('.', ".."),
        format!("{whole}="),
        whole.rsplit_once('.').unwrap().0.to_owned(),
        format!("{}.{claims}.", part(&signer.header())),
        signer.sign_text(&format!("{}.{}", part(&signer.header()), "!!!")),
        signer.sign_text(&format!("{}.{}", part(&signer.header()), part(&json!([])))),
        String::new(),
        "..".to_owned(),
        "svc_su_abc".to_owned(),
    ] {
        assert_eq!(code(&verifier, &token).await, INVALID, "{token:.100}");
    }
}

fn claims_of(bytes: usize) -> Value {
    claims(&json!({ "more": "x".repeat(bytes) }))
}

// Fault matrix 128
#[tokio::test]
async fn another_issuers_key_signs_nothing_here() {
    let (ours, theirs) = (Signer::new(1), Signer::new(2));
    let clock = Clock::new();
    let verifier = verifier(Provider::publishing(&json!([ours.jwk()])), &clock);
    let borrowed = theirs.sign(&ours.header(), &claims(&json!({})));
    assert_eq!(code(&verifier, &borrowed).await, INVALID);
    let foreign = ours.sign(&ours.header(), &claims(&json!({ "iss": "https://evil.example" })));
    assert_eq!(code(&verifier, &foreign).await, INVALID);
    let expired = ours.sign(&ours.header(), &claims(&json!({ "exp": NOW - 31 })));
    assert_eq!(
        code(&verifier, &expired).await,
        Some(ErrorCode::CredentialExpired)
    );
}

#[tokio::test]
async fn our_own_sessions_take_the_same_way() {
    let clock = Clock::new();
    let signer = own_signer(&clock);
    let verifier = SessionVerifier::builtin(&own_signer(&clock), factors());
    let new = NewSession {
        subject: "alice",
        auth_time: at(NOW - 60),
        amr: &["pwd", "otp"],
        issued_at: at(NOW),
        lifetime_secs: 3600,
    };
    let (token, other) = (signer.sign(&new).unwrap(), signer.sign(&new).unwrap());
    let session = verifier.verify(&token, at(NOW)).await.unwrap();
    assert_eq!((&*session.subject, session.auth_time), ("alice", Some(NOW - 60)));
    assert!(session.require_fresh_mfa(at(NOW + 540)).is_ok());
    assert!(session.require_fresh_mfa(at(NOW + 541)).is_err());
    assert_ne!(
        verifier.verify(&other, at(NOW)).await.unwrap().digest,
        session.digest
    );
    let late = verifier.verify(&token, at(NOW + 3631)).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::CredentialExpired);
    assert_eq!(signer.jwks()["keys"].as_array().unwrap().len(), 1);
    let elsewhere = KeyPepper::new(b"another secret");
    let (issuer, audience) = (ISSUER.to_owned(), AUDIENCE.to_owned());
    let elsewhere = SessionSigner::derived(&elsewhere, issuer, audience, clock.clone()).unwrap();
    assert_eq!(code(&verifier, &elsewhere.sign(&new).unwrap()).await, INVALID);
}
