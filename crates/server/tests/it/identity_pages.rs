//! The pages at `/identity`: joining, signing in, the second factor, and what strangers cannot do there.

use http::Method;
use serde_json::{Value, json};

use crate::harness::browser::{Browser, between, form, hidden, path_of};
use crate::harness::people::claims_of;
use crate::harness::{Database, Reply, Setup, Site, Store, eventually};
use crate::on_both_stores;

on_both_stores!(
    the_first_owner_joins_by_the_printed_link_and_signs_in,
    whoever_guesses_waits_whether_the_login_exists_or_not,
    a_second_factor_is_taken_once,
    a_code_raises_a_session_that_shows_none,
    what_is_chosen_badly_is_refused,
    forms_from_elsewhere_and_the_cookie_elsewhere_do_nothing,
    who_lost_everything_begins_anew_by_the_operators_link,
    a_person_joins_another_workspace_with_the_same_account,
    so_many_forms_a_minute_are_taken_from_one_address,
    what_people_do_is_noted_with_its_origin,
    what_was_done_is_shown_though_a_log_cannot_be_written,
);

const PASSWORD: &str = "a quiet harbour";

async fn balance(site: &Site, token: &str) -> Reply {
    let ask = site.client.request(Method::GET, "/api/credits/balance");
    ask.bearer(token).send().await
}

/// The link that the service printed when it started.
fn printed_link(site: &Site) -> Option<String> {
    let log = site.service().logged();
    let line = log.lines().find(|line| line.contains("/identity/join?token="))?;
    Some(path_of(line.trim()))
}

fn is_safe(reply: &Reply) {
    let policy = reply.header("content-security-policy").unwrap();
    for directive in [
        "default-src 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(directive), "{policy}");
    }
    assert!(
        !policy.contains("unsafe") && !policy.contains("script-src"),
        "{policy}"
    );
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name}");
    }
    let text = reply.text();
    assert!(!text.contains("<script") && !text.contains("style="), "{text}");
}

async fn the_first_owner_joins_by_the_printed_link_and_signs_in(store: Store) {
    let setup = Setup::new(store).grant(None);
    let mut site = setup.set("identity.invite_first_owner", true).start().await;
    let first = eventually("the link is printed", || async { printed_link(&site) }).await;
    // While nobody has joined, each start prints another link and the one before stops working.
    site.restart(&[]).await;
    let link = eventually("the link is printed", || async { printed_link(&site) }).await;
    let mut browser = site.browser();
    assert_ne!(first, link);
    assert!(
        browser
            .open(&first)
            .await
            .expect(404)
            .text()
            .contains("does not work")
    );
    is_safe(&browser.open(&link).await.expect(200));
    assert!(browser.open(&link).await.text().contains("My workspace"));
    let joined = browser.join(&link, "Ada@Example.com", PASSWORD).await;

    // Signed in by it, as an owner, for the API too.
    let home = browser.open("/identity").await.expect(200);
    is_safe(&home);
    for part in ["Ada@Example.com", "My workspace", "owner", "fresh"] {
        assert!(home.text().contains(part), "{part}");
    }
    let token = browser.token().await;
    balance(&site, &token).await.expect(200);
    browser.open(&link).await.expect(404);

    // Signed out, the session ends everywhere.
    browser.submit("/identity/sign-out", &[]).await.expect(200);
    assert!(browser.cookie.is_none());
    balance(&site, &token).await.refused(401, "CREDENTIAL_REVOKED");
    assert_eq!(
        browser.open("/identity").await.expect(303).header("location"),
        Some("/identity/sign-in")
    );

    // In again, the login in other letters.
    let other_case = crate::harness::browser::Joined {
        login: "ADA@example.COM".to_owned(),
        ..joined.clone()
    };
    let to = browser.sign_in(&other_case, &joined.code(1)).await.expect(303);
    assert_eq!(to.header("location"), Some("/identity"));
    let again = browser.token().await;
    balance(&site, &again).await.expect(200);

    // A fresh second factor is a fresh session.
    browser.open("/identity/step-up").await.expect(200);
    let code = [("code", joined.recovery[0].as_str())];
    browser.submit("/identity/step-up", &code).await.expect(303);
    balance(&site, &browser.token().await).await.expect(200);
    assert!(browser.open("/identity").await.text().contains("<dd>9 "));

    // Somebody is there: no link any more, and the one that was is nowhere but where it was printed.
    let log = site.service().logged();
    let (_, token_of_link) = link.split_once("token=").unwrap();
    assert_eq!(log.matches(token_of_link).count(), 1);
    site.restart(&[]).await;
    balance(&site, &again).await.expect(200);
    assert!(printed_link(&site).is_none());
    for secret in [
        PASSWORD,
        &joined.secret,
        &joined.secret.replace(' ', ""),
        &joined.recovery[0],
        &token,
    ] {
        assert!(!log.contains(secret), "the log has {secret}");
    }
}

async fn whoever_guesses_waits_whether_the_login_exists_or_not(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let mut browser = site.browser();
    let joined = browser.join(&site.link("viewer"), "grace", PASSWORD).await;
    let mut guesser = site.browser();
    let mut answers = Vec::new();
    for login in ["grace", "nobody"] {
        let mut seen = Vec::new();
        for _ in 0..5 {
            let refused = guesser.give_password(login, "not the password").await.expect(403);
            seen.push(refused.text().replace(login, "LOGIN"));
        }
        let waiting = guesser.give_password(login, "not the password").await.expect(429);
        let secs: u64 = waiting.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=30).contains(&secs), "{secs}");
        is_safe(&waiting);
        answers.push(seen);
    }
    assert_eq!(answers[0], answers[1]);
    // The right password waits, too: otherwise the wait would tell it.
    guesser.give_password("GRACE", PASSWORD).await.expect(429);
    // Who is signed in does not.
    let code = [("code", joined.recovery[0].as_str())];
    browser.submit("/identity/step-up", &code).await.expect(303);
    let begun = std::time::Instant::now();
    let page = eventually_in(&mut guesser, "grace").await;
    assert!(begun.elapsed().as_secs() >= 20, "{:?}", begun.elapsed());
    // Many at once are no more tries than one after the other.
    let ticket = hidden(&page, "ticket");
    let mut tries = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (mut browser, ticket) = (site.browser(), ticket.clone());
        tries.spawn(async move {
            let code = format!("{number:06}");
            let members = [("ticket", ticket.as_str()), ("code", code.as_str())];
            browser.submit("/identity/sign-in/code", &members).await.status
        });
    }
    let statuses = tries.join_all().await;
    assert!(
        statuses.iter().filter(|status| **status == 400).count() <= 5,
        "{statuses:?}"
    );
    assert!(statuses.contains(&429), "{statuses:?}");
    // Somebody else is not slowed down by it.
    let other = browser.join(&site.link("viewer"), "linus", PASSWORD).await;
    assert_ne!(other.secret, joined.secret);
}

/// The page that asks for the second factor, once the wait is over.
async fn eventually_in(browser: &mut Browser, login: &str) -> String {
    for _ in 0..45 {
        let reply = browser.give_password(login, PASSWORD).await;
        if reply.status == 200 {
            return reply.text();
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    panic!("the wait does not end");
}

async fn a_second_factor_is_taken_once(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let mut browser = site.browser();
    let joined = browser.join(&site.link("viewer"), "grace", PASSWORD).await;
    // The code that confirmed the enrolment is used up.
    browser.sign_in(&joined, &joined.code(0)).await.expect(400);
    let next = joined.code(1);
    for code in [next.as_str(), joined.recovery[3].as_str()] {
        let page = browser.give_password("grace", PASSWORD).await.expect(200).text();
        let ticket = hidden(&page, "ticket");
        let mut tries = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (mut browser, ticket, code) = (site.browser(), ticket.clone(), code.to_owned());
            tries.spawn(async move {
                let members = [("ticket", ticket.as_str()), ("code", code.as_str())];
                browser.submit("/identity/sign-in/code", &members).await.status
            });
        }
        let mut statuses = tries.join_all().await;
        statuses.sort_unstable();
        assert_eq!(
            statuses.iter().filter(|status| **status == 303).count(),
            1,
            "{statuses:?}"
        );
        // Failures are forgotten with the next success.
        browser
            .sign_in(&joined, &joined.recovery[usize::from(code == next)])
            .await
            .expect(303);
    }
    // New recovery codes take the place of all the old ones.
    let code = [("code", joined.recovery[7].as_str())];
    let page = browser
        .submit("/identity/recovery-codes", &code)
        .await
        .expect(200)
        .text();
    assert_eq!(page.matches("<li><code>").count(), 10);
    browser.sign_in(&joined, &joined.recovery[8]).await.expect(400);
    assert_eq!(site.noted("member.recovery_codes").await, 1);
}

async fn a_code_raises_a_session_that_shows_none(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let mut browser = site.browser();
    let joined = browser.join(&site.link("admin"), "grace", PASSWORD).await;
    let signed_in = browser.token().await;
    let subject = claims_of(&signed_in)["sub"].as_str().unwrap().to_owned();
    let plain = site.session(&subject, &json!({ "amr": ["pwd"] }));
    let step_up = async |body: Value| {
        let post = site.as_member(&plain, Method::POST, "/api/credits/step-up");
        post.json(&body).send().await
    };
    step_up(json!({})).await.refused(401, "STEP_UP_REQUIRED");
    step_up(json!({ "code": "000000x" }))
        .await
        .refused(400, "VALIDATION_ERROR");
    let given = step_up(json!({ "code": joined.recovery[0] }))
        .await
        .expect(201)
        .json();
    // Each code counts once, here as on the pages.
    step_up(json!({ "code": joined.recovery[0] }))
        .await
        .refused(400, "VALIDATION_ERROR");
    let retire = async |token: Option<&str>| {
        let mut retire = site.retiring("nobody", &plain);
        if let Some(token) = token {
            retire = retire.header("x-svc-step-up-token", token);
        }
        retire.send().await
    };
    let token = given["stepUpToken"].as_str();
    retire(None).await.refused(401, "STEP_UP_REQUIRED");
    retire(token).await.refused(404, "END_USER_NOT_FOUND");
    // Who signs out is signed out everywhere, and the token goes with it.
    let out = site.as_member(&plain, Method::POST, "/api/credits/sign-out");
    assert_eq!(out.send().await.expect(200).json()["revokedStepUpTokens"], 1);
    retire(token).await.refused(401, "CREDENTIAL_REVOKED");
    balance(&site, &signed_in)
        .await
        .refused(401, "CREDENTIAL_REVOKED");
    browser.open("/identity").await.expect(303);
}

async fn what_is_chosen_badly_is_refused(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let mut browser = site.browser();
    let link = site.link("developer");
    browser.join(&site.link("viewer"), "grace", PASSWORD).await;
    let mut browser = site.browser();
    let page = browser.open(&link).await.expect(200).text();
    assert!(page.contains("developer") && page.contains("Tests"));
    let token = hidden(&page, "token");
    for (login, password, repeated, status, says) in [
        ("ada", "short", "short", 400, "10 to 128"),
        ("ada", PASSWORD, "a quiet harbor!", 400, "not the same"),
        ("ada", "password123", "password123", 400, "guess"),
        (
            "adalovelace",
            "AdaLovelace1815",
            "AdaLovelace1815",
            400,
            "must not contain",
        ),
        ("", PASSWORD, PASSWORD, 400, "e-mail"),
        ("a b", PASSWORD, PASSWORD, 400, "e-mail"),
        ("GRACE", PASSWORD, PASSWORD, 409, "Somebody has this login"),
    ] {
        let chosen = [
            ("token", token.as_str()),
            ("login", login),
            ("password", password),
            ("repeated", repeated),
        ];
        let reply = browser.submit("/identity/join", &chosen).await.expect(status);
        is_safe(&reply);
        assert!(reply.text().contains(says), "{says}: {}", reply.text());
        assert!(!reply.text().contains(password), "a password is shown");
    }
    for wrong in ["", "x", &"A".repeat(43), &"A".repeat(9000)] {
        let chosen = [
            ("token", wrong),
            ("login", "ada"),
            ("password", PASSWORD),
            ("repeated", PASSWORD),
        ];
        browser.submit("/identity/join", &chosen).await.expect(404);
    }
    // A wrong first code writes nothing; the same page comes again.
    let chosen = [
        ("token", token.as_str()),
        ("login", "ada"),
        ("password", PASSWORD),
        ("repeated", PASSWORD),
    ];
    let page = browser.submit("/identity/join", &chosen).await.expect(200).text();
    let ticket = hidden(&page, "ticket");
    let wrong = [("ticket", ticket.as_str()), ("code", "000000")];
    let again = browser
        .submit("/identity/enrolment", &wrong)
        .await
        .expect(400)
        .text();
    assert_eq!(
        between(&again, "id=\"secret\">", "<"),
        between(&page, "id=\"secret\">", "<")
    );
    for forged in ["", "garbage", &ticket[..ticket.len() - 4]] {
        let members = [("ticket", forged), ("code", "000000")];
        browser.submit("/identity/enrolment", &members).await.expect(400);
        browser
            .submit("/identity/sign-in/code", &members)
            .await
            .expect(400);
    }
    assert_eq!(site.database.number("SELECT COUNT(*) FROM people").await, 1);
    browser.enrol(&again, "ada", PASSWORD).await;
    assert_eq!(site.noted("invitation.accept").await, 2);
    let huge = "x".repeat(20_000);
    browser
        .submit("/identity/sign-in", &[("login", &huge)])
        .await
        .expect(413);
}

async fn forms_from_elsewhere_and_the_cookie_elsewhere_do_nothing(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let mut browser = site.browser();
    browser.join(&site.link("owner"), "grace", PASSWORD).await;
    let cookie = browser.cookie.clone().unwrap();
    let address = site.address();
    let (origin, other) = (format!("http://{address}"), "https://evil.example".to_owned());
    for headers in [
        vec![],
        vec![("origin", other.clone())],
        vec![("origin", "null".to_owned())],
        vec![
            ("sec-fetch-site", "cross-site".to_owned()),
            ("origin", origin.clone()),
        ],
        vec![("sec-fetch-site", "none".to_owned())],
    ] {
        let mut sender = form(&site.client, "/identity/sign-out", &[]).header("cookie", &cookie);
        for (name, value) in &headers {
            sender = sender.header(name, value);
        }
        let refused = sender.send().await.expect(403);
        is_safe(&refused);
        assert!(refused.header("set-cookie").is_none(), "{headers:?}");
    }
    browser.open("/identity").await.expect(200);
    // A browser without `Sec-Fetch-Site` says where a form comes from.
    let out = form(&site.client, "/identity/sign-out", &[]).header("cookie", &cookie);
    out.header("origin", &origin).send().await.expect(200);
    assert_eq!(browser.open("/identity").await.status, 303);
    // The cookie is no credential of the API.
    let ask = site.client.request(Method::GET, "/api/credits/balance");
    ask.header("cookie", &cookie)
        .send()
        .await
        .refused(401, "UNAUTHENTICATED");
    let json = site
        .client
        .request(Method::POST, "/identity/sign-in")
        .json(&json!({ "login": "grace" }));
    json.header("sec-fetch-site", "same-origin")
        .send()
        .await
        .expect(415);
    for path in ["/identity/step-up", "/identity/recovery-codes"] {
        assert_eq!(
            site.browser().open(path).await.expect(303).header("location"),
            Some("/identity/sign-in")
        );
        site.browser()
            .submit(path, &[("code", "123456")])
            .await
            .expect(303);
    }
}

async fn who_lost_everything_begins_anew_by_the_operators_link(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let mut browser = site.browser();
    let joined = browser.join(&site.link("admin"), "Grace", PASSWORD).await;
    let token = browser.token().await;
    let reset = |login: &str| site.operate(&["member", "reset", "--login", login]);
    let first = reset("grace");
    let subject = first["subject"].as_str().unwrap().to_owned();
    let old = path_of(first["url"].as_str().unwrap());
    // Signed out by it at once.
    balance(&site, &token).await.refused(401, "CREDENTIAL_REVOKED");
    let link = path_of(reset("GRACE")["url"].as_str().unwrap());
    let mut browser = site.browser();
    browser.open(&old).await.expect(404);
    let page = browser.open(&link).await.expect(200).text();
    assert!(page.contains("Grace"));
    let token = hidden(&page, "token");
    let chosen = [
        ("token", token.as_str()),
        ("password", "another harbour"),
        ("repeated", "another harbour"),
    ];
    let page = browser
        .submit("/identity/reset", &chosen)
        .await
        .expect(200)
        .text();
    // What was chosen before is refused already, like a wrong password.
    let refused = site.browser().give_password("grace", PASSWORD).await.expect(403);
    let wrong = site
        .browser()
        .give_password("grace", "no password")
        .await
        .expect(403);
    assert_eq!(refused.text(), wrong.text());
    // A session that there might be in between ends with it.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let between_times = site.session(&subject, &json!({}));
    balance(&site, &between_times).await.expect(200);
    let anew = browser.enrol(&page, "Grace", "another harbour").await;
    balance(&site, &browser.token().await).await.expect(200);
    balance(&site, &between_times)
        .await
        .refused(401, "CREDENTIAL_REVOKED");
    browser.open(&link).await.expect(404);
    site.browser().give_password("grace", PASSWORD).await.expect(403);
    let mut elsewhere = site.browser();
    elsewhere.sign_in(&anew, &joined.recovery[0]).await.expect(400);
    elsewhere.sign_in(&anew, &anew.recovery[0]).await.expect(303);
    assert_eq!(
        (site.noted("member.reset").await, site.noted("member.renew").await),
        (2, 1)
    );
    let (status, answer, _) = crate::harness::operate(
        &site.config,
        &site.data,
        &["member", "reset", "--login", "nobody"],
    );
    assert!(!status.success(), "{answer}");
}

async fn a_person_joins_another_workspace_with_the_same_account(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let mut browser = site.browser();
    let joined = browser.join(&site.link("developer"), "grace", PASSWORD).await;
    let (second, _) = site.workspace("Second <b>");
    let invited = site.operate(&["member", "invite", "--tenant", &second, "--role", "viewer"]);
    let link = path_of(invited["url"].as_str().unwrap());
    // Signed out: she signs in on the way.
    let mut browser = site.browser();
    let page = browser.open(&link).await.expect(200).text();
    let sign_in = between(&page, "href=\"/identity/sign-in", "\"");
    let page = browser
        .open(&format!("/identity/sign-in{sign_in}"))
        .await
        .expect(200)
        .text();
    let join = hidden(&page, "join");
    let members = [
        ("login", "grace"),
        ("password", PASSWORD),
        ("join", join.as_str()),
    ];
    let page = browser
        .submit("/identity/sign-in", &members)
        .await
        .expect(200)
        .text();
    let ticket = hidden(&page, "ticket");
    let code = joined.code(1);
    let members = [
        ("ticket", ticket.as_str()),
        ("join", join.as_str()),
        ("code", code.as_str()),
    ];
    let page = browser
        .submit("/identity/sign-in/code", &members)
        .await
        .expect(200)
        .text();
    assert!(page.contains("Second &lt;b&gt;"), "{page}");
    let token = hidden(&page, "token");
    browser
        .submit("/identity/accept", &[("token", &token)])
        .await
        .expect(303);
    let home = browser.open("/identity").await.expect(200).text();
    assert!(
        home.contains("Second &lt;b&gt;") && home.contains("Tests"),
        "{home}"
    );
    browser
        .submit("/identity/accept", &[("token", &token)])
        .await
        .expect(404);
    // Who is a member already keeps the role and the link stays open.
    let link = site.link("owner");
    let page = browser.open(&link).await.expect(200).text();
    let token = hidden(&page, "token");
    browser
        .submit("/identity/accept", &[("token", &token)])
        .await
        .expect(409);
    browser.open(&link).await.expect(200);
    let members = site.operate(&["member", "list", "--tenant", &site.tenant]);
    let roles: Vec<&Value> = members["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| &member["role"])
        .collect();
    assert_eq!(roles, ["developer"]);
}

async fn so_many_forms_a_minute_are_taken_from_one_address(store: Store) {
    let setup = Setup::new(store).grant(None);
    let site = setup.set("limits.sign_ins_per_minute", 3).start().await;
    let mut browser = site.browser();
    for login in ["a", "b", "c"] {
        browser.give_password(login, "wrong").await.expect(403);
    }
    for path in ["/identity/sign-in", "/identity/join", "/identity/sign-out"] {
        let refused = browser.submit(path, &[]).await.expect(429);
        is_safe(&refused);
        let secs: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=61).contains(&secs), "{secs}");
    }
    browser.open("/identity/sign-in").await.expect(200);
}

async fn what_people_do_is_noted_with_its_origin(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let mut browser = site.browser();
    let joined = browser
        .join(&site.link("viewer"), "grace@example.com", PASSWORD)
        .await;
    let code = |at: usize| [("code", joined.recovery[at].clone())];
    for (at, path, status) in [
        (0, "/identity/step-up", 303),
        (1, "/identity/recovery-codes", 200),
    ] {
        let [(name, code)] = code(at);
        browser.submit(path, &[(name, &code)]).await.expect(status);
    }
    let reset = site.operate(&["member", "reset", "--login", "grace@example.com"]);
    let link = path_of(reset["url"].as_str().unwrap());
    let page = site.browser().open(&link).await.expect(200).text();
    let token = hidden(&page, "token");
    let chosen = [
        ("token", token.as_str()),
        ("password", "another harbour"),
        ("repeated", "another harbour"),
    ];
    let page = browser
        .submit("/identity/reset", &chosen)
        .await
        .expect(200)
        .text();
    browser.enrol(&page, "grace@example.com", "another harbour").await;

    let owner = site.owner();
    let asked = site
        .client
        .request(Method::GET, "/api/credits/audit")
        .bearer(&owner);
    let log = asked.send().await.expect(200);
    assert!(!log.text().contains("grace@example.com"), "{}", log.text());
    let rows = log.json()["data"].as_array().unwrap().clone();
    for (action, path) in [
        ("invitation.accept", "enrolment"),
        ("step_up.session", "step-up"),
        ("member.recovery_codes", "recovery-codes"),
        ("member.renew", "enrolment"),
    ] {
        let row = rows.iter().find(|row| row["action"] == action).unwrap();
        let origin = format!("POST /identity/{path} from 127.0.0.1");
        assert_eq!(row["origin"], origin.as_str(), "{action}");
        assert_eq!(
            row["actor"],
            format!("member:{}", reset["subject"].as_str().unwrap()).as_str()
        );
    }
}

async fn what_was_done_is_shown_though_a_log_cannot_be_written(store: Store) {
    let site = Setup::new(store).grant(None).start().await;
    let mut browser = site.browser();
    let joined = browser.join(&site.link("viewer"), "grace", PASSWORD).await;
    let subject = claims_of(&browser.token().await)["sub"]
        .as_str()
        .unwrap()
        .to_owned();
    // In two more workspaces, one of whose logs takes no row.
    let (second, _) = site.workspace("Second");
    let (third, _) = site.workspace("Third");
    for tenant in [&second, &third] {
        site.operate(&[
            "member",
            "add",
            "--tenant",
            tenant,
            "--subject",
            &subject,
            "--role",
            "viewer",
        ]);
    }
    let (refuse, allow) = match &site.database {
        Database::Sqlite(_) => (
            "CREATE TRIGGER refuse BEFORE INSERT ON audit_log
             WHEN NEW.tenant_id = (SELECT tenant_id FROM tenants WHERE name = 'Third')
             BEGIN SELECT RAISE(ABORT, 'no'); END"
                .to_owned(),
            "DROP TRIGGER refuse",
        ),
        Database::Postgres { .. } => (
            format!("ALTER TABLE audit_log ADD CONSTRAINT refuse CHECK (tenant_id <> '{third}') NOT VALID"),
            "ALTER TABLE audit_log DROP CONSTRAINT refuse",
        ),
    };
    site.database.execute(&refuse).await;
    let code = [("code", joined.recovery[0].as_str())];
    let page = browser
        .submit("/identity/recovery-codes", &code)
        .await
        .expect(200)
        .text();
    assert_eq!(page.matches("<li><code>").count(), 10);
    assert_eq!(site.noted("member.recovery_codes").await, 2);
    eventually("the failure is logged", || async {
        let log = site.service().logged();
        log.contains("could not be written").then_some(())
    })
    .await;
    site.database.execute(allow).await;
    eventually("the row follows", || async {
        (site.noted("member.recovery_codes").await == 3).then_some(())
    })
    .await;
}
