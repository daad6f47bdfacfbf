//! The connection to the processor: made, paid out to, ended; and the development processor's page.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::harness::payments::Shop;
use crate::harness::payouts::CONNECT;
use crate::harness::stripe::Fault;
use crate::harness::{Setup, Site, Store};
use crate::on_both_stores;

on_both_stores!(
    margin_goes_to_the_account_at_the_processor,
    disconnecting_needs_an_administrator_with_a_fresh_second_factor,
    a_payout_under_way_at_the_disconnection_finishes,
    several_starts_at_once_make_one_account,
    what_stripe_tells_of_accounts_and_transfers_counts,
    the_development_page_connects_with_one_click,
    a_processor_that_fails_connects_nothing,
    an_event_that_comes_late_does_not_undo_a_later_one,
    a_workspace_that_only_reads_changes_nothing_by_asking,
);

async fn shop(store: Store) -> Shop {
    Shop::new(store).await
}

async fn margin_goes_to_the_account_at_the_processor(store: Store) {
    let shop = shop(store).await;
    shop.earn("5.005001").await;
    let back =
        json!({ "returnUrl": "https://shop.example/done", "refreshUrl": "https://shop.example/again" });
    let started = shop.start_connection(&back).await.expect(200).json();
    assert!(
        started["url"]
            .as_str()
            .unwrap()
            .starts_with("https://connect.stripe.com/")
    );
    assert!(started["expiresAt"].is_string());
    let link = shop.stripe.requests().pop().unwrap();
    assert_eq!(link.form["return_url"], "https://shop.example/done");
    assert_eq!(link.form["refresh_url"], "https://shop.example/again");
    // Connected, and not introduced yet: margin has nowhere to go.
    let early = shop.connection().await;
    assert_eq!(
        (&early["connected"], &early["payable"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(early["method"], "stablecoin");
    shop.pay_out(&json!({}))
        .send()
        .await
        .refused(400, "VALIDATION_ERROR");
    let account = shop.connected().await;
    assert_eq!(shop.stripe.made("account"), 1);
    let shown = shop.margin().await;
    assert_eq!(
        (&shown["method"], &shown["processor"]["payable"]),
        (&json!("processor"), &json!(true))
    );
    let cents = shop.pay_out(&json!({ "usd": "1.001" })).send().await;
    cents.refused(400, "VALIDATION_ERROR");
    let payout = shop.paid_out(&json!({})).await;
    assert_eq!(
        (&payout["status"], &payout["amountUsd"], &payout["method"]),
        (&json!("paid"), &json!("5"), &json!("processor"))
    );
    assert!(payout["reference"].as_str().unwrap().starts_with("tr_"));
    let id = payout["payoutId"].as_str().unwrap().to_owned();
    assert_eq!(shop.transfers(), [(id.clone(), account, "500".to_owned())]);
    assert_eq!(shop.margins().await, (5_001, 0, 5_000_000));
    let cancel = shop.post(&format!("/api/credits/payouts/{id}/cancel"), &json!({}));
    cancel.send().await.refused(400, "VALIDATION_ERROR");
}

// Fault matrix 134; specification 4.11; decisions 10
async fn disconnecting_needs_an_administrator_with_a_fresh_second_factor(store: Store) {
    let shop = shop(store).await;
    let first = shop.connected().await;
    let owner = shop.owner();
    let password_only = shop.session("the-owner", &json!({ "amr": ["pwd"] }));
    let refused = shop
        .disconnect(&password_only)
        .await
        .refused(401, "STEP_UP_REQUIRED");
    let challenge = refused.header("www-authenticate").unwrap();
    for part in ["insufficient_user_authentication", "acr_values", "max_age=600"] {
        assert!(challenge.contains(part), "{challenge}");
    }
    let long_ago = json!({ "auth_time": crate::harness::people::seconds() - 700 });
    let stale = shop.session("the-owner", &long_ago);
    shop.disconnect(&stale).await.refused(401, "STEP_UP_REQUIRED");
    shop.disconnect(&shop.key)
        .await
        .refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    shop.add_member("biller", "billing");
    let biller = shop.session("biller", &json!({}));
    shop.disconnect(&biller).await.refused(403, "FORBIDDEN_ROLE");
    assert_eq!(shop.connection().await["account"], first.as_str());
    for _ in 0..2 {
        let done = shop.disconnect(&owner).await.expect(200);
        assert_eq!(done.text(), "{\"success\":true}");
    }
    assert_eq!(shop.noted("payout.disconnect").await, 1);
    let now = shop.connection().await;
    assert_eq!(
        (&now["connected"], &now["account"], &now["method"]),
        (&json!(false), &Value::Null, &json!("stablecoin"))
    );
    // Another connection is another account.
    let second = shop.connected().await;
    assert_ne!(first, second);
    assert_eq!(shop.stripe.made("account"), 2);
}

// Decisions 10: payouts under way finish, new margin goes to the stablecoin method
async fn a_payout_under_way_at_the_disconnection_finishes(store: Store) {
    let shop = Shop::of(store, |setup| setup.without_fees().swept()).await;
    shop.earn("5").await;
    shop.to_stablecoin().await;
    let account = shop.connected().await;
    let asked = shop.stripe.requests().len();
    shop.stripe.fail_next(6, Fault::Status(500));
    let payout = shop.paid_out(&json!({ "usd": "2" })).await;
    assert_eq!(payout["status"], "pending");
    shop.disconnect(&shop.owner()).await.expect(200);
    let next = shop.paid_out(&json!({ "usd": "1" })).await;
    assert_eq!(next["method"], "stablecoin");
    let sent = shop.payout_reaches(&payout["payoutId"], "paid").await;
    assert_eq!(sent["destination"]["account"], account.as_str());
    assert!(shop.stripe.requests().len() > asked + 6);
    assert_eq!(shop.stripe.made("transfer"), 1);
    assert_eq!(shop.margins().await, (2_000_000, 1_000_000, 2_000_000));
}

async fn several_starts_at_once_make_one_account(store: Store) {
    let shop = shop(store).await;
    let owner = shop.owner();
    let path = format!("{CONNECT}/start");
    let starts = join_all((0..6).map(|_| shop.as_member(&owner, Method::POST, &path).send())).await;
    for start in starts {
        start.expect(200);
    }
    assert_eq!(shop.stripe.made("account"), 1);
    assert_eq!(shop.noted("payout.connect").await, 1);
}

// Fault matrix 113: an event of a connected account tells of that account and of nothing else
async fn what_stripe_tells_of_accounts_and_transfers_counts(store: Store) {
    let shop = shop(store).await;
    shop.earn("5").await;
    shop.start_connection(&json!({})).await.expect(200);
    let account = shop.connection().await["account"].as_str().unwrap().to_owned();
    shop.stripe.finish_onboarding(&account);
    shop.stripe.tell_of_account(&account);
    shop.deliver().await;
    assert_eq!(shop.margin().await["method"], "processor");
    let payout = shop.paid_out(&json!({ "usd": "5" })).await;
    let transfer = payout["reference"].as_str().unwrap();
    shop.stripe.reverse_transfer(transfer, 200);
    shop.deliver().await;
    assert_eq!(shop.payout(&payout["payoutId"]).await["status"], "paid");
    shop.stripe.reverse_transfer(transfer, 300);
    shop.deliver().await;
    shop.deliver().await;
    let back = shop.payout(&payout["payoutId"]).await;
    assert_eq!(back["status"], "failed");
    assert_eq!(shop.margins().await, (5_000_000, 0, 0));
    shop.stripe.tamper(&account, "payouts_enabled", false);
    shop.stripe.tell_of_account(&account);
    shop.deliver().await;
    assert_eq!(shop.margin().await["method"], "stablecoin");
}

async fn an_event_that_comes_late_does_not_undo_a_later_one(store: Store) {
    let shop = shop(store).await;
    let account = shop.connected().await;
    // Told while it could be paid out to, and delivered when it no longer can.
    shop.stripe.tell_of_account(&account);
    shop.stripe.tamper(&account, "payouts_enabled", false);
    shop.deliver().await;
    assert_eq!(shop.margin().await["method"], "stablecoin");
    // Nothing is believed while Stripe does not answer; it tells of it again.
    shop.stripe.tamper(&account, "payouts_enabled", true);
    shop.stripe.tell_of_account(&account);
    shop.stripe.fail_next(3, Fault::Status(500));
    let told = shop.stripe.deliver_all(&shop.events_url()).await;
    assert_eq!(told, [("account.updated".to_owned(), Some(503))]);
    assert_eq!(shop.margin().await["method"], "stablecoin");
    shop.deliver().await;
    assert_eq!(shop.margin().await["method"], "processor");
}

async fn a_workspace_that_only_reads_changes_nothing_by_asking(store: Store) {
    let mut shop = shop(store).await;
    shop.start_connection(&json!({})).await.expect(200);
    let account = shop.connection().await["account"].as_str().unwrap().to_owned();
    shop.operate(&["tenant", "suspend", &shop.tenant]);
    shop.restart(&[]).await;
    shop.stripe.finish_onboarding(&account);
    let asked = shop.connection().await;
    assert_eq!(
        (&asked["payable"], &asked["method"]),
        (&json!(true), &json!("processor"))
    );
    assert_eq!(shop.margin().await["method"], "stablecoin");
    shop.operate(&["tenant", "resume", &shop.tenant]);
    shop.restart(&[]).await;
    assert_eq!(shop.connection().await["payable"], true);
    assert_eq!(shop.margin().await["method"], "processor");
}

async fn the_development_page_connects_with_one_click(store: Store) {
    let site = Setup::new(store).start().await;
    site.earn("5").await;
    for bad in [
        "javascript:alert(1)",
        "http://shop.example/",
        "//x",
        "https://u@shop.example/",
    ] {
        let refused = site.start_connection(&json!({ "returnUrl": bad })).await;
        refused.refused(400, "VALIDATION_ERROR");
    }
    let back = "https://shop.example/done?a=1&b=2";
    let started = site
        .start_connection(&json!({ "returnUrl": back }))
        .await
        .expect(200);
    let url = started.json()["url"].as_str().unwrap().to_owned();
    let path = &url[url.find("/connect/").unwrap()..];
    let ask = |method, path: &str| site.client.request(method, path).send();
    let page = ask(Method::GET, path).await.expect(200);
    assert!(page.text().contains("TEST MODE") && page.text().contains("Connect payouts"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.ends_with("form-action 'self' https://shop.example"),
        "{policy}"
    );
    let account = path.split(['/', '?']).nth(2).unwrap();
    let elsewhere = hex::encode("https://evil.example/");
    let proof = path.split("proof=").nth(1).unwrap();
    for forged in [
        format!("/connect/{account}"),
        format!("/connect/{account}?to={elsewhere}&proof={proof}"),
        path.replace(account, "acct_builtin_other"),
        format!("{path}00"),
        "/connect/%00".to_owned(),
    ] {
        for method in [Method::GET, Method::POST] {
            let reply = ask(method, &forged).await.expect(404);
            assert!(!reply.text().contains("evil.example"));
        }
    }
    assert_eq!(site.connection().await["payable"], false);
    for _ in 0..2 {
        let done = ask(Method::POST, path).await.expect(303);
        assert_eq!(done.header("location"), Some(back));
    }
    assert_eq!(site.connection().await["payable"], true);
    let payout = site.paid_out(&json!({})).await;
    assert_eq!(
        (&payout["status"], &payout["amountUsd"]),
        (&json!("paid"), &json!("5"))
    );
    // What is let go is not connected by its old page.
    site.disconnect(&site.owner()).await.expect(200);
    ask(Method::GET, path).await.expect(404);
    ask(Method::POST, path).await.expect(303);
    assert_eq!(site.connection().await["connected"], false);
    for notice in ["/connect/done", "/connect/again"] {
        ask(Method::GET, notice).await.expect(200);
    }
}

async fn a_processor_that_fails_connects_nothing(store: Store) {
    let shop = shop(store).await;
    shop.stripe.fail_next(3, Fault::DoneThenStatus(500));
    let away = shop.start_connection(&json!({})).await;
    let away = away.refused(503, "SERVICE_UNAVAILABLE");
    assert!(away.header("retry-after").is_some());
    assert_eq!(shop.connection().await["connected"], false);
    shop.stripe.fail_next(1, Fault::Status(400));
    let refused = shop.start_connection(&json!({})).await;
    refused.refused(502, "UPSTREAM_ERROR");
    // The account that was made is the one that is connected.
    shop.start_connection(&json!({})).await.expect(200);
    assert_eq!(shop.stripe.made("account"), 1);
    shop.stripe.fail_next(3, Fault::Cut);
    assert_eq!(shop.connection().await["connected"], true);
    let none = Setup::new(store).set("processor.kind", "none");
    let site: Site = none.start().await;
    let start = site.start_connection(&json!({})).await;
    start.refused(503, "SERVICE_UNAVAILABLE");
    assert_eq!(site.connection().await["processor"], Value::Null);
}
