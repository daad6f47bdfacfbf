//! Charges of saved methods, refunds, disputes and payouts.

use turnpike_upstream::processor::{
    DisputeState, NewRefund, PaymentState, Processor, ProcessorError, RefundState, Report,
};

use super::stripe_stand_in::Fault;
use super::{NOW, new_charge, only_payment, paid, processor, refused_code, reports, stand_in};

fn new_refund(attempt: &str, payment: &str, amount_cents: i64) -> NewRefund {
    NewRefund {
        attempt: attempt.to_owned(),
        payment: payment.to_owned(),
        amount_cents,
    }
}

#[tokio::test]
async fn a_saved_method_is_charged_once_and_told_by_its_own_event() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    stripe.fail_next(2, Fault::DoneThenHang);
    let report = processor.charge(&new_charge("pm_card_visa")).await.unwrap();
    assert_eq!(stripe.made("payment_intent"), 1);
    assert_eq!(report.state, PaymentState::Paid);
    assert_eq!(report.reference.as_deref(), Some("cs_reload"));
    assert_eq!((report.amount_cents, report.currency.as_str()), (2000, "usd"));
    assert_eq!(report.method.as_deref(), Some("pm_card_visa"));
    assert_eq!(only_payment(&stripe), report);
}

#[tokio::test]
async fn a_declined_charge_is_a_failed_payment() {
    for (method, code) in [
        ("pm_card_chargeDeclined", "card_declined"),
        ("pm_card_authenticationRequired", "authentication_required"),
    ] {
        let stripe = stand_in().await;
        let processor = processor(&stripe);
        let report = processor.charge(&new_charge(method)).await.unwrap();
        assert_eq!(report.state, PaymentState::Failed);
        assert_eq!(report.failure.as_ref().unwrap().0, code);
        assert_eq!(only_payment(&stripe), report);
        let again = processor.charge(&new_charge(method)).await.unwrap();
        assert_eq!(again, report);
        assert_eq!(stripe.made("payment_intent"), 1);
        let found = processor.find_payment(report.payment.as_ref().unwrap()).await;
        assert_eq!(found, Ok(Some(report)));
    }
}

#[tokio::test]
async fn a_slow_charge_is_told_when_it_ends() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    let report = processor.charge(&new_charge("pm_card_processing")).await.unwrap();
    assert_eq!(report.state, PaymentState::Processing);
    stripe.settle_charge(&report.payment.unwrap(), true);
    assert_eq!(only_payment(&stripe).state, PaymentState::Paid);
}

// Fault matrix 114
#[tokio::test]
async fn refunds_are_made_once_each_and_told_one_by_one() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    let (_, payment) = paid(&stripe, &processor).await;
    reports(&stripe);
    stripe.fail_next(1, Fault::DoneThenCut);
    let ours = processor
        .refund(&new_refund("rf_1", &payment, 400))
        .await
        .unwrap();
    assert_eq!(stripe.made("refund"), 1);
    assert_eq!(ours.state, RefundState::Succeeded);
    assert_eq!(ours.reference.as_deref(), Some("rf_1"));
    assert_eq!(
        (ours.payment.as_str(), ours.amount_cents),
        (payment.as_str(), 400)
    );
    let theirs = stripe.refund(&payment, 600);
    let told = reports(&stripe);
    let [Report::Refund(first), Report::Refund(second)] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(first, &ours);
    assert_eq!((&second.refund, &second.reference), (&theirs, &None));
    let too_much = processor.refund(&new_refund("rf_2", &payment, 51)).await;
    assert!(
        matches!(too_much, Err(ProcessorError::Refused { .. })),
        "{too_much:?}"
    );

    stripe.fail_refund(&theirs);
    let found = processor.find_refund(&theirs).await.unwrap().unwrap();
    assert_eq!(found.state, RefundState::Failed);
    assert_eq!(found.failure.as_deref(), Some("expired_or_canceled_card"));
    assert_eq!(
        reports(&stripe),
        [Report::Refund(found.clone()), Report::Refund(found)]
    );
}

#[tokio::test]
async fn a_pending_refund_is_told_when_it_arrives() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    let (_, payment) = paid(&stripe, &processor).await;
    stripe.set_pending_refunds(true);
    let pending = processor
        .refund(&new_refund("rf_1", &payment, 400))
        .await
        .unwrap();
    assert_eq!(pending.state, RefundState::Pending);
    stripe.settle_refund(&pending.refund);
    let found = processor.find_refund(&pending.refund).await.unwrap().unwrap();
    assert_eq!(found.state, RefundState::Succeeded);
}

// Fault matrix 116
#[tokio::test]
async fn disputes_are_told_from_warning_to_end() {
    for (warned, won, states) in [
        (false, true, vec![DisputeState::Open, DisputeState::Won]),
        (false, false, vec![DisputeState::Open, DisputeState::Lost]),
        (true, true, vec![DisputeState::Warning, DisputeState::Won]),
    ] {
        let stripe = stand_in().await;
        let processor = processor(&stripe);
        let (_, payment) = paid(&stripe, &processor).await;
        reports(&stripe);
        let dispute = if warned {
            stripe.warn(&payment, 1050)
        } else {
            stripe.open_dispute(&payment, 1050)
        };
        stripe.close_dispute(&dispute, won);
        let mut told = Vec::new();
        for report in reports(&stripe) {
            let Report::Dispute(report) = report else {
                panic!("{report:?}");
            };
            assert_eq!((&report.dispute, &report.payment), (&dispute, &payment));
            assert_eq!(report.due_by, Some(NOW + 7 * 86_400));
            told.push(report.state);
        }
        told.dedup();
        assert_eq!(told, states);
        let found = processor.find_dispute(&dispute).await.unwrap().unwrap();
        assert_eq!(Some(&found.state), states.last());
    }
}

#[tokio::test]
async fn an_account_is_made_onboarded_and_paid_once() {
    let stripe = stand_in().await;
    let processor = processor(&stripe);
    stripe.fail_next(1, Fault::DoneThenHang);
    let account = processor.create_account("acct_attempt").await.unwrap();
    assert_eq!(stripe.made("account"), 1);
    assert!(!account.payouts_enabled && !account.transfers_enabled);
    assert_eq!(account.disabled_reason.as_deref(), Some("requirements.past_due"));
    let link = processor
        .create_account_link(&account.id, "https://a.example/again", "https://a.example/done")
        .await
        .unwrap();
    assert_eq!(link.expires_at, Some(NOW + 300));
    assert!(link.url.starts_with("https://"));
    let early = processor.transfer("po_0", &account.id, 900).await;
    assert_eq!(refused_code(early), "insufficient_capabilities_for_transfer");

    stripe.finish_onboarding(&account.id);
    let account = processor.find_account(&account.id).await.unwrap().unwrap();
    assert!(account.details_submitted && account.payouts_enabled && account.transfers_enabled);
    stripe.set_balance(1000);
    stripe.fail_next(1, Fault::DoneThenCut);
    let sent = processor.transfer("po_1", &account.id, 900).await.unwrap();
    assert_eq!((sent.amount_cents, sent.currency.as_str()), (900, "usd"));
    assert_eq!(sent.account, account.id);
    assert_eq!(stripe.made("transfer"), 1);
    let more = processor.transfer("po_2", &account.id, 900).await;
    assert_eq!(refused_code(more), "balance_insufficient");
}
