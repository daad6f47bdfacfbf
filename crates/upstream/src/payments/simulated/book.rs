//! What the simulated facilitator remembers: uses and balances, each with a bound.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use turnpike_core::x402::{Address, Authorization, Scheme};

use super::rules::{Refusal, either, refuse};
use crate::payments::eip712::Word;

/// Most authorisations that are known as used.
pub(super) const MAX_USES: usize = 100_000;
/// Most wallets whose balance is known.
pub(super) const MAX_WALLETS: usize = 100_000;
/// How long a use is known after the authorisation's end.
const KNOWN_AFTER_END_SECONDS: i64 = 24 * 60 * 60;
/// How long a use is known in any case.
const KNOWN_SECONDS: i64 = 60 * 60;

/// Scheme, payer and nonce.
type UseKey = (Scheme, Address, Word);

/// What an authorisation was used for.
#[derive(Clone, Debug)]
pub(super) struct Use {
    /// Transaction and amount; none when it was withdrawn.
    pub(super) paid: Option<(String, u64)>,
    /// Unix seconds.
    ends: i64,
    /// Unix seconds.
    at: i64,
}

/// Uses and balances.
#[derive(Debug)]
pub(super) struct Book {
    /// What every wallet has at first.
    start: u64,
    uses: HashMap<UseKey, Use>,
    /// Oldest first.
    used: VecDeque<UseKey>,
    /// Only those that ever differed from the start.
    wallets: HashMap<Address, u64>,
    /// The first to spend first.
    spenders: VecDeque<Address>,
    /// What was signed by its payer for sure, so that what was verified is settled without the curve.
    signed: HashMap<UseKey, Authorization>,
    /// Oldest first.
    signers: VecDeque<UseKey>,
}

/// Most signatures that are remembered.
const MAX_SIGNED: usize = 10_000;

impl Book {
    /// Whether exactly this was found to be signed by its payer.
    pub(super) fn is_signed(&self, authorization: &Authorization) -> bool {
        self.signed.get(&use_key(authorization)) == Some(authorization)
    }

    /// This is signed by its payer.
    pub(super) fn remember_signed(&mut self, authorization: &Authorization) {
        let key = use_key(authorization);
        if self.signed.insert(key, authorization.clone()).is_none() {
            self.signers.push_back(key);
        }
        if self.signers.len() > MAX_SIGNED
            && let Some(oldest) = self.signers.pop_front()
        {
            self.signed.remove(&oldest);
        }
    }
}

fn use_key(authorization: &Authorization) -> UseKey {
    (authorization.scheme, authorization.payer, authorization.nonce)
}

impl Book {
    pub(super) fn new(start: u64) -> Self {
        Self {
            start,
            uses: HashMap::new(),
            used: VecDeque::new(),
            wallets: HashMap::new(),
            spenders: VecDeque::new(),
            signed: HashMap::new(),
            signers: VecDeque::new(),
        }
    }

    pub(super) fn balance(&self, wallet: Address) -> u64 {
        self.wallets.get(&wallet).copied().unwrap_or(self.start)
    }

    pub(super) fn set_balance(&mut self, wallet: Address, balance: u64) {
        if self.wallets.insert(wallet, balance).is_none() {
            self.spenders.push_back(wallet);
        }
        while self.wallets.len() > MAX_WALLETS {
            let Some(first) = self.spenders.pop_front() else {
                return;
            };
            self.wallets.remove(&first);
        }
    }

    pub(super) fn find_use(&self, authorization: &Authorization) -> Option<&Use> {
        self.uses.get(&use_key(authorization))
    }

    /// Whether it was used, and whether its payer has `amount` still; then what is left of it.
    pub(super) fn check(&self, authorization: &Authorization, amount: u64) -> Result<u64, Refusal> {
        let scheme = authorization.scheme;
        if self.find_use(authorization).is_some() {
            let reason = either(
                scheme,
                "invalid_exact_evm_nonce_already_used",
                "permit2_invalid_nonce",
            );
            return refuse(reason, "it was used or withdrawn");
        }
        let Some(left) = self.balance(authorization.payer).checked_sub(amount) else {
            let reason = either(
                scheme,
                "invalid_exact_evm_insufficient_balance",
                "permit2_insufficient_balance",
            );
            return refuse(reason, "the payer has not that much");
        };
        Ok(left)
    }

    /// Takes `amount` by `authorization`, at `now` in Unix seconds.
    pub(super) fn pay(
        &mut self,
        authorization: &Authorization,
        amount: u64,
        transaction: &str,
        now: i64,
    ) -> Result<(), Refusal> {
        let left = self.check(authorization, amount)?;
        self.use_up(authorization, Some((transaction.to_owned(), amount)), now)?;
        self.set_balance(authorization.payer, left);
        Ok(())
    }

    /// Uses `authorization` up, once, if there is room.
    pub(super) fn use_up(
        &mut self,
        authorization: &Authorization,
        paid: Option<(String, u64)>,
        now: i64,
    ) -> Result<(), Refusal> {
        self.forget(now);
        if self.used.len() >= MAX_USES {
            return refuse("unexpected_settle_error", "too many payments at once");
        }
        let key = use_key(authorization);
        // Its signature is seldom asked about again.
        self.signed.remove(&key);
        let ends = authorization.valid_before;
        if let Entry::Vacant(free) = self.uses.entry(key) {
            free.insert(Use { paid, ends, at: now });
            self.used.push_back(key);
        }
        Ok(())
    }

    /// Forgets the oldest uses, as far as they may be: a use that is forgotten could be made again.
    fn forget(&mut self, now: i64) {
        while let Some(oldest) = self.used.front() {
            let over = self.uses.get(oldest).is_none_or(|known| {
                let end = known.ends.saturating_add(KNOWN_AFTER_END_SECONDS);
                let full = self.used.len() >= MAX_USES;
                end < now || (full && known.at.saturating_add(KNOWN_SECONDS) < now)
            });
            if !over {
                return;
            }
            if let Some(oldest) = self.used.pop_front() {
                self.uses.remove(&oldest);
            }
        }
    }
}
