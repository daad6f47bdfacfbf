//! Estimates: a price that is said before the call, and kept for exactly that call, once.

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::upstream::{answer, well};
use crate::harness::{Reply, Sender, Site, Store, TOOL, chat, micros, receipt};
use crate::on_both_stores;

on_both_stores!(
    a_quote_makes_one_call_at_its_price,
    a_price_that_moved_after_a_quote_dispatches_nothing,
    fifty_calls_at_once_with_one_quote_are_one_call,
    a_quote_fits_its_call_and_its_payer_alone,
    without_the_providers_word_there_is_a_ceiling_or_no_quote,
    an_estimate_that_is_asked_badly_is_refused,
    end_users_are_quoted_what_they_pay,
);

pub const ESTIMATE: &str = "/api/credits/tools/estimate";
const LIVE: &str = "/api/wrapped/credits/tools/live";
const TOKEN: &str = "x-svc-approval-token";

impl Site {
    /// A good estimate with the workspace's key.
    pub async fn estimate(&self, body: &Value) -> Value {
        self.post(ESTIMATE, body).send().await.expect(200).json()
    }

    /// Has the provider quote so many dollars from now on.
    fn quotes(&self, usd: &str) {
        let usd = usd.to_owned();
        self.upstream.script(move |seen| {
            if seen.path.ends_with("/quote") {
                return vec![answer(200, &[], json!({ "usd": usd }).to_string().as_bytes())];
            }
            well(seen)
        });
    }

    /// How many requests the provider saw for `path`.
    fn asked(&self, path: &str) -> usize {
        let seen = self.upstream.seen();
        seen.iter().filter(|seen| seen.path.ends_with(path)).count()
    }

    fn quoted(&self, path: &str, args: &Value, estimate: &Value, key: &str) -> Sender {
        let token = estimate["approvalToken"].as_str().unwrap();
        self.post(path, args).header(TOKEN, token).once(key)
    }
}

async fn a_quote_makes_one_call_at_its_price(store: Store) {
    let site = Site::new(store).await;
    let (before, args) = (site.settled().await, json!({ "id": "a", "big": "b" }));
    let estimate = site
        .estimate(
            &json!({ "slug": "tools/fetch", "args": args, "expiresInSeconds": 600, "maxChargeCredits": "8" }),
        )
        .await;
    let said = &estimate["estimate"];
    assert_eq!(
        (
            &said["slug"],
            &said["kind"],
            &said["priceUsd"],
            &said["priceCredits"]
        ),
        (
            &json!("tools/fetch"),
            &json!("exact"),
            &json!("0.008"),
            &json!("8")
        )
    );
    assert_eq!(said["requiresApproval"], false);
    assert!(estimate["expiresAt"].as_str().unwrap().ends_with('Z'));
    assert_eq!((site.settled().await, site.upstream.count()), (before, 0));
    let key = estimate["idempotencyKey"].as_str().unwrap();
    // The order of the members does not matter.
    let made = site
        .quoted(TOOL, &json!({ "big": "b", "id": "a" }), &estimate, key)
        .send()
        .await
        .expect(200);
    assert_eq!(receipt(&made).0, 8000);
    // A repeat is answered from what is stored, although the quote is used.
    let again = site
        .quoted(TOOL, &json!({ "big": "b", "id": "a" }), &estimate, key)
        .send()
        .await
        .expect(200);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.json()["data"], made.json()["data"]);
    // The token is part of what must be the same.
    let without = site
        .post(TOOL, &json!({ "big": "b", "id": "a" }))
        .once(key)
        .send()
        .await;
    without.refused(409, "IDEMPOTENCY_KEY_CONFLICT");
    let other = site.quoted(TOOL, &args, &estimate, "other").send().await;
    let body = other.refused(409, "QUOTE_REAPPROVAL_REQUIRED").json();
    assert_eq!(
        (&body["reason"], &body["quoteStatus"]),
        (&json!("consumed"), &json!("consumed"))
    );
    let path = format!("{ESTIMATE}/{}", said["id"].as_str().unwrap());
    let cancel = |path: &str| site.client.request(Method::DELETE, path).bearer(&site.key);
    cancel(&path).send().await.refused(409, "REQUEST_FAILED");
    assert_eq!((site.settled().await, site.upstream.count()), (before - 8000, 1));

    // Withdrawn, it is of no use any more.
    let estimate = site
        .estimate(&json!({ "slug": "tools/units", "args": { "count": 3 } }))
        .await;
    assert_eq!(estimate["estimate"]["priceUsd"], "0.006");
    let path = format!("{ESTIMATE}/{}", estimate["estimate"]["id"].as_str().unwrap());
    for _ in 0..2 {
        let canceled = cancel(&path).send().await.expect(200).json();
        assert_eq!(canceled["estimate"]["status"], "canceled");
    }
    let units = "/api/wrapped/credits/tools/units";
    let call = site.quoted(units, &json!({ "count": 3 }), &estimate, "units");
    let body = call.send().await.refused(409, "QUOTE_REAPPROVAL_REQUIRED").json();
    assert_eq!(body["reason"], "canceled");
    assert_eq!((site.settled().await, site.upstream.count()), (before - 8000, 1));
}

// A price that moved after a quote: 409, nothing dispatched
async fn a_price_that_moved_after_a_quote_dispatches_nothing(store: Store) {
    let site = Site::new(store).await;
    let (before, args) = (site.settled().await, json!({ "q": 1 }));
    site.quotes("0.1");
    let estimate = site
        .estimate(&json!({ "slug": "tools/live", "args": args }))
        .await;
    let said = &estimate["estimate"];
    assert_eq!(
        (&said["kind"], &said["priceUsd"]),
        (&json!("exact"), &json!("0.1"))
    );
    site.quotes("0.100001");
    for key in ["k", "k", "other"] {
        let call = site.quoted(LIVE, &args, &estimate, key).send().await;
        let body = call.refused(409, "QUOTE_REAPPROVAL_REQUIRED").json();
        assert_eq!(
            (&body["reason"], &body["quotedUsd"], &body["priceUsd"]),
            (&json!("price_moved"), &json!("0.1"), &json!("0.100001"))
        );
    }
    assert_eq!((site.settled().await, site.asked("/live")), (before, 0));
    // The quote is still there, and a lower price is the price.
    site.quotes("0.05");
    let made = site.quoted(LIVE, &args, &estimate, "k").send().await.expect(200);
    assert_eq!((receipt(&made).0, site.asked("/live")), (50_000, 1));
    assert_eq!(site.settled().await, before - 50_000);
    // Without a quote the price of the moment is the price.
    site.quotes("0.2");
    let plain = site.post(LIVE, &args).once("plain").send().await.expect(200);
    assert_eq!(receipt(&plain).0, 200_000);
}

async fn fifty_calls_at_once_with_one_quote_are_one_call(store: Store) {
    let site = Site::new(store).await;
    let before = site.settled().await;
    let estimate = site.estimate(&json!({ "slug": "tools/fetch", "args": {} })).await;
    let mut calls = JoinSet::new();
    for number in 0..50 {
        let call = site.quoted(TOOL, &json!({}), &estimate, &format!("k{number}"));
        calls.spawn(call.send());
    }
    let replies: Vec<Reply> = calls.join_all().await;
    let good = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(good, 1);
    for reply in replies.into_iter().filter(|reply| reply.status != 200) {
        reply.refused(409, "QUOTE_REAPPROVAL_REQUIRED");
    }
    assert_eq!((site.settled().await, site.upstream.count()), (before - 8000, 1));
}

async fn a_quote_fits_its_call_and_its_payer_alone(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    site.grant("1", Some("bob"));
    let (alice, bob) = (
        site.token("alice", &json!({})).await,
        site.token("bob", &json!({})).await,
    );
    let body = json!({ "slug": "tools/fetch", "args": { "id": "a" } });
    let ask = site
        .client
        .request(Method::POST, ESTIMATE)
        .bearer(&alice)
        .json(&body);
    let estimate = ask.send().await.expect(200).json();
    let token = estimate["approvalToken"].as_str().unwrap().to_owned();
    let call = |bearer: &str, path: &str, args: Value, token: &str| {
        let call = site.client.request(Method::POST, path).bearer(bearer).json(&args);
        call.header(TOKEN, token).once("k")
    };
    let right = json!({ "id": "a" });
    let refused = call(&bob, TOOL, right.clone(), &token).send().await;
    refused.refused(403, "POLICY_DENIED");
    let refused = call(&site.key, TOOL, right.clone(), &token).send().await;
    refused.refused(403, "POLICY_DENIED");
    let refused = call(&alice, TOOL, json!({ "id": "b" }), &token).send().await;
    refused.refused(400, "VALIDATION_ERROR");
    let refused = call(&alice, "/api/wrapped/credits/tools/item", right.clone(), &token);
    refused.send().await.refused(400, "VALIDATION_ERROR");
    let mut forged = token.clone();
    forged.replace_range(
        60..,
        if token.ends_with("AAAAAAA") {
            "BBBBBBB"
        } else {
            "AAAAAAA"
        },
    );
    call(&alice, TOOL, right.clone(), &forged)
        .send()
        .await
        .refused(404, "NOT_FOUND");
    for bad in ["", "qt_", "nonsense", &"x".repeat(201)] {
        let refused = call(&alice, TOOL, right.clone(), bad).send().await;
        refused.refused(400, "VALIDATION_ERROR");
    }
    let twice = call(&alice, TOOL, right.clone(), &token).header(TOKEN, &token);
    twice.send().await.refused(400, "VALIDATION_ERROR");
    let chatting = site.chat(&chat("flat", "hi")).header(TOKEN, &token).send().await;
    chatting.refused(400, "VALIDATION_ERROR");
    // Another end user cannot withdraw it, the workspace can.
    let path = format!("{ESTIMATE}/{}", estimate["estimate"]["id"].as_str().unwrap());
    let cancel = |bearer: &str| site.client.request(Method::DELETE, &path).bearer(bearer);
    cancel(&bob).send().await.refused(404, "NOT_FOUND");
    assert_eq!(site.upstream.count(), 0);
    call(&alice, TOOL, right, &token).send().await.expect(200);
    cancel(&site.key).send().await.refused(409, "REQUEST_FAILED");
    for unknown in ["x", "0190a0b0-0000-7000-8000-000000000000"] {
        let path = format!("{ESTIMATE}/{unknown}");
        let gone = site.client.request(Method::DELETE, &path).bearer(&site.key);
        gone.send().await.refused(404, "NOT_FOUND");
    }
}

async fn without_the_providers_word_there_is_a_ceiling_or_no_quote(store: Store) {
    let site = Site::new(store).await;
    let args = json!({ "q": 1 });
    // The provider gives no price.
    let estimate = site
        .estimate(&json!({ "slug": "tools/live", "args": args }))
        .await;
    let said = &estimate["estimate"];
    assert_eq!(
        (&said["kind"], &said["priceUsd"]),
        (&json!("ceiling"), &json!("1"))
    );
    let plain = site.post(LIVE, &args).once("plain").send().await;
    plain.refused(503, "PRICE_UNAVAILABLE");
    // Who agreed to the ceiling pays what the provider says in the end, or the ceiling.
    site.quotes("0.3");
    let made = site.quoted(LIVE, &args, &estimate, "k").send().await.expect(200);
    assert_eq!(receipt(&made).0, 300_000);
    site.upstream.heal();
    let estimate = site
        .estimate(&json!({ "slug": "tools/live", "args": args }))
        .await;
    let made = site
        .quoted(LIVE, &args, &estimate, "again")
        .send()
        .await
        .expect(200);
    assert_eq!(receipt(&made).0, 1_000_000);
    // Above what the service sells it for, or above what the caller wants to pay, there is no quote.
    site.quotes("1.5");
    let none = site
        .estimate(&json!({ "slug": "tools/live", "args": args }))
        .await;
    assert_eq!(none["estimate"]["kind"], "unavailable");
    assert_eq!(
        (&none["estimate"]["id"], none.get("approvalToken")),
        (&Value::Null, None)
    );
    let none = site
        .estimate(&json!({ "slug": "tools/fetch", "args": {}, "maxChargeCredits": "7.999" }))
        .await;
    assert_eq!(
        (&none["estimate"]["kind"], &none["estimate"]["priceUsd"]),
        (&json!("unavailable"), &json!("0.008"))
    );
    assert!(
        none["estimate"]["reason"]
            .as_str()
            .unwrap()
            .contains("maxChargeCredits")
    );
    // A sandbox key gets a price and no quote, and asks nobody.
    let sandbox = site.new_key("sandbox", &[]);
    let seen = site.upstream.count();
    for (slug, kind) in [("tools/fetch", "exact"), ("tools/live", "unavailable")] {
        let ask = site.client.request(Method::POST, ESTIMATE).bearer(&sandbox);
        let said = ask.json(&json!({ "slug": slug })).send().await.expect(200).json();
        assert_eq!(
            (&said["estimate"]["kind"], said.get("approvalToken")),
            (&json!(kind), None)
        );
    }
    assert_eq!(site.upstream.count(), seen);
    assert_eq!(site.database.number("SELECT COUNT(*) FROM quotes").await, 2);
}

async fn an_estimate_that_is_asked_badly_is_refused(store: Store) {
    let site = Site::new(store).await;
    for (body, status, code) in [
        (json!({}), 400, "VALIDATION_ERROR"),
        (json!({ "slug": "fetch" }), 400, "VALIDATION_ERROR"),
        (json!({ "slug": "tools/" }), 400, "VALIDATION_ERROR"),
        (
            json!({ "slug": "tools/fetch", "args": [] }),
            400,
            "VALIDATION_ERROR",
        ),
        (
            json!({ "slug": "tools/fetch", "args": null }),
            400,
            "VALIDATION_ERROR",
        ),
        (json!({ "slug": "tools/fetch", "more": 1 }), 400, "UNKNOWN_FIELD"),
        (
            json!({ "slug": "tools/fetch", "expiresInSeconds": 29 }),
            400,
            "VALIDATION_ERROR",
        ),
        (
            json!({ "slug": "tools/fetch", "expiresInSeconds": 601 }),
            400,
            "VALIDATION_ERROR",
        ),
        (
            json!({ "slug": "tools/fetch", "maxChargeCredits": 8 }),
            400,
            "VALIDATION_ERROR",
        ),
        (
            json!({ "slug": "tools/fetch", "externalUserId": "../x" }),
            400,
            "VALIDATION_ERROR",
        ),
        (
            json!({ "slug": "tools/fetch", "externalUserId": "nobody" }),
            404,
            "END_USER_NOT_FOUND",
        ),
        (json!({ "slug": "tools/none" }), 404, "ENDPOINT_NOT_FOUND"),
        (json!({ "slug": "none/fetch" }), 404, "ENDPOINT_NOT_FOUND"),
    ] {
        site.post(ESTIMATE, &body).send().await.refused(status, code);
    }
    let bad = json!({ "slug": "tools/units", "args": { "count": "x" } });
    let refused = site
        .post(ESTIMATE, &bad)
        .send()
        .await
        .refused(400, "VALIDATION_ERROR");
    assert_eq!(refused.json()["details"][0]["path"], "args/count");
    let off = json!({ "enabled": false });
    let put = site
        .client
        .request(Method::PUT, "/api/credits/catalog/tools/fetch");
    put.bearer(&site.key).json(&off).send().await.expect(200);
    let refused = site
        .post(ESTIMATE, &json!({ "slug": "tools/fetch" }))
        .send()
        .await;
    refused.refused(403, "ENDPOINT_DISABLED");
    assert_eq!(site.upstream.count(), 0);
}

async fn end_users_are_quoted_what_they_pay(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    let prices = json!({ "pricing": { "global": { "markupBps": 2500, "flatMarkupUsdc": "0.001" } } });
    let put = site.as_member(&owner, Method::PUT, "/api/credits/tenants/me/settings");
    put.json(&prices).send().await.expect(200);
    site.grant("1", Some("alice"));
    // The settings are seen everywhere within a second.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let body = json!({ "slug": "tools/fetch", "externalUserId": "alice" });
    let estimate = site.estimate(&body).await;
    assert_eq!(estimate["estimate"]["priceUsd"], "0.011");
    let token = estimate["approvalToken"].as_str().unwrap();
    let call = site.post(TOOL, &json!({})).paid_by("alice").header(TOKEN, token);
    let made = call.once("k").send().await.expect(200);
    assert_eq!(receipt(&made), (11_000, micros("0.989")));
    // Header and body must agree, and a token is its own end user's.
    let both = site.post(ESTIMATE, &body).paid_by("bob").send().await;
    both.refused(400, "VALIDATION_ERROR");
    let token = site.token("bob", &json!({})).await;
    let ask = site
        .client
        .request(Method::POST, ESTIMATE)
        .bearer(&token)
        .json(&body);
    ask.send().await.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    // What the policy does not name is not quoted.
    site.limit("alice", &json!({ "allowedTools": ["up/*"] })).await;
    site.post(ESTIMATE, &body)
        .send()
        .await
        .refused(403, "POLICY_DENIED");
}
