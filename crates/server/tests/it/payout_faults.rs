//! A processor that refuses, fails, or loses its answers while a payout is sent: it is sent once, or the margin is
//! back.

use serde_json::json;

use crate::harness::payments::Shop;
use crate::harness::stripe::Fault;
use crate::harness::{Setup, Store};
use crate::on_both_stores;

on_both_stores!(
    a_refused_payout_gives_its_margin_back,
    an_unknown_outcome_is_asked_for_again_under_one_key,
    a_processor_that_is_away_keeps_a_payout_pending,
    nothing_is_sent_for_a_workspace_that_was_frozen_meanwhile,
    a_transfer_that_came_back_before_it_was_booked_gives_its_margin_back,
);

/// A shop that earned five dollars, whose payouts without news are asked about at once.
async fn earned(store: Store) -> Shop {
    let shop = Shop::of(store, |setup| setup.without_fees().swept()).await;
    shop.earn("5").await;
    shop.connected().await;
    shop
}

async fn a_refused_payout_gives_its_margin_back(store: Store) {
    let shop = earned(store).await;
    shop.stripe.set_balance(499);
    let ask = || shop.post("/api/credits/payouts", &json!({})).once("k").send();
    let failed = ask().await.expect(201).json()["payout"].clone();
    assert_eq!(failed["status"], "failed");
    assert!(
        failed["failure"]
            .as_str()
            .unwrap()
            .starts_with("balance_insufficient: ")
    );
    assert_eq!(shop.margins().await, (5_000_000, 0, 0));
    // The key stands for the payout that failed; another key is another payout.
    shop.stripe.set_balance(500);
    let again = ask().await.expect(201);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.json()["payout"], failed);
    let payout = shop.paid_out(&json!({})).await;
    assert_eq!(payout["status"], "paid");
    assert_eq!(shop.stripe.made("transfer"), 1);
}

// Fault matrix 106 of payouts
async fn an_unknown_outcome_is_asked_for_again_under_one_key(store: Store) {
    let shop = earned(store).await;
    let mut paid = 0;
    for fault in [
        Fault::Status(500),
        Fault::DoneThenStatus(500),
        Fault::DoneThenCut,
        Fault::DoneThenGarbage,
    ] {
        shop.stripe.fail_next(3, fault);
        let payout = shop.paid_out(&json!({ "usd": "1" })).await;
        let id = payout["payoutId"].as_str().unwrap().to_owned();
        shop.payout_reaches(&payout["payoutId"], "paid").await;
        paid += 1;
        assert_eq!(shop.stripe.made("transfer"), paid, "{fault:?}");
        let mine: Vec<_> = shop.transfers().into_iter().filter(|sent| sent.0 == id).collect();
        assert!(
            mine.len() >= 4 && mine.iter().all(|sent| *sent == mine[0]),
            "{fault:?}: {mine:?}"
        );
    }
    assert_eq!(shop.margins().await, (1_000_000, 0, 4_000_000));
}

async fn a_processor_that_is_away_keeps_a_payout_pending(store: Store) {
    let mut shop = earned(store).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (here, away) = (shop.stripe.url(), format!("http://{nobody}"));
    let point = |shop: &Shop, from: &str, to: &str| {
        let config = std::fs::read_to_string(&shop.config).unwrap();
        std::fs::write(&shop.config, config.replace(from, to)).unwrap();
    };
    point(&shop, &here, &away);
    shop.restart(&[]).await;
    let payout = shop.paid_out(&json!({ "usd": "3" })).await;
    assert_eq!(payout["status"], "pending");
    assert_eq!(shop.margins().await, (2_000_000, 3_000_000, 0));
    // It is neither the workspace's nor the operator's to end: it may be sent any moment.
    let id = payout["payoutId"].as_str().unwrap().to_owned();
    let cancel = shop.post(&format!("/api/credits/payouts/{id}/cancel"), &json!({}));
    cancel.send().await.refused(400, "VALIDATION_ERROR");
    for args in [["fail", "--reason", "x"], ["settle", "--reference", "x"]] {
        let args = ["payout", args[0], "--tenant", &shop.tenant, &id, args[1], args[2]];
        let (status, _, said) = crate::harness::operate(&shop.config, &shop.data, &args);
        assert!(
            !status.success() && said.contains("the processor sends"),
            "{said}"
        );
    }
    point(&shop, &away, &here);
    shop.restart(&[]).await;
    shop.payout_reaches(&payout["payoutId"], "paid").await;
    assert_eq!(shop.stripe.made("transfer"), 1);
}

async fn a_transfer_that_came_back_before_it_was_booked_gives_its_margin_back(store: Store) {
    let shop = Shop::of(store, Setup::without_fees).await;
    shop.earn("5").await;
    shop.connected().await;
    shop.stripe.fail_next(3, Fault::DoneThenCut);
    let payout = shop.paid_out(&json!({})).await;
    assert_eq!(payout["status"], "pending");
    let sent = shop.stripe.transfers_of(payout["payoutId"].as_str().unwrap());
    assert_eq!(sent.len(), 1);
    shop.stripe.reverse_transfer(&sent[0], 500);
    shop.deliver().await;
    assert_eq!(shop.payout(&payout["payoutId"]).await["status"], "failed");
    assert_eq!(shop.margins().await, (5_000_000, 0, 0));
}

// Decisions 10: frozen, no payouts
async fn nothing_is_sent_for_a_workspace_that_was_frozen_meanwhile(store: Store) {
    let mut shop = Shop::of(store, Setup::without_fees).await;
    shop.earn("5").await;
    shop.connected().await;
    shop.stripe.fail_next(3, Fault::Status(500));
    let payout = shop.paid_out(&json!({})).await;
    assert_eq!(payout["status"], "pending");
    let config = std::fs::read_to_string(&shop.config).unwrap();
    std::fs::write(
        &shop.config,
        config.replace("sweep_after_secs = 86400", "sweep_after_secs = 0"),
    )
    .unwrap();
    let status = |code: i64| format!("UPDATE tenants SET status = {code}");
    shop.service = None;
    shop.database.execute(&status(2)).await;
    shop.restart(&[]).await;
    crate::harness::eventually("the sweep has looked", || async {
        shop.service()
            .logged()
            .contains("its workspace is not active")
            .then_some(())
    })
    .await;
    assert_eq!(shop.stripe.made("transfer"), 0);
    shop.service = None;
    shop.database.execute(&status(0)).await;
    shop.restart(&[]).await;
    shop.payout_reaches(&payout["payoutId"], "paid").await;
    assert_eq!(shop.stripe.made("transfer"), 1);
}
