//! Ethereum's JSON-RPC, as far as it is read.
//!
//! The rule: an answer counts only when it is to this question (its id, the block, hash or filter that was asked for)
//! and every member of it has its form. Nothing is sent that could change the chain.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::uri::Scheme;
use http::{Method, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};
use turnpike_core::x402::Address;

use crate::client::{Client, ClientSettings};
use crate::error::UpstreamError;
use crate::guard::Guard;
use crate::headers::{self, Accept};
use crate::payments::eip712::Word;
use crate::provider::BuildError;
use crate::secret::Secret;

/// Largest answer that is read.
const MAX_ANSWER_BYTES: usize = 2 * 1024 * 1024;
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Unused connections that are kept.
const KEPT: usize = 16;

/// "over rate limit".
const RATE_LIMIT_CODE: i64 = -32016;
/// How nodes say that they are asked too often.
const RATE_TEXTS: [&str; 9] = [
    "rate limit",
    "rate-limit",
    "rate exceeded",
    "request rate",
    "too many requests",
    "request count",
    "per second",
    "/second",
    "compute units",
];

/// Why something was not read. The texts are our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RpcError {
    /// The node refused, took too long, or answered more than is read: less may be asked.
    TooMuch(String),
    /// Anything else.
    Failed(String),
}

impl RpcError {
    pub(super) fn why(self) -> String {
        match self {
            Self::TooMuch(why) | Self::Failed(why) => why,
        }
    }
}

fn failed<T>(why: impl Into<String>) -> Result<T, RpcError> {
    Err(RpcError::Failed(why.into()))
}

/// A block's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) number: u64,
    /// Unix seconds.
    pub(super) time: i64,
    pub(super) hash: Option<Word>,
}

/// What a contract said in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) contract: Address,
    pub(super) topics: Vec<Word>,
    pub(super) data: Vec<u8>,
    pub(super) transaction: Word,
    pub(super) block: u64,
    pub(super) index: u64,
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    pub(super) from: Address,
    /// None where a contract was made.
    pub(super) to: Option<Address>,
    pub(super) input: Vec<u8>,
}

/// Which logs are asked for: of this contract with one of these first topics and exactly these further ones.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) contract: Address,
    pub(super) kinds: Vec<Word>,
    pub(super) indexed: Vec<Word>,
}

#[derive(Deserialize)]
struct RawBlock {
    number: String,
    timestamp: String,
    #[serde(default)]
    hash: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLog {
    address: Address,
    topics: Vec<String>,
    data: String,
    transaction_hash: String,
    block_number: String,
    log_index: String,
    #[serde(default)]
    removed: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReceipt {
    transaction_hash: String,
    status: String,
    logs: Vec<RawLog>,
}

#[derive(Deserialize)]
struct RawTransaction {
    hash: String,
    from: Address,
    to: Option<Address>,
    input: String,
}

/// A number: `0x` and at most 16 hexadecimal digits.
fn quantity(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    hex::decode(text.strip_prefix("0x")?).ok()
}

fn word(text: &str) -> Option<Word> {
    Word::try_from(bytes(text)?).ok()
}

fn hex_of(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

/// Whether a node refuses for how often it is asked, not for what. Codes alone do not tell.
fn is_rate_limit(code: i64, error: &Value) -> bool {
    let text = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let text = text.to_ascii_lowercase();
    code == RATE_LIMIT_CODE || RATE_TEXTS.iter().any(|part| text.contains(part))
}

impl RawLog {
    fn read(self) -> Option<Log> {
        // A removed log is of a block that the chain has given up.
        (!self.removed).then_some(())?;
        Some(Log {
            contract: self.address,
            topics: self
                .topics
                .iter()
                .map(|topic| word(topic))
                .collect::<Option<_>>()?,
            data: bytes(&self.data)?,
            transaction: word(&self.transaction_hash)?,
            block: quantity(&self.block_number)?,
            index: quantity(&self.log_index)?,
        })
    }
}

impl Filter {
    fn fits(&self, log: &Log, first: u64, last: u64) -> bool {
        let [kind, rest @ ..] = log.topics.as_slice() else {
            return false;
        };
        log.contract == self.contract
            && self.kinds.contains(kind)
            && rest.starts_with(&self.indexed)
            && (first..=last).contains(&log.block)
    }
}

/// A node.
pub(super) struct Rpc {
    client: Client,
    /// It may carry a key.
    uri: Uri,
    ids: AtomicU64,
}

impl Rpc {
    pub(super) fn new(url: &Secret, wait: Duration) -> Result<Self, BuildError> {
        let uri: Uri = url.expose().parse().map_err(|_invalid| BuildError::BaseUrl)?;
        let known = uri.scheme() == Some(&Scheme::HTTP) || uri.scheme() == Some(&Scheme::HTTPS);
        let plain = uri.authority().is_some_and(|place| !place.as_str().contains('@'));
        if !known || !plain {
            return Err(BuildError::BaseUrl);
        }
        let client = Client::new(ClientSettings {
            guard: Guard::Operator,
            connect_timeout: CONNECT_WAIT,
            header_timeout: wait,
            idle_timeout: wait,
            total_timeout: wait,
            max_idle_per_host: KEPT,
            max_response_bytes: MAX_ANSWER_BYTES,
            ..ClientSettings::default()
        })?;
        Ok(Self {
            client,
            uri,
            ids: AtomicU64::new(1),
        })
    }

    async fn send(&self, body: Vec<u8>) -> Result<(StatusCode, Value), UpstreamError> {
        let deadline = self.client.total_deadline();
        let head = headers::request_headers(Accept::Json, true, None);
        let sent = self
            .client
            .send(Method::POST, self.uri.clone(), head, body.into());
        let response = sent.await?;
        let status = response.status();
        let answer = self.client.collect(response.into_body(), deadline).await?;
        let value = serde_json::from_slice(&answer).unwrap_or(Value::Null);
        Ok((status, value))
    }

    /// One question. A result that is null is none.
    async fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let body = body.to_string().into_bytes();
        let mut sent = self.send(body.clone()).await;
        // A connection that was kept may be closed by now.
        if sent.as_ref().is_err_and(|error| !error.sent()) {
            sent = self.send(body).await;
        }
        let (status, mut answer) = match sent {
            Ok(sent) => sent,
            Err(error @ (UpstreamError::BadResponse { .. } | UpstreamError::Timeout { .. })) => {
                return Err(RpcError::TooMuch(format!("{method}: {error}")));
            }
            Err(error) => return failed(format!("{method}: {error}")),
        };
        if status == StatusCode::TOO_MANY_REQUESTS {
            return failed(format!("{method}: the node wants fewer requests"));
        }
        let of_us = answer.get("id").and_then(Value::as_u64) == Some(id);
        let error = answer.get("error").filter(|error| !error.is_null());
        if let Some(error) = error {
            let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
            if is_rate_limit(code, error) {
                return failed(format!("{method}: the node wants fewer requests, it says {code}"));
            }
            return Err(RpcError::TooMuch(format!(
                "{method}: the node refused with {code}"
            )));
        }
        if !status.is_success() || !of_us {
            return failed(format!(
                "{method}: the node answered {status} and no answer to this question"
            ));
        }
        match answer.get_mut("result").map(Value::take) {
            Some(Value::Null) | None => failed(format!("{method}: the node does not know it")),
            Some(result) => Ok(result),
        }
    }

    async fn read<T: serde::de::DeserializeOwned>(&self, method: &str, params: Value) -> Result<T, RpcError> {
        let result = self.call(method, params).await?;
        serde_json::from_value(result)
            .map_err(|_invalid| RpcError::Failed(format!("{method}: the answer has another form")))
    }

    /// The chain's number.
    pub(super) async fn chain_id(&self) -> Result<u64, RpcError> {
        let text: String = self.read("eth_chainId", json!([])).await?;
        quantity(&text).map_or_else(|| failed("eth_chainId: no number"), Ok)
    }

    /// The block of that number, or the latest.
    pub(super) async fn block(&self, number: Option<u64>) -> Result<Block, RpcError> {
        let tag = number.map_or_else(|| "latest".to_owned(), |number| format!("{number:#x}"));
        let raw: RawBlock = self.read("eth_getBlockByNumber", json!([tag, false])).await?;
        let time = quantity(&raw.timestamp).and_then(|time| i64::try_from(time).ok());
        match (quantity(&raw.number), time) {
            (Some(found), Some(time)) if number.is_none_or(|number| number == found) => {
                let hash = raw.hash.as_deref().and_then(word);
                Ok(Block {
                    number: found,
                    time,
                    hash,
                })
            }
            (_, _) => failed("eth_getBlockByNumber: no such block"),
        }
    }

    /// What a contract's function that changes nothing returned after `block`: one word. Nodes that are not asked by
    /// a block's hash, or have given that block up, are asked by its number.
    pub(super) async fn view(&self, contract: Address, data: &[u8], block: Block) -> Result<Word, RpcError> {
        let call = json!({ "to": contract, "data": hex_of(data) });
        let number = json!(format!("{:#x}", block.number));
        let place = block.hash.map_or_else(
            || number.clone(),
            |hash| json!({ "blockHash": hex_of(&hash), "requireCanonical": true }),
        );
        let answer = match self.read::<String>("eth_call", json!([call, place])).await {
            Err(RpcError::TooMuch(_)) if block.hash.is_some() => {
                self.read("eth_call", json!([call, number])).await?
            }
            answer => answer?,
        };
        // Without a contract there the answer is empty.
        word(&answer).map_or_else(|| failed("eth_call: the answer is no word"), Ok)
    }

    /// Whether there is a contract.
    pub(super) async fn has_code(&self, contract: Address) -> Result<bool, RpcError> {
        let text: String = self.read("eth_getCode", json!([contract, "latest"])).await?;
        bytes(&text).map_or_else(|| failed("eth_getCode: no code"), |code| Ok(!code.is_empty()))
    }

    /// The logs of the blocks from `first` to `last`, in the chain's order.
    pub(super) async fn logs(&self, filter: &Filter, first: u64, last: u64) -> Result<Vec<Log>, RpcError> {
        let words = |words: &[Word]| words.iter().map(|word| hex_of(word)).collect::<Vec<_>>();
        let mut topics = vec![json!(words(&filter.kinds))];
        topics.extend(words(&filter.indexed).into_iter().map(Value::from));
        let params = json!([{
            "address": filter.contract,
            "topics": topics,
            "fromBlock": format!("{first:#x}"),
            "toBlock": format!("{last:#x}"),
        }]);
        let raw: Vec<RawLog> = self.read("eth_getLogs", params).await?;
        let mut logs = Vec::with_capacity(raw.len());
        for raw in raw {
            match raw.read() {
                Some(log) if filter.fits(&log, first, last) => logs.push(log),
                Some(_) | None => return failed("eth_getLogs: a log that was not asked for"),
            }
        }
        logs.sort_by_key(|log| (log.block, log.index));
        Ok(logs)
    }

    /// The logs of a transaction, in their order. It has to be one that succeeded.
    pub(super) async fn receipt(&self, hash: &Word) -> Result<Vec<Log>, RpcError> {
        let raw: RawReceipt = self
            .read("eth_getTransactionReceipt", json!([hex_of(hash)]))
            .await?;
        let logs: Option<Vec<Log>> = raw.logs.into_iter().map(RawLog::read).collect();
        match logs {
            Some(mut logs)
                if word(&raw.transaction_hash) == Some(*hash) && quantity(&raw.status) == Some(1) =>
            {
                logs.sort_by_key(|log| log.index);
                Ok(logs)
            }
            Some(_) | None => failed("eth_getTransactionReceipt: another receipt"),
        }
    }

    /// The transaction of that hash.
    pub(super) async fn transaction(&self, hash: &Word) -> Result<Transaction, RpcError> {
        let raw: RawTransaction = self
            .read("eth_getTransactionByHash", json!([hex_of(hash)]))
            .await?;
        match bytes(&raw.input) {
            Some(input) if word(&raw.hash) == Some(*hash) => Ok(Transaction {
                from: raw.from,
                to: raw.to,
                input,
            }),
            Some(_) | None => failed("eth_getTransactionByHash: another transaction"),
        }
    }
}
