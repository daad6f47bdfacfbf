//! A stand-in facilitator with its chain, in the test's process: it outlives a service that is killed.
//!
//! Signatures, nonces and balances are those of the facilitator that `turnpike dev` has inside. Faults happen on the
//! way to it, or on the way back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{Address, Authorization, X402_VERSION};
use turnpike_upstream::Facilitator as _;
use turnpike_upstream::payments::{
    Clock, Settled, SignedPayment, SimulatedFacilitator, SimulatedSettings, Verdict, mpp_nonce,
};

use super::chain::{Chain, Transaction};
use super::upstream::answer;
use super::{Gate, Seen, Step, Upstream};

/// The chain.
pub const NETWORK: &str = "eip155:84532";
/// The token.
pub const ASSET: &str = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
/// Who is paid.
pub const PAY_TO: &str = "0x15d34aaf54267db7d7c367839aaf71a00a2c6a65";
/// Who settles.
pub const OURS: &str = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";
/// What every wallet has at first, in base units.
pub const BALANCE: u64 = 10_000_000;

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing is done, and the answer is this status.
    Status(u16),
    /// Nothing is done, and the answer is no JSON.
    Garbage,
    /// Nothing is done, and the connection ends.
    Gone,
    /// Nothing is done, and the answer does not come before the gate is opened; then the connection ends.
    Hang(Gate),
    /// Nothing is done, and the answer is a refusal for this reason.
    Refuse(&'static str),
    /// It is done, and the answer is a refusal for this reason.
    DoneButRefused(&'static str),
    /// It is done, and the connection ends without an answer.
    Lost,
    /// It is done, and answered this much later.
    Slow(Duration),
    /// It is done, and answered when the gate is opened.
    Held(Gate),
}

struct Shared {
    truth: SimulatedFacilitator,
    chain: Arc<Chain>,
    faults: Mutex<BTreeMap<&'static str, (Fault, usize)>>,
    reached: Mutex<BTreeMap<String, usize>>,
}

/// See the module.
#[derive(Clone)]
pub struct FacilitatorStandIn {
    http: Upstream,
    shared: Arc<Shared>,
}

/// Keccak-256, which makes nonces of another protocol, too.
pub fn keccak(text: &str) -> [u8; 32] {
    mpp_nonce(text, "")
}

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

impl FacilitatorStandIn {
    /// Starts one that does everything well.
    pub async fn start() -> Self {
        let chain = Arc::new(Chain::default());
        let hand = chain.clone();
        let clock: Clock = Arc::new(move || Timestamp::from_millis(hand.now() * 1000));
        let settings = SimulatedSettings {
            network: NETWORK.to_owned(),
            asset: address(ASSET),
            name: "USDC".to_owned(),
            version: "2".to_owned(),
            pay_to: address(PAY_TO),
            facilitator: address(OURS),
            balance: BALANCE,
        };
        let shared = Arc::new(Shared {
            truth: SimulatedFacilitator::new(settings, clock).unwrap(),
            chain,
            faults: Mutex::default(),
            reached: Mutex::default(),
        });
        let http = Upstream::start().await;
        let serving = shared.clone();
        http.script(move |seen| serving.serve(seen));
        Self { http, shared }
    }

    /// Where its API is.
    pub fn url(&self) -> String {
        format!("http://{}", self.http.address)
    }

    /// Where its chain is.
    pub fn rpc_url(&self) -> String {
        format!("http://{}/rpc", self.http.address)
    }

    /// Its chain.
    pub fn chain(&self) -> &Chain {
        &self.shared.chain
    }

    /// From now on requests to `path` go wrong.
    pub fn break_at(&self, path: &'static str, fault: Fault) {
        self.break_times(path, fault, usize::MAX);
    }

    /// The next requests to `path` go wrong.
    pub fn break_times(&self, path: &'static str, fault: Fault, times: usize) {
        self.shared.faults.lock().unwrap().insert(path, (fault, times));
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.shared.faults.lock().unwrap().clear();
    }

    /// How many requests to `path` went wrong.
    pub fn reached(&self, path: &str) -> usize {
        self.shared
            .reached
            .lock()
            .unwrap()
            .get(path)
            .copied()
            .unwrap_or(0)
    }

    /// How many requests to `path` there were.
    pub fn count(&self, path: &str) -> usize {
        self.http.seen().iter().filter(|seen| seen.path == path).count()
    }

    /// The newest request to `path`.
    pub fn last(&self, path: &str) -> Value {
        let mut seen = self.http.seen();
        seen.retain(|seen| seen.path == path);
        seen.pop().expect("no such request").json()
    }

    /// Every payment that was made.
    pub fn paid(&self) -> Vec<Transaction> {
        let mut all = self.shared.chain.transactions();
        all.retain(|transaction| transaction.amount.is_some());
        all
    }

    /// What a wallet has.
    pub fn balance(&self, wallet: Address) -> u64 {
        self.shared.truth.balance(wallet)
    }

    /// Gives a wallet this much.
    pub fn set_balance(&self, wallet: Address, balance: u64) {
        self.shared.truth.set_balance(wallet, balance);
    }

    /// The payer withdraws what it signed.
    pub fn withdraw(&self, authorization: &Authorization) {
        assert!(self.shared.truth.withdraw(authorization), "it was used already");
        let hash = format!("0x{}", hex::encode(keccak(&authorization.key())));
        self.shared.chain.record(authorization, &hash, None);
    }
}

fn reply(status: u16, body: &Value) -> Vec<Step> {
    vec![answer(status, &[], body.to_string().as_bytes())]
}

fn payment(body: &Value) -> SignedPayment {
    assert_eq!(body["x402Version"], X402_VERSION, "{body}");
    let payload = serde_json::from_value(body["paymentPayload"].clone()).unwrap();
    let requirements = serde_json::from_value(body["paymentRequirements"].clone()).unwrap();
    SignedPayment::read(payload, requirements).unwrap()
}

impl Shared {
    fn fault(&self, path: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let (fault, left) = faults.get_mut(path)?;
        *left = left.checked_sub(1)?;
        *self.reached.lock().unwrap().entry(path.to_owned()).or_default() += 1;
        Some(fault.clone())
    }

    fn serve(&self, seen: &Seen) -> Vec<Step> {
        let well = || self.well(seen);
        let refusal = |reason: &str| match seen.path.as_str() {
            "/verify" => reply(200, &json!({ "isValid": false, "invalidReason": reason })),
            _ => reply(
                200,
                &json!({ "success": false, "errorReason": reason, "transaction": "", "network": NETWORK }),
            ),
        };
        let first = |step: Step, then: Vec<Step>| std::iter::once(step).chain(then).collect();
        match self.fault(&seen.path) {
            None => well(),
            Some(Fault::Status(status)) => reply(status, &json!({ "error": "the facilitator is unwell" })),
            Some(Fault::Garbage) => vec![answer(200, &[], b"<html>")],
            Some(Fault::Gone) => vec![Step::Close],
            Some(Fault::Hang(gate)) => vec![Step::Wait(gate), Step::Close],
            Some(Fault::Refuse(reason)) => refusal(reason),
            Some(Fault::DoneButRefused(reason)) => {
                well();
                refusal(reason)
            }
            Some(Fault::Lost) => {
                well();
                vec![Step::Close]
            }
            Some(Fault::Slow(pause)) => first(Step::Pause(pause), well()),
            Some(Fault::Held(gate)) => first(Step::Wait(gate), well()),
        }
    }

    fn well(&self, seen: &Seen) -> Vec<Step> {
        match seen.path.as_str() {
            "/supported" => {
                let supported = self.truth.supported().now_or_never().unwrap().unwrap();
                reply(200, &json!(supported))
            }
            "/verify" => {
                let verdict = self.truth.verify(&payment(&seen.json())).now_or_never();
                match verdict.unwrap() {
                    Verdict::Valid => reply(200, &json!({ "isValid": true })),
                    Verdict::Invalid { reason, message } => reply(
                        200,
                        &json!({ "isValid": false, "invalidReason": reason, "invalidMessage": message }),
                    ),
                    Verdict::Unknown(why) => panic!("{why}"),
                }
            }
            "/settle" => {
                let payment = payment(&seen.json());
                let settled = self.truth.settle(&payment).now_or_never();
                match settled.unwrap() {
                    Settled::Done(done) => {
                        let amount = payment.requirements.amount.parse().unwrap();
                        if amount > 0 {
                            let authorization = &payment.authorization;
                            self.chain.record(authorization, &done.transaction, Some(amount));
                        }
                        reply(200, &json!(done))
                    }
                    Settled::Refused(refused) => reply(200, &json!(refused)),
                    Settled::Unknown(why) => panic!("{why}"),
                }
            }
            "/rpc" => reply(200, &self.chain.answer(&seen.json())),
            other => panic!("a facilitator has no {other}"),
        }
    }
}
