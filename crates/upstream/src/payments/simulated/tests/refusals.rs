//! What is refused, and with which code.

use serde_json::json;
use turnpike_core::x402::{Address, Authorization, Scheme};

use super::{NOW, place};
use crate::payments::{Facilitator, SignedPayment, Verdict};

// Fault matrix 191
#[tokio::test]
async fn what_an_exact_payment_must_not_say_has_the_official_code() {
    let place = place();
    let signed = |change: fn(&mut Authorization)| place.signed(Scheme::Exact, change);
    let mut forged = place.pay(Scheme::Exact, 1);
    forged.authorization.value = 2999;
    let mut stolen = place.pay(Scheme::Exact, 1);
    stolen.authorization.payer = Address([9; 20]);
    let mut short = place.pay(Scheme::Exact, 1);
    short.authorization.signature = vec![0];
    for (payment, code) in [
        (forged, "invalid_exact_evm_payload_signature"),
        (stolen, "invalid_exact_evm_payload_signature"),
        (short, "invalid_exact_evm_payload_signature"),
        (
            signed(|signed| signed.to = Address([9; 20])),
            "invalid_exact_evm_payload_recipient_mismatch",
        ),
        (
            signed(|signed| signed.valid_before = NOW + 5),
            "invalid_exact_evm_payload_authorization_valid_before",
        ),
        (
            signed(|signed| signed.valid_after = NOW + 1),
            "invalid_exact_evm_payload_authorization_valid_after",
        ),
        (
            signed(|signed| signed.value = 2999),
            "invalid_exact_evm_payload_authorization_value_mismatch",
        ),
        (
            signed(|signed| signed.value = 3001),
            "invalid_exact_evm_payload_authorization_value_mismatch",
        ),
    ] {
        assert_eq!(place.refused(&payment).await, code);
        assert_eq!(place.unsettled(&payment).await, code);
    }
    let bounds = signed(|signed| {
        signed.valid_before = NOW + 6;
        signed.valid_after = NOW;
    });
    assert_eq!(place.facilitator.verify(&bounds).await, Verdict::Valid);
    assert_eq!(place.facilitator.balance(place.payer.address()), 10_000);
}

// Fault matrix 191
#[tokio::test]
async fn what_an_upto_payment_must_not_say_has_the_official_code() {
    let place = place();
    let signed = |change: fn(&mut Authorization)| place.signed(Scheme::Upto, change);
    let mut forged = place.pay(Scheme::Upto, 1);
    forged.authorization.nonce = [2; 32];
    for (payment, code) in [
        (forged, "invalid_permit2_signature"),
        (
            signed(|signed| signed.spender = Some(Address([9; 20]))),
            "invalid_permit2_spender",
        ),
        (
            signed(|signed| signed.to = Address([9; 20])),
            "invalid_permit2_recipient_mismatch",
        ),
        (
            signed(|signed| signed.facilitator = Some(Address([9; 20]))),
            "upto_facilitator_mismatch",
        ),
        (
            signed(|signed| signed.valid_before = NOW + 5),
            "permit2_deadline_expired",
        ),
        (
            signed(|signed| signed.valid_after = NOW + 1),
            "permit2_not_yet_valid",
        ),
        (
            signed(|signed| signed.token = Address([9; 20])),
            "permit2_token_mismatch",
        ),
    ] {
        assert_eq!(place.refused(&payment).await, code);
        assert_eq!(place.unsettled(&payment).await, code);
    }
    let more = signed(|signed| signed.value = 3001);
    assert_eq!(place.refused(&more).await, "permit2_amount_mismatch");
    let less = signed(|signed| signed.value = 2999);
    assert_eq!(place.refused(&less).await, "permit2_amount_mismatch");
    let code = "invalid_upto_evm_payload_settlement_exceeds_amount";
    assert_eq!(place.unsettled(&less).await, code);
}

// Fault matrix 191
#[tokio::test]
async fn requirements_of_others_are_refused() {
    let place = place();
    let other = format!("0x{}", "09".repeat(20));
    for (scheme, member, value, code) in [
        (
            Scheme::Exact,
            "network",
            json!("eip155:1"),
            "invalid_exact_evm_network_mismatch",
        ),
        (
            Scheme::Upto,
            "network",
            json!("eip155:1"),
            "invalid_upto_evm_network_mismatch",
        ),
        (
            Scheme::Exact,
            "asset",
            json!(other),
            "asset_not_deployed_contract",
        ),
        (
            Scheme::Exact,
            "payTo",
            json!(other),
            "invalid_payment_requirements",
        ),
        (
            Scheme::Exact,
            "amount",
            json!("+3000"),
            "invalid_payment_requirements",
        ),
        (
            Scheme::Exact,
            "amount",
            json!("1e3"),
            "invalid_payment_requirements",
        ),
        (
            Scheme::Exact,
            "extra",
            json!({}),
            "invalid_exact_evm_missing_eip712_domain",
        ),
        (
            Scheme::Exact,
            "extra",
            json!({ "name": "USD Coin", "version": "2" }),
            "invalid_exact_evm_token_name_mismatch",
        ),
        (
            Scheme::Exact,
            "extra",
            json!({ "name": "USDC", "version": "1" }),
            "invalid_exact_evm_token_version_mismatch",
        ),
        (Scheme::Exact, "scheme", json!("upto"), "unsupported_scheme"),
    ] {
        let mut payment = place.pay(scheme, 1);
        let mut changed = serde_json::to_value(&payment.requirements).unwrap();
        changed[member] = value;
        payment.requirements = serde_json::from_value(changed).unwrap();
        assert_eq!(place.refused(&payment).await, code);
    }
    let mut version = place.pay(Scheme::Exact, 1);
    version.payload.x402_version = 1;
    assert_eq!(place.refused(&version).await, "invalid_x402_version");
    let SignedPayment {
        mut payload,
        requirements,
        ..
    } = place.pay(Scheme::Exact, 1);
    payload.accepted.asset = other;
    let asset = SignedPayment::read(payload, requirements).unwrap();
    assert_eq!(place.refused(&asset).await, "invalid_payment_requirements");
}
