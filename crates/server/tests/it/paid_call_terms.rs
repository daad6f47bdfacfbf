//! What an unpaid request is told: the terms, and nothing is kept of it.

use serde_json::json;
use turnpike_core::x402::Scheme;

use crate::harness::Store;
use crate::harness::facilitator::{ASSET, NETWORK, PAY_TO};
use crate::harness::stall::Stall;
use crate::harness::wallet::{Offer, PAID_LIST};
use crate::on_both_stores;
use crate::paid_calls::asks;

on_both_stores!(an_unpaid_request_is_told_the_terms);

// Fault matrix 184, 196
async fn an_unpaid_request_is_told_the_terms(store: Store) {
    let stall = Stall::new(store).await;
    for (ask, _) in asks() {
        let sent = ask.by(&stall.client).header("origin", "https://anybody.example");
        let offer = Offer::read(sent.send().await.expect(402));
        let reply = &offer.reply;
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        assert_eq!(
            reply.header("access-control-allow-origin"),
            Some("https://anybody.example")
        );
        // Every header; nothing is sent with credentials, so that it means that.
        assert_eq!(reply.header("access-control-expose-headers"), Some("*"));
        assert!(reply.header("payment-required").unwrap().len() < 4096);
        assert_eq!(reply.header("x-svc-simulated"), None);
        let id: uuid::Uuid = offer.id.parse().unwrap();
        assert_eq!(id.get_version_num(), 7);

        let terms = offer.terms();
        assert_eq!(offer.required.x402_version, 2);
        assert_eq!(
            offer.required.resource.url,
            format!("http://127.0.0.1:8080{}", ask.path)
        );
        assert_eq!(
            (&*terms.network, &*terms.asset, &*terms.pay_to),
            (NETWORK, ASSET, PAY_TO)
        );
        assert_eq!(
            (&terms.extra["name"], &terms.extra["version"]),
            (&json!("USDC"), &json!("2"))
        );
        assert_eq!(terms.extra["svcRequestId"], offer.id);
        let is_list = ask.path == PAID_LIST;
        assert_eq!(terms.scheme == Scheme::Exact, is_list);
        assert_eq!(terms.extra.contains_key("facilitatorAddress"), !is_list);
        // Clients need more packages for an operation with extensions: ours is not the first.
        let extension = is_list.then(|| json!(offer.id));
        assert_eq!(
            offer
                .required
                .extensions
                .get("svc")
                .map(|own| own["info"]["requestId"].clone()),
            extension
        );
        assert_eq!(offer.challenge.is_some(), is_list);
        if is_list {
            assert_eq!(terms.amount, "3000");
        } else {
            // The budget alone is 128 of flash and 256 of pro; the rest bounds the prompt.
            assert!((128..2000).contains(&offer.amount()), "{}", offer.amount());
        }

        let problem = reply.json();
        let members: Vec<&str> = problem.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            members,
            [
                "type",
                "title",
                "status",
                "detail",
                "requestId",
                "maxAmount",
                "expiresAt"
            ]
        );
        assert_eq!(
            problem["type"],
            "https://paymentauth.org/problems/payment-required"
        );
        assert_eq!(
            (&problem["status"], &problem["requestId"]),
            (&json!(402), &json!(offer.id))
        );
        assert_eq!(problem["maxAmount"], json!(terms.amount));
        let ends: jiff::Timestamp = problem["expiresAt"].as_str().unwrap().parse().unwrap();
        assert!(ends > jiff::Timestamp::now());
    }
    stall.agree(0, &[]).await;
    assert_eq!(stall.facilitator.count("/verify"), 0);
}
