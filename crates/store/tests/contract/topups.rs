//! Top-ups: what is written of them, and how they are found again.

use futures_util::future::join_all;
use turnpike_core::ids::TopupId;
use turnpike_core::ledger::command::{
    AttachCheckout, AutoTopupChoice, PaymentState, RefundReport, event_claim,
};
use turnpike_core::ledger::topup::{DisputeState, RefundState, Topup, TopupSource, TopupState};
use turnpike_core::ledger::{AccountKind, Action, Cause, Outcome, Payer, Rejection};
use turnpike_core::time::Timestamp;
use turnpike_store::TopupFilter;

use crate::actions::{claim, command, grant, usd, user};
use crate::calls::rejection;
use crate::money_in::{
    dispute_told, new_refund, new_topup, open_topup, refund_told, report, retire, told, topup,
};
use crate::world::{NOW, World, all_transfers};

fn everything(limit: u32) -> TopupFilter {
    TopupFilter {
        payer: None,
        before: None,
        limit,
    }
}

// Fault matrix I5: whatever a command answers is what a later reader finds, to the last member.
pub(crate) async fn a_topup_comes_back_as_it_was_answered(world: &World) {
    let tenant = world.tenant().await;
    let mut new = new_topup(Some("alice"), 2_000);
    new.metadata = Some("{\"o'rder\":\"\\u0000 \\\\ ü 🦀\",\"n\":1.50}".into());
    new.success_url = Some("https://shop.example/ok?s={CHECKOUT_SESSION_ID}".into());
    new.cancel_url = Some("https://shop.example/no".into());
    new.saves_method = true;
    new.expires_at = Timestamp::from_millis(NOW.millis() + 1_234_567);
    new.terms.quote = "{\"totalUsd\":\"20\"}".into();
    new.claim = Some(claim(tenant, "topup", 3));
    let attach = |id: &str| {
        Action::AttachCheckout(AttachCheckout {
            topup: new.topup(),
            id: id.into(),
            url: "https://pay.example/é".into(),
        })
    };
    let asked = [new_refund(&new, Some(701)), new_refund(&new, Some(1))];
    let mut refused = report(&new, PaymentState::Failed, Some("evt_1"));
    refused.failure = Some(("card_declined".into(), "no 'funds'".into()));
    let mut short = report(&new, PaymentState::Paid, Some("evt_2"));
    short.cents = 1_999;
    let mut paid = report(&new, PaymentState::Paid, Some("evt_3"));
    (paid.customer, paid.method) = (Some("cus_1".into()), Some("pm_1".into()));
    let steps = [
        open_topup(&new),
        attach("page_1"),
        told(&new, PaymentState::Processing, Some("evt_0")),
        refund_told(&new, None, "re_early", 5, RefundState::Succeeded),
        Action::TopupReport(Box::new(refused)),
        Action::TopupReport(Box::new(short)),
        Action::TopupReport(Box::new(paid)),
        Action::OpenRefund(Box::new(asked[0].clone())),
        Action::OpenRefund(Box::new(asked[1].clone())),
        refund_told(&new, Some(asked[0].id), "re_1", 701, RefundState::Succeeded),
        refund_told(&new, None, "re_2", 99, RefundState::Failed),
        dispute_told(&new, "dp_1", 100, DisputeState::Warning),
        dispute_told(&new, "dp_2", 200, DisputeState::Open),
        dispute_told(&new, "dp_3", 300, DisputeState::Lost),
        dispute_told(&new, "dp_4", 50, DisputeState::Won),
        dispute_told(&new, "dp_3", 300, DisputeState::Won),
        refund_told(&new, Some(asked[0].id), "re_1", 701, RefundState::Failed),
    ];
    let mut last: Option<Topup> = None;
    for step in steps {
        let answered = topup(world.run(tenant, step).await);
        let found = world.store.find_topup(tenant, new.id).await.unwrap().unwrap();
        assert_eq!(found, answered);
        let listed = world.store.list_topups(tenant, &everything(10)).await.unwrap();
        assert_eq!(listed, std::slice::from_ref(&answered));
        last = Some(answered);
    }
    let last = last.unwrap();
    assert_eq!(
        (last.state, last.refunds.len(), last.disputes.len()),
        (TopupState::Completed, 4, 4)
    );
    assert_eq!(
        (last.metadata, last.expires_at),
        (new.metadata.clone(), new.expires_at)
    );
    let again = world.run(tenant, open_topup(&new)).await.unwrap();
    assert_eq!(again, Outcome::Existing(new.id.0));
    assert!(matches!(
        rejection(world.run(tenant, attach("page_2")).await),
        Rejection::Mismatch(_)
    ));
    // What is open is what stands in the way of retirement.
    let alice = world
        .store
        .find_end_user(tenant, new.owner.as_ref().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (alice.open.topups, alice.open.refunds, alice.open.disputes),
        (0, 1, 2)
    );
    let account = world
        .store
        .find_account(&user("alice").account(tenant))
        .await
        .unwrap()
        .unwrap();
    let held = world
        .store
        .find_topup(tenant, new.id)
        .await
        .unwrap()
        .unwrap()
        .held();
    assert_eq!(account.held, held);
    assert!(!held.is_zero());
}

pub(crate) async fn a_processors_name_finds_its_topup_and_no_other(world: &World) {
    let (one, two) = (world.tenant().await, world.tenant().await);
    let (first, second) = (new_topup(None, 500), new_topup(None, 700));
    for (tenant, new) in [(one, &first), (two, &second)] {
        world.run(tenant, open_topup(new)).await.unwrap();
        world
            .run(tenant, told(new, PaymentState::Paid, Some("evt_same")))
            .await
            .unwrap();
    }
    let refused = RefundReport {
        topup: first.topup(),
        event: Some("evt_refused".into()),
        refund: None,
        reference: None,
        cents: 1,
        state: RefundState::Failed,
        failure: None,
    };
    let refused = world.run(one, Action::RefundReport(Box::new(refused))).await;
    assert_eq!(rejection(refused), Rejection::UnknownTopup);
    // What was refused is not marked as handled.
    for (event, handled) in [("evt_same", true), ("evt_refused", false)] {
        let key = event_claim(one, &event.into());
        assert_eq!(
            world.store.find_claim(&key).await.unwrap().is_some(),
            handled,
            "{event}"
        );
    }
    for (tenant, new) in [(one, &first), (two, &second)] {
        for name in ["re_shared", "Re_shared"] {
            world
                .run(tenant, refund_told(new, None, name, 1, RefundState::Pending))
                .await
                .unwrap();
        }
        world
            .run(
                tenant,
                dispute_told(new, &format!("dp_{}", new.id), 1, DisputeState::Warning),
            )
            .await
            .unwrap();
    }
    let found = async |name: String| world.store.find_processor_ref(&name).await.unwrap();
    for (tenant, new) in [(one, &first), (two, &second)] {
        for name in [
            new.session.to_string(),
            format!("pi_{}", new.id),
            format!("dp_{}", new.id),
        ] {
            assert_eq!(found(name).await, Some((tenant, new.id)));
        }
    }
    // Who had the name first keeps it.
    assert_eq!(found("re_shared".to_owned()).await, Some((one, first.id)));
    for name in ["RE_SHARED", "re_shared\0", "\0", "' OR '1' = '1", ""] {
        assert_eq!(found(name.to_owned()).await, None, "{name:?}");
    }
    assert!(world.store.find_topup(two, first.id).await.unwrap().is_none());
}

pub(crate) async fn topups_are_paged_newest_first(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let mut ids = Vec::new();
    for n in 0..9 {
        let new = new_topup([None, Some("alice"), Some("Alice")][n % 3], 100);
        topup(world.run(tenant, open_topup(&new)).await);
        ids.push(new.id);
    }
    topup(world.run(other, open_topup(&new_topup(None, 100))).await);
    ids.reverse();
    let pages = async |payer: Option<Payer>| {
        let (mut all, mut filter) = (
            Vec::<TopupId>::new(),
            TopupFilter {
                payer,
                ..everything(2)
            },
        );
        loop {
            let page = world.store.list_topups(tenant, &filter).await.unwrap();
            all.extend(page.iter().map(|topup| topup.id));
            match page.last() {
                Some(last) => filter.before = Some(last.id),
                None => return all,
            }
        }
    };
    assert_eq!(pages(None).await, ids);
    for (at, payer) in [(2, Payer::Pool), (1, user("alice")), (0, user("Alice"))] {
        let expected: Vec<_> = ids.iter().skip(at).step_by(3).copied().collect();
        assert_eq!(pages(Some(payer)).await, expected);
    }
    assert!(pages(Some(user("nobody"))).await.is_empty());
}

pub(crate) async fn unsettled_topups_are_listed_until_nothing_can_come(world: &World) {
    let tenants = [world.tenant().await, world.tenant().await];
    let all: Vec<_> = (0..8).map(|_| new_topup(None, 100)).collect();
    for (n, new) in all.iter().enumerate() {
        topup(world.run(tenants[n % 2], open_topup(new)).await);
    }
    let run = async |n: usize, action: Action| drop(topup(world.run(tenants[n % 2], action).await));
    for n in [1, 2, 3, 4] {
        run(n, told(&all[n], PaymentState::Paid, None)).await;
    }
    run(0, told(&all[0], PaymentState::Processing, None)).await;
    run(5, told(&all[5], PaymentState::Expired, None)).await;
    run(6, told(&all[6], PaymentState::Failed, None)).await;
    let refund = new_refund(&all[2], None);
    run(2, Action::OpenRefund(Box::new(refund.clone()))).await;
    run(3, dispute_told(&all[3], "dp_3", 1, DisputeState::Warning)).await;
    run(4, dispute_told(&all[4], "dp_4", 1, DisputeState::Open)).await;
    let unsettled = async || {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = world.store.list_unsettled_topups(after, 2).await.unwrap();
            let Some((_, last)) = page.last() else {
                return found;
            };
            after = Some(last.id);
            for (tenant, topup) in page {
                let n = all.iter().position(|new| new.id == topup.id).unwrap();
                assert_eq!(tenant, tenants[n % 2]);
                found.push(n);
            }
        }
    };
    assert_eq!(unsettled().await, [0, 2, 3, 4, 7]);
    run(
        2,
        refund_told(&all[2], Some(refund.id), "re_2", 100, RefundState::Succeeded),
    )
    .await;
    run(3, dispute_told(&all[3], "dp_3", 1, DisputeState::Won)).await;
    run(4, dispute_told(&all[4], "dp_4", 1, DisputeState::Lost)).await;
    assert_eq!(unsettled().await, [0, 7]);
    run(4, refund_told(&all[4], None, "re_4", 99, RefundState::Pending)).await;
    run(0, told(&all[0], PaymentState::Paid, None)).await;
    assert_eq!(unsettled().await, [4, 7]);
}

pub(crate) async fn automatic_topups_keep_their_choice_and_their_count(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let choice = AutoTopupChoice {
        enabled: true,
        threshold: usd(5_000),
        amount: usd(950_000),
        monthly_cap: Some(usd(3_000_000)),
    };
    assert_eq!(world.store.find_auto_topup(tenant).await.unwrap(), None);
    for of in [tenant, other] {
        world.run(of, Action::SetAutoTopup(choice)).await.unwrap();
    }
    world
        .run(
            other,
            Action::SetAutoTopup(AutoTopupChoice {
                enabled: false,
                ..choice
            }),
        )
        .await
        .unwrap();
    let mut first = new_topup(None, 100);
    first.saves_method = true;
    world.run(tenant, open_topup(&first)).await.unwrap();
    let mut paid = report(&first, PaymentState::Paid, None);
    (paid.customer, paid.method) = (Some("cus_1".into()), Some("pm_1".into()));
    world
        .run(tenant, Action::TopupReport(Box::new(paid)))
        .await
        .unwrap();
    // Spent, so that the next one is due.
    world.run(tenant, grant(&user("sink"), 1)).await.unwrap();
    world
        .run(tenant, crate::actions::move_to("sink", 1_050_000, true))
        .await
        .unwrap();
    for failures in 1..=3 {
        // Two begin at once, and one of them is the one under way.
        let begun = [(); 2].map(|()| {
            let mut new = new_topup(None, 100);
            new.source = TopupSource::AutoReload;
            new
        });
        let results = join_all(
            begun
                .iter()
                .map(|new| world.run(tenant, Action::BeginAutoTopup(Box::new(new.clone())))),
        )
        .await;
        let running: Vec<_> = begun
            .iter()
            .zip(&results)
            .filter(|(_, result)| result.is_ok())
            .collect();
        assert_eq!(running.len(), 1, "{results:?}");
        let auto = world.store.find_auto_topup(tenant).await.unwrap().unwrap();
        assert_eq!(
            (auto.running, auto.month.spent),
            (Some(running[0].0.id), usd(950_000))
        );
        assert_eq!(world.store.list_auto_topups().await.unwrap(), [(tenant, auto)]);
        world
            .run(tenant, told(running[0].0, PaymentState::Failed, None))
            .await
            .unwrap();
        let auto = world.store.find_auto_topup(tenant).await.unwrap().unwrap();
        assert_eq!(
            (auto.failures, auto.enabled, auto.running),
            (failures, failures < 3, None)
        );
        assert_eq!(
            (auto.customer.as_deref(), auto.method.as_deref()),
            (Some("cus_1"), Some("pm_1"))
        );
    }
    assert!(world.store.list_auto_topups().await.unwrap().is_empty());
}

// Fault matrix I5: the same news fifty times at once, over every service there is.
pub(crate) async fn a_payment_told_fifty_times_is_credited_once(world: &World) {
    let tenant = world.tenant().await;
    let second = if world.kind == crate::world::Kind::Sqlite {
        world.store.clone()
    } else {
        world.second().await.unwrap()
    };
    for event in [Some("evt_paid"), None] {
        let new = new_topup(Some("alice"), 1_000);
        world.run(tenant, open_topup(&new)).await.unwrap();
        let told = (0..50).map(|n| {
            let store = if n % 2 == 0 {
                world.store.clone()
            } else {
                second.clone()
            };
            let command = command(tenant, told(&new, PaymentState::Paid, event));
            tokio::spawn(async move { store.submit(command).await })
        });
        let results = join_all(told).await;
        assert!(
            results.iter().all(|result| result.as_ref().unwrap().is_ok()),
            "{results:?}"
        );
        let transfers = all_transfers(&*world.store, tenant).await;
        let credited = transfers
            .iter()
            .filter(|transfer| transfer.cause == Cause::Topup && transfer.reference == new.session);
        assert_eq!(credited.count(), 1);
    }
    assert_eq!(
        world.balance(tenant, &user("alice")).await.posted,
        usd(2 * 10_500_000)
    );
    assert_eq!(world.posted(tenant, AccountKind::Fees).await, 2 * 500_000);
    assert!(matches!(
        rejection(world.run(tenant, retire("alice")).await),
        Rejection::NotRetirable(_)
    ));
    if world.kind == crate::world::Kind::Postgres {
        second.close().await;
    }
}
