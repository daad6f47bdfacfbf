//! `turnpike prices`: the diff first, then the change.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use turnpike_app::admin::AdminRequest;
use turnpike_core::pricing::{Catalogue, ModelPrice, PriceChange, import_litellm};

use super::{print, request, show, tell};
use crate::cli::{Global, PricesCommand};
use crate::service::SetupError;

pub(super) async fn run(global: &Global, command: PricesCommand) -> Result<ExitCode, SetupError> {
    match command {
        PricesCommand::Show => {
            let prices = request(global, AdminRequest::PricesShow).await?;
            print(&if global.json {
                prices.to_string()
            } else {
                show::people(&prices)
            })?;
        }
        PricesCommand::Diff { file, provider } => {
            let (_, _, changes) = compare(global, &file, provider.as_deref()).await?;
            report(global, &changes, None)?;
        }
        PricesCommand::Import { file, provider } => {
            let (current, imported, changes) = compare(global, &file, provider.as_deref()).await?;
            let changed: Vec<ModelPrice> = imported
                .iter()
                .filter(|price| current.get(&price.provider, &price.model) != Some(*price))
                .cloned()
                .collect();
            let applied = changed.len();
            if applied > 0 {
                if !global.json {
                    report(global, &changes, None)?;
                }
                request(global, AdminRequest::PricesApply { prices: changed }).await?;
            }
            report_applied(global, &changes, applied)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn compare(
    global: &Global,
    file: &Path,
    provider: Option<&str>,
) -> Result<(Catalogue, Catalogue, Vec<PriceChange>), SetupError> {
    let wrong = |error: &dyn std::fmt::Display| SetupError::Other(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(SetupError::file(file))?;
    let imported = if file.extension().is_some_and(|extension| extension == "toml") {
        Catalogue::from_toml(&text).map_err(|error| wrong(&error))?
    } else {
        let import = import_litellm(&text).map_err(|error| wrong(&error))?;
        for warning in &import.warnings {
            if provider.is_none_or(|provider| warning.model.starts_with(provider)) {
                tell(&format!("{}: {}", warning.model, warning.message));
            }
        }
        import.catalogue
    };
    let mut wanted = Catalogue::default();
    for price in imported
        .iter()
        .filter(|price| provider.is_none_or(|provider| price.provider == provider))
    {
        wanted.insert(price.clone()).map_err(|error| wrong(&error))?;
    }
    let shown = request(global, AdminRequest::PricesShow).await?;
    let models: Vec<ModelPrice> = serde_json::from_value(shown.get("models").cloned().unwrap_or_default())
        .map_err(|error| SetupError::Other(error.to_string()))?;
    let mut current = Catalogue::default();
    for price in models {
        current.insert(price).map_err(|error| wrong(&error))?;
    }
    // An import adds and changes; what it does not name stays.
    let changes = current
        .diff(&wanted)
        .into_iter()
        .filter(|change| !matches!(change, PriceChange::Removed { .. }));
    let changes = changes.collect();
    Ok((current, wanted, changes))
}

fn report(global: &Global, changes: &[PriceChange], applied: Option<usize>) -> Result<(), SetupError> {
    if global.json {
        return print(&json!({ "changes": changes, "applied": applied }).to_string());
    }
    if changes.is_empty() {
        return print("no change");
    }
    for change in changes {
        print(&change.to_string())?;
    }
    Ok(())
}

fn report_applied(global: &Global, changes: &[PriceChange], applied: usize) -> Result<(), SetupError> {
    if global.json {
        return report(global, changes, Some(applied));
    }
    print(&format!("{applied} models added or changed"))
}
