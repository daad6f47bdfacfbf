//! Payouts: what is written of them, how they are found, and what happens to them at once.

use futures_util::future::join_all;
use turnpike_core::ids::{PayoutId, TenantId};
use turnpike_core::ledger::command::{Capture, PaymentState};
use turnpike_core::ledger::payout::{
    AccountReport, Destination, NewPayout, Payout, PayoutChange, PayoutMethod, PayoutProgress, PayoutReport,
    PayoutState, StablecoinAddress,
};
use turnpike_core::ledger::topup::DisputeState;
use turnpike_core::ledger::{AccountKey, AccountKind, Action, Outcome, Rejection};
use turnpike_store::{PayoutSums, SubmitError};

use crate::actions::{capture, charge, claim, grant, new_hold, reference, usd, user};
use crate::calls::rejection;
use crate::money_in::{dispute_told, new_topup, open_topup, told};
use crate::world::{Kind, World, next_id};

const MIN: i64 = 1_000_000;

fn address() -> StablecoinAddress {
    StablecoinAddress {
        address: "0xü'é".into(),
        network: "eip155:8453".into(),
    }
}

/// A change of where the workspace is paid out to.
fn goes(change: PayoutChange) -> Action {
    Action::ChangePayouts(change)
}

pub(crate) fn to_stablecoin() -> Action {
    goes(PayoutChange::Stablecoin(address()))
}

fn connect(account: &str, ended: u32) -> Action {
    goes(PayoutChange::Connect {
        processor: "stripe".into(),
        account: account.into(),
        ended,
    })
}

fn payable(account: &str) -> Action {
    goes(PayoutChange::Account(AccountReport {
        account: account.into(),
        details_submitted: true,
        payable: true,
        disabled_reason: None,
    }))
}

pub(crate) fn new_payout(amount: Option<i64>) -> NewPayout {
    NewPayout {
        id: PayoutId(next_id()),
        amount: amount.map(usd),
        min: usd(MIN),
        processor: Some("stripe".into()),
        credential: "key:1".into(),
        claim: None,
    }
}

pub(crate) fn pay_out(new: &NewPayout) -> Action {
    Action::OpenPayout(Box::new(new.clone()))
}

pub(crate) fn progress(payout: PayoutId, progress: PayoutProgress) -> Action {
    Action::ReportPayout(PayoutReport { payout, progress })
}

fn payout(answered: Result<Outcome, SubmitError>) -> Payout {
    let Ok(Outcome::Payout { payout, .. }) = answered else {
        panic!("{answered:?}")
    };
    *payout
}

async fn earn(world: &World, tenant: TenantId, margin: i64) {
    world.run(tenant, grant(&user("alice"), margin)).await.unwrap();
    let hold = new_hold(&user("alice"), margin);
    world
        .run(tenant, Action::Hold(Box::new(hold.clone())))
        .await
        .unwrap();
    world.run(tenant, capture(&hold, 0, margin)).await.unwrap();
}

async fn earned(world: &World, margin: i64) -> TenantId {
    let tenant = world.tenant().await;
    earn(world, tenant, margin).await;
    tenant
}

// Fault matrix I5: whatever a command answers is what a later reader finds, to the last member.
pub(crate) async fn a_payout_comes_back_as_it_was_answered(world: &World) {
    let tenant = earned(world, 10_000_000).await;
    let store = &world.store;
    assert_eq!(store.find_payout_settings(tenant).await.unwrap(), None);
    world.run(tenant, to_stablecoin()).await.unwrap();
    let mut new = new_payout(Some(2_000_001));
    new.claim = Some(claim(tenant, "payout", 3));
    let opened = payout(world.run(tenant, pay_out(&new)).await);
    assert_eq!(opened.destination, Destination::Stablecoin(address()));
    let again = world.run(tenant, pay_out(&new)).await.unwrap();
    assert_eq!(again, Outcome::Existing(new.id.0));
    let open = store.find_open_payout(new.id).await.unwrap();
    assert_eq!(open, Some((tenant, opened)));
    for step in [
        PayoutProgress::Begun,
        PayoutProgress::Paid("0x'tx'".into()),
        PayoutProgress::Failed("late".into()),
        PayoutProgress::Reversed("came \\ back".into()),
        PayoutProgress::Paid("again".into()),
    ] {
        let answered = payout(world.run(tenant, progress(new.id, step)).await);
        let found = store.find_payout(tenant, new.id).await.unwrap();
        assert_eq!(found.as_ref(), Some(&answered));
        assert_eq!(store.list_payouts(tenant, None, 10).await.unwrap(), [answered]);
    }
    assert_eq!(store.find_open_payout(new.id).await.unwrap(), None);
    let named = store.find_payout_reference("0x'tx'").await.unwrap();
    assert_eq!(named, Some((tenant, new.id)));
    for unknown in ["again", "", "\0", "0x'TX'"] {
        assert_eq!(
            store.find_payout_reference(unknown).await.unwrap(),
            None,
            "{unknown:?}"
        );
    }
    let other = world.tenant().await;
    assert_eq!(store.find_payout(other, new.id).await.unwrap(), None);
    let foreign = progress(new.id, PayoutProgress::Begun);
    assert_eq!(
        rejection(world.run(other, foreign).await),
        Rejection::UnknownPayout
    );
    assert_eq!(world.posted(tenant, AccountKind::Margin).await, 10_000_000);
    assert_eq!(world.posted(tenant, AccountKind::Payouts).await, 0);
}

// Decisions 10: what is under way keeps its destination, and the method is the stablecoin again
pub(crate) async fn a_connection_comes_and_goes(world: &World) {
    let tenant = earned(world, 10_000_000).await;
    let store = &world.store;
    world.run(tenant, to_stablecoin()).await.unwrap();
    world.run(tenant, connect("acct_1", 0)).await.unwrap();
    world.run(tenant, payable("acct_1")).await.unwrap();
    assert_eq!(store.find_payout_account("acct_1").await.unwrap(), Some(tenant));
    let settings = store.find_payout_settings(tenant).await.unwrap().unwrap();
    assert_eq!(settings.method(Some("stripe")), PayoutMethod::Processor);
    let under_way = payout(world.run(tenant, pay_out(&new_payout(Some(MIN)))).await);
    for changed in [true, false] {
        let done = world.run(tenant, goes(PayoutChange::Disconnect)).await.unwrap();
        assert!(matches!(done, Outcome::PayoutSettings { changed: now, .. } if now == changed));
    }
    for unknown in ["acct_1", "acct_2", "\0", ""] {
        assert_eq!(
            store.find_payout_account(unknown).await.unwrap(),
            None,
            "{unknown:?}"
        );
    }
    let next = payout(world.run(tenant, pay_out(&new_payout(None))).await);
    assert_eq!(next.destination.method(), PayoutMethod::Stablecoin);
    let sent = progress(under_way.id, PayoutProgress::Paid("tr_1".into()));
    let sent = payout(world.run(tenant, sent).await);
    assert_eq!(
        (sent.state, sent.destination),
        (PayoutState::Paid, under_way.destination)
    );
    let late = world.run(tenant, connect("acct_1", 0)).await;
    assert_eq!(rejection(late), Rejection::ConnectionChanged);
    world.run(tenant, connect("acct_2", 1)).await.unwrap();
    assert_eq!(store.find_payout_account("acct_2").await.unwrap(), Some(tenant));
}

pub(crate) async fn payouts_are_paged_summed_and_found_while_open(world: &World) {
    let tenant = earned(world, 20_000_000).await;
    let store = &world.store;
    world.run(tenant, to_stablecoin()).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(payout(world.run(tenant, pay_out(&new_payout(Some(MIN)))).await).id);
    }
    assert_eq!(
        store.sum_payouts(tenant).await.unwrap(),
        PayoutSums {
            open: usd(7 * MIN),
            paid: usd(0)
        }
    );
    world
        .run(tenant, progress(ids[0], PayoutProgress::Begun))
        .await
        .unwrap();
    world
        .run(tenant, progress(ids[1], PayoutProgress::Paid("a".into())))
        .await
        .unwrap();
    world
        .run(tenant, progress(ids[2], PayoutProgress::Failed("b".into())))
        .await
        .unwrap();
    world.run(tenant, Action::CancelPayout(ids[3])).await.unwrap();
    assert_eq!(
        store.sum_payouts(tenant).await.unwrap(),
        PayoutSums {
            open: usd(4 * MIN),
            paid: usd(MIN)
        }
    );
    let other = world.tenant().await;
    assert_eq!(store.sum_payouts(other).await.unwrap(), PayoutSums::default());
    let (mut paged, mut before) = (Vec::new(), None);
    loop {
        let page = store.list_payouts(tenant, before, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        paged.extend(page.iter().map(|payout| payout.id));
    }
    paged.reverse();
    assert_eq!(paged, ids);
    let (mut open, mut after) = (Vec::new(), None);
    loop {
        let page = store.list_open_payouts(after, 2).await.unwrap();
        let Some((_, last)) = page.last() else { break };
        after = Some(last.id);
        open.extend(page);
    }
    let open: Vec<_> = open.iter().map(|(of, payout)| (*of, payout.id)).collect();
    let expected: Vec<_> = [0, 4, 5, 6].iter().map(|at| (tenant, ids[*at])).collect();
    assert_eq!(open, expected);
}

// Fault matrix I2 of payouts
pub(crate) async fn payouts_at_once_never_overdraw_the_margin(world: &World) {
    let tenant = earned(world, 7_500_000).await;
    world.run(tenant, to_stablecoin()).await.unwrap();
    let answers = join_all((0..50).map(|n| async move {
        let mut new = new_payout(Some(MIN));
        // Half of them in pairs under one key.
        new.claim = (n % 2 == 0).then(|| claim(tenant, &format!("k{}", n / 4), 1));
        world.run(tenant, pay_out(&new)).await
    }))
    .await;
    let opened = answers
        .iter()
        .filter(|answer| matches!(answer, Ok(Outcome::Payout { changed: true, .. })));
    assert_eq!(opened.count(), 7);
    assert_eq!(world.posted(tenant, AccountKind::Margin).await, 500_000);
    assert_eq!(world.posted(tenant, AccountKind::Payouts).await, 7_000_000);
}

// Decisions 10: opened before the disconnection it goes to the account, afterwards it does not
pub(crate) async fn disconnecting_and_opening_take_turns(world: &World) {
    let tenant = earned(world, 50_000_000).await;
    world.run(tenant, connect("acct_1", 0)).await.unwrap();
    world.run(tenant, payable("acct_1")).await.unwrap();
    let opening = join_all((0..40).map(|_| async {
        let new = new_payout(Some(MIN));
        world.run(tenant, pay_out(&new)).await
    }));
    let (opened, ended) = tokio::join!(opening, world.run(tenant, goes(PayoutChange::Disconnect)));
    ended.unwrap();
    let mut out = 0;
    for answer in opened {
        match answer {
            Ok(answer) => {
                let payout = payout(Ok(answer));
                assert_eq!(payout.destination.method(), PayoutMethod::Processor);
                out += MIN;
            }
            Err(error) => assert_eq!(rejection(Err(error)), Rejection::NoPayoutDestination),
        }
    }
    assert_eq!(world.posted(tenant, AccountKind::Payouts).await, out);
    let after = world.run(tenant, pay_out(&new_payout(None))).await;
    assert_eq!(rejection(after), Rejection::NoPayoutDestination);
}

pub(crate) async fn the_audit_finds_a_payout_that_was_tampered_with(world: &World) {
    let tenant = earned(world, 5_000_000).await;
    world.run(tenant, to_stablecoin()).await.unwrap();
    world.run(tenant, pay_out(&new_payout(Some(MIN)))).await.unwrap();
    world.tamper();
    for (tampering, undo) in [
        ("state = 2", "state = 0"),
        ("amount = amount + 1", "amount = amount - 1"),
        ("reference = 'x'", "reference = NULL"),
    ] {
        world
            .sql(&format!("UPDATE payouts SET {tampering}"))
            .await
            .unwrap();
        let findings = world.findings(tenant).await;
        assert_eq!(findings.len(), 1, "{tampering}: {findings:?}");
        assert!(findings[0].contains("its columns"), "{findings:?}");
        world.sql(&format!("UPDATE payouts SET {undo}")).await.unwrap();
    }
    let tampering = "UPDATE payouts SET document = REPLACE(document, '\"pending\"', '\"failed\"')";
    world.sql(tampering).await.unwrap();
    let findings = world.findings(tenant).await;
    assert!(
        findings
            .iter()
            .any(|finding| finding.contains("is failed: its entries took 1000000 and gave back 0")),
        "{findings:?}"
    );
    world.sql("DELETE FROM payouts").await.unwrap();
    let findings = world.findings(tenant).await;
    assert!(
        findings
            .iter()
            .any(|finding| finding.contains("has entries and no record")),
        "{findings:?}"
    );
}

const SET_ASIDE: [&str; 2] = [
    include_str!("../../../../migrations/sqlite/0008_payouts.sql"),
    include_str!("../../../../migrations/postgres/0008_payouts.sql"),
];

// The migration sets aside what this version has set aside, of streams that run and disputes that are open.
pub(crate) async fn the_migration_sets_the_margin_aside(world: &World) {
    let run = async |tenant, action| world.run(tenant, action).await.unwrap();
    let set_aside = async |tenant| {
        let margin = AccountKey::of(tenant, AccountKind::Margin);
        let row = world.store.find_account(&margin).await.unwrap();
        row.unwrap_or_default().held
    };
    let (both, disputed) = (earned(world, 7_000_000).await, world.tenant().await);
    for tenant in [both, disputed] {
        let new = new_topup(Some("alice"), 1000);
        run(tenant, open_topup(&new)).await;
        run(tenant, told(&new, PaymentState::Paid, None)).await;
        let left = world.balance(tenant, &user("alice")).await.available().get();
        let hold = new_hold(&user("alice"), left - 1_234_567);
        run(tenant, Action::Hold(Box::new(hold.clone()))).await;
        run(tenant, capture(&hold, left - 1_234_567, 0)).await;
        run(tenant, dispute_told(&new, "dp_1", 100, DisputeState::Warning)).await;
        run(tenant, dispute_told(&new, "dp_2", 333, DisputeState::Open)).await;
        run(tenant, dispute_told(&new, "dp_3", 200, DisputeState::Open)).await;
        run(tenant, dispute_told(&new, "dp_4", 100, DisputeState::Lost)).await;
    }
    let begun = new_hold(&user("bob"), 900);
    run(both, grant(&user("bob"), 900)).await;
    run(both, Action::Hold(Box::new(begun.clone()))).await;
    run(
        both,
        Action::Capture(Box::new(Capture {
            call: reference(&begun),
            charge: charge(400, 500),
            usage: None,
            drift: None,
            outcome: None,
        })),
    )
    .await;
    let before = [set_aside(both).await, set_aside(disputed).await];
    assert!(before[1] > usd(1_000_000), "{before:?}");
    assert_eq!(before[0].get(), before[1].get() + 500);
    let text = SET_ASIDE[usize::from(world.kind == Kind::Postgres)];
    let insert = text.find("INSERT INTO accounts").unwrap();
    for before_it in [
        "UPDATE accounts SET held = 0 WHERE kind = 2",
        "DELETE FROM accounts WHERE kind = 2 AND posted = 0",
    ] {
        world.sql(before_it).await.unwrap();
    }
    for tenant in [both, disputed] {
        assert_eq!(world.findings(tenant).await.len(), 1);
    }
    world.sql(&text[insert..]).await.unwrap();
    assert_eq!([set_aside(both).await, set_aside(disputed).await], before);
}
