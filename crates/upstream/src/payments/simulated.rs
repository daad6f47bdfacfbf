//! A facilitator inside the process: nothing leaves it and no money moves, and it refuses what a chain would refuse.
//!
//! The rule: signatures, amounts, times and nonces are checked for real, in the order and with the codes of the
//! official facilitator; balances are made up. A settlement is one step under one lock. What is kept in memory has a
//! bound: of many uses the oldest is forgotten, of many wallets the one that began to spend first begins anew. After
//! a restart nothing was ever paid; which payment was used for what is the ledger's knowledge, not this one's.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Map, Value};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::evm::UPTO_PROXY;
use turnpike_core::x402::{
    Address, Authorization, Malformed, PaymentRequirements, Scheme, SettleResponse, Supported, SupportedKind,
    X402_VERSION, chain_id,
};

use super::eip712::{TokenDomain, Word, keccak, recover, signed_digest};
use super::{Facilitator, FacilitatorError, Fate, Settled, SignedPayment, Verdict};

/// An authorisation that ends sooner is refused: it might be too late for the chain.
const END_MARGIN_SECONDS: i64 = 6;
/// Most authorisations that are known as used.
const MAX_USES: usize = 100_000;
/// Most wallets whose balance is known.
const MAX_WALLETS: usize = 100_000;
/// How long a use is known after the authorisation's end.
const KNOWN_AFTER_END_SECONDS: i64 = 24 * 60 * 60;
/// How long a use is known in any case.
const KNOWN_SECONDS: i64 = 60 * 60;

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

/// Scheme, payer and nonce.
type UseKey = (Scheme, Address, Word);

/// What an authorisation was used for.
#[derive(Clone, Debug)]
struct Use {
    /// Transaction and amount; none when it was withdrawn.
    paid: Option<(String, u64)>,
    /// Unix seconds.
    ends: i64,
    /// Unix seconds.
    at: i64,
}

#[derive(Debug, Default)]
struct State {
    uses: HashMap<UseKey, Use>,
    /// Oldest first.
    used: VecDeque<UseKey>,
    /// Only those that ever differed from the start.
    wallets: HashMap<Address, u64>,
    /// The first to spend first.
    spenders: VecDeque<Address>,
}

/// See the module.
pub struct SimulatedFacilitator {
    settings: SimulatedSettings,
    token: TokenDomain,
    clock: Clock,
    state: Mutex<State>,
}

impl fmt::Debug for SimulatedFacilitator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedFacilitator")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Why a payment is refused: the official facilitator's code, and words.
struct Refusal {
    reason: &'static str,
    message: String,
}

fn refuse<T>(reason: &'static str, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        reason,
        message: message.into(),
    })
}

/// The code of one scheme or the other.
fn either(scheme: Scheme, exact: &'static str, upto: &'static str) -> &'static str {
    match scheme {
        Scheme::Exact => exact,
        Scheme::Upto => upto,
    }
}

impl State {
    /// Forgets the oldest uses, as far as they may be.
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

    fn use_up(&mut self, key: UseKey, known: Use) {
        if self.uses.insert(key, known).is_none() {
            self.used.push_back(key);
        }
    }

    fn set_balance(&mut self, wallet: Address, balance: u64) {
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
            settings,
            token,
            clock,
            state: Mutex::default(),
        })
    }

    /// What `wallet` has.
    pub fn balance(&self, wallet: Address) -> u64 {
        self.with(|state| state.wallets.get(&wallet).copied())
            .unwrap_or(self.settings.balance)
    }

    /// Gives `wallet` this balance, as if it had spent or received elsewhere.
    pub fn set_balance(&self, wallet: Address, balance: u64) {
        self.with(|state| state.set_balance(wallet, balance));
    }

    /// Uses `authorization` up without a payment, as its payer can on a chain.
    pub fn withdraw(&self, authorization: &Authorization) {
        let known = Use {
            paid: None,
            ends: authorization.valid_before,
            at: self.now(),
        };
        self.with(|state| {
            if !state.uses.contains_key(&use_key(authorization)) {
                state.use_up(use_key(authorization), known);
            }
        });
    }

    fn with<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        step(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// In Unix seconds.
    fn now(&self) -> i64 {
        (self.clock)().millis().div_euclid(1000)
    }

    /// Everything that can be said of a payment without knowing uses and balances.
    fn check(&self, payment: &SignedPayment, expected: Option<u64>) -> Result<Authorization, Refusal> {
        let accepted = &payment.payload.accepted;
        let required = &payment.requirements;
        let scheme = required.scheme;
        if payment.payload.x402_version != X402_VERSION {
            return refuse("invalid_x402_version", "only version 2 is known");
        }
        if accepted.scheme != scheme {
            return refuse("unsupported_scheme", "another scheme was paid than is required");
        }
        if accepted.network != required.network || required.network != self.settings.network {
            let reason = either(
                scheme,
                "invalid_exact_evm_network_mismatch",
                "invalid_upto_evm_network_mismatch",
            );
            return refuse(reason, "this facilitator knows another network");
        }
        let authorization = Authorization::read(&payment.payload)
            .or_else(|Malformed(what)| refuse("invalid_payload", what))?;
        let address = |text: &str| Address::parse(text).ok();
        if address(&required.asset) != Some(self.settings.asset) {
            return refuse(
                "asset_not_deployed_contract",
                "this facilitator knows another asset",
            );
        }
        if address(&required.pay_to) != Some(self.settings.pay_to) {
            return refuse("invalid_payment_requirements", "somebody else would be paid");
        }
        match scheme {
            Scheme::Exact => self.check_exact(required, &authorization, expected)?,
            Scheme::Upto => self.check_upto(&authorization, expected)?,
        }
        Ok(authorization)
    }

    fn check_exact(
        &self,
        required: &PaymentRequirements,
        authorization: &Authorization,
        expected: Option<u64>,
    ) -> Result<(), Refusal> {
        let extra = |name: &str| required.extra.get(name).and_then(Value::as_str);
        let (Some(name), Some(version)) = (extra("name"), extra("version")) else {
            return refuse(
                "invalid_exact_evm_missing_eip712_domain",
                "extra has no name or version",
            );
        };
        if name != self.settings.name {
            return refuse(
                "invalid_exact_evm_token_name_mismatch",
                "the token has another name",
            );
        }
        if version != self.settings.version {
            return refuse(
                "invalid_exact_evm_token_version_mismatch",
                "the token has another version",
            );
        }
        if authorization.token != self.settings.asset {
            return refuse("invalid_payment_requirements", "another asset was accepted");
        }
        self.check_signature(authorization, "invalid_exact_evm_payload_signature")?;
        if authorization.to != self.settings.pay_to {
            return refuse(
                "invalid_exact_evm_payload_recipient_mismatch",
                "it pays somebody else",
            );
        }
        let now = self.now();
        if authorization.valid_before < now.saturating_add(END_MARGIN_SECONDS) {
            return refuse(
                "invalid_exact_evm_payload_authorization_valid_before",
                "it has ended, or is about to",
            );
        }
        if authorization.valid_after > now {
            return refuse(
                "invalid_exact_evm_payload_authorization_valid_after",
                "it is not good yet",
            );
        }
        if Some(authorization.value) != expected {
            return refuse(
                "invalid_exact_evm_payload_authorization_value_mismatch",
                "it is of another amount",
            );
        }
        Ok(())
    }

    /// `expected` is the most, at a verification only.
    fn check_upto(&self, authorization: &Authorization, expected: Option<u64>) -> Result<(), Refusal> {
        if authorization.spender != Some(UPTO_PROXY) {
            return refuse("invalid_permit2_spender", "it names another contract as spender");
        }
        if authorization.to != self.settings.pay_to {
            return refuse("invalid_permit2_recipient_mismatch", "it pays somebody else");
        }
        if authorization.facilitator != Some(self.settings.facilitator) {
            return refuse("upto_facilitator_mismatch", "it names another facilitator");
        }
        let now = self.now();
        if authorization.valid_before < now.saturating_add(END_MARGIN_SECONDS) {
            return refuse(
                "permit2_deadline_expired",
                "its deadline has passed, or is about to",
            );
        }
        if authorization.valid_after > now {
            return refuse("permit2_not_yet_valid", "it is not good yet");
        }
        if expected.is_some_and(|expected| expected != authorization.value) {
            return refuse("permit2_amount_mismatch", "it is of another amount");
        }
        if authorization.token != self.settings.asset {
            return refuse("permit2_token_mismatch", "it is of another token");
        }
        self.check_signature(authorization, "invalid_permit2_signature")
    }

    fn check_signature(&self, authorization: &Authorization, reason: &'static str) -> Result<(), Refusal> {
        let digest = signed_digest(authorization, &self.token);
        match recover(&digest, &authorization.signature) {
            Ok(signer) if signer == authorization.payer => Ok(()),
            Ok(_other) => refuse(reason, "the signature is not the payer's"),
            Err(fault) => refuse(reason, fault.to_string()),
        }
    }

    /// What depends on earlier payments: whether it was used, and whether its payer has `amount` still.
    fn check_funds(&self, state: &State, authorization: &Authorization, amount: u64) -> Result<u64, Refusal> {
        let scheme = authorization.scheme;
        if state.uses.contains_key(&use_key(authorization)) {
            let reason = either(
                scheme,
                "invalid_exact_evm_nonce_already_used",
                "permit2_invalid_nonce",
            );
            return refuse(reason, "it was used or withdrawn");
        }
        let balance = state.wallets.get(&authorization.payer).copied();
        let balance = balance.unwrap_or(self.settings.balance);
        balance.checked_sub(amount).map_or_else(
            || {
                let reason = either(
                    scheme,
                    "invalid_exact_evm_insufficient_balance",
                    "permit2_insufficient_balance",
                );
                refuse(reason, "the payer has not that much")
            },
            Ok,
        )
    }

    fn verified(&self, payment: &SignedPayment) -> Result<(), Refusal> {
        let amount = amount_of(&payment.requirements)?;
        let authorization = self.check(payment, Some(amount))?;
        self.with(|state| self.check_funds(state, &authorization, amount))?;
        Ok(())
    }

    fn settled(&self, payment: &SignedPayment) -> Result<SettleResponse, Refusal> {
        let amount = amount_of(&payment.requirements)?;
        let upto = payment.requirements.scheme == Scheme::Upto;
        let authorization = self.check(payment, (!upto).then_some(amount))?;
        if amount > authorization.value {
            return refuse(
                "invalid_upto_evm_payload_settlement_exceeds_amount",
                "less was authorised",
            );
        }
        let mut transaction = String::new();
        if amount > 0 {
            transaction = transaction_of(&authorization);
            let now = self.now();
            self.with(|state| {
                state.forget(now);
                let left = self.check_funds(state, &authorization, amount)?;
                if state.used.len() >= MAX_USES {
                    return refuse("unexpected_settle_error", "too many payments at once");
                }
                state.set_balance(authorization.payer, left);
                let known = Use {
                    paid: Some((transaction.clone(), amount)),
                    ends: authorization.valid_before,
                    at: now,
                };
                state.use_up(use_key(&authorization), known);
                Ok(())
            })?;
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

fn use_key(authorization: &Authorization) -> UseKey {
    (authorization.scheme, authorization.payer, authorization.nonce)
}

fn amount_of(required: &PaymentRequirements) -> Result<u64, Refusal> {
    match required.amount.parse() {
        Ok(amount) if !required.amount.starts_with('+') => Ok(amount),
        Ok(_) | Err(_) => refuse("invalid_payment_requirements", "the amount is no number"),
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
        let known = self.with(|state| state.uses.get(&use_key(authorization)).cloned());
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
}
