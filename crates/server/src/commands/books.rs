//! Commands about the books and the machine: migrate, doctor, audit.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use turnpike_core::ids::TenantId;

use super::{load, print, tell};
use crate::admin_socket;
use crate::cli::Global;
use crate::config::Config;
use crate::service::{Access, SetupError, is_embedded, open_store, pepper, processor};
use crate::{identity, payments};

pub(super) async fn migrate(global: &Global) -> Result<ExitCode, SetupError> {
    let config = load(global, false)?;
    let store = open_store(&config.store, &global.data, Access::Serve, "turnpike migrate").await?;
    store.close().await;
    print(&if global.json {
        json!({ "migrated": true }).to_string()
    } else {
        "the schema is up to date".to_owned()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// One thing that the doctor looked at.
struct Check {
    name: &'static str,
    ok: bool,
    message: String,
}

pub(super) async fn doctor(global: &Global) -> Result<ExitCode, SetupError> {
    let mut checks = Vec::new();
    let config = match Config::load(global.config.as_deref(), false) {
        Ok(config) => {
            checks.push(Check {
                name: "configuration",
                ok: true,
                message: "reads well".to_owned(),
            });
            Some(config)
        }
        Err(error) => {
            checks.push(Check {
                name: "configuration",
                ok: false,
                message: error.to_string(),
            });
            None
        }
    };
    if let Some(config) = &config {
        checks.push(check_store(global, config).await);
        checks.extend(check_providers(config));
        checks.push(check_secret(config));
        checks.push(check_processor(global, config).await);
        checks.push(check_payments(config).await);
        checks.push(check_identity(config).await);
    }
    let ok = checks.iter().all(|check| check.ok);
    if global.json {
        let rows: Vec<Value> = checks
            .iter()
            .map(|check| json!({ "check": check.name, "ok": check.ok, "message": check.message }))
            .collect();
        print(&json!({ "ok": ok, "checks": rows }).to_string())?;
    } else {
        for check in &checks {
            let mark = if check.ok { "ok  " } else { "FAIL" };
            print(&format!("{mark} {}: {}", check.name, check.message))?;
        }
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn check_store(global: &Global, config: &Config) -> Check {
    let name = "store";
    if is_embedded(&config.store) && admin_socket::path(&global.data).exists() {
        return Check {
            name,
            ok: true,
            message: "a service is running on it".to_owned(),
        };
    }
    match open_store(&config.store, &global.data, Access::Serve, "turnpike doctor").await {
        Ok(store) => {
            let ping = store.ping().await;
            store.close().await;
            match ping {
                Ok(()) => Check {
                    name,
                    ok: true,
                    message: "opens and answers; the schema is up to date".to_owned(),
                },
                Err(error) => Check {
                    name,
                    ok: false,
                    message: error.to_string(),
                },
            }
        }
        Err(error) => Check {
            name,
            ok: false,
            message: format!("{error}; check store.url and --data"),
        },
    }
}

/// Whether the processor answers with the configured key.
async fn check_processor(global: &Global, config: &Config) -> Check {
    let name = "processor";
    let check = |ok, message: String| Check { name, ok, message };
    let made = pepper(config, &global.data).and_then(|secret| processor(config, &secret));
    let processor = match made {
        Ok((Some(processor), _)) => processor,
        Ok((None, _)) => {
            let message = "none: top-ups answer 503";
            return check(true, message.to_owned());
        }
        Err(error) => return check(false, error.to_string()),
    };
    // Nothing has this name: an answer says that the key is good.
    match processor.find_payment("pi_turnpike_doctor").await {
        Ok(_) => check(true, format!("{} answers", processor.name())),
        Err(error) => check(false, format!("{error}; check processor.secret_key and api_base")),
    }
}

/// Whether the facilitator settles what is sold by the call.
async fn check_payments(config: &Config) -> Check {
    let (ok, message) = match payments::check(config).await {
        Ok(message) => (true, message),
        Err(message) => (false, message),
    };
    Check {
        name: "payments",
        ok,
        message,
    }
}

/// Whether sessions of the dashboard can be verified.
async fn check_identity(config: &Config) -> Check {
    let (ok, message) = match identity::check(&config.identity).await {
        Ok(message) => (true, message),
        Err(message) => (false, message),
    };
    Check {
        name: "identity",
        ok,
        message,
    }
}

fn check_providers(config: &Config) -> Vec<Check> {
    if config.providers.is_empty() {
        let message = "none are configured: add [[providers]] to the configuration".to_owned();
        return vec![Check {
            name: "providers",
            ok: false,
            message,
        }];
    }
    let check = |provider: &crate::config::ProviderConfig| {
        let secret = provider
            .api_key
            .as_ref()
            .map(crate::config::SecretSource::read)
            .transpose();
        if let Err(error) = secret {
            return Check {
                name: "provider",
                ok: false,
                message: format!("{}: {error}", provider.id),
            };
        }
        let (models, tools) = (provider.models.len(), provider.endpoints.len());
        Check {
            name: "provider",
            ok: true,
            message: format!("{}: {models} models, {tools} tools", provider.id),
        }
    };
    config.providers.iter().map(check).collect()
}

fn check_secret(config: &Config) -> Check {
    let name = "server.secret_key";
    match config.server.secret_key.read() {
        Err(error) => Check {
            name,
            ok: false,
            message: error.to_string(),
        },
        Ok(None) if !is_embedded(&config.store) => Check {
            name,
            ok: false,
            message: "is empty: on a shared store every node needs the same one".to_owned(),
        },
        Ok(_) => Check {
            name,
            ok: true,
            message: "is there, or made in the data directory".to_owned(),
        },
    }
}

pub(super) async fn audit(global: &Global, only: Option<TenantId>) -> Result<ExitCode, SetupError> {
    let config = load(global, false)?;
    let store = open_store(&config.store, &global.data, Access::Read, "turnpike audit").await?;
    let tenants: Vec<_> = store
        .list_tenants()
        .await?
        .into_iter()
        .filter(|tenant| only.is_none_or(|only| tenant.id == only))
        .collect();
    if only.is_some() && tenants.is_empty() {
        return Err(SetupError::Other("there is no such workspace".to_owned()));
    }
    let bar = if std::io::stderr().is_terminal() && !global.json {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {pos} rows ({per_sec})") {
        bar.set_style(style);
    }
    let mut reports = Vec::new();
    let mut clean = true;
    for tenant in &tenants {
        bar.set_message(tenant.name.clone());
        bar.set_position(0);
        let report = store.audit(tenant.id, &|rows| bar.set_position(rows)).await?;
        clean &= report.findings.is_empty();
        if !global.json {
            let counts = &report.counts;
            print(&format!(
                "{} {} ({}): {} accounts, {} transfers, {} calls ({} open), {} paid calls ({} open), {} events",
                if report.findings.is_empty() {
                    "clean"
                } else {
                    "WRONG"
                },
                tenant.name,
                tenant.id,
                counts.accounts,
                counts.transfers,
                counts.holds,
                counts.open_holds,
                counts.paid_calls,
                counts.open_paid_calls,
                counts.events,
            ))?;
            for finding in &report.findings {
                print(&format!("  {finding}"))?;
            }
        }
        reports.push(json!({ "tenantId": tenant.id, "name": tenant.name, "report": report }));
    }
    bar.finish_and_clear();
    if global.json {
        print(&json!({ "clean": clean, "tenants": reports }).to_string())?;
    } else if tenants.is_empty() {
        tell("there are no workspaces");
    }
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
