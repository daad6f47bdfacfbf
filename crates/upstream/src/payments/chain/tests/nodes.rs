//! Nodes that misbehave.

use std::time::Duration;

use serde_json::{Value, json};
use turnpike_core::x402::Scheme;

use super::{Chain, OTHER, OURS, USED, event, hash, hex_of, paid, read, reader, why};
use crate::payments::stand_in::{Done, reply, serve};
use crate::payments::{ChainReader, ChainSettings};
use crate::secret::Secret;

#[tokio::test]
async fn a_node_that_refuses_many_blocks_is_asked_for_fewer() {
    let mut chain = Chain::new(3000)
        .event(USED, 2900, 7)
        .transfer(OURS, 3000, 2900, 7);
    chain.range = 60;
    assert_eq!(chain.fate(Scheme::Exact).await, Ok(paid(7, 3000)));
    let asked = chain.questions.lock().unwrap().len();
    assert!(asked < 80, "{asked}");
    chain.range = 20;
    assert!(why(chain.fate(Scheme::Exact).await).contains("-32005"));
}

#[tokio::test]
async fn a_search_has_an_end() {
    let mut chain = Chain::new(200_000);
    chain.used_at = Some(100);
    chain.range = 60;
    assert!(why(chain.fate(Scheme::Upto).await).contains("too many questions"));
}

/// A chain on which the payment was settled, whose node answers `method` as `change` says.
async fn broken(method: &'static str, change: impl Fn(&Value) -> Done + Send + Sync + 'static) -> String {
    let chain = Chain::new(5000)
        .event(USED, 2000, 7)
        .transfer(OURS, 3000, 2000, 7);
    let answering = move |_: &str, body: &Value| {
        if body["method"] == method {
            change(body)
        } else {
            chain.reply(body)
        }
    };
    why(read(&reader(&serve(answering).await), Scheme::Exact).await)
}

#[tokio::test]
async fn whatever_a_node_does_wrong_is_unknown() {
    for method in [
        "eth_chainId",
        "eth_getBlockByNumber",
        "eth_call",
        "eth_getLogs",
        "eth_getTransactionReceipt",
    ] {
        let with = |result: Value| {
            move |body: &Value| {
                let answer = json!({ "jsonrpc": "2.0", "id": body["id"], "result": result });
                reply(200, &answer.to_string())
            }
        };
        broken(method, |_| Done::Cut).await;
        broken(method, |_| Done::Silence).await;
        broken(method, |_| reply(429, r#"{"error":{"code":-32005}}"#)).await;
        broken(method, |_| reply(500, "{}")).await;
        broken(method, |_| reply(200, "<html>")).await;
        broken(method, |_| reply(200, &"x".repeat(3 * 1024 * 1024))).await;
        broken(method, |_| {
            reply(200, r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#)
        })
        .await;
        broken(method, |_| {
            reply(200, r#"{"jsonrpc":"2.0","id":999999,"result":"0x14a34"}"#)
        })
        .await;
        for result in [
            json!(null),
            json!("0x"),
            json!("0x1"),
            json!(7),
            json!({}),
            json!([{}]),
            json!("0x14a34ff"),
            json!({ "number": "0x1388", "timestamp": "later" }),
            json!({ "number": "0x1388ffffffffffffffff", "timestamp": "0x1" }),
            json!({ "transactionHash": hash(7), "status": "0x1", "logs": [] }),
            json!({ "transactionHash": hash(8), "status": "0x1", "logs": [] }),
            json!({ "transactionHash": hash(7), "status": "0x0", "logs": [] }),
        ] {
            broken(method, with(result)).await;
        }
    }
    let fault = broken("eth_chainId", |body| {
        let answer = json!({ "id": body["id"], "result": "0x1" });
        reply(200, &answer.to_string())
    });
    assert_eq!(fault.await, "the node is of another chain");
    // Logs of another payer, of another block, and of a block that was given up.
    for (name, value) in [
        ("address", json!(OTHER)),
        ("topics", json!([event(USED), hex_of(&[1; 32]), hex_of(&[2; 32])])),
        ("topics", json!([])),
        ("blockNumber", json!("0x1")),
        ("removed", json!(true)),
    ] {
        let mut log = Chain::new(1).event(USED, 2000, 7).logs.remove(0);
        log[name] = value;
        let fault = broken("eth_getLogs", move |body| {
            let answer = json!({ "id": body["id"], "result": [log] });
            reply(200, &answer.to_string())
        });
        assert_eq!(fault.await, "eth_getLogs: a log that was not asked for");
    }
}

#[tokio::test]
async fn a_reading_has_an_end() {
    let settings = ChainSettings {
        total_timeout: Duration::from_millis(200),
        ..ChainSettings::new(Secret::new(serve(|_, _| Done::Silence).await), "eip155:84532")
    };
    let reader = ChainReader::new(&settings).unwrap();
    assert_eq!(
        why(read(&reader, Scheme::Exact).await),
        "reading the chain took too long"
    );
}
