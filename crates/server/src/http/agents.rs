//! Routes of agent connections.

use std::sync::Arc;

use axum::extract::{Request, State};
use http::StatusCode;
use turnpike_core::errors::ErrorCode;
use turnpike_core::ids::TokenId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::access::admitted;
use super::openapi::Errors;
use super::problem::ApiError;
use super::routes::{
    Answered, AppState, PageQuery, Segments, changing, enveloped, no_store, paged, query, with_status,
};
use super::schemas_agents as schemas;
use super::schemas_keys::PageParams;

/// The documented routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, revoke))
}

fn agent_id(text: &str) -> Result<TokenId, ApiError> {
    text.parse()
        .map_err(|_no_uuid| ApiError::new(ErrorCode::NotFound, "there is no such agent connection"))
}

/// Lists agent connections, newest first; an end user's token its own. Those that expired two days ago are gone.
#[utoipa::path(
    get, path = "/api/credits/agent-connections", tag = "Agent connections", params(PageParams),
    responses((status = 200, description = "A page of connections", body = schemas::AgentList), Errors)
)]
async fn list(State(app): AppState, request: Request) -> Answered {
    let (actor, parts) = admitted(request)?;
    let asked: PageQuery = query(&parts)?;
    let page = app
        .service
        .agents
        .list(&actor, asked.cursor(), asked.size()?)
        .await?;
    Ok(paged(&page))
}

/// Makes an agent connection, for an end user or for the workspace. Its secret is shown here and never again.
///
/// A connection of the workspace spends from the pool, and whoever makes one needs `credentials:manage`, too. An unknown
/// end user is created.
#[utoipa::path(
    post, path = "/api/credits/agent-connections", tag = "Agent connections", request_body = schemas::NewAgent,
    responses((status = 201, description = "The connection", body = schemas::IssuedAgent), Errors)
)]
async fn create(State(app): AppState, request: Request) -> Answered {
    let (actor, _parts, raw) = changing(&app, request, false).await?;
    let answer = app.service.agents.create(&actor, &raw).await?;
    Ok(with_status(StatusCode::CREATED, no_store(&answer)))
}

/// Shows an agent connection.
#[utoipa::path(
    get, path = "/api/credits/agent-connections/{agentId}", tag = "Agent connections", params(schemas::AgentPath),
    responses((status = 200, description = "The connection", body = schemas::AgentEnvelope), Errors)
)]
async fn get(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let agent = app.service.agents.get(&actor, agent_id(&id)?).await?;
    Ok(enveloped("agentConnection", &agent))
}

/// Revokes an agent connection: it spends nothing from now on, and no request with it is taken, on other nodes within one
/// second. A second time changes nothing.
#[utoipa::path(
    delete, path = "/api/credits/agent-connections/{agentId}", tag = "Agent connections", params(schemas::AgentPath),
    responses((status = 200, description = "The connection", body = schemas::AgentEnvelope), Errors)
)]
async fn revoke(State(app): AppState, Segments(id): Segments<String>, request: Request) -> Answered {
    let (actor, _parts) = admitted(request)?;
    let agent = app.service.agents.revoke(&actor, agent_id(&id)?).await?;
    app.service.authenticator.forget();
    Ok(enveloped("agentConnection", &agent))
}
