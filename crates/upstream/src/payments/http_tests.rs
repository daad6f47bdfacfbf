//! A facilitator over a socket that misbehaves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::stand_in::{Done, reply, serve};
use super::*;
use crate::secret::Secret;

fn payment() -> SignedPayment {
    let vectors: Value = serde_json::from_str(include_str!("../../../core/src/x402/vectors.json")).unwrap();
    let payload: PaymentPayload = serde_json::from_value(vectors["cases"][0]["payment"].clone()).unwrap();
    let requirements = payload.accepted.clone();
    SignedPayment::read(payload, requirements).unwrap()
}

fn facilitator(url: &str) -> HttpFacilitator {
    let chain = ChainSettings::new(Secret::new("http://127.0.0.1:1/key-canary"), "eip155:84532");
    let settings = FacilitatorSettings {
        api_key: Some(Secret::new("canary-1")),
        connect_timeout: Duration::from_millis(500),
        verify_timeout: Duration::from_millis(300),
        settle_timeout: Duration::from_millis(400),
        ..FacilitatorSettings::new(url)
    };
    HttpFacilitator::new(&settings, ChainReader::new(&chain).unwrap()).unwrap()
}

async fn assert_unknown(url: &str) {
    let facilitator = facilitator(url);
    let verdict = facilitator.verify(&payment()).await;
    assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    let settled = facilitator.settle(&payment()).await;
    assert!(matches!(settled, Settled::Unknown(_)), "{settled:?}");
    assert!(facilitator.supported().await.is_err());
}

#[tokio::test]
async fn it_is_asked_in_the_protocols_words() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let url = serve(move |head, body| {
        log.lock().unwrap().push((head.to_owned(), body.clone()));
        if head.starts_with("GET /f/supported ") {
            reply(200, r#"{"kinds":[],"extensions":[],"signers":{}}"#)
        } else if head.starts_with("POST /f/verify ") {
            reply(200, r#"{"isValid":true}"#)
        } else {
            let transaction = format!("0x{}", "1".repeat(64));
            let done = json!({ "success": true, "transaction": transaction, "network": "eip155:84532" });
            reply(200, &done.to_string())
        }
    })
    .await;
    let facilitator = facilitator(&format!("{url}/f/"));
    assert_eq!(facilitator.verify(&payment()).await, Verdict::Valid);
    let Settled::Done(done) = facilitator.settle(&payment()).await else {
        panic!()
    };
    assert!(done.success);
    assert!(facilitator.supported().await.unwrap().kinds.is_empty());
    assert!(!facilitator.is_simulated());
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    let asked = json!({
        "x402Version": 2, "paymentPayload": payment().payload, "paymentRequirements": payment().requirements,
    });
    assert!(seen[1].0.starts_with("POST /f/settle "));
    for (head, body) in &seen[..2] {
        assert!(head.contains("authorization: Bearer canary-1"));
        assert!(head.contains("content-type: application/json"));
        assert_eq!(body, &asked);
    }
    let printed = format!("{facilitator:?}");
    assert!(!printed.contains("canary"), "{printed}");
}

// Fault matrix 194
#[tokio::test]
async fn every_broken_answer_is_unknown() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    assert_unknown(&format!("http://{closed}")).await;
    assert_unknown(&serve(|_, _| Done::Cut).await).await;
    assert_unknown(&serve(|_, _| Done::Silence).await).await;
    let huge =
        json!({ "isValid": true, "success": true, "kinds": [], "more": "x".repeat(70_000) }).to_string();
    assert_unknown(&serve(move |_, _| reply(200, &huge)).await).await;
    for (status, body) in [
        (500, r#"{"error":"rig fault"}"#),
        (502, "<html>"),
        (200, ""),
        (404, "{}"),
    ] {
        assert_unknown(&serve(move |_, _| reply(status, body)).await).await;
    }
    for head in [
        "HTTP/1.1 302 X\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 X\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 X\r\ncontent-length: 99\r\n\r\n{\"isValid\":true,\"success\":false",
        "not HTTP\r\n\r\n",
    ] {
        assert_unknown(&serve(move |_, _| Done::Sent(head.as_bytes().to_vec())).await).await;
    }
}

#[tokio::test]
async fn a_verification_does_not_wait_as_long_as_a_settlement() {
    let facilitator = facilitator(&serve(|_, _| Done::Silence).await);
    let began = Instant::now();
    assert!(matches!(
        facilitator.verify(&payment()).await,
        Verdict::Unknown(_)
    ));
    assert!(began.elapsed() < Duration::from_millis(395));
}

#[tokio::test]
async fn what_is_beyond_the_bound_is_not_sent() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let url = serve(move |head, _| {
        if head.starts_with("POST /settle") {
            return reply(200, r#"{"success":false,"errorReason":"x"}"#);
        }
        count.fetch_add(1, Ordering::SeqCst);
        Done::Silence
    })
    .await;
    let chain = ChainSettings::new(Secret::new(url.clone()), "eip155:84532");
    let facilitator = HttpFacilitator::new(&FacilitatorSettings::new(url), ChainReader::new(&chain).unwrap());
    let facilitator = Arc::new(facilitator.unwrap());
    let waiting: Vec<_> = (0..64)
        .map(|_| {
            let facilitator = Arc::clone(&facilitator);
            tokio::spawn(async move { facilitator.verify(&payment()).await })
        })
        .collect();
    while asked.load(Ordering::SeqCst) < 64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let Verdict::Unknown(why) = facilitator.verify(&payment()).await else {
        panic!()
    };
    assert!(why.starts_with("not sent"), "{why}");
    assert_eq!(asked.load(Ordering::SeqCst), 64);
    // Settlements have turns of their own.
    assert!(matches!(
        facilitator.settle(&payment()).await,
        Settled::Refused(_)
    ));
    for task in waiting {
        task.abort();
    }
}

#[tokio::test]
async fn addresses_that_are_none_are_refused() {
    let chain = |url: &str, network: &str| ChainReader::new(&ChainSettings::new(Secret::new(url), network));
    assert!(chain("http://127.0.0.1:1/v3/key?x=1", "eip155:1").is_ok());
    for bad in ["", "ftp://a", "127.0.0.1:8545", "http://user:word@a/", "/rpc"] {
        assert!(chain(bad, "eip155:1").is_err(), "{bad}");
        let reader = chain("http://127.0.0.1:1", "eip155:1").unwrap();
        assert!(
            HttpFacilitator::new(&FacilitatorSettings::new(bad), reader).is_err(),
            "{bad}"
        );
    }
    assert!(chain("http://a", "solana:1").is_err());
}
