//! Calls that wallets pay for by themselves, when nothing goes wrong: terms, payment, answer, receipt.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};

use crate::harness::facilitator::{BALANCE, NETWORK, PAY_TO};
use crate::harness::stall::{FEE, FLASH, PRO, Stall};
use crate::harness::upstream::{completion, tokens};
use crate::harness::wallet::{Ask, Offer, PAID_LIST, Wallet, payment_response};
use crate::harness::{Reply, Setup, Store};
use crate::on_both_stores;

on_both_stores!(
    every_operation_is_paid_and_answered_once,
    an_own_id_makes_the_whole_call_repeatable,
    a_credential_of_the_other_protocol_pays_the_same_way,
    no_body_is_an_empty_object,
    a_call_that_used_nothing_costs_nothing,
    no_more_is_settled_than_was_authorised,
    no_log_has_what_lets_an_answer_be_fetched,
    the_receipt_is_for_who_knows_the_request,
    an_answer_that_is_no_longer_kept_is_not_paid_again,
    simulated_payments_say_so,
);

pub fn asks() -> [(Ask, u64); 3] {
    [(Ask::chat("hi"), FLASH), (Ask::fim(), PRO), (Ask::list(), FEE)]
}

fn body_of(ask: &Ask, body: &Value) {
    match &*ask.path {
        "/vendor/chat" => {
            assert_eq!(body["object"], "chat.completion");
            assert_eq!(body["choices"][0]["message"]["content"], "Hello world");
        }
        "/vendor/fim" => assert_eq!(
            (&body["object"], &body["choices"][0]["text"]),
            (&json!("text_completion"), &json!("println!();"))
        ),
        _ => {
            let model = |id: &str| json!({ "id": id, "object": "model", "created": 0, "owned_by": "up", "available": true });
            let models = [model("vendor-v4-flash"), model("vendor-v4-pro")];
            assert_eq!(body, &json!({ "object": "list", "data": models }));
        }
    }
}

#[track_caller]
fn same(again: &Reply, first: &Reply) {
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    for name in [
        "payment-response",
        "payment-receipt",
        "x-svc-receipt-id",
        "x-svc-request-id",
    ] {
        assert_eq!(again.header(name), first.header(name), "{name}");
    }
}

// Fault matrix 185, 186, 196
async fn every_operation_is_paid_and_answered_once(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    for (ask, price) in asks() {
        let (offer, paid) = stall.paid(&ask, &wallet).await;
        let before = stall.facilitator.balance(wallet.address());
        let reply = paid.send(&stall.client).await.expect(200);
        body_of(&ask, &reply.json());
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert!(reply.header("cache-control").unwrap().contains("private"));
        assert_eq!(reply.header("x-svc-request-id"), Some(&*offer.id));
        assert_eq!(reply.header("payment-required"), None);
        assert_eq!(reply.header("x-svc-simulated"), None);
        let response = payment_response(&reply);
        let made = stall.facilitator.paid().pop().unwrap();
        assert!(response.success);
        assert_eq!((&response.transaction, &*response.network), (&made.hash, NETWORK));
        assert_eq!(response.payer, Some(wallet.address().to_string()));
        assert_eq!(response.amount, Some(price.to_string()));
        assert_eq!(
            stall.facilitator.balance(wallet.address()),
            before - price,
            "what it used, not what it authorised"
        );
        // Nothing of ours goes to the facilitator, and what is settled is what was used.
        let settle = stall.facilitator.last("/settle");
        assert!(!settle.to_string().contains("svc"), "{settle}");
        assert_eq!(settle["paymentRequirements"]["amount"], price.to_string());

        let receipt = stall.receipt(&reply).await;
        assert_eq!(receipt["receiptId"], reply.header("x-svc-receipt-id").unwrap());
        assert_eq!(
            (&receipt["requestId"], &receipt["status"]),
            (&json!(offer.id), &json!("settled"))
        );
        assert_eq!(receipt["transaction"], made.hash);
        assert_eq!(
            (&receipt["amount"], &receipt["maxAmount"]),
            (&json!(price.to_string()), &json!(offer.terms().amount))
        );
        assert_eq!(receipt["payer"], wallet.address().to_string());
        assert_eq!(receipt["protocol"], "x402");
        for _ in 0..3 {
            same(&paid.send(&stall.client).await, &reply);
        }
        // The id alone is enough: it is a capability.
        same(&ask.clone().id(&offer.id).send(&stall.client).await, &reply);
    }
    assert_eq!(
        stall.facilitator.balance(wallet.address()),
        BALANCE - FLASH - PRO - FEE
    );
    assert_eq!(stall.facilitator.count("/settle"), 3);
    stall.agree(2, &[FLASH, PRO, FEE]).await;
}

// Issue: a caller that sends its own id and repeats the whole call is charged once
async fn an_own_id_makes_the_whole_call_repeatable(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    for (ask, _) in asks() {
        let id = uuid::Uuid::new_v4().to_string();
        let own = ask.clone().id(&id);
        let (offer, paid) = stall.paid(&own, &wallet).await;
        assert_eq!(offer.id, id);
        let reply = paid.send(&stall.client).await.expect(200);
        for _ in 0..2 {
            // What an unmodified client does: it asks without a payment, and finds no 402 to pay.
            same(&own.send(&stall.client).await, &reply);
        }
        // Upper case is the same id.
        let shouted = ask.clone().id(&id.to_uppercase());
        same(&shouted.send(&stall.client).await, &reply);
    }
    stall.agree(2, &[FLASH, PRO, FEE]).await;
}

async fn a_credential_of_the_other_protocol_pays_the_same_way(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let ask = Ask::list();
    let offer = ask.offer(&stall.client).await;
    let challenge = offer.challenge.clone().unwrap();
    assert_eq!(
        (&*challenge["id"], &*challenge["method"], &*challenge["intent"]),
        (&*offer.id, "evm", "charge")
    );
    let credential = wallet.credential(&offer);

    let pay = |credential: &Value| ask.clone().credential(credential);
    let refused = async |ask: Ask, problem: &str| {
        let again = Offer::read(ask.send(&stall.client).await.expect(402));
        let kind = again.reply.json()["type"].as_str().unwrap().to_owned();
        assert_eq!(kind, format!("https://paymentauth.org/problems/{problem}"));
        assert!(again.challenge.is_some(), "a fresh challenge");
    };
    let garbage = ask
        .clone()
        .with("authorization", "Payment bm90IGEgY3JlZGVudGlhbA");
    refused(garbage, "malformed-credential").await;
    refused(
        ask.clone().with("authorization", "Payment !!!"),
        "malformed-credential",
    )
    .await;
    let mut changed = credential.clone();
    changed["challenge"]["expires"] = json!("2099-01-01T00:00:00Z");
    refused(pay(&changed), "invalid-challenge").await;
    let mut other_nonce = credential.clone();
    other_nonce["payload"]["nonce"] = json!(format!("0x{}", "11".repeat(32)));
    refused(pay(&other_nonce), "verification-failed").await;
    let mut unsigned = credential.clone();
    unsigned["payload"]["signature"] = json!(format!("0x{}1b", "11".repeat(64)));
    refused(pay(&unsigned), "verification-failed").await;
    let mut other_type = credential.clone();
    other_type["payload"]["type"] = json!("transaction");
    refused(pay(&other_type), "invalid-payload").await;
    let mut other_source = credential.clone();
    other_source["source"] = json!(format!("did:pkh:{NETWORK}:{PAY_TO}"));
    refused(pay(&other_source), "verification-failed").await;
    // Of another body.
    let other = Ask::new(PAID_LIST, &json!({ "a": 1 })).credential(&credential);
    refused(other, "invalid-challenge").await;
    // The other operations are paid by x402 alone.
    let chat = Ask::chat("hi")
        .credential(&credential)
        .send(&stall.client)
        .await
        .expect(402);
    assert_eq!(Offer::read(chat).reason(), "method-unsupported");
    assert!(stall.facilitator.paid().is_empty());

    let paid = pay(&credential);
    let reply = paid.send(&stall.client).await.expect(200);
    let receipt = reply.header("payment-receipt").unwrap();
    let receipt: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(receipt).unwrap()).unwrap();
    let made = stall.facilitator.paid().pop().unwrap();
    assert_eq!(
        (&receipt["status"], &receipt["method"], &receipt["reference"]),
        (&json!("success"), &json!("evm"), &json!(made.hash))
    );
    assert!(payment_response(&reply).success);
    assert_eq!(stall.receipt(&reply).await["protocol"], "mpp");
    for _ in 0..2 {
        same(&paid.send(&stall.client).await, &reply);
    }
    stall.agree(0, &[FEE]).await;
}

async fn no_body_is_an_empty_object(store: Store) {
    let stall = Stall::new(store).await;
    let (offer, paid) = stall.paid(&Ask::list(), &Wallet::new()).await;
    let bare = || stall.client.request(Method::POST, PAID_LIST);
    bare().send().await.expect(402);
    let mut sent = bare();
    for (name, value) in &paid.headers {
        sent = sent.header(name, value);
    }
    let reply = sent.send().await.expect(200);
    same(&paid.send(&stall.client).await, &reply);
    let known = bare().header("x-svc-request-id", &offer.id).send().await;
    same(&known, &reply);
    stall.agree(0, &[FEE]).await;
}

async fn a_call_that_used_nothing_costs_nothing(store: Store) {
    let stall = Stall::new(store).await;
    stall
        .upstream
        .script(|seen| vec![completion(seen.number, &tokens(0, 0))]);
    let wallet = Wallet::new();
    let (_, paid) = stall.paid(&Ask::chat("hi"), &wallet).await;
    let reply = paid.send(&stall.client).await.expect(200);
    let response = payment_response(&reply);
    assert!(response.success);
    assert_eq!(
        (&*response.transaction, response.amount.as_deref()),
        ("", Some("0"))
    );
    same(&paid.send(&stall.client).await, &reply);
    assert_eq!(stall.receipt(&reply).await["amount"], "0");
    assert_eq!(stall.facilitator.count("/settle"), 0);
    stall.agree(1, &[]).await;
}

// Fault matrix 198
async fn the_receipt_is_for_who_knows_the_request(store: Store) {
    let stall = Stall::new(store).await;
    let mut replies = Vec::new();
    for _ in 0..2 {
        let (_, paid) = stall.paid(&Ask::list(), &Wallet::new()).await;
        replies.push(paid.send(&stall.client).await.expect(200));
    }
    let get = async |receipt: &str, request: Option<&str>| {
        let mut get = stall
            .client
            .request(Method::GET, &format!("/vendor/receipts/{receipt}"));
        if let Some(request) = request {
            get = get.header("x-svc-request-id", request);
        }
        get.send().await
    };
    let [receipt, other] = [0, 1].map(|at: usize| replies[at].header("x-svc-receipt-id").unwrap());
    let [id, _] = [0, 1].map(|at: usize| replies[at].header("x-svc-request-id").unwrap());
    let shown = get(receipt, Some(id)).await.expect(200);
    assert_eq!(shown.header("cache-control"), Some("no-store"));
    let nobodys = uuid::Uuid::new_v4().to_string();
    for (receipt, request) in [
        (other, id),
        (receipt, &*nobodys),
        (&*nobodys, id),
        (id, id),
        ("garbage", id),
    ] {
        get(receipt, Some(request)).await.refused(404, "NOT_FOUND");
    }
    get(receipt, None).await.refused(400, "VALIDATION_ERROR");
    get(receipt, Some("garbage"))
        .await
        .refused(400, "VALIDATION_ERROR");
    stall.agree(0, &[FEE, FEE]).await;
}

async fn an_answer_that_is_no_longer_kept_is_not_paid_again(store: Store) {
    let stall = Stall::new(store).await;
    let (offer, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    let first = paid.send(&stall.client).await.expect(200);
    for forgotten in ["UPDATE outcomes SET body = NULL", "DELETE FROM outcomes"] {
        stall.database.execute(forgotten).await;
        for ask in [&paid, &Ask::chat("hi").id(&offer.id)] {
            let gone = ask.send(&stall.client).await.refused(410, "RESULT_EXPIRED");
            assert_eq!(gone.json()["receipt"]["status"], "settled");
        }
    }
    assert_eq!(stall.receipt(&first).await["status"], "settled", "kept for good");
    stall.agree(1, &[FLASH]).await;
}

async fn simulated_payments_say_so(store: Store) {
    let site = Setup::new(store).simulated().start().await;
    site.upstream.script(crate::harness::stall::completes);
    let wallet = Wallet::new();
    for (ask, price) in asks() {
        let offer = ask.offer(&site.client).await;
        assert_eq!(offer.reply.header("x-svc-simulated"), Some("true"));
        let unsigned = wallet.pay_otherwise(&offer, |authorization| authorization.payer.0[0] ^= 1);
        let refused = ask
            .clone()
            .id(&offer.id)
            .signed(&unsigned)
            .send(&site.client)
            .await
            .expect(402);
        assert!(
            Offer::read(refused).reason().contains("signature"),
            "checked for real"
        );
        let paid = ask.paid(&offer, &wallet);
        let reply = paid.send(&site.client).await.expect(200);
        assert_eq!(reply.header("x-svc-simulated"), Some("true"));
        assert_eq!(payment_response(&reply).amount, Some(price.to_string()));
        same(&paid.send(&site.client).await, &reply);
    }
    assert_eq!(site.upstream.count(), 2);
}

// Fault matrix 185
async fn no_more_is_settled_than_was_authorised(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let mut most = Vec::new();
    for usage in [
        tokens(10, 100_000),
        json!(null),
        json!({ "prompt_tokens": -1, "completion_tokens": "many" }),
    ] {
        let usage_of = usage.clone();
        stall
            .upstream
            .script(move |seen| vec![completion(seen.number, &usage_of)]);
        let (offer, paid) = stall.paid(&Ask::chat("hi"), &wallet).await;
        let reply = paid.send(&stall.client).await.expect(200);
        let amount = payment_response(&reply).amount.unwrap();
        assert_eq!(amount, offer.terms().amount, "{usage}");
        most.push(offer.amount());
    }
    // What the first one used beyond it is the operator's loss: 10 and 2 × 100 000, less what was paid for.
    let beyond = 200_010 - i64::try_from(most[0]).unwrap();
    assert_eq!(stall.lost().await, beyond);
    stall.agree(3, &most).await;
}

async fn no_log_has_what_lets_an_answer_be_fetched(store: Store) {
    let stall = Stall::of(store, |setup| setup.set("telemetry.level", "info,turnpike=trace")).await;
    let wallet = Wallet::new();
    let mut secrets = Vec::new();
    for (number, (ask, _)) in asks().into_iter().enumerate() {
        let (offer, paid) = stall.paid(&ask, &wallet).await;
        if number == 1 {
            stall.upstream.always(vec![crate::harness::Step::Close]);
        }
        if number == 2 {
            stall
                .facilitator
                .break_times("/settle", crate::harness::facilitator::Fault::Status(500), 1);
        }
        paid.send(&stall.client).await;
        stall.ends(&paid).await;
        let payment = paid.headers.last().unwrap().1.clone();
        let signed: turnpike_core::x402::PaymentPayload =
            turnpike_core::x402::wire::from_header(&payment).unwrap();
        let signature = signed.payload["signature"].as_str().unwrap()[2..].to_owned();
        secrets.extend([offer.id.clone(), offer.id.replace('-', ""), signature, payment]);
    }
    let log = stall.service().logged();
    for secret in secrets {
        assert!(!log.contains(&secret), "the log has {secret}");
    }
    stall.agree(2, &[FLASH, FEE]).await;
}
