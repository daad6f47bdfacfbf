//! `turnpike dev`: the whole service on embedded parts, with a demo workspace and lines to try.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use turnpike_app::Environment as _;
use turnpike_app::admin::{AdminDesk, AdminRequest};
use turnpike_app::sessions::{NewSession, SessionSigner};
use turnpike_core::access::{KeyKind, KeySecret, Role, Scope};
use turnpike_core::ids::{ExternalUserId, TenantId};
use turnpike_core::money::Micros;

use crate::clock::SystemEnvironment;
use crate::http::App;
use crate::service::{SetupError, write_private};

const DEMO: &str = "Demo";
const OWNER: &str = "demo-owner";
const END_USER: &str = "demo-user";
const ENV_FILE: &str = "dev.env";
/// How long a session for trying lasts.
const SESSION_SECS: i64 = 12 * 3600;

/// The values of `dev.env`.
pub(crate) type DevEnv = BTreeMap<String, String>;

/// Removes the embedded store and its companions.
pub(crate) fn reset(data: &Path) -> Result<(), SetupError> {
    for name in ["turnpike.db", "turnpike.db-wal", "turnpike.db-shm", ENV_FILE] {
        let path = data.join(name);
        if path.exists() {
            std::fs::remove_file(&path).map_err(SetupError::file(&path))?;
        }
    }
    Ok(())
}

/// Creates the demo workspace once and writes `dev.env`.
pub(crate) async fn prepare(app: &App, data: &Path) -> Result<DevEnv, SetupError> {
    let known = read_env(&data.join(ENV_FILE));
    let desk = &app.service.admin;
    let tenants = app.service.store.list_tenants().await?;
    let mut env = DevEnv::new();
    let tenant = match tenants.iter().find(|tenant| tenant.name == DEMO) {
        Some(tenant) => tenant.id,
        None => create_demo(desk).await?,
    };
    env.insert(
        "TURNPIKE_URL".into(),
        app.service.config.server.public_url.clone(),
    );
    env.insert("TURNPIKE_TENANT_ID".into(), tenant.to_string());
    for (name, kind, scopes) in [
        ("TURNPIKE_SECRET_KEY", KeyKind::Secret, Scope::ALL.to_vec()),
        ("TURNPIKE_SANDBOX_KEY", KeyKind::Sandbox, Vec::new()),
        (
            "TURNPIKE_PUBLISHABLE_KEY",
            KeyKind::Publishable,
            vec![Scope::WidgetRead],
        ),
    ] {
        let key = match known.get(name) {
            Some(key) if still_works(app, tenant, key).await? => key.clone(),
            _ => create_key(desk, tenant, kind, scopes).await?,
        };
        env.insert(name.into(), key);
    }
    let session = match &app.service.signer {
        Some(signer) => sign(signer, OWNER, Some(0))?,
        // Another provider signs the sessions.
        None => String::new(),
    };
    env.insert("TURNPIKE_SESSION_TOKEN".into(), session);
    env.insert("TURNPIKE_END_USER_ID".into(), END_USER.to_owned());
    let key = env.get("TURNPIKE_SECRET_KEY").map_or("", String::as_str);
    // Somebody may have tried what suspends the workspace or retires the end user; the rest still works.
    let token = mint_token(app, key).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "no token was minted for {END_USER}: begin anew with --reset");
        String::new()
    });
    env.insert("TURNPIKE_END_USER_TOKEN".into(), token);
    // A wallet for trying: simulated payments give every wallet a balance.
    let payer = known.get("TURNPIKE_X402_PAYER_KEY").cloned();
    env.insert("TURNPIKE_X402_PAYER_KEY".into(), payer.unwrap_or_else(payer_key));
    let lines: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    write_private(&data.join(ENV_FILE), lines.concat().as_bytes())?;
    Ok(env)
}

/// The key of a fresh wallet.
fn payer_key() -> String {
    format!("0x{}", hex::encode(SystemEnvironment.random_32()))
}

/// A session of `subject`, whose second factor was shown so many seconds ago, or never.
pub(crate) fn sign(
    signer: &SessionSigner,
    subject: &str,
    mfa_age_secs: Option<i64>,
) -> Result<String, SetupError> {
    let now = SystemEnvironment.now();
    let age_ms = mfa_age_secs.unwrap_or(0).saturating_mul(1000);
    let amr: &[&str] = if mfa_age_secs.is_some() {
        &["pwd", "otp"]
    } else {
        &["pwd"]
    };
    let session = NewSession {
        subject,
        auth_time: now.plus_millis(age_ms.saturating_neg()),
        amr,
        issued_at: now,
        lifetime_secs: SESSION_SECS,
    };
    Ok(signer.sign(&session)?)
}

/// The address of the service that last wrote `dev.env`.
pub(crate) fn public_url(data: &Path) -> Option<String> {
    read_env(&data.join(ENV_FILE)).remove("TURNPIKE_URL")
}

fn read_env(path: &Path) -> DevEnv {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

async fn still_works(app: &App, tenant: TenantId, key: &str) -> Result<bool, SetupError> {
    let Ok((_, secret)) = KeySecret::parse(&app.service.config.server.brand, key) else {
        return Ok(false);
    };
    let hash = secret.hash(app.service.authenticator.pepper());
    let found = app.service.store.find_key(&hash).await?;
    Ok(found.is_some_and(|key| key.tenant == tenant && key.revoked_at.is_none()))
}

async fn create_demo(desk: &AdminDesk) -> Result<TenantId, SetupError> {
    let created = desk
        .run(
            AdminRequest::TenantCreate {
                name: DEMO.to_owned(),
            },
            "dev",
        )
        .await?;
    let id = created.get("id").and_then(Value::as_str).unwrap_or_default();
    let tenant: TenantId = id
        .parse()
        .map_err(|_invalid| SetupError::Other("the workspace has no id".to_owned()))?;
    desk.run(
        AdminRequest::MemberAdd {
            tenant,
            subject: OWNER.to_owned(),
            role: Role::Owner,
        },
        "dev",
    )
    .await?;
    let user = ExternalUserId::parse(END_USER).map_err(|error| SetupError::Other(error.to_string()))?;
    for (external_user_id, micros) in [(None, 25_000_000), (Some(user), 5_000_000)] {
        let grant = AdminRequest::Grant {
            tenant,
            external_user_id,
            usd: Micros::new(micros),
            reason: "demo credits".to_owned(),
        };
        desk.run(grant, "dev").await?;
    }
    Ok(tenant)
}

async fn create_key(
    desk: &AdminDesk,
    tenant: TenantId,
    kind: KeyKind,
    scopes: Vec<Scope>,
) -> Result<String, SetupError> {
    let request = AdminRequest::KeyCreate {
        tenant,
        name: format!("dev {kind}"),
        kind,
        scopes,
        expires_in: None,
    };
    let created = desk.run(request, "dev").await?;
    let key = created.get("key").and_then(Value::as_str);
    key.map(str::to_owned)
        .ok_or_else(|| SetupError::Other("the key was not shown".to_owned()))
}

/// A token of the demo's end user, which lasts an hour.
async fn mint_token(app: &App, key: &str) -> Result<String, SetupError> {
    let actor = app
        .service
        .authenticator
        .key(key, SystemEnvironment.now())
        .await?;
    let user = ExternalUserId::parse(END_USER).map_err(|error| SetupError::Other(error.to_string()))?;
    let desk = &app.service.end_users;
    let minted = desk.mint(&actor, &user, br#"{"expiresIn":3600}"#).await?;
    let token = minted.get("token").and_then(Value::as_str);
    token
        .map(str::to_owned)
        .ok_or_else(|| SetupError::Other("the token was not shown".to_owned()))
}

/// What to try, for people.
pub(crate) fn welcome(env: &DevEnv, vendor: &str, data: &Path, first_owner: Option<&str>) -> String {
    let get = |name: &str| env.get(name).map_or("", String::as_str);
    let (url, key) = (get("TURNPIKE_URL"), get("TURNPIKE_SECRET_KEY"));
    let payer = get("TURNPIKE_X402_PAYER_KEY");
    let (sandbox, token) = (get("TURNPIKE_SANDBOX_KEY"), get("TURNPIKE_END_USER_TOKEN"));
    let body =
        r#"{"model":"vendor-v4-flash","messages":[{"role":"user","content":"Hello"}],"max_tokens":64}"#;
    let chat = format!("{url}/api/wrapped/credits/v1/chat/completions");
    let stream = body.replace("\"max_tokens\":64", "\"max_tokens\":64,\"stream\":true");
    let people = match first_owner {
        Some(link) => {
            format!("Become the owner (password, second factor): this link works once.\n\n  {link}")
        }
        None => format!("Sign in at {url}/identity"),
    };
    format!(
        "
Turnpike runs at {url} with the workspace \"Demo\" (25 USD in its pool, 5 USD for {END_USER}).
The providers are simulated and the data is in {data}; its keys are in {data}/{ENV_FILE}.

{people}

A paid call (the headers say what it cost and what is left):

  curl -si {chat} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{body}'

A stream:

  curl -sN {chat} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{stream}'

The same on an end user's balance:

  curl -si {chat} -H 'Authorization: Bearer {key}' -H 'X-Svc-External-User-Id: {END_USER}' -H 'Content-Type: application/json' -d '{body}'

The same with the end user's own token, as a page or an app would send it (it lasts an hour):

  curl -si {chat} -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' -d '{body}'

A tool, charged once however often it is repeated:

  curl -si {url}/api/wrapped/credits/sim/echo -H 'Authorization: Bearer {key}' -H 'Idempotency-Key: try-1' -H 'Content-Type: application/json' -d '{{\"message\":\"hi\"}}'

The same without an account: a wallet pays for the call by itself (the 402 names the terms; x402 clients pay them).
The wallet's key, whose simulated balance is 100 USD: {payer}

  curl -si {url}/{vendor}/list-models -H 'Content-Type: application/json' -d '{{}}'

The balance, and what went through it:

  curl -s {url}/api/credits/balance -H 'Authorization: Bearer {key}'
  curl -s {url}/api/credits/ledger -H 'Authorization: Bearer {key}'

Every event, and what became of it; an endpoint of your own, whose signing secret is shown once:

  curl -s {url}/api/credits/webhooks/events -H 'Authorization: Bearer {key}'
  curl -s {url}/api/credits/webhooks/endpoints -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{{\"url\":\"http://localhost:3000/hooks\"}}'

A test key costs nothing and calls nobody: {sandbox}
OpenAI SDKs: base URL {url}/api/wrapped/credits/v1, API key as above.
Stop with Ctrl-C.
",
        data = data.display(),
    )
}
