//! Stripe Connect: accounts that are paid out to, and transfers to them.
//!
//! The rule: like every call here these are repeatable under the attempt that the caller stored. Who is paid
//! what, and when, is the app's business.

use serde_json::Value;

use super::api::Fault;
use super::reports::{Fields, Malformed};
use super::{StripeProcessor, form, unusable};
use crate::processor::ProcessorError;

/// An account that Stripe pays out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayoutAccount {
    /// Stripe's id of it.
    pub id: String,
    /// Whether its owner has told Stripe everything.
    pub details_submitted: bool,
    /// Whether Stripe pays it out to its bank.
    pub payouts_enabled: bool,
    /// Whether transfers to it are possible.
    pub transfers_enabled: bool,
    /// Why Stripe has stopped it, in Stripe's word.
    pub disabled_reason: Option<String>,
}

/// A page of Stripe's on which an account's owner introduces themselves; good for one visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountLink {
    /// Where it is.
    pub url: String,
    /// When it stops working, Unix seconds.
    pub expires_at: i64,
}

/// Money that was sent to an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayoutReport {
    /// Stripe's id of the transfer.
    pub transfer: String,
    /// The account.
    pub account: String,
    /// In cents.
    pub amount_cents: i64,
    /// ISO 4217, lower case.
    pub currency: String,
}

impl StripeProcessor {
    /// Makes an account to pay out to.
    ///
    /// # Errors
    /// [`ProcessorError`]
    pub async fn create_account(&self, attempt: &str) -> Result<PayoutAccount, ProcessorError> {
        let answer = self
            .api
            .post("/v1/accounts", form::account(), Some(attempt))
            .await?;
        account(&answer).map_err(unusable)
    }

    /// Makes a page to introduce oneself on. A repeat makes another page, which does no harm.
    ///
    /// # Errors
    /// [`ProcessorError`]
    pub async fn create_account_link(
        &self,
        account: &str,
        refresh_url: &str,
        return_url: &str,
    ) -> Result<AccountLink, ProcessorError> {
        let form = form::account_link(account, refresh_url, return_url);
        let answer = self.api.post("/v1/account_links", form, None).await?;
        account_link(&answer).map_err(unusable)
    }

    /// How far an account is; `None` when there is no such account.
    ///
    /// # Errors
    /// [`ProcessorError`]
    pub async fn find_account(&self, id: &str) -> Result<Option<PayoutAccount>, ProcessorError> {
        let path = form::object_path("accounts", id, "")?;
        match self.find(&path).await? {
            Some(answer) => account(&answer).map(Some).map_err(unusable),
            None => Ok(None),
        }
    }

    /// Sends money to an account.
    ///
    /// # Errors
    /// [`ProcessorError`]
    pub async fn transfer(
        &self,
        attempt: &str,
        account: &str,
        amount_cents: i64,
    ) -> Result<PayoutReport, ProcessorError> {
        let form = form::transfer(attempt, account, amount_cents);
        let answer: Result<Value, Fault> = self.api.post("/v1/transfers", form, Some(attempt)).await;
        payout(&answer?).map_err(unusable)
    }
}

fn account(answer: &Value) -> Result<PayoutAccount, Malformed> {
    let account = Fields::of(answer)?;
    let transfers = match account.object("capabilities")? {
        Some(capabilities) => capabilities.text("transfers")?,
        None => None,
    };
    let disabled_reason = match account.object("requirements")? {
        Some(requirements) => requirements.text("disabled_reason")?,
        None => None,
    };
    Ok(PayoutAccount {
        id: account.needed_text("id")?.to_owned(),
        details_submitted: account.flag("details_submitted")?.unwrap_or(false),
        payouts_enabled: account.flag("payouts_enabled")?.unwrap_or(false),
        transfers_enabled: transfers == Some("active"),
        disabled_reason: disabled_reason.map(str::to_owned),
    })
}

fn account_link(answer: &Value) -> Result<AccountLink, Malformed> {
    let link = Fields::of(answer)?;
    Ok(AccountLink {
        url: link.needed_text("url")?.to_owned(),
        expires_at: link.integer("expires_at")?.unwrap_or_default(),
    })
}

fn payout(answer: &Value) -> Result<PayoutReport, Malformed> {
    let transfer = Fields::of(answer)?;
    let (amount_cents, currency) = transfer.money("amount")?;
    Ok(PayoutReport {
        transfer: transfer.needed_text("id")?.to_owned(),
        account: transfer.reference("destination")?.unwrap_or_default().to_owned(),
        amount_cents,
        currency,
    })
}
