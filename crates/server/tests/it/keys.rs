//! API keys over HTTP: issued once, shown never again, narrowed, replaced, revoked.

use http::Method;
use serde_json::{Value, json};

use crate::harness::people::user_path;
use crate::harness::upstream::{completion, tokens};
use crate::harness::{CHAT, Gate, Reply, Site, Step, Store, TOOL, chat, eventually};
use crate::on_both_stores;

on_both_stores!(
    a_key_is_shown_once_and_works,
    only_an_administrator_with_a_fresh_second_factor_issues_keys,
    what_nobody_may_have_is_not_issued,
    a_key_calls_what_it_is_narrowed_to,
    a_key_is_replaced_and_the_old_one_ends,
    a_revoked_key_is_refused_at_once,
    a_running_call_outlives_its_key,
    keys_of_others_do_not_exist,
    keys_are_paged_newest_first,
    the_last_use_is_noted_without_a_write_per_call,
    a_narrowed_key_mints_narrowed_tokens,
);

pub const KEYS: &str = "/api/credits/tenants/me/keys";

impl Site {
    /// Asks for a key.
    pub async fn ask_for_key(&self, session: &str, body: &Value) -> Reply {
        let ask = self.client.request(Method::POST, KEYS).bearer(session);
        ask.json(body).send().await
    }

    /// A key that the owner issues.
    pub async fn issue(&self, body: &Value) -> Value {
        let owner = self.owner();
        self.ask_for_key(&owner, body).await.expect(201).json()
    }

    /// Switches a provider, or `provider/endpoint`, on or off.
    pub async fn switch(&self, what: &str, enabled: &Value) -> Reply {
        let path = format!("/api/credits/catalog/{what}");
        let put = self.client.request(Method::PUT, &path).bearer(&self.key);
        put.json(&json!({ "enabled": enabled })).send().await
    }

    /// A request about a key.
    pub async fn about_key(
        &self,
        method: Method,
        id: &str,
        below: &str,
        bearer: &str,
        body: &Value,
    ) -> Reply {
        let path = format!("{KEYS}/{id}{below}");
        let call = self.client.request(method.clone(), &path).bearer(bearer);
        if method == Method::GET || method == Method::DELETE {
            call.send().await
        } else {
            call.json(body).send().await
        }
    }
}

pub fn id_of(issued: &Value) -> String {
    issued["keyMetadata"]["id"].as_str().unwrap().to_owned()
}

fn raw(issued: &Value) -> &str {
    issued["key"].as_str().unwrap()
}

// Fault matrix 142, I13
async fn a_key_is_shown_once_and_works(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    let body = json!({
        "name": "Shop server", "scopes": ["tenant:read", "credits:move", "tenant:read"], "expiresIn": 3600,
        "pricing": { "markupBps": 500, "endpoints": { "tools/fetch": { "flatMarkupUsdc": "0.25" } } },
        "tools": { "enable": ["tools/*", "up/flat"] },
    });
    let reply = site.ask_for_key(&owner, &body).await.expect(201);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let issued = reply.json();
    let key = raw(&issued);
    assert_eq!(
        (&issued["success"], &issued["kind"]),
        (&json!(true), &json!("secret"))
    );
    assert!(
        key.starts_with("svc_sk_live_") && key.len() == "svc_sk_live_".len() + 49,
        "{key}"
    );
    let metadata = &issued["keyMetadata"];
    for (name, value) in [
        ("name", json!("Shop server")),
        ("kind", json!("secret")),
        ("keyPrefix", json!(key[..16])),
        ("scopes", json!(["tenant:read", "credits:move"])),
        ("pricing", body["pricing"].clone()),
        ("tools", body["tools"].clone()),
        ("status", json!("active")),
        ("createdBy", json!("member:the-owner")),
        ("lastUsedAt", json!(null)),
        ("revokedAt", json!(null)),
    ] {
        assert_eq!(metadata[name], value, "{name}");
    }
    assert_eq!(metadata.as_object().unwrap().len(), 13);
    // Any member with the scope looks, and never sees the key.
    let id = id_of(&issued);
    let shown = site
        .about_key(Method::GET, &id, "", &site.key, &json!({}))
        .await
        .expect(200);
    assert_eq!(shown.json()["keyMetadata"], *metadata);
    let list = site.get(KEYS).send().await.expect(200);
    for seen in [&shown, &list] {
        assert!(!seen.text().contains(&key[16..]), "{}", seen.text());
        assert_eq!(seen.header("cache-control"), Some("no-store"));
    }
    assert!(!site.service().logged().contains(&key[16..]));
    let balance = site
        .client
        .request(Method::GET, "/api/credits/balance")
        .bearer(key);
    balance.send().await.expect(200);
    // What it may not do is told.
    let settings = site
        .client
        .request(Method::PUT, "/api/credits/tenants/me/settings")
        .bearer(key);
    settings
        .json(&json!({}))
        .send()
        .await
        .refused(403, "INSUFFICIENT_SCOPE");
    assert_eq!(
        (site.noted("key.create").await, site.noted("key.pricing").await),
        (2, 1)
    );
}

// Fault matrix 139
async fn only_an_administrator_with_a_fresh_second_factor_issues_keys(store: Store) {
    let site = Site::new(store).await;
    let body = json!({ "name": "n" });
    for (role, status, code) in [
        ("developer", 403, "FORBIDDEN_ROLE"),
        ("billing", 403, "FORBIDDEN_ROLE"),
        ("viewer", 403, "FORBIDDEN_ROLE"),
    ] {
        site.add_member(role, role);
        let session = site.session(role, &json!({}));
        site.ask_for_key(&session, &body).await.refused(status, code);
    }
    site.ask_for_key(&site.key, &body)
        .await
        .refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    site.add_member("chief", "admin");
    let stale = site.session("chief", &json!({ "auth_time": 1 }));
    let refused = site
        .ask_for_key(&stale, &body)
        .await
        .refused(401, "STEP_UP_REQUIRED");
    assert!(
        refused
            .header("www-authenticate")
            .unwrap()
            .contains("acr_values=\"mfa\"")
    );
    let single = site.session("chief", &json!({ "amr": ["pwd"] }));
    site.ask_for_key(&single, &body)
        .await
        .refused(401, "STEP_UP_REQUIRED");
    let fresh = site.session("chief", &json!({}));
    site.ask_for_key(&fresh, &body).await.expect(201);
    // The role is the one that is stored now.
    site.add_member("chief", "viewer");
    site.ask_for_key(&fresh, &body)
        .await
        .refused(403, "FORBIDDEN_ROLE");
}

// Fault matrix 141
async fn what_nobody_may_have_is_not_issued(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    let long = "x".repeat(101);
    let (unknown, wrong) = ("UNKNOWN_FIELD", "VALIDATION_ERROR");
    for (body, code, path) in [
        (json!({}), wrong, "name"),
        (json!({ "name": "" }), wrong, "name"),
        (json!({ "name": long }), wrong, "name"),
        (
            json!({ "name": "n", "scopes": ["tenant:all"] }),
            wrong,
            "scopes/0",
        ),
        (
            json!({ "name": "n", "kind": "publishable", "scopes": ["tenant:read"] }),
            wrong,
            "scopes",
        ),
        (
            json!({ "name": "n", "kind": "sandbox", "scopes": ["widget:read"] }),
            wrong,
            "scopes",
        ),
        (json!({ "name": "n", "expiresIn": 59 }), wrong, "expiresIn"),
        (
            json!({ "name": "n", "expiresIn": 31_536_001 }),
            wrong,
            "expiresIn",
        ),
        (json!({ "name": "n", "admin": true }), unknown, "admin"),
        (
            json!({ "name": "n", "pricing": { "bps": 1 } }),
            unknown,
            "pricing.bps",
        ),
        (
            json!({ "name": "n", "tools": { "deny": [] } }),
            unknown,
            "tools.deny",
        ),
        (
            json!({ "name": "n", "pricing": { "endpoints": { "tools/fetch": { "x": 1 } } } }),
            unknown,
            "pricing.endpoints.tools/fetch.x",
        ),
        (
            json!({ "name": "n", "pricing": { "endpoints": { "tools/none": {} } } }),
            wrong,
            "pricing.endpoints.tools/none",
        ),
        (
            json!({ "name": "n", "tools": { "enable": ["tools/fetch", "tools/none"] } }),
            wrong,
            "tools.enable/1",
        ),
        (
            json!({ "name": "n", "tools": { "enable": ["none/*"] } }),
            wrong,
            "tools.enable/0",
        ),
    ] {
        let refused = site.ask_for_key(&owner, &body).await.refused(400, code);
        assert_eq!(refused.json()["details"][0]["path"], path, "{body}");
    }
    // What the workspace has switched off cannot be given to a key, either.
    site.switch("tools/fetch", &json!(false)).await.expect(200);
    for body in [
        json!({ "name": "n", "tools": { "enable": ["tools/fetch"] } }),
        json!({ "name": "n", "pricing": { "endpoints": { "tools/fetch": { "markupBps": 1 } } } }),
    ] {
        site.ask_for_key(&owner, &body).await.refused(400, wrong);
    }
    site.switch("tools", &json!(false)).await.expect(200);
    let all = json!({ "name": "n", "tools": { "enable": ["tools/*"] } });
    site.ask_for_key(&owner, &all).await.refused(400, wrong);
    site.switch("tools/item", &json!(true)).await.expect(200);
    site.ask_for_key(&owner, &all).await.expect(201);
    assert_eq!(
        site.noted("key.create").await,
        2,
        "the workspace's own and the last one"
    );
}

async fn a_key_calls_what_it_is_narrowed_to(store: Store) {
    let site = Site::new(store).await;
    let issued = site
        .issue(&json!({ "name": "n", "tools": { "enable": ["up/flat", "tools/item"] } }))
        .await;
    let key = raw(&issued);
    let post = |path: &str, body: &Value| site.client.request(Method::POST, path).bearer(key).json(body);
    post(CHAT, &chat("flat", "hi")).send().await.expect(200);
    post(CHAT, &chat("dear", "hi"))
        .send()
        .await
        .refused(403, "ENDPOINT_DISABLED");
    post(TOOL, &json!({}))
        .once("a")
        .send()
        .await
        .refused(403, "ENDPOINT_DISABLED");
    let models = site
        .client
        .request(Method::GET, "/api/wrapped/credits/v1/models")
        .bearer(key);
    let models = models.send().await.expect(200).json();
    let ids: Vec<&str> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["flat"]);
    assert_eq!(site.upstream.count(), 1);
    // Prices of a key are for end users' calls through it.
    let priced = site
        .issue(&json!({ "name": "p", "pricing": { "flatMarkupUsdc": "0.5" } }))
        .await;
    site.grant("5", Some("alice"));
    let call = site.client.request(Method::POST, CHAT).bearer(raw(&priced));
    let paid = call
        .clone()
        .paid_by("alice")
        .json(&chat("flat", "hi"))
        .send()
        .await
        .expect(200);
    assert_eq!(paid.header("x-svc-cost-usd"), Some("0.51"));
    let pool = call.json(&chat("flat", "hi")).send().await.expect(200);
    assert_eq!(pool.header("x-svc-cost-usd"), Some("0.01"));
    let id = id_of(&priced);
    let bearer = site.key.clone();
    let put = async |body: Value| site.about_key(Method::PUT, &id, "/pricing", &bearer, &body).await;
    put(json!({ "markupBps": 100_001 }))
        .await
        .refused(400, "VALIDATION_ERROR");
    put(json!({ "endpoints": { "up/none": {} } }))
        .await
        .refused(400, "VALIDATION_ERROR");
    let changed = put(json!({ "markupBps": 10_000 })).await.expect(200).json();
    assert_eq!(changed["keyMetadata"]["pricing"], json!({ "markupBps": 10_000 }));
    let call = site
        .client
        .request(Method::POST, CHAT)
        .bearer(raw(&priced))
        .paid_by("alice");
    let paid = call.json(&chat("flat", "hi")).send().await.expect(200);
    assert_eq!(paid.header("x-svc-cost-usd"), Some("0.02"));
}

async fn a_key_is_replaced_and_the_old_one_ends(store: Store) {
    let site = Site::new(store).await;
    let owner = site.owner();
    let body =
        json!({ "name": "n", "scopes": ["tenant:read"], "expiresIn": 7200, "pricing": { "markupBps": 5 } });
    let old = site.issue(&body).await;
    let works = async |key: &str| {
        let read = site
            .client
            .request(Method::GET, "/api/credits/balance")
            .bearer(key);
        read.send().await
    };
    works(raw(&old)).await.expect(200);
    let id = id_of(&old);
    let rotate =
        async |id: &str, body: Value| site.about_key(Method::POST, id, "/rotate", &owner, &body).await;
    rotate(&id, json!({ "overlapSeconds": 86_401 }))
        .await
        .refused(400, "VALIDATION_ERROR");
    rotate(&id, json!({ "overlap": 1 }))
        .await
        .refused(400, "UNKNOWN_FIELD");
    site.about_key(Method::POST, &id, "/rotate", &site.key, &json!({}))
        .await
        .refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");
    let new = rotate(&id, json!({ "overlapSeconds": 2 }))
        .await
        .expect(201)
        .json();
    assert_eq!(new["keyMetadata"]["expiresAt"], old["keyMetadata"]["expiresAt"]);
    for name in ["name", "kind", "scopes", "pricing", "tools"] {
        assert_eq!(new["keyMetadata"][name], old["keyMetadata"][name], "{name}");
    }
    works(raw(&old)).await.expect(200);
    works(raw(&new)).await.expect(200);
    rotate(&id, json!({})).await.refused(409, "ALREADY_EXISTS");
    eventually("the overlap is over", || async {
        (works(raw(&old)).await.status == 401).then_some(())
    })
    .await;
    works(raw(&old)).await.refused(401, "CREDENTIAL_EXPIRED");
    rotate(&id, json!({})).await.refused(400, "VALIDATION_ERROR");
    let at_once = rotate(&id_of(&new), json!({ "overlapSeconds": 0 }))
        .await
        .expect(201)
        .json();
    works(raw(&new)).await.refused(401, "CREDENTIAL_EXPIRED");
    works(raw(&at_once)).await.expect(200);
    assert_eq!(site.noted("key.rotate").await, 2);
}

// Fault matrix 147
async fn a_revoked_key_is_refused_at_once(store: Store) {
    let site = Site::new(store).await;
    let issued = site
        .issue(&json!({ "name": "n", "scopes": ["tenant:read", "credentials:manage"] }))
        .await;
    let (key, id) = (raw(&issued).to_owned(), id_of(&issued));
    let read = || {
        site.client
            .request(Method::GET, "/api/credits/balance")
            .bearer(&key)
            .send()
    };
    read().await.expect(200);
    // A key may end itself; nobody has to find a second factor first.
    let revoked = site
        .about_key(Method::DELETE, &id, "", &key, &json!({}))
        .await
        .expect(200)
        .json();
    assert_eq!(revoked["keyMetadata"]["status"], "revoked");
    read().await.refused(401, "CREDENTIAL_REVOKED");
    let again = site
        .about_key(Method::DELETE, &id, "", &site.key, &json!({}))
        .await
        .expect(200)
        .json();
    assert_eq!(again, revoked);
    assert_eq!(site.noted("key.revoke").await, 1);
}

// Fault matrix 147
async fn a_running_call_outlives_its_key(store: Store) {
    let site = Site::new(store).await;
    let issued = site.issue(&json!({ "name": "n" })).await;
    let gate = Gate::new();
    let answer = completion(1, &tokens(1, 1));
    site.upstream.always(vec![Step::Wait(gate.clone()), answer]);
    let call = site.client.request(Method::POST, CHAT).bearer(raw(&issued));
    let running = tokio::spawn(call.json(&chat("flat", "hi")).send());
    eventually("the call was sent", || async {
        (site.upstream.count() == 1).then_some(())
    })
    .await;
    site.about_key(Method::DELETE, &id_of(&issued), "", &site.key, &json!({}))
        .await
        .expect(200);
    gate.open();
    running.await.unwrap().expect(200);
    let next = site.client.request(Method::POST, CHAT).bearer(raw(&issued));
    next.json(&chat("flat", "hi"))
        .send()
        .await
        .refused(401, "CREDENTIAL_REVOKED");
}

// Fault matrix 145
async fn keys_of_others_do_not_exist(store: Store) {
    let site = Site::new(store).await;
    let issued = site.issue(&json!({ "name": "n" })).await;
    let (tenant, stranger) = site.workspace("Others");
    site.operate(&[
        "member",
        "add",
        "--tenant",
        &tenant,
        "--subject",
        "boss",
        "--role",
        "owner",
    ]);
    let boss = site.session("boss", &json!({}));
    let (theirs, nobodys) = (id_of(&issued), uuid::Uuid::now_v7().to_string());
    for (method, below, bearer) in [
        (Method::GET, "", &stranger),
        (Method::DELETE, "", &stranger),
        (Method::PUT, "/pricing", &stranger),
        (Method::POST, "/rotate", &boss),
    ] {
        let mut bodies = Vec::new();
        for id in [&theirs, &nobodys, &"not-a-uuid".to_owned()] {
            let reply = site
                .about_key(method.clone(), id, below, bearer, &json!({}))
                .await;
            let mut body = reply.refused(404, "NOT_FOUND").json();
            body.as_object_mut().unwrap().remove("requestId");
            bodies.push(body);
        }
        assert!(
            bodies.iter().all(|body| *body == bodies[0]),
            "{method} {below}: {bodies:?}"
        );
    }
    let path = "/api/credits/pricing/explain?provider=tools&endpoint=fetch&keyId=";
    for id in [&theirs, &nobodys] {
        let asked = site
            .client
            .request(Method::GET, &format!("{path}{id}"))
            .bearer(&boss);
        asked.send().await.refused(404, "NOT_FOUND");
    }
    let own = site
        .client
        .request(Method::GET, &format!("{path}{theirs}"))
        .bearer(&site.owner());
    own.send().await.expect(200);
    let list = site
        .client
        .request(Method::GET, KEYS)
        .bearer(&stranger)
        .send()
        .await
        .expect(200);
    assert!(!list.text().contains(&theirs));
}

// Fault matrix 177, 178, 179
async fn keys_are_paged_newest_first(store: Store) {
    let site = Site::new(store).await;
    let mut made = vec![site.get(KEYS).send().await.expect(200).json()["data"][0]["id"].clone()];
    for number in 0..6 {
        made.insert(
            0,
            json!(id_of(&site.issue(&json!({ "name": format!("k{number}") })).await)),
        );
    }
    let page = async |query: String| site.get(&format!("{KEYS}{query}")).send().await;
    let (mut seen, mut query) = (Vec::new(), "?limit=3".to_owned());
    loop {
        let body = page(query).await.expect(200).json();
        seen.extend(
            body["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|key| key["id"].clone()),
        );
        match body["next_cursor"].as_str() {
            Some(cursor) => query = format!("?limit=3&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    for bad in ["0", "101", "-1", "x"] {
        page(format!("?limit={bad}"))
            .await
            .refused(400, "VALIDATION_ERROR");
    }
    for path in [KEYS, "/api/credits/pricing/history"] {
        let bad = site.get(&format!("{path}?cursor=x%20y")).send().await;
        bad.refused(400, "CURSOR_INVALID");
    }
}

async fn the_last_use_is_noted_without_a_write_per_call(store: Store) {
    let site = Site::new(store).await;
    let issued = site
        .issue(&json!({ "name": "n", "scopes": ["tenant:read"] }))
        .await;
    let id = id_of(&issued);
    let used = async || {
        let shown = site
            .about_key(Method::GET, &id, "", &site.key, &json!({}))
            .await
            .expect(200);
        shown.json()["keyMetadata"]["lastUsedAt"].clone()
    };
    assert!(used().await.is_null());
    let read = || {
        site.client
            .request(Method::GET, "/api/credits/balance")
            .bearer(raw(&issued))
            .send()
    };
    read().await.expect(200);
    let first = used().await;
    assert!(first.is_string());
    // Longer than keys are kept in memory: the key is read again and again, and written once a minute.
    for _ in 0..4 {
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        read().await.expect(200);
    }
    assert_eq!(used().await, first);
}

async fn a_narrowed_key_mints_narrowed_tokens(store: Store) {
    let site = Site::new(store).await;
    site.grant("1", Some("alice"));
    let body = json!({
        "name": "n", "scopes": ["tokens:manage"], "tools": { "enable": ["tools/item", "up/*"] },
    });
    let key = site.issue(&body).await["key"].as_str().unwrap().to_owned();
    let mint = async |body: Value| {
        let post = site.client.request(Method::POST, &user_path("alice", "/tokens"));
        post.bearer(&key).json(&body).send().await
    };
    let fetches = async |body: Value| {
        let minted = mint(body).await.expect(201).json();
        let call = site.client.request(Method::POST, TOOL);
        let call = call.bearer(minted["token"].as_str().unwrap());
        call.json(&json!({ "id": "x" })).once("k").send().await
    };
    // Neither silence nor a list of the token's own gives what the key does not have.
    fetches(json!({})).await.refused(403, "POLICY_DENIED");
    fetches(json!({ "tools": ["up/flat"] }))
        .await
        .refused(403, "POLICY_DENIED");
    for more in [
        json!(["tools/fetch"]),
        json!(["tools/*"]),
        json!(["up/flat", "tools/fetch"]),
    ] {
        let refused = mint(json!({ "tools": more })).await;
        refused.refused(403, "ENDPOINT_DISABLED");
    }
    let fewer = mint(json!({ "tools": ["up/flat"] })).await.expect(201).json();
    let token = fewer["token"].as_str().unwrap();
    site.chat_as(token, "flat").send().await.expect(200);
    let call = site.chat_as(token, "tokens").send().await;
    call.refused(403, "POLICY_DENIED");
}
