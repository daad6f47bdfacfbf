//! The operator's use cases, the same whether they come from the command line, the socket or a route.
//!
//! Each is one request and one JSON value, so that a running service can do them for the command line.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use turnpike_core::access::{KeyKind, Role, Scope};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::{CommandId, ExternalUserId, KeyId, PayoutId, ReceiptId, TenantId};
use turnpike_core::ledger::command::{AuditNote, Grant, GrantSource};
use turnpike_core::ledger::{Action, Command, Outcome, Payer, TenantStatus};
use turnpike_core::money::{CreditsPerDollar, Micros};
use turnpike_core::pricing::{Catalogue, ModelPrice};
use turnpike_store::{KeyFilter, KeyPricing, MemberChange, PriceRow, Store, Tenant, TenantSettings};

use crate::changes::{Author, Change};
use crate::drift::{DriftDesk, ImportedCosts};
use crate::environment::Environment;
use crate::error::AppError;
use crate::keys::{KeyIssuer, NewKey, key_view};
use crate::paid_calls::OperatorSettlements;
use crate::payouts::OperatorPayouts;
use crate::people::PeopleDesk;
use crate::settings::SettingsDesk;
use crate::tokens::KeyVault;
use crate::tools::{OperatorImports, ToolImport};
use crate::workspaces::{action, checked_subject, member_view};

/// An operator's request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AdminRequest {
    /// Adds a workspace.
    TenantCreate {
        /// Its name.
        name: String,
    },
    /// Lists workspaces.
    TenantList,
    /// Stops or resumes a workspace.
    TenantStatus {
        /// Which.
        tenant: TenantId,
        /// What it becomes.
        status: TenantStatus,
    },
    /// Replaces a workspace's settings.
    TenantSettings {
        /// Which.
        tenant: TenantId,
        /// What they become.
        settings: TenantSettings,
    },
    /// Adds a member or changes the role.
    MemberAdd {
        /// The workspace.
        tenant: TenantId,
        /// The identity provider's subject.
        subject: String,
        /// What the person may do.
        role: Role,
    },
    /// Lists members.
    MemberList {
        /// The workspace.
        tenant: TenantId,
    },
    /// Removes a member.
    MemberRemove {
        /// The workspace.
        tenant: TenantId,
        /// The identity provider's subject.
        subject: String,
    },
    /// Makes an invitation.
    MemberInvite {
        /// The workspace.
        tenant: TenantId,
        /// What who accepts may do.
        role: Role,
    },
    /// Lets a person of the built-in identity choose password and second factor anew.
    MemberReset {
        /// What the person signs in with.
        login: String,
    },
    /// Adds a key.
    KeyCreate {
        /// The workspace.
        tenant: TenantId,
        /// Its name, 1..=100 characters.
        name: String,
        /// What it is for.
        kind: KeyKind,
        /// What it may do beside calls.
        scopes: Vec<Scope>,
        /// Seconds until it stops working.
        expires_in: Option<i64>,
    },
    /// Lists keys.
    KeyList {
        /// The workspace.
        tenant: TenantId,
    },
    /// Revokes a key.
    KeyRevoke {
        /// The workspace.
        tenant: TenantId,
        /// Which.
        key: KeyId,
    },
    /// Gives credits.
    Grant {
        /// The workspace.
        tenant: TenantId,
        /// The end user, else the pool.
        external_user_id: Option<ExternalUserId>,
        /// How much.
        usd: Micros,
        /// Why.
        reason: String,
    },
    /// Adds or replaces model prices.
    PricesApply {
        /// The prices.
        prices: Vec<ModelPrice>,
    },
    /// Shows model prices.
    PricesShow,
    /// Takes over the tools of an OpenAPI document.
    ProviderImport {
        /// What is taken over.
        import: Box<ToolImport>,
    },
    /// Lists providers with imported tools.
    ProviderList,
    /// Forgets a provider's imported tools.
    ProviderRemove {
        /// Which.
        provider: String,
    },
    /// Compares a provider's invoice or usage export with the ledger.
    DriftImport {
        /// What it says.
        costs: ImportedCosts,
    },
    /// Lists payouts: of one workspace all, else those of all that are under way.
    PayoutList {
        /// The workspace.
        tenant: Option<TenantId>,
    },
    /// Says that a payout is being sent.
    PayoutBegin {
        /// The workspace.
        tenant: TenantId,
        /// Which.
        payout: PayoutId,
    },
    /// Says that a payout was sent.
    PayoutSettle {
        /// The workspace.
        tenant: TenantId,
        /// Which.
        payout: PayoutId,
        /// What it is called there.
        reference: String,
    },
    /// Says that a payout was not sent, and gives its margin back.
    PayoutFail {
        /// The workspace.
        tenant: TenantId,
        /// Which.
        payout: PayoutId,
        /// Why.
        reason: String,
    },
    /// Lists the calls of wallets that are answered and neither paid nor given up.
    SettlementList,
    /// Says that such a call was paid.
    SettlementSettle {
        /// Its receipt.
        receipt: ReceiptId,
        /// The transaction on the chain.
        transaction: String,
        /// What moved; absent = what was due.
        usd: Option<Micros>,
    },
    /// Says that such a call was never paid, and gives it up.
    SettlementVoid {
        /// Its receipt.
        receipt: ReceiptId,
        /// Why.
        reason: String,
    },
    /// Makes a new key for end users' tokens.
    SigningKeyRotate,
    /// Lists the keys of end users' tokens.
    SigningKeyList,
}

/// The operator's desk.
pub struct AdminDesk {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    issuer: KeyIssuer,
    settings: SettingsDesk,
    vault: Arc<KeyVault>,
    drift: Arc<DriftDesk>,
    people: Arc<PeopleDesk>,
}

impl AdminDesk {
    /// A desk over `store`; keys come from `issuer`, tokens are signed by `vault`, invoices are compared by `drift`,
    /// people let in by `people`.
    pub fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        issuer: KeyIssuer,
        vault: Arc<KeyVault>,
        drift: Arc<DriftDesk>,
        people: Arc<PeopleDesk>,
    ) -> Self {
        Self {
            settings: SettingsDesk::new(store.clone(), environment.clone()),
            store,
            environment,
            issuer,
            vault,
            drift,
            people,
        }
    }

    /// Does what `request` says; `origin` goes into the audit log.
    ///
    /// # Errors
    /// The codes of decisions section 2.
    pub async fn run(&self, request: AdminRequest, origin: &str) -> Result<Value, AppError> {
        match request {
            AdminRequest::TenantCreate { name } => self.create_tenant(&name, origin).await,
            AdminRequest::TenantList => {
                let tenants = self.store.list_tenants().await?;
                Ok(json!({ "tenants": tenants.iter().map(tenant_view).collect::<Vec<_>>() }))
            }
            AdminRequest::TenantStatus { tenant, status } => {
                let before = self.tenant(tenant).await?;
                let audit = Change::new("tenant.status", &tenant)
                    .before(&json!(before.status))
                    .after(&json!(status))
                    .row(&*self.environment, &Author::operator(tenant, origin));
                self.store.set_tenant_status(tenant, status, &audit).await?;
                Ok(tenant_view(&self.tenant(tenant).await?))
            }
            AdminRequest::TenantSettings { tenant, settings } => {
                crate::settings::validate(&settings)?;
                let author = Author::operator(tenant, origin);
                let replace = |_current: &TenantSettings| Ok(settings.clone());
                self.settings.replace(&author, replace).await?;
                Ok(tenant_view(&self.tenant(tenant).await?))
            }
            AdminRequest::MemberAdd {
                tenant,
                subject,
                role,
            } => {
                checked_subject(&subject)?;
                self.change_member(tenant, &subject, Some(role), origin).await
            }
            AdminRequest::MemberList { tenant } => {
                self.tenant(tenant).await?;
                let members = self.store.list_members(tenant).await?;
                Ok(json!({ "members": members.iter().map(member_view).collect::<Vec<_>>() }))
            }
            AdminRequest::MemberRemove { tenant, subject } => {
                self.change_member(tenant, &subject, None, origin).await
            }
            AdminRequest::MemberInvite { tenant, role } => {
                self.people.invitations.invite(tenant, role, origin).await
            }
            AdminRequest::MemberReset { login } => self.people.reset(&login, origin).await,
            AdminRequest::KeyCreate {
                tenant,
                name,
                kind,
                scopes,
                expires_in,
            } => {
                self.tenant(tenant).await?;
                let new = NewKey {
                    name,
                    kind,
                    scopes,
                    pricing: KeyPricing::default(),
                    tools: None,
                    expires_in,
                };
                let author = Author::operator(tenant, origin);
                self.issuer.issue(&author, new).await
            }
            AdminRequest::KeyList { tenant } => {
                self.tenant(tenant).await?;
                let keys = self.store.list_keys(tenant, &KeyFilter::ALL).await?;
                let now = self.environment.now();
                Ok(json!({ "keys": keys.iter().map(|key| key_view(key, now)).collect::<Vec<_>>() }))
            }
            AdminRequest::KeyRevoke { tenant, key } => {
                let author = Author::operator(tenant, origin);
                if !self.issuer.revoke(&author, key).await? {
                    return Err(AppError::new(
                        ErrorCode::NotFound,
                        "there is no such key that still works",
                    ));
                }
                Ok(json!({ "id": key, "status": "revoked" }))
            }
            AdminRequest::Grant {
                tenant,
                external_user_id,
                usd,
                reason,
            } => self.grant(tenant, external_user_id, usd, &reason, origin).await,
            AdminRequest::PricesApply { prices } => self.apply_prices(prices).await,
            AdminRequest::PricesShow => {
                Ok(json!({ "models": self.stored_catalogue().await?.iter().collect::<Vec<_>>() }))
            }
            AdminRequest::ProviderImport { import } => self.imports().import(&import).await,
            AdminRequest::ProviderList => self.imports().list().await,
            AdminRequest::ProviderRemove { provider } => self.imports().remove(&provider).await,
            AdminRequest::DriftImport { costs } => {
                checked_name("provider", &costs.provider, 100)?;
                checked_name("source", &costs.source, 255)?;
                self.drift.import(&costs).await
            }
            AdminRequest::PayoutList { tenant } => self.payouts().list(tenant).await,
            AdminRequest::PayoutBegin { tenant, payout } => {
                self.payouts().begin(tenant, payout, origin).await
            }
            AdminRequest::PayoutSettle {
                tenant,
                payout,
                reference,
            } => self.payouts().settle(tenant, payout, &reference, origin).await,
            AdminRequest::PayoutFail {
                tenant,
                payout,
                reason,
            } => self.payouts().fail(tenant, payout, &reason, origin).await,
            AdminRequest::SettlementList => self.settlements().list().await,
            AdminRequest::SettlementSettle {
                receipt,
                transaction,
                usd,
            } => {
                self.settlements()
                    .settle(receipt, &transaction, usd, origin)
                    .await
            }
            AdminRequest::SettlementVoid { receipt, reason } => {
                self.settlements().void(receipt, &reason, origin).await
            }
            AdminRequest::SigningKeyRotate => {
                let kid = self.vault.rotate().await?;
                tracing::info!(kid, origin, "a new key for end users' tokens was made");
                Ok(json!({ "kid": kid }))
            }
            AdminRequest::SigningKeyList => self.vault.list().await,
        }
    }

    fn payouts(&self) -> OperatorPayouts<'_> {
        OperatorPayouts {
            store: &*self.store,
            environment: &*self.environment,
        }
    }

    fn settlements(&self) -> OperatorSettlements<'_> {
        OperatorSettlements {
            store: &*self.store,
            environment: &*self.environment,
        }
    }

    fn imports(&self) -> OperatorImports<'_> {
        OperatorImports {
            store: &*self.store,
            environment: &*self.environment,
        }
    }

    async fn tenant(&self, id: TenantId) -> Result<Tenant, AppError> {
        let found = self.store.find_tenant(id).await?;
        found.ok_or_else(|| AppError::new(ErrorCode::NotFound, "there is no such workspace"))
    }

    async fn create_tenant(&self, name: &str, origin: &str) -> Result<Value, AppError> {
        checked_name("name", name, 100)?;
        let tenant = Tenant {
            id: TenantId(self.environment.new_id()),
            name: name.to_owned(),
            status: TenantStatus::Active,
            credits_per_dollar: CreditsPerDollar::default(),
            settings: TenantSettings::default(),
            created_at: self.environment.now(),
        };
        let audit = Change::new("tenant.create", &tenant.id)
            .after(&json!(name))
            .row(&*self.environment, &Author::operator(tenant.id, origin));
        self.store.insert_tenant(&tenant, &audit).await?;
        Ok(tenant_view(&tenant))
    }

    /// Adds, changes or removes a member; the last owner stays.
    async fn change_member(
        &self,
        tenant: TenantId,
        subject: &str,
        to: Option<Role>,
        origin: &str,
    ) -> Result<Value, AppError> {
        self.tenant(tenant).await?;
        let members = self.store.list_members(tenant).await?;
        let member = members.iter().find(|member| member.subject == subject);
        let from = member.map(|member| member.role);
        if from.is_none() && to.is_none() {
            return Err(AppError::new(ErrorCode::NotFound, "there is no such member"));
        }
        let audit = Change::new(action(from, to), &subject)
            .before(&json!({ "role": from }))
            .after(&json!({ "role": to }))
            .row(&*self.environment, &Author::operator(tenant, origin));
        let change = MemberChange {
            tenant,
            subject: subject.to_owned(),
            from,
            to,
            at: self.environment.now(),
        };
        if from != to && !self.store.change_member(&change, &audit).await? {
            let message = "the last owner cannot be removed, or somebody changed this member meanwhile";
            return Err(AppError::new(ErrorCode::ForbiddenRole, message));
        }
        Ok(match to {
            None => json!({ "subject": subject, "removed": true }),
            Some(role) => json!({ "subject": subject, "role": role,
                "createdAt": member.map_or(change.at, |member| member.created_at) }),
        })
    }

    async fn grant(
        &self,
        tenant: TenantId,
        external_user_id: Option<ExternalUserId>,
        usd: Micros,
        reason: &str,
        origin: &str,
    ) -> Result<Value, AppError> {
        let rate = self.tenant(tenant).await?.credits_per_dollar;
        checked_name("reason", reason, 500)?;
        let to = external_user_id.map_or(Payer::Pool, Payer::EndUser);
        let grant = Grant {
            to: to.clone(),
            amount: usd,
            source: GrantSource::ManualGrant,
            reason: reason.into(),
            claim: None,
        };
        let target = to.external_user_id().map_or("pool", ExternalUserId::as_str);
        let note = AuditNote {
            actor: "operator".into(),
            action: "credits.grant",
            target: target.into(),
            before: None,
            after: Some(json!({ "amountUsd": usd, "reason": reason }).to_string().into()),
            origin: origin.into(),
        };
        let command = Command {
            id: CommandId(self.environment.new_id()),
            tenant,
            at: self.environment.now(),
            action: Action::Grant(grant),
            note: Some(Arc::new(note)),
        };
        match self.store.submit(command).await {
            Ok(Outcome::Granted { transfer, balance }) => Ok(json!({
                "entryId": transfer,
                "externalUserId": to.external_user_id(),
                "grantedUsd": usd,
                "balanceUsd": balance.posted,
                "balanceCredits": rate.credits(balance.posted),
            })),
            Ok(_) => Err(AppError::internal(&"a grant was answered by another outcome")),
            Err(error) => Err(AppError::from_submit(&error, rate)),
        }
    }

    async fn stored_catalogue(&self) -> Result<Catalogue, AppError> {
        let mut catalogue = Catalogue::default();
        for row in self.store.list_prices().await? {
            let price = serde_json::from_str(&row.document).map_err(|error| AppError::internal(&error))?;
            catalogue
                .insert(price)
                .map_err(|error| AppError::internal(&error))?;
        }
        Ok(catalogue)
    }

    async fn apply_prices(&self, prices: Vec<ModelPrice>) -> Result<Value, AppError> {
        let mut rows = Vec::with_capacity(prices.len());
        for price in &prices {
            price
                .validate()
                .map_err(|error| AppError::invalid(&price.id(), error.to_string()))?;
            let document = serde_json::to_string(price).map_err(|error| AppError::internal(&error))?;
            rows.push(PriceRow {
                provider: price.provider.clone(),
                model: price.model.clone(),
                document,
            });
        }
        self.store.put_prices(&rows, self.environment.now()).await?;
        Ok(json!({ "applied": rows.len() }))
    }
}

pub(crate) fn checked_name(path: &str, text: &str, max: usize) -> Result<(), AppError> {
    let length = text.chars().count();
    if (1..=max).contains(&length) && !text.chars().any(char::is_control) {
        Ok(())
    } else {
        Err(AppError::invalid(
            path,
            format!("must be 1 to {max} characters without control characters"),
        ))
    }
}

fn tenant_view(tenant: &Tenant) -> Value {
    json!({
        "id": tenant.id, "name": tenant.name, "status": tenant.status, "settings": tenant.settings,
        "creditsPerDollar": tenant.credits_per_dollar, "createdAt": tenant.created_at,
    })
}
