//! Workspaces as their people see them: memberships, name and denomination, members.

mod members;

pub(crate) use members::{action, checked_subject};
pub use members::{member_view, require_may_give, require_power_over};

use std::sync::Arc;

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::money::CreditsPerDollar;
use turnpike_store::{Store, Tenant};

use crate::auth::{Actor, ActorCredential};
use crate::changes::{Author, Change};
use crate::environment::Environment;
use crate::error::AppError;
use crate::fields::Fields;

/// Longest name of a workspace, in characters.
pub(crate) const MAX_NAME: usize = 100;

/// How often a change is worked out again that another one overtook.
const TRIES: usize = 5;

/// The use cases of workspaces.
pub struct WorkspaceDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
}

/// A workspace as its people see it.
fn tenant_view(tenant: &Tenant) -> Value {
    json!({
        "id": tenant.id, "name": tenant.name, "status": tenant.status,
        "creditsPerDollar": tenant.credits_per_dollar.get(), "createdAt": tenant.created_at,
    })
}

impl WorkspaceDesk {
    /// A desk over `store`.
    pub const fn new(store: Arc<dyn Store>, environment: Arc<dyn Environment>) -> Self {
        Self { store, environment }
    }

    /// The workspaces that a person belongs to, by name (specification 2.11).
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn memberships(&self, subject: &str) -> Result<Vec<Value>, AppError> {
        let memberships = self.store.list_memberships(subject).await?;
        let view = |(member, tenant): &(turnpike_store::Member, Tenant)| {
            json!({
                "tenantId": tenant.id, "tenantName": tenant.name, "tenantStatus": tenant.status,
                "role": member.role,
            })
        };
        Ok(memberships.iter().map(view).collect())
    }

    /// The actor's workspace, with the actor's own role where it has one.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn tenant(&self, actor: &Actor) -> Result<Value, AppError> {
        let tenant = self.read(actor).await?;
        let mut view = tenant_view(&tenant);
        if let (ActorCredential::Member { role, .. }, Some(members)) =
            (&actor.credential, view.as_object_mut())
        {
            members.insert("role".to_owned(), json!(role));
        }
        Ok(view)
    }

    /// As it is stored now.
    async fn read(&self, actor: &Actor) -> Result<Tenant, AppError> {
        let found = self.store.find_tenant(actor.tenant.id).await?;
        found.ok_or_else(|| AppError::internal(&"the actor's workspace is gone"))
    }

    /// Renames the actor's workspace or says what a dollar is in credits.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, also when credits have a meaning already; `UNKNOWN_FIELD`.
    pub async fn change(&self, actor: &Actor, raw: &[u8]) -> Result<Value, AppError> {
        let mut fields = Fields::parse(raw, &["name", "creditsPerDollar"])?;
        let name = fields.words("name", 1..=MAX_NAME)?;
        let rate = fields
            .integer("creditsPerDollar", 1..=1_000_000)?
            .map(CreditsPerDollar::try_from)
            .transpose()
            .map_err(|error| AppError::invalid("creditsPerDollar", error.to_string()))?;
        for _ in 0..TRIES {
            let before = self.read(actor).await?;
            let after = Tenant {
                name: name.clone().unwrap_or_else(|| before.name.clone()),
                credits_per_dollar: rate.unwrap_or(before.credits_per_dollar),
                ..before.clone()
            };
            let audit = Change::new("tenant.change", &actor.tenant.id)
                .before(&tenant_view(&before))
                .after(&tenant_view(&after))
                .row(&*self.environment, &Author::of(actor));
            if self.store.set_tenant_profile(&before, &after, &audit).await? {
                return Ok(tenant_view(&after));
            }
            let now = self.read(actor).await?;
            if (&now.name, now.credits_per_dollar) == (&before.name, before.credits_per_dollar) {
                return Err(AppError::invalid(
                    "creditsPerDollar",
                    "is fixed since the first entry of the ledger",
                ));
            }
        }
        Err(AppError::unavailable())
    }
}

/// The refusal of somebody who is not here.
fn no_such_member() -> AppError {
    AppError::new(ErrorCode::NotFound, "there is no such member")
}
