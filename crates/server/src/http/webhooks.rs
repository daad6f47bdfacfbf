//! Routes of webhooks: events and what became of them, and the endpoints that are told.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use turnpike_app::webhooks::EventQuery;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::WebhookEndpointId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::admitted;
use super::openapi::Errors;
use super::problem::ApiError;
use super::routes::{
    Answered, AppState, Segments, changing, enveloped, no_store, page_size, query, with_status,
};
use super::schemas_webhooks as schemas;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_events))
        .routes(routes!(get_event))
        .routes(routes!(replay_event))
        .routes(routes!(list_endpoints, create_endpoint))
        .routes(routes!(get_endpoint, change_endpoint, delete_endpoint))
        .routes(routes!(rotate_secret))
        .routes(routes!(test_endpoint))
        .routes(routes!(replay_endpoint))
}

fn endpoint_id(text: &str) -> Result<WebhookEndpointId, ApiError> {
    text.parse()
        .map_err(|_no_uuid| ApiError::new(ErrorCode::NotFound, "there is no such webhook endpoint"))
}

#[derive(Deserialize)]
struct EventsQuery {
    #[serde(rename = "type")]
    kind: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// Lists events, newest first, each with its latest delivery attempt.
#[utoipa::path(
    get, path = "/api/credits/webhooks/events", tag = "Webhooks", params(schemas::EventParams),
    responses((status = 200, description = "A page of events", body = schemas::EventList), Errors)
)]
async fn list_events(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let asked: EventsQuery = query(&parts)?;
    let query = EventQuery {
        kind: asked.kind,
        limit: page_size(asked.limit)?,
        cursor: asked.cursor,
    };
    let page = app.service.webhooks.events(&actor, &query).await?;
    Ok(no_store(
        &json!({ "success": true, "data": page.events, "next_cursor": page.next_cursor }),
    ))
}

/// Shows an event with every delivery attempt.
#[utoipa::path(
    get, path = "/api/credits/webhooks/events/{eventId}", tag = "Webhooks", params(schemas::EventPath),
    responses((status = 200, description = "The event", body = schemas::EventEnvelope), Errors)
)]
async fn get_event(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let event = app.service.webhooks.event(&actor, &id).await?;
    Ok(enveloped("event", &event))
}

/// Tells an event again, now: to one endpoint, or to every enabled one that wants it.
///
/// The new attempt has `manual_replay: true` and takes the place of one that waits. If it fails, the schedule begins
/// anew.
#[utoipa::path(
    post, path = "/api/credits/webhooks/events/{eventId}/replay", tag = "Webhooks", params(schemas::EventPath),
    request_body = Option<schemas::ReplayBody>,
    responses((status = 202, description = "The event with its new attempts", body = schemas::EventEnvelope), Errors)
)]
async fn replay_event(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, true).await?;
    let event = app.service.webhooks.replay(&actor, &id, &raw).await?;
    Ok(with_status(StatusCode::ACCEPTED, enveloped("event", &event)))
}

/// Lists the workspace's webhook endpoints, oldest first.
#[utoipa::path(
    get, path = "/api/credits/webhooks/endpoints", tag = "Webhooks",
    responses((status = 200, description = "Every endpoint", body = schemas::EndpointList), Errors)
)]
async fn list_endpoints(State(app): AppState, request: Request) -> Answered {
    let actor = admitted(request)?.0;
    let endpoints = app.service.webhooks.endpoints(&actor).await?;
    Ok(enveloped("data", &json!(endpoints)))
}

/// Adds a webhook endpoint. The secret that its requests are signed with is shown here and never again.
#[utoipa::path(
    post, path = "/api/credits/webhooks/endpoints", tag = "Webhooks", request_body = schemas::NewEndpoint,
    responses((status = 201, description = "The endpoint with its secret", body = schemas::SecretEnvelope), Errors)
)]
async fn create_endpoint(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let endpoint = app.service.webhooks.create(&actor, &raw).await?;
    Ok(with_status(StatusCode::CREATED, enveloped("endpoint", &endpoint)))
}

/// Shows a webhook endpoint.
#[utoipa::path(
    get, path = "/api/credits/webhooks/endpoints/{endpointId}", tag = "Webhooks", params(schemas::EndpointPath),
    responses((status = 200, description = "The endpoint", body = schemas::EndpointEnvelope), Errors)
)]
async fn get_endpoint(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let actor = admitted(request)?.0;
    let endpoint = app.service.webhooks.endpoint(&actor, endpoint_id(&id)?).await?;
    Ok(enveloped("endpoint", &endpoint))
}

/// Changes a webhook endpoint; members that are absent stay as they are.
///
/// One that is disabled gets nothing, and what waits for it is canceled; enabled again it is told of what happens from
/// then on.
#[utoipa::path(
    patch, path = "/api/credits/webhooks/endpoints/{endpointId}", tag = "Webhooks", params(schemas::EndpointPath),
    request_body = schemas::ChangedEndpoint,
    responses((status = 200, description = "The endpoint", body = schemas::EndpointEnvelope), Errors)
)]
async fn change_endpoint(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let desk = &app.service.webhooks;
    let endpoint = desk.change(&actor, endpoint_id(&id)?, &raw).await?;
    Ok(enveloped("endpoint", &endpoint))
}

/// Removes a webhook endpoint; what waits for it is canceled.
#[utoipa::path(
    delete, path = "/api/credits/webhooks/endpoints/{endpointId}", tag = "Webhooks", params(schemas::EndpointPath),
    responses((status = 204, description = "Removed"), Errors)
)]
async fn delete_endpoint(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, _raw) = changing(&app, request, true).await?;
    app.service.webhooks.delete(&actor, endpoint_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Gives a webhook endpoint a new secret, shown here and never again.
///
/// Until the overlap is over, requests carry a signature by each.
#[utoipa::path(
    post, path = "/api/credits/webhooks/endpoints/{endpointId}/rotate-secret", tag = "Webhooks",
    params(schemas::EndpointPath), request_body = Option<schemas::RotateBody>,
    responses((status = 200, description = "The endpoint with its new secret", body = schemas::SecretEnvelope), Errors)
)]
async fn rotate_secret(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, true).await?;
    let desk = &app.service.webhooks;
    let endpoint = desk.rotate(&actor, endpoint_id(&id)?, &raw).await?;
    Ok(enveloped("endpoint", &endpoint))
}

/// Sends an example to a webhook endpoint at once and says what came back.
///
/// An example is no event: it is not kept and not repeated, its `sequence` is `0` and its `data.test` is true.
#[utoipa::path(
    post, path = "/api/credits/webhooks/endpoints/{endpointId}/test", tag = "Webhooks",
    params(schemas::EndpointPath), request_body = Option<schemas::TestBody>,
    responses((status = 200, description = "What came back", body = schemas::TestEnvelope), Errors)
)]
async fn test_endpoint(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, true).await?;
    let result = app.service.webhooks.test(&actor, endpoint_id(&id)?, &raw).await?;
    Ok(enveloped("result", &result))
}

/// Tells an endpoint again of events since a time that it wants and has not taken, from the newest down, also of those
/// from while it was disabled.
///
/// It looks at a bounded number of events: while `next_cursor` is not null, ask again with it as `cursor`.
#[utoipa::path(
    post, path = "/api/credits/webhooks/endpoints/{endpointId}/replay", tag = "Webhooks",
    params(schemas::EndpointPath), request_body = schemas::ReplayMissedBody,
    responses((status = 202, description = "How many events", body = schemas::ReplayMissed), Errors)
)]
async fn replay_endpoint(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let desk = &app.service.webhooks;
    let replayed = desk.replay_missed(&actor, endpoint_id(&id)?, &raw).await?;
    let body = json!({
        "success": true, "replayed": replayed.replayed, "next_cursor": replayed.next_cursor,
    });
    Ok(with_status(StatusCode::ACCEPTED, no_store(&body)))
}
