//! What strangers may read of the calls that are paid for by the call, from which pages, and under which path.

use http::Method;
use serde_json::{Value, json};

use crate::harness::facilitator::ASSET;
use crate::harness::stall::{FEE, Stall, completes};
use crate::harness::wallet::{Ask, Offer, PAID_CHAT, PAID_FIM, PAID_LIST, Wallet};
use crate::harness::{Reply, Setup, Site, Store};
use crate::on_both_stores;

on_both_stores!(
    without_payments_nothing_is_sold,
    the_documents_say_what_calls_cost,
    the_path_can_have_another_name,
    every_page_may_pay,
);

async fn get(site: &Site, path: &str) -> Reply {
    site.client.request(Method::GET, path).send().await
}

async fn without_payments_nothing_is_sold(store: Store) {
    let site = Site::new(store).await;
    for ask in [Ask::chat("hi"), Ask::fim(), Ask::list()] {
        ask.send(&site.client).await.refused(404, "NOT_FOUND");
        let own = ask.id(&uuid::Uuid::new_v4().to_string());
        own.send(&site.client).await.refused(404, "NOT_FOUND");
    }
    let receipt = format!("/vendor/receipts/{}", uuid::Uuid::new_v4());
    get(&site, &receipt).await.refused(404, "NOT_FOUND");
}

fn offers(document: &Value, segment: &str) {
    for (operation, amount) in [
        ("chat", Value::Null),
        ("fim", Value::Null),
        ("list-models", json!("3000")),
    ] {
        let operation = &document["paths"][format!("/{segment}/{operation}")]["post"];
        let offer = &operation["x-payment-info"];
        assert_eq!(
            (
                &offer["intent"],
                &offer["method"],
                &offer["amount"],
                &offer["currency"]
            ),
            (&json!("charge"), &json!("evm"), &amount, &json!(ASSET)),
            "{offer}"
        );
        assert!(operation["responses"]["402"].is_object(), "{operation}");
        assert!(operation["responses"]["200"].is_object(), "{operation}");
    }
    assert!(document["x-service-info"]["categories"].is_array());
    assert!(document["x-service-info"]["docs"].is_object());
}

/// Every reference leads somewhere.
fn refers(document: &Value, value: &Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let ("$ref", Some(target)) = (name.as_str(), member.as_str()) {
                    let pointer = target.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{target}");
                }
                refers(document, member);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| refers(document, item)),
        _ => {}
    }
}

async fn the_documents_say_what_calls_cost(store: Store) {
    let stall = Stall::new(store).await;
    let public = get(&stall, "/vendor/openapi.json").await.expect(200);
    assert!(public.body.len() < 64 * 1024, "{} bytes", public.body.len());
    assert!(public.header("cache-control").unwrap().contains("max-age=300"));
    let document = public.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    assert_eq!(document["info"]["version"], "1.0.0");
    offers(&document, "vendor");
    refers(&document, &document);
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(path.starts_with("/vendor/"), "{path}");
    }
    let whole = get(&stall, "/openapi.json").await.expect(200).json();
    offers(&whole, "vendor");
    assert!(whole["paths"]["/api/credits/balance"].is_object());
}

async fn the_path_can_have_another_name(store: Store) {
    let stall = Stall::of(store, |setup: Setup| {
        let mut setup = setup.set("server.vendor", "acme");
        setup.prices = setup.prices.replace("vendor-v4-", "acme-v4-");
        let provider = setup.config["providers"].as_array_mut().unwrap();
        let models = provider[0]["models"].as_array_mut().unwrap();
        models.extend(["acme-v4-flash", "acme-v4-pro"].map(toml::Value::from));
        setup
    })
    .await;
    let renamed = |ask: Ask| Ask {
        path: ask.path.replace("/vendor/", "/acme/"),
        body: String::from_utf8(ask.body.to_vec())
            .unwrap()
            .replace("vendor-v4", "acme-v4")
            .into(),
        headers: ask.headers,
    };
    let wallet = Wallet::new();
    for ask in [Ask::chat("hi"), Ask::fim(), Ask::list()] {
        let ask = renamed(ask);
        let (offer, paid) = stall.paid(&ask, &wallet).await;
        assert_eq!(
            offer.required.resource.url,
            format!("http://127.0.0.1:8080{}", ask.path)
        );
        paid.send(&stall.client).await.expect(200);
    }
    let (offer, paid) = stall.paid(&renamed(Ask::list()), &wallet).await;
    let reply = paid.send(&stall.client).await.expect(200);
    assert_eq!(reply.json()["data"][0]["id"], "acme-v4-flash");
    let receipt = format!("/acme/receipts/{}", reply.header("x-svc-receipt-id").unwrap());
    let receipt = stall.client.request(Method::GET, &receipt);
    receipt
        .header("x-svc-request-id", &offer.id)
        .send()
        .await
        .expect(200);
    let document = get(&stall, "/acme/openapi.json").await.expect(200).json();
    offers(&document, "acme");
    assert!(document.to_string().contains("acme-v4-pro"));
    assert!(!document.to_string().contains("vendor-v4-pro"));
    offers(&get(&stall, "/openapi.json").await.expect(200).json(), "acme");
    // The usual name is no name here.
    Ask::list().send(&stall.client).await.refused(404, "NOT_FOUND");
    get(&stall, "/vendor/openapi.json")
        .await
        .refused(404, "NOT_FOUND");
}

// Any origin may pay: a payment is no credential that a browser would send by itself
async fn every_page_may_pay(store: Store) {
    const PAGE: &str = "https://anybody.example";
    let stall = Stall::new(store).await;
    stall.upstream.script(completes);
    for path in [PAID_CHAT, PAID_FIM, PAID_LIST] {
        let preflight = stall.client.request(Method::OPTIONS, path);
        let preflight = preflight
            .header("origin", PAGE)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "payment-signature,x-svc-request-id,content-type,access-control-expose-headers",
            )
            .send()
            .await
            .expect(204);
        assert_eq!(preflight.header("access-control-allow-origin"), Some(PAGE));
        assert_eq!(preflight.header("access-control-allow-credentials"), None);
        let allowed = preflight
            .header("access-control-allow-headers")
            .unwrap()
            .to_ascii_lowercase();
        // Official clients send a response header's name along.
        for name in [
            "payment-signature",
            "x-svc-request-id",
            "content-type",
            "access-control-expose-headers",
        ] {
            assert!(allowed.contains(name), "{name}: {allowed}");
        }
    }
    let ask = Ask::list().with("origin", PAGE);
    let offer = Offer::read(ask.send(&stall.client).await.expect(402));
    let reply = ask
        .paid(&offer, &Wallet::new())
        .send(&stall.client)
        .await
        .expect(200);
    assert_eq!(reply.header("access-control-allow-origin"), Some(PAGE));
    // Elsewhere a page that nobody allowed stays outside.
    let other = stall.client.request(Method::OPTIONS, "/api/credits/balance");
    let other = other
        .header("origin", PAGE)
        .header("access-control-request-method", "GET");
    assert_eq!(other.send().await.header("access-control-allow-origin"), None);
    stall.agree(0, &[FEE]).await;
}
