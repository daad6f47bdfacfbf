//! Short ways to say what should happen to top-ups, tokens and end users.

use std::sync::Arc;

use turnpike_core::ids::{RefundId, TokenId, TopupId};
use turnpike_core::ledger::command::{
    AuditNote, DisputeReport, NewRefund, NewToken, NewTopup, PaymentState, RefundReport, Retire,
    RevokeTokens, TopupReport,
};
use turnpike_core::ledger::token::{EndUserToken, TokenKind};
use turnpike_core::ledger::topup::{DisputeState, RefundState, Terms, Topup, TopupSource};
use turnpike_core::ledger::{Action, Outcome, Payer};
use turnpike_store::SubmitError;

use crate::actions::{external, usd};
use crate::world::{NOW, next_id};

/// A purchase of `cents`, of which one in twenty is the fee, with a tenth of it as bonus.
pub(crate) fn new_topup(owner: Option<&str>, cents: i64) -> NewTopup {
    let id = TopupId(next_id());
    let (total, fee) = (cents * 10_000, cents * 500);
    NewTopup {
        id,
        session: format!("cs_{id}").into(),
        owner: owner.map(external),
        source: TopupSource::CheckoutSession,
        terms: Terms {
            credits: usd(total - fee),
            fee: usd(fee),
            total: usd(total),
            bonus: usd(total / 10),
            quote: "{}".into(),
        },
        metadata: None,
        success_url: None,
        cancel_url: None,
        saves_method: false,
        credential: "key:1".into(),
        expires_at: NOW.plus_millis(3_600_000),
        claim: None,
    }
}

pub(crate) fn open_topup(new: &NewTopup) -> Action {
    Action::OpenTopup(Box::new(new.clone()))
}

/// News of the payment of `new`; the payment is named after the top-up.
pub(crate) fn report(new: &NewTopup, state: PaymentState, event: Option<&str>) -> TopupReport {
    TopupReport {
        topup: new.topup(),
        event: event.map(Arc::from),
        state,
        payment: Some(format!("pi_{}", new.id).into()),
        cents: new.terms.total_cents(),
        mismatch: None,
        customer: None,
        method: None,
        failure: None,
    }
}

pub(crate) fn told(new: &NewTopup, state: PaymentState, event: Option<&str>) -> Action {
    Action::TopupReport(Box::new(report(new, state, event)))
}

pub(crate) fn new_refund(new: &NewTopup, cents: Option<i64>) -> NewRefund {
    NewRefund {
        id: RefundId(next_id()),
        topup: new.topup(),
        cents,
        reason: "asked by the customer".into(),
        claim: None,
    }
}

/// News of a refund: of `ours`, or of one that was made at the processor.
pub(crate) fn refund_told(
    new: &NewTopup,
    ours: Option<RefundId>,
    name: &str,
    cents: i64,
    state: RefundState,
) -> Action {
    Action::RefundReport(Box::new(RefundReport {
        topup: new.topup(),
        event: None,
        refund: ours,
        reference: Some(name.into()),
        cents,
        state,
        failure: matches!(state, RefundState::Failed | RefundState::Canceled).then(|| "declined".into()),
    }))
}

pub(crate) fn dispute_told(new: &NewTopup, name: &str, cents: i64, state: DisputeState) -> Action {
    Action::DisputeReport(Box::new(DisputeReport {
        topup: new.topup(),
        event: None,
        reference: name.into(),
        cents,
        state,
        reason: "fraudulent".into(),
        due_by: Some(NOW.plus_millis(86_400_001)),
    }))
}

pub(crate) fn new_token(owner: &str, max_spend: Option<i64>) -> NewToken {
    NewToken {
        id: TokenId(next_id()),
        token: EndUserToken {
            kind: TokenKind::EndUser,
            owner: Payer::EndUser(external(owner)),
            created_at: NOW,
            expires_at: NOW.plus_millis(900_000),
            revoked_at: None,
            max_spend: max_spend.map(usd),
            max_per_call: None,
            spent: usd(0),
            tools: None,
        },
    }
}

pub(crate) fn mint(new: &NewToken) -> Action {
    Action::MintToken(Box::new(new.clone()))
}

pub(crate) fn revoke(owner: &str, only: Option<TokenId>) -> Action {
    Action::RevokeTokens(RevokeTokens {
        kind: TokenKind::EndUser,
        owner: Payer::EndUser(external(owner)),
        only,
    })
}

pub(crate) fn retire(name: &str) -> Action {
    Action::Retire(Retire {
        end_user: external(name),
    })
}

pub(crate) fn note(action: &'static str) -> Arc<AuditNote> {
    Arc::new(AuditNote {
        actor: "a 'quoted' \"actor\"".into(),
        action,
        target: "thing".into(),
        before: None,
        after: Some("{\"é\":1}".into()),
        origin: "127.0.0.1".into(),
    })
}

/// The top-up that an accepted command answered with.
pub(crate) fn topup(result: Result<Outcome, SubmitError>) -> Topup {
    match result {
        Ok(Outcome::Topup(topup)) => *topup,
        other => panic!("no top-up: {other:?}"),
    }
}
