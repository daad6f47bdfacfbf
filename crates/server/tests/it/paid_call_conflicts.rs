//! A payment and a request id stand for one request each, and a wallet has so much open at most.

use serde_json::json;
use turnpike_core::x402::{PaymentPayload, wire};

use crate::harness::stall::{FLASH, Stall};
use crate::harness::wallet::{Ask, Wallet};
use crate::harness::{Setup, Store};
use crate::on_both_stores;
use crate::paid_call_faults::{asked, gated};

on_both_stores!(
    a_payment_pays_for_one_request_alone,
    an_id_stands_for_one_request_and_one_payment,
    a_wallet_may_have_so_much_open,
);

// Fault matrix 187, 198
async fn a_payment_pays_for_one_request_alone(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let ask = Ask::chat("hi");
    let first = ask.offer(&stall.client).await;
    let paid = ask.paid(&first, &wallet);
    paid.send(&stall.client).await.expect(200);
    let verified = stall.facilitator.count("/verify");
    let used = wallet.pay(&first);
    let spent: PaymentPayload = wire::from_header(&paid.headers.last().unwrap().1).unwrap();
    // The same signature on terms that were given for other requests.
    for other in [Ask::chat("hi"), Ask::chat("ho")] {
        let offer = other.offer(&stall.client).await;
        let mut payment = spent.clone();
        payment.accepted = offer.terms().clone();
        payment.extensions = None;
        let sent = other.id(&offer.id).signed(&payment);
        if offer.amount() == first.amount() {
            let reply = sent.send(&stall.client).await;
            reply.refused(409, "REQUEST_ID_CONFLICT");
        }
    }
    assert_eq!(
        stall.facilitator.count("/verify"),
        verified,
        "refused before anybody is asked"
    );
    // The same id for other requests: nothing of the answer is shown.
    for other in [
        Ask::chat("ho").id(&first.id),
        Ask::fim().id(&first.id),
        Ask::list().id(&first.id),
        ask.clone().id(&first.id).signed(&used),
        ask.clone().id(&first.id).signed(&Wallet::new().pay(&first)),
    ] {
        let reply = other
            .send(&stall.client)
            .await
            .refused(409, "REQUEST_ID_CONFLICT");
        assert!(!reply.text().contains("Hello"), "{}", reply.text());
    }
    stall.agree(1, &[FLASH]).await;
}

// Fault matrix 188
async fn an_id_stands_for_one_request_and_one_payment(store: Store) {
    let stall = Stall::new(store).await;
    let gate = gated(&stall);
    let (wallet, id) = (Wallet::new(), uuid::Uuid::new_v4().to_string());
    let ask = Ask::chat("hi").id(&id);
    let (offer, paid) = stall.paid(&ask, &wallet).await;
    let running = tokio::spawn(paid.by(&stall.client).send());
    asked(&stall, 1).await;
    // While it runs, and afterwards.
    for status in [202, 200] {
        assert_eq!(paid.send(&stall.client).await.status, status);
        assert_eq!(ask.send(&stall.client).await.status, status);
        let other = Ask::chat("ho").id(&id).send(&stall.client).await;
        other.refused(409, "REQUEST_ID_CONFLICT");
        let again = ask.paid(&offer, &wallet).send(&stall.client).await;
        again.refused(409, "REQUEST_ID_CONFLICT");
        if status == 202 {
            let reply = paid.send(&stall.client).await;
            assert!(reply.header("retry-after").is_some());
            let body = reply.json();
            assert_eq!(
                (&body["requestId"], &body["status"]),
                (&json!(id), &json!("dispatched"))
            );
            assert!(body["retryAfterMs"].is_u64());
            assert_eq!(reply.header("payment-required"), None);
            gate.open();
            stall.ends(&paid).await.expect(200);
        }
    }
    running.await.unwrap().expect(200);
    stall.agree(1, &[FLASH]).await;
}

async fn a_wallet_may_have_so_much_open(store: Store) {
    for (name, most) in [
        ("payments.max_open_calls", toml::Value::from(1)),
        ("payments.max_open_usd", toml::Value::from("0.0004")),
    ] {
        let stall = Stall::of(store, |setup: Setup| setup.set(name, most.clone())).await;
        let gate = gated(&stall);
        let wallet = Wallet::new();
        let (_, one) = stall.paid(&Ask::chat("one"), &wallet).await;
        let (offer, two) = stall.paid(&Ask::chat("two"), &wallet).await;
        assert!((201..400).contains(&offer.amount()), "{}", offer.amount());
        let running = tokio::spawn(one.by(&stall.client).send());
        asked(&stall, 1).await;
        let full = two.send(&stall.client).await.refused(429, "RATE_LIMITED");
        assert!(full.header("retry-after").is_some());
        // Another wallet has room.
        let (_, other) = stall.paid(&Ask::chat("three"), &Wallet::new()).await;
        let other = tokio::spawn(other.by(&stall.client).send());
        asked(&stall, 2).await;
        gate.open();
        running.await.unwrap().expect(200);
        other.await.unwrap().expect(200);
        two.send(&stall.client).await.expect(200);
        stall.agree(3, &[FLASH; 3]).await;
    }
}
