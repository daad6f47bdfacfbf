//! A running gateway with a workspace and keys. When it is dropped the books are audited.

use std::path::PathBuf;

use http::Method;
use serde_json::{Value, json};

use super::service::operate;
use super::{Client, Database, Reply, Sender, Service, Setup, Upstream, eventually, micros};

/// The path of chat completions.
pub const CHAT: &str = "/api/wrapped/credits/v1/chat/completions";
/// The path of a tool with a fixed price of 0.008 dollars.
pub const TOOL: &str = "/api/wrapped/credits/tools/fetch";

/// A chat request.
pub fn chat(model: &str, text: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": text }] })
}

/// A chat request that asks for a stream.
pub fn chat_stream(model: &str, text: &str) -> Value {
    json!({ "model": model, "stream": true, "messages": [{ "role": "user", "content": text }] })
}

/// A running gateway, its provider and its store.
pub struct Site {
    /// The process; `None` while it is down.
    pub service: Option<Service>,
    /// A client of it.
    pub client: Client,
    /// Its provider.
    pub upstream: Upstream,
    /// The workspace.
    pub tenant: String,
    /// A secret key of the workspace with every scope.
    pub key: String,
    /// Whether the books are audited at the end.
    pub audited: bool,
    /// Its configuration file.
    pub config: PathBuf,
    /// Its data directory.
    pub data: PathBuf,
    /// How it was set up.
    pub setup: Setup,
    /// Its database.
    pub database: Database,
    _dir: tempfile::TempDir,
}

const ALL_SCOPES: &[&str] = &[
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

impl Site {
    /// The usual gateway.
    pub async fn new(store: super::Store) -> Self {
        Setup::new(store).start().await
    }

    pub(super) async fn start(setup: Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        let database = Database::create(setup.store, setup.cluster.as_deref(), &data).await;
        let upstream = Upstream::start().await;
        let mut setup = setup.set("store.url", database.url());
        let base = format!("http://{}/v1", upstream.address);
        for provider in setup.config["providers"].as_array_mut().unwrap() {
            let provider = provider.as_table_mut().unwrap();
            provider.entry("base_url").or_insert_with(|| base.clone().into());
        }
        let config = dir.path().join("turnpike.toml");
        std::fs::write(&config, setup.config.to_string()).unwrap();
        let prices = dir.path().join("prices.toml");
        std::fs::write(&prices, &setup.prices).unwrap();
        let (status, _, complaint) = operate(&config, &data, &["prices", "import", prices.to_str().unwrap()]);
        assert!(status.success(), "{complaint}");
        let service = Service::start(&config, &data, &setup.env).await;
        let client = service.client();
        let mut site = Self {
            service: Some(service),
            client,
            upstream,
            tenant: String::new(),
            key: String::new(),
            audited: true,
            config,
            data,
            setup,
            database,
            _dir: dir,
        };
        (site.tenant, site.key) = site.workspace("Tests");
        if let Some(usd) = site.setup.grant.clone() {
            site.grant(&usd, None);
        }
        site
    }

    /// Makes a workspace with a key of every scope.
    pub fn workspace(&self, name: &str) -> (String, String) {
        let tenant = self.operate(&["tenant", "create", "--name", name])["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let key = self.key_of(&tenant, "secret", ALL_SCOPES);
        (tenant, key)
    }

    /// Runs an operator's command beside the service.
    #[track_caller]
    pub fn operate(&self, args: &[&str]) -> Value {
        let (status, value, complaint) = operate(&self.config, &self.data, args);
        assert!(status.success(), "{args:?}: {status}\n{complaint}");
        value
    }

    /// Issues a key in `tenant`.
    pub fn key_of(&self, tenant: &str, kind: &str, scopes: &[&str]) -> String {
        let mut args = vec![
            "key", "create", "--tenant", tenant, "--name", "test", "--kind", kind,
        ];
        for scope in scopes {
            args.extend(["--scope", scope]);
        }
        self.operate(&args)["key"].as_str().unwrap().to_owned()
    }

    /// Issues a key in the workspace.
    pub fn new_key(&self, kind: &str, scopes: &[&str]) -> String {
        self.key_of(&self.tenant, kind, scopes)
    }

    /// Grants credits to the pool or an end user.
    pub fn grant(&self, usd: &str, user: Option<&str>) {
        let mut args = vec![
            "credits",
            "grant",
            "--tenant",
            &self.tenant,
            "--usd",
            usd,
            "--reason",
            "test",
        ];
        if let Some(user) = user {
            args.extend(["--external-user-id", user]);
        }
        self.operate(&args);
    }

    /// The process.
    pub fn service(&self) -> &Service {
        self.service.as_ref().expect("the service is down")
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.service().address.clone()
    }

    /// A POST with the workspace's key.
    pub fn post(&self, path: &str, body: &Value) -> Sender {
        self.client
            .request(Method::POST, path)
            .bearer(&self.key)
            .json(body)
    }

    /// A chat request with the workspace's key.
    pub fn chat(&self, body: &Value) -> Sender {
        self.post(CHAT, body)
    }

    /// A GET with the workspace's key.
    pub fn get(&self, path: &str) -> Sender {
        self.client.request(Method::GET, path).bearer(&self.key)
    }

    /// The pool's balance document.
    pub async fn balance(&self) -> Value {
        self.get("/api/credits/balance").send().await.expect(200).json()
    }

    /// An end user's balance document.
    pub async fn balance_of(&self, user: &str) -> Value {
        self.get("/api/credits/balance")
            .paid_by(user)
            .send()
            .await
            .expect(200)
            .json()
    }

    /// What the pool has, in µUSD; nothing may be held.
    pub async fn settled(&self) -> i64 {
        eventually("no credits are held", || async {
            let balance = self.balance().await;
            (balance["reservedUsd"] == "0").then(|| micros(balance["usd"].as_str().unwrap()))
        })
        .await
    }

    /// A call's record.
    pub async fn call(&self, id: &str) -> Value {
        self.get(&format!("/api/credits/calls/{id}"))
            .send()
            .await
            .expect(200)
            .json()["call"]
            .clone()
    }

    /// A call's record once it is over.
    pub async fn finished_call(&self, id: &str) -> Value {
        eventually("the call is over", || async {
            let call = self.call(id).await;
            (!call["finishedAt"].is_null()).then_some(call)
        })
        .await
    }

    /// The whole ledger as it is exported.
    pub fn ledger(&self) -> String {
        self.export("ledger")
    }

    /// An export.
    pub fn export(&self, what: &str) -> String {
        let output = super::turnpike(&self.config, &self.data)
            .args(["export", what, "--tenant", &self.tenant])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Events of a type, oldest first.
    pub fn events(&self, kind: &str) -> Vec<Value> {
        self.export("events")
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|event| event["type"] == kind)
            .collect()
    }

    /// Starts the service again.
    pub async fn restart(&mut self, env: &[(String, String)]) {
        self.service = None;
        let service = Service::start(&self.config, &self.data, env).await;
        self.client = service.client();
        self.service = Some(service);
    }

    /// Another service on the same store, with a data directory of its own.
    pub async fn second(&self) -> Service {
        let data = self.data.with_file_name("data-2");
        std::fs::create_dir_all(&data).unwrap();
        Service::start(&self.config, &data, &self.setup.env).await
    }

    /// Checks the books now.
    #[track_caller]
    pub fn audit(&self) -> Value {
        let (status, report, complaint) = operate(&self.config, &self.data, &["audit"]);
        assert!(
            status.success() && report["clean"] == true,
            "the books are wrong: {status} {report:#}\n{complaint}"
        );
        report
    }

    /// Waits until no call is open.
    pub async fn idle(&self) {
        eventually("every call has ended", || async {
            let report = self.audit();
            let open = report["tenants"]
                .as_array()
                .unwrap()
                .iter()
                .any(|tenant| tenant["report"]["counts"]["open_holds"] != 0);
            (!open).then_some(())
        })
        .await;
    }
}

/// The receipt in a reply's headers: charged and balance, in µUSD.
pub fn receipt(reply: &Reply) -> (i64, i64) {
    let amount = |name: &str| {
        let credits = reply.header(name).unwrap_or_else(|| panic!("no {name}"));
        micros_of_credits(credits)
    };
    (amount("x-svc-credits-charged"), amount("x-svc-credits-balance"))
}

/// Credits (1000 a dollar) as µUSD.
pub fn micros_of_credits(credits: &str) -> i64 {
    let (whole, fraction) = credits.split_once('.').unwrap_or((credits, ""));
    assert!(fraction.len() <= 3, "a fraction of a µUSD: {credits}");
    format!("{whole}{fraction:0<3}").parse().unwrap()
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Some(service) = &self.service {
                let log = service.logged();
                let from = log.len().saturating_sub(4000);
                let tail = log.get(from..).unwrap_or(&log);
                eprintln!("--- end of the service's log ---\n{tail}");
            }
            return;
        }
        if self.audited {
            self.audit();
        }
        if let Some(service) = &self.service {
            let log = service.logged();
            for sign in ["panicked at", "internal error"] {
                assert!(!log.contains(sign), "the log has {sign:?}:\n{log}");
            }
        }
    }
}
