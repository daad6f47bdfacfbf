//! What the operator does about payouts: sends those to addresses on chains, and says what became of them.

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CommandId, PayoutId, TenantId};
use turnpike_core::ledger::command::AuditNote;
use turnpike_core::ledger::payout::{Payout, PayoutProgress, PayoutReport, PayoutState};
use turnpike_core::ledger::{Action, Command, Outcome};
use turnpike_core::money::CreditsPerDollar;
use turnpike_store::Store;

use super::{is_by_processor, no_such_payout, view};
use crate::admin::checked_name;
use crate::environment::Environment;
use crate::error::AppError;

/// Most payouts that one list shows.
const MOST: u32 = 1000;
/// From this age on a payout by the processor that is still open is the operator's business: the processor has
/// forgotten the attempt, and nobody repeats it any more.
const FORGOTTEN_MS: i64 = 24 * 3_600_000;

/// The operator's desk of payouts.
pub(crate) struct OperatorPayouts<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) environment: &'a dyn Environment,
}

impl OperatorPayouts<'_> {
    /// A workspace's payouts, newest first, or all that are under way, oldest first; `more` when it was cut.
    pub(crate) async fn list(&self, tenant: Option<TenantId>) -> Result<Value, AppError> {
        let one_more = MOST.saturating_add(1);
        let payouts: Vec<Value> = if let Some(tenant) = tenant {
            let found = self.store.list_payouts(tenant, None, one_more).await?;
            found.iter().map(|payout| shown(tenant, payout)).collect()
        } else {
            let found = self.store.list_open_payouts(None, one_more).await?;
            found
                .iter()
                .map(|(tenant, payout)| shown(*tenant, payout))
                .collect()
        };
        Ok(cut(payouts))
    }

    /// Keeps a payout from being canceled while it is sent.
    pub(crate) async fn begin(
        &self,
        tenant: TenantId,
        id: PayoutId,
        origin: &str,
    ) -> Result<Value, AppError> {
        if is_by_processor(&self.find(tenant, id).await?) {
            return Err(by_processor());
        }
        let told = self.tell(tenant, id, "payout.begin", PayoutProgress::Begun, origin);
        ended_as(tenant, &told.await?, PayoutState::InTransit)
    }

    /// Says that a payout was sent, as `reference`.
    pub(crate) async fn settle(
        &self,
        tenant: TenantId,
        id: PayoutId,
        reference: &str,
        origin: &str,
    ) -> Result<Value, AppError> {
        checked_name("reference", reference, 255)?;
        self.for_the_operator(tenant, id).await?;
        let progress = PayoutProgress::Paid(reference.into());
        let payout = self.tell(tenant, id, "payout.settle", progress, origin).await?;
        if payout.state == PayoutState::Paid && payout.reference.as_deref() != Some(reference) {
            return Err(AppError::new(
                ErrorCode::AlreadyExists,
                "the payout is settled under another reference",
            ));
        }
        ended_as(tenant, &payout, PayoutState::Paid)
    }

    /// Says that a payout was not sent; its margin is back.
    pub(crate) async fn fail(
        &self,
        tenant: TenantId,
        id: PayoutId,
        reason: &str,
        origin: &str,
    ) -> Result<Value, AppError> {
        checked_name("reason", reason, 500)?;
        self.for_the_operator(tenant, id).await?;
        let progress = PayoutProgress::Failed(reason.into());
        let payout = self.tell(tenant, id, "payout.fail", progress, origin).await?;
        ended_as(tenant, &payout, PayoutState::Failed)
    }

    async fn find(&self, tenant: TenantId, id: PayoutId) -> Result<Payout, AppError> {
        let found = self.store.find_payout(tenant, id).await?;
        found.ok_or_else(no_such_payout)
    }

    /// Refuses a payout that the processor may still be asked to send.
    async fn for_the_operator(&self, tenant: TenantId, id: PayoutId) -> Result<(), AppError> {
        let payout = self.find(tenant, id).await?;
        let age = self.environment.now().since(payout.created_at);
        if is_by_processor(&payout) && age < FORGOTTEN_MS {
            return Err(by_processor());
        }
        Ok(())
    }

    async fn tell(
        &self,
        tenant: TenantId,
        payout: PayoutId,
        action: &'static str,
        progress: PayoutProgress,
        origin: &str,
    ) -> Result<Payout, AppError> {
        let note = AuditNote {
            actor: "operator".into(),
            action,
            target: payout.to_string().into(),
            before: None,
            after: None,
            origin: origin.into(),
        };
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant,
            at: self.environment.now(),
            action: Action::ReportPayout(PayoutReport { payout, progress }),
            note: Some(Arc::new(note)),
        };
        match self.store.submit(command).await {
            Ok(Outcome::Payout { payout, .. }) => Ok(*payout),
            Ok(_) => Err(AppError::internal(&"a payout was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, CreditsPerDollar::default())),
        }
    }
}

/// A list of at most [`MOST`] payouts.
fn cut(mut payouts: Vec<Value>) -> Value {
    let most = usize::try_from(MOST).unwrap_or(usize::MAX);
    let more = payouts.len() > most;
    payouts.truncate(most);
    json!({ "payouts": payouts, "more": more })
}

fn by_processor() -> AppError {
    AppError::new(
        ErrorCode::ValidationError,
        "the processor sends this payout; only a day later an open one is the operator's",
    )
}

/// The payout, when it is where it was meant to be.
fn ended_as(tenant: TenantId, payout: &Payout, wanted: PayoutState) -> Result<Value, AppError> {
    if payout.state == wanted {
        return Ok(shown(tenant, payout));
    }
    let message = format!("the payout is {} already; nothing was changed", payout.state);
    Err(AppError::new(ErrorCode::ValidationError, message))
}

fn shown(tenant: TenantId, payout: &Payout) -> Value {
    let mut shown = view::payout_view(payout);
    if let Some(members) = shown.as_object_mut() {
        members.insert("tenantId".to_owned(), json!(tenant));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_cut_says_so() {
        for (found, shown, more) in [(0, 0, false), (1000, 1000, false), (1001, 1000, true)] {
            let list = cut(vec![Value::Null; found]);
            assert_eq!(list["payouts"].as_array().unwrap().len(), shown);
            assert_eq!(list["more"], more);
        }
    }
}
