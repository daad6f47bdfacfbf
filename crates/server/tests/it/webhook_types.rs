//! Every type of event: provoked, told to an endpoint that wants just that type, with the members it promises.

use serde_json::{Value, json};

use crate::drift::{import, metered, usd};
use crate::harness::hooks::{Receiver, millis};
use crate::harness::payments::Shop;
use crate::harness::upstream::{answer, completion, tokens};
use crate::harness::{Setup, Site, Store, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    each_type_arrives_where_only_it_is_wanted,
    a_low_balance_is_told_once_per_crossing,
);

/// A type, the members of its payload besides those that all have, and those that may be absent.
type Shape = (&'static str, &'static [&'static str], &'static [&'static str]);

const OF_ALL: [&str; 3] = ["externalUserId", "reference", "occurredAt"];

const DRIFT: &[&str] = &[
    "driftId",
    "provider",
    "windowStart",
    "windowEnd",
    "meteredUsd",
    "providerUsd",
    "driftUsd",
    "driftBps",
    "thresholdBps",
];

/// What is promised of each type (decisions 11).
const SHAPES: &[Shape] = &[
    (
        "credits.topup.completed",
        &[
            "amountUsd",
            "balanceUsd",
            "source",
            "metadata",
            "bonusUsd",
            "sessionId",
            "feeUsd",
            "amountCredits",
            "balanceCredits",
        ],
        &[],
    ),
    (
        "credits.topup.failed",
        &[
            "amountUsd",
            "source",
            "sessionId",
            "failureCode",
            "failureMessage",
            "metadata",
        ],
        &[],
    ),
    (
        "credits.burn.completed",
        &[
            "callId",
            "provider",
            "endpoint",
            "chargedUsd",
            "chargedCredits",
            "balanceUsd",
            "baseUsd",
            "marginUsd",
            "attribution",
            "usage",
        ],
        &["model"],
    ),
    (
        "credits.burn.failed",
        &[
            "callId",
            "provider",
            "endpoint",
            "reservedUsd",
            "releasedUsd",
            "reason",
        ],
        &[],
    ),
    (
        "credits.refund.issued",
        &[
            "refundId",
            "kind",
            "amountUsd",
            "balanceUsd",
            "originalReference",
            "reason",
            "status",
        ],
        &["creditsUsd"],
    ),
    (
        "credits.dispute.opened",
        &["disputeId", "amountUsd", "reason", "dueBy"],
        &[],
    ),
    (
        "credits.dispute.closed",
        &[
            "disputeId",
            "amountUsd",
            "reason",
            "dueBy",
            "outcome",
            "debitedUsd",
        ],
        &[],
    ),
    (
        "credits.balance.changed",
        &["previousUsd", "balanceUsd", "deltaUsd", "cause", "entryId"],
        &[],
    ),
    ("credits.balance.low", &["balanceUsd", "thresholdUsd"], &[]),
    ("credits.account.frozen", &["reason", "balanceUsd"], &[]),
    ("credits.usage_drift.detected", DRIFT, &[]),
    (
        "credits.usage_drift.resolved",
        &[
            "driftId",
            "provider",
            "windowStart",
            "windowEnd",
            "meteredUsd",
            "providerUsd",
            "driftUsd",
            "driftBps",
            "thresholdBps",
            "resolution",
            "resolvedAt",
        ],
        &[],
    ),
];

/// Makes something of everything happen.
async fn provoke(shop: &Shop) {
    let low = json!({ "lowBalance": { "poolUsd": "5" } });
    shop.settings(&low).await.expect(200);
    let (session, _) = shop.bought("5").await;
    shop.chat(&chat("flat", "hi")).send().await.expect(200);
    shop.upstream.always(vec![answer(400, &[], b"{}")]);
    assert!(shop.chat(&chat("flat", "hi")).send().await.status >= 400);
    shop.upstream.heal();
    provoke_drift(shop).await;
    let late = shop.open("5").await;
    shop.stripe.pay_later(&shop.page(&late));
    shop.deliver().await;
    shop.stripe.async_fail(&shop.page(&late));
    shop.deliver().await;
    shop.refund(&session, &json!({ "usd": "1" }), "a-refund")
        .await
        .expect(200);
    shop.deliver().await;
    let (_, payment) = shop.bought("7").await;
    let named = shop.stripe.open_dispute(&payment, 700);
    shop.deliver().await;
    shop.stripe.close_dispute(&named, false);
    shop.deliver().await;
    shop.grant("1", Some("alice"));
    let freeze = shop.about(http::Method::POST, "alice", "/freeze");
    freeze
        .json(&json!({ "reason": "looks odd" }))
        .send()
        .await
        .expect(200);
}

/// Has the provider report more than it may, and bill what was metered.
async fn provoke_drift(shop: &Shop) {
    shop.upstream
        .script(|seen| vec![completion(seen.number, &tokens(10, 900_000))]);
    shop.chat(&chat("tokens", "hi")).send().await.expect(200);
    shop.upstream.heal();
    let detected = eventually("the drift is told of", || async {
        shop.events("credits.usage_drift.detected").pop()
    })
    .await;
    let day = detected["data"]["windowStart"].as_str().unwrap()[..10].to_owned();
    let billed = usd(metered(&shop.site));
    import(&shop.site, "invoice.csv", &format!("date,cost\n{day},{billed}\n"));
}

/// Checks a payload against what is promised.
fn check(shape: &Shape, data: &Value) {
    let (kind, promised, optional) = shape;
    let members = data.as_object().unwrap();
    for name in OF_ALL.iter().chain(*promised) {
        assert!(members.contains_key(*name), "{kind} lacks {name}: {data:#}");
    }
    for (name, value) in members {
        assert!(
            OF_ALL
                .iter()
                .chain(*promised)
                .chain(*optional)
                .any(|known| known == name),
            "{kind} has {name}: {data:#}"
        );
        if name.ends_with("Usd") || name.ends_with("Credits") {
            let text = value
                .as_str()
                .unwrap_or_else(|| panic!("{kind}: {name} is {value}"));
            let digits = text.strip_prefix('-').unwrap_or(text);
            assert!(
                digits
                    .chars()
                    .all(|letter| letter.is_ascii_digit() || letter == '.'),
                "{kind}: {name} is {text}"
            );
        }
    }
    assert!(millis(&data["occurredAt"]) > 0);
    assert!(data["reference"].is_string(), "{kind}: {data:#}");
}

// Specification 6, decisions 11
async fn each_type_arrives_where_only_it_is_wanted(store: Store) {
    let shop = Shop::of(store, |setup| {
        setup.without_fees().hooked().set("drift.interval_secs", 1)
    })
    .await;
    let receiver = Receiver::start().await;
    for (kind, _, _) in SHAPES {
        shop.hook(&receiver.url(&format!("/{kind}")), Some(&[kind])).await;
    }
    provoke(&shop).await;
    for shape in SHAPES {
        let kind = shape.0;
        let written = shop.events(kind);
        assert!(!written.is_empty(), "nothing provoked {kind}");
        let messages = eventually(&format!("{kind} arrives"), || async {
            let messages = receiver.at(&format!("/{kind}"));
            (messages.len() >= written.len()).then_some(messages)
        })
        .await;
        assert_eq!(messages.len(), written.len(), "{kind}");
        for message in messages {
            let body = message.json();
            assert_eq!(body["type"], kind);
            check(shape, &body["data"]);
            let stored = written.iter().find(|event| event["id"] == body["id"]).unwrap();
            assert_eq!(stored["data"], body["data"]);
            assert_eq!(shop.event(message.id()).await["data"], body["data"]);
        }
    }
}

/// The balances that were told to be low, and how many messages about that arrived.
async fn low(site: &Site, receiver: &Receiver, count: usize) -> Vec<Value> {
    assert_eq!(site.events("credits.balance.low").len(), count);
    let messages = receiver.arrived(count).await;
    messages
        .iter()
        .map(|message| message.json()["data"]["balanceUsd"].clone())
        .collect()
}

// Decisions 11
async fn a_low_balance_is_told_once_per_crossing(store: Store) {
    let site = Setup::new(store).hooked().start().await;
    let receiver = Receiver::start().await;
    site.hook(&receiver.url("/"), Some(&["credits.balance.low"]))
        .await;
    let put = site
        .client
        .request(http::Method::PUT, "/api/credits/tenants/me/settings")
        .bearer(&site.key);
    let threshold = json!({ "lowBalance": { "poolUsd": "9.98" } });
    put.json(&threshold).send().await.expect(200);
    let call = async || {
        site.chat(&chat("flat", "hi")).send().await.expect(200);
    };
    call().await;
    call().await;
    assert!(
        low(&site, &receiver, 0).await.is_empty(),
        "at the threshold is not below it"
    );
    call().await;
    assert_eq!(low(&site, &receiver, 1).await, [json!("9.97")]);
    call().await;
    site.grant("0.005", None);
    assert_eq!(low(&site, &receiver, 1).await.len(), 1, "it stayed below");
    site.grant("0.02", None);
    call().await;
    assert_eq!(low(&site, &receiver, 2).await[1], json!("9.975"));
    call().await;
    assert_eq!(low(&site, &receiver, 2).await.len(), 2);
}
