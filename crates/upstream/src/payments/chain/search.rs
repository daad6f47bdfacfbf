//! How an authorisation that was used up was used.
//!
//! `exact` is told by its token's events. Permit2 has none for a use: there it is the transfer to us in a transaction
//! of the facilitator that carries the nonce.

use turnpike_core::x402::{Address, Authorization, Scheme};

use super::rpc::{Block, Filter, Log, Rpc, RpcError, Transaction};
use super::unknown;
use crate::payments::eip712::{Word, address_word, keccak};
use crate::payments::{FacilitatorError, Fate};

/// Blocks of one question for logs.
const MOST_BLOCKS: u64 = 2000;
/// The fewest, when the node refuses more.
const FEWEST_BLOCKS: u64 = 50;
/// Most questions of one search.
const MAX_QUESTIONS: u32 = 1000;
/// How far back the first step goes when the first block is looked for.
const FIRST_STEP: u64 = 32;

const USED: &str = "AuthorizationUsed(address,bytes32)";
const CANCELED: &str = "AuthorizationCanceled(address,bytes32)";
const TRANSFER: &str = "Transfer(address,address,uint256)";

fn event(signature: &str) -> Word {
    keccak(&[signature.as_bytes()])
}

/// A transfer of a token.
struct Transfer {
    from: Word,
    to: Word,
    /// None above what money knows.
    amount: Option<u64>,
}

fn transfer_of(log: &Log) -> Option<Transfer> {
    let [kind, from, to] = log.topics.as_slice() else {
        return None;
    };
    let value = Word::try_from(log.data.as_slice()).ok()?;
    let (high, low) = value.split_last_chunk::<8>()?;
    let small = high.iter().all(|byte| *byte == 0);
    (*kind == event(TRANSFER)).then(|| Transfer {
        from: *from,
        to: *to,
        amount: small.then(|| u64::from_be_bytes(*low)),
    })
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(bytes, part).is_some()
}

/// One search.
pub(super) struct Search<'a> {
    rpc: &'a Rpc,
    latest: Block,
    questions: u32,
}

impl<'a> Search<'a> {
    pub(super) fn new(rpc: &'a Rpc, latest: Block) -> Self {
        Self {
            rpc,
            latest,
            questions: MAX_QUESTIONS,
        }
    }

    /// `None` when every block since `from`, in Unix seconds, was read and nothing says how it was used.
    pub(super) async fn run(
        mut self,
        authorization: &Authorization,
        from: i64,
    ) -> Result<Option<Fate>, FacilitatorError> {
        let first = self.first_block(from).await?;
        if authorization.scheme == Scheme::Exact
            && let Some(fate) = self.by_event(authorization, first).await?
        {
            return Ok(Some(fate));
        }
        self.by_transfer(authorization, first).await
    }

    fn ask(&mut self) -> Result<(), FacilitatorError> {
        match self.questions.checked_sub(1) {
            Some(left) => {
                self.questions = left;
                Ok(())
            }
            None => unknown("reading the chain took too many questions"),
        }
    }

    /// The first block whose time is `from` or later; the latest when there is none.
    async fn first_block(&mut self, from: i64) -> Result<u64, FacilitatorError> {
        // Its time is `from` or later, or it is the latest.
        let mut late = self.latest.number;
        let mut step = FIRST_STEP;
        // Its time is earlier.
        let mut early = None;
        while early.is_none() && late > 0 {
            let number = late.saturating_sub(step);
            if self.time_of(number).await? < from {
                early = Some(number);
            } else {
                late = number;
                step = step.saturating_mul(2);
            }
        }
        while let Some(before) = early
            && late.saturating_sub(before) > 1
        {
            let middle = before.midpoint(late);
            if self.time_of(middle).await? < from {
                early = Some(middle);
            } else {
                late = middle;
            }
        }
        Ok(late)
    }

    async fn time_of(&mut self, number: u64) -> Result<i64, FacilitatorError> {
        self.ask()?;
        let block = self.rpc.block(Some(number)).await;
        block.map(|block| block.time).map_err(known)
    }

    /// The next logs at `first` or later and the block after the last that was read, in steps that the node takes.
    async fn logs(
        &mut self,
        filter: &Filter,
        first: u64,
        step: &mut u64,
    ) -> Result<(Vec<Log>, u64), FacilitatorError> {
        loop {
            let last = first
                .saturating_add(*step)
                .saturating_sub(1)
                .min(self.latest.number);
            self.ask()?;
            match self.rpc.logs(filter, first, last).await {
                Ok(logs) => return Ok((logs, last.saturating_add(1))),
                Err(RpcError::TooMuch(_)) if *step > FEWEST_BLOCKS => {
                    *step = (*step / 2).max(FEWEST_BLOCKS);
                }
                Err(error) => return Err(known(error)),
            }
        }
    }

    /// What the token said of the authorisation itself.
    async fn by_event(
        &mut self,
        authorization: &Authorization,
        first: u64,
    ) -> Result<Option<Fate>, FacilitatorError> {
        let filter = Filter {
            contract: authorization.token,
            kinds: vec![event(USED), event(CANCELED)],
            indexed: [address_word(authorization.payer), authorization.nonce],
        };
        let (mut next, mut step) = (first, MOST_BLOCKS);
        while next <= self.latest.number {
            let (logs, after) = self.logs(&filter, next, &mut step).await?;
            next = after;
            match logs.as_slice() {
                [] => {}
                [said] if said.topics.first() == Some(&event(CANCELED)) => return Ok(Some(Fate::Void)),
                [said] => return self.paid_by(authorization, said).await.map(Some),
                [_, _, ..] => return unknown("it was used twice, says the node"),
            }
        }
        Ok(None)
    }

    /// What the transfer that goes with `used` is.
    async fn paid_by(&mut self, authorization: &Authorization, used: &Log) -> Result<Fate, FacilitatorError> {
        self.ask()?;
        let logs = self.rpc.receipt(&used.transaction).await.map_err(known)?;
        let payer = address_word(authorization.payer);
        let of_token = |log: &&Log| log.contract == authorization.token;
        let own = |log: &Log| transfer_of(log).filter(|transfer| transfer.from == payer);
        if !logs.contains(used) {
            return unknown("the receipt lacks the event");
        }
        // INVARIANT: the transfer is the one next to the event, so that one transfer cannot stand for two
        // authorisations that were used in one transaction. Tokens tell of the use first.
        let next = logs.iter().filter(of_token).find(|log| log.index > used.index);
        let previous = logs.iter().filter(of_token).rfind(|log| log.index < used.index);
        let transfer = next.and_then(own).or_else(|| previous.and_then(own));
        let Some(transfer) = transfer else {
            return unknown("it was used, and the transfer is not next to that");
        };
        if transfer.to != address_word(authorization.to) {
            return Ok(Fate::Void);
        }
        paid(used.transaction, &transfer)
    }

    /// The transfer to us in a transaction that carries the nonce.
    async fn by_transfer(
        &mut self,
        authorization: &Authorization,
        first: u64,
    ) -> Result<Option<Fate>, FacilitatorError> {
        let filter = Filter {
            contract: authorization.token,
            kinds: vec![event(TRANSFER)],
            indexed: [address_word(authorization.payer), address_word(authorization.to)],
        };
        let (mut next, mut step) = (first, MOST_BLOCKS);
        let exact = authorization.scheme == Scheme::Exact;
        let mut strange = false;
        while next <= self.latest.number {
            let (logs, after) = self.logs(&filter, next, &mut step).await?;
            next = after;
            // Transfers of one transaction stand together.
            for transfers in logs.chunk_by(|one, other| one.transaction == other.transaction) {
                let Some(log) = transfers.first() else { continue };
                self.ask()?;
                let transaction = self.rpc.transaction(&log.transaction).await.map_err(known)?;
                if !carries(&transaction, authorization) {
                    continue;
                }
                // Only the facilitator can settle; whoever else sends the nonce along says nothing.
                if !authorization
                    .facilitator
                    .is_none_or(|ours| is_by(&transaction, ours))
                {
                    strange = true;
                    continue;
                }
                return match transfers {
                    [only] => match transfer_of(only) {
                        Some(other) if exact && other.amount != Some(authorization.value) => {
                            unknown("the transfer that names it is of another amount")
                        }
                        Some(transfer) => paid(only.transaction, &transfer).map(Some),
                        None => unknown("a transfer has another form"),
                    },
                    _ => unknown("one transaction has several transfers"),
                };
            }
        }
        if strange {
            return unknown("somebody else than the facilitator sent the nonce");
        }
        Ok(None)
    }
}

fn carries(transaction: &Transaction, authorization: &Authorization) -> bool {
    contains(&transaction.input, &authorization.nonce) && contains(&transaction.input, &authorization.payer.0)
}

fn is_by(transaction: &Transaction, facilitator: Address) -> bool {
    transaction.from == facilitator || transaction.to == Some(facilitator)
}

fn paid(transaction: Word, transfer: &Transfer) -> Result<Fate, FacilitatorError> {
    match transfer.amount {
        Some(0) => Ok(Fate::Void),
        Some(amount) => Ok(Fate::Paid {
            transaction: format!("0x{}", hex::encode(transaction)),
            amount,
        }),
        None => unknown("more was paid than money knows"),
    }
}

fn known(error: RpcError) -> FacilitatorError {
    FacilitatorError(error.why())
}
