//! Quotes and approvals: what is written of them, how they are found, and that of many calls at once one uses each.

use turnpike_core::ids::{ApprovalId, CallId, QuoteId, TenantId};
use turnpike_core::ledger::approval::{Approval, ApprovalKind, ApprovalState, DecideApproval, PENDING_MS};
use turnpike_core::ledger::command::{NewHold, NewPolicy};
use turnpike_core::ledger::policy::Policy;
use turnpike_core::ledger::quote::{
    CallAuthority, CancelQuote, Quote, QuoteKind, QuoteRefusal, QuoteState, QuoteUse,
};
use turnpike_core::ledger::{Action, Outcome, Payer, Rejection};
use turnpike_store::{ApprovalFilter, SubmitError};

use crate::actions::{
    capture, charge, command, external, grant, new_hold, reference, release, submit_all, usd, user,
};
use crate::calls::rejection;
use crate::money_in::retire;
use crate::world::{Kind, NOW, World, next_id};

fn new_quote(payer: &Payer, micros: i64) -> Quote {
    Quote {
        id: QuoteId(next_id()),
        owner: payer.external_user_id().cloned(),
        slug: "openai/m-1".into(),
        revision: "r'1\"".into(),
        args_hash: "aa".into(),
        kind: QuoteKind::Ceiling,
        charge: charge(micros, 1),
        max_charge: Some(usd(micros + 1)),
        token_hash: "token".into(),
        idempotency_key: "é".into(),
        needs_approval: false,
        state: QuoteState::Open,
        call: None,
        credential: "key:1".into(),
        created_at: NOW,
        expires_at: NOW.plus_millis(60_000),
        ended_at: None,
    }
}

fn open(quote: &Quote) -> Action {
    Action::OpenQuote(Box::new(quote.clone()))
}

fn with_quote(payer: &Payer, micros: i64, quote: &Quote) -> NewHold {
    let mut hold = new_hold(payer, micros);
    hold.authority = Some(Box::new(CallAuthority {
        args_hash: quote.args_hash.clone(),
        quote: Some(QuoteUse {
            id: quote.id,
            token_hash: quote.token_hash.clone(),
            revision: quote.revision.clone(),
        }),
        approval: None,
    }));
    hold
}

fn new_approval(owner: &str, args: &str) -> Approval {
    Approval {
        id: ApprovalId(next_id()),
        kind: ApprovalKind::Spend,
        owner: external(owner),
        slug: "openai/m-1".into(),
        args_hash: Some(args.into()),
        args: Some("{\"é\":\"'\\u0000\"}".into()),
        amount: Some(usd(100)),
        quote: None,
        reason: Some("'; --".into()),
        credential: "token:1".into(),
        state: ApprovalState::Pending,
        created_at: NOW,
        expires_at: NOW.plus_millis(PENDING_MS),
        decided_at: None,
        decided_by: None,
        decision: None,
        call: None,
    }
}

fn request(approval: &Approval) -> Action {
    Action::RequestApproval(Box::new(approval.clone()))
}

fn decide(approval: &Approval, approve: bool) -> Action {
    Action::DecideApproval(Box::new(DecideApproval {
        id: approval.id,
        owner: approval.owner.clone(),
        approve,
        by: "member:ada".into(),
        reason: None,
    }))
}

fn with_approval(owner: &str, micros: i64, args: &str, approval: ApprovalId) -> NewHold {
    let mut hold = new_hold(&user(owner), micros);
    hold.authority = Some(Box::new(CallAuthority {
        args_hash: args.into(),
        quote: None,
        approval: Some(approval),
    }));
    hold
}

fn hold(new: &NewHold) -> Action {
    Action::Hold(Box::new(new.clone()))
}

async fn quote(world: &World, tenant: TenantId, id: QuoteId) -> Quote {
    world.store.find_quote(tenant, id).await.unwrap().unwrap()
}

async fn approval(world: &World, tenant: TenantId, id: ApprovalId) -> Approval {
    world.store.find_approval(tenant, id).await.unwrap().unwrap()
}

/// An end user with credits who needs an approval above nothing.
async fn strict(world: &World, tenant: TenantId, owner: &str) {
    world.run(tenant, grant(&user(owner), 10_000)).await.unwrap();
    let policy = Policy {
        require_approval_above_usd: Some(usd(0)),
        ..Policy::default()
    };
    let change = NewPolicy {
        end_user: external(owner),
        policy: policy.into(),
    };
    world
        .run(tenant, Action::SetPolicy(Box::new(change)))
        .await
        .unwrap();
}

pub(crate) async fn a_quote_comes_back_as_it_was_kept_and_used(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    world.run(tenant, grant(&Payer::Pool, 1_000)).await.unwrap();
    let [used, freed, gone] = [1, 2, 3].map(|_| new_quote(&Payer::Pool, 100));
    for new in [&used, &freed, &gone] {
        world.run(tenant, open(new)).await.unwrap();
        assert_eq!(&quote(world, tenant, new.id).await, new);
        assert!(world.store.find_quote(other, new.id).await.unwrap().is_none());
    }
    let call = with_quote(&Payer::Pool, 90, &used);
    world.run(tenant, hold(&call)).await.unwrap();
    world.run(tenant, capture(&call, 80, 10)).await.unwrap();
    let found = quote(world, tenant, used.id).await;
    assert_eq!((found.state, found.call), (QuoteState::Consumed, Some(call.call)));
    let record = world.store.find_call(tenant, call.call).await.unwrap().unwrap();
    assert_eq!((record.call.quote, record.call.approval), (Some(used.id), None));
    // Found by its row, as a sweep does it, a call of which nothing was sent gives its quote back.
    let call = with_quote(&Payer::Pool, 90, &freed);
    world.run(tenant, hold(&call)).await.unwrap();
    let record = world.store.find_call(tenant, call.call).await.unwrap().unwrap();
    world.run(tenant, Action::Expire(record.call)).await.unwrap();
    assert_eq!(quote(world, tenant, freed.id).await, freed);
    let cancel = Action::CancelQuote(CancelQuote {
        id: gone.id,
        by: Payer::Pool,
    });
    world.run(tenant, cancel).await.unwrap();
    assert_eq!(quote(world, tenant, gone.id).await.state, QuoteState::Canceled);
    // What nobody used is forgotten.
    let store = &world.store;
    assert_eq!(store.prune_quotes(used.expires_at).await.unwrap(), 0);
    assert_eq!(
        store.prune_quotes(used.expires_at.plus_millis(1)).await.unwrap(),
        2
    );
    assert!(store.find_quote(tenant, freed.id).await.unwrap().is_none());
    assert_eq!(quote(world, tenant, used.id).await.state, QuoteState::Consumed);
}

/// The stores that a race runs on.
async fn stores(world: &World) -> Vec<std::sync::Arc<dyn turnpike_store::Store>> {
    let mut stores = vec![world.store.clone()];
    if world.kind != Kind::Sqlite {
        stores.push(world.second().await.unwrap());
    }
    stores
}

pub(crate) async fn sixty_four_calls_race_for_one_quote(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000_000)).await.unwrap();
    let new = new_quote(&Payer::Pool, 100);
    world.run(tenant, open(&new)).await.unwrap();
    let holds: Vec<NewHold> = (0..64).map(|_| with_quote(&Payer::Pool, 100, &new)).collect();
    let stores = stores(world).await;
    let results = submit_all(&stores, tenant, holds.iter().map(hold)).await;
    let mut taken = Vec::new();
    for (new, result) in holds.iter().zip(results) {
        match result {
            Ok(Outcome::Held(_)) => taken.push(new.call),
            Err(SubmitError::Rejected(Rejection::QuoteRefused(refusal))) => {
                assert_eq!(refusal, QuoteRefusal::Ended(QuoteState::Consumed));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(taken.len(), 1);
    assert_eq!(quote(world, tenant, new.id).await.call, Some(taken[0]));
    assert_eq!(world.balance(tenant, &Payer::Pool).await.held, usd(100));
}

pub(crate) async fn sixty_four_calls_race_for_one_approval(world: &World) {
    let tenant = world.tenant().await;
    strict(world, tenant, "alice").await;
    let new = new_approval("alice", "aa");
    let stores = stores(world).await;
    // The same wish, sixty-four times at once, is one approval.
    let wishes: Vec<Approval> = (0..64).map(|_| new_approval("alice", "aa")).collect();
    let asked = submit_all(&stores, tenant, [&new].into_iter().chain(&wishes).map(request)).await;
    let ids: std::collections::BTreeSet<ApprovalId> = asked
        .into_iter()
        .map(|result| match result {
            Ok(Outcome::Approval { approval, .. }) => approval.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let one = approval(world, tenant, *ids.first().unwrap()).await;
    world.run(tenant, decide(&one, true)).await.unwrap();
    let holds: Vec<NewHold> = (0..64)
        .map(|_| with_approval("alice", 100, "aa", one.id))
        .collect();
    let results = submit_all(&stores, tenant, holds.iter().map(hold)).await;
    let taken: Vec<CallId> = holds
        .iter()
        .zip(&results)
        .filter(|(_, result)| matches!(result, Ok(Outcome::Held(_))))
        .map(|(hold, _)| hold.call)
        .collect();
    assert_eq!(taken.len(), 1, "{results:?}");
    let used = approval(world, tenant, one.id).await;
    assert_eq!((used.state, used.call), (ApprovalState::Consumed, Some(taken[0])));
}

pub(crate) async fn approvals_are_paged_filtered_and_forgotten(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    strict(world, tenant, "alice").await;
    strict(world, tenant, "bob").await;
    let all: Vec<Approval> = (0..6)
        .map(|n| new_approval(if n % 2 == 0 { "alice" } else { "bob" }, &n.to_string()))
        .collect();
    for (n, new) in all.iter().enumerate() {
        world.run(tenant, request(new)).await.unwrap();
        if n < 4 {
            world.run(tenant, decide(new, n < 2)).await.unwrap();
        }
    }
    assert_eq!(
        world.store.find_approval_tenant(all[0].id).await.unwrap(),
        Some(tenant)
    );
    assert_eq!(world.store.find_approval(other, all[0].id).await.unwrap(), None);
    let subject = all[5].subject();
    let latest = world.store.find_latest_approval(tenant, &subject).await.unwrap();
    assert_eq!(latest.as_ref(), Some(&all[5]));
    let list = async |state, owner: Option<&str>, before, limit, now| {
        let filter = ApprovalFilter {
            state,
            owner: owner.map(external),
            before,
            now,
            limit,
        };
        let found = world.store.list_approvals(tenant, &filter).await.unwrap();
        let position = |one: &Approval| all.iter().position(|new| new.id == one.id).unwrap();
        found.iter().map(position).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, None, 9, NOW).await, [5, 4, 3, 2, 1, 0]);
    assert_eq!(list(None, None, Some(all[4].id), 2, NOW).await, [3, 2]);
    assert_eq!(list(None, Some("bob"), None, 9, NOW).await, [5, 3, 1]);
    let pending = Some(ApprovalState::Pending);
    assert_eq!(list(pending, None, None, 9, NOW).await, [5, 4]);
    assert_eq!(
        list(Some(ApprovalState::Approved), None, None, 9, NOW).await,
        [1, 0]
    );
    assert_eq!(
        list(Some(ApprovalState::Denied), Some("alice"), None, 9, NOW).await,
        [2]
    );
    let later = NOW.plus_millis(PENDING_MS);
    assert!(list(pending, None, None, 9, later).await.is_empty());
    assert_eq!(
        list(Some(ApprovalState::Expired), None, None, 9, later).await,
        [5, 4, 1, 0]
    );
    // What came to nothing is forgotten; what was approved is not.
    let pruned = world.store.prune_approvals(later.plus_millis(1)).await.unwrap();
    assert_eq!(pruned, 4);
    assert_eq!(list(None, None, None, 9, later).await, [1, 0]);
}

pub(crate) async fn who_leaves_leaves_nothing_open(world: &World) {
    let tenant = world.tenant().await;
    for owner in ["alice", "bob"] {
        strict(world, tenant, owner).await;
    }
    let (quoted, bobs) = (new_quote(&user("alice"), 0), new_quote(&user("bob"), 0));
    let wishes: Vec<Approval> = (0..3).map(|n| new_approval("alice", &n.to_string())).collect();
    let theirs = new_approval("bob", "0");
    for action in wishes.iter().chain([&theirs]).map(request) {
        world.run(tenant, action).await.unwrap();
    }
    for action in [
        open(&quoted),
        open(&bobs),
        decide(&wishes[0], true),
        decide(&wishes[1], false),
    ] {
        world.run(tenant, action).await.unwrap();
    }
    // A call gives its approval back, and the balance goes, before the end user can leave.
    let call = with_approval("alice", 1, "0", wishes[0].id);
    world.run(tenant, hold(&call)).await.unwrap();
    world.run(tenant, release(&call, None)).await.unwrap();
    assert_eq!(reference(&call).approval, Some(wishes[0].id));
    world
        .run(tenant, crate::actions::move_to("alice", 10_000, false))
        .await
        .unwrap();
    match world.run(tenant, retire("alice")).await {
        Ok(Outcome::Retired {
            canceled_approvals, ..
        }) => assert_eq!(canceled_approvals, 2),
        other => panic!("{other:?}"),
    }
    assert_eq!(quote(world, tenant, quoted.id).await.state, QuoteState::Canceled);
    assert_eq!(quote(world, tenant, bobs.id).await.state, QuoteState::Open);
    let states = [
        ApprovalState::Canceled,
        ApprovalState::Denied,
        ApprovalState::Canceled,
    ];
    for (wish, state) in wishes.iter().zip(states) {
        assert_eq!(approval(world, tenant, wish.id).await.state, state);
    }
    assert_eq!(
        approval(world, tenant, theirs.id).await.state,
        ApprovalState::Pending
    );
    let refused = rejection(world.run(tenant, request(&new_approval("alice", "9"))).await);
    assert_eq!(refused, Rejection::EndUserRetired);
    let again = command(tenant, retire("alice"));
    assert!(matches!(
        world.store.submit(again).await,
        Ok(Outcome::Retired {
            canceled_approvals: 0,
            ..
        })
    ));
}

pub(crate) async fn the_audit_finds_a_quote_that_was_tampered_with(world: &World) {
    let tenant = world.tenant().await;
    strict(world, tenant, "alice").await;
    world.run(tenant, grant(&Payer::Pool, 1_000)).await.unwrap();
    let new = new_quote(&Payer::Pool, 100);
    let wish = new_approval("alice", "aa");
    for action in [open(&new), request(&wish), decide(&wish, true)] {
        world.run(tenant, action).await.unwrap();
    }
    let calls = [
        with_quote(&Payer::Pool, 100, &new),
        with_approval("alice", 100, "aa", wish.id),
    ];
    for call in &calls {
        world.run(tenant, hold(call)).await.unwrap();
        world.run(tenant, capture(call, 100, 0)).await.unwrap();
    }
    assert!(world.findings(tenant).await.is_empty());
    world.tamper();
    let found = async |sql: &str, says: &str| {
        world.sql(sql).await.unwrap();
        let findings = world.findings(tenant).await;
        assert!(
            findings.iter().any(|finding| finding.contains(says)),
            "{sql}: {findings:?}"
        );
    };
    found("UPDATE quotes SET state = 0", "its columns").await;
    found("UPDATE quotes SET state = 1, owner = 'x'", "its columns").await;
    world.sql("UPDATE quotes SET owner = ''").await.unwrap();
    found("UPDATE approvals SET is_open = 1", "its columns").await;
    world.sql("UPDATE approvals SET is_open = 0").await.unwrap();
    assert!(world.findings(tenant).await.is_empty());
    found("UPDATE holds SET quote_id = NULL", "a call that does not name it").await;
    found("DELETE FROM approvals", "that it used is gone").await;
}
