//! A workspace's end users: who they are, what they have, what they may, and how they leave.
//!
//! Each change is one command of the ledger, which writes the audit row with it. What is read is read from the
//! store, never from memory.

mod limits;
mod minting;

pub(crate) use minting::narrowed;

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CallId, CommandId, ExternalUserId, TenantId};
use turnpike_core::ledger::command::{AuditNote, Move, MoveReceipt, Retire, SetFrozen};
use turnpike_core::ledger::policy::EndUser;
use turnpike_core::ledger::{Account, AccountStatus, Action, Command, Outcome, Payer};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_store::{EndUserFilter, Store, Tenant};
use uuid::Uuid;

use crate::auth::Actor;
use crate::context::claim;
use crate::environment::Environment;
use crate::error::AppError;
use crate::fields::Fields;
use crate::limits::RateLimits;
use crate::reads::BalanceView;
use crate::tokens::KeyVault;

/// Longest text that ids are searched for.
const MAX_SEARCH: usize = 200;
/// Longest reference of a move.
const MAX_REFERENCE: usize = 200;
/// Longest reason for a freeze.
const MAX_REASON: usize = 500;

/// The use cases of end users.
pub struct EndUserDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    vault: Arc<KeyVault>,
    mints: RateLimits<(TenantId, ExternalUserId)>,
}

/// Which way credits go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the pool to the end user.
    Allocate,
    /// Back.
    Deallocate,
}

impl Direction {
    /// The last part of its path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Deallocate => "deallocate",
        }
    }
}

/// What was moved, and whether an earlier request did it.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The body of the answer, the same for every repeat.
    pub body: Value,
    /// Whether this is a repeat.
    pub replayed: bool,
}

/// One page of end users.
#[derive(Clone, Debug)]
pub struct EndUserPage {
    /// By id.
    pub users: Vec<Value>,
    /// Where the next page begins; `None` = this is the last.
    pub next_cursor: Option<String>,
}

/// What the audit log says of a change.
struct Note {
    action: &'static str,
    target: Arc<str>,
    after: Option<Arc<str>>,
}

impl Note {
    fn new(action: &'static str, target: &str) -> Self {
        Self {
            action,
            target: target.into(),
            after: None,
        }
    }

    fn after(mut self, after: &Value) -> Self {
        self.after = Some(after.to_string().into());
        self
    }
}

impl EndUserDesk {
    /// A desk that mints at most `mints_per_minute` tokens for one end user; 0 = unlimited.
    pub fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        vault: Arc<KeyVault>,
        mints_per_minute: u32,
    ) -> Self {
        Self {
            store,
            environment,
            vault,
            mints: RateLimits::new(0, 0, mints_per_minute, 0),
        }
    }

    /// Forgets rate limits that are full again.
    pub fn tidy(&self) {
        self.mints.tidy();
    }

    async fn submit(&self, actor: &Actor, action: Action, note: Note) -> Result<Outcome, AppError> {
        let tenant = &actor.tenant;
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant: tenant.id,
            at: self.environment.now(),
            action,
            note: Some(Arc::new(AuditNote {
                actor: actor.label().into(),
                action: note.action,
                target: note.target,
                before: None,
                after: note.after,
                origin: actor.origin.clone(),
            })),
        };
        self.store
            .submit(command)
            .await
            .map_err(|error| AppError::from_submit(&error, tenant.credits_per_dollar))
    }

    async fn find(&self, actor: &Actor, id: &ExternalUserId) -> Result<EndUser, AppError> {
        let found = self.store.find_end_user(actor.tenant.id, id).await?;
        found.ok_or_else(not_found)
    }

    async fn account(&self, actor: &Actor, id: &ExternalUserId) -> Result<Account, AppError> {
        let key = Payer::EndUser(id.clone()).account(actor.tenant.id);
        Ok(self.store.find_account(&key).await?.unwrap_or_default())
    }

    /// A page of the workspace's end users, by id; only those whose id contains `search`.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `CURSOR_INVALID`.
    pub async fn list(
        &self,
        actor: &Actor,
        search: Option<String>,
        cursor: Option<String>,
        limit: u32,
    ) -> Result<EndUserPage, AppError> {
        if let Some(text) = &search
            && (text.chars().count() > MAX_SEARCH || text.chars().any(char::is_control))
        {
            let message = format!("must be at most {MAX_SEARCH} characters without control characters");
            return Err(AppError::invalid("q", message));
        }
        if let Some(cursor) = &cursor
            && ExternalUserId::parse(cursor).is_err()
        {
            return Err(AppError::new(
                ErrorCode::CursorInvalid,
                "the cursor is none that this list gave out",
            ));
        }
        let filter = EndUserFilter {
            contains: search,
            after: cursor,
            limit: limit.saturating_add(1),
        };
        let mut rows = self.store.list_end_users(actor.tenant.id, &filter).await?;
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > most;
        rows.truncate(most);
        let next_cursor = rows.last().filter(|_| more).map(|(user, _)| user.id.to_string());
        let users = rows
            .iter()
            .map(|(user, account)| user_view(&actor.tenant, user, account))
            .collect();
        Ok(EndUserPage { users, next_cursor })
    }

    /// An end user with balance and limits.
    ///
    /// # Errors
    /// `END_USER_NOT_FOUND`.
    pub async fn get(&self, actor: &Actor, id: &ExternalUserId) -> Result<Value, AppError> {
        let user = self.find(actor, id).await?;
        let mut view = user_view(&actor.tenant, &user, &self.account(actor, id).await?);
        if let Some(members) = view.as_object_mut() {
            members.insert("success".to_owned(), json!(true));
            let policy = limits::view(&user.policy, actor.tenant.credits_per_dollar);
            members.insert("policy".to_owned(), policy);
        }
        Ok(view)
    }

    /// Moves credits between the pool and an end user, once for each idempotency key.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `INSUFFICIENT_CREDITS`, `TENANT_SUSPENDED`, `ACCOUNT_FROZEN`,
    /// `END_USER_RETIRED`, `END_USER_NOT_FOUND`, `IDEMPOTENCY_KEY_CONFLICT`, `RESULT_EXPIRED`.
    pub async fn move_credits(
        &self,
        actor: &Actor,
        id: &ExternalUserId,
        direction: Direction,
        key: Arc<str>,
        raw: &[u8],
    ) -> Result<Moved, AppError> {
        let mut fields = Fields::parse(raw, &["usd", "reference"])?;
        let amount = fields
            .usd("usd")?
            .filter(|amount| *amount > Micros::ZERO)
            .ok_or_else(|| AppError::invalid("usd", "must be a decimal string of more than zero"))?;
        let reference = fields.words("reference", 0..=MAX_REFERENCE)?.unwrap_or_default();
        let tenant = &actor.tenant;
        // The decoded id, so that one end user has one namespace however the path was written.
        let route = format!("POST /api/credits/end-users/{id}/{}", direction.as_str());
        let note = match direction {
            Direction::Allocate => Note::new("credits.allocate", id.as_str()),
            Direction::Deallocate => Note::new("credits.deallocate", id.as_str()),
        };
        let note = note.after(&json!({ "usd": amount, "reference": reference }));
        let action = Action::Move(Move {
            end_user: id.clone(),
            to_end_user: direction == Direction::Allocate,
            amount,
            reference: reference.into(),
            claim: Some(claim(tenant.id, &Payer::Pool, &route, raw, key)),
        });
        let done = self.submit(actor, action, note).await.map_err(about_a_move)?;
        let (receipt, replayed) = if let Outcome::Moved(receipt) = done {
            (receipt, false)
        } else if let Outcome::Existing(subject) = done {
            (self.stored_receipt(actor, subject).await?, true)
        } else {
            return Err(unexpected(&done));
        };
        let rate = tenant.credits_per_dollar;
        let body = json!({
            "success": true,
            "externalUserId": id,
            "amountUsd": receipt.amount,
            "entryId": receipt.transfer,
            "pool": BalanceView::new(receipt.pool, rate).members(),
            "endUser": BalanceView::new(receipt.end_user, rate).members(),
        });
        Ok(Moved { body, replayed })
    }

    async fn stored_receipt(&self, actor: &Actor, subject: Uuid) -> Result<MoveReceipt, AppError> {
        let now = self.environment.now();
        let outcome = self.store.find_outcome(actor.tenant.id, CallId(subject)).await?;
        let body = outcome
            .filter(|outcome| outcome.expires_at > now)
            .and_then(|outcome| outcome.body)
            .ok_or_else(|| {
                let message = "the credits were moved; the answer is no longer kept";
                AppError::new(ErrorCode::ResultExpired, message)
            })?;
        serde_json::from_slice(&body).map_err(|error| AppError::internal(&error))
    }

    /// Freezes an end user's balance, or frees it whatever froze it; says whether that changed anything.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `TENANT_SUSPENDED`, `END_USER_NOT_FOUND`, `END_USER_RETIRED`.
    pub async fn set_frozen(
        &self,
        actor: &Actor,
        id: &ExternalUserId,
        frozen: bool,
        raw: &[u8],
    ) -> Result<bool, AppError> {
        let mut fields = Fields::parse(raw, &["reason"])?;
        let reason = fields.words("reason", 0..=MAX_REASON)?.unwrap_or_default();
        let action = if frozen {
            "end_user.freeze"
        } else {
            "end_user.unfreeze"
        };
        let note = Note::new(action, id.as_str()).after(&json!({ "frozen": frozen, "reason": reason }));
        let change = SetFrozen {
            payer: Payer::EndUser(id.clone()),
            frozen,
            reason: reason.into(),
        };
        let done = self.submit(actor, Action::SetFrozen(change), note).await?;
        let Outcome::Frozen(changed) = done else {
            return Err(unexpected(&done));
        };
        Ok(changed)
    }

    /// Retires an end user for good: only when nothing is left and nothing is open (specification 2.10, 3).
    ///
    /// # Errors
    /// `TENANT_SUSPENDED`, `END_USER_NOT_FOUND`, `END_USER_NOT_RETIRABLE`.
    pub async fn retire(&self, actor: &Actor, id: &ExternalUserId) -> Result<Value, AppError> {
        let note = Note::new("end_user.retire", id.as_str());
        let retire = Retire { end_user: id.clone() };
        let done = self.submit(actor, Action::Retire(retire), note).await?;
        let Outcome::Retired {
            already,
            revoked_tokens,
            canceled_approvals,
            revoked_agents,
            policy_reset,
        } = done
        else {
            return Err(unexpected(&done));
        };
        Ok(json!({
            "success": true,
            "externalUserId": id,
            "retired": true,
            "alreadyRetired": already,
            "accountId": Payer::EndUser(id.clone()).account(actor.tenant.id).id(),
            "revokedTokens": revoked_tokens,
            "revokedAgentConnections": revoked_agents,
            "canceledApprovals": canceled_approvals,
            "policyReset": policy_reset,
        }))
    }
}

fn not_found() -> AppError {
    AppError::new(ErrorCode::EndUserNotFound, "there is no such end user")
}

/// A move needs other advice than a call.
fn about_a_move(mut error: AppError) -> AppError {
    if error.code == ErrorCode::InsufficientCredits {
        "the available balance does not cover this move".clone_into(&mut error.message);
        error.members.insert(
            "hint".to_owned(),
            json!("add credits, or wait for running calls to settle"),
        );
    }
    error
}

fn unexpected(outcome: &Outcome) -> AppError {
    AppError::internal(&format!("a command was answered by another outcome: {outcome:?}"))
}

/// `retired`, `frozen` or `active`.
fn status(user: &EndUser, account: AccountStatus) -> &'static str {
    match (user.retired, account) {
        (true, _) | (false, AccountStatus::Retired) => "retired",
        (false, AccountStatus::Frozen) => "frozen",
        (false, AccountStatus::Active) => "active",
    }
}

fn user_view(tenant: &Tenant, user: &EndUser, account: &Account) -> Value {
    let rate: CreditsPerDollar = tenant.credits_per_dollar;
    json!({
        "externalUserId": user.id,
        "status": status(user, account.status),
        "usd": account.posted,
        "credits": rate.credits(account.posted),
        "availableUsd": account.available(),
        "reservedUsd": account.held,
        "createdAt": user.created_at,
    })
}
