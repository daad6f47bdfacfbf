//! Payments that are refused, and requests that are refused before anybody looks at their payment: nothing is sent to
//! the provider, nothing is settled.

use serde_json::{Value, json};
use turnpike_core::x402::{Address, Authorization, PaymentPayload, PaymentRequirements, wire};

use crate::harness::Store;
use crate::harness::facilitator::{BALANCE, Fault};
use crate::harness::people::seconds;
use crate::harness::stall::{FEE, FLASH, Stall};
use crate::harness::wallet::{Ask, Offer, PAID_CHAT, PAID_FIM, PAID_LIST, Wallet};
use crate::on_both_stores;

on_both_stores!(
    a_bad_request_is_refused_before_its_payment_is_looked_at,
    what_is_no_payment_is_a_400,
    a_payment_that_says_something_else_is_refused_with_the_reason,
    terms_of_another_request_are_none,
    a_missing_allowance_is_said,
);

fn chat_with(change: impl FnOnce(&mut Value)) -> Ask {
    let mut body = serde_json::from_slice(&Ask::chat("hi").body).unwrap();
    change(&mut body);
    Ask::new(PAID_CHAT, &body)
}

fn fim_with(change: impl FnOnce(&mut Value)) -> Ask {
    let mut body = serde_json::from_slice(&Ask::fim().body).unwrap();
    change(&mut body);
    Ask::new(PAID_FIM, &body)
}

// Fault matrix 195
async fn a_bad_request_is_refused_before_its_payment_is_looked_at(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let offer = Ask::chat("hi").offer(&stall.client).await;
    let raw = |path: &str, body: &'static str| Ask {
        path: path.to_owned(),
        body: body.into(),
        headers: Vec::new(),
    };
    let (invalid, unknown) = ("VALIDATION_ERROR", "MODEL_NOT_SUPPORTED");
    let cases = [
        (
            chat_with(|body| body["stream"] = json!(true)),
            "STREAM_UNSUPPORTED",
        ),
        (
            fim_with(|body| body["stream"] = json!(true)),
            "STREAM_UNSUPPORTED",
        ),
        (chat_with(|body| body["stream"] = json!("yes")), invalid),
        (chat_with(|body| body["max_tokens"] = json!(384_001)), invalid),
        (fim_with(|body| body["max_tokens"] = json!(384_001)), invalid),
        (chat_with(|body| body["max_tokens"] = json!(0)), invalid),
        (chat_with(|body| body["max_tokens"] = json!(1.5)), invalid),
        (chat_with(|body| body["max_tokens"] = Value::Null), invalid),
        (chat_with(|body| body["temperature"] = json!(2.1)), invalid),
        (chat_with(|body| body["temperature"] = json!(-0.1)), invalid),
        (fim_with(|body| body["temperature"] = json!("hot")), invalid),
        (chat_with(|body| body["model"] = json!("flat")), unknown),
        (chat_with(|body| body["model"] = json!("no-such-model")), unknown),
        (fim_with(|body| body["model"] = json!("vendor-v4-flash")), unknown),
        (chat_with(|body| body["messages"] = json!([])), invalid),
        (chat_with(|body| body["messages"] = Value::Null), invalid),
        (fim_with(|body| body["prompt"] = Value::Null), invalid),
        (fim_with(|body| body["suffix"] = json!(1)), invalid),
        (raw(PAID_CHAT, "{"), "INVALID_JSON"),
        (raw(PAID_CHAT, "[]"), "INVALID_JSON"),
        (raw(PAID_CHAT, ""), "INVALID_JSON"),
        (raw(PAID_FIM, ""), "INVALID_JSON"),
        (raw(PAID_LIST, "[]"), "INVALID_JSON"),
        (Ask::chat("hi").id("not-a-uuid"), invalid),
        (Ask::list().id(""), invalid),
        (
            Ask::list()
                .id(&uuid::Uuid::new_v4().to_string())
                .id(&uuid::Uuid::new_v4().to_string()),
            invalid,
        ),
    ];
    for (ask, code) in cases {
        ask.send(&stall.client).await.refused(400, code);
        // With a payment as well.
        let signed = ask.signed(&wallet.pay(&offer));
        signed.send(&stall.client).await.refused(400, code);
    }
    assert_eq!(stall.facilitator.count("/verify"), 0);
    stall.agree(0, &[]).await;
    // The edges are fine.
    for ask in [
        chat_with(|body| body["max_tokens"] = json!(384_000)),
        chat_with(|body| body["max_tokens"] = json!(1)),
        chat_with(|body| body["temperature"] = json!(2)),
        chat_with(|body| body["stream"] = json!(false)),
        chat_with(|body| body["stream"] = Value::Null),
        chat_with(|body| body["unknown"] = json!({ "passes": "through" })),
    ] {
        ask.offer(&stall.client).await;
    }
}

async fn what_is_no_payment_is_a_400(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let ask = Ask::list();
    let offer = ask.offer(&stall.client).await;
    let good = wallet.pay(&offer);
    let header = |payment: &Value| wire::encode(payment.to_string().as_bytes());
    let altered = |change: fn(&mut Value)| {
        let mut payment = json!(good);
        change(&mut payment);
        header(&payment)
    };
    let long = altered(|payment| payment["resource"] = json!({ "url": "x".repeat(20_000) }));
    for (what, value) in [
        ("no base64", "%%%".to_owned()),
        ("no JSON", wire::encode(b"{")),
        ("no object", wire::encode(b"[]")),
        ("nothing", String::new()),
        ("too long", long),
        (
            "another version",
            altered(|payment| payment["x402Version"] = json!(1)),
        ),
        (
            "no version",
            altered(|payment| payment["x402Version"] = Value::Null),
        ),
        ("no payload", altered(|payment| payment["payload"] = json!({}))),
        (
            "no signature",
            altered(|payment| payment["payload"]["signature"] = Value::Null),
        ),
        (
            "a nonce of 31 bytes",
            altered(|payment| {
                payment["payload"]["authorization"]["nonce"] = json!(format!("0x{}", "11".repeat(31)));
            }),
        ),
        (
            "a value that is no number",
            altered(|payment| payment["payload"]["authorization"]["value"] = json!("0x10")),
        ),
        (
            "an unknown scheme",
            altered(|payment| payment["accepted"]["scheme"] = json!("batch-settlement")),
        ),
        (
            "an id in the terms that is none",
            altered(|payment| payment["accepted"]["extra"]["svcRequestId"] = json!("x")),
        ),
    ] {
        let sent = ask.clone().id(&offer.id).with("payment-signature", value);
        let reply = sent.send(&stall.client).await;
        assert_eq!(
            (reply.status, &*reply.code()),
            (400, "VALIDATION_ERROR"),
            "{what}"
        );
    }
    let twice = ask.clone().id(&offer.id).signed(&good).signed(&good);
    twice.send(&stall.client).await.refused(400, "VALIDATION_ERROR");

    // Ids that disagree.
    let other = uuid::Uuid::new_v4().to_string();
    let header = ask.clone().id(&other).signed(&good);
    header
        .send(&stall.client)
        .await
        .refused(409, "REQUEST_ID_CONFLICT");
    let mut extension = good.clone();
    extension.extensions.as_mut().unwrap()["svc"]["info"]["requestId"] = json!(other);
    let extension = ask.clone().signed(&extension);
    extension
        .send(&stall.client)
        .await
        .refused(409, "REQUEST_ID_CONFLICT");

    assert_eq!(stall.facilitator.count("/verify"), 0);
    stall.agree(0, &[]).await;
    // The payment itself is good, in whichever alphabet, and the terms alone carry the id.
    let url_safe = wire::to_header(&good)
        .unwrap()
        .replace('+', "-")
        .replace('/', "_");
    let url_safe = ask.with("payment-signature", url_safe.trim_end_matches('='));
    url_safe.send(&stall.client).await.expect(200);
    stall.agree(0, &[FEE]).await;
}

/// The same signature in its other form: any contract that took both could be paid twice.
fn malleable(mut payment: PaymentPayload) -> PaymentPayload {
    const ORDER: &str = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141";
    let signature = payment.payload["signature"].as_str().unwrap()[2..].to_owned();
    let mut bytes = hex::decode(signature).unwrap();
    let order = hex::decode(ORDER).unwrap();
    let mut borrow = 0_i32;
    for at in (0..32).rev() {
        let digit = i32::from(order[at]) - i32::from(bytes[32 + at]) - borrow;
        borrow = i32::from(digit < 0);
        bytes[32 + at] = u8::try_from(digit.rem_euclid(256)).unwrap();
    }
    bytes[64] = if bytes[64] == 27 { 28 } else { 27 };
    payment.payload["signature"] = json!(format!("0x{}", hex::encode(bytes)));
    payment
}

fn elsewhere() -> String {
    Address([7; 20]).to_string()
}

// Fault matrix 191, 192
async fn a_payment_that_says_something_else_is_refused_with_the_reason(store: Store) {
    type Change = fn(&mut Authorization);
    type Alteration = fn(&mut PaymentRequirements);
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let changes: [(&str, Change); 9] = [
        ("recipient", |signed| signed.to = Address([7; 20])),
        ("amount less one", |signed| signed.value -= 1),
        ("amount and one", |signed| signed.value += 1),
        ("expired", |signed| signed.valid_before = seconds() - 1),
        ("not good yet", |signed| signed.valid_after = seconds() + 60),
        // Row 192: the facilitator's time and a margin, and the provider's time, see below.
        ("too short", |signed| signed.valid_before = seconds() + 15),
        ("much too long", |signed| {
            signed.valid_before = seconds() + 86_400;
        }),
        ("another payer", |signed| signed.payer = Address([7; 20])),
        ("another token", |signed| signed.token = Address([7; 20])),
    ];
    let refused = async |ask: &Ask, offer: &Offer, payment: &PaymentPayload, what: &str| {
        let sent = ask.clone().id(&offer.id).signed(payment);
        let again = Offer::read(sent.send(&stall.client).await);
        assert_eq!(again.reply.status, 402, "{what}");
        assert!(!again.reason().is_empty(), "{what}");
        let problem = again.reply.json();
        assert_eq!(problem["reason"], again.reason(), "{what}");
        assert_eq!(again.id, offer.id, "{what}: it can be paid under the same id");
        again.reason().to_owned()
    };
    for ask in [Ask::chat("hi"), Ask::list()] {
        let offer = ask.offer(&stall.client).await;
        let is_list = ask.path == PAID_LIST;
        for (what, change) in changes {
            // The token of `exact` stands in the terms, not in what is signed.
            if !(is_list && what == "another token") {
                refused(&ask, &offer, &wallet.pay_otherwise(&offer, change), what).await;
            }
        }
        if !is_list {
            // The provider has 20 seconds, the facilitator 7, and 16 are margin.
            let shorter: Change = |signed| signed.valid_before = seconds() + 38;
            let shorter = wallet.pay_otherwise(&offer, shorter);
            refused(&ask, &offer, &shorter, "too short for the provider").await;
            let spender: Change = |signed| signed.spender = Some(Address([7; 20]));
            let spender = wallet.pay_otherwise(&offer, spender);
            refused(&ask, &offer, &spender, "another spender").await;
            let settler: Change = |signed| signed.facilitator = Some(Address([7; 20]));
            let settler = wallet.pay_otherwise(&offer, settler);
            refused(&ask, &offer, &settler, "another facilitator").await;
        }
        let reason = refused(&ask, &offer, &malleable(wallet.pay(&offer)), "malleable").await;
        assert!(reason.contains("signature"), "{reason}");
        let mainnet = wallet.pay_elsewhere(&offer, |terms| "eip155:8453".clone_into(&mut terms.network));
        refused(&ask, &offer, &mainnet, "another chain's signature").await;
        // What was offered, changed in what is sent back.
        let says: [(&str, Alteration); 8] = [
            ("network", |terms| "eip155:8453".clone_into(&mut terms.network)),
            ("asset", |terms| elsewhere().clone_into(&mut terms.asset)),
            ("payTo", |terms| elsewhere().clone_into(&mut terms.pay_to)),
            ("amount", |terms| "1".clone_into(&mut terms.amount)),
            ("time", |terms| terms.max_timeout_seconds = 1),
            ("seal", |terms| terms.extra["svcSeal"] = json!("A".repeat(43))),
            ("no seal", |terms| {
                terms.extra.shift_remove("svcSeal");
            }),
            ("expiry", |terms| {
                terms.extra["svcExpiresAt"] = json!(seconds() + 86_400);
            }),
        ];
        for (what, change) in says {
            let mut payment = wallet.pay(&offer);
            change(&mut payment.accepted);
            refused(&ask, &offer, &payment, what).await;
        }
        // A wallet without money.
        let poor = Wallet::new();
        stall.facilitator.set_balance(poor.address(), offer.amount() - 1);
        let reason = refused(&ask, &offer, &poor.pay(&offer), "no money").await;
        assert!(reason.contains("insufficient_balance"), "{reason}");
        // After all that the terms still hold.
        let paid = ask.clone().id(&offer.id).signed(&wallet.pay(&offer));
        paid.send(&stall.client).await.expect(200);
    }
    assert_eq!(stall.facilitator.balance(Address([7; 20])), BALANCE);
    stall.agree(1, &[FLASH, FEE]).await;
}

// Fault matrix 191
async fn terms_of_another_request_are_none(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let ask = Ask::chat("hi");
    let offer = ask.offer(&stall.client).await;
    let payment = wallet.pay(&offer);
    let other_id = uuid::Uuid::new_v4().to_string();
    let mut renamed = payment.clone();
    renamed.accepted.extra["svcRequestId"] = json!(other_id);
    let mut nameless = payment.clone();
    nameless.accepted.extra.shift_remove("svcRequestId");
    nameless.extensions = None;
    for (what, sent) in [
        ("another body", Ask::chat("ho").signed(&payment)),
        ("another path", Ask::fim().signed(&payment)),
        ("another scheme", Ask::list().signed(&payment)),
        ("another id", ask.clone().signed(&renamed)),
        ("no id", ask.clone().signed(&nameless)),
    ] {
        let again = Offer::read(sent.send(&stall.client).await);
        assert_eq!(again.reply.status, 402, "{what}");
        assert_eq!(again.reason(), "invalid_payment_requirements", "{what}");
    }
    assert_eq!(stall.facilitator.count("/verify"), 0);
    // The id may come in the header alone.
    ask.id(&offer.id)
        .signed(&nameless)
        .send(&stall.client)
        .await
        .expect(200);
    stall.agree(1, &[FLASH]).await;
}

async fn a_missing_allowance_is_said(store: Store) {
    let stall = Stall::new(store).await;
    let (offer, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    stall
        .facilitator
        .break_times("/verify", Fault::Refuse("permit2_allowance_required"), 1);
    let again = Offer::read(paid.send(&stall.client).await.expect(412));
    assert_eq!(
        (again.reason(), &again.id),
        ("permit2_allowance_required", &offer.id)
    );
    assert_eq!(stall.facilitator.reached("/verify"), 1);
    paid.send(&stall.client).await.expect(200);
    stall.agree(1, &[FLASH]).await;
}
