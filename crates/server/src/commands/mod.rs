//! The commands: each prints for people, or one JSON value with `--json`.

mod books;
mod drift;
mod export;
mod listen;
mod prices;
mod providers;
mod show;

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use turnpike_app::admin::{AdminDesk, AdminRequest};
use turnpike_app::{Environment, KeyIssuer};
use turnpike_core::ledger::TenantStatus;

use crate::cli::{
    CommandLine, CreditsCommand, DevArgs, Global, KeyCommand, MemberCommand, PayoutCommand, RoleArg,
    SettlementCommand, SigningKeyCommand, TenantCommand,
};
use crate::clock::SystemEnvironment;
use crate::config::Config;
use crate::identity::signer_beside;
use crate::run::{self, Roles};
use crate::service::{Access, SetupError, drift_desk, is_embedded, open_store, people, pepper, vault};
use crate::{admin_socket, dev, http, telemetry};

/// Tells a person on standard error.
pub(crate) fn complain(error: &dyn std::fmt::Display) {
    tell(&format!("turnpike: {error}"));
}

pub(super) fn tell(text: &str) {
    // Whoever closed standard error does not want to hear it.
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Writes to standard output; a closed one ends the command quietly.
pub(super) fn print(text: &str) -> Result<(), SetupError> {
    writeln!(std::io::stdout(), "{text}")
        .map_err(|error| SetupError::Other(format!("standard output: {error}")))
}

/// Kills the process at the failpoint that the environment names, and says that it was reached.
#[cfg(feature = "failpoints")]
pub(crate) fn arm_failpoint() {
    let Ok(name) = std::env::var("TURNPIKE_FAILPOINT") else {
        return;
    };
    let (name, skip) = match name.split_once(':') {
        Some((name, skip)) => (name.to_owned(), skip.parse::<u64>().unwrap_or(0)),
        None => (name, 0),
    };
    let reached = std::sync::atomic::AtomicU64::new(0);
    let label = name.clone();
    let armed = fail::cfg_callback(name, move || {
        if reached.fetch_add(1, std::sync::atomic::Ordering::SeqCst) >= skip {
            tell(&format!("failpoint reached: {label}"));
            std::process::abort();
        }
    });
    if let Err(error) = armed {
        complain(&error);
    }
}

/// Runs a command.
pub(crate) async fn run(global: Global, command: CommandLine) -> ExitCode {
    match dispatch(&global, command).await {
        Ok(code) => code,
        Err(error) => {
            if global.json {
                drop(print(&json!({ "error": error.to_string() }).to_string()));
            }
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(global: &Global, command: CommandLine) -> Result<ExitCode, SetupError> {
    match command {
        CommandLine::Dev(args) => run_dev(global, args).await,
        CommandLine::Serve { role } => run_service(global, &role).await,
        CommandLine::Openapi => {
            let document = serde_json::to_string_pretty(&http::printed());
            print(&document.map_err(|error| SetupError::Other(error.to_string()))?)?;
            Ok(ExitCode::SUCCESS)
        }
        CommandLine::ErrorsDoc => {
            print(show::errors_markdown().trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
        CommandLine::AuthorisationDoc => {
            print(&if global.json {
                http::access_rows().to_string()
            } else {
                http::access_markdown().trim_end().to_owned()
            })?;
            Ok(ExitCode::SUCCESS)
        }
        CommandLine::DevToken {
            subject,
            mfa_age,
            no_mfa,
        } => {
            let config = load(global, false)?;
            let pepper = pepper(&config, &global.data)?;
            let environment: std::sync::Arc<dyn Environment> = std::sync::Arc::new(SystemEnvironment);
            let signer = signer_beside(config, &global.data, &pepper, &environment)?;
            let token = dev::sign(&signer, &subject, (!no_mfa).then_some(mfa_age))?;
            print(&if global.json {
                json!({ "token": token }).to_string()
            } else {
                token
            })?;
            Ok(ExitCode::SUCCESS)
        }
        CommandLine::Migrate => books::migrate(global).await,
        CommandLine::Doctor => books::doctor(global).await,
        CommandLine::Audit { tenant } => books::audit(global, tenant).await,
        CommandLine::Listen(args) => listen::listen(global, &args).await,
        CommandLine::Export(args) => export::export(global, &args).await,
        CommandLine::Prices(command) => prices::run(global, command).await,
        CommandLine::Providers(command) => providers::run(global, command).await,
        CommandLine::Drift(command) => drift::run(global, command).await,
        CommandLine::Tenant(command) => administer(global, tenant_request(command)).await,
        CommandLine::Member(command) => administer(global, member_request(command)).await,
        CommandLine::Key(command) => administer(global, key_request(command)).await,
        CommandLine::Payout(command) => administer(global, payout_request(command)).await,
        CommandLine::Settlement(command) => administer(global, settlement_request(command)).await,
        CommandLine::SigningKey(SigningKeyCommand::Rotate) => {
            administer(global, AdminRequest::SigningKeyRotate).await
        }
        CommandLine::SigningKey(SigningKeyCommand::List) => {
            administer(global, AdminRequest::SigningKeyList).await
        }
        CommandLine::Credits(CreditsCommand::Grant {
            tenant,
            external_user_id,
            usd,
            reason,
        }) => {
            administer(
                global,
                AdminRequest::Grant {
                    tenant,
                    external_user_id,
                    usd,
                    reason,
                },
            )
            .await
        }
    }
}

fn tenant_request(command: TenantCommand) -> AdminRequest {
    match command {
        TenantCommand::Create { name } => AdminRequest::TenantCreate { name },
        TenantCommand::List => AdminRequest::TenantList,
        TenantCommand::Suspend { id } => AdminRequest::TenantStatus {
            tenant: id,
            status: TenantStatus::Suspended,
        },
        TenantCommand::Resume { id } => AdminRequest::TenantStatus {
            tenant: id,
            status: TenantStatus::Active,
        },
    }
}

fn member_request(command: MemberCommand) -> AdminRequest {
    match command {
        MemberCommand::Add {
            tenant,
            subject,
            role,
        } => AdminRequest::MemberAdd {
            tenant,
            subject,
            role,
        },
        MemberCommand::List { tenant } => AdminRequest::MemberList { tenant },
        MemberCommand::Invite { tenant, role } => AdminRequest::MemberInvite { tenant, role },
        MemberCommand::Reset { login } => AdminRequest::MemberReset { login },
        MemberCommand::Remove { tenant, subject } => AdminRequest::MemberRemove { tenant, subject },
    }
}

fn key_request(command: KeyCommand) -> AdminRequest {
    match command {
        KeyCommand::Create {
            tenant,
            name,
            kind,
            scopes,
            expires_in,
        } => AdminRequest::KeyCreate {
            tenant,
            name,
            kind,
            scopes,
            expires_in,
        },
        KeyCommand::List { tenant } => AdminRequest::KeyList { tenant },
        KeyCommand::Revoke { tenant, id } => AdminRequest::KeyRevoke { tenant, key: id },
    }
}

fn payout_request(command: PayoutCommand) -> AdminRequest {
    match command {
        PayoutCommand::List { tenant } => AdminRequest::PayoutList { tenant },
        PayoutCommand::Begin { tenant, id } => AdminRequest::PayoutBegin { tenant, payout: id },
        PayoutCommand::Settle {
            tenant,
            id,
            reference,
        } => AdminRequest::PayoutSettle {
            tenant,
            payout: id,
            reference,
        },
        PayoutCommand::Fail { tenant, id, reason } => AdminRequest::PayoutFail {
            tenant,
            payout: id,
            reason,
        },
    }
}

fn settlement_request(command: SettlementCommand) -> AdminRequest {
    match command {
        SettlementCommand::List => AdminRequest::SettlementList,
        SettlementCommand::Settle {
            receipt,
            transaction,
            usd,
        } => AdminRequest::SettlementSettle {
            receipt,
            transaction,
            usd,
        },
        SettlementCommand::Void { receipt, reason } => AdminRequest::SettlementVoid { receipt, reason },
    }
}

pub(super) fn load(global: &Global, demo: bool) -> Result<Config, SetupError> {
    let config = Config::load(global.config.as_deref(), demo)?;
    telemetry::start(&config.telemetry);
    Ok(config)
}

async fn run_dev(global: &Global, args: DevArgs) -> Result<ExitCode, SetupError> {
    let mut config = load(global, true)?;
    if let Some(listen) = args.listen {
        config.server.listen = listen;
    }
    if !is_embedded(&config.store) {
        return Err(SetupError::Other(
            "dev runs on the embedded store; use `turnpike serve` with PostgreSQL".to_owned(),
        ));
    }
    if args.reset {
        dev::reset(&global.data)?;
    }
    let started = run::start(
        config,
        &global.data,
        Roles {
            api: true,
            worker: true,
        },
    )
    .await?;
    let env = dev::prepare(&started.app, &global.data).await?;
    let link = run::first_start(&started.app).await?;
    let vendor = started.app.service.config.server.vendor.clone();
    if global.json {
        print(&json!(env).to_string())?;
        tell_first_owner(link.as_deref());
    } else {
        print(&dev::welcome(&env, &vendor, &global.data, link.as_deref()))?;
    }
    run::run(started, &global.data).await?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the first owner's link where people read, and not into the log.
fn tell_first_owner(link: Option<&str>) {
    if let Some(link) = link {
        tell(&format!(
            "Nobody has joined yet. The first owner joins here; the next start prints another link:\n\n  {link}\n"
        ));
    }
}

async fn run_service(global: &Global, roles: &[RoleArg]) -> Result<ExitCode, SetupError> {
    let config = load(global, false)?;
    if config.providers.is_empty() {
        tracing::warn!("no [[providers]] are configured: every call will be refused");
    }
    let has = |role: RoleArg| roles.contains(&role) || roles.contains(&RoleArg::All);
    let roles = Roles {
        api: has(RoleArg::Api),
        worker: has(RoleArg::Worker),
    };
    let started = run::start(config, &global.data, roles).await?;
    if roles.api {
        tell_first_owner(run::first_start(&started.app).await?.as_deref());
    }
    run::run(started, &global.data).await?;
    Ok(ExitCode::SUCCESS)
}

/// Does an operator's request: by the running service, or with the store opened here.
pub(super) async fn request(global: &Global, request: AdminRequest) -> Result<Value, SetupError> {
    let config = load(global, false)?;
    if is_embedded(&config.store)
        && let Some(answer) = admin_socket::ask(&global.data, &request).await
    {
        return answer;
    }
    let store = open_store(&config.store, &global.data, Access::Serve, "an operator command").await?;
    let brand = config.server.brand.as_str().into();
    let environment = std::sync::Arc::new(SystemEnvironment);
    let pepper = pepper(&config, &global.data)?;
    let vault = vault(&config, &pepper, store.clone(), environment.clone());
    let drift = drift_desk(&config, store.clone(), environment.clone());
    let people = people(&config, &pepper, store.clone(), environment.clone())?;
    let issuer = KeyIssuer::new(store.clone(), environment.clone(), pepper, brand);
    let desk = AdminDesk::new(store.clone(), environment, issuer, vault, drift, people);
    let result = desk.run(request, "command line").await;
    store.close().await;
    Ok(result?)
}

async fn administer(global: &Global, admin: AdminRequest) -> Result<ExitCode, SetupError> {
    let value = request(global, admin).await?;
    print(&if global.json {
        value.to_string()
    } else {
        show::people(&value)
    })?;
    Ok(ExitCode::SUCCESS)
}
