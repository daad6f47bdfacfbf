//! Stripe Connect: accounts that are paid out to, and transfers to them.
//!
//! The rule: like every call here these are repeatable under the attempt that the caller stored. Who is paid
//! what, and when, is the app's business.

use super::reports::{Fields, Malformed, words};
use super::{StripeProcessor, form, unusable};
use crate::processor::{AccountLink, PayoutAccount, PayoutReport, ProcessorError, Reversal};

/// Why an account that Stripe does not know cannot be paid out to.
const NO_SUCH_ACCOUNT: &str = "no_such_account";

pub(super) async fn create_account(
    stripe: &StripeProcessor,
    attempt: &str,
) -> Result<PayoutAccount, ProcessorError> {
    let sent = stripe.api.post("/v1/accounts", form::account(), Some(attempt));
    let answer = sent.await?;
    Fields::of(&answer).and_then(account).map_err(unusable)
}

pub(super) async fn create_account_link(
    stripe: &StripeProcessor,
    account: &str,
    refresh_url: &str,
    return_url: &str,
) -> Result<AccountLink, ProcessorError> {
    let form = form::account_link(account, refresh_url, return_url);
    let answer = stripe.api.post("/v1/account_links", form, None).await?;
    Fields::of(&answer).and_then(account_link).map_err(unusable)
}

pub(super) async fn find_account(
    stripe: &StripeProcessor,
    id: &str,
) -> Result<PayoutAccount, ProcessorError> {
    let path = form::object_path("accounts", id, "")?;
    let found = stripe.find_as(&path, account).await?;
    Ok(found.unwrap_or_else(|| PayoutAccount {
        id: id.to_owned(),
        details_submitted: false,
        payouts_enabled: false,
        transfers_enabled: false,
        disabled_reason: Some(NO_SUCH_ACCOUNT.to_owned()),
    }))
}

pub(super) async fn transfer(
    stripe: &StripeProcessor,
    attempt: &str,
    account: &str,
    amount_cents: i64,
) -> Result<PayoutReport, ProcessorError> {
    let form = form::transfer(attempt, account, amount_cents);
    let answer = stripe.api.post("/v1/transfers", form, Some(attempt)).await?;
    Fields::of(&answer).and_then(payout).map_err(unusable)
}

pub(super) fn account(account: Fields<'_>) -> Result<PayoutAccount, Malformed> {
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
        disabled_reason: disabled_reason.map(words),
    })
}

fn account_link(link: Fields<'_>) -> Result<AccountLink, Malformed> {
    Ok(AccountLink {
        url: link.needed_text("url")?.to_owned(),
        expires_at: link.integer("expires_at")?,
    })
}

fn payout(transfer: Fields<'_>) -> Result<PayoutReport, Malformed> {
    let (amount_cents, currency) = transfer.money("amount")?;
    Ok(PayoutReport {
        transfer: transfer.needed_text("id")?.to_owned(),
        account: transfer.reference("destination")?.unwrap_or_default().to_owned(),
        amount_cents,
        currency,
    })
}

pub(super) fn reversal(transfer: Fields<'_>) -> Result<Reversal, Malformed> {
    let (amount_cents, _currency) = transfer.money("amount")?;
    let reversed_cents = transfer.integer("amount_reversed")?.unwrap_or_default();
    Ok(Reversal {
        transfer: transfer.needed_text("id")?.to_owned(),
        payout: transfer.metadata(form::PAYOUT)?.map(str::to_owned),
        amount_cents,
        reversed_cents,
    })
}
