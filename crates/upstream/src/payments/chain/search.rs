//! How an authorisation that was used up was used.
//!
//! `exact` is told by its token's events. Permit2 has none for a use: there it is the transfer to us in the call of the
//! proxy that names the payer and the nonce where the proxy has them, and the withdrawal has an event of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use turnpike_core::x402::evm::{PERMIT2, UPTO_PROXY};
use turnpike_core::x402::{Address, Authorization, Scheme};

use super::proxy::{Settlement, settlement};
use super::rpc::{Block, Filter, Log, Rpc, RpcError, Transaction};
use super::state::{bit_is_set, is_used, place_of};
use super::{REPLACED_SECONDS, known, unknown};
use crate::payments::eip712::{Word, address_word, keccak};
use crate::payments::{FacilitatorError, Fate};

/// Most blocks of one question for logs.
pub(super) const MOST_BLOCKS: u64 = 2000;
/// Most questions of one search.
const MAX_QUESTIONS: u32 = 1000;
/// How far back the first step goes when the first block is looked for.
const FIRST_STEP: u64 = 32;
/// How much earlier than it was first seen an authorisation was used, if at all, when clocks are right.
const NEAR_SECONDS: i64 = 60;
/// The same for clocks that differ.
const CLOCK_SECONDS: i64 = 3600;

const USED: &str = "AuthorizationUsed(address,bytes32)";
const CANCELED: &str = "AuthorizationCanceled(address,bytes32)";
const TRANSFER: &str = "Transfer(address,address,uint256)";
const INVALIDATED: &str = "UnorderedNonceInvalidation(address,uint256,uint256)";

fn event(signature: &str) -> Word {
    keccak(&[signature.as_bytes()])
}

/// A transfer of a token.
struct Transfer {
    from: Word,
    to: Word,
    amount: Word,
}

fn transfer_of(log: &Log) -> Option<Transfer> {
    let [kind, from, to] = log.topics.as_slice() else {
        return None;
    };
    let amount = Word::try_from(log.data.as_slice()).ok()?;
    (*kind == event(TRANSFER)).then_some(Transfer {
        from: *from,
        to: *to,
        amount,
    })
}

/// The transfers of `token` between two accounts.
pub(super) fn transfers(token: Address, from: Address, to: Address) -> Filter {
    Filter {
        contract: token,
        kinds: vec![event(TRANSFER)],
        indexed: vec![address_word(from), address_word(to)],
    }
}

/// Which words of nonces an account withdrew, and which bits of them.
fn invalidation_of(log: &Log) -> Option<(Word, Word)> {
    let (words, rest) = log.data.as_chunks::<32>();
    match (words, rest) {
        ([word, mask], []) => Some((*word, *mask)),
        (_, _) => None,
    }
}

/// What a transaction with a transfer to us is to an `upto` authorisation.
enum Relation {
    /// It cannot be its settlement.
    Foreign,
    /// The facilitator did something with it that is not read here.
    Unread,
    /// It is its settlement.
    Own(Settlement),
}

/// The proxy takes a settlement from the authorisation's facilitator alone, whom its own call names.
fn relation(transaction: &Transaction, authorization: &Authorization, facilitator: Address) -> Relation {
    let sent = transaction.from == facilitator;
    if !sent && transaction.to != Some(facilitator) {
        return Relation::Foreign;
    }
    // It settles the token's own authorisations there, Permit2's never.
    if transaction.to == Some(authorization.token) {
        return Relation::Foreign;
    }
    if !sent || transaction.to != Some(UPTO_PROXY) {
        return Relation::Unread;
    }
    match settlement(&transaction.input) {
        None => Relation::Unread,
        Some(made)
            if made.nonce != authorization.nonce || made.owner != address_word(authorization.payer) =>
        {
            Relation::Foreign
        }
        Some(made) => Relation::Own(made),
    }
}

/// One search.
pub(super) struct Search<'a> {
    rpc: &'a Rpc,
    latest: Block,
    questions: u32,
    /// The step of the next search.
    kept: &'a AtomicU64,
    step: u64,
    /// Whether the node refused a step, and whether it took a whole one.
    refused: bool,
    taken: bool,
    /// Whether the facilitator sent something that may have been the settlement.
    unread: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(rpc: &'a Rpc, latest: Block, kept: &'a AtomicU64) -> Self {
        Self {
            rpc,
            latest,
            questions: MAX_QUESTIONS,
            kept,
            step: kept.load(Ordering::Relaxed).clamp(1, MOST_BLOCKS),
            refused: false,
            taken: false,
            unread: false,
        }
    }

    /// What became of an authorisation that is used up and was first seen at `since`, in Unix seconds. It is `over`
    /// when no later block could use it.
    pub(super) async fn run(
        mut self,
        authorization: &Authorization,
        since: i64,
        over: bool,
    ) -> Result<Fate, FacilitatorError> {
        let fate = self.fate(authorization, since, over).await;
        // Limits change: a step that the node took is doubled for the next search.
        if self.taken && !self.refused {
            let step = self.step.saturating_mul(2).min(MOST_BLOCKS);
            self.kept.store(step, Ordering::Relaxed);
        }
        fate
    }

    async fn fate(
        &mut self,
        authorization: &Authorization,
        since: i64,
        over: bool,
    ) -> Result<Fate, FacilitatorError> {
        let end = authorization.valid_before.saturating_add(REPLACED_SECONDS);
        let last = self.first_block(end).await?;
        let near = self.first_block(since.saturating_sub(NEAR_SECONDS)).await?;
        if let Some(fate) = self.used_in(authorization, near, last).await? {
            return Ok(fate);
        }
        let first = self.first_block(since.saturating_sub(CLOCK_SECONDS)).await?;
        if let Some(before) = near.checked_sub(1)
            && let Some(fate) = self.used_in(authorization, first, last.min(before)).await?
        {
            return Ok(fate);
        }
        match authorization.scheme {
            Scheme::Exact => unknown("the token says that it was used, and there is no event of that"),
            Scheme::Upto => self.unpaid(authorization, first, last, over).await,
        }
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
        if self.latest.time < from {
            return Ok(late);
        }
        let mut step = FIRST_STEP;
        // Its time is earlier.
        let mut early = None;
        while early.is_none() && late > 0 {
            let number = late.saturating_sub(step);
            if self.block(number).await?.time < from {
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
            if self.block(middle).await?.time < from {
                early = Some(middle);
            } else {
                late = middle;
            }
        }
        Ok(late)
    }

    async fn block(&mut self, number: u64) -> Result<Block, FacilitatorError> {
        self.ask()?;
        self.rpc.block(Some(number)).await.map_err(known)
    }

    /// The next logs of the blocks from `first` to `last` and the block after those that were read, in steps that the
    /// node takes.
    async fn logs(
        &mut self,
        filter: &Filter,
        first: u64,
        last: u64,
    ) -> Result<(Vec<Log>, u64), FacilitatorError> {
        loop {
            let until = first.saturating_add(self.step).saturating_sub(1).min(last);
            let blocks = until.saturating_sub(first).saturating_add(1);
            self.ask()?;
            match self.rpc.logs(filter, first, until).await {
                Ok(logs) => {
                    self.taken |= blocks == self.step;
                    if self.refused {
                        self.kept.store(self.step, Ordering::Relaxed);
                    }
                    return Ok((logs, until.saturating_add(1)));
                }
                Err(RpcError::TooMuch(_)) if blocks > 1 => {
                    self.refused = true;
                    self.step = blocks / 2;
                }
                Err(error) => return Err(known(error)),
            }
        }
    }

    async fn used_in(
        &mut self,
        authorization: &Authorization,
        first: u64,
        last: u64,
    ) -> Result<Option<Fate>, FacilitatorError> {
        match authorization.scheme {
            Scheme::Exact => self.by_event(authorization, first, last).await,
            Scheme::Upto => self.by_transfer(authorization, first, last).await,
        }
    }

    /// What the token said of the authorisation itself.
    async fn by_event(
        &mut self,
        authorization: &Authorization,
        first: u64,
        last: u64,
    ) -> Result<Option<Fate>, FacilitatorError> {
        let filter = Filter {
            contract: authorization.token,
            kinds: vec![event(USED), event(CANCELED)],
            indexed: vec![address_word(authorization.payer), authorization.nonce],
        };
        let mut next = first;
        while next <= last {
            let (logs, after) = self.logs(&filter, next, last).await?;
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
            return unknown("it was used, and the transfer next to that is to somebody else");
        }
        paid(used.transaction, &transfer)
    }

    /// The transfer to us that the proxy made for this payer and nonce.
    async fn by_transfer(
        &mut self,
        authorization: &Authorization,
        first: u64,
        last: u64,
    ) -> Result<Option<Fate>, FacilitatorError> {
        let Some(facilitator) = authorization.facilitator else {
            return unknown("it names no facilitator");
        };
        let filter = transfers(authorization.token, authorization.payer, authorization.to);
        let mut next = first;
        while next <= last {
            let (logs, after) = self.logs(&filter, next, last).await?;
            next = after;
            // Transfers of one transaction stand together.
            for made in logs.chunk_by(|one, other| one.transaction == other.transaction) {
                let Some(log) = made.first() else { continue };
                self.ask()?;
                let transaction = self.rpc.transaction(&log.transaction).await.map_err(known)?;
                match relation(&transaction, authorization, facilitator) {
                    Relation::Foreign => {}
                    Relation::Unread => self.unread = true,
                    Relation::Own(settled) => {
                        return made_by(&settled, authorization, facilitator, made).map(Some);
                    }
                }
            }
        }
        Ok(None)
    }

    /// What is known when no block from `first` to `last` has a payment by `upto`.
    async fn unpaid(
        &mut self,
        authorization: &Authorization,
        first: u64,
        last: u64,
        over: bool,
    ) -> Result<Fate, FacilitatorError> {
        if self.unread {
            return unknown("the facilitator sent a transaction that is not read here");
        }
        // INVARIANT: a nonce can be withdrawn after it was used, so that the withdrawal counts only when the nonce
        // was unused before that block.
        if let Some(block) = self.withdrawn_at(authorization, first, last).await?
            && self.is_unused_before(authorization, block).await?
        {
            return Ok(Fate::Void);
        }
        if !over {
            return unknown("it was used, and neither a payment nor a withdrawal is found");
        }
        if !self.is_unused_before(authorization, first).await? {
            return unknown("it was used before the first block that was read");
        }
        Ok(Fate::Void)
    }

    /// The first block in which the payer withdrew the nonce.
    async fn withdrawn_at(
        &mut self,
        authorization: &Authorization,
        first: u64,
        last: u64,
    ) -> Result<Option<u64>, FacilitatorError> {
        let (number, bit) = place_of(&authorization.nonce);
        let filter = Filter {
            contract: PERMIT2,
            kinds: vec![event(INVALIDATED)],
            indexed: vec![address_word(authorization.payer)],
        };
        let mut next = first;
        while next <= last {
            let (logs, after) = self.logs(&filter, next, last).await?;
            next = after;
            let own = |log: &&Log| {
                invalidation_of(log).is_some_and(|(word, mask)| word == number && bit_is_set(&mask, bit))
            };
            if let Some(log) = logs.iter().find(own) {
                return Ok(Some(log.block));
            }
        }
        Ok(None)
    }

    /// Whether it was unused when block `number` began. A node that does not keep that state is an error.
    async fn is_unused_before(
        &mut self,
        authorization: &Authorization,
        number: u64,
    ) -> Result<bool, FacilitatorError> {
        let Some(before) = number.checked_sub(1) else {
            return Ok(true);
        };
        let block = self.block(before).await?;
        self.ask()?;
        let used = is_used(self.rpc, authorization, block).await.map_err(known)?;
        Ok(!used)
    }
}

/// What `transfers` of the transaction that settled it paid.
fn made_by(
    settled: &Settlement,
    authorization: &Authorization,
    facilitator: Address,
    transfers: &[Log],
) -> Result<Fate, FacilitatorError> {
    let [log] = transfers else {
        return unknown("one transaction has several transfers");
    };
    let ours = Settlement {
        token: address_word(authorization.token),
        to: address_word(authorization.to),
        facilitator: address_word(facilitator),
        ..*settled
    };
    match transfer_of(log) {
        Some(transfer) if *settled == ours && transfer.amount == settled.amount => {
            paid(log.transaction, &transfer)
        }
        Some(_) => unknown("the settlement and its transfer differ"),
        None => unknown("a transfer has another form"),
    }
}

fn paid(transaction: Word, transfer: &Transfer) -> Result<Fate, FacilitatorError> {
    let amount = transfer.amount.split_last_chunk::<8>();
    let amount = amount.filter(|(high, _)| high.iter().all(|byte| *byte == 0));
    match amount.map(|(_, low)| u64::from_be_bytes(*low)) {
        Some(0) => unknown("it was used, and nothing was transferred"),
        Some(amount) => Ok(Fate::Paid {
            transaction: format!("0x{}", hex::encode(transaction)),
            amount,
        }),
        None => unknown("more was paid than money knows"),
    }
}
