//! The processor of an installation that has none: its checkout page is the gateway's own, and no money moves.
//!
//! The rule: it is spoken to and speaks as Stripe does, signed events with Stripe's shapes included, so that
//! development and production take the same path. It remembers nothing; the ids it gives follow from what it
//! was asked, so that every call is repeatable.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::signature::{sign_event, verify_event};
use super::stripe::events;
use super::{
    AccountLink, Checkout, DisputeReport, EventError, NewCharge, NewCheckout, NewRefund, PaymentReport,
    PaymentState, PayoutAccount, PayoutReport, Processor, ProcessorError, ProcessorEvent, RefundReport,
    RefundState,
};
use crate::secret::Secret;

/// A saved method whose charges succeed.
const METHOD_OK: &str = "pm_builtin_ok";
/// A saved method whose charges are declined.
const METHOD_DECLINED: &str = "pm_builtin_declined";
const DECLINED: (&str, &str) = ("card_declined", "Your card was declined.");

/// What the embedded page knows of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltinPage {
    /// Our session id.
    pub reference: String,
    /// What is paid, in cents of a US dollar.
    pub amount_cents: i64,
    /// The processor's customer, when one is known.
    pub customer: Option<String>,
    /// Whether the payment method may be charged again.
    pub save_method: bool,
}

/// What the visitor of the embedded page chose, or what became of it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltinOutcome {
    /// Paid at once.
    Paid,
    /// The customer is done, the money is under way.
    Unpaid,
    /// The money that was under way arrived.
    PaidLate,
    /// The payment failed.
    Declined,
    /// The page stopped working unpaid.
    Expired,
}

impl BuiltinOutcome {
    /// The type of the event that tells of it.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Paid | Self::Unpaid => "checkout.session.completed",
            Self::PaidLate => "checkout.session.async_payment_succeeded",
            Self::Declined => "checkout.session.async_payment_failed",
            Self::Expired => "checkout.session.expired",
        }
    }
}

impl BuiltinPage {
    /// The `checkout.session` after `outcome`.
    pub fn session(&self, outcome: BuiltinOutcome) -> Value {
        let (status, payment_status) = match outcome {
            BuiltinOutcome::Paid | BuiltinOutcome::PaidLate => ("complete", "paid"),
            BuiltinOutcome::Unpaid | BuiltinOutcome::Declined => ("complete", "unpaid"),
            BuiltinOutcome::Expired => ("expired", "unpaid"),
        };
        json!({
            "id": session_id(&self.reference),
            "object": "checkout.session",
            "mode": "payment",
            "livemode": false,
            "client_reference_id": self.reference,
            "amount_total": self.amount_cents,
            "currency": "usd",
            "customer": self.customer(),
            "status": status,
            "payment_status": payment_status,
            "payment_intent": self.payment(outcome),
        })
    }

    fn customer(&self) -> Option<String> {
        let made = || format!("cus_builtin_{}", self.reference);
        self.customer.clone().or_else(|| self.save_method.then(made))
    }

    fn payment(&self, outcome: BuiltinOutcome) -> Option<Value> {
        if outcome == BuiltinOutcome::Expired {
            return None;
        }
        let (code, message) = DECLINED;
        let declined = outcome == BuiltinOutcome::Declined;
        Some(json!({
            "id": format!("pi_builtin_{}", self.reference),
            "object": "payment_intent",
            "payment_method": METHOD_OK,
            "setup_future_usage": self.save_method.then_some("off_session"),
            "last_payment_error": declined.then(|| json!({"code": code, "message": message})),
        }))
    }
}

fn session_id(reference: &str) -> String {
    format!("cs_builtin_{reference}")
}

/// The embedded processor.
#[derive(Clone, Debug)]
pub struct BuiltinProcessor {
    public_url: String,
    secret: Secret,
}

impl BuiltinProcessor {
    /// `public_url` is where the gateway's own pages are; `secret` signs the events.
    pub fn new(public_url: impl Into<String>, secret: Secret) -> Self {
        Self {
            public_url: public_url.into().trim_end_matches('/').to_owned(),
            secret,
        }
    }

    /// A signed event about `object`: its raw body and the signature header. `now` in Unix seconds.
    pub fn event(&self, id: &str, kind: &str, object: &Value, now: i64) -> (Vec<u8>, String) {
        let event = json!({
            "id": id,
            "object": "event",
            "type": kind,
            "created": now,
            "livemode": false,
            "data": {"object": object},
        });
        let raw = event.to_string().into_bytes();
        let signature = sign_event(self.secret.expose(), &raw, now);
        (raw, signature)
    }

    /// The signed event that tells of a visit to the embedded page.
    pub fn page_event(
        &self,
        id: &str,
        page: &BuiltinPage,
        outcome: BuiltinOutcome,
        now: i64,
    ) -> (Vec<u8>, String) {
        self.event(id, outcome.kind(), &page.session(outcome), now)
    }

    /// The signed event that tells that the owner of an account has said everything.
    pub fn account_event(&self, id: &str, account: &str, now: i64) -> (Vec<u8>, String) {
        let object = json!({
            "id": account,
            "object": "account",
            "details_submitted": true,
            "payouts_enabled": true,
            "capabilities": {"transfers": "active"},
            "requirements": {"disabled_reason": null},
        });
        let event = json!({
            "id": id,
            "object": "event",
            "type": "account.updated",
            "account": account,
            "created": now,
            "livemode": false,
            "data": {"object": object},
        });
        let raw = event.to_string().into_bytes();
        let signature = sign_event(self.secret.expose(), &raw, now);
        (raw, signature)
    }

    /// Where the page of `account` leads back to, when it is this processor that made the page so.
    pub fn way_back(&self, account: &str, to: &str, proof: &str) -> Option<String> {
        let return_url = String::from_utf8(hex::decode(to).ok()?).ok()?;
        let signature = format!("{PROOF}{proof}");
        let named = link_text(account, &return_url);
        let verified = verify_event(&[self.secret.expose()], named.as_bytes(), &signature, 0);
        verified.ok().map(|()| return_url)
    }
}

/// What the proof of a page's address begins with: it has no time.
const PROOF: &str = "t=0,v1=";

/// What the address of an account's page is signed over.
fn link_text(account: &str, return_url: &str) -> String {
    format!("account link\n{account}\n{return_url}")
}

#[async_trait]
impl Processor for BuiltinProcessor {
    fn name(&self) -> &'static str {
        "builtin"
    }

    fn livemode(&self) -> Option<bool> {
        None
    }

    async fn create_checkout(&self, new: &NewCheckout) -> Result<Checkout, ProcessorError> {
        Ok(Checkout {
            id: session_id(&new.reference),
            url: format!("{}/checkout/{}", self.public_url, new.reference),
        })
    }

    async fn find_checkout(&self, _session: &str) -> Result<Option<PaymentReport>, ProcessorError> {
        Ok(None)
    }

    async fn expire_checkout(&self, _session: &str) -> Result<(), ProcessorError> {
        Ok(())
    }

    async fn charge(&self, new: &NewCharge) -> Result<PaymentReport, ProcessorError> {
        let (state, failure) = match new.method.as_str() {
            METHOD_OK => (PaymentState::Paid, None),
            METHOD_DECLINED => (PaymentState::Failed, Some(DECLINED)),
            _ => {
                return Err(ProcessorError::Refused {
                    code: "resource_missing".to_owned(),
                    message: "No such payment method.".to_owned(),
                });
            }
        };
        Ok(PaymentReport {
            session: None,
            reference: Some(new.reference.clone()),
            state,
            payment: Some(format!("pi_builtin_{}", new.attempt)),
            amount_cents: new.amount_cents,
            currency: "usd".to_owned(),
            customer: Some(new.customer.clone()),
            method: Some(new.method.clone()),
            failure: failure.map(|(code, message)| (code.to_owned(), message.to_owned())),
        })
    }

    async fn find_payment(&self, _payment: &str) -> Result<Option<PaymentReport>, ProcessorError> {
        Ok(None)
    }

    async fn refund(&self, new: &NewRefund) -> Result<RefundReport, ProcessorError> {
        Ok(RefundReport {
            refund: format!("re_builtin_{}", new.attempt),
            reference: Some(new.attempt.clone()),
            payment: new.payment.clone(),
            amount_cents: new.amount_cents,
            currency: "usd".to_owned(),
            state: RefundState::Succeeded,
            failure: None,
        })
    }

    async fn find_refund(&self, _refund: &str) -> Result<Option<RefundReport>, ProcessorError> {
        Ok(None)
    }

    async fn find_dispute(&self, _dispute: &str) -> Result<Option<DisputeReport>, ProcessorError> {
        Ok(None)
    }

    async fn create_account(&self, attempt: &str) -> Result<PayoutAccount, ProcessorError> {
        Ok(PayoutAccount {
            id: format!("acct_builtin_{attempt}"),
            details_submitted: false,
            payouts_enabled: false,
            transfers_enabled: false,
            disabled_reason: None,
        })
    }

    async fn create_account_link(
        &self,
        account: &str,
        _refresh_url: &str,
        return_url: &str,
    ) -> Result<AccountLink, ProcessorError> {
        let signature = sign_event(self.secret.expose(), link_text(account, return_url).as_bytes(), 0);
        let proof = signature.trim_start_matches(PROOF);
        let to = hex::encode(return_url);
        Ok(AccountLink {
            url: format!("{}/connect/{account}?to={to}&proof={proof}", self.public_url),
            expires_at: None,
        })
    }

    async fn find_account(&self, _account: &str) -> Result<Option<PayoutAccount>, ProcessorError> {
        Ok(None)
    }

    async fn transfer(
        &self,
        attempt: &str,
        account: &str,
        amount_cents: i64,
    ) -> Result<PayoutReport, ProcessorError> {
        Ok(PayoutReport {
            transfer: format!("tr_builtin_{attempt}"),
            account: account.to_owned(),
            amount_cents,
            currency: "usd".to_owned(),
        })
    }

    fn read_event(&self, raw: &[u8], signature: &str, now: i64) -> Result<ProcessorEvent, EventError> {
        verify_event(&[self.secret.expose()], raw, signature, now)?;
        events::read(raw)
    }
}

#[cfg(test)]
#[path = "builtin_tests.rs"]
mod tests;
