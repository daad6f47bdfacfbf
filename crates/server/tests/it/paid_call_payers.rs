//! Payers that do not pay when the work is done: the answer is held back, and what nobody pays for is a loss.

use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::facilitator::Fault;
use crate::harness::stall::{FLASH, Stall};
use crate::harness::wallet::{Ask, Wallet, authorization, payment_response};
use crate::harness::{Reply, Store, eventually};
use crate::on_both_stores;
use crate::paid_call_faults::{asked, failed, gated, signed};

on_both_stores!(
    a_refusal_of_what_was_not_settled_can_be_tried_again,
    a_payer_that_is_emptied_gets_no_answer_until_it_can_pay,
    a_payer_that_never_pays_is_the_operators_loss,
    a_deadline_that_passes_unseen_is_found_by_the_sweep,
    a_payment_that_was_withdrawn_ends_the_call,
    a_balance_that_was_verified_for_many_pays_for_as_many_as_it_can,
);

#[track_caller]
fn withheld(reply: &Reply, reason: &str) {
    assert_eq!(reply.status, 402, "{}", reply.text());
    let response = payment_response(reply);
    assert!(!response.success);
    assert_eq!(response.error_reason.as_deref(), Some(reason));
    assert_eq!(response.transaction, "");
    // No terms: a client must not pay again by itself.
    assert_eq!(reply.header("payment-required"), None);
    assert_eq!(reply.header("www-authenticate"), None);
    assert!(!reply.text().contains("Hello"), "the answer is held back");
}

async fn a_refusal_of_what_was_not_settled_can_be_tried_again(store: Store) {
    let stall = Stall::new(store).await;
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    stall
        .facilitator
        .break_at("/settle", Fault::Refuse("no_gas_left"));
    for tries in 1..=3 {
        let reply = paid.send(&stall.client).await;
        withheld(&reply, "no_gas_left");
        assert_eq!(stall.facilitator.reached("/settle"), tries);
    }
    stall.facilitator.heal();
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        calls.spawn(paid.by(&stall.client).send());
    }
    for reply in calls.join_all().await {
        assert!(matches!(reply.status, 200 | 202), "{}", reply.text());
    }
    let reply = stall.ends(&paid).await.expect(200);
    assert!(payment_response(&reply).success);
    stall.agree(1, &[FLASH]).await;
}

/// A call whose payer has no money any more when the work is done.
async fn emptied(stall: &Stall, wallet: &Wallet) -> Ask {
    let gate = gated(stall);
    let (_, paid) = stall.paid(&Ask::chat("hi"), wallet).await;
    let running = tokio::spawn(paid.by(&stall.client).send());
    asked(stall, 1).await;
    stall.facilitator.set_balance(wallet.address(), 0);
    gate.open();
    let reply = running.await.unwrap();
    withheld(&reply, "permit2_insufficient_balance");
    paid
}

// Fault matrix 193
async fn a_payer_that_is_emptied_gets_no_answer_until_it_can_pay(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let paid = emptied(&stall, &wallet).await;
    for _ in 0..2 {
        let again = paid.send(&stall.client).await;
        withheld(&again, "permit2_insufficient_balance");
    }
    let receipt = stall.receipt(&paid.send(&stall.client).await).await;
    assert_eq!(
        (&receipt["status"], &receipt["amount"]),
        (&json!("refused"), &json!(null))
    );
    stall.facilitator.set_balance(wallet.address(), 1000);
    let reply = stall.ends(&paid).await.expect(200);
    assert!(reply.text().contains("Hello"));
    assert!(payment_response(&reply).success);
    assert_eq!(paid.send(&stall.client).await.body, reply.body);
    assert_eq!(stall.lost().await, 0);
    stall.agree(1, &[FLASH]).await;
}

// Fault matrix 193: never refilled
async fn a_payer_that_never_pays_is_the_operators_loss(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let paid = emptied(&stall, &wallet).await;
    stall.facilitator.chain().advance(600);
    failed(stall.ends(&paid).await, "payment_expired");
    // Too late.
    stall.facilitator.set_balance(wallet.address(), 1000);
    for _ in 0..2 {
        failed(paid.send(&stall.client).await, "payment_expired");
    }
    assert_eq!(stall.lost().await, i64::try_from(FLASH).unwrap());
    stall.agree(1, &[]).await;
}

async fn a_deadline_that_passes_unseen_is_found_by_the_sweep(store: Store) {
    let stall = Stall::new(store).await;
    let paid = emptied(&stall, &Wallet::new()).await;
    stall.facilitator.chain().advance(600);
    stall.leases_end().await;
    eventually("the call is given up", || async {
        let open = "SELECT COUNT(*) FROM paid_calls WHERE state < 4";
        (stall.database.number(open).await == 0).then_some(())
    })
    .await;
    failed(paid.send(&stall.client).await, "payment_expired");
    assert_eq!(stall.lost().await, i64::try_from(FLASH).unwrap());
    stall.agree(1, &[]).await;
}

// Fault matrix 193
async fn a_payment_that_was_withdrawn_ends_the_call(store: Store) {
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    // Nobody works for the list, so the facilitator is what gives the payer its time.
    let (_, paid) = stall.paid(&Ask::list(), &wallet).await;
    stall.facilitator.break_times("/settle", Fault::Refuse("busy"), 1);
    withheld(&paid.send(&stall.client).await, "busy");
    stall.facilitator.withdraw(&authorization(&signed(&paid)));
    stall.facilitator.chain().advance(60);
    failed(stall.ends(&paid).await, "payment_withdrawn");
    assert_eq!(stall.lost().await, 0, "no provider was asked");

    let gate = gated(&stall);
    let (_, paid) = stall.paid(&Ask::chat("hi"), &wallet).await;
    let running = tokio::spawn(paid.by(&stall.client).send());
    asked(&stall, 1).await;
    stall.facilitator.withdraw(&authorization(&signed(&paid)));
    stall.facilitator.chain().advance(10);
    gate.open();
    let first = running.await.unwrap();
    assert!(matches!(first.status, 202 | 409), "{}", first.text());
    stall.facilitator.chain().advance(40);
    failed(stall.ends(&paid).await, "payment_withdrawn");
    assert_eq!(stall.lost().await, i64::try_from(FLASH).unwrap());
    stall.agree(1, &[]).await;
}

// Verification locks no money
async fn a_balance_that_was_verified_for_many_pays_for_as_many_as_it_can(store: Store) {
    const CALLS: u64 = 12;
    const COVERED: u64 = 7;
    let stall = Stall::new(store).await;
    let wallet = Wallet::new();
    let gate = gated(&stall);
    let mut asks = Vec::new();
    for number in 0..CALLS {
        let (_, paid) = stall.paid(&Ask::chat(&format!("number {number}")), &wallet).await;
        asks.push(paid);
    }
    let mut calls = JoinSet::new();
    for paid in &asks {
        calls.spawn(paid.by(&stall.client).send());
    }
    asked(&stall, asks.len()).await;
    stall
        .facilitator
        .set_balance(wallet.address(), COVERED * FLASH + FLASH / 2);
    gate.open();
    let replies = calls.join_all().await;
    let paid = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(u64::try_from(paid).unwrap(), COVERED);
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        withheld(reply, "permit2_insufficient_balance");
    }
    stall.facilitator.set_balance(wallet.address(), CALLS * FLASH);
    for paid in &asks {
        stall.ends(paid).await.expect(200);
    }
    let calls = asks.len();
    stall.agree(calls, &vec![FLASH; calls]).await;
}
