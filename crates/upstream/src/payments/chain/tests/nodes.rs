//! Nodes that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use turnpike_core::x402::Scheme;
use turnpike_core::x402::evm::UPTO_PROXY;

use super::{Chain, OTHER, OURS, TOKEN, USED, event, hash, hex_of, paid, read, reader, why};
use crate::payments::stand_in::{Done, reply, serve};
use crate::payments::{ChainReader, ChainSettings, FacilitatorError, Fate};
use crate::secret::Secret;

#[tokio::test]
async fn a_node_that_refuses_many_blocks_is_asked_for_fewer() {
    let mut chain = Chain::new(3000)
        .event(USED, 2900, 7)
        .transfer(OURS, 3000, 2900, 7);
    chain.range = 60;
    assert_eq!(chain.fate(Scheme::Exact).await, Ok(paid(7, 3000)));
    let asked = chain.questions.lock().unwrap().len();
    assert!(asked < 100, "{asked}");
    // Block by block.
    let mut chain = Chain::new(1030)
        .event(USED, 1020, 7)
        .transfer(OURS, 3000, 1020, 7);
    chain.range = 1;
    assert_eq!(chain.fate(Scheme::Exact).await, Ok(paid(7, 3000)));
    chain.range = 0;
    assert!(why(chain.fate(Scheme::Exact).await).contains("-32005"));
}

#[tokio::test]
async fn the_step_that_worked_is_remembered_and_tried_doubled() {
    let mut chain = Chain::new(3000)
        .event(USED, 2900, 7)
        .transfer(OURS, 3000, 2900, 7);
    chain.range = 60;
    let questions = chain.questions.clone();
    let reader = reader(&serve(move |_, body| chain.reply(body)).await);
    let mut asked = Vec::new();
    for _ in 0..3 {
        assert_eq!(read(&reader, Scheme::Exact).await, Ok(paid(7, 3000)));
        let methods: Vec<String> = std::mem::take(&mut *questions.lock().unwrap());
        asked.push(methods.iter().filter(|method| *method == "eth_getLogs").count());
    }
    // 2000 blocks are halved to 31 at first; then 62, and 31 again.
    assert!(asked[1] < asked[0] && asked[2] <= asked[1] + 1, "{asked:?}");
    assert!(asked[2] + 3 < asked[0], "{asked:?}");
}

#[tokio::test]
async fn a_node_that_is_asked_too_often_is_not_asked_more() {
    for (code, message) in [
        (-32005, "daily request count exceeded, request rate limited"),
        (-32016, "no"),
        (-32007, "50/second request limit reached"),
        (429, "Your app has exceeded its compute units per second capacity"),
    ] {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let fault = broken("eth_getLogs", move |body| {
            counter.fetch_add(1, Ordering::SeqCst);
            let answer = json!({ "id": body["id"], "error": { "code": code, "message": message } });
            reply(200, &answer.to_string())
        });
        assert!(fault.await.contains("fewer requests"), "{message}");
        assert_eq!(count.load(Ordering::SeqCst), 1, "{message}");
    }
}

#[tokio::test]
async fn logs_that_take_too_long_are_asked_for_in_parts() {
    let chain = Chain::new(5000)
        .event(USED, 2000, 7)
        .transfer(OURS, 3000, 2000, 7);
    let slow = move |_: &str, body: &Value| {
        let place = |name: &str| super::number(&body["params"][0][name]);
        if body["method"] == "eth_getLogs" && place("toBlock") - place("fromBlock") >= 1500 {
            return Done::Silence;
        }
        chain.reply(body)
    };
    let fate = read(&reader(&serve(slow).await), Scheme::Exact).await;
    assert_eq!(fate, Ok(paid(7, 3000)));
}

#[tokio::test]
async fn a_search_has_an_end() {
    let mut chain = Chain::new(200_000).used_at(100);
    chain.range = 5;
    assert!(why(chain.fate(Scheme::Upto).await).contains("too many questions"));
    // It is not searched long after the authorisation's end.
    chain.range = 2000;
    chain.used_at = Some(15_000);
    chain.questions.lock().unwrap().clear();
    assert_eq!(chain.fate(Scheme::Upto).await, Ok(Fate::Void));
    let questions = chain.questions.lock().unwrap();
    let logs = questions.iter().filter(|method| *method == "eth_getLogs").count();
    assert!(logs <= 14, "{logs}");
}

#[tokio::test]
async fn a_node_is_checked_for_the_operator() {
    let check = |method: &'static str, change: fn(&Value) -> Value| async move {
        let chain = Chain::new(5000);
        let answering = move |_: &str, body: &Value| {
            let result = if body["method"] == method {
                change(body)
            } else {
                Value::Null
            };
            if result.is_null() {
                return chain.reply(body);
            }
            reply(200, &json!({ "id": body["id"], "result": result }).to_string())
        };
        reader(&serve(answering).await).check(TOKEN).await
    };
    assert_eq!(check("", |_| Value::Null).await, Ok(()));
    let fault = |checked: Result<(), FacilitatorError>| checked.unwrap_err().0;
    let told = check("eth_chainId", |_| json!("0x1")).await;
    assert_eq!(fault(told), "the node is of another chain");
    let told = check("eth_call", |_| json!(format!("0x{:064x}", 18))).await;
    assert_eq!(fault(told), "the token has another number of decimals than 6");
    let told = check("eth_call", |_| json!("0x")).await;
    assert!(fault(told).starts_with("the token has no decimals"));
    let told = check("eth_getCode", |_| json!("0x")).await;
    assert_eq!(fault(told), "Permit2 is not on this chain");
    let told = check("eth_getCode", |body| {
        let proxy = body["params"][0] == json!(UPTO_PROXY);
        if proxy { json!("0x") } else { Value::Null }
    });
    assert_eq!(
        fault(told.await),
        "the proxy that settles upto is not on this chain"
    );
    let told = check("eth_getLogs", |_| json!({})).await;
    assert_eq!(fault(told), "eth_getLogs: the answer has another form");
}

#[tokio::test]
async fn a_reading_waits_for_its_turn_and_not_forever() {
    let reader = Arc::new(reader(&serve(|_, _| Done::Silence).await));
    let turns = reader.turns.acquire_many(16).await.unwrap();
    tokio::time::pause();
    assert_eq!(
        why(read(&reader, Scheme::Exact).await),
        "too many readings of the chain at once"
    );
    drop(turns);
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
