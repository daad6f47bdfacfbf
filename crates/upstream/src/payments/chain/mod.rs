//! What became of an authorisation, read from the chain.
//!
//! The rule: only what the chain says in so many words is an answer. An authorisation was not used when its contract
//! says so; it was used to pay us when the transfer to us is found that its own settlement made; it is void when it
//! is seen that it was withdrawn, or when every block in which it could have paid us was read, the chain's clock is
//! past its end and it was not used before the first of them. All the rest is an error: unknown, never void.

mod proxy;
mod rpc;
mod search;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use turnpike_core::time::Timestamp;
use turnpike_core::x402::evm::{PERMIT2, UPTO_PROXY};
use turnpike_core::x402::{Address, Authorization, Scheme, chain_id};

use super::eip712::number_word;
use super::{FacilitatorError, Fate};
use crate::provider::BuildError;
use crate::secret::Secret;
use rpc::{Block, Rpc, RpcError};
use search::{MOST_BLOCKS, Search, transfers};
use state::{call_data, is_used};

/// How far behind an authorisation's end the chain's clock must be before it counts as unused for good: the last
/// blocks can still be replaced by others.
const REPLACED_SECONDS: i64 = 30;
/// Most readings at once.
const MAX_READINGS: usize = 16;
/// How long a reading waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(5);
/// The decimals that a token must have for its base units to be what money is counted in.
const DECIMALS: u64 = 6;

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
    /// How many blocks of logs the node was last asked for at once.
    step: AtomicU64,
}

impl fmt::Debug for ChainReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainReader")
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
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
            step: AtomicU64::new(MOST_BLOCKS),
        })
    }

    /// Whether the node answers what is asked of it, is of the right chain, and `token` and the contracts of `upto`
    /// are there.
    ///
    /// # Errors
    /// [`FacilitatorError`] in words for the operator.
    pub async fn check(&self, token: Address) -> Result<(), FacilitatorError> {
        let checking = async {
            self.check_chain().await?;
            let latest = self.rpc.block(None).await.map_err(known)?;
            let decimals = call_data("decimals()", &[]);
            let decimals = self.rpc.view(token, &decimals, latest).await;
            let decimals = decimals
                .map_err(|error| FacilitatorError(format!("the token has no decimals: {}", error.why())))?;
            if decimals != number_word(DECIMALS) {
                return unknown("the token has another number of decimals than 6");
            }
            for (name, contract) in [("Permit2", PERMIT2), ("the proxy that settles upto", UPTO_PROXY)] {
                if !self.rpc.has_code(contract).await.map_err(known)? {
                    return unknown(&format!("{name} is not on this chain"));
                }
            }
            let nobody = Address([0; 20]);
            let filter = transfers(token, nobody, nobody);
            let logs = self.rpc.logs(&filter, latest.number, latest.number).await;
            logs.map(drop).map_err(known)
        };
        match timeout(self.total_timeout, Box::pin(checking)).await {
            Ok(checked) => checked,
            Err(_elapsed) => unknown("checking the chain took too long"),
        }
    }

    async fn check_chain(&self) -> Result<(), FacilitatorError> {
        if self.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.rpc.chain_id().await.map_err(known)? != self.chain {
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
            let Ok(Ok(_turn)) = timeout(TURN_WAIT, self.turns.acquire()).await else {
                return unknown("too many readings of the chain at once");
            };
            self.check_chain().await?;
            self.read(authorization, since).await
        };
        match timeout(self.total_timeout, Box::pin(reading)).await {
            Ok(fate) => fate,
            Err(_elapsed) => unknown("reading the chain took too long"),
        }
    }

    async fn read(&self, authorization: &Authorization, since: Timestamp) -> Result<Fate, FacilitatorError> {
        // INVARIANT: the state is read at the block whose time counts, so that nothing can be used in between.
        let latest = self.rpc.block(None).await.map_err(known)?;
        let over = is_over(authorization, latest);
        if !is_used(&self.rpc, authorization, latest).await.map_err(known)? {
            return Ok(if over { Fate::Expired } else { Fate::Open });
        }
        let since = since.millis().div_euclid(1000);
        Search::new(&self.rpc, latest, &self.step)
            .run(authorization, since, over)
            .await
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

fn known(error: RpcError) -> FacilitatorError {
    FacilitatorError(error.why())
}
