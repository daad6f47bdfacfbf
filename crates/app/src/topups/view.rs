//! What is shown of top-ups, refunds and automatic top-ups.

use serde_json::{Value, json};
use turnpike_core::ledger::command::AutoTopupChoice;
use turnpike_core::ledger::topup::{AutoTopup, Dispute, Refund, Terms, Topup, TopupState};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::topup::Quote;
use turnpike_store::Tenant;

/// What the ledger keeps of a quote, with the quote as it was shown.
pub(super) fn terms(quote: &Quote, rate: CreditsPerDollar) -> Terms {
    let mut shown = json!({
        "feeMode": quote.fee_mode,
        "creditsUsd": quote.credits_usd,
        "credits": rate.credits(quote.credits_usd),
        "feeUsd": quote.fee,
        "totalUsd": quote.total,
    });
    if let Some(members) = shown.as_object_mut() {
        if let Some(bonus) = &quote.bonus {
            let bonus = json!({
                "bonusUsd": bonus.amount,
                "bonusCredits": rate.credits(bonus.amount),
                "bonusBps": bonus.bps,
            });
            members.insert("bonus".to_owned(), bonus);
        }
        if let Some(tier) = &quote.next_tier {
            let tier = json!({ "minUsd": tier.min, "bonusBps": tier.bonus_bps });
            members.insert("nextBonusTier".to_owned(), tier);
        }
    }
    Terms {
        credits: quote.credits_usd,
        fee: quote.fee,
        total: quote.total,
        bonus: quote.bonus.as_ref().map_or(Micros::ZERO, |bonus| bonus.amount),
        quote: shown.to_string().into(),
    }
}

/// A top-up as its buyer sees it (specification 2.7).
pub fn topup_view(topup: &Topup, tenant: &Tenant) -> Value {
    let quote: Value = serde_json::from_str(&topup.terms.quote).unwrap_or_default();
    let metadata: Option<Value> = topup
        .metadata
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    let url = topup
        .checkout
        .as_ref()
        .filter(|_| topup.state == TopupState::Open);
    let bonus = quote.get("bonus").cloned();
    let mut shown = json!({
        "sessionId": topup.session,
        "status": topup.state,
        "externalUserId": topup.owner,
        "source": topup.source,
        "url": url.map(|checkout| &checkout.url),
        "quote": quote,
        "metadata": metadata,
        "createdAt": topup.created_at,
        "expiresAt": topup.expires_at,
        "completedAt": topup.completed_at,
        "denomination": { "creditsPerDollar": tenant.credits_per_dollar.get() },
    });
    if let Some(members) = shown.as_object_mut() {
        if let Some(bonus) = bonus {
            members.insert("bonus".to_owned(), bonus);
        }
        if let Some((code, message)) = &topup.failure {
            let failure = json!({ "code": code, "message": message });
            members.insert("failure".to_owned(), failure);
        }
    }
    shown
}

/// A top-up as the workspace sees it: with refunds, disputes and what a person has to look at.
pub(super) fn full_view(topup: &Topup, tenant: &Tenant) -> Value {
    let mut shown = topup_view(topup, tenant);
    if let Some(members) = shown.as_object_mut() {
        let refundable = if topup.state == TopupState::Completed {
            topup.refundable_cents()
        } else {
            0
        };
        members.insert("refundableUsd".to_owned(), json!(cents(refundable)));
        let refunds: Vec<Value> = topup.refunds.iter().map(refund_view).collect();
        members.insert("refunds".to_owned(), json!(refunds));
        let disputes: Vec<Value> = topup.disputes.iter().map(dispute_view).collect();
        members.insert("disputes".to_owned(), json!(disputes));
        members.insert("review".to_owned(), json!(topup.review));
    }
    shown
}

fn cents(cents: i64) -> Micros {
    Micros::new(cents.saturating_mul(10_000))
}

/// A refund as the workspace sees it.
pub fn refund_view(refund: &Refund) -> Value {
    json!({
        "refundId": refund.id,
        "status": refund.state,
        "amountUsd": cents(refund.cents),
        "creditsUsd": refund.parts.credits,
        "bonusUsd": refund.parts.bonus,
        "feeUsd": refund.parts.fee,
        "reason": refund.reason,
        "failure": refund.failure,
        "createdAt": refund.created_at,
    })
}

fn dispute_view(dispute: &Dispute) -> Value {
    json!({
        "disputeId": dispute.id,
        "status": dispute.state,
        "amountUsd": cents(dispute.cents),
        "heldUsd": dispute.held,
        "reason": dispute.reason,
        "dueBy": dispute.due_by,
        "createdAt": dispute.created_at,
    })
}

/// A choice about automatic top-ups, for the audit log.
pub(super) fn choice_view(choice: &AutoTopupChoice) -> Value {
    json!({
        "enabled": choice.enabled,
        "thresholdUsd": choice.threshold,
        "amountUsd": choice.amount,
        "monthlyCapUsd": choice.monthly_cap,
    })
}

/// Automatic top-ups as the workspace sees them.
pub(super) fn auto_view(auto: &AutoTopup) -> Value {
    json!({
        "enabled": auto.enabled,
        "thresholdUsd": auto.threshold,
        "amountUsd": auto.amount,
        "monthlyCapUsd": auto.monthly_cap,
        "hasPaymentMethod": auto.method.is_some(),
        "running": auto.running.is_some(),
        "failures": auto.failures,
        "stoppedReason": auto.stopped,
    })
}
