//! Readings of a made-up chain.

mod nodes;
mod proxy;
mod upto;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{Address, Authorization, Scheme};

use super::state::selector;
use super::*;
use crate::payments::eip712::{address_word, keccak};
use crate::payments::stand_in::{Done, reply, serve};

const BEGIN: i64 = 1_800_000_000;
const OURS: Address = Address([0xaa; 20]);
const OTHER: Address = Address([0xbb; 20]);
const PAYER: Address = Address([0xcc; 20]);
const TOKEN: Address = Address([0xdd; 20]);
const FACILITATOR: Address = Address([0xee; 20]);

/// A chain with a block every two seconds.
#[derive(Clone)]
struct Chain {
    blocks: u64,
    used_at: Option<u64>,
    logs: Vec<Value>,
    transactions: HashMap<String, Value>,
    /// Most blocks of one question for logs.
    range: u64,
    /// The first block whose state is known.
    kept: u64,
    /// Whether contracts are asked by a block's hash.
    by_hash: bool,
    questions: Arc<Mutex<Vec<String>>>,
}

fn hex_of(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

fn hash(number: u8) -> String {
    hex_of(&[number; 32])
}

fn number(text: &Value) -> u64 {
    u64::from_str_radix(&text.as_str().unwrap()[2..], 16).unwrap()
}

fn event(signature: &str) -> String {
    hex_of(&keccak(&[signature.as_bytes()]))
}

fn authorization(scheme: Scheme) -> Authorization {
    let upto = scheme == Scheme::Upto;
    Authorization {
        scheme,
        payer: PAYER,
        nonce: std::array::from_fn(|place| u8::try_from(place).unwrap()),
        to: OURS,
        token: TOKEN,
        value: 3000,
        valid_after: 0,
        valid_before: BEGIN + 20_000,
        spender: upto.then_some(PERMIT2),
        facilitator: upto.then_some(FACILITATOR),
        signature: Vec::new(),
    }
}

impl Chain {
    fn new(blocks: u64) -> Self {
        Self {
            blocks,
            used_at: None,
            logs: Vec::new(),
            transactions: HashMap::new(),
            range: u64::MAX,
            kept: 0,
            by_hash: true,
            questions: Arc::default(),
        }
    }

    fn log(&mut self, contract: Address, block: u64, transaction: u8, topics: &[String], data: &str) {
        let index = self.logs.len();
        self.logs.push(json!({
            "address": contract, "topics": topics, "data": data, "transactionHash": hash(transaction),
            "blockNumber": format!("{block:#x}"), "logIndex": format!("{index:#x}"), "removed": false,
        }));
    }

    fn event(mut self, name: &str, block: u64, transaction: u8) -> Self {
        let nonce = authorization(Scheme::Exact).nonce;
        let topics = [event(name), hex_of(&address_word(PAYER)), hex_of(&nonce)];
        self.used_at = Some(block);
        self.log(TOKEN, block, transaction, &topics, "0x");
        self
    }

    fn transfer(mut self, to: Address, amount: u64, block: u64, transaction: u8) -> Self {
        let topics = [
            event("Transfer(address,address,uint256)"),
            hex_of(&address_word(PAYER)),
            hex_of(&address_word(to)),
        ];
        let data = format!("0x{amount:064x}");
        self.log(TOKEN, block, transaction, &topics, &data);
        self
    }

    fn used_at(mut self, block: u64) -> Self {
        self.used_at = Some(block);
        self
    }

    fn answer(&self, method: &str, params: &Value) -> Result<Value, (i64, &'static str)> {
        self.questions.lock().unwrap().push(method.to_owned());
        Ok(match method {
            "eth_chainId" => json!("0x14a34"),
            "eth_getBlockByNumber" => {
                let last = params[0] == "latest";
                let block = if last { self.blocks } else { number(&params[0]) };
                let time = BEGIN + 2 * i64::try_from(block).unwrap();
                json!({ "number": format!("{block:#x}"), "timestamp": format!("{time:#x}"), "hash": format!("0x{block:064x}") })
            }
            "eth_call" => {
                let block = match params[1].get("blockHash") {
                    Some(_) if !self.by_hash => return Err((-32602, "invalid argument 1")),
                    Some(hash) => number(&json!(format!("0x{}", &hash.as_str().unwrap()[50..]))),
                    None => number(&params[1]),
                };
                if block < self.kept {
                    return Err((-32000, "missing trie node"));
                }
                let used = self.used_at.is_some_and(|used| used <= block);
                let mut word = [0; 32];
                if params[0]["data"] == json!(hex_of(&selector("decimals()"))) {
                    word[31] = 6;
                    return Ok(json!(hex_of(&word)));
                }
                // The bit of nonce …1f is the highest of its byte; true of a token is the lowest of all.
                if params[0]["to"] == json!(PERMIT2) {
                    word[28] = if used { 0x80 } else { 0x7f };
                } else {
                    word[31] = u8::from(used);
                }
                json!(hex_of(&word))
            }
            "eth_getLogs" => {
                let (first, last) = (number(&params[0]["fromBlock"]), number(&params[0]["toBlock"]));
                if last - first >= self.range {
                    return Err((-32005, "query returned more than 10000 results"));
                }
                let wanted = &params[0]["topics"];
                let fits = |log: &&Value| {
                    let block = number(&log["blockNumber"]);
                    let kinds = wanted[0].as_array().unwrap();
                    let indexed = 1..wanted.as_array().unwrap().len();
                    (first..=last).contains(&block)
                        && log["address"] == params[0]["address"]
                        && kinds.contains(&log["topics"][0])
                        && indexed.clone().all(|place| log["topics"][place] == wanted[place])
                };
                self.logs.iter().filter(fits).cloned().collect()
            }
            "eth_getTransactionReceipt" => {
                let own = |log: &&Value| log["transactionHash"] == params[0];
                let logs: Vec<Value> = self.logs.iter().filter(own).cloned().collect();
                json!({ "transactionHash": params[0], "status": "0x1", "logs": logs })
            }
            "eth_getTransactionByHash" => self.transactions[params[0].as_str().unwrap()].clone(),
            "eth_getCode" => json!("0x60"),
            other => panic!("{other}"),
        })
    }

    fn reply(&self, body: &Value) -> Done {
        let answer = match self.answer(body["method"].as_str().unwrap(), &body["params"]) {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": body["id"], "result": result }),
            Err((code, message)) => {
                json!({ "jsonrpc": "2.0", "id": body["id"], "error": { "code": code, "message": message } })
            }
        };
        reply(200, &answer.to_string())
    }

    async fn fate(&self, scheme: Scheme) -> Result<Fate, FacilitatorError> {
        let chain = self.clone();
        let reader = reader(&serve(move |_, body| chain.reply(body)).await);
        read(&reader, scheme).await
    }
}

fn reader(url: &str) -> ChainReader {
    let settings = ChainSettings {
        timeout: Duration::from_millis(500),
        ..ChainSettings::new(Secret::new(url), "eip155:84532")
    };
    ChainReader::new(&settings).unwrap()
}

/// First seen at block 1000.
async fn read(reader: &ChainReader, scheme: Scheme) -> Result<Fate, FacilitatorError> {
    let since = Timestamp::from_millis((BEGIN + 2000) * 1000);
    reader.fate(&authorization(scheme), since).await
}

fn paid(transaction: u8, amount: u64) -> Fate {
    let transaction = hash(transaction);
    Fate::Paid { transaction, amount }
}

fn why(fate: Result<Fate, FacilitatorError>) -> String {
    fate.unwrap_err().0
}

const USED: &str = "AuthorizationUsed(address,bytes32)";
const CANCELED: &str = "AuthorizationCanceled(address,bytes32)";

#[tokio::test]
async fn an_unused_authorisation_is_open_until_the_chain_is_past_its_end() {
    for (scheme, over) in [(Scheme::Exact, 10_015), (Scheme::Upto, 10_016)] {
        for (blocks, fate) in [
            (1100, Fate::Open),
            (10_000, Fate::Open),
            (over - 1, Fate::Open),
            (over, Fate::Expired),
        ] {
            assert_eq!(
                Chain::new(blocks).fate(scheme).await,
                Ok(fate),
                "{scheme} {blocks}"
            );
        }
    }
}

#[tokio::test]
async fn an_exact_payment_is_found_by_its_event() {
    let chain = Chain::new(5000).transfer(OURS, 1, 1500, 8);
    let chain = chain
        .event(USED, 2000, 7)
        .transfer(OURS, 3000, 2000, 7)
        .transfer(OURS, 1, 2001, 9);
    assert_eq!(chain.fate(Scheme::Exact).await, Ok(paid(7, 3000)));
    // Also right away, in the latest block.
    let chain = Chain::new(2000)
        .event(USED, 2000, 7)
        .transfer(OURS, 3000, 2000, 7);
    assert_eq!(chain.fate(Scheme::Exact).await, Ok(paid(7, 3000)));
}

// Fault matrix 193
#[tokio::test]
async fn a_canceled_exact_payment_is_void() {
    let canceled = Chain::new(2001).event(CANCELED, 2000, 7);
    assert_eq!(canceled.fate(Scheme::Exact).await, Ok(Fate::Void));
}

#[tokio::test]
async fn an_exact_payment_that_went_elsewhere_is_unknown() {
    let elsewhere = Chain::new(20_000)
        .event(USED, 2000, 7)
        .transfer(OTHER, 3000, 2000, 7);
    assert!(why(elsewhere.fate(Scheme::Exact).await).contains("to somebody else"));
    let nothing = Chain::new(20_000).event(USED, 2000, 7).transfer(OURS, 0, 2000, 7);
    assert!(why(nothing.fate(Scheme::Exact).await).contains("nothing was transferred"));
    // A transfer to us in the same transaction that belongs to another authorisation.
    let other = elsewhere.clone().transfer(OURS, 3000, 2000, 7);
    assert!(why(other.fate(Scheme::Exact).await).contains("to somebody else"));
    let alone = Chain::new(20_000).event(USED, 2000, 7);
    assert!(why(alone.fate(Scheme::Exact).await).contains("not next to that"));
    // No event, though the token says that it was used.
    let silent = Chain::new(20_000).transfer(OURS, 3000, 2000, 7).used_at(2000);
    assert!(why(silent.fate(Scheme::Exact).await).contains("no event"));
}

#[tokio::test]
async fn clocks_may_differ_by_an_hour() {
    // First seen at block 1000 + 1800.
    let since = Timestamp::from_millis((BEGIN + 2000 + 3600) * 1000);
    let chain = Chain::new(5000)
        .event(USED, 1000, 7)
        .transfer(OURS, 3000, 1000, 7);
    let reader = reader(&serve(move |_, body| chain.reply(body)).await);
    let fate = reader.fate(&authorization(Scheme::Exact), since).await;
    assert_eq!(fate, Ok(paid(7, 3000)));
}

#[tokio::test]
async fn contracts_are_asked_by_the_blocks_hash_or_by_its_number() {
    for by_hash in [true, false] {
        let mut chain = Chain::new(5000)
            .event(USED, 2000, 7)
            .transfer(OURS, 3000, 2000, 7);
        chain.by_hash = by_hash;
        assert_eq!(chain.fate(Scheme::Exact).await, Ok(paid(7, 3000)));
        let calls = chain.questions.lock().unwrap();
        let calls = calls.iter().filter(|method| *method == "eth_call").count();
        assert_eq!(calls, if by_hash { 1 } else { 2 });
    }
}
