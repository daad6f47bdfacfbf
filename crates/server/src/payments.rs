//! Who settles the calls that wallets pay for by themselves, from the configuration.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use turnpike_app::paid_calls::{Assortment, PaidCallDesk, PaidCallSettings};
use turnpike_app::payouts::is_evm_address;
use turnpike_app::providers::Shelf;
use turnpike_app::{Engine, Environment};
use turnpike_core::access::KeyPepper;
use turnpike_core::ledger::paid_call::PayerCap;
use turnpike_core::money::Micros;
use turnpike_core::pricing::{EffectiveMarkup, MAX_MARKUP_BPS};
use turnpike_core::x402::{Address, Scheme, Supported, X402_VERSION};
use turnpike_upstream::payments::{
    ChainReader, ChainSettings, FacilitatorSettings, HttpFacilitator, SimulatedFacilitator, SimulatedSettings,
};
use turnpike_upstream::{Facilitator, Secret};

use crate::clock::SystemEnvironment;
use crate::config::{Config, ConfigError, SecretSource};
use crate::service::{SetupError, is_loopback};

/// Who is paid where nobody is.
const NOBODY: &str = "0x000000000000000000000000000000000000dEaD";

/// The network of the built-in configuration, Base's test network.
const TESTNET: &str = "eip155:84532";
/// Who settles where nobody does.
const SIMULATED_FACILITATOR: &str = "0x00000000000000000000000000000000C0FFEE00";

/// Who settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PaymentsMode {
    /// Nothing is sold by the call.
    None,
    /// Inside the process: signatures, times and nonces are checked, and no money moves.
    Simulated,
    /// A facilitator, and the chain behind it.
    Facilitator,
}

/// The section `payments`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaymentsConfig {
    pub(crate) mode: PaymentsMode,
    pub(crate) facilitator_url: String,
    pub(crate) facilitator_key: SecretSource,
    pub(crate) rpc_url: SecretSource,
    pub(crate) network: String,
    pub(crate) asset: String,
    pub(crate) asset_name: String,
    pub(crate) asset_version: String,
    pub(crate) pay_to: String,
    pub(crate) markup_bps: u32,
    pub(crate) flat_usd: Micros,
    pub(crate) max_open_usd: Micros,
    pub(crate) max_open_calls: i64,
    pub(crate) verify_timeout_secs: u64,
    pub(crate) settle_timeout_secs: u64,
    pub(crate) simulated_balance_usd: Micros,
}

impl PaymentsConfig {
    /// The chain's number in the network's name.
    fn chain_id(&self) -> Option<u64> {
        self.network.strip_prefix("eip155:")?.parse().ok()
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |what: &str| Err(ConfigError(format!("payments.{what}")));
        if self.chain_id().is_none() {
            return wrong("network must be an EVM chain such as eip155:8453");
        }
        if !is_evm_address(&self.asset) {
            return wrong("asset must be the address of a token, with a right checksum if it has one");
        }
        if !self.pay_to.is_empty() && !is_evm_address(&self.pay_to) {
            return wrong("pay_to must be an address, with a right checksum if it has one");
        }
        if self.markup_bps > MAX_MARKUP_BPS || self.flat_usd.is_negative() {
            return wrong("markup_bps must be 0 to 100000, flat_usd not negative");
        }
        if self.max_open_usd <= Micros::ZERO || self.max_open_calls < 1 {
            return wrong("max_open_usd and max_open_calls must be more than 0");
        }
        if !(1..=60).contains(&self.verify_timeout_secs) || !(5..=120).contains(&self.settle_timeout_secs) {
            return wrong("verify_timeout_secs must be 1 to 60, settle_timeout_secs 5 to 120");
        }
        if self.mode != PaymentsMode::Facilitator {
            return Ok(());
        }
        for (name, value) in [
            ("facilitator_url", &self.facilitator_url),
            ("pay_to", &self.pay_to),
        ] {
            if value.is_empty() {
                return wrong(&format!("{name} is needed"));
            }
        }
        Ok(())
    }
}

/// The configured facilitator; `None` = nothing is sold by the call.
pub(crate) fn facilitator(
    config: &Config,
    environment: &Arc<dyn Environment>,
) -> Result<Option<Arc<dyn Facilitator>>, SetupError> {
    let section = &config.payments;
    match section.mode {
        PaymentsMode::None => Ok(None),
        PaymentsMode::Simulated => {
            if !is_loopback(config) {
                let message = "payments.mode = \"simulated\" gives calls away: it works only while server.listen and \
                               server.public_url are loopback addresses";
                return Err(SetupError::Config(ConfigError(message.to_owned())));
            }
            tracing::warn!("payments are simulated: calls that wallets pay for cost nothing");
            let settings = SimulatedSettings {
                network: section.network.clone(),
                asset: address(&section.asset)?,
                name: section.asset_name.clone(),
                version: section.asset_version.clone(),
                pay_to: address(pay_to(section))?,
                facilitator: address(SIMULATED_FACILITATOR)?,
                balance: u64::try_from(section.simulated_balance_usd.get()).unwrap_or_default(),
            };
            let clock = environment.clone();
            let simulated = SimulatedFacilitator::new(settings, Arc::new(move || clock.now()))
                .map_err(|error| ConfigError(format!("payments: {error}")))?;
            Ok(Some(Arc::new(simulated)))
        }
        PaymentsMode::Facilitator => {
            if section.network == TESTNET {
                tracing::warn!(
                    network = TESTNET,
                    "payments are on a test network: what is paid there is worth nothing"
                );
            }
            let settings = FacilitatorSettings {
                api_key: section.facilitator_key.read()?.map(Secret::from),
                verify_timeout: Duration::from_secs(section.verify_timeout_secs),
                settle_timeout: Duration::from_secs(section.settle_timeout_secs),
                ..FacilitatorSettings::new(&section.facilitator_url)
            };
            let facilitator = HttpFacilitator::new(&settings, chain_reader(section)?)
                .map_err(|error| ConfigError(format!("payments.facilitator_url: {error}")))?;
            Ok(Some(Arc::new(facilitator)))
        }
    }
}

fn chain_reader(section: &PaymentsConfig) -> Result<ChainReader, ConfigError> {
    // Its address may carry a key.
    let rpc_url = section.rpc_url.read()?;
    let rpc_url = rpc_url.ok_or_else(|| ConfigError("payments.rpc_url is needed".to_owned()))?;
    let settings = ChainSettings::new(Secret::from(rpc_url), section.network.as_str());
    ChainReader::new(&settings).map_err(|error| ConfigError(format!("payments.rpc_url: {error}")))
}

fn pay_to(section: &PaymentsConfig) -> &str {
    if section.pay_to.is_empty() {
        NOBODY
    } else {
        &section.pay_to
    }
}

fn address(text: &str) -> Result<Address, ConfigError> {
    Address::parse(text).map_err(|error| ConfigError(format!("payments: {error}")))
}

/// The use cases of paid calls, when they are sold.
pub(crate) fn paid_calls(
    config: &Config,
    pepper: &KeyPepper,
    engine: &Arc<Engine>,
    shelf: &Arc<Shelf>,
) -> Result<Option<PaidCallDesk>, SetupError> {
    let section = &config.payments;
    let Some(facilitator) = facilitator(config, engine.environment())? else {
        return Ok(None);
    };
    let public_url = config.server.public_url.trim_end_matches('/');
    let realm = public_url
        .parse::<http::Uri>()
        .ok()
        .and_then(|url| url.host().map(str::to_owned))
        .ok_or_else(|| ConfigError("server.public_url must be the URL that callers use".to_owned()))?;
    let vendor = &config.server.vendor;
    let pay_to = pay_to(section);
    let settings = PaidCallSettings {
        public_url: public_url.into(),
        realm: realm.into(),
        vendor: vendor.as_str().into(),
        brand: config.server.brand.as_str().into(),
        simulated: facilitator.is_simulated(),
        network: section.network.as_str().into(),
        chain_id: section.chain_id().unwrap_or_default(),
        asset: section.asset.as_str().into(),
        asset_address: address(&section.asset)?,
        asset_name: section.asset_name.as_str().into(),
        asset_version: section.asset_version.as_str().into(),
        pay_to: pay_to.into(),
        pay_to_address: address(pay_to)?,
        seal: KeyPepper::new(&pepper.derive("paid calls")),
        facilitator_secs: i64::try_from(
            section
                .verify_timeout_secs
                .saturating_add(section.settle_timeout_secs),
        )
        .unwrap_or_default(),
        cap: PayerCap {
            amount: section.max_open_usd,
            calls: section.max_open_calls,
        },
        sold: Assortment {
            flash: format!("{vendor}-v4-flash").into(),
            pro: format!("{vendor}-v4-pro").into(),
            markup: EffectiveMarkup {
                bps: section.markup_bps,
                flat: section.flat_usd,
                ..EffectiveMarkup::NONE
            },
        },
    };
    Ok(Some(PaidCallDesk::new(
        engine.clone(),
        shelf.clone(),
        facilitator,
        settings,
    )))
}

/// Whether a payment by `scheme` can be offered. `upto` is signed for one facilitator, which has to name itself.
fn is_settled(supported: &Supported, scheme: Scheme, network: &str) -> bool {
    let kind = supported.kinds.iter().find(|kind| {
        kind.x402_version == X402_VERSION && kind.scheme == scheme.as_str() && kind.network == network
    });
    kind.is_some_and(|kind| match scheme {
        Scheme::Exact => true,
        Scheme::Upto => {
            let extra = kind.extra.as_ref();
            let address = extra.and_then(|extra| extra.get("facilitatorAddress"));
            address
                .and_then(|address| address.as_str())
                .is_some_and(|address| Address::parse(address).is_ok())
        }
    })
}

/// Whether the facilitator settles what is sold by the call, and its chain can be read, in words for the operator.
pub(crate) async fn check(config: &Config) -> Result<String, String> {
    let environment: Arc<dyn Environment> = Arc::new(SystemEnvironment);
    let found = facilitator(config, &environment).map_err(|error| error.to_string())?;
    let Some(facilitator) = found else {
        return Ok("none: nothing is sold by the call".to_owned());
    };
    let supported = facilitator
        .supported()
        .await
        .map_err(|error| format!("{error}; check payments.facilitator_url"))?;
    let section = &config.payments;
    let network = &section.network;
    let missing: Vec<&str> = Scheme::ALL
        .iter()
        .filter(|scheme| !is_settled(&supported, **scheme, network))
        .map(|scheme| scheme.as_str())
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "the facilitator does not settle {} on {network}",
            missing.join(" and ")
        ));
    }
    if section.mode == PaymentsMode::Facilitator {
        let asset = address(&section.asset).map_err(|error| error.to_string())?;
        let chain = chain_reader(section).map_err(|error| error.to_string())?;
        chain
            .check(asset)
            .await
            .map_err(|error| format!("{error}; check payments.rpc_url, network and asset"))?;
    }
    Ok(format!("the facilitator settles exact and upto on {network}"))
}
