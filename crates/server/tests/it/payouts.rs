//! Margin that end users' calls earn, paid out to an address on a chain by the operator.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::harness::operate;
use crate::harness::payouts::{ADDRESS, PAYOUTS};
use crate::harness::upstream::{sse_content, sse_done, sse_head};
use crate::harness::{Gate, Site, Step, Store, chat_stream, eventually};
use crate::on_both_stores;

on_both_stores!(
    margin_goes_out_to_an_address_by_the_operators_hand,
    parallel_payouts_never_overdraw_the_margin,
    one_key_is_one_payout,
    what_cannot_be_paid_out_is_refused_and_moves_nothing,
    a_payout_is_canceled_while_nobody_sends_it,
    a_workspace_that_is_not_active_is_not_paid_out,
    payouts_are_listed_page_by_page_and_to_their_workspace_alone,
    margin_of_a_stream_that_runs_is_shown_apart_and_not_paid_out,
);

fn id_of(payout: &Value) -> String {
    payout["payoutId"].as_str().unwrap().to_owned()
}

/// Runs an operator's command about a payout; says whether it was done, and what was said.
fn tell(site: &Site, command: &str, id: &str, more: &[&str]) -> (bool, String) {
    let mut args = vec!["payout", command, "--tenant", &site.tenant, id];
    args.extend(more);
    let (status, _, said) = operate(&site.config, &site.data, &args);
    (status.success(), said)
}

// Decisions 10: margin is its own account, stablecoin is the method by default
async fn margin_goes_out_to_an_address_by_the_operators_hand(store: Store) {
    let site = Site::new(store).await;
    site.earn("5.000001").await;
    let account = site.margin().await;
    assert_eq!(
        (&account["availableUsd"], &account["method"], &account["minUsd"]),
        (&json!("5.000001"), &json!("stablecoin"), &json!("1"))
    );
    assert_eq!(account["stablecoin"], Value::Null);
    assert_eq!(account["processor"]["connected"], false);
    let nowhere = site.pay_out(&json!({})).send().await;
    nowhere.refused(400, "VALIDATION_ERROR");
    site.to_stablecoin().await;
    let first = site.paid_out(&json!({ "usd": "2" })).await;
    assert_eq!(
        (&first["status"], &first["method"], &first["destination"]),
        (
            &json!("pending"),
            &json!("stablecoin"),
            &json!({ "address": ADDRESS, "network": "eip155:8453" })
        )
    );
    assert_eq!(site.margins().await, (3_000_001, 2_000_000, 0));
    let listed = site.operate(&["payout", "list"]);
    assert_eq!(listed["more"], false);
    assert_eq!(listed["payouts"][0]["payoutId"], first["payoutId"]);
    assert_eq!(listed["payouts"][0]["tenantId"], site.tenant.as_str());
    let id = id_of(&first);
    assert!(tell(&site, "begin", &id, &[]).0);
    let cancel = site
        .post(&format!("{PAYOUTS}/{id}/cancel"), &json!({}))
        .send()
        .await;
    cancel.refused(400, "VALIDATION_ERROR");
    for _ in 0..2 {
        assert!(tell(&site, "settle", &id, &["--reference", "0xabc"]).0);
    }
    let settled = site.payout(&first["payoutId"]).await;
    assert_eq!(
        (&settled["status"], &settled["reference"]),
        (&json!("paid"), &json!("0xabc"))
    );
    for (command, more) in [
        ("settle", ["--reference", "0xdef"]),
        ("fail", ["--reason", "late"]),
    ] {
        let (done, said) = tell(&site, command, &id, &more);
        assert!(!done, "{command}: {said}");
    }
    assert_eq!(site.margins().await, (3_000_001, 0, 2_000_000));
    let all = site.paid_out(&json!({})).await;
    assert_eq!(all["amountUsd"], "3.000001");
    assert!(tell(&site, "fail", &id_of(&all), &["--reason", "no gas"]).0);
    let failed = site.payout(&all["payoutId"]).await;
    assert_eq!(
        (&failed["status"], &failed["failure"]),
        (&json!("failed"), &json!("no gas"))
    );
    assert_eq!(site.margins().await, (3_000_001, 0, 2_000_000));
    let noted = [
        ("payout.create", 2),
        ("payout.stablecoin", 1),
        ("payout.settle", 1),
        ("payout.fail", 1),
    ];
    for (action, times) in noted {
        assert_eq!(site.noted(action).await, times, "{action}");
    }
    assert_eq!(site.operate(&["payout", "list"])["payouts"], json!([]));
}

async fn margin_of_a_stream_that_runs_is_shown_apart_and_not_paid_out(store: Store) {
    let site = Site::new(store).await;
    site.earn("5").await;
    site.to_stablecoin().await;
    let gate = Gate::new();
    let held = gate.clone();
    site.upstream.script(move |_| {
        let mut steps = vec![sse_head(), sse_content("one"), Step::Wait(held.clone())];
        steps.extend(sse_done());
        steps
    });
    let call = site.chat(&chat_stream("flat", "hi")).paid_by("payer");
    let mut running = call.open().await;
    running.chunk().await.unwrap();
    let shown = async || {
        let account = site.margin().await;
        ["marginUsd", "reservedUsd", "availableUsd"].map(|name| account[name].as_str().unwrap().to_owned())
    };
    assert_eq!(shown().await, ["10", "5", "5"]);
    let more = site.pay_out(&json!({ "usd": "5.000001" })).send().await;
    more.refused(402, "INSUFFICIENT_CREDITS");
    assert_eq!(site.paid_out(&json!({})).await["amountUsd"], "5");
    assert_eq!(shown().await, ["5", "5", "0"]);
    gate.open();
    running.finish().await;
    eventually("the stream is over", || async {
        (shown().await == ["5", "0", "5"]).then_some(())
    })
    .await;
}

// Fault matrix I2 of payouts
async fn parallel_payouts_never_overdraw_the_margin(store: Store) {
    let site = Site::new(store).await;
    site.earn("5.5").await;
    site.to_stablecoin().await;
    let one = json!({ "usd": "1" });
    let replies = join_all((0..20).map(|_| site.pay_out(&one).send())).await;
    let (opened, refused): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 201);
    assert_eq!(opened.len(), 5);
    for reply in refused {
        let refused = reply.refused(402, "INSUFFICIENT_CREDITS").json();
        assert_eq!(refused["requiredCredits"], "1000");
    }
    assert_eq!(site.margins().await, (500_000, 5_000_000, 0));
}

// Decisions 4
async fn one_key_is_one_payout(store: Store) {
    let site = Site::new(store).await;
    site.earn("9").await;
    site.to_stablecoin().await;
    let (two, three) = (json!({ "usd": "2" }), json!({ "usd": "3" }));
    let replies = join_all((0..8).map(|_| site.post(PAYOUTS, &two).once("k").send())).await;
    let mut ids: Vec<String> = Vec::new();
    let mut replayed = 0;
    for reply in replies {
        let reply = reply.expect(201);
        replayed += usize::from(reply.header("idempotent-replayed") == Some("true"));
        ids.push(id_of(&reply.json()["payout"]));
    }
    ids.dedup();
    assert_eq!((ids.len(), replayed), (1, 7));
    let other = site.post(PAYOUTS, &three).once("k").send().await;
    other.refused(409, "IDEMPOTENCY_KEY_CONFLICT");
    let without = site.post(PAYOUTS, &two).send().await;
    without.refused(400, "IDEMPOTENCY_KEY_REQUIRED");
    assert_eq!(site.margins().await, (7_000_000, 2_000_000, 0));
}

// Fault matrix A rows of bad input
async fn what_cannot_be_paid_out_is_refused_and_moves_nothing(store: Store) {
    let site = Site::new(store).await;
    site.earn("5").await;
    site.to_stablecoin().await;
    for (body, status, code) in [
        (json!({ "usd": "0" }), 400, "VALIDATION_ERROR"),
        (json!({ "usd": "-1" }), 400, "VALIDATION_ERROR"),
        (json!({ "usd": 1 }), 400, "VALIDATION_ERROR"),
        (json!({ "usd": "1e3" }), 400, "VALIDATION_ERROR"),
        (json!({ "usd": "99999999999999999999" }), 400, "VALIDATION_ERROR"),
        (json!({ "amount": "1" }), 400, "UNKNOWN_FIELD"),
        (json!([]), 400, "INVALID_JSON"),
        (json!({ "usd": "0.999999" }), 400, "below_minimum"),
        (json!({ "usd": "5.000001" }), 402, "INSUFFICIENT_CREDITS"),
    ] {
        let refused = site.pay_out(&body).send().await.refused(status, code).json();
        if code == "below_minimum" {
            assert_eq!(refused["minUsd"], "1");
        }
    }
    let owner = site.owner();
    let path = format!("{PAYOUTS}/stablecoin");
    for body in [
        json!({}),
        json!({ "address": ADDRESS }),
        json!({ "address": "0x1", "network": "eip155:8453" }),
        json!({ "address": ADDRESS, "network": "somewhere" }),
        json!({ "address": "x".repeat(200), "network": "eip155:1" }),
    ] {
        let put = site.as_member(&owner, Method::PUT, &path).json(&body);
        put.send().await.refused(400, "VALIDATION_ERROR");
    }
    for unknown in ["x", "0190a0b0-0000-7000-8000-000000000000", "%00"] {
        let found = site.get(&format!("{PAYOUTS}/{unknown}")).send().await;
        found.refused(404, "NOT_FOUND");
    }
    assert_eq!(site.margins().await, (5_000_000, 0, 0));
}

async fn a_payout_is_canceled_while_nobody_sends_it(store: Store) {
    let site = Site::new(store).await;
    site.earn("5").await;
    site.to_stablecoin().await;
    let payout = site.paid_out(&json!({})).await;
    let path = format!("{PAYOUTS}/{}/cancel", id_of(&payout));
    let asked = join_all((0..5).map(|_| site.post(&path, &json!({})).send())).await;
    for reply in asked {
        assert_eq!(reply.expect(200).json()["payout"]["status"], "canceled");
    }
    assert_eq!(site.margins().await, (5_000_000, 0, 0));
    assert_eq!(site.noted("payout.cancel").await, 1);
    let (done, said) = tell(&site, "settle", &id_of(&payout), &["--reference", "0x1"]);
    assert!(!done && said.contains("canceled"), "{said}");
}

// Decisions 10: suspended and frozen workspaces are not paid out
async fn a_workspace_that_is_not_active_is_not_paid_out(store: Store) {
    let mut site = Site::new(store).await;
    site.earn("5").await;
    site.to_stablecoin().await;
    let owner = site.owner();
    let stablecoin = format!("{PAYOUTS}/stablecoin");
    let address = json!({ "address": ADDRESS, "network": "eip155:1" });
    for status in ["suspended", "frozen"] {
        if status == "suspended" {
            site.operate(&["tenant", "suspend", &site.tenant]);
        } else {
            site.operate(&["tenant", "resume", &site.tenant]);
            site.service = None;
            site.database.execute("UPDATE tenants SET status = 2").await;
        }
        // Keys and workspaces are remembered for a second.
        site.restart(&[]).await;
        let refused = site.pay_out(&json!({})).send().await;
        refused.refused(403, "TENANT_SUSPENDED");
        let put = site.as_member(&owner, Method::PUT, &stablecoin).json(&address);
        put.send().await.refused(403, "TENANT_SUSPENDED");
        let start = site.start_connection(&json!({})).await;
        start.refused(403, "TENANT_SUSPENDED");
        // Suspended it only reads; frozen it may take a destination away.
        let ended = site.disconnect(&owner).await;
        if status == "suspended" {
            ended.refused(403, "TENANT_SUSPENDED");
        } else {
            ended.expect(200);
        }
        assert_eq!(site.margins().await, (5_000_000, 0, 0));
    }
}

async fn payouts_are_listed_page_by_page_and_to_their_workspace_alone(store: Store) {
    let site = Site::new(store).await;
    site.earn("9").await;
    site.to_stablecoin().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(id_of(&site.paid_out(&json!({ "usd": "1" })).await));
    }
    ids.reverse();
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    for _ in 0..3 {
        let page = site.get(&format!("{PAYOUTS}?limit=2{cursor}")).send().await;
        let page = page.expect(200).json();
        paged.extend(page["data"].as_array().unwrap().iter().map(id_of));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(paged, ids);
    for (query, code) in [
        ("limit=0", "VALIDATION_ERROR"),
        ("limit=101", "VALIDATION_ERROR"),
        ("cursor=x", "CURSOR_INVALID"),
        ("cursor=0190a0b0-0000-7000-8000-000000000000", "CURSOR_INVALID"),
    ] {
        site.get(&format!("{PAYOUTS}?{query}"))
            .send()
            .await
            .refused(400, code);
    }
    let (_, stranger) = site.workspace("Strangers");
    let as_stranger = |method, path: &str| site.client.request(method, path).bearer(&stranger);
    let path = format!("{PAYOUTS}/{}", ids[0]);
    let found = as_stranger(Method::GET, &path).send().await;
    found.refused(404, "NOT_FOUND");
    let canceled = as_stranger(Method::POST, &format!("{path}/cancel")).send().await;
    canceled.refused(404, "NOT_FOUND");
    let paged = as_stranger(Method::GET, &format!("{PAYOUTS}?cursor={}", ids[0]))
        .send()
        .await;
    paged.refused(400, "CURSOR_INVALID");
    let none = as_stranger(Method::GET, PAYOUTS).send().await.expect(200);
    assert_eq!(none.json()["data"], json!([]));
}
