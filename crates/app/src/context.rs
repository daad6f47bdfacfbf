//! What a caller sends beside the body, and what follows from it: its idempotency claim and its markup.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::Payer;
use turnpike_core::ledger::command::NewClaim;
use turnpike_core::ledger::hold::ClaimKey;
use turnpike_core::pricing::EffectiveMarkup;
use turnpike_store::ApiKey;

use crate::auth::Actor;
use crate::catalogue::Callable;
use crate::pricing::end_user_markup;

/// What a caller sends beside the body.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// Who calls.
    pub actor: Actor,
    /// Whose balance pays.
    pub payer: Payer,
    /// Method and path, part of the fingerprint and of the key's scope.
    pub route: String,
    /// The caller's `Idempotency-Key`.
    pub idempotency_key: Option<Arc<str>>,
    /// The caller's tags, checked.
    pub attribution: Option<Arc<str>>,
    /// The caller's loop id, checked.
    pub loop_id: Option<Arc<str>>,
    /// The token of the quote that the call is made with.
    pub approval_token: Option<Arc<str>>,
}

/// The claim of an idempotency key for one request. The tenant's own requests share one namespace, each end user
/// has another.
pub(crate) fn claim(tenant: TenantId, payer: &Payer, route: &str, raw: &[u8], key: Arc<str>) -> NewClaim {
    claim_with(tenant, payer, route, raw, key, None)
}

/// The same, where the request was sent with an approval token or without one.
fn claim_with(
    tenant: TenantId,
    payer: &Payer,
    route: &str,
    raw: &[u8],
    key: Arc<str>,
    approval_token: Option<&str>,
) -> NewClaim {
    let owner = payer.as_owner();
    let mut fingerprint = Sha256::new();
    let parts = [route.as_bytes(), raw, owner.as_bytes()];
    for part in parts.into_iter().chain(approval_token.map(str::as_bytes)) {
        fingerprint.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        fingerprint.update(part);
    }
    let scope = if owner.is_empty() {
        format!("tenant {route}")
    } else {
        format!("user {owner} {route}")
    };
    NewClaim {
        key: ClaimKey {
            tenant,
            scope: scope.into(),
            key,
        },
        fingerprint: fingerprint.finalize().into(),
    }
}

impl CallContext {
    /// The claim of the caller's idempotency key for this request.
    ///
    /// An agent connection has a namespace of its own: no answer to somebody else's request is given to it.
    pub(crate) fn claim(&self, raw: &[u8]) -> Option<NewClaim> {
        let key = self.idempotency_key.clone()?;
        let token = self.approval_token.as_deref();
        let tenant = self.actor.tenant.id;
        let mut claim = claim_with(tenant, &self.payer, &self.route, raw, key, token);
        if let Some(agent) = self.actor.agent() {
            claim.key.scope = format!("agent {} {}", agent.id, self.route).into();
        }
        Some(claim)
    }

    /// What may be called with `key`, or without one.
    pub(crate) fn callable<'a>(&'a self, key: Option<&'a ApiKey>) -> Callable<'a> {
        Callable::new(&self.actor.tenant.settings, key).narrowed_to(self.actor.agent())
    }

    pub(crate) fn markup(&self, key: Option<&ApiKey>, provider: &str, slug: &str) -> EffectiveMarkup {
        markup(&self.actor, &self.payer, key, provider, slug)
    }
}

/// The markup of a call: end users pay it, the workspace itself does not.
pub(crate) fn markup(
    actor: &Actor,
    payer: &Payer,
    key: Option<&ApiKey>,
    provider: &str,
    slug: &str,
) -> EffectiveMarkup {
    match payer {
        Payer::Pool => EffectiveMarkup::NONE,
        Payer::EndUser(_) => end_user_markup(&actor.tenant, key, provider, slug),
    }
}
