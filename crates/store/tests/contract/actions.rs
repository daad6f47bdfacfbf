//! Short ways to say what should happen.

use std::sync::Arc;

use futures_util::future::join_all;
use turnpike_core::access::Role;
use turnpike_core::ids::{CallId, CommandId, ExternalUserId, TenantId};
use turnpike_core::ledger::command::{
    Capture, Grant, GrantSource, Move, NewClaim, NewHold, NewPolicy, OutcomeKind, Release, StoredOutcome,
};
use turnpike_core::ledger::hold::{CallSubject, ClaimKey};
use turnpike_core::ledger::policy::Policy;
use turnpike_core::ledger::{Action, CallRef, Command, Outcome, Payer};
use turnpike_core::money::Micros;
use turnpike_core::pricing::Charge;
use turnpike_store::{AuditRow, MemberChange, Store, SubmitError};
use uuid::Uuid;

use crate::world::{NOW, next_id};

pub(crate) fn usd(micros: i64) -> Micros {
    Micros::new(micros)
}

pub(crate) fn user(name: &str) -> Payer {
    Payer::EndUser(external(name))
}

pub(crate) fn external(name: &str) -> ExternalUserId {
    ExternalUserId::parse(name).unwrap()
}

/// Someone becomes a member.
pub(crate) fn joins(tenant: TenantId, subject: &str, role: Role) -> MemberChange {
    MemberChange {
        tenant,
        subject: subject.to_owned(),
        from: None,
        to: Some(role),
        at: NOW,
    }
}

pub(crate) fn audit_row(tenant: TenantId) -> AuditRow {
    AuditRow {
        id: next_id(),
        tenant,
        at: NOW,
        actor: "tester".to_owned(),
        action: "test",
        target: "thing".to_owned(),
        before: None,
        after: Some("{}".to_owned()),
        origin: "127.0.0.1".to_owned(),
    }
}

pub(crate) fn subject() -> CallSubject {
    CallSubject {
        provider: "openai".into(),
        endpoint: "chat".into(),
        model: Some("m-1".into()),
        streamed: false,
        credential: "key:1".into(),
        attribution: None,
        price: "{}".into(),
    }
}

pub(crate) fn new_hold(payer: &Payer, micros: i64) -> NewHold {
    NewHold {
        call: CallId(next_id()),
        payer: payer.clone(),
        claim: None,
        loop_id: None,
        amount: usd(micros),
        base: usd(micros),
        subject: subject(),
        instance: Uuid::nil(),
        deadline: NOW.plus_millis(60_000),
        token: None,
        authority: None,
    }
}

pub(crate) fn claim(tenant: TenantId, key: &str, fingerprint: u8) -> NewClaim {
    let key = ClaimKey {
        tenant,
        scope: "key:1 chat".into(),
        key: key.into(),
    };
    NewClaim {
        key,
        fingerprint: [fingerprint; 32],
    }
}

/// How the later commands name a call that was held by `hold`.
pub(crate) fn reference(hold: &NewHold) -> CallRef {
    hold.reference()
}

pub(crate) fn charge(base: i64, margin: i64) -> Charge {
    Charge {
        base: usd(base),
        markup: usd(margin),
        flat: usd(0),
        margin: usd(margin),
        effective: usd(base + margin),
    }
}

pub(crate) fn answer(body: &'static str) -> StoredOutcome {
    StoredOutcome {
        kind: OutcomeKind::Success,
        body: Some(body.into()),
        expires_at: NOW.plus_millis(86_400_000),
    }
}

pub(crate) fn capture(hold: &NewHold, base: i64, margin: i64) -> Action {
    Action::Capture(Box::new(Capture {
        call: reference(hold),
        charge: charge(base, margin),
        usage: None,
        drift: None,
        outcome: Some(answer("{\"ok\":1}")),
    }))
}

pub(crate) fn release(hold: &NewHold, outcome: Option<StoredOutcome>) -> Action {
    Action::Release(Release {
        call: reference(hold),
        failure: "UPSTREAM_ERROR".into(),
        outcome,
        drift: None,
    })
}

pub(crate) fn grant(to: &Payer, micros: i64) -> Action {
    Action::Grant(Grant {
        to: to.clone(),
        amount: usd(micros),
        source: GrantSource::ManualGrant,
        reason: "test".into(),
        claim: None,
    })
}

pub(crate) fn move_to(end_user: &str, micros: i64, to_end_user: bool) -> Action {
    Action::Move(Move {
        end_user: external(end_user),
        to_end_user,
        amount: usd(micros),
        reference: "test".into(),
        claim: None,
    })
}

pub(crate) fn command(tenant: TenantId, action: Action) -> Command {
    Command {
        id: CommandId(next_id()),
        tenant,
        at: NOW,
        action,
        note: None,
    }
}

pub(crate) fn limits(end_user: &str, policy: &Policy) -> Action {
    Action::SetPolicy(Box::new(NewPolicy {
        end_user: external(end_user),
        policy: policy.clone().into(),
    }))
}

/// Sends the actions all at once, over the stores in turn.
pub(crate) async fn submit_all(
    stores: &[Arc<dyn Store>],
    tenant: TenantId,
    actions: impl Iterator<Item = Action>,
) -> Vec<Result<Outcome, SubmitError>> {
    let tasks: Vec<_> = actions
        .zip(stores.iter().cycle())
        .map(|(action, store)| {
            let store = store.clone();
            tokio::spawn(async move { store.submit(command(tenant, action)).await })
        })
        .collect();
    join_all(tasks).await.into_iter().map(Result::unwrap).collect()
}
