//! What a caller could execute, decided in one place: the workspace's catalogue, its key, the end user's policy and token.
//!
//! The ledger decides again when a call takes its hold; this is what search and description say beforehand.

use std::sync::Arc;

use turnpike_core::access::KeyKind;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::Payer;
use turnpike_core::ledger::policy::{Policy, allows};
use turnpike_core::money::Micros;
use turnpike_store::Store;

use super::desk::ToolCaller;
use crate::catalogue::Callable;
use crate::error::AppError;

/// What a caller could execute.
pub(crate) struct ToolAccess<'a> {
    callable: Callable<'a>,
    policy: Arc<Policy>,
    /// What the end user's token names; `None` = everything.
    token: Option<Arc<[String]>>,
}

impl<'a> ToolAccess<'a> {
    /// Reads what decides about `caller`.
    ///
    /// # Errors
    /// `END_USER_NOT_FOUND`, `END_USER_RETIRED`.
    pub(crate) async fn of(store: &dyn Store, caller: &'a ToolCaller) -> Result<Self, AppError> {
        let actor = &caller.actor;
        let tenant = &actor.tenant;
        let key = actor.key();
        // A simulated call asks for no end user, so there need not be one.
        let simulated = key.is_some_and(|key| key.kind == KeyKind::Sandbox);
        let policy = match &caller.payer {
            Payer::EndUser(id) if !simulated => match store.find_end_user(tenant.id, id).await? {
                Some(user) if user.retired => {
                    return Err(AppError::new(
                        ErrorCode::EndUserRetired,
                        "the end user was retired",
                    ));
                }
                Some(user) => user.policy,
                None => {
                    let message = "there is no such end user";
                    return Err(AppError::new(ErrorCode::EndUserNotFound, message));
                }
            },
            Payer::EndUser(_) | Payer::Pool => Arc::default(),
        };
        let token = match actor.token() {
            Some(token) => store.find_token(tenant.id, token).await?,
            None => None,
        };
        Ok(Self {
            callable: Callable::of(actor),
            policy,
            token: token.and_then(|token| token.tools),
        })
    }

    /// Whether the caller could execute a tool now.
    pub(crate) fn allows(&self, provider: &str, endpoint: &str) -> bool {
        self.is_granted(provider, endpoint) && self.policy.allows(provider, endpoint, None)
    }

    /// Whether it could when the end user's policy named the tool.
    fn is_granted(&self, provider: &str, endpoint: &str) -> bool {
        let named = |tools: &Arc<[String]>| allows(tools, provider, endpoint, None);
        self.callable.allows(provider, &format!("{provider}/{endpoint}"))
            && self.token.as_ref().is_none_or(named)
    }

    /// Whether a human must approve a call first: of a tool that the policy does not name, or one that costs more than the
    /// policy lets pass. `price` is `None` where nothing bounds it.
    pub(crate) fn requires_approval(&self, provider: &str, endpoint: &str, price: Option<Micros>) -> bool {
        let dear = |threshold: Micros| price.is_none_or(|price| price > threshold);
        self.is_granted(provider, endpoint)
            && (!self.policy.allows(provider, endpoint, None)
                || self.policy.require_approval_above_usd.is_some_and(dear))
    }
}
