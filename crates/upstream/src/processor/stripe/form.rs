//! What is sent to Stripe: form bodies with bracketed names, and the paths of its objects.
//!
//! The rule: every field that we send is written in this file and nowhere else, in a fixed order, so that a
//! repeat under one idempotency key is the same bytes. Ids become path segments only when they look like ids.

use form_urlencoded::byte_serialize;

use crate::processor::{NewCharge, NewCheckout, NewRefund, ProcessorError};

/// Metadata by which a payment finds its top-up.
pub(super) const SESSION: &str = "turnpike_session";
/// Metadata that a charge of a saved method has and a checkout page's payment has not.
pub(super) const OFF_SESSION: &str = "turnpike_offsession";
/// Metadata by which a refund finds ours.
pub(super) const REFUND: &str = "turnpike_refund";
/// Metadata by which a transfer finds our payout.
pub(super) const PAYOUT: &str = "turnpike_payout";
/// Longest id that becomes a path segment.
const MAX_ID_BYTES: usize = 255;

/// A form body in the making.
#[derive(Default)]
pub(super) struct Form(String);

impl Form {
    fn with(mut self, name: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.extend(byte_serialize(name.as_bytes()));
        self.0.push('=');
        self.0.extend(byte_serialize(value.as_bytes()));
        self
    }

    fn cents(self, name: &str, cents: i64) -> Self {
        self.with(name, &cents.to_string())
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// `POST /v1/checkout/sessions`
pub(super) fn checkout(new: &NewCheckout) -> Form {
    let form = Form::default()
        .with("mode", "payment")
        .with("line_items[0][quantity]", "1")
        .with("line_items[0][price_data][currency]", "usd")
        .cents("line_items[0][price_data][unit_amount]", new.amount_cents)
        .with("line_items[0][price_data][product_data][name]", &new.description)
        .with("client_reference_id", &new.reference)
        .with(&format!("metadata[{SESSION}]"), &new.reference)
        .with(
            &format!("payment_intent_data[metadata][{SESSION}]"),
            &new.reference,
        )
        .with("success_url", &new.success_url)
        .with("cancel_url", &new.cancel_url)
        .with("expires_at", &new.expires_at.to_string());
    let form = match &new.customer {
        Some(customer) => form.with("customer", customer),
        None if new.save_method => form.with("customer_creation", "always"),
        None => form,
    };
    if new.save_method {
        // Charged later without the customer: a card, whose outcome is known at once.
        form.with("payment_intent_data[setup_future_usage]", "off_session")
            .with("payment_method_types[0]", "card")
    } else {
        form
    }
}

/// `POST /v1/payment_intents`, confirmed at once and without the customer.
pub(super) fn charge(new: &NewCharge) -> Form {
    Form::default()
        .cents("amount", new.amount_cents)
        .with("currency", "usd")
        .with("customer", &new.customer)
        .with("payment_method", &new.method)
        .with("payment_method_types[0]", "card")
        .with("off_session", "true")
        .with("confirm", "true")
        .with("description", &new.description)
        .with(&format!("metadata[{SESSION}]"), &new.reference)
        .with(&format!("metadata[{OFF_SESSION}]"), "1")
}

/// `POST /v1/refunds`
pub(super) fn refund(new: &NewRefund) -> Form {
    Form::default()
        .with("payment_intent", &new.payment)
        .cents("amount", new.amount_cents)
        .with(&format!("metadata[{REFUND}]"), &new.attempt)
}

/// `POST /v1/accounts`: one that can be paid out to and that Stripe onboards.
pub(super) fn account() -> Form {
    Form::default()
        .with("type", "express")
        .with("capabilities[transfers][requested]", "true")
}

/// `POST /v1/account_links`
pub(super) fn account_link(account: &str, refresh_url: &str, return_url: &str) -> Form {
    Form::default()
        .with("account", account)
        .with("type", "account_onboarding")
        .with("refresh_url", refresh_url)
        .with("return_url", return_url)
}

/// `POST /v1/transfers`
pub(super) fn transfer(attempt: &str, account: &str, amount_cents: i64) -> Form {
    Form::default()
        .cents("amount", amount_cents)
        .with("currency", "usd")
        .with("destination", account)
        .with(&format!("metadata[{PAYOUT}]"), attempt)
}

/// The path of one object below `collection`, with `suffix` behind it.
///
/// # Errors
/// [`ProcessorError::Refused`] for an id that is none.
pub(super) fn object_path(collection: &str, id: &str, suffix: &str) -> Result<String, ProcessorError> {
    let looks_like_an_id = !id.is_empty()
        && id.len() <= MAX_ID_BYTES
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if looks_like_an_id {
        Ok(format!("/v1/{collection}/{id}{suffix}"))
    } else {
        Err(ProcessorError::Refused {
            code: "invalid_id".to_owned(),
            message: "this is no id of the processor".to_owned(),
        })
    }
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
