//! Routes of API keys.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::KeyId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::admitted;
use super::openapi::Errors;
use super::problem::ApiError;
use super::routes::{
    Answered, AppState, PageQuery, Segments, changing, enveloped, no_store, paged, query, with_status,
};
use super::schemas_keys as schemas;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_keys, create_key))
        .routes(routes!(get_key, revoke_key))
        .routes(routes!(rotate_key))
        .routes(routes!(put_key_pricing))
}

fn key_id(text: &str) -> Result<KeyId, ApiError> {
    text.parse()
        .map_err(|_no_uuid| ApiError::new(ErrorCode::NotFound, "there is no such key"))
}

/// The one answer that shows a raw key.
fn issued(mut answer: Value) -> Response {
    if let Some(members) = answer.as_object_mut() {
        members.insert("success".to_owned(), json!(true));
    }
    with_status(StatusCode::CREATED, no_store(&answer))
}

/// Lists the workspace's keys, newest first.
#[utoipa::path(
    get, path = "/api/credits/tenants/me/keys", tag = "Keys", params(schemas::PageParams),
    responses((status = 200, description = "A page of keys", body = schemas::KeyList), Errors)
)]
async fn list_keys(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let asked: PageQuery = query(&parts)?;
    let page = app
        .service
        .keys
        .list(&actor, asked.cursor(), asked.size()?)
        .await?;
    Ok(paged(&page))
}

/// Issues a key beside those that there are. The raw key is shown here and never again.
///
/// A key of a kind has at most these scopes: `secret` all that the caller has, `publishable` `widget:read`, `sandbox` none.
#[utoipa::path(
    post, path = "/api/credits/tenants/me/keys", tag = "Keys", request_body = schemas::NewKey,
    responses((status = 201, description = "The key", body = schemas::IssuedKey), Errors)
)]
async fn create_key(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    Ok(issued(app.service.keys.create(&actor, &raw).await?))
}

/// Shows a key's metadata; the key itself is kept as a hash only.
#[utoipa::path(
    get, path = "/api/credits/tenants/me/keys/{keyId}", tag = "Keys", params(schemas::KeyPath),
    responses((status = 200, description = "The key", body = schemas::KeyEnvelope), Errors)
)]
async fn get_key(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let metadata = app.service.keys.get(&actor, key_id(&id)?).await?;
    Ok(enveloped("keyMetadata", &metadata))
}

/// Revokes a key: no request with it is taken from now on, on other nodes within one second. A second time changes
/// nothing.
#[utoipa::path(
    delete, path = "/api/credits/tenants/me/keys/{keyId}", tag = "Keys", params(schemas::KeyPath),
    responses((status = 200, description = "The key", body = schemas::KeyEnvelope), Errors)
)]
async fn revoke_key(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let metadata = app.service.keys.revoke(&actor, key_id(&id)?).await?;
    app.service.authenticator.forget();
    Ok(enveloped("keyMetadata", &metadata))
}

/// Issues a key in the place of one that works, with its name, kind, scopes, prices, tools and end of life.
///
/// The old key works until the overlap is over, never longer than it would have. A key is replaced once.
#[utoipa::path(
    post, path = "/api/credits/tenants/me/keys/{keyId}/rotate", tag = "Keys", params(schemas::KeyPath),
    request_body = Option<schemas::RotateKey>,
    responses((status = 201, description = "The new key", body = schemas::IssuedKey), Errors)
)]
async fn rotate_key(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, true).await?;
    let answer = app.service.keys.rotate(&actor, key_id(&id)?, &raw).await?;
    app.service.authenticator.forget();
    Ok(issued(answer))
}

/// Replaces a key's prices, which go before the workspace's on calls of end users.
#[utoipa::path(
    put, path = "/api/credits/tenants/me/keys/{keyId}/pricing", tag = "Keys", params(schemas::KeyPath),
    request_body = schemas::KeyPrices,
    responses((status = 200, description = "The key", body = schemas::KeyEnvelope), Errors)
)]
async fn put_key_pricing(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let desk = &app.service.keys;
    let metadata = desk.set_pricing(&actor, key_id(&id)?, &raw).await?;
    app.service.authenticator.forget();
    Ok(enveloped("keyMetadata", &metadata))
}
