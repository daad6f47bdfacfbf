//! The first start: while nobody is there, every start makes one owner's invitation in the place of the last one.

use serde_json::json;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::TenantStatus;
use turnpike_core::money::CreditsPerDollar;
use turnpike_store::{StoreError, Tenant, TenantSettings};
use uuid::Uuid;

use super::PeopleDesk;
use crate::changes::{Author, Change};
use crate::error::AppError;

/// Who makes the invitation, in its record.
const MADE_BY: &str = "first start";
/// How long it can be accepted.
const LIFETIME_SECS: i64 = 86_400;
/// The workspace that is made when there is none.
const WORKSPACE: &str = "My workspace";

impl PeopleDesk {
    /// The link with which the first owner joins; `None` once somebody has joined, and where others sign people in.
    /// Makes a workspace when there is none.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn first_start(&self) -> Result<Option<String>, AppError> {
        if self.pages.is_none() || self.store.has_people().await? {
            return Ok(None);
        }
        let tenants = self.store.list_tenants().await?;
        // Nobody joins the house's own books.
        let workspaces = tenants.iter().filter(|tenant| !tenant.id.is_house());
        let oldest = workspaces.min_by_key(|tenant| (tenant.created_at, tenant.id));
        let tenant = match oldest {
            Some(tenant) => tenant.id,
            None => self.first_workspace().await?,
        };
        let invited = self
            .invitations
            .invite_first_owner(tenant, MADE_BY, LIFETIME_SECS)
            .await?;
        Ok(invited.and_then(|invited| invited.url))
    }

    /// Makes the workspace. Nodes that start together make the same one.
    async fn first_workspace(&self) -> Result<TenantId, AppError> {
        let digest = self.pepper.derive("first workspace");
        let bytes = digest.first_chunk::<16>().copied().unwrap_or_default();
        let now = self.environment.now();
        let tenant = Tenant {
            id: TenantId(Uuid::new_v8(bytes)),
            name: WORKSPACE.to_owned(),
            status: TenantStatus::Active,
            credits_per_dollar: CreditsPerDollar::default(),
            settings: TenantSettings::default(),
            created_at: now,
        };
        let audit = Change::new("tenant.create", &tenant.id)
            .after(&json!(WORKSPACE))
            .row(&*self.environment, &Author::named(tenant.id, MADE_BY, "start"));
        match self.store.insert_tenant(&tenant, &audit).await {
            Ok(()) | Err(StoreError::AlreadyExists) => Ok(tenant.id),
            Err(error) => Err(error.into()),
        }
    }
}
