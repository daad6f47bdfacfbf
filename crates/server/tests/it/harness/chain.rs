//! The chain of the tests: what was paid and withdrawn, as a node tells it by JSON-RPC.
//!
//! A block every two seconds. A transaction stands in the newest block, and every block is final.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use turnpike_core::x402::evm::{PERMIT2, UPTO_PROXY};
use turnpike_core::x402::{Address, Authorization, Scheme};

use super::facilitator::{ASSET, OURS, PAY_TO, keccak};
use super::people::seconds;

/// Unix seconds of block 0.
const GENESIS: i64 = 1_700_000_000;
const SECONDS_PER_BLOCK: i64 = 2;
const AUTHORIZATION_STATE: &str = "e94a0102";
const NONCE_BITMAP: &str = "4fe02b44";
/// Of the proxy that settles `upto`.
const SETTLE: &str = "ff11e7b4";

/// Something that used an authorisation up.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its hash.
    pub hash: String,
    /// Of the authorisation.
    pub scheme: Scheme,
    /// Who signed it.
    pub payer: Address,
    /// Of the authorisation.
    pub nonce: [u8; 32],
    /// What was paid; none when the authorisation was withdrawn.
    pub amount: Option<u64>,
    block: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Chain {
    ahead: AtomicI64,
    transactions: Mutex<Vec<Transaction>>,
}

fn word(bytes: &[u8]) -> String {
    format!("{:0>64}", hex::encode(bytes))
}

fn topic(event: &str) -> String {
    format!("0x{}", hex::encode(keccak(event)))
}

fn of_address(address: Address) -> String {
    format!("0x{}", word(&address.0))
}

fn quantity(number: i64) -> String {
    format!("0x{number:x}")
}

fn number_of(block: i64) -> String {
    format!("0x{}", word(&block.to_be_bytes()))
}

impl Chain {
    /// Its clock, in Unix seconds.
    pub fn now(&self) -> i64 {
        seconds() + self.ahead.load(Ordering::SeqCst)
    }

    /// Moves its clock.
    pub fn advance(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::SeqCst);
    }

    fn newest(&self) -> i64 {
        (self.now() - GENESIS) / SECONDS_PER_BLOCK
    }

    /// Everything that used an authorisation up, oldest first.
    pub fn transactions(&self) -> Vec<Transaction> {
        self.transactions.lock().unwrap().clone()
    }

    /// Uses an authorisation up: pays `amount`, or nothing.
    pub fn record(&self, authorization: &Authorization, hash: &str, amount: Option<u64>) {
        self.transactions.lock().unwrap().push(Transaction {
            hash: hash.to_owned(),
            scheme: authorization.scheme,
            payer: authorization.payer,
            nonce: authorization.nonce,
            amount,
            block: self.newest(),
        });
    }

    /// Answers a question, or several.
    pub fn answer(&self, question: &Value) -> Value {
        if let Some(questions) = question.as_array() {
            return questions.iter().map(|question| self.answer(question)).collect();
        }
        let params = &question["params"];
        let method = question["method"].as_str().unwrap();
        let result = match method {
            "eth_chainId" => json!("0x14a34"),
            "eth_blockNumber" => json!(quantity(self.newest())),
            "eth_getBlockByNumber" => self.block(&params[0]),
            "eth_call" => self.call(&params[0], self.height(&params[1])),
            "eth_getLogs" => self.logs(&params[0]),
            "eth_getTransactionReceipt" => self.receipt(&params[0]),
            "eth_getTransactionByHash" => self.transaction(&params[0]),
            other => panic!("the chain of the tests does not know {other}"),
        };
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })
    }

    /// Of a number, a name, or a block's hash, which is its number here.
    fn height(&self, tag: &Value) -> i64 {
        if let Some(hash) = tag["blockHash"].as_str() {
            return i64::from_str_radix(hash.trim_start_matches("0x"), 16).unwrap();
        }
        let tag = tag.as_str().unwrap_or("latest");
        tag.strip_prefix("0x").map_or_else(
            || if tag == "earliest" { 0 } else { self.newest() },
            |digits| i64::from_str_radix(digits, 16).unwrap(),
        )
    }

    fn block(&self, tag: &Value) -> Value {
        let number = self.height(tag);
        if number > self.newest() {
            return Value::Null;
        }
        json!({
            "number": quantity(number), "timestamp": quantity(GENESIS + number * SECONDS_PER_BLOCK),
            "hash": number_of(number), "parentHash": number_of(number - 1), "transactions": [],
        })
    }

    fn call(&self, call: &Value, height: i64) -> Value {
        let data = call["data"].as_str().or(call["input"].as_str()).unwrap();
        let (selector, words) = data.strip_prefix("0x").unwrap().split_at(8);
        let (who, which) = words.split_at(64);
        let used = |scheme: Scheme| {
            let all = self.transactions();
            let mine = move |used: &Transaction| {
                used.scheme == scheme && word(&used.payer.0) == who && used.block <= height
            };
            all.into_iter().filter(mine).collect::<Vec<_>>()
        };
        match selector {
            AUTHORIZATION_STATE => {
                let is_used = used(Scheme::Exact).iter().any(|used| word(&used.nonce) == which);
                json!(format!("0x{}", word(&[u8::from(is_used)])))
            }
            NONCE_BITMAP => {
                let mut bits = [0_u8; 32];
                for used in used(Scheme::Upto) {
                    let (place, bit) = used.nonce.split_at(31);
                    if word(place) == which {
                        let bit = usize::from(bit[0]);
                        bits[31 - bit / 8] |= 1 << (bit % 8);
                    }
                }
                json!(format!("0x{}", word(&bits)))
            }
            other => panic!("the chain of the tests has no function {other}"),
        }
    }

    fn logs(&self, filter: &Value) -> Value {
        let (from, to) = (self.height(&filter["fromBlock"]), self.height(&filter["toBlock"]));
        let logs = self.transactions().into_iter().flat_map(|used| {
            let logs = logs_of(&used);
            logs.into_iter().map(move |log| (used.block, log))
        });
        logs.filter(|(block, log)| {
            (from..=to).contains(block)
                && one_of(&filter["address"], &log["address"])
                && filter["topics"].as_array().is_none_or(|wanted| {
                    wanted
                        .iter()
                        .zip(0..)
                        .all(|(wanted, at): (_, usize)| one_of(wanted, &log["topics"][at]))
                })
        })
        .map(|(_, log)| log)
        .collect()
    }

    fn find(&self, hash: &Value) -> Option<Transaction> {
        let all = self.transactions();
        all.into_iter().find(|used| *used.hash == *hash)
    }

    fn receipt(&self, hash: &Value) -> Value {
        self.find(hash).map_or(Value::Null, |used| {
            json!({
                "transactionHash": used.hash, "status": "0x1", "logs": logs_of(&used),
                "blockNumber": quantity(used.block), "blockHash": number_of(used.block),
            })
        })
    }

    fn transaction(&self, hash: &Value) -> Value {
        self.find(hash).map_or(Value::Null, |used| {
            let amount = word(&used.amount.unwrap_or_default().to_be_bytes());
            let (payer, nonce) = (word(&used.payer.0), word(&used.nonce));
            let (to, input) = match used.scheme {
                Scheme::Exact => (ASSET.to_owned(), format!("0xe3ee160e{payer}{amount}{nonce}")),
                Scheme::Upto => {
                    let of = |address: &str| word(&Address::parse(address).unwrap().0);
                    let words = [
                        of(ASSET),
                        amount.clone(),
                        nonce,
                        word(&[]),
                        amount,
                        payer,
                        of(PAY_TO),
                        of(OURS),
                        word(&[]),
                    ];
                    (UPTO_PROXY.to_string(), format!("0x{SETTLE}{}", words.concat()))
                }
            };
            json!({
                "hash": used.hash, "input": input, "value": "0x0", "from": OURS, "to": to,
                "blockNumber": quantity(used.block), "blockHash": number_of(used.block),
            })
        })
    }
}

/// Whether a filter, a text or several or null, takes `value`.
fn one_of(filter: &Value, value: &Value) -> bool {
    let same = |one: &Value| match (one.as_str(), value.as_str()) {
        (Some(one), Some(value)) => one.eq_ignore_ascii_case(value),
        _ => false,
    };
    match filter {
        Value::Null => true,
        Value::Array(several) => several.iter().any(same),
        one => same(one),
    }
}

fn logs_of(used: &Transaction) -> Vec<Value> {
    let log = |index: i64, address: &str, topics: Value, data: String| {
        json!({
            "address": address, "topics": topics, "data": data, "transactionHash": used.hash, "removed": false,
            "blockNumber": quantity(used.block), "blockHash": number_of(used.block),
            "transactionIndex": "0x0", "logIndex": quantity(index),
        })
    };
    let (payer, nonce) = (of_address(used.payer), format!("0x{}", word(&used.nonce)));
    let asset = ASSET.to_ascii_lowercase();
    let own = match (used.scheme, used.amount) {
        (Scheme::Exact, paid) => {
            let event = if paid.is_some() {
                "AuthorizationUsed(address,bytes32)"
            } else {
                "AuthorizationCanceled(address,bytes32)"
            };
            Some(log(
                0,
                &asset,
                json!([topic(event), payer, nonce]),
                "0x".to_owned(),
            ))
        }
        (Scheme::Upto, None) => {
            let topics = json!([
                topic("UnorderedNonceInvalidation(address,uint256,uint256)"),
                payer
            ]);
            let (place, bit) = used.nonce.split_at(31);
            let bit = usize::from(bit[0]);
            let mut mask = [0_u8; 32];
            mask[31 - bit / 8] = 1 << (bit % 8);
            let data = format!("0x{}{}", word(place), word(&mask));
            Some(log(0, &PERMIT2.to_string(), topics, data))
        }
        (Scheme::Upto, Some(_)) => None,
    };
    let transfer = used.amount.map(|amount| {
        let to = of_address(Address::parse(PAY_TO).unwrap());
        let topics = json!([topic("Transfer(address,address,uint256)"), payer, to]);
        log(1, &asset, topics, format!("0x{}", word(&amount.to_be_bytes())))
    });
    own.into_iter().chain(transfer).collect()
}
