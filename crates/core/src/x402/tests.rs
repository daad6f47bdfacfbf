//! Messages of the official clients, and what is wrong with others.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::x402::evm::UPTO_PROXY;
use crate::x402::wire::{MAX_HEADER_BYTES, from_header, to_header};

/// Made with `@x402/evm` 2.27.0 and viem 2.57.1 and a key that everybody knows; digests by viem.
const VECTORS: &str = include_str!("vectors.json");

fn payment(name: &str) -> Value {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["name"] == name).unwrap();
    case["payment"].clone()
}

fn read(payment: &Value) -> Result<Authorization, Malformed> {
    Authorization::read(&serde_json::from_value(payment.clone()).unwrap())
}

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

const PAYER: &str = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";
const PAY_TO: &str = "0x15d34aaf54267db7d7c367839aaf71a00a2c6a65";
const ASSET: &str = "0x036cbd53842c5426634e7929541ec2318f3dcf7e";

#[test]
fn an_exact_payment_of_the_official_client_is_read() {
    let read = read(&payment("exact")).unwrap();
    assert_eq!(read.scheme, Scheme::Exact);
    assert_eq!(read.payer, address(PAYER));
    assert_eq!((read.to, read.token), (address(PAY_TO), address(ASSET)));
    assert_eq!(
        (read.value, read.valid_after, read.valid_before),
        (3000, 0, 1_795_298_060)
    );
    assert_eq!((read.spender, read.facilitator), (None, None));
    assert_eq!(read.signature.len(), 65);
    assert_eq!(
        read.key(),
        format!("exact:{PAYER}:0x4f72e825c3fd875d0923968e460d39ecbefbae23c2ed8720a7e20a3cae027b5e")
    );
    assert!(!format!("{read:?}").contains("4f72"));
}

#[test]
fn an_upto_payment_of_the_official_client_is_read() {
    let read = read(&payment("upto")).unwrap();
    assert_eq!(read.scheme, Scheme::Upto);
    assert_eq!(read.payer, address(PAYER));
    assert_eq!((read.to, read.token), (address(PAY_TO), address(ASSET)));
    assert_eq!(
        (read.value, read.valid_after, read.valid_before),
        (250_000, 0, 1_795_298_060)
    );
    assert_eq!(read.spender, Some(UPTO_PROXY));
    let facilitator = address("0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266");
    assert_eq!(read.facilitator, Some(facilitator));
    // 49958829738570172653117895745283732264537078174228735403142872625340993648862, as Python writes it.
    let nonce = "6e73b2117978ed3f9cdbd4d6056cfc0fc06e8cd803384e465603c9977e4638de";
    assert_eq!(read.key(), format!("upto:{PAYER}:0x{nonce}"));
}

#[test]
fn larger_numbers_than_money_knows_are_the_largest() {
    let mut edge = payment("edge");
    let read_edge = read(&edge).unwrap();
    assert_eq!((read_edge.value, read_edge.valid_before), (u64::MAX, i64::MAX));
    // 2^256 − 1.
    let most = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    for name in ["value", "validAfter", "validBefore"] {
        edge["payload"]["authorization"][name] = json!(most);
    }
    let read_most = read(&edge).unwrap();
    assert_eq!(
        (read_most.value, read_most.valid_after, read_most.valid_before),
        (u64::MAX, i64::MAX, i64::MAX)
    );
    edge["payload"]["authorization"]["value"] = json!("18446744073709551616");
    assert_eq!(read(&edge).unwrap().value, u64::MAX);
    edge["payload"]["authorization"]["value"] =
        json!("115792089237316195423570985008687907853269984665640564039457584007913129639936");
    assert!(read(&edge).is_err());
    let mut upto = payment("upto");
    upto["payload"]["permit2Authorization"]["nonce"] = json!(most);
    assert_eq!(read(&upto).unwrap().nonce, [0xff; 32]);
    upto["payload"]["permit2Authorization"]["nonce"] = json!("0258");
    let mut small = [0; 32];
    small[30..].copy_from_slice(&[1, 2]);
    assert_eq!(read(&upto).unwrap().nonce, small);
}

/// Every place of the object, as a path of names.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    for (name, inner) in value.as_object().into_iter().flatten() {
        let place = format!("{path}/{name}");
        places(inner, &place, found);
        found.push(place);
    }
}

// Fault matrix 191
#[test]
fn every_member_that_is_missing_or_malformed_is_named() {
    for name in ["exact", "upto"] {
        let good = payment(name);
        let mut found = Vec::new();
        places(&good["payload"], "/payload", &mut found);
        assert!(found.len() > 7);
        for place in found {
            let named = place[1..].replace('/', ".");
            let long = "1".repeat(10_000);
            for bad in [
                json!(null),
                json!(7),
                json!(""),
                json!("0x"),
                json!("-1"),
                json!("1e3"),
                json!("1.0"),
                json!(" 1"),
                json!("１"),
                json!("0xzz"),
                json!("0x123"),
                json!(long),
                json!(["1"]),
            ] {
                let mut changed = good.clone();
                *changed.pointer_mut(&place).unwrap() = bad.clone();
                let fault = read(&changed).expect_err(&format!("{place} {bad}")).0;
                assert!(fault.starts_with(&named), "{fault}: {named}");
                assert!(fault.len() < 150 && !fault.contains("11111"), "{fault}");
            }
            let (parent, last) = place.rsplit_once('/').unwrap();
            let mut changed = good.clone();
            let parent = changed.pointer_mut(parent).unwrap();
            parent.as_object_mut().unwrap().remove(last);
            assert_eq!(read(&changed).unwrap_err().0, format!("{named} is missing"));
            let parent = changed.pointer_mut("/payload").unwrap();
            parent["more"] = json!({ "a": 1 });
        }
    }
    let mut asset = payment("exact");
    asset["accepted"]["asset"] = json!("USDC");
    assert!(read(&asset).unwrap_err().0.starts_with("accepted.asset"));
    let mut more = payment("exact");
    more["payload"]["authorization"]["more"] = json!(1);
    more["payload"]["more"] = json!([1]);
    assert!(read(&more).is_ok());
    more["payload"]["signature"] = json!(format!("0x{}", "ab".repeat(4097)));
    assert!(read(&more).is_err());
}

#[test]
fn a_network_is_an_evm_chain() {
    assert_eq!(chain_id("eip155:8453"), Ok(8453));
    for bad in [
        "",
        "eip155:",
        "eip155:0",
        "eip155:01",
        "eip155:+1",
        "eip155:-1",
        "eip155:x",
        "eip155:99999999999999999999",
        "solana:1",
        "8453",
    ] {
        assert!(chain_id(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_message_survives_its_header() {
    for name in ["exact", "upto", "edge"] {
        let sent: PaymentPayload = serde_json::from_value(payment(name)).unwrap();
        let header = to_header(&sent).unwrap();
        assert!(
            header
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
        );
        assert_eq!(header.len() % 4, 0);
        assert_eq!(from_header::<PaymentPayload>(&header).unwrap(), sent);
        // What was not said is not said as null.
        assert_eq!(serde_json::to_value(&sent).unwrap(), payment(name));
    }
}

#[test]
fn headers_come_in_with_other_alphabets_and_without_padding() {
    let mut sent = payment("exact");
    // Gives `+` and `/` in base64.
    sent["resource"]["description"] = json!("ÿþ>>>???~~~ÿÿ");
    let sent: PaymentPayload = serde_json::from_value(sent).unwrap();
    let header = to_header(&sent).unwrap();
    assert!(header.contains('+') || header.contains('/'));
    let url = header.replace('+', "-").replace('/', "_");
    for form in [
        url.trim_end_matches('=').to_owned(),
        url,
        header.trim_end_matches('=').to_owned(),
        format!(" {header} "),
    ] {
        assert_eq!(from_header::<PaymentPayload>(&form).unwrap(), sent);
    }
}

#[test]
fn headers_that_are_none_are_refused() {
    for bad in [
        "", "!", "e30", "bnVsbA==", "W10=", "aGVsbG8=", "/w==", "é", "e3", "====",
    ] {
        assert!(from_header::<PaymentPayload>(bad).is_err(), "{bad}");
    }
    let deep = to_header(&json!("x")).unwrap();
    assert!(from_header::<PaymentPayload>(&deep).is_err());
    let long = "A".repeat(MAX_HEADER_BYTES + 1);
    assert!(
        from_header::<PaymentPayload>(&long)
            .unwrap_err()
            .0
            .starts_with("longer")
    );
    let mut scheme = payment("exact");
    scheme["accepted"]["scheme"] = json!("batch-settlement");
    assert!(from_header::<PaymentPayload>(&to_header(&scheme).unwrap()).is_err());
}

#[test]
fn a_null_is_absent() {
    let mut nulls = payment("exact");
    nulls["resource"] = json!(null);
    nulls["extensions"] = json!(null);
    nulls["accepted"]["extra"] = json!(null);
    let read: PaymentPayload = from_header(&to_header(&nulls).unwrap()).unwrap();
    assert_eq!((read.resource, read.extensions), (None, None));
    assert!(read.accepted.extra.is_empty());
    let verdict: VerifyResponse =
        serde_json::from_value(json!({ "isValid": true, "invalidReason": null, "payer": null })).unwrap();
    assert_eq!(serde_json::to_value(verdict).unwrap(), json!({ "isValid": true }));
    let required: PaymentRequired = serde_json::from_value(json!({
        "x402Version": 2, "error": null, "resource": { "url": "u", "description": null }, "accepts": [],
        "extensions": null,
    }))
    .unwrap();
    assert_eq!(
        serde_json::to_value(required).unwrap(),
        json!({ "x402Version": 2, "resource": { "url": "u" }, "accepts": [] })
    );
    let supported: Supported =
        serde_json::from_value(json!({ "kinds": [], "extensions": null, "signers": {} })).unwrap();
    assert!(supported.extensions.is_empty());
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        "[0-9]{0,90}".prop_map(Value::from),
        "0x[0-9a-fA-F]{0,130}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map("[a-z]{1,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_that_is_sent_panics(place in any::<prop::sample::Index>(), value in anything(), upto in any::<bool>()) {
        let mut changed = payment(if upto { "upto" } else { "exact" });
        let mut found = Vec::new();
        places(&changed, "", &mut found);
        let place = place.get(&found);
        *changed.pointer_mut(place).unwrap() = value;
        if let Ok(payment) = from_header::<PaymentPayload>(&to_header(&changed).unwrap())
            && let Ok(read) = Authorization::read(&payment)
        {
            prop_assert!(read.signature.len() <= 4096);
        }
    }

    #[test]
    fn no_header_panics(header in ".{0,200}") {
        prop_assert!(from_header::<PaymentPayload>(&header).is_err());
    }

    #[test]
    fn small_numbers_are_what_they_say(value in any::<u64>()) {
        let mut changed = payment("exact");
        changed["payload"]["authorization"]["value"] = json!(value.to_string());
        prop_assert_eq!(read(&changed).unwrap().value, value);
    }
}
