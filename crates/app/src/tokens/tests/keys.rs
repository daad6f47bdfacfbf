//! The keys' life: rotation, publication, and how they rest in a store.

use super::*;
use crate::sealing::NONCE_BYTES;

// Fault matrix 133
#[test]
fn rotation_leaves_live_tokens_valid() {
    let first = key(OURS, NOW.plus_millis(-86_400_000));
    let second = key(2, NOW);
    let (before, both) = (ring_of(&[&first]), ring_of(&[&second, &first]));
    let at = |secs: i64| NOW.plus_millis(secs * 1000);
    let signer = |ring: &KeyRing, now| ring.signer(now).map(|key| key.kid().to_owned());

    let last = EndUserClaims {
        iat: NOW_SECS + 59,
        exp: NOW_SECS + 59 + 3600,
        ..claims()
    };
    assert_eq!(signer(&both, at(59)).as_deref(), Some(first.kid()));
    let token = mint(&both, &last, at(59)).unwrap();
    assert_eq!(signer(&both, at(60)).as_deref(), Some(second.kid()));
    assert_eq!(verify(&both, &token, &EXPECTED, at(3658)).unwrap(), last);
    assert_eq!(
        code(verify(&both, &token, &EXPECTED, at(3659))),
        Err(ErrorCode::CredentialExpired)
    );

    // What the new key signs is unknown to a node that has not heard of it.
    let later = EndUserClaims {
        iat: NOW_SECS + 60,
        exp: NOW_SECS + 960,
        ..claims()
    };
    let token = mint(&both, &later, at(60)).unwrap();
    assert!(verify(&both, &token, &EXPECTED, at(60)).is_ok());
    assert!(verify(&before, &token, &EXPECTED, at(60)).is_err());

    let published = |now| -> Vec<Value> {
        let set = both.jwks(now);
        let keys = set["keys"].as_array().unwrap();
        keys.iter().map(|key| key["kid"].clone()).collect()
    };
    assert_eq!(published(at(0)), [json!(first.kid()), json!(second.kid())]);
    assert_eq!(published(at(3719)), [json!(first.kid()), json!(second.kid())]);
    assert_eq!(published(at(3720)), [json!(second.kid())]);
    assert!(both.accepted(first.kid(), at(3719)).is_some());
    assert!(both.accepted(first.kid(), at(3720)).is_none());
    assert!(both.is_needed(second.kid(), at(1_000_000_000)));
    assert!(!both.is_needed("unknown", at(0)));
}

#[test]
fn a_leaked_key_that_is_no_longer_needed_signs_nothing_that_counts() {
    let ring = ring_of(&[
        &key(OURS, NOW.plus_millis(-10_000_000)),
        &key(2, NOW.plus_millis(-5_000_000)),
    ]);
    let token = forged(&header(), &json!(claims()));
    let error = verify(&ring, &token, &EXPECTED, NOW).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidCredential);
}

#[test]
fn without_a_published_key_the_oldest_signs() {
    let (first, second) = (key(OURS, NOW), key(2, NOW.plus_millis(1)));
    let ring = ring_of(&[&second, &first, &first]);
    assert_eq!(ring.keys().len(), 2);
    assert_eq!(
        ring.signer(NOW.plus_millis(-1000)).map(SigningKey::kid),
        Some(first.kid())
    );
    assert_eq!(ring.signer(NOW).map(SigningKey::kid), Some(first.kid()));
    assert!(ring_of(&[]).signer(NOW).is_none());
    assert_eq!(ring_of(&[]).jwks(NOW), json!({ "keys": [] }));
}

// RFC 8037, appendix A
#[test]
fn keys_and_signatures_are_those_of_the_rfc() {
    let seed = URL_SAFE_NO_PAD
        .decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
        .unwrap();
    let key = Arc::new(SigningKey::generate(seed.try_into().unwrap(), NOW).unwrap());
    let set = ring_of(&[&key]).jwks(NOW);
    let expected = json!({
        "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "kid": "If4x36FUomFia_hUBG_SJw", "alg": "EdDSA", "use": "sig",
    });
    assert_eq!(set, json!({ "keys": [expected] }));
    let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let signature = jsonwebtoken::crypto::sign(message, key.encoding(), Algorithm::EdDSA).unwrap();
    let of_the_rfc = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    assert_eq!(signature, of_the_rfc);
}

#[test]
fn a_sealed_key_opens_only_as_what_it_was() {
    let key = key(OURS, NOW);
    let nonce = [3; NONCE_BYTES];
    let sealed = key.seal(&MASTER, &nonce).unwrap();
    let opened = SigningKey::open(&sealed, &MASTER, key.kid(), NOW).unwrap();
    assert_eq!((opened.kid(), opened.created_at()), (key.kid(), NOW));
    let token = mint(&ring_of(&[&Arc::new(opened)]), &claims(), NOW).unwrap();
    assert!(outcome(&token).is_ok());

    let open = |bytes: &[u8], master: &[u8], kid: &str, at| {
        SigningKey::open(bytes, master, kid, at).map(|key| key.kid().to_owned())
    };
    assert_eq!(open(&sealed, &[8; 32], key.kid(), NOW), Err(KeyError::Refused));
    assert_eq!(open(&sealed, &[], key.kid(), NOW), Err(KeyError::Refused));
    assert_eq!(open(&sealed, &MASTER, &kid(2), NOW), Err(KeyError::Refused));
    assert_eq!(
        open(&sealed, &MASTER, key.kid(), NOW.plus_millis(1)),
        Err(KeyError::Refused)
    );
    for at in 0..sealed.len() {
        let mut tampered = sealed.clone();
        tampered[at] ^= 1;
        assert!(open(&tampered, &MASTER, key.kid(), NOW).is_err(), "byte {at}");
        assert!(
            open(&sealed[..at], &MASTER, key.kid(), NOW).is_err(),
            "cut at {at}"
        );
    }
    assert_ne!(key.seal(&MASTER, &[4; NONCE_BYTES]).unwrap(), sealed);
    assert!(
        !sealed.windows(8).any(|bytes| bytes == [OURS; 8]),
        "the seed is readable"
    );
}

#[test]
fn debug_output_holds_no_private_key() {
    let shown = format!("{:?}", ring());
    assert!(shown.contains(&kid(OURS)));
    assert!(!shown.contains("1, 1, 1") && !shown.contains("pair"), "{shown}");
}
