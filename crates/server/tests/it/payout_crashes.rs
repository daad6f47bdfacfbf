//! A process that is killed while a payout is sent, and what its restart makes of it.

use std::time::Duration;

use serde_json::json;

use crate::harness::payments::Shop;
use crate::harness::payouts::PAYOUTS;
use crate::harness::{Reply, Setup, Store};
use crate::on_both_stores;

on_both_stores!(a_crash_while_a_payout_is_sent_pays_once);

// Fault matrix 106 of payouts; I5
async fn a_crash_while_a_payout_is_sent_pays_once(store: Store) {
    for (point, made) in [("after-payout-row", 0), ("after-payout-sent", 1)] {
        let mut shop = Shop::of(store, Setup::without_fees).await;
        shop.earn("5").await;
        shop.connected().await;
        let fail = vec![("TURNPIKE_FAILPOINT".to_owned(), point.to_owned())];
        shop.restart(&fail).await;
        let asked = shop.post(PAYOUTS, &json!({ "usd": "3" })).once("k");
        let answer: Result<Reply, String> = asked.try_send().await;
        assert!(answer.is_err(), "{point}: it was answered: {answer:?}");
        let service = shop.service.as_mut().unwrap();
        let status = service.wait(Duration::from_secs(10)).await;
        assert!(!status.success(), "{point}: {status}");
        assert!(service.logged().contains(&format!("failpoint reached: {point}")));
        assert_eq!(shop.stripe.made("transfer"), made, "{point}");
        shop.restart(&[]).await;
        // Until it is known what came of it, the margin is out.
        assert_eq!(shop.margins().await, (2_000_000, 3_000_000, 0), "{point}");
        let again = || shop.post(PAYOUTS, &json!({ "usd": "3" })).once("k").send();
        let known = again().await.expect(201).json()["payout"].clone();
        assert_eq!(known["status"], "pending", "{point}");
        let config = std::fs::read_to_string(&shop.config).unwrap();
        let swept = config.replace("sweep_after_secs = 86400", "sweep_after_secs = 0");
        std::fs::write(&shop.config, swept).unwrap();
        shop.restart(&[]).await;
        shop.payout_reaches(&known["payoutId"], "paid").await;
        assert_eq!(shop.stripe.made("transfer"), 1, "{point}");
        assert_eq!(shop.margins().await, (2_000_000, 0, 3_000_000), "{point}");
        let again = shop.post(PAYOUTS, &json!({ "usd": "3" })).once("k").send().await;
        assert_eq!(again.expect(201).json()["payout"]["payoutId"], known["payoutId"]);
    }
}
