//! Routes of end users' tokens: minting, revoking, the published keys, and what a token's owner may read.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use turnpike_app::Actor;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::admitted;
use super::caller::paying;
use super::end_users::external_id;
use super::openapi::{self, Errors};
use super::problem::ApiError;
use super::routes::{Answered, AppState, Segments, changing, no_store, shown_balance};
use super::schemas_users as schemas;
use super::{App, header_params};

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(mint, revoke_all))
        .routes(routes!(revoke))
        .routes(routes!(me))
        .routes(routes!(my_balance))
        .routes(routes!(jwks))
}

/// Mints a token for an end user, who is created when unknown.
#[utoipa::path(
    post, path = "/api/credits/end-users/{externalUserId}/tokens", tag = "End users",
    params(schemas::EndUserPath), request_body = Option<schemas::TokenRequest>,
    responses((status = 201, description = "The token, shown once", body = schemas::MintedToken), Errors)
)]
async fn mint(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, true).await?;
    let id = external_id(&id)?;
    let minted = app.service.end_users.mint(&actor, &id, &raw).await?;
    let mut response = no_store(&minted);
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

async fn revoke_tokens(app: &App, id: &str, only: Option<&str>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let id = external_id(id)?;
    let revoked = app.service.end_users.revoke(&actor, &id, only).await?;
    app.service.authenticator.forget();
    Ok(no_store(&json!({ "success": true, "revoked": revoked })))
}

/// Revokes every token of an end user.
#[utoipa::path(
    delete, path = "/api/credits/end-users/{externalUserId}/tokens", tag = "End users",
    params(schemas::EndUserPath),
    responses((status = 200, description = "How many worked until now", body = schemas::Revoked), Errors)
)]
async fn revoke_all(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    revoke_tokens(&app, &id, None, request).await
}

/// Revokes one token of an end user.
#[utoipa::path(
    delete, path = "/api/credits/end-users/{externalUserId}/tokens/{jti}", tag = "End users",
    params(schemas::EndUserPath, ("jti" = uuid::Uuid, Path, description = "The token's `jti`")),
    responses((status = 200, description = "How many worked until now: 1 or 0", body = schemas::Revoked), Errors)
)]
async fn revoke(
    State(app): AppState,
    Segments((id, jti)): Segments<(String, String)>,
    request: Request,
) -> Answered {
    revoke_tokens(&app, &id, Some(&jti), request).await
}

/// The end user who presents a token that may read.
fn myself(app: &App, request: Request) -> Result<(Actor, http::request::Parts), ApiError> {
    let (actor, parts) = admitted(request)?;
    // A header that names somebody else is refused here as it is with calls.
    paying(app, &parts.headers, &actor)?;
    Ok((actor, parts))
}

/// Shows who the token's owner is.
#[utoipa::path(
    get, path = "/api/credits/me", tag = "My account", params(header_params::Session),
    responses((status = 200, description = "The end user", body = schemas::Me), Errors)
)]
async fn me(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts) = myself(&app, request)?;
    Ok(no_store(&app.service.end_users.me(&actor).await?))
}

/// Shows the balance of the token's owner.
#[utoipa::path(
    get, path = "/api/credits/me/balance", tag = "My account", params(header_params::Session),
    responses((status = 200, description = "The balance", body = openapi::Balance), Errors)
)]
async fn my_balance(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = myself(&app, request)?;
    let payer = paying(&app, &parts.headers, &actor)?;
    let balance = app.service.reader.balance(&actor, &payer).await?;
    Ok(shown_balance(&balance))
}

/// The public keys of end users' tokens, as a JWK set (RFC 7517).
#[utoipa::path(
    get, path = "/.well-known/jwks.json", tag = "Service",
    responses((status = 200, description = "The keys that sign, will sign, or are still accepted", body = schemas::KeySet))
)]
async fn jwks(State(app): AppState) -> Response {
    let mut response = Json(app.service.vault.jwks()).into_response();
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=60"),
    );
    response
}
