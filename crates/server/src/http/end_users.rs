//! Routes of end users: the list, balances, limits, freezing, retirement.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::json;
use turnpike_app::AppError;
use turnpike_app::end_users::Direction;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::ExternalUserId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::admitted;
use super::caller::idempotency_key;
use super::openapi::Errors;
use super::problem::{ApiError, REPLAYED};
use super::routes::{Answered, AppState, Segments, changing, no_store, page_size, query};
use super::schemas_users as schemas;
use super::{App, header_params};

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get_one, retire))
        .routes(routes!(allocate))
        .routes(routes!(deallocate))
        .routes(routes!(get_policy, put_policy))
        .routes(routes!(freeze))
        .routes(routes!(unfreeze))
}

/// The id in a path, percent-decoded once by the router: case-sensitive, without dot segments.
pub(super) fn external_id(text: &str) -> Result<ExternalUserId, ApiError> {
    ExternalUserId::parse(text)
        .map_err(|error| ApiError(AppError::invalid("externalUserId", error.to_string())))
}

#[derive(Deserialize)]
struct ListQuery {
    q: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// Lists the workspace's end users by id, or those whose id contains a text.
#[utoipa::path(
    get, path = "/api/credits/end-users", tag = "End users", params(schemas::EndUserListParams),
    responses((status = 200, description = "A page of end users", body = schemas::EndUserList), Errors)
)]
async fn list(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let query: ListQuery = query(&parts)?;
    let limit = page_size(query.limit)?;
    let desk = &app.service.end_users;
    let page = desk.list(&actor, query.q, query.cursor, limit).await?;
    Ok(no_store(
        &json!({ "success": true, "data": page.users, "next_cursor": page.next_cursor }),
    ))
}

/// Shows an end user with balance and policy.
#[utoipa::path(
    get, path = "/api/credits/end-users/{externalUserId}", tag = "End users",
    params(schemas::EndUserPath),
    responses((status = 200, description = "The end user", body = schemas::EndUserEnvelope), Errors)
)]
async fn get_one(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let user = app.service.end_users.get(&actor, &external_id(&id)?).await?;
    Ok(no_store(&user))
}

/// Retires an end user for good: owners and admins with a second factor of the last ten minutes.
///
/// Only when the balance is zero and nothing is open; the id can never be used again.
#[utoipa::path(
    delete, path = "/api/credits/end-users/{externalUserId}", tag = "End users",
    params(schemas::EndUserPath),
    responses((status = 200, description = "Retired, now or before", body = schemas::Retirement), Errors)
)]
async fn retire(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let result = app.service.end_users.retire(&actor, &external_id(&id)?).await?;
    app.service.authenticator.forget();
    Ok(no_store(&result))
}

async fn move_credits(app: &App, id: &str, direction: Direction, request: Request) -> Answered {
    let (actor, parts, raw) = changing(app, request, false).await?;
    let id = external_id(id)?;
    let key = idempotency_key(&parts.headers)?.ok_or_else(|| {
        ApiError::new(
            ErrorCode::IdempotencyKeyRequired,
            "send an Idempotency-Key header with this change",
        )
    })?;
    let desk = &app.service.end_users;
    let moved = desk.move_credits(&actor, &id, direction, key, &raw).await?;
    let mut response: Response = no_store(&moved.body);
    if moved.replayed {
        response
            .headers_mut()
            .insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Moves credits from the workspace's pool to an end user, who is created when unknown.
#[utoipa::path(
    post, path = "/api/credits/end-users/{externalUserId}/allocate", tag = "End users",
    params(schemas::EndUserPath, header_params::RequiredKey), request_body = schemas::MoveRequest,
    responses((status = 200, description = "Moved, now or by an earlier attempt", body = schemas::MoveResult), Errors)
)]
async fn allocate(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    move_credits(&app, &id, Direction::Allocate, request).await
}

/// Moves credits from an end user back to the workspace's pool.
#[utoipa::path(
    post, path = "/api/credits/end-users/{externalUserId}/deallocate", tag = "End users",
    params(schemas::EndUserPath, header_params::RequiredKey), request_body = schemas::MoveRequest,
    responses((status = 200, description = "Moved, now or by an earlier attempt", body = schemas::MoveResult), Errors)
)]
async fn deallocate(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    move_credits(&app, &id, Direction::Deallocate, request).await
}

/// Shows an end user's limits.
#[utoipa::path(
    get, path = "/api/credits/end-users/{externalUserId}/policy", tag = "End users",
    params(schemas::EndUserPath),
    responses((status = 200, description = "The policy", body = schemas::PolicyEnvelope), Errors)
)]
async fn get_policy(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let id = external_id(&id)?;
    let policy = app.service.end_users.policy(&actor, &id).await?;
    Ok(no_store(
        &json!({ "success": true, "externalUserId": id, "policy": policy }),
    ))
}

/// Replaces an end user's limits as a whole; an unknown end user is created.
#[utoipa::path(
    put, path = "/api/credits/end-users/{externalUserId}/policy", tag = "End users",
    params(schemas::EndUserPath), request_body = schemas::PolicyDocument,
    responses((status = 200, description = "The policy", body = schemas::PolicyEnvelope), Errors)
)]
async fn put_policy(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let id = external_id(&id)?;
    let policy = app.service.end_users.set_policy(&actor, &id, &raw).await?;
    Ok(no_store(
        &json!({ "success": true, "externalUserId": id, "policy": policy }),
    ))
}

async fn set_frozen(app: &App, id: &str, frozen: bool, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(app, request, true).await?;
    let id = external_id(id)?;
    let desk = &app.service.end_users;
    let changed = desk.set_frozen(&actor, &id, frozen, &raw).await?;
    Ok(no_store(&json!({
        "success": true, "externalUserId": id, "frozen": frozen, "changed": changed,
    })))
}

/// Freezes an end user's balance: nothing is spent from it until it is unfrozen.
#[utoipa::path(
    post, path = "/api/credits/end-users/{externalUserId}/freeze", tag = "End users",
    params(schemas::EndUserPath), request_body = Option<schemas::FreezeRequest>,
    responses((status = 200, description = "Frozen, now or before", body = schemas::FreezeResult), Errors)
)]
async fn freeze(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    set_frozen(&app, &id, true, request).await
}

/// Frees an end user's balance, whatever froze it.
#[utoipa::path(
    post, path = "/api/credits/end-users/{externalUserId}/unfreeze", tag = "End users",
    params(schemas::EndUserPath), request_body = Option<schemas::FreezeRequest>,
    responses((status = 200, description = "Free, now or before", body = schemas::FreezeResult), Errors)
)]
async fn unfreeze(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    set_frozen(&app, &id, false, request).await
}
