//! A stand-in for Stripe's API and for its delivery of events, on loopback.
//!
//! The rule: it keeps state as Stripe does, answers in Stripe's shapes, and remembers every request; what goes
//! wrong is what a test asks for. It knows nothing of this project, so that tests of other crates include it by
//! its path: they need `bytes`, `hex`, `hmac`, `http`, `http-body-util`, `hyper`, `hyper-util`, `serde_json`, `sha2`
//! and `tokio`. Prices, taxes, fees and everything else that Stripe can do is left out.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unused_imports,
    reason = "a tool of tests, of which each uses a part"
)]

mod api;
mod happenings;
mod objects;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::UNIX_EPOCH;

use serde_json::Value;
use tokio::net::TcpListener;

pub(crate) use wire::{raw, sign};

/// What happens to a request instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Answers this status; nothing is done.
    Status(u16),
    /// 409 `idempotency_key_in_use`; nothing is done.
    InUse,
    /// Does nothing and never answers.
    Hang,
    /// Does it and never answers.
    DoneThenHang,
    /// Does nothing and closes the connection.
    Cut,
    /// Does it and closes the connection.
    DoneThenCut,
    /// Does it and answers this status, this once: a repeat gets the true answer.
    DoneThenStatus(u16),
    /// Does it and answers 200 with half a JSON object.
    DoneThenGarbage,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// Names with their brackets, values decoded.
    pub(crate) form: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Recorded {
    pub(crate) fn idempotency_key(&self) -> Option<&str> {
        self.headers.get("idempotency-key").map(String::as_str)
    }
}

/// The answer that is stored under an idempotency key.
#[derive(Clone)]
struct Stored {
    request: String,
    status: u16,
    answer: Value,
}

#[derive(Default)]
struct State {
    /// By id.
    objects: BTreeMap<String, Value>,
    /// What a session's form said of its payment: metadata and `setup_future_usage`.
    payment_forms: BTreeMap<String, (Value, Value)>,
    made: BTreeMap<&'static str, usize>,
    next_id: usize,
    stored: BTreeMap<String, Stored>,
    faults: VecDeque<Fault>,
    requests: Vec<Recorded>,
    events: VecDeque<Value>,
    delayed: Vec<Value>,
    livemode: bool,
    now: Option<i64>,
    declining: Option<String>,
    pending_refunds: bool,
    balance: Option<i64>,
}

impl State {
    #[expect(
        clippy::disallowed_methods,
        reason = "the stand-in is another machine and has a clock of its own"
    )]
    fn now(&self) -> i64 {
        self.now.unwrap_or_else(|| {
            let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            i64::try_from(since.as_secs()).unwrap()
        })
    }

    fn id(&mut self, prefix: &str) -> String {
        self.next_id += 1;
        format!("{prefix}_{:06}", self.next_id)
    }

    fn object(&mut self, id: &str) -> &mut Value {
        self.objects
            .get_mut(id)
            .unwrap_or_else(|| panic!("Stripe has no {id}"))
    }
}

/// A running stand-in. Cloning shares it.
#[derive(Clone)]
pub(crate) struct StripeStandIn {
    address: SocketAddr,
    webhook_secret: String,
    state: Arc<Mutex<State>>,
}

impl StripeStandIn {
    /// Starts on a free port. `webhook_secret` signs the events.
    pub(crate) async fn start(webhook_secret: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stand_in = Self {
            address: listener.local_addr().unwrap(),
            webhook_secret: webhook_secret.to_owned(),
            state: Arc::default(),
        };
        tokio::spawn(wire::serve(listener, Arc::clone(&stand_in.state)));
        stand_in
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The `api_base`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, those with faults included.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.state().requests.clone()
    }

    /// How many objects of a kind (`checkout.session`, `payment_intent`, …) exist.
    pub(crate) fn made(&self, kind: &str) -> usize {
        self.state().made.get(kind).copied().unwrap_or_default()
    }

    /// An object by its id, as Stripe would answer.
    pub(crate) fn object(&self, id: &str) -> Value {
        self.state().object(id).clone()
    }

    /// The ids of the checkout sessions with this `client_reference_id`.
    pub(crate) fn sessions_of(&self, reference: &str) -> Vec<String> {
        let state = self.state();
        let found = state.objects.iter().filter(|(_, object)| {
            object["object"] == "checkout.session" && object["client_reference_id"] == reference
        });
        found.map(|(id, _)| id.clone()).collect()
    }

    /// The ids of the refunds of a payment.
    pub(crate) fn refunds_of(&self, payment: &str) -> Vec<String> {
        let state = self.state();
        let found = state
            .objects
            .iter()
            .filter(|(_, object)| object["object"] == "refund" && object["payment_intent"] == payment);
        found.map(|(id, _)| id.clone()).collect()
    }

    /// The ids of the transfers that were asked for under this attempt.
    pub(crate) fn transfers_of(&self, attempt: &str) -> Vec<String> {
        let state = self.state();
        let found = state.objects.iter().filter(|(_, object)| {
            object["object"] == "transfer" && object["metadata"]["turnpike_payout"] == attempt
        });
        found.map(|(id, _)| id.clone()).collect()
    }

    /// The next `count` requests fail in this way.
    pub(crate) fn fail_next(&self, count: usize, fault: Fault) {
        self.state().faults.extend(std::iter::repeat_n(fault, count));
    }

    /// Whether new objects and events tell of real money.
    pub(crate) fn set_livemode(&self, livemode: bool) {
        self.state().livemode = livemode;
    }

    /// Stops its clock at `now`, Unix seconds; by default it is the machine's.
    pub(crate) fn set_now(&self, now: i64) {
        self.state().now = Some(now);
    }

    /// Declines every charge of a saved method with this code; `None` accepts them again.
    pub(crate) fn set_declining(&self, code: Option<&str>) {
        self.state().declining = code.map(str::to_owned);
    }

    /// Whether new refunds are `pending` until [`Self::settle_refund`].
    pub(crate) fn set_pending_refunds(&self, pending: bool) {
        self.state().pending_refunds = pending;
    }

    /// What transfers can be made from; unbounded by default.
    pub(crate) fn set_balance(&self, cents: i64) {
        self.state().balance = Some(cents);
    }

    /// Changes a field of an object, as later answers and events show it: an amount, a currency.
    pub(crate) fn tamper(&self, id: &str, field: &str, value: impl Into<Value>) {
        self.state().object(id)[field] = value.into();
    }
}
