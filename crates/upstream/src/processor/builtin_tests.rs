//! The built-in processor: its pages, callbacks and saved methods.

use super::*;
use crate::processor::{Report, SignatureError};

const NOW: i64 = 1_800_000_000;

fn processor() -> BuiltinProcessor {
    BuiltinProcessor::new("https://pay.example/", Secret::new("builtin-secret"))
}

fn page() -> BuiltinPage {
    BuiltinPage {
        reference: "cs_1".to_owned(),
        amount_cents: 1050,
        customer: None,
        save_method: true,
    }
}

fn charge(method: &str) -> NewCharge {
    NewCharge {
        attempt: "att_1".to_owned(),
        reference: "cs_1".to_owned(),
        amount_cents: 500,
        description: "Credits".to_owned(),
        customer: "cus_1".to_owned(),
        method: method.to_owned(),
    }
}

#[tokio::test]
async fn its_page_is_the_gateways_own() {
    let new = NewCheckout {
        attempt: "att_1".to_owned(),
        reference: "cs_1".to_owned(),
        amount_cents: 1050,
        description: "Credits".to_owned(),
        success_url: "https://a.example/ok".to_owned(),
        cancel_url: "https://a.example/no".to_owned(),
        expires_at: NOW,
        customer: None,
        save_method: true,
    };
    let checkout = processor().create_checkout(&new).await.unwrap();
    assert_eq!(checkout.id, "cs_builtin_cs_1");
    assert_eq!(checkout.url, "https://pay.example/checkout/cs_1");
    assert_eq!(processor().find_checkout(&checkout.id).await, Ok(None));
    assert_eq!(processor().expire_checkout(&checkout.id).await, Ok(()));
}

#[test]
fn every_outcome_of_its_page_comes_back_as_an_event() {
    for (outcome, state, failed) in [
        (BuiltinOutcome::Paid, PaymentState::Paid, false),
        (BuiltinOutcome::Unpaid, PaymentState::Processing, false),
        (BuiltinOutcome::PaidLate, PaymentState::Paid, false),
        (BuiltinOutcome::Declined, PaymentState::Failed, true),
        (BuiltinOutcome::Expired, PaymentState::Expired, false),
    ] {
        let (raw, signature) = processor().page_event("evt_1", &page(), outcome, NOW);
        let event = processor().read_event(&raw, &signature, NOW + 1).unwrap();
        assert_eq!(
            (event.id.as_str(), event.kind.as_str()),
            ("evt_1", outcome.kind())
        );
        assert!(!event.livemode);
        let Report::Payment(report) = event.report else {
            panic!("{:?}", event.report);
        };
        assert_eq!(report.state, state);
        assert_eq!(report.reference.as_deref(), Some("cs_1"));
        assert_eq!(report.session.as_deref(), Some("cs_builtin_cs_1"));
        assert_eq!((report.amount_cents, report.currency.as_str()), (1050, "usd"));
        assert_eq!(report.customer.as_deref(), Some("cus_builtin_cs_1"));
        assert_eq!(report.failure.is_some(), failed);
        let has_payment = outcome != BuiltinOutcome::Expired;
        assert_eq!(report.payment.is_some(), has_payment);
        assert_eq!(report.method.is_some(), has_payment);
    }
}

#[test]
fn only_its_own_secret_speaks_for_it() {
    let other = BuiltinProcessor::new("https://pay.example", Secret::new("other"));
    let (raw, signature) = other.page_event("evt_1", &page(), BuiltinOutcome::Paid, NOW);
    assert_eq!(
        processor().read_event(&raw, &signature, NOW),
        Err(EventError::Signature(SignatureError::Mismatch))
    );
}

#[tokio::test]
async fn its_saved_methods_are_charged_or_declined() {
    let paid = processor().charge(&charge(METHOD_OK)).await.unwrap();
    assert_eq!(paid.state, PaymentState::Paid);
    assert_eq!(paid.payment.as_deref(), Some("pi_builtin_att_1"));
    let declined = processor().charge(&charge(METHOD_DECLINED)).await.unwrap();
    assert_eq!(declined.state, PaymentState::Failed);
    assert_eq!(declined.failure.unwrap().0, "card_declined");
    let unknown = processor().charge(&charge("pm_other")).await;
    assert!(matches!(unknown, Err(ProcessorError::Refused { .. })));
}

#[tokio::test]
async fn its_refunds_succeed() {
    let new = NewRefund {
        attempt: "rf_1".to_owned(),
        payment: "pi_builtin_cs_1".to_owned(),
        amount_cents: 5,
    };
    let report = processor().refund(&new).await.unwrap();
    assert_eq!(report.state, RefundState::Succeeded);
    assert_eq!(report.refund, "re_builtin_rf_1");
    assert_eq!(report.reference.as_deref(), Some("rf_1"));
}

#[tokio::test]
async fn an_account_is_connected_by_its_own_page() {
    let processor = processor();
    let account = processor.create_account("att_1").await.unwrap();
    assert_eq!(processor.create_account("att_1").await.unwrap(), account);
    assert!(!account.is_payable());
    let back = "https://a.example/done?x=1&y=2";
    let link = processor
        .create_account_link(&account.id, "https://a.example/again", back)
        .await
        .unwrap();
    let (page, query) = link.url.split_once("?to=").unwrap();
    assert_eq!(page, format!("https://pay.example/connect/{}", account.id));
    let (to, proof) = query.split_once("&proof=").unwrap();
    assert_eq!(processor.way_back(&account.id, to, proof).as_deref(), Some(back));
    let elsewhere = hex::encode("https://evil.example/");
    assert_eq!(processor.way_back(&account.id, &elsewhere, proof), None);
    assert_eq!(processor.way_back("acct_2", to, proof), None);
    assert_eq!(processor.way_back(&account.id, to, "00"), None);

    let (raw, signature) = processor.account_event("evt_1", &account.id, NOW);
    let event = processor.read_event(&raw, &signature, NOW).unwrap();
    let Report::Account(told) = event.report else {
        panic!("{event:?}")
    };
    assert!(told.is_payable() && told.id == account.id);
    let sent = processor.transfer("po_1", &account.id, 100).await.unwrap();
    assert_eq!(processor.transfer("po_1", &account.id, 100).await.unwrap(), sent);
}
