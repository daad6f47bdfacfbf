//! `turnpike drift`: a provider's invoice or usage export, compared with the ledger.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use turnpike_app::admin::AdminRequest;
use turnpike_app::drift::ImportedCosts;
use turnpike_core::costs::{DayCost, MAX_BYTES, read_costs};

use super::{print, request, show, tell};
use crate::cli::{DriftCommand, Global};
use crate::service::SetupError;

pub(super) async fn run(global: &Global, command: DriftCommand) -> Result<ExitCode, SetupError> {
    let DriftCommand::Import {
        file,
        provider,
        dry_run,
    } = command;
    let costs = ImportedCosts {
        provider,
        source: file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        days: read(&file)?,
        dry_run,
    };
    let report = request(global, AdminRequest::DriftImport { costs }).await?;
    if global.json {
        print(&report.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    for warning in report
        .get("warnings")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        tell(&format!("warning: {}", warning.as_str().unwrap_or_default()));
    }
    print(&show::people(&json!({ "days": report.get("days") })))?;
    if dry_run {
        print("nothing was kept: this was a dry run")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Vec<DayCost>, SetupError> {
    let opened = std::fs::File::open(file).map_err(SetupError::file(file))?;
    // One byte more than is allowed, so that a file that is too large is seen.
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    opened
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(SetupError::file(file))?;
    read_costs(&bytes).map_err(|error| SetupError::Other(format!("{}: {error}", file.display())))
}
