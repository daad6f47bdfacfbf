//! What a crash or a silent facilitator left: calls without an answer are ended, settlements are found out.
//!
//! Idempotent and without input: it may run twice, late, or on two nodes at once. A lease decides who goes on.

use turnpike_core::ids::TenantId;
use turnpike_core::ledger::Action;
use turnpike_core::ledger::paid_call::{PaidCall, PaidCallState, SettlementProgress};
use turnpike_core::time::Timestamp;
use turnpike_store::{DuePaidCalls, Store, SubmitError};

use super::receipt::receipt_id;
use super::{PaidCallDesk, work};
use crate::engine::LiveGuard;
use crate::error::AppError;

/// Calls that one sweep looks at.
const SWEEP_LIMIT: u32 = 200;
/// How many of them are worked on at once.
const AT_ONCE: usize = 16;

/// When a settlement on a network that is not configured any more is looked at again.
const FOREIGN_PAUSE_MS: i64 = 3_600_000;

/// Further away than anything that is due.
pub(super) const A_YEAR_MS: i64 = 365 * 86_400_000;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaidSweep {
    /// Calls that were looked at.
    pub looked_at: u64,
    /// Calls that are over now.
    pub ended: u64,
    /// Calls that a later sweep has to look at.
    pub left: u64,
}

/// Warns of paid calls that are open and that nobody here can end: in other books than those of `house`.
///
/// # Errors
/// When the store cannot be read.
pub async fn warn_of_strangers(
    store: &dyn Store,
    house: Option<TenantId>,
    now: Timestamp,
) -> Result<(), AppError> {
    let open = DuePaidCalls {
        due_by: now.plus_millis(A_YEAR_MS),
        answered: true,
        not_of_instance: None,
        of_instance: None,
        limit: SWEEP_LIMIT,
    };
    let open = store.list_due_paid_calls(open).await?;
    let strangers = open.iter().filter(|(tenant, _)| Some(*tenant) != house).count();
    if strangers > 0 {
        tracing::error!(
            strangers,
            "settlements are open that began under other settings of [payments]: they wait until those are back"
        );
    }
    Ok(())
}

impl PaidCallDesk {
    /// Ends the paid calls that have no answer and that nobody works on: those of this process, on an embedded store also
    /// those of earlier ones, on a shared one those that are due.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn sweep_abandoned(&self) -> Result<PaidSweep, AppError> {
        self.sweep(false).await
    }

    /// Goes on with the settlements that nobody works on: on an embedded store with those of earlier processes at once,
    /// else with those that are due.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn sweep_settlements(&self) -> Result<PaidSweep, AppError> {
        self.sweep(true).await
    }

    async fn sweep(&self, answered: bool) -> Result<PaidSweep, AppError> {
        let engine = &self.parts.engine;
        let instance = engine.settings.instance;
        let due = DuePaidCalls {
            due_by: self.now(),
            answered,
            not_of_instance: (!engine.store.is_shared()).then_some(instance),
            of_instance: (!answered).then_some(instance),
            limit: SWEEP_LIMIT,
        };
        let mut sweep = PaidSweep::default();
        let due = engine.store.list_due_paid_calls(due).await?;
        let mut waiting = due
            .into_iter()
            .filter(|(_, call)| !engine.is_live(work::call_id(call.id)));
        let mut running = tokio::task::JoinSet::new();
        loop {
            while running.len() < AT_ONCE
                && let Some((tenant, call)) = waiting.next()
            {
                let desk = self.clone();
                running.spawn(async move { desk.go_on(tenant, call).await });
            }
            let Some(ended) = running.join_next().await else {
                return Ok(sweep);
            };
            sweep.looked_at = sweep.looked_at.saturating_add(1);
            if matches!(ended, Ok(true)) {
                sweep.ended = sweep.ended.saturating_add(1);
            } else {
                sweep.left = sweep.left.saturating_add(1);
            }
        }
    }

    /// Goes on with a call; says whether it is over now.
    async fn go_on(&self, tenant: TenantId, call: PaidCall) -> bool {
        let _live = LiveGuard::new(&self.parts.engine, work::call_id(call.id));
        let receipt = receipt_id(&call);
        let result = match call.state {
            PaidCallState::Claimed | PaidCallState::Dispatched => {
                let abandon = Action::AbandonPaidCall(call.reference());
                match self.parts.engine.submit(tenant, abandon).await {
                    Ok(_) => {
                        tracing::warn!(%receipt, state = %call.state, "an abandoned paid call was ended");
                        Ok(true)
                    }
                    // It went on by itself between the read and the command.
                    Err(SubmitError::Rejected(_)) => Ok(true),
                    Err(error) => Err(error.to_string()),
                }
            }
            PaidCallState::Settling | PaidCallState::Refused => self.find_out(tenant, &call).await,
            PaidCallState::Settled | PaidCallState::Failed => Ok(true),
        };
        result.unwrap_or_else(|error| {
            tracing::warn!(%receipt, error, "a paid call was left for later");
            false
        })
    }

    async fn find_out(&self, tenant: TenantId, call: &PaidCall) -> Result<bool, String> {
        let leased = self
            .lease(tenant, call)
            .await
            .map_err(|error| error.to_string())?;
        let Some(call) = leased else { return Ok(true) };
        if tenant != self.parts.house {
            // The facilitator and the chain that are configured now know nothing of it.
            let receipt = receipt_id(&call);
            tracing::error!(%receipt, network = %call.payment.network, "a settlement waits for the network that it began on");
            let due_at = self.now().plus_millis(FOREIGN_PAUSE_MS);
            let later = SettlementProgress::Unknown { due_at };
            let reported = self.report(tenant, &call, later).await;
            return reported.map(|_call| false).map_err(|error| error.to_string());
        }
        let call = self
            .resolve(tenant, call)
            .await
            .map_err(|error| error.to_string())?;
        Ok(!call.state.is_open())
    }
}
