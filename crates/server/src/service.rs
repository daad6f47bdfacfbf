//! Puts the service together from its configuration: store, providers, use cases.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::RngCore as _;
use turnpike_app::admin::AdminDesk;
use turnpike_app::audit::AuditReader;
use turnpike_app::auth::LimitKey;
use turnpike_app::limits::RateLimits;
use turnpike_app::payouts::{PayoutDesk, PayoutRules};
use turnpike_app::providers::{ModelEntry, ProviderEntry, Shelf};
use turnpike_app::reads::Reader;
use turnpike_app::sessions::{SessionDesk, SessionSigner};
use turnpike_app::tokens::{KeyVault, VaultSettings};
use turnpike_app::tools::ToolEntry;
use turnpike_app::topups::{TopupDesk, TopupSettings};
use turnpike_app::webhooks::{Dispatcher, SecretBox, WebhookDesk, WebhookParts};
use turnpike_app::{
    AgentDesk, AppSettings, ApprovalDesk, Authenticator, CallDesk, CatalogueDesk, DriftDesk, EndUserDesk,
    Engine, Environment, KeyDesk, KeyIssuer, OAuthDesk, PaidCallDesk, PeopleDesk, PricingDesk, QuoteDesk,
    SettingsDesk, ToolDesk, WorkspaceDesk,
};
use turnpike_core::access::KeyPepper;
use turnpike_store::{PostgresOptions, PostgresStore, PriceRow, SqliteOptions, SqliteStore, Store};
use turnpike_upstream::processor::{BuiltinProcessor, Processor, StripeProcessor, StripeSettings};
use turnpike_upstream::webhook::{WebhookSender, WebhookSettings as SenderSettings};
use turnpike_upstream::{BoundedResolver, Provider, ProviderSettings, Secret};

use crate::clock::SystemEnvironment;
use crate::config::{Config, ConfigError, ModelConfig, ProcessorKind, ProviderConfig, StoreConfig};
use crate::identity::{Identity, IdentityMode};
use crate::payments::paid_calls;

/// Why the service cannot be put together.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    #[error("store: {0}")]
    Store(#[from] turnpike_store::StoreError),
    #[error("{0}")]
    App(#[from] turnpike_app::AppError),
    #[error("{path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error("{0}")]
    Other(String),
}

impl SetupError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self::File { path, error }
    }
}

/// How the store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// As the one service.
    Serve,
    /// Beside a running service, for reading.
    Read,
}

/// Everything a running service has.
pub(crate) struct Service {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) desk: CallDesk,
    pub(crate) reader: Reader,
    pub(crate) end_users: EndUserDesk,
    pub(crate) admin: AdminDesk,
    /// The built-in identity, and invitations whoever signs people in.
    pub(crate) people: Arc<PeopleDesk>,
    pub(crate) keys: KeyDesk,
    pub(crate) agents: Arc<AgentDesk>,
    /// The authorization server for agents.
    pub(crate) oauth: OAuthDesk,
    pub(crate) settings: Arc<SettingsDesk>,
    pub(crate) catalogue: CatalogueDesk,
    pub(crate) pricing: PricingDesk,
    pub(crate) tools: ToolDesk,
    pub(crate) workspaces: WorkspaceDesk,
    pub(crate) audit: AuditReader,
    pub(crate) authenticator: Authenticator,
    pub(crate) limits: RateLimits<LimitKey>,
    pub(crate) vault: Arc<KeyVault>,
    pub(crate) topups: TopupDesk,
    pub(crate) payouts: Arc<PayoutDesk>,
    /// When calls are sold to wallets that pay for them by themselves.
    pub(crate) paid_calls: Option<PaidCallDesk>,
    pub(crate) webhooks: WebhookDesk,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) drift: Arc<DriftDesk>,
    pub(crate) quotes: QuoteDesk,
    pub(crate) approvals: ApprovalDesk,
    pub(crate) sessions: SessionDesk,
    /// The built-in identity's, when it is the one in use.
    pub(crate) signer: Option<Arc<SessionSigner>>,
    /// The built-in processor, when it is the one in use.
    pub(crate) builtin: Option<Arc<BuiltinProcessor>>,
}

impl Service {
    /// Opens the store, reads the prices, builds the providers.
    pub(crate) async fn build(config: Config, data: &Path) -> Result<Self, SetupError> {
        let store = open_store(&config.store, data, Access::Serve, &config.server.listen).await?;
        let environment: Arc<dyn Environment> = Arc::new(SystemEnvironment);
        let pepper = pepper(&config, data)?;
        let brand: Arc<str> = config.server.brand.as_str().into();
        let approval_url: Arc<str> = config.server.public_url.trim_end_matches('/').into();
        let settings = AppSettings {
            brand: brand.clone(),
            public_url: approval_url.clone(),
            instance: environment.new_id(),
            stream_settlement: config.calls.stream_settlement,
            outcome_retention_ms: config.calls.outcome_retention_hours.saturating_mul(3_600_000),
            max_stored_bytes: config.calls.max_stored_bytes,
            max_stream_ms: config.calls.max_stream_secs.saturating_mul(1000),
            slow_reader_ms: config.calls.slow_reader_secs.saturating_mul(1000),
            hold_slack_ms: config.calls.hold_slack_secs.saturating_mul(1000),
            calls_per_minute: config.limits.calls_per_minute,
            reads_per_minute: config.limits.reads_per_minute,
            mutations_per_minute: config.limits.mutations_per_minute,
        };
        let shelf = Arc::new(Shelf::new(providers(&config)?).importing(config.imports.rules()));
        seed_prices(&*store, &*environment).await?;
        shelf.refresh(&*store).await?;
        let limits = RateLimits::new(
            settings.calls_per_minute,
            settings.reads_per_minute,
            settings.mutations_per_minute,
            config.limits.topups_per_minute,
        )
        .and_sign_ins(config.limits.sign_ins_per_minute);
        let Identity { verifier, signer } = Identity::build(&config, &pepper, &environment)?;
        let sessions = SessionDesk::new(
            store.clone(),
            environment.clone(),
            pepper.clone(),
            brand.clone(),
            verifier,
        );
        let people = people(&config, &pepper, store.clone(), environment.clone())?;
        let sessions = if signer.is_some() {
            sessions.of_people(people.clone())
        } else {
            sessions
        };
        let (processor, builtin) = processor(&config, &pepper)?;
        let public_url = config.server.public_url.trim_end_matches('/');
        let sweep_after_ms = config.processor.sweep_after_secs.saturating_mul(1000);
        let payout_rules = PayoutRules {
            public_url: public_url.to_owned(),
            min: config.processor.payout_min_usd,
            sweep_after_ms,
        };
        let payouts = Arc::new(PayoutDesk::new(
            store.clone(),
            environment.clone(),
            processor.clone(),
            payout_rules,
        ));
        let topup_settings = TopupSettings {
            public_url: public_url.to_owned(),
            rules: config.processor.quote_rules()?,
            session_ms: config.processor.session_minutes.saturating_mul(60_000),
            sweep_after_ms,
            auto_pause_ms: config.processor.auto_pause_minutes.saturating_mul(60_000),
        };
        let topups = TopupDesk::new(
            store.clone(),
            environment.clone(),
            processor,
            topup_settings,
            payouts.clone(),
        );
        let vault = vault(&config, &pepper, store.clone(), environment.clone());
        vault.refresh().await?;
        let webhooks = Arc::new(webhook_parts(
            &config,
            &pepper,
            store.clone(),
            environment.clone(),
        )?);
        let drift = drift_desk(&config, store.clone(), environment.clone());
        let mints = config.limits.token_mints_per_minute;
        let settings_desk = Arc::new(SettingsDesk::new(store.clone(), environment.clone()));
        let issuer = KeyIssuer::new(store.clone(), environment.clone(), pepper.clone(), brand.clone());
        let engine = Arc::new(Engine::new(store.clone(), environment.clone(), settings));
        let paid_calls = paid_calls(&config, &pepper, &engine, &shelf)?;
        let agents = Arc::new(AgentDesk::new(
            store.clone(),
            environment.clone(),
            pepper.clone(),
            brand.clone(),
            shelf.clone(),
        ));
        let oauth = OAuthDesk::new(
            store.clone(),
            environment.clone(),
            agents.clone(),
            pepper.clone(),
            brand.clone(),
            &config.server.public_url,
            signer.is_some(),
        )?;
        Ok(Self {
            agents,
            oauth,
            desk: CallDesk::new(engine.clone(), shelf.clone()),
            reader: Reader::new(store.clone(), shelf.clone()),
            end_users: EndUserDesk::new(store.clone(), environment.clone(), vault.clone(), mints),
            workspaces: WorkspaceDesk::new(store.clone(), environment.clone()),
            audit: AuditReader::new(store.clone()),
            admin: AdminDesk::new(
                store.clone(),
                environment.clone(),
                issuer.clone(),
                vault.clone(),
                drift.clone(),
                people.clone(),
            ),
            people,
            keys: KeyDesk::new(store.clone(), environment.clone(), issuer, shelf.clone()),
            catalogue: CatalogueDesk::new(settings_desk.clone(), shelf.clone()),
            pricing: PricingDesk::new(store.clone(), settings_desk.clone(), shelf.clone()),
            tools: ToolDesk::new(store.clone(), shelf.clone()),
            settings: settings_desk,
            drift,
            quotes: QuoteDesk::new(store.clone(), environment.clone(), shelf.clone()),
            approvals: ApprovalDesk::new(store.clone(), environment.clone(), shelf.clone(), approval_url),
            authenticator: Authenticator::new(store.clone(), pepper, brand, vault.clone()),
            vault,
            topups,
            payouts,
            paid_calls,
            webhooks: WebhookDesk::new(webhooks.clone()),
            dispatcher: Arc::new(Dispatcher::new(webhooks)),
            builtin,
            sessions,
            signer,
            limits,
            engine,
            shelf,
            environment,
            store,
            config,
        })
    }
}

pub(crate) type Processors = (Option<Arc<dyn Processor>>, Option<Arc<BuiltinProcessor>>);

/// Whether nobody but this machine is meant to reach the service.
pub(crate) fn is_loopback(config: &Config) -> bool {
    let address = config.server.listen.parse::<std::net::SocketAddr>();
    let url = config.server.public_url.parse::<http::Uri>();
    let host = url.as_ref().ok().and_then(http::Uri::host);
    let host = host.map(|host| host.trim_matches(['[', ']']));
    let local = |host: &str| {
        host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    };
    address.is_ok_and(|address| address.ip().is_loopback())
        && (config.server.public_url.is_empty() || host.is_some_and(local))
}

/// The configured processor. The built-in one, at which nobody pays, works on loopback addresses only.
pub(crate) fn processor(config: &Config, pepper: &KeyPepper) -> Result<Processors, SetupError> {
    let section = &config.processor;
    match section.kind {
        ProcessorKind::None => Ok((None, None)),
        ProcessorKind::Builtin => {
            if !is_loopback(config) {
                let message = "processor.kind = \"builtin\" gives credits away: it works only while server.listen \
                               and server.public_url are loopback addresses";
                return Err(SetupError::Config(ConfigError(message.to_owned())));
            }
            tracing::warn!("the built-in checkout is on: top-ups cost nothing");
            let secret = Secret::from(hex::encode(pepper.derive("builtin processor")));
            let public_url = config.server.public_url.trim_end_matches('/');
            let builtin = Arc::new(BuiltinProcessor::new(public_url, secret));
            Ok((Some(builtin.clone()), Some(builtin)))
        }
        ProcessorKind::Stripe => {
            let wanted = |name: &str| SetupError::Config(ConfigError(format!("processor.{name} is needed")));
            let key = section.secret_key.read()?.ok_or_else(|| wanted("secret_key"))?;
            let webhook = section
                .webhook_secret
                .read()?
                .ok_or_else(|| wanted("webhook_secret"))?;
            let mut secrets = vec![Secret::from(webhook)];
            secrets.extend(section.webhook_secret_old.read()?.map(Secret::from));
            secrets.extend(section.connect_webhook_secret.read()?.map(Secret::from));
            let mut settings = StripeSettings::new(Secret::from(key), secrets);
            settings.api_base.clone_from(&section.api_base);
            let stripe =
                StripeProcessor::new(settings).map_err(|error| SetupError::Other(error.to_string()))?;
            Ok((Some(Arc::new(stripe)), None))
        }
    }
}

/// The keys of end users' tokens, not read yet.
pub(crate) fn vault(
    config: &Config,
    pepper: &KeyPepper,
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
) -> Arc<KeyVault> {
    let issuer = config.server.public_url.trim_end_matches('/').to_owned();
    let settings = VaultSettings {
        master: pepper.derive("signing keys"),
        audience: format!("{issuer}/api/credits"),
        issuer,
        publish_lead_ms: config.tokens.publish_lead_secs.saturating_mul(1000),
        rotate_after_ms: config.tokens.rotate_days.saturating_mul(86_400_000),
    };
    Arc::new(KeyVault::new(store, environment, settings))
}

/// Names of webhook endpoints that are looked up at once. A lookup holds one of the runtime's 512 blocking threads
/// until the system gives up, and what is read from SQLite needs such threads, too.
const LOOKUPS: usize = 256;
/// The same for addresses that are being registered or tested.
const TEST_LOOKUPS: usize = 32;

/// What webhooks stand on.
pub(crate) fn webhook_parts(
    config: &Config,
    pepper: &KeyPepper,
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
) -> Result<WebhookParts, SetupError> {
    let settings = config.webhooks.settings();
    let make = |lookups: usize| {
        let sender = SenderSettings {
            allow_loopback: config.webhooks.allow_loopback,
            timeout: Duration::from_millis(u64::try_from(settings.timeout_ms).unwrap_or_default()),
            resolver: Arc::new(BoundedResolver::new(lookups)),
        };
        WebhookSender::new(sender).map_err(|error| SetupError::Other(error.to_string()))
    };
    Ok(WebhookParts {
        store,
        environment,
        sender: make(LOOKUPS)?,
        tester: make(TEST_LOOKUPS)?,
        secrets: SecretBox::new(&pepper.derive("webhook secrets"))?,
        settings,
    })
}

/// The use cases of usage drift.
pub(crate) fn drift_desk(
    config: &Config,
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
) -> Arc<DriftDesk> {
    Arc::new(DriftDesk::new(store, environment, config.drift.threshold()))
}

/// The built-in identity; with another identity provider it has no pages.
pub(crate) fn people(
    config: &Config,
    pepper: &KeyPepper,
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
) -> Result<Arc<PeopleDesk>, SetupError> {
    let server = &config.server;
    let public_url = if server.public_url.is_empty() {
        format!("http://{}", server.listen)
    } else {
        server.public_url.clone()
    };
    let pages = matches!(config.identity.mode, IdentityMode::Builtin).then_some(&*public_url);
    let desk = PeopleDesk::new(store, environment, pepper.clone(), pages)?;
    Ok(Arc::new(desk))
}

/// Opens the configured store.
pub(crate) async fn open_store(
    config: &StoreConfig,
    data: &Path,
    access: Access,
    owner: &str,
) -> Result<Arc<dyn Store>, SetupError> {
    if let Some(file) = config.url.strip_prefix("sqlite://") {
        let options = SqliteOptions {
            queue: config.queue,
            max_batch: config.max_batch,
            read_only: access == Access::Read,
            owner: owner.to_owned(),
            ..SqliteOptions::new(data.join(file))
        };
        return Ok(Arc::new(SqliteStore::open(&options)?));
    }
    if config.url.starts_with("postgres://") || config.url.starts_with("postgresql://") {
        let options = PostgresOptions {
            lanes: config.lanes,
            read_pool: config.read_pool,
            max_batch: config.max_batch,
            batch_by_bucket: config.batch_by_bucket,
            ..PostgresOptions::new(&config.url)
        };
        return Ok(Arc::new(PostgresStore::connect(options).await?));
    }
    Err(ConfigError("store.url must begin with sqlite:// or postgres://".to_owned()).into())
}

/// Whether the store is a file of this machine.
pub(crate) fn is_embedded(config: &StoreConfig) -> bool {
    config.url.starts_with("sqlite://")
}

/// The secret under which keys are hashed: configured, or made once in the data directory.
pub(crate) fn pepper(config: &Config, data: &Path) -> Result<KeyPepper, SetupError> {
    if let Some(secret) = config.server.secret_key.read()? {
        return Ok(KeyPepper::new(secret.as_bytes()));
    }
    Ok(KeyPepper::new(&secret_file(data, "secret.key")?))
}

/// A file of 32 random bytes that only its owner can read, made when it is not there.
pub(crate) fn secret_file(data: &Path, name: &str) -> Result<Vec<u8>, SetupError> {
    let path = data.join(name);
    if let Ok(secret) = std::fs::read(&path)
        && secret.len() >= 32
    {
        return Ok(secret);
    }
    std::fs::create_dir_all(data).map_err(SetupError::file(data))?;
    let mut secret = vec![0; 32];
    rand::rng().fill_bytes(&mut secret);
    write_private(&path, &secret)?;
    Ok(secret)
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), SetupError> {
    use std::io::Write as _;
    let mut options = std::fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let mut file = options.open(path).map_err(SetupError::file(path))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(SetupError::file(path))
}

/// Puts the shipped prices into a store that has none.
async fn seed_prices(store: &dyn Store, environment: &dyn Environment) -> Result<(), SetupError> {
    if !store.list_prices().await?.is_empty() {
        return Ok(());
    }
    let seed = turnpike_core::pricing::seed().map_err(|error| SetupError::Other(error.to_string()))?;
    let mut rows = Vec::new();
    for price in seed.iter() {
        let document = serde_json::to_string(price).map_err(|error| SetupError::Other(error.to_string()))?;
        rows.push(PriceRow {
            provider: price.provider.clone(),
            model: price.model.clone(),
            document,
        });
    }
    store.put_prices(&rows, environment.now()).await?;
    Ok(())
}

fn providers(config: &Config) -> Result<Vec<ProviderEntry>, SetupError> {
    config.providers.iter().map(provider).collect()
}

fn provider(config: &ProviderConfig) -> Result<ProviderEntry, SetupError> {
    let bad = |what: String| SetupError::Config(ConfigError(format!("provider {}: {what}", config.id)));
    let defaults = ProviderSettings::default();
    let api_key = match &config.api_key {
        Some(source) => source.read()?.map(Secret::from),
        None => None,
    };
    let settings = ProviderSettings {
        id: config.id.clone(),
        kind: config.kind,
        base_url: config.base_url.clone(),
        api_key,
        auth_header: config.auth_header.clone(),
        auth_query: config.auth_query.clone(),
        connect_timeout: ProviderConfig::timeout(config.connect_timeout_secs, defaults.connect_timeout),
        header_timeout: ProviderConfig::timeout(config.header_timeout_secs, defaults.header_timeout),
        idle_timeout: ProviderConfig::timeout(config.idle_timeout_secs, defaults.idle_timeout),
        total_timeout: ProviderConfig::timeout(config.total_timeout_secs, defaults.total_timeout),
        ..defaults
    };
    let mut tools = std::collections::BTreeMap::new();
    for endpoint in &config.endpoints {
        let wrong = |error: &dyn std::fmt::Display| bad(format!("endpoint {}: {error}", endpoint.name));
        let tool = ToolEntry::new(endpoint.clone()).map_err(|error| wrong(&error))?;
        if tools.insert(endpoint.name.clone(), Arc::new(tool)).is_some() {
            return Err(bad(format!("endpoint {} stands twice", endpoint.name)));
        }
    }
    let models = config
        .models
        .iter()
        .map(|model| match model {
            ModelConfig::Id(id) => ModelEntry {
                id: id.clone(),
                upstream: id.clone(),
            },
            ModelConfig::Renamed { id, upstream } => ModelEntry {
                id: id.clone(),
                upstream: upstream.clone(),
            },
        })
        .collect();
    Ok(ProviderEntry {
        provider: Provider::new(&settings).map_err(|error| bad(error.to_string()))?,
        total_timeout_ms: i64::try_from(settings.total_timeout.as_millis()).unwrap_or(i64::MAX),
        prices_from: config.prices_from.clone().unwrap_or_else(|| config.id.clone()),
        models,
        tools,
    })
}
