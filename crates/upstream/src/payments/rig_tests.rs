//! The official facilitator and a local chain, when `RIG_RPC` and `RIG_FACILITATOR` say where they are: a token with
//! EIP-3009 and a Permit2 that tells of withdrawals, anvil's unlocked accounts, and a facilitator that can be told to
//! misbehave.

use std::time::{Duration, SystemTime};

use ::http::Method;
use serde_json::{Value, json};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::evm::PERMIT2;
use turnpike_core::x402::{Address, PaymentRequirements, Scheme};

use super::eip712::{PayerKey, Word, address_word, keccak, number_word};
use super::paying::Terms;
use super::*;
use crate::client::{Client, ClientSettings};
use crate::headers::{Accept, request_headers};
use crate::secret::Secret;

const NETWORK: &str = "eip155:84532";
const ASSET: &str = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
const PAY_TO: &str = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65";
/// One of the keys that every local chain has.
const PAYER: &str = "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";
/// Another, which has not approved Permit2.
const FRESH_PAYER: &str = "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a";

struct Rig {
    facilitator: HttpFacilitator,
    client: Client,
    rpc: String,
    url: String,
    payer: PayerKey,
    /// Whom the facilitator calls itself.
    named: Value,
    began: i64,
    count: u8,
}

impl Rig {
    async fn new() -> Self {
        let place = |name: &str| std::env::var(name).expect("the rig's addresses");
        let (rpc, url) = (place("RIG_RPC"), place("RIG_FACILITATOR"));
        let chain = ChainSettings::new(Secret::new(rpc.clone()), NETWORK);
        let chain = ChainReader::new(&chain).unwrap();
        let facilitator = HttpFacilitator::new(&FacilitatorSettings::new(url.clone()), chain).unwrap();
        let supported = facilitator.supported().await.unwrap();
        println!("supported: {}", serde_json::to_string(&supported).unwrap());
        let upto = supported.kinds.into_iter().find(|kind| kind.scheme == "upto");
        #[expect(
            clippy::disallowed_methods,
            reason = "the facilitator of the rig has the real time"
        )]
        let now = SystemTime::now();
        let began = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Self {
            facilitator,
            client: Client::new(ClientSettings::default()).unwrap(),
            rpc,
            url,
            payer: PayerKey::parse(PAYER).unwrap(),
            named: upto.unwrap().extra.unwrap()["facilitatorAddress"].clone(),
            began: i64::try_from(began.as_secs()).unwrap(),
            count: 0,
        }
    }

    async fn post(&self, url: &str, body: &Value) -> Value {
        let head = request_headers(Accept::Json, true, None);
        let uri = url.parse().unwrap();
        let sent = self.client.send(Method::POST, uri, head, body.to_string().into());
        let deadline = self.client.total_deadline();
        let answer = self
            .client
            .collect(sent.await.unwrap().into_body(), deadline)
            .await;
        serde_json::from_slice(&answer.unwrap()).unwrap()
    }

    async fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.post(&self.rpc, &body).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    async fn fault(&self, fault: Value) {
        self.post(&format!("{}/rig/fault", self.url), &fault).await;
    }

    fn pay(&mut self, scheme: Scheme, amount: u64, seconds: i64) -> SignedPayment {
        self.count += 1;
        let nonce = keccak(&[&self.began.to_be_bytes(), &[self.count]]);
        self.pay_with(nonce, scheme, amount, seconds)
    }

    fn pay_with(&self, nonce: Word, scheme: Scheme, amount: u64, seconds: i64) -> SignedPayment {
        let requirements: PaymentRequirements = serde_json::from_value(json!({
            "scheme": scheme, "network": NETWORK, "amount": amount.to_string(), "asset": ASSET, "payTo": PAY_TO,
            "maxTimeoutSeconds": 300,
            "extra": { "name": "USDC", "version": "2", "facilitatorAddress": self.named },
        }))
        .unwrap();
        let terms = Terms {
            nonce,
            valid_after: 0,
            valid_before: self.began + seconds,
        };
        SignedPayment::read(self.payer.pay(&requirements, terms).unwrap(), requirements).unwrap()
    }

    async fn fate(&self, what: &str, payment: &SignedPayment) -> Result<Fate, FacilitatorError> {
        let since = Timestamp::from_millis(self.began * 1000);
        let fate = self.facilitator.fate(&payment.authorization, since).await;
        println!("{what}: {fate:?}");
        fate
    }

    async fn done(&self, what: &str, payment: &SignedPayment) -> SettleResponse {
        let settled = self.facilitator.settle(payment).await;
        println!("{what}: {settled:?}");
        let Settled::Done(done) = settled else { panic!() };
        done
    }

    /// Sends a call of `function` from an unlocked account.
    async fn send(&self, from: Address, to: Address, function: &str, data: &[u8]) {
        let selector = keccak(&[function.as_bytes()]);
        let input = format!("0x{}{}", hex::encode(&selector[..4]), hex::encode(data));
        let sent = json!([{ "from": from, "to": to, "data": input, "gas": "0x493e0" }]);
        let hash = self.rpc("eth_sendTransaction", sent).await;
        for _ in 0..100 {
            let receipt = self.rpc("eth_getTransactionReceipt", json!([hash])).await;
            if !receipt.is_null() {
                assert_eq!(receipt["status"], "0x1");
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{function} was not mined");
    }

    async fn view(&self, function: &str, words: &[Word]) -> Word {
        let selector = keccak(&[function.as_bytes()]);
        let data = format!("0x{}{}", hex::encode(&selector[..4]), hex::encode(words.concat()));
        let call = json!({ "to": ASSET, "data": data });
        let answer = self.rpc("eth_call", json!([call, "latest"])).await;
        let bytes = hex::decode(&answer.as_str().unwrap()[2..]).unwrap();
        Word::try_from(bytes).unwrap()
    }

    async fn domain(&self) -> Word {
        self.view("DOMAIN_SEPARATOR()", &[]).await
    }

    /// Withdraws the nonce of an `upto` payment.
    async fn withdraw(&self, payment: &SignedPayment) {
        let nonce = payment.authorization.nonce;
        let mut number = [0; 32];
        number[1..].copy_from_slice(&nonce[..31]);
        let mut mask = [0; 32];
        mask[31 - usize::from(nonce[31] / 8)] = 1 << (nonce[31] % 8);
        let function = "invalidateUnorderedNonces(uint256,uint256)";
        self.send(self.payer.address(), PERMIT2, function, &[number, mask].concat())
            .await;
    }

    /// Adds the payer's permission for Permit2, which the facilitator sends along.
    async fn sponsored(&self, mut payment: SignedPayment) -> SignedPayment {
        let owner = self.payer.address();
        let nonce = self.view("nonces(address)", &[address_word(owner)]).await;
        let amount: u64 = payment.requirements.amount.parse().unwrap();
        let deadline = self.began + 600;
        let kind = b"Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)";
        let message = keccak(&[
            &keccak(&[kind]),
            &address_word(owner),
            &address_word(PERMIT2),
            &number_word(amount),
            &nonce,
            &number_word(u64::try_from(deadline).unwrap()),
        ]);
        let digest = keccak(&[b"\x19\x01", &self.domain().await, &message]);
        let signature = format!("0x{}", hex::encode(self.payer.sign(&digest).unwrap()));
        let info = json!({
            "from": owner, "asset": ASSET, "spender": PERMIT2, "amount": amount.to_string(),
            "nonce": nonce[31].to_string(), "deadline": deadline.to_string(), "signature": signature, "version": "1",
        });
        let extensions = json!({ "eip2612GasSponsoring": { "info": info } });
        payment.payload.extensions = extensions.as_object().cloned();
        payment
    }
}

fn paid(done: &SettleResponse, amount: u64) -> Fate {
    let transaction = done.transaction.clone();
    Fate::Paid { transaction, amount }
}

#[tokio::test]
#[ignore = "needs a chain and the official facilitator: tests/clients/run x402 starts them and runs it"]
async fn the_official_facilitator_is_paid_and_the_chain_read() {
    let mut rig = Rig::new().await;
    let asset = Address::parse(ASSET).unwrap();
    let reader = ChainReader::new(&ChainSettings::new(Secret::new(rig.rpc.clone()), NETWORK));
    let checked = reader.unwrap().check(asset).await;
    println!("check: {checked:?}");
    assert_eq!(checked, Ok(()));

    for (scheme, most, amount) in [(Scheme::Exact, 3000, 3000), (Scheme::Upto, 250_000, 1234)] {
        let mut payment = rig.pay(scheme, most, 600);
        assert_eq!(rig.facilitator.verify(&payment).await, Verdict::Valid);
        let open = rig.fate(&format!("{scheme} before"), &payment).await;
        assert_eq!(open, Ok(Fate::Open));
        payment.requirements.amount = amount.to_string();
        let done = rig.done(&format!("{scheme} settled"), &payment).await;
        let fate = rig.fate(&format!("{scheme} after"), &payment).await;
        assert_eq!(fate, Ok(paid(&done, amount)));
        let again = rig.facilitator.settle(&payment).await;
        println!("{scheme} again: {again:?}");
        assert!(!matches!(again, Settled::Done(_)));
        assert_eq!(rig.fate("still", &payment).await, Ok(paid(&done, amount)));

        let lost = rig.pay(scheme, most, 600);
        rig.fault(json!({ "op": "settle", "lose": true, "times": 1 }))
            .await;
        let settled = rig.facilitator.settle(&lost).await;
        println!("{scheme} lost: {settled:?}");
        assert!(matches!(settled, Settled::Unknown(_)));
        let fate = rig.fate("found", &lost).await;
        assert!(matches!(fate, Ok(Fate::Paid { amount, .. }) if amount == most));

        let failed = rig.pay(scheme, most, 600);
        rig.fault(json!({ "op": "settle", "status": 500, "times": 1 }))
            .await;
        let settled = rig.facilitator.settle(&failed).await;
        assert!(matches!(settled, Settled::Unknown(_)), "{settled:?}");
        assert_eq!(rig.fate("failed", &failed).await, Ok(Fate::Open));
    }

    let canceled = rig.pay(Scheme::Exact, 3000, 600);
    let nonce = canceled.authorization.nonce;
    let payer = address_word(rig.payer.address());
    let kind = keccak(&[b"CancelAuthorization(address authorizer,bytes32 nonce)"]);
    let message = keccak(&[&kind, &payer, &nonce]);
    let digest = keccak(&[b"\x19\x01", &rig.domain().await, &message]);
    let signature = rig.payer.sign(&digest).unwrap();
    let data = [
        &payer[..],
        &nonce,
        &number_word(96),
        &number_word(65),
        &signature,
        &[0; 31],
    ]
    .concat();
    let function = "cancelAuthorization(address,bytes32,bytes)";
    rig.send(rig.payer.address(), asset, function, &data).await;
    assert_eq!(rig.fate("canceled", &canceled).await, Ok(Fate::Void));
    let verdict = rig.facilitator.verify(&canceled).await;
    println!("canceled: {verdict:?}");
    assert!(matches!(verdict, Verdict::Invalid { .. }));

    let withdrawn = rig.pay(Scheme::Upto, 3000, 600);
    rig.withdraw(&withdrawn).await;
    assert_eq!(rig.fate("withdrawn", &withdrawn).await, Ok(Fate::Void));
    // The bytes of this nonce stand in every settlement of this payer.
    let nothing = rig.pay_with([0; 32], Scheme::Upto, 3000, 600);
    assert_eq!(rig.fate("nonce 0 before", &nothing).await, Ok(Fate::Open));
    rig.withdraw(&nothing).await;
    assert_eq!(rig.fate("nonce 0 withdrawn", &nothing).await, Ok(Fate::Void));
    // One that was paid cannot be withdrawn.
    let kept = rig.pay_with(number_word(256), Scheme::Upto, 3000, 600);
    let done = rig.done("nonce 256 settled", &kept).await;
    rig.withdraw(&kept).await;
    assert_eq!(rig.fate("nonce 256 after", &kept).await, Ok(paid(&done, 3000)));

    let approved = std::mem::replace(&mut rig.payer, PayerKey::parse(FRESH_PAYER).unwrap());
    let sponsored = rig.pay(Scheme::Upto, 250_000, 600);
    let mut sponsored = rig.sponsored(sponsored).await;
    assert_eq!(rig.facilitator.verify(&sponsored).await, Verdict::Valid);
    sponsored.requirements.amount = "1234".to_owned();
    let done = rig.done("without approval settled", &sponsored).await;
    assert_eq!(
        rig.fate("without approval after", &sponsored).await,
        Ok(paid(&done, 1234))
    );
    let hash = json!([done.transaction]);
    let input = rig.rpc("eth_getTransactionByHash", hash).await["input"].clone();
    assert!(
        input.as_str().unwrap().starts_with("0x016c1748"),
        "settleWithPermit"
    );
    rig.payer = approved;

    let soon = [Scheme::Exact, Scheme::Upto].map(|scheme| rig.pay(scheme, 3000, 900));
    for payment in &soon {
        assert_eq!(rig.fate("not used", payment).await, Ok(Fate::Open));
    }
    rig.rpc("evm_increaseTime", json!([1200])).await;
    rig.rpc("anvil_mine", json!(["0x1"])).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    for payment in &soon {
        assert_eq!(rig.fate("not used in time", payment).await, Ok(Fate::Expired));
    }
}
