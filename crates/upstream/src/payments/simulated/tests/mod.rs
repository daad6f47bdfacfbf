//! What the simulated facilitator takes, refuses and remembers.

mod refusals;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{Address, Authorization, PaymentRequirements, Scheme};

use super::book::{MAX_USES, MAX_WALLETS};
use super::*;
use crate::payments::{PayerKey, Terms};

const NOW: i64 = 1_800_000_000;
const ASSET: &str = "0x036cbd53842c5426634e7929541ec2318f3dcf7e";
const PAY_TO: &str = "0x15d34aaf54267db7d7c367839aaf71a00a2c6a65";
const OURS: &str = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";
const NETWORK: &str = "eip155:84532";

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

struct Place {
    facilitator: Arc<SimulatedFacilitator>,
    now: Arc<AtomicI64>,
    payer: PayerKey,
}

fn place() -> Place {
    let now = Arc::new(AtomicI64::new(NOW));
    let settings = SimulatedSettings {
        network: NETWORK.to_owned(),
        asset: address(ASSET),
        name: "USDC".to_owned(),
        version: "2".to_owned(),
        pay_to: address(PAY_TO),
        facilitator: address(OURS),
        balance: 10_000,
    };
    let hand = Arc::clone(&now);
    let clock: Clock = Arc::new(move || Timestamp::from_millis(hand.load(Ordering::SeqCst) * 1000 + 999));
    Place {
        facilitator: Arc::new(SimulatedFacilitator::new(settings, clock).unwrap()),
        now,
        payer: PayerKey::random(&[7; 32]).unwrap(),
    }
}

fn required(scheme: Scheme) -> PaymentRequirements {
    serde_json::from_value(json!({
        "scheme": scheme, "network": NETWORK, "amount": "3000", "asset": ASSET, "payTo": PAY_TO,
        "maxTimeoutSeconds": 300, "extra": { "name": "USDC", "version": "2", "facilitatorAddress": OURS },
    }))
    .unwrap()
}

fn terms(nonce: u8) -> Terms {
    Terms {
        nonce: [nonce; 32],
        valid_after: 0,
        valid_before: NOW + 300,
    }
}

impl Place {
    fn pay(&self, scheme: Scheme, nonce: u8) -> SignedPayment {
        let payload = self.payer.pay(&required(scheme), terms(nonce)).unwrap();
        SignedPayment::read(payload, required(scheme)).unwrap()
    }

    /// A payment that says something else, and is signed all the same.
    fn signed(&self, scheme: Scheme, change: impl FnOnce(&mut Authorization)) -> SignedPayment {
        let mut authorization = self.pay(scheme, 1).authorization;
        change(&mut authorization);
        let payload = self
            .payer
            .sign_payment(&required(scheme), &authorization)
            .unwrap();
        SignedPayment::read(payload, required(scheme)).unwrap()
    }

    async fn fate(&self, payment: &SignedPayment) -> Fate {
        let since = Timestamp::from_millis(0);
        self.facilitator
            .fate(&payment.authorization, since)
            .await
            .unwrap()
    }

    /// The code of the refusal, the same at both steps.
    async fn refused(&self, payment: &SignedPayment) -> String {
        let Verdict::Invalid { reason, message } = self.facilitator.verify(payment).await else {
            panic!("verified: {payment:?}");
        };
        assert!(message.is_some());
        reason
    }

    async fn unsettled(&self, payment: &SignedPayment) -> String {
        let Settled::Refused(refused) = self.facilitator.settle(payment).await else {
            panic!("settled: {payment:?}");
        };
        assert!(!refused.success && refused.transaction.is_empty());
        refused.error_reason.unwrap()
    }

    async fn done(&self, payment: &SignedPayment) -> SettleResponse {
        match self.facilitator.settle(payment).await {
            Settled::Done(done) => done,
            other @ (Settled::Refused(_) | Settled::Unknown(_)) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_exact_payment_is_settled_once() {
    let place = place();
    let payment = place.pay(Scheme::Exact, 1);
    assert_eq!(place.facilitator.verify(&payment).await, Verdict::Valid);
    assert_eq!(place.fate(&payment).await, Fate::Open);
    let done = place.done(&payment).await;
    assert!(done.success && done.transaction.len() == 66 && done.transaction.starts_with("0x"));
    assert_eq!((done.network.as_str(), &done.amount), (NETWORK, &None));
    assert_eq!(done.payer, Some(place.payer.address().to_string()));
    assert_eq!(place.facilitator.balance(place.payer.address()), 7000);
    let paid = Fate::Paid {
        transaction: done.transaction,
        amount: 3000,
    };
    assert_eq!(place.fate(&payment).await, paid);
    let code = "invalid_exact_evm_nonce_already_used";
    assert_eq!(place.refused(&payment).await, code);
    assert_eq!(place.unsettled(&payment).await, code);
    assert_eq!(place.facilitator.balance(place.payer.address()), 7000);
    place.now.store(NOW + 10_000, Ordering::SeqCst);
    assert_eq!(place.fate(&payment).await, paid);
}

#[tokio::test]
async fn an_upto_payment_is_settled_for_what_was_used() {
    let place = place();
    let mut payment = place.pay(Scheme::Upto, 1);
    assert_eq!(place.facilitator.verify(&payment).await, Verdict::Valid);
    payment.requirements.amount = "0".to_owned();
    let nothing = place.done(&payment).await;
    assert_eq!(
        (nothing.transaction.as_str(), nothing.amount.as_deref()),
        ("", Some("0"))
    );
    assert_eq!(place.fate(&payment).await, Fate::Open);
    payment.requirements.amount = "3001".to_owned();
    let code = "invalid_upto_evm_payload_settlement_exceeds_amount";
    assert_eq!(place.unsettled(&payment).await, code);
    payment.requirements.amount = "1234".to_owned();
    // At a verification the most is asked.
    assert_eq!(place.refused(&payment).await, "permit2_amount_mismatch");
    let done = place.done(&payment).await;
    assert_eq!(done.amount.as_deref(), Some("1234"));
    assert_eq!(place.facilitator.balance(place.payer.address()), 8766);
    let amount = 1234;
    let transaction = done.transaction;
    assert_eq!(place.fate(&payment).await, Fate::Paid { transaction, amount });
    assert_eq!(place.unsettled(&payment).await, "permit2_invalid_nonce");
}

#[tokio::test]
async fn a_payer_cannot_spend_more_than_it_has() {
    let place = place();
    for nonce in 1..=3 {
        place.done(&place.pay(Scheme::Exact, nonce)).await;
    }
    assert_eq!(place.facilitator.balance(place.payer.address()), 1000);
    let exact = place.pay(Scheme::Exact, 4);
    assert_eq!(
        place.refused(&exact).await,
        "invalid_exact_evm_insufficient_balance"
    );
    let mut upto = place.pay(Scheme::Upto, 4);
    assert_eq!(place.refused(&upto).await, "permit2_insufficient_balance");
    upto.requirements.amount = "1000".to_owned();
    place.done(&upto).await;
    // Fault matrix 193
    place.facilitator.set_balance(place.payer.address(), 3000);
    let verified = place.pay(Scheme::Exact, 5);
    assert_eq!(place.facilitator.verify(&verified).await, Verdict::Valid);
    place.facilitator.set_balance(place.payer.address(), 2999);
    assert_eq!(
        place.unsettled(&verified).await,
        "invalid_exact_evm_insufficient_balance"
    );
    assert_eq!(place.fate(&verified).await, Fate::Open);
    place.now.store(NOW + 301, Ordering::SeqCst);
    assert_eq!(place.fate(&verified).await, Fate::Expired);
}

// Fault matrix 193
#[tokio::test]
async fn a_withdrawn_authorisation_is_void() {
    let place = place();
    let payment = place.pay(Scheme::Upto, 1);
    assert!(place.facilitator.withdraw(&payment.authorization));
    assert_eq!(place.fate(&payment).await, Fate::Void);
    assert_eq!(place.unsettled(&payment).await, "permit2_invalid_nonce");
    let paid = place.pay(Scheme::Exact, 2);
    place.done(&paid).await;
    place.facilitator.withdraw(&paid.authorization);
    assert!(matches!(place.fate(&paid).await, Fate::Paid { .. }));
}

// Fault matrix 190
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_settlements_at_once_one_is_done() {
    let place = place();
    let payment = place.pay(Scheme::Exact, 1);
    let tries = (0..50).map(|_| {
        let facilitator = Arc::clone(&place.facilitator);
        let payment = payment.clone();
        tokio::spawn(async move { facilitator.settle(&payment).await })
    });
    let mut done = 0;
    for attempt in tries.collect::<Vec<_>>() {
        done += usize::from(matches!(attempt.await.unwrap(), Settled::Done(_)));
    }
    assert_eq!(done, 1);
    assert_eq!(place.facilitator.balance(place.payer.address()), 7000);
}

#[tokio::test]
async fn a_use_is_known_for_a_day_after_its_end() {
    let place = place();
    let first = place.pay(Scheme::Exact, 1);
    place.done(&first).await;
    let later = |nonce: u8, at: i64| {
        place.now.store(at, Ordering::SeqCst);
        let nonce = terms(nonce).nonce;
        place.signed(Scheme::Exact, |signed| {
            (signed.nonce, signed.valid_before) = (nonce, at + 300);
        })
    };
    let day = NOW + 300 + 24 * 60 * 60;
    place.done(&later(2, day)).await;
    assert!(matches!(place.fate(&first).await, Fate::Paid { .. }));
    place.done(&later(3, day + 1)).await;
    assert_eq!(place.fate(&first).await, Fate::Expired);
}

#[tokio::test]
async fn what_is_remembered_has_a_bound() {
    let place = place();
    let wallet = |number: usize| {
        let mut wallet = Address([1; 20]);
        wallet.0[..8].copy_from_slice(&number.to_be_bytes());
        wallet
    };
    for number in 0..=MAX_WALLETS {
        place.facilitator.set_balance(wallet(number), 1);
    }
    assert_eq!(place.facilitator.balance(wallet(0)), 10_000);
    assert_eq!(place.facilitator.balance(wallet(1)), 1);

    let mut authorization = place.pay(Scheme::Upto, 1).authorization;
    authorization.valid_before = i64::MAX;
    let mut used = |number: usize| {
        authorization.nonce[..8].copy_from_slice(&number.to_be_bytes());
        place.facilitator.withdraw(&authorization)
    };
    assert!((0..MAX_USES).all(&mut used));
    assert!(!used(MAX_USES));
    let payment = place.pay(Scheme::Exact, 2);
    assert_eq!(place.unsettled(&payment).await, "unexpected_settle_error");
    assert_eq!(place.facilitator.balance(place.payer.address()), 10_000);
    // After an hour the oldest makes room.
    place.now.store(NOW + 60 * 60 + 1, Ordering::SeqCst);
    assert!(used(MAX_USES));
    assert!(!used(1));
    assert!(used(0));
}

#[tokio::test]
async fn it_says_what_it_can_do() {
    let place = place();
    let supported = serde_json::to_value(place.facilitator.supported().await.unwrap()).unwrap();
    let expected: Value = json!({
        "kinds": [
            { "x402Version": 2, "scheme": "exact", "network": NETWORK },
            { "x402Version": 2, "scheme": "upto", "network": NETWORK, "extra": { "facilitatorAddress": OURS } },
        ],
        "extensions": [],
    });
    assert_eq!(supported, expected);
    assert!(place.facilitator.is_simulated());
}
