//! A gateway that sells calls to wallets, its facilitator and the chain.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde_json::{Value, json};

use super::facilitator::{ASSET, FacilitatorStandIn, NETWORK, PAY_TO};
use super::upstream::{answer, tokens, well};
use super::wallet::{Ask, Offer, Wallet};
use super::{Client, Reply, Seen, Service, Setup, Site, Step, Store, eventually};

/// One µUSD for a prompt token of flash and two for a completion token; twice as much for pro.
const PRICES: &str = r#"
[[models]]
provider = "up"
model = "vendor-v4-flash"
max_output_tokens = 384000
rates = { input = "1", output = "2" }

[[models]]
provider = "up"
model = "vendor-v4-pro"
max_output_tokens = 384000
rates = { input = "2", output = "4" }
"#;

/// What a chat with flash costs that the stand-in provider answers well: 10 tokens and 5.
pub const FLASH: u64 = 20;
/// The same with pro.
pub const PRO: u64 = 40;
/// What the list of models costs.
pub const FEE: u64 = 3000;

impl Setup {
    /// Calls are sold to wallets; a stand-in settles.
    #[must_use]
    pub fn paid(self, facilitator: &FacilitatorStandIn) -> Self {
        self.sold()
            .set("payments.mode", "facilitator")
            .set("payments.facilitator_url", facilitator.url())
            .set("payments.rpc_url", facilitator.rpc_url())
    }

    /// Calls are sold to wallets; no money moves.
    #[must_use]
    pub fn simulated(self) -> Self {
        self.sold().set("payments.mode", "simulated")
    }

    fn sold(mut self) -> Self {
        self.prices.push_str(PRICES);
        let provider = self.config["providers"].as_array_mut().unwrap();
        let models = provider[0]["models"].as_array_mut().unwrap();
        models.extend(["vendor-v4-flash", "vendor-v4-pro"].map(toml::Value::from));
        self.set("server.public_url", "http://127.0.0.1:8080")
            .set("payments.network", NETWORK)
            .set("payments.asset", ASSET)
            .set("payments.pay_to", PAY_TO)
            .set("payments.verify_timeout_secs", 2)
            .set("payments.settle_timeout_secs", 5)
            .set("calls.hold_slack_secs", 1)
            .provider("total_timeout_secs", 20)
    }
}

/// A provider that completes code, too.
pub fn completes(seen: &Seen) -> Vec<Step> {
    if !seen.path.ends_with("/v1/completions") {
        return well(seen);
    }
    let body = json!({
        "id": format!("cmpl-{}", seen.number), "object": "text_completion", "model": "upstream-model",
        "choices": [{ "index": 0, "text": "println!();", "finish_reason": "stop" }], "usage": tokens(10, 5),
    });
    vec![answer(200, &[], body.to_string().as_bytes())]
}

/// See the module.
pub struct Stall {
    /// The gateway.
    pub site: Site,
    /// The facilitator.
    pub facilitator: FacilitatorStandIn,
}

impl Deref for Stall {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl DerefMut for Stall {
    fn deref_mut(&mut self) -> &mut Site {
        &mut self.site
    }
}

impl Stall {
    /// The usual one.
    pub async fn new(store: Store) -> Self {
        Self::of(store, |setup| setup).await
    }

    /// One that is set up by `change`.
    pub async fn of(store: Store, change: impl FnOnce(Setup) -> Setup) -> Self {
        let facilitator = FacilitatorStandIn::start().await;
        let site = change(Setup::new(store).paid(&facilitator)).start().await;
        site.upstream.script(completes);
        Self { site, facilitator }
    }

    /// What `ask` costs, and the same request with a wallet's payment.
    pub async fn paid(&self, ask: &Ask, wallet: &Wallet) -> (Offer, Ask) {
        let offer = ask.offer(&self.client).await;
        let paid = ask.paid(&offer, wallet);
        (offer, paid)
    }

    /// Sends a request until its answer is final.
    pub async fn ends(&self, ask: &Ask) -> Reply {
        ends_at(&self.client, ask).await
    }

    /// Demands that so many calls were sent to the provider, and that these payments were made and booked, no more.
    #[track_caller]
    pub fn agree(&self, sent: usize, paid: &[u64]) -> impl Future<Output = ()> {
        assert_eq!(self.upstream.count(), sent, "calls to the provider");
        let made = self.facilitator.paid();
        let amounts: Vec<u64> = made.iter().filter_map(|payment| payment.amount).collect();
        assert_eq!(amounts, paid, "payments on the chain");
        self.booked(amounts.iter().sum())
    }

    async fn booked(&self, paid: u64) {
        // Public charges and their margin.
        let sql = "SELECT COALESCE(SUM(amount), 0) FROM transfers WHERE cause IN (19, 20)";
        let booked = self.database.number(sql).await;
        assert_eq!(u64::try_from(booked).unwrap(), paid, "payments in the ledger");
        let open = self
            .database
            .number("SELECT COUNT(*) FROM paid_calls WHERE state < 4")
            .await;
        assert_eq!(open, 0, "calls that are not over");
        self.audit();
    }

    /// What the provider bills that nobody paid for.
    pub async fn lost(&self) -> i64 {
        self.database
            .number("SELECT COALESCE(SUM(loss), 0) FROM paid_calls")
            .await
    }

    /// Every lease is over, as it is some minutes later: another process may go on.
    pub async fn leases_end(&self) {
        self.database
            .execute("UPDATE paid_calls SET due_at = 1 WHERE state < 4")
            .await;
    }

    /// The receipt of a request.
    pub async fn receipt(&self, reply: &Reply) -> Value {
        let path = format!(
            "/vendor/receipts/{}",
            reply.header("x-svc-receipt-id").expect("a receipt's id")
        );
        let id = reply.header("x-svc-request-id").unwrap();
        let get = self.client.request(http::Method::GET, &path);
        let receipt = get.header("x-svc-request-id", id).send().await.expect(200);
        receipt.json()["receipt"].clone()
    }

    /// Kills the process at `point` of `ask`, and starts it again.
    pub async fn crash_at(&mut self, point: &str, ask: &Ask) {
        self.restart(&[("TURNPIKE_FAILPOINT".to_owned(), point.to_owned())])
            .await;
        let cut = ask.by(&self.client).try_send().await;
        assert!(cut.is_err(), "{point}: the call was answered: {cut:?}");
        died_at(self.site.service.as_mut().unwrap(), point).await;
        self.restart(&[]).await;
    }
}

/// Demands that a service died at `point`.
pub async fn died_at(service: &mut Service, point: &str) {
    let status = service.wait(Duration::from_secs(10)).await;
    let log = service.logged();
    assert!(!status.success(), "{point}: {status}");
    assert!(log.contains(&format!("failpoint reached: {point}")), "{log}");
}

/// Sends a request until its answer is final.
pub async fn ends_at(client: &Client, ask: &Ask) -> Reply {
    eventually("the request is over", || async {
        let reply = ask.send(client).await;
        (reply.status != 202).then_some(reply)
    })
    .await
}
