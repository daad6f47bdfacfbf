//! Jobs: what a crash left is finished, what has expired is forgotten, prices are kept fresh.
//!
//! Each job is idempotent and needs no input: it may run twice, late, or on two nodes at once.

use std::sync::Arc;

use turnpike_core::ledger::Action;
use turnpike_core::time::Timestamp;
use turnpike_store::{OpenCalls, SubmitError};

use crate::engine::Engine;
use crate::error::AppError;

/// Calls that one sweep looks at.
const SWEEP_LIMIT: u32 = 10_000;
/// Bodies that one step forgets.
const PRUNE_LIMIT: u32 = 500;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Calls that were ended.
    pub expired: u64,
    /// Calls that were left for the next sweep.
    pub left: u64,
}

/// Ends calls that nobody works on any more: on an embedded store every open call that is not running in
/// this process, on a shared one those of this process and those past their deadline.
///
/// # Errors
/// When the store cannot be read.
pub async fn sweep(engine: &Arc<Engine>) -> Result<Swept, AppError> {
    let now = engine.environment.now();
    let deadline_before = if engine.store.is_shared() {
        now
    } else {
        Timestamp::from_millis(i64::MAX)
    };
    let open = OpenCalls {
        of_instance: Some(engine.settings.instance),
        deadline_before,
        limit: SWEEP_LIMIT,
    };
    let mut swept = Swept::default();
    for (tenant, hold) in engine.store.list_open_calls(open).await? {
        if engine.is_live(hold.call.call) {
            continue;
        }
        match engine.submit(tenant, Action::Expire(hold.call.clone())).await {
            Ok(_) => {
                tracing::warn!(call = %hold.call.call, dispatched = hold.dispatched_at.is_some(), "an abandoned call was ended");
                swept.expired = swept.expired.saturating_add(1);
            }
            // It ended by itself between the read and the command.
            Err(SubmitError::Rejected(_)) => {}
            Err(error) => {
                tracing::warn!(call = %hold.call.call, %error, "an abandoned call was left for later");
                swept.left = swept.left.saturating_add(1);
            }
        }
    }
    Ok(swept)
}

/// Forgets the bodies of stored answers that have expired.
///
/// # Errors
/// When the store cannot be written.
pub async fn prune(engine: &Arc<Engine>) -> Result<u64, AppError> {
    let mut total: u64 = 0;
    loop {
        let pruned = engine
            .store
            .prune_outcomes(engine.environment.now(), PRUNE_LIMIT)
            .await?;
        total = total.saturating_add(pruned);
        if pruned < u64::from(PRUNE_LIMIT) {
            return Ok(total);
        }
    }
}
