//! Objects in Stripe's shapes, with every field that Stripe's own examples have.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// `fields` over `nulls` that are null.
fn object(kind: &str, nulls: &str, fields: Value) -> Value {
    let mut object: Map<String, Value> = nulls
        .split_whitespace()
        .map(|name| (name.to_owned(), Value::Null))
        .collect();
    object.insert("object".to_owned(), kind.into());
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    Value::Object(object)
}

fn list(url: &str) -> Value {
    json!({"object": "list", "data": [], "has_more": false, "url": url})
}

pub(super) fn session(id: &str, form: &BTreeMap<String, String>, amount: i64, now: i64, live: bool) -> Value {
    let text = |name: &str| form.get(name).cloned();
    let expires_at = form.get("expires_at").and_then(|at| at.parse::<i64>().ok());
    object(
        "checkout.session",
        "after_expiration allow_promotion_codes billing_address_collection consent consent_collection \
         customer_details customer_email locale payment_link recovered_from setup_intent shipping \
         shipping_address_collection shipping_rate submit_type subscription payment_intent",
        json!({
            "id": id,
            "amount_subtotal": amount,
            "amount_total": amount,
            "automatic_tax": {"enabled": false, "status": null},
            "cancel_url": text("cancel_url"),
            "client_reference_id": text("client_reference_id"),
            "created": now,
            "currency": text("line_items[0][price_data][currency]"),
            "customer": text("customer"),
            "customer_creation": text("customer_creation"),
            "expires_at": expires_at.unwrap_or(now + 86_400),
            "livemode": live,
            "metadata": super::api::metadata(form, "metadata"),
            "mode": text("mode"),
            "payment_method_options": {},
            "payment_method_types": ["card"],
            "payment_status": "unpaid",
            "phone_number_collection": {"enabled": false},
            "shipping_options": [],
            "status": "open",
            "success_url": text("success_url"),
            "total_details": {"amount_discount": 0, "amount_shipping": 0, "amount_tax": 0},
            "url": format!("https://checkout.stripe.com/c/pay/{id}"),
        }),
    )
}

/// What a payment is made of.
pub(super) struct NewIntent<'a> {
    pub(super) id: &'a str,
    pub(super) charge: &'a str,
    pub(super) amount: i64,
    pub(super) currency: Value,
    pub(super) customer: Value,
    pub(super) method: Value,
    pub(super) metadata: Value,
    pub(super) setup_future_usage: Value,
    pub(super) now: i64,
    pub(super) live: bool,
}

/// A payment that is under way.
pub(super) fn intent(new: &NewIntent<'_>) -> Value {
    let id = new.id;
    object(
        "payment_intent",
        "application application_fee_amount automatic_payment_methods canceled_at cancellation_reason \
         description invoice last_payment_error next_action on_behalf_of processing receipt_email review \
         shipping statement_descriptor statement_descriptor_suffix transfer_data transfer_group",
        json!({
            "id": id,
            "amount": new.amount,
            "amount_capturable": 0,
            "amount_received": 0,
            "capture_method": "automatic",
            "charges": list(&format!("/v1/charges?payment_intent={id}")),
            "client_secret": format!("{id}_secret_1"),
            "confirmation_method": "automatic",
            "created": new.now,
            "currency": new.currency,
            "customer": new.customer,
            "latest_charge": new.charge,
            "livemode": new.live,
            "metadata": new.metadata,
            "payment_method": new.method,
            "payment_method_options": {},
            "payment_method_types": ["card"],
            "setup_future_usage": new.setup_future_usage,
            "status": "processing",
        }),
    )
}

pub(super) fn charge(intent: &Value, amount_refunded: i64) -> Value {
    object(
        "charge",
        "application application_fee application_fee_amount balance_transaction \
         calculated_statement_descriptor description failure_balance_transaction failure_code \
         failure_message invoice on_behalf_of order outcome receipt_email receipt_number review shipping \
         source_transfer statement_descriptor statement_descriptor_suffix transfer_data transfer_group \
         payment_method_details receipt_url",
        json!({
            "id": intent["latest_charge"],
            "amount": intent["amount"],
            "amount_captured": intent["amount_received"],
            "amount_refunded": amount_refunded,
            "billing_details": {"address": null, "email": null, "name": null, "phone": null},
            "captured": true,
            "created": intent["created"],
            "currency": intent["currency"],
            "customer": intent["customer"],
            "disputed": false,
            "fraud_details": {},
            "livemode": intent["livemode"],
            "metadata": intent["metadata"],
            "paid": true,
            "payment_intent": intent["id"],
            "payment_method": intent["payment_method"],
            "refunded": intent["amount_received"] == amount_refunded,
            "refunds": list("/v1/charges/x/refunds"),
            "status": "succeeded",
        }),
    )
}

pub(super) fn refund(id: &str, intent: &Value, amount: i64, metadata: &Value, now: i64) -> Value {
    object(
        "refund",
        "balance_transaction reason receipt_number source_transfer_reversal transfer_reversal",
        json!({
            "id": id,
            "amount": amount,
            "charge": intent["latest_charge"],
            "created": now,
            "currency": intent["currency"],
            "metadata": metadata,
            "payment_intent": intent["id"],
            "status": "succeeded",
        }),
    )
}

pub(super) fn dispute(id: &str, intent: &Value, amount: i64, status: &str, now: i64) -> Value {
    object(
        "dispute",
        "",
        json!({
            "id": id,
            "amount": amount,
            "balance_transactions": [],
            "charge": intent["latest_charge"],
            "created": now,
            "currency": intent["currency"],
            "evidence": {},
            "evidence_details": {
                "due_by": now + 7 * 86_400, "has_evidence": false, "past_due": false, "submission_count": 0,
            },
            "is_charge_refundable": status.starts_with("warning"),
            "livemode": intent["livemode"],
            "metadata": {},
            "payment_intent": intent["id"],
            "reason": "fraudulent",
            "status": status,
        }),
    )
}

pub(super) fn account(id: &str, now: i64) -> Value {
    object(
        "account",
        "business_type",
        json!({
            "id": id,
            "business_profile": {},
            "capabilities": {"transfers": "inactive"},
            "charges_enabled": false,
            "controller": {"type": "application"},
            "country": "US",
            "created": now,
            "default_currency": "usd",
            "details_submitted": false,
            "email": null,
            "external_accounts": list(&format!("/v1/accounts/{id}/external_accounts")),
            "future_requirements": {},
            "metadata": {},
            "payouts_enabled": false,
            "requirements": {"disabled_reason": "requirements.past_due"},
            "settings": {},
            "tos_acceptance": {"date": null, "ip": null, "user_agent": null},
            "type": "express",
        }),
    )
}

pub(super) fn account_link(account: &str, now: i64) -> Value {
    let url = format!("https://connect.stripe.com/setup/e/{account}/1");
    object(
        "account_link",
        "",
        json!({"created": now, "expires_at": now + 300, "url": url}),
    )
}

pub(super) fn transfer(
    id: &str,
    form: &BTreeMap<String, String>,
    amount: i64,
    now: i64,
    live: bool,
) -> Value {
    object(
        "transfer",
        "description source_transaction transfer_group",
        json!({
            "id": id,
            "amount": amount,
            "amount_reversed": 0,
            "balance_transaction": format!("txn_{id}"),
            "created": now,
            "currency": form.get("currency"),
            "destination": form.get("destination"),
            "destination_payment": format!("py_{id}"),
            "livemode": live,
            "metadata": super::api::metadata(form, "metadata"),
            "reversals": list(&format!("/v1/transfers/{id}/reversals")),
            "reversed": false,
            "source_type": "card",
        }),
    )
}

pub(super) fn event(id: &str, kind: &str, object: &Value, now: i64, live: bool) -> Value {
    json!({
        "id": id,
        "object": "event",
        "api_version": "2024-10-28.acacia",
        "created": now,
        "data": {"object": object},
        "livemode": live,
        "pending_webhooks": 1,
        "request": {"id": null, "idempotency_key": null},
        "type": kind,
    })
}
