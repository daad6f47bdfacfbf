//! The pages at `/checkout/{sessionId}`: the development checkout, and what a customer sees after paying.
//!
//! Paying here is a callback of the built-in processor to ourselves, signed and taken like any processor's.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ledger::topup::{Topup, TopupState};
use turnpike_core::money::Micros;
use turnpike_core::time::Timestamp;
use turnpike_store::Tenant;
use turnpike_upstream::processor::{BuiltinOutcome, BuiltinPage, BuiltinProcessor};

use super::App;
use super::problem::ApiError;
use super::routes::{Answered, AppState, Segments};
use crate::pages::{self, BonusLine, CheckoutPage, ICON, Outcome, ResultPage, STYLESHEET};

const POLICY: HeaderName = HeaderName::from_static("content-security-policy");

/// An address's origin, for the policy: a form's answer may lead there. Of an app on the device, its scheme.
fn origin(url: &str) -> Option<String> {
    let (scheme, _) = url.split_once(':')?;
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    if !matches!(scheme, "http" | "https") {
        return scheme.bytes().all(is_scheme).then(|| format!("{scheme}:"));
    }
    let uri: Uri = url.parse().ok()?;
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?))
}

/// A page under the policy of all pages, whose forms may lead to `leads_to` beside ourselves.
pub(super) fn page(status: StatusCode, html: String, leads_to: &[Option<&str>]) -> Response {
    let mut response = (status, html).into_response();
    let origins: Vec<String> = leads_to.iter().flatten().filter_map(|url| origin(url)).collect();
    let policy = format!(
        "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self' {}",
        origins.join(" ")
    );
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(policy) = HeaderValue::try_from(policy) {
        headers.insert(POLICY, policy);
    }
    response
}

fn not_found() -> Response {
    let page_of = ResultPage {
        workspace: None,
        outcome: Outcome::NotFound,
        return_url: None,
        test_mode: false,
    };
    page(StatusCode::NOT_FOUND, page_of.render(), &[])
}

/// `2026-11-21 13:05 UTC`.
pub(super) fn readable(at: Timestamp) -> String {
    let text = at.to_string();
    match (text.get(..10), text.get(11..16)) {
        (Some(day), Some(time)) => format!("{day} {time} UTC"),
        _ => text,
    }
}

fn result_path(topup: &Topup) -> String {
    format!("/checkout/{}/result", topup.session)
}

fn bonus(topup: &Topup, tenant: &Tenant) -> Option<BonusLine> {
    (topup.terms.bonus > Micros::ZERO).then(|| BonusLine {
        usd: pages::dollars(topup.terms.bonus),
        credits: pages::credits(tenant.credits_per_dollar.credits(topup.terms.bonus)),
    })
}

/// The built-in processor, where it is the one in use; others have pages of their own.
pub(super) fn builtin(app: &App) -> Option<&Arc<BuiltinProcessor>> {
    app.service.builtin.as_ref()
}

/// Shows the checkout page, or what became of it.
pub(super) async fn show(State(app): AppState, Segments(session): Segments<String>) -> Answered {
    let Some((tenant, topup)) = find(&app, &session).await? else {
        return Ok(not_found());
    };
    if builtin(&app).is_none() {
        return Ok(not_found());
    }
    if topup.state != TopupState::Open {
        return Ok(Redirect::to(&result_path(&topup)).into_response());
    }
    if app.service.environment.now() >= topup.expires_at {
        return Ok(Redirect::to(&result_path(&topup)).into_response());
    }
    let rate = tenant.credits_per_dollar;
    let html = CheckoutPage {
        workspace: tenant.name.clone(),
        session: topup.session.to_string(),
        external_user_id: topup.owner.as_ref().map(|owner| owner.as_str().to_owned()),
        credits_usd: pages::dollars(topup.terms.credits),
        credits: pages::credits(rate.credits(topup.terms.credits)),
        fee_usd: pages::dollars(topup.terms.fee),
        total_usd: pages::dollars(topup.terms.total),
        bonus: bonus(&topup, &tenant),
        cancel_url: topup.cancel_url.as_deref().map(str::to_owned),
        expires_at: readable(topup.expires_at),
    };
    let leads_to = [topup.success_url.as_deref(), topup.cancel_url.as_deref()];
    Ok(page(StatusCode::OK, html.render(), &leads_to))
}

async fn find(app: &App, session: &str) -> Result<Option<(Tenant, Topup)>, ApiError> {
    match app.service.topups.find_session(session).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The customer pays.
pub(super) async fn pay(State(app): AppState, Segments(session): Segments<String>) -> Answered {
    call_back(&app, &session, BuiltinOutcome::Paid).await
}

/// The customer's card is refused.
pub(super) async fn decline(State(app): AppState, Segments(session): Segments<String>) -> Answered {
    call_back(&app, &session, BuiltinOutcome::Declined).await
}

/// Tells ourselves what happened on the page, as a processor would.
async fn call_back(app: &App, session: &str, outcome: BuiltinOutcome) -> Answered {
    let Some((_, topup)) = find(app, session).await? else {
        return Ok(not_found());
    };
    let Some(builtin) = builtin(app) else {
        return Ok(not_found());
    };
    let environment = &app.service.environment;
    if topup.state != TopupState::Open || environment.now() >= topup.expires_at {
        return Ok(Redirect::to(&result_path(&topup)).into_response());
    }
    let shown = BuiltinPage {
        reference: topup.session.to_string(),
        amount_cents: topup.terms.total_cents(),
        customer: topup.saves_method.then(|| format!("cus_builtin_{}", topup.id)),
        save_method: topup.saves_method,
    };
    // One event per page and outcome: pressing twice is one event.
    let event = format!("evt_builtin_{}_{}", topup.id, outcome.kind());
    let now = environment.now().millis().div_euclid(1000);
    let (raw, signature) = builtin.page_event(&event, &shown, outcome, now);
    app.service.topups.take_event(&raw, &signature).await?;
    let (_, topup) = app.service.topups.find_session(session).await?;
    let to = match (&topup.success_url, topup.state) {
        (Some(url), TopupState::Completed) => url.to_string(),
        _ => result_path(&topup),
    };
    Ok(Redirect::to(&to).into_response())
}

/// Shows what became of a checkout.
pub(super) async fn result(State(app): AppState, Segments(session): Segments<String>) -> Answered {
    let Some((tenant, topup)) = find(&app, &session).await? else {
        return Ok(not_found());
    };
    let total_usd = pages::dollars(topup.terms.total);
    let over = app.service.environment.now() >= topup.expires_at;
    let outcome = match topup.state {
        TopupState::Completed => Outcome::Completed {
            total_usd,
            credits_usd: pages::dollars(topup.terms.credits),
            credits: pages::credits(tenant.credits_per_dollar.credits(topup.terms.credits)),
            bonus: bonus(&topup, &tenant),
        },
        TopupState::Failed => Outcome::Failed {
            total_usd,
            retry_session: None,
        },
        TopupState::Open if over => Outcome::Expired { total_usd },
        TopupState::Expired => Outcome::Expired { total_usd },
        TopupState::Open | TopupState::Processing => Outcome::Processing { total_usd },
        TopupState::Refunded => Outcome::Refunded { total_usd },
    };
    let back = if topup.state == TopupState::Completed {
        &topup.success_url
    } else {
        &topup.cancel_url
    };
    let html = ResultPage {
        workspace: Some(tenant.name),
        outcome,
        return_url: back.as_deref().map(str::to_owned),
        test_mode: builtin(&app).is_some(),
    };
    Ok(page(StatusCode::OK, html.render(), &[]))
}

/// The stylesheet of the pages.
pub(super) async fn stylesheet() -> Response {
    asset(STYLESHEET, "text/css; charset=utf-8")
}

/// The icon of the pages.
pub(super) async fn icon() -> Response {
    asset(ICON, "image/svg+xml")
}

fn asset(text: &'static str, content_type: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    let cache = HeaderValue::from_static("public, max-age=3600");
    headers.insert(header::CACHE_CONTROL, cache);
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}
