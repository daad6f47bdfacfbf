//! Estimates: what a call of a tool costs, with a quote that binds the price for a while.
//!
//! An estimate costs nothing. The rule: a call that is made with a quote is the call that was quoted, is made once, and
//! never costs more; that is decided in the command that takes the hold.

pub(crate) mod canonical;
pub(crate) mod request;
mod token;

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use turnpike_core::access::{AgentScope, KeyKind};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CommandId, QuoteId};
use turnpike_core::ledger::quote::{
    CallAuthority, CancelQuote, Quote, QuoteKind, QuoteRefusal, QuoteState, QuoteUse, QuotedCall,
};
use turnpike_core::ledger::{Action, Command, Outcome};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::pricing::{Charge, charge};
use turnpike_store::Store;

use self::canonical::args_hash;
use self::request::EstimateRequest;
use crate::catalogue::Callable;
use crate::context::{CallContext, markup};
use crate::environment::Environment;
use crate::error::AppError;
use crate::providers::Shelf;
use crate::tools::{ToolCaller, ToolEntry, ToolPrice, price_tool};

/// How long a quote that nobody used is remembered: an hour.
pub const KEPT_MS: i64 = 3_600_000;

/// The use cases of estimates.
pub struct QuoteDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    shelf: Arc<Shelf>,
}

/// A price, or why there is none.
enum Estimate {
    Priced(QuoteKind, Charge),
    Unavailable(Option<Charge>, String),
}

impl QuoteDesk {
    /// A desk for what is on `shelf`.
    pub const fn new(store: Arc<dyn Store>, environment: Arc<dyn Environment>, shelf: Arc<Shelf>) -> Self {
        Self {
            store,
            environment,
            shelf,
        }
    }

    async fn submit(&self, caller: &ToolCaller, action: Action) -> Result<Quote, AppError> {
        let tenant = &caller.actor.tenant;
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant: tenant.id,
            at: self.environment.now(),
            action,
            note: None,
        };
        match self.store.submit(command).await {
            Ok(Outcome::Quote { quote, .. }) => Ok(*quote),
            Ok(_) => Err(AppError::internal(&"a quote was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, tenant.credits_per_dollar)),
        }
    }

    /// Says what a call would cost, and keeps the price for a while.
    ///
    /// # Errors
    /// `UNKNOWN_FIELD`, `VALIDATION_ERROR`, `ENDPOINT_NOT_FOUND`, `ENDPOINT_DISABLED`, `POLICY_DENIED`,
    /// `END_USER_NOT_FOUND`, `END_USER_RETIRED`, `TENANT_SUSPENDED`, and what refuses a credential.
    pub async fn estimate(&self, caller: &ToolCaller, raw: &[u8]) -> Result<Value, AppError> {
        // To be told a price is to read, for whom that is a scope of its own.
        let key = match caller.actor.agent() {
            Some(_) => caller
                .actor
                .require_agent(AgentScope::Read)
                .map(|_session| None)?,
            None => caller.actor.require_caller()?.map(AsRef::as_ref),
        };
        let tenant = &caller.actor.tenant;
        let rate = tenant.credits_per_dollar;
        let asked = EstimateRequest::parse(raw, rate)?;
        let payer = asked.payer(caller)?;
        let (entry, tool) = self.shelf.tool(&asked.provider, &asked.endpoint)?;
        let slug = format!("{}/{}", asked.provider, asked.endpoint);
        Callable::of(&caller.actor).require(&asked.provider, &slug)?;
        let args = tool.checked(asked.args).map_err(within_args)?;
        let is_sandbox = key.is_some_and(|key| key.kind == KeyKind::Sandbox);
        let markup = markup(&caller.actor, &payer, key, &asked.provider, &slug);
        let price = if is_sandbox && tool.is_live() {
            // A sandbox key opens no socket.
            Err(AppError::new(
                ErrorCode::PriceUnavailable,
                "the provider says this price with each call, and is not asked for a sandbox key",
            ))
        } else {
            price_tool(&entry, &asked.endpoint, &tool, &args).await
        };
        let estimate = match price {
            Ok(ToolPrice::Exact { base, .. }) => Estimate::Priced(QuoteKind::Exact, charge(base, &markup)?),
            Ok(ToolPrice::Ceiling(base)) => Estimate::Priced(QuoteKind::Ceiling, charge(base, &markup)?),
            Err(error) if error.code == ErrorCode::PriceUnavailable => {
                Estimate::Unavailable(None, error.message)
            }
            Err(error) => return Err(error),
        };
        let estimate = match estimate {
            Estimate::Priced(_, charge) if asked.max_charge.is_some_and(|max| charge.effective > max) => {
                let reason = "the price is above maxChargeCredits".to_owned();
                Estimate::Unavailable(Some(charge), reason)
            }
            estimate @ (Estimate::Priced(..) | Estimate::Unavailable(..)) => estimate,
        };
        let (kind, charge) = match estimate {
            Estimate::Priced(kind, charge) => (kind, charge),
            Estimate::Unavailable(charge, reason) => return Ok(unavailable(&slug, charge, rate, &reason)),
        };
        if is_sandbox {
            return Ok(
                json!({ "success": true, "estimate": shown(None, &slug, kind, &charge, rate, false) }),
            );
        }
        let id = QuoteId(self.environment.new_id());
        let token = token::make(id, &self.environment.random_32());
        let now = self.environment.now();
        let quote = Quote {
            id,
            owner: payer.external_user_id().cloned(),
            slug: slug.as_str().into(),
            revision: revision(&tool)?,
            args_hash: args_hash(&args),
            kind,
            charge,
            max_charge: asked.max_charge,
            token_hash: token::hash(&token),
            idempotency_key: format!("quote-{id}").into(),
            needs_approval: false,
            state: QuoteState::Open,
            call: None,
            credential: caller.actor.label().into(),
            created_at: now,
            expires_at: now.plus_millis(asked.lifetime_ms),
            ended_at: None,
        };
        let quote = self.submit(caller, Action::OpenQuote(Box::new(quote))).await?;
        Ok(json!({
            "success": true,
            "estimate": shown(Some(id), &slug, kind, &quote.charge, rate, quote.needs_approval),
            "approvalToken": token,
            "idempotencyKey": quote.idempotency_key,
            "expiresAt": quote.expires_at,
        }))
    }

    /// Withdraws a quote; one that is over already stays as it is.
    ///
    /// # Errors
    /// `NOT_FOUND`, `REQUEST_FAILED` when a call used it.
    pub async fn cancel(&self, caller: &ToolCaller, id: &str) -> Result<Value, AppError> {
        caller.actor.require_caller()?;
        let unknown = || refused(&QuoteRefusal::Unknown);
        let id: QuoteId = id.parse().map_err(|_no_id| unknown())?;
        let cancel = CancelQuote {
            id,
            by: caller.payer.clone(),
        };
        let quote = self.submit(caller, Action::CancelQuote(cancel)).await;
        let quote = quote.map_err(|error| match error.members.get("quoteStatus") {
            Some(status) => AppError::new(
                ErrorCode::RequestFailed,
                "a call used this quote: it cannot be canceled any more",
            )
            .with("quoteStatus", status.clone()),
            None => error,
        })?;
        let status = quote.state_at(self.environment.now());
        Ok(json!({ "success": true, "estimate": { "id": id, "slug": quote.slug, "status": status } }))
    }

    /// Forgets quotes that nobody used; says how many.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn prune(&self) -> Result<u64, AppError> {
        let before = self.environment.now().plus_millis(0_i64.saturating_sub(KEPT_MS));
        Ok(self.store.prune_quotes(before).await?)
    }
}

/// What is wrong with the arguments, where they are a member of the body.
fn within_args(mut error: AppError) -> AppError {
    if let Some(Value::Array(details)) = error.members.get_mut("details") {
        for detail in details {
            let path = detail.get("path").and_then(Value::as_str).unwrap_or_default();
            let path = format!("args{path}");
            if let Some(members) = detail.as_object_mut() {
                members.insert("path".to_owned(), json!(path));
            }
        }
    }
    error
}

fn shown(
    id: Option<QuoteId>,
    slug: &str,
    kind: QuoteKind,
    charge: &Charge,
    rate: CreditsPerDollar,
    needs_approval: bool,
) -> Value {
    json!({
        "id": id,
        "slug": slug,
        "kind": kind,
        "priceUsd": charge.effective,
        "priceCredits": rate.credits(charge.effective),
        "requiresApproval": needs_approval,
    })
}

fn unavailable(slug: &str, charge: Option<Charge>, rate: CreditsPerDollar, reason: &str) -> Value {
    let price: Option<Micros> = charge.map(|charge| charge.effective);
    json!({
        "success": true,
        "estimate": {
            "id": null,
            "slug": slug,
            "kind": "unavailable",
            "priceUsd": price,
            "priceCredits": price.map(|price| rate.credits(price)),
            "requiresApproval": false,
            "reason": reason,
        },
    })
}

/// What is called and with which arguments: changes when a quote cannot stand any more, whatever the price.
fn revision(tool: &ToolEntry) -> Result<Arc<str>, AppError> {
    let definition = &tool.definition;
    let text = serde_json::to_vec(&(&definition.schema, &definition.http))
        .map_err(|error| AppError::internal(&error))?;
    Ok(hex::encode(Sha256::digest(text)).into())
}

/// What a quote that does not fit means to the caller.
pub(crate) fn refused(refusal: &QuoteRefusal) -> AppError {
    let again = |reason: &str, message: String| {
        AppError::new(ErrorCode::QuoteReapprovalRequired, message)
            .with("reason", reason)
            .with("hint", "ask for a new estimate; nothing was charged")
    };
    match refusal {
        QuoteRefusal::Unknown => AppError::new(ErrorCode::NotFound, "there is no such quote"),
        QuoteRefusal::OtherPayer => AppError::new(ErrorCode::PolicyDenied, "the quote is another payer's"),
        QuoteRefusal::OtherCall => AppError::new(
            ErrorCode::ValidationError,
            "the quote is for another tool or other arguments",
        ),
        QuoteRefusal::Ended(state) => {
            again(state.as_str(), format!("the quote is {state}")).with("quoteStatus", state.as_str())
        }
        QuoteRefusal::ToolChanged => again("tool_changed", "the tool was changed since the quote".to_owned()),
        QuoteRefusal::PriceMoved { quoted, now } => again(
            "price_moved",
            format!("the price is now {now} USD, above the quoted {quoted} USD"),
        )
        .with("quotedUsd", quoted.to_string())
        .with("priceUsd", now.to_string()),
    }
}

/// The quote that a call of `tool` is made with.
///
/// # Errors
/// `VALIDATION_ERROR`, `NOT_FOUND`, `POLICY_DENIED`, `QUOTE_REAPPROVAL_REQUIRED`.
pub(crate) async fn presented(
    store: &dyn Store,
    environment: &dyn Environment,
    context: &CallContext,
    slug: &str,
    tool: &ToolEntry,
    args: &Value,
) -> Result<Option<(Quote, CallAuthority)>, AppError> {
    let Some(token) = &context.approval_token else {
        return Ok(None);
    };
    let id = token::quote_of(token).ok_or_else(|| {
        AppError::new(
            ErrorCode::ValidationError,
            "the approval token is none that an estimate gave out",
        )
    })?;
    let found = store.find_quote(context.actor.tenant.id, id).await?;
    let quote = found.ok_or_else(|| refused(&QuoteRefusal::Unknown))?;
    let used = QuoteUse {
        id,
        token_hash: token::hash(token),
        revision: revision(tool)?,
    };
    let args_hash = args_hash(args);
    let call = QuotedCall {
        payer: &context.payer,
        slug,
        args_hash: &args_hash,
    };
    // The hold decides; this spares the provider a question.
    quote
        .check(&used, call, environment.now())
        .map_err(|refusal| refused(&refusal))?;
    let authority = CallAuthority {
        args_hash,
        quote: Some(used),
        approval: None,
    };
    Ok(Some((quote, authority)))
}
