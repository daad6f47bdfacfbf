//! What a provider's invoice or usage export says: kept, and judged at once.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use turnpike_core::costs::DayCost;
use turnpike_core::time::Day;
use turnpike_store::DriftImport;

use super::pass::{Invoice, Pass};
use super::{DriftDesk, DriftSweep};
use crate::error::AppError;

/// A provider's export, read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportedCosts {
    /// Provider id, as calls carry it.
    pub provider: String,
    /// The file's name.
    pub source: String,
    /// What it says, each day once.
    pub days: Vec<DayCost>,
    /// Compares only: nothing is kept and nobody is told.
    pub dry_run: bool,
}

impl DriftDesk {
    /// Keeps what a provider says its days cost, in place of what it said before, and judges them.
    ///
    /// # Errors
    /// A day that has not begun; when the store does not answer.
    pub async fn import(&self, costs: &ImportedCosts) -> Result<Value, AppError> {
        let mut pass = Pass::begin(self).await?;
        let today = Day::of(pass.now);
        if let Some(early) = costs.days.iter().find(|cost| cost.day > today) {
            return Err(AppError::invalid("days", format!("{} has not begun", early.day)));
        }
        let imports: Vec<DriftImport> = costs
            .days
            .iter()
            .map(|cost| DriftImport {
                provider: costs.provider.clone(),
                day: cost.day,
                amount: cost.usd,
                source: costs.source.clone(),
                imported_at: pass.now,
            })
            .collect();
        if !costs.dry_run {
            self.store.put_drift_imports(&imports).await?;
        }
        let mut known = false;
        let mut days = Vec::with_capacity(imports.len());
        for import in &imports {
            let (invoice, told) = if costs.dry_run {
                (pass.weigh(import).await?, DriftSweep::default())
            } else {
                let judged = pass.judge(import).await?;
                self.mark(import, pass.now).await?;
                judged
            };
            known |= invoice.known;
            days.push(verdict(import, &invoice, told, today));
        }
        // An older day that drifts may be over already by what was imported before.
        if !costs.dry_run
            && let Some(latest) = pass.invoice_of(&costs.provider, today.previous()).await?
        {
            pass.judge(&latest).await?;
        }
        let mut warnings = Vec::new();
        if !known {
            warnings.push(format!(
                "no call of provider {} is known on these days: --provider takes its id in the configuration",
                costs.provider
            ));
        }
        if imports.iter().any(|import| import.day == today) {
            warnings.push(format!(
                "{today} is not over: it was compared as it stands now, and has to be imported again"
            ));
        }
        let DriftSweep { detected, resolved } = pass.done;
        tracing::info!(
            provider = costs.provider,
            source = costs.source,
            days = days.len(),
            dry_run = costs.dry_run,
            detected,
            resolved,
            "a provider's costs were compared"
        );
        Ok(json!({
            "provider": costs.provider, "source": costs.source, "dryRun": costs.dry_run, "days": days,
            "warnings": warnings,
        }))
    }
}

fn verdict(import: &DriftImport, invoice: &Invoice, told: DriftSweep, today: Day) -> Value {
    let total = &invoice.total;
    let verdict = if !invoice.drifts {
        "agrees"
    } else if total.metered_usd.is_zero() {
        "nothing_metered"
    } else {
        "drifts"
    };
    json!({
        "day": import.day, "importedUsd": import.amount, "meteredUsd": total.metered_usd,
        "driftUsd": total.drift(), "driftBps": total.bps(), "verdict": verdict, "dayIsOver": import.day < today,
        "detected": told.detected, "resolved": told.resolved,
    })
}
