//! Who pays: a wallet that reads a 402, signs, and sends the same bytes as often as it likes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use turnpike_core::x402::{
    Address, Authorization, PaymentPayload, PaymentRequired, PaymentRequirements, Scheme, SettleResponse,
    wire,
};
use turnpike_upstream::payments::{PayerKey, Terms, mpp_nonce};

use super::facilitator::{ASSET, NETWORK, PAY_TO};
use super::people::seconds;
use super::{Client, Reply, Sender, eventually};

/// Completes chats.
pub const PAID_CHAT: &str = "/vendor/chat";
/// Completes code.
pub const PAID_FIM: &str = "/vendor/fim";
/// Lists the models.
pub const PAID_LIST: &str = "/vendor/list-models";

/// A request, as it is sent again and again.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where to.
    pub path: String,
    /// The same bytes every time.
    pub body: Bytes,
    /// Id and payment.
    pub headers: Vec<(String, String)>,
}

impl Ask {
    /// A request without id and payment.
    pub fn new(path: &str, body: &Value) -> Self {
        Self {
            path: path.to_owned(),
            body: body.to_string().into(),
            headers: Vec::new(),
        }
    }

    /// A chat.
    pub fn chat(text: &str) -> Self {
        let messages = json!([{ "role": "user", "content": text }]);
        Self::new(
            PAID_CHAT,
            &json!({ "model": "vendor-v4-flash", "max_tokens": 64, "messages": messages }),
        )
    }

    /// Code in the middle.
    pub fn fim() -> Self {
        Self::new(
            PAID_FIM,
            &json!({ "model": "vendor-v4-pro", "max_tokens": 64, "prompt": "fn main() {", "suffix": "}" }),
        )
    }

    /// The models.
    pub fn list() -> Self {
        Self::new(PAID_LIST, &json!({}))
    }

    /// With a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Under a request id.
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        self.with("x-svc-request-id", id)
    }

    /// With a payment by x402.
    #[must_use]
    pub fn signed(self, payment: &PaymentPayload) -> Self {
        self.with("payment-signature", wire::to_header(payment).unwrap())
    }

    /// With a payment by the machine payments protocol.
    #[must_use]
    pub fn credential(self, credential: &Value) -> Self {
        self.with(
            "authorization",
            format!("Payment {}", URL_SAFE_NO_PAD.encode(credential.to_string())),
        )
    }

    /// The request, ready to go.
    pub fn by(&self, client: &Client) -> Sender {
        let mut sender = client
            .request(Method::POST, &self.path)
            .raw_json(self.body.clone());
        for (name, value) in &self.headers {
            sender = sender.header(name, value);
        }
        sender
    }

    /// Sends it.
    pub async fn send(&self, client: &Client) -> Reply {
        self.by(client).send().await
    }

    /// Sends it, and reads the terms. A service that has just been started has none before its facilitator has
    /// told what it can do.
    pub async fn offer(&self, client: &Client) -> Offer {
        let reply = eventually("the service has terms", || async {
            let reply = self.send(client).await;
            (reply.status != 503).then_some(reply)
        });
        Offer::read(reply.await)
    }

    /// The same request with a payment on the terms of `offer`, and their id.
    #[must_use]
    pub fn paid(&self, offer: &Offer, wallet: &Wallet) -> Self {
        let mut ask = self.clone();
        ask.headers.retain(|(name, _)| name != "x-svc-request-id");
        ask.id(&offer.id).signed(&wallet.pay(offer))
    }
}

/// What a 402 says.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The request id.
    pub id: String,
    /// The terms.
    pub required: PaymentRequired,
    /// The parameters of `WWW-Authenticate: Payment`.
    pub challenge: Option<BTreeMap<String, String>>,
    /// All of it.
    pub reply: Reply,
}

impl Offer {
    /// Reads one.
    #[track_caller]
    pub fn read(reply: Reply) -> Self {
        assert!(
            [402, 412].contains(&reply.status),
            "{} {}",
            reply.status,
            reply.text()
        );
        let required = reply.header("payment-required").expect("terms");
        let challenge = reply.header("www-authenticate").map(|header| {
            // Values may contain what stands between parameters.
            let parameters = header.strip_prefix("Payment ").unwrap();
            let parameters = parameters.strip_suffix('"').unwrap().split("\", ");
            parameters
                .map(|parameter| {
                    let (name, value) = parameter.split_once("=\"").unwrap();
                    (name.to_owned(), value.to_owned())
                })
                .collect()
        });
        Self {
            id: reply.header("x-svc-request-id").unwrap().to_owned(),
            required: wire::from_header(required).unwrap(),
            challenge,
            reply,
        }
    }

    /// The one way to pay.
    pub fn terms(&self) -> &PaymentRequirements {
        let [terms] = self.required.accepts.as_slice() else {
            panic!("{:?}", self.required.accepts)
        };
        terms
    }

    /// Why a payment was refused.
    pub fn reason(&self) -> &str {
        self.required.error.as_deref().unwrap_or_default()
    }

    /// The most that is paid.
    pub fn amount(&self) -> u64 {
        self.terms().amount.parse().unwrap()
    }
}

/// A wallet.
#[derive(Clone, Debug)]
pub struct Wallet {
    key: PayerKey,
}

impl Wallet {
    /// A new one.
    pub fn new() -> Self {
        let key = PayerKey::random(&rand::random()).unwrap();
        Self { key }
    }

    /// Its account.
    pub fn address(&self) -> Address {
        self.key.address()
    }

    /// Pays as an official client does.
    pub fn pay(&self, offer: &Offer) -> PaymentPayload {
        self.pay_otherwise(offer, |_| {})
    }

    /// Signs something else than was asked for.
    pub fn pay_otherwise(&self, offer: &Offer, change: impl FnOnce(&mut Authorization)) -> PaymentPayload {
        let terms = offer.terms();
        let lasts = i64::try_from(terms.max_timeout_seconds).unwrap();
        let chosen = Terms {
            nonce: rand::random(),
            valid_after: 0,
            valid_before: seconds() + lasts,
        };
        let asked = self.key.pay(terms, chosen).unwrap();
        let mut authorization = Authorization::read(&asked).unwrap();
        change(&mut authorization);
        echoed(offer, self.key.sign_payment(terms, &authorization).unwrap())
    }

    /// Signs for other terms, such as another chain, and says that it was for these.
    pub fn pay_elsewhere(
        &self,
        offer: &Offer,
        change: impl FnOnce(&mut PaymentRequirements),
    ) -> PaymentPayload {
        let mut elsewhere = offer.clone();
        change(&mut elsewhere.required.accepts[0]);
        let mut payment = self.pay(&elsewhere);
        payment.accepted = offer.terms().clone();
        payment
    }

    /// Answers the challenge of the machine payments protocol.
    pub fn credential(&self, offer: &Offer) -> Value {
        let challenge = offer.challenge.as_ref().expect("a challenge");
        let request = URL_SAFE_NO_PAD.decode(&challenge["request"]).unwrap();
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(
            (&request["recipient"], &request["currency"]),
            (&json!(PAY_TO), &json!(ASSET))
        );
        let authorization = Authorization {
            scheme: Scheme::Exact,
            payer: self.address(),
            nonce: mpp_nonce(&challenge["id"], &challenge["realm"]),
            to: Address::parse(PAY_TO).unwrap(),
            token: Address::parse(ASSET).unwrap(),
            value: request["amount"].as_str().unwrap().parse().unwrap(),
            valid_after: 0,
            valid_before: challenge["expires"]
                .parse::<jiff::Timestamp>()
                .unwrap()
                .as_second(),
            spender: None,
            facilitator: None,
            signature: Vec::new(),
        };
        let signed = self.key.sign_payment(offer.terms(), &authorization).unwrap();
        let mut payload = signed.payload["authorization"].clone();
        payload["type"] = json!("authorization");
        payload["signature"] = signed.payload["signature"].clone();
        json!({
            "challenge": challenge, "source": format!("did:pkh:{NETWORK}:{}", self.address()), "payload": payload,
        })
    }
}

/// What clients send back of what they were told.
fn echoed(offer: &Offer, mut payment: PaymentPayload) -> PaymentPayload {
    payment.resource = Some(json!(offer.required.resource));
    payment.extensions = Some(offer.required.extensions.clone());
    payment
}

/// `PAYMENT-RESPONSE`.
#[track_caller]
pub fn payment_response(reply: &Reply) -> SettleResponse {
    let header = reply.header("payment-response").expect("PAYMENT-RESPONSE");
    // Standard alphabet with padding: some clients read no other.
    STANDARD.decode(header).unwrap();
    wire::from_header(header).unwrap()
}

/// What a payment was signed for.
pub fn authorization(payment: &PaymentPayload) -> Authorization {
    Authorization::read(payment).unwrap()
}
