//! Two workspaces with everything in both: no id of one reaches anything of the other, by any route (fault matrix 145,
//! 150). Another's id is answered as one that nobody has.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::agents::{AGENTS, wanted};
use crate::approvals::APPROVALS;
use crate::harness::hooks::{ENDPOINTS, HOOK_EVENTS};
use crate::harness::payments::POOL_TOPUPS;
use crate::harness::payouts::{ADDRESS, PAYOUTS};
use crate::harness::people::{seconds, user_path};
use crate::harness::{Reply, Sender, Site, Store, chat};
use crate::keys::KEYS;
use crate::matrix::{Access, Row, rows};
use crate::on_both_stores;

on_both_stores!(an_id_of_another_workspace_is_as_good_as_none);

const INVITATIONS: &str = "/api/credits/tenants/me/invitations";

/// A workspace with one of everything.
struct World {
    tenant: String,
    key: String,
    /// A session of its owner.
    owner: String,
    /// A token of its end user.
    token: String,
    /// What stands for each parameter of a path.
    ids: BTreeMap<&'static str, String>,
}

/// Ids of the same shape that nobody has.
fn nobodys() -> BTreeMap<&'static str, String> {
    // As new as the others: what is older than events are kept was one that is gone.
    let millis = u128::try_from(seconds() * 1000).unwrap();
    let unknown = uuid::Uuid::from_u128((millis << 80) | (0x7000 << 64) | (0x8000 << 48)).to_string();
    let mut ids: BTreeMap<_, _> = [
        "callId",
        "receiptId",
        "jti",
        "eventId",
        "endpointId",
        "keyId",
        "payoutId",
        "invitationId",
        "quoteId",
        "approvalId",
        "agentId",
    ]
    .map(|name| (name, unknown.clone()))
    .into();
    ids.insert("sessionId", format!("cs_{}", "0".repeat(32)));
    ids.insert("externalUserId", "nobody-at-all".to_owned());
    ids.insert("subject", "nobody-at-all".to_owned());
    ids
}

#[track_caller]
fn id(value: &Value) -> String {
    value.as_str().expect("an id").to_owned()
}

impl World {
    /// Makes one of everything in the workspace that `site` is about.
    async fn new(site: &Site, name: &str) -> Self {
        let (user, owner) = (format!("user-of-{name}"), format!("owner-of-{name}"));
        site.add_member(&owner, "owner");
        let owner_session = site.session(&owner, &json!({}));
        let as_owner = |method, path: &str, body: Value| {
            let once = uuid::Uuid::new_v4().to_string();
            site.as_member(&owner_session, method, path)
                .json(&body)
                .once(&once)
        };
        let made = async |sender: Sender, status: u16| sender.send().await.expect(status).json();
        site.grant("10", None);
        // Earns margin, so that there is something to pay out.
        let prices = json!({ "pricing": { "global": { "flatMarkupUsdc": "3" } } });
        made(
            as_owner(Method::PUT, "/api/credits/tenants/me/settings", prices),
            200,
        )
        .await;
        site.grant("10", Some(&user));
        let called = site
            .chat(&chat("flat", "hi"))
            .paid_by(&user)
            .send()
            .await
            .expect(200);
        let minted = site.mint(&user, &json!({})).await;
        let topup = made(as_owner(Method::POST, POOL_TOPUPS, json!({ "usd": "5" })), 200).await;
        let hook = json!({ "url": "https://192.0.9.9/", "eventTypes": ["credits.dispute.opened"] });
        let hook = made(as_owner(Method::POST, ENDPOINTS, hook), 201).await;
        let key = made(as_owner(Method::POST, KEYS, json!({ "name": name })), 201).await;
        let invited = json!({ "role": "viewer" });
        let invited = made(as_owner(Method::POST, INVITATIONS, invited), 201).await;
        let agent = wanted(json!({ "externalUserId": user }));
        let agent = made(as_owner(Method::POST, AGENTS, agent), 201).await;
        let address = json!({ "address": ADDRESS, "network": "eip155:8453" });
        let stablecoin = format!("{PAYOUTS}/stablecoin");
        made(as_owner(Method::PUT, &stablecoin, address), 200).await;
        let payout = made(as_owner(Method::POST, PAYOUTS, json!({})), 201).await;
        let limit = json!({ "allowedTools": ["up/*"] });
        site.limit(&user, &limit).await;
        let wish = json!({ "slug": "tools/fetch", "externalUserId": user });
        let approval = made(site.post(APPROVALS, &wish), 201).await;
        let estimate = site.estimate(&json!({ "slug": "tools/fetch" })).await;
        let events = made(site.get(HOOK_EVENTS), 200).await;
        let ids = BTreeMap::from([
            ("callId", called.header("x-svc-call-id").unwrap().to_owned()),
            // Nothing is sold to wallets here, and a receipt is of no workspace.
            ("receiptId", called.header("x-svc-call-id").unwrap().to_owned()),
            ("jti", id(&minted["jti"])),
            ("externalUserId", user),
            ("sessionId", id(&topup["sessionId"])),
            ("eventId", id(&events["data"][0]["id"])),
            ("endpointId", id(&hook["endpoint"]["id"])),
            ("keyId", id(&key["keyMetadata"]["id"])),
            ("invitationId", id(&invited["invitation"]["id"])),
            ("payoutId", id(&payout["payout"]["payoutId"])),
            ("approvalId", id(&approval["approval"]["id"])),
            ("quoteId", id(&estimate["estimate"]["id"])),
            ("agentId", id(&agent["agentConnection"]["id"])),
            ("subject", owner.clone()),
        ]);
        Self {
            tenant: site.tenant.clone(),
            key: site.key.clone(),
            owner: owner_session,
            token: id(&minted["token"]),
            ids,
        }
    }
}

/// The parameters of a route that name something of a workspace.
fn parameters(route: &str) -> Vec<&str> {
    let names = route.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    names
        .filter(|name| !["provider", "endpoint"].contains(name))
        .collect()
}

fn filled(route: &str, ids: &BTreeMap<&'static str, String>) -> String {
    let mut path = route
        .replace("{provider}", "tools")
        .replace("{endpoint}", "fetch");
    for (name, id) in ids {
        path = path.replace(&format!("{{{name}}}"), id);
    }
    path
}

/// What was answered, without what differs between two requests anyway: the ids that were asked for, the request's own
/// id, and in an answer that is no refusal every value.
fn told(reply: &Reply, ids: &BTreeMap<&'static str, String>) -> (u16, Value) {
    let mut text = reply.text();
    for (name, id) in ids {
        text = text.replace(id.as_str(), name);
    }
    let mut body: Value = serde_json::from_str(&text).unwrap_or_default();
    if reply.status < 300 {
        return (reply.status, shape(&body));
    }
    body.as_object_mut().unwrap().remove("requestId");
    (reply.status, body)
}

fn shape(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), shape(value)))
            .collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        _ => Value::Null,
    }
}

struct Asker<'a> {
    site: &'a Site,
    world: &'a World,
}

impl Asker<'_> {
    async fn ask(&self, row: &Row, path: &str) -> Reply {
        let bearer = match row.access {
            Access::EndUser(_) => &self.world.token,
            Access::Calling | Access::CallingOrMember => &self.world.key,
            _ => &self.world.owner,
        };
        let mut call = self.site.client.request(row.method.clone(), path).bearer(bearer);
        if row.method != Method::GET {
            call = call.json(&row.body).once(&uuid::Uuid::new_v4().to_string());
        }
        call.send().await
    }

    /// Everything that can be read of the asker's own, by every route.
    async fn everything(&self) -> BTreeMap<String, Value> {
        let mut seen = BTreeMap::new();
        for row in rows().iter().filter(|row| row.method == Method::GET) {
            let skipped = [Access::Public, Access::Person].contains(&row.access);
            if skipped || row.access == Access::Calling {
                continue;
            }
            let path = if row.route.contains("explain") {
                row.path.to_owned()
            } else {
                filled(row.route, &self.world.ids)
            };
            let reply = self.ask(row, &path).await;
            let mut body = reply.json();
            forget(&mut body);
            seen.insert(path, body);
        }
        seen
    }
}

/// Leaves out what reading itself changes.
fn forget(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !["lastUsedAt", "requestId"].contains(&name.as_str()));
            members.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}

async fn an_id_of_another_workspace_is_as_good_as_none(store: Store) {
    let mut site = Site::new(store).await;
    let ours = World::new(&site, "ours").await;
    let (tenant, key) = site.workspace("Theirs");
    (site.tenant, site.key) = (tenant, key);
    let theirs = World::new(&site, "theirs").await;
    (site.tenant, site.key) = (ours.tenant.clone(), ours.key.clone());

    let us = Asker {
        site: &site,
        world: &ours,
    };
    let them = Asker {
        site: &site,
        world: &theirs,
    };
    let before = them.everything().await;
    let own = us.everything().await;
    for (path, body) in &own {
        for id in theirs.ids.values() {
            assert!(
                !body.to_string().contains(id.as_str()),
                "{path} shows {id}: {body}"
            );
        }
    }
    // All of them exist where they belong.
    for (path, body) in before.iter().chain(&own) {
        assert!(
            body["success"] == true || path.contains("/me/topups/"),
            "{path}: {body}"
        );
    }

    let nobodys = nobodys();
    let mut tried = 0;
    for row in rows() {
        let parameters = parameters(row.route);
        if parameters.is_empty() {
            continue;
        }
        let foreign = us.ask(&row, &filled(row.route, &theirs.ids)).await;
        let unknown = us.ask(&row, &filled(row.route, &nobodys)).await;
        assert_eq!(
            told(&foreign, &theirs.ids),
            told(&unknown, &nobodys),
            "{} {}",
            row.method,
            row.route
        );
        tried += 1;
    }
    assert!(tried > 30, "{tried} routes name something");
    // One of ours beside one of theirs.
    let mixed = |name: &'static str, ids: &BTreeMap<&'static str, String>| {
        let mut mixed = ours.ids.clone();
        mixed.insert(name, ids[name].clone());
        mixed
    };
    let revoking = rows()
        .into_iter()
        .find(|row| row.route.ends_with("/tokens/{jti}"))
        .unwrap();
    let foreign = us
        .ask(&revoking, &filled(revoking.route, &mixed("jti", &theirs.ids)))
        .await;
    let unknown = us
        .ask(&revoking, &filled(revoking.route, &mixed("jti", &nobodys)))
        .await;
    assert_eq!(told(&foreign, &theirs.ids), told(&unknown, &nobodys));

    for (list, name) in [
        (HOOK_EVENTS, "eventId"),
        ("/api/credits/topups", "sessionId"),
        (KEYS, "keyId"),
        (PAYOUTS, "payoutId"),
        ("/api/credits/end-users", "externalUserId"),
        (INVITATIONS, "invitationId"),
    ] {
        for parameter in ["cursor", "externalUserId", "q"] {
            let read = async |ids: &BTreeMap<&'static str, String>| {
                let path = format!("{list}?{parameter}={}", ids[name]);
                let reply = site.as_member(&ours.owner, Method::GET, &path).send().await;
                // Names are anybody's: what was asked about them before has made users of ours of them.
                let made = theirs
                    .ids
                    .iter()
                    .filter(|(of, _)| !["externalUserId", "subject"].contains(of));
                for (of, id) in made.filter(|(of, _)| **of != name) {
                    assert!(!reply.text().contains(id.as_str()), "{list} shows their {of}");
                }
                // Where a page begins may differ: a cursor is a place in a list of our own.
                reply.status
            };
            assert_eq!(
                read(&theirs.ids).await,
                read(&nobodys).await,
                "{list} {parameter}"
            );
        }
    }
    let explained = async |key: &str| {
        let path = format!("/api/credits/pricing/explain?provider=tools&endpoint=fetch&keyId={key}");
        site.as_member(&ours.owner, Method::GET, &path).send().await
    };
    assert_eq!(
        told(&explained(&theirs.ids["keyId"]).await, &theirs.ids),
        told(&explained(&nobodys["keyId"]).await, &nobodys)
    );
    let replayed = async |endpoint: &str| {
        let path = format!("{HOOK_EVENTS}/{}/replay", ours.ids["eventId"]);
        let post = site.as_member(&ours.owner, Method::POST, &path);
        post.json(&json!({ "endpointId": endpoint })).send().await
    };
    assert_eq!(
        told(&replayed(&theirs.ids["endpointId"]).await, &theirs.ids),
        told(&replayed(&nobodys["endpointId"]).await, &nobodys)
    );
    // Who has their end user's name here was retired by one of these routes; theirs goes on, with a token of theirs.
    let paid = site
        .chat(&chat("flat", "hi"))
        .paid_by(&theirs.ids["externalUserId"]);
    paid.send().await.refused(403, "END_USER_RETIRED");
    let mine = site.mine(&theirs.token).send().await.expect(200).json();
    assert_eq!(mine, before["/api/credits/me/balance"]);
    let named = site
        .get("/api/credits/balance")
        .header("x-svc-tenant-id", &theirs.tenant)
        .send()
        .await
        .expect(200);
    assert_eq!(named.json(), site.balance().await);
    let about_them = site
        .as_member(
            &theirs.owner,
            Method::GET,
            &user_path(&ours.ids["externalUserId"], ""),
        )
        .header("x-svc-tenant-id", &ours.tenant);
    about_them.send().await.refused(403, "TENANT_NOT_MEMBER");

    assert_eq!(them.everything().await, before, "something of theirs was changed");
}
