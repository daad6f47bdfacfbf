//! Retirement: who may, when it is possible, and that nothing is charged afterwards.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::people::seconds;
use crate::harness::upstream::{answer, completion, tokens};
use crate::harness::{Gate, Reply, Site, Step, Store, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    an_end_user_with_nothing_left_is_retired_for_good,
    what_is_not_settled_stands_in_the_way,
    one_of_many_retirements_does_it,
    a_retirement_never_succeeds_beside_a_call,
    a_retirement_needs_an_owner_or_admin_with_a_fresh_second_factor,
    retirement_keeps_every_row,
);

// Specification 2.10, 3; fault matrix 161, 163
async fn an_end_user_with_nothing_left_is_retired_for_good(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.grant("0.01", Some("alice"));
    site.limit("alice", &json!({ "maxUsdPerDay": "5" })).await;
    let (first, second) = (
        site.token("alice", &json!({})).await,
        site.token("alice", &json!({})).await,
    );
    site.chat_as(&first, "flat").send().await.expect(200);
    let account = || async {
        let reply = site.retiring("alice", &owner).send().await.expect(200);
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        reply.json()
    };
    let retired = account().await;
    assert_eq!(
        retired,
        json!({ "success": true, "externalUserId": "alice", "retired": true, "alreadyRetired": false,
            "accountId": retired["accountId"], "revokedTokens": 2, "revokedAgentConnections": 0,
            "canceledApprovals": 0, "policyReset": true })
    );
    assert!(
        retired["accountId"]
            .as_str()
            .unwrap()
            .parse::<uuid::Uuid>()
            .is_ok()
    );
    let again = account().await;
    assert_eq!(
        again,
        json!({ "success": true, "externalUserId": "alice", "retired": true, "alreadyRetired": true,
            "accountId": retired["accountId"], "revokedTokens": 0, "revokedAgentConnections": 0,
            "canceledApprovals": 0, "policyReset": false })
    );
    for token in [&first, &second] {
        site.mine(token).send().await.refused(401, "CREDENTIAL_REVOKED");
        let call = site.chat_as(token, "free").send().await;
        call.refused(401, "CREDENTIAL_REVOKED");
    }
    let call = site.chat(&chat("free", "hi")).paid_by("alice").send().await;
    call.refused(403, "END_USER_RETIRED");
    for (method, below, body) in [
        (Method::POST, "/tokens", json!({})),
        (Method::PUT, "/policy", json!({})),
        (Method::POST, "/freeze", json!({})),
        (Method::POST, "/unfreeze", json!({})),
        (Method::POST, "/allocate", json!({ "usd": "1" })),
        (Method::POST, "/deallocate", json!({ "usd": "1" })),
    ] {
        let change = site.about(method, "alice", below).json(&body).once("k");
        change.send().await.refused(403, "END_USER_RETIRED");
    }
    let tenant = site.tenant.as_str();
    let grant = [
        "credits",
        "grant",
        "--tenant",
        tenant,
        "--usd",
        "1",
        "--reason",
        "x",
        "--external-user-id",
        "alice",
    ];
    assert!(
        !crate::harness::operate(&site.config, &site.data, &grant)
            .0
            .success()
    );
    let shown = site
        .about(Method::GET, "alice", "")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&shown["status"], &shown["usd"]),
        (&json!("retired"), &json!("0"))
    );
    assert_eq!(shown["policy"]["maxUsdPerDay"], Value::Null);
    assert_eq!(site.noted("end_user.retire").await, 1);
    site.retiring("Alice", &owner)
        .send()
        .await
        .refused(404, "END_USER_NOT_FOUND");
    site.retiring("never", &owner)
        .send()
        .await
        .refused(404, "END_USER_NOT_FOUND");
    let unknown = site.about(Method::GET, "never", "").send().await;
    unknown.refused(404, "END_USER_NOT_FOUND");
    assert_eq!(site.upstream.count(), 1);
}

fn blockers(reply: Reply) -> Value {
    reply.refused(409, "END_USER_NOT_RETIRABLE").json()["blockers"].clone()
}

// Fault matrix 157
async fn what_is_not_settled_stands_in_the_way(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.grant("0.010001", Some("alice"));
    let token = site.token("alice", &json!({})).await;
    site.limit("alice", &json!({ "maxUsdPerDay": "5" })).await;
    site.chat_as(&token, "flat").send().await.expect(200);
    let refused = site.retiring("alice", &owner).send().await;
    assert_eq!(
        blockers(refused),
        json!([{ "type": "balance", "count": 1, "amountUsd": "0.000001" }])
    );
    // A call that costs nothing stands in the way, too.
    site.move_usd("deallocate", "alice", "0.000001", "k")
        .send()
        .await
        .expect(200);
    let gate = Gate::new();
    site.upstream
        .always(vec![Step::Wait(gate.clone()), completion(1, &tokens(10, 5))]);
    let running = tokio::spawn(site.chat_as(&token, "free").send());
    eventually("the call was sent", || async {
        (site.upstream.count() == 2).then_some(())
    })
    .await;
    let refused = site.retiring("alice", &owner).send().await;
    assert_eq!(
        blockers(refused),
        json!([{ "type": "reservation", "count": 1, "amountUsd": "0" }])
    );
    site.grant("1", Some("alice"));
    let held = tokio::spawn(site.chat_as(&token, "flat").send());
    eventually("the call was sent", || async {
        (site.upstream.count() == 3).then_some(())
    })
    .await;
    let refused = site.retiring("alice", &owner).send().await;
    assert_eq!(
        blockers(refused),
        json!([
            { "type": "balance", "count": 1, "amountUsd": "1" },
            { "type": "reservation", "count": 2, "amountUsd": "0.01" },
        ])
    );
    // Nothing was changed by any of them.
    site.mine(&token).send().await.expect(200);
    let shown = site
        .about(Method::GET, "alice", "/policy")
        .send()
        .await
        .expect(200);
    assert_eq!(shown.json()["policy"]["maxUsdPerDay"], "5");
    assert_eq!(site.noted("end_user.retire").await, 0);
    gate.open();
    running.await.unwrap().expect(200);
    held.await.unwrap().expect(200);
    site.move_usd("deallocate", "alice", "0.99", "l")
        .send()
        .await
        .expect(200);
    site.retiring("alice", &owner).send().await.expect(200);
}

// Fault matrix 160
async fn one_of_many_retirements_does_it(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.token("alice", &json!({})).await;
    site.limit("alice", &json!({ "maxUsdPerDay": "5" })).await;
    let mut all = JoinSet::new();
    for _ in 0..10 {
        all.spawn(site.retiring("alice", &owner).send());
    }
    let replies: Vec<Value> = all
        .join_all()
        .await
        .into_iter()
        .map(|reply| reply.expect(200).json())
        .collect();
    let (did, found): (Vec<_>, Vec<_>) = replies.iter().partition(|body| body["alreadyRetired"] == false);
    assert_eq!((did.len(), found.len()), (1, 9));
    assert_eq!(
        (&did[0]["revokedTokens"], &did[0]["policyReset"]),
        (&json!(1), &json!(true))
    );
    for body in found {
        assert_eq!(
            (&body["revokedTokens"], &body["policyReset"]),
            (&json!(0), &json!(false))
        );
    }
    assert_eq!(site.noted("end_user.retire").await, 1);
}

// Fault matrix 158, I3
async fn a_retirement_never_succeeds_beside_a_call(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    let (mut retired_first, mut called_first) = (0, 0);
    for batch in 0..6 {
        let users: Vec<String> = (0..50).map(|number| format!("u-{batch}-{number}")).collect();
        let mut made = JoinSet::new();
        for user in &users {
            made.spawn(site.about(Method::PUT, user, "/policy").json(&json!({})).send());
        }
        made.join_all()
            .await
            .into_iter()
            .for_each(|reply| drop(reply.expect(200)));
        // No call can end before every retirement was answered.
        let gate = Gate::new();
        let good = completion(1, &tokens(10, 5));
        site.upstream.always(vec![Step::Wait(gate.clone()), good]);
        let (mut calls, mut retirements) = (JoinSet::new(), JoinSet::new());
        for (number, user) in users.iter().enumerate() {
            let call = site.chat(&chat("free", "hi")).paid_by(user);
            let retirement = site.retiring(user, &owner);
            let (user, other) = (user.clone(), user.clone());
            // Fifty signatures of one session are verified first: that takes its time on a busy machine.
            let head_start = Duration::from_millis(u64::try_from(number % 10).unwrap());
            calls.spawn(async move {
                if number % 2 == 0 {
                    tokio::time::sleep(head_start * 40).await;
                }
                (user, call.send().await)
            });
            retirements.spawn(async move {
                if number % 2 == 1 {
                    tokio::time::sleep(head_start).await;
                }
                (other, retirement.send().await)
            });
        }
        let retired: std::collections::BTreeMap<String, u16> = retirements
            .join_all()
            .await
            .into_iter()
            .map(|(user, reply)| (user, reply.status))
            .collect();
        gate.open();
        for (user, call) in calls.join_all().await {
            match (retired[&user], call.status) {
                (200, 403) => {
                    assert!(matches!(
                        call.code().as_str(),
                        "END_USER_RETIRED" | "ACCOUNT_FROZEN"
                    ));
                    retired_first += 1;
                }
                (409, 200) => called_first += 1,
                both => panic!("{user}: retirement and call were {both:?}: {}", call.text()),
            }
        }
    }
    assert_eq!(retired_first + called_first, 300);
    assert!(
        retired_first > 0 && called_first > 0,
        "{retired_first} to {called_first}: no race"
    );
    assert_eq!(site.upstream.count(), called_first);
    site.upstream.always(vec![answer(500, &[], b"{}")]);
    site.idle().await;
}

// Fault matrix 134, 135, 136, 139
async fn a_retirement_needs_an_owner_or_admin_with_a_fresh_second_factor(store: Store) {
    let site = Site::new(store).await;
    site.limit("alice", &json!({})).await;
    let token = site.token("alice", &json!({})).await;
    for credential in [site.key.as_str(), &token] {
        let refused = site.retiring("alice", credential).send().await;
        refused.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    }
    for role in ["developer", "billing", "viewer"] {
        site.add_member(role, role);
        let refused = site
            .retiring("alice", &site.session(role, &json!({})))
            .send()
            .await;
        refused.refused(403, "FORBIDDEN_ROLE");
    }
    site.owner();
    let stale = |changes: Value| {
        site.retiring("alice", &site.session("the-owner", &changes))
            .send()
    };
    let now = seconds();
    for changes in [
        json!({ "amr": ["pwd"] }),
        json!({ "amr": null }),
        json!({ "amr": "mfa" }),
        json!({ "amr": ["pwd"], "acr": "pwd" }),
        json!({ "auth_time": null }),
        json!({ "auth_time": now - 602 }),
        json!({ "auth_time": now - 700, "acr": "mfa" }),
        json!({ "auth_time": now + 60 }),
        json!({ "auth_time": -1 }),
        json!({ "auth_time": now.to_string() }),
        json!({ "auth_time": [now] }),
    ] {
        let refused = stale(changes.clone()).await;
        assert_eq!(refused.code(), "STEP_UP_REQUIRED", "{changes}");
        let refused = refused.refused(401, "STEP_UP_REQUIRED");
        assert_eq!(
            refused.header("www-authenticate"),
            Some("Bearer error=\"insufficient_user_authentication\", acr_values=\"mfa\", max_age=600")
        );
    }
    // Such a session is still good for what needs no second factor.
    let plain = site.session("the-owner", &json!({ "amr": 5, "auth_time": {} }));
    let read = site.client.request(Method::GET, "/api/credits/end-users/alice");
    let user = read.bearer(&plain).send().await.expect(200);
    assert_eq!(user.json()["status"], "active");
    site.operate(&["tenant", "suspend", &site.tenant]);
    stale(json!({})).await.refused(403, "TENANT_SUSPENDED");
    site.operate(&["tenant", "resume", &site.tenant]);
    // The role is the one of now.
    let admin = |role: &str| {
        site.add_member("admin", role);
        site.session(
            "admin",
            &json!({ "auth_time": seconds() - 590, "amr": ["pwd"], "acr": "mfa" }),
        )
    };
    let lowered = site.retiring("alice", &admin("viewer")).send().await;
    lowered.refused(403, "FORBIDDEN_ROLE");
    site.retiring("alice", &admin("admin")).send().await.expect(200);
    let (_, other) = site.workspace("Other");
    let foreign = site.retiring("alice", &other).send().await;
    foreign.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
}

// Fault matrix 164, I7
async fn retirement_keeps_every_row(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    site.move_usd("allocate", "alice", "0.01", "k")
        .send()
        .await
        .expect(200);
    let token = site.token("alice", &json!({})).await;
    site.chat_as(&token, "flat").once("c").send().await.expect(200);
    let tables = [
        "transfers",
        "events",
        "holds",
        "claims",
        "outcomes",
        "end_users",
        "end_user_tokens",
        "accounts",
    ];
    let count = |table: &str| {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        let site = &site;
        async move { site.database.number(&sql).await }
    };
    let mut before = Vec::new();
    for table in tables {
        before.push(count(table).await);
    }
    let (ledger, audited) = (site.ledger(), count("audit_log").await);
    site.retiring("alice", &owner).send().await.expect(200);
    for (table, rows) in tables.into_iter().zip(before) {
        assert_eq!(count(table).await, rows, "{table}");
    }
    assert_eq!((site.ledger(), count("audit_log").await), (ledger, audited + 1));
    let listed = site
        .get("/api/credits/ledger?externalUserId=alice")
        .send()
        .await
        .expect(200);
    assert_eq!(listed.json()["data"].as_array().unwrap().len(), 2);
    let replayed = site
        .move_usd("allocate", "alice", "0.01", "k")
        .send()
        .await
        .expect(200);
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
}
