//! Margin that is earned, and payouts of it.

use http::Method;
use serde_json::{Value, json};

use super::payments::Shop;
use super::{Reply, Sender, Site, chat, eventually, micros};

/// Payouts.
pub const PAYOUTS: &str = "/api/credits/payouts";
/// The connection to the processor; an action comes behind it.
pub const CONNECT: &str = "/api/credits/connect/processor";
/// An address that the workspace is paid out to.
pub const ADDRESS: &str = "0x52908400098527886E0F7030069857D2E4169EE7";

impl Site {
    /// One call of an end user, in which the workspace earns this much.
    pub async fn earn(&self, usd: &str) {
        let settings = json!({ "pricing": { "global": { "markupBps": 0, "flatMarkupUsdc": usd } } });
        let path = "/api/credits/tenants/me/settings";
        let put = self.client.request(Method::PUT, path).bearer(&self.key);
        put.json(&settings).send().await.expect(200);
        self.grant("100", Some("payer"));
        let call = self.chat(&chat("flat", "hi")).paid_by("payer");
        call.send().await.expect(200);
    }

    /// A request of a member.
    pub fn as_member(&self, session: &str, method: Method, path: &str) -> Sender {
        self.client.request(method, path).bearer(session)
    }

    /// Has the workspace be paid out to [`ADDRESS`].
    pub async fn to_stablecoin(&self) {
        let path = format!("{PAYOUTS}/stablecoin");
        let put = self.as_member(&self.owner(), Method::PUT, &path);
        let body = json!({ "address": ADDRESS, "network": "eip155:8453" });
        put.json(&body).send().await.expect(200);
    }

    /// The margin account.
    pub async fn margin(&self) -> Value {
        let path = format!("{PAYOUTS}/account");
        self.get(&path).send().await.expect(200).json()["account"].clone()
    }

    /// What is available, under way and paid, in µUSD.
    pub async fn margins(&self) -> (i64, i64, i64) {
        let account = self.margin().await;
        let amount = |name: &str| micros(account[name].as_str().unwrap());
        (amount("availableUsd"), amount("inTransitUsd"), amount("paidUsd"))
    }

    /// A request for a payout.
    pub fn pay_out(&self, body: &Value) -> Sender {
        let once = uuid::Uuid::new_v4().to_string();
        self.post(PAYOUTS, body).once(&once)
    }

    /// A payout that was opened.
    pub async fn paid_out(&self, body: &Value) -> Value {
        self.pay_out(body).send().await.expect(201).json()["payout"].clone()
    }

    /// A payout.
    pub async fn payout(&self, id: &Value) -> Value {
        let path = format!("{PAYOUTS}/{}", id.as_str().unwrap());
        self.get(&path).send().await.expect(200).json()["payout"].clone()
    }

    /// A payout once it has this status.
    pub async fn payout_reaches(&self, id: &Value, status: &str) -> Value {
        eventually(&format!("{id} is {status}"), || async {
            let payout = self.payout(id).await;
            (payout["status"] == status).then_some(payout)
        })
        .await
    }

    /// Asks for the page on which an account is connected.
    pub async fn start_connection(&self, body: &Value) -> Reply {
        let path = format!("{CONNECT}/start");
        let start = self.as_member(&self.owner(), Method::POST, &path);
        start.json(body).send().await
    }

    /// How far the connection is.
    pub async fn connection(&self) -> Value {
        let path = format!("{CONNECT}/status");
        self.get(&path).send().await.expect(200).json()
    }

    /// Ends the connection as `session`.
    pub async fn disconnect(&self, session: &str) -> Reply {
        let path = format!("{CONNECT}/disconnect");
        self.as_member(session, Method::POST, &path).send().await
    }
}

impl Shop {
    /// Connects an account of Stripe's that can be paid out to; gives its id.
    pub async fn connected(&self) -> String {
        self.start_connection(&json!({})).await.expect(200);
        let account = self.connection().await["account"].as_str().unwrap().to_owned();
        self.stripe.finish_onboarding(&account);
        assert_eq!(self.connection().await["payable"], true);
        account
    }

    /// The transfers that were asked for: key, account and cents.
    pub fn transfers(&self) -> Vec<(String, String, String)> {
        let asked = self.stripe.requests().into_iter();
        let asked = asked.filter(|request| request.path == "/v1/transfers");
        asked
            .map(|request| {
                let key = request.idempotency_key().unwrap().to_owned();
                let of = |name: &str| request.form[name].clone();
                (key, of("destination"), of("amount"))
            })
            .collect()
    }
}
