//! The configuration of a test's service: short waits, no rate limits, one provider of models and one of tools.

use toml::{Table, Value};

use super::{Site, Store};

/// What the models cost, chosen so that charges can be counted in the head: with `tokens`, one µUSD for a
/// prompt token and two for a completion token; with `flat`, one cent a call.
const PRICES: &str = r#"
[[models]]
provider = "up"
model = "flat"
max_output_tokens = 1000
rates = { input = "0", output = "0", per_call = "0.01" }

[[models]]
provider = "up"
model = "dear"
max_output_tokens = 1000
rates = { input = "0", output = "0", per_call = "0.03" }

[[models]]
provider = "up"
model = "tokens"
max_output_tokens = 1000
max_image_tokens = 100
rates = { input = "1", cached_input = "0.5", output = "2" }

[[models]]
provider = "up"
model = "blind"
max_output_tokens = 1000
rates = { input = "1", output = "2" }

[[models]]
provider = "up"
model = "free"
max_output_tokens = 1000
rates = { input = "0", output = "0" }

[[models]]
provider = "up"
model = "thinking"
max_output_tokens = 8000
reasoning = true
recommended_min_output_tokens = 4000
rates = { input = "1", output = "2" }

[[models]]
provider = "up"
model = "upstream-name"
max_output_tokens = 1000
rates = { input = "0", output = "0", per_call = "0.01" }
"#;

const BASE: &str = r#"
[server]
listen = "127.0.0.1:0"
secret_key = "a secret of the tests, the same on every node"
drain_secs = 5

[identity]
invite_first_owner = false
issuer = "http://turnpike.test/identity"
audience = "http://turnpike.test/api/credits/dashboard"

[calls]
sweep_secs = 1

[limits]
calls_per_minute = 0
reads_per_minute = 0
mutations_per_minute = 0
token_mints_per_minute = 0
sign_ins_per_minute = 0

[telemetry]
level = "info,turnpike=debug"

[[providers]]
id = "up"
kind = "openai"
api_key = "provider-key-canary"
models = ["flat", "dear", "tokens", "blind", "free", "thinking", "unpriced", { id = "renamed", upstream = "upstream-name" }]

[[providers]]
id = "tools"
kind = "http"
api_key = "provider-key-canary"

[[providers.endpoints]]
name = "fetch"
title = "Fetch"
summary = "Fetches."
price = { kind = "fixed", usd = "0.008" }
schema = { type = "object", properties = { id = { type = "string" }, big = { type = "string" } } }
http = { method = "POST", path = "/fetch" }

[[providers.endpoints]]
name = "item"
title = "Item"
summary = "One item."
price = { kind = "fixed", usd = "0.001" }
schema = { type = "object", properties = { id = { type = "string" } }, required = ["id"], additionalProperties = false }
http = { method = "GET", path = "/items/{id}" }

[[providers.endpoints]]
name = "units"
title = "Units"
summary = "By the unit."
price = { kind = "metered", unit_usd = "0.002", units = "args.count" }
schema = { type = "object", properties = { count = { type = "integer", minimum = 0, maximum = 1000 } }, required = ["count"] }
http = { method = "POST", path = "/units" }

[[providers.endpoints]]
name = "live"
title = "Live"
summary = "Quoted."
price = { kind = "live", ceiling_usd = "1" }
schema = { type = "object" }
http = { method = "POST", path = "/live", quote = { path = "/quote", price_pointer = "/usd" } }
"#;

/// How a test's service is configured and what its workspace has.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its store.
    pub store: Store,
    /// Its configuration.
    pub config: Table,
    /// What its models cost.
    pub prices: String,
    /// What the workspace's pool is granted, in dollars.
    pub grant: Option<String>,
    /// Another PostgreSQL cluster than the usual one.
    pub cluster: Option<String>,
    /// Environment of the process.
    pub env: Vec<(String, String)>,
}

impl Setup {
    /// The usual: ten dollars in the pool.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            config: BASE.parse().unwrap(),
            prices: PRICES.to_owned(),
            grant: Some("10".to_owned()),
            cluster: None,
            env: Vec::new(),
        }
        .set("processor.kind", "builtin")
    }

    /// Sets a key such as `server.drain_secs`.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let (section, name) = key.split_once('.').unwrap();
        let table = self
            .config
            .entry(section)
            .or_insert_with(|| Value::Table(Table::new()));
        table
            .as_table_mut()
            .unwrap()
            .insert(name.to_owned(), value.into());
        self
    }

    /// Sets a key of every provider, such as `total_timeout_secs`.
    #[must_use]
    pub fn provider(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        for provider in self.config["providers"].as_array_mut().unwrap() {
            provider
                .as_table_mut()
                .unwrap()
                .insert(key.to_owned(), value.clone());
        }
        self
    }

    /// Grants the pool this much instead; `None` = nothing.
    #[must_use]
    pub fn grant(mut self, usd: Option<&str>) -> Self {
        self.grant = usd.map(str::to_owned);
        self
    }

    /// Uses another PostgreSQL cluster than the usual one.
    #[must_use]
    pub fn cluster(mut self, url: &str) -> Self {
        self.cluster = Some(url.to_owned());
        self
    }

    /// Starts it.
    pub async fn start(self) -> Site {
        Site::start(self).await
    }
}
