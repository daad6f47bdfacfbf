//! The stand-in itself: its shapes, and how it delivers.

use serde_json::{Value, json};
use turnpike_upstream::processor::Processor;

use super::stripe_shapes::{example, published, request_schema};
use super::stripe_stand_in::raw;
use super::{NOW, new_charge, new_checkout, paid, processor, stand_in};

/// Every top-level field of Stripe's example is there, and of its type.
fn assert_shaped(kind: &str, object: &Value) {
    let whole = published("fixtures.json").map(|fixtures| fixtures[kind].clone());
    for example in std::iter::once(example(kind)).chain(whole) {
        let same_type = |a: &Value, b: &Value| {
            std::mem::discriminant(a) == std::mem::discriminant(b) || a.is_null() || b.is_null()
        };
        for (name, example) in example.as_object().unwrap() {
            let field = object.get(name).unwrap_or_else(|| panic!("{kind} lacks {name}"));
            assert!(same_type(field, example), "{kind}.{name}: {field}");
        }
        assert_eq!(object["object"], example["object"]);
    }
}

/// Both are the same but for the texts and numbers in them.
fn assert_same_shape(ours: &Value, theirs: &Value, path: &str) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            assert_eq!(
                ours.keys().collect::<Vec<_>>(),
                theirs.keys().collect::<Vec<_>>(),
                "{path}"
            );
            for (name, value) in ours {
                assert_same_shape(value, &theirs[name], &format!("{path}.{name}"));
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len(), "{path}");
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert_same_shape(ours, theirs, path);
            }
        }
        (ours, theirs) => assert_eq!(
            std::mem::discriminant(ours),
            std::mem::discriminant(theirs),
            "{path}"
        ),
    }
}

#[test]
fn the_examples_have_the_shape_of_stripes_own() {
    let Some(fixtures) = published("fixtures.json") else {
        return;
    };
    for (kind, theirs) in fixtures.as_object().unwrap() {
        assert_same_shape(&example(kind), theirs, kind);
    }
}

/// Everything that `ours` knows, `theirs` knows the same way.
fn assert_part_of(ours: &Value, theirs: &Value, path: &str) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (name, value) in ours {
                let whole = theirs.get(name).unwrap_or_else(|| panic!("{path} has no {name}"));
                assert_part_of(value, whole, &format!("{path}.{name}"));
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            for value in ours {
                let is_known = theirs
                    .iter()
                    .any(|other| other == value || (value.is_object() && other["type"] == value["type"]));
                assert!(is_known, "{path}: {value}");
            }
        }
        (ours, theirs) => assert_eq!(ours, theirs, "{path}"),
    }
}

#[test]
fn the_request_schemas_are_parts_of_stripes_own() {
    let Some(requests) = published("requests.json") else {
        return;
    };
    for (operation, path) in requests["paths"].as_object().unwrap() {
        let body = &path["post"]["requestBody"]["content"]["application/x-www-form-urlencoded"];
        let ours = request_schema(operation);
        if ours.is_object() {
            assert_part_of(&ours, &body["schema"], operation);
        }
    }
}

#[tokio::test]
async fn the_stand_in_answers_in_stripes_shapes() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    let session = processor.create_checkout(&new_checkout()).await.unwrap().id;
    assert_shaped("checkout.session", &stripe.object(&session));
    let payment = stripe.pay(&session);
    let charged = processor.charge(&new_charge("pm_card_visa")).await.unwrap();
    let refund = stripe.refund(&payment, 5);
    let dispute = stripe.open_dispute(&payment, 5);
    assert_shaped("checkout.session", &stripe.object(&session));
    assert_shaped("payment_intent", &stripe.object(&payment));
    assert_shaped("payment_intent", &stripe.object(&charged.payment.unwrap()));
    assert_shaped("refund", &stripe.object(&refund));
    assert_shaped("dispute", &stripe.object(&dispute));
    let account = processor.create_account("acct").await.unwrap().id;
    stripe.finish_onboarding(&account);
    assert_shaped("account", &stripe.object(&account));
    let transfer = processor.transfer("po", &account, 900).await.unwrap().transfer;
    assert_shaped("transfer", &stripe.object(&transfer));
    assert_shaped("charge", &stripe.event("charge.refunded")["data"]["object"]);
    for event in stripe.events() {
        assert_shaped("event", &event);
        let object = &event["data"]["object"];
        assert_shaped(object["object"].as_str().unwrap(), object);
    }
}

#[tokio::test]
async fn the_stand_in_delivers_late_twice_and_until_it_is_told_that_it_arrived() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    let (_, payment) = paid(&stripe, &processor).await;
    stripe.refund(&payment, 5);
    stripe.drop_events("payment_intent.succeeded");
    stripe.drop_events("charge.refunded");
    stripe.delay("checkout.session.completed");
    stripe.duplicate("refund.created");
    let kinds = || -> Vec<Value> {
        stripe
            .events()
            .iter()
            .map(|event| event["type"].clone())
            .collect()
    };
    assert_eq!(kinds(), [json!("refund.created"), json!("refund.created")]);
    stripe.release();
    assert_eq!(kinds().last(), Some(&json!("checkout.session.completed")));
    // Any server will do for a receiver: this one refuses, and the events go on waiting.
    let endpoint = format!("{}/webhook", stripe.url());
    let told = stripe.deliver_all(&endpoint).await;
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|(_, status)| *status == Some(401)), "{told:?}");
    assert_eq!(stripe.events().len(), 3);
    let event = stripe.event("refund.created");
    assert_ne!(stripe.same_again(&event)["id"], event["id"]);
    assert_eq!(stripe.deliver(&endpoint, &event).await, Some(401));
    assert_eq!(stripe.forge(&endpoint, &event).await, Some(401));
    let sent = stripe.requests();
    let received = sent.last().unwrap();
    assert_eq!(received.body.as_bytes(), raw(&event));
    let signature = &received.headers["stripe-signature"];
    assert!(
        processor
            .read_event(received.body.as_bytes(), signature, NOW)
            .is_err()
    );
    let signature = &sent[sent.len() - 2].headers["stripe-signature"];
    assert!(
        processor
            .read_event(received.body.as_bytes(), signature, NOW)
            .is_ok()
    );
    assert_eq!(stripe.deliver("http://127.0.0.1:1/webhook", &event).await, None);
}
