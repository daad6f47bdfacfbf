//! A gateway whose payments go through Stripe's stand-in: top-ups are opened, paid and told of.

use std::ops::{Deref, DerefMut};

use http::Method;
use serde_json::{Value, json};

use super::stripe::StripeStandIn;
use super::{Reply, Sender, Service, Setup, Site, Store, eventually, micros};

/// Signs the stand-in's events.
pub const WEBHOOK_SECRET: &str = "whsec_of_the_tests";
/// Takes the events.
pub const EVENTS: &str = "/api/credits/processor/events";
/// Opens top-ups of the pool.
pub const POOL_TOPUPS: &str = "/api/credits/tenants/me/topups";
/// Shows top-ups to the workspace.
pub const TOPUPS: &str = "/api/credits/topups";

impl Setup {
    /// An empty pool whose top-ups are paid at the stand-in. Nothing is found by asking: see [`Setup::swept`].
    #[must_use]
    pub fn stripe(self, stripe: &StripeStandIn) -> Self {
        self.grant(None)
            // The same across restarts, whatever the port: a repeated request has to be the same request.
            .set("server.public_url", "https://gateway.example")
            .set("processor.kind", "stripe")
            .set("processor.secret_key", "sk_test_canary")
            .set("processor.webhook_secret", WEBHOOK_SECRET)
            .set("processor.api_base", stripe.url())
            .set("processor.sweep_secs", 1)
            .set("processor.sweep_after_secs", 86_400)
            .set("processor.auto_pause_minutes", 0)
            .set("limits.topups_per_minute", 0)
    }

    /// Everything unsettled is asked about once a second.
    #[must_use]
    pub fn swept(self) -> Self {
        self.set("processor.sweep_after_secs", 0)
    }

    /// The operator bears the fee, so that a payment is as large as what it credits.
    #[must_use]
    pub fn without_fees(self) -> Self {
        self.set("processor.fee_mode", "absorbed")
    }
}

/// A gateway and its processor.
pub struct Shop {
    /// The gateway.
    pub site: Site,
    /// The processor.
    pub stripe: StripeStandIn,
}

impl Deref for Shop {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl DerefMut for Shop {
    fn deref_mut(&mut self) -> &mut Site {
        &mut self.site
    }
}

impl Shop {
    /// One that bears the fees and is told of everything by events.
    pub async fn new(store: Store) -> Self {
        Self::of(store, Setup::without_fees).await
    }

    /// One that is set up by `change`.
    pub async fn of(store: Store, change: impl FnOnce(Setup) -> Setup) -> Self {
        let stripe = StripeStandIn::start(WEBHOOK_SECRET).await;
        let site = change(Setup::new(store).stripe(&stripe)).start().await;
        Self { site, stripe }
    }

    /// Where events are delivered to.
    pub fn events_url(&self) -> String {
        events_url(self.service())
    }

    /// A request for a top-up of the pool.
    pub fn ask(&self, body: &Value) -> Sender {
        self.post(POOL_TOPUPS, body)
    }

    /// Opens a top-up of the pool and gives its session.
    pub async fn open(&self, usd: &str) -> String {
        let opened = self.ask(&json!({ "usd": usd })).send().await.expect(200).json();
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    /// The processor's one page of a session.
    #[track_caller]
    pub fn page(&self, session: &str) -> String {
        let pages = self.stripe.sessions_of(session);
        assert_eq!(pages.len(), 1, "{session} has one page: {pages:?}");
        pages[0].clone()
    }

    /// The customer pays; gives the payment.
    #[track_caller]
    pub fn pay(&self, session: &str) -> String {
        self.stripe.pay(&self.page(session))
    }

    /// Delivers everything that waits; all of it is taken.
    pub async fn deliver(&self) {
        for (kind, status) in self.stripe.deliver_all(&self.events_url()).await {
            assert_eq!(status, Some(200), "{kind}");
        }
    }

    /// Opens a top-up, pays it, tells of it; gives session and payment.
    pub async fn bought(&self, usd: &str) -> (String, String) {
        let session = self.open(usd).await;
        let payment = self.pay(&session);
        self.deliver().await;
        assert_eq!(self.topup(&session).await["status"], "completed");
        (session, payment)
    }

    /// A top-up as the workspace sees it.
    pub async fn topup(&self, session: &str) -> Value {
        let path = format!("{TOPUPS}/{session}");
        self.get(&path).send().await.expect(200).json()
    }

    /// A top-up once it has this status.
    pub async fn reaches(&self, session: &str, status: &str) -> Value {
        let what = format!("{session} is {status}");
        eventually(&what, || async {
            let topup = self.topup(session).await;
            (topup["status"] == status).then_some(topup)
        })
        .await
    }

    /// Asks for a refund of a top-up.
    pub async fn refund(&self, session: &str, body: &Value, key: &str) -> Reply {
        let path = format!("{TOPUPS}/{session}/refunds");
        self.post(&path, body).once(key).send().await
    }

    /// The pool's money in µUSD: settled, and held of it.
    pub async fn pool(&self) -> (i64, i64) {
        let balance = self.balance().await;
        let amount = |name: &str| micros(balance[name].as_str().unwrap());
        (amount("usd"), amount("reservedUsd"))
    }

    /// Changes the workspace's settings.
    pub async fn settings(&self, settings: &Value) -> Reply {
        let path = "/api/credits/tenants/me/settings";
        let put = self.client.request(Method::PUT, path).bearer(&self.key);
        put.json(settings).send().await
    }

    /// How many events of each kind there are.
    pub fn told(&self, kinds: &[&str]) -> Vec<usize> {
        kinds.iter().map(|kind| self.events(kind).len()).collect()
    }
}

/// Where a service takes events.
pub fn events_url(service: &Service) -> String {
    format!("http://{}{EVENTS}", service.address)
}
