//! Stripe, over its HTTP API.
//!
//! The rule: the pages and cards are Stripe's, only ids and states come back. What is sent stands in
//! `form`, what is read in `reports` and `events`, how failures are told apart in `api`.

mod api;
pub(super) mod events;
mod form;
mod payouts;
mod reports;
#[cfg(test)]
#[path = "../../../tests/stripe_shapes/mod.rs"]
mod shapes;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::signature::verify_event;
use super::{
    AccountLink, Checkout, DisputeReport, EventError, NewCharge, NewCheckout, NewRefund, PaymentReport,
    PaymentState, PayoutAccount, PayoutReport, Processor, ProcessorError, ProcessorEvent, RefundReport,
};
use crate::client::{Client, ClientSettings};
use crate::guard::Guard;
use crate::provider::BuildError;
use crate::secret::Secret;
use api::{Api, Fault, Refusal};
use reports::{Fields, Malformed};

pub use api::STRIPE_VERSION;

/// What the adapter is built from.
#[derive(Clone, Debug)]
pub struct StripeSettings {
    /// The account's secret or restricted key.
    pub secret_key: Secret,
    /// Secrets of the endpoint that takes the events; several while one is rotated.
    pub webhook_secrets: Vec<Secret>,
    /// Where Stripe is.
    pub api_base: String,
    /// See [`ClientSettings`]; these bound one try, of which a call makes up to three.
    pub connect_timeout: Duration,
    /// See [`ClientSettings`].
    pub header_timeout: Duration,
    /// See [`ClientSettings`].
    pub idle_timeout: Duration,
    /// See [`ClientSettings`].
    pub total_timeout: Duration,
}

impl StripeSettings {
    /// Settings for Stripe itself.
    pub fn new(secret_key: Secret, webhook_secrets: Vec<Secret>) -> Self {
        Self {
            secret_key,
            webhook_secrets,
            api_base: "https://api.stripe.com".to_owned(),
            connect_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(10),
            total_timeout: Duration::from_secs(25),
        }
    }
}

/// Largest answer that is read.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// Stripe.
#[derive(Debug)]
pub struct StripeProcessor {
    api: Api,
    webhook_secrets: Vec<Secret>,
    livemode: Option<bool>,
}

impl StripeProcessor {
    /// Builds the adapter.
    ///
    /// # Errors
    /// [`BuildError`] for settings that cannot work.
    pub fn new(settings: StripeSettings) -> Result<Self, BuildError> {
        let client = Client::new(ClientSettings {
            guard: Guard::Operator,
            connect_timeout: settings.connect_timeout,
            header_timeout: settings.header_timeout,
            idle_timeout: settings.idle_timeout,
            total_timeout: settings.total_timeout,
            max_response_bytes: MAX_RESPONSE_BYTES,
            ..ClientSettings::default()
        })?;
        Ok(Self {
            api: Api::new(client, &settings.api_base, &settings.secret_key)?,
            livemode: livemode(settings.secret_key.expose()),
            webhook_secrets: settings.webhook_secrets,
        })
    }

    /// An object by its path; `None` when Stripe has none.
    async fn find(&self, path: &str) -> Result<Option<Value>, ProcessorError> {
        match self.api.get(path).await {
            Ok(object) => Ok(Some(object)),
            Err(Fault::Refused(refusal)) if refusal.status == 404 && refusal.code == "resource_missing" => {
                Ok(None)
            }
            Err(fault) => Err(fault.into()),
        }
    }

    async fn find_as<T>(
        &self,
        path: &str,
        read: fn(Fields<'_>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, ProcessorError> {
        match self.find(path).await? {
            Some(answer) => Fields::of(&answer).and_then(read).map(Some).map_err(unusable),
            None => Ok(None),
        }
    }
}

/// What the key's prefix says.
fn livemode(key: &str) -> Option<bool> {
    if key.starts_with("sk_live_") || key.starts_with("rk_live_") {
        Some(true)
    } else if key.starts_with("sk_test_") || key.starts_with("rk_test_") {
        Some(false)
    } else {
        None
    }
}

/// An answer of another shape: it was done, and what came of it must be asked again.
fn unusable(Malformed(what): Malformed) -> ProcessorError {
    ProcessorError::Unknown(format!("its answer is unusable: {what}"))
}

fn session_report(session: Fields<'_>) -> Result<Option<PaymentReport>, Malformed> {
    reports::session(session, reports::session_state(session)?)
}

/// A charge that was declined: Stripe refuses the request, and the payment is there.
fn declined(refusal: Box<Refusal>) -> Result<PaymentReport, ProcessorError> {
    let Some(intent) = &refusal.intent else {
        return Err(Fault::Refused(refusal).into());
    };
    let mut report = Fields::of(intent)
        .and_then(|intent| reports::payment(intent, PaymentState::Failed))
        .map_err(unusable)?;
    report.failure = Some((refusal.code, refusal.message));
    Ok(report)
}

#[async_trait]
impl Processor for StripeProcessor {
    fn name(&self) -> &'static str {
        "stripe"
    }

    fn livemode(&self) -> Option<bool> {
        self.livemode
    }

    async fn create_checkout(&self, new: &NewCheckout) -> Result<Checkout, ProcessorError> {
        let answer = self
            .api
            .post("/v1/checkout/sessions", form::checkout(new), Some(&new.attempt))
            .await?;
        reports::checkout(&answer).map_err(unusable)
    }

    async fn find_checkout(&self, session: &str) -> Result<Option<PaymentReport>, ProcessorError> {
        // The payment tells of a saved method and of a late failure.
        let path = form::object_path("checkout/sessions", session, "?expand%5B%5D=payment_intent")?;
        Ok(self.find_as(&path, session_report).await?.flatten())
    }

    async fn expire_checkout(&self, session: &str) -> Result<(), ProcessorError> {
        let path = form::object_path("checkout/sessions", session, "/expire")?;
        let refusal = match self.api.post(&path, form::Form::default(), None).await {
            Ok(_session) => return Ok(()),
            Err(Fault::Refused(refusal)) => refusal,
            Err(fault @ (Fault::Unavailable(_) | Fault::Unknown(_))) => return Err(fault.into()),
        };
        // Refused as well when it is over already: the session says so itself.
        match self.find_checkout(session).await {
            Ok(Some(report)) if report.state != PaymentState::Open => Ok(()),
            Ok(_) | Err(_) => Err(Fault::Refused(refusal).into()),
        }
    }

    async fn charge(&self, new: &NewCharge) -> Result<PaymentReport, ProcessorError> {
        let sent = self
            .api
            .post("/v1/payment_intents", form::charge(new), Some(&new.attempt))
            .await;
        match sent {
            Ok(answer) => Fields::of(&answer).and_then(reports::intent).map_err(unusable),
            Err(Fault::Refused(refusal)) if refusal.status == 402 => declined(refusal),
            Err(fault) => Err(fault.into()),
        }
    }

    async fn find_payment(&self, payment: &str) -> Result<Option<PaymentReport>, ProcessorError> {
        let path = form::object_path("payment_intents", payment, "")?;
        self.find_as(&path, reports::intent).await
    }

    async fn refund(&self, new: &NewRefund) -> Result<RefundReport, ProcessorError> {
        let answer = self
            .api
            .post("/v1/refunds", form::refund(new), Some(&new.attempt))
            .await?;
        Fields::of(&answer).and_then(reports::refund).map_err(unusable)
    }

    async fn find_refund(&self, refund: &str) -> Result<Option<RefundReport>, ProcessorError> {
        let path = form::object_path("refunds", refund, "")?;
        self.find_as(&path, reports::refund).await
    }

    async fn find_dispute(&self, dispute: &str) -> Result<Option<DisputeReport>, ProcessorError> {
        let path = form::object_path("disputes", dispute, "")?;
        self.find_as(&path, reports::dispute).await
    }

    async fn create_account(&self, attempt: &str) -> Result<PayoutAccount, ProcessorError> {
        payouts::create_account(self, attempt).await
    }

    async fn create_account_link(
        &self,
        account: &str,
        refresh_url: &str,
        return_url: &str,
    ) -> Result<AccountLink, ProcessorError> {
        payouts::create_account_link(self, account, refresh_url, return_url).await
    }

    async fn find_account(&self, account: &str) -> Result<Option<PayoutAccount>, ProcessorError> {
        payouts::find_account(self, account).await.map(Some)
    }

    async fn transfer(
        &self,
        attempt: &str,
        account: &str,
        amount_cents: i64,
    ) -> Result<PayoutReport, ProcessorError> {
        payouts::transfer(self, attempt, account, amount_cents).await
    }

    fn read_event(&self, raw: &[u8], signature: &str, now: i64) -> Result<ProcessorEvent, EventError> {
        let secrets: Vec<&str> = self.webhook_secrets.iter().map(Secret::expose).collect();
        verify_event(&secrets, raw, signature, now)?;
        events::read(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fault matrix 112
    #[test]
    fn the_key_says_whether_money_is_real() {
        for (key, expected) in [
            ("sk_live_1", Some(true)),
            ("rk_live_1", Some(true)),
            ("sk_test_1", Some(false)),
            ("rk_test_1", Some(false)),
            ("other", None),
        ] {
            assert_eq!(livemode(key), expected, "{key}");
        }
    }

    #[test]
    fn no_secret_is_in_debug() {
        let settings = StripeSettings::new(Secret::new("sk_test_canary"), vec![Secret::new("whsec_canary")]);
        let shown = format!("{settings:?}");
        let processor = StripeProcessor::new(settings).unwrap();
        assert!(!format!("{shown} {processor:?}").contains("canary"));
    }
}
