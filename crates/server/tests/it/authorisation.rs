//! Who may do what: every documented route against every kind of credential (fault matrix 146).

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Client, Reply, Setup, Site, Store, operate};
use crate::matrix::{Access, Row, USER, rows};
use crate::mcp::MCP;
use crate::on_both_stores;

on_both_stores!(every_route_demands_what_its_row_says);

#[test]
fn the_rows_are_the_documented_routes_and_the_services_own_table() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("turnpike.toml");
    std::fs::write(&config, "").unwrap();
    let print = |what: &str| {
        let (status, value, complaint) = operate(&config, directory.path(), &[what]);
        assert!(status.success(), "{complaint}");
        value
    };
    let rows = rows();
    let expected: BTreeMap<String, Access> = rows
        .iter()
        .map(|row| (format!("{} {}", row.method, row.route), row.access))
        .collect();
    assert_eq!(expected.len(), rows.len(), "a route stands in two rows");
    let table = print("authorisation-doc");
    let enforced: BTreeMap<String, Access> = table.as_array().unwrap().iter().map(enforced).collect();
    assert_eq!(expected, enforced);
    let document = print("openapi");
    let documented: Vec<String> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            let methods =
                methods.filter(|name| ["get", "post", "put", "patch", "delete"].contains(&name.as_str()));
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    let mut listed: Vec<&String> = documented.iter().collect();
    listed.sort();
    assert_eq!(listed, expected.keys().collect::<Vec<_>>());
}

/// A row of the service's table, in the words of these tests.
fn enforced(row: &Value) -> (String, Access) {
    let text = |name: &str| row[name].as_str().unwrap_or_default();
    let leaked: &'static str = text("scope").to_owned().leak();
    let is = |name: &str| row[name] == json!(true);
    let access = match text("demand") {
        "public" => Access::Public,
        "signed" => Access::Signed,
        "person" => Access::Person,
        "caller" => Access::Calling,
        "callerOrMember" => Access::CallingOrMember,
        "endUser" => Access::EndUser(leaked),
        _ if row["own"].get("endUser").is_some() => {
            let own = row["own"]["endUser"].as_str().unwrap_or_default();
            Access::ScopeOrToken(leaked, own.to_owned().leak())
        }
        _ => match (is("keys"), is("administrator"), is("stepUp")) {
            (true, false, false) => Access::Scope(leaked),
            (true, false, true) => Access::Guarded(leaked),
            (false, false, false) => Access::OwnFactor(leaked),
            (false, false, true) => Access::MemberStepUp(leaked),
            (false, true, true) => Access::Administrator(leaked),
            other => panic!("no test knows what this is: {other:?} {row}"),
        },
    };
    (format!("{} {}", text("method"), text("path")), access)
}

const TOKEN_SCOPES: [&str; 3] = ["read", "spend", "topup"];

const SCOPES: [&str; 9] = [
    "tenant:read",
    "tenant:write",
    "catalog:write",
    "credits:move",
    "credentials:manage",
    "tokens:manage",
    "payouts:manage",
    "members:manage",
    "widget:read",
];

/// The scopes of the roles (decisions 3).
fn role_scopes() -> [(&'static str, Vec<&'static str>); 5] {
    [
        ("owner", SCOPES.to_vec()),
        ("admin", SCOPES.to_vec()),
        (
            "developer",
            vec!["tenant:read", "catalog:write", "tokens:manage", "widget:read"],
        ),
        ("billing", vec!["tenant:read", "payouts:manage"]),
        ("viewer", vec!["tenant:read"]),
    ]
}

/// Who presents a credential.
#[derive(Clone, Debug)]
enum Who {
    Nobody,
    /// What is refused whatever the route, with this code.
    Unusable(&'static str),
    /// An API key.
    Key {
        calls: bool,
        scopes: Vec<&'static str>,
    },
    /// An end user's token.
    Token(&'static str),
    /// A dashboard session of a member.
    Member {
        role: &'static str,
        scopes: Vec<&'static str>,
        fresh: bool,
    },
    /// A dashboard session of somebody who does not belong to the workspace.
    Stranger,
}

struct Credential {
    name: String,
    who: Who,
    bearer: Option<String>,
    /// The workspace that is named in the tenant header.
    chosen: Option<String>,
}

fn credential(name: impl Into<String>, who: Who, bearer: impl Into<String>) -> Credential {
    Credential {
        name: name.into(),
        who,
        bearer: Some(bearer.into()),
        chosen: None,
    }
}

/// What somebody is told.
#[derive(Debug)]
enum Verdict<'a> {
    LetIn,
    Refused(u16, &'static str),
    LacksScope(&'static str, &'a [&'static str]),
}

fn with_scope<'a>(needed: &'static str, present: &'a [&'static str]) -> Verdict<'a> {
    if present.contains(&needed) {
        Verdict::LetIn
    } else {
        Verdict::LacksScope(needed, present)
    }
}

const WRONG_KIND: Verdict<'static> = Verdict::Refused(403, "CREDENTIAL_KIND_NOT_ALLOWED");

fn of_member<'a>(who: &'a Who, needed: &'static str, administrator: bool, step_up: bool) -> Verdict<'a> {
    let Who::Member { role, scopes, fresh } = who else {
        return WRONG_KIND;
    };
    if administrator && !["owner", "admin"].contains(role) {
        return Verdict::Refused(403, "FORBIDDEN_ROLE");
    }
    match with_scope(needed, scopes) {
        Verdict::LetIn if step_up && !fresh => Verdict::Refused(401, "STEP_UP_REQUIRED"),
        other => other,
    }
}

#[expect(
    clippy::match_same_arms,
    reason = "the arms stand in the order in which the service decides"
)]
fn verdict(access: Access, who: &Who) -> Verdict<'_> {
    match (access, who) {
        (Access::Public, _) | (Access::Person, Who::Stranger | Who::Member { .. }) => Verdict::LetIn,
        // A credential is no signature.
        (Access::Signed, _) => Verdict::Refused(400, "VALIDATION_ERROR"),
        (_, Who::Nobody) => Verdict::Refused(401, "UNAUTHENTICATED"),
        (_, Who::Unusable(code)) => Verdict::Refused(401, code),
        (Access::Person, _) => WRONG_KIND,
        (_, Who::Stranger) => Verdict::Refused(403, "TENANT_NOT_MEMBER"),
        (Access::Calling | Access::CallingOrMember, Who::Key { calls: true, .. }) => Verdict::LetIn,
        (Access::Calling | Access::CallingOrMember, Who::Token(scope)) => {
            with_scope("spend", std::slice::from_ref(scope))
        }
        (Access::CallingOrMember, who) => of_member(who, "tenant:read", false, false),
        (Access::EndUser(needed), Who::Token(scope)) => with_scope(needed, std::slice::from_ref(scope)),
        (Access::Calling | Access::EndUser(_), _) => WRONG_KIND,
        (Access::ScopeOrToken(_, needed), Who::Token(scope)) => {
            with_scope(needed, std::slice::from_ref(scope))
        }
        (
            Access::ScopeOrToken(needed, _) | Access::Scope(needed) | Access::Guarded(needed),
            Who::Key { scopes, .. },
        ) => with_scope(needed, scopes),
        (Access::ScopeOrToken(needed, _) | Access::Scope(needed), who) => {
            of_member(who, needed, false, false)
        }
        (Access::Guarded(needed) | Access::OwnFactor(needed) | Access::MemberStepUp(needed), who) => {
            of_member(who, needed, false, true)
        }
        (Access::Administrator(needed), who) => of_member(who, needed, true, true),
    }
}

async fn ask(client: &Client, row: &Row, credential: &Credential) -> Reply {
    let mut call = client.request(row.method.clone(), row.path);
    if let Some(bearer) = &credential.bearer {
        call = call.bearer(bearer);
    }
    if let Some(chosen) = &credential.chosen {
        call = call.header("x-svc-tenant-id", chosen);
    }
    if row.method != Method::GET {
        call = call.json(&row.body).once(&uuid::Uuid::new_v4().to_string());
    }
    call.send().await
}

fn judge(row: &Row, credential: &Credential, reply: Reply) {
    let verdict = verdict(row.access, &credential.who);
    let told = format!(
        "{} at {} {}: {verdict:?}, not {} {}",
        credential.name,
        row.method,
        row.route,
        reply.status,
        reply.text()
    );
    match verdict {
        Verdict::LetIn => assert_eq!(reply.status, row.status, "{told}"),
        Verdict::Refused(status, code) => {
            assert_eq!((reply.status, &*reply.code()), (status, code), "{told}");
            let challenge = match code {
                "UNAUTHENTICATED" => Some("Bearer"),
                "STEP_UP_REQUIRED" => {
                    Some("Bearer error=\"insufficient_user_authentication\", acr_values=\"mfa\", max_age=600")
                }
                _ if status == 401 => Some("Bearer error=\"invalid_token\""),
                _ => None,
            };
            let said = reply.header("www-authenticate");
            // There it also says where a credential can be had.
            let said = match said.and_then(|said| said.split_once("resource_metadata=")) {
                Some((said, _where)) if row.path == MCP => Some(said.trim_end_matches([',', ' '])),
                Some(_) | None => said,
            };
            assert_eq!(said, challenge, "{told}");
            reply.refused(status, code);
        }
        Verdict::LacksScope(needed, present) => {
            assert_eq!(
                (reply.status, &*reply.code()),
                (403, "INSUFFICIENT_SCOPE"),
                "{told}"
            );
            let mut present = present.to_vec();
            present.sort_unstable();
            let body = reply.refused(403, "INSUFFICIENT_SCOPE").json();
            assert_eq!(body["error"], "Forbidden");
            assert_eq!(
                (&body["requiredScopes"], &body["presentScopes"]),
                (&json!([needed]), &json!(present)),
                "{told}"
            );
        }
    }
}

/// One of every kind.
async fn credentials(site: &Site) -> Vec<Credential> {
    let key = |kind: &str, scopes: &[&'static str]| {
        let who = Who::Key {
            calls: kind != "publishable",
            scopes: scopes.to_vec(),
        };
        credential(
            format!("{kind} key with {scopes:?}"),
            who,
            site.new_key(kind, scopes),
        )
    };
    let mut all = vec![
        Credential {
            bearer: None,
            ..credential("nobody", Who::Nobody, "")
        },
        credential("garbage", Who::Unusable("INVALID_CREDENTIAL"), "garbage"),
        key("secret", &[]),
        key("secret", &SCOPES),
        key("sandbox", &[]),
        key("publishable", &["widget:read"]),
    ];
    all.extend(
        SCOPES
            .iter()
            .map(|scope| key("secret", std::slice::from_ref(scope))),
    );
    all.push(credential(
        "revoked key",
        Who::Unusable("CREDENTIAL_REVOKED"),
        site.new_key("secret", &SCOPES),
    ));
    all.push(credential(
        "expired key",
        Who::Unusable("CREDENTIAL_EXPIRED"),
        site.new_key("secret", &SCOPES),
    ));
    let [.., revoked, expired] = all.as_slice() else {
        unreachable!("there are two")
    };
    for (of, column) in [(revoked, "revoked_at"), (expired, "expires_at")] {
        let prefix = of.bearer.as_ref().unwrap().get(..16).unwrap();
        let end = format!("UPDATE api_keys SET {column} = created_at WHERE prefix = '{prefix}'");
        site.database.execute(&end).await;
    }
    site.grant("1", Some(USER));
    site.limit("revoked", &json!({})).await;
    for scope in TOKEN_SCOPES {
        let token = site.token(USER, &json!({ "scopes": [scope] })).await;
        all.push(credential(
            format!("token with {scope}"),
            Who::Token(scope),
            token,
        ));
    }
    for (role, scopes) in role_scopes() {
        site.add_member(role, role);
        for (fresh, changes) in [(true, json!({})), (false, json!({ "amr": ["pwd"] }))] {
            let who = Who::Member {
                role,
                scopes: scopes.clone(),
                fresh,
            };
            let name = format!("{role}, second factor {fresh}");
            all.push(credential(name, who, site.session(role, &changes)));
        }
    }
    all.push(credential(
        "stranger",
        Who::Stranger,
        site.session("stranger", &json!({})),
    ));
    let (other, _key) = site.workspace("Other");
    site.operate(&[
        "member",
        "add",
        "--tenant",
        &other,
        "--subject",
        "foreigner",
        "--role",
        "owner",
    ]);
    all.push(Credential {
        chosen: Some(site.tenant.clone()),
        ..credential(
            "owner of another workspace",
            Who::Stranger,
            site.session("foreigner", &json!({})),
        )
    });
    all
}

async fn every_route_demands_what_its_row_says(store: Store) {
    let setup = Setup::new(store).simulated().set("limits.topups_per_minute", 0);
    let site = setup.start().await;
    let credentials = credentials(&site).await;
    for row in rows() {
        for credential in &credentials {
            let reply = ask(&site.client, &row, credential).await;
            judge(&row, credential, reply);
        }
    }
}
