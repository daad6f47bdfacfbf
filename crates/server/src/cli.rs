//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use turnpike_core::access::{KeyKind, Role, Scope};
use turnpike_core::ids::{ExternalUserId, KeyId, PayoutId, ReceiptId, TenantId};
use turnpike_core::ledger::event::EventType;
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;

use crate::commands;

/// Meters, prices and charges calls to AI providers and tools.
#[derive(Debug, Parser)]
#[command(name = "turnpike", version, about)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Option<CommandLine>,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Print one JSON value to standard output and nothing else.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Configuration file; default ./turnpike.toml when it exists.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Embedded store and keys.
    #[arg(long, global = true, value_name = "DIR", default_value = "./.turnpike")]
    pub(crate) data: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CommandLine {
    /// Run the whole service on embedded parts, with a demo workspace (the default).
    Dev(DevArgs),
    /// Run the service as configured.
    Serve {
        /// Which parts this process runs.
        #[arg(long, value_delimiter = ',', default_value = "all")]
        role: Vec<RoleArg>,
    },
    /// Bring the schema up to date.
    Migrate,
    /// Check configuration, store, providers and clock, and say what to do.
    Doctor,
    /// Workspaces.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Memberships of identity-provider subjects.
    #[command(subcommand)]
    Member(MemberCommand),
    /// API keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Credits.
    #[command(subcommand)]
    Credits(CreditsCommand),
    /// Payouts of margin: to addresses on chains the operator sends them.
    #[command(subcommand)]
    Payout(PayoutCommand),
    /// Settlements of calls that wallets pay for, of which nobody knows what became.
    #[command(subcommand)]
    Settlement(SettlementCommand),
    /// Model prices.
    #[command(subcommand)]
    Prices(PricesCommand),
    /// Providers, and tools out of their OpenAPI documents.
    #[command(subcommand)]
    Providers(ProvidersCommand),
    /// What providers say their days cost, against what was metered.
    #[command(subcommand)]
    Drift(DriftCommand),
    /// Keys that sign end users' tokens.
    #[command(subcommand)]
    SigningKey(SigningKeyCommand),
    /// Recompute every balance from the entries and check every invariant.
    Audit {
        /// Only this workspace.
        #[arg(long)]
        tenant: Option<TenantId>,
    },
    /// Write a workspace's ledger, usage, events or audit log to standard output.
    Export(ExportArgs),
    /// Forward a workspace's events to a local URL while this runs, printing each (development).
    Listen(ListenArgs),
    /// Print the OpenAPI document.
    Openapi,
    /// Print a dashboard session of the built-in identity, for trying.
    DevToken {
        /// The person.
        #[arg(long, default_value = "demo-owner")]
        subject: String,
        /// How long ago the second factor was shown, in seconds.
        #[arg(long, default_value_t = 0)]
        mfa_age: i64,
        /// Without a second factor.
        #[arg(long)]
        no_mfa: bool,
    },
    /// Print the error codes as Markdown (docs/errors.md).
    #[command(hide = true)]
    ErrorsDoc,
    /// Print who may use which route as Markdown (docs/authorisation.md).
    #[command(hide = true)]
    AuthorisationDoc,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DevArgs {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long)]
    pub(crate) listen: Option<String>,
    /// Begin with empty books.
    #[arg(long)]
    pub(crate) reset: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleArg {
    Api,
    Worker,
    All,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Add a workspace.
    Create {
        /// Its name.
        #[arg(long)]
        name: String,
    },
    /// List workspaces.
    List,
    /// Stop a workspace: reads only.
    Suspend {
        /// Which.
        id: TenantId,
    },
    /// Let it spend again.
    Resume {
        /// Which.
        id: TenantId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Add a member or change the role.
    Add {
        #[arg(long)]
        tenant: TenantId,
        /// The identity provider's subject.
        #[arg(long)]
        subject: String,
        /// owner, admin, developer, billing or viewer.
        #[arg(long, value_parser = role)]
        role: Role,
    },
    /// List members.
    List {
        #[arg(long)]
        tenant: TenantId,
    },
    /// Make an invitation; its link is printed once.
    Invite {
        #[arg(long)]
        tenant: TenantId,
        /// owner, admin, developer, billing or viewer.
        #[arg(long, value_parser = role)]
        role: Role,
    },
    /// Built-in identity: print a link with which a person chooses password and second factor anew, and sign the person
    /// out.
    Reset {
        /// What the person signs in with.
        #[arg(long)]
        login: String,
    },
    /// Remove a member.
    Remove {
        #[arg(long)]
        tenant: TenantId,
        #[arg(long)]
        subject: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Add a key; the raw key is printed once.
    Create {
        #[arg(long)]
        tenant: TenantId,
        #[arg(long)]
        name: String,
        /// secret, publishable or sandbox.
        #[arg(long, value_parser = key_kind, default_value = "secret")]
        kind: KeyKind,
        /// What it may do beside calls; may be repeated.
        #[arg(long = "scope", value_parser = scope)]
        scopes: Vec<Scope>,
        /// Seconds until it stops working.
        #[arg(long)]
        expires_in: Option<i64>,
    },
    /// List keys.
    List {
        #[arg(long)]
        tenant: TenantId,
    },
    /// Revoke a key.
    Revoke {
        #[arg(long)]
        tenant: TenantId,
        /// Which.
        id: KeyId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CreditsCommand {
    /// Give credits.
    Grant {
        #[arg(long)]
        tenant: TenantId,
        /// The end user; absent = the workspace's pool.
        #[arg(long, value_parser = external_user_id)]
        external_user_id: Option<ExternalUserId>,
        /// Decimal amount of dollars.
        #[arg(long, value_parser = usd)]
        usd: Micros,
        /// Why.
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PayoutCommand {
    /// List what is under way, oldest first; with a workspace all of its payouts, newest first.
    List {
        #[arg(long)]
        tenant: Option<TenantId>,
    },
    /// Say that a payout is being sent, so that it cannot be canceled any more.
    Begin {
        #[arg(long)]
        tenant: TenantId,
        /// Which.
        id: PayoutId,
    },
    /// Say that a payout was sent.
    Settle {
        #[arg(long)]
        tenant: TenantId,
        /// Which.
        id: PayoutId,
        /// What it is called there, such as the hash of its transaction.
        #[arg(long, value_name = "TX")]
        reference: String,
    },
    /// Say that a payout was not sent; its margin is given back.
    Fail {
        #[arg(long)]
        tenant: TenantId,
        /// Which.
        id: PayoutId,
        /// Why.
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SettlementCommand {
    /// List the calls that are answered and neither paid nor given up.
    List,
    /// Say that a call was paid, when you have seen it on the chain.
    Settle {
        /// The call's receipt.
        receipt: ReceiptId,
        /// The transaction's hash.
        #[arg(long, value_name = "TX")]
        transaction: String,
        /// What moved, a decimal amount of dollars; absent = what was due.
        #[arg(long, value_parser = usd)]
        usd: Option<Micros>,
    },
    /// Say that a call was never paid, and give it up; once its payment can be settled no more.
    Void {
        /// The call's receipt.
        receipt: ReceiptId,
        /// Why.
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProvidersCommand {
    /// Take over the operations of an OpenAPI 3 document as tools; again = an update. Works while the service runs.
    Import(ImportArgs),
    /// List configured and imported providers.
    List,
    /// Forget a provider's imported tools.
    Remove {
        /// Which.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The document, JSON or YAML.
    pub(crate) file: PathBuf,
    /// The provider: one of [[providers]] of kind http, or a new one with --base-url.
    #[arg(long)]
    pub(crate) id: String,
    /// Where a provider is that is not configured. What the document says of servers is only shown.
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Price of a call of every tool without a price of its own, in dollars.
    #[arg(long, value_name = "USD")]
    pub(crate) price_usd: Option<String>,
    /// TOML file of prices: "tool or pattern*" = { kind = "fixed", usd = "0.001" }
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Only tools whose name, or one of whose tags, is this, or matches it with *; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Vec<String>,
    /// Deprecated operations, too.
    #[arg(long)]
    pub(crate) deprecated: bool,
    /// Only say what would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PricesCommand {
    /// Show the diff and apply it: LiteLLM's JSON or the project's own TOML.
    Import {
        file: PathBuf,
        /// Only models of this provider.
        #[arg(long)]
        provider: Option<String>,
    },
    /// Show the prices in force.
    Show,
    /// Show what an import would change.
    Diff {
        file: PathBuf,
        /// Only models of this provider.
        #[arg(long)]
        provider: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DriftCommand {
    /// Compare a provider's invoice or usage export with the ledger, and tell workspaces of a difference: CSV,
    /// JSON lines or OpenAI's organization costs.
    Import {
        file: PathBuf,
        /// Its id in the configuration.
        #[arg(long)]
        provider: String,
        /// Compare only: keep nothing, tell nobody.
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SigningKeyCommand {
    /// Make a new key, which signs once it has been published long enough; live tokens stay valid.
    Rotate,
    /// List the keys.
    List,
}

#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// A URL on this machine, such as http://localhost:3000/hooks.
    #[arg(long, value_name = "URL")]
    pub(crate) forward_to: String,
    /// Whose events; may be left out while there is one workspace.
    #[arg(long)]
    pub(crate) tenant: Option<TenantId>,
    /// Only events of this type; may be repeated.
    #[arg(long = "type", value_parser = event_type, value_name = "TYPE")]
    pub(crate) types: Vec<EventType>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// What.
    pub(crate) what: ExportKind,
    #[arg(long)]
    pub(crate) tenant: TenantId,
    /// From this instant, ISO 8601.
    #[arg(long)]
    pub(crate) from: Option<Timestamp>,
    /// Up to, not including, this instant.
    #[arg(long)]
    pub(crate) to: Option<Timestamp>,
    #[arg(long, default_value = "jsonl")]
    pub(crate) format: ExportFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportKind {
    Ledger,
    Usage,
    Events,
    Audit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Csv,
    Jsonl,
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| "must be owner, admin, developer, billing or viewer".to_owned())
}

fn key_kind(text: &str) -> Result<KeyKind, String> {
    KeyKind::parse(text).ok_or_else(|| "must be secret, publishable or sandbox".to_owned())
}

fn scope(text: &str) -> Result<Scope, String> {
    let known: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    Scope::parse(text).ok_or_else(|| format!("must be one of {}", known.join(", ")))
}

fn event_type(text: &str) -> Result<EventType, String> {
    let known: Vec<&str> = EventType::ALL.iter().map(|kind| kind.as_str()).collect();
    EventType::parse(text).ok_or_else(|| format!("must be one of {}", known.join(", ")))
}

fn external_user_id(text: &str) -> Result<ExternalUserId, String> {
    ExternalUserId::parse(text).map_err(|error| error.to_string())
}

fn usd(text: &str) -> Result<Micros, String> {
    Micros::parse_usd(text).map_err(|error| error.to_string())
}

/// Reads the command line and runs the command.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let help = !error.use_stderr();
            if error.print().is_err() {
                return ExitCode::from(2);
            }
            return if help {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(2)
            };
        }
    };
    #[cfg(feature = "failpoints")]
    commands::arm_failpoint();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            commands::complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let command = cli.command.unwrap_or(CommandLine::Dev(DevArgs::default()));
    let code = runtime.block_on(Box::pin(commands::run(cli.global, command)));
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    code
}
