//! The pages at `/connect`: where the development processor connects an account, and where processors send its owner.
//!
//! Connecting here is an event of the built-in processor to ourselves, signed and taken like any processor's.

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::{StatusCode, Uri};
use serde::Deserialize;

use super::App;
use super::checkout::{builtin, page};
use super::problem::ApiError;
use super::routes::{Answered, AppState, Segments};
use crate::pages::{ConnectPage, Notice};

/// What the address of an account's page says of the way back.
#[derive(Deserialize)]
struct WayBack {
    #[serde(default)]
    to: String,
    #[serde(default)]
    proof: String,
}

/// The account's owner is done at the processor.
pub(super) async fn done() -> Response {
    page(StatusCode::OK, Notice::Done.render(), &[])
}

/// The processor's page is of no use any more.
pub(super) async fn again() -> Response {
    page(StatusCode::OK, Notice::Again.render(), &[])
}

fn not_found() -> Response {
    page(StatusCode::NOT_FOUND, Notice::NotFound.render(), &[])
}

/// Where the page of `account` at `uri` leads back to; `None` = there is no such page.
fn way_back(app: &App, account: &str, uri: &Uri) -> Option<String> {
    let query = axum::extract::Query::<WayBack>::try_from_uri(uri).ok()?;
    builtin(app)?.way_back(account, &query.to, &query.proof)
}

/// Shows the page of an account of the built-in processor.
pub(super) async fn show(State(app): AppState, Segments(account): Segments<String>, uri: Uri) -> Answered {
    let Some(return_url) = way_back(&app, &account, &uri) else {
        return Ok(not_found());
    };
    let Some(workspace) = app.service.payouts.account_holder(&account).await? else {
        return Ok(not_found());
    };
    let html = ConnectPage {
        workspace: workspace.name,
        account,
        action: uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
    };
    Ok(page(StatusCode::OK, html.render(), &[Some(&return_url)]))
}

/// The account's owner connects it.
pub(super) async fn connect(State(app): AppState, Segments(account): Segments<String>, uri: Uri) -> Answered {
    let (Some(return_url), Some(builtin)) = (way_back(&app, &account, &uri), builtin(&app)) else {
        return Ok(not_found());
    };
    let now = app.service.environment.now().millis().div_euclid(1000);
    let (raw, signature) = builtin.account_event(&format!("evt_builtin_{account}"), &account, now);
    app.service
        .topups
        .take_event(&raw, &signature)
        .await
        .map_err(ApiError)?;
    Ok(Redirect::to(&return_url).into_response())
}
