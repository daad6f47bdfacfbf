//! What became of an authorisation, read from the chain.
//!
//! The rule: only what the chain says in so many words is an answer. An authorisation was not used when its contract
//! says so; it was used to pay us when a transfer to us is found that is its own; it is void when it is seen where
//! else it went, or when every block in which it could have paid us was read and its use is old enough for no node to
//! have missed it. All the rest is an error: unknown, never void.

mod rpc;
mod search;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use turnpike_core::time::Timestamp;
use turnpike_core::x402::evm::PERMIT2;
use turnpike_core::x402::{Authorization, Scheme, chain_id};

use super::eip712::{Word, address_word, keccak};
use super::{FacilitatorError, Fate};
use crate::provider::BuildError;
use crate::secret::Secret;
use rpc::{Block, Rpc};

/// How far behind an authorisation's end the chain's clock must be before it counts as unused for good: the last
/// blocks can still be replaced by others.
const REPLACED_SECONDS: i64 = 30;
/// How many blocks a use must be old before "no transfer was found" means that there is none.
const SETTLED_BLOCKS: u64 = 16;
/// How much earlier than it was first seen an authorisation may have been used, for clocks that differ.
const CLOCK_SECONDS: i64 = 60;
/// Most readings at once.
const MAX_READINGS: usize = 16;

/// What a [`ChainReader`] is built from.
#[derive(Clone, Debug)]
pub struct ChainSettings {
    /// A node's JSON-RPC over HTTP; it may carry a key.
    pub rpc_url: Secret,
    /// CAIP-2: the chain that the node has to be of.
    pub network: String,
    /// One question.
    pub timeout: Duration,
    /// One reading, with all its questions.
    pub total_timeout: Duration,
}

impl ChainSettings {
    /// The usual times for the node at `rpc_url`.
    pub fn new(rpc_url: Secret, network: impl Into<String>) -> Self {
        Self {
            rpc_url,
            network: network.into(),
            timeout: Duration::from_secs(10),
            total_timeout: Duration::from_mins(1),
        }
    }
}

/// Reads a chain.
pub struct ChainReader {
    rpc: Rpc,
    chain: u64,
    /// Whether the node is known to be of `chain`.
    checked: AtomicBool,
    turns: Semaphore,
    total_timeout: Duration,
}

impl fmt::Debug for ChainReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainReader")
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
}

/// Where a nonce stands in Permit2's map: the word's number, and the bit in it.
fn place_of(nonce: &Word) -> (Word, u8) {
    let mut number = [0; 32];
    let (bit, high) = nonce
        .split_last()
        .map_or((0, &[][..]), |(bit, high)| (*bit, high));
    if let Some((_, low)) = number.split_first_mut() {
        low.copy_from_slice(high);
    }
    (number, bit)
}

fn bit_is_set(word: &Word, bit: u8) -> bool {
    let byte = word.iter().rev().nth(usize::from(bit / 8)).copied();
    byte.unwrap_or_default() & (1 << (bit % 8)) != 0
}

fn call_data(function: &str, words: [&Word; 2]) -> Vec<u8> {
    let selector = keccak(&[function.as_bytes()]);
    let mut data: Vec<u8> = selector.into_iter().take(4).collect();
    data.extend(words.into_iter().flatten());
    data
}

impl ChainReader {
    /// A reader that has not asked its node anything yet.
    ///
    /// # Errors
    /// [`BuildError::BaseUrl`] when the node's address is none or the network is no EVM chain.
    pub fn new(settings: &ChainSettings) -> Result<Self, BuildError> {
        Ok(Self {
            rpc: Rpc::new(&settings.rpc_url, settings.timeout)?,
            chain: chain_id(&settings.network).map_err(|_malformed| BuildError::BaseUrl)?,
            checked: AtomicBool::new(false),
            turns: Semaphore::new(MAX_READINGS),
            total_timeout: settings.total_timeout,
        })
    }

    /// Whether the node answers and is of the right chain.
    ///
    /// # Errors
    /// [`FacilitatorError`].
    pub async fn check(&self) -> Result<(), FacilitatorError> {
        if self.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let found = self
            .rpc
            .chain_id()
            .await
            .map_err(|error| FacilitatorError(error.why()))?;
        if found != self.chain {
            return unknown("the node is of another chain");
        }
        self.checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What became of `authorization`, first seen at `since`.
    ///
    /// # Errors
    /// [`FacilitatorError`] for all that is not known.
    pub async fn fate(
        &self,
        authorization: &Authorization,
        since: Timestamp,
    ) -> Result<Fate, FacilitatorError> {
        let reading = async {
            let Ok(_turn) = self.turns.acquire().await else {
                return unknown("the chain is not read any more");
            };
            self.check().await?;
            self.read(authorization, since).await
        };
        match timeout(self.total_timeout, Box::pin(reading)).await {
            Ok(fate) => fate,
            Err(_elapsed) => unknown("reading the chain took too long"),
        }
    }

    async fn read(&self, authorization: &Authorization, since: Timestamp) -> Result<Fate, FacilitatorError> {
        // INVARIANT: the state is read at the block whose time counts, so that nothing can be used in between.
        let latest = self
            .rpc
            .block(None)
            .await
            .map_err(|error| FacilitatorError(error.why()))?;
        if !self.is_used(authorization, latest.number).await? {
            return Ok(if is_over(authorization, latest) {
                Fate::Expired
            } else {
                Fate::Open
            });
        }
        let from = since.millis().div_euclid(1000).saturating_sub(CLOCK_SECONDS);
        if let Some(fate) = search::Search::new(&self.rpc, latest)
            .run(authorization, from)
            .await?
        {
            return Ok(fate);
        }
        // A node that lags behind has no logs of the last blocks and does not say so.
        let old = latest.number.saturating_sub(SETTLED_BLOCKS);
        if self.is_used(authorization, old).await? {
            Ok(Fate::Void)
        } else {
            unknown("it was used just now, and the transfer is not found yet")
        }
    }

    /// Whether it was used up, after block `number`.
    async fn is_used(&self, authorization: &Authorization, number: u64) -> Result<bool, FacilitatorError> {
        let payer = address_word(authorization.payer);
        let nonce = &authorization.nonce;
        let (contract, data, bit) = match authorization.scheme {
            Scheme::Exact => {
                let data = call_data("authorizationState(address,bytes32)", [&payer, nonce]);
                (authorization.token, data, 0)
            }
            Scheme::Upto => {
                let (word, bit) = place_of(nonce);
                let data = call_data("nonceBitmap(address,uint256)", [&payer, &word]);
                (PERMIT2, data, bit)
            }
        };
        let answer = self.rpc.view(contract, &data, number).await;
        let answer = answer.map_err(|error| FacilitatorError(error.why()))?;
        Ok(bit_is_set(&answer, bit))
    }
}

/// Whether no later block can use it. EIP-3009 ends before its end, Permit2 with it.
fn is_over(authorization: &Authorization, latest: Block) -> bool {
    let last = match authorization.scheme {
        Scheme::Exact => authorization.valid_before.saturating_sub(1),
        Scheme::Upto => authorization.valid_before,
    };
    latest.time > last.saturating_add(REPLACED_SECONDS)
}

fn unknown<T>(why: &str) -> Result<T, FacilitatorError> {
    Err(FacilitatorError(why.to_owned()))
}
