//! Usage, statements and streams.

use turnpike_core::ids::TenantId;
use turnpike_core::ledger::command::Capture;
use turnpike_core::ledger::{Action, Payer};
use turnpike_core::time::Timestamp;
use turnpike_core::usage::Usage;
use turnpike_store::{EntryFilter, Scan, UsageFilter, UsageGroup};

use crate::actions::{answer, charge, command, grant, move_to, new_hold, reference, release, user};
use crate::world::{NOW, World};

/// One call at `at`: captured for `base + margin`, or failed when `base` is zero.
async fn call(
    world: &World,
    tenant: TenantId,
    at: Timestamp,
    who: (&Payer, Option<&str>, Option<&str>),
    base: i64,
    margin: i64,
) {
    let (payer, model, attribution) = who;
    let mut hold = new_hold(payer, 1_000);
    hold.subject.model = model.map(Into::into);
    hold.subject.endpoint = if model.is_some() {
        "chat".into()
    } else {
        "search".into()
    };
    hold.subject.provider = if model.is_some() {
        "openai".into()
    } else {
        "Tools".into()
    };
    hold.subject.attribution = attribution.map(Into::into);
    let mut taking = command(tenant, Action::Hold(Box::new(hold.clone())));
    taking.at = at;
    world.store.submit(taking).await.unwrap();
    let end = if base == 0 {
        release(&hold, Some(answer("{}")))
    } else {
        Action::Capture(Box::new(Capture {
            call: reference(&hold),
            charge: charge(base, margin),
            usage: Some(Usage {
                input: 100,
                output: 10,
                ..Usage::default()
            }),
            drift: None,
            outcome: Some(answer("{}")),
        }))
    };
    world.run(tenant, end).await.unwrap();
}

pub(crate) async fn usage_is_grouped_and_filtered(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    for of in [tenant, other] {
        world.run(of, grant(&Payer::Pool, 1_000_000)).await.unwrap();
        world.run(of, grant(&user("alice"), 1_000_000)).await.unwrap();
    }
    let (pool, alice) = (Payer::Pool, user("alice"));
    let yesterday = NOW.plus_millis(-86_400_000);
    call(
        world,
        tenant,
        yesterday,
        (&pool, Some("m-1"), Some("{\"team\":\"red\"}")),
        100,
        10,
    )
    .await;
    call(
        world,
        tenant,
        NOW,
        (&pool, Some("M-2"), Some("{\"team\":\"blue\",\"n\":\"1\"}")),
        200,
        20,
    )
    .await;
    call(
        world,
        tenant,
        NOW,
        (&alice, Some("m-1"), Some("{\"team\":1,\"n\":1}")),
        300,
        30,
    )
    .await;
    call(world, tenant, NOW, (&alice, None, None), 0, 0).await;
    call(
        world,
        other,
        NOW,
        (&pool, Some("m-1"), Some("{\"team\":\"red\"}")),
        999,
        0,
    )
    .await;

    let usage = async |group, filter: UsageFilter| {
        let rows = world.store.usage(tenant, group, &filter).await.unwrap();
        rows.into_iter()
            .map(|row| {
                (
                    row.group,
                    row.calls,
                    row.failed_calls,
                    row.charged.get(),
                    row.margin.get(),
                )
            })
            .collect::<Vec<_>>()
    };
    let row =
        |group: &str, calls, failed, charged, margin| (group.to_owned(), calls, failed, charged, margin);
    let all = UsageFilter::default;
    let (day, day_before) = (NOW.day().to_string(), yesterday.day().to_string());
    assert_eq!(
        usage(UsageGroup::Day, all()).await,
        [row(&day_before, 1, 0, 110, 10), row(&day, 2, 1, 550, 50)]
    );
    assert_eq!(
        usage(UsageGroup::Model, all()).await,
        [
            row("", 0, 1, 0, 0),
            row("M-2", 1, 0, 220, 20),
            row("m-1", 2, 0, 440, 40)
        ]
    );
    let by_endpoint = [row("Tools/search", 0, 1, 0, 0), row("openai/chat", 3, 0, 660, 60)];
    assert_eq!(usage(UsageGroup::Endpoint, all()).await, by_endpoint);
    assert_eq!(usage(UsageGroup::Provider, all()).await.len(), 2);
    assert_eq!(
        usage(UsageGroup::EndUser, all()).await,
        [row("", 2, 0, 330, 30), row("alice", 1, 1, 330, 30)]
    );
    let since = UsageFilter {
        from: Some(NOW),
        ..all()
    };
    assert_eq!(
        usage(UsageGroup::Provider, since).await[1],
        row("openai", 2, 0, 550, 50)
    );
    let until = UsageFilter {
        to: Some(NOW),
        ..all()
    };
    assert_eq!(
        usage(UsageGroup::Provider, until).await,
        [row("openai", 1, 0, 110, 10)]
    );
    let hers = UsageFilter {
        payer: Some(user("alice")),
        ..all()
    };
    assert_eq!(
        usage(UsageGroup::EndUser, hers).await,
        [row("alice", 1, 1, 330, 30)]
    );
    for (name, value, expected) in [
        ("team", "red", 1),
        ("team", "blue", 1),
        ("n", "1", 1),
        ("team", "1", 0),
        ("x", "red", 0),
    ] {
        let tagged = UsageFilter {
            attribution: Some((name.to_owned(), value.to_owned())),
            ..all()
        };
        let found: i64 = usage(UsageGroup::Provider, tagged)
            .await
            .iter()
            .map(|row| row.1)
            .sum();
        assert_eq!(found, expected, "{name}={value}");
    }
    let tokens = world
        .store
        .usage(tenant, UsageGroup::Provider, &all())
        .await
        .unwrap();
    assert_eq!((tokens[1].prompt_tokens, tokens[1].completion_tokens), (300, 30));
}

pub(crate) async fn transfers_are_paged_newest_first(world: &World) {
    let tenant = world.tenant().await;
    for n in 0..5 {
        world.run(tenant, grant(&Payer::Pool, 100 + n)).await.unwrap();
        world.run(tenant, move_to("alice", 10, true)).await.unwrap();
        world.run(tenant, grant(&user("bob"), 7)).await.unwrap();
    }
    let page = async |payer: Option<Payer>, before_seq, limit| {
        let filter = EntryFilter {
            payer,
            before_seq,
            limit,
        };
        let found = world.store.list_transfers(tenant, &filter).await.unwrap();
        found.into_iter().map(|transfer| transfer.seq).collect::<Vec<_>>()
    };
    assert_eq!(page(None, None, 4).await, [15, 14, 13, 12]);
    assert_eq!(page(None, Some(12), 3).await, [11, 10, 9]);
    assert_eq!(page(Some(user("alice")), None, 3).await, [14, 11, 8]);
    assert_eq!(page(Some(user("alice")), Some(8), 3).await, [5, 2]);
    assert_eq!(page(Some(user("bob")), Some(4), 9).await, [3]);
    assert_eq!(page(Some(Payer::Pool), None, 4).await, [14, 13, 11, 10]);
    assert!(page(Some(user("carol")), None, 9).await.is_empty());
    // What was taken from a user is the user's, too.
    for _ in 0..2 {
        world.run(tenant, move_to("alice", 3, false)).await.unwrap();
    }
    assert_eq!(page(Some(user("alice")), None, 4).await, [17, 16, 14, 11]);
    assert_eq!(page(Some(user("alice")), Some(17), 2).await, [16, 14]);
    assert_eq!(page(Some(user("bob")), None, 9).await, [15, 12, 9, 6, 3]);
}

// Fault matrix 178
pub(crate) async fn a_scan_reads_everything_in_order_or_stops(world: &World) {
    let tenant = world.tenant().await;
    world.run(tenant, grant(&Payer::Pool, 1_000_000)).await.unwrap();
    // More rows than a fetch or a buffer holds.
    let holds: Vec<_> = (0..1_100).map(|_| new_hold(&Payer::Pool, 1)).collect();
    let taken = holds
        .iter()
        .map(|hold| world.run(tenant, Action::Hold(Box::new(hold.clone()))));
    assert!(
        futures_util::future::join_all(taken)
            .await
            .iter()
            .all(Result::is_ok)
    );
    let ended = holds
        .iter()
        .map(|hold| world.run(tenant, crate::actions::capture(hold, 1, 0)));
    assert!(
        futures_util::future::join_all(ended)
            .await
            .iter()
            .all(Result::is_ok)
    );

    let (mut transfers, mut calls, mut events) = (Vec::new(), Vec::new(), Vec::new());
    let mut sink = |row: turnpike_core::ledger::Transfer| {
        transfers.push(row.seq);
        true
    };
    world
        .store
        .scan(tenant, &mut Scan::Transfers(&mut sink))
        .await
        .unwrap();
    let mut sink = |row: turnpike_core::ledger::Hold| {
        calls.push(row.call.call);
        true
    };
    world
        .store
        .scan(tenant, &mut Scan::Calls(&mut sink))
        .await
        .unwrap();
    let mut sink = |row: turnpike_store::EventRow| {
        events.push(row.seq);
        events.len() < 700
    };
    world
        .store
        .scan(tenant, &mut Scan::Events(&mut sink))
        .await
        .unwrap();
    assert_eq!(transfers, (1..=1_101).collect::<Vec<_>>());
    let mut expected: Vec<_> = holds.iter().map(|hold| hold.call).collect();
    expected.sort();
    assert_eq!(calls, expected);
    assert_eq!(events, (1..=700).collect::<Vec<_>>());
    // The reader that was stopped is whole.
    world.store.ping().await.unwrap();
}
