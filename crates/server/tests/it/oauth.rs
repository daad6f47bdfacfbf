//! The authorization server, as a client and the member's browser meet it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::agents::AGENTS;
use crate::harness::browser::{Browser, Joined, between, form, hidden};
use crate::harness::issuer::{Issuer, SessionKey};
use crate::harness::{Database, Reply, Setup, Site, Store, raw_exchange};
use crate::on_both_stores;

on_both_stores!(
    an_agent_is_connected_by_a_member_and_disconnected_again,
    nobody_is_sent_where_the_client_did_not_register,
    what_a_client_asks_wrongly_is_told_to_the_client,
    a_code_is_good_once_for_its_client_and_verifier,
    of_many_who_redeem_or_refresh_one_wins_and_all_is_revoked,
    who_may_agree_to_what,
    the_consent_page_is_safe_and_takes_forms_of_its_own_only,
    registrations_are_bounded,
);

const PASSWORD: &str = "a quiet harbour";
const CALLBACK: &str = "http://127.0.0.1:33418/callback";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

#[test]
fn nothing_can_be_agreed_to_where_people_sign_in_elsewhere() {
    crate::harness::run(async {
        let key = SessionKey::new([1; 32]);
        let issuer = Issuer::start(std::slice::from_ref(&key)).await;
        let site = issuer.setup(Store::Sqlite).start().await;
        let get = |path: &str| site.client.request(Method::GET, path).send();
        get("/.well-known/oauth-authorization-server")
            .await
            .refused(404, "NOT_FOUND");
        let resource = get("/.well-known/oauth-protected-resource")
            .await
            .expect(200)
            .json();
        assert_eq!(resource.get("authorization_servers"), None);
        let page = get("/oauth/authorize?client_id=x").await.expect(501).text();
        assert!(page.contains("agent connection"), "{page}");
        post_form(&site, "/oauth/token", &[])
            .await
            .refused(404, "NOT_FOUND");
    });
}

fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER))
}

async fn post_form(site: &Site, path: &str, members: &[(&str, &str)]) -> Reply {
    form(&site.client, path, members).send().await
}

/// A client, a member and their browser.
struct Meeting {
    site: Site,
    client: String,
    browser: Browser,
    who: Joined,
}

async fn register(site: &Site, uris: Value) -> Reply {
    let body = json!({ "redirect_uris": uris, "client_name": "Helpful <Agent>", "token_endpoint_auth_method": "none" });
    let post = site.client.request(Method::POST, "/oauth/register");
    post.json(&body).send().await
}

impl Meeting {
    async fn new(store: Store, role: &str) -> Self {
        let site = Setup::new(store)
            .grant(Some("1"))
            .set("server.public_url", "http://127.0.0.1:8402")
            .start()
            .await;
        let mut browser = site.browser();
        let who = browser.join(&site.link(role), "ada@example.com", PASSWORD).await;
        let client = register(&site, json!(["http://127.0.0.1/callback"]))
            .await
            .expect(201);
        let client = client.json()["client_id"].as_str().unwrap().to_owned();
        Self {
            site,
            client,
            browser,
            who,
        }
    }

    /// The address that the client opens, with `changes`: an empty value leaves a parameter out.
    fn asks(&self, changes: &[(&str, &str)]) -> String {
        let challenge = challenge();
        let mut parameters = vec![
            ("response_type", "code"),
            ("client_id", &self.client),
            ("redirect_uri", CALLBACK),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("state", "a state&x=1"),
            ("resource", "http://127.0.0.1:8402/api/credits/mcp"),
        ];
        for (name, value) in changes {
            parameters.retain(|(known, _)| known != name);
            parameters.push((name, value));
        }
        parameters.retain(|(_, value)| !value.is_empty());
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(parameters)
            .finish();
        format!("/oauth/authorize?{query}")
    }

    /// Opens what the client asks and follows to the page where the member agrees.
    async fn asked(&mut self, changes: &[(&str, &str)]) -> Reply {
        let ask = self.asks(changes);
        // From elsewhere, so without the cookie.
        let page = self
            .site
            .client
            .request(Method::GET, &ask)
            .send()
            .await
            .expect(200)
            .text();
        let next = between(&page, "class=\"button primary\" href=\"", "\"").replace("&amp;", "&");
        self.browser.open(&next).await
    }

    fn tenant(&self) -> String {
        self.site.tenant.clone()
    }

    /// Agrees, with `more` in the form.
    async fn agree(&mut self, page: &str, more: &[(&str, &str)]) -> Reply {
        let (request, tenant) = (hidden(page, "request"), self.tenant());
        let mut members = vec![
            ("request", request.as_str()),
            ("workspace", tenant.as_str()),
            ("max_usd", "0.5"),
            ("days", "30"),
            ("answer", "agree"),
        ];
        for (name, value) in more {
            members.retain(|(known, _)| known != name);
            members.push((name, value));
        }
        self.browser.submit("/identity/authorize", &members).await
    }

    /// A code, for what was asked with `changes`.
    async fn code(&mut self, changes: &[(&str, &str)]) -> String {
        let page = self.asked(changes).await.expect(200).text();
        let to = self.agree(&page, &[]).await.expect(303);
        answered(&to, "code").unwrap()
    }

    async fn redeem(&self, code: &str, changes: &[(&str, &str)]) -> Reply {
        let mut members = vec![
            ("grant_type", "authorization_code"),
            ("client_id", self.client.as_str()),
            ("code", code),
            ("redirect_uri", CALLBACK),
            ("code_verifier", VERIFIER),
            ("resource", "http://127.0.0.1:8402/api/credits/mcp"),
        ];
        for (name, value) in changes {
            members.retain(|(known, _)| known != name);
            members.push((name, value));
        }
        members.retain(|(_, value)| !value.is_empty());
        post_form(&self.site, "/oauth/token", &members).await
    }

    async fn refresh(&self, token: &str, changes: &[(&str, &str)]) -> Reply {
        let mut members = vec![
            ("grant_type", "refresh_token"),
            ("client_id", self.client.as_str()),
            ("refresh_token", token),
        ];
        for (name, value) in changes {
            members.retain(|(known, _)| known != name);
            members.push((name, value));
        }
        post_form(&self.site, "/oauth/token", &members).await
    }

    async fn connections(&self) -> Vec<Value> {
        let listed = self.site.get(AGENTS).send().await.expect(200).json();
        listed["data"].as_array().unwrap().clone()
    }
}

/// A parameter of the address that somebody is sent to.
fn answered(reply: &Reply, name: &str) -> Option<String> {
    let location = reply.header("location").unwrap();
    let (to, query) = location.split_once('?').unwrap();
    assert!(to == CALLBACK, "{location}");
    form_urlencoded::parse(query.as_bytes())
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.into_owned())
}

fn text(value: &Value, name: &str) -> String {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("no {name} in {value}"))
        .to_owned()
}

#[track_caller]
fn fails(reply: Reply, status: u16, error: &str) {
    let reply = reply.expect(status);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.json()["error"], error, "{}", reply.text());
}

async fn an_agent_is_connected_by_a_member_and_disconnected_again(store: Store) {
    let mut meeting = Meeting::new(store, "owner").await;
    let get = async |path: &str| {
        meeting
            .site
            .client
            .request(Method::GET, path)
            .send()
            .await
            .expect(200)
            .json()
    };
    let resource = get("/.well-known/oauth-protected-resource/api/credits/mcp").await;
    assert_eq!(resource, get("/.well-known/oauth-protected-resource").await);
    assert_eq!(resource["resource"], "http://127.0.0.1:8402/api/credits/mcp");
    let issuer = resource["authorization_servers"][0].as_str().unwrap();
    let server = get("/.well-known/oauth-authorization-server").await;
    assert_eq!(
        (&server["issuer"], &server["code_challenge_methods_supported"]),
        (&json!(issuer), &json!(["S256"]))
    );
    assert_eq!(text(&server, "token_endpoint"), format!("{issuer}/oauth/token"));

    let page = meeting.asked(&[]).await.expect(200).text();
    for part in [
        "Helpful &lt;Agent&gt;",
        "this computer (127.0.0.1)",
        "ada@example.com",
        "nobody has checked",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let to = meeting.agree(&page, &[]).await.expect(303);
    assert_eq!(answered(&to, "state").as_deref(), Some("a state&x=1"));
    assert_eq!(answered(&to, "iss").as_deref(), Some(issuer));
    let code = answered(&to, "code").unwrap();
    assert!(meeting.connections().await.is_empty());
    let tokens = meeting.redeem(&code, &[]).await.expect(200);
    assert_eq!(tokens.header("cache-control"), Some("no-store"));
    let tokens = tokens.json();
    assert_eq!(
        (&tokens["token_type"], &tokens["expires_in"], &tokens["scope"]),
        (
            &json!("Bearer"),
            &json!(3600),
            &json!("mcp:read mcp:execute offline_access")
        )
    );
    let connections = meeting.connections().await;
    let [agent] = connections.as_slice() else {
        panic!("{connections:?}")
    };
    assert_eq!(
        (
            &agent["kind"],
            &agent["clientId"],
            &agent["name"],
            &agent["maxUsd"],
            &agent["status"]
        ),
        (
            &json!("oauth"),
            &json!(meeting.client),
            &json!("Helpful <Agent>"),
            &json!("0.5"),
            &json!("active")
        )
    );
    assert_eq!(meeting.site.noted("agent.create").await, 1);
    // Its tokens are for the MCP endpoint alone.
    let access = text(&tokens, "access_token");
    let elsewhere = meeting
        .site
        .chat_as(&access, "free")
        .send()
        .await
        .refused(401, "INVALID_CREDENTIAL");
    assert_eq!(
        elsewhere.header("www-authenticate"),
        Some("Bearer error=\"invalid_token\"")
    );

    let first = text(&tokens, "refresh_token");
    let refreshed = meeting
        .refresh(&first, &[("scope", "mcp:read")])
        .await
        .expect(200)
        .json();
    let second = text(&refreshed, "refresh_token");
    assert!(first != second && text(&refreshed, "access_token") != access);
    fails(
        meeting.refresh(&second, &[("scope", "admin")]).await,
        400,
        "invalid_scope",
    );
    fails(
        meeting.refresh(&second, &[("client_id", "other")]).await,
        400,
        "invalid_grant",
    );
    fails(meeting.refresh(&access, &[]).await, 400, "invalid_grant");
    let gone = [("token", second.as_str()), ("client_id", "other")];
    fails(
        post_form(&meeting.site, "/oauth/revoke", &gone).await,
        401,
        "invalid_client",
    );
    let gone = [("token", second.as_str()), ("client_id", meeting.client.as_str())];
    post_form(&meeting.site, "/oauth/revoke", &gone).await.expect(200);
    post_form(&meeting.site, "/oauth/revoke", &[("token", "whatever")])
        .await
        .expect(200);
    fails(meeting.refresh(&second, &[]).await, 400, "invalid_grant");
    assert_eq!(meeting.connections().await[0]["status"], "revoked");
    let access = text(&refreshed, "access_token");
    meeting
        .site
        .chat_as(&access, "free")
        .send()
        .await
        .refused(401, "CREDENTIAL_REVOKED");

    // Without a wish to stay there is no refresh token and an hour.
    let code = meeting.code(&[("scope", "mcp:read")]).await;
    let tokens = meeting.redeem(&code, &[]).await.expect(200).json();
    assert_eq!(
        (&tokens["scope"], tokens.get("refresh_token")),
        (&json!("mcp:read"), None)
    );
    // What a workspace's key ends cannot be refreshed either.
    let code = meeting.code(&[]).await;
    let tokens = meeting.redeem(&code, &[]).await.expect(200).json();
    let path = format!("{AGENTS}/{}", text(&meeting.connections().await[0], "id"));
    let end = meeting
        .site
        .client
        .request(Method::DELETE, &path)
        .bearer(&meeting.site.key);
    end.send().await.expect(200);
    fails(
        meeting.refresh(&text(&tokens, "refresh_token"), &[]).await,
        400,
        "invalid_grant",
    );
    let log = meeting.site.service().logged();
    for secret in [
        &code,
        &text(&tokens, "access_token"),
        &text(&tokens, "refresh_token"),
    ] {
        assert!(!log.contains(secret.as_str()));
    }
}

async fn nobody_is_sent_where_the_client_did_not_register(store: Store) {
    let meeting = Meeting::new(store, "owner").await;
    for changes in [
        &[("redirect_uri", "https://evil.example/")][..],
        &[("redirect_uri", "http://127.0.0.1:33418/callback/x")],
        &[("redirect_uri", "http://127.0.0.1.evil.example:33418/callback")],
        &[("redirect_uri", "http://evil@127.0.0.1:33418/callback")],
        &[("redirect_uri", "")],
        &[("client_id", "unknown")],
        &[("client_id", "")],
    ] {
        let ask = meeting.asks(changes);
        let page = meeting
            .site
            .client
            .request(Method::GET, &ask)
            .send()
            .await
            .expect(400);
        assert_eq!(page.header("location"), None);
        assert!(page.text().contains("cannot be connected"), "{changes:?}");
    }
    let twice = format!("{}&redirect_uri=https%3A%2F%2Fevil.example%2F", meeting.asks(&[]));
    meeting
        .site
        .client
        .request(Method::GET, &twice)
        .send()
        .await
        .expect(400);
}

async fn what_a_client_asks_wrongly_is_told_to_the_client(store: Store) {
    let meeting = Meeting::new(store, "owner").await;
    let long = "s".repeat(2049);
    for (changes, error) in [
        (&[("response_type", "token")][..], "unsupported_response_type"),
        (&[("response_type", "")], "invalid_request"),
        (&[("code_challenge", "")], "invalid_request"),
        (&[("code_challenge", "short")], "invalid_request"),
        (&[("code_challenge_method", "plain")], "invalid_request"),
        (&[("code_challenge_method", "")], "invalid_request"),
        (&[("scope", "openid")], "invalid_scope"),
        (&[("scope", "offline_access")], "invalid_scope"),
        (&[("resource", "https://other.example/mcp")], "invalid_target"),
        (&[("state", &long)], "invalid_request"),
    ] {
        let ask = meeting.asks(changes);
        let told = meeting
            .site
            .client
            .request(Method::GET, &ask)
            .send()
            .await
            .expect(303);
        assert_eq!(answered(&told, "error").as_deref(), Some(error), "{changes:?}");
        assert_eq!(answered(&told, "code"), None);
        assert!(answered(&told, "iss").is_some());
        let state = answered(&told, "state");
        assert_eq!(state.as_deref() == Some("a state&x=1"), changes[0].0 != "state");
    }
}

async fn a_code_is_good_once_for_its_client_and_verifier(store: Store) {
    let mut meeting = Meeting::new(store, "owner").await;
    let code = meeting.code(&[]).await;
    let other = register(&meeting.site, json!(["http://127.0.0.1/callback"]))
        .await
        .json();
    let other = text(&other, "client_id");
    for (changes, status, error) in [
        (&[("code_verifier", "x")][..], 400, "invalid_grant"),
        (&[("code_verifier", "")], 400, "invalid_request"),
        (
            &[("redirect_uri", "http://127.0.0.1:1/callback")],
            400,
            "invalid_grant",
        ),
        (&[("redirect_uri", "")], 400, "invalid_request"),
        (&[("client_id", &other)], 400, "invalid_grant"),
        (&[("client_id", "unknown")], 401, "invalid_client"),
        (&[("client_id", "")], 400, "invalid_request"),
        (&[("grant_type", "password")], 400, "unsupported_grant_type"),
        (&[("grant_type", "")], 400, "invalid_request"),
        (&[("code", "svc_co_x")], 400, "invalid_grant"),
        (
            &[("resource", "https://other.example/mcp")],
            400,
            "invalid_target",
        ),
    ] {
        fails(meeting.redeem(&code, changes).await, status, error);
    }
    // None of these used it up.
    let tokens = meeting.redeem(&code, &[]).await.expect(200).json();
    fails(meeting.redeem(&code, &[]).await, 400, "invalid_grant");
    // Who presents it again ends what was given for it.
    fails(
        meeting.refresh(&text(&tokens, "refresh_token"), &[]).await,
        400,
        "invalid_grant",
    );
    assert_eq!(meeting.connections().await[0]["status"], "revoked");

    let late = meeting.code(&[]).await;
    meeting
        .site
        .database
        .execute("UPDATE oauth_codes SET expires_at = 1 WHERE used_at IS NULL")
        .await;
    fails(meeting.redeem(&late, &[]).await, 400, "invalid_grant");
}

async fn of_many_who_redeem_or_refresh_one_wins_and_all_is_revoked(store: Store) {
    let mut meeting = Meeting::new(store, "owner").await;
    let code = meeting.code(&[]).await;
    let meeting_ref = &meeting;
    let tries = (0..8).map(|_| meeting_ref.redeem(&code, &[]));
    let replies = futures_util::future::join_all(tries).await;
    let won = replies.iter().filter(|reply| reply.status == 200).count();
    assert!(won <= 1, "{won}");
    assert!(
        meeting
            .connections()
            .await
            .iter()
            .all(|agent| agent["status"] == "revoked")
    );

    let code = meeting.code(&[]).await;
    let tokens = meeting.redeem(&code, &[]).await.expect(200).json();
    let token = text(&tokens, "refresh_token");
    let meeting_ref = &meeting;
    let tries = (0..8).map(|_| meeting_ref.refresh(&token, &[]));
    let replies = futures_util::future::join_all(tries).await;
    let won: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 200).collect();
    assert!(won.len() <= 1, "{}", won.len());
    assert!(
        meeting
            .connections()
            .await
            .iter()
            .all(|agent| agent["status"] == "revoked")
    );
    for reply in won {
        let next = text(&reply.json(), "refresh_token");
        fails(meeting.refresh(&next, &[]).await, 400, "invalid_grant");
    }
}

async fn who_may_agree_to_what(store: Store) {
    let mut meeting = Meeting::new(store, "developer").await;
    let page = meeting.asked(&[]).await.expect(200).text();
    assert!(page.contains("for an end user only"), "{page}");
    let refused = meeting.agree(&page, &[]).await.expect(403).text();
    assert!(refused.contains("owner or admin"), "{refused}");
    let wrong = [("external_user_id", "alice"), ("days", "366")];
    meeting.agree(&page, &wrong).await.expect(400);
    let wrong = [("external_user_id", "alice"), ("max_usd", "-1")];
    meeting.agree(&page, &wrong).await.expect(400);
    let to = meeting
        .agree(&page, &[("external_user_id", "alice")])
        .await
        .expect(303);
    let code = answered(&to, "code").unwrap();
    meeting.redeem(&code, &[]).await.expect(200);
    assert_eq!(meeting.connections().await[0]["externalUserId"], "alice");
    // Somebody else's workspace cannot be chosen.
    let (other, _) = meeting.site.workspace("Other");
    let elsewhere = [("workspace", other.as_str())];
    meeting.agree(&page, &elsewhere).await.expect(403);
    // Who lost the role meanwhile gives nothing.
    let to = meeting
        .agree(&page, &[("external_user_id", "alice")])
        .await
        .expect(303);
    let code = answered(&to, "code").unwrap();
    meeting.site.database.execute("UPDATE members SET role = 4").await;
    fails(meeting.redeem(&code, &[]).await, 400, "invalid_grant");
    let page = meeting.asked(&[]).await.expect(200).text();
    assert!(page.contains("You can connect no agent"), "{page}");
    let request = hidden(&page, "request");
    let declined = [("request", request.as_str()), ("answer", "decline")];
    let told = meeting
        .browser
        .submit("/identity/authorize", &declined)
        .await
        .expect(303);
    assert_eq!(answered(&told, "error").as_deref(), Some("access_denied"));
}

async fn the_consent_page_is_safe_and_takes_forms_of_its_own_only(store: Store) {
    let mut meeting = Meeting::new(store, "owner").await;
    let ask = meeting.asks(&[]);
    let first = meeting
        .site
        .client
        .request(Method::GET, &ask)
        .send()
        .await
        .expect(200);
    let second = meeting.asked(&[]).await.expect(200);
    for page in [&first, &second] {
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert!(!page.text().contains("<script"), "{}", page.text());
    }
    assert!(
        second
            .header("content-security-policy")
            .unwrap()
            .contains("form-action 'self' http://127.0.0.1:33418")
    );
    let page = second.text();
    // From another site, with the cookie.
    let (request, tenant) = (hidden(&page, "request"), meeting.tenant());
    let members = [
        ("request", request.as_str()),
        ("workspace", tenant.as_str()),
        ("days", "30"),
        ("answer", "agree"),
    ];
    let cookie = meeting.browser.cookie.clone().unwrap();
    let forged = form(&meeting.site.client, "/identity/authorize", &members)
        .header("cookie", cookie)
        .header("sec-fetch-site", "cross-site");
    forged.send().await.expect(403);
    // Who is not signed in signs in first and comes back.
    let mut other = meeting.site.browser();
    let next = between(&first.text(), "class=\"button primary\" href=\"", "\"").replace("&amp;", "&");
    let to = other.open(&next).await.expect(303);
    let to = to.header("location").unwrap().to_owned();
    assert!(to.starts_with("/identity/sign-in?authorize="), "{to}");
    let page = other.open(&to).await.expect(200).text();
    let carried = hidden(&page, "authorize");
    let known = [
        ("login", meeting.who.login.as_str()),
        ("password", PASSWORD),
        ("authorize", &carried),
    ];
    let page = other.submit("/identity/sign-in", &known).await.expect(200).text();
    let (ticket, carried) = (hidden(&page, "ticket"), hidden(&page, "authorize"));
    let code = meeting.who.code(1);
    let shown = [
        ("ticket", ticket.as_str()),
        ("code", &code),
        ("authorize", &carried),
    ];
    let to = other.submit("/identity/sign-in/code", &shown).await.expect(303);
    assert_eq!(to.header("location"), Some(next.as_str()));
    // A request that was changed, or is over, is none.
    for bad in ["", "x", &request[1..], &"A".repeat(20_000)] {
        meeting
            .browser
            .open(&format!("/identity/authorize?request={bad}"))
            .await
            .expect(400);
    }
    // A sign-in leads to no address of somebody else's choice.
    let page = other.open("/identity/sign-in?authorize=//evil.example").await;
    assert!(page.header("location").is_none_or(|to| to == "/identity"));
}

async fn registrations_are_bounded(store: Store) {
    let setup = Setup::new(store).set("limits.mutations_per_minute", 3);
    let site = setup
        .set("server.public_url", "http://127.0.0.1:8402")
        .start()
        .await;
    for bad in [json!([]), json!(["http://evil.example/"]), json!("x")] {
        fails(register(&site, bad).await, 400, "invalid_redirect_uri");
    }
    register(&site, json!([CALLBACK]))
        .await
        .refused(429, "RATE_LIMITED");
    let site = Setup::new(store).start().await;
    // On a connection of its own: it is closed with the body unread.
    let head = "POST /oauth/register HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                content-length: 70000\r\n\r\n";
    let refused = raw_exchange(&site.address(), head.as_bytes()).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (413, "REQUEST_BODY_TOO_LARGE")
    );
    let registered = register(&site, json!([CALLBACK])).await.expect(201).json();
    assert_eq!(registered["token_endpoint_auth_method"], "none");
    let preflight = site
        .client
        .request(Method::OPTIONS, "/oauth/token")
        .header("origin", "https://inspector.example")
        .header("access-control-request-method", "POST");
    let allowed = preflight.send().await.expect(204);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        Some("https://inspector.example")
    );
    assert!(matches!(
        site.database,
        Database::Sqlite(_) | Database::Postgres { .. }
    ));
}
