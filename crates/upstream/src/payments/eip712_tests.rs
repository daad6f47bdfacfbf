//! Digests and signatures against those of viem.

use proptest::prelude::*;
use serde_json::Value;
use turnpike_core::x402::{Address, Authorization, PaymentPayload, chain_id};

use super::eip712::*;
use super::paying::Terms;

const VECTORS: &str = include_str!("../../../core/src/x402/vectors.json");

fn vectors() -> Value {
    serde_json::from_str(VECTORS).unwrap()
}

fn key() -> PayerKey {
    PayerKey::parse(vectors()["key"].as_str().unwrap()).unwrap()
}

fn cases() -> Vec<(PaymentPayload, Authorization, Word)> {
    let vectors = vectors();
    let cases = vectors["cases"].as_array().unwrap();
    cases
        .iter()
        .map(|case| {
            let payment: PaymentPayload = serde_json::from_value(case["payment"].clone()).unwrap();
            let authorization = Authorization::read(&payment).unwrap();
            let mut digest = [0; 32];
            hex::decode_to_slice(&case["digest"].as_str().unwrap()[2..], &mut digest).unwrap();
            (payment, authorization, digest)
        })
        .collect()
}

fn domain(payment: &PaymentPayload) -> TokenDomain {
    TokenDomain {
        name: payment.accepted.extra["name"].as_str().unwrap().to_owned(),
        version: payment.accepted.extra["version"].as_str().unwrap().to_owned(),
        chain_id: chain_id(&payment.accepted.network).unwrap(),
        contract: Address::parse(&payment.accepted.asset).unwrap(),
    }
}

#[test]
fn what_is_signed_is_what_viem_signs() {
    let payer = Address::parse(vectors()["payer"].as_str().unwrap()).unwrap();
    assert_eq!(key().address(), payer);
    for (payment, authorization, expected) in cases() {
        let digest = signed_digest(&authorization, &domain(&payment));
        assert_eq!(hex::encode(digest), hex::encode(expected));
        assert_eq!(recover(&digest, &authorization.signature), Ok(payer));
        // Both sign by RFC 6979.
        assert_eq!(key().sign(&digest).unwrap().to_vec(), authorization.signature);
    }
}

#[test]
fn a_payment_that_is_made_here_is_the_official_clients() {
    for (payment, authorization, _) in cases().into_iter().take(2) {
        let terms = Terms {
            nonce: authorization.nonce,
            valid_after: authorization.valid_after,
            valid_before: authorization.valid_before,
        };
        let made = key().pay(&payment.accepted, terms).unwrap();
        assert_eq!(Authorization::read(&made).unwrap(), authorization);
    }
}

// Fault matrix 191
#[test]
fn every_changed_member_is_signed_by_somebody_else() {
    for (payment, good, _) in cases() {
        let token = domain(&payment);
        let signer = |authorization: &Authorization, token: &TokenDomain| {
            recover(&signed_digest(authorization, token), &good.signature)
        };
        let payer = signer(&good, &token).unwrap();
        let mut changes: Vec<Authorization> = vec![good.clone(); 6];
        changes[0].to.0[0] ^= 1;
        changes[1].value -= 1;
        changes[2].valid_after += 1;
        changes[3].valid_before -= 1;
        changes[4].nonce[31] ^= 1;
        changes[5].nonce[0] ^= 1;
        for changed in &changes {
            assert_ne!(signer(changed, &token), Ok(payer));
        }
        let other_chain = TokenDomain {
            chain_id: 1,
            ..token.clone()
        };
        assert_ne!(signer(&good, &other_chain), Ok(payer));
        if good.spender.is_some() {
            let mut changes: Vec<Authorization> = vec![good.clone(); 3];
            changes[0].token.0[0] ^= 1;
            changes[1].spender = Some(good.to);
            changes[2].facilitator = Some(good.to);
            for changed in &changes {
                assert_ne!(signer(changed, &token), Ok(payer));
            }
        } else {
            let mut contract = token.clone();
            contract.contract.0[0] ^= 1;
            let name = TokenDomain {
                name: "US Dollar".to_owned(),
                ..token.clone()
            };
            let version = TokenDomain {
                version: "1".to_owned(),
                ..token.clone()
            };
            for other in [contract, name, version] {
                assert_ne!(signer(&good, &other), Ok(payer));
            }
        }
    }
}

// Fault matrix 191
#[test]
fn a_signature_has_one_form() {
    let (_, good, digest) = cases().remove(0);
    let signature = &good.signature;
    let mut zero_based = signature.clone();
    zero_based[64] -= 27;
    assert_eq!(recover(&digest, &zero_based), Ok(good.payer));
    for length in [0, 1, 64, 66, 96] {
        let mut other = signature.clone();
        other.resize(length, 27);
        assert_eq!(recover(&digest, &other), Err(SignatureFault::Length));
    }
    for v in [2, 3, 26, 29, 30, 31, 255] {
        let mut other = signature.clone();
        other[64] = v;
        assert_eq!(recover(&digest, &other), Err(SignatureFault::RecoveryId));
    }
    let mut swapped = signature.clone();
    swapped[64] = if swapped[64] == 27 { 28 } else { 27 };
    assert_ne!(recover(&digest, &swapped), Ok(good.payer));
    // The other signature of the same message: s is the order less s, and v the other one.
    let order = hex::decode("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141").unwrap();
    let mut high = swapped;
    let mut borrow = 0;
    for place in (0..32).rev() {
        let difference = i16::from(order[place]) - i16::from(signature[32 + place]) - borrow;
        borrow = i16::from(difference < 0);
        high[32 + place] = u8::try_from(difference.rem_euclid(256)).unwrap();
    }
    assert_eq!(recover(&digest, &high), Err(SignatureFault::HighS));
    for range in [0..32, 32..64] {
        for byte in [0x00, 0xff] {
            let mut other = signature.clone();
            other[range.clone()].fill(byte);
            assert_eq!(recover(&digest, &other), Err(SignatureFault::Range));
        }
    }
    // An x that no point has.
    let mut nowhere = signature.clone();
    nowhere[..32].fill(0);
    nowhere[31] = 5;
    assert_eq!(recover(&digest, &nowhere), Err(SignatureFault::NoKey));
}

proptest! {
    #[test]
    fn no_signature_panics(mut signature in prop::collection::vec(any::<u8>(), 0..80), v in 26_u8..30) {
        if let Some(last) = signature.get_mut(64) {
            *last = v;
        }
        let known = recover(&[7; 32], &signature);
        prop_assert!(known.is_err() || signature.len() == 65);
    }
}

#[test]
fn the_nonce_of_a_challenge_is_its_id_and_realm() {
    let vectors = vectors();
    let word = |name: &str| vectors["mpp"][name].as_str().unwrap().to_owned();
    let nonce = mpp_nonce(&word("id"), &word("realm"));
    assert_eq!(format!("0x{}", hex::encode(nonce)), word("nonce"));
}

#[test]
fn a_key_is_read_and_revealed_and_never_printed() {
    let text = key().reveal();
    assert_eq!(text, vectors()["key"].as_str().unwrap());
    assert_eq!(PayerKey::parse(&text).unwrap().address(), key().address());
    assert!(!format!("{:?}", key()).contains(&text[2..]));
    assert!(PayerKey::random(&[0; 32]).is_none());
    assert!(PayerKey::random(&[0xff; 32]).is_none());
    for bad in ["", "0x", "59c6", &text[2..], &format!("{text}00")] {
        assert!(PayerKey::parse(bad).is_none(), "{bad}");
    }
}
