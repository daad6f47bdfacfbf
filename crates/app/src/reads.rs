//! What callers read: balances, entries, usage, calls and their results, the models that are sold.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::CallId;
use turnpike_core::ledger::command::{OutcomeKind, StoredOutcome};
use turnpike_core::ledger::{Balance, Hold, HoldState, Payer, Transfer};
use turnpike_core::money::{Credits, CreditsPerDollar};
use turnpike_store::{EntryFilter, Store, Tenant, UsageFilter, UsageGroup, UsageRow};

use crate::auth::{Actor, ActorCredential};
use crate::catalogue::Callable;
use crate::error::AppError;
use crate::providers::Shelf;

/// Most bytes of a result in one page.
pub const MAX_RESULT_PAGE: usize = 1024 * 1024;

/// A balance as it is shown (decisions, section 7).
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BalanceView {
    /// Settled balance in dollars.
    pub usd: String,
    /// Settled balance in credits.
    pub credits: String,
    /// What a new call may use.
    pub available_usd: String,
    /// Set aside by running calls.
    pub reserved_usd: String,
    /// Credits in a dollar.
    pub credits_per_dollar: i64,
}

impl BalanceView {
    /// `balance` at a tenant's rate.
    pub fn new(balance: Balance, rate: CreditsPerDollar) -> Self {
        Self {
            usd: balance.posted.to_string(),
            credits: rate.credits(balance.posted).to_string(),
            available_usd: balance.available().to_string(),
            reserved_usd: balance.held.to_string(),
            credits_per_dollar: rate.get(),
        }
    }

    /// The members of a document that shows it.
    pub fn members(&self) -> Value {
        json!({
            "usd": self.usd,
            "credits": self.credits,
            "availableUsd": self.available_usd,
            "reservedUsd": self.reserved_usd,
            "denomination": { "creditsPerDollar": self.credits_per_dollar },
        })
    }
}

/// One page of entries.
#[derive(Clone, Debug)]
pub struct EntryPage {
    /// The entries, newest first.
    pub entries: Vec<Value>,
    /// Where the next page begins; `None` = this is the last.
    pub next_cursor: Option<String>,
}

/// Reads for one service.
pub struct Reader {
    store: Arc<dyn Store>,
    shelf: Arc<Shelf>,
}

impl Reader {
    /// Reads from `store`.
    pub const fn new(store: Arc<dyn Store>, shelf: Arc<Shelf>) -> Self {
        Self { store, shelf }
    }

    /// A payer's balance.
    ///
    /// # Errors
    /// `END_USER_NOT_FOUND`.
    pub async fn balance(&self, actor: &Actor, payer: &Payer) -> Result<BalanceView, AppError> {
        let tenant = &actor.tenant;
        if let Payer::EndUser(id) = payer
            && self.store.find_end_user(tenant.id, id).await?.is_none()
        {
            return Err(AppError::new(
                ErrorCode::EndUserNotFound,
                "there is no such end user",
            ));
        }
        let account = self
            .store
            .find_account(&payer.account(tenant.id))
            .await?
            .unwrap_or_default();
        Ok(BalanceView::new(account.balance(), tenant.credits_per_dollar))
    }

    /// A page of the tenant's or one payer's entries.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub async fn entries(
        &self,
        actor: &Actor,
        payer: Option<Payer>,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<EntryPage, AppError> {
        let before_seq = match cursor {
            None => None,
            Some(text) => Some(text.parse::<i64>().ok().filter(|seq| *seq > 0).ok_or_else(|| {
                AppError::new(
                    ErrorCode::CursorInvalid,
                    "the cursor is none that this list gave out",
                )
            })?),
        };
        let filter = EntryFilter {
            payer,
            before_seq,
            limit: limit.saturating_add(1),
        };
        let mut transfers = self.store.list_transfers(actor.tenant.id, &filter).await?;
        let more = transfers.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        transfers.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let next_cursor = transfers.last().filter(|_| more).map(|last| last.seq.to_string());
        let entries = transfers
            .iter()
            .map(|transfer| entry(&actor.tenant, filter.payer.as_ref(), transfer))
            .collect();
        Ok(EntryPage { entries, next_cursor })
    }

    /// Usage by group.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn usage(
        &self,
        actor: &Actor,
        group: UsageGroup,
        filter: &UsageFilter,
    ) -> Result<Vec<Value>, AppError> {
        let rows = self.store.usage(actor.tenant.id, group, filter).await?;
        Ok(rows.iter().map(|row| usage(&actor.tenant, group, row)).collect())
    }

    /// A call's record.
    ///
    /// # Errors
    /// `NOT_FOUND`, also for another tenant's call.
    pub async fn call(&self, actor: &Actor, call: CallId) -> Result<Value, AppError> {
        let hold = self.find_call(actor, call).await?;
        let mut view = call_view(&actor.tenant, &hold);
        let is_end_users = hold.call.payer != Payer::Pool && actor.agent().is_some();
        if let (true, Some(members)) = (is_end_users, view.as_object_mut()) {
            // The workspace's margin and what it rests on are not its end users'.
            members.retain(|name, _| !matches!(name.as_str(), "marginUsd" | "price"));
        }
        Ok(view)
    }

    async fn find_call(&self, actor: &Actor, call: CallId) -> Result<Hold, AppError> {
        let found = self.store.find_call(actor.tenant.id, call).await?;
        // To an agent connection there are no calls but its own, to an end user none but those that it paid for.
        let own = |hold: &Hold| match &actor.credential {
            ActorCredential::Agent(agent) => hold.call.token == Some(agent.id),
            ActorCredential::EndUser(user) => hold.call.payer == Payer::EndUser(user.id.clone()),
            ActorCredential::Key(_) | ActorCredential::Member { .. } => true,
        };
        let found = found.filter(own);
        found.ok_or_else(|| AppError::new(ErrorCode::NotFound, "there is no such call"))
    }

    /// A part of a call's stored answer, and the answer's whole length.
    ///
    /// # Errors
    /// `NOT_FOUND`, `IDEMPOTENCY_IN_PROGRESS`, `RESULT_EXPIRED`.
    pub async fn result(
        &self,
        actor: &Actor,
        call: CallId,
        offset: usize,
        limit: usize,
    ) -> Result<(Bytes, usize, OutcomeKind), AppError> {
        let hold = self.find_call(actor, call).await?;
        if !hold.is_finished() {
            return Err(
                AppError::new(ErrorCode::IdempotencyInProgress, "the call is still running").retry_after(1),
            );
        }
        let outcome = self.store.find_outcome(actor.tenant.id, call).await?;
        let Some(StoredOutcome {
            kind,
            body: Some(body),
            ..
        }) = outcome
        else {
            return Err(AppError::new(
                ErrorCode::ResultExpired,
                "the answer is not kept, or not any more",
            ));
        };
        let end = offset.saturating_add(limit.min(MAX_RESULT_PAGE)).min(body.len());
        Ok((body.slice(offset.min(end)..end), body.len(), kind))
    }

    /// The models that the caller may call, as an OpenAI list with prices.
    pub fn models(&self, actor: &Actor) -> Value {
        let callable = Callable::of(actor);
        let data: Vec<Value> = self
            .shelf
            .offers()
            .iter()
            .filter(|offer| {
                let provider = offer.entry.provider.id();
                callable.allows(provider, &format!("{provider}/{}", offer.model))
            })
            .map(|offer| {
                let price = &offer.priced.price;
                let mut model = json!({
                    "id": offer.model,
                    "object": "model",
                    "created": 0,
                    "owned_by": offer.entry.provider.id(),
                    "pricing": price.rates,
                    "context_length": price.context_length,
                    "max_output_tokens": price.max_output_tokens,
                });
                if price.reasoning
                    && let (Some(members), Some(minimum)) =
                        (model.as_object_mut(), price.recommended_min_output_tokens)
                {
                    members.insert("recommendedMinOutputTokens".to_owned(), json!(minimum));
                }
                model
            })
            .collect();
        json!({ "object": "list", "data": data })
    }
}

fn entry(tenant: &Tenant, payer: Option<&Payer>, transfer: &Transfer) -> Value {
    // Seen from the payer when one was asked for, else from the account that customers know.
    let own = payer.map(|payer| payer.account(tenant.id));
    let credited = match &own {
        Some(own) => transfer.credit == *own,
        None => transfer.credit.is_spendable() && !transfer.debit.is_spendable(),
    };
    let (account, after) = if credited {
        (&transfer.credit, transfer.credit_after)
    } else {
        (&transfer.debit, transfer.debit_after)
    };
    let sign = if credited { "" } else { "-" };
    let rate = tenant.credits_per_dollar;
    let attribution: Option<Value> = transfer
        .attribution
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    json!({
        "id": transfer.id,
        "sequence": transfer.seq.to_string(),
        "type": transfer.cause,
        "account": account.to_string(),
        "debitAccount": transfer.debit.to_string(),
        "creditAccount": transfer.credit.to_string(),
        "externalUserId": account.owner.as_ref().map(turnpike_core::ids::ExternalUserId::as_str),
        "amountUsd": format!("{sign}{}", transfer.amount),
        "amountCredits": format!("{sign}{}", rate.credits(transfer.amount)),
        "balanceUsd": after.to_string(),
        "callId": transfer.call,
        "reference": transfer.reference,
        "attribution": attribution,
        "createdAt": transfer.created_at,
    })
}

fn usage(tenant: &Tenant, group: UsageGroup, row: &UsageRow) -> Value {
    let credits: Credits = tenant.credits_per_dollar.credits(row.charged);
    let label = match group {
        UsageGroup::Day => row.group.parse::<i64>().ok().map_or(Value::Null, |day| {
            let start =
                turnpike_core::time::Timestamp::from_millis(day.saturating_mul(86_400_000)).to_string();
            json!(start.get(..10))
        }),
        UsageGroup::Model | UsageGroup::Endpoint | UsageGroup::Provider | UsageGroup::EndUser => {
            if row.group.is_empty() {
                Value::Null
            } else {
                json!(row.group)
            }
        }
    };
    json!({
        "group": label,
        "calls": row.calls,
        "failedCalls": row.failed_calls,
        "chargedUsd": row.charged,
        "chargedCredits": credits,
        "marginUsd": row.margin,
        "promptTokens": row.prompt_tokens,
        "completionTokens": row.completion_tokens,
    })
}

/// What a call's record shows.
fn call_view(tenant: &Tenant, hold: &Hold) -> Value {
    let status = match (hold.state, hold.is_finished(), hold.failure.is_some()) {
        (HoldState::Held, _, _) => "running",
        (HoldState::Captured, false, _) => "streaming",
        (HoldState::Captured, true, false) => "completed",
        (HoldState::Captured, true, true) => "interrupted",
        (HoldState::Released | HoldState::Expired, _, _) => "failed",
    };
    let rate = tenant.credits_per_dollar;
    let net = hold.charged.saturating_sub_zero(hold.refunded);
    let attribution: Option<Value> = hold
        .subject
        .attribution
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    json!({
        "callId": hold.call.call,
        "status": status,
        "provider": hold.subject.provider,
        "endpoint": hold.subject.endpoint,
        "model": hold.subject.model,
        "streamed": hold.subject.streamed,
        "externalUserId": hold.call.payer.external_user_id().map(turnpike_core::ids::ExternalUserId::as_str),
        "idempotencyKey": hold.call.claim.as_ref().map(|claim| &*claim.key),
        "reservedUsd": hold.amount,
        "chargedUsd": hold.charged,
        "refundedUsd": hold.refunded,
        "costUsd": net,
        "costCredits": rate.credits(net),
        "marginUsd": hold.margin,
        "usage": hold.usage,
        "price": serde_json::from_str::<Value>(&hold.subject.price).unwrap_or_default(),
        "attribution": attribution,
        "failure": hold.failure,
        "attempts": [{
            "provider": hold.subject.provider,
            "dispatchedAt": hold.dispatched_at,
            "finishedAt": hold.finished_at,
            "outcome": status,
        }],
        "createdAt": hold.created_at,
        "finishedAt": hold.finished_at,
    })
}
