//! The Stripe adapter against a stand-in that keeps state, loses answers and delivers events.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside the test functions that are exempt"
)]

#[path = "processor/money.rs"]
mod money;
#[path = "processor/stand_in.rs"]
mod stand_in;
mod stripe_shapes;
mod stripe_stand_in;

use std::time::Duration;

use futures_util::future::join_all;
use stripe_stand_in::{Fault, StripeStandIn, sign};
use turnpike_upstream::Secret;
use turnpike_upstream::processor::{
    EventError, NewCharge, NewCheckout, PaymentReport, PaymentState, Processor, ProcessorError, Report,
    STRIPE_VERSION, SignatureError, StripeProcessor, StripeSettings,
};

const NOW: i64 = 1_800_000_000;
const WHSEC: &str = "whsec_test";

async fn stand_in() -> StripeStandIn {
    let stripe = StripeStandIn::start(WHSEC).await;
    stripe.set_now(NOW);
    stripe
}

fn processor_at(api_base: String) -> StripeProcessor {
    let settings = StripeSettings {
        api_base,
        connect_timeout: Duration::from_millis(500),
        header_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(300),
        total_timeout: Duration::from_millis(900),
        ..StripeSettings::new(Secret::new("sk_test_canary"), vec![Secret::new(WHSEC)])
    };
    StripeProcessor::new(settings).unwrap()
}

fn processor(stripe: &StripeStandIn) -> StripeProcessor {
    processor_at(stripe.url())
}

fn new_checkout() -> NewCheckout {
    NewCheckout {
        attempt: "att_1".to_owned(),
        reference: "cs_ours".to_owned(),
        amount_cents: 1050,
        description: "10.00 USD of credits".to_owned(),
        success_url: "https://a.example/ok?x=1&y=ä".to_owned(),
        cancel_url: "https://a.example/no".to_owned(),
        expires_at: NOW + 3600,
        customer: None,
        save_method: true,
    }
}

fn new_charge(method: &str) -> NewCharge {
    NewCharge {
        attempt: "att_2".to_owned(),
        reference: "cs_reload".to_owned(),
        amount_cents: 2000,
        description: "Credits".to_owned(),
        customer: "cus_1".to_owned(),
        method: method.to_owned(),
    }
}

/// What the waiting events say, nothings left out, and the queue emptied.
fn reports(stripe: &StripeStandIn) -> Vec<Report> {
    let processor = processor(stripe);
    let mut reports = Vec::new();
    for event in stripe.events() {
        let (raw, signature) = stripe.signed(&event);
        let read = processor.read_event(&raw, &signature, NOW).unwrap();
        assert_eq!(read.kind, event["type"]);
        assert_eq!(read.id, event["id"]);
        assert!(!read.livemode);
        if read.report != Report::Nothing {
            reports.push(read.report);
        }
    }
    stripe.reorder(Vec::clear);
    reports
}

fn only_payment(stripe: &StripeStandIn) -> PaymentReport {
    match reports(stripe).as_slice() {
        [Report::Payment(report)] => report.clone(),
        other => panic!("{other:?}"),
    }
}

fn refused_code<T: std::fmt::Debug>(outcome: Result<T, ProcessorError>) -> String {
    match outcome {
        Err(ProcessorError::Refused { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

async fn paid(stripe: &StripeStandIn, processor: &StripeProcessor) -> (String, String) {
    let session = processor.create_checkout(&new_checkout()).await.unwrap().id;
    let payment = stripe.pay(&session);
    (session, payment)
}

#[tokio::test]
async fn a_request_carries_the_key_the_version_and_the_attempt() {
    let stripe = stand_in().await;
    let checkout = processor(&stripe).create_checkout(&new_checkout()).await.unwrap();
    assert!(checkout.url.ends_with(&checkout.id));
    let requests = stripe.requests();
    assert_eq!(requests.len(), 1);
    let headers = &requests[0].headers;
    assert_eq!(headers["authorization"], "Bearer sk_test_canary");
    assert_eq!(headers["stripe-version"], STRIPE_VERSION);
    assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(requests[0].idempotency_key(), Some("att_1"));
    assert_eq!(requests[0].form["success_url"], "https://a.example/ok?x=1&y=ä");
    assert_eq!(stripe.sessions_of("cs_ours"), [checkout.id]);
}

async fn survives(fault: Fault) {
    let stripe = stand_in().await;
    stripe.fail_next(2, fault);
    let processor = processor(&stripe);
    let first = processor.create_checkout(&new_checkout()).await.unwrap();
    let again = processor.create_checkout(&new_checkout()).await.unwrap();
    assert_eq!(first, again, "{fault:?}");
    assert_eq!(stripe.made("checkout.session"), 1, "{fault:?}");
    let requests = stripe.requests();
    assert_eq!(requests.len(), 4, "{fault:?}");
    for request in &requests {
        assert_eq!(request.idempotency_key(), Some("att_1"));
        assert_eq!(request.body, requests[0].body);
    }
}

// Fault matrix 106
#[tokio::test]
async fn one_attempt_makes_one_session_whatever_goes_wrong_on_the_way() {
    let faults = [
        Fault::Status(429),
        Fault::Status(500),
        Fault::Status(503),
        Fault::InUse,
        Fault::Hang,
        Fault::Cut,
        Fault::DoneThenHang,
        Fault::DoneThenCut,
        Fault::DoneThenStatus(500),
        Fault::DoneThenGarbage,
    ];
    join_all(faults.map(survives)).await;
}

async fn gives_up(fault: Fault, perhaps_done: bool) {
    let stripe = stand_in().await;
    stripe.fail_next(4, fault);
    let outcome = processor(&stripe).create_checkout(&new_checkout()).await;
    let unknown = matches!(outcome, Err(ProcessorError::Unknown(_)));
    let unavailable = matches!(outcome, Err(ProcessorError::Unavailable(_)));
    assert_eq!((unknown, unavailable), (perhaps_done, !perhaps_done), "{fault:?}");
    assert_eq!(stripe.requests().len(), 3, "{fault:?}");
}

// Fault matrix 106
#[tokio::test]
async fn three_tries_are_all_and_the_error_says_whether_it_may_have_been_done() {
    let faults = [
        (Fault::Status(429), false),
        // The try that has the key may do it yet.
        (Fault::InUse, true),
        (Fault::Status(500), true),
        (Fault::Hang, true),
        (Fault::DoneThenCut, true),
        (Fault::DoneThenGarbage, true),
    ];
    join_all(faults.map(|(fault, perhaps_done)| gives_up(fault, perhaps_done))).await;
}

#[tokio::test]
async fn a_lost_answer_is_not_forgotten_over_a_later_429() {
    let stripe = stand_in().await;
    stripe.fail_next(1, Fault::DoneThenCut);
    stripe.fail_next(2, Fault::Status(429));
    let outcome = processor(&stripe).create_checkout(&new_checkout()).await;
    assert!(matches!(outcome, Err(ProcessorError::Unknown(_))), "{outcome:?}");
    assert_eq!(stripe.made("checkout.session"), 1);
}

// Fault matrix 106
#[tokio::test]
async fn what_was_never_sent_was_not_done() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    for base in [format!("http://{closed}"), "http://stripe.invalid".to_owned()] {
        let outcome = processor_at(base).create_checkout(&new_checkout()).await;
        assert!(
            matches!(outcome, Err(ProcessorError::Unavailable(_))),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_refusal_is_final_and_not_repeated() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    let small = NewCheckout {
        amount_cents: 49,
        ..new_checkout()
    };
    assert_eq!(
        refused_code(processor.create_checkout(&small).await),
        "amount_too_small"
    );
    assert_eq!(stripe.requests().len(), 1);
    // The attempt is used up: another request under it is noticed.
    let changed = processor.create_checkout(&new_checkout()).await;
    // What became of that attempt is not said by this: it is no refusal.
    assert!(matches!(changed, Err(ProcessorError::Unknown(_))), "{changed:?}");
    assert_eq!(stripe.made("checkout.session"), 0);
    for attempt in ["", "line\nbreak", &"a".repeat(256)] {
        let new = NewCheckout {
            attempt: attempt.to_owned(),
            ..new_checkout()
        };
        assert_eq!(
            refused_code(processor.create_checkout(&new).await),
            "invalid_attempt"
        );
    }
    assert_eq!(stripe.requests().len(), 4);
}

#[tokio::test]
async fn a_wrong_key_is_told_without_the_key() {
    let stripe = stand_in().await;
    let settings = StripeSettings {
        api_base: stripe.url(),
        ..StripeSettings::new(Secret::new("canary"), Vec::new())
    };
    let processor = StripeProcessor::new(settings).unwrap();
    let error = processor.create_checkout(&new_checkout()).await.unwrap_err();
    // About the key, not about the request: done once the key is right again.
    assert!(matches!(error, ProcessorError::Unavailable(_)));
    assert!(!format!("{error} {error:?}").contains("canary"));
}

#[tokio::test]
async fn a_paid_page_is_reported_by_event_and_on_request() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    let session = processor.create_checkout(&new_checkout()).await.unwrap().id;
    let open = processor.find_checkout(&session).await.unwrap().unwrap();
    assert_eq!((open.state, open.payment), (PaymentState::Open, None));

    let payment = stripe.pay(&session);
    let event = only_payment(&stripe);
    let found = processor.find_checkout(&session).await.unwrap().unwrap();
    let expected = PaymentReport {
        session: Some(session),
        reference: Some("cs_ours".to_owned()),
        state: PaymentState::Paid,
        payment: Some(payment.clone()),
        amount_cents: 1050,
        currency: "usd".to_owned(),
        customer: found.customer.clone(),
        // The event names the payment only; who asks also learns the saved method.
        method: None,
        failure: None,
    };
    assert_eq!(event, expected);
    assert!(found.customer.is_some() && found.method.is_some());
    assert_eq!(
        found,
        PaymentReport {
            method: found.method.clone(),
            ..expected
        }
    );
    let by_payment = processor.find_payment(&payment).await.unwrap().unwrap();
    assert_eq!(by_payment.state, PaymentState::Paid);
    assert_eq!(by_payment.method, found.method);
}

// Fault matrix 109
#[tokio::test]
async fn money_that_comes_later_is_paid_only_when_it_came() {
    for succeeds in [true, false] {
        let stripe = stand_in().await;
        let processor = processor(&stripe);
        let session = processor.create_checkout(&new_checkout()).await.unwrap().id;
        stripe.pay_later(&session);
        assert_eq!(only_payment(&stripe).state, PaymentState::Processing);
        let found = processor.find_checkout(&session).await.unwrap().unwrap();
        assert_eq!(found.state, PaymentState::Processing);
        let expected = if succeeds {
            stripe.async_succeed(&session);
            PaymentState::Paid
        } else {
            stripe.async_fail(&session);
            PaymentState::Failed
        };
        assert_eq!(only_payment(&stripe).state, expected);
        let found = processor.find_checkout(&session).await.unwrap().unwrap();
        assert_eq!(found.state, expected);
        assert_eq!(found.failure.is_some(), !succeeds);
    }
}

// Fault matrix 117
#[tokio::test]
async fn a_page_ends_once_and_a_second_end_is_no_error() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    let session = processor.create_checkout(&new_checkout()).await.unwrap().id;
    for _ in 0..2 {
        processor.expire_checkout(&session).await.unwrap();
    }
    assert_eq!(only_payment(&stripe).state, PaymentState::Expired);
    let found = processor.find_checkout(&session).await.unwrap().unwrap();
    assert_eq!(found.state, PaymentState::Expired);
    // Someone was faster.
    stripe.pay(&session);
    assert_eq!(only_payment(&stripe).state, PaymentState::Paid);
    processor.expire_checkout(&session).await.unwrap();
    assert_eq!(
        refused_code(processor.expire_checkout("cs_none").await),
        "resource_missing"
    );
}

#[tokio::test]
async fn what_stripe_does_not_know_is_none_and_no_id_is_no_request() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    assert_eq!(processor.find_checkout("cs_builtin_1-2").await, Ok(None));
    assert_eq!(processor.find_payment("pi_none").await, Ok(None));
    assert_eq!(processor.find_refund("re_none").await, Ok(None));
    assert_eq!(processor.find_dispute("du_none").await, Ok(None));
    let gone = processor.find_account("acct_none").await.unwrap().unwrap();
    assert_eq!(
        (gone.is_payable(), gone.disabled_reason.as_deref()),
        (false, Some("no_such_account"))
    );
    let before = stripe.requests().len();
    assert_eq!(
        refused_code(processor.find_refund("../accounts").await),
        "invalid_id"
    );
    assert_eq!(stripe.requests().len(), before);
}

// Fault matrix 112
#[tokio::test]
async fn tampered_amounts_and_real_money_are_reported_as_they_are() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    assert_eq!(processor.livemode(), Some(false));
    let session = processor.create_checkout(&new_checkout()).await.unwrap().id;
    stripe.tamper(&session, "amount_total", 1);
    stripe.tamper(&session, "currency", "jpy");
    stripe.set_livemode(true);
    stripe.pay(&session);
    let (raw, signature) = stripe.signed(&stripe.event("checkout.session.completed"));
    let event = processor.read_event(&raw, &signature, NOW).unwrap();
    assert!(event.livemode);
    let Report::Payment(report) = event.report else {
        panic!("{:?}", event.report);
    };
    assert_eq!((report.amount_cents, report.currency.as_str()), (1, "jpy"));
}

// Fault matrix 107
#[tokio::test]
async fn only_stripes_own_bytes_are_read() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    paid(&stripe, &processor).await;
    let event = stripe.event("checkout.session.completed");
    let (raw, signature) = stripe.signed(&event);
    let refused = |raw: &[u8], signature: &str, now| match processor.read_event(raw, signature, now) {
        Err(EventError::Signature(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&raw, "", NOW), SignatureError::Missing);
    assert_eq!(refused(&raw, &signature, NOW + 301), SignatureError::Stale);
    let compact = event.to_string();
    assert_eq!(
        refused(compact.as_bytes(), &signature, NOW),
        SignatureError::Mismatch
    );
    let forged = sign("whsec_other", &raw, NOW);
    assert_eq!(refused(&raw, &forged, NOW), SignatureError::Mismatch);
}
