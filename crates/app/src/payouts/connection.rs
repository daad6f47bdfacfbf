//! The connection of a workspace to an account at the processor: made, asked about, ended.

use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::TenantId;
use turnpike_core::ledger::payout::{AccountReport, Connection, PayoutChange, PayoutSettings};
use turnpike_core::ledger::{Action, Outcome, TenantStatus};
use turnpike_core::time::Timestamp;
use turnpike_store::{SubmitError, Tenant};
use turnpike_upstream::processor::{PayoutAccount, ProcessorError};

use super::request::ReturnRequest;
use super::{PayoutDesk, view};
use crate::auth::Actor;
use crate::error::AppError;
use crate::topups::{Handled, urls};

impl PayoutDesk {
    /// Makes the workspace an account at the processor, unless it has one, and a page for its owner.
    ///
    /// # Errors
    /// `VALIDATION_ERROR`, `TENANT_SUSPENDED`, `UPSTREAM_ERROR`; 503 when the processor does not answer.
    pub async fn start_connection(&self, actor: &Actor, request: &ReturnRequest) -> Result<Value, AppError> {
        let tenant = &actor.tenant;
        let processor = self.processor.as_ref().ok_or_else(|| {
            let message = "this service has no payment processor configured";
            AppError::new(ErrorCode::ServiceUnavailable, message)
        })?;
        let hosts = &tenant.settings.topups.url_hosts;
        let checked = |name, text: &Option<String>| urls::checked(name, text.as_deref(), "", hosts);
        let page = |name: &str| format!("{}/connect/{name}", self.rules.public_url).into();
        let return_url = checked("returnUrl", &request.return_url)?.unwrap_or_else(|| page("done"));
        let refresh_url = checked("refreshUrl", &request.refresh_url)?.unwrap_or_else(|| page("again"));
        let settings = self.settings(tenant.id).await?;
        let account = match settings.connection_to(Some(processor.name())) {
            Some(connection) => connection.account.clone(),
            None => self.connect(actor, &settings).await?.account,
        };
        let link = processor
            .create_account_link(&account, &refresh_url, &return_url)
            .await
            .map_err(|error| not_made(&error))?;
        let expires_at = link
            .expires_at
            .map(|secs| Timestamp::from_millis(secs.saturating_mul(1000)));
        Ok(json!({ "url": link.url, "expiresAt": expires_at }))
    }

    /// Makes an account and connects it; of several at once one is connected, and all are told of that one.
    async fn connect(&self, actor: &Actor, settings: &PayoutSettings) -> Result<Connection, AppError> {
        let Some(processor) = &self.processor else {
            return Err(AppError::unavailable());
        };
        // The same for every repeat until the connection is ended, so that there is one account.
        let attempt = format!("payouts-{}-{}", actor.tenant.id, settings.ended);
        let made = processor.create_account(&attempt).await;
        let account = made.map_err(|error| not_made(&error))?;
        let change = PayoutChange::Connect {
            processor: processor.name().into(),
            account: account.id.as_str().into(),
            ended: settings.ended,
        };
        let connected = self.change(actor, "payout.connect", change).await?;
        let connection = connected.connection_to(Some(processor.name())).cloned();
        connection.ok_or_else(|| AppError::internal(&"a connection was made and is not there"))
    }

    /// How far the connection is, asked anew where the processor answers. It is kept while the workspace is active.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn connection(&self, actor: &Actor) -> Result<Value, AppError> {
        let tenant = actor.tenant.id;
        let name = self.processor_name();
        let mut settings = self.settings(tenant).await?;
        if let (Some(connection), Some(processor)) = (settings.connection_to(name), &self.processor) {
            match processor.find_account(&connection.account).await {
                Ok(Some(account)) if actor.tenant.status == TenantStatus::Active => {
                    settings = self.apply_account(tenant, &account).await?;
                }
                Ok(Some(account)) => settings.learn(&report(&account)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%tenant, %error, "the processor did not answer about an account");
                }
            }
        }
        let mut shown = view::connection_view(&settings, name);
        if let Some(members) = shown.as_object_mut() {
            members.insert("method".to_owned(), json!(settings.method(name)));
        }
        Ok(shown)
    }

    /// Ends the connection; what is under way to it finishes. Nothing happens when there is none.
    ///
    /// # Errors
    /// When the ledger does not answer.
    pub async fn disconnect(&self, actor: &Actor) -> Result<(), AppError> {
        let change = PayoutChange::Disconnect;
        self.change(actor, "payout.disconnect", change).await.map(drop)
    }

    /// The workspace that is connected to an account at the processor.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn account_holder(&self, account: &str) -> Result<Option<Tenant>, AppError> {
        match self.store.find_payout_account(account).await? {
            Some(tenant) => Ok(self.store.find_tenant(tenant).await?),
            None => Ok(None),
        }
    }

    /// Takes what the processor tells of an account.
    pub(crate) async fn take_account(&self, account: &PayoutAccount) -> Result<Handled, AppError> {
        let Some(tenant) = self.store.find_payout_account(&account.id).await? else {
            tracing::info!(account = account.id, "an account of nobody here was told of");
            return Ok(Handled::Ignored);
        };
        let processor = self.processor.as_ref().ok_or_else(AppError::unavailable)?;
        // INVARIANT: events arrive in any order, so what the account is now counts, and not what one of them says.
        let now = match processor.find_account(&account.id).await {
            Ok(found) => found.unwrap_or_else(|| account.clone()),
            Err(error) => {
                tracing::warn!(%tenant, %error, "the processor did not answer about an account it told of");
                return Err(AppError::unavailable());
            }
        };
        self.apply_account(tenant, &now).await?;
        Ok(Handled::Applied)
    }

    async fn apply_account(
        &self,
        tenant: TenantId,
        account: &PayoutAccount,
    ) -> Result<PayoutSettings, AppError> {
        let report = PayoutChange::Account(report(account));
        match self.submit(tenant, Action::ChangePayouts(report), None).await {
            Ok(Outcome::PayoutSettings { settings, .. }) => Ok(*settings),
            Ok(_) => Err(AppError::internal(
                &"payout settings were answered by another outcome",
            )),
            Err(SubmitError::Rejected(rejection)) => Err(AppError::internal(&rejection)),
            Err(SubmitError::Busy | SubmitError::Unavailable(_) | SubmitError::Unknown) => {
                Err(AppError::unavailable())
            }
        }
    }
}

fn report(account: &PayoutAccount) -> AccountReport {
    AccountReport {
        account: account.id.as_str().into(),
        details_submitted: account.details_submitted,
        payable: account.is_payable(),
        disabled_reason: account.disabled_reason.as_deref().map(Into::into),
    }
}

fn not_made(error: &ProcessorError) -> AppError {
    match error {
        ProcessorError::Refused { code, message } => {
            tracing::error!(code, message, "the processor refused an account or its page");
            AppError::new(
                ErrorCode::UpstreamError,
                "the payment processor refused to connect an account",
            )
        }
        ProcessorError::Unavailable(_) | ProcessorError::Unknown(_) => {
            tracing::warn!(%error, "no account or page yet");
            let message = "the payment processor does not answer; try again";
            AppError::new(ErrorCode::ServiceUnavailable, message).retry_after(5)
        }
    }
}
