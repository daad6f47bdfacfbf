//! Configuration: the compiled-in defaults, then a file, then the environment. Unknown keys are refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::Figment;
use figment::error::Kind;
use figment::providers::{Env, Format, Toml};
use serde::Deserialize;
use turnpike_app::stock::ImportRules;
use turnpike_app::tools::{ToolDefinition, is_slug};
use turnpike_app::webhooks::WebhookSettings;
use turnpike_core::ledger::drift::DriftThreshold;
use turnpike_core::ledger::hold::StreamSettlement;
use turnpike_core::money::Micros;
use turnpike_core::topup::{BonusTier, FeeMode, FeeSchedule, QuoteRules};
use turnpike_core::webhook::RetrySchedule;
use turnpike_upstream::ProviderKind;

use crate::identity::IdentityConfig;
use crate::payments::PaymentsConfig;

/// The defaults, as a commented file.
pub(crate) const DEFAULTS: &str = include_str!("../../../config.default.toml");
/// What `turnpike dev` adds to them.
pub(crate) const DEMO: &str = include_str!("../../../config.demo.toml");

/// All settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: ServerConfig,
    pub(crate) store: StoreConfig,
    pub(crate) identity: IdentityConfig,
    pub(crate) calls: CallsConfig,
    pub(crate) tokens: TokensConfig,
    pub(crate) processor: ProcessorConfig,
    pub(crate) payments: PaymentsConfig,
    pub(crate) webhooks: WebhooksConfig,
    pub(crate) imports: ImportsConfig,
    pub(crate) drift: DriftConfig,
    pub(crate) limits: LimitsConfig,
    pub(crate) telemetry: TelemetryConfig,
    #[serde(default)]
    pub(crate) providers: Vec<ProviderConfig>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerConfig {
    pub(crate) listen: String,
    pub(crate) public_url: String,
    pub(crate) brand: String,
    pub(crate) vendor: String,
    pub(crate) max_body_bytes: usize,
    pub(crate) header_timeout_secs: u64,
    pub(crate) body_timeout_secs: u64,
    pub(crate) max_connections: usize,
    pub(crate) drain_secs: u64,
    pub(crate) secret_key: SecretSource,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreConfig {
    pub(crate) url: String,
    pub(crate) queue: usize,
    pub(crate) max_batch: usize,
    pub(crate) lanes: usize,
    pub(crate) read_pool: usize,
    pub(crate) batch_by_bucket: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallsConfig {
    pub(crate) stream_settlement: StreamSettlement,
    pub(crate) outcome_retention_hours: i64,
    pub(crate) max_stored_bytes: usize,
    pub(crate) max_stream_secs: i64,
    pub(crate) slow_reader_secs: u64,
    pub(crate) sweep_secs: u64,
    pub(crate) hold_slack_secs: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokensConfig {
    pub(crate) publish_lead_secs: i64,
    pub(crate) rotate_days: i64,
}

/// Who takes the payments of top-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProcessorKind {
    None,
    Builtin,
    Stripe,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessorConfig {
    pub(crate) kind: ProcessorKind,
    pub(crate) secret_key: SecretSource,
    pub(crate) webhook_secret: SecretSource,
    pub(crate) webhook_secret_old: SecretSource,
    pub(crate) connect_webhook_secret: SecretSource,
    pub(crate) api_base: String,
    pub(crate) fee_mode: FeeMode,
    pub(crate) fee_rate_bps: u32,
    pub(crate) fee_fixed_usd: Micros,
    pub(crate) min_usd: Micros,
    pub(crate) max_usd: Micros,
    pub(crate) bonus_tiers: Vec<BonusTierConfig>,
    pub(crate) session_minutes: i64,
    pub(crate) payout_min_usd: Micros,
    pub(crate) sweep_secs: u64,
    pub(crate) sweep_after_secs: i64,
    pub(crate) auto_pause_minutes: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BonusTierConfig {
    pub(crate) min_usd: Micros,
    pub(crate) bonus_bps: u32,
}

impl ProcessorConfig {
    /// The rules by which top-ups are quoted.
    pub(crate) fn quote_rules(&self) -> Result<QuoteRules, ConfigError> {
        let rules = QuoteRules {
            fees: FeeSchedule {
                mode: self.fee_mode,
                rate_bps: self.fee_rate_bps,
                fixed: self.fee_fixed_usd,
            },
            min: self.min_usd,
            max: self.max_usd,
            tiers: self
                .bonus_tiers
                .iter()
                .map(|tier| BonusTier {
                    min: tier.min_usd,
                    bonus_bps: tier.bonus_bps,
                })
                .collect(),
        };
        rules
            .validate()
            .map_err(|error| ConfigError(format!("processor: {error}")))?;
        Ok(rules)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhooksConfig {
    /// Seconds before each attempt.
    pub(crate) schedule: Vec<i64>,
    /// Seconds.
    pub(crate) timeout: i64,
    pub(crate) retention_days: i64,
    pub(crate) allow_loopback: bool,
    pub(crate) disable_after_hours: i64,
    pub(crate) max_endpoints: u32,
    pub(crate) max_replayed: u32,
    pub(crate) concurrency: usize,
    pub(crate) concurrency_per_endpoint: usize,
    pub(crate) poll_ms: u64,
}

impl WebhooksConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |what: &str| Err(ConfigError(format!("webhooks.{what}")));
        if !(1..=50).contains(&self.schedule.len())
            || self.schedule.iter().any(|delay| !(0..=604_800).contains(delay))
        {
            return wrong("schedule must be 1 to 50 delays of 0 to 604800 seconds");
        }
        if !(1..=60).contains(&self.timeout) {
            return wrong("timeout must be 1 to 60 seconds");
        }
        if !(1..=3650).contains(&self.retention_days) {
            return wrong("retention_days must be 1 to 3650");
        }
        // With every delay a fifth longer; `Retry-After` may add to it.
        let longest = self
            .schedule
            .iter()
            .fold(0_i64, |sum, delay| sum.saturating_add(*delay));
        if longest.saturating_mul(6) / 5 > self.retention_days.saturating_mul(86_400) {
            return wrong("schedule must be over before retention_days are");
        }
        if !(1..=8760).contains(&self.disable_after_hours) {
            return wrong("disable_after_hours must be 1 to 8760");
        }
        if !(1..=16_384).contains(&self.concurrency)
            || !(1..=self.concurrency).contains(&self.concurrency_per_endpoint)
        {
            return wrong("concurrency must be 1 to 16384, and concurrency_per_endpoint not more");
        }
        if !(1..=1_000_000).contains(&self.max_replayed) {
            return wrong("max_replayed must be 1 to 1000000");
        }
        if !(1..=10_000).contains(&self.max_endpoints) || !(10..=60_000).contains(&self.poll_ms) {
            return wrong("max_endpoints must be 1 to 10000, poll_ms 10 to 60000");
        }
        Ok(())
    }

    /// As the use cases want them.
    pub(crate) fn settings(&self) -> WebhookSettings {
        let delays = self.schedule.iter().map(|secs| secs.saturating_mul(1000));
        WebhookSettings {
            schedule: RetrySchedule::new(delays.collect()),
            timeout_ms: self.timeout.saturating_mul(1000),
            retention_ms: self.retention_days.saturating_mul(86_400_000),
            patience_ms: self.disable_after_hours.saturating_mul(3_600_000),
            max_endpoints: self.max_endpoints,
            max_replayed: self.max_replayed,
            poll_ms: self.poll_ms,
            concurrency: self.concurrency,
            concurrency_per_endpoint: self.concurrency_per_endpoint,
        }
    }
}

/// Providers whose tools are imported and that are not configured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportsConfig {
    allow_loopback: bool,
}

impl ImportsConfig {
    /// As the shelf wants them.
    pub(crate) const fn rules(&self) -> ImportRules {
        ImportRules {
            allow_loopback: self.allow_loopback,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriftConfig {
    threshold_bps: u32,
    threshold_usd: Micros,
    pub(crate) interval_secs: u64,
}

impl DriftConfig {
    /// From which difference on workspaces are told.
    pub(crate) const fn threshold(&self) -> DriftThreshold {
        DriftThreshold {
            bps: self.threshold_bps,
            usd: self.threshold_usd,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsConfig {
    pub(crate) calls_per_minute: u32,
    pub(crate) reads_per_minute: u32,
    pub(crate) mutations_per_minute: u32,
    pub(crate) token_mints_per_minute: u32,
    pub(crate) topups_per_minute: u32,
    pub(crate) sign_ins_per_minute: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Json,
    Text,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TelemetryConfig {
    pub(crate) format: LogFormat,
    pub(crate) level: String,
    pub(crate) access_log: bool,
    pub(crate) metrics_listen: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderConfig {
    pub(crate) id: String,
    pub(crate) kind: ProviderKind,
    #[serde(default)]
    pub(crate) base_url: String,
    #[serde(default)]
    pub(crate) api_key: Option<SecretSource>,
    #[serde(default)]
    pub(crate) auth_header: Option<String>,
    #[serde(default)]
    pub(crate) auth_query: Option<String>,
    #[serde(default)]
    pub(crate) prices_from: Option<String>,
    #[serde(default)]
    pub(crate) models: Vec<ModelConfig>,
    #[serde(default)]
    pub(crate) endpoints: Vec<ToolDefinition>,
    #[serde(default)]
    pub(crate) connect_timeout_secs: Option<u64>,
    #[serde(default)]
    pub(crate) header_timeout_secs: Option<u64>,
    #[serde(default)]
    pub(crate) idle_timeout_secs: Option<u64>,
    #[serde(default)]
    pub(crate) total_timeout_secs: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ModelConfig {
    Id(String),
    Renamed { id: String, upstream: String },
}

/// A secret as it stands in the configuration; its value is read when it is needed and never printed.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum SecretSource {
    Plain(String),
    Env { env: String },
    File { file: PathBuf },
}

impl std::fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("[redacted]"),
            Self::Env { env } => write!(f, "env {env}"),
            Self::File { file } => write!(f, "file {}", file.display()),
        }
    }
}

impl SecretSource {
    /// The secret; `None` when it is empty.
    pub(crate) fn read(&self) -> Result<Option<String>, ConfigError> {
        let text = match self {
            Self::Plain(text) => text.clone(),
            Self::Env { env } => std::env::var(env)
                .map_err(|_unset| ConfigError(format!("the environment variable {env} is not set")))?,
            Self::File { file } => std::fs::read_to_string(file)
                .map_err(|error| ConfigError(format!("{}: {error}", file.display())))?
                .trim_end()
                .to_owned(),
        };
        Ok((!text.is_empty()).then_some(text))
    }
}

/// What is wrong with the configuration, in words for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(pub(crate) String);

impl Config {
    /// Reads the defaults, the demo's additions when asked for, `file`, and the environment.
    pub(crate) fn load(file: Option<&Path>, demo: bool) -> Result<Self, ConfigError> {
        let mut figment = Figment::from(Toml::string(DEFAULTS));
        if demo {
            figment = figment.merge(Toml::string(DEMO));
        }
        let default_file = Path::new("turnpike.toml");
        match file {
            Some(file) if !file.exists() => {
                return Err(ConfigError(format!("{}: no such file", file.display())));
            }
            Some(file) => figment = figment.merge(Toml::file_exact(file)),
            None if default_file.exists() => figment = figment.merge(Toml::file_exact(default_file)),
            None => {}
        }
        let config: Self = figment
            .merge(Env::prefixed("TURNPIKE__").split("__"))
            .extract()
            .map_err(|error| ConfigError(explain(&error)))?;
        config.validate()?;
        Ok(config)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |what: &str| Err(ConfigError(what.to_owned()));
        let brand = &self.server.brand;
        if brand.is_empty() || brand.len() > 16 || !brand.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return wrong("server.brand must be 1 to 16 lower-case letters");
        }
        let vendor = &self.server.vendor;
        if vendor.is_empty()
            || !vendor
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        {
            return wrong("server.vendor must be lower-case letters and dashes");
        }
        let public_url = &self.server.public_url;
        if !public_url.is_empty() && !is_origin(public_url) {
            return wrong(
                "server.public_url must be an origin: http:// or https://, a host, perhaps a port, no path",
            );
        }
        if !(1..=720).contains(&self.calls.outcome_retention_hours) {
            return wrong("calls.outcome_retention_hours must be 1 to 720");
        }
        if !(1..=86_400).contains(&self.calls.max_stream_secs) {
            return wrong("calls.max_stream_secs must be 1 to 86400");
        }
        if !(1..=86_400).contains(&self.calls.hold_slack_secs) {
            return wrong("calls.hold_slack_secs must be 1 to 86400");
        }
        if !(31..=1439).contains(&self.processor.session_minutes) {
            return wrong("processor.session_minutes must be 31 to 1439");
        }
        if !(10..=3600).contains(&self.tokens.publish_lead_secs) || self.tokens.rotate_days < 0 {
            return wrong("tokens.publish_lead_secs must be 10 to 3600, rotate_days 0 or more");
        }
        if self.processor.payout_min_usd <= Micros::ZERO {
            return wrong("processor.payout_min_usd must be more than 0");
        }
        self.identity.validate()?;
        self.processor.quote_rules()?;
        self.payments.validate()?;
        self.webhooks.validate()?;
        if self.drift.threshold_bps > 10_000 || self.drift.threshold_usd.is_negative() {
            return wrong("drift.threshold_bps must be 0 to 10000, threshold_usd 0 or more");
        }
        if self.store.queue == 0
            || self.store.max_batch == 0
            || self.store.lanes == 0
            || self.store.read_pool == 0
        {
            return wrong("store.queue, max_batch, lanes and read_pool must be at least 1");
        }
        let mut seen = std::collections::BTreeSet::new();
        for provider in &self.providers {
            if !is_slug(&provider.id) || provider.id == "v1" {
                return Err(ConfigError(format!(
                    "provider id {:?} must be [a-z0-9][a-z0-9-]* and not v1",
                    provider.id
                )));
            }
            if !seen.insert(&provider.id) {
                return Err(ConfigError(format!("provider {} stands twice", provider.id)));
            }
            let named = provider.auth_header.is_some() || provider.auth_query.is_some();
            if named && provider.kind != ProviderKind::Http {
                return Err(ConfigError(format!(
                    "provider {}: auth_header and auth_query are for kind = \"http\"",
                    provider.id
                )));
            }
            if let Some(endpoint) = provider
                .endpoints
                .iter()
                .find(|endpoint| !is_slug(&endpoint.name))
            {
                return Err(ConfigError(format!(
                    "endpoint name {:?} must be [a-z0-9][a-z0-9-]*",
                    endpoint.name
                )));
            }
        }
        Ok(())
    }
}

impl ProviderConfig {
    /// A timeout setting, or `default`.
    pub(crate) fn timeout(setting: Option<u64>, default: Duration) -> Duration {
        setting.map_or(default, Duration::from_secs)
    }
}

/// Says what is wrong, with the nearest known name for an unknown key.
fn explain(error: &figment::Error) -> String {
    let mut lines = Vec::new();
    for one in error.clone() {
        let place = if one.path.is_empty() {
            String::new()
        } else {
            format!("{}: ", one.path.join("."))
        };
        let line = if let Kind::UnknownField(name, known) = &one.kind {
            let nearest = known.iter().min_by_key(|candidate| distance(name, candidate));
            let hint = nearest
                .map(|nearest| format!("; did you mean {nearest:?}?"))
                .unwrap_or_default();
            format!("{place}unknown key {name:?}{hint}")
        } else {
            format!("{place}{}", one.kind)
        };
        lines.push(line);
    }
    lines.join("\n")
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (to, above) in b.iter().zip(row.iter_mut().skip(1)) {
            let cost = (diagonal + usize::from(from != *to))
                .min(*above + 1)
                .min(left + 1);
            diagonal = *above;
            *above = cost;
            left = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Whether `url` is one at whose root the service can stand.
fn is_origin(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|host| !host.as_str().contains('@'))
            && uri.path() == "/"
            && uri.query().is_none()
            && !url.contains('#')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_and_the_demo_load() {
        assert!(Config::load(None, false).unwrap().providers.is_empty());
        assert_eq!(Config::load(None, true).unwrap().providers[0].endpoints.len(), 5);
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.toml");
        std::fs::write(&file, "[server]\nlisten_adress = \"x\"\n").unwrap();
        let error = Config::load(Some(&file), false).unwrap_err().to_string();
        assert!(
            error.contains("listen_adress") && error.contains("listen"),
            "{error}"
        );
        assert_eq!(distance("listn", "listen"), 1);
    }

    #[test]
    fn the_public_url_is_an_origin() {
        for good in ["https://api.example", "https://api.example/", "http://[::1]:8402"] {
            assert!(is_origin(good), "{good}");
        }
        for wrong in [
            "api.example",
            "//api.example",
            "ftp://api.example",
            "https://",
            "https://api.example/turnpike",
            "https://api.example?a",
            "https://api.example#a",
            "https://me@api.example",
        ] {
            assert!(!is_origin(wrong), "{wrong}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.toml");
        std::fs::write(&file, "[server]\npublic_url = \"https://api.example/a\"\n").unwrap();
        let error = Config::load(Some(&file), false).unwrap_err().to_string();
        assert!(error.contains("server.public_url"), "{error}");
    }

    #[test]
    fn a_drift_threshold_has_its_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.toml");
        let load = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Config::load(Some(&file), false)
        };
        let threshold = load("").unwrap().drift.threshold();
        assert_eq!((threshold.bps, threshold.usd), (100, Micros::new(1_000_000)));
        let zero = load("[drift]\nthreshold_bps = 0\nthreshold_usd = \"0\"\n");
        assert_eq!(zero.unwrap().drift.threshold().bps, 0);
        for wrong in [
            "threshold_bps = 10001",
            "threshold_usd = \"-1\"",
            "threshold_usd = 1",
        ] {
            assert!(load(&format!("[drift]\n{wrong}\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(
            format!("{:?}", SecretSource::Plain("canary".to_owned())),
            "[redacted]"
        );
    }
}
