//! Our requests as forms, held against Stripe's documented schemas.

use serde_json::{Map, Value};

use super::*;
use crate::processor::stripe::shapes::{published, request_schema};

/// What Stripe documents for an operation: our part of it, and the whole where it lies beside the repository.
fn schemas(operation: &str) -> Vec<Value> {
    let whole = published("requests.json").map(|requests| {
        let post = &requests["paths"][operation]["post"];
        post["requestBody"]["content"]["application/x-www-form-urlencoded"]["schema"].clone()
    });
    std::iter::once(request_schema(operation)).chain(whole).collect()
}

/// A form as nested JSON: `a[0][b]=1` becomes `{"a": [{"b": 1}]}`. Digits become numbers where the schema
/// wants them, which is all that a form can say of types.
fn nested(form: &str) -> Value {
    let mut root = Value::Object(Map::new());
    for (name, value) in form_urlencoded::parse(form.as_bytes()) {
        let mut at = &mut root;
        for part in name.replace(']', "").split('[') {
            at = if let Ok(index) = part.parse::<usize>() {
                if !at.is_array() {
                    *at = Value::Array(Vec::new());
                }
                let items = at.as_array_mut().unwrap();
                assert!(index <= items.len(), "lists have no holes");
                if index == items.len() {
                    items.push(Value::Null);
                }
                &mut items[index]
            } else {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut().unwrap().entry(part).or_insert(Value::Null)
            };
        }
        assert!(at.is_null(), "{name} is sent once");
        *at = match (value.as_ref(), value.parse::<i64>()) {
            ("true", _) => Value::Bool(true),
            // Metadata is text, whatever it looks like.
            (_, Ok(number)) if !name.contains("metadata") => number.into(),
            _ => value.into_owned().into(),
        };
    }
    root
}

fn assert_valid(operation: &str, form: Form) {
    let request = nested(&form.finish());
    for schema in schemas(operation) {
        assert_eq!(schema["additionalProperties"], false, "{operation} is listed");
        let validator = jsonschema::validator_for(&schema).unwrap();
        let faults: Vec<String> = validator
            .iter_errors(&request)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{operation}: {faults:#?}\n{request:#}");
    }
}

fn new_checkout() -> NewCheckout {
    NewCheckout {
        attempt: "att_1".to_owned(),
        reference: "cs_1".to_owned(),
        amount_cents: 1234,
        description: "Credits & more = 50% ünder [x]".to_owned(),
        success_url: "https://a.example/ok?s={CHECKOUT_SESSION_ID}&x=1".to_owned(),
        cancel_url: "https://a.example/no".to_owned(),
        expires_at: 1_800_000_000,
        customer: None,
        save_method: false,
    }
}

fn new_charge() -> NewCharge {
    NewCharge {
        attempt: "att_2".to_owned(),
        reference: "cs_2".to_owned(),
        amount_cents: 500,
        description: "Credits".to_owned(),
        customer: "cus_1".to_owned(),
        method: "pm_1".to_owned(),
    }
}

#[test]
fn every_kind_of_checkout_is_as_stripe_documents() {
    for customer in [None, Some("cus_1".to_owned())] {
        for save_method in [false, true] {
            let new = NewCheckout {
                customer: customer.clone(),
                save_method,
                ..new_checkout()
            };
            assert_valid("/v1/checkout/sessions", checkout(&new));
        }
    }
}

#[test]
fn refunds_and_payouts_are_as_stripe_documents() {
    let new = NewRefund {
        attempt: "12".to_owned(),
        payment: "pi_1".to_owned(),
        amount_cents: 1,
    };
    assert_valid("/v1/refunds", refund(&new));
    assert_valid("/v1/accounts", account());
    let link = account_link("acct_1", "https://a.example/again", "https://a.example/done");
    assert_valid("/v1/account_links", link);
    assert_valid("/v1/transfers", transfer("po_1", "acct_1", 900));
    assert_valid("/v1/checkout/sessions/{session}/expire", Form::default());
}

#[test]
fn a_schema_that_is_not_kept_is_noticed() {
    let schema = request_schema("/v1/refunds");
    let wrong = nested(
        &Form::default()
            .with("amount", "many")
            .with("surprise", "1")
            .finish(),
    );
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert_eq!(validator.iter_errors(&wrong).count(), 2);
}

#[test]
fn a_checkout_says_twice_whose_it_is_and_keeps_the_customers_text() {
    let sent = nested(&checkout(&new_checkout()).finish());
    assert_eq!(sent["client_reference_id"], "cs_1");
    assert_eq!(sent["metadata"]["turnpike_session"], "cs_1");
    assert_eq!(
        sent["payment_intent_data"]["metadata"]["turnpike_session"],
        "cs_1"
    );
    let item = &sent["line_items"][0]["price_data"];
    assert_eq!(item["unit_amount"], 1234);
    assert_eq!(item["product_data"]["name"], "Credits & more = 50% ünder [x]");
    assert_eq!(
        sent["success_url"],
        "https://a.example/ok?s={CHECKOUT_SESSION_ID}&x=1"
    );
}

#[test]
fn a_method_is_saved_with_the_known_customer_or_a_new_one() {
    let sent = |customer: Option<&str>, save_method| {
        let new = NewCheckout {
            customer: customer.map(str::to_owned),
            save_method,
            ..new_checkout()
        };
        let sent = nested(&checkout(&new).finish());
        (
            sent["customer"].clone(),
            sent["customer_creation"].clone(),
            sent["payment_intent_data"]["setup_future_usage"].clone(),
        )
    };
    let null = Value::Null;
    assert_eq!(sent(None, false), (null.clone(), null.clone(), null.clone()));
    assert_eq!(
        sent(None, true),
        (null.clone(), "always".into(), "off_session".into())
    );
    assert_eq!(
        sent(Some("cus_1"), true),
        ("cus_1".into(), null.clone(), "off_session".into())
    );
    assert_eq!(sent(Some("cus_1"), false), ("cus_1".into(), null.clone(), null));
}

#[test]
fn a_charge_is_marked_as_made_without_a_page() {
    assert_eq!(
        charge(&new_charge()).finish(),
        "amount=500&currency=usd&customer=cus_1&payment_method=pm_1&payment_method_types%5B0%5D=card\
         &off_session=true&confirm=true&description=Credits&metadata%5Bturnpike_session%5D=cs_2&metadata%5Bturnpike_offsession%5D=1"
    );
}

#[test]
fn only_ids_become_paths() {
    assert_eq!(
        object_path("refunds", "re_1-a", "").unwrap(),
        "/v1/refunds/re_1-a"
    );
    for id in ["", "..", "a/b", "a?b", "a%2fb", "ä", "a b", &"a".repeat(256)] {
        assert!(object_path("refunds", id, "").is_err(), "{id}");
    }
}
