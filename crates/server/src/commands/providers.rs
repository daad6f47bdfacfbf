//! `turnpike providers`: tools out of OpenAPI documents. The document is read here, and never by the service.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use turnpike_app::admin::AdminRequest;
use turnpike_app::tools::ToolImport;
use turnpike_app::tools::import::{Import, ImportOptions, MAX_DOCUMENT, import};
use turnpike_core::pricing::EndpointPrice;
use turnpike_upstream::{Provider, ProviderKind};

use super::{print, request, show, tell};
use crate::cli::{Global, ImportArgs, ProvidersCommand};
use crate::config::Config;
use crate::service::SetupError;

pub(super) async fn run(global: &Global, command: ProvidersCommand) -> Result<ExitCode, SetupError> {
    match command {
        ProvidersCommand::Import(args) => import_file(global, &args).await?,
        ProvidersCommand::List => {
            let config = Config::load(global.config.as_deref(), false)?;
            let imported = request(global, AdminRequest::ProviderList).await?;
            let all = listed(&config, &imported);
            print(&if global.json {
                all.to_string()
            } else {
                show::people(&all)
            })?;
        }
        ProvidersCommand::Remove { id } => {
            let removed = request(global, AdminRequest::ProviderRemove { provider: id }).await?;
            print(&if global.json {
                removed.to_string()
            } else {
                show::people(&removed)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn import_file(global: &Global, args: &ImportArgs) -> Result<(), SetupError> {
    let config = Config::load(global.config.as_deref(), false)?;
    let configured = check_place(&config, args)?;
    let text = read(&args.file)?;
    let options = ImportOptions {
        only: args.only.clone(),
        deprecated: args.deprecated,
    };
    let found = import(&text, &options)
        .map_err(|error| SetupError::Other(format!("{}: {error}", args.file.display())))?;
    if found.tools.is_empty() {
        tell_left_out(&found);
        let message = format!("{}: no operation can be a tool", args.file.display());
        return Err(SetupError::Other(message));
    }
    let wanted = ToolImport {
        provider: args.id.clone(),
        configured,
        base_url: args.base_url.clone(),
        source: found.source.clone(),
        tools: found.tools.clone(),
        price: args.price_usd.as_deref().map(fixed_price).transpose()?,
        prices: args
            .prices
            .as_deref()
            .map(read_prices)
            .transpose()?
            .unwrap_or_default(),
        dry_run: args.dry_run,
    };
    let import = Box::new(wanted);
    let mut report = request(global, AdminRequest::ProviderImport { import }).await?;
    if global.json {
        report["skipped"] = json!(found.skipped);
        report["notes"] = json!(found.notes);
        return print(&report.to_string());
    }
    tell_left_out(&found);
    print(&in_words(&report, &found))
}

/// Whether the configuration has the provider; else the import must be able to say where it is.
fn check_place(config: &Config, args: &ImportArgs) -> Result<bool, SetupError> {
    let wrong = |text: String| Err(SetupError::Other(text));
    let configured = config.providers.iter().find(|provider| provider.id == args.id);
    match (configured, &args.base_url) {
        (Some(provider), _) if provider.kind != ProviderKind::Http => wrong(format!(
            "provider {} is configured, and its kind is not http",
            args.id
        )),
        (Some(_), Some(_)) => wrong(format!(
            "provider {} is configured: its base_url stands there, so leave --base-url out",
            args.id
        )),
        (Some(_), None) => Ok(true),
        (None, None) => Ok(false),
        (None, Some(url)) => {
            // Built and thrown away: it says what is wrong with the URL.
            let settings = config.imports.rules().settings(&args.id, url);
            Provider::new(&settings).map_err(|error| SetupError::Other(error.to_string()))?;
            Ok(false)
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>, SetupError> {
    let mut text = Vec::new();
    let most = u64::try_from(MAX_DOCUMENT).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(file)
        .and_then(|opened| opened.take(most).read_to_end(&mut text))
        .map_err(SetupError::file(file))?;
    Ok(text)
}

fn fixed_price(usd: &str) -> Result<EndpointPrice, SetupError> {
    serde_json::from_value(json!({ "kind": "fixed", "usd": usd }))
        .map_err(|error| SetupError::Other(format!("--price-usd: {error}")))
}

/// `"name or pattern" = { kind = "fixed", usd = "0.001" }`, one a line.
fn read_prices(file: &Path) -> Result<BTreeMap<String, EndpointPrice>, SetupError> {
    let text = std::fs::read_to_string(file).map_err(SetupError::file(file))?;
    toml::from_str(&text).map_err(|error| SetupError::Other(format!("{}: {error}", file.display())))
}

/// What people should know and no program reads.
fn tell_left_out(found: &Import) {
    for skipped in &found.skipped {
        tell(&format!("left out: {}: {}", skipped.operation, skipped.reason));
    }
    for note in &found.notes {
        tell(note);
    }
}

fn in_words(report: &Value, found: &Import) -> String {
    let number = |member: &str| report.get(member).and_then(Value::as_u64).unwrap_or(0);
    let changes = report
        .get("changes")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let mut lines = Vec::new();
    if changes.is_empty() {
        lines.push("no change".to_owned());
    } else {
        lines.push(show::people(&Value::Array(changes)));
    }
    let (tools, priced) = (number("tools"), number("priced"));
    lines.push(format!(
        "{tools} tools, {} operations left out",
        found.skipped.len()
    ));
    if priced < tools {
        lines.push(format!(
            "{} tools have no price and cannot be called: --price-usd or --prices sets them",
            tools.saturating_sub(priced)
        ));
    }
    for pattern in report
        .get("unmatchedPrices")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        lines.push(format!("the price of {pattern} is of no tool"));
    }
    let source = &found.source;
    if !source.servers.is_empty() {
        lines.push(format!(
            "the document names as servers: {}",
            source.servers.join(", ")
        ));
    }
    if !source.credentials.is_empty() {
        lines.push(format!("the document wants: {}", source.credentials.join(", ")));
    }
    if report.get("applied") == Some(&Value::Bool(false)) {
        lines.push("nothing was changed (--dry-run)".to_owned());
    }
    lines.join("\n")
}

/// Configured providers, and what is imported.
fn listed(config: &Config, imported: &Value) -> Value {
    let rows = imported.get("providers").and_then(Value::as_array);
    let rows: Vec<&Value> = rows.into_iter().flatten().collect();
    let find = |id: &str| {
        rows.iter()
            .find(|row| row.get("provider").and_then(Value::as_str) == Some(id))
    };
    let of = |row: Option<&&Value>, member: &str| row.and_then(|row| row.get(member)).cloned();
    let line = |id: &str, kind: &str, endpoints: usize, url: Option<Value>| {
        let row = find(id);
        json!({
            "provider": id, "kind": kind, "configuredTools": endpoints,
            "importedTools": of(row, "tools").unwrap_or(json!(0)), "pricedTools": of(row, "priced"),
            "baseUrl": url, "title": of(row, "title"), "version": of(row, "version"),
            "importedAt": of(row, "importedAt"),
        })
    };
    let mut all = Vec::new();
    for provider in &config.providers {
        let kind = match provider.kind {
            ProviderKind::OpenAi => "openai",
            ProviderKind::Http => "http",
            ProviderKind::Simulated => "simulated",
        };
        let url = (!provider.base_url.is_empty()).then(|| json!(provider.base_url));
        all.push(line(&provider.id, kind, provider.endpoints.len(), url));
    }
    let is_configured = |id: &str| config.providers.iter().any(|provider| provider.id == id);
    for row in &rows {
        if let Some(id) = row.get("provider").and_then(Value::as_str)
            && !is_configured(id)
        {
            all.push(line(id, "imported", 0, row.get("baseUrl").cloned()));
        }
    }
    json!({ "providers": all })
}
