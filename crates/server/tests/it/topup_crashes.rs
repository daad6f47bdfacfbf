//! A process that is killed while money comes in or goes back, and what its restart makes of it.

use std::time::Duration;

use serde_json::json;

use crate::harness::payments::{Shop, TOPUPS};
use crate::harness::{Reply, Sender, Store, eventually, micros};
use crate::on_both_stores;

on_both_stores!(
    a_crash_while_a_session_is_opened_leaves_one_session,
    a_crash_while_an_event_is_taken_credits_once,
    a_crash_while_a_refund_is_made_refunds_once,
    a_crash_while_a_saved_method_is_charged_charges_once,
);

/// A gateway that asks the processor about everything from its next start on.
async fn shop(store: Store) -> Shop {
    Shop::of(store, crate::harness::Setup::without_fees).await
}

/// From the next start on, everything unsettled is asked about.
fn sweeping(shop: &Shop) {
    let config = std::fs::read_to_string(&shop.config).unwrap();
    let swept = config.replace("sweep_after_secs = 86400", "sweep_after_secs = 0");
    assert_ne!(config, swept);
    std::fs::write(&shop.config, swept).unwrap();
}

/// Has the process killed at `point`.
async fn armed(shop: &mut Shop, point: &str) {
    let fail = vec![("TURNPIKE_FAILPOINT".to_owned(), point.to_owned())];
    shop.restart(&fail).await;
}

/// The process has been killed there.
async fn reached(shop: &mut Shop, point: &str) {
    let service = shop.service.as_mut().unwrap();
    let status = service.wait(Duration::from_secs(10)).await;
    assert!(!status.success(), "{point}: {status}");
    assert!(
        service.logged().contains(&format!("failpoint reached: {point}")),
        "{}",
        service.logged()
    );
}

async fn cut(shop: &mut Shop, point: &str, sent: Sender) {
    let answer: Result<Reply, String> = sent.try_send().await;
    assert!(answer.is_err(), "{point}: it was answered: {answer:?}");
    reached(shop, point).await;
}

// Fault matrix 106, 111; I5
async fn a_crash_while_a_session_is_opened_leaves_one_session(store: Store) {
    for (point, made) in [("after-topup-row", 0), ("after-session", 1)] {
        for by_sweep in [false, true] {
            let mut shop = shop(store).await;
            armed(&mut shop, point).await;
            let asked = shop.ask(&json!({ "usd": "5" })).once("k");
            cut(&mut shop, point, asked).await;
            assert_eq!(shop.stripe.made("checkout.session"), made, "{point}");
            if by_sweep {
                sweeping(&shop);
            }
            shop.restart(&[]).await;
            let session = if by_sweep {
                eventually("the row has its page", || async {
                    let list = shop.get(TOPUPS).send().await.expect(200).json();
                    let topup = &list["data"][0];
                    topup["url"].is_string().then(|| topup["sessionId"].clone())
                })
                .await
            } else {
                let again = shop.ask(&json!({ "usd": "5" })).once("k").send().await;
                again.expect(200).json()["sessionId"].clone()
            };
            let session = session.as_str().unwrap();
            let list = shop.get(TOPUPS).send().await.expect(200).json();
            assert_eq!(list["data"].as_array().unwrap().len(), 1, "{point}");
            shop.pay(session);
            shop.deliver().await;
            shop.reaches(session, "completed").await;
            assert_eq!(shop.pool().await, (5_000_000, 0));
            assert_eq!(shop.told(&["credits.topup.completed"]), [1], "{point}");
        }
    }
}

// Fault matrix 48 of events, 108, 119; I5, I8
async fn a_crash_while_an_event_is_taken_credits_once(store: Store) {
    for (point, credited) in [("after-event-verified", 0), ("after-event-applied", 5_000_000)] {
        for by_sweep in [false, true] {
            let mut shop = shop(store).await;
            let session = shop.open("5").await;
            shop.pay(&session);
            armed(&mut shop, point).await;
            let event = shop.stripe.event("checkout.session.completed");
            assert_eq!(
                shop.stripe.deliver(&shop.events_url(), &event).await,
                None,
                "{point}"
            );
            reached(&mut shop, point).await;
            shop.restart(&[]).await;
            assert_eq!(shop.pool().await, (credited, 0), "{point}");
            if by_sweep {
                sweeping(&shop);
                shop.restart(&[]).await;
                shop.reaches(&session, "completed").await;
            }
            // Stripe sends what was not answered again.
            shop.deliver().await;
            assert_eq!(shop.topup(&session).await["status"], "completed");
            assert_eq!(shop.pool().await, (5_000_000, 0), "{point}");
            assert_eq!(shop.told(&["credits.topup.completed"]), [1], "{point}");
        }
    }
}

// Fault matrix 106 of refunds, 114; I5
async fn a_crash_while_a_refund_is_made_refunds_once(store: Store) {
    for (point, made) in [("after-refund-row", 0), ("after-refund-made", 1)] {
        for ended_by in ["repeat", "event", "sweep"] {
            let mut shop = shop(store).await;
            let (session, payment) = shop.bought("5").await;
            armed(&mut shop, point).await;
            let path = format!("{TOPUPS}/{session}/refunds");
            let asked = shop.post(&path, &json!({ "usd": "2" })).once("k");
            cut(&mut shop, point, asked).await;
            assert_eq!(shop.stripe.refunds_of(&payment).len(), made, "{point}");
            if ended_by == "sweep" {
                sweeping(&shop);
            }
            shop.restart(&[]).await;
            if ended_by != "sweep" {
                // The credits stay held until it is known what came of it.
                assert_eq!(shop.pool().await, (5_000_000, 2_000_000), "{point}");
            }
            if ended_by == "repeat" || (ended_by == "event" && made == 0) {
                let again = shop
                    .refund(&session, &json!({ "usd": "2" }), "k")
                    .await
                    .expect(200);
                assert_eq!(again.json()["status"], "succeeded", "{point}");
            }
            if ended_by == "event" {
                shop.deliver().await;
            }
            eventually("the refund has ended", || async {
                let topup = shop.topup(&session).await;
                (topup["refunds"][0]["status"] == "succeeded").then_some(())
            })
            .await;
            shop.deliver().await;
            assert_eq!(shop.pool().await, (micros("3"), 0), "{point} {ended_by}");
            assert_eq!(shop.stripe.refunds_of(&payment).len(), 1, "{point} {ended_by}");
            assert_eq!(shop.told(&["credits.refund.issued"]), [1], "{point} {ended_by}");
        }
    }
}

// Decisions 7: an automatic top-up is charged once
async fn a_crash_while_a_saved_method_is_charged_charges_once(store: Store) {
    let mut shop = shop(store).await;
    crate::auto_topups::save_a_method(&shop, "5").await;
    crate::auto_topups::choose(&shop, "6", "10", None).await;
    // Charged, and the answer is lost with the process.
    eventually("the method was charged", || async {
        (shop.stripe.made("payment_intent") == 2).then_some(())
    })
    .await;
    shop.service.as_mut().unwrap().kill();
    sweeping(&shop);
    shop.restart(&[]).await;
    eventually("the charge is credited", || async {
        (shop.pool().await == (15_000_000, 0)).then_some(())
    })
    .await;
    shop.deliver().await;
    assert_eq!(
        (shop.pool().await, shop.stripe.made("payment_intent")),
        ((15_000_000, 0), 2)
    );
    assert_eq!(shop.told(&["credits.topup.completed"]), [2]);
}
