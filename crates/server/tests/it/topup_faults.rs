//! A processor that fails, hangs, or loses its answers while a checkout is opened: there is one page, or none.

use serde_json::{Value, json};

use crate::harness::Store;
use crate::harness::payments::{Shop, TOPUPS};
use crate::harness::stripe::Fault;
use crate::on_both_stores;

on_both_stores!(
    a_passing_fault_is_repeated_under_one_key,
    a_lasting_fault_is_a_503_and_the_same_key_goes_on,
    a_row_without_a_page_is_given_one_by_the_sweep,
    a_refused_page_ends_the_top_up,
    a_processor_that_is_away_is_a_503_and_loses_nothing,
);

/// The keys and bodies of the requests that made pages.
fn attempts(shop: &Shop) -> Vec<(String, String)> {
    let made = shop.stripe.requests().into_iter();
    let made = made.filter(|request| request.method == "POST" && request.path == "/v1/checkout/sessions");
    made.map(|request| (request.idempotency_key().unwrap().to_owned(), request.body))
        .collect()
}

/// The workspace's only top-up.
async fn only(shop: &Shop) -> Value {
    let list = shop.get(TOPUPS).send().await.expect(200).json();
    let list = list["data"].as_array().unwrap();
    assert_eq!(list.len(), 1, "{list:?}");
    list[0].clone()
}

async fn credited_once(shop: &Shop, session: &str) {
    shop.pay(session);
    shop.deliver().await;
    assert_eq!(shop.topup(session).await["status"], "completed");
    assert_eq!(
        (shop.pool().await, shop.told(&["credits.topup.completed"])),
        ((5_000_000, 0), vec![1])
    );
}

// Fault matrix 106
async fn a_passing_fault_is_repeated_under_one_key(store: Store) {
    for fault in [
        Fault::Status(500),
        Fault::Status(429),
        Fault::Status(503),
        Fault::InUse,
        Fault::Cut,
        Fault::DoneThenCut,
        Fault::DoneThenStatus(500),
        Fault::DoneThenGarbage,
    ] {
        let shop = Shop::new(store).await;
        shop.stripe.fail_next(2, fault);
        let session = shop.open("5").await;
        let attempts = attempts(&shop);
        assert_eq!(attempts.len(), 3, "{fault:?}");
        assert!(
            attempts.iter().all(|attempt| *attempt == attempts[0]),
            "{fault:?}: {attempts:?}"
        );
        assert_eq!(shop.stripe.made("checkout.session"), 1, "{fault:?}");
        credited_once(&shop, &session).await;
    }
}

// Fault matrix 106
async fn a_lasting_fault_is_a_503_and_the_same_key_goes_on(store: Store) {
    for fault in [Fault::Status(429), Fault::Status(500), Fault::DoneThenCut] {
        let shop = Shop::new(store).await;
        shop.stripe.fail_next(6, fault);
        for _ in 0..2 {
            let refused = shop.ask(&json!({ "usd": "5" })).once("k").send().await;
            let refused = refused.refused(503, "SERVICE_UNAVAILABLE");
            assert!(refused.header("retry-after").is_some());
        }
        assert_eq!(only(&shop).await["status"], "open");
        let opened = shop
            .ask(&json!({ "usd": "5" }))
            .once("k")
            .send()
            .await
            .expect(200)
            .json();
        let session = opened["sessionId"].as_str().unwrap();
        assert_eq!(only(&shop).await["sessionId"], session);
        let attempts = attempts(&shop);
        assert!(attempts.len() == 7 && attempts.iter().all(|attempt| *attempt == attempts[0]));
        assert_eq!(shop.stripe.made("checkout.session"), 1, "{fault:?}");
        credited_once(&shop, session).await;
    }
}

// Fault matrix 106
async fn a_row_without_a_page_is_given_one_by_the_sweep(store: Store) {
    let shop = Shop::of(store, |setup| setup.without_fees().swept()).await;
    shop.stripe.fail_next(7, Fault::DoneThenStatus(500));
    let asked = shop.ask(&json!({ "usd": "5" })).send().await;
    asked.refused(503, "SERVICE_UNAVAILABLE");
    let session = crate::harness::eventually("the row has its page", || async {
        let topup = only(&shop).await;
        topup["url"]
            .is_string()
            .then(|| topup["sessionId"].as_str().unwrap().to_owned())
    })
    .await;
    credited_once(&shop, &session).await;
    assert_eq!(shop.stripe.made("checkout.session"), 1);
}

// Fault matrix 106: refused for good
async fn a_refused_page_ends_the_top_up(store: Store) {
    let shop = Shop::new(store).await;
    shop.stripe.fail_next(1, Fault::Status(400));
    let refused = shop.ask(&json!({ "usd": "5" })).once("k").send().await;
    refused.refused(502, "UPSTREAM_ERROR");
    let topup = only(&shop).await;
    assert_eq!(
        (&topup["status"], &topup["url"]),
        (&json!("failed"), &Value::Null)
    );
    assert_eq!(shop.told(&["credits.topup.failed"]), [1]);
    // The key's top-up is over, and a repeat says so instead of opening another.
    let again = shop.ask(&json!({ "usd": "5" })).once("k").send().await;
    again.refused(502, "UPSTREAM_ERROR");
    assert_eq!(only(&shop).await["sessionId"], topup["sessionId"]);
    assert_eq!(
        (attempts(&shop).len(), shop.stripe.made("checkout.session")),
        (1, 0)
    );
}

// Fault matrix 106: no connection
async fn a_processor_that_is_away_is_a_503_and_loses_nothing(store: Store) {
    // A port on which nobody listens.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let away = format!("http://{nobody}");
    let mut shop = Shop::of(store, |setup| {
        setup.without_fees().set("processor.api_base", away.as_str())
    })
    .await;
    let refused = shop.ask(&json!({ "usd": "5" })).once("k").send().await;
    refused.refused(503, "SERVICE_UNAVAILABLE");
    let session = only(&shop).await["sessionId"].as_str().unwrap().to_owned();
    let back = std::fs::read_to_string(&shop.config)
        .unwrap()
        .replace(&away, &shop.stripe.url());
    std::fs::write(&shop.config, back).unwrap();
    shop.restart(&[]).await;
    let opened = shop
        .ask(&json!({ "usd": "5" }))
        .once("k")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(opened["sessionId"], session.as_str());
    credited_once(&shop, &session).await;
}
