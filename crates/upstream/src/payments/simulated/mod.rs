//! A facilitator inside the process: nothing leaves it and no money moves, and it refuses what a chain would refuse.
//!
//! The rule: signatures, amounts, times and nonces are checked for real, in the order and with the codes of the
//! official facilitator; balances are made up. A settlement is one step under one lock. What is kept in memory has a
//! bound: of many uses the oldest is forgotten, of many wallets the one that began to spend first begins anew. After
//! a restart nothing was ever paid; which payment was used for what is the ledger's knowledge, not this one's.

mod book;
mod rules;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Map, Value};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{
    Address, Authorization, Malformed, Scheme, SettleResponse, Supported, SupportedKind, X402_VERSION,
    chain_id,
};

use super::eip712::{TokenDomain, keccak};
use super::{Facilitator, FacilitatorError, Fate, Settled, SignedPayment, Verdict};
use book::Book;
use rules::{Refusal, amount_of, refuse};

/// What a [`SimulatedFacilitator`] is built from.
#[derive(Clone, Debug)]
pub struct SimulatedSettings {
    /// CAIP-2.
    pub network: String,
    /// The token's contract.
    pub asset: Address,
    /// The token's name in signatures.
    pub name: String,
    /// The token's version in signatures.
    pub version: String,
    /// Who is paid.
    pub pay_to: Address,
    /// Whom payers of `upto` name as the facilitator.
    pub facilitator: Address,
    /// What every wallet has at first, in base units.
    pub balance: u64,
}

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// See the module.
pub struct SimulatedFacilitator {
    settings: SimulatedSettings,
    token: TokenDomain,
    clock: Clock,
    book: Mutex<Book>,
}

impl fmt::Debug for SimulatedFacilitator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedFacilitator")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl SimulatedFacilitator {
    /// A facilitator that knows no use and no spending yet.
    ///
    /// # Errors
    /// [`Malformed`] when the network is no EVM chain.
    pub fn new(settings: SimulatedSettings, clock: Clock) -> Result<Self, Malformed> {
        let token = TokenDomain {
            name: settings.name.clone(),
            version: settings.version.clone(),
            chain_id: chain_id(&settings.network)?,
            contract: settings.asset,
        };
        Ok(Self {
            book: Mutex::new(Book::new(settings.balance)),
            settings,
            token,
            clock,
        })
    }

    /// What `wallet` has.
    pub fn balance(&self, wallet: Address) -> u64 {
        self.with(|book| book.balance(wallet))
    }

    /// Gives `wallet` this balance, as if it had spent or received elsewhere.
    pub fn set_balance(&self, wallet: Address, balance: u64) {
        self.with(|book| book.set_balance(wallet, balance));
    }

    /// Uses `authorization` up without a payment, as its payer can on a chain; whether it was not used before.
    pub fn withdraw(&self, authorization: &Authorization) -> bool {
        let now = self.now();
        self.with(|book| {
            book.find_use(authorization).is_none() && book.use_up(authorization, None, now).is_ok()
        })
    }

    fn with<T>(&self, step: impl FnOnce(&mut Book) -> T) -> T {
        step(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// In Unix seconds.
    fn now(&self) -> i64 {
        (self.clock)().millis().div_euclid(1000)
    }

    fn verified(&self, payment: &SignedPayment) -> Result<(), Refusal> {
        let amount = amount_of(&payment.requirements)?;
        self.check(payment, Some(amount))?;
        self.with(|book| book.check(&payment.authorization, amount))?;
        Ok(())
    }

    fn settled(&self, payment: &SignedPayment) -> Result<SettleResponse, Refusal> {
        let amount = amount_of(&payment.requirements)?;
        let upto = payment.requirements.scheme == Scheme::Upto;
        let authorization = &payment.authorization;
        self.check(payment, (!upto).then_some(amount))?;
        if amount > authorization.value {
            return refuse(
                "invalid_upto_evm_payload_settlement_exceeds_amount",
                "less was authorised",
            );
        }
        let mut transaction = String::new();
        if amount > 0 {
            transaction = transaction_of(authorization);
            let now = self.now();
            self.with(|book| book.pay(authorization, amount, &transaction, now))?;
        }
        Ok(SettleResponse {
            success: true,
            transaction,
            network: self.settings.network.clone(),
            payer: Some(authorization.payer.to_string()),
            amount: upto.then(|| amount.to_string()),
            ..SettleResponse::default()
        })
    }
}

/// The same for the same authorisation, and like no other.
fn transaction_of(authorization: &Authorization) -> String {
    let hash = keccak(&[
        b"simulated",
        authorization.scheme.as_str().as_bytes(),
        &authorization.payer.0,
        &authorization.nonce,
    ]);
    format!("0x{}", hex::encode(hash))
}

#[async_trait]
impl Facilitator for SimulatedFacilitator {
    async fn supported(&self) -> Result<Supported, FacilitatorError> {
        let facilitator = self.settings.facilitator.to_string();
        let kinds = Scheme::ALL.iter().map(|scheme| SupportedKind {
            x402_version: X402_VERSION,
            scheme: scheme.to_string(),
            network: self.settings.network.clone(),
            extra: (*scheme == Scheme::Upto).then(|| {
                let named = ("facilitatorAddress".to_owned(), Value::from(facilitator.clone()));
                Map::from_iter([named])
            }),
        });
        Ok(Supported {
            kinds: kinds.collect(),
            extensions: Vec::new(),
        })
    }

    async fn verify(&self, payment: &SignedPayment) -> Verdict {
        match self.verified(payment) {
            Ok(()) => Verdict::Valid,
            Err(Refusal { reason, message }) => Verdict::Invalid {
                reason: reason.to_owned(),
                message: Some(message),
            },
        }
    }

    async fn settle(&self, payment: &SignedPayment) -> Settled {
        match self.settled(payment) {
            Ok(response) => Settled::Done(response),
            Err(Refusal { reason, message }) => Settled::Refused(SettleResponse {
                network: self.settings.network.clone(),
                error_reason: Some(reason.to_owned()),
                error_message: Some(message),
                ..SettleResponse::default()
            }),
        }
    }

    async fn fate(&self, authorization: &Authorization, _since: Timestamp) -> Result<Fate, FacilitatorError> {
        let known = self.with(|book| book.find_use(authorization).cloned());
        Ok(match known.map(|known| known.paid) {
            Some(Some((transaction, amount))) => Fate::Paid { transaction, amount },
            Some(None) => Fate::Void,
            None if authorization.valid_before < self.now() => Fate::Expired,
            None => Fate::Open,
        })
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn verifies_here(&self) -> bool {
        true
    }
}
