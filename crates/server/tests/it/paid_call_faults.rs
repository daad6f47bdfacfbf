//! Paid calls when something fails: one call to the provider, at most one payment, and a final answer under the same
//! request id.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use turnpike_core::x402::{PaymentPayload, wire};

use crate::harness::facilitator::Fault;
use crate::harness::stall::{FEE, FLASH, Stall, completes};
use crate::harness::upstream::answer;
use crate::harness::wallet::{Ask, Wallet, payment_response};
use crate::harness::{Gate, Reply, Step, Store, eventually};
use crate::on_both_stores;

on_both_stores!(
    fifty_retries_of_one_payment_are_one_call,
    one_payment_under_fifty_ids_is_one_call,
    a_client_that_leaves_finds_its_answer,
    a_settlement_without_a_verdict_is_found_out,
    a_settlement_whose_answer_was_lost_is_found_on_the_chain,
    a_refusal_of_what_was_settled_is_no_refusal,
    a_silent_chain_keeps_a_settlement_open,
    a_verification_without_a_verdict_takes_nothing,
    a_provider_that_fails_is_not_paid_for,
    a_request_that_the_provider_refuses_is_not_paid_for,
    a_client_that_leaves_at_the_settlement_finds_its_answer,
    a_facilitator_that_is_down_at_the_start_is_asked_again,
    a_shutdown_lets_paid_calls_end,
);

pub fn signed(ask: &Ask) -> PaymentPayload {
    wire::from_header(&ask.headers.last().unwrap().1).unwrap()
}

/// The provider answers when the gate is opened.
pub fn gated(stall: &Stall) -> Gate {
    let gate = Gate::new();
    let waiting = gate.clone();
    stall.upstream.script(move |seen| {
        let mut steps = vec![Step::Wait(waiting.clone())];
        steps.extend(completes(seen));
        steps
    });
    gate
}

pub async fn asked(stall: &Stall, times: usize) {
    eventually("the provider is asked", || async {
        (stall.upstream.count() >= times).then_some(())
    })
    .await;
}

fn statuses(replies: &[Reply], status: u16) -> usize {
    replies.iter().filter(|reply| reply.status == status).count()
}

// Fault matrix 189
async fn fifty_retries_of_one_payment_are_one_call(store: Store) {
    let stall = Stall::new(store).await;
    let gate = gated(&stall);
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        calls.spawn(paid.by(&stall.client).send());
    }
    asked(&stall, 1).await;
    let mut replies = Vec::new();
    while replies.len() < 49 {
        replies.push(calls.join_next().await.unwrap().unwrap());
    }
    assert_eq!(statuses(&replies, 202), 49);
    gate.open();
    let first = calls.join_next().await.unwrap().unwrap().expect(200);
    let last = paid.send(&stall.client).await.expect(200);
    assert_eq!(last.body, first.body);
    assert_eq!(stall.facilitator.count("/settle"), 1);
    stall.agree(1, &[FLASH]).await;
}

// Fault matrix 190
async fn one_payment_under_fifty_ids_is_one_call(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let ask = Ask::chat("hi");
    let first = ask.offer(&stall.client).await;
    let payment = wallet.pay(&first);
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let offer = ask.offer(&stall.client).await;
        let mut echoed = payment.clone();
        echoed.accepted = offer.terms().clone();
        echoed.extensions = Some(offer.required.extensions.clone());
        calls.spawn(ask.clone().id(&offer.id).signed(&echoed).by(&stall.client).send());
    }
    let replies = calls.join_all().await;
    assert_eq!((statuses(&replies, 200), statuses(&replies, 409)), (1, 49));
    for reply in replies.into_iter().filter(|reply| reply.status == 409) {
        let reply = reply.refused(409, "REQUEST_ID_CONFLICT");
        assert!(!reply.text().contains("Hello"));
    }
    stall.agree(1, &[FLASH]).await;
}

async fn a_client_that_leaves_finds_its_answer(store: Store) {
    let stall = Stall::new(store).await;
    let gate = gated(&stall);
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    // A connection of its own, which ends with the task.
    let sender = paid.by(&stall.service().client());
    let leaving = tokio::spawn(sender.send());
    asked(&stall, 1).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    paid.send(&stall.client).await.expect(202);
    gate.open();
    let reply = stall.ends(&paid).await.expect(200);
    assert!(payment_response(&reply).success);
    stall.agree(1, &[FLASH]).await;
}

// Issue: facilitator 500 at settle. Fault matrix 194
async fn a_settlement_without_a_verdict_is_found_out(store: Store) {
    let stall = Stall::new(store).await;
    for (number, fault) in [Fault::Status(500), Fault::Garbage, Fault::Gone]
        .into_iter()
        .enumerate()
    {
        for (more, ask) in [Ask::chat("hi"), Ask::list()].into_iter().enumerate() {
            let (_, paid) = stall.paid(&ask, &Wallet::new()).await;
            let reached = stall.facilitator.reached("/settle");
            stall.facilitator.break_times("/settle", fault.clone(), 1);
            let unknown = paid.send(&stall.client).await.expect(202);
            assert_eq!(unknown.json()["status"], "settling", "{fault:?}");
            assert_eq!(unknown.header("payment-required"), None);
            let reply = stall.ends(&paid).await.expect(200);
            assert!(payment_response(&reply).success);
            assert_eq!(paid.send(&stall.client).await.body, reply.body);
            assert_eq!(stall.facilitator.reached("/settle"), reached + 1, "{fault:?}");
            assert_eq!(stall.facilitator.paid().len(), number * 2 + more + 1, "{fault:?}");
        }
    }
    stall.agree(3, &[FLASH, FEE, FLASH, FEE, FLASH, FEE]).await;
}

// Issue: settled on chain and the answer lost. Fault matrix 194
async fn a_settlement_whose_answer_was_lost_is_found_on_the_chain(store: Store) {
    let stall = Stall::new(store).await;
    let gate = Gate::new();
    let mut prices = Vec::new();
    for fault in [Fault::Lost, Fault::Held(gate.clone())] {
        for (ask, price) in [(Ask::chat("hi"), FLASH), (Ask::list(), FEE)] {
            let wallet = Wallet::new();
            let (_, paid) = stall.paid(&ask, &wallet).await;
            let settled = stall.facilitator.count("/settle");
            stall.facilitator.break_times("/settle", fault.clone(), 1);
            let first = paid.send(&stall.client).await;
            let reply = if first.status == 202 {
                stall.ends(&paid).await
            } else {
                first
            };
            let response = payment_response(&reply.expect(200));
            let made = stall.facilitator.paid().pop().unwrap();
            assert_eq!((response.success, &response.transaction), (true, &made.hash));
            assert_eq!(response.amount, Some(price.to_string()));
            assert_eq!(
                stall.facilitator.reached("/settle"),
                prices.len() + 1,
                "{fault:?}"
            );
            assert_eq!(
                stall.facilitator.count("/settle"),
                settled + 1,
                "never settled again"
            );
            prices.push(price);
        }
    }
    gate.open();
    stall.agree(2, &prices).await;
}

async fn a_refusal_of_what_was_settled_is_no_refusal(store: Store) {
    let stall = Stall::new(store).await;
    let mut prices = Vec::new();
    for (ask, price) in [(Ask::chat("hi"), FLASH), (Ask::list(), FEE)] {
        let (_, paid) = stall.paid(&ask, &Wallet::new()).await;
        let fault = Fault::DoneButRefused("permit2_simulation_failed");
        stall.facilitator.break_times("/settle", fault, 1);
        let first = paid.send(&stall.client).await;
        let reply = if first.status == 202 {
            stall.ends(&paid).await
        } else {
            first
        };
        assert!(payment_response(&reply.expect(200)).success);
        prices.push(price);
        assert_eq!(stall.facilitator.reached("/settle"), prices.len());
    }
    assert_eq!(stall.facilitator.count("/settle"), 2);
    stall.agree(1, &prices).await;
}

async fn a_silent_chain_keeps_a_settlement_open(store: Store) {
    let stall = Stall::new(store).await;
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    stall.facilitator.break_at("/settle", Fault::Lost);
    stall.facilitator.break_at("/rpc", Fault::Status(503));
    paid.send(&stall.client).await.expect(202);
    let facilitator = stall.facilitator.clone();
    eventually("the chain is asked again and again", || async {
        (facilitator.reached("/rpc") >= 2).then_some(())
    })
    .await;
    paid.send(&stall.client).await.expect(202);
    stall.facilitator.heal();
    stall.ends(&paid).await.expect(200);
    assert_eq!(stall.facilitator.count("/settle"), 1);
    stall.agree(1, &[FLASH]).await;
}

// Issue: facilitator down at verify
async fn a_verification_without_a_verdict_takes_nothing(store: Store) {
    let stall = Stall::new(store).await;
    let gate = Gate::new();
    let faults = [
        Fault::Status(500),
        Fault::Garbage,
        Fault::Gone,
        Fault::Hang(gate.clone()),
    ];
    let mut prices = Vec::new();
    for fault in faults {
        let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
        stall.facilitator.break_times("/verify", fault.clone(), 1);
        let failed = paid.send(&stall.client).await.refused(502, "UPSTREAM_ERROR");
        assert_eq!(failed.header("payment-required"), None);
        assert_eq!(stall.upstream.count(), prices.len(), "{fault:?}");
        assert_eq!(stall.facilitator.reached("/verify"), prices.len() + 1);
        paid.send(&stall.client).await.expect(200);
        prices.push(FLASH);
    }
    // What it says late is no error.
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    let slow = Fault::Slow(Duration::from_millis(500));
    stall.facilitator.break_times("/verify", slow, 1);
    paid.send(&stall.client).await.expect(200);
    prices.push(FLASH);
    gate.open();
    stall.agree(5, &prices).await;
}

pub fn failed(reply: Reply, reason: &str) {
    let body = reply.refused(409, "REQUEST_FAILED").json();
    assert_eq!(
        (&body["receipt"]["status"], &body["receipt"]["failure"]),
        (&json!("failed"), &json!(reason))
    );
    assert_eq!(body["receipt"]["amount"], json!(null));
}

async fn a_provider_that_fails_is_not_paid_for(store: Store) {
    let stall = Stall::of(store, |setup| setup.provider("total_timeout_secs", 2)).await;
    let wallet = Wallet::new();
    let cases: [(Vec<Step>, u16, &str, bool); 4] = [
        (vec![answer(500, &[], b"{}")], 502, "UPSTREAM_ERROR", false),
        (vec![answer(429, &[], b"{}")], 502, "UPSTREAM_ERROR", false),
        (vec![Step::Close], 502, "UPSTREAM_ERROR", true),
        (
            vec![Step::Pause(Duration::from_secs(4))],
            504,
            "UPSTREAM_TIMEOUT",
            true,
        ),
    ];
    let mut lost = 0;
    for (number, (steps, status, code, may_bill)) in cases.into_iter().enumerate() {
        stall.upstream.always(steps);
        let (offer, paid) = stall.paid(&Ask::chat("hi"), &wallet).await;
        let first = paid.send(&stall.client).await.refused(status, code);
        assert_eq!(first.header("payment-response"), None);
        let receipt = &first.json()["receipt"];
        assert_eq!(
            (&receipt["status"], &receipt["failure"]),
            (&json!("failed"), &json!(code))
        );
        for again in [paid.clone(), Ask::chat("hi").id(&offer.id)] {
            failed(again.send(&stall.client).await, code);
        }
        // The payment stands for the failed request.
        let other = Ask::chat("hi").offer(&stall.client).await;
        let mut echoed = signed(&paid);
        echoed.accepted = other.terms().clone();
        echoed.extensions = None;
        let other = Ask::chat("hi").id(&other.id).signed(&echoed);
        other
            .send(&stall.client)
            .await
            .refused(409, "REQUEST_ID_CONFLICT");
        lost += if may_bill {
            i64::try_from(offer.amount()).unwrap()
        } else {
            0
        };
        assert_eq!(stall.lost().await, lost, "{number}");
        assert_eq!(stall.upstream.count(), number + 1, "never sent again");
    }
    assert_eq!(stall.facilitator.count("/settle"), 0);
    stall.agree(4, &[]).await;
}

async fn a_request_that_the_provider_refuses_is_not_paid_for(store: Store) {
    let stall = Stall::new(store).await;
    let refusal = br#"{"error":{"message":"top_k is unknown"}}"#;
    stall.upstream.always(vec![answer(400, &[], refusal)]);
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    let first = paid.send(&stall.client).await.refused(400, "VALIDATION_ERROR");
    assert!(first.text().contains("top_k is unknown"), "{}", first.text());
    failed(paid.send(&stall.client).await, "VALIDATION_ERROR");
    assert_eq!(stall.lost().await, 0);
    // Under a new id it may begin anew.
    stall.upstream.script(completes);
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    paid.send(&stall.client).await.expect(200);
    stall.agree(2, &[FLASH]).await;
}

async fn a_client_that_leaves_at_the_settlement_finds_its_answer(store: Store) {
    let stall = Stall::new(store).await;
    let (_, paid) = stall.paid(&Ask::list(), &Wallet::new()).await;
    let slow = Fault::Slow(Duration::from_millis(700));
    stall.facilitator.break_times("/settle", slow, 1);
    let sender = paid.by(&stall.service().client());
    let leaving = tokio::spawn(sender.send());
    eventually("the payment is settled", || async {
        (stall.facilitator.count("/settle") == 1).then_some(())
    })
    .await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    let working = paid.send(&stall.client).await.expect(202).json();
    assert_eq!(working["status"], "settling");
    stall.ends(&paid).await.expect(200);
    assert_eq!(stall.facilitator.count("/settle"), 1);
    stall.agree(0, &[FEE]).await;
}

async fn a_facilitator_that_is_down_at_the_start_is_asked_again(store: Store) {
    let mut stall = Stall::new(store).await;
    stall.facilitator.break_at("/supported", Fault::Gone);
    stall.restart(&[]).await;
    let ask = Ask::chat("hi");
    eventually("the facilitator is asked", || async {
        (stall.facilitator.reached("/supported") > 0).then_some(())
    })
    .await;
    ask.send(&stall.client).await.refused(503, "SERVICE_UNAVAILABLE");
    stall.facilitator.heal();
    eventually("the facilitator is asked again", || async {
        (ask.send(&stall.client).await.status == 402).then_some(())
    })
    .await;
    let (_, paid) = stall.paid(&ask, &Wallet::new()).await;
    paid.send(&stall.client).await.expect(200);
    stall.agree(1, &[FLASH]).await;
}

async fn a_shutdown_lets_paid_calls_end(store: Store) {
    let mut stall = Stall::new(store).await;
    let gate = gated(&stall);
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    let running = tokio::spawn(paid.by(&stall.client).send());
    asked(&stall, 1).await;
    stall.service().signal(rustix::process::Signal::TERM);
    eventually("the service ends", || async {
        paid.by(&stall.client)
            .try_send()
            .await
            .map_or(Some(()), |reply| (reply.status == 503).then_some(()))
    })
    .await;
    gate.open();
    let reply = running.await.unwrap().expect(200);
    assert!(payment_response(&reply).success);
    let service = stall.site.service.as_mut().unwrap();
    assert!(service.wait(Duration::from_secs(10)).await.success());
    stall.restart(&[]).await;
    assert_eq!(paid.send(&stall.client).await.expect(200).body, reply.body);
    stall.agree(1, &[FLASH]).await;
}
