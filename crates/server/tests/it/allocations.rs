//! Credits between the pool and end users, and the list of who has them.

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Site, Store, chat, eventually, micros};
use crate::on_both_stores;

on_both_stores!(
    credits_go_to_an_end_user_and_back,
    a_repeated_move_gives_the_same_answer_and_moves_once,
    a_move_at_once_with_one_key_happens_once,
    a_move_that_cannot_be_leaves_everything,
    a_frozen_balance_is_not_spent,
    end_users_are_listed_by_id,
    an_id_in_a_path_is_decoded_once,
    what_another_workspace_has_is_not_found,
);

async fn credits_go_to_an_end_user_and_back(store: Store) {
    let site = Site::new(store).await;
    let there = site
        .move_usd("allocate", "new/user", "2.5", "a")
        .send()
        .await
        .expect(200);
    assert_eq!(there.header("idempotent-replayed"), None);
    assert_eq!(there.header("cache-control"), Some("no-store"));
    let there = there.json();
    let balance = |usd: &str, credits: &str| {
        json!({ "usd": usd, "credits": credits, "availableUsd": usd, "reservedUsd": "0",
            "denomination": { "creditsPerDollar": 1000 } })
    };
    assert_eq!(
        there,
        json!({ "success": true, "externalUserId": "new/user", "amountUsd": "2.5", "entryId": there["entryId"],
            "pool": balance("7.5", "7500"), "endUser": balance("2.5", "2500") })
    );
    let ledger = site
        .get("/api/credits/ledger?externalUserId=new/user")
        .send()
        .await;
    let ledger = ledger.expect(200).json();
    assert_eq!(
        (&ledger["data"][0]["id"], &ledger["data"][0]["type"]),
        (&there["entryId"], &json!("allocate"))
    );
    let back = site.about(Method::POST, "new/user", "/deallocate").once("b");
    let back = back
        .json(&json!({ "usd": "1", "reference": "leaving" }))
        .send()
        .await
        .expect(200);
    assert_eq!(back.json()["pool"], balance("8.5", "8500"));
    assert_eq!(back.json()["endUser"], balance("1.5", "1500"));
    assert_eq!(site.events("credits.balance.changed").len(), 5);
    assert_eq!(
        (
            site.noted("credits.allocate").await,
            site.noted("credits.deallocate").await
        ),
        (1, 1)
    );
}

// Fault matrix 33, 36
async fn a_repeated_move_gives_the_same_answer_and_moves_once(store: Store) {
    let site = Site::new(store).await;
    let first = site
        .move_usd("allocate", "alice", "1", "k")
        .send()
        .await
        .expect(200);
    site.chat(&chat("flat", "hi"))
        .paid_by("alice")
        .send()
        .await
        .expect(200);
    for _ in 0..3 {
        let again = site
            .move_usd("allocate", "alice", "1", "k")
            .send()
            .await
            .expect(200);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.json(), first.json());
    }
    let changed = site.move_usd("allocate", "alice", "2", "k").send().await;
    changed.refused(409, "IDEMPOTENCY_KEY_CONFLICT");
    // The key's namespace is the route.
    site.move_usd("deallocate", "alice", "0.5", "k")
        .send()
        .await
        .expect(200);
    site.move_usd("allocate", "bob", "1", "k")
        .send()
        .await
        .expect(200);
    assert_eq!(site.balance_of("alice").await["usd"], "0.49");
    assert_eq!(site.settled().await, micros("8.5"));
    assert_eq!(site.noted("credits.allocate").await, 2);
    // An answer without a call disturbs neither the audit nor its own removal.
    site.audit();
    site.database.execute("UPDATE outcomes SET body = NULL").await;
    let late = site.move_usd("allocate", "alice", "1", "k").send().await;
    late.refused(410, "RESULT_EXPIRED");
    site.database.execute("DELETE FROM outcomes").await;
    let later = site.move_usd("allocate", "alice", "1", "k").send().await;
    later.refused(410, "RESULT_EXPIRED");
    assert_eq!(site.settled().await, micros("8.5"));
}

// I4
async fn a_move_at_once_with_one_key_happens_once(store: Store) {
    let site = Site::new(store).await;
    let mut moves = JoinSet::new();
    for _ in 0..30 {
        moves.spawn(site.move_usd("allocate", "alice", "1", "same").send());
    }
    let replies = moves.join_all().await;
    let bodies: Vec<Value> = replies.iter().map(crate::harness::Reply::json).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    let fresh = replies
        .iter()
        .filter(|reply| reply.header("idempotent-replayed").is_none());
    assert_eq!(fresh.count(), 1);
    assert_eq!(site.settled().await, micros("9"));
    // Ten dollars cannot be given away twice.
    let mut moves = JoinSet::new();
    for number in 0..30 {
        moves.spawn(site.move_usd("allocate", &format!("u{number}"), "1", "k").send());
    }
    let good = moves
        .join_all()
        .await
        .into_iter()
        .filter(|reply| reply.status == 200);
    assert_eq!((good.count(), site.settled().await), (9, 0));
}

async fn a_move_that_cannot_be_leaves_everything(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let without = site
        .about(Method::POST, "alice", "/allocate")
        .json(&json!({ "usd": "1" }));
    without.send().await.refused(400, "IDEMPOTENCY_KEY_REQUIRED");
    let bad_key = site.move_usd("allocate", "alice", "1", "a b").send().await;
    bad_key.refused(400, "IDEMPOTENCY_KEY_INVALID");
    for (body, code) in [
        (json!({}), "VALIDATION_ERROR"),
        (json!({ "usd": "0" }), "VALIDATION_ERROR"),
        (json!({ "usd": "-1" }), "VALIDATION_ERROR"),
        (json!({ "usd": 1 }), "VALIDATION_ERROR"),
        (json!({ "usd": "0.0000001" }), "VALIDATION_ERROR"),
        (json!({ "usd": "1", "reference": 5 }), "VALIDATION_ERROR"),
        (
            json!({ "usd": "1", "reference": "x".repeat(201) }),
            "VALIDATION_ERROR",
        ),
        (json!({ "usd": "1", "reference": "a\u{0}" }), "VALIDATION_ERROR"),
        (json!({ "usd": "1", "credits": "1" }), "UNKNOWN_FIELD"),
    ] {
        for way in ["allocate", "deallocate"] {
            let post = site.about(Method::POST, "alice", &format!("/{way}")).once("k");
            post.json(&body).send().await.refused(400, code);
        }
    }
    let much = site.move_usd("allocate", "alice", "10.000001", "k").send().await;
    let much = much.refused(402, "INSUFFICIENT_CREDITS").json();
    assert_eq!(
        (&much["requiredCredits"], &much["availableCredits"]),
        (&json!("10000.001"), &json!("10000"))
    );
    let back = site.move_usd("deallocate", "alice", "1.000001", "k").send().await;
    back.refused(402, "INSUFFICIENT_CREDITS");
    let unknown = site.move_usd("deallocate", "nobody", "1", "k").send().await;
    unknown.refused(404, "END_USER_NOT_FOUND");
    let never = site.about(Method::GET, "nobody", "").send().await;
    never.refused(404, "END_USER_NOT_FOUND");
    // A refused move leaves its key free.
    site.move_usd("allocate", "alice", "10", "k")
        .send()
        .await
        .expect(200);
    assert_eq!(site.settled().await, 0);
    site.operate(&["tenant", "suspend", &site.tenant]);
    eventually("moves are refused", || async {
        let key = uuid::Uuid::new_v4().to_string();
        let reply = site.move_usd("deallocate", "alice", "1", &key).send().await;
        (reply.status == 403 && reply.code() == "TENANT_SUSPENDED").then_some(())
    })
    .await;
    // Keys and workspaces may be taken from memory for a second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    for (method, below, body) in [
        (Method::PUT, "/policy", json!({})),
        (Method::POST, "/freeze", json!({})),
        (Method::DELETE, "/tokens", json!({})),
    ] {
        let change = site.about(method, "alice", below).json(&body);
        change.send().await.refused(403, "TENANT_SUSPENDED");
    }
    site.about(Method::GET, "alice", "").send().await.expect(200);
}

async fn a_frozen_balance_is_not_spent(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let token = site.token("alice", &json!({})).await;
    let set = |what: &'static str, body: Value| site.about(Method::POST, "alice", what).json(&body).send();
    let frozen = set("/freeze", json!({ "reason": "chargeback" }))
        .await
        .expect(200);
    assert_eq!(
        frozen.json(),
        json!({ "success": true, "externalUserId": "alice", "frozen": true, "changed": true })
    );
    let again = site
        .about(Method::POST, "alice", "/freeze")
        .send()
        .await
        .expect(200);
    assert_eq!(again.json()["changed"], false);
    site.chat_as(&token, "flat")
        .send()
        .await
        .refused(403, "ACCOUNT_FROZEN");
    let moved = site.move_usd("deallocate", "alice", "1", "k").send().await;
    moved.refused(403, "ACCOUNT_FROZEN");
    let me = site.client.request(Method::GET, "/api/credits/me").bearer(&token);
    assert_eq!(me.send().await.expect(200).json()["status"], "frozen");
    let user = site.about(Method::GET, "alice", "").send().await.expect(200);
    assert_eq!(user.json()["status"], "frozen");
    let free = set("/unfreeze", json!({})).await.expect(200);
    assert_eq!(
        free.json(),
        json!({ "success": true, "externalUserId": "alice", "frozen": false, "changed": true })
    );
    site.chat_as(&token, "flat").send().await.expect(200);
    let events = site.events("credits.account.frozen");
    assert_eq!(events.len(), 1);
    set("/freeze", json!({ "why": "x" }))
        .await
        .refused(400, "UNKNOWN_FIELD");
    set("/freeze", json!({ "reason": "x".repeat(501) }))
        .await
        .refused(400, "VALIDATION_ERROR");
    let unknown = site.about(Method::POST, "nobody", "/freeze").send().await;
    unknown.refused(404, "END_USER_NOT_FOUND");
}

// Fault matrix 148, 150, 152
async fn end_users_are_listed_by_id(store: Store) {
    let site = Site::new(store).await;
    let mut ids = vec![
        "User",
        "user",
        "a/b",
        "a.b@x.example",
        "x-1",
        "x-2",
        "x-3",
        "Z",
        "100%",
    ];
    ids.pop();
    for id in &ids {
        site.limit(id, &json!({})).await;
    }
    site.grant("1.5", Some("user"));
    ids.sort_unstable();
    let list = |query: &str| site.get(&format!("/api/credits/end-users{query}")).send();
    let mut found = Vec::new();
    let mut query = "?limit=3".to_owned();
    loop {
        let page = list(&query).await.expect(200).json();
        let data = page["data"].as_array().unwrap().clone();
        assert!(data.len() <= 3);
        found.extend(data);
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        query = format!("?limit=3&cursor={}", cursor.replace('/', "%2F"));
    }
    let listed: Vec<&str> = found
        .iter()
        .map(|user| user["externalUserId"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ids);
    let user = found
        .iter()
        .find(|user| user["externalUserId"] == "user")
        .unwrap();
    assert_eq!(
        *user,
        json!({ "externalUserId": "user", "status": "active", "usd": "1.5", "credits": "1500",
            "availableUsd": "1.5", "reservedUsd": "0", "createdAt": user["createdAt"] })
    );
    for (q, expected) in [
        ("ser", vec!["User", "user"]),
        ("U", vec!["User"]),
        ("x-", vec!["x-1", "x-2", "x-3"]),
        ("%25", vec![]),
        ("_", vec![]),
        ("'%20OR%201=1%20--", vec![]),
    ] {
        let page = list(&format!("?q={q}")).await.expect(200).json();
        let found: Vec<&str> = page["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|user| user["externalUserId"].as_str().unwrap())
            .collect();
        assert_eq!(found, expected, "{q}");
    }
    list("?cursor=-").await.refused(400, "CURSOR_INVALID");
    list("?cursor=").await.refused(400, "CURSOR_INVALID");
    for bad in ["?limit=0", "?limit=101", "?limit=x", "?q=%00"] {
        list(bad).await.refused(400, "VALIDATION_ERROR");
    }
}

// Fault matrix 149
async fn an_id_in_a_path_is_decoded_once(store: Store) {
    let site = Site::new(store).await;
    let get = |path: &str| site.get(&format!("/api/credits/end-users/{path}")).send();
    for id in ["a/b", "a//b", "a@b", "x", &"y".repeat(200)] {
        site.limit(id, &json!({})).await;
        let user = site.about(Method::GET, id, "").send().await.expect(200);
        assert_eq!(user.json()["externalUserId"], *id);
    }
    for same in ["a%2Fb", "a%2fb", "%61%2Fb"] {
        assert_eq!(get(same).await.expect(200).json()["externalUserId"], "a/b");
    }
    for refused in [
        "..",
        ".",
        "%2E%2E",
        "a%2F..%2Fb",
        "a%2F.",
        "a%252Fb",
        "%20",
        &"y".repeat(201),
    ] {
        get(refused).await.refused(400, "VALIDATION_ERROR");
    }
    get("../policy").await.refused(400, "VALIDATION_ERROR");
    for elsewhere in ["a/b", "a/../b", "a//b", "%FF", ""] {
        get(elsewhere).await.refused(404, "NOT_FOUND");
    }
    for unknown in ["A%2Fb", "a%2FB", "X"] {
        get(unknown).await.refused(404, "END_USER_NOT_FOUND");
    }
}

// Fault matrix 145
async fn what_another_workspace_has_is_not_found(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let minted = site.mint("alice", &json!({})).await;
    let (_, other) = site.workspace("Other");
    let ask = |method: Method, below: &str| {
        let path = format!("/api/credits/end-users/alice{below}");
        site.client.request(method, &path).bearer(&other)
    };
    let jti = format!("/tokens/{}", minted["jti"].as_str().unwrap());
    for (method, below) in [
        (Method::GET, ""),
        (Method::GET, "/policy"),
        (Method::POST, "/freeze"),
        (Method::DELETE, "/tokens"),
        (Method::DELETE, jti.as_str()),
    ] {
        ask(method, below).send().await.refused(404, "END_USER_NOT_FOUND");
    }
    let moved = ask(Method::POST, "/deallocate")
        .once("k")
        .json(&json!({ "usd": "1" }));
    moved.send().await.refused(404, "END_USER_NOT_FOUND");
    let list = site
        .client
        .request(Method::GET, "/api/credits/end-users")
        .bearer(&other);
    assert_eq!(list.send().await.expect(200).json()["data"], json!([]));
    site.mine(minted["token"].as_str().unwrap())
        .send()
        .await
        .expect(200);
    assert_eq!(site.balance_of("alice").await["usd"], "1");
}
