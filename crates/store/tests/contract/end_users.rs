//! End users: listed, searched, with what they have.

use turnpike_core::ledger::command::SetFrozen;
use turnpike_core::ledger::policy::Policy;
use turnpike_core::ledger::{AccountStatus, Action};
use turnpike_store::EndUserFilter;

use crate::actions::{external, grant, limits, new_hold, usd, user};
use crate::money_in::{mint, new_token, new_topup, open_topup, retire};
use crate::world::World;

/// Everything that the pattern of an id allows, in the order of its bytes.
const IDS: [&str; 14] = [
    "0", "9_9", "A.b", "Alice", "a", "a-b", "a.b", "a/b", "a:b", "a@b", "a_b", "ab", "alice", "z",
];

async fn ids(world: &World, tenant: turnpike_core::ids::TenantId, filter: &EndUserFilter) -> Vec<String> {
    let found = world.store.list_end_users(tenant, filter).await.unwrap();
    found
        .iter()
        .map(|(user, _)| user.id.as_str().to_owned())
        .collect()
}

// Fault matrix 148: what is searched for is text, whatever it means to a database.
pub(crate) async fn a_search_takes_every_character_as_itself(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    for id in IDS.iter().rev() {
        world.run(tenant, mint(&new_token(id, None))).await.unwrap();
    }
    world.run(other, grant(&user("a_other"), 1)).await.unwrap();
    for part in [
        "",
        "a",
        "A",
        "_",
        "%",
        ".",
        "-",
        "/",
        "@",
        "a_b",
        "a%b",
        "li",
        "LI",
        "'",
        "\"",
        "\\",
        "''",
        "' OR 1=1 --",
        "é",
        "a\u{301}",
        "🦀",
        "\0",
        "a\0",
        "a b",
        "alice ",
        "[a-z]",
        "*",
        "?",
    ] {
        let expected: Vec<_> = IDS.iter().filter(|id| id.contains(part)).collect();
        for limit in [2, 100] {
            let mut filter = EndUserFilter {
                contains: Some(part.to_owned()),
                after: None,
                limit,
            };
            let mut found = Vec::new();
            loop {
                let page = ids(world, tenant, &filter).await;
                let Some(last) = page.last().cloned() else { break };
                assert!(page.len() <= usize::try_from(limit).unwrap());
                found.extend(page);
                filter.after = Some(last);
            }
            assert_eq!(
                found,
                expected.iter().map(|id| (**id).to_owned()).collect::<Vec<_>>(),
                "{part:?}"
            );
        }
    }
    // A cursor need not be an id that is there.
    for (after, first) in [
        ("", Some("0")),
        ("A", Some("A.b")),
        ("a_", Some("a_b")),
        ("zz", None),
        ("a'", Some("a-b")),
        ("é", None),
        ("a\0z", Some("a-b")),
    ] {
        let filter = EndUserFilter {
            contains: None,
            after: Some(after.to_owned()),
            limit: 1,
        };
        assert_eq!(
            ids(world, tenant, &filter).await.first().map(String::as_str),
            first,
            "{after:?}"
        );
    }
}

pub(crate) async fn end_users_are_listed_with_what_they_have(world: &World) {
    let tenant = world.tenant().await;
    let policy = Policy {
        max_usd_per_day: Some(usd(7)),
        allowed_tools: Some(vec!["o'penai/*".to_owned()]),
        ..Policy::default()
    };
    for action in [
        grant(&user("rich"), 1_000),
        Action::Hold(Box::new(new_hold(&user("rich"), 300))),
        Action::SetFrozen(SetFrozen {
            payer: user("rich"),
            frozen: true,
            reason: "risk".into(),
        }),
        limits("poor", &policy),
        open_topup(&new_topup(Some("buyer"), 100)),
        mint(&new_token("gone", None)),
        retire("gone"),
    ] {
        world.run(tenant, action).await.unwrap();
    }
    let filter = EndUserFilter {
        limit: 10,
        ..EndUserFilter::default()
    };
    let listed = world.store.list_end_users(tenant, &filter).await.unwrap();
    for (end_user, account) in &listed {
        let found = world.store.find_end_user(tenant, &end_user.id).await.unwrap();
        assert_eq!(found.as_ref(), Some(end_user));
        let key = user(end_user.id.as_str()).account(tenant);
        assert_eq!(
            world.store.find_account(&key).await.unwrap().unwrap_or_default(),
            *account
        );
    }
    let [(buyer, _), (gone, retired), (poor, nothing), (rich, frozen)] = &listed[..] else {
        panic!("{listed:?}")
    };
    assert_eq!(
        (buyer.open.topups, gone.retired, retired.status),
        (1, true, AccountStatus::Retired)
    );
    assert_eq!((&*poor.policy, nothing.posted), (&policy, usd(0)));
    assert_eq!(
        (rich.retired, frozen.posted, frozen.held, frozen.status),
        (false, usd(1_000), usd(300), AccountStatus::Frozen)
    );
    assert_eq!(
        (frozen.reasons(), frozen.open_calls, frozen.day.spent),
        (1, 1, usd(300))
    );
    assert!(
        world
            .store
            .find_end_user(tenant, &external("Rich"))
            .await
            .unwrap()
            .is_none()
    );
}
