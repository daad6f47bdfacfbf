//! Workspaces: memberships, members and their roles, the audit log, and what each state of a workspace allows.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{CHAT, Reply, Sender, Site, Store, chat, turnpike};
use crate::on_both_stores;

on_both_stores!(
    a_person_sees_their_workspaces,
    who_belongs_to_several_says_which,
    nobody_gives_what_they_do_not_have,
    the_last_owner_stays,
    a_lowered_role_counts_at_once,
    every_change_is_in_the_audit_log,
    an_edited_log_is_found,
    a_state_allows_what_it_says,
    a_workspace_is_renamed_and_denominated_once,
);

const MEMBERS: &str = "/api/credits/tenants/me/members";

impl Site {
    fn by(&self, method: Method, path: &str, bearer: &str) -> Sender {
        self.client.request(method, path).bearer(bearer)
    }

    async fn put_role(&self, bearer: &str, subject: &str, role: &str) -> Reply {
        let path = format!("{MEMBERS}/{}", subject.replace('|', "%7C").replace('/', "%2F"));
        let put = self.by(Method::PUT, &path, bearer).json(&json!({ "role": role }));
        put.send().await
    }

    async fn remove(&self, bearer: &str, subject: &str) -> Reply {
        let path = format!("{MEMBERS}/{subject}");
        self.by(Method::DELETE, &path, bearer).send().await
    }

    /// A session of a new member.
    fn joined(&self, subject: &str, role: &str) -> String {
        self.add_member(subject, role);
        self.session(subject, &json!({}))
    }
}

async fn a_person_sees_their_workspaces(store: Store) {
    let site = Site::new(store).await;
    let stranger = site.session("ada", &json!({}));
    let mine = async |session: &str| {
        let reply = site.by(Method::GET, "/api/credits/tenants", session).send().await;
        let reply = reply.expect(200);
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        reply.json()
    };
    assert_eq!(
        mine(&stranger).await,
        json!({ "success": true, "memberships": [] })
    );
    let (zeta, _) = site.workspace("Zeta");
    let (alpha, _) = site.workspace("Alpha");
    for (tenant, role) in [(&zeta, "viewer"), (&alpha, "owner")] {
        site.operate(&[
            "member",
            "add",
            "--tenant",
            tenant,
            "--subject",
            "ada",
            "--role",
            role,
        ]);
    }
    site.operate(&["tenant", "suspend", &zeta]);
    let of = |tenant: &str, name: &str, status: &str, role: &str| json!({ "tenantId": tenant, "tenantName": name, "tenantStatus": status, "role": role });
    assert_eq!(
        mine(&stranger).await,
        json!({ "success": true, "memberships": [
            of(&alpha, "Alpha", "active", "owner"), of(&zeta, "Zeta", "suspended", "viewer"),
        ] })
    );
    // The tenant header plays no part, not even a wrong one.
    let named = site
        .by(Method::GET, "/api/credits/tenants", &stranger)
        .header("x-svc-tenant-id", "nonsense");
    assert_eq!(
        named.send().await.expect(200).json()["memberships"][0]["tenantName"],
        "Alpha"
    );
    let key = site
        .by(Method::GET, "/api/credits/tenants", &site.key)
        .send()
        .await;
    key.refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
}

// Fault matrix 140
async fn who_belongs_to_several_says_which(store: Store) {
    let site = Site::new(store).await;
    let session = site.joined("ada", "owner");
    let (other, _) = site.workspace("Other");
    let show = async |chosen: Option<&str>| {
        let mut call = site.by(Method::GET, "/api/credits/tenants/me", &session);
        if let Some(chosen) = chosen {
            call = call.header("x-svc-tenant-id", chosen);
        }
        call.send().await
    };
    let only = show(None).await.expect(200).json();
    assert_eq!(
        (&only["tenant"]["id"], &only["tenant"]["role"]),
        (&json!(site.tenant), &json!("owner"))
    );
    show(Some(&other)).await.refused(403, "TENANT_NOT_MEMBER");
    let unknown = "0190a0b0-0000-7000-8000-000000000000";
    let foreign = show(Some(&other)).await.json();
    let nowhere = show(Some(unknown)).await.refused(403, "TENANT_NOT_MEMBER").json();
    assert_eq!(foreign["message"], nowhere["message"]);
    site.operate(&[
        "member",
        "add",
        "--tenant",
        &other,
        "--subject",
        "ada",
        "--role",
        "viewer",
    ]);
    show(None).await.refused(400, "TENANT_HEADER_REQUIRED");
    show(Some("nonsense")).await.refused(400, "VALIDATION_ERROR");
    show(Some("")).await.refused(400, "VALIDATION_ERROR");
    assert_eq!(
        show(Some(&other)).await.expect(200).json()["tenant"]["role"],
        "viewer"
    );
    site.operate(&["tenant", "suspend", &other]);
    assert_eq!(
        show(Some(&other)).await.expect(200).json()["tenant"]["status"],
        "suspended"
    );
    let twice = site
        .by(Method::GET, "/api/credits/tenants/me", &session)
        .header("x-svc-tenant-id", &other)
        .header("x-svc-tenant-id", &site.tenant);
    twice.send().await.refused(400, "VALIDATION_ERROR");
}

async fn nobody_gives_what_they_do_not_have(store: Store) {
    let site = Site::new(store).await;
    let owner = site.joined("the-owner", "owner");
    let admin = site.joined("the-admin", "admin");
    let manager = site.new_key("secret", &["members:manage"]);
    let reader = site.new_key("secret", &["members:manage", "tenant:read"]);
    for session in [&owner, &admin] {
        for role in ["viewer", "billing", "developer", "admin"] {
            let put = site
                .put_role(session, "auth0|grace/1", role)
                .await
                .expect(200)
                .json();
            assert_eq!(
                (&put["member"]["subject"], &put["member"]["role"]),
                (&json!("auth0|grace/1"), &json!(role))
            );
        }
    }
    let escalation = site
        .put_role(&manager, "new", "viewer")
        .await
        .refused(403, "SCOPE_ESCALATION");
    let body = escalation.json();
    assert_eq!(
        (&body["requiredScopes"], &body["presentScopes"]),
        (&json!(["tenant:read"]), &json!(["members:manage"]))
    );
    site.put_role(&reader, "new", "viewer").await.expect(200);
    site.put_role(&reader, "new", "billing")
        .await
        .refused(403, "SCOPE_ESCALATION");
    // Nor does a key take from who has more.
    site.remove(&reader, "the-admin")
        .await
        .refused(403, "SCOPE_ESCALATION");
    site.put_role(&reader, "the-admin", "viewer")
        .await
        .refused(403, "SCOPE_ESCALATION");
    site.put_role(&site.key, "the-owner", "admin")
        .await
        .refused(403, "FORBIDDEN_ROLE");
    site.remove(&site.key, "the-owner")
        .await
        .refused(403, "FORBIDDEN_ROLE");
    site.put_role(&site.key, "new", "owner")
        .await
        .refused(403, "FORBIDDEN_ROLE");
    for role in ["admin", "billing"] {
        let put = site.put_role(&site.key, "new", role).await;
        put.refused(403, "FORBIDDEN_ROLE");
    }
    site.put_role(&site.key, "new", "developer").await.expect(200);
    site.remove(&site.key, "the-admin")
        .await
        .refused(403, "FORBIDDEN_ROLE");
    site.put_role(&admin, "new", "owner")
        .await
        .refused(403, "FORBIDDEN_ROLE");
    site.put_role(&owner, "new", "owner").await.expect(200);
    site.remove(&reader, "nobody").await.refused(404, "NOT_FOUND");
    for (body, code) in [
        (json!({}), "VALIDATION_ERROR"),
        (json!({ "role": "king" }), "VALIDATION_ERROR"),
        (json!({ "role": 1 }), "VALIDATION_ERROR"),
        (json!({ "role": "viewer", "scopes": [] }), "UNKNOWN_FIELD"),
    ] {
        let put = site.by(Method::PUT, &format!("{MEMBERS}/x"), &owner).json(&body);
        put.send().await.refused(400, code);
    }
    let long = "x".repeat(256);
    site.put_role(&owner, &long, "viewer")
        .await
        .refused(400, "VALIDATION_ERROR");
    site.put_role(&owner, "a%00b", "viewer")
        .await
        .refused(400, "VALIDATION_ERROR");
    let listed = site
        .by(Method::GET, MEMBERS, &reader)
        .send()
        .await
        .expect(200)
        .json();
    let subjects: Vec<&Value> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["subject"])
        .collect();
    assert_eq!(subjects, ["auth0|grace/1", "new", "the-admin", "the-owner"]);
}

async fn the_last_owner_stays(store: Store) {
    let site = Site::new(store).await;
    let owner = site.joined("the-owner", "owner");
    let admin = site.joined("the-admin", "admin");
    site.remove(&owner, "the-owner")
        .await
        .refused(403, "FORBIDDEN_ROLE");
    site.put_role(&owner, "the-owner", "admin")
        .await
        .refused(403, "FORBIDDEN_ROLE");
    site.remove(&admin, "the-owner")
        .await
        .refused(403, "FORBIDDEN_ROLE");
    site.put_role(&owner, "second", "owner").await.expect(200);
    let second = site.session("second", &json!({}));
    // Both at once: one of them stays.
    let (one, two) = tokio::join!(site.remove(&owner, "second"), site.remove(&second, "the-owner"));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 403]);
    let listed = site
        .by(Method::GET, MEMBERS, &site.key)
        .send()
        .await
        .expect(200)
        .json();
    let owners = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["role"] == "owner");
    assert_eq!(owners.count(), 1);
}

// Fault matrix 139
async fn a_lowered_role_counts_at_once(store: Store) {
    let site = Site::new(store).await;
    let owner = site.joined("the-owner", "owner");
    let admin = site.joined("the-admin", "admin");
    site.put_role(&admin, "x", "viewer").await.expect(200);
    site.put_role(&owner, "the-admin", "developer").await.expect(200);
    site.put_role(&admin, "x", "billing")
        .await
        .refused(403, "INSUFFICIENT_SCOPE");
    site.retiring("nobody", &admin)
        .send()
        .await
        .refused(403, "FORBIDDEN_ROLE");
    site.remove(&owner, "the-admin").await.expect(200);
    let gone = site.by(Method::GET, "/api/credits/balance", &admin).send().await;
    gone.refused(403, "TENANT_NOT_MEMBER");
}

async fn every_change_is_in_the_audit_log(store: Store) {
    let site = Site::new(store).await;
    let owner = site.joined("the-owner", "owner");
    site.put_role(&owner, "grace", "viewer").await.expect(200);
    site.put_role(&owner, "grace", "viewer").await.expect(200);
    site.put_role(&owner, "grace", "admin").await.expect(200);
    site.remove(&owner, "grace").await.expect(200);
    let page = async |query: &str| {
        let path = format!("/api/credits/audit{query}");
        site.get(&path).send().await.expect(200).json()
    };
    let members = page("?action=member.").await;
    let rows = members["data"].as_array().unwrap();
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["action"].as_str().unwrap(),
                &row["before"]["role"],
                &row["after"]["role"],
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("member.remove", &json!("admin"), &Value::Null),
            ("member.role", &json!("viewer"), &json!("admin")),
            ("member.add", &Value::Null, &json!("viewer")),
            ("member.add", &Value::Null, &json!("owner")),
        ]
    );
    assert_eq!(rows[0]["actor"], "member:the-owner");
    assert_eq!(rows[0]["target"], "grace");
    assert_eq!(
        rows[0]["origin"],
        "DELETE /api/credits/tenants/me/members/grace from 127.0.0.1"
    );
    assert_eq!(rows[3]["actor"], "operator");
    assert!(rows[0]["at"].as_str().unwrap().starts_with("20"));
    site.grant("3", Some("payer"));
    let grants = page("?action=credits.grant").await;
    let grant = &grants["data"][0];
    assert_eq!(
        (&grant["actor"], &grant["target"]),
        (&json!("operator"), &json!("payer"))
    );
    assert_eq!(grant["after"]["amountUsd"], "3");
    assert!(grant["after"]["reason"].is_string() && grant["origin"].is_string());
    // Every row once, page by page.
    let all = page("?limit=100").await;
    assert_eq!(all["next_cursor"], Value::Null);
    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = page(&format!("?limit=2{cursor}")).await;
        paged.extend(page["data"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(all["data"], json!(paged));
    let sequences: Vec<i64> = paged
        .iter()
        .map(|row| row["sequence"].as_str().unwrap().parse().unwrap())
        .collect();
    let count = i64::try_from(paged.len()).unwrap();
    assert_eq!(sequences, (1..=count).rev().collect::<Vec<i64>>());
    for (query, code) in [
        ("?limit=0", "VALIDATION_ERROR"),
        ("?limit=101", "VALIDATION_ERROR"),
        ("?cursor=x", "CURSOR_INVALID"),
        (&format!("?action={}", "x".repeat(101)), "VALIDATION_ERROR"),
    ] {
        site.get(&format!("/api/credits/audit{query}"))
            .send()
            .await
            .refused(400, code);
    }
    assert_eq!(page("?action=%00").await["data"], json!([]));
    let exported = turnpike(&site.config, &site.data)
        .args(["export", "audit", "--tenant", &site.tenant, "--format", "jsonl"])
        .output()
        .unwrap();
    assert!(exported.status.success());
    let lines = String::from_utf8(exported.stdout).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    paged.reverse();
    assert_eq!(lines, paged);
}

async fn an_edited_log_is_found(store: Store) {
    let mut site = Site::new(store).await;
    site.audited = false;
    site.add_member("ada", "owner");
    let unguard = match store {
        Store::Sqlite => "DROP TRIGGER audit_log_no_update",
        Store::Postgres => "ALTER TABLE audit_log DISABLE TRIGGER ALL",
    };
    site.database.execute(unguard).await;
    site.database
        .execute("UPDATE audit_log SET target = 'eve' WHERE target = 'ada'")
        .await;
    let (status, report, _) = crate::harness::operate(&site.config, &site.data, &["audit"]);
    assert_eq!(status.code(), Some(1));
    assert!(report.to_string().contains("chain hash differs"), "{report}");
}

// Fault matrix 151
async fn a_state_allows_what_it_says(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let owner = site.joined("the-owner", "owner");
    let minted = site.mint("alice", &json!({})).await;
    let token = minted["token"].as_str().unwrap().to_owned();
    let spends = async || {
        let by_key = site.chat(&chat("flat", "hi")).send().await;
        let by_token = site
            .by(Method::POST, CHAT, &token)
            .json(&chat("flat", "hi"))
            .send()
            .await;
        (by_key, by_token)
    };
    let settings = async || {
        let put = site.by(Method::PUT, "/api/credits/tenants/me/settings", &site.key);
        put.json(&json!({})).send().await
    };
    let reads = async |bearer: &str| site.by(Method::GET, "/api/credits/balance", bearer).send().await;
    let becomes = async |status: i64| {
        let set = format!("UPDATE tenants SET status = {status}");
        site.database.execute(&set).await;
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    };
    // Suspended: reads.
    becomes(1).await;
    reads(&site.key).await.expect(200);
    settings().await.refused(403, "TENANT_SUSPENDED");
    let (by_key, by_token) = spends().await;
    by_key.refused(403, "TENANT_SUSPENDED");
    by_token.refused(403, "TENANT_SUSPENDED");
    site.put_role(&owner, "x", "viewer")
        .await
        .refused(403, "TENANT_SUSPENDED");
    let revoked = site.about(Method::DELETE, "alice", "/tokens").send().await;
    revoked.refused(403, "TENANT_SUSPENDED");
    // Frozen: everything but money.
    becomes(2).await;
    settings().await.expect(200);
    site.put_role(&owner, "x", "viewer").await.expect(200);
    let (by_key, _) = spends().await;
    by_key.refused(403, "TENANT_SUSPENDED");
    let moved = site.move_usd("allocate", "alice", "0.1", "k").send().await;
    moved.refused(403, "TENANT_SUSPENDED");
    // Closed: its members read.
    becomes(3).await;
    reads(&owner).await.expect(200);
    reads(&site.key).await.refused(403, "TENANT_SUSPENDED");
    settings().await.refused(403, "TENANT_SUSPENDED");
    site.remove(&owner, "x").await.refused(403, "TENANT_SUSPENDED");
    becomes(0).await;
    let (by_key, _) = spends().await;
    by_key.expect(200);
}

async fn a_workspace_is_renamed_and_denominated_once(store: Store) {
    let site = Site::new(store).await;
    let (_, key) = site.workspace("New");
    let change = async |key: &str, body: Value| {
        let patch = site.by(Method::PATCH, "/api/credits/tenants/me", key);
        patch.json(&body).send().await
    };
    let changed = change(&key, json!({ "name": "Newer", "creditsPerDollar": 100 })).await;
    let changed = changed.expect(200).json();
    assert_eq!(
        (&changed["tenant"]["name"], &changed["tenant"]["creditsPerDollar"]),
        (&json!("Newer"), &json!(100))
    );
    // The workspace of the tests has money already.
    let refused = change(&site.key, json!({ "creditsPerDollar": 100 })).await;
    refused.refused(400, "VALIDATION_ERROR");
    change(&site.key, json!({ "name": "Renamed", "creditsPerDollar": 1000 }))
        .await
        .expect(200);
    let shown = site
        .get("/api/credits/tenants/me")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(shown["tenant"]["name"], "Renamed");
    for (body, code) in [
        (json!({ "name": "" }), "VALIDATION_ERROR"),
        (json!({ "name": "x".repeat(101) }), "VALIDATION_ERROR"),
        (json!({ "name": null }), "VALIDATION_ERROR"),
        (json!({ "creditsPerDollar": 0 }), "VALIDATION_ERROR"),
        (json!({ "creditsPerDollar": 1_000_001 }), "VALIDATION_ERROR"),
        (json!({ "status": "closed" }), "UNKNOWN_FIELD"),
    ] {
        change(&site.key, body).await.refused(400, code);
    }
}
