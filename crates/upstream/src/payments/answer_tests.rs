//! Which answers are verdicts.

use ::http::StatusCode;
use serde_json::{Value, json};
use turnpike_core::x402::PaymentRequirements;

use super::answer::*;
use super::*;

const NETWORK: &str = "eip155:84532";

fn asked(scheme: &str, amount: &str) -> PaymentRequirements {
    serde_json::from_value(json!({
        "scheme": scheme, "network": NETWORK, "amount": amount, "asset": "0x", "payTo": "0x",
        "maxTimeoutSeconds": 300,
    }))
    .unwrap()
}

fn verdict(status: u16, body: &str) -> Verdict {
    read_verdict(StatusCode::from_u16(status).unwrap(), body.as_bytes())
}

fn settled(status: u16, body: &Value, asked: &PaymentRequirements) -> Settled {
    let status = StatusCode::from_u16(status).unwrap();
    read_settlement(status, body.to_string().as_bytes(), asked)
}

fn hash() -> String {
    format!("0x{}", "ab".repeat(32))
}

#[test]
fn a_verdict_is_taken_from_any_status() {
    assert_eq!(verdict(200, r#"{"isValid":true,"payer":"0x"}"#), Verdict::Valid);
    let refused = r#"{"isValid":false,"invalidReason":"insufficient_funds","invalidMessage":"no"}"#;
    for status in [200, 400, 402, 412, 500] {
        let reason = "insufficient_funds".to_owned();
        let message = Some("no".to_owned());
        assert_eq!(verdict(status, refused), Verdict::Invalid { reason, message });
    }
    let Verdict::Invalid { reason, .. } = verdict(200, r#"{"isValid":false,"invalidReason":null}"#) else {
        panic!()
    };
    assert_eq!(reason, "unspecified");
    let long =
        json!({ "isValid": false, "invalidReason": "é".repeat(5000), "invalidMessage": "é".repeat(5000) });
    let Verdict::Invalid { reason, message } = verdict(400, &long.to_string()) else {
        panic!()
    };
    assert_eq!((reason.len(), message.unwrap().len()), (200, 1000));
}

#[test]
fn what_is_no_verdict_is_unknown() {
    for (status, body) in [
        (200, ""),
        (200, "null"),
        (200, "[]"),
        (200, "{}"),
        (200, "<html>"),
        (200, r#"{"isValid":"true"}"#),
        (200, r#"{"isValid":1}"#),
        (200, r#"{"isvalid":false}"#),
        (200, r#"{"success":false}"#),
        (200, r#"{"isValid":false,"invalidReason":7}"#),
        (
            200,
            r#"{"isValid":false,"invalidReason":"unexpected_verify_error"}"#,
        ),
        (500, r#"{"isValid":true}"#),
        (500, r#"{"error":"x"}"#),
        (429, "slow down"),
    ] {
        assert!(matches!(verdict(status, body), Verdict::Unknown(_)), "{body}");
    }
    let deep = "[".repeat(100_000);
    assert!(matches!(verdict(200, &deep), Verdict::Unknown(_)));
}

#[test]
fn a_settlement_is_done_when_all_of_it_fits() {
    let good = json!({ "success": true, "transaction": hash(), "network": NETWORK, "payer": "0x1" });
    let Settled::Done(done) = settled(200, &good, &asked("exact", "3000")) else {
        panic!()
    };
    assert_eq!((done.transaction, done.amount), (hash(), None));
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        changed
    };
    for (scheme, asked_amount, amount) in [
        ("exact", "3000", "3000"),
        ("upto", "3000", "3000"),
        ("upto", "3000", "2999"),
    ] {
        let answer = with("amount", json!(amount));
        let Settled::Done(done) = settled(200, &answer, &asked(scheme, asked_amount)) else {
            panic!("{scheme} {amount}")
        };
        assert_eq!(done.amount.as_deref(), Some(amount));
    }
    let nothing = json!({ "success": true, "transaction": "", "network": NETWORK, "amount": "0" });
    assert!(matches!(
        settled(200, &nothing, &asked("upto", "0")),
        Settled::Done(_)
    ));
    for unknown in [
        with("transaction", json!("")),
        with("transaction", json!(null)),
        with("transaction", json!("0x1234")),
        with("transaction", json!(7)),
        with("network", json!("eip155:1")),
        with("network", json!(null)),
        with("amount", json!("3001")),
        with("amount", json!("2999")),
        with("amount", json!(3000)),
        with("amount", json!("+3000")),
        with("amount", json!("")),
        with("amount", json!("99999999999999999999999999")),
        with("success", json!("true")),
        with("success", json!(null)),
        json!({ "success": true }),
        json!({ "isValid": true }),
        json!([good]),
    ] {
        let settled = settled(200, &unknown, &asked("exact", "3000"));
        assert!(matches!(settled, Settled::Unknown(_)), "{unknown} {settled:?}");
    }
    // The facilitator may have settled the maximum.
    assert!(matches!(
        settled(200, &good, &asked("upto", "3000")),
        Settled::Unknown(_)
    ));
    let more = with("amount", json!("3001"));
    assert!(matches!(
        settled(200, &more, &asked("upto", "3000")),
        Settled::Unknown(_)
    ));
    assert!(matches!(
        settled(502, &good, &asked("exact", "3000")),
        Settled::Unknown(_)
    ));
}

#[test]
fn a_settlement_is_refused_in_so_many_words() {
    let asked = asked("exact", "3000");
    let refused = json!({ "success": false, "errorReason": "insufficient_funds", "transaction": "", "network": NETWORK });
    for status in [200, 400, 402, 500] {
        let Settled::Refused(told) = settled(status, &refused, &asked) else {
            panic!("{status}")
        };
        assert_eq!(told.error_reason.as_deref(), Some("insufficient_funds"));
    }
    let Settled::Refused(told) = settled(400, &json!({ "success": false }), &asked) else {
        panic!()
    };
    assert_eq!((told.network.as_str(), told.transaction.as_str()), (NETWORK, ""));
    for unknown in [
        json!({ "success": false, "errorReason": "settlement_pending", "transaction": hash(), "network": NETWORK }),
        json!({ "success": false, "errorReason": "insufficient_funds", "transaction": hash(), "network": NETWORK }),
        json!({ "success": false, "errorReason": {} }),
        json!({ "error": "rig fault" }),
    ] {
        assert!(
            matches!(settled(500, &unknown, &asked), Settled::Unknown(_)),
            "{unknown}"
        );
    }
}

// It may have been sent, or done before: only the chain knows.
#[test]
fn a_refusal_of_what_may_have_been_sent_is_unknown() {
    for reason in [
        "settlement_pending",
        "unexpected_settle_error",
        "UNEXPECTED",
        "invalid_exact_evm_transaction_failed",
        "invalid_upto_evm_transaction_failed: the request took too long",
        "could not get the receipt",
        "timeout",
        "request timed out",
        "invalid_exact_evm_nonce_already_used",
        "permit2_invalid_nonce",
        "already settled",
        "FiatTokenV2: authorization is used or canceled",
    ] {
        let refused =
            json!({ "success": false, "errorReason": reason, "transaction": "", "network": NETWORK });
        let settled = settled(400, &refused, &asked("exact", "3000"));
        assert!(matches!(settled, Settled::Unknown(_)), "{reason}");
    }
    for reason in [
        "invalid_exact_evm_recipient_mismatch",
        "permit2_simulation_failed",
        "invalid_exact_evm_insufficient_balance",
        "permit2_deadline_expired",
        "the facilitator refused",
    ] {
        let refused =
            json!({ "success": false, "errorReason": reason, "transaction": "", "network": NETWORK });
        let settled = settled(400, &refused, &asked("exact", "3000"));
        assert!(matches!(settled, Settled::Refused(_)), "{reason}");
    }
}

#[test]
fn kinds_of_others_do_not_hide_ours() {
    let body = json!({
        "kinds": [
            { "x402Version": 2, "scheme": "upto", "network": NETWORK, "extra": { "facilitatorAddress": "0x" } },
            { "x402Version": 1, "scheme": "exact", "network": "base-sepolia", "extra": null },
            { "scheme": 7 },
            "x",
        ],
        "extensions": ["eip2612GasSponsoring", 7],
        "signers": {},
    })
    .to_string();
    let supported = read_supported(StatusCode::OK, body.as_bytes()).unwrap();
    assert_eq!((supported.kinds.len(), supported.extensions.len()), (2, 1));
    assert!(read_supported(StatusCode::BAD_GATEWAY, body.as_bytes()).is_err());
    assert!(read_supported(StatusCode::OK, b"{}").is_err());
    assert!(read_supported(StatusCode::OK, br#"{"kinds":{}}"#).is_err());
}
