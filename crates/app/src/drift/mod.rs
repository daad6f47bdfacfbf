//! Usage drift: what a provider says a day cost, compared with what the ledger metered.
//!
//! [`DriftDesk::reconcile`] is idempotent and may run on several nodes at once: it measures and reports, and the
//! ledger decides what a workspace is told and that it is told once. What a provider says is its invoice where one
//! was imported ([`DriftDesk::import`]), judged on the sums of all workspaces and divided by what each was metered;
//! else the usage in its answers: the metered cost and what was booked as loss above it, judged for each workspace.

mod import;
mod pass;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use turnpike_core::ledger::drift::DriftThreshold;
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;
use turnpike_store::{DriftImport, Store};

pub use self::import::ImportedCosts;
use self::pass::Pass;
use crate::environment::Environment;
use crate::error::AppError;

/// Imported days that one pass judges.
const PENDING: u32 = 1000;
/// How long after its end a day may still change: a stream that began before midnight is credited back.
const SETTLED_MS: i64 = 2 * 3_600_000;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriftSweep {
    /// Workspaces that were told of a drift.
    pub detected: u64,
    /// Workspaces that were told that one is over.
    pub resolved: u64,
}

/// The use cases of usage drift.
pub struct DriftDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    threshold: DriftThreshold,
}

impl DriftDesk {
    /// A desk over `store` that tells of differences from `threshold` on.
    pub const fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        threshold: DriftThreshold,
    ) -> Self {
        Self {
            store,
            environment,
            threshold,
        }
    }

    /// Measures yesterday and today, judges what was imported, and looks whether older drifts are over.
    ///
    /// # Errors
    /// When the store does not answer; the next pass does it again.
    pub async fn reconcile(&self) -> Result<DriftSweep, AppError> {
        let mut pass = Pass::begin(self).await?;
        for import in self.store.list_pending_drift_imports(PENDING).await? {
            // An invoice of a day that was still running has spoken when it was imported.
            if is_final(&import) {
                pass.judge(&import).await?;
            }
            self.mark(&import, pass.now).await?;
        }
        pass.measure_losses().await?;
        pass.close_old().await?;
        if pass.done != DriftSweep::default() {
            let DriftSweep { detected, resolved } = pass.done;
            tracing::warn!(detected, resolved, "workspaces were told of usage drift");
        }
        Ok(pass.done)
    }

    /// Notes that `import` was judged, once nothing of its day changes any more.
    async fn mark(&self, import: &DriftImport, now: Timestamp) -> Result<(), AppError> {
        if !is_final(import) || now >= import.day.end().plus_millis(SETTLED_MS) {
            self.store.mark_drift_import(import, now).await?;
        }
        Ok(())
    }
}

/// Whether the day was over when it was imported: only then does it say what the whole day cost.
fn is_final(import: &DriftImport) -> bool {
    import.day.is_over(import.imported_at)
}

fn too_large() -> AppError {
    AppError::internal(&"the cost of a day does not fit the ledger")
}

fn add(sum: Micros, more: Micros) -> Result<Micros, AppError> {
    sum.checked_add(more).ok_or_else(too_large)
}
