//! Canaries: secrets, prompts and answers that must appear in no log and no error, whatever goes wrong.

use http::Method;
use serde_json::{Value, json};

use crate::harness::upstream::{answer, completion, sse_content, sse_head, tokens};
use crate::harness::{CHAT, Setup, Site, Step, Store, TOOL, chat, chat_stream};
use crate::on_both_stores;

on_both_stores!(
    no_secret_reaches_the_logs_the_errors_or_the_records,
    errors_tell_no_internals
);

const PROMPT: &str = "prompt-canary-4111111111111111";
const ANSWER: &str = "answer-canary-93b1";
const PROVIDER_DETAIL: &str = "provider-detail-canary-77aa";
const PROVIDER_KEY: &str = "provider-key-canary";

async fn every_path(site: &Site, raw_keys: &[&str]) -> Vec<String> {
    let mut errors = Vec::new();
    let good = |seen: &crate::harness::Seen| {
        let body = json!({ "choices": [{ "message": { "content": ANSWER } }], "usage": tokens(1, 1), "n": seen.number });
        if seen.json()["stream"] == true {
            return vec![sse_head(), sse_content(ANSWER), Step::Close];
        }
        vec![answer(200, &[], body.to_string().as_bytes())]
    };
    let detail = json!({ "error": { "message": PROVIDER_DETAIL } }).to_string();
    let scripts: Vec<Vec<Step>> = vec![
        vec![],
        vec![answer(500, &[("x-secret", PROVIDER_DETAIL)], detail.as_bytes())],
        vec![answer(401, &[], detail.as_bytes())],
        vec![answer(200, &[], PROVIDER_DETAIL.as_bytes())],
        vec![answer(302, &[("location", PROVIDER_DETAIL)], b"")],
        vec![completion(
            1,
            &json!({ "prompt_tokens": PROVIDER_DETAIL, "completion_tokens": 1 }),
        )],
        vec![Step::Close],
        vec![Step::Bytes(PROVIDER_DETAIL.as_bytes().to_vec()), Step::Close],
    ];
    for (index, script) in scripts.into_iter().enumerate() {
        if index == 0 {
            site.upstream.script(good);
        } else {
            site.upstream.always(script);
        }
        for (kind, path, body) in [
            ("chat", CHAT, chat("tokens", PROMPT)),
            ("stream", CHAT, chat_stream("tokens", PROMPT)),
            ("tool", TOOL, json!({ "id": PROMPT })),
        ] {
            let reply = site
                .post(path, &body)
                .once(&format!("{kind}-{index}"))
                .send()
                .await;
            if reply.status != 200 {
                errors.push(reply.text());
            }
        }
    }
    site.upstream.heal();
    for body in [
        json!({ "model": PROMPT, "messages": [{ "role": "user", "content": PROMPT }] }),
        json!({ "model": "tokens", "messages": [{ "role": PROMPT }], "n": PROMPT }),
        json!({ "model": "tokens", "messages": PROMPT }),
    ] {
        // A refused request may name what was wrong in it; it stays out of the logs all the same.
        site.chat(&body).send().await;
    }
    for key in raw_keys {
        for reply in [
            site.client
                .request(Method::POST, CHAT)
                .bearer(key)
                .json(&chat("tokens", PROMPT))
                .send()
                .await,
            site.client
                .request(Method::GET, "/api/credits/balance")
                .bearer(key)
                .send()
                .await,
            site.client
                .request(Method::GET, &format!("/api/credits/calls/{key}"))
                .bearer(&site.key)
                .send()
                .await,
            site.client
                .request(Method::GET, "/api/credits/balance")
                .header("x-svc-tenant-id", key)
                .bearer(key)
                .send()
                .await,
        ] {
            errors.push(reply.text());
        }
    }
    errors
}

/// Everything that is shown to an owner once, and the owner's session: used rightly, wrongly and after its end.
async fn given_by_the_owner(site: &Site) -> Vec<String> {
    let owner = site.owner();
    let ask = async |path: &str, body: Value, status: u16| {
        let post = site.as_member(&owner, Method::POST, path).json(&body);
        post.send().await.expect(status).json()
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let step_up = ask("/api/credits/step-up", json!({}), 201).await;
    let step_up = text(&step_up["stepUpToken"]);
    let invited = ask(
        "/api/credits/tenants/me/invitations",
        json!({ "role": "viewer" }),
        201,
    )
    .await;
    let invitation = text(&invited["token"]);
    let issued = ask("/api/credits/tenants/me/keys", json!({ "name": "n" }), 201).await;
    let key = text(&issued["key"]);
    let token = site.token("alice", &json!({})).await;
    let guest = site.session("guest", &json!({ "amr": ["pwd"] }));
    for (bearer, used) in [
        (&guest, &invitation),
        (&guest, &invitation),
        (&owner, &key),
        (&key, &token),
    ] {
        let accept = site.as_member(bearer, Method::POST, "/api/credits/invitations/accept");
        accept.json(&json!({ "token": used })).send().await;
        let retire = site
            .retiring("alice", bearer)
            .header("x-svc-step-up-token", &step_up);
        retire.send().await;
    }
    ask("/api/credits/sign-out", json!({}), 200).await;
    vec![step_up, invitation, key, token, owner, guest]
}

// Fault matrix 223, 176, I13
async fn no_secret_reaches_the_logs_the_errors_or_the_records(store: Store) {
    let site = Setup::new(store)
        .set("telemetry.level", "trace")
        .set("telemetry.access_log", true)
        .start()
        .await;
    let sandbox = site.new_key("sandbox", &[]);
    let session = site.operate(&["dev-token", "--subject", "someone"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut typo = site.key.clone();
    typo.push('x');
    let given = given_by_the_owner(&site).await;
    let raw: Vec<&str> = [&site.key, &sandbox, &session, &typo]
        .into_iter()
        .chain(&given)
        .map(String::as_str)
        .collect();
    let errors = every_path(&site, &raw).await;
    assert!(errors.len() > 20, "{}", errors.len());
    let secret = "a secret of the tests, the same on every node";
    let log = site.service().logged();
    assert!(log.lines().count() > 100, "the log is at trace level");
    for canary in [PROMPT, ANSWER, PROVIDER_DETAIL, PROVIDER_KEY, secret]
        .into_iter()
        .chain(raw.iter().copied())
    {
        if let Some(line) = log.lines().find(|line| line.contains(canary)) {
            panic!("{canary} is in the log: {line}");
        }
    }
    for text in &errors {
        for canary in [ANSWER, PROVIDER_KEY, PROVIDER_DETAIL, secret]
            .into_iter()
            .chain(raw.iter().copied())
        {
            assert!(!text.contains(canary), "{canary} is in an error: {text}");
        }
    }
    let records = [
        site.ledger(),
        site.export("usage"),
        site.export("events"),
        site.operate(&["key", "list", "--tenant", &site.tenant])
            .to_string(),
        site.export("audit"),
    ];
    for text in &records {
        for canary in [PROMPT, ANSWER, PROVIDER_DETAIL, PROVIDER_KEY, secret]
            .into_iter()
            .chain(raw.iter().copied())
        {
            assert!(!text.contains(canary), "{canary} is in a record: {text}");
        }
    }
    // Raw keys are nowhere in the store.
    if store == Store::Sqlite {
        for name in ["turnpike.db", "turnpike.db-wal"] {
            let bytes = std::fs::read(site.data.join(name)).unwrap_or_default();
            for key in &raw {
                assert!(
                    crate::harness::upstream::find(&bytes, key.as_bytes()).is_none(),
                    "a raw key is in {name}"
                );
            }
        }
    }
}

// Fault matrix 224
async fn errors_tell_no_internals(store: Store) {
    let mut site = Site::new(store).await;
    site.audited = false;
    // Behind the service's back the store stops making sense.
    site.database
        .execute("ALTER TABLE holds RENAME TO holds_gone")
        .await;
    let replies = [
        site.chat(&chat("flat", "hi")).send().await,
        site.chat(&chat_stream("flat", "hi")).once("k").send().await,
        site.get("/api/credits/usage").send().await,
        site.get("/api/credits/calls/0190a0b0-0000-7000-8000-000000000000")
            .send()
            .await,
    ];
    site.database
        .execute("ALTER TABLE holds_gone RENAME TO holds")
        .await;
    for reply in replies {
        assert!(
            matches!(reply.status, 500 | 503),
            "{}: {}",
            reply.status,
            reply.text()
        );
        let text = reply.text().to_lowercase();
        for internal in [
            "sql", "holds", "table", "relation", "/crates/", ".rs", "panicked", "postgres",
        ] {
            assert!(!text.contains(internal), "{internal:?} in {text}");
        }
        let body: Value = reply.json();
        assert_eq!(body["success"], false);
        assert!(body["requestId"].is_string());
    }
    assert_eq!(site.upstream.count(), 0, "nothing is sent without a durable hold");
    site.restart(&[]).await;
    site.chat(&chat("flat", "hi")).send().await.expect(200);
    site.audit();
}
