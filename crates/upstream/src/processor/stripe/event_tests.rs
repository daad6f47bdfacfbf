//! Stripe's events: each published object, and those that are malformed.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::processor::stripe::shapes::example as fixture;
use crate::processor::{DisputeState, PaymentReport, RefundState};

/// `object` of the examples with some fields set.
fn with(object: &str, fields: &Value) -> Value {
    let mut value = fixture(object);
    for (name, field) in fields.as_object().unwrap() {
        value[name] = field.clone();
    }
    value
}

fn read_object(kind: &str, object: &Value) -> Result<Report, EventError> {
    let mut event = fixture("event");
    event["type"] = kind.into();
    event["data"]["object"] = object.clone();
    read(event.to_string().as_bytes()).map(|event| event.report)
}

fn payment(kind: &str, object: &Value) -> PaymentReport {
    match read_object(kind, object) {
        Ok(Report::Payment(report)) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn stripes_own_event_is_read_and_concerns_nobody() {
    let event = read(fixture("event").to_string().as_bytes()).unwrap();
    assert_eq!(event.id, "evt_example_12");
    assert_eq!(event.kind, "payment_intent.created");
    assert!(!event.livemode);
    assert_eq!(event.report, Report::Nothing);
}

#[test]
fn stripes_own_objects_are_read_as_they_are() {
    let session = payment("checkout.session.expired", &fixture("checkout.session"));
    assert_eq!(session.state, PaymentState::Expired);
    assert_eq!((session.reference, session.amount_cents), (None, 0));
    let Ok(Report::Refund(refund)) = read_object("refund.created", &fixture("refund")) else {
        panic!("no refund");
    };
    assert_eq!(refund.refund, "re_example_14");
    assert_eq!(refund.payment, "ch_example_3");
    assert_eq!((refund.amount_cents, refund.state), (100, RefundState::Succeeded));
    let Ok(Report::Dispute(dispute)) = read_object("charge.dispute.created", &fixture("dispute")) else {
        panic!("no dispute");
    };
    assert_eq!(
        (dispute.state, dispute.due_by, dispute.reason.as_str()),
        (DisputeState::Warning, Some(1_651_449_599), "general")
    );
    let intent = fixture("payment_intent");
    assert_eq!(
        read_object("payment_intent.succeeded", &intent),
        Ok(Report::Nothing)
    );
    assert_eq!(
        read_object("charge.refunded", &fixture("charge")),
        Ok(Report::Nothing)
    );
}

// Fault matrix 109
#[test]
fn a_completed_session_is_paid_only_when_it_says_so() {
    for (kind, payment_status, state) in [
        ("checkout.session.completed", json!("paid"), PaymentState::Paid),
        (
            "checkout.session.completed",
            json!("no_payment_required"),
            PaymentState::Paid,
        ),
        (
            "checkout.session.completed",
            json!("unpaid"),
            PaymentState::Processing,
        ),
        (
            "checkout.session.completed",
            Value::Null,
            PaymentState::Processing,
        ),
        (
            "checkout.session.async_payment_succeeded",
            json!("paid"),
            PaymentState::Paid,
        ),
        (
            "checkout.session.async_payment_failed",
            json!("unpaid"),
            PaymentState::Failed,
        ),
        ("checkout.session.expired", json!("unpaid"), PaymentState::Expired),
    ] {
        let object = with("checkout.session", &json!({"payment_status": payment_status}));
        assert_eq!(payment(kind, &object).state, state, "{kind} {payment_status}");
    }
}

#[test]
fn a_session_is_read_whole() {
    let object = with(
        "checkout.session",
        &json!({
            "id": "cs_test_1", "client_reference_id": "cs_ours", "amount_total": 1234, "currency": "USD",
            "customer": {"id": "cus_1"}, "payment_status": "paid", "metadata": {"turnpike_session": "other"},
            "payment_intent": {
                "id": "pi_1", "setup_future_usage": "off_session", "payment_method": "pm_1",
                "last_payment_error": {"code": "card_declined"},
            },
        }),
    );
    assert_eq!(
        payment("checkout.session.completed", &object),
        PaymentReport {
            session: Some("cs_test_1".to_owned()),
            reference: Some("cs_ours".to_owned()),
            state: PaymentState::Paid,
            payment: Some("pi_1".to_owned()),
            amount_cents: 1234,
            currency: "usd".to_owned(),
            customer: Some("cus_1".to_owned()),
            method: Some("pm_1".to_owned()),
            failure: None,
        }
    );
}

#[test]
fn a_session_is_found_by_its_metadata_as_well_and_only_payments_count() {
    let object = with(
        "checkout.session",
        &json!({"metadata": {"turnpike_session": "cs_m"}}),
    );
    let report = payment("checkout.session.completed", &object);
    assert_eq!(report.reference.as_deref(), Some("cs_m"));
    let setup = with("checkout.session", &json!({"mode": "setup"}));
    assert_eq!(
        read_object("checkout.session.completed", &setup),
        Ok(Report::Nothing)
    );
}

#[test]
fn an_intent_is_a_report_only_when_it_was_charged_without_a_page() {
    let ours = json!({"turnpike_session": "cs_1", "turnpike_offsession": "1"});
    let page = json!({"turnpike_session": "cs_1"});
    let foreign = json!({"turnpike_offsession": "1"});
    for metadata in [page, foreign] {
        let object = with("payment_intent", &json!({"metadata": metadata}));
        for kind in ["payment_intent.succeeded", "payment_intent.payment_failed"] {
            assert_eq!(read_object(kind, &object), Ok(Report::Nothing));
        }
    }
    let object = with(
        "payment_intent",
        &json!({
            "metadata": ours, "amount_received": 1000, "payment_method": "pm_1",
            "last_payment_error": {"type": "card_error", "code": "card_declined", "message": "No."},
        }),
    );
    let paid = payment("payment_intent.succeeded", &object);
    assert_eq!((paid.state, paid.amount_cents), (PaymentState::Paid, 1000));
    assert_eq!(paid.failure, None);
    assert_eq!(paid.method.as_deref(), Some("pm_1"));
    let failed = payment("payment_intent.payment_failed", &object);
    assert_eq!((failed.state, failed.amount_cents), (PaymentState::Failed, 1099));
    assert_eq!(
        failed.failure,
        Some(("card_declined".to_owned(), "No.".to_owned()))
    );
}

#[test]
fn refunds_and_disputes_are_read_in_every_state() {
    for (status, state) in [
        ("pending", RefundState::Pending),
        ("requires_action", RefundState::Pending),
        ("succeeded", RefundState::Succeeded),
        ("failed", RefundState::Failed),
        ("canceled", RefundState::Canceled),
    ] {
        let object = with(
            "refund",
            &json!({"status": status, "payment_intent": "pi_1", "metadata": {"turnpike_refund": "rf_1"}}),
        );
        for kind in [
            "refund.created",
            "refund.updated",
            "refund.failed",
            "charge.refund.updated",
        ] {
            let Ok(Report::Refund(refund)) = read_object(kind, &object) else {
                panic!("{kind} is no refund");
            };
            assert_eq!((refund.state, refund.payment.as_str()), (state, "pi_1"));
            assert_eq!(refund.reference.as_deref(), Some("rf_1"));
        }
    }
    for (status, state) in [
        ("warning_needs_response", DisputeState::Warning),
        ("warning_under_review", DisputeState::Warning),
        ("warning_closed", DisputeState::Won),
        ("needs_response", DisputeState::Open),
        ("under_review", DisputeState::Open),
        ("charge_refunded", DisputeState::Won),
        ("won", DisputeState::Won),
        ("lost", DisputeState::Lost),
    ] {
        let object = with("dispute", &json!({"status": status}));
        for kind in [
            "created",
            "updated",
            "closed",
            "funds_withdrawn",
            "funds_reinstated",
        ] {
            let Ok(Report::Dispute(dispute)) = read_object(&format!("charge.dispute.{kind}"), &object) else {
                panic!("{kind} is no dispute");
            };
            assert_eq!(dispute.state, state, "{status}");
        }
    }
}

// Fault matrix 113
#[test]
fn what_happened_on_a_connected_account_is_nothing() {
    let mut event = fixture("event");
    event["type"] = "checkout.session.completed".into();
    event["data"]["object"] = with("checkout.session", &json!({"payment_status": "paid"}));
    event["account"] = "acct_1".into();
    let read = read(event.to_string().as_bytes()).unwrap();
    assert_eq!(read.report, Report::Nothing);
}

#[test]
fn a_wrong_type_and_an_unknown_state_are_malformed() {
    for (kind, object, field, value) in [
        (
            "checkout.session.completed",
            "checkout.session",
            "amount_total",
            json!("1"),
        ),
        (
            "checkout.session.completed",
            "checkout.session",
            "amount_total",
            json!(1.5),
        ),
        (
            "checkout.session.completed",
            "checkout.session",
            "client_reference_id",
            json!(7),
        ),
        (
            "checkout.session.completed",
            "checkout.session",
            "payment_status",
            json!("perhaps"),
        ),
        (
            "checkout.session.completed",
            "checkout.session",
            "metadata",
            json!([]),
        ),
        (
            "checkout.session.completed",
            "checkout.session",
            "id",
            Value::Null,
        ),
        (
            "checkout.session.completed",
            "checkout.session",
            "payment_intent",
            json!(1),
        ),
        ("refund.updated", "refund", "status", json!("unheard_of")),
        ("refund.updated", "refund", "amount", json!(true)),
        ("charge.dispute.updated", "dispute", "status", json!("unheard_of")),
        ("charge.dispute.updated", "dispute", "status", Value::Null),
        ("charge.dispute.updated", "dispute", "evidence_details", json!(3)),
    ] {
        let object = with(object, &json!({field: value}));
        let read = read_object(kind, &object);
        assert!(matches!(read, Err(EventError::Malformed(_))), "{field}: {read:?}");
    }
    for raw in [
        "",
        "nonsense",
        "[]",
        "{}",
        "null",
        r#"{"id":"e","type":"x"}"#,
        r#"{"id":"e","type":1,"livemode":true}"#,
        r#"{"id":"e","type":"refund.created","livemode":true}"#,
        r#"{"id":"e","type":"refund.created","livemode":true,"data":{"object":[]}}"#,
    ] {
        assert!(
            matches!(read(raw.as_bytes()), Err(EventError::Malformed(_))),
            "{raw}"
        );
    }
    let deep = "[".repeat(100_000);
    assert!(read(deep.as_bytes()).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z_]{1,12}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    // A mutated object is read or refused, and never panics.
    #[test]
    fn no_object_makes_the_reader_panic(
        (object, kind) in prop::sample::select(vec![
            ("checkout.session", "checkout.session.completed"),
            ("payment_intent", "payment_intent.succeeded"),
            ("refund", "refund.created"),
            ("dispute", "charge.dispute.created"),
        ]),
        field in any::<prop::sample::Index>(),
        value in any_json(),
    ) {
        let mut mutated = fixture(object);
        let names: Vec<String> = mutated.as_object().unwrap().keys().cloned().collect();
        mutated[field.get(&names)] = value;
        let _outcome = read_object(kind, &mutated);
    }
}

#[test]
fn an_account_tells_of_itself_alone_and_a_transfer_of_what_came_back() {
    let account = json!({
        "id": "acct_1", "object": "account", "details_submitted": true, "payouts_enabled": true,
        "capabilities": {"transfers": "active"}, "requirements": {"disabled_reason": null},
    });
    let mut told = json!({
        "id": "evt_1", "object": "event", "type": "account.updated", "livemode": false, "account": "acct_1",
        "data": {"object": account},
    });
    let report = |event: &Value| read(event.to_string().as_bytes()).unwrap().report;
    assert!(matches!(report(&told), Report::Account(account) if account.is_payable()));
    told["account"] = "acct_2".into();
    assert_eq!(report(&told), Report::Nothing);
    let back = json!({
        "id": "evt_2", "object": "event", "type": "transfer.reversed", "livemode": false,
        "data": {"object": {"id": "tr_1", "object": "transfer", "amount": 900, "currency": "usd",
            "amount_reversed": 400, "reversed": false, "metadata": {"turnpike_payout": "p1"}}},
    });
    let Report::Reversal(reversal) = report(&back) else {
        panic!("{back}")
    };
    assert!(!reversal.is_whole());
    assert_eq!(
        (
            reversal.transfer.as_str(),
            reversal.payout.as_deref(),
            reversal.reversed_cents
        ),
        ("tr_1", Some("p1"), 400)
    );
}
