//! A settlement of which nobody knows what became is ended by the operator, who has looked at the chain.

use serde_json::{Value, json};

use crate::harness::Store;
use crate::harness::facilitator::Fault;
use crate::harness::operate;
use crate::harness::stall::{FLASH, Stall};
use crate::harness::wallet::{Ask, Wallet, payment_response};
use crate::on_both_stores;

on_both_stores!(
    what_was_paid_is_settled_by_hand,
    what_was_never_paid_is_given_up_by_hand,
);

/// A call whose settlement fails as `fault` says, while the chain is silent: the paid request, and how it is listed.
async fn unknown(store: Store, fault: Fault) -> (Stall, Ask, Value) {
    let stall = Stall::new(store).await;
    let (_, paid) = stall.paid(&Ask::chat("hi"), &Wallet::new()).await;
    stall.facilitator.break_at("/settle", fault);
    stall.facilitator.break_at("/rpc", Fault::Status(503));
    paid.send(&stall.client).await.expect(202);
    let listed = stall.operate(&["settlement", "list"]);
    assert_eq!(listed["more"], false);
    let [settlement] = &listed["settlements"].as_array().unwrap()[..] else {
        panic!("{listed}");
    };
    assert_eq!(
        (&settlement["status"], &settlement["dueUsd"]),
        (&json!("settling"), &json!("0.00002"))
    );
    // With it one could fetch the answer.
    assert_eq!(settlement.get("requestId"), None);
    (stall, paid, settlement.clone())
}

/// Runs a command about a settlement; what was said when it was refused.
fn tell(stall: &Stall, command: &str, receipt: &str, more: &[&str]) -> Result<Value, String> {
    let mut args = vec!["settlement", command, receipt];
    args.extend(more);
    let (status, value, said) = operate(&stall.config, &stall.data, &args);
    if status.success() { Ok(value) } else { Err(said) }
}

fn receipt(settlement: &Value) -> &str {
    settlement["receiptId"].as_str().unwrap()
}

async fn what_was_paid_is_settled_by_hand(store: Store) {
    let (stall, paid, settlement) = unknown(store, Fault::Lost).await;
    let receipt = receipt(&settlement);
    let hash = stall.facilitator.paid()[0].hash.clone();
    // It can be settled still, for all that one knows.
    let void = tell(&stall, "void", receipt, &["--reason", "lost"]);
    assert!(void.unwrap_err().contains("can be settled until"));
    for usd in ["0.000019", "100"] {
        let other = tell(&stall, "settle", receipt, &["--transaction", &hash, "--usd", usd]);
        assert!(other.unwrap_err().contains("must have moved"), "{usd}");
    }
    let mistyped = tell(&stall, "settle", receipt, &["--transaction", &hash[..65]]);
    assert!(mistyped.unwrap_err().contains("64 hexadecimal digits"));
    let settled = tell(&stall, "settle", receipt, &["--transaction", &hash]).unwrap();
    assert_eq!(
        (&settled["status"], &settled["transaction"]),
        (&json!("settled"), &json!(hash))
    );
    let reply = paid.send(&stall.client).await.expect(200);
    assert_eq!(payment_response(&reply).transaction, hash);
    assert_eq!(stall.operate(&["settlement", "list"])["settlements"], json!([]));
    for (command, more) in [
        ("settle", ["--transaction", &hash]),
        ("void", ["--reason", "late"]),
    ] {
        let again = tell(&stall, command, receipt, &more);
        assert!(again.unwrap_err().contains("has this receipt"), "{command}");
    }
    noted(&stall, "settlement.settle", &hash).await;
    stall.facilitator.heal();
    stall.agree(1, &[FLASH]).await;
}

async fn what_was_never_paid_is_given_up_by_hand(store: Store) {
    let (stall, paid, settlement) = unknown(store, Fault::Status(500)).await;
    let receipt = receipt(&settlement);
    let deadline = settlement["validBefore"].as_str().unwrap();
    // As if it were long past.
    let past = format!(
        "UPDATE paid_call_terms SET document = REPLACE(document, '\"validBefore\":\"{deadline}\"',
         '\"validBefore\":\"2026-01-01T00:00:00.000Z\"')"
    );
    stall.database.execute(&past).await;
    let given_up = tell(&stall, "void", receipt, &["--reason", "never seen on the chain"]).unwrap();
    assert_eq!(
        (&given_up["status"], &given_up["failure"]),
        (&json!("failed"), &json!("payment_given_up"))
    );
    noted(&stall, "settlement.void", "never seen on the chain").await;
    paid.send(&stall.client).await.refused(409, "REQUEST_FAILED");
    assert_eq!(stall.lost().await, i64::try_from(FLASH).unwrap());
    assert_eq!(stall.operate(&["settlement", "list"])["settlements"], json!([]));
    stall.facilitator.heal();
    stall.agree(1, &[]).await;

    // It was on the chain all the same.
    let hash = format!("0x{}", "AB".repeat(32));
    let settled = tell(&stall, "settle", receipt, &["--transaction", &hash]).unwrap();
    assert_eq!(
        (&settled["status"], &settled["transaction"]),
        (&json!("settled"), &json!(hash.to_lowercase()))
    );
    assert_eq!(stall.lost().await, 0);
    let reply = paid.send(&stall.client).await.expect(200);
    assert!(reply.text().contains("Hello"));
    stall.audit();
}

/// Demands that the books of the house tell of the command, once.
async fn noted(stall: &Stall, action: &str, after: &str) {
    let count = format!(
        "SELECT COUNT(*) FROM audit_log a JOIN paid_calls p ON p.tenant_id = a.tenant_id
         WHERE a.action = '{action}' AND a.after_json LIKE '%{after}%'"
    );
    assert_eq!(stall.database.number(&count).await, 1, "{action}");
}
